/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.c: the emulated device.  Its memory is the host's, a stream is a
 * thread (stream.c), and kernels run as described in emulate.h.  For tests of
 * the kernels and of the host side.  Settings choose its properties (defaults
 * in parentheses):
 *
 *     GPUEMU_WARP=64        lanes of a warp (32)
 *     GPUEMU_TENSOR_CORES=0 no tensor cores; warps of 64 have none (1)
 *     GPUEMU_DEVICES=2      devices (1)
 *     GPUEMU_MEMORY=N       bytes of memory (1 GiB)
 *     GPUEMU_LOSE_AFTER=N   the launch after N others loses the device
 *     GPUEMU_GATES=0        gates are not supported: streams wait in host functions
 *     GPUEMU_LOADS=1        loading, and allocating host memory, wait for all work
 *                           of the device, as a driver may
 *     GPUEMU_PAGEABLE_WAITS=1 a copy to pageable memory waits in the driver, and
 *                           no other thread can create or destroy objects then
 *     GPUEMU_SLEEPING=N     recording a GPU_EVENT_SLEEPING waits while N are
 *                           recorded and not passed (2^31 - 1)
 *     GPUEMU_SPIN=1         waiting for an event spins, except for events created
 *                           with GPU_EVENT_SLEEPING
 *     GPUEMU_ORDER=N        blocks and threads run in an order that changes from
 *                           launch to launch; 0: in index order (0)
 *     GPUEMU_BLOCKS=N       the most blocks of a launch in its first dimension
 *                           (2^31 - 1)
 *     GPUEMU_COMPILER=…     compiles loop programs (compile.c)
 *     GPUEMU_RANGES=FILE    ranges write a line to FILE when they begin and
 * end */

#include "order.h"
#include "work.h"

#include <libcore/plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEVICES = 8, GRANULARITY = 65536 };

static context contexts[DEVICES];
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
    case EMULATED_OUT_OF_MEMORY:
        return (gpu_failure){CORE_ERROR_OUT_OF_MEMORY, 0, "out of memory"};
    case EMULATED_ABSENT:
        return (gpu_failure){CORE_ERROR_NOT_FOUND, 0, "no such kernel"};
    case EMULATED_LOST:
        return (gpu_failure){CORE_ERROR_DEVICE_LOST, 1, "illegal address"};
    case EMULATED_DIVERGED:
        return (gpu_failure){CORE_ERROR_DEVICE_LOST, 1,
                             "a block's threads wait at different places"};
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
    gpu_emulated_set_order(setting("GPUEMU_ORDER", 0));
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU, warps of %u",
             gpu_emulated.warp);
    snprintf(out->stable_id, sizeof out->stable_id, "gpuemu-%u", index);
    out->total_memory = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    out->shared_bytes = 48 * 1024;
    out->units = 4;
    out->warp = gpu_emulated.warp;
    out->tensor_cores =
        gpu_emulated.warp == 32 && setting("GPUEMU_TENSOR_CORES", 1) != 0;
    out->numa_node = UINT32_MAX;
    *out_context = c;
    return 0;
}

void gpu_emulated_list_add(held **list, held *one)
{
    one->next = *list;
    one->link = list;
    if (one->next != NULL)
        one->next->link = &one->next;
    *list = one;
}

void gpu_emulated_list_remove(held *one)
{
    *one->link = one->next;
    if (one->next != NULL)
        one->next->link = one->link;
}

static void free_list(held **list)
{
    while (*list != NULL) {
        held *one = *list;

        gpu_emulated_list_remove(one);
        free(one);
    }
}

/* Frees what belongs to a context; under the lock. */
static void free_owned(context *c)
{
    free_list(&c->pinned);
    free_list(&c->pins);
    gpu_emulated_events_free(c);
}

static void device_close(void *device)
{
    pthread_mutex_lock(&gpu_emulated_lock);
    free_owned(device);
    pthread_mutex_unlock(&gpu_emulated_lock);
}

