/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compiled.h: compares a compiled function with calls of the function itself. */

#ifndef TESTS_SUPPORT_COMPILED_H
#define TESTS_SUPPORT_COMPILED_H

#include "program.h"

#include <libcore/compiled.h>
#include <libcore/dispatch.h>

/* The body of a function: w is its world, x its inputs, out its outputs.  Not
 * every test uses those of training.h. */
#define COMPILED_FUNCTION(name)                                                \
    static inline core_status name##_body(                                     \
        world *w, core_tensor *const *x, core_tensor **out, size_t *noutputs); \
    static inline core_status name(void *context, core_tensor *const *x,       \
                                   size_t n, core_tensor **out,                \
                                   size_t *noutputs)                           \
    {                                                                          \
        (void)n;                                                               \
        return name##_body(context, x, out, noutputs);                         \
    }                                                                          \
    static inline core_status name##_body(                                     \
        world *w __attribute__((unused)),                                      \
        core_tensor *const *x __attribute__((unused)),                         \
        core_tensor **out __attribute__((unused)), size_t *noutputs)

/* Sets struct_size of the options. */
static inline core_compiled *compile_with(core_tensor_function function,
                                          void *context,
                                          core_compile_options options)
{
    core_compiled *compiled;

    options.struct_size = sizeof options;
    OK(core_compile(function, context, &options, &compiled));
    return compiled;
}

static inline core_compiled *compile_fully(core_tensor_function function,
                                           void *context)
{
    return compile_with(
        function, context,
        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH});
}

/* A registered function that changes nothing; user: an int, its calls. */
static inline core_status count_and_pass_on(core_call *call,
                                            const core_value *args,
                                            uint32_t nargs, core_value *results,
                                            uint32_t nresults)
{
    ++*(int *)call->user;
    return core_redispatch_displaced(call, args, nargs, results, nresults);
}

static inline core_compile_counts compile_counts(void)
{
    core_compile_counts counts = {.struct_size = sizeof counts};

    OK(core_compile_get_counts(&counts));
    return counts;
}

/* Calls the function, or its compiled form if that is not NULL. */
static inline size_t call_world(core_tensor_function function, world *w,
                                core_compiled *compiled, size_t count,
                                core_tensor **out)
{
    core_seed(17);
    if (compiled)
        OK(core_compiled_call(compiled, w->inputs, w->ninputs, out, count));
    else
        OK(function(w, w->inputs, w->ninputs, out, &count));
    return count;
}

/* Calls the function and its compiled form, each in its world, and compares all
 * tensors. */
static inline void same_call(core_tensor_function function, world *eager,
                             core_compiled *compiled, world *traced)
{
    core_tensor *a[WORLD_OUTPUTS] = {NULL}, *b[WORLD_OUTPUTS] = {NULL};
    size_t count = call_world(function, eager, NULL, WORLD_OUTPUTS, a);
    uint64_t offset = random_offset();

    call_world(function, traced, compiled, count, b);
    ck_assert_uint_eq(offset, random_offset());
    same_worlds(eager, a, traced, b, count);
    release_tensors(a, count);
    release_tensors(b, count);
}

/* True if the JSON text of a compiled function contains a text. */
static inline bool explains(core_compiled *compiled, const char *text)
{
    char *json;
    bool found;

    OK(core_compiled_explain(compiled, &json));
    found = strstr(json, text) != NULL;
    core_text_free(json);
    return found;
}

#define EXPLAINS(compiled, text)                \
    ck_assert_msg(explains((compiled), (text)), \
                  "explain does not contain \"%s\"", text)

#endif
