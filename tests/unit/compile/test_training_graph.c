/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The graphs of compiled functions, on cpu and sim: what they keep, second
 * derivatives, destinations, hooks, recomputation, threads. */

#include "support/training.h"

#include <libcore/autocast.h>
#include <libcore/destination.h>
#include <libcore/memory.h>
#include <libcore/saved.h>
#include <libcore/settings.h>

#include <pthread.h>

/* ---------------------------------------------------------------- graphs -- */

START_TEST(a_graph_is_kept_if_asked)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(products, &traced);
    core_tensor *a, *b;

    call_world(products, &eager, NULL, 1, &a);
    call_world(products, &traced, compiled, 1, &b);
    for (int i = 0; i < 3; i++) {
        backward_of(&a, 1, 1, i < 2 ? CORE_RETAIN_GRAPH : 0);
        backward_of(&b, 1, 1, i < 2 ? CORE_RETAIN_GRAPH : 0);
        same_gradients("input", eager.inputs, traced.inputs, 2);
    }
    FAILS(core_backward(&b, 1, &b, 0), CORE_ERROR_AUTOGRAD,
          "compiled function");
    core_tensor_release(a);
    core_tensor_release(b);
    core_compiled_release(compiled);
}
END_TEST

/* The gradients of the inputs, and of the sum of their squares. */
static void differentiate_twice(core_tensor *y, core_tensor *const *x,
                                core_tensor **first, core_tensor **second)
{
    core_tensor *squares;

    OK(core_grad(
        &y, 1, &(core_tensor *){CALL(ones_like, y, CORE_DTYPE_NONE, NULL, -1)},
        x, 2, CORE_CREATE_GRAPH, first));
    squares = add(sum(mul(first[0], first[0])), sum(mul(first[1], first[1])));
    OK(core_grad(&squares, 1, NULL, x, 2, 0, second));
}

