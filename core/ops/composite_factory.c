/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Factories: empty, filled and random tensors, also like another tensor. */

#include "device/device.h"
#include "dispatch/dispatch.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/layout.h"
#include "tensor/tensor_cache.h"

#include <math.h>
#include <string.h>

/* The trailing arguments `dtype, layout, device, pin_memory`, from `first`
 * on. */
typedef struct options {
    core_dtype dtype;
    core_device *device;
} options;

static core_status options_of(const core_operator *op, const core_value *args,
                              uint32_t first, core_dtype dtype,
                              core_device *device, options *out)
{
    out->dtype = core__dtype_of(&args[first]);
    if (out->dtype == CORE_DTYPE_NONE)
        out->dtype = dtype;
    out->device = args[first + 2].tag == CORE_VALUE_DEVICE
                      ? args[first + 2].u.device
                      : device;
    if (args[first + 1].tag == CORE_VALUE_LAYOUT && args[first + 1].u.i != 0)
        return core__op_error(
            CORE_ERROR_UNSUPPORTED, op,
            "layout is not CORE_STRIDED; only the strided layout is supported");
    if (core__unlikely(!core__dtype_is_known(out->dtype)))
        return core__op_dtype_check(op, out->dtype);
    if (!out->device)
        out->device = core__device_current_known(core__thread_self());
    return out->device ? CORE_OK : core__device_current(&out->device);
}

static core_status empty_of(const core_operator *op, const core_value *size,
                            const options *o, core_tensor **out)
{
    size_t count;
    const int64_t *sizes = core__ints_of(size, &count);

    *out = core__tensor_cache_take_new(core__thread_self(), o->device, o->dtype,
                                       count, sizes);
    if (core__likely(*out != NULL))
        return CORE_OK;
    CORE_TRY(core__sizes_check(op, count, sizes));
    return core__op_check_allocation(op, o->device,
                                     core__tensor_new(o->device, o->dtype,
                                                      (uint32_t)count, sizes,
                                                      NULL, out));
}

static core_status empty_like(const core_operator *op, core_tensor *self,
                              const options *o, const core_value *format,
                              core_tensor **out)
{
    int64_t strides[CORE_MAX_NDIM];
    int64_t kind =
        format->tag == CORE_VALUE_NONE ? CORE_FORMAT_PRESERVE : format->u.i;

    CORE_TRY(core__op_format_check(op, kind));
    if (kind == CORE_FORMAT_PRESERVE && self->flags & CORE__TENSOR_DENSE)
        memcpy(strides, self->strides, self->ndim * sizeof *strides);
    else if (kind == CORE_FORMAT_PRESERVE)
        core__layout_like(self, strides);
    else if (kind == CORE_FORMAT_CHANNELS_LAST && self->ndim == 4)
        core__layout_channels_last(self->ndim, self->sizes, strides);
    else if (kind == CORE_FORMAT_CHANNELS_LAST_3D && self->ndim == 5)
        core__layout_channels_last(self->ndim, self->sizes, strides);
    else
        core__layout_contiguous(self->ndim, self->sizes, strides);
    return core__op_check_allocation(op, o->device,
                                     core__tensor_new(o->device, o->dtype,
                                                      self->ndim, self->sizes,
                                                      strides, out));
}

/* Fills a new tensor, to which there is no other reference, below all layers.
 * Takes over the reference. */
static core_status filled(const core_operator *op, core_status status,
                          core_tensor *const *made, const core_scalar *value,
                          core_value *result)
{
    core_tensor *tensor = *made;
    core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = tensor}}};
    uint32_t id = value ? CORE_OP_FILL__SCALAR : CORE_OP_ZERO_;

    if (status != CORE_OK)
        return status;
    if (value) {
        args[1] = *value;
        status =
            core__number_check_range(op, "the value", value, tensor->dtype);
    }
    if (status == CORE_OK)
        status = core__redispatch(&core__operators[id],
                                  tensor->device->keys | CORE__KEY_BACKEND,
                                  args, value ? 2 : 1, NULL, 0);
    if (status != CORE_OK) {
        core__op_prefix_name(op);
        core__tensor_release(tensor);
        return status;
    }
    core__result_tensor(result, tensor);
    return CORE_OK;
}

