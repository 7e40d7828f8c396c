/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused attention, on the CPU and on the emulated GPU, against products and
 * softmax on the CPU: results and gradients, masks, dropout's mask, layouts. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "support/autograd.h"
#include "support/gpu_device_name.h"

#include <libcore/device.h>
#include <libcore/random.h>

#include <math.h>

static bool on_gpu;

static core_device *opened(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static core_tensor *moved(core_tensor *tensor, core_device *device)
{
    return CALL(to_copy, tensor, core_tensor_dtype(tensor), device, false, -1);
}

/* What is attended to. */
typedef struct heads {
    core_dtype dtype;
    int64_t batch, count, rows, columns, inner, outer;
    double dropout;
    bool causal;
    char mask;   /* 'b': bool, 'a': added; 0: none */
    bool turned; /* [batch, place, head, element] in memory */
    double tolerance;
} heads;

enum { QUERY, KEY, VALUE, MASK, GRAD, TENSORS };

static core_tensor *normal(const heads *h, int64_t rows, int64_t width)
{
    core_tensor *x;

    if (!h->turned)
        return CALL(randn, (int64_t[]){h->batch, h->count, rows, width}, 4,
                    NULL, h->dtype, opened("cpu"));
    x = CALL(randn, (int64_t[]){h->batch, rows, h->count, width}, 4, NULL,
             h->dtype, opened("cpu"));
    return CALL(transpose, x, 1, 2);
}

/* Broadcast over the batch; a row of it may not hide everything. */
static core_tensor *mask_of(const heads *h)
{
    int64_t sizes[] = {1, h->count, h->rows, h->columns};
    core_tensor *x;

    if (h->mask == 0)
        return NULL;
    x = CALL(randn, sizes, 4, NULL, h->dtype, opened("cpu"));
    return h->mask == 'a' ? x : CALL(lt_scalar, x, core_float(.8));
}

static void make(const heads *h, core_tensor **out)
{
    core_seed(77);
    out[QUERY] = normal(h, h->rows, h->inner);
    out[KEY] = normal(h, h->columns, h->inner);
    out[VALUE] = normal(h, h->columns, h->outer);
    out[MASK] = mask_of(h);
    out[GRAD] = normal(h, h->rows, h->outer);
}

/* The same on a device, as leaves. */
static void place(const heads *h, core_tensor *const *from, core_device *device,
                  core_tensor **out)
{
    for (int i = 0; i < TENSORS; i++) {
        core_tensor *x = from[i] ? moved(from[i], device) : NULL;

        if (x && h->turned && i != MASK) /* its layout is not kept on the way */
            x = CALL(transpose, CALL(contiguous, CALL(transpose, x, 1, 2), 0),
                     1, 2);
        out[i] = x && i != GRAD && !(i == MASK && h->mask == 'b') ? leaf(x) : x;
    }
}

static core_tensor *composed(const heads *h, core_tensor *const *t)
{
    core_tensor *x = CALL(matmul, t[QUERY], CALL(transpose, t[KEY], -2, -1));

    x = CALL(mul_scalar, x, core_float(1 / sqrt((double)h->inner)));
    if (h->causal)
        x = CALL(masked_fill, x,
                 CALL(triu,
                      CALL(new_ones, x, (int64_t[]){h->rows, h->columns}, 2,
                           CORE_BOOL, NULL),
                      1),
                 core_float(-INFINITY));
    if (h->mask == 'b')
        x = CALL(masked_fill, x, CALL(logical_not, t[MASK]),
                 core_float(-INFINITY));
    if (h->mask == 'a')
        x = CALL(add, x, t[MASK], core_int(1));
    x = CALL(softmax, x, -1, CORE_DTYPE_NONE);
    if (h->dropout > 0)
        x = CALL(dropout, x, h->dropout, true);
    return CALL(matmul, x, t[VALUE]);
}

static core_tensor *attend(const heads *h, core_tensor *const *t)
{
    return CALL(scaled_dot_product_attention, t[QUERY], t[KEY], t[VALUE],
                t[MASK], h->dropout, h->causal);
}

static void same(const heads *h, const char *what, core_tensor *a,
                 core_tensor *b)
{
    int64_t count = core_tensor_numel(a);
    double *values[2];

    ck_assert_int_eq(core_tensor_numel(b), count);
    for (int k = 0; k < 2; k++) {
        core_tensor *wide = CALL(to_copy, k == 0 ? a : b, CORE_F64,
                                 opened("cpu"), false, CORE_FORMAT_CONTIGUOUS);

        values[k] = malloc((size_t)count * sizeof(double));
        ck_assert_ptr_nonnull(values[k]);
        OK(core_tensor_read(wide, values[k], (size_t)count * sizeof(double)));
    }
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs(values[0][i] - values[1][i]) <=
                          h->tolerance * (1 + fabs(values[0][i])),
                      "%s: element %lld is %.17g, fused %.17g", what,
                      (long long)i, values[0][i], values[1][i]);
    free(values[0]);
    free(values[1]);
}

