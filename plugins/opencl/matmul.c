/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products of matrices and vectors: of floats with a packed right operand on a
 * device that computes with vectors, as CPUs do; else by CLBlast if they are
 * large and it is installed, else by tiles. */

#include "opencl_kernels.h"
#include "packed_weights.h"

static const opencl_source source = {"matmul", opencl_matmul_cl, NULL, NULL};

/* Of kernels/matmul.cl. */
enum { TILE = 16, LANES = 16, ROWS = 4, BLOCKS = 8 };

typedef struct matrix_strides {
    cl_long row, column, batch, sum;
} matrix_strides;

/* What kernels receive. */
typedef struct product_shape {
    cl_long rows, inner, columns, sums;
    matrix_strides a, b, c, d;
    cl_int has_d, reserved;
} product_shape;

static matrix_strides strides_of(const opencl_matrix *m)
{
    return (matrix_strides){m->row, m->column, m->batch, m->sum};
}

static uint64_t groups(int64_t size, int64_t group)
{
    return (uint64_t)(size + group - 1) / (uint64_t)group;
}

static product_shape shape_of(const opencl_product *p)
{
    return (product_shape){.rows = p->rows,
                           .inner = p->inner,
                           .columns = p->columns,
                           .sums = p->sums,
                           .a = strides_of(&p->a),
                           .b = strides_of(&p->b),
                           .c = strides_of(&p->c),
                           .d = strides_of(&p->d),
                           .has_d = p->d.memory.handle != NULL && p->beta != 0};
}

/* The arguments from d on. */
static void pass_shape(opencl_launch *l, const opencl_product *p)
{
    const product_shape shape = shape_of(p);

    if (shape.has_d)
        opencl_buffer(l, p->d.memory);
    else
        opencl_null_buffer(l);
    opencl_double(l, p->alpha);
    opencl_double(l, p->beta);
    opencl_bytes(l, &shape, sizeof shape);
}

uint64_t opencl_packed_bytes(const opencl_product *p)
{
    return (uint64_t)(p->batch * p->sums * p->inner) *
           groups(p->columns, LANES) * LANES * (p->dtype == CORE_F64 ? 8 : 4);
}

core_status opencl_pack(core_call *call, const opencl_product *p,
                        core_memory to)
{
    const product_shape shape = shape_of(p);
    uint64_t rows =
        (uint64_t)(p->batch * p->sums * p->inner) * groups(p->columns, LANES);
    opencl_launch l = opencl_begin(call, &source, &p->dtype, 1, "pack");

    opencl_buffer(&l, to);
    opencl_buffer(&l, p->b.memory);
    opencl_bytes(&l, &shape, sizeof shape);
    opencl_long(&l, (int64_t)rows);
    return opencl_run(&l, rows, OPENCL_GROUP);
}

static core_status pack_in_room(core_call *call, const opencl_product *p,
                                core_memory *out_memory)
{
    uint64_t bytes = opencl_packed_bytes(p);
    opencl_room own = {{NULL, 0}, 0}, *room = p->room ? p->room : &own;
    core_status status = CORE_OK;

    if (room->size < bytes) {
        room->size = 0;
        status = opencl_host->call_scratch(call, bytes, &room->memory);
        if (status != CORE_OK)
            return status;
        room->size = bytes;
    }
    *out_memory = room->memory;
    return opencl_pack(call, p, room->memory);
}

static core_status multiply_packed(core_call *call, const opencl_product *p,
                                   core_memory right)
{
    size_t local[3] = {BLOCKS, 1, 1};
    size_t global[3] = {groups(p->rows, ROWS * BLOCKS) * BLOCKS,
                        groups(p->columns, LANES), (size_t)p->batch};
    opencl_launch l =
        opencl_begin(call, &source, &p->dtype, 1, "multiply_packed");

    opencl_buffer(&l, p->c.memory);
    opencl_buffer(&l, p->a.memory);
    opencl_buffer(&l, right);
    pass_shape(&l, p);
    return opencl_run_3d(&l, global, local);
}

static core_status multiply_by_tiles(core_call *call, const opencl_product *p)
{
    size_t local[3] = {TILE, TILE, 1};
    size_t global[3] = {groups(p->columns, TILE) * TILE,
                        groups(p->rows, TILE) * TILE, (size_t)p->batch};
    opencl_launch l = opencl_begin(call, &source, &p->dtype, 1, "multiply");

    opencl_buffer(&l, p->c.memory);
    opencl_buffer(&l, p->a.memory);
    opencl_buffer(&l, p->b.memory);
    pass_shape(&l, p);
    return opencl_run_3d(&l, global, local);
}

/* The same bits as multiply_by_tiles, without local memory or barriers, for
 * devices that compute with vectors. */
static core_status multiply_by_lanes(core_call *call, const opencl_product *p)
{
    core_memory right = {NULL, 0};
    cl_mem kept;
    core_status status = opencl_packed_weight(call, p, &kept);

    right.handle = kept;
    if (status == CORE_OK && kept == NULL)
        status = pack_in_room(call, p, &right);
    if (status == CORE_ERROR_OUT_OF_MEMORY)
        return multiply_by_tiles(call, p);
    if (status == CORE_OK)
        status = multiply_packed(call, p, right);
    if (kept != NULL)
        cl.ReleaseMemObject(kept);
    return status;
}

