/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* kernel.h: what a kernel receives, and how it is registered.
 *
 * Kernels and functions share one signature, core_function.
 *
 *   A *kernel* implements an operator on one backend.  Before the call, the
 *   core has inferred shapes, promoted dtypes, broadcast, checked overlap and
 *   allocated the results; the kernel only computes.  Operators of a loop
 *   family (element-wise, reduction) get a prepared loop in call->loop; the
 *   tensors among args are opaque, and the kernel accesses data through the
 *   loop only.  All other operators get VIEW values (VIEW_LIST for tensor
 *   lists) in args, in the schema's order, and VIEW values in results, which
 *   the kernel fills.  An absent optional tensor is NONE.  For an operator
 *   marked dynamic_output, results are NONE, and the kernel allocates each with
 *   core_host.call_allocate_result.
 *
 *   A *function* (dispatch layer, composite, custom operator, gradient) gets
 *   TENSOR values and calls operators through the host table.  It stores owned
 *   values in results, which are NONE when it is called and must be NONE again
 *   when it fails.  If all results of an operator are arguments that it changes
 *   in place, the caller may omit them: results is then NULL and nresults 0.
 *
 * Everything that a call points to is valid until the kernel returns.  A device
 * that executes later copies the call (core_host.call_copy).
 *
 * Random operators get three more values after args: INT seed, INT offset, and
 * NONE or, during a capture, a VIEW of two i64 on the device.  With a view, the
 * kernel reads it when it executes: it adds the first number to offset and uses
 * the second instead of seed.  So each launch of the graph draws new numbers.
 * (A plugin of ABI 0.1 gets the first two values only.) */

#ifndef LIBCORE_KERNEL_H
#define LIBCORE_KERNEL_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- views -- */

/* Flags of a view. */
enum {
    CORE_VIEW_CONTIGUOUS = 1u << 0 /* row-major, without gaps */
};

/* A strided view of device memory.  Sizes and strides are in elements,
 * outermost dimension first.  Strides are >= 0, and 0 where a dimension is
 * broadcast. */
struct core_view {
    uint32_t struct_size;
    core_dtype dtype;
    core_memory memory; /* of the element at index (0, …, 0) */
    const int64_t *sizes;
    const int64_t *strides;
    int64_t numel; /* product of sizes */
    uint32_t ndim;
    uint32_t flags;      /* CORE_VIEW_… */
    core_device *device; /* opaque to plugins */
};
CORE_STATIC_ASSERT(sizeof(core_view) == 64, "core_view");

/* Since ABI 0.6. */

/* Identifies the content of the memory that a view is in
 * (core_host.call_view_content).  A kernel that computes something from an
 * operand and keeps it also keeps the two numbers and the view's memory, dtype,
 * sizes and strides.  If a later call has a view for which all of these are
 * equal, the operand has not changed.  This holds for work on the call's
 * stream; another stream must wait for what the kernel computed.
 *
 * Equal numbers mean equal content; different numbers do not mean that it
 * changed.  The numbers never match those of an earlier call for an operand
 * that the core converted or copied for the call.  For a view without elements
 * they have no meaning.  Memory keeps its number as long as it exists, with
 * three exceptions, which get a new number at each query, so that nothing kept
 * for them is found again: a small tensor on a synchronous device, what a
 * compiled function computes in memory that it uses for several values, and
 * the running statistics that a batch norm has changed, which its schema does
 * not say.
 *
 * A change counts when it is enqueued: in-place operators, copies, and results
 * written to the memory, also through other views.  Each launch of a graph
 * counts as a change of all memory of its device.  Not counted are changes that
 * a program makes by address (core_tensor_data, DLPack), in another process, or
 * by enqueueing work itself (core_stream_native).  While a stream is being
 * captured (CORE_CALL_CAPTURING) a kernel must not use what it has kept: the
 * graph may run after the operand has changed. */
struct core_view_content {
    uint32_t struct_size; /* set by the kernel to sizeof */
    uint32_t reserved;
    uint64_t storage; /* a number of the memory, never used again for other
                         memory of this process, at the same address too */
    uint64_t version; /* increases with each change of the memory */
};
CORE_STATIC_ASSERT(sizeof(core_view_content) == 24, "core_view_content");

/* --------------------------------------------------------------- loops -- */

