/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives_library.h: a vendor's library of collectives, NCCL or RCCL, opened
 * at run time.  Both have the same functions with the same names and numbers.
 * Their header is not required: what is declared here is the same in all
 * versions from 2.10 on.  If the header is found, the vendor's file compares the
 * numbers with it. */

#ifndef GPU_COLLECTIVES_LIBRARY_H
#define GPU_COLLECTIVES_LIBRARY_H

#include <libcore/plugin.h>

#include <stddef.h>

/* What differs between vendors. */
typedef struct gpu_collectives {
    const char *engine; /* "nccl" */
    const char *title;  /* "NCCL", in errors */
    const char *file;   /* "libnccl.so.2" */
} gpu_collectives;

/* The library's numbers. */
enum {
    GPU_CCL_SUCCESS = 0,
    GPU_CCL_SYSTEM_ERROR = 2,
    GPU_CCL_INTERNAL_ERROR = 3,
    GPU_CCL_INVALID_ARGUMENT = 4,
    GPU_CCL_INVALID_USAGE = 5,
    GPU_CCL_REMOTE_ERROR = 6,
    GPU_CCL_IN_PROGRESS = 7,
    GPU_CCL_SUM = 0,
    GPU_CCL_PROD = 1,
    GPU_CCL_MAX = 2,
    GPU_CCL_MIN = 3,
    GPU_CCL_AVG = 4,
    GPU_CCL_INT8 = 0,
    GPU_CCL_UINT8 = 1,
    GPU_CCL_INT32 = 2,
    GPU_CCL_INT64 = 4,
    GPU_CCL_FLOAT16 = 6,
    GPU_CCL_FLOAT32 = 7,
    GPU_CCL_FLOAT64 = 8,
    GPU_CCL_BFLOAT16 = 9,
    GPU_CCL_ID_SIZE = 128,
    GPU_CCL_OLDEST = 21000, /* the first version with averages and bf16 */
    GPU_CCL_CONFIG_VERSION = 21400 /* whose struct gpu_ccl_config is */
};

typedef struct gpu_ccl_id {
    char bytes[GPU_CCL_ID_SIZE];
} gpu_ccl_id;

/* The library takes the defaults for what later versions have added. */
typedef struct gpu_ccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
} gpu_ccl_config;
#define GPU_CCL_CONFIG_MAGIC 0xcafebeefu

/* X(field, symbol, arguments); they return a number. */
#define GPU_CCL_FUNCTIONS(X)                                            \
    X(get_version, ncclGetVersion, (int *))                             \
    X(get_unique_id, ncclGetUniqueId, (gpu_ccl_id *))                   \
    X(init_rank, ncclCommInitRank, (void **, int, gpu_ccl_id, int))     \
    X(abort, ncclCommAbort, (void *))                                   \
    X(destroy, ncclCommDestroy, (void *))                               \
    X(async_error, ncclCommGetAsyncError, (void *, int *))              \
    X(group_start, ncclGroupStart, (void))                              \
    X(group_end, ncclGroupEnd, (void))                                  \
    X(all_reduce, ncclAllReduce,                                        \
      (const void *, void *, size_t, int, int, void *, void *))         \
    X(reduce, ncclReduce,                                               \
      (const void *, void *, size_t, int, int, int, void *, void *))    \
    X(broadcast, ncclBroadcast,                                         \
      (const void *, void *, size_t, int, int, void *, void *))         \
    X(all_gather, ncclAllGather,                                        \
      (const void *, void *, size_t, int, void *, void *))              \
    X(reduce_scatter, ncclReduceScatter,                                \
      (const void *, void *, size_t, int, int, void *, void *))         \
    X(send, ncclSend, (const void *, size_t, int, int, void *, void *)) \
    X(recv, ncclRecv, (void *, size_t, int, int, void *, void *))

/* The same of later versions; NULL: the library lacks it. */
#define GPU_CCL_LATER_FUNCTIONS(X)                                  \
    X(init_rank_config, ncclCommInitRankConfig,                     \
      (void **, int, gpu_ccl_id, int, gpu_ccl_config *)) /* 2.14 */ \
    X(finalize, ncclCommFinalize, (void *))              /* 2.14 */

#define GPU_CCL_ALL_FUNCTIONS(X) \
    GPU_CCL_FUNCTIONS(X)         \
    GPU_CCL_LATER_FUNCTIONS(X)

typedef struct gpu_ccl {
#define FIELD(field, symbol, arguments) int(*field) arguments;
    GPU_CCL_ALL_FUNCTIONS(FIELD)
#undef FIELD
    const char *(*error_string)(int code);
    const char *(*last_error)(void *comm); /* 2.13; NULL: none */
} gpu_ccl;

/* The functions; valid after gpu_ccl_open has succeeded. */
extern gpu_ccl gpu_ccl_calls;

/* Opens the vendor's library, once.  UNSUPPORTED with the reason. */
core_status gpu_ccl_open(void);

/* Reports that a function of the library returned an error.  comm: the
 * library's, or NULL. */
core_status gpu_ccl_error(void *comm, int code, const char *function);

#endif
