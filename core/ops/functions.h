/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* functions.h: declarations shared by view operators, composites and inference
 * functions. */

#ifndef CORE_OPS_FUNCTIONS_H
#define CORE_OPS_FUNCTIONS_H

#include "dispatch/operator.h"
#include "ops/infer.h"

#include <libcore/ops.h>

/* Begins the function of an operator, core__op_<name>, which ops.yaml refers to
 * by `function:` or by the operator's C name.  Also declares it, since only the
 * generated table calls it. */
#define CORE__OP(name)                                                       \
    core_status core__op_##name(core_call *call, const core_value *args,     \
                                uint32_t nargs, core_value *results,         \
                                uint32_t nresults);                          \
    core_status core__op_##name(core_call *call __attribute__((unused)),     \
                                const core_value *args                       \
                                __attribute__((unused)),                     \
                                uint32_t nargs __attribute__((unused)),      \
                                core_value *results __attribute__((unused)), \
                                uint32_t nresults __attribute__((unused)))

/* Begins an inference function, core__infer_<name>. */
#define CORE__INFER(name)                                   \
    core_status core__infer_##name(core__inference *infer); \
    core_status core__infer_##name(core__inference *infer)

/* ------------------------------------------------------------- results -- */

/* Takes over the reference; NULL becomes NONE. */
static inline void core__result_tensor(core_value *result, core_tensor *tensor)
{
    result->tag = tensor ? CORE_VALUE_TENSOR : CORE_VALUE_NONE;
    result->count = 0;
    result->u.tensor = tensor;
}

/* ----------------------------------------------------------- arguments -- */

/* A list of integers; a single number counts as a list of one.  For NONE,
 * *out_count is 0 and the result NULL. */
static inline const int64_t *core__ints_of(const core_value *value,
                                           size_t *out_count)
{
    static const int64_t nothing;

    *out_count = 0;
    if (value->tag == CORE_VALUE_INT) {
        *out_count = 1;
        return &value->u.i;
    }
    if (value->tag != CORE_VALUE_INT_LIST)
        return NULL;
    *out_count = value->count;
    return value->count ? value->u.ints : &nothing;
}

/* Fills out_values with count numbers from a list that may have one for all
 * (int[2] given as 3); returns SHAPE for any other length.  NONE fills in
 * `absent`; an empty list is an error. */
core_status core__ints_fill(const core_operator *op, const char *name,
                            const core_value *value, size_t count,
                            int64_t absent, int64_t *out_values);

/* view_fast_path.c: a fast path before core__function_run for an operator that
 * has one, or that. */
core_function core__function_fast_path(const core_operator *op);

#endif
