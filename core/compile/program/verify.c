/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks a program: that values are defined before they are used, that arguments
 * have the kinds of the schemas, and that types are those that are inferred. */

#include "compile/program/program.h"
#include "compile/program/region.h"

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/inference.h"
#include "dispatch/schema.h"
#include "ops_ids.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct checker {
    const core_program *program;
    uint32_t depth;   /* of regions */
    uint32_t defined; /* values below this are */
    uint32_t node;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_tensor **stand_ins; /* owned; lists point into it */
    uint32_t count;
} checker;

static core_status __attribute__((cold, format(printf, 2, 3)))
wrong(const checker *c, const char *format, ...)
{
    char text[300];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (c->node >= c->program->nnodes)
        return core__error(CORE_ERROR_INTERNAL, "core_program_verify: %s",
                           text);
    return core__error(CORE_ERROR_INTERNAL,
                       "core_program_verify: node %u, %s: %s", c->node,
                       c->program->nodes[c->node].name, text);
}

/* ----------------------------------------------------------- arguments -- */

static core_status check_use(const checker *c, uint32_t value)
{
    if (value < c->defined)
        return CORE_OK;
    return wrong(c, "value %%%u is used before it is defined", value);
}

static core_status stand_in(checker *c, uint32_t value, core_tensor **out)
{
    CORE_TRY(check_use(c, value));
    CORE_TRY(core__program_stand_in(&c->program->values[value].type, out));
    c->stand_ins[c->count++] = *out;
    return CORE_OK;
}

static bool tag_fits(const core__schema_argument *schema, uint32_t tag)
{
    if (tag == CORE_VALUE_NONE)
        return schema->optional || schema->has_default;
    if (tag == schema->tag)
        return true;
    if (schema->scalar)
        return tag == CORE_VALUE_INT || tag == CORE_VALUE_FLOAT ||
               tag == CORE_VALUE_BOOL;
    /* A list of a fixed length may be one number. */
    return (schema->tag == CORE_VALUE_FLOAT && tag == CORE_VALUE_INT) ||
           (schema->tag == CORE_VALUE_INT_LIST && tag == CORE_VALUE_INT &&
            schema->list_size > 0);
}

static core_status list_value(checker *c,
                              const core__program_argument *argument,
                              bool optional, core_value *out)
{
    core_tensor **first = c->stand_ins + c->count;

    for (uint32_t k = 0; k < argument->count; k++) {
        core_tensor *tensor;

        if (argument->u.values[k] != CORE__NO_VALUE) {
            CORE_TRY(stand_in(c, argument->u.values[k], &tensor));
            continue;
        }
        if (!optional)
            return wrong(c, "tensor %u of a list is absent", k);
        c->stand_ins[c->count++] = NULL;
    }
    *out = (core_value){
        CORE_VALUE_TENSOR_LIST, argument->count, {.tensors = first}};
    return CORE_OK;
}

static core_status number_value(checker *c,
                                const core__program_argument *argument,
                                core_value *out)
{
    *out = (core_value){argument->tag, argument->count, {.i = argument->u.i}};
    if (argument->tag == CORE_VALUE_DTYPE &&
        (argument->u.i < 0 || argument->u.i >= CORE_DTYPE_LIMIT))
        return wrong(c, "%lld is not a dtype", (long long)argument->u.i);
    if (argument->tag == CORE_VALUE_BOOL && argument->u.i >> 1)
        return wrong(c, "%lld is not a bool", (long long)argument->u.i);
    return CORE_OK;
}

