/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Padding by the name of its mode, and circular padding.  A list of paddings
 * begins with the two of the last dimension. */

#include "ops/expression.h"
#include "ops/shape.h"

#include <string.h>

enum { REFLECT, REPLICATE, CIRCULAR, CONSTANT };

/* Each padded dimension gets its end in front and its beginning behind, after
 * negative numbers have taken elements away. */
static core_tensor *circular(core__scope *scope, const core_operator *op,
                             core_tensor *x, const int64_t *pad, size_t count)
{
    for (size_t i = 0; 2 * i < count && scope->status == CORE_OK; i++) {
        int64_t dim = (int64_t)x->ndim - 1 - (int64_t)i;
        int64_t before = pad[2 * i], after = pad[2 * i + 1];
        int64_t first = before < -INT32_MAX ? INT32_MAX
                        : before < 0        ? -before
                                            : 0;
        int64_t end = x->sizes[dim] + (after < -INT32_MAX ? 0
                                       : after < 0        ? after
                                                          : 0);
        core_tensor *parts[3];
        size_t n = 0;

        if (before > INT32_MAX || after > INT32_MAX || before < -INT32_MAX ||
            after < -INT32_MAX || end < first || before > end - first ||
            after > end - first) {
            core__scope_add(
                scope,
                core__op_error(CORE_ERROR_SHAPE, op,
                               "pad is %lld and %lld for a dimension of size "
                               "%lld; neither may be greater than what "
                               "negative numbers leave of the size",
                               (long long)before, (long long)after,
                               (long long)x->sizes[dim]));
            return NULL;
        }
        if (before > 0)
            parts[n++] = core__x_slice(scope, x, dim, end - before, end);
        parts[n++] = core__x_slice(scope, x, dim, first, end);
        if (after > 0)
            parts[n++] = core__x_slice(scope, x, dim, first, first + after);
        x = n == 1 ? parts[0] : CORE__DO(scope, core_cat, parts, n, dim);
    }
    return x;
}

static core_status check_circular(const core_operator *op,
                                  const core_tensor *self, size_t count)
{
    if (count % 2 == 0 && count / 2 < self->ndim)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "pad has %zu numbers and self %u dimensions; two "
                          "numbers are given for each padded dimension, and "
                          "the first dimension is not padded",
                          count, self->ndim);
}

/* _pad_circular(self, pad) */
CORE__COMPOSITE(pad_circular)
{
    size_t count;
    const int64_t *pad = core__ints_of(&args[1], &count);
    core_tensor *x = args[0].u.tensor;

    CORE_TRY(check_circular(call->op, x, count));
    return core__scope_result(scope, circular(scope, call->op, x, pad, count),
                              &results[0]);
}

/* Reflection and replication exist for one to three dimensions, each with a
 * batch and without. */
static core_status by_operator(core__scope *scope, const core_operator *op,
                               core_tensor *x, const int64_t *pad, size_t count,
                               bool reflect, core_value *result)
{
    static core_status (*const operators[2][3])(core_tensor *, const int64_t *,
                                                size_t, core_tensor **) = {
        {core_replication_pad1d, core_replication_pad2d,
         core_replication_pad3d},
        {core_reflection_pad1d, core_reflection_pad2d, core_reflection_pad3d},
    };
    size_t dims = count / 2;

    if (count % 2 || dims < 1 || dims > 3 ||
        (x->ndim != dims + 1 && x->ndim != dims + 2))
        return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                              "pad has %zu numbers and self %u dimensions; "
                              "this mode pads the last 1, 2 or 3 dimensions of "
                              "tensors with one or two more",
                              count, x->ndim);
    return core__scope_result(
        scope, CORE__DO(scope, operators[reflect][dims - 1], x, pad, count),
        result);
}

static core_status padded(core__scope *scope, const core_operator *op,
                          const core_value *args, int64_t mode,
                          core_value *result)
{
    size_t count;
    const int64_t *pad = core__ints_of(&args[1], &count);
    core_tensor *x = args[0].u.tensor;

    if (mode == CONSTANT) {
        core_scalar value = args[3].tag == CORE_VALUE_NONE
                                ? core_float(0)
                                : core_float(core__double_of(&args[3]));

        return core__scope_result(
            scope, CORE__DO(scope, core_constant_pad_nd, x, pad, count, value),
            result);
    }
    if (args[3].tag != CORE_VALUE_NONE && core__double_of(&args[3]) != 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "value is %g; only constant padding has a value",
                              core__double_of(&args[3]));
    if (mode == CIRCULAR) {
        CORE_TRY(check_circular(op, x, count));
        return core__scope_result(scope, circular(scope, op, x, pad, count),
                                  result);
    }
    return by_operator(scope, op, x, pad, count, mode == REFLECT, result);
}

/* pad(self, pad, mode, value): mode is constant, reflect, replicate or
 * circular */
CORE__COMPOSITE(pad)
{
    static const char *const modes[] = {"reflect", "replicate", "circular",
                                        "constant"};
    const char *mode =
        args[2].tag == CORE_VALUE_NONE ? modes[CONSTANT] : args[2].u.string;

    for (int64_t i = REFLECT; i <= CONSTANT; i++)
        if (strcmp(mode, modes[i]) == 0)
            return padded(scope, call->op, args, i, &results[0]);
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                          "mode is \"%s\"; it must be constant, reflect, "
                          "replicate or circular",
                          mode);
}

/* _pad_enum(self, pad, mode, value): mode is 0 (reflect), 1 (replicate), 2
 * (circular) or 3 (constant). */
CORE__COMPOSITE(pad_enum)
{
    int64_t mode = args[2].u.i;

    if (mode < REFLECT || mode > CONSTANT)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "mode is %lld; it must be from 0 to 3",
                              (long long)mode);
    return padded(scope, call->op, args, mode, &results[0]);
}
