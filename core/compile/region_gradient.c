/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of a recorded branch: another one, with a region for each
 * function that calls it again and differentiates.  These are recorded together
 * with the branch, since the functions may not exist any more when a backward
 * runs. */

#include "compile/region_trace.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* What a region of the gradient differentiates. */
typedef struct differentiated {
    const core__region *branch;
    core_tensor *const *wanted_of; /* the inputs of the branch */
    size_t nwanted;                /* those that require grad */
} differentiated;

/* What the node of the graph has. */
typedef struct gradient {
    core__trace *trace;
    core__region_node node; /* its inputs are those of the branch; the
                             * gradients of its outputs are appended */
    uint32_t ninputs, nwanted;
    bool wanted[]; /* by input */
} gradient;

static bool is_float(const core_tensor *tensor)
{
    return core__dtype_is_floating(tensor->dtype);
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        core_tensor_release(tensors[i]);
}

/* --------------------------------------------------------------- regions -- */

/* The inputs as leaves of a new graph. */
static core_status make_leaves(const differentiated *d,
                               core_tensor *const *inputs, core_tensor **leaves,
                               core_tensor **wanted)
{
    size_t count = 0;

    for (size_t i = 0; i < d->branch->ninputs; i++) {
        CORE_TRY(core_detach(inputs[i], &leaves[i]));
        if (!core__tensor_requires_grad(d->wanted_of[i]))
            continue;
        CORE_TRY(core_tensor_set_requires_grad(leaves[i], true));
        wanted[count++] = leaves[i];
    }
    return CORE_OK;
}

/* grads: one per floating output. */
static core_status differentiate(const differentiated *d, core_tensor **outputs,
                                 core_tensor *const *grads,
                                 core_tensor **wanted, core_tensor **gradients)
{
    size_t count = 0, next = 0;
    core_tensor **roots, **tangents;
    core_status status = CORE_OK;

    roots = core__alloc((2 * d->branch->noutputs + 1) * sizeof *roots);
    if (!roots)
        return core__error_memory(d->branch->noutputs * sizeof *roots);
    tangents = roots + d->branch->noutputs;
    for (size_t i = 0; i < d->branch->noutputs; i++) {
        if (!is_float(outputs[i]))
            continue;
        if (core__tensor_requires_grad(outputs[i])) {
            roots[count] = outputs[i];
            tangents[count++] = grads[next];
        }
        next++;
    }
    if (count)
        status = core_grad(roots, count, tangents, wanted, d->nwanted,
                           CORE_ALLOW_UNUSED, gradients);
    core__free(roots);
    for (size_t i = 0; i < d->nwanted && status == CORE_OK; i++)
        if (!gradients[i])
            status = core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL, -1,
                                     &gradients[i]);
    return status;
}

/* The function of such a region.  inputs: those of the branch, and the gradients
 * of its floating outputs. */
static core_status call_gradient(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **gradients,
                                 size_t *ngradients)
{
    const differentiated *d = context;
    size_t n = d->branch->ninputs, most = 2 * n + d->branch->noutputs;
    core_tensor **leaves = core__alloc_zero((most + 1) * sizeof *leaves);
    core_tensor **wanted = leaves + n, **outputs = leaves + 2 * n;
    bool before;
    core_status status;

    (void)ninputs;
    if (!leaves)
        return core__error_memory(most * sizeof *leaves);
    before = core_grad_mode_set(true);
    status = make_leaves(d, inputs, leaves, wanted);
    if (status == CORE_OK)
        status = core__region_call(d->branch, leaves, outputs);
    if (status == CORE_OK)
        status = differentiate(d, outputs, inputs + n, wanted, gradients);
    core_grad_mode_set(before);
    release_all(outputs, d->branch->noutputs);
    release_all(leaves, n);
    core__free(leaves);
    *ngradients = d->nwanted;
    return status;
}

/* --------------------------------------------------------------- backward -- */

static void drop(void *context)
{
    gradient *g = context;

    core__region_node_drop(&g->node);
    core__free(g);
}

/* The arguments of the node of a backward: those that are known, and the
 * gradients of the floating outputs, row-major. */
static core_status make_arguments(const gradient *g, core_tensor *const *grads,
                                  size_t ngrads, core__region_node *node)
{
    core_program *program = g->trace->program;
    const core__program_argument *before =
        &g->node.arguments[CORE__REGION_INPUTS];
    size_t size = CORE__REGION_ARGUMENTS * sizeof *before;
    uint32_t *values = core__program_alloc(
        program, (before->count + ngrads + 1) * sizeof *values);
    uint32_t count = before->count;

    node->arguments = core__program_alloc(program, size);
    if (!values || !node->arguments)
        return core__error_memory(size);
    memcpy(node->arguments, g->node.arguments, size);
    if (count)
        memcpy(values, before->u.values, count * sizeof *values);
    for (size_t i = 0; i < ngrads; i++) {
        core_tensor *tangent;
        core_status status;

        if (!is_float(grads[i]))
            continue;
        CORE_TRY(core_clone(grads[i], CORE_FORMAT_CONTIGUOUS, &tangent));
        status = core__traced_read(g->trace, NULL, tangent, &values[count++]);
        core_tensor_release(tangent);
        CORE_TRY(status);
    }
    node->arguments[CORE__REGION_INPUTS].u.values = values;
    node->arguments[CORE__REGION_INPUTS].count = count;
    return CORE_OK;
}