static void compare(const heads *h, core_device *device)
{
    static const char *const names[] = {"query", "key", "value", "mask"};
    core_tensor *made[TENSORS], *plain[TENSORS], *fused[TENSORS], *a, *b;

    make(h, made);
    place(h, made, opened("cpu"), plain);
    place(h, made, device, fused);
    core_seed(5);
    a = composed(h, plain);
    core_seed(5);
    b = attend(h, fused);
    same(h, "result", a, b);
    OK(core_backward(&a, 1, &plain[GRAD], 0));
    OK(core_backward(&b, 1, &fused[GRAD], 0));
    for (int i = 0; i < GRAD; i++)
        if (plain[i] && core_tensor_requires_grad(plain[i]))
            same(h, names[i], core_tensor_grad(plain[i]),
                 core_tensor_grad(fused[i]));
}

static void compare_all(const heads *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        compare(&list[i], opened("cpu"));
        if (on_gpu)
            compare(&list[i], opened(gpu_name()));
        drop_all();
    }
}

START_TEST(results_and_gradients_are_those_of_products_and_softmax)
{
    static const heads list[] = {
        {CORE_F32, 1, 1, 1, 1, 1, 1, 0, false, 0, false, 1e-5},
        {CORE_F32, 2, 3, 70, 130, 40, 24, 0, false, 0, false, 1e-5},
        {CORE_F64, 2, 1, 33, 65, 7, 70, 0, false, 0, false, 1e-12},
        {CORE_F64, 1, 2, 40, 40, 16, 16, 0, false, 0, true, 1e-12},
        {CORE_F32, 1, 1, 20, 30, 130, 256, 0, false, 0, false, 1e-5},
        {CORE_F64, 1, 1, 20, 30, 256, 100, 0, false, 0, false, 1e-12},
        /* beyond what kernels take */
        {CORE_F32, 1, 1, 10, 10, 300, 8, 0, false, 0, false, 1e-5},
        {CORE_F16, 1, 2, 70, 70, 16, 16, 0, false, 0, false, 4e-3},
        {CORE_BF16, 1, 2, 20, 70, 16, 80, 0, false, 0, true, 4e-2},
    };

    compare_all(list, sizeof list / sizeof *list);
}
END_TEST

START_TEST(masks_hide)
{
    static const heads list[] = {
        {CORE_F32, 2, 2, 70, 70, 16, 16, 0, true, 0, false, 1e-5},
        {CORE_F64, 1, 1, 90, 50, 8, 8, 0, true, 0, true, 1e-12},
        {CORE_F64, 1, 1, 50, 90, 8, 8, 0, true, 0, false, 1e-12},
        {CORE_F32, 2, 2, 70, 66, 16, 16, 0, false, 'b', false, 1e-5},
        {CORE_F32, 2, 2, 66, 70, 16, 16, 0, false, 'a', false, 1e-5},
        {CORE_F64, 2, 1, 34, 40, 16, 16, 0, false, 'a', true, 1e-12},
        {CORE_F16, 1, 2, 20, 70, 16, 16, 0, false, 'a', false, 4e-3},
    };

    compare_all(list, sizeof list / sizeof *list);
}
END_TEST

