/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_cond and core_while inside core_vmap in compiled functions: the bits of
 * calls without compilation, with gradients outside and inside, nested, and with
 * functions that read batched tensors by themselves. */

#include "support/compiled.h"

#include <libcore/control_flow.h>
#include <libcore/device.h>
#include <libcore/expressions.h>
#include <libcore/functional.h>
#include <libcore/transform.h>

enum { SAMPLES = 5, FEATURES = 4, CALLS = 4 };

/* Samples, a predicate of each, one for all.  Hidden: a weight, the turns. */
static world batched_world(void)
{
    static const uint8_t each[SAMPLES] = {1, 0, 1, 1, 0}, all = 1;
    const int64_t samples = SAMPLES, turns = 3;
    world w = {.device = program_device, .ninputs = 3, .nhidden = 2};

    w.inputs[0] = leaf(NUMBERS(&w, 1, SAMPLES, FEATURES));
    OK(core_tensor_from_data(each, CORE_BOOL, &samples, 1, program_device,
                             &w.inputs[1]));
    OK(core_tensor_from_data(&all, CORE_BOOL, NULL, 0, program_device,
                             &w.inputs[2]));
    w.hidden[0] = leaf(NUMBERS(&w, 50, FEATURES));
    OK(core_tensor_from_data(&turns, CORE_I64, NULL, 0, program_device,
                             &w.hidden[1]));
    keep(w.inputs[1]);
    keep(w.inputs[2]);
    keep(w.hidden[1]);
    return w;
}

/* tanh(x * weight), and the weight itself: the same for all samples. */
COMPILED_FUNCTION(scale)
{
    core_tensor *product = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &product);

    if (status == CORE_OK)
        status = core_tanh(product, &out[0]);
    if (status == CORE_OK)
        status = core_neg(w->hidden[0], &out[1]);
    core_tensor_release(product);
    *noutputs = 2;
    return status;
}

/* sum(x) + x twice: both depend on the sample. */
COMPILED_FUNCTION(shift)
{
    core_tensor *sum = NULL;
    core_status status = core_sum(x[0], CORE_DTYPE_NONE, &sum);

    for (int i = 0; i < 2 && status == CORE_OK; i++)
        status = core_add(x[0], sum, core_int(1), &out[i]);
    core_tensor_release(sum);
    *noutputs = 2;
    return status;
}

/* Of one sample: both outputs, multiplied. */
static core_status choose(world *w, core_tensor *predicate, core_tensor *x,
                          core_tensor **out)
{
    core_tensor *both[2] = {NULL};
    core_status status = core_cond(predicate, scale, shift, w, &x, 1, both, 2);

    if (status == CORE_OK)
        status = core_mul(both[0], both[1], out);
    core_tensor_release(both[0]);
    core_tensor_release(both[1]);
    return status;
}

COMPILED_FUNCTION(choose_for_all)
{
    *noutputs = 1;
    return choose(w, x[2], x[0], &out[0]);
}

COMPILED_FUNCTION(choose_for_each)
{
    *noutputs = 1;
    return choose(w, x[1], x[0], &out[0]);
}

/* The function reads the sample by itself. */
typedef struct reader {
    core_tensor *sample;
} reader;

static core_status read_sample(void *context, core_tensor *const *x, size_t n,
                               core_tensor **out, size_t *noutputs)
{
    const reader *r = context;

    (void)x;
    (void)n;
    *noutputs = 1;
    return core_exp(r->sample, &out[0]);
}

static core_status square_sample(void *context, core_tensor *const *x, size_t n,
                                 core_tensor **out, size_t *noutputs)
{
    const reader *r = context;

    (void)x;
    (void)n;
    *noutputs = 1;
    return core_mul(r->sample, r->sample, &out[0]);
}

COMPILED_FUNCTION(choose_without_inputs)
{
    reader r = {x[0]};

    *noutputs = 1;
    return core_cond(x[2], read_sample, square_sample, &r, NULL, 0, out, 1);
}

COMPILED_FUNCTION(is_below)
{
    *noutputs = 1;
    return core_lt(x[1], w->hidden[1], &out[0]);
}

