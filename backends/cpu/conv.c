/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.c: the operators convolution and convolution_backward: their arguments
 * are brought to the geometry and the dense operands of conv.h. */

#include "conv.h"

#include "pool.h"
#include "tables.h"

/* The arguments from stride on, of both operators. */
static void geometry_read(conv_geometry *g, const core_view *input,
                          const core_view *weight, const core_view *output,
                          const core_value *args)
{
    bool transposed = cpu_int(&args[3]) != 0;
    const core_view *large = transposed ? output : input;
    const core_view *small = transposed ? input : output;
    uint32_t ndim = input->ndim - 2;

    *g = (conv_geometry){.images = input->sizes[0],
                         .channels = large->sizes[1],
                         .filters = small->sizes[1],
                         .groups = cpu_int(&args[5])};
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t d = k + ndim - 3; /* counted from the last */
        bool there = k + ndim >= 3;

        g->in[k] = there ? large->sizes[d + 2] : 1;
        g->out[k] = there ? small->sizes[d + 2] : 1;
        g->kernel[k] = there ? weight->sizes[d + 2] : 1;
        g->stride[k] = there ? cpu_list_int(&args[0], d, 1) : 1;
        g->padding[k] = there ? cpu_list_int(&args[1], d, 0) : 0;
        g->dilation[k] = there ? cpu_list_int(&args[2], d, 1) : 1;
    }
    conv_geometry_finish(g);
}

