/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ elements -- */

static double from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int mantissa = bits & 1023;
    double value;

    if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, -24);
    else
        value = ldexp(mantissa | 1024, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static core_scalar load(core_dtype dtype, const unsigned char *from)
{
    uint64_t wide = 0;
    uint32_t single;
    uint16_t half;
    float f32;
    double f64;

    switch (dtype) {
    case CORE_F64:
        memcpy(&f64, from, 8);
        return core_float(f64);
    case CORE_F32:
        memcpy(&f32, from, 4);
        return core_float(f32);
    case CORE_F16:
        memcpy(&half, from, 2);
        return core_float(from_half(half));
    case CORE_BF16:
        memcpy(&half, from, 2);
        single = (uint32_t)half << 16;
        memcpy(&f32, &single, 4);
        return core_float(f32);
    case CORE_I64:
        memcpy(&wide, from, 8);
        return core_int((int64_t)wide);
    case CORE_I32:
        memcpy(&wide, from, 4);
        return core_int((int32_t)wide);
    case CORE_I16:
        memcpy(&wide, from, 2);
        return core_int((int16_t)wide);
    case CORE_I8:
        return core_int((int8_t)*from);
    case CORE_BOOL:
        return core_bool(*from != 0);
    default:
        return core_int(*from);
    }
}

core_scalar golden_element(const golden_tensor *tensor, const int64_t *index)
{
    int64_t at = tensor->offset;

    for (uint32_t d = 0; d < tensor->ndim; d++)
        at += index[d] * tensor->strides[d];
    return load(tensor->dtype,
                tensor->storage + at * core_dtype_size(tensor->dtype));
}

void make_dense(golden_tensor *tensor)
{
    tensor->offset = 0;
    tensor->numel = 1;
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        tensor->strides[d] = tensor->numel;
        tensor->numel *= tensor->sizes[d];
    }
}

/* ----------------------------------------------------------- tolerance -- */

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Prefixes of the names of operators that add many elements. */
static const char *const summing_operators[] = {
    "mm",
    "bmm",
    "addmm",
    "addmv",
    "addbmm",
    "baddbmm",
    "addr",
    "mv",
    "dot",
    "vdot",
    "matmul",
    "linear",
    "convolution",
    "conv",
    "linalg_",
    "cholesky",
    "triangular_solve",
    "lu",
    "sum",
    "nansum",
    "mean",
    "nanmean",
    "prod",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "std",
    "var",
    "norm",
    "logsumexp",
    "trace",
    "dist",
    "_cdist",
    "_pdist",
    "cdist",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
    "_softmax",
    "_log_softmax",
    "softmax",
    "log_softmax",
    "mse_loss",
    "nll_loss",
    "binary_cross_entropy",
    "huber_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "avg_pool",
    "_adaptive_avg_pool",
    "adaptive_avg_pool",
    "upsample_",
    "grid_sampler",
    "index_add",
    "index_reduce",
    "segment_reduce",
    "scatter_add",
    "scatter_reduce",
    "scatter.reduce",
    "embedding_bag",
    "kl_div",
    "renorm",
    "trapezoid",
    "cov",
    "einsum",
    "tensordot",
    "inner",
    "kron",
    "cumulative",
    "unfold",
    "_embedding_bag",
    "_unsafe_masked_index_put_accumulate",
    "_upsample_",
    "multi_margin_loss",
    "multilabel",
    "ctc_loss",
    "_ctc_loss",
    "bilinear",
    "_trilinear",
};

bool operator_sums(const char *name)
{
    for (size_t i = 0; i < sizeof summing_operators / sizeof *summing_operators;
         i++)
        if (begins(name, summing_operators[i]))
            return true;
    return false;
}

static bool is_half(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16;
}

bool recording_rounds(const char *name, core_dtype dtype)
{
    if (is_half(dtype))
        return operator_sums(name);
    return dtype == CORE_F32 && (strcmp(name, "linalg_matrix_exp") == 0 ||
                                 strcmp(name, "polygamma") == 0);
}

/* Prefixes of the names of operators whose recordings in f64 have errors above
 * the tolerance: polynomials of few terms, and 1 / 6 in f32. */
static const struct {
    const char *name;
    double error;
} inexact[] = {
    {"special_bessel_", 1e-6},
    {"special_airy_ai", 1e-7},
    {"hardsigmoid", 2e-8},
};

static tolerance tolerance_in_f64(const char *name)
{
    for (size_t i = 0; i < sizeof inexact / sizeof *inexact; i++)
        if (begins(name, inexact[i].name))
            return (tolerance){inexact[i].error, inexact[i].error};
    return (tolerance){1e-9, 1e-9};
}

