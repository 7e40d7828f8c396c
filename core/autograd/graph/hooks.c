/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Registers, walks and removes hooks of tensors and nodes. */

#include "autograd/graph/hooks.h"

#include "autograd/graph/anomaly.h"
#include "base/callback.h"
#include "autograd/graph/retain_grad.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

#include <string.h>

/* --------------------------------------------------------------- objects -- */

static void hook_release(core_hook *hook)
{
    if (atomic_fetch_sub(&hook->references, 1) != 1)
        return;
    if (hook->drop)
        hook->drop(hook->context);
    core__free(hook);
}

void core_hook_release(core_hook *hook)
{
    if (hook)
        hook_release(hook);
}

_Atomic uint32_t core__hooks_removed;

void core_hook_remove(core_hook *hook)
{
    if (!hook)
        return;
    atomic_store(&hook->removed, true);
    atomic_fetch_add(&core__hooks_removed, 1);
    hook_release(hook);
}

void core__hooks_drop(core_hook *first)
{
    while (first) {
        core_hook *next = first->next;

        hook_release(first);
        first = next;
    }
}

/* Called with the list locked.  Unlinks removed hooks if no walk is active; the
 * caller drops them after it has released the lock.  Returns the place where
 * the next hook is linked. */
static core_hook **purge(core__hook_list list, core_hook **out_removed)
{
    core_hook **link = list.first;

    while (*link) {
        core_hook *hook = *link;

        if (*list.walks == 0 && atomic_load(&hook->removed)) {
            *link = hook->next;
            hook->next = *out_removed;
            *out_removed = hook;
        } else {
            link = &hook->next;
        }
    }
    return link;
}

core_status core__hooks_add(core__hook_list list, const core_hook *what,
                            core_hook **out_handle)
{
    core_hook *hook = core__alloc(sizeof *hook);
    core_hook *removed = NULL;

    if (!hook)
        return core__error_memory(sizeof *hook);
    memcpy(hook, what, sizeof *hook);
    hook->next = NULL;
    atomic_init(&hook->references, out_handle ? 2 : 1);
    atomic_init(&hook->removed, false);
    core__byte_lock(list.lock);
    *purge(list, &removed) = hook;
    core__byte_unlock(list.lock);
    core__hooks_drop(removed);
    if (out_handle)
        *out_handle = hook;
    return CORE_OK;
}

bool core__hooks_active(core__hook_list list)
{
    core_hook *removed = NULL;
    bool active = false;

    core__byte_lock(list.lock);
    purge(list, &removed);
    for (const core_hook *hook = *list.first; hook; hook = hook->next)
        active = active || !atomic_load(&hook->removed);
    core__byte_unlock(list.lock);
    core__hooks_drop(removed);
    return active;
}

/* Several threads may need it at once; one of them creates it. */
core_status core__node_hooks_make(core_node *node, core__node_hooks **out_hooks)
{
    core__node_hooks *none = NULL, *created;

    *out_hooks = atomic_load(&node->hooks);
    if (*out_hooks)
        return CORE_OK;
    created = core__alloc_zero(sizeof *created);
    if (!created)
        return core__error_memory(sizeof *created);
    if (atomic_compare_exchange_strong(&node->hooks, &none, created)) {
        *out_hooks = created;
        return CORE_OK;
    }
    core__free(created);
    *out_hooks = none;
    return CORE_OK;
}

void core__node_hooks_destroy(core_node *node)
{
    core__node_hooks *hooks = atomic_exchange(&node->hooks, NULL);

    core__hooks_drop(hooks->first);
    core__retain_grad_free(hooks);
    core__anomaly_place_destroy(hooks->place);
    core__free(hooks);
}

/* ------------------------------------------------------------ registering -- */

core_status core__hooks_check_requires_grad(const core_tensor *tensor,
                                            const char *what)
{
    if (!tensor)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the tensor is NULL", what);
    if (core__tensor_needs_grad(tensor))
        return CORE_OK;
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "%s: the tensor does not require grad, so it never has a gradient",
        what);
}

static core_status check_given(bool given, const char *what)
{
    if (given)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the node or the function is NULL", what);
}

