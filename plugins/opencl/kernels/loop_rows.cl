/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_rows.cl: reductions of loop programs.  loop_rows.c writes the kernels
 * behind this. */

/* As in reductions (reduce.c). */
#define ROW_SUM(s, t) ((s) + (t))
#define ROW_MAX(s, t) ((s) > (t) || (s) != (s) ? (s) : (t))
#define ROW_MIN(s, t) ((s) < (t) || (s) != (s) ? (s) : (t))

/* Combines what the items of a group have; each gets the result. */
#define COMBINE_ROW(lanes, value, COMBINE)                                    \
    lanes[me] = value;                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                             \
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {                     \
        if (me < half_)                                                       \
            lanes[me] = COMBINE(lanes[me], lanes[me + half_]);                \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
    }                                                                         \
    value = lanes[0];                                                         \
    barrier(CLK_LOCAL_MEM_FENCE)
