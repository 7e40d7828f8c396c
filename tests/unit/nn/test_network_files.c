/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Networks whose weights are a file's, without modules of their own. */

#include "support/autograd.h"
#include "support/temporary_files.h"

#include "base/memory.h"

#include <libcore/network.h>
#include <libcore/random.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    return core_x_add(x, core_x_children(m, x, "up", "down"));
}

/* Layers of all kinds, with weights that are not those of initialization. */
static core_module *layers(void)
{
    core_module *m = core_x_nn_container(NULL, NULL);
    core_list all;

    core_x_nn_linear(core_x_nn_module(m, "block", residual), "up", 4, 8);
    core_x_nn_linear(m, "block.down", 8, 4, false);
    core_x_nn_embedding(m, "words", 5, 4);
    core_x_nn_conv1d(m, "convs.", 4, 4, {3}, {2}, {1}, .groups = 2);
    core_x_nn_conv2d(m, "convs.", 2, 4, {3, 1}, .dilation = {2});
    core_x_nn_conv3d(m, "convs.", 2, 2, {1}, .no_bias = true);
    core_x_nn_conv2d(m, "up", 2, 3, {3, 2}, {2, 1}, {1, -1}, {2}, {1, -1},
                     .transposed = true);
    core_x_nn_batch_norm(m, "norm.batch", 4);
    core_x_nn_group_norm(m, "norm.group", 2, 4, 0.01);
    core_x_nn_layer_norm(m, "norm.layer", 4);
    core_x_nn_rms_norm(m, "norm.rms", 4, 0.1);
    core_x_nn_lstm(m, "lstm", 4, 3, 1);
    all = core_x_parameters(m);
    core_seed(3);
    for (size_t i = 0; i < all.count; i++)
        CORE_CHECK(core_init_truncated_normal(all.items[i], 0, 1, -2, 2));
    core_x_no_grad();
    core_x_copy_(core_x_nn_tensor(m, "norm.batch.running_var"),
                 core_x_arange_start(1, 5, CORE_F32));
    core_module_set_training(m, false);
    return m;
}

/* A module with all tensors of `m`, from a file. */
static core_module *from_file(const core_module *m)
{
    CORE_CHECK(core_module_save(m, path));
    return core_x_nn_from_file(path);
}

static void same(core_tensor *a, core_tensor *b)
{
    OK(core_scope_status());
    ck_assert(core_x_item_int(core_x_all(core_x_eq(a, b))));
}

