/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Normalization layers. */

#include "nn/module.h"

#include "base/error.h"

#include <libcore/ops.h>

#include <string.h>

typedef struct norm {
    enum { LAYER, RMS, GROUP, BATCH } kind;
    double eps, momentum;
    int64_t groups;
    size_t count;
    int64_t sizes[CORE_MAX_NDIM];
} norm;

/* In training, batch_norm counts its calls. */
static core_status count_batch(core_module *module)
{
    core_tensor *calls = core__module_tensor(module, "num_batches_tracked");
    core_status status;
    bool before;

    if (!core_module_is_training(module))
        return CORE_OK;
    before = core_grad_mode_set(false);
    status = core_add_scalar_(calls, core_int(1), core_int(1));
    core_grad_mode_set(before);
    return status;
}

static core_status norm_forward(core_module *module, void *context,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t *noutputs)
{
    const norm *n = context;
    core_tensor *weight = core__module_tensor(module, "weight");
    core_tensor *bias = core__module_tensor(module, "bias");
    core_tensor *x, *y = NULL;
    core_status status = CORE_OK;

    CORE_TRY(core__module_one_input(module, inputs, ninputs, &x));
    switch (n->kind) {
    case LAYER:
        status =
            core_layer_norm(x, n->sizes, n->count, weight, bias, n->eps, &y);
        break;
    case RMS:
        status = core_rms_norm(x, n->sizes, n->count, weight, &n->eps, &y);
        break;
    case GROUP:
        status = core_group_norm(x, n->groups, weight, bias, n->eps, &y);
        break;
    case BATCH:
        status = core_batch_norm(
            x, weight, bias, core__module_tensor(module, "running_mean"),
            core__module_tensor(module, "running_var"),
            core_module_is_training(module), n->momentum, n->eps, &y);
        if (status == CORE_OK)
            status = count_batch(module);
        break;
    }
    if (status != CORE_OK)
        core_tensor_release(y);
    return core__module_one_output(status, &y, outputs, noutputs);
}

static CORE__ONCE core_status norm_made(core_module *module, const norm *n,
                                        bool affine,
                                        const core_nn_options *options)
{
    static const struct {
        const char *name;
        core__content content;
        uint16_t of_kinds;
        bool affine, one; /* of the first number; 1, not 0 */
    } tensors[] = {
        {"weight", CORE__FILLED, 15, true, true},
        {"bias", CORE__FILLED, 15 & ~(1 << RMS), true, false},
        {"running_mean", CORE__BUFFER, 1 << BATCH, false, false},
        {"running_var", CORE__BUFFER, 1 << BATCH, false, true},
        {"num_batches_tracked", CORE__COUNTER, 1 << BATCH, false, false}};

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].of_kinds >> n->kind & 1 &&
            (affine || !tensors[i].affine))
            CORE_TRY(core__module_make(
                module, tensors[i].name, n->sizes,
                tensors[i].content == CORE__COUNTER ? 0 : n->count,
                tensors[i].content, tensors[i].one, options));
    return CORE_OK;
}

static CORE__ONCE core_status create(const char *type, const norm *n,
                                     bool affine,
                                     const core_nn_options *options,
                                     core_module **out_module)
{
    core_module *module;

    if (!(n->eps >= 0))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: eps is %g; it must not be negative", type,
                           n->eps);
    for (size_t i = 0; i < n->count; i++)
        if (n->sizes[i] < 1)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: size %zu is %lld; it must be positive",
                               type, i, (long long)n->sizes[i]);
    CORE_TRY(core__module_create(type, norm_forward, n, sizeof *n, &module));
    return core__module_finish(norm_made(module, n, affine, options), module,
                               out_module);
}

static CORE__ONCE core_status of_sizes(const char *type, norm *n,
                                       const int64_t *sizes, size_t count,
                                       bool affine,
                                       const core_nn_options *options,
                                       core_module **out_module)
{
    if (count < 1 || count > CORE_MAX_NDIM)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: there are %zu sizes; there must be 1 to %d",
                           type, count, CORE_MAX_NDIM);
    memcpy(n->sizes, sizes, count * sizeof *sizes);
    n->count = count;
    return create(type, n, affine, options, out_module);
}

core_status core_nn_layer_norm(const int64_t *sizes, size_t count, double eps,
                               bool affine, const core_nn_options *options,
                               core_module **out_module)
{
    norm n = {.kind = LAYER, .eps = eps};

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(sizes);
    return of_sizes("LayerNorm", &n, sizes, count, affine, options, out_module);
}

core_status core_nn_rms_norm(const int64_t *sizes, size_t count, double eps,
                             bool affine, const core_nn_options *options,
                             core_module **out_module)
{
    norm n = {.kind = RMS, .eps = eps};

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(sizes);
    return of_sizes("RMSNorm", &n, sizes, count, affine, options, out_module);
}

core_status core_nn_group_norm(int64_t groups, int64_t channels, double eps,
                               bool affine, const core_nn_options *options,
                               core_module **out_module)
{
    norm n = {.kind = GROUP, .eps = eps, .groups = groups, .count = 1};

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    n.sizes[0] = channels;
    if (groups < 1 || channels % groups)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: groups is %lld and channels %lld; groups must "
                           "divide channels",
                           __func__, (long long)groups, (long long)channels);
    return create("GroupNorm", &n, affine, options, out_module);
}

core_status core_nn_batch_norm(int64_t channels, double eps, double momentum,
                               bool affine, const core_nn_options *options,
                               core_module **out_module)
{
    norm n = {.kind = BATCH, .eps = eps, .momentum = momentum, .count = 1};

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    n.sizes[0] = channels;
    if (!(momentum >= 0 && momentum <= 1))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: momentum is %g; it must be from 0 to 1",
                           __func__, momentum);
    return create("BatchNorm", &n, affine, options, out_module);
}
