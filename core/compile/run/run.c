/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs a program, operator by operator: the reference for every other way. */

#include "compile/program/region.h"
#include "compile/run/run.h"
#include "compile/run/upcalls.h"
#include "compile/run/write_parts.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/schema.h"
#include "ops_ids.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/ops.h>

#include <string.h>

typedef core__run run;

/* -------------------------------------------------------------- inputs -- */

static core_status __attribute__((cold))
sizes_error(const core__program_type *type, const core_tensor *given,
            uint32_t input, const int64_t *expected, const int64_t *actual,
            const char *what)
{
    char wanted[160], got[160];

    return core__error(
        CORE_ERROR_SHAPE,
        "core_program_run: input %u has %s %s; the program was recorded with "
        "%s",
        input, what, core__sizes_text(given->ndim, actual, got, sizeof got),
        core__sizes_text(type->ndim, expected, wanted, sizeof wanted));
}

static core_status check_layout(const core__program_type *type,
                                const core_tensor *given, uint32_t input)
{
    const int64_t *sizes = core__type_sizes(type);
    const int64_t *strides = core__type_strides(type);
    size_t size = type->ndim * sizeof *sizes;

    if (given->dtype != type->dtype)
        return core__error(CORE_ERROR_DTYPE,
                           "core_program_run: input %u is %s; the program was "
                           "recorded with %s",
                           input, core__dtype_name(given->dtype),
                           core__dtype_name(type->dtype));
    if (given->ndim != type->ndim || memcmp(given->sizes, sizes, size) != 0)
        return sizes_error(type, given, input, sizes, given->sizes, "sizes");
    for (uint32_t i = 0; i < type->ndim; i++)
        if (sizes[i] > 1 && given->numel > 0 && given->strides[i] != strides[i])
            return sizes_error(type, given, input, strides, given->strides,
                               "strides");
    return CORE_OK;
}

/* The inputs' devices replace those of the program. */
static core_status choose_device(run *r, uint32_t input)
{
    uint32_t index = r->program->inputs[input].type.device;
    core_device *given = r->inputs[input]->device;

    for (uint32_t i = 0; i < input; i++)
        if (r->program->inputs[i].type.device == index &&
            r->inputs[i]->device != given)
            return core__error(
                CORE_ERROR_DEVICE,
                "core_program_run: input %u is on \"%s\" and input %u on "
                "\"%s\"; the program was recorded with both on \"%s\"",
                i, r->inputs[i]->device->name, input, given->name,
                r->program->devices[index]->name);
    r->devices[index] = given;
    return CORE_OK;
}

static core_status check_view(const run *r, uint32_t input)
{
    const core__program_input *described = &r->program->inputs[input];
    const core_tensor *given = r->inputs[input], *base;

    if (described->base == CORE__NO_VALUE)
        return CORE_OK;
    base = r->inputs[described->base];
    if (base->storage == given->storage &&
        given->offset - base->offset == described->offset)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_program_run: input %u is not the view of input %u "
                       "with which the program was recorded",
                       input, described->base);
}

static uint32_t root_of(const core_program *program, uint32_t input)
{
    uint32_t base = program->inputs[input].base;

    return base == CORE__NO_VALUE ? input : base;
}

static core_status __attribute__((cold))
shared_error(const char *kind_a, uint32_t a, const char *kind_b, uint32_t b)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_program_run: %s %u and %s %u share memory, and "
                       "one of them is written; they did not when the program "
                       "was recorded",
                       kind_a, a, kind_b, b);
}

/* What is written must share memory only with what it did in the recording. */
static core_status check_overlaps(const run *r)
{
    const core_program *program = r->program;

    for (uint32_t i = 0; i < program->ninputs; i++) {
        bool written = program->inputs[i].written;

        for (uint32_t k = 0; k < program->ninputs; k++)
            if (written && root_of(program, k) != root_of(program, i) &&
                core__layout_overlap(r->inputs[i], r->inputs[k]) !=
                    CORE__OVERLAP_NONE)
                return shared_error("input", i, "input", k);
        for (uint32_t k = 0; k < program->nhidden; k++)
            if ((written || program->hidden[k].written) &&
                core__layout_overlap(r->inputs[i], program->hidden[k].tensor) !=
                    CORE__OVERLAP_NONE)
                return shared_error("input", i, "hidden input", k);
    }
    return CORE_OK;
}

