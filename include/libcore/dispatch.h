/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dispatch.h: operators by name, boxed calls, and operators of one's own.
 *
 * The typed calls of ops.h are thin inline wrappers of core_op_invoke; a
 * foreign-function interface uses core_op_find and core_op_call, with the
 * schemas of the installed operators.json. */

#ifndef LIBCORE_DISPATCH_H
#define LIBCORE_DISPATCH_H

#include "kernel.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "add.Tensor", "sum" (no overload), "vendor::name.overload".  Operators live
 * as long as they are registered; built-in ones always. */
core_status core_op_find(const char *name, core_operator **out_op);
const char *core_op_name(const core_operator *op);
/* "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" */
const char *core_op_schema(const core_operator *op);
/* Built-in operators: index from 0, NULL ends. */
core_operator *core_op_at(uint32_t index);

/* What was done to operands or results because no kernel takes them as they
 * are: slow, and right.  A call counts once for each tensor it happened to. */
typedef enum core_conversion {
    CORE_CONVERSION_CAST = 0, /* an operand was converted to another dtype */
    CORE_CONVERSION_CONTIGUOUS = 1, /* an operand was made row-major */
    CORE_CONVERSION_RESULT = 2, /* computed elsewhere and copied into a given
                                   result: out of another dtype, say */
    CORE_CONVERSION_HOST = 3,   /* the CPU computed for another device, which
                                   LIBCORE_FALLBACK allows; once for a call */
    CORE_CONVERSIONS = 4
} core_conversion;
/* Since the program began, in all threads.  Variants (in place, out) count for
 * themselves; operators of one's own have none.  0 for a NULL op or an unknown
 * detour.  Any thread. */
uint64_t core_op_conversions(const core_operator *op, core_conversion detour);

/* A checked call: args in the schema's order, trailing arguments that have
 * defaults may be missing, NONE asks for a default where there is one.  INT is
 * taken for float, INT, FLOAT and BOOL for Scalar.  results: capacity
 * nresults, at least as many as the schema returns (0 is fine when all results
 * are arguments changed in place); written, owned by the caller
 * (core_value_release), all NONE on failure. */
core_status core_op_call(core_operator *op, const core_value *args,
                         uint32_t nargs, core_value *results,
                         uint32_t nresults);

/* What the typed wrappers call: id from ops.h, complete arguments.  Results are
 * NONE before the call, here and in the next one, and still are if it
 * fails. */
core_status core_op_invoke(uint32_t id, const core_value *args, uint32_t nargs,
                           core_value *results, uint32_t nresults);
/* The same with the operator in hand: complete, trusted arguments. */
core_status core_op_invoke_on(core_operator *op, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults);

/* ---------------------------------------------------------------- plans -- */

/* Of devices that compile per shape, since the process began. */
typedef struct core_plan_counts {
    uint64_t hits;
    uint64_t prepared;
    uint64_t evicted; /* to stay within LIBCORE_PLAN_CACHE */
    uint64_t kept;    /* now */
} core_plan_counts;
void core_plan_get_counts(core_plan_counts *out_counts);

/* ------------------------------------------------- extending operators -- */

/* Undoes one registration when released; newest wins, and the older one comes
 * back.  A handle may outlive what it registered with. */
typedef struct core_registration core_registration;
void core_registration_release(core_registration *registration);

/* A new operator from its schema, "mine::name.overload(Tensor self, int n=1)
 * -> Tensor".  It exists until the handle is released.  The schema comes before
 * everything else about the operator: core_function_register and
 * core_gradient_register answer NOT_FOUND for a name that is not there yet.
 * Between those the order is free; of two for one key the newest wins. */
core_status core_op_register(const char *schema,
                             core_registration **out_registration);

/* A function for an operator.  key: CORE_KEY_… (plugin.h); device_type: which
 * backend for CORE_KEY_BACKEND ("cpu", "meta"), which or NULL for all with
 * CORE_KEY_AUTOGRAD; otherwise NULL.  Calls that run keep what they started
 * with. */
core_status core_function_register(const char *operator_name, uint32_t key,
                                   const char *device_type,
                                   core_function function, void *user,
                                   core_registration **out_registration);

/* From inside a function: the same operator below the function's own key. */
core_status core_redispatch_below(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults);

/* Kernels that a device type has, by name; index from 0 while CORE_OK. */
core_status core_kernel_at(const char *device_type, uint32_t index,
                           const core_kernel **out_kernel);

#ifdef __cplusplus
}
#endif
#endif
