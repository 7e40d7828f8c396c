/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.c: random numbers.  The core appends three values to the arguments:
 * the seed, the first counter block, and the address of both at run time. */

#include <gpu/host/move.h>
#include <gpu/host/sort.h>
#include <gpu/shared_random.h>

static gpu_draw begin(core_call *call, const core_value *args, uint32_t nargs,
                      const core_value *result)
{
    const core_value *last = &args[nargs - 1];
    /* A host of minor version 0.1 passes two values. */
    const core_value *seed = last->tag == CORE_VALUE_INT ? last - 1 : last - 2;
    gpu_draw p;

    memset(&p, 0, sizeof p);
    p.to = gpu_data(result);
    p.to_dtype = result->u.view->dtype;
    p.count = (uint64_t)result->u.view->numel;
    p.seed = (uint64_t)seed[0].u.i;
    p.offset = (uint64_t)seed[1].u.i;
    p.counter = gpu_data(last);
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

/* A result with gaps is drawn densely and then copied: in-place operators are
 * called with any strides. */
static core_status finish(core_call *call, const char *name,
                          const core_value *result, gpu_draw *p)
{
    const core_view *to = result->u.view;
    gpu_shape shape = gpu_spread(gpu_stream_of(call)->device, p->count, 4);
    int64_t strides[CORE_MAX_NDIM], next = 1;
    core_memory dense;
    core_status status;

    if (p->count == 0)
        return CORE_OK;
    if (to->flags & CORE_VIEW_CONTIGUOUS)
        return gpu_launch(call, "random", name, shape, p, sizeof *p);
    status = gpu_host->call_scratch(
        call, p->count * core_sdk_itemsize(to->dtype), &dense);
    if (status != CORE_OK)
        return status;
    p->to = gpu_address(dense);
    status = gpu_launch(call, "random", name, shape, p, sizeof *p);
    for (uint32_t d = to->ndim; d-- > 0; next *= to->sizes[d])
        strides[d] = next;
    if (status != CORE_OK)
        return status;
    return gpu_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                           to->strides, dense, strides);
}

/* uniform_(self, from, to, generator) */
static core_status uniform(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    gpu_draw p = begin(call, args, nargs, &results[0]);
    char name[GPU_NAME];

    (void)nresults;
    p.a = core_sdk_double(&args[1], 0);
    p.b = core_sdk_double(&args[2], 1);
    if (!(p.a <= p.b))
        return gpu_refuse(
            CORE_ERROR_INVALID_ARGUMENT,
            "uniform_: from is %g, to is %g; from must not be greater", p.a,
            p.b);
    return finish(call, gpu_name(name, "random_uniform", p.to_dtype),
                  &results[0], &p);
}

/* normal_(self, mean, std, generator) */
static core_status normal(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    gpu_draw p = begin(call, args, nargs, &results[0]);
    char name[GPU_NAME];

    (void)nresults;
    p.a = core_sdk_double(&args[1], 0);
    p.b = core_sdk_double(&args[2], 1);
    if (!(p.b >= 0))
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "normal_: std is %g; it must be at least 0", p.b);
    return finish(call, gpu_name(name, "random_normal", p.to_dtype),
                  &results[0], &p);
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
static core_status whole(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    gpu_draw p = begin(call, args, nargs, &results[0]);
    bool limited = args[2].tag != CORE_VALUE_NONE;
    int64_t last = limited ? core_sdk_int(&args[2], 0) : largest_of(p.to_dtype);

    (void)nresults;
    p.first = core_sdk_int(&args[1], 0);
    if (limited ? p.first >= last : p.first > last)
        return gpu_refuse(
            CORE_ERROR_INVALID_ARGUMENT,
            "random_: from is %lld, to is %lld; from must be less",
            (long long)p.first, (long long)last);
    p.range = (uint64_t)last - (uint64_t)p.first + !limited;
    return finish(call, "random_whole", &results[0], &p);
}

/* bernoulli_.float(self, p, generator) */
static core_status bernoulli(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    gpu_draw p = begin(call, args, nargs, &results[0]);

    (void)nresults;
    p.a = core_sdk_double(&args[1], 0.5);
    if (!(p.a >= 0 && p.a <= 1))
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "bernoulli: a probability is %g", p.a);
    return finish(call, "random_bernoulli", &results[0], &p);
}

/* bernoulli(self, generator): self is the probabilities */
static core_status bernoulli_each(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    gpu_draw p = begin(call, args, nargs, &results[0]);

    (void)nresults;
    p.from = gpu_data(&args[0]);
    p.from_dtype = args[0].u.view->dtype;
    return finish(call, "random_bernoulli", &results[0], &p);
}

/* multinomial(self, num_samples, replacement, generator): a row of indices for
 * each row of weights */
static core_status multinomial(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = args[0].u.view;
    gpu_draw d = begin(call, args, nargs, &results[0]);
    gpu_device *device = gpu_stream_of(call)->device;
    core_memory scratch;
    core_status status;
    gpu_choice p = {.to = d.to,
                    .from = gpu_data(&args[0]),
                    .counter = d.counter,
                    .n = self->sizes[self->ndim - 1],
                    .samples = args[1].u.i,
                    .seed = d.seed,
                    .offset = d.offset,
                    .dtype = self->dtype,
                    .replacement = args[2].u.i != 0,
                    .error = d.error,
                    .call = d.call};

    (void)nresults;
    if (results[0].u.view->numel == 0)
        return CORE_OK;
    p.rows = self->numel / p.n;
    status = gpu_host->call_scratch(
        call, (uint64_t)self->numel * sizeof *p.scratch, &scratch);
    if (status != CORE_OK)
        return status;
    p.scratch = gpu_address(scratch);
    status = gpu_launch(call, "random", "random_choice_sums",
                        gpu_spread(device, (uint64_t)p.rows, 1), &p, sizeof p);
    if (status == CORE_OK && p.replacement)
        return gpu_launch(call, "random", "random_choice_repeated",
                          gpu_spread(device, (uint64_t)(p.rows * p.samples), 1),
                          &p, sizeof p);
    if (status == CORE_OK)
        status = gpu_launch(call, "random", "random_choice_clocks",
                            gpu_spread(device, (uint64_t)self->numel, 1), &p,
                            sizeof p);
    if (status == CORE_OK)
        status =
            gpu_sort_smallest(call, p.scratch, p.rows, p.n, p.samples, p.to);
    return status;
}

core_status gpu_register_random(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    static const gpu_row rows[] = {
        {"uniform_", uniform, NULL, {GPU_M_FLOATS, GPU_M_FLOATS}, DENSE, NULL},
        {"normal_", normal, NULL, {GPU_M_FLOATS, GPU_M_FLOATS}, DENSE, NULL},
        {"random_.from", whole, NULL, {GPU_M_ALL, GPU_M_ALL}, DENSE, NULL},
        {"bernoulli_.float",
         bernoulli,
         NULL,
         {GPU_M_ALL, GPU_M_ALL},
         DENSE,
         NULL},
        {"bernoulli",
         bernoulli_each,
         NULL,
         {GPU_M_FLOATS, GPU_M_ALL},
         DENSE,
         NULL},
        {"multinomial",
         multinomial,
         NULL,
         {GPU_M_FLOATS, GPU_M_I64},
         DENSE,
         NULL},
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
