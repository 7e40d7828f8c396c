/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of higher rooms that base calls.
 *
 * A room includes only rooms below it.  Where it must call one above it, it
 * declares a constant table; core/library.c fills in all of them. */

#ifndef CORE_BASE_UPCALLS_H
#define CORE_BASE_UPCALLS_H

#include "base/fork.h"
#include "base/settings.h"
#include "base/thread.h"

typedef void (*core__thread_end)(core__thread *self);

/* Lists end with NULL. */
struct core__base_upcalls {
    /* When a thread ends.  Those of the first list may call operators; those
     * of the second are called when the thread is no longer in the list of
     * threads. */
    const core__thread_end *thread_finish;
    const core__thread_end *thread_release;
    /* Locks that are held across a fork, in the order in which they are
     * taken; each is held only while no plugin and no user function runs. */
    void (*const *fork_locks)(core__fork at);
    /* Called in the child. */
    void (*const *fork_child)(void);
    /* Checks of settings' texts; NULL: none.  Called without locks. */
    core_status (*const *setting_checks)(const char *text);
    /* LIBCORE_NAN_CHECK: called before the first device, and when it is set. */
    void (*nan_check_set)(bool on);
    /* Frees the blocks that threads cache, of all devices. */
    void (*free_cached_blocks)(void);
};

extern const struct core__base_upcalls core__base_upcalls;

#endif
