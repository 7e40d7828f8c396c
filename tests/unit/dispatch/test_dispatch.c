/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/autograd.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/table.h"

#include <libcore/dispatch.h>
#include <libcore/settings.h>

#include <pthread.h>

static core_device *cpu;

static void setup(void)
{
    OK(core_device_find("cpu", &cpu));
}

static core_tensor *ones(int64_t n)
{
    core_tensor *tensor;

    OK(core_ones(&n, 1, CORE_F32, cpu, &tensor));
    return tensor;
}

/* A function that appends its user pointer's text to the path, and redispatches
 * below itself if the text says so. */
static char path[64];

static core_status note(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const char *word = call->user;

    strcat(path, word);
    if (word[0] >= 'A' && word[0] <= 'Z')
        return core_redispatch_below(call, args, nargs, results, nresults);
    return CORE_OK;
}

static core_operator *custom(core_registration **out_registration)
{
    core_operator *op;

    OK(core_op_register("test::f(Tensor a) -> ()", out_registration));
    OK(core_op_find("test::f", &op));
    path[0] = '\0';
    return op;
}

static core_registration *put(uint32_t key, const char *device,
                              const char *word)
{
    core_registration *made;

    OK(core_function_register("test::f", key, device, note,
                              (void *)(uintptr_t)word, &made));
    return made;
}

static const char *walk(core_operator *op)
{
    core_tensor *tensor = ones(1);
    core_value arg = {CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
    core_status status;

    path[0] = '\0';
    status = core_op_invoke_on(op, &arg, 1, NULL, 0);
    core_tensor_release(tensor);
    return status == CORE_OK                ? path
           : status == CORE_ERROR_NO_KERNEL ? "missing"
                                            : "error";
}

START_TEST(highest_functionality_is_called_first_and_redispatch_goes_below)
{
    core_registration *all[4];
    core_operator *op = custom(&all[0]);

    all[1] = put(CORE_KEY_BACKEND, "cpu", "k");
    all[2] = put(CORE_KEY_AUTOGRAD, NULL, "A");
    all[3] = put(CORE_KEY_INPLACE_OR_VIEW, NULL, "I");
    ck_assert_str_eq(walk(op), "AIk");
    for (size_t i = 4; i-- > 0;)
        core_registration_release(all[i]);
}
END_TEST

START_TEST(excluded_keys_override_included_and_tensor_keys)
{
    core_registration *all[3];
    core_operator *op = custom(&all[0]);
    core__keys_guard guard = core__keys_save();

    all[1] = put(CORE_KEY_BACKEND, "cpu", "k");
    all[2] = put(CORE_KEY_AUTOGRAD, NULL, "A");
    core__thread_self()->excluded |= CORE__KEY_AUTOGRAD;
    core__thread_self()->included |= CORE__KEY_AUTOGRAD;
    ck_assert_str_eq(walk(op), "k");
    core__keys_restore(guard);
    ck_assert_str_eq(walk(op), "Ak");
    for (size_t i = 3; i-- > 0;)
        core_registration_release(all[i]);
}
END_TEST

START_TEST(newest_registration_wins_until_it_is_released)
{
    core_registration *all[3];
    core_operator *op = custom(&all[0]);

    all[1] = put(CORE_KEY_BACKEND, "cpu", "a");
    ck_assert_str_eq(walk(op), "a");
    all[2] = put(CORE_KEY_BACKEND, "cpu", "b");
    ck_assert_str_eq(walk(op), "b");
    core_registration_release(all[2]);
    ck_assert_str_eq(walk(op), "a");
    core_registration_release(all[1]);
    ck_assert_str_eq(walk(op), "missing");
    core_registration_release(all[0]);
}
END_TEST

static char logged[4096];

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    (void)level;
    (void)component;
    strncat(logged, text, sizeof logged - strlen(logged) - 2);
    strcat(logged, "\n");
}

START_TEST(overriding_warns_once)
{
    core_registration *all[4];

    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    custom(&all[0]);
    all[1] = put(CORE_KEY_BACKEND, "cpu", "a");
    ck_assert_str_eq(logged, "");
    all[2] = put(CORE_KEY_BACKEND, "cpu", "b");
    ck_assert_ptr_nonnull(strstr(logged, "test::f"));
    logged[0] = '\0';
    all[3] = put(CORE_KEY_BACKEND, "cpu", "c");
    ck_assert_str_eq(logged, "");
    core_log_set_sink(NULL, NULL, 0);
    for (size_t i = 4; i-- > 0;)
        core_registration_release(all[i]);
}
END_TEST

START_TEST(older_handle_may_be_released_before_a_newer_one)
{
    core_registration *all[3];
    core_operator *op = custom(&all[0]);

    all[1] = put(CORE_KEY_BACKEND, "cpu", "a");
    all[2] = put(CORE_KEY_BACKEND, "cpu", "b");
    core_registration_release(all[1]);
    ck_assert_str_eq(walk(op), "b");
    core_registration_release(all[2]);
    core_registration_release(all[0]);
}
END_TEST