static core_status argument_value(checker *c,
                                  const core__program_argument *argument,
                                  const core__schema_argument *schema,
                                  core_value *out)
{
    const core_program *program = c->program;

    if (argument->tag == CORE__ARGUMENT_NUMBER) {
        if (argument->u.i < 0 || argument->u.i >= program->nnumbers)
            return wrong(c,
                         "argument %s refers to number %lld; the program has "
                         "%u",
                         schema->name, (long long)argument->u.i,
                         program->nnumbers);
        *out = program->numbers[argument->u.i].recorded;
        return tag_fits(schema, out->tag)
                   ? CORE_OK
                   : wrong(c, "argument %s has a number of kind %u, not %u",
                           schema->name, out->tag, schema->tag);
    }
    if (!tag_fits(schema, argument->tag))
        return wrong(c, "argument %s has a value of kind %u, not %u",
                     schema->name, argument->tag, schema->tag);
    switch (argument->tag) {
    case CORE_VALUE_TENSOR:
        out->tag = CORE_VALUE_TENSOR;
        out->count = 0;
        return stand_in(c, argument->u.value, &out->u.tensor);
    case CORE_VALUE_TENSOR_LIST:
        return list_value(c, argument, schema->optional_elements, out);
    case CORE_VALUE_DEVICE:
        if (argument->u.device >= program->ndevices)
            return wrong(c,
                         "argument %s refers to device %u; the program has %u",
                         schema->name, argument->u.device, program->ndevices);
        *out =
            (core_value){CORE_VALUE_DEVICE, 0, {.device = &core__meta_device}};
        return CORE_OK;
    case CORE_VALUE_GENERATOR:
        if (argument->u.generator >= program->ngenerators)
            return wrong(
                c, "argument %s refers to generator %u; the program has %u",
                schema->name, argument->u.generator, program->ngenerators);
        *out = (core_value){
            CORE_VALUE_GENERATOR,
            0,
            {.generator = program->generators[argument->u.generator]}};
        return CORE_OK;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        *out =
            (core_value){argument->tag,
                         argument->count,
                         {.pointer = (void *)(uintptr_t)argument->u.pointer}};
        return CORE_OK;
    default:
        return number_value(c, argument, out);
    }
}

static core_status make_arguments(checker *c, const core__program_node *node,
                                  const core__schema *schema)
{
    size_t count = 1;

    if (node->nargs != schema->narguments)
        return wrong(c, "%u arguments; the operator has %u", node->nargs,
                     schema->narguments);
    for (uint32_t i = 0; i < node->nargs; i++)
        count += node->args[i].tag == CORE_VALUE_TENSOR_LIST
                     ? node->args[i].count
                     : 1;
    c->count = 0;
    c->stand_ins = core__alloc_zero(count * sizeof *c->stand_ins);
    if (!c->stand_ins)
        return core__error_memory(count * sizeof *c->stand_ins);
    for (uint32_t i = 0; i < node->nargs; i++)
        CORE_TRY(argument_value(c, &node->args[i], &schema->arguments[i],
                                &c->args[i]));
    return CORE_OK;
}

/* ------------------------------------------------------------- results -- */

static core_status check_type(const checker *c, uint32_t value,
                              const core_tensor *inferred)
{
    const core__program_type *type;
    char expected[160], given[160];
    size_t size = inferred->ndim * sizeof(int64_t);

    if (value < c->defined || value >= c->program->nvalues)
        return wrong(c, "result %%%u is defined twice, or is not a value",
                     value);
    type = &c->program->values[value].type;
    if (type->dtype == inferred->dtype && type->ndim == inferred->ndim &&
        memcmp(core__type_sizes(type), inferred->sizes, size) == 0 &&
        memcmp(core__type_strides(type), inferred->strides, size) == 0)
        return CORE_OK;
    return wrong(
        c,
        "value %%%u is %s%s, but the operator's result is %s%s, with "
        "these strides or others",
        value, core__dtype_name(type->dtype),
        core__sizes_text(type->ndim, core__type_sizes(type), expected,
                         sizeof expected),
        core__dtype_name(inferred->dtype),
        core__sizes_text(inferred->ndim, inferred->sizes, given, sizeof given));
}

static bool is_argument(const checker *c, const core_tensor *tensor)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->stand_ins[i] == tensor)
            return true;
    return false;
}