static core_dtype dtype_of_number(const core_value *number)
{
    return number->tag == CORE_VALUE_FLOAT ? core__dtype_default()
           : number->tag == CORE_VALUE_INT ? CORE_I64
                                           : CORE_BOOL;
}

/* -------------------------------------------------------- empty, filled -- */

CORE__OP(empty)
{
    options o;
    core_tensor *out;
    size_t count;
    const int64_t *sizes = core__ints_of(&args[0], &count);
    int64_t strides[CORE_MAX_NDIM];
    int64_t format =
        args[5].tag == CORE_VALUE_NONE ? CORE_FORMAT_CONTIGUOUS : args[5].u.i;

    CORE_TRY(options_of(call->op, args, 1, core__dtype_default(), NULL, &o));
    CORE_TRY(core__op_format_check(call->op, format));
    if (format == CORE_FORMAT_CONTIGUOUS || format == CORE_FORMAT_PRESERVE) {
        CORE_TRY(empty_of(call->op, &args[0], &o, &out));
    } else {
        if (count != (format == CORE_FORMAT_CHANNELS_LAST ? 4u : 5u))
            return core__op_error(
                CORE_ERROR_SHAPE, call->op,
                "size has %zu dimensions, which memory_format does not support",
                count);
        CORE_TRY(core__sizes_check(call->op, count, sizes));
        core__layout_channels_last((uint32_t)count, sizes, strides);
        CORE_TRY(core__op_check_allocation(
            call->op, o.device,
            core__tensor_new(o.device, o.dtype, (uint32_t)count, sizes, strides,
                             &out)));
    }
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

static core_status strided(const core_operator *op, const core_value *size,
                           const core_value *stride, const options *o,
                           core_value *result)
{
    size_t count;
    size_t stride_count;
    const int64_t *sizes = core__ints_of(size, &count);
    const int64_t *strides = core__ints_of(stride, &stride_count);
    core_status status;
    core_tensor *out;

    if (count != stride_count || count > CORE_MAX_NDIM)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "size has %zu entries and stride %zu; both must "
                              "have the same number, at most %d",
                              count, stride_count, CORE_MAX_NDIM);
    CORE_TRY(core__sizes_check(op, count, sizes));
    for (size_t i = 0; i < count; i++)
        if (strides[i] < 0)
            return core__op_error(CORE_ERROR_SHAPE, op,
                                  "stride %lld is negative",
                                  (long long)strides[i]);
    status = core__tensor_new(o->device, o->dtype, (uint32_t)count, sizes,
                              strides, &out);
    if (status == CORE_ERROR_OUT_OF_MEMORY) {
        core__op_prefix_memory(op, o->device);
    } else if (status != CORE_OK) {
        core__error_prefix("%s", core__operator_name(op));
    } else {
        core__result_tensor(result, out);
    }
    return status;
}

CORE__OP(empty_strided)
{
    options o;

    CORE_TRY(options_of(call->op, args, 2, core__dtype_default(), NULL, &o));
    return strided(call->op, &args[0], &args[1], &o, &results[0]);
}

CORE__OP(full)
{
    options o;
    core_tensor *out = NULL;

    CORE_TRY(
        options_of(call->op, args, 2, dtype_of_number(&args[1]), NULL, &o));
    return filled(call->op, empty_of(call->op, &args[0], &o, &out), &out,
                  &args[1], &results[0]);
}

static core_status constant(core_call *call, const core_value *args,
                            const core_scalar *value, core_value *result)
{
    options o;
    core_tensor *out = NULL;

    CORE_TRY(options_of(call->op, args, 1, core__dtype_default(), NULL, &o));
    return filled(call->op, empty_of(call->op, &args[0], &o, &out), &out, value,
                  result);
}

CORE__OP(zeros)
{
    return constant(call, args, NULL, &results[0]);
}

CORE__OP(ones)
{
    core_scalar one = core_int(1);

    return constant(call, args, &one, &results[0]);
}

CORE__OP(scalar_tensor)
{
    options o;
    core_tensor *out = NULL;

    CORE_TRY(options_of(call->op, args, 1, core__dtype_default(), NULL, &o));
    CORE_TRY(core__op_check_allocation(
        call->op, o.device,
        core__tensor_new(o.device, o.dtype, 0, NULL, NULL, &out)));
    return filled(call->op, CORE_OK, &out, &args[0], &results[0]);
}

