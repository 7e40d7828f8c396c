/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host callbacks release what they were given, while another thread waits for
 * them with the allocator in its hands. */

#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static core_tensor *vector(int64_t n)
{
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, sim, -1, &made));
    return made;
}

static _Atomic bool emptying;

static void *empty(void *context)
{
    (void)context;
    atomic_store(&emptying, true);
    OK(core_memory_empty_cache(sim));
    return NULL;
}

/* Another thread waits, with the allocator's lock, for the callback. */
static void wait_until_waited_for(void)
{
    core__allocator *allocator = sim->allocator;

    while (!atomic_load(&emptying))
        sched_yield();
    while (pthread_mutex_trylock(&allocator->lock) == 0) {
        pthread_mutex_unlock(&allocator->lock);
        sched_yield();
    }
}

static void release_stream(void *context)
{
    wait_until_waited_for();
    core_stream_release(context);
}

static void release_pool(void *context)
{
    wait_until_waited_for();
    core_memory_pool_release(context);
}

static void release_pinned(void *context)
{
    while (!atomic_load(&emptying))
        sched_yield();
    for (int i = 0; i < 100; i++)
        usleep(1000); /* by now it is waited for */
    core_tensor_release(context);
}

START_TEST(a_callback_may_release_what_is_not_memory)
{
    core_memory_pool *pool;
    core_stream *own, *other;
    core_tensor *t;
    pthread_t thread;

    open_sim("");
    for (int i = 0; i < 2; i++) {
        other = stream();
        own = stream();
        OK(core_memory_pool_create(sim, &pool));
        t = vector(1000);
        OK(core_tensor_record_stream(t, other));
        atomic_store(&emptying, false);
        OK(core_stream_callback(other, i ? release_stream : release_pool,
                                i ? (void *)own : (void *)pool, NULL));
        core_tensor_release(t); /* awaits the callback */
        ck_assert_int_eq(pthread_create(&thread, NULL, empty, NULL), 0);
        pthread_join(thread, NULL);
        if (i)
            core_memory_pool_release(pool);
        else
            core_stream_release(own);
        OK(core_stream_synchronize(other));
        core_stream_release(other);
    }
    OK(core_device_synchronize(sim));
    all_is_back();
}
END_TEST

START_TEST(a_callback_may_release_host_memory)
{
    core_tensor *t, *host, *another;
    core_stream *now;
    pthread_t thread;
    int64_t n = 1000;

    open_sim("");
    OK(core_stream_current(sim, &now));
    t = vector(n);
    OK(core_fill_(t, core_float(3)));
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &host));
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &another));
    OK(core_tensor_copy(host, t, CORE_COPY_NON_BLOCKING));
    OK(core_stream_callback(now, release_pinned, another, NULL));
    core_tensor_release(host); /* awaits the callback */
    ck_assert_int_eq(pthread_create(&thread, NULL, empty, NULL), 0);
    pthread_join(thread, NULL);
    core_tensor_release(t);
    all_is_back();
    ck_assert_uint_eq(counters().pinned, 0);
}
END_TEST

SUITE("memory callbacks", a_callback_may_release_what_is_not_memory,
      a_callback_may_release_host_memory)