START_TEST(dropout_draws_the_mask_of_the_operator)
{
    static const heads list[] = {
        {CORE_F32, 2, 2, 70, 67, 16, 16, .4, false, 0, false, 1e-5},
        {CORE_F64, 1, 2, 35, 70, 8, 8, .9, true, 0, false, 1e-12},
        {CORE_F64, 1, 2, 9, 9, 8, 8, 1, false, 0, false, 1e-12},
    };

    compare_all(list, sizeof list / sizeof *list);
}
END_TEST

/* Draws of one call, then of the next. */
START_TEST(the_generator_goes_on_as_far)
{
    heads h = {CORE_F32, 1, 1, 9, 11, 4, 4, .5, false, 0, false, 0};
    core_tensor *t[TENSORS];
    uint64_t offset[4];

    make(&h, t);
    for (int k = 0; k < 4; k++) {
        h.dropout = k < 2 ? .5 : 0;
        core_seed(3);
        k % 2 ? composed(&h, t) : attend(&h, t);
        core_generator_state(NULL, NULL, &offset[k]);
    }
    ck_assert_uint_eq(offset[0], offset[1]);
    ck_assert_uint_eq(offset[2], offset[3]);
}
END_TEST

START_TEST(the_layout_of_the_heads_is_kept)
{
    heads h = {CORE_F32, 2, 3, 5, 5, 4, 4, 0, false, 0, true, 0};
    core_tensor *t[TENSORS], *x;

    make(&h, t);
    x = CALL(transpose, attend(&h, t), 1, 2);
    ck_assert(core_tensor_is_contiguous(x, CORE_FORMAT_CONTIGUOUS));
}
END_TEST

START_TEST(a_row_without_keys_is_no_number)
{
    heads h = {CORE_F32, 1, 1, 3, 4, 2, 2, 0, false, 'b', false, 0};
    core_device *devices[2] = {opened("cpu"),
                               on_gpu ? opened(gpu_name()) : opened("cpu")};
    float got[6];

    for (int k = 0; k < 2; k++) {
        core_tensor *made[TENSORS], *t[TENSORS];

        make(&h, made);
        made[MASK] = CALL(zeros_like, made[MASK], CORE_DTYPE_NONE, NULL, -1);
        place(&h, made, devices[k], t);
        OK(core_tensor_read(attend(&h, t), got, sizeof got));
        for (int i = 0; i < 6; i++)
            ck_assert(isnan(got[i]));
    }
}
END_TEST

START_TEST(what_does_not_fit_is_told)
{
    heads h = {CORE_F32, 1, 1, 3, 4, 2, 2, 0, false, 0, false, 0};
    core_tensor *t[TENSORS], *out[4];

    make(&h, t);
    FAILS(core_efficient_attention(t[KEY], t[QUERY], t[VALUE], NULL, false, 0,
                                   false, NULL, &out[0], &out[1], &out[2],
                                   &out[3]),
          CORE_ERROR_SHAPE, "value");
    FAILS(core_efficient_attention(t[QUERY], t[KEY], t[VALUE], NULL, false, 2,
                                   false, NULL, &out[0], &out[1], &out[2],
                                   &out[3]),
          CORE_ERROR_INVALID_ARGUMENT, "dropout_p is 2");
    FAILS(core_efficient_attention(t[QUERY], t[KEY], t[VALUE], t[KEY], false, 0,
                                   false, NULL, &out[0], &out[1], &out[2],
                                   &out[3]),
          CORE_ERROR_SHAPE, "attn_bias");
    /* Without the logarithms there is no gradient. */
    OK(core_efficient_attention(leaf(t[QUERY]), t[KEY], t[VALUE], NULL, false,
                                0, false, NULL, &out[0], &out[1], &out[2],
                                &out[3]));
    for (int i = 0; i < 4; i++)
        keep(out[i]);
    FAILS(core_backward(&out[0], 1, &t[GRAD], 0), CORE_ERROR_SHAPE,
          "logsumexp");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        results_and_gradients_are_those_of_products_and_softmax,
        masks_hide,
        dropout_draws_the_mask_of_the_operator,
        the_generator_goes_on_as_far,
        the_layout_of_the_heads_is_kept,
        a_row_without_keys_is_no_number,
        what_does_not_fit_is_told,
    };

    on_gpu = gpu_plugin_found();
    return run_suite("attention", tests, sizeof tests / sizeof *tests);
}
