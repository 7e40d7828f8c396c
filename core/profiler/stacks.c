/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Folded stacks, the input of flame graph programs: "outer;inner 1234". */

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"
#include "profiler/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, LINE = 8192 };

typedef struct stack {
    char *text;
    uint64_t self;
} stack;

typedef struct stacks {
    stack *items;
    size_t count, capacity;
} stacks;

/* Semicolons and line breaks have a meaning in the format. */
static size_t put_name(char *line, size_t capacity, const char *name)
{
    size_t size = core__profile_printable_name(line, capacity, name);

    for (size_t i = 0; i < size; i++)
        if (line[i] == ';')
            line[i] = ',';
    return size;
}

static void write_path(const core__profile_part *part, uint32_t at, char *line)
{
    uint32_t path[DEPTH], depth = 0;
    size_t size = (size_t)snprintf(line, LINE, "thread %u", part->thread);

    for (; at != CORE__PROFILE_NONE && depth < DEPTH;
         at = part->events[at].parent)
        path[depth++] = at;
    while (depth-- > 0 && size + 2 < LINE) {
        line[size++] = ';';
        size += put_name(line + size, LINE - size - 1,
                         part->events[path[depth]].name);
    }
    line[size] = 0;
}

static core_status collect(stacks *stacks, const core__profile_part *part,
                           char *line)
{
    uint64_t *self =
        core__alloc_zero((part->nevents + (size_t)1) * sizeof *self);

    if (!self)
        return core__error_memory(part->nevents * sizeof *self);
    for (uint32_t i = 0; i < part->nevents; i++) {
        const core__profile_event *event = &part->events[i];
        uint64_t length = core__profile_event_duration(event);

        self[i] += length; /* children come later and subtract their own */
        if (event->parent != CORE__PROFILE_NONE)
            self[event->parent] -=
                self[event->parent] > length ? length : self[event->parent];
    }
    for (uint32_t i = 0; i < part->nevents; i++) {
        if (stacks->count == stacks->capacity) {
            size_t capacity = stacks->capacity * 2 + 1024;
            stack *grown =
                core__realloc(stacks->items, capacity * sizeof *grown);

            if (!grown)
                goto no_memory;
            stacks->items = grown;
            stacks->capacity = capacity;
        }
        write_path(part, i, line);
        stacks->items[stacks->count].self = self[i];
        stacks->items[stacks->count].text = core__strdup(line);
        if (!stacks->items[stacks->count].text)
            goto no_memory;
        stacks->count++;
    }
    core__free(self);
    return CORE_OK;
no_memory:
    core__free(self);
    return core__error_memory(stacks->capacity * sizeof *stacks->items);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(((const stack *)left)->text, ((const stack *)right)->text);
}

static core_status write(const stacks *stacks, const char *path)
{
    core__file file;
    core_status status = core__file_begin(&file, path);
    char number[32];

    if (status != CORE_OK)
        return status;
    for (size_t i = 0; i < stacks->count && status == CORE_OK;) {
        const char *text = stacks->items[i].text;
        uint64_t self = 0;
        int size;

        for (; i < stacks->count && strcmp(stacks->items[i].text, text) == 0;
             i++)
            self += stacks->items[i].self;
        size = snprintf(number, sizeof number, " %llu\n",
                        (unsigned long long)self);
        status = core__file_write(&file, text, strlen(text));
        if (status == CORE_OK)
            status = core__file_write(&file, number, (size_t)size);
    }
    if (status == CORE_OK)
        status = core__file_commit(&file);
    core__file_end(&file);
    return status;
}

core_status core_profiler_save_stacks(core_profiler *profiler, const char *path)
{
    core_status status = CORE_OK;
    stacks stacks = {0};
    char *line;

    CORE__NOT_NULL(profiler);
    CORE__NOT_NULL(path);
    CORE_TRY(core__event_summary_sorted(profiler, CORE_PROFILE_BY_SELF));
    line = core__alloc(LINE);
    if (!line)
        return core__error_memory(LINE);
    for (size_t i = 0; i < profiler->nparts && status == CORE_OK; i++)
        status = collect(&stacks, &profiler->parts[i], line);
    if (status == CORE_OK && stacks.count)
        qsort(stacks.items, stacks.count, sizeof *stacks.items, by_text);
    if (status == CORE_OK)
        status = write(&stacks, path);
    for (size_t i = 0; i < stacks.count; i++)
        core__free(stacks.items[i].text);
    core__free(stacks.items);
    core__free(line);
    return status;
}
