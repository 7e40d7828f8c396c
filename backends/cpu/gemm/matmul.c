/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.c: mm, bmm, mv, dot and the variants that add to something.
 *
 * All are one product of batches of matrices, C = beta S + alpha A B.
 * Operands are used in place if BLAS can read them (one of the two strides
 * is 1), and packed otherwise; f16 and bf16 are computed in f32 and rounded
 * once.  If the machine has bf16 instructions, bf16.h computes those. */

#include "bf16/bf16.h"
#include "bf16_vector.h"
#include "blas.h"
#include "codegen/epilogue.h"
#include "gemm.h"
#include "isa.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* A batch of matrices somewhere in memory; strides in elements. */
typedef struct matrix {
    char *data;
    core_dtype dtype;
    int64_t batch_stride, rows, columns, row_stride, column_stride;
} matrix;

typedef struct product {
    core_dtype dtype; /* computed in */
    int64_t batch, m, n, k;
    matrix a, b, c, s; /* s.data NULL: no S */
    bool ta, tb;
    bool sum_batches; /* sums all batches into one C */
    bool own;         /* by gemm.h */
    int64_t lda, ldb;
    int64_t rows, columns, across, tiles; /* tiles of one C */
    cpu_epilogue *epilogue;               /* or NULL */
    union {
        float f32;
        double f64;
        int64_t i64;
    } alpha, beta;
} product;

/* ------------------------------------------------------------- operands -- */

enum { AS_COLUMN, AS_ROW };

static matrix matrix_of(const core_view *view, uint32_t vector)
{
    matrix x = {.data = cpu_address(view->memory),
                .dtype = view->dtype,
                .rows = 1,
                .columns = 1};
    const int64_t *sizes = view->sizes, *strides = view->strides;

    if (view->ndim == 1 && vector == AS_COLUMN) {
        x.rows = sizes[0];
        x.row_stride = strides[0];
    } else if (view->ndim == 1) {
        x.columns = sizes[0];
        x.column_stride = strides[0];
    } else if (view->ndim >= 2) {
        uint32_t d = view->ndim - 2;
        x.rows = sizes[d];
        x.columns = sizes[d + 1];
        x.row_stride = strides[d];
        x.column_stride = strides[d + 1];
        x.batch_stride = d > 0 ? strides[0] : 0;
    }
    return x;
}

static matrix transposed(matrix x)
{
    matrix y = x;

    y.rows = x.columns;
    y.columns = x.rows;
    y.row_stride = x.column_stride;
    y.column_stride = x.row_stride;
    return y;
}

/* Tests for contiguous rows; returns the distance between rows. */
static bool row_major(const matrix *x, int64_t *out_distance)
{
    if (x->columns > 1 && x->column_stride != 1)
        return false;
    if (x->rows > 1 && x->row_stride < x->columns)
        return false;
    *out_distance = x->rows > 1 ? x->row_stride : x->columns;
    if (*out_distance < 1)
        *out_distance = 1;
    return true;
}

/* Makes an operand readable by BLAS: as it is, transposed, or packed. */
static core_status operand_prepare(matrix *x, core_dtype dtype, int64_t batch,
                                   bool *out_transpose, int64_t *out_distance,
                                   void **out_owned)
{
    matrix y = transposed(*x);
    int64_t copies = x->batch_stride == 0 ? 1 : batch;
    int64_t sizes[3] = {copies, x->rows, x->columns};
    int64_t from[3] = {x->batch_stride, x->row_stride, x->column_stride};
    int64_t to[3] = {x->rows * x->columns, x->columns, 1};

    *out_transpose = false;
    if (x->dtype == dtype) {
        if (row_major(x, out_distance))
            return CORE_OK;
        *out_transpose = row_major(&y, out_distance);
        if (*out_transpose)
            return CORE_OK;
    }
    *out_owned = cpu_scratch_elements(copies * to[0], cpu_item_size(dtype));
    if (!*out_owned)
        return CORE_ERROR_OUT_OF_MEMORY;
    cpu_copy(dtype, *out_owned, to, x->dtype, x->data, from, 3, sizes);
    x->data = *out_owned;
    x->dtype = dtype;
    x->batch_stride = copies > 1 ? to[0] : 0;
    x->row_stride = to[1];
    x->column_stride = to[2];
    *out_distance = x->columns > 0 ? x->columns : 1;
    return CORE_OK;
}

