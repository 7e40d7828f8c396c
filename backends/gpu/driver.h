/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.h: what the host side asks of a vendor.  One table for each; the
 * host side is written once against it.
 *
 * Functions answer 0 or the vendor's code, which `failure` explains; GPU_BUSY
 * stands for work that is not done, GPU_UNKNOWN, which no driver answers, for a
 * device that cannot be waited for.  `context` is what device_open made; any
 * thread may call, and no call leaves the thread's current device changed
 * where another library had set one.  A NULL slot: the vendor has no such
 * thing, and the plugin does not say that it has. */

#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_BUSY = -1, GPU_ABSENT = -2, GPU_UNKNOWN = -3 };

/* c = alpha a b + beta c, as BLAS has it: by columns, m x k times k x n; a step
 * lies between columns, or rows of a turned one.  dtype: a core_dtype.  All
 * sizes and steps are below 2^31. */
typedef struct gpu_gemm {
    uint32_t dtype;
    uint32_t a_transposed, b_transposed;
    uint32_t allow_tf32; /* f32 may be multiplied with fewer bits */
    int64_t m, n, k, batch;
    const void *a, *b;
    void *c;
    int64_t a_step, b_step, c_step;
    int64_t a_batch, b_batch, c_batch; /* 0: one for all */
    double alpha, beta;
    uint32_t captured; /* by the stream, now */
    uint32_t reserved;
    /* Of multiply_workspace bytes: the caller's, and the graph's, where the
     * product is captured; else NULL, and the driver has its own. */
    void *workspace;
} gpu_gemm;

/* d = a_scale b_scale a^T b, by columns: m x k, turned, times k x n, both of
 * eight bits.  added: to what d has; bias: m numbers of d's dtype, to each
 * column. */
typedef struct gpu_scaled {
    uint32_t a_dtype, b_dtype, d_dtype;
    uint32_t fast; /* sums may have fewer bits than f32 */
    uint32_t added, reserved;
    int64_t m, n, k;
    const void *a, *b, *bias;      /* bias NULL: none */
    const void *a_scale, *b_scale; /* one f32 each, on the device */
    void *d;
    int64_t a_step, b_step, d_step;
    void *workspace;
    uint64_t workspace_size;
    const char *reason; /* why the library is not used; NULL: no matter */
} gpu_scaled;

/* A convolution of images x channels x in with outputs x channels / groups x
 * kernel to images x outputs x out, or one of its gradients: `what` says which
 * of the three operands is written.  All are dense, in this order of dimensions
 * or, channels_last, with channels behind the places; they begin where 16
 * divides.  dims: 2 or 3, the last ones of in, out, … */
enum { GPU_CONVOLVE, GPU_INPUT_GRADIENT, GPU_WEIGHT_GRADIENT };
typedef struct gpu_convolution {
    uint32_t what, dtype, dims, channels_last;
    uint32_t allow_tf32; /* f32 may be multiplied with fewer bits */
    uint32_t captured;   /* by the stream, now */
    int64_t images, channels, outputs, groups;
    int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    uint64_t workspace_max;
    void *input, *weight, *output;
    /* What convolve_query answers, from here on. */
    uint64_t workspace_size;
    void *workspace;    /* so many bytes: the caller's, for convolve */
    const char *reason; /* why the library is not used; NULL: no matter */
    uint32_t required;  /* the user wants the library and nothing else */
    uint32_t reserved;
} gpu_convolution;

/* What a code means. */
typedef struct gpu_failure {
    int32_t status;   /* core_status */
    int32_t lost;     /* the device must be opened again */
    const char *name; /* "CUDA_ERROR_NO_DEVICE"; NULL: not known */
} gpu_failure;

/* What a device is. */
typedef struct gpu_facts {
    char name[128], stable_id[64], driver[64], runtime[256], architecture[64];
    uint64_t total_memory, shared_bytes;
    uint32_t units, warp, numa_node;
    uint32_t unified; /* no memory of its own: it uses the host's */
} gpu_facts;

enum { GPU_TO_DEVICE, GPU_TO_HOST, GPU_WITHIN };

enum { GPU_ACTIVITY_KERNEL, GPU_ACTIVITY_COPY, GPU_ACTIVITY_FILL };

/* A piece of work that a device did. */
typedef struct gpu_activity {
    uint32_t kind;        /* GPU_DID_… */
    uint64_t correlation; /* what trace_correlate set when it was given */
    uint64_t stream;      /* a number */
    int64_t begin, end;   /* nanoseconds of trace_clock */
    uint64_t bytes;
    const char *name; /* while it is told */
} gpu_activity;
typedef void (*gpu_activity_callback)(void *opaque,
                                      const gpu_activity *activity);

/* GPU_EVENT_SLEEPING: a thread that waits for it takes no processor. */
typedef enum gpu_event_kind {
    GPU_EVENT_PLAIN,
    GPU_EVENT_TIMING,
    GPU_EVENT_SLEEPING
} gpu_event_kind;