static core_status check_list(const checker *c,
                              const core__program_argument *described,
                              const core_value *inferred, uint32_t *next)
{
    if (described->tag != CORE_VALUE_TENSOR_LIST ||
        described->count != inferred->count)
        return wrong(c, "a result is a list of %u tensors", inferred->count);
    for (uint32_t k = 0; k < inferred->count; k++) {
        uint32_t value = described->u.values[k];

        if (!inferred->u.tensors[k] && value == CORE__NO_VALUE)
            continue;
        if (!inferred->u.tensors[k] || value != *next)
            return wrong(c, "tensor %u of a list of results is value %%%u", k,
                         value);
        CORE_TRY(check_type(c, value, inferred->u.tensors[k]));
        ++*next;
    }
    return CORE_OK;
}

static core_status check_result(const checker *c,
                                const core__program_argument *described,
                                const core_value *inferred, uint32_t *next)
{
    if (inferred->tag == CORE_VALUE_TENSOR_LIST)
        return check_list(c, described, inferred, next);
    if (inferred->tag == CORE_VALUE_NONE ||
        (inferred->tag == CORE_VALUE_TENSOR &&
         is_argument(c, inferred->u.tensor)))
        return described->tag == CORE_VALUE_NONE
                   ? CORE_OK
                   : wrong(c, "a result is absent or an argument, but is "
                              "described as a value");
    if (inferred->tag != CORE_VALUE_TENSOR ||
        described->tag != CORE_VALUE_TENSOR || described->u.value != *next)
        return wrong(c, "a result is not the value %%%u", *next);
    return check_type(c, (*next)++, inferred->u.tensor);
}

/* The values of written arguments have the types of the arguments. */
static core_status check_written(const checker *c,
                                 const core__program_node *node, uint32_t *next)
{
    const core_program *program = c->program;

    for (uint32_t left = node->written; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        const core__program_argument *argument = &node->args[i];
        bool list = argument->tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count =
            list ? argument->count : argument->tag == CORE_VALUE_TENSOR;
        const uint32_t *values = list ? argument->u.values : &argument->u.value;

        for (uint32_t k = 0; k < count; k++) {
            if (values[k] == CORE__NO_VALUE)
                continue;
            if (*next >= program->nvalues ||
                !core__types_equal(&program->values[*next].type,
                                   &program->values[values[k]].type))
                return wrong(c, "the value of a written argument has another "
                                "type than the argument");
            ++*next;
        }
    }
    return CORE_OK;
}

/* What inference does not check. */
static core_status check_special(const checker *c,
                                 const core__program_node *node,
                                 const core_operator *op)
{
    if (op->flags & CORE__OP_CUSTOM || op->id != CORE_OP_AS_STRIDED)
        return CORE_OK;
    if (node->args[3].tag != CORE_VALUE_INT)
        return wrong(c, "the offset is absent");
    /* Of the bounds, inference knows only the upper one. */
    if (node->args[3].u.i < 0)
        return wrong(c, "the offset is negative");
    return CORE_OK;
}

/* --------------------------------------------------------------- regions -- */

static core_status verify(const core_program *program, uint32_t depth);

/* The types are equal, of programs with different devices. */
static bool same_type(const core_program *a, const core__program_type *x,
                      const core_program *b, const core__program_type *y)
{
    core__program_type type = *y;

    type.device = x->device;
    return x->device < a->ndevices && y->device < b->ndevices &&
           a->devices[x->device] == b->devices[y->device] &&
           core__types_equal(x, &type);
}

/* How many inputs of the node are also inputs of a region: condition and body of
 * the gradient of a loop have those of the loop. */
static uint32_t inputs_of(const core__program_node *node, uint32_t index)
{
    const core_program *body = node->regions[1];

    if (core__region_count(node) == CORE__REGIONS_MAX && index < 2)
        return body->noutputs;
    return core__region_is_second(node) ? core__loop_inputs(body)
                                        : node->args[CORE__REGION_INPUTS].count;
}

/* A region's inputs are the inputs and what it reads besides.  Those of a loop are
 * row-major when it is called. */
