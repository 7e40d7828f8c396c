/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* validate reports which call changed state of the process or the thread. */

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

START_TEST(changed_signal_handler_is_reported_with_its_call)
{
    behaviour.act = take_signal;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    signal(SIGUSR1, SIG_DFL);
    reported(1, "faulty.stream_synchronize: changes the handler of signal 10");
    behaviour.act = NULL;
    ck_assert_int_eq(call(), CORE_OK);
}
END_TEST

START_TEST(handler_set_before_is_not_a_change)
{
    const char *breach;

    signal(SIGUSR1, handle);
    behaviour.act = take_signal;
    ck_assert_int_eq(call(), CORE_OK);
    signal(SIGUSR1, SIG_DFL);
    ck_assert_uint_eq(core__interposers_violations(interposers, &breach), 0);
}
END_TEST

static void block_signal(void)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
}

START_TEST(changed_signal_mask_is_reported_with_its_call)
{
    sigset_t before;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    behaviour.act = block_signal;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    reported(1, "faulty.stream_synchronize: blocks signal 15 for the thread");
}
END_TEST

static void speak_otherwise(void)
{
    setlocale(LC_ALL, "C.UTF-8");
}

START_TEST(changed_locale_is_reported_with_its_call)
{
    setlocale(LC_ALL, "C");
    behaviour.act = speak_otherwise;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    setlocale(LC_ALL, "C");
    reported(1,
             "faulty.stream_synchronize: changes the locale from C to C.UTF-8");
}
END_TEST

static locale_t other;

static void speak_alone(void)
{
    uselocale(other);
}

START_TEST(changed_thread_locale_is_reported_with_its_call)
{
    other = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ck_assert_ptr_nonnull((void *)other);
    behaviour.act = speak_alone;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(other);
    reported(1, "faulty.stream_synchronize: changes the thread's locale");
}
END_TEST

#if defined __x86_64__
static void shorten_x87(void)
{
    uint16_t word = 0x27f;

    __asm__ volatile("fldcw %0" : : "m"(word));
}

START_TEST(changed_x87_control_word_is_reported_with_its_call)
{
    uint16_t word = 0x37f;

    behaviour.act = shorten_x87;
    ck_assert_int_eq(call(), CORE_ERROR_INTERNAL);
    __asm__ volatile("fldcw %0" : : "m"(word));
    reported(1, "x87 from 0x37f to 0x27f");
}
END_TEST
#endif

/* The outer call ends with the state that the inner one changed. */
static void call_within(void)
{
    behaviour.act = take_signal;
    (void)call();
}

START_TEST(enclosing_call_is_not_blamed)
{
    core_memory made;

    behaviour.act = call_within;
    ck_assert_int_eq(wrapped->memory->alloc(device, 64, &made), CORE_OK);
    signal(SIGUSR1, SIG_DFL);
    reported(1, "faulty.stream_synchronize: changes the handler");
}
END_TEST

START_TEST(process_state_is_not_checked_without_validate)
{
    const char *breach;

    end();
    begin("trace", NULL);
    behaviour.act = take_signal;
    ck_assert_int_eq(call(), CORE_OK);
    signal(SIGUSR1, SIG_DFL);
    ck_assert_uint_eq(core__interposers_violations(interposers, &breach), 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        changed_signal_handler_is_reported_with_its_call,
        handler_set_before_is_not_a_change,
        changed_signal_mask_is_reported_with_its_call,
        changed_locale_is_reported_with_its_call,
        changed_thread_locale_is_reported_with_its_call,
#if defined __x86_64__
        changed_x87_control_word_is_reported_with_its_call,
#endif
        enclosing_call_is_not_blamed,
        process_state_is_not_checked_without_validate,
    };
    const test_suite suite = {
        .name = "interpose/process_state_check",
        .setup = validate,
        .teardown = end,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
