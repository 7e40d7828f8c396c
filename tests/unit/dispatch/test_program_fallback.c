/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_fallback_register: a program's function for all operators that have
 * nothing of their own under a key. */

#include "support/modes.h"
#include "support/registrations.h"

#include <libcore/function.h>

static core_tensor *x;

static void begin(void)
{
    open_cpu();
    seen[0] = '\0';
    x = keep(VECTOR(3, 1, 2, 3));
}

static void end(void)
{
    while (nmodes)
        pop();
    undo_all();
}

/* Notes the operator, and returns the negative of its first argument. */
static core_status negative(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core_tensor *out;

    (void)nargs;
    (void)nresults;
    strcat(strcat(seen, call->user), core_op_name(call->op));
    strcat(seen, " ");
    CORE_TRY(core_neg(args[0].u.tensor, &out));
    results[0] = core_pack_tensor(out);
    return CORE_OK;
}

static void fallback(uint32_t key, const char *type, core_function function,
                     void *user)
{
    OK(core_fallback_register(key, type, function, user, &handles[nhandles]));
    nhandles++;
}

static void release_newest(void)
{
    core_registration_release(handles[--nhandles]);
}

static core_status call(const char *name, core_tensor *argument,
                        core_tensor **out)
{
    core_value arg = core_pack_tensor(argument), result = {0};
    core_operator *op;
    core_status status;

    OK(core_op_find(name, &op));
    status = core_op_call(op, &arg, 1, &result, 1);
    *out = result.u.tensor;
    return status;
}

static core_tensor *called(const char *name, core_tensor *argument)
{
    core_tensor *out;

    OK(call(name, argument, &out));
    return keep(out);
}

static void operators(void)
{
    OK(core_op_register("mine::a(Tensor self) -> Tensor", &handles[nhandles]));
    nhandles++;
    OK(core_op_register("mine::b(Tensor self) -> Tensor", &handles[nhandles]));
    nhandles++;
}

START_TEST(operators_without_a_kernel_go_to_the_fallback)
{
    core_tensor *out;

    operators();
    FAILS(call("mine::a", x, &out), CORE_ERROR_NO_KERNEL, "mine::a",
          "; no loaded backend has one. ");
    fallback(CORE_KEY_BACKEND, "cpu", negative, "");
    HOLDS(called("mine::a", x), 3, -1, -2, -3);
    HOLDS(called("mine::b", x), 3, -1, -2, -3);
    SEEN("mine::a mine::b ");
    HOLDS(mul(x, x), 3, 1, 4, 9);
    SEEN("");
    release_newest();
    FAILS(call("mine::a", x, &out), CORE_ERROR_NO_KERNEL, "mine::a");
}
END_TEST

START_TEST(newest_fallback_is_used_and_kernels_precede_it)
{
    operators();
    fallback(CORE_KEY_BACKEND, "cpu", negative, "1:");
    fallback(CORE_KEY_BACKEND, "cpu", negative, "2:");
    called("mine::a", x);
    SEEN("2:mine::a ");
    release_newest();
    called("mine::a", x);
    SEEN("1:mine::a ");
    OK(core_function_register("mine::a", CORE_KEY_BACKEND, "cpu", negative,
                              "own:", &handles[nhandles]));
    nhandles++;
    called("mine::a", x);
    called("mine::b", x);
    SEEN("own:mine::a 1:mine::b ");
    release_newest();
    OK(core_function_register("mine::a", CORE_KEY_COMPOSITE_EXPLICIT, NULL,
                              negative, "parts:", &handles[nhandles]));
    nhandles++;
    called("mine::a", x);
    SEEN("parts:mine::a ");
}
END_TEST

START_TEST(fallback_serves_its_device_type_only)
{
    core_device *meta;
    core_tensor *there, *out;

    operators();
    OK(core_device_find("meta", &meta));
    there = CALL(to_copy, x, CORE_DTYPE_NONE, meta, false, -1);
    fallback(CORE_KEY_BACKEND, "cpu", negative, "");
    ck_assert_int_ne(call("mine::a", there, &out), CORE_OK);
    SEEN("");
    fallback(CORE_KEY_BACKEND, "meta", negative, "meta:");
    called("mine::a", there);
    SEEN("meta:mine::a ");
    /* inference is what a built-in operator has on "meta" */
    mul(there, there);
    SEEN("");
}
END_TEST

START_TEST(modes_below_autograd_see_calls_of_the_fallback)
{
    operators();
    fallback(CORE_KEY_BACKEND, "cpu", negative, "fallback:");
    push(CORE_MODE_BELOW_AUTOGRAD, note, "mode:");
    called("mine::a", x);
    SEEN("mode:mine::a fallback:mine::a ");
}
END_TEST

static core_status passes(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    strcat(strcat(strcat(seen, call->user), core_op_name(call->op)), " ");
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static core_status none(core_node *node, void *context,
                        core_tensor *const *grads, size_t ngrads,
                        core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)grads;
    (void)ngrads;
    (void)gradients;
    (void)ngradients;
    return CORE_OK;
}

START_TEST(operators_without_a_gradient_go_to_the_fallback_of_autograd)
{
    const core_operator_gradient gradient = {.struct_size = sizeof gradient,
                                             .backward = none};
    core_tensor *w = leaf(VECTOR(3, 1, 2, 3));

    operators();
    fallback(CORE_KEY_BACKEND, "cpu", negative, "kernel:");
    fallback(CORE_KEY_AUTOGRAD, "cpu", passes, "autograd:");
    backward(sum(called("mine::a", w))); /* through neg */
    SEEN("autograd:mine::a kernel:mine::a ");
    HOLDS(core_tensor_grad(w), 3, -1, -1, -1);
    ck_assert(core_tensor_requires_grad(mul(w, w)));
    SEEN("");
    OK(core_gradient_register("mine::a", &gradient, &handles[nhandles]));
    nhandles++;
    ck_assert(core_tensor_requires_grad(called("mine::a", w)));
    SEEN("kernel:mine::a ");
    release_newest();
    release_newest();
    fallback(CORE_KEY_AUTOGRAD, NULL, passes, "all:");
    called("mine::b", w);
    SEEN("all:mine::b kernel:mine::b ");
    release_newest();
    called("mine::b", w);
    SEEN("kernel:mine::b ");
}
END_TEST

START_TEST(wrong_registrations_are_refused)
{
    core_registration *out;

    FAILS(core_fallback_register(CORE_KEY_PROFILER, NULL, passes, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "core_fallback_register", "key is 4");
    ck_assert_ptr_null(out);
    FAILS(core_fallback_register(CORE_KEY_BACKEND, NULL, passes, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "device_type");
    FAILS(
        core_fallback_register(CORE_KEY_BACKEND, "abacus", passes, NULL, &out),
        CORE_ERROR_NOT_FOUND, "abacus");
    FAILS(core_fallback_register(CORE_KEY_BACKEND, "cpu", NULL, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "function");
    FAILS(core_fallback_register(CORE_KEY_BACKEND, "cpu", passes, NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "out_registration");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operators_without_a_kernel_go_to_the_fallback,
        newest_fallback_is_used_and_kernels_precede_it,
        fallback_serves_its_device_type_only,
        modes_below_autograd_see_calls_of_the_fallback,
        operators_without_a_gradient_go_to_the_fallback_of_autograd,
        wrong_registrations_are_refused,
    };
    const test_suite suite = {.name = "dispatch/program_fallback",
                              .setup = begin,
                              .teardown = end,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
