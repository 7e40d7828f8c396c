/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "dispatch/dispatch.h"
#include "dispatch/schema.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static core__schema schema;

static core_status parse(const char *text)
{
    return core__schema_parse(text, strlen(text), &schema);
}

static void refuses(const char *text, const char *why)
{
    ck_assert_msg(parse(text) == CORE_ERROR_INVALID_ARGUMENT, "accepted: %s",
                  text);
    ck_assert_msg(strstr(core_error_message(), why) != NULL,
                  "\"%s\" does not say \"%s\"", core_error_message(), why);
}

START_TEST(name_overload_and_namespace_are_parsed)
{
    ck_assert_int_eq(parse("add.Tensor(Tensor self) -> Tensor"), CORE_OK);
    ck_assert_str_eq(schema.name, "add.Tensor");
    ck_assert_int_eq(parse("mine::_f.g_1(Tensor a) -> Tensor"), CORE_OK);
    ck_assert_str_eq(schema.name, "mine::_f.g_1");
    ck_assert_int_eq(parse("seed() -> ()"), CORE_OK);
    ck_assert_uint_eq(schema.narguments, 0);
    ck_assert_uint_eq(schema.nresults, 0);
}
END_TEST

START_TEST(malformed_names_are_refused)
{
    refuses("", "name is missing");
    refuses("(Tensor a) -> Tensor", "name is missing");
    refuses("a.b.c(Tensor a) -> Tensor", "name.overload");
    refuses(".b(Tensor a) -> Tensor", "name.overload");
    refuses("a.(Tensor a) -> Tensor", "name.overload");
    refuses("a:b(Tensor a) -> Tensor", "space::name");
    refuses("a::b::c(Tensor a) -> Tensor", "space::name");
    refuses("a.x::b(Tensor a) -> Tensor", "space::name");
    refuses("1st(Tensor a) -> Tensor", "name");
}
END_TEST

START_TEST(every_type_is_parsed)
{
    static const struct {
        const char *text;
        uint32_t tag;
    } types[] = {
        {"Tensor", CORE_VALUE_TENSOR},
        {"Tensor[]", CORE_VALUE_TENSOR_LIST},
        {"Tensor?[]", CORE_VALUE_TENSOR_LIST},
        {"Scalar", CORE_VALUE_FLOAT},
        {"int", CORE_VALUE_INT},
        {"SymInt", CORE_VALUE_INT},
        {"int[]", CORE_VALUE_INT_LIST},
        {"SymInt[]", CORE_VALUE_INT_LIST},
        {"int[2]", CORE_VALUE_INT_LIST},
        {"float", CORE_VALUE_FLOAT},
        {"float[]", CORE_VALUE_FLOAT_LIST},
        {"bool", CORE_VALUE_BOOL},
        {"bool[3]", CORE_VALUE_BOOL_LIST},
        {"str", CORE_VALUE_STRING},
        {"ScalarType", CORE_VALUE_DTYPE},
        {"Device", CORE_VALUE_DEVICE},
        {"Layout", CORE_VALUE_LAYOUT},
        {"MemoryFormat", CORE_VALUE_FORMAT},
        {"Generator", CORE_VALUE_GENERATOR},
    };
    char text[80];

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(text, sizeof text, "f(%s x) -> Tensor", types[i].text);
        ck_assert_int_eq(parse(text), CORE_OK);
        ck_assert_uint_eq(schema.arguments[0].tag, types[i].tag);
        ck_assert(!schema.arguments[0].optional);
        snprintf(text, sizeof text, "f(%s? x=None) -> Tensor", types[i].text);
        ck_assert_int_eq(parse(text), CORE_OK);
        ck_assert_uint_eq(schema.arguments[0].tag, types[i].tag);
        ck_assert(schema.arguments[0].optional);
        ck_assert(schema.arguments[0].has_default);
        ck_assert_uint_eq(schema.arguments[0].fallback.tag, CORE_VALUE_NONE);
    }
    ck_assert_int_eq(parse("f(Scalar a, float b, Tensor?[] c) -> Tensor"),
                     CORE_OK);
    ck_assert(schema.arguments[0].scalar);
    ck_assert(!schema.arguments[1].scalar);
    ck_assert(schema.arguments[2].optional_elements);
    ck_assert(!schema.arguments[2].optional);
}
END_TEST

