/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* hooks.h: program callbacks on gradients and nodes. */

#ifndef CORE_AUTOGRAD_HOOKS_H
#define CORE_AUTOGRAD_HOOKS_H

#include "autograd/graph/node.h"

#include <libcore/autograd.h>

typedef enum core__hook_kind {
    CORE__HOOK_TENSOR,     /* on the gradient of one result */
    CORE__HOOK_ACCUMULATE, /* after a leaf's grad was updated */
    CORE__HOOK_NODE_PRE,
    CORE__HOOK_NODE_POST,
    CORE__HOOK_RETAINED /* never runs: shared by a tensor and its node
                         * (retain_grad.h) */
} core__hook_kind;

struct core_hook {
    core_hook *next;
    _Atomic uint32_t references; /* one of the list, one of the handle */
    _Atomic bool removed;
    uint8_t kind;
    uint16_t reserved;
    uint32_t output;
    union {
        core_tensor_hook tensor;
        core_accumulate_hook accumulate;
        core_node_pre_hook pre;
        core_node_post_hook post;
    } function;
    void *context;
    void (*drop)(void *context);
};

/* A result that retains its gradient (retain_grad.h). */
typedef struct core__retained_grad core__retained_grad;
typedef struct core__retained_output {
    core__retained_grad *what; /* referenced */
    uint32_t output;
} core__retained_output;

struct core__node_hooks {
    core_hook *first;
    core__retained_output *retained;
    uint32_t count;
    uint32_t walks; /* number of active walks */
    _Atomic uint8_t lock;
    struct core__anomaly_place_record
        *place; /* anomaly.h: where the forward was; or NULL */
};

/* The hooks of a leaf or a node.  While a walk is active, no hook is unlinked:
 * a hook may remove itself and register others, and the walk continues.  Hooks
 * registered during a walk are not run by it. */
typedef struct core__hook_list {
    core_hook **first;
    uint32_t *walks;
    _Atomic uint8_t *lock; /* protects both and the links */
} core__hook_list;

static inline core__hook_list core__hooks_of_leaf(core__autograd_meta *meta)
{
    return (core__hook_list){&meta->hooks, &meta->walks, &meta->lock};
}

static inline core__hook_list core__hooks_of_node(core__node_hooks *hooks)
{
    return (core__hook_list){&hooks->first, &hooks->walks, &hooks->lock};
}

core_status core__node_hooks_make(core_node *node,
                                  core__node_hooks **out_hooks);
void core__node_hooks_destroy(core_node *node);
/* Drops a whole list. */
void core__hooks_drop(core_hook *first);

core_status core__hooks_add(core__hook_list list, const core_hook *what,
                            core_hook **out_handle);
/* True if the list has hooks that were not removed. */
bool core__hooks_active(core__hook_list list);
/* Changes with each hook that is removed. */
extern _Atomic uint32_t core__hooks_removed;
/* The beginning of the error of a backward that is recorded and reaches a tensor
 * from before the recording that has hooks. */
#define CORE__HOOKS_REFUSED "a tensor that is not an input has hooks"
/* what: the public function, for the message. */
core_status core__hooks_check_requires_grad(const core_tensor *tensor,
                                            const char *what);

/* Hooks may replace gradients. */
core_status core__hooks_run_tensor(core__hook_list list, uint32_t output,
                                   core_tensor **grad);
core_status core__hooks_run_pre(core_node *node, core_tensor **grads);
core_status core__hooks_run_post(core_node *node, core_tensor *const *grads,
                                 core_tensor **gradients);
core_status core__hooks_run_accumulate(core_tensor *leaf);

#endif
