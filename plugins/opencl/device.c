/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every device of every platform, in OpenCL's order. */

#include "packed_weights.h"

#include <stdio.h>

enum { PLATFORMS = 16, DEVICES = 64 };

typedef struct found {
    cl_platform_id platform;
    cl_device_id device;
} found;

/* Parses "OpenCL 1.2 …": at least 1.2. */
static bool new_enough(cl_device_id device)
{
    char version[128] = "";
    int major = 0, minor = 0;

    cl.GetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version - 1, version,
                     NULL);
    if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2)
        return false;
    return major > 1 || minor >= 2;
}

/* Returns the number of devices; if none, the reason as static text. */
static uint32_t find(found *devices, const char **out_reason)
{
    cl_platform_id platforms[PLATFORMS];
    cl_uint nplatforms = 0, count = 0, old = 0;
    opencl_signal_guard *guard;

    *out_reason = opencl_api_open();
    if (*out_reason != NULL)
        return 0;
    guard = opencl_signal_guard_begin();
    if (cl.GetPlatformIDs(PLATFORMS, platforms, &nplatforms) != CL_SUCCESS)
        nplatforms = 0;
    if (nplatforms > PLATFORMS)
        nplatforms = PLATFORMS;
    for (cl_uint p = 0; p < nplatforms; p++) {
        cl_device_id ids[DEVICES];
        cl_uint n = 0;

        if (cl.GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, DEVICES, ids,
                            &n) != CL_SUCCESS)
            continue;
        for (cl_uint i = 0; i < n && i < DEVICES && count < DEVICES; i++) {
            if (!new_enough(ids[i])) {
                old++;
                continue;
            }
            devices[count].platform = platforms[p];
            devices[count++].device = ids[i];
        }
    }
    opencl_signal_guard_end(guard);
    *out_reason = count > 0         ? ""
                  : nplatforms == 0 ? "no OpenCL platform is installed"
                  : old > 0 ? "no OpenCL device here supports OpenCL 1.2"
                            : "no OpenCL platform has a device";
    return count;
}

core_status opencl_enumerate(void *backend, uint32_t *out_count,
                             core_string *out_reason)
{
    found devices[DEVICES];
    const char *reason;

    (void)backend;
    *out_count = find(devices, &reason);
    *out_reason = core_sdk_string(reason);
    return CORE_OK;
}

static void text_of(const opencl_device *device, cl_device_info what, char *to,
                    size_t size)
{
    char text[512] = "";
    size_t used = 0;

    if (cl.GetDeviceInfo(device->id, what, sizeof text - 1, text, NULL) !=
        CL_SUCCESS)
        text[0] = 0;
    for (size_t i = 0; text[i] != 0 && used + 1 < size; i++)
        to[used++] = text[i];
    while (used > 0 && to[used - 1] == ' ')
        used--;
    to[used] = 0;
}

static uint64_t number_of(const opencl_device *device, cl_device_info what,
                          size_t size)
{
    uint64_t number = 0;

    if (cl.GetDeviceInfo(device->id, what, size, &number, NULL) != CL_SUCCESS)
        return 0;
    return number;
}

static bool is_pocl(cl_platform_id platform)
{
    char name[128] = "";

    cl.GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    return strcmp(name, "Portable Computing Language") == 0;
}

