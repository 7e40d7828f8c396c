/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* opencl.h: what the files of this plugin share.
 *
 * Memory is {cl_mem, offset in bytes}: no address leaves OpenCL, and a kernel
 * gets a buffer and an offset for each operand.  A stream is an in-order
 * command queue.  Kernels are compiled when first used, for the dtypes of
 * their operands (program.c). */

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

typedef struct opencl_device {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    /* Of programs, functions and their arguments. */
    pthread_mutex_t lock;
    opencl_program *programs;
    opencl_function *functions[OPENCL_BUCKETS];
    opencl_pinned *pinned; /* host memory that is out */
    atomic_bool lost;
    atomic_bool profiled; /* profile.c wants to hear of commands */
    opencl_profile *profile;
    bool has_f64;
    bool flushes_denormals; /* of f32 */
    bool exact_division;    /* of f32, where it is asked for */
    bool keeps_programs;    /* the driver has a cache, and ours is dear */
    bool unified;           /* memory is the host's */
    uint64_t largest, total, local_bytes;
    uint32_t alignment, units, largest_group;
    _Atomic uint64_t allocated;
    char name[128], stable_id[64], driver[160], runtime[160], features[64];
} opencl_device;

/* plugin.c registers them. */
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

/* -------------------------------------------------------------- errors -- */

#define opencl_refuse(code, ...) \
    core_sdk_error(opencl_host, code, "opencl", __VA_ARGS__)

/* What OpenCL answered, as the core's code, with what failed.  device may be
 * NULL; it is marked lost where the answer says so. */
core_status opencl_fail(opencl_device *device, cl_int code, const char *what);

/* ------------------------------------------------------------- streams -- */

typedef struct opencl_stream {
    opencl_device *device;
    cl_command_queue queue;
    uint64_t number; /* from 1 */
    bool adopted;    /* others may give it work too */
    atomic_bool asked;
    pthread_mutex_t lock;
    cl_event last;      /* of the newest command */
    core_status failed; /* poisoned */
    cl_int failed_code;
    cl_mem word;          /* error word of kernels; NULL until one needs it */
    _Atomic bool checked; /* a kernel may have set it since the last take */
} opencl_stream;

/* A stream on a queue that somebody else made. */
core_status opencl_stream_of(opencl_device *device, cl_command_queue queue,
                             void **out_stream);
/* The stream's error word, made at first use: { int code; int pad; long call;
 * long index }. */
core_status opencl_stream_word(opencl_stream *stream, cl_mem *out_word);
/* The library's threads and handlers of signals, where it may make some: what
 * it changes is put back, and its threads block all signals. */
typedef struct opencl_quiet opencl_quiet;
opencl_quiet *opencl_quiet_begin(void);
void opencl_quiet_end(opencl_quiet *quiet);
/* Remembers a command's event, which it takes over, as the newest one. */
void opencl_stream_ran(opencl_stream *stream, cl_event event);
/* A command of the stream's, before opencl_stream_ran has its event: for
 * core.profiler, where it runs.  kind: CORE_ACTIVITY_…. */
void opencl_profile_ran(opencl_stream *stream, cl_event event, uint32_t kind,
                        const char *name, uint64_t bytes);
void opencl_profile_close(opencl_device *device);
/* CORE_OK, or why nothing more can be given to the stream. */
core_status opencl_stream_usable(opencl_stream *stream);

/* ------------------------------------------------------------ programs -- */

enum { OPENCL_TYPES = 4 };

/* A source: a file under kernels/, or one row of the table of element-wise
 * operators, whose text compose() writes.  Compiled once for each tuple of
 * dtypes, which it knows as T0 … T3 (ACC0: T0's type of sums). */
typedef struct opencl_source {
    const char *name;
    const char *text;
    /* NULL: text is all.  Else writes at most size bytes with the NUL to
     * `to`, and returns how many it wanted to write. */
    size_t (*compose)(const struct opencl_source *source, char *to,
                      size_t size);
    const void *user;
} opencl_source;

