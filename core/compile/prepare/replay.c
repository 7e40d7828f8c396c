/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Captures programs and launches their graphs (replay.h). */

#include "compile/prepare/replay_graph.h"

#include "base/memory.h"
#include "base/thread.h"
#include "compile/prepare/prepared.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "tensor/tensor.h"

#include <libcore/ops.h>

#include <string.h>

core_status core__replays_new(core__replays **out_replays)
{
    *out_replays = core__alloc_zero(sizeof **out_replays);
    return *out_replays ? CORE_OK : core__error_memory(sizeof **out_replays);
}

static void place_clear(core__replay_place *at)
{
    core_stream_release(at->last);
    core_stream_release(at->stream);
    core_memory_pool_release(at->pool);
    at->last = at->stream = NULL;
    at->pool = NULL;
}

void core__replays_free(core__replays *replays)
{
    while (replays && replays->places) {
        core__replay_place *next = replays->places->next;

        place_clear(replays->places);
        core_device_release(replays->places->device);
        core__free(replays->places);
        replays->places = next;
    }
    core__free(replays);
}

void core__replays_count(const core__replays *replays, uint64_t *captures,
                         uint64_t *launches, uint64_t *busy)
{
    if (!replays)
        return;
    *captures += atomic_load(&replays->captures);
    *launches += atomic_load(&replays->launches);
    *busy += atomic_load(&replays->busy_calls);
}

/* The place of a device, with a stream and a pool. */
core_status core__replay_find_place(core__replays *replays, core_device *device,
                                    core__replay_place **out_place)
{
    uint32_t generation = atomic_load(&device->generation);
    core__replay_place *at = replays->places;

    while (at && at->device != device)
        at = at->next;
    *out_place = at;
    if (at && at->pool && at->generation == generation)
        return CORE_OK;
    if (!at) {
        at = core__alloc_zero(sizeof *at);
        if (!at)
            return core__error_memory(sizeof *at);
        at->device = core_device_retain(device);
        at->next = replays->places;
        replays->places = *out_place = at;
    }
    place_clear(at);
    at->generation = generation;
    CORE_TRY(core_stream_create(device, &at->stream));
    return core_memory_pool_create(device, &at->pool);
}

/* Work of the stream follows the last launch. */
static core_status order_after_last(core__replay_place *at, core_stream *stream)
{
    core_event *event;
    core_status status;

    if (at->last == stream)
        return CORE_OK;
    if (at->last) {
        core__error_record saved;

        core__error_save(&saved);
        CORE_TRY(core__event_take(at->device, &event));
        status = core_event_record(event, at->last);
        if (status == CORE_OK)
            status = core_stream_wait_event(stream, event);
        core__event_return(event);
        /* What a stream with an error had to do has ended. */
        if (status != CORE_OK && status != CORE_ERROR_STREAM)
            return status;
        core__error_restore(&saved);
    }
    core_stream_release(at->last);
    at->last = core_stream_retain(stream);
    return CORE_OK;
}

static core_status copy_inputs(const core_program *program, core__replay *r,
                               core_tensor *const *inputs)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        if (r->buffers[i])
            CORE_TRY(core_copy_(r->buffers[i], inputs[i], false));
    return CORE_OK;
}

static bool is_output(const core_program *program, uint32_t value)
{
    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE &&
            program->outputs[i].index == value)
            return true;
    return false;
}

/* The tensors of the graph; copies of those that the caller gets. */
static core_status take_results(const core_program *program,
                                const core__replay *r, core__run *run)
{
    for (uint32_t i = 0; i < program->nvalues; i++) {
        if (!r->results[i])
            continue;
        if (is_output(program, i)) {
            CORE_TRY(core__run_copy(run, &program->values[i].type,
                                    r->results[i], &run->tensors[i]));
        } else {
            core__tensor_retain(r->results[i]);
            run->tensors[i] = r->results[i];
        }
    }
    return CORE_OK;
}

static core_status make_outputs(const core_program *program,
                                const core__run *run, core_tensor **outputs)
{
    for (uint32_t i = 0; i < program->noutputs; i++)
        CORE_TRY(core__run_output(run, i, outputs, &outputs[i]));
    return CORE_OK;
}

/* What the graph has written in place, and in buffers. */
static core_status finish_writes(const core_program *program, core__replay *r,
                                 const core__run *run)
{
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];
        core_tensor *target = core__run_target(run, write);

        if (!write->hidden && r->buffers[write->index])
            CORE_TRY(core_copy_(target, r->buffers[write->index], false));
        else
            core__tensor_bump_version(target);
    }
    return CORE_OK;
}