/* The ends of an integer dtype are truncated before the powers are computed,
 * except a single one. */
CORE__COMPOSITE(logspace)
{
    core_scalar start = args[0], end = args[1];
    core_tensor *exponents;
    options o;

    CORE_TRY(options_of(call->op, args, 4, core__dtype_default(), NULL, &o));
    CORE_TRY(core__sizes_check(call->op, 1, &args[2].u.i));
    if (core__dtype_is_integer(o.dtype) && args[2].u.i != 1) {
        start = core_int(core__int_of(&args[0]));
        end = core_int(core__int_of(&args[1]));
    }
    exponents = CORE__DO(scope, core_linspace, start, end, args[2].u.i,
                         CORE_F64, o.device);
    exponents = CORE__DO(scope, core_pow_of_scalar,
                         core_float(core__double_of(&args[3])), exponents);
    return core__scope_result(scope, core__x_cast(scope, exponents, o.dtype),
                              &results[0]);
}

/* start + i step of 0, 1, … count - 1; exact for an integer dtype, whose start
 * and step are truncated. */
static core_tensor *stepped(core__scope *scope, const core_value *args,
                            int64_t count, const options *o)
{
    bool whole = core__dtype_is_integer(o->dtype);
    core_scalar start = args[0], step = args[2];
    core_tensor *x = CORE__DO(scope, core_arange, core_int(count),
                              whole ? CORE_I64 : CORE_F64, o->device);

    if (step.tag == CORE_VALUE_NONE)
        step = core_int(1);
    if (whole) {
        start = core_int(core__int_of(&start));
        step = core_int(core__int_of(&step));
    }
    x = CORE__DO(scope, core_mul_scalar, x, step);
    x = CORE__DO(scope, core_add_scalar, x, start, core_int(1));
    return core__x_cast(scope, x, o->dtype);
}

/* end - start, of the whole numbers for i64 */
static double distance_of(const core_value *args, core_dtype dtype)
{
    int64_t start = core__int_of(&args[0]), end = core__int_of(&args[1]);

    if (dtype != CORE_I64)
        return core__double_of(&args[1]) - core__double_of(&args[0]);
    return end < start ? -(double)((uint64_t)start - (uint64_t)end)
                       : (double)((uint64_t)end - (uint64_t)start);
}

/* range.step(start, end, step, …): start, start + step, … up to end, included.
 * Ends and step of i64 are truncated before they are counted. */
CORE__COMPOSITE(range_step)
{
    double start = core__double_of(&args[0]), end = core__double_of(&args[1]);
    double step =
        args[2].tag == CORE_VALUE_NONE ? 1 : core__double_of(&args[2]);
    double count;
    options o;

    CORE_TRY(options_of(call->op, args, 3, core__dtype_default(), NULL, &o));
    count =
        distance_of(args, o.dtype) / (o.dtype == CORE_I64 ? trunc(step) : step);
    count = floor(count) + 1;
    if (!(count >= 1 && count < 0x1p40) ||
        (core__dtype_is_integer(o.dtype) && trunc(step) == 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "start is %g, end %g and step %g; step must lead "
                              "from start to end, in less than 2^40 steps, and "
                              "be whole for integers",
                              start, end, step);
    return core__scope_result(scope, stepped(scope, args, (int64_t)count, &o),
                              &results[0]);
}

/* The number that a tensor without dimensions holds.  On the meta device it is
 * not known, and does not matter: only sizes are computed there. */
static core_status number_of(const core_operator *op, const char *name,
                             const core_value *value, const core_device *result,
                             core_scalar *out)
{
    core_tensor *tensor = value->u.tensor;

    *out = *value;
    if (value->tag != CORE_VALUE_TENSOR)
        return CORE_OK;
    if (tensor->ndim != 0)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "%s must have no dimensions, not %u", name,
                              tensor->ndim);
    *out = core_float(0);
    if (!tensor->storage && tensor->device == result)
        return CORE_OK;
    return core_item(tensor, out);
}

/* The ends of a range, numbers or tensors; the result is on the device of the
 * first tensor if none is given. */
