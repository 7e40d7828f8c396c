/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Errors of the fused linear layer: they are reported and leave quantizers,
 * workspace and gradients unchanged. */

#define SUITE_FORKS true

#include "support/linear.h"

#include "base/memory.h"
#include "quant/quantizer.h"

/* How often the state of a quantizer was saved for a rollback. */
static int marks;

void __real_core__quantizer_mark_set(const core_quantizer *quantizer,
                                     core__quantizer_mark *mark);
void __wrap_core__quantizer_mark_set(const core_quantizer *quantizer,
                                     core__quantizer_mark *mark);

void __wrap_core__quantizer_mark_set(const core_quantizer *quantizer,
                                     core__quantizer_mark *mark)
{
    marks++;
    __real_core__quantizer_mark_set(quantizer, mark);
}

static void refused(core_status code, const char *text)
{
    core_tensor *y = (core_tensor *)(void *)&args;

    FAILS(core_linear_apply(&args, &y), code, text);
    ck_assert_ptr_null(y);
    tensors(CORE_F32);
}

START_TEST(invalid_linear_arguments_are_refused)
{
    args.weight = b;
    refused(CORE_ERROR_SHAPE,
            "weight is f32 with 1 dimensions; it must be [out, in]");
    args.input = b;
    refused(CORE_ERROR_SHAPE, "4 features; the weight is for 32");
    args.bias = x;
    refused(CORE_ERROR_SHAPE, "it must be [out]");
    args.weight = wave(CORE_BF16, 2, (int64_t[]){OUT, IN}, 1);
    refused(CORE_ERROR_DTYPE, "weight is bf16");
    args.input = wave(CORE_I64, 2, (int64_t[]){2, IN}, 1);
    refused(CORE_ERROR_DTYPE,
            "input is i64 with 2 dimensions; it must be floating");
    args.input = wave(CORE_F32, 0, NULL, 1);
    refused(CORE_ERROR_SHAPE, "it must be [..., in]");
    args.weight =
        CALL(to_copy, w, CORE_DTYPE_NONE, device_of("sim"), false, -1);
    refused(CORE_ERROR_DEVICE, "weight is on \"sim\" and the input on \"cpu\"");
    args.bias = CALL(to_copy, b, CORE_DTYPE_NONE, device_of("sim"), false, -1);
    refused(CORE_ERROR_DEVICE, "bias is on \"sim\"");
    args.main_grad =
        CALL(zeros, (int64_t[]){OUT, IN}, 2, CORE_F32, device_of("sim"));
    refused(CORE_ERROR_DEVICE, "main_grad is on \"sim\"");
    args.main_grad = wave(CORE_F32, 2, (int64_t[]){IN, OUT}, 1);
    refused(CORE_ERROR_SHAPE, "it must be of the weight's sizes");
    args.main_grad = wave(CORE_I64, 2, (int64_t[]){OUT, IN}, 1);
    refused(CORE_ERROR_DTYPE, "main_grad is i64");
    args.main_grad = wave(CORE_F8E5M2, 2, (int64_t[]){OUT, IN}, 1);
    refused(CORE_ERROR_DTYPE, "at least 16 bits");
    args.main_grad = w;
    refused(CORE_ERROR_INVALID_ARGUMENT, "must not require grad");
    args.flags = CORE_LINEAR_ACCUMULATE;
    refused(CORE_ERROR_INVALID_ARGUMENT, "main_grad is NULL");
    args.flags = 64;
    refused(CORE_ERROR_INVALID_ARGUMENT, "0x40");
    args.activation = 3;
    refused(CORE_ERROR_INVALID_ARGUMENT,
            "activation is 3; accepted: CORE_LINEAR_NO_ACTIVATION");
    args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
    refused(CORE_ERROR_INVALID_ARGUMENT, "needs a workspace");
    quantized(CORE_SCALING_CURRENT);
    args.input_quantizer = NULL;
    refused(CORE_ERROR_INVALID_ARGUMENT, "must be given together");
    args.struct_size = 8;
    refused(CORE_ERROR_INVALID_ARGUMENT, "struct_size is 8");
    args.input = NULL;
    refused(CORE_ERROR_INVALID_ARGUMENT, "linear: the argument input is NULL");
    args.weight = NULL;
    refused(CORE_ERROR_INVALID_ARGUMENT, "linear: the argument weight is NULL");
    x = args.input = leaf(wave(CORE_F32, 2, (int64_t[]){2, 24}, 1));
    args.weight = leaf(wave(CORE_F32, 2, (int64_t[]){OUT, 24}, 1));
    quantized(CORE_SCALING_BLOCK);
    refused(CORE_ERROR_SHAPE, "32");
}
END_TEST

