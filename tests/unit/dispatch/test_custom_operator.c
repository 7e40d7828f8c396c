/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Custom operators: schema, kernel, shape, gradient, autocast, mutated
 * arguments.  They behave like built-in operators. */

#include "support/registrations.h"

#include "base/memory.h"
#include "base/thread.h"
#include "base/keys.h"

#include <libcore/function.h>

static void put(const char *name, uint32_t key, const char *device,
                core_function function)
{
    OK(core_function_register(name, key, device, function, NULL,
                              &handles[nhandles++]));
}

static void gradient_with(const char *name,
                          const core_operator_gradient *gradient)
{
    OK(core_gradient_register(name, gradient, &handles[nhandles++]));
}

static core_status call(const char *name, core_value *args, uint32_t nargs,
                        core_tensor **out)
{
    core_value results[2] = {{0}};
    core_operator *op;
    core_status status;

    *out = NULL;
    OK(core_op_find(name, &op));
    status = core_op_call(op, args, nargs, results, 2);
    *out = results[0].u.tensor;
    core_value_release(&results[1]);
    return status;
}

/* ------------------------------------------------------------- a product -- */

static int released;

static void count_release(void *state)
{
    (void)state;
    released++;
}

static core_status times(core_call *c, const core_value *args, uint32_t nargs,
                         core_value *results, uint32_t nresults)
{
    core_tensor *out;
    core_status status = core_mul(args[0].u.tensor, args[1].u.tensor, &out);

    (void)c;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        results[0] = value_of(out);
    return status;
}

static core_status times_shape(core_call *c, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    return times(c, args, nargs, results, nresults);
}

static core_status save_both(core_function_context *function, void *user,
                             const core_value *args, uint32_t nargs,
                             const core_value *results, uint32_t nresults)
{
    core_tensor *both[] = {args[0].u.tensor, args[1].u.tensor};
    core_status status = core_context_set_state(function, user, count_release);

    (void)nargs;
    (void)results;
    (void)nresults;
    return status == CORE_OK ? core_context_save(function, both, 2) : status;
}

static core_status times_backward(core_node *node, void *context,
                                  core_tensor *const *grads, size_t ngrads,
                                  core_tensor **gradients, size_t ngradients)
{
    core_status status = CORE_OK;

    (void)context;
    ck_assert_uint_eq(ngrads, 1);
    ck_assert_uint_eq(ngradients, 2);
    for (size_t i = 0; i < 2 && status == CORE_OK; i++) {
        core_tensor *other = NULL;

        if (!core_node_needs_gradient(node, i))
            continue;
        status = core_node_saved(node, 1 - i, &other);
        if (status == CORE_OK)
            status = core_mul(grads[0], other, &gradients[i]);
        core_tensor_release(other);
    }
    return status;
}

static core_operator_gradient product_gradient = {
    .struct_size = sizeof product_gradient,
    .setup = save_both,
    .backward = times_backward,
};

static void define_product(void)
{
    OK(core_op_register("mine::times(Tensor a, Tensor b) -> Tensor",
                        &handles[nhandles++]));
    put("mine::times", CORE_KEY_BACKEND, "cpu", times);
}

static core_tensor *product(core_tensor *a, core_tensor *b)
{
    core_value args[] = {value_of(a), value_of(b)};
    core_tensor *out;

    OK(call("mine::times", args, 2, &out));
    return keep(out);
}

START_TEST(registered_gradient_has_derivatives_of_any_order)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = leaf(VECTOR(2, 5, 7));
    core_tensor *y, *first, *second;

    define_product();
    released = 0;
    gradient_with("mine::times", &product_gradient);
    y = product(a, b);
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(y)), "mine::times");
    y = sum(mul(y, y));
    OK(core_grad(&y, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 2, 2 * 10 * 5, 2 * 21 * 7);
    first = sum(first);
    OK(core_grad(&first, 1, NULL, &b, 1, 0, &second));
    HOLDS(keep(second), 2, 4 * 2 * 5, 4 * 3 * 7);
    drop_all();
    ck_assert_int_eq(released, 1);
}
END_TEST

START_TEST(backward_without_a_gradient_is_refused)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y;

    define_product();
    y = product(a, a);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_UNSUPPORTED, "mine::times");
    ck_assert_ptr_null(core_tensor_grad(a));
}
END_TEST

