/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Anomaly mode: records where in the program nodes were made. */

#include "autograd/graph/anomaly.h"

#include "autograd/graph/hooks.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/autograd.h>
#include <libcore/tensor.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#if defined(__GLIBC__)
#include <execinfo.h>
#endif

enum { FRAMES = 48, SHOWN = 12 };

struct core__anomaly_place_record {
    char *label;  /* the program's label, or NULL */
    char *within; /* the node that was running if a backward recorded this one;
                   * or NULL */
    int nframes;
    void *frames[];
};

bool core_anomaly_mode_set(bool enabled)
{
    core__thread *self = core__thread_self();
    bool before = self->anomaly;

    self->anomaly = enabled;
    return before;
}

bool core_anomaly_mode(void)
{
    return core__thread_self()->anomaly;
}

const char *core_anomaly_place_set(const char *place)
{
    core__thread *self = core__thread_self();
    const char *before = self->anomaly_place;

    self->anomaly_place = place;
    return before;
}

/* ---------------------------------------------------------------- places -- */

static char *copy(const char *text)
{
    return text ? core__strndup(text, strlen(text)) : NULL;
}

static core__anomaly_place_record *place_new(const core__thread *self)
{
    void *frames[FRAMES];
    core__anomaly_place_record *place;
    int count = 0;

#if defined(__GLIBC__)
    if (!self->anomaly_place)
        count = backtrace(frames, FRAMES);
#endif
    place = core__alloc(sizeof *place + (size_t)count * sizeof *frames);
    if (!place)
        return NULL;
    place->label = copy(self->anomaly_place);
    place->within = self->running ? copy(self->running->name) : NULL;
    place->nframes = count;
    memcpy(place->frames, frames, (size_t)count * sizeof *frames);
    return place;
}

void core__anomaly_place_destroy(core__anomaly_place_record *place)
{
    if (!place)
        return;
    core__free(place->label);
    core__free(place->within);
    core__free(place);
}

void core__anomaly_note(core_node *node)
{
    core__error_record earlier;
    core__node_hooks *hooks;

    /* Without memory, recording continues without a place. */
    core__error_save(&earlier);
    if (core__node_hooks_make(node, &hooks) == CORE_OK && !hooks->place)
        hooks->place = place_new(core__thread_self());
    core__error_restore(&earlier);
}

/* Whether this library and the program are linked into one file. */
static bool is_program(const Dl_info *own)
{
    Dl_info program = {0};

    return dladdr((void *)(uintptr_t)getauxval(AT_ENTRY), &program) &&
           program.dli_fbase == own->dli_fbase;
}

/* Prints the program's frames; those of this library are of no interest, unless
 * the two are linked into one file. */
static size_t print_frames(const core__anomaly_place_record *place, bool all,
                           char *text, size_t size)
{
    Dl_info own = {0}, info;
    size_t length = 0;
    int shown = 0;

    dladdr((void *)(uintptr_t)core__anomaly_note, &own);
    all = all || is_program(&own);
    for (int i = 0; i < place->nframes && shown < SHOWN && length < size; i++) {
        const char *address = place->frames[i], *start;

        if (!dladdr(address, &info) ||
            (!all && info.dli_fbase == own.dli_fbase))
            continue;
        start = info.dli_sname ? info.dli_saddr : info.dli_fbase;
        length += (size_t)snprintf(
            text + length, size - length, "%s%s+0x%lx (%s)",
            shown++ ? ", " : "", info.dli_sname ? info.dli_sname : "?",
            (unsigned long)(address - start), info.dli_fname);
    }
    return length;
}

const char *core__anomaly_place(core_node *node, char *text, size_t size)
{
    core__node_hooks *hooks = atomic_load(&node->hooks);
    const core__anomaly_place_record *place = hooks ? hooks->place : NULL;
    size_t length = 0;

    if (!place) {
        snprintf(text, size,
                 "a place that is not known, since anomaly mode was off then");
        return text;
    }
    text[0] = '\0';
    if (place->within)
        length = (size_t)snprintf(text, size, "the backward of %s, at ",
                                  place->within);
    if (length >= size)
        return text;
    if (place->label)
        snprintf(text + length, size - length, "%s", place->label);
    else if (!print_frames(place, false, text + length, size - length) &&
             !print_frames(place, true, text + length, size - length))
        snprintf(text + length, size - length, "an unknown place");
    return text;
}

/* ---------------------------------------------------------------- checks -- */
