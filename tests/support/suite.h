/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* suite.h: runs the suites of a test program and reports in TAP.  Depends only
 * on Check, so that it serves programs that are not linked with the core. */

#ifndef TESTS_SUPPORT_SUITE_H
#define TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/effort.h"

/* Check writes the place of each assertion that holds to a file, for the report
 * of a crash.  Writing each place once saves a third of all tests' time. */
static inline void suite_mark(const char *file, int line)
{
    enum { PLACES = 1 << 14 };
    static unsigned char marked[PLACES];
    uintptr_t place = (uintptr_t)file / 8 * 31 + (uintptr_t)line;

    if (__atomic_load_n(&marked[place % PLACES], __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&marked[place % PLACES], 1, __ATOMIC_RELAXED);
    _mark_point(file, line);
}
#define _mark_point(file, line) suite_mark(file, line)

/* A test that runs once for each _i from first to below end. */
typedef struct suite_loop {
    const TTest *test;
    int first, end;
} suite_loop;

typedef struct test_suite {
    const char *name;
    /* Before and after each test, in the process of the test; may be NULL. */
    void (*setup)(void);
    void (*teardown)(void);
    int seconds; /* limit for each test; 0: the default of suite_run */
    const TTest *const *tests;
    size_t test_count;
    const suite_loop *loops;
    size_t loop_count;
    bool one_thread; /* the loops use one thread: see effort_is_for_threads */
} test_suite;

/* Initializers of a test_suite from arrays. */
#define SUITE_TESTS(array) \
    .tests = (array), .test_count = sizeof(array) / sizeof *(array)
#define SUITE_LOOPS(array) \
    .loops = (array), .loop_count = sizeof(array) / sizeof *(array)

enum { SUITE_RUNS_MOST = 4096, SUITE_REASON_SIZE = 128 };

/* Shared by the runner and the processes of its tests. */
typedef struct suite_skips {
    unsigned started; /* tests so far, the running one included */
    pid_t process;    /* of all tests; 0: each test has one */
    char reasons[SUITE_RUNS_MOST][SUITE_REASON_SIZE];
} suite_skips;

static suite_skips *suite_shared;

/* After a failed assertion Check goes on with the next test, if tests have no
 * processes of their own: also in a process that the test has started.  That one
 * ends instead. */
static inline void suite_end_other_process(void)
{
    if (suite_shared->process != 0 && suite_shared->process != getpid())
        _exit(EXIT_FAILURE);
}

static inline time_t suite_seconds(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static time_t suite_test_began;

static inline void suite_test_starts(void)
{
    suite_end_other_process();
    suite_shared->started++;
    suite_test_began = suite_seconds();
}

/* Check sends how long a test took in microseconds, as an int: from 36 minutes on,
 * the test's process would end with status 2.  This process ends without that. */
static inline void suite_test_ends(void)
{
    const time_t most = INT_MAX / 1000000 - 1;

    if (suite_shared->process == 0 &&
        suite_seconds() - suite_test_began >= most)
        exit(EXIT_SUCCESS);
}

static inline int suite_prints_tap(void)
{
    const char *name = getenv("CK_TAP_LOG_FILE_NAME");

    return name != NULL && strcmp(name, "-") == 0;
}

/* Reports the running test as skipped; the test returns after it. */
__attribute__((format(printf, 1, 2))) static inline void suite_skip(
    const char *format, ...)
{
    char reason[SUITE_REASON_SIZE];
    unsigned number = suite_shared->started;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (!suite_prints_tap())
        fprintf(stderr, "skipped: %s\n", reason);
    if (number > 0 && number <= SUITE_RUNS_MOST)
        memcpy(suite_shared->reasons[number - 1], reason, sizeof reason);
}

/* Reports the whole program as skipped and returns its exit status. */
__attribute__((format(printf, 1, 2))) static inline int suite_skip_all(
    const char *format, ...)
{
    va_list arguments;

    printf("1..0 # SKIP ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    return EXIT_SUCCESS;
}

/* Copies Check's TAP to stdout and marks the skipped tests, which Check counts
 * as passed.  Ends with the plan, Check's last line: a process that a test has
 * left behind may keep the pipe open. */
static inline void suite_mark_skips(int pipe_end)
{
    FILE *tap = fdopen(pipe_end, "r");
    char line[4096], *passed;
    unsigned number;

    while (tap != NULL && fgets(line, sizeof line, tap) != NULL) {
        if (sscanf(line, "ok %u", &number) == 1 && number > 0 &&
            number <= SUITE_RUNS_MOST &&
            suite_shared->reasons[number - 1][0] != 0 &&
            (passed = strstr(line, ": Passed")) != NULL)
            snprintf(passed, sizeof line - (size_t)(passed - line),
                     " # SKIP %s\n", suite_shared->reasons[number - 1]);
        fputs(line, stdout);
        fflush(stdout);
        if (strncmp(line, "1..", 3) == 0)
            break;
    }
}

/* Runs with TAP through a process that marks what was skipped. */
static inline void suite_run_tap(SRunner *runner)
{
    int ends[2];
    char path[32];
    pid_t marker;

    if (pipe(ends) != 0 || (marker = fork()) < 0) {
        perror("suite");
        exit(EXIT_FAILURE);
    }
    if (marker == 0) {
        close(ends[1]);
        suite_mark_skips(ends[0]);
        _exit(EXIT_SUCCESS);
    }
    close(ends[0]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    srunner_set_tap(runner, path);
    srunner_run_all(runner, CK_ENV);
    suite_end_other_process();
    close(ends[1]);
    waitpid(marker, NULL, 0);
}

static inline Suite *suite_of(const test_suite *from)
{
    Suite *suite = suite_create(from->name);
    TCase *tests = tcase_create(from->name);
    size_t loops = from->loop_count;

    /* The first one starts first, and ends last. */
    tcase_add_checked_fixture(tests, suite_test_starts, suite_test_ends);
    tcase_add_checked_fixture(tests, from->setup, from->teardown);
    if (from->seconds > 0)
        tcase_set_timeout(tests, from->seconds);
    for (size_t i = 0; i < from->test_count; i++)
        tcase_add_test(tests, from->tests[i]);
    if (from->one_thread && effort_is_for_threads())
        loops = 0;
    for (size_t i = 0; i < loops; i++)
        tcase_add_loop_test(tests, from->loops[i].test, from->loops[i].first,
                            from->loops[i].end);
    suite_add_tcase(suite, tests);
    return suite;
}

/* A process for each test, under sanitizers too: defined to true before
 * suite.h is included by programs whose tests change what a process has once,
 * such as settings and plugins, or count what earlier tests would have left. */
#ifndef SUITE_FORKS
#define SUITE_FORKS false
#endif

/* Runs the suites and returns the program's exit status.  Each test has a
 * process, except under a sanitizer, where a fork and the search for leaks at a
 * process's end take 40 ms.  Time limits only end tests that hang: on a busy
 * machine or under a sanitizer a test may take many times as long, and Check's
 * default is 4 seconds. */
static inline int suite_run(const test_suite *suites, size_t count)
{
    SRunner *runner = srunner_create(NULL);
    int failed;

    if (effort_is_slow() && !SUITE_FORKS)
        setenv("CK_FORK", "no", 0);
    setenv("CK_DEFAULT_TIMEOUT", "60", 0);
    setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);
    suite_shared = mmap(NULL, sizeof *suite_shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (suite_shared == MAP_FAILED) {
        perror("suite");
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < count; i++)
        srunner_add_suite(runner, suite_of(&suites[i]));
    if (srunner_fork_status(runner) == CK_NOFORK)
        suite_shared->process = getpid();
    if (suite_prints_tap())
        suite_run_tap(runner);
    else
        srunner_run_all(runner, CK_ENV);
    suite_end_other_process();
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