static void describe(opencl_device *device, uint32_t index)
{
    uint64_t bits;

    text_of(device, CL_DEVICE_NAME, device->name, sizeof device->name);
    text_of(device, CL_DRIVER_VERSION, device->driver, sizeof device->driver);
    text_of(device, CL_DEVICE_VERSION, device->runtime, sizeof device->runtime);
    device->keeps_programs = is_pocl(device->platform);
    snprintf(device->stable_id, sizeof device->stable_id, "opencl-%u", index);
    device->has_f64 = number_of(device, CL_DEVICE_DOUBLE_FP_CONFIG, 8) != 0;
    device->exact_division = number_of(device, CL_DEVICE_SINGLE_FP_CONFIG, 8) &
                             CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
    device->unified = number_of(device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0;
    device->wide_vectors =
        number_of(device, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, 4) > 1;
    device->largest = number_of(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    device->total = number_of(device, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
    device->local_bytes = number_of(device, CL_DEVICE_LOCAL_MEM_SIZE, 8);
    device->units = (uint32_t)number_of(device, CL_DEVICE_MAX_COMPUTE_UNITS, 4);
    device->largest_group = (uint32_t)number_of(
        device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    /* In bits; at least 64 bytes, the core's minimum, and a power of two. */
    bits = number_of(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4);
    device->alignment = 64;
    while (device->alignment * UINT64_C(8) < bits && device->alignment < 4096)
        device->alignment *= 2;
    device->flushes_denormals = (number_of(device, CL_DEVICE_SINGLE_FP_CONFIG,
                                           sizeof(cl_device_fp_config)) &
                                 CL_FP_DENORM) == 0;
    /* OpenCL guarantees 16 units for pow and less for others.  Hosts before
     * core.numerics read it here. */
    snprintf(device->features, sizeof device->features, "ulp=16%s",
             device->has_f64 ? ",f64" : "");
    snprintf(device->generator, sizeof device->generator,
             "opencl loop programs 1, %s, %s, %s", device->name, device->driver,
             device->runtime);
}

core_status opencl_device_open(void *backend, uint32_t index, void **out_device)
{
    found devices[DEVICES];
    const char *reason;
    opencl_device *device = NULL;
    uint32_t count = find(devices, &reason);
    opencl_signal_guard *guard;
    core_status status;
    cl_int code;

    *out_device = NULL;
    if (index >= count)
        return opencl_refuse(CORE_ERROR_NO_DEVICE,
                             "there is no device %u; there are %u%s%s", index,
                             count, count ? "" : ": ", reason);
    device = calloc(1, sizeof *device);
    if (device == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for a device");
    device->platform = devices[index].platform;
    device->id = devices[index].device;
    guard = opencl_signal_guard_begin();
    device->context = cl.CreateContext(NULL, 1, &device->id, NULL, NULL, &code);
    opencl_signal_guard_end(guard);
    if (code != CL_SUCCESS) {
        free(device);
        return opencl_fail(NULL, code, "clCreateContext");
    }
    pthread_mutex_init(&device->lock, NULL);
    describe(device, index);
    status = opencl_packed_weights_open(device);
    if (status != CORE_OK) {
        opencl_device_close(backend, device);
        return status;
    }
    *out_device = device;
    return CORE_OK;
}

void opencl_device_close(void *backend, void *handle)
{
    opencl_device *device = handle;

    (void)backend;
    opencl_packed_weights_close(device);
    opencl_programs_close(device);
    opencl_profile_close(device);
    cl.ReleaseContext(device->context);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

core_status opencl_device_information(void *handle,
                                      core_device_information *out)
{
    opencl_device *device = handle;

    out->name = core_sdk_string(device->name);
    out->stable_id = core_sdk_string(device->stable_id);
    out->driver = core_sdk_string(device->driver);
    out->runtime = core_sdk_string(device->runtime);
    out->features = core_sdk_string(device->features);
    return CORE_OK;
}

core_status opencl_device_properties(void *handle, core_device_properties *out)
{
    opencl_device *device = handle;

    out->flags = (device->has_f64 ? CORE_DEVICE_HAS_F64 : 0) |
                 (device->unified ? CORE_DEVICE_UNIFIED : 0);
    out->base_alignment = device->alignment;
    out->granularity = 64;
    out->largest_allocation = device->largest;
    out->total_memory = device->total;
    out->compute_units = device->units;
    out->numa_node = UINT32_MAX;
    /* Hosts since 0.6.  Each is a queue; OpenCL does not say how many of them
     * copy at the same time. */
    if (out->struct_size > offsetof(core_device_properties, copy_streams))
        out->copy_streams = UINT32_MAX;
    return CORE_OK;
}

static core_status lost(void)
{
    return core_sdk_error_severe(opencl_host, CORE_ERROR_DEVICE_LOST,
                                 CORE_SEVERITY_DEVICE_LOST, "opencl",
                                 "the device is no longer available");
}

core_status opencl_device_status(void *handle)
{
    opencl_device *device = handle;
    cl_bool available = CL_TRUE;

    if (cl.GetDeviceInfo(device->id, CL_DEVICE_AVAILABLE, sizeof available,
                         &available, NULL) != CL_SUCCESS ||
        !available)
        device->lost = true;
    return device->lost ? lost() : CORE_OK;
}

/* -------------------------------------------------------------- errors -- */

static core_status status_of(cl_int code)
{
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return CORE_ERROR_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
        return CORE_ERROR_DEVICE_LOST;
    case CL_COMPILER_NOT_AVAILABLE:
        return CORE_ERROR_UNSUPPORTED;
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
        return CORE_ERROR_STREAM;
    default:
        return CORE_ERROR_INTERNAL;
    }
}

core_status opencl_fail(opencl_device *device, cl_int code, const char *what)
{
    const char *name = opencl_code_name(code);
    core_status status = status_of(code);
    core_error_info info = {.struct_size = sizeof info};
    char text[256];

    if (status == CORE_ERROR_DEVICE_LOST && device != NULL)
        device->lost = true;
    if (name != NULL)
        snprintf(text, sizeof text, "%s: %s", what, name);
    else
        snprintf(text, sizeof text, "%s: OpenCL error %d", what, code);
    info.code = status;
    info.severity = status == CORE_ERROR_DEVICE_LOST ? CORE_SEVERITY_DEVICE_LOST
                    : status == CORE_ERROR_STREAM
                        ? CORE_SEVERITY_STREAM_POISONED
                        : CORE_SEVERITY_RECOVERABLE;
    info.retryable = status == CORE_ERROR_OUT_OF_MEMORY;
    info.vendor_code = code;
    info.component = core_sdk_string("opencl");
    info.text = core_sdk_string(text);
    return opencl_host->error(&info);
}

static core_status numerics(void *handle, core_numerics *out)
{
    const opencl_device *device = handle;

    out->max_ulp = 16;
    if (device->flushes_denormals)
        out->flushes_denormals = CORE_DTYPE_MASK(CORE_F32);
    return CORE_OK;
}

const core_numerics_interface opencl_numerics = {
    .struct_size = sizeof(core_numerics_interface),
    .get = numerics,
};
