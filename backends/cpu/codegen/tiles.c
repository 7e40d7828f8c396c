/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs the steps of a kernel of a loop program, tile by tile. */

#include "native.h"

#include <string.h>

#include <expressions/philox.h>
#include <libcore/sdk.h>

#include "loop/block.h"
#include "loop/loop.h"
#include "move/nontemporal.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

enum {
    LONG_ROW = 16384, /* longer ones are computed in pieces */
    SHORT_ROW = 64,   /* shorter rows are gathered several at a time */
    LEAST_TILE = 64,
    AHEAD = 2048, /* elements of a tile that also loads what is read later: 1024
                     to 4096 are as fast, 512 is slower */
    LINE = 64,    /* bytes of a cache's line */
    SECOND_LEVEL = 2, /* cache, for __builtin_prefetch */
    WORK = 1 << 18,   /* steps times elements for one thread */
    OPERANDS = CORE_LOOP_MAX_OPERANDS
};

typedef struct run {
    const cpu_tile_kernel *kernel;
    const core_loop *loop;
    int64_t inner;        /* the size of the innermost dimension */
    bool dense[OPERANDS]; /* the whole operand */
    bool rows[OPERANDS];  /* each row of the loop */
    bool all_dense;
    bool whole;             /* tiles may have any size */
    bool streams[OPERANDS]; /* written past the caches */
    int64_t capacity;       /* elements of a block */
    int64_t row_size;       /* elements of a row, with reductions */
    const core_loop_range *ahead;
    uint32_t nahead;
    bool no_memory, failed; /* atomic */
} run;

/* What a thread works with. */
typedef struct tile {
    const run *r;
    char *blocks;
    char **at;            /* of each value, now */
    cpu_parameters *rows; /* of each step */
    cpu_index index;      /* of the first element */
    int64_t position, n;
    bool within; /* the tile is in one row of the loop */
} tile;

static char *base_of(const run *r, uint32_t operand)
{
    return cpu_address(r->loop->operands[operand].memory);
}

/* The address from which a tile of an operand is contiguous, or NULL. */
static char *direct(const tile *t, uint32_t operand)
{
    const core_operand *o = &t->r->loop->operands[operand];

    if (t->r->dense[operand])
        return base_of(t->r, operand) + t->position * cpu_bytes_of(o->dtype);
    if (!t->r->rows[operand] || !t->within)
        return NULL;
    return base_of(t->r, operand) +
           cpu_index_offset(&t->index, t->r->loop, o->strides);
}

/* Moves the tile of an operand to a dense block or back, across rows. */
static void move(const tile *t, uint32_t operand, char *block, bool out)
{
    const core_loop *loop = t->r->loop;
    const core_operand *o = &loop->operands[operand];
    uint32_t bytes = cpu_bytes_of(o->dtype);
    int64_t stride = loop->ndim > 0 ? o->strides[0] : 0, done = 0;
    cpu_index index = t->index;

    while (done < t->n) {
        int64_t n = loop->ndim > 0 ? t->r->inner - index.at[0] : 1;
        char *at =
            base_of(t->r, operand) + cpu_index_offset(&index, loop, o->strides);

        if (n > t->n - done)
            n = t->n - done;
        if (out)
            cpu_scatter(at, stride, block + done * bytes, bytes, n);
        else
            cpu_gather(block + done * bytes, at, stride, bytes, n);
        cpu_index_advance(&index, loop, n);
        done += n;
    }
}

static char *block_of(const tile *t, const cpu_tile_step *step)
{
    return t->blocks + (int64_t)step->block * t->r->capacity * 8;
}

static void load(tile *t, const cpu_tile_step *step, uint32_t value)
{
    char *from = direct(t, step->operand);

    t->at[value] = from;
    if (from && !step->stored)
        return;
    t->at[value] = block_of(t, step);
    if (from)
        memcpy(t->at[value], from, (size_t)t->n * cpu_bytes_of(step->type));
    else
        move(t, step->operand, t->at[value], false);
}

