/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modules: names, ownership, calls, state and files. */

#include "support/autograd.h"
#include "support/temporary_files.h"

#include "base/memory.h"

#include <libcore/expressions.h>
#include <libcore/nn.h>
#include <libcore/optim.h>
#include <libcore/safetensors.h>

#include <string.h>

static temporary_path path;

static void set_up(void)
{
    temporary_file(path, "state");
}

static void tear_down(void)
{
    drop_all();
    temporary_remove(path);
}

static void assert_equal(core_tensor *a, core_tensor *b)
{
    bool equal = false;

    OK(core_equal(a, b, &equal));
    ck_assert(equal);
}

static core_module *linear(int64_t inputs, int64_t outputs)
{
    const core_nn_options f64 = {.struct_size = sizeof f64, .dtype = CORE_F64};
    core_module *module;

    OK(core_nn_linear(inputs, outputs, true, &f64, &module));
    return module;
}

/* Linear, ReLU and Linear. */
static core_module *perceptron(void)
{
    core_module *layers[3] = {linear(3, 4), NULL, linear(4, 2)}, *module;

    OK(core_nn_function(core_relu, &layers[1]));
    OK(core_nn_sequential(layers, 3, &module));
    return module;
}

/* ---------------------------------------------------------------- names -- */

START_TEST(tensors_have_paths)
{
    core_module *module = perceptron();
    core_module_tensors list;

    OK(core_module_list(module, NULL, CORE_MODULE_STATE, &list));
    ck_assert_uint_eq(list.count, 4);
    ck_assert_str_eq(list.names[0], "0.weight");
    ck_assert_str_eq(list.names[3], "2.bias");
    ck_assert_ptr_eq(core_module_tensor(module, "2.bias"), list.tensors[3]);
    core_module_tensors_free(&list);
    OK(core_module_list(module, "2.", CORE_MODULE_STATE, &list));
    ck_assert_uint_eq(list.count, 2);
    core_module_tensors_free(&list);
    OK(core_module_list(module, NULL, CORE_MODULE_BUFFERS, &list));
    ck_assert_uint_eq(list.count, 0);
    core_module_tensors_free(&list);
    ck_assert_ptr_null(core_module_tensor(module, "2"));
    ck_assert_ptr_null(core_module_tensor(module, "1.weight"));
    ck_assert_ptr_null(core_module_tensor(module, "0.weight.x"));
    ck_assert_ptr_null(core_module_child(module, "3"));
    ck_assert_ptr_nonnull(core_module_child(module, "1"));
    core_module_release(module);
}
END_TEST

