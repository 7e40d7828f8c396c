/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Plans.  Compiling stores the structure of a call: a launch with another
 * structure, or without a plan, is refused.  A plan runs the kernel that it was
 * compiled for, so that work that outlives its plan is detected. */

#include "plan.h"

#include "fault.h"

#include <stdlib.h>

enum { WORDS = 4096 };

struct sim_plan {
    _Atomic uint32_t references; /* held by the core and by work */
    const core_kernel *kernel;
    uint32_t count;
    uint64_t words[];
};

_Atomic uint64_t sim_compiles;
_Atomic uint64_t sim_plans;

/* ------------------------------------------------------------- structure -- */

typedef struct writer {
    uint32_t count;
    uint64_t words[WORDS];
} writer;

static void put(writer *w, uint64_t word)
{
    if (w->count < WORDS)
        w->words[w->count++] = word;
}

static void put_view(writer *w, const core_view *view)
{
    if (!view) {
        put(w, 0);
        return;
    }
    put(w, (uint64_t)view->dtype << 32 | view->ndim);
    for (uint32_t i = 0; i < view->ndim; i++) {
        put(w, (uint64_t)view->sizes[i]);
        put(w, (uint64_t)view->strides[i]);
    }
}

static void put_value(writer *w, const core_value *value)
{
    put(w, value->tag);
    switch (value->tag) {
    case CORE_VALUE_VIEW:
        put_view(w, value->u.view);
        break;
    case CORE_VALUE_VIEW_LIST:
        put(w, value->count);
        for (uint32_t i = 0; i < value->count; i++)
            put_view(w, value->u.views[i]);
        break;
    case CORE_VALUE_INT_LIST:
        put(w, value->count);
        for (uint32_t i = 0; i < value->count; i++)
            put(w, (uint64_t)value->u.ints[i]);
        break;
    default: /* numbers belong to the launch */
        break;
    }
}

static void put_loop(writer *w, const core_loop *loop)
{
    put(w, (uint64_t)loop->flags << 32 | loop->reduced);
    put(w, (uint64_t)loop->ndim << 32 | loop->noperands);
    for (uint32_t i = 0; i < loop->ndim; i++)
        put(w, (uint64_t)loop->sizes[i]);
    for (uint32_t k = 0; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];

        put(w, (uint64_t)operand->dtype << 32 | operand->flags);
        for (uint32_t i = 0;
             i < loop->ndim && !(operand->flags & CORE_OPERAND_IMMEDIATE); i++)
            put(w, (uint64_t)operand->strides[i]);
    }
}

/* The counter that follows seed and offset exists only in a capture. */
static bool is_counter(const core_value *args, uint32_t nargs, uint32_t index)
{
    const core_value *value = &args[index];

    return index + 1 == nargs && index >= 2 &&
           args[index - 1].tag == CORE_VALUE_INT &&
           args[index - 2].tag == CORE_VALUE_INT &&
           (value->tag == CORE_VALUE_NONE ||
            (value->tag == CORE_VALUE_VIEW &&
             value->u.view->dtype == CORE_I64 && value->u.view->numel == 2));
}

static void put_call(writer *w, const core_call *call, const core_value *args,
                     uint32_t nargs, const core_value *results,
                     uint32_t nresults)
{
    w->count = 0;
    put(w, nargs);
    put(w, nresults);
    if (call->loop)
        put_loop(w, call->loop);
    for (uint32_t i = 0; i < nargs; i++)
        if (!is_counter(args, nargs, i))
            put_value(w, &args[i]);
    for (uint32_t i = 0; i < nresults; i++)
        put_value(w, &results[i]);
}

/* ----------------------------------------------------------------- plans -- */

static core_status no_memory(void)
{
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no host memory for a plan");
}

core_status sim_plan_prepare(core_call *call, const core_value *args,
                             uint32_t nargs, const core_value *results,
                             uint32_t nresults, void **out_plan)
{
    core_status status = sim_fault(call->device, SIM_FAULT_PLAN);
    sim_plan *plan = NULL;
    writer *w;

    *out_plan = NULL;
    if (status != CORE_OK)
        return status;
    w = malloc(sizeof *w);
    if (w) {
        put_call(w, call, args, nargs, results, nresults);
        plan = malloc(sizeof *plan + w->count * sizeof(uint64_t));
    }
    if (plan) {
        atomic_init(&plan->references, 1);
        plan->kernel = call->user;
        plan->count = w->count;
        memcpy(plan->words, w->words, w->count * sizeof(uint64_t));
        atomic_fetch_add(&sim_compiles, 1);
        atomic_fetch_add(&sim_plans, 1);
        *out_plan = plan;
    }
    free(w);
    return plan ? CORE_OK : no_memory();
}

void sim_plan_keep(sim_plan *plan)
{
    if (plan)
        atomic_fetch_add(&plan->references, 1);
}

void sim_plan_destroy(void *handle)
{
    sim_plan *plan = handle;

    if (!plan || atomic_fetch_sub(&plan->references, 1) > 1)
        return;
    atomic_fetch_sub(&sim_plans, 1);
    free(plan);
}

const core_kernel *sim_plan_kernel(const sim_plan *plan)
{
    return plan->kernel;
}

core_status sim_plan_check(const core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults)
{
    const sim_plan *plan = call->plan;
    const char *reason = NULL;
    core_string name;
    writer *w;

    if (!plan) {
        reason = "without a plan";
    } else if (plan->kernel != call->user) {
        reason = "with the plan of another kernel";
    } else {
        w = malloc(sizeof *w);
        if (!w)
            return no_memory();
        put_call(w, call, args, nargs, results, nresults);
        if (w->count != plan->count ||
            memcmp(w->words, plan->words, w->count * sizeof(uint64_t)) != 0)
            reason = "with a plan for another structure";
        free(w);
    }
    if (!reason)
        return CORE_OK;
    name = sim_host->operator_name(call->op);
    return core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                          "%.*s was launched %s", (int)name.size, name.data,
                          reason);
}
