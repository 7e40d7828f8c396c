/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dispatch.h: operators by name, boxed calls, and custom operators.
 *
 * The typed calls of ops.h are thin inline wrappers of core_op_invoke.  A
 * foreign-function interface uses core_op_find and core_op_call, with the
 * schemas in the installed operators.json.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_DISPATCH_H
#define LIBCORE_DISPATCH_H

#include "kernel.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Finds an operator by name: "add.Tensor", "sum" (no overload),
 * "vendor::name.overload".  *out_op is borrowed and valid while the operator is
 * registered; built-in operators always are.  NOT_FOUND if there is none; the
 * message lists other overloads. */
core_status core_op_find(const char *name, core_operator **out_op);

/* Returns the name of an operator.  The text lives as long as the operator.  ""
 * for NULL. */
const char *core_op_name(const core_operator *op);

/* Returns the schema of an operator: "add.Tensor(Tensor self, Tensor other, *,
 * Scalar alpha=1) -> Tensor".  The text lives as long as the operator.  "" for
 * NULL. */
const char *core_op_schema(const core_operator *op);

/* Returns a built-in operator, borrowed.  index counts from 0.  NULL after the
 * last one. */
core_operator *core_op_at(uint32_t index);

/* A conversion of operands or results that the core made because no kernel
 * accepts them as they are.  The result is correct, but the call is slower.  A
 * call counts once for each tensor converted. */
typedef enum core_conversion {
    CORE_CONVERSION_CAST = 0, /* an operand was converted to another dtype */
    CORE_CONVERSION_CONTIGUOUS = 1, /* an operand was made row-major */
    CORE_CONVERSION_RESULT = 2,     /* a result was computed in a temporary and
                                   copied to its destination, such as an out
                                   tensor of another dtype */
    CORE_CONVERSION_HOST = 3,       /* the CPU computed for another device, as
                                   LIBCORE_FALLBACK allows; once per call */
    CORE_CONVERSIONS = 4
} core_conversion;

/* Returns how often a conversion was made for an operator, in all threads since
 * the process started.  In-place and out variants have their own counts.  0 for
 * a NULL op or an unknown conversion. */
uint64_t core_op_conversions(const core_operator *op,
                             core_conversion conversion);

/* Calls an operator and checks the arguments.  args: in the schema's order,
 * borrowed.  Trailing arguments with a default may be omitted, and NONE selects
 * the default if there is one.  A float argument accepts INT; a Scalar argument
 * accepts INT, FLOAT and BOOL.  results: nresults entries, at least as many as
 * the schema returns, or none if all results are arguments changed in place.
 * The caller owns them (core_value_release).  All are NONE on failure. */
core_status core_op_call(core_operator *op, const core_value *args,
                         uint32_t nargs, core_value *results,
                         uint32_t nresults);

/* Calls an operator for the typed calls of ops.h, without checking the
 * arguments.  id: from ops_ids.h.  args: complete.  results: NONE before the
 * call, and still NONE if it fails; owned by the caller.  UNSUPPORTED for an id
 * of a later libcore. */
core_status core_op_invoke(uint32_t id, const core_value *args, uint32_t nargs,
                           core_value *results, uint32_t nresults);

/* Does the same as core_op_invoke for an operator from core_op_find, which must
 * not be NULL. */
core_status core_op_invoke_on(core_operator *op, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults);

/* ---------------------------------------------------------------- plans -- */

/* Counts of the plan cache, for devices that compile per shape (kernel.h),
 * since the process started. */
typedef struct core_plan_counts {
    uint64_t hits;     /* launches with a cached plan */
    uint64_t prepared; /* plans made */
    uint64_t evicted;  /* plans dropped because of LIBCORE_PLAN_CACHE */
    uint64_t cached;   /* plans in the cache now */
} core_plan_counts;

/* Fills in the counts of the plan cache. */
void core_plan_get_counts(core_plan_counts *out_counts);

/* ------------------------------------------------- extending operators -- */

/* A registration, in force until it is released.  The newest registration is
 * used; after its release the previous one is used again.  A registration may
 * outlive the operator or plugin that it refers to. */
typedef struct core_registration core_registration;

/* Undoes a registration.  Accepts NULL.  Running calls finish with the
 * registrations that they started with. */
void core_registration_release(core_registration *registration);

/* Registers a new operator by its schema, "mine::name.overload(Tensor self, int
 * n=1) -> Tensor".  It exists until *out_registration, which the caller owns,
 * is released.  The schema must be registered before the functions and
 * gradients of the operator, for which core_function_register and
 * core_gradient_register otherwise return NOT_FOUND; those can be registered in
 * any order. */
core_status core_op_register(const char *schema,
                             core_registration **out_registration);

/* Registers a function (kernel.h) for an operator under a dispatch key.  key:
 * CORE_KEY_… (plugin.h).  device_type: a device type ("cpu", "meta") for
 * CORE_KEY_BACKEND; a device type, or NULL for all, for CORE_KEY_AUTOGRAD; NULL
 * for other keys.  Both texts are copied.  user: passed as call->user; borrowed
 * until the release, and until calls that run in other threads have returned.
 * The caller owns *out_registration.  Running calls are not affected.
 *
 * The function takes the place of what the core has under the key, or of an
 * older registration, which core_redispatch_displaced calls:
 *
 *     BACKEND          the kernel, or the decomposition, of the device type.
 *     COMPOSITE_…      the decomposition.
 *     AUTOGRAD         the built-in gradient: a call that is only passed on
 *                      with core_redispatch_below is not recorded, and its
 *                      results require no grad.
 *     INPLACE_OR_VIEW  nothing: before the function the core refuses changes
 *                      that are not allowed, and after it counts the changes.
 *                      An operator that consists of others at this key is not
 *                      called here; its parts are.
 *     AUTOCAST         the cast by the operator's rule.  Called only in the
 *                      regions of autocast.h, and not in backward.
 *     PROFILER         the record of the call in a session.  Called only while
 *                      a session of profiler.h runs, or LIBCORE_NAN_CHECK is
 *                      set.
 *
 * A mode (mode.h) sees the calls of all operators and displaces nothing. */
core_status core_function_register(const char *operator_name, uint32_t key,
                                   const char *device_type,
                                   core_function function, void *user,
                                   core_registration **out_registration);

/* Calls the operator of `call` again, below the key of the function that
 * received it; of a mode (mode.h), the next mode outside, or the layers below
 * its level.  For functions.  args and results: as in core_op_invoke. */
core_status core_redispatch_below(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults);

/* Calls what the function that received `call` displaced: the function that was
 * registered before it under the same key and for the same device, or else the
 * core's own part (core_function_register).  Only a function that
 * core_function_register has registered may call it, in the thread and during
 * the call that it received; INVALID_ARGUMENT otherwise, and if nothing was
 * displaced.  args and results: as in core_op_invoke. */
core_status core_redispatch_displaced(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults);

/* Gets a registered kernel of a device type.  index counts from 0.  The kernel
 * is borrowed and valid while its plugin is loaded.  NOT_FOUND after the last
 * kernel, or if no loaded plugin provides the type. */
core_status core_kernel_at(const char *device_type, uint32_t index,
                           const core_kernel **out_kernel);

#ifdef __cplusplus
}
#endif
#endif
