/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Layers that are created when they are first called. */

#include "support/autograd.h"
#include "support/temporary_files.h"

#include "base/memory.h"

#include <libcore/compiled.h>
#include <libcore/lazy.h>
#include <libcore/network.h>
#include <libcore/random.h>

#include <string.h>

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

static void same(core_tensor *a, core_tensor *b)
{
    OK(core_scope_status());
    ck_assert(core_x_item_int(core_x_all(core_x_eq(a, b))));
}

/* All layers one after the other; x: [2, 4, 6]. */
static core_tensor *lazy(core_module *m, core_tensor *x)
{
    core_tensor *y, *h, *c, *words = core_x_arange(6);

    x = core_x_lazy_conv1d(m, "convs.0", x, 8, {3}, {1}, {1}, .groups = 2);
    x = core_x_lazy_conv2d(m, "convs.1", core_x_unsqueeze(x, 1), 4, {3, 1},
                           .padding = {1, -1}, .no_bias = true);
    x = core_x_lazy_batch_norm(m, "norm.batch", x);
    x = core_x_lazy_group_norm(m, "norm.group", x, 2, 0.01);
    x = core_x_lazy_conv3d(m, "convs.2", core_x_unsqueeze(x, 2), 1, {1});
    x = core_x_lazy_layer_norm(m, "norm.layer", core_x_flatten(x, 1, 3));
    x = core_x_lazy_rms_norm(m, "norm.rms", x, 0.1);
    y = core_x_lazy_embedding(m, "words", words, 9, 6);
    x = core_x_matmul(x, y);
    x = core_x_lazy_linear(core_x_lazy_child(m, "block.%d", 0), "up", x, 5);
    x = core_x_lazy_linear(m, "block.0.down", x, 3, false);
    CORE_UNPACK(core_x_lazy_lstm(m, "lstm", CORE_LIST(x), 4, 2), &x, &h, &c);
    CORE_UNPACK(core_x_lazy_gru(m, "gru", CORE_LIST(x), 4), &x, &y);
    x = core_x_select(x, 1, 0);
    CORE_UNPACK(core_x_lazy_gru_cell(m, "gru_cell", CORE_LIST(x), 4), &x);
    CORE_UNPACK(core_x_lazy_lstm_cell(m, "cell", CORE_LIST(x), 4), &h, &c);
    return core_x_mul(h,
                      core_x_lazy_parameter(m, "scale.x", CORE_SIZES(1, 4), 2));
}

/* The layers that lazy creates, in its order. */
static core_module *made(void)
{
    core_module *m = core_x_nn_container(NULL, NULL);

    core_x_nn_conv1d(m, "convs.0", 4, 8, {3}, {1}, {1}, .groups = 2);
    core_x_nn_conv2d(m, "convs.1", 1, 4, {3, 1}, .padding = {1, -1},
                     .no_bias = true);
    core_x_nn_batch_norm(m, "norm.batch", 4);
    core_x_nn_group_norm(m, "norm.group", 2, 4, 0.01);
    core_x_nn_conv3d(m, "convs.2", 4, 1, {1});
    core_x_nn_layer_norm(m, "norm.layer", 6);
    core_x_nn_rms_norm(m, "norm.rms", 6, 0.1);
    core_x_nn_embedding(m, "words", 9, 6);
    core_x_nn_linear(m, "block.0.up", 6, 5);
    core_x_nn_linear(m, "block.0.down", 5, 3, false);
    core_x_nn_lstm(m, "lstm", 3, 4, 2);
    core_x_nn_gru(m, "gru", 4, 4);
    core_x_nn_gru_cell(m, "gru_cell", 4, 4);
    core_x_nn_lstm_cell(m, "cell", 4, 4);
    core_x_nn_parameter(m, "scale.x",
                        core_x_mul(core_x_randn(CORE_SIZES(1, 4)), 2));
    return m;
}

static core_tensor *input(void)
{
    return core_x_div(core_x_reshape(core_x_arange(48), CORE_SIZES(2, 4, 6)),
                      48);
}

