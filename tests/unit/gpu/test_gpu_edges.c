/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Edge cases of the kernels of backends/gpu that recorded cases do not reach:
 * empty tables, and sums over several launches. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#define SUITE_FORKS true

#include "support/gpu_emulated.h"

#include <libcore/settings.h>

#define gpu gpuemu()

/* ------------------------------------------------------ nothing to read -- */

static core_tensor *zeros(core_dtype dtype, size_t ndim, const int64_t *sizes)
{
    return CALL(zeros, sizes, ndim, dtype, gpu);
}

/* Every index is bad: nothing is read, the error is reported, and the device
 * still works. */
static void check_bad_index_is_reported(core_status status)
{
    OK(status);
    FAILS(core_device_synchronize(gpu), CORE_ERROR_INDEX, "out of range");
    same(VECTOR(2, 3, 3),
         CALL(add_scalar, zeros(CORE_F64, 1, (int64_t[]){2}), core_int(3),
              core_int(1)),
         0);
}

START_TEST(index_into_an_empty_table_is_reported)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16, CORE_U8};
    int64_t none[] = {0, 4}, line[] = {3}, row[] = {1, 4};
    core_tensor *out = NULL;

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        core_tensor *table = zeros(dtypes[i], 2, none);

        check_bad_index_is_reported(core_embedding(
            table, zeros(CORE_I64, 1, line), -1, false, false, &out));
        keep(out);
        check_bad_index_is_reported(
            core_gather(table, 0, zeros(CORE_I64, 2, row), false, &out));
        keep(out);
    }
}
END_TEST

/* ------------------------------------------------------------ many lots -- */

enum { IMAGES = 24, SIDE = 128, PLANE = SIDE * SIDE };

/* The share of each image in the gradient of a weight of one element: the first
 * is so large that f16 and bf16 would lose the others. */
static void a_weights_gradient(core_dtype dtype, double first)
{
    static double images[IMAGES * PLANE], grads[IMAGES * PLANE];
    const int64_t sizes[] = {IMAGES, 1, SIDE, SIDE}, ones[] = {1, 1};
    const uint8_t mask[] = {0, 1, 0};
    core_tensor *image, *grad, *weight, *outs[3];
    double wanted = first + (IMAGES - 1) * 0.25;

    for (int i = 0; i < IMAGES; i++) {
        images[i * PLANE] = i == 0 ? first : 0.25;
        grads[i * PLANE] = 1;
    }
    image = moved(typed(dtype, 4, sizes, images), gpu);
    grad = moved(typed(dtype, 4, sizes, grads), gpu);
    weight =
        moved(typed(dtype, 4, (int64_t[]){1, 1, 1, 1}, (double[]){1}), gpu);
    OK(core_convolution_backward(
        grad, image, weight, NULL, 0, ones, 2, (int64_t[]){0, 0}, 2, ones, 2,
        false, (int64_t[]){0, 0}, 2, 1, mask, 3, &outs[0], &outs[1], &outs[2]));
    same(typed(dtype, 4, (int64_t[]){1, 1, 1, 1}, &wanted), keep(outs[1]), 0);
    drop_all();
}

/* The columns of one launch are limited to a part of the device's memory. */
START_TEST(chunks_of_images_are_summed_in_f32)
{
    setenv("GPUEMU_MEMORY", "8388608", 1);
    a_weights_gradient(CORE_F16, 4096);
    if (!effort_is_slow())
        a_weights_gradient(CORE_BF16, 512);
}
END_TEST

/* --------------------------------------------------------- as the CPU does -- */

static core_tensor *joined(core_tensor *a, core_tensor *b)
{
    return CALL(cat, ((core_tensor *[]){a, b}), 2, 0);
}

