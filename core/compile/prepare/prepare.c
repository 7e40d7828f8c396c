/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Prepares calls of a program.
 *
 * The program is run once with tensors that stand in for its values, and
 * kernels that are noted instead of launched.  Storages show which memory is
 * meant: a buffer is the storage of an input, of a hidden input, or of a
 * stand-in. */

#include "compile/passes/recompute.h"
#include "compile/prepare/prepared.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/registry.h"
#include "ops_ids.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <string.h>

enum {
    NEVER = UINT32_MAX,
    WORTH_IT = 32 /* results are computed again if that saves this part */
};

typedef struct buffer {
    uint8_t kind;   /* core__source_kind */
    uint32_t index; /* of the input or hidden input; else of the value that is
                     * all of it, or NO_VALUE */
    /* Of a stand-in: with a reference while something may still refer to it. */
    core_storage *storage;
    core_memory start;
    uint64_t size;
    uint32_t first, last; /* steps that use it; NEVER */
    bool seen;            /* a node that is called as an operator uses it */
    /* Another buffer in which it is, and how far from the start; NEVER: none */
    uint32_t into;
    uint64_t distance;
    uint32_t taken; /* the step whose output is in its place; NEVER */
    uint32_t source;
    uint64_t offset; /* in the arena */
} buffer;

/* A change of the content of a tensor by a step. */
typedef struct change {
    uint32_t step;
    core__operand_tensor *tensor;
} change;

typedef struct preparing {
    core__run run; /* first */
    core_device *device;
    core__prepared *to;
    buffer *buffers;
    uint32_t nbuffers;
    uint32_t *live; /* buffers with a reference to a storage */
    uint32_t nlive;
    uint32_t *value_buffers; /* by value */
    uint32_t *last;          /* by value: the last node that reads it */
    const uint32_t *order;   /* of the nodes */
    change *changes;
    uint32_t nchanges;
    core__launch_log log;
    const char *reason; /* why the program cannot be prepared */
    bool copied;        /* a value that is written, before any is written */
    /* The target of a write, while it is prepared. */
    const core_tensor *target;
    uint32_t target_buffer;
} preparing;

static core_status no_memory(void)
{
    return core__error_memory(sizeof(buffer));
}

/* Not an error for the caller of a compiled function. */
static core_status refuse(preparing *p, const char *reason)
{
    p->reason = reason;
    return CORE_ERROR_UNSUPPORTED;
}

/* -------------------------------------------------------------- buffers -- */

static core_status add_buffer(preparing *p, core__source_kind kind,
                              uint32_t index, const core_tensor *tensor,
                              uint32_t *out_buffer)
{
    bool given = kind == CORE__SOURCE_INPUT || kind == CORE__SOURCE_HIDDEN;
    buffer *b = core__program_grow(&p->buffers, &p->nbuffers, sizeof *b);
    uint32_t *live;

    if (!b)
        return no_memory();
    *out_buffer = p->nbuffers - 1;
    *b = (buffer){.kind = (uint8_t)kind,
                  .index = index,
                  .storage = tensor->storage,
                  .start = given ? core__tensor_memory(tensor)
                                 : tensor->storage->memory,
                  .size = tensor->storage->size,
                  .first = NEVER,
                  .last = NEVER,
                  .into = NEVER,
                  .taken = NEVER};
    if (given)
        return CORE_OK;
    live = core__program_grow(&p->live, &p->nlive, sizeof *live);
    if (!live) {
        b->storage = NULL;
        return no_memory();
    }
    *live = *out_buffer;
    core__storage_retain(tensor->storage);
    return CORE_OK;
}

/* Forgets storages to which nothing else refers. */
static void drop_unused_buffers(preparing *p, bool all)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < p->nlive; i++) {
        buffer *b = &p->buffers[p->live[i]];

        if (!all && atomic_load(&b->storage->references) > 1) {
            p->live[kept++] = p->live[i];
            continue;
        }
        core__storage_release(b->storage);
        b->storage = NULL;
    }
    p->nlive = kept;
}

static void use_buffer(preparing *p, uint32_t index)
{
    buffer *b = &p->buffers[index];

    if (b->first == NEVER)
        b->first = p->to->nsteps;
    b->last = p->to->nsteps;
}

/* Finds a value of a node by its tensor, and then by its storage. */
typedef struct search {
    const preparing *p;
    const core_tensor *tensor;
    uint32_t exact, on_storage;
    bool ambiguous;
} search;

static void search_value(void *context, uint32_t value)
{
    search *s = context;
    const core_tensor *tensor = s->p->run.tensors[value];
    uint32_t found = s->p->value_buffers[value];

    if (!tensor || found == NEVER)
        return;
    if (tensor == s->tensor) {
        s->exact = found;
    } else if (tensor->storage == s->tensor->storage) {
        s->ambiguous |= s->on_storage != NEVER && s->on_storage != found;
        s->on_storage = found;
    }
}

static uint32_t find_live(const preparing *p, const core_storage *storage)
{
    for (uint32_t i = p->nlive; i-- > 0;)
        if (p->buffers[p->live[i]].storage == storage)
            return p->live[i];
    return NEVER;
}

/* The buffer of a tensor that a node uses; one of its own if its storage is
 * new. */
static core_status buffer_of(preparing *p, const core__program_node *node,
                             const core_tensor *tensor, uint32_t *out_buffer)
{
    search s = {p, tensor, NEVER, NEVER, false};

    if (tensor == p->target) {
        *out_buffer = p->target_buffer;
        return CORE_OK;
    }
    if (node)
        core__node_each_value(node, search_value, &s);
    *out_buffer = s.exact;
    if (*out_buffer == NEVER)
        *out_buffer = find_live(p, tensor->storage);
    if (*out_buffer == NEVER && s.ambiguous)
        return refuse(p, "inputs share memory");
    if (*out_buffer == NEVER)
        *out_buffer = s.on_storage;
    return *out_buffer == NEVER ? add_buffer(p, CORE__SOURCE_ARENA,
                                             CORE__NO_VALUE, tensor, out_buffer)
                                : CORE_OK;
}

static uint64_t distance_of(const preparing *p, uint32_t buffer,
                            core_memory memory)
{
    return memory.offset - p->buffers[buffer].start.offset;
}

/* ------------------------------------------------------------- launches -- */

static core_status add_place(preparing *p, const core_memory *at,
                             uint32_t buffer)
{
    core__place *place =
        core__program_grow(&p->to->places, &p->to->nplaces, sizeof *place);

    if (!place)
        return no_memory();
    *place = (core__place){(core_memory *)(uintptr_t)at, buffer,
                           distance_of(p, buffer, *at)};
    return CORE_OK;
}

