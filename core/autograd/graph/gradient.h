/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gradient.h: what the generator emits for an operator's `backward:` entry, and
 * what the formula receives when a node runs. */

#ifndef CORE_AUTOGRAD_GRADIENT_H
#define CORE_AUTOGRAD_GRADIENT_H

#include "dispatch/operator.h"

typedef struct core_node core_node; /* autograd/graph/node.h */

/* A value kept from the forward for a formula.  `needed_by`: mask of the
 * gradients (by index) whose formula reads it; it is not saved if none of them
 * is needed. */
typedef enum core__saving_kind {
    CORE__SAVE_ARGUMENT, /* the tensor (or list of tensors) at `position` */
    CORE__SAVE_RESULT,   /* the result at `position` */
    CORE__SAVE_SIZES,    /* the argument's sizes: an INT_LIST; NONE if absent;
                          * for a list of tensors: ndim and sizes of each */
    CORE__SAVE_DTYPE,    /* the argument's dtype */
    CORE__SAVE_NDIM,     /* INT */
    CORE__SAVE_VALUE,  /* the argument itself, not a tensor; lists are copied */
    CORE__SAVE_DEVICE, /* DEVICE: the argument's device */
    CORE__SAVE_LAYOUT  /* an INT_LIST: offset, sizes, strides */
} core__saving_kind;

typedef struct core__saving {
    uint8_t kind;
    uint8_t position;
    uint16_t is_array; /* 1: the argument is a list or a string */
    uint32_t needed_by;
} core__saving;

typedef struct core__formula_context core__formula_context;

/* Constant; one per differentiable functional operator. */
struct core__gradient {
    const char *name;   /* of the node: "add.Tensor backward" */
    uint8_t ngradients; /* differentiable tensor arguments */
    uint8_t nsaved;
    uint8_t arguments[8]; /* their positions, in order; a list counts once and
                           * has one edge per element */
    uint32_t results;     /* mask of differentiable results */
    const core__saving *saved;
    /* Writes context->gradients; on failure the caller releases what it wrote.
     * NULL for arguments without a formula: see `undefined`. */
    core_status (*backward)(core__formula_context *context);
};

/* A formula's view of the node.  Gradients of results are borrowed.  A formula
 * for an operator with several results gets zeros for undefined ones; with one
 * result it is not called without its gradient. */
struct core__formula_context {
    core_node *node;
    const core__gradient *gradient;
    core_tensor *const *grads; /* by result */
    core_tensor **gradients;   /* out, one per edge (lists flattened); owned */
    uint32_t needed;           /* mask by gradient index */
    const uint8_t *needed_edges; /* by edge, for lists */
    const core_value *values;    /* by saved row, unpacked: a borrowed TENSOR
                                  * (NONE if absent or not saved), or a value */
    uint32_t first_edge[8];      /* of each gradient */
    uint32_t edge_count[8];      /* 1, or the list's length */
    /* Owned temporaries, released by the caller when the formula returns. */
    core_tensor *temporaries[40]; /* unpacked values, then the formula's */
    uint32_t ntemporaries;
    struct core__unpacked *lists; /* unpacked tensors of lists */
};

#endif
