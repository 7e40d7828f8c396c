/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "tensor_parallel.h"

#include "layers.h"

#include <libcore/function.h>

/* --------------------------------------------------------------- groups -- */

core_status train_tensor_connect(trainer *t)
{
    uint32_t wanted = (uint32_t)t->options.tensor_parallel;
    core_comm *all = t->comm, *same_part = NULL;

    if (wanted <= 1)
        return CORE_OK;
    if (t->ranks % wanted != 0)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--tensor-parallel %u requires a multiple of %u "
                           "ranks; there are %u",
                           wanted, wanted, t->ranks);
    CORE_TRY(core_comm_split(all, t->rank / wanted, t->rank, &t->tensor));
    CORE_TRY(core_comm_split(all, t->rank % wanted, t->rank, &same_part));
    core_comm_release(all);
    t->comm = same_part;
    t->rank = core_comm_rank(same_part);
    t->ranks = core_comm_size(same_part);
    return CORE_OK;
}

/* --------------------------------------------------------------- layers -- */

static core_status same(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)noutputs;
    outputs[0] = core_tensor_retain(inputs[0]);
    return CORE_OK;
}

static core_status sum(core_comm *comm, core_tensor *part, core_tensor **out)
{
    core_tensor *contiguous;
    core_status status;

    CORE_TRY(core_contiguous(part, CORE_FORMAT_CONTIGUOUS, &contiguous));
    status = core_all_reduce(comm, contiguous, CORE_REDUCE_SUM, out);
    core_tensor_release(contiguous);
    return status;
}

static core_status forward_sum(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t noutputs)
{
    (void)ninputs;
    (void)noutputs;
    return sum(context, inputs[0], outputs);
}

static core_status backward_same(core_node *node, void *context,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **gradients, size_t ngradients)
{
    (void)node;
    return same(context, grads, ngrads, gradients, ngradients);
}

static core_status backward_sum(core_node *node, void *context,
                                core_tensor *const *grads, size_t ngrads,
                                core_tensor **gradients, size_t ngradients)
{
    (void)node;
    return forward_sum(context, grads, ngrads, gradients, ngradients);
}

static void release(void *context)
{
    core_comm_release(context);
}

static core_tensor *apply(const train_model *model, core_custom_function steps,
                          core_tensor *x)
{
    core_tensor *y = NULL;

    if (!x)
        return NULL;
    steps.struct_size = sizeof steps;
    steps.context = core_comm_retain(model->group);
    steps.release = release;
    return core_scope_own(core_function_apply(&steps, &x, 1, &y, 1), &y);
}

core_tensor *train_tensor_enter(const train_model *model, core_tensor *x)
{
    const core_custom_function steps = {
        .name = "tensor_enter", .forward = same, .backward = backward_sum};

    return model->group ? apply(model, steps, x) : x;
}

core_tensor *train_tensor_leave(const train_model *model, core_module *layer,
                                core_tensor *x)
{
    const core_custom_function steps = {.name = "tensor_leave",
                                        .forward = forward_sum,
                                        .backward = backward_same};
    core_tensor *terms;

    if (!model->group)
        return train_linear(model, layer, x);
    terms = core_x_linear(x, core_module_tensor(layer, "weight"));
    return core_x_add(apply(model, steps, terms),
                      core_module_tensor(layer, "bias"));
}

train_tensor_random train_tensor_random_begin(const train_model *model)
{
    train_tensor_random before = {0};
    uint64_t offset, other;

    if (!model->group)
        return before;
    core_generator_state(NULL, &before.seed, &offset);
    other = core_comm_rank(model->group) * UINT64_C(0xd1342543de82ef95);
    core_generator_set_state(NULL, before.seed + other, offset);
    return before;
}

void train_tensor_random_restore(const train_model *model,
                                 train_tensor_random before)
{
    uint64_t seed, offset;

    if (!model->group)
        return;
    core_generator_state(NULL, &seed, &offset);
    core_generator_set_state(NULL, before.seed, offset);
}

/* ---------------------------------------------------------------- parts -- */

/* A whole tensor is [rows, ranks, columns], of which a rank has [rows,
 * columns]. */
typedef struct part {
    int64_t rows, ranks, columns;
    int8_t dim; /* that is divided */
} part;

/* ranks 1: not divided. */
static part part_of(const train_model *model, size_t parameter)
{
    core_tensor *tensor = model->parameters[parameter];
    train_cut cut = {0, 0};
    part p = {1, 1, core_tensor_numel(tensor), 0};

    if (model->group)
        cut = model->kind->cut(model, parameter);
    if (cut.blocks == 0)
        return p;
    p.dim = cut.dim;
    p.ranks = core_comm_size(model->group);
    p.rows = cut.dim == 0 ? cut.blocks : core_tensor_sizes(tensor)[0];
    p.columns /= p.rows;
    return p;
}

int64_t train_tensor_element(const train_model *model, size_t parameter,
                             int64_t element)
{
    part p = part_of(model, parameter);
    int64_t row = element / p.columns, rank = 0;

    if (p.ranks > 1)
        rank = core_comm_rank(model->group);
    return (row * p.ranks + rank) * p.columns + element % p.columns;
}

