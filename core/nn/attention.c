/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Attention of several heads: of a sequence to itself, or to another one. */

#include "nn/module.h"

#include "base/error.h"

#include <libcore/expressions.h>
#include <libcore/ops.h>

/* x projected, as heads: [N, heads, L, size] */
static core_tensor *heads_of(core_module *module, const char *child,
                             core_tensor *x, int64_t heads)
{
    core_tensor *y = core_x_module(core_module_child(module, child), x);

    if (!y)
        return NULL;
    y = core_x_reshape(y, CORE_SIZES(core_tensor_sizes(y)[0],
                                     core_tensor_sizes(y)[1], heads,
                                     core_tensor_sizes(y)[2] / heads));
    return core_x_transpose(y, 1, 2);
}

static core_status check_inputs(const core_nn_attention_options *o,
                                core_tensor *const *inputs, size_t ninputs)
{
    char text[128];

    if (ninputs < 1 || ninputs > 3 || !inputs[0])
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "an Attention was called with %zu inputs%s; it "
            "accepts one of 3 dimensions, and optionally a "
            "mask, and a memory of 3 dimensions",
            ninputs,
            ninputs < 1 || inputs[0] ? "" : ", of which the first is NULL");
    for (size_t i = 0; i < ninputs; i += 2) {
        const core_tensor *x = inputs[i];

        if (x &&
            (core_tensor_ndim(x) != 3 || core_tensor_sizes(x)[2] != o->size))
            return core__error(
                core_tensor_ndim(x) == 3 ? CORE_ERROR_SHAPE
                                         : CORE_ERROR_INVALID_ARGUMENT,
                "the %s has sizes %s; it must have 3 dimensions: samples, "
                "positions and %lld features",
                i == 0 ? "input" : "memory",
                core__sizes_text(core_tensor_ndim(x), core_tensor_sizes(x),
                                 text, sizeof text),
                (long long)o->size);
    }
    return CORE_OK;
}

static core_status attention_forward(core_module *module, void *context,
                                     core_tensor *const *inputs, size_t ninputs,
                                     core_tensor **outputs, size_t *noutputs)
{
    const core_nn_attention_options *o = context;
    core_tensor *x = ninputs > 0 ? inputs[0] : NULL;
    core_tensor *mask = ninputs > 1 ? inputs[1] : NULL;
    core_tensor *memory = ninputs > 2 ? inputs[2] : NULL;
    core_tensor *from = memory ? memory : x;
    core_tensor *q, *k, *v, *y = NULL;
    core_scope scope;

    CORE_TRY(check_inputs(o, inputs, ninputs));
    scope = core_scope_begin();
    q = heads_of(module, "q_proj", x, o->heads);
    k = heads_of(module, "k_proj", from, o->key_heads);
    v = heads_of(module, "v_proj", from, o->key_heads);
    core_scope_own(
        core_scaled_dot_product_attention(
            q, k, v, mask, core_module_is_training(module) ? o->dropout : 0,
            o->causal && !mask && !memory, NULL, o->heads != o->key_heads, &y),
        &y);
    y = core_x_transpose(y, 1, 2);
    y = core_x_reshape(y, CORE_SIZES(core_tensor_sizes(x)[0],
                                     core_tensor_sizes(x)[1], o->size));
    y = core_x_module(core_module_child(module, "o_proj"), y);
    x = NULL;
    return core__module_one_output(core_scope_end_with(scope, y, &x), &x,
                                   outputs, noutputs);
}

static CORE__ONCE core_status add(core_module *module, const char *name,
                                  int64_t inputs, int64_t outputs, bool bias,
                                  const core_nn_options *options)
{
    core_nn_options own = {.struct_size = sizeof own};
    core_module *child = NULL;

    if (core__nn_weights(options)) {
        own.weights = core_module_child(options->weights, name);
        if (!own.weights)
            return core__error(CORE_ERROR_NOT_FOUND,
                               "the weights have no child \"%s\", which an "
                               "Attention needs",
                               name);
        options = &own;
    }
    return core_module_take_child(
        module, name, core__nn_linear(inputs, outputs, bias, options, &child),
        &child);
}

static CORE__ONCE core_status attention_made(core_module *module,
                                             const core_nn_attention_options *o,
                                             const core_nn_options *options)
{
    int64_t keys = o->size / o->heads * o->key_heads;

    CORE_TRY(add(module, "q_proj", o->size, o->size, o->bias, options));
    CORE_TRY(add(module, "k_proj", o->size, keys, o->bias, options));
    CORE_TRY(add(module, "v_proj", o->size, keys, o->bias, options));
    return add(module, "o_proj", o->size, o->size, o->bias, options);
}

CORE__ONCE core_status
core_nn_attention(const core_nn_attention_options *attention,
                  const core_nn_options *options, core_module **out_module)
{
    core_nn_attention_options own;
    core_module *module;

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(attention);
    if (attention->struct_size < sizeof own)
        return core__error_struct_size(__func__, "core_nn_attention_options",
                                       attention->struct_size, sizeof own);
    own = *attention;
    if (own.key_heads == 0)
        own.key_heads = own.heads;
    if (own.heads < 1 || own.size < 1 || own.size % own.heads ||
        own.heads % own.key_heads || !(own.dropout >= 0 && own.dropout <= 1))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: size is %lld, heads %u, key_heads %u and "
                           "dropout %g; heads must divide size, key_heads "
                           "heads, and dropout be from 0 to 1",
                           __func__, (long long)own.size, own.heads,
                           own.key_heads, own.dropout);
    CORE_TRY(core__module_create("Attention", attention_forward, &own,
                                 sizeof own, &module));
    return core__module_finish(attention_made(module, &own, options), module,
                               out_module);
}
