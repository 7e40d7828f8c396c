/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* DLPack capsules, and Python's buffer protocol for memory that the host can
 * access: tensors are shared with other libraries, not copied. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "exchange.h"
#include "owned.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace libcore_torch
{

c10::DeviceIndex index_argument(PyObject *object)
{
    long index = PyLong_AsLong(object);

    if (index == -1 && PyErr_Occurred())
        throw python_error();
    TORCH_CHECK(index >= -1 && index < device_count(), "libcore:", index,
                ": there are ", static_cast<int>(device_count()),
                " devices; libcore_torch.devices() lists them");
    return static_cast<c10::DeviceIndex>(index);
}

static const at::Tensor &tensor_argument(PyObject *object)
{
    TORCH_CHECK_TYPE(THPVariable_Check(object), "libcore: expected a tensor");
    const at::Tensor &tensor = THPVariable_Unpack(object);

    TORCH_CHECK_VALUE(tensor.device().type() == device_type,
                      "libcore: expected a tensor on ", device_type,
                      ", found one on ", tensor.device(),
                      "; copy it to a device with to()");
    TORCH_CHECK_VALUE(!tensor._is_zerotensor(),
                      "libcore: the tensor is one of torch's zeros without "
                      "memory; pass torch.zeros with its sizes instead");
    return tensor;
}

/* ------------------------------------------------------ DLPack, export -- */

static const char *const VERSIONED = "dltensor_versioned";
static const char *const UNVERSIONED = "dltensor";

/* A consumer renames the capsules that it takes. */
static void end_versioned(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, VERSIONED))
        return;
    auto *managed = static_cast<core_dlpack_managed *>(
        PyCapsule_GetPointer(capsule, VERSIONED));
    managed->deleter(managed);
}

static void end_unversioned(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, UNVERSIONED))
        return;
    auto *managed = static_cast<core_dlpack_unversioned *>(
        PyCapsule_GetPointer(capsule, UNVERSIONED));
    managed->deleter(managed);
}

static PyObject *capsule_of(core_dlpack_managed *managed)
{
    PyObject *capsule = PyCapsule_New(managed, VERSIONED, end_versioned);

    if (!capsule)
        managed->deleter(managed);
    return capsule;
}

static PyObject *capsule_of(core_dlpack_unversioned *managed)
{
    PyObject *capsule = PyCapsule_New(managed, UNVERSIONED, end_unversioned);

    if (!capsule)
        managed->deleter(managed);
    return capsule;
}

/* export_dlpack(tensor, stream, versioned, copied) */
PyObject *export_dlpack(PyObject *, PyObject *arguments)
{
    HANDLE_TH_ERRORS
    PyObject *object;
    long long stream;
    int versioned, copied;
    core_dlpack_managed *managed;
    core_dlpack_unversioned *unversioned;

    if (!PyArg_ParseTuple(arguments, "OLpp", &object, &stream, &versioned,
                          &copied))
        return nullptr;
    Owned tensor(import_tensor(tensor_argument(object)));
    uint64_t flags = copied ? CORE_DLPACK_COPIED : 0;
    if (!versioned) {
        check(core_dlpack_export_unversioned(tensor.get(), flags, stream,
                                             &unversioned));
        return capsule_of(unversioned);
    }
    check(core_dlpack_export(tensor.get(), flags, stream, &managed));
    return capsule_of(managed);
    END_HANDLE_TH_ERRORS
}

/* The number of DLPack for the device of a tensor: (type, index). */
PyObject *dlpack_device(PyObject *, PyObject *object)
{
    HANDLE_TH_ERRORS
    const at::Tensor &tensor = tensor_argument(object);
    int64_t size = 0;
    core_tensor *empty;
    core_dlpack_managed *managed;

    check(core_empty(&size, 1, CORE_U8, device_at(tensor.device().index()),
                     CORE_FORMAT_CONTIGUOUS, &empty));
    Owned owned(empty);
    check(core_dlpack_export(empty, 0, CORE_DLPACK_STREAM_NONE, &managed));
    core_dlpack_device device = managed->tensor.device;
    managed->deleter(managed);
    return Py_BuildValue("(ii)", device.type, device.index);
    END_HANDLE_TH_ERRORS
}

/* Whether the memory of a tensor must not be written. */
PyObject *is_read_only(PyObject *, PyObject *object)
{
    HANDLE_TH_ERRORS
    Owned tensor(import_tensor(tensor_argument(object)));

    return PyBool_FromLong(core_tensor_is_read_only(tensor.get()));
    END_HANDLE_TH_ERRORS
}

