/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Old plugins on a new core, new ones on an old core, and one of the future:
 * docs/abi.md 4, 5 and 8.  The plugins are those of tests/abi; its old_host
 * tests the other direction of the same rules. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/loader.h"

#include "codegen/loop_kernel.h"
#include "dispatch/dispatch.h"
#include "loader/plugin_note.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>

#include <sys/stat.h>
#include <sys/wait.h>

static const char *abi_plugin(const char *name)
{
    static path_text text;
    const char *build = getenv("LIBCORE_BUILD");

    snprintf(text, sizeof text, "%s/tests/abi/.libs/core_%s.so",
             build ? build : ".", name);
    ck_assert_msg(access(text, R_OK) == 0, "%s was not built", text);
    return text;
}

static void setup(void)
{
    const char *build = getenv("LIBCORE_BUILD");
    path_text path;

    folder_make();
    snprintf(path, sizeof path, "%s/.libs", build ? build : ".");
    core_setting_set("LIBCORE_PLUGIN_PATH", path); /* cpu */
}

static void teardown(void)
{
    drop_all();
    folder_remove();
}

/* Loads the plugin; returns the negotiated minor. */
static uint32_t load(const char *name)
{
    core_plugin_information p = {.struct_size = sizeof p};
    core_plugin *plugin;

    OK(core_plugin_load(abi_plugin(name), &plugin));
    OK(core_plugin_describe(plugin, &p));
    return p.abi_minor;
}

static core_tensor *on(const char *type, const float *values)
{
    core_device *device;
    core_tensor *tensor;

    OK(core_device_find(type, &device));
    OK(core_tensor_from_data(values, CORE_F32, (int64_t[]){4}, 1, device,
                             &tensor));
    return keep(tensor);
}

static void reads(core_tensor *tensor, const float *values)
{
    float got[4];

    OK(core_tensor_read(tensor, got, sizeof got));
    for (int i = 0; i < 4; i++)
        ck_assert_float_eq(got[i], values[i]);
}

/* Kernels, an operator of the plugin, and errors of both. */
static void computes(const char *type, const char *operator_name)
{
    core_tensor *a = on(type, (float[]){1, -2, 3, -4});
    core_value argument = {CORE_VALUE_TENSOR, 0, {.tensor = a}};
    core_value result = {0};
    core_operator *op;
    core_tensor *out;

    reads(CALL(neg, a), (float[]){-1, 2, -3, 4});
    reads(CALL(mul, a, a), (float[]){1, 4, 9, 16});
    OK(core_op_find(operator_name, &op));
    OK(core_op_call(op, &argument, 1, &result, 1));
    reads(keep(result.u.tensor), (float[]){1, 4, 9, 16});
    FAILS(core_exp(a, &out), CORE_ERROR_NO_KERNEL, "exp", type);
    ck_assert_ptr_null(out);
}

/* The two numbers that the plugin reported. */
static void reported(const char *name, long long first, long long second)
{
    const char *text = getenv(name);
    long long a = -1, b = -1;

    ck_assert_msg(text != NULL, "%s was not reported", name);
    ck_assert_int_eq(sscanf(text, "%lld %lld", &a, &b), 2);
    ck_assert_int_eq(a, first);
    ck_assert_int_eq(b, second);
}

enum {
    HOST_SIZE_0_1 = 8 + 8 * 20,
    HOST_SIZE_0_2 = 8 + 8 * 28,
    HOST_SIZE_0_3 = 8 + 8 * 29,
    HOST_SIZE_0_4 = 8 + 8 * 31,
    HOST_SIZE_0_5 = HOST_SIZE_0_4,
    PROPERTIES_SIZE_0_1 = 56,
    PROPERTIES_SIZE_0_2 = 64
};

START_TEST(plugin_of_0_1_runs_in_this_core)
{
    ck_assert_uint_eq(load("abi_0_1"), 1);
    computes("abione", "abi_0_1::squared");
    reported("ABI_HOST", 1, HOST_SIZE_0_1);
    reported("ABI_PROPERTIES", PROPERTIES_SIZE_0_1, PROPERTIES_SIZE_0_1);
    /* Interfaces were added in 0.2. */
    ck_assert_ptr_null(getenv("ABI_INTERFACES"));
}
END_TEST

