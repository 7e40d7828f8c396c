/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The history of uses of each byte. */

#include "shape.h"

#include <stdlib.h>

void sim_use_unref(sim_use *use)
{
    if (--use->references > 0)
        return;
    while (use->shapes) {
        sim_shape *next = use->shapes->next;

        free(use->shapes);
        use->shapes = next;
    }
    free(use);
}

static void entries_hold(const sim_interval *interval)
{
    for (uint32_t i = 0; i < interval->count; i++)
        interval->entries[i].use->references++;
}

static void entries_drop(sim_interval *interval)
{
    for (uint32_t i = 0; i < interval->count; i++)
        sim_use_unref(interval->entries[i].use);
    interval->count = 0;
}

void sim_history_drop(sim_history *history)
{
    for (uint32_t i = 0; i < history->count; i++)
        entries_drop(&history->intervals[i]);
    free(history->intervals);
    memset(history, 0, sizeof *history);
}

/* ------------------------------------------------------------ intervals -- */

/* Returns the first interval that ends after an offset. */
static uint32_t find(const sim_history *history, uint64_t offset)
{
    uint32_t low = 0, high = history->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (history->intervals[middle].to > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Makes space for one interval at an index; false without memory. */
static bool insert(sim_history *history, uint32_t index)
{
    sim_interval *at;

    if (history->count == history->capacity) {
        uint32_t capacity = history->capacity ? history->capacity * 2 : 4;

        at = realloc(history->intervals, capacity * sizeof *at);
        if (!at)
            return false;
        history->intervals = at;
        history->capacity = capacity;
    }
    at = history->intervals + index;
    memmove(at + 1, at, (history->count - index) * sizeof *at);
    history->count++;
    return true;
}

/* Splits the interval at an index. */
static bool cut(sim_history *history, uint32_t index, uint64_t offset)
{
    sim_interval *at;

    if (!insert(history, index))
        return false;
    at = history->intervals + index;
    at[0] = at[1];
    at[0].to = offset;
    at[1].from = offset;
    entries_hold(&at[0]);
    return true;
}

static bool same_entries(const sim_interval *a, const sim_interval *b)
{
    if (a->to != b->from || a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->entries[i].use != b->entries[i].use ||
            a->entries[i].shape != b->entries[i].shape ||
            a->entries[i].writes != b->entries[i].writes)
            return false;
    return true;
}

/* Merges neighbours among [first, last] that have become equal. */
static void merge(sim_history *history, uint32_t first, uint32_t last)
{
    sim_interval *all = history->intervals;
    uint32_t used;

    if (first > 0)
        first--;
    if (last >= history->count)
        last = history->count - 1;
    used = first;
    for (uint32_t i = first + 1; i <= last; i++) {
        if (same_entries(&all[used], &all[i])) {
            all[used].to = all[i].to;
            entries_drop(&all[i]);
        } else if (++used != i) {
            all[used] = all[i];
        }
    }
    memmove(all + used + 1, all + last + 1,
            (history->count - last - 1) * sizeof *all);
    history->count -= last - used;
}

/* ------------------------------------------------------------------ uses -- */

typedef struct using
{
    sim_use *use;
    const sim_clock *clock;
    sim_shape *shape; /* NULL: every byte */
    bool writes;
    const char *where;
    char *conflict;
    size_t capacity;
}
using;

static bool is_before(const sim_use *use, const sim_clock *clock)
{
    return clock->at[use->place] >= use->time;
}

/* Tests whether the two share a byte in this interval. */
static bool meet(const using *u, const sim_entry *entry,
                 const sim_interval *interval)
{
    if (u->shape && entry->shape)
        return sim_shape_meet(u->shape, entry->shape, interval->from,
                              interval->to);
    if (u->shape || entry->shape)
        return sim_shape_touches(u->shape ? u->shape : entry->shape,
                                 interval->from, interval->to);
    return true;
}

static void describe_conflict(const using *u, const sim_entry *entry,
                              const sim_interval *interval)
{
    if (u->conflict[0])
        return;
    snprintf(u->conflict, u->capacity,
             "race: %s (call %llu, stream %llu) %s bytes [%llu, %llu) of %s, "
             "which %s (call %llu, stream %llu) %s, and nothing orders them",
             u->use->name, (unsigned long long)u->use->call_id,
             (unsigned long long)u->use->stream, u->writes ? "writes" : "reads",
             (unsigned long long)interval->from,
             (unsigned long long)interval->to, u->where, entry->use->name,
             (unsigned long long)entry->use->call_id,
             (unsigned long long)entry->use->stream,
             entry->writes ? "writes" : "reads");
}

/* Tests whether the new use replaces the entry: whatever is unordered with the
 * entry is then unordered with the new use as well. */
static bool supersedes(const using *u, const sim_entry *entry)
{
    if (entry->writes && !u->writes)
        return false;
    if (!u->shape)
        return true;
    return entry->shape && entry->shape->run == u->shape->run &&
           entry->shape->offset == u->shape->offset &&
           entry->shape->ndim == u->shape->ndim &&
           memcmp(entry->shape->sizes, u->shape->sizes,
                  u->shape->ndim * sizeof(uint64_t)) == 0 &&
           memcmp(entry->shape->strides, u->shape->strides,
                  u->shape->ndim * sizeof(uint64_t)) == 0;
}

static void interval_use(const using *u, sim_interval *interval)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < interval->count; i++) {
        sim_entry entry = interval->entries[i];
        bool before = entry.use == u->use || is_before(entry.use, u->clock);

        if (!before && (u->writes || entry.writes) && meet(u, &entry, interval))
            describe_conflict(u, &entry, interval);
        if (before && supersedes(u, &entry))
            sim_use_unref(entry.use);
        else
            interval->entries[used++] = entry;
    }
    if (used == SIM_ENTRIES) {
        sim_use_unref(interval->entries[0].use);
        used--;
        memmove(interval->entries, interval->entries + 1,
                used * sizeof(sim_entry));
    }
    interval->entries[used++] = (sim_entry){u->use, u->shape, u->writes};
    interval->count = used;
    u->use->references++;
}