static int device_check(void *device)
{
    context *c = device;

    return c->lost;
}

static int device_reset(void *device)
{
    context *c = device;

    pthread_mutex_lock(&gpu_emulated_lock);
    /* Pending work is skipped. */
    if (c->lost == 0)
        c->lost = EMULATED_LOST;
    while (c->pending > 0)
        pthread_cond_wait(&gpu_emulated_changed, &gpu_emulated_lock);
    c->lost = 0;
    c->used = 0;
    free_list(&c->memory);
    free_owned(c);
    pthread_mutex_unlock(&gpu_emulated_lock);
    return 0;
}

void gpu_emulated_wait_if_loads_wait(context *c)
{
    if (setting("GPUEMU_LOADS", 0) != 0)
        gpu_emulated_wait_idle(c);
}

/* -------------------------------------------------------------- memory -- */

/* The header of every allocation. */
enum { HEAD = 512 };
typedef struct allocation {
    held held; /* first */
    uint64_t size;
} allocation;

/* Shows what reads memory, or leaves it, that nothing wrote.  Of large allocations,
   which are the caching allocator's segments and mostly unused, a page in 16: filling
   all was half of the page faults of tests. */
static void fill_unwritten(char *memory, uint64_t size)
{
    enum { WHOLE = 256 << 10, PAGE = 4 << 10, STEP = 16 * PAGE };
    uint64_t whole = size < WHOLE ? size : WHOLE;

    memset(memory, 0xab, whole);
    for (uint64_t at = whole; at < size; at += STEP)
        memset(memory + at, 0xab, size - at < PAGE ? size - at : PAGE);
}

static int device_alloc(void *device, uint64_t size, void **out)
{
    context *c = device;
    uint64_t total = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    allocation *made = NULL;
    int code = 0;

    *out = NULL;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_for_copies();
    pthread_mutex_lock(&gpu_emulated_lock);
    if (c->lost)
        code = c->lost;
    else if (size > total || c->used > total - size)
        code = EMULATED_OUT_OF_MEMORY;
    else
        made = aligned_alloc(HEAD, HEAD + (size + HEAD - 1) / HEAD * HEAD);
    if (code == 0 && made == NULL)
        code = EMULATED_OUT_OF_MEMORY;
    if (code == 0) {
        gpu_emulated_list_add(&c->memory, &made->held);
        made->size = size;
        *out = (char *)made + HEAD;
        fill_unwritten(*out, size);
        c->used += size;
    }
    pthread_mutex_unlock(&gpu_emulated_lock);
    return code;
}

/* Removes an allocation from the list, under the lock.  Returns NULL if it is
 * not allocated. */
static allocation *take_allocation(context *c, const void *data)
{
    held *one = c->memory;

    while (one != NULL && (char *)one + HEAD != (const char *)data)
        one = one->next;
    if (one != NULL)
        gpu_emulated_list_remove(one);
    return (allocation *)(void *)one;
}

static int device_free(void *device, void *data)
{
    context *c = device;
    allocation *gone;

    if (data == NULL)
        return 0;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_idle(c);
    pthread_mutex_lock(&gpu_emulated_lock);
    gone = take_allocation(c, data);
    if (gone != NULL)
        c->used -= gone->size < c->used ? gone->size : c->used;
    pthread_mutex_unlock(&gpu_emulated_lock);
    free(gone);
    return gone != NULL ? 0 : EMULATED_INVALID;
}

static int memory(void *device, uint64_t *out_free, uint64_t *out_total)
{
    context *c = device;
    int code;

    *out_total = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    pthread_mutex_lock(&gpu_emulated_lock);
    *out_free = *out_total - c->used;
    code = c->lost;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return code;
}

typedef struct pinned {
    held held; /* first */
    uint64_t size;
} pinned;
enum { PINNED_HEAD = 256 }; /* a `pinned`, and padding for alignment */

