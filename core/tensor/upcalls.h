/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of higher rooms that tensor calls (base/upcalls.h
 * says why). */

#ifndef CORE_TENSOR_UPCALLS_H
#define CORE_TENSOR_UPCALLS_H

#include "tensor/tensor.h"

struct core__tensor_upcalls {
    /* Destroys a tensor that has an autograd record, and releases the node
     * that made it. */
    void (*destroy_recorded)(core__thread *self, core_tensor *tensor);
    /* The sizes of a tensor that has an autograd record changed. */
    void (*autograd_relayout)(core_tensor *tensor);
    /* Forgets how the tensor was made. */
    void (*history_drop)(core_tensor *tensor);
};

extern const struct core__tensor_upcalls core__tensor_upcalls;

#endif