START_TEST(recorded_call_keeps_its_gradient_after_release_of_the_handle)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y;

    define_product();
    gradient_with("mine::times", &product_gradient);
    y = product(a, a);
    while (nhandles)
        core_registration_release(handles[--nhandles]);
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 4);
}
END_TEST

START_TEST(registered_shape_function_serves_meta_tensors_with_gradients)
{
    core_tensor *a, *b, *y, *ones;
    core_value args[2];
    core_device *meta;

    define_product();
    gradient_with("mine::times", &product_gradient);
    OK(core_device_find("meta", &meta));
    OK(core_zeros((int64_t[]){2, 3}, 2, CORE_F32, meta, &a));
    OK(core_zeros((int64_t[]){3}, 1, CORE_F32, meta, &b));
    leaf(keep(a));
    keep(b);
    args[0] = value_of(a);
    args[1] = value_of(b);
    FAILS(call("mine::times", args, 2, &y), CORE_ERROR_NO_KERNEL, "mine::times",
          "meta", "cpu");
    OK(core_shape_register("mine::times", times_shape, NULL,
                           &handles[nhandles++]));
    y = product(a, b);
    ck_assert_uint_eq(core_tensor_ndim(y), 2);
    ck_assert_ptr_eq(core_tensor_device(y), meta);
    OK(core_ones((int64_t[]){2, 3}, 2, CORE_F32, meta, &ones));
    keep(ones);
    OK(core_backward(&y, 1, &ones, 0));
    ck_assert_uint_eq(core_tensor_ndim(core_tensor_grad(a)), 2);
}
END_TEST

/* --------------------------------------------------------------- autocast -- */

/* What autocast does for a lower-precision operator: recorded casts, then
 * redispatch. */
static core_status in_half(core_call *c, const core_value *args, uint32_t nargs,
                           core_value *results, uint32_t nresults)
{
    core__thread *self = core__thread_self();
    uint64_t excluded = self->excluded;
    core_tensor *half[2] = {NULL, NULL};
    core_value cast[2];
    core_status status = CORE_OK;

    self->excluded |= CORE__KEY_AUTOCAST;
    for (size_t i = 0; i < 2 && status == CORE_OK; i++)
        status = core_to_copy(args[i].u.tensor, CORE_BF16, NULL, false, -1,
                              &half[i]);
    for (size_t i = 0; i < 2 && status == CORE_OK; i++)
        cast[i] = value_of(half[i]);
    if (status == CORE_OK)
        status = core_op_invoke_on(c->op, cast, nargs, results, nresults);
    self->excluded = excluded;
    core_tensor_release(half[0]);
    core_tensor_release(half[1]);
    return status;
}

START_TEST(autocast_function_runs_before_the_gradient)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = VECTOR(2, 5, 7), *y;

    define_product();
    gradient_with("mine::times", &product_gradient);
    put("mine::times", CORE_KEY_AUTOCAST, NULL, in_half);
    ck_assert_uint_eq(core_tensor_dtype(product(a, b)), CORE_F64);
    core__thread_self()->included |= CORE__KEY_AUTOCAST;
    y = product(a, b);
    core__thread_self()->included &= ~CORE__KEY_AUTOCAST;
    ck_assert_uint_eq(core_tensor_dtype(y), CORE_BF16);
    backward(sum(y));
    ck_assert_uint_eq(core_tensor_dtype(core_tensor_grad(a)), CORE_F64);
    HOLDS(core_tensor_grad(a), 2, 5, 7);
}
END_TEST

/* --------------------------------------------------------------- mutating -- */

static core_status double_it(core_call *c, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core_status status = core_mul_scalar_(args[0].u.tensor, core_float(2));

    (void)c;
    (void)nargs;
    if (status == CORE_OK && nresults) {
        core_tensor_retain(args[0].u.tensor);
        results[0] = args[0];
    }
    return status;
}

static core_status double_backward(core_node *node, void *context,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    ck_assert_uint_eq(ngrads, 1);
    ck_assert_uint_eq(ngradients, 1);
    return core_mul_scalar(grads[0], core_float(2), &gradients[0]);
}