/* A tensor with the layout of another, to be put on the storage of a buffer. */
static core_status add_tensor(preparing *p, const core_tensor *like,
                              uint32_t buffer, core__operand_tensor **out)
{
    size_t dims = 2 * (size_t)like->ndim * sizeof(int64_t);
    core__operand_tensor *tensor = core__alloc_zero(sizeof *tensor + dims);
    core__operand_tensor **slot;

    *out = tensor;
    if (!tensor)
        return core__error_memory(sizeof *tensor + dims);
    slot = core__program_grow(&p->to->tensors, &p->to->ntensors, sizeof *slot);
    if (!slot) {
        core__free(tensor);
        return no_memory();
    }
    *slot = tensor;
    atomic_init(&tensor->tensor.references, 1);
    tensor->tensor.kind = like->kind;
    tensor->tensor.flags =
        like->flags & (CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE);
    tensor->tensor.keys = p->device->keys | CORE__KEYS_TENSOR;
    tensor->tensor.device = p->device;
    tensor->tensor.numel = like->numel;
    tensor->tensor.sizes = (int64_t *)(void *)(tensor + 1);
    tensor->tensor.strides = tensor->tensor.sizes + like->ndim;
    if (dims)
        memcpy(tensor->tensor.sizes, like->sizes, dims);
    tensor->source = buffer;
    tensor->distance = distance_of(p, buffer, core__tensor_memory(like));
    return CORE_OK;
}

static core_status add_change(preparing *p, core__operand_tensor *tensor)
{
    change *c = core__program_grow(&p->changes, &p->nchanges, sizeof *c);

    if (!c)
        return no_memory();
    *c = (change){p->to->nsteps, tensor};
    return CORE_OK;
}

static core__operand_tensor *operand_of(core_tensor *tensor)
{
    return (core__operand_tensor *)(void *)tensor; /* its first member */
}

/* The operands of a loop are the tensors of the call, in this order. */
static core_status take_loop(preparing *p, core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);
    uint32_t at = 0;

    for (uint32_t k = 0; k < launch->loop->noperands; k++) {
        const core_operand *operand = &launch->loop->operands[k];

        if (operand->flags & CORE_OPERAND_IMMEDIATE)
            continue;
        if (at == launch->run->ntensors)
            return refuse(p, "a kernel has more operands than tensors");
        CORE_TRY(
            add_place(p, &operand->memory, operand_of(tensors[at])->source));
        if (operand->flags & CORE_OPERAND_OUTPUT)
            CORE_TRY(add_change(p, operand_of(tensors[at])));
        at++;
    }
    return CORE_OK;
}

static core_status take_view(preparing *p, core__logged_launch *launch,
                             const core_view *given, uint32_t *at)
{
    core_view *view = (core_view *)(uintptr_t)given;
    core_tensor *tensor;

    if (*at == launch->run->ntensors)
        return refuse(p, "a kernel has more views than tensors");
    tensor = core__logged_tensors(launch)[(*at)++];
    view->sizes = tensor->sizes;
    view->strides = tensor->strides;
    return add_place(p, &view->memory, operand_of(tensor)->source);
}

/* Views are those of the arguments, then of the results. */
static core_status take_views(preparing *p, core__logged_launch *launch)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < launch->nargs; i++) {
        const core_value *value = &launch->args[i];

        if (value->tag == CORE_VALUE_VIEW)
            CORE_TRY(take_view(p, launch, value->u.view, &at));
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_VIEW_LIST && k < value->count; k++)
            if (value->u.views[k])
                CORE_TRY(take_view(p, launch, value->u.views[k], &at));
    }
    for (uint32_t i = 0; i < launch->nresults; i++) {
        if (launch->results[i].tag != CORE_VALUE_VIEW)
            continue;
        CORE_TRY(take_view(p, launch, launch->results[i].u.view, &at));
        CORE_TRY(
            add_change(p, operand_of(core__logged_tensors(launch)[at - 1])));
    }
    return CORE_OK;
}

/* The operand of a loop that is an argument's number; NULL: it is none. */
static core_operand *number_operand(const core__logged_launch *launch,
                                    const core__program_node *node,
                                    uint32_t argument)
{
    const core__operator_data *data = node->op->data;
    uint32_t at = launch->loop ? launch->loop->noutputs : 0;

    for (uint32_t k = 0; launch->loop && k < data->operands; k++) {
        if (data->operand[k] == argument)
            return (core_operand *)(uintptr_t)&launch->loop->operands[at];
        at += node->args[data->operand[k]].tag != CORE_VALUE_NONE;
    }
    return NULL;
}

/* Numbers of each run are arguments of the kernel at the same positions, and
 * operands. */
static core_status note_numbers(preparing *p, const core__program_node *node,
                                const core__logged_launch *launch)
{
    for (uint32_t i = 0; node && i < node->nargs; i++) {
        core__number_place *place;
        core_operand *operand;

        if (node->args[i].tag != CORE__ARGUMENT_NUMBER ||
            launch->run->op != node->op)
            continue;
        operand = number_operand(launch, node, i);
        if (launch->kernel->supports || i >= launch->nargs ||
            (operand && !(operand->flags & CORE_OPERAND_IMMEDIATE)))
            return refuse(p, "a kernel depends on a number of each run");
        place = core__program_grow(&p->to->number_places,
                                   &p->to->nnumber_places, sizeof *place);
        if (!place)
            return no_memory();
        *place = (core__number_place){(core_value *)(uintptr_t)&launch->args[i],
                                      operand, (uint32_t)node->args[i].u.i};
    }
    return CORE_OK;
}

/* Kernels that write some of their arguments. */
static core_status note_written(preparing *p, const core__program_node *node,
                                core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);

    for (uint32_t v = 0; node && node->written && v < node->nvalues; v++)
        for (uint32_t i = 0; i < launch->run->ntensors; i++)
            if (operand_of(tensors[i])->source ==
                p->value_buffers[node->first + v])
                CORE_TRY(add_change(p, operand_of(tensors[i])));
    return CORE_OK;
}

/* The guards know whether inputs are aligned to this, and gradients that a
 * backward program gets are copied if they are not (compiled_node.c). */
enum { INPUT_ALIGNMENT = CORE__INPUT_ALIGNMENT };

static bool is_aligned(const preparing *p, const core_kernel *kernel,
                       uint32_t index)
{
    const buffer *b = &p->buffers[index];
    uint32_t required = 1u << ((kernel->demands & CORE_REQUIRE_ALIGNMENT) >>
                               CORE_REQUIRE_ALIGNMENT_SHIFT);
    uint64_t address = (uintptr_t)b->start.handle + b->start.offset;

    if (b->kind == CORE__SOURCE_ARENA)
        return required <= CORE__PLAN_ALIGNMENT;
    return required == 1 ||
           (required <= INPUT_ALIGNMENT && address % INPUT_ALIGNMENT == 0);
}

