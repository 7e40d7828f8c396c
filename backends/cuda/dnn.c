/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dnn.c: cuDNN, found at run time.  A stream has a handle (handles.h).  What is
 * described of a convolution, and how the library would compute it, is kept of
 * each device: to ask costs more than to compute.
 *
 * Only algorithms are taken that give the same bits each time and sum up
 * products: those that transform tiles (Winograd's, Fourier's) spread a NaN or an
 * infinity to places that it does not belong to, and round more. */

#include "dnn.h"

#include "api.h"
#include "dnn_api.h"

#include <gpu/host/handles.h>
#include <gpu/host/host.h>

#include <stdio.h>
#include <stdlib.h>

/* Plans are kept in SETS of WAYS. */
enum { WAYS = 4, SETS = 128, RESULTS = 8, DIMS = 5, LONGEST_PAUSE = 1000 };

/* A convolution as it was asked for, and what the library says of it. */
typedef struct plan {
    gpu_convolution of; /* up to `input`, and captured is 0 */
    uint64_t used;      /* number of the last call */
    int able;
    unsigned algorithm;
    size_t workspace;
    dnn_tensor input, output;
    dnn_filter weight;
    dnn_convolution convolution;
} plan;

typedef struct of_device {
    struct of_device *next;
    void *context;
    int broken;            /* no handle can be made */
    unsigned pause, waits; /* without memory: how many are not tried next */
    uint64_t calls;
    plan *plans[SETS][WAYS];
} of_device;

typedef struct of_stream {
    gpu_handle shared; /* first */
    dnn_handle handle;
} of_stream;

static of_device *devices;
static gpu_handle *streams; /* of_stream */
static char broken[128];    /* why no handle could be made */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *cuda_dnn_text(void)
{
    pthread_mutex_lock(&lock);
    dnn_api_open();
    pthread_mutex_unlock(&lock);
    return dnn.text;
}

/* ---------------------------------------------------- devices, streams -- */

static of_device *device_of(const void *context)
{
    of_device *d = devices;

    while (d != NULL && d->context != context)
        d = d->next;
    return d;
}

/* NULL: no memory. */
static of_device *device_made(void *context)
{
    of_device *d = device_of(context);

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

/* What fails for want of memory may do later: it takes milliseconds, so it is
 * tried ever less often. */
static int may_try(of_device *d)
{
    if (d->broken)
        return 0;
    if (d->waits > 0) {
        d->waits--;
        return 0;
    }
    return 1;
}

/* NULL, and *out_lacks. */
static of_stream *made(of_device *d, const char **out_reason)
{
    int may = may_try(d);
    of_stream *s = NULL;
    gpu_api_capture_mode mode;
    dnn_status status;

    *out_reason = may ? "no memory for a handle" : broken;
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
        d->pause = 0;
        return s;
    }
    free(s);
    d->broken = !is_out_of_memory(status);
    d->waits = d->pause =
        d->pause < LONGEST_PAUSE ? 2 * d->pause + 1 : d->pause;
    if (broken[0] == 0)
        snprintf(broken, sizeof broken, "cudnnCreate fails (status %u)",
                 status);
    *out_reason = broken;
    return NULL;
}

/* NULL, and *out_lacks: there is none, and a capture makes none. */
static of_stream *stream_of(of_device *d, void *stream, int captured,
                            const char **out_reason)
{
    void *context = d->context;
    of_stream *s =
        (of_stream *)(void *)gpu_handles_find(streams, context, stream);

    *out_reason = NULL;
    if (s == NULL && captured)
        *out_reason = "a capture does not start cuDNN: what is captured has to "
                      "run once before";
    if (s != NULL || captured)
        return s;
    s = (of_stream *)(void *)gpu_handles_reuse(streams, context, stream);
    if (s == NULL)
        s = made(d, out_reason);
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
    of_device *d = NULL;
    const char *reason; /* told when a convolution is wanted */

    pthread_mutex_lock(&lock);
    if (dnn_api_open())
        d = dnn.required ? device_made(context) : device_of(context);
    if (d != NULL)
        stream_of(d, stream, 0, &reason);
    pthread_mutex_unlock(&lock);
}

