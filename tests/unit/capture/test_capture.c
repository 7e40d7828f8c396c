/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Captures and graphs, on the simulated device. */

#include "support/capture.h"

#include "capture/capture.h"
#include "random/generator.h"

#include <pthread.h>

static core_tensor *filled(int64_t rows, int64_t columns, int salt)
{
    double values[64];

    for (int i = 0; i < rows * columns; i++)
        values[i] = ((i * 7 + salt * 13) % 11 - 5) / 8.;
    return on_sim(typed(CORE_F64, 2, (int64_t[]){rows, columns}, values));
}

static void same_bits(core_tensor *a, core_tensor *b)
{
    double left[64], right[64];
    size_t size = (size_t)core_tensor_numel(a) * sizeof *left;

    OK(core_tensor_read(a, left, size));
    OK(core_tensor_read(b, right, size));
    ck_assert_mem_eq(left, right, size);
}

START_TEST(launch_reads_the_current_contents_of_its_inputs)
{
    core_tensor *a = on_sim(VECTOR(3, 1, 2, 3)), *twice, *sum;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    ck_assert(core_stream_is_capturing(stream));
    OK(core_add(a, a, core_int(1), &twice));
    OK(core_add(twice, a, core_int(1), &sum));
    OK(core_capture_end(stream, &graph));
    ck_assert(!core_stream_is_capturing(stream));
    ck_assert_uint_ge(core_graph_size(graph), 2);
    for (int i = 1; i <= 3; i++) {
        SET(a, 3, i, 2 * i, 3 * i);
        OK(core_graph_launch(graph, stream));
        OK(core_stream_synchronize(stream));
        HOLDS(sum, 3, 3. * i, 6. * i, 9. * i);
    }
    core_tensor_release(twice);
    core_tensor_release(sum);
    core_graph_release(graph);
}
END_TEST

START_TEST(nothing_runs_during_a_capture)
{
    core_tensor *a = on_sim(VECTOR(2, 1, 2));
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_add_(a, a, core_int(1)));
    OK(core_capture_end(stream, &graph));
    HOLDS(a, 2, 1, 2);
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    HOLDS(a, 2, 2, 4);
    core_graph_release(graph);
}
END_TEST

/* The numbers that a launch draws are written to the device before it: what is
 * captured earlier, in memory that it frees, must not write there. */
START_TEST(random_numbers_follow_other_captured_work)
{
    core_tensor *a = filled(8, 4, 1), *sums[8], *noisy, *expected;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    for (int i = 0; i < 8; i++)
        OK(core_add(a, a, core_int(1), &sums[i]));
    for (int i = 0; i < 8; i++)
        core_tensor_release(sums[i]);
    OK(core_dropout(a, .5, true, &noisy));
    OK(core_capture_end(stream, &graph));
    core_seed(3);
    OK(core_graph_launch(graph, stream));
    core_seed(3);
    OK(core_dropout(a, .5, true, &expected));
    OK(core_device_synchronize(sim));
    same_bits(expected, noisy);
    core_tensor_release(noisy);
    core_tensor_release(expected);
    core_graph_release(graph);
}
END_TEST

enum { DRAWERS = 2, DRAWS = 5000 };

static void *draw_often(void *unused)
{
    uint64_t seed, offset;
    core_tensor *counter;

    for (int i = 0; i < DRAWS; i++)
        OK(core__capture_random(stream, NULL, 1, &seed, &offset, &counter));
    return unused;
}

START_TEST(threads_that_draw_in_one_capture_get_different_numbers)
{
    pthread_t threads[DRAWERS];
    uint64_t seed, offset;
    core_tensor *counter;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    for (int i = 0; i < DRAWERS; i++)
        ck_assert(pthread_create(&threads[i], NULL, draw_often, NULL) == 0);
    for (int i = 0; i < DRAWERS; i++)
        pthread_join(threads[i], NULL);
    OK(core__capture_random(stream, NULL, 1, &seed, &offset, &counter));
    ck_assert_uint_eq(offset, DRAWERS * DRAWS * core__generator_blocks(1));
    OK(core_capture_end(stream, &graph));
    core_graph_release(graph);
}
END_TEST

/* sim returns an error if it is asked to wait for a capturing stream. */
START_TEST(device_synchronize_does_not_disturb_captures)
{
    core_tensor *a = on_sim(VECTOR(2, 1, 2));
    core_stream *other;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_add_(a, a, core_int(1)));
    OK(core_stream_create(sim, &other));
    OK(core_stream_set_current(other));
    OK(core_device_synchronize(sim));
    OK(core_stream_set_current(stream));
    FAILS(core_device_synchronize(sim), CORE_ERROR_UNSUPPORTED, "capture");
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid");
    core_stream_release(other);
}
END_TEST

/* ------------------------------------------------------------- training -- */

typedef struct model {
    core_tensor *x, *y, *w1, *w2, *loss;
    core_optimizer *optimizer;
} model;

static void model_make(model *m)
{
    core_sgd_options options = {
        .struct_size = sizeof options, .learning_rate = 0.1, .momentum = 0.9};

    m->x = filled(4, 3, 1);
    m->y = filled(4, 2, 2);
    m->w1 = leaf(filled(5, 3, 3));
    m->w2 = leaf(filled(2, 5, 4));
    m->loss = NULL;
    OK(core_sgd_create((core_tensor *[]){m->w1, m->w2}, 2, &options,
                       &m->optimizer));
}

