/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Casts of weights, kept until the outermost region ends: a weight used ten
 * times is cast once, and its gradient comes back through one cast.
 *
 * A table of the thread, by the weight's address.  It holds a reference, so
 * that the address is not another tensor's meanwhile.  A cast that was not
 * recorded is of no use to a call that records, so the mode is part of what is
 * looked for; so is the weight's version.  And the stream, since nothing orders
 * another one behind the cast, and the capture under way: what that has made is
 * not there before a launch, and what was made before is not made again in
 * one. */

#include "autocast/autocast.h"

#include "base/memory.h"
#include "device/stream.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

enum { FIRST = 32, MODE_NO_GRAD = 1, MODE_INFERENCE = 2 };

typedef struct kept {
    core_tensor *source; /* referenced; NULL: free */
    core_tensor *result; /* referenced */
    uint64_t stream, capture;
    uint32_t version;
    uint8_t mode;
} kept;

typedef struct core__autocast_casts casts;
struct core__autocast_casts {
    size_t size; /* a power of two, never more than half full */
    size_t count;
    kept slots[];
};

/* What a cast of source made now would be kept as; without a result. */
static kept now(core__thread *self, core_tensor *source)
{
    const core_stream *stream = core__stream_current_of(self, source->device);

    return (kept){
        .source = source,
        .stream = stream->id,
        .capture = atomic_load(&stream->capture_id),
        .version = core__tensor_version(source),
        .mode = (uint8_t)((self->no_grad ? MODE_NO_GRAD : 0) |
                          (self->inference ? MODE_INFERENCE : 0)),
    };
}

static bool same(const kept *slot, const kept *like, core_dtype dtype)
{
    return slot->source == like->source && slot->result->dtype == dtype &&
           slot->mode == like->mode && slot->stream == like->stream &&
           slot->capture == like->capture;
}

/* The slot that has it, of whatever version, or the free one where it would
 * be. */
static kept *find(casts *casts, const kept *like, core_dtype dtype)
{
    size_t at = (uintptr_t)like->source / 64 * 0x9e3779b1u & (casts->size - 1);

    while (casts->slots[at].source && !same(&casts->slots[at], like, dtype))
        at = (at + 1) & (casts->size - 1);
    return &casts->slots[at];
}

static casts *grown(casts *old)
{
    size_t size = old ? old->size * 2 : FIRST;
    casts *grown = core__alloc_zero(sizeof *grown + size * sizeof(kept));

    if (!grown)
        return NULL;
    grown->size = size;
    for (size_t i = 0; old && i < old->size; i++) {
        kept *slot = &old->slots[i];

        if (!slot->source)
            continue;
        *find(grown, slot, (core_dtype)slot->result->dtype) = *slot;
        grown->count++;
    }
    core__free(old);
    return grown;
}

/* Where there is no memory it is not kept, and that is all. */
static void keep(core__thread *self, kept made, core_tensor *result)
{
    casts *casts = self->autocast_casts;
    kept *slot;

    if (!casts || 2 * casts->count >= casts->size) {
        casts = grown(casts);
        if (!casts)
            return;
        self->autocast_casts = casts;
    }
    slot = find(casts, &made, (core_dtype)result->dtype);
    if (slot->source) {
        core__tensor_release(slot->result);
    } else {
        core__tensor_retain(made.source);
        casts->count++;
    }
    core__tensor_retain(result);
    *slot = made;
    slot->result = result;
}

static bool to_be_kept(const core__thread *self, const core_tensor *source)
{
    return self->autocast_cached && core__tensor_requires_grad(source) &&
           !source->base && core_tensor_is_leaf(source);
}

core_status core__autocast_cast(core__thread *self, core_tensor *source,
                                core_dtype dtype, core_tensor **out_tensor)
{
    bool keeps = to_be_kept(self, source);
    kept made = {0};

    *out_tensor = NULL;
    if (keeps)
        made = now(self, source);
    if (keeps && self->autocast_casts) {
        kept *slot = find(self->autocast_casts, &made, dtype);

        if (slot->source && slot->version == made.version) {
            core__tensor_retain(slot->result);
            *out_tensor = slot->result;
            return CORE_OK;
        }
    }
    CORE_TRY(core_to(source, dtype, NULL, false, false, -1, out_tensor));
    if (keeps)
        keep(self, made, *out_tensor);
    return CORE_OK;
}

void core__autocast_forget(core__thread *self)
{
    casts *casts = self->autocast_casts;

    self->autocast_casts = NULL;
    for (size_t i = 0; casts && i < casts->size; i++) {
        if (!casts->slots[i].source)
            continue;
        core__tensor_release(casts->slots[i].source);
        core__tensor_release(casts->slots[i].result);
    }
    core__free(casts);
}