START_TEST(plugin_of_0_2_has_the_features_of_0_2)
{
    core_tensor *a;

    ck_assert_uint_eq(load("abi_0_2"), 2);
    computes("abitwo", "abi_0_2::squared");
    reported("ABI_HOST", 2, HOST_SIZE_0_2);
    reported("ABI_PROPERTIES", PROPERTIES_SIZE_0_2, PROPERTIES_SIZE_0_2);
    ck_assert_ptr_nonnull(getenv("ABI_INTERFACES"));
    a = on("abitwo", (float[]){1, -2, 3, -4});
    reads(CALL(abs, a), (float[]){1, 2, 3, 4});
    reads(CALL(abs, a), (float[]){1, 2, 3, 4});
    reported("ABI_PLANS", 1, 0);
}
END_TEST

START_TEST(plugin_of_0_2_runs_in_a_core_of_0_1)
{
    core_tensor *a, *out;

    core__abi_minor_offered = 1;
    ck_assert_uint_eq(load("abi_0_2"), 1);
    computes("abitwo", "abi_0_2::squared");
    reported("ABI_HOST", 1, HOST_SIZE_0_1);
    ck_assert_ptr_null(getenv("ABI_INTERFACES"));
    /* It does not register its kernels with plans. */
    a = on("abitwo", (float[]){1, -2, 3, -4});
    FAILS(core_abs(a, &out), CORE_ERROR_NO_KERNEL, "abs");
    ck_assert_ptr_null(getenv("ABI_PLANS"));
}
END_TEST

/* Each plugin has a different folder, accessible only to the user, inside the
 * one that LIBCORE_CACHE names. */
static void has_a_folder(const char *parent)
{
    const char *path = getenv("ABI_CACHE");
    path_text want;
    struct stat status;

    snprintf(want, sizeof want, "%s/abi_0_3", parent);
    ck_assert_ptr_nonnull(path);
    ck_assert_str_eq(path, want);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert(S_ISDIR(status.st_mode));
    ck_assert_uint_eq(status.st_mode & 0777, 0700);
}

START_TEST(plugin_of_0_3_has_the_features_of_0_3)
{
    core_numerics numerics = {.struct_size = sizeof numerics};
    core_measurement one = {.struct_size = sizeof one};
    core_device *device;
    double ulp;

    OK(core_setting_set("LIBCORE_CACHE", inside("kept/here")));
    ck_assert_uint_eq(load("abi_0_3"), 3);
    computes("abithree", "abi_0_3::squared");
    reported("ABI_HOST", 3, HOST_SIZE_0_3);
    has_a_folder(inside("kept/here"));
    OK(core_device_find("abithree", &device));
    OK(core_device_get_numerics(device, &numerics));
    reported("ABI_NUMERICS", sizeof numerics, sizeof numerics);
    ck_assert_uint_eq(numerics.product_bits, 11);
    OK(core_device_function_ulp(device, "exp", CORE_F32, &ulp));
    ck_assert_double_eq(ulp, 12);
    OK(core_device_function_ulp(device, "exp", CORE_F64, &ulp));
    ck_assert_double_eq(ulp, 8);
    OK(core_device_measure(device, 1, &one));
    ck_assert_int_eq(strncmp(one.key.data, "power", one.key.size), 0);
    ck_assert_double_eq(one.value, 250);
    FAILS(core_device_measure(device, 2, &one), CORE_ERROR_NOT_FOUND,
          "it has 2");
}
END_TEST

START_TEST(plugin_of_0_3_runs_in_a_core_of_0_2)
{
    core_numerics numerics = {.struct_size = sizeof numerics};
    core_device *device;
    double ulp;

    core__abi_minor_offered = 2;
    ck_assert_uint_eq(load("abi_0_3"), 2);
    computes("abithree", "abi_0_3::squared");
    reported("ABI_HOST", 2, HOST_SIZE_0_2);
    ck_assert_ptr_null(getenv("ABI_CACHE"));
    /* The core does not query the preference: the plugin behaves like one that
     * has none. */
    OK(core_device_find("abithree", &device));
    OK(core_device_get_numerics(device, &numerics));
    ck_assert_uint_eq(numerics.product_bits, 0);
    OK(core_device_function_ulp(device, "exp", CORE_F32, &ulp));
    ck_assert_double_eq(ulp, 4);
    ck_assert_ptr_null(getenv("ABI_NUMERICS"));
}
END_TEST

