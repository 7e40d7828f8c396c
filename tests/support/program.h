/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* program.h: compares a function with the program that is recorded from it: the
 * bits, strides and aliases of all outputs, inputs and hidden inputs, after
 * several calls. */

#ifndef TESTS_SUPPORT_PROGRAM_H
#define TESTS_SUPPORT_PROGRAM_H

#include "autograd.h"

#include "compile/prepare/prepared.h"

#include <libcore/compile.h>
#include <libcore/device.h>
#include <libcore/random.h>

enum { WORLD_TENSORS = 8, WORLD_OUTPUTS = 16, WORLD_CALLS = 2 };

/* What a function works on: once for eager calls, once for the program. */
typedef struct world {
    core_device *device;
    core_tensor *inputs[WORLD_TENSORS];
    size_t ninputs;
    core_tensor *hidden[WORLD_TENSORS]; /* for the function's own use */
    size_t nhidden;
    core_generator *generator;
    uint64_t seed;
} world;

typedef struct program_case {
    void (*make)(world *w);        /* the tensors belong to the test's pool */
    core_tensor_function function; /* context: the world */
} program_case;

static core_device *program_device;

static inline void on_cpu(void)
{
    OK(core_device_find("cpu", &program_device));
}

static inline void on_sim(void)
{
    OK(core_device_find("sim", &program_device));
}

/* Defines main, which runs the tests on both devices. */
#define SUITE_ON_CPU_AND_SIM(title, ...)                          \
    int main(void)                                                \
    {                                                             \
        const TTest *const tests[] = {__VA_ARGS__};               \
        const test_suite suites[] = {                             \
            {.name = title " on cpu",                             \
             .setup = on_cpu,                                     \
             .teardown = drop_all,                                \
             SUITE_TESTS(tests)},                                 \
            {.name = title " on sim",                             \
             .setup = on_sim,                                     \
             .teardown = drop_all,                                \
             SUITE_TESTS(tests)},                                 \
        };                                                        \
                                                                  \
        return suite_run(suites, sizeof suites / sizeof *suites); \
    }

/* Of the random function that is compared, for messages. */
static unsigned long long program_seed;

static inline void mark_seed(uint64_t seed)
{
    program_seed = seed;
}

/* f32, from a formula, so that both worlds are equal. */
static inline core_tensor *numbers_on(core_device *device, size_t ndim,
                                      const int64_t *sizes, uint32_t from)
{
    float values[1024];
    int64_t numel = 1;
    core_tensor *tensor;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    ck_assert_int_le(numel, 1024);
    for (int64_t i = 0; i < numel; i++)
        values[i] =
            (float)((int)((from + (uint32_t)i) * 2654435761u >> 20) - 2048) /
            1024;
    OK(core_tensor_from_data(values, CORE_F32, sizes, ndim, device, &tensor));
    return keep(tensor);
}

#define NUMBERS(w, from, ...)                                                 \
    numbers_on((w)->device, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), \
               (int64_t[]){__VA_ARGS__}, from)

/* A world of matrices that differ. */
static inline world world_of(size_t ninputs, int64_t rows, int64_t columns)
{
    world w = {.device = program_device, .ninputs = ninputs};

    for (size_t i = 0; i < ninputs; i++)
        w.inputs[i] = NUMBERS(&w, 1 + 40 * (uint32_t)i, rows, columns);
    return w;
}

static inline void same_bits(const char *what, size_t index, core_tensor *a,
                             core_tensor *b)
{
    size_t size =
        (size_t)core_tensor_numel(a) * core_dtype_size(core_tensor_dtype(a));
    unsigned char *bits_a = malloc(size + 1), *bits_b = malloc(size + 1);
    bool equal;

    ck_assert_int_eq(core_tensor_dtype(a), core_tensor_dtype(b));
    ck_assert_uint_eq(core_tensor_ndim(a), core_tensor_ndim(b));
    for (uint32_t i = 0; i < core_tensor_ndim(a); i++) {
        ck_assert_int_eq(core_tensor_sizes(a)[i], core_tensor_sizes(b)[i]);
        if (core_tensor_sizes(a)[i] > 1)
            ck_assert_msg(core_tensor_strides(a)[i] ==
                              core_tensor_strides(b)[i],
                          "%s %zu: stride %u is %lld, not %lld", what, index, i,
                          (long long)core_tensor_strides(b)[i],
                          (long long)core_tensor_strides(a)[i]);
    }
    ck_assert_ptr_eq(core_tensor_device(a), core_tensor_device(b));
    OK(core_tensor_read(a, bits_a, size));
    OK(core_tensor_read(b, bits_b, size));
    equal = memcmp(bits_a, bits_b, size) == 0;
    free(bits_a);
    free(bits_b);
    ck_assert_msg(equal, "%s %zu differs (seed %llu)", what, index,
                  program_seed);
}

