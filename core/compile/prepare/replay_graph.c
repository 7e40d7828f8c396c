/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Device graphs of a program, and their memory. */

#include "compile/prepare/replay_graph.h"

#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "device/stream.h"
#include "tensor/tensor.h"

#include <string.h>

static core__replay *replay_new(core_program *program, core__replays *replays)
{
    size_t size =
        sizeof(core__replay) +
        program->ninputs *
            (sizeof(core_memory) + sizeof(void *) + sizeof(bool)) +
        program->nhidden * sizeof(core_memory) +
        program->nnumbers * (2 * sizeof(core_value) + 2 * sizeof(bool) + 2) +
        program->nvalues * (2 * sizeof(void *) + sizeof(uint32_t));
    core__replay *r = core__alloc_zero(size);

    if (!r)
        return NULL;
    r->replays = replays;
    r->input_memory = (core_memory *)(void *)(r + 1);
    r->hidden_memory = r->input_memory + program->ninputs;
    r->numbers = (core_value *)(void *)(r->hidden_memory + program->nhidden);
    r->numbers_now = r->numbers + program->nnumbers;
    r->buffers = (core_tensor **)(void *)(r->numbers_now + program->nnumbers);
    r->results = r->buffers + program->ninputs;
    r->tensors = r->results + program->nvalues;
    r->last_reader = (uint32_t *)(void *)(r->tensors + program->nvalues);
    r->copies = (bool *)(void *)(r->last_reader + program->nvalues);
    r->varies = r->copies + program->ninputs;
    r->refreshed = r->varies + program->nnumbers;
    r->steady = (uint8_t *)(r->refreshed + program->nnumbers);
    r->revived = r->steady + program->nnumbers;
    return r;
}

core_status core__replay_of(core_program *program, core__replays *replays,
                            core__replay **out_replay)
{
    core__replay *none = NULL;

    *out_replay = atomic_load_explicit(&program->replay, memory_order_acquire);
    if (core__likely(*out_replay != NULL))
        return CORE_OK;
    *out_replay = replay_new(program, replays);
    if (!*out_replay)
        return core__error_memory(sizeof **out_replay);
    if (!atomic_compare_exchange_strong(&program->replay, &none, *out_replay)) {
        core__free(*out_replay);
        *out_replay = none;
    }
    return CORE_OK;
}

/* The memory is reused after the launches, and the copies, that used it. */
static void drop_tensors(core__replay *r, core_tensor **tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i] && tensors[i]->storage && r->last)
            (void)core_tensor_record_stream(tensors[i], r->last);
        core__tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

void core__replay_drop_graph(const core_program *program, core__replay *r)
{
    core__error_record saved;

    core__error_save(&saved);
    drop_tensors(r, r->buffers, program->ninputs);
    drop_tensors(r, r->results, program->nvalues);
    core__replay_numbers_drop(r->device_numbers, r->last);
    core__replay_numbers_free(r->device_numbers);
    r->device_numbers = NULL;
    memset(r->refreshed, 0, program->nnumbers * sizeof *r->refreshed);
    core_graph_release(r->graph);
    r->graph = NULL;
    core__fusion_release(r->fusion); /* after the graph that has its kernels */
    r->fusion = NULL;
    core_stream_release(r->last);
    r->last = NULL;
    core__error_restore(&saved);
}

void core__replay_free(core_program *program)
{
    core__replay *r = atomic_load(&program->replay);

    if (!r)
        return;
    core__replay_drop_graph(program, r);
    core__free(r);
}

/* From the next call on, none is tried. */
void core__replay_never(core_program *program, core__replay *r,
                        const char *reason)
{
    core__replay_drop_graph(program, r);
    core__format(r->reason, sizeof r->reason, "%s", reason);
    atomic_store_explicit(&r->state, CORE__REPLAY_NEVER, memory_order_release);
}

void core__replay_describe_end(const core_program *program,
                               const core__replay *r, char *text, size_t size)
{
    const char *number = atomic_load(&r->end_number);
    const char *reason = atomic_load(&r->end_reason);

    core__format(text, size, "%s: %s%s%s",
                 program->nodes[atomic_load(&r->end_node)].name,
                 number ? "the " : "", number ? number : reason,
                 number ? " changes from call to call" : "");
}

static void write_end(const core_program *program, const core__replay *r,
                      core__json *json)
{
    char text[240];

    core__replay_describe_end(program, r, text, sizeof text);
    core__json_text(json, "reason", text);
}

void core__replay_write(const core_program *program, core__json *json)
{
    const core__replay *r = atomic_load(&program->replay);
    uint32_t at = r ? atomic_load_explicit(&r->state, memory_order_acquire) : 0;

    if (!r)
        return;
    core__json_object(json, "graph");
    core__json_boolean(json, "captured", at == CORE__REPLAY_CAPTURED);
    core__json_unsigned(json, "operators",
                        at == CORE__REPLAY_CAPTURED ? atomic_load(&r->end) : 0);
    core__json_unsigned(json, "of", program->nnodes);
    core__json_unsigned(json, "fused_kernels",
                        at == CORE__REPLAY_CAPTURED ? atomic_load(&r->fused)
                                                    : 0);
    core__json_unsigned(json, "captures", atomic_load(&r->captures));
    core__json_unsigned(json, "launches", atomic_load(&r->launches));
    core__json_unsigned(json, "copied_inputs", atomic_load(&r->moved));
    if (at == CORE__REPLAY_NEVER)
        core__json_text(json, "reason", r->reason);
    else if (at == CORE__REPLAY_CAPTURED &&
             atomic_load(&r->end) < program->nnodes)
        write_end(program, r, json);
    else if (at != CORE__REPLAY_CAPTURED)
        core__json_text(json, "reason", "it is captured in the second call");
    core__json_end(json);
}
