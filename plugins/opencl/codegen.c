/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.codegen: kernels of loop programs, compiled from OpenCL C. */

#include "cache.h"
#include "loop_source.h"

#include <signal.h>
#include <stdio.h>

enum {
    GROUP = 2 * OPENCL_GROUP,
    /* Work items of the run that completes a build.  PoCL compiles launches of
     * more than 2^16 work items separately. */
    FIRST_RUN = (1 << 16) + GROUP,
    /* Elements of a row, and rows, that one work item each computes well. */
    SHORT_ROW = 32,
    MANY_ROWS = 256
};

typedef struct loop_kernel {
    cl_program program;
    /* Of element-wise programs; dense is NULL if loops are never joined. */
    cl_kernel dense, spaced;
    cl_kernel lines, groups, dense_groups; /* of programs with reductions */
    uint32_t noperands;
    bool may_fail;
    uint8_t hash[32];
    /* The shape of the newest launch of a kernel with one, and the buffer with
     * it; under the device's lock. */
    cl_mem shape;
    int64_t *numbers;
    size_t nnumbers;
    uint32_t flags[CORE_LOOP_MAX_OPERANDS];
} loop_kernel;

static const char name[] = "loop_program";

static core_status no_memory(void)
{
    return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                         "no host memory for a loop program");
}

static core_status identity(void *handle, core_string *out_text)
{
    opencl_device *device = handle;

    *out_text = core_sdk_string(device->generator);
    return CORE_OK;
}

static core_status accepts(void *handle, const core_loop_program *program)
{
    char *text = NULL;
    core_status status = opencl_loop_source(handle, program, &text);

    free(text);
    return status;
}

/* ---------------------------------------------------------------- build -- */

static void release(cl_kernel kernel)
{
    if (kernel)
        cl.ReleaseKernel(kernel);
}

static void destroy(void *device, void *handle)
{
    loop_kernel *kernel = handle;

    (void)device;
    if (kernel->shape)
        cl.ReleaseMemObject(kernel->shape);
    release(kernel->dense);
    release(kernel->spaced);
    release(kernel->lines);
    release(kernel->groups);
    release(kernel->dense_groups);
    if (kernel->program)
        cl.ReleaseProgram(kernel->program);
    free(kernel->numbers);
    free(kernel);
}

static cl_int set_argument(cl_kernel kernel, cl_uint *next, size_t size,
                           const void *value)
{
    return cl.SetKernelArg(kernel, (*next)++, size, value);
}

/* Sets the arguments for a run over one element: all operands are the one in
 * the buffer. */
static cl_int set_arguments(const loop_kernel *self, cl_kernel kernel,
                            cl_mem buffer)
{
    cl_ulong zero = 0, one = 1;
    cl_uint next = 0, none = 0;
    cl_int code = CL_SUCCESS;

    for (uint32_t k = 0; k < self->noperands && code == CL_SUCCESS; k++) {
        if (!(self->flags[k] & CORE_LOOP_OPERAND_NUMBER))
            code = set_argument(kernel, &next, sizeof buffer, &buffer);
        if (code == CL_SUCCESS)
            code = set_argument(kernel, &next, sizeof zero, &zero);
    }
    if (code == CL_SUCCESS && self->may_fail) {
        code = set_argument(kernel, &next, sizeof buffer, &buffer);
        if (code == CL_SUCCESS)
            code = set_argument(kernel, &next, sizeof zero, &zero);
    }
    if (code == CL_SUCCESS)
        code = set_argument(kernel, &next, sizeof one, &one);
    if (code == CL_SUCCESS && kernel != self->dense) {
        code = set_argument(kernel, &next, sizeof none, &none);
        if (code == CL_SUCCESS)
            code = set_argument(kernel, &next, sizeof buffer, &buffer);
    }
    if (code == CL_SUCCESS && self->groups != NULL) {
        code = set_argument(kernel, &next, sizeof none, &none);
        if (code == CL_SUCCESS)
            code = set_argument(kernel, &next, sizeof one, &one);
    }
    return code;
}

/* The kernel that will run next, as far as the hints say.  Most operands that
 * are not dense are rows that are broadcast, which have no gaps. */
static cl_kernel first_kernel(const loop_kernel *self,
                              const core_loop_hints *hints)
{
    if (self->groups != NULL)
        return hints != NULL && hints->row_size > 0 &&
                       hints->row_size <= SHORT_ROW
                   ? self->lines
                   : self->dense_groups;
    return self->dense != NULL && hints != NULL &&
                   hints->flags & CORE_LOOP_HINT_CONTIGUOUS
               ? self->dense
               : self->spaced;
}

