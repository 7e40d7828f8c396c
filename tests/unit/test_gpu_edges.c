/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of backends/gpu at edges that recorded cases do not reach: tables
 * that have nothing. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "gpuemu.h"

#define gpu gpuemu()

/* ------------------------------------------------------ nothing to read -- */

static core_tensor *zeros(core_dtype dtype, size_t ndim, const int64_t *sizes)
{
    return CALL(zeros, sizes, ndim, dtype, gpu);
}

/* An index is bad there, whatever it is: nothing is read for it, it is told,
 * and the device goes on. */
static void is_told(core_status status)
{
    OK(status);
    FAILS(core_device_synchronize(gpu), CORE_ERROR_INDEX, "out of range");
    same(VECTOR(2, 3, 3),
         CALL(add_scalar, zeros(CORE_F64, 1, (int64_t[]){2}), core_int(3),
              core_int(1)),
         0);
}

START_TEST(an_index_of_an_empty_table_is_told)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16, CORE_U8};
    int64_t none[] = {0, 4}, line[] = {3}, row[] = {1, 4};
    core_tensor *out = NULL;

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        core_tensor *table = zeros(dtypes[i], 2, none);

        is_told(core_embedding(table, zeros(CORE_I64, 1, line), -1, false,
                               false, &out));
        keep(out);
        is_told(core_gather(table, 0, zeros(CORE_I64, 2, row), false, &out));
        keep(out);
    }
}
END_TEST

EMULATED_SUITE("gpu, edges", an_index_of_an_empty_table_is_told)
