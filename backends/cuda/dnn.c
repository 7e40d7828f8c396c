/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dnn.c: cuDNN, found at run time.  Each stream has a handle (handles.h).  For
 * each device, the descriptors of a convolution and the chosen algorithm are
 * cached: the query takes longer than the computation.
 *
 * Only algorithms are used that give the same bits every time and compute sums
 * of products.  Algorithms that transform tiles (Winograd, Fourier) spread a
 * NaN or an infinity to unrelated elements, and round more. */

#include "dnn.h"

#include "api_names.h"
#include "dnn_api.h"

#include <gpu/host/handles.h>
#include <gpu/host/host.h>

#include <stdio.h>
#include <stdlib.h>

/* The cache of plans has SETS sets of WAYS. */
enum { WAYS = 4, SETS = 128, RESULTS = 8, DIMS = 5, LONGEST_PAUSE = 1000 };

/* A convolution as requested, and the library's plan for it. */
typedef struct plan {
    gpu_convolution of; /* up to `input`; captured is 0 */
    uint64_t used;      /* the number of the last call */
    int able;
    unsigned algorithm;
    size_t workspace;
    dnn_tensor input, output;
    dnn_filter weight;
    dnn_convolution convolution;
} plan;

typedef struct device_state {
    struct device_state *next;
    void *context;
    int broken;                  /* no handle can be created */
    unsigned retry_pause, skips; /* after a lack of memory: attempts to skip */
    uint64_t calls;
    plan *plans[SETS][WAYS];
} device_state;

typedef struct stream_state {
    gpu_handle shared; /* first */
    dnn_handle handle;
} stream_state;

static device_state *devices;
static gpu_handle *streams;    /* stream_state */
static char create_error[128]; /* why no handle can be created */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *cuda_dnn_text(void)
{
    pthread_mutex_lock(&lock);
    dnn_api_open();
    pthread_mutex_unlock(&lock);
    return dnn.text;
}

/* ---------------------------------------------------- devices, streams -- */

static device_state *find_device(const void *context)
{
    device_state *d = devices;

    while (d != NULL && d->context != context)
        d = d->next;
    return d;
}

/* Returns NULL if there is no memory. */
static device_state *get_device(void *context)
{
    device_state *d = find_device(context);

    if (d == NULL)
        d = calloc(1, sizeof *d);
    if (d == NULL || d->context != NULL)
        return d;
    d->context = context;
    d->next = devices;
    devices = d;
    return d;
}

static int is_out_of_memory(dnn_status status)
{
    return status == DNN_8_ALLOC_FAILED || status == DNN_9_HOST_ALLOC_FAILED ||
           status == DNN_9_DEVICE_ALLOC_FAILED;
}

/* A failure for lack of memory may be temporary, but an attempt takes
 * milliseconds; so attempts become ever rarer. */
static int may_try(device_state *d)
{
    if (d->broken)
        return 0;
    if (d->skips > 0) {
        d->skips--;
        return 0;
    }
    return 1;
}

/* On failure returns NULL and sets *out_reason. */
static stream_state *create_stream(device_state *d, const char **out_reason)
{
    int may = may_try(d);
    stream_state *s = NULL;
    gpu_api_capture_mode mode;
    dnn_status status;

    *out_reason = may ? "no memory for a handle" : create_error;
    if (may)
        s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    mode = gpu_captures_relax();
    status = dnn.create(&s->handle);
    gpu_captures_restore(mode);
    if (status == DNN_SUCCESS) {
        gpu_handles_add(&streams, &s->shared, d->context);
        *out_reason = NULL;
        d->retry_pause = 0;
        return s;
    }
    free(s);
    d->broken = !is_out_of_memory(status);
    d->skips = d->retry_pause = d->retry_pause < LONGEST_PAUSE
                                    ? 2 * d->retry_pause + 1
                                    : d->retry_pause;
    if (create_error[0] == 0)
        snprintf(create_error, sizeof create_error,
                 "cudnnCreate fails (status %u)", status);
    *out_reason = create_error;
    return NULL;
}

/* Returns the stream's handle, created if necessary; a capture creates none.
 * On failure returns NULL and sets *out_reason. */
