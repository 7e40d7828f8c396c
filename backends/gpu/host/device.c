/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.c: devices, and the errors of their driver. */

#include <gpu/host/codegen.h>
#include <gpu/host/collectives.h>
#include <gpu/host/host.h>
#include <gpu/host/thread.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define calls (gpu_this_vendor.driver)

/* Blocks signals, so that threads started by the vendor's library receive
 * none. */
static const char *find_devices(uint32_t *out_count)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    sigset_t before;
    const char *reason;

    pthread_mutex_lock(&lock);
    gpu_signals_block(&before);
    reason = calls->find(out_count);
    gpu_signals_restore(&before);
    pthread_mutex_unlock(&lock);
    return reason;
}

static int open_context(gpu_device *device)
{
    sigset_t before;
    int code;

    gpu_signals_block(&before);
    code = calls->device_open(device->index, &device->facts, &device->context);
    gpu_signals_restore(&before);
    return code;
}

core_status gpu_enumerate(void *backend, uint32_t *out_count,
                          core_string *out_reason)
{
    const char *reason;

    (void)backend;
    *out_count = 0;
    reason = find_devices(out_count);
    if (reason != NULL)
        *out_count = 0;
    *out_reason = core_sdk_string(reason != NULL ? reason : "");
    return CORE_OK;
}

static uint32_t image_count(void)
{
    uint32_t count = 0;

    while (gpu_this_vendor.images[count].family != NULL)
        count++;
    return count;
}

core_status gpu_device_open(void *backend, uint32_t index, void **out_device)
{
    gpu_device *device = NULL;
    uint32_t count = 0;
    const char *reason = find_devices(&count);
    core_status status = CORE_OK;

    (void)backend;
    *out_device = NULL;
    if (reason != NULL || index >= count)
        return gpu_refuse(CORE_ERROR_NO_DEVICE,
                          "device %u does not exist, there are %u%s%s", index,
                          reason ? 0 : count, reason ? ": " : "",
                          reason ? reason : "");
    device = calloc(1, sizeof *device);
    if (device != NULL) {
        device->functions = calloc(GPU_FUNCTIONS, sizeof *device->functions);
        device->modules = calloc(image_count() + 1, sizeof *device->modules);
    }
    if (device == NULL || device->functions == NULL ||
        device->modules == NULL) {
        status =
            gpu_refuse(CORE_ERROR_OUT_OF_MEMORY, "no host memory for a device");
        goto done;
    }
    device->index = index;
    status = gpu_report(NULL, open_context(device), "opening the device");
    if (status != CORE_OK)
        goto done;
    if (device->facts.numa_node == UINT32_MAX)
        device->facts.numa_node =
            gpu_numa_node("/sys/bus/pci/devices", device->facts.stable_id);
    pthread_mutex_init(&device->loading, NULL);
    pthread_mutex_init(&device->lock, NULL);
    atomic_init(&device->references, 1);
    device->deferred_last = &device->deferred;
    *out_device = device;
    device = NULL;
done:
    if (device != NULL) {
        free(device->functions);
        free(device->modules);
        free(device);
    }
    return status;
}

static void clear_modules(gpu_device *device, bool unload)
{
    gpu_codegen_clear(device, unload);
    for (uint32_t i = 0; i < image_count(); i++) {
        if (unload && device->modules[i] != NULL)
            calls->module_unload(device->context, device->modules[i]);
        device->modules[i] = NULL;
    }
    for (uint32_t i = 0; i < GPU_FUNCTIONS; i++) {
        free((void *)(uintptr_t)atomic_load(&device->functions[i].name));
        atomic_store(&device->functions[i].name, NULL);
    }
}

void gpu_device_release(gpu_device *device)
{
    if (atomic_fetch_sub(&device->references, 1) > 1)
        return;
    gpu_callbacks_destroy(device);
    gpu_deferred_free_all(device);
    gpu_streams_free(device);
    gpu_profile_close(device->profile);
    clear_modules(device, !atomic_load(&device->lost));
    gpu_errors_free(device, !atomic_load(&device->lost));
    calls->device_close(device->context);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->loading);
    free(device->functions);
    free(device->modules);
    free(device);
}

void gpu_device_close(void *backend, void *device)
{
    (void)backend;
    gpu_device_release(device);
}

