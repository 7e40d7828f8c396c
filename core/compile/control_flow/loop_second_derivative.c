/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records the derivatives of the gradient of a loop (loop_second_derivative.h). */

#include "compile/control_flow/loop_second_derivative.h"
#include "compile/control_flow/region_saved.h"

#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

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

/* ------------------------------------------------------------- recording -- */

/* What the node of the graph has. */
typedef struct second {
    core__region_node node; /* of the gradient, with references */
    size_t nstate, ntangents, nmade, nresults;
    uint32_t *made;   /* the values of the gradients */
    uint32_t *values; /* by result: of what it is the gradient */
    /* By result after those of inputs: the source; CORE__NO_VALUE: none. */
    uint32_t *sources;
    core__program_type *types; /* by result */
} second;

static void drop(void *context)
{
    second *s = context;

    core__region_node_drop(&s->node);
    core__free(s->types);
    core__free(s);
}

/* The region node with references of its own. */
static core_status copy_node(second *s, const core__region_node *from)
{
    core__region_node *to = &s->node;

    to->trace = from->trace;
    to->name = CORE__WHILE_SECOND_NAME;
    to->nregions = from->nregions;
    to->arguments = from->arguments;
    to->state = core_tensor_retain(from->state);
    for (uint32_t k = 0; k < CORE__REGIONS_MAX; k++) {
        const core__region_captured *captured = &from->captured[k];
        size_t size = (captured->count + 1) * sizeof(core_tensor *);

        to->regions[k] = core_program_retain(from->regions[k]);
        to->captured[k].values = captured->values;
        to->captured[k].tensors = core__alloc_zero(size);
        if (!to->captured[k].tensors)
            return core__error_memory(size);
        to->captured[k].count = captured->count;
        for (uint32_t i = 0; i < captured->count; i++)
            to->captured[k].tensors[i] =
                core_tensor_retain(captured->tensors[i]);
    }
    for (uint32_t i = 0; i < from->nsources; i++) {
        core_tensor **added =
            core__program_grow(&to->sources, &to->nsources, sizeof *added);

        if (!added)
            return core__error_memory(sizeof *added);
        *added = core_tensor_retain(from->sources[i]);
    }
    return core__region_captured_note(to, BODY);
}

static void add_result(second *s, uint32_t value, uint32_t source)
{
    s->sources[s->nresults] = source;
    s->values[s->nresults++] = value;
}

static uint32_t source_of(const core__region_node *recorded,
                          const core_tensor *tensor)
{
    for (uint32_t i = 0; i < recorded->nsources; i++)
        if (recorded->sources[i] == tensor)
            return i;
    return CORE__NO_VALUE;
}

/* Views have a history of their own, which reading the whole loses. */
static core_status check_sources(const second *s,
                                 const core__region_node *recorded)
{
    for (uint32_t i = 0; i < recorded->nsources; i++) {
        bool found = false;

        for (size_t k = 0; k < s->nresults; k++)
            found = found || s->sources[k] == i;
        if (!found)
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "%s: the second derivative of a recorded loop "
                               "that reads a view which requires grad cannot "
                               "be recorded; pass the view as an input",
                               CORE__WHILE_BACKWARD_NAME);
    }
    return CORE_OK;
}

/* Of what the node computes gradients, in the order of its results. */
static core_status list_results(second *s, const core__region_node *recorded,
                                core_tensor *const *inputs)
{
    const uint32_t *values = recorded->arguments[CORE__REGION_INPUTS].u.values;

    for (size_t i = 0; i < s->nstate + s->ntangents; i++)
        if (i >= s->nstate || is_float(inputs[i]))
            add_result(s, values[i], CORE__NO_VALUE);
    for (uint32_t k = BODY; k <= GRADIENT; k++)
        for (uint32_t i = 0; i < recorded->captured[k].count; i++)
            if (is_float(recorded->captured[k].tensors[i]))
                add_result(
                    s, recorded->captured[k].values[i],
                    source_of(recorded, recorded->captured[k].tensors[i]));
    return check_sources(s, recorded);
}