/* The work items that a launch of it has, up to FIRST_RUN. */
static size_t first_size(const loop_kernel *self, cl_kernel kernel,
                         const core_loop_hints *hints)
{
    size_t group = self->groups != NULL ? OPENCL_GROUP : GROUP;
    uint64_t items = FIRST_RUN;

    if (hints != NULL && hints->numel > 0)
        items = (uint64_t)hints->numel;
    if (self->groups != NULL && hints != NULL && hints->row_size > 0)
        items /= (uint64_t)hints->row_size;
    if (kernel == self->dense_groups && items < FIRST_RUN)
        items *= OPENCL_GROUP;
    if (items > FIRST_RUN)
        items = FIRST_RUN;
    return (size_t)(items + group - 1) / group * group;
}

/* Some libraries, such as PoCL, compile most of a kernel when it runs first.
 * So it runs here, on one element; what fails here fails again, and is
 * reported, when the kernel is launched. */
static void run_first(opencl_device *device, const loop_kernel *self,
                      const core_loop_hints *hints)
{
    cl_kernel kernel = first_kernel(self, hints);
    static int64_t zeros[CORE_LOOP_MAX_OPERANDS];
    size_t local = self->groups != NULL ? OPENCL_GROUP : GROUP;
    size_t global = first_size(self, kernel, hints);
    cl_command_queue queue = NULL;
    cl_mem buffer;
    cl_int code;

    buffer = cl.CreateBuffer(device->context, CL_MEM_COPY_HOST_PTR,
                             sizeof zeros, zeros, &code);
    if (code != CL_SUCCESS)
        return;
    queue = cl.CreateCommandQueue(device->context, device->id, 0, &code);
    if (code == CL_SUCCESS) {
        if (set_arguments(self, kernel, buffer) == CL_SUCCESS)
            cl.EnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0,
                                    NULL, NULL);
        cl.Finish(queue);
        cl.ReleaseCommandQueue(queue);
    }
    cl.ReleaseMemObject(buffer);
}

static cl_kernel find_kernel(const loop_kernel *self, const char *text,
                             cl_int *code)
{
    return *code == CL_SUCCESS ? cl.CreateKernel(self->program, text, code)
                               : NULL;
}

static cl_int find_kernels(loop_kernel *self, const core_loop_program *program)
{
    cl_int code = CL_SUCCESS;

    if (program->flags & CORE_LOOP_PROGRAM_REDUCES) {
        self->lines = find_kernel(self, "lines", &code);
        self->groups = find_kernel(self, "groups", &code);
        self->dense_groups = find_kernel(self, "dense_groups", &code);
        return code;
    }
    if (program->ndim == 0)
        self->dense = find_kernel(self, "dense", &code);
    self->spaced = find_kernel(self, "spaced", &code);
    return code;
}

static core_status make_kernels(opencl_device *device, loop_kernel *self,
                                const core_loop_program *program)
{
    cl_int code;

    self->noperands = program->noperands;
    self->may_fail = opencl_loop_may_fail(program);
    memcpy(self->hash, program->hash, sizeof self->hash);
    for (uint32_t k = 0; k < program->noperands; k++)
        self->flags[k] = program->operands[k].flags;
    code = find_kernels(self, program);
    return code == CL_SUCCESS ? CORE_OK : opencl_fail(device, code, name);
}

/* Threads that the library starts inherit the blocked signals.  Handlers are
 * not restored, as signal_guard.c does: the program may set some while this
 * runs in the background. */
static core_status make(opencl_device *device, const core_loop_program *program,
                        const core_loop_hints *hints, loop_kernel *self)
{
    sigset_t all, before;
    char *text;
    core_status status = opencl_loop_source(device, program, &text);

    if (status != CORE_OK)
        return status;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status = opencl_compile(device, text, name, &self->program);
    if (status == CORE_OK)
        status = make_kernels(device, self, program);
    if (status == CORE_OK)
        run_first(device, self, hints);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(text);
    return status;
}

static core_status build(void *handle, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel)
{
    loop_kernel *self = calloc(1, sizeof *self);
    core_status status;

    *out_kernel = NULL;
    if (self == NULL)
        return no_memory();
    status = make(handle, program, hints, self);
    if (status != CORE_OK) {
        destroy(handle, self);
        return status;
    }
    *out_kernel = self;
    return CORE_OK;
}

/* --------------------------------------------------------------- launch -- */

/* Sizes, then the strides of each operand. */
static size_t count_numbers(const core_loop *loop)
{
    return (size_t)loop->ndim * (loop->noperands + 1);
}

