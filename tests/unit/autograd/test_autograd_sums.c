/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients that meet at a node are added in place only where nobody but the
 * engine has the first, and nothing is recorded.  Those of leaves lie in memory
 * of their own. */

#include "support/autograd.h"

/* What a hook behind a node sees of the gradient that it gives. */
typedef struct witness {
    bool keep;   /* a reference */
    bool detach; /* a tensor of its own on the same memory */
    void *data;
    core_tensor *kept;
} witness;

static core_status watch(void *context, core_node *node,
                         core_tensor *const *grads, size_t ngrads,
                         core_tensor **gradients, size_t ngradients)
{
    witness *w = context;

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

/* y = (2 h)·1 + (3 h)·1 with h = a: the gradient of 3 h, which is made later,
 * comes first and is watched.  Gives where the sum lies. */
static void *meet(witness *w, uint32_t flags)
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

START_TEST(a_gradient_of_the_engine_alone_is_added_to_in_place)
{
    witness w = {0};

    ck_assert_ptr_eq(meet(&w, 0), w.data);
}
END_TEST

START_TEST(a_gradient_that_somebody_keeps_is_not_changed)
{
    witness w = {.keep = true};

    ck_assert_ptr_ne(meet(&w, 0), w.data);
    HOLDS(keep(w.kept), 2, 3, 30);
}
END_TEST

START_TEST(memory_that_somebody_keeps_is_not_changed)
{
    witness w = {.detach = true};

    ck_assert_ptr_ne(meet(&w, 0), w.data);
    HOLDS(keep(w.kept), 2, 3, 30);
}
END_TEST

START_TEST(a_gradient_that_is_recorded_is_not_changed)
{
    witness w = {0};

    ck_assert_ptr_ne(meet(&w, CORE_CREATE_GRAPH), w.data);
}
END_TEST

/* One element for all of a row: a sum in place would add to it several times
 * over. */
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

START_TEST(a_gradient_that_overlaps_itself_is_not_changed)
{
    core_tensor *a = leaf(VECTOR(2, 1, 1)), *h = mul(a, VECTOR(2, 1, 1));
    core_tensor *second = mul(h, VECTOR(2, 2, 20));
    core_tensor *first = mul(h, VECTOR(2, 3, 3));
    core_tensor *root = sum(add(first, second));
    witness w = {0};

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

/* The gradient that the caller gave comes to both leaves as views of it. */
START_TEST(leaves_do_not_share_the_memory_of_their_gradients)
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

START_TEST(a_retained_gradient_is_not_changed_through_a_leafs)
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

START_TEST(a_view_of_what_nobody_else_has_is_taken_without_a_copy)
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

/* flat, as a function of the program's own. */
static core_tensor *own_flat(core_tensor *tensor)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "own_flat",
                               .backward = flat_backward};
    core_tensor *result = CALL(clone, flat(CALL(detach, tensor)), -1);

    OK(core_function_record(&info, &tensor, 1, NULL, 0, &result, 1, NULL));
    return result;
}

START_TEST(functions_that_answer_with_a_view_share_nothing_either)
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

START_TEST(a_hook_may_put_a_gradient_into_the_programs_buffer)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *bucket = VECTOR(4, 0, 0, 0, 0);

    OK(core_tensor_register_hook(a, to_bucket, bucket, NULL, NULL));
    backward(sum(mul(a, VECTOR(2, 3, 4))));
    ck_assert(core_tensor_shares_storage(core_tensor_grad(a), bucket));
    HOLDS(bucket, 4, 0, 3, 4, 0);
}
END_TEST

SUITE("sums of gradients", a_gradient_of_the_engine_alone_is_added_to_in_place,
      a_gradient_that_somebody_keeps_is_not_changed,
      memory_that_somebody_keeps_is_not_changed,
      a_gradient_that_is_recorded_is_not_changed,
      a_gradient_that_overlaps_itself_is_not_changed,
      leaves_do_not_share_the_memory_of_their_gradients,
      a_retained_gradient_is_not_changed_through_a_leafs,
      a_view_of_what_nobody_else_has_is_taken_without_a_copy,
      functions_that_answer_with_a_view_share_nothing_either,
      a_hook_may_put_a_gradient_into_the_programs_buffer)
