/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.c: the host side of reductions: it chooses the kernel and the number
 * of chunks, which depend on the problem alone. */

#include <gpu/host/host.h>

#include <math.h>

/* Kernels are instantiated by the dtype of the input, or of the output. */
enum { BY_INPUT, BY_OUTPUT };

enum {
    GROUP = 16, /* bytes of elements that a thread loads at a time */
    TEAM = 32,
    /* A team or a part of it shares a row of up to MIDDLE_ROW elements, if there
     * are MANY rows, or up to LONG_ROW groups if there are VERY_MANY. */
    MIDDLE_ROW = 1024,
    LONG_ROW = 512,
    MANY = 512,
    VERY_MANY = 8192,
    CHUNK = 8192, /* the least elements of a chunk */
    ROUND = 4096, /* a chunk of a row is a multiple of this */
    ROW_BLOCKS = 2048,
    /* For columns: the least threads that share a column of more than
     * SHORT_COLUMN elements, the least elements of each, and in a chunk. */
    LANES = 8,
    SHORT_COLUMN = 8,
    LEAST = 4,
    COLUMN_PART = 16,
    COLUMN_BLOCKS = 1024,
    MANY_CHUNKS = 64 /* of an output, merged by a block */
};

typedef struct operation {
    const char *stem;
    uint32_t mode;
    int by;
    int argument; /* index of the number, or -1 */
    double otherwise;
    uint32_t state; /* the largest size of a state, in bytes */
} operation;

static void set_operand(gpu_reduction *p, const core_loop *loop)
{
    const core_operand *in = &loop->operands[loop->noutputs];

    p->noutputs = loop->noutputs;
    p->outputs = p->count = 1;
    p->from_dtype = in->dtype;
    p->number = in->immediate;
    if (!(in->flags & CORE_OPERAND_IMMEDIATE))
        p->from = gpu_address(in->memory);
    for (uint32_t k = 0; k < loop->noutputs && k < 2; k++) {
        p->to[k] = gpu_address(loop->operands[k].memory);
        p->to_dtype[k] = loop->operands[k].dtype;
    }
    for (uint32_t d = 0; d < loop->ndim; d++) {
        gpu_divisor size = gpu_divide_by((uint32_t)loop->sizes[d]);
        int64_t from = p->from != NULL ? in->strides[d] : 0;

        if (loop->reduced >> d & 1) {
            p->count *= (uint64_t)loop->sizes[d];
            p->reduced[p->nreduced] = size;
            p->reduced_sizes[p->nreduced] = loop->sizes[d];
            p->along[p->nreduced++] = from;
            continue;
        }
        p->outputs *= (uint64_t)loop->sizes[d];
        p->kept[p->nkept] = size;
        p->kept_sizes[p->nkept] = loop->sizes[d];
        p->from_strides[p->nkept] = from;
        for (uint32_t k = 0; k < loop->noutputs && k < 2; k++)
            p->to_strides[k][p->nkept] = loop->operands[k].strides[d];
        p->nkept++;
    }
    p->wide_outputs = p->outputs > INT32_MAX;
    p->wide_count = p->count > INT32_MAX;
}

/* Writes a name such as "red_rows_sum_f32" to the buffer. */
static const char *kernel_name(char buffer[GPU_NAME], const char *form,
                               const char *stem, const char *suffix)
{
    size_t a = strlen(form), b = strlen(stem);

    memcpy(buffer, form, a);
    memcpy(buffer + a, stem, b);
    buffer[a + b] = '_';
    memcpy(buffer + a + b + 1, suffix, strlen(suffix) + 1);
    return buffer;
}

/* The type that is computed with. */
static core_dtype type_of(const operation *self, const gpu_reduction *p)
{
    core_dtype dtype = self->by == BY_OUTPUT ? p->to_dtype[0] : p->from_dtype;

    return dtype == CORE_F64    ? CORE_F64
           : dtype <= CORE_BF16 ? CORE_F32
                                : CORE_I64;
}

static const char *suffix_of(core_dtype type, core_dtype from)
{
    if (from == type && type != CORE_I64)
        return gpu_dtype_name(type);
    if (type == CORE_F32 && (from == CORE_F16 || from == CORE_BF16))
        return gpu_dtype_name(from);
    return type == CORE_F64   ? "any_f64"
           : type == CORE_F32 ? "any_f32"
                              : "any_i64";
}

/* The elements of a group, as in the kernels. */
static uint32_t group_of(const char *suffix, const gpu_reduction *p)
{
    return strncmp(suffix, "any", 3) == 0
               ? 4
               : GROUP / core_sdk_itemsize(p->from_dtype);
}

static uint32_t power_of_two(uint64_t least)
{
    uint32_t n = 1;

    while (n < least)
        n *= 2;
    return n;
}