static bool is_newest(const loop_kernel *self, const core_loop *loop)
{
    const int64_t *at = self->numbers;
    size_t size = loop->ndim * sizeof *at;

    if (self->shape == NULL || self->nnumbers != count_numbers(loop) ||
        memcmp(at, loop->sizes, size) != 0)
        return false;
    for (uint32_t k = 0; k < loop->noperands; k++) {
        at += loop->ndim;
        if (!(self->flags[k] & CORE_LOOP_OPERAND_NUMBER) &&
            memcmp(at, loop->operands[k].strides, size) != 0)
            return false;
    }
    return true;
}

/* Makes the buffer with the shape of a loop, unless the last one was equal.
 * Work that uses the former buffer keeps it.  Under the device's lock. */
static core_status set_shape(opencl_device *device, loop_kernel *self,
                             const core_loop *loop)
{
    size_t count = count_numbers(loop), size = loop->ndim * sizeof(int64_t);
    int64_t *numbers, *at;
    cl_mem shape;
    cl_int code;

    if (loop->ndim == 0 || is_newest(self, loop))
        return CORE_OK;
    numbers = at = calloc(count, sizeof *numbers);
    if (numbers == NULL)
        return no_memory();
    memcpy(at, loop->sizes, size);
    for (uint32_t k = 0; k < loop->noperands; k++) {
        at += loop->ndim;
        if (!(self->flags[k] & CORE_LOOP_OPERAND_NUMBER))
            memcpy(at, loop->operands[k].strides, size);
    }
    shape = cl.CreateBuffer(device->context,
                            CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                            count * sizeof *numbers, numbers, &code);
    if (code != CL_SUCCESS) {
        free(numbers);
        return opencl_fail(device, code, "clCreateBuffer");
    }
    if (self->shape != NULL)
        cl.ReleaseMemObject(self->shape);
    free(self->numbers);
    self->shape = shape;
    self->numbers = numbers;
    self->nnumbers = count;
    return CORE_OK;
}

static core_status check_loop(const loop_kernel *self, const core_loop *loop)
{
    if (loop->noperands != self->noperands)
        return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                             "a loop with %u operands; the kernel has %u",
                             loop->noperands, self->noperands);
    if (loop->numel > INT64_C(0xffffffff))
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "a loop of %lld elements; at most 2^32 - 1",
                             (long long)loop->numel);
    return CORE_OK;
}

static void put_operands(opencl_launch *l, const loop_kernel *self,
                         const core_loop_launch *now)
{
    const core_loop *loop = now->loop;

    for (uint32_t k = 0; k < self->noperands; k++)
        if (self->flags[k] & CORE_LOOP_OPERAND_NUMBER)
            opencl_bytes(l, &loop->operands[k].immediate, sizeof(cl_ulong));
        else
            opencl_buffer(l, loop->operands[k].memory);
    if (self->may_fail)
        opencl_error_args(l, now->id);
}

static core_status launch_elements(opencl_device *device, loop_kernel *self,
                                   const core_loop_launch *now)
{
    const core_loop *loop = now->loop;
    bool dense = self->dense != NULL && loop->flags & CORE_LOOP_CONTIGUOUS;
    opencl_launch l = opencl_begin_kernel(
        now->stream, dense ? self->dense : self->spaced, name);

    if (l.status == CORE_OK && !dense)
        l.status = set_shape(device, self, loop);
    put_operands(&l, self, now);
    opencl_long(&l, loop->numel);
    if (!dense) {
        opencl_int(&l, (int32_t)loop->ndim);
        opencl_bytes(&l, &self->shape, sizeof self->shape);
    }
    return opencl_run(&l, (uint64_t)loop->numel, GROUP);
}

/* Whether each work item computes a row: rows are short, or there are many, of
 * which adjacent ones are nearer to each other than adjacent elements. */
static bool has_lines(const core_loop *loop, uint32_t nreduced, int64_t count)
{
    int64_t along = INT64_MAX, across = INT64_MAX;

    for (uint32_t k = 0; k < loop->noperands; k++) {
        const int64_t *strides = loop->operands[k].strides;

        if (loop->operands[k].flags & CORE_OPERAND_IMMEDIATE)
            continue;
        if (strides[0] > 0 && strides[0] < along)
            along = strides[0];
        if (nreduced < loop->ndim && strides[0] > 0 && strides[nreduced] > 0 &&
            strides[nreduced] < across)
            across = strides[nreduced];
    }
    return count <= SHORT_ROW ||
           (loop->numel / count >= MANY_ROWS && across < along);
}

