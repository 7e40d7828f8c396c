/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.c: streams and events. */

#include <gpu/host/interfaces.h>

#include <stdlib.h>

#define calls (gpu_vendor_here.driver)

/* -------------------------------------------------------- error words -- */

/* Pinned memory comes in pages; a word is a part of one.  What is not a free
 * word's, its stream has. */
union word {
    gpu_error error;
    gpu_word *next;
};
enum { PAGE = 4096, WORDS = PAGE / sizeof(union word) };
struct gpu_word {
    union word content;
};
struct gpu_word_page {
    gpu_word_page *next;
    void *pinned;
};
/* One that kernels may still set, whose stream is gone, until its event. */
struct gpu_word_left {
    gpu_word_left *next;
    gpu_error *error;
    void *event;
};

/* A page that is nobody's yet. */
static core_status new_page(gpu_device *device, gpu_word_page **out_page)
{
    gpu_word_page *page = calloc(1, sizeof *page);
    core_status status;

    *out_page = NULL;
    if (page == NULL)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for a stream");
    status = gpu_answer(device,
                        calls->host_alloc(device->context, PAGE, &page->pinned),
                        "a stream's error word");
    if (status != CORE_OK) {
        free(page);
        return status;
    }
    *out_page = page;
    return CORE_OK;
}

/* With the lock, as those up to take_word. */
static void add_page(gpu_device *device, gpu_word_page *page)
{
    gpu_word *words = page->pinned;

    page->next = device->pages;
    device->pages = page;
    for (size_t i = 0; i < WORDS; i++) {
        words[i].content.next = device->words;
        device->words = &words[i];
    }
}

static void set_free(gpu_device *device, gpu_error *error)
{
    gpu_word *word = (gpu_word *)(void *)error;

    word->content.next = device->words;
    device->words = word;
}

static void take_back(gpu_device *device)
{
    gpu_word_left **at = &device->left;

    while (*at != NULL) {
        gpu_word_left *left = *at;

        if (calls->event_query(device->context, left->event) != 0) {
            at = &left->next;
            continue;
        }
        *at = left->next;
        set_free(device, left->error);
        calls->event_destroy(device->context, left->event);
        free(left);
    }
}

/* false: there is none. */
static bool next_word(gpu_device *device, gpu_error **out_error)
{
    gpu_word *word;

    if (device->words == NULL)
        take_back(device);
    word = device->words;
    if (word == NULL)
        return false;
    device->words = word->content.next;
    memset(word, 0, sizeof *word);
    *out_error = &word->content.error;
    return true;
}