static int host_alloc(void *device, uint64_t size, void **out)
{
    context *c = device;
    char *memory;

    *out = NULL;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_for_copies();
    gpu_emulated_wait_if_loads_wait(c);
    memory = aligned_alloc(256, PINNED_HEAD + (size + 255) / 256 * 256);
    if (memory == NULL)
        return EMULATED_OUT_OF_MEMORY;
    pthread_mutex_lock(&gpu_emulated_lock);
    gpu_emulated_list_add(&c->pinned, (held *)(void *)memory);
    ((pinned *)(void *)memory)->size = size;
    pthread_mutex_unlock(&gpu_emulated_lock);
    *out = memory + PINNED_HEAD;
    return 0;
}

static int host_free(void *device, void *data)
{
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    if (data == NULL)
        return 0;
    gpu_emulated_wait_idle(device);
    pthread_mutex_lock(&gpu_emulated_lock);
    gpu_emulated_list_remove((held *)(void *)((char *)data - PINNED_HEAD));
    pthread_mutex_unlock(&gpu_emulated_lock);
    free((char *)data - PINNED_HEAD);
    return 0;
}

typedef struct pin {
    held held; /* first */
    const char *data;
    uint64_t size;
} pin;

/* Returns the pin that overlaps the range, under the lock. */
static pin *pin_of(const context *c, const char *data, uint64_t size)
{
    held *one = c->pins;

    while (one != NULL) {
        pin *p = (pin *)(void *)one;

        if (data < p->data + p->size && p->data < data + size)
            return p;
        one = one->next;
    }
    return NULL;
}

bool gpu_emulated_is_pinned(context *c, const void *data)
{
    const char *at = data;
    bool found;

    pthread_mutex_lock(&gpu_emulated_lock);
    found = pin_of(c, at, 1) != NULL;
    for (held *one = c->pinned; one != NULL && !found; one = one->next) {
        const char *begin = (const char *)one + PINNED_HEAD;

        found = at >= begin && at < begin + ((pinned *)(void *)one)->size;
    }
    pthread_mutex_unlock(&gpu_emulated_lock);
    return found;
}

static int host_is_pinned(void *device, const void *data)
{
    return gpu_emulated_is_pinned(device, data);
}

static int host_pin(void *device, void *data, uint64_t size)
{
    context *c = device;
    int code = 0;
    pin *p;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_if_loads_wait(c);
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return EMULATED_OUT_OF_MEMORY;
    p->data = data;
    p->size = size;
    pthread_mutex_lock(&gpu_emulated_lock);
    if (c->lost)
        code = c->lost;
    else if ((uintptr_t)data % 4096 != 0 || pin_of(c, data, size) != NULL)
        code = EMULATED_INVALID;
    else
        gpu_emulated_list_add(&c->pins, &p->held);
    pthread_mutex_unlock(&gpu_emulated_lock);
    if (code != 0)
        free(p);
    return code;
}

static int host_unpin(void *device, void *data)
{
    context *c = device;
    pin *p;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_idle(c);
    pthread_mutex_lock(&gpu_emulated_lock);
    p = pin_of(c, data, 1);
    if (p != NULL && p->data != (const char *)data)
        p = NULL;
    if (p != NULL)
        gpu_emulated_list_remove(&p->held);
    pthread_mutex_unlock(&gpu_emulated_lock);
    if (p == NULL)
        return EMULATED_INVALID;
    free(p);
    return 0;
}

/* GPUEMU_GATES=0: not supported. */
static int gate_create(void *device, uint32_t **out_gate)
{
    void *memory;
    int code;

    *out_gate = NULL;
    if (setting("GPUEMU_GATES", 1) == 0)
        return GPU_ABSENT;
    code = host_alloc(device, sizeof **out_gate, &memory);
    *out_gate = memory;
    if (code == 0)
        **out_gate = 0;
    return code;
}

static int gate_destroy(void *device, uint32_t *gate)
{
    return host_free(device, gate);
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
    return EMULATED_OUT_OF_MEMORY;
}

