/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.c: convolution, by the vendor's library (conv_library.c) or as matrix
 * products: the patches of an image are the columns of a matrix (conv.cu), for
 * as many images at a time as scratch memory holds.  A transposed convolution
 * is the gradient of another convolution with respect to its input. */

#include <gpu/host/conv.h>
#include <gpu/host/matmul.h>
#include <gpu/host/move.h>

/* The limit of scratch memory: SCRATCH bytes and 1 / PART of the device's
 * memory. */
enum { SCRATCH = 64 << 20, PART = 64 };

/* Returns the list's entry for a dimension; a list of one entry is for all. */
static int64_t pick(const core_value *list, uint32_t at)
{
    return list->u.ints[list->count > 1 ? at : 0];
}

/* a: stride, padding, dilation, transposed, output_padding, groups */
static void describe(gpu_conv *c, core_call *call, const core_view *input,
                     const core_view *weight, const core_view *output,
                     const core_value *a)
{
    uint32_t count = input->ndim - 2;
    gpu_columns *g = &c->g;

    c->call = call;
    c->dtype = input->dtype;
    c->ndim = input->ndim;
    c->groups = a[5].u.i;
    c->outputs = weight->sizes[0];
    c->positions = c->plane = 1;
    c->images = input->sizes[0];
    c->channels = input->sizes[1];
    c->taps = c->channels / c->groups;
    for (uint32_t d = 0; d < 3; d++) {
        bool present = d + count >= 3;
        uint32_t k = d + count - 3;

        g->in[d] = present ? input->sizes[2 + k] : 1;
        g->out[d] = present ? output->sizes[2 + k] : 1;
        g->kernel[d] = present ? weight->sizes[2 + k] : 1;
        g->stride[d] = present ? pick(&a[0], k) : 1;
        g->pad[d] = present ? pick(&a[1], k) : 0;
        g->dilation[d] = present ? pick(&a[2], k) : 1;
        c->positions *= g->out[d];
        c->plane *= g->in[d];
        c->taps *= g->kernel[d];
    }
}

int64_t gpu_conv_scratch(const gpu_conv *c)
{
    int64_t most =
        (int64_t)(gpu_stream_of(c->call)->device->facts.total_memory / PART);

    return most == 0 || most > SCRATCH ? SCRATCH : most;
}

static core_status open_columns(gpu_conv *c)
{
    int64_t item = core_sdk_itemsize(c->dtype);
    int64_t image = c->groups * c->taps * c->positions * item;
    core_memory columns;
    core_status status;

    if (c->chunk != 0)
        return CORE_OK;
    c->chunk = image > 0 ? gpu_conv_scratch(c) / image : 1;
    if (c->chunk < 1)
        c->chunk = 1;
    if (c->chunk > c->images)
        c->chunk = c->images;
    status =
        gpu_host->call_scratch(c->call, (uint64_t)(c->chunk * image), &columns);
    if (status == CORE_OK)
        c->columns = gpu_address(columns);
    return status;
}

static char *at(const gpu_conv *c, const void *memory, int64_t elements)
{
    return (char *)memory + elements * (int64_t)core_sdk_itemsize(c->dtype);
}

static core_status run(const gpu_conv *c, const char *name, void *to,
                       const void *from, int64_t items)
{
    gpu_columns g = c->g;

    g.to = to;
    g.from = from;
    g.count = items;
    if (items == 0)
        return CORE_OK;
    return gpu_launch(
        c->call, "conv", name,
        gpu_spread(gpu_stream_of(c->call)->device, (uint64_t)items, 1), &g,
        sizeof g);
}

static core_status unfold(const gpu_conv *c, const char *input, int64_t first,
                          int64_t images)
{
    char name[GPU_NAME] = "conv_unfold_";

    strcat(name, gpu_width_name(core_sdk_itemsize(c->dtype)));
    return run(c, name, c->columns,
               at(c, input, first * c->channels * c->plane),
               images * c->groups * c->taps * c->positions);
}

