/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* host.h: the host side, which is written once against a driver (driver.h) and
 * linked into the plugin of every vendor.
 *
 * Memory is flat: {address, offset}.  A stream is the driver's and has an error
 * record in pinned memory, which kernels set when they find bad data.  Errors
 * that the driver cannot recover from make the device lost: every later call
 * fails. */

#ifndef GPU_HOST_H
#define GPU_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <libcore/sdk.h>

#include <gpu/driver.h>
#include <gpu/host/families.h>
#include <gpu/shared.h>

extern const gpu_vendor gpu_this_vendor; /* in plugin.c of each vendor */
extern const core_host *gpu_host;

/* ------------------------------------------------------------- plugin -- */

core_status gpu_init(const core_host *host, core_registry *registry,
                     void **out_plugin);
core_status gpu_stop(void *plugin, uint64_t deadline_ns);

extern const core_memory_table gpu_memory_table;
extern const core_stream_table gpu_stream_table;
extern const core_event_table gpu_event_table;
const void *gpu_get_interface(void *backend, core_string name,
                              uint32_t version);

/* ------------------------------------------------------------- device -- */

enum { GPU_FUNCTIONS = 8192 }; /* slots; a power of two */

typedef struct gpu_function {
    _Atomic(const char *) name; /* NULL: free */
    void *function;
} gpu_function;

typedef struct gpu_error_slot gpu_error_slot;
typedef struct gpu_error_page gpu_error_page;
typedef struct gpu_retired_error gpu_retired_error;
typedef struct gpu_callbacks gpu_callbacks;
typedef struct gpu_gate gpu_gate;
typedef struct gpu_deferred_free gpu_deferred_free;
typedef struct gpu_profile gpu_profile;
typedef struct gpu_loop_code gpu_loop_code;

typedef struct gpu_device {
    void *context;
    uint32_t index;
    gpu_facts facts;
    atomic_int lost; /* the code that lost it, or 0 */
    /* Launched kernels by name: read without a lock, added under `loading`. */
    gpu_function *functions;
    void **modules;           /* indexed like gpu_this_vendor.images */
    gpu_loop_code *loop_code; /* compiled loop programs; under `loading` */
    char compiler[192]; /* core.codegen's identity; under `loading`, "" before
                         * the first question */
    /* Error records of streams: the free ones, those that work of ended streams
     * may still set, and their pinned pages. */
    gpu_error_slot *free_errors;
    gpu_retired_error *retired_errors;
    gpu_error_page *error_pages;
    uint32_t generation;         /* counts resets */
    struct gpu_stream *streams;  /* not destroyed yet */
    gpu_callbacks *callbacks;    /* the queues of all streams */
    gpu_gate *gates;             /* that no stream uses */
    atomic_bool has_callbacks;   /* there has been one */
    atomic_int sleeping_events;  /* that callbacks wait for */
    gpu_deferred_free *deferred; /* in the order of the requests */
    gpu_deferred_free **deferred_last;
    bool freeing_thread;    /* it is running */
    gpu_profile *profile;   /* NULL: never requested */
    atomic_uint references; /* the owner's, and its threads' */
    /* While `lock` is held, the driver is not asked to allocate or to load:
     * that may wait for streams, and these for host callbacks, which take the
     * lock.  Kernels are loaded under `loading`, which is taken first. */
    pthread_mutex_t loading, lock;
} gpu_device;

core_status gpu_enumerate(void *backend, uint32_t *out_count,
                          core_string *out_reason);
core_status gpu_device_open(void *backend, uint32_t index, void **out_device);
void gpu_device_close(void *backend, void *device);
core_status gpu_device_information(void *device, core_device_information *out);
core_status gpu_device_properties(void *device, core_device_properties *out);
core_status gpu_device_status(void *device);
core_status gpu_device_reset(void *device);
void gpu_device_release(gpu_device *device);
/* Returns the NUMA node that Linux reports in `folder` for "pci-ADDRESS";
 * UINT32_MAX: not known. */
