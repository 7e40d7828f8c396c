/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Generators that several threads draw from: each number is drawn once, and
 * together they are the numbers that one thread would have drawn. */

#include "support/autograd.h"

#include <libcore/random.h>

#include <pthread.h>

enum { THREADS = 4, CALLS = 64, NUMBERS = 37, ALL = THREADS * CALLS * NUMBERS };

static core_generator *shared;
static float drawn[ALL], alone[ALL];

/* Calls of one size, each of which draws equally many numbers. */
static void draw(core_generator *generator, float *out)
{
    for (int i = 0; i < CALLS; i++, out += NUMBERS) {
        core_tensor *x;

        OK(core_rand((int64_t[]){NUMBERS}, 1, generator, CORE_F32, NULL, &x));
        OK(core_tensor_read(x, out, NUMBERS * sizeof *out));
        core_tensor_release(x);
    }
}

static void *drawer(void *context)
{
    draw(shared, context);
    return NULL;
}

static int by_bits(const void *a, const void *b)
{
    return memcmp(a, b, NUMBERS * sizeof(float));
}

static void draw_in_threads(void)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, drawer,
                                        drawn + i * CALLS * NUMBERS),
                         0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

/* Compares the results as a set: the order of calls is not determined. */
static void same_calls(void)
{
    qsort(drawn, THREADS * CALLS, NUMBERS * sizeof *drawn, by_bits);
    qsort(alone, THREADS * CALLS, NUMBERS * sizeof *alone, by_bits);
    ck_assert_mem_eq(drawn, alone, sizeof drawn);
}

START_TEST(threads_draw_each_number_of_a_generator_once)
{
    uint64_t seed, offset, seed_alone, offset_alone;
    core_generator *other;

    OK(core_generator_create(5, &shared));
    OK(core_generator_create(5, &other));
    draw_in_threads();
    for (int i = 0; i < THREADS; i++)
        draw(other, alone + i * CALLS * NUMBERS);
    same_calls();
    core_generator_state(shared, &seed, &offset);
    core_generator_state(other, &seed_alone, &offset_alone);
    ck_assert_uint_eq(seed, seed_alone);
    ck_assert_uint_eq(offset, offset_alone);
    core_generator_release(shared);
    core_generator_release(other);
}
END_TEST

START_TEST(threads_draw_each_number_of_the_default_generator_once)
{
    shared = NULL;
    core_seed(9);
    draw_in_threads();
    core_seed(9);
    for (int i = 0; i < THREADS; i++)
        draw(NULL, alone + i * CALLS * NUMBERS);
    same_calls();
}
END_TEST

/* A thread that reads or sets the state meanwhile sees a whole state. */
static void *setter(void *context)
{
    (void)context;
    for (int i = 0; i < CALLS; i++) {
        uint64_t seed, offset;

        core_generator_set_state(shared, 1000, 64);
        core_generator_state(shared, &seed, &offset);
        ck_assert(seed == 1000 || seed == 7);
        core_generator_seed(shared, 7);
    }
    return NULL;
}

START_TEST(generator_may_be_set_while_other_threads_draw)
{
    pthread_t thread;

    OK(core_generator_create(7, &shared));
    ck_assert_int_eq(pthread_create(&thread, NULL, setter, NULL), 0);
    draw_in_threads();
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    core_generator_release(shared);
}
END_TEST

SUITE("random/random_threads", threads_draw_each_number_of_a_generator_once,
      threads_draw_each_number_of_the_default_generator_once,
      generator_may_be_set_while_other_threads_draw)
