/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients that meet at a node are added in place only if the engine holds the
 * only reference to the first one and nothing is recorded.  Gradients of leaves
 * do not share memory. */

#include "support/autograd.h"

/* What a post-hook does with the gradient that its node returned. */
typedef struct observer {
    bool keep;   /* keep a reference to it */
    bool detach; /* keep a detached tensor on the same memory */
    void *data;
    core_tensor *kept;
} observer;

static core_status watch(void *context, core_node *node,
                         core_tensor *const *grads, size_t ngrads,
                         core_tensor **gradients, size_t ngradients)
{
    observer *w = context;

    (void)node;
    (void)grads;
    (void)ngrads;
    (void)ngradients;
    OK(core_tensor_data(gradients[0], &w->data));
    if (w->keep)
        w->kept = core_tensor_retain(gradients[0]);
    if (w->detach)
        OK(core_detach(gradients[0], &w->kept));
    return CORE_OK;
}

static core_status look(void *context, core_node *node, core_tensor **grads,
                        size_t ngrads)
{
    (void)node;
    (void)ngrads;
    OK(core_tensor_data(grads[0], context));
    return CORE_OK;
}

/* y = (2 h)·1 + (3 h)·1 with h = a: the gradient of 3 h, which is recorded
 * later, arrives first and is watched.  Returns the address of the sum. */
static void *sum_address(observer *w, uint32_t flags)
{
    core_tensor *a = leaf(VECTOR(2, 1, 1)), *h = mul(a, VECTOR(2, 1, 1));
    core_tensor *second = mul(h, VECTOR(2, 2, 2));
    core_tensor *first = mul(h, VECTOR(2, 3, 3));
    core_tensor *root = sum(add(mul(first, VECTOR(2, 1, 10)), second)), *grad;
    void *where = NULL;

    OK(core_node_register_post_hook(core_tensor_grad_fn(first), watch, w, NULL,
                                    NULL));
    OK(core_node_register_pre_hook(core_tensor_grad_fn(h), look, &where, NULL,
                                   NULL));
    OK(core_grad(&root, 1, NULL, &a, 1, flags, &grad));
    HOLDS(keep(grad), 2, 5, 32);
    ck_assert_ptr_nonnull(w->data);
    ck_assert_ptr_nonnull(where);
    return where;
}

START_TEST(gradient_owned_by_the_engine_is_summed_in_place)
{
    observer w = {0};

    ck_assert_ptr_eq(sum_address(&w, 0), w.data);
}
END_TEST

START_TEST(gradient_referenced_elsewhere_is_not_changed)
{
    observer w = {.keep = true};

    ck_assert_ptr_ne(sum_address(&w, 0), w.data);
    HOLDS(keep(w.kept), 2, 3, 30);
}
END_TEST

START_TEST(gradient_memory_referenced_elsewhere_is_not_changed)
{
    observer w = {.detach = true};

    ck_assert_ptr_ne(sum_address(&w, 0), w.data);
    HOLDS(keep(w.kept), 2, 3, 30);
}
END_TEST

START_TEST(recorded_gradient_is_not_changed)
{
    observer w = {0};

    ck_assert_ptr_ne(sum_address(&w, CORE_CREATE_GRAPH), w.data);
}
END_TEST

/* Replaces the gradient by an expanded row: adding in place would add to its
 * single element several times. */
static core_status overlap(void *context, core_node *node,
                           core_tensor *const *grads, size_t ngrads,
                           core_tensor **gradients, size_t ngradients)
{
    core_tensor *one = NULL;

    OK(watch(context, node, grads, ngrads, gradients, ngradients));
    OK(core_full((int64_t[]){1}, 1, core_float(7), CORE_F64, NULL, &one));
    OK(core_as_strided_(one, (int64_t[]){2}, 1, (int64_t[]){0}, 1, NULL));
    core_tensor_release(gradients[0]);
    gradients[0] = one;
    return CORE_OK;
}

START_TEST(overlapping_gradient_is_not_summed_in_place)
{
    core_tensor *a = leaf(VECTOR(2, 1, 1)), *h = mul(a, VECTOR(2, 1, 1));
    core_tensor *second = mul(h, VECTOR(2, 2, 20));
    core_tensor *first = mul(h, VECTOR(2, 3, 3));
    core_tensor *root = sum(add(first, second));
    observer w = {0};

    OK(core_node_register_post_hook(core_tensor_grad_fn(first), overlap, &w,
                                    NULL, NULL));
    backward(root);
    HOLDS(core_tensor_grad(a), 2, 9, 27);
}
END_TEST

/* ------------------------------------------------------------- at leaves -- */

