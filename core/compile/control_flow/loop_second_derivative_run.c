/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs the derivatives of the gradient of a loop (loop_second_derivative.h). */

#include "compile/control_flow/loop_second_derivative.h"

#include "autograd/api/partial_gradients.h"
#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "compile/run/run.h"
#include "tensor/dtype.h"

#include <libcore/ops.h>

#include <string.h>

enum { BODY = 1, GRADIENT = 2 }; /* regions whose captured tensors count */

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static bool is_float(const core_tensor *tensor)
{
    return core__dtype_is_floating(tensor->dtype);
}

/* A run, which autograd records. */
typedef struct running {
    const core__program_node *node;
    core_tensor *const *tensors;               /* by value */
    core_tensor **captured[CORE__REGIONS_MAX]; /* leaves, or as they are */
    core_tensor **leaves;                      /* all, with references */
    core_tensor **wanted;                      /* of the results; borrowed */
    size_t *of;                                /* what they are, as inputs */
    size_t nleaves, nwanted;
    size_t first; /* how many inputs the gradient of the loop has */
} running;

static const size_t CAPTURED = SIZE_MAX; /* in `of`: not an input */

static const core__program_argument *captured_by(const running *r, uint32_t k)
{
    return &r->node->args[CORE__REGION_THEN + k];
}

static core_status add_leaf(running *r, core_tensor *tensor, size_t of,
                            core_tensor **out)
{
    core_tensor **leaf = &r->leaves[r->nleaves];

    CORE_TRY(core_detach(tensor, leaf));
    r->nleaves++;
    *out = *leaf;
    if (!is_float(tensor))
        return CORE_OK;
    r->of[r->nwanted] = of;
    r->wanted[r->nwanted++] = *leaf;
    return core_tensor_set_requires_grad(*leaf, true);
}

static core_status call(void *context, uint32_t index,
                        core_tensor *const *inputs, size_t ninputs,
                        core_tensor **outputs, size_t *noutputs)
{
    const running *r = context;
    core_program *program = r->node->regions[index];
    size_t count = captured_by(r, index)->count;
    core_tensor **all = core__alloc((ninputs + count + 1) * sizeof *all);
    core_status status;

    if (!all)
        return core__error_memory((ninputs + count) * sizeof *all);
    memcpy(all, inputs, ninputs * sizeof *all);
    if (count)
        memcpy(all + ninputs, r->captured[index], count * sizeof *all);
    *noutputs = program->noutputs;
    status = core__program_run_recorded(program, all, outputs);
    core__free(all);
    return status;
}

static core_status call_condition(void *context, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t *noutputs)
{
    return call(context, 0, inputs, ninputs, outputs, noutputs);
}

static core_status call_body(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    return call(context, BODY, inputs, ninputs, outputs, noutputs);
}

static core_status call_gradient(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    return call(context, GRADIENT, inputs, ninputs, outputs, noutputs);
}

/* inputs: of the gradient; replaced by leaves. */
static core_status make_leaves(running *r, core_tensor **inputs, size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++)
        CORE_TRY(add_leaf(r, inputs[i], i, &inputs[i]));
    for (uint32_t k = 0; k < CORE__REGIONS_MAX; k++)
        for (uint32_t i = 0; i < captured_by(r, k)->count; i++) {
            core_tensor *tensor = r->tensors[captured_by(r, k)->u.values[i]];

            r->captured[k][i] = tensor;
            if (k >= BODY)
                CORE_TRY(add_leaf(r, tensor, CAPTURED, &r->captured[k][i]));
        }
    return CORE_OK;
}

/* The product of tangents with the derivatives of `made` by the floating ones of
 * the first inputs and by what is captured.  There are no derivatives of those
 * that do not depend on leaves.  create: they have a graph. */
static core_status differentiate(running *r, core_tensor **made, size_t count,
                                 core_tensor *const *tangents, size_t ninputs,
                                 bool create, core_tensor **outputs)
{
    size_t most = 2 * count + r->nwanted, nwanted = 0, n = 0;
    core_tensor **roots = core__alloc((most + 1) * sizeof *roots);
    core_tensor **grads = roots + count, **wanted = grads + count;
    core_status status = CORE_OK;

    if (!roots)
        return core__error_memory(most * sizeof *roots);
    for (size_t i = 0; i < count; i++)
        if (made[i] && core__tensor_requires_grad(made[i])) {
            roots[n] = made[i];
            grads[n++] = tangents[i];
        }
    for (size_t i = 0; i < r->nwanted; i++)
        if (r->of[i] < ninputs || r->of[i] == CAPTURED)
            wanted[nwanted++] = r->wanted[i];
    if (n)
        status = core__partial_gradients(roots, grads, n, wanted, nwanted,
                                         create, create, outputs);
    for (size_t i = 0; i < nwanted && status == CORE_OK; i++) {
        if (!outputs[i])
            status = core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL,
                                     CORE_FORMAT_CONTIGUOUS, &outputs[i]);
        else
            status = core__region_make_own(&outputs[i]);
    }
    core__free(roots);
    return status;
}

/* How many gradients a node has of which these are the inputs. */
static size_t count_of(const running *r, size_t ninputs)
{
    size_t count = 0;

    for (size_t i = 0; i < r->nwanted; i++)
        count += r->of[i] < ninputs || r->of[i] == CAPTURED;
    return count;
}