/* Replaces the tensors of the call that was logged. */
static core_status take_tensors(preparing *p, const core__program_node *node,
                                core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);
    uint32_t first = p->to->ntensors, found;
    core__operand_tensor *tensor;

    for (uint32_t i = 0; i < launch->run->ntensors; i++) {
        CORE_TRY(buffer_of(p, node, tensors[i], &found));
        if (!is_aligned(p, launch->kernel, found))
            return refuse(p, "a kernel requires aligned operands");
        CORE_TRY(add_tensor(p, tensors[i], found, &tensor));
        use_buffer(p, found);
    }
    core__logged_launch_release(launch);
    for (uint32_t i = 0; i < launch->run->ntensors; i++)
        tensors[i] = &p->to->tensors[first + i]->tensor;
    return CORE_OK;
}

static core_status take_operands(preparing *p, const core__program_node *node,
                                 core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);

    CORE_TRY(take_tensors(p, node, launch));
    for (uint32_t i = 0; i < launch->nargs; i++)
        if (launch->args[i].tag == CORE_VALUE_TENSOR) /* only its presence */
            ((core_value *)(uintptr_t)launch->args)[i].u.tensor = tensors[0];
    CORE_TRY(launch->loop ? take_loop(p, launch) : take_views(p, launch));
    CORE_TRY(note_numbers(p, node, launch));
    return note_written(p, node, launch);
}

static core_status add_step(preparing *p, core__step_kind kind, uint32_t index,
                            core__logged_launch *launch)
{
    core__step *step =
        core__program_grow(&p->to->steps, &p->to->nsteps, sizeof *step);

    if (!step)
        return no_memory();
    *step =
        (core__step){.kind = (uint8_t)kind, .index = index, .launch = launch};
    return CORE_OK;
}

/* Makes steps of the launches of a node, or (NULL) of a copy. */
static core_status take_log(preparing *p, const core__program_node *node)
{
    core_status status = CORE_OK;

    while (status == CORE_OK && p->log.first) {
        core__logged_launch *launch = p->log.first;

        status = take_operands(p, node, launch);
        if (status == CORE_OK)
            status = add_step(p, CORE__STEP_LAUNCH,
                              node ? p->run.node : CORE__NO_VALUE, launch);
        if (status != CORE_OK)
            break;
        p->log.first = launch->next;
        p->to->launches++;
    }
    if (!p->log.first)
        p->log.last = NULL;
    return status;
}

/* ---------------------------------------------------------------- nodes -- */

static core_status log_call(core__run *r, core_operator *op,
                            const core_value *args, uint32_t nargs,
                            core_value *results, uint32_t nresults)
{
    preparing *p = (preparing *)(void *)r;

    return core__launch_log_call(&p->log, op, p->device, args, nargs, results,
                                 nresults);
}

static core_status log_copy(core__run *r, core_tensor *to, core_tensor *from)
{
    return core__launch_log_copy(&((preparing *)(void *)r)->log, to, from);
}

/* The buffer has one reference to the storage, and the tensor the other. */
static bool log_owns(const core__run *r, uint32_t value)
{
    const preparing *p = (const preparing *)(const void *)r;
    uint32_t found = p->value_buffers[value];

    return found != NEVER && p->buffers[found].kind == CORE__SOURCE_ARENA &&
           !p->buffers[found].seen &&
           atomic_load(&r->tensors[value]->storage->references) == 2;
}

static const core__run_steps log_steps = {
    .call = log_call,
    .copy = log_copy,
    .owns = log_owns,
};

static void release_values(preparing *p, const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nvalues; i++) {
        core__tensor_release(p->run.tensors[node->first + i]);
        p->run.tensors[node->first + i] = NULL;
    }
}

/* Sets the buffers of the values of a node. */
static core_status set_buffers(preparing *p, const core__program_node *node,
                               core__source_kind kind)
{
    for (uint32_t i = 0; i < node->nvalues; i++) {
        uint32_t value = node->first + i, found;
        const core_tensor *tensor = p->run.tensors[value];

        if (!tensor)
            continue;
        found = find_live(p, tensor->storage);
        if (found == NEVER)
            CORE_TRY(add_buffer(p, kind, value, tensor, &found));
        p->buffers[found].index = value;
        p->value_buffers[value] = found;
    }
    return CORE_OK;
}

static uint32_t count_numbers(const core__program_node *node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->nargs; i++)
        count += node->args[i].tag == CORE__ARGUMENT_NUMBER;
    return count;
}

static core_status prepare_kernel(preparing *p, const core__program_node *node,
                                  const char **out_reason)
{
    uint32_t before = p->to->nnumber_places;
    core_status status;

    *out_reason = NULL;
    p->run.steps = &log_steps;
    status = core__run_node(&p->run, node);
    p->run.steps = NULL;
    if (status != CORE_OK) {
        core__launch_log_clear(&p->log);
        release_values(p, node);
        if (status == CORE_ERROR_OUT_OF_MEMORY)
            return status;
        *out_reason = p->log.refusal ? p->log.refusal : "its call fails";
        core_error_clear();
        return CORE_OK;
    }
    CORE_TRY(set_buffers(p, node, CORE__SOURCE_ARENA));
    CORE_TRY(take_log(p, node));
    return p->to->nnumber_places - before < count_numbers(node)
               ? refuse(
                     p,
                     "a kernel does not take a number that is read at each run")
               : CORE_OK;
}

/* A view is made of the stand-in. */
static core_status prepare_view(preparing *p, const core__program_node *node)
{
    uint32_t base = node->args[0].tag == CORE_VALUE_TENSOR
                        ? node->args[0].u.value
                        : CORE__NO_VALUE;

    if (node->op->registrations || base == CORE__NO_VALUE)
        return refuse(p, "a function is registered for a view");
    CORE_TRY(core__run_node(&p->run, node));
    for (uint32_t i = 0; i < node->nvalues; i++) {
        const core_tensor *tensor = p->run.tensors[node->first + i];

        if (!tensor)
            continue;
        if (tensor->storage != p->run.tensors[base]->storage)
            return refuse(p, "a view is a copy");
        p->value_buffers[node->first + i] = p->value_buffers[base];
    }
    return CORE_OK;
}

static void use_value(void *context, uint32_t value)
{
    preparing *p = context;

    if (p->value_buffers[value] == NEVER)
        return;
    use_buffer(p, p->value_buffers[value]);
    p->buffers[p->value_buffers[value]].seen = true;
}

/* A node that is called as an operator in each call. */
static core_status leave_node(preparing *p, const core__program_node *node,
                              const char *reason)
{
    CORE_TRY(core__operator_reason_count(
        &p->to->unprepared, &p->to->nunprepared, node->name, reason));
    core__node_each_value(node, use_value, p);
    for (uint32_t i = 0; i < node->nvalues; i++)
        CORE_TRY(core__run_new(&p->run,
                               &p->run.program->values[node->first + i].type,
                               &p->run.tensors[node->first + i]));
    CORE_TRY(set_buffers(p, node, CORE__SOURCE_NODE));
    for (uint32_t i = 0; i < node->nvalues; i++)
        use_value(p, node->first + i);
    p->to->operators = true;
    return add_step(p, CORE__STEP_NODE, p->run.node, NULL);
}