static void define_doubling(const char *schema, const char *name)
{
    const core_operator_gradient gradient = {.struct_size = sizeof gradient,
                                             .backward = double_backward};

    OK(core_op_register(schema, &handles[nhandles++]));
    put(name, CORE_KEY_BACKEND, "cpu", double_it);
    gradient_with(name, &gradient);
}

START_TEST(mutated_argument_gets_the_history_of_the_operator)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *a = mul(x, x), *same;
    core_value arg = value_of(a);
    uint32_t version = core_tensor_version(a);

    define_doubling("mine::double_(Tensor(a!) self) -> Tensor(a!)",
                    "mine::double_");
    OK(call("mine::double_", &arg, 1, &same));
    ck_assert_ptr_eq(keep(same), a);
    ck_assert_uint_gt(core_tensor_version(a), version);
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(a)), "mine::double_");
    backward(sum(a));
    HOLDS(core_tensor_grad(x), 2, 4, 8);
}
END_TEST

START_TEST(operator_may_mutate_an_argument_and_return_nothing)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *a = mul(x, x), *none;
    core_value arg = value_of(a);

    define_doubling("mine::twice(Tensor(a!) self) -> ()", "mine::twice");
    OK(call("mine::twice", &arg, 1, &none));
    HOLDS(a, 2, 2, 8);
    backward(sum(a));
    HOLDS(core_tensor_grad(x), 2, 4, 8);
    arg = value_of(x);
    FAILS(call("mine::twice", &arg, 1, &none), CORE_ERROR_AUTOGRAD,
          "mine::twice", "leaf");
    HOLDS(x, 2, 1, 2);
}
END_TEST

static core_status double_second(core_call *c, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    (void)results;
    ck_assert_uint_eq(nresults, 0);
    return double_it(c, args + 1, nargs, NULL, 0);
}

static core_status leave_list(core_call *c, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    (void)c;
    (void)results;
    ck_assert_uint_eq(nresults, 0);
    ck_assert_uint_eq(nargs, 2);
    ck_assert_uint_eq(args[0].count, 2);
    return CORE_OK;
}

START_TEST(mutated_list_bumps_version_of_each_tensor)
{
    core_tensor *list[2] = {VECTOR(1, 3), VECTOR(2, 4, 5)}, *none;
    core_tensor *other = VECTOR(1, 6);
    core_value args[] = {{CORE_VALUE_TENSOR_LIST, 2, {.tensors = list}},
                         {CORE_VALUE_TENSOR_LIST, 1, {.tensors = &other}}};

    OK(core_op_register("mine::all(Tensor(a!)[] self, Tensor[] others) -> ()",
                        &handles[nhandles++]));
    put("mine::all", CORE_KEY_BACKEND, "cpu", leave_list);
    OK(call("mine::all", args, 2, &none));
    ck_assert_uint_eq(core_tensor_version(list[0]), 1);
    ck_assert_uint_eq(core_tensor_version(list[1]), 1);
    ck_assert_uint_eq(core_tensor_version(other), 0);
}
END_TEST

START_TEST(any_argument_may_be_mutated)
{
    core_tensor *x = leaf(VECTOR(1, 1)), *a = VECTOR(1, 3), *y, *none;
    core_value args[] = {
        value_of(x), value_of(a), {CORE_VALUE_INT, 0, {.i = 1}}};

    OK(core_op_register("mine::second(Tensor a, Tensor(b!) b, int n) -> ()",
                        &handles[nhandles++]));
    put("mine::second", CORE_KEY_BACKEND, "cpu", double_second);
    y = mul(x, a); /* saves a */
    args[0] = value_of(a);
    args[1] = value_of(VECTOR(1, 2));
    OK(call("mine::second", args, 3, &none));
    HOLDS(args[1].u.tensor, 1, 4);
    ck_assert_uint_eq(core_tensor_version(args[1].u.tensor), 2);
    ck_assert_uint_eq(core_tensor_version(a), 0);
    args[0] = args[1];
    args[1] = value_of(a);
    OK(call("mine::second", args, 3, &none));
    ck_assert_uint_eq(core_tensor_version(a), 2);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_VERSION, "mul");
}
END_TEST

