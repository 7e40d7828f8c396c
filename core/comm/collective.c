/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The collectives of comm.h that return a tensor, and their gradients. */

#include "comm/collective.h"

#include "base/memory.h"

#include <libcore/autograd.h>
#include <libcore/function.h>
#include <libcore/ops.h>

#include <string.h>

/* ------------------------------------------------------ without history -- */

static bool reduces(uint32_t kind)
{
    return kind == CORE_COLLECTIVE_ALL_REDUCE ||
           kind == CORE_COLLECTIVE_REDUCE_SCATTER ||
           kind == CORE_COLLECTIVE_REDUCE;
}

static core_status new_result(const core__collective *c,
                              const core_tensor *input, core_tensor **out)
{
    uint32_t ndim = input->ndim;
    int64_t sizes[CORE_MAX_NDIM] = {1};

    memcpy(sizes, input->sizes, ndim * sizeof *sizes);
    if (c->kind == CORE_COLLECTIVE_ALL_GATHER) {
        if (__builtin_mul_overflow(sizes[0], (int64_t)c->comm->size, &sizes[0]))
            return core__error(CORE_ERROR_SHAPE,
                               "%s: the result would have too many elements",
                               core__collective_name(c->kind));
        ndim += ndim == 0;
    }
    if (c->kind == CORE_COLLECTIVE_REDUCE_SCATTER)
        sizes[0] /= c->comm->size;
    if (c->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS) {
        sizes[0] = 0;
        for (uint32_t r = 0; r < c->comm->size; r++)
            sizes[0] += c->receive_rows[r];
    }
    return core__tensor_new(c->comm->device, input->dtype, ndim, sizes, NULL,
                            out);
}

/* The elements of a part; see core_collective. */
static uint64_t count_of(const core__collective *c, const core_tensor *input,
                         const core_tensor *output)
{
    const core_tensor *part = output ? output : input;
    uint64_t row = 1;

    if (!part)
        return 0;
    if (c->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS) {
        for (uint32_t i = 1; i < input->ndim; i++)
            row *= (uint64_t)input->sizes[i];
        return row;
    }
    if (input && input->numel < part->numel)
        part = input;
    return (uint64_t)part->numel /
           (c->kind == CORE_COLLECTIVE_ALL_TO_ALL ? c->comm->size : 1);
}

/* A collective that failed may still read the counts; one that was refused before
 * has left the communicator as it was. */
static void release_counts(core_comm *comm, uint64_t *counts)
{
    core__error_record error;
    bool failed;

    core__error_save(&error);
    failed = core_comm_error(comm) != CORE_OK;
    core__error_restore(&error);
    if (failed)
        core__comm_abandon(counts);
    else
        core__free(counts);
}

static core_status submit_rows(const core__collective *c, core_collective *call,
                               core_tensor *input, core_tensor *output)
{
    uint32_t size = c->comm->size;
    uint64_t *counts = core__alloc(2 * (size_t)size * sizeof *counts);
    core_status status;

    if (!counts)
        return core__error_memory(2 * (size_t)size * sizeof *counts);
    for (uint32_t r = 0; r < size; r++) {
        counts[r] = (uint64_t)c->send_rows[r] * call->count;
        counts[size + r] = (uint64_t)c->receive_rows[r] * call->count;
    }
    call->input_counts = counts;
    call->output_counts = counts + size;
    status = core__comm_submit(c->comm, call, input, output);
    if (status == CORE_OK)
        core__free(counts);
    else
        release_counts(c->comm, counts);
    return status;
}

core_status core__collective_submit(const core__collective *c,
                                    core_tensor *input, core_tensor *output)
{
    const core_tensor *part = output ? output : input;
    core_collective call = {.kind = c->kind,
                            .dtype = part ? part->dtype : CORE_DTYPE_NONE,
                            .reduction = c->reduction,
                            .peer = c->root,
                            .count = count_of(c, input, output)};

    if (c->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS)
        return submit_rows(c, &call, input, output);
    return core__comm_submit(c->comm, &call, input, output);
}