/* Sets the number of chunks, and of threads that share one. */
static void cut_rows(gpu_reduction *p, uint32_t group)
{
    uint64_t groups = (p->count + group - 1) / group, chunks;

    p->lanes = GPU_BLOCK;
    if ((p->count <= MIDDLE_ROW && p->outputs >= MANY) ||
        (groups <= LONG_ROW && p->outputs >= VERY_MANY))
        p->lanes = groups <= TEAM ? power_of_two((groups + 1) / 2) : TEAM;
    if (p->count < 2 * CHUNK)
        return;
    chunks = ROW_BLOCKS / p->outputs;
    if (chunks <= 1)
        return;
    p->chunk = (p->count + chunks - 1) / chunks;
    p->chunk =
        p->chunk < CHUNK ? CHUNK : (p->chunk + ROUND - 1) / ROUND * ROUND;
}

static void cut_columns(gpu_reduction *p, uint32_t group)
{
    uint64_t groups = (p->outputs + group - 1) / group;
    uint64_t side, across, chunks, target;

    p->lanes = 1;
    if (p->count > SHORT_COLUMN) {
        side = groups < GPU_BLOCK / LANES ? power_of_two(groups)
                                          : GPU_BLOCK / LANES;
        p->lanes = (uint32_t)(GPU_BLOCK / side);
        while (p->lanes > LANES && p->lanes * LEAST > p->count)
            p->lanes /= 2;
    }
    side = GPU_BLOCK / p->lanes;
    across = (groups + side - 1) / side;
    target = COLUMN_BLOCKS / across;
    chunks = p->count / (COLUMN_PART * p->lanes);
    chunks = chunks < target ? chunks : target;
    if (chunks > 1)
        p->chunk = (p->count + chunks - 1) / chunks;
}

static bool are_aligned(const int64_t *sizes, const int64_t *strides,
                        uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (strides[d] % GROUP != 0 && sizes[d] > 1)
            return false;
    return true;
}

/* Whether elements are adjacent along the first dimension, lines of it are
 * aligned, and no group has elements of two lines. */
static bool has_groups(const int64_t *sizes, const int64_t *strides,
                       uint32_t ndim, uint32_t group, int64_t itemsize)
{
    return ndim > 0 && strides[0] == itemsize &&
           (ndim == 1 || sizes[0] % group == 0) &&
           are_aligned(sizes + 1, strides + 1, ndim - 1);
}

static void set_vectors(gpu_reduction *p, bool by_row, core_dtype type,
                        uint32_t group)
{
    int64_t itemsize = core_sdk_itemsize(p->from_dtype);

    /* Floats that become integers are read one by one. */
    if (p->from == NULL || (uintptr_t)p->from % GROUP != 0 ||
        (type == CORE_I64 && p->from_dtype <= CORE_BF16))
        return;
    if (by_row)
        p->vectors = has_groups(p->reduced_sizes, p->along, p->nreduced, group,
                                itemsize) &&
                     are_aligned(p->kept_sizes, p->from_strides, p->nkept);
    else
        p->vectors = p->lanes > 1 && p->outputs % group == 0 &&
                     has_groups(p->kept_sizes, p->from_strides, p->nkept, group,
                                itemsize) &&
                     are_aligned(p->reduced_sizes, p->along, p->nreduced);
}

static core_status run(core_call *call, const operation *self, gpu_reduction *p,
                       bool by_row)
{
    core_dtype type = type_of(self, p);
    core_memory partial;
    core_status status;
    char name[GPU_NAME];
    const char *suffix = suffix_of(type, p->from_dtype);
    uint32_t group = group_of(suffix, p);
    gpu_shape shape;
    uint64_t side;

    p->chunks = 1;
    p->chunk = p->count;
    if (by_row)
        cut_rows(p, group);
    else
        cut_columns(p, group);
    set_vectors(p, by_row, type, group);
    if (p->chunk < p->count) {
        p->chunks = (uint32_t)((p->count + p->chunk - 1) / p->chunk);
        status = gpu_host->call_scratch(
            call, p->outputs * p->chunks * self->state, &partial);
        if (status != CORE_OK)
            return status;
        p->partial = gpu_address(partial);
    }
    kernel_name(name, by_row ? "red_rows_" : "red_columns_", self->stem,
                suffix);
    side = GPU_BLOCK / p->lanes;
    if (by_row) {
        shape =
            gpu_blocks((p->outputs * p->chunks + side - 1) / side, GPU_BLOCK);
    } else {
        side *= p->vectors ? group : 1;
        shape = gpu_blocks((p->outputs + side - 1) / side, GPU_BLOCK);
        shape.grid[1] = p->chunks;
    }
    status = gpu_launch(call, "reduce", name, shape, p, sizeof *p);
    if (status != CORE_OK || p->chunks == 1)
        return status;
    kernel_name(name, "red_merge_", self->stem, gpu_dtype_name(type));
    p->merge_lanes = p->chunks > MANY_CHUNKS ? GPU_BLOCK : TEAM;
    side = GPU_BLOCK / p->merge_lanes;
    return gpu_launch(call, "reduce", name,
                      gpu_blocks((p->outputs + side - 1) / side, GPU_BLOCK), p,
                      sizeof *p);
}

