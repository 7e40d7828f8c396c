/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Convolution layers of one to three dimensions. */

#include "nn/module.h"

#include "base/error.h"

#include <libcore/ops.h>

#include <math.h>

static core_status convolved(const core_nn_conv_options *o, core_tensor *x,
                             core_tensor *weight, core_tensor *bias,
                             core_tensor **out)
{
    size_t n = o->dims;

    return core_convolution(x, weight, bias, o->stride, n, o->padding, n,
                            o->dilation, n, o->transposed, o->output_padding, n,
                            o->groups, out);
}

static core_status conv_forward(core_module *module, void *context,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t *noutputs)
{
    const core_nn_conv_options *o = context;
    core_tensor *weight = core__module_tensor(module, "weight");
    core_tensor *bias = core__module_tensor(module, "bias");
    core_tensor *x, *batch = NULL, *y = NULL;
    core_status status;

    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    if (core_tensor_ndim(x) != o->dims + 1)
        return core__module_one_output(convolved(o, x, weight, bias, &y), &y,
                                       outputs, noutputs);
    CORE_TRY(core_unsqueeze(x, 0, &batch));
    status = convolved(o, batch, weight, bias, &y);
    core_tensor_release(batch);
    batch = y;
    y = NULL;
    if (status == CORE_OK)
        status = core_squeeze_dim(batch, 0, &y);
    core_tensor_release(batch);
    return core__module_one_output(status, &y, outputs, noutputs);
}

/* Numbers of each dimension, and the least that they may be. */
static CORE__ONCE core_status check_least(const core_nn_conv_options *o,
                                          const char *function,
                                          const char *name,
                                          const int64_t *numbers, int64_t least)
{
    for (uint32_t i = 0; i < o->dims; i++)
        if (numbers[i] < least)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: %s[%u] is %lld; it must be at least %lld",
                               function, name, i, (long long)numbers[i],
                               (long long)least);
    return CORE_OK;
}

static CORE__ONCE core_status check_numbers(const core_nn_conv_options *o,
                                            const char *function)
{
    CORE_TRY(check_least(o, function, "stride", o->stride, 1));
    CORE_TRY(check_least(o, function, "padding", o->padding, 0));
    CORE_TRY(check_least(o, function, "dilation", o->dilation, 1));
    return check_least(o, function, "output_padding", o->output_padding, 0);
}

static CORE__ONCE core_status check(const core_nn_conv_options *o)
{
    if (o->dims < 1 || o->dims > 3)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_conv: dims is %u; it must be 1, 2 or 3",
                           o->dims);
    if (o->groups < 1 || o->in_channels < 1 || o->out_channels < 1 ||
        o->in_channels % o->groups || o->out_channels % o->groups)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_conv: groups is %lld, in_channels %lld and "
                           "out_channels %lld; groups must divide both",
                           (long long)o->groups, (long long)o->in_channels,
                           (long long)o->out_channels);
    CORE_TRY(check_least(o, "core_nn_conv", "kernel_size", o->kernel_size, 1));
    return check_numbers(o, "core_nn_conv");
}

/* Fills in what is 0. */
static CORE__ONCE void complete(core_nn_conv_options *o)
{
    int64_t *const lists[] = {o->kernel_size, o->stride, o->padding,
                              o->dilation, o->output_padding};

    if (o->stride[0] == 0)
        o->stride[0] = 1;
    if (o->dilation[0] == 0)
        o->dilation[0] = 1;
    if (o->groups == 0)
        o->groups = 1;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (int i = 1; i < 3; i++)
            if (lists[k][i] == 0)
                lists[k][i] = lists[k][0];
    for (int i = 1; i < 3; i++) {
        if (o->padding[i] == -1)
            o->padding[i] = 0;
        if (o->output_padding[i] == -1)
            o->output_padding[i] = 0;
    }
}

CORE__ONCE bool core_x_apply_conv_complete_at(
    const char *where, const core_nn_conv_options *options, size_t dims,
    core_nn_conv_options *out_options)
{
    core_status status;

    *out_options = *options;
    out_options->dims = (uint32_t)dims;
    complete(out_options);
    status = check_numbers(out_options, "core_x_apply_conv");
    return core_scope_check_at(where, "core_x_apply_conv", status) == CORE_OK;
}

static CORE__ONCE core_status conv_made(core_module *module,
                                        const core_nn_conv_options *o,
                                        const core_nn_options *options)
{
    int64_t sizes[5] = {o->out_channels, o->in_channels / o->groups};
    double bound;

    if (o->transposed) {
        sizes[0] = o->in_channels;
        sizes[1] = o->out_channels / o->groups;
    }
    bound = (double)sizes[1];
    for (uint32_t i = 0; i < o->dims; i++) {
        sizes[2 + i] = o->kernel_size[i];
        bound *= (double)o->kernel_size[i];
    }
    bound = 1 / sqrt(bound);
    CORE_TRY(core__module_make(module, "weight", sizes, 2 + o->dims,
                               CORE__UNIFORM, bound, options));
    return o->no_bias ? CORE_OK
                      : core__module_make(module, "bias", &o->out_channels, 1,
                                          CORE__UNIFORM, bound, options);
}

CORE__ONCE core_status core_nn_conv(const core_nn_conv_options *conv,
                                    const core_nn_options *options,
                                    core_module **out_module)
{
    core_nn_conv_options own;
    core_module *module;

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(conv);
    if (conv->struct_size < sizeof *conv)
        return core__error_struct_size(__func__, "core_nn_conv_options",
                                       conv->struct_size, sizeof *conv);
    own = *conv;
    complete(&own);
    CORE_TRY(check(&own));
    CORE_TRY(core__module_create(own.transposed ? "ConvTranspose" : "Conv",
                                 conv_forward, &own, sizeof own, &module));
    return core__module_finish(conv_made(module, &own, options), module,
                               out_module);
}
