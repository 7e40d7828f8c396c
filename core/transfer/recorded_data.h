/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recorded_data.h: the data of core_tensor_from_data while a program is
 * recorded. */

#ifndef CORE_TRANSFER_RECORDED_DATA_H
#define CORE_TRANSFER_RECORDED_DATA_H

#include "tensor/tensor.h"

/* A tensor that the program alone will have, and its content: `recorded_data`
 * of the thread. */
typedef struct core__recorded_data {
    const core_tensor *tensor;
    const void *data;
    size_t size;
} core__recorded_data;

#endif