core_status core_tensor_register_hook(core_tensor *tensor,
                                      core_tensor_hook function, void *context,
                                      void (*drop)(void *context),
                                      core_hook **out_hook)
{
    core_hook hook = {.kind = CORE__HOOK_TENSOR,
                      .function.tensor = function,
                      .context = context,
                      .drop = drop};
    core__autograd_meta *meta;
    core__node_hooks *hooks;
    core_status status;
    core__edge edge;

    if (out_hook)
        *out_hook = NULL;
    CORE_TRY(
        core__hooks_check_requires_grad(tensor, "core_tensor_register_hook"));
    CORE_TRY(check_given(function != NULL, "core_tensor_register_hook"));
    if (core__tensor_is_leaf(tensor)) {
        CORE_TRY(core__autograd_meta_of(tensor, &meta));
        return core__hooks_add(core__hooks_of_leaf(meta), &hook, out_hook);
    }
    CORE_TRY(core__gradient_edge(tensor, &edge));
    hook.output = edge.input;
    status = core__node_hooks_make(edge.node, &hooks);
    if (status == CORE_OK)
        status = core__hooks_add(core__hooks_of_node(hooks), &hook, out_hook);
    core__node_release(edge.node);
    return status;
}

core_status core_tensor_register_accumulate_hook(core_tensor *tensor,
                                                 core_accumulate_hook function,
                                                 void *context,
                                                 void (*drop)(void *context),
                                                 core_hook **out_hook)
{
    core_hook hook = {.kind = CORE__HOOK_ACCUMULATE,
                      .function.accumulate = function,
                      .context = context,
                      .drop = drop};
    core__autograd_meta *meta;

    if (out_hook)
        *out_hook = NULL;
    CORE_TRY(core__hooks_check_requires_grad(
        tensor, "core_tensor_register_accumulate_hook"));
    CORE_TRY(
        check_given(function != NULL, "core_tensor_register_accumulate_hook"));
    if (!core__tensor_is_leaf(tensor))
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "core_tensor_register_accumulate_hook: the tensor is the result of "
            "an operator; only leaves accumulate gradients");
    CORE_TRY(core__autograd_meta_of(tensor, &meta));
    return core__hooks_add(core__hooks_of_leaf(meta), &hook, out_hook);
}

static core_status node_hook_add(core_node *node, const core_hook *hook,
                                 core_hook **out_hook)
{
    core__node_hooks *hooks;

    CORE_TRY(core__node_hooks_make(node, &hooks));
    return core__hooks_add(core__hooks_of_node(hooks), hook, out_hook);
}

core_status core_node_register_pre_hook(core_node *node,
                                        core_node_pre_hook function,
                                        void *context,
                                        void (*drop)(void *context),
                                        core_hook **out_hook)
{
    core_hook hook = {.kind = CORE__HOOK_NODE_PRE,
                      .function.pre = function,
                      .context = context,
                      .drop = drop};

    if (out_hook)
        *out_hook = NULL;
    CORE_TRY(check_given(node && function, "core_node_register_pre_hook"));
    return node_hook_add(node, &hook, out_hook);
}

core_status core_node_register_post_hook(core_node *node,
                                         core_node_post_hook function,
                                         void *context,
                                         void (*drop)(void *context),
                                         core_hook **out_hook)
{
    core_hook hook = {.kind = CORE__HOOK_NODE_POST,
                      .function.post = function,
                      .context = context,
                      .drop = drop};

    if (out_hook)
        *out_hook = NULL;
    CORE_TRY(check_given(node && function, "core_node_register_post_hook"));
    return node_hook_add(node, &hook, out_hook);
}

/* ---------------------------------------------------------------- running -- */

static core_status replace(core_tensor **grad, core_tensor *other)
{
    core_tensor *old = *grad;
    bool same =
        other->dtype == old->dtype && other->ndim == old->ndim &&
        other->device == old->device &&
        memcmp(other->sizes, old->sizes, old->ndim * sizeof *old->sizes) == 0;

    if (!same) {
        core__tensor_release(other);
        return core__error(CORE_ERROR_AUTOGRAD,
                           "a hook replaced a gradient by one with different "
                           "sizes, dtype or device");
    }
    if (other->storage != old->storage && atomic_load(&other->references) == 1)
        other->flags |= CORE__TENSOR_PROGRAM_MEMORY;
    *grad = other;
    core__tensor_release(old);
    return CORE_OK;
}

/* A pass through a list, up to its end at the time when the pass began. */
typedef struct walk {
    core__hook_list list;
    core_hook *next;
    core_hook *last;
    uint32_t errors; /* the thread's error count before the hook that runs */
} walk;

static void walk_begin(walk *walk, core__hook_list list)
{
    walk->list = list;
    core__byte_lock(list.lock);
    walk->next = *list.first;
    walk->last = walk->next;
    while (walk->last && walk->last->next)
        walk->last = walk->last->next;
    ++*list.walks;
    core__byte_unlock(list.lock);
}

