/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.c: products of matrices and vectors. */

#include <gpu/host/matmul.h>

enum { SIDE = 64 };

core_status gpu_multiply(core_call *call, core_dtype dtype,
                         const gpu_product *p)
{
    uint64_t tiles;
    char name[GPU_NAME];
    gpu_shape shape;

    if (p->batch == 0 || p->rows == 0 || p->columns == 0)
        return CORE_OK;
    tiles = (uint64_t)((p->rows + SIDE - 1) / SIDE) *
            (uint64_t)((p->columns + SIDE - 1) / SIDE);
    if (tiles > INT32_MAX)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "a product of %lld rows and %lld columns",
                          (long long)p->rows, (long long)p->columns);
    shape = gpu_blocks(tiles, GPU_BLOCK);
    shape.grid[1] = (uint32_t)(p->batch < 65535 ? p->batch : 65535);
    return gpu_launch(call, "matmul", gpu_name(name, "matmul", dtype), shape, p,
                      sizeof *p);
}

/* --------------------------------------------------------------- views -- */

enum { AS_COLUMN, AS_ROW };
enum { MATRICES, MATRIX_VECTOR, VECTORS, SUMMED, OUTER };

/* The last two dimensions; of a vector, a column or a row. */
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

/* self of addmm and its like, broadcast to `to`. */
static gpu_matrix spread(const core_view *v, const core_view *to)
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
    gpu_product p;

    (void)nargs;
    (void)nresults;
    memset(&p, 0, sizeof p);
    fill_product(&p, args[0].u.view, args[1].u.view, results[0].u.view,
                 (int)(intptr_t)call->user);
    return gpu_multiply(call, results[0].u.view->dtype, &p);
}

/* addmm(self, mat1, mat2, beta, alpha), baddbmm, addbmm, addmv, addr */
static core_status added(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    static const core_value one = {.tag = CORE_VALUE_INT, .u.i = 1};
    const core_value *beta = nargs > 3 ? &args[3] : &one;
    const core_value *alpha = nargs > 4 ? &args[4] : &one;
    const core_view *self = args[0].u.view, *to = results[0].u.view;
    gpu_product p;

    (void)nresults;
    memset(&p, 0, sizeof p);
    fill_product(&p, args[1].u.view, args[2].u.view, to,
                 (int)(intptr_t)call->user);
    p.beta = core_sdk_double(beta, 1);
    p.alpha = core_sdk_double(alpha, 1);
    p.beta_whole = core_sdk_int(beta, 1);
    p.alpha_whole = core_sdk_int(alpha, 1);
    /* What is multiplied by 0 is not looked at: it may be NaN. */
    if (p.beta != 0) {
        p.c = gpu_address(self->memory);
        p.c_strides = spread(self, to);
    }
    return gpu_multiply(call, to->dtype, &p);
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
        {"mm", product, MATRICES, 3},       {"bmm", product, MATRICES, 3},
        {"mv", product, MATRIX_VECTOR, 3},  {"dot", product, VECTORS, 3},
        {"vdot", product, VECTORS, 3},      {"addmm", added, MATRICES, 4},
        {"baddbmm", added, MATRICES, 4},    {"addbmm", added, SUMMED, 4},
        {"addmv", added, MATRIX_VECTOR, 4}, {"addr", added, OUTER, 4},
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
