/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Floating-point operations and bytes of operator calls.  A multiplication and an
 * addition count as two. */

#include "profiler/profile.h"
#include "tensor/dtype.h"

#include <string.h>

typedef uint64_t (*formula)(const core_value *args, uint32_t nargs,
                            const core_value *results);

static const core_tensor *tensor_at(const core_value *values, uint32_t index)
{
    return values[index].tag == CORE_VALUE_TENSOR ? values[index].u.tensor
                                                  : NULL;
}

static uint64_t elements(const core_tensor *tensor)
{
    return tensor ? (uint64_t)tensor->numel : 0;
}

static uint64_t size_at(const core_tensor *tensor, int from_end)
{
    return tensor && tensor->ndim >= (uint32_t)from_end
               ? (uint64_t)tensor->sizes[tensor->ndim - (uint32_t)from_end]
               : 0;
}

/* Each element of the result is a sum of products along the last dimension of
 * the first factor. */
static uint64_t of_product(const core_value *args, const core_value *results,
                           uint32_t factor)
{
    return 2 * elements(tensor_at(results, 0)) *
           size_at(tensor_at(args, factor), 1);
}

static uint64_t product(const core_value *args, uint32_t nargs,
                        const core_value *results)
{
    (void)nargs;
    return of_product(args, results, 0);
}

static uint64_t added_product(const core_value *args, uint32_t nargs,
                              const core_value *results)
{
    return nargs < 2 ? 0 : of_product(args, results, 1);
}

static bool is_transposed(const core_value *args, uint32_t nargs, uint32_t at)
{
    return at < nargs && args[at].tag == CORE_VALUE_BOOL && args[at].u.i != 0;
}

/* Each element of the result is a sum over one filter; with a transposed
 * convolution, each element of the input is multiplied by one filter. */
static uint64_t convolution(const core_value *args, uint32_t nargs,
                            const core_value *results)
{
    const core_tensor *weight = nargs > 1 ? tensor_at(args, 1) : NULL;

    if (!weight || weight->ndim < 2 || weight->sizes[0] == 0)
        return 0;
    return 2 *
           elements(is_transposed(args, nargs, 6) ? tensor_at(args, 0)
                                                  : tensor_at(results, 0)) *
           (elements(weight) / (uint64_t)weight->sizes[0]);
}

/* The gradients by input and by weight cost as much as the forward each. */
static uint64_t convolution_backward(const core_value *args, uint32_t nargs,
                                     const core_value *results)
{
    const core_tensor *grad = tensor_at(args, 0);
    const core_tensor *weight = nargs > 2 ? tensor_at(args, 2) : NULL;
    uint64_t each;

    if (!weight || weight->ndim < 2 || weight->sizes[0] == 0)
        return 0;
    each = 2 *
           elements(is_transposed(args, nargs, 7) ? tensor_at(args, 1) : grad) *
           (elements(weight) / (uint64_t)weight->sizes[0]);
    return each *
           ((tensor_at(results, 0) != NULL) + (tensor_at(results, 1) != NULL));
}

/* Batched products that are summed into one matrix. */
static uint64_t summed_product(const core_value *args, uint32_t nargs,
                               const core_value *results)
{
    return added_product(args, nargs, results) *
           (nargs < 2 ? 0 : size_at(tensor_at(args, 1), 3));
}

/* A column times a row: a multiplication and an addition per element. */
static uint64_t outer_product(const core_value *args, uint32_t nargs,
                              const core_value *results)
{
    (void)args;
    (void)nargs;
    return 2 * elements(tensor_at(results, 0));
}

/* The cost of attention for query, key and value, which begin at argument
 * `first`: one score per query, key and head, times the lengths of the two
 * products.  Masked scores are counted. */
static uint64_t scores(const core_value *args, uint32_t nargs, uint32_t first,
                       uint64_t *inner, uint64_t *outer)
{
    const core_tensor *query;

    if (nargs < first + 3)
        return 0;
    query = tensor_at(args, first);
    *inner = size_at(query, 1);
    *outer = size_at(tensor_at(args, first + 2), 1);
    return *inner ? elements(query) / *inner *
                        size_at(tensor_at(args, first + 1), 2)
                  : 0;
}

