/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Networks as expressions: layers, optimizers and other objects in scopes. */

#include "support/autograd.h"
#include "support/temporary_files.h"

#include "base/memory.h"

#include <libcore/network.h>

#include <string.h>
#include <wchar.h>

static temporary_path path;

static void set_up(void)
{
    temporary_file(path, "network");
}

static void tear_down(void)
{
    drop_all();
    temporary_remove(path);
}

static core_tensor *residual(core_module *m, core_tensor *x)
{
    return core_x_add(x, core_x_children(m, x, "up", "act", "down"));
}

/* A block, whose parameters are up.weight and down.weight. */
static core_module *block(core_module *parent, const char *name)
{
    core_module *m = core_x_nn_module(parent, name, residual);

    core_x_nn_linear(m, "up", 3, 4, false);
    core_x_nn_function(m, "act", core_tanh);
    core_x_nn_linear(m, "down", 4, 3, false);
    return m;
}

/* --------------------------------------------------------------- layers -- */

START_TEST(layers_are_children_by_name_or_number)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_sequential(NULL, NULL);
    core_list parameters;

    block(m, NULL);
    block(m, "last");
    core_x_nn_linear(m, NULL, 3, 2);
    ck_assert_ptr_nonnull(core_module_tensor(m, "0.up.weight"));
    ck_assert_ptr_nonnull(core_module_tensor(m, "last.down.weight"));
    ck_assert_ptr_nonnull(core_module_tensor(m, "2.bias"));
    parameters = core_x_parameters(m);
    ck_assert_uint_eq(parameters.count, 6);
    ck_assert_ptr_eq(core_list_at(parameters, 5),
                     core_module_tensor(m, "2.bias"));
    ck_assert_int_eq(
        core_x_size(core_x_module(m, core_x_ones(CORE_SIZES(5, 3))), 1), 2);
    OK(core_scope_end(scope));
}
END_TEST

/* Whether a network that adds a layer of this name fails with this text. */
static void refuses(const char *name, const char *text)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);

    core_x_nn_linear(m, "deep.linear", 3, 3);
    ck_assert_ptr_null(core_x_nn_linear(m, name, 3, 3));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, text);
}

START_TEST(names_may_be_paths)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(5, 3));

    core_x_nn_linear(m, "attn.q", 3, 3);
    core_x_nn_linear(m, "attn.inner.k", 3, 3);
    for (int i = 0; i < 3; i++)
        core_x_nn_linear(m, "layers.", 3 + i, 4 + i);
    core_x_nn_linear(core_x_nn_container(m, "blocks."), "up", 3, 4);
    ck_assert_ptr_nonnull(core_module_tensor(m, "attn.q.weight"));
    ck_assert_ptr_nonnull(core_module_tensor(m, "attn.inner.k.weight"));
    ck_assert_ptr_nonnull(core_module_tensor(m, "layers.2.weight"));
    ck_assert_ptr_nonnull(core_module_tensor(m, "blocks.0.up.weight"));
    ck_assert_uint_eq(core_x_parameters(m).count, 12);
    ck_assert_int_eq(core_x_size(core_x_child(m, "layers", x), 1), 6);
    OK(core_scope_end(scope));
    refuses("a..b", "is empty or has a dot");
    refuses(".b", "is empty or has a dot");
    refuses("deep.linear", "has a member \"linear\" already");
    refuses("deep.linear.weight.b", "has a member \"weight\" already");
}
END_TEST

START_TEST(children_are_found_by_a_formatted_path)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);

    core_x_nn_linear(m, "layers.", 1, 1);
    core_x_nn_linear(m, "layers.", 1, 1);
    ck_assert_ptr_eq(core_x_nn_child(m, "layers.%d", 1),
                     core_module_child(m, "layers.1"));
    ck_assert_ptr_null(core_x_nn_child(m, "layers.%d", 2));
    ck_assert_ptr_null(core_x_nn_child(m, "layers.0"));
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND,
          "core_x_nn_child: a Container has no child \"layers.2\"",
          "test_network.c");
}
END_TEST