/* A running launch: opencl_begin … opencl_run.  The first failure is kept, and
 * what comes behind it does nothing. */
typedef struct opencl_launch {
    opencl_device *device;
    opencl_stream *stream;
    cl_kernel kernel;
    cl_uint next; /* argument */
    core_status status;
    const char *name;
} opencl_launch;

opencl_launch opencl_begin(core_call *call, const opencl_source *source,
                           const core_dtype *types, uint32_t count,
                           const char *function);
void opencl_buffer(opencl_launch *launch, core_memory memory);
/* A buffer that is not there: reads as NULL and offset 0. */
void opencl_nothing(opencl_launch *launch);
void opencl_bytes(opencl_launch *launch, const void *data, size_t size);
void opencl_long(opencl_launch *launch, int64_t value);
void opencl_int(opencl_launch *launch, int32_t value);
void opencl_double(opencl_launch *launch, double value);
void opencl_local(opencl_launch *launch, size_t size);
/* The error word and the call's id: two arguments. */
void opencl_word(opencl_launch *launch, core_call *call);
/* The same two where nothing can fail. */
void opencl_no_word(opencl_launch *launch);
/* items: at least so many work items; whole groups are run.  Ends the launch,
 * also where something failed before. */
core_status opencl_run(opencl_launch *launch, uint64_t items, uint32_t group);
/* The same in three dimensions; global are multiples of local. */
core_status opencl_run_3d(opencl_launch *launch, const size_t *global,
                          const size_t *local);

void opencl_programs_close(opencl_device *device);
static inline bool opencl_is_half(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16;
}
/* The integer type of an element's size. */
static inline core_dtype opencl_word_of(core_dtype dtype)
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

/* The loop as kernels/loop.cl knows it: dimension 0 is the innermost; strides
 * in bytes. */
typedef struct opencl_loop {
    cl_ulong numel;
    cl_uint ndim, immediates;
    cl_uint sizes[OPENCL_MAX_NDIM];
    cl_long strides[4][OPENCL_MAX_NDIM];
} opencl_loop;

core_status opencl_loop_fill(const core_loop *loop, opencl_loop *out);
/* A number as the first bytes of an element of dtype. */
uint64_t opencl_scalar_bits(const core_value *value, core_dtype dtype);

/* Registers one kernel for each way to take one dtype of mask for all operands
 * (operands > 0), or with the signature as it stands. */
typedef struct opencl_row {
    const char *name;
    core_function launch;
    void *user;
    uint32_t signature[CORE_SIGNATURE_MAX];
    uint32_t demands;
} opencl_row;
core_status opencl_register(core_registry *registry, const opencl_row *rows,
                            uint32_t count, uint32_t max_ndim);

/* One kernel; where it demands contiguous operands, its results are too. */
core_status opencl_register_kernel(core_registry *registry, core_kernel kernel);

/* Refuses f64 where the device lacks it: the `supports` of every kernel. */
core_status opencl_supports(const core_call *call, const core_value *args,
                            uint32_t nargs);

/* The same for kernels that compute in f64 whatever the dtype. */
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
core_status opencl_register_pool(core_registry *registry);
core_status opencl_register_norm(core_registry *registry);
core_status opencl_register_random(core_registry *registry);
core_status opencl_register_scatter(core_registry *registry);
core_status opencl_register_scan(core_registry *registry);
core_status opencl_register_sort(core_registry *registry);
core_status opencl_register_chosen(core_registry *registry);
core_status opencl_register_frame(core_registry *registry);
core_status opencl_register_resample(core_registry *registry);

/* Copies between strided windows of equal sizes (strides in elements, outermost
 * first, may be negative), as bits of the dtype's size. */
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

/* An optional view: NONE is a buffer that is not there. */
static inline void opencl_view(opencl_launch *launch, const core_value *value)
{
    if (value->tag == CORE_VALUE_VIEW)
        opencl_buffer(launch, value->u.view->memory);
    else
        opencl_nothing(launch);
}

/* Elements before, along and behind a dimension of a contiguous view. */
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