/* True for operators whose kernels get numbers as they are, and check none of
 * those that change from run to run. */
static bool passes_numbers(const preparing *p, const core__program_node *node)
{
    const core_operator *op = node->op;

    if (!op || op->flags & CORE__OP_CUSTOM || !node->nvalues)
        return false;
    if (op->family == CORE__FAMILY_ELEMENTWISE)
        return core__dtype_is_floating(
            p->run.program->values[node->first].type.dtype);
    return op->id == CORE_OP_FUSED_SGD_STEP ||
           op->id == CORE_OP_FUSED_ADAM_STEP;
}

static core_status prepare_node(preparing *p, const core__program_node *node)
{
    const char *reason = "it is an operator of a program or plugin";
    bool numbers = count_numbers(node) && !passes_numbers(p, node);
    core_status status = CORE_OK;

    if (node->op && core__operator_is_view(node->op)) {
        status = prepare_view(p, node);
        p->to->nodes++;
    } else {
        if (node->regions)
            reason = "it runs a part of the program that data choose";
        else if (numbers)
            reason = "it reads a number at each run";
        else if (node->op)
            status = prepare_kernel(p, node, &reason);
        if (status == CORE_OK && reason)
            status = leave_node(p, node, reason);
        else
            p->to->nodes++;
    }
    core__run_drop(&p->run, node);
    drop_unused_buffers(p, false);
    return status;
}

/* The kernel of a group: only the values that something else reads have
 * tensors. */
static core_status prepare_launch(preparing *p, const core__fused_group *group)
{
    const core_program *program = p->run.program;
    const uint32_t *nodes = p->order + group->first;
    core__program_argument operands = {
        CORE_VALUE_TENSOR_LIST, group->noperands, {.values = group->values}};
    core__program_node reader = {.nargs = 1, .args = &operands};
    core__logged_launch *launch;
    core_status status;

    for (uint32_t i = 0; i < group->noutputs; i++)
        CORE_TRY(core__run_new(&p->run, &program->values[group->values[i]].type,
                               &p->run.tensors[group->values[i]]));
    for (uint32_t i = 0; i < group->count; i++)
        CORE_TRY(set_buffers(p, &program->nodes[nodes[i]], CORE__SOURCE_ARENA));
    CORE_TRY(core__fused_launch_new(program, p->to->fusion, group,
                                    p->run.tensors, &launch));
    status = take_operands(p, &reader, launch);
    if (status == CORE_OK)
        status = add_step(p, CORE__STEP_FUSED, nodes[0], launch);
    if (status != CORE_OK)
        core__logged_launch_free(launch);
    return status;
}

static core_status prepare_group(preparing *p, const core__fused_group *group)
{
    CORE_TRY(prepare_launch(p, group));
    p->to->nodes += group->count;
    p->to->launches++;
    for (uint32_t i = 0; i < group->count; i++) {
        p->run.node = p->order[group->first + i];
        core__run_drop(&p->run, &p->run.program->nodes[p->run.node]);
    }
    drop_unused_buffers(p, false);
    return CORE_OK;
}

static core_status prepare_nodes(preparing *p)
{
    const core_program *program = p->run.program;
    const core__fusion *fusion = p->to->fusion;
    uint32_t g = 0;

    for (uint32_t i = 0; i < program->nnodes; i++) {
        while (g < fusion->ngroups && fusion->groups[g].first < i)
            g++;
        if (g < fusion->ngroups && fusion->groups[g].first == i &&
            fusion->groups[g].kernel) {
            CORE_TRY(prepare_group(p, &fusion->groups[g]));
            i += fusion->groups[g].count - 1;
            continue;
        }
        p->run.node = p->order[i];
        CORE_TRY(prepare_node(p, &program->nodes[p->run.node]));
    }
    return CORE_OK;
}

/* Operands are found by their tensors, so each value needs its own: in another
 * call, two inputs may not be the same tensor. */
static core_status separate(preparing *p, uint32_t value, uint32_t *sources,
                            uint32_t *count)
{
    core_tensor **tensor = &p->run.tensors[value], *copy;

    if (value == CORE__NO_VALUE)
        return CORE_OK;
    for (uint32_t i = 0; i < *count; i++) {
        if (p->run.tensors[sources[i]] != *tensor)
            continue;
        CORE_TRY(core__tensor_shallow_copy(*tensor, &copy));
        core__tensor_release(*tensor);
        *tensor = copy;
        break;
    }
    sources[(*count)++] = value;
    return CORE_OK;
}

static core_status separate_sources(preparing *p)
{
    const core_program *program = p->run.program;
    size_t size = (program->ninputs + program->nhidden) * sizeof(uint32_t) + 1;
    uint32_t *sources = core__alloc(size), count = 0;
    core_status status = sources ? CORE_OK : core__error_memory(size);

    for (uint32_t i = 0; i < program->ninputs && status == CORE_OK; i++)
        status = separate(p, program->inputs[i].value, sources, &count);
    for (uint32_t i = 0; i < program->nhidden && status == CORE_OK; i++)
        status = separate(p, program->hidden[i].value, sources, &count);
    core__free(sources);
    return status;
}

static core_status prepare_sources(preparing *p)
{
    const core_program *program = p->run.program;

    CORE_TRY(core__run_set_sources(&p->run));
    CORE_TRY(separate_sources(p));
    for (uint32_t i = 0; i < program->ninputs; i++) {
        uint32_t value = program->inputs[i].value;

        if (p->run.inputs[i]->device != p->device)
            return refuse(p, "inputs are on several devices");
        if (value != CORE__NO_VALUE)
            CORE_TRY(add_buffer(p, CORE__SOURCE_INPUT, i, p->run.inputs[i],
                                &p->value_buffers[value]));
    }
    for (uint32_t i = 0; i < program->nhidden; i++) {
        core_tensor *tensor = program->hidden[i].tensor;

        if (tensor->device != p->device)
            return refuse(p, "inputs are on several devices");
        CORE_TRY(add_buffer(p, CORE__SOURCE_HIDDEN, i, tensor,
                            &p->value_buffers[program->hidden[i].value]));
    }
    return CORE_OK;
}

/* -------------------------------------------------------------- outputs -- */

/* The memory of a value that the caller receives is new in each call. */
static void prepare_output(preparing *p, const core__program_output *output)
{
    buffer *b;

    if (output->tensor || output->kind != CORE__OUTPUT_VALUE)
        return;
    b = &p->buffers[p->value_buffers[output->index]];
    if (b->kind == CORE__SOURCE_ARENA)
        b->kind = CORE__SOURCE_OUTPUT;
    if (b->kind != CORE__SOURCE_OUTPUT || b->index != output->index)
        p->to->operators = true;
}

/* --------------------------------------------------------------- writes -- */