static stream_state *get_stream(device_state *d, void *stream, int captured,
                                const char **out_reason)
{
    void *context = d->context;
    stream_state *s =
        (stream_state *)(void *)gpu_handles_find(streams, context, stream);

    *out_reason = NULL;
    if (s == NULL && captured)
        *out_reason =
            "cuDNN cannot be started in a capture; run the convolution "
            "once before it";
    if (s != NULL || captured)
        return s;
    s = (stream_state *)(void *)gpu_handles_reuse(streams, context, stream);
    if (s == NULL)
        s = create_stream(d, out_reason);
    if (s == NULL)
        return NULL;
    if (dnn.set_stream(s->handle, stream) != DNN_SUCCESS) {
        *out_reason = "cudnnSetStream fails";
        return NULL;
    }
    gpu_handles_assign(&s->shared, stream);
    return s;
}

void cuda_dnn_prepare(void *context, void *stream)
{
    device_state *d = NULL;
    const char *reason; /* only reported by a convolution */

    pthread_mutex_lock(&lock);
    if (dnn_api_open())
        d = dnn.required ? get_device(context) : find_device(context);
    if (d != NULL)
        get_stream(d, stream, 0, &reason);
    pthread_mutex_unlock(&lock);
}

void cuda_dnn_release(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    gpu_handles_release(streams, context, stream);
    pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------- plans -- */

static void destroy_plan(plan *p)
{
    if (p->input != NULL)
        dnn.tensor_destroy(p->input);
    if (p->output != NULL)
        dnn.tensor_destroy(p->output);
    if (p->weight != NULL)
        dnn.filter_destroy(p->weight);
    if (p->convolution != NULL)
        dnn.convolution_destroy(p->convolution);
    free(p);
}

static int type_of(uint32_t dtype, unsigned *out)
{
    switch (dtype) {
    case CORE_F64:
        *out = DNN_DOUBLE;
        return 1;
    case CORE_F32:
        *out = DNN_FLOAT;
        return 1;
    case CORE_F16:
        *out = DNN_HALF;
        return 1;
    case CORE_BF16:
        *out = DNN_BFLOAT16;
        return 1;
    default:
        return 0;
    }
}

/* images x channels x positions, dense. */
static int describe_tensor(dnn_tensor *out, const gpu_convolution *g,
                           unsigned type, int64_t channels,
                           const int64_t positions[3])
{
    int sizes[DIMS] = {(int)g->images, (int)channels}, strides[DIMS];
    int stride = g->channels_last ? (int)channels : 1;
    int dims = (int)g->dims;

    for (int d = dims - 1; d >= 0; d--) {
        sizes[2 + d] = (int)positions[3 - dims + d];
        strides[2 + d] = stride;
        stride *= sizes[2 + d];
    }
    strides[1] = g->channels_last ? 1 : stride;
    strides[0] = g->channels_last ? stride : stride * (int)channels;
    return dnn.tensor_create(out) == DNN_SUCCESS &&
           dnn.tensor_set(*out, type, 2 + dims, sizes, strides) == DNN_SUCCESS;
}

static int describe_weight(dnn_filter *out, const gpu_convolution *g,
                           unsigned type)
{
    int sizes[DIMS] = {(int)g->outputs, (int)(g->channels / g->groups)};
    int dims = (int)g->dims;

    for (int d = 0; d < dims; d++)
        sizes[2 + d] = (int)g->kernel[3 - dims + d];
    return dnn.filter_create(out) == DNN_SUCCESS &&
           dnn.filter_set(*out, type, g->channels_last ? DNN_NHWC : DNN_NCHW,
                          2 + dims, sizes) == DNN_SUCCESS;
}

/* f16 and bf16 are accumulated in f32. */
static int describe_convolution(dnn_convolution *out, const gpu_convolution *g,
                                unsigned type, unsigned math)
{
    int pads[3], strides[3], dilations[3], dims = (int)g->dims;

    for (int d = 0; d < dims; d++) {
        pads[d] = (int)g->pad[3 - dims + d];
        strides[d] = (int)g->stride[3 - dims + d];
        dilations[d] = (int)g->dilation[3 - dims + d];
    }
    return dnn.convolution_create(out) == DNN_SUCCESS &&
           dnn.convolution_set(
               *out, dims, pads, strides, dilations, DNN_CROSS_CORRELATION,
               type == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT) == DNN_SUCCESS &&
           dnn.convolution_groups(*out, (int)g->groups) == DNN_SUCCESS &&
           dnn.convolution_math(*out, math) == DNN_SUCCESS;
}

/* f32 is rounded only if the user allows it. */
static unsigned math_of(const gpu_convolution *g)
{
    if (g->dtype == CORE_F32)
        return g->allow_tf32 ? DNN_MATH_DEFAULT : DNN_MATH_FMA;
    return g->dtype == CORE_F64 ? DNN_MATH_DEFAULT : DNN_MATH_TENSOR;
}

static int accepts_math(const gpu_convolution *g, unsigned math)
{
    return g->dtype == CORE_F32 && !g->allow_tf32
               ? math == DNN_MATH_FMA
               : math != DNN_MATH_TENSOR_NARROW;
}

static int is_direct(uint32_t what, unsigned algorithm)
{
    static const unsigned known[] = {
        [GPU_CONVOLVE] = 1u << DNN_FORWARD_IMPLICIT |
                         1u << DNN_FORWARD_IMPLICIT_PRECOMPUTED |
                         1u << DNN_FORWARD_GEMM | 1u << DNN_FORWARD_DIRECT,
        [GPU_INPUT_GRADIENT] = 1u << DNN_DATA_0 | 1u << DNN_DATA_1,
        [GPU_WEIGHT_GRADIENT] =
            1u << DNN_FILTER_0 | 1u << DNN_FILTER_1 | 1u << DNN_FILTER_3};

    return algorithm < 32 && known[what] >> algorithm & 1;
}

static dnn_status query_library(const plan *p, dnn_handle handle,
                                dnn_result results[RESULTS], int *out_count)
{
    switch (p->of.what) {
    case GPU_CONVOLVE:
        return dnn.forward_query(handle, p->input, p->weight, p->convolution,
                                 p->output, RESULTS, out_count,
                                 (dnn_forward_result *)(void *)results);
    case GPU_INPUT_GRADIENT:
        return dnn.data_query(handle, p->weight, p->output, p->convolution,
                              p->input, RESULTS, out_count,
                              (dnn_data_result *)(void *)results);
    default:
        return dnn.weight_query(handle, p->input, p->output, p->convolution,
                                p->weight, RESULTS, out_count,
                                (dnn_filter_result *)(void *)results);
    }
}

static dnn_status query_workspace(const plan *p, dnn_handle handle,
                                  unsigned algorithm, size_t *out)
{
    switch (p->of.what) {
    case GPU_CONVOLVE:
        return dnn.forward_workspace(handle, p->input, p->weight,
                                     p->convolution, p->output, algorithm, out);
    case GPU_INPUT_GRADIENT:
        return dnn.data_workspace(handle, p->weight, p->output, p->convolution,
                                  p->input, algorithm, out);
    default:
        return dnn.weight_workspace(handle, p->input, p->output, p->convolution,
                                    p->weight, algorithm, out);
    }
}

/* Chooses the first acceptable algorithm, which the library estimates to be the
 * fastest. */
static void choose(plan *p, dnn_handle handle)
{
    dnn_result results[RESULTS];
    int count = 0;

    memset(results, 0, sizeof results);
    if (query_library(p, handle, results, &count) != DNN_SUCCESS)
        return;
    for (int i = 0; i < count && i < RESULTS && !p->able; i++) {
        const dnn_result *r = &results[i];

        p->able =
            r->status == DNN_SUCCESS && r->determinism == DNN_DETERMINISTIC &&
            is_direct(p->of.what, r->algorithm) &&
            accepts_math(&p->of, r->math) &&
            dnn.convolution_math(p->convolution, r->math) == DNN_SUCCESS &&
            query_workspace(p, handle, r->algorithm, &p->workspace) ==
                DNN_SUCCESS &&
            p->workspace <= p->of.workspace_max;
        p->algorithm = r->algorithm;
    }
}

/* Returns NULL if there is no memory. */
static plan *create_plan(const gpu_convolution *of, dnn_handle handle)
{
    plan *p = calloc(1, sizeof *p);
    unsigned type;

    if (p == NULL)
        return NULL;
    p->of = *of;
    if (type_of(of->dtype, &type) &&
        describe_tensor(&p->input, of, type, of->channels, of->in) &&
        describe_tensor(&p->output, of, type, of->outputs, of->out) &&
        describe_weight(&p->weight, of, type) &&
        describe_convolution(&p->convolution, of, type, math_of(of)))
        choose(p, handle);
    return p;
}

enum { KEY = offsetof(gpu_convolution, input) };

static uint32_t set_of(const gpu_convolution *of)
{
    const unsigned char *bytes = (const unsigned char *)of;
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < KEY; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return (hash ^ hash >> 16) % SETS;
}

/* If a set is full, the least recently used plan is dropped.  The library does
 * not use a plan after a call. */
static plan *get_plan(device_state *d, dnn_handle handle,
                      const gpu_convolution *g)
{
    gpu_convolution of;
    plan **set, **worst;

    memset(&of, 0, sizeof of);
    memcpy(&of, g, KEY);
    of.captured = 0;
    worst = set = d->plans[set_of(&of)];
    d->calls++;
    for (int i = 0; i < WAYS; i++) {
        if (set[i] != NULL && memcmp(&set[i]->of, &of, KEY) == 0) {
            set[i]->used = d->calls;
            return set[i];
        }
        if (*worst != NULL && (set[i] == NULL || set[i]->used < (*worst)->used))
            worst = &set[i];
    }
    if (*worst != NULL)
        destroy_plan(*worst);
    *worst = create_plan(&of, handle);
    if (*worst != NULL)
        (*worst)->used = d->calls;
    return *worst;
}

void cuda_dnn_destroy(void *context, int lost)
{
    device_state **of = &devices, *d;
    gpu_handle *h;

    pthread_mutex_lock(&lock);
    while ((h = gpu_handles_remove(&streams, context, lost)) != NULL) {
        dnn.destroy(((stream_state *)(void *)h)->handle);
        free(h);
    }
    while (*of != NULL && (*of)->context != context)
        of = &(*of)->next;
    d = *of;
    if (d != NULL) {
        *of = d->next;
        for (int i = 0; i < SETS * WAYS; i++)
            if (d->plans[i / WAYS][i % WAYS] != NULL)
                destroy_plan(d->plans[i / WAYS][i % WAYS]);
        free(d);
    }
    pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------- convolutions -- */

/* On failure returns NULL, and may set g->reason.  Under the lock. */
static plan *find_plan(void *context, void *stream, gpu_convolution *g,
                       stream_state **out_stream)
{
    device_state *d;

    if (!dnn_api_open()) {
        g->reason = dnn.disabled ? NULL : dnn.text;
        return NULL;
    }
    d = get_device(context);
    if (d == NULL)
        return NULL;
    *out_stream = get_stream(d, stream, g->captured != 0, &g->reason);
    return *out_stream != NULL ? get_plan(d, (*out_stream)->handle, g) : NULL;
}

int cuda_dnn_query(void *context, void *stream, gpu_convolution *g)
{
    stream_state *s = NULL;
    const plan *p;
    int code = GPU_ABSENT;

    g->reason = NULL;
    g->workspace_size = 0;
    pthread_mutex_lock(&lock);
    p = find_plan(context, stream, g, &s);
    g->required = (uint32_t)dnn.required;
    if (p != NULL && p->able) {
        g->workspace_size = p->workspace;
        code = 0;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static dnn_status compute(const plan *p, dnn_handle handle,
                          const gpu_convolution *g)
{
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const void *alpha = g->dtype == CORE_F64 ? (const void *)&one : &one_f32;
    const void *beta = g->dtype == CORE_F64 ? (const void *)&zero : &zero_f32;

    switch (g->what) {
    case GPU_CONVOLVE:
        return dnn.forward(handle, alpha, p->input, g->input, p->weight,
                           g->weight, p->convolution, p->algorithm,
                           g->workspace, p->workspace, beta, p->output,
                           g->output);
    case GPU_INPUT_GRADIENT:
        return dnn.data(handle, alpha, p->weight, g->weight, p->output,
                        g->output, p->convolution, p->algorithm, g->workspace,
                        p->workspace, beta, p->input, g->input);
    default:
        return dnn.weight(handle, alpha, p->input, g->input, p->output,
                          g->output, p->convolution, p->algorithm, g->workspace,
                          p->workspace, beta, p->weight, g->weight);
    }
}

/* The driver's code first: it reports a lost device in any call. */
static int code_of(dnn_status status)
{
    size_t some, all;
    int code;

    if (status == DNN_SUCCESS)
        return 0;
    code = cuda.MemGetInfo(&some, &all);
    if (code != 0)
        return code;
    if (status == DNN_8_EXECUTION_FAILED ||
        status / 1000 == DNN_9_EXECUTION_FAILED / 1000)
        return CUDA_ERROR_LAUNCH_FAILED;
    if (is_out_of_memory(status))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return GPU_ABSENT;
}

int cuda_dnn_convolve(void *context, void *stream, const gpu_convolution *g)
{
    gpu_convolution of = *g;
    stream_state *s = NULL;
    int code = GPU_ABSENT;
    plan *p;

    pthread_mutex_lock(&lock);
    p = find_plan(context, stream, &of, &s);
    if (p != NULL && p->able && p->workspace <= g->workspace_size)
        code = code_of(compute(p, s->handle, g));
    /* What the library cannot compute after all is not tried again. */
    if (p != NULL && code == GPU_ABSENT)
        p->able = 0;
    pthread_mutex_unlock(&lock);
    return code;
}
