/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linalg.c: Cholesky and QR factorisations, and triangular systems.  The CPU
 * computes all other factorisations. */

#include <gpu/host/move.h>
#include <gpu/shared_linalg.h>

static gpu_factor begin(core_call *call, const core_view *self)
{
    gpu_factor p;

    memset(&p, 0, sizeof p);
    p.from = gpu_address(self->memory);
    p.dtype = self->dtype;
    p.batch = 1;
    for (uint32_t d = 0; d + 2 < self->ndim; d++)
        p.batch *= self->sizes[d];
    p.rows = self->sizes[self->ndim - 2];
    p.columns = self->sizes[self->ndim - 1];
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

static core_status run(core_call *call, const char *name, gpu_factor *p,
                       int64_t numbers, gpu_shape shape)
{
    core_memory scratch;
    core_status status = gpu_host->call_scratch(
        call, (uint64_t)numbers * sizeof(double), &scratch);

    if (status != CORE_OK)
        return status;
    p->scratch = gpu_address(scratch);
    return gpu_launch(call, "linalg", name, shape, p, sizeof *p);
}

static bool truth(const core_value *value)
{
    return value->tag != CORE_VALUE_NONE && value->u.i != 0;
}

/* linalg_cholesky_ex(self, upper, check_errors) -> (L, info) */
static core_status cholesky(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    gpu_factor p = begin(call, args[0].u.view);

    (void)nargs;
    (void)nresults;
    p.upper = truth(&args[1]);
    p.check = truth(&args[2]);
    p.to = gpu_data(&results[0]);
    p.info = gpu_data(&results[1]);
    p.info_dtype = results[1].u.view->dtype;
    if (p.rows == 0)
        return gpu_fill_view(call, results[1].u.view, 0);
    return run(call, "linalg_cholesky", &p, p.batch * p.rows * p.rows,
               gpu_blocks((uint64_t)p.batch, GPU_BLOCK));
}

/* linalg_qr(A, mode) -> (Q, R) */
static core_status qr(core_call *call, const core_value *args, uint32_t nargs,
                      core_value *results, uint32_t nresults)
{
    const core_view *q = results[0].u.view, *r = results[1].u.view;
    gpu_factor p = begin(call, args[0].u.view);
    int64_t steps = p.rows < p.columns ? p.rows : p.columns;

    (void)nargs;
    (void)nresults;
    p.to_q = gpu_data(&results[0]);
    p.to = gpu_data(&results[1]);
    p.q_columns = q->numel > 0 ? q->sizes[q->ndim - 1] : 0;
    p.r_rows = r->sizes[r->ndim - 2];
    if (q->numel == 0 && r->numel == 0)
        return CORE_OK;
    return run(call, "linalg_qr", &p,
               p.batch * (p.rows * p.columns + p.rows * p.q_columns +
                          steps * (p.rows + 1)),
               gpu_blocks((uint64_t)p.batch, GPU_BLOCK));
}

/* linalg_solve_triangular(self, B, upper, left, unitriangular): solves self X =
 * B or X self = B.  The batches are already expanded. */
static core_status solve(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    const core_view *b = args[1].u.view, *to = results[0].u.view;
    gpu_factor p = begin(call, to);
    core_status status = CORE_OK;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    p.from = gpu_data(&args[0]);
    p.to = gpu_data(&results[0]);
    p.upper = truth(&args[2]);
    p.left = truth(&args[3]);
    p.unit = truth(&args[4]);
    if (gpu_address(b->memory) != gpu_address(to->memory))
        status =
            gpu_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                            to->strides, b->memory, b->strides);
    if (status != CORE_OK)
        return status;
    return run(call, "linalg_solve", &p, to->numel,
               gpu_spread(gpu_stream_of(call)->device,
                          (uint64_t)(p.batch * (p.left ? p.columns : p.rows)),
                          1));
}

core_status gpu_register_linalg(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, I = GPU_M_I64 | GPU_M_I32 };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_F32 && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"linalg_cholesky_ex", cholesky, NULL, {m, m, I}, DENSE, NULL},
            {"linalg_qr", qr, NULL, {m, m, m}, DENSE, NULL},
            {"linalg_solve_triangular", solve, NULL, {m, m, m}, DENSE, NULL},
        };

        status = gpu_register(registry, rows, sizeof rows / sizeof *rows);
    }
    return status;
}
