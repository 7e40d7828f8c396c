/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What has been made and not destroyed: memory, streams, events, graphs. */

#include "base/memory.h"
#include "interpose/interposer.h"

static const char *const kind_texts[] = {
    "", "memory", "a stream", "an event", "a graph", "host memory", "a call",
};

static layer_object **bucket_of(core__layers *layers, uint32_t kind,
                                const void *word)
{
    uint64_t hash = (uint64_t)(uintptr_t)word ^ (uint64_t)kind << 56;

    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return &layers->objects[hash >> 54];
}

/* Under the lock. */
static layer_object *find(core__layers *layers, uint32_t kind,
                          const void *owner, const void *word, bool gone)
{
    layer_object *object = *bucket_of(layers, kind, word);

    while (object && (object->kind != kind || object->word != word ||
                      object->owner != owner || object->gone != gone))
        object = object->next;
    return object;
}

static void unlink_object(core__layers *layers, layer_object *object)
{
    layer_object **at = bucket_of(layers, object->kind, object->word);

    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    layers->gone -= object->gone;
    core__free(object);
}

/* Gone ones are kept as long as they are few. */
static void purge(core__layers *layers)
{
    for (uint32_t i = 0; i < LAYER_BUCKETS; i++)
        for (layer_object *o = layers->objects[i], *next; o; o = next) {
            next = o->next;
            if (o->gone)
                unlink_object(layers, o);
        }
}

static bool overlaps(const layer_object *o, uint64_t offset, uint64_t size)
{
    return offset < o->offset + o->size && o->offset < offset + size;
}

/* The live block of the handle that a range touches; one of size 0 is the
 * first. */
static layer_object *block_of(core__layers *layers, const void *owner,
                              const void *word, uint64_t offset, uint64_t size)
{
    layer_object *o = *bucket_of(layers, LAYER_MEMORY, word);

    for (; o; o = o->next)
        if (o->kind == LAYER_MEMORY && o->word == word && o->owner == owner &&
            !o->gone && overlaps(o, offset, size ? size : 1))
            return o;
    return NULL;
}

void layer_made(layer_call *call, layer_object_kind kind, const void *owner,
                const void *word, uint64_t offset, uint64_t size)
{
    core__layers *layers = call->layers;
    layer_object *object, *other;
    bool twice;

    if (!layer_validates(layers))
        return;
    object = core__alloc_zero(sizeof *object);
    if (!object)
        return; /* then it is not known, and is not judged */
    layer_lock(layers);
    other = find(layers, kind, owner, word, true);
    if (other)
        unlink_object(layers, other);
    twice = kind == LAYER_MEMORY
                ? block_of(layers, owner, word, offset, size) != NULL
                : find(layers, kind, owner, word, false) != NULL;
    *object = (layer_object){.kind = kind,
                             .owner = owner,
                             .word = word,
                             .offset = offset,
                             .size = size};
    object->next = *bucket_of(layers, kind, word);
    *bucket_of(layers, kind, word) = object;
    pthread_mutex_unlock(&layers->lock);
    if (twice)
        layer_breach(call, "gives %s (%p) that is in use already",
                     kind_texts[kind], word);
}

/* Under the lock. */
static layer_object *find_exact(core__layers *layers, layer_object_kind kind,
                                const void *owner, const void *word,
                                uint64_t offset)
{
    layer_object *o;

    if (kind != LAYER_MEMORY)
        return find(layers, kind, owner, word, false);
    o = block_of(layers, owner, word, offset, 1);
    return o && o->offset == offset ? o : NULL;
}

bool layer_destroys(layer_call *call, layer_object_kind kind, const void *owner,
                    const void *word, uint64_t offset, uint64_t size)
{
    core__layers *layers = call->layers;
    layer_object *object;
    bool was;
    uint64_t had = size;

    if (!layer_validates(layers))
        return true;
    layer_lock(layers);
    object = find_exact(layers, kind, owner, word, offset);
    was = find(layers, kind, owner, word, true) != NULL;
    if (object) {
        had = object->size;
        object->gone = true;
        if (++layers->gone > LAYER_GONE_MAX)
            purge(layers);
    }
    pthread_mutex_unlock(&layers->lock);
    if (!object)
        layer_breach(call, "destroys %s (%p) that %s", kind_texts[kind], word,
                     was ? "is gone already" : "was never made");
    else if (had != size)
        layer_breach(call, "frees %p with %llu bytes; it was made with %llu",
                     word, (unsigned long long)size, (unsigned long long)had);
    return object != NULL;
}

bool layer_uses(layer_call *call, layer_object_kind kind, const void *owner,
                const void *word, bool known)
{
    core__layers *layers = call->layers;
    bool live, was;

    if (!layer_validates(layers))
        return true;
    layer_lock(layers);
    live = find(layers, kind, owner, word, false) != NULL;
    was = find(layers, kind, owner, word, true) != NULL;
    pthread_mutex_unlock(&layers->lock);
    if (live || (!was && !known))
        return true;
    layer_breach(call, "uses %s (%p) that %s", kind_texts[kind], word,
                 was ? "is gone" : "was never made");
    return false;
}

