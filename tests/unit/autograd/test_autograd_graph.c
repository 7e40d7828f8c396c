/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recording of graphs and backward over them. */

#include "support/autograd.h"

#include "autograd/graph/node.h"
#include "base/memory.h"

START_TEST(gradient_of_a_factor_is_the_other_factor)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = leaf(VECTOR(2, 5, 7));

    backward(sum(mul(a, b)));
    HOLDS(core_tensor_grad(a), 2, 5, 7);
    HOLDS(core_tensor_grad(b), 2, 2, 3);
}
END_TEST

START_TEST(tensor_used_twice_gets_the_sum_of_gradients)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3));

    backward(sum(mul(a, a)));
    HOLDS(core_tensor_grad(a), 2, 4, 6);
}
END_TEST

START_TEST(backward_accumulates_in_place)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = VECTOR(2, 5, 7), *grad;

    backward(sum(mul(a, b)));
    grad = core_tensor_grad(a);
    backward(sum(mul(a, b)));
    ck_assert_ptr_eq(core_tensor_grad(a), grad);
    HOLDS(grad, 2, 10, 14);
    OK(core_tensor_set_grad(a, NULL));
    ck_assert_ptr_null(core_tensor_grad(a));
}
END_TEST

START_TEST(operands_without_requires_grad_record_nothing)
{
    core_tensor *y = mul(VECTOR(2, 1, 2), VECTOR(2, 3, 4));

    ck_assert(!core_tensor_requires_grad(y));
    ck_assert(core_tensor_is_leaf(y));
    ck_assert_ptr_null(core_tensor_grad_fn(y));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD,
          "does not require grad");
}
END_TEST

START_TEST(result_has_its_node_and_edges)
{
    core_tensor *a = leaf(VECTOR(1, 2));
    core_tensor *y = mul(a, VECTOR(1, 4));
    core_node *node = core_tensor_grad_fn(y);
    uint32_t input = 9;

    ck_assert(core_tensor_requires_grad(y));
    ck_assert(!core_tensor_is_leaf(y));
    ck_assert(core_tensor_is_leaf(a));
    ck_assert_ptr_nonnull(strstr(core_node_name(node), "mul.Tensor"));
    ck_assert_uint_eq(core_node_edge_count(node), 2);
    ck_assert_ptr_nonnull(core_node_edge(node, 0, &input));
    ck_assert_uint_eq(input, 0);
    ck_assert_ptr_null(core_node_edge(node, 1, NULL));
    ck_assert_ptr_null(core_node_edge(node, 2, NULL));
}
END_TEST

START_TEST(gradient_of_broadcast_tensor_is_summed)
{
    core_tensor *a = leaf(MATRIX(2, 3, 1, 2, 3, 4, 5, 6));
    core_tensor *row = leaf(VECTOR(3, 1, 10, 100));
    core_tensor *column = leaf(MATRIX(2, 1, 2, 3));

    backward(sum(mul(mul(a, row), column)));
    HOLDS(core_tensor_grad(row), 3, 14, 19, 24);
    HOLDS(core_tensor_grad(column), 2, 321, 654);
    HOLDS(core_tensor_grad(a), 6, 2, 20, 200, 3, 30, 300);
    ck_assert_uint_eq(core_tensor_ndim(core_tensor_grad(row)), 1);
}
END_TEST

START_TEST(gradient_has_dtype_of_its_tensor)
{
    core_tensor *a = leaf(typed(CORE_F32, 1, (int64_t[]){2}, (double[]){1, 2}));

    backward(sum(mul(a, VECTOR(2, 3, 4))));
    ck_assert_uint_eq(core_tensor_dtype(core_tensor_grad(a)), CORE_F32);
    HOLDS(core_tensor_grad(a), 2, 3, 4);
}
END_TEST

