/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A recursive descent parser of schema texts.  It is not on a hot path: a
 * schema is parsed when its operator is first called boxed, or registered. */

#include "dispatch/schema.h"

#include "base/memory.h"
#include "dispatch/operator.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *text;
    size_t size;
    size_t at;
} reader;

static core_status __attribute__((format(printf, 2, 3), cold))
problem(const reader *in, const char *format, ...)
{
    char what[160];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT, "schema \"%.*s\", column %zu: %s",
        in->size > 300 ? 300 : (int)in->size, in->text, in->at + 1, what);
}

/* -------------------------------------------------------------- tokens -- */

static char peek(const reader *in)
{
    return in->at < in->size ? in->text[in->at] : 0;
}

static void skip_spaces(reader *in)
{
    while (peek(in) == ' ' || peek(in) == '\t' || peek(in) == '\n')
        in->at++;
}

/* Consumes a character if it is the next one. */
static bool take(reader *in, char c)
{
    skip_spaces(in);
    if (c == 0 || peek(in) != c)
        return false;
    in->at++;
    return true;
}

static core_status expect(reader *in, char c)
{
    if (take(in, c))
        return CORE_OK;
    return problem(in, "'%c' is missing", c);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) ||
           c == '_';
}

/* A name of letters, digits, underscores and characters of `more`. */
static core_status name_token(reader *in, const char *more, char *to,
                              size_t capacity)
{
    size_t from;
    size_t length;

    skip_spaces(in);
    from = in->at;
    while (is_word(peek(in)) || (peek(in) && strchr(more, peek(in))))
        in->at++;
    length = in->at - from;
    if (length == 0)
        return problem(in, "a name is missing");
    if (length >= capacity) {
        in->at = from;
        return problem(in, "a name is longer than %zu characters",
                       capacity - 1);
    }
    memcpy(to, in->text + from, length);
    to[length] = 0;
    return CORE_OK;
}

/* --------------------------------------------------------------- types -- */

typedef struct type_text {
    uint32_t tag; /* of one element, for lists */
    bool scalar;
    bool optional;
    bool optional_elements;
    bool mutated;
    bool aliased;
    char alias[8];
    bool list;
    int32_t list_size;
} type_text;

static const struct {
    const char *name;
    uint32_t tag;
    uint32_t list_tag; /* 0: there are no lists of it */
} types[] = {
    {"Tensor", CORE_VALUE_TENSOR, CORE_VALUE_TENSOR_LIST},
    {"Scalar", CORE_VALUE_FLOAT, 0},
    {"int", CORE_VALUE_INT, CORE_VALUE_INT_LIST},
    {"SymInt", CORE_VALUE_INT, CORE_VALUE_INT_LIST},
    {"float", CORE_VALUE_FLOAT, CORE_VALUE_FLOAT_LIST},
    {"bool", CORE_VALUE_BOOL, CORE_VALUE_BOOL_LIST},
    {"str", CORE_VALUE_STRING, 0},
    {"ScalarType", CORE_VALUE_DTYPE, 0},
    {"Device", CORE_VALUE_DEVICE, 0},
    {"Layout", CORE_VALUE_LAYOUT, 0},
    {"MemoryFormat", CORE_VALUE_FORMAT, 0},
    {"Generator", CORE_VALUE_GENERATOR, 0},
};

/* "(a)", "(a!)", "(a -> *)" after Tensor. */
static core_status alias_set(reader *in, type_text *out)
{
    CORE_TRY(name_token(in, "", out->alias, sizeof out->alias));
    out->aliased = true;
    out->mutated = take(in, '!');
    if (take(in, '-')) {
        CORE_TRY(expect(in, '>'));
        CORE_TRY(expect(in, '*'));
    }
    return expect(in, ')');
}