static gpu_failure failure_of(int code)
{
    const gpu_failure unknown = {CORE_ERROR_DEVICE_LOST, 1,
                                 "its state is unknown"};

    return code == GPU_UNKNOWN ? unknown : calls->failure(code);
}

core_status gpu_device_reset(void *opaque)
{
    gpu_device *device = opaque;
    core_status status;
    int code;

    gpu_comms_stop(device);
    pthread_mutex_lock(&device->loading);
    pthread_mutex_lock(&device->lock);
    clear_modules(device, false);
    gpu_errors_free(device, false);
    gpu_callbacks_abandon(device);
    gpu_streams_free(device);
    device->generation++;
    code = calls->device_reset(device->context);
    status = gpu_report(NULL, code,
                        failure_of(code).lost
                            ? "resetting the device, which works again only "
                              "in a new process"
                            : "resetting the device");
    if (status == CORE_OK)
        atomic_store(&device->lost, 0);
    pthread_mutex_unlock(&device->lock);
    pthread_mutex_unlock(&device->loading);
    return status;
}

core_status gpu_device_information(void *opaque, core_device_information *out)
{
    gpu_device *device = opaque;

    out->name = core_sdk_string(device->facts.name);
    out->stable_id = core_sdk_string(device->facts.stable_id);
    out->driver = core_sdk_string(device->facts.driver);
    out->runtime = core_sdk_string(device->facts.runtime);
    out->features = core_sdk_string(device->facts.architecture);
    return CORE_OK;
}

core_status gpu_device_properties(void *opaque, core_device_properties *out)
{
    gpu_device *device = opaque;

    out->flags = CORE_DEVICE_FLAT | CORE_DEVICE_HAS_F64 |
                 (device->facts.unified ? CORE_DEVICE_UNIFIED : 0);
    out->base_alignment = 256;
    out->granularity = 512;
    out->total_memory = device->facts.total_memory;
    out->compute_units = device->facts.units;
    out->numa_node = device->facts.numa_node;
    return CORE_OK;
}

core_status gpu_device_status(void *opaque)
{
    gpu_device *device = opaque;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = calls->device_check(device->context);
    return gpu_report(device, code, "the device");
}

/* A wait that fails without losing the device does not say whether the work is
 * done, and that may still write to memory of the caller.  So this polls until
 * it is. */
static int poll_until_done(const gpu_device *device, int code, void *object,
                           int (*query)(void *context, void *object))
{
    const struct timespec pause = {0, 50000};
    int then;

    if (code <= 0 || failure_of(code).lost)
        return code;
    while ((then = query(device->context, object)) == GPU_BUSY)
        nanosleep(&pause, NULL);
    if (then == 0)
        return code;
    return failure_of(then).lost ? then : GPU_UNKNOWN;
}

int gpu_wait_stream(gpu_device *device, void *stream)
{
    return poll_until_done(device,
                           calls->stream_synchronize(device->context, stream),
                           stream, calls->stream_query);
}

int gpu_wait_event(gpu_device *device, void *event)
{
    return poll_until_done(device,
                           calls->event_synchronize(device->context, event),
                           event, calls->event_query);
}

core_status gpu_report(gpu_device *device, int code, const char *what)
{
    gpu_failure failure;
    core_error_info info = {.struct_size = sizeof info};
    char text[256];

    if (code == 0)
        return CORE_OK;
    if (code == GPU_BUSY)
        return CORE_ERROR_BUSY;
    failure = failure_of(code);
    if (failure.lost && device != NULL) {
        int none = 0;

        atomic_compare_exchange_strong(&device->lost, &none, code);
    }
    snprintf(text, sizeof text, "%s: %s (%d)%s", what,
             failure.name != NULL ? failure.name : "the driver's error", code,
             failure.lost ? "; the device is lost" : "");
    info.code = failure.status;
    info.severity =
        failure.lost ? CORE_SEVERITY_DEVICE_LOST : CORE_SEVERITY_RECOVERABLE;
    info.retryable = failure.status == CORE_ERROR_OUT_OF_MEMORY;
    info.vendor_code = code;
    info.component = core_sdk_string(calls->component);
    info.text = core_sdk_string(text);
    return gpu_host->error(&info);
}
