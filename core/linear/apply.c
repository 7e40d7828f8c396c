/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fused Linear in autograd: the tensors that setup saves are saved by the
 * node, which checks their versions and releases them; the other arguments of
 * backward are the node's context. */

#include "autocast/autocast.h"
#include "autograd/engine/destination.h"
#include "base/error.h"
#include "base/memory.h"
#include "linear/linear.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

enum { SAVED = 7, SAVED_PLAIN = 2, SAVED_ACTIVATED = 3 };

/* A node's context.  The node holds the tensors in the first `saved` slots of
 * args; all tensors in args are NULL here. */
typedef struct state {
    core_linear_backward_args args;
    int saved;
} state;

/* The tensor slots of args, the most common ones first. */
static void saved_slots(core_linear_backward_args *args,
                        core_tensor **out_slots[SAVED])
{
    out_slots[0] = &args->input;
    out_slots[1] = &args->weight;
    out_slots[2] = &args->activated;
    out_slots[3] = &args->input_data;
    out_slots[4] = &args->input_scales;
    out_slots[5] = &args->weight_data;
    out_slots[6] = &args->weight_scales;
}

static void release_state(void *context)
{
    state *own = context;

    core_linear_backward_release(&own->args);
    core__free(own);
}

/* If the program gave a destination for the weight's gradient, uses it as the
 * main gradient. */
static bool use_destination(const core_node *node,
                            core_linear_backward_args *args)
{
    core_tensor *input = args->input ? args->input : args->input_data;
    core_tensor *buffer;
    core_dtype wide;
    bool accumulate;

    if (!args->weight_requires_grad || args->main_grad || args->wgrad_queue)
        return false;
    buffer = core__destination_buffer(node, 1, &accumulate);
    /* The dtype of the product; a buffer that is narrower needs a copy. */
    wide = args->input ? args->dtype : CORE_F32;
    if (!buffer || !input || core_float8_max(buffer->dtype) ||
        core_dtype_promote(buffer->dtype, wide) != buffer->dtype ||
        !core_tensor_is_contiguous(buffer, CORE_FORMAT_CONTIGUOUS) ||
        buffer->storage == input->storage ||
        buffer->storage == args->grad_output->storage)
        return false;
    args->main_grad = buffer;
    args->flags |= accumulate ? CORE_LINEAR_ACCUMULATE : 0;
    return true;
}

/* args: as setup left them, without the tensors that the node holds. */
static core_status run_backward(core_node *node,
                                core_linear_backward_args *args, int saved,
                                core_tensor *const *grads,
                                core_tensor **gradients, size_t ngradients)
{
    core_tensor **slots[SAVED], *bias = NULL;
    core_status status = CORE_OK;
    bool taken = false;

    saved_slots(args, slots);
    for (int i = 0; i < saved && status == CORE_OK; i++)
        status = core_node_saved(node, (size_t)i, slots[i]);
    args->grad_output = grads[0];
    args->input_requires_grad = core_node_needs_gradient(node, 0);
    args->weight_requires_grad = core_node_needs_gradient(node, 1);
    args->bias_requires_grad =
        ngradients > 2 && core_node_needs_gradient(node, 2);
    if (status == CORE_OK) {
        taken = use_destination(node, args);
        status =
            core_linear_backward(args, &gradients[0], &gradients[1], &bias);
    }
    if (status == CORE_OK && taken)
        core__destination_written(node, 1);
    if (ngradients > 2)
        gradients[2] = bias;
    for (int i = 0; i < saved; i++)
        core_tensor_release(*slots[i]);
    return status;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const state *own = context;
    core_linear_backward_args args = own->args;

    (void)ngrads;
    return run_backward(node, &args, own->saved, grads, gradients, ngradients);
}

/* Without quantizers, main gradient and queue, backward needs only the
 * activation besides the node's tensors; the context points to it. */
static const uint32_t activations[] = {CORE_LINEAR_NO_ACTIVATION,
                                       CORE_LINEAR_RELU, CORE_LINEAR_GELU};

static core_status backward_plain(core_node *node, void *context,
                                  core_tensor *const *grads, size_t ngrads,
                                  core_tensor **gradients, size_t ngradients)
{
    core_linear_backward_args args = {
        .struct_size = sizeof args,
        .activation = *(const uint32_t *)context,
        .dtype = core_tensor_dtype(grads[0]),
    };

    (void)ngrads;
    return run_backward(node, &args,
                        args.activation ? SAVED_ACTIVATED : SAVED_PLAIN, grads,
                        gradients, ngradients);
}

static bool is_plain(const core_linear_forward_args *args)
{
    return !args->input_quantizer && !args->main_grad && !args->wgrad_queue;
}

static core_status record_plain(const core_linear_forward_args *args,
                                const core_linear_intermediates *made,
                                core_tensor *output)
{
    core_tensor *inputs[3] = {args->input, args->weight, args->bias};
    core_tensor *const saved[SAVED_ACTIVATED] = {
        args->weight_requires_grad ? args->input : NULL,
        args->input_requires_grad ? args->weight : NULL, made->activated};
    const core_function_info info = {
        .struct_size = sizeof info,
        /* The input of gelu is saved without its history. */
        .flags = args->activation == CORE_LINEAR_GELU
                     ? CORE_FUNCTION_ONCE_DIFFERENTIABLE
                     : 0,
        .name = "linear",
        .backward = backward_plain,
        .context = (void *)(uintptr_t)&activations[args->activation],
    };

    return core_function_record(
        &info, inputs, args->bias ? 3 : 2, saved,
        args->activation ? SAVED_ACTIVATED : SAVED_PLAIN, &output, 1, NULL);
}