/* Whether no operand has gaps in a row of one dimension. */
static bool has_dense_rows(const loop_kernel *self, const core_loop *loop)
{
    for (uint32_t k = 0; k < loop->noperands; k++)
        if (!(self->flags[k] &
              (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW)) &&
            loop->operands[k].strides[0] !=
                core_sdk_itemsize(loop->operands[k].dtype))
            return false;
    return (loop->reduced >> 1 & 1) == 0;
}

static core_status launch_rows(opencl_device *device, loop_kernel *self,
                               const core_loop_launch *now)
{
    const core_loop *loop = now->loop;
    uint32_t nreduced = 0;
    int64_t count = 1, rows;
    opencl_launch l;
    bool lines;

    for (; nreduced < loop->ndim && loop->reduced >> nreduced & 1; nreduced++)
        count *= loop->sizes[nreduced];
    rows = loop->numel / count;
    lines = has_lines(loop, nreduced, count);
    l = opencl_begin_kernel(now->stream,
                            lines                        ? self->lines
                            : has_dense_rows(self, loop) ? self->dense_groups
                                                         : self->groups,
                            name);
    if (l.status == CORE_OK)
        l.status = set_shape(device, self, loop);
    put_operands(&l, self, now);
    opencl_long(&l, rows);
    opencl_int(&l, (int32_t)loop->ndim);
    opencl_bytes(&l, &self->shape, sizeof self->shape);
    opencl_int(&l, (int32_t)nreduced);
    opencl_long(&l, count);
    return opencl_run(&l, (uint64_t)(lines ? rows : rows * OPENCL_GROUP),
                      OPENCL_GROUP);
}

static core_status launch(void *handle, void *kernel,
                          const core_loop_launch *now)
{
    loop_kernel *self = kernel;
    core_status status = check_loop(self, now->loop);

    if (status != CORE_OK)
        return status;
    return self->groups != NULL ? launch_rows(handle, self, now)
                                : launch_elements(handle, self, now);
}

/* ---------------------------------------------------------------- saved -- */

/* Before the driver's binary. */
typedef struct saved {
    char magic[8];
    uint8_t hash[32];
} saved;

static const char magic[8] = {'o', 'c', 'l', 'l', 'o', 'o', 'p', '1'};

static core_status save(void *handle, void *kernel, void *data,
                        uint64_t capacity, uint64_t *out_size)
{
    opencl_device *device = handle;
    const loop_kernel *self = kernel;
    unsigned char *binary = (unsigned char *)data + sizeof(saved);
    saved head = {{0}, {0}};
    size_t size = 0;
    cl_int code;

    *out_size = 0;
    if (!opencl_cache_keeps(device))
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "programs are not kept on disk");
    code = cl.GetProgramInfo(self->program, CL_PROGRAM_BINARY_SIZES,
                             sizeof size, &size, NULL);
    if (code == CL_SUCCESS && size == 0)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "the driver has no binary of a program");
    if (code == CL_SUCCESS && capacity >= sizeof head + size) {
        memcpy(head.magic, magic, sizeof magic);
        memcpy(head.hash, self->hash, sizeof head.hash);
        memcpy(data, &head, sizeof head);
        code = cl.GetProgramInfo(self->program, CL_PROGRAM_BINARIES,
                                 sizeof binary, &binary, NULL);
    }
    *out_size = sizeof head + size;
    return code == CL_SUCCESS ? CORE_OK
                              : opencl_fail(device, code, "clGetProgramInfo");
}

static core_status load(void *handle, const core_loop_program *program,
                        const void *data, uint64_t size, void **out_kernel)
{
    opencl_device *device = handle;
    loop_kernel *self;
    core_status status;
    saved head;

    *out_kernel = NULL;
    if (size > sizeof head)
        memcpy(&head, data, sizeof head);
    if (size <= sizeof head || memcmp(head.magic, magic, sizeof magic) != 0 ||
        memcmp(head.hash, program->hash, sizeof head.hash) != 0)
        return opencl_refuse(CORE_ERROR_CORRUPT,
                             "a saved kernel is damaged, or of another "
                             "program");
    self = calloc(1, sizeof *self);
    if (self == NULL)
        return no_memory();
    status = opencl_load_binary(device, (const char *)data + sizeof head,
                                size - sizeof head, &self->program);
    if (status == CORE_OK)
        status = make_kernels(device, self, program);
    if (status != CORE_OK) {
        destroy(device, self);
        return status;
    }
    *out_kernel = self;
    return CORE_OK;
}

const core_codegen_interface opencl_codegen = {
    .struct_size = sizeof(core_codegen_interface),
    .flags = CORE_CODEGEN_BUILDS_SLOWLY,
    .identity = identity,
    .accepts = accepts,
    .build = build,
    .destroy = destroy,
    .launch = launch,
    .save = save,
    .load = load,
};