int64_t train_tensor_numel(const train_model *model, size_t parameter)
{
    return core_tensor_numel(model->parameters[parameter]) *
           part_of(model, parameter).ranks;
}

/* The sizes of the whole tensor; returns how many. */
static size_t whole_sizes(const train_model *model, size_t parameter, part p,
                          int64_t sizes[2])
{
    core_tensor *tensor = model->parameters[parameter];
    size_t ndim = core_tensor_ndim(tensor);

    for (size_t i = 0; i < ndim; i++)
        sizes[i] = core_tensor_sizes(tensor)[i];
    sizes[p.dim] *= p.ranks;
    return ndim;
}

/* [ranks, rows, columns] becomes [rows, ranks, columns]. */
static core_status join(core_tensor *gathered, part p, core_sizes sizes,
                        core_tensor **out_whole)
{
    core_scope scope = core_scope_begin();
    core_device *host = NULL;
    core_tensor *x;

    CORE_CHECK(core_device_find("cpu", &host));
    x = core_x_to(gathered, CORE_DTYPE_NONE, host);
    x = core_x_reshape(x, CORE_SIZES(p.ranks, p.rows, p.columns));
    x = core_x_permute(x, CORE_SIZES(1, 0, 2));
    return core_scope_end_with(scope, core_x_reshape(x, sizes), out_whole);
}

core_status train_tensor_join(const train_model *model, size_t parameter,
                              core_tensor *tensor, core_tensor **out_whole)
{
    part p = part_of(model, parameter);
    bool grads = core_grad_mode_set(false);
    core_tensor *gathered = NULL;
    core_status status = CORE_OK;
    int64_t sizes[2];
    size_t ndim;

    *out_whole = NULL;
    if (p.ranks == 1) {
        *out_whole = core_tensor_retain(tensor);
    } else {
        ndim = whole_sizes(model, parameter, p, sizes);
        status = core_all_gather(model->group, tensor, &gathered);
        if (status == CORE_OK)
            status = join(gathered, p, core_sizes_from(sizes, ndim), out_whole);
    }
    core_tensor_release(gathered);
    core_grad_mode_set(grads);
    return status;
}

core_status train_tensor_take(const train_model *model, size_t parameter,
                              core_tensor *whole, core_tensor *tensor)
{
    part p = part_of(model, parameter);
    bool grads = core_grad_mode_set(false);
    core_scope scope = core_scope_begin();
    core_tensor *x = whole;
    core_status status;

    if (p.ranks > 1) {
        x = core_x_reshape(x, CORE_SIZES(p.rows, p.ranks, p.columns));
        x = core_x_select(x, 1, core_comm_rank(model->group));
        x = core_x_reshape(x, core_sizes_from(core_tensor_sizes(tensor),
                                              core_tensor_ndim(tensor)));
    }
    core_x_copy_(tensor, x);
    status = core_scope_end(scope);
    core_grad_mode_set(grads);
    return status;
}

/* ------------------------------------------------------------- gradients -- */

/* Returns the sum of the squares of the grads of parameters that are divided, or
 * of those that are not. */
static core_tensor *squares(const train_model *model, bool divided)
{
    core_tensor *sum = core_x_zeros(CORE_SIZES(1), CORE_F32, model->devices[0]);

    for (size_t i = 0; i < model->count; i++) {
        core_tensor *grad = core_tensor_grad(model->parameters[i]);

        if (grad && (model->pieces || part_of(model, i).ranks > 1) == divided)
            sum = core_x_add(sum, core_x_sum(core_x_mul(grad, grad)));
    }
    return sum;
}

core_status train_clip(const trainer *t, double max_norm)
{
    const train_model *model = &t->model;
    core_comm *comm = model->group ? model->group : t->comm;
    bool before = core_grad_mode_set(false);
    core_scope scope = core_scope_begin();
    core_tensor *all = squares(model, true), *factor, *grad;
    core_status status;

    if (all)
        CORE_CHECK(core_all_reduce_(comm, all, CORE_REDUCE_SUM));
    factor = core_x_sqrt(core_x_add(all, squares(model, false)));
    factor = core_x_reciprocal(core_x_add_scalar(factor, core_float(1e-6)));
    factor = core_x_mul_scalar(factor, core_float(max_norm));
    factor = core_x_clamp(factor, core_none(), core_float(1));
    for (size_t i = 0; i < model->count; i++)
        if ((grad = core_tensor_grad(model->parameters[i])) != NULL)
            core_x_mul_(grad, factor);
    status = core_scope_end(scope);
    core_grad_mode_set(before);
    return status;
}

core_status train_tensor_verify(const trainer *t)
{
    uint64_t digest = 0;

    if (!t->tensor)
        return CORE_OK;
    for (size_t i = 0; i < t->model.count; i++)
        if (part_of(&t->model, i).ranks == 1)
            CORE_TRY(train_tensor_digest(t->model.parameters[i], &digest));
    return train_distributed_compare(t, t->tensor, digest, "the weights",
                                     " (of the ranks that share a model)");
}
