/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_tensor_retain_grad: gradients of results that are kept in the tensor. */

#include "autograd/graph/retain_grad.h"

#include "autograd/graph/autograd_ops.h"
#include "autograd/graph/gradient_order.h"
#include "base/memory.h"
#include "device/stream.h"

#include <libcore/memory.h>

struct core__retained_grad {
    _Atomic uint32_t references; /* the tensor's hook list, the node's */
    _Atomic uint8_t lock;        /* protects the tensor pointer and the tensor's
                                  * grad */
    core_tensor *tensor;         /* not referenced; NULL: destroyed */
};

static void retention_release(void *context)
{
    core__retained_grad *retention = context;

    if (atomic_fetch_sub(&retention->references, 1) == 1)
        core__free(retention);
}

/* -------------------------------------------------------- tensor and node -- */

static bool is_unused(core__retained_grad *retention)
{
    bool unused;

    core__byte_lock(&retention->lock);
    unused = !retention->tensor;
    core__byte_unlock(&retention->lock);
    return unused;
}

/* Takes over one reference.  Entries of destroyed tensors are reused. */
static core_status list_add(core__node_hooks *hooks, core__retained_grad *what,
                            uint32_t output)
{
    core__retained_grad *unused = NULL;
    core__retained_output *more = NULL;
    uint32_t i = 0;

    core__byte_lock(&hooks->lock);
    while (i < hooks->count && !is_unused(hooks->retained[i].what))
        i++;
    if (i < hooks->count) {
        unused = hooks->retained[i].what;
        more = hooks->retained;
    } else if ((more = core__realloc(hooks->retained,
                                     (i + 1) * sizeof *more)) != NULL) {
        hooks->retained = more;
        hooks->count++;
    }
    if (more)
        more[i] = (core__retained_output){what, output};
    core__byte_unlock(&hooks->lock);
    if (unused)
        retention_release(unused);
    if (more)
        return CORE_OK;
    retention_release(what);
    return core__error_memory((i + 1) * sizeof *more);
}

core_status core__retain_grad_add(core_tensor *tensor, core_node *node,
                                  uint32_t output)
{
    core_hook hook = {.kind = CORE__HOOK_RETAINED, .drop = retention_release};
    core__retained_grad *retention;
    core__node_hooks *hooks;
    core__autograd_meta *meta;
    core_status status;

    CORE_TRY(core__autograd_meta_of(tensor, &meta));
    CORE_TRY(core__node_hooks_make(node, &hooks));
    retention = core__alloc(sizeof *retention);
    if (!retention)
        return core__error_memory(sizeof *retention);
    atomic_init(&retention->references, 2);
    atomic_init(&retention->lock, 0);
    retention->tensor = tensor;
    hook.context = retention;
    status = core__hooks_add(core__hooks_of_leaf(meta), &hook, NULL);
    if (status != CORE_OK) {
        core__free(retention);
        return status;
    }
    status = list_add(hooks, retention, output);
    meta->retains_grad = true;
    if (status != CORE_OK)
        core__retain_grad_stop(tensor);
    return status;
}

void core__retain_grad_stop(core_tensor *tensor)
{
    core__autograd_meta *meta = tensor->autograd;

    core__byte_lock(&meta->lock);
    for (core_hook *hook = meta->hooks; hook; hook = hook->next) {
        core__retained_grad *retention = hook->context;

        if (hook->kind != CORE__HOOK_RETAINED || atomic_load(&hook->removed))
            continue;
        core__byte_lock(&retention->lock);
        retention->tensor = NULL;
        core__byte_unlock(&retention->lock);
        atomic_store(&hook->removed, true);
    }
    core__byte_unlock(&meta->lock);
    meta->retains_grad = false;
}

core_status core__retain_grad_move(core_tensor *tensor, core_node *node,
                                   uint32_t output)
{
    core__retain_grad_stop(tensor);
    return node ? core__retain_grad_add(tensor, node, output) : CORE_OK;
}

