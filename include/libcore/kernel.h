/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* kernel.h: what a kernel receives, and how it is registered.
 *
 * Kernels and functions share one signature, core_function.
 *
 *   A *kernel* serves an operator on one backend.  The core has inferred
 *   shapes, promoted dtypes, broadcast, checked overlap and allocated the
 *   results before it is called; it only computes.  Operators of a loop family
 *   (element-wise, reduction) receive the finished loop in call->loop; for
 *   them a tensor among args is opaque, and data is read through the loop
 *   alone.  All other operators receive VIEW values (VIEW_LIST for tensor
 *   lists) in args, in the schema's order, and VIEW values in results: the
 *   memory to fill.  An optional tensor that is absent is NONE.  An operator
 *   marked dynamic_output finds NONE in results and allocates each with
 *   core_host.call_allocate_result.
 *
 *   A *function* (layer, composite, custom operator, gradient) receives TENSOR
 *   values and calls operators through the host table; it leaves owned values
 *   in results.  They are NONE when it is called, and must be so again when it
 *   fails.  Of an operator all of whose results are arguments that it changes,
 *   none are asked for: results may be NULL and nresults 0.
 *
 * Everything that a call points to is valid until the kernel returns; a device
 * that runs later copies the call (core_host.call_copy).
 *
 * Random operators find three more values behind args: INT seed, INT offset,
 * and NONE or, while a capture is made, a VIEW of two i64 on the device.  Then
 * what lies there when the kernel runs counts: the first is added to offset,
 * the second stands for seed; so a replay draws fresh numbers.  (A plugin of
 * minor 0.1 gets the first two alone.) */

#ifndef LIBCORE_KERNEL_H
#define LIBCORE_KERNEL_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- views -- */

enum {
    CORE_VIEW_CONTIGUOUS = 1u << 0 /* row-major, no gaps */
};

/* A strided window on a device's memory.  Sizes and strides are in elements,
 * outermost dimension first; strides are >= 0; 0 where a dimension is
 * broadcast. */
struct core_view {
    uint32_t struct_size;
    core_dtype dtype;
    core_memory memory; /* of the element at index (0, …, 0) */
    const int64_t *sizes;
    const int64_t *strides;
    int64_t numel;
    uint32_t ndim;
    uint32_t flags;      /* CORE_VIEW_… */
    core_device *device; /* opaque */
};
CORE_STATIC_ASSERT(sizeof(core_view) == 64, "core_view");

/* --------------------------------------------------------------- loops -- */

enum {
    CORE_OPERAND_OUTPUT = 1u << 0,
    /* The operand is one number, in `immediate`, as the first bytes of an
     * element of `dtype`; memory and strides are 0. */
    CORE_OPERAND_IMMEDIATE = 1u << 1
};

/* Frozen.  An operand of a loop; strides in bytes, one per dimension of the
 * loop, innermost first. */
typedef struct core_operand {
    core_memory memory;
    const int64_t *strides;
    core_dtype dtype;
    uint32_t flags;
    uint64_t immediate;
    uint64_t reserved;
} core_operand;
CORE_STATIC_ASSERT(sizeof(core_operand) == 48, "core_operand is frozen");

enum {
    /* ndim <= 1 and every operand that is not an immediate has a stride of its
     * item size (or there is at most one element). */
    CORE_LOOP_CONTIGUOUS = 1u << 0
};

/* A finished loop: outputs first, then inputs.  Dimensions are coalesced and
 * ordered so that dimension 0 is the innermost.  numel == 0 never reaches an
 * element-wise kernel.
 *
 * Element-wise: for every index in sizes, outputs[...] = f(inputs[...]).  No
 * output overlaps an input unless it is exactly the same elements.
 *
 * Reduction: dimensions whose bit is set in `reduced` are reduced; there every
 * output has stride 0.  The kernel writes each output element once (it does
 * not accumulate into what was there).  A reduction over zero elements
 * (some reduced size is 0, output not empty) writes the identity; the core has
 * refused operators that have none. */