/* ---------------------------------------------------------------- tiles -- */

/* The number of tiles of gemm.h per thread, and the sides of tiles: not much
 * smaller, and columns in whole vectors. */
enum { OWN_TILES = 4, OWN_ROWS = 96, OWN_COLUMNS = 128, OWN_ROUND = 32 };

static int64_t divide_up(int64_t n, int64_t by)
{
    return by > 0 ? (n + by - 1) / by : 0;
}

/* A tile of C. */
typedef struct product_tile {
    const product *p;
    int64_t batch, i, j, m, n;
} product_tile;

static void tile_finished(void *context, int64_t row, int64_t rows,
                          int64_t column, int64_t columns)
{
    const product_tile *t = context;

    cpu_epilogue_run(t->p->epilogue, t->batch, t->i + row, rows, t->j + column,
                     columns);
}

/* beta C + alpha A B for a part of C.  With gemm.h the bits do not depend on
 * the part. */
static bool own_f32(product_tile *t, int64_t k, const float *a, const float *b,
                    float beta, float *c)
{
    const product *p = t->p;
    const gemm_problem part = {.m = t->m,
                               .n = t->n,
                               .k = k,
                               .a = a,
                               .row_a = p->ta ? 1 : p->lda,
                               .step_a = p->ta ? p->lda : 1,
                               .b = b,
                               .step_b = p->tb ? 1 : p->ldb,
                               .column_b = p->tb ? p->ldb : 1,
                               .c = c,
                               .distance = p->c.row_stride,
                               .alpha = p->alpha.f32,
                               .beta = beta,
                               .finished = p->epilogue ? tile_finished : NULL,
                               .context = t};

    return p->own && cpu_gemm_multiply(&part);
}

#define PRODUCT_PART(NAME, TYPE, OWN)                                          \
    static void product_part_##NAME(product_tile *t, int64_t k, const TYPE *a, \
                                    const TYPE *b, TYPE beta, TYPE *c)         \
    {                                                                          \
        const product *p = t->p;                                               \
        if (OWN)                                                               \
            return;                                                            \
        cpu_gemm_##NAME(p->ta, p->tb, t->m, t->n, k, p->alpha.NAME, a, p->lda, \
                        b, p->ldb, beta, c, p->c.row_stride);                  \
        if (p->epilogue)                                                       \
            tile_finished(t, 0, t->m, 0, t->n);                                \
    }
PRODUCT_PART(f32, float, own_f32(t, k, a, b, beta, c))
PRODUCT_PART(f64, double, false)
PRODUCT_PART(i64, int64_t, false)
#undef PRODUCT_PART