/* ------------------------------------------------------ DLPack, import -- */

/* The device of the memory in a capsule, (type, index), or None if it is no
 * capsule, or is used. */
PyObject *capsule_device(PyObject *, PyObject *capsule)
{
    core_dlpack_device device;

    if (PyCapsule_IsValid(capsule, VERSIONED))
        device = static_cast<core_dlpack_managed *>(
                     PyCapsule_GetPointer(capsule, VERSIONED))
                     ->tensor.device;
    else if (PyCapsule_IsValid(capsule, UNVERSIONED))
        device = static_cast<core_dlpack_unversioned *>(
                     PyCapsule_GetPointer(capsule, UNVERSIONED))
                     ->tensor.device;
    else
        Py_RETURN_NONE;
    return Py_BuildValue("(ii)", device.type, device.index);
}

/* The number of the current stream of a device that an exporter is given, or
 * None if its plugin has none. */
PyObject *dlpack_stream(PyObject *, PyObject *index)
{
    HANDLE_TH_ERRORS
    int64_t stream;

    core_device *device = device_at(index_argument(index));
    core_status status = core_dlpack_stream(device, nullptr, &stream);
    if (status == CORE_ERROR_UNSUPPORTED ||
        (status == CORE_OK && stream == CORE_DLPACK_STREAM_NONE))
        Py_RETURN_NONE;
    check(status);
    return PyLong_FromLongLong(stream);
    END_HANDLE_TH_ERRORS
}

static core_status import_capsule(PyObject *capsule, core_device *device,
                                  core_tensor **tensor)
{
    core_status status;

    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        auto *managed = static_cast<core_dlpack_managed *>(
            PyCapsule_GetPointer(capsule, VERSIONED));

        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        status = core_dlpack_import(managed, device, nullptr, tensor);
    } else {
        TORCH_CHECK_VALUE(PyCapsule_IsValid(capsule, UNVERSIONED),
                          "libcore: expected a DLPack capsule that is not used "
                          "yet");
        auto *managed = static_cast<core_dlpack_unversioned *>(
            PyCapsule_GetPointer(capsule, UNVERSIONED));

        PyCapsule_SetName(capsule, "used_dltensor");
        status =
            core_dlpack_import_unversioned(managed, device, nullptr, tensor);
    }
    return status;
}

/* import_dlpack(capsule, index) */
PyObject *import_dlpack(PyObject *, PyObject *arguments)
{
    HANDLE_TH_ERRORS
    PyObject *capsule, *index;
    core_tensor *tensor;

    if (!PyArg_ParseTuple(arguments, "OO", &capsule, &index))
        return nullptr;
    check(import_capsule(capsule, device_at(index_argument(index)), &tensor));
    return THPVariable_Wrap(export_tensor(tensor));
    END_HANDLE_TH_ERRORS
}

/* -------------------------------------------------------------- buffer -- */

/* An object with the buffer protocol, which keeps the memory. */
struct BufferObject {
    PyObject_HEAD core_tensor *tensor;
    Py_ssize_t *sizes; /* and strides in bytes */
};

static const char *format_of(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return "d";
    case CORE_F32:
        return "f";
    case CORE_F16:
        return "e";
    case CORE_I64:
        return "q";
    case CORE_I32:
        return "i";
    case CORE_I16:
        return "h";
    case CORE_I8:
        return "b";
    case CORE_U8:
        return "B";
    case CORE_BOOL:
        return "?";
    default:
        return nullptr;
    }
}

static void fill_view(Py_buffer *view, BufferObject *self, void *data)
{
    core_tensor *tensor = self->tensor;
    core_dtype dtype = core_tensor_dtype(tensor);

    view->buf = data;
    view->itemsize = static_cast<Py_ssize_t>(core_dtype_size(dtype));
    view->len = core_tensor_numel(tensor) * view->itemsize;
    view->readonly = core_tensor_is_read_only(tensor);
    view->format = const_cast<char *>(format_of(dtype));
    view->ndim = static_cast<int>(core_tensor_ndim(tensor));
    view->shape = self->sizes;
    view->strides = self->sizes + view->ndim;
    view->suboffsets = nullptr;
    view->internal = nullptr;
}

static bool wants(int flags, int request)
{
    return (flags & request) == request;
}

