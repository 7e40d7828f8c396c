/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy.c: copy_ between any two dtypes, and fill_.  Compiled per instruction
 * set. */

#include <string.h>

#include "loop.h"
#include "pool.h"

enum { GRAIN = 65536 /* elements for one thread */ };

#define MOVE_ROWS(BITS)                                                     \
    static core_status copy_##BITS(char *out, const char *a, const char *b, \
                                   int64_t n, cpu_parameters *q,            \
                                   char *const *p)                          \
    {                                                                       \
        (void)b;                                                            \
        (void)q;                                                            \
        (void)p;                                                            \
        if (out != a)                                                       \
            memcpy(out, a, (size_t)n *((BITS) / 8));                        \
        return CORE_OK;                                                     \
    }                                                                       \
    static core_status fill_##BITS(char *out, const char *a, const char *b, \
                                   int64_t n, cpu_parameters *q,            \
                                   char *const *p)                          \
    {                                                                       \
        uint##BITS##_t *to = (uint##BITS##_t *)out;                         \
        uint##BITS##_t word = (uint##BITS##_t)q->bits;                      \
        (void)a;                                                            \
        (void)b;                                                            \
        (void)p;                                                            \
        for (int64_t k = 0; k < n; k++)                                     \
            to[k] = word;                                                   \
        return CORE_OK;                                                     \
    }
MOVE_ROWS(8)
MOVE_ROWS(16)
MOVE_ROWS(32)
MOVE_ROWS(64)
#undef MOVE_ROWS

static cpu_row row_of(uint32_t bytes, cpu_row of1, cpu_row of2, cpu_row of4,
                      cpu_row of8)
{
    return bytes == 1 ? of1 : bytes == 2 ? of2 : bytes == 4 ? of4 : of8;
}

/* --------------------------------------------------------- transposition -- */

enum { TILE = 64 };

typedef struct transposition {
    const core_loop *loop;
    uint32_t other; /* the dimension along which the source is dense */
    uint32_t bytes;
    int64_t tiles; /* along the other dimension */
} transposition;

/* Reads whole lines, turns them in the first cache, writes whole lines: a
 * stride that is a power of two would otherwise throw out what is needed. */
#define TRANSPOSE(BITS)                                                   \
    static void transpose_##BITS(char *to, int64_t to_stride,             \
                                 const char *from, int64_t from_stride,   \
                                 int64_t rows, int64_t columns)           \
    {                                                                     \
        uint##BITS##_t tile[TILE][TILE];                                  \
                                                                          \
        for (int64_t c = 0; c < columns; c++)                             \
            memcpy(tile[c], from + c * from_stride,                       \
                   (size_t)rows * sizeof(tile[0][0]));                    \
        for (int64_t r = 0; r < rows; r++) {                              \
            uint##BITS##_t *out = (uint##BITS##_t *)(to + r * to_stride); \
            for (int64_t c = 0; c < columns; c++)                         \
                out[c] = tile[c][r];                                      \
        }                                                                 \
    }
TRANSPOSE(8)
TRANSPOSE(16)
TRANSPOSE(32)
TRANSPOSE(64)
#undef TRANSPOSE

/* One tile row: TILE elements of the other dimension by all of the inner. */
static void transpose_strip(const transposition *t, char *to, const char *from,
                            int64_t rows)
{
    const core_loop *loop = t->loop;
    int64_t columns = loop->sizes[0], c, n;
    int64_t to_stride = loop->operands[0].strides[t->other];
    int64_t from_stride = loop->operands[1].strides[0];

    for (c = 0; c < columns; c += TILE) {
        char *out = to + c * t->bytes;
        const char *in = from + c * from_stride;

        n = columns - c < TILE ? columns - c : TILE;
        switch (t->bytes) {
        case 1:
            transpose_8(out, to_stride, in, from_stride, rows, n);
            break;
        case 2:
            transpose_16(out, to_stride, in, from_stride, rows, n);
            break;
        case 4:
            transpose_32(out, to_stride, in, from_stride, rows, n);
            break;
        default:
            transpose_64(out, to_stride, in, from_stride, rows, n);
            break;
        }
    }
}

/* An index counts strips, then the remaining dimensions. */
static void transpose_task(void *context, int64_t begin, int64_t end)
{
    const transposition *t = context;
    const core_loop *loop = t->loop;
    int64_t k;

    for (k = begin; k < end; k++) {
        int64_t rest = k / t->tiles, strip = k % t->tiles * TILE;
        int64_t rows = loop->sizes[t->other] - strip;
        char *to = cpu_address(loop->operands[0].memory);
        const char *from = cpu_address(loop->operands[1].memory);
        uint32_t d;

        to += strip * loop->operands[0].strides[t->other];
        from += strip * loop->operands[1].strides[t->other];
        for (d = 1; d < loop->ndim; d++) {
            if (d == t->other)
                continue;
            to += rest % loop->sizes[d] * loop->operands[0].strides[d];
            from += rest % loop->sizes[d] * loop->operands[1].strides[d];
            rest /= loop->sizes[d];
        }
        transpose_strip(t, to, from, rows < TILE ? rows : TILE);
    }
}