START_TEST(change_of_a_saved_tensor_is_detected)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *b = VECTOR(2, 3, 4), *y, *none;
    core_value arg = value_of(b);

    define_product();
    gradient_with("mine::times", &product_gradient);
    define_doubling("mine::twice(Tensor(a!) self) -> ()", "mine::twice");
    y = sum(product(x, b));
    OK(call("mine::twice", &arg, 1, &none));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_VERSION, "mine::times",
          "[2]");
}
END_TEST

/* ----------------------------------------------------- marks of the setup -- */

static core_status two(core_call *c, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    core_tensor *out[2] = {NULL, NULL};
    core_status status = core_neg(args[0].u.tensor, &out[0]);

    (void)c;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = core_sign(args[0].u.tensor, &out[1]);
    if (status != CORE_OK) {
        core_tensor_release(out[0]);
        return status;
    }
    results[0] = value_of(out[0]);
    results[1] = value_of(out[1]);
    return CORE_OK;
}

static core_status mark_second(core_function_context *function, void *user,
                               const core_value *args, uint32_t nargs,
                               const core_value *results, uint32_t nresults)
{
    (void)user;
    (void)args;
    (void)nargs;
    ck_assert_uint_eq(nresults, 2);
    return core_context_mark_non_differentiable(function, results[1].u.tensor);
}

static core_status two_backward(core_node *node, void *context,
                                core_tensor *const *grads, size_t ngrads,
                                core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)ngradients;
    ck_assert_uint_eq(ngrads, 2);
    return core_neg(grads[0], &gradients[0]);
}

START_TEST(non_differentiable_result_requires_no_grad)
{
    const core_operator_gradient gradient = {.struct_size = sizeof gradient,
                                             .setup = mark_second,
                                             .backward = two_backward};
    core_value results[2] = {{0}}, arg = value_of(leaf(VECTOR(2, 2, -3)));
    core_operator *op;

    OK(core_op_register("mine::two(Tensor a) -> (Tensor, Tensor)",
                        &handles[nhandles++]));
    put("mine::two", CORE_KEY_BACKEND, "cpu", two);
    gradient_with("mine::two", &gradient);
    OK(core_op_find("mine::two", &op));
    OK(core_op_call(op, &arg, 1, results, 2));
    ck_assert(core_tensor_requires_grad(keep(results[0].u.tensor)));
    ck_assert(!core_tensor_requires_grad(keep(results[1].u.tensor)));
    backward(sum(results[0].u.tensor));
    HOLDS(core_tensor_grad(arg.u.tensor), 2, -1, -1);
}
END_TEST

START_TEST(once_differentiable_refuses_the_second_derivative)
{
    core_operator_gradient gradient = product_gradient;
    core_tensor *x = leaf(VECTOR(1, 3)), *y, *first, *second;

    gradient.flags = CORE_FUNCTION_ONCE_DIFFERENTIABLE;
    define_product();
    gradient_with("mine::times", &gradient);
    y = product(mul(x, x), x);
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 1, 27);
    FAILS(core_grad(&first, 1, NULL, &x, 1, 0, &second), CORE_ERROR_AUTOGRAD,
          "mine::times", "once");
}
END_TEST

/* -------------------------------------------------------------- bad input -- */

static bool fails;

static core_status half_way(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    core_status status =
        times_backward(node, context, grads, ngrads, gradients, ngradients);

    return fails && status == CORE_OK
               ? core_error_set(CORE_ERROR_REFUSED, "it stopped half way")
               : status;
}

START_TEST(failing_gradient_names_the_operator_and_leaks_nothing)
{
    core_operator_gradient gradient = product_gradient;
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 3)), *y;
    int64_t live = 0;

    gradient.backward = half_way;
    define_product();
    gradient_with("mine::times", &gradient);
    y = product(a, b);
    fails = true;
    for (int i = 0; i < 4; i++) {
        FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_REFUSED, "mine::times",
              "half way");
        ck_assert_ptr_null(core_tensor_grad(a));
        if (i == 1)
            live = core__alloc_live();
    }
    ck_assert_int_eq(core__alloc_live(), live);
    fails = false;
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 3);
    HOLDS(core_tensor_grad(b), 1, 2);
}
END_TEST

static core_status too_long(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)grads;
    (void)ngrads;
    (void)ngradients;
    return core_zeros((int64_t[]){7}, 1, CORE_F64, NULL, &gradients[1]);
}

