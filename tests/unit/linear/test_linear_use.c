/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fused linear layer as programs use it: workspaces and queues that outlive
 * their tensors or are used on several streams, autocast regions around its
 * steps, f16 main gradients, and zero features. */

#define SUITE_FORKS true

#include "support/linear.h"

#include "linear/linear.h"

#include <libcore/saved.h>

enum { THREADS = 4, PUSHES = 50000 };

static core_linear_workspace *workspace;
static core_linear_wgrad_queue *queue;

static void setup_use(void)
{
    setenv("LIBCORE_SIM_CHECK", "1", 1); /* makes races errors */
    setup();
    OK(core_linear_workspace_create(&workspace));
    OK(core_linear_wgrad_queue_create(&queue));
}

static void teardown_use(void)
{
    core_linear_workspace_release(workspace);
    core_linear_wgrad_queue_release(queue);
    teardown();
}

/* ---------------------------------------------- workspaces and queues -- */

START_TEST(workspace_is_refused_for_another_weight)
{
    quantized(CORE_SCALING_CURRENT);
    args.workspace = workspace;
    args.bias = NULL;
    for (int i = 0; i < 8; i++) {
        float values[OUT * IN] = {(float)i};
        core_tensor *weight, *y;

        /* The allocator may give it the address of the previous weight. */
        OK(core_tensor_from_data(values, CORE_F32, (int64_t[]){OUT, IN}, 2,
                                 NULL, &weight));
        args.weight = weight;
        args.microbatch = CORE_LINEAR_LATER_MICROBATCH;
        FAILS(core_linear_apply(&args, &y), CORE_ERROR_INVALID_ARGUMENT,
              i ? "another weight" : "empty");
        args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
        OK(core_linear_apply(&args, &y));
        core_tensor_release(y);
        core_tensor_release(weight);
    }
}
END_TEST

static core_tensor *to_sim(core_tensor *tensor)
{
    return leaf(CALL(to_copy, CALL(detach, tensor), CORE_F32, device_of("sim"),
                     false, -1));
}

static void with_flags(uint32_t flags)
{
    for (int i = 0; i < 3; i++) {
        core_quantizer_options options =
            *core_quantizer_get_options(quantizers[i]);

        options.flags = flags;
        core_quantizer_release(quantizers[i]);
        OK(core_quantizer_create(&options, &quantizers[i]));
    }
    args.input_quantizer = quantizers[0];
    args.weight_quantizer = quantizers[1];
    args.grad_quantizer = quantizers[2];
}

/* Runs steps on two streams alternately; backward_dw runs on a third. */
START_TEST(workspace_and_queue_are_ordered_across_streams)
{
    core_stream *streams[2] = {new_stream("sim"), new_stream("sim")};
    core_tensor *want, *y, *ones, *input = to_sim(x);

    args.weight = w = to_sim(w);
    args.bias = NULL;
    args.input = CALL(detach, input);
    ones = CALL(ones, (int64_t[]){2, 3, OUT}, 3, CORE_F32, device_of("sim"));
    quantized(CORE_SCALING_CURRENT);
    with_flags(CORE_QUANTIZER_NO_WAIT);
    y = apply();
    OK(core_backward(&y, 1, &ones, 0));
    want = keep(core_tensor_retain(core_tensor_grad(w)));
    OK(core_tensor_set_grad(w, NULL));
    args.workspace = workspace;
    args.wgrad_queue = queue;
    OK(core_device_synchronize(device_of("sim")));
    for (int i = 0; i < 6; i++) {
        core_stream_guard guard;

        args.microbatch =
            i % 3 ? CORE_LINEAR_LATER_MICROBATCH : CORE_LINEAR_FIRST_MICROBATCH;
        OK(core_stream_guard_enter(streams[i % 2], &guard));
        OK(core_linear_apply(&args, &y));
        core_stream_guard_leave(&guard);
        OK(core_backward(&y, 1, &ones, 0));
        core_tensor_release(y);
        OK(core_linear_backward_dw(queue));
        OK(core_device_synchronize(device_of("sim")));
        near(core_tensor_grad(w), want, 1e-6);
        OK(core_tensor_set_grad(w, NULL));
    }
    for (int i = 0; i < 2; i++)
        core_stream_release(streams[i]);
}
END_TEST

/* Backward waits for a weight gradient stored in grad, and must do so for a
 * main gradient.  The weight was used before on the caller's stream. */
