/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* opencl.h: the common declarations of this plugin.
 *
 * Memory is {cl_mem, offset in bytes}: addresses are never exposed, and a
 * kernel gets a buffer and an offset for each operand.  A stream is an
 * in-order command queue.  Kernels are compiled when first used, for the
 * dtypes of their operands (program.c). */

#ifndef OPENCL_OPENCL_H
#define OPENCL_OPENCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "api.h"

extern const core_host *opencl_host;

/* -------------------------------------------------------------- device -- */

typedef struct opencl_program opencl_program;
typedef struct opencl_function opencl_function;
typedef struct opencl_pinned opencl_pinned;

enum { OPENCL_BUCKETS = 512 };

typedef struct opencl_profile opencl_profile;
typedef struct opencl_packed_weights opencl_packed_weights;

typedef struct opencl_device {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    /* Guards programs, functions and their arguments. */
    pthread_mutex_t lock;
    opencl_program *programs;
    opencl_function *functions[OPENCL_BUCKETS];
    opencl_pinned *pinned; /* allocated host memory */
    atomic_bool lost;
    atomic_bool profiled; /* profile.c records commands */
    opencl_profile *profile;
    opencl_packed_weights *packed; /* or NULL */
    bool has_f64;
    bool flushes_denormals; /* of f32 */
    bool exact_division;    /* of f32, if requested */
    bool keeps_programs;    /* the driver has a cache, and ours is expensive */
    bool unified;           /* memory is the host's */
    bool wide_vectors;      /* prefers vectors of f32, as CPUs do */
    uint64_t largest, total, local_bytes;
    uint32_t alignment, units, largest_group;
    _Atomic uint64_t allocated;
    char name[128], stable_id[64], driver[160], runtime[160], features[64];
    char generator[544]; /* core.codegen's identity */
} opencl_device;

/* Registered by plugin.c. */
core_status opencl_enumerate(void *backend, uint32_t *out_count,
                             core_string *out_reason);
core_status opencl_device_open(void *backend, uint32_t index,
                               void **out_device);
void opencl_device_close(void *backend, void *device);
core_status opencl_device_information(void *device,
                                      core_device_information *out);
core_status opencl_device_properties(void *device, core_device_properties *out);
core_status opencl_device_status(void *device);

extern const core_memory_table opencl_memory_table;
extern const core_stream_table opencl_stream_table;
extern const core_event_table opencl_event_table;
extern const core_timing_interface opencl_timing;
extern const core_numerics_interface opencl_numerics;
extern const core_stream_error_interface opencl_stream_error;
extern const core_host_callback_interface opencl_host_callback;
extern const core_host_memory_interface opencl_host_memory;
extern const core_stream_adopt_interface opencl_stream_adopt;
extern const core_profiler_interface opencl_profiler;
extern const core_codegen_interface opencl_codegen;

/* -------------------------------------------------------------- errors -- */

#define opencl_refuse(code, ...) \
    core_sdk_error(opencl_host, code, "opencl", __VA_ARGS__)

/* Reports an OpenCL error as the core's code, with what failed.  device may be
 * NULL; it is marked lost if the code says so. */
core_status opencl_fail(opencl_device *device, cl_int code, const char *what);

/* ------------------------------------------------------------- streams -- */

typedef struct opencl_stream {
    opencl_device *device;
    cl_command_queue queue;
    uint32_t kind;   /* CORE_STREAM_… */
    uint64_t number; /* from 1 */
    bool adopted;    /* others may submit work to it, too */
    atomic_bool asked;
    pthread_mutex_t lock;
    cl_event last;      /* of the newest command */
    core_status failed; /* not CORE_OK: poisoned */
    cl_int failed_code;
    cl_mem errors;        /* error buffer of kernels; NULL until one needs
                             * it */
    _Atomic bool checked; /* a kernel may have written it since the last take */
} opencl_stream;

/* Creates a stream on a queue of another owner, or on a new one if queue is
 * NULL. */
core_status opencl_stream_on_queue(opencl_device *device, uint32_t kind,
                                   cl_command_queue queue, void **out_stream);
/* Returns the stream's error buffer, created at first use: { int code; int pad;
 * long call; long index }. */
core_status opencl_stream_error_buffer(opencl_stream *stream,
                                       cl_mem *out_buffer);
/* Saves signal handlers and blocks signals around calls in which the library
 * may start threads or set handlers: handlers are restored, and its threads
 * block all signals. */