static void store(const tile *t, const cpu_tile_step *step)
{
    char *to = direct(t, step->operand), *from = t->at[step->inputs[0]];
    int64_t bytes = t->n * cpu_bytes_of(step->type);

    if (to == from)
        return; /* the row wrote there */
    if (step->single)
        memcpy(
            base_of(t->r, step->operand) +
                cpu_index_offset(&t->index, t->r->loop,
                                 t->r->loop->operands[step->operand].strides),
            from, cpu_bytes_of(step->type));
    else if (to && t->r->streams[step->operand])
        cpu_copy_nontemporal(to, from, bytes);
    else if (to)
        memcpy(to, from, (size_t)bytes);
    else
        move(t, step->operand, from, true);
}

static void fill(const tile *t, const cpu_tile_step *step, char *to, int64_t n)
{
    const void *element =
        step->operand == CPU_TILE_NONE
            ? (const void *)&step->bits
            : (const void *)&t->r->loop->operands[step->operand].immediate;

    cpu_gather(to, element, 0, cpu_bytes_of(step->type), n);
}

static void number(const tile *t, const cpu_tile_step *step, int64_t *to)
{
    const core_loop *loop = t->r->loop;

    for (int64_t k = 0; k < t->n; k++) {
        cpu_index index;

        if (step->kind == CPU_TILE_POSITION) {
            to[k] = t->position + k;
        } else {
            cpu_index_set(&index, loop, t->position + k);
            to[k] = index.at[step->dimension];
        }
    }
}

static void draw(const tile *t, const cpu_tile_step *step, char *to)
{
    const uint64_t *seed = (const void *)t->at[step->inputs[0]];
    const uint64_t *block = (const void *)t->at[step->inputs[1]];
    const uint64_t *element = (const void *)t->at[step->inputs[2]];

    for (int64_t k = 0; k < t->n; k++) {
        uint32_t narrow;
        uint64_t wide;

        if (step->type == CORE_I32) {
            narrow = philox_32(seed[k], block[k], element[k]);
            memcpy(to + k * 4, &narrow, 4);
        } else {
            wide = philox_64(seed[k], block[k], element[k]);
            memcpy(to + k * 8, &wide, 8);
        }
    }
}

#define REPEAT(BITS)                                  \
    {                                                 \
        uint##BITS##_t *to = (uint##BITS##_t *)block; \
        const uint##BITS##_t element = to[0];         \
        for (int64_t k = 0; k < t->n; k++)            \
            to[k] = element;                          \
        break;                                        \
    }
/* Repeats the first element of a uniform value in its block. */
static void spread(const tile *t, const cpu_tile_step *step, void *block)
{
    switch (cpu_bytes_of(step->type)) {
    case 1:
        REPEAT(8)
    case 2:
        REPEAT(16)
    case 4:
        REPEAT(32)
    default:
        REPEAT(64)
    }
}
#undef REPEAT

/* Returns where a value is computed: in an output if it may write there, else
 * in its block. */
static char *place_of(tile *t, const cpu_tile_step *step, uint32_t value)
{
    char *to = NULL;

    if (step->store && !t->r->streams[t->r->kernel->steps[step->store].operand])
        to = direct(t, t->r->kernel->steps[step->store].operand);
    t->at[value] = to ? to : block_of(t, step);
    return t->at[value];
}

static void compute_row(tile *t, const cpu_tile_step *step, uint32_t value)
{
    char *p[CPU_OPERANDS] = {NULL};

    for (uint32_t k = 0; k < step->ninputs; k++)
        p[k + 1] = t->at[step->inputs[k]];
    p[0] = place_of(t, step, value);
    step->row(p[0], p[1], p[2], t->n, &t->rows[value], p);
}

/* Computes all steps of a group; `value` is one of them. */
static void compute_group(tile *t, uint32_t value)
{
    const cpu_tile_kernel *kernel = t->r->kernel;
    const cpu_native_group *group =
        &kernel->groups[kernel->steps[value].group - 1];
    char *pointers[VECTOR_POINTERS];

    for (uint32_t k = 0; k < group->npointers; k++)
        pointers[k] =
            group->role[k] == CPU_NATIVE_OUTPUT
                ? place_of(t, &kernel->steps[group->step[k]], group->step[k])
                : t->at[group->step[k]];
    cpu_native_run(group, pointers, group->uniform ? 1 : t->n);
    for (uint32_t i = group->first; group->uniform && i < group->end; i++)
        if (kernel->steps[i].spread)
            spread(t, &kernel->steps[i], t->at[i]);
}