/* Where source and destination are dense along different dimensions, tiles
 * use each line of memory once.  0 if that is not so. */
static int transpose(const core_loop *loop, uint32_t bytes)
{
    const int64_t *to = loop->operands[0].strides;
    const int64_t *from = loop->operands[1].strides;
    transposition t = {.loop = loop, .bytes = bytes};
    int64_t strips, grain;
    uint32_t d;

    if (loop->ndim < 2 || to[0] != (int64_t)bytes || from[0] == 0 ||
        from[0] == (int64_t)bytes || loop->sizes[0] < 4)
        return 0;
    for (d = 1; d < loop->ndim; d++)
        if (from[d] == (int64_t)bytes && loop->sizes[d] >= 4)
            t.other = d;
    if (t.other == 0)
        return 0;
    t.tiles = (loop->sizes[t.other] + TILE - 1) / TILE;
    strips = loop->numel / loop->sizes[0] / loop->sizes[t.other] * t.tiles;
    grain = 65536 / (TILE * loop->sizes[0]);
    cpu_parallel_for(strips, grain < 1 ? 1 : grain, transpose_task, &t);
    return 1;
}

/* ---------------------------------------------------------------- kernels -- */

typedef struct conversion {
    core_dtype to_dtype, dtype;
    char *to;
    const char *from;
} conversion;

static void convert_task(void *context, int64_t begin, int64_t end)
{
    const conversion *c = context;

    cpu_convert(c->to_dtype, c->to + begin * cpu_bytes_of(c->to_dtype),
                c->dtype, c->from + begin * cpu_bytes_of(c->dtype),
                end - begin);
}

static core_status copy_launch(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];
    uint32_t bytes = cpu_bytes_of(to->dtype);
    cpu_elementwise self = {.types = {(uint8_t)to->dtype, (uint8_t)to->dtype},
                            .grain = GRAIN};
    int dense = (loop->flags & CORE_LOOP_CONTIGUOUS) &&
                !(from->flags & CORE_OPERAND_IMMEDIATE);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    if (dense && to->dtype == from->dtype && loop->numel <= 4096) {
        char *target = cpu_address(to->memory), *source;

        source = cpu_address(from->memory);
        if (target != source)
            memcpy(target, source, (size_t)loop->numel * bytes);
        return CORE_OK;
    }
    if (dense && to->dtype != from->dtype) {
        conversion c = {to->dtype, from->dtype, cpu_address(to->memory),
                        cpu_address(from->memory)};

        cpu_parallel_for(loop->numel, GRAIN, convert_task, &c);
        return CORE_OK;
    }
    if (to->dtype == from->dtype && !(from->flags & CORE_OPERAND_IMMEDIATE) &&
        transpose(loop, bytes))
        return CORE_OK;
    return cpu_loop_run(call, &self,
                        row_of(bytes, copy_8, copy_16, copy_32, copy_64), NULL);
}

static core_status fill_launch(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0];
    static const cpu_elementwise self = {.grain = GRAIN};
    cpu_parameters parameters;
    cpu_row row =
        row_of(cpu_bytes_of(to->dtype), fill_8, fill_16, fill_32, fill_64);

    (void)results;
    (void)nresults;
    if (nargs < 2)
        return cpu_error(CORE_ERROR_INTERNAL, "fill_ came without a value");
    parameters.bits = cpu_scalar_bits(&args[1], to->dtype);
    if (!(loop->flags & CORE_LOOP_CONTIGUOUS) || loop->numel > GRAIN)
        return cpu_loop_run(call, &self, row, &parameters);
    return row(cpu_address(to->memory), NULL, NULL, loop->numel, &parameters,
               NULL);
}

static core_status zero_launch(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    core_value with_zero[2] = {{.tag = CORE_VALUE_NONE},
                               {.tag = CORE_VALUE_INT, .u.i = 0}};

    if (nargs > 0)
        with_zero[0] = args[0];
    return fill_launch(call, with_zero, 2, results, nresults);
}

#define ALL                                                   \
    (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |  \
     CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16) | \
     CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32) |  \
     CORE_DTYPE_MASK(CORE_I16) | CORE_DTYPE_MASK(CORE_I8) |   \
     CORE_DTYPE_MASK(CORE_U8) | CORE_DTYPE_MASK(CORE_BOOL) |  \
     CORE_DTYPE_MASK(CORE_F8E4M3) | CORE_DTYPE_MASK(CORE_F8E5M2))

static const cpu_kernel kernels[] = {
    {"copy_", copy_launch, NULL, {ALL, ALL}, 0},
    {"fill_.Scalar", fill_launch, NULL, {ALL}, 0},
    {"zero_", zero_launch, NULL, {ALL}, 0},
};

extern const cpu_kernel_table CPU_NAME(cpu_copy_kernels);
const cpu_kernel_table CPU_NAME(cpu_copy_kernels) = {
    kernels, sizeof(kernels) / sizeof(kernels[0])};
