/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_vmap. */

#include "autograd/graph/function.h"
#include "base/memory.h"
#include "dispatch/mode_stack.h"
#include "ops/infer.h"
#include "random/generator.h"
#include "transform/batch.h"

#include <libcore/ops.h>
#include <libcore/random.h>
#include <libcore/transform.h>

#include <string.h>

static const char name[] = "core_vmap";

/* One call.  dims: by input, CORE__BATCH_NONE if it is not mapped. */
typedef struct vmap {
    core_tensor_function function;
    void *user;
    core_vmap_options options;
    core_tensor *const *inputs;
    size_t ninputs;
    core_tensor **outputs;
    size_t noutputs;
    uint32_t *dims;
    core_tensor **batched; /* the function's inputs */
    int64_t size;
} vmap;

/* ------------------------------------------------------------------ checks -- */

static core_status check_options(vmap *v, const core_vmap_options *options)
{
    if (!options)
        return CORE_OK;
    if (options->struct_size < sizeof *options)
        return core__error_struct_size(name, "core_vmap_options",
                                       options->struct_size, sizeof *options);
    v->options = *options;
    if (options->randomness > CORE_VMAP_RANDOM_DIFFERENT)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: randomness is %u; it must be "
                           "CORE_VMAP_RANDOM_ERROR, CORE_VMAP_RANDOM_SAME or "
                           "CORE_VMAP_RANDOM_DIFFERENT",
                           name, options->randomness);
    if (options->chunk < 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: chunk is %lld; it must be 0 or more", name,
                           (long long)options->chunk);
    return CORE_OK;
}

static core_status check_input(vmap *v, size_t i)
{
    const core_tensor *input = v->inputs[i];
    int64_t dim = v->options.in_dims ? v->options.in_dims[i] : 0;

    v->dims[i] = CORE__BATCH_NONE;
    if (!input)
        return core__error(CORE_ERROR_INVALID_ARGUMENT, "%s: input %zu is NULL",
                           name, i);
    if (dim == CORE_VMAP_NOT_MAPPED)
        return CORE_OK;
    if (dim < -(int64_t)input->ndim || dim >= input->ndim)
        return core__error(CORE_ERROR_INDEX,
                           "%s: in_dims[%zu] is %lld; input %zu has %u "
                           "dimensions",
                           name, i, (long long)dim, i, input->ndim);
    v->dims[i] = (uint32_t)(dim < 0 ? dim + input->ndim : dim);
    if (v->size >= 0 && input->sizes[v->dims[i]] != v->size)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: input %zu has %lld samples in dimension %u, "
                           "an input before it %lld; all must have the same "
                           "number",
                           name, i, (long long)input->sizes[v->dims[i]],
                           v->dims[i], (long long)v->size);
    v->size = input->sizes[v->dims[i]];
    return CORE_OK;
}

static core_status check(vmap *v, const core_vmap_options *options)
{
    if (!v->function)
        return core__error_null(name, "function");
    if (v->ninputs && !v->inputs)
        return core__error_null(name, "inputs");
    if (!v->noutputs || !v->outputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: there is no space for outputs; at least one "
                           "is needed",
                           name);
    CORE_TRY(check_options(v, options));
    v->batched = core__alloc_zero(
        v->ninputs * (sizeof *v->batched + sizeof *v->dims) + 1);
    if (!v->batched)
        return core__error_memory(v->ninputs * sizeof *v->batched);
    v->dims = (uint32_t *)(void *)(v->batched + v->ninputs);
    for (size_t i = 0; i < v->ninputs; i++)
        CORE_TRY(check_input(v, i));
    if (v->size < 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: no input is mapped; at least one must be",
                           name);
    if (v->size == 0)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: there are 0 samples; at least one is needed",
                           name);
    return CORE_OK;
}

/* ----------------------------------------------------------------- outputs -- */

