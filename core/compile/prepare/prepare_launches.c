/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Notes the kernels that operators launch, and where their operands are. */

#include "compile/prepare/preparing.h"

#include "base/memory.h"

#include <string.h>

core_status core__prepare_add_buffer(core__preparing *p, core__source_kind kind,
                                     uint32_t index, const core_tensor *tensor,
                                     uint32_t *out_buffer)
{
    bool given = kind == CORE__SOURCE_INPUT || kind == CORE__SOURCE_HIDDEN;
    core__prepared_buffer *b =
        core__program_grow(&p->buffers, &p->nbuffers, sizeof *b);
    uint32_t *live;

    if (!b)
        return core__prepare_no_memory();
    *out_buffer = p->nbuffers - 1;
    *b = (core__prepared_buffer){.kind = (uint8_t)kind,
                                 .index = index,
                                 .storage = tensor->storage,
                                 .start = given ? core__tensor_memory(tensor)
                                                : tensor->storage->memory,
                                 .size = tensor->storage->size,
                                 .first = CORE__PREPARE_NEVER,
                                 .last = CORE__PREPARE_NEVER,
                                 .into = CORE__PREPARE_NEVER,
                                 .taken = CORE__PREPARE_NEVER};
    if (given)
        return CORE_OK;
    live = core__program_grow(&p->live, &p->nlive, sizeof *live);
    if (!live) {
        b->storage = NULL;
        return core__prepare_no_memory();
    }
    *live = *out_buffer;
    core__storage_retain(tensor->storage);
    return CORE_OK;
}

/* Forgets storages to which nothing else refers. */
void core__prepare_drop_unused_buffers(core__preparing *p, bool all)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < p->nlive; i++) {
        core__prepared_buffer *b = &p->buffers[p->live[i]];

        if (!all && atomic_load(&b->storage->references) > 1) {
            p->live[kept++] = p->live[i];
            continue;
        }
        core__storage_release(b->storage);
        b->storage = NULL;
    }
    p->nlive = kept;
}

void core__prepare_use_buffer(core__preparing *p, uint32_t index)
{
    core__prepared_buffer *b = &p->buffers[index];

    if (b->first == CORE__PREPARE_NEVER)
        b->first = p->to->nsteps;
    b->last = p->to->nsteps;
}

/* Finds a value of a node by its tensor, and then by its storage. */
typedef struct search {
    const core__preparing *p;
    const core_tensor *tensor;
    uint32_t exact, on_storage;
    bool ambiguous;
} search;

static void search_value(void *context, uint32_t value)
{
    search *s = context;
    const core_tensor *tensor = s->p->run.tensors[value];
    uint32_t found = s->p->value_buffers[value];

    if (!tensor || found == CORE__PREPARE_NEVER)
        return;
    if (tensor == s->tensor) {
        s->exact = found;
    } else if (tensor->storage == s->tensor->storage) {
        s->ambiguous |=
            s->on_storage != CORE__PREPARE_NEVER && s->on_storage != found;
        s->on_storage = found;
    }
}

uint32_t core__prepare_find_live(const core__preparing *p,
                                 const core_storage *storage)
{
    for (uint32_t i = p->nlive; i-- > 0;)
        if (p->buffers[p->live[i]].storage == storage)
            return p->live[i];
    return CORE__PREPARE_NEVER;
}

/* The buffer of a tensor that a node uses; one of its own if its storage is
 * new. */
core_status core__prepare_buffer_of(core__preparing *p,
                                    const core__program_node *node,
                                    const core_tensor *tensor,
                                    uint32_t *out_buffer)
{
    search s = {p, tensor, CORE__PREPARE_NEVER, CORE__PREPARE_NEVER, false};

    if (tensor == p->target) {
        *out_buffer = p->target_buffer;
        return CORE_OK;
    }
    if (node)
        core__node_each_value(node, search_value, &s);
    *out_buffer = s.exact;
    if (*out_buffer == CORE__PREPARE_NEVER)
        *out_buffer = core__prepare_find_live(p, tensor->storage);
    if (*out_buffer == CORE__PREPARE_NEVER && s.ambiguous)
        return core__prepare_refuse(p, "inputs share memory");
    if (*out_buffer == CORE__PREPARE_NEVER)
        *out_buffer = s.on_storage;
    return *out_buffer == CORE__PREPARE_NEVER
               ? core__prepare_add_buffer(p, CORE__SOURCE_ARENA, CORE__NO_VALUE,
                                          tensor, out_buffer)
               : CORE_OK;
}