START_TEST(bad_names_are_refused)
{
    core_module *module = linear(2, 2);
    core_tensor *x = VECTOR(2, 1, 2), *leaf = VECTOR(2, 1, 2),
                *whole = CALL(zeros, NULL, 0, CORE_I64, NULL);

    OK(core_tensor_set_requires_grad(leaf, true));
    FAILS(core_module_add_buffer(module, "", x), CORE_ERROR_INVALID_ARGUMENT,
          "is empty or has a dot");
    FAILS(core_module_add_buffer(module, "a.b", x), CORE_ERROR_INVALID_ARGUMENT,
          "is empty or has a dot");
    FAILS(core_module_add_buffer(module, "bias", x),
          CORE_ERROR_INVALID_ARGUMENT, "has a member \"bias\" already");
    ck_assert_int_ne(core_module_add_parameter(module, "n", whole), CORE_OK);
    FAILS(core_module_add_parameter(module, "n", CALL(mul, leaf, leaf)),
          CORE_ERROR_INVALID_ARGUMENT,
          "core_module_add_parameter: the tensor for \"n\" is not a leaf");
    FAILS(core_module_add_buffer(module, "n", NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    ck_assert_ptr_null(core_module_tensor(module, "n"));
    core_module_release(module);
}
END_TEST

START_TEST(a_module_cannot_contain_itself)
{
    core_module *outer, *inner;

    OK(core_module_create("Outer", NULL, NULL, NULL, &outer));
    OK(core_module_create("Inner", NULL, NULL, NULL, &inner));
    OK(core_module_add_child(outer, "inner", inner));
    FAILS(core_module_add_child(inner, "outer", outer),
          CORE_ERROR_INVALID_ARGUMENT, "contains the module");
    FAILS(core_module_add_child(inner, "self", inner),
          CORE_ERROR_INVALID_ARGUMENT, "contains the module");
    core_module_release(inner);
    core_module_release(outer);
}
END_TEST

START_TEST(a_module_takes_over_a_new_child_or_releases_it)
{
    core_module *outer, *child = NULL, *lost = NULL;

    OK(core_module_create("Outer", NULL, NULL, NULL, &outer));
    OK(core_module_take_child(
        outer, "fc", core_nn_linear(2, 1, true, NULL, &child), &child));
    ck_assert_ptr_eq(core_module_child(outer, "fc"), child);
    FAILS(core_module_take_child(
              outer, "fc", core_nn_linear(2, 1, true, NULL, &lost), &lost),
          CORE_ERROR_INVALID_ARGUMENT, "has a member \"fc\" already");
    FAILS(core_module_take_child(
              outer, "no", core_nn_linear(0, 1, true, NULL, &lost), &lost),
          CORE_ERROR_INVALID_ARGUMENT, "Linear");
    FAILS(core_module_take_child(outer, "no", CORE_OK, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "child");
    ck_assert_ptr_null(core_module_child(outer, "no"));
    core_module_release(outer);
}
END_TEST

START_TEST(tied_weights_are_listed_once_for_an_optimizer)
{
    core_module *layers[2] = {linear(3, 3), NULL}, *module;
    core_module_tensors list;

    layers[1] = layers[0];
    core_module_retain(layers[0]);
    OK(core_nn_sequential(layers, 2, &module));
    OK(core_module_list(module, NULL, CORE_MODULE_PARAMETERS, &list));
    ck_assert_uint_eq(list.count, 4);
    core_module_tensors_free(&list);
    OK(core_module_list(module, NULL, CORE_MODULE_PARAMETERS | CORE_MODULE_ONCE,
                        &list));
    ck_assert_uint_eq(list.count, 2);
    core_module_tensors_free(&list);
    core_module_release(module);
}
END_TEST

/* ---------------------------------------------------------------- calls -- */

static int destroyed;

static void destroy(void *context)
{
    (void)context;
    destroyed++;
}

static core_status twice(core_module *module, void *context,
                         core_tensor *const *inputs, size_t ninputs,
                         core_tensor **outputs, size_t *noutputs)
{
    int *mode = context;

    (void)module;
    (void)ninputs;
    if (*mode == 1)
        return CORE_ERROR_UNSUPPORTED; /* without a message */
    if (*mode == 3)
        return CORE_OK; /* without an output */
    OK(core_add(inputs[0], inputs[0], core_int(1), &outputs[0]));
    *noutputs = *mode == 2 ? 5 : 1;
    return CORE_OK;
}

START_TEST(a_program_has_its_own_modules)
{
    core_tensor *x = VECTOR(2, 1, 2), *y;
    core_module *module;
    core_scope scope;
    int mode = 0;

    destroyed = 0;
    OK(core_module_create("Twice", twice, &mode, destroy, &module));
    OK(core_module_call(module, x, &y));
    HOLDS(keep(y), 2, 2, 4);
    mode = 1;
    FAILS(core_module_call(module, x, &y), CORE_ERROR_UNSUPPORTED, "Twice");
    ck_assert_ptr_null(y);
    mode = 2;
    FAILS(core_module_call(module, x, &y), CORE_ERROR_INVALID_ARGUMENT,
          "has 5 outputs, and there is room for 1");
    mode = 3;
    FAILS(core_module_call(module, x, &y), CORE_ERROR_INVALID_ARGUMENT,
          "output 0 of this Twice is NULL");
    mode = 0;
    scope = core_scope_begin();
    ck_assert_ptr_null(core_x_module(module, NULL));
    ck_assert_ptr_null(core_x_module(module, x));
    ck_assert_int_eq(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT);
    core_module_release(module);
    ck_assert_int_eq(destroyed, 1);
    FAILS(core_module_create(NULL, twice, &mode, destroy, &module),
          CORE_ERROR_INVALID_ARGUMENT, "type");
    ck_assert_int_eq(destroyed, 2);
}
END_TEST

START_TEST(errors_name_the_module)
{
    core_module *module, *holder;
    core_tensor *x = VECTOR(2, 1, 2), *y = x, *pair[2] = {x, x};
    size_t count = 1;

    OK(core_nn_dropout(.5, &module));
    FAILS(core_module_forward(module, pair, 2, &y, &count),
          CORE_ERROR_INVALID_ARGUMENT, "a Dropout has one input");
    ck_assert_uint_eq(count, 0);
    core_module_release(module);
    OK(core_module_create("Holder", NULL, NULL, NULL, &holder));
    FAILS(core_module_call(holder, x, &y), CORE_ERROR_UNSUPPORTED,
          "this Holder only holds other modules");
    FAILS(core_nn_dropout(2, &module), CORE_ERROR_INVALID_ARGUMENT, "p is 2");
    core_module_release(holder);
}
END_TEST

START_TEST(a_network_learns)
{
    core_sgd_options sgd = {.struct_size = sizeof sgd, .learning_rate = .1};
    core_module *module = perceptron();
    core_tensor *x = (CALL(ones, (const int64_t[]){5, 3}, 2, CORE_F64, NULL));
    core_module_tensors list;
    core_optimizer *optimizer;
    double first = 0, loss = 0;

    OK(core_module_list(module, NULL, CORE_MODULE_PARAMETERS | CORE_MODULE_ONCE,
                        &list));
    OK(core_sgd_create(list.tensors, list.count, &sgd, &optimizer));
    core_module_tensors_free(&list);
    for (int i = 0; i < 20; i++) {
        core_scope scope = core_scope_begin();
        core_tensor *y = core_x_module(module, x);
        core_tensor *error = core_x_mean(core_x_mul(y, y));
        core_scalar value;

        CORE_CHECK(core_backward(&error, 1, NULL, 0));
        CORE_CHECK(core_item(error, &value));
        OK(core_scope_end(scope));
        OK(core_optimizer_step(optimizer));
        core_optimizer_zero_grad(optimizer);
        loss = value.u.f;
        if (i == 0)
            first = loss;
    }
    ck_assert_double_lt(loss, first);
    core_optimizer_release(optimizer);
    core_module_release(module);
}
END_TEST

/* ---------------------------------------------------------------- state -- */

START_TEST(a_state_is_saved_and_loaded)
{
    core_module *from = perceptron(), *to = perceptron();
    core_module_report report = {.struct_size = sizeof report};

    OK(core_module_save(from, path));
    OK(core_module_load(to, path, NULL, 0, &report));
    ck_assert_uint_eq(report.loaded, 4);
    ck_assert_uint_eq(report.missing + report.unexpected, 0);
    assert_equal(core_module_tensor(from, "0.weight"),
                 core_module_tensor(to, "0.weight"));
    assert_equal(core_module_tensor(from, "2.bias"),
                 core_module_tensor(to, "2.bias"));
    ck_assert(core_tensor_requires_grad(core_module_tensor(to, "2.bias")));
    core_module_release(from);
    core_module_release(to);
}
END_TEST

START_TEST(differences_are_told)
{
    core_module *from = linear(3, 4), *to = perceptron(), *other = linear(3, 5);
    core_module_report report = {.struct_size = sizeof report};
    core_tensor *before;
    core_module *deep;
    char name[300] = ""; /* too long for the message */

    memset(name, 'n', sizeof name - 1);
    OK(core_module_save(from, path));
    FAILS(core_module_load(to, path, NULL, 0, &report), CORE_ERROR_NOT_FOUND,
          "missing 0.weight");
    ck_assert_uint_eq(report.missing, 4);
    ck_assert_uint_eq(report.unexpected, 2);
    ck_assert_uint_eq(report.loaded, 0);
    OK(core_module_load(
        to, path, NULL,
        CORE_MODULE_ALLOW_MISSING | CORE_MODULE_ALLOW_UNEXPECTED, &report));
    ck_assert_uint_eq(report.loaded, 0);
    OK(core_module_create("Outer", NULL, NULL, NULL, &deep));
    OK(core_module_add_child(deep, name, from));
    FAILS(core_module_load(deep, path, NULL, 0, &report), CORE_ERROR_NOT_FOUND,
          "2 names are missing and 2 unexpected");
    core_module_release(deep);
    before = CALL(clone, core_module_tensor(other, "bias"), -1);
    FAILS(core_module_load(other, path, NULL, 0, NULL), CORE_ERROR_SHAPE,
          "has sizes [4] in the file and [5] in the module");
    assert_equal(before, core_module_tensor(other, "bias"));
    FAILS(core_module_load(other, "/nowhere/x", NULL, 0, NULL),
          CORE_ERROR_NOT_FOUND, "nowhere");
    FAILS(core_module_load(other, path, NULL, 16, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "unknown bits");
    core_module_release(from);
    core_module_release(to);
    core_module_release(other);
}
END_TEST

START_TEST(names_are_reported)
{
    const uint32_t allowed =
        CORE_MODULE_ALLOW_MISSING | CORE_MODULE_ALLOW_UNEXPECTED;
    core_module *from = linear(3, 4), *to = perceptron();
    core_module_report report = {.struct_size = sizeof report};

    OK(core_module_save(from, path));
    for (uint32_t flags = 0; flags <= allowed; flags += allowed) {
        core_status status = core_module_load(
            to, path, NULL, CORE_MODULE_NAMES | flags, &report);

        ck_assert_int_eq(status, flags ? CORE_OK : CORE_ERROR_NOT_FOUND);
        ck_assert_uint_eq(report.missing, 4);
        ck_assert_str_eq(report.names[0], "0.weight");
        ck_assert_str_eq(report.names[3], "2.bias");
        ck_assert_str_eq(report.names[4], "bias");
        ck_assert_str_eq(report.names[5], "weight");
        core_module_report_free(&report);
        ck_assert_ptr_null(report.names);
    }
    OK(core_module_load(from, path, NULL, CORE_MODULE_NAMES, &report));
    ck_assert_ptr_null(report.names);
    /* Programs that were compiled without the field. */
    report.struct_size = 16;
    report.names = (const char **)&report;
    OK(core_module_load(from, path, NULL, 0, &report));
    ck_assert_uint_eq(report.struct_size, 16);
    ck_assert_uint_eq(report.loaded, 2);
    ck_assert_ptr_eq(report.names, (const char **)&report);
    FAILS(core_module_load(from, path, NULL, CORE_MODULE_NAMES, &report),
          CORE_ERROR_INVALID_ARGUMENT, "core_module_report");
    FAILS(core_module_load(from, path, NULL, CORE_MODULE_NAMES, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "out_report");
    core_module_release(from);
    core_module_release(to);
}
END_TEST

START_TEST(a_part_of_a_file_is_loaded_by_its_prefix_and_converted)
{
    core_module *from = perceptron(), *to;
    core_module_report report = {.struct_size = sizeof report};

    OK(core_module_save(from, path));
    OK(core_nn_linear(4, 2, true, NULL, &to));
    OK(core_module_load(to, path, "2.", 0, &report));
    ck_assert_uint_eq(report.loaded, 2);
    ck_assert_uint_eq(report.unexpected, 0);
    assert_equal((CALL(to, core_module_tensor(from, "2.bias"), CORE_F32, NULL,
                       false, false, -1)),
                 core_module_tensor(to, "bias"));
    core_module_release(from);
    core_module_release(to);
}
END_TEST

START_TEST(a_module_is_converted)
{
    core_module *module;
    core_tensor *weight;

    OK(core_nn_batch_norm(3, 1e-5, .1, true, NULL, &module));
    OK(core_module_to(module, CORE_BF16, NULL));
    weight = core_module_tensor(module, "weight");
    ck_assert_int_eq(core_tensor_dtype(weight), CORE_BF16);
    ck_assert(core_tensor_requires_grad(weight));
    ck_assert_int_eq(
        core_tensor_dtype(core_module_tensor(module, "num_batches_tracked")),
        CORE_I64);
    ck_assert(
        !core_tensor_requires_grad(core_module_tensor(module, "running_var")));
    FAILS(core_module_to(module, CORE_I32, NULL), CORE_ERROR_DTYPE, "i32");
    core_module_release(module);
}
END_TEST

static core_status all_of_it(core_tensor *x)
{
    core_module *layers[2] = {NULL, NULL}, *module = NULL;
    core_module_tensors list = {0};
    core_tensor *y = NULL;
    core_status status = core_nn_linear(3, 4, true, NULL, &layers[0]);

    if (status == CORE_OK)
        status = core_nn_dropout(.5, &layers[1]);
    if (status == CORE_OK) {
        status = core_nn_sequential(layers, 2, &module);
        layers[0] = layers[1] = NULL;
    }
    if (status == CORE_OK)
        status = core_module_call(module, x, &y);
    if (status == CORE_OK)
        status = core_module_list(module, NULL, CORE_MODULE_STATE, &list);
    if (status == CORE_OK)
        status = core_module_save(module, path);
    if (status == CORE_OK)
        status = core_module_load(module, path, NULL, 0, NULL);
    if (status == CORE_OK)
        status = core_module_to(module, CORE_F64, NULL);
    core_module_tensors_free(&list);
    core_tensor_release(y);
    core_module_release(layers[0]);
    core_module_release(layers[1]);
    core_module_release(module);
    return status;
}

/* Lets each allocation fail once. */
static void starve(core_tensor *x, int64_t live)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;

    for (int64_t allowed = 0; status != CORE_OK; allowed++) {
        core__alloc_fault_set(allowed, false);
        status = all_of_it(x);
        core__alloc_fault_set(-1, false);
        if (status != CORE_OK)
            ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_le(core__alloc_live(), live);
    }
}

START_TEST(nothing_is_lost_without_memory)
{
    core_tensor *x = CALL(ones, (const int64_t[]){2, 3}, 2, CORE_F32, NULL);

    starve(x, INT64_MAX); /* fills what keeps memory for later */
    starve(x, core__alloc_live());
}
END_TEST

static core_status save_and_load(core_module *module)
{
    core_module_report report = {.struct_size = sizeof report};
    core_status status;

    CORE_TRY(core_module_save(module, path));
    CORE_TRY(core_module_load(module, path, NULL, 0, NULL));
    status = core_module_load(module, path, "none.",
                              CORE_MODULE_NAMES | CORE_MODULE_ALLOW_MISSING,
                              &report);
    core_module_report_free(&report);
    return status;
}

/* Each allocation fails once. */
START_TEST(saving_and_loading_fail_without_memory)
{
    core_module *module = linear(3, 4);
    bool complete = false;

    OK(save_and_load(module));
    for (int64_t allowed = 0; !complete; allowed++) {
        core_status status;

        core__alloc_fault_set(allowed, false);
        status = save_and_load(module);
        complete = core__alloc_count() <= allowed;
        core__alloc_fault_set(-1, false);
        ck_assert_int_eq(status, complete ? CORE_OK : CORE_ERROR_OUT_OF_MEMORY);
    }
    core_module_release(module);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        tensors_have_paths,
        bad_names_are_refused,
        a_module_cannot_contain_itself,
        a_module_takes_over_a_new_child_or_releases_it,
        tied_weights_are_listed_once_for_an_optimizer,
        a_program_has_its_own_modules,
        errors_name_the_module,
        a_network_learns,
        a_state_is_saved_and_loaded,
        differences_are_told,
        names_are_reported,
        a_part_of_a_file_is_loaded_by_its_prefix_and_converted,
        a_module_is_converted,
        nothing_is_lost_without_memory,
        saving_and_loading_fail_without_memory,
    };
    const test_suite suite = {.name = "nn/module",
                              .setup = set_up,
                              .teardown = tear_down,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
