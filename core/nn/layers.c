/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Linear layers, embeddings, dropout, functions and sequences. */

#include "nn/module.h"

#include "base/error.h"

#include <libcore/ops.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------- parameters -- */

const core_module *core__nn_weights(const core_nn_options *options)
{
    /* Options of earlier versions have none. */
    return options && options->struct_size >= sizeof *options ? options->weights
                                                              : NULL;
}

static CORE__ONCE core_status options_of(const core_nn_options *options,
                                         core_dtype *dtype,
                                         core_device **device)
{
    const uint32_t least = offsetof(core_nn_options, weights);

    *dtype = CORE_F32;
    *device = NULL;
    if (!options)
        return CORE_OK;
    if (options->struct_size < least)
        return core__error_struct_size("core_nn", "core_nn_options",
                                       options->struct_size, least);
    if (options->dtype != CORE_DTYPE_NONE)
        *dtype = options->dtype;
    *device = options->device;
    return CORE_OK;
}

core_status core__module_check_sizes(const core_tensor *tensor,
                                     const char *name, const int64_t *sizes,
                                     size_t ndim)
{
    char own[128], wanted[128];

    if (core_tensor_ndim(tensor) == ndim &&
        (ndim == 0 ||
         memcmp(core_tensor_sizes(tensor), sizes, ndim * sizeof *sizes) == 0))
        return CORE_OK;
    return core__error(
        CORE_ERROR_SHAPE, "%s has sizes %s; it must have %s", name,
        core__sizes_text(core_tensor_ndim(tensor), core_tensor_sizes(tensor),
                         own, sizeof own),
        core__sizes_text((uint32_t)ndim, sizes, wanted, sizeof wanted));
}

/* Adds the tensor of this name of the weights. */
static CORE__ONCE core_status take(core_module *module, const char *name,
                                   const int64_t *sizes, size_t ndim,
                                   bool buffer, const core_module *weights)
{
    core_tensor *tensor = core__module_tensor(weights, name);

    if (!tensor)
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "the weights have no tensor \"%s\", which a %s needs", name,
            module->type);
    CORE_TRY(core__module_check_sizes(tensor, name, sizes, ndim));
    return buffer ? core_module_add_buffer(module, name, tensor)
                  : core__module_add_pending(module, name, tensor);
}

CORE__ONCE core_status core__module_make(core_module *module, const char *name,
                                         const int64_t *sizes, size_t ndim,
                                         core__content content, double number,
                                         const core_nn_options *options)
{
    const core_module *weights = core__nn_weights(options);
    core_dtype dtype;
    core_device *device;
    core_tensor *tensor = NULL;
    core_status status;

    CORE_TRY(options_of(options, &dtype, &device));
    for (size_t i = 0; i < ndim; i++)
        if (sizes[i] < 1)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "%s: size %zu of %s is %lld; it must be positive", module->type,
                i, name, (long long)sizes[i]);
    /* PyTorch has files without the counter, too. */
    if (weights &&
        (content != CORE__COUNTER || core__module_tensor(weights, name)))
        return take(module, name, sizes, ndim, content >= CORE__BUFFER,
                    weights);
    status =
        core_empty(sizes, ndim, content == CORE__COUNTER ? CORE_I64 : dtype,
                   device, -1, &tensor);
    if (status == CORE_OK && content == CORE__UNIFORM)
        status = core_uniform_(tensor, -number, number, NULL);
    else if (status == CORE_OK && content == CORE__NORMAL)
        status = core_normal_(tensor, 0, number, NULL);
    else if (status == CORE_OK)
        status = core_fill_(tensor, core_float(number));
    if (status == CORE_OK)
        status = content >= CORE__BUFFER
                     ? core_module_add_buffer(module, name, tensor)
                     : core_module_add_parameter(module, name, tensor);
    core_tensor_release(tensor);
    return status;
}

/* --------------------------------------------------------------- linear -- */