START_TEST(nan_gradient_is_refused_and_keeps_the_state)
{
    core_tensor *y, *bad;
    core_quantizer_state state = {.struct_size = sizeof state};

    quantized(CORE_SCALING_DELAYED);
    y = apply();
    bad = CALL(full_like, y, core_float(NAN), CORE_DTYPE_NONE, NULL, -1);
    FAILS(core_backward(&y, 1, &bad, 0), CORE_ERROR_INVALID_ARGUMENT, "linear",
          "NaN");
    OK(core_quantizer_get_state(quantizers[2], &state));
    ck_assert_uint_eq(state.calls, 0);
    ck_assert_float_eq(state.scale, 1);
    ck_assert_ptr_null(core_tensor_grad(w));
}
END_TEST

static void same_state(int quantizer, const core_quantizer_state *want,
                       const float *history)
{
    core_quantizer_state have = {.struct_size = sizeof have};

    OK(core_quantizer_get_state(quantizers[quantizer], &have));
    ck_assert_mem_eq(&have, want, sizeof have);
    ck_assert_mem_eq(core_quantizer_history(quantizers[quantizer]), history,
                     4 * sizeof *history);
}

static core_quantizer_state state_of(int quantizer, float *history)
{
    core_quantizer_state state = {.struct_size = sizeof state};

    OK(core_quantizer_get_state(quantizers[quantizer], &state));
    memcpy(history, core_quantizer_history(quantizers[quantizer]),
           4 * sizeof *history);
    return state;
}

/* The quantizer of the input runs before that of the weight. */
START_TEST(failed_forward_restores_quantizers_and_workspace)
{
    core_tensor *bad, *good = w, *first, *y = NULL;
    core_linear_workspace *workspace;
    core_quantizer_state states[2];
    float histories[2][4];

    OK(core_linear_workspace_create(&workspace));
    quantized(CORE_SCALING_DELAYED);
    bad = CALL(full_like, w, core_float(INFINITY), CORE_DTYPE_NONE, NULL, -1);
    args.workspace = workspace;
    args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
    for (int calls = 0; calls < 6; calls++) {
        first = apply();
        for (int i = 0; i < 2; i++)
            states[i] = state_of(i, histories[i]);
        args.weight = bad;
        FAILS(core_linear_apply(&args, &y), CORE_ERROR_INVALID_ARGUMENT,
              "infinite");
        ck_assert_ptr_null(y);
        for (int i = 0; i < 2; i++)
            same_state(i, &states[i], histories[i]);
        args.weight = good;
    }
    args.microbatch = CORE_LINEAR_LATER_MICROBATCH;
    near(apply(), first, 0);
    core_linear_workspace_release(workspace);
}
END_TEST

