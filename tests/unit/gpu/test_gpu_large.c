/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of backends/gpu on tensors of more elements than a block or tile has,
 * which recorded cases do not reach: the emulated device's results and
 * gradients equal the CPU's. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "support/gpu_emulated.h"

#include <libcore/random.h>

#define cpu opened("cpu")
#define gpu gpuemu()

static core_tensor *places(int64_t count, unsigned seed, int limit)
{
    core_tensor *wide = numbers(CORE_F64, 1, count, seed, limit, false);
    core_tensor *flat = CALL(reshape, CALL(abs, wide), (int64_t[]){count}, 1);

    return CALL(to_copy, flat, CORE_I64, NULL, false, -1);
}

START_TEST(lines_longer_than_a_tile_are_sorted)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_I64, CORE_I16,
                                        CORE_BF16};

    for (int t = 0; t < 10; t++) {
        core_dtype dtype = dtypes[t / 2];
        core_tensor *x = numbers(dtype, 2, 5000, 7, 300, dtype <= CORE_BF16);
        core_tensor *out[4];

        OK(core_sort(x, 1, t & 1, &out[0], &out[1]));
        OK(core_sort(moved(x, gpu), 1, t & 1, &out[2], &out[3]));
        same(keep(out[0]), keep(out[2]), 0);
        same(keep(out[1]), keep(out[3]), 0);
    }
}
END_TEST

START_TEST(middle_dimension_is_sorted_and_selected_from)
{
    core_tensor *x = numbers(CORE_F32, 3000, 3, 11, 5000, false), *out[4];
    core_tensor *y = moved(x, gpu);

    OK(core_sort(x, 0, true, &out[0], &out[1]));
    OK(core_sort(y, 0, true, &out[2], &out[3]));
    same(keep(out[0]), keep(out[2]), 0);
    same(keep(out[1]), keep(out[3]), 0);
    OK(core_topk(x, 17, 0, true, true, &out[0], &out[1]));
    OK(core_topk(y, 17, 0, true, true, &out[2], &out[3]));
    same(keep(out[0]), keep(out[2]), 0);
    keep(out[1]);
    keep(out[3]);
    OK(core_kthvalue(x, 1500, 0, false, &out[0], &out[1]));
    OK(core_kthvalue(y, 1500, 0, false, &out[2], &out[3]));
    same(keep(out[0]), keep(out[2]), 0);
    keep(out[1]);
    keep(out[3]);
}
END_TEST

START_TEST(scans_continue_across_tiles)
{
    core_tensor *x = numbers(CORE_F64, 3, 5000, 3, 40, false), *out[4];
    core_tensor *y = moved(x, gpu);

    same(CALL(cumsum, x, 1, CORE_DTYPE_NONE),
         CALL(cumsum, y, 1, CORE_DTYPE_NONE), 0);
    same(CALL(logcumsumexp, x, 1), CALL(logcumsumexp, y, 1), 1e-12);
    OK(core_cummax(x, 1, &out[0], &out[1]));
    OK(core_cummax(y, 1, &out[2], &out[3]));
    same(keep(out[0]), keep(out[2]), 0);
    same(keep(out[1]), keep(out[3]), 0);
    x = numbers(CORE_I64, 2, 4500, 5, 3, false);
    same(CALL(cumsum, x, 1, CORE_DTYPE_NONE),
         CALL(cumsum, moved(x, gpu), 1, CORE_DTYPE_NONE), 0);
}
END_TEST

START_TEST(masked_elements_keep_their_order)
{
    core_tensor *x = numbers(CORE_F32, 90, 100, 21, 3, false);
    core_tensor *y = moved(x, gpu);
    core_tensor *z = CALL(ne_scalar, x, core_int(0));

    same(CALL(nonzero, x), CALL(nonzero, y), 0);
    same(CALL(masked_select, x, z), CALL(masked_select, y, moved(z, gpu)), 0);
    same(CALL(masked_scatter, x, z, x),
         CALL(masked_scatter, y, moved(z, gpu), y), 0);
}
END_TEST

