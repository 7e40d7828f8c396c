/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.codegen: kernels of loop programs, which the streams' workers
 * interpret. */

#include "codegen.h"

#include "fault.h"
#include "interpret.h"

#include <stdlib.h>

typedef struct sim_loop_kernel {
    _Atomic uint32_t references; /* held by the core and by work */
    sim_program program;
    uint8_t hash[32];
} sim_loop_kernel;

/* A saved kernel: this, then its instructions. */
typedef struct saved {
    char magic[8];
    uint8_t hash[32];
    uint32_t ninstructions;
    uint32_t reserved;
} saved;

static const char magic[8] = {'s', 'i', 'm', 'l', 'o', 'o', 'p', '1'};

_Atomic uint64_t sim_loop_kernels;

static core_status no_memory(const char *what)
{
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no host memory for %s", what);
}

static core_status identity(void *device, core_string *out_text)
{
    (void)device;
    *out_text = core_sdk_string("sim interpreter 1");
    return CORE_OK;
}

static core_status accepts(void *device, const core_loop_program *program)
{
    sim_program made;
    core_status status = sim_usable(device);

    if (status != CORE_OK)
        return status;
    status = sim_program_make(program, &made);
    sim_program_free(&made);
    return status;
}

static core_status build(void *device, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel)
{
    sim_loop_kernel *kernel;
    core_status status = sim_usable(device);

    (void)hints;
    *out_kernel = NULL;
    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_PLAN);
    if (status != CORE_OK)
        return status;
    kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return no_memory("a kernel");
    status = sim_program_make(program, &kernel->program);
    if (status != CORE_OK) {
        sim_program_free(&kernel->program);
        free(kernel);
        return status;
    }
    atomic_init(&kernel->references, 1);
    memcpy(kernel->hash, program->hash, sizeof kernel->hash);
    atomic_fetch_add(&sim_loop_kernels, 1);
    *out_kernel = kernel;
    return CORE_OK;
}

static void unref(sim_loop_kernel *kernel)
{
    if (atomic_fetch_sub(&kernel->references, 1) > 1)
        return;
    sim_program_free(&kernel->program);
    free(kernel);
    atomic_fetch_sub(&sim_loop_kernels, 1);
}

static void destroy(void *device, void *kernel)
{
    (void)device;
    unref(kernel);
}

/* -------------------------------------------------------------- launch -- */

/* One block: this, then the loop's operands, sizes and strides. */
typedef struct launched {
    sim_loop_kernel *kernel;
    core_memory scratch;
    core_loop loop;
    int64_t numbers[];
} launched;

static launched *copy_launch(sim_loop_kernel *kernel,
                             const core_loop_launch *launch)
{
    const core_loop *from = launch->loop;
    size_t strides = (size_t)from->ndim * (from->noperands + 1);
    launched *copy = malloc(sizeof *copy + strides * sizeof(int64_t) +
                            from->noperands * sizeof(core_operand));
    core_operand *operands;
    int64_t *at;

    if (!copy)
        return NULL;
    copy->kernel = kernel;
    copy->scratch = launch->scratch;
    copy->loop = *from;
    at = copy->numbers;
    if (from->ndim)
        memcpy(at, from->sizes, from->ndim * sizeof *at);
    copy->loop.sizes = at;
    at += from->ndim;
    operands = (core_operand *)(void *)(copy->numbers + strides);
    copy->loop.operands = operands;
    for (uint32_t k = 0; k < from->noperands; k++) {
        operands[k] = from->operands[k];
        operands[k].strides = at;
        if (from->ndim && !(operands[k].flags & CORE_OPERAND_IMMEDIATE))
            memcpy(at, from->operands[k].strides, from->ndim * sizeof *at);
        at += from->ndim;
    }
    return copy;
}