static core_status check(const core__collective *c, const core_tensor *input)
{
    const char *name = core__collective_name(c->kind);

    CORE_TRY(core__comm_check_tensor(c->comm, name, input));
    CORE_TRY(core__comm_check_kind(c->comm, name, c->kind));
    CORE_TRY(core__comm_check_rank(c->comm, name, c->root, false));
    if (c->reduction)
        CORE_TRY(core__comm_check_reduction(c->comm, name, input->dtype,
                                            c->reduction));
    if (c->kind == CORE_COLLECTIVE_REDUCE_SCATTER ||
        c->kind == CORE_COLLECTIVE_ALL_TO_ALL)
        return core__comm_check_parts(c->comm, name, input);
    if (c->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS)
        return core__comm_check_rows(c, name, input);
    return CORE_OK;
}

/* What the engine writes to: a broadcast is in place, and a reduction has a
 * result at its root alone. */
static core_status run(const core__collective *c, core_tensor *input,
                       core_tensor *result)
{
    bool root = c->root == c->comm->rank;

    if (c->kind == CORE_COLLECTIVE_BROADCAST) {
        if (root)
            CORE_TRY(core_copy_(result, input, false));
        return core__collective_submit(c, result, result);
    }
    if (c->kind == CORE_COLLECTIVE_REDUCE && !root) {
        CORE_TRY(core__collective_submit(c, input, NULL));
        return core_zero_(result);
    }
    return core__collective_submit(c, input, result);
}

/* In a call. */
static core_status compute(const core__collective *c, core_tensor *input,
                           core_tensor **out)
{
    bool grads;
    core_status status;

    CORE_TRY(check(c, input));
    if (c->at_once && c->comm->group)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: a group has begun on the communicator; it must "
                           "end before a backward that goes through its "
                           "collectives",
                           core__collective_name(c->kind));
    CORE_TRY(new_result(c, input, out));
    grads = core_grad_mode_set(false);
    status = run(c, input, *out);
    core_grad_mode_set(grads);
    if (status != CORE_OK) {
        core__tensor_release(*out);
        *out = NULL;
    }
    return status;
}

static core_status compute_in_call(const core__collective *c,
                                   core_tensor *input, core_tensor **out)
{
    core_status status;

    *out = NULL;
    CORE_TRY(core__comm_begin(c->comm, core__collective_name(c->kind)));
    status = compute(c, input, out);
    core__comm_end(c->comm);
    return status;
}

/* ----------------------------------------------------------- gradients -- */

static core_status call(const core__collective *c, core_tensor *input,
                        core_tensor **out);

static core_status forward(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t noutputs)
{
    (void)ninputs;
    (void)noutputs;
    return compute_in_call(context, inputs[0], outputs);
}

/* The collective that the gradient goes through.  The loss is the sum of all
 * ranks' losses, so the gradient of a sum is the sum of the gradients. */
static core__collective opposite(const core__collective *c)
{
    core__collective back = {.comm = c->comm,
                             .kind = c->kind,
                             .root = c->root,
                             .at_once = true,
                             .send_rows = c->receive_rows,
                             .receive_rows = c->send_rows};

    switch (c->kind) {
    case CORE_COLLECTIVE_ALL_REDUCE:
        back.reduction = c->reduction;
        break;
    case CORE_COLLECTIVE_ALL_GATHER:
        back.kind = CORE_COLLECTIVE_REDUCE_SCATTER;
        back.reduction = CORE_REDUCE_SUM;
        break;
    case CORE_COLLECTIVE_REDUCE_SCATTER:
        back.kind = CORE_COLLECTIVE_ALL_GATHER;
        break;
    case CORE_COLLECTIVE_REDUCE:
        back.kind = CORE_COLLECTIVE_BROADCAST;
        break;
    case CORE_COLLECTIVE_BROADCAST:
        back.kind = CORE_COLLECTIVE_REDUCE;
        back.reduction = CORE_REDUCE_SUM;
        break;
    default: /* all-to-all */
        break;
    }
    return back;
}

static core_status gradient(const core__collective *c, core_tensor *grad,
                            core_tensor **out)
{
    core__collective back = opposite(c);
    core_tensor *given = NULL;
    core_status status;

    if (c->reduction != CORE_REDUCE_AVG || back.reduction)
        return call(&back, grad, out);
    status = call(&back, grad, &given);
    if (status == CORE_OK)
        status = core_div_scalar(given, core_int(c->comm->size), out);
    core__tensor_release(given);
    return status;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const core__collective *c = context;
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
    core__collective *c = context;

    core_comm_release(c->comm);
    core__free(c);
}

