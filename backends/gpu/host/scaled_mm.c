/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scaled_mm.c: products of 8-bit floats, if the vendor's library supports
 * them. */

#include <gpu/host/host.h>
#include <gpu/host/move.h>
#include <gpu/host/warn_once.h>

enum { ALIGNED = 16 };

/* A factor as the library takes it: dense along the summed dimension, whose
 * size is a multiple of ALIGNED.  A copy is padded with zeros, which add
 * nothing.  rows: the other dimension. */
typedef struct side {
    const core_view *view;
    int64_t rows, inner, row, column; /* strides */
    bool copied;                      /* to scratch memory, before use */
    const void *data;
    int64_t step, padded;
} side;

static bool aligned(const void *data)
{
    return (uintptr_t)data % ALIGNED == 0;
}

static int64_t padded(int64_t n)
{
    return (n + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static side side_of(const core_view *v, uint32_t inner)
{
    uint32_t rows = 1 - inner;
    side s = {.view = v,
              .rows = v->sizes[rows],
              .inner = v->sizes[inner],
              .row = v->strides[rows],
              .column = v->strides[inner],
              .padded = padded(v->sizes[inner]),
              .data = gpu_address(v->memory)};

    s.step = s.row;
    s.copied = s.column != 1 || s.row < s.inner || s.row % ALIGNED != 0 ||
               s.inner != s.padded || !aligned(s.data);
    if (s.copied)
        s.step = s.padded;
    return s;
}

/* A product; g is complete except for what copies will set. */
typedef struct product {
    side a, b; /* mat2 and self: d^T = b^T a^T, column-major */
    const core_view *bias;
    gpu_scaled g;
} product;

/* Returns false if no version of the library can compute it. */
static bool describe(const core_value *args, product *p)
{
    const core_view *self = args[0].u.view, *mat2 = args[1].u.view;
    gpu_scaled *g = &p->g;

    memset(p, 0, sizeof *p);
    p->a = side_of(mat2, 0);
    p->b = side_of(self, 1);
    p->bias = args[4].tag == CORE_VALUE_VIEW ? args[4].u.view : NULL;
    g->a_dtype = mat2->dtype;
    g->b_dtype = self->dtype;
    g->d_dtype = (core_dtype)args[6].u.i;
    g->fast = args[7].u.i != 0;
    g->m = p->a.rows;
    g->n = p->b.rows;
    g->k = p->a.padded;
    g->a = p->a.data;
    g->b = p->b.data;
    g->a_step = p->a.step;
    g->b_step = p->b.step;
    g->d_step = g->m;
    g->a_scale = gpu_data(&args[3]);
    g->b_scale = gpu_data(&args[2]);
    /* The library adds only 16-bit biases to f32; so d is first set to the
     * bias. */
    g->added = p->bias != NULL && g->d_dtype == CORE_F32;
    if (p->bias != NULL && !g->added)
        g->bias = gpu_address(p->bias->memory);
    return g->k > 0 && g->m % ALIGNED == 0 && g->n > 0 && g->m > 0 &&
           !(g->a_dtype == CORE_F8E5M2 && g->b_dtype == CORE_F8E5M2);
}

static void warn(const char *reason)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (reason != NULL)
        gpu_warn_once(&warned, "8-bit products are multiplied as f32: %s",
                      reason);
}

static core_status supports(const core_call *call, const core_value *args,
                            uint32_t nargs)
{
    const core_view *self = args[0].u.view;
    /* A host before 0.5 does not set the device. */
    const gpu_device *device = call->device;
    product p;

    (void)nargs;
    for (int i = 1; i < 4; i++)
        if (args[i].tag != CORE_VALUE_VIEW ||
            args[i].u.view->device != self->device)
            return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                              "_scaled_mm: a scale is on another device");
    if (!describe(args, &p))
        return gpu_refuse(
            CORE_ERROR_UNSUPPORTED,
            "_scaled_mm: the columns must be a multiple of %d, and at most "
            "one factor f8e5m2",
            ALIGNED);
    if (gpu_this_vendor.driver->scaled_query(
            device != NULL ? device->context : NULL, &p.g) == 0)
        return CORE_OK;
    warn(p.g.reason);
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "_scaled_mm: the vendor's library was not found or does "
                      "not support this product on this device");
}

