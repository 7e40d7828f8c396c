/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradient destinations that disturb each other: two for one input, and buffers
 * that share memory.  Sorted, because a model can have many. */

#include "autograd/engine/destination.h"

#include "base/memory.h"
#include "tensor/layout.h"

#include <stdlib.h>

bool core__destination_shares_memory(const core_tensor *a, const core_tensor *b)
{
    if (core__likely(a->storage != b->storage))
        return false;
    if (core__likely(a->dtype == b->dtype &&
                     a->flags & b->flags & CORE__TENSOR_DENSE &&
                     (a->offset + a->numel <= b->offset ||
                      b->offset + b->numel <= a->offset)))
        return false;
    return core__layout_overlap(a, b) != CORE__OVERLAP_NONE;
}

/* What is sorted: an input, or the bytes of a buffer in its storage. */
typedef struct entry {
    uintptr_t object; /* the input or the storage */
    uint64_t from, to;
    size_t index;
} entry;

static int compare(const void *left, const void *right)
{
    const entry *a = left, *b = right;

    if (a->object != b->object)
        return a->object < b->object ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static size_t lower(const entry *a, const entry *b)
{
    return a->index < b->index ? a->index : b->index;
}

static size_t higher(const entry *a, const entry *b)
{
    return a->index < b->index ? b->index : a->index;
}

static core_status check_inputs(const char *name,
                                core_gradient_destination *given, size_t count,
                                entry *entries)
{
    for (size_t i = 0; i < count; i++)
        entries[i] = (entry){
            .object = (uintptr_t)core__destination_given(given, i)->input,
            .index = i};
    qsort(entries, count, sizeof *entries, compare);
    for (size_t i = 1; i < count; i++)
        if (entries[i - 1].object == entries[i].object)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "%s: destinations %zu and %zu are for the same input", name,
                entries[i - 1].index, entries[i].index);
    return CORE_OK;
}

/* Buffers with elements, which have bytes. */
static size_t list_buffers(core_gradient_destination *given, size_t count,
                           entry *entries)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        const core_tensor *buffer = core__destination_given(given, i)->buffer;

        if (buffer->numel == 0 || !buffer->storage)
            continue;
        entries[found] =
            (entry){.object = (uintptr_t)buffer->storage, .index = i};
        core__layout_bytes(buffer, &entries[found].from, &entries[found].to);
        found++;
    }
    return found;
}

/* Only ranges that overlap are compared by element. */
static core_status check_buffers(const char *name,
                                 core_gradient_destination *given, size_t count,
                                 entry *entries)
{
    count = list_buffers(given, count, entries);
    qsort(entries, count, sizeof *entries, compare);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1;
             j < count && entries[j].object == entries[i].object &&
             entries[j].from < entries[i].to;
             j++)
            if (core__destination_shares_memory(
                    core__destination_given(given, entries[i].index)->buffer,
                    core__destination_given(given, entries[j].index)->buffer))
                return core__error(
                    CORE_ERROR_INVALID_ARGUMENT,
                    "%s: destinations %zu and %zu share memory; each gradient "
                    "needs its own",
                    name, lower(&entries[i], &entries[j]),
                    higher(&entries[i], &entries[j]));
    return CORE_OK;
}

core_status core__destinations_check_pairs(const char *name,
                                           core_gradient_destination *given,
                                           size_t count)
{
    entry few[16], *entries = few;
    core_status status;

    if (count > sizeof few / sizeof *few)
        entries = core__alloc(count * sizeof *entries);
    if (!entries)
        return core__error_memory(count * sizeof *entries);
    status = check_inputs(name, given, count, entries);
    if (status == CORE_OK)
        status = check_buffers(name, given, count, entries);
    if (entries != few)
        core__free(entries);
    return status;
}