START_TEST(unknown_types_are_refused)
{
    refuses("f(tensor x) -> Tensor", "no type tensor");
    refuses("f(Scalar[] x) -> Tensor", "no lists");
    refuses("f(int?[] x) -> Tensor", "only tensors");
    refuses("f(int[7] x) -> Tensor", "at most 6");
    refuses("f(int[99999999999999999999] x) -> Tensor", "at most 6");
    refuses("f(int(a) x) -> Tensor", "name is missing");
    refuses("f(Tensor(a x) -> Tensor", "')' is missing");
    refuses("f(Tensor) -> Tensor", "name is missing");
    refuses("f(Tensor x, Tensor x) -> Tensor", "two arguments are named x");
}
END_TEST

START_TEST(aliases_and_keyword_only_are_parsed)
{
    ck_assert_int_eq(parse("f(Tensor(a!) self, Tensor(b) other, *, "
                           "Tensor(c!) out) -> (Tensor(a!), Tensor(c!) out)"),
                     CORE_OK);
    ck_assert(schema.arguments[0].mutated && schema.arguments[0].aliased);
    ck_assert(!schema.arguments[1].mutated && schema.arguments[1].aliased);
    ck_assert(!schema.arguments[1].keyword_only);
    ck_assert(schema.arguments[2].keyword_only);
    ck_assert_uint_eq(schema.nresults, 2);
    ck_assert(schema.results[0].mutated);
    ck_assert_str_eq(schema.results[0].name, "");
    ck_assert_str_eq(schema.results[1].name, "out");
    ck_assert_int_eq(parse("chunk(Tensor(a -> *) self) -> Tensor(a)[]"),
                     CORE_OK);
    ck_assert(schema.arguments[0].aliased);
    ck_assert_uint_eq(schema.results[0].tag, CORE_VALUE_TENSOR_LIST);
    refuses("f(*, *, int a) -> Tensor", "second");
}
END_TEST

static core_value fallback(const char *argument)
{
    char text[120];

    snprintf(text, sizeof text, "f(%s) -> Tensor", argument);
    ck_assert_msg(parse(text) == CORE_OK, "%s", core_error_message());
    ck_assert(schema.arguments[0].has_default);
    return schema.arguments[0].fallback;
}

START_TEST(numeric_defaults_are_exact)
{
    ck_assert_int_eq(fallback("int a=-1").u.i, -1);
    ck_assert_int_eq(fallback("int a=9223372036854775807").u.i, INT64_MAX);
    ck_assert_double_eq(fallback("float a=0.01").u.f, 0.01);
    ck_assert_double_eq(fallback("float a=1e-05").u.f, 1e-05);
    ck_assert_double_eq(fallback("float a=2.").u.f, 2);
    ck_assert_double_eq(fallback("float a=1e-12").u.f, 1e-12);
    ck_assert_double_eq(fallback("float a=0.1275").u.f, 0.1275);
    ck_assert_uint_eq(fallback("float a=3").tag, CORE_VALUE_FLOAT);
    ck_assert_double_eq(fallback("float a=-3").u.f, -3);
    ck_assert_uint_eq(fallback("Scalar a=1").tag, CORE_VALUE_INT);
    ck_assert_uint_eq(fallback("Scalar a=0.5").tag, CORE_VALUE_FLOAT);
    ck_assert_uint_eq(fallback("Scalar a=True").tag, CORE_VALUE_BOOL);
    refuses("f(int a=99999999999999999999) -> Tensor", "number");
    refuses("f(float a=1e999) -> Tensor", "number");
    refuses("f(float a=.) -> Tensor", "number");
    refuses("f(float a=1e) -> Tensor", "number");
    refuses("f(int a=0.5) -> Tensor", "fit the type");
    refuses("f(bool a=1) -> Tensor", "fit the type");
    refuses("f(int a=None) -> Tensor", "not optional");
}
END_TEST