/* The result's dtype does not depend on layouts. */
START_TEST(tensors_of_different_dtypes_are_concatenated)
{
    for (core_dtype i = CORE_F64; i <= CORE_BOOL; i++)
        for (core_dtype k = CORE_F64; k <= CORE_BOOL; k++) {
            core_tensor *a =
                typed(i, 2, (int64_t[]){1, 3}, (double[]){1, 0, 1});
            core_tensor *b =
                typed(k, 2, (int64_t[]){3, 2}, (double[]){0, 1, 1, 1, 0, 0});
            core_tensor *none = typed(k, 1, (int64_t[]){0}, NULL);

            same(joined(a, CALL(t, b)),
                 joined(moved(a, gpu), CALL(t, moved(b, gpu))), 0);
            same(joined(none, a), joined(moved(none, gpu), moved(a, gpu)), 0);
            drop_all();
        }
}
END_TEST

START_TEST(zero_dimensional_tensors_are_flipped_and_selected)
{
    core_tensor *one = typed(CORE_F32, 0, NULL, (double[]){3});
    const int64_t last = -1;
    core_tensor *index = typed(CORE_I64, 1, (int64_t[]){1}, (double[]){0});

    same(one, CALL(flip, moved(one, gpu), &last, 1), 0);
    same(one, CALL(flip, moved(one, gpu), (int64_t[]){0}, 1), 0);
    same(one, CALL(index_select, moved(one, gpu), 0, moved(index, gpu)), 0);
}
END_TEST

/* The input gradient for an output gradient with an infinity and a NaN: they
 * stay at the positions that they came from. */
static core_tensor *nearest_gradient(int64_t in, int64_t out, double scale,
                                     core_device *device)
{
    double values[32];
    core_tensor *grad;

    for (int64_t i = 0; i < out; i++)
        values[i] = i == 2 ? INFINITY : i == out - 1 ? NAN : (double)i;
    grad = moved(typed(CORE_F32, 3, (int64_t[]){1, 1, out}, values), device);
    return CALL(upsample_nearest1d_backward, grad, &out, 1,
                (int64_t[]){1, 1, in}, 3, scale > 0 ? &scale : NULL);
}

static core_tensor *linear_gradient(int64_t in, int64_t out, bool align,
                                    core_device *device)
{
    double values[32];
    core_tensor *grad;

    for (int64_t i = 0; i < out; i++)
        values[i] = i == 1 ? INFINITY : (double)i;
    grad = moved(typed(CORE_F32, 3, (int64_t[]){1, 1, out}, values), device);
    return CALL(upsample_linear1d_backward, grad, &out, 1,
                (int64_t[]){1, 1, in}, 3, align, NULL);
}

START_TEST(interpolation_gradient_uses_only_sampled_elements)
{
    core_device *cpu = opened("cpu");

    for (int64_t in = 2; in < 12; in++)
        for (int64_t out = 3; out < 25; out++) {
            same(nearest_gradient(in, out, 0, cpu),
                 nearest_gradient(in, out, 0, gpu), 0);
            same(nearest_gradient(in, out, .25, cpu),
                 nearest_gradient(in, out, .25, gpu), 0);
            same(linear_gradient(in, out, false, cpu),
                 linear_gradient(in, out, false, gpu), 1e-6);
            same(linear_gradient(in, out, true, cpu),
                 linear_gradient(in, out, true, gpu), 1e-6);
            drop_all();
        }
}
END_TEST

/* An input that is padding only has an output, and a gradient of the bias. */
START_TEST(bias_of_padding_only_input_has_a_gradient)
{
    const int64_t two[] = {2}, one[] = {1}, zero[] = {0}, three[] = {3};
    const uint8_t mask[] = {1, 1, 1};
    core_tensor *grad =
        typed(CORE_F32, 3, (int64_t[]){1, 3, 2}, (double[]){1, 2, 3, 4, 5, 6});
    core_tensor *outs[3], *weight = zeros(CORE_F32, 3, (int64_t[]){3, 2, 2});

    OK(core_convolution_backward(
        moved(grad, gpu), zeros(CORE_F32, 3, (int64_t[]){1, 2, 0}), weight,
        three, 1, one, 1, two, 1, two, 1, false, zero, 1, 1, mask, 3, &outs[0],
        &outs[1], &outs[2]));
    ck_assert_int_eq(core_tensor_numel(keep(outs[0])), 0);
    same(typed(CORE_F32, 3, (int64_t[]){3, 2, 2}, (double[12]){0}),
         keep(outs[1]), 0);
    same(VECTOR(3, 3, 7, 11), keep(outs[2]), 0);
    drop_all();
}
END_TEST