/* Whether both have the same names, kinds, sizes and content. */
static void same_modules(core_module *a, core_module *b, uint32_t flags)
{
    core_module_tensors one, other;

    OK(core_scope_status());
    OK(core_module_list(a, NULL, flags, &one));
    OK(core_module_list(b, NULL, flags, &other));
    ck_assert_uint_eq(one.count, other.count);
    for (size_t i = 0; i < one.count; i++) {
        core_tensor *found = core_module_tensor(b, one.names[i]);

        ck_assert_msg(found != NULL, "%s", one.names[i]);
        ck_assert_msg(core_tensor_dtype(found) ==
                          core_tensor_dtype(one.tensors[i]),
                      "%s", one.names[i]);
        same(found, one.tensors[i]);
    }
    core_module_tensors_free(&one);
    core_module_tensors_free(&other);
}

START_TEST(the_first_call_creates_what_constructors_create)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL), *n;
    core_tensor *y;

    core_seed(5);
    y = lazy(m, input());
    core_seed(5);
    n = made();
    same(lazy(n, input()), y);
    same_modules(m, n, CORE_MODULE_PARAMETERS);
    same_modules(m, n, CORE_MODULE_BUFFERS);
    same(lazy(m, input()), lazy(n, input()));
    ck_assert_uint_eq(core_x_parameters(m).count, core_x_parameters(n).count);
    ck_assert_int_eq(core_x_size(y, 0), 2);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_file_becomes_layers)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL), *f, *child;
    core_tensor *y;

    lazy(m, input());
    CORE_CHECK(core_module_save(m, path));
    core_module_set_training(m, false);
    y = lazy(m, input());
    f = core_x_nn_from_file(path);
    child = core_x_nn_child(f, "convs.0");
    same(lazy(f, input()), y);
    ck_assert_ptr_eq(core_x_nn_child(f, "convs.0"), child);
    ck_assert(!core_module_is_training(child));
    same_modules(m, f, CORE_MODULE_PARAMETERS);
    same_modules(m, f, CORE_MODULE_BUFFERS);
    same(lazy(f, input()), y);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(layers_of_a_file_are_trained)
{
    core_scope scope = core_scope_begin();
    core_module *m;
    core_optimizer *sgd;
    core_tensor *w, *before;

    core_x_save(path, {"fc.weight", core_x_ones(CORE_SIZES(1, 4))});
    m = core_x_nn_from_file(path);
    core_x_lazy_linear(m, "fc", core_x_ones(CORE_SIZES(2, 4)), 1, false);
    core_module_set_training(m, true);
    sgd = core_x_sgd(m, .learning_rate = 0.5);
    w = core_x_nn_tensor(m, "fc.weight");
    before = core_x_clone(core_x_detach(w));
    core_x_minimize(sgd, core_x_sum(core_x_lazy_linear(
                             m, "fc", core_x_ones(CORE_SIZES(2, 4)), 1)));
    same(core_x_sub(before, w), core_x_ones_like(w));
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(batch_norm_needs_no_counter_in_a_file)
{
    core_scope scope = core_scope_begin();
    core_tensor *one = core_x_ones(CORE_SIZES(3));
    core_module *m;

    core_x_save(path, {"bn.weight", one}, {"bn.bias", one},
                {"bn.running_mean", one}, {"bn.running_var", one});
    m = core_x_nn_from_file(path);
    core_x_lazy_batch_norm(m, "bn", core_x_ones(CORE_SIZES(2, 3)));
    OK(core_scope_status());
    ck_assert_int_eq(
        core_x_item_int(core_x_nn_tensor(m, "bn.num_batches_tracked")), 0);
    ck_assert_uint_eq(core_x_parameters(m).count, 2);
    OK(core_scope_end(scope));
}
END_TEST

/* In a scope with a module of a file, that is not in training, and x [2, 4],
 * the call fails, and does nothing after an error. */
#define REFUSED(call, code, ...)                                \
    do {                                                        \
        core_scope refused_ = core_scope_begin();               \
        core_tensor *x = core_x_ones(CORE_SIZES(2, 4));         \
        core_module *m;                                         \
                                                                \
        core_x_save(path, {"fc.weight", x},                     \
                    {"fc.bias", core_x_ones(CORE_SIZES(2))},    \
                    {"rnn.weight_ih_l0", x}, {"h.0.scale", x}); \
        m = core_x_nn_from_file(path);                          \
        OK(core_scope_status());                                \
        ck_assert_ptr_null(call);                               \
        ck_assert_ptr_null(call);                               \
        ck_assert_ptr_null(core_x_nn_tensor(m, "fc.weight"));   \
        FAILS(core_scope_end(refused_), code,                   \
              "test_network_lazy.c:", __VA_ARGS__);             \
    } while (0)

START_TEST(what_is_missing_is_not_created_in_inference)
{
    REFUSED(core_x_lazy_linear(m, "none", x, 2), CORE_ERROR_NOT_FOUND,
            "core_x_lazy: a Container has no layer or parameter, and is not in "
            "training to create one at \"none\"");
    REFUSED(core_x_lazy_batch_norm(m, "none", x), CORE_ERROR_NOT_FOUND,
            "\"none\"");
    REFUSED(core_x_lazy_linear(m, "", x, 2), CORE_ERROR_INVALID_ARGUMENT,
            "the path \"\" has no last name");
    REFUSED(core_x_lazy_linear(m, "h.", x, 2), CORE_ERROR_INVALID_ARGUMENT,
            "the path \"h.\" has no last name");
    REFUSED(core_x_lazy_linear(m, "none", NULL, 2), CORE_ERROR_INVALID_ARGUMENT,
            "argument");
    REFUSED(core_x_lazy_child(m, "h.%d", 1), CORE_ERROR_NOT_FOUND, "\"h.1\"");
    REFUSED(core_x_lazy_parameter(m, "none", CORE_SIZES(2), 0),
            CORE_ERROR_NOT_FOUND, "\"none\"");
    REFUSED(core_x_lazy_lstm(m, "none", CORE_LIST(x), 2).items,
            CORE_ERROR_NOT_FOUND, "\"none\"");
}
END_TEST

START_TEST(tensors_of_a_file_must_fit)
{
    REFUSED(core_x_lazy_linear(m, "fc", x, 3), CORE_ERROR_SHAPE,
            "the layer \"fc\": weight has sizes [2, 4]; it must have [3, 4]");
    REFUSED(core_x_lazy_linear(m, "fc", core_x_ones(CORE_SIZES(2, 5)), 2),
            CORE_ERROR_SHAPE, "weight has sizes [2, 4]; it must have [2, 5]");
    REFUSED(core_x_lazy_linear(m, "fc", x, 2, false), CORE_ERROR_NOT_FOUND,
            "a Linear has no use for \"bias\"");
    REFUSED(core_x_lazy_linear(m, "h.0", x, 2), CORE_ERROR_NOT_FOUND,
            "the layer \"h.0\": the weights have no tensor \"weight\"");
    REFUSED(core_x_lazy_lstm(m, "rnn", CORE_LIST(x), 2).items, CORE_ERROR_SHAPE,
            "weight_ih_l0 has sizes [2, 4]; it must have [8, 4]");
    REFUSED(core_x_lazy_batch_norm(m, "fc", x), CORE_ERROR_SHAPE,
            "weight has sizes [2, 4]; it must have [4]");
    REFUSED(core_x_lazy_parameter(m, "h.0.scale", CORE_SIZES(2), 0),
            CORE_ERROR_SHAPE, "h.0.scale has sizes [2, 4]; it must have [2]");
    REFUSED(core_x_lazy_parameter(m, "h.0", CORE_SIZES(2), 0),
            CORE_ERROR_INVALID_ARGUMENT,
            "core_x_lazy_parameter: \"h.0\" is a module");
}
END_TEST

START_TEST(arguments_are_checked)
{
    REFUSED(core_x_lazy_linear(NULL, "fc", x, 2), CORE_ERROR_INVALID_ARGUMENT,
            "core_x_lazy: the argument module is NULL");
    REFUSED(core_x_lazy_linear(m, NULL, x, 2), CORE_ERROR_INVALID_ARGUMENT,
            "path is NULL");
    REFUSED(core_x_lazy_parameter(m, NULL, CORE_SIZES(2), 0),
            CORE_ERROR_INVALID_ARGUMENT, "path is NULL");
    REFUSED(core_x_lazy_linear(m, "fc", NULL, 2), CORE_ERROR_INVALID_ARGUMENT);
    REFUSED(core_x_lazy_batch_norm(m, "fc", core_x_ones(CORE_SIZES(2))),
            CORE_ERROR_SHAPE, "the layer \"fc\": the input has 1 dimensions");
    REFUSED((core_module_set_training(m, true),
             core_x_lazy_batch_norm(m, "new", core_x_ones(CORE_SIZES(2)))),
            CORE_ERROR_SHAPE,
            "core_x_lazy: the layer \"new\": the input has 1 dimensions; it "
            "must have at least 2");
    REFUSED((core_module_set_training(m, true),
             core_x_lazy_conv2d(m, "new", core_x_ones(CORE_SIZES(2)), 4, {3})),
            CORE_ERROR_SHAPE, "the layer \"new\": the input has 1 dimensions",
            "at least 3");
    REFUSED((core_module_set_training(m, true),
             core_x_lazy_linear(m, "new", x, -1)),
            CORE_ERROR_INVALID_ARGUMENT,
            "Linear: size 0 of weight is -1; it must be positive");
    REFUSED((core_module_set_training(m, true),
             core_x_lazy_linear(m, "fc.bias", x, 2)),
            CORE_ERROR_INVALID_ARGUMENT, "has a member \"bias\" already");
}
END_TEST

/* What is there is not taken for another layer, and what was frozen stays so. */
START_TEST(layers_and_parameters_keep_what_they_are)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4)), *w;

    core_x_lazy_linear(m, "fc", x, 2);
    w = core_x_lazy_parameter(m, "w", CORE_SIZES(4), 1);
    OK(core_tensor_set_requires_grad(w, false));
    ck_assert_ptr_eq(core_x_lazy_parameter(m, "w", CORE_SIZES(4), 1), w);
    ck_assert(!core_tensor_requires_grad(w));
    ck_assert_ptr_null(core_x_lazy_layer_norm(m, "fc", x));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "\"fc\" is a Linear, not a LayerNorm");
}
END_TEST

