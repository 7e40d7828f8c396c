/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Hooks: their order, what they may change, and their lifetime. */

#include "support/hooks.h"

#include "base/memory.h"

START_TEST(hooks_run_in_documented_order)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, VECTOR(1, 3));
    core_node *node = core_tensor_grad_fn(y);

    story[0] = '\0';
    OK(core_node_register_post_hook(node, tell_post, "post ", NULL, NULL));
    OK(core_node_register_pre_hook(node, tell_pre, "pre ", NULL, NULL));
    OK(core_tensor_register_hook(y, tell, "y1 ", NULL, NULL));
    OK(core_tensor_register_hook(y, tell, "y2 ", NULL, NULL));
    OK(core_tensor_register_accumulate_hook(a, tell_leaf, "stored ", NULL,
                                            NULL));
    OK(core_tensor_register_hook(a, tell, "a ", NULL, NULL));
    backward(mul(y, VECTOR(1, 5)));
    ck_assert_str_eq(story, "y1 y2 pre post a stored ");
}
END_TEST

static core_status halve(void *context, core_tensor *grad,
                         core_tensor **out_grad)
{
    (void)context;
    return core_mul_scalar(grad, core_float(0.5), out_grad);
}

static void count_drop(void *context)
{
    ++*(int *)context;
}

START_TEST(hook_replaces_the_gradient_until_removed)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a);
    core_hook *hook;
    int dropped = 0;

    OK(core_tensor_register_hook(a, halve, &dropped, count_drop, &hook));
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    HOLDS(core_tensor_grad(a), 1, 2);
    core_hook_remove(hook);
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    HOLDS(core_tensor_grad(a), 1, 6);
    drop_all();
    ck_assert_int_eq(dropped, 1);
}
END_TEST

static core_status widen(void *context, core_tensor *grad,
                         core_tensor **out_grad)
{
    (void)context;
    return core_expand(grad, (int64_t[]){2, 1}, 2, false, out_grad);
}

START_TEST(hook_must_not_change_sizes)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a);

    OK(core_tensor_register_hook(y, widen, NULL, NULL, NULL));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "hook",
          "mul.Tensor");
}
END_TEST

START_TEST(hooks_require_tensors_with_gradients)
{
    core_tensor *a = VECTOR(1, 2), *b = leaf(VECTOR(1, 2)), *y = mul(b, b);
    core_hook *hook = (core_hook *)"";

    FAILS(core_tensor_register_hook(a, tell, "", NULL, &hook),
          CORE_ERROR_AUTOGRAD, "require grad");
    ck_assert_ptr_null(hook);
    FAILS(core_tensor_retain_grad(a), CORE_ERROR_AUTOGRAD, "require grad");
    FAILS(core_tensor_register_accumulate_hook(y, tell_leaf, "", NULL, NULL),
          CORE_ERROR_AUTOGRAD, "leaves");
}
END_TEST

START_TEST(retain_grad_keeps_grad_of_a_result)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a), *z = mul(y, y);
    core_tensor *gone = mul(y, VECTOR(1, 1));

    OK(core_tensor_retain_grad(y));
    OK(core_tensor_retain_grad(gone));
    OK(core_tensor_retain_grad(a));
    z = add(z, mul(gone, VECTOR(1, 0)));
    drop(gone); /* its node stays alive */
    backward(z);
    HOLDS(core_tensor_grad(y), 1, 8);
    HOLDS(core_tensor_grad(a), 1, 32);
    ck_assert_ptr_null(core_tensor_grad(z));
}
END_TEST

START_TEST(retained_grad_accumulates_over_backward_calls)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, a);
    core_tensor *y = sum(mul(x, VECTOR(2, 3, 4))), *first;

    OK(core_tensor_retain_grad(x));
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    first = core_tensor_retain(core_tensor_grad(x));
    HOLDS(first, 2, 3, 4);
    backward(y);
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    HOLDS(first, 2, 3, 4);
    core_tensor_release(first);
}
END_TEST

