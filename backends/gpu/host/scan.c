/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scan.c: cumulative sums, products, maxima, minima and log-sum-exp. */

#include <gpu/host/host.h>
#include <gpu/shared_line.h>

enum { SUM, PRODUCT, EXPONENTIALS, MAXIMA, MINIMA };

/* One thread scans a line that is shorter, or one of many adjacent lines.  The
 * choice depends on the problem alone, since the order of sums depends on
 * it. */
enum { SHORT_LINE = 64, MANY_LINES = 4096 };

/* cumsum(self, dim, dtype), cumprod; logcumsumexp(self, dim);
 * cummax(self, dim) -> (values, indices), cummin */
static core_status scan(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    static const char *const names[] = {"sum", "product", "exponential",
                                        "extreme", "extreme"};
    intptr_t what = (intptr_t)call->user;
    const core_view *to = results[0].u.view;
    gpu_line line = gpu_line_of(to, args[1].u.i);
    gpu_scan p;
    uint64_t lines = (uint64_t)(line.outer * line.inner);
    char name[GPU_NAME];
    bool alone =
        line.size < SHORT_LINE || (line.inner > 1 && lines >= MANY_LINES);

    (void)nargs;
    if (to->numel == 0)
        return CORE_OK;
    memset(&p, 0, sizeof p);
    p.to = gpu_data(&results[0]);
    p.where = nresults > 1 ? gpu_data(&results[1]) : NULL;
    p.from = gpu_data(&args[0]);
    p.outer = line.outer;
    p.size = line.size;
    p.inner = line.inner;
    p.to_dtype = to->dtype;
    p.from_dtype = args[0].u.view->dtype;
    p.least = what == MINIMA;
    snprintf(name, sizeof name, "scan_%s_%s_%s", names[what],
             to->dtype <= CORE_BF16 ? "float" : "whole",
             alone ? "alone" : "block");
    return gpu_launch(call, "scan", name,
                      alone ? gpu_spread(gpu_stream_of(call)->device, lines, 1)
                            : gpu_blocks(lines, GPU_BLOCK),
                      &p, sizeof p);
}

core_status gpu_register_scan(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, ALL = GPU_M_ALL };
    enum { NUMBERS = GPU_M_FLOATS | GPU_M_WHOLE, F = GPU_M_FLOATS };
    static const gpu_row rows[] = {
        {"cumsum", scan, (void *)SUM, {ALL, NUMBERS}, DENSE, NULL},
        {"cumprod", scan, (void *)PRODUCT, {ALL, NUMBERS}, DENSE, NULL},
        {"logcumsumexp", scan, (void *)EXPONENTIALS, {F, F}, DENSE, NULL},
        {"cummax", scan, (void *)MAXIMA, {ALL, ALL, GPU_M_I64}, DENSE, NULL},
        {"cummin", scan, (void *)MINIMA, {ALL, ALL, GPU_M_I64}, DENSE, NULL},
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
