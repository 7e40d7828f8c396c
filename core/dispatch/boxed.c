/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators by name, and calls with checked arguments, for foreign-function
 * interfaces and tools that read calls from a file.  Typed calls use
 * core_op_invoke, and skip all of this. */

#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/dispatch.h>
#include <libcore/tensor.h>

#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------- names -- */

/* The built-in overloads of a name that is not an operator itself:
 * "add.Tensor, add.Scalar"; "" if there are none. */
static void overloads(const char *name, char *text, size_t capacity)
{
    size_t length = strcspn(name, ".");
    size_t used = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core__operator_data *data = core__operators[i].data;
        int wrote;

        if (!data || strncmp(data->name, name, length) != 0 ||
            (data->name[length] != 0 && data->name[length] != '.'))
            continue;
        wrote = snprintf(text + used, capacity - used, "%s%s", used ? ", " : "",
                         data->name);
        if (wrote < 0 || (size_t)wrote >= capacity - used) {
            text[used] = 0;
            return;
        }
        used += (size_t)wrote;
    }
}

core_status core_op_find(const char *name, core_operator **out_op)
{
    char others[400];

    CORE__NOT_NULL(out_op);
    *out_op = NULL;
    CORE__NOT_NULL(name);
    *out_op = core__operator_find(name, strlen(name));
    if (*out_op)
        return CORE_OK;
    overloads(name, others, sizeof others);
    if (others[0])
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "there is no operator \"%.96s\"; its overloads are %s", name,
            others);
    return core__error(CORE_ERROR_NOT_FOUND, "there is no operator \"%.96s\"",
                       name);
}

const char *core_op_name(const core_operator *op)
{
    return op ? op->data->name : "";
}

const char *core_op_schema(const core_operator *op)
{
    return op ? op->data->schema : "";
}

core_operator *core_op_at(uint32_t index)
{
    /* Retired ids leave rows without data. */
    for (uint32_t i = 0; i < core__operator_count; i++)
        if (core__operators[i].data && index-- == 0)
            return &core__operators[i];
    return NULL;
}

/* ----------------------------------------------------------- arguments -- */

/* The arguments of a call as they are completed.  `ints` holds lists created
 * from one number, `floats` a list of floats given as integers. */
typedef struct completion {
    const core_operator *op;
    const core__schema *schema;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    int64_t ints[CORE__SCHEMA_ARGUMENTS][CORE__SCHEMA_LIST];
    double floats[CORE__SCHEMA_ARGUMENTS][CORE__SCHEMA_LIST];
} completion;

static const char *tag_name(uint32_t tag)
{
    static const char *const names[] = {
        "nothing",         "a tensor",
        "a view",          "an int",
        "a float",         "a bool",
        "a string",        "a dtype",
        "a device",        "a memory format",
        "a layout",        "a generator",
        "a list of ints",  "a list of floats",
        "a list of bools", "a list of tensors",
        "a list of views", "a list of values",
    };

    return tag < sizeof names / sizeof *names ? names[tag]
                                              : "a value of unknown type";
}

static core_status __attribute__((cold))
wrong_type_of(const core_operator *op, const core__schema_argument *argument,
              uint32_t i, uint32_t tag)
{
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "%s: argument %u, %s, is %s; it must be %s. The schema is %s",
        core__operator_name(op), i + 1, argument->name,
        tag == CORE_VALUE_NONE ? "absent" : tag_name(tag),
        argument->scalar ? "a number" : tag_name(argument->tag),
        op->data->schema);
}

static core_status __attribute__((cold))
wrong_type(const completion *call, uint32_t i)
{
    return wrong_type_of(call->op, &call->schema->arguments[i], i,
                         call->args[i].tag);
}

core_status core__numbers_type_error(const core_operator *op,
                                     const core_value *args, uint32_t position)
{
    const core__schema *schema;

    CORE_TRY(core__schema_of((core_operator *)op, &schema));
    return wrong_type_of(op, &schema->arguments[position], position,
                         args[position].tag);
}

/* Completes an argument that is missing or NONE. */
static core_status complete_absent(completion *call, uint32_t i)
{
    const core__schema_argument *argument = &call->schema->arguments[i];

    call->args[i] = (core_value){0};
    if (argument->has_default)
        call->args[i] = argument->fallback;
    else if (!argument->optional)
        return wrong_type(call, i);
    return CORE_OK;
}

