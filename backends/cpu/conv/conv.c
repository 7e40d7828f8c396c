/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The operators convolution and convolution_backward: they convert their
 * arguments to the geometry and the dense operands of conv.h. */

#include "conv.h"

#include <math.h>
#include "conv_depthwise.h"
#include "conv_direct.h"
#include "isa.h"
#include "runtime/thread_pool.h"
#include "tables.h"

static void swap(int64_t *of)
{
    int64_t height = of[1];

    of[1] = of[2];
    of[2] = height;
}

/* Images of one column are computed as images of one row, whose elements are in the
 * same order, since rows are computed by vectors. */
static void lay_column(conv_geometry *g)
{
    g->column = g->in[2] == 1 && g->out[2] == 1 && g->kernel[2] == 1 &&
                g->padding[2] == 0 && g->in[1] > 1;
    if (!g->column)
        return;
    swap(g->in);
    swap(g->out);
    swap(g->kernel);
    swap(g->stride);
    swap(g->padding);
    swap(g->dilation);
}

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
        uint32_t d = k + ndim - 3; /* -1 is the last dimension */
        bool present = k + ndim >= 3;

        g->in[k] = present ? large->sizes[d + 2] : 1;
        g->out[k] = present ? small->sizes[d + 2] : 1;
        g->kernel[k] = present ? weight->sizes[d + 2] : 1;
        g->stride[k] = present ? cpu_list_int(&args[0], d, 1) : 1;
        g->padding[k] = present ? cpu_list_int(&args[1], d, 0) : 0;
        g->dilation[k] = present ? cpu_list_int(&args[2], d, 1) : 1;
    }
    lay_column(g);
    conv_geometry_finish(g);
}

