/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The summary: events of one kind and name added up into a row. */

#include "base/error.h"
#include "base/memory.h"
#include "profiler/profile.h"

#include <stdlib.h>
#include <string.h>

/* A hash table of rows by kind and name, with open addressing. */
typedef struct table {
    core_profile_row *rows;
    uint32_t *open;  /* for each row, how many of its calls enclose the next
                      * event */
    uint32_t *index; /* 1 + row; 0: free */
    uint32_t count;
    uint32_t
        capacity; /* the size of index, a power of two; rows has half of that */
} table;

static uint32_t hash_of(core_profile_kind kind, const char *name)
{
    uint32_t hash = 2166136261u ^ (uint32_t)kind;

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

static uint32_t *place(const table *table, core_profile_kind kind,
                       const char *name)
{
    uint32_t at = hash_of(kind, name) & (table->capacity - 1);

    while (table->index[at]) {
        const core_profile_row *row = &table->rows[table->index[at] - 1];

        if (row->kind == kind && strcmp(row->name, name) == 0)
            break;
        at = (at + 1) & (table->capacity - 1);
    }
    return &table->index[at];
}

static core_status grow(table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 256;
    core_profile_row *rows;
    uint32_t *index, *open;

    if (table->count < table->capacity / 2)
        return CORE_OK;
    rows = core__realloc(table->rows, capacity / 2 * sizeof *rows);
    if (!rows)
        return core__error_memory(capacity / 2 * sizeof *rows);
    table->rows = rows;
    open = core__realloc(table->open, capacity / 2 * sizeof *open);
    if (!open)
        return core__error_memory(capacity / 2 * sizeof *open);
    table->open = open;
    index = core__alloc_zero(capacity * sizeof *index);
    if (!index)
        return core__error_memory(capacity * sizeof *index);
    core__free(table->index);
    table->index = index;
    table->capacity = capacity;
    for (uint32_t i = 0; i < table->count; i++)
        *place(table, rows[i].kind, rows[i].name) = i + 1;
    return CORE_OK;
}

static core_status row_of(table *table, const core__profile_event *event,
                          uint32_t *out_row)
{
    uint32_t *slot;

    CORE_TRY(grow(table));
    slot = place(table, (core_profile_kind)event->kind, event->name);
    if (!*slot) {
        table->rows[table->count] = (core_profile_row){
            .struct_size = sizeof(core_profile_row),
            .kind = (core_profile_kind)event->kind,
            .name = event->name,
        };
        table->open[table->count] = 0;
        *slot = ++table->count;
    }
    *out_row = *slot - 1;
    return CORE_OK;
}

/* Leaves events from `at` outwards, up to the parent of the next event. */
static void leave_events(table *table, const core__profile_part *part,
                         const uint32_t *rows, uint32_t at, uint32_t parent)
{
    for (; at != parent && at != CORE__PROFILE_NONE;
         at = part->events[at].parent)
        table->open[rows[at]]--;
}

static void add(core_profile_row *row, const core__profile_event *event,
                uint64_t inside, bool recursive)
{
    uint64_t length = core__profile_event_duration(event);

    row->calls++;
    row->cpu_self += length > inside ? length - inside : 0;
    row->device_self += event->device_self;
    if (!recursive) {
        row->cpu_total += length;
        row->device_total += event->device_total;
    }
    row->kernels += event->kernels;
    row->bytes += event->bytes;
    row->flop += event->flop;
    row->memory += event->memory;
    row->fallbacks += event->fallbacks;
}

static core_status add_part(table *table, const core__profile_part *part)
{
    uint64_t *inside = core__alloc_zero((part->nevents + (size_t)1) *
                                        (sizeof *inside + sizeof(uint32_t)));
    uint32_t last = CORE__PROFILE_NONE, *rows;
    core_status status = CORE_OK;

    if (!inside)
        return core__error_memory(part->nevents * sizeof *inside);
    rows = (uint32_t *)(inside + part->nevents + 1);
    for (uint32_t i = 0; i < part->nevents; i++)
        if (part->events[i].parent != CORE__PROFILE_NONE)
            inside[part->events[i].parent] +=
                core__profile_event_duration(&part->events[i]);
    for (uint32_t i = 0; i < part->nevents && status == CORE_OK; i++) {
        const core__profile_event *event = &part->events[i];

        status = row_of(table, event, &rows[i]);
        if (status != CORE_OK)
            break;
        /* An outer call of the same row has already counted this time. */
        leave_events(table, part, rows, last, event->parent);
        add(&table->rows[rows[i]], event, inside[i], table->open[rows[i]] > 0);
        table->open[rows[i]]++;
        last = i;
    }
    leave_events(table, part, rows, last, CORE__PROFILE_NONE);
    core__free(inside);
    return status;
}

/* ---------------------------------------------------------------- sorting -- */

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? 1 : a > b ? -1 : 0;
}

