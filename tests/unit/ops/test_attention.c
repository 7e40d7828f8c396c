/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused attention on the CPU and on the emulated GPU, compared with matmul and
 * softmax on the CPU: results, gradients, masks, dropout, layouts; and queries
 * that may attend to no key, also on the simulated device. */

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

/* Broadcasts over the batch. */
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

/* f16 and bf16 have kernels for tensor cores, which compute 64 or 128 queries
 * and 32 or 64 keys at a time; those of the emulated device, too. */
START_TEST(attention_by_tensor_cores_matches_matmul_and_softmax)
{
    static const heads list[] = {
        {CORE_F16, 1, 2, 150, 200, 64, 64, 0, false, 0, false, 4e-3},
        {CORE_F16, 2, 1, 140, 140, 64, 64, 0, true, 0, true, 4e-3},
        {CORE_BF16, 2, 1, 140, 70, 64, 24, 0, true, 0, false, 4e-2},
        {CORE_F16, 1, 1, 70, 140, 40, 64, 0, false, 'a', false, 4e-3},
        {CORE_BF16, 1, 2, 70, 140, 64, 64, 0, false, 'a', true, 4e-2},
        {CORE_F16, 1, 2, 70, 66, 128, 128, 0, false, 0, true, 4e-3},
        {CORE_BF16, 1, 1, 70, 80, 96, 128, 0, true, 0, false, 4e-2},
        {CORE_F16, 1, 1, 66, 70, 128, 72, 0, false, 'b', false, 4e-3},
        {CORE_F16, 1, 2, 70, 67, 64, 64, .4, false, 0, false, 6e-3},
        {CORE_F16, 1, 2, 70, 67, 128, 128, .4, false, 'a', false, 6e-3},
        /* lines that tensor cores do not compute */
        {CORE_F16, 1, 1, 20, 30, 12, 8, 0, false, 0, false, 4e-3},
        {CORE_F16, 1, 1, 20, 30, 136, 8, 0, false, 0, false, 4e-3},
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

/* How the second query of the test below is kept from every key, or the first
 * one is not: dtype, form of the mask, and dimensions, where the fused kernels
 * take at most four. */
typedef struct masking {
    core_dtype dtype;
    bool additive;
    uint32_t ndim;
    double tolerance;
} masking;

static core_tensor *filled(const masking *m, const double *values, int64_t rows,
                           int64_t columns, core_device *device)
{
    int64_t sizes[5] = {1, 1, 1, 1, 1};
    core_tensor *x;

    sizes[m->ndim - 2] = rows;
    sizes[m->ndim - 1] = columns;
    x = CALL(empty, sizes, m->ndim, CORE_F64, device_named("cpu"), -1);
    OK(core_tensor_write(x, values, (size_t)(rows * columns) * sizeof *values));
    return CALL(to_copy, x, m->dtype, device, false, -1);
}

static void has_values(const masking *m, const char *what, core_tensor *tensor,
                       const double *right)
{
    int64_t count = core_tensor_numel(tensor);
    double got[6];

    tensor = CALL(to_copy, tensor, CORE_F64, device_named("cpu"), false, -1);
    OK(core_tensor_read(tensor, got, (size_t)count * sizeof *got));
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - right[i]) <= m->tolerance,
                      "%s, %s of %s, %u dimensions: element %lld is %.9g, "
                      "not %.9g",
                      what, m->additive ? "-inf" : "false",
                      core_dtype_name(m->dtype), m->ndim, (long long)i, got[i],
                      right[i]);
}

