/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Sums, means and maxima of bags of embedding rows, and the gradients.  A bag
 * is a run of indices, which begins at its offset. */

#include "device/device.h"
#include "ops/content_check.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>

#include <string.h>

enum { SUM = 0, MEAN = 1, MAX = 2 };

typedef struct bags {
    core_tensor *weight, *indices, *offsets, *scales;
    int64_t mode, padding;
    int64_t count;       /* of bags */
    bool by_frequency;   /* gradients are divided by how often a row occurs */
    core_tensor *bag;    /* of each index */
    core_tensor *padded; /* whether an index is to be left out, or NULL */
    core_tensor *after; /* whether an index is after the last offset, or NULL */
} bags;

static core_status check_indices(const core_operator *op, const char *name,
                                 const core_tensor *tensor)
{
    if (tensor->ndim == 1 &&
        (tensor->dtype == CORE_I64 || tensor->dtype == CORE_I32))
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "%s has %u dimensions and dtype %s; it must have 1, "
                          "and i64 or i32",
                          name, tensor->ndim, core__dtype_name(tensor->dtype));
}

static core_status check_bags(const core_operator *op, const bags *b,
                              bool sparse)
{
    if (b->weight &&
        (b->weight->ndim != 2 || !core__dtype_is_floating(b->weight->dtype)))
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "weight has %u dimensions and dtype %s; it must "
                              "be a matrix with a floating dtype",
                              b->weight->ndim,
                              core__dtype_name(b->weight->dtype));
    CORE_TRY(check_indices(op, "indices", b->indices));
    if (b->offsets)
        CORE_TRY(check_indices(op, "offsets", b->offsets));
    if (b->mode < SUM || b->mode > MAX)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "mode is %lld; it must be 0 (sum), 1 (mean) or 2 "
                              "(max)",
                              (long long)b->mode);
    if (sparse && (!b->weight ||
                   (core__tensor_requires_grad(b->weight) && core_grad_mode())))
        return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                              "sparse is true and a gradient is needed; sparse "
                              "gradients are not supported");
    if (b->scales && b->mode != SUM)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "per_sample_weights is given for mode %lld; only "
                              "mode 0 (sum) takes it",
                              (long long)b->mode);
    return core__sizes_check_equal(op, "per_sample_weights", b->scales, 1,
                                   b->indices->sizes);
}

/* The bag of each index: one less than the number of offsets up to it. */
static core_tensor *bag_of(core__scope *s, core_tensor *offsets,
                           core_tensor *indices, int64_t count)
{
    core_tensor *x = CORE__DO(s, core_arange, core_int(indices->numel),
                              offsets->dtype, indices->device);

    x = CORE__DO(s, core_searchsorted, core__x_slice(s, offsets, 0, 0, count),
                 x, offsets->dtype == CORE_I32, true, NULL, NULL);
    return CORE__DO(s, core_sub_scalar, x, core_int(1), core_int(1));
}

static core_tensor *padding_of(core__scope *s, const bags *b)
{
    if (b->padding < 0)
        return NULL;
    return CORE__DO(s, core_eq_scalar, b->indices, core_int(b->padding));
}

/* The number of indices in each bag, without padding. */
static core_tensor *lengths_of(core__scope *s, const bags *b)
{
    core_tensor *ones =
        CORE__DO(s, core_ones_like, b->bag, CORE_DTYPE_NONE, NULL, -1);

    if (b->padded)
        ones = core__x_zero_where(s, ones, b->padded);
    return CORE__DO(s, core_index_add,
                    core__x_new_zeros(s, b->bag, &b->count, 1), 0, b->bag, ones,
                    core_int(1));
}

/* One row for each index, in the dtype of sums. */
static core_tensor *rows_of(core__scope *s, const bags *b)
{
    core_dtype dtype = b->weight->dtype;
    core_tensor *x = CORE__DO(s, core_embedding, b->weight, b->indices, -1,
                              b->by_frequency, false);

    if (dtype == CORE_F16 || dtype == CORE_BF16)
        x = core__x_cast(s, x, CORE_F32);
    if (b->scales)
        x = core__x_mul(s, x, core__x_unsqueeze(s, b->scales, 1));
    return x;
}

static core_tensor *summed(core__scope *s, const bags *b, core_tensor *lengths)
{
    core_tensor *x = rows_of(s, b);
    int64_t sizes[2] = {b->count, b->weight->sizes[1]};

    if (b->padded)
        x = core__x_zero_where(s, x, core__x_unsqueeze(s, b->padded, 1));
    if (b->after)
        x = core__x_zero_where(s, x, core__x_unsqueeze(s, b->after, 1));
    x = CORE__DO(s, core_index_add, core__x_new_zeros(s, x, sizes, 2), 0,
                 b->bag, x, core_int(1));
    if (b->mode == MEAN) {
        lengths = CORE__DO(s, core_clamp_min, lengths, core_int(1));
        x = core__x_div(s, x, core__x_unsqueeze(s, lengths, 1));
    }
    return core__x_cast(s, x, b->weight->dtype);
}