static core_status recorded(void *context, core_tensor *const *inputs,
                            size_t ninputs, core_tensor **outputs,
                            size_t *noutputs)
{
    core_scope scope = core_scope_begin();
    core_module *m = context;
    core_tensor *x = core_x_lazy_linear(m, "fc", inputs[0], 2);

    (void)ninputs;
    x = core_x_mul(x, core_x_lazy_parameter(m, "w", CORE_SIZES(2), 1));
    *noutputs = 1;
    return core_scope_end_with(scope, x, &outputs[0]);
}

/* It would have random weights in the program, and others in the module. */
START_TEST(a_recorded_function_creates_no_layer)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4)), *y = NULL;
    core_compiled *compiled = NULL;
    core_program *program = NULL;

    FAILS(core_program_trace(recorded, m, &x, 1, 1, &program),
          CORE_ERROR_REFUSED,
          "the first call of \"fc\" creates it, which a function that is being "
          "recorded cannot do; call it once before (at ");
    OK(core_compile(
        recorded, m,
        CORE_OPTIONS(core_compile_options, .flags = CORE_COMPILE_FULLGRAPH),
        &compiled));
    FAILS(core_compiled_call(compiled, &x, 1, &y, 1), CORE_ERROR_REFUSED,
          "the first call of \"fc\"");
    ck_assert_uint_eq(core_x_parameters(m).count, 0);
    core_x_lazy_linear(m, "fc", x, 2);
    FAILS(core_compiled_call(compiled, &x, 1, &y, 1), CORE_ERROR_REFUSED,
          "the first call of \"w\"");
    core_x_lazy_parameter(m, "w", CORE_SIZES(2), 1);
    OK(core_compiled_call(compiled, &x, 1, &y, 1));
    same(y, core_x_mul(core_x_lazy_linear(m, "fc", x, 2),
                       core_x_nn_tensor(m, "w")));
    core_tensor_release(y);
    core_compiled_release(compiled);
    OK(core_scope_end(scope));
}
END_TEST