static core_status check_list(const completion *call, uint32_t i)
{
    const core_value *value = &call->args[i];

    if (!value->count || value->u.pointer)
        return CORE_OK;
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "%s: argument %u, %s, is %s of length %u at address NULL",
        core__operator_name(call->op), i + 1, call->schema->arguments[i].name,
        tag_name(value->tag), value->count);
}

static core_status check_tensors(const completion *call, uint32_t i)
{
    const core_value *value = &call->args[i];

    CORE_TRY(check_list(call, i));
    if (call->schema->arguments[i].optional_elements)
        return CORE_OK;
    for (uint32_t k = 0; k < value->count; k++)
        if (!value->u.tensors[k])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: tensor %u of argument %u, %s, is NULL",
                               core__operator_name(call->op), k, i + 1,
                               call->schema->arguments[i].name);
    return CORE_OK;
}

/* Checks a value whose tag is correct. */
static core_status check_value(completion *call, uint32_t i)
{
    core_value *value = &call->args[i];
    core_status status;

    switch (value->tag) {
    case CORE_VALUE_TENSOR:
    case CORE_VALUE_STRING:
    case CORE_VALUE_DEVICE:
    case CORE_VALUE_GENERATOR:
        if (value->u.pointer)
            return CORE_OK;
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: argument %u, %s, is NULL; an absent argument "
                           "is passed as NONE",
                           core__operator_name(call->op), i + 1,
                           call->schema->arguments[i].name);
    case CORE_VALUE_BOOL:
        value->u.i = value->u.i != 0;
        return CORE_OK;
    case CORE_VALUE_DTYPE:
        if (value->u.i < 0 || value->u.i >= CORE_DTYPE_LIMIT)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "%s: %lld is not a dtype; accepted: " CORE__DTYPE_NAMES,
                core__operator_name(call->op), (long long)value->u.i);
        status = core__dtype_check((core_dtype)value->u.i);
        if (status != CORE_OK)
            core__error_prefix("%s", core__operator_name(call->op));
        return status;
    case CORE_VALUE_FORMAT:
        status = core__layout_format_check(value->u.i);
        if (status != CORE_OK)
            core__error_prefix("%s", core__operator_name(call->op));
        return status;
    case CORE_VALUE_LAYOUT:
        if (value->u.i == 0)
            return CORE_OK;
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: the layout is %lld; only 0, strided, is accepted",
            core__operator_name(call->op), (long long)value->u.i);
    case CORE_VALUE_TENSOR_LIST:
        return check_tensors(call, i);
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
        return check_list(call, i);
    default:
        return CORE_OK;
    }
}

/* int[2] given as one number, float[] given as integers. */
static core_status convert_list(completion *call, uint32_t i)
{
    const core__schema_argument *argument = &call->schema->arguments[i];
    core_value given = call->args[i];
    core_value *value = &call->args[i];

    if (argument->tag == CORE_VALUE_INT_LIST && given.tag == CORE_VALUE_INT &&
        argument->list_size > 0) {
        for (int32_t k = 0; k < argument->list_size; k++)
            call->ints[i][k] = given.u.i;
        *value = (core_value){
            CORE_VALUE_INT_LIST, (uint32_t)argument->list_size, {0}};
        value->u.ints = call->ints[i];
        return CORE_OK;
    }
    if (argument->tag == CORE_VALUE_FLOAT_LIST &&
        given.tag == CORE_VALUE_INT_LIST && given.count <= CORE__SCHEMA_LIST) {
        CORE_TRY(check_list(call, i));
        for (uint32_t k = 0; k < given.count; k++)
            call->floats[i][k] = (double)given.u.ints[k];
        *value = (core_value){CORE_VALUE_FLOAT_LIST, given.count, {0}};
        value->u.floats = call->floats[i];
        return CORE_OK;
    }
    return wrong_type(call, i);
}