START_TEST(long_names_on_a_path_are_not_cut)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    const char *a = core_x_text("%0600d", 1), *b = core_x_text("%0600d", 2);

    core_x_nn_dropout(m, core_x_text("%s.drop", a), 0.5);
    core_x_nn_dropout(m, core_x_text("%s.drop", b), 0.5);
    OK(core_scope_status());
    ck_assert_ptr_nonnull(core_module_child(m, a));
    ck_assert_ptr_nonnull(core_module_child(m, b));
    OK(core_scope_end(scope));
}
END_TEST

/* Returns the number of elements of the output. */
static int64_t apply(core_module *m, core_tensor *x)
{
    core_tensor *y = core_x_module(m, x);

    return y ? core_tensor_numel(y) : -1;
}

START_TEST(each_layer_has_its_defaults)
{
    core_scope scope = core_scope_begin();
    core_tensor *image = core_x_ones(CORE_SIZES(2, 4, 6, 6));
    core_tensor *rows = core_x_ones(CORE_SIZES(2, 5, 4));
    core_module *m;

    m = core_x_nn_conv2d(NULL, NULL, 4, 8, {3}, {2}, {1}, .groups = 2);
    ck_assert_int_eq(apply(m, image), 2 * 8 * 3 * 3);
    ck_assert_ptr_nonnull(core_module_tensor(m, "bias"));
    m = core_x_nn_conv1d(NULL, NULL, 5, 3, {2}, .no_bias = true);
    ck_assert_int_eq(apply(m, rows), 2 * 3 * 3);
    ck_assert_ptr_null(core_module_tensor(m, "bias"));
    m = core_x_nn_conv3d(NULL, NULL, 2, 1, {2, 1, 1});
    ck_assert_int_eq(apply(m, image), 3 * 6 * 6);
    ck_assert_int_eq(apply(core_x_nn_batch_norm(NULL, NULL, 4), image), 288);
    ck_assert_int_eq(apply(core_x_nn_group_norm(NULL, NULL, 2, 4), image), 288);
    ck_assert_int_eq(apply(core_x_nn_layer_norm(NULL, NULL, 6), image), 288);
    ck_assert_int_eq(apply(core_x_nn_rms_norm(NULL, NULL, 6, 1e-6), image),
                     288);
    ck_assert_int_eq(apply(core_x_nn_rms_norm(NULL, NULL, 6), image), 288);
    ck_assert_int_eq(apply(core_x_nn_dropout(NULL, NULL, 0.5), image), 288);
    m = core_x_nn_embedding(NULL, NULL, 7, 2);
    ck_assert_int_eq(apply(m, core_x_zeros(CORE_SIZES(3), CORE_I64)), 6);
    m = core_x_nn_attention(NULL, NULL, .size = 4, .heads = 2);
    ck_assert_int_eq(apply(m, rows), 2 * 5 * 4);
    m = core_x_nn_recurrent(NULL, NULL, CORE_NN_RNN_RELU, 4, 3);
    ck_assert_int_eq(apply(m, rows), 2 * 5 * 3);
    m = core_x_nn_gru(NULL, NULL, 4, 3, 2, .batch_first = true);
    ck_assert_int_eq(apply(m, rows), 2 * 5 * 3);
    ck_assert_ptr_nonnull(core_module_tensor(m, "weight_hh_l1"));
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(all_outputs_are_a_list)
{
    core_scope scope = core_scope_begin();
    core_module *lstm = core_x_nn_lstm(NULL, NULL, 3, 4, 2);
    core_tensor *x = core_x_ones(CORE_SIZES(5, 2, 3)), *y, *h = NULL, *c = NULL;

    for (int i = 0; i < 2; i++) {
        CORE_UNPACK(core_x_forward(lstm, x, h, c), &y, &h, &c);
        ck_assert_int_eq(core_x_size(y, 0), 5);
        ck_assert_int_eq(core_x_size(c, 0), 2);
    }
    ck_assert_int_eq(core_scope_status(), CORE_OK);
    ck_assert_uint_eq(core_x_forward(lstm, x, h).count, 0);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "was called with 2 inputs");
}
END_TEST

/* --------------------------------------------------------------- objects -- */

static char order[8], a[] = "a", b[] = "b", c[] = "c";

static void note(void *object)
{
    strncat(order, object, 1);
}