/* "]" or "2]". */
static core_status list_rest(reader *in, type_text *out, uint32_t list_tag)
{
    int32_t size = 0;

    if (!list_tag)
        return problem(in, "there are no lists of this type");
    skip_spaces(in);
    while (is_digit(peek(in)) && size < 100)
        size = size * 10 + (in->text[in->at++] - '0');
    if (size > CORE__SCHEMA_LIST)
        return problem(in, "a list's size is at most %d", CORE__SCHEMA_LIST);
    out->list = true;
    out->list_size = size;
    out->tag = list_tag;
    return expect(in, ']');
}

static core_status type_read(reader *in, type_text *out)
{
    char name[16];
    uint32_t list_tag = 0;
    size_t from;
    bool optional;

    memset(out, 0, sizeof *out);
    skip_spaces(in);
    from = in->at;
    CORE_TRY(name_token(in, "", name, sizeof name));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) != 0)
            continue;
        out->tag = types[i].tag;
        list_tag = types[i].list_tag;
    }
    if (!out->tag) {
        in->at = from;
        return problem(in, "there is no type %s", name);
    }
    out->scalar = strcmp(name, "Scalar") == 0;
    if (out->tag == CORE_VALUE_TENSOR && take(in, '('))
        CORE_TRY(alias_set(in, out));
    optional = take(in, '?');
    if (!take(in, '[')) {
        out->optional = optional;
        return CORE_OK;
    }
    if (optional && out->tag != CORE_VALUE_TENSOR)
        return problem(in, "only tensors may be absent in a list");
    out->optional_elements = optional;
    CORE_TRY(list_rest(in, out, list_tag));
    out->optional = take(in, '?');
    return CORE_OK;
}

/* ------------------------------------------------------------ defaults -- */

static double power_of_ten(int exponent)
{
    double power = 1;

    while (exponent-- > 0)
        power *= 10;
    return power;
}

/* Reads the digits of a number; *out_scale counts those after the point. */
static bool digits(reader *in, int64_t *out_value, int *out_scale,
                   bool *out_point)
{
    size_t from = in->at;

    *out_value = 0;
    *out_scale = 0;
    *out_point = false;
    while (is_digit(peek(in)) || (peek(in) == '.' && !*out_point)) {
        char c = in->text[in->at++];

        if (c == '.') {
            *out_point = true;
            continue;
        }
        if (__builtin_mul_overflow(*out_value, 10, out_value) ||
            __builtin_add_overflow(*out_value, c - '0', out_value))
            return false;
        *out_scale += *out_point;
    }
    return in->at - from > (size_t)*out_point;
}

/* "-1", "0.01", "1.", "1e-05".  An integer mantissa below 2^53 and a power of
 * ten up to 22 are exact, so one multiplication or division rounds correctly,
 * independent of the locale. */
static core_status number(reader *in, core_value *out)
{
    bool minus = take(in, '-');
    size_t from = in->at;
    int64_t mantissa;
    int64_t exponent = 0;
    int scale;
    bool point;
    bool fraction;
    double value;

    if (!digits(in, &mantissa, &scale, &point))
        goto unreadable;
    fraction = point;
    if (peek(in) == 'e' || peek(in) == 'E') {
        bool negative;
        int unused;

        in->at++;
        fraction = true;
        negative = peek(in) == '-';
        if (negative || peek(in) == '+')
            in->at++;
        if (!digits(in, &exponent, &unused, &point) || point || exponent > 40)
            goto unreadable;
        exponent = negative ? -exponent : exponent;
    }
    if (!fraction) {
        *out = (core_value){CORE_VALUE_INT, 0, {minus ? -mantissa : mantissa}};
        return CORE_OK;
    }
    exponent -= scale;
    if (mantissa >= INT64_C(1) << 53 || exponent < -22 || exponent > 22)
        goto unreadable;
    value = (double)mantissa;
    value = exponent < 0 ? value / power_of_ten((int)-exponent)
                         : value * power_of_ten((int)exponent);
    *out = (core_value){CORE_VALUE_FLOAT, 0, {0}};
    out->u.f = minus ? -value : value;
    return CORE_OK;
unreadable:
    in->at = from;
    return problem(in, "this is not a number");
}