/* Flags of an operand. */
enum {
    CORE_OPERAND_OUTPUT = 1u << 0,
    /* The operand is one number, stored in the first bytes of `immediate` as an
     * element of `dtype`.  memory and strides are 0. */
    CORE_OPERAND_IMMEDIATE = 1u << 1
};

/* An operand of a loop.  Frozen.  strides: in bytes, one per dimension of the
 * loop, innermost first. */
typedef struct core_operand {
    core_memory memory;
    const int64_t *strides;
    core_dtype dtype;
    uint32_t flags; /* CORE_OPERAND_… */
    uint64_t immediate;
    uint64_t reserved;
} core_operand;
CORE_STATIC_ASSERT(sizeof(core_operand) == 48, "core_operand is frozen");

/* Flags of a loop. */
enum {
    /* ndim <= 1, and the stride of every operand that is not an immediate is
     * its item size (or there is at most one element). */
    CORE_LOOP_CONTIGUOUS = 1u << 0
};

/* A prepared loop over operands: outputs first, then inputs.  Dimensions are
 * coalesced and ordered with the innermost first; ndim may be 0.  An
 * element-wise kernel is never called with numel == 0.
 *
 * Inputs: the tensor arguments in the schema's order, without one that the
 * operator only writes.  copy_ has one input, src; fill_.Scalar and zero_ have
 * none.  A number is an input (CORE_OPERAND_IMMEDIATE) if it takes the place of
 * a tensor of the operator that the kernel is registered for, as that of
 * eq.Scalar does in kernels of eq.Tensor.  Other numbers, such as alpha and the
 * value of fill_.Scalar, are among args only.
 *
 * Element-wise: for every index in sizes, outputs[...] = f(inputs[...]).  An
 * output either has exactly the elements of an input or does not overlap it.
 * Inputs and output have one dtype, with these exceptions: the output of a
 * comparison, a logical operator or a test (isnan) is bool, whatever the dtype
 * of the inputs; condition and mask are bool; the two dtypes of copy_ may be
 * any.
 *
 * Reduction: the dimensions whose bit is set in `reduced` are reduced; there
 * every output has stride 0.  The kernel writes each output element once and
 * ignores its previous content.  If a reduced size is 0 and the output is not
 * empty, the kernel writes the identity; the core has refused operators that
 * have none.  The output has the input's dtype, with these exceptions: sums and
 * products of integers and bools are i64; any and all are bool (of u8: u8);
 * argmax, argmin, count_nonzero and the second output of max.dim and min.dim
 * are i64.
 *
 * Order: elements are reduced in any order, and dimensions are ordered by the
 * strides of the input, except for argmax, argmin, max.dim and min.dim.  Their
 * loops have all dimensions of the input, in its order: dimension k of the loop
 * is dimension ndim - 1 - k of the tensor.  The index that they write counts
 * the reduced elements in row-major order (of one dimension: the index along
 * it; of all: that in the flattened tensor).  Of equal elements the first is
 * taken, and a NaN before all others. */
struct core_loop {
    uint32_t struct_size;
    uint32_t flags; /* CORE_LOOP_… */
    uint32_t ndim;
    uint32_t noperands;
    uint32_t noutputs;
    uint32_t reduced; /* bit k: dimension k */
    int64_t numel;    /* product of sizes */
    const int64_t *sizes;
    const core_operand *operands; /* noperands entries */
};
CORE_STATIC_ASSERT(sizeof(core_loop) == 48, "core_loop");

/* --------------------------------------------------------------- calls -- */

/* Flags of a call. */
enum {
    CORE_CALL_DETERMINISTIC = 1u << 0, /* compute the same bits every time */
    CORE_CALL_ALLOW_TF32 = 1u << 1,    /* f32 products may use TF32 */
    CORE_CALL_CAPTURING = 1u << 2      /* the stream is being captured */
};

/* A call of a kernel or function.  A function sees the fields up to `keys`
 * (struct_size says so); a kernel sees all of them.  A call that a function
 * receives is read-only, because several calls may share it; copy it to change
 * it. */
