/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Creates programs and adds to them. */

#include "compile/program/region.h"
#include "compile/program/upcalls.h"

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "ops_ids.h"
#include "random/generator.h"
#include "tensor/dtype.h"

#include <libcore/dispatch.h>

#include <string.h>

/* --------------------------------------------------------------- arena -- */

struct core__program_block {
    core__program_block *next;
    _Alignas(16) char bytes[];
};

enum { BLOCK_SIZE = 16 << 10 };

void *core__program_alloc(core_program *program, size_t size)
{
    core__program_block *block;
    size_t capacity;

    size = (size + 15) & ~(size_t)15;
    if (size <= program->capacity - program->used) {
        program->used += size;
        return program->blocks->bytes + program->used - size;
    }
    capacity = size > BLOCK_SIZE ? size : BLOCK_SIZE;
    block = core__alloc(sizeof *block + capacity);
    if (!block)
        return NULL;
    block->next = program->blocks;
    program->blocks = block;
    program->capacity = capacity;
    program->used = size;
    return block->bytes;
}

void core__program_free_blocks(core_program *program)
{
    while (program->blocks) {
        core__program_block *next = program->blocks->next;

        core__free(program->blocks);
        program->blocks = next;
    }
}

static const void *copy_to_arena(core_program *program, const void *from,
                                 size_t size)
{
    void *copy = core__program_alloc(program, size ? size : 1);

    if (copy && size)
        memcpy(copy, from, size);
    return copy;
}

void *core__program_grow(void *array, uint32_t *count, size_t size)
{
    void **at = array;
    char *larger = *at;

    /* The capacity is the power of two that is not below the count. */
    if ((*count & (*count - 1)) == 0) {
        size_t capacity = *count ? 2 * (size_t)*count : 1;

        larger = core__realloc(*at, capacity * size);
        if (!larger)
            return NULL;
        *at = larger;
    }
    larger += (size_t)*count * size;
    memset(larger, 0, size);
    ++*count;
    return larger;
}

/* ------------------------------------------------------------ programs -- */

core_status core__program_new(core_program **out_program)
{
    *out_program = core__alloc_zero(sizeof **out_program);
    if (!*out_program)
        return core__error_memory(sizeof **out_program);
    atomic_init(&(*out_program)->references, 1);
    return CORE_OK;
}

core_program *core_program_retain(core_program *program)
{
    if (program)
        atomic_fetch_add(&program->references, 1);
    return program;
}

static void release_numbers(core_program *program)
{
    for (uint32_t i = 0; i < program->nnumbers; i++)
        program->numbers[i].source->release(program->numbers[i].object);
    for (uint32_t i = 0; i < program->nfinishes; i++)
        program->finishes[i].source->release(program->finishes[i].object);
    core__free(program->numbers);
    core__free(program->finishes);
}

void core_program_release(core_program *program)
{
    if (!program || atomic_fetch_sub(&program->references, 1) != 1)
        return;
    core__program_upcalls.replay_free(program);
    core__program_upcalls.prepared_calls_free(program);
    for (uint32_t i = 0; i < program->nhidden; i++)
        core__hidden_release(&program->hidden[i]);
    for (uint32_t i = 0; i < program->nknown; i++)
        core__tensor_release(program->known[i].tensor);
    for (uint32_t i = 0; i < program->naliases; i++)
        core__tensor_release(program->aliases[i]);
    for (uint32_t i = 0; i < program->noutputs; i++)
        core__tensor_release(program->outputs[i].tensor);
    release_numbers(program);
    for (uint32_t i = 0; i < program->nnodes; i++)
        core__region_release(&program->nodes[i]);
    for (uint32_t i = 0; i < program->ngenerators; i++)
        core_generator_release(program->generators[i]);
    for (uint32_t i = 0; i < program->ndevices; i++)
        core_device_release(program->devices[i]);
    core__program_free_blocks(program);
    core__free(program->devices);
    core__free(program->generators);
    core__free(program->inputs);
    core__free(program->hidden);
    core__free(program->known);
    core__free(program->aliases);
    core__free(program->values);
    core__free(program->nodes);
    core__free(program->outputs);
    core__free(program->writes);
    core_program_release(program->parent);
    core__free(program);
}

core_status core_program_get_counts(core_program *program,
                                    core_program_counts *out_counts)
{
    core_program_counts counts = {0};
    uint32_t size;

    CORE__NOT_NULL(program);
    CORE__NOT_NULL(out_counts);
    CORE__CHECK_STRUCT_SIZE(out_counts, core_program_counts);
    counts.inputs = program->ninputs;
    counts.hidden_inputs = program->nhidden;
    counts.outputs = program->noutputs;
    counts.nodes = program->nnodes;
    counts.writes = program->nwrites;
    for (uint32_t i = 0; i < program->nnodes; i++)
        counts.draws += program->nodes[i].draws;
    size = out_counts->struct_size < sizeof counts ? out_counts->struct_size
                                                   : sizeof counts;
    counts.struct_size = size;
    memcpy(out_counts, &counts, size);
    return CORE_OK;
}

