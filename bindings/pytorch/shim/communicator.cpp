/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Communicators: errors and end. */

#include <Python.h>

#include "communicator.h"
#include "shim.h"

#include <unistd.h>

namespace libcore_torch
{

/* Other Python threads run meanwhile. */
struct WithoutGil {
    ~WithoutGil()
    {
        if (state)
            PyEval_RestoreThread(state);
    }

    PyThreadState *state = Py_IsInitialized() && PyGILState_Check()
                               ? PyEval_SaveThread()
                               : nullptr;
};

Communicator::Communicator(core_comm *comm) : comm_(comm), process_(getpid()) {}

Communicator::~Communicator()
{
    WithoutGil other_threads;

    core_comm_release(comm_);
}

bool Communicator::failed() const
{
    return core_comm_error(comm_) != CORE_OK;
}

void Communicator::check_error()
{
    core_status status = core_comm_error(comm_);

    if (status != CORE_OK)
        told_ = true;
    check(status);
}

void Communicator::tell()
{
    if (failed())
        told_ = true;
}

void Communicator::finish()
{
    WithoutGil other_threads;

    if (process_ != getpid()) /* a child cannot use it */
        return;
    core_status status = core_comm_synchronize(comm_);

    if (!told_.exchange(true))
        check(status);
}

} // namespace libcore_torch