/* Results are row-major. */
static core_status set_types(second *s)
{
    core_program *program = s->node.trace->program;

    for (size_t i = 0; i < s->nresults; i++) {
        const core__program_type *of = &program->values[s->values[i]].type;
        int64_t sizes[CORE_MAX_NDIM], strides[CORE_MAX_NDIM];

        memcpy(sizes, core__type_sizes(of), of->ndim * sizeof *sizes);
        core__layout_contiguous(of->ndim, sizes, strides);
        CORE_TRY(core__program_type_set(program, of->dtype, of->ndim, sizes,
                                        strides, of->device, &s->types[i]));
    }
    return CORE_OK;
}

static core_status read_made(second *s, core_tensor *const *made)
{
    for (size_t i = 0; i < s->nmade; i++)
        CORE_TRY(core__traced_read(s->node.trace, NULL, made[i], &s->made[i]));
    return CORE_OK;
}

static core_status new_second(const core__region_node *recorded, size_t nstate,
                              size_t ninputs, second **out)
{
    second *s = core__alloc_zero(sizeof *s);
    size_t most = ninputs + recorded->captured[BODY].count +
                  recorded->captured[GRADIENT].count;
    size_t nmade = recorded->noutputs;
    size_t size = most * (sizeof *s->types + 2 * sizeof *s->values) +
                  (nmade + 1) * sizeof *s->made;

    *out = s;
    if (!s)
        return core__error_memory(sizeof *s);
    s->nstate = nstate;
    s->ntangents = ninputs - nstate;
    s->nmade = nmade;
    s->types = core__alloc_zero(size);
    if (!s->types)
        return core__error_memory(size);
    s->values = (uint32_t *)(void *)(s->types + most);
    s->sources = s->values + most;
    s->made = s->sources + most;
    return copy_node(s, recorded);
}

/* Zeros where no gradient came. */
static core_status tangent_of(const second *s, size_t i, core_tensor *grad,
                              core_tensor **out)
{
    const core_program *program = s->node.trace->program;
    const core__program_type *type = &program->values[s->made[i]].type;

    if (grad) {
        *out = core_tensor_retain(grad);
        return CORE_OK;
    }
    return core_zeros(core__type_sizes(type), type->ndim,
                      (core_dtype)type->dtype, program->devices[type->device],
                      out);
}

static core_status read_row_major(core__trace *trace, core_tensor *tensor,
                                  uint32_t *out_value)
{
    core_tensor *copy;
    core_status status;

    CORE_TRY(core_clone(tensor, CORE_FORMAT_CONTIGUOUS, &copy));
    status = core__traced_read(trace, NULL, copy, out_value);
    core_tensor_release(copy);
    return status;
}

static core_status set_arguments(const second *s, core_tensor *const *tangents,
                                 core__region_node *node)
{
    core_program *program = node->trace->program;
    size_t before = s->nstate + s->ntangents, count = before + s->nmade;
    size_t size = (CORE__REGION_ARGUMENTS + 1) * sizeof *node->arguments;
    uint32_t *values = core__program_alloc(program, count * sizeof *values);

    node->arguments = core__program_alloc(program, size);
    if (!values || !node->arguments)
        return core__error_memory(size);
    memcpy(node->arguments, s->node.arguments, size);
    memcpy(values, s->node.arguments[CORE__REGION_INPUTS].u.values,
           before * sizeof *values);
    for (size_t i = 0; i < s->nmade; i++)
        CORE_TRY(read_row_major(node->trace, tangents[i], &values[before + i]));
    node->arguments[CORE__REGION_INPUTS].u.values = values;
    node->arguments[CORE__REGION_INPUTS].count = (uint32_t)count;
    return CORE_OK;
}

/* What two regions read has the sum of two gradients. */
static core_status add_gradient(core_tensor **sum, core_tensor *result)
{
    core_tensor *before = *sum;
    core_status status = CORE_OK;

    if (!before) {
        *sum = core_tensor_retain(result);
        return CORE_OK;
    }
    *sum = NULL;
    status = core_add(before, result, core_int(1), sum);
    core_tensor_release(before);
    return status;
}