/* One registration of each kind, in every order: the resulting path is the
 * same. */
static const struct {
    uint32_t key;
    const char *device;
    const char *word;
} kinds[] = {
    {CORE_KEY_BACKEND, "cpu", "k"},
    {CORE_KEY_COMPOSITE_EXPLICIT, NULL, "e"},
    {CORE_KEY_COMPOSITE_IMPLICIT, NULL, "i"},
    {CORE_KEY_AUTOGRAD, NULL, "A"},
    {CORE_KEY_AUTOGRAD, "cpu", "B"},
    {CORE_KEY_INPLACE_OR_VIEW, NULL, "I"},
    {CORE_KEY_AUTOCAST, NULL, "C"},
    {CORE_KEY_PROFILER, NULL, "P"},
};
/* All orders of the first MANY together, and of all triples. */
enum { KINDS = sizeof kinds / sizeof *kinds, MANY = 5 };

static const char *expected(uint32_t chosen)
{
    static char text[16];
    bool direct = chosen & 1;
    bool explicit = chosen & 2;
    bool implicit = chosen & 4;
    bool whole = implicit && !direct && !explicit;

    /* Without a direct kernel or an explicit composite, a decomposition
     * occupies the autograd slot too, unless a function is registered there. */
    text[0] = '\0';
    if (chosen & 128)
        strcat(text, "P");
    if (chosen & 64)
        strcat(text, "C");
    if (chosen & 16)
        strcat(text, "B");
    else if (chosen & 8)
        strcat(text, "A");
    if (chosen & 32 && (!whole || chosen & 24))
        strcat(text, "I");
    if (direct)
        strcat(text, "k");
    else if (explicit)
        strcat(text, "e");
    else if (implicit)
        strcat(text, "i");
    else
        return "missing";
    return text;
}

static void try_order(const uint32_t *order, uint32_t count)
{
    core_registration *own;
    core_registration *made[KINDS];
    core_operator *op = custom(&own);
    uint32_t chosen = 0;

    for (uint32_t i = 0; i < count; i++) {
        made[i] = put(kinds[order[i]].key, kinds[order[i]].device,
                      kinds[order[i]].word);
        chosen |= 1u << order[i];
    }
    ck_assert_str_eq(walk(op), expected(chosen));
    for (uint32_t i = 0; i < count; i++)
        core_registration_release(made[i]);
    core_registration_release(own);
}

static uint32_t tried;

static void permute(uint32_t *order, uint32_t count, uint32_t at)
{
    uint32_t last = count > 3 ? MANY : KINDS;

    if (at == count) {
        try_order(order, count);
        tried++;
        return;
    }
    for (uint32_t kind = 0; kind < last; kind++) {
        bool taken = false;

        for (uint32_t i = 0; i < at; i++)
            taken |= order[i] == kind;
        if (taken)
            continue;
        order[at] = kind;
        permute(order, count, at + 1);
    }
}

START_TEST(registration_order_never_changes_the_table)
{
    core__keys_guard guard = core__keys_save();
    uint32_t order[KINDS] = {0};

    core__thread_self()->included |= CORE__KEY_AUTOCAST | CORE__KEY_PROFILER;
    tried = 0;
    for (uint32_t count = 0; count <= MANY; count++)
        permute(order, count, 0);
    core__keys_restore(guard);
    ck_assert_uint_eq(tried, 1 + 8 + 56 + 336 + 120 + 120);
}
END_TEST

START_TEST(missing_kernel_names_operator_device_and_backends_that_have_it)
{
    core_registration *all[3];
    core_operator *op = custom(&all[0]);
    core_device *sim;

    OK(core_device_find("sim", &sim));
    all[1] = put(CORE_KEY_BACKEND, "meta", "m");
    all[2] = put(CORE_KEY_BACKEND, "sim", "s");
    ck_assert_str_eq(walk(op), "missing");
    ck_assert_ptr_nonnull(strstr(core_error_message(), "test::f"));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "\"cpu\""));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "have one: sim. "));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "LIBCORE_FALLBACK"));
    core_registration_release(all[2]);
    core_registration_release(all[1]);
    core_registration_release(all[0]);
}
END_TEST

START_TEST(call_without_tensors_is_reported)
{
    core_registration *own;
    core_operator *op;

    OK(core_op_register("test::list(Tensor[] t) -> ()", &own));
    OK(core_op_find("test::list", &op));
    {
        core_value none = {CORE_VALUE_TENSOR_LIST, 0, {.tensors = NULL}};

        FAILS(core_op_invoke_on(op, &none, 1, NULL, 0),
              CORE_ERROR_INVALID_ARGUMENT, "test::list", "no tensor");
    }
    core_registration_release(own);
}
END_TEST

START_TEST(missing_required_tensor_is_named)
{
    core_tensor *out = (core_tensor *)&out;
    core_tensor *a = ones(1);

    FAILS(core_add(a, NULL, core_int(1), &out), CORE_ERROR_INVALID_ARGUMENT,
          "add.Tensor", "argument 2");
    ck_assert_ptr_null(out);
    core_tensor_release(a);
}
END_TEST

