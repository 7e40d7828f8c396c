/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_vjp, core_jvp and core_hvp. */

#include "autograd/api/functional.h"

#include "autograd/graph/autograd_ops.h"
#include "base/callback.h"
#include "autograd/graph/function.h"
#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ops/infer.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"

#include <libcore/ops.h>

#include <string.h>

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++) {
        core__tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static bool is_floating(const core_tensor *tensor)
{
    return tensor && core__dtype_is_floating(tensor->dtype);
}

/* ------------------------------------------------------------ evaluation -- */

static core_status check(const char *name, const core_derivative *of)
{
    if (!of)
        return core__error_null(name, "of");
    if (of->struct_size < sizeof *of ||
        of->flags & ~(uint32_t)CORE_CREATE_GRAPH)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: struct_size is %u and flags 0x%x; they must be "
                           "%zu and at most 0x%x",
                           name, of->struct_size, of->flags, sizeof *of,
                           CORE_CREATE_GRAPH);
    if (!of->function)
        return core__error_null(name, "function");
    if (!of->inputs || !of->ninputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the function has no inputs", name);
    for (size_t i = 0; i < of->ninputs; i++)
        if (!of->inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: input %zu is NULL", name, i);
    return CORE_OK;
}

/* Inside core_vmap the tensor becomes one of that call, whose derivatives are
 * those of each sample. */
static core_status make_leaf(core_tensor **tensor)
{
    CORE_TRY(core__batched_lift(tensor));
    return core_tensor_set_requires_grad(*tensor, true);
}

static core_status make_input(const core__derivation *work, core_tensor *input,
                              core_tensor **out_tensor)
{
    if (!is_floating(input)) {
        core__tensor_retain(input);
        *out_tensor = input;
        return CORE_OK;
    }
    if (work->create && core__batched_joins(input)) {
        *out_tensor = core_tensor_retain(input);
        CORE_TRY(core__batched_lift(out_tensor));
        if (*out_tensor == input) {
            core__tensor_release(input);
            CORE_TRY(core__tensor_shallow_copy(input, out_tensor));
        }
        return make_leaf(out_tensor);
    }
    if (work->create && core__tensor_needs_grad(input))
        return core_alias(input, out_tensor);
    CORE_TRY(core_detach(input, out_tensor));
    return make_leaf(out_tensor);
}

static core_status evaluate(core__derivation *work)
{
    const core_derivative *of = work->of;
    uint32_t errors = core__thread_self()->error.sequence;
    size_t capacity = work->noutputs;
    size_t given;
    core_status status;

    for (size_t i = 0; i < of->ninputs; i++) {
        CORE_TRY(make_input(work, of->inputs[i], &work->inputs[i]));
        if (!is_floating(of->inputs[i]))
            continue;
        work->differentiated[work->ndifferentiated] = work->inputs[i];
        work->positions[work->ndifferentiated++] = i;
    }
    if (!work->ndifferentiated)
        return core__error(
            CORE_ERROR_DTYPE,
            "%s: no input has a floating dtype; at least one must", work->name);
    status = of->function(of->context, work->inputs, of->ninputs, work->outputs,
                          &work->noutputs);
    given = work->noutputs;
    if (status != CORE_OK || given > capacity)
        work->noutputs = capacity; /* releases what a failed call left there */
    if (status != CORE_OK) {
        core__callback_status(errors, status, "the function");
        core__error_prefix("%s", work->name);
        return status;
    }
    if (given > capacity)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: the function reports %zu outputs, but the array holds %zu",
            work->name, given, capacity);
    for (size_t i = 0; i < work->noutputs; i++)
        if (!work->outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: the function left output %zu NULL",
                               work->name, i);
    return CORE_OK;
}

core_status core__derivation_begin(core__derivation *work, const char *name,
                                   const core_derivative *of, size_t noutputs)
{
    size_t size;

    memset(work, 0, sizeof *work);
    work->grad_mode = core_grad_mode_set(true);
    CORE_TRY(check(name, of));
    CORE_TRY(core__function_check_capacity(name, noutputs));
    size = (3 * of->ninputs + noutputs) * sizeof *work->inputs +
           of->ninputs * sizeof *work->positions;
    work->name = name;
    work->of = of;
    work->create = of->flags & CORE_CREATE_GRAPH;
    work->inputs = core__alloc_zero(size);
    if (!work->inputs)
        return core__error_memory(size);
    work->ninputs = of->ninputs;
    work->noutputs = noutputs;
    work->differentiated = work->inputs + of->ninputs;
    work->grads = work->differentiated + of->ninputs;
    work->outputs = work->grads + of->ninputs;
    work->positions = (size_t *)(void *)(work->outputs + noutputs);
    return evaluate(work);
}

core_status core__derivation_end(core__derivation *work, core_status status)
{
    release_all(work->inputs, work->ninputs);
    release_all(work->grads, work->ndifferentiated);
    release_all(work->outputs, work->noutputs);
    core__free(work->inputs);
    core_grad_mode_set(work->grad_mode);
    return status;
}

core_status core__derivation_zeros(const core_tensor *like,
                                   core_tensor **out_zeros)
{
    return core__autograd_op_full(like->device, like->dtype, like->ndim,
                                  like->sizes, 0, out_zeros);
}

/* Results are detached unless a graph is needed. */
core_status core__derivation_finish(const core__derivation *work,
                                    core_tensor **result)
{
    core_tensor *detached;

    if (work->create || !core__tensor_needs_grad(*result))
        return CORE_OK;
    CORE_TRY(core_detach(*result, &detached));
    core__tensor_release(*result);
    *result = detached;
    return CORE_OK;
}

/* ---------------------------------------------------------------- products -- */

static core_status check_vector(const core__derivation *work, size_t index,
                                const core_tensor *vector,
                                const core_tensor *of)
{
    char given[200], expected[200];

    if (vector->ndim == of->ndim &&
        memcmp(vector->sizes, of->sizes, of->ndim * sizeof *of->sizes) == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_SHAPE, "%s: vector %zu has sizes %s; it must have %s",
        work->name, index,
        core__sizes_text(vector->ndim, vector->sizes, given, sizeof given),
        core__sizes_text(of->ndim, of->sizes, expected, sizeof expected));
}

/* grads[differentiated] of the outputs that have a derivative; NULL where an
 * input has no influence.  vectors: by output, or NULL. */
static core_status gradients(core__derivation *work,
                             core_tensor *const *vectors, uint32_t flags,
                             core_tensor **grads)
{
    size_t size = 2 * work->noutputs * sizeof(core_tensor *);
    core_tensor **roots = core__alloc(size + 1), **seeds;
    core_status status = CORE_OK;
    size_t count = 0;

    if (!roots)
        return core__error_memory(size);
    seeds = roots + work->noutputs;
    for (size_t i = 0; i < work->noutputs && status == CORE_OK; i++) {
        core_tensor *vector = vectors ? vectors[i] : NULL;

        if (vector)
            status = check_vector(work, i, vector, work->outputs[i]);
        if (!core__tensor_needs_grad(work->outputs[i]))
            continue;
        roots[count] = work->outputs[i];
        seeds[count++] = vector;
    }
    if (status == CORE_OK && count)
        status =
            core_grad(roots, count, seeds, work->differentiated,
                      work->ndifferentiated, flags | CORE_ALLOW_UNUSED, grads);
    core__free(roots);
    return status;
}

/* Moves grads, by differentiated input, to the caller's array, by input. */
static core_status results_by_input(const core__derivation *work,
                                    core_tensor **grads, core_tensor **out)
{
    for (size_t i = 0; i < work->ndifferentiated; i++) {
        core_tensor **to = &out[work->positions[i]];

        if (!grads[i]) {
            CORE_TRY(core__derivation_zeros(work->differentiated[i], to));
            continue;
        }
        *to = grads[i];
        grads[i] = NULL;
        CORE_TRY(core__derivation_finish(work, to));
    }
    return CORE_OK;
}

static void clear(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        tensors[i] = NULL;
}

core_status core_vjp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_outputs, size_t *noutputs,
                     core_tensor **out_gradients)
{
    size_t capacity =
        out_outputs && noutputs ? *noutputs : CORE_GRADCHECK_OUTPUTS;
    size_t ninputs = of ? of->ninputs : 0;
    core_status status;
    core__derivation work;

    CORE__NOT_NULL(out_gradients);
    clear(out_gradients, ninputs);
    if (out_outputs && !noutputs)
        return core__error_null("core_vjp", "noutputs");
    clear(out_outputs, out_outputs ? capacity : 0);
    status = core__derivation_begin(&work, "core_vjp", of, capacity);
    if (status == CORE_OK)
        status = gradients(&work, vectors, work.create ? CORE_CREATE_GRAPH : 0,
                           work.grads);
    if (status == CORE_OK)
        status = results_by_input(&work, work.grads, out_gradients);
    for (size_t i = 0; status == CORE_OK && out_outputs && i < work.noutputs;
         i++) {
        status = core__derivation_finish(&work, &work.outputs[i]);
        out_outputs[i] = work.outputs[i];
        work.outputs[i] = NULL;
    }
    if (noutputs)
        *noutputs = status == CORE_OK ? work.noutputs : 0;
    if (status != CORE_OK) {
        release_all(out_gradients, ninputs);
        release_all(out_outputs, out_outputs ? capacity : 0);
    }
    return core__derivation_end(&work, status);
}

