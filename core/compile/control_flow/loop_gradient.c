/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of a loop: its turns are run again, and what each begins with is
 * kept; then their gradients are computed from the last turn to the first. */

#include "compile/control_flow/loop_second_derivative.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/thread.h"

#include <libcore/ops.h>

#include <string.h>

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

/* What the turns begin with, one after the other. */
typedef struct stack {
    core_tensor **tensors; /* with references */
    size_t width, turns, capacity;
    const core__region_random *random; /* NULL: the turns draw no numbers */
    core__generator_state *states;     /* of its generators, by turn: after
                                        * the condition */
} stack;

static core_status reserve_states(stack *s, size_t capacity)
{
    size_t size =
        s->random ? capacity * s->random->count * sizeof *s->states : 0;
    core__generator_state *larger;

    if (!size)
        return CORE_OK;
    larger = core__realloc(s->states, size);
    if (!larger)
        return core__error_memory(size);
    s->states = larger;
    return CORE_OK;
}

static core_status push(const char *name, stack *s, core_tensor **state)
{
    int64_t limit;

    CORE_TRY(core__setting_integer(CORE__SETTING_LOOP_ITERATIONS, &limit));
    if (s->turns > (size_t)limit) /* turns that have ended */
        return core__error(
            CORE_ERROR_OUT_OF_MEMORY,
            "%s: more than %lld iterations, whose inputs it would keep; "
            "LIBCORE_LOOP_ITERATIONS sets the limit",
            name, (long long)limit);
    if (s->turns == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        size_t size = capacity * s->width * sizeof *s->tensors;
        core_tensor **larger = core__realloc(s->tensors, size + 1);

        if (!larger)
            return core__error_memory(size);
        s->tensors = larger;
        CORE_TRY(reserve_states(s, capacity));
        s->capacity = capacity;
    }
    for (size_t i = 0; i < s->width; i++)
        s->tensors[s->turns * s->width + i] = core_tensor_retain(state[i]);
    s->turns++;
    return CORE_OK;
}

static void pop(stack *s)
{
    s->turns--;
    release_all(s->tensors + s->turns * s->width, s->width);
}

/* With what the body of the turn begins. */
static void keep_generators(stack *s)
{
    if (s->random)
        core__region_random_get(s->random,
                                s->states + (s->turns - 1) * s->random->count);
}

static core_status run_turns(const core__region *functions, const char *name,
                             core_tensor **state, stack *s)
{
    bool more = true;

    while (more) {
        CORE_TRY(push(name, s, state));
        CORE_TRY(core__region_loop_decide(&functions[0], state, &more));
        keep_generators(s);
        if (more)
            CORE_TRY(core__region_loop_step(&functions[1], state));
    }
    pop(s); /* the loop ends with it */
    return CORE_OK;
}

/* grads: of the results of the turn; replaced by those of what it begins with,
 * and after them sums. */
static core_status turn_back(const core__region *gradient,
                             core_tensor *const *state, size_t nstate,
                             core_tensor **grads)
{
    size_t n = gradient->ninputs, count = gradient->noutputs, m = n - nstate;
    core_tensor **inputs = core__alloc((n + count + 1) * sizeof *inputs);
    core_tensor **outputs = inputs + n;
    core_status status;

    if (!inputs)
        return core__error_memory(n * sizeof *inputs);
    memcpy(inputs, state, nstate * sizeof *inputs);
    memcpy(inputs + nstate, grads, m * sizeof *inputs);
    status = core__region_call(gradient, inputs, outputs);
    for (size_t i = 0; i < count && status == CORE_OK; i++) {
        if (i >= m && grads[i]) {
            status = core_add_(grads[i], outputs[i], core_int(1));
            continue;
        }
        core_tensor_release(grads[i]);
        grads[i] = outputs[i];
        outputs[i] = NULL;
    }
    release_all(outputs, count);
    core__free(inputs);
    return status;
}

