/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient scaler.  The scale is on the host, since a step waits for the
 * overflow check anyway.  Each optimizer that was used since the last update
 * has a record of its stage and of the check on each device. */

#include "base/error.h"
#include "base/memory.h"
#include "optim/optimizer.h"

#include <libcore/autograd.h>
#include <libcore/grad_scaler.h>
#include <libcore/ops.h>

#include <float.h>
#include <math.h>
#include <string.h>

enum { DEVICES = 16 };

/* Its reciprocal is the smallest normal f32. */
static const double MAX_SCALE = 1 / (double)FLT_MIN;

typedef enum stage { UNSCALED, STEPPED, BROKEN } stage;

typedef struct record {
    struct record *next;
    uint64_t optimizer; /* its number: it may be released before the update */
    stage stage;
    uint32_t ndevices;
    core_tensor *finite[DEVICES]; /* 0-dim bool; owned */
    bool known; /* `finite` was read, and all_finite is the result */
    bool all_finite;
} record;

struct core_grad_scaler {
    core_grad_scaler_state state;
    record *records;
};

/* -------------------------------------------------------- options, state -- */

static core_status check_state(const core_grad_scaler_state *state)
{
    if (state->struct_size < sizeof *state)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_grad_scaler_state: struct_size is %u; it must be %zu",
            state->struct_size, sizeof *state);
    if (state->flags & ~(uint32_t)CORE_GRAD_SCALER_OFF)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "gradient scaler: the flags are 0x%x; accepted: 0 "
                           "or CORE_GRAD_SCALER_OFF",
                           state->flags);
    if (!(state->scale >= FLT_MIN && state->scale <= MAX_SCALE))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "gradient scaler: scale is %g; it must be between %g and %g, so "
            "that f32 can represent it and its reciprocal",
            state->scale, (double)FLT_MIN, MAX_SCALE);
    if (!(state->growth_factor > 1) || !isfinite(state->growth_factor))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "gradient scaler: growth_factor is %g; it must be "
                           "finite and above 1",
                           state->growth_factor);
    if (!(state->backoff_factor > 0 && state->backoff_factor < 1))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "gradient scaler: backoff_factor is %g; it must be between 0 and 1",
            state->backoff_factor);
    if (state->growth_interval == 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "gradient scaler: growth_interval is 0; it must be above 0");
    return CORE_OK;
}

core_status core_grad_scaler_create(const core_grad_scaler_state *state,
                                    core_grad_scaler **out_scaler)
{
    static const core_grad_scaler_state initial = {
        .struct_size = sizeof initial,
        .scale = 65536,
        .growth_factor = 2,
        .backoff_factor = 0.5,
        .growth_interval = 2000,
    };
    core_grad_scaler *scaler;

    CORE__NOT_NULL(out_scaler);
    *out_scaler = NULL;
    if (!state)
        state = &initial;
    CORE_TRY(check_state(state));
    scaler = core__alloc_zero(sizeof *scaler);
    if (!scaler)
        return core__error_memory(sizeof *scaler);
    memcpy(&scaler->state, state, sizeof scaler->state);
    scaler->state.struct_size = sizeof scaler->state;
    *out_scaler = scaler;
    return CORE_OK;
}

static void drop_record(record *record)
{
    for (uint32_t i = 0; i < record->ndevices; i++)
        core_tensor_release(record->finite[i]);
    core__free(record);
}

static void drop_records(core_grad_scaler *scaler)
{
    while (scaler->records) {
        record *record = scaler->records;

        scaler->records = record->next;
        drop_record(record);
    }
}

void core_grad_scaler_release(core_grad_scaler *scaler)
{
    if (!scaler)
        return;
    drop_records(scaler);
    core__free(scaler);
}

double core_grad_scaler_get_scale(const core_grad_scaler *scaler)
{
    return !scaler                                      ? 0
           : scaler->state.flags & CORE_GRAD_SCALER_OFF ? 1
                                                        : scaler->state.scale;
}

core_status core_grad_scaler_get_state(const core_grad_scaler *scaler,
                                       core_grad_scaler_state *out_state)
{
    CORE__NOT_NULL(scaler);
    CORE__NOT_NULL(out_state);
    if (out_state->struct_size < sizeof *out_state)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_grad_scaler_state: struct_size is %u; it must be %zu",
            out_state->struct_size, sizeof *out_state);
    *out_state = scaler->state;
    return CORE_OK;
}