/* The row that each maximum is taken from: the first one, 0 in empty bags. */
static core_tensor *places_of(core__scope *s, const bags *b, core_tensor *rows,
                              core_tensor *largest, core_tensor *bag)
{
    int64_t n = b->indices->numel;
    int64_t sizes[2] = {b->count + 1, b->weight->sizes[1]};
    core_tensor *at, *other, *place;

    other =
        core__x_ne(s, rows, CORE__DO(s, core_gather, largest, 0, bag, false));
    at = core__x_unsqueeze(s, core__x_arange(s, rows, n), 1);
    at = CORE__DO(s, core_expand, at, (const int64_t[]){n, sizes[1]}, 2, false);
    at = CORE__DO(s, core_masked_fill, at, other, core_int(n));
    place = CORE__DO(s, core_new_full, at, sizes, 2, core_int(n),
                     CORE_DTYPE_NONE, NULL);
    place = CORE__DO(s, core_scatter_reduce, place, 0, bag, at, "amin", true);
    /* One more index, for bags without a maximum. */
    at = CORE__DO(s, core_constant_pad_nd, b->indices, (const int64_t[]){0, 1},
                  2, core_int(0));
    at = CORE__DO(s, core_index_select, at, 0,
                  core__x_reshape(s, place, (const int64_t[]){-1}, 1));
    return core__x_reshape(s, at, sizes, 2);
}

/* The greatest of each bag, 0 for an empty one, taken from the row of the first
 * maximum: only that row gets the gradient. */
static core_tensor *greatest(core__scope *s, const bags *b,
                             core_tensor *lengths, core_tensor **out_places)
{
    core_tensor *weight = core__x_detach(s, b->weight);
    core_tensor *rows =
        CORE__DO(s, core_embedding, weight, b->indices, -1, false, false);
    int64_t sizes[2] = {b->count, b->weight->sizes[1]};
    core_tensor *bag =
        core__x_cast(s, core__x_unsqueeze(s, b->bag, 1), CORE_I64);
    core_tensor *x = rows;
    core_tensor *none;

    bag = CORE__DO(s, core_expand, bag,
                   (const int64_t[]){b->indices->numel, sizes[1]}, 2, false);
    if (b->padded) {
        /* Padded rows count for a bag of their own. */
        none = core__x_unsqueeze(s, b->padded, 1);
        bag = CORE__DO(s, core_masked_fill, bag, none, core_int(b->count));
    }
    sizes[0]++;
    x = CORE__DO(s, core_scatter_reduce, core__x_new_zeros(s, rows, sizes, 2),
                 0, bag, rows, "amax", false);
    *out_places =
        core__x_slice(s, places_of(s, b, rows, x, bag), 0, 0, b->count);
    x = CORE__DO(s, core_gather, b->weight, 0,
                 core__x_cast(s, *out_places, CORE_I64), false);
    none = CORE__DO(s, core_le_scalar, lengths, core_int(0));
    return core__x_zero_where(s, x, core__x_unsqueeze(s, none, 1));
}

static bags bags_of(const core_value *args)
{
    return (bags){.weight = args[0].u.tensor,
                  .indices = args[1].u.tensor,
                  .offsets = args[2].u.tensor,
                  .by_frequency = core__arg_bool(args, 3, false),
                  .scales = core__tensor_of(&args[6]),
                  .mode = core__arg_int(args, 4, SUM),
                  .padding = core__arg_int(args, 8, -1)};
}

/* Whether the reference omits the bag of each index: sums of f32, f16 and bf16
 * rows without padding. */
static bool omits_bags(const bags *b)
{
    return b->mode == SUM && b->padding < 0 && b->weight->dtype != CORE_F64;
}

/* On the host's device, where reading does not wait. */
static core_status check_offsets(const core_operator *op, const bags *b)
{
    if (b->offsets->numel == 0 || !core__device_host_access(b->offsets->device))
        return CORE_OK;
    return core__content_check(op, CORE__CHECK_OFFSETS, b->offsets,
                               b->indices->numel);
}

/* Sets the bag of each index, and which indices are left out.  If the last offset
 * ends the last bag, sums end there; the divisor of a mean and a maximum count
 * what is after it, as in PyTorch. */