#define PRODUCT_TILE(NAME, TYPE)                                               \
    static void add_to_##NAME(const product *p, TYPE *c, int64_t batch,        \
                              int64_t i, int64_t j, int64_t m, int64_t n)      \
    {                                                                          \
        uint32_t size = cpu_item_size(p->s.dtype);                             \
        for (int64_t row = 0; row < m; row++)                                  \
            cpu_get_##NAME(c + row * p->c.row_stride, p->s.dtype,              \
                           p->s.data + (batch * p->s.batch_stride +            \
                                        (i + row) * p->s.row_stride +          \
                                        j * p->s.column_stride) *              \
                                           size,                               \
                           p->s.column_stride, n);                             \
    }                                                                          \
    static void product_tile_##NAME(const product *p, int64_t batch,           \
                                    int64_t i, int64_t j)                      \
    {                                                                          \
        int64_t m = p->m - i < p->rows ? p->m - i : p->rows;                   \
        int64_t n = p->n - j < p->columns ? p->n - j : p->columns;             \
        int64_t last = p->sum_batches ? p->batch : batch + 1;                  \
        const TYPE *a = (const TYPE *)p->a.data + (p->ta ? i : i * p->lda);    \
        const TYPE *b = (const TYPE *)p->b.data + (p->tb ? j * p->ldb : j);    \
        TYPE *c = (TYPE *)p->c.data + batch * p->c.batch_stride +              \
                  i * p->c.row_stride + j;                                     \
        TYPE beta = p->beta.NAME;                                              \
        product_tile tile = {p, batch, i, j, m, n};                            \
        if (p->s.data && p->s.data != p->c.data)                               \
            add_to_##NAME(p, c, batch, i, j, m, n);                            \
        if (last == batch) /* no batches at all */                             \
            product_part_##NAME(&tile, 0, a, b, beta, c);                      \
        for (; batch < last; batch++, beta = 1)                                \
            product_part_##NAME(&tile, p->k, a + batch * p->a.batch_stride,    \
                                b + batch * p->b.batch_stride, beta, c);       \
    }                                                                          \
    static void product_task_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        const product *p = context;                                            \
        for (int64_t item = begin; item < end; item++) {                       \
            int64_t tile = item % p->tiles;                                    \
            product_tile_##NAME(p, item / p->tiles,                            \
                                tile / p->across * p->rows,                    \
                                tile % p->across * p->columns);                \
        }                                                                      \
    }
CPU_COMPUTE_TYPES(PRODUCT_TILE)

/* Tiles for gemm.h: some per thread, tall ones, since each packs its columns of
 * B. */
static void own_tiles(product *p, int64_t items)
{
    int64_t threads = cpu_thread_pool_threads();

    p->rows = p->m;
    p->columns = p->n;
    while (threads > 1 &&
           items * divide_up(p->m, p->rows) * divide_up(p->n, p->columns) <
               OWN_TILES * threads) {
        if (p->columns >= 2 * OWN_COLUMNS)
            p->columns = divide_up(p->columns, 2 * OWN_ROUND) * OWN_ROUND;
        else if (p->rows >= 2 * OWN_ROWS)
            p->rows = divide_up(p->rows, 2);
        else
            break;
    }
}

/* Operands are prepared and C is row-major in the computed type. */
static void product_compute(product *p)
{
    int64_t work = p->m * p->n * (p->k > 0 ? p->k : 1);
    int64_t grain = work > 0 ? (INT64_C(1) << 19) / work : 1;
    cpu_task task = p->dtype == CORE_F32   ? product_task_f32
                    : p->dtype == CORE_F64 ? product_task_f64
                                           : product_task_i64;
    int64_t items = p->sum_batches ? 1 : p->batch;

    p->own = p->dtype == CORE_F32 && cpu_gemm_is_faster(p->m, p->n, p->k);
    if (p->own)
        own_tiles(p, items);
    else
        cpu_gemm_tiles(p->m, p->n, p->k, &p->rows, &p->columns);
    p->across = divide_up(p->n, p->columns);
    p->tiles = p->across * divide_up(p->m, p->rows);
    items *= p->tiles;
    if (items > 0)
        cpu_parallel_for(items, grain > 0 ? grain : 1, task, p);
}

/* ------------------------------------------------------------- of bf16 -- */

static bool product_is_bf16(const product *p)
{
    return p->a.dtype == CORE_BF16 && p->b.dtype == CORE_BF16 &&
           p->c.dtype == CORE_BF16 && !p->sum_batches &&
           cpu_bf16_is_faster(p->m, p->n, p->k);
}

static core_status product_bf16(const product *p)
{
    const cpu_bf16_product pairs = {
        .batch = p->batch,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = {(const uint16_t *)p->a.data, p->a.batch_stride, p->a.row_stride,
              p->a.column_stride},
        .b = {(const uint16_t *)p->b.data, p->b.batch_stride,
              p->b.column_stride, p->b.row_stride},
        .c = {p->c.data, p->c.dtype, p->c.batch_stride, p->c.row_stride,
              p->c.column_stride},
        .s = {p->s.data, p->s.dtype, p->s.batch_stride, p->s.row_stride,
              p->s.column_stride},
        .alpha = p->alpha.f32,
        .beta = p->beta.f32,
        .epilogue = p->epilogue};

    return p->batch > 0 ? cpu_bf16_multiply(&pairs) : CORE_OK;
}

