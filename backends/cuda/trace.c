/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* trace.c: CUPTI's activity records.  They are those of the whole process; the
 * records of a device go to its listener.  CUPTI numbers its records, and other
 * records map these numbers to the correlations of gpu_driver.  They arrive in
 * any order; so all are kept, and reported when tracing stops. */

#include "trace.h"

#include <cuda.h>

#if __has_include(<cupti.h>) && CUDA_VERSION >= 13000
#include <gpu/host/library.h>

#include <cupti.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 64, BUFFER = 1 << 20, NAME = 96 };

#define FUNCTIONS(X)                                \
    X(enable, cuptiActivityEnable)                  \
    X(disable, cuptiActivityDisable)                \
    X(callbacks, cuptiActivityRegisterCallbacks)    \
    X(flush, cuptiActivityFlushAll)                 \
    X(next, cuptiActivityGetNextRecord)             \
    X(push, cuptiActivityPushExternalCorrelationId) \
    X(pop, cuptiActivityPopExternalCorrelationId)   \
    X(timestamp, cuptiGetTimestamp)

static struct {
#define FIELD(name, symbol) __typeof__(&symbol) name;
    FUNCTIONS(FIELD)
#undef FIELD
} cupti;

typedef struct activity_record {
    gpu_activity activity;
    char name[NAME];
    uint32_t number; /* CUPTI's */
    uint32_t device;
} activity_record;

typedef struct link {
    uint32_t number;
    uint64_t correlation;
} link;

/* A growing array; records that do not fit are lost, like CUPTI's own. */
typedef struct list {
    void *items;
    size_t count, capacity;
} list;

static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    gpu_activity_callback callback;
    void *user;
} listeners[DEVICES];
static int listening;
static list all, links;
static _Atomic int state; /* 0: not searched; 1: found; -1: not found */
static _Thread_local int pushed;

static void *append(list *l, size_t size)
{
    size_t capacity = l->capacity > 0 ? l->capacity * 2 : 1024;
    void *grown;

    if (l->count == l->capacity) {
        grown = realloc(l->items, capacity * size);
        if (grown == NULL)
            return NULL;
        l->items = grown;
        l->capacity = capacity;
    }
    return (char *)l->items + l->count++ * size;
}

static void list_clear(list *l)
{
    free(l->items);
    memset(l, 0, sizeof *l);
}

/* ------------------------------------------------------------- records -- */

static void add(const gpu_activity *activity, const char *name, uint32_t number,
                uint32_t device)
{
    activity_record *d = append(&all, sizeof *d);

    if (d == NULL)
        return;
    d->activity = *activity;
    d->number = number;
    d->device = device;
    snprintf(d->name, sizeof d->name, "%s", name != NULL ? name : "a kernel");
}

static const char *copy_name(uint8_t kind)
{
    return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy from the host"
           : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                     : "copy";
}

