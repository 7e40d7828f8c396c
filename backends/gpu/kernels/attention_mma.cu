/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* attention_mma.cu: attention of f16 and bf16 by tensor cores; what it computes
 * is described in attention.cu.  The parts are arranged as by T. Dao,
 * "FlashAttention-2", 2023: each of the four warps of a block has the scores of
 * its own queries with a tile of keys in registers, and multiplies their
 * exponentials, rounded to 16 bits, by the tile of values.  The next tile is
 * copied to shared memory meanwhile.
 *
 * A line of a tile consists of units of 8 elements; unit u of line l is at
 * u ^ l % 8, so that the lanes that read a column use different banks. */

#include "attention.h"
#include "warp_matrix.h"

#if GPU_TENSOR_CORES

enum { THREADS = 128, WARPS = 4 };

/* Lines of WIDTH elements in shared memory. */
template <class M, int WIDTH> struct staged {
    enum { UNITS = WIDTH / 8 };

    static GPU_DEVICE_MEMBER uint32_t at(uint32_t line, uint32_t unit)
    {
        return line * UNITS + (unit ^ (line & 7));
    }

    /* Begins to copy LINES lines, with 0 for missing elements. */
    template <int LINES>
    static GPU_DEVICE_MEMBER void copy(gpu_eight *to, const lines<M> &from,
                                       int64_t first)
    {
#pragma unroll
        for (uint32_t i = 0; i < LINES * UNITS / THREADS; i++) {
            uint32_t k = i * THREADS + gpu_thread.x;
            uint32_t line = k / UNITS, unit = k % UNITS;
            bool there = first + line < from.count && unit * 8 < from.width;

            gpu_copy_eight(
                &to[at(line, unit)],
                from.data + (there ? (first + line) * from.row + unit * 8 : 0),
                there);
        }
    }

    /* Loads 16 x WIDTH elements as left operands. */
    static GPU_DEVICE_MEMBER void load_left(uint32_t (*left)[4],
                                            const gpu_eight *from,
                                            uint32_t line)
    {
        uint32_t lane = gpu_thread.x % 32;

#pragma unroll
        for (uint32_t k = 0; k < WIDTH / 16; k++)
            gpu_load_matrices(left[k],
                              &from[at(line + lane % 16, k * 2 + lane / 16)]);
    }

    /* sums[i] = left[i] fromᵀ for COUNT lines of `from`. */
    template <int TILES, int COUNT>
    static GPU_DEVICE_MEMBER void scores(float (*sums)[COUNT / 8][4],
                                         uint32_t (*left)[WIDTH / 16][4],
                                         const gpu_eight *from)
    {
        uint32_t lane = gpu_thread.x % 32;

#pragma unroll
        for (uint32_t t = 0; t < TILES; t++)
#pragma unroll
            for (uint32_t n = 0; n < COUNT / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    sums[t][n][i] = 0;
#pragma unroll
        for (uint32_t k = 0; k < WIDTH / 16; k++)
#pragma unroll
            for (uint32_t n = 0; n < COUNT / 16; n++) {
                uint32_t right[4];

                gpu_load_matrices(right,
                                  &from[at(n * 16 + lane / 16 * 8 + lane % 8,
                                           k * 2 + lane / 8 % 2)]);
#pragma unroll
                for (uint32_t t = 0; t < TILES; t++) {
                    gpu_add_product<M>(sums[t][n * 2], left[t][k], right);
                    gpu_add_product<M>(sums[t][n * 2 + 1], left[t][k],
                                       right + 2);
                }
            }
    }

    /* sums[i] += weights[i] from, where the weights are arranged like sums. */
    template <int TILES, int COUNT>
    static GPU_DEVICE_MEMBER void gather(float (*sums)[WIDTH / 8][4],
                                         float (*weights)[COUNT / 8][4],
                                         const gpu_eight *from)
    {
        uint32_t lane = gpu_thread.x % 32;

        gpu_converge();
#pragma unroll
        for (uint32_t k = 0; k < COUNT / 16; k++) {
            uint32_t left[TILES][4];

#pragma unroll
            for (uint32_t t = 0; t < TILES; t++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) {
                    const float *pair = &weights[t][k * 2 + i / 2][i % 2 * 2];

                    left[t][i] = gpu_pair_of<M>(pair[0], pair[1]);
                }
#pragma unroll
            for (uint32_t n = 0; n < WIDTH / 16; n++) {
                uint32_t right[4];

                gpu_load_transposed(
                    right, &from[at(k * 16 + lane % 16, n * 2 + lane / 16)]);
#pragma unroll
                for (uint32_t t = 0; t < TILES; t++) {
                    gpu_add_product<M>(sums[t][n * 2], left[t], right);
                    gpu_add_product<M>(sums[t][n * 2 + 1], left[t], right + 2);
                }
            }
        }
    }

    /* Writes the lanes' sums for 16 lines. */
    static GPU_DEVICE_MEMBER void write(const lines<M> &to, int64_t first,
                                        float (*sums)[4], float upper,
                                        float lower)
    {
        uint32_t lane = gpu_thread.x % 32;

#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            int64_t line = first + lane / 4 + h * 8;
            float factor = h == 0 ? upper : lower;

            if (line >= to.count)
                continue;
#pragma unroll
            for (uint32_t n = 0; n < WIDTH / 8; n++)
                if (n * 8 < to.width)
                    *(uint32_t *)(to.data + line * to.row + n * 8 +
                                  lane % 4 * 2) =
                        gpu_pair_of<M>(sums[n][h * 2] * factor,
                                       sums[n][h * 2 + 1] * factor);
        }
    }
};