/* ------------------------------------------------------------- reductions -- */

enum {
    LANES = 16,
    PARTS = 16 * LANES /* elements that are added in the dtype itself */
};

/* In lanes, whose order depends on n alone.  An extreme is NaN if an element
 * is: that is kept, because comparisons with it are false. */
#define REDUCE(TYPE, WIDE, PART)                                            \
    static WIDE sum_##TYPE(const TYPE *x, int64_t n)                        \
    {                                                                       \
        WIDE lanes[LANES] = {0}, sum = 0;                                   \
        int64_t k = 0;                                                      \
        while (k + LANES <= n) {                                            \
            PART parts[LANES] = {0};                                        \
            int64_t end = k + PARTS < n ? k + PARTS : n;                    \
            for (; k + LANES <= end; k += LANES)                            \
                MATH_EACH_LANE(PART, LANES, i, parts[i] += (PART)x[k + i];) \
            for (int i = 0; i < LANES; i++)                                 \
                lanes[i] += (WIDE)parts[i];                                 \
        }                                                                   \
        for (; k < n; k++)                                                  \
            lanes[0] += (WIDE)x[k];                                         \
        for (int i = 0; i < LANES; i++)                                     \
            sum += lanes[i];                                                \
        return sum;                                                         \
    }                                                                       \
    static TYPE extreme_##TYPE(const TYPE *x, int64_t n, bool most)         \
    {                                                                       \
        TYPE lanes[LANES], found;                                           \
        int64_t k = 0;                                                      \
        for (int i = 0; i < LANES; i++)                                     \
            lanes[i] = x[0];                                                \
        for (; most && k + LANES <= n; k += LANES)                          \
            MATH_EACH_LANE(TYPE, LANES, i, TYPE y = x[k + i];               \
                           lanes[i] =                                       \
                               (y > lanes[i] || y != y) ? y : lanes[i];)    \
        for (; !most && k + LANES <= n; k += LANES)                         \
            MATH_EACH_LANE(TYPE, LANES, i, TYPE y = x[k + i];               \
                           lanes[i] =                                       \
                               (y < lanes[i] || y != y) ? y : lanes[i];)    \
        found = lanes[0];                                                   \
        for (int i = 1; i < LANES; i++)                                     \
            if (lanes[i] != lanes[i] ||                                     \
                (most ? lanes[i] > found : lanes[i] < found))               \
                found = lanes[i];                                           \
        for (; k < n; k++)                                                  \
            if (x[k] != x[k] || (most ? x[k] > found : x[k] < found))       \
                found = x[k];                                               \
        return found;                                                       \
    }
REDUCE(float, double, float)
REDUCE(double, double, double)
REDUCE(int32_t, int64_t, int64_t)
REDUCE(int64_t, int64_t, int64_t)
#undef REDUCE

/* What is reduced so far. */
typedef union total {
    double real;
    int64_t integer;
} total;

#define REDUCE(TYPE, MEMBER)                                            \
    {                                                                   \
        bool most = step->kind == CPU_TILE_MAX;                         \
        if (step->kind == CPU_TILE_SUM) {                               \
            all->MEMBER += sum_##TYPE(from, t->n);                      \
        } else {                                                        \
            TYPE x = extreme_##TYPE(from, t->n, most);                  \
            if (first || x != x ||                                      \
                (most ? x > (TYPE)all->MEMBER : x < (TYPE)all->MEMBER)) \
                all->MEMBER = x;                                        \
        }                                                               \
        TYPE element = (TYPE)all->MEMBER;                               \
        memcpy(to, &element, sizeof element);                           \
        break;                                                          \
    }