START_TEST(retained_grad_with_create_graph_is_differentiable)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *x = mul(a, a), *y = mul(x, x), *g;

    OK(core_tensor_retain_grad(x));
    OK(core_backward(&y, 1, NULL, CORE_CREATE_GRAPH));
    OK(core_backward(&y, 1, NULL, CORE_CREATE_GRAPH));
    HOLDS(core_tensor_grad(x), 1, 16);
    OK(core_grad(&(core_tensor *){core_tensor_grad(x)}, 1, NULL, &a, 1, 0, &g));
    HOLDS(keep(g), 1, 16);
    OK(core_tensor_set_grad(x, NULL));
    OK(core_tensor_set_grad(a, NULL));
}
END_TEST

START_TEST(detached_tensor_still_retains_its_grad)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, a), *y, *gone;

    OK(core_tensor_retain_grad(x));
    gone = mul(a, x);
    OK(core_tensor_retain_grad(gone));
    y = sum(add(mul(x, VECTOR(2, 3, 4)), gone));
    OK(core_detach_(x));
    OK(core_detach_(gone));
    ck_assert(core_tensor_is_leaf(x) && !core_tensor_requires_grad(x));
    drop(gone);
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    HOLDS(core_tensor_grad(x), 2, 4, 6);
    /* x is a leaf now; the old graph no longer contributes to its grad. */
    OK(core_tensor_set_requires_grad(x, true));
    backward(y);
    HOLDS(core_tensor_grad(x), 2, 4, 6);
    backward(sum(x));
    HOLDS(core_tensor_grad(x), 2, 5, 7);
}
END_TEST

START_TEST(tensor_reattached_after_detach_retains_new_grad)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = add(a, a), *y, *z;
    int64_t live = core__alloc_live();

    OK(core_tensor_retain_grad(x));
    y = sum(mul(x, VECTOR(2, 3, 4)));
    for (int i = 0; i < 3; i++) {
        OK(core_detach_(x));
        OK(core_mul_(x, a));
    }
    z = sum(x);
    backward(z);
    HOLDS(core_tensor_grad(x), 2, 1, 1);
    backward(y);
    HOLDS(core_tensor_grad(x), 2, 1, 1);
    ck_assert_int_lt(core__alloc_live() - live, 40);
}
END_TEST

static core_status count_run(void *context, core_tensor *grad,
                             core_tensor **out_grad)
{
    (void)grad;
    (void)out_grad;
    ++*(int *)context;
    return CORE_OK;
}

static core_status count_leaf(void *context, core_tensor *tensor)
{
    (void)tensor;
    ++*(int *)context;
    return CORE_OK;
}

START_TEST(leaf_without_requires_grad_accumulates_nothing)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 3));
    core_tensor *y = mul(a, b), *g;
    int runs = 0;

    OK(core_tensor_register_hook(a, count_run, &runs, NULL, NULL));
    OK(core_tensor_register_accumulate_hook(a, count_leaf, &runs, NULL, NULL));
    OK(core_tensor_set_requires_grad(a, false));
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    ck_assert_ptr_null(core_tensor_grad(a));
    ck_assert_int_eq(runs, 0);
    HOLDS(core_tensor_grad(b), 1, 2);
    FAILS(core_grad(&y, 1, NULL, &a, 1, CORE_RETAIN_GRAPH, &g),
          CORE_ERROR_AUTOGRAD, "input 0", "require grad");
    OK(core_tensor_set_requires_grad(a, true));
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 3);
    ck_assert_int_eq(runs, 2);
}
END_TEST

/* A hook of any kind that removes itself and registers two others. */
typedef struct restless {
    core_tensor *tensor;
    core_node *node;
    core_hook *self;
    int runs;
    int dropped;
} restless;

static void restless_drop(void *context)
{
    ((restless *)context)->dropped++;
}

static core_status restless_tensor(void *context, core_tensor *grad,
                                   core_tensor **out_grad)
{
    restless *r = context;

    (void)grad;
    (void)out_grad;
    core_hook_remove(r->self);
    r->runs++;
    CORE_TRY(core_tensor_register_hook(r->tensor, tell, "t ", NULL, NULL));
    return core_tensor_register_hook(r->tensor, restless_tensor, r,
                                     restless_drop, &r->self);
}

static core_status restless_leaf(void *context, core_tensor *leaf)
{
    restless *r = context;

    core_hook_remove(r->self);
    r->runs++;
    CORE_TRY(core_tensor_register_accumulate_hook(leaf, tell_leaf, "l ", NULL,
                                                  NULL));
    return core_tensor_register_accumulate_hook(leaf, restless_leaf, r,
                                                restless_drop, &r->self);
}

