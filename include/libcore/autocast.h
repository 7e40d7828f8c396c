/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autocast.h: mixed precision, chosen by operator.
 *
 *     uint64_t region;
 *
 *     core_autocast_begin(device, CORE_BF16, 0, &region);
 *     ... forward: products compute in bf16, losses and sums in f32 ...
 *     core_autocast_end(region);
 *     core_backward(&loss, 1, NULL, 0);
 *
 * In a region, an operator with a rule gets its floating tensors cast before
 * it runs; others see what they are given.  Rules (operators.json has each
 * operator's under "autocast"):
 *
 *     lower     matrix products, convolutions: to the region's dtype
 *     fp32      exp, pow, norms, losses: f16 and bf16 to f32; where the
 *               operator has a dtype argument (sum, softmax), that becomes f32
 *               if it was not given
 *     promote   cat, addcmul: to f32 if one of the tensors is, else to the
 *               region's dtype
 *
 * f64 is never cast, nor are tensors of other devices, and forms in place and
 * with out= compute as they are called.  Casts are recorded: a gradient comes
 * back in the parameter's own dtype, and what is saved for backward is the low
 * one.  The backward itself casts nothing: each node computes in the dtypes
 * that its forward had, wherever core_backward is called.
 *
 * Inside an operator that has a rule nothing more is cast: what a composite
 * calls computes in the dtypes it got.
 *
 * Threads: regions belong to the thread that began them. */

#ifndef LIBCORE_AUTOCAST_H
#define LIBCORE_AUTOCAST_H

#include "device.h"
#include "dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Nothing is cast on this kind of device, whatever is outside. */
    CORE_AUTOCAST_OFF = 1u << 0,
    /* Weights are cast anew at each use. */
    CORE_AUTOCAST_NO_CACHE = 1u << 1
};

/* Begins a region for all devices of device's kind ("cpu", "cuda"); regions
 * nest, and the inner one holds.  dtype: CORE_BF16 or CORE_F16; NONE is bf16.
 * With CORE_AUTOCAST_OFF it is not looked at.
 *
 * The cast of a leaf that requires grad (a weight) is kept and used again, on the
 * stream that made it, until the outermost region of the thread ends, unless the
 * weight is changed.  A capture makes and keeps its own. */
core_status core_autocast_begin(core_device *device, core_dtype dtype,
                                uint32_t flags, uint64_t *out_region);
/* Ends that region and those begun in it that were left, on an error's way
 * out say.  INVALID_ARGUMENT, and nothing changes, if it is no open region of
 * this thread. */
core_status core_autocast_end(uint64_t region);

/* The dtype that a region casts to here; CORE_DTYPE_NONE: there is no region,
 * or it is off.  NULL device: NONE. */
core_dtype core_autocast_dtype(const core_device *device);
/* Forgets the casts of weights that are kept. */
void core_autocast_clear_cache(void);

/* What regions do with an operator's tensors. */
typedef enum core_autocast_rule {
    CORE_AUTOCAST_NONE = 0,
    CORE_AUTOCAST_LOWER = 1,
    CORE_AUTOCAST_FP32 = 2,
    CORE_AUTOCAST_PROMOTE = 3
} core_autocast_rule;

/* The rule of an operator, a program's or plugin's own for one; the newest
 * holds until its handle is released.  Not for operators that change an
 * argument: what a cast of it takes would be lost. */
core_status core_autocast_register(const char *operator_name,
                                   core_autocast_rule rule,
                                   core_registration **out_registration);

#ifdef __cplusplus
}
#endif

#endif
