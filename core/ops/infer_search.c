/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for searches in sorted rows, histograms, and operators that find
 * equal elements. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

static core_status check_dtype(const core_operator *op, const char *name,
                               const core_tensor *tensor, core_dtype dtype)
{
    if (!tensor || tensor->dtype == dtype)
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, op, "%s is %s; it must be %s", name,
                          core__dtype_name(tensor->dtype),
                          core__dtype_name(dtype));
}

/* --------------------------------------------------------------- search -- */

static void places(core__inference *infer, const core_tensor *wanted)
{
    core__result_set(&infer->results[0],
                     core__arg_bool(infer->args, 2, false) ? CORE_I32
                                                           : CORE_I64,
                     wanted->ndim, wanted->sizes);
}

/* bucketize(self, boundaries, *, out_int32, right) */
CORE__INFER(bucketize)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *boundaries = core__arg_tensor(infer->args, 1);

    if (boundaries->ndim != 1)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "boundaries must have 1 dimension, not %u",
                              boundaries->ndim);
    places(infer, self);
    return CORE_OK;
}

/* side "right" means the same as the argument right. */
static core_status check_side(core__inference *infer)
{
    const char *side;

    if (infer->args[4].tag != CORE_VALUE_STRING)
        return CORE_OK;
    side = infer->args[4].u.string;
    if (strcmp(side, "right") == 0)
        return CORE_OK;
    if (strcmp(side, "left") != 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "side must be \"left\" or \"right\", not \"%s\"",
                              side);
    if (core__arg_bool(infer->args, 3, false))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "side is \"left\" and right is true, which contradict each other");
    return CORE_OK;
}

/* searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter) */
CORE__INFER(searchsorted)
{
    const core_tensor *rows = core__arg_tensor(infer->args, 0);
    const core_tensor *self = core__arg_tensor(infer->args, 1);
    const core_tensor *sorter = core__arg_tensor(infer->args, 5);
    core_tensor around = {.ndim = rows->ndim ? (uint8_t)(rows->ndim - 1) : 0,
                          .sizes = rows->sizes};

    CORE_TRY(check_side(infer));
    CORE_TRY(check_dtype(infer->op, "sorter", sorter, CORE_I64));
    CORE_TRY(core__sizes_check_equal(infer->op, "sorter", sorter, rows->ndim,
                                     rows->sizes));
    if (rows->ndim == 0)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "sorted_sequence has no dimensions; it must have at least 1");
    if (rows->ndim > 1) {
        if (self->ndim != rows->ndim)
            return core__op_error(CORE_ERROR_SHAPE, infer->op,
                                  "self must have the %u dimensions of "
                                  "sorted_sequence, not %u",
                                  rows->ndim, self->ndim);
        CORE_TRY(core__sizes_check_equal(
            infer->op, "sorted_sequence, without its last dimension,", &around,
            rows->ndim - 1, self->sizes));
    }
    places(infer, self);
    return CORE_OK;
}

/* ----------------------------------------------------------- histograms -- */

static core_status counted(core__inference *infer, const core_tensor *self,
                           int64_t bins)
{
    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "self must have a floating dtype, not %s",
                              core__dtype_name(self->dtype));
    if (bins < 1)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "bins is %lld; there must be at least one",
                              (long long)bins);
    CORE_TRY(core__size_operand_check(infer->op, "bins", bins));
    core__result_set(&infer->results[0], self->dtype, 1, &bins);
    return CORE_OK;
}

static core_status check_range(const core__inference *infer, double low,
                               double high)
{
    core_dtype dtype = core__arg_tensor(infer->args, 0)->dtype;
    double largest = core__dtype_largest(dtype);

    if (isfinite(low) && isfinite(high) && low >= -largest && low <= high &&
        high <= largest)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "the range is from %g to %g; its ends must be finite "
                          "in %s and in ascending order",
                          low, high, core__dtype_name(dtype));
}

/* histc(self, bins, min, max) */
CORE__INFER(histc)
{
    CORE_TRY(check_range(infer, core__double_of(&infer->args[2]),
                         core__double_of(&infer->args[3])));
    return counted(infer, core__arg_tensor(infer->args, 0), infer->args[1].u.i);
}

static core_status weighted(const core_operator *op, const core_tensor *self,
                            const core_tensor *weight)
{
    CORE_TRY(check_dtype(op, "weight", weight, self->dtype));
    return core__sizes_check_equal(op, "weight", weight, self->ndim,
                                   self->sizes);
}

/* histogram.bin_ct(self, bins, *, range, weight, density) */
CORE__INFER(histogram)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_value *range = &infer->args[2];
    int64_t edges = infer->args[1].u.i;

    if (range->tag != CORE_VALUE_NONE) {
        if (range->tag != CORE_VALUE_FLOAT_LIST || range->count != 2)
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, infer->op,
                "range must have 2 entries, the lowest and the highest edge");
        CORE_TRY(check_range(infer, range->u.floats[0], range->u.floats[1]));
    }
    CORE_TRY(weighted(infer->op, self, core__arg_tensor(infer->args, 3)));
    CORE_TRY(counted(infer, self, edges));
    edges++;
    core__result_set(&infer->results[1], self->dtype, 1, &edges);
    return CORE_OK;
}

/* histogram.bins_tensor(self, bins, *, weight, density) */
CORE__INFER(histogram_bins)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *bins = core__arg_tensor(infer->args, 1);

    if (bins->ndim != 1)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "bins must have 1 dimension, not %u", bins->ndim);
    CORE_TRY(check_dtype(infer->op, "bins", bins, self->dtype));
    CORE_TRY(weighted(infer->op, self, core__arg_tensor(infer->args, 2)));
    CORE_TRY(counted(infer, self, bins->numel - 1));
    core__result_set(&infer->results[1], bins->dtype, 1, bins->sizes);
    return CORE_OK;
}

/* bincount(self, weights, minlength): only checks, as the result depends on the
 * content of self */
CORE__INFER(bincount)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *weights = core__arg_tensor(infer->args, 1);

    if (self->ndim != 1)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self must have 1 dimension, not %u", self->ndim);
    if (core__dtype_is_floating(self->dtype) || self->dtype == CORE_BOOL)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "self must have an integer dtype, not %s",
                              core__dtype_name(self->dtype));
    if (infer->args[2].u.i < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "minlength is %lld; it must be 0 or more",
                              (long long)infer->args[2].u.i);
    CORE_TRY(
        core__size_operand_check(infer->op, "minlength", infer->args[2].u.i));
    return core__sizes_check_equal(infer->op, "weights", weights, 1,
                                   self->sizes);
}

/* ------------------------------------------------------- equal elements -- */

/* unique_consecutive(self, return_inverse, return_counts, dim): only checks */
CORE__INFER(unique_consecutive)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t dim;

    if (infer->args[3].tag == CORE_VALUE_NONE)
        return CORE_OK;
    return core__dim_wrap(infer->op, infer->args[3].u.i, self->ndim, &dim);
}
