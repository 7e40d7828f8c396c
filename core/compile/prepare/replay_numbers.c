/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The numbers that device graphs read (replay_numbers.h). */

#include "compile/prepare/replay_numbers.h"

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "ops_ids.h"

#include <libcore/memory.h>
#include <libcore/ops.h>

#include <math.h>
#include <string.h>

enum { NUMBERS_MAX = 3 };

/* An operator and its form for captures: the numbers of the first, between its
 * lists and what the two have in common, are a tensor in the second.  If `last`
 * is not 0, that argument is one of the numbers, too. */
typedef struct form {
    uint32_t op, captured;
    uint32_t lists, scalars, last, nargs;
    uint32_t count; /* of the tensor */
    void (*compute)(const core_value *args, double *out);
} form;

/* Of (self, grads, momentum_buffers, lr, momentum, dampening, weight_decay,
 * nesterov, first, …). */
static void sgd_numbers(const core_value *args, double *out)
{
    out[0] = args[3].u.f;
    out[1] = args[8].u.i != 0;
}

/* Of (self, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps,
 * weight_decay, …), as kernels compute them. */
static void adam_numbers(const core_value *args, double *out)
{
    double step = (double)args[4].u.i, rate = args[5].u.f;

    out[0] = -(rate / (1 - pow(args[6].u.f, step)));
    out[1] = sqrt(1 - pow(args[7].u.f, step));
    out[2] = 1 - rate * args[9].u.f;
}

static const form forms[] = {
    {.op = CORE_OP_FUSED_SGD_STEP,
     .captured = CORE_OP_FUSED_SGD_STEP_DEVICE_NUMBERS,
     .lists = 3,
     .scalars = 1,
     .last = 8,
     .nargs = 11,
     .count = 2,
     .compute = sgd_numbers},
    {.op = CORE_OP_FUSED_ADAM_STEP,
     .captured = CORE_OP_FUSED_ADAM_STEP_DEVICE_NUMBERS,
     .lists = 4,
     .scalars = 2,
     .nargs = 13,
     .count = 3,
     .compute = adam_numbers},
};

typedef struct reader {
    const form *form;
    const core__program_node *node;
    uint32_t index;
    core_tensor *tensor;              /* NULL: there is no graph */
    core_tensor *places[NUMBERS_MAX]; /* its elements */
    uint64_t filled[NUMBERS_MAX];     /* their bits, if all are `known` */
    bool known;
} reader;

struct core__replay_numbers {
    core_device *device;
    uint32_t count;
    reader readers[];
};

/* -------------------------------------------------------------- finding -- */

static const form *form_of_operator(const core__program_node *node)
{
    for (size_t i = 0; node->op && i < sizeof forms / sizeof *forms; i++)
        if (node->op == &core__operators[forms[i].op] &&
            node->nargs == forms[i].nargs)
            return &forms[i];
    return NULL;
}

static bool is_in_tensor(const form *form, uint32_t argument)
{
    return (argument >= form->lists &&
            argument < form->lists + form->scalars) ||
           (form->last && argument == form->last);
}

/* NULL if a number of the run is not one of those in the tensor, too: a graph
 * would keep it. */
static const form *form_of(const core__program_node *node)
{
    const form *form = form_of_operator(node);
    bool any = false;

    for (uint32_t i = 0; form && i < node->nargs; i++) {
        if (node->args[i].tag != CORE__ARGUMENT_NUMBER)
            continue;
        if (!is_in_tensor(form, i))
            return NULL;
        any = true;
    }
    return any ? form : NULL;
}

/* Whether the device has a kernel for the form.  like: of the parameters. */
static bool has_kernel(const form *form, core_tensor *like,
                       core_tensor *numbers)
{
    const core_value list = {CORE_VALUE_TENSOR_LIST, 1, {.tensors = &like}};
    core_value args[CORE__SCHEMA_ARGUMENTS] = {{0}};
    core_operator *op = &core__operators[form->captured];

    for (uint32_t i = 0; i < form->lists; i++)
        args[i] = list;
    args[form->lists].tag = CORE_VALUE_TENSOR;
    args[form->lists].u.tensor = numbers;
    return core__kernel_exists(op, args, op->nargs, NULL, 0);
}

static core_status find_kernel(core_device *device, const form *form,
                               core_dtype dtype, bool *out_found)
{
    const int64_t one = 1, count = form->count;
    core_tensor *like = NULL, *numbers = NULL;
    core_status status;

    *out_found = false;
    status = core__tensor_new(device, dtype, 1, &one, NULL, &like);
    if (status == CORE_OK)
        status = core__tensor_new(device, CORE_F64, 1, &count, NULL, &numbers);
    if (status == CORE_OK)
        *out_found = has_kernel(form, like, numbers);
    core__tensor_release(like);
    core__tensor_release(numbers);
    return status;
}

