/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later rooms that tensor calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_TENSOR_UPCALLS_H
#define CORE_TENSOR_UPCALLS_H

#include "tensor/tensor.h"

struct core__tensor_upcalls {
    /* Frees the autograd record of a tensor that is being destroyed.  Returns
     * the reference to the node that created the tensor, or NULL. */
    core_node *(*autograd_take)(core__thread *self, core_tensor *tensor);
    /* Releases such a reference. */
    void (*node_drop)(core_node *node);
    /* Called when the sizes of a tensor with an autograd record have
     * changed. */
    void (*autograd_relayout)(core_tensor *tensor);
    /* Drops the tensor's history. */
    void (*history_drop)(core_tensor *tensor);
};

extern const struct core__tensor_upcalls core__tensor_upcalls;

#endif