static core_status restless_pre(void *context, core_node *node,
                                core_tensor **grads, size_t count)
{
    restless *r = context;

    (void)grads;
    (void)count;
    core_hook_remove(r->self);
    r->runs++;
    CORE_TRY(core_node_register_pre_hook(node, tell_pre, "b ", NULL, NULL));
    return core_node_register_pre_hook(node, restless_pre, r, restless_drop,
                                       &r->self);
}

static core_status restless_post(void *context, core_node *node,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **gradients, size_t ngradients)
{
    restless *r = context;

    (void)grads;
    (void)ngrads;
    (void)gradients;
    (void)ngradients;
    core_hook_remove(r->self);
    r->runs++;
    CORE_TRY(core_node_register_post_hook(node, tell_post, "p ", NULL, NULL));
    return core_node_register_post_hook(node, restless_post, r, restless_drop,
                                        &r->self);
}

START_TEST(hook_may_remove_itself_and_register_others)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, VECTOR(1, 3));
    core_node *node = core_tensor_grad_fn(y);
    restless of_y = {.tensor = y}, of_a = {.tensor = a}, stored = {0},
             before = {0}, after = {0};
    restless *all[] = {&of_y, &of_a, &stored, &before, &after};

    OK(core_tensor_register_hook(y, restless_tensor, &of_y, restless_drop,
                                 &of_y.self));
    OK(core_tensor_register_hook(y, tell, "y ", NULL, NULL));
    OK(core_tensor_register_hook(a, restless_tensor, &of_a, restless_drop,
                                 &of_a.self));
    OK(core_tensor_register_accumulate_hook(a, restless_leaf, &stored,
                                            restless_drop, &stored.self));
    OK(core_node_register_pre_hook(node, restless_pre, &before, restless_drop,
                                   &before.self));
    OK(core_node_register_post_hook(node, restless_post, &after, restless_drop,
                                    &after.self));
    story[0] = '\0';
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    ck_assert_str_eq(story, "y ");
    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    ck_assert_str_eq(story, "y y t b p t l ");
    HOLDS(core_tensor_grad(a), 1, 6);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ck_assert_int_eq(all[i]->runs, 2);
        ck_assert_int_eq(all[i]->dropped, 2);
        core_hook_release(all[i]->self);
    }
    drop_all();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ck_assert_int_eq(all[i]->dropped, 3);
}
END_TEST

static core_status fail_silently(void *context, core_tensor *grad,
                                 core_tensor **out_grad)
{
    (void)context;
    (void)grad;
    (void)out_grad;
    return CORE_ERROR_SHAPE;
}

START_TEST(hook_failing_without_message_gets_one)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a);

    OK(core_tensor_register_hook(y, fail_silently, NULL, NULL, NULL));
    fail_before();
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_SHAPE, "hook", "mul.Tensor",
          "without a message");
    ck_assert_ptr_null(strstr(core_error_message(), "add.Tensor"));
}
END_TEST

static core_status widen_pre(void *context, core_node *node,
                             core_tensor **grads, size_t count)
{
    core_tensor *wide;

    (void)context;
    (void)node;
    (void)count;
    CORE_TRY(core_expand(grads[0], (int64_t[]){2, 1}, 2, false, &wide));
    core_tensor_release(grads[0]);
    grads[0] = wide;
    return CORE_OK;
}

START_TEST(node_pre_hook_must_not_change_sizes)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a);

    OK(core_node_register_pre_hook(core_tensor_grad_fn(y), widen_pre, NULL,
                                   NULL, NULL));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "hook before",
          "mul.Tensor", "gradient 0", "sizes");
}
END_TEST

SUITE("autograd/autograd_hooks", hooks_run_in_documented_order,
      hook_replaces_the_gradient_until_removed, hook_must_not_change_sizes,
      hooks_require_tensors_with_gradients, retain_grad_keeps_grad_of_a_result,
      retained_grad_accumulates_over_backward_calls,
      retained_grad_with_create_graph_is_differentiable,
      detached_tensor_still_retains_its_grad,
      tensor_reattached_after_detach_retains_new_grad,
      leaf_without_requires_grad_accumulates_nothing,
      hook_may_remove_itself_and_register_others,
      hook_failing_without_message_gets_one,
      node_pre_hook_must_not_change_sizes)
