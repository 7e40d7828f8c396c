/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records and replays quantizer scales for checkpoints. */

#include "quant/checkpoint_scales.h"

#include "base/error.h"
#include "base/memory.h"
#include "quant/quantizer.h"

#include <sched.h>
#include <string.h>

struct core__quantized {
    core_quantizer *quantizer; /* owned */
    float scale;
    core__quantizer_late late; /* owned */
};

/* A spinlock; its critical sections are short. */
static void list_lock(core__quantized_list *list)
{
    while (atomic_exchange_explicit(&list->lock, 1, memory_order_acquire))
        sched_yield();
}

static void list_unlock(core__quantized_list *list)
{
    atomic_store_explicit(&list->lock, 0, memory_order_release);
}

void core__quantized_clear(core__quantized_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        core__quantizer_late_drop(&list->calls[i].late);
        core_quantizer_release(list->calls[i].quantizer);
    }
    core__free(list->calls);
    list->calls = NULL;
    list->count = list->room = 0;
}

void core__quantized_begin(core__quantized_run *run, core__quantized_list *list,
                           bool second)
{
    core__thread *self = core__thread_self();

    *run = (core__quantized_run){
        .outer = self->quantized_run, .list = list, .second = second};
    self->quantized_run = run;
}

void core__quantized_end(core__quantized_run *run)
{
    core__thread_self()->quantized_run = run->outer;
    core__free(run->made);
}

core__quantized_run *core__quantized_now(const core__thread *self)
{
    return self->quantized_run;
}

core__quantized_run *core__quantized_set(core__thread *self,
                                         core__quantized_run *run)
{
    core__quantized_run *before = self->quantized_run;

    self->quantized_run = run;
    return before;
}

static core_status grow(core__quantized_list *list)
{
    size_t room = list->room ? 2 * list->room : 8;
    core__quantized *calls = core__alloc_zero(room * sizeof *calls);

    if (!calls)
        return core__error_memory(room * sizeof *calls);
    if (list->count)
        memcpy(calls, list->calls, list->count * sizeof *calls);
    core__free(list->calls);
    list->calls = calls;
    list->room = room;
    return CORE_OK;
}

static core_status record_call(core__quantized_list *list,
                               core_quantizer *quantizer)
{
    core_status status = CORE_OK;

    list_lock(list);
    if (list->count == list->room)
        status = grow(list);
    if (status == CORE_OK)
        list->calls[list->count++] = (core__quantized){
            core_quantizer_retain(quantizer), quantizer->state.scale,
            core__quantizer_late_hold(&quantizer->late)};
    list_unlock(list);
    return status;
}

/* The quantizer's next recorded call, or NULL.  Several threads may quantize at
 * once, but each quantizer is used by one at a time. */
static const core__quantized *next_call(core__quantized_run *run,
                                        const core_quantizer *quantizer)
{
    const core__quantized *calls = run->list->calls;
    size_t count = run->list->count;

    for (size_t i = run->at; i < count; i++) {
        if (run->made[i] || calls[i].quantizer != quantizer)
            continue;
        run->made[i] = true;
        while (run->at < count && run->made[run->at])
            run->at++;
        return &calls[i];
    }
    return NULL;
}

/* Sets the quantizer's scale to the one recorded in the first run. */
static core_status replay_call(core__quantized_run *run,
                               core_quantizer *quantizer)
{
    size_t size = run->list->count + 1;
    const core__quantized *call = NULL;

    list_lock(run->list);
    if (!run->made)
        run->made = core__alloc_zero(size);
    if (run->made)
        call = next_call(run, quantizer);
    list_unlock(run->list);
    if (!run->made)
        return core__error_memory(size);
    if (!call)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "core_checkpoint: the function quantizes differently in its "
            "recomputation; it must do the same each time");
    quantizer->state.scale = call->scale;
    core__quantizer_late_drop(&quantizer->late);
    quantizer->late = core__quantizer_late_hold(&call->late);
    return CORE_OK;
}

core_status core__quantized_call(core_quantizer *quantizer,
                                 core__quantizer_mark *mark, bool *out_second)
{
    core__quantized_run *inner = core__thread_self()->quantized_run, *run;

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
        core__quantizer_undo(quantizer, mark);
        core__quantizer_mark_drop(mark);
    }
    return status;
}
