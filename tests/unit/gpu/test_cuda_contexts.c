/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The context that backends/cuda/blas_lt.c makes current while a device is reset and
 * other threads multiply 8-bit floats.  The driver consists of these few
 * functions. */

#include "support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<cublasLt.h>)

#include "../../../backends/cuda/blas_lt.c"

cuda_api cuda;

static _Thread_local CUcontext newest;
static _Thread_local int pushes, depth;

static CUresult push(CUcontext handle)
{
    newest = handle;
    pushes++;
    depth++;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *handle)
{
    *handle = newest;
    depth--;
    return CUDA_SUCCESS;
}

/* A capability for which the library is not looked for. */
static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)device;
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 8 : 0;
    return CUDA_SUCCESS;
}

static int devices[2], handles[3];
#define HANDLE(i) ((CUcontext)(void *)&handles[i])

static void open_them(void)
{
    cuda.CtxPushCurrent = push;
    cuda.CtxPopCurrent = pop;
    cuda.DeviceGetAttribute = attribute;
    for (int i = 0; i < 2; i++)
        cuda_lt_open(&devices[i], i, HANDLE(i));
}

static void close_them(void)
{
    for (int i = 0; i < 2; i++)
        cuda_lt_close(&devices[i]);
}

/* How many contexts are made current by a query and a product. */
static int asked(void *device)
{
    gpu_scaled g = {0};
    int before = pushes;

    ck_assert_int_eq(cuda_lt_query(device, &g), GPU_ABSENT);
    if (device != NULL)
        ck_assert_int_eq(cuda_lt_multiply(device, NULL, &g), GPU_ABSENT);
    ck_assert_int_eq(depth, 0);
    return pushes - before;
}

START_TEST(device_in_reset_is_not_made_current)
{
    open_them();
    ck_assert_int_eq(asked(&devices[1]), 2);
    ck_assert_ptr_eq(newest, HANDLE(1));
    cuda_lt_renew(&devices[1], NULL);
    ck_assert_int_eq(asked(&devices[1]), 0);
    ck_assert_int_eq(asked(&devices[0]), 2);
    ck_assert_int_eq(asked(NULL), 1); /* every device except one */
    ck_assert_ptr_eq(newest, HANDLE(0));
    cuda_lt_renew(&devices[1], HANDLE(2));
    ck_assert_int_eq(asked(&devices[1]), 2);
    ck_assert_ptr_eq(newest, HANDLE(2));
    close_them();
}
END_TEST

static void *ask_often(void *argument)
{
    (void)argument;
    for (int i = 0; i < 2000; i++) {
        asked(&devices[0]);
        if (pushes != 0)
            ck_assert(newest == HANDLE(0) || newest == HANDLE(2));
    }
    return NULL;
}

/* For ThreadSanitizer. */
START_TEST(device_can_be_reset_during_queries)
{
    pthread_t thread;

    open_them();
    ck_assert_int_eq(pthread_create(&thread, NULL, ask_often, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        cuda_lt_renew(&devices[0], NULL);
        cuda_lt_renew(&devices[0], HANDLE(i % 2 * 2));
    }
    pthread_join(thread, NULL);
    close_them();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        device_in_reset_is_not_made_current,
        device_can_be_reset_during_queries,
    };
    const test_suite suite = {
        .name = "gpu/cuda_contexts",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}

#else

int main(void)
{
    return suite_skip_all("no headers of cuBLAS are found");
}

#endif