uint32_t gpu_numa_node(const char *folder, const char *stable_id);

typedef struct gpu_stream {
    struct gpu_stream *next, **link; /* of the device */
    gpu_device *device;
    void *native;
    gpu_error *error;         /* pinned */
    gpu_callbacks *callbacks; /* NULL: there were none */
    uint32_t generation;
    int adopted;
} gpu_stream;

/* True if anyone is capturing on the stream, or if that cannot be found out. */
bool gpu_native_is_capturing(void *context, void *native);
/* Frees the device's streams, which are not destroyed after a loss or a reset. */
void gpu_streams_free(gpu_device *device);
/* Frees all error records; their pinned memory only if the device is usable. */
void gpu_errors_free(gpu_device *device, bool usable);

/* Lets the queue's thread end after the last callback.  callbacks may be
 * NULL. */
void gpu_callbacks_close(gpu_callbacks *callbacks);
/* Lets all threads end without further driver calls.  Called under the device's
 * lock, before a reset. */
void gpu_callbacks_abandon(gpu_device *device);
/* Frees the queues, which no thread uses any more. */
void gpu_callbacks_destroy(gpu_device *device);

/* Whether this thread is running a callback. */
bool gpu_in_callback(void);

/* Frees memory now or, if the caller may not wait, later. */
enum { GPU_FREE_DEVICE, GPU_FREE_HOST, GPU_FREE_MAPPING, GPU_FREE_RANGE };
void gpu_free(gpu_device *device, int kind, void *data, uint64_t size);
/* Frees what is left when the last reference to the device is released. */
void gpu_deferred_free_all(gpu_device *device);
void gpu_profile_close(gpu_profile *profile);

/* ------------------------------------------------------------- errors -- */

#define gpu_refuse(code, ...)                                         \
    core_sdk_error(gpu_host, code, gpu_this_vendor.driver->component, \
                   __VA_ARGS__)

/* Returns the status of a driver's code and sets the error, which says that
 * `what` failed.  0 is CORE_OK. */
core_status gpu_report(gpu_device *device, int code, const char *what);
/* Wait for a stream's work, or for the work before an event.  Return 0, the
 * driver's code, or GPU_UNKNOWN if the device is lost because its state is not
 * known.  In each case the host's memory is no longer written. */
int gpu_wait_stream(gpu_device *device, void *stream);
int gpu_wait_event(gpu_device *device, void *event);

/* ------------------------------------------------------------- launch -- */

typedef struct gpu_shape {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes; /* of GPU_DYNAMIC */
} gpu_shape;

/* Launches a kernel of a family with its parameter.  An empty grid does
 * nothing. */
core_status gpu_launch(core_call *call, const char *family, const char *name,
                       gpu_shape shape, const void *parameters, size_t size);
core_status gpu_launch_on(gpu_stream *stream, const char *family,
                          const char *name, gpu_shape shape,
                          const void *parameters, size_t size);
/* Launches a function of the driver; errors have the name. */
core_status gpu_launch_function(gpu_stream *stream, void *function,
                                const char *name, gpu_shape shape,
                                const void *parameters, size_t size);

enum { GPU_BLOCK = 256 };
/* Blocks of GPU_BLOCK threads in one dimension for that many items, `each` per
 * thread.  The number of blocks is limited to what keeps the device busy, so
 * kernels loop (gpu_first, gpu_step). */
gpu_shape gpu_spread(const gpu_device *device, uint64_t items, uint32_t each);
/* As many blocks as requested, or as the driver takes in a launch: kernels loop
 * over the rest (gpu_block.x, gpu_grid.x). */
gpu_shape gpu_blocks(uint64_t blocks, uint32_t threads);

/* Writes "softmax_f32" for "softmax" and f32 to the buffer, and returns it. */
enum { GPU_NAME = 96 };
const char *gpu_name(char buffer[GPU_NAME], const char *stem, core_dtype dtype);
/* "f32"; "w32" for any type of 4 bytes. */
const char *gpu_dtype_name(core_dtype dtype);
const char *gpu_width_name(uint32_t bytes);

