/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The engine: custom functions, gradients, reentrancy, threads, errors. */

#include "support/hooks.h"

#include "base/memory.h"
#include "base/thread.h"
#include "base/keys.h"

#include <pthread.h>

/* ------------------------------------------------------------ functions -- */

/* y = a * b, and what its node observed. */
typedef struct product {
    int released;
    int runs;
    core_tensor *slice; /* where to write the gradient of a */
} product;

static core_status product_backward(core_node *node, void *context,
                                    core_tensor *const *grads, size_t ngrads,
                                    core_tensor **gradients, size_t ngradients)
{
    product *product = context;
    core_tensor *a = NULL, *b = NULL, *out = product->slice;
    core_status status;

    product->runs++;
    ck_assert_uint_eq(ngrads, 1);
    ck_assert_uint_eq(ngradients, 2);
    /* Code of the program runs with the dispatch keys of its thread. */
    ck_assert(!(core__thread_self()->excluded & CORE__KEY_AUTOGRAD));
    status = core_node_saved(node, 0, &a);
    if (status == CORE_OK)
        status = core_node_saved(node, 1, &b);
    if (status == CORE_OK && core_node_needs_gradient(node, 0)) {
        if (out) {
            product->slice = NULL; /* so that only the engine references it */
            gradients[0] = out;
            status = core_mul_out(grads[0], b, out);
        } else {
            status = core_mul(grads[0], b, &gradients[0]);
        }
    }
    if (status == CORE_OK && core_node_needs_gradient(node, 1))
        status = core_mul(grads[0], a, &gradients[1]);
    core_tensor_release(a);
    core_tensor_release(b);
    return status;
}

static void product_release(void *context)
{
    ((product *)context)->released++;
}

static core_tensor *product_of(product *product, core_tensor *a, core_tensor *b)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "product",
                               .backward = product_backward,
                               .context = product,
                               .release = product_release};
    core_tensor *inputs[2], *y;
    bool before = core_grad_mode_set(false);

    inputs[0] = a;
    inputs[1] = b;
    OK(core_mul(a, b, &y));
    core_grad_mode_set(before);
    OK(core_function_record(&info, inputs, 2, inputs, 2, &y, 1, NULL));
    return keep(y);
}

START_TEST(custom_function_takes_part_in_backward)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = leaf(VECTOR(2, 5, 7));
    product p = {0};
    core_tensor *y = product_of(&p, a, b);

    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(y)), "product");
    backward(sum(mul(y, y)));
    HOLDS(core_tensor_grad(a), 2, 100, 294);
    HOLDS(core_tensor_grad(b), 2, 40, 126);
    ck_assert_int_eq(p.released, 1);
    drop_all();
    ck_assert_int_eq(p.released, 1);
}
END_TEST

START_TEST(second_backward_of_custom_function_names_it)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = VECTOR(1, 5);
    product p = {0};
    core_tensor *y = product_of(&p, a, b);

    OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    ck_assert_int_eq(p.released, 0);
    OK(core_backward(&y, 1, NULL, 0));
    ck_assert_int_eq(p.released, 1);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "product",
          "CORE_RETAIN_GRAPH");
    ck_assert_int_eq(p.runs, 2);
    HOLDS(core_tensor_grad(a), 1, 10);
}
END_TEST

START_TEST(function_written_with_operators_has_higher_derivatives)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 5));
    product p = {0};
    core_tensor *y = product_of(&p, a, b), *first, *second;

    y = mul(y, y);
    OK(core_grad(&y, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 1, 100);
    OK(core_grad(&first, 1, NULL, &b, 1, 0, &second));
    HOLDS(keep(second), 1, 40);
}
END_TEST

static core_status silent_backward(core_node *node, void *context,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)grads;
    (void)ngrads;
    (void)gradients;
    (void)ngradients;
    return CORE_ERROR_SHAPE;
}

START_TEST(backward_failing_without_message_gets_one)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "silent",
                               .backward = silent_backward};
    core_tensor *a = leaf(VECTOR(1, 2)), *y = VECTOR(1, 4);

    OK(core_function_record(&info, &a, 1, NULL, 0, &y, 1, NULL));
    fail_before();
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_SHAPE, "silent",
          "without a message");
    ck_assert_ptr_null(strstr(core_error_message(), "add.Tensor"));
}
END_TEST