static core_status launch_graph(core_program *program, core__replay *r,
                                core_tensor *const *inputs,
                                core_tensor **outputs, core_stream *stream)
{
    uint32_t end = atomic_load(&r->end);
    core__run run = {.program = program,
                     .inputs = inputs,
                     .devices = program->devices,
                     .tensors = r->tensors,
                     .numbers = r->numbers_now,
                     .last = r->fusion ? r->last_reader : NULL};
    core__replay_place *at;

    CORE_TRY(core__replay_find_place(r->replays, program->devices[0], &at));
    CORE_TRY(order_after_last(at, stream));
    if (r->last != stream) {
        core_stream_release(r->last);
        r->last = core_stream_retain(stream);
    }
    CORE_TRY(copy_inputs(program, r, inputs));
    CORE_TRY(core__replay_numbers_fill(r->device_numbers, r->numbers_now));
    CORE_TRY(core_graph_launch(r->graph, stream));
    CORE_TRY(core__run_set_sources(&run));
    CORE_TRY(take_results(program, r, &run));
    CORE_TRY(core__replay_run_nodes(&run, r, end, program->nnodes, false));
    CORE_TRY(make_outputs(program, &run, outputs));
    if (end < program->nnodes)
        CORE_TRY(core__run_writes(&run));
    else
        CORE_TRY(finish_writes(program, r, &run));
    core__program_finish_run(program);
    atomic_fetch_add(&r->launches, 1);
    atomic_fetch_add(&r->replays->launches, 1);
    return CORE_OK;
}

static core_status launch(core_program *program, core__replay *r,
                          core_tensor *const *inputs, core_tensor **outputs,
                          core_stream *stream)
{
    core_status status = launch_graph(program, r, inputs, outputs, stream);

    core__replay_release_tensors(program, r);
    for (uint32_t i = 0; i < program->noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

/* Drops what a reset of the device, or a registration, has made void. */
static void check_state(core_program *program, core__replay *r)
{
    if (atomic_load(&r->state) != CORE__REPLAY_CAPTURED)
        return;
    if (r->generation != atomic_load(&program->devices[0]->generation)) {
        core__replay_drop_graph(program, r);
        atomic_store(&r->state, CORE__REPLAY_FRESH);
    } else if (r->registered != atomic_load(&core__registry_generation)) {
        core__replay_drop_graph(program, r);
        atomic_store(&r->state, CORE__REPLAY_CALLED);
    }
}

/* The call has the graphs.  *out_done: it was made. */
static core_status run_taken(core_program *program, core__replay *r,
                             core_tensor *const *inputs, core_tensor **outputs,
                             core_stream *stream, bool *out_done)
{
    bool holds;

    check_state(program, r);
    CORE_TRY(core__program_read_numbers(program, r->numbers_now));
    if (atomic_load(&r->state) == CORE__REPLAY_FRESH) {
        core__replay_note_first(program, r, inputs);
        atomic_store(&r->state, CORE__REPLAY_CALLED);
        return CORE_OK;
    }
    if (!core__replay_note_changes(program, r, inputs, &holds)) {
        core__replay_never(
            program, r,
            "inputs that share memory, and are written, are at another "
            "address in each call");
        return CORE_OK;
    }
    if (!holds || atomic_load(&r->state) == CORE__REPLAY_CALLED)
        CORE_TRY(core__replay_capture(program, r, inputs, outputs, out_done));
    if (*out_done || atomic_load(&r->state) != CORE__REPLAY_CAPTURED ||
        r->call_flags != core__thread_self()->call_flags)
        return CORE_OK;
    *out_done = true;
    return launch(program, r, inputs, outputs, stream);
}

/* Autograd and autocast have done their part. */
static core_status run_below(core__thread *self, core_program *program,
                             core__replay *r, core_tensor *const *inputs,
                             core_tensor **outputs, core_stream *stream,
                             bool *out_done)
{
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_status status;

    self->excluded |= (uint32_t)(CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST);
    self->no_grad = true;
    status = run_taken(program, r, inputs, outputs, stream, out_done);
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}

static core_status try_graph(core__replays *replays, core_program *program,
                             core_tensor *const *inputs, core_tensor **outputs,
                             bool *out_done)
{
    core__thread *self = core__thread_self();
    core_stream *stream = core__program_plain_stream(self, program);
    core_status status;
    const char *reason;
    core__replay *r;

    if (!stream)
        return CORE_OK;
    CORE_TRY(core__replay_of(program, replays, &r));
    if (atomic_load_explicit(&r->state, memory_order_relaxed) ==
        CORE__REPLAY_NEVER)
        return CORE_OK;
    if (atomic_exchange(&replays->busy, true)) {
        atomic_fetch_add(&replays->busy_calls, 1);
        return CORE_OK;
    }
    reason = core__replay_refusal(program);
    if (reason) {
        core__replay_never(program, r, reason);
        status = CORE_OK;
    } else {
        status = run_below(self, program, r, inputs, outputs, stream, out_done);
    }
    atomic_store(&replays->busy, false);
    return status;
}

core_status core__replay_run(core__replays *replays, core_program *program,
                             core_tensor *const *inputs, core_tensor **outputs)
{
    bool done = false;

    if (replays)
        CORE_TRY(try_graph(replays, program, inputs, outputs, &done));
    return done ? CORE_OK : core__program_run_checked(program, inputs, outputs);
}