/* Zeros that require grad, one for each output that has a derivative. */
static core_status zero_seeds(const core__derivation *work, core_tensor **seeds)
{
    for (size_t i = 0; i < work->noutputs; i++) {
        if (!core__tensor_needs_grad(work->outputs[i]))
            continue;
        CORE_TRY(core__derivation_zeros(work->outputs[i], &seeds[i]));
        CORE_TRY(make_leaf(&seeds[i]));
    }
    return CORE_OK;
}

/* seeds: by output.  Gradients are linear in the seeds, so their derivative in
 * the direction of the vectors is the tangent. */
static core_status tangents(core__derivation *work, core_tensor *const *vectors,
                            core_tensor **seeds, core_tensor **out)
{
    core_tensor **roots =
        core__alloc_zero(2 * work->ndifferentiated * sizeof *roots);
    core_tensor **along;
    core_status status = CORE_OK;
    size_t count = 0;

    if (!roots)
        return core__error_memory(work->ndifferentiated * sizeof *roots);
    along = roots + work->ndifferentiated;
    for (size_t i = 0; i < work->ndifferentiated && status == CORE_OK; i++) {
        core_tensor *vector = vectors[work->positions[i]];

        if (vector)
            status = check_vector(work, work->positions[i], vector,
                                  work->differentiated[i]);
        if (!vector || !work->grads[i] ||
            !core__tensor_needs_grad(work->grads[i]))
            continue;
        roots[count] = work->grads[i];
        along[count++] = vector;
    }
    for (size_t i = 0; i < work->noutputs && status == CORE_OK; i++) {
        if (seeds[i] && count)
            status = core_grad(roots, count, along, &seeds[i], 1,
                               CORE_RETAIN_GRAPH | CORE_ALLOW_UNUSED |
                                   (work->create ? CORE_CREATE_GRAPH : 0),
                               &out[i]);
        if (status == CORE_OK && !out[i] && is_floating(work->outputs[i]))
            status = core__derivation_zeros(work->outputs[i], &out[i]);
        if (status == CORE_OK && out[i])
            status = core__derivation_finish(work, &out[i]);
    }
    core__free(roots);
    return status;
}

