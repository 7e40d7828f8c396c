/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* softmax.c: softmax and its logarithm, forward and backward. */

#include <gpu/host/host.h>

/* How a kernel reads lines whose elements are adjacent. */
static const char *form(const gpu_rows *p, uint32_t bytes, gpu_shape *out_shape)
{
    int64_t team = GPU_BLOCK / 8;
    bool vectors = gpu_row_vectors(p->size, bytes, p->to) &&
                   gpu_row_vectors(p->size, bytes, p->from) &&
                   gpu_row_vectors(p->size, bytes, p->other);

    if (p->size <= team * GPU_ROW_REGISTERS) {
        *out_shape = gpu_blocks(((uint64_t)p->outer + 7) / 8, GPU_BLOCK);
        return vectors ? "_team" : "_single";
    }
    *out_shape = gpu_blocks((uint64_t)p->outer, GPU_BLOCK);
    return vectors && p->size <= GPU_BLOCK * GPU_ROW_REGISTERS ? "_wide"
                                                               : "_block";
}

static core_status run(core_call *call, const char *stem, core_dtype from,
                       const core_view *to, int64_t dim, gpu_rows *p)
{
    gpu_device *device = gpu_stream_of(call)->device;
    gpu_line line = gpu_line_of(to, dim);
    char name[GPU_NAME], both[GPU_NAME];
    gpu_shape shape;

    if (to->numel == 0)
        return CORE_OK;
    p->to = gpu_address(to->memory);
    p->outer = line.outer;
    p->size = line.size;
    p->inner = line.inner;
    p->logarithm = call->user != NULL;
    gpu_name(both, gpu_name(name, stem, from), to->dtype);
    if (line.inner == 1 && line.size > 16) {
        uint32_t a = core_sdk_itemsize(from), b = core_sdk_itemsize(to->dtype);

        strcat(both, form(p, a > b ? a : b, &shape));
    } else {
        shape = gpu_spread(device, (uint64_t)(line.outer * line.inner), 1);
        strcat(both, "_alone");
    }
    return gpu_launch(call, "softmax", both, shape, p, sizeof *p);
}

/* _softmax(self, dim, half_to_float) */
static core_status forward(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *from = args[0].u.view;
    gpu_rows p = {.from = gpu_address(from->memory)};

    (void)nargs;
    (void)nresults;
    return run(call, "softmax", from->dtype, results[0].u.view, args[1].u.i,
               &p);
}

/* _softmax_backward_data(grad_output, output, dim, input_dtype) */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *grad = args[0].u.view, *output = args[1].u.view;
    gpu_rows p = {.from = gpu_address(grad->memory),
                  .other = gpu_address(output->memory)};

    (void)nargs;
    (void)nresults;
    return run(call, "softmax_grad", grad->dtype, results[0].u.view,
               args[2].u.i, &p);
}

core_status gpu_register_softmax(core_registry *registry)
{
#define LOG ((void *)1)
#define PAIR(FROM, TO)                                                        \
    {"_softmax", forward, NULL, {FROM, TO}, DENSE, NULL},                     \
        {"_log_softmax", forward, LOG, {FROM, TO}, DENSE, NULL},              \
        {"_softmax_backward_data", backward, NULL,                            \
         {FROM, FROM, TO},         DENSE,    NULL},                           \
    {                                                                         \
        "_log_softmax_backward_data", backward, LOG, {FROM, FROM, TO}, DENSE, \
            NULL                                                              \
    }
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    static const gpu_row rows[] = {
        PAIR(GPU_M_F32, GPU_M_F32), PAIR(GPU_M_F64, GPU_M_F64),
        PAIR(GPU_M_F16, GPU_M_F16), PAIR(GPU_M_BF16, GPU_M_BF16),
        PAIR(GPU_M_F16, GPU_M_F32), PAIR(GPU_M_BF16, GPU_M_F32),
        PAIR(GPU_M_F32, GPU_M_F16), PAIR(GPU_M_F32, GPU_M_BF16),
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