core_status opencl_multiply(core_call *call, const opencl_product *p)
{
    const opencl_device *device = call->device;
    core_status status;

    if (p->batch == 0 || p->rows == 0 || p->columns == 0)
        return CORE_OK;
    if (device->packed != NULL && p->dtype <= CORE_BF16 && p->inner > 0)
        return multiply_by_lanes(call, p);
    status = opencl_clblast(call, p);
    return status == CORE_ERROR_UNSUPPORTED ? multiply_by_tiles(call, p)
                                            : status;
}

/* --------------------------------------------------------------- views -- */

/* The last two dimensions; a vector is a column or a row. */
enum { AS_COLUMN, AS_ROW };

static opencl_matrix matrix_of(const core_view *v, int vector)
{
    opencl_matrix m = {.memory = v->memory};
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

/* self of addmm and its variants, broadcast to `to`. */
static opencl_matrix spread(const core_view *v, const core_view *to, int vector)
{
    opencl_matrix m = {.memory = v->memory};
    int64_t *where[3] = {&m.column, &m.row, &m.batch};
    uint32_t first = vector && to->ndim == 1 ? 1 : 0;

    for (uint32_t k = 0; k < v->ndim && k + first < 3; k++) {
        uint32_t d = v->ndim - 1 - k;

        *where[k + first] = v->sizes[d] == 1 ? 0 : v->strides[d];
    }
    return m;
}

enum { MATRICES, MATRIX_VECTOR, VECTORS, SUMMED, OUTER };

static void fill_product(opencl_product *p, const core_view *a,
                         const core_view *b, const core_view *c, int what)
{
    p->dtype = c->dtype;
    p->sums = 1;
    p->alpha = 1;
    p->weight = what == MATRICES && b->ndim == 2 ? b : NULL;
    p->a = matrix_of(a, AS_ROW);
    p->b = matrix_of(b, AS_COLUMN);
    p->c = matrix_of(c, AS_COLUMN);
    p->batch = what == MATRICES && c->ndim == 3 ? c->sizes[0] : 1;
    p->inner = a->sizes[a->ndim - 1];
    p->rows = what == VECTORS || what == OUTER ? 1 : a->sizes[a->ndim - 2];
    p->columns = what == MATRICES || what == SUMMED ? b->sizes[b->ndim - 1] : 1;
    if (what == SUMMED) { /* over the batch, which only a and b have */
        p->sums = a->sizes[0];
        p->a.sum = p->a.batch;
        p->b.sum = p->b.batch;
        p->a.batch = p->b.batch = 0;
    } else if (what == OUTER) {
        p->a = matrix_of(a, AS_COLUMN);
        p->b = matrix_of(b, AS_ROW);
        p->inner = 1;
        p->rows = a->sizes[0];
        p->columns = b->sizes[0];
    }
}

/* mm(self, mat2), bmm, mv, dot, vdot */
static core_status product(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    opencl_product p = {0};

    (void)nargs;
    (void)nresults;
    fill_product(&p, args[0].u.view, args[1].u.view, results[0].u.view,
                 (int)(intptr_t)call->user);
    return opencl_multiply(call, &p);
}

/* addmm(self, mat1, mat2, beta, alpha), baddbmm, addmv, addbmm, addr */
static core_status added(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    int what = (int)(intptr_t)call->user;
    opencl_product p = {0};

    (void)nresults;
    fill_product(&p, args[1].u.view, args[2].u.view, results[0].u.view, what);
    p.d = spread(args[0].u.view, results[0].u.view, what == MATRIX_VECTOR);
    p.beta = nargs > 3 ? core_sdk_double(&args[3], 1) : 1;
    p.alpha = nargs > 4 ? core_sdk_double(&args[4], 1) : 1;
    return opencl_multiply(call, &p);
}

core_status opencl_register_matmul(core_registry *registry)
{
#define ROWS(F)                                                \
    {"mm", product, (void *)MATRICES, {F, F, F}, 0},           \
        {"bmm", product, (void *)MATRICES, {F, F, F}, 0},      \
        {"mv", product, (void *)MATRIX_VECTOR, {F, F, F}, 0},  \
        {"dot", product, (void *)VECTORS, {F, F, F}, 0},       \
        {"vdot", product, (void *)VECTORS, {F, F, F}, 0},      \
        {"addmm", added, (void *)MATRICES, {F, F, F, F}, 0},   \
        {"addbmm", added, (void *)SUMMED, {F, F, F, F}, 0},    \
        {"addr", added, (void *)OUTER, {F, F, F, F}, 0},       \
        {"baddbmm", added, (void *)MATRICES, {F, F, F, F}, 0}, \
        {"addmv", added, (void *)MATRIX_VECTOR, {F, F, F, F}, 0}
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d < CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {ROWS(m)};

        status = opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
    }
    return status;
}
