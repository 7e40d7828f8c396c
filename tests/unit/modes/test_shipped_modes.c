/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The modes that are shipped: logging, counting, and replacing an operator. */

#include "support/devices.h"
#include "support/modes.h"

#include <libcore/settings.h>

/* --------------------------------------------------------------- logging -- */

static char lines[8192];

static void write_line(void *context, const char *line)
{
    ck_assert_ptr_eq(context, lines);
    ck_assert_uint_lt(strlen(lines) + strlen(line) + 2, sizeof lines);
    strcat(strcat(lines, line), "\n");
}

static void log_to_lines(uint32_t level)
{
    lines[0] = '\0';
    OK(core_mode_push_logging(level, write_line, lines, &modes[nmodes]));
    nmodes++;
}

static void printed(const char *expected)
{
    ck_assert_str_eq(lines, expected);
    lines[0] = '\0';
}

START_TEST(each_call_is_described_in_a_line)
{
    core_tensor *m = MATRIX(2, 3, 1, 2, 3, 4, 5, 6), *list[] = {m, m}, *y;
    core_device *cpu = device_of("cpu");

    log_to_lines(CORE_MODE_API);
    add(m, VECTOR(3, 1, 2, 3));
    lines[0] = '\0'; /* VECTOR may call operators */
    add(m, m);
    printed("add.Tensor(f64[2, 3] cpu, f64[2, 3] cpu, 1) -> "
            "f64[2, 3] cpu\n");
    CALL(cat, list, 2, 0);
    printed("cat([f64[2, 3] cpu, f64[2, 3] cpu], 0) -> f64[4, 3] cpu\n");
    CALL(mul_scalar, m, core_float(.5));
    printed("mul.Scalar(f64[2, 3] cpu, 0.5) -> f64[2, 3] cpu\n");
    CALL(reshape, m, (int64_t[]){-1}, 1);
    printed("reshape(f64[2, 3] cpu, [-1]) -> f64[6] cpu\n");
    CALL(gelu, m, "none");
    printed("gelu(f64[2, 3] cpu, \"none\") -> f64[2, 3] cpu\n");
    CALL(sum_dim, m, (int64_t[]){1}, 1, true, CORE_F32);
    printed("sum.dim_IntList(f64[2, 3] cpu, [1], true, f32) -> "
            "f32[2, 1] cpu\n");
    OK(core_neg_(m));
    printed("neg_(f64[2, 3] cpu)\n");
    ck_assert_int_eq(core_mm(m, m, &y), CORE_ERROR_SHAPE);
    printed("mm(f64[2, 3] cpu, f64[2, 3] cpu) -> CORE_ERROR_SHAPE\n");
    OK(core_zeros((int64_t[]){2}, 1, CORE_F32, cpu, &y));
    keep(y);
    printed("zeros([2], f32, none, cpu, none) -> f32[2] cpu\n");
}
END_TEST

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    (void)level;
    if (strcmp(component, "mode") == 0)
        strcat(strcat(lines, text), "\n");
}

START_TEST(lines_go_to_the_log_by_default)
{
    core_tensor *x = VECTOR(2, 1, 2);

    lines[0] = '\0';
    core_log_set_sink(sink, NULL, CORE_LOG_ERROR);
    OK(core_mode_push_logging(CORE_MODE_BELOW_AUTOGRAD, NULL, NULL, &modes[0]));
    nmodes = 1;
    CALL(neg, x);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    printed("neg(f64[2] cpu) -> f64[2] cpu\n");
}
END_TEST

START_TEST(long_lines_are_cut)
{
    core_tensor *x = VECTOR(2, 1, 2), *list[100];

    for (int i = 0; i < 100; i++)
        list[i] = x;
    log_to_lines(CORE_MODE_API);
    CALL(cat, list, 100, 0);
    ck_assert_uint_eq(strlen(lines), 1024);
}
END_TEST

/* -------------------------------------------------------------- counting -- */

static core_op_counts counts_of(core_op_counter *counter, const char *name)
{
    core_op_counts counts;
    core_operator *op = NULL;

    if (name)
        OK(core_op_find(name, &op));
    OK(core_op_counter_get(counter, op, &counts));
    return counts;
}

#define COUNTS(counter, name, ncalls, nflop, nbytes)       \
    do {                                                   \
        core_op_counts counts_ = counts_of(counter, name); \
        ck_assert_uint_eq(counts_.calls, ncalls);          \
        ck_assert_uint_eq(counts_.flop, nflop);            \
        ck_assert_uint_eq(counts_.bytes, nbytes);          \
    } while (0)

