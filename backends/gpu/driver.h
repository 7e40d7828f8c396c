/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.h: the interface between the host side and a vendor's driver.  Each
 * vendor fills one table; the host side is written once, against it.
 *
 * Functions return 0 or the vendor's code, which `failure` explains.
 * GPU_BUSY means that the work is not done yet.  GPU_UNKNOWN, which no driver
 * returns, stands for a device that cannot be waited for.  `context` is what
 * device_open created.  Any thread may call.  If another library has set the
 * thread's current device, no call changes it.  A NULL slot means that the
 * vendor has no such function; the plugin then does not offer it. */

#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_BUSY = -1, GPU_ABSENT = -2, GPU_UNKNOWN = -3 };

/* c = alpha a b + beta c as in BLAS: column-major, m x k times k x n.  The
 * steps are leading dimensions: the distance between columns, or between rows
 * of a transposed matrix.  dtype is a core_dtype.  All sizes and steps are
 * below 2^31. */
typedef struct gpu_gemm {
    uint32_t dtype;
    uint32_t a_transposed, b_transposed;
    uint32_t allow_tf32; /* f32 may be multiplied as TF32 */
    int64_t m, n, k, batch;
    const void *a, *b;
    void *c;
    int64_t a_step, b_step, c_step;
    int64_t a_batch, b_batch, c_batch; /* 0: one matrix for all */
    double alpha, beta;
    uint32_t captured; /* the stream is capturing */
    uint32_t reserved;
    /* multiply_workspace bytes that belong to the caller's graph if the product
     * is captured; otherwise NULL, and the driver uses its own. */
    void *workspace;
} gpu_gemm;

/* d = a_scale b_scale a^T b, column-major: the transpose of m x k times k x n,
 * both of 8-bit floats.  added: the product is added to d.  bias: m numbers of
 * d's dtype, added to each column. */
typedef struct gpu_scaled {
    uint32_t a_dtype, b_dtype, d_dtype;
    uint32_t fast; /* sums may be less precise than f32 */
    uint32_t added, reserved;
    int64_t m, n, k;
    const void *a, *b, *bias;      /* bias may be NULL */
    const void *a_scale, *b_scale; /* one f32 each, on the device */
    void *d;
    int64_t a_step, b_step, d_step;
    void *workspace;
    uint64_t workspace_size;
    const char *reason; /* why there is no library, or NULL */
} gpu_scaled;

/* A convolution of images x channels x in with outputs x channels / groups x
 * kernel to images x outputs x out, or one of its gradients: `what` says which
 * of the three operands is written.  All operands are dense, with their
 * dimensions in this order or, if channels_last, with the channels last; their
 * addresses are multiples of 16.  dims is 2 or 3: the last entries of in, out,
 * … are used. */
enum { GPU_CONVOLVE, GPU_INPUT_GRADIENT, GPU_WEIGHT_GRADIENT };
typedef struct gpu_convolution {
    uint32_t what, dtype, dims, channels_last;
    uint32_t allow_tf32; /* f32 may be multiplied as TF32 */
    uint32_t captured;   /* the stream is capturing */
    int64_t images, channels, outputs, groups;
    int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    uint64_t workspace_max;
    void *input, *weight, *output;
    /* The results of convolve_query, from here on. */
    uint64_t workspace_size;
    void *workspace;    /* the caller's, for convolve */
    const char *reason; /* why there is no library, or NULL */
    uint32_t required;  /* by the user: no other way is allowed */
    uint32_t reserved;
} gpu_convolution;

/* The meaning of a code. */
typedef struct gpu_failure {
    int32_t status;   /* core_status */
    int32_t lost;     /* the device is lost, until it is reset */
    const char *name; /* "CUDA_ERROR_NO_DEVICE", or NULL */
} gpu_failure;

/* The properties of a device. */
typedef struct gpu_facts {
    char name[128], stable_id[64], driver[64], runtime[256], architecture[64];
    uint64_t total_memory, shared_bytes;
    uint32_t units, warp, numa_node;
    uint32_t unified;      /* it uses the host's memory */
    uint32_t tensor_cores; /* 1: kernels/warp_matrix.h has code for it */
} gpu_facts;

/* Source of kernels that is compiled while the program runs. */
typedef struct gpu_compilation {
    const char *source, *name;
    const char *architecture; /* gpu_facts.architecture */
    /* The results, which the caller frees; NULL: none. */
    void *image; /* for module_load */
    size_t size; /* of the image, in bytes */
    char *log;   /* what the compiler wrote */
} gpu_compilation;

