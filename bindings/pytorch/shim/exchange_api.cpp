/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* DLPack's table of C functions, which torch.Tensor offers to consumers.  torch's
 * own takes libcore's tensors for tensors of an extension device, and their
 * tokens for addresses; this one asks it for the tensors of other devices only. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "exchange.h"
#include "owned.h"

#include <memory>

#include <ATen/Context.h>
#include <ATen/DLConvertor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace libcore_torch
{

static const char *const TABLE = "dlpack_exchange_api";

/* torch's own. */
static const DLPackExchangeAPI *torchs;

/* ------------------------------------------------------------- devices -- */

/* Whether torch itself uses devices of a type.  Their tensors and streams are
 * torch's in this table. */
static bool is_of_torch(int32_t type)
{
    switch (type) {
    case CORE_DLPACK_CPU:
        return true;
    case CORE_DLPACK_CUDA:
    case CORE_DLPACK_CUDA_HOST:
    case CORE_DLPACK_CUDA_MANAGED:
    case CORE_DLPACK_ROCM:
    case CORE_DLPACK_ROCM_HOST:
        return at::hasCUDA() || at::hasHIP();
    case CORE_DLPACK_ONEAPI:
        return at::hasXPU();
    default:
        return false;
    }
}

/* DLPack's numbers of a device. */
static core_dlpack_device number_of(c10::DeviceIndex index)
{
    const int64_t size = 0;
    core_tensor *empty;
    core_dlpack_managed *managed;

    check(core_empty(&size, 1, CORE_U8, device_at(index),
                     CORE_FORMAT_CONTIGUOUS, &empty));
    Owned owned(empty);
    check(core_dlpack_export(empty, 0, CORE_DLPACK_STREAM_NONE, &managed));
    core_dlpack_device device = managed->tensor.device;
    managed->deleter(managed);
    return device;
}

/* Those of all devices, which do not change; type 0 if there are none. */
static const std::vector<core_dlpack_device> &numbers()
{
    static const std::vector<core_dlpack_device> known = [] {
        std::vector<core_dlpack_device> list;

        for (c10::DeviceIndex i = 0; i < device_count(); i++) {
            try {
                list.push_back(number_of(i));
            } catch (const std::exception &) { /* the others remain usable */
                list.push_back({});
            }
        }
        return list;
    }();

    return known;
}

/* The device of libcore that DLPack's numbers name, -1 if it is torch's own. */
static c10::DeviceIndex find(int32_t type, int32_t index)
{
    c10::DeviceIndex found = -1;

    if (is_of_torch(type))
        return -1;
    for (c10::DeviceIndex i = 0; i < device_count(); i++) {
        core_dlpack_device number = numbers()[static_cast<size_t>(i)];

        if (number.type == 0 || number.type != type || number.index != index)
            continue;
        TORCH_CHECK(found < 0, "libcore: DLPack's device (", type, ", ", index,
                    ") is libcore:", static_cast<int>(found),
                    " or libcore:", static_cast<int>(i),
                    "; use libcore_torch.from_dlpack with device=");
        found = i;
    }
    return found;
}

/* -------------------------------------------------------------- export -- */

static core_dlpack_managed *exported(const at::Tensor &tensor)
{
    core_dlpack_managed *managed;

    TORCH_CHECK(!tensor._is_zerotensor() && !tensor.is_conj() &&
                    !tensor.is_neg(),
                "libcore: DLPack has no tensors that are negated, conjugated "
                "or zeros without memory; copy the tensor first");
    Owned owned(import_tensor(tensor));
    check(
        core_dlpack_export(owned.get(), 0, CORE_DLPACK_STREAM_NONE, &managed));
    if (is_of_torch(managed->tensor.device.type) &&
        managed->tensor.device.type != CORE_DLPACK_CPU) {
        managed->deleter(managed);
        TORCH_CHECK(false, "libcore: a consumer of this table would use the "
                           "stream of torch's own device; use __dlpack__");
    }
    return managed;
}

static const at::Tensor *tensor_of_libcore(void *object)
{
    auto *python = static_cast<PyObject *>(object);

    if (!THPVariable_Check(python))
        return nullptr;
    const at::Tensor &tensor = THPVariable_Unpack(python);
    return tensor.device().type() == device_type ? &tensor : nullptr;
}

static int managed_from_object(void *object, DLManagedTensorVersioned **out)
{
    HANDLE_TH_ERRORS
    const at::Tensor *tensor = tensor_of_libcore(object);

    if (!tensor)
        return torchs->managed_tensor_from_py_object_no_sync(object, out);
    *out = reinterpret_cast<DLManagedTensorVersioned *>(exported(*tensor));
    return 0;
    END_HANDLE_TH_ERRORS_RET(-1)
}

/* Borrows the sizes and the memory from the object. */
static int tensor_from_object(void *object, DLTensor *out)
{
    HANDLE_TH_ERRORS
    const at::Tensor *tensor = tensor_of_libcore(object);
    core_dlpack_managed *managed;

    if (!tensor)
        return torchs->dltensor_from_py_object_no_sync(object, out);
    managed = exported(*tensor);
    if (managed->flags & CORE_DLPACK_READ_ONLY) {
        managed->deleter(managed);
        TORCH_CHECK(false,
                    "libcore: DLTensor cannot express that a tensor is "
                    "read-only; use the function for "
                    "DLManagedTensorVersioned, or copy the tensor first");
    }
    *out = *reinterpret_cast<DLTensor *>(&managed->tensor);
    managed->deleter(managed);
    out->shape = const_cast<int64_t *>(tensor->sizes().data());
    out->strides = const_cast<int64_t *>(tensor->strides().data());
    return 0;
    END_HANDLE_TH_ERRORS_RET(-1)
}

/* ------------------------------------------------ import and allocation -- */

/* The reference to the given tensor is stolen, also on failure. */
static int managed_to_object(DLManagedTensorVersioned *given, void **out)
{
    HANDLE_TH_ERRORS
    std::unique_ptr<DLManagedTensorVersioned,
                    void (*)(DLManagedTensorVersioned *)>
        owned(given, [](DLManagedTensorVersioned *unused) {
            if (unused->deleter)
                unused->deleter(unused);
        });
    auto *managed = reinterpret_cast<core_dlpack_managed *>(given);
    core_tensor *tensor;
    c10::DeviceIndex index =
        find(managed->tensor.device.type, managed->tensor.device.index);

    if (index < 0)
        return torchs->managed_tensor_to_py_object_no_sync(owned.release(),
                                                           out);
    core_device *device = device_at(index);
    owned.release(); /* the call takes it, also on failure */
    check(core_dlpack_import(managed, device, nullptr, &tensor));
    *out = THPVariable_Wrap(export_tensor(tensor));
    return *out ? 0 : -1;
    END_HANDLE_TH_ERRORS_RET(-1)
}

/* Called without Python's lock, too. */
static int allocate(DLTensor *prototype, DLManagedTensorVersioned **out,
                    void *context,
                    void (*set_error)(void *, const char *, const char *))
{
    try {
        c10::DeviceIndex index =
            find(prototype->device.device_type, prototype->device.device_id);

        if (index < 0)
            return torchs->managed_tensor_allocator(prototype, out, context,
                                                    set_error);
        at::Tensor made =
            empty(c10::IntArrayRef(prototype->shape,
                                   static_cast<size_t>(prototype->ndim)),
                  at::toScalarType(prototype->dtype),
                  c10::Device(device_type, index));
        *out = reinterpret_cast<DLManagedTensorVersioned *>(exported(made));
        return 0;
    } catch (const c10::Error &error) {
        set_error(context, "RuntimeError", error.what_without_backtrace());
    } catch (const std::exception &error) {
        set_error(context, "RuntimeError", error.what());
    }
    return -1;
}

/* The native handle of the current stream, NULL where there are no streams. */
static int current_stream(DLDeviceType type, int32_t device, void **out)
{
    HANDLE_TH_ERRORS
    int64_t number;
    c10::DeviceIndex index = find(type, device);

    if (index < 0)
        return torchs->current_work_stream(type, device, out);
    *out = nullptr;
    core_status status = core_dlpack_stream(device_at(index), nullptr, &number);
    if (status == CORE_ERROR_UNSUPPORTED)
        return 0;
    check(status);
    if (number != CORE_DLPACK_STREAM_NONE)
        *out = reinterpret_cast<void *>(static_cast<intptr_t>(number));
    return 0;
    END_HANDLE_TH_ERRORS_RET(-1)
}

/* --------------------------------------------------------------- table -- */

static DLPackExchangeAPI table = {
    {},
    allocate,
    managed_from_object,
    managed_to_object,
    tensor_from_object,
    current_stream,
};

PyObject *exchange_api(PyObject *, PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, TABLE))
        return Py_NewRef(capsule);
    auto *given = static_cast<const DLPackExchangeAPI *>(
        PyCapsule_GetPointer(capsule, TABLE));

    if (given != &table) {
        torchs = given;
        table.header = given->header;
        /* Tables of earlier versions take tokens for addresses, too. */
        table.header.prev_api = nullptr;
    }
    return PyCapsule_New(&table, TABLE, nullptr);
}

} // namespace libcore_torch
