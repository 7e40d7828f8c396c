/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The CPU's kernels, borrowed.  A launch copies the call and enqueues it; when
 * the stream reaches it, handles are translated to addresses and the CPU's
 * kernel runs on them.
 *
 * A kernel that allocates its results itself (their shape depends on data) must
 * have run when the launch returns: it runs on the caller's thread, in the
 * order of the stream. */

#include "fault.h"
#include "interpret.h"
#include "plan.h"
#include "translate.h"

#include <stdlib.h>

static core_kernel *kernels; /* the newest first */
static uint32_t nkernels;
static const core_kernel **pointers;

static core_status run_kernel(sim_work *work)
{
    sim_translated *t;
    core_status status = sim_translate(work, &t);

    if (status == CORE_OK)
        status = work->kernel->launch(&t->call, t->values, work->nargs,
                                      t->values + work->nargs, work->nresults);
    sim_translated_free(t);
    return status;
}

static void end_kernel(sim_work *work)
{
    sim_plan_destroy(work->plan);
    sim_host->call_drop(work->call);
}

static core_status run_now(sim_stream *stream, sim_work *work)
{
    core_status status = sim_stream_run_inline_begin(stream, work);

    if (status != CORE_OK)
        return status;
    work->stream = stream;
    status = run_kernel(work);
    sim_stream_run_inline_end(stream);
    free(work->conflict);
    return status;
}

static core_status check_kind(const core_call *call)
{
    const sim_stream *stream = call->stream;
    core_string name;

    if (stream->kind != CORE_STREAM_COPY)
        return CORE_OK;
    name = sim_host->operator_name(call->op);
    return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                          "%.*s needs a kernel, and the current stream of %s "
                          "only copies",
                          (int)name.size, name.data, stream->device->name);
}

/* Whether the kernel allocates its results, which are all absent then.  One of
 * several may also be absent because the caller does not want it. */
static bool allocates_results(const core_value *results, uint32_t nresults)
{
    for (uint32_t i = 0; i < nresults; i++)
        if (results[i].tag != CORE_VALUE_NONE)
            return false;
    return nresults > 0;
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    sim_work work = {.run = run_kernel,
                     .end = end_kernel,
                     .op = call->op,
                     .call_id = call->id,
                     .nargs = nargs,
                     .nresults = nresults,
                     .kernel = call->user};
    core_status status = sim_usable(call->device);

    if (status == CORE_OK)
        status = check_kind(call);
    if (status == CORE_OK)
        status = sim_fault(call->device, SIM_FAULT_LAUNCH);
    if (status != CORE_OK)
        return status;
    if (sim_set.compile) {
        status = sim_plan_check(call, args, nargs, results, nresults);
        if (status != CORE_OK)
            return status;
        work.plan = call->plan;
        work.kernel = sim_plan_kernel(work.plan);
    }
    if (allocates_results(results, nresults)) {
        work.call = call;
        work.args = args;
        work.results = results;
        return run_now(call->stream, &work);
    }
    status = sim_host->call_copy(call, args, nargs, results, nresults,
                                 &work.call, &work.args, &work.results);
    if (status != CORE_OK)
        return status;
    sim_plan_keep(work.plan);
    status = sim_enqueue(call->stream, &work);
    if (status != CORE_OK)
        end_kernel(&work);
    return status;
}

const core_kernel *sim_kernel_of(const char *name, const core_dtype *dtypes,
                                 uint32_t count)
{
    for (uint32_t i = 0; i < nkernels; i++) {
        bool fits = core_sdk_string_equal(kernels[i].name, name);

        for (uint32_t k = 0; fits && k < count; k++)
            fits = kernels[i].signature[k] == 0 ||
                   kernels[i].signature[k] >> dtypes[k] & 1;
        if (fits)
            return kernels[i].user; /* the borrowed one */
    }
    return NULL;
}

static uint32_t count_kernels(core_string cpu)
{
    const core_kernel *kernel;
    uint32_t count = 0;

    while (sim_host->backend_kernel(cpu, count, &kernel) == CORE_OK)
        count++;
    return count;
}

/* The host has just failed to lend one. */
static core_status no_cpu_kernels(void)
{
    core_error_info reason = {.struct_size = sizeof reason};

    if (sim_host->abi_minor >= 2 && sim_host->error_last)
        sim_host->error_last(&reason);
    return core_sdk_error(
        sim_host, CORE_ERROR_NOT_FOUND, "sim",
        "sim uses the kernels of cpu, which are not available: %.*s",
        (int)(reason.text.size < 1024 ? reason.text.size : 1024),
        reason.text.size ? reason.text.data : "no reason was given");
}

core_status sim_register_kernels(core_registry *registry)
{
    core_string cpu = core_sdk_string("cpu");
    uint32_t count = count_kernels(cpu);
    core_status status = CORE_OK;

    sim_translate_open();
    if (count == 0)
        return no_cpu_kernels();
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
        /* The CPU lists its newest first; that order must be preserved. */
        pointers[count - 1 - i] = &kernels[i];
        kernels[i] = *borrowed;
        kernels[i].struct_size = sizeof *kernels;
        kernels[i].launch = launch;
        kernels[i].user = (void *)(uintptr_t)borrowed;
        kernels[i].supports = NULL;
        kernels[i].prepare = sim_set.compile ? sim_plan_prepare : NULL;
        kernels[i].plan_destroy = sim_set.compile ? sim_plan_destroy : NULL;
        nkernels = i + 1;
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
    nkernels = 0;
}