/* -------------------------------------------------------------- forward -- */

/* TILES of 16 queries per warp; COUNT keys at a time.  PLAIN: no bias and no
 * dropout. */
template <class M, int WIDTH, int TILES, int COUNT, bool PLAIN> struct attend {
    typedef staged<M, WIDTH> s;
    enum { UNITS = COUNT * s::UNITS, ROWS = WARPS * TILES * 16 };

    /* What a lane has of its queries, in two lines of each tile of 16. */
    struct state {
        uint32_t query[TILES][WIDTH / 16][4];
        float sum[TILES][WIDTH / 8][4], most[TILES][2], total[TILES][2];
        float unit; /* log2 e, times the scale if the scores lack it */
    };

    static GPU_DEVICE_MEMBER void mask(const gpu_attention &p,
                                       const block_position<M> &at,
                                       float (*x)[COUNT / 8][4], int64_t row,
                                       int64_t column)
    {
#pragma unroll
        for (uint32_t t = 0; t < TILES; t++)
#pragma unroll
            for (uint32_t n = 0; n < COUNT / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) {
                    int64_t r = row + t * 16 + i / 2 * 8;
                    int64_t c = column + n * 8 + i % 2;
                    bool hidden;

                    if (c >= p.columns || (PLAIN && p.causal && c > r))
                        x[t][n][i] = -INFINITE_f32;
                    else if (!PLAIN && r < p.rows)
                        x[t][n][i] =
                            score_of<M>(p, at, x[t][n][i], r, c, &hidden);
                }
    }

    /* Replaces scores with their exponentials, and rescales the previous sums
     * to the new maximum. */
    static GPU_DEVICE_MEMBER void update_softmax(state *my,
                                                 float (*x)[COUNT / 8][4])
    {
        float factor[TILES][2];
        bool same = true;

#pragma unroll
        for (uint32_t t = 0; t < TILES; t++)
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                float largest = my->most[t][h], share = 0, zero;

#pragma unroll
                for (uint32_t n = 0; n < COUNT / 8; n++)
                    largest = fmaxf(largest,
                                    fmaxf(x[t][n][h * 2], x[t][n][h * 2 + 1]));
                largest = fmaxf(largest, gpu_shuffle_xor(largest, 1));
                largest = fmaxf(largest, gpu_shuffle_xor(largest, 2));
                /* Avoids infinity minus infinity. */
                zero = largest == -INFINITE_f32 ? 0.0f : largest * my->unit;
                factor[t][h] =
                    gpu_fast_exp2(fmaf(my->most[t][h], my->unit, -zero));
                same = same && my->most[t][h] == largest;
#pragma unroll
                for (uint32_t n = 0; n < COUNT / 8; n++)
#pragma unroll
                    for (uint32_t i = h * 2; i < h * 2 + 2; i++) {
                        x[t][n][i] =
                            gpu_fast_exp2(fmaf(x[t][n][i], my->unit, -zero));
                        share += x[t][n][i];
                    }
                my->most[t][h] = largest;
                my->total[t][h] = fmaf(my->total[t][h], factor[t][h], share);
            }
        /* The factors are 1 then, or the sums 0. */
        if (gpu_ballot(!same) == 0)
            return;
#pragma unroll
        for (uint32_t t = 0; t < TILES; t++)
#pragma unroll
            for (uint32_t n = 0; n < WIDTH / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    my->sum[t][n][i] *= factor[t][i / 2];
    }

    static GPU_DEVICE_MEMBER void drop(const gpu_attention &p,
                                       const block_position<M> &at,
                                       float (*x)[COUNT / 8][4], int64_t row,
                                       int64_t column)
    {
#pragma unroll
        for (uint32_t t = 0; t < TILES; t++)
#pragma unroll
            for (uint32_t n = 0; n < COUNT / 8; n++)
#pragma unroll
                for (uint32_t h = 0; h < 2; h++) {
                    drawing d = no_drawing();

#pragma unroll
                    for (uint32_t i = 0; i < 2; i++)
                        if (!kept(p, at, &d, row + t * 16 + h * 8,
                                  column + n * 8 + i))
                            x[t][n][h * 2 + i] = 0;
                }
    }

    static GPU_DEVICE_MEMBER void finish(const gpu_attention &p,
                                         const block_position<M> &at, state *my,
                                         int64_t row)
    {
        lines<M> to = lines_of<M>(p.output, at.batch, at.head, p.rows, p.outer);
        uint32_t lane = gpu_thread.x % 32;

#pragma unroll
        for (uint32_t t = 0; t < TILES; t++) {
            float factor[2];

#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                float total = my->total[t][h];
                int64_t line = row + t * 16 + h * 8 + lane / 4;

                total += gpu_shuffle_xor(total, 1);
                total += gpu_shuffle_xor(total, 2);
                factor[h] =
                    total == 0
                        ? 0.0f
                        : (p.dropout ? (float)p.kept_scale : 1.0f) / total;
                if (p.sum.data != 0 && lane % 4 == 0 && line < p.rows)
                    *sum_of<M>(p, at, line) =
                        my->most[t][h] * (PLAIN ? (float)p.scale : 1.0f) +
                        log_f32(total);
            }
            s::write(to, row + t * 16, my->sum[t], factor[0], factor[1]);
        }
    }

    static GPU_DEVICE_MEMBER void rows(const gpu_attention &p,
                                       block_position<M> &at,
                                       gpu_eight (*tiles)[2][UNITS],
                                       int64_t first)
    {
        uint32_t warp = gpu_thread.x / 32 * TILES * 16,
                 lane = gpu_thread.x % 32;
        int64_t row = first + warp, end = p.columns;
        uint32_t stage = 0;
        state my;

        static_assert(ROWS <= 2 * COUNT, "a stage has room for the queries");
        if (p.causal && end > first + ROWS)
            end = first + ROWS;
        my.unit = (float)((PLAIN ? p.scale : 1) * 1.4426950408889634);
#pragma unroll
        for (uint32_t t = 0; t < TILES; t++) {
            my.most[t][0] = my.most[t][1] = -INFINITE_f32;
            my.total[t][0] = my.total[t][1] = 0;
#pragma unroll
            for (uint32_t n = 0; n < WIDTH / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    my.sum[t][n][i] = 0;
        }
        gpu_barrier(); /* the last tiles are read */
        s::template copy<ROWS>(tiles[1][0], at.query, first);
        gpu_copies_end();
        s::template copy<COUNT>(tiles[0][0], at.key, 0);
        s::template copy<COUNT>(tiles[0][1], at.value, 0);
        gpu_copies_end();
        gpu_wait_for_copies<1>();
        gpu_barrier();
#pragma unroll
        for (uint32_t t = 0; t < TILES; t++)
            s::load_left(my.query[t], tiles[1][0], warp + t * 16);
        for (int64_t c = 0; c < end; c += COUNT, stage ^= 1) {
            float x[TILES][COUNT / 8][4];

            gpu_wait_for_copies<0>();
            gpu_barrier(); /* this tile is complete, the last one read */
            if (c + COUNT < end) {
                s::template copy<COUNT>(tiles[stage ^ 1][0], at.key, c + COUNT);
                s::template copy<COUNT>(tiles[stage ^ 1][1], at.value,
                                        c + COUNT);
                gpu_copies_end();
            }
            if (p.causal && c >= row + TILES * 16)
                continue;
            s::template scores<TILES, COUNT>(x, my.query, tiles[stage][0]);
            if (!PLAIN || c + COUNT > p.columns ||
                (p.causal && c + COUNT > row + 1))
                mask(p, at, x, row + lane / 4, c + lane % 4 * 2);
            update_softmax(&my, x);
            if (!PLAIN && p.dropout)
                drop(p, at, x, row + lane / 4, c + lane % 4 * 2);
            s::template gather<TILES, COUNT>(my.sum, x, tiles[stage][1]);
        }
        gpu_wait_for_copies<0>();
        finish(p, at, &my, row);
    }

    static GPU_DEVICE_MEMBER void all(const gpu_attention &p)
    {
        GPU_SHARED gpu_eight tiles[2][2][UNITS];
        int64_t lines_of_tiles = (p.rows + ROWS - 1) / ROWS;
        int64_t count = lines_of_tiles * p.batch * p.heads;
        uint64_t seed = p.counter != 0 ? p.counter[1] : p.seed;
        uint64_t offset = p.offset + (p.counter != 0 ? p.counter[0] : 0);

        if (gpu_block.x == 0 && gpu_thread.x == 0) {
            *p.state[0] = seed;
            *p.state[1] = offset;
        }
        for (int64_t i = gpu_block.x; i < count; i += gpu_grid.x) {
            int64_t line, plane = gpu_split(i, lines_of_tiles, &line);
            block_position<M> at = block_position_of<M>(p, plane);

            at.seed = seed;
            at.offset = offset;
            /* The last queries see the most keys: they begin first. */
            if (p.causal)
                line = lines_of_tiles - 1 - line;
            rows(p, at, tiles, line * ROWS);
        }
    }
};

