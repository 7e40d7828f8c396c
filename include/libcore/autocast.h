/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autocast.h: mixed precision, by operator.
 *
 *     uint64_t region;
 *
 *     core_autocast_begin(device, CORE_BF16, 0, &region);
 *     ... forward: products in bf16, losses and sums in f32 ...
 *     core_autocast_end(region);
 *     core_backward(&loss, 1, NULL, 0);
 *
 * In a region, the floating tensors of an operator that has a rule are cast
 * before it runs.  Other operators are not affected.  Rules (operators.json
 * lists that of each operator under "autocast"):
 *
 *     lower     matrix products, convolutions: cast to the region's dtype
 *     fp32      exp, pow, norms, losses: cast f16 and bf16 to f32; if the
 *               operator has a dtype argument (sum, softmax) that was not
 *               passed, set it to f32
 *     promote   cat, addcmul: cast to f32 if one of the tensors is f32, else to
 *               the region's dtype
 *
 * f64 is never cast, and neither are tensors of other devices or the arguments
 * of in-place and out variants.  Casts are recorded: the gradient of a
 * parameter has the parameter's dtype, and tensors saved for backward have the
 * lower precision.  The backward casts nothing: each node computes in the
 * dtypes of its forward, wherever core_backward is called.  Operators that an
 * operator with a rule calls are not cast again.
 *
 * Threads.  Regions and the cache of casts belong to the calling thread.  Every
 * function here is thread-safe. */

#ifndef LIBCORE_AUTOCAST_H
#define LIBCORE_AUTOCAST_H

#include "device.h"
#include "dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of core_autocast_begin. */
enum {
    /* Cast nothing on this device type, whatever the outer region does. */
    CORE_AUTOCAST_OFF = 1u << 0,
    /* Cast weights at each use instead of caching the cast. */
    CORE_AUTOCAST_NO_CACHE = 1u << 1
};

/* Begins a region for all devices of the type of `device`.  Regions nest; the
 * innermost one applies.  dtype: CORE_BF16, CORE_F16, or CORE_DTYPE_NONE for
 * bf16; ignored with CORE_AUTOCAST_OFF.  flags: CORE_AUTOCAST_….  *out_region
 * is for core_autocast_end.
 *
 * The cast of a leaf that requires grad (a weight) is cached and reused on the
 * stream that computed it, until the thread's outermost region ends or the
 * weight changes.  A capture has its own cached casts. */
core_status core_autocast_begin(core_device *device, core_dtype dtype,
                                uint32_t flags, uint64_t *out_region);

/* Ends a region, and the regions nested in it that are still open, for example
 * after an error.  INVALID_ARGUMENT, without effect, if it is not an open
 * region of the calling thread.  UNSUPPORTED, without effect, if a function
 * that is being recorded (compile.h) calls it for a region that began before
 * it was called. */
core_status core_autocast_end(uint64_t region);

/* Returns the dtype to which the current region casts on a device, or
 * CORE_DTYPE_NONE if there is no region, it is off, or device is NULL. */
core_dtype core_autocast_dtype(const core_device *device);

/* Clears the calling thread's cache of casts. */
void core_autocast_clear_cache(void);

/* How regions cast the tensors of an operator; see above. */
typedef enum core_autocast_rule {
    CORE_AUTOCAST_NONE = 0,
    CORE_AUTOCAST_LOWER = 1,
    CORE_AUTOCAST_FP32 = 2,
    CORE_AUTOCAST_PROMOTE = 3
} core_autocast_rule;

/* Registers the rule of an operator, such as a custom one.  The name is copied.
 * The caller owns *out_registration; until it is released, the newest rule
 * applies.  INVALID_ARGUMENT for an operator that changes an argument in place,
 * because the change would apply to the cast only. */
core_status core_autocast_register(const char *operator_name,
                                   core_autocast_rule rule,
                                   core_registration **out_registration);

#ifdef __cplusplus
}
#endif

#endif