START_TEST(second_derivatives_are_those_of_the_function)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled;

    OK(core_compile(products, &traced, NULL, &compiled));
    for (int call = 0; call < 3; call++) {
        core_tensor *a, *b, *first_a[2], *first_b[2], *second_a[2],
            *second_b[2];

        call_world(products, &eager, NULL, 1, &a);
        call_world(products, &traced, compiled, 1, &b);
        differentiate_twice(a, eager.inputs, first_a, second_a);
        differentiate_twice(b, traced.inputs, first_b, second_b);
        for (size_t i = 0; i < 2; i++) {
            same_bits("gradient", i, first_a[i], first_b[i]);
            same_bits("second derivative", i, second_a[i], second_b[i]);
        }
        release_tensors(first_a, 2);
        release_tensors(first_b, 2);
        release_tensors(second_a, 2);
        release_tensors(second_b, 2);
        core_tensor_release(a);
        core_tensor_release(b);
    }
    EXPLAINS(compiled, "CORE_CREATE_GRAPH");
    EXPLAINS(compiled, "\"eager_calls\": 2");
    EXPLAINS(compiled, "\"backward_calls_of_the_function\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The gradients have a graph that shares nodes with that of the output. */
static void release_shared_nodes(const world *w, core_tensor *y, uint32_t flags)
{
    core_tensor *first[2], *second[2], *total;
    core_tensor *seed = CALL(ones_like, y, CORE_DTYPE_NONE, NULL, -1);

    OK(core_grad(&y, 1, &seed, w->inputs, 2, CORE_CREATE_GRAPH, first));
    total = sum(mul(first[0], first[1]));
    OK(core_grad(&total, 1, NULL, w->inputs, 2, flags, second));
    release_tensors(first, 2);
    release_tensors(second, 2);
}

static void check_shared_nodes(bool compile, uint32_t flags)
{
    world w = two_leaves();
    core_compiled *compiled = compile ? compile_fully(products, &w) : NULL;

    for (int call = 0; call < 2; call++) {
        core_tensor *y, *grad = NULL;

        call_world(products, &w, compiled, 1, &y);
        release_shared_nodes(&w, y, CORE_RETAIN_GRAPH);
        OK(core_backward(&y, 1, &y, CORE_RETAIN_GRAPH));
        release_shared_nodes(&w, y, flags);
        if (flags == CORE_RETAIN_GRAPH)
            OK(core_backward(&y, 1, &y, 0));
        FAILS(core_backward(&y, 1, &y, 0), CORE_ERROR_AUTOGRAD,
              "already ran in an earlier backward");
        FAILS(core_grad(&y, 1, &y, w.inputs, 1, CORE_CREATE_GRAPH, &grad),
              CORE_ERROR_AUTOGRAD, "already ran in an earlier backward");
        core_tensor_release(y);
    }
    core_compiled_release(compiled);
}

/* What a backward of the gradients releases is released for the output, too. */
START_TEST(gradients_with_a_graph_share_it_with_the_output)
{
    for (int compile = 0; compile < 2; compile++) {
        check_shared_nodes(compile, 0);
        check_shared_nodes(compile, CORE_RETAIN_GRAPH);
    }
}
END_TEST

/* Small integers, so that the order of additions does not matter. */
static world integers(void)
{
    world w = {.device = program_device, .ninputs = 2};
    const int64_t sizes[] = {3, 4};

    for (int i = 0; i < 2; i++) {
        OK(core_full(sizes, 2, core_float(i + 2), CORE_F32, program_device,
                     &w.inputs[i]));
        leaf(keep(w.inputs[i]));
    }
    return w;
}

/* A backward of the output and of its gradients together. */
static void penalize(const world *w, core_tensor *y)
{
    core_tensor *first[2], *loss;
    core_tensor *seed = CALL(ones_like, y, CORE_DTYPE_NONE, NULL, -1);

    OK(core_grad(&y, 1, &seed, w->inputs, 2, CORE_CREATE_GRAPH, first));
    loss = add(sum(y), sum(mul(first[0], first[1])));
    OK(core_backward(&loss, 1, NULL, 0));
    FAILS(core_backward(&y, 1, &y, 0), CORE_ERROR_AUTOGRAD,
          "already ran in an earlier backward");
    release_tensors(first, 2);
}

START_TEST(a_loss_may_contain_an_output_and_its_gradients)
{
    world eager = integers(), traced = integers();
    core_compiled *compiled = compile_fully(products, &traced);

    for (int call = 0; call < 2; call++) {
        core_tensor *a, *b;

        call_world(products, &eager, NULL, 1, &a);
        call_world(products, &traced, compiled, 1, &b);
        penalize(&eager, a);
        penalize(&traced, b);
        same_gradients("input", eager.inputs, traced.inputs, 2);
        core_tensor_release(a);
        core_tensor_release(b);
    }
    core_compiled_release(compiled);
}
END_TEST

/* The gradients cannot be differentiated after a backward that keeps nothing. */
START_TEST(a_backward_releases_the_graph_of_gradients)
{
    for (int compile = 0; compile < 2; compile++) {
        world w = two_leaves();
        core_compiled *compiled = compile ? compile_fully(products, &w) : NULL;
        core_tensor *y, *seed, *first, *second = NULL, *total;

        call_world(products, &w, compiled, 1, &y);
        seed = CALL(ones_like, y, CORE_DTYPE_NONE, NULL, -1);
        OK(core_grad(&y, 1, &seed, w.inputs, 1, CORE_CREATE_GRAPH, &first));
        OK(core_backward(&y, 1, &seed, 0));
        total = sum(first);
        FAILS(core_grad(&total, 1, NULL, w.inputs, 1, 0, &second),
              CORE_ERROR_AUTOGRAD, "already ran in an earlier backward");
        core_tensor_release(first);
        core_tensor_release(y);
        core_compiled_release(compiled);
    }
}
END_TEST

/* Backwards after the one with CORE_CREATE_GRAPH do not call the function. */
START_TEST(a_function_is_called_once_for_its_graph)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(products, &traced);
    core_tensor *a, *b;

    call_world(products, &eager, NULL, 1, &a);
    call_world(products, &traced, compiled, 1, &b);
    for (int i = 0; i < 3; i++) {
        release_shared_nodes(&eager, a, CORE_RETAIN_GRAPH);
        release_shared_nodes(&traced, b, CORE_RETAIN_GRAPH);
        backward_of(&a, 1, 1, i < 2 ? CORE_RETAIN_GRAPH : 0);
        backward_of(&b, 1, 1, i < 2 ? CORE_RETAIN_GRAPH : 0);
        same_gradients("input", eager.inputs, traced.inputs, 2);
    }
    EXPLAINS(compiled, "\"backward_calls_of_the_function\": 1");
    core_tensor_release(a);
    core_tensor_release(b);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_second_derivative_needs_the_function)
{
    world w = two_leaves();
    core_compiled *compiled = compile_fully(products, &w);
    core_tensor *y, *again, *grads[2];

    call_world(products, &w, compiled, 1, &y);
    call_world(products, &w, compiled, 1, &again);
    core_compiled_release(compiled);
    FAILS(core_grad(&y, 1, &y, w.inputs, 2, CORE_CREATE_GRAPH, grads),
          CORE_ERROR_AUTOGRAD, "was released");
    backward_of(&again, 1, 1, 0);
    core_tensor_release(y);
    core_tensor_release(again);
}
END_TEST

