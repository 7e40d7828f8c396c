/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The dispatch layer above autograd, so that casts are recorded
 * (docs/architecture.md, Decisions 5).  Its key is in a thread's set only
 * inside regions, and operators without a rule lack it: other calls pay nothing.
 */

#include "autocast/autocast.h"

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "tensor/dtype.h"

#include <string.h>

/* The arguments passed on to the operator. */
typedef struct casting {
    core__thread *self;
    uint64_t slot; /* the bit of the backend that computes */
    core_value args[CORE__SCHEMA_ARGUMENTS];
    uint32_t nargs;
    core_tensor *casts[CORE__SCHEMA_ARGUMENTS]; /* by argument; owned */
    core_tensor **lists[CORE__SCHEMA_ARGUMENTS];
} casting;

/* Whether autocast casts the tensor at all. */
static bool eligible(const casting *c, const core_tensor *tensor)
{
    return tensor && core__dtype_is_floating((core_dtype)tensor->dtype) &&
           tensor->dtype != CORE_F64 && tensor->keys & c->slot;
}

static core_status cast_one(casting *c, uint32_t position, core_dtype dtype)
{
    core_tensor *tensor = c->args[position].u.tensor;

    if (!eligible(c, tensor) || tensor->dtype == dtype)
        return CORE_OK;
    CORE_TRY(core__autocast_cast(c->self, tensor, dtype, &c->casts[position]));
    c->args[position].u.tensor = c->casts[position];
    return CORE_OK;
}

/* Every element of the new list is owned. */
static core_status cast_list(casting *c, uint32_t position, core_dtype dtype)
{
    core_value *value = &c->args[position];
    core_tensor *const *tensors = value->u.tensors;
    core_tensor **list;
    bool any = false;

    for (uint32_t i = 0; i < value->count; i++)
        any |= eligible(c, tensors[i]) && tensors[i]->dtype != dtype;
    if (!any)
        return CORE_OK;
    list = core__alloc_zero(value->count * sizeof *list);
    if (!list)
        return core__error_memory(value->count * sizeof *list);
    c->lists[position] = list;
    value->u.tensors = list;
    for (uint32_t i = 0; i < value->count; i++) {
        if (eligible(c, tensors[i]) && tensors[i]->dtype != dtype) {
            CORE_TRY(core__autocast_cast(c->self, tensors[i], dtype, &list[i]));
        } else if (tensors[i]) {
            core__tensor_retain(tensors[i]);
            list[i] = tensors[i];
        }
    }
    return CORE_OK;
}

static core_status cast_all(casting *c, core_dtype dtype)
{
    for (uint32_t i = 0; i < c->nargs; i++) {
        if (c->args[i].tag == CORE_VALUE_TENSOR)
            CORE_TRY(cast_one(c, i, dtype));
        else if (c->args[i].tag == CORE_VALUE_TENSOR_LIST)
            CORE_TRY(cast_list(c, i, dtype));
    }
    return CORE_OK;
}

static void release_casts(casting *c)
{
    for (uint32_t i = 0; i < c->nargs; i++) {
        core__tensor_release(c->casts[i]);
        for (uint32_t k = 0; c->lists[i] && k < c->args[i].count; k++)
            core__tensor_release(c->lists[i][k]);
        core__free(c->lists[i]);
    }
}

/* f32 if any argument is f32, else the region's dtype. */
static core_dtype widest_dtype(const casting *c, core_dtype low)
{
    for (uint32_t i = 0; i < c->nargs; i++) {
        const core_value *value = &c->args[i];

        if (value->tag == CORE_VALUE_TENSOR && eligible(c, value->u.tensor) &&
            value->u.tensor->dtype == CORE_F32)
            return CORE_F32;
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
            if (eligible(c, value->u.tensors[k]) &&
                value->u.tensors[k]->dtype == CORE_F32)
                return CORE_F32;
    }
    return low;
}

/* Computes in f32: through the operator's dtype argument if it has one, else by
 * casting. */
static core_status to_f32(casting *c, const core_operator *op)
{
    uint32_t position = op->data->dtype;

    if (op->flags & CORE__OP_CUSTOM || position >= c->nargs)
        return cast_all(c, CORE_F32);
    if (c->args[position].tag == CORE_VALUE_NONE &&
        c->args[0].tag == CORE_VALUE_TENSOR && eligible(c, c->args[0].u.tensor))
        c->args[position] = (core_value){CORE_VALUE_DTYPE, 0, {CORE_F32}};
    return CORE_OK;
}

static core_status apply(casting *c, const core_operator *op, uint32_t rule,
                         core_dtype low)
{
    switch (rule) {
    case CORE_AUTOCAST_LOWER:
        return cast_all(c, low);
    case CORE_AUTOCAST_FP32:
        return to_f32(c, op);
    case CORE_AUTOCAST_PROMOTE:
        return cast_all(c, widest_dtype(c, low));
    default:
        return CORE_OK;
    }
}

core_status core__autocast_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_autocast_rule *own = call->user;
    core__thread *self = core__thread_self();
    uint32_t slot = core__keys_slot(call->keys);
    uint64_t below = core__keys_below(call->keys, CORE__FUNCTIONALITY_AUTOCAST);
    core_dtype low = (core_dtype)self->autocast[slot];
    uint64_t excluded = self->excluded;
    core_status status;
    casting c;

    if (low == CORE_DTYPE_NONE || nargs > CORE__SCHEMA_ARGUMENTS)
        return core__redispatch(call->op, below, args, nargs, results,
                                nresults);
    c.self = self;
    c.slot = CORE__KEY_SLOT(slot);
    c.nargs = nargs;
    memcpy(c.args, args, nargs * sizeof *args);
    memset(c.casts, 0, nargs * sizeof *c.casts);
    memset(c.lists, 0, nargs * sizeof *c.lists);
    self->excluded = excluded | CORE__KEY_AUTOCAST;
    status = apply(&c, call->op, own ? *own : call->op->data->autocast, low);
    if (status == CORE_OK)
        status =
            core__redispatch(call->op, below, c.args, nargs, results, nresults);
    self->excluded = excluded;
    release_casts(&c);
    return status;
}