static core_status ends_of(const core_operator *op, const core_value *args,
                           uint32_t first, options *o, core_scalar *ends)
{
    core_device *device = NULL;

    for (int i = 0; i < 2 && !device; i++)
        if (args[i].tag == CORE_VALUE_TENSOR)
            device = args[i].u.tensor->device;
    CORE_TRY(options_of(op, args, first, core__dtype_default(), device, o));
    CORE_TRY(number_of(op, "start", &args[0], o->device, &ends[0]));
    return number_of(op, "end", &args[1], o->device, &ends[1]);
}

/* linspace(start, end, steps, …) with a tensor for one end or both */
CORE__COMPOSITE(linspace_of_tensors)
{
    core_scalar ends[2];
    options o;

    CORE_TRY(ends_of(call->op, args, 3, &o, ends));
    return core__scope_result(scope,
                              CORE__DO(scope, core_linspace, ends[0], ends[1],
                                       args[2].u.i, o.dtype, o.device),
                              &results[0]);
}

/* logspace(start, end, steps, base, …) with a tensor for one end or both */
CORE__COMPOSITE(logspace_of_tensors)
{
    core_scalar ends[2];
    options o;

    CORE_TRY(ends_of(call->op, args, 4, &o, ends));
    return core__scope_result(scope,
                              CORE__DO(scope, core_logspace, ends[0], ends[1],
                                       args[2].u.i, core__double_of(&args[3]),
                                       o.dtype, o.device),
                              &results[0]);
}

/* --------------------------------------------------- like another tensor -- */

static core_status like(core_call *call, const core_value *args, uint32_t first,
                        const core_scalar *value, bool fill, core_value *result)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out = NULL;
    options o;

    CORE_TRY(options_of(call->op, args, first, self->dtype, self->device, &o));
    CORE_TRY(empty_like(call->op, self, &o, &args[first + 4], &out));
    if (fill)
        return filled(call->op, CORE_OK, &out, value, result);
    core__result_tensor(result, out);
    return CORE_OK;
}

CORE__OP(empty_like)
{
    return like(call, args, 1, NULL, false, &results[0]);
}

CORE__OP(zeros_like)
{
    return like(call, args, 1, NULL, true, &results[0]);
}

CORE__OP(ones_like)
{
    core_scalar one = core_int(1);

    return like(call, args, 1, &one, true, &results[0]);
}

CORE__OP(full_like)
{
    return like(call, args, 2, &args[1], true, &results[0]);
}

/* fill(self, value): a tensor like self, with one value */
CORE__COMPOSITE(fill_scalar)
{
    return core__scope_result(scope,
                              CORE__DO(scope, core_full_like, args[0].u.tensor,
                                       args[1], CORE_DTYPE_NONE, NULL, -1),
                              &results[0]);
}

static core_status new_of(core_call *call, const core_value *args,
                          uint32_t first, const core_scalar *value, bool fill,
                          core_value *result)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out = NULL;
    options o;

    CORE_TRY(options_of(call->op, args, first, self->dtype, self->device, &o));
    CORE_TRY(empty_of(call->op, &args[1], &o, &out));
    if (fill)
        return filled(call->op, CORE_OK, &out, value, result);
    core__result_tensor(result, out);
    return CORE_OK;
}

CORE__OP(new_empty)
{
    return new_of(call, args, 2, NULL, false, &results[0]);
}

CORE__OP(new_zeros)
{
    return new_of(call, args, 2, NULL, true, &results[0]);
}

CORE__OP(new_ones)
{
    core_scalar one = core_int(1);

    return new_of(call, args, 2, &one, true, &results[0]);
}

CORE__OP(new_full)
{
    return new_of(call, args, 3, &args[2], true, &results[0]);
}

CORE__OP(new_empty_strided)
{
    core_tensor *self = args[0].u.tensor;
    options o;

    CORE_TRY(options_of(call->op, args, 3, self->dtype, self->device, &o));
    return strided(call->op, &args[1], &args[2], &o, &results[0]);
}

/* -------------------------------------------------------------- random -- */

static core_status uniform(core_tensor *tensor, const core_value *generator)
{
    return core_uniform_(tensor, 0, 1, core__generator_of(generator));
}

static core_status normal(core_tensor *tensor, const core_value *generator)
{
    return core_normal_(tensor, 0, 1, core__generator_of(generator));
}

/* Takes over the reference. */
static core_status drawn(const core_operator *op, core_status status,
                         core_tensor *tensor, core_value *result)
{
    if (status != CORE_OK) {
        core__op_prefix_name(op);
        core__tensor_release(tensor);
        tensor = NULL;
    }
    core__result_tensor(result, tensor);
    return status;
}

