/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrapper of core.codegen. */

#include "interpose/interposer.h"

#define REAL(device) (&(device)->backend->interfaces.codegen)

static core_status enter(interposer_call *call, const interposer_device *device,
                         const char *slot, interposer_kind kind)
{
    return interposer_enter(call, device->backend->interposers,
                            device->backend->type, slot, kind);
}

static core_status identity(void *handle, core_string *out_text)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "codegen.identity", INTERPOSER_INTERFACE));
    status = REAL(device)->identity(device->impl, out_text);
    return interposer_leave(&call, status, "%p -> %llu bytes", device->impl,
                            (unsigned long long)out_text->size);
}

static core_status accepts(void *handle, const core_loop_program *program)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "codegen.accepts", INTERPOSER_INTERFACE));
    status = REAL(device)->accepts(device->impl, program);
    return interposer_leave(&call, status, "%p, %u instructions", device->impl,
                            program->ninstructions);
}

/* The end of build and load. */
static core_status made(interposer_call *call, interposer_device *device,
                        core_status status, const core_loop_program *program,
                        void *kernel)
{
    if (status == CORE_OK)
        interposer_created(call, INTERPOSER_KERNEL_OBJECT, device, kernel, 0,
                           0);
    return interposer_leave(call, status, "%p, %u instructions -> %p",
                            device->impl, program->ninstructions, kernel);
}

static core_status build(void *handle, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "codegen.build", INTERPOSER_PREPARE));
    status = REAL(device)->build(device->impl, program, hints, out_kernel);
    return made(&call, device, status, program, *out_kernel);
}

static void destroy(void *handle, void *kernel)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "codegen.destroy", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_KERNEL_OBJECT, device, kernel, 0,
                            0))
        REAL(device)->destroy(device->impl, kernel);
    interposer_leave_void(&call, "%p, %p", device->impl, kernel);
}

static core_status scratch_size(void *handle, void *kernel,
                                const core_loop *loop, uint64_t *out_size)
{
    interposer_device *device = handle;
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(
        enter(&call, device, "codegen.scratch_size", INTERPOSER_INTERFACE));
    if (interposer_uses(&call, INTERPOSER_KERNEL_OBJECT, device, kernel, true))
        status =
            REAL(device)->scratch_size(device->impl, kernel, loop, out_size);
    return interposer_leave(&call, status, "%p, %p -> %llu", device->impl,
                            kernel, (unsigned long long)*out_size);
}

static void check_launch(interposer_call *call, interposer_device *device,
                         const core_loop_launch *now)
{
    bool streams = device->backend->real.streams != NULL;

    if (streams)
        interposer_uses(call, INTERPOSER_STREAM_OBJECT, device, now->stream,
                        true);
    if (streams &&
        interposer_is_capturing(call->interposers, device, now->stream) !=
            ((now->flags & CORE_CALL_CAPTURING) != 0))
        interposer_violation(call, "libcore: the flag CAPTURING is wrong");
    interposer_check_loop(call, device, now->loop);
}

static core_status launch(void *handle, void *kernel,
                          const core_loop_launch *now)
{
    interposer_device *device = handle;
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, device, "codegen.launch", INTERPOSER_LAUNCH));
    if (interposer_validates(call.interposers))
        check_launch(&call, device, now);
    if (interposer_uses(&call, INTERPOSER_KERNEL_OBJECT, device, kernel, true))
        status = REAL(device)->launch(device->impl, kernel, now);
    return interposer_leave(&call, status, "%p, %p, %lld elements",
                            device->impl, kernel, (long long)now->loop->numel);
}

/* The function that launches the other kernel, counted. */
typedef struct production {
    core_status (*produce)(void *context);
    void *context;
    core_status status; /* of its last call */
    uint32_t calls;
} production;

static core_status produce_counted(void *context)
{
    production *p = context;

    p->calls++;
    p->status = p->produce(p->context);
    return p->status;
}

static void check_result(interposer_call *call, const core_loop *loop,
                         uint32_t result)
{
    if (result < loop->noutputs || result >= loop->noperands)
        interposer_violation(call,
                             "libcore: operand %u is not an input of the loop, "
                             "which has %u outputs and %u operands",
                             result, loop->noutputs, loop->noperands);
    else if (loop->operands[result].flags & CORE_OPERAND_IMMEDIATE)
        interposer_violation(call, "libcore: operand %u is not in memory",
                             result);
}

static void check_production(interposer_call *call, core_status status,
                             const production *p)
{
    if (p->calls > 1 || (p->calls == 0 && status == CORE_OK))
        interposer_violation(call, "calls produce %u times instead of once",
                             p->calls);
    else if (p->calls == 1 && p->status != CORE_OK && status != p->status)
        interposer_violation(call,
                             "produce returned %d, and this is not "
                             "what it returns",
                             (int)p->status);
}

static core_status launch_after(void *handle, void *kernel,
                                const core_loop_launch *now, uint32_t result,
                                core_status (*produce)(void *context),
                                void *context)
{
    interposer_device *device = handle;
    core_status status = CORE_ERROR_INTERNAL;
    production p = {produce, context, CORE_OK, 0};
    interposer_call call;
    bool validates;

    CORE_TRY(enter(&call, device, "codegen.launch_after", INTERPOSER_LAUNCH));
    validates = interposer_validates(call.interposers);
    if (validates) {
        check_launch(&call, device, now);
        check_result(&call, now->loop, result);
    }
    if (interposer_uses(&call, INTERPOSER_KERNEL_OBJECT, device, kernel,
                        true)) {
        status = REAL(device)->launch_after(device->impl, kernel, now, result,
                                            produce_counted, &p);
        if (validates)
            check_production(&call, status, &p);
    }
    return interposer_leave(&call, status, "%p, %p, %lld elements",
                            device->impl, kernel, (long long)now->loop->numel);
}

static core_status save(void *handle, void *kernel, void *data,
                        uint64_t capacity, uint64_t *out_size)
{
    interposer_device *device = handle;
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, device, "codegen.save", INTERPOSER_INTERFACE));
    if (interposer_uses(&call, INTERPOSER_KERNEL_OBJECT, device, kernel, true))
        status =
            REAL(device)->save(device->impl, kernel, data, capacity, out_size);
    return interposer_leave(&call, status, "%p, %p, %llu -> %llu", device->impl,
                            kernel, (unsigned long long)capacity,
                            (unsigned long long)*out_size);
}

static core_status load(void *handle, const core_loop_program *program,
                        const void *data, uint64_t size, void **out_kernel)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "codegen.load", INTERPOSER_PREPARE));
    status = REAL(device)->load(device->impl, program, data, size, out_kernel);
    return made(&call, device, status, program, *out_kernel);
}

const core_codegen_interface interposer_codegen = {
    .struct_size = sizeof(core_codegen_interface),
    .identity = identity,
    .accepts = accepts,
    .build = build,
    .destroy = destroy,
    .scratch_size = scratch_size,
    .launch = launch,
    .save = save,
    .load = load,
    .launch_after = launch_after,
};