static void bytes_use(sim_history *history, const using *u, uint64_t from,
                      uint64_t to)
{
    uint32_t first = find(history, from);
    uint32_t at = first;
    uint64_t place = from;

    while (place < to) {
        sim_interval *interval = history->intervals + at;

        if (at == history->count || interval->from > place) { /* a gap */
            uint64_t end = at < history->count && interval->from < to
                               ? interval->from
                               : to;

            if (!insert(history, at))
                return;
            interval = history->intervals + at;
            interval->from = place;
            interval->to = end;
            interval->count = 0;
        } else if (interval->from < place) {
            if (!cut(history, at, place))
                return;
            at++;
            continue;
        } else if (interval->to > to) {
            if (!cut(history, at, to))
                return;
            interval = history->intervals + at;
        }
        interval_use(u, interval);
        place = interval->to;
        at++;
    }
    if (at > first)
        merge(history, first, at);
}

void sim_history_use(sim_history *history, sim_use *use, const sim_clock *clock,
                     const sim_shape *shape, bool writes, const char *where,
                     char *conflict, size_t capacity)
{
    uint64_t runs = sim_shape_runs(shape);
    using u = {use, clock, NULL, writes, where, conflict, capacity};

    if (runs > SIM_RUNS) {
        u.shape = malloc(sizeof *shape);
        if (!u.shape)
            return;
        *u.shape = *shape;
        u.shape->next = use->shapes;
        use->shapes = u.shape;
        bytes_use(history, &u, shape->offset, shape->end);
        return;
    }
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t at = sim_shape_run_at(shape, i);

        bytes_use(history, &u, at, at + shape->run);
    }
}

bool sim_history_end(sim_history *history, const sim_clock *host, uint64_t from,
                     uint64_t to, const char *where, char *conflict,
                     size_t capacity, uint64_t *out_stream)
{
    bool found = false;

    for (uint32_t i = 0; i < history->count; i++) {
        sim_interval *interval = &history->intervals[i];

        if (interval->to <= from || interval->from >= to)
            continue;
        for (uint32_t k = 0; k < interval->count && !found; k++) {
            const sim_use *use = interval->entries[k].use;

            if (is_before(use, host))
                continue;
            found = true;
            *out_stream = use->stream;
            snprintf(
                conflict, capacity,
                "race: %s is freed, whose bytes [%llu, %llu) %s (call %llu, "
                "stream %llu) %s, and the host did not wait for that",
                where, (unsigned long long)interval->from,
                (unsigned long long)interval->to, use->name,
                (unsigned long long)use->call_id,
                (unsigned long long)use->stream,
                interval->entries[k].writes ? "writes" : "reads");
        }
        if (interval->from >= from && interval->to <= to)
            entries_drop(interval);
    }
    return found;
}
