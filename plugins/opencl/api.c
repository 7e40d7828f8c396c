/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

opencl_api cl;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reason[256];
static int opened;

/* The library stays loaded: its threads and atexit handlers outlive any use of
 * it here. */
static void open_once(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *text;

    if (library == NULL) {
        text = dlerror();
        snprintf(reason, sizeof reason, "no OpenCL loader: %s",
                 text != NULL ? text : "libOpenCL.so.1 was not found");
        return;
    }
#define X(name)                                                             \
    *(void **)&cl.name = dlsym(library, "cl" #name);                        \
    if (cl.name == NULL) {                                                  \
        snprintf(reason, sizeof reason,                                     \
                 "libOpenCL.so.1 lacks cl%s: OpenCL 1.2 is needed", #name); \
        return;                                                             \
    }
    OPENCL_FUNCTIONS(X)
#undef X
}

const char *opencl_api_open(void)
{
    pthread_mutex_lock(&lock);
    if (!opened)
        open_once();
    opened = 1;
    pthread_mutex_unlock(&lock);
    return reason[0] ? reason : NULL;
}

const char *opencl_code_name(cl_int code)
{
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
#define X(name) {name, #name},
        X(CL_DEVICE_NOT_FOUND) X(CL_DEVICE_NOT_AVAILABLE) X(
            CL_COMPILER_NOT_AVAILABLE) X(CL_MEM_OBJECT_ALLOCATION_FAILURE)
            X(CL_OUT_OF_RESOURCES) X(CL_OUT_OF_HOST_MEMORY) X(
                CL_PROFILING_INFO_NOT_AVAILABLE) X(CL_MEM_COPY_OVERLAP)
                X(CL_BUILD_PROGRAM_FAILURE) X(CL_MISALIGNED_SUB_BUFFER_OFFSET) X(
                    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
                    X(CL_INVALID_VALUE) X(CL_INVALID_DEVICE) X(
                        CL_INVALID_CONTEXT) X(CL_INVALID_COMMAND_QUEUE)
                        X(CL_INVALID_MEM_OBJECT) X(CL_INVALID_BINARY) X(
                            CL_INVALID_BUILD_OPTIONS) X(CL_INVALID_PROGRAM)
                            X(CL_INVALID_PROGRAM_EXECUTABLE) X(
                                CL_INVALID_KERNEL_NAME) X(CL_INVALID_KERNEL)
                                X(CL_INVALID_ARG_INDEX) X(
                                    CL_INVALID_ARG_VALUE) X(CL_INVALID_ARG_SIZE)
                                    X(CL_INVALID_KERNEL_ARGS) X(
                                        CL_INVALID_WORK_GROUP_SIZE)
                                        X(CL_INVALID_WORK_ITEM_SIZE) X(
                                            CL_INVALID_EVENT_WAIT_LIST)
                                            X(CL_INVALID_EVENT) X(
                                                CL_INVALID_OPERATION)
                                                X(CL_INVALID_BUFFER_SIZE) X(
                                                    CL_INVALID_GLOBAL_WORK_SIZE)
#undef X
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code)
            return names[i].name;
    return NULL;
}