/* Adds a tile to a total, which is 0 at first, and writes the total. */
static void reduce(const tile *t, const cpu_tile_step *step, total *all,
                   bool first, char *to)
{
    const void *from = t->at[step->inputs[0]];

    switch (step->type) {
    case CORE_F32:
        REDUCE(float, real)
    case CORE_F64:
        REDUCE(double, real)
    case CORE_I32:
        REDUCE(int32_t, integer)
    default:
        REDUCE(int64_t, integer)
    }
}
#undef REDUCE

static void compute_step(tile *t, uint32_t value)
{
    const cpu_tile_step *step = &t->r->kernel->steps[value];

    switch (step->kind) {
    case CPU_TILE_LOAD:
        load(t, step, value);
        return;
    case CPU_TILE_STORE:
        store(t, step);
        return;
    case CPU_TILE_ROW:
        compute_row(t, step, value);
        return;
    default:
        break;
    }
    t->at[value] = block_of(t, step);
    switch (step->kind) {
    case CPU_TILE_FILL:
        fill(t, step, t->at[value], t->n);
        break;
    case CPU_TILE_SIZE:
        cpu_gather(t->at[value],
                   (const char *)&t->r->loop->sizes[step->dimension], 0, 8,
                   t->n);
        break;
    case CPU_TILE_CONVERT:
        cpu_convert(step->type, t->at[value], step->from,
                    t->at[step->inputs[0]], t->n);
        break;
    case CPU_TILE_PHILOX:
        draw(t, step, t->at[value]);
        break;
    case CPU_TILE_ROW_SIZE:
        cpu_gather(t->at[value], (const char *)&t->r->row_size, 0, 8, t->n);
        break;
    case CPU_TILE_SUM:
    case CPU_TILE_MAX:
    case CPU_TILE_MIN:
        reduce(t, step, &(total){.integer = 0}, true, t->at[value]);
        break;
    default:
        number(t, step, (int64_t *)(void *)t->at[value]);
        break;
    }
}

static void compute(tile *t, uint32_t value)
{
    const cpu_tile_step *step = &t->r->kernel->steps[value];
    int64_t n = t->n;

    if (step->group) { /* with its first step */
        if (value == t->r->kernel->groups[step->group - 1].first)
            compute_group(t, value);
        return;
    }
    /* A reduction reads all elements. */
    if ((step->uniform && step->kind < CPU_TILE_SUM) ||
        (step->constant && !step->spread))
        t->n = 1;
    compute_step(t, value);
    t->n = n;
    if (step->uniform && step->spread)
        spread(t, step, t->at[value]);
}

/* Steps that are the same for all elements, or the others. */
static void compute_all(tile *t, bool constant)
{
    const cpu_tile_kernel *kernel = t->r->kernel;

    for (uint32_t i = 0; i < kernel->nsteps; i++)
        if (kernel->steps[i].constant == constant)
            compute(t, i);
}

/* Moves to a piece of a row that begins at a position. */
static void set_piece(tile *t, int64_t begin, int64_t offset)
{
    const run *r = t->r;

    t->position = begin + offset;
    t->n =
        r->row_size - offset < r->capacity ? r->row_size - offset : r->capacity;
    cpu_index_set(&t->index, r->loop, t->position);
    t->within = t->index.at[0] + t->n <= r->inner;
}

/* Computes what differs within a row, of the steps before `end`. */
static void compute_piece(tile *t, uint32_t end)
{
    const cpu_tile_kernel *kernel = t->r->kernel;

    for (uint32_t i = 0; i < end; i++)
        if (!kernel->steps[i].constant && !kernel->steps[i].uniform &&
            !kernel->steps[i].single)
            compute(t, i);
}

/* A row that is too long for blocks: for each reduction all pieces are computed
 * up to it, and at the end once more. */