/* The buffer of a target, and its distance from the buffer's start. */
static uint32_t target_of(const preparing *p, const core__program_write *write)
{
    const core_program *program = p->run.program;
    uint32_t input = write->index;

    if (write->hidden)
        return p->value_buffers[program->hidden[write->index].value];
    if (program->inputs[input].base != CORE__NO_VALUE)
        input = program->inputs[input].base;
    return p->value_buffers[program->inputs[input].value];
}

static bool same_layout(const core_tensor *a, const core_tensor *b)
{
    if (a->kind != b->kind)
        return false;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->sizes[i] != b->sizes[i] ||
            (a->sizes[i] > 1 && a->strides[i] != b->strides[i]))
            return false;
    return true;
}

/* True if nothing but the buffer's own values shows the memory of a target. */
static bool is_alone(const preparing *p, const core_tensor *target,
                     uint32_t buffer)
{
    const core_program *program = p->run.program;
    uint32_t writes = 0;

    for (uint32_t i = 0; i < program->ninputs; i++) {
        uint32_t base = program->inputs[i].base;
        uint32_t root = base == CORE__NO_VALUE ? i : base;

        if (p->value_buffers[program->inputs[root].value] != buffer &&
            core__layout_overlap(p->run.inputs[i], target) !=
                CORE__OVERLAP_NONE)
            return false;
    }
    for (uint32_t i = 0; i < program->nhidden; i++)
        if (p->value_buffers[program->hidden[i].value] != buffer &&
            core__layout_overlap(program->hidden[i].tensor, target) !=
                CORE__OVERLAP_NONE)
            return false;
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];

        if (p->value_buffers[write->value] == buffer)
            return false;
        writes += core__layout_overlap(core__run_target(&p->run, write),
                                       target) != CORE__OVERLAP_NONE;
    }
    return writes == 1;
}

static uint32_t root_of(const preparing *p, uint32_t buffer)
{
    while (p->buffers[buffer].into != NEVER)
        buffer = p->buffers[buffer].into;
    return buffer;
}

/* True if a launch may have the target in the place of its output `buffer`: it
 * is a loop, and reads exactly the elements of the target that it writes. */
static bool in_place(const preparing *p, core__logged_launch *launch,
                     const core_tensor *target, uint32_t buffer, uint32_t from,
                     uint64_t distance)
{
    core_tensor **tensors = core__logged_tensors(launch);

    if (!launch->loop || launch->loop->reduced)
        return false;
    for (uint32_t i = 0; i < launch->run->ntensors; i++) {
        const core__operand_tensor *tensor = operand_of(tensors[i]);

        if (tensor->source == buffer &&
            (tensor->distance != 0 || !same_layout(&tensor->tensor, target)))
            return false;
        if (tensor->source != buffer && root_of(p, tensor->source) == from &&
            (tensor->distance != distance ||
             !same_layout(&tensor->tensor, target)))
            return false;
    }
    return true;
}

/* Puts the value in the memory of its target from the start, if nothing reads
 * the old content later. */
static bool write_in_place(preparing *p, const core__program_write *write)
{
    const core_tensor *target = core__run_target(&p->run, write);
    const core_tensor *value = p->run.tensors[write->value];
    uint32_t from = target_of(p, write);
    uint32_t index = p->value_buffers[write->value];
    uint64_t distance = distance_of(p, from, core__tensor_memory(target));
    buffer *b = &p->buffers[index];
    const buffer *old = &p->buffers[from];

    if (b->kind != CORE__SOURCE_ARENA || b->into != NEVER ||
        b->index != write->value || b->first == NEVER ||
        !(target->flags & CORE__TENSOR_DENSE) || !same_layout(value, target) ||
        value->offset != 0 || b->seen || !is_alone(p, target, from))
        return false;
    if (old->last != NEVER && old->last >= b->first &&
        (old->last > b->first || !in_place(p, p->to->steps[b->first].launch,
                                           target, index, from, distance)))
        return false;
    b->into = from;
    b->distance = distance;
    return true;
}

static core_status log_write(preparing *p, uint32_t i)
{
    const core__program_write *write = &p->run.program->writes[i];
    core_tensor *target = core__run_target(&p->run, write);
    core_tensor *value = p->run.tensors[write->value];
    core__program_argument argument = {
        CORE_VALUE_TENSOR, 0, {.value = write->value}};
    core__program_node reader = {.nargs = 1, .args = &argument};
    core_status status;

    if (target->flags & (CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY |
                         CORE__TENSOR_TRACED)) {
        if (p->copied)
            return refuse(p, "values of other targets are written");
        use_value(p, write->value);
        p->to->operators = true;
        return add_step(p, CORE__STEP_WRITE, i, NULL);
    }
    status = core__launch_log_copy(&p->log, target, value);
    if (status != CORE_OK)
        return refuse(p, p->log.refusal ? p->log.refusal : "a write fails");
    p->target = target;
    p->target_buffer = target_of(p, write);
    status = take_log(p, &reader);
    p->target = NULL;
    return status;
}

/* A value in the memory of another target is copied before any is written. */
static core_status copy_before_writes(preparing *p, uint32_t value)
{
    core_tensor *before = p->run.tensors[value], *copy;
    core__program_argument argument = {CORE_VALUE_TENSOR, 0, {.value = value}};
    core__program_node reader = {.nargs = 1, .args = &argument};
    uint32_t found = NEVER;

    if (!core__run_is_target(&p->run, before))
        return CORE_OK;
    p->run.steps = &log_steps;
    CORE_TRY(core__run_copy(&p->run, &p->run.program->values[value].type,
                            before, &copy));
    p->run.steps = NULL;
    CORE_TRY(take_log(p, &reader));
    CORE_TRY(buffer_of(p, NULL, copy, &found));
    core__tensor_release(before);
    p->run.tensors[value] = copy;
    p->value_buffers[value] = found;
    p->copied = true;
    return CORE_OK;
}

static core_status prepare_writes(preparing *p)
{
    const core_program *program = p->run.program;

    p->run.node = CORE__NO_VALUE;
    for (uint32_t i = 0; i < program->nwrites; i++)
        CORE_TRY(copy_before_writes(p, program->writes[i].value));
    for (uint32_t i = 0; i < program->nwrites; i++)
        if (!write_in_place(p, &program->writes[i]))
            CORE_TRY(log_write(p, i));
    return CORE_OK;
}

/* ------------------------------------------------------------ finishing -- */

static bool is_intermediate(const buffer *b)
{
    return b->kind == CORE__SOURCE_ARENA && !b->seen && b->first != NEVER;
}

/* Puts `from`, which nothing uses after the step, and `to`, whose use begins
 * there, in one place. */
static void join(preparing *p, uint32_t from, uint32_t to, uint32_t step)
{
    buffer *a = &p->buffers[from], *b = &p->buffers[to];

    a->taken = step;
    if (b->kind == CORE__SOURCE_ARENA) {
        b->into = from;
        a->last = b->last;
    } else { /* the output is created earlier */
        a->into = to;
        b->first = a->first;
    }
}

