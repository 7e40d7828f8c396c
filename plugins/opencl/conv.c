/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.c: convolution of one or two dimensions as products of matrices: the
 * images become columns in scratch memory, some images at a time. */

#include "matmul.h"
#include "opencl_kernels.h"

static const opencl_source source = {"conv", opencl_conv_cl, NULL, NULL};

/* Scratch memory of a call, about. */
enum { SCRATCH = 64 << 20 };

/* As kernels/conv.cl knows it. */
typedef struct geometry {
    cl_long images, channels, height, width;
    cl_long out_height, out_width;
    cl_long kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x;
    cl_long dilation_y, dilation_x;
} geometry;

typedef struct convolution {
    core_call *call;
    geometry g;
    core_dtype dtype;
    int64_t groups, outputs, places, taps; /* taps: rows of a group */
    int64_t chunk;                         /* images at a time */
    core_memory columns;
} convolution;

/* The list's entry for y or x; a convolution of one dimension has no y. */
static int64_t pick(const core_value *list, bool x, bool flat, int64_t none)
{
    if (flat && !x)
        return none;
    return list->u.ints[x && list->count > 1 ? 1 : 0];
}

/* geometry_args: stride, padding, dilation, transposed, output_padding,
 * groups */
static void describe(convolution *c, core_call *call, const core_view *input,
                     const core_view *weight, const core_view *output,
                     const core_value *a)
{
    bool flat = input->ndim == 3;
    uint32_t last = input->ndim - 1;
    geometry *g = &c->g;

    c->call = call;
    c->dtype = input->dtype;
    c->groups = a[5].u.i;
    c->outputs = weight->sizes[0];
    g->images = input->sizes[0];
    g->channels = input->sizes[1];
    g->height = flat ? 1 : input->sizes[2];
    g->width = input->sizes[last];
    g->out_height = flat ? 1 : output->sizes[2];
    g->out_width = output->sizes[last];
    g->kernel_y = flat ? 1 : weight->sizes[2];
    g->kernel_x = weight->sizes[last];
    g->stride_y = pick(&a[0], false, flat, 1);
    g->stride_x = pick(&a[0], true, flat, 1);
    g->pad_y = pick(&a[1], false, flat, 0);
    g->pad_x = pick(&a[1], true, flat, 0);
    g->dilation_y = pick(&a[2], false, flat, 1);
    g->dilation_x = pick(&a[2], true, flat, 1);
    c->places = g->out_height * g->out_width;
    c->taps = g->channels / c->groups * g->kernel_y * g->kernel_x;
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
    const geometry *g = &c->g;

    return run(c, "unfold", c->columns,
               at(input, first * g->channels * g->height * g->width, c->dtype),
               images, images * c->groups * c->taps * c->places);
}

static core_status fold(const convolution *c, core_memory output, int64_t first,
                        int64_t images)
{
    const geometry *g = &c->g;
    int64_t plane = g->channels * g->height * g->width;

    return run(c, "fold", at(output, first * plane, c->dtype), c->columns,
               images, images * plane);
}

/* Of a group: the weight (outputs × taps), the columns (taps × places), the
 * output (outputs × places); batch: of an image. */
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

/* Over images instead of beside them. */
static opencl_matrix summed(opencl_matrix m)
{
    m.sum = m.batch;
    m.batch = 0;
    return m;
}

/* convolution(input, weight, bias?, stride, padding, dilation, transposed,
 * output_padding, groups) */
static core_status forward(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *output = results[0].u.view;
    convolution c = {0};
    core_status status;

    (void)nargs;
    (void)nresults;
    describe(&c, call, args[0].u.view, args[1].u.view, output, &args[3]);
    if (output->numel == 0)
        return CORE_OK;
    status = open_columns(&c);
    for (int64_t i = 0; i < c.g.images && status == CORE_OK; i += c.chunk) {
        int64_t n = c.g.images - i < c.chunk ? c.g.images - i : c.chunk;

        status = unfold(&c, args[0].u.view->memory, i, n);
        for (int64_t k = 0; k < c.groups && status == CORE_OK; k++) {
            opencl_product p = {.dtype = c.dtype,
                                .batch = n,
                                .rows = c.outputs / c.groups,
                                .inner = c.taps,
                                .columns = c.places,
                                .sums = 1,
                                .alpha = 1,
                                .beta = 1};

            p.a = weight_of(&c, args[1].u.view->memory, k);
            p.b = columns_of(&c, k);
            p.c = output_of(&c, output->memory, k, i);
            if (args[2].tag == CORE_VALUE_VIEW) {
                p.d.memory = at(args[2].u.view->memory, k * p.rows, c.dtype);
                p.d.row = 1;
            }
            status = opencl_multiply(call, &p);
        }
    }
    return status;
}