core_tensor *core_program_hidden_input(core_program *program, size_t index)
{
    return program && index < program->nhidden ? program->hidden[index].tensor
                                               : NULL;
}

/* ------------------------------------------------------------ building -- */

core_status core__program_device(core_program *program, core_device *device,
                                 uint32_t *out_index)
{
    core_device **added;

    for (uint32_t i = 0; i < program->ndevices; i++)
        if (program->devices[i] == device) {
            *out_index = i;
            return CORE_OK;
        }
    *out_index = program->ndevices;
    added = core__program_grow(&program->devices, &program->ndevices,
                               sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    *added = core_device_retain(device);
    return CORE_OK;
}

core_status core__program_generator(core_program *program,
                                    core_generator *generator,
                                    uint32_t *out_index)
{
    core_generator **added;

    for (uint32_t i = 0; i < program->ngenerators; i++)
        if (program->generators[i] == generator) {
            *out_index = i;
            return CORE_OK;
        }
    *out_index = program->ngenerators;
    added = core__program_grow(&program->generators, &program->ngenerators,
                               sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    *added = generator;
    core__generator_retain(generator);
    return CORE_OK;
}

core_status core__program_type_set(core_program *program, core_dtype dtype,
                                   uint32_t ndim, const int64_t *sizes,
                                   const int64_t *strides, uint32_t device,
                                   core__program_type *out_type)
{
    int64_t *dims = core__program_alloc(program, 2 * ndim * sizeof *dims + 1);

    if (!dims)
        return core__error_memory(2 * ndim * sizeof *dims);
    if (ndim) {
        memcpy(dims, sizes, ndim * sizeof *dims);
        memcpy(dims + ndim, strides, ndim * sizeof *dims);
    }
    *out_type = (core__program_type){(uint8_t)dtype, (uint8_t)ndim,
                                     (uint16_t)device, dims};
    return CORE_OK;
}

core_status core__program_add_value(core_program *program,
                                    const core__program_type *type,
                                    core__value_source source, uint32_t index,
                                    uint32_t *out_value)
{
    core__program_value *value;

    *out_value = program->nvalues;
    value =
        core__program_grow(&program->values, &program->nvalues, sizeof *value);
    if (!value)
        return core__error_memory(sizeof *value);
    *value = (core__program_value){
        .type = *type, .source = (uint8_t)source, .index = index};
    return CORE_OK;
}

static core_status add_reference(core_program *program, const core_value *value,
                                 core__program_argument *argument)
{
    if (value->tag == CORE_VALUE_DEVICE)
        return core__program_device(program, value->u.device,
                                    &argument->u.device);
    return core__program_generator(program, value->u.generator,
                                   &argument->u.generator);
}

/* Bytes of what a list or string points to; 0: the value is inline. */
static size_t pointed_size(const core_value *value)
{
    switch (value->tag) {
    case CORE_VALUE_INT_LIST:
        return value->count * sizeof(int64_t);
    case CORE_VALUE_FLOAT_LIST:
        return value->count * sizeof(double);
    case CORE_VALUE_BOOL_LIST:
        return value->count;
    case CORE_VALUE_STRING:
        return (size_t)value->count + 1;
    case CORE_VALUE_TENSOR_LIST:
        return value->count * sizeof(uint32_t);
    default:
        return 0;
    }
}

core_status core__program_add_constant(core_program *program,
                                       const core_value *value,
                                       core__program_argument *out_argument)
{
    size_t size = pointed_size(value);

    *out_argument =
        (core__program_argument){.tag = value->tag, .count = value->count};
    switch (value->tag) {
    case CORE_VALUE_NONE:
    case CORE_VALUE_TENSOR:
        return CORE_OK;
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
    case CORE_VALUE_BOOL:
    case CORE_VALUE_DTYPE:
    case CORE_VALUE_FORMAT:
    case CORE_VALUE_LAYOUT:
        out_argument->u.i = value->u.i;
        return CORE_OK;
    case CORE_VALUE_DEVICE:
    case CORE_VALUE_GENERATOR:
        return add_reference(program, value, out_argument);
    case CORE_VALUE_TENSOR_LIST:
        out_argument->u.pointer = core__program_alloc(program, size + 1);
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        out_argument->u.pointer =
            copy_to_arena(program, value->u.pointer, size);
        break;
    default:
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "a program cannot contain a value of kind %u",
                           value->tag);
    }
    return out_argument->u.pointer ? CORE_OK : core__error_memory(size);
}

core_status core__program_add_node(core_program *program,
                                   const core__program_node *node,
                                   uint32_t *out_index)
{
    core__program_node *added;

    *out_index = program->nnodes;
    added =
        core__program_grow(&program->nodes, &program->nnodes, sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    *added = *node;
    return CORE_OK;
}

typedef struct reader {
    core_program *program;
    uint32_t node;
} reader;

static void note_read(void *context, uint32_t value)
{
    const reader *from = context;

    from->program->values[value].last = from->node;
}

static void find_written(core_program *program)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        program->inputs[i].written = false;
    for (uint32_t i = 0; i < program->nhidden; i++)
        program->hidden[i].written = false;
    for (uint32_t i = 0; i < program->nwrites; i++) {
        uint32_t index = program->writes[i].index;

        if (program->writes[i].hidden)
            program->hidden[index].written = true;
        else
            program->inputs[index].written = true;
    }
    for (uint32_t i = 0; i < program->ninputs; i++)
        if (program->inputs[i].base != CORE__NO_VALUE)
            program->inputs[i].written =
                program->inputs[program->inputs[i].base].written;
}

void core__program_finish(core_program *program)
{
    reader from = {program, 0};

    for (uint32_t i = 0; i < program->nvalues; i++) {
        program->values[i].last = CORE__NO_VALUE;
        program->values[i].kept = false;
    }
    for (; from.node < program->nnodes; from.node++)
        core__node_each_value(&program->nodes[from.node], note_read, &from);
    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE)
            program->values[program->outputs[i].index].kept = true;
    for (uint32_t i = 0; i < program->nwrites; i++)
        program->values[program->writes[i].value].kept = true;
    find_written(program);
}

