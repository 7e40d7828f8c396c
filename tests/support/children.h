/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Forked children of a test, beside whose parent other threads run. */

#ifndef LIBCORE_TESTS_CHILDREN_H
#define LIBCORE_TESTS_CHILDREN_H

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_IS_WELL = 42 };

/* The child's first words: it ends by a signal if it lasts longer.  The thread
 * sanitizer has locks of its own that it does not take before a fork, so that a
 * child which computes may wait for one of them for ever: there the fork alone,
 * with what the library does at it, is tested. */
static inline void child_begins(unsigned seconds)
{
#ifdef __SANITIZE_THREAD__
    _exit(CHILD_IS_WELL);
#endif
    signal(SIGALRM, SIG_DFL); /* Check has a handler */
    alarm(seconds);
}

static inline void child_ends(bool well)
{
    _exit(well ? CHILD_IS_WELL : EXIT_FAILURE);
}

static inline void wait_for_child(pid_t child)
{
    int state;

    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_msg(WIFEXITED(state), "the child ended by signal %d",
                  WIFSIGNALED(state) ? WTERMSIG(state) : 0);
    ck_assert_int_eq(WEXITSTATUS(state), CHILD_IS_WELL);
}

#endif
