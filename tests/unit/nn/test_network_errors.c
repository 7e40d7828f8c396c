/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Mistakes in networks: the messages name what was given and what is wanted. */

#include "support/autograd.h"
#include "support/temporary_files.h"

#include <libcore/network.h>

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

/* ------------------------------------------------------------ recurrent -- */

/* Calls a module with 8 features, hidden size 16 and 2 layers. */
static void refuses(core_nn_recurrent_options *o, core_sizes x, core_sizes h,
                    core_sizes c, const char *text)
{
    core_scope scope = core_scope_begin();
    core_module *m;
    core_tensor *hidden = NULL, *cell = NULL;

    o->struct_size = sizeof *o;
    o->input_size = 8;
    o->hidden_size = 16;
    o->layers = o->cell ? 1 : 2;
    m = core_x_nn_recurrent_at(CORE_HERE, NULL, NULL, o);
    if (h.count)
        hidden = core_x_ones(h);
    if (c.count)
        cell = core_x_ones(c);
    OK(core_scope_status());
    ck_assert_uint_eq(core_x_forward(m, core_x_ones(x), hidden, cell).count, 0);
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE, text, "test_network_errors");
}

START_TEST(states_of_layers_are_named)
{
    core_nn_recurrent_options o = {.kind = CORE_NN_LSTM};
    core_sizes x = CORE_SIZES(5, 2, 8), h = CORE_SIZES(2, 2, 16);
    core_sizes small = CORE_SIZES(2, 2, 15), flat = CORE_SIZES(2, 16);

    refuses(&o, x, small, h,
            "LSTM: the hidden state has sizes [2, 2, 15]; it must have "
            "[2, 2, 16]");
    refuses(&o, x, h, small,
            "LSTM: the cell state has sizes [2, 2, 15]; it must have "
            "[2, 2, 16]");
    refuses(&o, x, flat, flat,
            "the hidden state has sizes [2, 16]; it must have [2, 2, 16]");
    refuses(&o, CORE_SIZES(5, 8), h, h,
            "the hidden state has sizes [2, 2, 16]; it must have [2, 16]");
    refuses(&o, CORE_SIZES(5, 2, 7), h, h,
            "LSTM: the input has sizes [5, 2, 7]; the last size must be 8, the "
            "input_size of this LSTM");
    o.projection_size = 4;
    refuses(&o, x, h, h,
            "the hidden state has sizes [2, 2, 16]; it must have [2, 2, 4]");
    o.projection_size = 0;
    o.kind = CORE_NN_GRU;
    o.bidirectional = o.batch_first = true;
    refuses(&o, x, h, CORE_NO_SIZES,
            "GRU: the hidden state has sizes [2, 2, 16]; it must have "
            "[4, 5, 16]");
}
END_TEST

START_TEST(states_of_cells_are_named)
{
    core_nn_recurrent_options o = {.kind = CORE_NN_LSTM, .cell = true};
    core_sizes x = CORE_SIZES(2, 8), h = CORE_SIZES(2, 16);
    core_sizes small = CORE_SIZES(2, 15);

    refuses(&o, x, small, h,
            "LSTMCell: the hidden state has sizes [2, 15]; it must have "
            "[2, 16]");
    refuses(&o, x, h, small,
            "the cell state has sizes [2, 15]; it must have [2, 16]");
    refuses(&o, CORE_SIZES(8), h, h,
            "the hidden state has sizes [2, 16]; it must have [16]");
    o.kind = CORE_NN_GRU;
    refuses(&o, CORE_SIZES(2, 7), CORE_NO_SIZES, CORE_NO_SIZES,
            "GRUCell: the input has sizes [2, 7]; the last size must be 8");
}
END_TEST

START_TEST(states_of_packed_sequences_are_named)
{
    core_scope scope = core_scope_begin();
    core_module *gru = core_x_nn_gru(NULL, NULL, 8, 16, 2);
    core_tensor *x = core_x_ones(CORE_SIZES(3, 8));
    core_tensor *batches = core_x_sub_scalar(core_x_arange(2, CORE_I64), 2);

    batches = core_x_neg(batches); /* 2, 1 */
    ck_assert_uint_eq(
        core_x_forward(gru, x, batches, core_x_ones(CORE_SIZES(2, 2, 16)))
            .count,
        2);
    OK(core_scope_status());
    core_x_forward(gru, x, batches, core_x_ones(CORE_SIZES(2, 16)));
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE,
          "the hidden state has sizes [2, 16]; it must have [2, 2, 16]");
}
END_TEST

/* ------------------------------------------------------------ functions -- */

static core_tensor *nothing(core_module *m, core_tensor *x)
{
    (void)m;
    (void)x;
    return NULL;
}

START_TEST(a_function_that_returns_null_is_named)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_module(NULL, NULL, nothing);

    ck_assert_ptr_null(core_x_module(m, core_x_ones(CORE_SIZES(2))));
    ck_assert_ptr_null(strstr(core_error_message(), "layers.c"));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "nothing: the function of this module returned NULL (at ",
          "test_network_errors.c:");
}
END_TEST

/* The error names the place of each call without a scope. */
#define ALONE(call)                                            \
    do {                                                       \
        (void)core_error_set(CORE_ERROR_IO, "earlier");        \
        (void)(call);                                          \
        FAILS(core_error_code(), CORE_ERROR_INVALID_ARGUMENT,  \
              "no open scope (at ", "test_network_errors.c:"); \
    } while (0)