START_TEST(host_scalar_combines_with_device_tensor)
{
    core_tensor *scale = leaf(SCALAR(2)), *far, *y, *grad;
    const double values[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    core_device *sim;

    OK(core_device_find("sim", &sim));
    OK(core_tensor_from_data(values, CORE_F64, (int64_t[]){3, 4}, 2, sim,
                             &far));
    leaf(keep(far));
    y = sum(mul(far, scale));
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    HOLDS(core_tensor_grad(scale), 1, 66);
    ck_assert_ptr_eq(core_tensor_device(core_tensor_grad(scale)),
                     core_tensor_device(scale));
    ck_assert_ptr_eq(core_tensor_device(core_tensor_grad(far)), sim);
    /* The copy to sim is part of the graph: d/dfar of the squared sum. */
    OK(core_grad(&y, 1, NULL, &scale, 1, CORE_CREATE_GRAPH, &grad));
    keep(grad);
    y = mul(grad, grad);
    OK(core_tensor_set_grad(far, NULL));
    backward(y);
    ck_assert_ptr_eq(core_tensor_device(core_tensor_grad(far)), sim);
    HOLDS(core_tensor_grad(far), 12, 132, 132, 132, 132, 132, 132, 132, 132,
          132, 132, 132, 132);
}
END_TEST

START_TEST(only_one_element_root_may_omit_its_gradient)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *y = mul(a, a);
    core_tensor *grad = VECTOR(2, 1, 10), *wrong = VECTOR(3, 1, 1, 1);

    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "[2]",
          "one element");
    FAILS(core_backward(&y, 1, &wrong, 0), CORE_ERROR_SHAPE, "[3]", "[2]");
    OK(core_backward(&y, 1, &grad, 0));
    HOLDS(core_tensor_grad(a), 2, 2, 40);
}
END_TEST

START_TEST(several_roots_accumulate_together)
{
    core_tensor *a = leaf(VECTOR(1, 3)), *y = mul(a, a);
    core_tensor *roots[3];

    roots[0] = y;
    roots[1] = mul(y, a);
    roots[2] = y;
    OK(core_backward(roots, 3, NULL, 0));
    HOLDS(core_tensor_grad(a), 1, 6 + 27 + 6);
}
END_TEST

START_TEST(leaf_may_be_the_root)
{
    core_tensor *a = leaf(VECTOR(1, 3));

    backward(a);
    HOLDS(core_tensor_grad(a), 1, 1);
}
END_TEST

START_TEST(second_backward_requires_retain_graph)
{
    core_tensor *a = leaf(VECTOR(1, 3)), *y = mul(a, a);

    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(a), 1, 12);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "mul.Tensor",
          "CORE_RETAIN_GRAPH");
    HOLDS(core_tensor_grad(a), 1, 12);
}
END_TEST

START_TEST(create_graph_gives_derivatives_of_any_order)
{
    core_tensor *x = leaf(VECTOR(1, 2));
    core_tensor *y = mul(mul(x, x), mul(x, x));
    const double wants[] = {32, 48, 48, 24};

    for (int i = 0; i < 4; i++) {
        core_tensor *next;

        OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &next));
        y = keep(next);
        HOLDS(y, 1, wants[i]);
    }
    ck_assert_ptr_null(core_tensor_grad(x));
}
END_TEST

START_TEST(create_graph_makes_grad_differentiable)
{
    core_tensor *x = leaf(VECTOR(1, 3)), *y = mul(mul(x, x), x), *grad;

    OK(core_backward(&y, 1, NULL, CORE_CREATE_GRAPH));
    grad = keep(core_tensor_retain(core_tensor_grad(x)));
    HOLDS(grad, 1, 27);
    ck_assert(core_tensor_requires_grad(grad));
    OK(core_tensor_set_grad(x, NULL)); /* breaks the reference cycle */
    backward(grad);
    HOLDS(core_tensor_grad(x), 1, 18);
    OK(core_tensor_set_grad(x, NULL));
}
END_TEST

START_TEST(saved_result_keeps_its_history_in_higher_derivatives)
{
    core_tensor *x = leaf(VECTOR(1, 0.5)), *y, *first, *second;

    y = CALL(exp, x);
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    OK(core_grad(&first, 1, NULL, &x, 1, 0, &second));
    HOLDS(keep(second), 1, 1.6487212707);
    keep(first);
}
END_TEST

