/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The layer RECORD: infers the results of a call on meta, and appends a node. */

#include "compile/record/lazy.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "dispatch/table.h"
#include "ops_ids.h"

#include <string.h>

core_status core__trace_check_content(const core_operator *op,
                                      const core_value *args, uint32_t nargs)
{
    for (uint32_t i = 0; i < nargs; i++) {
        core_tensor *const *tensors;
        uint32_t count = core__tensors_of(&args[i], &tensors);

        for (uint32_t k = 0; k < count; k++)
            if (tensors[k] && tensors[k]->flags & CORE__TENSOR_TRACED)
                return core__error(CORE_ERROR_UNSUPPORTED,
                                   "%s: a tensor has no content: it stands for "
                                   "a value of %s",
                                   core__operator_name(op),
                                   core__traced_origin(tensors[k], &(bool){0}));
    }
    return CORE_OK;
}

core_status core__trace_enter(const core_operator *op, const core_value *args,
                              uint32_t nargs, core__trace **out_trace)
{
    core__trace *trace = core__thread_self()->trace;

    *out_trace = trace;
    if (!trace) {
        CORE_TRY(core__trace_check_content(op, args, nargs));
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: a tensor has no content",
                           core__operator_name(op));
    }
    if (trace->lazy)
        CORE_TRY(core__lazy_enter(trace->lazy));
    pthread_mutex_lock(&trace->lock);
    return CORE_OK;
}

core_status core__trace_finish_call(core__trace *trace, uint32_t changes,
                                    core_status status, core_call *call,
                                    const core_value *args, uint32_t nargs,
                                    core_value *results, uint32_t nresults)
{
    bool changed = trace->changes != changes;

    core__trace_leave(trace);
    if (core__likely(status == CORE_OK) || !trace->lazy || changed)
        return status;
    return core__lazy_call(call, args, nargs, results, nresults);
}

void core__trace_leave(core__trace *trace)
{
    pthread_mutex_unlock(&trace->lock);
}

/* ----------------------------------------------------------- arguments -- */

uint32_t core__tensors_of(const core_value *value, core_tensor *const **out)
{
    if (value->tag == CORE_VALUE_TENSOR) {
        *out = &value->u.tensor;
        return 1;
    }
    *out = value->u.tensors;
    return value->tag == CORE_VALUE_TENSOR_LIST ? value->count : 0;
}

bool core__trace_on_meta(const core_operator *op, const core_value *args,
                         uint32_t nargs)
{
    core_tensor *const *tensors;
    core_device *device = NULL;
    bool any = false;

    for (uint32_t i = 0; i < nargs; i++) {
        uint32_t count = core__tensors_of(&args[i], &tensors);

        for (uint32_t k = 0; k < count; k++) {
            if (!tensors[k])
                continue;
            any = true;
            if (!tensors[k]->device->meta)
                return false;
        }
        if (args[i].tag == CORE_VALUE_DEVICE)
            device = args[i].u.device;
    }
    if (any)
        return true;
    if (!device && op->flags & CORE__OP_FACTORY &&
        core__device_current(&device) != CORE_OK)
        return false;
    return device && device->meta;
}

/* A call while it is recorded. */
typedef struct recording {
    core__trace *trace;
    core_operator *op;
    const core_value *args;
    uint32_t nargs;
    uint32_t written;
    core_device *device; /* of the results */
    core__program_argument *arguments;
    core_value meta[CORE__SCHEMA_ARGUMENTS];
    core_tensor **stand_ins; /* owned; lists point into it */
    uint32_t count;
    core_value inferred[CORE__SCHEMA_RESULTS]; /* owned */
    core__program_node node;
} recording;

static core_status __attribute__((cold))
refuse(const core_operator *op, const char *reason)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: %s, which a program that is being recorded cannot "
                       "contain",
                       core__operator_name(op), reason);
}

/* Adds a tensor to those that decide where the call runs.  Only the operands of
 * copy_ may be on different devices. */
