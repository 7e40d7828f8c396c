/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* hooks.h: a program's callbacks on gradients and nodes, and retained grads. */

#ifndef CORE_AUTOGRAD_HOOKS_H
#define CORE_AUTOGRAD_HOOKS_H

#include "autograd/node.h"

#include <libcore/autograd.h>

typedef enum core__hook_kind {
    CORE__HOOK_TENSOR,     /* on the gradient of one result */
    CORE__HOOK_ACCUMULATE, /* after a leaf's grad was updated */
    CORE__HOOK_NODE_PRE,
    CORE__HOOK_NODE_POST
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

/* A result that wants its gradient stored; it clears the entry when it dies. */
typedef struct core__retained {
    core_tensor *tensor; /* not referenced; NULL: free entry */
    uint32_t output;
} core__retained;

struct core__node_hooks {
    core_hook *first;
    core__retained *retained;
    uint32_t count;
    uint32_t walks; /* how many run the hooks now */
    _Atomic uint8_t lock;
    struct core__place *place; /* anomaly.h: where the forward was; or NULL */
};

/* A leaf's hooks or a node's.  While any walk is on, nothing leaves the list:
 * a hook may remove itself and register others, and the walk goes on.  What is
 * registered during a walk is not run by it. */
typedef struct core__hook_list {
    core_hook **first;
    uint32_t *walks;
    _Atomic uint8_t *lock; /* of both, and of the links */
} core__hook_list;

static inline core__hook_list core__hooks_of_leaf(core__autograd *record)
{
    return (core__hook_list){&record->hooks, &record->walks, &record->lock};
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

/* The tensor's gradient is stored when `node` gets it for `output`. */
core_status core__hooks_retain_grad(core_node *node, uint32_t output,
                                    core_tensor *tensor);
void core__hooks_forget_tensor(core_node *node, core_tensor *tensor);
/* The tensor, which retains its grad, becomes result `output` of another node;
 * NULL: of none. */
core_status core__hooks_move_retained(core_tensor *tensor, core_node *node,
                                      uint32_t output);

/* Each may replace gradients. */
core_status core__hooks_run_tensor(core__hook_list list, uint32_t output,
                                   core_tensor **grad);
core_status core__hooks_run_retained(core_node *node, core_tensor **grads);
core_status core__hooks_run_pre(core_node *node, core_tensor **grads);
core_status core__hooks_run_post(core_node *node, core_tensor *const *grads,
                                 core_tensor **gradients);
core_status core__hooks_run_accumulate(core_tensor *leaf);

#endif