START_TEST(objects_are_released_in_reverse_order)
{
    core_scope scope = core_scope_begin(), inner;

    order[0] = '\0';
    core_scope_own_object(CORE_OK, a, note);
    core_scope_own_object(CORE_OK, b, note);
    inner = core_scope_begin();
    ck_assert_ptr_nonnull(core_scope_own_object(CORE_OK, c, note));
    core_scope_keep(core_x_ones(CORE_SIZES(2)));
    OK(core_scope_end(inner));
    ck_assert_str_eq(order, "c");
    OK(core_scope_end(scope));
    ck_assert_str_eq(order, "cba");
}
END_TEST

/* What is kept, or returned, is taken out of the middle. */
START_TEST(objects_keep_their_order_when_a_tensor_is_kept)
{
    core_scope scope = core_scope_begin(), inner = core_scope_begin();
    core_tensor *kept;

    order[0] = '\0';
    core_x_no_grad();
    core_scope_own_object(CORE_OK, a, note);
    core_scope_own_object(CORE_OK, b, note);
    kept = core_x_ones(CORE_SIZES(2));
    core_scope_own_object(CORE_OK, c, note);
    core_x_no_grad();
    kept = core_scope_return(inner, kept);
    ck_assert_str_eq(order, "cba");
    ck_assert(core_grad_mode());
    ck_assert_int_eq(core_tensor_numel(kept), 2);
    OK(core_scope_end(scope));
}
END_TEST

/* The forward of a module without a scope of its own. */
static core_tensor *wrong_sizes(core_module *m, core_tensor *x)
{
    (void)m;
    return core_x_add(x, core_x_ones(CORE_SIZES(7)));
}

START_TEST(errors_of_nested_scopes_become_those_of_the_outer_one)
{
    core_scope scope = core_scope_begin(), inner = core_scope_begin();
    core_tensor *x = core_x_ones(CORE_SIZES(2));

    core_x_forward(core_x_nn_module(NULL, NULL, wrong_sizes), x);
    FAILS(core_scope_end_nested(inner), CORE_ERROR_SHAPE, "test_network.c:");
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE, "test_network.c:");
}
END_TEST

/* What a release function does wrong is not an error of the scope that ends. */
static void use_the_scope_that_ends(void *x)
{
    OK(core_scope_end(core_scope_begin()));
    ck_assert_ptr_null(core_x_neg(x));
}

START_TEST(a_release_does_not_use_the_scope_that_ends)
{
    core_tensor *x = CALL(ones, (const int64_t[]){2}, 1, CORE_F32, NULL);
    core_scope scope = core_scope_begin();

    core_scope_own_object(CORE_OK, x, use_the_scope_that_ends);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(objects_that_come_too_late_are_released_at_once)
{
    core_scope scope = core_scope_begin();

    order[0] = '\0';
    CORE_CHECK(core_error_set(CORE_ERROR_IO, "the first"));
    ck_assert_ptr_null(core_scope_own_object(CORE_OK, a, note));
    ck_assert_str_eq(order, "a");
    FAILS(core_scope_end(scope), CORE_ERROR_IO, "the first");
    ck_assert_ptr_null(core_scope_own_object(CORE_OK, b, note));
    ck_assert_str_eq(order, "ab");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_scope_own_object(
        core_error_set(CORE_ERROR_IO, "not made"), NULL, note));
    FAILS(core_scope_end(scope), CORE_ERROR_IO, "test_network.c:");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_scope_own_object(CORE_OK, order, NULL));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "release");
    ck_assert_str_eq(order, "ab");
}
END_TEST

/* A release that itself uses scopes, which move what the scope owns. */
static void use_scopes(void *x)
{
    core_scope scope = core_scope_begin();

    for (int i = 0; i < 100; i++)
        core_x_neg(x);
    OK(core_scope_end(scope));
}

