/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Random numbers per element; kernels/random.cl defines the elements.  The
 * arguments are followed by seed, offset, and the address of both for replays
 * of a capture (kernel.h). */

#include <math.h>

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"random", opencl_random_cl, NULL, NULL};

/* Must match kernels/random.cl. */
typedef struct draw {
    cl_ulong seed, offset, n, range;
    cl_long first;
    cl_int counted, wide;
} draw;

static draw draw_of(const core_value *args, uint32_t nargs, int64_t n)
{
    const core_value *last = &args[nargs - 1];
    /* A core of minor 0.1 passes only two values. */
    const core_value *seed = last->tag == CORE_VALUE_INT ? last - 1 : last - 2;

    return (draw){.seed = (cl_ulong)seed[0].u.i,
                  .offset = (cl_ulong)seed[1].u.i,
                  .n = (cl_ulong)n,
                  .counted = last->tag == CORE_VALUE_VIEW};
}

static opencl_launch begin(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *result,
                           const core_value *more, const char *function)
{
    core_dtype types[2] = {result->u.view->dtype, more != NULL
                                                      ? more->u.view->dtype
                                                      : CORE_DTYPE_NONE};
    opencl_launch l =
        opencl_begin(call, &source, types, more != NULL ? 2 : 1, function);

    opencl_view(&l, result);
    opencl_view(&l, &args[nargs - 1]);
    if (more != NULL)
        opencl_view(&l, more);
    return l;
}

/* uniform_(self, from, to, generator), normal_(self, mean, std, generator) */
static core_status floats(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    bool normal = call->user != NULL;
    double a = core_sdk_double(&args[1], 0), b = core_sdk_double(&args[2], 1);
    draw d = draw_of(args, nargs, results[0].u.view->numel);
    opencl_launch l;

    (void)nresults;
    if (normal && !(b >= 0))
        return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT, "normal_: std is %g",
                             b);
    if (!normal && !(a <= b))
        return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                             "uniform_: from is %g, to is %g", a, b);
    if (d.n == 0)
        return CORE_OK;
    l = begin(call, args, nargs, &results[0], NULL,
              normal ? "normal" : "uniform");
    opencl_bytes(&l, &d, sizeof d);
    opencl_double(&l, a);
    opencl_double(&l, b);
    return opencl_run(&l, d.n, OPENCL_GROUP);
}

/* The largest integer that random_ draws without a limit. */
static int64_t largest_of(core_dtype dtype)
{
    static const int64_t largest[CORE_DTYPE_LIMIT] = {
        [CORE_F64] = INT64_C(1) << 53, [CORE_F32] = 1 << 24,
        [CORE_F16] = 1 << 11,          [CORE_BF16] = 1 << 8,
        [CORE_I64] = INT64_MAX,        [CORE_I32] = INT32_MAX,
        [CORE_I16] = INT16_MAX,        [CORE_I8] = INT8_MAX,
        [CORE_U8] = UINT8_MAX,         [CORE_BOOL] = 1};

    return largest[dtype];
}

/* random_.from(self, from, to?, generator) */
static core_status integers(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    draw d = draw_of(args, nargs, results[0].u.view->numel);
    bool limited = args[2].tag != CORE_VALUE_NONE;
    int64_t last = limited ? core_sdk_int(&args[2], 0)
                           : largest_of(results[0].u.view->dtype);
    opencl_launch l;

    (void)nresults;
    d.first = core_sdk_int(&args[1], 0);
    if (limited ? d.first >= last : d.first > last)
        return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                             "random_: from is %lld, to is %lld",
                             (long long)d.first, (long long)last);
    if (d.n == 0)
        return CORE_OK;
    d.range = (cl_ulong)last - (cl_ulong)d.first + !limited;
    d.wide = d.range == 0 || d.range > UINT64_C(1) << 32;
    l = begin(call, args, nargs, &results[0], NULL, "integers");
    opencl_bytes(&l, &d, sizeof d);
    return opencl_run(&l, d.n, OPENCL_GROUP);
}

/* bernoulli_.float(self, p, generator) */
static core_status bernoulli(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    draw d = draw_of(args, nargs, results[0].u.view->numel);
    double p = core_sdk_double(&args[1], 0.5);
    opencl_launch l;

    (void)nresults;
    if (!(p >= 0 && p <= 1))
        return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                             "bernoulli: a probability is %g", p);
    if (d.n == 0)
        return CORE_OK;
    d.range = (cl_ulong)ceil(p * 4294967296.0);
    l = begin(call, args, nargs, &results[0], NULL, "bernoulli");
    opencl_bytes(&l, &d, sizeof d);
    return opencl_run(&l, d.n, OPENCL_GROUP);
}

/* bernoulli(self, generator) */
static core_status bernoulli_each(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    draw d = draw_of(args, nargs, results[0].u.view->numel);
    opencl_launch l;

    (void)nresults;
    if (d.n == 0)
        return CORE_OK;
    l = begin(call, args, nargs, &results[0], &args[0], "bernoulli_each");
    opencl_bytes(&l, &d, sizeof d);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, d.n, OPENCL_GROUP);
}

/* multinomial(self, num_samples, replacement, generator) */
static core_status multinomial(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = args[0].u.view;
    int64_t n = self->sizes[self->ndim - 1], rows = n ? self->numel / n : 0;
    draw d = draw_of(args, nargs, rows);
    opencl_launch l;

    (void)nresults;
    if (rows == 0 || results[0].u.view->numel == 0)
        return CORE_OK;
    l = begin(call, args, nargs, &results[0], &args[0], "multinomial");
    opencl_bytes(&l, &d, sizeof d);
    opencl_long(&l, n);
    opencl_long(&l, core_sdk_int(&args[1], 1));
    opencl_int(&l, core_sdk_int(&args[2], 0) != 0);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, d.n, OPENCL_GROUP);
}

core_status opencl_register_random(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    static const opencl_row rows[] = {
        {"uniform_", floats, NULL, {OPENCL_FLOATS, OPENCL_FLOATS}, DENSE},
        {"normal_", floats, (void *)1, {OPENCL_FLOATS, OPENCL_FLOATS}, DENSE},
        {"random_.from", integers, NULL, {OPENCL_ALL, OPENCL_ALL}, DENSE},
        {"bernoulli_.float", bernoulli, NULL, {OPENCL_ALL, OPENCL_ALL}, DENSE},
        {"bernoulli", bernoulli_each, NULL, {OPENCL_FLOATS, OPENCL_ALL}, DENSE},
    };
    core_kernel kernel = {.struct_size = sizeof kernel,
                          .demands = DENSE,
                          .name = {"multinomial", 11},
                          .launch = multinomial,
                          .supports = opencl_needs_f64, /* to get the CPU's
                                                         * bits */
                          .signature = {OPENCL_FLOATS, OPENCL_I64}};
    core_status status =
        opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);

    if (status != CORE_OK)
        return status;
    return opencl_register_kernel(registry, kernel);
}
