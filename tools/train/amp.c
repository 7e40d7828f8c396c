/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Mixed precision: runs the forward pass under autocast on each of the model's
 * devices and scales losses, since f16 would lose small gradients; or quantizes
 * Linears to eight bits. */

#include "layers.h"

#include <libcore/autocast.h>

#include <string.h>

const char *const train_amps[TRAIN_AMPS] = {
    [TRAIN_AMP_OFF] = "off",
    [TRAIN_AMP_BF16] = "bf16",
    [TRAIN_AMP_FP16] = "fp16",
    [TRAIN_AMP_FP8] = "fp8",
};

core_status train_amp_create(trainer *t)
{
    if (t->options.amp == TRAIN_AMP_FP16)
        return core_grad_scaler_create(NULL, &t->scaler);
    if (t->options.amp == TRAIN_AMP_FP8)
        return train_fp8_create(&t->model);
    return CORE_OK;
}

/* Regions nest: ending the first one ends all. */
static core_status begin(const trainer *t, uint64_t *out_first)
{
    core_dtype low = t->options.amp == TRAIN_AMP_BF16 ? CORE_BF16 : CORE_F16;

    *out_first = 0;
    for (size_t i = 0; i < t->ndevices; i++) {
        uint64_t region;
        core_status status =
            core_autocast_begin(t->devices[i], low, 0, &region);

        if (status != CORE_OK && i > 0)
            core_autocast_end(*out_first);
        if (status != CORE_OK)
            return status;
        if (i == 0)
            *out_first = region;
    }
    return CORE_OK;
}

core_tensor *train_logits(const trainer *t, core_tensor *inputs, bool training)
{
    bool mixed =
        t->options.amp == TRAIN_AMP_BF16 || t->options.amp == TRAIN_AMP_FP16;
    train_fp8_states *states = NULL;
    core_status ended = CORE_OK;
    core_tensor *logits;
    uint64_t region = 0;
    bool begun;

    if (!training)
        CORE_CHECK(train_fp8_remember(t->model.fp8, &states));
    begun = mixed && CORE_CHECK(begin(t, &region)) == CORE_OK;
    logits = t->model.kind->forward(&t->model, inputs, training);
    train_fp8_restore(t->model.fp8, states);
    if (begun)
        ended = core_autocast_end(region); /* after an error, too */
    CORE_CHECK(ended);
    return core_x_to(logits, mixed ? CORE_F32 : CORE_DTYPE_NONE, t->device);
}

core_status train_amp_backward(trainer *t, core_tensor *loss)
{
    core_scope scope;
    core_tensor *scaled = NULL;

    if (!t->scaler)
        return train_distributed_backward(t, loss);
    scope = core_scope_begin();
    if (loss)
        scaled = core_scope_own(
            core_grad_scaler_scale(t->scaler, loss, &scaled), &scaled);
    CORE_CHECK(train_distributed_backward(t, scaled));
    CORE_CHECK(core_grad_scaler_unscale(t->scaler, t->optimizer));
    return core_scope_end(scope);
}

core_status train_amp_step(trainer *t)
{
    bool stepped;

    if (!t->scaler)
        return core_optimizer_step(t->optimizer);
    CORE_TRY(core_grad_scaler_step(t->scaler, t->optimizer, &stepped));
    t->skipped += !stepped;
    return core_grad_scaler_update(t->scaler);
}
