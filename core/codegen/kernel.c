/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Builds, launches and destroys kernels made of loop programs. */

#include "base/error.h"
#include "base/memory.h"
#include "base/observe.h"
#include "capture/capture.h"
#include "codegen/kernel_cache.h"
#include "codegen/loop_kernel.h"
#include "codegen/saved_kernel.h"
#include "device/stream.h"
#include "dispatch/table.h"
#include "memory/memory.h"

#include <stdatomic.h>
#include <string.h>

static const core_codegen_interface *table_of(const core_device *device)
{
    return &device->interfaces.codegen;
}

static core_status check_interface(const core_device *device)
{
    const core_codegen_interface *table = table_of(device);

    return table->accepts && table->build && table->destroy && table->launch
               ? CORE_OK
               : core__error(CORE_ERROR_UNSUPPORTED,
                             "loop program: \"%s\" does not provide "
                             "core.codegen",
                             device->name);
}

core_status core__loop_reason(const core_device *device, core_status status,
                              uint32_t errors, const char *what)
{
    return status == CORE_OK || core__thread_self()->error.sequence != errors
               ? status
               : core__error(status,
                             "loop program: %s of \"%s\" failed and gave no "
                             "reason",
                             what, device->name);
}

core_status core__loop_kernel_accepts(core_device *device,
                                      const core_loop_program *program)
{
    uint32_t errors = core__thread_self()->error.sequence;

    CORE_TRY(check_interface(device));
    return core__loop_reason(device,
                             table_of(device)->accepts(device->impl, program),
                             errors, "accepts");
}

/* The kernel's struct, without the plugin's part. */
static core_status prepare(core_device *device, core_loop_program *program,
                           core__loop_kernel **out_kernel)
{
    core__loop_kernel *kernel;

    *out_kernel = NULL;
    CORE_TRY(check_interface(device));
    kernel = core__alloc_zero(sizeof *kernel);
    if (!kernel)
        return core__error_memory(sizeof *kernel);
    atomic_init(&kernel->references, 1);
    kernel->generation = atomic_load(&device->generation);
    kernel->device = core_device_retain(device);
    kernel->program = core__loop_program_retain(program);
    *out_kernel = kernel;
    return CORE_OK;
}

static void free_kernel(core__loop_kernel *kernel)
{
    core__loop_program_release(kernel->program);
    core_device_release(kernel->device);
    core__free(kernel);
}

/* The end of build and load. */
static core_status complete(core__loop_kernel *kernel, core_status status,
                            uint32_t errors, const char *what,
                            core__loop_kernel **out_kernel)
{
    status = core__loop_reason(kernel->device, status, errors, what);
    if (status == CORE_OK && !kernel->impl)
        status = core__error(CORE_ERROR_INTERNAL,
                             "loop program: %s of \"%s\" returned no kernel",
                             what, kernel->device->name);
    if (status == CORE_OK)
        *out_kernel = kernel;
    else
        free_kernel(kernel);
    return status;
}

core_status core__loop_kernel_build(core_device *device,
                                    core_loop_program *program,
                                    const core_loop_hints *hints,
                                    core__loop_kernel **out_kernel)
{
    uint32_t errors = core__thread_self()->error.sequence;
    core__loop_kernel *kernel;
    core_status status;

    *out_kernel = NULL;
    CORE_TRY(prepare(device, program, &kernel));
    status =
        table_of(device)->build(device->impl, program, hints, &kernel->impl);
    return complete(kernel, status, errors, "build", out_kernel);
}

core_status core__loop_kernel_restore(core_device *device,
                                      core_loop_program *program,
                                      const void *data, uint64_t size,
                                      core__loop_kernel **out_kernel)
{
    uint32_t errors = core__thread_self()->error.sequence;
    core__loop_kernel *kernel;
    core_status status;

    *out_kernel = NULL;
    CORE_TRY(prepare(device, program, &kernel));
    status = table_of(device)->load(device->impl, program, data, size,
                                    &kernel->impl);
    return complete(kernel, status, errors, "load", out_kernel);
}

/* --------------------------------------------------------------- sharing -- */

static core__loop_kernel *kernels; /* that are shared */

/* A reference, unless the last one is being released. */
static bool retain_used(core__loop_kernel *kernel)
{
    uint32_t count = atomic_load(&kernel->references);

    while (count > 0)
        if (atomic_compare_exchange_weak(&kernel->references, &count,
                                         count + 1))
            return true;
    return false;
}

core__loop_kernel *core__loop_kernel_find(const core_device *device,
                                          const core_loop_program *program,
                                          const core_loop_hints *hints)
{
    core__loop_kernel *k;

    core__registry_lock();
    for (k = kernels; k; k = k->next)
        if (k->device == device && k->hints == hints->flags &&
            k->generation == atomic_load(&device->generation) &&
            memcmp(k->program->hash, program->hash, sizeof program->hash) ==
                0 &&
            retain_used(k))
            break;
    core__registry_unlock();
    return k;
}

static void add(core__loop_kernel *kernel, uint32_t hints)
{
    kernel->hints = hints;
    kernel->shared = true;
    core__registry_lock();
    kernel->next = kernels;
    if (kernels)
        kernels->previous = kernel;
    kernels = kernel;
    core__registry_unlock();
}

static void take_out(core__loop_kernel *kernel)
{
    core__registry_lock();
    if (kernel->next)
        kernel->next->previous = kernel->previous;
    if (kernel->previous)
        kernel->previous->next = kernel->next;
    else
        kernels = kernel->next;
    core__registry_unlock();
}

