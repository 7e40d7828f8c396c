/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.c: a device that is none.  Memory is the host's, a stream does its
 * work at once, and kernels run as emulate.h says.  For tests, of the kernels
 * and of the host side alike; GPUEMU_… settings choose what it pretends:
 *
 *     GPUEMU_WARP=64        lanes of a warp (32)
 *     GPUEMU_DEVICES=2      devices (1)
 *     GPUEMU_MEMORY=N       bytes of memory (1 GiB)
 *     GPUEMU_LOSE_AFTER=N   the launch after N others loses the device */

#include <gpu/driver.h>

#include "emulate.h"

#include <libcore/plugin.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    OUT_OF_MEMORY = 2,
    INVALID = 1,
    LOST = 700,
    DIVERGED = 701,
    ABSENT = 500
};
enum { DEVICES = 8, GRANULARITY = 65536 };

typedef struct context {
    uint32_t index;
    int lost;
    uint64_t used;
} context;

typedef struct work {
    struct work *next;
    int (*run)(struct work *work, void *device);
    union {
        struct {
            const gpu_emulated_kernel *kernel;
            uint32_t grid[3], block[3], shared;
        } launch;
        struct {
            void *to;
            const void *from;
            uint64_t size;
        } copy;
        struct {
            void *to;
            uint32_t pattern, bytes;
            uint64_t count;
        } fill;
        struct {
            void (*function)(void *);
            void *argument;
        } call;
    } u;
    /* what the launch is given, 16-aligned */
    unsigned char parameters[] __attribute__((aligned(16)));
} work;

typedef struct graph {
    work *first, **last;
} graph;

typedef struct stream {
    graph *capture; /* what comes is kept, not done */
} stream;

static context contexts[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here */
static uint64_t launches;

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL && *text ? strtoull(text, NULL, 0) : otherwise;
}

static const char *find(uint32_t *out_count)
{
    uint64_t count = setting("GPUEMU_DEVICES", 1);

    *out_count = (uint32_t)(count < DEVICES ? count : DEVICES);
    return count > 0 ? NULL : "GPUEMU_DEVICES is 0";
}

static gpu_failure failure(int code)
{
    switch (code) {
    case OUT_OF_MEMORY:
        return (gpu_failure){CORE_ERROR_OUT_OF_MEMORY, 0, "out of memory"};
    case ABSENT:
        return (gpu_failure){CORE_ERROR_NOT_FOUND, 0, "no such kernel"};
    case LOST:
        return (gpu_failure){CORE_ERROR_DEVICE_LOST, 1, "illegal address"};
    case DIVERGED:
        return (gpu_failure){CORE_ERROR_DEVICE_LOST, 1,
                             "a block's threads wait in different places"};
    default:
        return (gpu_failure){CORE_ERROR_INTERNAL, 0, "invalid"};
    }
}

/* -------------------------------------------------------------- device -- */

static int device_open(uint32_t index, gpu_facts *out, void **out_context)
{
    context *c = &contexts[index];

    c->index = index;
    gpu_emulated.warp = (uint32_t)setting("GPUEMU_WARP", 32);
    if (gpu_emulated.warp != 64)
        gpu_emulated.warp = 32;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU, warps of %u",
             gpu_emulated.warp);
    snprintf(out->stable_id, sizeof out->stable_id, "gpuemu-%u", index);
    out->total_memory = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    out->shared_bytes = 48 * 1024;
    out->units = 4;
    out->warp = gpu_emulated.warp;
    out->numa_node = UINT32_MAX;
    *out_context = c;
    return 0;
}

static void device_close(void *device)
{
    (void)device;
}

static int device_check(void *device)
{
    context *c = device;

    return c->lost;
}