core_status core_jvp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_tangents, size_t *noutputs)
{
    core_tensor **seeds = NULL;
    core_status status;
    size_t capacity;
    core__derivation work;

    CORE__NOT_NULL(vectors);
    CORE__NOT_NULL(out_tangents);
    CORE__NOT_NULL(noutputs);
    capacity = *noutputs;
    clear(out_tangents, capacity);
    status = core__derivation_begin(&work, "core_jvp", of, capacity);
    if (status == CORE_OK) {
        seeds = core__alloc_zero(capacity * sizeof *seeds + 1);
        status = seeds ? zero_seeds(&work, seeds)
                       : core__error_memory(capacity * sizeof *seeds);
    }
    if (status == CORE_OK)
        status = gradients(&work, seeds, CORE_CREATE_GRAPH, work.grads);
    if (status == CORE_OK)
        status = tangents(&work, vectors, seeds, out_tangents);
    if (seeds)
        release_all(seeds, capacity);
    core__free(seeds);
    *noutputs = status == CORE_OK ? work.noutputs : 0;
    if (status != CORE_OK)
        release_all(out_tangents, capacity);
    return core__derivation_end(&work, status);
}

/* ----------------------------------------------------------------- second -- */

/* The first derivative of a function whose result has one element. */
core_status core__derivation_first(core__derivation *work)
{
    char text[200];

    if (work->noutputs != 1 || work->outputs[0]->numel != 1)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: the function has %zu outputs, the first of "
                           "sizes %s; it must have one output with one element",
                           work->name, work->noutputs,
                           work->noutputs
                               ? core__sizes_text(work->outputs[0]->ndim,
                                                  work->outputs[0]->sizes, text,
                                                  sizeof text)
                               : "none");
    return gradients(work, NULL, CORE_CREATE_GRAPH, work->grads);
}

core_status core_hvp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_products)
{
    size_t ninputs = of ? of->ninputs : 0;
    core_tensor **seconds = NULL;
    core_status status;
    core__derivation work;

    CORE__NOT_NULL(vectors);
    CORE__NOT_NULL(out_products);
    clear(out_products, ninputs);
    status =
        core__derivation_begin(&work, "core_hvp", of, CORE_GRADCHECK_OUTPUTS);
    if (status == CORE_OK)
        status = core__derivation_first(&work);
    if (status == CORE_OK) {
        /* The derivative of the sum of first derivatives times vectors. */
        size_t count = 0;
        size_t size = work.ndifferentiated * 3 * sizeof *seconds;

        seconds = core__alloc_zero(size);
        if (!seconds)
            status = core__error_memory(size);
        for (size_t w = 0; w < work.ndifferentiated && status == CORE_OK; w++) {
            core_tensor *vector = vectors[work.positions[w]];

            if (vector)
                status = check_vector(&work, work.positions[w], vector,
                                      work.differentiated[w]);
            if (!vector || !work.grads[w] ||
                !core__tensor_needs_grad(work.grads[w]))
                continue;
            seconds[work.ndifferentiated + count] = work.grads[w];
            seconds[2 * work.ndifferentiated + count++] = vector;
        }
        if (status == CORE_OK && count)
            status = core_grad(seconds + work.ndifferentiated, count,
                               seconds + 2 * work.ndifferentiated,
                               work.differentiated, work.ndifferentiated,
                               CORE_ALLOW_UNUSED |
                                   (work.create ? CORE_CREATE_GRAPH : 0),
                               seconds);
        if (status == CORE_OK)
            status = results_by_input(&work, seconds, out_products);
        if (seconds)
            release_all(seconds, work.ndifferentiated);
    }
    core__free(seconds);
    if (status != CORE_OK)
        release_all(out_products, ninputs);
    return core__derivation_end(&work, status);
}