void cuda_dnn_release(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    gpu_handles_release(streams, context, stream);
    pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------- plans -- */

static void drop(plan *p)
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

/* images x channels x places, dense. */
static int describe_tensor(dnn_tensor *out, const gpu_convolution *g,
                           unsigned type, int64_t channels,
                           const int64_t places[3])
{
    int sizes[DIMS] = {(int)g->images, (int)channels}, strides[DIMS];
    int stride = g->channels_last ? (int)channels : 1;
    int dims = (int)g->dims;

    for (int d = dims - 1; d >= 0; d--) {
        sizes[2 + d] = (int)places[3 - dims + d];
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

/* Halves are summed up as f32. */
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

/* f32 stays f32 where nobody lets it be rounded. */
static unsigned math_of(const gpu_convolution *g)
{
    if (g->dtype == CORE_F32)
        return g->allow_tf32 ? DNN_MATH_DEFAULT : DNN_MATH_FMA;
    return g->dtype == CORE_F64 ? DNN_MATH_DEFAULT : DNN_MATH_TENSOR;
}

static int may_compute(const gpu_convolution *g, unsigned math)
{
    return g->dtype == CORE_F32 && !g->allow_tf32
               ? math == DNN_MATH_FMA
               : math != DNN_MATH_TENSOR_NARROW;
}

static int sums_products(uint32_t what, unsigned algorithm)
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

static dnn_status ask_library(const plan *p, dnn_handle handle,
                              dnn_result results[RESULTS], int *out_count)
{
    switch (p->of.what) {
    case GPU_CONVOLVE:
        return dnn.forward_ask(handle, p->input, p->weight, p->convolution,
                               p->output, RESULTS, out_count,
                               (dnn_forward_result *)(void *)results);
    case GPU_INPUT_GRADIENT:
        return dnn.data_ask(handle, p->weight, p->output, p->convolution,
                            p->input, RESULTS, out_count,
                            (dnn_data_result *)(void *)results);
    default:
        return dnn.weight_ask(handle, p->input, p->output, p->convolution,
                              p->weight, RESULTS, out_count,
                              (dnn_filter_result *)(void *)results);
    }
}

static dnn_status ask_workspace(const plan *p, dnn_handle handle,
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

/* The first that will do: the library thinks it the fastest of those. */
static void choose(plan *p, dnn_handle handle)
{
    dnn_result results[RESULTS];
    int count = 0;

    memset(results, 0, sizeof results);
    if (ask_library(p, handle, results, &count) != DNN_SUCCESS)
        return;
    for (int i = 0; i < count && i < RESULTS && !p->able; i++) {
        const dnn_result *r = &results[i];

        p->able =
            r->status == DNN_SUCCESS && r->determinism == DNN_DETERMINISTIC &&
            sums_products(p->of.what, r->algorithm) &&
            may_compute(&p->of, r->math) &&
            dnn.convolution_math(p->convolution, r->math) == DNN_SUCCESS &&
            ask_workspace(p, handle, r->algorithm, &p->workspace) ==
                DNN_SUCCESS &&
            p->workspace <= p->of.workspace_max;
        p->algorithm = r->algorithm;
    }
}

/* NULL: no memory. */
static plan *plan_made(const gpu_convolution *of, dnn_handle handle)
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

/* A set that is full gives up what was not used for the longest time.  The
 * library keeps nothing of a plan behind a call. */
static plan *plan_of(of_device *d, dnn_handle handle, const gpu_convolution *g)
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
        drop(*worst);
    *worst = plan_made(&of, handle);
    if (*worst != NULL)
        (*worst)->used = d->calls;
    return *worst;
}

void cuda_dnn_forget(void *context, int lost)
{
    of_device **of = &devices, *d;
    gpu_handle *h;

    pthread_mutex_lock(&lock);
    while ((h = gpu_handles_remove(&streams, context, lost)) != NULL) {
        dnn.destroy(((of_stream *)(void *)h)->handle);
        free(h);
    }
    while (*of != NULL && (*of)->context != context)
        of = &(*of)->next;
    d = *of;
    if (d != NULL) {
        *of = d->next;
        for (int i = 0; i < SETS * WAYS; i++)
            if (d->plans[i / WAYS][i % WAYS] != NULL)
                drop(d->plans[i / WAYS][i % WAYS]);
        free(d);
    }
    pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------- convolutions -- */

/* NULL, and g->lacks may say why; under the lock. */
static plan *look(void *context, void *stream, gpu_convolution *g,
                  of_stream **out_stream)
{
    of_device *d;

    if (!dnn_api_open()) {
        g->reason = dnn.disabled ? NULL : dnn.text;
        return NULL;
    }
    d = device_made(context);
    if (d == NULL)
        return NULL;
    *out_stream = stream_of(d, stream, g->captured != 0, &g->reason);
    return *out_stream != NULL ? plan_of(d, (*out_stream)->handle, g) : NULL;
}

int cuda_dnn_query(void *context, void *stream, gpu_convolution *g)
{
    of_stream *s = NULL;
    const plan *p;
    int code = GPU_ABSENT;

    g->reason = NULL;
    g->workspace_size = 0;
    pthread_mutex_lock(&lock);
    p = look(context, stream, g, &s);
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

/* The driver's own word first: what it has lost it says to any call. */
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
    of_stream *s = NULL;
    int code = GPU_ABSENT;
    plan *p;

    pthread_mutex_lock(&lock);
    p = look(context, stream, &of, &s);
    if (p != NULL && p->able && p->workspace <= g->workspace_size)
        code = code_of(compute(p, s->handle, g));
    /* What it does not know after all is not asked again. */
    if (p != NULL && code == GPU_ABSENT)
        p->able = 0;
    pthread_mutex_unlock(&lock);
    return code;
}
