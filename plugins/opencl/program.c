/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiles sources when a kernel first needs them for its dtypes; binaries are
 * cached on disk (cache.c). */

#include "cache.h"
#include "opencl.h"
#include "opencl_kernels.h"

#include <stdio.h>

struct opencl_program {
    opencl_program *next;
    const opencl_source *source;
    core_dtype types[OPENCL_TYPES];
    cl_program program;
};

struct opencl_function {
    opencl_function *next;
    opencl_program *program;
    const char *name;
    cl_kernel kernel;
};

/* The C type of an element; half-precision elements are stored as bits. */
const char *opencl_type_name(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return "double";
    case CORE_F32:
        return "float";
    case CORE_I64:
        return "long";
    case CORE_I32:
        return "int";
    case CORE_I16:
        return "short";
    case CORE_I8:
        return "char";
    case CORE_F16:
    case CORE_BF16:
        return "ushort";
    default:
        return "uchar";
    }
}

/* The type in which a dtype is summed. */
static const char *wide_of(const opencl_device *device, core_dtype dtype)
{
    if (dtype > CORE_BF16)
        return "long";
    return device->has_f64 && dtype <= CORE_F32 ? "double" : "float";
}

/* The type of computation, and the conversions from and to elements. */
static const char *computed_in(core_dtype dtype)
{
    return opencl_is_half(dtype) ? "float" : opencl_type_name(dtype);
}

static const char *way(core_dtype dtype, bool from)
{
    if (dtype == CORE_F16)
        return from ? "get_f16" : "put_f16";
    if (dtype == CORE_BF16)
        return from ? "get_bf16" : "put_bf16";
    return from ? "" : opencl_type_name(dtype);
}

typedef struct text {
    char *data;
    size_t used, capacity;
} text;

static void add(text *to, const char *what)
{
    size_t size = strlen(what);

    if (to->used + size < to->capacity)
        memcpy(to->data + to->used, what, size + 1);
    to->used += size;
}

static void add_types(text *to, const opencl_device *device,
                      const core_dtype *types)
{
    char line[400];
    const char *conversion;

    if (device->has_f64)
        add(to, "#define HAS_F64 1\n");
    for (uint32_t i = 0; i < OPENCL_TYPES; i++) {
        if (types[i] == CORE_DTYPE_NONE)
            continue;
        /* A cast if the element's type is the type of computation, else a
         * function. */
        conversion = way(types[i], false);
        snprintf(line, sizeof line,
                 opencl_is_half(types[i]) ? "#define PUT%u(x) %s(x)\n"
                 : types[i] == CORE_BOOL ? "#define PUT%u(x) ((%s)((x) != 0))\n"
                                         : "#define PUT%u(x) ((%s)(x))\n",
                 i, conversion);
        add(to, line);
        snprintf(line, sizeof line,
                 "#define T%u %s\n#define C%u %s\n#define ACC%u %s\n"
                 "#define ID%u %u\n#define GET%u(x) %s(x)\n",
                 i, opencl_type_name(types[i]), i, computed_in(types[i]), i,
                 wide_of(device, types[i]), i, types[i], i,
                 way(types[i], true));
        add(to, line);
    }
}

/* Returns the whole source; NULL without memory. */
static char *assemble_source(const opencl_device *device,
                             const opencl_source *source,
                             const core_dtype *types)
{
    text t = {NULL, 0, 0};

    for (int pass = 0; pass < 2; pass++) {
        t.used = 0;
        add_types(&t, device, types);
        add(&t, opencl_prelude_cl);
        if (source->compose != NULL) {
            size_t left = t.used < t.capacity ? t.capacity - t.used : 0;

            t.used +=
                source->compose(source, left ? t.data + t.used : NULL, left);
        }
        add(&t, source->text);
        if (pass == 0) {
            t.capacity = t.used + 1;
            t.data = malloc(t.capacity);
            if (t.data == NULL)
                return NULL;
        }
    }
    return t.data;
}

static const char *options_of(const opencl_device *device)
{
    return device->exact_division
               ? "-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"
               : "-cl-std=CL1.2 -w";
}

/* A build log can be long; its beginning is the most useful part. */
static core_status build_failed(opencl_device *device, cl_program program,
                                const char *name, cl_int code)
{
    char log[400] = "";
    size_t size = 0;

    if (code != CL_BUILD_PROGRAM_FAILURE)
        return opencl_fail(device, code, "clBuildProgram");
    cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL,
                           &size);
    if (size > 0) {
        char *all = calloc(1, size + 1);

        if (all != NULL)
            cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG,
                                   size, all, NULL);
        snprintf(log, sizeof log, "%s", all != NULL ? all : "");
        free(all);
    }
    return opencl_refuse(CORE_ERROR_INTERNAL, "%s does not compile for %s: %s",
                         name, device->name, log);
}