START_TEST(a_release_may_use_scopes)
{
    core_tensor *x = CALL(ones, (const int64_t[]){2}, 1, CORE_F32, NULL);
    core_scope scope = core_scope_begin();

    for (int i = 0; i < 3; i++)
        core_scope_own_object(CORE_OK, x, use_scopes);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(grad_mode_returns_at_the_end)
{
    core_scope scope = core_scope_begin(), inner = core_scope_begin();

    core_x_no_grad();
    core_x_no_grad();
    ck_assert(!core_grad_mode());
    OK(core_scope_end(inner));
    ck_assert(core_grad_mode());
    inner = core_scope_begin();
    CORE_CHECK(core_error_set(CORE_ERROR_IO, "before"));
    core_x_no_grad();
    ck_assert(core_grad_mode());
    core_scope_end(inner);
    OK(core_scope_end(scope));
}
END_TEST

/* --------------------------------------------------------------- errors -- */

START_TEST(after_an_error_nothing_is_made)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_sequential(NULL, NULL), *good = m;

    ck_assert_ptr_null(core_x_nn_linear(m, NULL, 0, 3));
    m = core_x_nn_module(NULL, NULL, residual);
    ck_assert_ptr_null(m);
    ck_assert_ptr_null(core_x_nn_conv2d(m, "conv", 1, 1, {1}));
    ck_assert_ptr_null(core_x_sgd(m, .learning_rate = 1));
    ck_assert_ptr_null(core_x_children(m, NULL, "a", "b"));
    ck_assert_ptr_null(core_x_load(path, "x"));
    core_x_clip_grad_norm(m, 1);
    core_x_minimize(NULL, NULL);
    ck_assert_uint_eq(core_x_parameters(good).count, 0);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "it must be positive");
}
END_TEST

START_TEST(errors_have_their_place)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);

    core_x_nn_linear(m, "a", 1, 1);
    core_x_nn_linear(m, "a", 1, 1);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "test_network.c:");
    scope = core_scope_begin();
    core_x_load("none/none", "x");
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND, "test_network.c:");
    scope = core_scope_begin();
    core_x_use_device("none");
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND, "test_network.c:");
    scope = core_scope_begin();
    core_x_children(core_x_nn_container(NULL, NULL), core_x_ones(CORE_SIZES(1)),
                    "absent");
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND, "absent");
}
END_TEST

/* ------------------------------------------------------------- training -- */

/* The squared distance of the output from 1. */
static double train(core_optimizer *optimizer, core_module *m)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_full(CORE_SIZES(2, 3), core_float(0.5));
    core_tensor *loss =
        core_x_mse_loss(core_x_module(m, x), core_x_ones_like(x));
    double value = core_x_item_float(loss);

    core_x_minimize(optimizer, loss);
    OK(core_scope_end(scope));
    return value;
}

START_TEST(optimizers_have_the_parameters_of_a_module)
{
    core_scope scope = core_scope_begin();
    core_module *m = block(NULL, NULL);
    core_optimizer *optimizers[2];
    double first, last = 0;

    optimizers[0] = core_x_sgd(m, .learning_rate = 0.1, .momentum = 0.5);
    optimizers[1] = core_x_adam(m, .learning_rate = 0.01, .beta2 = 0.99);
    for (int k = 0; k < 2; k++) {
        first = train(optimizers[k], m);
        for (int i = 0; i < 20; i++)
            last = train(optimizers[k], m);
        ck_assert_double_lt(last, first);
    }
    OK(core_scope_end(scope));
}
END_TEST

/* In the first step the one group moves by the rate in each element, and the
 * other by half of it. */
START_TEST(named_parameters_are_a_group)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_optimizer *adam, *sgd;
    core_tensor *w, *b;

    core_x_nn_linear(m, "one", 1, 1);
    core_x_nn_linear(m, "two", 1, 1, false);
    ck_assert_uint_eq(core_x_named_parameters(m, "*.weight").count, 2);
    ck_assert_uint_eq(core_x_named_parameters(m, "two*", "*bias").count, 2);
    adam = core_x_adam(m, .learning_rate = 1);
    core_x_adam_group(adam, core_x_named_parameters(m, "*bias"),
                      .learning_rate = 0.5);
    sgd = core_x_sgd(m, .learning_rate = 1);
    core_x_sgd_group(sgd, core_x_named_parameters(m, "one.*"),
                     .learning_rate = 0.5);
    ck_assert_double_eq(core_optimizer_group_learning_rate(sgd, 1), 0.5);
    OK(core_scope_status());
    w = core_x_clone(core_module_tensor(m, "one.weight"));
    b = core_x_clone(core_module_tensor(m, "one.bias"));
    core_x_minimize(
        adam, core_x_sum(core_x_child(m, "one", core_x_ones(CORE_SIZES(1)))));
    w = core_x_sub(w, core_module_tensor(m, "one.weight"));
    b = core_x_sub(b, core_module_tensor(m, "one.bias"));
    ck_assert_double_eq_tol(core_x_item_float(w), 1, 1e-6);
    ck_assert_double_eq_tol(core_x_item_float(b), .5, 1e-6);
    ck_assert_uint_eq(core_x_named_parameters(m, "one", "*").count, 0);
    core_x_sgd_group(sgd, CORE_NO_LIST, .learning_rate = 0.5);
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND,
          "no parameter matches \"one\"", "test_network.c");
}
END_TEST