/* Called under the lock. */
static void read_record(const CUpti_Activity *record)
{
    const CUpti_ActivityKernel10 *kernel = (const void *)record;
    const CUpti_ActivityMemcpy6 *copy = (const void *)record;
    const CUpti_ActivityMemset4 *fill = (const void *)record;
    const CUpti_ActivityExternalCorrelation *external = (const void *)record;
    gpu_activity a = {.kind = GPU_ACTIVITY_KERNEL};
    link *l;

    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        a.stream = kernel->streamId;
        a.begin = (int64_t)kernel->start;
        a.end = (int64_t)kernel->end;
        add(&a, kernel->name, kernel->correlationId, kernel->deviceId);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        a.kind = GPU_ACTIVITY_COPY;
        a.stream = copy->streamId;
        a.begin = (int64_t)copy->start;
        a.end = (int64_t)copy->end;
        a.bytes = copy->bytes;
        add(&a, copy_name(copy->copyKind), copy->correlationId, copy->deviceId);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        a.kind = GPU_ACTIVITY_FILL;
        a.stream = fill->streamId;
        a.begin = (int64_t)fill->start;
        a.end = (int64_t)fill->end;
        a.bytes = fill->bytes;
        add(&a, "fill", fill->correlationId, fill->deviceId);
        break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        l = append(&links, sizeof *l);
        if (l != NULL)
            *l = (link){external->correlationId, external->externalId};
        break;
    default: /* calls of the host */
        break;
    }
}

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size,
                                      size_t *max_records)
{
    *buffer = aligned_alloc(8, BUFFER);
    *size = *buffer != NULL ? BUFFER : 0;
    *max_records = 0;
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream,
                                      uint8_t *buffer, size_t size,
                                      size_t valid)
{
    CUpti_Activity *record = NULL;

    (void)context;
    (void)stream;
    (void)size;
    pthread_mutex_lock(&lock);
    while (buffer != NULL && valid > 0 &&
           cupti.next(buffer, valid, &record) == CUPTI_SUCCESS)
        read_record(record);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ------------------------------------------------------------- reports -- */

static int by_number(const void *a, const void *b)
{
    const link *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

/* Called under the lock. */
static void report_all(void)
{
    if (links.count > 0)
        qsort(links.items, links.count, sizeof(link), by_number);
    for (size_t i = 0; i < all.count; i++) {
        activity_record *d = (activity_record *)all.items + i;
        link key = {d->number, 0}, *found = NULL;

        if (links.count > 0)
            found = bsearch(&key, links.items, links.count, sizeof(link),
                            by_number);
        d->activity.correlation = found != NULL ? found->correlation : 0;
        d->activity.name = d->name;
        if (d->device < DEVICES && listeners[d->device].callback != NULL)
            listeners[d->device].callback(listeners[d->device].user,
                                          &d->activity);
    }
    list_clear(&all);
    list_clear(&links);
}

/* ----------------------------------------------------------- interface -- */

/* Opens the version of CUPTI whose records the header describes; under the
 * lock. */
static int open_library(void)
{
    static const gpu_symbol symbols[] = {
#define ROW(name, symbol) {#symbol, offsetof(__typeof__(cupti), name)},
        FUNCTIONS(ROW)
#undef ROW
    };
    void *library;
    char name[32];

    if (state != 0)
        return state > 0;
    state = -1;
    snprintf(name, sizeof name, "libcupti.so.%d", CUDA_VERSION / 1000);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return 0;
    if (gpu_library_resolve(library, symbols, sizeof symbols / sizeof *symbols,
                            &cupti) != NULL)
        return 0;
    if (cupti.callbacks(buffer_requested, buffer_completed) != CUPTI_SUCCESS)
        return 0;
    state = 1;
    return 1;
}

static int enable_all(void)
{
    for (int i = 0; i < KINDS; i++) {
        CUptiResult code = cupti.enable(kinds[i]);

        if (code == CUPTI_SUCCESS)
            continue;
        while (i-- > 0)
            cupti.disable(kinds[i]);
        return code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? GPU_BUSY
               : code == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
                   ? CUDA_ERROR_NOT_PERMITTED
                   : GPU_ABSENT;
    }
    return 0;
}

int cuda_trace_start(int device, gpu_activity_callback callback, void *user)
{
    int code = GPU_ABSENT;

    if (device < 0 || device >= DEVICES)
        return GPU_ABSENT;
    pthread_mutex_lock(&lock);
    if (open_library())
        code = listening > 0 ? 0 : enable_all();
    if (code == 0) {
        listeners[device].callback = callback;
        listeners[device].user = user;
        listening++;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* CUPTI calls buffer_completed during the flush, so the lock is not held. */
int cuda_trace_stop(int device)
{
    cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&lock);
    report_all();
    listeners[device].callback = NULL;
    if (--listening == 0)
        for (int i = 0; i < KINDS; i++)
            cupti.disable(kinds[i]);
    pthread_mutex_unlock(&lock);
    return 0;
}

void cuda_trace_correlate(void *context, uint64_t correlation)
{
    const CUpti_ExternalCorrelationKind kind =
        CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    uint64_t before;

    (void)context;
    if (state <= 0)
        return;
    if (pushed)
        cupti.pop(kind, &before);
    pushed = correlation != 0 && cupti.push(kind, correlation) == CUPTI_SUCCESS;
}

int cuda_trace_clock(void *context, int64_t *out_nanoseconds)
{
    uint64_t now = 0;

    (void)context;
    if (state <= 0 || cupti.timestamp(&now) != CUPTI_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    *out_nanoseconds = (int64_t)now;
    return 0;
}

#else /* the records of other versions of CUPTI have other layouts */

int cuda_trace_start(int device, gpu_activity_callback callback, void *user)
{
    (void)device;
    (void)callback;
    (void)user;
    return GPU_ABSENT;
}

int cuda_trace_stop(int device)
{
    (void)device;
    return GPU_ABSENT;
}

void cuda_trace_correlate(void *context, uint64_t correlation)
{
    (void)context;
    (void)correlation;
}

int cuda_trace_clock(void *context, int64_t *out_nanoseconds)
{
    (void)context;
    *out_nanoseconds = 0;
    return GPU_ABSENT;
}
#endif
