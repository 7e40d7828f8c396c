/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The reference of a call: shapes from the meta device, values from the oracle
 * or else from the CPU backend in f64. */

#include "element_value.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

core_status reference_shapes(const sample_call *call, reference *out)
{
    core_device *meta = NULL;
    prepared on;
    core_status status = core_device_find("meta", &meta);

    memset(out, 0, sizeof *out);
    memset(&on, 0, sizeof on);
    if (status == CORE_OK)
        status =
            sample_call_prepare(call, meta, call->dtype, ARRANGED_ROWS, &on);
    if (status == CORE_OK)
        status = sample_call_run(call, &on);
    for (uint32_t i = 0;
         status == CORE_OK && i < on.nflat && i < (uint32_t)SAMPLE_TENSORS;
         i++) {
        core_tensor *result = on.flat[i];

        out->dtypes[i] = core_tensor_dtype(result);
        out->ndim[i] = core_tensor_ndim(result);
        out->numel[i] = core_tensor_numel(result);
        if (out->ndim[i] > 8)
            status = CORE_ERROR_UNSUPPORTED;
        else
            memcpy(out->sizes[i], core_tensor_sizes(result),
                   out->ndim[i] * sizeof(int64_t));
        out->nresults = i + 1;
    }
    sample_call_done(&on);
    return status;
}

/* The contents of a tensor as doubles. */
static core_status numbers_of(core_tensor *tensor, double **out)
{
    core_dtype dtype = core_tensor_dtype(tensor);
    size_t size = core_dtype_size(dtype);
    size_t numel = (size_t)core_tensor_numel(tensor);
    char *bytes = malloc(numel * size + 1);
    double *values = malloc((numel + 1) * sizeof *values);
    core_status status =
        bytes && values ? core_tensor_read(tensor, bytes, numel * size)
                        : core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");

    for (size_t i = 0; status == CORE_OK && i < numel; i++)
        values[i] = element_load(dtype, bytes + i * size);
    free(bytes);
    if (status != CORE_OK) {
        free(values);
        values = NULL;
    }
    *out = values;
    return status;
}

/* The results of the call on a device, with operands of dtype `as`. */
static core_status values_on(const sample_call *call, core_device *device,
                             core_dtype as, reference *out)
{
    prepared on;
    core_status status =
        sample_call_prepare(call, device, as, ARRANGED_ROWS, &on);

    if (status == CORE_OK)
        status = sample_call_run(call, &on);
    /* A data-dependent shape is known only now. */
    for (uint32_t i = 0;
         status == CORE_OK && i < on.nflat && i < (uint32_t)SAMPLE_TENSORS;
         i++) {
        core_dtype dtype = core_tensor_dtype(on.flat[i]);

        free(out->values[i]);
        out->values[i] = NULL;
        status = numbers_of(on.flat[i], &out->values[i]);
        if (i >= out->nresults) {
            out->nresults = i + 1;
            out->dtypes[i] =
                dtype == CORE_F64 && as == CORE_F64 ? call->dtype : dtype;
        }
        out->ndim[i] = core_tensor_ndim(on.flat[i]);
        out->numel[i] = core_tensor_numel(on.flat[i]);
        memcpy(out->sizes[i], core_tensor_sizes(on.flat[i]),
               (out->ndim[i] < 8 ? out->ndim[i] : 8) * sizeof(int64_t));
    }
    sample_call_done(&on);
    return status;
}

static core_status peer_values(const sample_call *call, const suite *of,
                               reference *out)
{
    bool random = oracle_random(core_op_name(call->op));
    core_dtype as =
        core_dtype_is_floating(call->dtype) && !random ? CORE_F64 : call->dtype;

    return values_on(call, of->host, as, out);
}

/* Stores the largest magnitude among operands and results. */
static void note_scale(const sample_call *call, reference *out)
{
    for (uint32_t k = 0; k < call->noperands; k++)
        for (int64_t i = 0; i < call->operands[k].numel; i++) {
            double size = fabs(call->operands[k].values[i]);

            if (isfinite(size) && size > out->scale)
                out->scale = size;
        }
    for (uint32_t r = 0; r < out->nresults; r++)
        for (int64_t i = 0; i < out->numel[r]; i++) {
            double size = fabs(out->values[r][i]);

            if (core_dtype_is_floating(out->dtypes[r]) && isfinite(size) &&
                size > out->scale)
                out->scale = size;
        }
}

core_status reference_values(const sample_call *call, const suite *of,
                             reference *inout)
{
    const char *op = core_op_name(call->op);
    core_status status = CORE_OK;

    for (uint32_t r = 0; r < inout->nresults; r++) {
        inout->values[r] = calloc((size_t)inout->numel[r] + 1, sizeof(double));
        if (!inout->values[r])
            return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    }
    inout->own = oracle_values(call, inout);
    if (!inout->own) {
        status = peer_values(call, of, inout);
        inout->exact = oracle_moves(op) ||
                       (oracle_random(op) && strcmp(op, "normal_") != 0);
    }
    if (status == CORE_OK)
        note_scale(call, inout);
    return status;
}

core_status reference_observe(const sample_call *call, core_device *device,
                              reference *out)
{
    memset(out, 0, sizeof *out);
    CORE_TRY(values_on(call, device, call->dtype, out));
    note_scale(call, out);
    return CORE_OK;
}

void reference_free(reference *self)
{
    for (int i = 0; i < SAMPLE_TENSORS; i++)
        free(self->values[i]);
    memset(self, 0, sizeof *self);
}