START_TEST(grad_runs_only_nodes_up_to_its_inputs)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 3));
    core_tensor *inner = mul(a, b), *y = mul(inner, b), *grads[2];
    core_tensor *inputs[2];

    inputs[0] = inner;
    inputs[1] = b;
    OK(core_grad(&y, 1, NULL, inputs, 2, CORE_RETAIN_GRAPH, grads));
    HOLDS(keep(grads[0]), 1, 3);
    HOLDS(keep(grads[1]), 1, 12);
    ck_assert_ptr_null(core_tensor_grad(a));
    ck_assert_ptr_null(core_tensor_grad(b));
    /* Nodes behind `inner` did not run and can still run. */
    OK(core_grad(&y, 1, NULL, inputs, 1, 0, grads));
    HOLDS(keep(grads[0]), 1, 3);
    backward(inner);
    HOLDS(core_tensor_grad(a), 1, 3);
}
END_TEST

START_TEST(unused_input_is_an_error_unless_allowed)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 3));
    core_tensor *y = mul(a, a), *inputs[2], *grads[2];

    inputs[0] = a;
    inputs[1] = b;
    /* Reported before backward starts: the graph is still intact. */
    FAILS(core_grad(&y, 1, NULL, inputs, 2, 0, grads), CORE_ERROR_AUTOGRAD,
          "core_grad", "input 1", "CORE_ALLOW_UNUSED");
    ck_assert_ptr_null(grads[0]);
    OK(core_grad(&y, 1, NULL, inputs, 2, CORE_ALLOW_UNUSED, grads));
    HOLDS(keep(grads[0]), 1, 4);
    ck_assert_ptr_null(grads[1]);
}
END_TEST

START_TEST(same_input_twice_gets_same_gradient_twice)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a), *inputs[2], *grads[2];

    inputs[0] = inputs[1] = a;
    OK(core_grad(&y, 1, NULL, inputs, 2, 0, grads));
    HOLDS(keep(grads[0]), 1, 4);
    HOLDS(keep(grads[1]), 1, 4);
}
END_TEST

START_TEST(detached_tensor_stops_the_gradient)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a);
    core_tensor *cut = CALL(detach, y);

    ck_assert(!core_tensor_requires_grad(cut));
    ck_assert(core_tensor_shares_storage(cut, y));
    backward(mul(cut, a));
    HOLDS(core_tensor_grad(a), 1, 4);
}
END_TEST

START_TEST(only_floating_leaves_can_require_grad)
{
    core_tensor *n = typed(CORE_I64, 1, (int64_t[]){1}, (double[]){1});
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a);

    FAILS(core_tensor_set_requires_grad(n, true), CORE_ERROR_AUTOGRAD, "i64");
    FAILS(core_tensor_set_requires_grad(y, false), CORE_ERROR_AUTOGRAD,
          "detach");
    OK(core_tensor_set_requires_grad(a, false));
    ck_assert(!core_tensor_requires_grad(a));
}
END_TEST

START_TEST(no_grad_records_nothing)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y;
    bool before = core_grad_mode_set(false);

    ck_assert(before);
    ck_assert(!core_grad_mode());
    y = mul(a, a);
    ck_assert(!core_grad_mode_set(before));
    ck_assert(!core_tensor_requires_grad(y));
    ck_assert(core_tensor_requires_grad(mul(a, a)));
}
END_TEST

START_TEST(inference_tensors_cannot_be_part_of_a_graph)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y;
    uint64_t before = core_inference_begin();

    ck_assert(core_inference_mode());
    y = mul(a, a);
    core_inference_end(before);
    ck_assert(!core_inference_mode());
    ck_assert(core_grad_mode());
    ck_assert(!core_tensor_requires_grad(y));
    FAILS(core_tensor_set_requires_grad(y, true), CORE_ERROR_AUTOGRAD,
          "inference mode");
    {
        core_tensor *z = NULL;

        FAILS(core_mul(a, y, &z), CORE_ERROR_AUTOGRAD,
              "mul.Tensor: ", "inference mode", "clone");
        ck_assert_ptr_null(z);
        z = mul(a, VECTOR(1, 1));
        FAILS(core_mul_(z, y), CORE_ERROR_AUTOGRAD,
              "mul_.Tensor: ", "inference mode", "clone");
    }
    FAILS(core_add_(y, VECTOR(1, 1), core_int(1)), CORE_ERROR_AUTOGRAD,
          "inference mode");
    ck_assert(core_tensor_requires_grad(mul(a, CALL(clone, y, -1))));
}
END_TEST