static inline gpu_stream *gpu_stream_of(const core_call *call)
{
    return call->stream;
}

static inline void *gpu_address(core_memory memory)
{
    return (char *)memory.handle + memory.offset;
}

/* The address of a VIEW's data; NULL for NONE. */
static inline void *gpu_data(const core_value *value)
{
    return value->tag == CORE_VALUE_VIEW ? gpu_address(value->u.view->memory)
                                         : NULL;
}

/* Whether rows of `size` elements of `bytes` bytes can be loaded 16 bytes at a
 * time. */
static inline bool gpu_row_vectors(int64_t size, uint32_t bytes, const void *at)
{
    return size * bytes % 16 == 0 && (uintptr_t)at % 16 == 0;
}

/* -------------------------------------------------------------- loops -- */

gpu_divisor gpu_divide_by(uint32_t value);
/* The bits of a number converted to an element of dtype. */
uint64_t gpu_scalar_bits(const core_value *value, core_dtype dtype);

/* Calls launch, in order, for pieces of a loop with at most GPU_DIMS dimensions
 * and, unless it reduces some, fewer than 2^31 elements.  Reduced dimensions
 * are not cut; if that would be necessary, fails as UNSUPPORTED. */
typedef core_status (*gpu_piece)(const core_loop *piece, void *context);
core_status gpu_loop_pieces(const core_loop *loop, gpu_piece launch,
                            void *context);

/* --------------------------------------------------------- registration -- */

typedef struct gpu_row {
    const char *name;
    core_function launch;
    void *user;
    uint32_t signature[CORE_SIGNATURE_MAX];
    uint32_t requirements;
    core_status (*supports)(const core_call *call, const core_value *args,
                            uint32_t nargs);
} gpu_row;
core_status gpu_register(core_registry *registry, const gpu_row *rows,
                         uint32_t count);
/* `supports` of kernels whose tensors may have at most GPU_DIMS dimensions. */
core_status gpu_supports_dims(const core_call *call, const core_value *args,
                              uint32_t nargs);

enum {
    GPU_M_F64 = CORE_DTYPE_MASK(CORE_F64),
    GPU_M_F32 = CORE_DTYPE_MASK(CORE_F32),
    GPU_M_F16 = CORE_DTYPE_MASK(CORE_F16),
    GPU_M_BF16 = CORE_DTYPE_MASK(CORE_BF16),
    GPU_M_I64 = CORE_DTYPE_MASK(CORE_I64),
    GPU_M_I32 = CORE_DTYPE_MASK(CORE_I32),
    GPU_M_BOOL = CORE_DTYPE_MASK(CORE_BOOL),
    GPU_M_FLOATS = GPU_M_F64 | GPU_M_F32 | GPU_M_F16 | GPU_M_BF16,
    GPU_M_WHOLE = GPU_M_I64 | GPU_M_I32 | CORE_DTYPE_MASK(CORE_I16) |
                  CORE_DTYPE_MASK(CORE_I8) | CORE_DTYPE_MASK(CORE_U8),
    GPU_M_ALL = GPU_M_FLOATS | GPU_M_WHOLE | GPU_M_BOOL
};

#define GPU_DECLARE(file) \
    core_status gpu_register_##file(core_registry *registry);
GPU_REGISTRARS(GPU_DECLARE)
#undef GPU_DECLARE

/* The number of elements before, along and after a dimension of a contiguous
 * view. */
typedef struct gpu_line {
    int64_t outer, size, inner;
} gpu_line;
static inline gpu_line gpu_line_of(const core_view *view, int64_t dim)
{
    gpu_line line = {1, 1, 1};

    if (dim < 0)
        dim += view->ndim;
    for (int64_t d = 0; d < (int64_t)view->ndim; d++)
        if (d < dim)
            line.outer *= view->sizes[d];
        else if (d == dim)
            line.size = view->sizes[d];
        else
            line.inner *= view->sizes[d];
    return line;
}

#endif
