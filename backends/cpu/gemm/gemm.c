/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The blocked product of gemm.h. */

#include "gemm.h"

#include <string.h>
#include <unistd.h>

#include "isa.h"
#include "runtime/scratch.h"

enum {
    /* Smaller products are as fast with BLAS. */
    WORK_LEAST = 1 << 19,
    SIDE_LEAST = 16,
    ROWS_LEAST = 2,
    /* With fewer rows of C than the first, or than the second if rows of B are
     * at most so many bytes apart, packing B does not pay off. */
    ROWS_PACKED = 24,
    ROWS_PACKED_NEAR = 96,
    ROWS_NEAR = 8192,
    /* With fewer rows or columns, packing A does not. */
    ROWS_GATHERED = 48,
    COLUMNS_GATHERED = 256,
    /* The most columns of a packed block of B that is read from beyond the
     * second-level cache. */
    BLOCK_N_MOST = 2048,
    /* The largest panel of columns that stays in the first-level cache. */
    PANEL_BYTES = 24 << 10,
    CACHE_ASSUMED = 512 << 10, /* where the processor does not report it */
    CACHE_LEAST = 128 << 10,
    CACHE_MOST = 4 << 20,
    /* Up to this many bytes and this distance of rows B is read in place;
     * beyond, its lines evict each other from the caches. */
    B_IN_PLACE = 1 << 16,
    B_DISTANCE = 2048,
    /* Addresses at this distance share the same lines of the first-level cache,
     * which holds a few of them. */
    CACHE_WAY = 4096,
    CACHE_WAYS = 8,
    GATHERED = 4 /* groups of rows, which use all of the lines that they load */
};

static const gemm_functions *functions(void)
{
    return CPU_CHOSEN(&cpu_gemm_functions);
}

