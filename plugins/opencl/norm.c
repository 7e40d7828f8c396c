/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Layer, group and batch normalization, forward and backward.  For the
 * kernels a layer norm is a group norm with one group, whose channels are
 * the elements. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"norm", opencl_norm_cl, NULL, NULL};

/* Must match kernels/norm.cl. */
enum { HAS_WEIGHT = 1, HAS_BIAS = 2, TRAINING = 4, WANT_INPUT = 8 };
enum { HAS_MEAN = 16, HAS_SPREAD = 32, SAVES = 64 };

typedef struct norm {
    int64_t rows, groups, channels, inner;
} norm;

static bool is_present(const core_value *value)
{
    return value->tag == CORE_VALUE_VIEW;
}

/* The first tensor's dtype, else the second's, else default_dtype. */
static core_dtype dtype_of(const core_value *a, const core_value *b,
                           core_dtype default_dtype)
{
    return is_present(a)   ? a->u.view->dtype
           : is_present(b) ? b->u.view->dtype
                           : default_dtype;
}

static core_status run_rows(opencl_launch *l, int64_t rows)
{
    return opencl_run(l, (uint64_t)rows * OPENCL_GROUP, OPENCL_GROUP);
}

/* ------------------------------------------------------------- forward -- */

static core_status norm_forward(core_call *call, const norm *shape,
                                const core_value *in, const core_value *weight,
                                const core_value *bias, double eps,
                                const core_value *results)
{
    core_dtype dtype = in->u.view->dtype;
    core_dtype types[4] = {dtype, dtype_of(weight, bias, dtype),
                           results[1].u.view->dtype, dtype};
    opencl_launch l;

    if (shape->rows == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 4, "forward");
    for (int i = 0; i < 3; i++)
        opencl_view(&l, &results[i]);
    opencl_view(&l, in);
    opencl_view(&l, weight);
    opencl_view(&l, bias);
    opencl_long(&l, shape->groups);
    opencl_long(&l, shape->channels);
    opencl_long(&l, shape->inner);
    opencl_double(&l, eps);
    opencl_int(&l, (is_present(weight) ? HAS_WEIGHT : 0) |
                       (is_present(bias) ? HAS_BIAS : 0));
    return run_rows(&l, shape->rows);
}

static norm layer_of(const core_view *in, const core_value *normalized)
{
    norm shape = {1, 1, 1, 1};

    for (uint32_t d = 0; d < in->ndim; d++)
        if (d + normalized->count < in->ndim)
            shape.rows *= in->sizes[d];
        else
            shape.channels *= in->sizes[d];
    return shape;
}

/* native_layer_norm(input, normalized_shape, weight?, bias?, eps)
 * -> (output, mean, rstd) */
static core_status layer(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    norm shape = layer_of(args[0].u.view, &args[1]);

    (void)nargs;
    (void)nresults;
    return norm_forward(call, &shape, &args[0], &args[2], &args[3],
                        core_sdk_double(&args[4], 1e-5), results);
}

/* args: N, C, HxW, group */
static norm group_of(const core_value *args)
{
    int64_t groups = args[3].u.i;

    return (norm){args[0].u.i * groups, groups, args[1].u.i / groups,
                  args[2].u.i};
}

/* native_group_norm(input, weight?, bias?, N, C, HxW, group, eps)
 * -> (output, mean, rstd) */
static core_status group(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    norm shape = group_of(&args[3]);

    (void)nargs;
    (void)nresults;
    return norm_forward(call, &shape, &args[0], &args[1], &args[2],
                        core_sdk_double(&args[7], 1e-5), results);
}

/* ------------------------------------------------------------ backward -- */

/* ins: grad, input, mean, rstd, weight */
static core_status norm_backward(core_call *call, const norm *shape,
                                 const core_value *const ins[5],
                                 const core_value *results)
{
    core_dtype dtype = ins[1]->u.view->dtype;
    core_dtype types[4] = {dtype, dtype_of(ins[4], &results[1], dtype),
                           ins[2]->u.view->dtype, dtype};
    int needed = (is_present(&results[1]) ? HAS_WEIGHT : 0) |
                 (is_present(&results[2]) ? HAS_BIAS : 0);
    core_status status = CORE_OK;
    opencl_launch l;

    if (!is_present(ins[4]) && !is_present(&results[1]))
        types[1] = dtype_of(&results[2], &results[2], dtype);
    if (is_present(&results[0]) && ins[1]->u.view->numel > 0) {
        l = opencl_begin(call, &source, types, 4, "input");
        opencl_view(&l, &results[0]);
        for (int i = 0; i < 5; i++)
            opencl_view(&l, ins[i]);
        opencl_long(&l, shape->groups);
        opencl_long(&l, shape->channels);
        opencl_long(&l, shape->inner);
        opencl_int(&l, is_present(ins[4]) ? HAS_WEIGHT : 0);
        status = run_rows(&l, shape->rows);
    }
    if (status != CORE_OK || needed == 0 ||
        shape->groups * shape->channels == 0)
        return status;
    l = opencl_begin(call, &source, types, 4, "weights");
    opencl_view(&l, &results[1]);
    opencl_view(&l, &results[2]);
    for (int i = 0; i < 4; i++)
        opencl_view(&l, ins[i]);
    opencl_long(&l, shape->rows);
    opencl_long(&l, shape->groups);
    opencl_long(&l, shape->channels);
    opencl_long(&l, shape->inner);
    opencl_int(&l, needed);
    return run_rows(&l, shape->groups * shape->channels);
}

/* native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd,
 * weight?, bias?, output_mask) -> (input, weight, bias) */