static core_status refuse_midway(const core_grad_scaler *scaler)
{
    if (!scaler->records)
        return CORE_OK;
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "gradient scaler: gradients were unscaled and core_grad_scaler_update "
        "was not called since; the state cannot be set between the two");
}

core_status core_grad_scaler_set_state(core_grad_scaler *scaler,
                                       const core_grad_scaler_state *state)
{
    CORE__NOT_NULL(scaler);
    CORE__NOT_NULL(state);
    CORE_TRY(check_state(state));
    CORE_TRY(refuse_midway(scaler));
    memcpy(&scaler->state, state, sizeof scaler->state);
    scaler->state.struct_size = sizeof scaler->state;
    return CORE_OK;
}

core_status core_grad_scaler_set_scale(core_grad_scaler *scaler, double scale)
{
    core_grad_scaler_state state;

    CORE__NOT_NULL(scaler);
    state = scaler->state;
    state.scale = scale;
    return core_grad_scaler_set_state(scaler, &state);
}

core_status core_grad_scaler_scale(core_grad_scaler *scaler, core_tensor *loss,
                                   core_tensor **out_scaled)
{
    core_tensor *wide = NULL;
    core_status status;

    CORE__NOT_NULL(out_scaled);
    *out_scaled = NULL;
    CORE__NOT_NULL(scaler);
    CORE__NOT_NULL(loss);
    if (scaler->state.flags & CORE_GRAD_SCALER_OFF) {
        *out_scaled = core_tensor_retain(loss);
        return CORE_OK;
    }
    if (core_tensor_ndim(loss) > 0 || (core_tensor_dtype(loss) != CORE_F16 &&
                                       core_tensor_dtype(loss) != CORE_BF16))
        return core_mul_scalar(loss, core_float(scaler->state.scale),
                               out_scaled);
    /* Multiplies in f32, as with an f32 scale tensor: 3 * 65536 overflows in
     * f16. */
    CORE_TRY(core_to(loss, CORE_F32, NULL, false, false, -1, &wide));
    status = core_mul_scalar(wide, core_float(scaler->state.scale), out_scaled);
    core_tensor_release(wide);
    return status;
}

/* ------------------------------------------------------------- unscaling -- */

/* The gradients of an optimizer on one device. */
typedef struct group {
    core_device *device;
    core_dtype dtype; /* the dtype of `largest` */
    size_t count;
    core_tensor **largest; /* 0-dim each */
} group;

typedef struct grads {
    size_t count;
    core_tensor **tensors; /* borrowed */
    uint32_t ngroups;
    group groups[DEVICES];
} grads;

static core_status find_group(grads *grads, core_tensor *grad, group **out)
{
    core_device *device = core_tensor_device(grad);

    *out = NULL;
    for (uint32_t i = 0; i < grads->ngroups; i++)
        if (grads->groups[i].device == device) {
            *out = &grads->groups[i];
            return CORE_OK;
        }
    if (grads->ngroups == DEVICES)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "gradient scaler: the gradients of an optimizer are "
                           "on more than %d devices",
                           DEVICES);
    *out = &grads->groups[grads->ngroups++];
    (*out)->device = device;
    (*out)->dtype = CORE_F32;
    return CORE_OK;
}

static core_status add_grad(grads *grads, core_tensor *grad, size_t capacity)
{
    group *group;

    if (core_tensor_dtype(grad) == CORE_F16)
        return core__error(
            CORE_ERROR_DTYPE,
            "gradient scaler: gradient %zu is f16, in which unscaling would "
            "lose small values; keep the parameters in f32",
            grads->count);
    CORE_TRY(find_group(grads, grad, &group));
    if (!group->largest) {
        group->largest = core__alloc_zero(capacity * sizeof(core_tensor *));
        if (!group->largest)
            return core__error_memory(capacity * sizeof(core_tensor *));
    }
    if (core_tensor_dtype(grad) == CORE_F64)
        group->dtype = CORE_F64;
    grads->tensors[grads->count++] = grad;
    return CORE_OK;
}

