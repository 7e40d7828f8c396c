/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "dispatch/launch_log.h"

#include "base/memory.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"
#include "dispatch/table.h"
#include "dispatch/upcalls.h"
#include "ops_ids.h"

core_status core__launch_log_refuse(core__launch_log *log, const char *reason)
{
    log->refusal = reason;
    return core__error(CORE_ERROR_UNSUPPORTED, "%s", reason);
}

void core__launch_log_random(core__launch_log *log, core_generator *generator,
                             uint64_t numbers, uint32_t argument)
{
    log->random = numbers ? argument : 0;
    log->numbers = numbers;
    log->generator = generator;
}

static void append(core__launch_log *log, core__logged_launch *launch)
{
    if (log->last)
        log->last->next = launch;
    else
        log->first = launch;
    log->last = launch;
}

core_status core__launch_log_add(core__launch_log *log,
                                 const core__kernel_call *run,
                                 const core_kernel *kernel,
                                 const core_loop *loop, const core_value *args,
                                 uint32_t nargs, const core_value *results,
                                 uint32_t nresults)
{
    core__logged_launch *launch = core__alloc_zero(sizeof *launch);
    core_status status;

    if (!launch)
        return core__error_memory(sizeof *launch);
    launch->kernel = kernel;
    launch->nargs = nargs;
    launch->nresults = nresults;
    launch->random = log->random;
    launch->numbers = log->numbers;
    launch->generator = log->generator;
    log->random = 0;
    status = core__kernel_call_copy(run, loop, args, results, launch);
    if (status != CORE_OK) {
        core__logged_launch_free(launch);
        return status;
    }
    for (uint32_t i = 0; i < run->ntensors; i++)
        core__tensor_retain(core__logged_tensors(launch)[i]);
    launch->holds_tensors = true;
    append(log, launch);
    return CORE_OK;
}

void core__logged_launch_release(core__logged_launch *launch)
{
    for (uint32_t i = 0; launch->holds_tensors && i < launch->run->ntensors;
         i++)
        core__tensor_release(core__logged_tensors(launch)[i]);
    launch->holds_tensors = false;
}

void core__logged_launch_free(core__logged_launch *launch)
{
    if (!launch)
        return;
    core__logged_launch_release(launch);
    if (launch->run && launch->run->ntensors > CORE__KERNEL_TENSORS)
        core__free(launch->run->many);
    core__call_drop(launch->block);
    core__free(launch);
}

void core__launch_log_clear(core__launch_log *log)
{
    while (log->first) {
        core__logged_launch *launch = log->first;

        log->first = launch->next;
        core__logged_launch_free(launch);
    }
    log->last = NULL;
}

/* --------------------------------------------------------------- calls -- */

/* The kernels that serve the operator on the device, if nothing else does:
 * neither a program nor a plugin has registered a function for it. */
static core__kernel_set *kernels_of(core_operator *op,
                                    const core_device *device)
{
    core__kernel_set *set = NULL;

    core__registry_lock();
    if (!op->registrations && op->family >= CORE__FAMILY_ELEMENTWISE)
        set = core__registry_set(core__operator_kernel(op), device->backend);
    if (set && !atomic_load(&set->first))
        set = NULL;
    core__registry_unlock();
    return set;
}

/* Functions that only create tensors, and fill them or copy to them. */
static bool makes_tensors(const core_operator *op)
{
    return op->data->function && (op->flags & CORE__OP_PRIMITIVE ||
                                  op->id == CORE_OP_AS_STRIDED_SCATTER);
}

static const char *refusal_of(const core_operator *op,
                              const core__kernel_set *set)
{
    if (op->flags & CORE__OP_CUSTOM)
        return "it is an operator of a program or plugin";
    if (op->registrations)
        return "a function is registered for it";
    if (op->flags & (CORE__OP_DYNAMIC_OUTPUT | CORE__OP_HOST_WAIT))
        return "its results depend on data";
    if (op->family < CORE__FAMILY_ELEMENTWISE)
        return makes_tensors(op) ? NULL : "it is a function, not a kernel";
    return set ? NULL : "the device has no kernel for it";
}

/* Takes the place of an array of current streams with no entries: while a
 * thread has an array, core__kernel_launch looks for a log. */
static core_stream *no_streams[1];

static void begin(core__launch_log *log, core__error_record *saved)
{
    core__thread *self = core__thread_self();

    core__error_save(saved);
    if (!self->streams)
        self->streams = no_streams;
    log->refusal = NULL;
    log->random = 0; /* of a call that failed before its launch */
    self->launch_log = log;
    core__thread_enter(self);
}

static core_status end(const core__error_record *saved, core_status status)
{
    core__thread *self = core__thread_self();

    core__thread_leave(self);
    self->launch_log = NULL;
    if (self->streams == no_streams)
        self->streams = NULL;
    core__error_restore(saved);
    return status;
}

core_status core__launch_log_call(core__launch_log *log, core_operator *op,
                                  core_device *device, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    core__kernel_set *set = kernels_of(op, device);
    core_call call = {.struct_size = CORE__FUNCTION_CALL_SIZE,
                      .host = &core__host,
                      .user = set,
                      .op = op,
                      .keys = device->keys | CORE__KEY_BACKEND};
    core__error_record saved;
    core_function function;

    log->refusal = refusal_of(op, set);
    if (log->refusal)
        return CORE_ERROR_UNSUPPORTED;
    function = op->family < CORE__FAMILY_ELEMENTWISE ? op->data->function
               : op->family == CORE__FAMILY_ELEMENTWISE
                   ? core__elementwise_general
                   : core__structured_run(op, set);
    begin(log, &saved);
    return end(&saved, function(&call, args, nargs, results, nresults));
}

core_status core__launch_log_copy(core__launch_log *log, core_tensor *to,
                                  core_tensor *from)
{
    core__error_record saved;

    begin(log, &saved);
    return end(&saved, core__dispatch_copy(to, from));
}