static core_status take_word(gpu_device *device, gpu_error **out_error)
{
    core_status status = CORE_OK;
    gpu_word_page *page;
    uint32_t generation;

    pthread_mutex_lock(&device->lock);
    while (status == CORE_OK && !next_word(device, out_error)) {
        generation = device->generation;
        pthread_mutex_unlock(&device->lock);
        status = new_page(device, &page);
        pthread_mutex_lock(&device->lock);
        if (status != CORE_OK)
            break;
        if (generation == device->generation)
            add_page(device, page);
        else /* its memory went with the reset */
            free(page);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void give_word(gpu_device *device, gpu_error *error)
{
    pthread_mutex_lock(&device->lock);
    set_free(device, error);
    pthread_mutex_unlock(&device->lock);
}

/* When the stream's work is done.  Where no event can be had the word is
 * nobody's until the device is closed. */
static void leave_word(gpu_stream *stream)
{
    gpu_device *device = stream->device;
    gpu_word_left *left = calloc(1, sizeof *left);
    int code = GPU_ABSENT;

    if (left != NULL)
        code =
            calls->event_create(device->context, GPU_EVENT_PLAIN, &left->event);
    if (code == 0)
        code =
            calls->event_record(device->context, left->event, stream->native);
    if (code != 0) {
        if (left != NULL && left->event != NULL)
            calls->event_destroy(device->context, left->event);
        free(left);
        return;
    }
    left->error = stream->error;
    pthread_mutex_lock(&device->lock);
    left->next = device->left;
    device->left = left;
    pthread_mutex_unlock(&device->lock);
}

void gpu_words_forget(gpu_device *device, bool well)
{
    for (gpu_word_page *page = device->pages, *next; page != NULL;
         page = next) {
        next = page->next;
        if (well)
            calls->host_free(device->context, page->pinned);
        free(page);
    }
    for (gpu_word_left *left = device->left, *next; left != NULL; left = next) {
        next = left->next;
        if (well)
            calls->event_destroy(device->context, left->event);
        free(left);
    }
    device->left = NULL;
    device->pages = NULL;
    device->words = NULL;
}

/* ------------------------------------------------------------- streams -- */

static core_status make(gpu_device *device, gpu_stream **out_stream)
{
    gpu_stream *stream = calloc(1, sizeof *stream);
    core_status status;

    *out_stream = NULL;
    if (stream == NULL)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for a stream");
    stream->device = device;
    stream->generation = device->generation;
    status = take_word(device, &stream->error);
    if (status != CORE_OK) {
        free(stream);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    stream->next = device->streams;
    stream->link = &device->streams;
    if (stream->next != NULL)
        stream->next->link = &stream->next;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
    *out_stream = stream;
    return CORE_OK;
}

static void drop(gpu_stream *stream)
{
    *stream->link = stream->next;
    if (stream->next != NULL)
        stream->next->link = stream->link;
    free(stream);
}

static void drop_locked(gpu_device *device, gpu_stream *stream)
{
    pthread_mutex_lock(&device->lock);
    drop(stream);
    pthread_mutex_unlock(&device->lock);
}

void gpu_streams_forget(gpu_device *device)
{
    while (device->streams != NULL)
        drop(device->streams);
}

static core_status create_with(void *word, uint32_t flags, int32_t priority,
                               void **out_stream)
{
    gpu_device *device = word;
    gpu_stream *stream = NULL;
    core_status status;

    *out_stream = NULL;
    if (flags != 0)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "stream flags 0x%x are not known", flags);
    status = make(device, &stream);
    if (status != CORE_OK)
        return status;
    status = gpu_answer(
        device,
        calls->stream_create(device->context, priority, &stream->native),
        "creating a stream");
    if (status != CORE_OK) {
        give_word(device, stream->error);
        drop_locked(device, stream);
        return status;
    }
    *out_stream = stream;
    return CORE_OK;
}

static core_status create(void *device, uint32_t flags, void **out_stream)
{
    return create_with(device, flags, 0, out_stream);
}

bool gpu_native_captures(void *context, void *native)
{
    uint32_t yes = 0;

    return calls->stream_captures != NULL &&
           (calls->stream_captures(context, native, &yes) != 0 || yes);
}

/* Another library captures on it.  To ask for its work would spoil the capture,
 * and an event would be a part of it, that nobody may ask for either. */
static bool is_anothers(const gpu_stream *stream)
{
    return stream->adopted &&
           gpu_native_captures(stream->device->context, stream->native);
}

static core_status refuse(const char *what)
{
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "%s: another library captures on this stream", what);
}

/* Waits for nothing.  What another library captured may set the word whenever it
 * is launched: it is nobody's until the device is closed. */
static void destroy(void *word, void *on)
{
    gpu_device *device = word;
    gpu_stream *stream = on;
    bool known = stream->generation == device->generation;
    int code = GPU_ABSENT;

    if (known && !atomic_load(&device->lost) && !is_anothers(stream))
        code = calls->stream_query(device->context, stream->native);
    if (code == 0)
        give_word(device, stream->error);
    else if (code == GPU_BUSY)
        leave_word(stream);
    gpu_callbacks_close(stream->callbacks);
    if (known && !stream->adopted)
        calls->stream_destroy(device->context, stream->native);
    else if (known && calls->stream_leave != NULL)
        calls->stream_leave(device->context, stream->native);
    drop_locked(device, stream);
}

static core_status query(void *word, void *on)
{
    gpu_device *device = word;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = is_anothers(stream)
                   ? GPU_BUSY
                   : calls->stream_query(device->context, stream->native);
    return gpu_answer(device, code, "work on the stream");
}

static core_status synchronize(void *word, void *on)
{
    gpu_device *device = word;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0 && is_anothers(stream))
        return refuse("waiting for work");
    if (code == 0)
        code = gpu_wait_stream(device, stream->native);
    return gpu_answer(device, code, "work on the stream");
}

static core_status wait_event(void *word, void *on, void *event)
{
    gpu_device *device = word;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = calls->stream_wait(device->context, stream->native, event);
    return gpu_answer(device, code, "waiting for an event");
}

