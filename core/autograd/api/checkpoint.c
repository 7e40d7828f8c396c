/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Activation checkpointing with saved-tensor hooks: in the first run, what the
 * function saves is only counted; when the first saved tensor is used, the
 * function runs again under hooks that catch what it saves.  A nested
 * checkpoint saves its inputs under the outer one's hooks, so that they too are
 * only counted. */

#include "autocast/autocast.h"
#include "base/callback.h"
#include "autograd/graph/function.h"
#include "autograd/graph/saved.h"
#include "base/memory.h"
#include "base/thread_modes.h"
#include "quant/checkpoint_scales.h"
#include "random/generator.h"
#include "tensor/batched.h"

#include <string.h>

typedef struct frame {
    _Atomic uint32_t references;
    _Atomic uint8_t lock; /* protects recomputed */
    core_checkpoint_info info;
    /* The first run: how many tensors it saved, and the state it ran in. */
    size_t count;
    core__generators random;
    core__thread_modes modes;
    uint64_t level; /* of the core_vmap around it; 0: none */
    size_t ninputs, noutputs;
    core__saved *inputs;
    core__checkpoint_scales quantized;
    core_tensor *
        *recomputed; /* count entries, owned; NULL: not available now */
} frame;

/* A recomputation.  Each has its own array, since several threads may run the
 * graph. */
typedef struct round {
    size_t count;
    size_t recomputed; /* may exceed count */
    core_tensor *tensors[];
} round;

static void frame_release(frame *frame)
{
    if (!frame || atomic_fetch_sub(&frame->references, 1) != 1)
        return;
    for (size_t i = 0; i < frame->ninputs; i++)
        core__saved_release(&frame->inputs[i]);
    for (size_t i = 0; frame->recomputed && i < frame->count; i++)
        core__tensor_release(frame->recomputed[i]);
    if (frame->info.drop)
        frame->info.drop(frame->info.context);
    core__checkpoint_scales_clear(&frame->quantized);
    core__free(frame->recomputed);
    core__free(frame->inputs);
    core__free(frame);
}

static void drop_frame(void *context)
{
    frame_release(context);
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core__tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

/* --------------------------------------------------------- recomputation -- */

static core_status recompute_pack(void *context, core_tensor *tensor,
                                  void **out_handle)
{
    round *round = context;

    *out_handle = NULL;
    if (round->recomputed < round->count) {
        core__tensor_retain(tensor);
        round->tensors[round->recomputed] = tensor;
    }
    round->recomputed++;
    if (round->recomputed < round->count)
        return CORE_OK;
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "core_checkpoint: the recomputation has all the tensors it needs and "
        "stops here; the function must return this status");
}

static core_status recompute_unpack(void *context, void *handle,
                                    core_tensor **out_tensor)
{
    (void)context;
    (void)handle;
    *out_tensor = NULL;
    return core__error(CORE_ERROR_AUTOGRAD,
                       "core_checkpoint: the function runs a backward of its "
                       "own, which cannot be recomputed");
}

static void drop_round(void *context)
{
    round *round = context;

    release_all(round->tensors, round->recomputed < round->count
                                    ? round->recomputed
                                    : round->count);
    core__free(round);
}

/* What a run of the function depends on. */
typedef struct state {
    core__thread_modes modes;
    core__generators random;
    core__saved_hooks *hooks;
    bool past; /* that of the first run */
} state;

static state state_of(const core__thread *self)
{
    state now = {.modes = core__thread_modes_get(self),
                 .hooks = self->saved_hooks};

    core__generators_save(&now.random);
    return now;
}

static void state_set(core__thread *self, const state *to)
{
    core__thread_modes_set(self, &to->modes);
    self->saved_hooks = to->hooks;
    core__generators_restore(&to->random, to->past);
}

/* The inputs as they were in the first run, with their history. */
static core_status restore_inputs(frame *frame, core_tensor **inputs)
{
    for (size_t i = 0; i < frame->ninputs; i++) {
        core__saved *saved = &frame->inputs[i];
        core_value value = {0};

        if (saved->kind == CORE__SAVED_PACKED) {
            CORE_TRY(core__packed_unpack(NULL, saved, true, &inputs[i]));
            continue;
        }
        core__byte_lock(&frame->lock);
        if (saved->kind == CORE__SAVED_TENSOR) {
            core_status status =
                core__saved_unpack_named("core_checkpoint", saved, &value);

            if (status != CORE_OK) {
                core__byte_unlock(&frame->lock);
                return status;
            }
            core__tensor_retain(value.u.tensor);
            inputs[i] = value.u.tensor;
        }
        core__byte_unlock(&frame->lock);
    }
    return CORE_OK;
}