tolerance tolerance_of(const char *name, core_dtype dtype, bool derived)
{
    switch (dtype) {
    case CORE_F64:
        return tolerance_in_f64(name);
    case CORE_F32:
        if (derived || operator_sums(name))
            return (tolerance){1e-4, 1e-4};
        return (tolerance){1e-5, 1.3e-5};
    case CORE_F16:
        return (tolerance){1e-3, 1e-3};
    case CORE_BF16:
        return (tolerance){1.6e-2, 1e-2};
    default:
        return (tolerance){0, 0};
    }
}

/* ---------------------------------------------------------------- ties -- */

/* Operators that return positions in argument 0: the result with them, and the
 * argument that names the dimension. */
static const struct {
    const char *name;
    uint32_t result;
    uint32_t dim;
    uint32_t planes; /* > 0: positions within the last `planes` dimensions */
} selections[] = {
    {"argmax", 0, 1, 0},
    {"argmin", 0, 1, 0},
    {"argsort", 0, 1, 0},
    {"max.dim", 1, 1, 0},
    {"min.dim", 1, 1, 0},
    {"median.dim", 1, 1, 0},
    {"nanmedian.dim", 1, 1, 0},
    {"mode", 1, 1, 0},
    {"kthvalue", 1, 2, 0},
    {"topk", 1, 2, 0},
    {"sort", 1, 1, 0},
    {"sort.stable", 1, 2, 0},
    {"cummax", 1, 1, 0},
    {"cummin", 1, 1, 0},
    {"adaptive_max_pool1d", 1, 0, 1},
    {"adaptive_max_pool2d", 1, 0, 2},
    {"adaptive_max_pool3d", 1, 0, 3},
    {"max_pool2d_with_indices", 1, 0, 2},
    {"max_pool3d_with_indices", 1, 0, 3},
    {"fractional_max_pool2d", 1, 0, 2},
    {"fractional_max_pool3d", 1, 0, 3},
};

/* Operators that return vectors whose signs are undefined. */
static const struct {
    const char *name;
    uint32_t result, vectors;
} decompositions[] = {
    {"_linalg_eigh", 1, VECTORS_COLUMNS},
    {"_linalg_svd", 0, VECTORS_COLUMNS},
    {"_linalg_svd", 2, VECTORS_ROWS},
};

ties ties_of(const golden_case *the_case, size_t result)
{
    const golden_tensor *source;
    const golden_argument *dim;
    int64_t at;
    size_t i = 0;

    for (; i < sizeof decompositions / sizeof *decompositions; i++)
        if (decompositions[i].result == result &&
            strcmp(decompositions[i].name, the_case->name) == 0)
            return the_case->results.at[result].ndim < 2
                       ? (ties){0}
                       : (ties){.vectors = decompositions[i].vectors,
                                .result = (uint32_t)result};
    i = 0;
    while (i < sizeof selections / sizeof *selections &&
           (strcmp(selections[i].name, the_case->name) != 0 ||
            selections[i].result != result))
        i++;
    if (i == sizeof selections / sizeof *selections || the_case->nargs < 2 ||
        the_case->args[0].kind != GOLDEN_TENSOR ||
        selections[i].dim >= the_case->nargs)
        return (ties){0};
    if (strcmp(the_case->name, "sort.stable") == 0 &&
        the_case->args[1].kind == GOLDEN_BOOL && the_case->args[1].i)
        return (ties){0};
    source = &the_case->tensors.at[the_case->args[0].first];
    if (selections[i].planes) {
        if (source->ndim < selections[i].planes)
            return (ties){0};
        return (ties){.allowed = true,
                      .source = source,
                      .from_dim = source->ndim - selections[i].planes,
                      .to_dim = source->ndim};
    }
    dim = &the_case->args[selections[i].dim];
    if (dim->kind == GOLDEN_NONE)
        return (ties){
            .allowed = true, .source = source, .to_dim = source->ndim};
    at = dim->i < 0 ? dim->i + source->ndim : dim->i;
    if (dim->kind != GOLDEN_INT || at < 0 || at >= source->ndim)
        return (ties){0};
    return (ties){.allowed = true,
                  .source = source,
                  .from_dim = (uint32_t)at,
                  .to_dim = (uint32_t)at + 1};
}

/* Finds the source element that `position` selects for the result element at
 * `index`.  The result has the source's dimensions, or all but the selected
 * one. */
static bool selected(ties tie, const int64_t *index, uint32_t ndim,
                     int64_t position, core_scalar *out)
{
    const golden_tensor *source = tie.source;
    uint32_t width = tie.to_dim - tie.from_dim;
    bool dropped = ndim + width == source->ndim;
    int64_t at[CORE_MAX_NDIM] = {0};

    if (position < 0 || (!dropped && ndim != source->ndim))
        return false;
    for (uint32_t d = 0, k = 0; d < source->ndim; d++) {
        bool inside = d >= tie.from_dim && d < tie.to_dim;

        if (!inside || !dropped)
            at[d] = index[k++];
    }
    for (uint32_t d = tie.to_dim; d-- > tie.from_dim;) {
        if (source->sizes[d] == 0)
            return false;
        at[d] = position % source->sizes[d];
        position /= source->sizes[d];
    }
    for (uint32_t d = 0; d < source->ndim; d++)
        if (at[d] >= source->sizes[d])
            return false;
    if (position != 0)
        return false;
    *out = golden_element(source, at);
    return true;
}

