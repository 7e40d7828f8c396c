/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What Python calls for torch.distributed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "group.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace libcore_torch
{

PyObject *process_group(PyObject *, PyObject *arguments)
{
    HANDLE_TH_ERRORS
    const char *engine, *store, *host;
    PyObject *board;
    double timeout;
    int rank, size;

    if (!PyArg_ParseTuple(arguments, "iidsssO", &rank, &size, &timeout, &engine,
                          &store, &host, &board))
        return nullptr;
    auto group = c10::make_intrusive<Group>(
        rank, size,
        std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000)),
        Meeting{engine, store, host,
                py::cast<c10::intrusive_ptr<c10d::Store>>(py::handle(board))});
    return py::cast(c10::intrusive_ptr<c10d::Backend>(std::move(group)))
        .release()
        .ptr();
    END_HANDLE_TH_ERRORS
}

PyObject *drop_batch(PyObject *, PyObject *backend)
{
    HANDLE_TH_ERRORS
    auto given =
        py::cast<c10::intrusive_ptr<c10d::Backend>>(py::handle(backend));

    if (auto *group = dynamic_cast<Group *>(given.get()))
        group->dropBatch();
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

enum { TEXT_SIZE = 256 };

/* Of a communicator of all processes that the launcher has started.  libcore
 * owns the bytes, to which an engine may write after an error. */
static void share(const char *engine, char *text)
{
    const int64_t size = TEXT_SIZE;
    core_comm_options options = {};
    core_device *cpu;
    core_tensor *bytes = nullptr;
    core_comm *comm = nullptr;
    core_status status;

    options.struct_size = sizeof options;
    options.engine = engine;
    check(core_device_find("cpu", &cpu));
    status = core_comm_create(cpu, &options, &comm);
    if (status == CORE_OK)
        status = core_tensor_from_data(text, CORE_U8, &size, 1, cpu, &bytes);
    if (status == CORE_OK)
        status = core_broadcast(comm, bytes, 0);
    if (status == CORE_OK)
        status = core_tensor_read(bytes, text, TEXT_SIZE);
    core_tensor_release(bytes);
    core_comm_release(comm);
    check(status);
}

PyObject *share_text(PyObject *, PyObject *arguments)
{
    HANDLE_TH_ERRORS
    const char *given, *engine;
    char text[TEXT_SIZE] = "";

    if (!PyArg_ParseTuple(arguments, "ss", &given, &engine))
        return nullptr;
    TORCH_CHECK_VALUE(std::strlen(given) < sizeof text, "libcore: \"", given,
                      "\" has more than ", sizeof text - 1, " bytes");
    std::strcpy(text, given);
    {
        py::gil_scoped_release other_threads;

        share(engine, text);
    }
    return PyUnicode_FromString(text);
    END_HANDLE_TH_ERRORS
}

} // namespace libcore_torch
