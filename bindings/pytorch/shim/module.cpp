/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The extension module: what Python calls. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "activities.h"
#include "exchange.h"
#include "group.h"
#include "profiler.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

namespace libcore_torch
{

static PyObject *start(PyObject *, PyObject *)
{
    HANDLE_TH_ERRORS
    static bool started; /* the package may be imported again */

    if (started)
        Py_RETURN_NONE;
    open_devices();
    register_allocator();
    register_hooks();
    register_profiler();
    register_activities();
    register_operators();
    for (c10::DeviceIndex i = 0; i < device_count(); i++)
        default_generator(i);
    started = true;
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

static PyObject *count(PyObject *, PyObject *)
{
    return PyLong_FromLong(device_count());
}

/* The name and the description of a device. */
static PyObject *describe(PyObject *, PyObject *index)
{
    HANDLE_TH_ERRORS
    core_device *device = device_at(index_argument(index));
    core_device_information information = {};

    information.struct_size = sizeof information;
    check(core_device_get_information(device, &information));
    return Py_BuildValue("(sss#)", core_device_name(device),
                         core_device_type(device), information.name.data,
                         static_cast<Py_ssize_t>(information.name.size));
    END_HANDLE_TH_ERRORS
}

/* Why libcore finds no device of a name, or None if it does. */
static PyObject *device_error(PyObject *, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    core_device *device;

    if (!text)
        return nullptr;
    if (core_device_find(text, &device) == CORE_OK)
        Py_RETURN_NONE;
    PyObject *message = PyUnicode_FromString(core_error_message());
    core_error_clear();
    return message;
}

static PyObject *get_device(PyObject *, PyObject *)
{
    return PyLong_FromLong(current_index());
}

static PyObject *set_device(PyObject *, PyObject *index)
{
    HANDLE_TH_ERRORS
    set_current_index(index_argument(index));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

static PyObject *synchronize(PyObject *, PyObject *index)
{
    HANDLE_TH_ERRORS
    core_device *device = device_at(index_argument(index));
    core_status status;

    Py_BEGIN_ALLOW_THREADS status = core_device_synchronize(device);
    Py_END_ALLOW_THREADS check(status);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

static PyObject *seed(PyObject *, PyObject *number)
{
    HANDLE_TH_ERRORS
    unsigned long long value = PyLong_AsUnsignedLongLongMask(number);

    if (PyErr_Occurred())
        return nullptr;
    seed_all(value);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

static PyObject *generator(PyObject *, PyObject *index)
{
    HANDLE_TH_ERRORS
    return THPGenerator_Wrap(default_generator(index_argument(index)));
    END_HANDLE_TH_ERRORS
}

static PyObject *fallbacks(PyObject *, PyObject *)
{
    PyObject *result = PyDict_New();

    for (const auto &entry : fallback_counts()) {
        PyObject *number =
            result ? PyLong_FromUnsignedLongLong(entry.second) : nullptr;

        if (!number ||
            PyDict_SetItemString(result, entry.first.c_str(), number) < 0) {
            Py_XDECREF(number);
            Py_XDECREF(result);
            return nullptr;
        }
        Py_DECREF(number);
    }
    return result;
}

static PyObject *reset_fallbacks(PyObject *, PyObject *)
{
    reset_fallback_counts();
    Py_RETURN_NONE;
}

static PyObject *permit_fallback(PyObject *, PyObject *permitted)
{
    int truth = PyObject_IsTrue(permitted);

    if (truth < 0)
        return nullptr;
    allow_fallback(truth);
    Py_RETURN_NONE;
}

static PyObject *operators(PyObject *, PyObject *)
{
    PyObject *list = PyList_New(0);

    for (const std::string &name : registered_operators()) {
        PyObject *text = list ? PyUnicode_FromString(name.c_str()) : nullptr;

        if (!text || PyList_Append(list, text) < 0) {
            Py_XDECREF(text);
            Py_XDECREF(list);
            return nullptr;
        }
        Py_DECREF(text);
    }
    return list;
}

static PyObject *version(PyObject *, PyObject *)
{
    return PyUnicode_FromString(core_version());
}

static PyMethodDef methods[] = {
    {"start", start, METH_NOARGS, nullptr},
    {"device_count", count, METH_NOARGS, nullptr},
    {"describe", describe, METH_O, nullptr},
    {"device_error", device_error, METH_O, nullptr},
    {"current_device", get_device, METH_NOARGS, nullptr},
    {"set_device", set_device, METH_O, nullptr},
    {"synchronize", synchronize, METH_O, nullptr},
    {"manual_seed_all", seed, METH_O, nullptr},
    {"default_generator", generator, METH_O, nullptr},
    {"fallbacks", fallbacks, METH_NOARGS, nullptr},
    {"reset_fallbacks", reset_fallbacks, METH_NOARGS, nullptr},
    {"allow_fallback", permit_fallback, METH_O, nullptr},
    {"operators", operators, METH_NOARGS, nullptr},
    {"version", version, METH_NOARGS, nullptr},
    {"export_dlpack", export_dlpack, METH_VARARGS, nullptr},
    {"dlpack_device", dlpack_device, METH_O, nullptr},
    {"is_read_only", is_read_only, METH_O, nullptr},
    {"capsule_device", capsule_device, METH_O, nullptr},
    {"dlpack_stream", dlpack_stream, METH_O, nullptr},
    {"import_dlpack", import_dlpack, METH_VARARGS, nullptr},
    {"exchange_api", exchange_api, METH_O, nullptr},
    {"buffer", buffer, METH_O, nullptr},
    {"process_group", process_group, METH_VARARGS, nullptr},
    {"drop_batch", drop_batch, METH_O, nullptr},
    {"share_text", share_text, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "libcore_torch._shim",
    nullptr,
    -1,
    methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

} // namespace libcore_torch

extern "C" __attribute__((visibility("default"))) PyObject *PyInit__shim(void)
{
    return PyModule_Create(&libcore_torch::definition);
}