START_TEST(layers_of_a_file_compute_what_modules_do)
{
    core_scope scope = core_scope_begin();
    core_module *m = layers(), *f = from_file(m);
    core_tensor *x = core_x_randn(CORE_SIZES(2, 4)), *y;
    core_tensor *row = core_x_randn(CORE_SIZES(2, 4, 6));
    core_tensor *image = core_x_randn(CORE_SIZES(1, 2, 5, 3));
    core_tensor *cube = core_x_randn(CORE_SIZES(1, 2, 2, 3, 3));
    core_tensor *words = core_x_arange(5);

    ck_assert(!core_module_is_training(f));
    ck_assert(!core_module_is_training(core_x_nn_child(f, "block.up")));
    ck_assert_uint_eq(core_x_parameters(f).count, 0);
    y = core_x_apply_linear(f, "block.up", x);
    y = core_x_apply_linear(core_x_nn_child(f, "block"), "down", y);
    same(core_x_add(x, y), core_x_child(m, "block", x));
    same(core_x_apply_embedding(f, "words", words),
         core_x_child(m, "words", words));
    same(core_x_apply_conv(f, "convs.0", row, CORE_SIZES(2), CORE_SIZES(1),
                           CORE_NO_SIZES, 2),
         core_x_child(m, "convs.0", row));
    same(core_x_apply_conv_options(f, "convs.0", row, .stride = {2},
                                   .padding = {1}, .groups = 2),
         core_x_child(m, "convs.0", row));
    same(core_x_apply_conv_options(f, "convs.2", cube, .padding = {1, -1}),
         core_x_apply_conv(f, "convs.2", cube, CORE_NO_SIZES,
                           CORE_SIZES(1, 0, 1)));
    same(core_x_apply_conv_options(f, "up", image, .stride = {2, 1},
                                   .padding = {1, -1}, .transposed = true,
                                   .output_padding = {1, -1}, .dilation = {2}),
         core_x_child(m, "up", image));
    same(core_x_apply_conv(f, "convs.1", image, CORE_NO_SIZES, CORE_NO_SIZES,
                           CORE_SIZES(2)),
         core_x_child(m, "convs.1", image));
    same(core_x_apply_conv(f, "convs.2", cube),
         core_x_child(m, "convs.2", cube));
    same(core_x_apply_batch_norm(f, "norm.batch", row),
         core_x_child(m, "norm.batch", row));
    same(core_x_apply_group_norm(f, "norm.group", row, 2, 0.01),
         core_x_child(m, "norm.group", row));
    same(core_x_apply_layer_norm(f, "norm.layer", x),
         core_x_child(m, "norm.layer", x));
    same(core_x_apply_rms_norm(f, "norm.rms", x, 0.1),
         core_x_child(m, "norm.rms", x));
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(layers_and_a_file_are_one_network)
{
    core_scope scope = core_scope_begin();
    core_module *m = layers(), *n = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_randn(CORE_SIZES(2, 5, 4));

    core_x_nn_lstm(n, "lstm", 4, 3, 1);
    CORE_CHECK(core_module_save(m, path));
    ck_assert_ptr_eq(core_x_inference(core_x_nn_load_all(n, path)), n);
    ck_assert(!core_grad_mode());
    same(core_list_at(core_x_forward(core_x_nn_child(n, "lstm"), x), 0),
         core_list_at(core_x_forward(core_x_nn_child(m, "lstm"), x), 0));
    ck_assert_uint_eq(core_x_parameters(n).count, 4);
    ck_assert_ptr_nonnull(core_module_tensor(n, "block.up.weight"));
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(what_is_added_is_reported)
{
    core_module_report report = {.struct_size = sizeof report};
    core_scope scope = core_scope_begin();
    core_module *n = core_x_nn_container(NULL, NULL);

    core_x_nn_linear(n, "up", 4, 8);
    core_x_nn_linear(n, "other", 4, 8);
    CORE_CHECK(core_module_save(layers(), path));
    OK(core_scope_status());
    FAILS(core_module_load(n, path, "block.", CORE_MODULE_ADD, &report),
          CORE_ERROR_NOT_FOUND, "missing block.other.weight");
    ck_assert_uint_eq(report.missing, 2);
    ck_assert_ptr_null(core_module_child(n, "down"));
    FAILS(core_module_load(n, path, "block.",
                           CORE_MODULE_ADD | CORE_MODULE_NAMES, &report),
          CORE_ERROR_NOT_FOUND, "2 names are missing and 0 unexpected");
    ck_assert_uint_eq(report.unexpected, 0);
    ck_assert_str_eq(report.names[0], "block.other.weight");
    ck_assert_str_eq(report.names[1], "block.other.bias");
    core_module_report_free(&report);
    OK(core_module_load(n, path, "block.",
                        CORE_MODULE_ADD | CORE_MODULE_ALLOW_MISSING, &report));
    ck_assert_uint_eq(report.loaded, 3);
    ck_assert_uint_eq(report.unexpected, 0);
    ck_assert_ptr_nonnull(core_module_tensor(n, "down.weight"));
    ck_assert_ptr_null(core_module_child(n, "words"));
    OK(core_module_load(n, path, "block.",
                        CORE_MODULE_ADD | CORE_MODULE_ALLOW_MISSING, &report));
    ck_assert_uint_eq(report.loaded, 3);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(names_that_are_no_paths_are_refused)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_ones(CORE_SIZES(1));

    core_x_save(path, {"a", x}, {"a.b", x});
    ck_assert_ptr_null(core_x_nn_from_file(path));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "has a member \"a\" already", "test_network_files.c:");
    scope = core_scope_begin();
    core_x_save(path, {"a..b", core_x_ones(CORE_SIZES(1))});
    ck_assert_ptr_null(core_x_nn_from_file(path));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "is empty or has a dot");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_x_nn_from_file("/none"));
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND, "/none",
          "test_network_files.c:");
    scope = core_scope_begin();
    ck_assert_ptr_null(core_x_nn_load(core_x_nn_container(NULL, NULL), NULL));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "path is NULL");
}
END_TEST

/* Whether the call fails with the text. */
#define REFUSED(call, ...)                                     \
    do {                                                       \
        core_scope refused_ = core_scope_begin();              \
        core_module *m = from_file(layers());                  \
        core_tensor *x = core_x_ones(CORE_SIZES(2, 4));        \
                                                               \
        OK(core_scope_status());                               \
        ck_assert(m &&x);                                      \
        ck_assert_ptr_null(call);                              \
        ck_assert_ptr_null(core_x_apply_linear(m, "none", x)); \
        FAILS(core_scope_end(refused_), CORE_ERROR_NOT_FOUND,  \
              "test_network_files.c:", __VA_ARGS__);           \
    } while (0)

