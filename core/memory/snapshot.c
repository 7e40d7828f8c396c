/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes the state of an allocator as JSON.  A heap is copied with its lock
 * held, and written without it. */

#include "base/growing_text.h"
#include "base/json.h"
#include "base/memory.h"
#include "memory/heap.h"

#include <stdlib.h>
#include <string.h>

/* A block, or a segment followed by `blocks` rows for its blocks. */
typedef struct row {
    uint64_t address; /* a block: its offset */
    uint64_t size;
    uint64_t requested;
    uint64_t blocks;
    uint8_t state;
    bool expandable;
} row;

static uint64_t count_rows(const core__heap *heap)
{
    uint64_t rows = 0;

    for (core__segment *s = heap->segments; s; s = s->next) {
        rows++;
        for (core__block *b = s->first; b; b = b->after)
            rows += b->state != CORE__BLOCK_UNMAPPED;
    }
    return rows;
}

static void fill_rows(const core__heap *heap, row *at)
{
    for (core__segment *s = heap->segments; s; s = s->next) {
        row *segment = at++;

        *segment = (row){.address = (uint64_t)(uintptr_t)s->memory.handle +
                                    s->memory.offset,
                         .size = s->reserved,
                         .expandable = s->expandable};
        for (core__block *b = s->first; b; b = b->after) {
            if (b->state == CORE__BLOCK_UNMAPPED)
                continue;
            *at++ = (row){.address = b->offset - s->memory.offset,
                          .size = b->size,
                          .requested =
                              b->state == CORE__BLOCK_FREE ? 0 : b->requested,
                          .state = b->state};
            segment->blocks++;
        }
    }
}

/* Copies the rows of a heap, which may change between counting and copying. */
static core_status copy_rows(core__heap *heap, row **out_rows,
                             uint64_t *out_count)
{
    uint64_t capacity = 64;

    for (;;) {
        row *rows = core__alloc(capacity * sizeof *rows);
        uint64_t count;

        if (!rows)
            return core__error_memory(capacity * sizeof *rows);
        core__spin_lock(&heap->lock);
        core__heap_join_deferred(heap);
        count = count_rows(heap);
        if (count <= capacity)
            fill_rows(heap, rows);
        core__spin_unlock(&heap->lock);
        if (count <= capacity) {
            *out_rows = rows;
            *out_count = count;
            return CORE_OK;
        }
        core__free(rows);
        capacity = count + count / 8;
    }
}

static void write_blocks(core__json *json, const row *rows, uint64_t count)
{
    static const char *const states[] = {
        [CORE__BLOCK_FREE] = "free",
        [CORE__BLOCK_ACTIVE] = "active",
        [CORE__BLOCK_AWAITING] = "awaiting",
    };

    core__json_array(json, "blocks");
    for (uint64_t i = 0; i < count; i++) {
        json->flat = true;
        core__json_object(json, NULL);
        core__json_unsigned(json, "offset", rows[i].address);
        core__json_unsigned(json, "size", rows[i].size);
        core__json_unsigned(json, "requested", rows[i].requested);
        core__json_text(json, "state", states[rows[i].state]);
        core__json_end(json);
        json->flat = false;
    }
    core__json_end(json);
}

static core_status write_heap(core__json *json, core__heap *heap)
{
    row *rows = NULL;
    uint64_t count = 0;

    CORE_TRY(copy_rows(heap, &rows, &count));
    for (uint64_t i = 0; i < count; i += 1 + rows[i].blocks) {
        core__json_object(json, NULL);
        core__json_unsigned(json, "address", rows[i].address);
        core__json_unsigned(json, "size", rows[i].size);
        core__json_unsigned(json, "stream", heap->stream_id);
        if (heap->pool || heap->abandoned)
            core__json_unsigned(json, "pool", (uintptr_t)heap->pool);
        else
            core__json_text(json, "pool", NULL);
        core__json_boolean(json, "expandable", rows[i].expandable);
        write_blocks(json, &rows[i + 1], rows[i].blocks);
        core__json_end(json);
    }
    core__free(rows);
    return CORE_OK;
}

static core_status write_history(core__json *json, core__allocator *allocator)
{
    core__history *history;

    CORE_TRY(core__history_copy(allocator, &history));
    core__json_array(json, "history");
    for (uint64_t i = 0; history && i < history->count; i++) {
        const core__action *action = &history->actions[i];

        json->flat = true;
        core__json_object(json, NULL);
        core__json_unsigned(json, "time_ns", action->time_ns);
        core__json_text(json, "action", core__action_name(action->action));
        core__json_unsigned(json, "address", action->address);
        core__json_unsigned(json, "size", action->size);
        core__json_unsigned(json, "stream", action->stream);
        core__json_end(json);
        json->flat = false;
    }
    core__json_end(json);
    core__free(history);
    return CORE_OK;
}

static core_status write_all(core__json *json, core__allocator *allocator)
{
    char *settings;
    core_status status = CORE_OK;

    CORE_TRY(core__alloc_settings_text(&allocator->settings, &settings));
    core__json_object(json, NULL);
    core__json_text(json, "device", allocator->device->name);
    core__json_text(json, "settings", settings);
    core__free(settings);
    core__json_array(json, "segments");
    for (core__heap *heap = allocator->heaps; heap && status == CORE_OK;
         heap = heap->next)
        status = write_heap(json, heap);
    core__json_end(json);
    if (status == CORE_OK)
        status = write_history(json, allocator);
    core__json_end(json);
    return status;
}

core_status core_memory_snapshot(core_device *device, char **out_json)
{
    core__allocator *allocator;
    core__growing_text to = {0};
    core__json json;
    core_status status;

    CORE__NOT_NULL(out_json);
    *out_json = NULL;
    CORE__NOT_NULL(device);
    CORE_TRY(core__allocator_require(device, "core_memory_snapshot"));
    allocator = device->allocator;
    core__json_begin(&json, core__growing_text_append, &to);
    pthread_mutex_lock(&allocator->lock);
    status = write_all(&json, allocator);
    core__allocator_unlock(allocator);
    if (status == CORE_OK && !core__json_finish(&json))
        status = core__error_memory(to.capacity);
    if (status == CORE_OK)
        *out_json = to.data;
    else
        core__free(to.data);
    return status;
}
