/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* batched.h: tensors of many samples that look like one sample's, for
 * core_vmap (transform/).
 *
 * A batched tensor has the sizes of one sample and holds the tensor of all of
 * them, which may itself be batched by an outer call.  It has no storage: the
 * key CORE__KEY_BATCHED brings every operator call on it to transform/layer.c,
 * and what reads memory directly refuses it like a tensor of the meta device.
 * Its version is that of the tensor that it holds.
 *
 * A batched tensor whose samples are all equal may hold the tensor of one
 * sample.  It is then not mapped, but still belongs to the call, so that
 * autograd inside the call records it there and not in the graph outside. */

#ifndef CORE_TENSOR_BATCHED_H
#define CORE_TENSOR_BATCHED_H

#include "tensor/tensor.h"

enum { CORE__BATCH_NONE = 255 };

/* A running call of core_vmap.  It is on the stack of the call; other threads
 * use it only while the call waits for them. */
typedef struct core__batching {
    struct core__batching *outer; /* the call around it */
    uint64_t level;               /* greater than the outer's; used once */
    int64_t size;                 /* samples */
    uint32_t randomness;          /* CORE_VMAP_RANDOM_… */
    uint32_t excluded;            /* keys that the thread excluded before */
    /* > 0: a composite with a mapped operand runs, so new tensors that it fills
     * are mapped.  Atomic, as the engine's threads share it. */
    _Atomic uint32_t decomposing;
} core__batching;

/* The thread's state that leaving a call changes. */
typedef struct core__batching_state {
    core__batching *batching;
    uint32_t included, excluded;
} core__batching_state;

/* Puts the thread outside of a call of core_vmap, and back. */
core__batching_state core__batching_leave(core__thread *self,
                                          const core__batching *batching);
void core__batching_return(core__thread *self, core__batching_state before);

static inline bool core__tensor_is_batched(const core_tensor *tensor)
{
    return tensor->flags & CORE__TENSOR_BATCHED;
}

static inline bool core__batched_is_mapped(const core_tensor *tensor)
{
    return tensor->batch_dim != CORE__BATCH_NONE;
}

/* Wraps held; dim: its dimension of the samples, or CORE__BATCH_NONE.  Retains
 * held. */
core_status core__batched_new(core_tensor *held, uint32_t dim, uint64_t level,
                              core_tensor **out_tensor);
/* Makes a batched tensor hold another tensor, with its sizes and layout: for
 * changes in place.  Retains held. */
core_status core__batched_replace(core_tensor *batched, core_tensor *held,
                                  uint32_t dim);
/* Makes a new alias of a batched tensor batched like it. */
void core__batched_share(core_tensor *alias, const core_tensor *source)
    __attribute__((cold));
/* Inside core_vmap: replaces *tensor by one that belongs to the innermost call,
 * so that autograd records it there.  Otherwise does nothing.  The caller's
 * reference moves to the new tensor. */
core_status core__batched_lift(core_tensor **tensor);
/* Inside core_vmap, whether autograd of the innermost call has no history of
 * the tensor: it may have one outside. */
bool core__batched_joins(const core_tensor *tensor);
/* For what reads or hands out memory: reports that a batched tensor has
 * none. */
core_status core__batched_error(void) __attribute__((cold));
/* The version of what a tensor without storage holds, never 0 if it is
 * batched. */
uint32_t core__batched_version(const core_tensor *tensor)
    __attribute__((cold, pure));
/* The same for every tensor: differs after each change in place. */
static inline uint32_t core__content_version(const core_tensor *tensor)
{
    return core__likely(tensor->storage != NULL)
               ? core__tensor_version(tensor)
               : core__batched_version(tensor);
}
/* The tensor that a batched tensor which is not mapped holds: its elements may
 * be read.  Other tensors are returned as they are. */
static inline core_tensor *core__batched_shared(core_tensor *tensor)
{
    while (core__tensor_is_batched(tensor) && !core__batched_is_mapped(tensor))
        tensor = tensor->held;
    return tensor;
}
/* The elements of all samples, in some order of dimensions. */
static inline core_tensor *core__batched_elements(core_tensor *tensor)
{
    while (core__tensor_is_batched(tensor))
        tensor = tensor->held;
    return tensor;
}
/* Whether the tensor has no elements.  A batched tensor has some: those of the
 * tensor that it holds. */
static inline bool core__tensor_is_on_meta(const core_tensor *tensor)
{
    return core__tensor_is_meta(tensor) && !core__tensor_is_batched(tensor);
}
/* Whether the tensor that a batched tensor holds requires grad: operators on it
 * are recorded outside of the call. */
bool core__batched_held_needs_grad(const core_tensor *tensor);

#endif