static core_status join_device(recording *r, core_tensor *tensor,
                               bool *only_number)
{
    core_device *own = tensor->device;
    bool number = tensor->ndim == 0 && core__device_host_access(own);

    if (r->trace->lazy && r->device && own != r->device && !number &&
        !*only_number)
        return refuse(r->op, "it uses two devices");
    if (own == r->device)
        *only_number = *only_number && number;
    else if (!r->device || *only_number) {
        r->device = own;
        *only_number = number;
    } else if (!number && r->op->family >= CORE__FAMILY_ELEMENTWISE &&
               r->op->id != CORE_OP_COPY_)
        return core__op_error(CORE_ERROR_DEVICE, r->op,
                              "operands are on different devices, \"%s\" and "
                              "\"%s\"",
                              r->device->name, own->name);
    return CORE_OK;
}

/* A segment of a lazy region has one device. */
static core_status check_segment(const recording *r)
{
    core__lazy *lazy = r->trace->lazy;

    if (lazy->device && lazy->device != r->device)
        return refuse(r->op, "it runs on another device than what was "
                             "recorded before");
    lazy->device = r->device;
    return CORE_OK;
}

/* The device of the results: a device argument, or that of the tensors. */
static core_status find_device(recording *r)
{
    core_tensor *const *tensors;
    core_device *given = NULL;
    bool only_number = false;

    for (uint32_t i = 0; i < r->nargs; i++) {
        uint32_t count = core__tensors_of(&r->args[i], &tensors);

        for (uint32_t k = 0; k < count; k++)
            if (tensors[k])
                CORE_TRY(join_device(r, tensors[k], &only_number));
        if (r->args[i].tag == CORE_VALUE_DEVICE)
            given = r->args[i].u.device;
    }
    if (given)
        r->device = given;
    if (!r->device)
        CORE_TRY(core__device_current(&r->device));
    return core__likely(!r->trace->lazy) ? CORE_OK : check_segment(r);
}

static core_status stand_in(recording *r, core_tensor *tensor,
                            core_tensor **out)
{
    CORE_TRY(core__tensor_new(&core__meta_device, tensor->dtype, tensor->ndim,
                              tensor->sizes, tensor->strides, out));
    r->stand_ins[r->count++] = *out;
    return CORE_OK;
}

static core_status read_list(recording *r, uint32_t i)
{
    const core_value *value = &r->args[i];
    uint32_t *values = (uint32_t *)(uintptr_t)r->arguments[i].u.values;
    core_tensor **first = r->stand_ins + r->count;

    /* Absent tensors take a place, so that the list is a slice. */
    for (uint32_t k = 0; k < value->count; k++) {
        core_tensor *tensor = value->u.tensors[k];
        core_tensor *meta;

        values[k] = CORE__NO_VALUE;
        if (!tensor) {
            r->stand_ins[r->count++] = NULL;
            continue;
        }
        CORE_TRY(core__traced_read(r->trace, r->op, tensor, &values[k]));
        CORE_TRY(stand_in(r, tensor, &meta));
    }
    r->meta[i].u.tensors = first;
    return CORE_OK;
}

static core_status read_argument(recording *r, uint32_t i)
{
    core_value value = r->args[i];

    /* The current device may be another one when the program runs. */
    if (value.tag == CORE_VALUE_NONE && i == r->op->place &&
        r->op->flags & CORE__OP_FACTORY && !r->op->tensors)
        value = (core_value){CORE_VALUE_DEVICE, 0, {.device = r->device}};
    CORE_TRY(core__program_add_constant(r->trace->program, &value,
                                        &r->arguments[i]));
    if (core__unlikely(r->trace->numbers.count))
        CORE_TRY(
            core__trace_take_number(r->trace, i, &value, &r->arguments[i]));
    r->meta[i] = value;
    if (value.tag == CORE_VALUE_DEVICE)
        r->meta[i].u.device = &core__meta_device;
    if (value.tag == CORE_VALUE_TENSOR) {
        CORE_TRY(core__traced_read(r->trace, r->op, value.u.tensor,
                                   &r->arguments[i].u.value));
        return stand_in(r, value.u.tensor, &r->meta[i].u.tensor);
    }
    return value.tag == CORE_VALUE_TENSOR_LIST ? read_list(r, i) : CORE_OK;
}

