/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A recurrent layer and its gradients in f32: those of f64, for operands of any
 * layout, and the same bits with any number of threads. */

#include "support/cpu_view.h"

#include <stdbool.h>

static const char *const isas[] = {NULL, "avx2", "baseline"};
enum { ISAS = 3, KINDS = 4, TENSORS = 13 };
enum { RELU, TANH, LSTM, GRU };

typedef struct layer {
    int kind;
    bool reverse;
    int64_t steps, batch, n;
    bool packed; /* one sample fewer at each step, at least one */
} layer;

/* input, hx, cx, w_hh, b_hh, gradients of the three results, then output, hy,
 * cy, workspace; the results of backward follow */
typedef struct run {
    tensor *t[TENSORS], *out[4];
    int64_t sizes[64];
} run;

static int64_t rows_of(const layer *l, int64_t *sizes)
{
    int64_t rows = 0;

    for (int64_t i = 0; i < l->steps; i++) {
        sizes[i] = l->packed && l->batch - i > 1 ? l->batch - i
                   : l->packed                   ? 1
                                                 : l->batch;
        rows += sizes[i];
    }
    return rows;
}

static core_status call(const layer *l, run *r)
{
    const core_value steps =
        value_ints(l->packed ? (uint32_t)l->steps : 0, r->sizes);
    const core_value mode = {.tag = CORE_VALUE_INT, .u.i = l->kind};
    tensor **t = r->t;
    const core_value args[] = {value_view(t[0]),
                               value_view(t[1]),
                               value_view(t[2]),
                               value_view(t[3]),
                               value_view(t[4]),
                               steps,
                               mode,
                               value_bool(l->reverse)};
    core_value results[] = {value_view(t[8]), value_view(t[9]),
                            value_view(t[10]), value_view(t[11])};
    const core_value back[] = {value_view(t[5]),
                               value_view(t[6]),
                               value_view(t[7]),
                               value_view(NULL),
                               value_view(t[8]),
                               value_view(t[1]),
                               value_view(t[2]),
                               value_view(t[3]),
                               value_view(t[11]),
                               steps,
                               mode,
                               value_bool(l->reverse)};
    core_value grads[] = {
        value_view(r->out[0]), value_view(l->kind == GRU ? r->out[1] : NULL),
        value_view(r->out[2]), value_view(l->kind == LSTM ? r->out[3] : NULL)};
    core_status status;

    status = view_launch("_recurrent_layer", args, 8, results, 4);
    return status
               ? status
               : view_launch("_recurrent_layer_backward", back, 12, grads, 4);
}

/* Runs the layer with the same numbers in any dtype. */
static run run_layer(const layer *l, core_dtype dtype, bool turned)
{
    static const int64_t gates_of[] = {1, 1, 4, 3}, saved_of[] = {0, 0, 5, 4};
    int64_t n = l->n, gates = gates_of[l->kind] * n;
    int64_t saved = saved_of[l->kind] * n, lstm = l->kind == LSTM;
    run r = {.t = {NULL}};
    int64_t rows = rows_of(l, r.sizes);
    const int64_t sizes[][2] = {{rows, gates},
                                {l->batch, n},
                                {l->batch, n},
                                {gates, n},
                                {gates, 1},
                                {rows, n},
                                {l->batch, n},
                                {l->batch, lstm ? n : 0},
                                {rows, n},
                                {l->batch, n},
                                {l->batch, lstm ? n : 0},
                                {rows, saved}};

    for (uint32_t i = 0; i < 12; i++) {
        tensor *x = tensor_new(dtype, i == 4 ? 1 : 2, sizes[i]);

        if (i == 2 && !lstm) {
            tensor_free(x);
            continue;
        }
        if (i < 8)
            tensor_random(x, i + 1);
        else /* results are not zero before */
            for (int64_t k = 0; k < x->view.numel; k++)
                tensor_set(x, k, 9);
        for (int64_t k = 0; i < 8 && k < x->view.numel; k++)
            tensor_set(x, k, tensor_get(x, k) - 0.5);
        r.t[i] = x;
        if (turned && x->view.numel > 0 && i < 11) {
            r.t[i] = tensor_turned(x);
            tensor_free(x);
        }
    }
    for (int i = 0; i < 4; i++)
        r.out[i] = tensor_new(dtype, 2, sizes[i < 2 ? 0 : 1]);
    ck_assert_int_eq(call(l, &r), CORE_OK);
    return r;
}

