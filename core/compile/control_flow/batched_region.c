/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records branches and loops inside core_vmap (batched_region.h). */

#include "compile/control_flow/batched_graph.h"
#include "compile/control_flow/batched_region.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "compile/control_flow/region_random.h"
#include "tensor/dtype.h"

#include <libcore/control_flow.h>
#include <libcore/ops.h>

#include <string.h>

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static bool is_of(const core__batching *batching, const core_tensor *tensor)
{
    return core__tensor_is_batched(tensor) && tensor->level == batching->level;
}

/* ------------------------------------------------------------ all samples -- */

/* One that does not depend on the sample, for each of them. */
static core_status repeat(core_tensor *tensor, int64_t samples,
                          core_tensor **out)
{
    int64_t sizes[CORE_MAX_NDIM + 1] = {samples};
    core_tensor *all = NULL;
    core_status status;

    memcpy(sizes + 1, tensor->sizes, tensor->ndim * sizeof *sizes);
    status = core_expand(tensor, sizes, tensor->ndim + 1u, false, &all);
    if (status == CORE_OK)
        status = core_clone(all, CORE_FORMAT_CONTIGUOUS, out);
    core_tensor_release(all);
    return status;
}

core_status core__batched_hold(const core__batching *batching,
                               core_tensor *tensor, bool mapped,
                               core_tensor **out)
{
    core_tensor *held = is_of(batching, tensor) ? tensor->held : tensor;

    *out = NULL;
    if (held != tensor && core__batched_is_mapped(tensor))
        return core_movedim(held, tensor->batch_dim, 0, out);
    if (mapped)
        return repeat(held, batching->size, out);
    *out = core_tensor_retain(held);
    return CORE_OK;
}

core_status core__batched_wrap(const core__batching *batching,
                               core_tensor *held, bool mapped,
                               core_tensor **out)
{
    return core__batched_new(held, mapped ? 0 : CORE__BATCH_NONE,
                             batching->level, out);
}

/* -------------------------------------------------------------- regions -- */

/* Calls the function as core_vmap does. */
static core_status call_inside(const core__batched *b,
                               const core__region *function,
                               core_tensor *const *inputs,
                               core_tensor **outputs)
{
    const uint32_t keys = (uint32_t)(CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST);
    core__thread *self = core__thread_self();
    const core__batching_state outside = {self->batching, self->included,
                                          self->excluded};
    core_tensor **wrapped =
        core__alloc_zero((function->ninputs + 1) * sizeof *wrapped);
    core_status status = CORE_OK;

    if (!wrapped)
        return core__error_memory(function->ninputs * sizeof *wrapped);
    for (size_t i = 0; i < function->ninputs && status == CORE_OK; i++)
        status = core__batched_wrap(b->batching, inputs[i], b->mapped[i],
                                    &wrapped[i]);
    if (status == CORE_OK) {
        self->batching = b->inside.batching;
        self->included |= (uint32_t)CORE__KEY_BATCHED;
        self->excluded = (self->excluded & ~keys) | (b->inside.excluded & keys);
        status = core__region_call(function, wrapped, outputs);
        core__batching_return(self, outside);
    }
    release_all(wrapped, function->ninputs);
    core__free(wrapped);
    return status;
}

/* Whether the output may be like this; else the recording fails. */
static core_status check_output(core__batched *b, const core__region *function,
                                size_t i, const core_tensor *output)
{
    bool own = is_of(b->batching, output);
    bool mapped = own && core__batched_is_mapped(output);

    b->graph = b->graph || (own && core__tensor_requires_grad(output));
    if (b->graph)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: it is recorded inside core_vmap, and %s reads a tensor that "
            "requires grad inside of that and is not an input, which cannot be "
            "recorded; pass it as an input",
            function->name, function->part);
    if (function->decides && mapped)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: the output of condition differs between the samples of "
            "core_vmap, which must have the same number of iterations; use "
            "core_where in the body",
            function->name);
    if (!mapped || b->results[i])
        return CORE_OK;
    b->results[i] = b->again = true;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: output %zu of %s depends on the sample",
                       function->name, i, function->part);
}

core_status core__batched_call(core__batched *b, uint32_t index,
                               core_tensor *const *inputs,
                               core_tensor **outputs, size_t *noutputs)
{
    const core__region *function = &b->functions[index];
    size_t count = function->noutputs;
    core_tensor **inner = core__alloc_zero((count + 1) * sizeof *inner);
    core_status status;

    if (!inner)
        return core__error_memory(count * sizeof *inner);
    *noutputs = count;
    status = call_inside(b, function, inputs, inner);
    for (size_t i = 0; i < count && status == CORE_OK; i++)
        status = check_output(b, function, i, inner[i]);
    for (size_t i = 0; i < count && status == CORE_OK; i++)
        status = core__batched_hold(b->batching, inner[i],
                                    !function->decides && b->results[i],
                                    &outputs[i]);
    release_all(inner, count);
    core__free(inner);
    if (status != CORE_OK)
        release_all(outputs, count);
    return status;
}

