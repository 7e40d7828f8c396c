/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A GPU that is lost to an illegal address, and exhausted memory.  These need a
 * real GPU: on the emulated device an illegal address ends the process. */

#define SUITE_SECONDS 120

#include "support/gpu_emulated.h"

#include <libcore/dlpack.h>
#include <libcore/stream.h>

enum { N = 1024 };

static core_device *gpu;

/* A tensor of N f32 whose memory does not exist. */
static core_tensor *illegal(void)
{
    static int64_t sizes[] = {N};
    static core_dlpack_managed managed = {
        .major = CORE_DLPACK_MAJOR,
        .minor = CORE_DLPACK_MINOR,
        .tensor = {.data = (void *)(uintptr_t)(1u << 20),
                   .ndim = 1,
                   .dtype = {CORE_DLPACK_FLOAT, 32, 1},
                   .shape = sizes},
    };
    core_tensor *tensor;

    managed.tensor.device.type = strncmp(gpu_name(), "cuda", 4) == 0
                                     ? CORE_DLPACK_CUDA
                                     : CORE_DLPACK_ROCM;
    managed.tensor.device.index = (int32_t)core_device_index(gpu);
    OK(core_dlpack_import(&managed, gpu, NULL, &tensor));
    return keep(tensor);
}

static core_tensor *on_gpu(core_tensor *tensor)
{
    return CALL(to_copy, tensor, CORE_F32, gpu, false, -1);
}

/* An addition, a product and a convolution have the CPU's results: kernels and
 * the vendor's libraries work. */
static void check_results(void)
{
    core_tensor *a = numbers(CORE_F32, 64, 64, 1, 16, false),
                *image = CALL(view_sizes, a, ((int64_t[]){1, 4, 32, 32}), 4),
                *b = numbers(CORE_F32, 4, 36, 2, 16, false),
                *filter = CALL(view_sizes, b, ((int64_t[]){4, 4, 3, 3}), 4);
    const int64_t ones[] = {1, 1}, zeros[] = {0, 0};

    same(CALL(add, a, a, core_int(1)),
         CALL(add, on_gpu(a), on_gpu(a), core_int(1)), 0);
    same(CALL(mm, a, a), CALL(mm, on_gpu(a), on_gpu(a)), 1e-3);
    same(CALL(convolution, image, filter, NULL, ones, 2, ones, 2, ones, 2,
              false, zeros, 2, 1),
         CALL(convolution, on_gpu(image), on_gpu(filter), NULL, ones, 2, ones,
              2, ones, 2, false, zeros, 2, 1),
         1e-3);
}

static bool of_nvidia(void)
{
    return strncmp(gpu_name(), "cuda", 4) == 0 ||
           strncmp(gpu_name(), "hipnv", 5) == 0;
}

/* After an error in a kernel NVIDIA's driver works only in a new process, so a
 * reset must say so. */
START_TEST(illegal_address_loses_the_device)
{
    core_tensor *before, *out = NULL;
    core_status status;
    float got[N];

    gpu = gpuemu();
    check_results();
    before = on_gpu(VECTOR(3, 1, 2, 3));
    status = core_add(illegal(), illegal(), core_int(1), &out);
    if (status == CORE_OK) {
        keep(out);
        status = core_device_synchronize(gpu);
    }
    ck_assert_int_eq(status, CORE_ERROR_DEVICE_LOST);
    printf("# %s\n", core_error_message());
    ck_assert_ptr_nonnull(strstr(core_error_message(), "700"));
    ck_assert_int_eq(core_device_status(gpu), CORE_ERROR_DEVICE_LOST);
    ck_assert_int_eq(core_tensor_read(before, got, 12), CORE_ERROR_DEVICE_LOST);
    ck_assert_int_eq(core_neg(before, &out), CORE_ERROR_DEVICE_LOST);
    OK(core_device_status(opened("cpu")));
    status = core_device_reset(gpu);
    if (of_nvidia()) {
        ck_assert_int_eq(status, CORE_ERROR_DEVICE_LOST);
        ck_assert_ptr_nonnull(strstr(core_error_message(), "new process"));
        ck_assert_int_eq(core_device_status(gpu), CORE_ERROR_DEVICE_LOST);
    } else {
        ck_assert_int_eq(status, CORE_OK);
        check_results();
    }
    ck_assert_int_eq(core_tensor_read(before, got, 12), CORE_ERROR_DEVICE_LOST);
}
END_TEST

START_TEST(exhausted_memory_is_an_error_and_the_device_goes_on)
{
    core_tensor *large[64];
    uint64_t left, all;
    core_status status = CORE_OK;
    int count = 0;

    gpu = gpuemu();
    OK(core_device_memory(gpu, &left, &all));
    while (status == CORE_OK && count < 64) {
        status = core_empty(&(int64_t){(int64_t)(all / 32)}, 1, CORE_I8, gpu,
                            -1, &large[count]);
        if (status == CORE_OK)
            count++;
    }
    ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
    printf("# %s\n", core_error_message());
    ck_assert_int_gt(count, 4);
    while (count > 0)
        core_tensor_release(large[--count]);
    check_results();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        illegal_address_loses_the_device,
        exhausted_memory_is_an_error_and_the_device_goes_on,
    };

    if (!of_nvidia() && strncmp(gpu_name(), "rocm", 4) != 0)
        return suite_skip_all("%s is not a GPU: LIBCORE_TEST_GPU", gpu_name());
    return run_emulated("gpu/gpu_lost", tests, sizeof tests / sizeof *tests);
}