static void run_free(run *r)
{
    for (int i = 0; i < TENSORS; i++)
        tensor_free(r->t[i]);
    for (int i = 0; i < 4; i++)
        tensor_free(r->out[i]);
}

static void compare(const layer *l, const tensor *got, const tensor *want,
                    double bound)
{
    for (int64_t i = 0; got && i < got->view.numel; i++) {
        double x = tensor_get(got, i), y = tensor_get(want, i);

        ck_assert_msg(fabs(x - y) <= bound * (1 + fabs(y)),
                      "kind %d, batch %ld, n %ld: %g instead of %g", l->kind,
                      (long)l->batch, (long)l->n, x, y);
    }
}

static void check(const layer *l, bool turned)
{
    run want = run_layer(l, CORE_F64, false);
    run got = run_layer(l, turned ? CORE_F64 : CORE_F32, turned);

    for (int i = 8; i < 12; i++)
        compare(l, got.t[i], want.t[i], turned ? 1e-13 : 2e-5);
    for (int i = 0; i < 4; i++)
        compare(l, got.out[i], want.out[i], turned ? 1e-13 : 2e-5);
    run_free(&want);
    run_free(&got);
}

START_TEST(f32_and_other_layouts_equal_f64)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    for (int kind = 0; kind < KINDS; kind++)
        for (int reverse = 0; reverse < 2; reverse++) {
            check(&(layer){kind, reverse, 5, 13, 33, true}, false);
            check(&(layer){kind, reverse, 4, 3, 17, false}, false);
            check(&(layer){kind, reverse, 5, 4, 5, true}, true);
        }
    /* Sums in several blocks. */
    check(&(layer){LSTM, false, 2, 2, 400, false}, false);
    cpu_close();
}
END_TEST

START_TEST(without_steps_states_and_their_gradients_are_copied)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int kind = 0; kind < KINDS; kind++)
        for (int wide = 0; wide < 2; wide++) {
            const layer l = {kind, wide, 0, 3, 5, false};
            run r = run_layer(&l, wide ? CORE_F64 : CORE_F32, false);

            compare(&l, r.t[9], r.t[1], 0);
            compare(&l, r.out[2], r.t[6], 0);
            if (kind == LSTM) {
                compare(&l, r.t[10], r.t[2], 0);
                compare(&l, r.out[3], r.t[7], 0);
            }
            run_free(&r);
        }
    cpu_close();
}
END_TEST

START_TEST(a_batch_of_0_is_computed)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int kind = 0; kind < KINDS; kind++) {
        const layer l = {kind, false, 0, 0, 5, false};
        run r = run_layer(&l, CORE_F32, false);

        ck_assert_int_eq(r.t[9]->view.numel, 0);
        run_free(&r);
    }
    cpu_close();
}
END_TEST

/* Hashes the bits of all results. */
static uint64_t bits_with(uint32_t threads, const layer *l)
{
    uint64_t hash = 14695981039346656037u;
    run r;

    cpu_threads(threads);
    r = run_layer(l, CORE_F32, false);
    for (int i = 0; i < 8; i++) {
        const tensor *x = i < 4 ? r.t[8 + i] : r.out[i - 4];

        for (int64_t at = 0; x && at < x->view.numel; at++)
            hash = (hash ^ ((uint32_t *)x->data)[at]) * 1099511628211u;
    }
    run_free(&r);
    return hash;
}

START_TEST(bits_do_not_depend_on_threads)
{
    /* Threads share the samples, or the hidden units. */
    static const layer layers[] = {{LSTM, true, 6, 19, 40, true},
                                   {GRU, false, 6, 19, 40, false},
                                   {LSTM, false, 4, 1, 300, false},
                                   {GRU, true, 4, 2, 310, true},
                                   {TANH, false, 4, 1, 530, false}};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        uint64_t first = bits_with(1, &layers[i]);

        for (uint32_t threads = 2; threads <= 5; threads++)
            ck_assert(bits_with(threads, &layers[i]) == first);
    }
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        bits_do_not_depend_on_threads,
        without_steps_states_and_their_gradients_are_copied,
        a_batch_of_0_is_computed};
    const suite_loop loops[] = {{f32_and_other_layouts_equal_f64, 0, ISAS}};
    const test_suite suite = {
        .name = "cpu/cpu_recurrent",
        .seconds = 120,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
