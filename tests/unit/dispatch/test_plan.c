/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Plans of a device that compiles per shape: a backend defined here, in host
 * memory, whose kernels count the calls they receive. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/host_backend.h"

#include "dispatch/registry.h"

#include <libcore/dispatch.h>
#include <libcore/settings.h>

#include <pthread.h>
#include <semaphore.h>

/* Kept after it is destroyed, so that use after destruction and a second
 * destruction are detected. */
typedef struct plan {
    struct plan *next;
    int64_t numel;
    uint32_t noperands;
    _Atomic bool live;
} plan;

static _Atomic int prepared, destroyed, launched, fail_prepare, fail_launch;
static _Atomic int used_dead, destroyed_twice;
static _Atomic int64_t waits; /* a call of this many elements waits for go */
static sem_t came, go;
static plan *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core_registry registry;
static core_device *device;

static core_backend backend = {HOST_BACKEND("planner"), .user = &backend};

static core_status prepare(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults, void **out_plan)
{
    plan *made = malloc(sizeof *made);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    *out_plan = NULL;
    if (fail_prepare) {
        free(made);
        return core__error(CORE_ERROR_UNSUPPORTED, "cannot compile this");
    }
    made->numel = call->loop->numel;
    made->noperands = call->loop->noperands;
    made->live = true;
    pthread_mutex_lock(&lock);
    made->next = all;
    all = made;
    pthread_mutex_unlock(&lock);
    *out_plan = made;
    prepared++;
    return CORE_OK;
}

static void plan_destroy(void *word)
{
    plan *dying = word;

    if (!atomic_exchange(&dying->live, false))
        destroyed_twice++;
    destroyed++;
}

/* out = a + alpha b; contiguous f32. */
static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_loop *loop = call->loop;
    const plan *compiled = call->plan;
    float *out =
        (float *)(void *)host_backend_address(loop->operands[0].memory);
    const float *a =
        (float *)(void *)host_backend_address(loop->operands[1].memory);
    const float *b =
        (float *)(void *)host_backend_address(loop->operands[2].memory);
    float alpha = args[2].tag == CORE_VALUE_FLOAT ? (float)args[2].u.f
                                                  : (float)args[2].u.i;

    (void)nargs;
    (void)results;
    (void)nresults;
    if (!compiled || compiled->numel != loop->numel ||
        compiled->noperands != loop->noperands)
        return core__error(CORE_ERROR_INTERNAL, "not the plan of this call");
    used_dead += !compiled->live;
    if (fail_launch)
        return core__error(CORE_ERROR_INTERNAL, "cannot launch this");
    if (waits == loop->numel) {
        sem_post(&came);
        sem_wait(&go);
    }
    for (int64_t i = 0; i < loop->numel; i++)
        out[i] = a[i] + alpha * b[i];
    used_dead += !compiled->live;
    launched++;
    return CORE_OK;
}

static const core_kernel kernel = {
    .struct_size = sizeof kernel,
    .demands = CORE_REQUIRE_CONTIGUOUS,
    .name = {"add.Tensor", 10},
    .signature = {1u << CORE_F32, 1u << CORE_F32, 1u << CORE_F32},
    .launch = launch,
    .prepare = prepare,
    .plan_destroy = plan_destroy,
};

static void begin(void)
{
    const core_kernel *kernels[] = {&kernel};

    OK(core__registry_add_backend(&registry, &backend));
    OK(core__registry_add_kernels(&registry, backend.device_type, kernels, 1));
    OK(core_device_find("planner", &device));
}

static void end(void)
{
    drop_all();
    core__registry_undo(&registry);
    ck_assert_int_eq(prepared, destroyed);
    ck_assert_int_eq(destroyed_twice, 0);
    ck_assert_int_eq(used_dead, 0);
    while (all) {
        plan *next = all->next;

        free(all);
        all = next;
    }
}

/* The device has no kernel that converts dtypes. */
static void reads(core_tensor *tensor, int64_t n, float value)
{
    float have[8];

    OK(core_tensor_read(tensor, have, (size_t)n * sizeof *have));
    core_tensor_release(tensor);
    for (int64_t i = 0; i < n; i++)
        ck_assert_float_eq(have[i], value);
}

static core_tensor *ones(int64_t n)
{
    core_tensor *host = CALL(ones, &n, 1, CORE_F32, NULL), *tensor;

    OK(core_to_copy(host, CORE_DTYPE_NONE, device, false, -1, &tensor));
    return keep(tensor);
}

START_TEST(equal_structures_share_a_plan)
{
    core_plan_counts before, after;

    core_plan_get_counts(&before);
    for (int i = 0; i < 3; i++)
        add(ones(4), ones(4));
    core_plan_get_counts(&after);
    ck_assert_int_eq(prepared, 1);
    ck_assert_int_eq(launched, 3);
    ck_assert_uint_eq(after.hits - before.hits, 2);
    ck_assert_uint_eq(after.prepared - before.prepared, 1);
    add(ones(5), ones(5));
    ck_assert_int_eq(prepared, 2);
}
END_TEST