START_TEST(gradients_are_clipped)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_linear(NULL, NULL, 1, 1, false);
    core_tensor *y = core_x_sum(
        core_x_module(m, core_x_full(CORE_SIZES(4, 1), core_float(100))));
    core_tensor *grad;

    CORE_CHECK(core_backward(&y, 1, NULL, 0));
    core_x_clip_grad_norm(m, 2);
    grad = core_tensor_grad(core_module_tensor(m, "weight"));
    ck_assert_double_eq_tol(core_x_item_float(grad), 2, 1e-4);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(inference_turns_training_off)
{
    core_scope scope = core_scope_begin();
    core_module *m = block(NULL, NULL);
    core_tensor *y;

    core_x_inference(m);
    y = core_x_module(m, core_x_ones(CORE_SIZES(1, 3)));
    ck_assert(!core_module_is_training(m));
    ck_assert(!core_tensor_requires_grad(y));
    OK(core_scope_end(scope));
    ck_assert(core_grad_mode());
}
END_TEST

START_TEST(tensors_are_loaded)
{
    core_scope scope = core_scope_begin();
    const core_named_tensor named = {"x",
                                     core_x_full(CORE_SIZES(2), core_float(3))};

    CORE_CHECK(core_safetensors_save(path, &named, 1, NULL, 0));
    ck_assert_double_eq(core_x_item_float(core_x_sum(core_x_load(path, "x"))),
                        6);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(tensors_are_saved)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_full(CORE_SIZES(2), core_float(3));

    core_x_save(path, {"x", x}, {"y", core_x_neg(x)});
    ck_assert_double_eq(core_x_item_float(core_x_sum(core_x_load(path, "x"))),
                        6);
    ck_assert_double_eq(core_x_item_float(core_x_sum(core_x_load(path, "y"))),
                        -6);
    OK(core_scope_end(scope));
    scope = core_scope_begin();
    core_x_save("none/none", {"x", x});
    FAILS(core_scope_end(scope), CORE_ERROR_IO, "test_network.c:");
    scope = core_scope_begin();
    core_x_relu(NULL);
    core_x_save("none/none", {"x", NULL});
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "relu");
}
END_TEST

/* ------------------------------------------------------- parts and names -- */

START_TEST(own_parameters_and_buffers)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2));

    ck_assert_ptr_eq(core_x_nn_parameter(m, "gain", x), x);
    ck_assert(core_tensor_requires_grad(x));
    x = core_x_zeros(CORE_SIZES(3));
    ck_assert_ptr_eq(core_x_nn_buffer(m, "mean", x), x);
    ck_assert(!core_tensor_requires_grad(x));
    ck_assert_uint_eq(core_x_parameters(m).count, 1);
    ck_assert_ptr_eq(core_module_tensor(m, "mean"), x);
    ck_assert_ptr_null(core_x_nn_buffer(m, "mean", x));
    ck_assert_ptr_null(core_x_nn_parameter(m, "other", x));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "test_network.c:");
}
END_TEST

START_TEST(texts_belong_to_the_scope)
{
    core_scope scope = core_scope_begin();
    const char *text = core_x_text("%s.%d", "layers", 11);

    ck_assert_str_eq(text, "layers.11");
    ck_assert_str_ne(core_x_text("%d", 1), text);
    ck_assert_uint_eq(strlen(core_x_text("%600d", 1)), 600);
    OK(core_scope_end(scope));
    scope = core_scope_begin();
    core_x_relu(NULL);
    ck_assert_ptr_null(core_x_text("x"));
    core_scope_end(scope);
    ck_assert_ptr_null(core_x_text("x")); /* outside a scope */
}
END_TEST

