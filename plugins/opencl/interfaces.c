/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Optional interfaces: host callbacks, pinned host memory of the driver, and
 * adopted queues. */

#include "opencl.h"

#include <signal.h>

/* ------------------------------------------------------------ callbacks -- */

typedef struct callback {
    cl_event reached; /* earlier work is done */
    cl_event gate;    /* later work waits for it */
    void (*function)(void *context);
    void (*drop)(void *context);
    void *context;
} callback;

/* A thread for each callback: it may block, and the driver's threads have other
 * work. */
static void *run_callback(void *handle)
{
    callback *c = handle;
    cl_int state = 0, code = cl.WaitForEvents(1, &c->reached);

    if (code == CL_SUCCESS)
        code = cl.GetEventInfo(c->reached, CL_EVENT_COMMAND_EXECUTION_STATUS,
                               sizeof state, &state, NULL);
    if (code == CL_SUCCESS && state >= 0)
        c->function(c->context);
    else
        c->drop(c->context);
    cl.SetUserEventStatus(c->gate, state < 0 ? state : CL_COMPLETE);
    cl.ReleaseEvent(c->reached);
    cl.ReleaseEvent(c->gate);
    free(c);
    return NULL;
}

/* A plugin's threads block all signals. */
static int start(callback *c)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    int code;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&thread, &attributes, run_callback, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

/* A marker, then a barrier that waits for the gate. */
static cl_int enqueue_gate(opencl_stream *stream, callback *c,
                           cl_event *out_barrier)
{
    cl_int code;

    c->gate = cl.CreateUserEvent(stream->device->context, &code);
    if (code != CL_SUCCESS) {
        c->gate = NULL;
        return code;
    }
    code = cl.EnqueueMarkerWithWaitList(stream->queue, 0, NULL, &c->reached);
    if (code == CL_SUCCESS)
        code = cl.EnqueueBarrierWithWaitList(stream->queue, 1, &c->gate,
                                             out_barrier);
    if (code == CL_SUCCESS)
        code = cl.Flush(stream->queue);
    return code;
}

static core_status enqueue(void *device, void *handle,
                           void (*function)(void *context), void *context,
                           void (*drop)(void *context))
{
    opencl_stream *stream = handle;
    callback *c = calloc(1, sizeof *c);
    core_status status = opencl_stream_usable(stream);
    cl_event barrier = NULL;
    cl_int code = CL_OUT_OF_HOST_MEMORY;

    (void)device;
    if (status == CORE_OK && c != NULL) {
        *c = (callback){NULL, NULL, function, drop, context};
        code = enqueue_gate(stream, c, &barrier);
    }
    if (code == CL_SUCCESS && start(c) == 0) {
        opencl_stream_submitted(stream, barrier);
        return CORE_OK;
    }
    if (status == CORE_OK)
        status = opencl_fail(stream->device,
                             code != CL_SUCCESS ? code : CL_OUT_OF_RESOURCES,
                             "host callback");
    if (c != NULL && c->gate != NULL) {
        cl.SetUserEventStatus(c->gate, CL_COMPLETE);
        cl.ReleaseEvent(c->gate);
    }
    if (c != NULL && c->reached != NULL)
        cl.ReleaseEvent(c->reached);
    if (barrier != NULL)
        cl.ReleaseEvent(barrier);
    free(c);
    drop(context);
    return status;
}

const core_host_callback_interface opencl_host_callback = {
    .struct_size = sizeof(core_host_callback_interface),
    .enqueue = enqueue,
};

/* ---------------------------------------------------------- host memory -- */

/* Buffers in host memory, the driver's or the program's, permanently mapped. */
struct opencl_pinned {
    opencl_pinned *next;
    cl_mem buffer;
    void *data;
};

