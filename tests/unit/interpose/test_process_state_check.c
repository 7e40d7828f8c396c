/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* validate tells which call changed what is the process's or the thread's. */

#include "support/faulty_backend.h"

#include <locale.h>
#include <signal.h>

static core_status call(void)
{
    return wrapped->streams->synchronize(device, stream);
}

static void handle(int number)
{
    (void)number;
}

static void take_signal(void)
{
    signal(SIGUSR1, handle);
}

START_TEST(a_changed_handler_is_told_with_its_call)
{
    lie.act = take_signal;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    signal(SIGUSR1, SIG_DFL);
    told(1, "liar.stream_synchronize: changes the handler of signal 10");
    lie.act = NULL;
    ck_assert_int_eq(call(), CORE_OK);
}
END_TEST

START_TEST(a_handler_that_is_there_already_is_no_change)
{
    const char *breach;

    signal(SIGUSR1, handle);
    lie.act = take_signal;
    ck_assert_int_eq(call(), CORE_OK);
    signal(SIGUSR1, SIG_DFL);
    ck_assert_uint_eq(core__layers_breaches(layers, &breach), 0);
}
END_TEST

static void block_signal(void)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
}

START_TEST(a_changed_mask_is_told_with_its_call)
{
    sigset_t before;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    lie.act = block_signal;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    told(1, "liar.stream_synchronize: blocks signal 15 for the thread");
}
END_TEST

static void speak_otherwise(void)
{
    setlocale(LC_ALL, "C.UTF-8");
}

START_TEST(a_changed_locale_is_told_with_its_call)
{
    setlocale(LC_ALL, "C");
    lie.act = speak_otherwise;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    setlocale(LC_ALL, "C");
    told(1, "liar.stream_synchronize: changes the locale from C to C.UTF-8");
}
END_TEST

static locale_t other;

static void speak_alone(void)
{
    uselocale(other);
}

START_TEST(a_changed_locale_of_the_thread_is_told_with_its_call)
{
    other = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ck_assert_ptr_nonnull((void *)other);
    lie.act = speak_alone;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(other);
    told(1, "liar.stream_synchronize: changes the thread's locale");
}
END_TEST

#if defined __x86_64__
static void shorten_x87(void)
{
    uint16_t word = 0x27f;

    __asm__ volatile("fldcw %0" : : "m"(word));
}

START_TEST(a_changed_x87_is_told_with_its_call)
{
    uint16_t word = 0x37f;

    lie.act = shorten_x87;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    __asm__ volatile("fldcw %0" : : "m"(word));
    told(1, "x87 from 0x37f to 0x27f");
}
END_TEST
#endif

/* The outer call ends with what the inner one changed. */
static void call_within(void)
{
    lie.act = take_signal;
    (void)call();
}

START_TEST(a_call_around_it_is_not_to_blame)
{
    core_memory made;

    lie.act = call_within;
    ck_assert_int_eq(wrapped->memory->alloc(device, 64, &made), CORE_OK);
    signal(SIGUSR1, SIG_DFL);
    told(1, "liar.stream_synchronize: changes the handler");
}
END_TEST

START_TEST(without_validate_nobody_looks)
{
    const char *breach;

    end();
    begin("trace", NULL);
    lie.act = take_signal;
    ck_assert_int_eq(call(), CORE_OK);
    signal(SIGUSR1, SIG_DFL);
    ck_assert_uint_eq(core__layers_breaches(layers, &breach), 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_changed_handler_is_told_with_its_call,
        a_handler_that_is_there_already_is_no_change,
        a_changed_mask_is_told_with_its_call,
        a_changed_locale_is_told_with_its_call,
        a_changed_locale_of_the_thread_is_told_with_its_call,
#if defined __x86_64__
        a_changed_x87_is_told_with_its_call,
#endif
        a_call_around_it_is_not_to_blame,
        without_validate_nobody_looks,
    };
    const test_suite suite = {
        .name = "process state",
        .setup = validate,
        .teardown = end,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