static int64_t smaller(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static int64_t cache_bytes; /* 0: not known yet */

void cpu_gemm_assume_cache(int64_t bytes)
{
    __atomic_store_n(&cache_bytes, bytes, __ATOMIC_RELAXED);
}

/* The size of the second-level cache, within limits. */
static int64_t second_level(void)
{
    int64_t bytes = __atomic_load_n(&cache_bytes, __ATOMIC_RELAXED);

    if (bytes > 0)
        return bytes;
#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    if (bytes <= 0)
        bytes = CACHE_ASSUMED;
    if (bytes < CACHE_LEAST)
        bytes = CACHE_LEAST;
    bytes = smaller(bytes, CACHE_MOST);
    cpu_gemm_assume_cache(bytes);
    return bytes;
}

static bool crowded(int64_t distance)
{
    return distance * (int64_t)sizeof(float) % CACHE_WAY == 0;
}

/* Divides the rows into groups of nearly equal size. */
static int64_t rows_at_once(const gemm_problem *p, const gemm_functions *f)
{
    int64_t most = f->lines, groups;

    if (p->step_a == 1 && crowded(p->row_a))
        most = smaller(most, CACHE_WAYS);
    groups = (p->m + most - 1) / most;
    return (p->m + groups - 1) / groups;
}

/* Copies some groups of rows of A whose columns are adjacent but whose lines
 * evict each other from the cache: group by group, k after k. */
static void gather(const gemm_problem *p, const gemm_lines *l, int64_t first,
                   int64_t most, float *scratch)
{
    int64_t last = smaller(p->m, first + GATHERED * most);

    for (int64_t q = 0; q < l->k; q++)
        for (int64_t i = first; i < last; i += most) {
            int64_t rows = smaller(most, p->m - i);

            memcpy(scratch + (i - first) * l->k + q * rows,
                   l->a + i + q * l->step_a, (size_t)rows * sizeof *scratch);
        }
}

/* The products with a block of B, packed or not: `panel` is the distance
 * between panels of columns.  scratch: for gather, or NULL.  first: the number
 * of the first column, if the block is the last one of its sums and someone
 * waits for these; else -1. */
static void block(const gemm_problem *p, const gemm_functions *f, int64_t most,
                  gemm_lines lines, int64_t panel, int64_t columns,
                  float *scratch, int64_t first)
{
    for (int64_t i = 0; i < p->m; i += most) {
        int64_t rows = smaller(most, p->m - i), at = i / most % GATHERED;
        gemm_lines l = lines;

        if (scratch && at == 0)
            gather(p, &lines, i, most, scratch);
        l.a += i * p->row_a;
        if (scratch) {
            l.a = scratch + at * most * l.k;
            l.step_a = rows;
        }
        l.c += i * p->distance;
        for (int64_t j = 0; j < columns; j += f->columns) {
            f->multiply(&l, rows, smaller(f->columns, columns - j));
            l.b += panel;
            l.c += f->columns;
        }
        if (first >= 0)
            p->finished(p->context, i, rows, first, columns);
    }
}

/* Packs columns of B into dense panels of f->columns each; the last one is
 * padded with zeros. */
static void pack(const gemm_functions *f, float *to, const gemm_problem *p,
                 const float *b, int64_t columns, int64_t k)
{
    for (int64_t j = 0; j < columns; j += f->columns, to += f->columns * k) {
        const float *from = b + j * p->column_b;
        int64_t count = smaller(f->columns, columns - j);

        if (p->column_b != 1) {
            f->transpose(to, from, p->column_b, count, k);
            continue;
        }
        for (int64_t q = 0; q < k; q++) {
            memcpy(to + q * f->columns, from + q * p->step_b,
                   (size_t)count * sizeof *to);
            memset(to + q * f->columns + count, 0,
                   (size_t)(f->columns - count) * sizeof *to);
        }
    }
}

static bool in_place(const gemm_problem *p)
{
    int64_t distance = p->step_b * (int64_t)sizeof(float);

    if (p->column_b != 1)
        return false;
    if (p->m <= ROWS_PACKED ||
        (p->m <= ROWS_PACKED_NEAR && distance <= ROWS_NEAR))
        return true;
    return distance <= B_DISTANCE &&
           smaller(p->k, GEMM_BLOCK_K) * distance <= B_IN_PLACE;
}

bool cpu_gemm_is_faster(int64_t m, int64_t n, int64_t k)
{
    return m >= ROWS_LEAST && n >= SIDE_LEAST && k >= SIDE_LEAST &&
           m * n >= WORK_LEAST / k && functions()->multiply;
}

/* Memory for the packed parts of both operands. */
typedef struct packing {
    bool packed;   /* B is */
    int64_t wide;  /* columns of B at a time */
    int64_t rows;  /* rows of A at a time that are packed; 0: in place */
    float *b, *a;  /* a NULL: A is read in place */
    void *scratch; /* contains both */
} packing;

/* Tests whether a panel of columns stays in the first-level cache, and packing
 * A pays off. */
static bool gathers(const gemm_problem *p, const gemm_functions *f)
{
    return f->columns * GEMM_BLOCK_K * (int64_t)sizeof(float) <= PANEL_BYTES &&
           p->m >= ROWS_GATHERED && p->n >= COLUMNS_GATHERED;
}

/* Chooses the sides of blocks: a block of A takes half of the second-level
 * cache, or a block of B three quarters of it. */
static packing choose(const gemm_problem *p, const gemm_functions *f)
{
    packing to = {.packed = !in_place(p), .wide = p->n};
    int64_t depth = GEMM_BLOCK_K * (int64_t)sizeof(float);
    int64_t columns = second_level() / 4 * 3 / depth;
    int64_t rows = second_level() / 2 / depth / f->lines * f->lines;

    if (!to.packed)
        return to;
    to.wide = columns / f->columns * f->columns;
    if (!gathers(p, f))
        return to;
    to.wide = BLOCK_N_MOST;
    to.rows = rows > f->lines ? rows : f->lines;
    return to;
}

/* False: no memory for it. */
static bool take_scratch(const gemm_problem *p, const gemm_functions *f,
                         packing *out)
{
    bool crowds = p->row_a == 1 && crowded(p->step_a);
    int64_t k = smaller(p->k, GEMM_BLOCK_K), a, b, columns;
    float *scratch;

    *out = choose(p, f);
    columns = (smaller(out->wide, p->n) + f->columns - 1) / f->columns;
    b = out->packed ? columns * f->columns * k : 0;
    a = out->rows > 0 ? smaller(out->rows, p->m) * k + GEMM_GATHER_BEYOND
        : crowds      ? GATHERED * f->lines * k
                      : 0;
    if (a + b == 0)
        return true;
    scratch = out->scratch =
        cpu_scratch_take((a + b) * (int64_t)sizeof *scratch);
    out->b = scratch;
    out->a = a > 0 && scratch ? scratch + b : NULL;
    return scratch != NULL;
}

/* Packs rows of A from `first` on, in groups of `most`. */
static void pack_rows(const gemm_problem *p, const gemm_functions *f,
                      const float *a, int64_t first, int64_t rows, int64_t most,
                      int64_t k, float *to)
{
    for (int64_t i = 0; p->step_a == 1 && i < rows; i += most)
        f->gather(to + i * k, a + (first + i) * p->row_a, p->row_a,
                  smaller(most, rows - i), k);
    for (int64_t q = 0; p->step_a != 1 && q < k; q++)
        for (int64_t i = 0; i < rows; i += most) {
            int64_t group = smaller(most, rows - i);

            memcpy(to + i * k + q * group, a + first + i + q * p->step_a,
                   (size_t)group * sizeof *to);
        }
}

/* The products of packed rows of A with a packed block of B, panel after
 * panel.  at: as `first` of block. */
static void block_of_panels(const gemm_problem *p, const gemm_functions *f,
                            const packing *to, gemm_lines lines,
                            int64_t columns, int64_t at)
{
    int64_t k = lines.k, most = f->lines;
    float *c = lines.c;
    const float *a = lines.a;

    lines.row_a = 1;
    for (int64_t first = 0; first < p->m; first += to->rows) {
        int64_t rows = smaller(to->rows, p->m - first);

        pack_rows(p, f, a, first, rows, most, k, to->a);
        for (int64_t j = 0; j < columns; j += f->columns)
            for (int64_t i = 0; i < rows; i += most) {
                int64_t group = smaller(most, rows - i);

                lines.a = to->a + i * k;
                lines.step_a = group;
                lines.b = to->b + j * k;
                lines.c = c + (first + i) * p->distance + j;
                f->multiply(&lines, group, smaller(f->columns, columns - j));
            }
        if (at >= 0)
            p->finished(p->context, first, rows, at, columns);
    }
}

static void multiply(const gemm_problem *p, const gemm_functions *f,
                     const packing *to)
{
    int64_t rows = rows_at_once(p, f);

    for (int64_t j = 0; j < p->n; j += to->wide)
        for (int64_t q = 0; q < p->k; q += GEMM_BLOCK_K) {
            int64_t columns = smaller(to->wide, p->n - j);
            int64_t k = smaller(GEMM_BLOCK_K, p->k - q);
            bool finished = p->finished && q + k == p->k;
            const float *b = p->b + q * p->step_b + j * p->column_b;
            gemm_lines lines = {.a = p->a + q * p->step_a,
                                .row_a = p->row_a,
                                .step_a = p->step_a,
                                .b = to->packed ? to->b : b,
                                .step_b = to->packed ? f->columns : p->step_b,
                                .k = k,
                                .c = p->c + j,
                                .distance = p->distance,
                                .alpha = p->alpha,
                                .beta = q > 0 ? 1 : p->beta};

            if (to->packed)
                pack(f, to->b, p, b, columns, k);
            if (to->rows > 0)
                block_of_panels(p, f, to, lines, columns, finished ? j : -1);
            else
                block(p, f, rows, lines,
                      to->packed ? f->columns * k : f->columns, columns, to->a,
                      finished ? j : -1);
        }
}

/* Slower, since each panel reads all rows of A again, but with the same bits:
 * these must not depend on the available memory. */
__attribute__((noinline)) static void multiply_without_memory(
    const gemm_problem *p, const gemm_functions *f)
{
    _Alignas(64) float panel[GEMM_COLUMNS_MOST * GEMM_BLOCK_K];
    packing to = {.packed = p->column_b != 1, .wide = p->n, .b = panel};

    if (to.packed)
        to.wide = f->columns;
    multiply(p, f, &to);
}

bool cpu_gemm_multiply(const gemm_problem *p)
{
    const gemm_functions *f = functions();
    packing to;

    if (!f->multiply || p->m < 1 || p->n < 1 || p->k < 1 || p->alpha == 0 ||
        (p->step_a != 1 && p->row_a != 1) ||
        (p->step_b != 1 && p->column_b != 1))
        return false;
    if (take_scratch(p, f, &to))
        multiply(p, f, &to);
    else
        multiply_without_memory(p, f);
    cpu_scratch_give(to.scratch);
    return true;
}