core_status core__loop_kernel_make_shared(core_device *device,
                                          core_loop_program *program,
                                          const core_loop_hints *hints,
                                          core__loop_kernel **out_kernel)
{
    bool kept = device->interfaces.codegen.flags & CORE_CODEGEN_BUILDS_SLOWLY;

    *out_kernel = NULL;
    if (kept)
        core__kernel_cache_load(device, program, hints, out_kernel);
    if (!*out_kernel) {
        CORE_TRY(core__loop_kernel_build(device, program, hints, out_kernel));
        if (kept)
            core__kernel_cache_store(*out_kernel, hints);
    }
    add(*out_kernel, hints->flags);
    return CORE_OK;
}

core__loop_kernel *core__loop_kernel_retain(core__loop_kernel *kernel)
{
    atomic_fetch_add_explicit(&kernel->references, 1, memory_order_relaxed);
    return kernel;
}

void core__loop_kernel_release(core__loop_kernel *kernel)
{
    if (!kernel || atomic_fetch_sub_explicit(&kernel->references, 1,
                                             memory_order_acq_rel) > 1)
        return;
    if (kernel->shared)
        take_out(kernel);
    table_of(kernel->device)->destroy(kernel->device->impl, kernel->impl);
    free_kernel(kernel);
}

/* -------------------------------------------------------------- launch -- */

static core_status check_device(const core__loop_kernel *kernel,
                                core_stream *stream)
{
    const core_device *device = kernel->device;

    if (device->synchronous)
        return CORE_OK;
    CORE_TRY(core__stream_check(stream));
    if (kernel->generation != atomic_load(&device->generation))
        return core__error(CORE_ERROR_DEVICE_LOST,
                           "loop program: the kernel was built before \"%s\" "
                           "was reset",
                           device->name);
    return CORE_OK;
}

static core_status submit(core__loop_kernel *kernel, core_stream *stream,
                          const core_loop_launch *launch)
{
    core_device *device = kernel->device;
    void *work = NULL;
    core_status status;

    if (!device->synchronous)
        work = core__observe_work(stream, "loop program", launch->id,
                                  CORE__WORK_KERNEL);
    status = table_of(device)->launch(device->impl, kernel->impl, launch);
    core__observe_work_end(work, stream);
    return status;
}

static core_status scratch_size(const core__loop_kernel *kernel,
                                const core_loop *loop, uint64_t *out_size)
{
    const core_codegen_interface *table = table_of(kernel->device);
    uint32_t errors = core__thread_self()->error.sequence;

    *out_size = 0;
    if (!table->scratch_size)
        return CORE_OK;
    return core__loop_reason(
        kernel->device,
        table->scratch_size(kernel->device->impl, kernel->impl, loop, out_size),
        errors, "scratch_size");
}

core_status core__loop_kernel_launch(core__loop_kernel *kernel,
                                     const core_loop *loop,
                                     core__loop_division division,
                                     core__loop_ahead ahead)
{
    core_device *device = kernel->device;
    core__thread *self = core__thread_self();
    core_stream *stream = core__stream_current_of(self, device);
    core_loop_launch launch = {.struct_size = sizeof launch,
                               .flags =
                                   self->call_flags & CORE_CALL_DETERMINISTIC,
                               .stream = stream->impl,
                               .loop = loop,
                               .tile = division.tile,
                               .threads = division.threads,
                               .ahead = ahead.ranges,
                               .nahead = ahead.count};
    struct core__block *block = NULL;
    uint64_t size, capacity = 0;
    uint32_t errors;
    core_status status;

    CORE_TRY(check_device(kernel, stream));
    CORE_TRY(scratch_size(kernel, loop, &size));
    if (size > 0)
        CORE_TRY(core__memory_alloc(device, size, &launch.scratch, &capacity,
                                    &block));
    if (stream->capture) {
        launch.flags |= CORE_CALL_CAPTURING;
        core__capture_count_work(stream);
    }
    if (!device->synchronous)
        launch.id = core__call_number();
    errors = self->error.sequence;
    status = submit(kernel, stream, &launch);
    if (size > 0)
        core__memory_free(device, launch.scratch, capacity, block);
    status = core__loop_reason(device, status, errors, "launch");
    if (status == CORE_OK)
        core__thread_increment(&self->launches[device->launch_slot]);
    if (device->synchronous)
        return status;
    if (status != CORE_OK)
        return core__stream_check_submitted(stream, status, errors);
    return core__stream_record_launch(stream, NULL, launch.id);
}

bool core__loop_kernel_can_follow(const core_device *device)
{
    const core_codegen_interface *table = table_of(device);

    return device->synchronous && table->launch_after && !table->scratch_size;
}

core_status core__loop_kernel_launch_after(core__loop_kernel *kernel,
                                           const core_loop *loop,
                                           uint32_t result,
                                           core_status (*produce)(void *),
                                           void *context)
{
    core_device *device = kernel->device;
    core__thread *self = core__thread_self();
    core_loop_launch launch = {
        .struct_size = sizeof launch,
        .flags = self->call_flags & CORE_CALL_DETERMINISTIC,
        .stream = core__stream_current_of(self, device)->impl,
        .loop = loop};
    uint32_t errors = self->error.sequence;
    core_status status = table_of(device)->launch_after(
        device->impl, kernel->impl, &launch, result, produce, context);

    if (status == CORE_OK)
        core__thread_increment(&self->launches[device->launch_slot]);
    return core__loop_reason(device, status, errors, "launch_after");
}
