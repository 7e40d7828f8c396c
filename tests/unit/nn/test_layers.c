/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Layers compute what their operators do with their parameters; initialization
 * has the promised distribution. */

#include "support/autograd.h"

#include <libcore/expressions.h>
#include <libcore/nn.h>
#include <libcore/random.h>

#include <math.h>
#include <string.h>

static const core_nn_options f64 = {.struct_size = sizeof f64,
                                    .dtype = CORE_F64};

static core_tensor *random_of(int64_t a, int64_t b, int64_t c)
{
    return CALL(randn, (const int64_t[]){a, b, c}, 3, NULL, CORE_F64, NULL);
}

/* The output of a module, and that it has the values of `want`. */
static void computes(core_module *module, core_tensor *x, core_tensor *want)
{
    core_tensor *y;
    bool same = false;

    OK(core_module_call(module, x, &y));
    keep(y);
    OK(core_allclose(y, want, 1e-9, 1e-9, false, &same));
    ck_assert_msg(same, "the output of the module is not its operator's");
    core_module_release(module);
}

static core_tensor *of(core_module *module, const char *name)
{
    core_tensor *tensor = core_module_tensor(module, name);

    ck_assert_msg(tensor != NULL, "there is no %s", name);
    return tensor;
}

/* ---------------------------------------------------------------- layers -- */

