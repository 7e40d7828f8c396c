/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The runner of the suites: an assertion that fails in a process that a test has
 * started, while tests have no processes of their own.  The program runs itself
 * with such tests.  And a test that takes long. */

#define SUITE_FORKS true
#include "support/suite.h"

#include <fcntl.h>
#include <sys/syscall.h>

static long later; /* seconds that the clock is ahead */

/* Instead of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, out);

    out->tv_sec += later;
    return status;
}

static int counter = -1; /* a file, to which each test that runs adds a byte */

START_TEST(fails_in_a_child)
{
    pid_t child = fork();
    int state;

    ck_assert_int_eq(write(counter, "1", 1), 1);
    if (child == 0)
        ck_assert_msg(0, "in the child");
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_msg(state == 0, "the child failed");
}
END_TEST

START_TEST(runs_after_it)
{
    ck_assert_int_eq(write(counter, "2", 1), 1);
}
END_TEST

static int run_inner(const char *path)
{
    const TTest *const tests[] = {fails_in_a_child, runs_after_it};
    const TTest *const last[] = {fails_in_a_child};
    const test_suite suites[] = {{"inner", SUITE_TESTS(tests)},
                                 {"last", SUITE_TESTS(last)}};

    counter = open(path, O_WRONLY | O_APPEND);
    return suite_run(suites, sizeof suites / sizeof *suites);
}

static int run_itself(const char *path)
{
    pid_t child = fork();
    int state;

    if (child == 0) {
        setenv("CK_FORK", "no", 1);
        setenv("CK_VERBOSITY", "silent", 1);
        unsetenv("CK_TAP_LOG_FILE_NAME");
        execl("/proc/self/exe", "inner", path, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert(WIFEXITED(state));
    return WEXITSTATUS(state);
}

/* Twice the test that fails, each in two processes, and the one after it once. */
START_TEST(child_does_not_go_on_with_the_next_test)
{
    char path[] = "/tmp/libcore-suite-XXXXXX", text[16] = "";
    int file = mkstemp(path), status;

    ck_assert_int_ge(file, 0);
    status = run_itself(path);
    ck_assert_int_eq(read(file, text, sizeof text - 1), 5);
    close(file);
    unlink(path);
    ck_assert_int_eq(status, EXIT_FAILURE);
    ck_assert_ptr_eq(strchr(strchr(text, '2') + 1, '2'), NULL);
}
END_TEST

START_TEST(test_may_take_an_hour)
{
    later = 3600;
}
END_TEST

int main(int argc, char **argv)
{
    const TTest *const tests[] = {child_does_not_go_on_with_the_next_test,
                                  test_may_take_an_hour};
    const test_suite suites[] = {{"base/suite", SUITE_TESTS(tests)}};

    if (argc == 2 && strcmp(argv[0], "inner") == 0)
        return run_inner(argv[1]);
    return suite_run(suites, sizeof suites / sizeof *suites);
}