static core_status random_of(core_call *call, const core_value *args,
                             core_status (*draw)(core_tensor *,
                                                 const core_value *),
                             core_value *result)
{
    options o;
    core_tensor *out;

    CORE_TRY(options_of(call->op, args, 2, core__dtype_default(), NULL, &o));
    CORE_TRY(empty_of(call->op, &args[0], &o, &out));
    return drawn(call->op, draw(out, &args[1]), out, result);
}

CORE__OP(rand)
{
    return random_of(call, args, uniform, &results[0]);
}

CORE__OP(randn)
{
    return random_of(call, args, normal, &results[0]);
}

/* normal.float_float(mean, std, size, *, generator, …) */
CORE__OP(normal_float_float)
{
    double std = core__arg_float(args, 1, 1);
    options o;
    core_tensor *out;

    CORE_TRY(options_of(call->op, args, 4, core__dtype_default(), NULL, &o));
    CORE_TRY(empty_of(call->op, &args[2], &o, &out));
    return drawn(call->op,
                 core_normal_(out, core__arg_float(args, 0, 0), std,
                              core__generator_of(&args[3])),
                 out, &results[0]);
}

static core_status random_like(core_call *call, const core_value *args,
                               core_status (*draw)(core_tensor *,
                                                   const core_value *),
                               core_value *result)
{
    static const core_value none;

    CORE_TRY(like(call, args, 1, NULL, false, result));
    return drawn(call->op, draw(result->u.tensor, &none), result->u.tensor,
                 result);
}

CORE__OP(rand_like)
{
    return random_like(call, args, uniform, &results[0]);
}

CORE__OP(randn_like)
{
    return random_like(call, args, normal, &results[0]);
}

/* random_ over [low, high) */
static core_status integers(const core_operator *op, core_tensor *tensor,
                            int64_t low, int64_t high,
                            core_generator *generator)
{
    if (low >= high)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "high is %lld; it must be above %lld",
                              (long long)high, (long long)low);
    return core_random_from_(tensor, low, &high, generator);
}

static core_status random_integers(core_call *call, const core_value *args,
                                   uint32_t at, int64_t low, int64_t high,
                                   core_value *result)
{
    options o;
    core_tensor *out;

    CORE_TRY(options_of(call->op, args, at + 2, CORE_I64, NULL, &o));
    CORE_TRY(empty_of(call->op, &args[at], &o, &out));
    return drawn(
        call->op,
        integers(call->op, out, low, high, core__generator_of(&args[at + 1])),
        out, result);
}

CORE__OP(randint)
{
    return random_integers(call, args, 1, 0, args[0].u.i, &results[0]);
}

CORE__OP(randint_low)
{
    return random_integers(call, args, 2, args[0].u.i, args[1].u.i,
                           &results[0]);
}

CORE__OP(randint_like)
{
    CORE_TRY(like(call, args, 2, NULL, false, &results[0]));
    return drawn(call->op,
                 integers(call->op, results[0].u.tensor, 0, args[1].u.i, NULL),
                 results[0].u.tensor, &results[0]);
}

/* The order that sorts random keys: ties are too rare in f64 to matter. */
CORE__COMPOSITE(randperm)
{
    int64_t n = args[0].u.i;
    core_tensor *keys;
    options o;

    CORE_TRY(options_of(call->op, args, 2, CORE_I64, NULL, &o));
    if (n < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "n is %lld; it must be 0 or more", (long long)n);
    CORE_TRY(core__sizes_check(call->op, 1, &n));
    keys = CORE__DO(scope, core_rand, &n, 1, core__generator_of(&args[1]),
                    CORE_F64, o.device);
    keys = CORE__DO(scope, core_argsort, keys, 0, false);
    return core__scope_result(scope, core__x_cast(scope, keys, o.dtype),
                              &results[0]);
}

CORE__OP(bernoulli_p)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out;

    CORE_TRY(core_empty_like(self, CORE_DTYPE_NONE, NULL, -1, &out));
    return drawn(call->op,
                 core_bernoulli_float_(out, core__double_of(&args[1]),
                                       core__generator_of(&args[2])),
                 out, &results[0]);
}