static core_status fold(const gpu_conv *c, char *output, int64_t first,
                        int64_t images)
{
    int64_t size = c->channels * c->plane;
    char name[GPU_NAME];

    return run(c, gpu_name(name, "conv_fold", c->dtype),
               at(c, output, first * size), c->columns, images * size);
}

/* A matrix of a product: its address and strides. */
typedef struct matrix {
    char *data;
    gpu_matrix strides;
} matrix;

/* The matrices of a group: the weight (outputs × taps), the columns (taps ×
 * positions) and the output (outputs × positions).  The batch is the images. */
static matrix weight_of(const gpu_conv *c, const char *memory, int64_t group)
{
    int64_t rows = c->outputs / c->groups;

    return (matrix){at(c, memory, group * rows * c->taps),
                    {.row = c->taps, .column = 1}};
}

static matrix columns_of(const gpu_conv *c, int64_t group)
{
    return (matrix){at(c, c->columns, group * c->taps * c->positions),
                    {.row = c->positions,
                     .column = 1,
                     .batch = c->groups * c->taps * c->positions}};
}

static matrix output_of(const gpu_conv *c, const char *memory, int64_t group,
                        int64_t first)
{
    int64_t rows = c->outputs / c->groups;

    return (matrix){
        at(c, memory, (first * c->outputs + group * rows) * c->positions),
        {.row = c->positions, .column = 1, .batch = c->outputs * c->positions}};
}

static matrix transposed(matrix m)
{
    int64_t row = m.strides.row;

    m.strides.row = m.strides.column;
    m.strides.column = row;
    return m;
}

/* Sums over the images instead of a batch of them. */
static matrix over_images(matrix m)
{
    m.strides.sum = m.strides.batch;
    m.strides.batch = 0;
    return m;
}

static core_status multiply(gpu_conv *c, gpu_product *p, matrix a, matrix b,
                            matrix d)
{
    p->a = a.data;
    p->b = b.data;
    p->d = d.data;
    p->a_strides = a.strides;
    p->b_strides = b.strides;
    p->d_strides = d.strides;
    p->alpha = p->beta = 1;
    p->alpha_whole = p->beta_whole = 1;
    return c->sums != NULL ? gpu_multiply_wide(c->call, c->dtype, p)
                           : gpu_multiply(c->call, c->dtype, p, &c->workspace);
}

static core_status multiply_images(gpu_conv *c, const char *input,
                                   const char *weight, char *output,
                                   int64_t first, int64_t images)
{
    core_status status = unfold(c, input, first, images);

    for (int64_t k = 0; k < c->groups && status == CORE_OK; k++) {
        gpu_product p = {.batch = images,
                         .rows = c->outputs / c->groups,
                         .inner = c->taps,
                         .columns = c->positions,
                         .sums = 1};

        if (c->bias != NULL) {
            p.c = at(c, c->bias, k * p.rows);
            p.c_strides.row = 1;
        }
        status = multiply(c, &p, weight_of(c, weight, k), columns_of(c, k),
                          output_of(c, output, k, first));
    }
    return status;
}

static core_status input_gradient(gpu_conv *c, const char *grad,
                                  const char *weight, char *result,
                                  int64_t first, int64_t images)
{
    core_status status = CORE_OK;

    for (int64_t k = 0; k < c->groups && status == CORE_OK; k++) {
        gpu_product p = {.batch = images,
                         .rows = c->taps,
                         .inner = c->outputs / c->groups,
                         .columns = c->positions,
                         .sums = 1};

        status = multiply(c, &p, transposed(weight_of(c, weight, k)),
                          output_of(c, grad, k, first), columns_of(c, k));
    }
    if (status == CORE_OK)
        status = fold(c, result, first, images);
    return status;
}