/* The output's dimension of the samples; CORE__BATCH_NONE: it has none. */
static core_status out_dim(const vmap *v, size_t i, uint32_t ndim,
                           uint32_t *out)
{
    int64_t dim = v->options.out_dims ? v->options.out_dims[i] : 0;

    *out = CORE__BATCH_NONE;
    if (dim == CORE_VMAP_NOT_MAPPED)
        return CORE_OK;
    if (dim < -(int64_t)ndim - 1 || dim > ndim)
        return core__error(CORE_ERROR_INDEX,
                           "%s: out_dims[%zu] is %lld; output %zu has %u "
                           "dimensions with that of the samples",
                           name, i, (long long)dim, i, ndim + 1);
    *out = (uint32_t)(dim < 0 ? dim + ndim + 1 : dim);
    return CORE_OK;
}

/* One that does not depend on the sample, for each of them. */
static core_status repeated(core_tensor *tensor, int64_t size, uint32_t dim,
                            core_tensor **out)
{
    int64_t sizes[CORE_MAX_NDIM + 1];
    core_tensor *one = NULL, *all = NULL;
    core_status status;

    *out = NULL;
    status = core_unsqueeze(tensor, dim, &one);
    if (status == CORE_OK) {
        memcpy(sizes, one->sizes, one->ndim * sizeof *sizes);
        sizes[dim] = size;
        status = core_expand(one, sizes, one->ndim, false, &all);
    }
    if (status == CORE_OK)
        status = core_clone(all, CORE_FORMAT_CONTIGUOUS, out);
    core__tensor_release(one);
    core__tensor_release(all);
    return status;
}

/* Replaces an output of the function by what it stands for. */
static core_status unwrap(const vmap *v, size_t i, uint64_t level, int64_t size,
                          core_tensor **output)
{
    core_tensor *tensor = *output, *result = NULL;
    bool own = core__tensor_is_batched(tensor) && tensor->level == level;
    core_tensor *held = own ? tensor->held : tensor;
    uint32_t dim;

    CORE_TRY(out_dim(v, i, tensor->ndim, &dim));
    if (own && core__batched_is_mapped(tensor)) {
        if (dim == CORE__BATCH_NONE)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "%s: out_dims[%zu] is CORE_VMAP_NOT_MAPPED, but output %zu "
                "depends on the sample",
                name, i, i);
        if (dim != tensor->batch_dim)
            CORE_TRY(core_movedim(held, tensor->batch_dim, dim, &result));
    } else if (dim != CORE__BATCH_NONE) {
        CORE_TRY(repeated(held, size, dim, &result));
    }
    if (!result) {
        core__tensor_retain(held);
        result = held;
    }
    core__tensor_release(tensor);
    *output = result;
    return CORE_OK;
}

/* ----------------------------------------------------------------- running -- */

static core_status wrap_inputs(vmap *v, core_tensor *const *inputs,
                               uint64_t level)
{
    for (size_t i = 0; i < v->ninputs; i++) {
        v->batched[i] = inputs[i];
        if (v->dims[i] == CORE__BATCH_NONE)
            core__tensor_retain(inputs[i]);
        else
            CORE_TRY(core__batched_new(inputs[i], v->dims[i], level,
                                       &v->batched[i]));
    }
    return CORE_OK;
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core__tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static core_status call_function(vmap *v, core_tensor **outputs)
{
    size_t count = v->noutputs;

    CORE_TRY(core__function_call(name, v->function, v->user, v->batched,
                                 v->ninputs, outputs, &count));
    if (count == v->noutputs)
        return CORE_OK;
    release_all(outputs, count);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the function reports %zu outputs; %zu are expected",
                       name, count, v->noutputs);
}

static uint64_t next_level(void)
{
    static _Atomic uint64_t newest;

    return atomic_fetch_add(&newest, 1) + 1;
}