/* gradients: of the inputs of the function that was recorded. */
static core_status give_gradients(const second *s, core_node *node,
                                  core_tensor **results,
                                  core_tensor **gradients)
{
    const core_program *program = s->node.trace->program;
    const uint32_t *inputs = s->node.arguments[CORE__REGION_INPUTS].u.values;
    size_t ninputs = s->nstate + s->ntangents, next = 0;

    for (size_t i = 0; i < ninputs; i++) {
        uint8_t dtype = program->values[inputs[i]].type.dtype;

        if (i < s->nstate && !core__dtype_is_floating((core_dtype)dtype))
            continue;
        if (core_node_needs_gradient(node, i))
            gradients[i] = core_tensor_retain(results[next]);
        next++;
    }
    for (; next < s->nresults; next++) {
        size_t to = ninputs + s->sources[next];

        if (s->sources[next] != CORE__NO_VALUE &&
            core_node_needs_gradient(node, to))
            CORE_TRY(add_gradient(&gradients[to], results[next]));
    }
    return CORE_OK;
}

/* r: the node, of which the results become outputs. */
static core_status add_node(const second *s, core_tensor *const *tangents,
                            core_tensor **results, core__region_node *r)
{
    bool before = core_grad_mode_set(false);
    core_status status;

    *r = s->node;
    r->outputs = results;
    r->noutputs = s->nresults;
    r->types = s->types;
    pthread_mutex_lock(&r->trace->lock);
    status = set_arguments(s, tangents, r);
    if (status == CORE_OK)
        status = core__region_node_add(r);
    pthread_mutex_unlock(&r->trace->lock);
    core_grad_mode_set(before);
    return status;
}

/* inputs: space for those of the node.  results: to be released. */
static core_status differentiate_again(const second *s, core_node *node,
                                       core_tensor *const *grads,
                                       core_tensor **inputs,
                                       core_tensor **results)
{
    size_t n = s->nstate + s->ntangents;
    core__region_node added;

    for (size_t i = 0; i < n; i++)
        CORE_TRY(core__region_saved_get(node, i, &inputs[i]));
    for (size_t i = 0; i < s->nmade; i++)
        CORE_TRY(tangent_of(s, i, grads[i], &inputs[n + i]));
    CORE_TRY(add_node(s, inputs + n, results, &added));
    return core_grad_mode()
               ? core__loop_second_record(&added, inputs, s->nstate, results)
               : CORE_OK;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const second *s = context;
    size_t count = s->nstate + s->ntangents + s->nmade;
    core_tensor **inputs, **results;
    core_status status;

    (void)ngrads;
    (void)ngradients;
    if (core__thread_self()->trace != s->node.trace)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the program that contains it is not being "
                           "recorded any more",
                           core_node_name(node));
    CORE_TRY(core__region_captured_check(&s->node, node));
    inputs = core__alloc_zero((count + s->nresults + 1) * sizeof *inputs);
    if (!inputs)
        return core__error_memory((count + s->nresults) * sizeof *inputs);
    results = inputs + count;
    status = differentiate_again(s, node, grads, inputs, results);
    if (status == CORE_OK)
        status = give_gradients(s, node, results, gradients);
    release_all(inputs, count + s->nresults);
    core__free(inputs);
    return status;
}

static core_status record(second *s, const core__region_node *recorded,
                          core_tensor *const *inputs, core_tensor **made)
{
    const core_function_info info = {.struct_size = sizeof info,
                                     .name = CORE__WHILE_BACKWARD_NAME,
                                     .backward = backward,
                                     .release = drop,
                                     .context = s};
    size_t n = s->nstate + s->ntangents, count = n + recorded->nsources;
    core_tensor **tensors = core__alloc((count + 1) * sizeof *tensors);
    core_status status;

    if (!tensors) {
        drop(s);
        return core__error_memory(count * sizeof *tensors);
    }
    memcpy(tensors, inputs, n * sizeof *tensors);
    if (recorded->nsources)
        memcpy(tensors + n, recorded->sources,
               recorded->nsources * sizeof *tensors);
    status = core_function_record(&info, tensors, count, inputs, n, made,
                                  s->nmade, NULL);
    core__free(tensors);
    return status;
}

core_status core__loop_second_record(const core__region_node *recorded,
                                     core_tensor *const *inputs, size_t nstate,
                                     core_tensor **made)
{
    size_t ninputs = recorded->arguments[CORE__REGION_INPUTS].count;
    second *s;
    core_status status = new_second(recorded, nstate, ninputs, &s);

    if (status == CORE_OK)
        status = list_results(s, recorded, inputs);
    if (status == CORE_OK)
        status = set_types(s);
    if (status == CORE_OK)
        status = read_made(s, made);
    if (status == CORE_OK)
        return record(s, recorded, inputs, made);
    if (s)
        drop(s);
    return status;
}
