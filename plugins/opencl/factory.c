/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* arange, linspace, eye and triangles. */

#include "opencl.h"
#include "opencl_kernels.h"

#include <math.h>

static const opencl_source source = {"factory", opencl_factory_cl, NULL, NULL};

/* arange.start_step(start, end, step, …), arange.start(start, end, …),
 * arange(end, …): the user pointer is the number of these arguments. */
static core_status arange(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    static const core_value zero = {.tag = CORE_VALUE_INT};
    static const core_value one = {.tag = CORE_VALUE_INT, .u.i = 1};
    intptr_t given = (intptr_t)call->user;
    const core_value *start = given > 1 ? &args[0] : &zero;
    const core_value *step = given > 2 ? &args[2] : &one;
    const core_view *to = results[0].u.view;
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, "arange");
    opencl_view(&l, &results[0]);
    opencl_long(&l, to->numel);
    opencl_double(&l, core_sdk_double(start, 0));
    opencl_double(&l, core_sdk_double(step, 1));
    opencl_long(&l, core_sdk_int(start, 0));
    opencl_long(&l, core_sdk_int(step, 1));
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

/* eye(n, …), eye.m(n, m, …) */
static core_status eye(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    opencl_launch l;

    (void)args;
    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, "eye");
    opencl_view(&l, &results[0]);
    opencl_long(&l, to->numel);
    opencl_long(&l, to->sizes[1]);
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

/* tril(self, diagonal), triu */
static core_status triangle(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    core_dtype bits = core_sdk_itemsize(to->dtype) == 8   ? CORE_I64
                      : core_sdk_itemsize(to->dtype) == 4 ? CORE_I32
                      : core_sdk_itemsize(to->dtype) == 2 ? CORE_I16
                                                          : CORE_U8;
    opencl_launch l;

    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &bits, 1, "triangle");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_long(&l, to->numel);
    opencl_long(&l, to->sizes[to->ndim - 2]);
    opencl_long(&l, to->sizes[to->ndim - 1]);
    opencl_long(&l, nargs > 1 ? core_sdk_int(&args[1], 0) : 0);
    opencl_int(&l, call->user != NULL);
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

/* linspace(start, end, steps, …) */
static core_status linspace(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    double start = core_sdk_double(&args[0], 0);
    double end = core_sdk_double(&args[1], 0), width = 0;
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    if (to->dtype > CORE_BF16) {
        start = (double)core_sdk_int(&args[0], 0);
        end = (double)core_sdk_int(&args[1], 0);
    }
    if (to->numel > 1) {
        double steps = (double)(to->numel - 1);

        width = isinf(end - start) /* the ends may be finite */
                    ? end / steps - start / steps
                    : (end - start) / steps;
    }
    l = opencl_begin(call, &source, &to->dtype, 1, "linspace");
    opencl_view(&l, &results[0]);
    opencl_long(&l, to->numel);
    opencl_double(&l, start);
    opencl_double(&l, end);
    opencl_double(&l, width);
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

/* tril_indices(row, col, offset, …), triu_indices: the user pointer is set for
 * upper */
static core_status triangle_indices(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    int64_t rows = args[0].u.i, columns = args[1].u.i, offset = args[2].u.i;
    bool upper = call->user != NULL;
    int64_t begin, end;
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    /* Skips rows without elements, of which there may be very many. */
    offset = offset < -rows ? -rows : offset > columns ? columns : offset;
    begin = !upper && offset < 0 ? -offset : 0;
    end = upper && columns - offset < rows ? columns - offset : rows;
    l = opencl_begin(call, &source, &to->dtype, 1, "triangle_indices");
    opencl_view(&l, &results[0]);
    opencl_long(&l, to->numel / 2);
    opencl_long(&l, begin);
    opencl_long(&l, end);
    opencl_long(&l, columns);
    opencl_long(&l, offset);
    opencl_int(&l, upper);
    return opencl_run(&l, (uint64_t)(end - begin), OPENCL_GROUP);
}

core_status opencl_register_factory(core_registry *registry)
{
    enum {
        NUMBERS = OPENCL_FLOATS | OPENCL_INTEGERS,
        DENSE = CORE_REQUIRE_CONTIGUOUS
    };
    static const opencl_row rows[] = {
        {"arange", arange, (void *)1, {NUMBERS}, DENSE},
        {"arange.start", arange, (void *)2, {NUMBERS}, DENSE},
        {"arange.start_step", arange, (void *)3, {NUMBERS}, DENSE},
        {"eye", eye, NULL, {NUMBERS | OPENCL_BOOL}, DENSE},
        {"eye.m", eye, NULL, {NUMBERS | OPENCL_BOOL}, DENSE},
        {"linspace", linspace, NULL, {NUMBERS}, DENSE},
        {"tril_indices", triangle_indices, NULL, {NUMBERS}, DENSE},
        {"triu_indices", triangle_indices, (void *)1, {NUMBERS}, DENSE},
        {"tril", triangle, NULL, {0}, DENSE},
        {"triu", triangle, (void *)1, {0}, DENSE},
    };

    return opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
}