static core_status run(const core__region *functions,
                       core_tensor *const *tensors,
                       const core__region_random *random, core_tensor **state,
                       core_tensor **grads)
{
    const core__region *gradient = &functions[2];
    stack s = {.width = functions[1].noutputs, .random = random};
    size_t m = gradient->ninputs - s.width;
    core_status status = core__region_loop_begin(tensors, s.width, state);

    if (status == CORE_OK)
        status = run_turns(functions, gradient->name, state, &s);
    for (size_t i = 0; i < m && status == CORE_OK; i++)
        grads[i] = core_tensor_retain(tensors[s.width + i]);
    while (s.turns && status == CORE_OK) {
        if (random)
            core__region_random_set(random,
                                    s.states + (s.turns - 1) * random->count);
        status = turn_back(gradient, s.tensors + (s.turns - 1) * s.width,
                           s.width, grads);
        pop(&s);
    }
    for (size_t i = 0; i < m && status == CORE_OK; i++)
        status = core__region_make_own(&grads[i]);
    while (s.turns)
        pop(&s);
    core__free(s.tensors);
    core__free(s.states);
    return status;
}

core_status core__region_loop_gradient(const core__region *functions,
                                       core_tensor *const *tensors,
                                       const core__region_random *random,
                                       core_tensor **outputs)
{
    size_t n = functions[1].noutputs;
    core_tensor **state = core__alloc_zero((n + 1) * sizeof *state);
    core_status status;

    if (!state)
        return core__error_memory(n * sizeof *state);
    status = run(functions, tensors, random, state, outputs);
    release_all(state, n);
    core__free(state);
    if (status != CORE_OK)
        release_all(outputs, functions[2].noutputs);
    return status;
}

static core_status record_node(core__region_node *r,
                               const core__region *functions,
                               core_tensor *const *tensors)
{
    bool before = core_grad_mode_set(false);
    core_status status;

    pthread_mutex_lock(&r->trace->lock);
    status = core__region_node_begin(r, tensors, functions[2].ninputs);
    for (uint32_t k = 0; k < CORE__REGIONS_MAX && status == CORE_OK; k++)
        status = core__region_node_record(r, &functions[k], k);
    if (status == CORE_OK)
        status = core__region_node_add(r);
    pthread_mutex_unlock(&r->trace->lock);
    core_grad_mode_set(before);
    return status;
}

/* Whether autograd records what is computed of the tensors or the sources. */
static bool has_derivative(const core__region_node *r,
                           core_tensor *const *tensors, size_t count)
{
    bool any = r->nsources > 0;

    for (size_t i = 0; i < count; i++)
        any = any || core__tensor_requires_grad(tensors[i]);
    return any && !core__thread_self()->no_grad;
}

/* In the program that is recorded. */
static core_status record(const core__region *functions,
                          core_tensor *const *tensors, core_tensor *random,
                          core_tensor **outputs)
{
    const core__region *gradient = &functions[2];
    core__region_node r = {.trace = core__thread_self()->trace,
                           .name = CORE__WHILE_BACKWARD_NAME,
                           .state = core_tensor_retain(random),
                           .replays = random != NULL,
                           .outputs = outputs,
                           .noutputs = gradient->noutputs};
    core_status status = record_node(&r, functions, tensors);

    if (status == CORE_OK && has_derivative(&r, tensors, gradient->ninputs))
        status = core__loop_second_record(&r, tensors, functions[1].noutputs,
                                          outputs);
    core__region_node_drop(&r);
    return status;
}

core_status core__region_loop_backward(const core__region *functions,
                                       core_tensor *const *tensors,
                                       core_tensor *random_state,
                                       const core__region_random *random,
                                       core_tensor **outputs)
{
    core_status status;

    if (!core__thread_self()->trace)
        return core__region_loop_gradient(functions, tensors, random, outputs);
    status = record(functions, tensors, random_state, outputs);
    if (status != CORE_OK)
        release_all(outputs, functions[2].noutputs);
    return status;
}