/* Why the request cannot be served, or NULL. */
static const char *refusal(const Py_buffer *view, int flags)
{
    if (wants(flags, PyBUF_WRITABLE) && view->readonly)
        return "libcore: the tensor is read-only";
    if ((!wants(flags, PyBUF_STRIDES) || wants(flags, PyBUF_C_CONTIGUOUS)) &&
        !PyBuffer_IsContiguous(view, 'C'))
        return "libcore: the tensor is not contiguous; copy it with "
               "contiguous()";
    if (wants(flags, PyBUF_F_CONTIGUOUS) && !PyBuffer_IsContiguous(view, 'F'))
        return "libcore: the tensor is not contiguous in Fortran's order";
    if (wants(flags, PyBUF_ANY_CONTIGUOUS) && !PyBuffer_IsContiguous(view, 'A'))
        return "libcore: the tensor is not contiguous in any order; copy it "
               "with contiguous()";
    return nullptr;
}

static void omit_unwanted(Py_buffer *view, int flags)
{
    if (!wants(flags, PyBUF_FORMAT))
        view->format = nullptr;
    if (!wants(flags, PyBUF_ND))
        view->shape = nullptr;
    if (!wants(flags, PyBUF_STRIDES))
        view->strides = nullptr;
}

static int get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    auto *self = reinterpret_cast<BufferObject *>(object);
    void *data = nullptr;

    const char *reason;

    view->obj = nullptr;
    if (core_tensor_data(self->tensor, &data) != CORE_OK) {
        PyErr_SetString(PyExc_BufferError, core_error_message());
        return -1;
    }
    fill_view(view, self, data);
    reason = refusal(view, flags);
    if (reason) {
        PyErr_SetString(PyExc_BufferError, reason);
        return -1;
    }
    omit_unwanted(view, flags);
    view->obj = Py_NewRef(object);
    return 0;
}

static void end_buffer(PyObject *object)
{
    auto *self = reinterpret_cast<BufferObject *>(object);
    PyTypeObject *type = Py_TYPE(object);

    core_tensor_release(self->tensor);
    delete[] self->sizes;
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(end_buffer)},
    {Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer)},
    {0, nullptr},
};

static PyType_Spec buffer_spec = {
    "libcore_torch.Buffer",
    sizeof(BufferObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    buffer_slots,
};

static PyObject *buffer_of(Owned tensor)
{
    static PyObject *type = PyType_FromSpec(&buffer_spec);
    size_t ndim = core_tensor_ndim(tensor.get());
    size_t item = core_dtype_size(core_tensor_dtype(tensor.get()));

    if (!type)
        return nullptr;
    auto sizes = std::make_unique<Py_ssize_t[]>(2 * ndim + 1);
    for (size_t i = 0; i < ndim; i++) {
        sizes[i] = core_tensor_sizes(tensor.get())[i];
        sizes[ndim + i] = core_tensor_strides(tensor.get())[i] *
                          static_cast<Py_ssize_t>(item);
    }
    auto *self =
        PyObject_New(BufferObject, reinterpret_cast<PyTypeObject *>(type));
    if (!self)
        return nullptr;
    self->tensor = tensor.release();
    self->sizes = sizes.release();
    return reinterpret_cast<PyObject *>(self);
}

PyObject *buffer(PyObject *, PyObject *object)
{
    HANDLE_TH_ERRORS
    const at::Tensor &tensor = tensor_argument(object);
    uint32_t kinds;

    TORCH_CHECK_VALUE(!tensor.requires_grad(),
                      "libcore_torch.buffer: the tensor requires a gradient, "
                      "which would not notice changes; pass detach()");
    TORCH_CHECK_VALUE(!tensor.is_neg() && !tensor.is_conj(),
                      "libcore_torch.buffer: the tensor is a negated or "
                      "conjugated view; copy it with resolve_neg or "
                      "resolve_conj");
    check(core_device_memory_kinds(device_at(tensor.device().index()), &kinds));
    TORCH_CHECK_VALUE(kinds & CORE_MEMORY_HOST_VISIBLE,
                      "libcore_torch.buffer: the host cannot access the memory "
                      "of ",
                      tensor.device(), "; copy the tensor with cpu()");
    TORCH_CHECK_TYPE(format_of(dtype_of(tensor.scalar_type())),
                     "libcore_torch.buffer: Python's buffers do not have the "
                     "dtype ",
                     tensor.scalar_type());
    return buffer_of(Owned(import_tensor(tensor)));
    END_HANDLE_TH_ERRORS
}

} // namespace libcore_torch
