/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What modules, layers, loaders and scopes keep of what a program gives them: it
 * releases or overwrites that at once.  Under the address sanitizer, a reference
 * that was not taken is an access after free. */

#include "support/autograd.h"

#include <libcore/data.h>
#include <libcore/network.h>

#include <string.h>

static core_tensor *ones(int64_t rows, int64_t columns)
{
    core_tensor *x;

    OK(core_ones((const int64_t[]){rows, columns}, 2, CORE_F32, NULL, &x));
    return x;
}

static void gives(core_module *module, core_tensor *input, double sum)
{
    core_tensor *y, *total;
    double value;

    OK(core_module_call(module, input, &y));
    OK(core_sum(y, CORE_DTYPE_NONE, &total));
    OK(core_tensor_item_float(total, &value));
    ck_assert_double_eq_tol(value, sum, 1e-6);
    core_tensor_release(y);
    core_tensor_release(total);
    core_tensor_release(input);
}

/* -------------------------------------------------------------- modules -- */

static core_status weighted(core_module *module, void *context,
                            core_tensor *const *inputs, size_t ninputs,
                            core_tensor **outputs, size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_mul(inputs[0], core_module_tensor(module, "inner.weight"),
                    &outputs[0]);
}

/* The type and the names are copied; tensors and children are kept. */
START_TEST(a_module_keeps_its_members)
{
    char type[] = "Weighted", name[] = "weight", child_name[] = "inner";
    core_module *module, *child;
    core_tensor *weight = ones(1, 3), *buffer = ones(1, 3);

    OK(core_module_create(type, weighted, NULL, NULL, &module));
    OK(core_module_create(type, NULL, NULL, NULL, &child));
    OK(core_module_add_parameter(child, name, weight));
    core_tensor_release(weight);
    memset(name, 'x', sizeof name - 1);
    OK(core_module_add_buffer(child, name, buffer));
    core_tensor_release(buffer);
    OK(core_module_add_child(module, child_name, child));
    core_module_release(child);
    memset(type, 'x', sizeof type - 1);
    memset(child_name, 'x', sizeof child_name - 1);
    ck_assert_ptr_nonnull(core_module_tensor(module, "inner.xxxxxx"));
    gives(module, ones(2, 3), 6);
    FAILS(core_module_add_child(module, "inner", module),
          CORE_ERROR_INVALID_ARGUMENT, "Weighted");
    core_module_release(module);
}
END_TEST

static core_tensor *doubled(core_module *module, core_tensor *x)
{
    (void)module;
    return core_x_mul(x, 2);
}

START_TEST(a_sequence_and_an_expression_keep_what_they_are_made_of)
{
    char type[] = "Doubled";
    core_module *parts[2], *sequence;

    OK(core_nn_expression(type, doubled, &parts[0]));
    memset(type, 'x', sizeof type - 1);
    OK(core_nn_function(core_neg, &parts[1]));
    OK(core_nn_sequential(parts, 2, &sequence));
    memset(parts, 0, sizeof parts);
    gives(sequence, ones(2, 3), -12);
    core_module_release(sequence);
}
END_TEST

static void fill(core_module *module, double value)
{
    core_module_tensors list;
    bool before = core_grad_mode_set(false);

    OK(core_module_list(module, NULL, CORE_MODULE_STATE, &list));
    for (size_t i = 0; i < list.count; i++)
        OK(core_fill_(list.tensors[i], core_float(value)));
    core_module_tensors_free(&list);
    core_grad_mode_set(before);
}

/* Options are copied. */
START_TEST(layers_keep_no_options)
{
    core_nn_options options = {.struct_size = sizeof options,
                               .dtype = CORE_F32};
    core_nn_conv_options conv = {.struct_size = sizeof conv,
                                 .dims = 1,
                                 .in_channels = 3,
                                 .out_channels = 1,
                                 .kernel_size = {1}};
    core_nn_attention_options attention = {
        .struct_size = sizeof attention, .heads = 1, .size = 3};
    core_nn_recurrent_options recurrent = {.struct_size = sizeof recurrent,
                                           .kind = CORE_NN_RNN_RELU,
                                           .input_size = 3,
                                           .hidden_size = 1};
    int64_t sizes[1] = {3};
    core_module *m[4];
    core_tensor *x;

    OK(core_nn_conv(&conv, &options, &m[0]));
    OK(core_nn_attention(&attention, &options, &m[1]));
    OK(core_nn_recurrent(&recurrent, &options, &m[2]));
    OK(core_nn_layer_norm(sizes, 1, 1e-5, true, &options, &m[3]));
    memset(&options, 0xff, sizeof options);
    memset(&conv, 0xff, sizeof conv);
    memset(&attention, 0xff, sizeof attention);
    memset(&recurrent, 0xff, sizeof recurrent);
    memset(sizes, 0xff, sizeof sizes);
    for (int i = 0; i < 4; i++)
        fill(m[i], 1);
    gives(m[0], ones(3, 2), 8);
    x = ones(2, 3);
    OK(core_unsqueeze_(x, 0));
    gives(m[1], x, 54);
    gives(m[2], ones(1, 3), 5);
    gives(m[3], ones(2, 3), 6);
    for (int i = 0; i < 4; i++)
        core_module_release(m[i]);
}
END_TEST