static core_status add_reader(core__replay_numbers *numbers,
                              const core_program *program, uint32_t index)
{
    const core__program_node *node = &program->nodes[index];
    const form *form = form_of(node);
    bool found = false;

    if (!form || !node->args[0].count)
        return CORE_OK;
    CORE_TRY(find_kernel(
        numbers->device, form,
        (core_dtype)program->values[node->args[0].u.values[0]].type.dtype,
        &found));
    if (found)
        numbers->readers[numbers->count++] =
            (reader){.form = form, .node = node, .index = index};
    return CORE_OK;
}

core_status core__replay_numbers_find(const core_program *program,
                                      core__replay_numbers **out_numbers)
{
    core__replay_numbers *numbers;
    core_status status = CORE_OK;
    size_t size = sizeof *numbers;

    *out_numbers = NULL;
    for (uint32_t i = 0; i < program->nnodes; i++)
        size += form_of(&program->nodes[i]) ? sizeof(reader) : 0;
    if (size == sizeof *numbers)
        return CORE_OK;
    numbers = core__alloc_zero(size);
    if (!numbers)
        return core__error_memory(size);
    numbers->device = program->devices[0];
    for (uint32_t i = 0; i < program->nnodes && status == CORE_OK; i++)
        status = add_reader(numbers, program, i);
    if (status == CORE_OK && numbers->count) {
        *out_numbers = numbers;
        return CORE_OK;
    }
    core__free(numbers);
    return status;
}

static const reader *reader_of(const core__replay_numbers *numbers,
                               uint32_t node)
{
    for (uint32_t i = 0; numbers && i < numbers->count; i++)
        if (numbers->readers[i].index == node)
            return &numbers->readers[i];
    return NULL;
}

bool core__replay_numbers_has(const core__replay_numbers *numbers,
                              uint32_t node)
{
    return reader_of(numbers, node) != NULL;
}

/* -------------------------------------------------------------- tensors -- */

static core_status create(core_device *device, reader *reader)
{
    const int64_t count = reader->form->count;

    CORE_TRY(
        core__tensor_new(device, CORE_F64, 1, &count, NULL, &reader->tensor));
    for (int64_t i = 0; i < count; i++)
        CORE_TRY(core_select(reader->tensor, 0, i, &reader->places[i]));
    reader->known = false;
    return CORE_OK;
}

core_status core__replay_numbers_create(core__replay_numbers *numbers)
{
    for (uint32_t i = 0; numbers && i < numbers->count; i++)
        CORE_TRY(create(numbers->device, &numbers->readers[i]));
    return CORE_OK;
}

void core__replay_numbers_drop(core__replay_numbers *numbers,
                               core_stream *stream)
{
    for (uint32_t i = 0; numbers && i < numbers->count; i++) {
        reader *reader = &numbers->readers[i];

        for (uint32_t k = 0; k < NUMBERS_MAX; k++) {
            core__tensor_release(reader->places[k]);
            reader->places[k] = NULL;
        }
        if (reader->tensor && stream)
            (void)core_tensor_record_stream(reader->tensor, stream);
        core__tensor_release(reader->tensor);
        reader->tensor = NULL;
    }
}

void core__replay_numbers_free(core__replay_numbers *numbers)
{
    core__replay_numbers_drop(numbers, NULL);
    core__free(numbers);
}

/* ---------------------------------------------------------------- calls -- */

core_status core__replay_numbers_call(const core__replay_numbers *numbers,
                                      uint32_t node, const core_value *args)
{
    const reader *reader = reader_of(numbers, node);
    const form *form = reader->form;
    core_value changed[CORE__SCHEMA_ARGUMENTS] = {{0}};
    uint32_t count = form->lists;

    memcpy(changed, args, count * sizeof *args);
    changed[count++] =
        (core_value){CORE_VALUE_TENSOR, 0, {.tensor = reader->tensor}};
    for (uint32_t i = form->lists + form->scalars; i < form->nargs; i++)
        if (i != form->last)
            changed[count++] = args[i];
    return core__call(&core__operators[form->captured], changed, count, NULL,
                      0);
}

static core_status fill(reader *reader, const core_value *now)
{
    const core__program_node *node = reader->node;
    core_value args[CORE__SCHEMA_ARGUMENTS] = {{0}};
    double values[NUMBERS_MAX];
    uint64_t bits;

    for (uint32_t i = reader->form->lists; i < node->nargs; i++)
        args[i] =
            node->args[i].tag == CORE__ARGUMENT_NUMBER
                ? now[node->args[i].u.i]
                : (core_value){node->args[i].tag, 0, {.i = node->args[i].u.i}};
    reader->form->compute(args, values);
    for (uint32_t i = 0; i < reader->form->count; i++) {
        memcpy(&bits, &values[i], sizeof bits);
        if (reader->known && reader->filled[i] == bits)
            continue;
        CORE_TRY(core_fill_(reader->places[i], core_float(values[i])));
        reader->filled[i] = bits;
    }
    reader->known = true;
    return CORE_OK;
}

core_status core__replay_numbers_fill(core__replay_numbers *numbers,
                                      const core_value *now)
{
    for (uint32_t i = 0; numbers && i < numbers->count; i++)
        CORE_TRY(fill(&numbers->readers[i], now));
    return CORE_OK;
}
