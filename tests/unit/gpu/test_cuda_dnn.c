/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Convolutions by cuDNN: results, and how the library is called.  Skipped if
 * the plugin was not built. */

#define SUITE_SECONDS 100

#define SUITE_FORKS true

#include "support/cudnn.h"

#include <libcore/settings.h>

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16};

static void check_all(const char *library)
{
    start("", library);
    for (int d = 0; d < 4; d++)
        for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++)
            right(&all_kinds[k], dtypes[d], 3);
    end();
}

START_TEST(convolutions_and_gradients_match_the_cpu)
{
    check_all(CUDNN);
}
END_TEST

/* The first version 9 that is found has none of the functions. */
START_TEST(version_8_is_used_if_version_9_is_unusable)
{
    core_device_information information = {.struct_size = sizeof information};

    load("libcuda.so.1");
    load(CUDNN_LACKING);
    check_all(CUDNN_8);
    OK(core_device_get_information(cuda, &information));
    ck_assert_msg(strstr(information.runtime.data, "; cuDNN 8.9.7") != NULL,
                  "%s", information.runtime.data);
}
END_TEST

START_TEST(algorithm_is_exact_deterministic_and_within_its_workspace)
{
    char text[1000];

    start("", CUDNN);
    right(&plain, CORE_F32, 3);
    ck_assert_int_eq(convolved(text), 0);
    {
        operands o = of(&plain, CORE_F32), c = all_there(&o);
        core_tensor *out[4];

        step(&plain, &c, out);
    }
    ck_assert_int_eq(convolved(text), 3);
    ck_assert_str_eq(
        text,
        "forward f32 nchw groups 1 algorithm 1 math 3 workspace 1048576\n"
        "data f32 nchw groups 1 algorithm 1 math 3 workspace 1048576\n"
        "weight f32 nchw groups 1 algorithm 1 math 3 workspace 1048576\n");
    end();
}
END_TEST

static void math_is(core_dtype dtype, const char *what)
{
    operands o = of(&plain, dtype), c = all_there(&o);
    char text[1000];

    convolve(&plain, &c);
    ck_assert_int_eq(convolved(text), 1);
    ck_assert_msg(strstr(text, what) != NULL, "%s is not in %s", what, text);
}

START_TEST(f32_is_rounded_to_tf32_if_the_setting_allows_it)
{
    start("", CUDNN);
    math_is(CORE_F32, "f32 nchw groups 1 algorithm 1 math 3");
    OK(core_setting_set("LIBCORE_ALLOW_TF32", "1"));
    math_is(CORE_F32, "f32 nchw groups 1 algorithm 1 math 0");
    OK(core_setting_set("LIBCORE_ALLOW_TF32", NULL));
    math_is(CORE_F32, "f32 nchw groups 1 algorithm 1 math 3");
    math_is(CORE_F64, "f64 nchw groups 1 algorithm 1 math 0");
    math_is(CORE_F16, "f16 nchw groups 1 algorithm 1 math 1");
    math_is(CORE_BF16, "bf16 nchw groups 1 algorithm 1 math 1");
    end();
}
END_TEST

/* ------------------------------------------------------------- layouts -- */

/* How many of the three operands are channels-last in the library. */
static int lasts(void)
{
    char text[1000];
    int count = 0;

    ck_assert_int_eq(convolved(text), 3);
    for (const char *at = text; (at = strstr(at, "nhwc")) != NULL; at++)
        count++;
    return count;
}

START_TEST(channels_last_is_preserved)
{
    static const core_dtype some[] = {CORE_F32, CORE_F16, CORE_F64};

    start("", CUDNN);
    for (int i = 0; i < 3 * 3 * 8; i++) {
        const convolution *k = &all_kinds[i % 8];
        core_dtype dtype = some[i / 8 % 3];
        operands o, c, exact;
        core_tensor *want[4], *have[4];
        int of_whom = 1 + i / 24;

        /* A weight of one channel has both layouts. */
        if (k->ndim == 3 || (of_whom == 2 && k->weight[1] == 1))
            continue;
        o = of(k, dtype);
        c = all_there(&o);
        exact = wide(&o);
        if (of_whom & 1)
            c.x = last(c.x);
        if (of_whom & 2)
            c.w = last(c.w);
        step(k, &exact, want);
        step(k, &c, have);
        for (int t = 0; t < 3 + (o.b != NULL); t++)
            near(have[t], want[t], share_of(dtype));
        is_channels_last(have[0]);
        /* f64 has only one layout there. */
        ck_assert_int_eq(lasts(), dtype == CORE_F64 ? 0 : 3);
    }
    end();
}
END_TEST

