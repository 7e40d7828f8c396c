/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* norm.c: layer, group and batch normalisation, forward and backward.  To the
 * kernels, a layer norm is a group norm of one group whose channels are the
 * elements. */

#include <gpu/host/host.h>
#include <gpu/shared_norm.h>

/* If channels are adjacent: the rows that a block sums, and the largest number
 * of such parts.  Both depend on the problem alone, so that the order of a sum
 * is fixed.  A block has COLUMNS channels (kernels/norm.cu). */
enum { PART_ROWS = 64, PARTS = 256, COLUMNS = 32 };

static core_dtype dtype_of(const core_value *value, core_dtype otherwise)
{
    return value->tag == CORE_VALUE_VIEW ? value->u.view->dtype : otherwise;
}

static core_status launch(core_call *call, const char *stem, core_dtype dtype,
                          core_dtype weights, gpu_shape shape,
                          const gpu_norm *p)
{
    char name[GPU_NAME], both[GPU_NAME];

    gpu_name(both, stem, dtype);
    return gpu_launch(call, "norm", gpu_name(name, both, weights), shape, p,
                      sizeof *p);
}

/* By rows, which are kept in registers if they fit
 * (kernels/row_registers.h). */
static core_status launch_rows(core_call *call, const char *stem,
                               core_dtype dtype, core_dtype weights,
                               const gpu_norm *p)
{
    uint32_t a = core_sdk_itemsize(dtype), b = core_sdk_itemsize(weights);
    uint32_t bytes = a > b ? a : b;
    bool vectors = gpu_row_vectors(p->channels, bytes, p->to) &&
                   gpu_row_vectors(p->channels, bytes, p->from) &&
                   gpu_row_vectors(p->channels, bytes, p->grad) &&
                   gpu_row_vectors(p->channels, bytes, p->weight) &&
                   gpu_row_vectors(p->channels, bytes, p->bias);
    bool layer = p->groups == 1 && p->inner == 1 && p->channels > 0;
    gpu_shape shape = gpu_blocks((uint64_t)p->rows, GPU_BLOCK);
    char name[GPU_NAME] = "";

    strcat(name, stem);
    if (layer && p->channels <= GPU_BLOCK / 8 * GPU_ROW_REGISTERS) {
        shape = gpu_blocks(((uint64_t)p->rows + 7) / 8, GPU_BLOCK);
        strcat(name, vectors ? "_team" : "_single");
    } else if (layer && vectors &&
               p->channels <= GPU_BLOCK * GPU_ROW_REGISTERS) {
        strcat(name, "_wide");
    }
    return launch(call, name, dtype, weights, shape, p);
}

static gpu_norm layer_of(const core_view *in, const core_value *normalized)
{
    gpu_norm p;

    memset(&p, 0, sizeof p);
    p.rows = p.groups = p.channels = p.inner = 1;
    for (uint32_t d = 0; d < in->ndim; d++)
        if (d + normalized->count < in->ndim)
            p.rows *= in->sizes[d];
        else
            p.channels *= in->sizes[d];
    return p;
}

/* args: N, C, HxW, group */
static gpu_norm group_of(const core_value *args)
{
    gpu_norm p;

    memset(&p, 0, sizeof p);
    p.groups = args[3].u.i;
    p.rows = args[0].u.i * p.groups;
    p.channels = args[1].u.i / p.groups;
    p.inner = args[2].u.i;
    return p;
}

/* ------------------------------------------------------------- forward -- */

static core_status forward(core_call *call, gpu_norm *p, const core_value *in,
                           const core_value *affine, double eps,
                           const core_value *results)
{
    core_dtype dtype = in->u.view->dtype;
    core_dtype weights = dtype_of(&affine[0], dtype_of(&affine[1], dtype));

    p->from = gpu_data(in);
    p->weight = gpu_data(&affine[0]);
    p->bias = gpu_data(&affine[1]);
    p->to = gpu_data(&results[0]);
    p->mean = gpu_data(&results[1]);
    p->spread = gpu_data(&results[2]);
    p->statistics = dtype_of(&results[1], dtype);
    p->eps = eps;
    return launch_rows(call, "norm_forward", dtype, weights, p);
}

/* native_layer_norm(input, normalized_shape, weight?, bias?, eps)
 * -> (output, mean, rstd) */
static core_status layer(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    gpu_norm p = layer_of(args[0].u.view, &args[1]);

    (void)nargs;
    (void)nresults;
    return forward(call, &p, &args[0], &args[2],
                   core_sdk_double(&args[4], 1e-5), results);
}

