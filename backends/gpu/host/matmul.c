/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.c: products of matrices and vectors. */

#include <gpu/host/matmul.h>

#include <gpu/host/move.h>

enum { SIDE = 64 };

/* ----------------------------------------------------- vendor's library -- */

/* Whether the rows, or the columns (*out_turned), are dense, and the distance
 * between them. */
static bool dense_of(const gpu_matrix *m, int64_t rows, int64_t columns,
                     uint32_t *out_turned, int64_t *out_step)
{
    if (m->column == 1 || columns == 1) {
        *out_turned = 0;
        *out_step = rows == 1 && m->row < columns ? columns : m->row;
        return *out_step >= columns && *out_step <= INT32_MAX;
    }
    if (m->row == 1 || rows == 1) {
        *out_turned = 1;
        *out_step = m->column;
        return *out_step >= rows && *out_step <= INT32_MAX;
    }
    return false;
}

/* Row-major d = a b is column-major d^T = b^T a^T. */
static bool gemm_of(const core_call *call, core_dtype dtype,
                    const gpu_product *p, gpu_gemm *g)
{
    uint32_t turned;

    memset(g, 0, sizeof *g);
    if (dtype > CORE_BF16 || p->inner == 0 || p->rows > INT32_MAX ||
        p->columns > INT32_MAX || p->inner > INT32_MAX || p->batch > INT32_MAX)
        return false;
    /* f16 and bf16 would be rounded after each part. */
    if (p->sums > 1 && dtype > CORE_F32)
        return false;
    if (!dense_of(&p->b_strides, p->inner, p->columns, &g->a_transposed,
                  &g->a_step) ||
        !dense_of(&p->a_strides, p->rows, p->inner, &g->b_transposed,
                  &g->b_step) ||
        !dense_of(&p->d_strides, p->rows, p->columns, &turned, &g->c_step) ||
        turned)
        return false;
    g->dtype = dtype;
    g->allow_tf32 = (call->flags & CORE_CALL_ALLOW_TF32) != 0;
    g->captured = (call->flags & CORE_CALL_CAPTURING) != 0;
    g->m = p->columns;
    g->n = p->rows;
    g->k = p->inner;
    g->batch = p->batch;
    g->c = p->d;
    g->a_batch = p->b_strides.batch;
    g->b_batch = p->a_strides.batch;
    g->c_batch = p->d_strides.batch;
    g->alpha = p->alpha;
    return true;
}

/* d = c, which may be broadcast. */
static core_status broadcast_c(core_call *call, core_dtype dtype,
                               const gpu_product *p)
{
    const gpu_matrix *d = &p->d_strides, *c = &p->c_strides;
    int64_t sizes[3] = {p->batch, p->rows, p->columns};
    int64_t to[3] = {d->batch, d->row, d->column};
    int64_t from[3] = {c->batch, c->row, c->column};
    core_memory memory[2] = {{p->d, 0}, {(void *)(uintptr_t)p->c, 0}};

    if (p->c == p->d)
        return CORE_OK;
    return gpu_copy_window(call, dtype, 3, sizes, memory[0], to, memory[1],
                           from);
}

/* A graph may be launched on any stream, beside products of the stream on which
 * it was captured; so it has its own workspace. */
static core_status set_workspace(core_call *call, gpu_gemm *g, void **shared)
{
    uint64_t size = gpu_this_vendor.driver->multiply_workspace;
    core_status status = CORE_OK;
    core_memory memory;

    if (!g->captured || size == 0)
        return CORE_OK;
    if (*shared == NULL)
        status = gpu_host->call_scratch(call, size, &memory);
    if (*shared == NULL && status == CORE_OK)
        *shared = gpu_address(memory);
    g->workspace = *shared;
    return status;
}

/* Leaves the products after the first `sums`, whose results are in d. */
static void keep_remaining(gpu_product *p, int64_t sums, int64_t item)
{
    p->a = (const char *)p->a + sums * p->a_strides.sum * item;
    p->b = (const char *)p->b + sums * p->b_strides.sum * item;
    p->sums -= sums;
    p->c = p->d;
    p->c_strides = p->d_strides;
    p->beta = 1;
}

/* *out_done is false if the library is absent or refuses; `left` is then what
 * remains, and d may hold c. */