/* Each operand is a part of a wider tensor, transposed, or broadcast. */
START_TEST(unsupported_layouts_are_copied)
{
    operands o, c;
    int64_t wider[4] = {2, 3, 6, 6}, turned[4] = {5, 6, 3, 2};

    start("", CUDNN);
    o = of(&plain, CORE_F32);
    o.x = CALL(narrow, numbers(CORE_F32, 4, wider, 3), 3, 1, 5);
    c = all_there(&o);
    c.x = CALL(narrow, there(numbers(CORE_F32, 4, wider, 3)), 3, 1, 5);
    same(&plain, &o, &c);
    ck_assert_int_eq(convolved(NULL), 3);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    o.x = CALL(permute, numbers(CORE_F32, 4, turned, 3),
               (int64_t[]){3, 2, 1, 0}, 4);
    c.x = CALL(permute, there(numbers(CORE_F32, 4, turned, 3)),
               (int64_t[]){3, 2, 1, 0}, 4);
    same(&plain, &o, &c);
    ck_assert_int_eq(convolved(NULL), 3);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    o.w = CALL(expand, numbers(CORE_F32, 4, (int64_t[]){4, 1, 3, 2}, 3),
               plain.weight, 4, false);
    c.w = CALL(expand, there(numbers(CORE_F32, 4, (int64_t[]){4, 1, 3, 2}, 3)),
               plain.weight, 4, false);
    same(&plain, &o, &c);
    ck_assert_int_eq(convolved(NULL), 3);
    end();
}
END_TEST

/* The address is one element after a multiple of 16. */
START_TEST(unaligned_operands_are_copied)
{
    const int64_t one_more = 2 * 3 * 6 * 5 + 1;
    operands o, c;
    core_tensor *line, *whole;

    start("", CUDNN);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    whole = numbers(CORE_F32, 1, &one_more, 3);
    line = CALL(narrow, whole, 0, 1, one_more - 1);
    o.x = CALL(reshape, line, plain.input, 4);
    line = CALL(narrow, there(whole), 0, 1, one_more - 1);
    c.x = CALL(reshape, line, plain.input, 4);
    same(&plain, &o, &c);
    ck_assert_int_eq(convolved(NULL), 3);
    end();
}
END_TEST

/* ------------------------------------------------- what it does not do -- */

START_TEST(unsupported_convolutions_are_computed_by_the_plugin)
{
    /* The dilation alone allows output_padding to equal the stride; the library
     * then expects another output size. */
    const convolution odd = {3,   {1, 2, 5}, {2, 3, 3}, {2}, {1},
                             {4}, {3},       1,         1,   0};
    core_tensor *x, *w, *y;

    start("", CUDNN);
    right(&odd, CORE_F32, 0);
    x = there(numbers(CORE_I32, 3, (int64_t[]){1, 2, 5}, 3));
    w = there(CALL(ones, (int64_t[]){1, 2, 2}, 3, CORE_I32, device_of("cpu")));
    y = CALL(convolution, x, w, NULL, (int64_t[]){1}, 1, (int64_t[]){0}, 1,
             (int64_t[]){1}, 1, false, (int64_t[]){0}, 1, 1);
    ck_assert_int_eq(core_tensor_numel(y), 4);
    ck_assert_int_eq(convolved(NULL), 0);
    end();
}
END_TEST

/* The limit is a part of the device's memory, which is 1 GiB for the fake
 * one. */
START_TEST(workspace_is_limited)
{
    char text[1000];
    operands o, c;

    setenv("FAKE_CUDNN_WORKSPACE", "16777217", 1);
    start("", CUDNN);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    same(&plain, &o, &c);
    ck_assert_int_eq(convolved(text), 1);
    ck_assert_str_eq(
        text, "forward f32 nchw groups 1 algorithm 0 math 3 workspace 0\n");
    setenv("FAKE_CUDNN_WORKSPACE", "16777216", 1);
    /* Another shape, since plans are cached. */
    right(&all_kinds[1], CORE_F32, 3);
    end();
}
END_TEST

START_TEST(lack_of_workspace_fails_and_the_device_still_works)
{
    operands o, c;
    core_tensor *y;

    setenv("FAKE_CUDNN_WORKSPACE", "16000000", 1);
    setenv("GPUEMU_MEMORY", "15000000", 1);
    start("", CUDNN);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    FAILS(core_convolution(c.x, c.w, c.b, plain.stride, 2, plain.padding, 2,
                           plain.dilation, 2, false, plain.output_padding, 2, 1,
                           &y),
          CORE_ERROR_OUT_OF_MEMORY, "cuda");
    ck_assert_ptr_null(y);
    setenv("FAKE_CUDNN_WORKSPACE", "1000000", 1);
    right(&all_kinds[1], CORE_F32, 3);
    end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        convolutions_and_gradients_match_the_cpu,
        version_8_is_used_if_version_9_is_unusable,
        algorithm_is_exact_deterministic_and_within_its_workspace,
        f32_is_rounded_to_tf32_if_the_setting_allows_it,
        channels_last_is_preserved,
        unsupported_layouts_are_copied,
        unaligned_operands_are_copied,
        unsupported_convolutions_are_computed_by_the_plugin,
        workspace_is_limited,
        lack_of_workspace_fails_and_the_device_still_works,
    };

    return run_with_fake_cudnn("gpu/cuda_dnn", tests,
                               sizeof tests / sizeof *tests);
}