/* One quantizer serves input and weight and is called twice. */
START_TEST(failed_allocation_restores_the_quantizers)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    core_linear_backward_args back;
    core_linear_intermediates intermediates;
    core_quantizer_state states[3];
    float histories[3][4];
    core_tensor *y, *grads[3];
    int failed[2] = {0, 0};

    quantized(CORE_SCALING_DELAYED);
    args.weight_quantizer = quantizers[0];
    for (int i = 0; i < 5; i++) {
        back = kept(true, true, true);
        back.grad_output = wave(CORE_F32, 3, (int64_t[]){2, 3, OUT}, 1 + i);
        OK(core_linear_backward(&back, &grads[0], &grads[1], &grads[2]));
        keep(grads[0]), keep(grads[1]), keep(grads[2]);
        if (i < 4)
            core_linear_backward_release(&back);
    }
    states[0] = state_of(0, histories[0]);
    states[2] = state_of(2, histories[2]);
    for (int64_t n = 0; status != CORE_OK; n++) {
        core__alloc_fault_set(n, false);
        status = core_linear_forward(&args, &y, &intermediates);
        core__alloc_fault_set(-1, false);
        failed[0] += status != CORE_OK;
        if (status != CORE_OK)
            same_state(0, &states[0], histories[0]);
    }
    core_tensor_release(y);
    core_linear_intermediates_release(&intermediates);
    ck_assert_uint_eq(calls(0), states[0].calls + 2);
    status = CORE_ERROR_OUT_OF_MEMORY;
    for (int64_t n = 0; status != CORE_OK; n++) {
        core__alloc_fault_set(n, false);
        status = core_linear_backward(&back, &grads[0], &grads[1], &grads[2]);
        core__alloc_fault_set(-1, false);
        failed[1] += status != CORE_OK;
        if (status != CORE_OK)
            same_state(2, &states[2], histories[2]);
    }
    keep(grads[0]), keep(grads[1]), keep(grads[2]);
    ck_assert_uint_eq(calls(2), states[2].calls + 1);
    ck_assert_int_gt(failed[0], 5);
    ck_assert_int_gt(failed[1], 5);
    core_linear_backward_release(&back);
}
END_TEST

/* Forward may succeed and recording it may still fail. */
START_TEST(failed_recording_restores_quantizers_and_workspace)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    core_tensor *y, *want, *old = w;
    core_linear_workspace *workspace;
    core_quantizer_state states[2];
    float histories[2][4];
    int failed = 0;

    OK(core_linear_workspace_create(&workspace));
    quantized(CORE_SCALING_DELAYED);
    args.workspace = workspace;
    args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
    for (int i = 0; i < 5; i++) /* fills the history */
        apply();
    for (int i = 0; i < 2; i++)
        states[i] = state_of(i, histories[i]);
    args.microbatch = CORE_LINEAR_LATER_MICROBATCH;
    want = apply();
    OK(core_quantizer_set_state(quantizers[0], &states[0], histories[0]));
    w = leaf(CALL(mul_scalar, CALL(detach, w), core_float(3)));
    for (int64_t n = 0; status != CORE_OK; n++) {
        args.weight = w;
        args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
        core__alloc_fault_set(n, false);
        status = core_linear_apply(&args, &y);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK)
            break;
        failed++;
        ck_assert_ptr_null(y);
        for (int i = 0; i < 2; i++)
            same_state(i, &states[i], histories[i]);
        args.weight = old; /* still stored in the workspace */
        args.microbatch = CORE_LINEAR_LATER_MICROBATCH;
        near(apply(), want, 0);
        OK(core_quantizer_set_state(quantizers[0], &states[0], histories[0]));
    }
    keep(y);
    ck_assert_int_gt(failed, 5);
    ck_assert_uint_eq(calls(1), states[1].calls + 1);
    core_linear_workspace_release(workspace);
}
END_TEST

/* The state of each quantizer, including its device part, is saved once for
 * both computing and recording. */
START_TEST(call_saves_quantizer_state_only_once)
{
    core_linear_intermediates intermediates;
    core_tensor *y;

    quantized(CORE_SCALING_DELAYED);
    y = apply();
    ck_assert(core_tensor_requires_grad(y));
    ck_assert_int_eq(marks, 2);
    OK(core_linear_forward(&args, &y, &intermediates));
    keep(y);
    core_linear_intermediates_release(&intermediates);
    ck_assert_int_eq(marks, 4);
    y = apply();
    ck_assert_int_eq(marks, 6);
    backward(loss(y));
    ck_assert_int_eq(marks, 7);
}
END_TEST