START_TEST(a_text_that_cannot_be_formatted_is_reported)
{
    const wchar_t euro[] = {0x20ac, 0}; /* not in the locale "C" */
    const char *none = NULL;
    core_scope scope = core_scope_begin();

    ck_assert_ptr_null(core_x_text("name of %ls", euro));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "core_x_text: cannot format \"name of %ls\"", "test_network.c:");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_x_text_at(CORE_HERE, none));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "core_x_text: the argument format is NULL");
}
END_TEST

START_TEST(vectors_are_normalized)
{
    const float data[] = {3, 4, 0, 0, 1, 0};
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_from_data(data, CORE_F32, CORE_SIZES(3, 2), NULL);
    core_tensor *y = core_x_normalize(x, 1);
    float got[6];

    CORE_CHECK(core_tensor_read(y, got, sizeof got));
    ck_assert_float_eq_tol(got[0], .6f, 1e-6f);
    ck_assert_float_eq_tol(got[1], .8f, 1e-6f);
    ck_assert_float_eq(got[2], 0);
    ck_assert_float_eq_tol(got[4], 1, 1e-6f);
    OK(core_scope_end(scope));
}
END_TEST

/* Whether interpolation to these sizes is what the operator computed. */
static void resizes(core_tensor *got, core_tensor *want)
{
    bool same = false;

    CORE_CHECK(core_equal(got, want, &same));
    ck_assert(same);
}

START_TEST(images_are_interpolated)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_randn(CORE_SIZES(2, 3, 4, 5));
    core_tensor *row = core_x_select(x, 2, 0);
    core_tensor *block = core_x_unsqueeze(x, 2);
    core_sizes to = CORE_SIZES(7, 6), length = CORE_SIZES(8);
    core_sizes volume = CORE_SIZES(2, 3, 4);

    resizes(core_x_interpolate(x, to, "bilinear"),
            core_x_upsample_bilinear2d_vec(x, to, false, CORE_NO_FLOATS));
    resizes(core_x_interpolate(x, to, "bicubic", true),
            core_x_upsample_bicubic2d_vec(x, to, true, CORE_NO_FLOATS));
    resizes(core_x_interpolate(row, length, "linear"),
            core_x_upsample_linear1d_vec(row, length, false, CORE_NO_FLOATS));
    resizes(
        core_x_interpolate(block, volume, "trilinear"),
        core_x_upsample_trilinear3d_vec(block, volume, false, CORE_NO_FLOATS));
    resizes(core_x_interpolate(row, length, "nearest"),
            core_x_upsample_nearest1d_vec(row, length, CORE_NO_FLOATS));
    resizes(core_x_interpolate(x, to, "nearest"),
            core_x_upsample_nearest2d_vec(x, to, CORE_NO_FLOATS));
    resizes(core_x_interpolate(block, volume, "nearest"),
            core_x_upsample_nearest3d_vec(block, volume, CORE_NO_FLOATS));
    resizes(core_x_interpolate(row, length, "area"),
            core_x_adaptive_avg_pool1d(row, length));
    resizes(core_x_interpolate(x, to, "area"),
            core_x_adaptive_avg_pool2d(x, to));
    resizes(core_x_interpolate(block, volume, "area"),
            core_x_adaptive_avg_pool3d(block, volume));
    OK(core_scope_end(scope));
}
END_TEST

/* Whether interpolation is refused, and why. */
static void does_not_resize(const char *mode, bool align_corners,
                            const char *text)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_ones(CORE_SIZES(1, 1, 4));
    core_sizes to = CORE_SIZES(8);

    ck_assert_ptr_null(core_x_interpolate(x, to, mode, align_corners));
    ck_assert_ptr_null(core_x_interpolate(x, to, "nearest"));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, text,
          "test_network.c:");
}

START_TEST(wrong_interpolation_is_refused)
{
    core_scope scope = core_scope_begin();
    core_tensor *row = core_x_ones(CORE_SIZES(1, 1, 4));

    core_x_interpolate(row, CORE_SIZES(7, 6), "bilinear"); /* 3 dimensions */
    ck_assert_int_ne(core_scope_end(scope), CORE_OK);
    does_not_resize("bilinear", false, "mode is \"bilinear\" for 1 sizes");
    does_not_resize("nearest", true,
                    "align_corners is true for mode \"nearest\"");
    does_not_resize("area", true, "align_corners is true for mode \"area\"");
    does_not_resize(NULL, false,
                    "core_x_interpolate: the argument mode is NULL");
}
END_TEST