struct core_call {
    uint32_t struct_size;
    uint32_t flags; /* CORE_CALL_… */
    const core_host *host;
    void *user;        /* the user pointer of the registration */
    core_operator *op; /* the operator that is being computed */
    uint64_t keys;     /* functions: the key set still to be dispatched */
    /* The following fields are for kernels only. */
    const core_loop *loop;    /* loop families; otherwise NULL */
    core_operator *kernel_op; /* the functional operator that `op` is an
                                 in-place or out variant of, or `op` */
    void *device;             /* the backend's handle of the device */
    void *stream; /* the backend's handle of the stream; NULL: synchronous.  Of
                     a captured call: the stream that was captured, on
                     whichever the graph runs (core.graph_capture) */
    void *plan;   /* from prepare, or NULL */
    uint64_t id;  /* unique and increasing in the process; 0 on a synchronous
                     device */
    void *core;   /* private to the core */
};
CORE_STATIC_ASSERT(sizeof(core_call) == 96, "core_call");

/* ------------------------------------------------------- registrations -- */

/* What a kernel requires of its operands and results.  If a call does not meet
 * the requirements, the core copies operands so that it does, and copies
 * results back.  A kernel of copy_, with which the core makes such copies, is
 * skipped instead. */
enum {
    /* Operands and results are contiguous (row-major).  A loop has
     * CORE_LOOP_CONTIGUOUS; that of a reduction keeps its dimensions. */
    CORE_REQUIRE_CONTIGUOUS = 1u << 0,
    /* UNSUPPORTED from `supports` is the error of the call; no other kernel is
     * tried. */
    CORE_REQUIRE_NO_FALLBACK = 1u << 1,
    /* Since ABI 0.3; an older host refuses the kernel. */
    /* All floating operands and results have the dtype that they promote to,
     * with which the core compares the signature.  Integers and bools are left
     * as they are. */
    CORE_REQUIRE_EQUAL_DTYPES = 1u << 2,
    /* Every element is less than 2^31 bytes from the first of its operand, and
     * there are fewer than 2^31 elements, so offsets and indices fit in 32
     * bits.  The core splits larger loops (a reduction along dimensions that
     * are not reduced).  It skips the kernel for calls that it cannot split. */
    CORE_REQUIRE_INDEX32 = 1u << 3,
    /* A field of four bits, n: memory starts at a multiple of 2^n bytes (handle
     * + offset if the device is FLAT, otherwise offset).  0 requires nothing
     * beyond the element's own alignment.  The core skips a kernel that
     * requires more than the device's base_alignment. */
    CORE_REQUIRE_ALIGNMENT = 15u << 8,
    CORE_REQUIRE_ALIGNMENT_SHIFT = 8
};

/* The same flags under their first names, for older sources. */
enum {
    CORE_DEMAND_CONTIGUOUS = CORE_REQUIRE_CONTIGUOUS,
    CORE_DEMAND_NO_FALLBACK = CORE_REQUIRE_NO_FALLBACK,
    CORE_DEMAND_EQUAL_DTYPES = CORE_REQUIRE_EQUAL_DTYPES,
    CORE_DEMAND_INDEX32 = CORE_REQUIRE_INDEX32,
    CORE_DEMAND_ALIGNMENT = CORE_REQUIRE_ALIGNMENT,
    CORE_DEMAND_ALIGNMENT_SHIFT = CORE_REQUIRE_ALIGNMENT_SHIFT
};

/* The maximum number of operands in a signature. */
enum { CORE_SIGNATURE_MAX = 8 };

/* A kernel, as a plugin registers it (core_host.register_kernels). */
struct core_kernel {
    uint32_t struct_size;
    uint32_t demands; /* requirements: CORE_REQUIRE_… */

    /* The name of the functional operator, "add.Tensor".  The kernel also
     * serves its in-place and out variants. */
    core_string name;

    /* A mask of accepted dtypes (CORE_DTYPE_MASK) per tensor operand; 0, or all
     * bits: any.  Other bits of no dtype are refused.  Loop families: the
     * operands of the loop in order (outputs, then inputs).  Other operators:
     * the tensor arguments in the schema's order (a list counts once, by the
     * dtype of its first element), then the results.  If several registrations
     * match, the last one is used. */
    uint32_t signature[CORE_SIGNATURE_MAX];
    uint32_t max_ndim; /* largest rank (of the loop); 0: any */
    uint32_t reserved; /* 0; anything else is refused */

    /* Computes the operator, or enqueues the work on call->stream. */
    core_function launch;
    void *user; /* passed as call->user */

