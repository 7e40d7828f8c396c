/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_library.c: convolutions by the vendor's library, and operands in the
 * layouts that it takes. */

#include <gpu/host/conv.h>
#include <gpu/host/move.h>
#include <gpu/host/warn_once.h>

enum { ALIGNED = 16 };

/* ------------------------------------------------------ compact operands -- */

static void compact_strides(const core_view *view, bool last, int64_t *out)
{
    int64_t stride = 1;

    if (last) {
        out[1] = 1;
        stride = view->sizes[1];
    }
    for (uint32_t d = view->ndim; d-- > (last ? 2 : 0);) {
        out[d] = stride;
        stride *= view->sizes[d];
    }
    if (last)
        out[0] = stride;
}

static bool is_laid_out(const core_view *view, const int64_t *strides)
{
    for (uint32_t d = 0; d < view->ndim; d++)
        if (view->sizes[d] != 1 && view->strides[d] != strides[d])
            return false;
    return true;
}

bool gpu_compact_fits(const core_view *view, bool last)
{
    int64_t strides[CORE_MAX_NDIM];

    if (last && view->ndim < 4)
        return false;
    compact_strides(view, last, strides);
    return is_laid_out(view, strides);
}

/* Sets the address and strides of the elements, or allocates a copy. */
static core_status locate(core_call *call, const core_view *view, bool last,
                          bool aligned, gpu_compact *out)
{
    core_memory memory = {NULL, 0};
    core_status status = CORE_OK;

    memset(out, 0, sizeof *out);
    out->view = view;
    out->last = last;
    out->data = gpu_address(view->memory);
    compact_strides(view, last, out->strides);
    out->copied =
        view->numel > 0 && (!is_laid_out(view, out->strides) ||
                            (aligned && (uintptr_t)out->data % ALIGNED != 0));
    if (out->copied) {
        status = gpu_host->call_scratch(
            call, (uint64_t)view->numel * core_sdk_itemsize(view->dtype),
            &memory);
        out->data = gpu_address(memory);
    }
    return status;
}

core_status gpu_compact_read(gpu_conv *c, const core_view *view, bool last,
                             bool aligned, gpu_compact *out)
{
    uint32_t i = 0;
    core_status status;

    for (; i < sizeof c->operands / sizeof *c->operands && c->operands[i].view;
         i++)
        if (c->operands[i].view == view && c->operands[i].last == last &&
            (!aligned || (uintptr_t)c->operands[i].data % ALIGNED == 0)) {
            *out = c->operands[i];
            return CORE_OK;
        }
    status = locate(c->call, view, last, aligned, out);
    if (status == CORE_OK && out->copied)
        status = gpu_copy_window(c->call, view->dtype, view->ndim, view->sizes,
                                 (core_memory){out->data, 0}, out->strides,
                                 view->memory, view->strides);
    if (status == CORE_OK && i < sizeof c->operands / sizeof *c->operands)
        c->operands[i] = *out;
    return status;
}

core_status gpu_compact_write(gpu_conv *c, const core_view *view, bool last,
                              bool aligned, gpu_compact *out)
{
    return locate(c->call, view, last, aligned, out);
}

core_status gpu_compact_close(gpu_conv *c, const gpu_compact *d)
{
    if (!d->copied)
        return CORE_OK;
    return gpu_copy_window(c->call, d->view->dtype, d->view->ndim,
                           d->view->sizes, d->view->memory, d->view->strides,
                           (core_memory){d->data, 0}, d->strides);
}

core_status gpu_conv_add_bias(gpu_conv *c, const gpu_compact *result)
{
    const core_view *view = result->view;
    gpu_channels p = {.to = result->data,
                      .from = c->bias,
                      .images = view->sizes[0],
                      .channels = view->sizes[1]};
    char name[GPU_NAME];

    if (c->bias == NULL)
        return CORE_OK;
    p.positions = view->numel / (p.images * p.channels);
    if (result->last) {
        p.images *= p.positions;
        p.positions = 1;
    }
    return gpu_launch(
        c->call, "conv", gpu_name(name, "conv_bias", c->dtype),
        gpu_spread(gpu_stream_of(c->call)->device, (uint64_t)view->numel, 1),
        &p, sizeof p);
}

/* ---------------------------------------------------------- the library -- */

/* The library counts elements with 31 bits, and takes no empty operands. */
static bool fits_31_bits(int64_t a, int64_t b, int64_t c)
{
    int64_t all;

    return a > 0 && b > 0 && c > 0 && !__builtin_mul_overflow(a, b, &all) &&
           !__builtin_mul_overflow(all, c, &all) && all <= INT32_MAX;
}

/* Whether the output is as large as the library expects, which that of a
 * transposed convolution may not be. */
static bool output_fits(const gpu_columns *g)
{
    for (int d = 0; d < 3; d++) {
        int64_t reach = g->dilation[d] * (g->kernel[d] - 1) + 1;

        if (g->stride[d] > INT32_MAX || g->pad[d] > INT32_MAX ||
            g->dilation[d] > INT32_MAX || reach > INT32_MAX ||
            (g->in[d] + 2 * g->pad[d] - reach) / g->stride[d] + 1 != g->out[d])
            return false;
    }
    return true;
}

