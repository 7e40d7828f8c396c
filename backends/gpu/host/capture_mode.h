/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture_mode.h: calls that are allowed while streams capture.  A vendor's
 * api_names.h includes it after it defines
 *
 *     GPU_API                    the table of the library's functions
 *     gpu_api_capture_mode       the type of capture modes
 *     GPU_API_CAPTURE_RELAXED    the mode that allows every call */

#ifndef GPU_CAPTURE_MODE_H
#define GPU_CAPTURE_MODE_H

/* Calls of this thread between the two do not disturb captures of other
 * libraries, in this thread or in others, and are not part of them.  Otherwise
 * the driver refuses calls that wait, allocate or load while a stream captures,
 * and invalidates the capture. */
static inline gpu_api_capture_mode gpu_captures_relax(void)
{
    gpu_api_capture_mode mode = GPU_API_CAPTURE_RELAXED;

    (void)GPU_API.ThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static inline void gpu_captures_restore(gpu_api_capture_mode before)
{
    (void)GPU_API.ThreadExchangeStreamCaptureMode(&before);
}

#endif
