/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_cond and core_while: called, recorded, run, saved and refused. */

#include "support/compiled.h"
#include "support/temporary_files.h"

#include <libcore/control_flow.h>
#include <libcore/device.h>
#include <libcore/transform.h>

/* ---------------------------------------------------------------- branches */

/* Inputs: x, y.  The sum of x decides.  Hidden: a weight, a bias. */
static world branch_world(void)
{
    world w = {.device = program_device, .ninputs = 2, .nhidden = 2};

    w.inputs[0] = NUMBERS(&w, 1, 3, 4);
    w.inputs[1] = NUMBERS(&w, 50, 3, 4);
    w.hidden[0] = NUMBERS(&w, 100, 4, 5);
    w.hidden[1] = NUMBERS(&w, 200, 5);
    return w;
}

/* mm(x, weight) + bias, with dropout; and y itself. */
COMPILED_FUNCTION(affine)
{
    core_tensor *product = NULL, *sum = NULL;
    core_status status = core_mm(x[0], w->hidden[0], &product);

    if (status == CORE_OK)
        status = core_add(product, w->hidden[1], core_int(1), &sum);
    if (status == CORE_OK)
        status = core_dropout(sum, .5, true, &out[0]);
    core_tensor_release(product);
    core_tensor_release(sum);
    out[1] = status == CORE_OK ? core_tensor_retain(x[1]) : NULL;
    *noutputs = 2;
    return status;
}

/* mm(y, weight) changed in place, and a transposed view. */
COMPILED_FUNCTION(scaled)
{
    core_tensor *view = NULL, *turned = NULL;
    core_status status = core_mm(x[1], w->hidden[0], &out[0]);

    if (status == CORE_OK)
        status = core_mul_scalar_(out[0], core_float(.5));
    if (status == CORE_OK)
        status = core_transpose(x[0], 0, 1, &view);
    if (status == CORE_OK)
        status = core_exp(view, &turned);
    if (status == CORE_OK)
        status = core_transpose(turned, 0, 1, &out[1]);
    core_tensor_release(view);
    core_tensor_release(turned);
    *noutputs = 2;
    return status;
}

static core_status positive(core_tensor *x, core_tensor **out)
{
    core_tensor *sum = NULL;
    core_status status = core_sum(x, CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_gt_scalar(sum, core_int(0), out);
    core_tensor_release(sum);
    return status;
}

/* The predicate, the inputs and a captured tensor are results. */
COMPILED_FUNCTION(branches)
{
    core_tensor *predicate = NULL, *changed = NULL, *both[2] = {NULL};
    core_tensor *inputs[2] = {x[0], NULL};
    core_status status = positive(x[0], &predicate);

    if (status == CORE_OK)
        status = core_mul(x[1], x[0], &changed);
    inputs[1] = changed;
    if (status == CORE_OK)
        status = core_cond(predicate, affine, scaled, w, inputs, 2, both, 2);
    if (status == CORE_OK)
        status = core_relu(both[0], &out[0]);
    if (status == CORE_OK)
        status = core_add_(both[1], x[1], core_int(1));
    if (status == CORE_OK)
        out[1] = core_tensor_retain(both[1]);
    if (status == CORE_OK)
        status = core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[2]);
    core_tensor_release(predicate);
    core_tensor_release(changed);
    core_tensor_release(both[0]);
    core_tensor_release(both[1]);
    *noutputs = 3;
    return status;
}

static void negate_first(world *w)
{
    OK(core_neg_(w->inputs[0]));
}

