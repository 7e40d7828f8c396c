/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused attention on the CPU and on the emulated GPU, compared with matmul and
 * softmax on the CPU: results, gradients, masks, dropout, layouts. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "support/autograd.h"
#include "support/gpu_device_name.h"

#include <libcore/device.h>
#include <libcore/random.h>

#include <math.h>

static bool on_gpu;

static core_device *device_named(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static core_tensor *to_device(core_tensor *tensor, core_device *device)
{
    return CALL(to_copy, tensor, core_tensor_dtype(tensor), device, false, -1);
}

/* Shape and options of one attention call. */
typedef struct heads {
    core_dtype dtype;
    int64_t batch, count, rows, columns, inner, outer;
    double dropout;
    bool causal;
    char mask;         /* 'b': bool mask, 'a': additive mask, 0: none */
    bool heads_inside; /* stored as [batch, position, head, element] */
    double tolerance;
} heads;

enum { QUERY, KEY, VALUE, MASK, GRAD, TENSORS };

static core_tensor *normal(const heads *h, int64_t rows, int64_t width)
{
    core_tensor *x;

    if (!h->heads_inside)
        return CALL(randn, (int64_t[]){h->batch, h->count, rows, width}, 4,
                    NULL, h->dtype, device_named("cpu"));
    x = CALL(randn, (int64_t[]){h->batch, rows, h->count, width}, 4, NULL,
             h->dtype, device_named("cpu"));
    return CALL(transpose, x, 1, 2);
}

/* Broadcasts over the batch; no row may hide all keys. */
static core_tensor *mask_of(const heads *h)
{
    int64_t sizes[] = {1, h->count, h->rows, h->columns};
    core_tensor *x;

    if (h->mask == 0)
        return NULL;
    x = CALL(randn, sizes, 4, NULL, h->dtype, device_named("cpu"));
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

/* Copies the tensors to a device and makes the differentiable ones leaves. */
static void place(const heads *h, core_tensor *const *from, core_device *device,
                  core_tensor **out)
{
    for (int i = 0; i < TENSORS; i++) {
        core_tensor *x = from[i] ? to_device(from[i], device) : NULL;

        /* to_copy does not keep the layout */
        if (x && h->heads_inside && i != MASK)
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
                t[MASK], h->dropout, h->causal, NULL, false);
}

static void same(const heads *h, const char *what, core_tensor *a,
                 core_tensor *b)
{
    int64_t count = core_tensor_numel(a);
    double *values[2];

    ck_assert_int_eq(core_tensor_numel(b), count);
    for (int k = 0; k < 2; k++) {
        core_tensor *wide =
            CALL(to_copy, k == 0 ? a : b, CORE_F64, device_named("cpu"), false,
                 CORE_FORMAT_CONTIGUOUS);

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
    place(h, made, device_named("cpu"), plain);
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
        compare(&list[i], device_named("cpu"));
        if (on_gpu)
            compare(&list[i], device_named(gpu_name()));
        drop_all();
    }
}

START_TEST(attention_matches_matmul_and_softmax)
{
    static const heads list[] = {
        {CORE_F32, 1, 1, 1, 1, 1, 1, 0, false, 0, false, 1e-5},
        {CORE_F32, 2, 3, 70, 130, 40, 24, 0, false, 0, false, 1e-5},
        {CORE_F64, 2, 1, 33, 65, 7, 70, 0, false, 0, false, 1e-12},
        {CORE_F64, 1, 2, 40, 40, 16, 16, 0, false, 0, true, 1e-12},
        {CORE_F32, 1, 1, 20, 30, 130, 256, 0, false, 0, false, 1e-5},
        {CORE_F64, 1, 1, 20, 30, 256, 100, 0, false, 0, false, 1e-12},
        /* sizes that the fused kernels do not support */
        {CORE_F32, 1, 1, 10, 10, 300, 8, 0, false, 0, false, 1e-5},
        {CORE_F16, 1, 2, 70, 70, 16, 16, 0, false, 0, false, 4e-3},
        {CORE_BF16, 1, 2, 20, 70, 16, 80, 0, false, 0, true, 4e-2},
    };

    compare_all(list, sizeof list / sizeof *list);
}
END_TEST

START_TEST(masked_attention_matches_masked_softmax)
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

START_TEST(dropout_draws_the_same_mask_as_the_dropout_operator)
{
    static const heads list[] = {
        {CORE_F32, 2, 2, 70, 67, 16, 16, .4, false, 0, false, 1e-5},
        {CORE_F64, 1, 2, 35, 70, 8, 8, .9, true, 0, false, 1e-12},
        {CORE_F64, 1, 2, 9, 9, 8, 8, 1, false, 0, false, 1e-12},
    };

    compare_all(list, sizeof list / sizeof *list);
}
END_TEST

/* Compares how far the generator advances, with and without dropout. */
START_TEST(fused_attention_advances_generator_like_dropout)
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

START_TEST(result_keeps_layout_of_heads)
{
    heads h = {CORE_F32, 2, 3, 5, 5, 4, 4, 0, false, 0, true, 0};
    core_tensor *t[TENSORS], *x;

    make(&h, t);
    x = CALL(transpose, attend(&h, t), 1, 2);
    ck_assert(core_tensor_is_contiguous(x, CORE_FORMAT_CONTIGUOUS));
}
END_TEST

START_TEST(scale_replaces_the_root_of_the_width)
{
    heads h = {CORE_F64, 1, 2, 5, 7, 4, 3, 0, false, 0, false, 1e-12};
    core_tensor *t[TENSORS], *scaled;
    double scale = .3;

    make(&h, t);
    scaled = CALL(scaled_dot_product_attention, t[QUERY], t[KEY], t[VALUE],
                  NULL, 0, false, &scale, false);
    /* width 4: without a scale the scores are halved */
    t[QUERY] = CALL(mul_scalar, t[QUERY], core_float(2 * scale));
    same(&h, "scaled", attend(&h, t), scaled);
}
END_TEST

START_TEST(grouped_queries_share_heads_of_keys)
{
    heads h = {CORE_F64, 2, 4, 5, 7, 4, 3, 0, true, 0, false, 1e-12};
    heads few = {CORE_F64, 2, 2, 5, 7, 4, 3, 0, true, 0, false, 1e-12};
    core_tensor *t[TENSORS], *keys[TENSORS], *grouped;
    core_tensor *twice =
        typed(CORE_I64, 1, (int64_t[]){4}, (double[]){0, 0, 1, 1});

    make(&h, t);
    make(&few, keys);
    grouped = CALL(scaled_dot_product_attention, t[QUERY], keys[KEY],
                   keys[VALUE], NULL, 0, true, NULL, true);
    t[KEY] = CALL(index_select, keys[KEY], 1, twice);
    t[VALUE] = CALL(index_select, keys[VALUE], 1, twice);
    same(&h, "grouped", attend(&h, t), grouped);
    FAILS(core_scaled_dot_product_attention(keys[QUERY], t[KEY], t[VALUE], NULL,
                                            0, true, NULL, true, &grouped),
          CORE_ERROR_SHAPE, "query has 2 heads, key 4");
}
END_TEST

START_TEST(fully_masked_row_returns_nan)
{
    heads h = {CORE_F32, 1, 1, 3, 4, 2, 2, 0, false, 'b', false, 0};
    core_device *devices[2] = {device_named("cpu"),
                               on_gpu ? device_named(gpu_name())
                                      : device_named("cpu")};
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

START_TEST(invalid_arguments_are_named)
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
    /* Without logsumexp, backward cannot compute the gradient. */
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
        attention_matches_matmul_and_softmax,
        masked_attention_matches_masked_softmax,
        dropout_draws_the_same_mask_as_the_dropout_operator,
        fused_attention_advances_generator_like_dropout,
        result_keeps_layout_of_heads,
        scale_replaces_the_root_of_the_width,
        grouped_queries_share_heads_of_keys,
        fully_masked_row_returns_nan,
        invalid_arguments_are_named,
    };

    on_gpu = gpu_plugin_found();
    return run_suite("attention", tests, sizeof tests / sizeof *tests);
}
