/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 9: take(self, index), a kernel that finds indices out of range when it
 * runs. */

#include "device.h"

#if STEP >= 9

/* Programs may pass i32 indices as well as i64. */
static int64_t index_at(const core_view *index, const char *data, int64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (index->dtype == CORE_I32) {
        memcpy(&narrow, data + i * 4, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, data + i * 8, sizeof wide);
    return wide;
}

static core_status compute(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *self = args[0].u.view, *index = args[1].u.view;
    const char *from = address(self->memory), *at = address(index->memory);
    char *to = address(results[0].u.view->memory);
    uint32_t size = core_sdk_itemsize(self->dtype);

    (void)nargs;
    (void)nresults;
    for (int64_t i = 0; i < index->numel; i++) {
        int64_t k = index_at(index, at, i);

        if (k < -self->numel || k >= self->numel) {
            stream_error_set(call->id, k);
            memset(to + i * size, 0, size);
            continue;
        }
        memcpy(to + i * size, from + (k < 0 ? k + self->numel : k) * size,
               size);
    }
    return CORE_OK;
}

static core_status launch_take(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    return launch_later(compute, call, args, nargs, results, nresults, NULL,
                        NULL);
}

core_status take_register(core_registry *registry)
{
    const uint32_t floats =
        CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_F64);
    const uint32_t indices =
        CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32);
    const core_kernel kernel = {.struct_size = sizeof kernel,
                                .demands = CORE_REQUIRE_CONTIGUOUS,
                                .name = core_sdk_string("take"),
                                .signature = {floats, indices, floats},
                                .launch = launch_take};
    const core_kernel *const one = &kernel;

    return host->register_kernels(registry, core_sdk_string(NAME), &one, 1);
}
#endif