static core_status check_region_inputs(const checker *c,
                                       const core__program_node *node,
                                       uint32_t index, bool loop)
{
    const core_program *program = c->program, *region = node->regions[index];
    const core__program_argument *lists[] = {
        &node->args[CORE__REGION_INPUTS],
        &node->args[CORE__REGION_THEN + index]};
    const uint32_t counts[] = {inputs_of(node, index), lists[1]->count};
    uint32_t input = 0;

    if (region->ninputs != (uint64_t)counts[0] + counts[1])
        return wrong(c, "region %u has %u inputs", index, region->ninputs);
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < counts[k]; i++, input++) {
            const core__program_type *type =
                &program->values[lists[k]->u.values[i]].type;
            int64_t dims[2 * CORE_MAX_NDIM];
            core__program_type expected = *type;

            memcpy(dims, type->dims, 2u * type->ndim * sizeof *dims);
            if (loop && k == 0)
                core__layout_contiguous(type->ndim, dims, dims + type->ndim);
            expected.dims = dims;
            if (!same_type(region, &region->inputs[input].type, program,
                           &expected) ||
                region->inputs[input].base != CORE__NO_VALUE)
                return wrong(c,
                             "input %u of region %u has another type than "
                             "its value",
                             input, index);
        }
    return CORE_OK;
}

static core_status check_region_outputs(const checker *c,
                                        const core__program_node *node,
                                        uint32_t index, uint32_t count)
{
    const core_program *region = node->regions[index];
    int64_t strides[CORE_MAX_NDIM];

    if (region->nhidden || region->nknown || region->nwrites ||
        region->nnumbers || region->nfinishes)
        return wrong(c, "region %u refers to tensors or writes", index);
    if (region->noutputs != count)
        return wrong(c, "region %u has %u outputs, not %u", index,
                     region->noutputs, count);
    for (uint32_t i = 0; i < count; i++) {
        const core__program_output *output = &region->outputs[i];
        const core__program_type *type = &output->type;

        core__layout_contiguous(type->ndim, core__type_sizes(type), strides);
        if (output->kind != CORE__OUTPUT_VALUE || output->view ||
            !core__types_equal(type, &region->values[output->index].type) ||
            memcmp(strides, core__type_strides(type),
                   type->ndim * sizeof *strides) != 0)
            return wrong(c, "output %u of region %u is not a row-major value",
                         i, index);
    }
    return CORE_OK;
}

/* The condition of a loop has one output. */
static core_status check_condition(const checker *c,
                                   const core_program *condition)
{
    const core__program_type *type = &condition->outputs[0].type;
    bool one = type->dtype == CORE_BOOL;

    for (uint32_t i = 0; i < type->ndim; i++)
        one = one && core__type_sizes(type)[i] == 1;
    return one ? CORE_OK
               : wrong(c, "the output of the condition is not one bool");
}

static core_status check_predicate(const checker *c,
                                   const core__program_node *node)
{
    const core__program_type *type;
    bool one;

    CORE_TRY(check_use(c, node->args[CORE__REGION_PREDICATE].u.value));
    type = &c->program->values[node->args[CORE__REGION_PREDICATE].u.value].type;
    one = type->dtype == CORE_BOOL;
    for (uint32_t i = 0; i < type->ndim; i++)
        one = one && core__type_sizes(type)[i] == 1;
    return one ? CORE_OK : wrong(c, "the predicate is not one bool");
}

static bool is_state(const core__program_type *type)
{
    return type->dtype == CORE_I64 && type->ndim == 1;
}

/* The state of generators, as the last argument or the last result. */
static core_status check_states(const checker *c,
                                const core__program_node *node)
{
    const core__program_argument *state = core__region_state(node);
    const core__program_value *values = c->program->values;
    uint32_t outputs = core__region_outputs(node);
    int64_t size =
        core__region_state_size(node->regions, core__region_count(node));

    if (state && state->tag != CORE_VALUE_TENSOR)
        return wrong(c, "the state of generators is not a tensor");
    if (state)
        CORE_TRY(check_use(c, state->u.value));
    if (state && !is_state(&values[state->u.value].type))
        return wrong(c, "the state of generators is not a list of i64");
    if (node->nvalues == outputs)
        return CORE_OK;
    if (node->nvalues != outputs + 1 || state || !outputs ||
        core__region_count(node) == CORE__REGIONS_MAX ||
        !is_state(&values[node->first + outputs].type) ||
        core__type_sizes(&values[node->first + outputs].type)[0] != size)
        return wrong(c, "it has %u results and %u outputs", node->nvalues,
                     outputs);
    return node->results[0].u.values[outputs] == node->first + outputs
               ? CORE_OK
               : wrong(c, "the state of generators is not its last result");
}