/* native_group_norm(input, weight?, bias?, N, C, HxW, group, eps)
 * -> (output, mean, rstd) */
static core_status group(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    gpu_norm p = group_of(&args[3]);

    (void)nargs;
    (void)nresults;
    return forward(call, &p, &args[0], &args[1],
                   core_sdk_double(&args[7], 1e-5), results);
}

/* ------------------------------------------------------------ backward -- */

/* Gradients of weight and bias if channels are adjacent. */
static core_status columns(core_call *call, core_dtype dtype,
                           core_dtype weights, gpu_norm *p)
{
    gpu_shape shape =
        gpu_blocks(((uint64_t)p->channels + COLUMNS - 1) / COLUMNS, GPU_BLOCK);
    int64_t parts = (p->rows + PART_ROWS - 1) / PART_ROWS;
    core_memory partial;
    core_status status;

    p->parts = (uint32_t)(parts < 1 ? 1 : parts < PARTS ? parts : PARTS);
    status = gpu_host->call_scratch(
        call,
        (uint64_t)p->parts * (uint64_t)p->channels * 2 *
            (dtype == CORE_F64 ? sizeof(double) : sizeof(float)),
        &partial);
    if (status != CORE_OK)
        return status;
    p->partial = gpu_address(partial);
    shape.grid[1] = p->parts;
    status = launch(call, "norm_columns", dtype, weights, shape, p);
    shape.grid[1] = 1;
    if (status == CORE_OK)
        status = launch(call, "norm_together", dtype, weights, shape, p);
    return status;
}

/* ins: grad, input, mean, rstd, weight */
static core_status backward(core_call *call, gpu_norm *p,
                            const core_value *const ins[5],
                            const core_value *results)
{
    core_dtype dtype = ins[1]->u.view->dtype;
    core_dtype weights =
        dtype_of(ins[4], dtype_of(&results[1], dtype_of(&results[2], dtype)));
    core_status status = CORE_OK;

    p->grad = gpu_data(ins[0]);
    p->from = gpu_data(ins[1]);
    p->mean = gpu_data(ins[2]);
    p->spread = gpu_data(ins[3]);
    p->weight = gpu_data(ins[4]);
    p->statistics = dtype_of(ins[2], dtype);
    p->to = gpu_data(&results[0]);
    p->to_weight = gpu_data(&results[1]);
    p->to_bias = gpu_data(&results[2]);
    if (p->to != NULL && ins[1]->u.view->numel > 0)
        status = launch_rows(call, "norm_grad", dtype, weights, p);
    if (status != CORE_OK || (p->to_weight == NULL && p->to_bias == NULL) ||
        p->channels == 0)
        return status;
    if (p->groups == 1 && p->inner == 1)
        return columns(call, dtype, weights, p);
    return launch(call, "norm_weights", dtype, weights,
                  gpu_blocks((uint64_t)(p->groups * p->channels), GPU_BLOCK),
                  p);
}

/* native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd,
 * weight?, bias?, output_mask) -> (input, weight, bias) */
static core_status layer_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_value *ins[5] = {&args[0], &args[1], &args[3], &args[4],
                                &args[5]};
    gpu_norm p = layer_of(args[1].u.view, &args[2]);

    (void)nargs;
    (void)nresults;
    return backward(call, &p, ins, results);
}

/* native_group_norm_backward(grad_out, input, mean, rstd, weight?, N, C, HxW,
 * group, output_mask) -> (input, weight, bias) */
static core_status group_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_value *ins[5] = {&args[0], &args[1], &args[2], &args[3],
                                &args[4]};
    gpu_norm p = group_of(&args[5]);

    (void)nargs;
    (void)nresults;
    return backward(call, &p, ins, results);
}

/* --------------------------------------------------------------- batch -- */

static gpu_norm batch_of(const core_view *in)
{
    gpu_line line = gpu_line_of(in, 1);
    gpu_norm p;

    memset(&p, 0, sizeof p);
    p.rows = line.outer;
    p.groups = 1;
    p.channels = line.size;
    p.inner = line.inner;
    p.from = gpu_address(in->memory);
    return p;
}

static core_status batch_launch(core_call *call, const char *stem,
                                core_dtype dtype, core_dtype weights,
                                const gpu_norm *p)
{
    if (!p->training && (p->running_mean == NULL || p->running_var == NULL))
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "native_batch_norm: without training it needs the "
                          "running statistics");
    return launch(call, stem, dtype, weights,
                  gpu_blocks((uint64_t)p->channels, GPU_BLOCK), p);
}