static core_status layer_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_value *ins[5] = {&args[0], &args[1], &args[3], &args[4],
                                &args[5]};
    norm shape = layer_of(args[1].u.view, &args[2]);

    (void)nargs;
    (void)nresults;
    return norm_backward(call, &shape, ins, results);
}

/* native_group_norm_backward(grad_out, input, mean, rstd, weight?, N, C, HxW,
 * group, output_mask) -> (input, weight, bias) */
static core_status group_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_value *ins[5] = {&args[0], &args[1], &args[2], &args[3],
                                &args[4]};
    norm shape = group_of(&args[5]);

    (void)nargs;
    (void)nresults;
    return norm_backward(call, &shape, ins, results);
}

/* --------------------------------------------------------------- batch -- */

/* native_batch_norm(input, weight?, bias?, running_mean?, running_var?,
 * training, momentum, eps) -> (output, save_mean, save_invstd) */
static core_status batch(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    const core_view *in = args[0].u.view;
    opencl_line line = opencl_line_of(in, 1);
    core_dtype types[4] = {in->dtype, dtype_of(&args[1], &args[2], in->dtype),
                           results[1].u.view->dtype,
                           dtype_of(&args[3], &args[4], in->dtype)};
    int has = (is_present(&args[1]) ? HAS_WEIGHT : 0) |
              (is_present(&args[2]) ? HAS_BIAS : 0) |
              (is_present(&args[3]) ? HAS_MEAN : 0) |
              (is_present(&args[4]) ? HAS_SPREAD : 0) |
              (args[5].u.i != 0 ? TRAINING : 0) |
              (results[1].u.view->numel > 0 ? SAVES : 0);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (line.size == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 4, "batch");
    for (int i = 0; i < 3; i++)
        opencl_view(&l, &results[i]);
    for (int i = 0; i < 5; i++)
        opencl_view(&l, &args[i]);
    opencl_long(&l, line.outer);
    opencl_long(&l, line.size);
    opencl_long(&l, line.inner);
    opencl_double(&l, core_sdk_double(&args[6], 0.1));
    opencl_double(&l, core_sdk_double(&args[7], 1e-5));
    opencl_int(&l, has);
    return run_rows(&l, line.size);
}

/* native_batch_norm_backward(grad_out, input, weight?, running_mean?,
 * running_var?, save_mean?, save_invstd?, train, eps, output_mask)
 * -> (input, weight, bias) */
static core_status batch_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *in = args[1].u.view;
    bool training = args[7].u.i != 0;
    const core_value *statistics = &args[training ? 5 : 3];
    opencl_line line = opencl_line_of(in, 1);
    core_dtype types[4] = {in->dtype,
                           dtype_of(&results[1], &results[2], in->dtype),
                           statistics->u.view->dtype, in->dtype};
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (line.size == 0)
        return CORE_OK;
    if (is_present(&args[2]))
        types[1] = args[2].u.view->dtype;
    l = opencl_begin(call, &source, types, 4, "batch_backward");
    for (int i = 0; i < 3; i++)
        opencl_view(&l, &results[i]);
    for (int i = 0; i < 3; i++)
        opencl_view(&l, &args[i]);
    opencl_view(&l, &statistics[0]);
    opencl_view(&l, &statistics[1]);
    opencl_long(&l, line.outer);
    opencl_long(&l, line.size);
    opencl_long(&l, line.inner);
    opencl_double(&l, core_sdk_double(&args[8], 1e-5));
    opencl_int(&l, (is_present(&args[2]) ? HAS_WEIGHT : 0) |
                       (training ? TRAINING : 0));
    opencl_int(&l, (is_present(&results[0]) ? WANT_INPUT : 0) |
                       (is_present(&results[1]) ? HAS_WEIGHT : 0) |
                       (is_present(&results[2]) ? HAS_BIAS : 0));
    return run_rows(&l, line.size);
}

/* -------------------------------------------------------- registration -- */

/* i: the images' types, p: the parameters', s: the statistics'. */
static core_status register_types(core_registry *registry, uint32_t i,
                                  uint32_t p, uint32_t s)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    const opencl_row rows[] = {
        {"native_layer_norm", layer, NULL, {i, p, p, i, s, s}, DENSE},
        {"native_group_norm", group, NULL, {i, p, p, i, s, s}, DENSE},
        {"native_layer_norm_backward",
         layer_backward,
         NULL,
         {i, i, s, s, p, p, i, p},
         DENSE},
        {"native_group_norm_backward",
         group_backward,
         NULL,
         {i, i, s, s, p, i, p, p},
         DENSE},
        {"native_batch_norm", batch, NULL, {i, p, p, s, s, i}, DENSE},
        {"native_batch_norm_backward",
         batch_backward,
         NULL,
         {i, i, p, s, s, s, s, i},
         DENSE},
    };

    return opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
}

core_status opencl_register_norm(core_registry *registry)
{
    static const uint32_t types[][3] = {
        {OPENCL_F32, OPENCL_F32, OPENCL_F32},
        {OPENCL_F64, OPENCL_F64, OPENCL_F64},
        {OPENCL_F16, OPENCL_F16, OPENCL_F16},
        {OPENCL_BF16, OPENCL_BF16, OPENCL_BF16},
        {OPENCL_F16, OPENCL_F32, OPENCL_F32},
        {OPENCL_BF16, OPENCL_F32, OPENCL_F32},
        {OPENCL_F16, OPENCL_F16, OPENCL_F32},
        {OPENCL_BF16, OPENCL_BF16, OPENCL_F32},
    };
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (status == CORE_OK)
            status =
                register_types(registry, types[i][0], types[i][1], types[i][2]);
    return status;
}
