/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions that take the place of one of the core's, and what the core still
 * does around them: core_redispatch_displaced. */

#include "support/registrations.h"

#include "device/device.h"

#include <libcore/autocast.h>
#include <libcore/function.h>
#include <libcore/mode.h>
#include <libcore/profiler.h>

#include <string.h>

static char seen[64]; /* the user pointers of the functions, in order */

static void note(const core_call *call)
{
    if (call->user)
        strcat(seen, call->user);
}

static core_status passes_on(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    note(call);
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static core_status calls_displaced(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    note(call);
    return core_redispatch_displaced(call, args, nargs, results, nresults);
}

/* The call may be copied, to change it. */
static core_status calls_displaced_with_a_copy(core_call *call,
                                               const core_value *args,
                                               uint32_t nargs,
                                               core_value *results,
                                               uint32_t nresults)
{
    core_call own = {.struct_size = call->struct_size,
                     .host = call->host,
                     .op = call->op,
                     .keys = call->keys};

    note(call);
    return core_redispatch_displaced(&own, args, nargs, results, nresults);
}

static core_registration *put(const char *name, uint32_t key, const char *type,
                              core_function function, const char *user)
{
    core_registration *registration;

    OK(core_function_register(name, key, type, function, (void *)user,
                              &registration));
    handles[nhandles++] = registration;
    return registration;
}

static void start(void)
{
    seen[0] = '\0';
    open_cpu();
}

/* -------------------------------------------------------- in-place-or-view -- */

START_TEST(observer_of_changes_does_not_lose_their_count)
{
    const core_function functions[] = {passes_on, calls_displaced};

    start();
    for (int i = 0; i < 2; i++) {
        core_tensor *x = leaf(VECTOR(2, 3, 4)), *y = mul(x, VECTOR(2, 1, 1));
        core_tensor *z = sum(mul(y, y));
        uint32_t version = core_tensor_version(y);
        core_registration *registration;

        OK(core_function_register("add_.Tensor", CORE_KEY_INPLACE_OR_VIEW, NULL,
                                  functions[i], (void *)"V", &registration));
        OK(core_add_(y, y, core_int(1)));
        core_registration_release(registration);
        ck_assert_str_eq(seen, "V");
        seen[0] = '\0';
        ck_assert_uint_eq(core_tensor_version(y), version + 1);
        FAILS(core_backward(&z, 1, NULL, 0), CORE_ERROR_VERSION, "mul.Tensor");
    }
    undo_all();
}
END_TEST

START_TEST(observer_of_changes_is_not_called_for_refused_ones)
{
    uint64_t before = core_inference_begin();
    core_tensor *x = VECTOR(2, 3, 4);

    start();
    core_inference_end(before);
    put("add_.Tensor", CORE_KEY_INPLACE_OR_VIEW, NULL, passes_on, "V");
    FAILS(core_add_(x, x, core_int(1)), CORE_ERROR_AUTOGRAD, "inference mode");
    ck_assert_str_eq(seen, "");
    undo_all();
}
END_TEST

/* ---------------------------------------------------------------- autograd -- */

START_TEST(observer_under_autograd_keeps_the_gradient)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y;

    start();
    put("mul.Tensor", CORE_KEY_AUTOGRAD, NULL, calls_displaced, "A");
    backward(sum(mul(x, x)));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    y = CALL(silu, x); /* the first call of a table */
    ck_assert(core_tensor_requires_grad(y));
    put("silu", CORE_KEY_AUTOGRAD, NULL, calls_displaced_with_a_copy, "S");
    y = CALL(silu, x);
    ck_assert(core_tensor_requires_grad(y));
    put("linear", CORE_KEY_AUTOGRAD, "cpu", calls_displaced, "L");
    x = leaf(MATRIX(1, 2, 3, 4));
    backward(sum(CALL(linear, x, x, NULL)));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    ck_assert_str_eq(seen, "ASL");
    undo_all();
}
END_TEST

START_TEST(passing_on_under_autograd_records_nothing)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4));

    start();
    put("mul.Tensor", CORE_KEY_AUTOGRAD, NULL, passes_on, "A");
    ck_assert(!core_tensor_requires_grad(mul(x, x)));
    undo_all();
}
END_TEST

/* ------------------------------------------------------------------ chains -- */

START_TEST(each_function_calls_the_one_before_it)
{
    core_registration *middle, *newest;
    core_tensor *x = leaf(VECTOR(2, 3, 4));

    start();
    put("mul.Tensor", CORE_KEY_AUTOGRAD, NULL, calls_displaced, "1");
    put("mul.Tensor", CORE_KEY_AUTOGRAD, "cpu", calls_displaced, "c");
    OK(core_function_register("mul.Tensor", CORE_KEY_AUTOGRAD, NULL,
                              calls_displaced, (void *)"2", &middle));
    OK(core_function_register("mul.Tensor", CORE_KEY_AUTOGRAD, "cpu",
                              calls_displaced, (void *)"d", &newest));
    backward(sum(mul(x, x)));
    ck_assert_str_eq(seen, "dc21"); /* those of the device type first */
    core_registration_release(middle);
    seen[0] = '\0';
    backward(sum(mul(x, x)));
    ck_assert_str_eq(seen, "dc1");
    core_registration_release(newest);
    HOLDS(core_tensor_grad(x), 2, 12, 16);
    undo_all();
}
END_TEST