/* A query without a key has a result of 0 and no share in any gradient. */
static void mask_everything(const masking *m, core_device *device)
{
    static const double q[] = {1, 2, 3, 4}, k[] = {1, 0, 0, 1, 1, 1};
    static const double v[] = {1, 2, 3, 4, 5, 6}, ones[] = {1, 1, 1, 1};
    static const double keeps[] = {0, 0, 0, 1, 1, 0};
    static const double adds[] = {-INFINITY, -INFINITY, -INFINITY,
                                  0,         0,         -INFINITY};
    core_tensor *query = leaf(filled(m, q, 2, 2, device));
    core_tensor *key = leaf(filled(m, k, 3, 2, device));
    core_tensor *value = leaf(filled(m, v, 3, 2, device));
    core_tensor *grad = filled(m, ones, 2, 2, device), *mask, *out;

    mask = filled(m, m->additive ? adds : keeps, 2, 3, device);
    mask = m->additive ? leaf(mask)
                       : CALL(to_copy, mask, CORE_BOOL, NULL, false, -1);
    out = CALL(scaled_dot_product_attention, query, key, value, mask, 0, false,
               NULL, false);
    has_values(m, "result", out, (double[]){0, 0, 2.339523, 3.339523});
    OK(core_backward(&out, 1, &grad, 0));
    has_values(m, "query", core_tensor_grad(query),
               (double[]){0, 0, -0.6255943, 0.6255943});
    has_values(m, "key", core_tensor_grad(key),
               (double[]){-1.8767828, -2.5023772, 1.8767828, 2.5023772, 0, 0});
    has_values(m, "value", core_tensor_grad(value),
               (double[]){.3302384, .3302384, .6697615, .6697615, 0, 0});
    if (m->additive)
        has_values(m, "mask", core_tensor_grad(mask),
                   (double[]){0, 0, 0, -.8847240, .8847240, 0});
}

/* Every dtype, form of the mask and number of dimensions, on every device. */
START_TEST(query_that_may_attend_to_no_key_returns_zeros)
{
    static const struct {
        core_dtype dtype;
        double tolerance;
    } dtypes[] = {{CORE_F32, 2e-6},
                  {CORE_F64, 1e-6},
                  {CORE_F16, 5e-3},
                  {CORE_BF16, 4e-2}};

    for (int i = 0; i < 32; i++) {
        const masking m = {dtypes[i % 4].dtype, i / 4 % 2, 2 + (uint32_t)i / 8,
                           dtypes[i % 4].tolerance};

        mask_everything(&m, device_named("cpu"));
        mask_everything(&m, device_named("sim"));
        if (on_gpu)
            mask_everything(&m, device_named(gpu_name()));
        drop_all();
    }
}
END_TEST

/* A product with a weight of 0 would be NaN. */
static void mask_everything_from_infinite_values(core_dtype dtype,
                                                 core_device *device)
{
    const masking m = {dtype, false, 4, 1e-6};
    static const double q[] = {1, 2, 3, 4}, k[] = {1, 0, 0, 1};
    static const double v[] = {INFINITY, NAN, 1, 2}, keeps[] = {0, 0, 0, 1};
    core_tensor *mask = filled(&m, keeps, 2, 2, device), *out;

    mask = CALL(to_copy, mask, CORE_BOOL, NULL, false, -1);
    out = CALL(scaled_dot_product_attention, filled(&m, q, 2, 2, device),
               filled(&m, k, 2, 2, device), filled(&m, v, 2, 2, device), mask,
               0, false, NULL, false);
    out = CALL(select, out, -2, 0);
    has_values(&m, "result", out, (double[]){0, 0});
}

START_TEST(query_that_may_attend_to_no_key_ignores_infinite_values)
{
    static const core_dtype list[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        mask_everything_from_infinite_values(list[i], device_named("cpu"));
        mask_everything_from_infinite_values(list[i], device_named("sim"));
        if (on_gpu)
            mask_everything_from_infinite_values(list[i],
                                                 device_named(gpu_name()));
        drop_all();
    }
}
END_TEST