static core_status complete_one(completion *call, uint32_t i)
{
    const core__schema_argument *argument = &call->schema->arguments[i];
    core_value *value = &call->args[i];

    if (value->tag == CORE_VALUE_NONE ||
        (value->tag == CORE_VALUE_DTYPE && value->u.i == CORE_DTYPE_NONE))
        return complete_absent(call, i);
    if (value->tag == argument->tag)
        return check_value(call, i);
    if (argument->scalar &&
        (value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_BOOL))
        return check_value(call, i);
    if (argument->tag == CORE_VALUE_FLOAT && value->tag == CORE_VALUE_INT) {
        value->tag = CORE_VALUE_FLOAT;
        value->u.f = (double)value->u.i;
        return CORE_OK;
    }
    return convert_list(call, i);
}

static core_status complete(completion *call, const core_value *args,
                            uint32_t nargs)
{
    const core__schema *schema = call->schema;

    if (nargs > schema->narguments)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: %u arguments were given; at most %u are "
                           "accepted. The schema is %s",
                           core__operator_name(call->op), nargs,
                           schema->narguments, call->op->data->schema);
    for (uint32_t i = 0; i < schema->narguments; i++) {
        call->args[i] = i < nargs ? args[i] : (core_value){0};
        CORE_TRY(complete_one(call, i));
    }
    return CORE_OK;
}

/* ---------------------------------------------------------------- call -- */

/* True if every result is an argument that the operator changes. */
static bool changes_arguments_only(const core__schema *schema)
{
    for (uint32_t i = 0; i < schema->nresults; i++)
        if (!schema->results[i].mutated ||
            schema->results[i].tag != CORE_VALUE_TENSOR)
            return false;
    return true;
}

/* Returns the arguments that have the results' names, "a" in "Tensor(a!)". */
static void return_arguments(const completion *call, core_value *results)
{
    const core__schema *schema = call->schema;

    for (uint32_t i = 0; i < schema->nresults; i++)
        for (uint32_t k = 0; k < schema->narguments; k++)
            if (schema->arguments[k].mutated &&
                call->args[k].tag == CORE_VALUE_TENSOR &&
                strcmp(schema->arguments[k].alias, schema->results[i].alias) ==
                    0) {
                core_tensor_retain(call->args[k].u.tensor);
                results[i] = call->args[k];
                break;
            }
}

/* Checks that a program's operator has returned what its schema declares. */
static core_status check_results(const completion *call, core_value *results)
{
    const core__schema *schema = call->schema;
    uint32_t wrong = schema->nresults;

    for (uint32_t i = schema->nresults; i-- > 0;) {
        const core__schema_result *result = &schema->results[i];
        bool tensor = result->tag == CORE_VALUE_TENSOR;

        if ((tensor || result->tag == CORE_VALUE_TENSOR_LIST) &&
            !result->mutated &&
            (results[i].tag != result->tag || (tensor && !results[i].u.tensor)))
            wrong = i;
    }
    if (wrong == schema->nresults)
        return CORE_OK;
    core__error(CORE_ERROR_INVALID_ARGUMENT,
                "%s: the function returned %s as result %u, which must be %s. "
                "The schema is %s",
                core__operator_name(call->op), tag_name(results[wrong].tag),
                wrong + 1, tag_name(schema->results[wrong].tag),
                call->op->data->schema);
    for (uint32_t i = 0; i < schema->nresults; i++) {
        core_value_release(&results[i]);
        results[i] = (core_value){0};
    }
    return CORE_ERROR_INVALID_ARGUMENT;
}

core_status core_op_call(core_operator *op, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    completion call;
    bool changes;

    if (nresults > 0)
        CORE__NOT_NULL(results);
    for (uint32_t i = 0; i < nresults; i++)
        results[i] = (core_value){0};
    CORE__NOT_NULL(op);
    if (nargs > 0)
        CORE__NOT_NULL(args);
    call.op = op;
    CORE_TRY(core__schema_of(op, &call.schema));
    CORE_TRY(complete(&call, args, nargs));
    changes = changes_arguments_only(call.schema);
    if (nresults < call.schema->nresults && !(changes && nresults == 0))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: space for %u results was given; the operator returns %u",
            core__operator_name(op), nresults, call.schema->nresults);
    if (!changes) {
        CORE_TRY(core__call(op, call.args, call.schema->narguments, results,
                            call.schema->nresults));
        return op->flags & CORE__OP_CUSTOM ? check_results(&call, results)
                                           : CORE_OK;
    }
    CORE_TRY(core__call(op, call.args, call.schema->narguments, NULL, 0));
    if (nresults)
        return_arguments(&call, results);
    return CORE_OK;
}
