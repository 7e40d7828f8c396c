/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bf16.c: products of bf16 matrices, the part that does not depend on the
 * instruction set.
 *
 * Both operands are packed first, which removes differences of layout; then
 * each tile of C is computed by one thread.  Many small matrices are packed
 * pair by pair just before they are used, so that they are still in the
 * cache.  Tile borders and the blocks of sums along k depend on the problem
 * alone. */

#include "bf16.h"

#include "codegen/epilogue.h"
#include "isa.h"
#include "runtime/thread_pool.h"
#include "runtime/scratch.h"
#include "view.h"

enum {
    ROWS = CPU_BF16_ROWS,
    COLUMNS = CPU_BF16_COLUMNS,
    /* Of a tile, in groups, so that both operands' part of a block of k stays
     * in the second-level cache. */
    TILE_ROWS = 8,
    TILE_COLUMNS = 4,
    BLOCK_PAIRS = 512,
    /* The number of tiles, unless they would be smaller than this. */
    TILES_LEAST = 32,
    TASK_WORK_LEAST = 1 << 18,
    /* Smaller products are converted to f32. */
    WORK_LEAST = 1 << 12,
    /* Packed words of a small pair: a part of the second-level cache. */
    SMALL_WORDS = 1 << 16,
    CHUNKS_EACH = 4 /* of pairs, per thread */
};

typedef struct job {
    cpu_bf16_product p;
    const cpu_bf16_functions *f;
    int64_t pairs, groups_a, groups_b;   /* of one batch */
    int64_t batches_a, batches_b;        /* distinct ones */
    int64_t rows, columns, down, across; /* of a tile; tiles, in groups */
    uint32_t *a, *b;
    int64_t words_a, words_b; /* of one batch */
    int64_t chunk;            /* pairs that are packed one by one; or 0 */
    bool transposed;          /* the product is, not C */
} job;

/* The sums of a tile if there are several blocks of k; else its beginning is
 * used for one pair of groups after the other. */
typedef float sums[TILE_ROWS * ROWS][TILE_COLUMNS * COLUMNS];

static const cpu_bf16_functions *functions(void)
{
#ifdef CPU_X86_BF16
    if (cpu_isa >= CPU_ISA_AVX512_BF16)
        return &cpu_bf16_avx512;
#endif
    return NULL;
}

bool cpu_bf16_is_faster(int64_t m, int64_t n, int64_t k)
{
    return m > 1 && n > 1 && k > 0 && m * n * k >= WORK_LEAST && functions();
}

