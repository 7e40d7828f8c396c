/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Element-wise kernels of GPUs whose operands are broadcast or have gaps
 * between their rows: several elements at once, for rows of any length at any
 * address.  The results equal the CPU's, bit for bit. */

#define SUITE_SECONDS 60

#include "support/gpu_kernel_names.h"

static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I8};
static const int64_t lengths[] = {7, 8, 9, 10, 12, 15, 16, 31, 64};
/* Elements before a tensor's first one; without them its address is a multiple
 * of 16. */
static const int64_t skips[] = {0, 1, 4, 7};
enum {
    DTYPES = sizeof dtypes / sizeof *dtypes,
    LENGTHS = sizeof lengths / sizeof *lengths,
    SKIPS = sizeof skips / sizeof *skips,
    ROWS = 13
};

/* The device and the shape of the operands. */
typedef struct setting {
    core_device *device;
    core_dtype dtype;
    int64_t length, skip;
} setting;

/* Rows of a buffer, `gap` elements apart. */
static core_tensor *rows(const setting *s, int64_t count, int64_t length,
                         unsigned seed, int64_t gap)
{
    int64_t size = count * (length + gap) + s->skip;
    core_tensor *buffer = CALL(
        reshape, moved(numbers(s->dtype, 1, size, seed, 99, false), s->device),
        &size, 1);

    return CALL(as_strided, buffer, ((int64_t[]){count, length}), 2,
                ((int64_t[]){length + gap, 1}), 2, &s->skip);
}

static core_tensor *row(const setting *s, unsigned seed)
{
    return CALL(select, rows(s, 1, s->length, seed, 0), 0, 0);
}

static core_tensor *plus(core_tensor *a, core_tensor *b)
{
    return CALL(add, a, b, core_int(1));
}

/* [rows, length] and [length]. */
static core_tensor *by_a_row(const setting *s)
{
    return plus(rows(s, ROWS, s->length, 1, 0), row(s, 2));
}

/* [rows, length] and [rows, 1], in both orders. */
static core_tensor *by_a_column(const setting *s)
{
    core_tensor *x = rows(s, ROWS, s->length, 3, 0);
    core_tensor *y = rows(s, ROWS, 1, 4, 3);

    return plus(plus(x, y), CALL(sub, y, x, core_int(1)));
}

/* Neither operand has the result's shape. */
static core_tensor *by_both(const setting *s)
{
    return plus(rows(s, ROWS, 1, 5, 0), row(s, 6));
}

/* Rows with gaps of any size between them. */
static core_tensor *with_gaps(const setting *s)
{
    return plus(rows(s, ROWS, s->length, 7, 1), rows(s, ROWS, s->length, 8, 4));
}

/* The result has gaps, which must not be written. */
static core_tensor *into_gaps(const setting *s)
{
    core_tensor *x = rows(s, ROWS, s->length, 9, 2);

    OK(core_add_(x, row(s, 10), core_int(1)));
    return CALL(as_strided, x, ((int64_t[]){ROWS * (s->length + 2)}), 1,
                ((int64_t[]){1}), 1, &s->skip);
}

/* Three operands, one with another dtype than the result. */
static core_tensor *by_a_mask(const setting *s)
{
    core_tensor *mask = CALL(gt_scalar, row(s, 11), core_int(20));

    return CALL(where, mask, rows(s, ROWS, s->length, 12, 0),
                rows(s, ROWS, 1, 13, 0));
}

/* Results of one byte. */
static core_tensor *compared(const setting *s)
{
    return CALL(lt, rows(s, ROWS, s->length, 14, 0), row(s, 15));
}

/* Four operands: NCHW with per-channel and per-image operands. */
static core_tensor *by_channels(const setting *s)
{
    core_tensor *x = CALL(reshape, rows(s, 12, s->length, 16, 0),
                          ((int64_t[]){3, 4, s->length}), 3);
    core_tensor *channels =
        CALL(reshape, rows(s, 4, 1, 17, 0), ((int64_t[]){1, 4, 1}), 3);
    core_tensor *images = CALL(unsqueeze, rows(s, 3, s->length, 18, 0), 1);

    return CALL(addcmul, x, channels, images, core_int(2));
}

START_TEST(results_match_the_cpu)
{
    static core_tensor *(*const cases[])(const setting *) = {
        by_a_row,  by_a_column, by_both,  with_gaps,
        into_gaps, by_a_mask,   compared, by_channels};
    setting s[2];

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t n = 0; n < DTYPES * LENGTHS * SKIPS; n++) {
            s[0] = (setting){opened("cpu"), dtypes[n % DTYPES],
                             lengths[n / DTYPES % LENGTHS],
                             skips[n / DTYPES / LENGTHS]};
            s[1] = s[0];
            s[1].device = gpuemu();
            same(cases[k](&s[0]), cases[k](&s[1]), 0);
            drop_all();
        }
}
END_TEST

/* f launched one kernel, which has this name. */
static void launches(core_tensor *(*f)(const setting *), int64_t length,
                     const char *name)
{
    setting s = {gpuemu(), CORE_F32, length, 0};
    core_profiler *profiler = start_kernel_trace();

    f(&s);
    check_kernels(profiler, (const char *const[]){name, NULL});
    drop_all();
}

static core_tensor *turned(const setting *s)
{
    return plus(rows(s, 16, 16, 1, 0), CALL(t, rows(s, 16, 16, 2, 0)));
}

static core_tensor *flat(const setting *s)
{
    return plus(rows(s, 16, 16, 1, 0), rows(s, 16, 16, 2, 0));
}

/* The cases above run by rows if these have at least eight elements. */
START_TEST(rows_use_the_row_kernel)
{
    launches(by_a_row, 31, "ew_add_Tensor_f32_r");
    launches(by_both, 8, "ew_add_Tensor_f32_r");
    launches(with_gaps, 9, "ew_add_Tensor_f32_r");
    launches(by_a_row, 7, "ew_add_Tensor_f32_s");
    launches(turned, 0, "ew_add_Tensor_f32_s");
    launches(flat, 0, "ew_add_Tensor_f32_d");
}
END_TEST

EMULATED_SUITE("gpu/gpu_rows", results_match_the_cpu, rows_use_the_row_kernel)