/* "none" or 'none', into the argument. */
static core_status quoted(reader *in, core__schema_argument *argument)
{
    char quote = in->text[in->at++];
    size_t length = 0;

    while (peek(in) != quote) {
        if (!peek(in) || length + 1 >= sizeof argument->text)
            return problem(in, "the string does not end within %zu characters",
                           sizeof argument->text - 1);
        argument->text[length++] = in->text[in->at++];
    }
    in->at++;
    argument->text[length] = 0;
    argument->fallback = (core_value){CORE_VALUE_STRING, (uint32_t)length, {0}};
    argument->fallback.u.string = argument->text;
    return CORE_OK;
}

static const struct {
    const char *name;
    core_value value;
} constants[] = {
    {"None", {CORE_VALUE_NONE, 0, {0}}},
    {"False", {CORE_VALUE_BOOL, 0, {0}}},
    {"True", {CORE_VALUE_BOOL, 0, {1}}},
    {"contiguous_format", {CORE_VALUE_FORMAT, 0, {CORE_FORMAT_CONTIGUOUS}}},
    {"preserve_format", {CORE_VALUE_FORMAT, 0, {CORE_FORMAT_PRESERVE}}},
    {"channels_last", {CORE_VALUE_FORMAT, 0, {CORE_FORMAT_CHANNELS_LAST}}},
    {"strided", {CORE_VALUE_LAYOUT, 0, {0}}},
};

/* A number or a name. */
static core_status atom(reader *in, core_value *out)
{
    char name[24];
    core_dtype dtype;
    size_t from;

    skip_spaces(in);
    if (is_digit(peek(in)) || peek(in) == '-' || peek(in) == '.')
        return number(in, out);
    from = in->at;
    CORE_TRY(name_token(in, "", name, sizeof name));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (strcmp(constants[i].name, name) == 0) {
            *out = constants[i].value;
            return CORE_OK;
        }
    }
    dtype = core__dtype_from_name(name, strlen(name));
    if (dtype != CORE_DTYPE_NONE) {
        *out = (core_value){CORE_VALUE_DTYPE, 0, {(int64_t)dtype}};
        return CORE_OK;
    }
    in->at = from;
    return problem(in, "%s is not a default value", name);
}

/* One element of a list. */
static core_status element_store(reader *in, core__schema_argument *argument,
                                 uint32_t index, core_value value)
{
    if (argument->tag == CORE_VALUE_INT_LIST && value.tag == CORE_VALUE_INT)
        argument->ints[index] = value.u.i;
    else if (argument->tag == CORE_VALUE_BOOL_LIST &&
             value.tag == CORE_VALUE_BOOL)
        argument->bools[index] = (uint8_t)value.u.i;
    else if (argument->tag == CORE_VALUE_FLOAT_LIST &&
             value.tag == CORE_VALUE_FLOAT)
        argument->floats[index] = value.u.f;
    else if (argument->tag == CORE_VALUE_FLOAT_LIST &&
             value.tag == CORE_VALUE_INT)
        argument->floats[index] = (double)value.u.i;
    else
        return problem(in, "the default does not fit the type");
    return CORE_OK;
}

static void list_finish(core__schema_argument *argument, uint32_t count)
{
    argument->fallback = (core_value){argument->tag, count, {0}};
    if (argument->tag == CORE_VALUE_INT_LIST)
        argument->fallback.u.ints = argument->ints;
    else if (argument->tag == CORE_VALUE_BOOL_LIST)
        argument->fallback.u.bools = argument->bools;
    else if (argument->tag == CORE_VALUE_FLOAT_LIST)
        argument->fallback.u.floats = argument->floats;
}

/* After "[". */
static core_status list_default(reader *in, core__schema_argument *argument)
{
    uint32_t count = 0;

    while (!take(in, ']')) {
        core_value value;

        if (count > 0)
            CORE_TRY(expect(in, ','));
        if (count == CORE__SCHEMA_LIST)
            return problem(in, "a default list has at most %d elements",
                           CORE__SCHEMA_LIST);
        CORE_TRY(atom(in, &value));
        CORE_TRY(element_store(in, argument, count++, value));
    }
    list_finish(argument, count);
    return CORE_OK;
}