/* Takes ownership of own. */
static core_status record(const core_linear_forward_args *args, state *own,
                          core_tensor *output)
{
    core_tensor *inputs[3] = {args->input, args->weight, args->bias};
    core_tensor **slots[SAVED], *saved[SAVED];
    core_function_info info = {
        .struct_size = sizeof info,
        .flags = CORE_FUNCTION_ONCE_DIFFERENTIABLE,
        .name = "linear",
        .backward = backward,
        .context = own,
        .release = release_state,
    };
    core_status status;
    int count;

    saved_slots(&own->args, slots);
    count = args->input_quantizer ? SAVED
            : own->args.activated ? SAVED_ACTIVATED
                                  : SAVED_PLAIN;
    own->saved = count;
    for (int i = 0; i < count; i++) {
        saved[i] = *slots[i];
        *slots[i] = NULL;
    }
    status = core_function_record(&info, inputs, args->bias ? 3 : 2, saved,
                                  (size_t)count, &output, 1, NULL);
    for (int i = 0; i < count; i++)
        core_tensor_release(saved[i]);
    return status;
}

static uint32_t wanted(core_tensor *tensor)
{
    return tensor && core_grad_mode() && core_tensor_requires_grad(tensor);
}

/* In an autocast region the operands are cast to its dtype, as the linear
 * operator's are, and the casts are recorded.  With quantizers, everything is
 * cast to the weight's dtype, and the weight is quantized uncast.  Results are
 * owned where they were cast, else NULL. */
static core_status autocast_operands(const core_linear_forward_args *args,
                                     core_tensor *low[3])
{
    core_tensor *given[3] = {args->input, args->weight, args->bias};
    core__thread *self = core__thread_self();
    core_dtype dtype;

    if (!args->input || !args->weight)
        return CORE_OK; /* the forward reports it */
    dtype = core_autocast_dtype(core_tensor_device(args->input));
    if (dtype && args->input_quantizer)
        dtype = core_tensor_dtype(args->weight);
    for (int i = 0; i < 3 && dtype; i++)
        if (given[i] && given[i]->dtype != dtype &&
            core_dtype_is_floating(given[i]->dtype) &&
            given[i]->dtype != CORE_F64 && !core_float8_max(given[i]->dtype))
            CORE_TRY(core__autocast_cast(self, given[i], dtype, &low[i]));
    return CORE_OK;
}

/* A delayed gradient would go into a grad that no backward propagates
 * further. */
static core_status check_leaf(const core_linear_forward_args *args,
                              core_tensor *weight)
{
    if (!args->wgrad_queue || args->main_grad || !args->weight_requires_grad ||
        core_tensor_is_leaf(weight))
        return CORE_OK;
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "linear: the weight is the result of an operator, whose gradient "
        "cannot be delayed; with a queue and no main_grad it must be a leaf");
}

/* What a computed forward records. */
static core_status keep_state(const core_linear_forward_args *args,
                              const core_linear_intermediates *made,
                              core_tensor *leaf, core_tensor *output)
{
    state *own;

    if (!args->input_requires_grad && !args->weight_requires_grad &&
        !args->bias_requires_grad)
        return CORE_OK; /* nothing is saved */
    if (is_plain(args))
        return record_plain(args, made, output);
    own = core__alloc_zero(sizeof *own);
    if (!own)
        return core__error_memory(sizeof *own);
    core__linear_setup(args, made, &own->args);
    if (own->args.leaf && own->args.leaf != leaf) {
        core_tensor_release(own->args.leaf);
        own->args.leaf = core_tensor_retain(leaf);
    }
    return record(args, own, output);
}

static core_status forward(const core_linear_forward_args *args,
                           core_tensor *leaf, core_tensor **out_output)
{
    core_linear_intermediates made = {.struct_size = sizeof made};
    core_status status = core__linear_compute(args, out_output, &made);

    if (status == CORE_OK)
        status = keep_state(args, &made, leaf, *out_output);
    core_linear_intermediates_release(
        &made); /* the state has taken what it needs */
    return status;
}

/* args: the tensors to compute with; leaf: the weight as the caller passed
 * it. */
static core_status apply(core_linear_forward_args *args, core_tensor *leaf,
                         core_tensor **out_output)
{
    core__linear_mark mark;
    core_status status;

    args->input_requires_grad = wanted(args->input);
    args->weight_requires_grad = wanted(args->weight);
    args->bias_requires_grad = wanted(args->bias);
    CORE_TRY(check_leaf(args, leaf));
    CORE_TRY(core__linear_check(args));
    if (!args->input_quantizer)
        return forward(args, leaf, out_output);
    /* Recording may fail after the computation succeeded. */
    core__linear_mark_set(args, &mark);
    status = forward(args, leaf, out_output);
    core__linear_mark_end(args, &mark, status == CORE_OK);
    return status;
}

core_status core_linear_apply(const core_linear_forward_args *given,
                              core_tensor **out_output)
{
    core_tensor *low[3] = {NULL, NULL, NULL};
    core_linear_forward_args args;
    core_status status;

    CORE__NOT_NULL(out_output);
    *out_output = NULL;
    CORE__NOT_NULL(given);
    if (given->struct_size < sizeof args)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_linear_forward_args: struct_size is %u; it must be %zu",
            given->struct_size, sizeof args);
    args = *given;
    status = autocast_operands(given, low);
    args.input = low[0] ? low[0] : given->input;
    args.weight = low[1] ? low[1] : given->weight;
    args.bias = low[2] ? low[2] : given->bias;
    if (status == CORE_OK)
        status = apply(&args, given->weight, out_output);
    if (status != CORE_OK) {
        core_tensor_release(*out_output);
        *out_output = NULL;
    }
    for (int i = 0; i < 3; i++)
        core_tensor_release(low[i]);
    return status;
}