typedef struct opencl_signal_guard opencl_signal_guard;
opencl_signal_guard *opencl_signal_guard_begin(void);
void opencl_signal_guard_end(opencl_signal_guard *guard);
/* Takes over a command's event as the newest one. */
void opencl_stream_submitted(opencl_stream *stream, cl_event event);
/* Records a command of the stream for core.profiler, if active, before
 * opencl_stream_submitted takes its event.  kind: CORE_ACTIVITY_…. */
void opencl_profile_submitted(opencl_stream *stream, cl_event event,
                              uint32_t kind, const char *name, uint64_t bytes);
void opencl_profile_close(opencl_device *device);
/* Returns CORE_OK, or why the stream accepts no more work. */
core_status opencl_stream_usable(opencl_stream *stream);
/* The same for a kernel: a copy stream returns UNSUPPORTED. */
core_status opencl_stream_takes_kernels(opencl_stream *stream);

/* ------------------------------------------------------------ programs -- */

enum { OPENCL_TYPES = 4 };

/* A source: a file in kernels/, or a row of the table of element-wise
 * operators, whose text compose() writes.  Compiled once for each tuple of
 * dtypes, which are T0 … T3 in the source (ACC0: the type for sums of T0). */
typedef struct opencl_source {
    const char *name;
    const char *text;
    /* NULL: the text is complete.  Otherwise writes at most size bytes
     * including the NUL to `to`, and returns the required number. */
    size_t (*compose)(const struct opencl_source *source, char *to,
                      size_t size);
    const void *user;
} opencl_source;

/* A launch in progress: opencl_begin … opencl_run.  The first failure is kept,
 * and later steps then do nothing. */
typedef struct opencl_launch {
    opencl_device *device;
    opencl_stream *stream;
    cl_kernel kernel;
    cl_uint next; /* index of the next argument */
    core_status status;
    const char *name;
} opencl_launch;

opencl_launch opencl_begin(core_call *call, const opencl_source *source,
                           const core_dtype *types, uint32_t count,
                           const char *function);
void opencl_buffer(opencl_launch *launch, core_memory memory);
/* Passes a NULL buffer with offset 0. */
void opencl_null_buffer(opencl_launch *launch);
void opencl_bytes(opencl_launch *launch, const void *data, size_t size);
void opencl_long(opencl_launch *launch, int64_t value);
void opencl_int(opencl_launch *launch, int32_t value);
void opencl_double(opencl_launch *launch, double value);
void opencl_local(opencl_launch *launch, size_t size);
/* Passes the error buffer and the call's id: two arguments. */
void opencl_error_args(opencl_launch *launch, uint64_t call);
/* Passes the same two for kernels that cannot fail. */
void opencl_no_error_args(opencl_launch *launch);
/* items: the minimum number of work items, rounded up to whole groups.  Ends
 * the launch, even after a failure. */
core_status opencl_run(opencl_launch *launch, uint64_t items, uint32_t group);
/* The same in three dimensions; global sizes are multiples of local ones. */
core_status opencl_run_3d(opencl_launch *launch, const size_t *global,
                          const size_t *local);

void opencl_programs_close(opencl_device *device);

/* Compiles a complete source.  name: for messages.  Any thread may call it,
 * without a lock. */
core_status opencl_compile(opencl_device *device, const char *source,
                           const char *name, cl_program *out_program);
/* Makes a program of a binary.  CORRUPT: the driver does not accept it. */
core_status opencl_load_binary(opencl_device *device, const void *data,
                               size_t size, cl_program *out_program);
/* Begins a launch of a kernel that no table contains; opencl_run ends it. */
opencl_launch opencl_begin_kernel(opencl_stream *stream, cl_kernel kernel,
                                  const char *name);
/* The C type of an element; half-precision elements are stored as bits. */
const char *opencl_type_name(core_dtype dtype);
static inline bool opencl_is_half(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16;
}
/* The integer type of an element's size. */
static inline core_dtype opencl_bits_of(core_dtype dtype)
{
    switch (core_sdk_itemsize(dtype)) {
    case 1:
        return CORE_U8;
    case 2:
        return CORE_I16;
    case 4:
        return CORE_I32;
    default:
        return CORE_I64;
    }
}

/* ------------------------------------------------------------- kernels -- */