/* With dropout: every step draws random numbers. */
static void model_step(model *m)
{
    core_tensor *a, *b, *c, *d, *e, *f;

    core_optimizer_zero_grad(m->optimizer);
    OK(core_linear(m->x, m->w1, NULL, &a));
    OK(core_tanh(a, &b));
    OK(core_dropout(b, 0.5, true, &c));
    OK(core_linear(c, m->w2, NULL, &d));
    OK(core_sub(d, m->y, core_int(1), &e));
    OK(core_mul(e, e, &f));
    core_tensor_release(m->loss);
    OK(core_sum(f, CORE_DTYPE_NONE, &m->loss));
    OK(core_backward(&m->loss, 1, NULL, 0));
    OK(core_optimizer_step(m->optimizer));
    core_tensor_release(a);
    core_tensor_release(b);
    core_tensor_release(c);
    core_tensor_release(d);
    core_tensor_release(e);
    core_tensor_release(f);
}

static void model_end(model *m)
{
    core_tensor_release(m->loss);
    core_optimizer_release(m->optimizer);
}

START_TEST(captured_step_trains_like_eager_steps)
{
    enum { WARM = 2, REPLAYS = 6 };
    model eager, captured;
    core_graph *graph;
    core_stream_guard guard;

    model_make(&eager);
    model_make(&captured);
    core_seed(7);
    for (int i = 0; i < WARM + REPLAYS; i++)
        model_step(&eager);
    OK(core_device_synchronize(sim));
    core_seed(7);
    OK(core_stream_guard_enter(stream, &guard));
    for (int i = 0; i < WARM; i++)
        model_step(&captured);
    core_stream_guard_leave(&guard);
    OK(core_capture_begin(stream, NULL));
    model_step(&captured);
    OK(core_capture_end(stream, &graph));
    for (int i = 0; i < REPLAYS; i++)
        OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    same_bits(eager.w1, captured.w1);
    same_bits(eager.w2, captured.w2);
    same_bits(eager.loss, captured.loss);
    model_end(&captured);
    core_graph_release(graph);
    model_end(&eager);
}
END_TEST

START_TEST(every_launch_draws_the_numbers_of_an_eager_call)
{
    double first[32] = {0}, second[32], eager[2][32];
    core_tensor *a = on_sim(typed(CORE_F64, 1, (int64_t[]){32}, first));
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_uniform_(a, 0, 1, NULL));
    OK(core_capture_end(stream, &graph));
    core_seed(42);
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    OK(core_tensor_read(a, first, sizeof first));
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    OK(core_tensor_read(a, second, sizeof second));
    ck_assert_mem_ne(first, second, sizeof first);
    core_seed(42);
    for (int i = 0; i < 2; i++) {
        OK(core_uniform_(a, 0, 1, NULL));
        OK(core_tensor_read(a, eager[i], sizeof eager[i]));
    }
    ck_assert_mem_eq(first, eager[0], sizeof first);
    ck_assert_mem_eq(second, eager[1], sizeof second);
    core_graph_release(graph);
}
END_TEST

/* A graph holds a reference to the generator that it draws from. */
START_TEST(generator_lives_as_long_as_the_graph)
{
    core_tensor *a = on_sim(VECTOR(4, 0, 0, 0, 0));
    core_generator *generator;
    core_graph *graph;
    double have[4];

    OK(core_generator_create(3, &generator));
    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_uniform_(a, 0, 1, generator));
    OK(core_capture_end(stream, &graph));
    core_generator_release(generator);
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    OK(core_tensor_read(a, have, sizeof have));
    ck_assert(have[0] != 0 || have[1] != 0);
    core_graph_release(graph);
}
END_TEST

/* --------------------------------------------------------------- memory -- */

START_TEST(memory_of_a_graph_is_not_reused_while_the_graph_lives)
{
    core_memory_stats stats = {.struct_size = sizeof stats};
    core_tensor *a = on_sim(VECTOR(3, 1, 2, 3)), *b, *other;
    uint64_t before;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_memory_empty_cache(sim));
    OK(core_memory_get_stats(sim, &stats));
    before = stats.reserved_bytes[CORE_MEMORY_ALL].current;
    OK(core_capture_begin(stream, NULL));
    OK(core_add(a, a, core_int(1), &b));
    core_tensor_release(b); /* the graph still writes to it */
    OK(core_add(a, a, core_int(2), &b));
    OK(core_capture_end(stream, &graph));
    OK(core_memory_empty_cache(sim));
    OK(core_memory_get_stats(sim, &stats));
    ck_assert_uint_gt(stats.reserved_bytes[CORE_MEMORY_ALL].current, before);
    /* no other tensor gets a part of it */
    other = on_sim(VECTOR(3, 7, 8, 9));
    OK(core_graph_launch(graph, stream));
    OK(core_device_synchronize(sim));
    OK(core_stream_synchronize(stream));
    HOLDS(other, 3, 7, 8, 9);
    HOLDS(b, 3, 3, 6, 9);
    core_tensor_release(b);
    core_graph_release(graph);
    drop(other);
    OK(core_memory_empty_cache(sim));
    OK(core_memory_get_stats(sim, &stats));
    ck_assert_uint_eq(stats.reserved_bytes[CORE_MEMORY_ALL].current, before);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        launch_reads_the_current_contents_of_its_inputs,
        nothing_runs_during_a_capture,
        random_numbers_follow_other_captured_work,
        threads_that_draw_in_one_capture_get_different_numbers,
        device_synchronize_does_not_disturb_captures,
        captured_step_trains_like_eager_steps,
        every_launch_draws_the_numbers_of_an_eager_call,
        generator_lives_as_long_as_the_graph,
        memory_of_a_graph_is_not_reused_while_the_graph_lives,
    };
    const test_suite suite = {
        .name = "capture/capture",
        .setup = begin,
        .teardown = end,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
