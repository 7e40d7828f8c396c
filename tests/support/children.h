/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Children of a test that forks while other threads run. */

#ifndef TESTS_SUPPORT_CHILDREN_H
#define TESTS_SUPPORT_CHILDREN_H

#include "sanitizers.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_IS_WELL = 42 };

/* Called first in the child, which is ended by a signal if it lasts longer.
 * The thread sanitizer has locks that it does not take before a fork, so that a
 * child which computes may wait for one of them forever: with it, only the fork
 * and the library's fork handlers are tested. */
static inline void child_begins(unsigned seconds)
{
    if (has_thread_sanitizer())
        _exit(CHILD_IS_WELL);
    signal(SIGALRM, SIG_DFL); /* Check installs a handler */
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