static core_status read_arguments(recording *r)
{
    core_tensor *const *tensors;
    uint32_t count = 0;

    if (r->nargs > CORE__SCHEMA_ARGUMENTS)
        return core__op_error(CORE_ERROR_UNSUPPORTED, r->op,
                              "%u arguments were given; at most %d are "
                              "recorded",
                              r->nargs, CORE__SCHEMA_ARGUMENTS);
    for (uint32_t i = 0; i < r->nargs; i++)
        count += core__tensors_of(&r->args[i], &tensors);
    r->stand_ins = core__alloc((count + 1) * sizeof *r->stand_ins);
    r->arguments = core__program_alloc(r->trace->program,
                                       (r->nargs + 1) * sizeof *r->arguments);
    if (!r->stand_ins || !r->arguments)
        return core__error_memory((count + 1) * sizeof *r->stand_ins);
    for (uint32_t i = 0; i < r->nargs; i++)
        CORE_TRY(read_argument(r, i));
    return CORE_OK;
}

/* ------------------------------------------------------------- results -- */

/* The argument that a result is, or NULL. */
static core_tensor *argument_of(const recording *r, const core_tensor *inferred)
{
    core_tensor *const *tensors;
    core_tensor *const *originals;

    for (uint32_t i = 0; i < r->nargs; i++) {
        uint32_t count = core__tensors_of(&r->meta[i], &tensors);

        core__tensors_of(&r->args[i], &originals);
        for (uint32_t k = 0; k < count; k++)
            if (tensors[k] == inferred)
                return originals[k];
    }
    return NULL;
}

static core_status check_result(const recording *r, const core_tensor *inferred)
{
    if (!inferred->device->meta)
        return refuse(r->op, "its shape function returned a tensor that is "
                             "not on \"meta\"");
    for (uint32_t i = 0; i < r->count; i++)
        if (inferred->base && inferred->base == r->stand_ins[i])
            return refuse(r->op, "it returns a view of an argument without "
                                 "being a view operator");
    return CORE_OK;
}

/* Adds the value of a new tensor; *out: the tensor. */
static core_status add_result(recording *r, const core_tensor *inferred,
                              uint32_t *out_value, core_tensor **out)
{
    core__program_type type;
    uint32_t device;

    CORE_TRY(check_result(r, inferred));
    CORE_TRY(core__program_device(r->trace->program, r->device, &device));
    CORE_TRY(core__program_type_set(r->trace->program, inferred->dtype,
                                    inferred->ndim, inferred->sizes,
                                    inferred->strides, device, &type));
    CORE_TRY(core__program_add_value(r->trace->program, &type,
                                     CORE__VALUE_OF_NODE,
                                     r->trace->program->nnodes, out_value));
    r->node.nvalues++;
    return core__traced_new(r->trace, &type, r->device, *out_value, out);
}

static core_status list_result(recording *r, const core_value *inferred,
                               core__program_argument *argument,
                               core_value *result)
{
    core_tensor **tensors;
    uint32_t *values;

    values = core__program_alloc(r->trace->program,
                                 inferred->count * sizeof *values + 1);
    tensors = core__alloc_zero((inferred->count + 1) * sizeof *tensors);
    if (!values || !tensors) {
        core__free(tensors);
        return core__error_memory(inferred->count * sizeof *tensors);
    }
    *result = (core_value){
        CORE_VALUE_TENSOR_LIST, inferred->count, {.tensors = tensors}};
    argument->tag = CORE_VALUE_TENSOR_LIST;
    argument->count = inferred->count;
    argument->u.values = values;
    for (uint32_t k = 0; k < inferred->count; k++) {
        values[k] = CORE__NO_VALUE;
        if (inferred->u.tensors[k])
            CORE_TRY(
                add_result(r, inferred->u.tensors[k], &values[k], &tensors[k]));
    }
    return CORE_OK;
}

static core_status one_result(recording *r, const core_value *inferred,
                              core__program_argument *argument,
                              core_value *result)
{
    core_tensor *same;

    switch (inferred->tag) {
    case CORE_VALUE_NONE:
        return CORE_OK;
    case CORE_VALUE_TENSOR_LIST:
        return list_result(r, inferred, argument, result);
    case CORE_VALUE_TENSOR:
        break;
    default:
        return refuse(r->op, "a result is a number on the host");
    }
    same = argument_of(r, inferred->u.tensor);
    if (same) {
        core__tensor_retain(same);
        *result = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = same}};
        return CORE_OK;
    }
    argument->tag = CORE_VALUE_TENSOR;
    CORE_TRY(add_result(r, inferred->u.tensor, &argument->u.value,
                        &result->u.tensor));
    result->tag = CORE_VALUE_TENSOR;
    return CORE_OK;
}

