/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How many calls of each operator and dtype the CPU computed for a device without
 * a kernel: logged at exit if the environment has LIBCORE_FALLBACK=count. */

#define _GNU_SOURCE /* secure_getenv */

#include "base/log.h"
#include "base/settings.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "tensor/dtype.h"
#include "ops_ids.h"

#include <libcore/dispatch.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint64_t counted;
/* Of built-in operators, by dtype. */
enum { DTYPES = CORE_BOOL + 1 };
static _Atomic uint64_t calls[CORE_OP_COUNT][DTYPES];
/* The process of the first call: its children inherit the counts, and do not
 * report them again. */
static _Atomic pid_t process;

void core__fallback_note(const core_operator *op, core_dtype dtype)
{
    if (atomic_fetch_add(&counted, 1) == 0)
        atomic_store(&process, getpid());
    if (!(op->flags & CORE__OP_CUSTOM))
        atomic_fetch_add(&calls[op - core__operators]
                               [dtype < DTYPES ? dtype : CORE_DTYPE_NONE],
                         1);
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
    core_dtype dtype;
    uint64_t calls;
} total;

static int most_calls_first(const void *a, const void *b)
{
    const total *one = a, *two = b;
    int names = strcmp(one->name, two->name);

    return one->calls != two->calls
               ? (one->calls < two->calls) - (one->calls > two->calls)
           : names != 0 ? names
                        : (one->dtype > two->dtype) - (one->dtype < two->dtype);
}

/* Stores what was counted for each operator and dtype.  Those of programs and
 * plugins are counted together. */
static size_t collect(total *totals, uint64_t all)
{
    uint64_t others = all;
    size_t count = 0;

    for (uint32_t i = 0; i < CORE_OP_COUNT; i++)
        for (core_dtype d = 0; d < DTYPES; d++) {
            const core_operator *op = &core__operators[i];
            uint64_t n = atomic_load(&calls[i][d]);

            if (n == 0)
                continue;
            totals[count++] = (total){core__operator_name(op),
                                      core__operator_kernel_name(op), d, n};
            others -= n < others ? n : others;
        }
    if (others > 0)
        totals[count++] =
            (total){"(operators of plugins)", "(operators of plugins)",
                    CORE_DTYPE_NONE, others};
    return count;
}

static void report_total(const total *one)
{
    bool same = strcmp(one->name, one->kernel) == 0;
    bool typed = one->dtype != CORE_DTYPE_NONE;

    core__log_always(CORE_LOG_INFO, "fallback", "%10llu  %s%s%s%s%s%s",
                     (unsigned long long)one->calls, one->name,
                     same ? "" : " (kernel ", same ? "" : one->kernel,
                     same ? "" : ")", typed ? " of " : "",
                     typed ? core__dtype_name(one->dtype) : "");
}

__attribute__((destructor)) static void report(void)
{
    uint64_t all = atomic_load(&counted);
    total *totals;
    size_t count;

    if (all == 0 || !is_wanted())
        return;
    totals = malloc((CORE_OP_COUNT * DTYPES + 1) * sizeof *totals);
    if (!totals)
        return;
    count = collect(totals, all);
    qsort(totals, count, sizeof *totals, most_calls_first);
    core__log_always(CORE_LOG_INFO, "fallback",
                     "calls that the CPU computed, because their device has no "
                     "kernel: %llu",
                     (unsigned long long)all);
    for (size_t i = 0; i < count; i++)
        report_total(&totals[i]);
    free(totals);
}