/* Samples of these inputs, all at once. */
static core_status run(vmap *v, core_tensor *const *inputs, int64_t size,
                       core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    core__batching batching = {.outer = self->batching,
                               .level = next_level(),
                               .size = size,
                               .randomness = v->options.randomness,
                               .excluded = self->excluded};
    uint32_t included = self->included;
    core_status status = wrap_inputs(v, inputs, batching.level);

    if (status == CORE_OK) {
        self->batching = &batching;
        self->included |= (uint32_t)CORE__KEY_BATCHED;
        status = call_function(v, outputs);
        self->batching = batching.outer;
        core__modes_restore_keys(self, included);
    }
    release_all(v->batched, v->ninputs);
    for (size_t i = 0; i < v->noutputs && status == CORE_OK; i++)
        status = unwrap(v, i, batching.level, size, &outputs[i]);
    if (status != CORE_OK)
        release_all(outputs, v->noutputs);
    return status;
}

/* ------------------------------------------------------------------ chunks -- */

static core_status chunk_of(vmap *v, int64_t first, int64_t size,
                            core_tensor **parts)
{
    for (size_t i = 0; i < v->ninputs; i++) {
        parts[i] = NULL;
        if (v->dims[i] == CORE__BATCH_NONE)
            parts[i] = core_tensor_retain(v->inputs[i]);
        else
            CORE_TRY(
                core_narrow(v->inputs[i], v->dims[i], first, size, &parts[i]));
    }
    return CORE_OK;
}

/* results: by chunk, then output.  The output of the first chunk has its
 * dimensions. */
static core_status join(vmap *v, core_tensor **results, size_t chunks)
{
    core_tensor **parts = core__alloc(chunks * sizeof *parts);
    core_status status = CORE_OK;
    uint32_t dim;

    if (!parts)
        return core__error_memory(chunks * sizeof *parts);
    for (size_t i = 0; i < v->noutputs && status == CORE_OK; i++) {
        int64_t wanted = v->options.out_dims ? v->options.out_dims[i] : 0;

        if (wanted == CORE_VMAP_NOT_MAPPED) {
            v->outputs[i] = core_tensor_retain(results[i]);
            continue;
        }
        status = out_dim(v, i, results[i]->ndim - 1u, &dim);
        for (size_t c = 0; c < chunks; c++)
            parts[c] = results[c * v->noutputs + i];
        if (status == CORE_OK)
            status = core_cat(parts, chunks, dim, &v->outputs[i]);
    }
    core__free(parts);
    return status;
}

static core_status run_chunks(vmap *v)
{
    int64_t chunk = v->options.chunk;
    size_t chunks = (size_t)((v->size + chunk - 1) / chunk);
    size_t count = chunks * v->noutputs + v->ninputs;
    core_tensor **results = core__alloc_zero(count * sizeof *results);
    core_tensor **parts = results + chunks * v->noutputs;
    core__generators generators;
    core_status status = CORE_OK;

    if (!results)
        return core__error_memory(count * sizeof *results);
    core__generators_save(&generators);
    for (size_t c = 0; c < chunks && status == CORE_OK; c++) {
        int64_t first = (int64_t)c * chunk;
        int64_t size = v->size - first < chunk ? v->size - first : chunk;

        if (c && v->options.randomness == CORE_VMAP_RANDOM_SAME)
            core__generators_restore(&generators, true);
        status = chunk_of(v, first, size, parts);
        if (status == CORE_OK)
            status = run(v, parts, size, results + c * v->noutputs);
        release_all(parts, v->ninputs);
    }
    if (status == CORE_OK)
        status = join(v, results, chunks);
    release_all(results, chunks * v->noutputs);
    core__free(results);
    return status;
}

core_status core_vmap(core_tensor_function function, void *user,
                      const core_vmap_options *options,
                      core_tensor *const *inputs, size_t ninputs,
                      core_tensor **outputs, size_t noutputs)
{
    vmap v = {.function = function,
              .user = user,
              .inputs = inputs,
              .ninputs = ninputs,
              .outputs = outputs,
              .noutputs = noutputs,
              .size = -1};
    core_status status;

    for (size_t i = 0; outputs && i < noutputs; i++)
        outputs[i] = NULL;
    status = check(&v, options);
    if (status == CORE_OK)
        status = v.options.chunk && v.options.chunk < v.size
                     ? run_chunks(&v)
                     : run(&v, inputs, v.size, outputs);
    for (size_t i = 0; outputs && i < noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    core__free(v.batched);
    return status;
}