START_TEST(plugin_of_0_4_has_the_features_of_0_4)
{
    ck_assert_uint_eq(load("abi_0_4"), 4);
    computes("abifour", "abi_0_4::squared");
    reported("ABI_HOST", 4, HOST_SIZE_0_4);
    /* Its device is synchronous, so there is nothing to wait for. */
    reported("ABI_RECORDED", CORE_OK, 0);
}
END_TEST

START_TEST(plugin_of_0_4_runs_in_a_core_of_0_3)
{
    core__abi_minor_offered = 3;
    ck_assert_uint_eq(load("abi_0_4"), 3);
    computes("abifour", "abi_0_4::squared");
    reported("ABI_HOST", 3, HOST_SIZE_0_3);
    ck_assert_ptr_null(getenv("ABI_RECORDED"));
}
END_TEST

/* The plugin's preferred format of convolutions, and how often the core queried
 * it. */
static uint32_t prefers(const char *type, const char *asked)
{
    core_device *device;
    const char *text;
    uint32_t format;

    OK(core_device_find(type, &device));
    OK(core_device_preferred_format(device, "convolution", CORE_F32, 4,
                                    &format));
    text = getenv("ABI_LAYOUT");
    ck_assert_str_eq(text ? text : "", asked);
    return format;
}

static uint32_t memory_kinds(const char *type)
{
    core_device *device;
    uint32_t kinds;

    OK(core_device_find(type, &device));
    OK(core_device_memory_kinds(device, &kinds));
    return kinds;
}

START_TEST(plugin_of_0_5_has_the_features_of_0_5)
{
    ck_assert_uint_eq(load("abi_0_5"), 5);
    computes("abifive", "abi_0_5::squared");
    reported("ABI_HOST", 5, HOST_SIZE_0_5);
    ck_assert_uint_eq(prefers("abifive", "1 0"), CORE_FORMAT_CHANNELS_LAST);
    /* It is queried once. */
    ck_assert_uint_eq(prefers("abifive", "1 0"), CORE_FORMAT_CHANNELS_LAST);
    ck_assert_uint_eq(memory_kinds("abifive"), CORE_MEMORY_UNIFIED);
}
END_TEST

START_TEST(plugin_of_0_5_runs_in_a_core_of_0_4)
{
    core__abi_minor_offered = 4;
    ck_assert_uint_eq(load("abi_0_5"), 4);
    computes("abifive", "abi_0_5::squared");
    reported("ABI_HOST", 4, HOST_SIZE_0_4);
    ck_assert_uint_eq(prefers("abifive", ""), CORE_FORMAT_CONTIGUOUS);
    ck_assert_uint_eq(memory_kinds("abifive"), CORE_MEMORY_DEVICE);
}
END_TEST

/* The message for a loop program with one load, neg and store. */
static void program_is_refused(const char *type, const char *message)
{
    core_loop_program *program;
    core__loop_writer w;
    core_device *device;
    uint32_t a, out;

    OK(core_device_find(type, &device));
    core__loop_writer_begin(&w, 0);
    a = core__loop_write(&w, CORE_LOOP_LOAD, CORE_F32,
                         core__loop_write_operand(&w, CORE_F32, 0), 0, 0);
    a = core__loop_write(&w, CORE_LOOP_NEG, CORE_F32, a, 0, 0);
    out = core__loop_write_operand(&w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT);
    core__loop_write(&w, CORE_LOOP_STORE, 0, out, a, 0);
    OK(core__loop_writer_finish(&w, &program, NULL));
    core__loop_writer_end(&w);
    FAILS(core__loop_kernel_accepts(device, program), CORE_ERROR_UNSUPPORTED,
          message);
    core__loop_program_release(program);
}

