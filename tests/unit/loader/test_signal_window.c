/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A program can be ended while the init of a plugin runs, although that has all
 * signals blocked; its handlers run afterwards, on its own threads. */

#define SUITE_FORKS true

#include "support/loader.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static pthread_t handler_thread;

static void on_signal(int number)
{
    caught = number;
    handler_thread = pthread_self();
    core_plugin_count(); /* takes the loader's lock */
}

static void open_signalling_plugin(void)
{
    setenv("FIXTURE_CRASHING", "signal", 1);
    core_plugin_load(fixture("crashing"), NULL);
}

START_TEST(signal_during_init_ends_the_process)
{
    pid_t child = fork();
    int status = 0;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        signal(SIGTERM, SIG_DFL); /* the test library has a handler */
        open_signalling_plugin();
        _exit(4);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status), "exit status %d", WEXITSTATUS(status));
    ck_assert_int_eq(WTERMSIG(status), SIGTERM);
}
END_TEST

START_TEST(handler_runs_on_the_thread_that_loads)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGTERM, &action, NULL);
    setenv("FIXTURE_CRASHING", "signal and return", 1);
    core_plugin_load(fixture("crashing"), NULL);
    ck_assert_int_eq(caught, SIGTERM);
    ck_assert(pthread_equal(handler_thread, pthread_self()));
}
END_TEST

START_TEST(blocked_signal_stays_blocked)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t one, pending;

    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigaction(SIGUSR1, &action, NULL);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), SIGUSR1);
    setenv("FIXTURE_CRASHING", "no", 1);
    ck_assert_int_eq(core_plugin_load(fixture("crashing"), NULL), CORE_OK);
    ck_assert_int_eq(caught, 0);
    sigpending(&pending);
    ck_assert_int_eq(sigismember(&pending, SIGUSR1), 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        signal_during_init_ends_the_process,
        handler_runs_on_the_thread_that_loads,
        blocked_signal_stays_blocked,
    };
    const test_suite suite = {
        .name = "loader/signal_window",
        .setup = folder_make,
        .teardown = folder_remove,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