/* The first call of a compiled function creates its layers, and breaks; later ones,
 * of the same sizes and of others, do not. */
START_TEST(a_compiled_function_is_recorded_once_it_has_layers)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *inputs[3], *y = NULL;
    core_compiled *compiled = NULL;
    char *report = NULL;

    OK(core_compile(recorded, m, NULL, &compiled));
    for (int64_t i = 0; i < 3; i++)
        inputs[i] = core_x_ones(CORE_SIZES(2 + i, 4));
    for (int i = 0; i < 9; i++) {
        core_tensor *x = inputs[i % 3];

        OK(core_compiled_call(compiled, &x, 1, &y, 1));
        same(y, core_x_mul(core_x_lazy_linear(m, "fc", x, 2),
                           core_x_nn_tensor(m, "w")));
        core_tensor_release(y);
    }
    ck_assert_uint_eq(core_x_parameters(m).count, 3);
    OK(core_compiled_explain(compiled, &report));
    ck_assert_ptr_nonnull(strstr(report, "\"compiled_calls\": 8"));
    ck_assert_ptr_nonnull(strstr(report, "\"break_calls\": 1"));
    ck_assert_ptr_null(strstr(report, "hidden input changed"));
    core_text_free(report);
    core_compiled_release(compiled);
    OK(core_scope_end(scope));
}
END_TEST

