/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records and replays quantizer scales for checkpoints. */

#include "quant/checkpoint_scales.h"

#include "base/error.h"
#include "base/memory.h"
#include "quant/quantizer.h"

#include <sched.h>
#include <string.h>

struct core__checkpoint_scale {
    core_quantizer *quantizer; /* owned */
    float scale;
    core__quantizer_device_state device_state; /* owned */
};

/* A spinlock; its critical sections are short. */
static void list_lock(core__checkpoint_scales *list)
{
    while (atomic_exchange_explicit(&list->lock, 1, memory_order_acquire))
        sched_yield();
}

static void list_unlock(core__checkpoint_scales *list)
{
    atomic_store_explicit(&list->lock, 0, memory_order_release);
}

void core__checkpoint_scales_clear(core__checkpoint_scales *list)
{
    for (size_t i = 0; i < list->count; i++) {
        core__quantizer_device_state_release(&list->calls[i].device_state);
        core_quantizer_release(list->calls[i].quantizer);
    }
    core__free(list->calls);
    list->calls = NULL;
    list->count = list->capacity = 0;
}

void core__checkpoint_scales_begin(core__checkpoint_scales_run *run,
                                   core__checkpoint_scales *list, bool second)
{
    core__thread *self = core__thread_self();

    *run = (core__checkpoint_scales_run){
        .outer = self->quantized_run, .list = list, .second = second};
    self->quantized_run = run;
}

void core__checkpoint_scales_end(core__checkpoint_scales_run *run)
{
    core__thread_self()->quantized_run = run->outer;
    core__free(run->used);
}

core__checkpoint_scales_run *core__checkpoint_scales_current(
    const core__thread *self)
{
    return self->quantized_run;
}

core__checkpoint_scales_run *core__checkpoint_scales_set(
    core__thread *self, core__checkpoint_scales_run *run)
{
    core__checkpoint_scales_run *before = self->quantized_run;

    self->quantized_run = run;
    return before;
}

static core_status grow(core__checkpoint_scales *list)
{
    size_t capacity = list->capacity ? 2 * list->capacity : 8;
    core__checkpoint_scale *calls = core__alloc_zero(capacity * sizeof *calls);

    if (!calls)
        return core__error_memory(capacity * sizeof *calls);
    if (list->count)
        memcpy(calls, list->calls, list->count * sizeof *calls);
    core__free(list->calls);
    list->calls = calls;
    list->capacity = capacity;
    return CORE_OK;
}

static core_status record_call(core__checkpoint_scales *list,
                               core_quantizer *quantizer)
{
    core_status status = CORE_OK;

    list_lock(list);
    if (list->count == list->capacity)
        status = grow(list);
    if (status == CORE_OK)
        list->calls[list->count++] = (core__checkpoint_scale){
            core_quantizer_retain(quantizer), quantizer->state.scale,
            core__quantizer_device_state_retain(&quantizer->device_state)};
    list_unlock(list);
    return status;
}

/* The quantizer's next recorded call, or NULL.  Several threads may quantize at
 * once, but each quantizer is used by one at a time. */
static const core__checkpoint_scale *next_call(core__checkpoint_scales_run *run,
                                               const core_quantizer *quantizer)
{
    const core__checkpoint_scale *calls = run->list->calls;
    size_t count = run->list->count;

    for (size_t i = run->at; i < count; i++) {
        if (run->used[i] || calls[i].quantizer != quantizer)
            continue;
        run->used[i] = true;
        while (run->at < count && run->used[run->at])
            run->at++;
        return &calls[i];
    }
    return NULL;
}

/* Sets the quantizer's scale to the one recorded in the first run. */
static core_status replay_call(core__checkpoint_scales_run *run,
                               core_quantizer *quantizer)
{
    size_t size = run->list->count + 1;
    const core__checkpoint_scale *call = NULL;

    list_lock(run->list);
    if (!run->used)
        run->used = core__alloc_zero(size);
    if (run->used)
        call = next_call(run, quantizer);
    list_unlock(run->list);
    if (!run->used)
        return core__error_memory(size);
    if (!call)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "core_checkpoint: the function quantizes differently in its "
            "recomputation; it must do the same each time");
    quantizer->state.scale = call->scale;
    core__quantizer_device_state_release(&quantizer->device_state);
    quantizer->device_state =
        core__quantizer_device_state_retain(&call->device_state);
    return CORE_OK;
}

core_status core__checkpoint_scales_call(core_quantizer *quantizer,
                                         core__quantizer_mark *mark,
                                         bool *out_second)
{
    core__checkpoint_scales_run *inner = core__thread_self()->quantized_run,
                                *run;

    core_status status = CORE_OK;

    *out_second = false;
    for (run = inner; run && !run->second; run = run->outer)
        continue;
    if (run) {
        core__quantizer_mark_set(quantizer, mark);
        status = replay_call(run, quantizer);
        if (status != CORE_OK) {
            core__quantizer_mark_drop(mark);
            return status;
        }
        *out_second = true;
    }
    /* Outer runs that record need the call as well: a checkpoint inside another
     * one is recomputed on its own. */
    for (; inner != run && status == CORE_OK; inner = inner->outer)
        status = record_call(inner->list, quantizer);
    if (status != CORE_OK && *out_second) {
        core__quantizer_mark_restore(quantizer, mark);
        core__quantizer_mark_drop(mark);
    }
    return status;
}