/* --------------------------------------- of bf16 matrices and a vector -- */

/* The product of which p is the transpose. */
static product product_turned(const product *p)
{
    product turned = *p;

    turned.a = transposed(p->b);
    turned.b = transposed(p->a);
    turned.c = transposed(p->c);
    turned.s = transposed(p->s);
    turned.m = p->n;
    turned.n = p->m;
    return turned;
}

enum { VECTOR_ROWS = CPU_BF16_COLUMN /* of a task */ };

typedef struct vector_product {
    const product *p;
    cpu_bf16_vector functions;
    float *x; /* all of the batch */
    int64_t blocks;
} vector_product;

static cpu_bf16_vector bf16_vector(void)
{
    return CPU_CHOSEN(cpu_bf16_vector);
}

/* Tests whether B is a vector, and A of bf16 with dense rows or columns. */
static bool rows_times_vector(const product *p)
{
    return p->n == 1 && p->a.dtype == CORE_BF16 && p->dtype == CORE_F32 &&
           !p->sum_batches && p->k > 0 &&
           (p->a.column_stride == 1 || p->a.row_stride == 1);
}

/* Tests for such a product, and makes it one if it is transposed.  A transposed
 * one of f16 is turned, too: the rows of its matrix are then converted in the
 * order of memory. */
static bool product_is_vector(product *p)
{
    product turned = product_turned(p);
    bool is_turned = p->m == 1 && p->n != 1 && rows_times_vector(&turned);

    if (is_turned || (p->m == 1 && p->c.dtype == CORE_F16 &&
                      p->b.dtype == CORE_F16 && p->b.row_stride == 1))
        *p = turned;
    return is_turned || rows_times_vector(p);
}

/* alpha y + beta S for some rows. */
static void vector_finish(const product *p, int64_t batch, int64_t row,
                          int64_t rows, float *y)
{
    const matrix *c = &p->c, *s = &p->s;
    float sum[VECTOR_ROWS];

    for (int64_t i = 0; i < rows; i++)
        y[i] *= p->alpha.f32;
    if (s->data)
        cpu_get_f32(sum, s->dtype,
                    s->data + (batch * s->batch_stride + row * s->row_stride) *
                                  cpu_item_size(s->dtype),
                    s->row_stride, rows);
    for (int64_t i = 0; s->data && i < rows; i++)
        y[i] += p->beta.f32 * sum[i];
    cpu_put_f32(c->dtype,
                c->data + (batch * c->batch_stride + row * c->row_stride) *
                              cpu_item_size(c->dtype),
                c->row_stride, y, rows);
}

static void vector_task(void *context, int64_t begin, int64_t end)
{
    const vector_product *v = context;
    const product *p = v->p;

    for (int64_t item = begin; item < end; item++) {
        int64_t batch = item / v->blocks;
        int64_t row = item % v->blocks * VECTOR_ROWS, rows = p->m - row;
        const uint16_t *a = (const uint16_t *)p->a.data;
        float y[VECTOR_ROWS];

        rows = rows < VECTOR_ROWS ? rows : VECTOR_ROWS;
        a += batch * p->a.batch_stride + row * p->a.row_stride;
        if (p->a.column_stride == 1)
            v->functions.rows(a, p->a.row_stride, v->x + batch * p->k, p->k,
                              rows, y);
        else
            v->functions.columns(a, p->a.column_stride, v->x + batch * p->k,
                                 p->k, rows, y);
        vector_finish(p, batch, row, rows, y);
    }
}

/* One sum of two dense vectors, which is not worth a copy. */
static bool product_is_dot(const product *p)
{
    return p->batch == 1 && p->m == 1 && p->b.dtype == CORE_BF16 &&
           p->a.column_stride == 1 && p->b.row_stride == 1;
}

static void product_dot(const product *p)
{
    float y = bf16_vector().dot((const uint16_t *)p->a.data,
                                (const uint16_t *)p->b.data, p->k);

    vector_finish(p, 0, 0, 1, &y);
}