START_TEST(what_a_file_lacks_is_named)
{
    REFUSED(core_x_apply_linear(m, "none", x),
            "core_x_apply_linear: a Container has no child \"none\" (in /",
            ": none) (at ");
    REFUSED(core_x_apply_linear(m, "block", x),
            "core_x_apply_linear: \"block\" has no tensor \"weight\" (in /",
            ": block.weight) (at ");
    REFUSED(core_x_apply_conv(m, "block", x),
            "core_x_apply_conv: \"block\" has no");
    REFUSED(core_x_apply_embedding(m, "block", x),
            "core_x_apply_embedding: \"block\" has no");
    REFUSED(core_x_apply_layer_norm(m, "block", x),
            "core_x_apply_layer_norm: \"block\" has no");
    REFUSED(core_x_apply_rms_norm(m, "block", x),
            "core_x_apply_rms_norm: \"block\" has no");
    REFUSED(core_x_apply_group_norm(m, "none", x, 2), "no child \"none\"");
    REFUSED(core_x_apply_batch_norm(m, "none", x), "no child \"none\"");
    REFUSED(core_x_apply_batch_norm(m, "block.up", x),
            "batch_norm: \"block.up\" has no tensor \"running_mean\"");
    REFUSED(core_x_child(m, "none", x), "core_x_child: a Container has no");
}
END_TEST

/* The numbers of an option with a comma. */
#define NUMBERS(...) \
    {                \
        __VA_ARGS__  \
    }

#define REFUSED_NUMBERS(option, text)                                \
    do {                                                             \
        core_scope refused_ = core_scope_begin();                    \
        core_module *m = from_file(layers());                        \
        core_tensor *image = core_x_ones(CORE_SIZES(1, 2, 5, 3));    \
                                                                     \
        ck_assert_ptr_null(                                          \
            core_x_apply_conv_options(m, "convs.1", image, option)); \
        FAILS(core_scope_end(refused_), CORE_ERROR_INVALID_ARGUMENT, \
              "core_x_apply_conv: " text, "test_network_files.c:");  \
    } while (0)

/* Its arguments are 0 after an error, which would look like results. */
START_TEST(nothing_is_printed_after_an_error)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_ones(CORE_SIZES(1));
    char text[64] = "";
    FILE *file;
    int before, other = open(path, O_WRONLY | O_TRUNC);

    fflush(stdout);
    before = dup(STDOUT_FILENO);
    ck_assert_int_ge(dup2(other, STDOUT_FILENO), 0);
    core_x_printf("%g %s\n", core_x_item_float(x), "yes");
    core_x_printf("%g no\n", core_x_item_float(core_x_matmul(x, NULL)));
    core_x_printf("no\n");
    fflush(stdout);
    ck_assert_int_ge(dup2(before, STDOUT_FILENO), 0);
    close(before);
    close(other);
    file = fopen(path, "r");
    ck_assert_uint_eq(fread(text, 1, sizeof text - 1, file), 6);
    ck_assert_str_eq(text, "1 yes\n");
    fclose(file);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "matmul");
}
END_TEST

/* Fully buffered output fails when it is flushed. */
START_TEST(output_that_cannot_be_written_is_an_error)
{
    core_scope scope = core_scope_begin();
    const char *volatile none = NULL;
    int before, full = open("/dev/full", O_WRONLY);

    ck_assert_int_ge(full, 0);
    fflush(stdout);
    before = dup(STDOUT_FILENO);
    ck_assert_int_ge(dup2(full, STDOUT_FILENO), 0);
    core_x_printf("%d\n", 1);
    (void)core_scope_status();
    ck_assert_int_eq(core_scope_exit(scope), EXIT_FAILURE);
    FAILS(core_error_code(), CORE_ERROR_IO, "cannot write");
    ck_assert_int_ge(dup2(before, STDOUT_FILENO), 0);
    clearerr(stdout);
    close(before);
    close(full);
    scope = core_scope_begin();
    ck_assert_int_eq(core_scope_exit(scope), EXIT_SUCCESS);
    scope = core_scope_begin();
    core_x_printf(none);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "core_x_printf: the argument format is NULL (at ");
}
END_TEST

static void without(const char *text)
{
    if (strstr(core_error_message(), text))
        ck_abort_msg("\"%s\" in: %s", text, core_error_message());
}

static void saves(const char *file, const char *name)
{
    core_scope scope = core_scope_begin();

    core_x_save(file, {name, core_x_ones(CORE_SIZES(2))});
    OK(core_scope_end(scope));
}

/* The message of what the module lacks at a path. */
static const char *lacks(core_module *m, const char *name)
{
    core_scope scope = core_scope_begin();

    ck_assert_ptr_null(core_x_nn_tensor_at(CORE_HERE, m, name));
    FAILS(core_scope_end(scope), CORE_ERROR_NOT_FOUND, name);
    return core_error_message();
}

