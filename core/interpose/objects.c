/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Objects that were created and not destroyed: memory, streams, events,
 * graphs. */

#include "base/memory.h"
#include "interpose/interposer.h"

static const char *const kind_texts[] = {
    "",        "memory",      "a stream", "an event",
    "a graph", "host memory", "a call",   "the kernel",
};

static interposer_object **bucket_of(core__interposers *interposers,
                                     uint32_t kind, const void *handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle ^ (uint64_t)kind << 56;

    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return &interposers->objects[hash >> 54];
}

/* With the lock held. */
static interposer_object *find(core__interposers *interposers, uint32_t kind,
                               const void *owner, const void *handle,
                               bool destroyed)
{
    interposer_object *object = *bucket_of(interposers, kind, handle);

    while (object && (object->kind != kind || object->handle != handle ||
                      object->owner != owner || object->destroyed != destroyed))
        object = object->next;
    return object;
}

static void unlink_object(core__interposers *interposers,
                          interposer_object *object)
{
    interposer_object **at =
        bucket_of(interposers, object->kind, object->handle);

    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    interposers->destroyed -= object->destroyed;
    core__free(object);
}

/* Destroyed objects are kept up to a limit. */
static void drop_destroyed(core__interposers *interposers)
{
    for (uint32_t i = 0; i < INTERPOSER_BUCKETS; i++)
        for (interposer_object *o = interposers->objects[i], *next; o;
             o = next) {
            next = o->next;
            if (o->destroyed)
                unlink_object(interposers, o);
        }
}

static bool overlaps(const interposer_object *o, uint64_t offset, uint64_t size)
{
    return offset < o->offset + o->size && o->offset < offset + size;
}

/* The allocated block of the handle that overlaps a range; one of size 0 is
 * the first. */
static interposer_object *block_of(core__interposers *interposers,
                                   const void *owner, const void *handle,
                                   uint64_t offset, uint64_t size)
{
    interposer_object *o = *bucket_of(interposers, INTERPOSER_MEMORY, handle);

    for (; o; o = o->next)
        if (o->kind == INTERPOSER_MEMORY && o->handle == handle &&
            o->owner == owner && !o->destroyed &&
            overlaps(o, offset, size ? size : 1))
            return o;
    return NULL;
}

void interposer_created(interposer_call *call, interposer_object_kind kind,
                        const void *owner, const void *handle, uint64_t offset,
                        uint64_t size)
{
    core__interposers *interposers = call->interposers;
    interposer_object *object, *other;
    bool duplicate;

    if (!interposer_validates(interposers))
        return;
    if (!handle) {
        interposer_violation(call, "returns NULL as the handle of %s",
                             kind_texts[kind]);
        return; /* interposer_leave fails the call */
    }
    object = core__alloc_zero(sizeof *object);
    if (!object)
        return; /* then it is unknown, and not checked */
    interposer_lock(interposers);
    other = find(interposers, kind, owner, handle, true);
    if (other)
        unlink_object(interposers, other);
    duplicate = kind == INTERPOSER_MEMORY
                    ? block_of(interposers, owner, handle, offset, size) != NULL
                    : find(interposers, kind, owner, handle, false) != NULL;
    *object = (interposer_object){.kind = kind,
                                  .owner = owner,
                                  .handle = handle,
                                  .offset = offset,
                                  .size = size};
    object->next = *bucket_of(interposers, kind, handle);
    *bucket_of(interposers, kind, handle) = object;
    pthread_mutex_unlock(&interposers->lock);
    if (duplicate)
        interposer_violation(call, "returns %s (%p) that is already in use",
                             kind_texts[kind], handle);
}

/* With the lock held. */
static interposer_object *find_exact(core__interposers *interposers,
                                     interposer_object_kind kind,
                                     const void *owner, const void *handle,
                                     uint64_t offset)
{
    interposer_object *o;

    if (kind != INTERPOSER_MEMORY)
        return find(interposers, kind, owner, handle, false);
    o = block_of(interposers, owner, handle, offset, 1);
    return o && o->offset == offset ? o : NULL;
}

bool interposer_destroys(interposer_call *call, interposer_object_kind kind,
                         const void *owner, const void *handle, uint64_t offset,
                         uint64_t size)
{
    core__interposers *interposers = call->interposers;
    interposer_object *object;
    bool existed;
    uint64_t had = size;

    if (!interposer_validates(interposers))
        return true;
    interposer_lock(interposers);
    object = find_exact(interposers, kind, owner, handle, offset);
    existed = find(interposers, kind, owner, handle, true) != NULL;
    if (object) {
        had = object->size;
        object->destroyed = true;
        if (++interposers->destroyed > INTERPOSER_DESTROYED_MAX)
            drop_destroyed(interposers);
    }
    pthread_mutex_unlock(&interposers->lock);
    if (!object)
        interposer_violation(
            call, "destroys %s (%p) that %s", kind_texts[kind], handle,
            existed ? "was already destroyed" : "was never created");
    else if (had != size)
        interposer_violation(
            call, "frees %p with %llu bytes; it was allocated with %llu",
            handle, (unsigned long long)size, (unsigned long long)had);
    return object != NULL;
}

bool interposer_uses(interposer_call *call, interposer_object_kind kind,
                     const void *owner, const void *handle, bool known)
{
    core__interposers *interposers = call->interposers;
    bool live, existed;

    if (!interposer_validates(interposers))
        return true;
    interposer_lock(interposers);
    live = find(interposers, kind, owner, handle, false) != NULL;
    existed = find(interposers, kind, owner, handle, true) != NULL;
    pthread_mutex_unlock(&interposers->lock);
    if (live || (!existed && !known))
        return true;
    interposer_violation(call, "uses %s (%p) that %s", kind_texts[kind], handle,
                         existed ? "was destroyed" : "was never created");
    return false;
}

