/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Small tensors that a thread caches when they are released: nothing of the old
 * tensor is visible in the new one, and a cached tensor does not count as
 * alive. */

#define SUITE_FORKS true

#include "support/devices.h"

#include "base/thread.h"
#include "device/device.h"
#include "tensor/tensor_cache.h"

#include <libcore/memory.h>
#include <libcore/plugins.h>

static core_tensor *small(int64_t n, core_dtype dtype)
{
    core_tensor *tensor;

    OK(core_full(&n, 1, core_float(1), dtype, NULL, &tensor));
    return tensor;
}

static uint64_t alive(void)
{
    core_memory_stats stats = {.struct_size = sizeof stats};

    OK(core_memory_get_stats(device_of("cpu"), &stats));
    return (uint64_t)stats.allocations[0].current;
}

/* Creates and drops a tensor, so that one is cached whatever ran before. */
static void warm(void)
{
    core_tensor_release(small(4, CORE_F32));
    core_tensor_release(small(4, CORE_F32));
}

START_TEST(dropped_tensor_is_reused_for_the_next_of_its_size)
{
    core_tensor *first, *second;

    warm();
    first = small(4, CORE_F32);
    core_tensor_release(first);
    ck_assert_uint_gt(core__thread_self()->cached_tensors[1].count, 0);
    second = small(16, CORE_U8);
    ck_assert_ptr_eq(first, second);
    core_tensor_release(second);
}
END_TEST

START_TEST(reused_tensor_has_nothing_of_the_old_one)
{
    core_tensor *y, *x;
    int64_t sizes[2] = {2, 2};

    warm();
    x = leaf(small(4, CORE_F32));
    OK(core_mul(x, x, &y));
    ck_assert(core_tensor_requires_grad(y));
    core_tensor_release(y);
    core_tensor_release(x);
    y = small(4, CORE_I32);
    ck_assert(!core_tensor_requires_grad(y));
    ck_assert(core_tensor_is_leaf(y));
    ck_assert_ptr_null(core_tensor_grad(y));
    ck_assert_uint_eq(core__tensor_version(y), 0);
    OK(core_fill_(y, core_int(3)));
    ck_assert_uint_eq(core__tensor_version(y), 1);
    core_tensor_release(y);
    OK(core_full(sizes, 2, core_int(2), CORE_I32, NULL, &y));
    ck_assert_uint_eq(core__tensor_version(y), 0);
    ck_assert_int_eq(core_tensor_ndim(y), 2);
    HOLDS(y, 4, 2, 2, 2, 2);
    core_tensor_release(y);
}
END_TEST

START_TEST(tensors_cached_in_inference_mode_are_ordinary_outside)
{
    uint64_t before = core_inference_begin();
    core_tensor *y = small(4, CORE_F32);

    core_tensor_release(y);
    y = small(4, CORE_F32);
    core_inference_end(before);
    FAILS(core_fill_(y, core_int(3)), CORE_ERROR_AUTOGRAD, "inference");
    core_tensor_release(y);
    y = small(4, CORE_F32);
    OK(core_tensor_set_requires_grad(y, true));
    core_tensor_release(y);
}
END_TEST

START_TEST(shared_tensor_is_not_cached)
{
    core_tensor *y, *view;
    uint64_t before = alive();

    warm();
    y = small(4, CORE_F32);
    OK(core_narrow(y, 0, 1, 2, &view));
    core_tensor_release(y);
    ck_assert_uint_eq(alive(), before + 1);
    HOLDS(view, 2, 1, 1);
    core_tensor_release(small(4, CORE_F32));
    HOLDS(view, 2, 1, 1);
    core_tensor_release(view);
    ck_assert_uint_eq(alive(), before);
}
END_TEST

static void *make_and_drop(void *unused)
{
    core_tensor *made[50];

    (void)unused;
    for (int i = 0; i < 50; i++)
        made[i] = small(4, CORE_F32);
    for (int i = 0; i < 50; i++)
        core_tensor_release(made[i]);
    return NULL;
}

