/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the promise of row_block of core.codegen: a row has the same bits
 * in a call with fewer rows. */

#include "loop_bench.h"
#include "tests_features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 7 };

/* out = a - sum(a), row = sum(a): sums of f32 that must be rounded. */
static void sums_of_rows(loop_case *now)
{
    uint32_t a, sum;

    loop_case_begin(now, 2);
    now->program.flags = CORE_LOOP_PROGRAM_REDUCES;
    now->operands[1].flags |= CORE_LOOP_OPERAND_ROW;
    a = loop_case_load(now, CORE_F32, 0);
    sum = loop_case_add(now, CORE_LOOP_REDUCE_SUM, CORE_F32, a, 0, 0);
    loop_case_store(now, 0,
                    loop_case_add(now, CORE_LOOP_SUB, CORE_F32, a, sum, 0));
    loop_case_store(now, 1, sum);
    loop_case_end(now);
}

static double inexact_number(uint64_t i)
{
    return (double)(i * 2654435761u % 1000003) / 1000 - 300;
}

/* Reads the elements of an output of a dense loop. */
static bool read_output(codegen_bed *b, const loop_bench *k, uint32_t operand,
                        float *to)
{
    return plugin_read(b->p, b->out, to, k->device[operand].memory,
                       k->bytes[operand]);
}

/* A part of the loop: rows from `first` on. */
static bool launch_rows(codegen_bed *b, void *kernel, const loop_bench *whole,
                        int64_t first, int64_t rows)
{
    loop_bench part = *whole;
    bool good;

    part.sizes[1] = rows;
    part.loop.sizes = part.sizes;
    part.loop.numel = part.sizes[0] * rows;
    for (uint32_t i = 0; i < part.loop.noperands; i++)
        part.device[i].memory.offset += (uint64_t)(first * part.strides[i][1]);
    part.scratch = (plugin_block){{0}, 0};
    good = loop_bench_launch(b, kernel, &part) && plugin_wait(b->p, b->out);
    plugin_free(b->p, &part.scratch);
    return good;
}

static bool compare_rows(codegen_bed *b, const loop_bench *k, int64_t rows,
                         const float *all, const float *sums, float *got,
                         float *got_sums)
{
    int64_t n = k->sizes[0];

    if (!read_output(b, k, 0, got) || !read_output(b, k, 1, got_sums))
        return false;
    for (int64_t r = 0; r < ROWS; r++)
        if (!expect(b->out,
                    memcmp(&sums[r], &got_sums[r], sizeof *sums) == 0 &&
                        memcmp(all + r * n, got + r * n,
                               (size_t)n * sizeof *all) == 0,
                    "row_block of core.codegen is %u, so a row must have the "
                    "same bits in a call with fewer rows: the sum of row %lld "
                    "of %lld elements is %.9g in a call of %d rows, and %.9g "
                    "in calls of %lld",
                    b->table->row_block, (long long)r, (long long)n,
                    (double)sums[r], ROWS, (double)got_sums[r],
                    (long long)rows))
            return false;
    return true;
}

static bool rows_of(codegen_bed *b, void *kernel, loop_bench *k)
{
    size_t size = (size_t)k->sizes[0] * ROWS * sizeof(float);
    float *all = malloc(size), *got = malloc(size);
    float sums[ROWS], got_sums[ROWS];
    bool good = all && got;

    if (!good)
        harness_error(b->out, "no memory");
    good = good && loop_bench_fill(b, k, 2, inexact_number) &&
           launch_rows(b, kernel, k, 0, ROWS) && read_output(b, k, 0, all) &&
           read_output(b, k, 1, sums);
    for (int64_t rows = 1; good && rows <= 3; rows += 2) {
        for (int64_t r = 0; good && r < ROWS; r += rows)
            good =
                launch_rows(b, kernel, k, r, r + rows > ROWS ? ROWS - r : rows);
        good = good && compare_rows(b, k, rows, all, sums, got, got_sums);
    }
    free(all);
    free(got);
    return good;
}

void codegen_rows_are_independent(suite *self, outcome *out, const test *one)
{
    static const int64_t lengths[] = {CORE_ROW_BLOCK_REDUCED_LEAST, 100, 1500,
                                      20000};
    void *kernel = NULL;
    bool good = true;
    loop_case now;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    sums_of_rows(&now);
    if (b.table->row_block == 0) {
        not_supported(out, "row_block of its core.codegen is 0");
        return;
    }
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it accepts no program with reductions of f32");
        return;
    }
    if (!expect_plugin_ok(
            out, b.table->build(b.p->device, &now.program, NULL, &kernel),
            "building a kernel with reductions"))
        return;
    for (size_t i = 0; good && i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t sizes[2] = {lengths[i], ROWS};
        loop_bench k;

        good = loop_bench_begin(&b, &k, &now.program, 2, sizes, 1, LOOP_DENSE,
                                true);
        if (!good)
            break;
        good = rows_of(&b, kernel, &k);
        loop_bench_end(&b, &k);
    }
    b.table->destroy(b.p->device, kernel);
}
