/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rules of the graph that no other file tests.  The rest:
 *
 * accumulation, packing
 *     test_autograd_engine.c: gradients_packed_into_a_buffer_are_not_copied,
 *     gradient_referenced_elsewhere_is_copied,
 *     first_gradient_has_layout_of_its_tensor
 *     test_autograd_graph.c: backward_accumulates_in_place,
 *     create_graph_makes_grad_differentiable
 *     test_autograd_destination.c:
 *     zero_copy_packing_stores_both_gradients_in_one_buffer
 * the engine
 *     test_autograd_engine.c: backward_calls_nest_to_any_depth,
 *     threads_may_run_backward_of_one_graph_concurrently
 *     test_engine_streams.c: streams
 * hooks, inputs
 *     test_autograd_hooks.c: hooks_run_in_documented_order
 *     test_autograd_graph.c: grad_runs_only_nodes_up_to_its_inputs,
 *     unused_input_is_an_error_unless_allowed
 * validation
 *     test_autograd_graph.c: gradient_of_broadcast_tensor_is_summed,
 *     gradient_has_dtype_of_its_tensor
 *     test_autograd_engine.c: wrong_gradients_name_node_and_index
 * second backward, higher orders, anomaly mode
 *     test_autograd_graph.c: second_backward_requires_retain_graph,
 *     create_graph_gives_derivatives_of_any_order
 *     test_autograd_engine.c: second_backward_of_custom_function_names_it
 *     test_autograd_anomaly.c: anomaly_mode_names_node_and_its_place */

#include "support/hooks.h"

#include "base/memory.h"

static core_status say(void *context, core_node *node, core_tensor **grads,
                       size_t count)
{
    (void)node;
    (void)grads;
    (void)count;
    strcat(story, context);
    return CORE_OK;
}

static void record_run(core_tensor *tensor, const char *word)
{
    OK(core_node_register_pre_hook(core_tensor_grad_fn(tensor), say,
                                   (void *)(uintptr_t)word, NULL, NULL));
}

START_TEST(newest_ready_node_runs_first)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 3));
    core_tensor *first = mul(a, a), *second = mul(b, b);
    core_tensor *third = mul(a, b), *y = add(add(third, first), second);

    story[0] = '\0';
    record_run(first, "1");
    record_run(second, "2");
    record_run(third, "3");
    backward(y);
    ck_assert_str_eq(story, "321");
}
END_TEST

/* A gradient is stored as soon as it is complete, so that it may be used while
 * the rest of backward runs. */
START_TEST(accumulation_runs_before_other_ready_nodes)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 3));
    core_tensor *old = mul(a, a), *y = mul(old, b);

    story[0] = '\0';
    record_run(old, "old ");
    OK(core_tensor_register_accumulate_hook(b, tell_leaf, "b ", NULL, NULL));
    OK(core_tensor_register_accumulate_hook(a, tell_leaf, "a ", NULL, NULL));
    backward(y);
    ck_assert_str_eq(story, "b old a ");
}
END_TEST

START_TEST(graph_keeps_leaf_alive_and_leaf_does_not_keep_its_node)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y;
    int64_t live = 0;

    for (int i = 0; i < 4; i++) {
        y = mul(a, a);
        drop(y);
        if (i == 1)
            live = core__alloc_live();
    }
    ck_assert_int_eq(core__alloc_live(), live);
    y = mul(a, VECTOR(1, 3));
    core_tensor_retain(a);
    drop(a);
    OK(core_tensor_register_accumulate_hook(a, tell_leaf, "kept", NULL, NULL));
    core_tensor_release(a); /* the graph still references it */
    story[0] = '\0';
    backward(y);
    ck_assert_str_eq(story, "kept");
}
END_TEST

static core_status refuse(void *context, core_node *node, core_tensor **grads,
                          size_t count)
{
    (void)node;
    (void)grads;
    (void)count;
    strcat(story, context);
    return core_error_set(CORE_ERROR_REFUSED, "not now");
}

START_TEST(first_error_is_reported_and_pending_nodes_do_not_run)
{
    core_tensor *a = leaf(VECTOR(1, 2));
    core_tensor *older = mul(a, a), *newer = mul(a, a);
    core_tensor *y = add(older, newer);
    core_hook *hook;

    story[0] = '\0';
    record_run(older, "older ");
    OK(core_node_register_pre_hook(core_tensor_grad_fn(newer), refuse, "newer ",
                                   NULL, &hook));
    FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_REFUSED,
          "mul", "not now");
    ck_assert_str_eq(story, "newer ");
    ck_assert_ptr_null(core_tensor_grad(a));
    core_hook_remove(hook);
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 8);
}
END_TEST

START_TEST(retained_graph_returns_the_same_result_again)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *y = sum(mul(a, mul(a, a)));
    core_tensor *first, *second;

    OK(core_grad(&y, 1, NULL, &a, 1, CORE_RETAIN_GRAPH, &first));
    OK(core_grad(&y, 1, NULL, &a, 1, 0, &second));
    HOLDS(keep(first), 2, 12, 27);
    HOLDS(keep(second), 2, 12, 27);
}
END_TEST

START_TEST(null_node_is_accepted)
{
    ck_assert_uint_eq(core_node_edge_count(NULL), 0);
    ck_assert_ptr_null(core_node_edge(NULL, 0, NULL));
    ck_assert_str_eq(core_node_name(NULL), "");
    ck_assert_ptr_null(core_node_retain(NULL));
    core_node_release(NULL);
    ck_assert(!core_node_needs_gradient(NULL, 0));
}
END_TEST

SUITE("autograd/rules_graph", newest_ready_node_runs_first,
      accumulation_runs_before_other_ready_nodes,
      graph_keeps_leaf_alive_and_leaf_does_not_keep_its_node,
      first_error_is_reported_and_pending_nodes_do_not_run,
      retained_graph_returns_the_same_result_again, null_node_is_accepted)