static core_status weight_gradient(gpu_conv *c, const char *grad,
                                   const char *input, char *result,
                                   int64_t first, int64_t images)
{
    core_status status = unfold(c, input, first, images);

    for (int64_t k = 0; k < c->groups && status == CORE_OK; k++) {
        gpu_product p = {.batch = 1,
                         .rows = c->outputs / c->groups,
                         .inner = c->positions,
                         .columns = c->taps,
                         .sums = images};
        matrix to = weight_of(c, result, k);

        if (c->sums != NULL)
            to.data = c->sums + (to.data - result) /
                                    core_sdk_itemsize(c->dtype) *
                                    (int64_t)sizeof(float);
        if (first > 0) {
            p.c = to.data;
            p.c_strides = to.strides;
        }
        status = multiply(c, &p, over_images(output_of(c, grad, k, first)),
                          over_images(transposed(columns_of(c, k))), to);
    }
    return status;
}

/* What is done with each chunk of images. */
typedef core_status (*step)(gpu_conv *c, const char *a, const char *b, char *to,
                            int64_t first, int64_t images);

static core_status for_each_chunk(gpu_conv *c, step what, const char *a,
                                  const char *b, char *to)
{
    core_status status = CORE_OK;

    for (int64_t i = 0; i < c->images && status == CORE_OK; i += c->chunk) {
        int64_t left = c->images - i;

        status = what(c, a, b, to, i, left < c->chunk ? left : c->chunk);
    }
    return status;
}

/* f16 and bf16 gradients of several chunks are summed in f32, so that they are
 * rounded once. */
static core_status weight_gradients(gpu_conv *c, const char *grad,
                                    const char *input, const gpu_compact *to)
{
    core_memory sums = {NULL, 0};
    core_status status;
    char name[GPU_NAME];
    gpu_dense p;

    if (c->chunk >= c->images ||
        (c->dtype != CORE_F16 && c->dtype != CORE_BF16))
        return for_each_chunk(c, weight_gradient, grad, input, to->data);
    status = gpu_host->call_scratch(
        c->call, (uint64_t)to->view->numel * sizeof(float), &sums);
    if (status != CORE_OK)
        return status;
    c->sums = gpu_address(sums);
    status = for_each_chunk(c, weight_gradient, grad, input, to->data);
    memset(&p, 0, sizeof p);
    p.count = (uint64_t)to->view->numel;
    p.to = to->data;
    p.from[0] = c->sums;
    p.vectors = ((uintptr_t)p.to | (uintptr_t)p.from[0]) % 16 == 0;
    c->sums = NULL;
    if (status != CORE_OK)
        return status;
    return gpu_launch(c->call, "move", gpu_name(name, "cast_f32", c->dtype),
                      gpu_spread(gpu_stream_of(c->call)->device, p.count, 4),
                      &p, sizeof p);
}

static core_status by_columns(gpu_conv *c, const gpu_conv_product *p)
{
    const core_view *to = p->what == GPU_CONVOLVE         ? p->output
                          : p->what == GPU_INPUT_GRADIENT ? p->input
                                                          : p->weight;
    const core_view *from = p->what == GPU_CONVOLVE ? p->input : p->output;
    const core_view *with =
        p->what == GPU_WEIGHT_GRADIENT ? p->input : p->weight;
    gpu_compact a, b, written;
    core_status status = open_columns(c);

    if (status == CORE_OK)
        status = gpu_compact_read(c, from, false, false, &a);
    if (status == CORE_OK)
        status = gpu_compact_read(c, with, false, false, &b);
    if (status == CORE_OK)
        status = gpu_compact_write(c, to, false, false, &written);
    if (status != CORE_OK)
        return status;
    if (p->what == GPU_WEIGHT_GRADIENT)
        status = weight_gradients(c, a.data, b.data, &written);
    else
        status = for_each_chunk(
            c, p->what == GPU_CONVOLVE ? multiply_images : input_gradient,
            a.data, b.data, written.data);
    if (status == CORE_OK && p->what == GPU_INPUT_GRADIENT)
        status = gpu_conv_add_bias(c, &written);
    return status == CORE_OK ? gpu_compact_close(c, &written) : status;
}

