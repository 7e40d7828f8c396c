/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Maps streams of the core to streams of a plugin, called queues.  If a device
 * is limited to max_streams, several streams share a queue: a stream promises
 * order only. */

#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"

typedef struct core__queues {
    pthread_mutex_t lock;
    core__queue **list; /* all queues; the default stream's is first */
    uint32_t count;
    uint32_t capacity;
    uint32_t next; /* next queue to be shared */
    /* Own queues of each kind that are on no list any more but still exist in
     * the plugin. */
    uint32_t ending[CORE_STREAM_COPY + 1];
    uint32_t outliving; /* number of listed queues that outlive their streams */
    uint32_t inspecting; /* threads that inspect outliving queues */
    pthread_cond_t left; /* signalled when an ending queue is destroyed or an
                          * inspection ends */
    /* First error of streams that have ended, for callers that wait for the
     * device. */
    core_status unreported;
    uint32_t unreported_generation;
    core__error_record error;
} core__queues;

core__queue core__queue_synchronous = {
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

    core__queue_end_errors(queue);
    if (!queue->ended && core__device_has_generation(device, queue->generation))
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
    if (queue && queue != &core__queue_synchronous && !queue->device->forked) {
        pthread_mutex_lock(&queue->device->queues->lock);
        queue->references++;
        pthread_mutex_unlock(&queue->device->queues->lock);
    }
    return queue;
}

core__queue *core__queue_by_handle(core_device *device, const void *handle)
{
    core__queues *queues = device->queues;
    core__queue *queue = NULL;

    if (!queues || device->forked)
        return NULL;
    pthread_mutex_lock(&queues->lock);
    for (uint32_t i = 0; i < queues->count && !queue; i++)
        if (queues->list[i]->impl == handle && !queues->list[i]->ended &&
            core__device_has_generation(device, queues->list[i]->generation))
            queue = queues->list[i];
    if (queue)
        queue->references++;
    pthread_mutex_unlock(&queues->lock);
    return queue;
}

/* True if the queue counts against the device's max_streams. */
static bool is_own(const core__queue *queue)
{
    return !queue->adopted &&
           core__device_has_generation(queue->device, queue->generation);
}

void core__queue_release(core__queue *queue)
{
    core__queues *queues;
    uint32_t kind;
    bool last, own;

    if (!queue || queue == &core__queue_synchronous || queue->device->forked)
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
    kind = queue->kind;
    queues->ending[kind] += own;
    pthread_mutex_unlock(&queues->lock);
    if (!last)
        return;
    destroy(queue); /* without the lock, because callbacks may be dropped */
    if (!own)
        return;
    pthread_mutex_lock(&queues->lock);
    queues->ending[kind]--;
    pthread_cond_broadcast(&queues->left);
    pthread_mutex_unlock(&queues->lock);
}

/* A stream may end before its work does.  Callers that wait for the device also
 * wait for that work, and get its error; so the queue stays listed until it is
 * found idle. */

/* Keeps the error in this thread's record, if it is the first. */
static void keep_unreported(core__queues *queues, const core__queue *queue,
                            core_status status)
{
    if (status == CORE_OK ||
        queue->generation != atomic_load(&queue->device->generation) ||
        (queues->unreported != CORE_OK &&
         queues->unreported_generation == queue->generation))
        return;
    core__error_save(&queues->error);
    queues->unreported = status;
    queues->unreported_generation = queue->generation;
}

/* With the lock held.  If true, the caller has taken over the list's
 * reference. */
static bool end_outliving(core__queues *queues, core__queue *queue)
{
    bool outlives_streams = queue->outlives_streams;

    queue->outlives_streams = false;
    queues->outliving -= outlives_streams;
    return outlives_streams;
}

/* True if all its work is done.  *out_error: an error not yet reported, in
 * this thread's record.  In a callback the plugin may refuse the query. */
static bool is_over(core__queue *queue, core_status *out_error)
{
    core_device *device = queue->device;
    core__error_record *record = &core__thread_self()->error;
    bool reported = atomic_load(&queue->reported);
    core_status status;
    uint32_t errors = core__error_sequence();

    *out_error = CORE_OK;
    if (queue->generation != atomic_load(&device->generation))
        return true;
    if (atomic_load(&queue->failed) != CORE_OK) {
        *out_error = reported ? CORE_OK : core__queue_check(queue);
        return true;
    }
    pthread_mutex_lock(&queue->lock);
    status = device->backend->streams.query(device->impl, queue->impl);
    pthread_mutex_unlock(&queue->lock);
    if (status == CORE_OK) {
        *out_error =
            core__queue_take_unshared_error(queue, "core_device_synchronize");
        return true;
    }
    if (status != CORE_ERROR_STREAM &&
        (record->sequence == errors || record->code != status ||
         record->severity != CORE_SEVERITY_STREAM_POISONED))
        return false;
    *out_error = core__queue_check_status(queue, status, errors,
                                          "core_device_synchronize");
    return true;
}