static core_status collect(const core_optimizer *optimizer, grads *grads)
{
    size_t capacity = core_optimizer_parameter_count(optimizer);

    grads->tensors = core__alloc_zero(capacity * sizeof(core_tensor *) + 1);
    if (!grads->tensors)
        return core__error_memory(capacity * sizeof(core_tensor *));
    for (size_t i = 0; i < capacity; i++) {
        core_tensor *grad =
            core_tensor_grad(core_optimizer_parameter(optimizer, i));

        if (grad)
            CORE_TRY(add_grad(grads, grad, capacity));
    }
    if (grads->count == 0)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "gradient scaler: no parameter of the optimizer has "
                           "a gradient; run backward first");
    return CORE_OK;
}

static void release(grads *grads)
{
    for (uint32_t i = 0; i < grads->ngroups; i++) {
        for (size_t k = 0; k < grads->groups[i].count; k++)
            core_tensor_release(grads->groups[i].largest[k]);
        core__free(grads->groups[i].largest);
    }
    core__free(grads->tensors);
}

/* Unscales the largest magnitude in the gradient's own dtype: a value that is
 * finite in a wider dtype may overflow there. */
static core_status unscale_largest(const core_tensor *grad, double inverse,
                                   core_tensor **largest)
{
    core_dtype dtype = core_tensor_dtype(*largest);
    core_tensor *own = NULL, *back = NULL;
    core_status status;

    status = core_to(*largest, core_tensor_dtype(grad), NULL, false, false, -1,
                     &own);
    if (status == CORE_OK)
        status = core_mul_scalar_(own, core_float(inverse));
    if (status == CORE_OK)
        status = core_to(own, dtype, NULL, false, false, -1, &back);
    if (status == CORE_OK) {
        core_tensor_release(*largest);
        *largest = back;
    }
    core_tensor_release(own);
    return status;
}

/* The largest magnitude is finite if all elements are, and NaN if any is.  A
 * scale below 1 enlarges gradients, so that finite ones may overflow. */
static core_status find_largest(grads *grads, double inverse)
{
    for (size_t i = 0; i < grads->count; i++) {
        core_tensor *grad = grads->tensors[i];
        group *group;

        if (core_tensor_numel(grad) == 0)
            continue;
        CORE_TRY(find_group(grads, grad, &group));
        CORE_TRY(core_linalg_vector_norm(grad, core_float(INFINITY), NULL, 0,
                                         false, group->dtype,
                                         &group->largest[group->count]));
        group->count++;
        if (inverse > 1)
            CORE_TRY(unscale_largest(grad, inverse,
                                     &group->largest[group->count - 1]));
    }
    return CORE_OK;
}

static core_status check_finite(const group *group, core_tensor **out_finite)
{
    core_tensor *stacked = NULL, *each = NULL;
    core_status status;

    status = core_stack(group->largest, group->count, 0, &stacked);
    if (status == CORE_OK)
        status = core_isfinite(stacked, &each);
    if (status == CORE_OK)
        status = core_all(each, out_finite);
    core_tensor_release(stacked);
    core_tensor_release(each);
    return status;
}

static core_status check_all_finite(const grads *grads, record *record)
{
    for (uint32_t i = 0; i < grads->ngroups; i++) {
        if (grads->groups[i].count == 0)
            continue;
        CORE_TRY(
            check_finite(&grads->groups[i], &record->finite[record->ndevices]));
        record->ndevices++;
    }
    return CORE_OK;
}

/* Everything that can fail comes before the first change. */
static core_status unscale(core_grad_scaler *scaler, core_optimizer *optimizer,
                           record **out_record)
{
    record *record = core__alloc_zero(sizeof *record);
    double inverse = 1 / scaler->state.scale;
    grads grads = {0};
    core_status status;

    if (!record)
        return core__error_memory(sizeof *record);
    record->optimizer = optimizer->number;
    status = collect(optimizer, &grads);
    if (status == CORE_OK)
        status = find_largest(&grads, inverse);
    if (status == CORE_OK)
        status = check_all_finite(&grads, record);
    if (status != CORE_OK)
        goto done;
    for (size_t i = 0; status == CORE_OK && i < grads.count; i++)
        status = core_mul_scalar_(grads.tensors[i], core_float(inverse));
    record->stage = status == CORE_OK ? UNSCALED : BROKEN;
    record->next = scaler->records;
    scaler->records = record;
    *out_record = record;
    record = NULL;
done:
    if (record)
        drop_record(record);
    release(&grads);
    return status;
}