/* Puts the output of a loop in the place of an input that nothing reads later,
 * if it has the same layout: so a chain of them needs one place. */
static void reuse_input(preparing *p, uint32_t step, uint32_t output)
{
    core__logged_launch *launch = p->to->steps[step].launch;
    core_tensor **tensors = core__logged_tensors(launch);
    buffer *b = &p->buffers[output];
    const core__operand_tensor *written = NULL;

    for (uint32_t i = 0; i < launch->run->ntensors; i++)
        if (operand_of(tensors[i])->source == output)
            written = operand_of(tensors[i]);
    for (uint32_t i = 0; written && i < launch->run->ntensors; i++) {
        const core__operand_tensor *tensor = operand_of(tensors[i]);
        uint32_t root = root_of(p, tensor->source);
        buffer *a = &p->buffers[root];

        if (root == output || !is_intermediate(a) || a->last != step ||
            a->first == step || a->taken == step || a->size != b->size ||
            tensor->distance != 0 ||
            !same_layout(&tensor->tensor, &written->tensor) ||
            !in_place(p, launch, &written->tensor, output, root, 0))
            continue;
        join(p, root, output, step);
        return;
    }
}

static void reuse_inputs(preparing *p)
{
    for (uint32_t s = 0; s < p->to->nsteps; s++)
        for (uint32_t i = 0; i < p->nbuffers; i++) {
            const buffer *b = &p->buffers[i];

            if (b->first == s && b->into == NEVER && !b->seen &&
                (b->kind == CORE__SOURCE_ARENA ||
                 b->kind == CORE__SOURCE_OUTPUT) &&
                p->to->steps[s].launch)
                reuse_input(p, s, i);
        }
}

/* Of each buffer, what the searches for chains and epilogues need to know, and
 * back. */
static void show_memory(const preparing *p, core__row_memory *memory)
{
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const buffer *b = &p->buffers[i];
        core__row_memory *m = &memory[i];

        *m = (core__row_memory){.root = root_of(p, i),
                                .size = b->size,
                                .temporary = is_intermediate(b),
                                .first = b->first,
                                .last = b->last};
        for (; b->into != NEVER; b = &p->buffers[b->into])
            m->distance += b->distance;
    }
}

static core_status find_parts(preparing *p)
{
    size_t size = p->nbuffers * sizeof(core__row_memory) + 1;
    core__row_memory *memory = core__alloc(size);
    core_status status;

    if (!memory)
        return core__error_memory(size);
    show_memory(p, memory);
    status = core__row_blocks_find(p->to, memory, &p->to->rows);
    if (status == CORE_OK)
        status = core__epilogues_find(p->to, memory, &p->to->epilogues);
    for (uint32_t i = 0; i < p->nbuffers && status == CORE_OK; i++) {
        p->buffers[i].size = memory[i].size;
        p->buffers[i].first = memory[i].first;
        p->buffers[i].last = memory[i].last;
    }
    core__free(memory);
    return status;
}

static core_status plan_memory(preparing *p)
{
    core__planned_memory *all = core__alloc_zero(p->nbuffers * sizeof *all + 1);
    core_status status;

    if (!all)
        return core__error_memory(p->nbuffers * sizeof *all);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const buffer *b = &p->buffers[i];

        if (b->kind == CORE__SOURCE_ARENA && b->into == NEVER &&
            b->first != NEVER)
            all[i] =
                (core__planned_memory){b->size, b->first, b->last, .offset = 0};
    }
    status = core__memory_plan(all, p->nbuffers, &p->to->arena_size);
    if (p->to->arena_size == 0) /* for tensors without elements */
        p->to->arena_size = CORE__PLAN_ALIGNMENT;
    for (uint32_t i = 0; i < p->nbuffers; i++)
        p->buffers[i].offset = all[i].offset;
    core__free(all);
    return status;
}

/* Strides are compared as they are, also of dimensions with one element. */
static void describe_output(core__source *source,
                            const core__program_type *type)
{
    int64_t strides[CORE_MAX_NDIM];

    core__layout_contiguous(type->ndim, core__type_sizes(type), strides);
    source->row_major =
        type->ndim == 0 || memcmp(strides, core__type_strides(type),
                                  type->ndim * sizeof *strides) == 0;
    source->kind_of_tensor = core__tensor_kind(type->ndim, type->dtype);
    source->numel = 1;
    for (uint32_t i = 0; i < type->ndim; i++)
        source->numel *= core__type_sizes(type)[i];
}

static core_status make_sources(preparing *p)
{
    core__prepared *to = p->to;

    to->sources = core__alloc_zero((p->nbuffers + 1) * sizeof *to->sources);
    if (!to->sources)
        return no_memory();
    to->sources[to->nsources++].kind = CORE__SOURCE_ARENA;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        buffer *b = &p->buffers[i];

        if (b->kind == CORE__SOURCE_ARENA)
            continue;
        b->source = to->nsources++;
        to->sources[b->source].kind = b->kind;
        to->sources[b->source].index = b->index;
        if (b->kind == CORE__SOURCE_OUTPUT)
            describe_output(&to->sources[b->source],
                            &p->run.program->values[b->index].type);
    }
    return CORE_OK;
}

/* From a buffer to a source. */
static void resolve(const preparing *p, uint32_t *source, uint64_t *distance)
{
    const buffer *b = &p->buffers[*source];

    for (; b->into != NEVER; b = &p->buffers[b->into])
        *distance += b->distance;
    *source = b->kind == CORE__SOURCE_ARENA ? 0 : b->source;
    if (*source == 0)
        *distance += b->offset;
}

/* Sorts the places and tensors by source. */
static core_status sort_places(preparing *p)
{
    core__prepared *to = p->to;
    core__place *places = core__alloc(to->nplaces * sizeof *places + 1);
    core__operand_tensor **tensors =
        core__alloc(to->ntensors * sizeof *tensors + 1);
    uint32_t nplaces = 0, ntensors = 0;

    if (!places || !tensors) {
        core__free(places);
        core__free(tensors);
        return no_memory();
    }
    for (uint32_t i = 0; i < to->nplaces; i++) {
        resolve(p, &to->places[i].source, &to->places[i].distance);
        to->sources[to->places[i].source].nplaces++;
    }
    for (uint32_t i = 0; i < to->ntensors; i++) {
        resolve(p, &to->tensors[i]->source, &to->tensors[i]->distance);
        to->sources[to->tensors[i]->source].ntensors++;
    }
    for (uint32_t i = 0; i < to->nsources; i++) {
        core__source *source = &to->sources[i];

        source->places = nplaces;
        source->tensors = ntensors;
        nplaces += source->nplaces;
        ntensors += source->ntensors;
        source->nplaces = source->ntensors = 0;
    }
    for (uint32_t i = 0; i < to->nplaces; i++) {
        core__source *source = &to->sources[to->places[i].source];

        places[source->places + source->nplaces++] = to->places[i];
    }
    for (uint32_t i = 0; i < to->ntensors; i++) {
        core__source *source = &to->sources[to->tensors[i]->source];

        tensors[source->tensors + source->ntensors++] = to->tensors[i];
    }
    core__free(to->places);
    core__free(to->tensors);
    to->places = places;
    to->tensors = tensors;
    return CORE_OK;
}

