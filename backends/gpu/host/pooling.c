/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pooling.c: pooling in two and three dimensions.  The user pointer is the
 * number of dimensions, plus ADAPTIVE if windows adapt to the output. */

#include <gpu/host/host.h>
#include <gpu/shared_window.h>

enum { ADAPTIVE = 16 };

/* Returns the list's entry for dimension k of n; a list of one entry is for
 * all. */
static int64_t pick(const core_value *list, uint32_t k, int64_t otherwise)
{
    if (list == NULL || list->tag != CORE_VALUE_INT_LIST || list->count == 0)
        return otherwise;
    return list->u.ints[list->count > 1 ? k : 0];
}

/* sizes: kernel_size, stride, padding; NULL: adaptive. */
static gpu_pooling begin(core_call *call, const core_view *in,
                         const core_view *out, const core_value *sizes,
                         const core_value *dilation)
{
    uint32_t n = (uint32_t)(uintptr_t)call->user & ~(uint32_t)ADAPTIVE;
    gpu_pooling p;

    memset(&p, 0, sizeof p);
    p.adaptive = sizes == NULL;
    for (uint32_t d = 0; d < 3; d++) {
        bool present = d + n >= 3;
        uint32_t k = d + n - 3;

        p.in[d] = present ? in->sizes[in->ndim - n + k] : 1;
        p.out[d] = present ? out->sizes[out->ndim - n + k] : 1;
        p.kernel[d] = p.stride[d] = p.dilation[d] = 1;
        if (!present || sizes == NULL)
            continue;
        p.kernel[d] = pick(&sizes[0], k, 1);
        p.stride[d] = pick(&sizes[1], k, p.kernel[d]);
        p.pad[d] = pick(&sizes[2], k, 0);
        p.dilation[d] = pick(dilation, k, 1);
    }
    p.dtype = in->dtype;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

static core_status finish(core_call *call, const char *stem,
                          const core_value *to, const core_value *from,
                          gpu_pooling *p)
{
    const core_view *view = to->u.view;
    char name[GPU_NAME];

    if (view->numel == 0)
        return CORE_OK;
    p->to = gpu_data(to);
    p->from = gpu_data(from);
    p->count = view->numel;
    if (view->dtype > CORE_BF16) {
        strcpy(name, stem);
        strcat(name, "_whole");
    } else {
        gpu_name(name, stem, view->dtype);
    }
    return gpu_launch(
        call, "pooling", name,
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)p->count, 1), p,
        sizeof *p);
}

static bool adapts(const core_call *call)
{
    return ((uintptr_t)call->user & ADAPTIVE) != 0;
}

/* max_pool2d_with_indices(self, kernel_size, stride, padding, dilation,
 * ceil_mode), adaptive_max_pool2d(self, output_size) -> (output, indices) */
static core_status most(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    gpu_pooling p =
        begin(call, args[0].u.view, results[0].u.view,
              adapts(call) ? NULL : &args[1], nargs > 4 ? &args[4] : NULL);

    (void)nresults;
    p.where = gpu_data(&results[1]);
    return finish(call, "pool_max", &results[0], &args[0], &p);
}

/* max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride,
 * padding, dilation, ceil_mode, indices),
 * adaptive_max_pool2d_backward(grad_output, self, indices) */
static core_status most_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    bool adaptive = adapts(call);
    gpu_pooling p =
        begin(call, results[0].u.view, args[0].u.view,
              adaptive ? NULL : &args[2], adaptive ? NULL : &args[5]);

    (void)nargs;
    (void)nresults;
    p.chosen = gpu_data(&args[adaptive ? 2 : 7]);
    return finish(call, "pool_max_grad", &results[0], &args[0], &p);
}

/* rest: ceil_mode, count_include_pad, divisor_override */
static void average(gpu_pooling *p, const core_value *rest, uint32_t count)
{
    p->with_padding = count > 1 ? rest[1].u.i != 0 : 1;
    p->divisor = count > 2 && rest[2].tag == CORE_VALUE_INT ? rest[2].u.i : 0;
}

/* avg_pool2d(self, kernel_size, stride, padding, ceil_mode,
 * count_include_pad, divisor_override), _adaptive_avg_pool2d(self,
 * output_size) */
static core_status mean(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    gpu_pooling p = begin(call, args[0].u.view, results[0].u.view,
                          adapts(call) ? NULL : &args[1], NULL);

    (void)nresults;
    if (!p.adaptive)
        average(&p, &args[4], nargs > 4 ? nargs - 4 : 0);
    return finish(call, "pool_mean", &results[0], &args[0], &p);
}

/* avg_pool2d_backward(grad_output, self, kernel_size, stride, padding,
 * ceil_mode, count_include_pad, divisor_override),
 * _adaptive_avg_pool2d_backward(grad_output, self) */
static core_status mean_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    gpu_pooling p = begin(call, results[0].u.view, args[0].u.view,
                          adapts(call) ? NULL : &args[2], NULL);

    (void)nresults;
    if (!p.adaptive)
        average(&p, &args[5], nargs > 5 ? nargs - 5 : 0);
    return finish(call, "pool_mean_grad", &results[0], &args[0], &p);
}

core_status gpu_register_pooling(core_registry *registry)
{
    enum {
        DENSE = CORE_REQUIRE_CONTIGUOUS,
        N = GPU_M_FLOATS | GPU_M_WHOLE,
        F = GPU_M_FLOATS,
        I = GPU_M_I64
    };
#define WORD(n) (void *)(uintptr_t)(n)
#define POOLS(n, suffix)                                         \
    {                                                            \
        "max_pool" suffix "_with_indices",                       \
        most,                                                    \
        WORD(n),                                                 \
        {N, N, I},                                               \
        DENSE,                                                   \
        NULL},                                                   \
        {"max_pool" suffix "_with_indices_backward",             \
         most_backward,                                          \
         WORD(n),                                                \
         {F, F, I, F},                                           \
         DENSE,                                                  \
         NULL},                                                  \
        {"adaptive_max_pool" suffix,                             \
         most,                                                   \
         WORD(n + ADAPTIVE),                                     \
         {N, N, I},                                              \
         DENSE,                                                  \
         NULL},                                                  \
        {"adaptive_max_pool" suffix "_backward",                 \
         most_backward,                                          \
         WORD(n + ADAPTIVE),                                     \
         {F, F, I, F},                                           \
         DENSE,                                                  \
         NULL},                                                  \
        {"avg_pool" suffix, mean, WORD(n), {N, N}, DENSE, NULL}, \
        {"avg_pool" suffix "_backward",                          \
         mean_backward,                                          \
         WORD(n),                                                \
         {F, F, F},                                              \
         DENSE,                                                  \
         NULL},                                                  \
        {"_adaptive_avg_pool" suffix,                            \
         mean,                                                   \
         WORD(n + ADAPTIVE),                                     \
         {N, N},                                                 \
         DENSE,                                                  \
         NULL},                                                  \
    {                                                            \
        "_adaptive_avg_pool" suffix "_backward", mean_backward,  \
            WORD(n + ADAPTIVE), {F, F, F}, DENSE, NULL           \
    }
    static const gpu_row rows[] = {POOLS(2, "2d"), POOLS(3, "3d")};

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