static int by_name(const void *first, const void *second)
{
    const core_profile_row *a = first, *b = second;
    int order = strcmp(a->name, b->name);

    return order ? order : (int)a->kind - (int)b->kind;
}

/* Ties are ordered by name, so that the order is unique. */
#define ORDER(function, member)                                        \
    static int function(const void *first, const void *second)         \
    {                                                                  \
        const core_profile_row *a = first, *b = second;                \
        int order = compare((uint64_t)a->member, (uint64_t)b->member); \
                                                                       \
        return order ? order : by_name(first, second);                 \
    }
ORDER(by_self, cpu_self)
ORDER(by_total, cpu_total)
ORDER(by_device, device_self)
ORDER(by_calls, calls)

static int by_memory(const void *first, const void *second)
{
    const core_profile_row *a = first, *b = second;

    return a->memory < b->memory   ? 1
           : a->memory > b->memory ? -1
                                   : by_name(first, second);
}

static void sort(core__event_summary *rows, core_profile_order order)
{
    static int (*const orders[])(const void *, const void *) = {
        [CORE_PROFILE_BY_SELF] = by_self,
        [CORE_PROFILE_BY_TOTAL] = by_total,
        [CORE_PROFILE_BY_DEVICE] = by_device,
        [CORE_PROFILE_BY_CALLS] = by_calls,
        [CORE_PROFILE_BY_MEMORY] = by_memory,
        [CORE_PROFILE_BY_NAME] = by_name,
    };

    if (rows->order == order)
        return;
    qsort(rows->rows, rows->count, sizeof *rows->rows, orders[order]);
    rows->order = order;
}

/* ----------------------------------------------------------------- public -- */

void core__event_summary_free(core_profiler *profiler)
{
    if (profiler->rows)
        core__free(profiler->rows->rows);
    core__free(profiler->rows);
    profiler->rows = NULL;
}

static core_status make(core_profiler *profiler)
{
    core__event_summary *rows = core__alloc_zero(sizeof *rows);
    core_status status = CORE_OK;
    table table = {0};

    if (!rows)
        return core__error_memory(sizeof *rows);
    for (size_t i = 0; i < profiler->nparts && status == CORE_OK; i++)
        status = add_part(&table, &profiler->parts[i]);
    core__free(table.index);
    core__free(table.open);
    if (status != CORE_OK) {
        core__free(table.rows);
        core__free(rows);
        return status;
    }
    rows->rows = table.rows;
    rows->count = table.count;
    rows->order = CORE_PROFILE_BY_SELF;
    if (rows->count)
        qsort(rows->rows, rows->count, sizeof *rows->rows, by_self);
    profiler->rows = rows;
    return CORE_OK;
}

core_status core__event_summary_sorted(core_profiler *profiler,
                                       core_profile_order order)
{
    if ((unsigned)order > CORE_PROFILE_BY_NAME)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "order is %d; accepted: CORE_PROFILE_BY_SELF (%d) "
                           "to CORE_PROFILE_BY_NAME (%d)",
                           (int)order, CORE_PROFILE_BY_SELF,
                           CORE_PROFILE_BY_NAME);
    if (profiler->number && profiler->recorded)
        return core__error(
            CORE_ERROR_BUSY,
            "the profiler is still recording; stop it with core_profiler_stop, "
            "or let its schedule end, before asking for a report");
    if (!profiler->rows)
        CORE_TRY(make(profiler));
    if (profiler->rows->count)
        sort(profiler->rows, order);
    return CORE_OK;
}

core_status core_profiler_count_rows(core_profiler *profiler, size_t *out_count)
{
    CORE__NOT_NULL(profiler);
    CORE__NOT_NULL(out_count);
    *out_count = 0;
    CORE_TRY(core__event_summary_sorted(profiler, CORE_PROFILE_BY_SELF));
    *out_count = profiler->rows->count;
    return CORE_OK;
}

core_status core_profiler_get_row(core_profiler *profiler,
                                  core_profile_order order, size_t index,
                                  core_profile_row *out_row)
{
    uint32_t size;

    CORE__NOT_NULL(profiler);
    CORE__NOT_NULL(out_row);
    size = out_row->struct_size;
    if (size < offsetof(core_profile_row, fallbacks) + 8)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_profiler_get_row: struct_size is %u; it must "
                           "be sizeof(core_profile_row), %zu",
                           size, sizeof *out_row);
    CORE_TRY(core__event_summary_sorted(profiler, order));
    if (index >= profiler->rows->count)
        return core__error(
            CORE_ERROR_INDEX,
            "core_profiler_get_row: index is %zu; there are %zu rows", index,
            profiler->rows->count);
    *out_row = profiler->rows->rows[index];
    out_row->struct_size = size;
    return CORE_OK;
}
