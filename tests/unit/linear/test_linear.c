/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fused linear layer: its results, what it saves for backward, and where
 * the gradient of its weight is stored. */

#include "support/linear.h"

/* ------------------------------------------------------------- computing -- */

static core_tensor *composed(uint32_t activation)
{
    core_tensor *y = CALL(linear, x, w, b);

    return activation == CORE_LINEAR_RELU   ? CALL(relu, y)
           : activation == CORE_LINEAR_GELU ? CALL(gelu, y, "none")
                                            : y;
}

START_TEST(fused_linear_equals_separate_operators)
{
    for (uint32_t activation = 0; activation <= 2; activation++) {
        core_tensor *want = composed(activation), *y, *grads[3];

        backward(loss(want));
        grads[0] = keep(core_tensor_retain(core_tensor_grad(x)));
        grads[1] = keep(core_tensor_retain(core_tensor_grad(w)));
        grads[2] = keep(core_tensor_retain(core_tensor_grad(b)));
        clear();
        args.activation = activation;
        y = apply();
        near(y, want, 1e-6);
        backward(loss(y));
        near(core_tensor_grad(x), grads[0], 1e-5);
        near(core_tensor_grad(w), grads[1], 1e-5);
        near(core_tensor_grad(b), grads[2], 1e-5);
        clear();
    }
    args.bias = NULL;
    args.activation = 0;
    near(apply(), CALL(linear, x, w, NULL), 1e-6);
}
END_TEST

static core_status checked(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_linear_forward_args given = {.struct_size = sizeof given,
                                      .input = inputs[0],
                                      .weight = inputs[1],
                                      .bias = inputs[2],
                                      .activation = *(uint32_t *)context};

    (void)ninputs;
    *noutputs = 1;
    return core_linear_apply(&given, &outputs[0]);
}

START_TEST(first_and_second_derivatives_are_correct)
{
    core_tensor *inputs[3] = {leaf(wave(CORE_F64, 2, (int64_t[]){3, 4}, 0.7)),
                              leaf(wave(CORE_F64, 2, (int64_t[]){2, 4}, 0.3)),
                              leaf(wave(CORE_F64, 1, (int64_t[]){2}, 1.1))};

    for (uint32_t activation = 0; activation <= 2; activation++) {
        OK(core_gradcheck(checked, &activation, inputs, 3, 1e-6, 1e-6, 1e-5));
        if (activation != CORE_LINEAR_GELU)
            OK(core_gradgradcheck(checked, &activation, inputs, 3, 1e-6, 1e-6,
                                  1e-5));
    }
}
END_TEST

/* Expected result computed from the same quantizers. */
START_TEST(float8_linear_computes_with_quantized_operands)
{
    const uint32_t scalings[] = {CORE_SCALING_CURRENT, CORE_SCALING_DELAYED,
                                 CORE_SCALING_BLOCK};

    for (int s = 0; s < 3; s++) {
        core_tensor *xq, *xs, *wq, *ws, *want, *y;

        quantized(scalings[s]);
        OK(core_quantizer_quantize(quantizers[0], x, &xq, &xs));
        OK(core_quantizer_quantize(quantizers[1], w, &wq, &ws));
        want = CALL(linear, CALL(dequantize, xq, xs, CORE_F32),
                    CALL(dequantize, wq, ws, CORE_F32), b);
        keep(xq), keep(xs), keep(wq), keep(ws);
        quantized(scalings[s]);
        y = apply();
        near(y, want, 1e-7);
        alike(y, composed(0));
        ck_assert_int_ne(calls(0), 0);
        backward(loss(y));
        ck_assert_uint_eq(calls(2), 1);
    }
}
END_TEST