static bool is_list(uint32_t tag)
{
    return tag == CORE_VALUE_INT_LIST || tag == CORE_VALUE_FLOAT_LIST ||
           tag == CORE_VALUE_BOOL_LIST || tag == CORE_VALUE_TENSOR_LIST;
}

/* One value that must fit; for int[2] it is the value of both. */
static core_status single_default(reader *in, core__schema_argument *argument)
{
    core_value value;

    CORE_TRY(atom(in, &value));
    if (value.tag == CORE_VALUE_NONE) {
        if (!argument->optional)
            return problem(in, "None, but the type is not optional");
        argument->fallback = value;
        return CORE_OK;
    }
    if (is_list(argument->tag)) {
        if (argument->list_size == 0)
            return problem(in, "the default of a list is a list");
        for (int32_t i = 0; i < argument->list_size; i++)
            CORE_TRY(element_store(in, argument, (uint32_t)i, value));
        list_finish(argument, (uint32_t)argument->list_size);
        return CORE_OK;
    }
    if (argument->tag == CORE_VALUE_FLOAT && !argument->scalar &&
        value.tag == CORE_VALUE_INT) {
        value.tag = CORE_VALUE_FLOAT;
        value.u.f = (double)value.u.i;
    }
    if (value.tag != argument->tag &&
        !(argument->scalar &&
          (value.tag == CORE_VALUE_INT || value.tag == CORE_VALUE_BOOL)))
        return problem(in, "the default does not fit the type");
    argument->fallback = value;
    return CORE_OK;
}

static core_status default_read(reader *in, core__schema_argument *argument)
{
    argument->has_default = true;
    skip_spaces(in);
    if (peek(in) == '"' || peek(in) == '\'') {
        if (argument->tag != CORE_VALUE_STRING)
            return problem(in, "the default does not fit the type");
        return quoted(in, argument);
    }
    if (is_list(argument->tag) && take(in, '['))
        return list_default(in, argument);
    return single_default(in, argument);
}

/* ---------------------------------------------------------- the schema -- */

static core_status argument_read(reader *in, core__schema *schema,
                                 bool keyword_only)
{
    core__schema_argument *argument;
    type_text type;

    if (schema->narguments == CORE__SCHEMA_ARGUMENTS)
        return problem(in, "an operator has at most %d arguments",
                       CORE__SCHEMA_ARGUMENTS);
    argument = &schema->arguments[schema->narguments];
    CORE_TRY(type_read(in, &type));
    argument->tag = type.tag;
    argument->scalar = type.scalar;
    argument->optional = type.optional;
    argument->optional_elements = type.optional_elements;
    argument->mutated = type.mutated;
    argument->aliased = type.aliased;
    memcpy(argument->alias, type.alias, sizeof argument->alias);
    argument->list_size = type.list_size;
    argument->keyword_only = keyword_only;
    CORE_TRY(name_token(in, "", argument->name, sizeof argument->name));
    for (uint32_t i = 0; i < schema->narguments; i++)
        if (strcmp(schema->arguments[i].name, argument->name) == 0)
            return problem(in, "two arguments are named %s", argument->name);
    if (take(in, '='))
        CORE_TRY(default_read(in, argument));
    schema->narguments++;
    return CORE_OK;
}

/* After "(". */
static core_status arguments_read(reader *in, core__schema *schema)
{
    bool keyword_only = false;
    bool first = true;

    while (!take(in, ')')) {
        if (!first)
            CORE_TRY(expect(in, ','));
        first = false;
        if (take(in, '*')) {
            if (keyword_only)
                return problem(in, "a second '*'");
            keyword_only = true;
            continue;
        }
        CORE_TRY(argument_read(in, schema, keyword_only));
    }
    return CORE_OK;
}