static core_status run(sim_work *work)
{
    launched *now = work->context;
    core_operand operands[CORE_LOOP_MAX_OPERANDS];
    core_loop loop = now->loop;
    sim_device *device = work->stream->device;
    void *scratch;
    core_status status = sim_translate_operands(device, &loop, operands);

    loop.operands = operands;
    if (status == CORE_OK)
        status = sim_memory_resolve(device, now->scratch,
                                    sim_program_scratch(&now->kernel->program),
                                    &scratch);
    return status == CORE_OK
               ? sim_program_run(&now->kernel->program, &loop, scratch)
               : status;
}

static void end(sim_work *work)
{
    launched *now = work->context;

    unref(now->kernel);
    free(now);
}

static core_status scratch_size(void *device, void *kernel,
                                const core_loop *loop, uint64_t *out_size)
{
    sim_loop_kernel *self = kernel;

    (void)device;
    (void)loop;
    *out_size = sim_program_scratch(&self->program);
    return CORE_OK;
}

static core_status launch(void *device, void *handle,
                          const core_loop_launch *launch)
{
    sim_loop_kernel *kernel = handle;
    sim_stream *stream = launch->stream;
    sim_work work = {.run = run,
                     .end = end,
                     .what = "a loop program",
                     .call_id = launch->id};
    core_status status = sim_usable(device);
    launched *copy;

    if (status == CORE_OK && stream->kind == CORE_STREAM_COPY)
        status = core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                                "a loop program needs a kernel, and the stream "
                                "only copies");
    if (status == CORE_OK &&
        launch->loop->noperands != kernel->program.noperands)
        status =
            core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                           "a loop with %u operands; the kernel has %u",
                           launch->loop->noperands, kernel->program.noperands);
    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_LAUNCH);
    if (status != CORE_OK)
        return status;
    copy = copy_launch(kernel, launch);
    if (!copy)
        return no_memory("a launch");
    atomic_fetch_add(&kernel->references, 1);
    work.context = copy;
    work.loop = &copy->loop;
    work.scratch = launch->scratch;
    work.scratch_size = sim_program_scratch(&kernel->program);
    status = sim_enqueue(stream, &work);
    if (status != CORE_OK)
        end(&work);
    return status;
}

/* --------------------------------------------------------------- saved -- */

static core_status save(void *device, void *handle, void *data,
                        uint64_t capacity, uint64_t *out_size)
{
    const sim_loop_kernel *kernel = handle;
    const sim_program *program = &kernel->program;
    saved head = {.ninstructions = program->nsteps};
    char *at = data;

    (void)device;
    *out_size =
        sizeof head + (uint64_t)program->nsteps * sizeof(core_loop_instruction);
    if (capacity < *out_size)
        return CORE_OK;
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.hash, kernel->hash, sizeof head.hash);
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (uint32_t i = 0; i < program->nsteps; i++) {
        memcpy(at, &program->steps[i].instruction,
               sizeof(core_loop_instruction));
        at += sizeof(core_loop_instruction);
    }
    return CORE_OK;
}

static core_status load(void *device, const core_loop_program *program,
                        const void *data, uint64_t size, void **out_kernel)
{
    saved head;
    size_t instructions =
        program->ninstructions * sizeof(core_loop_instruction);

    *out_kernel = NULL;
    if (size < sizeof head)
        return core_sdk_error(
            sim_host, CORE_ERROR_CORRUPT, "sim",
            "load: the saved kernel has %llu bytes; its header has %zu",
            (unsigned long long)size, sizeof head);
    memcpy(&head, data, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.reserved != 0 ||
        memcmp(head.hash, program->hash, sizeof head.hash) != 0 ||
        head.ninstructions != program->ninstructions ||
        size != sizeof head + instructions ||
        memcmp((const char *)data + sizeof head, program->instructions,
               instructions) != 0)
        return core_sdk_error(sim_host, CORE_ERROR_CORRUPT, "sim",
                              "a saved kernel is damaged, or of another "
                              "program");
    return build(device, program, NULL, out_kernel);
}

const core_codegen_interface sim_codegen = {
    .struct_size = sizeof(core_codegen_interface),
    .identity = identity,
    .accepts = accepts,
    .build = build,
    .destroy = destroy,
    .scratch_size = scratch_size,
    .launch = launch,
    .save = save,
    .load = load,
};