START_TEST(float8_gradients_approximate_f32_on_every_device)
{
    const char *places[] = {"cpu", "sim"};
    core_tensor *grads[2];

    backward(loss(composed(CORE_LINEAR_GELU)));
    grads[0] = fresh_on(core_tensor_grad(x), "cpu");
    grads[1] = fresh_on(core_tensor_grad(w), "cpu");
    for (int p = 0; p < 2; p++) {
        tensors(CORE_F32);
        x = leaf(CALL(to_copy, CALL(detach, x), CORE_F32, device_of(places[p]),
                      false, -1));
        w = leaf(CALL(to_copy, CALL(detach, w), CORE_F32, device_of(places[p]),
                      false, -1));
        b = leaf(CALL(to_copy, CALL(detach, b), CORE_F32, device_of(places[p]),
                      false, -1));
        args.input = x;
        args.weight = w;
        args.bias = b;
        args.activation = CORE_LINEAR_GELU;
        quantized(CORE_SCALING_CURRENT);
        backward(loss(apply()));
        alike(fresh_on(core_tensor_grad(x), "cpu"), grads[0]);
        alike(fresh_on(core_tensor_grad(w), "cpu"), grads[1]);
    }
}
END_TEST

START_TEST(autocast_lowers_fused_linear_like_linear)
{
    uint64_t region;
    core_tensor *y, *main = wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1);

    OK(core_autocast_begin(core_tensor_device(x), CORE_BF16, 0, &region));
    y = apply();
    ck_assert_uint_eq(core_tensor_dtype(y), CORE_BF16);
    near(y, CALL(linear, x, w, b), 1e-6);
    backward(loss(y));
    ck_assert_uint_eq(core_tensor_dtype(core_tensor_grad(w)), CORE_F32);
    clear();
    args.main_grad = main;
    backward(loss(apply()));
    ck_assert_ptr_null(core_tensor_grad(w));
    quantized(CORE_SCALING_CURRENT);
    ck_assert_uint_eq(core_tensor_dtype(apply()), CORE_F32);
    OK(core_autocast_end(region));
}
END_TEST

/* ------------------------------------------------------- what is saved -- */

START_TEST(only_tensors_needed_by_gradients_are_saved)
{
    core_linear_backward_args k = kept(true, true, true);

    ck_assert_ptr_eq(k.input, x); /* the same tensors, not copies */
    ck_assert_ptr_eq(k.weight, w);
    ck_assert_ptr_null(k.activated);
    core_linear_backward_release(&k);
    k = kept(true, false, true);
    ck_assert_ptr_null(k.input);
    ck_assert_ptr_eq(k.weight, w);
    core_linear_backward_release(&k);
    k = kept(false, true, true);
    ck_assert_ptr_eq(k.input, x);
    ck_assert_ptr_null(k.weight);
    core_linear_backward_release(&k);
    args.activation = CORE_LINEAR_RELU;
    k = kept(false, false, true);
    ck_assert_ptr_null(k.input);
    ck_assert_ptr_null(k.weight);
    ck_assert_ptr_nonnull(k.activated);
    core_linear_backward_release(&k);
    k = kept(false, false, false);
    ck_assert_ptr_null(k.activated);
    core_linear_backward_release(&k);
    quantized(CORE_SCALING_BLOCK);
    k = kept(true, false, false);
    ck_assert_ptr_null(k.input);
    ck_assert_ptr_null(k.input_data);
    ck_assert_ptr_nonnull(k.weight_data);
    core_linear_backward_release(&k);
    k = kept(false, true, false);
    ck_assert_ptr_null(k.weight_data);
    ck_assert_ptr_nonnull(k.input_data);
    ck_assert_ptr_null(k.input);
    core_linear_backward_release(&k);
}
END_TEST

/* ------------------------------------------------------ second backward -- */