/* Zeroes a whole copy; the padding stays zero. */
static core_status clear(core_call *call, const side *s, core_memory memory)
{
    const int64_t size = s->rows * s->padded, one = 1;
    const core_view all = {.memory = memory,
                           .sizes = &size,
                           .strides = &one,
                           .ndim = 1,
                           .dtype = CORE_U8,
                           .numel = size,
                           .flags = CORE_VIEW_CONTIGUOUS};

    return s->inner == s->padded ? CORE_OK : gpu_fill_view(call, &all, 0);
}

/* Copies a factor if necessary. */
static core_status arrange(core_call *call, side *s, const void **out_data)
{
    int64_t sizes[2] = {s->rows, s->inner};
    int64_t to[2] = {s->padded, 1}, from[2] = {s->row, s->column};
    core_memory memory;
    core_status status;

    *out_data = s->data;
    if (!s->copied)
        return CORE_OK;
    status =
        gpu_host->call_scratch(call, (uint64_t)(s->rows * s->padded), &memory);
    if (status == CORE_OK)
        status = clear(call, s, memory);
    if (status != CORE_OK)
        return status;
    *out_data = gpu_address(memory);
    return gpu_copy_window(call, CORE_U8, 2, sizes, memory, to, s->view->memory,
                           from);
}

/* A 16-bit bias becomes dense and aligned; an f32 bias is copied to each row of
 * the result. */
static core_status arrange_bias(core_call *call, product *p,
                                const core_view *result)
{
    const core_view *bias = p->bias;
    int64_t sizes[2] = {1, p->g.m}, to[2] = {p->g.m, 1};
    int64_t from[2] = {0, bias != NULL ? bias->strides[0] : 0};
    core_memory memory = result->memory;
    core_status status = CORE_OK;

    if (bias == NULL)
        return CORE_OK;
    if (p->g.added)
        sizes[0] = p->g.n;
    else if (bias->strides[0] == 1 && aligned(p->g.bias))
        return CORE_OK;
    else
        status = gpu_host->call_scratch(
            call, (uint64_t)p->g.m * core_sdk_itemsize(bias->dtype), &memory);
    if (status != CORE_OK)
        return status;
    if (!p->g.added)
        p->g.bias = gpu_address(memory);
    return gpu_copy_window(call, bias->dtype, 2, sizes, memory, to,
                           bias->memory, from);
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const gpu_driver *calls = gpu_this_vendor.driver;
    gpu_stream *stream = gpu_stream_of(call);
    core_memory scratch = {NULL, 0};
    core_status status;
    product p;
    int code;

    (void)nargs;
    (void)nresults;
    describe(args, &p);
    p.g.d = gpu_data(&results[0]);
    code = calls->scaled_query(stream->device->context, &p.g);
    if (code != 0)
        return gpu_refuse(
            CORE_ERROR_UNSUPPORTED,
            "_scaled_mm: the vendor's library no longer supports this product");
    status = arrange(call, &p.a, &p.g.a);
    if (status == CORE_OK)
        status = arrange(call, &p.b, &p.g.b);
    if (status == CORE_OK)
        status = arrange_bias(call, &p, results[0].u.view);
    if (status == CORE_OK && p.g.workspace_size > 0)
        status = gpu_host->call_scratch(call, p.g.workspace_size, &scratch);
    if (status != CORE_OK)
        return status;
    p.g.workspace = p.g.workspace_size > 0 ? gpu_address(scratch) : NULL;
    code = calls->scaled(stream->device->context, stream->native, &p.g);
    if (code == GPU_ABSENT)
        return gpu_refuse(CORE_ERROR_INTERNAL,
                          "_scaled_mm: the vendor's library accepted this "
                          "product and then failed");
    return code == 0 ? CORE_OK
                     : gpu_report(stream->device, code, "an 8-bit product");
}

/* Without such a library the core multiplies in f32. */
core_status gpu_register_scaled_mm(core_registry *registry)
{
    enum { M = CORE_DTYPE_MASK(CORE_F8E4M3) | CORE_DTYPE_MASK(CORE_F8E5M2) };
    static const gpu_row row = {
        "_scaled_mm", launch, NULL, {M, M, GPU_M_F32, GPU_M_F32}, 0, supports};

    if (gpu_this_vendor.driver->scaled == NULL)
        return CORE_OK;
    return gpu_register(registry, &row, 1);
}
