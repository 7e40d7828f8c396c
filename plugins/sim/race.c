/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The memory that work reads and writes. */

#include "block.h"
#include "shape.h"

#include <stdlib.h>

uint64_t sim_conflicts;
char sim_conflict_text[SIM_TEXT];

void sim_conflicted(const char *text)
{
    sim_conflicts++;
    snprintf(sim_conflict_text, sizeof sim_conflict_text, "%s", text);
}

typedef struct noting {
    sim_stream *stream;
    sim_use *use;
    char text[SIM_TEXT];
} noting;

sim_use *sim_use_create(const sim_stream *stream, const sim_work *work)
{
    sim_use *use = calloc(1, sizeof *use);
    core_string name;

    if (!use)
        return NULL;
    use->references = 1;
    use->place = stream->place;
    use->time = stream->time;
    use->stream = stream->id;
    use->call_id = work->call_id;
    name = work->op ? sim_host->operator_name(work->op)
                    : core_sdk_string(work->what);
    snprintf(use->name, sizeof use->name, "%.*s", (int)name.size, name.data);
    return use;
}

static void note(noting *n, sim_device *device, core_memory memory,
                 const sim_shape *shape, bool writes)
{
    uint64_t offset = 0;
    sim_block *block = sim_block_find(device, memory, &offset);
    sim_shape within = *shape;
    char where[64];

    if (n->text[0])
        return;
    sim_block_check(device, block, memory, offset, shape->end, n->text,
                    sizeof n->text);
    if (n->text[0])
        return;
    within.offset += offset;
    within.end += offset;
    snprintf(where, sizeof where, "block %llu of %s",
             (unsigned long long)block->serial, device->name);
    sim_history_use(&block->history, n->use, n->stream->clock, &within, writes,
                    where, n->text, sizeof n->text);
}

static void note_bytes(noting *n, sim_device *device, core_memory memory,
                       uint64_t size, bool writes)
{
    sim_shape shape;

    if (!memory.handle || size == 0)
        return;
    sim_shape_bytes(&shape, size);
    note(n, device, memory, &shape, writes);
}

static void note_view(noting *n, const core_view *view, bool writes)
{
    sim_shape shape;

    if (view && view->memory.handle && view->numel > 0 &&
        sim_shape_of(&shape, view->ndim, view->sizes, view->strides,
                     core_sdk_itemsize(view->dtype),
                     core_sdk_itemsize(view->dtype)))
        note(n, n->stream->device, view->memory, &shape, writes);
}

static void note_value(noting *n, const core_value *value, bool writes)
{
    if (value->tag == CORE_VALUE_VIEW)
        note_view(n, value->u.view, writes);
    for (uint32_t i = 0; value->tag == CORE_VALUE_VIEW_LIST && i < value->count;
         i++)
        note_view(n, value->u.views[i], writes);
}

static void note_loop(noting *n, const core_loop *loop)
{
    for (uint32_t i = 0; i < loop->noperands; i++) {
        const core_operand *operand = &loop->operands[i];
        sim_shape shape;

        if (!(operand->flags & CORE_OPERAND_IMMEDIATE) &&
            operand->memory.handle &&
            sim_shape_of(&shape, loop->ndim, loop->sizes, operand->strides, 1,
                         core_sdk_itemsize(operand->dtype)))
            note(n, n->stream->device, operand->memory, &shape,
                 operand->flags & CORE_OPERAND_OUTPUT);
    }
}

/* Arguments are read, except that this operator updates its running statistics
 * in training, and that optimizer steps change parameters and states. */
static bool writes_argument(const sim_work *work, uint32_t index)
{
    core_string name = work->kernel->name;

    if (core_sdk_string_equal(name, "_fused_sgd_step") ||
        core_sdk_string_equal(name, "_fused_sgd_step.device_numbers"))
        return index == 0 || index == 2;
    if (core_sdk_string_equal(name, "_fused_adam_step") ||
        core_sdk_string_equal(name, "_fused_adam_step.device_numbers"))
        return index == 0 || index == 2 || index == 3;
    return (index == 3 || index == 4) && work->nargs > 5 &&
           core_sdk_string_equal(name, "native_batch_norm") &&
           core_sdk_int(&work->args[5], 0);
}

static void note_call(noting *n, const sim_work *work)
{
    if (work->call->loop)
        note_loop(n, work->call->loop);
    for (uint32_t i = 0; i < work->nargs; i++)
        note_value(n, &work->args[i], writes_argument(work, i));
    for (uint32_t i = 0; i < work->nresults; i++)
        note_value(n, &work->results[i], true);
}

static void note_host(noting *n, void *data, uint64_t size, bool writes)
{
    uint64_t offset;
    sim_history *history = sim_pinned_history(data, size, &offset);
    sim_shape shape;

    if (!history)
        return;
    sim_shape_bytes(&shape, size);
    shape.offset += offset;
    shape.end += offset;
    sim_history_use(history, n->use, n->stream->clock, &shape, writes,
                    "pinned host memory", n->text, sizeof n->text);
}

/* Work with a conflict fails and does not run. */
static void leave(noting *n, sim_work *work)
{
    sim_use_unref(n->use);
    if (!n->text[0])
        return;
    sim_conflicted(n->text);
    work->conflict = strdup(n->text);
}

void sim_race_note(sim_stream *stream, sim_work *work)
{
    sim_device *device = stream->device;
    noting n = {.stream = stream};

    if (!stream->clock || !stream->place ||
        !(work->call || work->size || work->loop))
        return;
    n.use = sim_use_create(stream, work);
    if (!n.use)
        return;
    if (work->call)
        note_call(&n, work);
    if (work->loop)
        note_loop(&n, work->loop);
    note_bytes(&n, device, work->scratch, work->scratch_size, true);
    if (work->from.handle)
        note_bytes(&n, work->from_device ? work->from_device : device,
                   work->from, work->size, false);
    if (work->to.handle)
        note_bytes(&n, device, work->to, work->size, true);
    if (work->host)
        note_host(&n, work->host, work->size, !work->to.handle);
    leave(&n, work);
}

void sim_race_note_result(sim_stream *stream, sim_work *work,
                          const core_view *view)
{
    noting n = {.stream = stream};

    if (!stream->clock || !stream->place)
        return;
    n.use = sim_use_create(stream, work);
    if (!n.use)
        return;
    note_view(&n, view, true);
    leave(&n, work);
}