/* Returns false if no version of the library can compute it. */
static bool describe(const gpu_conv *c, uint32_t what, gpu_convolution *g)
{
    memset(g, 0, sizeof *g);
    if (c->dtype > CORE_BF16 ||
        !fits_31_bits(c->images, c->channels, c->plane) ||
        !fits_31_bits(c->images, c->outputs, c->positions) ||
        !fits_31_bits(c->outputs, c->taps, 1) || !output_fits(&c->g))
        return false;
    g->what = what;
    g->dtype = c->dtype;
    g->dims = c->ndim == 5 ? 3 : 2;
    g->allow_tf32 = (c->call->flags & CORE_CALL_ALLOW_TF32) != 0;
    g->captured = (c->call->flags & CORE_CALL_CAPTURING) != 0;
    g->images = c->images;
    g->channels = c->channels;
    g->outputs = c->outputs;
    g->groups = c->groups;
    memcpy(g->in, c->g.in, sizeof g->in);
    memcpy(g->out, c->g.out, sizeof g->out);
    memcpy(g->kernel, c->g.kernel, sizeof g->kernel);
    memcpy(g->stride, c->g.stride, sizeof g->stride);
    memcpy(g->pad, c->g.pad, sizeof g->pad);
    memcpy(g->dilation, c->g.dilation, sizeof g->dilation);
    g->workspace_max = (uint64_t)gpu_conv_scratch(c);
    return true;
}

static void warn(const char *reason)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (reason != NULL)
        gpu_warn_once(&warned,
                      "convolutions are computed by the plugin's own kernels: "
                      "%s",
                      reason);
}

/* Asks for the layout that the operands have, then for the order of their
 * dimensions. */
static core_status query(const gpu_conv *c, const gpu_conv_product *p,
                         gpu_convolution *g, bool *out_can)
{
    const gpu_driver *calls = gpu_this_vendor.driver;
    const gpu_stream *stream = gpu_stream_of(c->call);
    int code = GPU_ABSENT;

    *out_can = false;
    g->channels_last = (gpu_compact_fits(p->input, true) &&
                        !gpu_compact_fits(p->input, false)) ||
                       (gpu_compact_fits(p->output, true) &&
                        !gpu_compact_fits(p->output, false));
    if (g->channels_last)
        code =
            calls->convolve_query(stream->device->context, stream->native, g);
    if (code == GPU_ABSENT && g->reason == NULL) {
        g->channels_last = 0;
        code =
            calls->convolve_query(stream->device->context, stream->native, g);
    }
    *out_can = code == 0;
    if (code == 0)
        return CORE_OK;
    if (code != GPU_ABSENT)
        return gpu_report(stream->device, code, "a convolution");
    if (g->reason != NULL && g->required)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "convolution: the vendor's library, which the "
                          "settings require, cannot be used: %s",
                          g->reason);
    warn(g->reason);
    return CORE_OK;
}

/* Opens the operands in the library's layout; *out_written is one of them. */
static core_status open_operands(gpu_conv *c, const gpu_conv_product *p,
                                 gpu_convolution *g, gpu_compact *out_written)
{
    const struct {
        const core_view *view;
        void **data;
    } operands[] = {[GPU_CONVOLVE] = {p->output, &g->output},
                    [GPU_INPUT_GRADIENT] = {p->input, &g->input},
                    [GPU_WEIGHT_GRADIENT] = {p->weight, &g->weight}};
    bool last = g->channels_last != 0;
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < 3 && status == CORE_OK; i++) {
        gpu_compact d;

        status = i == p->what
                     ? gpu_compact_write(c, operands[i].view, last, true, &d)
                     : gpu_compact_read(c, operands[i].view, last, true, &d);
        *operands[i].data = d.data;
        if (i == p->what)
            *out_written = d;
    }
    return status;
}

static core_status allocate_workspace(gpu_conv *c, gpu_convolution *g)
{
    core_memory memory;
    core_status status;

    if (g->workspace_size == 0)
        return CORE_OK;
    status = gpu_host->call_scratch(c->call, g->workspace_size, &memory);
    if (status == CORE_OK)
        g->workspace = gpu_address(memory);
    return status;
}

core_status gpu_conv_by_library(gpu_conv *c, const gpu_conv_product *p,
                                bool *out_done)
{
    const gpu_driver *calls = gpu_this_vendor.driver;
    gpu_stream *stream = gpu_stream_of(c->call);
    gpu_compact written = {0};
    core_status status;
    gpu_convolution g;
    bool can;
    int code;

    *out_done = false;
    if (calls->convolve == NULL || !describe(c, p->what, &g))
        return CORE_OK;
    status = query(c, p, &g, &can);
    if (status != CORE_OK || !can)
        return status;
    status = open_operands(c, p, &g, &written);
    if (status == CORE_OK)
        status = allocate_workspace(c, &g);
    if (status != CORE_OK)
        return status;
    code = calls->convolve(stream->device->context, stream->native, &g);
    if (code == GPU_ABSENT) {
        warn("convolution: the vendor's library accepted it and then failed");
        return CORE_OK;
    }
    status = gpu_report(stream->device, code, "a convolution");
    if (status == CORE_OK)
        status = gpu_conv_add_bias(c, &written);
    if (status == CORE_OK)
        status = gpu_compact_close(c, &written);
    *out_done = status == CORE_OK;
    return status;
}
