/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Cumulative sums, products, maxima, minima and log-sum-exp. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"scan", opencl_scan_cl, NULL, NULL};

enum { SUM, PRODUCT, EXPONENTIALS, MAXIMA, MINIMA };

/* cumsum(self, dim, dtype), cumprod; logcumsumexp(self, dim);
 * cummax(self, dim) -> (values, indices), cummin */
static core_status scan(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    static const char *const names[] = {"accumulate", "accumulate",
                                        "exponentials", "extremes", "extremes"};
    intptr_t what = (intptr_t)call->user;
    const core_view *to = results[0].u.view;
    core_dtype types[2] = {to->dtype, args[0].u.view->dtype};
    opencl_line line = opencl_line_of(to, args[1].u.i);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, names[what]);
    opencl_view(&l, &results[0]);
    if (what >= MAXIMA)
        opencl_view(&l, &results[1]);
    opencl_view(&l, &args[0]);
    opencl_long(&l, line.outer);
    opencl_long(&l, line.size);
    opencl_long(&l, line.inner);
    opencl_int(&l, what >= MAXIMA ? what == MINIMA : what == PRODUCT);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

core_status opencl_register_scan(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, ONCE = 2 };
    static const uint32_t any = OPENCL_ALL & ~OPENCL_BOOL;
    const opencl_row sums[] = {
        {"cumsum", scan, (void *)SUM, {OPENCL_ALL, any}, DENSE},
        {"cumprod", scan, (void *)PRODUCT, {OPENCL_ALL, any}, DENSE},
    };
    core_status status = opencl_register(registry, sums, ONCE, 0);

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {
            {"cummax", scan, (void *)MAXIMA, {m, m, OPENCL_I64}, DENSE},
            {"cummin", scan, (void *)MINIMA, {m, m, OPENCL_I64}, DENSE},
            {"logcumsumexp", scan, (void *)EXPONENTIALS, {m, m}, DENSE},
        };

        status = opencl_register(registry, rows, d <= CORE_BF16 ? 3 : 2, 0);
    }
    return status;
}
