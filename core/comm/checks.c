/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks of the arguments of collectives. */

#include "comm/collective.h"

#include "dispatch/inference.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/storage_check.h"

#include <libcore/autograd.h>

core_status core__comm_check_tensor(const core_comm *comm, const char *name,
                                    const core_tensor *tensor)
{
    if (!tensor)
        return core__error_null(name, "tensor");
    if (core__tensor_is_batched(tensor))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: a collective cannot be used inside of "
                           "core_vmap",
                           name);
    if (tensor->device != comm->device)
        return core__error(CORE_ERROR_DEVICE,
                           "%s: the tensor is on \"%s\", and the communicator "
                           "is for \"%s\"",
                           name, tensor->device->name, comm->device->name);
    if (!(tensor->flags & CORE__TENSOR_CONTIGUOUS))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the tensor is not contiguous; core_contiguous "
                           "makes a copy that is",
                           name);
    CORE_TRY(core__tensor_check_untraced(name, tensor));
    return core__storage_check(tensor->storage);
}

core_status core__comm_check_changed(const core_comm *comm, const char *name,
                                     const core_tensor *tensor)
{
    CORE_TRY(core__comm_check_tensor(comm, name, tensor));
    if (tensor->flags & CORE__TENSOR_READ_ONLY)
        return core__error(CORE_ERROR_REFUSED,
                           "%s: the tensor's memory was imported as read-only "
                           "and cannot be changed",
                           name);
    if (core__tensor_requires_grad(tensor) && core_grad_mode())
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: the tensor requires grad, and its change is "
                           "not recorded; turn grad mode off",
                           name);
    return CORE_OK;
}

core_status core__comm_check_reduction(const core_comm *comm, const char *name,
                                       core_dtype dtype, uint32_t reduction)
{
    const core_collectives_interface *table = &comm->engine->table;

    if (reduction < CORE_REDUCE_SUM || reduction > CORE_REDUCE_AVG)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the reduction is %u; accepted: CORE_REDUCE_SUM "
                           "to CORE_REDUCE_AVG (1 to 5)",
                           name, reduction);
    if (reduction == CORE_REDUCE_AVG && !core__dtype_is_floating(dtype))
        return core__error(CORE_ERROR_DTYPE,
                           "%s: the tensor is %s; an average needs f64, f32, "
                           "f16 or bf16",
                           name, core__dtype_name(dtype));
    if (!(table->dtypes & CORE_DTYPE_MASK(dtype)) ||
        !(table->reductions & CORE_REDUCE_MASK(reduction)))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the engine \"%s\" cannot reduce %s with "
                           "reduction %u",
                           name, comm->engine->name, core__dtype_name(dtype),
                           reduction);
    return CORE_OK;
}

core_status core__comm_check_rank(const core_comm *comm, const char *name,
                                  uint32_t rank, bool other)
{
    if (rank < comm->size && !(other && rank == comm->rank))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: rank %u; accepted: 0 to %u%s", name, rank,
                       comm->size - 1, other ? ", except this rank" : "");
}

core_status core__comm_check_parts(const core_comm *comm, const char *name,
                                   const core_tensor *input)
{
    char text[200];

    if (input->ndim > 0 && input->sizes[0] % comm->size == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_SHAPE,
        "%s: input has sizes %s; dimension 0 must be a multiple "
        "of the number of ranks, %u",
        name, core__sizes_text(input->ndim, input->sizes, text, sizeof text),
        comm->size);
}

core_status core__comm_check_kind(const core_comm *comm, const char *name,
                                  uint32_t kind)
{
    if (kind <= CORE_COLLECTIVE_BARRIER ||
        comm->engine->table.kinds & CORE_COLLECTIVE_MASK(kind))
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: the engine \"%s\" does not have this collective",
                       name, comm->engine->name);
}

/* The sum of as many numbers as there are ranks. */
static core_status add_rows(const core_comm *comm, const char *name,
                            const char *what, const int64_t *rows,
                            int64_t *out_sum)
{
    *out_sum = 0;
    for (uint32_t r = 0; r < comm->size; r++)
        if (rows[r] < 0 || __builtin_add_overflow(*out_sum, rows[r], out_sum))
            return core__error(CORE_ERROR_SHAPE,
                               "%s: %s[%u] is %lld; accepted: 0 and above, "
                               "with a sum that fits int64",
                               name, what, r, (long long)rows[r]);
    return CORE_OK;
}

core_status core__comm_check_rows(const core__collective *c, const char *name,
                                  const core_tensor *input)
{
    int64_t sent, received;
    char text[200];

    if (!c->send_rows || !c->receive_rows)
        return core__error_null(name,
                                c->send_rows ? "receive_rows" : "send_rows");
    CORE_TRY(add_rows(c->comm, name, "send_rows", c->send_rows, &sent));
    CORE_TRY(
        add_rows(c->comm, name, "receive_rows", c->receive_rows, &received));
    if (input->ndim > 0 && input->sizes[0] == sent)
        return CORE_OK;
    return core__error(
        CORE_ERROR_SHAPE,
        "%s: input has sizes %s; dimension 0 must be the sum of send_rows, "
        "%lld",
        name, core__sizes_text(input->ndim, input->sizes, text, sizeof text),
        (long long)sent);
}