START_TEST(a_compiled_function_decides_in_each_call)
{
    world eager = branch_world(), traced = branch_world();
    core_compiled *compiled = compile_fully(branches, &traced);

    for (int i = 0; i < 4; i++) {
        same_call(branches, &eager, compiled, &traced);
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}
END_TEST

static core_status fill(void *context, core_tensor *const *x, size_t n,
                        core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    return core_full_like(x[0], core_float(7), CORE_DTYPE_NONE, NULL, -1,
                          &out[0]);
}

static core_status same(void *context, core_tensor *const *x, size_t n,
                        core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    out[0] = core_tensor_retain(x[0]);
    return CORE_OK;
}

/* A branch in a branch, without inputs of its own: it reads those outside. */
typedef struct nested {
    core_tensor *outer, *predicate;
} nested;

static core_status inner_fill(void *context, core_tensor *const *x, size_t n,
                              core_tensor **out, size_t *noutputs)
{
    nested *c = context;

    (void)x;
    (void)n;
    *noutputs = 1;
    return core_add(c->outer, c->outer, core_int(1), &out[0]);
}

static core_status inner_same(void *context, core_tensor *const *x, size_t n,
                              core_tensor **out, size_t *noutputs)
{
    nested *c = context;

    (void)x;
    (void)n;
    *noutputs = 1;
    return core_neg(c->outer, &out[0]);
}

static core_status choose(void *context, core_tensor *const *x, size_t n,
                          core_tensor **out, size_t *noutputs)
{
    nested *c = context;

    (void)x;
    (void)n;
    *noutputs = 1;
    return core_cond(c->predicate, inner_fill, inner_same, c, NULL, 0, out, 1);
}

COMPILED_FUNCTION(nests)
{
    nested c = {x[0], NULL};
    core_tensor *outer = NULL;
    core_status status = positive(x[0], &outer);

    if (status == CORE_OK)
        status = positive(x[1], &c.predicate);
    if (status == CORE_OK)
        status = core_cond(outer, choose, inner_same, &c, NULL, 0, out, 1);
    core_tensor_release(outer);
    core_tensor_release(c.predicate);
    *noutputs = 1;
    return status;
}

START_TEST(branches_nest_and_read_what_is_outside)
{
    world eager = branch_world(), traced = branch_world();
    core_compiled *compiled = compile_fully(nests, &traced);

    for (int i = 0; i < 4; i++) {
        same_call(nests, &eager, compiled, &traced);
        OK(core_neg_(eager.inputs[i & 1]));
        OK(core_neg_(traced.inputs[i & 1]));
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------------------ loops */

/* State: x, a count.  Hidden: a limit of the count, a factor. */
static world loop_world(void)
{
    world w = {.device = program_device, .ninputs = 2, .nhidden = 2};
    core_tensor *turned;
    int64_t count = 0, limit = 5;

    OK(core_transpose(NUMBERS(&w, 1, 3, 4), 0, 1, &turned));
    w.inputs[0] = keep(turned);
    OK(core_tensor_from_data(&count, CORE_I64, NULL, 0, program_device,
                             &w.inputs[1]));
    keep(w.inputs[1]);
    OK(core_tensor_from_data(&limit, CORE_I64, NULL, 0, program_device,
                             &w.hidden[0]));
    keep(w.hidden[0]);
    w.hidden[1] = NUMBERS(&w, 9, 3);
    return w;
}

COMPILED_FUNCTION(below)
{
    *noutputs = 1;
    return core_lt(x[1], w->hidden[0], &out[0]);
}

/* With random numbers, in place, and a swapped view. */
COMPILED_FUNCTION(advance)
{
    core_tensor *noise = NULL;
    core_status status =
        core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &noise);

    if (status == CORE_OK)
        status = core_mul(x[0], w->hidden[1], &out[0]);
    if (status == CORE_OK)
        status = core_add_(out[0], noise, core_float(.25));
    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    core_tensor_release(noise);
    *noutputs = 2;
    return status;
}

COMPILED_FUNCTION(loops)
{
    *noutputs = 2;
    return core_while(below, advance, w, x, 2, out);
}

START_TEST(a_loop_runs_as_often_as_the_data_say)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(loops, &traced);

    for (int limit = 5; limit >= 0; limit -= 5) {
        OK(core_fill_(eager.hidden[0], core_int(limit)));
        OK(core_fill_(traced.hidden[0], core_int(limit)));
        for (int i = 0; i < 2; i++)
            same_call(loops, &eager, compiled, &traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(outputs_have_memory_of_their_own)
{
    world w = loop_world();
    core_tensor *out[2];
    core_tensor *yes;

    OK(core_fill_(w.hidden[0], core_int(0)));
    OK(core_while(below, advance, &w, w.inputs, 2, out));
    ck_assert(!core_tensor_shares_storage(out[0], w.inputs[0]));
    ck_assert(!core_tensor_shares_storage(out[1], w.inputs[1]));
    ck_assert(core_tensor_is_contiguous(out[0], CORE_FORMAT_CONTIGUOUS));
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    OK(core_ones(NULL, 0, CORE_BOOL, program_device, &yes));
    OK(core_cond(yes, same, fill, NULL, w.inputs, 2, out, 1));
    ck_assert(!core_tensor_shares_storage(out[0], w.inputs[0]));
    core_tensor_release(out[0]);
    core_tensor_release(yes);
}
END_TEST

/* ------------------------------------------------------------- programs */

static core_program *trace(core_tensor_function function, world *w)
{
    core_program *program;

    OK(core_program_trace(function, w, w->inputs, w->ninputs, WORLD_OUTPUTS,
                          &program));
    OK(core_program_verify(program));
    return program;
}

START_TEST(the_text_shows_both_branches)
{
    world w = branch_world();
    core_program *program = trace(branches, &w);
    char *text;

    OK(core_program_text(program, &text));
    ck_assert_ptr_nonnull(strstr(text, " = core_cond(%"));
    ck_assert_ptr_nonnull(strstr(text, "\n    then\n        %0 = input 0"));
    ck_assert_ptr_nonnull(strstr(text, "\n    else\n        %0 = input 0"));
    ck_assert_ptr_nonnull(strstr(text, "\n        output 1: %"));
    core_text_free(text);
    core_program_release(program);
}
END_TEST

static void saved_alike(core_tensor_function function, world (*make)(void))
{
    world eager = make(), traced = make();
    core_program *program = trace(function, &traced), *loaded;
    char *before, *after;
    temporary_path path;

    temporary_file(path, "libcore-regions");
    OK(core_program_save(program, path));
    OK(core_program_load(path, NULL, &loaded));
    temporary_remove(path);
    OK(core_program_text(program, &before));
    OK(core_program_text(loaded, &after));
    ck_assert_str_eq(before, after);
    core_text_free(before);
    core_text_free(after);
    core_program_release(program);
    for (size_t i = 0; i < traced.nhidden; i++)
        for (size_t k = 0; k < 4 && core_program_hidden_input(loaded, k); k++)
            if (core_tensor_numel(core_program_hidden_input(loaded, k)) ==
                core_tensor_numel(traced.hidden[i]))
                traced.hidden[i] = core_program_hidden_input(loaded, k);
    compare_calls(&(program_case){NULL, function}, &eager, &traced, loaded);
    core_program_release(loaded);
}

START_TEST(programs_with_regions_are_saved_and_loaded)
{
    saved_alike(branches, branch_world);
    saved_alike(nests, branch_world);
    saved_alike(loops, loop_world);
}
END_TEST

START_TEST(a_program_runs_on_another_device)
{
    core_device *device = program_device, *cpu, *sim;
    world w, there;
    core_program *program;
    core_tensor *a[3], *b[3];

    OK(core_device_find("cpu", &cpu));
    OK(core_device_find("sim", &sim));
    w = branch_world();
    program = trace(branches, &w);
    program_device = device == cpu ? sim : cpu;
    there = branch_world();
    core_seed(3);
    OK(core_program_run(program, w.inputs, 2, a, 3));
    core_seed(3);
    OK(core_program_run(program, there.inputs, 2, b, 3));
    program_device = device;
    for (size_t i = 0; i < 3; i++) {
        core_tensor *back;

        OK(core_to(b[i], CORE_DTYPE_NONE, device, false, false, -1, &back));
        same_bits("output", i, a[i], back);
        core_tensor_release(back);
        core_tensor_release(a[i]);
        core_tensor_release(b[i]);
    }
    core_program_release(program);
}
END_TEST

/* A run of a program becomes a part of the program that is recorded. */
static core_status run_program(void *context, core_tensor *const *x, size_t n,
                               core_tensor **out, size_t *noutputs)
{
    *noutputs = 1;
    return core_program_run(context, x, n, out, 1);
}

START_TEST(a_program_with_branches_becomes_a_part_of_another)
{
    world w = branch_world();
    core_program *program = trace(nests, &w), *outer;
    core_tensor *a, *b;
    char *text;

    OK(core_program_trace(run_program, program, w.inputs, 2, 1, &outer));
    OK(core_program_verify(outer));
    OK(core_program_text(outer, &text));
    ck_assert_ptr_nonnull(strstr(text, "core_cond"));
    core_text_free(text);
    for (int i = 0; i < 2; i++) {
        OK(core_program_run(program, w.inputs, 2, &a, 1));
        OK(core_program_run(outer, w.inputs, 2, &b, 1));
        same_bits("output", 0, a, b);
        core_tensor_release(a);
        core_tensor_release(b);
        negate_first(&w);
    }
    core_program_release(outer);
    core_program_release(program);
}
END_TEST

/* ------------------------------------------------------------- refusals */

typedef struct refused {
    core_tensor_function then_function, else_function;
    size_t noutputs;
    world *w;
} refused;

static core_status call_refused(void *context, core_tensor *const *x, size_t n,
                                core_tensor **out, size_t *noutputs)
{
    const refused *r = context;
    core_tensor *predicate;
    core_status status;

    CORE_TRY(positive(x[0], &predicate));
    status = core_cond(predicate, r->then_function, r->else_function, r->w, x,
                       n, out, r->noutputs);
    core_tensor_release(predicate);
    *noutputs = r->noutputs;
    return status;
}

COMPILED_FUNCTION(writes_input)
{
    *noutputs = 1;
    CORE_TRY(core_add_(x[1], x[0], core_int(1)));
    return core_neg(x[0], &out[0]);
}

COMPILED_FUNCTION(writes_hidden)
{
    *noutputs = 1;
    CORE_TRY(core_neg_(w->hidden[1]));
    return core_neg(x[0], &out[0]);
}

COMPILED_FUNCTION(other_sizes)
{
    *noutputs = 1;
    return core_sum(x[0], CORE_DTYPE_NONE, &out[0]);
}

COMPILED_FUNCTION(other_dtype)
{
    *noutputs = 1;
    return core_gt_scalar(x[0], core_int(0), &out[0]);
}

COMPILED_FUNCTION(reads_on_host)
{
    core_scalar value;

    *noutputs = 1;
    CORE_TRY(core_tensor_item(x[0], &value));
    return core_neg(x[0], &out[0]);
}

static core_tensor *kept;

COMPILED_FUNCTION(keeps_tensor)
{
    *noutputs = 1;
    CORE_TRY(core_exp(x[0], &kept));
    return core_neg(kept, &out[0]);
}

COMPILED_FUNCTION(returns_two)
{
    *noutputs = 2;
    CORE_TRY(core_neg(x[0], &out[0]));
    return CORE_OK;
}

START_TEST(what_cannot_be_recorded_is_refused_by_name)
{
    static const struct {
        core_tensor_function function;
        core_status code;
        const char *text;
    } cases[] = {
        {writes_input, CORE_ERROR_UNSUPPORTED,
         "then_function changes a tensor that exists outside of it"},
        {writes_hidden, CORE_ERROR_UNSUPPORTED,
         "then_function changes a tensor that exists outside of it"},
        {other_sizes, CORE_ERROR_SHAPE, "output 0 of else_function has sizes"},
        {other_dtype, CORE_ERROR_DTYPE,
         "output 0 of else_function is f32; that "
         "of then_function is bool"},
        {reads_on_host, CORE_ERROR_UNSUPPORTED, "core_tensor_item"},
        {keeps_tensor, CORE_ERROR_UNSUPPORTED, "keeps tensors beyond"},
        {returns_two, CORE_ERROR_INVALID_ARGUMENT, "returned 2 outputs"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w = branch_world(), fresh = branch_world();
        refused r = {cases[i].function, same, 1, &w};
        core_program *program;

        FAILS(core_program_trace(call_refused, &r, w.inputs, 2, 1, &program),
              cases[i].code, cases[i].text);
        same_worlds(&fresh, NULL, &w, NULL, 0);
        core_tensor_release(kept);
        kept = NULL;
    }
}
END_TEST

/* Of x and of a weight; y is only read. */
COMPILED_FUNCTION(smooth)
{
    core_tensor *product = NULL, *bent = NULL;
    core_status status = core_mm(x[0], x[2], &product);

    if (status == CORE_OK)
        status = core_tanh(product, &out[0]);
    if (status == CORE_OK)
        status = core_mul(x[0], x[1], &bent);
    if (status == CORE_OK)
        status = core_transpose(bent, 0, 1, &out[1]);
    core_tensor_release(product);
    core_tensor_release(bent);
    *noutputs = 2;
    return status;
}

/* Without the weight. */
COMPILED_FUNCTION(constant)
{
    core_tensor *turned = NULL;
    core_status status = core_full((int64_t[]){3, 5}, 2, core_float(.5),
                                   CORE_F32, core_tensor_device(x[0]), &out[0]);

    if (status == CORE_OK)
        status = core_exp(x[0], &turned);
    if (status == CORE_OK)
        status = core_transpose(turned, 0, 1, &out[1]);
    core_tensor_release(turned);
    *noutputs = 2;
    return status;
}

static world differentiable_world(void)
{
    world w = branch_world();

    w.inputs[2] = NUMBERS(&w, 400, 4, 5);
    w.ninputs = 3;
    leaf(w.inputs[0]);
    leaf(w.inputs[2]);
    return w;
}

COMPILED_FUNCTION(differentiable)
{
    core_tensor *predicate = NULL, *inputs[3] = {NULL, x[1], x[2]};
    core_tensor *both[2] = {NULL};
    core_status status = positive(x[0], &predicate);

    if (status == CORE_OK)
        status = core_mul_scalar(x[0], core_float(.5), &inputs[0]);
    if (status == CORE_OK)
        status = core_cond(predicate, smooth, constant, w, inputs, 3, both, 2);
    if (status == CORE_OK)
        status = core_exp(both[0], &out[0]);
    if (status == CORE_OK)
        status = core_mul(both[1], both[1], &out[1]);
    core_tensor_release(predicate);
    core_tensor_release(inputs[0]);
    core_tensor_release(both[0]);
    core_tensor_release(both[1]);
    *noutputs = 2;
    return status;
}

/* The gradients of those results that have one. */
static void gradients_of(core_tensor **out, world *w, size_t count,
                         core_tensor **grads)
{
    core_tensor *wanted[2] = {w->inputs[0], w->inputs[2]};
    core_tensor *roots[2], *ones[2];
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        if (!core_tensor_requires_grad(out[i]))
            continue;
        roots[n] = out[i];
        OK(core_ones_like(out[i], CORE_DTYPE_NONE, NULL, -1, &ones[n++]));
    }
    OK(core_grad(roots, n, ones, wanted, 2, CORE_ALLOW_UNUSED, grads));
    for (size_t i = 0; i < n; i++)
        core_tensor_release(ones[i]);
}

/* A branch that does not use an input has a gradient of zeros, or none; those of
 * a recorded one are row-major. */
static void same_gradient(size_t i, core_tensor *a, core_tensor *b)
{
    core_tensor *expected;

    ck_assert_ptr_nonnull(b);
    if (a)
        OK(core_clone(a, CORE_FORMAT_CONTIGUOUS, &expected));
    else
        OK(core_zeros_like(b, CORE_DTYPE_NONE, NULL, -1, &expected));
    same_bits("gradient", i, expected, b);
    core_tensor_release(expected);
}

START_TEST(recorded_branches_have_gradients)
{
    world eager = differentiable_world(), traced = differentiable_world();
    core_compiled *compiled = compile_fully(differentiable, &traced);

    for (int i = 0; i < 4; i++) {
        core_tensor *a[2], *b[2], *grads[4];
        size_t two = 2, roots = i < 2 ? 2 : 1;
        bool before;

        OK(differentiable(&eager, eager.inputs, 3, a, &two));
        OK(core_compiled_call(compiled, traced.inputs, 3, b, 2));
        gradients_of(a + 2 - roots, &eager, roots, &grads[0]);
        gradients_of(b + 2 - roots, &traced, roots, &grads[2]);
        for (size_t k = 0; k < 2; k++) {
            same_bits("output", k, a[k], b[k]);
            same_gradient(k, grads[k], grads[2 + k]);
            core_tensor_release(a[k]);
            core_tensor_release(b[k]);
            core_tensor_release(grads[k]);
            core_tensor_release(grads[2 + k]);
        }
        before = core_grad_mode_set(false);
        negate_first(&eager);
        negate_first(&traced);
        core_grad_mode_set(before);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}
END_TEST

/* The backward is in the function. */
COMPILED_FUNCTION(descends)
{
    core_tensor *both[2] = {NULL}, *sums[2] = {NULL}, *loss = NULL;
    core_tensor *wanted[2] = {x[0], x[2]}, *grads[2] = {NULL};
    core_status status = differentiable(w, x, 3, both, noutputs);

    for (size_t i = 0; i < 2 && status == CORE_OK; i++)
        status = core_sum(both[i], CORE_DTYPE_NONE, &sums[i]);
    if (status == CORE_OK)
        status = core_add(sums[0], sums[1], core_int(1), &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, wanted, 2, CORE_ALLOW_UNUSED, grads);
    for (size_t i = 0; i < 2 && status == CORE_OK; i++)
        if (!grads[i])
            status = core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL, -1,
                                     &grads[i]);
    for (size_t i = 0; i < 2; i++) {
        if (status == CORE_OK)
            status = core_clone(grads[i], CORE_FORMAT_CONTIGUOUS, &out[i]);
        core_tensor_release(grads[i]);
        core_tensor_release(both[i]);
        core_tensor_release(sums[i]);
    }
    core_tensor_release(loss);
    *noutputs = 2;
    return status;
}

/* One output depends on the input, one on nothing, and one on the input in one
 * of the functions only. */
COMPILED_FUNCTION(depends)
{
    *noutputs = 3;
    CORE_TRY(core_exp(x[0], &out[0]));
    CORE_TRY(core_ones_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[1]));
    return core_sin(x[0], &out[2]);
}

COMPILED_FUNCTION(depends_less)
{
    *noutputs = 3;
    CORE_TRY(core_sin(x[0], &out[0]));
    CORE_TRY(core_zeros_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[1]));
    return core_zeros_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[2]);
}

COMPILED_FUNCTION(three_outputs)
{
    core_tensor *predicate = NULL;
    core_status status = positive(x[0], &predicate);

    if (status == CORE_OK)
        status = core_cond(predicate, depends, depends_less, w, x, 1, out, 3);
    core_tensor_release(predicate);
    *noutputs = 3;
    return status;
}

START_TEST(outputs_of_branches_require_grad_if_they_depend_on_what_does)
{
    world w = differentiable_world();
    core_compiled *compiled = compile_fully(three_outputs, &w);
    core_tensor *out[3], *grads[2];

    OK(core_compiled_call(compiled, w.inputs, 1, out, 3));
    ck_assert(core_tensor_requires_grad(out[0]));
    ck_assert(!core_tensor_requires_grad(out[1]));
    ck_assert(core_tensor_requires_grad(out[2]));
    gradients_of(out, &w, 3, grads);
    ck_assert_ptr_nonnull(grads[0]);
    ck_assert_ptr_null(grads[1]);
    core_tensor_release(grads[0]);
    for (int i = 0; i < 3; i++)
        core_tensor_release(out[i]);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_recorded_backward_decides_in_each_call)
{
    world eager = differentiable_world(), traced = differentiable_world();
    core_compiled *compiled = compile_fully(descends, &traced);

    for (int i = 0; i < 4; i++) {
        bool before;

        same_call(descends, &eager, compiled, &traced);
        before = core_grad_mode_set(false);
        negate_first(&eager);
        negate_first(&traced);
        core_grad_mode_set(before);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(makes_leaf)
{
    *noutputs = 1;
    CORE_TRY(core_exp(x[0], &out[0]));
    return core_tensor_set_requires_grad(out[0], true);
}

START_TEST(gradients_that_cannot_be_recorded_are_refused_by_name)
{
    world w = branch_world();
    refused r = {fill, makes_leaf, 1, &w};
    core_program *program;
    core_tensor *out, *grad, *predicate;

    FAILS(core_program_trace(call_refused, &r, w.inputs, 2, 1, &program),
          CORE_ERROR_UNSUPPORTED,
          "else_function returns a tensor that requires grad although nothing "
          "that it reads does");
    /* As it is, autograd records what is called. */
    OK(core_tensor_set_requires_grad(w.inputs[0], true));
    OK(core_ones(NULL, 0, CORE_BOOL, program_device, &predicate));
    OK(core_cond(predicate, same, fill, NULL, w.inputs, 1, &out, 1));
    OK(core_grad(&out, 1, (core_tensor *[]){w.inputs[1]}, w.inputs, 1, 0,
                 &grad));
    same_bits("gradient", 0, grad, w.inputs[1]);
    core_tensor_release(grad);
    core_tensor_release(out);
    core_tensor_release(predicate);
}
END_TEST

/* A branch outside of the graph decides by what the rest is multiplied. */
COMPILED_FUNCTION(weighted)
{
    core_tensor *predicate = NULL, *factor = NULL, *product = NULL;
    bool before = core_grad_mode_set(false);
    core_status status = positive(x[0], &predicate);

    if (status == CORE_OK)
        status = core_cond(predicate, fill, same, w, &x[1], 1, &factor, 1);
    core_grad_mode_set(before);
    if (status == CORE_OK)
        status = core_mul(x[0], factor, &product);
    if (status == CORE_OK)
        status = core_mul(product, x[0], &out[0]);
    core_tensor_release(predicate);
    core_tensor_release(factor);
    core_tensor_release(product);
    *noutputs = 1;
    return status;
}

START_TEST(a_branch_outside_of_the_graph_is_a_part_of_training)
{
    world eager = branch_world(), traced = branch_world();
    core_compiled *compiled = compile_fully(weighted, &traced);

    for (int i = 0; i < 4; i++) {
        core_tensor *a, *b, *grads[2];
        size_t one = 1;

        OK(core_tensor_set_requires_grad(eager.inputs[0], true));
        OK(core_tensor_set_requires_grad(traced.inputs[0], true));
        OK(weighted(&eager, eager.inputs, 2, &a, &one));
        OK(core_compiled_call(compiled, traced.inputs, 2, &b, 1));
        same_bits("output", 0, a, b);
        OK(core_grad(&a, 1, &eager.inputs[1], eager.inputs, 1, 0, &grads[0]));
        OK(core_grad(&b, 1, &traced.inputs[1], traced.inputs, 1, 0, &grads[1]));
        same_bits("gradient", 0, grads[0], grads[1]);
        core_tensor_release(a);
        core_tensor_release(b);
        core_tensor_release(grads[0]);
        core_tensor_release(grads[1]);
        OK(core_tensor_set_requires_grad(eager.inputs[0], false));
        OK(core_tensor_set_requires_grad(traced.inputs[0], false));
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

static int depth;

static core_status recurse(void *context, core_tensor *const *x, size_t n,
                           core_tensor **out, size_t *noutputs)
{
    *noutputs = 1;
    if (depth++ > 40)
        return core_neg(x[0], &out[0]);
    return core_cond(context, recurse, same, context, x, n, out, 1);
}

static core_status begin_recursion(void *context, core_tensor *const *x,
                                   size_t n, core_tensor **out,
                                   size_t *noutputs)
{
    core_tensor *predicate;
    core_status status;

    (void)context;
    *noutputs = 1;
    CORE_TRY(positive(x[0], &predicate));
    status = core_cond(predicate, recurse, same, predicate, x, n, out, 1);
    core_tensor_release(predicate);
    return status;
}

START_TEST(regions_nest_only_so_deeply)
{
    world w = branch_world();
    core_program *program;

    depth = 0;
    FAILS(core_program_trace(begin_recursion, NULL, w.inputs, 1, 1, &program),
          CORE_ERROR_UNSUPPORTED, "nested too deeply");
}
END_TEST

START_TEST(arguments_are_checked)
{
    world w = branch_world();
    core_tensor *out[2], *predicate;

    FAILS(core_cond(NULL, same, same, NULL, w.inputs, 1, out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "predicate");
    FAILS(core_cond(w.inputs[0], same, same, NULL, w.inputs, 1, out, 1),
          CORE_ERROR_DTYPE, "core_cond: predicate is f32; it must be bool");
    OK(core_gt_scalar(w.inputs[0], core_int(0), &predicate));
    FAILS(core_cond(predicate, same, same, NULL, w.inputs, 1, out, 1),
          CORE_ERROR_SHAPE, "predicate has 12 elements; it must have one");
    core_tensor_release(predicate);
    OK(positive(w.inputs[0], &predicate));
    FAILS(core_cond(predicate, same, same, NULL, w.inputs, 1, out, 2),
          CORE_ERROR_INVALID_ARGUMENT, "returned 1 outputs; it must return 2");
    FAILS(core_while(same, same, NULL, w.inputs, 1, out), CORE_ERROR_DTYPE,
          "the output of condition is f32");
    FAILS(core_while(NULL, same, NULL, w.inputs, 1, out),
          CORE_ERROR_INVALID_ARGUMENT, "condition");
    core_tensor_release(predicate);
}
END_TEST

COMPILED_FUNCTION(once)
{
    *noutputs = 1;
    return core_lt(x[1], w->hidden[0], &out[0]);
}

COMPILED_FUNCTION(grows)
{
    *noutputs = 2;
    CORE_TRY(core_cat((core_tensor *[]){x[0], x[0]}, 2, 0, &out[0]));
    return core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
}

COMPILED_FUNCTION(growing_loop)
{
    *noutputs = 2;
    return core_while(once, grows, w, x, 2, out);
}

START_TEST(the_state_of_a_loop_keeps_its_sizes)
{
    world w = loop_world();
    core_program *program;
    core_tensor *out[2];

    FAILS(
        core_while(once, grows, &w, w.inputs, 2, out), CORE_ERROR_SHAPE,
        "core_while: output 0 of body has sizes [8, 3]; the input has [4, 3]");
    FAILS(
        core_program_trace(growing_loop, &w, w.inputs, 2, 2, &program),
        CORE_ERROR_SHAPE,
        "core_while: output 0 of body has sizes [8, 3]; the input has [4, 3]");
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/control_flow", a_compiled_function_decides_in_each_call,
    branches_nest_and_read_what_is_outside,
    a_loop_runs_as_often_as_the_data_say, outputs_have_memory_of_their_own,
    the_text_shows_both_branches, programs_with_regions_are_saved_and_loaded,
    a_program_runs_on_another_device,
    a_program_with_branches_becomes_a_part_of_another,
    what_cannot_be_recorded_is_refused_by_name,
    recorded_branches_have_gradients,
    outputs_of_branches_require_grad_if_they_depend_on_what_does,
    a_recorded_backward_decides_in_each_call,
    gradients_that_cannot_be_recorded_are_refused_by_name,
    a_branch_outside_of_the_graph_is_a_part_of_training,
    regions_nest_only_so_deeply, arguments_are_checked,
    the_state_of_a_loop_keeps_its_sizes)