static core_status call_first(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    (void)ninputs;
    return core__batched_call(context, 0, inputs, outputs, noutputs);
}

static core_status call_second(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    (void)ninputs;
    return core__batched_call(context, 1, inputs, outputs, noutputs);
}

/* ------------------------------------------------------------- recording -- */

/* A branch that draws no random numbers is better recorded as operators. */
static core_status check_draws(core__batched *b,
                               const core__region_node *recorded)
{
    b->graph = !b->loop && !core__region_blocks(recorded->regions[0]) &&
               !core__region_blocks(recorded->regions[1]);
    return b->graph ? core__error(CORE_ERROR_UNSUPPORTED,
                                  "%s: it draws no random numbers",
                                  b->functions->name)
                    : CORE_OK;
}

/* What autograd inside of core_vmap differentiates, outside of it. */
static core_status record_differentiated(core__batched *b,
                                         core_tensor *predicate,
                                         core_tensor *const *held,
                                         core_tensor **outputs,
                                         void **out_gradient)
{
    core__region functions[] = {b->functions[0], b->functions[1]};
    core__region_node recorded;
    core_status status;

    for (int i = 0; i < 2; i++) {
        functions[i].function = i ? call_second : call_first;
        functions[i].context = b;
        functions[i].inputs = held;
    }
    status =
        core__region_record_inside(functions, predicate, outputs, &recorded);
    if (status == CORE_OK) {
        status = check_draws(b, &recorded);
        if (status == CORE_OK)
            status = core__batched_gradient_new(b, predicate, &recorded, held,
                                                out_gradient);
        if (status != CORE_OK)
            release_all(outputs, functions[1].noutputs);
    }
    core__region_node_drop(&recorded);
    return status;
}

/* Outside of the call, and inside of the one around it: a leaf of that, which keeps
 * the history outside of both. */
static core_status make_leaf(const core__batching *outer, core_tensor *held,
                             core_tensor **out)
{
    core__thread *self = core__thread_self();
    core__batching_state before;
    core_tensor *all = NULL;
    core_status status;

    if (is_of(outer, held) && core__tensor_requires_grad(held))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: it is recorded inside core_vmap inside "
                           "core_vmap, and autograd inside of both "
                           "differentiates it, which cannot be recorded",
                           CORE__WHILE_NAME);
    before = core__batching_leave(self, outer);
    status = core__batched_hold(outer, held, true, &all);
    core__batching_return(self, before);
    if (status == CORE_OK)
        status = core__batched_wrap(outer, all, true, out);
    core_tensor_release(all);
    return status == CORE_OK ? core_tensor_set_requires_grad(*out, true)
                             : status;
}

/* The loop outside of the call, without the history that the leaves give it. */
static core_status strip(const core__batching *outer, core_tensor *const *made,
                         size_t count, core_tensor **outputs)
{
    for (size_t i = 0; i < count; i++)
        if (is_of(outer, made[i]))
            CORE_TRY(core__batched_new(made[i]->held, made[i]->batch_dim,
                                       outer->level, &outputs[i]));
        else
            outputs[i] = core_tensor_retain(made[i]);
    return CORE_OK;
}

/* A loop in a call inside of another one, which autograd in the inner one
 * differentiates: autograd of the outer one records it from leaves. */
static core_status record_nested(core__batched *b, core_tensor *const *held,
                                 core_tensor **outputs, void **out_gradient)
{
    const core__batching *outer = core__thread_self()->batching;
    size_t n = b->functions[1].ninputs;
    core__batched_graph *graph;
    core_status status;

    status = core__batched_graph_new(core__thread_self()->trace,
                                     b->batching->level, n, n, &graph);
    for (size_t i = 0; i < n && status == CORE_OK; i++)
        if (core__dtype_is_floating(held[i]->dtype))
            status = make_leaf(outer, held[i], &graph->leaves[i]);
        else
            graph->leaves[i] = core_tensor_retain(held[i]);
    if (status == CORE_OK)
        status = core_while(call_first, call_second, b, graph->leaves, n,
                            graph->made);
    if (status == CORE_OK)
        status = strip(outer, graph->made, n, outputs);
    if (status == CORE_OK) {
        *out_gradient = graph;
        return CORE_OK;
    }
    release_all(outputs, n);
    core__batched_graph_drop(graph);
    return status;
}

