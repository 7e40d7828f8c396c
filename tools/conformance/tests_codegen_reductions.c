/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: kernels of loop programs with reductions, whose results are
 * defined to the bit. */

#include "loop_bench.h"
#include "tests_features.h"

#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------- at random -- */

/* Short and long rows, few and many of them, of one dimension and two. */
static uint32_t draw_sizes(uint64_t seed, int64_t sizes[3],
                           uint32_t *out_reduced)
{
    static const int64_t lengths[] = {1, 2, 31, 33, 64, 65, 130, 300};
    uint32_t ndim = 2;

    sizes[0] = lengths[seed & 7];
    sizes[1] = 1 + (int64_t)(seed >> 8 & 3);
    *out_reduced = 1;
    if (seed >> 12 & 1) { /* rows of two dimensions, or another of rows */
        *out_reduced = seed >> 13 & 1 ? 3 : 1;
        ndim = 3;
        sizes[2] = 1 + (int64_t)(seed >> 16 & 3);
    }
    if (sizes[0] <= 33 && (seed >> 20 & 3) == 0)
        sizes[ndim - 1] = 260;
    return ndim;
}

static bool run_random(codegen_bed *b, uint32_t number, uint64_t seed,
                       bool *out_refused)
{
    char what[TEST_DETAIL - 200];
    uint32_t ndim, reduced;
    int64_t sizes[3];
    loop_case now;
    loop_bench k;
    bool good;
    int length;

    loop_case_random_rows(&now, seed, b->divides);
    ndim = draw_sizes(seed, sizes, &reduced);
    length = snprintf(
        what, sizeof what, "random program %u, rows of %lld elements, ", number,
        (long long)(reduced == 3 ? sizes[0] * sizes[1] : sizes[0]));
    loop_case_text(&now.program, what + length, sizeof what - (size_t)length);
    if (!loop_bench_begin(b, &k, &now.program, ndim, sizes, reduced,
                          (loop_layout)(number % LOOP_LAYOUTS),
                          number % 3 == 0))
        return false;
    good = codegen_run(b, &now.program, &k, what, out_refused);
    loop_bench_end(b, &k);
    return good;
}

void codegen_random_rows(suite *self, outcome *out, const test *one)
{
    uint32_t count = self->quick ? 40 : 150, refused = 0;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    if (b.table->flags & CORE_CODEGEN_BUILDS_SLOWLY)
        count = self->quick ? 3 : 5;
    for (uint32_t i = 0; i < count; i++) {
        bool no;

        if (!run_random(&b, i, suite_random(self, "rows", i), &no))
            return;
        refused += no;
    }
    if (refused == count)
        not_supported(out,
                      "it accepts none of %u random programs with "
                      "reductions",
                      count);
}

/* --------------------------------------------------------- same memory -- */

/* For each row: out = a + sum(a) + r + b and row = max(a) + r + sum(b), where r
 * has an element for each row. */
static void sums_and_rows(loop_case *now)
{
    uint32_t a, r, b, sum, more;

    loop_case_begin(now, 2);
    now->program.flags = CORE_LOOP_PROGRAM_REDUCES;
    now->operands[1].flags |= CORE_LOOP_OPERAND_ROW;
    a = loop_case_load(now, CORE_F32, 0);
    r = loop_case_load(now, CORE_F32, CORE_LOOP_OPERAND_ROW);
    b = loop_case_load(now, CORE_F32, 0);
    sum = loop_case_add(now, CORE_LOOP_REDUCE_SUM, CORE_F32, a, 0, 0);
    sum = loop_case_add(now, CORE_LOOP_ADD, CORE_F32, sum, r, 0);
    sum = loop_case_add(now, CORE_LOOP_ADD, CORE_F32, sum, b, 0);
    sum = loop_case_add(now, CORE_LOOP_ADD, CORE_F32, sum, a, 0);
    more = loop_case_add(now, CORE_LOOP_REDUCE_MAX, CORE_F32, a, 0, 0);
    more = loop_case_add(now, CORE_LOOP_ADD, CORE_F32, more, r, 0);
    b = loop_case_add(now, CORE_LOOP_REDUCE_SUM, CORE_F32, b, 0, 0);
    more = loop_case_add(now, CORE_LOOP_ADD, CORE_F32, more, b, 0);
    loop_case_store(now, 0, sum);
    loop_case_store(now, 1, more);
    loop_case_end(now);
}

/* Outputs and inputs by their operands: 2 a, 3 r, 4 b. */
static const struct {
    const char *text;
    uint32_t output[2], input[2], count;
} sharings[] = {
    {"the output in the memory of an input", {0}, {2}, 1},
    {"the output of rows in the memory of an input of rows", {1}, {3}, 1},
    {"both outputs in the memory of inputs", {0, 1}, {2, 3}, 2},
    {"the output of rows in the memory of an input that is broadcast to rows",
     {1},
     {4},
     1},
};

static double small_integer(uint64_t i)
{
    return (double)(i * 7 % 50) - 20;
}

static bool run_shared_rows(codegen_bed *b, const core_loop_program *program,
                            void *kernel, size_t way, int64_t size)
{
    const int64_t sizes[] = {size, 3};
    loop_bench k;
    bool good;

    if (!loop_bench_begin(b, &k, program, 2, sizes, 1, LOOP_DENSE, true))
        return false;
    k.strides[4][0] = 0; /* b is broadcast to rows */
    k.strides[4][1] = sizeof(float);
    good = loop_bench_fill(b, &k, 2, small_integer) &&
           loop_bench_fill(b, &k, 3, small_integer) &&
           loop_bench_fill(b, &k, 4, small_integer);
    for (uint32_t i = 0; i < sharings[way].count; i++)
        loop_bench_share(&k, sharings[way].output[i], sharings[way].input[i]);
    good = good &&
           codegen_compare(b, program, kernel, &k, sharings[way].text, false);
    loop_bench_end(b, &k);
    return good;
}

void codegen_rows_may_be_inputs(suite *self, outcome *out, const test *one)
{
    static const int64_t sizes[] = {1, 20, 100, 1100, 20000};
    bool good = true, no;
    void *kernel;
    loop_case now;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    sums_and_rows(&now);
    if (!codegen_build(&b, &now.program, &kernel, &no))
        return;
    if (no) {
        not_supported(out, "it accepts no program with reductions of f32");
        return;
    }
    for (size_t w = 0; w < sizeof sharings / sizeof *sharings; w++)
        for (size_t n = 0; good && n < sizeof sizes / sizeof *sizes; n++)
            good = run_shared_rows(&b, &now.program, kernel, w, sizes[n]);
    b.table->destroy(b.p->device, kernel);
}