    /* Checks whether the kernel can serve a call.  NULL: it can.  The check is
     * a pure function, which the core may cache, of the device, shapes, dtypes
     * and numbers; it does not read memory.  Loop families get the loop in
     * call->loop, others views in args.  call->device is the device (NULL from
     * a host before ABI 0.5); call->stream is NULL.  CORE_ERROR_UNSUPPORTED:
     * the core tries the next kernel that matches, then the composites and
     * fallbacks of the operator.  Another error is that of the call. */
    core_status (*supports)(const core_call *call, const core_value *args,
                            uint32_t nargs);

    /* Makes a plan, for devices that compile per shape.  NULL: the kernel has
     * no plans.  Since ABI 0.2; an older host refuses a kernel with plans.
     *
     * The plan may depend on everything in the call except memory (handles,
     * offsets, immediates; results are views too).  launch gets it in
     * call->plan.  The core caches plans by kernel, device, dtypes, sizes,
     * strides and the arguments other than tensors and numbers (Scalar,
     * float), up to LIBCORE_PLAN_CACHE of them, and evicts the least recently
     * used.  Any thread may call prepare, and several threads may launch one
     * plan at once. */
    core_status (*prepare)(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults, void **out_plan);

    /* Destroys a plan.  Work that was launched with it may still be waiting on
     * a stream or be part of a graph; the plugin keeps what that work needs. */
    void (*plan_destroy)(void *plan);
};
CORE_STATIC_ASSERT(sizeof(core_kernel) == 104, "core_kernel");

/* --------------------------------------------------------------- shapes -- */

/* Since ABI 0.6.  The dtype and sizes of a result.  Frozen. */
struct core_result_shape {
    core_dtype dtype;
    uint32_t ndim;                /* at most CORE_MAX_NDIM */
    int64_t sizes[CORE_MAX_NDIM]; /* outermost dimension first */
};
CORE_STATIC_ASSERT(sizeof(core_result_shape) == 264,
                   "core_result_shape is frozen");

/* Since ABI 0.6.  Infers the results of an operator that the plugin has
 * registered (core_host.register_shape).  args: as for a kernel, but the views
 * have no memory.  shapes: one per result of the schema, all 0; the function
 * sets each.  It is pure: it depends on args alone.  An error is that of the
 * call; arguments that do not fit together are CORE_ERROR_SHAPE or DTYPE. */
typedef core_status (*core_shape_function)(void *user, const core_value *args,
                                           uint32_t nargs,
                                           core_result_shape *shapes,
                                           uint32_t nresults);

/* ------------------------------------------------------------ gradients -- */

/* Flags of a gradient. */
enum {
    /* backward does not compute by recorded operators.  It runs with grad mode
     * off, and differentiating its gradients is an error. */
    CORE_FUNCTION_ONCE_DIFFERENTIABLE = 1u << 0,
    /* grads may have NULL entries, for outputs that nothing used. */
    CORE_FUNCTION_NO_ZEROS = 1u << 1
};

/* Computes gradients.  grads: borrowed.  gradients: all NULL when it is called;
 * it sets those that are needed (core_node_needs_gradient) to owned tensors.
 * If it fails, the core releases those that it has set. */
typedef core_status (*core_function_backward)(core_node *node, void *context,
                                              core_tensor *const *grads,
                                              size_t ngrads,
                                              core_tensor **gradients,
                                              size_t ngradients);

/* The gradient of an operator.  setup stores what backward will need; backward
 * computes by operators, so that its result can be differentiated again. */
struct core_operator_gradient {
    uint32_t struct_size;
    uint32_t flags; /* CORE_FUNCTION_… */

    /* Called after the operator when the call is recorded.  results: one per
     * result of the schema.  NULL: backward needs nothing. */
    core_status (*setup)(core_function_context *function, void *user,
                         const core_value *args, uint32_t nargs,
                         const core_value *results, uint32_t nresults);

    /* Computes the gradients of the tensor arguments.  grads: one per result
     * tensor (lists flattened), then one per argument that the schema marks as
     * changed and that is not a result.  gradients: one per tensor argument in
     * the schema's order, including absent ones (lists flattened).  context:
     * the state that setup has set, otherwise user. */
    core_function_backward backward;
    void *user;
};
CORE_STATIC_ASSERT(sizeof(core_operator_gradient) == 32,
                   "core_operator_gradient");

#ifdef __cplusplus
}
#endif
#endif
