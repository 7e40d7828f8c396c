/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dnn_api.h: the part of cuDNN's interface that dnn.c uses, which versions 8
 * and 9 have in common.  CUDA's toolkit does not contain cuDNN's headers, so
 * they are not required: enumerators are numbers here, and structs have cuDNN's
 * tags.  If cudnn.h is found, dnn_api.c checks that both agree. */

#ifndef CUDA_DNN_API_H
#define CUDA_DNN_API_H

#include <stddef.h>

struct CUstream_st;
struct cudnnContext;
struct cudnnTensorStruct;
struct cudnnFilterStruct;
struct cudnnConvolutionStruct;
struct cudnnConvolutionFwdAlgoPerfStruct;
struct cudnnConvolutionBwdDataAlgoPerfStruct;
struct cudnnConvolutionBwdFilterAlgoPerfStruct;

typedef unsigned dnn_status;
typedef struct CUstream_st *dnn_stream;
typedef struct cudnnContext *dnn_handle;
typedef struct cudnnTensorStruct *dnn_tensor;
typedef struct cudnnFilterStruct *dnn_filter;
typedef struct cudnnConvolutionStruct *dnn_convolution;
typedef struct cudnnConvolutionFwdAlgoPerfStruct dnn_forward_result;
typedef struct cudnnConvolutionBwdDataAlgoPerfStruct dnn_data_result;
typedef struct cudnnConvolutionBwdFilterAlgoPerfStruct dnn_filter_result;

/* The layout of all three …_result types. */
typedef struct dnn_result {
    unsigned algorithm;
    dnn_status status;
    float time;
    size_t workspace;
    unsigned determinism;
    unsigned math;
    int reserved[3];
} dnn_result;

enum { DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_BFLOAT16 = 9 };
enum { DNN_NCHW = 0, DNN_NHWC = 1 };
enum { DNN_CROSS_CORRELATION = 1 };
enum {
    DNN_MATH_DEFAULT = 0,
    DNN_MATH_TENSOR = 1,
    DNN_MATH_TENSOR_NARROW = 2, /* f32 as f16 */
    DNN_MATH_FMA = 3
};
enum { DNN_DETERMINISTIC = 1 };

/* The algorithms that compute sums of products without transforms. */
enum {
    DNN_FORWARD_IMPLICIT = 0,
    DNN_FORWARD_IMPLICIT_PRECOMPUTED = 1,
    DNN_FORWARD_GEMM = 2,
    DNN_FORWARD_DIRECT = 3,
    DNN_DATA_0 = 0,
    DNN_DATA_1 = 1,
    DNN_FILTER_0 = 0,
    DNN_FILTER_1 = 1,
    DNN_FILTER_3 = 3
};

/* Versions 8 and 9 use different status codes. */
enum {
    DNN_SUCCESS = 0,
    DNN_8_ALLOC_FAILED = 2,
    DNN_8_EXECUTION_FAILED = 8,
    DNN_9_HOST_ALLOC_FAILED = 4003,
    DNN_9_DEVICE_ALLOC_FAILED = 4004,
    DNN_9_EXECUTION_FAILED = 5000, /* to 5999 */
};

/* X(field, symbol, arguments): functions that return a dnn_status. */
#define DNN_FUNCTIONS(X)                                                      \
    X(create, cudnnCreate, (dnn_handle *))                                    \
    X(destroy, cudnnDestroy, (dnn_handle))                                    \
    X(set_stream, cudnnSetStream, (dnn_handle, dnn_stream))                   \
    X(tensor_create, cudnnCreateTensorDescriptor, (dnn_tensor *))             \
    X(tensor_set, cudnnSetTensorNdDescriptor,                                 \
      (dnn_tensor, unsigned, int, const int *, const int *))                  \
    X(tensor_destroy, cudnnDestroyTensorDescriptor, (dnn_tensor))             \
    X(filter_create, cudnnCreateFilterDescriptor, (dnn_filter *))             \
    X(filter_set, cudnnSetFilterNdDescriptor,                                 \
      (dnn_filter, unsigned, unsigned, int, const int *))                     \
    X(filter_destroy, cudnnDestroyFilterDescriptor, (dnn_filter))             \
    X(convolution_create, cudnnCreateConvolutionDescriptor,                   \
      (dnn_convolution *))                                                    \
    X(convolution_set, cudnnSetConvolutionNdDescriptor,                       \
      (dnn_convolution, int, const int *, const int *, const int *, unsigned, \
       unsigned))                                                             \
    X(convolution_math, cudnnSetConvolutionMathType,                          \
      (dnn_convolution, unsigned))                                            \
    X(convolution_groups, cudnnSetConvolutionGroupCount,                      \
      (dnn_convolution, int))                                                 \
    X(convolution_destroy, cudnnDestroyConvolutionDescriptor,                 \
      (dnn_convolution))                                                      \
    X(forward_query, cudnnGetConvolutionForwardAlgorithm_v7,                  \
      (dnn_handle, dnn_tensor, dnn_filter, dnn_convolution, dnn_tensor, int,  \
       int *, dnn_forward_result *))                                          \
    X(forward_workspace, cudnnGetConvolutionForwardWorkspaceSize,             \
      (dnn_handle, dnn_tensor, dnn_filter, dnn_convolution, dnn_tensor,       \
       unsigned, size_t *))                                                   \
    X(forward, cudnnConvolutionForward,                                       \
      (dnn_handle, const void *, dnn_tensor, const void *, dnn_filter,        \
       const void *, dnn_convolution, unsigned, void *, size_t, const void *, \
       dnn_tensor, void *))                                                   \
    X(data_query, cudnnGetConvolutionBackwardDataAlgorithm_v7,                \
      (dnn_handle, dnn_filter, dnn_tensor, dnn_convolution, dnn_tensor, int,  \
       int *, dnn_data_result *))                                             \
    X(data_workspace, cudnnGetConvolutionBackwardDataWorkspaceSize,           \
      (dnn_handle, dnn_filter, dnn_tensor, dnn_convolution, dnn_tensor,       \
       unsigned, size_t *))                                                   \
    X(data, cudnnConvolutionBackwardData,                                     \
      (dnn_handle, const void *, dnn_filter, const void *, dnn_tensor,        \
       const void *, dnn_convolution, unsigned, void *, size_t, const void *, \
       dnn_tensor, void *))                                                   \
    X(weight_query, cudnnGetConvolutionBackwardFilterAlgorithm_v7,            \
      (dnn_handle, dnn_tensor, dnn_tensor, dnn_convolution, dnn_filter, int,  \
       int *, dnn_filter_result *))                                           \
    X(weight_workspace, cudnnGetConvolutionBackwardFilterWorkspaceSize,       \
      (dnn_handle, dnn_tensor, dnn_tensor, dnn_convolution, dnn_filter,       \
       unsigned, size_t *))                                                   \
    X(weight, cudnnConvolutionBackwardFilter,                                 \
      (dnn_handle, const void *, dnn_tensor, const void *, dnn_tensor,        \
       const void *, dnn_convolution, unsigned, void *, size_t, const void *, \
       dnn_filter, void *))

typedef struct dnn_api {
#define DNN_FIELD(name, symbol, arguments) dnn_status(*name) arguments;
    DNN_FUNCTIONS(DNN_FIELD)
#undef DNN_FIELD
    int required, disabled; /* from LIBCORE_CUDA_CUDNN */
    char text[256];         /* which cuDNN is used, or why none is */
} dnn_api;
extern dnn_api dnn;

/* Whether there is a usable cuDNN; looks for it at the first call.  Not
 * thread-safe. */
int dnn_api_open(void);

#endif