START_TEST(errors_name_the_file_of_each_module)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_module *n = core_x_nn_container(NULL, NULL);
    temporary_path other;

    temporary_file(other, "other");
    saves(path, "encoder.weight");
    saves(other, "decoder.weight");
    core_x_nn_load_all(m, path);
    ck_assert_ptr_nonnull(strstr(lacks(m, "none"), path));
    OK(core_module_load(m, other, NULL,
                        CORE_MODULE_ADD | CORE_MODULE_ALLOW_MISSING, NULL));
    lacks(m, "none");
    without(path);
    without(other);
    ck_assert_ptr_nonnull(strstr(lacks(m, "decoder.none"), other));
    without(path);
    ck_assert_ptr_nonnull(strstr(lacks(m, "encoder.none"), path));
    saves(other, "encoder.weight"); /* the same tensor of another file */
    OK(core_module_load(
        m, other, NULL,
        CORE_MODULE_ALLOW_MISSING | CORE_MODULE_ALLOW_UNEXPECTED, NULL));
    lacks(m, "encoder.none");
    without(path);
    without(other);
    /* A load that fails is not where the module is from. */
    saves(path, "a..b");
    FAILS(core_module_load(n, path, NULL, CORE_MODULE_ADD, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "is empty or has a dot", path);
    lacks(n, "none");
    without(path);
    /* Prefixes need not end in a dot. */
    saves(path, "model_weight");
    OK(core_module_load(n, path, "model_", CORE_MODULE_ADD, NULL));
    ck_assert_ptr_nonnull(strstr(lacks(n, "none"), ": model_none) (at "));
    temporary_remove(other);
    OK(core_scope_end(scope));
}
END_TEST

/* Also one whose name is part of the message in another place. */
START_TEST(errors_of_a_load_name_the_file)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    char before[512], folder[] = "/tmp/libcore-XXXXXX";

    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(mkdtemp(folder)), 0);
    saves("e", "weight");
    core_x_nn_linear(m, "fc", 1, 1, false);
    FAILS(core_module_load(m, "e", NULL, 0, NULL), CORE_ERROR_NOT_FOUND,
          "missing fc.weight", " (in e)");
    ck_assert_int_eq(unlink("e"), 0);
    FAILS(core_module_load(m, "e", NULL, 0, NULL), CORE_ERROR_NOT_FOUND, "e");
    without("(in e)");
    ck_assert_int_eq(chdir(before), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(numbers_of_convolutions_are_checked)
{
    REFUSED_NUMBERS(.stride = NUMBERS(2, -1),
                    "stride[1] is -1; it must be at least 1");
    REFUSED_NUMBERS(.padding = NUMBERS(-1),
                    "padding[0] is -1; it must be at least 0");
    REFUSED_NUMBERS(.dilation = NUMBERS(1, -2), "dilation[1] is -2");
    REFUSED_NUMBERS(.padding = NUMBERS(1, -2), "padding[1] is -2");
}
END_TEST

START_TEST(a_module_of_a_file_has_no_function)
{
    core_scope scope = core_scope_begin();
    core_module *m = from_file(layers());
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4));

    ck_assert_ptr_null(core_x_child(m, "block.up", x));
    FAILS(core_scope_end(scope), CORE_ERROR_UNSUPPORTED,
          "this Container only holds other modules");
}
END_TEST

static core_status all_of_it(void)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *x = core_x_ones(CORE_SIZES(2, 4));

    core_x_nn_linear(m, "block.up", 4, 8);
    core_x_inference(core_x_nn_load_all(m, path));
    x = core_x_apply_linear(m, "block.down", core_x_child(m, "block.up", x));
    x = core_x_apply_layer_norm(m, "norm.layer", x);
    x = core_x_part(x, "..., None, *:", 1);
    return core_scope_end(scope);
}

START_TEST(nothing_is_lost_without_memory)
{
    core_scope scope = core_scope_begin();

    CORE_CHECK(core_module_save(layers(), path));
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
        layers_of_a_file_compute_what_modules_do,
        layers_and_a_file_are_one_network,
        what_is_added_is_reported,
        names_that_are_no_paths_are_refused,
        what_a_file_lacks_is_named,
        nothing_is_printed_after_an_error,
        output_that_cannot_be_written_is_an_error,
        errors_name_the_file_of_each_module,
        errors_of_a_load_name_the_file,
        numbers_of_convolutions_are_checked,
        a_module_of_a_file_has_no_function,
        nothing_is_lost_without_memory,
    };
    const test_suite suite = {.name = "nn/network_files",
                              .setup = set_up,
                              .teardown = tear_down,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