static int created;

static core_status creates(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_scope scope = core_scope_begin();
    core_module *m = context;

    (void)ninputs;
    *noutputs = 1;
    return core_scope_end_with(
        scope,
        core_x_lazy_linear(m, core_x_text("fc%d", created++), inputs[0], 2),
        &outputs[0]);
}

/* It is recorded in vain a few times, and called once for each call after that. */
START_TEST(a_function_that_always_creates_layers_stays_eager)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4)), *y = NULL;
    core_compiled *compiled = NULL;
    char *report = NULL;

    created = 0;
    OK(core_compile(creates, m, NULL, &compiled));
    for (int i = 0; i < 40; i++) {
        OK(core_compiled_call(compiled, &x, 1, &y, 1));
        core_tensor_release(y);
    }
    ck_assert_int_ge(created, 40);
    ck_assert_int_le(created, 50);
    OK(core_compiled_explain(compiled, &report));
    ck_assert_ptr_nonnull(strstr(report, "\"compiled_calls\": 0"));
    ck_assert_ptr_nonnull(strstr(report, "\"break_calls\": 40"));
    core_text_free(report);
    core_compiled_release(compiled);
    OK(core_scope_end(scope));
}
END_TEST

/* It runs its operators once, so that the layer has the weights that it used. */
START_TEST(a_lazy_region_creates_layers)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_module *n = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4)), *y = NULL, *z = NULL;
    core_program *program = NULL;

    CORE_CHECK(core_lazy_begin(NULL));
    OK(recorded(m, &x, 1, &y, &(size_t){0}));
    FAILS(core_program_trace(recorded, n, &x, 1, 1, &program),
          CORE_ERROR_REFUSED, "the first call of \"fc\"");
    CORE_CHECK(core_lazy_end());
    ck_assert_uint_eq(core_x_parameters(m).count, 3);
    ck_assert_uint_eq(core_x_parameters(n).count, 0);
    OK(recorded(m, &x, 1, &z, &(size_t){0}));
    same(y, z);
    core_tensor_release(y);
    core_tensor_release(z);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(parameters_follow_a_tensor_to_its_device)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_device *sim = NULL;
    core_tensor *x, *w;

    OK(core_device_find("sim", &sim));
    x = core_x_ones(CORE_SIZES(2), CORE_F32, sim);
    w = core_x_lazy_parameter(m, "w", CORE_SIZES(2), 1, x);
    OK(core_scope_status());
    ck_assert_ptr_eq(core_tensor_device(w), sim);
    ck_assert_ptr_eq(core_x_lazy_parameter(m, "w", CORE_SIZES(2), 1, x), w);
    w = core_x_lazy_parameter(m, "v", CORE_SIZES(2), 1);
    ck_assert_ptr_eq(core_tensor_device(w),
                     core_tensor_device(core_x_ones(CORE_SIZES(1))));
    OK(core_scope_end(scope));
}
END_TEST