static core_status check_known(const run *r)
{
    for (uint32_t i = 0; i < r->program->nknown; i++)
        if (!core__known_holds(&r->program->known[i], r->inputs))
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "core_program_run: input %u is not the tensor with which the "
                "program was recorded, which the function also reads itself",
                r->program->known[i].input);
    return CORE_OK;
}

static core_status check_inputs(run *r)
{
    for (uint32_t i = 0; i < r->program->ninputs; i++) {
        if (!r->inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_program_run: input %u is NULL", i);
        CORE_TRY(check_layout(&r->program->inputs[i].type, r->inputs[i], i));
        CORE_TRY(choose_device(r, i));
    }
    for (uint32_t i = 0; i < r->program->ninputs; i++)
        CORE_TRY(check_view(r, i));
    CORE_TRY(check_overlaps(r));
    return check_known(r);
}

/* -------------------------------------------------------------- copies -- */

core_status core__run_new(const core__run *r, const core__program_type *type,
                          core_tensor **out_tensor)
{
    return core_empty_strided(core__type_sizes(type), type->ndim,
                              core__type_strides(type), type->ndim, type->dtype,
                              r->devices[type->device], out_tensor);
}

core_status core__run_copy(core__run *r, const core__program_type *type,
                           core_tensor *from, core_tensor **out_tensor)
{
    core_status status = core__run_new(r, type, out_tensor);

    if (status == CORE_OK)
        status = r->steps ? r->steps->copy(r, *out_tensor, from)
                          : core_copy_(*out_tensor, from, false);
    if (status != CORE_OK) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
    }
    return status;
}

core_status core__run_set_sources(run *r)
{
    const core_program *program = r->program;

    for (uint32_t i = 0; i < program->ninputs; i++) {
        uint32_t value = program->inputs[i].value;

        if (value == CORE__NO_VALUE)
            continue;
        core__tensor_retain(r->inputs[i]);
        r->tensors[value] = r->inputs[i];
    }
    for (uint32_t i = 0; i < program->nhidden; i++) {
        const core__program_hidden *hidden = &program->hidden[i];
        const core__program_type *type = &program->values[hidden->value].type;
        core_device *device = r->devices[type->device];

        if (hidden->tensor->device == device) {
            core__tensor_retain(hidden->tensor);
            r->tensors[hidden->value] = hidden->tensor;
        } else {
            CORE_TRY(core__run_copy(r, type, hidden->tensor,
                                    &r->tensors[hidden->value]));
        }
    }
    return CORE_OK;
}

/* --------------------------------------------------------------- nodes -- */

/* The arguments of a node as the operator receives them. */
typedef struct arguments {
    core_value values[CORE__SCHEMA_ARGUMENTS];
    core_tensor **lists;   /* of tensor lists, one after the other */
    core_tensor **written; /* owned copies, in the order of the values */
    uint32_t nwritten;
} arguments;

static uint32_t last_of(const run *r, uint32_t value)
{
    return r->last ? r->last[value] : r->program->values[value].last;
}

typedef struct counting {
    uint32_t value, count;
} counting;

static void count_use(void *context, uint32_t value)
{
    counting *uses = context;

    uses->count += uses->value == value;
}

/* True if nothing else reads the content of a value's tensor in this node or
 * later. */
static bool is_last_use(const run *r, uint32_t value)
{
    counting uses = {value, 0};
    const core__program_value *described = &r->program->values[value];
    core_tensor *tensor = r->tensors[value];

    core__node_each_value(&r->program->nodes[r->node], count_use, &uses);
    return uses.count == 1 && described->source == CORE__VALUE_OF_NODE &&
           !described->kept && last_of(r, value) == r->node && !tensor->base &&
           !(tensor->flags & CORE__TENSOR_TRACED) &&
           atomic_load(&tensor->references) == 1 &&
           (r->steps ? r->steps->owns(r, value)
                     : atomic_load(&tensor->storage->references) == 1);
}

