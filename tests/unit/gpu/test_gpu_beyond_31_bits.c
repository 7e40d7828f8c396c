/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reductions in backends/gpu over more than 2^31 elements, which repeat so that
 * they fit in memory. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "support/gpu_emulated.h"

#define gpu gpuemu()

/* One element, repeated: more than 2^31, as a line and as a matrix.  Takes half a
 * minute. */
START_TEST(reductions_count_beyond_31_bits)
{
    if (!effort_is_long()) {
        suite_skip("only with LIBCORE_TEST_LONG");
        return;
    }
    const int64_t n = (INT64_C(1) << 31) + 3, rows = 2,
                  columns = (1 << 30) + 64;
    core_tensor *one = CALL(ones, (int64_t[]){1, 1}, 2, CORE_F32, gpu), *x;
    float got[2];

    x = CALL(expand, CALL(view_sizes, one, (int64_t[]){1}, 1), &n, 1, false);
    OK(core_tensor_read(CALL(sum, x, CORE_DTYPE_NONE), got, sizeof *got));
    ck_assert_float_eq(got[0], (float)n);
    x = CALL(expand, one, ((int64_t[]){rows, columns}), 2, false);
    OK(core_tensor_read(
        CALL(sum_dim, x, &(int64_t){1}, 1, false, CORE_DTYPE_NONE), got,
        sizeof got));
    for (int i = 0; i < 2; i++)
        ck_assert_float_eq(got[i], (float)columns);
}
END_TEST

/* Two dimensions that cannot be merged are both reduced.  Rows repeat, so that
 * they fit in memory; the index of a row also exceeds 2^31. */
START_TEST(several_dimensions_are_reduced_beyond_31_bits)
{
    const int64_t rows = (1 << 8) + 1, columns = (1 << 23) + 9;
    core_tensor *x = CALL(arange_start_step, core_int(0), core_int(rows),
                          core_int(1), CORE_F32, gpu);
    float got;

    ck_assert_int_gt(rows * columns, INT32_MAX);
    x = CALL(expand, CALL(unsqueeze, x, 1), ((int64_t[]){rows, columns}), 2,
             false);
    OK(core_tensor_read(CALL(sum, x, CORE_DTYPE_NONE), &got, sizeof got));
    ck_assert_float_eq(got, (float)(rows * (rows - 1) / 2 * columns));
}
END_TEST

EMULATED_SUITE("gpu/gpu_beyond_31_bits", reductions_count_beyond_31_bits,
               several_dimensions_are_reduced_beyond_31_bits)
