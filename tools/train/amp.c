/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Mixed precision: runs the forward pass under autocast on each of the model's
 * devices and scales losses, since f16 would lose small gradients; or quantizes
 * Linears to eight bits. */

#include "train.h"

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

core_status train_logits(const trainer *t, core_tensor *inputs, bool training,
                         core_tensor **out_logits)
{
    bool mixed =
        t->options.amp == TRAIN_AMP_BF16 || t->options.amp == TRAIN_AMP_FP16;
    train_fp8_states *states = NULL;
    core_tensor *there = NULL;
    uint64_t region = 0;
    core_status status = CORE_OK;

    *out_logits = NULL;
    if (!training)
        CORE_TRY(train_fp8_remember(t->model.fp8, &states));
    if (mixed)
        CORE_TRY(begin(t, &region));
    status = t->model.kind->forward(&t->model, inputs, training, &there);
    train_fp8_restore(t->model.fp8, states);
    if (mixed && status == CORE_OK)
        status = core_autocast_end(region);
    else if (mixed)
        core_autocast_end(region); /* keep the message of the forward pass */
    if (status == CORE_OK)
        status = core_to(there, mixed ? CORE_F32 : CORE_DTYPE_NONE, t->device,
                         false, false, -1, out_logits);
    core_tensor_release(there);
    return status;
}

core_status train_amp_backward(trainer *t, core_tensor *loss)
{
    core_tensor *scaled = NULL;
    core_status status;

    if (!t->scaler)
        return core_backward(&loss, 1, NULL, 0);
    status = core_grad_scaler_scale(t->scaler, loss, &scaled);
    if (status == CORE_OK)
        status = core_backward(&scaled, 1, NULL, 0);
    if (status == CORE_OK)
        status = core_grad_scaler_unscale(t->scaler, t->optimizer);
    core_tensor_release(scaled);
    return status;
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