static uint32_t count_served(core__queues *queues, const core__queue *queue)
{
    uint32_t served;

    pthread_mutex_lock(&queues->lock);
    served = queue->served;
    pthread_mutex_unlock(&queues->lock);
    return served;
}

/* The caller keeps its reference. */
static void reap(core__queues *queues, core__queue *queue)
{
    uint32_t served = count_served(queues, queue);
    core__error_record saved;
    core_status error;
    bool released;

    core__error_save(&saved);
    released = is_over(queue, &error);
    pthread_mutex_lock(&queues->lock);
    released =
        released && queue->served == served && end_outliving(queues, queue);
    if (released)
        keep_unreported(queues, queue, error);
    pthread_mutex_unlock(&queues->lock);
    core__error_restore(&saved);
    if (released)
        core__queue_release(queue);
}

static void end_inspection(core__queues *queues)
{
    pthread_mutex_lock(&queues->lock);
    queues->inspecting--;
    pthread_cond_broadcast(&queues->left);
    pthread_mutex_unlock(&queues->lock);
}

void core__queues_reap(core_device *device)
{
    core__queues *queues = device->queues;
    core__queue **list = NULL;
    uint32_t count = 0;

    if (!queues || device->forked)
        return;
    pthread_mutex_lock(&queues->lock);
    if (queues->outliving)
        list = core__alloc(queues->outliving * sizeof(core__queue *));
    for (uint32_t i = 0; list && i < queues->count; i++)
        if (queues->list[i]->outlives_streams) {
            list[count] = queues->list[i];
            list[count++]->references++;
        }
    queues->inspecting += list != NULL;
    pthread_mutex_unlock(&queues->lock);
    if (!list)
        return;
    for (uint32_t i = 0; i < count; i++)
        reap(queues, list[i]);
    end_inspection(queues);
    for (uint32_t i = 0; i < count; i++)
        core__queue_release(list[i]);
    core__free(list);
}

/* The caller has a reference.  The plugin is notified now rather than when the
 * last event is released: from now on the adopted stream is its library's, and
 * may be destroyed. */
static void end_adopted(core__queue *queue)
{
    core_device *device = queue->device;
    core__error_record saved;
    core_status status;

    core__error_save(&saved);
    status = core__queue_take_unshared_error(queue, "the stream's end");
    pthread_mutex_lock(&device->queues->lock);
    keep_unreported(device->queues, queue, status);
    pthread_mutex_unlock(&device->queues->lock);
    core__error_restore(&saved);
    core__queue_end_own_errors(queue);
    pthread_mutex_lock(&queue->lock);
    queue->ended = true;
    pthread_mutex_unlock(&queue->lock);
    if (core__device_has_generation(device, queue->generation))
        device->backend->streams.destroy(device->impl, queue->impl);
}

/* With the lock of the queues held: true if the plugin's stream has no users
 * left. */
static bool adopted_ends(const core__queue *queue)
{
    return queue->adopted && queue->streams == 0 && queue->waiting == 0;
}

/* May run in a callback of the stream itself, so this does not wait. */
void core__queue_stream_end(core__queue *queue)
{
    core__queues *queues;
    bool outlives_streams, ends;

    if (!queue || queue == &core__queue_synchronous || queue->device->forked)
        return;
    queues = queue->device->queues;
    pthread_mutex_lock(&queues->lock);
    outlives_streams =
        --queue->streams == 0 && !queue->adopted && !queue->capturing &&
        queue->generation == atomic_load(&queue->device->generation);
    if (outlives_streams) {
        queue->outlives_streams = true;
        queue->references++; /* this function's; the stream's is now the
                              * list's */
        queues->outliving++;
        queues->inspecting++;
    }
    ends = adopted_ends(queue);
    pthread_mutex_unlock(&queues->lock);
    if (outlives_streams) {
        reap(queues, queue);
        end_inspection(queues);
    }
    if (ends)
        end_adopted(queue);
    core__queue_release(queue);
}

core_status core__queue_capture(core__queue *queue, bool on)
{
    core_device *device = queue->device;
    bool alone;

    CORE_TRY(core__device_check_process(device));
    pthread_mutex_lock(&device->queues->lock);
    alone = queue->streams == 1;
    queue->capturing = on && alone;
    pthread_mutex_unlock(&device->queues->lock);
    if (alone || !on)
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: this stream shares one of the device's %u streams "
                       "with others, whose work would be captured too",
                       device->name, device->properties.max_streams);
}

/* -------------------------------------------------------------- making -- */

