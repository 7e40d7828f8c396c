/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Convolution of one to three dimensions, and transposed, as matrix products:
 * some images at a time become columns in scratch memory. */

#include "matmul.h"
#include "opencl_kernels.h"

static const opencl_source source = {"conv", opencl_conv_cl, NULL, NULL};

/* Approximate scratch memory of a call. */
enum { SCRATCH = 64 << 20 };

/* Must match kernels/conv.cl. */
typedef struct geometry {
    cl_long images, channels;
    cl_long size[3], out[3];
    cl_long kernel[3], stride[3], pad[3], dilation[3];
} geometry;

/* A transposed convolution is described as the convolution whose gradient with
 * respect to its input it is: its input is that one's output, its output that
 * one's input. */
typedef struct convolution {
    core_call *call;
    geometry g;
    core_dtype dtype;
    int64_t groups, outputs, places, taps; /* taps: rows of a group */
    int64_t plane;                         /* elements of an input channel */
    int64_t chunk;                         /* images at a time */
    core_memory columns;
    opencl_room *room; /* of its products */
} convolution;

/* Returns the list's entry for a dimension of `count`; one entry applies to
 * all. */
static int64_t pick(const core_value *list, uint32_t at)
{
    return list->u.ints[list->count > 1 ? at : 0];
}

/* a: stride, padding, dilation, transposed, output_padding, groups */
static void describe(convolution *c, core_call *call, const core_view *input,
                     const core_view *weight, const core_view *output,
                     const core_value *a)
{
    uint32_t count = input->ndim - 2;
    geometry *g = &c->g;

    c->call = call;
    c->dtype = input->dtype;
    c->groups = a[5].u.i;
    c->outputs = weight->sizes[0];
    c->places = c->plane = 1;
    g->images = input->sizes[0];
    g->channels = input->sizes[1];
    c->taps = g->channels / c->groups;
    for (uint32_t d = 0; d < 3; d++) {
        bool present = d + count >= 3;
        uint32_t k = d + count - 3;

        g->size[d] = present ? input->sizes[2 + k] : 1;
        g->out[d] = present ? output->sizes[2 + k] : 1;
        g->kernel[d] = present ? weight->sizes[2 + k] : 1;
        g->stride[d] = present ? pick(&a[0], k) : 1;
        g->pad[d] = present ? pick(&a[1], k) : 0;
        g->dilation[d] = present ? pick(&a[2], k) : 1;
        c->places *= g->out[d];
        c->plane *= g->size[d];
        c->taps *= g->kernel[d];
    }
}

static core_status open_columns(convolution *c)
{
    int64_t item = core_sdk_itemsize(c->dtype);
    int64_t image = c->groups * c->taps * c->places * item;

    c->chunk = image > 0 ? SCRATCH / image : 1;
    if (c->chunk < 1)
        c->chunk = 1;
    if (c->chunk > c->g.images)
        c->chunk = c->g.images;
    return opencl_host->call_scratch(c->call, (uint64_t)(c->chunk * image),
                                     &c->columns);
}

static core_memory at(core_memory memory, int64_t elements, core_dtype dtype)
{
    memory.offset += (uint64_t)(elements * (int64_t)core_sdk_itemsize(dtype));
    return memory;
}

static core_status run(const convolution *c, const char *function,
                       core_memory to, core_memory from, int64_t images,
                       int64_t items)
{
    geometry g = c->g;
    opencl_launch l = opencl_begin(c->call, &source, &c->dtype, 1, function);

    g.images = images;
    opencl_buffer(&l, to);
    opencl_buffer(&l, from);
    opencl_bytes(&l, &g, sizeof g);
    return opencl_run(&l, (uint64_t)items, OPENCL_GROUP);
}

static core_status unfold(const convolution *c, core_memory input,
                          int64_t first, int64_t images)
{
    return run(c, "unfold", c->columns,
               at(input, first * c->g.channels * c->plane, c->dtype), images,
               images * c->groups * c->taps * c->places);
}

static core_status fold(const convolution *c, core_memory output, int64_t first,
                        int64_t images)
{
    int64_t size = c->g.channels * c->plane;

    return run(c, "fold", at(output, first * size, c->dtype), c->columns,
               images, images * size);
}

/* The matrices of a group: the weight (outputs × taps), the columns (taps ×
 * places), the output (outputs × places); batch: of an image. */
