/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators with gradients registered by a plugin (fixtures/operators.c): a
 * program trains through them, and the plugin stays loaded while a graph needs
 * it. */

#include "support/autograd.h"
#include "support/loader.h"

#include "base/memory.h"

#include <libcore/dispatch.h>

static core_plugin *plugin;

static void open_plugin(void)
{
    OK(core_plugin_load(fixture("operators"), &plugin));
}

static core_tensor *call(const char *name, core_tensor *self, double number)
{
    core_value args[] = {
        {CORE_VALUE_TENSOR, 0, {.tensor = self}},
        {CORE_VALUE_FLOAT, 0, {.f = number}},
    };
    core_value result = {0};
    core_operator *op;

    OK(core_op_find(name, &op));
    OK(core_op_call(op, args, 2, &result, 1));
    return keep(result.u.tensor);
}

START_TEST(plugin_operator_has_gradients_of_any_order)
{
    core_tensor *x = leaf(VECTOR(2, 2, 3)), *y, *first, *second;

    y = sum(call("fixture::cube", x, 0.5));
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 2, 6, 13.5);
    first = sum(first);
    OK(core_grad(&first, 1, NULL, &x, 1, 0, &second));
    HOLDS(keep(second), 2, 6, 9);
}
END_TEST

static core_status cubes(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_value args[] = {
        {CORE_VALUE_TENSOR, 0, {.tensor = inputs[0]}},
        {CORE_VALUE_FLOAT, 0, {.f = 0.5}},
    };
    core_value result = {0};
    core_operator *op;
    core_status status = core_op_find("fixture::cube", &op);

    (void)context;
    (void)ninputs;
    if (status == CORE_OK)
        status = core_op_call(op, args, 2, &result, 1);
    outputs[0] = result.u.tensor;
    *noutputs = 1;
    return status;
}

START_TEST(plugin_gradient_passes_gradcheck)
{
    core_tensor *x = leaf(VECTOR(3, 0.3, -1.2, 2));

    OK(core_gradcheck(cubes, NULL, &x, 1, 1e-6, 1e-6, 1e-5));
    OK(core_gradgradcheck(cubes, NULL, &x, 1, 1e-6, 1e-6, 1e-5));
}
END_TEST

/* Finds w so that w ** 3 is 8. */
START_TEST(program_trains_through_a_plugin_operator)
{
    core_tensor *w = leaf(VECTOR(1, 1.5)), *goal = VECTOR(1, 8);
    double found;
    bool before;

    for (int step = 0; step < 200; step++) {
        core_tensor *off =
            CALL(sub, call("fixture::cube", w, 1), goal, core_int(1));

        OK(core_tensor_set_grad(w, NULL));
        backward(sum(mul(off, off)));
        before = core_grad_mode_set(false);
        OK(core_add_(w, core_tensor_grad(w), core_float(-0.002)));
        core_grad_mode_set(before);
    }
    OK(core_tensor_read(w, &found, sizeof found));
    ck_assert_double_eq_tol(found, 2, 1e-4);
}
END_TEST

START_TEST(plugin_operator_changes_in_place_with_history)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *a = mul(x, x);

    ck_assert_ptr_eq(call("fixture::grow_", a, 3), a);
    HOLDS(a, 2, 3, 12);
    backward(sum(a));
    HOLDS(core_tensor_grad(x), 2, 6, 12);
}
END_TEST

START_TEST(plugin_operator_works_on_meta)
{
    core_device *meta;
    core_tensor *x, *y;

    OK(core_device_find("meta", &meta));
    OK(core_zeros((int64_t[]){2, 3}, 2, CORE_F32, meta, &x));
    y = call("fixture::cube", leaf(keep(x)), 1);
    ck_assert_ptr_eq(core_tensor_device(y), meta);
    ck_assert_int_eq(core_tensor_numel(y), 6);
    ck_assert(core_tensor_requires_grad(y));
}
END_TEST

START_TEST(graph_that_needs_a_plugin_keeps_it_loaded)
{
    core_tensor *x = leaf(VECTOR(2, 2, 3)), *y = call("fixture::cube", x, 1);
    core_operator *op;

    FAILS(core_plugin_unload(plugin, 0), CORE_ERROR_BUSY, "operators",
          "1 calls", "graphs");
    backward(sum(y)); /* y still holds the node of the call */
    FAILS(core_plugin_unload(plugin, 0), CORE_ERROR_BUSY, "operators");
    HOLDS(core_tensor_grad(x), 2, 12, 27);
    drop_all();
    OK(core_plugin_unload(plugin, 0));
    FAILS(core_op_find("fixture::cube", &op), CORE_ERROR_NOT_FOUND,
          "fixture::cube");
}
END_TEST

START_TEST(loading_and_unloading_leaks_nothing)
{
    int64_t live = 0;

    for (int i = 0; i < 4; i++) {
        core_tensor *x = leaf(VECTOR(2, 2, 3));

        backward(sum(call("fixture::cube", x, 1)));
        drop_all();
        OK(core_plugin_unload(plugin, 0));
        core_plugin_release(plugin);
        if (i == 1)
            live = core__alloc_live();
        if (i > 1)
            ck_assert_int_eq(core__alloc_live(), live);
        OK(core_plugin_load(fixture("operators"), &plugin));
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        plugin_operator_has_gradients_of_any_order,
        plugin_gradient_passes_gradcheck,
        program_trains_through_a_plugin_operator,
        plugin_operator_changes_in_place_with_history,
        plugin_operator_works_on_meta,
        graph_that_needs_a_plugin_keeps_it_loaded,
        loading_and_unloading_leaks_nothing,
    };
    const test_suite suite = {
        .name = "loader/plugin_operator",
        .setup = open_plugin,
        .teardown = drop_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