typedef struct gpu_driver {
    const char *component; /* of errors: "cuda" */

    /* Finds the vendor's library and the devices.  NULL, or why there are
     * none, in text that stays. */
    const char *(*find)(uint32_t *out_count);
    gpu_failure (*failure)(int code);

    int (*device_open)(uint32_t index, gpu_facts *out, void **out_context);
    void (*device_close)(void *context);
    int (*device_check)(void *context);
    int (*device_reset)(void *context);

    int (*alloc)(void *context, uint64_t size, void **out);
    int (*free)(void *context, void *data);
    int (*memory)(void *context, uint64_t *out_free, uint64_t *out_total);
    /* Pinned memory of the host, that kernels reach by the same address. */
    int (*host_alloc)(void *context, uint64_t size, void **out);
    int (*host_free)(void *context, void *data);
    /* The host's own memory, of whole pages, that copies reach at once from now
     * on.  A reset lets it go; it stays the host's. */
    int (*host_pin)(void *context, void *data, uint64_t size);
    int (*host_unpin)(void *context, void *data);
    int (*copy)(void *context, void *stream, void *to, const void *from,
                uint64_t size, int direction);
    /* Patterns of 1, 2 or 4 bytes, aligned to that. */
    int (*fill)(void *context, void *stream, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count);

    int (*priority_range)(void *context, int32_t *out_least,
                          int32_t *out_greatest);
    int (*stream_create)(void *context, int32_t priority, void **out_stream);
    int (*stream_destroy)(void *context, void *stream);
    /* What the driver keeps for a stream goes, as when it is destroyed; but the
     * stream is another library's, and stays. */
    int (*stream_forget)(void *context, void *stream);
    int (*stream_query)(void *context, void *stream);
    int (*stream_synchronize)(void *context, void *stream);
    /* By whomever: another library captures on streams of its own. */
    int (*stream_is_capturing)(void *context, void *stream, uint32_t *out_yes);
    int (*stream_wait)(void *context, void *stream, void *event);
    /* function waits, and calls nothing of the vendor's. */
    int (*stream_call)(void *context, void *stream, void (*function)(void *),
                       void *argument);
    /* The stream waits until the number, which the host sets, is `number` or
     * later (by as much as 2^31).  GPU_ABSENT: not by this device. */
    int (*gate_create)(void *context, uint32_t **out_gate);
    int (*gate_destroy)(void *context, uint32_t *gate);
    int (*stream_gate)(void *context, void *stream, uint32_t *gate,
                       uint32_t number);

    /* One of gpu_event_kind. */
    int (*event_create)(void *context, int kind, void **out_event);
    int (*event_destroy)(void *context, void *event);
    int (*event_record)(void *context, void *event, void *stream);
    int (*event_query)(void *context, void *event);
    int (*event_synchronize)(void *context, void *event);
    int (*event_elapsed)(void *context, void *start, void *end,
                         int64_t *out_nanoseconds);

    int (*capture_begin)(void *context, void *stream);
    /* out_graph NULL: thrown away. */
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

    /* image: what the compiler of kernels wrote. */
    int (*module_load)(void *context, const void *image, void **out_module);
    int (*module_unload)(void *context, void *module);
    int (*function_find)(void *context, void *module, const char *name,
                         void **out_function);
    /* Blocks of so many threads that a launch has in its first dimension, at
     * most; NULL: 2^31 - 1. */
    uint32_t (*max_blocks)(uint32_t threads);
    int (*launch)(void *context, void *stream, void *function,
                  const uint32_t grid[3], const uint32_t block[3],
                  uint32_t shared_bytes, const void *parameters, size_t size);

    /* By the vendor's library, which is looked for at the first call;
     * GPU_ABSENT: it is not here, or does not do this one.  batch 0 asks, and
     * needs no workspace.  A capture prepares nothing: what was not there when
     * it began is not here. */
    int (*multiply)(void *context, void *stream, const gpu_gemm *g);
    /* What a captured product works in; 0: the library wants none. */
    uint64_t multiply_workspace;
    /* Whether the device multiplies eight bits so, and with how much workspace;
     * context NULL: whether every device that is open does.  GPU_ABSENT: no;
     * g->lacks says why where that is for want of the library. */
    int (*scaled_query)(void *context, gpu_scaled *g);
    int (*scaled)(void *context, void *stream, const gpu_scaled *g);

    /* Whether the vendor's library does this one, with workspace_max bytes of
     * workspace at most, and the same bits each time.  GPU_ABSENT: no; g->lacks
     * says why where that is for want of the library. */
    int (*convolve_query)(void *context, void *stream, gpu_convolution *g);
    /* GPU_ABSENT: it does not after all, and nothing was written. */
    int (*convolve)(void *context, void *stream, const gpu_convolution *g);

    /* Work that is given from now on is told, in any thread; when trace_stop
     * returns all is.  GPU_ABSENT: nobody records; GPU_BUSY: another tool. */
    int (*trace_start)(void *context, gpu_activity_callback tell, void *opaque);
    int (*trace_stop)(void *context);
    /* Of what this thread gives; 0: none. */
    void (*trace_correlate)(void *context, uint64_t correlation);
    int (*trace_clock)(void *context, int64_t *out_nanoseconds);

    /* Ranges of the calling thread, for a tool of the vendor's that shows them.
     * False: there is none, and the others are not called. */
    bool (*ranges_enabled)(void);
    void (*range_begin)(const char *name);
    void (*range_end)(void);
} gpu_driver;

/* The images of one vendor's kernels, one for each family (kernels/….cu). */
typedef struct gpu_image {
    const char *family;
    const unsigned char *data;
} gpu_image;

/* A plugin is one of these (plugin.c of each vendor). */
typedef struct gpu_vendor {
    const char *type; /* device type: "cuda" */
    const gpu_driver *driver;
    const gpu_image *images; /* ends with family NULL */
} gpu_vendor;

#endif
