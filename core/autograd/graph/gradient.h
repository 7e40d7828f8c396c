/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gradient.h: what the generator makes of an operator's `backward:` entry, and
 * what its formula receives when a node runs. */

#ifndef CORE_AUTOGRAD_GRADIENT_H
#define CORE_AUTOGRAD_GRADIENT_H

#include "dispatch/operator.h"

typedef struct core_node core_node; /* autograd/node.h */

/* What is kept from the forward for a formula.  `needed_by`: mask of the
 * gradients (by index) whose formula reads it; it is not saved when none of
 * them is wanted. */
typedef enum core__saving_kind {
    CORE__SAVE_ARGUMENT, /* the tensor (or list of tensors) at `position` */
    CORE__SAVE_RESULT,   /* the result at `position` */
    CORE__SAVE_SIZES,    /* sizes of the argument: an INT_LIST; NONE if absent;
                            of a list of tensors: for each its ndim, then its
                            sizes */
    CORE__SAVE_DTYPE,    /* dtype of the argument */
    CORE__SAVE_NDIM,     /* INT */
    CORE__SAVE_VALUE,    /* the argument itself, no tensor; lists are copied */
    CORE__SAVE_DEVICE,   /* DEVICE: where the argument lies */
    CORE__SAVE_LAYOUT    /* an INT_LIST: offset, sizes, strides */
} core__saving_kind;

typedef struct core__saving {
    uint8_t kind;
    uint8_t position;
    uint16_t apart; /* 1: the argument is a list or a string */
    uint32_t needed_by;
} core__saving;

typedef struct core__backward core__backward;

/* Constant; one per differentiable functional operator. */
struct core__gradient {
    const char *name;   /* of the node: "add.Tensor backward" */
    uint8_t ngradients; /* differentiable tensor arguments */
    uint8_t nsaved;
    uint8_t arguments[8]; /* their positions, in order; a list counts once and
                             has one edge per element */
    uint32_t results;     /* mask of differentiable results */
    const core__saving *saved;
    /* Writes context->gradients; on failure what it wrote is released by the
     * caller.  NULL for arguments without formula: see `undefined`. */
    core_status (*backward)(core__backward *context);
};

/* What a formula sees.  Gradients of results are borrowed; a formula for an
 * operator with several results gets zeros where one is undefined; with one
 * result it is not called without it. */
struct core__backward {
    core_node *node;
    const core__gradient *gradient;
    core_tensor *const *grads; /* by result */
    core_tensor **gradients;   /* out, one per edge (lists flattened); owned */
    uint32_t needed;           /* mask by gradient index */
    const uint8_t *needed_edges; /* by edge, for lists */
    const core_value *values;    /* by saved row: unpacked: TENSOR borrowed
                                    (NONE if absent or not saved), or value */
    uint32_t first_edge[8];      /* of each gradient */
    uint32_t edge_count[8];      /* 1, or the list's length */
    /* Owned temporaries, released by the caller when the formula returns. */
    core_tensor *temporaries[40]; /* unpacked values, then the formula's */
    uint32_t ntemporaries;
    struct core__unpacked *lists; /* tensors that were packed, in lists */
};

#endif
