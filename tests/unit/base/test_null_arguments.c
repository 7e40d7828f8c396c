/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* NULL where a pointer is required is an error that names call and argument. */

#include "support/suite.h"
#include "support/temporary_files.h"

#include <libcore/core.h>
#include <libcore/optim.h>
#include <libcore/plugins.h>
#include <libcore/safetensors.h>

#include <string.h>

static core_tensor *tensor;
static core_tensor *result;
static const int64_t sizes[2] = {2, 3};

static void start(void)
{
    result = NULL;
    ck_assert_msg(core_zeros(sizes, 2, CORE_F32, NULL, &tensor) == CORE_OK,
                  "%s", core_error_message());
}

static void stop(void)
{
    core_tensor_release(tensor);
    core_tensor_release(result);
}

static void refused(core_status status, const char *call, const char *argument)
{
    ck_assert_int_eq(status, CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_msg(strstr(core_error_message(), call) &&
                      strstr(core_error_message(), argument),
                  "%s, %s: %s", call, argument, core_error_message());
    core_error_clear();
}

START_TEST(null_in_tensor_calls_is_named)
{
    float data[6] = {0};
    core_scalar scalar;
    char *text;
    void *address;
    double number;
    int64_t integer;

    refused(core_tensor_print(NULL), "core_tensor_print", "tensor");
    refused(core_tensor_format(NULL, &text), "core_tensor_format", "tensor");
    refused(core_tensor_format(tensor, NULL), "core_tensor_format", "out_text");
    refused(core_tensor_read(NULL, data, 24), "core_tensor_read", "tensor");
    refused(core_tensor_read(tensor, NULL, 24), "core_tensor_read", "data");
    refused(core_tensor_write(NULL, data, 24), "core_tensor_write", "tensor");
    refused(core_tensor_write(tensor, NULL, 24), "core_tensor_write", "data");
    refused(core_tensor_data(NULL, &address), "core_tensor_data", "tensor");
    refused(core_tensor_data(tensor, NULL), "core_tensor_data", "out_data");
    refused(core_tensor_item(NULL, &scalar), "core_tensor_item", "tensor");
    refused(core_tensor_item_float(NULL, &number), "core_tensor_item_float",
            "tensor");
    refused(core_tensor_item_int(NULL, &integer), "core_tensor_item_int",
            "tensor");
    refused(core_tensor_item_int(tensor, NULL), "core_tensor_item_int",
            "out_value");
    refused(core_tensor_from_data(NULL, CORE_F32, sizes, 2, NULL, &result),
            "core_tensor_from_data", "data");
    refused(core_tensor_from_data(data, CORE_F32, NULL, 2, NULL, &result),
            "core_tensor_from_data", "sizes");
    refused(core_tensor_from_data(data, CORE_F32, sizes, 2, NULL, NULL),
            "core_tensor_from_data", "out_tensor");
    ck_assert_ptr_null(result);
}
END_TEST

START_TEST(null_in_typed_operator_calls_is_named)
{
    core_tensor *kept = tensor, **parts = &kept;
    size_t count;

    result = tensor; /* a failing call sets it to NULL */
    refused(core_zeros(NULL, 2, CORE_F32, NULL, &result), "core_zeros", "size");
    ck_assert_ptr_null(result);
    refused(core_cat(NULL, 3, 0, &result), "core_cat", "tensors");
    refused(core_reshape(tensor, NULL, 2, &result), "core_reshape", "shape");
    refused(core_neg(NULL, &result), "neg", "argument 1");
    refused(core_add(tensor, NULL, core_int(1), &result), "add", "argument 2");
    ck_assert_ptr_eq(tensor, kept);
    refused(core_neg(tensor, NULL), "core_neg", "argument out is NULL");
    refused(core_sort(tensor, 0, false, &result, NULL), "core_sort",
            "out_indices");
    ck_assert_ptr_null(result);
    result = tensor;
    refused(core_sort(tensor, 0, false, NULL, &result), "core_sort",
            "out_values");
    ck_assert_ptr_null(result);
    refused(core_split(tensor, 1, 0, NULL, &count), "core_split", "out");
    refused(core_split(tensor, 1, 0, &parts, NULL), "core_split", "out_count");
    ck_assert_ptr_null(parts);
    refused(core_item(tensor, NULL), "core_item", "out");
    result = tensor;
    refused(core_gelu(tensor, NULL, &result), "core_gelu", "approximate");
    ck_assert_ptr_null(result);
    refused(core_linalg_qr(tensor, NULL, &result, &kept), "core_linalg_qr",
            "mode");
    refused(core_linalg_eigh_parts(tensor, NULL, true, &result, &kept),
            "core_linalg_eigh_parts", "UPLO");
    refused(core_segment_reduce(tensor, NULL, NULL, NULL, NULL, 0, false, NULL,
                                &result),
            "core_segment_reduce", "reduce");
    refused(core_scatter_value_reduce_(tensor, 0, tensor, core_int(1), NULL),
            "core_scatter_value_reduce_", "reduce");
    /* An empty list may have no address. */
    ck_assert_int_eq(core_zeros(NULL, 0, CORE_F32, NULL, &result), CORE_OK);
}
END_TEST

START_TEST(null_in_calls_by_name_is_named)
{
    core_value value = {CORE_VALUE_INT_LIST, 2, {0}};
    core_value answer;
    core_operator *op;

    refused(core_op_find(NULL, &op), "core_op_find", "name");
    ck_assert_int_eq(core_op_find("zeros", &op), CORE_OK);
    refused(core_op_call(NULL, &value, 1, &answer, 1), "core_op_call", "op");
    refused(core_op_call(op, NULL, 1, &answer, 1), "core_op_call", "args");
    refused(core_op_call(op, &value, 1, NULL, 1), "core_op_call", "results");
    refused(core_op_call(op, &value, 1, &answer, 1), "zeros", "size");
    refused(core_redispatch_below(NULL, &value, 1, &answer, 1),
            "core_redispatch_below", "call");
    ck_assert_str_eq(core_op_name(NULL), "");
    ck_assert_str_eq(core_op_schema(NULL), "");
    ck_assert_uint_eq(core_op_conversions(NULL, CORE_CONVERSION_CAST), 0);
}
END_TEST

static core_status nothing(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)call;
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return CORE_OK;
}