static int device_reset(void *device)
{
    context *c = device;

    pthread_mutex_lock(&lock);
    c->lost = 0;
    c->used = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* -------------------------------------------------------------- memory -- */

/* In front of every allocation: its size. */
enum { HEAD = 512 };

static int device_alloc(void *device, uint64_t size, void **out)
{
    context *c = device;
    uint64_t total = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    unsigned char *data = NULL;
    int code = 0;

    *out = NULL;
    pthread_mutex_lock(&lock);
    if (c->lost)
        code = c->lost;
    else if (size > total || c->used > total - size)
        code = OUT_OF_MEMORY;
    else
        data = aligned_alloc(HEAD, HEAD + (size + HEAD - 1) / HEAD * HEAD);
    if (code == 0 && data == NULL)
        code = OUT_OF_MEMORY;
    if (code == 0) {
        memcpy(data, &size, sizeof size);
        memset(data + HEAD, 0xab, size);
        c->used += size;
        *out = data + HEAD;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static int device_free(void *device, void *data)
{
    context *c = device;
    uint64_t size;

    if (data == NULL)
        return 0;
    memcpy(&size, (unsigned char *)data - HEAD, sizeof size);
    free((unsigned char *)data - HEAD);
    pthread_mutex_lock(&lock);
    c->used -= size < c->used ? size : c->used;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory(void *device, uint64_t *out_free, uint64_t *out_total)
{
    context *c = device;

    *out_total = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    *out_free = *out_total - c->used;
    return c->lost;
}

static int host_alloc(void *device, uint64_t size, void **out)
{
    (void)device;
    *out = calloc(1, size);
    return *out != NULL ? 0 : OUT_OF_MEMORY;
}

static int host_free(void *device, void *data)
{
    (void)device;
    free(data);
    return 0;
}

static int virtual_granularity(void *device, uint64_t *out_bytes)
{
    (void)device;
    *out_bytes = GRANULARITY;
    return 0;
}

static int virtual_reserve(void *device, uint64_t size, void **out)
{
    (void)device;
    *out = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*out != MAP_FAILED)
        return 0;
    *out = NULL;
    return OUT_OF_MEMORY;
}

static int virtual_release(void *device, void *data, uint64_t size)
{
    (void)device;
    return munmap(data, size) ? INVALID : 0;
}

static int virtual_map(void *device, void *data, uint64_t size)
{
    context *c = device;
    uint64_t total = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    int code = 0;

    pthread_mutex_lock(&lock);
    if (size > total || c->used > total - size)
        code = OUT_OF_MEMORY;
    else if (mprotect(data, size, PROT_READ | PROT_WRITE))
        code = INVALID;
    else
        c->used += size;
    pthread_mutex_unlock(&lock);
    return code;
}

static int virtual_unmap(void *device, void *data, uint64_t size)
{
    context *c = device;
    /* The pages go, the addresses stay taken. */
    void *again = mmap(data, size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    pthread_mutex_lock(&lock);
    c->used -= size < c->used ? size : c->used;
    pthread_mutex_unlock(&lock);
    return again == MAP_FAILED ? INVALID : 0;
}

/* ------------------------------------------------------------- streams -- */

/* Does the work, or keeps it where the stream captures; frees it. */
static int submit(void *device, void *word, work *w)
{
    context *c = device;
    stream *s = word;
    int code;

    if (w == NULL)
        return OUT_OF_MEMORY;
    if (s->capture != NULL) {
        *s->capture->last = w;
        s->capture->last = &w->next;
        return 0;
    }
    code = c->lost ? c->lost : w->run(w, device);
    free(w);
    return code;
}

static work *new_work(int (*run)(work *, void *), size_t extra)
{
    size_t size = (sizeof(work) + extra + 15) / 16 * 16;
    work *w = aligned_alloc(16, size);

    if (w == NULL)
        return NULL;
    memset(w, 0, size);
    w->run = run;
    return w;
}

static int run_copy(work *w, void *device)
{
    (void)device;
    memmove(w->u.copy.to, w->u.copy.from, w->u.copy.size);
    return 0;
}

static int copy(void *device, void *to_stream, void *to, const void *from,
                uint64_t size, int direction)
{
    work *w = new_work(run_copy, 0);

    (void)direction;
    if (w != NULL) {
        w->u.copy.to = to;
        w->u.copy.from = from;
        w->u.copy.size = size;
    }
    return submit(device, to_stream, w);
}

static int run_fill(work *w, void *device)
{
    unsigned char *to = w->u.fill.to;

    (void)device;
    for (uint64_t k = 0; k < w->u.fill.count; k++)
        memcpy(to + k * w->u.fill.bytes, &w->u.fill.pattern, w->u.fill.bytes);
    return 0;
}

static int fill(void *device, void *on, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count)
{
    work *w = new_work(run_fill, 0);

    if ((uintptr_t)to % bytes != 0) {
        free(w);
        return INVALID;
    }
    if (w != NULL) {
        w->u.fill.to = to;
        w->u.fill.pattern = pattern;
        w->u.fill.bytes = bytes;
        w->u.fill.count = count;
    }
    return submit(device, on, w);
}

static int stream_range(void *device, int32_t *out_least, int32_t *out_greatest)
{
    (void)device;
    *out_least = 0;
    *out_greatest = -1;
    return 0;
}

static int stream_create(void *device, int32_t priority, void **out_stream)
{
    context *c = device;

    (void)priority;
    *out_stream = calloc(1, sizeof(stream));
    return c->lost ? c->lost : *out_stream != NULL ? 0 : OUT_OF_MEMORY;
}

static int stream_destroy(void *device, void *on)
{
    (void)device;
    free(on);
    return 0;
}

static int stream_done(void *device, void *on)
{
    context *c = device;

    (void)on;
    return c->lost;
}

static int stream_wait(void *device, void *on, void *event)
{
    (void)event;
    return stream_done(device, on);
}

static int run_call(work *w, void *device)
{
    (void)device;
    w->u.call.function(w->u.call.argument);
    return 0;
}

static int stream_call(void *device, void *on, void (*function)(void *),
                       void *argument)
{
    work *w = new_work(run_call, 0);

    if (w != NULL) {
        w->u.call.function = function;
        w->u.call.argument = argument;
    }
    return submit(device, on, w);
}

/* -------------------------------------------------------------- events -- */

static int event_create(void *device, int timing, void **out_event)
{
    (void)device;
    (void)timing;
    *out_event = calloc(1, sizeof(int64_t));
    return *out_event != NULL ? 0 : OUT_OF_MEMORY;
}

static int event_destroy(void *device, void *event)
{
    (void)device;
    free(event);
    return 0;
}

static int event_record(void *device, void *event, void *on)
{
    struct timespec time;
    int64_t *at = event;

    clock_gettime(CLOCK_MONOTONIC, &time);
    *at = time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
    return stream_done(device, on);
}

static int event_done(void *device, void *event)
{
    return stream_done(device, event);
}

static int event_elapsed(void *device, void *start, void *end,
                         int64_t *out_nanoseconds)
{
    (void)device;
    *out_nanoseconds = *(int64_t *)end - *(int64_t *)start;
    return 0;
}

/* -------------------------------------------------------------- graphs -- */

static int graph_destroy(void *device, void *word)
{
    graph *g = word;

    (void)device;
    for (work *w = g->first, *next; w != NULL; w = next) {
        next = w->next;
        free(w);
    }
    free(g);
    return 0;
}

static int capture_begin(void *device, void *on)
{
    stream *s = on;
    graph *g = calloc(1, sizeof *g);

    (void)device;
    if (g == NULL)
        return OUT_OF_MEMORY;
    g->last = &g->first;
    s->capture = g;
    return 0;
}

static int capture_end(void *device, void *on, void **out_graph)
{
    stream *s = on;
    graph *g = s->capture;

    s->capture = NULL;
    if (out_graph != NULL)
        *out_graph = g;
    else
        graph_destroy(device, g);
    return 0;
}

static int graph_launch(void *device, void *word, void *on)
{
    context *c = device;
    graph *g = word;
    int code = c->lost;

    (void)on;
    for (work *w = g->first; w != NULL && code == 0; w = w->next)
        code = w->run(w, device);
    return code;
}

/* --------------------------------------------------------------- peers -- */

static int peer_can(void *device, void *other, uint32_t *out_yes)
{
    *out_yes = device != other;
    return 0;
}

static int peer_copy(void *device, void *on, void *to, void *from_device,
                     const void *from, uint64_t size)
{
    (void)from_device;
    return copy(device, on, to, from, size, GPU_WITHIN);
}

/* ------------------------------------------------------------- kernels -- */

extern gpu_emulated_kernel __start_gpu_kernels[], __stop_gpu_kernels[];

static int module_load(void *device, const void *image, void **out_module)
{
    context *c = device;

    *out_module = (void *)(uintptr_t)image;
    return c->lost;
}

static int module_unload(void *device, void *module)
{
    (void)device;
    (void)module;
    return 0;
}

static int function_find(void *device, void *module, const char *name,
                         void **out_function)
{
    (void)device;
    (void)module;
    for (gpu_emulated_kernel *k = __start_gpu_kernels; k < __stop_gpu_kernels;
         k++)
        if (strcmp(k->name, name) == 0) {
            *out_function = k;
            return 0;
        }
    return ABSENT;
}

static int run_launch(work *w, void *device)
{
    context *c = device;
    const char *why;

    pthread_mutex_lock(&lock);
    if (launches++ == setting("GPUEMU_LOSE_AFTER", UINT64_MAX))
        c->lost = LOST;
    why = c->lost ? NULL
                  : gpu_emulated_launch(w->u.launch.kernel, w->u.launch.grid,
                                        w->u.launch.block, w->u.launch.shared,
                                        w->parameters);
    if (why != NULL) {
        fprintf(stderr, "gpuemu: %s: %s\n", w->u.launch.kernel->name, why);
        c->lost = DIVERGED;
    }
    pthread_mutex_unlock(&lock);
    return c->lost;
}

static int launch(void *device, void *on, void *function,
                  const uint32_t grid[3], const uint32_t block[3],
                  uint32_t shared_bytes, const void *parameters, size_t size)
{
    work *w = new_work(run_launch, size);

    if (w != NULL) {
        w->u.launch.kernel = function;
        memcpy(w->u.launch.grid, grid, sizeof w->u.launch.grid);
        memcpy(w->u.launch.block, block, sizeof w->u.launch.block);
        w->u.launch.shared = shared_bytes;
        memcpy(w->parameters, parameters, size);
    }
    return submit(device, on, w);
}

extern const gpu_driver gpu_emulated_driver;
const gpu_driver gpu_emulated_driver = {
    .component = "gpuemu",
    .find = find,
    .failure = failure,
    .device_open = device_open,
    .device_close = device_close,
    .device_check = device_check,
    .device_reset = device_reset,
    .alloc = device_alloc,
    .free = device_free,
    .memory = memory,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .copy = copy,
    .fill = fill,
    .stream_range = stream_range,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_done,
    .stream_synchronize = stream_done,
    .stream_wait = stream_wait,
    .stream_call = stream_call,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_done,
    .event_synchronize = event_done,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .peer_can = peer_can,
    .peer_copy = peer_copy,
    .virtual_granularity = virtual_granularity,
    .virtual_reserve = virtual_reserve,
    .virtual_release = virtual_release,
    .virtual_map = virtual_map,
    .virtual_unmap = virtual_unmap,
    .module_load = module_load,
    .module_unload = module_unload,
    .function_find = function_find,
    .launch = launch,
};