/* Calls FUNCTION_f32, _f64, _bf16 or _i64 on dense operands. */
#define IN_TYPE(FUNCTION, DTYPE, G, A, B, ...)                      \
    ((DTYPE) == CORE_F32    ? FUNCTION##_f32(G, A, B, __VA_ARGS__)  \
     : (DTYPE) == CORE_F64  ? FUNCTION##_f64(G, A, B, __VA_ARGS__)  \
     : (DTYPE) == CORE_BF16 ? FUNCTION##_bf16(G, A, B, __VA_ARGS__) \
                            : FUNCTION##_i64(G, A, B, __VA_ARGS__))

/* The dtype of the computation: bf16 only if the machine has bf16 instructions
 * and all operands and results are bf16.  Absent ones are NULL. */
static core_dtype dtype_of(const conv_geometry *g,
                           const core_view *const *views, uint32_t count)
{
    bool all = conv_bf16_is_faster(g);

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

/* ------------------------------------------------------------- operands -- */

/* A dense copy, or, for conv_direct.h, the tensor with its strides. */
typedef struct operand {
    bool present;
    cpu_dense dense;
    conv_operand as; /* if f32 */
} operand;

static void take_strides(operand *o, const core_view *view,
                         const conv_geometry *g, bool dense)
{
    int64_t step = 1;

    for (uint32_t k = view->ndim; k-- > 0;) {
        uint32_t at = k < 2 ? k : k + 5 - view->ndim;

        o->as.stride[at] = dense ? step : view->strides[k];
        step *= view->sizes[k];
    }
    if (g->column)
        swap(o->as.stride + 2);
}

/* read: whether the operand is read or written.  strided: an f32 view is used
 * in place, with its strides, instead of a dense copy. */
static core_status operand_open(operand *o, const core_view *view,
                                const conv_geometry *g, core_dtype dtype,
                                bool read, bool strided)
{
    core_status status = CORE_OK;

    o->present = view != NULL;
    if (!view)
        return CORE_OK;
    strided &= view->dtype == CORE_F32;
    take_strides(o, view, g, !strided);
    if (strided)
        o->as.data = cpu_address(view->memory);
    else if (read)
        status = cpu_dense_read(view, dtype, &o->dense);
    else
        status = cpu_dense_open(view, dtype, &o->dense);
    if (!strided)
        o->as.data = o->dense.data;
    return status;
}

static void operand_close(operand *o, bool write)
{
    if (write && o->dense.data)
        cpu_dense_write(&o->dense);
    cpu_dense_close(&o->dense);
}

static bool channels_last(const core_view *view)
{
    return view->dtype == CORE_F32 && view->strides[1] == 1;
}

/* ------------------------------------------------------ single channels -- */

static const conv_depthwise_functions *depthwise(void)
{
    return CPU_CHOSEN(&cpu_conv_depthwise);
}

static bool is_depthwise(const conv_geometry *g, core_dtype dtype)
{
    return dtype == CORE_F32 && g->groups == g->channels &&
           g->filters == g->channels && g->in[0] == 1 && g->kernel[0] == 1 &&
           g->out[0] == 1 && g->padding[0] == 0 && g->images > 0 &&
           g->in_size > 0 && g->out_size > 0;
}

/* The gradient of the input is the convolution of the output's with the flipped
 * kernel, if every stride is 1 and no output position lies in the padding
 * alone. */
static bool is_depthwise_input(const conv_geometry *g, core_dtype dtype)
{
    for (int k = 0; k < 3; k++)
        if (g->stride[k] != 1 ||
            g->padding[k] > g->dilation[k] * (g->kernel[k] - 1))
            return false;
    return is_depthwise(g, dtype);
}

/* A tap that reads only padding multiplies its weight by 0. */
static bool is_finite(const conv_geometry *g, const float *w)
{
    for (int64_t i = 0; i < g->channels * g->kernel_size; i++)
        if (!isfinite(w[i]))
            return false;
    return true;
}

static core_status depthwise_input(const conv_geometry *g, const float *gy,
                                   const float *w, const float *b, float *gx)
{
    conv_geometry turned = *g;

    for (int k = 0; k < 3; k++) {
        turned.in[k] = g->out[k];
        turned.out[k] = g->in[k];
        turned.padding[k] = g->dilation[k] * (g->kernel[k] - 1) - g->padding[k];
    }
    conv_geometry_finish(&turned);
    return depthwise()->forward(&turned, gy, w, b, true, gx);
}

/* -------------------------------------------------------------- forward -- */

typedef struct forward {
    core_dtype dtype;
    bool transposed, direct;
    conv_geometry g;
    operand x, w, y;
    cpu_dense b;
} forward;

/* If the result is dense, row-major, and computed in its place. */
static void take_epilogue(forward *job, const core_view *result)
{
    int64_t step = 1;
    const void *data = job->direct ? job->y.as.data : job->y.dense.data;

    for (uint32_t d = result->ndim; d-- > 0; step *= result->sizes[d])
        if (result->sizes[d] > 1 && result->strides[d] != step)
            return;
    if (!job->transposed && data == cpu_address(result->memory))
        job->g.epilogue = cpu_epilogue_take(
            &(cpu_epilogue_result){data, result->dtype, job->g.images,
                                   job->g.filters, job->g.out_size});
}

static core_status forward_compute(forward *job)
{
    const void *x = job->x.dense.data, *w = job->w.dense.data;
    const void *b = job->b.data;
    void *y = job->y.dense.data;

    if (job->direct && job->transposed)
        return conv_direct_input(&job->g, &job->x.as, &job->w.as, b,
                                 &job->y.as);
    if (job->direct)
        return conv_direct_forward(&job->g, &job->x.as, &job->w.as, b,
                                   &job->y.as);
    if (job->transposed && is_depthwise_input(&job->g, job->dtype) &&
        is_finite(&job->g, w))
        return depthwise_input(&job->g, x, w, b, y);
    if (job->transposed)
        return IN_TYPE(conv_input, job->dtype, &job->g, x, w, b, y);
    if (is_depthwise(&job->g, job->dtype))
        return depthwise()->forward(&job->g, x, w, b, false, y);
    return IN_TYPE(conv_forward, job->dtype, &job->g, x, w, b, y);
}

/* convolution(input, weight, bias?, stride, padding, dilation, transposed,
 * output_padding, groups) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *views[] = {cpu_view(&args[0]), cpu_view(&args[1]),
                                cpu_view(&args[2]), cpu_view(&results[0])};
    core_value geometry[6] = {args[3], args[4], args[5],
                              args[6], args[7], args[8]};
    forward job = {.transposed = cpu_int(&args[6]) != 0};
    core_status status = supported(call, views[0]);

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    geometry_read(&job.g, views[0], views[1], views[3], geometry);
    job.dtype = dtype_of(&job.g, views, 4);
    job.direct =
        job.dtype == CORE_F32 &&
        (job.transposed
             ? conv_direct_input_is_faster(&job.g)
             : conv_direct_forward_is_faster(&job.g, channels_last(views[0])));
    status =
        operand_open(&job.x, views[0], &job.g, job.dtype, true, job.direct);
    if (status == CORE_OK)
        status =
            operand_open(&job.w, views[1], &job.g, job.dtype, true, job.direct);
    if (status == CORE_OK)
        status = cpu_dense_read(views[2], job.dtype, &job.b);
    if (status == CORE_OK)
        status = operand_open(&job.y, views[3], &job.g, job.dtype, false,
                              job.direct);
    if (status == CORE_OK) {
        take_epilogue(&job, views[3]);
        status = forward_compute(&job);
        if (status != CORE_OK)
            cpu_error(status,
                      "convolution: out of host memory for columns of patches");
    }
    operand_close(&job.x, false);
    operand_close(&job.w, false);
    operand_close(&job.y, status == CORE_OK);
    cpu_dense_close(&job.b);
    return status;
}

/* ----------------------------------------------------------- gradients -- */

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
        if (job->dtype == CORE_F64)
            bias_f64(job, c);
        else if (job->dtype == CORE_BF16)
            bias_bf16(job, c);
        else
            bias_i64(job, c);
}

static const core_view *requested_result(const core_value *mask,
                                         const core_value *results, uint32_t k)
{
    if (mask->tag == CORE_VALUE_BOOL_LIST && !mask->u.bools[k])
        return NULL;
    return cpu_view(&results[k]);
}

typedef struct gradients {
    core_dtype dtype;
    bool transposed;
    bool direct_x, direct_w;
    conv_geometry g;
    operand gy, x, w, gx, gw;
    cpu_dense gb;
} gradients;

static void bias_compute(gradients *job)
{
    const conv_geometry *g = &job->g;
    bias_job bias = {job->dtype,
                     job->gy.dense.data,
                     job->gb.data,
                     g->images,
                     job->transposed ? g->channels : g->filters,
                     job->transposed ? g->in_size : g->out_size};

    if (job->dtype == CORE_F32)
        conv_direct_bias(&job->gy.as, bias.images, bias.channels,
                         job->transposed ? g->in : g->out, job->gb.data);
    else
        cpu_parallel_for(bias.channels,
                         cpu_grain(bias.channels, bias.images * bias.size),
                         bias_task, &bias);
}

static core_status input_compute(gradients *job)
{
    const void *gy = job->gy.dense.data, *w = job->w.dense.data;
    const void *none = NULL;
    void *gx = job->gx.dense.data;

    if (job->direct_x && job->transposed)
        return conv_direct_forward(&job->g, &job->gy.as, &job->w.as, NULL,
                                   &job->gx.as);
    if (job->direct_x)
        return conv_direct_input(&job->g, &job->gy.as, &job->w.as, NULL,
                                 &job->gx.as);
    if (job->transposed && is_depthwise(&job->g, job->dtype))
        return depthwise()->forward(&job->g, gy, w, NULL, false, gx);
    if (job->transposed)
        return IN_TYPE(conv_forward, job->dtype, &job->g, gy, w, none, gx);
    if (is_depthwise_input(&job->g, job->dtype) && is_finite(&job->g, w))
        return depthwise_input(&job->g, gy, w, NULL, gx);
    return IN_TYPE(conv_input, job->dtype, &job->g, gy, w, none, gx);
}

static core_status weight_compute(gradients *job)
{
    const operand *large = job->transposed ? &job->gy : &job->x;
    const operand *small = job->transposed ? &job->x : &job->gy;

    if (job->direct_w)
        return conv_direct_weight(&job->g, &large->as, &small->as, &job->gw.as);
    if (is_depthwise(&job->g, job->dtype))
        return depthwise()->weight(&job->g, large->dense.data,
                                   small->dense.data, job->gw.dense.data);
    return IN_TYPE(conv_weight, job->dtype, &job->g, large->dense.data,
                   small->dense.data, job->gw.dense.data);
}

static core_status gradients_compute(gradients *job)
{
    core_status status = CORE_OK;

    if (job->gb.data)
        bias_compute(job);
    if (job->gx.present)
        status = input_compute(job);
    if (status == CORE_OK && job->gw.present)
        status = weight_compute(job);
    if (status != CORE_OK)
        cpu_error(status, "convolution_backward: out of host memory for "
                          "columns of patches");
    return status;
}

/* views: gy, x, w, gx, gw, gb */
static core_status gradients_open(gradients *job, const core_view *const *views)
{
    operand *const all[] = {&job->gy, &job->x, &job->w, &job->gx, &job->gw};
    core_status status = CORE_OK;
    bool strided;

    if (job->dtype == CORE_F32) {
        job->direct_x = job->transposed ? conv_direct_forward_is_faster(
                                              &job->g, channels_last(views[0]))
                                        : conv_direct_input_is_faster(&job->g);
        job->direct_w = conv_direct_weight_is_faster(&job->g);
    }
    strided = job->dtype == CORE_F32 && (job->direct_x || !views[3]) &&
              (job->direct_w || !views[4]);
    for (uint32_t k = 0; k < 5 && status == CORE_OK; k++)
        status =
            operand_open(all[k], views[k], &job->g, job->dtype, k < 3, strided);
    if (status == CORE_OK)
        status = cpu_dense_open(views[5], job->dtype, &job->gb);
    return status;
}

/* convolution_backward(grad_output, input, weight, bias_sizes?, stride,
 * padding, dilation, transposed, output_padding, groups, output_mask)
 * -> (grad_input, grad_weight, grad_bias) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *views[6];
    gradients job = {.transposed = cpu_int(&args[7]) != 0};
    core_status status = supported(call, cpu_view(&args[1]));
    bool done;

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    for (uint32_t k = 0; k < 3; k++) {
        views[k] = cpu_view(&args[k]);
        views[k + 3] = requested_result(&args[10], results, k);
    }
    geometry_read(&job.g, views[1], views[2], views[0], &args[4]);
    job.dtype = dtype_of(&job.g, views, 6);
    status = gradients_open(&job, views);
    if (status == CORE_OK)
        status = gradients_compute(&job);
    done = status == CORE_OK;
    if (done && job.gb.data)
        cpu_dense_write(&job.gb);
    cpu_dense_close(&job.gb);
    operand_close(&job.gx, done);
    operand_close(&job.gw, done);
    operand_close(&job.gy, false);
    operand_close(&job.x, false);
    operand_close(&job.w, false);
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
