/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The collectives of comm.h: checks of their arguments, results, gradients. */

#include "comm/comm.h"

#include "base/memory.h"
#include "dispatch/inference.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/storage_check.h"

#include <libcore/autograd.h>
#include <libcore/function.h>
#include <libcore/ops.h>

#include <string.h>

/* -------------------------------------------------------------- checks -- */

static core_status check_tensor(const core_comm *comm, const char *name,
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

/* The tensor is changed. */
static core_status check_changed(const core_comm *comm, const char *name,
                                 const core_tensor *tensor)
{
    CORE_TRY(check_tensor(comm, name, tensor));
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

static core_status check_reduction(const core_comm *comm, const char *name,
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

static core_status check_rank(const core_comm *comm, const char *name,
                              uint32_t rank, bool other)
{
    if (rank < comm->size && !(other && rank == comm->rank))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: rank %u; accepted: 0 to %u%s", name, rank,
                       comm->size - 1, other ? ", except this rank" : "");
}

static core_status check_parts(const core_comm *comm, const char *name,
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

/* ------------------------------------------------------ without history -- */

static const char *const names[] = {
    [CORE_COLLECTIVE_ALL_REDUCE] = "core_all_reduce",
    [CORE_COLLECTIVE_ALL_GATHER] = "core_all_gather",
    [CORE_COLLECTIVE_REDUCE_SCATTER] = "core_reduce_scatter",
    [CORE_COLLECTIVE_ALL_TO_ALL] = "core_all_to_all",
};

/* A collective with a result, as its gradient needs it. */
typedef struct collective {
    core_comm *comm;
    uint32_t kind;
    uint32_t reduction;
    bool scalar; /* the input has no dimensions, and the result has one */
} collective;

static core_status new_result(const collective *c, const core_tensor *input,
                              core_tensor **out)
{
    uint32_t ndim = input->ndim;
    int64_t sizes[CORE_MAX_NDIM] = {1};

    memcpy(sizes, input->sizes, ndim * sizeof *sizes);
    if (c->kind == CORE_COLLECTIVE_ALL_GATHER) {
        if (__builtin_mul_overflow(sizes[0], (int64_t)c->comm->size, &sizes[0]))
            return core__error(CORE_ERROR_SHAPE,
                               "%s: the result would have too many elements",
                               names[c->kind]);
        ndim += ndim == 0;
    }
    if (c->kind == CORE_COLLECTIVE_REDUCE_SCATTER)
        sizes[0] /= c->comm->size;
    return core__tensor_new(c->comm->device, input->dtype, ndim, sizes, NULL,
                            out);
}

static core_status submit(const collective *c, core_tensor *input,
                          core_tensor *output, uint32_t peer)
{
    core_tensor *part = output ? output : input;
    core_collective call = {.kind = c->kind,
                            .dtype = part ? part->dtype : CORE_DTYPE_NONE,
                            .reduction = c->reduction,
                            .peer = peer};

    if (input && input->numel < part->numel)
        part = input;
    if (part)
        call.count = (uint64_t)part->numel;
    if (c->kind == CORE_COLLECTIVE_ALL_TO_ALL)
        call.count /= c->comm->size;
    return core__comm_submit(c->comm, &call, input, output);
}

/* In a call. */
static core_status compute(const collective *c, core_tensor *input,
                           core_tensor **out)
{
    const char *name = names[c->kind];
    core_status status;

    CORE_TRY(check_tensor(c->comm, name, input));
    if (c->reduction)
        CORE_TRY(check_reduction(c->comm, name, input->dtype, c->reduction));
    if (c->kind == CORE_COLLECTIVE_REDUCE_SCATTER ||
        c->kind == CORE_COLLECTIVE_ALL_TO_ALL)
        CORE_TRY(check_parts(c->comm, name, input));
    CORE_TRY(new_result(c, input, out));
    status = submit(c, input, *out, 0);
    if (status != CORE_OK) {
        core__tensor_release(*out);
        *out = NULL;
    }
    return status;
}

static core_status compute_in_call(const collective *c, core_tensor *input,
                                   core_tensor **out)
{
    core_status status;

    *out = NULL;
    CORE_TRY(core__comm_begin(c->comm, names[c->kind]));
    status = compute(c, input, out);
    core__comm_end(c->comm);
    return status;
}

/* ----------------------------------------------------------- gradients -- */

static core_status call(core_comm *comm, uint32_t kind, uint32_t reduction,
                        core_tensor *input, core_tensor **out);

static core_status forward(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t noutputs)
{
    (void)ninputs;
    (void)noutputs;
    return compute_in_call(context, inputs[0], outputs);
}

/* The loss is the sum of all ranks' losses, so the gradient of a sum is the
 * sum of the gradients. */
static core_status gradient(const collective *c, core_tensor *grad,
                            core_tensor **out)
{
    core_tensor *parts = NULL;
    core_status status;

    switch (c->kind) {
    case CORE_COLLECTIVE_ALL_REDUCE:
    case CORE_COLLECTIVE_ALL_TO_ALL:
        return call(c->comm, c->kind, c->reduction, grad, out);
    case CORE_COLLECTIVE_ALL_GATHER:
        return call(c->comm, CORE_COLLECTIVE_REDUCE_SCATTER, CORE_REDUCE_SUM,
                    grad, out);
    default:
        status = call(c->comm, CORE_COLLECTIVE_ALL_GATHER, 0, grad, &parts);
        if (status == CORE_OK && c->reduction == CORE_REDUCE_AVG)
            status = core_div_scalar(parts, core_int(c->comm->size), out);
        else if (status == CORE_OK)
            *out = core_tensor_retain(parts);
        core__tensor_release(parts);
        return status;
    }
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const collective *c = context;
    core_tensor *grad = NULL, *given = NULL;
    core_status status;

    (void)node;
    (void)ngrads;
    (void)ngradients;
    status = core_contiguous(grads[0], CORE_FORMAT_CONTIGUOUS, &grad);
    if (status == CORE_OK)
        status = gradient(c, grad, c->scalar ? &given : &gradients[0]);
    if (status == CORE_OK && c->scalar)
        status = core_reshape(given, NULL, 0, &gradients[0]);
    core__tensor_release(given);
    core__tensor_release(grad);
    return status;
}

static void release(void *context)
{
    collective *c = context;

    core_comm_release(c->comm);
    core__free(c);
}

static core_status record(const collective *c, core_tensor *input,
                          core_tensor **out)
{
    collective *kept;
    core_custom_function steps = {.struct_size = sizeof steps,
                                  .name = names[c->kind],
                                  .forward = forward,
                                  .backward = backward,
                                  .release = release};

    if (c->reduction != CORE_REDUCE_SUM && c->reduction != CORE_REDUCE_AVG &&
        c->reduction != 0)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: the input requires grad; only CORE_REDUCE_SUM "
                           "and CORE_REDUCE_AVG have a gradient",
                           names[c->kind]);
    kept = core__alloc(sizeof *kept);
    if (!kept)
        return core__error_memory(sizeof *kept);
    *kept = *c;
    core_comm_retain(kept->comm);
    steps.context = kept;
    return core_function_apply(&steps, &input, 1, out, 1);
}

static core_status call(core_comm *comm, uint32_t kind, uint32_t reduction,
                        core_tensor *input, core_tensor **out)
{
    collective c = {comm, kind, reduction, false};

    if (!out)
        return core__error_null(names[kind], "out_tensor");
    *out = NULL;
    if (!comm || !input)
        return core__error_null(names[kind], comm ? "input" : "comm");
    /* Below, 0 stands for collectives that reduce nothing. */
    if (!reduction && (kind == CORE_COLLECTIVE_ALL_REDUCE ||
                       kind == CORE_COLLECTIVE_REDUCE_SCATTER))
        return check_reduction(comm, names[kind], input->dtype, reduction);
    if (core__tensor_requires_grad(input) && core_grad_mode()) {
        c.scalar = kind == CORE_COLLECTIVE_ALL_GATHER && input->ndim == 0;
        return record(&c, input, out);
    }
    return compute_in_call(&c, input, out);
}

/* -------------------------------------------------------------- public -- */

core_status core_all_reduce(core_comm *comm, core_tensor *input,
                            uint32_t reduction, core_tensor **out_tensor)
{
    return call(comm, CORE_COLLECTIVE_ALL_REDUCE, reduction, input, out_tensor);
}

core_status core_all_gather(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor)
{
    return call(comm, CORE_COLLECTIVE_ALL_GATHER, 0, input, out_tensor);
}

core_status core_reduce_scatter(core_comm *comm, core_tensor *input,
                                uint32_t reduction, core_tensor **out_tensor)
{
    return call(comm, CORE_COLLECTIVE_REDUCE_SCATTER, reduction, input,
                out_tensor);
}

core_status core_all_to_all(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor)
{
    return call(comm, CORE_COLLECTIVE_ALL_TO_ALL, 0, input, out_tensor);
}

core_status core_all_reduce_(core_comm *comm, core_tensor *tensor,
                             uint32_t reduction)
{
    collective c = {comm, CORE_COLLECTIVE_ALL_REDUCE, reduction, false};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = check_changed(comm, __func__, tensor);
    if (status == CORE_OK)
        status = check_reduction(comm, __func__, tensor->dtype, reduction);
    if (status == CORE_OK) {
        core__tensor_bump_version(tensor);
        status = submit(&c, tensor, tensor, 0);
    }
    core__comm_end(comm);
    return status;
}

core_status core_broadcast(core_comm *comm, core_tensor *tensor, uint32_t root)
{
    collective c = {comm, CORE_COLLECTIVE_BROADCAST, 0, false};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = check_rank(comm, __func__, root, false);
    if (status == CORE_OK)
        status = check_changed(comm, __func__, tensor);
    if (status == CORE_OK) {
        core__tensor_bump_version(tensor);
        status = submit(&c, tensor, tensor, root);
    }
    core__comm_end(comm);
    return status;
}

core_status core_send(core_comm *comm, core_tensor *tensor, uint32_t to)
{
    collective c = {comm, CORE_COLLECTIVE_SEND, 0, false};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = check_rank(comm, __func__, to, true);
    if (status == CORE_OK)
        status = check_tensor(comm, __func__, tensor);
    if (status == CORE_OK)
        status = submit(&c, tensor, NULL, to);
    core__comm_end(comm);
    return status;
}

core_status core_recv(core_comm *comm, core_tensor *tensor, uint32_t from)
{
    collective c = {comm, CORE_COLLECTIVE_RECV, 0, false};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = check_rank(comm, __func__, from, true);
    if (status == CORE_OK)
        status = check_changed(comm, __func__, tensor);
    if (status == CORE_OK) {
        core__tensor_bump_version(tensor);
        status = submit(&c, NULL, tensor, from);
    }
    core__comm_end(comm);
    return status;
}

core_status core_barrier(core_comm *comm)
{
    collective c = {comm, CORE_COLLECTIVE_BARRIER, 0, false};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = submit(&c, NULL, NULL, 0);
    core__comm_end(comm);
    return status;
}