/* native_batch_norm(input, weight?, bias?, running_mean?, running_var?,
 * training, momentum, eps) -> (output, save_mean, save_invstd).  Training
 * updates the running statistics. */
static core_status batch(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_dtype dtype = args[0].u.view->dtype;
    gpu_norm p = batch_of(args[0].u.view);

    (void)nargs;
    (void)nresults;
    p.weight = gpu_data(&args[1]);
    p.bias = gpu_data(&args[2]);
    p.running_mean = gpu_data(&args[3]);
    p.running_var = gpu_data(&args[4]);
    p.running = dtype_of(&args[3], dtype_of(&args[4], dtype));
    p.training = args[5].u.i != 0;
    p.momentum = core_sdk_double(&args[6], 0.1);
    p.eps = core_sdk_double(&args[7], 1e-5);
    p.to = gpu_data(&results[0]);
    p.statistics = dtype_of(&results[1], dtype);
    /* The statistics are empty if they are not needed. */
    if (results[1].u.view->numel == p.channels) {
        p.mean = gpu_data(&results[1]);
        p.spread = gpu_data(&results[2]);
    }
    return batch_launch(call, "norm_batch", dtype,
                        dtype_of(&args[1], dtype_of(&args[2], dtype)), &p);
}

/* native_batch_norm_backward(grad_out, input, weight?, running_mean?,
 * running_var?, save_mean?, save_invstd?, train, eps, output_mask)
 * -> (input, weight, bias) */
static core_status batch_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    core_dtype dtype = args[1].u.view->dtype;
    core_dtype weights =
        dtype_of(&args[2], dtype_of(&results[1], dtype_of(&results[2], dtype)));
    gpu_norm p = batch_of(args[1].u.view);

    (void)nargs;
    (void)nresults;
    p.grad = gpu_data(&args[0]);
    p.weight = gpu_data(&args[2]);
    p.running_mean = gpu_data(&args[3]);
    p.running_var = gpu_data(&args[4]);
    p.running = dtype_of(&args[3], dtype);
    p.mean = gpu_data(&args[5]);
    p.spread = gpu_data(&args[6]);
    p.statistics = dtype_of(&args[5], dtype);
    p.training = args[7].u.i != 0;
    p.eps = core_sdk_double(&args[8], 1e-5);
    p.to = gpu_data(&results[0]);
    p.to_weight = gpu_data(&results[1]);
    p.to_bias = gpu_data(&results[2]);
    if (p.training && (p.mean == NULL || p.spread == NULL))
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "native_batch_norm_backward: the saved statistics "
                          "are missing");
    return batch_launch(call, "norm_batch_grad", dtype, weights, &p);
}

/* -------------------------------------------------------- registration -- */

/* The types of images (i), parameters (p) and statistics (s). */
static core_status register_types(core_registry *registry, uint32_t i,
                                  uint32_t p, uint32_t s)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    const gpu_row rows[] = {
        {"native_layer_norm", layer, NULL, {i, p, p, i, s, s}, DENSE, NULL},
        {"native_group_norm", group, NULL, {i, p, p, i, s, s}, DENSE, NULL},
        {"native_layer_norm_backward",
         layer_backward,
         NULL,
         {i, i, s, s, p, p, i, p},
         DENSE,
         NULL},
        {"native_group_norm_backward",
         group_backward,
         NULL,
         {i, i, s, s, p, i, p, p},
         DENSE,
         NULL},
        {"native_batch_norm", batch, NULL, {i, p, p, s, s, i}, DENSE, NULL},
        {"native_batch_norm_backward",
         batch_backward,
         NULL,
         {i, i, p, s, s, s, s, i},
         DENSE,
         NULL},
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}

core_status gpu_register_norm(core_registry *registry)
{
    static const uint32_t types[][3] = {
        {GPU_M_F32, GPU_M_F32, GPU_M_F32},
        {GPU_M_F64, GPU_M_F64, GPU_M_F64},
        {GPU_M_F16, GPU_M_F16, GPU_M_F16 | GPU_M_F32},
        {GPU_M_BF16, GPU_M_BF16, GPU_M_BF16 | GPU_M_F32},
        {GPU_M_F16, GPU_M_F32, GPU_M_F32},
        {GPU_M_BF16, GPU_M_F32, GPU_M_F32},
    };
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (status == CORE_OK)
            status =
                register_types(registry, types[i][0], types[i][1], types[i][2]);
    return status;
}