static core_status linear_forward(core_module *module, void *context,
                                  core_tensor *const *inputs, size_t ninputs,
                                  core_tensor **outputs, size_t *noutputs)
{
    core_tensor *x, *y = NULL;

    (void)context;
    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    return core__module_one_output(
        core_linear(x, core__module_tensor(module, "weight"),
                    core__module_tensor(module, "bias"), &y),
        &y, outputs, noutputs);
}

static CORE__ONCE core_status linear_made(core_module *module, int64_t inputs,
                                          int64_t outputs, bool bias,
                                          const core_nn_options *options)
{
    const int64_t sizes[2] = {outputs, inputs};
    double bound = 1 / sqrt((double)inputs);

    CORE_TRY(core__module_make(module, "weight", sizes, 2, CORE__UNIFORM, bound,
                               options));
    return bias ? core__module_make(module, "bias", sizes, 1, CORE__UNIFORM,
                                    bound, options)
                : CORE_OK;
}

CORE__ONCE core_status core__nn_linear(int64_t inputs, int64_t outputs,
                                       bool bias,
                                       const core_nn_options *options,
                                       core_module **out_module)
{
    core_status status;

    CORE_TRY(
        core_module_create("Linear", linear_forward, NULL, NULL, out_module));
    status = linear_made(*out_module, inputs, outputs, bias, options);
    if (status != CORE_OK) {
        core_module_release(*out_module);
        *out_module = NULL;
    }
    return status;
}

CORE__ONCE core_status core_nn_linear(int64_t inputs, int64_t outputs,
                                      bool bias, const core_nn_options *options,
                                      core_module **out_module)
{
    core_module *module;

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE_TRY(core__nn_linear(inputs, outputs, bias, options, &module));
    return core__module_finish(CORE_OK, module, out_module);
}

/* ------------------------------------------------------------ embedding -- */

static core_status embedding_forward(core_module *module, void *context,
                                     core_tensor *const *inputs, size_t ninputs,
                                     core_tensor **outputs, size_t *noutputs)
{
    const int64_t *padding = context;
    core_tensor *x, *y = NULL;

    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    return core__module_one_output(
        core_embedding(core__module_tensor(module, "weight"), x, *padding,
                       false, false, &y),
        &y, outputs, noutputs);
}

static core_status row_to_zero(core_tensor *weight, int64_t row)
{
    core_tensor *view = NULL;
    core_status status = core_select(weight, 0, row, &view);

    if (status == CORE_OK)
        status = core_zero_(view);
    core_tensor_release(view);
    return status;
}

static CORE__ONCE core_status embedding_made(core_module *module, int64_t count,
                                             int64_t size, int64_t padding,
                                             const core_nn_options *options)
{
    const int64_t sizes[2] = {count, size};
    core_status status;
    bool before;

    if (padding < -1 || padding >= count)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_embedding: padding is %lld; it must be -1, "
                           "or an index below count, %lld",
                           (long long)padding, (long long)count);
    CORE_TRY(core__module_make(module, "weight", sizes, 2, CORE__NORMAL, 1,
                               options));
    if (padding < 0 || core__nn_weights(options))
        return CORE_OK;
    before = core_grad_mode_set(false);
    status = row_to_zero(core__module_tensor(module, "weight"), padding);
    core_grad_mode_set(before);
    return status;
}

CORE__ONCE core_status core_nn_embedding(int64_t count, int64_t size,
                                         int64_t padding,
                                         const core_nn_options *options,
                                         core_module **out_module)
{
    core_module *module;

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE_TRY(core__module_create("Embedding", embedding_forward, &padding,
                                 sizeof padding, &module));
    return core__module_finish(
        embedding_made(module, count, size, padding, options), module,
        out_module);
}

/* -------------------------------------------------- without parameters -- */

static core_status dropout_forward(core_module *module, void *context,
                                   core_tensor *const *inputs, size_t ninputs,
                                   core_tensor **outputs, size_t *noutputs)
{
    const double *p = context;
    core_tensor *x, *y = NULL;

    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    return core__module_one_output(
        core_dropout(x, *p, core_module_is_training(module), &y), &y, outputs,
        noutputs);
}