/* The values of written arguments follow those of results. */
static core_status add_written(recording *r, uint32_t *out_first)
{
    core_program *program = r->trace->program;
    uint32_t value;

    *out_first = program->nvalues;
    for (uint32_t left = r->written; left; left &= left - 1) {
        const core__program_argument *argument =
            &r->arguments[__builtin_ctz(left)];
        bool list = argument->tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count =
            list ? argument->count : argument->tag == CORE_VALUE_TENSOR;
        const uint32_t *values = list ? argument->u.values : &argument->u.value;

        for (uint32_t k = 0; k < count; k++) {
            core__program_type type;

            if (values[k] == CORE__NO_VALUE)
                continue;
            type = program->values[values[k]].type;
            CORE_TRY(core__program_add_value(
                program, &type, CORE__VALUE_OF_NODE, program->nnodes, &value));
            r->node.nvalues++;
        }
    }
    return CORE_OK;
}

static core_status write_back(recording *r, uint32_t value)
{
    core_tensor *const *tensors;

    for (uint32_t left = r->written; left; left &= left - 1) {
        uint32_t count =
            core__tensors_of(&r->args[__builtin_ctz(left)], &tensors);

        for (uint32_t k = 0; k < count; k++)
            if (tensors[k])
                CORE_TRY(
                    core__traced_write(r->trace, r->op, tensors[k], value++));
    }
    return CORE_OK;
}

static core_status append(recording *r, core_value *results, uint32_t nresults)
{
    core_program *program = r->trace->program;
    uint32_t declared = r->op->nresults, first, index;
    core__program_argument *described =
        core__program_alloc(program, (declared + 1) * sizeof *described);

    if (!described)
        return core__error_memory(declared * sizeof *described);
    memset(described, 0, declared * sizeof *described);
    r->node.first = program->nvalues;
    for (uint32_t i = 0; i < declared; i++) {
        core_value unused = {0};

        CORE_TRY(one_result(r, &r->inferred[i], &described[i],
                            i < nresults ? &results[i] : &unused));
        core_value_release(&unused);
    }
    CORE_TRY(add_written(r, &first));
    if (!r->node.nvalues && !r->node.draws)
        return CORE_OK;
    r->node.op = r->op->flags & CORE__OP_CUSTOM ? NULL : r->op;
    r->node.name = core__operator_name(r->op);
    if (!r->node.op) {
        size_t size = strlen(r->node.name) + 1;
        char *name = core__program_alloc(program, size);

        if (!name)
            return core__error_memory(size);
        r->node.name = memcpy(name, r->node.name, size);
    }
    r->node.nargs = r->nargs;
    r->node.nresults = declared;
    r->node.written = r->written;
    r->node.args = r->arguments;
    r->node.results = described;
    CORE_TRY(core__program_add_node(program, &r->node, &index));
    return write_back(r, first);
}

/* A change in place that the inference made visible: a resized tensor. */
static core_status check_unresized(const recording *r)
{
    core_tensor *const *tensors;
    core_tensor *const *originals;

    for (uint32_t left = r->written; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        uint32_t count = core__tensors_of(&r->meta[i], &tensors);

        core__tensors_of(&r->args[i], &originals);
        for (uint32_t k = 0; k < count; k++)
            if (tensors[k] && (tensors[k]->ndim != originals[k]->ndim ||
                               memcmp(tensors[k]->sizes, originals[k]->sizes,
                                      tensors[k]->ndim * sizeof(int64_t)) != 0))
                return refuse(r->op, "it resizes a tensor");
    }
    return CORE_OK;
}

/* Of what it reads on the host, only the content of its results depends. */
static bool returns_tensors(core_operator *op)
{
    const core__schema *schema;

    if (core__schema_of(op, &schema) != CORE_OK)
        return false;
    for (uint32_t i = 0; i < schema->nresults; i++)
        if (schema->results[i].tag != CORE_VALUE_TENSOR)
            return false;
    return schema->nresults > 0;
}