static opencl_matrix weight_of(const convolution *c, core_memory memory,
                               int64_t group)
{
    int64_t rows = c->outputs / c->groups;

    return (opencl_matrix){.memory =
                               at(memory, group * rows * c->taps, c->dtype),
                           .row = c->taps,
                           .column = 1};
}

static opencl_matrix columns_of(const convolution *c, int64_t group)
{
    return (opencl_matrix){
        .memory = at(c->columns, group * c->taps * c->places, c->dtype),
        .row = c->places,
        .column = 1,
        .batch = c->groups * c->taps * c->places};
}

static opencl_matrix output_of(const convolution *c, core_memory memory,
                               int64_t group, int64_t first)
{
    int64_t rows = c->outputs / c->groups;

    return (opencl_matrix){
        .memory = at(memory, (first * c->outputs + group * rows) * c->places,
                     c->dtype),
        .row = c->places,
        .column = 1,
        .batch = c->outputs * c->places};
}

static opencl_matrix transposed(opencl_matrix m)
{
    int64_t row = m.row;

    m.row = m.column;
    m.column = row;
    return m;
}

/* Sums over images instead of batching them. */
static opencl_matrix summed(opencl_matrix m)
{
    m.sum = m.batch;
    m.batch = 0;
    return m;
}

static core_status multiply_images(const convolution *c, core_memory input,
                                   core_memory weight, core_memory bias,
                                   core_memory output, int64_t first,
                                   int64_t images)
{
    core_status status = unfold(c, input, first, images);

    for (int64_t k = 0; k < c->groups && status == CORE_OK; k++) {
        opencl_product p = {.dtype = c->dtype,
                            .batch = images,
                            .rows = c->outputs / c->groups,
                            .inner = c->taps,
                            .columns = c->places,
                            .sums = 1,
                            .room = c->room,
                            .alpha = 1,
                            .beta = 1};

        p.a = weight_of(c, weight, k);
        p.b = columns_of(c, k);
        p.c = output_of(c, output, k, first);
        if (bias.handle != NULL) {
            p.d.memory = at(bias, k * p.rows, c->dtype);
            p.d.row = 1;
        }
        status = opencl_multiply(c->call, &p);
    }
    return status;
}

static core_status input_gradient(const convolution *c, core_memory grad,
                                  core_memory weight, core_memory result,
                                  int64_t first, int64_t images)
{
    core_status status = CORE_OK;

    for (int64_t k = 0; k < c->groups && status == CORE_OK; k++) {
        opencl_product p = {.dtype = c->dtype,
                            .batch = images,
                            .rows = c->taps,
                            .inner = c->outputs / c->groups,
                            .columns = c->places,
                            .sums = 1,
                            .room = c->room,
                            .alpha = 1};

        p.a = transposed(weight_of(c, weight, k));
        p.b = output_of(c, grad, k, first);
        p.c = columns_of(c, k);
        status = opencl_multiply(c->call, &p);
    }
    if (status == CORE_OK)
        status = fold(c, result, first, images);
    return status;
}

static core_status weight_gradient(const convolution *c, core_memory grad,
                                   core_memory input, core_memory result,
                                   int64_t first, int64_t images)
{
    core_status status = unfold(c, input, first, images);

    for (int64_t k = 0; k < c->groups && status == CORE_OK; k++) {
        opencl_product p = {.dtype = c->dtype,
                            .batch = 1,
                            .rows = c->outputs / c->groups,
                            .inner = c->places,
                            .columns = c->taps,
                            .sums = images,
                            .room = c->room,
                            .alpha = 1,
                            .beta = 1};

        p.a = summed(output_of(c, grad, k, first));
        p.b = summed(transposed(columns_of(c, k)));
        p.c = weight_of(c, result, k);
        if (first > 0)
            p.d = p.c;
        status = opencl_multiply(c->call, &p);
    }
    return status;
}

/* The operation on each chunk of images. */
typedef core_status (*step)(const convolution *c, core_memory a, core_memory b,
                            core_memory to, int64_t first, int64_t images);