START_TEST(work_is_counted_by_operator)
{
    core_tensor *a = MATRIX(2, 3, 1, 2, 3, 4, 5, 6), *out;
    core_tensor *b = MATRIX(3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    core_op_counter *counter;
    core_mode *mode;

    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &mode));
    out = CALL(mm, a, b);
    CALL(mm, a, b);
    add(a, a);
    OK(core_neg_(out));
    sum(out);
    CALL(t, a);
    CALL(clone, a, -1);
    CALL(softmax, a, 1, CORE_DTYPE_NONE);
    OK(core_mode_pop(mode));
    CALL(mm, a, b); /* not any more */
    COUNTS(counter, "mm", 2, 2 * 2 * 2 * 3 * 4, 2 * 8 * (6 + 12 + 8));
    COUNTS(counter, "add.Tensor", 1, 6, 8 * 3 * 6);
    COUNTS(counter, "neg_", 1, 8, 8 * 8);
    COUNTS(counter, "sum", 1, 8, 8 * 9);
    COUNTS(counter, "t", 1, 0, 0);
    COUNTS(counter, "clone", 1, 0, 8 * 12);
    COUNTS(counter, "_softmax", 1, 6, 8 * 12);
    COUNTS(counter, "sub.Tensor", 0, 0, 0);
    COUNTS(counter, NULL, 8, 96 + 6 + 8 + 8 + 6, 416 + 144 + 64 + 72 + 96 + 96);
    core_op_counter_reset(counter);
    COUNTS(counter, NULL, 0, 0, 0);
    core_op_counter_release(counter);
}
END_TEST

/* Composites are counted by their parts, gradients too. */
START_TEST(work_of_a_training_step_is_counted)
{
    core_tensor *x = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    core_tensor *w = leaf(MATRIX(2, 3, 1, 2, 3, 4, 5, 6));
    core_op_counter *counter;
    core_mode *mode;
    uint64_t forward;

    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &mode));
    sum(CALL(linear, x, w, NULL));
    forward = counts_of(counter, "mm").flop;
    ck_assert_uint_eq(forward, 2 * 2 * 3 * 2);
    COUNTS(counter, "linear", 0, 0, 0);
    backward(sum(CALL(linear, x, w, NULL)));
    OK(core_mode_pop(mode));
    ck_assert_uint_eq(counts_of(counter, "mm").flop, 3 * forward);
    core_op_counter_release(counter);
}
END_TEST

START_TEST(convolutions_and_attention_have_formulas)
{
    const int64_t image[] = {1, 2, 4, 4}, filter[] = {3, 2, 3, 3};
    const int64_t one[] = {1, 1}, none[] = {0, 0};
    const int64_t heads[] = {1, 2, 4, 8};
    core_op_counter *counter;
    core_tensor *x, *w, *q;
    core_mode *mode;

    OK(core_rand(image, 4, NULL, CORE_F32, NULL, &x));
    OK(core_rand(filter, 4, NULL, CORE_F32, NULL, &w));
    OK(core_rand(heads, 4, NULL, CORE_F32, NULL, &q));
    keep(x);
    keep(w);
    keep(q);
    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &mode));
    CALL(convolution, x, w, NULL, one, 2, none, 2, one, 2, false, none, 2, 1);
    COUNTS(counter, "convolution", 1, 2 * (3 * 2 * 2) * (2 * 3 * 3),
           4 * (32 + 54 + 12));
    core_op_counter_reset(counter);
    CALL(scaled_dot_product_attention, q, q, q, NULL, 0, false, NULL, false);
    OK(core_mode_pop(mode));
    /* two products of 4 × 8 × 4 per head, whatever computes them */
    ck_assert_uint_ge(counts_of(counter, NULL).flop, 2 * 2 * (2 * 4 * 4 * 8));
    core_op_counter_release(counter);
}
END_TEST

START_TEST(counter_outlives_its_mode_and_the_other_way_round)
{
    core_tensor *x = VECTOR(2, 1, 2);
    core_op_counter *counter;
    core_mode *mode;

    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &mode));
    core_op_counter_release(counter);
    add(x, x);
    OK(core_mode_pop(mode));
    core_op_counter_release(NULL);
    core_op_counter_reset(NULL);
    FAILS(core_op_counter_create(NULL), CORE_ERROR_INVALID_ARGUMENT,
          "out_counter");
    FAILS(core_mode_push_counting(NULL, &mode), CORE_ERROR_INVALID_ARGUMENT,
          "counter");
}
END_TEST

START_TEST(counter_is_written_as_json)
{
    core_tensor *a = MATRIX(2, 2, 1, 2, 3, 4);
    core_op_counter *counter;
    core_mode *mode;
    char *json;

    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &mode));
    add(a, a);
    CALL(mm, a, a);
    OK(core_mode_pop(mode));
    OK(core_op_counter_json(counter, &json));
    ck_assert_str_eq(
        json,
        "{\n"
        "  \"total\": {\"calls\": 2, \"flop\": 20, \"bytes\": 192},\n"
        "  \"operators\": [\n"
        "    {\"name\": \"mm\", \"calls\": 1, \"flop\": 16, \"bytes\": 96},\n"
        "    {\"name\": \"add.Tensor\", \"calls\": 1, \"flop\": 4, "
        "\"bytes\": 96}\n"
        "  ]\n"
        "}\n");
    core_text_free(json);
    core_op_counter_release(counter);
}
END_TEST