/* Of a program or plugin; what it does on meta is not known. */
static core_status __attribute__((cold, noinline))
refuse_without_shape(const core_operator *op)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: it has no shape function, so a program that is "
                       "being recorded cannot contain it; register one with "
                       "core_shape_register",
                       core__operator_name(op));
}

core_status core__trace_record(core__trace *trace, core_operator *op,
                               const core_value *args, uint32_t nargs,
                               uint32_t written, core_value *results,
                               uint32_t nresults)
{
    recording r = {.trace = trace,
                   .op = op,
                   .args = args,
                   .nargs = nargs,
                   .written = written};
    core_status status;

    if (op->flags & CORE__OP_DYNAMIC_OUTPUT)
        return refuse(op, "the size of its result depends on data");
    if (op->flags & CORE__OP_HOST_WAIT && !returns_tensors(op))
        return refuse(op, "it reads data on the host");
    status = find_device(&r);
    if (status == CORE_OK)
        status = read_arguments(&r);
    if (status == CORE_OK)
        status = core__program_infer(op, r.meta, nargs, r.inferred,
                                     op->nresults, &r.node.draws);
    if (status == CORE_ERROR_NO_KERNEL && op->flags & CORE__OP_CUSTOM &&
        !core__registry_shape(op))
        status = refuse_without_shape(op);
    if (status == CORE_OK)
        status = check_unresized(&r);
    if (status == CORE_OK)
        status = append(&r, results, nresults);
    for (uint32_t i = 0; i < op->nresults; i++)
        core_value_release(&r.inferred[i]);
    for (uint32_t i = 0; i < r.count; i++)
        core__tensor_release(r.stand_ins[i]);
    core__free(r.stand_ins);
    if (status != CORE_OK)
        for (uint32_t i = 0; i < nresults; i++)
            core_value_release(&results[i]);
    return status;
}

core_status core__trace_append(core__trace *trace, core_operator *op,
                               const core__program_argument *args,
                               uint32_t nargs, uint32_t written,
                               const core__program_type *type,
                               uint32_t *out_value)
{
    core_program *program = trace->program;
    core__program_argument *copies, *result;
    core__program_node node = {.op = op,
                               .name = core__operator_name(op),
                               .nargs = nargs,
                               .nresults = op->nresults,
                               .written = written,
                               .first = program->nvalues,
                               .nvalues = 1};
    uint32_t index;

    copies = core__program_alloc(program, nargs * sizeof *copies);
    result = core__program_alloc(program, sizeof *result);
    if (!copies || !result)
        return core__error_memory(nargs * sizeof *copies);
    memcpy(copies, args, nargs * sizeof *copies);
    *result = (core__program_argument){0};
    if (!written) {
        result->tag = CORE_VALUE_TENSOR;
        result->u.value = node.first;
    }
    node.args = copies;
    node.results = result;
    CORE_TRY(core__program_add_value(program, type, CORE__VALUE_OF_NODE,
                                     program->nnodes, out_value));
    return core__program_add_node(program, &node, &index);
}

/* --------------------------------------------------------------- layer -- */

/* Of functions that return a number: those that know it without data. */
static bool is_host_function(core_operator *op)
{
    const core__schema *schema;

    return op->family == CORE__FAMILY_FUNCTION &&
           !(op->flags & (CORE__OP_CUSTOM | CORE__OP_HOST_WAIT |
                          CORE__OP_DYNAMIC_OUTPUT)) &&
           core__schema_of(op, &schema) == CORE_OK && schema->nresults == 1 &&
           schema->results[0].tag != CORE_VALUE_TENSOR &&
           schema->results[0].tag != CORE_VALUE_TENSOR_LIST;
}

core_status core__record_layer(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    core__trace *trace;
    core_status status;
    uint32_t changes;

    if (core__trace_on_meta(call->op, args, nargs) ||
        is_host_function(call->op))
        return core__redispatch(
            call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_RECORD),
            args, nargs, results, nresults);
    CORE_TRY(core__trace_enter(call->op, args, nargs, &trace));
    changes = trace->changes;
    status = core__trace_record(
        trace, call->op, args, nargs,
        core__operator_written_arguments(call->op, nargs), results, nresults);
    return core__trace_finish_call(trace, changes, status, call, args, nargs,
                                   results, nresults);
}
