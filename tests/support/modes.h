/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* modes.h: modes for tests, popped when the test ends. */

#ifndef TESTS_SUPPORT_MODES_H
#define TESTS_SUPPORT_MODES_H

#include "autograd.h"

#include <libcore/mode.h>

static core_mode *modes[16];
static size_t nmodes;

/* The calls that `note` has seen: "name " each, after the mode's prefix. */
static char seen[4096];

static inline core_mode *push(uint32_t level, core_function function,
                              void *user)
{
    OK(core_mode_push(level, function, user, &modes[nmodes]));
    return modes[nmodes++];
}

static inline void pop(void)
{
    OK(core_mode_pop(modes[--nmodes]));
}

static inline void pop_all(void)
{
    while (nmodes)
        pop();
    drop_all();
}

/* Appends the prefix, its user pointer, and the operator's name. */
static inline core_status note(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    size_t used = strlen(seen);

    snprintf(seen + used, sizeof seen - used, "%s%s ",
             call->user ? (const char *)call->user : "",
             core_op_name(call->op));
    return core_redispatch_below(call, args, nargs, results, nresults);
}

/* Compares the elements of an f64 tensor without calling an operator. */
static inline void reads(core_tensor *tensor, size_t count,
                         const double *values)
{
    double have[16];

    ck_assert_int_eq(core_tensor_numel(tensor), (int64_t)count);
    OK(core_tensor_read(tensor, have, count * sizeof *have));
    for (size_t i = 0; i < count; i++)
        ck_assert_double_eq(have[i], values[i]);
}

#define READS(tensor, n, ...) reads(tensor, n, (double[]){__VA_ARGS__})

/* The calls since the last look. */
#define SEEN(text)                    \
    do {                              \
        ck_assert_str_eq(seen, text); \
        seen[0] = '\0';               \
    } while (0)

#endif