START_TEST(plugin_of_0_6_has_the_features_of_0_6)
{
    core_device *device;
    core_value argument = {.tag = CORE_VALUE_TENSOR}, result = {0};
    core_operator *op;

    ck_assert_uint_eq(load("abi_0_6"), 6);
    computes("abisix", "abi_0_6::squared");
    reported("ABI_HOST", 6, sizeof(core_host));
    reported("ABI_PROPERTIES", sizeof(core_device_properties),
             sizeof(core_device_properties));
    reported("ABI_DEVICE_ID", 1, 0);
    reported("ABI_CONTENT", CORE_ERROR_INVALID_ARGUMENT, 0);
    reported("ABI_DISPLACED", CORE_ERROR_INVALID_ARGUMENT, 0);
    OK(core_device_find_id("abisix", "the only one", &device));
    OK(core__host.devices_changed((core_string){"abisix", 6}));
    ck_assert_uint_gt(core_device_changes(), 0);
    OK(core_device_find("abisix", &device));
    reported("ABI_DEVICE_ID", 2, 0);
    argument.u.tensor = on("abisix", (float[]){1, -2, 3, -4});
    OK(core_op_find("abi_0_6::twice", &op));
    OK(core_op_call(op, &argument, 1, &result, 1));
    reads(keep(result.u.tensor), (float[]){2, -4, 6, -8});
    reported("ABI_OWN", 1, 4);
    program_is_refused("abisix", "no loop programs today");
    reported("ABI_PROGRAM", sizeof(core_loop_program), 3);
}
END_TEST

START_TEST(hotplug_without_a_stable_id_is_refused)
{
    core_device *device;

    setenv("ABI_NO_STABLE_ID", "1", 1);
    ck_assert_uint_eq(load("abi_0_6"), 6);
    FAILS(core_device_find("abisix", &device), CORE_ERROR_REFUSED,
          "device_information reports no stable_id");
    ck_assert_ptr_null(device);
    unsetenv("ABI_NO_STABLE_ID");
}
END_TEST

START_TEST(plugin_of_0_6_runs_in_a_core_of_0_5)
{
    core_device *device;
    core_operator *op;

    core__abi_minor_offered = 5;
    ck_assert_uint_eq(load("abi_0_6"), 5);
    computes("abisix", "abi_0_6::squared");
    reported("ABI_HOST", 5, HOST_SIZE_0_5);
    ck_assert_uint_eq(prefers("abisix", "1 0"), CORE_FORMAT_CHANNELS_LAST);
    reported("ABI_PROPERTIES", PROPERTIES_SIZE_0_2,
             sizeof(core_device_properties));
    /* core.hotplug is not queried. */
    FAILS(core_device_find_id("abisix", "the only one", &device),
          CORE_ERROR_NOT_FOUND, "the only one");
    ck_assert_ptr_null(getenv("ABI_DEVICE_ID"));
    FAILS(core__host.devices_changed((core_string){"abisix", 6}),
          CORE_ERROR_UNSUPPORTED, "abisix", "core.hotplug");
    ck_assert_ptr_null(getenv("ABI_DISPLACED"));
    /* Without register_shape its operator has no kernel. */
    FAILS(core_op_find("abi_0_6::twice", &op), CORE_ERROR_NOT_FOUND,
          "abi_0_6::twice");
    /* core.codegen is not queried. */
    program_is_refused("abisix", "does not provide core.codegen");
    ck_assert_ptr_null(getenv("ABI_PROGRAM"));
}
END_TEST

/* Checks the bytes that a kernel of the plugin received last, and that it was
 * called. */
static void saw_bytes(void)
{
    const char *text = getenv("ABI_DTYPE");

    ck_assert_msg(text && strtol(text, NULL, 10) == CORE_U8,
                  "the plugin saw dtype %s", text ? text : "of nothing");
    unsetenv("ABI_DTYPE");
}

/* Dtypes newer than a plugin never reach its kernels, whatever dtypes they
 * accept; for reads the core copies the bytes. */
static void never_sees_float8(const char *type, bool old)
{
    const int64_t four = 4;
    const uint8_t codes[4] = {1, 2, 3, 4};
    core_tensor *floats, *tensor;
    core_device *device;
    uint8_t got[4];

    OK(core_device_find(type, &device));
    floats = CALL(zeros, &four, 1, CORE_F32, device);
    reported("ABI_DTYPE", CORE_F32, 4);
    OK(core_fill_(floats, core_float(0)));
    OK(core_tensor_from_data(codes, CORE_F8E4M3, &four, 1, device, &tensor));
    keep(tensor);
    unsetenv("ABI_DTYPE");
    /* The bytes are passed as u8, which every plugin knows. */
    OK(core_fill_(tensor,
                  core_float(0))); /* its kernel knows no other number */
    saw_bytes();
    OK(core_tensor_read(tensor, got, sizeof got));
    ck_assert_mem_eq(got, ((uint8_t[4]){0}), 4);
    OK(core_zero_(tensor));
    if (old) /* others accept all dtypes, and know this one */
        saw_bytes();
}