static core_status grow_list(core__queues *queues)
{
    uint32_t capacity = queues->capacity ? 2 * queues->capacity : 8;
    core__queue **list;

    if (queues->count < queues->capacity)
        return CORE_OK;
    list = core__realloc(queues->list, capacity * sizeof(core__queue *));
    if (!list)
        return core__error_memory(capacity * sizeof(core__queue *));
    queues->list = list;
    queues->capacity = capacity;
    return CORE_OK;
}

/* Creates the plugin's stream: adopted, with a priority, or of a kind. */
static core_status open_impl(core_device *device, uint32_t kind,
                             int32_t priority, void *native, void **out_impl)
{
    const core__interfaces *interfaces = &device->interfaces;

    if (native)
        return interfaces->stream_adopt.adopt(device->impl, native, out_impl);
    if (priority != 0)
        return interfaces->stream_priority.create(device->impl, 0, priority,
                                                  out_impl);
    return device->backend->streams.create(device->impl, kind, out_impl);
}

/* With the lock of the queues held. */
static core_status queue_new(core_device *device, uint32_t kind,
                             int32_t priority, void *native,
                             core__queue **out_queue)
{
    core__queues *queues = device->queues;
    core__queue *queue;
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE_TRY(grow_list(queues));
    queue = core__alloc_zero(sizeof *queue);
    if (!queue)
        return core__error_memory(sizeof *queue);
    queue->references = 1;
    queue->streams = 1;
    queue->device = device;
    queue->generation = atomic_load(&device->generation);
    queue->kind = kind;
    queue->priority = priority;
    queue->adopted = native != NULL;
    status = open_impl(device, kind, priority, native, &queue->impl);
    if (status != CORE_OK) {
        core__free(queue);
        return core__device_check_status(device, status, errors);
    }
    pthread_mutex_init(&queue->lock, NULL);
    queues->list[queues->count++] = queue;
    *out_queue = queue;
    return CORE_OK;
}

static bool accepts_streams(const core__queue *queue)
{
    return !queue->adopted && !queue->capturing &&
           atomic_load(&queue->failed) == CORE_OK &&
           queue->generation == atomic_load(&queue->device->generation);
}

/* How many of the device's streams of a kind are in use. */
static uint32_t count_own(const core__queues *queues, uint32_t kind)
{
    uint32_t count = queues->ending[kind];

    for (uint32_t i = 0; i < queues->count; i++)
        count += is_own(queues->list[i]) && queues->list[i]->kind == kind;
    return count;
}

/* The next usable queue of the kind in turn, preferably of the same priority
 * and not the default stream's.  An outliving queue gets a stream again. */
static core__queue *share(core__queues *queues, uint32_t kind, int32_t priority)
{
    core__queue *best = NULL;
    uint32_t first = queues->next++;

    for (uint32_t i = 0; i < queues->count; i++) {
        uint32_t index = (first + i) % queues->count;
        core__queue *queue = queues->list[index];

        if (!accepts_streams(queue) || queue->kind != kind)
            continue;
        if (queue->priority == priority && index > 0) {
            best = queue;
            break;
        }
        if (!best || best == queues->list[0])
            best = queue;
    }
    if (best) {
        if (!end_outliving(queues, best))
            best->references++;
        best->streams++;
        best->served++;
    }
    return best;
}

/* How many streams of a kind the device has; 0: no limit. */
static uint32_t limit_of(const core_device *device, uint32_t kind)
{
    uint32_t copies = device->properties.copy_streams;

    if (kind == CORE_STREAM_COPY)
        return copies == UINT32_MAX ? 0 : copies;
    return device->properties.max_streams;
}

core_status core__queue_take(core_device *device, uint32_t kind,
                             int32_t priority, core__queue **out_queue)
{
    core__queues *queues = device->queues;
    uint32_t limit = limit_of(device, kind);
    core_status status = CORE_OK;
    bool full = false;

    *out_queue = NULL;
    CORE_TRY(core__device_check_process(device));
    core__queues_reap(device);
    pthread_mutex_lock(&queues->lock);
    while (limit && count_own(queues, kind) >= limit) {
        full = true;
        *out_queue = share(queues, kind, priority);
        if (*out_queue || !queues->ending[kind])
            break;
        pthread_cond_wait(&queues->left, &queues->lock);
        full = false;
    }
    if (!full)
        status = queue_new(device, kind, priority, NULL, out_queue);
    pthread_mutex_unlock(&queues->lock);
    if (status == CORE_OK && !*out_queue)
        return core__error(CORE_ERROR_STREAM,
                           "%s: all of its %u streams have failed or are being "
                           "captured; core_device_reset creates new ones",
                           device->name, limit);
    return status;
}