static core_status by_library(core_call *call, core_dtype dtype,
                              const gpu_product *p, void **shared,
                              gpu_product *left, bool *out_done)
{
    const gpu_driver *calls = gpu_this_vendor.driver;
    gpu_stream *stream = gpu_stream_of(call);
    int64_t item = core_sdk_itemsize(dtype);
    core_status status;
    int code = 0;
    gpu_gemm g;

    *out_done = false;
    *left = *p;
    if (calls->multiply == NULL || !gemm_of(call, dtype, p, &g))
        return CORE_OK;
    /* Asks before d is written. */
    g.batch = 0;
    if (calls->multiply(stream->device->context, stream->native, &g) != 0)
        return CORE_OK;
    g.batch = p->batch;
    status = set_workspace(call, &g, shared);
    if (status == CORE_OK && p->c != NULL && p->beta != 0)
        status = broadcast_c(call, dtype, p);
    for (int64_t s = 0; s < p->sums && code == 0 && status == CORE_OK; s++) {
        g.a = (const char *)p->b + s * p->b_strides.sum * item;
        g.b = (const char *)p->a + s * p->a_strides.sum * item;
        g.beta = s > 0 ? 1 : p->c != NULL ? p->beta : 0;
        code = calls->multiply(stream->device->context, stream->native, &g);
        if (code == GPU_ABSENT && s > 0)
            keep_remaining(left, s, item);
        if (code == GPU_ABSENT)
            return CORE_OK;
    }
    *out_done = true;
    return code == 0
               ? status
               : gpu_report(stream->device, code, "a product of matrices");
}

static core_status by_kernel(core_call *call, const char *name,
                             const gpu_product *p)
{
    uint64_t tiles = (uint64_t)((p->rows + SIDE - 1) / SIDE) *
                     (uint64_t)((p->columns + SIDE - 1) / SIDE);
    gpu_shape shape;

    if (tiles > INT32_MAX)
        return gpu_refuse(
            CORE_ERROR_UNSUPPORTED,
            "a product of %lld rows and %lld columns; at most 2^31 - 1 "
            "tiles are supported",
            (long long)p->rows, (long long)p->columns);
    shape = gpu_blocks(tiles, GPU_BLOCK);
    shape.grid[1] = (uint32_t)(p->batch < 65535 ? p->batch : 65535);
    return gpu_launch(call, "matmul", name, shape, p, sizeof *p);
}

core_status gpu_multiply(core_call *call, core_dtype dtype,
                         const gpu_product *p, void **shared)
{
    char name[GPU_NAME];
    core_status status;
    gpu_product left;
    bool done;

    if (p->batch == 0 || p->rows == 0 || p->columns == 0)
        return CORE_OK;
    status = by_library(call, dtype, p, shared, &left, &done);
    if (status != CORE_OK || done)
        return status;
    return by_kernel(call, gpu_name(name, "matmul", dtype), &left);
}

core_status gpu_multiply_wide(core_call *call, core_dtype dtype,
                              const gpu_product *p)
{
    if (p->batch == 0 || p->rows == 0 || p->columns == 0)
        return CORE_OK;
    return by_kernel(
        call, dtype == CORE_F16 ? "matmul_f16_f32" : "matmul_bf16_f32", p);
}

/* --------------------------------------------------------------- views -- */

enum { AS_COLUMN, AS_ROW };
enum { MATRICES, MATRIX_VECTOR, VECTORS, SUMMED, OUTER };

/* The last two dimensions; for a vector, a column or a row. */
static gpu_matrix matrix_of(const core_view *v, int vector)
{
    gpu_matrix m = {0, 0, 0, 0};
    uint32_t n = v->ndim;

    if (n >= 2) {
        m.row = v->strides[n - 2];
        m.column = v->strides[n - 1];
        m.batch = n > 2 ? v->strides[n - 3] : 0;
    } else if (n == 1 && vector == AS_COLUMN) {
        m.row = v->strides[0];
    } else if (n == 1) {
        m.column = v->strides[0];
    }
    return m;
}

/* self of addmm and similar operators, broadcast to `to`. */
static gpu_matrix broadcast(const core_view *v, const core_view *to)
{
    gpu_matrix m = {0, 0, 0, 0};
    int64_t *where[3] = {&m.column, &m.row, &m.batch};
    uint32_t first = to->ndim == 1 ? 1 : 0;

    for (uint32_t k = 0; k < v->ndim && k + first < 3; k++) {
        uint32_t d = v->ndim - 1 - k;

        *where[k + first] = v->sizes[d] == 1 ? 0 : v->strides[d];
    }
    return m;
}