/* Calls FUNCTION_f32, _f64, _bf16 or _i64 on dense operands. */
#define IN_TYPE(FUNCTION, DTYPE, G, A, B, ...)                      \
    ((DTYPE) == CORE_F32    ? FUNCTION##_f32(G, A, B, __VA_ARGS__)  \
     : (DTYPE) == CORE_F64  ? FUNCTION##_f64(G, A, B, __VA_ARGS__)  \
     : (DTYPE) == CORE_BF16 ? FUNCTION##_bf16(G, A, B, __VA_ARGS__) \
                            : FUNCTION##_i64(G, A, B, __VA_ARGS__))

/* What is computed in: bf16 only if the machine does so, and all of `count`
 * operands and results that are there are of it. */
static core_dtype dtype_of(const conv_geometry *g,
                           const core_view *const *views, uint32_t count)
{
    bool all = conv_bf16_wanted(g);

    for (uint32_t i = 0; i < count; i++)
        all &= !views[i] || views[i]->dtype == CORE_BF16;
    return all ? CORE_BF16 : cpu_compute_dtype(views[0]->dtype);
}

static core_status supported(const core_call *call, const core_view *input)
{
    core_string name = cpu_operator(call);

    if (input->ndim >= 3 && input->ndim <= 5)
        return CORE_OK;
    return cpu_error(CORE_ERROR_UNSUPPORTED,
                     "%.*s: an input of %u dimensions; 3 to 5 are supported",
                     (int)name.size, name.data, (unsigned)input->ndim);
}

/* convolution(input, weight, bias?, stride, padding, dilation, transposed,
 * output_padding, groups) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *input = cpu_view(&args[0]),
                    *output = cpu_view(&results[0]);
    const core_view *views[] = {input, cpu_view(&args[1]), cpu_view(&args[2]),
                                output};
    core_dtype dtype = CORE_F32;
    cpu_dense x = {0}, w = {0}, b = {0}, y = {0};
    core_value geometry[6] = {args[3], args[4], args[5],
                              args[6], args[7], args[8]};
    conv_geometry g;
    core_status status = supported(call, input);

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    geometry_read(&g, input, cpu_view(&args[1]), output, geometry);
    dtype = dtype_of(&g, views, 4);
    status = cpu_dense_read(input, dtype, &x);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[1]), dtype, &w);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[2]), dtype, &b);
    if (status == CORE_OK)
        status = cpu_dense_open(output, dtype, &y);
    if (status != CORE_OK)
        goto done;
    if (cpu_int(&args[6]))
        status = IN_TYPE(conv_input, dtype, &g, x.data, w.data, b.data, y.data);
    else
        status =
            IN_TYPE(conv_forward, dtype, &g, x.data, w.data, b.data, y.data);
    if (status == CORE_OK)
        cpu_dense_write(&y);
    else
        cpu_error(status, "convolution: no host memory for its columns");
done:
    cpu_dense_close(&x);
    cpu_dense_close(&w);
    cpu_dense_close(&b);
    cpu_dense_close(&y);
    return status;
}

/* ------------------------------------------------------------- gradients -- */

typedef struct bias_job {
    core_dtype dtype;
    const void *from;
    void *to;
    int64_t images, channels, size;
} bias_job;

#define BIAS(NAME, TYPE, WIDE)                                          \
    static void bias_##NAME(const bias_job *job, int64_t c)             \
    {                                                                   \
        WIDE total = 0;                                                 \
        for (int64_t image = 0; image < job->images; image++) {         \
            const TYPE *from = (const TYPE *)job->from +                \
                               (image * job->channels + c) * job->size; \
            for (int64_t i = 0; i < job->size; i++)                     \
                total += from[i];                                       \
        }                                                               \
        ((TYPE *)job->to)[c] = (TYPE)total;                             \
    }
BIAS(f32, float, double)
BIAS(f64, double, double)
BIAS(i64, int64_t, int64_t)

static void bias_bf16(const bias_job *job, int64_t c)
{
    enum { BLOCK = 256 };
    float block[BLOCK], sum;
    double total = 0;

    for (int64_t image = 0; image < job->images; image++)
        for (int64_t at = 0; at < job->size; at += BLOCK) {
            int64_t n = job->size - at < BLOCK ? job->size - at : BLOCK;

            cpu_get_f32(block, CORE_BF16,
                        (const uint16_t *)job->from +
                            (image * job->channels + c) * job->size + at,
                        1, n);
            for (int64_t i = 0; i < n; i++)
                total += (double)block[i];
        }
    sum = (float)total;
    cpu_put_f32(CORE_BF16, (uint16_t *)job->to + c, 1, &sum, 1);
}

static void bias_task(void *context, int64_t begin, int64_t end)
{
    const bias_job *job = context;

    for (int64_t c = begin; c < end; c++)
        if (job->dtype == CORE_F32)
            bias_f32(job, c);
        else if (job->dtype == CORE_F64)
            bias_f64(job, c);
        else if (job->dtype == CORE_BF16)
            bias_bf16(job, c);
        else
            bias_i64(job, c);
}

static const core_view *wanted(const core_value *mask,
                               const core_value *results, uint32_t k)
{
    if (mask->tag == CORE_VALUE_BOOL_LIST && !mask->u.bools[k])
        return NULL;
    return cpu_view(&results[k]);
}

typedef struct gradients {
    core_dtype dtype;
    bool transposed;
    conv_geometry g;
    cpu_dense gy, x, w, gx, gw, gb;
} gradients;

static core_status gradients_compute(gradients *job)
{
    const void *gy = job->gy.data, *x = job->x.data, *w = job->w.data;
    const void *none = NULL;
    core_status status = CORE_OK;

    if (job->gb.data) {
        const conv_geometry *g = &job->g;
        bias_job bias = {job->dtype,
                         gy,
                         job->gb.data,
                         g->images,
                         job->transposed ? g->channels : g->filters,
                         job->transposed ? g->in_size : g->out_size};

        cpu_parallel_for(bias.channels,
                         cpu_grain(bias.channels, bias.images * bias.size),
                         bias_task, &bias);
    }
    if (job->gx.data && job->transposed)
        status = IN_TYPE(conv_forward, job->dtype, &job->g, gy, w, none,
                         job->gx.data);
    else if (job->gx.data)
        status =
            IN_TYPE(conv_input, job->dtype, &job->g, gy, w, none, job->gx.data);
    if (status == CORE_OK && job->gw.data)
        status =
            IN_TYPE(conv_weight, job->dtype, &job->g, job->transposed ? gy : x,
                    job->transposed ? x : gy, job->gw.data);
    if (status != CORE_OK)
        cpu_error(status, "convolution_backward: no host memory for its "
                          "columns");
    return status;
}

/* convolution_backward(grad_output, input, weight, bias_sizes?, stride,
 * padding, dilation, transposed, output_padding, groups, output_mask)
 * -> (grad_input, grad_weight, grad_bias) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *grad = cpu_view(&args[0]), *input = cpu_view(&args[1]);
    const core_view *views[6] = {grad, input, cpu_view(&args[2])};
    gradients job = {.transposed = cpu_int(&args[7]) != 0};
    cpu_dense *all[] = {&job.gy, &job.x, &job.w, &job.gx, &job.gw, &job.gb};
    core_status status = supported(call, input);

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    for (uint32_t k = 0; k < 3; k++)
        views[k + 3] = wanted(&args[10], results, k);
    geometry_read(&job.g, input, cpu_view(&args[2]), grad, &args[4]);
    job.dtype = dtype_of(&job.g, views, 6);
    for (uint32_t k = 0; k < 3 && status == CORE_OK; k++)
        status = cpu_dense_read(views[k], job.dtype, all[k]);
    for (uint32_t k = 3; k < 6 && status == CORE_OK; k++)
        status = cpu_dense_open(views[k], job.dtype, all[k]);
    if (status != CORE_OK)
        goto done;
    status = gradients_compute(&job);
    for (uint32_t k = 3; k < 6 && status == CORE_OK; k++)
        cpu_dense_write(all[k]);
done:
    for (uint32_t k = 0; k < 6; k++)
        cpu_dense_close(all[k]);
    return status;
}

static const cpu_kernel kernels[] = {
    {"convolution",
     launch_forward,
     NULL,
     {CPU_NUMBERS, CPU_NUMBERS, CPU_NUMBERS, CPU_NUMBERS},
     0},
    {"convolution_backward",
     launch_backward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
};

const cpu_kernel_table cpu_conv_kernels = {kernels,
                                           sizeof kernels / sizeof kernels[0]};
