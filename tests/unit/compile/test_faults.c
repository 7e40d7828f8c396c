/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every allocation of a recording, a call, a description and a file fails once:
 * the call reports it, and nothing is left behind. */

#include "support/compiled.h"
#include "support/temporary_files.h"

#include "base/memory.h"

#include <libcore/control_flow.h>
#include <libcore/optim.h>

static temporary_path path;

static void with_hidden(world *w)
{
    w->inputs[0] = NUMBERS(w, 1, 4, 4);
    w->inputs[1] = NUMBERS(w, 50, 4, 4);
    w->ninputs = 2;
    w->hidden[0] = NUMBERS(w, 90, 8, 4);
    w->hidden[1] = CALL(narrow, w->hidden[0], 0, 2, 4);
    w->nhidden = 2;
}

/* Has a view, writes, a list, random numbers and a gradient. */
COMPILED_FUNCTION(everything)
{
    core_tensor *leaf = NULL, *y = NULL, *loss = NULL, *both[2] = {NULL};
    core_status status = core_detach(x[0], &leaf);

    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(leaf, true);
    if (status == CORE_OK)
        status = core_mm(leaf, w->hidden[1], &y);
    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, &leaf, 1, 0, &both[0]);
    if (status == CORE_OK)
        status = core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &both[1]);
    if (status == CORE_OK)
        status = core_add_(x[1], both[0], core_int(1));
    if (status == CORE_OK)
        status = core_cat(both, 2, 0, &out[0]);
    if (status == CORE_OK)
        status = core_select(x[1], 0, 1, &out[1]);
    core_tensor_release(leaf);
    core_tensor_release(y);
    core_tensor_release(loss);
    core_tensor_release(both[0]);
    core_tensor_release(both[1]);
    *noutputs = 2;
    return status;
}

static core_status call_twice(world *w)
{
    core_compiled *compiled = NULL;
    core_tensor *out[2] = {NULL};
    char *text = NULL;
    core_status status = core_compile(everything, w, NULL, &compiled);

    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        status = core_compiled_call(compiled, w->inputs, 2, out, 2);
        if (status != CORE_OK)
            ck_assert(!out[0] && !out[1]);
        core_tensor_release(out[0]);
        core_tensor_release(out[1]);
    }
    if (status == CORE_OK)
        status = core_compiled_explain(compiled, &text);
    core_text_free(text);
    core_compiled_release(compiled);
    return status;
}

COMPILED_FUNCTION(folds)
{
    core_tensor *negative = NULL, *turned = NULL;
    core_status status = core_neg(w->hidden[1], &negative);

    if (status == CORE_OK)
        status = core_t(negative, &turned);
    if (status == CORE_OK)
        status = core_mm(x[0], turned, &out[0]);
    core_tensor_release(negative);
    core_tensor_release(turned);
    *noutputs = 1;
    return status;
}

static core_status call_frozen(world *w)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .flags = CORE_COMPILE_FREEZE};
    core_compiled *compiled = NULL;
    core_tensor *out = NULL;
    core_status status = core_compile(folds, w, &options, &compiled);

    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        status = core_compiled_call(compiled, w->inputs, 1, &out, 1);
        core_tensor_release(out);
    }
    core_compiled_release(compiled);
    return status;
}

/* Two groups of operators, one with two results, and a write. */
COMPILED_FUNCTION(fusible)
{
    core_tensor *y = NULL, *z = NULL;
    core_status status = core_mul(x[0], x[1], &y);

    if (status == CORE_OK)
        status = core_tanh(y, &out[0]);
    if (status == CORE_OK)
        status = core_mm(out[0], y, &z);
    if (status == CORE_OK)
        status = core_add_(x[1], z, core_int(1));
    if (status == CORE_OK)
        status = core_neg(x[1], &out[1]);
    core_tensor_release(y);
    core_tensor_release(z);
    *noutputs = 2;
    return status;
}

static core_status call_fused(world *w)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .codegen = CORE_COMPILE_CODEGEN_ON};
    core_compiled *compiled = NULL;
    core_tensor *out[2] = {NULL};
    char *text = NULL;
    core_status status = core_compile(fusible, w, &options, &compiled);

    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        status = core_compiled_call(compiled, w->inputs, 2, out, 2);
        core_tensor_release(out[0]);
        core_tensor_release(out[1]);
    }
    if (status == CORE_OK)
        status = core_compiled_explain(compiled, &text);
    core_text_free(text);
    core_compiled_release(compiled);
    return status;
}

