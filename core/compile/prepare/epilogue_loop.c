/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A loop whose dimensions were joined and ordered, in other dimensions of the
 * same elements. */

#include "compile/prepare/epilogue.h"

#include "base/memory.h"
#include "tensor/dtype.h"

#include <string.h>

/* A dimension of a loop, by the elements of a dense operand. */
typedef struct span {
    int64_t from, size; /* elements from index to index; their number */
    uint32_t dim;
} span;

/* The dimensions by the strides of an operand, innermost first; false: it is
 * not dense. */
static bool find_spans(const core_loop *loop, uint32_t operand, span *spans,
                       uint32_t *out_count)
{
    int64_t next = core__dtype_size(loop->operands[operand].dtype);
    const int64_t item = next;
    uint32_t count = 0, before;

    do {
        before = count;
        for (uint32_t d = 0; d < loop->ndim; d++)
            if (loop->sizes[d] > 1 &&
                loop->operands[operand].strides[d] == next) {
                spans[count++] = (span){next / item, loop->sizes[d], d};
                next *= loop->sizes[d];
                break;
            }
    } while (count > before);
    *out_count = count;
    return next / item == loop->numel;
}

/* The dimension of the loop that contains all of a dimension of the dense
 * operand. */
static const span *find_span(const span *spans, uint32_t count, int64_t from,
                             int64_t size)
{
    for (uint32_t i = 0; i < count; i++)
        if (spans[i].from <= from && from % spans[i].from == 0 &&
            from * size <= spans[i].from * spans[i].size)
            return &spans[i];
    return NULL;
}

/* What the dimensions are, innermost first, in those of the loop; false: one is
 * in several. */
static bool divide(const core_loop *loop, uint32_t result,
                   const int64_t sizes[CORE__EPILOGUE_DIMS],
                   const span *found[CORE__EPILOGUE_DIMS],
                   int64_t steps[CORE__EPILOGUE_DIMS], span *spans)
{
    uint32_t count;
    int64_t from = 1;

    if (!find_spans(loop, result, spans, &count))
        return false;
    for (uint32_t d = 0; d < CORE__EPILOGUE_DIMS; d++) {
        int64_t size = sizes[CORE__EPILOGUE_DIMS - 1 - d];

        found[d] = size > 1 ? find_span(spans, count, from, size) : NULL;
        if (size > 1 && !found[d])
            return false;
        steps[d] = found[d] ? from / found[d]->from : 0;
        from *= size;
    }
    return from == loop->numel;
}

/* The block: the loop, its operands, its sizes, and the strides of each
 * operand. */
static core_loop *copy_loop(const core_loop *loop)
{
    size_t dims = CORE__EPILOGUE_DIMS * sizeof(int64_t);
    size_t operands = loop->noperands * sizeof(core_operand);
    core_loop *copy = core__alloc_zero(sizeof *copy + operands +
                                       dims * (1 + loop->noperands));
    core_operand *to;
    int64_t *at;

    if (!copy)
        return NULL;
    *copy = *loop;
    copy->ndim = CORE__EPILOGUE_DIMS;
    copy->flags = 0;
    to = memcpy(copy + 1, loop->operands, operands);
    copy->operands = to;
    at = (int64_t *)(void *)(to + loop->noperands);
    copy->sizes = at;
    for (uint32_t k = 0; k < loop->noperands; k++)
        to[k].strides = at += CORE__EPILOGUE_DIMS;
    return copy;
}

core_status core__epilogue_loop(const core_loop *loop, uint32_t result,
                                const int64_t sizes[CORE__EPILOGUE_DIMS],
                                core_loop **out_loop)
{
    const span *found[CORE__EPILOGUE_DIMS];
    int64_t steps[CORE__EPILOGUE_DIMS];
    span spans[CORE_MAX_NDIM];
    core_loop *copy;

    *out_loop = NULL;
    if (!divide(loop, result, sizes, found, steps, spans))
        return CORE_OK;
    copy = copy_loop(loop);
    if (!copy)
        return core__error_memory(sizeof *copy);
    for (uint32_t d = 0; d < CORE__EPILOGUE_DIMS; d++) {
        ((int64_t *)(uintptr_t)copy->sizes)[d] =
            sizes[CORE__EPILOGUE_DIMS - 1 - d];
        for (uint32_t k = 0; k < loop->noperands; k++)
            if (found[d] && !(loop->operands[k].flags & CORE_OPERAND_IMMEDIATE))
                ((int64_t *)(uintptr_t)copy->operands[k].strides)[d] =
                    loop->operands[k].strides[found[d]->dim] * steps[d];
    }
    *out_loop = copy;
    return CORE_OK;
}
