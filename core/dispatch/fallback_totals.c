/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How many calls of each operator the CPU computed for a device without a
 * kernel: logged at exit if the environment has LIBCORE_FALLBACK=count. */

#define _GNU_SOURCE /* secure_getenv */

#include "base/log.h"
#include "base/settings.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "ops_ids.h"

#include <libcore/dispatch.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint64_t counted;
/* The process of the first call: its children inherit the counts, and do not
 * report them again. */
static _Atomic pid_t process;

void core__fallback_note(const core_operator *op)
{
    if (atomic_fetch_add(&counted, 1) == 0)
        atomic_store(&process, getpid());
    core__conversion_count(op, CORE_CONVERSION_HOST);
}

static bool is_wanted(void)
{
    const char *given =
        secure_getenv(core__setting_name(CORE__SETTING_FALLBACK));
    const char *text = NULL;

    return atomic_load(&process) == getpid() && given &&
           strcmp(given, "count") == 0 &&
           core__setting_text(CORE__SETTING_FALLBACK, &text) == CORE_OK &&
           text && strcmp(text, "count") == 0;
}

typedef struct total {
    const char *name;
    const char *kernel; /* that a device would need */
    uint64_t calls;
} total;

static int most_calls_first(const void *a, const void *b)
{
    const total *one = a, *two = b;

    return one->calls != two->calls
               ? (one->calls < two->calls) - (one->calls > two->calls)
               : strcmp(one->name, two->name);
}

/* Operators of programs and plugins are counted together. */
__attribute__((destructor)) static void report(void)
{
    static total totals[CORE_OP_COUNT + 1];
    uint64_t all = atomic_load(&counted), others = all;
    size_t count = 0;

    if (all == 0 || !is_wanted())
        return;
    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core_operator *op = &core__operators[i];
        uint64_t calls = core_op_conversions(op, CORE_CONVERSION_HOST);

        if (calls == 0)
            continue;
        totals[count++] = (total){core__operator_name(op),
                                  core__operator_kernel_name(op), calls};
        others -= calls < others ? calls : others;
    }
    if (others > 0)
        totals[count++] =
            (total){"(operators of plugins)", "(operators of plugins)", others};
    qsort(totals, count, sizeof *totals, most_calls_first);
    core__log_always("fallback",
                     "calls that the CPU computed, because their device has no "
                     "kernel: %llu",
                     (unsigned long long)all);
    for (size_t i = 0; i < count; i++) {
        bool same = strcmp(totals[i].name, totals[i].kernel) == 0;

        core__log_always("fallback", "%10llu  %s%s%s%s",
                         (unsigned long long)totals[i].calls, totals[i].name,
                         same ? "" : " (kernel ", same ? "" : totals[i].kernel,
                         same ? "" : ")");
    }
}
