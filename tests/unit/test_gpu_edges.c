/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of backends/gpu at edges that recorded cases do not reach: tables
 * that have nothing, sums that are made in several launches. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "gpuemu.h"

#define gpu gpuemu()

/* ------------------------------------------------------ nothing to read -- */

static core_tensor *zeros(core_dtype dtype, size_t ndim, const int64_t *sizes)
{
    return CALL(zeros, sizes, ndim, dtype, gpu);
}

/* An index is bad there, whatever it is: nothing is read for it, it is told,
 * and the device goes on. */
static void is_told(core_status status)
{
    OK(status);
    FAILS(core_device_synchronize(gpu), CORE_ERROR_INDEX, "out of range");
    same(VECTOR(2, 3, 3),
         CALL(add_scalar, zeros(CORE_F64, 1, (int64_t[]){2}), core_int(3),
              core_int(1)),
         0);
}

START_TEST(an_index_of_an_empty_table_is_told)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16, CORE_U8};
    int64_t none[] = {0, 4}, line[] = {3}, row[] = {1, 4};
    core_tensor *out = NULL;

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        core_tensor *table = zeros(dtypes[i], 2, none);

        is_told(core_embedding(table, zeros(CORE_I64, 1, line), -1, false,
                               false, &out));
        keep(out);
        is_told(core_gather(table, 0, zeros(CORE_I64, 2, row), false, &out));
        keep(out);
    }
}
END_TEST

/* ------------------------------------------------------------ many lots -- */

enum { IMAGES = 24, SIDE = 128, PLANE = SIDE * SIDE };

/* An image's share of the gradient of a weight of one element: the first one's
 * is so large that what the others add is less than halves tell apart. */
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

/* As many columns at a time as a part of the device's memory takes. */
START_TEST(lots_of_images_are_added_up_in_f32)
{
    setenv("GPUEMU_MEMORY", "8388608", 1);
    a_weights_gradient(CORE_F16, 4096);
    a_weights_gradient(CORE_BF16, 512);
}
END_TEST

EMULATED_SUITE("gpu, edges", an_index_of_an_empty_table_is_told,
               lots_of_images_are_added_up_in_f32)
