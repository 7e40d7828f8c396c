/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* factory.c: arange, linspace, eye, triangles, and the indices of triangles
 * (kernels/index.cu and pad.cu). */

#include <gpu/host/host.h>
#include <gpu/shared_index.h>
#include <gpu/shared_pad.h>

#include <math.h>

static core_status finish_rule(core_call *call, const char *name, gpu_rule *p)
{
    if (p->count == 0)
        return CORE_OK;
    return gpu_launch(call, "index", name,
                      gpu_spread(gpu_stream_of(call)->device, p->count, 2), p,
                      sizeof *p);
}

static gpu_rule begin_rule(const core_view *to)
{
    gpu_rule p;

    memset(&p, 0, sizeof p);
    p.to = gpu_address(to->memory);
    p.count = (uint64_t)to->numel;
    p.dtype = to->dtype;
    if (to->ndim >= 2) {
        p.rows = to->sizes[to->ndim - 2];
        p.columns = to->sizes[to->ndim - 1];
    }
    return p;
}

/* arange.start_step(start, end, step, …), arange.start(start, end, …),
 * arange(end, …).  The user pointer is the number of these arguments. */
static core_status arange(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    static const core_value zero = {.tag = CORE_VALUE_INT};
    static const core_value one = {.tag = CORE_VALUE_INT, .u.i = 1};
    intptr_t given = (intptr_t)call->user;
    const core_value *start = given > 1 ? &args[0] : &zero;
    const core_value *step = given > 2 ? &args[2] : &one;
    gpu_rule p = begin_rule(results[0].u.view);

    (void)nargs;
    (void)nresults;
    p.start = core_sdk_double(start, 0);
    p.width = core_sdk_double(step, 1);
    p.first = core_sdk_int(start, 0);
    p.step = core_sdk_int(step, 1);
    return finish_rule(call, "rule_arange", &p);
}

/* eye(n, …), eye.m(n, m, …) */
static core_status eye(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    gpu_rule p = begin_rule(results[0].u.view);

    (void)args;
    (void)nargs;
    (void)nresults;
    return finish_rule(call, "rule_eye", &p);
}

/* tril(self, diagonal), triu */
static core_status triangle(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    gpu_rule p = begin_rule(results[0].u.view);
    char name[GPU_NAME] = "rule_triangle_";

    (void)nresults;
    p.from = gpu_data(&args[0]);
    p.diagonal = nargs > 1 ? core_sdk_int(&args[1], 0) : 0;
    p.upper = call->user != NULL;
    strcat(name, gpu_width_name(core_sdk_itemsize(results[0].u.view->dtype)));
    return finish_rule(call, name, &p);
}

/* linspace(start, end, steps, …) */
static core_status linspace(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_range p;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    memset(&p, 0, sizeof p);
    p.to = gpu_data(&results[0]);
    p.count = to->numel;
    p.dtype = to->dtype;
    p.start = core_sdk_double(&args[0], 0);
    p.end = core_sdk_double(&args[1], 0);
    if (to->dtype > CORE_BF16) {
        p.start = (double)core_sdk_int(&args[0], 0);
        p.end = (double)core_sdk_int(&args[1], 0);
    }
    if (p.count > 1)
        p.width = isinf(p.end - p.start) /* the ends may be finite */
                      ? p.end / (double)(p.count - 1) -
                            p.start / (double)(p.count - 1)
                      : (p.end - p.start) / (double)(p.count - 1);
    return gpu_launch(
        call, "pad", "pad_linspace",
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)p.count, 1), &p,
        sizeof p);
}

/* tril_indices(row, col, offset, …), triu_indices; the user pointer is 1 for
 * the upper triangle */
static core_status triangle_indices(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    int64_t rows = args[0].u.i, columns = args[1].u.i, offset = args[2].u.i;
    gpu_range p;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    /* Rows without elements are skipped: there may be very many. */
    offset = offset < -rows ? -rows : offset > columns ? columns : offset;
    memset(&p, 0, sizeof p);
    p.to = gpu_data(&results[0]);
    p.count = to->numel / 2;
    p.dtype = to->dtype;
    p.upper = call->user != NULL;
    p.columns = columns;
    p.offset = offset;
    p.begin = !p.upper && offset < 0 ? -offset : 0;
    p.stop = p.upper && columns - offset < rows ? columns - offset : rows;
    return gpu_launch(call, "pad", "pad_triangle",
                      gpu_blocks((uint64_t)(p.stop - p.begin), GPU_BLOCK), &p,
                      sizeof p);
}

core_status gpu_register_factory(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, NUMBERS = GPU_M_ALL & ~GPU_M_BOOL };
    static const gpu_row rows[] = {
        {"arange", arange, (void *)1, {NUMBERS}, DENSE, NULL},
        {"arange.start", arange, (void *)2, {NUMBERS}, DENSE, NULL},
        {"arange.start_step", arange, (void *)3, {NUMBERS}, DENSE, NULL},
        {"eye", eye, NULL, {GPU_M_ALL}, DENSE, NULL},
        {"eye.m", eye, NULL, {GPU_M_ALL}, DENSE, NULL},
        {"tril", triangle, NULL, {0}, DENSE, NULL},
        {"triu", triangle, (void *)1, {0}, DENSE, NULL},
        {"linspace", linspace, NULL, {NUMBERS}, DENSE, NULL},
        {"tril_indices", triangle_indices, NULL, {NUMBERS}, DENSE, NULL},
        {"triu_indices", triangle_indices, (void *)1, {NUMBERS}, DENSE, NULL},
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
