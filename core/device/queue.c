/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The streams of a plugin, shared out among those of the core.  A device that
 * has max_streams of them serves more by giving several core streams one
 * queue: order is all that a stream promises. */

#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"

typedef struct core__queues {
    pthread_mutex_t lock;
    core__queue **list; /* all there are; the default stream's first */
    uint32_t count;
    uint32_t room;
    uint32_t next; /* whose turn it is to be shared */
    /* Own ones that are on no list any more, and that the plugin still has. */
    uint32_t leaving;
    pthread_cond_t left; /* one of them went */
} core__queues;

core__queue core__queue_idle = {
    .references = 1,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

core_status core__queues_create(core_device *device)
{
    core__queues *queues = core__alloc_zero(sizeof *queues);

    if (!queues)
        return core__error_memory(sizeof *queues);
    pthread_mutex_init(&queues->lock, NULL);
    pthread_cond_init(&queues->left, NULL);
    device->queues = queues;
    return CORE_OK;
}

static void destroy(core__queue *queue)
{
    core_device *device = queue->device;

    if (core__device_knows(device, queue->generation))
        device->backend->streams.destroy(device->impl, queue->impl);
    pthread_mutex_destroy(&queue->lock);
    core__free(queue->failure);
    core__free(queue);
}

void core__queues_destroy(core_device *device)
{
    core__queues *queues = device->queues;

    if (!queues || device->forked)
        return;
    for (uint32_t i = 0; i < queues->count; i++)
        destroy(queues->list[i]);
    pthread_cond_destroy(&queues->left);
    pthread_mutex_destroy(&queues->lock);
    core__free(queues->list);
    core__free(queues);
    device->queues = NULL;
}

core__queue *core__queue_retain(core__queue *queue)
{
    if (queue && queue != &core__queue_idle && !queue->device->forked) {
        pthread_mutex_lock(&queue->device->queues->lock);
        queue->references++;
        pthread_mutex_unlock(&queue->device->queues->lock);
    }
    return queue;
}

core__queue *core__queue_of_word(core_device *device, const void *word)
{
    core__queues *queues = device->queues;
    core__queue *queue = NULL;

    if (!queues || device->forked)
        return NULL;
    pthread_mutex_lock(&queues->lock);
    for (uint32_t i = 0; i < queues->count && !queue; i++)
        if (queues->list[i]->impl == word &&
            core__device_knows(device, queues->list[i]->generation))
            queue = queues->list[i];
    if (queue)
        queue->references++;
    pthread_mutex_unlock(&queues->lock);
    return queue;
}

/* Whether it counts against what the device has. */
static bool is_own(const core__queue *queue)
{
    return !queue->adopted &&
           core__device_knows(queue->device, queue->generation);
}

void core__queue_release(core__queue *queue)
{
    core__queues *queues;
    bool last, own;

    if (!queue || queue == &core__queue_idle || queue->device->forked)
        return;
    queues = queue->device->queues;
    pthread_mutex_lock(&queues->lock);
    last = --queue->references == 0;
    for (uint32_t i = 0; last && i < queues->count; i++)
        if (queues->list[i] == queue) {
            queues->count--;
            for (; i < queues->count; i++)
                queues->list[i] = queues->list[i + 1];
        }
    own = last && is_own(queue);
    queues->leaving += own;
    pthread_mutex_unlock(&queues->lock);
    if (!last)
        return;
    destroy(queue); /* without the lock: callbacks may be dropped */
    if (!own)
        return;
    pthread_mutex_lock(&queues->lock);
    queues->leaving--;
    pthread_cond_broadcast(&queues->left);
    pthread_mutex_unlock(&queues->lock);
}

void core__queue_leave(core__queue *queue)
{
    if (!queue || queue == &core__queue_idle || queue->device->forked)
        return;
    pthread_mutex_lock(&queue->device->queues->lock);
    queue->streams--;
    pthread_mutex_unlock(&queue->device->queues->lock);
    core__queue_release(queue);
}

core_status core__queue_capture(core__queue *queue, bool on)
{
    core_device *device = queue->device;
    bool alone;

    CORE_TRY(core__device_here(device));
    pthread_mutex_lock(&device->queues->lock);
    alone = queue->streams == 1;
    queue->capturing = on && alone;
    pthread_mutex_unlock(&device->queues->lock);
    if (alone || !on)
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s has %u streams, and this one shares its own with "
                       "others, whose work would be captured too",
                       device->name, device->properties.max_streams);
}

/* ---------------------------------------------------------------- making -- */

static core_status make_room(core__queues *queues)
{
    uint32_t room = queues->room ? 2 * queues->room : 8;
    core__queue **list;

    if (queues->count < queues->room)
        return CORE_OK;
    list = core__realloc(queues->list, room * sizeof(core__queue *));
    if (!list)
        return core__error_memory(room * sizeof(core__queue *));
    queues->list = list;
    queues->room = room;
    return CORE_OK;
}