static core_status for_each_chunk(convolution *c, step what, core_memory a,
                                  core_memory b, core_memory to)
{
    core_status status = CORE_OK;

    for (int64_t i = 0; i < c->g.images && status == CORE_OK; i += c->chunk) {
        int64_t left = c->g.images - i;

        status = what(c, a, b, to, i, left < c->chunk ? left : c->chunk);
    }
    return status;
}

static core_status without_bias(const convolution *c, core_memory input,
                                core_memory weight, core_memory output,
                                int64_t first, int64_t images)
{
    const core_memory none = {NULL, 0};

    return multiply_images(c, input, weight, none, output, first, images);
}

static core_status transposed_forward(convolution *c, const core_value *args,
                                      const core_view *output)
{
    const core_view *bias = NULL;
    core_status status;
    opencl_launch l;

    if (args[2].tag == CORE_VALUE_VIEW)
        bias = args[2].u.view;
    status = for_each_chunk(c, input_gradient, args[0].u.view->memory,
                            args[1].u.view->memory, output->memory);
    if (status != CORE_OK || bias == NULL)
        return status;
    l = opencl_begin(c->call, &source, &c->dtype, 1, "add_bias");
    opencl_buffer(&l, output->memory);
    opencl_buffer(&l, bias->memory);
    opencl_long(&l, output->numel);
    opencl_long(&l, c->g.channels);
    opencl_long(&l, c->plane);
    return opencl_run(&l, (uint64_t)output->numel, OPENCL_GROUP);
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
    core_memory bias = {NULL, 0};
    opencl_room room = {{NULL, 0}, 0};
    convolution c = {.room = &room};
    core_status status;

    (void)nargs;
    (void)nresults;
    if (output->numel == 0)
        return CORE_OK;
    describe(&c, call, other_way ? output : input, weight,
             other_way ? input : output, &args[3]);
    if (args[2].tag == CORE_VALUE_VIEW)
        bias = args[2].u.view->memory;
    status = open_columns(&c);
    if (status == CORE_OK && other_way)
        return transposed_forward(&c, args, output);
    for (int64_t i = 0; i < c.g.images && status == CORE_OK; i += c.chunk) {
        int64_t left = c.g.images - i;

        status =
            multiply_images(&c, input->memory, weight->memory, bias,
                            output->memory, i, left < c.chunk ? left : c.chunk);
    }
    return status;
}

/* ----------------------------------------------------------- gradients -- */

/* images × channels × places */
static core_status bias_gradient(const convolution *c, const core_view *grad,
                                 const core_view *result)
{
    int64_t channels = result->numel;
    opencl_launch l = opencl_begin(c->call, &source, &c->dtype, 1, "bias");

    opencl_buffer(&l, result->memory);
    opencl_buffer(&l, grad->memory);
    opencl_long(&l, c->g.images);
    opencl_long(&l, channels);
    opencl_long(&l, grad->numel / (c->g.images * channels));
    return opencl_run(&l, (uint64_t)channels * OPENCL_GROUP, OPENCL_GROUP);
}

static core_status zeros(core_call *call, const core_value *results)
{
    core_status status = CORE_OK;

    for (int i = 0; i < 3 && status == CORE_OK; i++)
        if (results[i].tag == CORE_VALUE_VIEW)
            status = opencl_fill_view(call, results[i].u.view, 0);
    return status;
}

/* convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
 * dilation, transposed, output_padding, groups, output_mask) */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *grad = args[0].u.view, *input = args[1].u.view;
    const core_view *weight = args[2].u.view;
    bool other_way = args[7].u.i != 0, needed[3];
    core_status status = CORE_OK;
    opencl_room room = {{NULL, 0}, 0};
    convolution c = {.room = &room};

    (void)nargs;
    (void)nresults;
    for (int i = 0; i < 3; i++)
        needed[i] =
            results[i].tag == CORE_VALUE_VIEW && results[i].u.view->numel > 0;
    if (grad->numel == 0 || input->numel == 0)
        return zeros(call, results);
    describe(&c, call, other_way ? grad : input, weight,
             other_way ? input : grad, &args[4]);
    if (needed[0] || needed[1])
        status = open_columns(&c);
    if (status == CORE_OK && needed[0])
        status = for_each_chunk(&c, other_way ? without_bias : input_gradient,
                                grad->memory, weight->memory,
                                results[0].u.view->memory);
    if (status == CORE_OK && needed[1])
        status = for_each_chunk(&c, weight_gradient,
                                other_way ? input->memory : grad->memory,
                                other_way ? grad->memory : input->memory,
                                results[1].u.view->memory);
    if (status == CORE_OK && needed[2])
        status = bias_gradient(&c, grad, results[2].u.view);
    return status;
}