START_TEST(gradient_of_wrong_shape_names_operator_index_and_shapes)
{
    core_operator_gradient gradient = product_gradient;
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = leaf(VECTOR(2, 3, 4)), *y;
    int64_t live = 0;

    gradient.backward = too_long;
    define_product();
    gradient_with("mine::times", &gradient);
    y = sum(product(a, b));
    for (int i = 0; i < 4; i++) {
        FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_SHAPE,
              "mine::times", "1", "[7]", "[2]");
        if (i == 1)
            live = core__alloc_live();
    }
    ck_assert_int_eq(core__alloc_live(), live);
    HOLDS(a, 2, 2, 3);
}
END_TEST

static core_status setup_fails(core_function_context *function, void *user,
                               const core_value *args, uint32_t nargs,
                               const core_value *results, uint32_t nresults)
{
    core_status status =
        save_both(function, user, args, nargs, results, nresults);

    return status == CORE_OK ? CORE_ERROR_REFUSED : status;
}

START_TEST(failing_setup_fails_the_call_and_releases_its_state)
{
    core_operator_gradient gradient = product_gradient;
    core_value args[] = {value_of(leaf(VECTOR(1, 2))), value_of(VECTOR(1, 3))};
    core_tensor *y;
    int64_t live = 0;

    gradient.setup = setup_fails;
    define_product();
    gradient_with("mine::times", &gradient);
    released = 0;
    for (int i = 0; i < 4; i++) {
        FAILS(call("mine::times", args, 2, &y), CORE_ERROR_REFUSED,
              "mine::times");
        ck_assert_ptr_null(y);
        if (i == 1)
            live = core__alloc_live();
    }
    ck_assert_int_eq(core__alloc_live(), live);
    ck_assert_int_eq(released, 4);
}
END_TEST

START_TEST(wrong_registrations_are_refused)
{
    core_operator_gradient gradient = product_gradient;
    core_registration *made;

    FAILS(core_gradient_register("mine::nothing", &gradient, &made),
          CORE_ERROR_NOT_FOUND, "mine::nothing");
    define_product();
    gradient.flags = 64;
    FAILS(core_gradient_register("mine::times", &gradient, &made),
          CORE_ERROR_INVALID_ARGUMENT, "mine::times", "0x40");
    gradient = product_gradient;
    gradient.backward = NULL;
    FAILS(core_gradient_register("mine::times", &gradient, &made),
          CORE_ERROR_INVALID_ARGUMENT, "mine::times", "backward");
    gradient = product_gradient;
    gradient.struct_size = 8;
    FAILS(core_gradient_register("mine::times", &gradient, &made),
          CORE_ERROR_INVALID_ARGUMENT, "mine::times", "struct_size 8");
    ck_assert_ptr_null(made);
    FAILS(core_gradient_register(NULL, &gradient, &made),
          CORE_ERROR_INVALID_ARGUMENT, "operator_name");
    FAILS(core_gradient_register("mine::times", NULL, &made),
          CORE_ERROR_INVALID_ARGUMENT, "gradient");
    FAILS(core_shape_register(NULL, times, NULL, &made),
          CORE_ERROR_INVALID_ARGUMENT, "operator_name");
    FAILS(core_shape_register("mine::times", NULL, NULL, &made),
          CORE_ERROR_INVALID_ARGUMENT, "function");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        registered_gradient_has_derivatives_of_any_order,
        backward_without_a_gradient_is_refused,
        recorded_call_keeps_its_gradient_after_release_of_the_handle,
        registered_shape_function_serves_meta_tensors_with_gradients,
        autocast_function_runs_before_the_gradient,
        mutated_argument_gets_the_history_of_the_operator,
        operator_may_mutate_an_argument_and_return_nothing,
        mutated_list_bumps_version_of_each_tensor,
        any_argument_may_be_mutated,
        change_of_a_saved_tensor_is_detected,
        non_differentiable_result_requires_no_grad,
        once_differentiable_refuses_the_second_derivative,
        failing_gradient_names_the_operator_and_leaks_nothing,
        gradient_of_wrong_shape_names_operator_index_and_shapes,
        failing_setup_fails_the_call_and_releases_its_state,
        wrong_registrations_are_refused,
    };
    const test_suite suite = {
        .name = "dispatch/custom_operator",
        .setup = open_cpu,
        .teardown = undo_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