/* A layer that is refused for one of its tensors leaves the others as they were:
 * gradients are computed for parameters only. */
START_TEST(a_refused_layer_changes_no_tensor)
{
    core_scope scope = core_scope_begin();
    const core_nn_attention_options heads = {
        .struct_size = sizeof heads, .size = 4, .heads = 2, .bias = true};
    core_nn_options o = {.struct_size = sizeof o};
    core_module *m, *n = NULL;
    core_tensor *w = core_x_ones(CORE_SIZES(4, 4));
    core_module_tensors list;

    core_x_save(path, {"fc.weight", w}, {"a.q_proj.weight", w},
                {"a.q_proj.bias", core_x_ones(CORE_SIZES(4))},
                {"a.k_proj.weight", core_x_ones(CORE_SIZES(4, 4))},
                {"a.k_proj.bias", core_x_ones(CORE_SIZES(4), CORE_I64)},
                {"rnn.weight_ih", core_x_ones(CORE_SIZES(16, 4))},
                {"rnn.weight_hh", core_x_ones(CORE_SIZES(16, 5))});
    m = core_x_nn_from_file(path);
    o.weights = core_x_nn_child(m, "fc");
    FAILS(core_nn_linear(4, 4, true, &o, &n), CORE_ERROR_NOT_FOUND, "bias");
    o.weights = core_x_nn_child(m, "rnn");
    FAILS(core_nn_recurrent(CORE_OPTIONS(core_nn_recurrent_options,
                                         .input_size = 4, .hidden_size = 4,
                                         .cell = true),
                            &o, &n),
          CORE_ERROR_SHAPE, "weight_hh");
    o.weights = core_x_nn_child(m, "a");
    FAILS(core_nn_attention(&heads, &o, &n), CORE_ERROR_DTYPE,
          "bias is i64; a parameter must be of a floating dtype");
    OK(core_module_list(m, NULL, CORE_MODULE_STATE, &list));
    ck_assert_uint_eq(list.count, 7);
    for (size_t i = 0; i < list.count; i++)
        ck_assert_msg(!core_tensor_requires_grad(list.tensors[i]), "%s",
                      list.names[i]);
    core_module_tensors_free(&list);
    core_x_lazy_linear(m, "fc", w, 4, false);
    ck_assert(core_tensor_requires_grad(core_x_nn_tensor(m, "fc.weight")));
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_layer_that_is_null_is_refused)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL), *none = NULL;

    core_x_nn_container(m, "fc");
    ck_assert_ptr_null(core_x_lazy_add_at("here:1", m, "fc", CORE_OK, &none));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "the argument layer is NULL");
}
END_TEST

