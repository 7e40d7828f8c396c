/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The conveniences of sdk.h for plugin authors: walking loops, reductions, and
 * conversions of 16-bit floats, which are compared with the core's. */

#include "support/suite.h"

#include "tensor/dtype.h"

#include <libcore/sdk.h>

#include <math.h>

enum { MOST = 64 };

static float input[MOST], output[MOST];

/* A loop over f32; strides in elements, innermost dimension first. */
typedef struct test_loop {
    core_loop loop;
    core_operand operands[2];
    int64_t sizes[4], strides[2][4];
} test_loop;

static void make(test_loop *t, uint32_t ndim, uint32_t reduced,
                 const int64_t *sizes, const int64_t *out, const int64_t *in)
{
    *t = (test_loop){.loop = {.struct_size = sizeof t->loop,
                              .ndim = ndim,
                              .noperands = 2,
                              .noutputs = 1,
                              .reduced = reduced,
                              .numel = 1}};
    t->loop.sizes = t->sizes;
    t->loop.operands = t->operands;
    for (uint32_t d = 0; d < ndim; d++) {
        t->sizes[d] = sizes[d];
        t->loop.numel *= sizes[d];
        t->strides[0][d] = out[d] * 4;
        t->strides[1][d] = in[d] * 4;
    }
    t->operands[0] = (core_operand){
        {output, 0}, t->strides[0], CORE_F32, CORE_OPERAND_OUTPUT, 0, 0};
    t->operands[1] =
        (core_operand){{input, 0}, t->strides[1], CORE_F32, 0, 0, 0};
    for (int i = 0; i < MOST; i++) {
        input[i] = (float)i;
        output[i] = -1;
    }
}

static void expect(size_t count, const float *values)
{
    for (size_t i = 0; i < count; i++)
        ck_assert_float_eq(output[i], values[i]);
    ck_assert_float_eq(output[count], -1);
}

static float read_at(const char *data)
{
    return *(const float *)(const void *)data;
}

/* ---------------------------------------------------------------- rows -- */

static void double_row(void *context, char *const *data, const int64_t *strides,
                       int64_t count)
{
    ++*(int *)context;
    for (int64_t i = 0; i < count; i++)
        *(float *)(void *)(data[0] + i * strides[0]) =
            2 * read_at(data[1] + i * strides[1]);
}

START_TEST(rows_cover_every_element_once)
{
    test_loop t;
    int rows = 0;

    /* [2][3] with the input transposed */
    make(&t, 2, 0, (int64_t[]){3, 2}, (int64_t[]){1, 3}, (int64_t[]){2, 1});
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, double_row, &rows), CORE_OK);
    expect(6, (float[]){0, 4, 8, 2, 6, 10});
    ck_assert_int_eq(rows, 2);
    make(&t, 0, 0, NULL, NULL, NULL);
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, double_row, &rows), CORE_OK);
    expect(1, (float[]){0});
    make(&t, 2, 0, (int64_t[]){3, 0}, (int64_t[]){1, 3}, (int64_t[]){1, 3});
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, double_row, &rows), CORE_OK);
    expect(0, NULL);
}
END_TEST

static void sum_row(void *context, char *const *data, const int64_t *strides,
                    int64_t count)
{
    float sum = 0;

    (void)context;
    for (int64_t i = 0; i < count; i++)
        sum += read_at(data[1] + i * strides[1]);
    *(float *)(void *)data[0] = sum;
}

START_TEST(rows_write_the_identity_of_empty_reductions)
{
    test_loop t;

    /* The inner dimension is reduced, or the outer one, or one of three. */
    make(&t, 2, 1, (int64_t[]){0, 3}, (int64_t[]){0, 1}, (int64_t[]){1, 0});
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, sum_row, NULL), CORE_OK);
    expect(3, (float[]){0, 0, 0});
    make(&t, 2, 2, (int64_t[]){3, 0}, (int64_t[]){1, 0}, (int64_t[]){1, 3});
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, sum_row, NULL), CORE_OK);
    expect(3, (float[]){0, 0, 0});
    make(&t, 3, 5, (int64_t[]){2, 4, 0}, (int64_t[]){0, 1, 0},
         (int64_t[]){1, 2, 8});
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, sum_row, NULL), CORE_OK);
    expect(4, (float[]){0, 0, 0, 0});
    /* Without an output element there is nothing to write. */
    make(&t, 2, 1, (int64_t[]){0, 0}, (int64_t[]){0, 1}, (int64_t[]){1, 0});
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, sum_row, NULL), CORE_OK);
    expect(0, NULL);
}
END_TEST

/* ---------------------------------------------------------- reductions -- */

static void product_begin(void *context)
{
    *(float *)context = 1;
}

static void product_row(void *context, char *const *data,
                        const int64_t *strides, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        *(float *)context *= 1 + read_at(data[1] + i * strides[1]);
}

static void product_end(void *context, char *const *data)
{
    ck_assert_float_eq(read_at(data[0]), -1); /* each output once */
    *(float *)(void *)data[0] = *(float *)context;
}

static const core_sdk_reduction product = {product_begin, product_row,
                                           product_end};

static void reduce(test_loop *t)
{
    float state;

    ck_assert_int_eq(core_sdk_loop_reduce(&t->loop, &product, &state), CORE_OK);
}

