/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_kernel.h: kernels that a device has made of loop programs, through
 * core.codegen. */

#ifndef CORE_CODEGEN_LOOP_KERNEL_H
#define CORE_CODEGEN_LOOP_KERNEL_H

#include "codegen/loop_program.h"
#include "device/device.h"
#include "tensor/tensor.h"

typedef struct core__loop_kernel {
    _Atomic uint32_t references;
    uint32_t generation;        /* the device's when it was built */
    core_device *device;        /* with a reference */
    core_loop_program *program; /* with a reference */
    void *impl;                 /* the plugin's handle */
    /* Of those that core__loop_kernel_find finds: */
    uint32_t hints; /* flags */
    bool shared;
    struct core__loop_kernel *next, *previous; /* under the registry's lock */
} core__loop_kernel;

/* Whether the device can run the program: CORE_OK, or UNSUPPORTED with the
 * reason, also if its plugin has no core.codegen. */
core_status core__loop_kernel_accepts(core_device *device,
                                      const core_loop_program *program);
/* Builds a kernel.  hints may be NULL.  Any thread may call it. */
core_status core__loop_kernel_build(core_device *device,
                                    core_loop_program *program,
                                    const core_loop_hints *hints,
                                    core__loop_kernel **out_kernel);
core__loop_kernel *core__loop_kernel_retain(core__loop_kernel *kernel);
/* Accepts NULL.  Work that was launched with the kernel may be unfinished. */
void core__loop_kernel_release(core__loop_kernel *kernel);

/* How a device divides a loop (core_loop_launch); 0: as it chooses. */
typedef struct core__loop_division {
    uint32_t tile, threads;
} core__loop_division;

/* What later launches read (core_loop_launch). */
typedef struct core__loop_ahead {
    const core_loop_range *ranges; /* NULL: nothing */
    uint32_t count;
} core__loop_ahead;

/* Launches a kernel on the device's current stream.  The loop is as
 * core__loop_program_verify_loop and core_loop_launch (codegen.h) require,
 * which is not checked. */
core_status core__loop_kernel_launch(core__loop_kernel *kernel,
                                     const core_loop *loop,
                                     core__loop_division division,
                                     core__loop_ahead ahead);

/* Whether the device can run a kernel on each part of the result of another
 * one. */
bool core__loop_kernel_can_follow(const core_device *device);
/* Launches another kernel by `produce`, and this one on its result, part by part
 * (launch_after of codegen.h). */
core_status core__loop_kernel_launch_after(core__loop_kernel *kernel,
                                           const core_loop *loop,
                                           uint32_t result,
                                           core_status (*produce)(void *),
                                           void *context);

/* What a kernel runs on.  Dimensions are outermost first. */
typedef struct core__loop_arguments {
    core_tensor *const *tensors; /* one per operand; NULL for a number */
    const core_scalar *numbers;  /* one per operand, or NULL if none is one */
    uint32_t ndim;
    uint32_t row_ndim;    /* so many of the last dimensions are a row */
    const int64_t *sizes; /* to which the tensors are broadcast */
} core__loop_arguments;

/* Makes the loop, checks everything, and launches.  A tensor of an operand with
 * CORE_LOOP_OPERAND_ROW has size 1 in the dimensions of the row.  Does nothing
 * if a size is 0.  No tensor may require grad. */
core_status core__loop_kernel_run(core__loop_kernel *kernel,
                                  const core__loop_arguments *arguments);

/* Makes the loop without launching: for launches with core__loop_kernel_launch,
 * before which the memory of operands may be replaced.  A block that core__free
 * frees.  numel is 0 if there is nothing to compute. */
core_status core__loop_kernel_loop(const core__loop_kernel *kernel,
                                   const core__loop_arguments *arguments,
                                   core_loop **out_loop);

/* Saves a kernel as bytes, with which program and generator they belong to, and
 * a checksum; core__free frees them.  UNSUPPORTED if the device cannot. */
core_status core__loop_kernel_save(core__loop_kernel *kernel, void **out_data,
                                   size_t *out_size);
/* Makes a kernel of saved bytes.  CORRUPT if they are damaged, INCOMPATIBLE if
 * they are of another program or generator, UNSUPPORTED if the device cannot
 * load them: the caller then builds the kernel. */
core_status core__loop_kernel_load(core_device *device,
                                   core_loop_program *program, const void *data,
                                   size_t size, core__loop_kernel **out_kernel);

#endif