_Thread_local bool layer_in_callback;
_Thread_local bool layer_names_stream;

bool layer_is_capturing(core__layers *layers, const void *owner,
                        const void *stream)
{
    layer_object *object;
    bool capturing;

    layer_lock(layers);
    object = find(layers, LAYER_STREAM_OBJECT, owner, stream, false);
    capturing = object && object->capturing;
    pthread_mutex_unlock(&layers->lock);
    return capturing;
}

void layer_captures(layer_call *call, const void *owner, const void *stream,
                    bool on)
{
    core__layers *layers = call->layers;
    layer_object *object;
    bool was = !on;

    if (!layer_validates(layers))
        return;
    layer_lock(layers);
    object = find(layers, LAYER_STREAM_OBJECT, owner, stream, false);
    if (object) {
        was = object->capturing;
        object->capturing = on;
    }
    pthread_mutex_unlock(&layers->lock);
    if (was == on)
        layer_breach(call, "libcore %s a capture of %p, which %s",
                     on ? "begins" : "ends", stream,
                     on ? "captures already" : "does not capture");
}

bool layer_waits(layer_call *call, const void *owner, const void *stream)
{
    if (!layer_validates(call->layers))
        return true;
    if (layer_in_callback) {
        layer_breach(call, "libcore waits in a host callback, which may only "
                           "release");
        return false;
    }
    if (!stream || !layer_is_capturing(call->layers, owner, stream))
        return true;
    layer_breach(call, "libcore waits for a stream (%p) that captures", stream);
    return false;
}

bool layer_uses_memory(layer_call *call, const layer_device *device,
                       core_memory memory, uint64_t size)
{
    core__layers *layers = call->layers;
    layer_object *o, block = {0};
    bool live, was;

    if (!layer_validates(layers) || !device || size == 0)
        return true;
    layer_lock(layers);
    o = block_of(layers, device, memory.handle, memory.offset, size);
    live = o != NULL;
    if (o)
        block = *o;
    else
        live = find(layers, LAYER_MEMORY, device, memory.handle, false) != NULL;
    was = find(layers, LAYER_MEMORY, device, memory.handle, true) != NULL;
    pthread_mutex_unlock(&layers->lock);
    if (!o && !live && !was)
        return true; /* not of this device's allocations */
    if (!o && !live)
        layer_breach(call, "uses memory (%p) that is gone", memory.handle);
    else if (!o || memory.offset < block.offset ||
             size > block.size - (memory.offset - block.offset))
        layer_breach(call,
                     "bytes %llu to %llu of %p are outside of what was "
                     "allocated",
                     (unsigned long long)memory.offset,
                     (unsigned long long)(memory.offset + size), memory.handle);
    else
        return true;
    return false;
}

void layer_records(layer_call *call, const void *owner, const void *event)
{
    core__layers *layers = call->layers;
    layer_object *o;

    if (!layer_validates(layers))
        return;
    layer_lock(layers);
    o = find(layers, LAYER_EVENT_OBJECT, owner, event, false);
    if (o)
        o->recorded = true;
    pthread_mutex_unlock(&layers->lock);
}

bool layer_was_recorded(layer_call *call, const void *owner, const void *event)
{
    core__layers *layers = call->layers;
    layer_object *o;
    bool unrecorded;

    if (!layer_validates(layers))
        return true;
    layer_lock(layers);
    o = find(layers, LAYER_EVENT_OBJECT, owner, event, false);
    unrecorded = o && !o->recorded;
    pthread_mutex_unlock(&layers->lock);
    if (unrecorded)
        layer_breach(call, "libcore asks about an event that was never "
                           "recorded");
    return !unrecorded;
}

void layer_forget(core__layers *layers, const void *owner)
{
    layer_lock(layers);
    for (uint32_t i = 0; i < LAYER_BUCKETS; i++)
        for (layer_object *o = layers->objects[i], *next; o; o = next) {
            next = o->next;
            if (o->owner == owner)
                unlink_object(layers, o);
        }
    pthread_mutex_unlock(&layers->lock);
}

uint64_t layer_alive(core__layers *layers, layer_object_kind kind,
                     const void *owner)
{
    uint64_t count = 0;

    layer_lock(layers);
    for (uint32_t i = 0; i < LAYER_BUCKETS; i++)
        for (layer_object *o = layers->objects[i]; o; o = o->next)
            count += o->kind == kind && o->owner == owner && !o->gone;
    pthread_mutex_unlock(&layers->lock);
    return count;
}

void layer_objects_free(core__layers *layers)
{
    for (uint32_t i = 0; i < LAYER_BUCKETS; i++)
        while (layers->objects[i]) {
            layer_object *next = layers->objects[i]->next;

            core__free(layers->objects[i]);
            layers->objects[i] = next;
        }
}