/* Thirteen dimensions of which no two can be merged. */
START_TEST(many_dimensions_are_reduced)
{
    int64_t sizes[13], strides[13], every[6];
    core_tensor *x = numbers(CORE_F32, 1, 1 << 14, 5, 99, false), *y;

    for (int d = 0; d < 13; d++) {
        sizes[d] = 2;
        strides[d] = 1 + (d * 5 + 3) % 13 * 97;
        if (d % 2)
            every[d / 2] = d;
    }
    y = moved(x, gpu);
    x = CALL(as_strided, CALL(reshape, x, (int64_t[]){1 << 14}, 1), sizes, 13,
             strides, 13, NULL);
    y = CALL(as_strided, CALL(reshape, y, (int64_t[]){1 << 14}, 1), sizes, 13,
             strides, 13, NULL);
    same(CALL(sum_dim, x, every, 6, false, CORE_DTYPE_NONE),
         CALL(sum_dim, y, every, 6, false, CORE_DTYPE_NONE), 0);
    same(CALL(amax, x, every, 6, false), CALL(amax, y, every, 6, false), 0);
}
END_TEST

START_TEST(take_indexes_the_flattened_tensor)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16, CORE_I64,
                                        CORE_U8};
    core_tensor *index =
        CALL(sub_scalar, places(3000, 9, 1400), core_int(700), core_int(1));
    core_tensor *there = moved(index, gpu), *out;

    for (int t = 0; t < 5; t++) {
        core_tensor *x = numbers(dtypes[t], 70, 10, 5, 90, false);

        x = CALL(transpose, x, 0, 1);
        same(CALL(take, x, index), CALL(take, moved(x, gpu), there), 0);
    }
    out = CALL(zeros, (int64_t[]){3, 2}, 2, CORE_F32, gpu);
    OK(core_take(out, there, &out));
    keep(out);
    FAILS(core_device_synchronize(gpu), CORE_ERROR_INDEX, "take", "");
}
END_TEST

START_TEST(sums_by_index_follow_the_order_of_indices)
{
    core_tensor *x = numbers(CORE_F32, 50, 7, 1, 99, false);
    core_tensor *index = places(3000, 5, 50), *there = moved(index, gpu);
    core_tensor *source = CALL(
        div_scalar, numbers(CORE_F32, 3000, 7, 2, 99, false), core_float(7));
    core_tensor *y = moved(x, gpu), *from = moved(source, gpu);

    same(CALL(index_add, x, 0, index, source, core_float(0.5)),
         CALL(index_add, y, 0, there, from, core_float(0.5)), 1e-6);
    for (int k = 0; k < 2; k++)
        same(CALL(index_put, x, &index, 1, source, k),
             CALL(index_put, y, &there, 1, from, k), k * 1e-6);
    index =
        CALL(expand, CALL(unsqueeze, index, 1), (int64_t[]){3000, 7}, 2, false);
    there = moved(index, gpu);
    same(CALL(scatter_reduce, x, 0, index, source, "mean", false),
         CALL(scatter_reduce, y, 0, there, from, "mean", false), 1e-6);
    same(CALL(scatter_reduce, x, 0, index, source, "amax", true),
         CALL(scatter_reduce, y, 0, there, from, "amax", true), 0);
}
END_TEST

/* The gradients, by the arguments, of the sum of squares of f's result. */
static void gradients_are_the_same(core_tensor *(*f)(core_tensor **),
                                   core_tensor *const *given, size_t count)
{
    core_tensor *leaves[2][4];

    for (int k = 0; k < 2; k++) {
        core_tensor *y;

        for (size_t i = 0; i < count; i++)
            leaves[k][i] = leaf(moved(given[i], k == 0 ? cpu : gpu));
        y = f(leaves[k]);
        backward(sum(mul(y, y)));
    }
    for (size_t i = 0; i < count; i++)
        same(core_tensor_grad(leaves[0][i]), core_tensor_grad(leaves[1][i]),
             1e-9);
}

static core_tensor *layer(core_tensor **x)
{
    return CALL(layer_norm, x[0], (int64_t[]){300}, 1, x[1], x[2], 1e-5);
}

static core_tensor *strided(core_tensor **x)
{
    core_tensor *in = CALL(reshape, x[0], (int64_t[]){2, 4, 9, 9}, 4);
    core_tensor *weight = CALL(reshape, x[1], (int64_t[]){6, 2, 3, 3}, 4);

    return CALL(convolution, in, weight, CALL(reshape, x[2], (int64_t[]){6}, 1),
                (int64_t[]){2, 1}, 2, (int64_t[]){1, 2}, 2, (int64_t[]){1, 2},
                2, false, (int64_t[]){0, 0}, 2, 2);
}

static core_tensor *turned(core_tensor **x)
{
    core_tensor *in = CALL(reshape, x[0], (int64_t[]){2, 4, 9, 9}, 4);
    core_tensor *weight = CALL(reshape, x[1], (int64_t[]){4, 3, 3, 3}, 4);

    return CALL(convolution, in, weight, CALL(reshape, x[2], (int64_t[]){6}, 1),
                (int64_t[]){2, 3}, 2, (int64_t[]){1, 0}, 2, (int64_t[]){1, 2},
                2, true, (int64_t[]){1, 2}, 2, 2);
}