/* The plugin's stream: adopted, of a priority, or plain. */
static core_status open_impl(core_device *device, int32_t priority,
                             void *native, void **out_impl)
{
    const core__interfaces *interfaces = &device->interfaces;

    if (native)
        return interfaces->stream_adopt.adopt(device->impl, native, out_impl);
    if (priority != 0)
        return interfaces->stream_priority.create(device->impl, 0, priority,
                                                  out_impl);
    return device->backend->streams.create(device->impl, 0, out_impl);
}

/* Under the lock of the queues. */
static core_status make(core_device *device, int32_t priority, void *native,
                        core__queue **out_queue)
{
    core__queues *queues = device->queues;
    core__queue *queue;
    core_status status;

    CORE_TRY(make_room(queues));
    queue = core__alloc_zero(sizeof *queue);
    if (!queue)
        return core__error_memory(sizeof *queue);
    queue->references = 1;
    queue->streams = 1;
    queue->device = device;
    queue->generation = atomic_load(&device->generation);
    queue->priority = priority;
    queue->adopted = native != NULL;
    status = open_impl(device, priority, native, &queue->impl);
    if (status != CORE_OK) {
        core__free(queue);
        return core__device_result(device, status);
    }
    pthread_mutex_init(&queue->lock, NULL);
    queues->list[queues->count++] = queue;
    *out_queue = queue;
    return CORE_OK;
}

static bool serves(const core__queue *queue)
{
    return !queue->adopted && !queue->capturing &&
           atomic_load(&queue->failed) == CORE_OK &&
           queue->generation == atomic_load(&queue->device->generation);
}

/* How many of the device's own streams are in use. */
static uint32_t count_own(const core__queues *queues)
{
    uint32_t count = queues->leaving;

    for (uint32_t i = 0; i < queues->count; i++)
        count += is_own(queues->list[i]);
    return count;
}

/* The next in turn that is well; of the same priority, and not the default
 * stream's, if there is one. */
static core__queue *share(core__queues *queues, int32_t priority)
{
    core__queue *best = NULL;
    uint32_t first = queues->next++;

    for (uint32_t i = 0; i < queues->count; i++) {
        uint32_t index = (first + i) % queues->count;
        core__queue *queue = queues->list[index];

        if (!serves(queue))
            continue;
        if (queue->priority == priority && index > 0) {
            best = queue;
            break;
        }
        if (!best || best == queues->list[0])
            best = queue;
    }
    if (best) {
        best->references++;
        best->streams++;
    }
    return best;
}

core_status core__queue_take(core_device *device, int32_t priority,
                             core__queue **out_queue)
{
    core__queues *queues = device->queues;
    uint32_t limit = device->properties.max_streams;
    core_status status = CORE_OK;
    bool full = false;

    *out_queue = NULL;
    CORE_TRY(core__device_here(device));
    pthread_mutex_lock(&queues->lock);
    while (limit && count_own(queues) >= limit) {
        full = true;
        *out_queue = share(queues, priority);
        if (*out_queue || !queues->leaving)
            break;
        pthread_cond_wait(&queues->left, &queues->lock);
        full = false;
    }
    if (!full)
        status = make(device, priority, NULL, out_queue);
    pthread_mutex_unlock(&queues->lock);
    if (status == CORE_OK && !*out_queue)
        return core__error(CORE_ERROR_STREAM,
                           "%s has %u streams, and all of them failed or are "
                           "captured; core_device_reset gives new ones",
                           device->name, limit);
    return status;
}

core_status core__queue_adopt(core_device *device, void *native,
                              core__queue **out_queue)
{
    core_status status;

    *out_queue = NULL;
    CORE_TRY(core__device_here(device));
    pthread_mutex_lock(&device->queues->lock);
    status = make(device, 0, native, out_queue);
    pthread_mutex_unlock(&device->queues->lock);
    return status;
}

/* --------------------------------------------------------------- waiting -- */

core_status core__queues_wait(core_device *device, const char *reason)
{
    core__queues *queues = device->queues;
    core__error_record first;
    core_status status = CORE_OK;
    core__queue **list;
    uint32_t count = 0, room;

    CORE_TRY(core__device_here(device));
    /* References, so that waiting needs no lock.  Of a capture nothing runs: the
     * plugin is not to see that somebody waits for it. */
    pthread_mutex_lock(&queues->lock);
    room = queues->count;
    list = core__alloc(room * sizeof(core__queue *));
    for (uint32_t i = 0; list && i < room; i++) {
        if (queues->list[i]->capturing)
            continue;
        list[count] = queues->list[i];
        list[count++]->references++;
    }
    pthread_mutex_unlock(&queues->lock);
    if (!list)
        return core__error_memory(room * sizeof(core__queue *));
    for (uint32_t i = 0; i < count; i++) {
        /* Of an older generation: it is its own streams' matter. */
        bool stale = list[i]->generation != atomic_load(&device->generation) &&
                     !atomic_load(&device->lost);
        core_status one = stale ? CORE_OK : core__queue_wait(list[i], reason);

        if (one != CORE_OK && status == CORE_OK) {
            status = one;
            core__error_keep(&first);
        }
        core__queue_release(list[i]);
    }
    core__free(list);
    if (status != CORE_OK)
        core__error_restore(&first);
    return status;
}