START_TEST(a_layer_keeps_the_weights_and_not_their_module)
{
    core_nn_options options = {.struct_size = sizeof options};
    core_module *weights, *layer;

    OK(core_nn_linear(3, 2, true, NULL, &weights));
    fill(weights, 1);
    options.weights = weights;
    OK(core_nn_linear(3, 2, true, &options, &layer));
    core_module_release(weights);
    gives(layer, ones(1, 3), 8);
    core_module_release(layer);
}
END_TEST

/* -------------------------------------------------------------- loaders -- */

/* _i threads. */
START_TEST(a_loader_keeps_its_source)
{
    core_tensor *rows[2] = {ones(5, 3), ones(5, 1)}, *batch[2];
    core_data_options options = {.struct_size = sizeof options,
                                 .batch_size = 5,
                                 .threads = (uint32_t)_i};
    core_data_source source = {.struct_size = sizeof source};
    core_data_loader *loader;
    core_tensor *total;
    size_t count = 2;
    double value;

    OK(core_data_source_tensors(rows, 2, &source));
    core_tensor_release(rows[0]);
    core_tensor_release(rows[1]);
    memset(rows, 0xff, sizeof rows);
    OK(core_data_loader_create(&source, &options, &loader));
    memset(&source, 0xff, sizeof source);
    memset(&options, 0xff, sizeof options);
    OK(core_data_loader_begin(loader, 0, 0));
    OK(core_data_loader_next(loader, batch, &count));
    core_data_loader_release(loader); /* which does not own the batch */
    OK(core_sum(batch[0], CORE_DTYPE_NONE, &total));
    OK(core_tensor_item_float(total, &value));
    ck_assert_double_eq(value, 15);
    core_tensor_release(total);
    core_tensor_release(batch[0]);
    core_tensor_release(batch[1]);
}
END_TEST

/* --------------------------------------------------------------- scopes -- */

/* A scope owns the references that it is given, and adds one where it lends: the
 * program's own ones may go. */
START_TEST(a_scope_keeps_what_leaves_it)
{
    core_scope outer = core_scope_begin(), scope = core_scope_begin();
    core_tensor *given = ones(2, 3), *borrowed = ones(2, 3);
    core_tensor *out = NULL, *kept, *result;
    core_growing_list list = {0};

    core_scope_own(CORE_OK, &given);
    given = core_x_neg(given);
    core_scope_output(borrowed, &out);
    kept = core_scope_keep(borrowed);
    core_x_append(&list, core_x_neg(kept));
    result = core_x_cat(list.list);
    core_tensor_release(borrowed);
    result = core_scope_return(scope, core_x_add(result, given));
    ck_assert_double_eq(core_x_item_float(core_x_sum(result)), -12);
    ck_assert_double_eq(core_x_item_float(core_x_sum(kept)), 6);
    ck_assert_double_eq(core_x_item_float(core_x_sum(out)), 6);
    OK(core_scope_end(outer));
    core_tensor_release(out);
}
END_TEST

/* Of an error the scope has a copy of the message. */
START_TEST(a_scope_keeps_its_error)
{
    char name[] = "rows";
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);

    (void)core_x_nn_child(m, "%s", name);
    memset(name, 'x', sizeof name - 1);
    core_error_clear();
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND, "\"rows\"");
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {a_module_keeps_its_members, 0, 1},
        {a_sequence_and_an_expression_keep_what_they_are_made_of, 0, 1},
        {layers_keep_no_options, 0, 1},
        {a_layer_keeps_the_weights_and_not_their_module, 0, 1},
        {a_loader_keeps_its_source, 0, 3},
        {a_scope_keeps_what_leaves_it, 0, 1},
        {a_scope_keeps_its_error, 0, 1},
    };
    const test_suite suite = {
        .name = "nn/ownership", .teardown = drop_all, SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