static core_status product_vector(const product *p)
{
    vector_product v = {.p = p,
                        .functions = bf16_vector(),
                        .blocks = divide_up(p->m, VECTOR_ROWS)};
    int64_t items = p->batch * v.blocks;

    if (items == 0)
        return CORE_OK;
    if (product_is_dot(p)) {
        product_dot(p);
        return CORE_OK;
    }
    v.x = cpu_scratch_elements(p->batch * p->k, (int64_t)sizeof *v.x);
    if (!v.x)
        return CORE_ERROR_OUT_OF_MEMORY;
    for (int64_t i = 0; i < p->batch; i++)
        cpu_get_f32(v.x + i * p->k, p->b.dtype,
                    p->b.data +
                        i * p->b.batch_stride * cpu_item_size(p->b.dtype),
                    p->b.row_stride, p->k);
    cpu_parallel_for(items, cpu_grain(items, VECTOR_ROWS * p->k), vector_task,
                     &v);
    cpu_scratch_give(v.x);
    return CORE_OK;
}

/* ----------------------------------------------------------- of others -- */

/* Computes C in separate memory if it is not row-major in the compute type, and
 * copies it back. */
static core_status product_run(product *p)
{
    core_status status = CORE_OK;
    void *owned_a = NULL, *owned_b = NULL, *owned_c = NULL;
    int64_t batches = p->sum_batches ? 1 : p->batch;
    int64_t sizes[3] = {batches, p->m, p->n};
    int64_t dense[3] = {p->m * p->n, p->n, 1};
    matrix c = p->c;
    int64_t strides[3] = {c.batch_stride, c.row_stride, c.column_stride};

    if (c.dtype != p->dtype || !row_major(&c, &p->c.row_stride)) {
        owned_c =
            cpu_scratch_elements(batches * dense[0], cpu_item_size(p->dtype));
        status = owned_c ? CORE_OK : CORE_ERROR_OUT_OF_MEMORY;
        if (status != CORE_OK)
            goto done;
        p->c = (matrix){
            owned_c, p->dtype, dense[0], p->m, p->n, p->n > 0 ? p->n : 1, 1};
    }
    status =
        operand_prepare(&p->a, p->dtype, p->batch, &p->ta, &p->lda, &owned_a);
    if (status != CORE_OK)
        goto done;
    status =
        operand_prepare(&p->b, p->dtype, p->batch, &p->tb, &p->ldb, &owned_b);
    if (status != CORE_OK)
        goto done;
    product_compute(p);
    if (owned_c)
        cpu_copy(c.dtype, c.data, strides, p->dtype, owned_c, dense, 3, sizes);
done:
    cpu_scratch_give(owned_a);
    cpu_scratch_give(owned_b);
    cpu_scratch_give(owned_c);
    return status;
}

/* A column-major result is that of the transposed product. */
static void product_orient(product *p)
{
    matrix turned = transposed(p->c);
    int64_t distance;

    if (p->c.dtype != p->dtype || row_major(&p->c, &distance) ||
        !row_major(&turned, &distance))
        return;
    *p = product_turned(p);
}

static void product_factor(product *p, const core_value *beta,
                           const core_value *alpha)
{
    if (p->dtype == CORE_F32) {
        p->alpha.f32 = alpha ? (float)cpu_float(alpha) : 1;
        p->beta.f32 = beta ? (float)cpu_float(beta) : 0;
    } else if (p->dtype == CORE_F64) {
        p->alpha.f64 = alpha ? cpu_float(alpha) : 1;
        p->beta.f64 = beta ? cpu_float(beta) : 0;
    } else {
        p->alpha.i64 = alpha ? cpu_int(alpha) : 1;
        p->beta.i64 = beta ? cpu_int(beta) : 0;
    }
}

/* -------------------------------------------------------------- kernels -- */

enum { MATRICES, MATRIX_VECTOR, VECTORS, OUTER, SUMMED };