START_TEST(function_outputs_must_be_new_tensors)
{
    product p = {0};
    core_function_info info = {.struct_size = sizeof info,
                               .name = "product",
                               .backward = product_backward,
                               .context = &p,
                               .release = product_release};
    core_tensor *inputs[2], *outputs[2], *plain = VECTOR(1, 7);

    inputs[0] = leaf(VECTOR(1, 2));
    inputs[1] = plain;
    outputs[0] = VECTOR(1, 4);
    outputs[1] = outputs[0];
    FAILS(core_function_record(&info, inputs, 2, NULL, 0, outputs, 2, NULL),
          CORE_ERROR_AUTOGRAD, "output 1", "product", "earlier output");
    outputs[1] = plain;
    FAILS(core_function_record(&info, inputs, 2, NULL, 0, outputs, 2, NULL),
          CORE_ERROR_AUTOGRAD, "output 1", "inputs");
    outputs[1] = NULL;
    FAILS(core_function_record(&info, inputs, 2, NULL, 0, outputs, 2, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "output", "NULL");
    FAILS(core_function_record(NULL, inputs, 2, NULL, 0, outputs, 2, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    ck_assert_int_eq(p.released, 3);
    ck_assert(!core_tensor_requires_grad(outputs[0]));
}
END_TEST

START_TEST(null_tensor_is_refused)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a), *none = NULL, *grad;

    FAILS(core_backward(&none, 1, NULL, 0), CORE_ERROR_INVALID_ARGUMENT,
          "tensor 0", "NULL");
    FAILS(core_backward(NULL, 1, NULL, 0), CORE_ERROR_INVALID_ARGUMENT,
          "core_backward");
    FAILS(core_grad(&none, 1, NULL, &a, 1, 0, &grad),
          CORE_ERROR_INVALID_ARGUMENT, "core_grad", "NULL");
    FAILS(core_grad(&y, 1, NULL, &none, 1, 0, &grad),
          CORE_ERROR_INVALID_ARGUMENT, "input 0", "NULL");
    FAILS(core_grad(&y, 1, NULL, NULL, 1, 0, &grad),
          CORE_ERROR_INVALID_ARGUMENT, "core_grad");
    FAILS(core_tensor_set_requires_grad(NULL, true),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_tensor_set_grad(NULL, a), CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_tensor_retain_grad(NULL), CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_tensor_register_hook(NULL, tell, "", NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_tensor_register_hook(a, NULL, "", NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_tensor_register_accumulate_hook(NULL, tell_leaf, "", NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_node_register_pre_hook(NULL, tell_pre, "", NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_node_register_post_hook(NULL, tell_post, "", NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    ck_assert(!core_tensor_requires_grad(NULL));
    ck_assert_ptr_null(core_tensor_grad(NULL));
    ck_assert_ptr_null(core_tensor_grad_fn(NULL));
}
END_TEST

START_TEST(function_without_differentiable_inputs_records_nothing)
{
    product p = {0};
    core_tensor *y = product_of(&p, VECTOR(1, 2), VECTOR(1, 5));

    ck_assert(!core_tensor_requires_grad(y));
    ck_assert_int_eq(p.released, 1);
}
END_TEST

/* Writes the gradients of two weights into one buffer without a copy. */
START_TEST(gradients_packed_into_a_buffer_are_not_copied)
{
    core_tensor *a = leaf(MATRIX(2, 2, 1, 2, 3, 4)), *b = leaf(VECTOR(2, 5, 6));
    core_tensor *buffer = VECTOR(6, 0, 0, 0, 0, 0, 0);
    core_tensor *x = VECTOR(2, 10, 20), *parts[2];
    product p = {0}, q = {0};

    parts[0] = CALL(slice, buffer, 0, &(int64_t){0}, &(int64_t){4}, 1);
    OK(core_view_sizes(parts[0], (int64_t[]){2, 2}, 2, &p.slice));
    OK(core_slice(buffer, 0, &(int64_t){4}, &(int64_t){6}, 1, &q.slice));
    backward(sum(mul(product_of(&p, a, MATRIX(2, 2, 1, 1, 1, 1)),
                     product_of(&q, b, x))));
    ck_assert(core_tensor_shares_storage(core_tensor_grad(a), buffer));
    ck_assert(core_tensor_shares_storage(core_tensor_grad(b), buffer));
    ck_assert_int_eq(core_tensor_offset(core_tensor_grad(b)), 4);
    HOLDS(buffer, 6, 50, 120, 50, 120, 40, 120);
}
END_TEST

START_TEST(gradient_referenced_elsewhere_is_copied)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *grad = VECTOR(2, 3, 4);

    OK(core_backward(&a, 1, &grad, 0));
    ck_assert_ptr_ne(core_tensor_grad(a), grad);
    ck_assert(!core_tensor_shares_storage(core_tensor_grad(a), grad));
    HOLDS(core_tensor_grad(a), 2, 3, 4);
}
END_TEST

START_TEST(first_gradient_has_layout_of_its_tensor)
{
    core_tensor *a = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    core_tensor *t = leaf(CALL(detach, CALL(transpose, a, 0, 1)));

    backward(sum(mul(t, MATRIX(3, 2, 1, 2, 3, 4, 5, 6))));
    HOLDS(core_tensor_grad(t), 6, 1, 2, 3, 4, 5, 6);
    ck_assert_int_eq(core_tensor_strides(core_tensor_grad(t))[0], 1);
    ck_assert_int_eq(core_tensor_strides(core_tensor_grad(t))[1], 3);
}
END_TEST

/* ------------------------------------------------------ other gradients -- */

typedef struct wrong {
    core_dtype dtype;
    int64_t sizes[2];
    core_status status;
} wrong;

static core_status wrong_backward(core_node *node, void *context,
                                  core_tensor *const *grads, size_t ngrads,
                                  core_tensor **gradients, size_t ngradients)
{
    static const double zeros[16];
    const wrong *wrong = context;

    (void)node;
    (void)grads;
    (void)ngrads;
    (void)ngradients;
    if (wrong->status != CORE_OK)
        return core_error_set(wrong->status, "out of luck");
    return core_tensor_from_data(zeros, wrong->dtype, wrong->sizes, 2, NULL,
                                 &gradients[1]);
}

static core_tensor *wrong_of(wrong *wrong, core_tensor *a)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "wrong",
                               .backward = wrong_backward,
                               .context = wrong};
    core_tensor *y = VECTOR(1, 1), *inputs[2];

    inputs[0] = NULL;
    inputs[1] = a;
    OK(core_function_record(&info, inputs, 2, NULL, 0, &y, 1, NULL));
    return y;
}

START_TEST(wrong_gradients_name_node_and_index)
{
    core_tensor *a = leaf(MATRIX(2, 2, 1, 2, 3, 4)), *y;
    wrong shape = {CORE_F64, {2, 3}, CORE_OK};
    wrong dtype = {CORE_I64, {2, 2}, CORE_OK};
    wrong fails = {CORE_F64, {2, 2}, CORE_ERROR_IO};

    y = wrong_of(&shape, a);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_SHAPE, "gradient 1",
          "wrong", "[2, 3]", "[2, 2]");
    y = wrong_of(&dtype, a);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_DTYPE, "gradient 1",
          "wrong", "i64");
    y = wrong_of(&fails, a);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_IO, "wrong: out of luck");
    ck_assert_ptr_null(core_tensor_grad(a));
}
END_TEST

START_TEST(failed_backward_restores_graph_and_thread_state)
{
    core_tensor *a = leaf(MATRIX(1, 1, 2)), *b = leaf(VECTOR(1, 3));
    wrong fails = {CORE_F64, {1, 1}, CORE_ERROR_IO};
    core_tensor *y = mul(b, mul(b, wrong_of(&fails, a)));

    for (int i = 0; i < 3; i++) {
        FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_IO,
              "out of luck");
        ck_assert(core_grad_mode());
        ck_assert_uint_eq(core__thread_self()->excluded, 0);
        ck_assert_ptr_null(core__thread_self()->engine);
    }
    fails.status = CORE_OK;
    OK(core_tensor_set_grad(b, NULL));
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(b), 1, 6);
}
END_TEST