/* The third part of the state begins without samples, and then has them. */
COMPILED_FUNCTION(turn)
{
    core_tensor *both[2] = {NULL};
    size_t two;
    core_status status = scale(w, x, 1, both, &two);

    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    if (status == CORE_OK)
        status = core_add(x[2], both[0], core_int(1), &out[2]);
    out[0] = both[0];
    core_tensor_release(both[1]);
    *noutputs = 3;
    return status;
}

COMPILED_FUNCTION(loop)
{
    core_tensor *state[3] = {x[0]}, *end[3] = {NULL};
    const int64_t features = FEATURES;
    core_status status =
        core_zeros(NULL, 0, CORE_I64, program_device, &state[1]);

    if (status == CORE_OK)
        status = core_zeros(&features, 1, CORE_F32, program_device, &state[2]);
    if (status == CORE_OK)
        status = core_while(is_below, turn, w, state, 3, end);
    if (status == CORE_OK)
        status = core_mul(end[0], end[2], &out[0]);
    core_tensor_release(state[1]);
    core_tensor_release(state[2]);
    release_tensors(end, 3);
    *noutputs = 1;
    return status;
}

/* core_vmap of these over the samples. */
static const core_tensor_function functions[] = {
    choose_for_all, choose_for_each, choose_without_inputs, loop};
enum { FUNCTIONS = sizeof functions / sizeof *functions };
static core_tensor_function mapped;

COMPILED_FUNCTION(maps)
{
    const int64_t dims[] = {0, 0, CORE_VMAP_NOT_MAPPED};
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .in_dims = dims};

    *noutputs = 1;
    return core_vmap(mapped, w, &options, x, 3, out, 1);
}

static void change(world *w)
{
    bool before = core_grad_mode_set(false);

    OK(core_mul_scalar_(w->inputs[0], core_float(-.75)));
    OK(core_logical_not_(w->inputs[1]));
    OK(core_logical_not_(w->inputs[2]));
    core_grad_mode_set(before);
}

static void same_gradients(size_t count, core_tensor **a, core_tensor **b)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor *expected;

        if (!a[i] && !b[i]) /* nothing reads the weight */
            continue;
        if (!b[i])
            OK(core_zeros_like(a[i], CORE_DTYPE_NONE, NULL, -1, &b[i]));
        if (a[i])
            OK(core_clone(a[i], CORE_FORMAT_CONTIGUOUS, &expected));
        else
            OK(core_zeros_like(b[i], CORE_DTYPE_NONE, NULL, -1, &expected));
        same_bits("gradient", i, expected, b[i]);
        core_tensor_release(expected);
    }
}

/* The output and its gradients, of a call. */
static void differentiate(world *w, core_compiled *compiled, core_tensor **out)
{
    core_tensor *wanted[] = {w->inputs[0], w->hidden[0]}, *ones;

    call_world(maps, w, compiled, 1, out);
    OK(core_ones_like(out[0], CORE_DTYPE_NONE, NULL, -1, &ones));
    OK(core_grad(out, 1, &ones, wanted, 2, CORE_ALLOW_UNUSED, out + 1));
    core_tensor_release(ones);
}