START_TEST(number_is_not_part_of_the_structure)
{
    core_tensor *a = ones(4), *sum;

    for (int i = 0; i < 5; i++) {
        OK(core_add(a, a, core_float(i * 0.5), &sum));
        reads(sum, 4, (float)(1 + i * 0.5));
    }
    ck_assert_int_eq(prepared, 1);
}
END_TEST

START_TEST(cache_is_bounded_and_evicts_the_oldest)
{
    core_plan_counts before, after;

    OK(core_setting_set("LIBCORE_PLAN_CACHE", "3"));
    core_plan_get_counts(&before);
    for (int64_t n = 1; n <= 5; n++)
        add(ones(n), ones(n));
    core_plan_get_counts(&after);
    ck_assert_uint_eq(after.cached, 3);
    ck_assert_uint_eq(after.evicted - before.evicted, 2);
    ck_assert_int_eq(destroyed, 2);
    add(ones(5), ones(5));
    ck_assert_int_eq(prepared, 5);
    add(ones(1), ones(1));
    ck_assert_int_eq(prepared, 6);
    OK(core_setting_set("LIBCORE_PLAN_CACHE", NULL));
}
END_TEST

START_TEST(failing_prepare_fails_the_call)
{
    core_tensor *a = ones(6), *sum;

    fail_prepare = 1;
    FAILS(core_add(a, a, core_int(1), &sum), CORE_ERROR_UNSUPPORTED,
          "cannot compile this");
    ck_assert_ptr_null(sum);
    fail_prepare = 0;
    OK(core_add(a, a, core_int(1), &sum));
    reads(sum, 6, 2);
}
END_TEST

/* The plan is kept, or was evicted in the meantime: in both cases it is
 * destroyed once. */
START_TEST(failing_launch_keeps_its_plan)
{
    core_tensor *a = ones(6), *sum;

    fail_launch = 1;
    FAILS(core_add(a, a, core_int(1), &sum), CORE_ERROR_INTERNAL,
          "cannot launch this");
    ck_assert_int_eq(destroyed, 0);
    OK(core_setting_set("LIBCORE_PLAN_CACHE", "1"));
    FAILS(core_add(ones(3), ones(3), core_int(1), &sum), CORE_ERROR_INTERNAL,
          "cannot launch this");
    ck_assert_int_eq(destroyed, 1);
    OK(core_setting_set("LIBCORE_PLAN_CACHE", NULL));
    fail_launch = 0;
    OK(core_add(a, a, core_int(1), &sum));
    reads(sum, 6, 2);
    ck_assert_int_eq(prepared, 3);
}
END_TEST

static void *worker(void *argument)
{
    core_tensor *a = argument, *sum;

    for (int i = 0; i < 200; i++) {
        if (core_add(a, a, core_int(i), &sum) != CORE_OK)
            return "failed";
        core_tensor_release(sum);
    }
    return NULL;
}

/* More shapes than the cache can hold, from several threads: plans in use are
 * evicted. */
START_TEST(plan_in_use_outlives_its_eviction)
{
    pthread_t threads[4];

    OK(core_setting_set("LIBCORE_PLAN_CACHE", "1"));
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, worker, ones(i + 1)),
                         0);
    for (int i = 0; i < 4; i++) {
        void *failure;

        pthread_join(threads[i], &failure);
        ck_assert_ptr_null(failure);
    }
    OK(core_setting_set("LIBCORE_PLAN_CACHE", NULL));
}
END_TEST

static void *caller(void *argument)
{
    core_tensor *sum;

    if (core_add(argument, argument, core_int(1), &sum) != CORE_OK)
        return "failed";
    core_tensor_release(sum);
    return NULL;
}

START_TEST(evicted_plan_is_destroyed_after_its_last_call)
{
    pthread_t thread;
    void *failure;

    sem_init(&came, 0, 0);
    sem_init(&go, 0, 0);
    waits = 7;
    OK(core_setting_set("LIBCORE_PLAN_CACHE", "1"));
    ck_assert_int_eq(pthread_create(&thread, NULL, caller, ones(7)), 0);
    sem_wait(&came);
    add(ones(3), ones(3));
    ck_assert_int_eq(destroyed, 0);
    sem_post(&go);
    pthread_join(thread, &failure);
    ck_assert_ptr_null(failure);
    ck_assert_int_eq(destroyed, 1);
    waits = 0;
    OK(core_setting_set("LIBCORE_PLAN_CACHE", NULL));
    sem_destroy(&came);
    sem_destroy(&go);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        equal_structures_share_a_plan,
        number_is_not_part_of_the_structure,
        cache_is_bounded_and_evicts_the_oldest,
        failing_prepare_fails_the_call,
        failing_launch_keeps_its_plan,
        plan_in_use_outlives_its_eviction,
        evicted_plan_is_destroyed_after_its_last_call,
    };
    const test_suite suite = {
        .name = "dispatch/plan",
        .setup = begin,
        .teardown = end,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