/* Versions count only changes of what the caller has before the call. */
static core_status set_changes(preparing *p)
{
    core__prepared *to = p->to;
    uint32_t *writers = core__alloc_zero(to->nsources * sizeof *writers);

    to->changes = core__alloc(p->nchanges * sizeof *to->changes + 1);
    if (!to->changes || !writers) {
        core__free(writers);
        return no_memory();
    }
    for (uint32_t i = 0; i < p->nchanges; i++) {
        const change *c = &p->changes[i];
        core__step *step = &to->steps[c->step];
        core__source *source = &to->sources[c->tensor->source];
        uint8_t kind = source->kind;

        if (kind == CORE__SOURCE_OUTPUT && writers[c->tensor->source]++ > 0)
            source->rewritten = to->rewrites = true;
        if (kind != CORE__SOURCE_INPUT && kind != CORE__SOURCE_HIDDEN)
            continue;
        if (step->nchanges++ == 0)
            step->changes = to->nchanges;
        to->changes[to->nchanges++] = &c->tensor->tensor;
    }
    core__free(writers);
    return CORE_OK;
}

/* Outputs are created before the first step that uses them. */
static core_status set_creations(preparing *p)
{
    core__prepared *to = p->to;

    to->creations = core__alloc(to->nsources * sizeof *to->creations + 1);
    if (!to->creations)
        return no_memory();
    for (uint32_t s = 0; s <= to->nsteps; s++) {
        uint32_t before = to->ncreations;

        for (uint32_t i = 0; i < p->nbuffers; i++) {
            const buffer *b = &p->buffers[i];

            if (b->kind == CORE__SOURCE_OUTPUT &&
                b->first == (s < to->nsteps ? s : NEVER))
                to->creations[to->ncreations++] = b->source;
        }
        if (s < to->nsteps) {
            to->steps[s].creations = before;
            to->steps[s].ncreations = to->ncreations - before;
        } else {
            to->unused = before;
        }
    }
    return CORE_OK;
}

/* Values in the memory of nodes that are called as operators are released after
 * the last step that uses it. */
static core_status set_releases(preparing *p)
{
    const core_program *program = p->run.program;
    core__prepared *to = p->to;

    to->releases = core__alloc(program->nvalues * sizeof *to->releases + 1);
    if (!to->releases)
        return no_memory();
    for (uint32_t s = 0; s < to->nsteps && to->operators; s++) {
        core__step *step = &to->steps[s];

        step->releases = to->nreleases;
        for (uint32_t v = 0; v < program->nvalues; v++) {
            uint32_t b = p->value_buffers[v];

            if (b != NEVER && p->buffers[b].kind == CORE__SOURCE_NODE &&
                p->buffers[b].last == s && !program->values[v].kept)
                to->releases[to->nreleases++] = v;
        }
        step->nreleases = to->nreleases - step->releases;
    }
    return CORE_OK;
}

/* What a call needs to know of each value, and which tensors it may hold. */
static core_status set_values(preparing *p)
{
    const core_program *program = p->run.program;
    core__prepared *to = p->to;
    size_t size = program->nvalues * sizeof(uint64_t) + 1;

    to->arena_offsets = core__alloc(size);
    to->value_sources = core__alloc(size);
    to->held = core__alloc(size);
    to->real = core__alloc_zero(size);
    if (!to->arena_offsets || !to->value_sources || !to->held || !to->real)
        return core__error_memory(size);
    for (uint32_t v = 0; v < program->nvalues; v++) {
        uint32_t index = p->value_buffers[v];
        const buffer *b = index == NEVER ? NULL : &p->buffers[index];
        bool whole = b && b->index == v && b->into == NEVER;

        to->arena_offsets[v] =
            whole && b->kind == CORE__SOURCE_ARENA ? b->offset : UINT64_MAX;
        to->value_sources[v] = whole && (b->kind == CORE__SOURCE_OUTPUT ||
                                         b->kind == CORE__SOURCE_NODE)
                                   ? b->source
                                   : CORE__NO_VALUE;
        if (to->operators || (whole && b->kind == CORE__SOURCE_OUTPUT))
            to->held[to->nheld++] = v;
    }
    return CORE_OK;
}

static core_status set_moves(preparing *p)
{
    const core_program *program = p->run.program;
    core__prepared *to = p->to;
    uint32_t moved = 0;

    to->moves = core__alloc_zero(program->noutputs + 1);
    if (!to->moves)
        return no_memory();
    for (uint32_t i = 0; i < program->noutputs && !to->operators; i++) {
        const core__program_output *output = &program->outputs[i];

        to->moves[i] = output->kind == CORE__OUTPUT_VALUE && !output->view &&
                       !output->tensor;
        for (uint32_t k = i + 1; k < program->noutputs; k++)
            if (program->outputs[k].kind == CORE__OUTPUT_VALUE &&
                program->outputs[k].index == output->index)
                to->moves[i] = false;
        moved += to->moves[i];
    }
    to->moves_all = !to->operators && moved == to->nheld;
    return CORE_OK;
}

/* A copy of a tensor to itself: of a target, for an operator that then changes
 * it, or of a result that nothing else reads. */
static bool copies_to_itself(const core__logged_launch *launch)
{
    const core_operand *operands = launch->loop ? launch->loop->operands : NULL;
    const core__kernel_call *run = launch->run;

    return run->op->id == CORE_OP_COPY_ && operands && run->ntensors == 2 &&
           operand_of(run->tensors[0])->source ==
               operand_of(run->tensors[1])->source &&
           operand_of(run->tensors[0])->distance ==
               operand_of(run->tensors[1])->distance &&
           same_layout(run->tensors[0], run->tensors[1]);
}

/* Steps are kept, so that their numbers hold. */
static void choose_steps(core__prepared *to)
{
    for (uint32_t i = 0; i < to->nsteps; i++) {
        core__step *step = &to->steps[i];

        if (step->kind != CORE__STEP_LAUNCH)
            continue;
        if (copies_to_itself(step->launch)) {
            step->kind = CORE__STEP_NOTHING;
            step->nchanges = 0;
            to->launches--;
        } else if (to->device->synchronous && !step->launch->kernel->prepare &&
                   !step->launch->random && !step->nchanges &&
                   !step->nreleases && !step->ncreations) {
            step->kind = CORE__STEP_DIRECT;
        }
    }
}