static void set_bags(core__scope *s, bags *b, bool ends)
{
    b->bag = bag_of(s, b->offsets, b->indices, b->offsets->numel);
    b->padded = padding_of(s, b);
    if (!ends)
        return;
    b->after = CORE__DO(s, core_ge_scalar, b->bag, core_int(b->count));
    b->bag =
        CORE__DO(s, core_masked_fill, b->bag, b->after, core_int(b->count - 1));
}

static core_status gathered(core__scope *scope, const core_operator *op,
                            const core_value *args, bool forward_only,
                            core_value *results)
{
    bags b = bags_of(args);
    bool ends = core__arg_bool(args, 7, false);
    core_tensor *lengths, *places, *out, *bag;

    CORE_TRY(check_bags(op, &b, core__arg_bool(args, 5, false)));
    b.count = b.offsets->numel - ends;
    if (b.count < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "offsets has no elements and include_last_offset "
                              "is true; it must have at least the last offset");
    if (b.padding >= b.weight->sizes[0])
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "padding_idx is %lld, and weight has %lld rows; "
                              "it must be less than that",
                              (long long)b.padding,
                              (long long)b.weight->sizes[0]);
    CORE_TRY(check_offsets(op, &b));
    if (ends && b.count == 0) {
        /* All indices are after the last offset, and there is no bag. */
        b.indices = core__x_slice(scope, b.indices, 0, 0, 0);
        if (b.scales)
            b.scales = core__x_slice(scope, b.scales, 0, 0, 0);
    }
    set_bags(scope, &b, ends);
    bag = b.bag;
    lengths =
        b.mode == SUM
            ? core__x_new_zeros(scope, b.bag,
                                forward_only ? b.offsets->sizes : &b.count, 1)
            : lengths_of(scope, &b);
    places = lengths;
    out = b.mode == MAX ? greatest(scope, &b, lengths, &places)
                        : summed(scope, &b, lengths);
    if (b.mode != MAX)
        places = CORE__DO(scope, core_clone, places, -1);
    if (omits_bags(&b))
        bag = core__x_new_zeros(scope, bag, (const int64_t[]){0}, 1);
    CORE_TRY(core__scope_result(scope, out, &results[0]));
    CORE_TRY(core__scope_result(scope, bag, &results[1]));
    CORE_TRY(core__scope_result(scope, lengths, &results[2]));
    return core__scope_result(scope, places, &results[3]);
}

/* _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse,
 * per_sample_weights, include_last_offset, padding_idx) -> (output, offset2bag,
 * bag_size, maximum_indices) */
CORE__COMPOSITE(embedding_bag_forward)
{
    return gathered(scope, call->op, args, false, results);
}

/* The same, but the zeros that sums return as bag_size and maximum_indices
 * count the last offset. */
CORE__COMPOSITE(embedding_bag_forward_only)
{
    return gathered(scope, call->op, args, true, results);
}

/* embedding_bag and embedding_bag.padding_idx(…, padding_idx): the first has no
 * padding_idx, and counts as -1; of the second a negative number counts from the
 * end. */
CORE__COMPOSITE(embedding_bag)
{
    core_value own[9];
    const core_tensor *weight = args[0].u.tensor;

    memcpy(own, args, 8 * sizeof *own);
    own[8] = core_int(-1);
    if (strchr(call->op->data->name, '.') && args[8].tag == CORE_VALUE_INT) {
        int64_t rows = weight->ndim > 0 ? weight->sizes[0] : 0;

        if (args[8].u.i < -rows || args[8].u.i >= rows)
            return core__op_error(CORE_ERROR_INDEX, call->op,
                                  "padding_idx is %lld for a weight of %lld "
                                  "rows",
                                  (long long)args[8].u.i, (long long)rows);
        own[8] = core_int(args[8].u.i < 0 ? args[8].u.i + rows : args[8].u.i);
    }
    return core_op_invoke_on(&core__operators[CORE_OP_EMBEDDING_BAG], own, 9,
                             results, 4);
}

/* ------------------------------------------------------------ gradients -- */

/* Adds the gradient of each maximum to the row that it comes from. */
static core_tensor *largest_spread(core__scope *s, core_tensor *grad,
                                   core_tensor *lengths, core_tensor *places,
                                   int64_t rows)
{
    core_tensor *empty = core__x_unsqueeze(
        s, CORE__DO(s, core_le_scalar, lengths, core_int(0)), 1);

    grad = core__x_zero_where(s, grad, empty);
    return CORE__DO(
        s, core_scatter_add,
        core__x_new_zeros(s, grad, (const int64_t[]){rows, grad->sizes[1]}, 2),
        0, core__x_cast(s, places, CORE_I64), grad);
}