START_TEST(main_grad_is_ready_when_backward_returns)
{
    core_tensor *before, *want, *y, *ones;

    args.weight = w = to_sim(w);
    args.input = CALL(detach, to_sim(x));
    args.bias = NULL;
    before = keep(sum(w));
    ones = CALL(ones, (int64_t[]){2, 3, OUT}, 3, CORE_F32, device_of("sim"));
    OK(core_backward((core_tensor *[]){apply()}, 1, &ones, 0));
    want = keep(core_tensor_retain(core_tensor_grad(w)));
    OK(core_tensor_set_grad(w, NULL));
    for (uint32_t flags = 0; flags <= CORE_LINEAR_ACCUMULATE; flags++) {
        core_stream *stream = new_stream("sim");
        core_stream_guard guard;

        args.flags = flags;
        args.main_grad =
            CALL(zeros, (int64_t[]){OUT, IN}, 2, CORE_F32, device_of("sim"));
        OK(core_device_synchronize(device_of("sim")));
        OK(core_stream_guard_enter(stream, &guard));
        y = apply();
        core_stream_guard_leave(&guard);
        OK(core_backward(&y, 1, &ones, 0));
        near(CALL(mul_scalar, args.main_grad, core_float(1)), want, 1e-6);
        core_stream_release(stream);
    }
    ck_assert_ptr_nonnull(before);
}
END_TEST

/* Linear layers on two devices fill one queue from the engine's threads; races
 * show up occasionally, and always under a thread sanitizer. */
static void *fill_queue(void *unused)
{
    for (int i = 0; i < PUSHES; i++) {
        core__linear_weight_gradient dw = {.grad = core_tensor_retain(b)};

        OK(core__linear_wgrad_queue_push(queue, &dw));
    }
    return unused;
}

START_TEST(several_threads_may_fill_one_queue)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fill_queue, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(core_linear_wgrad_queue_count(queue), THREADS * PUSHES);
    core_linear_wgrad_queue_release(queue);
    queue = NULL;
    ck_assert_uint_eq(core_tensor_references(b), 1); /* all were released */
}
END_TEST

START_TEST(delayed_gradient_refuses_changed_input)
{
    core_tensor *y;

    args.wgrad_queue = queue;
    args.input = CALL(clone, CALL(detach, x), -1);
    backward(loss(apply()));
    OK(core_zero_(args.input));
    for (int i = 0; i < 2; i++)
        FAILS(core_linear_backward_dw(queue), CORE_ERROR_AUTOGRAD, "the input",
              "changed");
    ck_assert_uint_eq(core_linear_wgrad_queue_count(queue), 1);
    ck_assert_ptr_null(core_tensor_grad(w));
    /* A delayed gradient of a non-leaf would reach nothing. */
    args.weight = mul(w, w);
    FAILS(core_linear_apply(&args, &y), CORE_ERROR_INVALID_ARGUMENT, "leaf");
    ck_assert_ptr_null(y);
    args.main_grad = CALL(zeros, (int64_t[]){OUT, IN}, 2, CORE_F32, NULL);
    backward(loss(apply()));
}
END_TEST

/* --------------------------------------------------------------- regions -- */

START_TEST(backward_calls_ignore_autocast_regions)
{
    core_linear_backward_args saved;
    core_linear_intermediates intermediates;
    core_tensor *grads[2][3], *y, *delayed[2];
    uint64_t region = 0;

    args.input_requires_grad = args.weight_requires_grad = 1;
    OK(core_linear_forward(&args, &y, &intermediates));
    OK(core_linear_setup(&args, &intermediates, &saved));
    core_linear_intermediates_release(&intermediates);
    saved.grad_output = keep(y);
    args.wgrad_queue = queue;
    for (int i = 0; i < 2; i++) {
        backward(loss(apply()));
        if (i)
            OK(core_autocast_begin(device_of("cpu"), CORE_BF16, 0, &region));
        OK(core_linear_backward(&saved, &grads[i][0], &grads[i][1],
                                &grads[i][2]));
        OK(core_linear_backward_dw(queue));
        keep(grads[i][0]);
        keep(grads[i][1]);
        delayed[i] = keep(core_tensor_retain(core_tensor_grad(w)));
        OK(core_tensor_set_grad(w, NULL));
    }
    OK(core_autocast_end(region));
    near(grads[1][0], grads[0][0], 0);
    near(grads[1][1], grads[0][1], 0);
    near(delayed[1], delayed[0], 0);
    core_linear_backward_release(&saved);
}
END_TEST

START_TEST(float8_linear_accepts_inputs_lowered_by_autocast)
{
    core_tensor *low =
        leaf(CALL(to_copy, CALL(detach, x), CORE_BF16, NULL, false, -1));
    core_tensor *y;
    uint64_t region;

    quantized(CORE_SCALING_CURRENT);
    args.input = low;
    FAILS(core_linear_apply(&args, &y), CORE_ERROR_DTYPE, "weight");
    OK(core_autocast_begin(device_of("cpu"), CORE_BF16, 0, &region));
    y = apply();
    OK(core_autocast_end(region));
    ck_assert_uint_eq(core_tensor_dtype(y), CORE_F32);
    backward(loss(y));
    ck_assert_uint_eq(core_tensor_dtype(core_tensor_grad(low)), CORE_BF16);
    ck_assert_uint_eq(core_tensor_dtype(core_tensor_grad(w)), CORE_F32);
    ck_assert_ptr_nonnull(core_tensor_grad(b));
}
END_TEST