static core_status finish(preparing *p)
{
    reuse_inputs(p);
    CORE_TRY(find_parts(p));
    CORE_TRY(plan_memory(p));
    CORE_TRY(make_sources(p));
    CORE_TRY(sort_places(p));
    CORE_TRY(set_changes(p));
    CORE_TRY(set_creations(p));
    CORE_TRY(set_releases(p));
    CORE_TRY(set_values(p));
    CORE_TRY(set_moves(p));
    choose_steps(p->to);
    CORE_TRY(core__row_blocks_make_steps(p->to));
    return core__epilogues_make_steps(p->to);
}

/* ------------------------------------------------------------ preparing -- */

static void note_last(void *context, uint32_t value)
{
    preparing *p = context;

    p->last[value] = p->run.node;
}

static core_status prepare_all(preparing *p)
{
    core_program *program = p->run.program;

    for (uint32_t v = 0; v < program->nvalues; v++)
        p->value_buffers[v] = p->last[v] = NEVER;
    CORE_TRY(core__program_read_numbers(program, p->to->numbers));
    CORE_TRY(prepare_sources(p));
    if (!p->to->fusion)
        CORE_TRY(core__fusion_new(program, p->device, p->run.tensors,
                                  &p->to->fusion));
    p->to->waits = p->to->fusion->waits;
    p->order = p->to->fusion->order;
    for (uint32_t i = 0; i < program->nnodes; i++) {
        p->run.node = p->order[i];
        core__node_each_value(&program->nodes[p->run.node], note_last, p);
    }
    CORE_TRY(prepare_nodes(p));
    for (uint32_t i = 0; i < program->noutputs; i++)
        prepare_output(p, &program->outputs[i]);
    CORE_TRY(prepare_writes(p));
    if (p->to->launches == 0)
        return refuse(p, "no operator launches a kernel");
    return finish(p);
}

static core_status begin(core_program *program, preparing *p)
{
    core__thread *self = core__thread_self();
    core__prepared *to = core__alloc_zero(sizeof *to);
    size_t size =
        program->nvalues * (sizeof(core_tensor *) + 2 * sizeof(uint32_t));

    p->to = to;
    if (!to)
        return core__error_memory(sizeof *to);
    p->run.tensors = core__alloc_zero(size + 1);
    if (!p->run.tensors)
        return core__error_memory(size);
    to->numbers =
        core__alloc_zero((program->nnumbers + 1) * sizeof(core_value));
    if (!to->numbers)
        return no_memory();
    p->run.numbers = to->numbers;
    p->value_buffers = (uint32_t *)(void *)(p->run.tensors + program->nvalues);
    p->last = p->value_buffers + program->nvalues;
    p->run.last = p->last;
    to->program = program;
    to->device = p->device;
    to->impl = p->device->impl;
    /* Before anything is looked up, so that a change meanwhile is noticed. */
    to->registered = atomic_load(&core__registry_generation);
    to->generation = atomic_load(&p->device->generation);
    to->call_flags = self->call_flags;
    to->stream = core__stream_current_of(self, p->device)->id;
    return CORE_OK;
}

static core_status prepare(core_program *program, core_tensor *const *inputs,
                           core__fusion *fusion, core__prepared **out_prepared,
                           const char **out_reason)
{
    preparing p = {.run = {.program = program,
                           .inputs = inputs,
                           .devices = program->devices}};
    core_status status;

    *out_prepared = NULL;
    *out_reason = NULL;
    if (program->ndevices != 1) {
        *out_reason = program->ndevices ? "it is on several devices"
                                        : "it has no operators";
        return CORE_ERROR_UNSUPPORTED;
    }
    p.device = program->devices[0];
    status = begin(program, &p);
    if (status == CORE_OK && fusion)
        p.to->fusion = core__fusion_retain(fusion);
    if (status == CORE_OK)
        status = prepare_all(&p);
    for (uint32_t v = 0; p.run.tensors && v < program->nvalues; v++)
        core__tensor_release(p.run.tensors[v]);
    drop_unused_buffers(&p, true);
    core__launch_log_clear(&p.log);
    core__free(p.run.tensors);
    core__free(p.buffers);
    core__free(p.live);
    core__free(p.changes);
    if (status != CORE_OK) {
        core__prepared_free(p.to);
        *out_reason = p.reason ? p.reason : "its views cannot be made";
        return status;
    }
    *out_prepared = p.to;
    return CORE_OK;
}

/* Replaces calls that need much memory by those of a program that needs
 * less. */
static core_status reduce_memory(core_program *program,
                                 core_tensor *const *inputs,
                                 core__prepared **prepared)
{
    core__prepared *smaller = NULL;
    core_program *changed;
    const char *reason;
    core_status status;

    CORE_TRY(core__program_recompute(program, &changed));
    if (!changed)
        return CORE_OK;
    status = prepare(changed, inputs, NULL, &smaller, &reason);
    if (status != CORE_OK ||
        smaller->arena_size + smaller->arena_size / WORTH_IT >
            (*prepared)->arena_size) {
        core__prepared_free(smaller);
        core__program_recomputed_free(changed);
        return status == CORE_ERROR_UNSUPPORTED ? CORE_OK : status;
    }
    smaller->own = changed;
    core__prepared_free(*prepared);
    *prepared = smaller;
    return CORE_OK;
}

core_status core__prepare(core_program *program, core_tensor *const *inputs,
                          core__fusion *fusion, core__prepared **out_prepared,
                          const char **out_reason)
{
    core_status status =
        prepare(program, inputs, fusion, out_prepared, out_reason);

    if (status == CORE_OK && program->recomputes &&
        (*out_prepared)->arena_size > CORE__KEPT_ARENA)
        status = reduce_memory(program, inputs, out_prepared);
    if (status != CORE_OK) {
        core__prepared_free(*out_prepared);
        *out_prepared = NULL;
    }
    return status;
}

void core__prepared_free(core__prepared *prepared)
{
    if (!prepared)
        return;
    for (uint32_t i = 0; i < prepared->nsteps; i++)
        core__logged_launch_free(prepared->steps[i].launch);
    for (uint32_t i = 0; i < prepared->ntensors; i++)
        core__free(prepared->tensors[i]);
    core__row_blocks_free(&prepared->rows);
    core__epilogues_free(&prepared->epilogues);
    core__fusion_release(prepared->fusion);
    core__tensor_release(prepared->arena);
    core__free(prepared->sources);
    core__free(prepared->places);
    core__free(prepared->tensors);
    core__free(prepared->steps);
    core__free(prepared->changes);
    core__free(prepared->releases);
    core__free(prepared->creations);
    core__free(prepared->moves);
    core__free(prepared->held);
    core__free(prepared->arena_offsets);
    core__free(prepared->value_sources);
    core__free(prepared->real);
    core__free(prepared->numbers);
    core__free(prepared->number_places);
    core__free(prepared->unprepared);
    core__program_recomputed_free(prepared->own);
    core__free(prepared);
}
