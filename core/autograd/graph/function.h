/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* function.h: what the setup step of a custom function collects. */

#ifndef CORE_AUTOGRAD_FUNCTION_H
#define CORE_AUTOGRAD_FUNCTION_H

#include "tensor/tensor.h"

#include <libcore/function.h>

typedef struct core__tensor_list {
    core_tensor **tensors;
    size_t count;
} core__tensor_list;

struct core_function_context {
    /* With references: setup may release a tensor as soon as it has named it. */
    core__tensor_list saved, dirty, non_differentiable;
    bool was_saved;
    bool no_zeros;
    bool has_state;
    void *state;
    void (*release)(void *state);
    _Atomic uint64_t *recorded; /* counts the nodes; NULL: not counted */
};

/* Adds a tensor, without a reference. */
core_status core__tensor_list_add(core__tensor_list *list, core_tensor *tensor);
/* Adds a tensor to a list of a context, with a reference. */
core_status core__context_keep(core__tensor_list *list, core_tensor *tensor);
/* Releases the tensors, and the state if it was not taken over. */
void core__context_end(core_function_context *context);

/* Records a call as setup described it; takes ownership of the state. */
core_status core__context_record(core_function_context *context,
                                 core_function_info *info,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *outputs, size_t noutputs);

/* core_function_record with that count. */
core_status core__function_record(const core_function_info *given,
                                  _Atomic uint64_t *recorded,
                                  core_tensor *const *inputs, size_t ninputs,
                                  core_tensor *const *saved, size_t nsaved,
                                  core_tensor *const *outputs, size_t noutputs,
                                  core_node **out_node);

/* Returns INVALID_ARGUMENT for a capacity of 0: callbacks write their first
 * output without checking it. */
core_status core__function_check_capacity(const char *name, size_t capacity);
/* Calls a program's function.  Returns INVALID_ARGUMENT unless it returns at
 * least one output, at most *noutputs, none of them NULL.  On failure outputs
 * are released and NULL, *noutputs is 0, and the message starts with `name`. */
core_status core__function_call(const char *name, core_tensor_function function,
                                void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs);

#endif