enum {
    OPENCL_F32 = CORE_DTYPE_MASK(CORE_F32),
    OPENCL_F64 = CORE_DTYPE_MASK(CORE_F64),
    OPENCL_F16 = CORE_DTYPE_MASK(CORE_F16),
    OPENCL_BF16 = CORE_DTYPE_MASK(CORE_BF16),
    OPENCL_I64 = CORE_DTYPE_MASK(CORE_I64),
    OPENCL_I32 = CORE_DTYPE_MASK(CORE_I32),
    OPENCL_BOOL = CORE_DTYPE_MASK(CORE_BOOL),
    OPENCL_FLOATS = OPENCL_F64 | OPENCL_F32 | OPENCL_F16 | OPENCL_BF16,
    OPENCL_INTEGERS = OPENCL_I64 | OPENCL_I32 | CORE_DTYPE_MASK(CORE_I16) |
                      CORE_DTYPE_MASK(CORE_I8) | CORE_DTYPE_MASK(CORE_U8),
    OPENCL_ALL = OPENCL_FLOATS | OPENCL_INTEGERS | OPENCL_BOOL
};
enum { OPENCL_MAX_NDIM = 8, OPENCL_GROUP = 64 };

/* The `loop` of kernels/prelude.cl: dimension 0 is the innermost; strides in
 * bytes. */
typedef struct opencl_loop {
    cl_ulong numel;
    cl_uint ndim, immediates;
    cl_uint sizes[OPENCL_MAX_NDIM];
    cl_long strides[4][OPENCL_MAX_NDIM];
} opencl_loop;

core_status opencl_loop_fill(const core_loop *loop, opencl_loop *out);
/* Returns a number as the first bytes of an element of dtype. */
uint64_t opencl_scalar_bits(const core_value *value, core_dtype dtype);

/* Registers one kernel for each choice of one dtype of the mask for all
 * operands (operands > 0), or with the signature as given. */
typedef struct opencl_row {
    const char *name;
    core_function launch;
    void *user;
    uint32_t signature[CORE_SIGNATURE_MAX];
    uint32_t requirements;
} opencl_row;
core_status opencl_register(core_registry *registry, const opencl_row *rows,
                            uint32_t count, uint32_t max_ndim);

/* Registers one kernel; if it requires contiguous operands, its results are
 * contiguous, too. */
core_status opencl_register_kernel(core_registry *registry, core_kernel kernel);

/* The `supports` of every kernel: refuses f64 if the device lacks it. */
core_status opencl_supports(const core_call *call, const core_value *args,
                            uint32_t nargs);

/* The same for kernels that compute in f64 for every dtype. */
core_status opencl_needs_f64(const core_call *call, const core_value *args,
                             uint32_t nargs);

/* One for each file of kernels. */
core_status opencl_register_elementwise(core_registry *registry);
core_status opencl_register_copy(core_registry *registry);
core_status opencl_register_reduce(core_registry *registry);
core_status opencl_register_matmul(core_registry *registry);
core_status opencl_register_rows(core_registry *registry);
core_status opencl_register_index(core_registry *registry);
core_status opencl_register_move(core_registry *registry);
core_status opencl_register_factory(core_registry *registry);
core_status opencl_register_loss(core_registry *registry);
core_status opencl_register_conv(core_registry *registry);
core_status opencl_register_pooling(core_registry *registry);
core_status opencl_register_norm(core_registry *registry);
core_status opencl_register_random(core_registry *registry);
core_status opencl_register_scatter(core_registry *registry);
core_status opencl_register_scan(core_registry *registry);
core_status opencl_register_sort(core_registry *registry);
core_status opencl_register_masked(core_registry *registry);
core_status opencl_register_pad(core_registry *registry);
core_status opencl_register_resample(core_registry *registry);

/* Copies between strided windows of equal sizes (strides in elements, outermost
 * first, possibly negative), as bits of the dtype's size. */
core_status opencl_copy_window(core_call *call, core_dtype dtype, uint32_t ndim,
                               const int64_t *sizes, core_memory to,
                               const int64_t *to_strides, core_memory from,
                               const int64_t *from_strides);
/* The same with a cast. */
core_status opencl_convert_window(core_call *call, uint32_t ndim,
                                  const int64_t *sizes, core_dtype to_dtype,
                                  core_memory to, const int64_t *to_strides,
                                  core_dtype from_dtype, core_memory from,
                                  const int64_t *from_strides);
core_status opencl_fill_view(core_call *call, const core_view *to,
                             uint64_t bits);

/* Passes an optional view: NONE is a NULL buffer. */
static inline void opencl_view(opencl_launch *launch, const core_value *value)
{
    if (value->tag == CORE_VALUE_VIEW)
        opencl_buffer(launch, value->u.view->memory);
    else
        opencl_null_buffer(launch);
}

/* Numbers of elements before, along and behind a dimension of a contiguous
 * view. */
typedef struct opencl_line {
    int64_t outer, size, inner;
} opencl_line;
static inline opencl_line opencl_line_of(const core_view *view, int64_t dim)
{
    opencl_line line = {1, 1, 1};

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