START_TEST(other_defaults_are_parsed)
{
    core_value value = fallback("str reduction=\"none\"");

    ck_assert_uint_eq(value.tag, CORE_VALUE_STRING);
    ck_assert_uint_eq(value.count, 4);
    ck_assert_str_eq(value.u.string, "none");
    ck_assert_str_eq(fallback("str? a='reduced'").u.string, "reduced");
    ck_assert_int_eq(fallback("bool a=True").u.i, 1);
    ck_assert_int_eq(fallback("bool? a=False").u.i, 0);
    value = fallback("ScalarType? dtype=i64");
    ck_assert_uint_eq(value.tag, CORE_VALUE_DTYPE);
    ck_assert_int_eq(value.u.i, CORE_I64);
    value = fallback("MemoryFormat a=contiguous_format");
    ck_assert_uint_eq(value.tag, CORE_VALUE_FORMAT);
    ck_assert_int_eq(value.u.i, CORE_FORMAT_CONTIGUOUS);
    refuses("f(str a=\"a text that is much too long\") -> Tensor",
            "string does not end");
    refuses("f(str a=\"open) -> Tensor", "string does not end");
    refuses("f(int a=\"1\") -> Tensor", "fit the type");
    refuses("f(int a=seven) -> Tensor", "not a default");
}
END_TEST

START_TEST(list_defaults_point_into_the_schema)
{
    core_value value = fallback("int[2] stride=1");

    ck_assert_uint_eq(value.tag, CORE_VALUE_INT_LIST);
    ck_assert_uint_eq(value.count, 2);
    ck_assert_ptr_eq(value.u.ints, schema.arguments[0].ints);
    ck_assert_int_eq(value.u.ints[1], 1);
    value = fallback("int[] dims=[0, -2]");
    ck_assert_uint_eq(value.count, 2);
    ck_assert_int_eq(value.u.ints[1], -2);
    ck_assert_uint_eq(fallback("int[2] stride=[]").count, 0);
    ck_assert_uint_eq(fallback("int[2] stride=[]").tag, CORE_VALUE_INT_LIST);
    value = fallback("bool[3] mask=[True, False, True]");
    ck_assert_uint_eq(value.u.bools[0], 1);
    ck_assert_uint_eq(value.u.bools[1], 0);
    value = fallback("float[] a=[0.5, 2]");
    ck_assert_double_eq(value.u.floats[1], 2);
    refuses("f(int[] a=1) -> Tensor", "is a list");
    refuses("f(int[] a=[0.5]) -> Tensor", "fit the type");
    refuses("f(int[] a=[1,2,3,4,5,6,7]) -> Tensor", "at most 6");
    refuses("f(int[] a=[1) -> Tensor", "',' is missing");
}
END_TEST

START_TEST(too_many_arguments_are_refused)
{
    char text[1024] = "f(";

    for (int i = 0; i < 25; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sint a%d",
                 i ? ", " : "", i);
    strcat(text, ") -> Tensor");
    refuses(text, "at most 24 arguments");
    refuses("f() -> (int, int, int, int, int, int, int, int, int)",
            "at most 8 results");
}
END_TEST