static int virtual_release(void *device, void *data, uint64_t size)
{
    (void)device;
    return munmap(data, size) ? EMULATED_INVALID : 0;
}

static int virtual_map(void *device, void *data, uint64_t size)
{
    context *c = device;
    uint64_t total = setting("GPUEMU_MEMORY", UINT64_C(1) << 30);
    int code = 0;

    pthread_mutex_lock(&gpu_emulated_lock);
    if (size > total || c->used > total - size)
        code = EMULATED_OUT_OF_MEMORY;
    else if (mprotect(data, size, PROT_READ | PROT_WRITE))
        code = EMULATED_INVALID;
    else
        c->used += size;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return code;
}

static int virtual_unmap(void *device, void *data, uint64_t size)
{
    context *c = device;
    void *again;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_idle(c);
    /* Drops the pages and keeps the addresses reserved. */
    again = mmap(data, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0);
    pthread_mutex_lock(&gpu_emulated_lock);
    c->used -= size < c->used ? size : c->used;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return again == MAP_FAILED ? EMULATED_INVALID : 0;
}

/* ----------------------------------------------------------- priorities -- */

static int priority_range(void *device, int32_t *out_least,
                          int32_t *out_greatest)
{
    (void)device;
    *out_least = 0;
    *out_greatest = -1;
    return 0;
}

/* --------------------------------------------------------------- peers -- */

static int peer_accessible(void *device, void *other, uint32_t *out_yes)
{
    *out_yes = device != other;
    return 0;
}

static int peer_copy(void *device, void *on, void *to, void *from_device,
                     const void *from, uint64_t size)
{
    (void)from_device;
    return gpu_emulated_copy(device, on, to, from, size, GPU_WITHIN);
}

/* ------------------------------------------------------------- kernels -- */

/* One launch at a time: shared memory is static. */
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;

static int run_launch(work *w, context *device)
{
    const char *reason = NULL;
    int code = 0;

    (void)device;
    pthread_mutex_lock(&running);
    if (launches++ == w->u.launch.loses)
        code = EMULATED_LOST;
    else
        reason = gpu_emulated_launch(w->u.launch.kernel, w->u.launch.grid,
                                     w->u.launch.block, w->u.launch.shared,
                                     w->parameters);
    pthread_mutex_unlock(&running);
    if (reason == NULL)
        return code;
    fprintf(stderr, "gpuemu: %s: %s\n", w->u.launch.kernel->name, reason);
    return EMULATED_DIVERGED;
}

static uint32_t max_blocks(uint32_t threads)
{
    uint64_t most = setting("GPUEMU_BLOCKS", INT32_MAX);

    (void)threads;
    return most > INT32_MAX ? INT32_MAX : most > 0 ? (uint32_t)most : 1;
}

static int launch(void *device, void *on, void *function,
                  const uint32_t grid[3], const uint32_t block[3],
                  uint32_t shared_bytes, const void *parameters, size_t size)
{
    work *w = gpu_emulated_work(run_launch, size);

    if (w != NULL) {
        w->kind = GPU_ACTIVITY_KERNEL;
        w->name = ((gpu_emulated_kernel *)function)->name;
        w->u.launch.kernel = function;
        memcpy(w->u.launch.grid, grid, sizeof w->u.launch.grid);
        memcpy(w->u.launch.block, block, sizeof w->u.launch.block);
        w->u.launch.shared = shared_bytes;
        w->u.launch.loses = setting("GPUEMU_LOSE_AFTER", UINT64_MAX);
        memcpy(w->parameters, parameters, size);
    }
    return gpu_emulated_submit(device, on, w);
}

/* -------------------------------------------------------- vendor's BLAS -- */

static double number_at(const void *from, uint32_t dtype, int64_t i)
{
    return dtype == CORE_F64 ? ((const double *)from)[i]
                             : ((const float *)from)[i];
}