uint64_t core__prepare_distance_of(const core__preparing *p, uint32_t buffer,
                                   core_memory memory)
{
    return memory.offset - p->buffers[buffer].start.offset;
}

static core_status add_place(core__preparing *p, const core_memory *at,
                             uint32_t buffer)
{
    core__place *place =
        core__program_grow(&p->to->places, &p->to->nplaces, sizeof *place);

    if (!place)
        return core__prepare_no_memory();
    *place = (core__place){(core_memory *)(uintptr_t)at, buffer,
                           core__prepare_distance_of(p, buffer, *at)};
    return CORE_OK;
}

/* A tensor with the layout of another, to be put on the storage of a buffer. */
static core_status add_tensor(core__preparing *p, const core_tensor *like,
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
        return core__prepare_no_memory();
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
    tensor->distance =
        core__prepare_distance_of(p, buffer, core__tensor_memory(like));
    return CORE_OK;
}

static core_status add_change(core__preparing *p, core__operand_tensor *tensor)
{
    core__prepared_change *c =
        core__program_grow(&p->changes, &p->nchanges, sizeof *c);

    if (!c)
        return core__prepare_no_memory();
    *c = (core__prepared_change){p->to->nsteps, tensor};
    return CORE_OK;
}

core__operand_tensor *core__prepare_operand_of(core_tensor *tensor)
{
    return (core__operand_tensor *)(void *)tensor; /* its first member */
}

/* The operands of a loop are the tensors of the call, in this order. */
static core_status take_loop(core__preparing *p, core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);
    uint32_t at = 0;

    for (uint32_t k = 0; k < launch->loop->noperands; k++) {
        const core_operand *operand = &launch->loop->operands[k];

        if (operand->flags & CORE_OPERAND_IMMEDIATE)
            continue;
        if (at == launch->run->ntensors)
            return core__prepare_refuse(
                p, "a kernel has more operands than tensors");
        CORE_TRY(add_place(p, &operand->memory,
                           core__prepare_operand_of(tensors[at])->source));
        if (operand->flags & CORE_OPERAND_OUTPUT)
            CORE_TRY(add_change(p, core__prepare_operand_of(tensors[at])));
        at++;
    }
    return CORE_OK;
}

static core_status take_view(core__preparing *p, core__logged_launch *launch,
                             const core_view *given, uint32_t *at)
{
    core_view *view = (core_view *)(uintptr_t)given;
    core_tensor *tensor;

    if (*at == launch->run->ntensors)
        return core__prepare_refuse(p, "a kernel has more views than tensors");
    tensor = core__logged_tensors(launch)[(*at)++];
    view->sizes = tensor->sizes;
    view->strides = tensor->strides;
    return add_place(p, &view->memory,
                     core__prepare_operand_of(tensor)->source);
}

/* Views are those of the arguments, then of the results. */
static core_status take_views(core__preparing *p, core__logged_launch *launch)
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
        CORE_TRY(add_change(
            p, core__prepare_operand_of(core__logged_tensors(launch)[at - 1])));
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
static core_status note_numbers(core__preparing *p,
                                const core__program_node *node,
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
            return core__prepare_refuse(
                p, "a kernel depends on a number of each run");
        place = core__program_grow(&p->to->number_places,
                                   &p->to->nnumber_places, sizeof *place);
        if (!place)
            return core__prepare_no_memory();
        *place = (core__number_place){(core_value *)(uintptr_t)&launch->args[i],
                                      operand, (uint32_t)node->args[i].u.i};
    }
    return CORE_OK;
}

/* Kernels that write some of their arguments. */
static core_status note_written(core__preparing *p,
                                const core__program_node *node,
                                core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);

    for (uint32_t v = 0; node && node->written && v < node->nvalues; v++)
        for (uint32_t i = 0; i < launch->run->ntensors; i++)
            if (core__prepare_operand_of(tensors[i])->source ==
                p->value_buffers[node->first + v])
                CORE_TRY(add_change(p, core__prepare_operand_of(tensors[i])));
    return CORE_OK;
}

