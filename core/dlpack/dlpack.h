/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dlpack.h: what DLPack's numbers mean here. */

#ifndef CORE_EXCHANGE_DLPACK_H
#define CORE_EXCHANGE_DLPACK_H

#include <libcore/dlpack.h>

/* UNSUPPORTED, with the reason, for what libcore does not have. */
core_status core__dlpack_dtype(core_dlpack_dtype dtype, core_dtype *out_dtype);
core_dlpack_dtype core__dlpack_from_dtype(core_dtype dtype);

/* The device that is meant; wanted may be NULL. */
core_status core__dlpack_device(core_dlpack_device described,
                                core_device *wanted, core_device **out_device);
core_dlpack_device core__dlpack_from_device(const core_device *device);

/* What was given to this thread's stream of the device so far comes before
 * what the foreign stream is given from now on. */
core_status core__dlpack_hand_over(core_device *device, int64_t stream);
/* This thread's stream comes after what `stream` was given; NULL: it is that. */
core_status core__dlpack_take_over(core_device *device, core_stream *stream);

#endif
