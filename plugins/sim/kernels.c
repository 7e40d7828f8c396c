/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The CPU's kernels, borrowed.  A launch copies the call and puts it on the
 * stream; when the stream comes to it, handles become addresses and the CPU's
 * kernel runs on them.
 *
 * A kernel that is to allocate results itself (their shape depends on data)
 * must be done when the launch returns: for it the stream is run to its end,
 * and the host table that it sees allocates in device memory and shows the
 * address. */

#include "sim.h"

#include <stdlib.h>

enum { VALUES = 48, VIEWS = 64, OPERANDS = 16 };

static core_kernel *kernels;
static const core_kernel **pointers;

/* A call with addresses for handles. */
typedef struct translated {
    core_call call;
    core_loop loop;
    core_operand operands[OPERANDS];
    core_value values[VALUES];
    core_view views[VIEWS];
    const core_view *lists[VIEWS];
    uint32_t nviews;
    uint32_t nlisted;
} translated;

static core_memory address(core_memory memory)
{
    core_memory flat = {NULL, 0};

    if (memory.handle)
        flat.handle = sim_memory_address(memory);
    return flat;
}

static int translate_view(translated *t, const core_view *view,
                          const core_view **out_view)
{
    *out_view = NULL;
    if (!view)
        return 0;
    if (t->nviews == VIEWS)
        return -1;
    t->views[t->nviews] = *view;
    t->views[t->nviews].memory = address(view->memory);
    *out_view = &t->views[t->nviews++];
    return 0;
}

static int translate_value(translated *t, const core_value *from,
                           core_value *to)
{
    *to = *from;
    if (from->tag == CORE_VALUE_VIEW)
        return translate_view(t, from->u.view, &to->u.view);
    if (from->tag != CORE_VALUE_VIEW_LIST)
        return 0;
    if (t->nlisted + from->count > VIEWS)
        return -1;
    to->u.views = &t->lists[t->nlisted];
    for (uint32_t i = 0; i < from->count; i++)
        if (translate_view(t, from->u.views[i], &t->lists[t->nlisted++]) != 0)
            return -1;
    return 0;
}

static int translate(translated *t, const sim_work *work)
{
    const core_loop *loop = work->call->loop;
    uint32_t count = work->nargs + work->nresults;

    t->nviews = t->nlisted = 0;
    t->call = *work->call;
    t->call.user = work->kernel->user;
    t->call.device = NULL;
    t->call.stream = NULL;
    if (count > VALUES || (loop && loop->noperands > OPERANDS))
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        const core_value *from =
            i < work->nargs ? &work->args[i] : &work->results[i - work->nargs];

        if (translate_value(t, from, &t->values[i]) != 0)
            return -1;
    }
    if (!loop)
        return 0;
    t->loop = *loop;
    t->loop.operands = t->operands;
    t->call.loop = &t->loop;
    for (uint32_t i = 0; i < loop->noperands; i++) {
        t->operands[i] = loop->operands[i];
        if (!(loop->operands[i].flags & CORE_OPERAND_IMMEDIATE))
            t->operands[i].memory = address(loop->operands[i].memory);
    }
    return 0;
}

static core_status run_kernel(sim_work *work)
{
    translated *t = malloc(sizeof *t);
    core_status status;

    if (!t)
        status = core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                                "no host memory to run a kernel");
    else if (translate(t, work) != 0)
        status = core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                                "a call with too many operands");
    else
        status = work->kernel->launch(&t->call, t->values, work->nargs,
                                      t->values + work->nargs, work->nresults);
    free(t);
    sim_host->call_drop(work->call);
    return status;
}

static core_host lent_host; /* what such a kernel sees */

static core_status allocate(core_call *call, uint32_t index, core_dtype dtype,
                            uint32_t ndim, const int64_t *sizes,
                            const core_view **out_view)
{
    translated *t = (translated *)(void *)call; /* its first member */
    const core_view *view;
    core_status status =
        sim_host->call_allocate_result(call, index, dtype, ndim, sizes, &view);

    *out_view = NULL;
    if (status == CORE_OK && translate_view(t, view, out_view) != 0)
        status = core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                                "a call with too many operands");
    return status;
}

static core_status run_now(sim_work *work)
{
    translated *t = malloc(sizeof *t);
    core_status status = sim_stream_table.synchronize(NULL, NULL);

    if (status == CORE_OK && !t)
        status = core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                                "no host memory to run a kernel");
    if (status == CORE_OK && translate(t, work) != 0)
        status = core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                                "a call with too many operands");
    if (status == CORE_OK) {
        t->call.host = &lent_host;
        status = work->kernel->launch(&t->call, t->values, work->nargs,
                                      t->values + work->nargs, work->nresults);
    }
    free(t);
    return status;
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    sim_work work = {.run = run_kernel,
                     .nargs = nargs,
                     .nresults = nresults,
                     .kernel = call->user};
    core_status status;

    for (uint32_t i = 0; i < nresults; i++) {
        if (results[i].tag != CORE_VALUE_NONE)
            continue;
        work.call = call;
        work.args = args;
        work.results = results;
        return run_now(&work);
    }
    status = sim_host->call_copy(call, args, nargs, results, nresults,
                                 &work.call, &work.args, &work.results);
    if (status != CORE_OK)
        return status;
    status = sim_enqueue(&work);
    if (status != CORE_OK)
        sim_host->call_drop(work.call);
    return status;
}

static uint32_t count_kernels(core_string cpu)
{
    const core_kernel *kernel;
    uint32_t count = 0;

    while (sim_host->backend_kernel(cpu, count, &kernel) == CORE_OK)
        count++;
    return count;
}

core_status sim_register_kernels(core_registry *registry)
{
    core_string cpu = core_sdk_string("cpu");
    uint32_t count = count_kernels(cpu);
    core_status status = CORE_OK;

    lent_host = *sim_host;
    lent_host.call_allocate_result = allocate;
    if (count == 0)
        return core_sdk_error(sim_host, CORE_ERROR_NOT_FOUND, "sim",
                              "the cpu backend, whose kernels are borrowed, "
                              "has none");
    kernels = calloc(count, sizeof *kernels);
    pointers = calloc(count, sizeof *pointers);
    if (!kernels || !pointers)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory for %u kernels", count);
    for (uint32_t i = 0; i < count && status == CORE_OK; i++) {
        const core_kernel *borrowed;

        status = sim_host->backend_kernel(cpu, i, &borrowed);
        if (status != CORE_OK)
            break;
        /* The CPU lists its newest first; the newest must stay so here. */
        pointers[count - 1 - i] = &kernels[i];
        kernels[i] = *borrowed;
        kernels[i].struct_size = sizeof *kernels;
        kernels[i].launch = launch;
        kernels[i].user = (void *)(uintptr_t)borrowed;
        kernels[i].supports = NULL;
    }
    if (status == CORE_OK)
        status = sim_host->register_kernels(registry, core_sdk_string("sim"),
                                            pointers, count);
    return status;
}

void sim_kernels_close(void)
{
    free(kernels);
    free(pointers);
    kernels = NULL;
    pointers = NULL;
}