core_status core__queue_adopt(core_device *device, void *native,
                              core__queue **out_queue)
{
    core_status status;

    *out_queue = NULL;
    CORE_TRY(core__device_check_process(device));
    pthread_mutex_lock(&device->queues->lock);
    status = queue_new(device, CORE_STREAM_COMPUTE, 0, native, out_queue);
    pthread_mutex_unlock(&device->queues->lock);
    return status;
}

/* ------------------------------------------------------------- waiting -- */

/* Queues that have or may have work, with references, so that waiting needs no
 * lock.  Queues being captured are skipped: their work does not run, and the
 * plugin must not see a wait.  So are ended queues without work: they have no
 * error left. */
static core_status list_waited(core__queues *queues, core__queue ***out_list,
                               uint32_t *out_count)
{
    core__queue **list;
    uint32_t capacity;

    *out_count = 0;
    pthread_mutex_lock(&queues->lock);
    capacity = queues->count;
    list = core__alloc(capacity * sizeof(core__queue *));
    for (uint32_t i = 0; list && i < capacity; i++) {
        core__queue *queue = queues->list[i];

        if (queue->capturing || (!queue->streams && !queue->outlives_streams))
            continue;
        list[(*out_count)++] = queue;
        queue->references++;
        queue->waiting++;
    }
    pthread_mutex_unlock(&queues->lock);
    *out_list = list;
    return list ? CORE_OK
                : core__error_memory(capacity * sizeof(core__queue *));
}

/* If the queue lingered, it has now been waited for and its error reported, so
 * the list's reference is released. */
static core_status wait_one(core__queues *queues, core__queue *queue,
                            const char *reason)
{
    core_device *device = queue->device;
    /* Queues of an older generation are left to their streams. */
    bool stale = queue->generation != atomic_load(&device->generation) &&
                 !atomic_load(&device->lost);
    core_status status = CORE_OK;
    uint32_t served;
    bool outlives_streams;

    pthread_mutex_lock(&queues->lock);
    outlives_streams = queue->outlives_streams;
    served = queue->served;
    pthread_mutex_unlock(&queues->lock);
    if (!stale && !(outlives_streams && atomic_load(&queue->reported)))
        status = core__queue_wait(queue, reason);
    if (!outlives_streams)
        return status;
    pthread_mutex_lock(&queues->lock);
    outlives_streams = queue->served == served && end_outliving(queues, queue);
    pthread_mutex_unlock(&queues->lock);
    if (outlives_streams)
        core__queue_release(queue);
    return status;
}

/* Its streams may have ended meanwhile. */
static void wait_done(core__queues *queues, core__queue *queue)
{
    bool ends;

    pthread_mutex_lock(&queues->lock);
    queue->waiting--;
    ends = adopted_ends(queue);
    pthread_mutex_unlock(&queues->lock);
    if (ends)
        end_adopted(queue);
    core__queue_release(queue);
}

/* Takes the kept error, if `first` has none.  Each is reported once. */
static core_status take_unreported(core_device *device, core_status status,
                                   core__error_record *first)
{
    core__queues *queues = device->queues;

    pthread_mutex_lock(&queues->lock);
    while (queues->inspecting)
        pthread_cond_wait(&queues->left, &queues->lock);
    if (status == CORE_OK &&
        queues->unreported_generation == atomic_load(&device->generation)) {
        status = queues->unreported;
        *first = queues->error;
    }
    queues->unreported = CORE_OK;
    pthread_mutex_unlock(&queues->lock);
    return status;
}

core_status core__queues_wait(core_device *device, const char *reason)
{
    core__queues *queues = device->queues;
    core__error_record first;
    core_status status = CORE_OK;
    core__queue **list;
    uint32_t count;

    CORE_TRY(core__device_check_process(device));
    CORE_TRY(list_waited(queues, &list, &count));
    for (uint32_t i = 0; i < count; i++) {
        core_status one = wait_one(queues, list[i], reason);

        if (one != CORE_OK && status == CORE_OK) {
            status = one;
            core__error_save(&first);
        }
        wait_done(queues, list[i]);
    }
    core__free(list);
    status = take_unreported(device, status, &first);
    if (status != CORE_OK)
        core__error_restore(&first);
    return status;
}

void core__queues_drain(core_device *device)
{
    core__queues *queues = device->queues;
    core__error_record earlier;
    core__queue **list;
    uint32_t count;

    core__error_save(&earlier);
    if (core__device_check_process(device) == CORE_OK &&
        !atomic_load(&device->lost) &&
        list_waited(queues, &list, &count) == CORE_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if (list[i]->generation == atomic_load(&device->generation))
                device->backend->streams.synchronize(device->impl,
                                                     list[i]->impl);
            wait_done(queues, list[i]);
        }
        core__free(list);
    }
    core__error_restore(&earlier);
}