START_TEST(retained_graph_gives_the_same_gradient_again)
{
    for (int s = 0; s < 2; s++) {
        core_tensor *y, *first, *ones;

        clear();
        if (s)
            quantized(CORE_SCALING_CURRENT);
        y = apply();
        ones = CALL(ones_like, y, CORE_DTYPE_NONE, NULL, -1);
        OK(core_backward(&y, 1, &ones, CORE_RETAIN_GRAPH));
        first = fresh_on(core_tensor_grad(w), "cpu");
        clear();
        OK(core_backward(&y, 1, &ones, CORE_RETAIN_GRAPH));
        near(core_tensor_grad(w), first, 0);
        OK(core_backward(&y, 1, &ones, 0));
        FAILS(core_backward(&y, 1, &ones, 0), CORE_ERROR_AUTOGRAD, "linear");
    }
}
END_TEST

START_TEST(fused_variants_are_differentiable_only_once)
{
    for (int way = 0; way < 3; way++) {
        core_tensor *y, *grad = NULL, *again = NULL;

        tensors(CORE_F32);
        if (way == 0)
            args.activation = CORE_LINEAR_GELU;
        else if (way == 1)
            args.main_grad = wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1);
        else
            quantized(CORE_SCALING_CURRENT);
        y = loss(apply());
        OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &grad));
        keep(grad);
        y = sum(mul(grad, grad));
        FAILS(core_grad(&y, 1, NULL, &w, 1, 0, &again), CORE_ERROR_AUTOGRAD,
              "once");
        ck_assert_ptr_null(again);
    }
}
END_TEST

START_TEST(backward_refuses_changed_weight)
{
    core_tensor *y = loss(apply());
    bool before = core_grad_mode_set(false);

    OK(core_mul_scalar_(w, core_float(2)));
    core_grad_mode_set(before);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_VERSION, "linear");
}
END_TEST

/* ---------------------------------------------------------- microbatches -- */

START_TEST(weight_is_quantized_only_in_first_microbatch)
{
    core_linear_workspace *workspace;
    core_tensor *y;
    bool before;

    OK(core_linear_workspace_create(&workspace));
    quantized(CORE_SCALING_CURRENT);
    args.workspace = workspace;
    args.microbatch = CORE_LINEAR_LATER_MICROBATCH;
    FAILS(core_linear_apply(&args, &y), CORE_ERROR_INVALID_ARGUMENT, "empty");
    for (int step = 1; step <= 2; step++) {
        for (int i = 0; i < 3; i++) {
            args.microbatch =
                i ? CORE_LINEAR_LATER_MICROBATCH : CORE_LINEAR_FIRST_MICROBATCH;
            backward(loss(apply()));
            ck_assert_uint_eq(calls(1), (uint64_t)step);
        }
        before = core_grad_mode_set(false);
        OK(core_mul_scalar_(w, core_float(2)));
        core_grad_mode_set(before);
        FAILS(core_linear_apply(&args, &y), CORE_ERROR_INVALID_ARGUMENT,
              "changed");
    }
    args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
    alike(apply(), composed(0));
    core_linear_workspace_release(workspace);
}
END_TEST

START_TEST(ten_thousand_steps_leak_no_memory)
{
    core_memory_stats stats = {.struct_size = sizeof stats};
    core_linear_workspace *workspace;
    core_linear_wgrad_queue *queue;
    uint64_t first = 0;
    core_tensor *y, *ones = CALL(ones, (int64_t[]){2, 3, OUT}, 3, CORE_F32,
                                 device_of("cpu"));

    OK(core_linear_workspace_create(&workspace));
    OK(core_linear_wgrad_queue_create(&queue));
    quantized(CORE_SCALING_DELAYED);
    args.workspace = workspace;
    args.wgrad_queue = queue;
    for (int step = 0; step < 10000; step++) {
        args.microbatch = step % 4 ? CORE_LINEAR_LATER_MICROBATCH
                                   : CORE_LINEAR_FIRST_MICROBATCH;
        OK(core_linear_apply(&args, &y));
        OK(core_backward(&y, 1, &ones, 0));
        OK(core_linear_backward_dw(queue));
        core_tensor_release(y);
        OK(core_memory_get_stats(device_of("cpu"), &stats));
        if (step == 8)
            first = stats.allocations[0].current;
    }
    ck_assert_uint_eq(stats.allocations[0].current, first);
    core_linear_workspace_release(workspace);
    core_linear_wgrad_queue_release(queue);
}
END_TEST