START_TEST(null_in_registrations_and_settings_is_named)
{
    core_registration *made;
    const char *text;

    refused(core_op_register(NULL, &made), "core_op_register", "schema");
    refused(core_op_register("null::f(Tensor x) -> Tensor", NULL),
            "core_op_register", "out_registration");
    refused(core_op_register("aten::f(Tensor x) -> Tensor", &made), "aten::f",
            "reserved for libcore");
    ck_assert_ptr_null(made);
    refused(core_function_register(NULL, CORE_KEY_AUTOGRAD, NULL, nothing, NULL,
                                   &made),
            "core_function_register", "operator_name");
    refused(core_function_register("neg", CORE_KEY_AUTOGRAD, NULL, NULL, NULL,
                                   &made),
            "core_function_register", "function");
    refused(core_setting_set(NULL, "1"), "core_setting_set", "name");
    refused(core_setting_get(NULL, &text), "core_setting_get", "name");
    refused(core_setting_describe(0, NULL), "core_setting_describe",
            "out_information");
}
END_TEST

static void release_memory(void *context, void *data)
{
    (void)data;
    ++*(int *)context;
}

START_TEST(null_in_calls_with_memory_of_the_caller_is_named)
{
    float data[6] = {0};
    int released = 0;

    refused(core_tensor_from_memory(data, CORE_F32, sizes, 2, release_memory,
                                    &released, NULL),
            "core_tensor_from_memory", "out_tensor");
    ck_assert_int_eq(released, 1);
    refused(core_tensor_from_memory(data, CORE_F32, NULL, 2, release_memory,
                                    &released, &result),
            "core_tensor_from_memory", "sizes");
    ck_assert_int_eq(released, 2);
    ck_assert_ptr_null(result);
    refused(core_tensor_from_memory(NULL, CORE_F32, sizes, 2, release_memory,
                                    &released, &result),
            "core_tensor_from_memory", "data");
    ck_assert_int_eq(released, 3);
    ck_assert_ptr_null(result);
    refused(core_tensor_from_memory(data, CORE_F32, NULL, 2, NULL, NULL, NULL),
            "core_tensor_from_memory", "out_tensor");
    ck_assert_int_eq(
        core_tensor_from_memory(data, CORE_F32, NULL, 0, NULL, NULL, &result),
        CORE_OK);
}
END_TEST

START_TEST(null_in_stream_event_pool_and_graph_calls_is_named)
{
    ck_assert_ptr_null(core_tensor_retain(NULL));
    ck_assert_ptr_null(core_stream_retain(NULL));
    ck_assert_ptr_null(core_stream_device(NULL));
    ck_assert_uint_eq(core_stream_id(NULL), 0);
    core_stream_release(NULL);
    core_stream_guard_leave(NULL);
    core_device_guard_leave(NULL);
    ck_assert_ptr_null(core_event_retain(NULL));
    ck_assert_ptr_null(core_event_device(NULL));
    core_event_release(NULL);
    ck_assert_uint_eq(core_device_events_created(NULL), 0);
    ck_assert_ptr_null(core_memory_pool_retain(NULL));
    core_memory_pool_release(NULL);
    ck_assert_ptr_null(core_graph_retain(NULL));
    ck_assert_ptr_null(core_graph_pool(NULL));
    core_graph_release(NULL);
}
END_TEST