struct core_loop {
    uint32_t struct_size;
    uint32_t flags; /* CORE_LOOP_… */
    uint32_t ndim;
    uint32_t noperands;
    uint32_t noutputs;
    uint32_t reduced; /* bit k: dimension k */
    int64_t numel;    /* product of sizes */
    const int64_t *sizes;
    const core_operand *operands; /* noperands of them */
};
CORE_STATIC_ASSERT(sizeof(core_loop) == 48, "core_loop");

/* --------------------------------------------------------------- calls -- */

enum {
    CORE_CALL_DETERMINISTIC = 1u << 0,
    CORE_CALL_ALLOW_TF32 = 1u << 1,
    CORE_CALL_CAPTURING = 1u << 2
};

/* A function sees the fields up to `keys` (struct_size says so); a kernel sees
 * all.  What a function is given may be what other calls are given at the same
 * time: it is there to be read, and a copy of it to be changed. */
struct core_call {
    uint32_t struct_size;
    uint32_t flags; /* CORE_CALL_… */
    const core_host *host;
    void *user;        /* the registration's word */
    core_operator *op; /* what is being computed */
    uint64_t keys;     /* functions: the key set still to serve */
    /* kernels only, from here on */
    const core_loop *loop;    /* loop families, else NULL */
    core_operator *kernel_op; /* the functional operator that `op` is an
                                 in-place or out variant of, or `op` */
    void *device;             /* backend's word for the device */
    void *stream; /* backend's word for the stream; NULL: synchronous */
    void *plan;   /* what prepare answered */
    uint64_t id;  /* increases with every kernel call of the process */
    void *core;   /* the core's own */
};
CORE_STATIC_ASSERT(sizeof(core_call) == 96, "core_call");

/* ------------------------------------------------------- registrations -- */

/* What a kernel wants of the tensors that it reads and of its results.  Where a
 * call is not so, the core makes copies that are, and copies results back; a
 * kernel of copy_, which such copies are made with, is passed over instead. */
enum {
    /* Operands and results are contiguous (row-major); a loop has
     * CORE_LOOP_CONTIGUOUS, but a reduction's has its dimensions. */
    CORE_REQUIRE_CONTIGUOUS = 1u << 0,
    /* A refusal by `supports` is an error, never another backend's turn. */
    CORE_REQUIRE_NO_FALLBACK = 1u << 1,
    /* since 0.3; a host of before refuses them */
    /* All floating operands and results have the dtype that they promote to;
     * the signature is compared with that.  Integers and bools stay. */
    CORE_REQUIRE_EQUAL_DTYPES = 1u << 2,
    /* Every element lies less than 2^31 bytes behind the first of its operand,
     * and there are fewer than 2^31: bytes and indices fit 32 bits.  The core
     * splits loops (a reduction where it does not reduce); what it cannot split
     * passes the kernel over. */
    CORE_REQUIRE_INDEX32 = 1u << 3,
    /* Four bits, n: memory begins at a multiple of 2^n bytes (handle + offset
     * where the device is FLAT, else offset); 0 is as the elements lie.  Beyond
     * the device's base_alignment it passes the kernel over. */
    CORE_REQUIRE_ALIGNMENT = 15u << 8,
    CORE_REQUIRE_ALIGNMENT_SHIFT = 8
};

/* The same under their names before 0.6. */
enum {
    CORE_DEMAND_CONTIGUOUS = CORE_REQUIRE_CONTIGUOUS,
    CORE_DEMAND_NO_FALLBACK = CORE_REQUIRE_NO_FALLBACK,
    CORE_DEMAND_EQUAL_DTYPES = CORE_REQUIRE_EQUAL_DTYPES,
    CORE_DEMAND_INDEX32 = CORE_REQUIRE_INDEX32,
    CORE_DEMAND_ALIGNMENT = CORE_REQUIRE_ALIGNMENT,
    CORE_DEMAND_ALIGNMENT_SHIFT = CORE_REQUIRE_ALIGNMENT_SHIFT
};

