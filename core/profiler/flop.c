/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How many operations of floating-point numbers a call has.  A multiplication
 * and an addition are two. */

#include "profiler/profile.h"

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

/* Each element of the result adds up products along the last dimension of the
 * first factor. */
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

/* Each element of the result adds up one filter; of a transposed one, each
 * element of the input is spread by one. */
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

/* Of gradients by input and by weight, as much as the forward each. */
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

/* By the functional operator's name. */
static const struct {
    const char *name;
    formula formula;
} known[] = {
    {"mm", product},
    {"bmm", product},
    {"mv", product},
    {"dot", product},
    {"vdot", product},
    {"linear", product},
    {"addmm", added_product},
    {"addmv", added_product},
    {"baddbmm", added_product},
    {"convolution", convolution},
    {"convolution_backward", convolution_backward},
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
    /* In place, the result is an argument too. */
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