static core_status recompute_call(frame *frame, round *round,
                                  core_tensor **inputs, core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    uint32_t errors = self->error.sequence;
    size_t noutputs = frame->noutputs;
    state was = state_of(self), then = was;
    uint64_t region = core__autocast_mark(self);
    core__checkpoint_scales_run again;
    core__error_record earlier;
    core_status status;

    then.modes = core__thread_modes_again(&frame->modes, &was.modes);
    then.random = frame->random;
    then.past = true;
    state_set(self, &then);
    core__checkpoint_scales_begin(&again, &frame->quantized, true);
    core__error_save(&earlier);
    status = frame->info.function(frame->info.context, inputs, frame->ninputs,
                                  outputs, &noutputs);
    core__checkpoint_scales_end(&again);
    /* Ends regions that the function, if it was stopped early, left open. */
    core__autocast_unwind(self, region);
    state_set(self, &was);
    release_all(outputs, frame->noutputs);
    if (round->recomputed == round->count) {
        /* Perhaps stopped early, as intended. */
        core__error_restore(&earlier);
        return CORE_OK;
    }
    CORE_TRY(core__callback_status(errors, status,
                                   "core_checkpoint, recomputation"));
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "core_checkpoint: the function saved %zu tensors in its first run and "
        "%zu in its recomputation; it must do the same each time",
        frame->count, round->recomputed);
}

static core_status recompute(frame *frame, round *round)
{
    const core_saved_hooks_info info = {.struct_size = sizeof info,
                                        .pack = recompute_pack,
                                        .unpack = recompute_unpack,
                                        .context = round,
                                        .drop = drop_round};
    size_t size = (frame->ninputs + frame->noutputs) * sizeof(core_tensor *);
    core_tensor **inputs = core__alloc_zero(size + 1);
    core__thread *self = core__thread_self();
    core__saved_hooks *before = self->saved_hooks, *hooks = NULL;
    core_status status =
        inputs ? restore_inputs(frame, inputs) : core__error_memory(size);

    if (status == CORE_OK)
        status = core__saved_hooks_new(&info, &hooks);
    if (status == CORE_OK) {
        atomic_fetch_add(&hooks->references, 1);
        self->saved_hooks = hooks;
        status = recompute_call(frame, round, inputs, inputs + frame->ninputs);
        self->saved_hooks = before;
    }
    if (inputs)
        release_all(inputs, frame->ninputs);
    core__free(inputs);
    core__byte_lock(&frame->lock);
    for (size_t i = 0; i < frame->count && status == CORE_OK; i++) {
        if (frame->recomputed[i] || i >= round->recomputed)
            continue;
        frame->recomputed[i] = round->tensors[i];
        round->tensors[i] = NULL;
    }
    core__byte_unlock(&frame->lock);
    if (!hooks) {
        drop_round(round);
        return status;
    }
    core__saved_hooks_release(hooks);
    core__saved_hooks_release(hooks);
    return status;
}

/* ------------------------------------------------------------- first run -- */

/* Whether the thread is inside the core_vmap around the checkpoint, or there is
 * none: a graph outside is used when the call has returned. */
static bool is_inside(const frame *frame)
{
    const core__batching *batching = core__thread_self()->batching;

    while (frame->level && batching && batching->level != frame->level)
        batching = batching->outer;
    return !frame->level || batching;
}

static core_status count_pack(void *context, core_tensor *tensor,
                              void **out_handle)
{
    frame *frame = context;

    (void)tensor;
    *out_handle = NULL;
    if (!is_inside(frame))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_checkpoint: a tensor that requires grad outside of core_vmap "
            "is used, whose backward would run the function when core_vmap has "
            "returned; call core_vmap in the function of the checkpoint, or "
            "differentiate inside");
    *out_handle = (void *)(uintptr_t)frame->count++;
    return CORE_OK;
}

/* Takes tensor `index` if it is available. */
static core_tensor *take_recomputed(frame *frame, size_t index)
{
    core_tensor *tensor;

    core__byte_lock(&frame->lock);
    tensor = frame->recomputed ? frame->recomputed[index] : NULL;
    if (tensor)
        frame->recomputed[index] = NULL;
    core__byte_unlock(&frame->lock);
    return tensor;
}

static core_status reserve(frame *frame)
{
    core_tensor **tensors;

    if (frame->recomputed)
        return CORE_OK;
    tensors = core__alloc_zero(frame->count * sizeof *tensors);
    if (!tensors)
        return core__error_memory(frame->count * sizeof *tensors);
    core__byte_lock(&frame->lock);
    if (!frame->recomputed) {
        frame->recomputed = tensors;
        tensors = NULL;
    }
    core__byte_unlock(&frame->lock);
    core__free(tensors);
    return CORE_OK;
}

static core_status count_unpack(void *context, void *handle,
                                core_tensor **out_tensor)
{
    frame *frame = context;
    size_t index = (uintptr_t)handle;
    core_status status = CORE_OK;

    /* Another thread may take it from what this one recomputed. */
    while (status == CORE_OK &&
           !(*out_tensor = take_recomputed(frame, index))) {
        size_t size = frame->count * sizeof(core_tensor *);
        round *round;

        CORE_TRY(reserve(frame));
        round = core__alloc_zero(sizeof *round + size);
        if (!round)
            return core__error_memory(sizeof *round + size);
        round->count = frame->count;
        status = recompute(frame, round);
    }
    return status;
}