/* The gradient that is itself differentiated is composed of operators. */
START_TEST(gradient_of_masked_query_is_differentiable)
{
    static const masking m = {CORE_F64, false, 4, 1e-6};
    static const double q[] = {1, 2, 3, 4}, k[] = {1, 0, 0, 1, 1, 1};
    static const double keeps[] = {0, 0, 0, 1, 1, 0};
    core_device *cpu = device_named("cpu");
    core_tensor *query = leaf(filled(&m, q, 2, 2, cpu));
    core_tensor *key = leaf(filled(&m, k, 3, 2, cpu)), *out, *mask, *grad;

    mask =
        CALL(to_copy, filled(&m, keeps, 2, 3, cpu), CORE_BOOL, NULL, false, -1);
    out = CALL(scaled_dot_product_attention, query, key, key, mask, 0, false,
               NULL, false);
    out = CALL(sum, CALL(mul, out, out), CORE_DTYPE_NONE);
    OK(core_grad(&out, 1, NULL, &query, 1, CORE_CREATE_GRAPH, &grad));
    keep(grad);
    out = CALL(sum, CALL(mul, grad, grad), CORE_DTYPE_NONE);
    OK(core_backward(&out, 1, NULL, 0));
    for (int i = 0; i < 2; i++) {
        double got[6];
        core_tensor *x = core_tensor_grad(i ? key : query);

        OK(core_tensor_read(x, got, (size_t)core_tensor_numel(x) * 8));
        for (int64_t j = 0; j < core_tensor_numel(x); j++)
            ck_assert_msg(isfinite(got[j]), "element %lld is %g", (long long)j,
                          got[j]);
    }
}
END_TEST

/* Scores of NaN are not masked. */
START_TEST(nan_score_beside_masked_scores_returns_nan)
{
    static const masking m = {CORE_F32, false, 4, 0};
    static const double q[] = {NAN, 2, 3, 4}, k[] = {1, 0, 0, 1, 1, 1};
    static const double keeps[] = {0, 1, 0, 1, 1, 0};
    core_device *cpu = device_named("cpu");
    core_tensor *query = filled(&m, q, 2, 2, cpu), *mask;
    core_tensor *key = filled(&m, k, 3, 2, cpu);
    float got[4];

    mask =
        CALL(to_copy, filled(&m, keeps, 2, 3, cpu), CORE_BOOL, NULL, false, -1);
    OK(core_tensor_read(CALL(scaled_dot_product_attention, query, key, key,
                             mask, 0, false, NULL, false),
                        got, sizeof got));
    ck_assert(isnan(got[0]) && isnan(got[1]));
    ck_assert(isfinite(got[2]) && isfinite(got[3]));
}
END_TEST

/* The query is a view whose base joins the graph later, by an in-place
 * change. */
START_TEST(view_of_changed_base_gets_a_gradient)
{
    heads h = {CORE_F64, 1, 1, 3, 5, 4, 4, 0, false, 0, false, 1e-12};
    core_tensor *t[TENSORS], *added[2], *result;

    make(&h, t);
    for (int k = 0; k < 2; k++) {
        core_tensor *base = CALL(clone, t[QUERY], -1);
        core_tensor *made[TENSORS] = {CALL(alias, base), t[KEY], t[VALUE], NULL,
                                      t[GRAD]};

        added[k] = leaf(CALL(ones_like, base, CORE_DTYPE_NONE, NULL, -1));
        OK(core_add_(base, added[k], core_int(1)));
        result = k == 0 ? composed(&h, made) : attend(&h, made);
        OK(core_backward(&result, 1, &t[GRAD], 0));
    }
    same(&h, "added", core_tensor_grad(added[0]), core_tensor_grad(added[1]));
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
        attention_by_tensor_cores_matches_matmul_and_softmax,
        fused_attention_advances_generator_like_dropout,
        result_keeps_layout_of_heads,
        query_that_may_attend_to_no_key_returns_zeros,
        query_that_may_attend_to_no_key_ignores_infinite_values,
        gradient_of_masked_query_is_differentiable,
        nan_score_beside_masked_scores_returns_nan,
        scale_replaces_the_root_of_the_width,
        grouped_queries_share_heads_of_keys,
        view_of_changed_base_gets_a_gradient,
        invalid_arguments_are_named,
    };

    on_gpu = gpu_plugin_found();
    return run_suite("ops/attention", tests, sizeof tests / sizeof *tests);
}