const core_stream_table gpu_stream_table = {
    .struct_size = sizeof(core_stream_table),
    .create = create,
    .destroy = destroy,
    .query = query,
    .synchronize = synchronize,
    .wait_event = wait_event,
};

/* -------------------------------------------------------------- events -- */

static core_status event_create(void *word, uint32_t flags, void **out_event)
{
    gpu_device *device = word;

    *out_event = NULL;
    if (flags & ~(uint32_t)CORE_EVENT_TIMING)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "event flags 0x%x are not known", flags);
    return gpu_answer(
        device,
        calls->event_create(device->context,
                            flags != 0 ? GPU_EVENT_TIMING : GPU_EVENT_PLAIN,
                            out_event),
        "creating an event");
}

static void event_destroy(void *word, void *event)
{
    gpu_device *device = word;

    calls->event_destroy(device->context, event);
}

static core_status event_record(void *word, void *event, void *on)
{
    gpu_device *device = word;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0 && is_anothers(stream))
        return refuse("recording an event");
    if (code == 0)
        code = calls->event_record(device->context, event, stream->native);
    return gpu_answer(device, code, "recording an event");
}

static core_status event_query(void *word, void *event)
{
    gpu_device *device = word;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = calls->event_query(device->context, event);
    return gpu_answer(device, code, "work before the event");
}

static core_status event_synchronize(void *word, void *event)
{
    gpu_device *device = word;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = gpu_wait_event(device, event);
    return gpu_answer(device, code, "work before the event");
}

const core_event_table gpu_event_table = {
    .struct_size = sizeof(core_event_table),
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
};

/* ---------------------------------------------------------- interfaces -- */

static core_status elapsed(void *word, void *start, void *end,
                           int64_t *out_nanoseconds)
{
    gpu_device *device = word;

    *out_nanoseconds = 0;
    return gpu_answer(
        device,
        calls->event_elapsed(device->context, start, end, out_nanoseconds),
        "the time between events");
}

const core_timing_interface gpu_timing = {
    .struct_size = sizeof(core_timing_interface),
    .elapsed = elapsed,
};

static core_status range(void *word, int32_t *out_least, int32_t *out_greatest)
{
    gpu_device *device = word;

    return gpu_answer(
        device, calls->stream_range(device->context, out_least, out_greatest),
        "asking for priorities");
}

const core_stream_priority_interface gpu_stream_priority = {
    .struct_size = sizeof(core_stream_priority_interface),
    .range = range,
    .create = create_with,
};

static core_status adopt(void *word, void *native, void **out_stream)
{
    gpu_stream *stream = NULL;
    core_status status = make(word, &stream);

    *out_stream = stream;
    if (status != CORE_OK)
        return status;
    stream->native = native;
    stream->adopted = 1;
    return CORE_OK;
}

static core_status native(void *device, void *on, void **out_native)
{
    gpu_stream *stream = on;

    (void)device;
    *out_native = stream->native;
    return CORE_OK;
}

const core_stream_adopt_interface gpu_stream_adopt = {
    .struct_size = sizeof(core_stream_adopt_interface),
    .adopt = adopt,
    .native = native,
};

/* Pinned memory: what is read has nothing to wait for. */
static const char *text_of(int32_t code)
{
    switch (code) {
    case GPU_BAD_INDEX:
        return "an index is out of range";
    case GPU_BAD_PROBABILITY:
        return "a probability is not in [0, 1]";
    case GPU_BAD_REPEATS:
        return "an element is to be repeated a negative number of times";
    case GPU_SHORT_SOURCE:
        return "the source has fewer elements than the mask chooses";
    case GPU_BAD_WEIGHTS:
        return "the weights of a row are negative, not finite, or too few";
    case GPU_NOT_POSITIVE:
        return "a matrix is not positive definite";
    default:
        return "division of an integer by zero";
    }
}

static core_status take(void *device, void *on, core_stream_error *out)
{
    gpu_stream *stream = on;
    volatile gpu_error *word = stream->error;

    (void)device;
    out->code = CORE_OK;
    if (word->code == 0)
        return CORE_OK;
    out->code = word->code & 0xffff;
    out->call_id = (uint64_t)word->call;
    out->index = word->index;
    out->text = core_sdk_string(text_of(word->code));
    word->code = 0;
    return CORE_OK;
}

const core_stream_error_interface gpu_stream_error = {
    .struct_size = sizeof(core_stream_error_interface),
    .take = take,
};