static void set_norm(gpu_reduction *p, operation *self, double order)
{
    p->argument = order;
    if (order == 0) {
        self->stem = "truth";
        p->mode = 2;
    } else if (order == (double)INFINITY || order == -(double)INFINITY) {
        self->stem = "most";
        p->mode = order > 0 ? 2 : 3;
    } else {
        self->stem = order == 1 || order == 2 ? "norm" : "power";
        p->mode = order == 2;
    }
}

static core_status check(const core_loop *loop)
{
    uint32_t nreduced = 0;

    for (uint32_t d = 0; d < loop->ndim; d++)
        nreduced += loop->reduced >> d & 1;
    if (nreduced <= GPU_REDUCED && loop->ndim - nreduced <= GPU_REDUCED)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "a reduction of %u dimensions to %u; at most %d reduced "
                      "and %d kept dimensions are supported",
                      loop->ndim, loop->ndim - nreduced, GPU_REDUCED,
                      GPU_REDUCED);
}

static core_status reduce(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    operation self = *(const operation *)call->user;
    const core_loop *loop = call->loop;
    gpu_reduction p;
    core_status status = check(loop);
    bool by_row;

    (void)results;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    memset(&p, 0, sizeof p);
    set_operand(&p, loop);
    if (p.outputs == 0)
        return CORE_OK;
    p.mode = self.mode;
    p.argument = self.otherwise;
    if (self.argument >= 0 && (uint32_t)self.argument < nargs)
        p.argument = core_sdk_double(&args[self.argument], self.otherwise);
    if (strcmp(self.stem, "norm") == 0)
        set_norm(&p, &self, p.argument);
    /* Adjacent threads read adjacent elements. */
    by_row = p.count > 1 && (loop->ndim == 0 || (loop->reduced & 1));
    return run(call, &self, &p, by_row);
}

static const operation op_sum = {"sum", 0, BY_OUTPUT, -1, 0, 8};
static const operation op_mean = {"sum", 1, BY_OUTPUT, -1, 0, 8};
static const operation op_nansum = {"sum", 2, BY_OUTPUT, -1, 0, 8};
static const operation op_prod = {"prod", 0, BY_OUTPUT, -1, 0, 8};
static const operation op_amax = {"most", 0, BY_INPUT, -1, 0, 8};
static const operation op_amin = {"most", 1, BY_INPUT, -1, 0, 8};
static const operation op_any = {"truth", 0, BY_INPUT, -1, 0, 8};
static const operation op_all = {"truth", 1, BY_INPUT, -1, 0, 8};
static const operation op_count = {"truth", 2, BY_INPUT, -1, 0, 8};
static const operation op_max = {"extreme", 0, BY_INPUT, -1, 0, 16};
static const operation op_min = {"extreme", 1, BY_INPUT, -1, 0, 16};
static const operation op_norm = {"norm", 0, BY_OUTPUT, 1, 2, 8};
static const operation op_logsumexp = {"logsumexp", 0, BY_OUTPUT, -1, 0, 16};
static const operation op_var = {"moments", 0, BY_OUTPUT, 2, 1, 24};
static const operation op_std = {"moments", 1, BY_OUTPUT, 2, 1, 24};

/* The core has checked and chosen the dtypes; every pair that it passes is
 * supported. */
#define ROW(name, operation)                           \
    {                                                  \
        name, reduce, (void *)&operation, {0}, 0, NULL \
    }

core_status gpu_register_reduce(core_registry *registry)
{
    static const gpu_row rows[] = {
        ROW("sum", op_sum),
        ROW("sum.dim_IntList", op_sum),
        ROW("nansum", op_nansum),
        ROW("mean", op_mean),
        ROW("mean.dim", op_mean),
        ROW("prod", op_prod),
        ROW("prod.dim_int", op_prod),
        ROW("amax", op_amax),
        ROW("amin", op_amin),
        ROW("any", op_any),
        ROW("any.dim", op_any),
        ROW("all", op_all),
        ROW("all.dim", op_all),
        ROW("count_nonzero", op_count),
        ROW("count_nonzero.dim_IntList", op_count),
        ROW("linalg_vector_norm", op_norm),
        ROW("logsumexp", op_logsumexp),
        ROW("var.correction", op_var),
        ROW("std.correction", op_std),
        ROW("max", op_amax),
        ROW("min", op_amin),
        ROW("max.dim", op_max),
        ROW("min.dim", op_min),
        ROW("argmax", op_max),
        ROW("argmin", op_min),
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