/* The guards know whether inputs are aligned to this, and gradients that a
 * backward program gets are copied if they are not (compiled_node.c). */
enum { INPUT_ALIGNMENT = CORE__INPUT_ALIGNMENT };

static bool is_aligned(const core__preparing *p, const core_kernel *kernel,
                       uint32_t index)
{
    const core__prepared_buffer *b = &p->buffers[index];
    uint32_t required = 1u << ((kernel->demands & CORE_REQUIRE_ALIGNMENT) >>
                               CORE_REQUIRE_ALIGNMENT_SHIFT);
    uint64_t address = (uintptr_t)b->start.handle + b->start.offset;

    if (b->kind == CORE__SOURCE_ARENA)
        return required <= CORE__PLAN_ALIGNMENT;
    return required == 1 ||
           (required <= INPUT_ALIGNMENT && address % INPUT_ALIGNMENT == 0);
}

/* Replaces the tensors of the call that was logged. */
static core_status take_tensors(core__preparing *p,
                                const core__program_node *node,
                                core__logged_launch *launch)
{
    core_tensor **tensors = core__logged_tensors(launch);
    uint32_t first = p->to->ntensors, found;
    core__operand_tensor *tensor;

    for (uint32_t i = 0; i < launch->run->ntensors; i++) {
        CORE_TRY(core__prepare_buffer_of(p, node, tensors[i], &found));
        if (!is_aligned(p, launch->kernel, found))
            return core__prepare_refuse(p,
                                        "a kernel requires aligned operands");
        CORE_TRY(add_tensor(p, tensors[i], found, &tensor));
        core__prepare_use_buffer(p, found);
    }
    core__logged_launch_release(launch);
    for (uint32_t i = 0; i < launch->run->ntensors; i++)
        tensors[i] = &p->to->tensors[first + i]->tensor;
    return CORE_OK;
}

core_status core__prepare_take_operands(core__preparing *p,
                                        const core__program_node *node,
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

core_status core__prepare_add_step(core__preparing *p, core__step_kind kind,
                                   uint32_t index, core__logged_launch *launch)
{
    core__step *step =
        core__program_grow(&p->to->steps, &p->to->nsteps, sizeof *step);

    if (!step)
        return core__prepare_no_memory();
    *step =
        (core__step){.kind = (uint8_t)kind, .index = index, .launch = launch};
    return CORE_OK;
}

/* Makes steps of the launches of a node, or (NULL) of a copy. */
core_status core__prepare_take_log(core__preparing *p,
                                   const core__program_node *node)
{
    core_status status = CORE_OK;

    while (status == CORE_OK && p->log.first) {
        core__logged_launch *launch = p->log.first;

        status = core__prepare_take_operands(p, node, launch);
        if (status == CORE_OK)
            status = core__prepare_add_step(p, CORE__STEP_LAUNCH,
                                            node ? p->run.node : CORE__NO_VALUE,
                                            launch);
        if (status != CORE_OK)
            break;
        p->log.first = launch->next;
        p->to->launches++;
    }
    if (!p->log.first)
        p->log.last = NULL;
    return status;
}

static core_status log_call(core__run *r, core_operator *op,
                            const core_value *args, uint32_t nargs,
                            core_value *results, uint32_t nresults)
{
    core__preparing *p = (core__preparing *)(void *)r;

    return core__launch_log_call(&p->log, op, p->device, args, nargs, results,
                                 nresults);
}

static core_status log_copy(core__run *r, core_tensor *to, core_tensor *from)
{
    return core__launch_log_copy(&((core__preparing *)(void *)r)->log, to,
                                 from);
}

/* The buffer has one reference to the storage, and the tensor the other. */
static bool log_owns(const core__run *r, uint32_t value)
{
    const core__preparing *p = (const core__preparing *)(const void *)r;
    uint32_t found = p->value_buffers[value];

    return found != CORE__PREPARE_NEVER &&
           p->buffers[found].kind == CORE__SOURCE_ARENA &&
           !p->buffers[found].seen &&
           atomic_load(&r->tensors[value]->storage->references) == 2;
}

static const core__run_steps log_steps = {
    .call = log_call,
    .copy = log_copy,
    .owns = log_owns,
};

void core__prepare_log_calls(core__preparing *p)
{
    p->run.steps = &log_steps;
}
