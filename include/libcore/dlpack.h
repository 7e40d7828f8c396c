/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dlpack.h: tensors to and from other libraries, without a copy.
 *
 * DLPack (https://dmlc.github.io/dlpack) is a struct in memory that describes a
 * tensor, with a function that ends its use.  The structs here have the layout
 * of those in its header, under names of our own, so that a program may include
 * both; it casts the pointer between them:
 *
 *     core_dlpack_managed       DLManagedTensorVersioned, version 1.x
 *     core_dlpack_unversioned   DLManagedTensor, before 1.0
 *
 * Types.  f64 f32 f16 bf16, i64 i32 i16 i8, u8 and bool (one byte), one lane.
 * Everything else is UNSUPPORTED.
 *
 * Devices.  DLPack has a number for each kind; libcore's type names go with
 * them so:
 *
 *     cpu 1       cuda 2      opencl 4    vulkan 7    metal 8     vpi 9
 *     rocm 10     oneapi 14   webgpu 15   hexagon 16  maia 17     trn 18
 *
 * and every other type is 12, the "extension device".  On import, host memory
 * that CUDA (3) or ROCm (11) has pinned is cpu, and CUDA's managed memory (13)
 * is cuda.  Where a device is not flat (backend.h), `data` is the plugin's
 * handle and byte_offset the place in it.
 *
 * Streams.  Who exports makes the data ready for the stream that the other side
 * names; who imports names the stream to the exporter beforehand
 * (core_dlpack_stream) and then works on it.
 *
 * Any thread may call everything here, and the deleters of what libcore
 * exports. */

#ifndef LIBCORE_DLPACK_H
#define LIBCORE_DLPACK_H

#include "stream.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- layouts -- */

enum { CORE_DLPACK_MAJOR = 1, CORE_DLPACK_MINOR = 1 };

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

/* Kinds of elements. */
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

typedef struct core_dlpack_device {
    int32_t type; /* CORE_DLPACK_CPU, … */
    int32_t index;
} core_dlpack_device;
CORE_STATIC_ASSERT(sizeof(core_dlpack_device) == 8, "DLDevice");

typedef struct core_dlpack_dtype {
    uint8_t code; /* CORE_DLPACK_INT, … */
    uint8_t bits;
    uint16_t lanes;
} core_dlpack_dtype;
CORE_STATIC_ASSERT(sizeof(core_dlpack_dtype) == 4, "DLDataType");

typedef struct core_dlpack_tensor {
    void *data;
    core_dlpack_device device;
    int32_t ndim;
    core_dlpack_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} core_dlpack_tensor;
CORE_STATIC_ASSERT(sizeof(core_dlpack_tensor) == 48, "DLTensor");

enum {
    CORE_DLPACK_READ_ONLY = 1u << 0, /* nobody may write to it */
    CORE_DLPACK_COPIED = 1u << 1     /* a copy was made for the consumer */
};

typedef struct core_dlpack_managed {
    uint32_t major; /* another one: only these two and deleter are known */
    uint32_t minor;
    void *manager_ctx;
    void (*deleter)(struct core_dlpack_managed *self); /* may be NULL */
    uint64_t flags;                                    /* CORE_DLPACK_… */
    core_dlpack_tensor tensor;
} core_dlpack_managed;
CORE_STATIC_ASSERT(sizeof(core_dlpack_managed) == 80,
                   "DLManagedTensorVersioned");

typedef struct core_dlpack_unversioned {
    core_dlpack_tensor tensor;
    void *manager_ctx;
    void (*deleter)(struct core_dlpack_unversioned *self); /* may be NULL */
} core_dlpack_unversioned;
CORE_STATIC_ASSERT(sizeof(core_dlpack_unversioned) == 64, "DLManagedTensor");

/* -------------------------------------------------------------- export -- */

/* `stream` of the exports: the consumer's, as a number that its vendor gives
 * to it. */
enum {
    /* The consumer does its own synchronisation: nothing is waited for. */
    CORE_DLPACK_STREAM_NONE = -1
    /* CUDA: 1 the legacy default stream, 2 the thread's default one, else a
     * cudaStream_t; 0 is refused, as it may mean either.  ROCm: 0 the default
     * stream, else a hipStream_t above 2.  Other devices with streams: 0 the
     * device's default stream, else the native handle (core_stream_native).
     * Devices without: not looked at.  What Python's protocol calls None is the
     * default stream. */
};

/* Describes tensor for another library; it shares the storage until it calls
 * deleter, once; its work on the memory is done by then, or ordered before
 * later work of the stream that the tensor was made on.  flags: READ_ONLY says
 * so to the consumer; COPIED exports a row-major copy instead.  Work given so
 * far to this thread's current stream of the device comes before later work of
 * the consumer's stream; where the plugin cannot adopt that, this call waits.
 *
 * Refused: a tensor that requires grad (AUTOGRAD: detach it), one on meta
 * (UNSUPPORTED). */
core_status core_dlpack_export(core_tensor *tensor, uint64_t flags,
                               int64_t stream,
                               core_dlpack_managed **out_managed);
/* The same in the older layout, which cannot say READ_ONLY: refused for a
 * tensor that is. */
core_status core_dlpack_export_unversioned(
    core_tensor *tensor, uint64_t flags, int64_t stream,
    core_dlpack_unversioned **out_managed);

/* -------------------------------------------------------------- import -- */

/* The number to give to an exporter, for a stream of the device; NULL: this
 * thread's current one.  CORE_DLPACK_STREAM_NONE for a synchronous device;
 * UNSUPPORTED where the plugin does not tell its handles: then let the exporter
 * use its default and synchronize. */
core_status core_dlpack_stream(core_device *device, core_stream *stream,
                               int64_t *out_stream);

/* A tensor on the memory that managed describes.  managed is libcore's from
 * here on: its deleter is called once, when the last tensor on the memory is
 * released, by the thread that does it and after the device has done its work
 * on it; or before this returns, if it fails.
 *
 * device: where the memory is, NULL to find that by DLPack's number; wanted for
 * extension devices (12), of which there may be several.  stream: the one that
 * was named to the exporter, NULL: the current one; the current one waits for
 * it.  Both are ignored by synchronous devices.
 *
 * Bytes of a bool must be 0 or 1: the memory is used as it is.
 *
 * Read-only memory gives a read-only tensor, as are its views: operators that
 * would change it are refused (REFUSED).
 *
 * Errors: INCOMPATIBLE another major version; UNSUPPORTED types, several lanes,
 * negative strides; SHAPE sizes that are negative, too many or too large;
 * INVALID_ARGUMENT no data, or an address that is no multiple of the element's
 * size; DEVICE, NOT_FOUND, NO_DEVICE. */
core_status core_dlpack_import(core_dlpack_managed *managed,
                               core_device *device, core_stream *stream,
                               core_tensor **out_tensor);
core_status core_dlpack_import_unversioned(core_dlpack_unversioned *managed,
                                           core_device *device,
                                           core_stream *stream,
                                           core_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