static core_status compute(gpu_conv *c, const gpu_conv_product *p)
{
    bool done;
    core_status status = gpu_conv_by_library(c, p, &done);

    return status != CORE_OK || done ? status : by_columns(c, p);
}

/* convolution(input, weight, bias?, stride, padding, dilation, transposed,
 * output_padding, groups) */
static core_status forward(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *input = args[0].u.view, *output = results[0].u.view;
    const core_view *weight = args[1].u.view;
    bool other_way = args[6].u.i != 0;
    gpu_conv_product p = {other_way ? GPU_INPUT_GRADIENT : GPU_CONVOLVE,
                          other_way ? output : input, weight,
                          other_way ? input : output};
    core_status status = CORE_OK;
    gpu_compact bias = {0};
    gpu_conv c = {0};

    (void)nargs;
    (void)nresults;
    if (output->numel == 0)
        return CORE_OK;
    describe(&c, call, p.input, weight, p.output, &args[3]);
    if (args[2].tag == CORE_VALUE_VIEW)
        status = gpu_compact_read(&c, args[2].u.view, false, false, &bias);
    c.bias = bias.data;
    return status == CORE_OK ? compute(&c, &p) : status;
}

/* ----------------------------------------------------------- gradients -- */

/* images x channels x positions, or images x positions x channels; both are
 * summed in the same order. */
static core_status bias_gradient(gpu_conv *c, const core_view *grad,
                                 const core_view *result)
{
    gpu_channels p = {.images = grad->sizes[0], .channels = result->numel};
    gpu_compact from, to;
    core_status status =
        gpu_compact_read(c, grad, gpu_compact_fits(grad, true), false, &from);
    char name[GPU_NAME];

    if (status == CORE_OK)
        status = gpu_compact_write(c, result, false, false, &to);
    if (status != CORE_OK)
        return status;
    p.from = from.data;
    p.to = to.data;
    p.positions = grad->numel / (p.images * p.channels);
    if (from.last) {
        p.images *= p.positions;
        p.positions = 1;
    }
    status =
        gpu_launch(c->call, "conv", gpu_name(name, "conv_sum", c->dtype),
                   gpu_blocks((uint64_t)p.channels, GPU_BLOCK), &p, sizeof p);
    return status == CORE_OK ? gpu_compact_close(c, &to) : status;
}

/* Zeroes the first `count` gradients. */
static core_status zeros(core_call *call, const core_value *results, int count)
{
    core_status status = CORE_OK;

    for (int i = 0; i < count && status == CORE_OK; i++)
        if (results[i].tag == CORE_VALUE_VIEW)
            status = gpu_fill_view(call, results[i].u.view, 0);
    return status;
}

/* convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
 * dilation, transposed, output_padding, groups, output_mask) */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *grad = args[0].u.view, *input = args[1].u.view;
    const core_view *weight = args[2].u.view, *of[3];
    bool other_way = args[7].u.i != 0;
    /* A transposed convolution swaps the two. */
    const core_view *x = other_way ? grad : input,
                    *y = other_way ? input : grad;
    core_status status = CORE_OK;
    gpu_conv c = {0};

    (void)nargs;
    (void)nresults;
    for (int i = 0; i < 3; i++)
        of[i] =
            results[i].tag == CORE_VALUE_VIEW && results[i].u.view->numel > 0
                ? results[i].u.view
                : NULL;
    if (grad->numel == 0)
        return zeros(call, results, 3);
    describe(&c, call, x, weight, y, &args[4]);
    /* The input is padding only: its bias still has a gradient. */
    if (input->numel == 0) {
        status = zeros(call, results, 2);
        of[0] = of[1] = NULL;
    }
    if (of[0] != NULL && other_way)
        status =
            compute(&c, &(gpu_conv_product){GPU_CONVOLVE, x, weight, of[0]});
    else if (of[0] != NULL)
        status = compute(
            &c, &(gpu_conv_product){GPU_INPUT_GRADIENT, of[0], weight, y});
    if (status == CORE_OK && of[1] != NULL)
        status =
            compute(&c, &(gpu_conv_product){GPU_WEIGHT_GRADIENT, x, of[1], y});
    if (status == CORE_OK && of[2] != NULL)
        status = bias_gradient(&c, grad, of[2]);
    return status;
}