core_status core_tensor_retain_grad(core_tensor *tensor)
{
    core_status status = CORE_OK;
    core__edge edge;

    CORE_TRY(
        core__hooks_check_requires_grad(tensor, "core_tensor_retain_grad"));
    if (core__tensor_is_leaf(tensor))
        return CORE_OK; /* leaves keep theirs anyway */
    CORE_TRY(core__gradient_edge(tensor, &edge));
    if (!tensor->autograd->retains_grad)
        status = core__retain_grad_add(tensor, edge.node, edge.input);
    core__node_release(edge.node);
    return status;
}

void core__retain_grad_free(core__node_hooks *hooks)
{
    for (uint32_t i = 0; i < hooks->count; i++)
        retention_release(hooks->retained[i].what);
    core__free(hooks->retained);
}

/* ---------------------------------------------------------------- running -- */

/* The current gradient, referenced, and the stream that wrote it, or NULL. */
typedef struct state {
    core_tensor *grad;
    core_stream *written;
    bool alive; /* the tensor still exists */
} state;

static void state_release(state *state)
{
    core__tensor_release(state->grad);
    core_stream_release(state->written);
    *state = (struct state){0};
}

static state state_of(core__retained_grad *retention)
{
    core__autograd_meta *meta;
    state now = {0};

    core__byte_lock(&retention->lock);
    now.alive = retention->tensor != NULL;
    if (now.alive) {
        meta = retention->tensor->autograd;
        if ((now.grad = meta->grad) != NULL)
            core__tensor_retain(now.grad);
        if ((now.written = meta->written) != NULL)
            core_stream_retain(now.written);
    }
    core__byte_unlock(&retention->lock);
    return now;
}

/* Replaces the tensor's grad with `grad` if it still is `old`.  Returns what
 * must be released afterwards, which may be another such tensor. */
static bool exchange(core__retained_grad *retention, core_tensor *old,
                     core_tensor *grad, state *out_drop)
{
    core__autograd_meta *meta;
    core_stream *current = NULL;
    bool done;

    if (!grad->device->synchronous)
        current = core__stream_current(grad->device);
    core__byte_lock(&retention->lock);
    meta = retention->tensor ? retention->tensor->autograd : NULL;
    done = !meta || meta->grad == old;
    if (meta && done) {
        out_drop->grad = meta->grad;
        out_drop->written = meta->written;
        core__tensor_retain(grad);
        meta->grad = grad;
        if (current)
            core_stream_retain(current);
        meta->written = current;
    }
    core__byte_unlock(&retention->lock);
    return done;
}

static core_status sum_of(const state *before, core_tensor *grad,
                          core_tensor **out_sum)
{
    core_tensor *old = before->grad;

    *out_sum = NULL;
    /* As for a leaf's grad: it may belong to another stream and be released
     * soon. */
    if (!old->device->synchronous) {
        if (before->written)
            CORE_TRY(core__gradient_order_wait(before->written));
        CORE_TRY(
            core_tensor_record_stream(old, core__stream_current(old->device)));
    }
    return core__autograd_op_add(old, grad, out_sum);
}

/* Adding calls operators, so nothing is locked meanwhile, and the tensor is not
 * retained: its last owner counts on that.  If another backward was faster, its
 * result is added to instead. */
static core_status store(core__retained_grad *retention, core_tensor *grad)
{
    core_status status = CORE_OK;
    bool done = false;

    while (!done && status == CORE_OK) {
        state before = state_of(retention), dropped = {0};
        core_tensor *sum = grad;

        if (!before.alive)
            return CORE_OK;
        if (before.grad)
            status = sum_of(&before, grad, &sum);
        if (status == CORE_OK)
            done = exchange(retention, before.grad, sum, &dropped);
        if (before.grad)
            core__tensor_release(sum);
        state_release(&dropped);
        state_release(&before);
    }
    return status;
}

core_status core__retain_grad_run(core_node *node, core_tensor **grads)
{
    core__node_hooks *hooks = node->hooks;
    core_status status = CORE_OK;

    for (uint32_t i = 0; status == CORE_OK; i++) {
        core__retained_output at = {0};

        core__byte_lock(&hooks->lock);
        if (i < hooks->count) {
            at = hooks->retained[i];
            atomic_fetch_add(&at.what->references, 1);
        }
        core__byte_unlock(&hooks->lock);
        if (!at.what)
            break;
        if (grads[at.output])
            status = store(at.what, grads[at.output]);
        retention_release(at.what);
    }
    return status;
}