static double sum_of(const gpu_gemm *g, int64_t z, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t k = 0; k < g->k; k++) {
        int64_t a = g->a_transposed ? i * g->a_step + k : k * g->a_step + i;
        int64_t b = g->b_transposed ? k * g->b_step + j : j * g->b_step + k;

        sum += number_at(g->a, g->dtype, z * g->a_batch + a) *
               number_at(g->b, g->dtype, z * g->b_batch + b);
    }
    return sum;
}

static int run_gemm(work *w, context *device)
{
    const gpu_gemm *g = (const gpu_gemm *)w->parameters;

    (void)device;
    for (int64_t z = 0; z < g->batch; z++)
        for (int64_t j = 0; j < g->n; j++)
            for (int64_t i = 0; i < g->m; i++) {
                int64_t at = z * g->c_batch + j * g->c_step + i;
                double x = g->alpha * sum_of(g, z, i, j);

                if (g->beta != 0)
                    x += g->beta * number_at(g->c, g->dtype, at);
                if (g->dtype == CORE_F64)
                    ((double *)g->c)[at] = x;
                else
                    ((float *)g->c)[at] = (float)x;
            }
    return 0;
}

/* GPUEMU_BLAS: a BLAS library for f32 and f64. */
static int multiply(void *device, void *stream, const gpu_gemm *g)
{
    work *w;

    if (getenv("GPUEMU_BLAS") == NULL || g->dtype > CORE_F32)
        return GPU_ABSENT;
    if (g->batch == 0)
        return 0;
    w = gpu_emulated_work(run_gemm, sizeof *g);
    if (w != NULL)
        memcpy(w->parameters, g, sizeof *g);
    return gpu_emulated_submit(device, stream, w);
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
    .host_pin = host_pin,
    .host_is_pinned = host_is_pinned,
    .host_unpin = host_unpin,
    .copy = gpu_emulated_copy,
    .fill = gpu_emulated_fill,
    .priority_range = priority_range,
    .stream_create = gpu_emulated_stream_create,
    .stream_destroy = gpu_emulated_stream_destroy,
    .stream_query = gpu_emulated_stream_query,
    .stream_is_capturing = gpu_emulated_stream_is_capturing,
    .stream_synchronize = gpu_emulated_stream_synchronize,
    .stream_wait = gpu_emulated_stream_wait,
    .stream_call = gpu_emulated_stream_call,
    .gate_create = gate_create,
    .gate_destroy = gate_destroy,
    .stream_gate = gpu_emulated_stream_gate,
    .event_create = gpu_emulated_event_create,
    .event_destroy = gpu_emulated_event_destroy,
    .event_record = gpu_emulated_event_record,
    .event_query = gpu_emulated_event_query,
    .event_synchronize = gpu_emulated_event_synchronize,
    .event_elapsed = gpu_emulated_event_elapsed,
    .capture_begin = gpu_emulated_capture_begin,
    .capture_end = gpu_emulated_capture_end,
    .graph_launch = gpu_emulated_graph_launch,
    .graph_destroy = gpu_emulated_graph_destroy,
    .peer_accessible = peer_accessible,
    .peer_copy = peer_copy,
    .virtual_granularity = virtual_granularity,
    .virtual_reserve = virtual_reserve,
    .virtual_release = virtual_release,
    .virtual_map = virtual_map,
    .virtual_unmap = virtual_unmap,
    .module_load = gpu_emulated_module_load,
    .module_unload = gpu_emulated_module_unload,
    .function_find = gpu_emulated_function_find,
    .max_blocks = max_blocks,
    .launch = launch,
    .compiler = gpu_emulated_compiler,
    .compile = gpu_emulated_compile,
    .multiply = multiply,
    .trace_start = gpu_emulated_trace_start,
    .trace_stop = gpu_emulated_trace_stop,
    .trace_correlate = gpu_emulated_trace_correlate,
    .trace_clock = gpu_emulated_trace_clock,
    .ranges_enabled = gpu_emulated_ranges_enabled,
    .range_begin = gpu_emulated_range_begin,
    .range_end = gpu_emulated_range_end,
};