START_TEST(inference_mode_still_bumps_versions_of_normal_tensors)
{
    core_tensor *a = VECTOR(1, 2), *one = VECTOR(1, 1);
    uint32_t version = core_tensor_version(a);
    uint64_t before = core_inference_begin();

    OK(core_add_(a, one, core_int(1)));
    core_inference_end(before);
    ck_assert_uint_eq(core_tensor_version(a), version + 1);
}
END_TEST

START_TEST(undefined_gradients_of_several_results_are_zeros)
{
    core_tensor *a = leaf(MATRIX(2, 2, 1, 5, 7, 3)), *values, *indices;

    OK(core_max_dim(a, 1, false, &values, &indices));
    keep(values);
    keep(indices);
    ck_assert(core_tensor_requires_grad(values));
    ck_assert(!core_tensor_requires_grad(indices));
    backward(sum(values));
    HOLDS(core_tensor_grad(a), 4, 0, 1, 1, 0);
}
END_TEST

/* A repeated call is recorded on a fast path; every time, each argument must
 * have the edge to its own result of the node. */
START_TEST(each_result_of_a_call_gets_its_gradient)
{
    core_tensor *a = leaf(MATRIX(1, 1, 3)), *q, *r, *y;
    uint32_t input;

    for (int round = 0; round < 3; round++) {
        OK(core_linalg_qr(a, "reduced", &q, &r));
        keep(q);
        keep(r);
        y = mul(q, r); /* (±1) (±a): only the gradient of r reaches a */
        ck_assert_ptr_eq(core_node_edge(core_tensor_grad_fn(y), 0, &input),
                         core_tensor_grad_fn(q));
        ck_assert_uint_eq(input, 0);
        ck_assert_ptr_eq(core_node_edge(core_tensor_grad_fn(y), 1, &input),
                         core_tensor_grad_fn(r));
        ck_assert_uint_eq(input, 1);
        OK(core_tensor_set_grad(a, NULL));
        backward(sum(y));
        HOLDS(core_tensor_grad(a), 1, 1);
        y = mul(r, q);
        core_node_edge(core_tensor_grad_fn(y), 0, &input);
        ck_assert_uint_eq(input, 1);
        core_node_edge(core_tensor_grad_fn(y), 1, &input);
        ck_assert_uint_eq(input, 0);
    }
}
END_TEST

START_TEST(tensors_in_a_list_get_their_own_gradients)
{
    core_tensor *parts[3], *weights = VECTOR(5, 1, 2, 3, 4, 5);

    parts[0] = leaf(VECTOR(2, 1, 1));
    parts[1] = VECTOR(1, 1);
    parts[2] = leaf(VECTOR(2, 1, 1));
    backward(sum(mul(CALL(cat, parts, 3, 0), weights)));
    HOLDS(core_tensor_grad(parts[0]), 2, 1, 2);
    ck_assert_ptr_null(core_tensor_grad(parts[1]));
    HOLDS(core_tensor_grad(parts[2]), 2, 4, 5);
}
END_TEST

/* Recursion would overflow a stack of 8 MiB. */
START_TEST(long_chain_needs_no_deep_stack)
{
    core_tensor *x = leaf(VECTOR(1, 1)), *one = VECTOR(1, 1);
    core_tensor *y = core_tensor_retain(x);

    for (int i = 0; i < 200000; i++) {
        core_tensor *next;

        OK(i % 2 ? core_mul(y, one, &next)
                 : core_add(y, one, core_int(1), &next));
        core_tensor_release(y);
        y = next;
    }
    OK(core_backward(&y, 1, NULL, 0));
    core_tensor_release(y);
    HOLDS(core_tensor_grad(x), 1, 1);
}
END_TEST

/* Squares save their argument, which has a history: the chain also runs through
 * saved values. */
START_TEST(long_chain_of_saved_values_is_freed_without_backward)
{
    core_tensor *x = leaf(VECTOR(1, 1)), *y = core_tensor_retain(x);

    for (int i = 0; i < 100000; i++) {
        core_tensor *next;

        OK(core_mul(y, y, &next));
        core_tensor_release(y);
        y = next;
    }
    core_tensor_release(y);
}
END_TEST

