/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that base calls.
 *
 * A folder includes only the folders before it.  If it must call a later one,
 * it declares a constant table of functions; core/library.c fills in all of
 * them. */

#ifndef CORE_BASE_UPCALLS_H
#define CORE_BASE_UPCALLS_H

#include "base/fork.h"
#include "base/settings.h"
#include "base/thread.h"

typedef void (*core__thread_end_hook)(core__thread *self);

/* Lists end with NULL. */
struct core__base_upcalls {
    /* Called when a thread ends.  Functions in the first list may call
     * operators; those in the second run after the thread has left the list of
     * threads. */
    const core__thread_end_hook *thread_finish;
    const core__thread_end_hook *thread_release;
    /* Handlers of the locks that are held across a fork, in the order in which
     * they are taken.  No plugin and no user function runs while one is
     * held. */
    void (*const *fork_locks)(core__fork_phase at);
    /* Called in the child. */
    void (*const *fork_child)(void);
    /* Checks of settings' texts, NULL where there is none.  Called without
     * locks. */
    core_status (*const *setting_checks)(const char *text);
    /* For LIBCORE_NAN_CHECK: called before the first device is opened, and
     * when the setting changes. */
    void (*nan_check_set)(bool on);
    /* core__thread_cut and core__thread_cut_later, for a thread with a lazy
     * region that records. */
    core_status (*lazy_cut)(core__thread *self, const char *name);
    void (*lazy_cut_later)(core__thread *self, const char *name);
    /* Frees the blocks that threads cache, on all devices. */
    void (*free_cached_blocks)(void);
};

extern const struct core__base_upcalls core__base_upcalls;

#endif