_Thread_local bool interposer_in_callback;
_Thread_local bool interposer_names_stream;

bool interposer_is_capturing(core__interposers *interposers, const void *owner,
                             const void *stream)
{
    interposer_object *object;
    bool capturing;

    interposer_lock(interposers);
    object = find(interposers, INTERPOSER_STREAM_OBJECT, owner, stream, false);
    capturing = object && object->capturing;
    pthread_mutex_unlock(&interposers->lock);
    return capturing;
}

void interposer_captures(interposer_call *call, const void *owner,
                         const void *stream, bool on)
{
    core__interposers *interposers = call->interposers;
    interposer_object *object;
    bool existed = !on;

    if (!interposer_validates(interposers))
        return;
    interposer_lock(interposers);
    object = find(interposers, INTERPOSER_STREAM_OBJECT, owner, stream, false);
    if (object) {
        existed = object->capturing;
        object->capturing = on;
    }
    pthread_mutex_unlock(&interposers->lock);
    if (existed == on)
        interposer_violation(call, "libcore %s a capture of %p, which %s",
                             on ? "begins" : "ends", stream,
                             on ? "is already capturing" : "is not capturing");
}

bool interposer_waits(interposer_call *call, const void *owner,
                      const void *stream)
{
    if (!interposer_validates(call->interposers))
        return true;
    if (interposer_in_callback) {
        interposer_violation(
            call,
            "libcore waits in a host callback, which may only release objects");
        return false;
    }
    if (!stream || !interposer_is_capturing(call->interposers, owner, stream))
        return true;
    interposer_violation(
        call, "libcore waits for a stream (%p) that is capturing", stream);
    return false;
}

bool interposer_uses_memory(interposer_call *call,
                            const interposer_device *device, core_memory memory,
                            uint64_t size)
{
    core__interposers *interposers = call->interposers;
    interposer_object *o, block = {0};
    bool live, existed;

    if (!interposer_validates(interposers) || !device || size == 0)
        return true;
    interposer_lock(interposers);
    o = block_of(interposers, device, memory.handle, memory.offset, size);
    live = o != NULL;
    if (o)
        block = *o;
    else
        live = find(interposers, INTERPOSER_MEMORY, device, memory.handle,
                    false) != NULL;
    existed = find(interposers, INTERPOSER_MEMORY, device, memory.handle,
                   true) != NULL;
    pthread_mutex_unlock(&interposers->lock);
    if (!o && !live && !existed)
        return true; /* not allocated by this device */
    if (!o && !live)
        interposer_violation(call, "uses memory (%p) that was freed",
                             memory.handle);
    else if (!o || memory.offset < block.offset ||
             size > block.size - (memory.offset - block.offset))
        interposer_violation(
            call, "bytes %llu to %llu of %p are outside its allocation",
            (unsigned long long)memory.offset,
            (unsigned long long)(memory.offset + size), memory.handle);
    else
        return true;
    return false;
}

void interposer_records(interposer_call *call, const void *owner,
                        const void *event)
{
    core__interposers *interposers = call->interposers;
    interposer_object *o;

    if (!interposer_validates(interposers))
        return;
    interposer_lock(interposers);
    o = find(interposers, INTERPOSER_EVENT_OBJECT, owner, event, false);
    if (o)
        o->recorded = true;
    pthread_mutex_unlock(&interposers->lock);
}

bool interposer_was_recorded(interposer_call *call, const void *owner,
                             const void *event)
{
    core__interposers *interposers = call->interposers;
    interposer_object *o;
    bool unrecorded;

    if (!interposer_validates(interposers))
        return true;
    interposer_lock(interposers);
    o = find(interposers, INTERPOSER_EVENT_OBJECT, owner, event, false);
    unrecorded = o && !o->recorded;
    pthread_mutex_unlock(&interposers->lock);
    if (unrecorded)
        interposer_violation(
            call, "libcore queries an event that was never recorded");
    return !unrecorded;
}

void interposer_objects_drop(core__interposers *interposers, const void *owner)
{
    interposer_lock(interposers);
    for (uint32_t i = 0; i < INTERPOSER_BUCKETS; i++)
        for (interposer_object *o = interposers->objects[i], *next; o;
             o = next) {
            next = o->next;
            if (o->owner == owner && o->kind != INTERPOSER_KERNEL_OBJECT)
                unlink_object(interposers, o);
        }
    pthread_mutex_unlock(&interposers->lock);
}

uint64_t interposer_alive(core__interposers *interposers,
                          interposer_object_kind kind, const void *owner)
{
    uint64_t count = 0;

    interposer_lock(interposers);
    for (uint32_t i = 0; i < INTERPOSER_BUCKETS; i++)
        for (interposer_object *o = interposers->objects[i]; o; o = o->next)
            count += o->kind == kind && o->owner == owner && !o->destroyed;
    pthread_mutex_unlock(&interposers->lock);
    return count;
}

void interposer_objects_free(core__interposers *interposers)
{
    for (uint32_t i = 0; i < INTERPOSER_BUCKETS; i++)
        while (interposers->objects[i]) {
            interposer_object *next = interposers->objects[i]->next;

            core__free(interposers->objects[i]);
            interposers->objects[i] = next;
        }
}
