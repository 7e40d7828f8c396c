/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Programs that write views of inputs, run operator by operator: the content is
 * that of the function, and only the parts are written. */

#include "support/compiled.h"

#include <libcore/memory.h>

static core_tensor *row_of(core_tensor *x, int64_t row)
{
    core_tensor *view;

    OK(core_select(x, 0, row, &view));
    return keep(view);
}

/* to[row] = from[other] */
static core_status copy_row(core_tensor *to, int64_t row, core_tensor *from,
                            int64_t other)
{
    core_tensor *a, *b;
    core_status status;

    OK(core_select(to, 0, row, &a));
    OK(core_select(from, 0, other, &b));
    status = core_copy_(a, b, false);
    core_tensor_release(a);
    core_tensor_release(b);
    return status;
}

/* ---------------------------------------------------------------- content -- */

COMPILED_FUNCTION(writes_a_row)
{
    *noutputs = 1;
    OK(copy_row(x[0], 1, x[1], 2));
    return core_neg(x[1], &out[0]);
}

/* Rows change places. */
COMPILED_FUNCTION(swaps_rows)
{
    core_tensor *before;

    *noutputs = 1;
    OK(core_clone(x[0], -1, &before));
    OK(copy_row(x[0], 0, x[0], 1));
    OK(copy_row(x[0], 1, before, 0));
    core_tensor_release(before);
    return core_sum(x[1], CORE_DTYPE_NONE, &out[0]);
}

/* Where a written row comes from is written later, too. */
COMPILED_FUNCTION(writes_the_row_of_another)
{
    *noutputs = 1;
    OK(copy_row(x[0], 2, x[1], 0));
    OK(copy_row(x[1], 0, x[0], 1));
    OK(copy_row(x[1], 1, x[0], 2));
    return core_neg(x[1], &out[0]);
}

/* The whole new content is read. */
COMPILED_FUNCTION(reads_what_it_writes)
{
    *noutputs = 1;
    OK(copy_row(x[0], 1, x[1], 2));
    return core_neg(x[0], &out[0]);
}

/* A column, and a part of a part. */
COMPILED_FUNCTION(writes_columns)
{
    core_tensor *column, *row, *part;

    *noutputs = 1;
    OK(core_select(x[0], 1, 2, &column));
    OK(core_select(x[0], 0, 3, &row));
    OK(core_narrow(row, 0, 1, 2, &part));
    OK(core_mul_scalar_(column, core_float(3)));
    OK(core_add_scalar_(part, core_int(1), core_int(1)));
    core_tensor_release(column);
    core_tensor_release(row);
    core_tensor_release(part);
    return core_neg(x[1], &out[0]);
}

static void make(world *w)
{
    *w = world_of(2, 4, 3);
}

/* The first is turned. */
static void make_transposed(world *w)
{
    core_tensor *turned;

    *w = world_of(2, 4, 4);
    OK(core_t(w->inputs[0], &turned));
    w->inputs[0] = keep(turned);
}

/* The first begins inside of its memory. */
static void make_with_an_offset(world *w)
{
    core_tensor *part;

    *w = world_of(2, 4, 3);
    OK(core_narrow(NUMBERS(w, 9, 6, 3), 0, 2, 4, &part));
    w->inputs[0] = keep(part);
}

START_TEST(parts_of_inputs_get_the_content_that_the_function_gives_them)
{
    static void (*const worlds[])(world * w) = {make, make_transposed,
                                                make_with_an_offset};
    static const core_tensor_function functions[] = {
        writes_a_row, swaps_rows, writes_the_row_of_another,
        reads_what_it_writes, writes_columns};

    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
            compare(worlds[i], functions[k]);
}
END_TEST

/* ---------------------------------------------------------------- memory -- */

enum { ROWS = 1024, COLUMNS = 256 };

/* Writes a row of the cache, which is a hidden input. */
static core_status fills_a_row(void *cache, core_tensor *const *x, size_t n,
                               core_tensor **out, size_t *noutputs)
{
    (void)n;
    *noutputs = 1;
    core_tensor *row;

    OK(core_select(cache, 0, 7, &row));
    OK(core_copy_(row, x[0], false));
    core_tensor_release(row);
    return core_neg(x[0], &out[0]);
}

START_TEST(a_row_of_a_cache_is_written_alone)
{
    int64_t sizes[] = {ROWS, COLUMNS};
    core_memory_stats stats = {.struct_size = sizeof stats};
    core_tensor *cache, *row, *out;
    core_program *program;
    uint64_t before;

    OK(core_zeros(sizes, 2, CORE_F32, program_device, &cache));
    keep(cache);
    row = NUMBERS(&(world){.device = program_device}, 3, COLUMNS);
    OK(core_program_trace(fills_a_row, cache, &row, 1, 1, &program));
    OK(core_device_synchronize(program_device));
    OK(core_memory_reset_peaks(program_device));
    OK(core_memory_get_stats(program_device, &stats));
    before = stats.allocated_bytes[CORE_MEMORY_ALL].current;
    OK(core_program_run(program, &row, 1, &out, 1));
    OK(core_device_synchronize(program_device));
    OK(core_memory_get_stats(program_device, &stats));
    ck_assert_uint_lt(stats.allocated_bytes[CORE_MEMORY_ALL].peak - before,
                      ROWS * COLUMNS * sizeof(float) / 2);
    same_bits("row", 7, row_of(cache, 7), row);
    core_tensor_release(out);
    core_program_release(program);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/write_parts",
    parts_of_inputs_get_the_content_that_the_function_gives_them,
    a_row_of_a_cache_is_written_alone)