START_TEST(trailing_text_is_refused_with_its_column)
{
    refuses("f(int a) -> Tensor x y", "text after the schema");
    refuses("f(int a)", "column 9");
    refuses("f(int a) -> Tensor\001", "text after the schema");
    refuses("f(int a, ) -> Tensor", "column 10");
    ck_assert_int_eq(core__schema_parse("f(int a) -> Tensor\0", 19, &schema),
                     CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

/* Every prefix, and every replacement of a character, is parsed or refused
 * without a crash. */
START_TEST(damaged_schemas_are_parsed_or_refused)
{
    static const char good[] =
        "n::conv.a(Tensor(a!) x, Tensor? b=None, int[2] s=1, float e=1e-05, "
        "*, str? r=\"mean\", bool[3] m=[True, False, True]) -> (Tensor(a!) y, "
        "Tensor[])";
    static const char letters[] = "()[]?!*=,.-0e\"Tn ";
    char text[sizeof good];

    for (size_t size = 0; size < sizeof good - 1; size++)
        ck_assert_int_ne(core__schema_parse(good, size, &schema), CORE_OK);
    ck_assert_int_eq(parse(good), CORE_OK);
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (size_t k = 0; k < sizeof letters - 1; k++) {
            memcpy(text, good, sizeof good);
            text[i] = letters[k];
            parse(text);
        }
    }
}
END_TEST

START_TEST(every_built_in_operator_matches_its_schema)
{
    ck_assert_uint_gt(core__operator_count, 100);
    for (uint32_t id = 0; id < core__operator_count; id++) {
        core_operator *op = &core__operators[id];
        const core__schema *parsed;
        uint32_t tensors = 0;
        uint32_t lists = 0;

        if (!op->data)
            continue;
        ck_assert_msg(core__schema_of(op, &parsed) == CORE_OK, "%s",
                      core_error_message());
        ck_assert_str_eq(parsed->name, op->data->name);
        ck_assert_uint_eq(parsed->narguments, op->nargs);
        ck_assert_uint_eq(parsed->nresults, op->nresults);
        for (uint32_t i = 0; i < parsed->narguments; i++) {
            tensors |= (uint32_t)(parsed->arguments[i].tag == CORE_VALUE_TENSOR)
                       << i;
            lists |=
                (uint32_t)(parsed->arguments[i].tag == CORE_VALUE_TENSOR_LIST)
                << i;
        }
        ck_assert_uint_eq(tensors, op->tensors);
        ck_assert_uint_eq(lists, op->lists);
        ck_assert_ptr_eq(
            core__operator_find(parsed->name, strlen(parsed->name)), op);
    }
}
END_TEST

START_TEST(schema_is_parsed_once)
{
    const core__schema *first;
    const core__schema *second;

    ck_assert_int_eq(core__schema_of(&core__operators[0], &first), CORE_OK);
    ck_assert_int_eq(core__schema_of(&core__operators[0], &second), CORE_OK);
    ck_assert_ptr_eq(first, second);
}
END_TEST

/* Running statistics have no version; the lists of fused steps have, although
 * the operators are functional by variant. */
static const struct {
    const char *name;
    uint32_t arguments;
} unmarked[] = {{"native_batch_norm", 0x18},
                {"native_batch_norm.out", 0x18},
                {"batch_norm_update_stats", 0x6},
                {"batch_norm_update_stats.out", 0x6},
                {"_fused_sgd_step", 0x5},
                {"_fused_adam_step", 0xd},
                {"_fused_sgd_step.device_numbers", 0x5},
                {"_fused_adam_step.device_numbers", 0xd}};

START_TEST(arguments_written_without_a_mark_are_listed)
{
    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core_operator *op = &core__operators[i];
        const char *name = core__operator_name(op);
        uint32_t more = core__operator_written_arguments(op, op->nargs) &
                        ~core__operator_changed_arguments(op, op->nargs);
        uint32_t known = 0;

        for (size_t k = 0; k < sizeof unmarked / sizeof *unmarked; k++)
            if (strcmp(name, unmarked[k].name) == 0)
                known = unmarked[k].arguments;
        ck_assert_msg(more == known, "%s: %x", name, more);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        name_overload_and_namespace_are_parsed,
        malformed_names_are_refused,
        every_type_is_parsed,
        unknown_types_are_refused,
        aliases_and_keyword_only_are_parsed,
        numeric_defaults_are_exact,
        other_defaults_are_parsed,
        list_defaults_point_into_the_schema,
        too_many_arguments_are_refused,
        trailing_text_is_refused_with_its_column,
        damaged_schemas_are_parsed_or_refused,
        every_built_in_operator_matches_its_schema,
        schema_is_parsed_once,
        arguments_written_without_a_mark_are_listed,
    };
    const test_suite suite = {
        .name = "dispatch/schema",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
