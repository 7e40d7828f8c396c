/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks the tensors that a call will write, before anything is computed:
 * memory that is written twice, or that another operand of the call shares,
 * would have undefined contents afterwards. */

#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "dispatch/inference.h"
#include "tensor/layout.h"

const char *core__argument_name(const core_operator *op, uint32_t position)
{
    /* The schema is cached in the operator, which is const only for
     * computation. */
    core_operator *owner = op->flags & CORE__OP_CUSTOM
                               ? (core_operator *)(uintptr_t)op
                               : &core__operators[op->id];
    const core__schema *schema;

    if (core__schema_of(owner, &schema) != CORE_OK ||
        position >= schema->narguments)
        return "?";
    return schema->arguments[position].name;
}

core_status core__overlaps_itself_refuse(const core_operator *op,
                                         uint32_t position)
{
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "the argument %s, which is written, has several elements at one "
        "address (an expanded tensor?); clone it first",
        core__argument_name(op, position));
}

core_status core__shared_refuse(const core_operator *op, uint32_t written,
                                uint32_t other)
{
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "the argument %s, which is written, shares memory "
                          "with %s; clone one of them",
                          core__argument_name(op, written),
                          core__argument_name(op, other));
}

/* True if an empty tensor that the result enlarges would grow over `other`. */
static bool grows_over(const core_tensor *written, const core_tensor *other)
{
    return written->numel == 0 && other->numel > 0 && written->storage &&
           written->storage == other->storage;
}

static core_status check_against(const core_operator *op, uint32_t written,
                                 const core_tensor *target, bool both,
                                 uint32_t position, const core_tensor *other)
{
    core__overlap overlap;

    if (!other)
        return CORE_OK;
    overlap = core__layout_overlap(target, other);
    if (overlap == CORE__OVERLAP_PARTIAL ||
        (both && overlap == CORE__OVERLAP_SAME) || grows_over(target, other))
        return core__shared_refuse(op, written, position);
    return CORE_OK;
}

core_status core__written_check(const core_operator *op, const core_value *args,
                                uint32_t nargs)
{
    uint32_t written = core__operator_changes(op, nargs);

    for (uint32_t left = written; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        const core_tensor *target = args[i].u.tensor;

        if (args[i].tag != CORE_VALUE_TENSOR)
            continue;
        if (core__layout_overlaps_itself(target))
            return core__overlaps_itself_refuse(op, i);
        if (op->variant != CORE__VARIANT_OUT)
            continue;
        for (uint32_t k = 0; k < nargs; k++) {
            const core_value *value = &args[k];
            bool both = written >> k & 1;

            if (value->tag == CORE_VALUE_TENSOR && k != i)
                CORE_TRY(
                    check_against(op, i, target, both, k, value->u.tensor));
            if (value->tag == CORE_VALUE_TENSOR_LIST)
                for (uint32_t n = 0; n < value->count; n++)
                    CORE_TRY(check_against(op, i, target, both, k,
                                           value->u.tensors[n]));
        }
    }
    return CORE_OK;
}
