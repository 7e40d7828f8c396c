/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dlpack.h: exchange of tensors with other libraries, without a copy.
 *
 * DLPack (https://dmlc.github.io/dlpack) is a struct in memory that describes a
 * tensor, with a function (the deleter) that the consumer calls when it no
 * longer uses the tensor.  The structs here have the layout of those in
 * DLPack's header but other names, so that a program can include both headers
 * and cast pointers between the types:
 *
 *     core_dlpack_managed       DLManagedTensorVersioned, version 1.x
 *     core_dlpack_unversioned   DLManagedTensor, before 1.0
 *
 * Dtypes.  f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, i16, i8, u8 and bool
 * (one byte), with one lane.  All others are UNSUPPORTED.
 *
 * Devices.  DLPack numbers the device types.  The numbers of libcore's types:
 *
 *     cpu 1       cuda 2      opencl 4    vulkan 7    metal 8     vpi 9
 *     rocm 10     oneapi 14   webgpu 15   hexagon 16  maia 17     trn 18
 *
 * Every other type is 12, the "extension device".  On import, host memory
 * pinned by CUDA (3) or ROCm (11) is cpu, and CUDA's managed memory (13) is
 * cuda.  If a device is not flat (backend.h), `data` is the plugin's handle and
 * byte_offset the offset in it.
 *
 * Streams.  The exporter makes the data ready for the stream that the consumer
 * names.  To import, pass the number from core_dlpack_stream to the exporter,
 * and then use the tensor on that stream.
 *
 * Every function here, and the deleter of an exported tensor, is
 * thread-safe. */

#ifndef LIBCORE_DLPACK_H
#define LIBCORE_DLPACK_H

#include "stream.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- layouts -- */

/* The version of DLPack that libcore exports. */
enum { CORE_DLPACK_MAJOR = 1, CORE_DLPACK_MINOR = 3 };

/* Device types. */
enum {
    CORE_DLPACK_CPU = 1,
    CORE_DLPACK_CUDA = 2,
    CORE_DLPACK_CUDA_HOST = 3,
    CORE_DLPACK_OPENCL = 4,
    CORE_DLPACK_VULKAN = 7,
    CORE_DLPACK_METAL = 8,
    CORE_DLPACK_VPI = 9,
    CORE_DLPACK_ROCM = 10,
    CORE_DLPACK_ROCM_HOST = 11,
    CORE_DLPACK_EXTENSION = 12,
    CORE_DLPACK_CUDA_MANAGED = 13,
    CORE_DLPACK_ONEAPI = 14,
    CORE_DLPACK_WEBGPU = 15,
    CORE_DLPACK_HEXAGON = 16,
    CORE_DLPACK_MAIA = 17,
    CORE_DLPACK_TRN = 18
};

/* Type codes of elements. */
enum {
    CORE_DLPACK_INT = 0,
    CORE_DLPACK_UINT = 1,
    CORE_DLPACK_FLOAT = 2,
    CORE_DLPACK_HANDLE = 3,
    CORE_DLPACK_BFLOAT = 4,
    CORE_DLPACK_COMPLEX = 5,
    CORE_DLPACK_BOOL = 6,
    CORE_DLPACK_FLOAT8_E4M3FN = 10, /* since DLPack 1.1 */
    CORE_DLPACK_FLOAT8_E5M2 = 12
};

/* DLDevice. */
typedef struct core_dlpack_device {
    int32_t type; /* CORE_DLPACK_CPU, … */
    int32_t index;
} core_dlpack_device;
CORE_STATIC_ASSERT(sizeof(core_dlpack_device) == 8, "DLDevice");

/* DLDataType. */
typedef struct core_dlpack_dtype {
    uint8_t code; /* CORE_DLPACK_INT, … */
    uint8_t bits;
    uint16_t lanes;
} core_dlpack_dtype;
CORE_STATIC_ASSERT(sizeof(core_dlpack_dtype) == 4, "DLDataType");

/* DLTensor. */
typedef struct core_dlpack_tensor {
    void *data;
    core_dlpack_device device;
    int32_t ndim;
    core_dlpack_dtype dtype;
    int64_t *shape;
    /* In elements.  NULL, in what is imported: row-major. */
    int64_t *strides;
    uint64_t byte_offset;
} core_dlpack_tensor;
CORE_STATIC_ASSERT(sizeof(core_dlpack_tensor) == 48, "DLTensor");

/* Flags of an exported tensor. */
enum {
    CORE_DLPACK_READ_ONLY = 1u << 0, /* the memory must not be written */
    CORE_DLPACK_COPIED = 1u << 1,    /* the memory is a copy */
    /* Each element of fewer than 8 bits has a byte of its own.  libcore has no
     * such dtype: it does not export the flag, and ignores it on import. */
    CORE_DLPACK_SUBBYTE_PADDED = 1u << 2
};

/* DLManagedTensorVersioned, version 1.x. */
typedef struct core_dlpack_managed {
    uint32_t major; /* if it differs: use only major, minor and deleter */
    uint32_t minor;
    void *manager_ctx;
    /* Ends the consumer's use of the tensor.  May be NULL. */
    void (*deleter)(struct core_dlpack_managed *self);
    uint64_t flags; /* CORE_DLPACK_… */
    core_dlpack_tensor tensor;
} core_dlpack_managed;
CORE_STATIC_ASSERT(sizeof(core_dlpack_managed) == 80,
                   "DLManagedTensorVersioned");

/* DLManagedTensor, before version 1.0. */
typedef struct core_dlpack_unversioned {
    core_dlpack_tensor tensor;
    void *manager_ctx;
    /* Ends the consumer's use of the tensor.  May be NULL. */
    void (*deleter)(struct core_dlpack_unversioned *self);
} core_dlpack_unversioned;
CORE_STATIC_ASSERT(sizeof(core_dlpack_unversioned) == 64, "DLManagedTensor");

/* -------------------------------------------------------------- export -- */

/* The argument `stream` of the export functions: the consumer's stream, as the
 * number that DLPack defines for its device:
 *
 *     CUDA                 1: the legacy default stream; 2: the default stream
 *                          of the thread; else a cudaStream_t.  0 is an error,
 *                          because it is ambiguous.
 *     ROCm                 0: the default stream; else a hipStream_t above 2.
 *     other devices        0: the device's default stream; else the native
 *                          handle (core_stream_native).
 *     synchronous devices  ignored.
 *
 * None in Python's protocol means the default stream. */
enum {
    /* The consumer synchronises itself; the export does not. */
    CORE_DLPACK_STREAM_NONE = -1
};

/* Exports a tensor to another library.  The consumer owns *out_managed, which
 * shares the storage, until it calls the deleter, once.  By then its work on
 * the memory must be complete, or ordered before later work of the stream on
 * which the tensor was created.
 *
 * flags: CORE_DLPACK_READ_ONLY is passed to the consumer; CORE_DLPACK_COPIED
 * exports a row-major copy.  The work enqueued so far on the calling thread's
 * current stream of the device runs before later work of the consumer's stream;
 * if the plugin cannot adopt that stream, this call waits instead.
 *
 * AUTOGRAD for a tensor that requires grad: detach it first.  UNSUPPORTED for a
 * tensor on "meta". */
core_status core_dlpack_export(core_tensor *tensor, uint64_t flags,
                               int64_t stream,
                               core_dlpack_managed **out_managed);

/* Does the same as core_dlpack_export with the older layout, which cannot
 * express CORE_DLPACK_READ_ONLY: REFUSED for that flag, and for a read-only
 * tensor without CORE_DLPACK_COPIED. */
core_status core_dlpack_export_unversioned(
    core_tensor *tensor, uint64_t flags, int64_t stream,
    core_dlpack_unversioned **out_managed);

/* -------------------------------------------------------------- import -- */

/* Gets the number of a stream to pass to an exporter.  stream NULL: the calling
 * thread's current stream of the device.  *out_stream is
 * CORE_DLPACK_STREAM_NONE for a synchronous device.  UNSUPPORTED if the plugin
 * does not provide native handles; let the exporter use its default stream and
 * synchronise then. */
core_status core_dlpack_stream(core_device *device, core_stream *stream,
                               int64_t *out_stream);

/* Creates a tensor on the memory that `managed` describes.  The caller owns one
 * reference.  The call takes ownership of `managed`, even if it fails: the
 * deleter is called once, by the thread that releases the last tensor on the
 * memory, after the device has completed its work on it; or before this call
 * returns, if it fails.
 *
 * device: where the memory is; NULL: the device of DLPack's number.  Required
 * for extension devices (12), of which there may be several.  stream: the
 * stream whose number was passed to the exporter; NULL: the current one.  The
 * current stream waits for it.  Both are ignored by synchronous devices.
 *
 * The bytes of a bool tensor must be 0 or 1; they are not checked.  Read-only
 * memory makes a read-only tensor: operators that would change it or its views
 * in place return REFUSED.
 *
 * INCOMPATIBLE: another major version.  UNSUPPORTED: the dtype, several lanes
 * or negative strides.  SHAPE: negative, too many or too large sizes.
 * INVALID_ARGUMENT: no data, or an address that is not a multiple of the
 * element size.  DEVICE, NOT_FOUND, NO_DEVICE: the device. */
core_status core_dlpack_import(core_dlpack_managed *managed,
                               core_device *device, core_stream *stream,
                               core_tensor **out_tensor);

/* Does the same as core_dlpack_import for the older layout, whose memory is
 * never read-only. */
core_status core_dlpack_import_unversioned(core_dlpack_unversioned *managed,
                                           core_device *device,
                                           core_stream *stream,
                                           core_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