static core_registration *running;

static core_status releases_itself(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    core_registration_release(running);
    running = NULL;
    return core_redispatch_displaced(call, args, nargs, results, nresults);
}

START_TEST(function_that_releases_itself_still_calls_the_one_before)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4));

    start();
    put("mul.Tensor", CORE_KEY_AUTOGRAD, NULL, calls_displaced, "1");
    OK(core_function_register("mul.Tensor", CORE_KEY_AUTOGRAD, NULL,
                              releases_itself, NULL, &running));
    backward(sum(mul(x, x)));
    ck_assert_ptr_null(running);
    ck_assert_str_eq(seen, "1");
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    undo_all();
}
END_TEST

static core_status wrong_backward(core_node *node, void *context,
                                  core_tensor *const *grads, size_t ngrads,
                                  core_tensor **gradients, size_t ngradients)
{
    (void)node, (void)context, (void)ngrads, (void)ngradients;
    return core_neg(grads[0], &gradients[0]);
}

START_TEST(registered_gradient_is_called_like_a_built_in_one)
{
    const core_operator_gradient gradient = {.struct_size = sizeof gradient,
                                             .backward = wrong_backward};
    core_tensor *x = leaf(VECTOR(2, 3, 4));

    start();
    OK(core_gradient_register("exp", &gradient, &handles[nhandles++]));
    put("exp", CORE_KEY_AUTOGRAD, NULL, calls_displaced, "A");
    backward(sum(CALL(exp, x)));
    HOLDS(core_tensor_grad(x), 2, -1, -1);
    ck_assert_str_eq(seen, "A");
    undo_all();
}
END_TEST

/* -------------------------------------------------- autocast and profiler -- */

START_TEST(autocast_functions_are_called_in_regions_only)
{
    core_tensor *x = typed(CORE_F32, 2, (int64_t[]){1, 1}, (double[]){3}), *y;
    uint64_t region;

    start();
    put("mm", CORE_KEY_AUTOCAST, NULL, calls_displaced, "C");
    y = CALL(mm, x, x);
    ck_assert_str_eq(seen, "");
    OK(core_autocast_begin(cpu, CORE_BF16, 0, &region));
    y = CALL(mm, x, x);
    OK(core_autocast_end(region));
    ck_assert_str_eq(seen, "C");
    ck_assert_int_eq(core_tensor_dtype(y), CORE_BF16);
    undo_all();
}
END_TEST

START_TEST(profiler_functions_are_called_in_sessions_only)
{
    core_profile_row row = {.struct_size = sizeof row};
    core_tensor *x = VECTOR(2, 3, 4);
    core_profiler *profiler;
    size_t index = 0;

    start();
    put("mul.Tensor", CORE_KEY_PROFILER, NULL, calls_displaced, "P");
    mul(x, x);
    ck_assert_str_eq(seen, "");
    OK(core_profiler_start(NULL, &profiler));
    mul(x, x);
    OK(core_profiler_stop(profiler));
    ck_assert_str_eq(seen, "P");
    do
        OK(core_profiler_get_row(profiler, CORE_PROFILE_BY_SELF, index++,
                                 &row));
    while (strcmp(row.name, "mul.Tensor") != 0);
    ck_assert_uint_eq(row.calls, 1);
    core_profiler_release(profiler);
    undo_all();
}
END_TEST

/* ----------------------------------------------------------------- backend -- */

START_TEST(function_of_a_backend_calls_the_kernel)
{
    core_tensor *x = VECTOR(2, 3, 4);

    start();
    put("mul.Tensor", CORE_KEY_BACKEND, "cpu", calls_displaced, "1");
    put("mul.Tensor", CORE_KEY_BACKEND, "cpu", calls_displaced, "2");
    HOLDS(mul(x, x), 2, 9, 16);
    ck_assert_str_eq(seen, "21");
    put("addcmul", CORE_KEY_BACKEND, "cpu", calls_displaced, "K");
    HOLDS(CALL(addcmul, x, x, x, core_int(1)), 2, 12, 20);
    put("unsqueeze", CORE_KEY_BACKEND, "cpu", calls_displaced, "V");
    HOLDS(CALL(unsqueeze, x, 0), 2, 3, 4);
    ck_assert_str_eq(seen, "21KV");
    undo_all();
}
END_TEST

static core_status own_status;

static core_status asks(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    own_status =
        core_redispatch_displaced(call, args, nargs, results, nresults);
    return core_error_set(CORE_ERROR_UNSUPPORTED, "asked");
}

