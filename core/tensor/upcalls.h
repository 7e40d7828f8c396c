/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that tensor calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_TENSOR_UPCALLS_H
#define CORE_TENSOR_UPCALLS_H

#include "tensor/tensor.h"

struct core__tensor_upcalls {
    /* Destroys a tensor that has an autograd record, and releases the node
     * that created it. */
    void (*destroy_recorded)(core__thread *self, core_tensor *tensor);
    /* Called when the sizes of a tensor with an autograd record have
     * changed. */
    void (*autograd_relayout)(core_tensor *tensor);
    /* Called for a new tensor on the storage of a traced one, which may be of a
     * lazy region. */
    void (*alias_traced)(core_tensor *tensor);
    /* What a traced tensor stands for.  *out_lost: it never has content. */
    const char *(*traced_origin)(const core_tensor *tensor, bool *out_lost);
    /* Drops the tensor's history. */
    void (*history_drop)(core_tensor *tensor);
};

extern const struct core__tensor_upcalls core__tensor_upcalls;

#endif