START_TEST(layers_take_weights)
{
    core_scope scope = core_scope_begin();
    const core_nn_attention_options heads = {
        .struct_size = sizeof heads, .size = 4, .heads = 2, .bias = true};
    core_nn_options o = {.struct_size = sizeof o};
    core_module *m =
        core_x_nn_attention(NULL, NULL, .size = 4, .heads = 2, .bias = true);
    core_module *n = NULL;
    core_tensor *x = core_x_ones(CORE_SIZES(2, 3, 4));

    o.weights = m;
    CORE_CHECK(core_nn_attention(&heads, &o, &n));
    same(core_x_module(n, x), core_x_module(m, x));
    core_module_release(n);
    FAILS(core_nn_linear(4, 4, true, &o, &n), CORE_ERROR_NOT_FOUND,
          "the weights have no tensor \"weight\"");
    o.weights = core_x_nn_child(m, "q_proj");
    FAILS(core_nn_attention(&heads, &o, &n), CORE_ERROR_NOT_FOUND,
          "the weights have no child \"q_proj\", which an Attention needs");
    ck_assert_ptr_null(n);
    /* Programs of earlier versions have options without weights. */
    o.struct_size = offsetof(core_nn_options, weights);
    OK(core_nn_linear(2, 2, true, &o, &n));
    core_module_release(n);
    o.struct_size--;
    FAILS(core_nn_linear(2, 2, true, &o, &n), CORE_ERROR_INVALID_ARGUMENT,
          "core_nn_options");
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_padding_of_weights_is_kept)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *index = core_x_zeros(CORE_SIZES(1), CORE_I64), *y;

    core_x_save(path, {"e.weight", core_x_ones(CORE_SIZES(3, 2))});
    y = core_x_lazy_embedding(m, "e", index, 3, 2, 0);
    same(y, core_x_zeros(CORE_SIZES(1, 2)));
    y = core_x_lazy_embedding(core_x_nn_from_file(path), "e", index, 3, 2, 0);
    same(y, core_x_ones(CORE_SIZES(1, 2)));
    OK(core_scope_end(scope));
}
END_TEST

static core_status all_of_it(void)
{
    core_scope scope = core_scope_begin();

    core_x_no_grad();
    lazy(core_x_nn_from_file(path), input());
    lazy(core_x_nn_container(NULL, NULL), input());
    return core_scope_end(scope);
}

START_TEST(nothing_is_lost_without_memory)
{
    core_scope scope = core_scope_begin();

    CORE_CHECK(core_module_save(made(), path));
    OK(core_scope_end(scope));
    OK(all_of_it()); /* loads the device's plugin */
    for (int pass = 0; pass < 2; pass++) {
        core_status status = CORE_ERROR_OUT_OF_MEMORY;
        int64_t live = core__alloc_live();

        for (int64_t allowed = 0; status != CORE_OK; allowed++) {
            core__alloc_fault_set(allowed, false);
            status = all_of_it();
            core__alloc_fault_set(-1, false);
            if (status != CORE_OK && status != CORE_ERROR_OUT_OF_MEMORY)
                ck_abort_msg("%s", core_error_message());
            if (pass > 0) /* the first one fills what keeps memory */
                ck_assert_int_le(core__alloc_live(), live);
        }
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        the_first_call_creates_what_constructors_create,
        a_file_becomes_layers,
        layers_of_a_file_are_trained,
        batch_norm_needs_no_counter_in_a_file,
        what_is_missing_is_not_created_in_inference,
        tensors_of_a_file_must_fit,
        arguments_are_checked,
        layers_and_parameters_keep_what_they_are,
        a_recorded_function_creates_no_layer,
        a_compiled_function_is_recorded_once_it_has_layers,
        a_function_that_always_creates_layers_stays_eager,
        a_lazy_region_creates_layers,
        parameters_follow_a_tensor_to_its_device,
        a_refused_layer_changes_no_tensor,
        a_layer_that_is_null_is_refused,
        layers_take_weights,
        a_padding_of_weights_is_kept,
        nothing_is_lost_without_memory,
    };
    const test_suite suite = {.name = "nn/network_lazy",
                              .setup = set_up,
                              .teardown = tear_down,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
