/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* --compile: the whole step as one compiled function. */

#include "train.h"

#include <libcore/compiled.h>

#include <stdlib.h>
#include <string.h>

const char *const train_compile_modes[TRAIN_COMPILE_MODES] = {
    [CORE_COMPILE_DEFAULT] = "default",
    [CORE_COMPILE_REDUCE_OVERHEAD] = "reduce-overhead",
    [CORE_COMPILE_MAX_AUTOTUNE] = "max-autotune",
};

/* The function that is compiled.  Inputs: the samples and their labels; output:
 * the loss. */
static core_status step(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    (void)ninputs;
    *noutputs = 1;
    return trainer_step(context, inputs[0], inputs[1], 0, &outputs[0]);
}

/* A program writes gradients to buffers that exist before. */
static core_status allocate_gradients(trainer *t)
{
    for (size_t i = 0; i < t->model.count; i++) {
        core_tensor *parameter = t->model.parameters[i], *grad;
        core_status status;

        CORE_TRY(core_zeros_like(parameter, CORE_DTYPE_NONE, NULL, -1, &grad));
        status = core_tensor_set_grad(parameter, grad);
        core_tensor_release(grad);
        CORE_TRY(status);
    }
    return CORE_OK;
}

core_status train_compile_create(trainer *t)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .mode = t->options.compile};

    if (!t->options.compiles)
        return CORE_OK;
    CORE_TRY(core_compile(step, t, &options, &t->compiled));
    return allocate_gradients(t);
}

/* Destinations replace what is in the buffers. */
core_status train_compile_backward(const trainer *t, core_tensor *loss)
{
    size_t count = t->model.count;
    core_gradient_destination *to = calloc(count + 1, sizeof *to);
    core_status status;

    if (!to)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for the gradients");
    for (size_t i = 0; i < count; i++)
        to[i] = (core_gradient_destination){
            .struct_size = sizeof *to,
            .input = t->model.parameters[i],
            .buffer = core_tensor_grad(t->model.parameters[i])};
    status = core_backward_into(&loss, 1, NULL, 0, to, count);
    free(to);
    return status;
}

/* Appends the next string after a key of a JSON text, without escapes; returns
 * its end, or NULL. */
static const char *append_string(const char *json, const char *key, char *to,
                                 size_t capacity)
{
    const char *at = strstr(json, key);
    size_t size = strlen(to);

    if (!at)
        return NULL;
    at += strlen(key);
    if (*at++ != '"') /* null */
        return at;
    for (; *at && *at != '"'; at++) {
        at += *at == '\\' && at[1];
        if (size + 1 < capacity)
            to[size++] = *at;
    }
    to[size] = 0;
    return at;
}

/* The breaks of core_compiled_explain as a text. */
static void describe_breaks(const char *json, char *to, size_t capacity)
{
    const char *at = strstr(json, "\"breaks\": ["), *end;

    to[0] = 0;
    end = at ? strstr(at, "\"entries\": [") : NULL;
    while (at && end) {
        const char *next = strstr(at, "\"operator\": ");
        size_t size = strlen(to);
        long long count = 0;

        if (!next || next > end)
            return;
        snprintf(to + size, capacity - size, "%s", size ? "; " : "");
        size = strlen(to);
        at = append_string(next, "\"operator\": ", to, capacity);
        if (strlen(to) > size && strlen(to) + 3 < capacity)
            strcat(to, ": ");
        at = append_string(at, "\"reason\": ", to, capacity);
        at = at ? strstr(at, "\"count\": ") : NULL;
        if (at)
            count = strtoll(at + strlen("\"count\": "), NULL, 10);
        size = strlen(to);
        snprintf(to + size, capacity - size, " (%lld steps)", count);
    }
}

core_status train_compile_result(const trainer *t, train_compile_counts *out)
{
    core_compile_counts counts = {.struct_size = sizeof counts};
    char *json;

    memset(out, 0, sizeof *out);
    CORE_TRY(core_compile_get_counts(&counts));
    out->compiled = (int64_t)counts.compiled_calls;
    out->eager = (int64_t)counts.eager_calls;
    out->traces = (int64_t)counts.traces;
    out->programs = (int64_t)counts.programs;
    out->graph_launches = (int64_t)counts.graph_launches;
    out->trace_seconds = (double)counts.trace_ns * 1e-9;
    CORE_TRY(core_compiled_explain(t->compiled, &json));
    describe_breaks(json, out->reasons, sizeof out->reasons);
    core_text_free(json);
    return CORE_OK;
}
