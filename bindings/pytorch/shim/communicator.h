/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* communicator.h: a communicator that a process group, its works and running
 * calls share. */

#ifndef BINDINGS_PYTORCH_COMMUNICATOR_H
#define BINDINGS_PYTORCH_COMMUNICATOR_H

#include <libcore/comm.h>

#include <sys/types.h>

#include <atomic>
#include <memory>

namespace libcore_torch
{

class Communicator
{
  public:
    /* Takes the caller's reference. */
    explicit Communicator(core_comm *comm);
    /* Waits for what was enqueued, without the GIL. */
    ~Communicator();
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;

    core_comm *get() const
    {
        return comm_;
    }

    /* Whether it has failed.  Does not wait. */
    bool failed() const;
    /* Throws the error with which it failed, if any.  Does not wait. */
    void check_error();
    /* An exception of a call, which may be that error, reaches the caller. */
    void tell();
    /* Waits, and throws the error if it has not been thrown before. */
    void finish();

  private:
    core_comm *comm_;
    pid_t process_;
    std::atomic<bool> told_{false};
};

using Shared = std::shared_ptr<Communicator>;

} // namespace libcore_torch

#endif