static void count_release(void *context, void *handle)
{
    core__tensor_release(take_recomputed(context, (uintptr_t)handle));
}

/* Saves an alias: a plain tensor may join the graph later, by a change in
 * place, and would then own the node that owns it. */
static core_status save_input(core__saved *saved, core_tensor *input)
{
    core_tensor *alias;
    core_status status;

    if (core__tensor_needs_grad(input))
        return core__saved_tensor(saved, input, NULL);
    CORE_TRY(core__tensor_shallow_copy(input, &alias));
    status = core__saved_tensor(saved, input, alias);
    core__tensor_release(alias);
    return status;
}

static core_status frame_new(const core_checkpoint_info *info,
                             core_tensor *const *inputs, size_t ninputs,
                             size_t noutputs, frame **out_frame)
{
    core__thread *self = core__thread_self();
    frame *frame = core__alloc_zero(sizeof *frame);

    *out_frame = frame;
    if (!frame)
        return core__error_memory(sizeof *frame);
    atomic_init(&frame->references, 1);
    frame->inputs = core__alloc_zero(ninputs * sizeof *frame->inputs + 1);
    if (!frame->inputs)
        return core__error_memory(ninputs * sizeof *frame->inputs);
    frame->modes = core__thread_modes_get(self);
    frame->level = self->batching ? self->batching->level : 0;
    frame->noutputs = noutputs;
    core__generators_save(&frame->random);
    for (; frame->ninputs < ninputs; frame->ninputs++)
        if (inputs[frame->ninputs])
            CORE_TRY(save_input(&frame->inputs[frame->ninputs],
                                inputs[frame->ninputs]));
    frame->info = *info; /* the frame now owns drop */
    return CORE_OK;
}

static core_status check(const core_checkpoint_info *info,
                         core_tensor *const *inputs, size_t ninputs,
                         core_tensor **outputs, const size_t *noutputs)
{
    if (info->struct_size < sizeof *info || info->flags)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_checkpoint: struct_size is %u and flags %u; "
                           "they must be %zu and 0",
                           info->struct_size, info->flags, sizeof *info);
    if (!info->function)
        return core__error_null("core_checkpoint", "function");
    if (ninputs && !inputs)
        return core__error_null("core_checkpoint", "inputs");
    if (!noutputs || (*noutputs && !outputs))
        return core__error_null("core_checkpoint",
                                noutputs ? "outputs" : "noutputs");
    return CORE_OK;
}

static core_status call_first(frame *frame, core_tensor *const *inputs,
                              core_tensor **outputs, size_t *noutputs)
{
    core__thread *self = core__thread_self();
    core__saved_hooks *hooks, *outer = self->saved_hooks;
    const core_saved_hooks_info info = {.struct_size = sizeof info,
                                        .pack = count_pack,
                                        .unpack = count_unpack,
                                        .release = count_release,
                                        .context = frame,
                                        .drop = drop_frame};
    core__checkpoint_scales_run first;
    core_status status;

    CORE_TRY(core__saved_hooks_new(&info, &hooks));
    atomic_fetch_add(&frame->references, 1); /* for the hooks */
    self->saved_hooks = hooks;
    core__checkpoint_scales_begin(&first, &frame->quantized, false);
    status = core__function_call("core_checkpoint", frame->info.function,
                                 frame->info.context, inputs, frame->ninputs,
                                 outputs, noutputs);
    core__checkpoint_scales_end(&first);
    self->saved_hooks = outer;
    core__saved_hooks_release(hooks);
    return status;
}

core_status core_checkpoint(const core_checkpoint_info *info,
                            core_tensor *const *inputs, size_t ninputs,
                            core_tensor **outputs, size_t *noutputs)
{
    size_t capacity = noutputs && outputs ? *noutputs : 0;
    frame *frame = NULL;
    core_status status;

    CORE__NOT_NULL(info);
    for (size_t i = 0; i < capacity; i++)
        outputs[i] = NULL;
    status = check(info, inputs, ninputs, outputs, noutputs);
    if (status == CORE_OK && core__thread_self()->no_grad) {
        status = core__function_call("core_checkpoint", info->function,
                                     info->context, inputs, ninputs, outputs,
                                     noutputs);
    } else if (status == CORE_OK) {
        status = frame_new(info, inputs, ninputs, capacity, &frame);
        if (status == CORE_OK)
            status = call_first(frame, inputs, outputs, noutputs);
    }
    if (info->drop && !(frame && frame->info.function))
        info->drop(info->context);
    frame_release(frame);
    if (status == CORE_OK)
        return CORE_OK;
    release_all(outputs, capacity);
    if (noutputs)
        *noutputs = 0;
    return status;
}