static bool equal(core_scalar a, core_scalar b)
{
    if (a.tag != CORE_VALUE_FLOAT)
        return a.u.i == b.u.i;
    return a.u.f == b.u.f || (isnan(a.u.f) && isnan(b.u.f));
}

/* ------------------------------------------------------------- compare -- */

static void sizes_text(uint32_t ndim, const int64_t *sizes, char *text,
                       size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "[");

    for (uint32_t d = 0; d < ndim && used + 24 < capacity; d++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId64,
                                 d ? ", " : "", sizes[d]);
    snprintf(text + used, capacity - used, "]");
}

static void scalar_text(core_scalar value, char *text, size_t capacity)
{
    if (value.tag == CORE_VALUE_FLOAT)
        snprintf(text, capacity, "%.17g", value.u.f);
    else if (value.tag == CORE_VALUE_BOOL)
        snprintf(text, capacity, "%s", value.u.i ? "true" : "false");
    else
        snprintf(text, capacity, "%" PRId64, value.u.i);
}

static bool close_enough(core_scalar got, core_scalar want, tolerance allowed)
{
    if (got.tag != CORE_VALUE_FLOAT || want.tag != CORE_VALUE_FLOAT)
        return got.u.i == want.u.i;
    if (isnan(want.u.f) || isnan(got.u.f))
        return isnan(want.u.f) && isnan(got.u.f);
    if (isinf(want.u.f) || isinf(got.u.f))
        return got.u.f == want.u.f;
    return fabs(got.u.f - want.u.f) <=
           allowed.absolute + allowed.relative * fabs(want.u.f);
}

static bool compare_shape(core_tensor *got, const golden_tensor *want,
                          core_dtype dtype, char *text, size_t capacity)
{
    const int64_t *sizes = core_tensor_sizes(got);
    bool same = core_tensor_ndim(got) == want->ndim;
    char has[200];
    char needs[200];

    if (core_tensor_dtype(got) != dtype) {
        snprintf(text, capacity, "dtype: got %s, expected %s",
                 core_dtype_name(core_tensor_dtype(got)),
                 core_dtype_name(dtype));
        return false;
    }
    for (uint32_t d = 0; same && d < want->ndim; d++)
        same = sizes[d] == want->sizes[d];
    if (same)
        return true;
    sizes_text(core_tensor_ndim(got), sizes, has, sizeof has);
    sizes_text(want->ndim, want->sizes, needs, sizeof needs);
    snprintf(text, capacity, "sizes: got %s, expected %s", has, needs);
    return false;
}

/* ------------------------------------------------------------- vectors -- */

/* Sets the index of element i of vector number v.  The rows or the columns of a
 * tensor's matrices are numbered matrix by matrix. */
static void set_vector_index(const golden_tensor *of, ties tie, int64_t v,
                             int64_t i, int64_t *index)
{
    bool rows = tie.vectors == VECTORS_ROWS;
    uint32_t across = of->ndim - (rows ? 2 : 1);
    uint32_t along = of->ndim - (rows ? 1 : 2);
    int64_t rest = v / of->sizes[across];

    for (uint32_t d = of->ndim - 2; d-- > 0; rest /= of->sizes[d])
        index[d] = rest % of->sizes[d];
    index[across] = v % of->sizes[across];
    index[along] = i;
}

static int64_t vector_length(const golden_tensor *of, ties tie)
{
    return of->sizes[of->ndim - (tie.vectors == VECTORS_ROWS ? 1 : 2)];
}

void negate_vectors(const golden_tensor *tensor, unsigned char *storage,
                    ties tie, const bool *negated)
{
    int64_t length = vector_length(tensor, tie);
    int64_t index[CORE_MAX_NDIM];
    int64_t size = core_dtype_size(tensor->dtype);

    for (int64_t k = 0; k < tensor->numel; k++) {
        int64_t at = tensor->offset;

        if (!negated[k / length])
            continue;
        set_vector_index(tensor, tie, k / length, k % length, index);
        for (uint32_t d = 0; d < tensor->ndim; d++)
            at += index[d] * tensor->strides[d];
        storage[at * size + size - 1] ^= 0x80; /* little endian */
    }
}

