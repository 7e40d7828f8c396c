/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The state of a task: slots of nodes, the map for nodes of other tasks, and
 * the ready queue. */

#include "autograd/engine/engine.h"

#include "autograd/engine/input_buffer.h"
#include "base/memory.h"

#include <string.h>

typedef struct core__map_entry {
    core_node *node; /* NULL: free */
    core__slot *slot;
} core__map_entry;

void core__task_begin(core__task *task)
{
    task->ready = task->inline_ready;
    task->nready = 0;
    task->ready_capacity = CORE__TASK_INLINE;
    task->nodes = task->inline_nodes;
    task->nnodes = 0;
    task->nodes_capacity = CORE__TASK_INLINE;
    task->map = NULL;
    task->map_count = 0;
    task->map_capacity = 0;
    task->host = false;
    task->multithreaded = false;
    task->device = NULL;
    task->leaves = NULL;
    task->nleaves = 0;
    task->leaves_capacity = 0;
    task->workers = task->inline_workers;
    task->nworkers = 0;
    task->workers_capacity = CORE__TASK_WORKERS;
}

static void clear(core_node *node, core__slot *slot)
{
    for (uint32_t i = 0; i < node->ninputs; i++) {
        core__tensor_release(slot->grads[i]);
        slot->grads[i] = NULL;
    }
    if (core__unlikely(slot->arrivals != NULL))
        core__input_buffer_clear(slot, node->ninputs);
    if (core__unlikely(slot->pending != NULL))
        core__pending_clear(slot);
}

void core__task_end(core__task *task)
{
    for (size_t i = 0; i < task->nnodes; i++) {
        core_node *node = task->nodes[i];
        core__slot *slot = core__task_find(task, node);

        clear(node, slot);
        if (slot == &node->slot)
            atomic_store_explicit(&slot->task, NULL, memory_order_release);
        else
            core__free(slot);
    }
    if (task->ready != task->inline_ready)
        core__free(task->ready);
    if (task->nodes != task->inline_nodes)
        core__free(task->nodes);
    if (task->workers != task->inline_workers)
        core__free(task->workers);
    for (size_t i = 0; i < task->nleaves; i++)
        core_stream_release(task->leaves[i]);
    core__free(task->leaves);
    core__free(task->map);
}

/* ------------------------------------------------------------------- map -- */

static core__map_entry *map_at(core__map_entry *map, size_t capacity,
                               const core_node *node)
{
    size_t i = ((uintptr_t)node >> 6) * UINT64_C(0x9e3779b97f4a7c15);

    for (i &= capacity - 1; map[i].node && map[i].node != node;)
        i = (i + 1) & (capacity - 1);
    return &map[i];
}

core__slot *core__task_find_slow(const core__task *task, const core_node *node)
{
    if (!task->map)
        return NULL;
    return map_at(task->map, task->map_capacity, node)->slot;
}

static bool map_reserve(core__task *task)
{
    size_t capacity = task->map_capacity ? task->map_capacity * 2 : 64;
    core__map_entry *map;

    if (task->map_count * 2 < task->map_capacity)
        return true;
    map = core__alloc_zero(capacity * sizeof *map);
    if (!map)
        return false;
    for (size_t i = 0; i < task->map_capacity; i++)
        if (task->map[i].node)
            *map_at(map, capacity, task->map[i].node) = task->map[i];
    core__free(task->map);
    task->map = map;
    task->map_capacity = capacity;
    return true;
}

static core__slot *map_add(core__task *task, core_node *node)
{
    core__map_entry *entry;
    core__slot *slot;

    if (!map_reserve(task))
        return NULL;
    slot = core__alloc_zero(sizeof *slot + node->ninputs * sizeof *slot->grads);
    if (!slot)
        return NULL;
    slot->grads = (core_tensor **)(void *)(slot + 1);
    entry = map_at(task->map, task->map_capacity, node);
    entry->node = node;
    entry->slot = slot;
    task->map_count++;
    return slot;
}

/* ----------------------------------------------------------------- slots -- */

static bool nodes_grow(core__task *task)
{
    size_t capacity = task->nodes_capacity * 2;
    bool owned = task->nodes != task->inline_nodes;
    core_node **nodes =
        core__realloc(owned ? task->nodes : NULL, capacity * sizeof *nodes);

    if (!nodes)
        return false;
    if (!owned)
        memcpy(nodes, task->inline_nodes, sizeof task->inline_nodes);
    task->nodes = nodes;
    task->nodes_capacity = capacity;
    return true;
}

core_status core__task_slot_slow(core__task *task, core_node *node,
                                 core__slot **out_slot)
{
    core__slot *slot = core__task_find_slow(task, node);
    core__task *none = NULL;

    *out_slot = slot;
    if (slot)
        return CORE_OK;
    if (task->nnodes == task->nodes_capacity && !nodes_grow(task))
        return core__error_memory(2 * task->nodes_capacity *
                                  sizeof *task->nodes);
    if (atomic_compare_exchange_strong_explicit(&node->slot.task, &none, task,
                                                memory_order_acquire,
                                                memory_order_relaxed))
        slot = &node->slot;
    else
        slot = map_add(task, node);
    if (!slot)
        return core__error_memory(sizeof *slot);
    slot->dependencies = 0;
    slot->flags = 0;
    slot->busy = false;
    slot->arrivals = NULL;
    slot->pending = NULL;
    if (core__likely(!node->stream))
        task->host = true;
    else if (!task->device)
        task->device = node->stream->device;
    else if (task->device != node->stream->device)
        task->multithreaded = true;
    task->nodes[task->nnodes++] = node;
    *out_slot = slot;
    return CORE_OK;
}

/* ----------------------------------------------------------------- queue -- */

static bool ready_grow(core__task *task)
{
    size_t capacity = task->ready_capacity * 2;
    bool owned = task->ready != task->inline_ready;
    core__ready *ready =
        core__realloc(owned ? task->ready : NULL, capacity * sizeof *ready);

    if (!ready)
        return false;
    if (!owned)
        memcpy(ready, task->inline_ready, sizeof task->inline_ready);
    task->ready = ready;
    task->ready_capacity = capacity;
    return true;
}

core_status core__task_push(core__task *task, core_node *node, core__slot *slot)
{
    uint64_t sequence = node->sequence;
    size_t i;

    if (core__unlikely(task->nready == task->ready_capacity) &&
        !ready_grow(task))
        return core__error_memory(2 * task->ready_capacity *
                                  sizeof *task->ready);
    for (i = task->nready++; i > 0; i = (i - 1) / 2) {
        if (task->ready[(i - 1) / 2].sequence >= sequence)
            break;
        task->ready[i] = task->ready[(i - 1) / 2];
    }
    task->ready[i] = (core__ready){sequence, node, slot};
    return CORE_OK;
}

bool core__task_pop(core__task *task, core__ready *out_ready)
{
    core__ready last;
    size_t count, i = 0;

    if (task->nready == 0)
        return false;
    *out_ready = task->ready[0];
    count = --task->nready;
    if (count == 0)
        return true;
    last = task->ready[count];
    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= count)
            break;
        if (child + 1 < count &&
            task->ready[child + 1].sequence > task->ready[child].sequence)
            child++;
        if (task->ready[child].sequence <= last.sequence)
            break;
        task->ready[i] = task->ready[child];
        i = child;
    }
    task->ready[i] = last;
    return true;
}