START_TEST(cells_are_called_step_by_step)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 3)), *h = NULL, *c = NULL;
    core_module *lstm = core_x_nn_lstm_cell(m, "lstm", 3, 4);
    core_module *gru = core_x_nn_gru_cell(m, "gru", 4, 5);

    for (int i = 0; i < 3; i++)
        CORE_UNPACK(core_x_forward(lstm, x, h, c), &h, &c);
    ck_assert_ptr_nonnull(core_module_tensor(m, "lstm.bias_hh"));
    ck_assert_int_eq(core_x_size(c, 1), 4);
    ck_assert_int_eq(core_x_size(core_x_module(gru, h), 1), 5);
    OK(core_scope_end(scope));
}
END_TEST

/* -------------------------------------------------------------- memory -- */

static core_status all_of_it(void)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_sequential(NULL, NULL), *lstm, *cell;
    core_optimizer *adam;
    core_tensor *x, *y, *h, *c;

    block(m, NULL);
    core_x_nn_conv1d(m, NULL, 2, 2, {1});
    core_x_nn_linear(m, core_x_text("%d.deep.", 2), 3, 3);
    core_x_nn_buffer(m, "mean", core_x_zeros(CORE_SIZES(1)));
    cell = core_x_nn_lstm_cell(NULL, NULL, 3, 2);
    lstm = core_x_nn_lstm(NULL, NULL, 3, 2);
    adam = core_x_adam(m, .learning_rate = 0.1);
    core_x_adam_group(adam, core_x_named_parameters(m, "*.weight"),
                      .learning_rate = 0.2);
    x = core_x_ones(CORE_SIZES(2, 3));
    core_x_minimize(adam, core_x_sum(core_x_module(m, x)));
    core_x_clip_grad_norm(m, 1);
    core_x_inference(m);
    CORE_UNPACK(core_x_forward(lstm, core_x_unsqueeze(x, 0)), &y, &h, &c);
    CORE_UNPACK(core_x_forward(cell, x, h ? core_x_select(h, 0, 0) : NULL,
                               c ? core_x_select(c, 0, 0) : NULL),
                &h, &c);
    core_x_save(path, {"h", core_x_normalize(h, 1)});
    return core_scope_end(scope);
}

static void starve(int64_t live)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;

    for (int64_t allowed = 0; status != CORE_OK; allowed++) {
        core__alloc_fault_set(allowed, false);
        status = all_of_it();
        core__alloc_fault_set(-1, false);
        if (status != CORE_OK && status != CORE_ERROR_OUT_OF_MEMORY)
            ck_abort_msg("%s", core_error_message());
        ck_assert(core_grad_mode());
        ck_assert_int_le(core__alloc_live(), live);
    }
}

START_TEST(nothing_is_lost_without_memory)
{
    OK(all_of_it());   /* loads the device's plugin */
    starve(INT64_MAX); /* fills what keeps memory for later */
    starve(core__alloc_live());
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        layers_are_children_by_name_or_number,
        names_may_be_paths,
        children_are_found_by_a_formatted_path,
        long_names_on_a_path_are_not_cut,
        each_layer_has_its_defaults,
        all_outputs_are_a_list,
        objects_are_released_in_reverse_order,
        objects_keep_their_order_when_a_tensor_is_kept,
        errors_of_nested_scopes_become_those_of_the_outer_one,
        a_release_does_not_use_the_scope_that_ends,
        objects_that_come_too_late_are_released_at_once,
        a_release_may_use_scopes,
        grad_mode_returns_at_the_end,
        after_an_error_nothing_is_made,
        errors_have_their_place,
        optimizers_have_the_parameters_of_a_module,
        named_parameters_are_a_group,
        gradients_are_clipped,
        inference_turns_training_off,
        tensors_are_loaded,
        tensors_are_saved,
        own_parameters_and_buffers,
        texts_belong_to_the_scope,
        a_text_that_cannot_be_formatted_is_reported,
        vectors_are_normalized,
        images_are_interpolated,
        wrong_interpolation_is_refused,
        cells_are_called_step_by_step,
        nothing_is_lost_without_memory,
    };
    const test_suite suite = {.name = "nn/network",
                              .setup = set_up,
                              .teardown = tear_down,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