static core_tensor *flat(core_tensor *tensor)
{
    return CALL(view_sizes, tensor, &(int64_t){-1}, 1);
}

/* The gradient given by the caller reaches both leaves as views of it. */
START_TEST(leaves_do_not_share_gradient_memory)
{
    core_tensor *a = leaf(MATRIX(1, 2, 1, 2)), *b = leaf(MATRIX(2, 1, 3, 4));
    core_tensor *given = VECTOR(2, 1, 10);

    for (int i = 0; i < 2; i++) {
        core_tensor *root = add(flat(a), flat(b));

        OK(core_backward(&root, 1, &given, 0));
    }
    ck_assert(!core_tensor_shares_storage(core_tensor_grad(a), given));
    ck_assert(!core_tensor_shares_storage(core_tensor_grad(b), given));
    ck_assert(
        !core_tensor_shares_storage(core_tensor_grad(a), core_tensor_grad(b)));
    HOLDS(core_tensor_grad(a), 2, 2, 20);
    HOLDS(core_tensor_grad(b), 2, 2, 20);
    HOLDS(given, 2, 1, 10);
}
END_TEST

START_TEST(retained_gradient_is_not_changed_by_leaf_accumulation)
{
    core_tensor *a = leaf(MATRIX(1, 2, 1, 2)), *row = flat(a);
    core_tensor *root = sum(mul(row, VECTOR(2, 3, 4)));

    OK(core_tensor_retain_grad(row));
    OK(core_backward(&root, 1, NULL, CORE_RETAIN_GRAPH));
    backward(sum(a));
    HOLDS(core_tensor_grad(a), 2, 4, 5);
    HOLDS(core_tensor_grad(row), 2, 3, 4);
}
END_TEST

START_TEST(leaf_takes_unshared_view_without_copy)
{
    core_tensor *a = leaf(MATRIX(1, 2, 1, 2));

    backward(sum(mul(flat(a), VECTOR(2, 3, 4))));
    ck_assert_ptr_nonnull(core_tensor_base(core_tensor_grad(a)));
    HOLDS(core_tensor_grad(a), 2, 3, 4);
}
END_TEST

static core_status flat_backward(core_node *node, void *context,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)ngrads;
    (void)ngradients;
    return core_view_sizes(grads[0], (int64_t[]){1, 2}, 2, &gradients[0]);
}

/* flat as a custom function. */
static core_tensor *own_flat(core_tensor *tensor)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "own_flat",
                               .backward = flat_backward};
    core_tensor *result = CALL(clone, flat(CALL(detach, tensor)), -1);

    OK(core_function_record(&info, &tensor, 1, NULL, 0, &result, 1, NULL));
    return result;
}

START_TEST(functions_returning_a_view_share_no_memory)
{
    core_tensor *a = leaf(MATRIX(1, 2, 1, 2)), *b = leaf(MATRIX(1, 2, 3, 4));
    core_tensor *given = VECTOR(2, 1, 10);

    for (int i = 0; i < 2; i++) {
        core_tensor *root = add(own_flat(a), own_flat(b));

        OK(core_backward(&root, 1, &given, 0));
    }
    HOLDS(core_tensor_grad(a), 2, 2, 20);
    HOLDS(core_tensor_grad(b), 2, 2, 20);
    HOLDS(given, 2, 1, 10);
}
END_TEST

static core_status to_bucket(void *context, core_tensor *grad,
                             core_tensor **out_grad)
{
    OK(core_slice(context, 0, &(int64_t){1}, &(int64_t){3}, 1, out_grad));
    return core_copy_(*out_grad, grad, false);
}

START_TEST(hook_may_move_a_gradient_into_a_buffer)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *bucket = VECTOR(4, 0, 0, 0, 0);

    OK(core_tensor_register_hook(a, to_bucket, bucket, NULL, NULL));
    backward(sum(mul(a, VECTOR(2, 3, 4))));
    ck_assert(core_tensor_shares_storage(core_tensor_grad(a), bucket));
    HOLDS(bucket, 4, 0, 3, 4, 0);
}
END_TEST

SUITE("autograd/autograd_sums", gradient_owned_by_the_engine_is_summed_in_place,
      gradient_referenced_elsewhere_is_not_changed,
      gradient_memory_referenced_elsewhere_is_not_changed,
      recorded_gradient_is_not_changed,
      overlapping_gradient_is_not_summed_in_place,
      leaves_do_not_share_gradient_memory,
      retained_gradient_is_not_changed_by_leaf_accumulation,
      leaf_takes_unshared_view_without_copy,
      functions_returning_a_view_share_no_memory,
      hook_may_move_a_gradient_into_a_buffer)