START_TEST(tensors_cached_by_ended_threads_are_not_alive)
{
    uint64_t before;
    pthread_t thread;

    warm();
    before = alive();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, make_and_drop, NULL), 0);
        pthread_join(thread, NULL);
        ck_assert_uint_eq(alive(), before);
    }
}
END_TEST

START_TEST(tensor_released_twice_is_not_reused_twice)
{
    core_tensor *first, *second, *third;

    warm();
    first = small(4, CORE_F32);
    core_tensor_release(first);
    core_tensor_release(first); /* an error of the program */
    second = small(4, CORE_F32);
    third = small(4, CORE_F32);
    ck_assert_ptr_ne(second, third);
    core_tensor_release(second);
    core_tensor_release(third);
}
END_TEST

static _Atomic bool ended;

static void *make_and_drop_for_long(void *context)
{
    for (int i = 0; i < 300; i++)
        make_and_drop(context);
    atomic_store(&ended, true);
    return NULL;
}

/* The thread sanitizer reports a race here. */
START_TEST(tensors_are_counted_while_other_threads_create_them)
{
    uint64_t before, most = 0;
    pthread_t thread;

    warm();
    before = alive();
    ck_assert_int_eq(
        pthread_create(&thread, NULL, make_and_drop_for_long, NULL), 0);
    do {
        uint64_t now = alive();

        most = now > most ? now : most;
    } while (!atomic_load(&ended));
    pthread_join(thread, NULL);
    ck_assert_uint_eq(alive(), before);
    ck_assert_uint_le(most, before + 51);
}
END_TEST

static int frees;
static void (*real_free)(void *device, core_memory memory, uint64_t size);

/* Reads the counts of all threads, which takes the lock of their list. */
static void counting_free(void *device, core_memory memory, uint64_t size)
{
    frees++;
    alive();
    real_free(device, memory, size);
}

START_TEST(closing_a_device_frees_cached_tensors_without_a_lock)
{
    core_device *cpu = device_of("cpu");

    warm();
    core_tensor_release(small(40, CORE_F32));
    real_free = cpu->memory.free;
    cpu->memory.free = counting_free;
    core__device_remove_from_threads(cpu);
    ck_assert_int_ge(frees, 2);
    ck_assert_ptr_null(core__thread_self()->blocks_of);
}
END_TEST

/* ------------------------------------------------------------ quiet calls -- */

static int seen;

static core_status look(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    seen++;
    return core_redispatch_below(call, args, nargs, results, nresults);
}

START_TEST(autograd_function_is_called_without_recording_too)
{
    core_registration *registration;
    core_tensor *a = keep(small(4, CORE_F32));

    seen = 0;
    add(a, a);
    OK(core_function_register("add.Tensor", CORE_KEY_AUTOGRAD, NULL, look, NULL,
                              &registration));
    add(a, a);
    ck_assert_int_eq(seen, 1);
    core_registration_release(registration);
    add(a, a);
    ck_assert_int_eq(seen, 1);
}
END_TEST

START_TEST(recording_works_beside_calls_without_recording)
{
    core_tensor *a = keep(small(4, CORE_F32)),
                *x = leaf(keep(small(4, CORE_F32)));

    ck_assert(!core_tensor_requires_grad(add(a, a)));
    ck_assert(core_tensor_requires_grad(add(a, x)));
    ck_assert(core_tensor_requires_grad(add(x, a)));
    ck_assert(!core_tensor_requires_grad(add(a, a)));
}
END_TEST

SUITE("tensor/tensor_cache", dropped_tensor_is_reused_for_the_next_of_its_size,
      reused_tensor_has_nothing_of_the_old_one,
      tensors_cached_in_inference_mode_are_ordinary_outside,
      shared_tensor_is_not_cached,
      tensors_cached_by_ended_threads_are_not_alive,
      tensor_released_twice_is_not_reused_twice,
      tensors_are_counted_while_other_threads_create_them,
      closing_a_device_frees_cached_tensors_without_a_lock,
      autograd_function_is_called_without_recording_too,
      recording_works_beside_calls_without_recording)