/* From the gradient of the loop to the derivative of this order.  leaves: of the
 * inputs, without the last tangents, which follow.  made: space for the gradients
 * and all derivatives. */
static core_status run(running *r, core_tensor **inputs, size_t nleaves,
                       const core__region_random *random, core_tensor **made,
                       core_tensor **outputs)
{
    const core__program_node *node = r->node;
    size_t n = node->regions[BODY]->noutputs, known = r->first;
    size_t count = node->regions[GRADIENT]->noutputs;
    const core__region functions[] = {
        {node->name, "condition", call_condition, r, inputs, n, 1, true, true},
        {node->name, "body", call_body, r, inputs, n, n, true, false},
        {node->name, "gradient", call_gradient, r, inputs, known, count, true,
         false}};

    CORE_TRY(core__region_loop_gradient(functions, inputs, random, made));
    while (known < nleaves) {
        size_t next = count_of(r, known);

        CORE_TRY(differentiate(r, made, count, inputs + known, known, true,
                               made + count));
        made += count;
        known += count;
        count = next;
    }
    return differentiate(r, made, count, inputs + nleaves, nleaves, false,
                         outputs);
}

/* Autograd records, although the program has been recorded below it. */
static core_status run_in_grad_mode(running *r, core_tensor **inputs,
                                    size_t nleaves,
                                    const core__region_random *random,
                                    core_tensor **made, core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad, inference = self->inference;
    core_status status;

    self->excluded &=
        ~(uint32_t)(CORE__KEY_AUTOGRAD | CORE__KEY_INPLACE_OR_VIEW);
    self->no_grad = self->inference = false;
    status = make_leaves(r, inputs, nleaves);
    if (status == CORE_OK)
        status = run(r, inputs, nleaves, random, made, outputs);
    self->inference = inference;
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}

/* A graph of the results is not made. */
static core_status check_run(const core__program_node *node,
                             core_tensor *const *inputs)
{
    uint32_t count = node->args[CORE__REGION_INPUTS].count;

    if (core__thread_self()->trace)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: the second derivative of a loop cannot become a part of "
            "another program, such as the gradient of a branch around the "
            "loop; replace the branch by core_where, or differentiate while "
            "nothing is recorded",
            node->name);
    for (uint32_t i = 0; i < count && core__region_is_differentiated(); i++)
        if (core__tensor_needs_grad(inputs[i]))
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "%s: a run of a program keeps no graph of the second "
                "derivative of a loop; differentiate while nothing is "
                "recorded",
                node->name);
    return CORE_OK;
}

/* How many of the inputs are before the last tangents: as many as the node that
 * this one differentiates has. */
static size_t leaves_of(const core__program_node *node,
                        core_tensor *const *inputs, core_tensor *const *tensors)
{
    size_t known = core__loop_inputs(node->regions[BODY]), captured = 0;
    size_t next = known + node->regions[GRADIENT]->noutputs;

    for (uint32_t k = BODY; k < CORE__REGIONS_MAX; k++) {
        const core__program_argument *list = &node->args[CORE__REGION_THEN + k];

        for (uint32_t i = 0; i < list->count; i++)
            captured += is_float(tensors[list->u.values[i]]);
    }
    while (next < node->args[CORE__REGION_INPUTS].count) {
        size_t count = captured;

        for (size_t i = 0; i < known; i++)
            count += is_float(inputs[i]);
        known = next;
        next += count;
    }
    return known;
}

/* Space: for leaves, those that are wanted, inputs, what regions read, and
 * gradients. */
static core_status run_with(running *r, core_tensor *const *inputs,
                            size_t nleaves, size_t most,
                            const core__region_random *random,
                            core_tensor **space, core_tensor **outputs)
{
    size_t ninputs = r->node->args[CORE__REGION_INPUTS].count;
    core_tensor **own = space + 2 * most, **next = space + 3 * most;
    size_t nmade = ninputs;
    core_status status;

    r->leaves = space;
    r->wanted = space + most;
    memcpy(own, inputs, ninputs * sizeof *own);
    for (uint32_t k = 0; k < CORE__REGIONS_MAX; k++) {
        r->captured[k] = next;
        next += captured_by(r, k)->count;
    }
    status =
        run_in_grad_mode(r, own, nleaves, random, space + 4 * most, outputs);
    release_all(space + 4 * most, nmade);
    release_all(r->leaves, r->nleaves);
    return status;
}

core_status core__loop_second_run(const core__program_node *node,
                                  core_tensor *const *inputs,
                                  core_tensor *const *tensors,
                                  const core__region_random *random,
                                  core_tensor **outputs)
{
    running r = {.node = node,
                 .tensors = tensors,
                 .first = core__loop_inputs(node->regions[BODY])};
    size_t most = node->args[CORE__REGION_INPUTS].count + 1;
    core_tensor **space;
    core_status status;

    CORE_TRY(check_run(node, inputs));
    for (uint32_t k = 0; k < CORE__REGIONS_MAX; k++)
        most += captured_by(&r, k)->count;
    space = core__alloc_zero(5 * most * sizeof *space);
    r.of = core__alloc_zero(most * sizeof *r.of);
    if (space && r.of)
        status = run_with(&r, inputs, leaves_of(node, inputs, tensors), most,
                          random, space, outputs);
    else
        status = core__error_memory(5 * most * sizeof *space);
    core__free(r.of);
    core__free(space);
    return status;
}