START_TEST(variance_of_no_elements_is_nan)
{
    core_tensor *none = zeros(CORE_F32, 2, (int64_t[]){2, 0});
    const core_scalar more = core_int(-1);

    same(VECTOR(2, NAN, NAN), CALL(var, none, (int64_t[]){1}, 1, &more, false),
         0);
    drop_all();
}
END_TEST

/* Operators that only move elements support every dtype. */
static core_tensor *moved_about(core_tensor *plane, int which)
{
    const int64_t pads[] = {1, 2, 1, 0}, sizes[] = {5, 7}, two[] = {2, 2};
    const int64_t one[] = {1, 1}, none[] = {0, 0};

    switch (which) {
    case 0:
        return CALL(reflection_pad2d, plane, pads, 4);
    case 1:
        return CALL(replication_pad2d, plane, pads, 4);
    case 2:
        return CALL(upsample_nearest2d, plane, sizes, 2, NULL, NULL);
    default:
        return CALL(im2col, plane, two, 2, one, 2, none, 2, one, 2);
    }
}

START_TEST(elements_of_every_dtype_are_moved)
{
    const double values[12] = {1, 0, 3, 4, 5, 0, 7, 8, 9, 10, 11, 0};

    for (core_dtype d = CORE_F64; d <= CORE_BOOL; d++) {
        core_tensor *plane = typed(d, 4, (int64_t[]){1, 1, 3, 4}, values);

        for (int which = 0; which < 4; which++)
            same(moved_about(plane, which),
                 moved_about(moved(plane, gpu), which), 0);
        drop_all();
    }
}
END_TEST

/* Tensors of more dimensions than kernels support use the fallback, if that is
 * allowed. */
START_TEST(many_dimensions_fall_back)
{
    const int64_t sizes[] = {2, 1, 1, 1, 1, 1, 1, 1, 2};
    const int64_t shift[] = {1}, dims[] = {0};
    core_tensor *x, *at, *out = NULL;

    x = moved(typed(CORE_F32, 9, sizes, (double[]){1, 2, 3, 4}), gpu);
    at = moved(typed(CORE_I64, 9, sizes, (double[]){1, 0, 1, 0}), gpu);
    FAILS(core_gather(x, 0, at, false, &out), CORE_ERROR_NO_KERNEL, "the rank");
    OK(core_setting_set("LIBCORE_FALLBACK", "count"));
    same(VECTOR(4, 3, 2, 3, 2), CALL(gather, x, 0, at, false), 0);
    same(VECTOR(4, 1, 8, 7, 4), CALL(scatter_add, x, 0, at, x), 0);
    same(VECTOR(4, 3, 4, 1, 2), CALL(roll, x, shift, 1, dims, 1), 0);
    same(VECTOR(2, 1, 3),
         CALL(masked_select, x, CALL(to_copy, at, CORE_BOOL, gpu, false, -1)),
         0);
    OK(core_setting_set("LIBCORE_FALLBACK", NULL));
    drop_all();
}
END_TEST

/* One row of classes has one loss, for every reduction. */
START_TEST(total_weight_of_a_single_loss_is_returned)
{
    core_tensor *loss = NULL, *total = NULL;
    core_tensor *row =
        moved(typed(CORE_F32, 1, (int64_t[]){3}, (double[]){-1, -2, -3}), gpu);
    core_tensor *class = moved(typed(CORE_I64, 0, NULL, (double[]){1}), gpu);

    OK(core_nll_loss_forward(row, class, NULL, CORE_REDUCTION_NONE, -100, &loss,
                             &total));
    same(SCALAR(2), keep(loss), 0);
    same(SCALAR(1), keep(total), 0);
    drop_all();
}
END_TEST