typedef struct work {
    core_op_counter *counter;
    core_tensor *x;
} work;

enum { THREADS = 4, ROUNDS = 100 };

static void *counts_calls(void *argument)
{
    work *work = argument;
    core_mode *mode;
    core_tensor *y;

    OK(core_mode_push_counting(work->counter, &mode));
    for (int i = 0; i < ROUNDS; i++) {
        OK(core_neg(work->x, &y));
        core_tensor_release(y);
    }
    OK(core_mode_pop(mode));
    return NULL;
}

START_TEST(threads_share_a_counter)
{
    work work = {.x = VECTOR(2, 1, 2)};
    pthread_t threads[THREADS];
    core_mode *mode;

    OK(core_op_counter_create(&work.counter));
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, counts_calls, &work),
                         0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    COUNTS(work.counter, "neg", THREADS * ROUNDS, THREADS * ROUNDS * 2,
           THREADS * ROUNDS * 32);
    core_op_counter_reset(work.counter);
    /* the engine's threads too */
    OK(core_mode_push_counting(work.counter, &mode));
    {
        core_tensor *a = leaf(VECTOR(2, 1, 2));
        core_tensor *there = on(a, "sim:0");

        backward(sum(on(on(mul(there, there), "sim:1"), "cpu")));
    }
    OK(core_mode_pop(mode));
    ck_assert_uint_ge(counts_of(work.counter, "mul.Tensor").calls, 3);
    core_op_counter_release(work.counter);
}
END_TEST

/* ----------------------------------------------------------- replacement -- */

/* relu(x) as x * (x > 0), and counts. */
static core_status own_relu(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core_tensor *positive = NULL, *out = NULL;
    core_status status;

    (void)nargs;
    (void)nresults;
    ++*(int *)call->user;
    status = core_gt_scalar(args[0].u.tensor, core_int(0), &positive);
    if (status == CORE_OK)
        status = core_mul(args[0].u.tensor, positive, &out);
    core_tensor_release(positive);
    if (status == CORE_OK)
        results[0] = core_pack_tensor(out);
    return status;
}

START_TEST(one_operator_is_replaced)
{
    core_tensor *x = leaf(VECTOR(3, -1, 2, -3));
    int calls = 0;

    OK(core_mode_push_replacement(CORE_MODE_API, "relu", own_relu, &calls,
                                  &modes[0]));
    nmodes = 1;
    HOLDS(CALL(relu, x), 3, 0, 2, 0);
    ck_assert_int_eq(calls, 1);
    CALL(neg, x);
    ck_assert_int_eq(calls, 1);
    backward(sum(CALL(relu, x)));
    HOLDS(core_tensor_grad(x), 3, 0, 1, 0);
    pop();
    CALL(relu, x);
    ck_assert_int_eq(calls, 2);
}
END_TEST

/* Calls the operator that it replaces. */
static core_status twice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_value first = {0};
    core_status status;

    CORE_TRY(core_redispatch_below(call, args, nargs, &first, 1));
    status = core_redispatch_below(call, (core_value[]){first, args[1]}, nargs,
                                   results, nresults);
    core_value_release(&first);
    return status;
}

START_TEST(replacement_may_call_the_operator)
{
    core_tensor *x = VECTOR(2, 2, 3);

    for (uint32_t level = 0; level < 2; level++) {
        OK(core_mode_push_replacement(level, "mul.Tensor", twice, NULL,
                                      &modes[0]));
        nmodes = 1;
        READS(mul(x, x), 2, 8, 27);
        pop();
    }
}
END_TEST

START_TEST(wrong_replacements_are_refused)
{
    core_mode *mode;

    FAILS(core_mode_push_replacement(0, "no_such", twice, NULL, &mode),
          CORE_ERROR_NOT_FOUND, "no_such");
    ck_assert_ptr_null(mode);
    FAILS(core_mode_push_replacement(7, "relu", twice, NULL, &mode),
          CORE_ERROR_INVALID_ARGUMENT, "core_mode_push_replacement",
          "level is 7");
    FAILS(core_mode_push_logging(7, NULL, NULL, &mode),
          CORE_ERROR_INVALID_ARGUMENT, "core_mode_push_logging");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        each_call_is_described_in_a_line,
        lines_go_to_the_log_by_default,
        long_lines_are_cut,
        work_is_counted_by_operator,
        work_of_a_training_step_is_counted,
        convolutions_and_attention_have_formulas,
        counter_outlives_its_mode_and_the_other_way_round,
        counter_is_written_as_json,
        threads_share_a_counter,
        one_operator_is_replaced,
        replacement_may_call_the_operator,
        wrong_replacements_are_refused,
    };
    const test_suite suite = {
        .name = "modes/shipped_modes", .teardown = pop_all, SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