static void fill_product(gpu_product *p, const core_view *a, const core_view *b,
                         const core_view *d, int what)
{
    p->a = gpu_address(a->memory);
    p->b = gpu_address(b->memory);
    p->d = gpu_address(d->memory);
    p->alpha = 1;
    p->alpha_whole = 1;
    p->sums = 1;
    p->a_strides = matrix_of(a, what == OUTER ? AS_COLUMN : AS_ROW);
    p->b_strides = matrix_of(b, what == OUTER ? AS_ROW : AS_COLUMN);
    p->d_strides = matrix_of(d, AS_COLUMN);
    p->batch = what == MATRICES && d->ndim == 3 ? d->sizes[0] : 1;
    p->inner = what == OUTER ? 1 : a->sizes[a->ndim - 1];
    p->rows = what == VECTORS ? 1
              : what == OUTER ? a->sizes[0]
                              : a->sizes[a->ndim - 2];
    p->columns =
        what == MATRIX_VECTOR || what == VECTORS ? 1 : b->sizes[b->ndim - 1];
    if (what == SUMMED) {
        p->sums = a->sizes[0];
        p->a_strides.sum = p->a_strides.batch;
        p->b_strides.sum = p->b_strides.batch;
    }
}

/* mm(self, mat2), bmm, mv, dot, vdot */
static core_status product(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    void *shared = NULL;
    gpu_product p;

    (void)nargs;
    (void)nresults;
    memset(&p, 0, sizeof p);
    fill_product(&p, args[0].u.view, args[1].u.view, results[0].u.view,
                 (int)(intptr_t)call->user);
    return gpu_multiply(call, results[0].u.view->dtype, &p, &shared);
}

/* addmm(self, mat1, mat2, beta, alpha), baddbmm, addbmm, addmv, addr */
static core_status add_product(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    static const core_value one = {.tag = CORE_VALUE_INT, .u.i = 1};
    const core_value *beta = nargs > 3 ? &args[3] : &one;
    const core_value *alpha = nargs > 4 ? &args[4] : &one;
    const core_view *self = args[0].u.view, *to = results[0].u.view;
    void *shared = NULL;
    gpu_product p;

    (void)nresults;
    memset(&p, 0, sizeof p);
    fill_product(&p, args[1].u.view, args[2].u.view, to,
                 (int)(intptr_t)call->user);
    p.beta = core_sdk_double(beta, 1);
    p.alpha = core_sdk_double(alpha, 1);
    p.beta_whole = core_sdk_int(beta, 1);
    p.alpha_whole = core_sdk_int(alpha, 1);
    /* If beta is 0, self is not read: it may contain NaN. */
    if (p.beta != 0) {
        p.c = gpu_address(self->memory);
        p.c_strides = broadcast(self, to);
    }
    return gpu_multiply(call, to->dtype, &p, &shared);
}

core_status gpu_register_matmul(core_registry *registry)
{
    static const core_dtype dtypes[] = {CORE_F64,  CORE_F32, CORE_F16,
                                        CORE_BF16, CORE_I64, CORE_I32,
                                        CORE_I16,  CORE_I8,  CORE_U8};
    static const struct {
        const char *name;
        core_function launch;
        intptr_t what;
        uint32_t operands;
    } operators[] = {
        {"mm", product, MATRICES, 3},
        {"bmm", product, MATRICES, 3},
        {"mv", product, MATRIX_VECTOR, 3},
        {"dot", product, VECTORS, 3},
        {"vdot", product, VECTORS, 3},
        {"addmm", add_product, MATRICES, 4},
        {"baddbmm", add_product, MATRICES, 4},
        {"addbmm", add_product, SUMMED, 4},
        {"addmv", add_product, MATRIX_VECTOR, 4},
        {"addr", add_product, OUTER, 4},
    };
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
            gpu_row row = {operators[i].name,
                           operators[i].launch,
                           (void *)operators[i].what,
                           {0},
                           0,
                           NULL};

            for (uint32_t k = 0; k < operators[i].operands; k++)
                row.signature[k] = CORE_DTYPE_MASK(dtypes[t]);
            if (status == CORE_OK)
                status = gpu_register(registry, &row, 1);
        }
    return status;
}