static core_status check_region_node(const checker *c,
                                     const core__program_node *node)
{
    bool loop = strcmp(node->name, CORE__COND_NAME) != 0;
    uint32_t tag = loop ? CORE_VALUE_NONE : CORE_VALUE_TENSOR;
    uint32_t count = CORE__REGION_THEN + core__region_count(node);

    if (c->depth >= CORE__REGION_DEPTH)
        return wrong(c, "regions are nested more than %d times",
                     CORE__REGION_DEPTH);
    if (node->op || node->nargs - count > 1 || node->nresults != 1 ||
        node->written || node->draws ||
        node->args[CORE__REGION_PREDICATE].tag != tag ||
        node->results[0].tag != CORE_VALUE_TENSOR_LIST ||
        node->results[0].count != node->nvalues ||
        (node->nvalues && node->first != c->defined) ||
        node->nvalues > c->program->nvalues - c->defined)
        return wrong(c, "it is not described");
    for (uint32_t k = CORE__REGION_INPUTS; k < count; k++) {
        if (node->args[k].tag != CORE_VALUE_TENSOR_LIST)
            return wrong(c, "argument %u is not a list", k);
        for (uint32_t i = 0; i < node->args[k].count; i++)
            CORE_TRY(check_use(c, node->args[k].u.values[i]));
    }
    CORE_TRY(check_states(c, node));
    if (strcmp(node->name, CORE__WHILE_NAME) == 0 &&
        core__region_outputs(node) != node->args[CORE__REGION_INPUTS].count)
        return wrong(c, "it has %u results, and another number of inputs",
                     core__region_outputs(node));
    return loop ? CORE_OK : check_predicate(c, node);
}

/* A value with these strides that is the gradient of another one. */
static bool is_gradient_of(const core__program_type *type,
                           const core__program_type *of)
{
    int64_t strides[CORE_MAX_NDIM];
    size_t size = of->ndim * sizeof *strides;

    core__layout_contiguous(of->ndim, core__type_sizes(of), strides);
    return type->dtype == of->dtype && type->device == of->device &&
           type->ndim == of->ndim &&
           memcmp(core__type_sizes(type), core__type_sizes(of), size) == 0 &&
           memcmp(core__type_strides(type), strides, size) == 0;
}

/* The next of these values is the gradient of a value, if that is floating. */
static core_status check_gradient(const checker *c, const char *what,
                                  const uint32_t *values, uint32_t count,
                                  uint32_t value, uint32_t *next)
{
    const core_program *program = c->program;
    const core__program_type *of = &program->values[value].type;

    if (!core__dtype_is_floating((core_dtype)of->dtype))
        return CORE_OK;
    if (*next == count)
        return wrong(c, "it has only %u %ss", count, what);
    if (!is_gradient_of(&program->values[values[*next]].type, of))
        return wrong(c, "%s %u is not like what it is the gradient of", what,
                     *next);
    ++*next;
    return CORE_OK;
}

/* The gradient of a loop: its inputs are the state and the gradients of the
 * floating part of that, with which its results begin. */
static core_status check_loop_backward(const checker *c,
                                       const core__program_node *node)
{
    const core__program_argument *inputs = &node->args[CORE__REGION_INPUTS];
    const core_program *program = c->program, *body = node->regions[1];
    uint32_t n = body->noutputs, count = 0;

    for (uint32_t i = 0; i < n; i++) {
        const core__program_type *type = &body->outputs[i].type;

        if (!core__dtype_is_floating((core_dtype)type->dtype))
            continue;
        if (n + count >= inputs->count || count >= node->nvalues ||
            !same_type(body, type, program,
                       &program->values[inputs->u.values[n + count]].type) ||
            !same_type(body, type, program,
                       &program->values[node->first + count].type))
            return wrong(c, "gradient %u has another type than its input",
                         count);
        count++;
    }
    return n + count == inputs->count
               ? CORE_OK
               : wrong(c, "it has %u inputs, not %u", inputs->count, n + count);
}