static core_status copy_written(run *r, const core_operator *op, uint32_t value,
                                arguments *a, core_tensor **out)
{
    const core__program_type *type = &r->program->values[value].type;

    if (is_last_use(r, value)) {
        core__tensor_retain(r->tensors[value]);
        *out = r->tensors[value];
    } else if (core__operator_overwrites(op)) {
        CORE_TRY(core__run_new(r, type, out));
    } else {
        CORE_TRY(core__run_copy(r, type, r->tensors[value], out));
    }
    a->written[a->nwritten++] = *out;
    return CORE_OK;
}

static core_status tensor_argument(run *r, const core_operator *op,
                                   bool written, uint32_t value, arguments *a,
                                   core_tensor **out)
{
    *out = NULL;
    if (value == CORE__NO_VALUE)
        return CORE_OK;
    if (written)
        return copy_written(r, op, value, a, out);
    *out = r->tensors[value];
    return CORE_OK;
}

static core_status argument(run *r, const core_operator *op,
                            const core__program_argument *from, bool written,
                            arguments *a, core_tensor ***list, core_value *out)
{
    *out = (core_value){from->tag, from->count, {.i = from->u.i}};
    switch (from->tag) {
    case CORE_VALUE_TENSOR:
        return tensor_argument(r, op, written, from->u.value, a,
                               &out->u.tensor);
    case CORE_VALUE_TENSOR_LIST:
        out->u.tensors = *list;
        for (uint32_t k = 0; k < from->count; k++)
            CORE_TRY(tensor_argument(r, op, written, from->u.values[k], a,
                                     (*list)++));
        return CORE_OK;
    case CORE__ARGUMENT_NUMBER:
        *out = r->numbers[from->u.i];
        return CORE_OK;
    case CORE_VALUE_DEVICE:
        out->u.device = r->devices[from->u.device];
        return CORE_OK;
    case CORE_VALUE_GENERATOR:
        out->u.generator = r->program->generators[from->u.generator];
        return CORE_OK;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        out->u.pointer = (void *)(uintptr_t)from->u.pointer;
        return CORE_OK;
    default:
        return CORE_OK;
    }
}

static core_status make_arguments(run *r, const core__program_node *node,
                                  const core_operator *op, arguments *a)
{
    core_tensor **list;
    size_t count = 1;

    a->nwritten = 0;
    a->written = NULL;
    for (uint32_t i = 0; i < node->nargs; i++)
        count += node->args[i].tag == CORE_VALUE_TENSOR_LIST
                     ? node->args[i].count
                     : 1;
    a->lists = core__alloc(2 * count * sizeof *a->lists);
    if (!a->lists)
        return core__error_memory(2 * count * sizeof *a->lists);
    a->written = a->lists + count;
    list = a->lists;
    for (uint32_t i = 0; i < node->nargs; i++)
        CORE_TRY(argument(r, op, &node->args[i], node->written >> i & 1, a,
                          &list, &a->values[i]));
    /* The offset counts from the first element of self. */
    if (op->id == CORE_OP_AS_STRIDED && !(op->flags & CORE__OP_CUSTOM))
        a->values[3].u.i += a->values[0].u.tensor->offset;
    return CORE_OK;
}

static bool has_strides(const core_tensor *tensor,
                        const core__program_type *type)
{
    for (uint32_t i = 0; i < type->ndim; i++)
        if (tensor->sizes[i] > 1 &&
            tensor->strides[i] != core__type_strides(type)[i])
            return false;
    return true;
}

