/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The memory format that a device prefers (core.layout), and LIBCORE_LAYOUT:
 * docs/abi.md 9. */

#include "support/devices.h"

#include <libcore/settings.h>

static void setup(void)
{
    setenv("LIBCORE_SIM_LAYOUT", "1", 1);
}

static void teardown(void)
{
    drop_all();
}

static uint32_t prefers(const char *device, const char *name, core_dtype dtype,
                        uint32_t ndim)
{
    uint32_t format = 99;

    OK(core_device_preferred_format(device_of(device), name, dtype, ndim,
                                    &format));
    return format;
}

START_TEST(device_states_its_preferred_layout)
{
    core_device *sim = device_of("sim");
    uint32_t format;

    ck_assert_uint_eq(prefers("sim", "convolution", CORE_F32, 4),
                      CORE_FORMAT_CHANNELS_LAST);
    ck_assert_uint_eq(prefers("sim", "convolution", CORE_F32, 5),
                      CORE_FORMAT_CHANNELS_LAST_3D);
    ck_assert_uint_eq(prefers("sim", "convolution", CORE_F32, 3),
                      CORE_FORMAT_CONTIGUOUS);
    ck_assert_uint_eq(prefers("sim", "add.Tensor", CORE_F32, 4),
                      CORE_FORMAT_CONTIGUOUS);
    ck_assert_uint_eq(prefers("sim", "convolution", 77, 4),
                      CORE_FORMAT_CONTIGUOUS);
    ck_assert_uint_eq(prefers("cpu", "convolution", CORE_F32, 4),
                      CORE_FORMAT_CONTIGUOUS);
    ck_assert_uint_eq(prefers("meta", "convolution", CORE_F32, 4),
                      CORE_FORMAT_CONTIGUOUS);
    FAILS(core_device_preferred_format(sim, "no_such", CORE_F32, 4, &format),
          CORE_ERROR_NOT_FOUND, "no_such");
    FAILS(
        core_device_preferred_format(NULL, "convolution", CORE_F32, 4, &format),
        CORE_ERROR_INVALID_ARGUMENT, "device");
    FAILS(core_device_preferred_format(sim, NULL, CORE_F32, 4, &format),
          CORE_ERROR_INVALID_ARGUMENT, "operator_name");
    FAILS(core_device_preferred_format(sim, "convolution", CORE_F32, 4, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "out_format");
}
END_TEST

/* [2, 3, 4, 4] with [5, 3, 3, 3]. */
static core_tensor *operand(const char *device, const int64_t *sizes, int salt)
{
    int64_t numel = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    double values[256];

    for (int64_t i = 0; i < numel; i++)
        values[i] = (double)((i * 7 + salt) % 11 - 5) / 4;
    return fresh_on(typed(CORE_F64, 4, sizes, values), device);
}

static core_tensor *convolve(core_tensor *x, core_tensor *w)
{
    static const int64_t one[] = {1, 1};
    core_tensor *out;

    OK(core_conv2d(x, w, NULL, one, 2, one, 2, one, 2, 1, &out));
    return keep(out);
}

static const int64_t x_sizes[] = {2, 3, 4, 4}, w_sizes[] = {5, 3, 3, 3};

static core_tensor *convolved_on(const char *device)
{
    return convolve(operand(device, x_sizes, 1), operand(device, w_sizes, 2));
}

static bool is_channels_last(const core_tensor *tensor)
{
    const int64_t *strides = core_tensor_strides(tensor);

    return strides[1] == 1 && strides[3] == core_tensor_sizes(tensor)[1];
}

START_TEST(results_are_contiguous_unless_the_layout_is_left_to_the_device)
{
    ck_assert(!is_channels_last(convolved_on("sim")));
    OK(core_setting_set("LIBCORE_LAYOUT", "device"));
    ck_assert(is_channels_last(convolved_on("sim")));
    ck_assert(!is_channels_last(convolved_on("cpu")));
    OK(core_setting_set("LIBCORE_LAYOUT", "contiguous"));
    ck_assert(!is_channels_last(convolved_on("sim")));
    FAILS(core_setting_set("LIBCORE_LAYOUT", "sideways"),
          CORE_ERROR_INVALID_ARGUMENT, "sideways");
}
END_TEST

START_TEST(later_operators_keep_format_and_values)
{
    core_tensor *on_sim = NULL, *on_cpu = NULL;
    double a[2 * 4 * 4 * 4], b[2 * 4 * 4 * 4];

    OK(core_setting_set("LIBCORE_LAYOUT", "device"));
    for (int i = 0; i < 2; i++) {
        const char *device = i ? "cpu" : "sim";
        core_tensor *hidden = CALL(relu, convolved_on(device));
        core_tensor *out =
            convolve(hidden, operand(device, (int64_t[]){4, 5, 3, 3}, 3));

        ck_assert(is_channels_last(hidden) == !i);
        ck_assert(is_channels_last(out) == !i);
        if (i)
            on_cpu = out;
        else
            on_sim = out;
    }
    OK(core_tensor_read(on_sim, a, sizeof a));
    OK(core_tensor_read(on_cpu, b, sizeof b));
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        ck_assert_double_eq_tol(a[i], b[i], 1e-12);
}
END_TEST

START_TEST(gradients_do_not_depend_on_the_layout)
{
    double grads[2][3 * 5 * 9];

    OK(core_setting_set("LIBCORE_LAYOUT", "device"));
    for (int i = 0; i < 2; i++) {
        const char *device = i ? "cpu" : "sim";
        core_tensor *w = leaf(operand(device, w_sizes, 2));
        core_tensor *y = convolve(operand(device, x_sizes, 1), w);

        backward(sum(mul(y, y)));
        OK(core_tensor_read(core_tensor_grad(w), grads[i], sizeof grads[i]));
    }
    for (int i = 0; i < 3 * 5 * 9; i++)
        ck_assert_double_eq_tol(grads[0][i], grads[1][i], 1e-11);
}
END_TEST

/* ----------------------------------------------------------------- memory -- */

static uint32_t kinds_of(const char *name)
{
    uint32_t kinds = 99;

    OK(core_device_memory_kinds(device_of(name), &kinds));
    return kinds;
}

START_TEST(memory_kinds_match_what_the_device_provides)
{
    uint32_t kinds;

    ck_assert_uint_eq(kinds_of("cpu"),
                      CORE_MEMORY_UNIFIED | CORE_MEMORY_HOST_VISIBLE);
    ck_assert_uint_eq(kinds_of("sim"), CORE_MEMORY_DEVICE | CORE_MEMORY_PINNED |
                                           CORE_MEMORY_VIRTUAL |
                                           CORE_MEMORY_PEER);
    ck_assert_uint_eq(kinds_of("meta"), 0);
    FAILS(core_device_memory_kinds(NULL, &kinds), CORE_ERROR_INVALID_ARGUMENT,
          "device");
    FAILS(core_device_memory_kinds(device_of("cpu"), NULL),
          CORE_ERROR_INVALID_ARGUMENT, "out_kinds");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        device_states_its_preferred_layout,
        results_are_contiguous_unless_the_layout_is_left_to_the_device,
        later_operators_keep_format_and_values,
        gradients_do_not_depend_on_the_layout,
        memory_kinds_match_what_the_device_provides,
    };
    const test_suite suite = {
        .name = "dispatch/preferred_layout",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