/* The outputs of a region are the results; those of a body, what it begins
 * with. */
static core_status check_results(const checker *c,
                                 const core__program_node *node, uint32_t index)
{
    const core_program *program = c->program, *region = node->regions[index];
    bool last =
        index + 1 == core__region_count(node) && !core__region_is_second(node);
    bool body = index == 1 && strcmp(node->name, CORE__COND_NAME) != 0;

    for (uint32_t i = 0; i < region->noutputs; i++)
        if ((last || (!body && index < 2)) &&
            (node->results[0].u.values[i] != node->first + i ||
             !same_type(region, &region->outputs[i].type, program,
                        &program->values[node->first + i].type)))
            return wrong(c, "result %u has another type than in region %u", i,
                         index);
    for (uint32_t i = 0; i < region->noutputs && body; i++)
        if (!same_type(region, &region->outputs[i].type, region,
                       &region->inputs[i].type))
            return wrong(c,
                         "output %u of the body has another type than its "
                         "input",
                         i);
    return CORE_OK;
}

/* values: gradients of the floating ones of the first inputs, and of what body and
 * gradient read besides.  out_count: how many. */
static core_status check_derivatives(const checker *c,
                                     const core__program_node *node,
                                     uint32_t ninputs, const char *what,
                                     const uint32_t *values, uint32_t count,
                                     uint32_t *out_count)
{
    const core__program_argument *lists = node->args;

    *out_count = 0;
    for (uint32_t i = 0; i < ninputs; i++)
        CORE_TRY(check_gradient(c, what, values, count,
                                lists[CORE__REGION_INPUTS].u.values[i],
                                out_count));
    for (uint32_t k = 1; k < CORE__REGIONS_MAX; k++)
        for (uint32_t i = 0; i < lists[CORE__REGION_THEN + k].count; i++)
            CORE_TRY(check_gradient(c, what, values, count,
                                    lists[CORE__REGION_THEN + k].u.values[i],
                                    out_count));
    return CORE_OK;
}

/* The results of such a node are new values, in order. */
static core_status check_new(const checker *c, const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nvalues; i++)
        if (node->results[0].u.values[i] != node->first + i)
            return wrong(c, "result %u is not its own", i);
    return CORE_OK;
}

/* The derivative of the gradient of a loop, or of that and so on: after the inputs
 * of the gradient it has inputs like its results, the outputs of the third region,
 * and then inputs like the results of each derivative before this one. */
static core_status check_second(const checker *c,
                                const core__program_node *node)
{
    const core_program *program = c->program, *gradient = node->regions[2];
    const core__program_argument *inputs = &node->args[CORE__REGION_INPUTS];
    uint32_t before = core__loop_inputs(node->regions[1]), count;
    uint32_t end = before + gradient->noutputs;

    if (end > inputs->count)
        return wrong(c, "it has %u inputs, not %u", inputs->count, end);
    for (uint32_t i = 0; i < gradient->noutputs; i++)
        if (!same_type(gradient, &gradient->outputs[i].type, program,
                       &program->values[inputs->u.values[before + i]].type))
            return wrong(c,
                         "input %u has another type than output %u of its "
                         "third region",
                         before + i, i);
    for (; end < inputs->count; end += count) {
        CORE_TRY(check_derivatives(c, node, before, "gradient",
                                   inputs->u.values + end, inputs->count - end,
                                   &count));
        if (count == 0)
            return wrong(c, "it has %u inputs, not %u", inputs->count, end);
        before = end;
    }
    CORE_TRY(check_new(c, node));
    CORE_TRY(check_derivatives(c, node, before, "result",
                               node->results[0].u.values, node->nvalues,
                               &count));
    return count == node->nvalues
               ? CORE_OK
               : wrong(c, "it has %u results, not %u", node->nvalues, count);
}

/* Of the gradient of a loop and its derivatives: how many inputs the node has at
 * least. */