static core_status add_backward(const gradient *g, core_tensor *const *grads,
                                size_t ngrads, core_tensor **made)
{
    core__region_node node = g->node;
    core_status status;

    node.outputs = made;
    node.noutputs = g->nwanted;
    for (uint32_t k = 0; k < CORE__REGIONS; k++)
        core_program_retain(node.regions[k]);
    pthread_mutex_lock(&g->trace->lock);
    status = make_arguments(g, grads, ngrads, &node);
    if (status == CORE_OK)
        status = core__region_node_add(&node);
    pthread_mutex_unlock(&g->trace->lock);
    core__region_node_drop(&node);
    return status;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const gradient *g = context;
    core_tensor **made = core__alloc_zero((g->nwanted + 1) * sizeof *made);
    uint32_t next = 0;
    core_status status;

    (void)node;
    (void)ngradients;
    if (!made)
        return core__error_memory(g->nwanted * sizeof *made);
    if (core__thread_self()->trace != g->trace)
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "core_cond backward: the program that contains "
                             "the branch is not being recorded any more");
    else
        status = add_backward(g, grads, ngrads, made);
    for (uint32_t i = 0; i < g->ninputs && status == CORE_OK; i++)
        if (g->wanted[i])
            gradients[i] = made[next++];
    if (status != CORE_OK)
        release_all(made, g->nwanted);
    core__free(made);
    return status;
}

/* ---------------------------------------------------------------- forward -- */

/* Numbers that are drawn again would be others. */
static bool draws(const core_program *program)
{
    for (uint32_t i = 0; i < program->nnodes; i++) {
        const core__program_node *node = &program->nodes[i];

        if (node->draws)
            return true;
        for (uint32_t k = 0; node->regions && k < CORE__REGIONS; k++)
            if (draws(node->regions[k]))
                return true;
    }
    return false;
}

static core_status record_gradient(gradient *g, const core__region *branches,
                                   core_tensor *predicate,
                                   core_tensor *const *outputs)
{
    size_t n = branches[0].ninputs, m = branches[0].noutputs, count = n;
    core_tensor **inputs = core__alloc((n + m + 1) * sizeof *inputs);
    core_status status;

    if (!inputs)
        return core__error_memory((n + m) * sizeof *inputs);
    for (size_t i = 0; i < n; i++)
        inputs[i] = branches[0].inputs[i];
    for (size_t i = 0; i < m; i++)
        if (is_float(outputs[i]))
            inputs[count++] = outputs[i]; /* of the type of its gradient */
    status = core__region_node_begin(&g->node, inputs, n);
    if (status == CORE_OK)
        status = core__region_node_predicate(&g->node, predicate);
    for (uint32_t k = 0; k < CORE__REGIONS && status == CORE_OK; k++) {
        differentiated d = {&branches[k], branches[k].inputs, g->nwanted};
        const core__region region = {.name = CORE__COND_NAME,
                                     .part = branches[k].part,
                                     .function = call_gradient,
                                     .context = &d,
                                     .inputs = inputs,
                                     .ninputs = count,
                                     .noutputs = g->nwanted,
                                     .differentiates = true};

        status = core__region_node_record(&g->node, &region, k);
        if (status == CORE_OK && draws(g->node.regions[k]))
            status = core__error(CORE_ERROR_UNSUPPORTED,
                                 "%s: %s draws random numbers, which a "
                                 "recorded gradient cannot repeat",
                                 region.name, region.part);
    }
    core__free(inputs);
    return status;
}

static core_status new_gradient(const core__region *branch, gradient **out)
{
    size_t size = sizeof **out + branch->ninputs;
    gradient *g = core__alloc_zero(size);

    *out = g;
    if (!g)
        return core__error_memory(size);
    g->trace = core__thread_self()->trace;
    g->node.trace = g->trace;
    g->node.name = CORE__COND_NAME;
    g->ninputs = (uint32_t)branch->ninputs;
    for (uint32_t i = 0; i < g->ninputs; i++) {
        g->wanted[i] = core__tensor_requires_grad(branch->inputs[i]);
        g->nwanted += g->wanted[i];
    }
    return CORE_OK;
}

core_status core__region_differentiate(const core__region *branches,
                                       core_tensor *predicate,
                                       core_tensor **outputs)
{
    core_function_info info = {.struct_size = sizeof info,
                               .flags = CORE_FUNCTION_ONCE_DIFFERENTIABLE,
                               .name = CORE__COND_NAME,
                               .backward = backward,
                               .release = drop};
    core_status status;
    gradient *g;

    CORE_TRY(new_gradient(&branches[0], &g));
    status = record_gradient(g, branches, predicate, outputs);
    if (status != CORE_OK) {
        drop(g);
        return status;
    }
    info.context = g;
    return core_function_record(&info, branches[0].inputs, branches[0].ninputs,
                                NULL, 0, outputs, branches[0].noutputs, NULL);
}