START_TEST(calls_without_a_scope_are_errors)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4)), *y = NULL;

    core_x_lazy_linear(m, "fc", x, 2);
    m = core_module_retain(m);
    x = core_tensor_retain(x);
    OK(core_scope_end(scope));
    ALONE(core_x_child(m, "fc", x));
    ALONE(core_x_children(m, x, "fc", "fc"));
    ALONE(core_x_nn_child(m, "fc"));
    ALONE(core_x_nn_tensor_at(CORE_HERE, m, "fc.weight"));
    ALONE(core_x_forward(m, x).count);
    ALONE(core_x_module(m, x));
    ALONE(core_x_parameters(m).count);
    ALONE(core_x_lazy_linear(m, "fc", x, 2));
    ALONE(core_x_lazy_parameter(m, "fc.weight", CORE_SIZES(2, 4), 1));
    ALONE(core_x_apply_linear(m, "fc", x));
    ALONE(core_x_nn_linear(m, "new", 2, 2));
    ALONE(core_x_nn_buffer(m, "new", x));
    ALONE(core_x_interpolate(x, CORE_SIZES(2), "nearest"));
    ALONE(core_x_load(path, "x"));
    ALONE(core_x_nn_from_file(path));
    ALONE(core_x_from_data("", CORE_U8, CORE_SIZES(1), NULL));
    ALONE(core_x_item_int(x));
    ALONE(core_x_sgd(m, .learning_rate = 1));
    ALONE(core_x_print(x));
    ALONE((core_x_printf("no\n"), 0));
    ALONE((core_x_save(path, {"x", x}), 0));
    ALONE((core_scope_output(x, &y), 0));
    ck_assert_ptr_null(core_module_tensor(m, "new"));
    core_module_release(m);
    core_tensor_release(x);
}
END_TEST

/* -------------------------------------------------------------- tensors -- */

START_TEST(tensors_are_found_by_a_formatted_path)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);

    core_x_nn_linear(m, "layers.", 1, 1);
    core_x_nn_buffer(m, "basis", core_x_ones(CORE_SIZES(2)));
    ck_assert_ptr_eq(core_x_nn_tensor(m, "layers.%d.weight", 0),
                     core_module_tensor(m, "layers.0.weight"));
    ck_assert_ptr_eq(core_x_nn_tensor(m, "basis"),
                     core_module_tensor(m, "basis"));
    OK(core_scope_status());
    ck_assert_ptr_null(core_x_nn_tensor(m, "layers.%d", 0)); /* a module */
    ck_assert_ptr_null(core_x_nn_tensor(m, "basis"));
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND,
          "core_x_nn_tensor: a Container has no tensor \"layers.0\" (at ",
          "test_network_errors.c:");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_x_nn_tensor(NULL, "basis"));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "module");
}
END_TEST

START_TEST(tensors_are_added_at_a_path)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2));

    ck_assert_ptr_eq(core_x_nn_buffer(m, "attn.rotary.freq", x), x);
    core_x_nn_linear(m, "attn.q", 1, 1);
    core_x_nn_parameter(m, "attn.scale", core_x_ones(CORE_SIZES(1)));
    ck_assert_ptr_eq(core_module_tensor(m, "attn.rotary.freq"), x);
    ck_assert_uint_eq(core_x_parameters(m).count, 3);
    OK(core_scope_status());
    ck_assert_ptr_null(core_x_nn_buffer(m, "attn.", x));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "the name \"\" is empty or has a dot", "test_network_errors.c:");
    scope = core_scope_begin();
    m = core_x_nn_container(NULL, NULL);
    core_x_nn_buffer(m, "a", core_x_ones(CORE_SIZES(1)));
    ck_assert_ptr_null(core_x_nn_buffer(m, "a.b", x));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "has a member \"a\" already");
}
END_TEST

/* ---------------------------------------------------------------- files -- */

START_TEST(modules_are_loaded)
{
    core_scope scope = core_scope_begin();
    core_module *from = core_x_nn_linear(NULL, NULL, 3, 2);
    core_module *to = core_x_nn_linear(NULL, NULL, 3, 2);
    core_module *other = core_x_nn_linear(NULL, NULL, 3, 2, false);
    bool equal = false;

    CORE_CHECK(core_module_save(from, path));
    ck_assert_ptr_eq(core_x_nn_load(to, path), to);
    OK(core_equal(core_module_tensor(to, "weight"),
                  core_module_tensor(from, "weight"), &equal));
    ck_assert(equal);
    ck_assert_ptr_null(core_x_nn_load(other, path));
    ck_assert_ptr_null(core_x_nn_load(to, path));
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND,
          "0 names are missing and 1 unexpected: unexpected bias (in /",
          "test_network_errors.c:");
}
END_TEST

START_TEST(names_that_are_not_shown_are_counted)
{
    core_scope scope = core_scope_begin();
    core_module *from = core_x_nn_container(NULL, NULL);
    core_module *to = core_x_nn_container(NULL, NULL);

    core_x_nn_buffer(from, "x", core_x_ones(CORE_SIZES(1)));
    for (int i = 0; i < 20; i++)
        core_x_nn_buffer(to, core_x_text("a_long_name_%02d", i),
                         core_x_ones(CORE_SIZES(1)));
    CORE_CHECK(core_module_save(from, path));
    core_x_nn_load(to, path);
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND,
          "20 names are missing and 1 unexpected: missing a_long_name_00, ",
          "missing a_long_name_09 and 11 more (in /");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        states_of_layers_are_named,
        states_of_cells_are_named,
        states_of_packed_sequences_are_named,
        a_function_that_returns_null_is_named,
        calls_without_a_scope_are_errors,
        tensors_are_found_by_a_formatted_path,
        tensors_are_added_at_a_path,
        modules_are_loaded,
        names_that_are_not_shown_are_counted,
    };
    const test_suite suite = {.name = "nn/network_errors",
                              .setup = set_up,
                              .teardown = tear_down,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