core_status opencl_compile(opencl_device *device, const char *source,
                           const char *name, cl_program *out_program)
{
    core_status status = CORE_OK;
    cl_program program;
    cl_int code;

    *out_program = NULL;
    program =
        cl.CreateProgramWithSource(device->context, 1, &source, NULL, &code);
    if (code != CL_SUCCESS)
        return opencl_fail(device, code, "clCreateProgramWithSource");
    code = cl.BuildProgram(program, 1, &device->id, options_of(device), NULL,
                           NULL);
    if (code != CL_SUCCESS) {
        status = build_failed(device, program, name, code);
        cl.ReleaseProgram(program);
        return status;
    }
    *out_program = program;
    return CORE_OK;
}

core_status opencl_load_binary(opencl_device *device, const void *data,
                               size_t size, cl_program *out_program)
{
    const unsigned char *binary = data;
    cl_int code, state = CL_SUCCESS;
    cl_program program = cl.CreateProgramWithBinary(
        device->context, 1, &device->id, &size, &binary, &state, &code);

    *out_program = NULL;
    if (code == CL_SUCCESS && state == CL_SUCCESS)
        code = cl.BuildProgram(program, 1, &device->id, options_of(device),
                               NULL, NULL);
    if (code == CL_SUCCESS && state == CL_SUCCESS) {
        *out_program = program;
        return CORE_OK;
    }
    if (program != NULL)
        cl.ReleaseProgram(program);
    if (code == CL_OUT_OF_HOST_MEMORY || code == CL_OUT_OF_RESOURCES)
        return opencl_fail(device, code, "clBuildProgram");
    return opencl_refuse(CORE_ERROR_CORRUPT,
                         "%s does not accept the binary of a program",
                         device->name);
}

static core_status build(opencl_device *device, const opencl_source *source,
                         const core_dtype *types, cl_program *out_program)
{
    char *all = assemble_source(device, source, types);
    const char *options = options_of(device);
    opencl_cache_key key;
    core_status status = CORE_OK;

    *out_program = NULL;
    if (all == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for the source of %s",
                             source->name);
    opencl_cache_key_make(&key, device, all, options);
    *out_program = opencl_cache_get(device, &key, options);
    if (*out_program == NULL) {
        status = opencl_compile(device, all, source->name, out_program);
        if (status == CORE_OK)
            opencl_cache_put(&key, *out_program);
    }
    free(all);
    return status;
}

/* ------------------------------------------------------------- look-up -- */

static core_status find_program(opencl_device *device,
                                const opencl_source *source,
                                const core_dtype *types,
                                opencl_program **out_program)
{
    opencl_program *p;
    opencl_signal_guard *guard;
    core_status status;

    for (p = device->programs; p != NULL; p = p->next)
        if (p->source == source &&
            memcmp(p->types, types, sizeof p->types) == 0)
            break;
    *out_program = p;
    if (p != NULL)
        return CORE_OK;
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for a program");
    p->source = source;
    memcpy(p->types, types, sizeof p->types);
    guard = opencl_signal_guard_begin();
    status = build(device, source, types, &p->program);
    opencl_signal_guard_end(guard);
    if (status != CORE_OK) {
        free(p);
        return status;
    }
    p->next = device->programs;
    device->programs = p;
    *out_program = p;
    return CORE_OK;
}

static uint32_t bucket_of(const opencl_source *source, const core_dtype *types,
                          const char *name)
{
    uint64_t hash = (uint64_t)(uintptr_t)source / 16;

    for (uint32_t i = 0; i < OPENCL_TYPES; i++)
        hash = hash * 31 + types[i];
    for (; *name; name++)
        hash = hash * 31 + (unsigned char)*name;
    return (uint32_t)((hash ^ hash >> 17) % OPENCL_BUCKETS);
}