/* ------------------------------------------------ gradient of the weight -- */

START_TEST(main_grad_receives_weight_gradient_instead_of_grad)
{
    for (int i = 0; i < 3; i++) {
        core_tensor *want, *main, *twice;

        tensors(i == 1 ? CORE_BF16 : CORE_F32);
        backward(loss(composed(0)));
        want = CALL(to_copy, core_tensor_grad(w), CORE_F32, NULL, false, -1);
        clear();
        if (i == 2)
            quantized(CORE_SCALING_CURRENT);
        main = wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1);
        args.main_grad = main;
        backward(loss(apply())); /* overwrites main */
        ck_assert_ptr_null(core_tensor_grad(w));
        ck_assert_ptr_nonnull(core_tensor_grad(x));
        if (i == 2)
            alike(main, want);
        else
            near(main, want, i == 1 ? 0.02 : 1e-5);
        twice = CALL(mul_scalar, main, core_float(2));
        args.flags = CORE_LINEAR_ACCUMULATE;
        backward(loss(apply()));
        near(main, twice, 1e-5);
    }
}
END_TEST

START_TEST(destination_receives_weight_gradient_in_place)
{
    core_linear_wgrad_queue *queue;

    OK(core_linear_wgrad_queue_create(&queue));
    for (int i = 0; i < 6; i++) {
        core_gradient_destination to = {.struct_size = sizeof to};
        core_tensor *want, *buffer, *twice, *y;

        tensors(i % 3 == 1 ? CORE_BF16 : CORE_F32);
        if (i % 3 == 2)
            quantized(CORE_SCALING_CURRENT);
        args.activation = i / 3;
        y = loss(apply());
        OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
        want = CALL(to_copy, core_tensor_grad(w), CORE_F32, NULL, false, -1);
        clear();
        to.input = w;
        to.buffer = buffer = wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1);
        OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
        ck_assert_int_eq(to.result, CORE_DESTINATION_IN_PLACE);
        ck_assert_ptr_null(core_tensor_grad(w));
        ck_assert_ptr_nonnull(core_tensor_grad(b));
        near(buffer, want, i % 3 == 1 ? 0.02 : 1e-5);
        twice = CALL(mul_scalar, buffer, core_float(2));
        to.flags = CORE_DESTINATION_ACCUMULATE;
        OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
        near(buffer, twice, 1e-5);
        /* One weight used twice in a graph. */
        y = keep(core_tensor_retain(y));
        y = add(loss(apply()), y);
        to.flags = 0;
        OK(core_backward_into(&y, 1, NULL, 0, &to, 1));
        near(buffer, twice, i % 3 ? 0.02 : 1e-5);
    }
    /* A destination that is not row-major gets a copy. */
    tensors(CORE_F32);
    {
        core_tensor *turned =
            CALL(t, wave(CORE_F32, 2, (int64_t[]){IN, OUT}, 1));
        core_gradient_destination to = {
            .struct_size = sizeof to, .input = w, .buffer = turned};
        core_tensor *y = loss(apply());

        OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
        OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
        ck_assert_int_eq(to.result, CORE_DESTINATION_COPIED);
        near(turned, core_tensor_grad(w), 1e-5);
        /* A delayed gradient does not reach the destination. */
        args.wgrad_queue = queue;
        y = loss(apply());
        OK(core_backward_into(&y, 1, NULL, 0, &to, 1));
        ck_assert_int_eq(to.result, CORE_DESTINATION_UNUSED);
    }
    core_linear_wgrad_queue_release(queue);
}
END_TEST

