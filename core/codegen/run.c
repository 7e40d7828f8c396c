/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs a kernel on tensors: makes the loop, and checks it. */

#include "base/error.h"
#include "base/memory.h"
#include "codegen/loop_kernel.h"
#include "dispatch/inference.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"
#include "tensor/storage_check.h"

#include <string.h>

typedef struct run {
    const core_loop_program *program;
    const core__loop_arguments *arguments;
    core_loop loop;
    int64_t sizes[CORE_MAX_NDIM]; /* innermost first */
    core_operand operands[CORE_LOOP_MAX_OPERANDS];
    int64_t strides[CORE_LOOP_MAX_OPERANDS][CORE_MAX_NDIM];
} run;

static core_status add_number(run *r, uint32_t k)
{
    if (!r->arguments->numbers)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: operand %u is a number, and there "
                           "are no numbers",
                           k);
    r->operands[k].flags = CORE_OPERAND_IMMEDIATE;
    core__element_store(r->operands[k].dtype, &r->operands[k].immediate,
                        r->arguments->numbers[k]);
    return CORE_OK;
}

static core_status __attribute__((cold))
size_error(const run *r, uint32_t k, const core_tensor *tensor)
{
    char wanted[160], given[160];

    return core__error(
        CORE_ERROR_SHAPE,
        "loop program: operand %u has sizes %s, which do not "
        "fit %s",
        k, core__sizes_text(tensor->ndim, tensor->sizes, given, sizeof given),
        core__sizes_text(r->arguments->ndim, r->arguments->sizes, wanted,
                         sizeof wanted));
}

static core_status add_tensor(run *r, const core__loop_kernel *kernel,
                              uint32_t k)
{
    const core_tensor *tensor = r->arguments->tensors[k];
    uint32_t flags = r->program->operands[k].flags;
    bool output = flags & CORE_LOOP_OPERAND_OUTPUT;

    if (!tensor || tensor->dtype != r->operands[k].dtype)
        return core__error(CORE_ERROR_DTYPE,
                           "loop program: operand %u is %s; it must be %s", k,
                           tensor ? core__dtype_name(tensor->dtype) : "NULL",
                           core__dtype_name(r->operands[k].dtype));
    if (tensor->device != kernel->device)
        return core__error(CORE_ERROR_DEVICE,
                           "loop program: operand %u is on \"%s\", and the "
                           "kernel on \"%s\"",
                           k, tensor->device->name, kernel->device->name);
    if (tensor->storage)
        CORE_TRY(core__storage_check(tensor->storage));
    if (tensor->ndim > r->arguments->ndim)
        return size_error(r, k, tensor);
    for (uint32_t d = 0; d < r->loop.ndim; d++) {
        bool single = flags & CORE_LOOP_OPERAND_ROW && r->loop.reduced >> d & 1;
        uint32_t at = tensor->ndim - 1 - d;
        int64_t size = d < tensor->ndim ? tensor->sizes[at] : 1;

        if (size != (single ? 1 : r->sizes[d]) && (output || size != 1))
            return size_error(r, k, tensor);
        r->strides[k][d] =
            size == 1 ? 0
                      : tensor->strides[at] * core__dtype_size(tensor->dtype);
    }
    r->operands[k].flags = output ? CORE_OPERAND_OUTPUT : 0;
    r->operands[k].memory = core__tensor_memory(tensor);
    return CORE_OK;
}

/* Outputs overlap nothing, except exactly an input. */
static core_status check_overlaps(const run *r, uint32_t k)
{
    core_tensor *const *tensors = r->arguments->tensors;

    if (core__layout_overlaps_itself(tensors[k]))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: elements of output %u share memory",
                           k);
    for (uint32_t i = 0; i < r->program->noperands; i++) {
        core__overlap overlap =
            i == k || !tensors[i]
                ? CORE__OVERLAP_NONE
                : core__layout_overlap(tensors[k], tensors[i]);

        if (overlap == CORE__OVERLAP_PARTIAL ||
            (overlap == CORE__OVERLAP_SAME && i < r->program->noutputs))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "loop program: output %u shares memory with "
                               "operand %u",
                               k, i);
    }
    return CORE_OK;
}

/* ----------------------------------------------------------- dimensions -- */

static void swap(run *r, uint32_t a, uint32_t b)
{
    int64_t size = r->sizes[a];

    r->sizes[a] = r->sizes[b];
    r->sizes[b] = size;
    for (uint32_t k = 0; k < r->program->noperands; k++) {
        int64_t stride = r->strides[k][a];

        r->strides[k][a] = r->strides[k][b];
        r->strides[k][b] = stride;
    }
}

/* By the strides of the first output. */
static void order(run *r)
{
    for (uint32_t i = 1; i < r->loop.ndim; i++)
        for (uint32_t at = i;
             at > 0 && r->strides[0][at - 1] > r->strides[0][at]; at--)
            swap(r, at - 1, at);
}

static bool joinable(const run *r, uint32_t inner, uint32_t outer)
{
    if ((r->loop.reduced >> inner & 1) != (r->loop.reduced >> outer & 1))
        return false;
    for (uint32_t k = 0; k < r->program->noperands; k++)
        if (r->sizes[inner] != 1 && r->sizes[outer] != 1 &&
            r->strides[k][outer] != r->strides[k][inner] * r->sizes[inner])
            return false;
    return true;
}