/* With the device's lock held. */
static core_status find_function(opencl_device *device,
                                 const opencl_source *source,
                                 const core_dtype *types, const char *name,
                                 cl_kernel *out_kernel)
{
    uint32_t bucket = bucket_of(source, types, name);
    opencl_function *f;
    opencl_program *program;
    core_status status;
    cl_int code;

    for (f = device->functions[bucket]; f != NULL; f = f->next)
        if (f->program->source == source &&
            memcmp(f->program->types, types, sizeof f->program->types) == 0 &&
            strcmp(f->name, name) == 0) {
            *out_kernel = f->kernel;
            return CORE_OK;
        }
    status = find_program(device, source, types, &program);
    if (status != CORE_OK)
        return status;
    f = calloc(1, sizeof *f);
    if (f == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for a kernel");
    f->program = program;
    f->name = name;
    f->kernel = cl.CreateKernel(program->program, name, &code);
    if (code != CL_SUCCESS) {
        free(f);
        return opencl_fail(device, code, name);
    }
    f->next = device->functions[bucket];
    device->functions[bucket] = f;
    *out_kernel = f->kernel;
    return CORE_OK;
}

void opencl_programs_close(opencl_device *device)
{
    opencl_program *p = device->programs;

    for (uint32_t i = 0; i < OPENCL_BUCKETS; i++) {
        opencl_function *f = device->functions[i];

        while (f != NULL) {
            opencl_function *next = f->next;

            cl.ReleaseKernel(f->kernel);
            free(f);
            f = next;
        }
        device->functions[i] = NULL;
    }
    while (p != NULL) {
        opencl_program *next = p->next;

        cl.ReleaseProgram(p->program);
        free(p);
        p = next;
    }
    device->programs = NULL;
}

/* -------------------------------------------------------------- launch -- */

opencl_launch opencl_begin(core_call *call, const opencl_source *source,
                           const core_dtype *types, uint32_t count,
                           const char *function)
{
    opencl_launch launch = {
        .device = call->device, .stream = call->stream, .name = function};
    core_dtype all[OPENCL_TYPES] = {0};

    for (uint32_t i = 0; i < count && i < OPENCL_TYPES; i++)
        all[i] = types[i];
    launch.status = opencl_stream_takes_kernels(launch.stream);
    /* A kernel's arguments must not change until it is enqueued. */
    pthread_mutex_lock(&launch.device->lock);
    if (launch.status == CORE_OK)
        launch.status =
            find_function(launch.device, source, all, function, &launch.kernel);
    return launch;
}

opencl_launch opencl_begin_kernel(opencl_stream *stream, cl_kernel kernel,
                                  const char *name)
{
    opencl_launch launch = {.device = stream->device,
                            .stream = stream,
                            .kernel = kernel,
                            .name = name};

    launch.status = opencl_stream_takes_kernels(stream);
    pthread_mutex_lock(&launch.device->lock);
    return launch;
}

void opencl_bytes(opencl_launch *launch, const void *data, size_t size)
{
    cl_int code;

    if (launch->status != CORE_OK)
        return;
    code = cl.SetKernelArg(launch->kernel, launch->next++, size, data);
    if (code != CL_SUCCESS)
        launch->status = opencl_fail(launch->device, code, launch->name);
}

void opencl_buffer(opencl_launch *launch, core_memory memory)
{
    cl_mem buffer = memory.handle;
    cl_ulong offset = memory.offset;

    opencl_bytes(launch, &buffer, sizeof buffer);
    opencl_bytes(launch, &offset, sizeof offset);
}

void opencl_null_buffer(opencl_launch *launch)
{
    cl_ulong offset = 0;

    opencl_bytes(launch, NULL, sizeof(cl_mem));
    opencl_bytes(launch, &offset, sizeof offset);
}

void opencl_long(opencl_launch *launch, int64_t value)
{
    cl_long number = value;

    opencl_bytes(launch, &number, sizeof number);
}

void opencl_int(opencl_launch *launch, int32_t value)
{
    cl_int number = value;

    opencl_bytes(launch, &number, sizeof number);
}

/* Passes the device's widest float. */
void opencl_double(opencl_launch *launch, double value)
{
    cl_double wide = value;
    cl_float narrow = (cl_float)value;

    if (launch->device->has_f64)
        opencl_bytes(launch, &wide, sizeof wide);
    else
        opencl_bytes(launch, &narrow, sizeof narrow);
}

void opencl_error_args(opencl_launch *launch, uint64_t call)
{
    cl_mem errors = NULL;

    if (launch->status == CORE_OK)
        launch->status = opencl_stream_error_buffer(launch->stream, &errors);
    opencl_bytes(launch, &errors, sizeof errors);
    opencl_long(launch, (int64_t)call);
}

void opencl_no_error_args(opencl_launch *launch)
{
    opencl_bytes(launch, NULL, sizeof(cl_mem));
    opencl_long(launch, 0);
}

static core_status enqueue(opencl_launch *launch, cl_uint ndim,
                           const size_t *global, const size_t *local)
{
    cl_event event = NULL;
    cl_int code;

    if (launch->status == CORE_OK) {
        code =
            cl.EnqueueNDRangeKernel(launch->stream->queue, launch->kernel, ndim,
                                    NULL, global, local, 0, NULL, &event);
        if (code != CL_SUCCESS)
            launch->status = opencl_fail(launch->device, code, launch->name);
        else {
            opencl_profile_submitted(launch->stream, event,
                                     CORE_ACTIVITY_KERNEL, launch->name, 0);
            opencl_stream_submitted(launch->stream, event);
        }
    }
    pthread_mutex_unlock(&launch->device->lock);
    return launch->status;
}

core_status opencl_run(opencl_launch *launch, uint64_t items, uint32_t group)
{
    size_t local = group;
    size_t global = (size_t)(items + group - 1) / group * group;

    return enqueue(launch, 1, &global, &local);
}

core_status opencl_run_3d(opencl_launch *launch, const size_t *global,
                          const size_t *local)
{
    return enqueue(launch, 3, global, local);
}