/* host: memory of the program, or NULL: the driver allocates it. */
static core_status map(opencl_device *device, void *host, uint64_t size,
                       opencl_pinned *to)
{
    cl_mem_flags place =
        host != NULL ? CL_MEM_USE_HOST_PTR : CL_MEM_ALLOC_HOST_PTR;
    cl_int code;
    cl_command_queue queue =
        cl.CreateCommandQueue(device->context, device->id, 0, &code);

    if (code != CL_SUCCESS)
        return opencl_fail(device, code, "clCreateCommandQueue");
    to->buffer = cl.CreateBuffer(device->context, CL_MEM_READ_WRITE | place,
                                 size, host, &code);
    if (code == CL_SUCCESS)
        to->data = cl.EnqueueMapBuffer(queue, to->buffer, CL_TRUE,
                                       CL_MAP_READ | CL_MAP_WRITE, 0, size, 0,
                                       NULL, NULL, &code);
    else
        to->buffer = NULL;
    cl.ReleaseCommandQueue(queue);
    if (code == CL_SUCCESS)
        return CORE_OK;
    if (to->buffer != NULL)
        cl.ReleaseMemObject(to->buffer);
    return opencl_fail(device, code, "pinned host memory");
}

static core_status pin(opencl_device *device, void *host, uint64_t size,
                       void **out_data)
{
    opencl_pinned *pinned_block = calloc(1, sizeof *pinned_block);
    core_status status;

    *out_data = NULL;
    if (pinned_block == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for an allocation's record");
    if (device->largest && size > device->largest)
        status = opencl_refuse(
            CORE_ERROR_OUT_OF_MEMORY,
            "%llu bytes of host memory; the largest allocation is %llu",
            (unsigned long long)size, (unsigned long long)device->largest);
    else
        status = map(device, host, size, pinned_block);
    if (status != CORE_OK) {
        free(pinned_block);
        return status;
    }
    *out_data = pinned_block->data;
    pthread_mutex_lock(&device->lock);
    pinned_block->next = device->pinned;
    device->pinned = pinned_block;
    pthread_mutex_unlock(&device->lock);
    return CORE_OK;
}

static core_status host_alloc(void *handle, uint64_t size, void **out_data)
{
    return pin(handle, NULL, size, out_data);
}

/* A buffer on the program's memory is mapped at that memory. */
static core_status host_register(void *handle, void *data, uint64_t size)
{
    void *mapped;

    return pin(handle, data, size, &mapped);
}

static void host_free(void *handle, void *data, uint64_t size)
{
    opencl_device *device = handle;
    opencl_pinned *found = NULL;

    (void)size;
    pthread_mutex_lock(&device->lock);
    for (opencl_pinned **at = &device->pinned; *at; at = &(*at)->next)
        if ((*at)->data == data) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&device->lock);
    if (found != NULL)
        cl.ReleaseMemObject(found->buffer);
    free(found);
}

const core_host_memory_interface opencl_host_memory = {
    .struct_size = sizeof(core_host_memory_interface),
    .alloc = host_alloc,
    .free = host_free,
    .register_memory = host_register,
    .unregister_memory = host_free,
};

/* ------------------------------------------------------- others' queues -- */

static core_status adopt(void *device, void *native, void **out_stream)
{
    cl_command_queue_properties properties = 0;
    cl_int code;

    *out_stream = NULL;
    code = cl.GetCommandQueueInfo(native, CL_QUEUE_PROPERTIES,
                                  sizeof properties, &properties, NULL);
    if (code != CL_SUCCESS)
        return opencl_fail(device, code, "clGetCommandQueueInfo");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "an out-of-order queue cannot be adopted");
    return opencl_stream_on_queue(device, CORE_STREAM_COMPUTE, native,
                                  out_stream);
}

static core_status native(void *device, void *handle, void **out_native)
{
    opencl_stream *stream = handle;

    (void)device;
    *out_native = stream->queue;
    return CORE_OK;
}

const core_stream_adopt_interface opencl_stream_adopt = {
    .struct_size = sizeof(core_stream_adopt_interface),
    .adopt = adopt,
    .native = native,
};