static void run_pieces(tile *t)
{
    const cpu_tile_kernel *kernel = t->r->kernel;
    const int64_t begin = t->position;

    for (uint32_t i = 0; i < kernel->nsteps; i++) {
        const cpu_tile_step *step = &kernel->steps[i];
        total all = {.integer = 0};

        set_piece(t, begin, 0);
        if (step->kind < CPU_TILE_SUM) {
            if (step->uniform)
                compute(t, i);
            continue;
        }
        for (int64_t at = 0; at < t->r->row_size; at += t->r->capacity) {
            set_piece(t, begin, at);
            compute_piece(t, i);
            t->at[i] = block_of(t, step);
            reduce(t, step, &all, at == 0, t->at[i]);
        }
        set_piece(t, begin, 0);
        if (step->uniform && step->spread)
            spread(t, step, t->at[i]);
    }
    for (int64_t at = 0; at < t->r->row_size; at += t->r->capacity) {
        set_piece(t, begin, at);
        compute_piece(t, kernel->nsteps);
    }
    set_piece(t, begin, 0);
    for (uint32_t i = 0; i < kernel->nsteps; i++)
        if (kernel->steps[i].single)
            compute(t, i);
    t->n = t->r->row_size; /* for `advance` */
}

/* The elements of the next tile. */
static int64_t step_size(const tile *t, int64_t left)
{
    int64_t rest = t->r->loop->ndim > 0 ? t->r->inner - t->index.at[0] : 1;

    if (t->r->kernel->reduces)
        return t->r->row_size;
    if (t->r->whole)
        return t->r->nahead && left > AHEAD ? AHEAD : left;
    if (left > t->r->capacity)
        left = t->r->capacity;
    return !t->r->all_dense && rest >= SHORT_ROW && rest < left ? rest : left;
}

static void advance(tile *t)
{
    for (int64_t left = t->n; left > 0;) {
        int64_t n = t->r->loop->ndim > 0 ? t->r->inner - t->index.at[0] : 1;

        n = n < left ? n : left;
        cpu_index_advance(&t->index, t->r->loop, n);
        left -= n;
    }
    t->position += t->n;
}

/* Requests the part of what is read after the kernel that corresponds to the
 * tile: so many lines are requested while so many elements are computed. */
static void load_ahead(const tile *t)
{
    const double numel = (double)t->r->loop->numel;
    const double from = (double)t->position / numel;
    const double to = (double)(t->position + t->n) / numel;

    for (uint32_t i = 0; i < t->r->nahead; i++) {
        const core_loop_range *range = &t->r->ahead[i];
        const char *memory = cpu_address(range->memory);
        const uint64_t end = (uint64_t)(to * (double)range->bytes);

        for (uint64_t at = (uint64_t)(from * (double)range->bytes); at < end;
             at += LINE)
            __builtin_prefetch(memory + at, 0, SECOND_LEVEL);
    }
}

static size_t bytes_of_values(const cpu_tile_kernel *kernel)
{
    return kernel->nsteps * (sizeof(char *) + sizeof(cpu_parameters));
}

static void run_range(void *context, int64_t begin, int64_t end)
{
    run *r = context;
    const cpu_tile_kernel *kernel = r->kernel;
    size_t blocks = (size_t)kernel->nblocks * (size_t)r->capacity * 8;
    char *memory =
        cpu_scratch_take((int64_t)(blocks + bytes_of_values(kernel)));
    tile t = {.r = r, .blocks = memory, .position = begin};

    if (!memory) {
        __atomic_store_n(&r->no_memory, true, __ATOMIC_RELAXED);
        return;
    }
    t.rows = (cpu_parameters *)(void *)(memory + blocks);
    t.at = (char **)(void *)(t.rows + kernel->nsteps);
    for (uint32_t i = 0; i < kernel->nsteps; i++)
        t.rows[i] = kernel->steps[i].parameters;
    cpu_index_set(&t.index, r->loop, begin);
    t.n = end - begin < r->capacity ? end - begin : r->capacity;
    compute_all(&t, true);
    for (; t.position < end; advance(&t)) {
        t.n = step_size(&t, end - t.position);
        if (r->nahead > 0)
            load_ahead(&t);
        t.within = r->loop->ndim == 0 || t.index.at[0] + t.n <= r->inner;
        if (r->row_size > r->capacity)
            run_pieces(&t);
        else
            compute_all(&t, false);
    }
    for (uint32_t i = 0; kernel->divides && i < kernel->nsteps; i++)
        if (t.rows[i].failure)
            __atomic_store_n(&r->failed, true, __ATOMIC_RELAXED);
    for (uint32_t k = 0; k < kernel->noutputs; k++)
        if (r->streams[k]) {
            cpu_nontemporal_end();
            break;
        }
    cpu_scratch_give(memory);
}