enum { GPU_TO_DEVICE, GPU_TO_HOST, GPU_WITHIN };

enum { GPU_ACTIVITY_KERNEL, GPU_ACTIVITY_COPY, GPU_ACTIVITY_FILL };

/* A piece of work that a device has done. */
typedef struct gpu_activity {
    uint32_t kind;        /* GPU_ACTIVITY_… */
    uint64_t correlation; /* set by trace_correlate at enqueue */
    uint64_t stream;      /* a number that identifies it */
    int64_t begin, end;   /* nanoseconds of trace_clock */
    uint64_t bytes;
    const char *name; /* valid during the callback */
} gpu_activity;
typedef void (*gpu_activity_callback)(void *user, const gpu_activity *activity);

/* GPU_EVENT_SLEEPING: a thread that waits for it sleeps instead of spinning. */
typedef enum gpu_event_kind {
    GPU_EVENT_PLAIN,
    GPU_EVENT_TIMING,
    GPU_EVENT_SLEEPING
} gpu_event_kind;

/* What use_end restores. */
typedef struct gpu_use {
    int device, mode;
} gpu_use;

typedef struct gpu_driver {
    const char *component; /* in errors: "cuda" */

    /* Finds the vendor's library and the devices.  Returns NULL, or why there
     * are none; the text stays valid.  Not called by two threads at a time. */
    const char *(*find)(uint32_t *out_count);
    gpu_failure (*failure)(int code);

    int (*device_open)(uint32_t index, gpu_facts *out, void **out_context);
    void (*device_close)(void *context);
    int (*device_check)(void *context);
    int (*device_reset)(void *context);

    int (*alloc)(void *context, uint64_t size, void **out);
    int (*free)(void *context, void *data);
    int (*memory)(void *context, uint64_t *out_free, uint64_t *out_total);
    /* Pinned host memory; kernels reach it by the same address. */
    int (*host_alloc)(void *context, uint64_t size, void **out);
    int (*host_free)(void *context, void *data);
    /* Pins whole pages of the host's own memory, which copies then access
     * directly.  A reset of the device unpins it; the memory stays valid. */
    int (*host_pin)(void *context, void *data, uint64_t size);
    /* Whether host memory is pinned.  Copies of other memory wait in the driver,
     * where they may keep other threads out.  NULL: the host side does not wait
     * for the stream before such a copy. */
    int (*host_is_pinned)(void *context, const void *data);
    int (*host_unpin)(void *context, void *data);
    int (*copy)(void *context, void *stream, void *to, const void *from,
                uint64_t size, int direction);
    /* The pattern has 1, 2 or 4 bytes, and `to` is aligned to its size. */
    int (*fill)(void *context, void *stream, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count);

    int (*priority_range)(void *context, int32_t *out_least,
                          int32_t *out_greatest);
    int (*stream_create)(void *context, int32_t priority, void **out_stream);
    int (*stream_destroy)(void *context, void *stream);
    /* Releases what the driver keeps for a stream that it does not own. */
    int (*stream_release)(void *context, void *stream);
    int (*stream_query)(void *context, void *stream);
    int (*stream_synchronize)(void *context, void *stream);
    /* Also true if another library started the capture. */
    int (*stream_is_capturing)(void *context, void *stream, uint32_t *out_yes);
    int (*stream_wait)(void *context, void *stream, void *event);
    /* `function` may wait but must not call the driver. */
    int (*stream_call)(void *context, void *stream, void (*function)(void *),
                       void *argument);
    /* A gate is a number that the host sets: the stream waits until it is at
     * least `number` (modulo 2^32).  gate_create returns GPU_ABSENT if the
     * device does not support that. */
    int (*gate_create)(void *context, uint32_t **out_gate);
    int (*gate_destroy)(void *context, uint32_t *gate);
    int (*stream_gate)(void *context, void *stream, uint32_t *gate,
                       uint32_t number);

    /* kind: a gpu_event_kind. */
    int (*event_create)(void *context, int kind, void **out_event);
    int (*event_destroy)(void *context, void *event);
    int (*event_record)(void *context, void *event, void *stream);
    int (*event_query)(void *context, void *event);
    int (*event_synchronize)(void *context, void *event);
    int (*event_elapsed)(void *context, void *start, void *end,
                         int64_t *out_nanoseconds);

    int (*capture_begin)(void *context, void *stream);
    /* out_graph NULL: the capture is discarded. */
    int (*capture_end)(void *context, void *stream, void **out_graph);
    int (*graph_launch)(void *context, void *graph, void *stream);
    int (*graph_destroy)(void *context, void *graph);

    int (*peer_accessible)(void *context, void *other, uint32_t *out_yes);
    int (*peer_copy)(void *context, void *stream, void *to, void *from_context,
                     const void *from, uint64_t size);

    int (*virtual_granularity)(void *context, uint64_t *out_bytes);
    int (*virtual_reserve)(void *context, uint64_t size, void **out);
    int (*virtual_release)(void *context, void *data, uint64_t size);
    int (*virtual_map)(void *context, void *data, uint64_t size);
    int (*virtual_unmap)(void *context, void *data, uint64_t size);

    /* image: the output of the kernel compiler. */
    int (*module_load)(void *context, const void *image, void **out_module);
    int (*module_unload)(void *context, void *module);
    int (*function_find)(void *context, void *module, const char *name,
                         void **out_function);
    /* The largest number of blocks of `threads` threads that a launch can have
     * in its first dimension.  NULL: 2^31 - 1. */
    uint32_t (*max_blocks)(uint32_t threads);
    int (*launch)(void *context, void *stream, void *function,
                  const uint32_t grid[3], const uint32_t block[3],
                  uint32_t shared_bytes, const void *parameters, size_t size);

    /* Looks for the compiler that runs in the program, at the first call.
     * Returns NULL, or why there is none; the text stays valid. */
    const char *(*compiler)(void *context);
    /* Its version; looks for it, too.  0, 0: there is none. */
    void (*compiler_version)(void *context, int *out_major, int *out_minor);
    /* Compiles kernels.  Returns GPU_ABSENT if there is no compiler, or its code.
     * May take seconds, during which other calls are possible. */
    int (*compile)(void *context, gpu_compilation *c);

    /* Multiplies with the vendor's library, which is looked for at the first
     * call.  Returns GPU_ABSENT if there is none or if it does not support the
     * product.  If batch is 0, this only asks, without a workspace.  A capture
     * creates nothing: what did not exist when it began cannot be used. */
    int (*multiply)(void *context, void *stream, const gpu_gemm *g);
    /* The workspace of a captured product, in bytes; 0: none is needed. */
    uint64_t multiply_workspace;
    /* Whether the device, or for context NULL every open device, can multiply
     * 8-bit floats like this, and with how much workspace.  Returns GPU_ABSENT
     * if not; if the library is what is missing, g->reason says so. */
    int (*scaled_query)(void *context, gpu_scaled *g);
    int (*scaled)(void *context, void *stream, const gpu_scaled *g);

    /* Whether the vendor's library can compute this convolution with at most
     * workspace_max bytes of workspace and with the same bits every time.
     * Returns GPU_ABSENT if not; if the library is what is missing, g->reason
     * says so. */
    int (*convolve_query)(void *context, void *stream, gpu_convolution *g);
    /* GPU_ABSENT: it cannot after all, and nothing was written. */
    int (*convolve)(void *context, void *stream, const gpu_convolution *g);

    /* From trace_start on, calls `callback`, in any thread, for each piece of
     * work that was enqueued since.  When trace_stop returns, all of them have
     * been reported.  trace_start returns GPU_ABSENT if there is no tracing,
     * GPU_BUSY if another tool uses it. */
    int (*trace_start)(void *context, gpu_activity_callback callback,
                       void *user);
    int (*trace_stop)(void *context);
    /* The correlation of work that this thread enqueues from now on; 0:
     * none. */
    void (*trace_correlate)(void *context, uint64_t correlation);
    int (*trace_clock)(void *context, int64_t *out_nanoseconds);

    /* Ranges of the calling thread, shown by a tool of the vendor.  If
     * ranges_enabled returns false, there is no tool and the others are not
     * called. */
    bool (*ranges_enabled)(void);
    void (*range_begin)(const char *name);
    void (*range_end)(void);

    /* Between the two, the device is the thread's current one for another
     * library of the vendor, whose calls may wait, allocate and load.  After an
     * error, use_end is not called. */
    int (*use_begin)(void *context, gpu_use *out_before);
    void (*use_end)(const gpu_use *before);
} gpu_driver;

/* The images of a vendor's kernels, one for each family (kernels/….cu). */
typedef struct gpu_image {
    const char *family;
    const unsigned char *data;
} gpu_image;

/* What a plugin consists of; defined in plugin.c of each vendor. */
typedef struct gpu_vendor {
    const char *type; /* the device type: "cuda" */
    const gpu_driver *driver;
    const gpu_image *images;                   /* ends with family NULL */
    const struct gpu_collectives *collectives; /* NULL: none */
} gpu_vendor;

#endif