/* Whether a result may share memory with what the program reads later. */
static bool shares_memory(const arguments *a, uint32_t nargs,
                          const core_tensor *result)
{
    for (uint32_t i = 0; i < nargs; i++) {
        const core_value *value = &a->values[i];

        if (value->tag == CORE_VALUE_TENSOR &&
            value->u.tensor->storage == result->storage)
            return true;
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
            if (value->u.tensors[k] &&
                value->u.tensors[k]->storage == result->storage)
                return true;
    }
    return false;
}

/* Takes over a result; copies one that is not as the program expects. */
static core_status set_value(run *r, const core_operator *op,
                             const arguments *a, uint32_t nargs, uint32_t value,
                             core_tensor *result)
{
    const core__program_type *type = &r->program->values[value].type;
    core_tensor **tensor = &r->tensors[value];
    char expected[160], given[160];
    core_status status;

    if (result->dtype != type->dtype || result->ndim != type->ndim ||
        memcmp(result->sizes, core__type_sizes(type),
               type->ndim * sizeof(int64_t)) != 0) {
        status = core__error(
            CORE_ERROR_INTERNAL,
            "core_program_run: %s returned %s%s; the program expects %s%s",
            core__operator_name(op), core__dtype_name(result->dtype),
            core__sizes_text(result->ndim, result->sizes, given, sizeof given),
            core__dtype_name(type->dtype),
            core__sizes_text(type->ndim, core__type_sizes(type), expected,
                             sizeof expected));
        core__tensor_release(result);
        return status;
    }
    if ((has_strides(result, type) || result->numel == 0) &&
        (core__operator_is_view(op) || !result->storage ||
         !shares_memory(a, nargs, result))) {
        *tensor = result;
        return CORE_OK;
    }
    status = core__run_copy(r, type, result, tensor);
    core__tensor_release(result);
    return status;
}

/* Takes over the results; on failure those that are left are released. */
static core_status set_results(run *r, const core__program_node *node,
                               const core_operator *op, const arguments *a,
                               core_value *results)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < node->nresults && status == CORE_OK; i++) {
        const core__program_argument *described = &node->results[i];

        if (described->tag == CORE_VALUE_TENSOR &&
            results[i].tag == CORE_VALUE_TENSOR) {
            core_tensor *tensor = results[i].u.tensor;

            results[i] = (core_value){0};
            status =
                set_value(r, op, a, node->nargs, described->u.value, tensor);
        } else if (described->tag == CORE_VALUE_TENSOR_LIST &&
                   results[i].tag == CORE_VALUE_TENSOR_LIST &&
                   results[i].count == described->count) {
            for (uint32_t k = 0; k < described->count && status == CORE_OK;
                 k++) {
                core_tensor *tensor = results[i].u.tensors[k];

                if (described->u.values[k] == CORE__NO_VALUE || !tensor)
                    continue;
                core__tensor_retain(tensor);
                status = set_value(r, op, a, node->nargs,
                                   described->u.values[k], tensor);
            }
        } else if (described->tag != CORE_VALUE_NONE) {
            status = core__error(CORE_ERROR_INTERNAL,
                                 "core_program_run: %s did not return result "
                                 "%u",
                                 core__operator_name(op), i);
        }
    }
    for (uint32_t i = 0; i < node->nresults; i++)
        core_value_release(&results[i]);
    return status;
}

static core_status call_operator(run *r, core_operator *op,
                                 const core_value *args, uint32_t nargs,
                                 core_value *results, uint32_t nresults)
{
    (void)r;
    return core__call(op, args, nargs, results, nresults);
}

static core_status run_operator(run *r, const core__program_node *node,
                                core_operator *op, arguments *a)
{
    core_value results[CORE__SCHEMA_RESULTS] = {{0}};
    uint32_t count = 0;

    /* An operator that only changes its arguments returns nothing. */
    for (uint32_t i = 0; i < node->nresults; i++)
        if (node->results[i].tag != CORE_VALUE_NONE)
            count = node->nresults;
    if (!node->written)
        count = node->nresults;
    CORE_TRY((r->steps ? r->steps->call : call_operator)(
        r, op, a->values, node->nargs, count ? results : NULL, count));
    CORE_TRY(set_results(r, node, op, a, results));
    for (uint32_t i = 0; i < a->nwritten; i++) {
        uint32_t value = node->first + node->nvalues - a->nwritten + i;

        r->tensors[value] = a->written[i];
        a->written[i] = NULL;
    }
    return CORE_OK;
}