enum { CORE_SIGNATURE_MAX = 8 };

struct core_kernel {
    uint32_t struct_size;
    uint32_t demands; /* CORE_REQUIRE_… */
    /* The functional operator, "add.Tensor".  Its in-place and out variants
     * use the same kernel. */
    core_string name;
    /* Mask per tensor operand of dtypes accepted.  Loop families: the loop's
     * operands in order (outputs, then inputs).  Others: tensor arguments in
     * the schema's order (a list counts once, its first element decides), then
     * results.  0 = any.  Where several registrations match, the last wins. */
    uint32_t signature[CORE_SIGNATURE_MAX];
    uint32_t max_ndim; /* largest rank (of the loop); 0 = any */
    uint32_t reserved;
    core_function launch;
    void *user; /* call->user */
    /* Optional; pure and cacheable; looks at the device, shapes, dtypes and
     * numbers, never at memory.  Loop families find the loop in call->loop,
     * others views in args; call->device is the device (NULL from a host of
     * before 0.5), stream NULL.  CORE_ERROR_UNSUPPORTED: the next kernel that
     * fits is asked, then precedence goes on. */
    core_status (*supports)(const core_call *call, const core_value *args,
                            uint32_t nargs);
    /* For devices that compile per shape; since 0.2 (a host of 0.1 refuses a
     * kernel that has it).  prepare looks at everything of the call but memory
     * (handles, offsets, immediates; results are views too) and answers a plan;
     * launch then finds it in call->plan.  The core keeps plans by structure:
     * kernel, device, dtypes, sizes, strides and the arguments that are neither
     * tensors nor numbers (Scalar, float); a bounded number, the least recently
     * used goes first, through plan_destroy.  That may come while work that was
     * launched with the plan still waits on a stream or lies in a graph: the
     * plugin keeps what that needs.  Any thread; one plan may be launched by
     * several. */
    core_status (*prepare)(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults, void **out_plan);
    void (*plan_destroy)(void *plan);
};
CORE_STATIC_ASSERT(sizeof(core_kernel) == 104, "core_kernel");

/* ------------------------------------------------------------ gradients -- */

enum {
    /* backward computes by means that are not recorded.  It runs with grad mode
     * off, and a derivative of its gradients is an error, never zero. */
    CORE_FUNCTION_ONCE_DIFFERENTIABLE = 1u << 0,
    /* grads may have NULL entries: those of outputs that nothing used. */
    CORE_FUNCTION_NO_ZEROS = 1u << 1
};

/* grads: borrowed.  gradients: all NULL when it is called; set those that are
 * wanted (core_node_needs_gradient) to owned tensors.  What it sets before it
 * fails is released. */
typedef core_status (*core_function_backward)(core_node *node, void *context,
                                              core_tensor *const *grads,
                                              size_t ngrads,
                                              core_tensor **gradients,
                                              size_t ngradients);

/* The gradient of an operator: setup says what backward will need, backward
 * computes by operators, so that it can be differentiated again. */
struct core_operator_gradient {
    uint32_t struct_size;
    uint32_t flags; /* CORE_FUNCTION_… */
    /* Called after the operator, when the call is recorded.  NULL: backward
     * needs nothing.  results: by result of the schema. */
    core_status (*setup)(core_function_context *function, void *user,
                         const core_value *args, uint32_t nargs,
                         const core_value *results, uint32_t nresults);
    /* grads: one per result tensor (lists flattened), then one per argument
     * that the schema says is changed and that is no result.  gradients: one
     * per tensor argument of the schema in its order, absent ones too, lists
     * flattened.  context: the state that setup set, else user. */
    core_function_backward backward;
    void *user;
};
CORE_STATIC_ASSERT(sizeof(core_operator_gradient) == 32,
                   "core_operator_gradient");

#ifdef __cplusplus
}
#endif
#endif
