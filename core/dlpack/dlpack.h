/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dlpack.h: maps DLPack's dtypes, devices and streams to libcore's. */

#ifndef CORE_DLPACK_DLPACK_H
#define CORE_DLPACK_DLPACK_H

#include <libcore/dlpack.h>

/* Returns UNSUPPORTED, with the reason, for dtypes that libcore does not
 * have. */
core_status core__dlpack_dtype(core_dlpack_dtype dtype, core_dtype *out_dtype);
core_dlpack_dtype core__dlpack_from_dtype(core_dtype dtype);

/* Finds the described device; requested may be NULL. */
core_status core__dlpack_device(core_dlpack_device described,
                                core_device *requested,
                                core_device **out_device);
core_dlpack_device core__dlpack_from_device(const core_device *device);

/* Orders the foreign stream after the work given to this thread's stream of the
 * device so far. */
core_status core__dlpack_order_consumer(core_device *device, int64_t stream);
/* Orders this thread's stream after the work given to `stream`; NULL: `stream`
 * is this thread's. */
core_status core__dlpack_wait_for_producer(core_device *device,
                                           core_stream *stream);

#endif