static int casts;

static core_status count_cast(core_call *call, const core_value *given,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    casts++;
    return core_redispatch_below(call, given, nargs, results, nresults);
}

START_TEST(weight_is_cast_once_in_autocast_region)
{
    core_registration *counting;
    uint64_t region;

    args.input = CALL(to_copy, CALL(detach, x), CORE_BF16, NULL, false, -1);
    args.bias = NULL;
    OK(core_function_register("_to_copy", CORE_KEY_INPLACE_OR_VIEW, NULL,
                              count_cast, NULL, &counting));
    OK(core_autocast_begin(device_of("cpu"), CORE_BF16, 0, &region));
    apply();
    apply();
    CALL(linear, args.input, w, NULL);
    OK(core_autocast_end(region));
    ck_assert_int_eq(casts, 1);
    core_registration_release(counting);
}
END_TEST

/* ------------------------------------------------------ main gradients -- */

/* The factors overflow f16, the gradient does not. */
START_TEST(f16_main_grad_receives_gradient_computed_in_f32)
{
    core_tensor *main = CALL(zeros, (int64_t[]){OUT, IN}, 2, CORE_F16, NULL);
    core_tensor *large = CALL(mul_scalar, CALL(detach, x), core_float(1e6));
    core_tensor *small =
        CALL(full, (int64_t[]){2, 3, OUT}, 3, core_float(1e-5), CORE_F32, NULL);
    core_tensor *y, *want;
    core_gradient_destination to = {
        .struct_size = sizeof to, .input = w, .buffer = main};

    args.input = large;
    y = apply();
    OK(core_backward(&y, 1, &small, CORE_RETAIN_GRAPH));
    want = keep(core_tensor_retain(core_tensor_grad(w)));
    OK(core_backward_into(&y, 1, &small, 0, &to, 1));
    ck_assert_int_eq(to.result, CORE_DESTINATION_COPIED);
    near(main, want, 1e-3);
    args.main_grad = main;
    for (int i = 1; i <= 2; i++) {
        args.flags = i == 2 ? CORE_LINEAR_ACCUMULATE : 0;
        y = apply();
        OK(core_backward(&y, 1, &small, 0));
        near(main, CALL(mul_scalar, want, core_float(i)), 2e-3);
    }
}
END_TEST

/* --------------------------------------------------------- no features -- */

static void check_sizes(int64_t in, int64_t out, bool fused)
{
    core_tensor *input =
        leaf(CALL(ones, (int64_t[]){2, 3, in}, 3, CORE_F32, NULL));
    core_tensor *weight =
        leaf(CALL(ones, (int64_t[]){out, in}, 2, CORE_F32, NULL));
    core_linear_forward_args given = {
        .struct_size = sizeof given, .input = input, .weight = weight};
    core_tensor *y;

    if (fused)
        OK(core_linear_apply(&given, &y));
    else
        OK(core_linear(input, weight, NULL, &y));
    ck_assert_int_eq(core_tensor_size(keep(y), 1), 3);
    ck_assert_int_eq(core_tensor_size(y, 2), out);
    backward(sum(y));
    ck_assert_int_eq(core_tensor_size(core_tensor_grad(input), 2), in);
    ck_assert_int_eq(core_tensor_size(core_tensor_grad(weight), 0), out);
    if (in > 0)
        HOLDS(CALL(sum, core_tensor_grad(input), CORE_DTYPE_NONE), 1, 0);
}

START_TEST(linear_accepts_zero_features)
{
    for (int fused = 0; fused < 2; fused++) {
        check_sizes(0, 4, fused);
        check_sizes(4, 0, fused);
        check_sizes(0, 0, fused);
    }
}
END_TEST

/* --------------------------------------------------------- recomputation -- */

/* Calls the layer twice with the same quantizers; each call has another
 * scale. */
static core_status twice(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_linear_forward_args given = args;
    core_tensor *more = NULL, *y[2] = {NULL, NULL};
    core_status status;

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    given.input = inputs[0];
    status = core_linear_apply(&given, &y[0]);
    if (status == CORE_OK)
        status = core_mul_scalar(inputs[0], core_float(5), &more);
    given.input = more;
    if (status == CORE_OK)
        status = core_linear_apply(&given, &y[1]);
    if (status == CORE_OK)
        status = core_add(y[0], y[1], core_int(1), &outputs[0]);
    core_tensor_release(more);
    core_tensor_release(y[0]);
    core_tensor_release(y[1]);
    return status;
}

static core_status inside(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function = twice};

    (void)context;
    return core_checkpoint(&info, inputs, ninputs, outputs, noutputs);
}

