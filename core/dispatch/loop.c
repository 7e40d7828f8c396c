/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "dispatch/loop.h"

#include "tensor/dtype.h"

#include <string.h>

void core__loop_begin(core__loop_builder *builder, uint32_t ndim,
                      const int64_t *sizes)
{
    builder->ndim = ndim;
    builder->noperands = 0;
    builder->loop.reduced = 0;
    for (uint32_t i = 0; i < ndim; i++)
        builder->sizes[i] = sizes[ndim - 1 - i];
}

static core_operand *next(core__loop_builder *builder, core_dtype dtype,
                          uint32_t flags)
{
    core_operand *operand = &builder->operands[builder->noperands];

    operand->strides = builder->strides[builder->noperands++];
    operand->dtype = dtype;
    operand->flags = flags;
    operand->immediate = 0;
    operand->reserved = 0;
    return operand;
}

static inline void add(core__loop_builder *builder, const core_tensor *tensor,
                       const int64_t *from, uint32_t flags)
{
    int64_t *strides = builder->strides[builder->noperands];
    int64_t item = core__dtype_size(tensor->dtype);

    for (uint32_t i = 0; i < builder->ndim; i++) {
        uint32_t d = tensor->ndim - 1 - i;

        strides[i] =
            i < tensor->ndim && tensor->sizes[d] != 1 ? from[d] * item : 0;
    }
    next(builder, tensor->dtype, flags)->memory = core__tensor_memory(tensor);
}

void core__loop_add(core__loop_builder *builder, const core_tensor *tensor,
                    uint32_t flags)
{
    add(builder, tensor, tensor->strides, flags);
}

void core__loop_add_converted(core__loop_builder *builder,
                              const core_tensor *tensor, const int64_t *strides)
{
    add(builder, tensor, strides, 0);
}

void core__loop_add_strided(core__loop_builder *builder,
                            const core_tensor *tensor, const int64_t *strides,
                            uint32_t flags)
{
    int64_t *to = builder->strides[builder->noperands];
    int64_t item = core__dtype_size(tensor->dtype);

    for (uint32_t i = 0; i < builder->ndim; i++)
        to[i] = strides[builder->ndim - 1 - i] * item;
    next(builder, tensor->dtype, flags)->memory = core__tensor_memory(tensor);
}

void core__loop_add_number(core__loop_builder *builder, core_dtype dtype,
                           core_scalar value)
{
    int64_t *strides = builder->strides[builder->noperands];
    core_operand *operand = next(builder, dtype, CORE_OPERAND_IMMEDIATE);

    for (uint32_t i = 0; i < builder->ndim; i++)
        strides[i] = 0;
    operand->memory = (core_memory){0};
    core__element_store(dtype, &operand->immediate, value);
}

/* Whether loop dimension a belongs inside b: < 0 yes, > 0 no, 0 unknown. */
static int compare(const core__loop_builder *builder, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < builder->noperands; k++) {
        int64_t stride_a = builder->strides[k][a];
        int64_t stride_b = builder->strides[k][b];

        if (stride_a == 0 || stride_b == 0)
            continue; /* broadcast there: no preference */
        if (stride_a != stride_b)
            return stride_a < stride_b ? -1 : 1;
        if (builder->sizes[a] != builder->sizes[b])
            return builder->sizes[a] < builder->sizes[b] ? -1 : 1;
    }
    return 0;
}

static void swap(core__loop_builder *builder, uint32_t a, uint32_t b)
{
    int64_t size = builder->sizes[a];
    uint32_t bit_a = builder->loop.reduced >> a & 1;
    uint32_t bit_b = builder->loop.reduced >> b & 1;

    builder->sizes[a] = builder->sizes[b];
    builder->sizes[b] = size;
    builder->loop.reduced &= ~(1u << a | 1u << b);
    builder->loop.reduced |= bit_a << b | bit_b << a;
    for (uint32_t k = 0; k < builder->noperands; k++) {
        int64_t stride = builder->strides[k][a];

        builder->strides[k][a] = builder->strides[k][b];
        builder->strides[k][b] = stride;
    }
}