START_TEST(old_plugins_never_receive_newer_dtypes)
{
    ck_assert_uint_eq(load("abi_0_1"), 1);
    ck_assert_uint_eq(load("abi_0_2"), 2);
    ck_assert_uint_eq(load("abi_0_3"), 3);
    ck_assert_uint_eq(load("abi_0_4"), 4);
    ck_assert_uint_eq(load("abi_0_5"), 5);
    ck_assert_uint_eq(load("abi_0_6"), 6);
    never_sees_float8("abione", true);
    never_sees_float8("abitwo", true);
    never_sees_float8("abithree", false);
    never_sees_float8("abifour", false);
    never_sees_float8("abifive", false);
    never_sees_float8("abisix", false);
}
END_TEST

START_TEST(all_minors_run_side_by_side)
{
    ck_assert_uint_eq(load("abi_0_1"), 1);
    ck_assert_uint_eq(load("abi_0_2"), 2);
    ck_assert_uint_eq(load("abi_0_3"), 3);
    ck_assert_uint_eq(load("abi_0_4"), 4);
    ck_assert_uint_eq(load("abi_0_5"), 5);
    ck_assert_uint_eq(load("abi_0_6"), 6);
    computes("abione", "abi_0_1::squared");
    computes("abitwo", "abi_0_2::squared");
    computes("abithree", "abi_0_3::squared");
    computes("abifour", "abi_0_4::squared");
    computes("abifive", "abi_0_5::squared");
    computes("abisix", "abi_0_6::squared");
}
END_TEST

START_TEST(shipped_plugins_run_in_a_core_of_0_1)
{
    core_tensor *a, *b;

    core__abi_minor_offered = 1;
    a = on("cpu", (float[]){1, -2, 3, -4});
    reads(CALL(neg, a), (float[]){-1, 2, -3, 4});
    b = on("sim", (float[]){1, -2, 3, -4});
    reads(CALL(mul, b, b), (float[]){1, 4, 9, 16});
}
END_TEST

/* ---------------------------------------------------------------- forks -- */

static int lost_in_child(core_tensor *tensor)
{
    core_device *device = core_tensor_device(tensor);
    core_tensor *out = NULL;
    float got[4];

    if (core_neg(tensor, &out) != CORE_ERROR_DEVICE_LOST || out)
        return 1;
    if (core_tensor_read(tensor, got, sizeof got) != CORE_ERROR_DEVICE_LOST)
        return 2;
    if (core_mul_(tensor, tensor) != CORE_ERROR_DEVICE_LOST)
        return 3;
    if (core_device_synchronize(device) != CORE_ERROR_DEVICE_LOST ||
        !strstr(core_error_message(), "forked child"))
        return 4;
    core_tensor_release(tensor);
    return 0;
}

static int works_in_child(core_tensor *tensor)
{
    core_tensor *out = NULL;
    float got[4];

    if (core_neg(tensor, &out) != CORE_OK)
        return 11;
    if (core_tensor_read(out, got, sizeof got) != CORE_OK || got[1] != 2)
        return 12;
    core_tensor_release(out);
    core_tensor_release(tensor);
    return 0;
}

