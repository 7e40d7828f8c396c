/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gives a kernel of the CPU host addresses, and a host table whose services
 * provide memory that the kernel can access. */

#include "translate.h"

#include "interpret.h"

#include "race.h"

#include <stdlib.h>

static core_host lent_host; /* the table that borrowed kernels get */

static core_status address(sim_translated *t, core_memory memory, uint64_t size,
                           core_memory *out)
{
    core_status status = CORE_OK;

    out->handle = NULL;
    out->offset = 0;
    if (memory.handle && size > 0)
        status = sim_memory_resolve(t->device, memory, size, &out->handle);
    return status;
}

/* Bytes from the first element to the end of the last. */
static uint64_t view_span(const core_view *view)
{
    uint64_t last = 0;

    if (view->numel == 0)
        return 0;
    for (uint32_t i = 0; i < view->ndim; i++)
        last += (uint64_t)((view->sizes[i] - 1) * view->strides[i]);
    return (last + 1) * core_sdk_itemsize(view->dtype);
}

static uint64_t operand_span(const core_loop *loop, const core_operand *operand)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < loop->ndim; i++) {
        if (operand->strides[i] == 0)
            continue;
        if (loop->sizes[i] == 0)
            return 0;
        last += (uint64_t)((loop->sizes[i] - 1) * operand->strides[i]);
    }
    return last + core_sdk_itemsize(operand->dtype);
}

static core_status too_many(void)
{
    return core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                          "a call with too many operands");
}

core_status sim_translate_operands(sim_device *device, const core_loop *loop,
                                   core_operand *operands)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < loop->noperands && status == CORE_OK; i++) {
        operands[i] = loop->operands[i];
        if (operands[i].flags & CORE_OPERAND_IMMEDIATE)
            continue;
        operands[i].memory = (core_memory){0};
        status = sim_memory_resolve(device, loop->operands[i].memory,
                                    operand_span(loop, &loop->operands[i]),
                                    &operands[i].memory.handle);
    }
    return status;
}

core_status sim_translate_view(sim_translated *t, const core_view *view,
                               const core_view **out_view)
{
    core_view *to;

    *out_view = NULL;
    if (!view)
        return CORE_OK;
    if (t->nviews == t->most)
        return too_many();
    to = &t->views[t->nviews++];
    *to = *view;
    *out_view = to;
    return address(t, view->memory, view_span(view), &to->memory);
}

static core_status translate_value(sim_translated *t, const core_value *from,
                                   core_value *to)
{
    core_status status = CORE_OK;

    *to = *from;
    if (from->tag == CORE_VALUE_VIEW)
        return sim_translate_view(t, from->u.view, &to->u.view);
    if (from->tag != CORE_VALUE_VIEW_LIST)
        return CORE_OK;
    to->u.views = &t->lists[t->nlisted];
    for (uint32_t i = 0; i < from->count && status == CORE_OK; i++)
        status =
            sim_translate_view(t, from->u.views[i], &t->lists[t->nlisted++]);
    return status;
}

static core_status translate_loop(sim_translated *t, const core_loop *loop)
{
    core_status status = CORE_OK;

    if (loop->noperands > SIM_OPERANDS)
        return too_many();
    t->loop = *loop;
    t->loop.operands = t->operands;
    t->call.loop = &t->loop;
    for (uint32_t i = 0; i < loop->noperands && status == CORE_OK; i++) {
        const core_operand *operand = &loop->operands[i];

        t->operands[i] = *operand;
        if (!(operand->flags & CORE_OPERAND_IMMEDIATE))
            status = address(t, operand->memory, operand_span(loop, operand),
                             &t->operands[i].memory);
    }
    return status;
}

static core_status translate(sim_translated *t, const sim_work *work)
{
    uint32_t count = work->nargs + work->nresults;
    core_status status = CORE_OK;

    t->nviews = t->nlisted = t->nscratch = 0;
    t->call = *work->call;
    t->call.host = &lent_host;
    t->call.user = work->kernel->user;
    t->call.device = NULL;
    t->call.stream = NULL;
    t->call.plan = NULL;
    if (count > SIM_VALUES)
        return too_many();
    for (uint32_t i = 0; i < count && status == CORE_OK; i++)
        status = translate_value(
            t,
            i < work->nargs ? &work->args[i] : &work->results[i - work->nargs],
            &t->values[i]);
    if (status == CORE_OK && work->call->loop)
        status = translate_loop(t, work->call->loop);
    return status;
}

static uint32_t listed_views(const core_value *values, uint32_t count)
{
    uint32_t views = 0;

    for (uint32_t i = 0; i < count; i++)
        if (values[i].tag == CORE_VALUE_VIEW_LIST)
            views += values[i].count;
    return views;
}

core_status sim_translate(sim_work *work, sim_translated **out)
{
    uint32_t most = SIM_VIEWS + listed_views(work->args, work->nargs) +
                    listed_views(work->results, work->nresults);
    sim_translated *t =
        malloc(sizeof *t + most * (sizeof *t->views + sizeof *t->lists));
    core_status status;

    *out = NULL;
    if (!t)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory to run a kernel");
    t->views = (core_view *)(t + 1);
    t->lists = (const core_view **)(t->views + most);
    t->most = most;
    t->work = work;
    t->device = work->stream->device;
    status = translate(t, work);
    if (status != CORE_OK)
        sim_translated_free(t);
    else
        *out = t;
    return status;
}

void sim_translated_free(sim_translated *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->nscratch; i++)
        free(t->scratch[i]);
    free(t);
}

/* ------------------------------------------------------------- services -- */

static core_status scratch(core_call *call, uint64_t size, core_memory *out)
{
    sim_translated *t = (sim_translated *)(void *)call; /* its first member */
    void *data = t->nscratch < SIM_SCRATCH
                     ? aligned_alloc(64, (size + 63) / 64 * 64)
                     : NULL;

    out->handle = data;
    out->offset = 0;
    if (!data)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory for %llu bytes of scratch",
                              (unsigned long long)size);
    t->scratch[t->nscratch++] = data;
    return CORE_OK;
}

static core_status allocate(core_call *call, uint32_t index, core_dtype dtype,
                            uint32_t ndim, const int64_t *sizes,
                            const core_view **out_view)
{
    sim_translated *t = (sim_translated *)(void *)call;
    const core_view *view;
    core_status status =
        sim_host->call_allocate_result(call, index, dtype, ndim, sizes, &view);

    *out_view = NULL;
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    sim_race_note_result(t->work->stream, t->work, view);
    pthread_mutex_unlock(&sim_lock);
    if (t->work->conflict)
        return core_sdk_error(sim_host, CORE_ERROR_STREAM, "sim", "%s",
                              t->work->conflict);
    return sim_translate_view(t, view, out_view);
}

void sim_translate_open(void)
{
    lent_host = *sim_host;
    lent_host.call_scratch = scratch;
    lent_host.call_allocate_result = allocate;
}