static void run_step(int checkpoints)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function =
                                           checkpoints > 1 ? inside : twice};
    size_t count = 1;
    core_tensor *y;

    if (checkpoints)
        OK(core_checkpoint(&info, &x, 1, &y, &count));
    else
        OK(twice(NULL, &x, 1, &y, &count));
    backward(loss(keep(y)));
}

typedef struct outcome {
    core_quantizer_state states[3];
    float histories[3][4];
    double grads[2][ROWS * IN + OUT * IN];
} outcome;

static void read_outcome(outcome *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 3; i++) {
        out->states[i].struct_size = sizeof out->states[i];
        OK(core_quantizer_get_state(quantizers[i], &out->states[i]));
        memcpy(out->histories[i], core_quantizer_history(quantizers[i]),
               out->states[i].history_count * sizeof(float));
    }
    read_all(core_tensor_grad(x), out->grads[0]);
    read_all(core_tensor_grad(w), out->grads[1]);
    clear();
}

START_TEST(recomputation_uses_the_scales_of_the_first_run)
{
    static outcome want[3], have;

    for (uint32_t flags = 0; flags <= CORE_QUANTIZER_NO_WAIT;
         flags += CORE_QUANTIZER_NO_WAIT)
        for (int checkpoints = 0; checkpoints < 3; checkpoints++) {
            teardown();
            tensors(CORE_F32);
            args.bias = NULL;
            quantized(CORE_SCALING_DELAYED);
            with_flags(flags);
            for (int i = 0; i < 3; i++) {
                run_step(checkpoints);
                read_outcome(checkpoints ? &have : &want[i]);
                if (checkpoints)
                    ck_assert_mem_eq(&have, &want[i], sizeof have);
            }
        }
}
END_TEST

/* Nodes of the host and of two devices, each of which quantizes its gradient;
 * the inner backward runs them on the worker threads. */
typedef struct passing_back {
    passing pass;
    core_quantizer *quantizer;
    core_tensor *updated;
} passing_back;

static passing_back parts[3];

static core_status quantize_back(void *context)
{
    passing_back *part = context;
    core_tensor *data, *scales;
    core_status status =
        core_quantizer_quantize(part->quantizer, part->updated, &data, &scales);

    if (status != CORE_OK)
        return status;
    core_tensor_release(data);
    core_tensor_release(scales);
    return CORE_OK;
}

static core_status back_inside(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    static const char *const names[] = {"cpu", "sim:0", "sim:1"};
    core_tensor *root, *all[3], *grad, *given[3];

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    root = leaf(CALL(detach, inputs[0]));
    for (int i = 0; i < 3; i++) {
        all[i] = pass(&parts[i].pass, on(root, names[i]));
        given[i] = fresh_on(CALL(detach, inputs[0]), names[i]);
    }
    OK(core_grad(all, 3, given, &root, 1, 0, &grad));
    return core_mul(inputs[0], keep(grad), &outputs[0]);
}

START_TEST(nested_backward_quantizes_once_per_worker)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function = back_inside};
    core_quantizer_state state = {.struct_size = sizeof state};
    size_t count = 1;
    core_tensor *y;

    tensors(CORE_F32);
    quantized(CORE_SCALING_DELAYED);
    for (int i = 0; i < 3; i++)
        parts[i] = (passing_back){.pass = {.factor = 2,
                                           .inside = quantize_back,
                                           .context = &parts[i]},
                                  .quantizer = quantizers[i],
                                  .updated = w};
    for (int step = 1; step <= 20; step++) {
        OK(core_checkpoint(&info, &x, 1, &y, &count));
        backward(loss(keep(y)));
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(parts[i].pass.runs, 2 * step);
            OK(core_quantizer_get_state(quantizers[i], &state));
            ck_assert_uint_eq(state.calls, (uint64_t)step);
        }
    }
    ck_assert(!pthread_equal(parts[1].pass.thread, pthread_self()));
    ck_assert(!pthread_equal(parts[1].pass.thread, parts[2].pass.thread));
    clear();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        workspace_is_refused_for_another_weight,
        workspace_and_queue_are_ordered_across_streams,
        main_grad_is_ready_when_backward_returns,
        several_threads_may_fill_one_queue,
        delayed_gradient_refuses_changed_input,
        backward_calls_ignore_autocast_regions,
        float8_linear_accepts_inputs_lowered_by_autocast,
        weight_is_cast_once_in_autocast_region,
        f16_main_grad_receives_gradient_computed_in_f32,
        linear_accepts_zero_features,
        recomputation_uses_the_scales_of_the_first_run,
        nested_backward_quantizes_once_per_worker,
    };
    const test_suite suite = {
        .name = "linear/linear_use",
        .setup = setup_use,
        .teardown = teardown_use,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