/* Has a view, a write, random numbers, two results that require grad, and one
 * that is a view of an input. */
COMPILED_FUNCTION(trainable)
{
    core_tensor *y = NULL, *z = NULL, *grad = NULL;
    core_status status = core_mm(x[0], w->hidden[1], &y);

    if (status == CORE_OK)
        status = core_dropout(y, .5, true, &z);
    if (status == CORE_OK)
        status = core_tanh(z, &out[0]);
    if (status == CORE_OK)
        status = core_mul(y, x[0], &grad);
    if (status == CORE_OK)
        status = core_t(grad, &out[1]);
    if (status == CORE_OK)
        status = core_t(x[0], &out[2]);
    core_tensor_release(y);
    core_tensor_release(z);
    core_tensor_release(grad);
    *noutputs = 3;
    return status;
}

static core_status differentiate(world *w, core_compiled *compiled,
                                 uint32_t flags, size_t roots)
{
    core_tensor *out[3] = {NULL}, *grad = NULL;
    core_status status = core_compiled_call(compiled, w->inputs, 1, out, 3);

    if (status == CORE_OK)
        status = core_grad(out, roots, out, w->inputs, 1, flags, &grad);
    for (int i = 0; i < 3; i++)
        core_tensor_release(out[i]);
    core_tensor_release(grad);
    return status;
}

static core_status train(world *w)
{
    core_compiled *compiled = NULL;
    char *text = NULL;
    core_status status = core_compile(trainable, w, NULL, &compiled);

    if (status == CORE_OK)
        status = differentiate(w, compiled, 0, 3);
    if (status == CORE_OK)
        status = differentiate(w, compiled, 0, 1);
    if (status == CORE_OK)
        status = differentiate(w, compiled, CORE_CREATE_GRAPH, 2);
    if (status == CORE_OK)
        status = core_compiled_explain(compiled, &text);
    core_text_free(text);
    core_compiled_release(compiled);
    return status;
}

COMPILED_FUNCTION(sized)
{
    const int64_t n = core_tensor_numel(x[0]);
    core_tensor *row = NULL;
    core_status status = core_reshape(x[0], &n, 1, &row);

    if (status == CORE_OK)
        status = core_mul_scalar(row, core_int(n), &out[0]);
    core_tensor_release(row);
    *noutputs = 1;
    return status;
}

static core_status call_with_sizes(world *w)
{
    const int64_t rows[] = {2, 6, 4, 5};
    core_compiled *compiled = NULL;
    char *text = NULL;
    core_status status = core_compile(sized, w, NULL, &compiled);

    for (int i = 0; i < 4 && status == CORE_OK; i++) {
        core_tensor *x = NULL, *y = NULL;

        status = core_ones((int64_t[]){rows[i], 3}, 2, CORE_F32, w->device, &x);
        if (status == CORE_OK)
            status = core_compiled_call(compiled, &x, 1, &y, 1);
        core_tensor_release(x);
        core_tensor_release(y);
    }
    if (status == CORE_OK)
        status = core_compiled_explain(compiled, &text);
    core_text_free(text);
    core_compiled_release(compiled);
    return status;
}

static core_status save_and_load(world *w)
{
    core_program *program = NULL, *loaded = NULL;
    core_tensor *out[2] = {NULL};
    char *text = NULL;
    core_status status =
        core_program_trace(everything, w, w->inputs, 2, 2, &program);

    if (status == CORE_OK)
        status = core_program_verify(program);
    if (status == CORE_OK)
        status = core_program_text(program, &text);
    if (status == CORE_OK)
        status = core_program_save(program, path);
    if (status == CORE_OK)
        status = core_program_load(path, NULL, &loaded);
    if (status == CORE_OK)
        status = core_program_run(loaded, w->inputs, 2, out, 2);
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    core_text_free(text);
    core_program_release(loaded);
    core_program_release(program);
    return status;
}