/* Marks the vectors that point away from the recorded ones; NULL: no memory. */
static bool *find_negated(const golden_tensor *got, const golden_tensor *want,
                          ties tie)
{
    int64_t length = vector_length(want, tie);
    int64_t count = want->numel ? want->numel / length : 0;
    bool *negated = calloc((size_t)count + 1, sizeof *negated);
    int64_t index[CORE_MAX_NDIM];

    for (int64_t v = 0; negated && v < count; v++) {
        double product = 0;

        for (int64_t i = 0; i < length; i++) {
            set_vector_index(want, tie, v, i, index);
            product += golden_element(got, index).u.f *
                       golden_element(want, index).u.f;
        }
        negated[v] = product < 0;
    }
    return negated;
}

bool signs_agree(const golden_case *the_case, const comparison *found)
{
    const golden_tensor *results = the_case->results.at;
    const bool *left = found->negated[0];
    const bool *right = found->negated[2];
    int64_t paired;

    if (strcmp(the_case->name, "_linalg_svd") != 0 || !left || !right)
        return true;
    paired = results[1].sizes[results[1].ndim - 1];
    for (int64_t k = 0; k < results[1].numel; k++) {
        int64_t matrix = k / paired, v = k % paired;

        if (left[matrix * results[0].sizes[results[0].ndim - 1] + v] !=
            right[matrix * results[2].sizes[results[2].ndim - 2] + v])
            return false;
    }
    return true;
}

void comparison_free(comparison *found)
{
    for (size_t i = 0; i < sizeof found->negated / sizeof *found->negated; i++)
        free(found->negated[i]);
    memset(found, 0, sizeof *found);
}

/* ------------------------------------------------------------ elements -- */

/* Compares all elements and reports the first that differs. */
static bool compare_elements(const unsigned char *data,
                             const golden_tensor *want, core_dtype dtype,
                             tolerance allowed, ties tie, comparison *found,
                             char *text, size_t capacity)
{
    int64_t index[CORE_MAX_NDIM] = {0};
    int64_t differ = 0;
    size_t size = core_dtype_size(dtype);
    char where[200];
    char has[40];
    char needs[40];

    for (int64_t i = 0; i < want->numel; i++) {
        core_scalar got = load(dtype, data + (size_t)i * size);
        core_scalar wanted = golden_element(want, index);
        bool good = close_enough(got, wanted, allowed);

        if (!good && tie.allowed) {
            core_scalar a;
            core_scalar b;

            good = selected(tie, index, want->ndim, got.u.i, &a) &&
                   selected(tie, index, want->ndim, wanted.u.i, &b) &&
                   equal(a, b);
            found->tied |= good;
        }
        if (!good && differ++ == 0) {
            sizes_text(want->ndim, index, where, sizeof where);
            scalar_text(got, has, sizeof has);
            scalar_text(wanted, needs, sizeof needs);
        }
        for (uint32_t d = want->ndim; d-- > 0;) {
            if (++index[d] < want->sizes[d])
                break;
            index[d] = 0;
        }
    }
    if (differ)
        snprintf(text, capacity,
                 "element %s: got %s, expected %s (%" PRId64 " of %" PRId64
                 " differ)",
                 where, has, needs, differ, want->numel);
    return differ == 0;
}

/* Negates the vectors that point away from the recorded ones, and marks them;
 * false: no memory. */
static bool align_signs(unsigned char *data, const golden_tensor *want,
                        core_dtype dtype, ties tie, comparison *found)
{
    golden_tensor got = *want;

    got.dtype = dtype;
    got.storage = data;
    make_dense(&got);
    found->negated[tie.result] = find_negated(&got, want, tie);
    if (!found->negated[tie.result])
        return false;
    negate_vectors(&got, data, tie, found->negated[tie.result]);
    return true;
}

bool compare_tensor(core_tensor *got, const golden_tensor *want,
                    core_dtype dtype, tolerance allowed, ties tie,
                    comparison *found, char *text, size_t capacity)
{
    unsigned char *data;
    size_t bytes;
    bool same;

    if (!compare_shape(got, want, dtype, text, capacity))
        return false;
    if (strcmp(core_device_type(core_tensor_device(got)), "meta") == 0)
        return true; /* there are no elements */
    bytes = (size_t)want->numel * core_dtype_size(dtype);
    data = malloc(bytes ? bytes : 1);
    if (!data) {
        snprintf(text, capacity, "no memory for the comparison");
        return false;
    }
    if (core_tensor_read(got, data, bytes) != CORE_OK) {
        snprintf(text, capacity, "reading the result: %s",
                 core_error_message());
        free(data);
        return false;
    }
    same = !tie.vectors || align_signs(data, want, dtype, tie, found);
    if (!same)
        snprintf(text, capacity, "no memory for the comparison");
    same = same && compare_elements(data, want, dtype, allowed, tie, found,
                                    text, capacity);
    free(data);
    return same;
}