static core_status unscale_quietly(core_grad_scaler *scaler,
                                   core_optimizer *optimizer, record **out)
{
    bool before = core_grad_mode_set(false);
    core_status status = unscale(scaler, optimizer, out);

    core_grad_mode_set(before);
    return status;
}

static record *find(const core_grad_scaler *scaler,
                    const core_optimizer *optimizer)
{
    record *at = scaler->records;

    while (at && at->optimizer != optimizer->number)
        at = at->next;
    return at;
}

static core_status refuse(const record *record, const char *what)
{
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "core_grad_scaler_%s: the optimizer %s since the last update; call "
        "core_grad_scaler_update first",
        what,
        record->stage == UNSCALED ? "was already unscaled"
        : record->stage == STEPPED
            ? "was already stepped"
            : "was only partly unscaled (an earlier call failed)");
}

core_status core_grad_scaler_unscale(core_grad_scaler *scaler,
                                     core_optimizer *optimizer)
{
    record *record;

    CORE__NOT_NULL(scaler);
    CORE__NOT_NULL(optimizer);
    if (scaler->state.flags & CORE_GRAD_SCALER_OFF)
        return CORE_OK;
    record = find(scaler, optimizer);
    if (record)
        return refuse(record, "unscale");
    return unscale_quietly(scaler, optimizer, &record);
}

/* ------------------------------------------------------ stepping, update -- */

/* Waits once for each device. */
static core_status read_verdict(record *record)
{
    bool all = true;

    for (uint32_t i = 0; !record->known && i < record->ndevices; i++) {
        bool finite;

        CORE_TRY(core_tensor_read(record->finite[i], &finite, sizeof finite));
        all = all && finite;
    }
    if (!record->known)
        record->all_finite = all;
    record->known = true;
    return CORE_OK;
}

core_status core_grad_scaler_step(core_grad_scaler *scaler,
                                  core_optimizer *optimizer, bool *out_stepped)
{
    record *record;

    if (out_stepped)
        *out_stepped = false;
    CORE__NOT_NULL(scaler);
    CORE__NOT_NULL(optimizer);
    if (!(scaler->state.flags & CORE_GRAD_SCALER_OFF)) {
        record = find(scaler, optimizer);
        if (record && record->stage != UNSCALED)
            return refuse(record, "step");
        if (!record)
            CORE_TRY(unscale_quietly(scaler, optimizer, &record));
        CORE_TRY(read_verdict(record));
        if (!record->all_finite) {
            record->stage = STEPPED;
            return CORE_OK;
        }
    }
    CORE_TRY(core_optimizer_step(optimizer));
    if (!(scaler->state.flags & CORE_GRAD_SCALER_OFF))
        record->stage = STEPPED;
    if (out_stepped)
        *out_stepped = true;
    return CORE_OK;
}

core_status core_grad_scaler_update(core_grad_scaler *scaler)
{
    core_grad_scaler_state *state;
    bool finite = true;

    CORE__NOT_NULL(scaler);
    state = &scaler->state;
    if (state->flags & CORE_GRAD_SCALER_OFF)
        return CORE_OK;
    if (!scaler->records)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "gradient scaler: no optimizer was unscaled or stepped since the "
            "last update; call core_grad_scaler_unscale or "
            "core_grad_scaler_step first");
    for (record *at = scaler->records; at; at = at->next) {
        if (at->stage != BROKEN)
            CORE_TRY(read_verdict(at));
        finite = finite && at->stage != BROKEN && at->all_finite;
    }
    if (!finite) {
        state->scale *= state->backoff_factor;
        /* Never 0: the scale could not grow again. */
        if (!(state->scale >= FLT_MIN))
            state->scale = FLT_MIN;
        state->growth_tracker = 0;
    } else if (++state->growth_tracker >= state->growth_interval) {
        if (state->scale * state->growth_factor <= MAX_SCALE)
            state->scale *= state->growth_factor;
        state->growth_tracker = 0;
    }
    drop_records(scaler);
    return CORE_OK;
}