/* 448 is the largest number of f8e4m3, and the first scale is 1. */
START_TEST(values_beyond_float8_saturate_and_are_counted)
{
    core_quantizer_state state = {.struct_size = sizeof state};
    core_tensor *y;
    double values[ROWS * OUT];

    quantized(CORE_SCALING_DELAYED);
    args.bias = NULL;
    args.input =
        CALL(full_like, x, core_float(1e30), CORE_DTYPE_NONE, NULL, -1);
    args.weight = CALL(ones_like, w, CORE_DTYPE_NONE, NULL, -1);
    y = apply();
    read_all(y, values);
    ck_assert_double_eq(values[0], 448.0 * IN);
    OK(core_quantizer_get_state(quantizers[0], &state));
    ck_assert_uint_eq(state.saturated, 1);
    read_all(apply(), values); /* the scale has adapted */
    ck_assert(fabs(values[0] / (1e30 * IN) - 1) < 1e-6);
}
END_TEST

START_TEST(gradient_block_size_is_checked_before_quantizing)
{
    core_quantizer_options options = {.struct_size = sizeof options,
                                      .scaling = CORE_SCALING_BLOCK,
                                      .dtype = CORE_F8E5M2};
    core_tensor *y = NULL;

    quantized(CORE_SCALING_BLOCK);
    core_quantizer_release(quantizers[2]);
    OK(core_quantizer_create(&options, &quantizers[2]));
    args.grad_quantizer = quantizers[2];
    FAILS(core_linear_apply(&args, &y), CORE_ERROR_SHAPE, "32", "there are 4");
    ck_assert_ptr_null(y);
    ck_assert_uint_eq(calls(0), 0);
    args.weight = w = leaf(wave(CORE_F32, 2, (int64_t[]){32, IN / 8}, 1));
    args.input = x = leaf(wave(CORE_F32, 2, (int64_t[]){ROWS, IN / 8}, 1));
    args.bias = NULL;
    FAILS(core_linear_apply(&args, &y), CORE_ERROR_SHAPE, "32", "size 4");
    ck_assert_uint_eq(calls(0), 0);
}
END_TEST

START_TEST(backward_without_its_tensors_is_refused)
{
    core_linear_backward_args k = kept(true, true, false);
    core_tensor *grads[3];

    k.grad_output = wave(CORE_F32, 3, (int64_t[]){2, 3, OUT}, 1);
    OK(core_linear_backward(&k, &grads[0], &grads[1], &grads[2]));
    ck_assert_ptr_null(grads[2]);
    keep(grads[0]), keep(grads[1]);
    k.grad_output = wave(CORE_F32, 0, NULL, 1);
    FAILS(core_linear_backward(&k, &grads[0], &grads[1], &grads[2]),
          CORE_ERROR_SHAPE, "[..., out]");
    k.grad_output = NULL;
    FAILS(core_linear_backward(&k, &grads[0], &grads[1], &grads[2]),
          CORE_ERROR_INVALID_ARGUMENT, "grad_output is NULL");
    k.grad_output = wave(CORE_F32, 3, (int64_t[]){2, 3, OUT}, 1);
    core_tensor_release(k.weight);
    k.weight = NULL;
    FAILS(core_linear_backward(&k, &grads[0], &grads[1], &grads[2]),
          CORE_ERROR_AUTOGRAD, "not saved");
    ck_assert_ptr_null(grads[0]);
    core_linear_backward_release(&k);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        invalid_linear_arguments_are_refused,
        nan_gradient_is_refused_and_keeps_the_state,
        failed_forward_restores_quantizers_and_workspace,
        failed_allocation_restores_the_quantizers,
        failed_recording_restores_quantizers_and_workspace,
        call_saves_quantizer_state_only_once,
        values_beyond_float8_saturate_and_are_counted,
        gradient_block_size_is_checked_before_quantizing,
        backward_without_its_tensors_is_refused,
    };
    const test_suite suite = {
        .name = "linear/linear_errors",
        .setup = setup,
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