static void step(core_tensor *a, core_tensor *b, uint32_t flags)
{
    core_tensor *c, *d, *e;

    OK(core_mul(a, b, &c));
    OK(core_exp(c, &d));
    OK(core_sum(d, CORE_DTYPE_NONE, &e));
    OK(core_backward(&e, 1, NULL, flags));
    core_tensor_release(c);
    core_tensor_release(d);
    core_tensor_release(e);
    OK(core_tensor_set_grad(a, NULL));
    OK(core_tensor_set_grad(b, NULL));
}

START_TEST(backward_leaks_no_memory)
{
    core_tensor *a = leaf(VECTOR(2, .1, .2)), *b = leaf(VECTOR(2, .3, .4));
    const uint32_t flags[] = {0, CORE_RETAIN_GRAPH, CORE_CREATE_GRAPH};
    int64_t live;

    for (size_t i = 0; i < 3; i++) {
        step(a, b, flags[i]);
        live = core__alloc_live();
        step(a, b, flags[i]);
        ck_assert_int_eq(core__alloc_live(), live);
    }
}
END_TEST

START_TEST(failed_allocation_is_reported_without_leaks)
{
    core_tensor *a = leaf(VECTOR(2, .1, .2)), *b = leaf(VECTOR(2, .3, .4));
    int64_t live, failed = 0;

    step(a, b, 0);
    core__alloc_fault_set(1 << 30, false);
    step(a, b, 0);
    live = core__alloc_live();
    for (int64_t at = 0;; at++) {
        core_tensor *c = NULL, *d = NULL, *e = NULL;
        core_status status;

        core__alloc_fault_set(at, false);
        status = core_mul(a, b, &c);
        if (status == CORE_OK)
            status = core_exp(c, &d);
        if (status == CORE_OK)
            status = core_sum(d, CORE_DTYPE_NONE, &e);
        if (status == CORE_OK)
            status = core_backward(&e, 1, NULL, 0);
        core__alloc_fault_set(1 << 30, false);
        core_tensor_release(c);
        core_tensor_release(d);
        core_tensor_release(e);
        OK(core_tensor_set_grad(a, NULL));
        OK(core_tensor_set_grad(b, NULL));
        ck_assert_msg(core__alloc_live() == live,
                      "allocation %lld: %lld, not %lld", (long long)at,
                      (long long)core__alloc_live(), (long long)live);
        if (status == CORE_OK)
            break;
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        failed++;
    }
    core__alloc_fault_set(-1, false);
    ck_assert_int_gt(failed, 10);
    step(a, b, 0);
}
END_TEST

SUITE("autograd/autograd_graph", gradient_of_a_factor_is_the_other_factor,
      tensor_used_twice_gets_the_sum_of_gradients,
      backward_accumulates_in_place,
      operands_without_requires_grad_record_nothing,
      result_has_its_node_and_edges, gradient_of_broadcast_tensor_is_summed,
      gradient_has_dtype_of_its_tensor, host_scalar_combines_with_device_tensor,
      only_one_element_root_may_omit_its_gradient,
      several_roots_accumulate_together, leaf_may_be_the_root,
      second_backward_requires_retain_graph,
      create_graph_gives_derivatives_of_any_order,
      create_graph_makes_grad_differentiable,
      saved_result_keeps_its_history_in_higher_derivatives,
      grad_runs_only_nodes_up_to_its_inputs,
      unused_input_is_an_error_unless_allowed,
      same_input_twice_gets_same_gradient_twice,
      detached_tensor_stops_the_gradient, only_floating_leaves_can_require_grad,
      no_grad_records_nothing, inference_tensors_cannot_be_part_of_a_graph,
      inference_mode_still_bumps_versions_of_normal_tensors,
      undefined_gradients_of_several_results_are_zeros,
      each_result_of_a_call_gets_its_gradient,
      tensors_in_a_list_get_their_own_gradients, long_chain_needs_no_deep_stack,
      long_chain_of_saved_values_is_freed_without_backward,
      backward_leaks_no_memory, failed_allocation_is_reported_without_leaks)