START_TEST(registering_twice_or_without_a_namespace_is_refused)
{
    core_registration *own;
    core_registration *second;

    OK(core_op_register("test::f(Tensor a) -> ()", &own));
    FAILS(core_op_register("test::f(Tensor a) -> ()", &second),
          CORE_ERROR_REFUSED, "test::f");
    FAILS(core_op_register("f(Tensor a) -> ()", &second),
          CORE_ERROR_INVALID_ARGUMENT, "namespace");
    ck_assert_ptr_null(second);
    core_registration_release(own);
    FAILS(core_function_register("test::f", CORE_KEY_BACKEND, "cpu", note, NULL,
                                 &second),
          CORE_ERROR_NOT_FOUND, "test::f");
}
END_TEST

START_TEST(tracing_can_be_started_and_stopped)
{
    core_tensor *a = ones(2);
    core_tensor *b;

    logged[0] = '\0';
    core_log_set_sink(sink, NULL, CORE_LOG_INFO);
    core__dispatch_trace_set(true);
    OK(core_add(a, a, core_int(1), &b));
    core__dispatch_trace_set(false);
    core_tensor_release(b);
    ck_assert_str_eq(logged, "add.Tensor: cpu\n");
    logged[0] = '\0';
    OK(core_add(a, a, core_int(1), &b));
    ck_assert_str_eq(logged, "");
    core_log_set_sink(NULL, NULL, 0);
    core_tensor_release(b);
    core_tensor_release(a);
}
END_TEST

/* Threads call while registrations are added and removed: no call sees freed
 * memory or a partial table (checked by TSan and ASan). */
static _Atomic bool stop;

static void *caller(void *argument)
{
    core_operator *op = argument;
    core_tensor *tensor = ones(1);
    core_value arg = {CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
    uintptr_t failures = 0;

    while (!atomic_load(&stop))
        failures += core_op_invoke_on(op, &arg, 1, NULL, 0) != CORE_OK;
    core_tensor_release(tensor);
    return (void *)failures;
}

static core_status quiet(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return *(int *)call->user == 7 ? CORE_OK : CORE_ERROR_INTERNAL;
}

START_TEST(calls_run_while_registrations_change)
{
    static int seven = 7;
    core_registration *own;
    core_registration *base;
    core_operator *op;
    pthread_t threads[2];

    OK(core_op_register("test::g(Tensor a) -> ()", &own));
    OK(core_op_find("test::g", &op));
    OK(core_function_register("test::g", CORE_KEY_BACKEND, "cpu", quiet, &seven,
                              &base));
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, caller, op), 0);
    for (int i = 0; i < 2000; i++) {
        bool autograd = i & 1;
        core_registration *over;

        OK(core_function_register(
            "test::g", autograd ? CORE_KEY_AUTOGRAD : CORE_KEY_BACKEND,
            autograd ? NULL : "cpu", quiet, &seven, &over));
        core_registration_release(over);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        void *failures;

        pthread_join(threads[i], &failures);
        ck_assert_ptr_null(failures);
    }
    core_registration_release(base);
    core_registration_release(own);
}
END_TEST

/* Each lookup starts from the previous position where that is still valid. */
START_TEST(kernels_are_found_by_number_in_any_order)
{
    enum { MOST = 4096 };
    static const core_kernel *all[MOST];
    const core_kernel *kernel, *of_meta;
    uint32_t count = 0;

    while (count < MOST &&
           core_kernel_at("cpu", count, &all[count]) == CORE_OK) {
        for (uint32_t k = count > 3 ? count - 3 : 0; k < count; k++)
            ck_assert_ptr_ne(all[k], all[count]);
        count++;
    }
    ck_assert_uint_gt(count, 500);
    ck_assert_uint_lt(count, MOST);
    for (uint32_t i = count; i-- > 0;) {
        OK(core_kernel_at("cpu", i, &kernel));
        ck_assert_ptr_eq(kernel, all[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (i * 7919u) % count;

        OK(core_kernel_at("cpu", at, &kernel));
        ck_assert_ptr_eq(kernel, all[at]);
        core_kernel_at("meta", i, &of_meta); /* another list in between */
    }
    ck_assert_int_eq(core_kernel_at("cpu", count, &kernel),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_null(kernel);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        highest_functionality_is_called_first_and_redispatch_goes_below,
        excluded_keys_override_included_and_tensor_keys,
        newest_registration_wins_until_it_is_released,
        overriding_warns_once,
        older_handle_may_be_released_before_a_newer_one,
        registration_order_never_changes_the_table,
        missing_kernel_names_operator_device_and_backends_that_have_it,
        call_without_tensors_is_reported,
        missing_required_tensor_is_named,
        registering_twice_or_without_a_namespace_is_refused,
        tracing_can_be_started_and_stopped,
        kernels_are_found_by_number_in_any_order,
        calls_run_while_registrations_change,
    };
    const test_suite suite = {
        .name = "dispatch/dispatch",
        .setup = setup,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