/* The gradient of each index's row. */
static core_tensor *rows_spread(core__scope *s, const bags *b,
                                core_tensor *grad, core_tensor *lengths)
{
    core_tensor *x;

    if (b->mode == MEAN)
        grad = core__x_div(
            s, grad,
            core__x_unsqueeze(
                s, CORE__DO(s, core_clamp_min, lengths, core_int(1)), 1));
    x = CORE__DO(s, core_index_select, grad, 0, b->bag);
    if (b->scales)
        x = core__x_mul(s, x, core__x_unsqueeze(s, b->scales, 1));
    return x;
}

typedef struct spread {
    core_tensor *grad, *lengths, *places;
    int64_t rows;
    bool by_frequency;
} spread;

static core_status spread_back(core__scope *scope, const core_operator *op,
                               const bags *b, const spread *job,
                               core_value *result)
{
    core_tensor *x;

    if (job->grad->ndim != 2 || job->rows < 0)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "grad has %u dimensions and num_weights is %lld; "
                              "grad must have 2, and num_weights be 0 or more",
                              job->grad->ndim, (long long)job->rows);
    if (b->mode == MAX) {
        x = largest_spread(scope, job->grad, job->lengths, job->places,
                           job->rows);
        return core__scope_result(scope, x, result);
    }
    x = rows_spread(scope, b, job->grad, job->lengths);
    x = CORE__DO(scope, core_embedding_dense_backward, x, b->indices, job->rows,
                 b->padding, job->by_frequency);
    return core__scope_result(scope, x, result);
}

/* _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size,
 * maximum_indices, num_weights, scale_grad_by_freq, mode, sparse,
 * per_sample_weights, padding_idx) */
CORE__COMPOSITE(embedding_bag_backward)
{
    bags b = {.indices = args[1].u.tensor,
              .offsets = args[2].u.tensor,
              .scales = core__tensor_of(&args[10]),
              .mode = args[8].u.i,
              .padding = core__arg_int(args, 11, -1)};
    spread job = {args[0].u.tensor, args[4].u.tensor, args[5].u.tensor,
                  args[6].u.i, core__arg_bool(args, 7, false)};

    CORE_TRY(check_bags(call->op, &b, core__arg_bool(args, 9, false)));
    b.bag = args[3].u.tensor;
    if (b.bag->numel != b.indices->numel)
        b.bag =
            bag_of(scope, b.offsets, b.indices,
                   job.grad->ndim > 0 && job.grad->sizes[0] < b.offsets->numel
                       ? job.grad->sizes[0]
                       : b.offsets->numel);
    return spread_back(scope, call->op, &b, &job, &results[0]);
}

/* _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size,
 * maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights,
 * padding_idx) */
CORE__COMPOSITE(embedding_bag_dense_backward)
{
    bags b = {.indices = args[1].u.tensor,
              .bag = args[2].u.tensor,
              .scales = core__tensor_of(&args[8]),
              .mode = args[7].u.i,
              .padding = core__arg_int(args, 9, -1)};
    spread job = {args[0].u.tensor, args[3].u.tensor, args[4].u.tensor,
                  args[5].u.i, core__arg_bool(args, 6, false)};

    CORE_TRY(check_bags(call->op, &b, false));
    CORE_TRY(check_indices(call->op, "offset2bag", b.bag));
    return spread_back(scope, call->op, &b, &job, &results[0]);
}

/* _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets,
 * offset2bag, mode, padding_idx): the product of each index's row with the
 * gradient of its bag */
CORE__COMPOSITE(embedding_bag_per_sample_weights_backward)
{
    core_tensor *grad = args[0].u.tensor;
    bags b = {.weight = args[1].u.tensor,
              .indices = args[2].u.tensor,
              .offsets = args[3].u.tensor,
              .bag = args[4].u.tensor,
              .mode = args[5].u.i,
              .padding = core__arg_int(args, 6, -1)};
    core_tensor *x;

    CORE_TRY(check_bags(call->op, &b, false));
    if (b.mode != SUM || grad->ndim != 2)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "mode is %lld and grad has %u dimensions; mode "
                              "must be 0 (sum), and grad have 2",
                              (long long)b.mode, grad->ndim);
    if (b.bag->numel != b.indices->numel)
        b.bag = bag_of(scope, b.offsets, b.indices,
                       grad->sizes[0] < b.offsets->numel ? grad->sizes[0]
                                                         : b.offsets->numel);
    x = core__x_mul(scope, rows_of(scope, &b),
                    CORE__DO(scope, core_index_select, grad, 0, b.bag));
    x = core__x_sum_dim(scope, x, (const int64_t[]){1}, 1, false);
    b.padded = padding_of(scope, &b);
    if (b.padded)
        x = core__x_zero_where(scope, x, b.padded);
    return core__scope_result(scope, core__x_cast(scope, x, grad->dtype),
                              &results[0]);
}