static world doubles(void)
{
    world w = two_leaves();

    for (int i = 0; i < 2; i++)
        w.inputs[i] = leaf(CALL(to_copy, CALL(detach, w.inputs[i]), CORE_F64,
                                NULL, false, -1));
    return w;
}

static core_status call_compiled(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    *noutputs = 1;
    return core_compiled_call(context, inputs, ninputs, outputs, 1);
}

START_TEST(gradcheck_accepts_a_compiled_function)
{
    world w = doubles();
    core_compiled *compiled = compile_fully(sum_and_tanh, &w);

    OK(core_gradcheck(call_compiled, compiled, w.inputs, 2, 1e-6, 1e-5, 1e-3));
    EXPLAINS(compiled, "\"eager_calls\": 0");
    OK(core_gradgradcheck(call_compiled, compiled, w.inputs, 2, 1e-6, 1e-5,
                          1e-3));
    core_compiled_release(compiled);
}
END_TEST

static uint64_t bytes_in_use(void)
{
    core_memory_stats stats = {.struct_size = sizeof stats};

    OK(core_device_synchronize(program_device));
    OK(core_memory_get_stats(program_device, &stats));
    return stats.allocated_bytes[CORE_MEMORY_ALL].current;
}

static world large(void)
{
    world w = {.device = program_device, .ninputs = 1, .nhidden = 1};
    const int64_t sizes[] = {256, 256};

    OK(core_ones(sizes, 2, CORE_F32, program_device, &w.inputs[0]));
    OK(core_ones(sizes, 2, CORE_F32, program_device, &w.hidden[0]));
    leaf(keep(w.inputs[0]));
    leaf(keep(w.hidden[0]));
    return w;
}