/* The next hook of this kind; NULL: none. */
static core_hook *walk_next(walk *walk, core__hook_kind kind)
{
    core_hook *hook = walk->next;

    while (hook && (hook->kind != kind || atomic_load(&hook->removed)))
        hook = hook == walk->last ? NULL : hook->next;
    walk->next = hook && hook != walk->last ? hook->next : NULL;
    walk->errors = core__thread_self()->error.sequence;
    return hook;
}

static core_status walk_end(walk *walk, core_status status)
{
    core_hook *removed = NULL;

    core__byte_lock(walk->list.lock);
    --*walk->list.walks;
    purge(walk->list, &removed);
    core__byte_unlock(walk->list.lock);
    core__hooks_drop(removed);
    return status;
}

core_status core__hooks_run_tensor(core__hook_list list, uint32_t output,
                                   core_tensor **grad)
{
    core_status status = CORE_OK;
    core_hook *hook;
    walk walk;

    walk_begin(&walk, list);
    while (status == CORE_OK && *grad &&
           (hook = walk_next(&walk, CORE__HOOK_TENSOR)) != NULL) {
        core_tensor *other = NULL;

        if (hook->output != output)
            continue;
        status = core__callback_status(
            walk.errors, hook->function.tensor(hook->context, *grad, &other),
            NULL);
        if (status == CORE_OK && other)
            status = replace(grad, other);
        else
            core__tensor_release(other);
    }
    return walk_end(&walk, status);
}

static core_status replaced_error(uint32_t index, const core__tensor_meta *meta,
                                  const core_tensor *grad)
{
    char given[256], expected[256];

    return core__error(
        CORE_ERROR_AUTOGRAD,
        "a hook replaced gradient %u by one of %s with sizes %s on \"%s\"; it "
        "must be of %s with sizes %s on \"%s\"",
        index, core__dtype_name(grad->dtype),
        core__sizes_text(grad->ndim, grad->sizes, given, sizeof given),
        grad->device->name, core__dtype_name(meta->dtype),
        core__sizes_text(meta->ndim, meta->sizes, expected, sizeof expected),
        meta->device->name);
}

/* A replaced gradient must match the original. */
static core_status check_replaced(const core_node *node,
                                  core_tensor *const *grads)
{
    for (uint32_t i = 0; i < node->ninputs; i++) {
        const core__tensor_meta *meta = &node->inputs[i];
        const core_tensor *grad = grads[i];

        if (grad && (grad->dtype != meta->dtype || grad->ndim != meta->ndim ||
                     grad->device != meta->device ||
                     memcmp(grad->sizes, meta->sizes,
                            grad->ndim * sizeof *grad->sizes) != 0))
            return replaced_error(i, meta, grad);
    }
    return CORE_OK;
}

core_status core__hooks_run_pre(core_node *node, core_tensor **grads)
{
    core_status status = CORE_OK;
    core_hook *hook;
    walk walk;

    walk_begin(&walk, core__hooks_of_node(node->hooks));
    while (status == CORE_OK &&
           (hook = walk_next(&walk, CORE__HOOK_NODE_PRE)) != NULL) {
        status = core__callback_status(
            walk.errors,
            hook->function.pre(hook->context, node, grads, node->ninputs),
            NULL);
        if (status == CORE_OK)
            status = check_replaced(node, grads);
    }
    return walk_end(&walk, status);
}

core_status core__hooks_run_post(core_node *node, core_tensor *const *grads,
                                 core_tensor **gradients)
{
    core_status status = CORE_OK;
    core_hook *hook;
    walk walk;

    walk_begin(&walk, core__hooks_of_node(node->hooks));
    while (status == CORE_OK &&
           (hook = walk_next(&walk, CORE__HOOK_NODE_POST)) != NULL)
        status = core__callback_status(
            walk.errors,
            hook->function.post(hook->context, node, grads, node->ninputs,
                                gradients, node->nedges),
            NULL);
    return walk_end(&walk, status);
}

core_status core__hooks_run_accumulate(core_tensor *leaf)
{
    core_status status = CORE_OK;
    core_hook *hook;
    walk walk;

    walk_begin(&walk, core__hooks_of_leaf(leaf->autograd));
    while (status == CORE_OK &&
           (hook = walk_next(&walk, CORE__HOOK_ACCUMULATE)) != NULL)
        status = core__callback_status(
            walk.errors, hook->function.accumulate(hook->context, leaf), NULL);
    return walk_end(&walk, status);
}