static core_status check_input_count(const checker *c,
                                     const core__program_node *node)
{
    uint64_t least = node->regions[1]->noutputs;

    if (core__region_is_second(node))
        least = (uint64_t)core__loop_inputs(node->regions[1]) +
                node->regions[2]->noutputs;
    return least <= node->args[CORE__REGION_INPUTS].count
               ? CORE_OK
               : wrong(c, "its body has more outputs than it has inputs");
}

static core_status check_regions(checker *c, const core__program_node *node)
{
    bool loop = strcmp(node->name, CORE__COND_NAME) != 0;
    bool backward = core__region_count(node) == CORE__REGIONS_MAX;
    bool second = core__region_is_second(node);

    CORE_TRY(check_region_node(c, node));
    if (backward)
        CORE_TRY(check_input_count(c, node));
    for (uint32_t k = 0; k < core__region_count(node); k++) {
        const core_program *region = node->regions[k];
        bool condition = loop && k == 0;

        CORE_TRY(verify(region, c->depth + 1));
        CORE_TRY(check_region_inputs(c, node, k, loop));
        CORE_TRY(check_region_outputs(c, node, k,
                                      condition ? 1
                                      : backward && (k == 1 || second)
                                          ? region->noutputs
                                          : core__region_outputs(node)));
        CORE_TRY(condition ? check_condition(c, region)
                           : check_results(c, node, k));
    }
    if (backward)
        CORE_TRY(second ? check_second(c, node) : check_loop_backward(c, node));
    c->defined += node->nvalues;
    return CORE_OK;
}

static core_status check_node(checker *c, const core__program_node *node)
{
    core_value results[CORE__SCHEMA_RESULTS] = {{0}};
    const core__schema *schema;
    core_operator *op;
    core_status status;
    uint32_t next = c->defined, first = next;
    uint64_t draws;

    if (node->regions)
        return check_regions(c, node);
    CORE_TRY(core__node_operator(node, &op));
    CORE_TRY(core__schema_of(op, &schema));
    if (node->nresults != op->nresults)
        return wrong(c, "%u results; the operator has %u", node->nresults,
                     op->nresults);
    if (node->written != core__operator_written_arguments(op, node->nargs))
        return wrong(c, "it writes other arguments than the operator");
    if (node->nvalues && node->first != c->defined)
        return wrong(c, "its first value is %%%u, not %%%u", node->first,
                     c->defined);
    status = make_arguments(c, node, schema);
    if (status == CORE_OK)
        status = check_special(c, node, op);
    if (status == CORE_OK)
        status = core__program_infer(op, c->args, node->nargs, results,
                                     op->nresults, &draws);
    for (uint32_t i = 0; i < op->nresults && status == CORE_OK; i++)
        status = check_result(c, &node->results[i], &results[i], &next);
    if (status == CORE_OK)
        status = check_written(c, node, &next);
    if (status == CORE_OK && next != first + node->nvalues)
        status =
            wrong(c, "it has %u values, not %u", next - first, node->nvalues);
    if (status == CORE_OK && draws != node->draws)
        status =
            wrong(c, "it draws %llu random numbers, not %llu",
                  (unsigned long long)draws, (unsigned long long)node->draws);
    for (uint32_t i = 0; i < op->nresults; i++)
        core_value_release(&results[i]);
    for (uint32_t i = 0; i < c->count; i++)
        core__tensor_release(c->stand_ins[i]);
    core__free(c->stand_ins);
    c->stand_ins = NULL;
    c->count = 0;
    c->defined = next;
    return status;
}

/* ------------------------------------------------- inputs and outputs -- */

/* Values of inputs and hidden inputs may be between those of nodes, since a
 * hidden input is found when it is first read: they count as defined. */
static bool is_source(const core_program *program, uint32_t value)
{
    return value < program->nvalues &&
           program->values[value].source != CORE__VALUE_OF_NODE;
}

/* The value is defined by this input or hidden input, and has its type. */
static bool is_value_of(const core_program *program, uint32_t value,
                        core__value_source source, uint32_t index)
{
    return value < program->nvalues &&
           program->values[value].source == source &&
           program->values[value].index == index;
}

