/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop.h: element-wise operators.
 *
 * An operator provides rows: functions that compute a dense run of one type.
 * The driver here does the rest for every operator: it walks the loop,
 * passes dense operands to the row in place and others through blocks
 * (block.h), converts dtypes that are not the row's, and shares long loops
 * among threads.  Compiled per instruction set. */

#ifndef CPU_LOOP_H
#define CPU_LOOP_H

#include "block.h"
#include "cpu.h"
#include "elementwise.h"
#include "isa.h"

/* The kernels.  plain: no parameters, no variants, operands of the row's types;
 * plain_1, plain_2: one output and that many inputs.  alpha: like plain_2 if
 * args[2] is 1.  general: everything. */
core_status CPU_NAME(cpu_loop_general)(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults);
core_status CPU_NAME(cpu_loop_plain)(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults);
core_status CPU_NAME(cpu_loop_plain_1)(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults);
core_status CPU_NAME(cpu_loop_plain_2)(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults);
core_status CPU_NAME(cpu_loop_alpha)(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults);
#define cpu_loop_general CPU_NAME(cpu_loop_general)
#define cpu_loop_plain CPU_NAME(cpu_loop_plain)
#define cpu_loop_plain_1 CPU_NAME(cpu_loop_plain_1)
#define cpu_loop_plain_2 CPU_NAME(cpu_loop_plain_2)
#define cpu_loop_alpha CPU_NAME(cpu_loop_alpha)

/* For kernels with their own preparation: runs `row` over the loop. */
core_status CPU_NAME(cpu_loop_run)(const core_call *call,
                                   const cpu_elementwise *self, cpu_row row,
                                   cpu_parameters *parameters);
#define cpu_loop_run CPU_NAME(cpu_loop_run)

/* Steps over a loop's index space. */
typedef struct cpu_index {
    int64_t at[CORE_MAX_NDIM];
} cpu_index;

static inline void cpu_index_set(cpu_index *index, const core_loop *loop,
                                 int64_t linear)
{
    uint32_t d;

    for (d = 0; d < loop->ndim; d++) {
        index->at[d] = linear % loop->sizes[d];
        linear /= loop->sizes[d];
    }
}

/* Advances by n elements, within the row or exactly to its end. */
static inline void cpu_index_advance(cpu_index *index, const core_loop *loop,
                                     int64_t n)
{
    uint32_t d;

    if (loop->ndim == 0)
        return;
    index->at[0] += n;
    for (d = 0; d + 1 < loop->ndim && index->at[d] == loop->sizes[d]; d++) {
        index->at[d] = 0;
        index->at[d + 1]++;
    }
}

static inline int64_t cpu_index_offset(const cpu_index *index,
                                       const core_loop *loop,
                                       const int64_t *strides)
{
    int64_t offset = 0;
    uint32_t d;

    for (d = 0; d < loop->ndim; d++)
        offset += index->at[d] * strides[d];
    return offset;
}

#endif