static void run_rows(void *context, int64_t begin, int64_t end)
{
    const run *r = context;

    run_range(context, begin * r->row_size, end * r->row_size);
}

/* Large outputs that no operand of the loop shares. */
static void choose_streams(run *r)
{
    const core_loop *loop = r->loop;

    for (uint32_t k = 0; k < loop->noutputs; k++) {
        uint32_t bytes = cpu_bytes_of(loop->operands[k].dtype);

        r->streams[k] =
            r->dense[k] && !r->kernel->reduces &&
            cpu_writes_nontemporal(base_of(r, k), loop->numel * bytes);
        for (uint32_t i = loop->noutputs; i < loop->noperands; i++)
            if (!(loop->operands[i].flags & CORE_OPERAND_IMMEDIATE) &&
                base_of(r, i) == base_of(r, k))
                r->streams[k] = false;
    }
}

static void look_at(run *r, uint32_t operand)
{
    const core_loop *loop = r->loop;
    const core_operand *o = &loop->operands[operand];
    int64_t next = cpu_bytes_of(o->dtype);
    bool dense = true;

    if (o->flags & CORE_OPERAND_IMMEDIATE)
        return;
    for (uint32_t d = 0; d < loop->ndim; d++) {
        dense = dense && (o->strides[d] == next || loop->sizes[d] == 1);
        next *= loop->sizes[d];
    }
    r->dense[operand] = dense;
    r->rows[operand] =
        loop->ndim == 0 || o->strides[0] == (int64_t)cpu_bytes_of(o->dtype);
    r->all_dense = r->all_dense && dense;
}

/* Without blocks, which limit the size of a tile. */
static bool is_whole(const run *r)
{
    bool whole = r->kernel->whole && r->all_dense;

    for (uint32_t k = 0; k < r->loop->noutputs; k++)
        whole = whole && !r->streams[k];
    return whole;
}

/* Whole groups of vectors and of random numbers. */
static int64_t tile_of(cpu_tile_division division)
{
    int64_t tile = division.tile ? division.tile : CPU_BLOCK;

    tile = tile < LONG_ROW ? tile / LEAST_TILE * LEAST_TILE : LONG_ROW;
    return tile < LEAST_TILE ? LEAST_TILE : tile;
}

/* How many elements a thread computes, at least: whole tiles. */
static int64_t grain_of(const run *r, cpu_tile_division division)
{
    int64_t grain = WORK / (r->kernel->nsteps + 1), numel = r->loop->numel;

    if (division.threads && grain < numel / division.threads + 1)
        grain = numel / division.threads + r->capacity;
    return grain < r->capacity ? r->capacity
                               : grain / r->capacity * r->capacity;
}

bool CPU_NAME(cpu_tiles_run)(const cpu_tile_kernel *kernel,
                             const core_loop *loop, cpu_tile_division division,
                             bool *out_failed)
{
    run r = {.kernel = kernel,
             .loop = loop,
             .inner = loop->ndim > 0 ? loop->sizes[0] : 1,
             .capacity = tile_of(division),
             .all_dense = true,
             .ahead = division.ahead,
             .nahead = division.nahead};
    int64_t grain = WORK / (kernel->nsteps + 1);

    for (uint32_t k = 0; k < loop->noperands; k++)
        look_at(&r, k);
    choose_streams(&r);
    r.whole = is_whole(&r);
    if (kernel->reduces) {
        r.row_size = 1;
        for (uint32_t d = 0; d < loop->ndim && loop->reduced >> d & 1; d++)
            r.row_size *= loop->sizes[d];
        r.capacity = r.row_size < LONG_ROW ? r.row_size : LONG_ROW;
        grain = grain / r.row_size < 1 ? 1 : grain / r.row_size;
        cpu_parallel_for(loop->numel / r.row_size, grain, run_rows, &r);
        *out_failed = r.failed;
        return !r.no_memory;
    }
    cpu_parallel_for(loop->numel, grain_of(&r, division), run_range, &r);
    *out_failed = r.failed;
    return !r.no_memory;
}