static void skip_sources(checker *c)
{
    while (is_source(c->program, c->defined))
        c->defined++;
}

static core_status check_sources(const checker *c)
{
    const core_program *program = c->program;

    for (uint32_t i = 0; i < program->nvalues; i++) {
        const core__program_value *value = &program->values[i];
        bool good = value->type.device < program->ndevices;

        if (value->source == CORE__VALUE_OF_INPUT)
            good = good && value->index < program->ninputs &&
                   program->inputs[value->index].value == i;
        else if (value->source == CORE__VALUE_OF_HIDDEN)
            good = good && value->index < program->nhidden &&
                   program->hidden[value->index].value == i;
        else
            good = good && value->index < program->nnodes &&
                   i - program->nodes[value->index].first <
                       program->nodes[value->index].nvalues;
        if (!good)
            return wrong(c, "value %%%u has no source", i);
    }
    for (uint32_t i = 0; i < program->ninputs; i++) {
        const core__program_input *input = &program->inputs[i];

        if (input->type.device >= program->ndevices ||
            (input->base == CORE__NO_VALUE
                 ? !is_value_of(program, input->value, CORE__VALUE_OF_INPUT,
                                i) ||
                       !core__types_equal(&input->type,
                                          &program->values[input->value].type)
                 : input->base >= program->ninputs || input->base == i ||
                       input->value != CORE__NO_VALUE ||
                       program->inputs[input->base].base != CORE__NO_VALUE))
            return wrong(c, "input %u is not described", i);
    }
    for (uint32_t i = 0; i < program->nhidden; i++)
        if (!is_value_of(program, program->hidden[i].value,
                         CORE__VALUE_OF_HIDDEN, i))
            return wrong(c, "hidden input %u has no value", i);
    return CORE_OK;
}

static core_status check_output(const checker *c, uint32_t i)
{
    const core_program *program = c->program;
    const core__program_output *output = &program->outputs[i];
    uint32_t counts[] = {program->nvalues, program->ninputs, program->nhidden,
                         i};

    if (output->kind >= sizeof counts / sizeof *counts ||
        output->index >= counts[output->kind] ||
        output->type.device >= program->ndevices || output->offset < 0)
        return wrong(c, "output %u is not described", i);
    if (output->kind == CORE__OUTPUT_VALUE)
        return is_source(program, output->index)
                   ? wrong(c, "output %u is an input's value", i)
                   : CORE_OK;
    return CORE_OK;
}

static core_status check_write(const checker *c, uint32_t i)
{
    const core_program *program = c->program;
    const core__program_write *write = &program->writes[i];
    uint32_t target;

    if (write->index >= (write->hidden ? program->nhidden : program->ninputs) ||
        write->value >= program->nvalues)
        return wrong(c, "write %u is not described", i);
    target = write->hidden ? program->hidden[write->index].value
                           : program->inputs[write->index].value;
    if (target == CORE__NO_VALUE ||
        !core__types_equal(&program->values[target].type,
                           &program->values[write->value].type))
        return wrong(c, "write %u has another type than its target", i);
    return CORE_OK;
}

static core_status verify(const core_program *program, uint32_t depth)
{
    checker c = {.program = program, .depth = depth};

    c.node = program->nnodes;
    CORE_TRY(check_sources(&c));
    for (uint32_t i = 0; i < program->nnodes; i++) {
        c.node = i;
        skip_sources(&c);
        CORE_TRY(check_node(&c, &program->nodes[i]));
    }
    c.node = program->nnodes;
    skip_sources(&c);
    if (c.defined != program->nvalues)
        return wrong(&c, "value %%%u is not defined", c.defined);
    for (uint32_t i = 0; i < program->noutputs; i++)
        CORE_TRY(check_output(&c, i));
    for (uint32_t i = 0; i < program->nwrites; i++)
        CORE_TRY(check_write(&c, i));
    return CORE_OK;
}

core_status core_program_verify(core_program *program)
{
    CORE__NOT_NULL(program);
    return verify(program, 0);
}
