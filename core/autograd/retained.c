/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/retained.h"

#include "autograd/calls.h"
#include "base/memory.h"
#include "device/stream.h"

#include <libcore/memory.h>

struct core__retention {
    _Atomic uint32_t references; /* the tensor's list of hooks, the node's */
    _Atomic uint8_t lock;        /* of the next, and of its grad */
    core_tensor *tensor;         /* not referenced; NULL: gone */
};

static void retention_release(void *context)
{
    core__retention *retention = context;

    if (atomic_fetch_sub(&retention->references, 1) == 1)
        core__free(retention);
}

/* -------------------------------------------------------- tensor and node -- */

static bool is_gone(core__retention *retention)
{
    bool gone;

    core__spin_lock(&retention->lock);
    gone = !retention->tensor;
    core__spin_unlock(&retention->lock);
    return gone;
}

/* Takes over one reference.  Entries of tensors that are gone are used again. */
static core_status list_add(core__node_hooks *hooks, core__retention *what,
                            uint32_t output)
{
    core__retention *gone = NULL;
    core__retained *more = NULL;
    uint32_t i = 0;

    core__spin_lock(&hooks->lock);
    while (i < hooks->count && !is_gone(hooks->retained[i].what))
        i++;
    if (i < hooks->count) {
        gone = hooks->retained[i].what;
        more = hooks->retained;
    } else if ((more = core__realloc(hooks->retained,
                                     (i + 1) * sizeof *more)) != NULL) {
        hooks->retained = more;
        hooks->count++;
    }
    if (more)
        more[i] = (core__retained){what, output};
    core__spin_unlock(&hooks->lock);
    if (gone)
        retention_release(gone);
    if (more)
        return CORE_OK;
    retention_release(what);
    return core__error_memory((i + 1) * sizeof *more);
}

core_status core__retained_add(core_tensor *tensor, core_node *node,
                               uint32_t output)
{
    core_hook hook = {.kind = CORE__HOOK_RETAINED, .drop = retention_release};
    core__retention *retention;
    core__node_hooks *hooks;
    core__autograd *record;
    core_status status;

    CORE_TRY(core__autograd_record(tensor, &record));
    CORE_TRY(core__node_hooks_make(node, &hooks));
    retention = core__alloc(sizeof *retention);
    if (!retention)
        return core__error_memory(sizeof *retention);
    atomic_init(&retention->references, 2);
    atomic_init(&retention->lock, 0);
    retention->tensor = tensor;
    hook.context = retention;
    status = core__hooks_add(core__hooks_of_leaf(record), &hook, NULL);
    if (status != CORE_OK) {
        core__free(retention);
        return status;
    }
    status = list_add(hooks, retention, output);
    record->retains_grad = true;
    if (status != CORE_OK)
        core__retained_forget(tensor);
    return status;
}

void core__retained_forget(core_tensor *tensor)
{
    core__autograd *record = tensor->autograd;

    core__spin_lock(&record->lock);
    for (core_hook *hook = record->hooks; hook; hook = hook->next) {
        core__retention *retention = hook->context;

        if (hook->kind != CORE__HOOK_RETAINED || atomic_load(&hook->removed))
            continue;
        core__spin_lock(&retention->lock);
        retention->tensor = NULL;
        core__spin_unlock(&retention->lock);
        atomic_store(&hook->removed, true);
    }
    core__spin_unlock(&record->lock);
    record->retains_grad = false;
}

core_status core__retained_move(core_tensor *tensor, core_node *node,
                                uint32_t output)
{
    core__retained_forget(tensor);
    return node ? core__retained_add(tensor, node, output) : CORE_OK;
}

core_status core_tensor_retain_grad(core_tensor *tensor)
{
    core_status status = CORE_OK;
    core__edge edge;

    CORE_TRY(core__hooks_must_require_grad(tensor, "core_tensor_retain_grad"));
    if (core__is_leaf(tensor))
        return CORE_OK; /* leaves keep theirs anyway */
    CORE_TRY(core__gradient_edge(tensor, &edge));
    if (!tensor->autograd->retains_grad)
        status = core__retained_add(tensor, edge.node, edge.input);
    core__node_release(edge.node);
    return status;
}

void core__retained_drop(core__node_hooks *hooks)
{
    for (uint32_t i = 0; i < hooks->count; i++)
        retention_release(hooks->retained[i].what);
    core__free(hooks->retained);
}

/* ---------------------------------------------------------------- running -- */

/* The tensor's grad becomes `grad`, if it still is `old`.  What is to be dropped
 * afterwards is given back: that may be another such tensor. */
static bool exchange(core__retention *retention, core_tensor *old,
                     core_tensor *grad, core_tensor **out_drop)
{
    core_tensor *tensor;
    bool done;

    *out_drop = NULL;
    core__spin_lock(&retention->lock);
    tensor = retention->tensor;
    done = !tensor || tensor->autograd->grad == old;
    if (tensor && done) {
        *out_drop = old;
        core__tensor_retain(grad);
        tensor->autograd->grad = grad;
    }
    core__spin_unlock(&retention->lock);
    return done;
}

/* Referenced; *out_alive: there is a tensor to have one. */
static core_tensor *grad_of(core__retention *retention, bool *out_alive)
{
    core_tensor *grad = NULL;

    core__spin_lock(&retention->lock);
    *out_alive = retention->tensor != NULL;
    if (*out_alive && (grad = retention->tensor->autograd->grad) != NULL)
        core__tensor_retain(grad);
    core__spin_unlock(&retention->lock);
    return grad;
}

static core_status sum_of(core_tensor *old, core_tensor *grad,
                          core_tensor **out_sum)
{
    *out_sum = NULL;
    /* As for a leaf's: it may be of another stream, and go soon. */
    if (!old->device->synchronous)
        CORE_TRY(
            core_tensor_record_stream(old, core__stream_current(old->device)));
    return core__ag_add(old, grad, out_sum);
}

/* Adding calls operators, so nothing is held meanwhile, nor can the tensor be:
 * who holds the last reference counts on that.  Another backward may have been
 * faster then; it is added to that. */
static core_status store(core__retention *retention, core_tensor *grad)
{
    core_status status = CORE_OK;
    bool done = false, alive;

    while (!done && status == CORE_OK) {
        core_tensor *old = grad_of(retention, &alive);
        core_tensor *sum = grad, *dropped = NULL;

        if (!alive)
            return CORE_OK;
        if (old)
            status = sum_of(old, grad, &sum);
        if (status == CORE_OK)
            done = exchange(retention, old, sum, &dropped);
        if (old)
            core__tensor_release(sum);
        core__tensor_release(dropped);
        core__tensor_release(old);
    }
    return status;
}

core_status core__retained_run(core_node *node, core_tensor **grads)
{
    core__node_hooks *hooks = node->hooks;
    core_status status = CORE_OK;

    for (uint32_t i = 0; status == CORE_OK; i++) {
        core__retained at = {0};

        core__spin_lock(&hooks->lock);
        if (i < hooks->count) {
            at = hooks->retained[i];
            atomic_fetch_add(&at.what->references, 1);
        }
        core__spin_unlock(&hooks->lock);
        if (!at.what)
            break;
        if (grads[at.output])
            status = store(at.what, grads[at.output]);
        retention_release(at.what);
    }
    return status;
}