/* Outside of core_vmap. */
static core_status record_once(core__batched *b, core_tensor *predicate,
                               core_tensor **outputs, void **out_gradient)
{
    const core__region *function = &b->functions[1];
    size_t count = function->ninputs;
    core_tensor **held = core__alloc_zero((count + 1) * sizeof *held);
    core_status status = CORE_OK;

    if (!held)
        return core__error_memory(count * sizeof *held);
    for (size_t i = 0; i < count && status == CORE_OK; i++)
        status = core__batched_hold(b->batching, function->inputs[i],
                                    b->mapped[i], &held[i]);
    if (status == CORE_OK && b->nested)
        status = record_nested(b, held, outputs, out_gradient);
    else if (status == CORE_OK && b->differentiates)
        status =
            record_differentiated(b, predicate, held, outputs, out_gradient);
    else if (status == CORE_OK)
        status = b->loop ? core_while(call_first, call_second, b, held, count,
                                      outputs)
                         : core_cond(predicate, call_first, call_second, b,
                                     held, count, outputs, function->noutputs);
    release_all(held, count);
    core__free(held);
    return status;
}

/* Until no further output depends on the sample. */
static core_status record_all(core__batched *b, core_tensor *predicate,
                              core_tensor **outputs, void **out_gradient)
{
    core__thread *self = core__thread_self();
    core_status status;

    do {
        if (b->again)
            core_error_clear();
        b->again = false;
        b->inside = core__batching_leave(self, b->batching);
        status = record_once(b, predicate, outputs, out_gradient);
        core__batching_return(self, b->inside);
    } while (status != CORE_OK && b->again);
    return status;
}

/* The gradient of a loop inside has samples for each floating tensor that a turn
 * passes to the next, that of a branch for each one that requires grad. */
static core_status differentiate(core__batched *b)
{
    const core__region *body = &b->functions[1];

    b->differentiates = b->loop || !b->batching->outer;
    b->nested = b->loop && b->batching->outer;
    b->graph = !b->differentiates;
    if (b->graph)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: it is recorded inside core_vmap inside core_vmap, and "
            "autograd inside of that differentiates it, which cannot be "
            "recorded; differentiate outside",
            body->name);
    for (size_t i = 0; i < body->ninputs; i++)
        if (b->loop ? core__dtype_is_floating(body->inputs[i]->dtype)
                    : core__tensor_requires_grad(body->inputs[i]))
            b->mapped[i] = true;
    return CORE_OK;
}

static core_status check_inputs(core__batched *b)
{
    const core__region *function = &b->functions[1];
    bool graph = false;

    for (size_t i = 0; i < function->ninputs; i++) {
        core_tensor *input = function->inputs[i];
        bool own = is_of(b->batching, input);

        b->mapped[i] = own && core__batched_is_mapped(input);
        graph = graph || (own && core__tensor_requires_grad(input));
    }
    return graph && !core__thread_self()->no_grad ? differentiate(b) : CORE_OK;
}

/* Inside of core_vmap. */
static core_status wrap_all(const core__batched *b, core_tensor **outputs)
{
    core_status status = CORE_OK;

    for (size_t i = 0; i < b->functions[1].noutputs && status == CORE_OK; i++) {
        core_tensor *held = outputs[i];

        outputs[i] = NULL;
        status =
            core__batched_wrap(b->batching, held, b->results[i], &outputs[i]);
        core_tensor_release(held);
    }
    return status;
}

static core_status record_batched(core__batched *b, core_tensor *predicate,
                                  core_tensor **outputs)
{
    size_t inputs = b->functions[1].ninputs, count = b->functions[1].noutputs;
    void *gradient = NULL;
    core_status status;

    b->mapped = core__alloc_zero(inputs + count + 1);
    if (!b->mapped)
        return core__error_memory(inputs + count);
    b->results = b->loop ? b->mapped : b->mapped + inputs;
    status = check_inputs(b);
    if (status == CORE_OK)
        status = record_all(b, predicate, outputs, &gradient);
    if (status == CORE_OK)
        status = wrap_all(b, outputs);
    if (gradient && status == CORE_OK)
        status =
            b->nested
                ? core__batched_graph_record(gradient, b->functions[1].name,
                                             b->functions[1].inputs, outputs)
                : core__batched_gradient_record(b, gradient, outputs);
    else if (b->nested)
        core__batched_graph_drop(gradient);
    else
        core__batched_gradient_drop(gradient);
    core__free(b->mapped);
    if (status != CORE_OK)
        release_all(outputs, count);
    return status;
}

core_status core__batched_branch(const core__region *branches,
                                 core_tensor *predicate, core_tensor **outputs,
                                 bool *out_inside)
{
    core__batched b = {.functions = branches,
                       .batching = core__thread_self()->batching};
    core_status status;

    if (is_of(b.batching, predicate))
        predicate = predicate->held;
    status = record_batched(&b, predicate, outputs);
    *out_inside = status != CORE_OK && b.graph;
    return status;
}

core_status core__batched_loop(const core__region *functions,
                               core_tensor **outputs)
{
    core__batched b = {.functions = functions,
                       .batching = core__thread_self()->batching,
                       .loop = true};

    return record_batched(&b, NULL, outputs);
}