/* Reads an input, a hidden input, and what is outside of it. */
COMPILED_FUNCTION(branch)
{
    core_tensor *product = NULL;
    core_status status = core_mm(x[0], w->hidden[1], &product);

    if (status == CORE_OK)
        status = core_dropout(product, .5, true, &out[0]);
    core_tensor_release(product);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(other_branch)
{
    *noutputs = 1;
    return core_t(x[0], &out[0]);
}

COMPILED_FUNCTION(is_small)
{
    core_tensor *sum = NULL;
    core_status status = core_sum(x[0], CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_lt_scalar(sum, core_int(30), &out[0]);
    core_tensor_release(sum);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(larger)
{
    *noutputs = 1;
    return core_add_scalar(x[0], core_int(1), core_int(1), &out[0]);
}

COMPILED_FUNCTION(chooses)
{
    core_tensor *predicate = NULL, *chosen = NULL;
    core_status status = is_small(w, x, 1, &predicate, noutputs);

    if (status == CORE_OK)
        status =
            core_cond(predicate, branch, other_branch, w, x, 1, &chosen, 1);
    if (status == CORE_OK)
        status = core_while(is_small, larger, w, &chosen, 1, out);
    core_tensor_release(predicate);
    core_tensor_release(chosen);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(tangent)
{
    *noutputs = 1;
    return core_tanh(x[0], &out[0]);
}

/* A branch and a loop with gradients. */
COMPILED_FUNCTION(chooses_smoothly)
{
    core_tensor *predicate = NULL, *chosen = NULL;
    core_status status = is_small(w, x, 1, &predicate, noutputs);

    if (status == CORE_OK)
        status =
            core_cond(predicate, tangent, other_branch, w, x, 1, &chosen, 1);
    if (status == CORE_OK)
        status = core_while(is_small, larger, w, &chosen, 1, out);
    core_tensor_release(predicate);
    core_tensor_release(chosen);
    *noutputs = 1;
    return status;
}

static core_status choose_and_differentiate(world *w)
{
    core_compiled *compiled = NULL;
    core_tensor *out = NULL, *grad = NULL;
    core_status status = core_compile(chooses_smoothly, w, NULL, &compiled);

    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        status = core_compiled_call(compiled, w->inputs, 1, &out, 1);
        if (status == CORE_OK)
            status = core_grad(&out, 1, &w->inputs[1], w->inputs, 1, 0, &grad);
        core_tensor_release(out);
        core_tensor_release(grad);
        out = grad = NULL;
    }
    core_compiled_release(compiled);
    return status;
}

static core_status choose(world *w)
{
    core_compiled *compiled = NULL;
    core_program *program = NULL, *loaded = NULL;
    core_tensor *out = NULL;
    char *text = NULL;
    core_status status = core_compile(chooses, w, NULL, &compiled);

    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        status = core_compiled_call(compiled, w->inputs, 1, &out, 1);
        core_tensor_release(out);
    }
    if (status == CORE_OK)
        status = core_program_trace(chooses, w, w->inputs, 1, 1, &program);
    if (status == CORE_OK)
        status = core_program_verify(program);
    if (status == CORE_OK)
        status = core_program_text(program, &text);
    if (status == CORE_OK)
        status = core_program_save(program, path);
    if (status == CORE_OK)
        status = core_program_load(path, NULL, &loaded);
    core_text_free(text);
    core_program_release(loaded);
    core_program_release(program);
    core_compiled_release(compiled);
    return status;
}

/* Steps two parameters together and one alone. */
typedef struct stepping {
    core_tensor *parameters[3];
    core_optimizer *optimizer;
} stepping;

static core_status step_function(void *context, core_tensor *const *x, size_t n,
                                 core_tensor **out, size_t *noutputs)
{
    const stepping *s = context;

    (void)x;
    (void)n;
    (void)out;
    *noutputs = 0;
    return core_optimizer_step(s->optimizer);
}

static core_status make_parameter(core_tensor *from, core_tensor **out)
{
    core_tensor *grad = NULL;
    core_status status = core_clone(from, -1, out);

    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(*out, true);
    if (status == CORE_OK)
        status = core_ones_like(from, CORE_DTYPE_NONE, NULL, -1, &grad);
    if (status == CORE_OK)
        status = core_tensor_set_grad(*out, grad);
    core_tensor_release(grad);
    return status;
}

static core_status step(world *w)
{
    const core_adam_options options = {.struct_size = sizeof options,
                                       .learning_rate = .1,
                                       .beta1 = .9,
                                       .beta2 = .99,
                                       .epsilon = 1e-8};
    stepping s = {{NULL}, NULL};
    core_compiled *compiled = NULL;
    core_tensor *turned = NULL;
    core_status status = core_t(w->hidden[0], &turned);

    if (status == CORE_OK)
        status = make_parameter(w->inputs[0], &s.parameters[0]);
    if (status == CORE_OK)
        status = make_parameter(w->inputs[1], &s.parameters[1]);
    if (status == CORE_OK)
        status = make_parameter(turned, &s.parameters[2]);
    if (status == CORE_OK)
        status = core_adam_create(s.parameters, 3, &options, &s.optimizer);
    if (status == CORE_OK)
        status = core_compile(step_function, &s, NULL, &compiled);
    for (int i = 0; i < 2 && status == CORE_OK; i++)
        status = core_compiled_call(compiled, NULL, 0, NULL, 0);
    if (status == CORE_OK)
        ck_assert_uint_eq(core_optimizer_steps(s.optimizer, 2), 2);
    core_compiled_release(compiled);
    core_optimizer_release(s.optimizer);
    for (int i = 0; i < 3; i++)
        core_tensor_release(s.parameters[i]);
    core_tensor_release(turned);
    return status;
}

static void fail_each(core_status (*calls)(world *w))
{
    world w = {.device = program_device};
    bool failed = true;
    int64_t n;

    with_hidden(&w);
    if (calls == train || calls == choose_and_differentiate)
        leaf(w.inputs[0]);
    OK(calls(&w)); /* what is made once is there */
    for (n = 0; failed; n++) {
        int64_t live, requested;
        core_status status;

        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        core__alloc_fault_set(n, false);
        status = calls(&w);
        requested = core__alloc_count();
        failed = requested > n;
        core__alloc_fault_set(INT64_MAX, false);
        core_error_clear();
        ck_assert_msg(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY,
                      "allocation %lld: status %d", (long long)n, status);
        ck_assert_msg(core__alloc_live() == live,
                      "allocation %lld: %lld blocks are left", (long long)n,
                      (long long)(core__alloc_live() - live));
        core__alloc_fault_set(-1, false);
    }
    ck_assert_int_gt(n, 100);
}

START_TEST(a_compiled_call_without_memory_leaves_nothing_behind)
{
    fail_each(call_twice);
}
END_TEST

START_TEST(freezing_without_memory_leaves_nothing_behind)
{
    fail_each(call_frozen);
}
END_TEST

START_TEST(fused_kernels_without_memory_leave_nothing_behind)
{
    fail_each(call_fused);
}
END_TEST

START_TEST(training_without_memory_leaves_nothing_behind)
{
    fail_each(train);
}
END_TEST

START_TEST(programs_of_other_sizes_without_memory_leave_nothing_behind)
{
    fail_each(call_with_sizes);
}
END_TEST

START_TEST(a_file_without_memory_leaves_nothing_behind)
{
    temporary_file(path, "libcore-program");
    fail_each(save_and_load);
    temporary_remove(path);
}
END_TEST

START_TEST(branches_without_memory_leave_nothing_behind)
{
    temporary_file(path, "libcore-regions");
    fail_each(choose);
    temporary_remove(path);
    fail_each(choose_and_differentiate);
}
END_TEST

START_TEST(optimizer_steps_without_memory_leave_nothing_behind)
{
    fail_each(step);
}
END_TEST

/* On the CPU: the queue of sim frees memory in another thread. */
int main(void)
{
    const TTest *const tests[] = {
        a_compiled_call_without_memory_leaves_nothing_behind,
        freezing_without_memory_leaves_nothing_behind,
        fused_kernels_without_memory_leave_nothing_behind,
        training_without_memory_leaves_nothing_behind,
        programs_of_other_sizes_without_memory_leave_nothing_behind,
        a_file_without_memory_leaves_nothing_behind,
        branches_without_memory_leave_nothing_behind,
        optimizer_steps_without_memory_leave_nothing_behind,
    };
    const test_suite suite = {
        .name = "compile/faults",
        .setup = on_cpu,
        .teardown = drop_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
