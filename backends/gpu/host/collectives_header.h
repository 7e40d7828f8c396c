/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives_header.h: compares collectives_library.h with the header of NCCL or
 * RCCL, which a vendor's file includes before. */

#ifndef GPU_COLLECTIVES_HEADER_H
#define GPU_COLLECTIVES_HEADER_H

#include <gpu/host/collectives_library.h>

#define SAME(here, there)                                   \
    _Static_assert((long long)(here) == (long long)(there), \
                   #there " has another value in " GPU_CCL_TITLE)

SAME(GPU_CCL_SUCCESS, ncclSuccess);
SAME(GPU_CCL_SYSTEM_ERROR, ncclSystemError);
SAME(GPU_CCL_INTERNAL_ERROR, ncclInternalError);
SAME(GPU_CCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(GPU_CCL_INVALID_USAGE, ncclInvalidUsage);
SAME(GPU_CCL_SUM, ncclSum);
SAME(GPU_CCL_PROD, ncclProd);
SAME(GPU_CCL_MAX, ncclMax);
SAME(GPU_CCL_MIN, ncclMin);
SAME(GPU_CCL_AVG, ncclAvg);
SAME(GPU_CCL_INT8, ncclInt8);
SAME(GPU_CCL_UINT8, ncclUint8);
SAME(GPU_CCL_INT32, ncclInt32);
SAME(GPU_CCL_INT64, ncclInt64);
SAME(GPU_CCL_FLOAT16, ncclFloat16);
SAME(GPU_CCL_FLOAT32, ncclFloat32);
SAME(GPU_CCL_FLOAT64, ncclFloat64);
SAME(GPU_CCL_BFLOAT16, ncclBfloat16);
SAME(GPU_CCL_ID_SIZE, sizeof(ncclUniqueId));
#if NCCL_VERSION_CODE >= 21400
SAME(GPU_CCL_REMOTE_ERROR, ncclRemoteError);
SAME(GPU_CCL_IN_PROGRESS, ncclInProgress);
SAME(offsetof(gpu_ccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(gpu_ccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(gpu_ccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(gpu_ccl_config, blocking), offsetof(ncclConfig_t, blocking));
#endif
#undef SAME

#endif