static core_status result_read(reader *in, core__schema *schema)
{
    core__schema_result *result;
    type_text type;

    if (schema->nresults == CORE__SCHEMA_RESULTS)
        return problem(in, "an operator has at most %d results",
                       CORE__SCHEMA_RESULTS);
    result = &schema->results[schema->nresults];
    CORE_TRY(type_read(in, &type));
    result->tag = type.tag;
    result->mutated = type.mutated;
    result->aliased = type.aliased;
    memcpy(result->alias, type.alias, sizeof result->alias);
    skip_spaces(in);
    if (is_word(peek(in)))
        CORE_TRY(name_token(in, "", result->name, sizeof result->name));
    schema->nresults++;
    return CORE_OK;
}

static core_status results_read(reader *in, core__schema *schema)
{
    bool first = true;

    if (!take(in, '('))
        return result_read(in, schema);
    while (!take(in, ')')) {
        if (!first)
            CORE_TRY(expect(in, ','));
        first = false;
        CORE_TRY(result_read(in, schema));
    }
    return CORE_OK;
}

/* "name", "name.overload", "space::name.overload" */
static core_status name_read(reader *in, core__schema *schema)
{
    const char *colons;
    const char *name = schema->name;
    const char *point;

    CORE_TRY(name_token(in, ":.", schema->name, sizeof schema->name));
    colons = strchr(name, ':');
    if (colons) {
        if (colons == name || colons[1] != ':' || strchr(colons + 2, ':') ||
            memchr(name, '.', (size_t)(colons - name)))
            return problem(in,
                           "the name is not of the form space::name.overload");
        name = colons + 2;
    }
    point = strchr(name, '.');
    if (!*name || is_digit(*name) || point == name ||
        (point && (!point[1] || strchr(point + 1, '.'))))
        return problem(in, "the name is not of the form name or name.overload");
    return CORE_OK;
}

core_status core__schema_parse(const char *text, size_t size,
                               core__schema *out_schema)
{
    reader in = {text, size, 0};

    memset(out_schema, 0, sizeof *out_schema);
    CORE_TRY(name_read(&in, out_schema));
    CORE_TRY(expect(&in, '('));
    CORE_TRY(arguments_read(&in, out_schema));
    CORE_TRY(expect(&in, '-'));
    CORE_TRY(expect(&in, '>'));
    CORE_TRY(results_read(&in, out_schema));
    skip_spaces(&in);
    if (in.at != in.size)
        return problem(&in, "there is text after the schema");
    return CORE_OK;
}

core_status core__schema_of(core_operator *op, const core__schema **out_schema)
{
    void *known = __atomic_load_n(&op->schema, __ATOMIC_ACQUIRE);
    core__schema *parsed;
    core_status status;

    *out_schema = known;
    if (known)
        return CORE_OK;
    parsed = core__alloc(sizeof *parsed);
    if (!parsed)
        return core__error_memory(sizeof *parsed);
    status =
        core__schema_parse(op->data->schema, strlen(op->data->schema), parsed);
    if (status != CORE_OK) {
        core__free(parsed);
        return status;
    }
    /* If two threads parse at once, the first result is kept. */
    if (!__atomic_compare_exchange_n(&op->schema, &known, parsed, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        core__free(parsed);
        *out_schema = known;
        return CORE_OK;
    }
    *out_schema = parsed;
    return CORE_OK;
}

static uint32_t marked(const core__schema *schema)
{
    uint32_t changed = 0;

    for (uint32_t i = 0; i < schema->narguments; i++)
        changed |= (uint32_t)schema->arguments[i].mutated << i;
    return changed;
}

uint32_t core__operator_changed_arguments(const core_operator *op,
                                          uint32_t nargs)
{
    uint32_t results = core__operator_base(op)->nresults;

    if (op->flags & CORE__OP_CUSTOM) /* its schema is parsed at registration */
        return marked(op->schema);
    if (op->variant == CORE__VARIANT_OUT)
        return ((1u << results) - 1) << (nargs - results);
    return op->variant == CORE__VARIANT_INPLACE;
}

uint32_t core__operator_written_arguments(const core_operator *op,
                                          uint32_t nargs)
{
    return core__operator_changed_arguments(op, nargs) |
           core__operator_base(op)->data->writes;
}
