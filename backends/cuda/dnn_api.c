/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "dnn_api.h"

#include <gpu/host/host.h>
#include <gpu/host/library.h>

#include <dlfcn.h>
#include <stdio.h>

/* If cuDNN's own header is found, dnn_api.h is checked against it. */
#ifdef __has_include
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif
#endif

/* 8.1 is the first version with bf16; a version is 10000 major + 100 minor +
 * patch. */
enum { OLDEST = 80100 };

dnn_api dnn;

#if defined(CUDNN_MAJOR) && (CUDNN_MAJOR == 8 || CUDNN_MAJOR == 9)
#define SAME(name, symbol, arguments)                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(dnn.name), \
                                                __typeof__(&symbol)), \
                   #symbol);
DNN_FUNCTIONS(SAME)
#undef SAME
#define EQUAL(ours, theirs) \
    _Static_assert((long)(ours) == (long)(theirs), #theirs)
#define LAID(type, ours, theirs)                                             \
    _Static_assert(                                                          \
        offsetof(dnn_result, ours) == offsetof(struct type, theirs) &&       \
            sizeof(dnn_result) == sizeof(struct type) &&                     \
            sizeof((dnn_result){0}.ours) == sizeof((struct type){0}.theirs), \
        #type "." #theirs)
#define LAID_ALL(type)                    \
    LAID(type, algorithm, algo);          \
    LAID(type, status, status);           \
    LAID(type, time, time);               \
    LAID(type, workspace, memory);        \
    LAID(type, determinism, determinism); \
    LAID(type, math, mathType)
LAID_ALL(cudnnConvolutionFwdAlgoPerfStruct);
LAID_ALL(cudnnConvolutionBwdDataAlgoPerfStruct);
LAID_ALL(cudnnConvolutionBwdFilterAlgoPerfStruct);
EQUAL(DNN_FLOAT, CUDNN_DATA_FLOAT);
EQUAL(DNN_DOUBLE, CUDNN_DATA_DOUBLE);
EQUAL(DNN_HALF, CUDNN_DATA_HALF);
EQUAL(DNN_BFLOAT16, CUDNN_DATA_BFLOAT16);
EQUAL(DNN_NCHW, CUDNN_TENSOR_NCHW);
EQUAL(DNN_NHWC, CUDNN_TENSOR_NHWC);
EQUAL(DNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION);
EQUAL(DNN_MATH_DEFAULT, CUDNN_DEFAULT_MATH);
EQUAL(DNN_MATH_TENSOR, CUDNN_TENSOR_OP_MATH);
EQUAL(DNN_MATH_TENSOR_NARROW, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);
EQUAL(DNN_MATH_FMA, CUDNN_FMA_MATH);
EQUAL(DNN_DETERMINISTIC, CUDNN_DETERMINISTIC);
EQUAL(DNN_FORWARD_IMPLICIT, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
EQUAL(DNN_FORWARD_IMPLICIT_PRECOMPUTED,
      CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
EQUAL(DNN_FORWARD_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
EQUAL(DNN_FORWARD_DIRECT, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT);
EQUAL(DNN_DATA_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0);
EQUAL(DNN_DATA_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
EQUAL(DNN_FILTER_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0);
EQUAL(DNN_FILTER_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
EQUAL(DNN_FILTER_3, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3);
EQUAL(DNN_SUCCESS, CUDNN_STATUS_SUCCESS);
#if CUDNN_MAJOR == 8
EQUAL(DNN_8_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED);
EQUAL(DNN_8_EXECUTION_FAILED, CUDNN_STATUS_EXECUTION_FAILED);
#else
EQUAL(DNN_9_HOST_ALLOC_FAILED,
      CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
EQUAL(DNN_9_DEVICE_ALLOC_FAILED,
      CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
EQUAL(DNN_9_EXECUTION_FAILED, CUDNN_STATUS_EXECUTION_FAILED);
#endif
#endif

static int state; /* 0: not searched; 1: found; -1: not used */

/* Returns 0 if cuDNN must not be used; then dnn.text says why. */
static int read_setting(void)
{
    core_string set = gpu_host->setting(core_sdk_string("LIBCORE_CUDA_CUDNN"));

    if (set.data == NULL || set.size == 0)
        return 1;
    dnn.disabled = core_sdk_string_equal(set, "0");
    dnn.required = !dnn.disabled;
    if (dnn.disabled)
        snprintf(dnn.text, sizeof dnn.text,
                 "cuDNN is not used: LIBCORE_CUDA_CUDNN is 0");
    else if (!core_sdk_string_equal(set, "1"))
        snprintf(
            dnn.text, sizeof dnn.text,
            "no cuDNN: LIBCORE_CUDA_CUDNN is \"%.*s\"; 0 and 1 are accepted",
            (int)(set.size < 64 ? set.size : 64), set.data);
    else
        return 1;
    return 0;
}

/* Whether the library can be used; if not, dnn.text says why. */
static int usable(void *library, const char *file)
{
    static const gpu_symbol symbols[] = {
#define ROW(name, symbol, arguments) {#symbol, offsetof(dnn_api, name)},
        DNN_FUNCTIONS(ROW)
#undef ROW
    };
    size_t (*get_version)(void) = NULL, version;
    const char *missing;

    *(void **)(void *)&get_version = dlsym(library, "cudnnGetVersion");
    if (get_version == NULL) {
        snprintf(dnn.text, sizeof dnn.text,
                 "no cuDNN: %s lacks cudnnGetVersion", file);
        return 0;
    }
    missing = gpu_library_resolve(library, symbols,
                                  sizeof symbols / sizeof *symbols, &dnn);
    if (missing != NULL) {
        snprintf(dnn.text, sizeof dnn.text, "no cuDNN: %s lacks %s", file,
                 missing);
        return 0;
    }
    version = get_version();
    if (version < 90000) /* 8907 is 8.9.7 */
        version = version / 1000 * 10000 + version % 1000;
    if (version < OLDEST) {
        snprintf(dnn.text, sizeof dnn.text,
                 "no cuDNN: %s is version %zu.%zu.%zu; %d.%d or newer is "
                 "required",
                 file, version / 10000, version / 100 % 100, version % 100,
                 OLDEST / 10000, OLDEST / 100 % 100);
        return 0;
    }
    snprintf(dnn.text, sizeof dnn.text, "cuDNN %zu.%zu.%zu", version / 10000,
             version / 100 % 100, version % 100);
    return 1;
}

int dnn_api_open(void)
{
    static const char *const files[] = {"libcudnn.so.9", "libcudnn.so.8"};

    if (state != 0)
        return state > 0;
    state = -1;
    if (!read_setting())
        return 0;
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        const char *reason = library == NULL ? dlerror() : NULL;

        if (library != NULL && usable(library, files[i])) {
            state = 1;
            return 1;
        }
        if (dnn.text[0] == 0 && i == 0)
            snprintf(dnn.text, sizeof dnn.text,
                     "no cuDNN: neither %s nor %s can be opened (%s)", files[0],
                     files[1], reason != NULL ? reason : "no reason is given");
    }
    return 0;
}