/* ------------------------------------------------------------- backward -- */

/* A block has 64 queries or keys, a warp 16 of them; see retreat in
 * attention.cu. */
template <class M, int WIDTH, int COUNT, bool PLAIN> struct retreat {
    typedef staged<M, WIDTH> s;
    enum { UNITS = COUNT * s::UNITS, ROWS = WARPS * 16 };
    typedef float block_scores[1][COUNT / 8][4];
    typedef float block_sums[1][WIDTH / 8][4];

    static_assert(2 * ROWS <= 2 * COUNT * 2, "two stages have room");

    /* The log of the softmax's denominator, to base 2.  Infinity: every weight
     * is 0, as the query has no keys or does not exist. */
    static GPU_DEVICE_MEMBER float log_of(const gpu_attention &p,
                                          const block_position<M> &at,
                                          int64_t row)
    {
        float sum;

        if (row >= p.rows)
            return INFINITE_f32;
        sum = *sum_of<M>(p, at, row);
        return sum == -INFINITE_f32 ? INFINITE_f32 : sum * 1.44269504f;
    }
    static GPU_DEVICE_MEMBER float delta_of(const gpu_attention &p,
                                            const block_position<M> &at,
                                            int64_t row)
    {
        return row < p.rows ? ((const float *)p.delta)[at.plane * p.rows + row]
                            : 0.0f;
    }

    /* One element: x is the product of query and key, g that of gradient and
     * value.  x becomes the weight, or 0 if it is dropped, and g the gradient of
     * the score. */
    template <bool EDGE>
    static GPU_DEVICE_MEMBER void element(const gpu_attention &p,
                                          const block_position<M> &at, float *x,
                                          float *g, float unit, float log,
                                          float delta, int64_t row,
                                          int64_t column)
    {
        bool hidden = false;
        float weight;

        if (EDGE && PLAIN) {
            hidden = column >= p.columns || (p.causal && column > row);
        } else if (!PLAIN) {
            if (row < p.rows && column < p.columns)
                *x = score_of<M>(p, at, *x, row, column, &hidden);
            else
                hidden = true;
        }
        weight = hidden ? 0.0f : gpu_fast_exp2(fmaf(*x, unit, -log));
        *x = weight;
        if (!PLAIN && p.dropout) {
            drawing d = no_drawing();
            bool stays = kept(p, at, &d, row, column);

            *x = stays ? weight : 0.0f;
            *g = stays ? *g * (float)p.kept_scale : 0.0f;
        }
        *g = hidden ? 0.0f : weight * (*g - delta);
    }

    static GPU_DEVICE_MEMBER void clear(float (*sums)[4])
    {
#pragma unroll
        for (uint32_t n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                sums[n][i] = 0;
    }

    static GPU_DEVICE_MEMBER float unit_of(const gpu_attention &p)
    {
        return (float)((PLAIN ? p.scale : 1) * 1.4426950408889634);
    }

    /* Loads this block's lines as left operands, by way of the first stage. */
    static GPU_DEVICE_MEMBER void load_lefts(uint32_t (*a)[4], uint32_t (*b)[4],
                                             gpu_eight (*tiles)[2][UNITS],
                                             const lines<M> &first_lines,
                                             const lines<M> &second_lines,
                                             int64_t first)
    {
        uint32_t warp = gpu_thread.x / 32 * 16;
        gpu_eight *to = tiles[0][0];

        gpu_barrier(); /* the last tiles are read */
        s::template copy<ROWS>(to, first_lines, first);
        s::template copy<ROWS>(to + ROWS * s::UNITS, second_lines, first);
        gpu_copies_end();
        gpu_wait_for_copies<0>();
        gpu_barrier();
        s::load_left(a, to, warp);
        s::load_left(b, to + ROWS * s::UNITS, warp);
        gpu_barrier();
    }

    template <bool EDGE>
    static GPU_DEVICE_MEMBER void query_weights(const gpu_attention &p,
                                                const block_position<M> &at,
                                                block_scores x, block_scores g,
                                                float unit, const float *log,
                                                const float *delta, int64_t row,
                                                int64_t column)
    {
#pragma unroll
        for (uint32_t n = 0; n < COUNT / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                element<EDGE>(p, at, &x[0][n][i], &g[0][n][i], unit, log[i / 2],
                              delta[i / 2], row + i / 2 * 8,
                              column + n * 8 + i % 2);
    }

    /* dQ = scale dS K for the block's queries. */
    static GPU_DEVICE_MEMBER void queries(const gpu_attention &p,
                                          const block_position<M> &at,
                                          gpu_eight (*tiles)[2][UNITS],
                                          int64_t first)
    {
        lines<M> grad = lines_of<M>(p.grad, at.batch, at.head, p.rows, p.outer);
        uint32_t lane = gpu_thread.x % 32, stage = 0;
        int64_t row = first + gpu_thread.x / 32 * 16, end = p.columns;
        uint32_t query[1][WIDTH / 16][4], slope[1][WIDTH / 16][4];
        float log[2], delta[2], unit = unit_of(p);
        block_sums sum;

        if (p.causal && end > first + ROWS)
            end = first + ROWS;
        clear(sum[0]);
        load_lefts(query[0], slope[0], tiles, at.query, grad, first);
        s::template copy<COUNT>(tiles[0][0], at.key, 0);
        s::template copy<COUNT>(tiles[0][1], at.value, 0);
        gpu_copies_end();
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            log[h] = log_of(p, at, row + lane / 4 + h * 8);
            delta[h] = delta_of(p, at, row + lane / 4 + h * 8);
        }
        for (int64_t c = 0; c < end; c += COUNT, stage ^= 1) {
            block_scores x, g;

            gpu_wait_for_copies<0>();
            gpu_barrier(); /* this tile is complete, the last one read */
            if (c + COUNT < end) {
                s::template copy<COUNT>(tiles[stage ^ 1][0], at.key, c + COUNT);
                s::template copy<COUNT>(tiles[stage ^ 1][1], at.value,
                                        c + COUNT);
                gpu_copies_end();
            }
            if (p.causal && c >= row + 16)
                continue;
            s::template scores<1, COUNT>(x, query, tiles[stage][0]);
            s::template scores<1, COUNT>(g, slope, tiles[stage][1]);
            if (c + COUNT > p.columns || (p.causal && c + COUNT > row + 1))
                query_weights<true>(p, at, x, g, unit, log, delta,
                                    row + lane / 4, c + lane % 4 * 2);
            else
                query_weights<false>(p, at, x, g, unit, log, delta,
                                     row + lane / 4, c + lane % 4 * 2);
            s::template gather<1, COUNT>(sum, g, tiles[stage][0]);
        }
        gpu_wait_for_copies<0>();
        s::write(lines_of<M>(p.to_query, at.batch, at.head, p.rows, p.inner),
                 row, sum[0], (float)p.scale, (float)p.scale);
    }

    template <bool EDGE>
    static GPU_DEVICE_MEMBER void key_weights(const gpu_attention &p,
                                              const block_position<M> &at,
                                              block_scores x, block_scores g,
                                              float unit, const float *log,
                                              const float *delta, int64_t row,
                                              int64_t column)
    {
        uint32_t lane = gpu_thread.x % 32;

#pragma unroll
        for (uint32_t n = 0; n < COUNT / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t k = n * 8 + lane % 4 * 2 + i % 2;

                element<EDGE>(p, at, &x[0][n][i], &g[0][n][i], unit, log[k],
                              delta[k], row + k, column + i / 2 * 8);
            }
    }

    /* dV = Pᵀ dO and dK = scale dSᵀ Q for the block's keys: KEYS, VALUES: which
     * of them. */
    template <bool KEYS, bool VALUES>
    static GPU_DEVICE_MEMBER void keys(const gpu_attention &p,
                                       const block_position<M> &at,
                                       gpu_eight (*tiles)[2][UNITS],
                                       float (*logs)[COUNT],
                                       float (*deltas)[COUNT], int64_t first)
    {
        lines<M> grad = lines_of<M>(p.grad, at.batch, at.head, p.rows, p.outer);
        uint32_t lane = gpu_thread.x % 32, stage = 0;
        int64_t column = first + gpu_thread.x / 32 * 16;
        int64_t begin = p.causal ? first : 0;
        uint32_t key[1][WIDTH / 16][4], value[1][WIDTH / 16][4];
        float unit = unit_of(p);
        block_sums to_key, to_value;

        clear(to_key[0]);
        clear(to_value[0]);
        load_lefts(key[0], value[0], tiles, at.key, at.value, first);
        s::template copy<COUNT>(tiles[0][0], at.query, begin);
        s::template copy<COUNT>(tiles[0][1], grad, begin);
        gpu_copies_end();
        if (gpu_thread.x < COUNT) {
            logs[0][gpu_thread.x] = log_of(p, at, begin + gpu_thread.x);
            deltas[0][gpu_thread.x] = delta_of(p, at, begin + gpu_thread.x);
        }
        for (int64_t c = begin; c < p.rows; c += COUNT, stage ^= 1) {
            block_scores x, g;
            float log = 0, delta = 0;

            gpu_wait_for_copies<0>();
            gpu_barrier(); /* this tile is complete, the last one read */
            if (c + COUNT < p.rows) {
                s::template copy<COUNT>(tiles[stage ^ 1][0], at.query,
                                        c + COUNT);
                s::template copy<COUNT>(tiles[stage ^ 1][1], grad, c + COUNT);
                gpu_copies_end();
            }
            if (gpu_thread.x < COUNT) {
                log = log_of(p, at, c + COUNT + gpu_thread.x);
                delta = delta_of(p, at, c + COUNT + gpu_thread.x);
            }
            if (!p.causal || c + COUNT > column) {
                s::template scores<1, COUNT>(x, key, tiles[stage][0]);
                if (KEYS) {
                    s::template scores<1, COUNT>(g, value, tiles[stage][1]);
                } else {
#pragma unroll
                    for (uint32_t i = 0; i < COUNT / 2; i++)
                        g[0][i / 4][i % 4] = 0;
                }
                if (p.causal && c < column + 15)
                    key_weights<true>(p, at, x, g, unit, logs[stage],
                                      deltas[stage], c, column + lane / 4);
                else
                    key_weights<false>(p, at, x, g, unit, logs[stage],
                                       deltas[stage], c, column + lane / 4);
                if (VALUES)
                    s::template gather<1, COUNT>(to_value, x, tiles[stage][1]);
                if (KEYS)
                    s::template gather<1, COUNT>(to_key, g, tiles[stage][0]);
            }
            if (gpu_thread.x < COUNT) {
                logs[stage ^ 1][gpu_thread.x] = log;
                deltas[stage ^ 1][gpu_thread.x] = delta;
            }
        }
        gpu_wait_for_copies<0>();
        if (KEYS && p.to_key.data != 0)
            s::write(
                lines_of<M>(p.to_key, at.batch, at.head, p.columns, p.inner),
                column, to_key[0], (float)p.scale, (float)p.scale);
        if (VALUES && p.to_value.data != 0) {
            float factor = p.dropout ? (float)p.kept_scale : 1.0f;

            s::write(
                lines_of<M>(p.to_value, at.batch, at.head, p.columns, p.outer),
                column, to_value[0], factor, factor);
        }
    }

    static GPU_DEVICE_MEMBER void all(const gpu_attention &p, bool of_queries)
    {
        GPU_SHARED gpu_eight tiles[2][2][UNITS];
        GPU_SHARED float logs[2][COUNT], deltas[2][COUNT];
        int64_t each = ((of_queries ? p.rows : p.columns) + ROWS - 1) / ROWS;
        int64_t count = each * p.batch * p.heads;

        for (int64_t i = gpu_block.x; i < count; i += gpu_grid.x) {
            int64_t line, plane = gpu_split(i, each, &line);
            block_position<M> at = block_position_of<M>(p, plane);

            at.seed = *p.state[0];
            at.offset = *p.state[1];
            if (p.causal && of_queries)
                line = each - 1 - line;
            if (of_queries) {
                queries(p, at, tiles, line * ROWS);
            } else if (WIDTH <= 64) {
                keys<true, true>(p, at, tiles, logs, deltas, line * ROWS);
            } else { /* the registers do not suffice for both */
                keys<false, true>(p, at, tiles, logs, deltas, line * ROWS);
                keys<true, false>(p, at, tiles, logs, deltas, line * ROWS);
            }
        }
    }
};

#define FORWARD(...) attend<__VA_ARGS__>::all(p)
#define BACKWARD(of_queries, ...) retreat<__VA_ARGS__>::all(p, of_queries)

#else

#define FORWARD(...) (void)p
#define BACKWARD(...) (void)p

#endif

/* attention_mma_WIDTH_TYPE: for queries and values of at most WIDTH elements;
 * …_any_…: with bias or dropout.  The host side launches them only where there
 * are tensor cores. */
#define SIZE(plain, stem, width, tiles, count, suffix, M)                    \
    GPU_KERNEL_OF(attention_mma##stem##width##_##suffix, gpu_attention, 128) \
    {                                                                        \
        FORWARD(M, width, tiles, count, plain);                              \
    }                                                                        \
    GPU_KERNEL_OF(attention_mma_rows##stem##width##_##suffix, gpu_attention, \
                  128)                                                       \
    {                                                                        \
        BACKWARD(true, M, width, count, plain);                              \
    }                                                                        \
    GPU_KERNEL_OF(attention_mma_keys##stem##width##_##suffix, gpu_attention, \
                  128)                                                       \
    {                                                                        \
        BACKWARD(false, M, width, count, plain);                             \
    }
#define TYPE(suffix, M)                      \
    SIZE(true, _, 64, 2, 64, suffix, M)      \
    SIZE(true, _, 128, 1, 32, suffix, M)     \
    SIZE(false, _any_, 64, 1, 64, suffix, M) \
    SIZE(false, _any_, 128, 1, 32, suffix, M)
TYPE(f16, gpu_f16)
TYPE(bf16, gpu_bf16)