/* The strides with which self, broadcast, is read as C's shape. */
static matrix broadcast(const core_view *self, const matrix *c, bool vector)
{
    matrix s = matrix_of(self, vector ? AS_COLUMN : AS_ROW);

    if (s.rows != c->rows)
        s.row_stride = 0;
    if (s.columns != c->columns)
        s.column_stride = 0;
    if (self->ndim > 2 && self->sizes[0] == 1)
        s.batch_stride = 0;
    return s;
}

/* If C is computed in its place, and finished with one product. */
static void take_epilogue(product *p)
{
    const matrix *c = &p->c;

    if (!p->sum_batches && (p->n == 1 || c->column_stride == 1) &&
        (p->m == 1 || c->row_stride == p->n) &&
        (p->batch == 1 || c->batch_stride == p->m * p->n))
        p->epilogue = cpu_epilogue_take(
            &(cpu_epilogue_result){c->data, c->dtype, p->batch, p->m, p->n});
}

/* beta self + alpha a b; self, beta and alpha may be NULL. */
static core_status multiply(const core_call *call, const core_view *self,
                            const core_view *a, const core_view *b,
                            const core_value *beta, const core_value *alpha,
                            const core_view *result)
{
    uintptr_t what = (uintptr_t)call->user;
    bool vector = what == MATRIX_VECTOR;
    product p = {.dtype = cpu_compute_dtype(result->dtype),
                 .batch = 1,
                 .sum_batches = what == SUMMED};

    p.a = matrix_of(a, what == VECTORS ? AS_ROW : AS_COLUMN);
    p.b = matrix_of(b, what == OUTER ? AS_ROW : AS_COLUMN);
    p.c = matrix_of(result, vector ? AS_COLUMN : AS_ROW);
    p.m = p.a.rows;
    p.n = p.b.columns;
    p.k = p.a.columns;
    if (a->ndim > 2)
        p.batch = a->sizes[0];
    if (self && cpu_float(beta) != 0)
        p.s = broadcast(self, &p.c, vector);
    product_factor(&p, p.s.data ? beta : NULL, alpha);
    if (product_is_bf16(&p)) {
        take_epilogue(&p);
        return product_bf16(&p);
    }
    if (product_is_vector(&p))
        return product_vector(&p);
    product_orient(&p);
    if (p.c.dtype == p.dtype)
        take_epilogue(&p);
    return product_run(&p);
}

/* mm(self, mat2), bmm, mv, dot */
static core_status launch_product(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return multiply(call, NULL, cpu_view(&args[0]), cpu_view(&args[1]), NULL,
                    NULL, cpu_view(&results[0]));
}

/* addmm(self, mat1, mat2, *, beta, alpha) and its like */
static core_status launch_added(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return multiply(call, cpu_view(&args[0]), cpu_view(&args[1]),
                    cpu_view(&args[2]), &args[3], &args[4],
                    cpu_view(&results[0]));
}

#define TWO                                   \
    {                                         \
        CPU_NUMBERS, CPU_NUMBERS, CPU_NUMBERS \
    }
#define THREE                                              \
    {                                                      \
        CPU_NUMBERS, CPU_NUMBERS, CPU_NUMBERS, CPU_NUMBERS \
    }

static const cpu_kernel kernels[] = {
    {"mm", launch_product, (void *)MATRICES, TWO, 0},
    {"bmm", launch_product, (void *)MATRICES, TWO, 0},
    {"mv", launch_product, (void *)MATRIX_VECTOR, TWO, 0},
    {"dot", launch_product, (void *)VECTORS, TWO, 0},
    {"vdot", launch_product, (void *)VECTORS, TWO, 0},
    {"addmm", launch_added, (void *)MATRICES, THREE, 0},
    {"baddbmm", launch_added, (void *)MATRICES, THREE, 0},
    {"addbmm", launch_added, (void *)SUMMED, THREE, 0},
    {"addmv", launch_added, (void *)MATRIX_VECTOR, THREE, 0},
    {"addr",
     launch_added,
     (void *)OUTER,
     {CPU_ALL, CPU_ALL, CPU_ALL, CPU_ALL},
     0},
};

const cpu_kernel_table cpu_matmul_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
