/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A child has only the thread that forked: what another one had locked would stay
 * locked there. */

#include "fork.h"

#include <pthread.h>

namespace libcore_torch
{

/* Changed while the shim is loaded only.  Zero before any constructor runs. */
static ForkMutex *all;

static void before_fork()
{
    for (ForkMutex *one = all; one; one = one->next)
        one->lock();
}

static void after_fork()
{
    for (ForkMutex *one = all; one; one = one->next)
        one->unlock();
}

ForkMutex::ForkMutex() noexcept : next(all)
{
    if (!all)
        pthread_atfork(before_fork, after_fork, after_fork);
    all = this;
}

} // namespace libcore_torch