START_TEST(delayed_weight_gradient_is_computed_by_backward_dw)
{
    core_linear_wgrad_queue *queue;
    core_tensor *want, *main;

    OK(core_linear_wgrad_queue_create(&queue));
    FAILS(core_linear_backward_dw(queue), CORE_ERROR_AUTOGRAD, "pending");
    backward(loss(composed(0)));
    want = keep(core_tensor_retain(core_tensor_grad(w)));
    clear();
    args.wgrad_queue = queue;
    backward(loss(apply()));
    backward(loss(apply()));
    ck_assert_ptr_null(core_tensor_grad(w));
    ck_assert_ptr_nonnull(core_tensor_grad(b));
    ck_assert_uint_eq(core_linear_wgrad_queue_count(queue), 2);
    OK(core_linear_backward_dw(queue));
    near(core_tensor_grad(w), want, 1e-5);
    OK(core_linear_backward_dw(queue));
    near(core_tensor_grad(w), CALL(mul_scalar, want, core_float(2)), 1e-5);
    FAILS(core_linear_backward_dw(queue), CORE_ERROR_AUTOGRAD, "pending");
    main = wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1);
    args.main_grad = main;
    core_tensor_set_grad(w, NULL);
    backward(loss(apply()));
    OK(core_linear_backward_dw(queue));
    near(main, want, 1e-5);
    ck_assert_ptr_null(core_tensor_grad(w));
    backward(loss(apply())); /* dropped with the queue */
    core_linear_wgrad_queue_release(queue);
}
END_TEST

/* ------------------------------------------------------------- no waits -- */

static core_tensor *to_sim(core_tensor *tensor)
{
    return leaf(CALL(to_copy, CALL(detach, tensor), CORE_F32, device_of("sim"),
                     false, -1));
}

START_TEST(linear_with_no_wait_quantizers_never_synchronizes)
{
    core_tensor *want, *y, *ones;
    uint64_t waits;

    x = args.input = to_sim(x);
    w = args.weight = to_sim(w);
    b = args.bias = to_sim(b);
    ones = CALL(ones, (int64_t[]){2, 3, OUT}, 3, CORE_F32, device_of("sim"));
    quantized(CORE_SCALING_CURRENT);
    y = apply();
    OK(core_backward(&y, 1, &ones, 0));
    want = keep(core_tensor_retain(core_tensor_grad(w)));
    clear();
    for (int i = 0; i < 3; i++) {
        core_quantizer_options options =
            *core_quantizer_get_options(quantizers[i]);

        options.flags = CORE_QUANTIZER_NO_WAIT;
        core_quantizer_release(quantizers[i]);
        OK(core_quantizer_create(&options, &quantizers[i]));
    }
    args.input_quantizer = quantizers[0];
    args.weight_quantizer = quantizers[1];
    args.grad_quantizer = quantizers[2];
    waits = core_host_waits();
    args.activation = CORE_LINEAR_NO_ACTIVATION;
    OK(core_linear_apply(&args, &y));
    OK(core_backward(&y, 1, &ones, 0));
    ck_assert_uint_eq(core_host_waits(), waits);
    core_tensor_release(y);
    near(core_tensor_grad(w), want, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        fused_linear_equals_separate_operators,
        first_and_second_derivatives_are_correct,
        float8_linear_computes_with_quantized_operands,
        float8_gradients_approximate_f32_on_every_device,
        autocast_lowers_fused_linear_like_linear,
        only_tensors_needed_by_gradients_are_saved,
        retained_graph_gives_the_same_gradient_again,
        fused_variants_are_differentiable_only_once,
        backward_refuses_changed_weight,
        weight_is_quantized_only_in_first_microbatch,
        ten_thousand_steps_leak_no_memory,
        main_grad_receives_weight_gradient_instead_of_grad,
        destination_receives_weight_gradient_in_place,
        delayed_weight_gradient_is_computed_by_backward_dw,
        linear_with_no_wait_quantizers_never_synchronizes,
    };
    const test_suite suite = {
        .name = "linear/linear",
        .setup = setup,
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
