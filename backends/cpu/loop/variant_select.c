/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Selects the variant of a row for a call. */

#include <stdbool.h>
#include <string.h>

#include <expressions/number.h>
#include <libcore/sdk.h>

#include "elementwise.h"

static int text_is(const core_value *value, const char *text)
{
    return value->tag == CORE_VALUE_STRING && value->count == strlen(text) &&
           memcmp(value->u.string, text, value->count) == 0;
}

static int choose_rounding(const core_value *mode, core_dtype dtype)
{
    if (mode->tag == CORE_VALUE_NONE)
        return 0;
    if (text_is(mode, "trunc"))
        return dtype == CORE_F16 ? 3 : dtype == CORE_BF16 ? 4 : 1;
    return text_is(mode, "floor") ? 2 : -1;
}

static int choose_tanh(const core_value *args, uint32_t nargs)
{
    uint32_t k;

    /* It is the last argument of gelu and of its gradient. */
    for (k = 0; k < nargs; k++) {
        if (text_is(&args[k], "tanh"))
            return 1;
        if (args[k].tag == CORE_VALUE_STRING && !text_is(&args[k], "none"))
            return -1;
    }
    return 0;
}

/* An operand of floats that is one number. */
static double number_of(const core_operand *operand)
{
    double value;
    float single;
    uint16_t half;

    memcpy(&value, &operand->immediate, sizeof value);
    memcpy(&single, &operand->immediate, sizeof single);
    memcpy(&half, &operand->immediate, sizeof half);
    switch (operand->dtype) {
    case CORE_F64:
        return value;
    case CORE_F32:
        return (double)single;
    case CORE_F16:
        return (double)math_f32_of_f16(half);
    case CORE_BF16:
        return (double)math_f32_of_bf16(half);
    default:
        return 0; /* no operator has these rows for integers */
    }
}

/* For an exponent that is the same for all elements. */
static int choose_power(const core_loop *loop)
{
    /* In the order of the variants.  Rows of halves are those of exponents whose
     * results have the bits of the power, for each of the 65536 numbers but
     * NaN. */
    static const struct {
        double exponent;
        bool of_halves;
    } common[] = {{2, true},  {3, true},   {0.5, false},
                  {-1, true}, {-2, false}, {-0.5, false}};
    const core_operand *exponent = &loop->operands[2];
    bool half = exponent->dtype != CORE_F64 && exponent->dtype != CORE_F32;
    double value;

    if (!(exponent->flags & CORE_OPERAND_IMMEDIATE))
        return 0;
    value = number_of(exponent);
    for (int k = 0; k < (int)(sizeof(common) / sizeof(common[0])); k++)
        if (value == common[k].exponent && (common[k].of_halves || !half))
            return k + 1;
    return 0;
}

static int choose_dtype(const core_loop *loop)
{
    uint32_t dtype = loop->operands[0].dtype;

    return dtype == CORE_F16 ? 1 : dtype == CORE_BF16 ? 2 : 0;
}

int cpu_variant_select(const cpu_elementwise *self, const core_call *call,
                       const core_value *args, uint32_t nargs)
{
    switch (self->choice) {
    case CPU_CHOICE_ALPHA:
        return nargs > 2 && core_sdk_double(&args[2], 1) != 1;
    case CPU_CHOICE_ROUNDING:
        return nargs > 2
                   ? choose_rounding(&args[2], call->loop->operands[0].dtype)
                   : 0;
    case CPU_CHOICE_TANH:
        return choose_tanh(args, nargs);
    case CPU_CHOICE_CLAMP:
        if (call->loop->noperands == 4)
            return 0;
        return nargs > 1 && args[1].tag != CORE_VALUE_NONE ? 1 : 2;
    case CPU_CHOICE_POWER:
        return choose_power(call->loop);
    case CPU_CHOICE_DTYPE:
        return choose_dtype(call->loop);
    default:
        return 0;
    }
}