static void drop_value(void *context, uint32_t value)
{
    run *r = context;

    if (last_of(r, value) != r->node || r->program->values[value].kept)
        return;
    core__tensor_release(r->tensors[value]);
    r->tensors[value] = NULL;
}

core_status core__run_node(run *r, const core__program_node *node)
{
    core_operator *op;
    core_status status;
    arguments a;

    if (node->regions)
        return core__run_upcalls.region(r->program, node, r->devices,
                                        r->tensors, r->tensors + node->first);
    CORE_TRY(core__node_operator(node, &op));
    status = make_arguments(r, node, op, &a);
    if (status == CORE_OK)
        status = run_operator(r, node, op, &a);
    for (uint32_t i = 0; i < a.nwritten; i++)
        core__tensor_release(a.written[i]);
    core__free(a.lists);
    return status;
}

void core__run_drop(run *r, const core__program_node *node)
{
    core__node_each_value(node, drop_value, r);
    for (uint32_t i = 0; i < node->nvalues; i++) {
        uint32_t value = node->first + i;

        if (r->program->values[value].last != CORE__NO_VALUE ||
            r->program->values[value].kept)
            continue;
        core__tensor_release(r->tensors[value]);
        r->tensors[value] = NULL;
    }
}

static core_status run_node(run *r, const core__program_node *node)
{
    core_status status = core__run_node(r, node);

    core__run_drop(r, node);
    return status;
}

/* ------------------------------------------------------------- outputs -- */

static core_tensor *source_of(const run *r, const core__program_output *output)
{
    switch (output->kind) {
    case CORE__OUTPUT_VALUE:
        return r->tensors[output->index];
    case CORE__OUTPUT_INPUT:
        return r->inputs[output->index];
    default:
        return r->program->hidden[output->index].tensor;
    }
}

core_status core__run_output(const run *r, uint32_t i,
                             core_tensor *const *outputs, core_tensor **out)
{
    const core__program_output *output = &r->program->outputs[i];
    const core__program_type *type = &output->type;
    core_tensor *source = output->kind == CORE__OUTPUT_SAME
                              ? outputs[output->index]
                              : source_of(r, output);
    int64_t offset;

    if (output->tensor)
        source = output->tensor;
    if (output->kind == CORE__OUTPUT_SAME || !output->view || output->tensor) {
        core__tensor_retain(source);
        *out = source;
        return CORE_OK;
    }
    offset = source->offset + output->offset;
    if (output->view == CORE__OUTPUT_DETACHED)
        return core__tensor_alias(source, type->dtype, type->ndim,
                                  core__type_sizes(type),
                                  core__type_strides(type), offset, out);
    return core_as_strided(source, core__type_sizes(type), type->ndim,
                           core__type_strides(type), type->ndim, &offset, out);
}

core_tensor *core__run_target(const run *r, const core__program_write *write)
{
    return write->hidden ? r->program->hidden[write->index].tensor
                         : r->inputs[write->index];
}

/* A written input is the target of a copy, and may be the source of another. */
bool core__run_is_target(const run *r, const core_tensor *tensor)
{
    const core_program *program = r->program;

    for (uint32_t i = 0; i < program->nwrites; i++)
        if (tensor->storage ==
            core__run_target(r, &program->writes[i])->storage)
            return true;
    return false;
}

core_status core__run_writes(run *r)
{
    const core_program *program = r->program;

    for (uint32_t i = 0; i < program->nwrites; i++) {
        uint32_t value = program->writes[i].value;
        core_tensor *before = r->tensors[value];

        if (!before)
            CORE_TRY(core__write_parts_keep(r, value));
        if (!before || !core__run_is_target(r, before))
            continue;
        CORE_TRY(core__run_copy(r, &program->values[value].type, before,
                                &r->tensors[value]));
        core__tensor_release(before);
    }
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];

        if (r->tensors[write->value])
            CORE_TRY(core_copy_(core__run_target(r, write),
                                r->tensors[write->value], false));
        else
            CORE_TRY(core__write_parts(r, write));
    }
    return CORE_OK;
}