/* Along a dimension that is not the last, a thread has a line: the sum is as
 * accurate as elsewhere. */
START_TEST(long_line_is_summed_accurately)
{
    enum { LONG = 300000 };
    static double values[2 * LONG];
    core_tensor *lines;

    for (int i = 0; i < 2 * LONG; i++)
        values[i] = (double)(i * 37 % 101) / 50;
    lines = typed(CORE_F32, 2, (int64_t[]){LONG, 2}, values);
    same(CALL(log_softmax_forward, lines, 0, false),
         CALL(log_softmax_forward, moved(lines, gpu), 0, false), 2e-7);
    drop_all();
}
END_TEST

/* index_fill counts negative indices from the end, on both devices. */
START_TEST(index_fill_counts_from_both_ends)
{
    static const double rows[] = {-1, 0, -3};
    core_device *places[2] = {opened("cpu"), gpu};
    core_tensor *x, *index, *wrong, *out;
    core_status status;

    for (int k = 0; k < 2; k++) {
        x = moved(MATRIX(3, 2, 1, 2, 3, 4, 5, 6), places[k]);
        index = moved(typed(CORE_I64, 1, (int64_t[]){3}, rows), places[k]);
        wrong = moved(typed(CORE_I64, 1, (int64_t[]){1}, (double[]){-4}),
                      places[k]);
        same(MATRIX(3, 2, 9, 9, 3, 4, 9, 9),
             moved(CALL(index_fill, x, 0, index, core_int(9)), gpu), 0);
        status = core_index_fill(x, 0, wrong, core_int(9), &out);
        if (status == CORE_OK) {
            keep(out);
            status = core_device_synchronize(places[k]);
        }
        ck_assert_int_eq(status, CORE_ERROR_INDEX);
        OK(core_index_fill_(x, 0, index, core_int(7)));
        same(MATRIX(3, 2, 7, 7, 3, 4, 7, 7), moved(x, gpu), 0);
    }
    drop_all();
}
END_TEST

static core_tensor *enlarged(core_device *device, bool linear)
{
    const int64_t sizes[3] = {1, 1, 4}, wanted = 7;
    core_tensor *x =
        moved(typed(CORE_F32, 3, sizes, (double[]){1, 2, 3, 4}), device);
    const double scale = 0x1p-20;

    return linear ? CALL(upsample_linear1d, x, &wanted, 1, false, &scale)
                  : CALL(upsample_nearest1d, x, &wanted, 1, &scale);
}

START_TEST(numbers_at_their_limits_are_as_on_the_cpu)
{
    core_device *cpu = opened("cpu");
    core_tensor *weights = VECTOR(4, 0, 0, 1e-310, 0);

    same(CALL(linspace, core_float(-1.6e308), core_float(1.6e308), 5, CORE_F64,
              cpu),
         CALL(linspace, core_float(-1.6e308), core_float(1.6e308), 5, CORE_F64,
              gpu),
         0);
    for (int k = 0; k < 2; k++)
        same(enlarged(cpu, k == 1), enlarged(gpu, k == 1), 0);
    for (int k = 0; k < 10; k++)
        same(VECTOR(1, 2),
             CALL(multinomial, moved(weights, gpu), 1, k % 2, NULL), 0);
    drop_all();
}
END_TEST

EMULATED_SUITE("gpu/gpu_edges", index_into_an_empty_table_is_reported,
               chunks_of_images_are_summed_in_f32,
               zero_dimensional_tensors_are_flipped_and_selected,
               tensors_of_different_dtypes_are_concatenated,
               interpolation_gradient_uses_only_sampled_elements,
               bias_of_padding_only_input_has_a_gradient,
               variance_of_no_elements_is_nan,
               elements_of_every_dtype_are_moved, many_dimensions_fall_back,
               total_weight_of_a_single_loss_is_returned,
               long_line_is_summed_accurately, index_fill_counts_from_both_ends,
               numbers_at_their_limits_are_as_on_the_cpu)