/* ------------------------------------------------------------- reading -- */

bool core__types_equal(const core__program_type *a, const core__program_type *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           a->device == b->device &&
           memcmp(a->dims, b->dims, 2 * a->ndim * sizeof *a->dims) == 0;
}

core_value core__program_constant(const core_program *program,
                                  const core__program_argument *argument)
{
    core_value value = {argument->tag, argument->count, {.i = argument->u.i}};

    switch (argument->tag) {
    case CORE_VALUE_DEVICE:
        value.u.device = program->devices[argument->u.device];
        break;
    case CORE_VALUE_GENERATOR:
        value.u.generator = program->generators[argument->u.generator];
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        value.u.pointer = (void *)(uintptr_t)argument->u.pointer;
        break;
    default:
        break;
    }
    return value;
}

core_status core__node_operator(const core__program_node *node,
                                core_operator **out_op)
{
    *out_op = node->op;
    return *out_op ? CORE_OK : core_op_find(node->name, out_op);
}

bool core__node_acts(const core__program_node *node)
{
    return !node->op || node->draws > 0 ||
           node->op->id == CORE_OP_CHECK_CONTENT;
}

void core__node_each_value(const core__program_node *node,
                           void (*visit)(void *context, uint32_t value),
                           void *context)
{
    for (uint32_t i = 0; i < node->nargs; i++) {
        const core__program_argument *argument = &node->args[i];

        if (argument->tag == CORE_VALUE_TENSOR)
            visit(context, argument->u.value);
        if (argument->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < argument->count; k++)
            if (argument->u.values[k] != CORE__NO_VALUE)
                visit(context, argument->u.values[k]);
    }
}

bool core__operator_overwrites(const core_operator *op)
{
    if (op->flags & CORE__OP_CUSTOM)
        return false;
    switch (op->id) {
    case CORE_OP_COPY_:
    case CORE_OP_FILL__SCALAR:
    case CORE_OP_ZERO_:
    case CORE_OP_UNIFORM_:
    case CORE_OP_NORMAL_:
    case CORE_OP_BERNOULLI__FLOAT:
    case CORE_OP_RANDOM__FROM:
        return true;
    default:
        return false;
    }
}

/* ----------------------------------------------------------- inference -- */

core_status core__program_stand_in(const core__program_type *type,
                                   core_tensor **out_tensor)
{
    return core__tensor_new(&core__meta_device, type->dtype, type->ndim,
                            core__type_sizes(type), core__type_strides(type),
                            out_tensor);
}

core_status core__program_infer(core_operator *op, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults, uint64_t *out_draws)
{
    core__thread *self = core__thread_self();
    uint32_t excluded = self->excluded;
    uint64_t draws = self->meta_draws;
    struct core__lazy *lazy = self->lazy; /* nothing here cuts it */
    core_status status;

    for (uint32_t i = 0; i < nresults; i++)
        results[i] = (core_value){0};
    self->lazy = NULL;
    self->excluded |= (uint32_t)(CORE__KEYS_FUNCTIONALITY & ~CORE__KEY_BACKEND);
    status = core__redispatch(op, core__meta_device.keys | CORE__KEY_BACKEND,
                              args, nargs, results, nresults);
    self->excluded = excluded;
    self->lazy = lazy;
    *out_draws = self->meta_draws - draws;
    self->meta_draws = draws;
    return status;
}

bool core__node_reads_number(const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE__ARGUMENT_NUMBER)
            return true;
    return false;
}

bool core__node_may_recompute(const core__program_node *node)
{
    if (!node->op || node->draws || node->written ||
        core__node_reads_number(node) ||
        node->op->flags & (CORE__OP_RANDOM | CORE__OP_HOST_WAIT))
        return false;
    if (core__operator_is_view(node->op) ||
        node->op->family == CORE__FAMILY_ELEMENTWISE ||
        node->op->flags & CORE__OP_FACTORY)
        return true;
    switch (node->op->id) {
    case CORE_OP_CLONE:
    case CORE_OP_TO_COPY:
    case CORE_OP_ZEROS_LIKE:
    case CORE_OP_ONES_LIKE:
    case CORE_OP_FULL_LIKE:
        return true;
    default:
        return false;
    }
}