/* ------------------------------------------------------------ reentrancy -- */

/* The backward of each function runs the backward of the next. */
typedef struct nest {
    int depth;
    core_tensor *leaf;
} nest;

static core_tensor *nest_of(nest *nest);

static core_status nest_backward(core_node *node, void *context,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **gradients, size_t ngradients)
{
    nest *nest = context;
    core_tensor *inner;
    core_status status;
    bool before;

    (void)node;
    (void)ngrads;
    (void)ngradients;
    gradients[0] = core_tensor_retain(grads[0]);
    if (nest->depth-- == 0)
        return CORE_OK;
    before = core_grad_mode_set(true);
    inner = nest_of(nest);
    status = core_backward(&inner, 1, NULL, 0);
    core_grad_mode_set(before);
    core_tensor_release(inner);
    return status;
}

static core_tensor *nest_of(nest *nest)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "nest",
                               .backward = nest_backward,
                               .context = nest};
    core_tensor *y = NULL;
    double one = 1;

    core_tensor_from_data(&one, CORE_F64, (int64_t[]){1}, 1, NULL, &y);
    core_function_record(&info, &nest->leaf, 1, NULL, 0, &y, 1, NULL);
    return y;
}

START_TEST(backward_calls_nest_to_any_depth)
{
    nest nest = {1000, leaf(VECTOR(1, 2))};
    core_tensor *y = keep(nest_of(&nest));

    backward(y);
    HOLDS(core_tensor_grad(nest.leaf), 1, 1001);
}
END_TEST