/* ----------------------------------------------------------- gradients -- */

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

static core_status bias_gradient(const convolution *c, const core_value *grad,
                                 const core_value *result)
{
    opencl_launch l = opencl_begin(c->call, &source, &c->dtype, 1, "bias");

    opencl_view(&l, result);
    opencl_view(&l, grad);
    opencl_long(&l, c->g.images);
    opencl_long(&l, c->outputs);
    opencl_long(&l, c->places);
    return opencl_run(&l, (uint64_t)c->outputs * OPENCL_GROUP, OPENCL_GROUP);
}

/* convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
 * dilation, transposed, output_padding, groups, output_mask) */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_memory grad = args[0].u.view->memory;
    const core_view *input = args[1].u.view, *weight = args[2].u.view;
    core_status status = CORE_OK;
    convolution c = {0};
    bool wanted[3];

    (void)nargs;
    (void)nresults;
    for (int i = 0; i < 3; i++) {
        wanted[i] = results[i].tag == CORE_VALUE_VIEW;
        if (wanted[i] && args[0].u.view->numel == 0)
            status = opencl_fill_view(call, results[i].u.view, 0);
        if (status != CORE_OK)
            return status;
    }
    if (args[0].u.view->numel == 0)
        return CORE_OK;
    describe(&c, call, input, weight, args[0].u.view, &args[4]);
    if (wanted[0] || wanted[1])
        status = open_columns(&c);
    for (int64_t i = 0; (wanted[0] || wanted[1]) && i < c.g.images;
         i += c.chunk) {
        int64_t n = c.g.images - i < c.chunk ? c.g.images - i : c.chunk;

        if (status == CORE_OK && wanted[0])
            status = input_gradient(&c, grad, weight->memory,
                                    results[0].u.view->memory, i, n);
        if (status == CORE_OK && wanted[1])
            status = weight_gradient(&c, grad, input->memory,
                                     results[1].u.view->memory, i, n);
    }
    if (status == CORE_OK && wanted[2])
        status = bias_gradient(&c, &args[0], &results[2]);
    return status;
}

/* What is left to other backends: transposed, and three dimensions. */
static core_status refused(const core_call *call, const core_value *args,
                           uint32_t nargs, uint32_t input, uint32_t flag)
{
    const core_view *view = args[input].u.view;

    if (view->ndim != 3 && view->ndim != 4)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "convolution: an input of %u dimensions; 3 and "
                             "4 are supported",
                             view->ndim);
    if (args[flag].u.i != 0)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "convolution: transposed ones are not supported");
    return opencl_supports(call, args, nargs);
}

static core_status forward_supports(const core_call *call,
                                    const core_value *args, uint32_t nargs)
{
    return refused(call, args, nargs, 0, 6);
}

static core_status backward_supports(const core_call *call,
                                     const core_value *args, uint32_t nargs)
{
    return refused(call, args, nargs, 1, 7);
}

core_status opencl_register_conv(core_registry *registry)
{
    static const uint32_t types[2] = {OPENCL_F32, OPENCL_F64};
    core_status status = CORE_OK;

    for (int i = 0; i < 4 && status == CORE_OK; i++) {
        core_kernel kernel = {.struct_size = sizeof kernel,
                              .demands = CORE_DEMAND_CONTIGUOUS};
        const core_kernel *one = &kernel;
        bool back = i & 1;

        kernel.name =
            core_sdk_string(back ? "convolution_backward" : "convolution");
        kernel.launch = back ? backward : forward;
        kernel.supports = back ? backward_supports : forward_supports;
        for (int k = 0; k < (back ? 6 : 4); k++)
            kernel.signature[k] = types[i / 2];
        status = opencl_host->register_kernels(
            registry, core_sdk_string("opencl"), &one, 1);
    }
    return status;
}