START_TEST(null_in_file_calls_is_named)
{
    core_named_tensor named = {"name", tensor};
    core_safetensors_entry entry = {.struct_size = sizeof entry};
    core_safetensors *file;
    temporary_path path;

    temporary_file(path, "libcore-null");
    refused(core_safetensors_save(NULL, &named, 1, NULL, 0),
            "core_safetensors_save", "path");
    refused(core_safetensors_save(path, NULL, 1, NULL, 0),
            "core_safetensors_save", "tensors");
    refused(core_safetensors_save(path, &named, 1, NULL, 1),
            "core_safetensors_save", "texts");
    refused(core_safetensors_open(path, NULL), "core_safetensors_open",
            "out_file");
    refused(core_safetensors_map(path, NULL), "core_safetensors_map",
            "out_file");
    ck_assert_int_eq(core_safetensors_save(path, &named, 1, NULL, 0), CORE_OK);
    ck_assert_int_eq(core_safetensors_open(path, &file), CORE_OK);
    unlink(path);
    refused(core_safetensors_describe(NULL, 0, &entry),
            "core_safetensors_describe", "file");
    entry.struct_size = 8;
    refused(core_safetensors_describe(file, 0, &entry),
            "core_safetensors_describe: struct_size is 8",
            "core_safetensors_entry");
    refused(core_safetensors_describe(file, 0, NULL),
            "core_safetensors_describe", "out_entry");
    refused(core_safetensors_load(NULL, "name", NULL, &result),
            "core_safetensors_load", "file");
    refused(core_safetensors_load(file, NULL, NULL, &result),
            "core_safetensors_load", "name");
    refused(core_safetensors_load(file, "name", NULL, NULL),
            "core_safetensors_load", "out_tensor");
    refused(core_safetensors_load_into(NULL, "name", tensor),
            "core_safetensors_load_into", "file");
    refused(core_safetensors_load_into(file, NULL, tensor),
            "core_safetensors_load_into", "name");
    refused(core_safetensors_load_into(file, "name", NULL),
            "core_safetensors_load_into", "into");
    core_safetensors_close(file);
    core_safetensors_close(NULL);
}
END_TEST

START_TEST(null_in_plugin_and_error_calls_is_named)
{
    core_plugin_information plugin = {.struct_size = sizeof plugin};

    refused(core_plugin_load(NULL, NULL), "core_plugin_load", "path");
    refused(core_plugin_load("", NULL), "core_plugin_load", "path is empty");
    refused(core_plugin_describe(NULL, &plugin), "core_plugin_describe",
            "plugin");
    refused(core_plugin_describe(core_plugin_at(0), NULL),
            "core_plugin_describe", "out_information");
    refused(core_plugin_unload(NULL, 0), "core_plugin_unload", "plugin");
    refused(core_backend_describe(0, NULL), "core_backend_describe",
            "out_information");
    refused(core_error_detach(NULL), "core_error_detach", "out_error");
}
END_TEST

START_TEST(null_in_optimizer_calls_is_named)
{
    core_adam_options adam = {.struct_size = sizeof adam};
    core_optimizer *optimizer;

    refused(core_sgd_create(&tensor, 1, NULL, &optimizer), "core_sgd_create",
            "options");
    refused(core_adam_create(&tensor, 1, NULL, &optimizer), "core_adam_create",
            "options");
    refused(core_adam_create(NULL, 1, &adam, &optimizer), "core_adam_create",
            "parameters");
    refused(core_adam_create(&tensor, 1, &adam, NULL), "core_adam_create",
            "out_optimizer");
    refused(core_optimizer_step(NULL), "core_optimizer_step", "optimizer");
    core_optimizer_zero_grad(NULL);
}
END_TEST