START_TEST(decomposition_calls_the_one_before_it)
{
    core_tensor *x = leaf(VECTOR(2, 3, 7)), *y = leaf(VECTOR(2, 3, 4));

    start();
    put("relu6", CORE_KEY_COMPOSITE_IMPLICIT, NULL, calls_displaced, "1");
    put("relu6", CORE_KEY_COMPOSITE_IMPLICIT, NULL, calls_displaced, "2");
    backward(sum(CALL(relu6, x)));
    HOLDS(core_tensor_grad(x), 2, 1, 0);
    put("clone", CORE_KEY_COMPOSITE_EXPLICIT, NULL, calls_displaced, "C");
    backward(sum(CALL(clone, y, CORE_FORMAT_PRESERVE)));
    HOLDS(core_tensor_grad(y), 2, 1, 1);
    ck_assert_str_eq(seen, "21C");
    undo_all();
}
END_TEST

static core_status doubles(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)nargs, (void)nresults;
    note(call);
    return core_op_invoke(CORE_OP_ADD_TENSOR,
                          (core_value[]){args[0], args[0], core_int(1)}, 3,
                          results, 1);
}

START_TEST(functions_of_an_own_operator_call_the_one_before_them)
{
    core_value arg, result = {0};
    core_operator *op;

    start();
    arg = value_of(VECTOR(2, 3, 4));
    OK(core_op_register("place::g(Tensor self) -> Tensor",
                        &handles[nhandles++]));
    put("place::g", CORE_KEY_COMPOSITE_IMPLICIT, NULL, doubles, "d");
    put("place::g", CORE_KEY_COMPOSITE_EXPLICIT, NULL, calls_displaced, "e");
    put("place::g", CORE_KEY_BACKEND, "cpu", calls_displaced, "1");
    put("place::g", CORE_KEY_BACKEND, "cpu", calls_displaced, "2");
    OK(core_op_find("place::g", &op));
    OK(core_op_call(op, &arg, 1, &result, 1));
    HOLDS(keep(result.u.tensor), 2, 6, 8);
    ck_assert_str_eq(seen, "21ed");
    undo_all();
}
END_TEST

START_TEST(function_that_displaces_nothing_is_refused)
{
    core_value arg, result;
    core_call none = {.struct_size = sizeof none};
    core_operator *op;

    start();
    arg = value_of(VECTOR(2, 3, 4));
    OK(core_op_register("place::f(Tensor self) -> Tensor",
                        &handles[nhandles++]));
    put("place::f", CORE_KEY_BACKEND, "cpu", asks, NULL);
    OK(core_op_find("place::f", &op));
    FAILS(core_op_call(op, &arg, 1, &result, 1), CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(own_status, CORE_ERROR_INVALID_ARGUMENT);
    OK(core_op_register("place::h(Tensor self) -> Tensor",
                        &handles[nhandles++]));
    put("place::h", CORE_KEY_COMPOSITE_IMPLICIT, NULL, calls_displaced, "h");
    OK(core_op_find("place::h", &op));
    FAILS(core_op_call(op, &arg, 1, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
          "core_redispatch_displaced", "place::h has displaced nothing");
    FAILS(core_redispatch_displaced(NULL, &arg, 1, &result, 1),
          CORE_ERROR_INVALID_ARGUMENT, "core_redispatch_displaced", "call");
    none.op = op;
    FAILS(core_redispatch_displaced(&none, &arg, 1, &result, 1),
          CORE_ERROR_INVALID_ARGUMENT, "this thread does not run", "place::h");
    undo_all();
}
END_TEST

/* ------------------------------------------------------------------ unload -- */

/* As between the two steps in which a plugin's backend is unloaded: what is
 * registered for its slot would serve the next backend there. */
START_TEST(nothing_is_registered_for_a_backend_that_leaves)
{
    core_registration *registration;
    core__backend *backend;
    core_device *sim;

    start();
    OK(core_device_find("sim", &sim));
    backend = core__backend_by_type("sim", 3);
    backend->leaving = true;
    FAILS(core_function_register("neg", CORE_KEY_BACKEND, "sim", passes_on,
                                 NULL, &registration),
          CORE_ERROR_NOT_FOUND, "sim");
    FAILS(core_fallback_register(CORE_KEY_BACKEND, "sim", passes_on, NULL,
                                 &registration),
          CORE_ERROR_NOT_FOUND, "sim");
    backend->leaving = false;
    put("neg", CORE_KEY_BACKEND, "sim", calls_displaced, "S");
    undo_all();
}
END_TEST

SUITE("dispatch/displaced", observer_of_changes_does_not_lose_their_count,
      observer_of_changes_is_not_called_for_refused_ones,
      observer_under_autograd_keeps_the_gradient,
      passing_on_under_autograd_records_nothing,
      each_function_calls_the_one_before_it,
      function_that_releases_itself_still_calls_the_one_before,
      registered_gradient_is_called_like_a_built_in_one,
      autocast_functions_are_called_in_regions_only,
      profiler_functions_are_called_in_sessions_only,
      function_of_a_backend_calls_the_kernel,
      decomposition_calls_the_one_before_it,
      functions_of_an_own_operator_call_the_one_before_them,
      function_that_displaces_nothing_is_refused,
      nothing_is_registered_for_a_backend_that_leaves)