COMPILED_FUNCTION(chain)
{
    core_tensor *y = x[0];

    for (int i = 0; i < 4; i++)
        y = T(tanh, T(gelu, T(mm, y, w->hidden[0]), "none"));
    out[0] = own(T(mean, y, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(saved_tensors_are_freed_with_the_graph)
{
    world w = large();
    core_compiled *compiled = compile_fully(chain, &w);
    core_tensor *y;
    uint64_t before, with_graph;

    for (int call = 0; call < 3; call++) {
        call_world(chain, &w, compiled, 1, &y);
        OK(core_backward(&y, 1, NULL, 0));
        core_tensor_release(y);
    }
    before = bytes_in_use();
    if (!before) /* the host's memory is not counted */
        return core_compiled_release(compiled);
    call_world(chain, &w, compiled, 1, &y);
    with_graph = bytes_in_use();
    ck_assert_uint_gt(with_graph, before + 4 * 256 * 256 * 4);
    OK(core_backward(&y, 1, NULL, 0));
    ck_assert_uint_lt(bytes_in_use(), before + 4096);
    core_tensor_release(y);
    ck_assert_uint_eq(bytes_in_use(), before);
    call_world(chain, &w, compiled, 1, &y);
    core_tensor_release(y);
    ck_assert_uint_eq(bytes_in_use(), before);
    core_compiled_release(compiled);
}
END_TEST

/* ----------------------------------------------------------- destinations -- */

static void backward_to(core_tensor *loss, core_tensor *const *weights,
                        core_tensor *const *buffers, uint32_t flags)
{
    core_gradient_destination to[2];

    for (int i = 0; i < 2; i++)
        to[i] = (core_gradient_destination){.struct_size = sizeof *to,
                                            .flags = flags,
                                            .input = weights[i],
                                            .buffer = buffers[i]};
    OK(core_backward_into(&loss, 1, NULL, 0, to, 2));
    for (int i = 0; i < 2; i++)
        ck_assert_int_ne(to[i].result, CORE_DESTINATION_UNUSED);
}

/* Parts of one tensor, of another dtype than the gradients. */
static void main_gradients(core_tensor **buffers)
{
    core_tensor *bucket =
        keep(numbers_on(program_device, 1, (int64_t[]){30 + 18}, 77));

    core_tensor_retain(bucket);
    bucket = CALL(to_copy, bucket, CORE_F64, NULL, false, -1);
    buffers[0] = CALL(reshape, CALL(slice, bucket, 0, NULL, &(int64_t){30}, 1),
                      (int64_t[]){6, 5}, 2);
    buffers[1] = CALL(reshape, CALL(slice, bucket, 0, &(int64_t){30}, NULL, 1),
                      (int64_t[]){3, 6}, 2);
}

START_TEST(gradients_reach_their_destinations)
{
    world eager = mlp(), traced = mlp();
    core_compiled *compiled = compile_fully(mlp_loss, &traced);
    core_tensor *to_a[2], *to_b[2];

    main_gradients(to_a);
    main_gradients(to_b);
    for (int call = 0; call < 3; call++) {
        uint32_t flags = call ? CORE_DESTINATION_ACCUMULATE : 0;
        core_tensor *a[2], *b[2];

        call_world(mlp_loss, &eager, NULL, 2, a);
        call_world(mlp_loss, &traced, compiled, 2, b);
        backward_to(a[0], (core_tensor *[]){eager.hidden[0], eager.hidden[2]},
                    to_a, flags);
        backward_to(b[0], (core_tensor *[]){traced.hidden[0], traced.hidden[2]},
                    to_b, flags);
        for (size_t i = 0; i < 2; i++)
            same_bits("destination", i, to_a[i], to_b[i]);
        release_tensors(a, 2);
        release_tensors(b, 2);
    }
    core_compiled_release(compiled);
}
END_TEST

/* The gradients of leaves are parts of one tensor. */
START_TEST(gradients_accumulate_in_buckets)
{
    world eager = mlp(), traced = mlp();
    core_compiled *compiled = compile_fully(mlp_loss, &traced);
    core_tensor *bucket = NUMBERS(&traced, 5, 30);
    core_tensor *grad = CALL(reshape, bucket, (int64_t[]){6, 5}, 2);

    OK(core_tensor_set_grad(eager.hidden[0], CALL(clone, grad, -1)));
    OK(core_tensor_set_grad(traced.hidden[0], grad));
    for (int call = 0; call < 2; call++)
        same_training_of(mlp_loss, &eager, compiled, &traced, 1);
    ck_assert(
        core_tensor_shares_storage(core_tensor_grad(traced.hidden[0]), bucket));
    core_compiled_release(compiled);
}
END_TEST

/* ----------------------------------------------------------------- hooks -- */

static int hook_calls;

static core_status double_gradient(void *context, core_tensor *grad,
                                   core_tensor **out_grad)
{
    (void)context;
    hook_calls++;
    return core_mul_scalar(grad, core_int(2), out_grad);
}

static core_status count_pre(void *context, core_node *node,
                             core_tensor **grads, size_t count)
{
    (void)context;
    (void)grads;
    ck_assert_uint_eq(count, 1);
    ck_assert_ptr_nonnull(strstr(core_node_name(node), "backward"));
    hook_calls++;
    return CORE_OK;
}

static core_status count_post(void *context, core_node *node,
                              core_tensor *const *grads, size_t ngrads,
                              core_tensor **gradients, size_t ngradients)
{
    (void)context;
    (void)node;
    (void)grads;
    (void)gradients;
    ck_assert_uint_eq(ngrads, 1);
    ck_assert_uint_eq(ngradients, 2);
    hook_calls++;
    return CORE_OK;
}

static void train_with_hooks(world *w, core_compiled *compiled, int calls)
{
    core_tensor *y;

    call_world(scaled, w, compiled, 1, &y);
    OK(core_tensor_register_hook(y, double_gradient, NULL, NULL, NULL));
    OK(core_node_register_pre_hook(core_tensor_grad_fn(y), count_pre, NULL,
                                   NULL, NULL));
    OK(core_node_register_post_hook(core_tensor_grad_fn(y), count_post, NULL,
                                    NULL, NULL));
    ck_assert_int_eq(hook_calls, 0);
    backward_of(&y, 1, 1, 0);
    ck_assert_int_eq(hook_calls, calls);
    hook_calls = 0;
    core_tensor_release(y);
}

/* Hooks of hidden inputs do not run when the function is recorded. */
static void compare_with_hooks(world *eager, core_compiled *compiled,
                               world *traced, int calls)
{
    for (int call = 0; call < 2; call++) {
        train_with_hooks(eager, NULL, calls);
        train_with_hooks(traced, compiled, calls);
        same_gradients("input", eager->inputs, traced->inputs, 1);
        same_gradients("weight", eager->hidden, traced->hidden, 1);
    }
}

START_TEST(hooks_of_tensors_and_nodes_run)
{
    world worlds[2] = {input_and_weight(), input_and_weight()};
    core_compiled *compiled = compile_fully(scaled, &worlds[1]);

    hook_calls = 0;
    for (int i = 0; i < 2; i++)
        OK(core_tensor_register_hook(worlds[i].hidden[0], double_gradient, NULL,
                                     NULL, NULL));
    compare_with_hooks(&worlds[0], compiled, &worlds[1], 4);
    EXPLAINS(compiled, "\"eager_calls\": 0");
    for (int i = 0; i < 2; i++)
        OK(core_tensor_register_hook(worlds[i].inputs[0], double_gradient, NULL,
                                     NULL, NULL));
    compare_with_hooks(&worlds[0], compiled, &worlds[1], 5);
    EXPLAINS(compiled, "\"eager_calls\": 0");
    EXPLAINS(compiled, "whether it has hooks");
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- thread -- */

START_TEST(grad_and_inference_mode_may_change)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(products, &traced);

    for (int call = 0; call < 4; call++) {
        bool before = core_grad_mode_set(false);
        uint64_t modes;

        same_call(products, &eager, compiled, &traced);
        core_grad_mode_set(before);
        same_training(products, &eager, compiled, &traced);
        modes = core_inference_begin();
        same_call(products, &eager, compiled, &traced);
        core_inference_end(modes);
    }
    EXPLAINS(compiled, "\"eager_calls\": 0");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(functions_train_in_an_autocast_region)
{
    world eager = mlp(), traced = mlp();
    core_compiled *compiled = compile_fully(mlp_loss, &traced);

    for (int call = 0; call < 2; call++) {
        core_tensor *a[2], *b[2];
        uint64_t region;

        OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
        call_world(mlp_loss, &eager, NULL, 2, a);
        call_world(mlp_loss, &traced, compiled, 2, b);
        OK(core_autocast_end(region));
        same_bits("loss", 0, a[0], b[0]);
        backward_of(a, 2, 1, 0);
        backward_of(b, 2, 1, 0);
        same_gradients("weight", eager.hidden, traced.hidden, 4);
        release_tensors(a, 2);
        release_tensors(b, 2);
    }
    core_compiled_release(compiled);
}
END_TEST

enum { THREADS = 4, THREAD_CALLS = 50 };

typedef struct shared_call {
    core_compiled *compiled;
    core_tensor *x, *expected;
    int failures;
} shared_call;

static void *train_often(void *context)
{
    shared_call *c = context;

    for (int i = 0; i < THREAD_CALLS; i++) {
        core_tensor *y = NULL, *grad = NULL;
        core_status status = core_compiled_call(c->compiled, &c->x, 1, &y, 1);
        float a[12], b[12];

        if (status == CORE_OK)
            status = core_grad(&y, 1, &y, &c->x, 1, 0, &grad);
        if (status == CORE_OK)
            status = core_tensor_read(grad, a, sizeof a);
        if (status == CORE_OK)
            status = core_tensor_read(c->expected, b, sizeof b);
        c->failures += status != CORE_OK || memcmp(a, b, sizeof a) != 0;
        core_tensor_release(y);
        core_tensor_release(grad);
    }
    return NULL;
}

START_TEST(several_threads_train_at_once)
{
    world w = input_and_weight();
    shared_call calls[THREADS];
    pthread_t threads[THREADS];
    core_tensor *y;

    for (int i = 0; i < THREADS; i++) {
        w.inputs[0] = leaf(NUMBERS(&w, 100 * (unsigned)i, 3, 4));
        call_world(scaled, &w, NULL, 1, &y);
        calls[i] = (shared_call){.x = w.inputs[0]};
        OK(core_grad(&y, 1, &y, &w.inputs[0], 1, 0, &calls[i].expected));
        keep(calls[i].expected);
        core_tensor_release(y);
    }
    calls[0].compiled = compile_fully(scaled, &w);
    for (int i = 0; i < THREADS; i++) {
        calls[i].compiled = calls[0].compiled;
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, train_often, &calls[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(calls[i].failures, 0);
    }
    core_compiled_release(calls[0].compiled);
}
END_TEST

/* --------------------------------------------------------- recomputation -- */

static uint64_t member(core_compiled *compiled, const char *name)
{
    char *json, *at, text[64];
    uint64_t value;

    snprintf(text, sizeof text, "\"%s\": ", name);
    OK(core_compiled_explain(compiled, &json));
    at = strstr(json, text);
    ck_assert_msg(at, "explain has no %s", text);
    value = strtoull(at + strlen(text), NULL, 10);
    core_text_free(json);
    return value;
}

/* gelu saves its input, and the next product its result, which is computed
 * again. */
START_TEST(elementwise_values_are_computed_again)
{
    world eager = large(), traced = large();
    core_compiled *compiled = compile_fully(chain, &traced);
    const uint64_t one = 256 * 256 * 4;

    same_training(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(member(compiled, "saved_bytes"), 5 * one);
    ck_assert_uint_gt(member(compiled, "saved_bytes_without_recomputation"),
                      8 * one);
    ck_assert_uint_gt(member(compiled, "recomputed_operators"), 3);
    ck_assert_uint_gt(member(compiled, "forward_operators"), 12);
    ck_assert_uint_gt(member(compiled, "backward_operators"), 16);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(nothing_is_computed_again_within_the_budget)
{
    world eager = large(), traced = large();
    core_compile_options options = {.struct_size = sizeof options,
                                    .recompute_budget = 1 << 30};
    core_compiled *compiled;

    OK(core_compile(chain, &traced, &options, &compiled));
    same_training(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(member(compiled, "recompute_budget"), 1 << 30);
    ck_assert_uint_eq(member(compiled, "recomputed_operators"), 0);
    ck_assert_uint_eq(member(compiled, "saved_bytes"),
                      member(compiled, "saved_bytes_without_recomputation"));
    core_compiled_release(compiled);
}
END_TEST

static world *checkpointed;

static core_status square_of_product(void *context, core_tensor *const *x,
                                     size_t ninputs, core_tensor **out,
                                     size_t *noutputs)
{
    core_tensor *y = NULL;
    core_status status = core_mm(x[0], checkpointed->hidden[0], &y);

    (void)context;
    (void)ninputs;
    if (status == CORE_OK)
        status = core_mul(y, y, &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(with_checkpoint)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function = square_of_product};
    core_status status;

    checkpointed = w;
    *noutputs = 1;
    status = core_checkpoint(&info, x, 1, out, noutputs);
    return status;
}

/* The product of the checkpoint is not saved. */
START_TEST(checkpoints_are_kept)
{
    world eager = large(), traced = large();
    core_compiled *compiled = compile_fully(with_checkpoint, &traced);

    for (int i = 0; i < 2; i++) {
        core_tensor *a, *b;

        call_world(with_checkpoint, &eager, NULL, 1, &a);
        call_world(with_checkpoint, &traced, compiled, 1, &b);
        OK(core_backward(&a, 1, &a, 0));
        OK(core_backward(&b, 1, &b, 0));
        same_gradients("input", eager.inputs, traced.inputs, 1);
        same_gradients("weight", eager.hidden, traced.hidden, 1);
        core_tensor_release(a);
        core_tensor_release(b);
    }
    ck_assert_uint_eq(member(compiled, "saved_bytes"), 256 * 256 * 4);
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- checks -- */

static double factor;

/* A custom backward that the program cannot see is not the issue here: the
 * number changes the backward alone. */
COMPILED_FUNCTION(scaled_by_factor)
{
    core_tensor *y = T(mul_scalar, x[0], core_float(factor));

    out[0] = own(T(mul, y, w->hidden[0]));
    *noutputs = 1;
    return finish();
}

START_TEST(a_function_that_changes_is_noticed)
{
    world w = input_and_weight();
    core_compiled *compiled = compile_fully(scaled_by_factor, &w);
    core_tensor *y;

    factor = 2;
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "1"));
    for (int i = 0; i < 2; i++) {
        call_world(scaled_by_factor, &w, compiled, 1, &y);
        core_tensor_release(y);
    }
    factor = 3;
    FAILS(core_compiled_call(compiled, w.inputs, 1, &y, 1), CORE_ERROR_INTERNAL,
          "LIBCORE_COMPILE_CHECK");
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", NULL));
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/training_graph", a_graph_is_kept_if_asked,
    second_derivatives_are_those_of_the_function,
    gradients_with_a_graph_share_it_with_the_output,
    a_loss_may_contain_an_output_and_its_gradients,
    a_backward_releases_the_graph_of_gradients,
    a_function_is_called_once_for_its_graph,
    a_second_derivative_needs_the_function,
    gradcheck_accepts_a_compiled_function,
    saved_tensors_are_freed_with_the_graph, gradients_reach_their_destinations,
    gradients_accumulate_in_buckets, hooks_of_tensors_and_nodes_run,
    grad_and_inference_mode_may_change, functions_train_in_an_autocast_region,
    several_threads_train_at_once, elementwise_values_are_computed_again,
    nothing_is_computed_again_within_the_budget, checkpoints_are_kept,
    a_function_that_changes_is_noticed)