static void same_training(void)
{
    world eager = batched_world(), traced = batched_world();
    core_compiled *compiled = compile_fully(maps, &traced);

    for (int i = 0; i < CALLS; i++) {
        core_tensor *a[3] = {NULL}, *b[3] = {NULL};

        differentiate(&eager, NULL, a);
        differentiate(&traced, compiled, b);
        same_bits("output", 0, a[0], b[0]);
        same_gradients(2, a + 1, b + 1);
        release_tensors(a, 3);
        release_tensors(b, 3);
        change(&eager);
        change(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}

START_TEST(branches_and_loops_inside_vmap_are_recorded)
{
    for (size_t i = 0; i < FUNCTIONS; i++) {
        mapped = functions[i];
        same_training();
    }
}
END_TEST

/* One predicate for all samples is one branch in the program, not both. */
START_TEST(one_predicate_selects_one_branch)
{
    world w = batched_world();
    core_program *program;
    char *text;

    mapped = choose_for_all;
    OK(core_program_trace(maps, &w, w.inputs, 3, 1, &program));
    OK(core_program_text(program, &text));
    ck_assert_ptr_nonnull(strstr(text, "core_cond("));
    ck_assert_ptr_null(strstr(text, "where"));
    core_text_free(text);
    core_program_release(program);
}
END_TEST

/* core_vmap of core_vmap: over features in the samples. */
COMPILED_FUNCTION(choose_feature)
{
    core_tensor *both[2] = {NULL};
    core_status status = core_cond(x[1], square_sample, read_sample,
                                   &(reader){x[0]}, NULL, 0, both, 1);

    *noutputs = 1;
    out[0] = both[0];
    return status;
}

COMPILED_FUNCTION(maps_features)
{
    const int64_t dims[] = {0, CORE_VMAP_NOT_MAPPED};
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .in_dims = dims};
    core_tensor *inputs[] = {x[0], x[2]};

    *noutputs = 1;
    return core_vmap(choose_feature, w, &options, inputs, 2, out, 1);
}

START_TEST(vmap_nests_around_recorded_branches)
{
    mapped = maps_features;
    same_training();
}
END_TEST

/* The gradient of each sample. */
COMPILED_FUNCTION(chosen_sum)
{
    core_tensor *y = NULL;
    core_status status = choose(w, x[2], x[0], &y);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(gradient_of_sample)
{
    const core_derivative of = {.struct_size = sizeof of,
                                .function = chosen_sum,
                                .context = w,
                                .inputs = x,
                                .ninputs = 3};
    core_tensor *gradients[3] = {NULL};
    core_status status = core_vjp(&of, NULL, NULL, NULL, gradients);

    out[0] = gradients[0];
    core_tensor_release(gradients[1]);
    core_tensor_release(gradients[2]);
    *noutputs = 1;
    return status;
}

/* Both branches run and the predicate selects, as the gradient inside needs. */
START_TEST(branches_have_gradients_of_each_sample)
{
    world eager = batched_world(), traced = batched_world();
    core_compiled *compiled = compile_fully(maps, &traced);

    mapped = gradient_of_sample;
    for (int i = 0; i < 2; i++) {
        OK(core_tensor_set_requires_grad((i ? traced : eager).inputs[0],
                                         false));
        OK(core_tensor_set_requires_grad((i ? traced : eager).hidden[0],
                                         false));
    }
    for (int i = 0; i < CALLS; i++) {
        same_call(maps, &eager, compiled, &traced);
        change(&eager);
        change(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The number of turns depends on the sample. */
COMPILED_FUNCTION(is_small)
{
    core_tensor *sum = NULL;
    core_status status = core_sum(x[0], CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_lt_scalar(sum, core_int(1), &out[0]);
    core_tensor_release(sum);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(loops_by_sample)
{
    core_tensor *state[3] = {x[0], x[0], x[0]}, *end[3] = {NULL};
    core_status status = core_while(is_small, shift, w, state, 2, end);

    out[0] = end[0];
    core_tensor_release(end[1]);
    *noutputs = 1;
    return status;
}

START_TEST(turns_that_differ_are_refused_by_name)
{
    world w = batched_world();
    core_program *program;

    mapped = loops_by_sample;
    FAILS(core_program_trace(maps, &w, w.inputs, 3, 1, &program),
          CORE_ERROR_UNSUPPORTED,
          "core_while: the output of condition differs between the samples");
}
END_TEST

/* Of a tensor that requires grad inside core_vmap, without autograd. */
COMPILED_FUNCTION(loops_without_grad)
{
    core_tensor *leaf = NULL, *inputs[] = {NULL, x[1], x[2]};
    core_status status = core_mul_scalar(x[0], core_int(2), &leaf);
    bool before;

    if (status == CORE_OK)
        status = core_detach(leaf, &inputs[0]);
    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(inputs[0], true);
    before = core_grad_mode_set(false);
    if (status == CORE_OK)
        status = loop(w, inputs, 3, out, noutputs);
    core_grad_mode_set(before);
    core_tensor_release(leaf);
    core_tensor_release(inputs[0]);
    *noutputs = 1;
    return status;
}

START_TEST(loops_without_grad_inside_vmap_are_recorded)
{
    world eager = batched_world(), traced = batched_world();
    core_compiled *compiled;

    mapped = loops_without_grad;
    compiled = compile_fully(maps, &traced);
    for (int i = 0; i < CALLS; i++) {
        same_call(maps, &eager, compiled, &traced);
        change(&eager);
        change(&traced);
    }
    core_compiled_release(compiled);
}
END_TEST

/* Of x, a count and a weight, which each turn passes on. */
COMPILED_FUNCTION(weighted_turn)
{
    core_tensor *product = NULL, *y = NULL;
    core_status status = core_mul(x[0], x[2], &product);

    if (status == CORE_OK)
        status = core_tanh(product, &y);
    if (status == CORE_OK)
        status = core_dropout(y, .25, true, &out[0]);
    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    if (status == CORE_OK)
        status = core_clone(x[2], -1, &out[2]);
    core_tensor_release(product);
    core_tensor_release(y);
    *noutputs = 3;
    return status;
}

/* The sum of what the loop makes of a sample and of a weight. */
COMPILED_FUNCTION(sum_of_loop)
{
    core_tensor *state[3] = {x[0], NULL, x[1]}, *end[3] = {NULL};
    core_status status =
        core_zeros(NULL, 0, CORE_I64, program_device, &state[1]);

    if (status == CORE_OK)
        status = core_while(is_below, weighted_turn, w, state, 3, end);
    if (status == CORE_OK)
        status = core_sum(end[0], CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(state[1]);
    release_tensors(end, 3);
    *noutputs = 1;
    return status;
}

/* As the loop above, by the weight that the functions read by themselves. */
COMPILED_FUNCTION(sum_of_reading_loop)
{
    core_status status = loop(w, x, 1, out, noutputs);
    core_tensor *y = out[0];

    out[0] = NULL;
    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(y);
    return status;
}

static core_tensor_function summed;
static uint32_t gradient_flags;

/* The gradients of each sample by itself and by the weight.  A recorded loop adds a
 * gradient of zeros where there is none, so zeros may have another sign. */
COMPILED_FUNCTION(gradients_of_loop)
{
    const core_derivative of = {.struct_size = sizeof of,
                                .flags = gradient_flags,
                                .function = summed,
                                .context = w,
                                .inputs = x,
                                .ninputs = 2};
    core_tensor *gradients[2] = {NULL};
    core_status status = core_vjp(&of, NULL, NULL, NULL, gradients);

    for (int i = 0; i < 2 && status == CORE_OK; i++)
        status =
            core_add_scalar(gradients[i], core_int(0), core_int(1), &out[i]);
    release_tensors(gradients, 2);
    *noutputs = 2;
    return status;
}

COMPILED_FUNCTION(maps_gradients)
{
    const int64_t dims[] = {0, CORE_VMAP_NOT_MAPPED};
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .randomness = CORE_VMAP_RANDOM_DIFFERENT,
                                       .in_dims = dims};
    core_tensor *inputs[] = {x[0], w->hidden[0]};

    *noutputs = 2;
    return core_vmap(gradients_of_loop, w, &options, inputs, 2, out, 2);
}

static void same_sample_gradients(bool outside, uint32_t flags)
{
    world eager = batched_world(), traced = batched_world();
    core_compiled *compiled =
        compile_with(maps_gradients, &traced,
                     (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH});

    gradient_flags = flags;
    for (int i = 0; i < 2 && !outside; i++) {
        world *w = i ? &traced : &eager;

        OK(core_tensor_set_requires_grad(w->inputs[0], false));
        OK(core_tensor_set_requires_grad(w->hidden[0], false));
    }
    for (int i = 0; i < CALLS; i++) {
        same_call(maps_gradients, &eager, compiled, &traced);
        change(&eager);
        change(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}

START_TEST(loops_have_gradients_of_each_sample)
{
    summed = sum_of_loop;
    same_sample_gradients(false, 0);
    same_sample_gradients(true, 0);
    summed = sum_of_reading_loop;
    same_sample_gradients(false, 0);
    same_sample_gradients(true, 0);
}
END_TEST

/* The gradients of the squares of those gradients, outside of core_vmap. */
COMPILED_FUNCTION(differentiates_outside)
{
    core_scope scope = core_scope_begin();
    core_tensor *first[2] = {NULL}, *second[2] = {NULL};
    core_tensor *wanted[2] = {x[0], w->hidden[0]}, *sum;
    size_t count = 2;

    gradient_flags = CORE_CREATE_GRAPH;
    CORE_CHECK(maps_gradients(w, x, 3, first, &count));
    sum = core_x_add(core_x_sum(core_x_mul(first[0], first[0])),
                     core_x_sum(core_x_mul(first[1], first[1])));
    CORE_CHECK(core_grad(&sum, 1, NULL, wanted, 2, 0, second));
    for (int i = 0; i < 2; i++) {
        core_scope_output(core_x_detach(first[i]), &out[i]);
        core_scope_output(second[i], &out[2 + i]);
    }
    release_tensors(first, 2);
    release_tensors(second, 2);
    *noutputs = 4;
    return core_scope_end(scope);
}

/* Products with the Hessian of each sample. */
COMPILED_FUNCTION(product_with_hessian)
{
    const core_derivative of = {.struct_size = sizeof of,
                                .function = summed,
                                .context = w,
                                .inputs = x,
                                .ninputs = 2};
    core_tensor *vectors[2] = {x[0], x[1]};

    *noutputs = 2;
    return core_hvp(&of, vectors, out);
}

COMPILED_FUNCTION(differentiates_inside)
{
    const int64_t dims[] = {0, CORE_VMAP_NOT_MAPPED};
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .randomness = CORE_VMAP_RANDOM_DIFFERENT,
                                       .in_dims = dims};
    core_tensor *inputs[] = {x[0], w->hidden[0]};

    *noutputs = 2;
    return core_vmap(product_with_hessian, w, &options, inputs, 2, out, 2);
}

static void is_close(size_t i, core_tensor *a, core_tensor *b)
{
    bool close = false;

    ck_assert_msg(!core_tensor_requires_grad(a) ==
                      !core_tensor_requires_grad(b),
                  "output %zu requires grad in one of them", i);
    OK(core_allclose(a, b, 1e-5, 1e-6, false, &close));
    ck_assert_msg(close, "output %zu differs", i);
}

/* Derivatives of loops are added up in another order than outside of a
 * program. */
static void close_calls(core_tensor_function function, size_t count)
{
    world eager = batched_world(), traced = batched_world();
    core_compiled *compiled = compile_fully(function, &traced);
    core_tensor *a[4], *b[4], *next[2];

    for (int i = 0; i < CALLS; i++) {
        core_seed(40 + i);
        OK(function(&eager, eager.inputs, 3, a, &count));
        OK(core_rand_like(eager.inputs[0], CORE_DTYPE_NONE, NULL, -1,
                          &next[0]));
        core_seed(40 + i);
        OK(core_compiled_call(compiled, traced.inputs, 3, b, count));
        OK(core_rand_like(eager.inputs[0], CORE_DTYPE_NONE, NULL, -1,
                          &next[1]));
        same_bits("the next random numbers", 0, next[0], next[1]);
        release_tensors(next, 2);
        for (size_t k = 0; k < count; k++)
            is_close(k, a[k], b[k]);
        release_tensors(a, count);
        release_tensors(b, count);
        change(&eager);
        change(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}

START_TEST(loops_have_second_derivatives_of_each_sample)
{
    summed = sum_of_loop;
    close_calls(differentiates_outside, 4);
    close_calls(differentiates_inside, 2);
    same_sample_gradients(true, CORE_CREATE_GRAPH);
}
END_TEST

/* Branches that draw, of which autograd inside sees one. */
COMPILED_FUNCTION(dropped)
{
    core_scope scope = core_scope_begin();
    core_tensor *y = core_x_mul(x[0], x[1]);

    *noutputs = 2;
    core_scope_output(core_x_dropout(core_x_tanh(y), .25, true), &out[0]);
    core_scope_output(core_x_neg(w->hidden[0]), &out[1]);
    return core_scope_end(scope);
}

COMPILED_FUNCTION(not_dropped)
{
    core_scope scope = core_scope_begin();

    *noutputs = 2;
    core_scope_output(core_x_mul(x[0], core_x_sum(x[0])), &out[0]);
    core_scope_output(core_x_exp(w->hidden[0]), &out[1]);
    return core_scope_end(scope);
}

COMPILED_FUNCTION(sum_of_branch)
{
    core_scope scope = core_scope_begin();
    core_tensor *both[2] = {NULL}, *y;

    CORE_CHECK(core_cond(w->inputs[2], dropped, not_dropped, w, x, 2, both, 2));
    y = core_x_sum(core_x_mul(both[0], both[1]));
    core_scope_output(core_x_add(y, core_x_sum(x[1])), &out[0]);
    release_tensors(both, 2);
    *noutputs = 1;
    return core_scope_end(scope);
}

COMPILED_FUNCTION(maps_branches)
{
    core_tensor *before = w->inputs[2];
    core_status status;

    w->inputs[2] = x[2];
    gradient_flags = 0;
    status = maps_gradients(w, x, 3, out, noutputs);
    w->inputs[2] = before;
    return status;
}

START_TEST(branches_that_draw_have_gradients_of_each_sample)
{
    summed = sum_of_branch;
    close_calls(maps_branches, 2);
}
END_TEST

/* Gradients in a call of core_vmap inside of another one, which maps the weight,
 * too, or only the samples. */
static bool maps_weight;

COMPILED_FUNCTION(maps_inside)
{
    const int64_t dims[] = {0, CORE_VMAP_NOT_MAPPED};
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .randomness = CORE_VMAP_RANDOM_DIFFERENT,
                                       .in_dims = dims};

    *noutputs = 2;
    return core_vmap(gradients_of_loop, w, &options, x, 2, out, 2);
}

COMPILED_FUNCTION(maps_twice)
{
    core_scope scope = core_scope_begin();
    const int64_t dims[] = {0, maps_weight ? 0 : CORE_VMAP_NOT_MAPPED};
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .randomness = CORE_VMAP_RANDOM_DIFFERENT,
                                       .in_dims = dims};
    core_tensor *weight = w->hidden[0], *results[2] = {NULL};
    core_tensor *samples =
        core_x_stack(CORE_LIST(x[0], core_x_sin(x[0]), core_x_neg(x[0])));

    if (maps_weight)
        weight = core_x_stack(CORE_LIST(weight, core_x_cos(weight), weight));
    gradient_flags = 0;
    CORE_CHECK(core_vmap(maps_inside, w, &options,
                         CORE_LIST(samples, weight).items, 2, results, 2));
    for (int i = 0; i < 2; i++)
        core_scope_output(results[i], &out[i]);
    release_tensors(results, 2);
    *noutputs = 2;
    return core_scope_end(scope);
}

START_TEST(loops_have_gradients_of_each_sample_in_nested_calls)
{
    summed = sum_of_loop;
    for (int i = 0; i < 2; i++) {
        maps_weight = i;
        close_calls(maps_twice, 2);
    }
    summed = sum_of_reading_loop;
    close_calls(maps_twice, 2);
}
END_TEST

/* Autograd in both. */
COMPILED_FUNCTION(differentiates_in_both)
{
    core_tensor *leaf = NULL, *sum = NULL, *y[2] = {NULL};
    size_t count = 2;
    core_status status;

    gradient_flags = CORE_CREATE_GRAPH;
    OK(core_clone(x[0], -1, &leaf));
    OK(core_tensor_set_requires_grad(leaf, true));
    status =
        maps_inside(w, (core_tensor *[]){leaf, w->hidden[0]}, 2, y, &count);
    if (status == CORE_OK)
        status = core_sum(y[0], CORE_DTYPE_NONE, &sum);
    if (status == CORE_OK)
        status = core_grad(&sum, 1, NULL, &leaf, 1, 0, &out[0]);
    release_tensors(y, 2);
    core_tensor_release(sum);
    core_tensor_release(leaf);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(maps_both)
{
    core_scope scope = core_scope_begin();
    const core_vmap_options options = {.struct_size = sizeof options,
                                       .randomness =
                                           CORE_VMAP_RANDOM_DIFFERENT};
    core_tensor *samples = core_x_stack(CORE_LIST(x[0], x[0]));

    CORE_CHECK(
        core_vmap(differentiates_in_both, w, &options, &samples, 1, out, 1));
    *noutputs = 1;
    return core_scope_end(scope);
}

START_TEST(autograd_in_both_of_nested_calls_is_refused_by_name)
{
    world w = batched_world();
    core_program *program;

    summed = sum_of_loop;
    FAILS(core_program_trace(maps_both, &w, w.inputs, 3, 2, &program),
          CORE_ERROR_UNSUPPORTED, "autograd inside of both");
}
END_TEST

/* The derivative by what the loop reads would be missing. */
START_TEST(second_derivatives_by_what_a_loop_reads_are_refused_by_name)
{
    world w = batched_world();
    core_program *program;

    summed = sum_of_reading_loop;
    gradient_flags = CORE_CREATE_GRAPH;
    FAILS(core_program_trace(maps_gradients, &w, w.inputs, 3, 2, &program),
          CORE_ERROR_UNSUPPORTED,
          "core_while: the second derivative of a loop that is recorded inside",
          "pass it as an input");
}
END_TEST

/* Changed after the loop: outside of a program its backward fails. */
COMPILED_FUNCTION(sum_of_loop_before_a_change)
{
    core_status status = sum_of_reading_loop(w, x, 2, out, noutputs);

    if (status == CORE_OK)
        status = core_mul_scalar_(w->hidden[0], core_float(.5));
    return status;
}

START_TEST(changes_of_what_a_loop_reads_are_refused)
{
    world w = batched_world();
    core_program *program;
    core_tensor *out[2];
    size_t two = 2;

    summed = sum_of_loop_before_a_change;
    gradient_flags = 0;
    OK(core_tensor_set_requires_grad(w.inputs[0], false));
    OK(core_tensor_set_requires_grad(w.hidden[0], false));
    FAILS(maps_gradients(&w, w.inputs, 3, out, &two), CORE_ERROR_VERSION,
          "changed");
    FAILS(core_program_trace(maps_gradients, &w, w.inputs, 3, 2, &program),
          CORE_ERROR_UNSUPPORTED, "core_while",
          "is changed in place later, which cannot be recorded");
}
END_TEST

/* The loop reads a tensor that requires grad inside. */
COMPILED_FUNCTION(reading_turn)
{
    core_tensor *y = NULL;
    core_status status = core_mul(x[0], w->hidden[2], &y);

    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    out[0] = y;
    *noutputs = 2;
    return status;
}

COMPILED_FUNCTION(sum_of_loop_by_weight)
{
    core_tensor *state[2] = {x[0], NULL}, *end[2] = {NULL};
    core_status status =
        core_zeros(NULL, 0, CORE_I64, program_device, &state[1]);

    w->hidden[2] = x[1];
    if (status == CORE_OK)
        status = core_while(is_below, reading_turn, w, state, 2, end);
    if (status == CORE_OK)
        status = core_sum(end[0], CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(state[1]);
    release_tensors(end, 2);
    *noutputs = 1;
    return status;
}

START_TEST(loops_that_read_what_requires_grad_inside_are_refused_by_name)
{
    world w = batched_world();
    core_program *program;

    summed = sum_of_loop_by_weight;
    gradient_flags = 0;
    FAILS(core_program_trace(maps_gradients, &w, w.inputs, 3, 2, &program),
          CORE_ERROR_UNSUPPORTED, "pass it as an input");
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/batched_regions", branches_and_loops_inside_vmap_are_recorded,
    one_predicate_selects_one_branch, vmap_nests_around_recorded_branches,
    branches_have_gradients_of_each_sample,
    turns_that_differ_are_refused_by_name,
    loops_without_grad_inside_vmap_are_recorded,
    loops_have_gradients_of_each_sample,
    loops_have_second_derivatives_of_each_sample,
    second_derivatives_by_what_a_loop_reads_are_refused_by_name,
    loops_have_gradients_of_each_sample_in_nested_calls,
    branches_that_draw_have_gradients_of_each_sample,
    autograd_in_both_of_nested_calls_is_refused_by_name,
    changes_of_what_a_loop_reads_are_refused,
    loops_that_read_what_requires_grad_inside_are_refused_by_name)
