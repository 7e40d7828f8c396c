/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The source whose samples are rows of tensors. */

#include "data/loader.h"

#include "base/error.h"
#include "base/memory.h"

#include <libcore/ops.h>

typedef struct rows {
    size_t count;
    core_tensor *tensors[CORE_DATA_TENSORS];
} rows;

static void release(void *context)
{
    rows *r = context;

    for (size_t i = 0; i < r->count; i++)
        core_tensor_release(r->tensors[i]);
    core__free(r);
}

static core_status read_rows(void *context, const int64_t *samples,
                             size_t count, core_tensor **outputs,
                             size_t *noutputs)
{
    const rows *r = context;
    const int64_t size = (int64_t)count;
    core_status status = CORE_OK;

    *noutputs = r->count;
    for (size_t i = 0; status == CORE_OK && i < r->count; i++) {
        core_tensor *at = NULL;

        status = core_tensor_from_data(samples, CORE_I64, &size, 1,
                                       core_tensor_device(r->tensors[i]), &at);
        if (status == CORE_OK)
            status = core_index_select(r->tensors[i], 0, at, &outputs[i]);
        core_tensor_release(at);
    }
    return status;
}

static core_status check(core_tensor *const *tensors, size_t count)
{
    if (count == 0 || count > CORE_DATA_TENSORS)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_data_source_tensors: there are %zu tensors; "
                           "there may be 1 to %d",
                           count, (int)CORE_DATA_TENSORS);
    for (size_t i = 0; i < count; i++) {
        if (!tensors[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_data_source_tensors: tensors[%zu] is "
                               "NULL",
                               i);
        if (core_tensor_ndim(tensors[i]) == 0 ||
            core_tensor_size(tensors[i], 0) == 0 ||
            core_tensor_size(tensors[i], 0) != core_tensor_size(tensors[0], 0))
            return core__error(CORE_ERROR_SHAPE,
                               "core_data_source_tensors: tensors[%zu] does "
                               "not have as many rows as tensors[0], or has "
                               "none",
                               i);
    }
    return CORE_OK;
}

core_status core_data_source_tensors(core_tensor *const *tensors, size_t count,
                                     core_data_source *out_source)
{
    rows *r;

    CORE__NOT_NULL(tensors);
    CORE__NOT_NULL(out_source);
    *out_source = (core_data_source){.struct_size = sizeof *out_source};
    CORE_TRY(check(tensors, count));
    for (size_t i = 0; i < count; i++)
        CORE_TRY(core__data_finish(core_tensor_device(tensors[i])));
    r = core__alloc_zero(sizeof *r);
    if (!r)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "core_data_source_tensors: no memory");
    r->count = count;
    for (size_t i = 0; i < count; i++)
        r->tensors[i] = core_tensor_retain(tensors[i]);
    out_source->count = core_tensor_size(tensors[0], 0);
    out_source->read = read_rows;
    out_source->context = r;
    out_source->release = release;
    return CORE_OK;
}