CORE__ONCE core_status core_nn_dropout(double p, core_module **out_module)
{
    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    if (!(p >= 0 && p <= 1))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: p is %g; a probability must be from 0 to 1",
                           __func__, p);
    return core__module_create("Dropout", dropout_forward, &p, sizeof p,
                               out_module);
}

typedef core_status (*tensor_function)(core_tensor *input, core_tensor **out);

static core_status function_forward(core_module *module, void *context,
                                    core_tensor *const *inputs, size_t ninputs,
                                    core_tensor **outputs, size_t *noutputs)
{
    const tensor_function *function = context;
    core_tensor *x, *y = NULL;

    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    return core__module_one_output((*function)(x, &y), &y, outputs, noutputs);
}

CORE__ONCE core_status
core_nn_function(core_status (*function)(core_tensor *input, core_tensor **out),
                 core_module **out_module)
{
    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(function);
    return core__module_create("Function", function_forward, &function,
                               sizeof function, out_module);
}

typedef core_tensor *(*expression)(core_module *module, core_tensor *input);

static core_status expression_forward(core_module *module, void *context,
                                      core_tensor *const *inputs,
                                      size_t ninputs, core_tensor **outputs,
                                      size_t *noutputs)
{
    const expression *function = context;
    core_tensor *x, *y = NULL;
    core_status status;
    core_scope scope;

    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    scope = core_scope_begin();
    x = (*function)(module, x);
    status = x ? core_scope_end_with(scope, x, &y) : core_scope_end(scope);
    if (!x && status == CORE_OK)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "the function of this module returned NULL");
    return core__module_one_output(status, &y, outputs, noutputs);
}

CORE__ONCE core_status core_nn_expression(
    const char *type,
    core_tensor *(*function)(core_module *module, core_tensor *input),
    core_module **out_module)
{
    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(type);
    CORE__NOT_NULL(function);
    return core__module_create(type, expression_forward, &function,
                               sizeof function, out_module);
}

/* -------------------------------------------------------------- sequence -- */

static core_status sequential_forward(core_module *module, void *context,
                                      core_tensor *const *inputs,
                                      size_t ninputs, core_tensor **outputs,
                                      size_t *noutputs)
{
    core_tensor *x, *y = NULL;
    core_status status = CORE_OK;

    (void)context;
    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    core_tensor_retain(x);
    for (size_t i = 0; status == CORE_OK && i < module->count; i++) {
        if (module->members[i].kind != CORE__MEMBER_CHILD)
            continue;
        status = core_module_call(module->members[i].u.child, x, &y);
        core_tensor_release(x);
        x = y;
    }
    return core__module_one_output(status, &x, outputs, noutputs);
}

static CORE__ONCE core_status sequential_made(core_module *module,
                                              core_module *const *modules,
                                              size_t count)
{
    char name[24];

    for (size_t i = 0; i < count; i++) {
        if (!modules[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_nn_sequential: modules[%zu] is NULL", i);
        snprintf(name, sizeof name, "%zu", i);
        CORE_TRY(core_module_add_child(module, name, modules[i]));
    }
    return CORE_OK;
}

CORE__ONCE core_status core_nn_sequential(core_module *const *modules,
                                          size_t count,
                                          core_module **out_module)
{
    core_module *module = NULL;
    core_status status = CORE_OK;

    if (out_module)
        *out_module = NULL;
    if (count > 0)
        CORE__NOT_NULL(modules);
    if (!out_module)
        status = core__error_null("core_nn_sequential", "out_module");
    if (status == CORE_OK)
        status = core_module_create("Sequential", sequential_forward, NULL,
                                    NULL, &module);
    if (status == CORE_OK)
        status = core__module_finish(sequential_made(module, modules, count),
                                     module, out_module);
    for (size_t i = 0; i < count; i++)
        core_module_release(modules[i]);
    return status;
}