/* A copy with the numbers of rows behind it. */
static core__collective *keep(const core__collective *c)
{
    size_t size = c->send_rows ? c->comm->size * sizeof *c->send_rows : 0;
    core__collective *kept = core__alloc(sizeof *kept + 2 * size);

    if (!kept) {
        core__error_memory(sizeof *kept + 2 * size);
        return NULL;
    }
    *kept = *c;
    core_comm_retain(kept->comm);
    if (size) {
        kept->send_rows = memcpy(kept + 1, c->send_rows, size);
        kept->receive_rows =
            memcpy((char *)(kept + 1) + size, c->receive_rows, size);
    }
    return kept;
}

static core_status record(const core__collective *c, core_tensor *input,
                          core_tensor **out)
{
    core_custom_function steps = {.struct_size = sizeof steps,
                                  .name = core__collective_name(c->kind),
                                  .forward = forward,
                                  .backward = backward,
                                  .release = release};

    if (c->reduction != CORE_REDUCE_SUM && c->reduction != CORE_REDUCE_AVG &&
        c->reduction != 0)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: the input requires grad; only CORE_REDUCE_SUM "
                           "and CORE_REDUCE_AVG have a gradient",
                           core__collective_name(c->kind));
    steps.context = keep(c);
    if (!steps.context)
        return CORE_ERROR_OUT_OF_MEMORY;
    return core_function_apply(&steps, &input, 1, out, 1);
}

static core_status call(const core__collective *c, core_tensor *input,
                        core_tensor **out)
{
    core__collective scalar = *c;

    if (!out)
        return core__error_null(core__collective_name(c->kind), "out_tensor");
    *out = NULL;
    if (!c->comm || !input)
        return core__error_null(core__collective_name(c->kind),
                                c->comm ? "input" : "comm");
    /* Below, 0 stands for collectives that reduce nothing. */
    if (!c->reduction && reduces(c->kind))
        return core__comm_check_reduction(c->comm,
                                          core__collective_name(c->kind),
                                          input->dtype, c->reduction);
    if (c->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS)
        CORE_TRY(
            core__comm_check_rows(c, core__collective_name(c->kind), input));
    if (!core__tensor_requires_grad(input) || !core_grad_mode())
        return compute_in_call(c, input, out);
    scalar.scalar = c->kind == CORE_COLLECTIVE_ALL_GATHER && input->ndim == 0;
    return record(&scalar, input, out);
}

/* -------------------------------------------------------------- public -- */

core_status core_all_reduce(core_comm *comm, core_tensor *input,
                            uint32_t reduction, core_tensor **out_tensor)
{
    core__collective c = {.comm = comm,
                          .kind = CORE_COLLECTIVE_ALL_REDUCE,
                          .reduction = reduction};

    return call(&c, input, out_tensor);
}

core_status core_reduce(core_comm *comm, core_tensor *input, uint32_t reduction,
                        uint32_t root, core_tensor **out_tensor)
{
    core__collective c = {.comm = comm,
                          .kind = CORE_COLLECTIVE_REDUCE,
                          .reduction = reduction,
                          .root = root};

    return call(&c, input, out_tensor);
}

core_status core_all_gather(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor)
{
    core__collective c = {.comm = comm, .kind = CORE_COLLECTIVE_ALL_GATHER};

    return call(&c, input, out_tensor);
}

core_status core_reduce_scatter(core_comm *comm, core_tensor *input,
                                uint32_t reduction, core_tensor **out_tensor)
{
    core__collective c = {.comm = comm,
                          .kind = CORE_COLLECTIVE_REDUCE_SCATTER,
                          .reduction = reduction};

    return call(&c, input, out_tensor);
}

core_status core_all_to_all(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor)
{
    core__collective c = {.comm = comm, .kind = CORE_COLLECTIVE_ALL_TO_ALL};

    return call(&c, input, out_tensor);
}

core_status core_all_to_all_rows(core_comm *comm, core_tensor *input,
                                 const int64_t *send_rows,
                                 const int64_t *receive_rows,
                                 core_tensor **out_tensor)
{
    core__collective c = {.comm = comm,
                          .kind = CORE_COLLECTIVE_ALL_TO_ALL_COUNTS,
                          .send_rows = send_rows,
                          .receive_rows = receive_rows};

    return call(&c, input, out_tensor);
}