static uint64_t attention(const core_value *args, uint32_t nargs,
                          const core_value *results)
{
    uint64_t inner = 0, outer = 0, count;

    (void)results;
    count = scores(args, nargs, 0, &inner, &outer);
    return 2 * count * (inner + outer);
}

/* The scores and their gradient are recomputed once for the gradients of query
 * and key; the gradients of query, key and value are one product each. */
static uint64_t attention_backward(const core_value *args, uint32_t nargs,
                                   const core_value *results)
{
    uint64_t inner = 0, outer = 0,
             count = scores(args, nargs, 1, &inner, &outer);
    uint64_t query = tensor_at(results, 0) != NULL,
             key = tensor_at(results, 1) != NULL,
             value = tensor_at(results, 2) != NULL;

    return 2 * count *
           (inner * (1 + query + key) + outer * ((query | key) + value));
}

/* The product of each row with the weight. */
static uint64_t recurrent_at(const core_value *args, uint32_t nargs,
                             uint32_t weight, uint32_t rows)
{
    return nargs <= weight ? 0
                           : 2 * elements(tensor_at(args, weight)) *
                                 size_at(tensor_at(args, rows), 2);
}

static uint64_t recurrent(const core_value *args, uint32_t nargs,
                          const core_value *results)
{
    (void)results;
    return recurrent_at(args, nargs, 3, 0);
}

static uint64_t recurrent_backward(const core_value *args, uint32_t nargs,
                                   const core_value *results)
{
    (void)results;
    return recurrent_at(args, nargs, 7, 4);
}

/* By the name of the functional variant. */
static const struct {
    const char *name;
    formula formula;
} known[] = {
    {"mm", product},
    {"_scaled_mm", product},
    {"bmm", product},
    {"mv", product},
    {"dot", product},
    {"vdot", product},
    {"linear", product},
    {"addmm", added_product},
    {"addmv", added_product},
    {"baddbmm", added_product},
    {"addbmm", summed_product},
    {"addr", outer_product},
    {"convolution", convolution},
    {"convolution_backward", convolution_backward},
    {"_recurrent_layer", recurrent},
    {"_recurrent_layer_backward", recurrent_backward},
    {"_scaled_dot_product_efficient_attention", attention},
    {"_scaled_dot_product_efficient_attention_backward", attention_backward},
};

enum { KNOWN = sizeof known / sizeof *known };

static const core_operator *_Atomic operators[KNOWN];

void core__profile_flop_prepare(void)
{
    for (size_t i = 0; i < KNOWN; i++)
        atomic_store(&operators[i], core__operator_builtin(
                                        known[i].name, strlen(known[i].name)));
}

uint64_t core__profile_flop(const core_operator *op, const core_value *args,
                            uint32_t nargs, const core_value *results,
                            uint32_t nresults)
{
    const core_operator *base = core__operator_base(op);

    if (nargs == 0)
        return 0;
    /* An in-place call also has the result among its arguments. */
    if (op->family == CORE__FAMILY_ELEMENTWISE)
        return elements(nresults && results[0].tag == CORE_VALUE_TENSOR
                            ? results[0].u.tensor
                            : tensor_at(args, 0));
    for (size_t i = 0; i < KNOWN; i++)
        if (nresults &&
            atomic_load_explicit(&operators[i], memory_order_relaxed) == base)
            return known[i].formula(args, nargs, results);
    return 0;
}

uint64_t core__profile_bytes(const core_value *values, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const core_value *value = &values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            bytes += (uint64_t)value->u.tensor->numel *
                     core__dtype_size(value->u.tensor->dtype);
        else if (value->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t k = 0; k < value->count; k++)
                if (value->u.tensors[k])
                    bytes += (uint64_t)value->u.tensors[k]->numel *
                             core__dtype_size(value->u.tensors[k]->dtype);
    }
    return bytes;
}
