/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: kernels of loop programs with reductions, whose results are
 * defined to the bit. */

#include "loop_bench.h"
#include "tests_features.h"

#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------- at random -- */

typedef struct rows_shape {
    uint32_t ndim, reduced; /* dimensions of rows: bits 0, 1 */
    int64_t sizes[3];
    loop_layout how;
    bool all_same;
} rows_shape;

/* What a kernel may treat in another way: one element, rows of two dimensions
 * with gaps or that cannot be merged, and rows that are beside each other. */
static const rows_shape special_shapes[] = {
    {2, 1, {1, 1}, LOOP_DENSE, true},
    {3, 3, {5, 7, 6}, LOOP_GAPS, false},
    {2, 1, {40, 300}, LOOP_TRANSPOSED, true},
};

/* More rows than a launch may have groups in its second dimension. */
static const rows_shape many_rows = {2, 1, {2, 70001}, LOOP_DENSE, true};

/* Short and long rows, few and many of them, of one dimension and two. */
static rows_shape draw_shape(uint64_t seed, uint32_t number)
{
    static const int64_t lengths[] = {1, 2, 31, 33, 64, 65, 130, 300};
    rows_shape s = {.ndim = 2, .reduced = 1};

    s.sizes[0] = lengths[seed & 7];
    s.sizes[1] = 1 + (int64_t)(seed >> 8 & 3);
    if (seed >> 12 & 1) { /* rows of two dimensions, or another of rows */
        s.reduced = seed >> 13 & 1 ? 3 : 1;
        s.ndim = 3;
        s.sizes[2] = 1 + (int64_t)(seed >> 16 & 3);
    }
    if (s.sizes[0] <= 33 && (seed >> 20 & 3) == 0)
        s.sizes[s.ndim - 1] = 260;
    s.how = (loop_layout)(number % LOOP_LAYOUTS);
    s.all_same = number % 3 == 0;
    return s;
}

/* Launches the kernel of a program on operands of one shape, and compares.
 * name: of the program; number: the numbers of its inputs, NULL: any. */
static bool run_shape(codegen_bed *b, const core_loop_program *program,
                      void *kernel, const rows_shape *s, const char *name,
                      double (*number)(uint64_t i))
{
    char what[TEST_DETAIL - 200], length[48];
    bool plane = s->reduced == 3, good;
    loop_bench k;
    int used;

    snprintf(length, sizeof length, plane ? "%lld x %lld" : "%lld",
             (long long)s->sizes[0], (long long)s->sizes[1]);
    used = snprintf(what, sizeof what, "%s, %lld rows of %s elements, %s%s, ",
                    name,
                    (long long)((plane ? 1 : s->sizes[1]) *
                                (s->ndim == 3 ? s->sizes[2] : 1)),
                    length, loop_layout_texts[s->how],
                    s->all_same ? "" : " and other layouts");
    loop_case_text(program, what + used, sizeof what - (size_t)used);
    if (!loop_bench_begin(b, &k, program, s->ndim, s->sizes, s->reduced, s->how,
                          s->all_same))
        return false;
    good = true;
    for (uint32_t i = program->noutputs; number && i < program->noperands; i++)
        good = good && loop_bench_fill(b, &k, i, number);
    good = good && codegen_compare(b, program, kernel, &k, what, false);
    loop_bench_end(b, &k);
    return good;
}

static bool run_special_shapes(codegen_bed *b, const core_loop_program *program,
                               void *kernel, const char *name,
                               double (*number)(uint64_t i))
{
    for (size_t i = 0; i < sizeof special_shapes / sizeof *special_shapes; i++)
        if (!run_shape(b, program, kernel, &special_shapes[i], name, number))
            return false;
    return true;
}

/* specially: also on the special shapes. */
static bool run_random(codegen_bed *b, uint32_t number, uint64_t seed,
                       bool specially, bool *out_refused)
{
    rows_shape shape = draw_shape(seed, number);
    char name[40];
    loop_case now;
    void *kernel;
    bool good;

    snprintf(name, sizeof name, "random program %u", number);
    loop_case_random_rows(&now, seed, b->divides);
    if (!codegen_build(b, &now.program, &kernel, out_refused))
        return false;
    if (*out_refused)
        return true;
    good =
        run_shape(b, &now.program, kernel, &shape, name, NULL) &&
        (!specially || run_special_shapes(b, &now.program, kernel, name, NULL));
    b->table->destroy(b->p->device, kernel);
    return good;
}

void codegen_random_rows(suite *self, outcome *out, const test *one)
{
    uint32_t count = self->quick ? 40 : 150, refused = 0, each = 10;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    if (b.table->flags & CORE_CODEGEN_BUILDS_SLOWLY)
        count = self->quick ? 3 : 5, each = 1;
    for (uint32_t i = 0; i < count; i++) {
        bool no;

        if (!run_random(&b, i, suite_random(self, "rows", i), i % each == 0,
                        &no))
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
    good = run_special_shapes(&b, &now.program, kernel, "sums and maxima",
                              small_integer) &&
           run_shape(&b, &now.program, kernel, &many_rows, "sums and maxima",
                     small_integer);
    for (size_t w = 0; w < sizeof sharings / sizeof *sharings; w++)
        for (size_t n = 0; good && n < sizeof sizes / sizeof *sizes; n++)
            good = run_shared_rows(&b, &now.program, kernel, w, sizes[n]);
    b.table->destroy(b.p->device, kernel);
}