START_TEST(reduction_combines_what_belongs_to_an_output)
{
    test_loop t;

    /* in[2][3] = 0 … 5: along the rows, the columns, both, neither */
    make(&t, 2, 1, (int64_t[]){3, 2}, (int64_t[]){0, 1}, (int64_t[]){1, 3});
    reduce(&t);
    expect(2, (float[]){6, 120});
    make(&t, 2, 2, (int64_t[]){3, 2}, (int64_t[]){1, 0}, (int64_t[]){1, 3});
    reduce(&t);
    expect(3, (float[]){4, 10, 18});
    make(&t, 2, 3, (int64_t[]){3, 2}, (int64_t[]){0, 0}, (int64_t[]){1, 3});
    reduce(&t);
    expect(1, (float[]){720});
    make(&t, 2, 0, (int64_t[]){3, 2}, (int64_t[]){1, 3}, (int64_t[]){1, 3});
    reduce(&t);
    expect(6, (float[]){1, 2, 3, 4, 5, 6});
    make(&t, 0, 0, NULL, NULL, NULL);
    reduce(&t);
    expect(1, (float[]){1});
    /* in[2][3][2], along the first and the last dimension */
    make(&t, 3, 5, (int64_t[]){2, 3, 2}, (int64_t[]){0, 1, 0},
         (int64_t[]){1, 2, 6});
    reduce(&t);
    expect(3, (float[]){1 * 2 * 7 * 8, 3 * 4 * 9 * 10, 5 * 6 * 11 * 12});
}
END_TEST

START_TEST(empty_reduction_yields_the_identity)
{
    test_loop t;

    make(&t, 2, 1, (int64_t[]){0, 3}, (int64_t[]){0, 1}, (int64_t[]){1, 0});
    reduce(&t);
    expect(3, (float[]){1, 1, 1});
    make(&t, 3, 5, (int64_t[]){2, 4, 0}, (int64_t[]){0, 1, 0},
         (int64_t[]){1, 2, 8});
    reduce(&t);
    expect(4, (float[]){1, 1, 1, 1});
    make(&t, 2, 1, (int64_t[]){0, 0}, (int64_t[]){0, 1}, (int64_t[]){1, 0});
    reduce(&t);
    expect(0, NULL);
}
END_TEST

START_TEST(immediate_operand_is_read_in_every_row)
{
    test_loop t;
    float three = 3;
    int rows = 0;

    make(&t, 2, 0, (int64_t[]){2, 2}, (int64_t[]){1, 2}, (int64_t[]){0, 0});
    t.operands[1] =
        (core_operand){.dtype = CORE_F32, .flags = CORE_OPERAND_IMMEDIATE};
    memcpy(&t.operands[1].immediate, &three, sizeof three);
    ck_assert_int_eq(core_sdk_loop_rows(&t.loop, double_row, &rows), CORE_OK);
    expect(4, (float[]){6, 6, 6, 6});
    make(&t, 2, 2, (int64_t[]){2, 2}, (int64_t[]){1, 0}, (int64_t[]){0, 0});
    t.operands[1] =
        (core_operand){.dtype = CORE_F32, .flags = CORE_OPERAND_IMMEDIATE};
    memcpy(&t.operands[1].immediate, &three, sizeof three);
    reduce(&t);
    expect(2, (float[]){16, 16});
}
END_TEST

/* --------------------------------------------------------- conversions -- */

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

START_TEST(every_16_bit_float_has_its_value)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits;

        ck_assert(same(core_sdk_f16_to_f32(half), core__f16_to_f32(half)));
        ck_assert(same(core_sdk_bf16_to_f32(half), core__bf16_to_f32(half)));
    }
}
END_TEST

/* Around each f16 and bf16, and halfway between neighbours. */
START_TEST(rounding_to_16_bits_is_that_of_the_core)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        for (uint32_t low = 0; low < 0x10000; low += 0xfff) {
            for (int32_t by = -1; by <= 1; by++) {
                uint32_t wide = (bits << 16) + low + (uint32_t)by;
                float value;

                memcpy(&value, &wide, sizeof value);
                if (core_sdk_f32_to_f16(value) != core__f32_to_f16(value) ||
                    core_sdk_f32_to_bf16(value) != core__f32_to_bf16(value))
                    ck_abort_msg("0x%08x", (unsigned)wide);
            }
        }
    ck_assert_uint_eq(core_sdk_f32_to_f16(65519), 0x7bff);
    ck_assert_uint_eq(core_sdk_f32_to_f16(-65520), 0xfc00);
    ck_assert_uint_eq(core_sdk_f32_to_f16(1 + 0x1p-11f), 0x3c00);
    ck_assert_uint_eq(core_sdk_f32_to_f16(1 + 0x3p-11f), 0x3c02);
    ck_assert_uint_eq(core_sdk_f32_to_f16(0x1p-25f), 0);
    ck_assert_uint_eq(core_sdk_f32_to_f16(0x3p-25f), 2);
    ck_assert_uint_eq(core_sdk_f32_to_bf16(1 + 0x1p-8f), 0x3f80);
    ck_assert_uint_eq(core_sdk_f32_to_bf16(1 + 0x3p-8f), 0x3f82);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        rows_cover_every_element_once,
        rows_write_the_identity_of_empty_reductions,
        reduction_combines_what_belongs_to_an_output,
        empty_reduction_yields_the_identity,
        immediate_operand_is_read_in_every_row,
        every_16_bit_float_has_its_value,
        rounding_to_16_bits_is_that_of_the_core,
    };
    const test_suite suite = {.name = "loader/sdk", SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
