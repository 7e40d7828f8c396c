/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fork.h: mutexes that a forked child can use. */

#ifndef BINDINGS_PYTORCH_FORK_H
#define BINDINGS_PYTORCH_FORK_H

#include <mutex>

namespace libcore_torch
{

/* A static mutex that no other thread holds while the process is forked.  While it
 * is held, no other one may be taken, and libcore not be called if that takes
 * locks: all are taken before a fork. */
class ForkMutex
{
  public:
    ForkMutex() noexcept;
    ForkMutex(const ForkMutex &) = delete;
    ForkMutex &operator=(const ForkMutex &) = delete;

    void lock()
    {
        mutex_.lock();
    }

    void unlock()
    {
        mutex_.unlock();
    }

    ForkMutex *next;

  private:
    std::mutex mutex_;
};

} // namespace libcore_torch

#endif
