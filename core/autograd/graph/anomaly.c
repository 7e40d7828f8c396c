/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Anomaly mode: records where in the program nodes were made. */

#define _GNU_SOURCE /* dladdr1 */

#include "autograd/graph/anomaly.h"

#include "autograd/graph/hooks.h"
#include "base/memory.h"
#include "base/thread.h"
#include "io/symbol_table.h"

#include <libcore/autograd.h>
#include <libcore/tensor.h>

#include <dlfcn.h>
#include <link.h>
#include <inttypes.h>
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

#if defined(__GLIBC__)
/* "function+0x1a (file)"; without a symbol "file+0x1a7b", for addr2line. */
static size_t print_frame(const char *address, const Dl_info *info,
                          const struct link_map *file, char *text, size_t size)
{
    const char *path = file->l_name[0] ? file->l_name : "/proc/self/exe";
    uint64_t position = (uint64_t)(uintptr_t)address - file->l_addr;
    core__symbol symbol;
    int length;

    /* The call that has not returned is before the address. */
    if (core__symbol_find(path, position - 1, &symbol))
        length = snprintf(text, size, "%s+0x%" PRIx64 " (%s)", symbol.name,
                          position - symbol.address, info->dli_fname);
    else if (info->dli_sname)
        length =
            snprintf(text, size, "%s+0x%tx (%s)", info->dli_sname,
                     address - (const char *)info->dli_saddr, info->dli_fname);
    else
        length =
            snprintf(text, size, "%s+0x%" PRIx64, info->dli_fname, position);
    return length > 0 ? (size_t)length : 0;
}
#endif

/* Prints the program's frames; those of this library are of no interest, unless
 * the two are linked into one file. */
static size_t print_frames(const core__anomaly_place_record *place, bool all,
                           char *text, size_t size)
{
#if defined(__GLIBC__)
    Dl_info own = {0}, info;
    struct link_map *file;
    size_t length = 0;
    int shown = 0;

    dladdr((void *)(uintptr_t)core__anomaly_note, &own);
    all = all || is_program(&own);
    for (int i = 0; i < place->nframes && shown < SHOWN && length < size; i++) {
        const char *address = place->frames[i];

        if (!dladdr1(address, &info, (void **)&file, RTLD_DL_LINKMAP) ||
            (!all && info.dli_fbase == own.dli_fbase))
            continue;
        if (shown++ && length + 2 < size)
            length += (size_t)snprintf(text + length, size - length, ", ");
        length +=
            print_frame(address, &info, file, text + length, size - length);
    }
    return length < size ? length : size;
#else
    (void)place, (void)all, (void)text, (void)size;
    return 0; /* there are no frames */
#endif
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