/* ----------------------------------------------------------------- run -- */

static core_status run_nodes(run *r)
{
    core_program *program = r->program;
    core_status status = CORE_OK;
    bool *parts;

    CORE_TRY(core__write_parts_find(r, &parts));
    for (; r->node < program->nnodes && status == CORE_OK; r->node++)
        if (!parts || !parts[r->node])
            status = run_node(r, &program->nodes[r->node]);
    core__free(parts);
    return status;
}

static core_status run_all(run *r, core_tensor **outputs)
{
    core_program *program = r->program;

    if (r->checks)
        CORE_TRY(check_inputs(r));
    CORE_TRY(core__program_read_numbers(program, r->numbers));
    CORE_TRY(core__run_set_sources(r));
    CORE_TRY(run_nodes(r));
    for (uint32_t i = 0; i < program->noutputs; i++)
        CORE_TRY(core__run_output(r, i, outputs, &outputs[i]));
    CORE_TRY(core__run_writes(r));
    core__program_finish_run(program);
    return CORE_OK;
}

/* Autograd and autocast have done their part when the program was recorded. */
static core_status run_below(run *r, core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_status status;

    self->excluded |= (uint32_t)CORE__KEY_AUTOCAST;
    if (!r->recorded) {
        self->excluded |= (uint32_t)CORE__KEY_AUTOGRAD;
        self->no_grad = true;
    }
    status = run_all(r, outputs);
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}

static core_status check_counts(const core_program *program, size_t ninputs,
                                size_t noutputs)
{
    if (ninputs != program->ninputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_run: %zu inputs were given; the "
                           "program has %u",
                           ninputs, program->ninputs);
    if (noutputs != program->noutputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_run: space for %zu outputs was given; "
                           "the program has %u",
                           noutputs, program->noutputs);
    return CORE_OK;
}

static core_status run_program(run *r, core_tensor **outputs)
{
    core_program *program = r->program;
    size_t size = program->nvalues * sizeof *r->tensors +
                  program->ndevices * sizeof *r->devices +
                  program->nnumbers * sizeof *r->numbers + 1;
    core_status status;

    r->tensors = core__alloc_zero(size);
    if (!r->tensors)
        return core__error_memory(size);
    r->devices = (core_device **)(void *)(r->tensors + program->nvalues);
    r->numbers = (core_value *)(void *)(r->devices + program->ndevices);
    if (program->ndevices)
        memcpy(r->devices, program->devices,
               program->ndevices * sizeof *r->devices);
    status = run_below(r, outputs);
    for (uint32_t i = 0; i < program->nvalues; i++)
        core__tensor_release(r->tensors[i]);
    core__free(r->tensors);
    for (size_t i = 0; i < program->noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

core_status core__program_run_operators(core_program *program,
                                        core_tensor *const *inputs,
                                        core_tensor **outputs)
{
    run r = {.program = program, .inputs = inputs};

    return run_program(&r, outputs);
}

core_status core__program_run_recorded(core_program *program,
                                       core_tensor *const *inputs,
                                       core_tensor **outputs)
{
    run r = {
        .program = program, .inputs = inputs, .checks = true, .recorded = true};

    return run_program(&r, outputs);
}

core_status core_program_run(core_program *program, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t noutputs)
{
    run r = {.program = program, .inputs = inputs, .checks = true};
    core__lazy_pause pause;
    core_status status;

    if (noutputs > 0)
        CORE__NOT_NULL(outputs);
    for (size_t i = 0; i < noutputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(program);
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    CORE_TRY(check_counts(program, ninputs, noutputs));
    CORE_TRY(core__thread_pause(__func__, &pause));
    status = run_program(&r, outputs);
    core__thread_resume(&pause);
    return status;
}