/* Accepts one to three dimensions. */
static core_status check_dims(const core_call *call, const core_value *args,
                              uint32_t nargs, uint32_t input)
{
    const core_view *view = args[input].u.view;

    if (view->ndim < 3 || view->ndim > 5)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "convolution: an input of %u dimensions; 3 to 5 "
                          "are supported",
                          view->ndim);
    (void)call;
    (void)nargs;
    return CORE_OK;
}

static core_status forward_supports(const core_call *call,
                                    const core_value *args, uint32_t nargs)
{
    return check_dims(call, args, nargs, 0);
}

static core_status backward_supports(const core_call *call,
                                     const core_value *args, uint32_t nargs)
{
    return check_dims(call, args, nargs, 1);
}

/* sizes: kernel_size, dilation, padding, stride */
static void describe_patches(gpu_conv *c, core_call *call,
                             const core_view *image, const core_value *sizes)
{
    uint32_t n = image->ndim;
    gpu_columns *g = &c->g;

    c->call = call;
    c->dtype = image->dtype;
    c->images = n > 3 ? image->sizes[0] : 1;
    c->channels = image->sizes[n - 3];
    c->plane = 1;
    for (uint32_t d = 0; d < 3; d++) {
        uint32_t k = d - 1;

        g->in[d] = d > 0 ? image->sizes[n + d - 3] : 1;
        g->kernel[d] = d > 0 ? pick(&sizes[0], k) : 1;
        g->dilation[d] = d > 0 ? pick(&sizes[1], k) : 1;
        g->pad[d] = d > 0 ? pick(&sizes[2], k) : 0;
        g->stride[d] = d > 0 ? pick(&sizes[3], k) : 1;
        g->out[d] = (g->in[d] + 2 * g->pad[d] -
                     g->dilation[d] * (g->kernel[d] - 1) - 1) /
                        g->stride[d] +
                    1;
        c->plane *= g->in[d];
    }
}

/* im2col(self, kernel_size, dilation, padding, stride) */
static core_status unfold_patches(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    gpu_conv c = {0};
    char name[GPU_NAME] = "conv_unfold_";

    (void)nargs;
    (void)nresults;
    if (results[0].u.view->numel == 0)
        return CORE_OK;
    describe_patches(&c, call, args[0].u.view, &args[1]);
    c.columns = gpu_data(&results[0]);
    strcat(name, gpu_width_name(core_sdk_itemsize(c.dtype)));
    return run(&c, name, c.columns, gpu_data(&args[0]),
               results[0].u.view->numel);
}

/* col2im(self, output_size, kernel_size, dilation, padding, stride) */
static core_status fold_patches(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    gpu_conv c = {0};
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    if (results[0].u.view->numel == 0)
        return CORE_OK;
    describe_patches(&c, call, results[0].u.view, &args[2]);
    return run(&c, gpu_name(name, "conv_fold", c.dtype), gpu_data(&results[0]),
               gpu_data(&args[0]), results[0].u.view->numel);
}

core_status gpu_register_conv(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"im2col", unfold_patches, NULL, {m, m}, DENSE, NULL},
            {"convolution", forward, NULL, {m, m, m, m}, 0, forward_supports},
            {"convolution_backward",
             backward,
             NULL,
             {m, m, m, m, m, m},
             0,
             backward_supports},
            {"col2im", fold_patches, NULL, {m, m}, DENSE, NULL},
        };

        /* Integers have no gradients, and bools no products. */
        status = gpu_register(registry, rows,
                              d <= CORE_BF16   ? 4
                              : d != CORE_BOOL ? 2
                                               : 1);
    }
    return status;
}
