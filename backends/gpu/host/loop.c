/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop.c: loops in the form that kernels take. */

#include <gpu/host/host.h>

gpu_divisor gpu_divide_by(uint32_t value)
{
    gpu_divisor d = {value, 0, 0};

    /* Granlund and Montgomery, 1994, figure 4.1, for 1 <= value < 2^31. */
    while ((UINT64_C(1) << d.shift) < value)
        d.shift++;
    d.magic =
        (uint32_t)(((UINT64_C(1) << 32) * ((UINT64_C(1) << d.shift) - value)) /
                       (value ? value : 1) +
                   1);
    return d;
}

/* Rounds to nearest, ties to even. */
static uint16_t half_bits(double number, core_dtype dtype)
{
    float narrow = (float)number, moved;
    uint32_t bits, sign;

    memcpy(&bits, &narrow, 4);
    if (number != number)
        return dtype == CORE_F16 ? 0x7e00 : 0x7fc0;
    if (dtype == CORE_BF16)
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    sign = bits >> 16 & 0x8000;
    bits &= UINT32_C(0x7fffffff);
    if (bits >= UINT32_C(0x477ff000))
        return (uint16_t)(sign | 0x7c00);
    if (bits >= UINT32_C(0x38800000))
        return (uint16_t)(sign | ((bits + (bits >> 13 & 1) + 0xfff -
                                   UINT32_C(0x38000000)) >>
                                  13));
    /* Adding 0.5 puts the last place of a subnormal at the end of the
     * mantissa. */
    memcpy(&moved, &bits, 4);
    moved += 0.5f;
    memcpy(&bits, &moved, 4);
    return (uint16_t)(sign | (bits - UINT32_C(0x3f000000)));
}

uint64_t gpu_scalar_bits(const core_value *value, core_dtype dtype)
{
    double number = core_sdk_double(value, 0);
    float narrow = (float)number;
    uint64_t bits = 0;

    switch (dtype) {
    case CORE_F64:
        memcpy(&bits, &number, 8);
        break;
    case CORE_F32:
        memcpy(&bits, &narrow, 4);
        break;
    case CORE_F16:
    case CORE_BF16:
        bits = half_bits(number, dtype);
        break;
    case CORE_BOOL:
        bits = number != 0;
        break;
    default:
        bits = (uint64_t)(value->tag == CORE_VALUE_FLOAT
                              ? number >= 9223372036854775808.0 ||
                                        number < -9223372036854775808.0 ||
                                        number != number
                                    ? INT64_MIN
                                    : (int64_t)number
                              : core_sdk_int(value, 0));
        break;
    }
    return bits;
}

/* -------------------------------------------------------------- pieces -- */

enum { OPERANDS = 32 };

static core_status cut(core_loop *loop, core_operand *operands, uint32_t dim,
                       int64_t first, int64_t size, gpu_piece launch,
                       void *context);

/* Kernels of rows count in 64 bits. */
static bool fits(const core_loop *loop)
{
    return loop->ndim <= GPU_DIMS &&
           (loop->numel <= INT32_MAX || loop->reduced != 0);
}

static core_status pieces(core_loop *loop, core_operand *operands,
                          gpu_piece launch, void *context)
{
    uint32_t dim = loop->ndim - 1;
    core_status status = CORE_OK;
    int64_t most;

    if (fits(loop))
        return launch(loop, context);
    if (loop->reduced >> dim & 1)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "a reduction over more than %d dimensions that "
                          "cannot be joined",
                          GPU_DIMS);
    /* The outermost dimension: in pieces, or index by index. */
    most = loop->ndim > GPU_DIMS
               ? 1
               : (int64_t)INT32_MAX / (loop->numel / loop->sizes[dim]);
    if (most < 1)
        most = 1;
    for (int64_t at = 0; at < loop->sizes[dim] && status == CORE_OK; at += most)
        status =
            cut(loop, operands, dim, at,
                loop->sizes[dim] - at < most ? loop->sizes[dim] - at : most,
                launch, context);
    return status;
}

static core_status cut(core_loop *loop, core_operand *operands, uint32_t dim,
                       int64_t first, int64_t size, gpu_piece launch,
                       void *context)
{
    core_operand moved[OPERANDS];
    int64_t sizes[CORE_MAX_NDIM];
    core_loop part = *loop;

    memcpy(moved, operands, loop->noperands * sizeof *operands);
    memcpy(sizes, loop->sizes, loop->ndim * sizeof *sizes);
    for (uint32_t k = 0; k < loop->noperands; k++)
        if (!(moved[k].flags & CORE_OPERAND_IMMEDIATE))
            moved[k].memory.offset += (uint64_t)(first * moved[k].strides[dim]);
    sizes[dim] = size;
    part.numel = loop->numel / loop->sizes[dim] * size;
    part.sizes = sizes;
    part.operands = moved;
    if (size == 1 && part.ndim > 1)
        part.ndim--;
    return pieces(&part, moved, launch, context);
}

core_status gpu_loop_pieces(const core_loop *loop, gpu_piece launch,
                            void *context)
{
    core_operand operands[OPERANDS];
    core_loop whole = *loop;

    if (fits(loop))
        return launch(loop, context);
    if (loop->noperands > OPERANDS)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "a loop of %u operands; at most %d", loop->noperands,
                          OPERANDS);
    memcpy(operands, loop->operands, loop->noperands * sizeof *operands);
    return pieces(&whole, operands, launch, context);
}