START_TEST(gradients_of_norms_and_convolutions_match_the_cpu)
{
    core_tensor *norm[] = {numbers(CORE_F64, 200, 300, 1, 50, false),
                           numbers(CORE_F64, 1, 300, 2, 9, false),
                           numbers(CORE_F64, 1, 300, 3, 9, false)};
    core_tensor *conv[] = {numbers(CORE_F64, 2, 324, 4, 9, false),
                           numbers(CORE_F64, 1, 108, 5, 9, false),
                           numbers(CORE_F64, 1, 6, 6, 9, false)};

    for (int k = 1; k < 3; k++)
        norm[k] = CALL(reshape, norm[k], (int64_t[]){300}, 1);
    gradients_are_the_same(layer, norm, 3);
    gradients_are_the_same(strided, conv, 3);
    gradients_are_the_same(turned, conv, 3);
}
END_TEST

/* The draws of f on both devices, from one seed. */
static void draws_are_the_same(core_tensor *(*f)(core_device *),
                               double tolerance)
{
    core_tensor *drawn[2];

    for (int k = 0; k < 2; k++) {
        core_seed(1234);
        drawn[k] = f(k == 0 ? cpu : gpu);
    }
    same(drawn[0], drawn[1], tolerance);
}

static core_tensor *uniform(core_device *d)
{
    return CALL(rand, (int64_t[]){1001}, 1, NULL, CORE_F32, d);
}
static core_tensor *normal(core_device *d)
{
    return CALL(randn, (int64_t[]){1001}, 1, NULL, CORE_F64, d);
}
static core_tensor *order(core_device *d)
{
    return CALL(randperm, 3000, NULL, CORE_I64, d);
}
static core_tensor *mask(core_device *d)
{
    return CALL(bernoulli, CALL(rand, (int64_t[]){999}, 1, NULL, CORE_F32, d),
                NULL);
}
static core_tensor *weights(core_device *d)
{
    return CALL(rand, (int64_t[]){3, 1500}, 2, NULL, CORE_F32, d);
}
static core_tensor *choices(core_device *d)
{
    return CALL(multinomial, weights(d), 700, true, NULL);
}
static core_tensor *distinct(core_device *d)
{
    return CALL(multinomial, weights(d), 700, false, NULL);
}

START_TEST(one_seed_draws_the_same_numbers_as_the_cpu)
{
    draws_are_the_same(uniform, 0);
    draws_are_the_same(normal, 1e-12);
    draws_are_the_same(order, 0);
    draws_are_the_same(mask, 0);
    draws_are_the_same(choices, 0);
    draws_are_the_same(distinct, 0);
}
END_TEST

START_TEST(bad_weights_are_reported_by_a_wait)
{
    core_tensor *x = numbers(CORE_F32, 2, 10, 1, 1, false), *out;

    OK(core_multinomial(moved(x, gpu), 3, true, NULL, &out));
    keep(out);
    FAILS(core_device_synchronize(gpu), CORE_ERROR_INVALID_ARGUMENT,
          "multinomial", "weights");
}
END_TEST

/* Integers, so that every order of summation gives the same result. */
START_TEST(products_of_several_tiles_match_the_cpu)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16,
                                        CORE_I32};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        core_tensor *a = numbers(dtypes[i], 150, 70, 1, 16, false);
        core_tensor *b = numbers(dtypes[i], 70, 131, 2, 16, false);
        core_tensor *turned =
            CALL(t, numbers(dtypes[i], 131, 70, 3, 16, false));

        same(CALL(mm, a, b), CALL(mm, moved(a, gpu), moved(b, gpu)), 0);
        same(CALL(mm, a, turned), CALL(mm, moved(a, gpu), moved(turned, gpu)),
             0);
        drop_all();
    }
}
END_TEST

EMULATED_SUITE("gpu/gpu_large", lines_longer_than_a_tile_are_sorted,
               middle_dimension_is_sorted_and_selected_from,
               scans_continue_across_tiles, masked_elements_keep_their_order,
               many_dimensions_are_reduced, take_indexes_the_flattened_tensor,
               sums_by_index_follow_the_order_of_indices,
               gradients_of_norms_and_convolutions_match_the_cpu,
               one_seed_draws_the_same_numbers_as_the_cpu,
               bad_weights_are_reported_by_a_wait,
               products_of_several_tiles_match_the_cpu)
