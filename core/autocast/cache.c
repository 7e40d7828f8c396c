/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The cast cache: casts of weights are kept until the outermost region ends, so
 * that a weight used ten times is cast once and its gradient passes through one
 * cast.
 *
 * The cache is a per-thread table keyed by the weight's address; an entry holds
 * a reference, so that the address cannot be reused.  The rest of the key: the
 * grad mode, since a cast that was not recorded is of no use to a call that
 * records; the weight's version; the stream, since nothing orders other streams
 * after the cast; and the capture, since results of a captured cast exist only
 * after a launch and a launch does not repeat casts key before the capture. */

#include "autocast/autocast.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "device/stream.h"
#include "tensor/batched.h"

#include <libcore/ops.h>

enum { INITIAL_SIZE = 32, MODE_NO_GRAD = 1, MODE_INFERENCE = 2 };

typedef struct cast_entry {
    core_tensor *source; /* referenced; NULL: the slot is free */
    core_tensor *result; /* referenced */
    uint64_t stream, capture;
    uint32_t version;
    uint8_t mode;
} cast_entry;

typedef struct core__autocast_casts casts;
struct core__autocast_casts {
    size_t size; /* a power of two, at most half full */
    size_t count;
    cast_entry slots[];
};

/* The key under which a cast of source made now is cached, without a result. */
static cast_entry key_of(core__thread *self, core_tensor *source)
{
    const core_stream *stream = core__stream_current_of(self, source->device);

    return (cast_entry){
        .source = source,
        .stream = stream->id,
        .capture = atomic_load(&stream->capture_id),
        .version = core__content_version(source),
        .mode = (uint8_t)((self->no_grad ? MODE_NO_GRAD : 0) |
                          (self->inference ? MODE_INFERENCE : 0)),
    };
}

static bool has_key(const cast_entry *slot, const cast_entry *like,
                    core_dtype dtype)
{
    return slot->source == like->source && slot->result->dtype == dtype &&
           slot->mode == like->mode && slot->stream == like->stream &&
           slot->capture == like->capture;
}

/* The slot with that key, of any version, or the free slot for it. */
static cast_entry *find_slot(casts *casts, const cast_entry *like,
                             core_dtype dtype)
{
    size_t at = (uintptr_t)like->source / 64 * 0x9e3779b1u & (casts->size - 1);

    while (casts->slots[at].source && !has_key(&casts->slots[at], like, dtype))
        at = (at + 1) & (casts->size - 1);
    return &casts->slots[at];
}

static casts *grow(casts *old)
{
    size_t size = old ? old->size * 2 : INITIAL_SIZE;
    casts *grown = core__alloc_zero(sizeof *grown + size * sizeof(cast_entry));

    if (!grown)
        return NULL;
    grown->size = size;
    for (size_t i = 0; old && i < old->size; i++) {
        cast_entry *slot = &old->slots[i];

        if (!slot->source)
            continue;
        *find_slot(grown, slot, (core_dtype)slot->result->dtype) = *slot;
        grown->count++;
    }
    core__free(old);
    return grown;
}

/* Without memory, the cast is not cached. */
static void insert(core__thread *self, cast_entry key, core_tensor *result)
{
    casts *casts = self->autocast_casts;
    cast_entry *slot;

    if (!casts || 2 * casts->count >= casts->size) {
        casts = grow(casts);
        if (!casts)
            return;
        self->autocast_casts = casts;
    }
    slot = find_slot(casts, &key, (core_dtype)result->dtype);
    if (slot->source) {
        core__tensor_release(slot->result);
    } else {
        core__tensor_retain(key.source);
        casts->count++;
    }
    core__tensor_retain(result);
    *slot = key;
    slot->result = result;
}

static bool is_cacheable(const core__thread *self, const core_tensor *source)
{
    return self->autocast_cached && core__tensor_requires_grad(source) &&
           !source->base && core__tensor_is_leaf(source);
}

core_status core__autocast_cast(core__thread *self, core_tensor *source,
                                core_dtype dtype, core_tensor **out_tensor)
{
    bool cacheable = is_cacheable(self, source);
    cast_entry key = {0};

    *out_tensor = NULL;
    if (cacheable)
        key = key_of(self, source);
    if (cacheable && self->autocast_casts) {
        cast_entry *slot = find_slot(self->autocast_casts, &key, dtype);

        if (slot->source && slot->version == key.version) {
            core__tensor_retain(slot->result);
            *out_tensor = slot->result;
            return CORE_OK;
        }
    }
    CORE_TRY(core_to(source, dtype, NULL, false, false, -1, out_tensor));
    if (cacheable)
        insert(self, key, *out_tensor);
    return CORE_OK;
}

void core__autocast_cache_clear(core__thread *self)
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