static int64_t divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t smaller(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* ------------------------------------------------------------- packing -- */

static uint32_t *group_of_a(const job *j, int64_t batch, int64_t group)
{
    int64_t at = (j->batches_a > 1 ? batch : 0) * j->groups_a + group;

    return j->a + at * j->pairs * CPU_BF16_GROUP_A;
}

static uint32_t *group_of_b(const job *j, int64_t batch, int64_t group)
{
    int64_t at = (j->batches_b > 1 ? batch : 0) * j->groups_b + group;

    return j->b + at * j->pairs * CPU_BF16_GROUP_B;
}

static void pack_a(const job *j, int64_t item)
{
    const cpu_bf16_operand *a = &j->p.a;
    int64_t batch = item / j->groups_a, group = item % j->groups_a;

    j->f->pack(group_of_a(j, batch, group), CPU_BF16_GROUP_A,
               a->data + batch * a->batch_stride + group * ROWS * a->line,
               a->line, a->step, smaller(ROWS, j->p.m - group * ROWS), j->p.k);
}

static void pack_b(const job *j, int64_t item)
{
    const cpu_bf16_operand *b = &j->p.b;
    int64_t batch = item / j->groups_b, group = item % j->groups_b;

    j->f->pack(group_of_b(j, batch, group), CPU_BF16_GROUP_B,
               b->data + batch * b->batch_stride + group * COLUMNS * b->line,
               b->line, b->step, smaller(COLUMNS, j->p.n - group * COLUMNS),
               j->p.k);
}

/* Items are the groups of A, then those of B. */
static void pack_task(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int64_t groups = j->batches_a * j->groups_a;

    for (int64_t item = begin; item < end; item++)
        if (item < groups)
            pack_a(j, item);
        else
            pack_b(j, item - groups);
}

/* --------------------------------------------------------------- tiles -- */

static char *element(const cpu_bf16_place *place, int64_t batch, int64_t row,
                     int64_t column)
{
    return place->data +
           (batch * place->batch_stride + row * place->row_stride +
            column * place->column_stride) *
               cpu_item_size(place->dtype);
}

static const float *scaled_row(const job *j, int64_t batch, int64_t row,
                               int64_t column, int64_t columns, float *scratch)
{
    const cpu_bf16_place *s = &j->p.s;
    const void *from;

    if (!s->data)
        return NULL;
    from = element(s, batch, row, column);
    if (s->dtype == CORE_F32 && s->column_stride == 1 && j->p.beta == 1)
        return from;
    if (s->column_stride == 0) {
        cpu_get_f32(scratch, s->dtype, from, 1, 1);
        scratch[0] *= j->p.beta;
        for (int64_t i = 1; i < columns; i++)
            scratch[i] = scratch[0];
        return scratch;
    }
    if (s->dtype == CORE_BF16 && s->column_stride == 1) {
        j->f->scale(scratch, from, j->p.beta, columns);
        return scratch;
    }
    cpu_get_f32(scratch, s->dtype, from, s->column_stride, columns);
    for (int64_t i = 0; i < columns; i++)
        scratch[i] *= j->p.beta;
    return scratch;
}

/* Writes results from sums, for the rows and columns of one pair of groups. */
static void finish(const job *j, int64_t batch, int64_t row, int64_t column,
                   const float *sum, int64_t distance)
{
    int64_t rows = smaller(ROWS, j->p.m - row);
    int64_t columns = smaller(COLUMNS, j->p.n - column);
    float scratch[COLUMNS];

    if (!j->p.s.data && columns == COLUMNS && j->p.c.column_stride == 1) {
        j->f->finish_rows(sum, distance, rows, j->p.alpha, j->p.c.dtype,
                          element(&j->p.c, batch, row, column),
                          j->p.c.row_stride);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        j->f->finish(sum + i * distance, j->p.alpha,
                     scaled_row(j, batch, row + i, column, columns, scratch),
                     j->p.c.dtype, element(&j->p.c, batch, row + i, column),
                     j->p.c.column_stride, columns);
}

typedef struct tile {
    int64_t batch, row, column, row_end, column_end; /* in groups */
} tile;

/* Adds a block of k to the sums of all groups of a tile; finishes those of the
 * last block immediately. */
static void block(const job *j, const tile *t, int64_t first, sums all)
{
    int64_t pairs = smaller(BLOCK_PAIRS, j->pairs - first);
    bool last = first + pairs == j->pairs, only = pairs == j->pairs;
    int64_t distance = only ? COLUMNS : TILE_COLUMNS * COLUMNS;

    for (int64_t c = t->column; c < t->column_end; c++)
        for (int64_t r = t->row; r < t->row_end; r++) {
            float *sum =
                only ? &all[0][0]
                     : &all[(r - t->row) * ROWS][(c - t->column) * COLUMNS];

            j->f->multiply(
                group_of_a(j, t->batch, r) + first * CPU_BF16_GROUP_A,
                group_of_b(j, t->batch, c) + first * CPU_BF16_GROUP_B, pairs,
                smaller(ROWS, j->p.m - r * ROWS),
                smaller(COLUMNS, j->p.n - c * COLUMNS), sum, distance,
                first > 0);
            if (last)
                finish(j, t->batch, r * ROWS, c * COLUMNS, sum, distance);
        }
}

static void tile_finished(const job *j, const tile *t)
{
    int64_t row = t->row * ROWS, column = t->column * COLUMNS;
    int64_t rows = smaller(t->row_end * ROWS, j->p.m) - row;
    int64_t columns = smaller(t->column_end * COLUMNS, j->p.n) - column;

    if (j->transposed)
        cpu_epilogue_run(j->p.epilogue, t->batch, column, columns, row, rows);
    else
        cpu_epilogue_run(j->p.epilogue, t->batch, row, rows, column, columns);
}

/* Tile `at` of a batch. */
static __attribute__((noinline)) void compute(const job *j, int64_t batch,
                                              int64_t at, sums all)
{
    tile t = {.batch = batch,
              .row = at / j->across * j->rows,
              .column = at % j->across * j->columns};

    t.row_end = smaller(t.row + j->rows, j->groups_a);
    t.column_end = smaller(t.column + j->columns, j->groups_b);
    for (int64_t first = 0; first < j->pairs; first += BLOCK_PAIRS)
        block(j, &t, first, all);
    if (j->p.epilogue)
        tile_finished(j, &t);
}

static void tile_task(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int64_t tiles = j->down * j->across;
    sums all;

    for (int64_t item = begin; item < end; item++)
        compute(j, item / tiles, item % tiles, all);
}

/* A chunk of batches, with its own memory for packing. */
static void batch_task(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    job one = *j;
    sums all;

    one.a = j->a + begin / j->chunk * (j->words_a + j->words_b);
    one.b = one.a + j->words_a;
    one.batches_a = one.batches_b = 1;
    for (int64_t batch = begin; batch < end; batch++) {
        one.p.a.data = j->p.a.data + batch * j->p.a.batch_stride;
        one.p.b.data = j->p.b.data + batch * j->p.b.batch_stride;
        pack_task(&one, 0, j->groups_a + j->groups_b);
        for (int64_t at = 0; at < j->down * j->across; at++)
            compute(&one, batch, at, all);
    }
}

/* Large tiles reuse more of what they read; small ones occupy more threads. */
static void choose_tiles(job *j)
{
    j->rows = smaller(TILE_ROWS, j->groups_a);
    j->columns = smaller(TILE_COLUMNS, j->groups_b);
    for (;;) {
        int64_t work = j->rows * ROWS * j->columns * COLUMNS * j->p.k;

        j->down = divide_up(j->groups_a, j->rows);
        j->across = divide_up(j->groups_b, j->columns);
        if (j->p.batch * j->down * j->across >= TILES_LEAST ||
            work < 2 * TASK_WORK_LEAST || (j->rows == 1 && j->columns == 1))
            return;
        if (j->rows * ROWS > j->columns * COLUMNS || j->columns == 1)
            j->rows = divide_up(j->rows, 2);
        else
            j->columns = divide_up(j->columns, 2);
    }
}

/* ---------------------------------------------------------------- runs -- */

/* Uses the transposed product if its results have a better layout, or fill
 * vectors better. */
static bool transpose(cpu_bf16_product *p)
{
    bool better = p->c.row_stride == 1 && p->c.column_stride != 1;
    cpu_bf16_operand a = p->a;
    cpu_bf16_place *both[] = {&p->c, &p->s};
    int64_t m = p->m;

    if (!better && (p->n >= COLUMNS / 2 || p->m <= p->n))
        return false;
    p->a = p->b;
    p->b = a;
    p->m = p->n;
    p->n = m;
    for (int i = 0; i < 2; i++) {
        int64_t stride = both[i]->row_stride;

        both[i]->row_stride = both[i]->column_stride;
        both[i]->column_stride = stride;
    }
    return true;
}

static int64_t grain_of(int64_t work)
{
    int64_t grain = work > 0 ? TASK_WORK_LEAST / work : 1;

    return grain > 0 ? grain : 1;
}

/* Decides whether pairs are packed one by one, and how many per chunk: if no
 * packed operand is shared by several batches, and there are enough of them. */
static void choose_chunks(job *j)
{
    int64_t tasks = CHUNKS_EACH * (int64_t)cpu_thread_pool_threads();
    int64_t work = j->groups_a * ROWS * j->groups_b * COLUMNS * j->p.k;

    j->chunk = 0;
    if (j->batches_a == 1 || j->batches_b == 1 || j->p.batch < tasks ||
        j->words_a + j->words_b > SMALL_WORDS)
        return;
    j->chunk = divide_up(j->p.batch, tasks);
    if (j->chunk < grain_of(work))
        j->chunk = grain_of(work);
}

/* The number of words that are packed at a time. */
static int64_t words_of(const job *j)
{
    if (j->chunk)
        return divide_up(j->p.batch, j->chunk) * (j->words_a + j->words_b);
    return j->batches_a * j->words_a + j->batches_b * j->words_b;
}

static void pack_and_multiply(job *j)
{
    int64_t work = j->rows * ROWS * j->columns * COLUMNS * j->p.k;

    if (j->chunk) {
        cpu_parallel_for(j->p.batch, j->chunk, batch_task, j);
        return;
    }
    j->b = j->a + j->batches_a * j->words_a;
    cpu_parallel_for(j->batches_a * j->groups_a + j->batches_b * j->groups_b,
                     grain_of(j->pairs * COLUMNS * 4), pack_task, j);
    cpu_parallel_for(j->p.batch * j->down * j->across, grain_of(work),
                     tile_task, j);
}

core_status cpu_bf16_multiply(const cpu_bf16_product *product)
{
    job j = {.p = *product, .f = functions()};

    j.transposed = transpose(&j.p);
    j.pairs = divide_up(j.p.k, 2);
    j.groups_a = divide_up(j.p.m, ROWS);
    j.groups_b = divide_up(j.p.n, COLUMNS);
    j.batches_a = j.p.a.batch_stride ? j.p.batch : 1;
    j.batches_b = j.p.b.batch_stride ? j.p.batch : 1;
    j.words_a = j.groups_a * j.pairs * CPU_BF16_GROUP_A;
    j.words_b = j.groups_b * j.pairs * CPU_BF16_GROUP_B;
    choose_tiles(&j);
    choose_chunks(&j);

    j.a = cpu_scratch_take(words_of(&j) * (int64_t)sizeof *j.a);
    if (!j.a)
        return cpu_error(CORE_ERROR_OUT_OF_MEMORY,
                         "no host memory for %lld packed pairs of bf16",
                         (long long)words_of(&j));
    pack_and_multiply(&j);
    cpu_scratch_give(j.a);
    return CORE_OK;
}