/* A hook that runs backward of the same graph again. */
static core_status again(void *context, core_tensor *grad,
                         core_tensor **out_grad)
{
    core_tensor *const *pair = context;
    core_tensor *inner;
    core_status status;
    static int inside;

    (void)grad;
    (void)out_grad;
    if (inside)
        return CORE_OK;
    inside = 1;
    status =
        core_grad(&pair[0], 1, NULL, &pair[1], 1, CORE_RETAIN_GRAPH, &inner);
    inside = 0;
    if (status == CORE_OK) {
        HOLDS(inner, 1, 12);
        core_tensor_release(inner);
    }
    return status;
}

START_TEST(backward_may_run_again_inside_itself)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = mul(a, a), *pair[2];

    pair[0] = mul(y, a);
    pair[1] = a;
    OK(core_tensor_register_hook(y, again, pair, NULL, NULL));
    OK(core_backward(pair, 1, NULL, CORE_RETAIN_GRAPH));
    HOLDS(core_tensor_grad(a), 1, 12);
}
END_TEST

/* --------------------------------------------------------------- threads -- */

enum { WALKS = 200 };

static void *walk(void *argument)
{
    for (int i = 0; i < WALKS; i++)
        if (core_backward(argument, 1, NULL, CORE_RETAIN_GRAPH) != CORE_OK)
            return argument;
    return NULL;
}

START_TEST(threads_may_run_backward_of_one_graph_concurrently)
{
    core_tensor *a = leaf(VECTOR(1, 1)), *y = mul(a, a);
    pthread_t threads[4];
    void *failed;

    for (int i = 0; i < 20; i++)
        y = mul(CALL(exp, mul(y, VECTOR(1, 0))), y);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, walk, &y);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    HOLDS(core_tensor_grad(a), 1, 2.0 * 4 * WALKS);
}
END_TEST

static void *forward(void *argument)
{
    for (int i = 0; i < WALKS; i++) {
        core_tensor *y;

        if (core_mul(argument, argument, &y) != CORE_OK ||
            core_backward(&y, 1, NULL, 0) != CORE_OK)
            return argument;
        core_tensor_release(y);
    }
    return NULL;
}

START_TEST(threads_may_accumulate_into_one_leaf)
{
    core_tensor *a = leaf(VECTOR(1, 1));
    pthread_t threads[4];
    void *failed;

    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, forward, a);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    HOLDS(core_tensor_grad(a), 1, 2.0 * 4 * WALKS);
}
END_TEST

static void *make_graph(void *argument)
{
    core_tensor **pair = argument;
    core_tensor *y, *z;

    if (core_mul(pair[0], pair[0], &y) == CORE_OK &&
        core_mul(y, y, &z) == CORE_OK) {
        pair[1] = z;
        core_tensor_release(y);
    }
    return NULL;
}

START_TEST(backward_may_run_in_another_thread_than_forward)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *pair[2] = {a, NULL};
    pthread_t thread;

    pthread_create(&thread, NULL, make_graph, pair);
    pthread_join(thread, NULL);
    backward(keep(pair[1]));
    HOLDS(core_tensor_grad(a), 1, 32);
}
END_TEST

SUITE("autograd/autograd_engine", backward_failing_without_message_gets_one,
      function_outputs_must_be_new_tensors, null_tensor_is_refused,
      custom_function_takes_part_in_backward,
      second_backward_of_custom_function_names_it,
      function_written_with_operators_has_higher_derivatives,
      function_without_differentiable_inputs_records_nothing,
      gradients_packed_into_a_buffer_are_not_copied,
      gradient_referenced_elsewhere_is_copied,
      first_gradient_has_layout_of_its_tensor,
      wrong_gradients_name_node_and_index,
      failed_backward_restores_graph_and_thread_state,
      backward_calls_nest_to_any_depth, backward_may_run_again_inside_itself,
      threads_may_run_backward_of_one_graph_concurrently,
      threads_may_accumulate_into_one_leaf,
      backward_may_run_in_another_thread_than_forward)