static inline void same_aliases(core_tensor *const *a, core_tensor *const *b,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++) {
            bool shares = core_tensor_shares_storage(a[i], a[k]);

            ck_assert_msg(shares == core_tensor_shares_storage(b[i], b[k]),
                          "tensors %zu and %zu: %s memory in the program", k, i,
                          shares ? "do not share" : "share");
            ck_assert_msg((a[i] == a[k]) == (b[i] == b[k]),
                          "tensors %zu and %zu: %s in the program (seed %llu)",
                          k, i, a[i] == a[k] ? "not the same" : "the same",
                          program_seed);
            if (shares)
                ck_assert_int_eq(
                    core_tensor_offset(a[i]) - core_tensor_offset(a[k]),
                    core_tensor_offset(b[i]) - core_tensor_offset(b[k]));
        }
}

/* All tensors of a world after a call: outputs, inputs, hidden inputs. */
static inline size_t gather(const world *w, core_tensor *const *outputs,
                            size_t noutputs, core_tensor **all)
{
    size_t count = 0;

    for (size_t i = 0; i < noutputs; i++)
        all[count++] = outputs[i];
    for (size_t i = 0; i < w->ninputs; i++)
        all[count++] = w->inputs[i];
    for (size_t i = 0; i < w->nhidden; i++)
        all[count++] = w->hidden[i];
    return count;
}

static inline void same_worlds(const world *eager, core_tensor *const *a,
                               const world *traced, core_tensor *const *b,
                               size_t noutputs)
{
    core_tensor *all_a[3 * WORLD_OUTPUTS], *all_b[3 * WORLD_OUTPUTS];
    size_t count = gather(eager, a, noutputs, all_a);

    ck_assert_uint_eq(count, gather(traced, b, noutputs, all_b));
    for (size_t i = 0; i < count; i++)
        same_bits(i < noutputs ? "output" : "input or hidden input",
                  i < noutputs ? i : i - noutputs, all_a[i], all_b[i]);
    same_aliases(all_a, all_b, count);
}

/* Whether programs are run by prepared calls, or operator by operator. */
static bool program_is_prepared;

static inline core_status run_world(core_program *program, const world *w,
                                    core_tensor **outputs, size_t noutputs)
{
    if (!program_is_prepared)
        return core_program_run(program, w->inputs, w->ninputs, outputs,
                                noutputs);
    return core__program_run_checked(program, w->inputs, outputs);
}

static inline core_program *trace_world(const program_case *c, world *w)
{
    core_program *program;

    OK(core_program_trace(c->function, w, w->inputs, w->ninputs, WORLD_OUTPUTS,
                          &program));
    OK(core_program_verify(program));
    return program;
}

static inline world make_world(const program_case *c)
{
    world w = {.device = program_device, .seed = 5};

    c->make(&w);
    return w;
}

/* The tensors of a world belong to the pool. */
static inline void end_world(world *w)
{
    core_generator_release(w->generator);
    w->generator = NULL;
}

/* Recording changes nothing. */
static inline void unchanged(const program_case *c, const world *traced)
{
    world fresh = make_world(c);

    same_worlds(&fresh, NULL, traced, NULL, 0);
    end_world(&fresh);
}

/* The counter blocks that the default generator has used. */
static inline uint64_t random_offset(void)
{
    uint64_t offset;

    core_generator_state(NULL, NULL, &offset);
    return offset;
}

static inline void compare_calls(const program_case *c, world *eager,
                                 world *traced, core_program *program)
{
    core_program_counts counts = {.struct_size = sizeof counts};

    OK(core_program_get_counts(program, &counts));
    for (int call = 0; call < WORLD_CALLS; call++) {
        core_tensor *a[WORLD_OUTPUTS] = {NULL}, *b[WORLD_OUTPUTS] = {NULL};
        size_t noutputs = WORLD_OUTPUTS;
        uint64_t offset;

        core_seed(17 + (uint64_t)call);
        OK(c->function(eager, eager->inputs, eager->ninputs, a, &noutputs));
        offset = random_offset();
        ck_assert_uint_eq(noutputs, counts.outputs);
        core_seed(17 + (uint64_t)call);
        OK(run_world(program, traced, b, noutputs));
        ck_assert_uint_eq(offset, random_offset());
        same_worlds(eager, a, traced, b, noutputs);
        release_tensors(a, noutputs);
        release_tensors(b, noutputs);
    }
}

/* Records the function and compares calls of both.  Returns the program, which
 * the caller releases. */
static inline core_program *compare_program(const program_case *c)
{
    world eager = make_world(c), traced = make_world(c);
    uint64_t before = random_offset();
    core_program *program = trace_world(c, &traced);

    ck_assert_uint_eq(before, random_offset());
    unchanged(c, &traced);
    compare_calls(c, &eager, &traced, program);
    end_world(&eager);
    end_world(&traced);
    return program;
}

static inline void compare(void (*make)(world *w),
                           core_tensor_function function)
{
    const program_case c = {make, function};

    core_program_release(compare_program(&c));
}

#endif
