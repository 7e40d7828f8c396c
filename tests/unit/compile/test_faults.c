/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every allocation of a recording, a call, a description and a file fails once:
 * the call reports it, and nothing is left behind. */

#include "support/compiled.h"
#include "support/temporary_files.h"

#include "base/memory.h"

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

static void fail_each(core_status (*calls)(world *w))
{
    world w = {.device = program_device};
    bool failed = true;
    int64_t n;

    with_hidden(&w);
    if (calls == train)
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

START_TEST(training_without_memory_leaves_nothing_behind)
{
    fail_each(train);
}
END_TEST

START_TEST(a_file_without_memory_leaves_nothing_behind)
{
    temporary_file(path, "libcore-program");
    fail_each(save_and_load);
    temporary_remove(path);
}
END_TEST

/* On the CPU: the queue of sim frees memory in another thread. */
int main(void)
{
    const TTest *const tests[] = {
        a_compiled_call_without_memory_leaves_nothing_behind,
        training_without_memory_leaves_nothing_behind,
        a_file_without_memory_leaves_nothing_behind,
    };
    const test_suite suite = {
        .name = "compile/faults",
        .setup = on_cpu,
        .teardown = drop_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