static void join(run *r)
{
    uint32_t last = 0, reduced = r->loop.reduced & 1;

    for (uint32_t i = 1; i < r->loop.ndim; i++) {
        bool joined = joinable(r, last, i);

        if (!joined)
            last++;
        for (uint32_t k = 0; k < r->program->noperands; k++)
            if (!joined || r->sizes[last] == 1)
                r->strides[k][last] = r->strides[k][i];
        if (joined) {
            r->sizes[last] *= r->sizes[i];
            continue;
        }
        r->sizes[last] = r->sizes[i];
        reduced |= (r->loop.reduced >> i & 1) << last;
        /* joinable looks at the mask of what has been moved. */
        r->loop.reduced =
            (r->loop.reduced & ~(1u << last)) | (reduced & 1u << last);
    }
    if (r->loop.ndim > 0)
        r->loop.ndim = last + 1;
    r->loop.reduced = reduced;
}

static bool is_contiguous(const run *r)
{
    if (r->loop.numel <= 1)
        return true;
    for (uint32_t k = 0; k < r->program->noperands; k++)
        if (!(r->operands[k].flags & CORE_OPERAND_IMMEDIATE) &&
            r->strides[k][0] != core__dtype_size(r->operands[k].dtype))
            return false;
    return r->loop.ndim <= 1;
}

/* Also in dimensions of which no tensor has memory, because all are
 * broadcast. */
static core_status set_sizes(run *r)
{
    const core__loop_arguments *a = r->arguments;
    char text[160];
    bool fits = true, empty = false;

    for (uint32_t d = 0; d < a->ndim; d++) {
        r->sizes[d] = a->sizes[a->ndim - 1 - d];
        empty = empty || r->sizes[d] == 0;
    }
    r->loop.numel = empty ? 0 : 1;
    for (uint32_t d = 0; d < a->ndim && fits; d++)
        fits =
            r->sizes[d] >= 0 &&
            !__builtin_mul_overflow(r->loop.numel, r->sizes[d], &r->loop.numel);
    return fits ? CORE_OK
                : core__error(
                      CORE_ERROR_SHAPE,
                      "loop program: the loop has sizes %s; at most "
                      "%lld elements are accepted",
                      core__sizes_text(a->ndim, a->sizes, text, sizeof text),
                      (long long)INT64_MAX);
}

static core_status begin(run *r, const core__loop_kernel *kernel,
                         const core__loop_arguments *a)
{
    memset(r, 0, sizeof *r);
    r->program = kernel->program;
    r->arguments = a;
    if (a->ndim > CORE_MAX_NDIM || a->row_ndim > a->ndim)
        return core__error(CORE_ERROR_SHAPE,
                           "loop program: the loop has %u dimensions, and a "
                           "row %u; at most %d are accepted",
                           a->ndim, a->row_ndim, CORE_MAX_NDIM);
    r->loop =
        (core_loop){.struct_size = sizeof r->loop,
                    .ndim = a->ndim,
                    .noperands = r->program->noperands,
                    .noutputs = r->program->noutputs,
                    .reduced = (uint32_t)((UINT64_C(1) << a->row_ndim) - 1),
                    .sizes = r->sizes,
                    .operands = r->operands};
    return set_sizes(r);
}

/* Makes the loop; r->loop.numel is 0 if there is nothing to compute. */
static core_status make(run *r, const core__loop_kernel *kernel,
                        const core__loop_arguments *arguments)
{
    const core_loop_program *p = kernel->program;

    CORE_TRY(begin(r, kernel, arguments));
    for (uint32_t k = 0; k < p->noperands; k++) {
        r->operands[k].dtype = p->operands[k].dtype;
        r->operands[k].strides = r->strides[k];
        CORE_TRY(p->operands[k].flags & CORE_LOOP_OPERAND_NUMBER
                     ? add_number(r, k)
                     : add_tensor(r, kernel, k));
    }
    if (r->loop.numel == 0)
        return CORE_OK;
    for (uint32_t k = 0; k < p->noutputs; k++)
        CORE_TRY(check_overlaps(r, k));
    if (p->ndim == 0) {
        if (!(p->flags & CORE_LOOP_PROGRAM_REDUCES))
            order(r);
        join(r);
    }
    r->loop.flags = is_contiguous(r) ? CORE_LOOP_CONTIGUOUS : 0;
    return core__loop_program_verify_loop(p, &r->loop);
}

core_status core__loop_kernel_run(core__loop_kernel *kernel,
                                  const core__loop_arguments *arguments)
{
    run r;

    CORE_TRY(make(&r, kernel, arguments));
    if (r.loop.numel == 0)
        return CORE_OK;
    CORE_TRY(core__loop_kernel_launch(kernel, &r.loop, (core__loop_division){0},
                                      (core__loop_ahead){0}));
    for (uint32_t k = 0; k < kernel->program->noutputs; k++)
        core__tensor_bump_version(arguments->tensors[k]);
    return CORE_OK;
}

core_status core__loop_kernel_loop(const core__loop_kernel *kernel,
                                   const core__loop_arguments *arguments,
                                   core_loop **out_loop)
{
    run r;
    size_t dims, operands = kernel->program->noperands * sizeof(core_operand);
    core_loop *loop;
    int64_t *at;

    *out_loop = NULL;
    CORE_TRY(make(&r, kernel, arguments));
    dims = r.loop.ndim * sizeof(int64_t);
    loop = core__alloc_zero(sizeof *loop + operands +
                            dims * (1 + kernel->program->noperands));
    if (!loop)
        return core__error_memory(sizeof *loop);
    *loop = r.loop;
    loop->operands = memcpy(loop + 1, r.operands, operands);
    at = (int64_t *)(void *)((char *)(loop + 1) + operands);
    loop->sizes = memcpy(at, r.sizes, dims);
    for (uint32_t k = 0; k < loop->noperands; k++)
        ((core_operand *)(uintptr_t)loop->operands)[k].strides =
            memcpy(at += loop->ndim, r.strides[k], dims);
    *out_loop = loop;
    return CORE_OK;
}