START_TEST(forked_child_has_only_fork_safe_devices)
{
    const float values[4] = {1, -2, 3, -4};
    core_tensor *other, *safe, *host;
    int status;
    pid_t child;

    load("abi_0_2");
    load("abi_0_3");
    other = on("abitwo", values);
    safe = on("abithree", values);
    host = on("cpu", values);
    child = fork();
    if (child == 0) {
        int wrong = lost_in_child(other);

        wrong = wrong ? wrong : works_in_child(safe);
        wrong = wrong ? wrong : works_in_child(host);
        _exit(wrong ? wrong : getenv("ABI_FORKED") ? 0 : 20);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_ptr_null(getenv("ABI_FORKED"));
    reads(CALL(neg, other), (float[]){-1, 2, -3, 4});
}
END_TEST

/* --------------------------------------------------------------- future -- */

START_TEST(plugin_of_the_future_runs_with_known_features)
{
    core_tensor *a, *out;

    ck_assert_uint_eq(load("future"), CORE_ABI_MINOR);
    a = on("future", (float[]){1, -2, 3, -4});
    reads(CALL(neg, a), (float[]){-1, 2, -3, 4});
    FAILS(core_exp(a, &out), CORE_ERROR_NO_KERNEL, "exp");
}
END_TEST

/* Flags and values that were not negotiated are refused by name, and nothing of
 * the plugin stays registered. */
static void refuses(const char *uses, const char *says)
{
    core_plugin *plugin;
    core_device *device;

    setenv("LIBCORE_FUTURE_PLUGIN", uses, 1);
    FAILS(core_plugin_load(abi_plugin("future"), &plugin),
          CORE_ERROR_UNSUPPORTED, says);
    ck_assert_ptr_null(plugin);
    ck_assert_int_ne(core_device_find("future", &device), CORE_OK);
}

START_TEST(unknown_flags_of_an_answer_are_unsupported)
{
    refuses("answer flag", "flags 0x10000");
}
END_TEST

START_TEST(unknown_flags_of_a_backend_are_unsupported)
{
    refuses("backend flag", "flags 0x100000");
}
END_TEST

START_TEST(unknown_requirements_are_unsupported)
{
    refuses("requirement", "\"exp\" has the requirements 0x100001");
}
END_TEST

/* Requirements added in 0.3, in a plugin of 0.2 and in one of 0.4 that agreed
 * on 0.2: the core would not meet them. */
START_TEST(requirements_of_a_later_minor_are_unsupported)
{
    static const char *const requirements[] = {"0x4", "0x8", "0x500"};
    const char *name = _i < 3 ? "abi_0_2" : "abi_0_4";

    core__abi_minor_offered = 2;
    setenv("ABI_REQUIREMENTS", requirements[_i % 3], 1);
    FAILS(core_plugin_load(abi_plugin(name), NULL), CORE_ERROR_UNSUPPORTED,
          "requirements", "0.2", "abs");
}
END_TEST

START_TEST(unknown_keys_are_unsupported)
{
    refuses("key", "no dispatch key 77; accepted: CORE_KEY_BACKEND (0) to");
}
END_TEST

START_TEST(unknown_properties_are_ignored)
{
    core_device_properties p = {.struct_size = sizeof p};
    core_device *device;

    setenv("LIBCORE_FUTURE_PLUGIN", "property", 1);
    load("future");
    OK(core_device_find("future", &device));
    OK(core_device_get_properties(device, &p));
    ck_assert_uint_eq(p.struct_size, sizeof p);
    reads(CALL(neg, on("future", (float[]){1, -2, 3, -4})),
          (float[]){-1, 2, -3, 4});
}
END_TEST

START_TEST(an_unknown_status_is_an_error)
{
    core_device *device;
    core_tensor *tensor;

    setenv("LIBCORE_FUTURE_PLUGIN", "status", 1);
    load("future");
    OK(core_device_find("future", &device));
    ck_assert_int_ne(core_tensor_from_data((float[]){1}, CORE_F32,
                                           (int64_t[]){1}, 1, device, &tensor),
                     CORE_OK);
    ck_assert_ptr_null(tensor);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        plugin_of_0_1_runs_in_this_core,
        plugin_of_0_2_has_the_features_of_0_2,
        plugin_of_0_2_runs_in_a_core_of_0_1,
        plugin_of_0_3_has_the_features_of_0_3,
        plugin_of_0_3_runs_in_a_core_of_0_2,
        plugin_of_0_4_has_the_features_of_0_4,
        plugin_of_0_4_runs_in_a_core_of_0_3,
        plugin_of_0_5_has_the_features_of_0_5,
        plugin_of_0_5_runs_in_a_core_of_0_4,
        plugin_of_0_6_has_the_features_of_0_6,
        hotplug_without_a_stable_id_is_refused,
        plugin_of_0_6_runs_in_a_core_of_0_5,
        old_plugins_never_receive_newer_dtypes,
        all_minors_run_side_by_side,
        forked_child_has_only_fork_safe_devices,
        shipped_plugins_run_in_a_core_of_0_1,
        plugin_of_the_future_runs_with_known_features,
        unknown_flags_of_an_answer_are_unsupported,
        unknown_flags_of_a_backend_are_unsupported,
        unknown_requirements_are_unsupported,
        unknown_keys_are_unsupported,
        unknown_properties_are_ignored,
        an_unknown_status_is_an_error,
    };
    const suite_loop loops[] = {
        {requirements_of_a_later_minor_are_unsupported, 0, 6},
    };
    const test_suite suite = {
        .name = "loader/abi_minors",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
