/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* saved.h: values saved from the forward for a formula.
 *
 * A leaf is saved as it is.  Any other tensor is saved as an alias on the same
 * storage, with the edge to its history beside it: a node never owns a tensor
 * that owns the node, and a tensor that is changed in place later does not
 * affect the node.  Version numbers detect whether the content is still what
 * was saved. */

#ifndef CORE_AUTOGRAD_SAVED_H
#define CORE_AUTOGRAD_SAVED_H

#include "autograd/graph/node.h"
#include "autograd/graph/saved_hooks.h"

typedef enum core__saved_kind {
    CORE__SAVED_NONE,
    CORE__SAVED_VALUE, /* not a tensor; lists are in the node's block */
    CORE__SAVED_TENSOR,
    CORE__SAVED_RESULT, /* a result of the node's own forward */
    CORE__SAVED_LIST,   /* u.pointer: count elements of core__saved */
    CORE__SAVED_STALE,  /* was a tensor, changed in place since and released */
    CORE__SAVED_PACKED  /* u.pointer: core__packed, a program has the content */
} core__saved_kind;

struct core__saved {
    core_value value;
    core_node *grad_fn; /* history of an alias; referenced, except for RESULT */
    uint32_t version;
    uint16_t output; /* LIST: whether any element is PACKED */
    uint16_t kind;
};

/* Saves a tensor.  `original`, if not NULL, is the content before the operator
 * changed `tensor` in place; the history is the tensor's in both cases. */
core_status core__saved_tensor(core__saved *saved, core_tensor *tensor,
                               core_tensor *original);
/* result `output` of the node that owns the slot */
core_status core__saved_result(core__saved *saved, core_tensor *tensor,
                               uint32_t output, bool differentiable);
core_status core__saved_list(core__saved *saved, core_tensor *const *tensors,
                             uint32_t count);
void core__saved_release(core__saved *saved);

/* Whether unpacking calls the program, which must not happen under the lock. */
static inline bool core__saved_is_packed(const core__saved *saved)
{
    return saved->kind == CORE__SAVED_PACKED ||
           (saved->kind == CORE__SAVED_LIST && saved->output);
}

/* Whether its value is what core__saved_unpack would return. */
static inline bool core__saved_is_ready(const core__saved *saved, bool history)
{
    if (saved->kind == CORE__SAVED_VALUE)
        return true;
    return (saved->kind == CORE__SAVED_TENSOR ||
            saved->kind == CORE__SAVED_RESULT) &&
           !history &&
           core__tensor_version(saved->value.u.tensor) == saved->version;
}

/* Fills out_value (borrowed from the slot) from a slot that is not packed.  If
 * history is needed (grad mode on), aliases get theirs, and a saved result
 * becomes a new tensor, appended to temporaries.  The node's lock is held. */
core_status core__saved_unpack(core_node *node, core__saved *saved,
                               bool history, core_value *out_value,
                               core_tensor **temporaries,
                               uint32_t *ntemporaries);
/* The same for a tensor that no node saved, with history; name is for the
 * message. */
core_status core__saved_unpack_named(const char *name, core__saved *saved,
                                     core_value *out_value);

#endif