START_TEST(linear_and_embedding)
{
    core_tensor *x = random_of(2, 3, 4);
    core_tensor *at = CALL(arange, core_int(3), CORE_I64, NULL);
    core_module *m;

    OK(core_nn_linear(4, 5, true, &f64, &m));
    computes(m, x, CALL(linear, x, of(m, "weight"), of(m, "bias")));
    OK(core_nn_linear(4, 5, false, &f64, &m));
    ck_assert_ptr_null(core_module_tensor(m, "bias"));
    computes(m, x, CALL(linear, x, of(m, "weight"), NULL));
    OK(core_nn_embedding(5, 2, 1, &f64, &m));
    HOLDS(CALL(select, of(m, "weight"), 0, 1), 2, 0, 0);
    computes(m, at, CALL(embedding, of(m, "weight"), at, 1, false, false));
    FAILS(core_nn_linear(4, 0, true, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "size 0 of weight is 0");
    ck_assert_ptr_null(m);
    FAILS(core_nn_embedding(5, 2, 5, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "padding is 5; it must be -1, or an index below count, 5");
}
END_TEST

START_TEST(convolutions)
{
    core_nn_conv_options o = {.struct_size = sizeof o,
                              .dims = 1,
                              .in_channels = 4,
                              .out_channels = 6,
                              .kernel_size = {3},
                              .padding = {1},
                              .groups = 2};
    core_tensor *x = random_of(2, 4, 7), *one = CALL(select, x, 0, 0);
    const int64_t n = 1, two = 2;
    core_module *m;

    OK(core_nn_conv(&o, &f64, &m));
    core_module_retain(m);
    computes(m, x,
             CALL(conv1d, x, of(m, "weight"), of(m, "bias"), &n, 1, &n, 1, &n,
                  1, 2));
    computes(m, one,
             CALL(conv1d, one, of(m, "weight"), of(m, "bias"), &n, 1, &n, 1, &n,
                  1, 2));
    o.transposed = true;
    o.stride[0] = 2;
    o.output_padding[0] = 1;
    OK(core_nn_conv(&o, &f64, &m));
    computes(m, x,
             CALL(conv_transpose1d, x, of(m, "weight"), of(m, "bias"), &two, 1,
                  &n, 1, &n, 1, 2, &n, 1));
    o.transposed = false;
    o.dims = 2;
    o.kernel_size[1] = o.stride[0] = 1;
    o.padding[1] = -1;
    x = CALL(unsqueeze, x, -1);
    OK(core_nn_conv(&o, &f64, &m));
    computes(m, x,
             CALL(conv2d, x, of(m, "weight"), of(m, "bias"), &n, 1,
                  ((const int64_t[]){1, 0}), 2, &n, 1, 2));
    o.stride[1] = -1;
    FAILS(core_nn_conv(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "stride[1] is -1");
    o.stride[1] = 1;
    o.groups = 3;
    FAILS(core_nn_conv(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "groups must divide both");
    o.dims = 4;
    FAILS(core_nn_conv(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT, "dims is 4");
}
END_TEST

START_TEST(normalizations)
{
    core_tensor *x = random_of(3, 4, 5);
    const int64_t size = 5;
    const double eps = 1e-3;
    core_module *m;
    core_tensor *y;

    OK(core_nn_layer_norm(&size, 1, eps, true, &f64, &m));
    computes(
        m, x,
        CALL(layer_norm, x, &size, 1, of(m, "weight"), of(m, "bias"), eps));
    FAILS(core_nn_layer_norm((const int64_t[]){5, -1}, 2, eps, false, &f64, &m),
          CORE_ERROR_INVALID_ARGUMENT, "size 1 is -1");
    OK(core_nn_rms_norm(&size, 1, eps, true, &f64, &m));
    ck_assert_ptr_null(core_module_tensor(m, "bias"));
    computes(m, x, CALL(rms_norm, x, &size, 1, of(m, "weight"), &eps));
    OK(core_nn_group_norm(2, 4, eps, false, &f64, &m));
    computes(m, x, CALL(group_norm, x, 2, NULL, NULL, eps));
    OK(core_nn_batch_norm(4, eps, .5, true, &f64, &m));
    OK(core_module_call(m, x, &y));
    keep(y);
    HOLDS(of(m, "num_batches_tracked"), 1, 1);
    core_module_set_training(m, false);
    OK(core_module_call(m, x, &y));
    keep(y);
    HOLDS(of(m, "num_batches_tracked"), 1, 1);
    computes(m, x,
             CALL(batch_norm, x, of(m, "weight"), of(m, "bias"),
                  of(m, "running_mean"), of(m, "running_var"), false, .5, eps));
    FAILS(core_nn_group_norm(3, 4, eps, true, &f64, &m),
          CORE_ERROR_INVALID_ARGUMENT, "groups must divide channels");
}
END_TEST

START_TEST(dropout_depends_on_training)
{
    core_tensor *x = CALL(ones, (const int64_t[]){1000}, 1, CORE_F64, NULL);
    core_module *m, *inner;
    core_tensor *y;
    core_scalar sum;

    OK(core_nn_dropout(.5, &inner));
    OK(core_nn_sequential(&inner, 1, &m));
    core_seed(3);
    OK(core_module_call(m, x, &y));
    keep(y);
    OK(core_item(CALL(sum, y, CORE_DTYPE_NONE), &sum));
    ck_assert(sum.u.f > 800 && sum.u.f < 1200 && sum.u.f != 1000);
    ck_assert(core_module_is_training(m));
    core_module_set_training(m, false);
    computes(m, x, x);
}
END_TEST

static void expect_close(core_tensor *got, core_tensor *want)
{
    bool same = false;

    OK(core_allclose(got, want, 1e-12, 1e-12, false, &same));
    ck_assert(same);
}

static void expect_equal(core_tensor *got, core_tensor *want)
{
    bool same = false;

    OK(core_allclose(got, want, 1e-12, 1e-12, false, &same));
    ck_assert(same);
}

/* Calls a module, whose outputs the test owns, and returns their number. */
static size_t outputs_of(core_module *module, core_tensor *const *inputs,
                         size_t ninputs, core_tensor *out[3])
{
    size_t count = 3;

    OK(core_module_forward(module, inputs, ninputs, out, &count));
    for (size_t i = 0; i < count; i++)
        keep(out[i]);
    return count;
}

START_TEST(recurrent_layers)
{
    core_nn_recurrent_options o = {.struct_size = sizeof o,
                                   .kind = CORE_NN_LSTM,
                                   .input_size = 3,
                                   .hidden_size = 4,
                                   .layers = 2,
                                   .projection_size = 2,
                                   .batch_first = true,
                                   .bidirectional = true};
    core_tensor *x = random_of(2, 5, 3), *out[3], *states[3], *want[2], *y,
                *zero;
    core_module_tensors list;
    size_t count = 3;
    core_module *m, *other;
    bool same = false;

    OK(core_nn_dropout(.5, &other));
    OK(core_nn_recurrent(&o, &f64, &m));
    OK(core_module_list(m, NULL, CORE_MODULE_PARAMETERS, &list));
    ck_assert_uint_eq(list.count, 20);
    ck_assert_str_eq(list.names[5], "weight_ih_l0_reverse");
    ck_assert_str_eq(list.names[4], "weight_hr_l0");
    OK(core_module_forward(m, &x, 1, out, &count));
    ck_assert_uint_eq(count, 3);
    states[0] = x;
    keep(out[1]);
    keep(out[2]);
    states[1] = CALL(zeros_like, out[1], CORE_DTYPE_NONE, NULL, -1);
    states[2] = CALL(zeros_like, out[2], CORE_DTYPE_NONE, NULL, -1);
    y = keep(out[0]);
    count = 1;
    OK(core_module_forward(m, states, 3, out, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(core_tensor_sizes(keep(out[0]))[2], 4);
    OK(core_equal(out[0], y, &same));
    ck_assert(same);
    /* Members that the program adds are not parameters of the layers. */
    OK(core_module_add_buffer(m, "last", x));
    OK(core_module_add_child(m, "child", other));
    count = 1;
    OK(core_module_forward(m, states, 3, out, &count));
    OK(core_equal(keep(out[0]), y, &same));
    ck_assert(same);
    core_module_release(other);
    /* States that are not 0: all outputs are those of the operator. */
    zero = y;
    states[1] = CALL(randn_like, out[1], CORE_DTYPE_NONE, NULL, -1);
    states[2] = CALL(randn_like, out[2], CORE_DTYPE_NONE, NULL, -1);
    ck_assert_uint_eq(outputs_of(m, states, 3, out), 3);
    OK(core_lstm(x, states + 1, 2, list.tensors, list.count, true, 2, 0, true,
                 true, true, &y, &want[0], &want[1]));
    expect_equal(out[0], keep(y));
    expect_equal(out[1], keep(want[0]));
    expect_equal(out[2], keep(want[1]));
    /* One sample without a batch, with and without states. */
    for (size_t i = 0; i < 3; i++)
        states[i] = CALL(select, states[i], i > 0, 0);
    for (size_t given = 1; given <= 3; given += 2) {
        ck_assert_uint_eq(outputs_of(m, states, given, out), 3);
        expect_close(out[0], CALL(select, given > 1 ? y : zero, 0, 0));
        ck_assert_uint_eq(core_tensor_ndim(out[1]), 2);
        ck_assert_uint_eq(core_tensor_ndim(out[2]), 2);
    }
    FAILS(core_module_forward(m, states, 2, out, &count),
          CORE_ERROR_INVALID_ARGUMENT, "and optionally 2 states");
    core_module_tensors_free(&list);
    core_module_release(m);
}
END_TEST

START_TEST(recurrent_layers_of_one_state)
{
    core_nn_recurrent_options o = {.struct_size = sizeof o,
                                   .kind = CORE_NN_GRU,
                                   .input_size = 3,
                                   .hidden_size = 4,
                                   .layers = 2,
                                   .batch_first = true,
                                   .bidirectional = true};
    core_tensor *x = random_of(2, 5, 3), *out[3];
    core_module *m;

    for (; o.kind <= CORE_NN_RNN_RELU; o.kind++) {
        OK(core_nn_recurrent(&o, &f64, &m));
        ck_assert_uint_eq(outputs_of(m, &x, 1, out), 2);
        core_module_release(m);
    }
    o.kind = CORE_NN_GRU;
    o.projection_size = 2;
    FAILS(core_nn_recurrent(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "an LSTM can have one");
}
END_TEST

/* Samples of 4 and 2 steps, packed, and each alone. */
static void a_packed_sequence_is_its_samples(core_nn_recurrent_kind kind)
{
    const core_nn_recurrent_options o = {.struct_size = sizeof o,
                                         .kind = kind,
                                         .input_size = 3,
                                         .hidden_size = 4,
                                         .layers = 2,
                                         .batch_first = true,
                                         .bidirectional = true};
    const int64_t lengths[] = {4, 2}, two = 2, shorter = 2;
    core_tensor *x = random_of(2, 4, 3), *in[4], *out[3], *want[3], *sizes, *y;
    size_t states = kind == CORE_NN_LSTM ? 2 : 1;
    core_module *m;

    OK(core_nn_recurrent(&o, &f64, &m));
    OK(core_tensor_from_data(lengths, CORE_I64, &two, 1, NULL, &sizes));
    OK(core_pack_padded_sequence(x, keep(sizes), true, &in[0], &in[1]));
    keep(in[0]);
    keep(in[1]);
    ck_assert_uint_eq(outputs_of(m, in, 2, out), 1 + states);
    for (size_t i = 0; i < states; i++)
        in[2 + i] = CALL(zeros_like, out[1 + i], CORE_DTYPE_NONE, NULL, -1);
    ck_assert_uint_eq(outputs_of(m, in, 2 + states, want), 1 + states);
    expect_equal(out[0], want[0]);
    OK(core_pad_packed_sequence(out[0], in[1], true, core_float(0), 0, &y,
                                &sizes));
    keep(sizes);
    in[0] = CALL(slice, CALL(select, x, 0, 1), 0, NULL, &shorter, 1);
    ck_assert_uint_eq(outputs_of(m, in, 1, want), 1 + states);
    y = CALL(slice, CALL(select, keep(y), 0, 1), 0, NULL, &shorter, 1);
    expect_close(y, want[0]);
    expect_close(CALL(select, out[1], 1, 1), want[1]);
    core_module_release(m);
}

START_TEST(recurrent_layers_of_packed_sequences)
{
    core_nn_recurrent_options o = {.struct_size = sizeof o,
                                   .kind = CORE_NN_GRU,
                                   .input_size = 3,
                                   .hidden_size = 4};
    core_tensor *in[2] = {random_of(2, 2, 3),
                          CALL(zeros, (const int64_t[]){0}, 1, CORE_I64, NULL)};
    core_tensor *out;
    size_t count = 1;
    core_module *m;

    a_packed_sequence_is_its_samples(CORE_NN_LSTM);
    a_packed_sequence_is_its_samples(CORE_NN_GRU);
    a_packed_sequence_is_its_samples(CORE_NN_RNN_TANH);
    OK(core_nn_recurrent(&o, &f64, &m));
    FAILS(core_module_forward(m, in, 2, &out, &count),
          CORE_ERROR_INVALID_ARGUMENT, "a GRU was called with 2 inputs",
          "with batch sizes after it");
    in[0] = CALL(select, in[0], 0, 0);
    FAILS(core_module_forward(m, in, 2, &out, &count), CORE_ERROR_INDEX);
    core_module_release(m);
    o.cell = true;
    OK(core_nn_recurrent(&o, &f64, &m));
    FAILS(core_module_forward(m, in, 2, &out, &count), CORE_ERROR_SHAPE);
    core_module_release(m);
}
END_TEST

/* Two calls of a module, the second with the states that the first returned:
 * outputs of the second in out.  The states are the last outputs. */
static void two_steps(core_module *module, core_tensor *first,
                      core_tensor *second, size_t states, core_tensor *out[3])
{
    core_tensor *in[3] = {second};
    size_t count = outputs_of(module, &first, 1, out);

    memcpy(in + 1, out + count - states, states * sizeof *in);
    ck_assert_uint_eq(outputs_of(module, in, 1 + states, out), count);
}

/* Two steps of a cell, and of a layer with sequences of one step, lead to the
 * states after a sequence x of two steps; also of one sample without the
 * dimension N. */
static void steps_are_equal(core_module *layer, core_module *cell,
                            core_tensor *x)
{
    core_tensor *want[3], *out[3];
    size_t states = outputs_of(layer, &x, 1, want) - 1;

    ck_assert_uint_eq(
        outputs_of(cell, (core_tensor *[]){CALL(select, x, 0, 0)}, 1, out),
        states);
    two_steps(cell, CALL(select, x, 0, 0), CALL(select, x, 0, 1), states, out);
    for (size_t i = 0; i < states; i++)
        expect_close(out[i], CALL(select, want[i + 1], 0, 0));
    two_steps(layer, CALL(narrow, x, 0, 0, 1), CALL(narrow, x, 0, 1, 1), states,
              out);
    for (size_t i = 0; i < states; i++)
        expect_close(out[i + 1], want[i + 1]);
    x = CALL(select, x, 1, 1);
    two_steps(cell, CALL(select, x, 0, 0), CALL(select, x, 0, 1), states, out);
    for (size_t i = 0; i < states; i++)
        expect_close(out[i],
                     CALL(select, CALL(select, want[i + 1], 0, 0), 0, 1));
}

/* A cell computes what a layer with its parameters does for each step. */
static void a_cell_is_a_step(core_nn_recurrent_kind kind, bool no_bias)
{
    core_nn_recurrent_options o = {.struct_size = sizeof o,
                                   .kind = kind,
                                   .input_size = 3,
                                   .hidden_size = 4,
                                   .no_bias = no_bias};
    core_module_tensors from, to;
    core_module *layer, *cell;

    OK(core_nn_recurrent(&o, &f64, &layer));
    o.cell = true;
    OK(core_nn_recurrent(&o, &f64, &cell));
    OK(core_module_list(layer, NULL, CORE_MODULE_PARAMETERS, &from));
    OK(core_module_list(cell, NULL, CORE_MODULE_PARAMETERS, &to));
    ck_assert_uint_eq(to.count, no_bias ? 2 : 4);
    ck_assert_str_eq(to.names[1], "weight_hh");
    core_grad_mode_set(false);
    for (size_t i = 0; i < to.count; i++)
        OK(core_copy_(to.tensors[i], from.tensors[i], false));
    core_grad_mode_set(true);
    steps_are_equal(layer, cell, random_of(2, 2, 3));
    core_module_tensors_free(&from);
    core_module_tensors_free(&to);
    core_module_release(layer);
    core_module_release(cell);
}

START_TEST(recurrent_cells)
{
    core_nn_recurrent_options o = {.struct_size = sizeof o,
                                   .input_size = 3,
                                   .hidden_size = 4,
                                   .cell = true};
    core_tensor *x = random_of(1, 2, 3), *y;
    core_module *m;

    for (core_nn_recurrent_kind k = CORE_NN_LSTM; k <= CORE_NN_RNN_RELU; k++)
        a_cell_is_a_step(k, k == CORE_NN_GRU);
    a_cell_is_a_step(CORE_NN_LSTM, true);
    OK(core_nn_recurrent(&o, &f64, &m));
    FAILS(core_module_call(m, x, &y), CORE_ERROR_INVALID_ARGUMENT,
          "an LSTMCell was called with 1 inputs; it accepts a step of 2 "
          "dimensions");
    core_module_release(m);
    o.kind = CORE_NN_GRU;
    OK(core_nn_recurrent(&o, &f64, &m));
    FAILS(core_module_call(m, x, &y), CORE_ERROR_INVALID_ARGUMENT,
          "a GRUCell was called with 1 inputs");
    core_module_release(m);
}
END_TEST

START_TEST(a_cell_refuses_options_of_layers)
{
    core_nn_recurrent_options o = {.struct_size = sizeof o,
                                   .input_size = 3,
                                   .hidden_size = 4,
                                   .layers = 2,
                                   .cell = true};
    core_module *m;

    FAILS(core_nn_recurrent(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "core_nn_recurrent: layers is 2", "a cell has 1 layer");
    o.layers = 1;
    o.batch_first = true;
    FAILS(core_nn_recurrent(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "batch_first true");
    o.batch_first = false;
    o.projection_size = 2;
    FAILS(core_nn_recurrent(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "projection_size 2");
    o.projection_size = 0;
    memset(&o.cell, 2, 1);
    FAILS(core_nn_recurrent(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "core_nn_recurrent: cell is 2; it must be 0, a layer, or 1, a cell");
    ck_assert_ptr_null(m);
    o.cell = false;
    OK(core_nn_recurrent(&o, &f64, &m));
    ck_assert_ptr_nonnull(core_module_tensor(m, "weight_ih_l0"));
    core_module_release(m);
}
END_TEST

static core_tensor *twice_and_inner(core_module *module, core_tensor *x)
{
    return core_x_child(module, "inner", core_x_child(module, "inner", x));
}

static core_tensor *of_none(core_module *module, core_tensor *x)
{
    return core_x_child(module, "none", x);
}

START_TEST(a_module_of_an_expression)
{
    core_tensor *x = random_of(2, 3, 3), *want = x, *y;
    core_module *m, *bad;
    core_scope scope = core_scope_begin();

    OK(core_nn_expression("Twice", twice_and_inner, &m));
    CORE_MODULE_CHILD(m, "inner", core_nn_linear, 3, 3, true, &f64);
    ck_assert_int_eq(core_scope_end(scope), CORE_OK);
    for (int i = 0; i < 2; i++) {
        OK(core_module_call(core_module_child(m, "inner"), want, &y));
        want = keep(y);
    }
    OK(core_module_call(m, x, &y));
    expect_equal(keep(y), want);
    OK(core_nn_expression("Bad", of_none, &bad));
    FAILS(core_module_call(bad, x, &y), CORE_ERROR_NOT_FOUND,
          "a Bad has no child \"none\"");
    core_module_release(bad);
    scope = core_scope_begin();
    CORE_MODULE_CHILD(m, "other", core_nn_linear, 0, 3, true, &f64);
    ck_assert_ptr_null(core_x_child(NULL, "inner", x));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "it must be positive");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_x_child(NULL, "inner", x));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "module");
    FAILS(core_nn_expression("None", NULL, &bad), CORE_ERROR_INVALID_ARGUMENT,
          "function");
    core_module_release(m);
}
END_TEST

/* Of each position, attention with one head is softmax(q k^T / sqrt(n)) v. */
START_TEST(attention)
{
    core_nn_attention_options o = {.struct_size = sizeof o,
                                   .heads = 1,
                                   .bias = true,
                                   .causal = true,
                                   .size = 4};
    core_tensor *x = random_of(2, 3, 4), *q, *k, *v, *want = NULL, *mask;
    core_tensor *inputs[4] = {x, NULL}, *y;
    core_scope scope = core_scope_begin();
    size_t count = 1;
    core_module *m;
    bool same = false;

    OK(core_nn_attention(&o, &f64, &m));
    q = core_x_linear(x, of(m, "q_proj.weight"), of(m, "q_proj.bias"));
    k = core_x_linear(x, of(m, "k_proj.weight"), of(m, "k_proj.bias"));
    v = core_x_linear(x, of(m, "v_proj.weight"), of(m, "v_proj.bias"));
    mask = core_x_tril(core_x_ones(CORE_SIZES(3, 3), CORE_F64));
    k = core_x_div_scalar(core_x_bmm(q, core_x_transpose(k, 1, 2)),
                          core_float(2));
    k = core_x_masked_fill(k, core_x_eq_scalar(mask, core_int(0)),
                           core_float(-INFINITY));
    v = core_x_bmm(core_x_softmax(k, -1), v);
    v = core_x_linear(v, of(m, "o_proj.weight"), of(m, "o_proj.bias"));
    OK(core_scope_end_with(scope, v, &want));
    keep(want);
    OK(core_module_forward(m, inputs, 2, &y, &count)); /* a mask of NULL */
    OK(core_allclose(keep(y), want, 1e-9, 1e-9, false, &same));
    ck_assert(same);
    /* Of the same keys and values in the opposite order. */
    inputs[1] =
        CALL(tril, CALL(ones, (const int64_t[]){3, 3}, 2, CORE_BOOL, NULL), 0);
    inputs[1] = CALL(flip, inputs[1], (const int64_t[]){1}, 1);
    inputs[2] = CALL(flip, x, (const int64_t[]){1}, 1);
    OK(core_module_forward(m, inputs, 3, &y, &count));
    OK(core_allclose(keep(y), want, 1e-9, 1e-9, false, &same));
    ck_assert(same);
    inputs[1] = NULL; /* causal does not apply */
    inputs[2] = CALL(slice, x, 1, NULL, (const int64_t[]){1}, 1);
    OK(core_module_forward(m, inputs, 3, &y, &count));
    keep(y);
    OK(core_allclose(CALL(select, y, 1, 2), CALL(select, want, 1, 0), 1e-9,
                     1e-9, false, &same));
    ck_assert(same);
    inputs[2] = NULL;
    computes(m, x, want);
    o.heads = 4;
    o.key_heads = 2;
    OK(core_nn_attention(&o, &f64, &m));
    ck_assert_int_eq(core_tensor_sizes(of(m, "k_proj.weight"))[0], 2);
    inputs[1] = CALL(ones, (const int64_t[]){3, 3}, 2, CORE_BOOL, NULL);
    OK(core_module_forward(m, inputs, 2, &y, &count));
    keep(y);
    core_module_release(m);
    o.heads = 3;
    FAILS(core_nn_attention(&o, &f64, &m), CORE_ERROR_INVALID_ARGUMENT,
          "heads must divide size");
}
END_TEST

START_TEST(attention_refuses_other_inputs)
{
    const core_nn_attention_options o = {
        .struct_size = sizeof o, .heads = 1, .size = 4};
    core_tensor *x = random_of(2, 3, 4), *inputs[4] = {x}, *y;
    size_t count = 1;
    core_module *m;

    OK(core_nn_attention(&o, &f64, &m));
    inputs[2] = CALL(select, x, 1, 0);
    FAILS(core_module_forward(m, inputs, 3, &y, &count),
          CORE_ERROR_INVALID_ARGUMENT, "the memory has sizes [2, 4]",
          "it must have 3 dimensions");
    count = 1;
    inputs[2] = NULL;
    inputs[0] = CALL(select, x, 0, 0);
    FAILS(core_module_forward(m, inputs, 1, &y, &count),
          CORE_ERROR_INVALID_ARGUMENT, "Attention: the input has sizes [3, 4]");
    count = 1;
    inputs[0] = CALL(slice, x, 2, NULL, (const int64_t[]){3}, 1);
    FAILS(core_module_forward(m, inputs, 1, &y, &count), CORE_ERROR_SHAPE,
          "Attention: the input has sizes [", "and 4 features");
    ck_assert_ptr_null(strstr(core_error_message(), ".c:"));
    count = 1;
    inputs[0] = x;
    inputs[1] = CALL(ones, (const int64_t[]){2, 7}, 2, CORE_F64, NULL);
    FAILS(core_module_forward(m, inputs, 2, &y, &count), CORE_ERROR_SHAPE,
          "attn_mask");
    ck_assert_ptr_null(strstr(core_error_message(), ".c:"));
    inputs[1] = NULL;
    count = 1;
    inputs[0] = NULL;
    FAILS(core_module_forward(m, inputs, 1, &y, &count),
          CORE_ERROR_INVALID_ARGUMENT, "of which the first is NULL");
    count = 1;
    inputs[0] = x;
    FAILS(core_module_forward(m, inputs, 4, &y, &count),
          CORE_ERROR_INVALID_ARGUMENT, "with 4 inputs");
    core_module_release(m);
}
END_TEST

/* -------------------------------------------------------- initialization -- */

/* The deviation and the greatest absolute value. */
static void measure(core_tensor *x, double *deviation, double *most)
{
    core_scalar a, b;

    OK(core_item(CALL(mean, CALL(mul, x, x), CORE_DTYPE_NONE), &a));
    OK(core_item(CALL(max, CALL(abs, x)), &b));
    *deviation = sqrt(a.u.f);
    *most = b.u.f;
}

START_TEST(initialization_has_the_promised_distribution)
{
    core_tensor *x =
        CALL(empty, (const int64_t[]){40, 20, 5}, 3, CORE_F64, NULL, -1);
    double deviation, most;

    core_seed(11);
    OK(core_init_kaiming_uniform(x, core_init_gain("relu", 0), CORE_FAN_IN));
    measure(x, &deviation, &most);
    ck_assert_double_eq_tol(deviation, sqrt(2. / 100), .005);
    ck_assert_double_le(most, sqrt(6. / 100));
    OK(core_init_kaiming_normal(x, 1, CORE_FAN_OUT));
    measure(x, &deviation, &most);
    ck_assert_double_eq_tol(deviation, sqrt(1. / 200), .005);
    OK(core_init_xavier_uniform(x, 2));
    measure(x, &deviation, &most);
    ck_assert_double_eq_tol(deviation, 2 * sqrt(2. / 300), .01);
    ck_assert_double_le(most, 2 * sqrt(6. / 300));
    OK(core_init_xavier_normal(x, 1));
    measure(x, &deviation, &most);
    ck_assert_double_eq_tol(deviation, sqrt(2. / 300), .005);
    OK(core_init_truncated_normal(x, 0, 1, -1, 1));
    measure(x, &deviation, &most);
    ck_assert_double_eq_tol(deviation, .5396, .02);
    ck_assert_double_le(most, 1);
    ck_assert_double_eq_tol(core_init_gain("leaky_relu", 1), 1, 1e-12);
    ck_assert(isnan(core_init_gain("unknown", 0)));
    ck_assert(isnan(core_init_gain(NULL, 0)));
}
END_TEST

START_TEST(orthogonal_rows_or_columns)
{
    for (int wide = 0; wide < 2; wide++) {
        core_tensor *x =
            CALL(empty, (const int64_t[]){wide ? 3 : 6, wide ? 6 : 3}, 2,
                 CORE_F64, NULL, -1);
        core_tensor *t = CALL(t, x), *product, *want;
        bool same = false;

        OK(core_init_orthogonal(x, 2));
        product = wide ? CALL(mm, x, t) : CALL(mm, t, x);
        want = CALL(mul_scalar, CALL(eye, 3, CORE_F64, NULL), core_float(4));
        OK(core_allclose(product, want, 1e-9, 1e-9, false, &same));
        ck_assert(same);
    }
}
END_TEST

START_TEST(initialization_refuses_what_it_cannot_fill)
{
    core_tensor *x = VECTOR(3, 1, 2, 3);
    core_tensor *whole =
        CALL(zeros, (const int64_t[]){2, 2}, 2, CORE_I64, NULL);

    FAILS(core_init_xavier_normal(x, 1), CORE_ERROR_SHAPE,
          "must have at least 2");
    FAILS(core_init_orthogonal(whole, 1), CORE_ERROR_DTYPE, "i64");
    FAILS(core_init_truncated_normal(x, 0, 1, 2, 1),
          CORE_ERROR_INVALID_ARGUMENT, "low must be below high");
    FAILS(core_init_kaiming_normal(NULL, 1, CORE_FAN_IN),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    HOLDS(x, 3, 1, 2, 3);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        linear_and_embedding,
        convolutions,
        normalizations,
        dropout_depends_on_training,
        recurrent_layers,
        recurrent_layers_of_one_state,
        recurrent_layers_of_packed_sequences,
        recurrent_cells,
        a_cell_refuses_options_of_layers,
        a_module_of_an_expression,
        attention,
        attention_refuses_other_inputs,
        initialization_has_the_promised_distribution,
        orthogonal_rows_or_columns,
        initialization_refuses_what_it_cannot_fill,
    };
    const test_suite suite = {
        .name = "nn/layers", .teardown = drop_all, SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