/* A struct_size too small for any field; `call` fills a `struct type`. */
#define NO_ROOM(type, name, call)                           \
    do {                                                    \
        for (uint32_t size_ = 0; size_ <= 8; size_ += 4) {  \
            type out = {.struct_size = size_};              \
            refused(call, name ": struct_size is ", #type); \
        }                                                   \
    } while (0)

START_TEST(structs_too_small_for_any_field_are_refused)
{
    core_device *cpu = core_tensor_device(tensor);
    struct {
        core_device_properties properties;
        uint64_t behind;
    } given;

    NO_ROOM(core_device_counts, "core_device_get_counts",
            core_device_get_counts(cpu, &out));
    NO_ROOM(core_device_properties, "core_device_get_properties",
            core_device_get_properties(cpu, &out));
    NO_ROOM(core_device_information, "core_device_get_information",
            core_device_get_information(cpu, &out));
    NO_ROOM(core_numerics, "core_device_get_numerics",
            core_device_get_numerics(cpu, &out));
    NO_ROOM(core_measurement, "core_device_measure",
            core_device_measure(cpu, 0, &out));
    NO_ROOM(core_setting_information, "core_setting_describe",
            core_setting_describe(0, &out));
    NO_ROOM(core_plugin_information, "core_plugin_describe",
            core_plugin_describe(core_plugin_at(0), &out));
    NO_ROOM(core_backend_information, "core_backend_describe",
            core_backend_describe(0, &out));
    NO_ROOM(core_memory_stats, "core_memory_get_stats",
            core_memory_get_stats(cpu, &out));
    /* A struct as an older header has it is filled, and no bytes after it. */
    memset(&given, 0xee, sizeof given);
    given.properties.struct_size =
        offsetof(core_device_properties, max_streams);
    ck_assert_int_eq(core_device_get_properties(cpu, &given.properties),
                     CORE_OK);
    ck_assert_uint_eq(given.properties.struct_size,
                      offsetof(core_device_properties, max_streams));
    ck_assert_uint_eq(given.properties.max_streams & 0xff, 0xee);
}
END_TEST

START_TEST(null_in_derivative_calls_is_named)
{
    core_function_info info = {.struct_size = sizeof info};
    core_node *node;
    core_sgd_options sgd = {.struct_size = 8};
    core_optimizer *optimizer;

    ck_assert_int_eq(core_tensor_set_requires_grad(tensor, true), CORE_OK);
    refused(core_function_record(NULL, &tensor, 1, NULL, 0, &tensor, 1, &node),
            "core_function_record", "info");
    refused(core_grad(&tensor, 1, NULL, NULL, 1, 0, &result), "core_grad",
            "inputs");
    refused(core_grad(&tensor, 1, NULL, &tensor, 1, 0, NULL), "core_grad",
            "out_grads");
    refused(core_grad(NULL, 1, NULL, &tensor, 1, 0, &result), "core_grad",
            "outputs");
    refused(core_backward(NULL, 1, NULL, 0), "core_backward", "tensors");
    refused(core_sgd_create(&tensor, 1, &sgd, &optimizer), "core_sgd_create",
            "struct_size is 8");
}
END_TEST

START_TEST(null_in_generator_calls_is_named)
{
    core_generator *generator;
    uint64_t seed = 0, offset = 1;

    refused(core_generator_default(NULL, &generator), "core_generator_default",
            "device");
    ck_assert_ptr_null(generator);
    refused(core_generator_default(NULL, NULL), "core_generator_default",
            "out_generator");
    refused(core_generator_create(1, NULL), "core_generator_create",
            "out_generator");
    ck_assert_int_eq(core_generator_create(7, &generator), CORE_OK);
    core_generator_state(generator, &seed, NULL);
    ck_assert_uint_eq(seed, 7);
    core_generator_state(generator, NULL, &offset);
    ck_assert_uint_eq(offset, 0);
    core_generator_state(generator, NULL, NULL);
    core_generator_release(generator);
    core_generator_release(NULL);
    core_generator_set_state(NULL, 3, 4);
    core_generator_state(NULL, &seed, &offset);
    ck_assert(seed == 3 && offset == 4);
    core_generator_seed(NULL, 5);
    core_generator_state(NULL, &seed, &offset);
    ck_assert(seed == 5 && offset == 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        null_in_tensor_calls_is_named,
        null_in_typed_operator_calls_is_named,
        null_in_calls_by_name_is_named,
        null_in_registrations_and_settings_is_named,
        null_in_calls_with_memory_of_the_caller_is_named,
        null_in_stream_event_pool_and_graph_calls_is_named,
        null_in_file_calls_is_named,
        null_in_plugin_and_error_calls_is_named,
        null_in_optimizer_calls_is_named,
        null_in_generator_calls_is_named,
        structs_too_small_for_any_field_are_refused,
        null_in_derivative_calls_is_named,
    };
    const test_suite suite = {
        .name = "base/null_arguments",
        .setup = start,
        .teardown = stop,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