void core__loop_order_by(core__loop_builder *builder, uint32_t operand)
{
    const int64_t *strides = builder->strides[operand];

    for (uint32_t i = 1; i < builder->ndim; i++)
        for (uint32_t at = i; at > 0 && strides[at - 1] > strides[at]; at--)
            swap(builder, at - 1, at);
}

void core__loop_order(core__loop_builder *builder, uint8_t *out_permutation)
{
    uint8_t local[CORE_MAX_NDIM];
    uint8_t *permutation = out_permutation ? out_permutation : local;

    for (uint32_t i = 0; i < builder->ndim; i++)
        permutation[i] = (uint8_t)(builder->ndim - 1 - i);
    /* Insertion sort that skips dimensions whose order is unknown. */
    for (uint32_t i = 1; i < builder->ndim; i++) {
        uint32_t at = i;

        for (uint32_t other = i; other-- > 0;) {
            int order = compare(builder, other, at);

            if (order > 0) {
                uint8_t moved = permutation[other];

                permutation[other] = permutation[at];
                permutation[at] = moved;
                swap(builder, other, at);
                at = other;
            } else if (order < 0) {
                break;
            }
        }
    }
}

static bool joinable(const core__loop_builder *builder, uint32_t inner,
                     uint32_t outer)
{
    uint32_t reduced = builder->loop.reduced;

    if ((reduced >> inner & 1) != (reduced >> outer & 1))
        return false;
    if (builder->sizes[inner] == 1 || builder->sizes[outer] == 1)
        return true;
    for (uint32_t k = 0; k < builder->noperands; k++)
        if (builder->strides[k][outer] !=
            builder->strides[k][inner] * builder->sizes[inner])
            return false;
    return true;
}

void core__loop_coalesce(core__loop_builder *builder)
{
    uint32_t last = 0;

    if (builder->ndim == 0)
        return;
    for (uint32_t i = 1; i < builder->ndim; i++) {
        if (joinable(builder, last, i)) {
            if (builder->sizes[last] == 1)
                for (uint32_t k = 0; k < builder->noperands; k++)
                    builder->strides[k][last] = builder->strides[k][i];
            builder->sizes[last] *= builder->sizes[i];
            continue;
        }
        last++;
        if (last != i) {
            uint32_t bit = builder->loop.reduced >> i & 1;

            builder->sizes[last] = builder->sizes[i];
            builder->loop.reduced &= ~(1u << last);
            builder->loop.reduced |= bit << last;
            for (uint32_t k = 0; k < builder->noperands; k++)
                builder->strides[k][last] = builder->strides[k][i];
        }
    }
    builder->ndim = last + 1;
    builder->loop.reduced &= (uint32_t)((UINT64_C(1) << builder->ndim) - 1);
}

static bool contiguous(const core__loop_builder *builder, int64_t numel)
{
    if (numel <= 1)
        return true;
    if (builder->ndim > 1)
        return false;
    for (uint32_t k = 0; k < builder->noperands; k++) {
        const core_operand *operand = &builder->operands[k];

        if (!(operand->flags & CORE_OPERAND_IMMEDIATE) &&
            builder->strides[k][0] != core__dtype_size(operand->dtype))
            return false;
    }
    return true;
}

void core__loop_finish(core__loop_builder *builder, uint32_t noutputs)
{
    core_loop *loop = &builder->loop;
    int64_t numel = 1;

    for (uint32_t i = 0; i < builder->ndim; i++)
        numel *= builder->sizes[i];
    loop->struct_size = sizeof *loop;
    loop->ndim = builder->ndim;
    loop->noperands = builder->noperands;
    loop->noutputs = noutputs;
    loop->numel = numel;
    loop->sizes = builder->sizes;
    loop->operands = builder->operands;
    loop->flags = contiguous(builder, numel) ? CORE_LOOP_CONTIGUOUS : 0;
}