/* One to three dimensions. */
static core_status refused(const core_call *call, const core_value *args,
                           uint32_t nargs, uint32_t input)
{
    const core_view *view = args[input].u.view;

    if (view->ndim < 3 || view->ndim > 5)
        return opencl_refuse(
            CORE_ERROR_UNSUPPORTED,
            "convolution: an input of %u dimensions; 3 to 5 are supported",
            view->ndim);
    return opencl_supports(call, args, nargs);
}

static core_status forward_supports(const core_call *call,
                                    const core_value *args, uint32_t nargs)
{
    return refused(call, args, nargs, 0);
}

static core_status backward_supports(const core_call *call,
                                     const core_value *args, uint32_t nargs)
{
    return refused(call, args, nargs, 1);
}

/* sizes: kernel_size, dilation, padding, stride; places: of the output */
static void describe_patches(convolution *c, core_call *call,
                             const core_view *image, const core_value *sizes)
{
    uint32_t n = image->ndim;
    geometry *g = &c->g;

    c->call = call;
    c->dtype = image->dtype;
    g->images = n > 3 ? image->sizes[0] : 1;
    g->channels = image->sizes[n - 3];
    c->plane = 1;
    for (uint32_t d = 0; d < 3; d++) {
        uint32_t k = d - 1;

        g->size[d] = d > 0 ? image->sizes[n + d - 3] : 1;
        g->kernel[d] = d > 0 ? pick(&sizes[0], k) : 1;
        g->dilation[d] = d > 0 ? pick(&sizes[1], k) : 1;
        g->pad[d] = d > 0 ? pick(&sizes[2], k) : 0;
        g->stride[d] = d > 0 ? pick(&sizes[3], k) : 1;
        g->out[d] = (g->size[d] + 2 * g->pad[d] -
                     g->dilation[d] * (g->kernel[d] - 1) - 1) /
                        g->stride[d] +
                    1;
        c->plane *= g->size[d];
    }
}

/* im2col(self, kernel_size, dilation, padding, stride) */
static core_status patches(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    convolution c = {0};

    (void)nargs;
    (void)nresults;
    if (results[0].u.view->numel == 0)
        return CORE_OK;
    describe_patches(&c, call, args[0].u.view, &args[1]);
    c.columns = results[0].u.view->memory;
    return run(&c, "unfold", c.columns, args[0].u.view->memory, c.g.images,
               results[0].u.view->numel);
}

/* col2im(self, output_size, kernel_size, dilation, padding, stride) */
static core_status unpatched(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    convolution c = {0};

    (void)nargs;
    (void)nresults;
    if (results[0].u.view->numel == 0)
        return CORE_OK;
    describe_patches(&c, call, results[0].u.view, &args[2]);
    return run(&c, "fold", results[0].u.view->memory, args[0].u.view->memory,
               c.g.images, results[0].u.view->numel);
}

static core_status register_patches(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {
            {"im2col", patches, NULL, {m, m}, DENSE},
            {"col2im", unpatched, NULL, {m, m}, DENSE},
        };

        status = opencl_register(registry, rows, 2, 0);
    }
    return status;
}

core_status opencl_register_conv(core_registry *registry)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < 2 * (CORE_BOOL - CORE_F64) && status == CORE_OK;
         i++) {
        core_kernel kernel = {.struct_size = sizeof kernel,
                              .demands = CORE_REQUIRE_CONTIGUOUS};
        bool back = (i & 1) != 0;

        if (back && i / 2 + CORE_F64 > CORE_BF16)
            continue; /* integers have no gradients */
        kernel.name =
            core_sdk_string(back ? "convolution_backward" : "convolution");
        kernel.launch = back ? backward : forward;
        kernel.supports = back ? backward_supports : forward_supports;
        for (int k = 0; k < (back ? 6 : 4); k++)
            kernel.signature[k] = CORE_DTYPE_MASK(CORE_F64 + i / 2);
        status = opencl_register_kernel(registry, kernel);
    }
    if (status == CORE_OK)
        status = register_patches(registry);
    return status;
}
