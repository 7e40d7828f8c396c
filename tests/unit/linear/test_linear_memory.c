/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory of the fused linear layer, to the byte: between forward and backward,
 * and afterwards, it holds on the device exactly what later steps need. */

#include "support/linear.h"

/* One configuration of the layer. */
typedef struct config {
    bool bias;
    uint32_t activation;
    uint32_t scaling; /* 0: not quantized */
    bool half;        /* bf16 instead of f32 */
    unsigned needs;   /* gradients to compute: INPUT | WEIGHT | BIAS */
    uint32_t microbatch;
    bool main_grad;
    bool delayed; /* whether the weight gradient is delayed */
    bool retain;
} config;

enum { INPUT = 1, WEIGHT = 2, BIAS = 4 };

static core_linear_workspace *workspace;
static core_linear_wgrad_queue *queue;
static core_tensor *ones;

static uint64_t held(void)
{
    core_memory_stats stats = {.struct_size = sizeof stats};

    OK(core_memory_get_stats(device_of("sim"), &stats));
    return stats.requested_bytes[0].current;
}

static core_tensor *there(core_tensor *tensor, bool requires_grad)
{
    core_tensor *copy =
        CALL(to_copy, CALL(detach, tensor), core_tensor_dtype(tensor),
             device_of("sim"), false, -1);

    return requires_grad ? leaf(copy) : copy;
}

static void prepare(const config *config)
{
    core_dtype dtype = config->half ? CORE_BF16 : CORE_F32;

    teardown();
    tensors(dtype);
    x = args.input = there(x, config->needs & INPUT);
    w = args.weight = there(w, config->needs & WEIGHT);
    b = there(b, config->needs & BIAS);
    args.bias = config->bias ? b : NULL;
    args.activation = config->activation;
    if (config->scaling)
        quantized(config->scaling);
    if (config->main_grad)
        args.main_grad =
            there(wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1), false);
    ones = CALL(ones, (int64_t[]){2, 3, OUT}, 3, dtype, device_of("sim"));
    OK(core_linear_workspace_create(&workspace));
    OK(core_linear_wgrad_queue_create(&queue));
    if (config->microbatch) {
        args.workspace = workspace;
        args.microbatch = config->microbatch;
    }
    if (config->delayed)
        args.wgrad_queue = queue;
    if (config->microbatch == CORE_LINEAR_LATER_MICROBATCH) {
        core_tensor *y;

        args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
        OK(core_linear_apply(&args, &y));
        core_tensor_release(y);
        args.microbatch = config->microbatch;
    }
    OK(core_device_synchronize(device_of("sim")));
}

/* Bytes of a quantized matrix: one per element, plus one scale or one byte per
 * 32 elements. */
static uint64_t codes(const config *config, uint64_t numel)
{
    return numel + (config->scaling == CORE_SCALING_BLOCK ? numel / 32 : 4);
}

static bool needs(const config *config, unsigned which)
{
    return config->needs & which && (which != BIAS || config->bias);
}

/* Bytes that forward keeps besides the result. */
static uint64_t saved(const config *config)
{
    uint64_t size = config->half ? 2 : 4, sum = 0;
    bool any =
        needs(config, INPUT) || needs(config, WEIGHT) || needs(config, BIAS);

    if (config->activation == CORE_LINEAR_GELU && any)
        sum += ROWS * OUT * size; /* the argument of the activation */
    if (config->scaling && needs(config, WEIGHT))
        sum += codes(config, ROWS * IN);
    if (config->scaling &&
        (config->microbatch ? config->microbatch == CORE_LINEAR_FIRST_MICROBATCH
                            : needs(config, INPUT)))
        sum += codes(config, OUT * IN); /* shared by workspace and backward */
    return sum;
}

/* Bytes of the workspace, which no backward owns. */
static uint64_t in_workspace(const config *config)
{
    return config->microbatch == CORE_LINEAR_FIRST_MICROBATCH
               ? codes(config, OUT * IN)
               : 0;
}

static uint64_t gradients(const config *config)
{
    uint64_t size = config->half ? 2 : 4;
    bool elsewhere = config->main_grad || config->delayed;

    return (needs(config, INPUT) ? ROWS * IN * size : 0) +
           (needs(config, WEIGHT) && !elsewhere ? OUT * IN * size : 0) +
           (needs(config, BIAS) ? OUT * size : 0);
}

/* Bytes held by a queue: the gradient to be multiplied and the codes of the
 * input; without activation and quantizers the gradient is the caller's. */
static uint64_t waiting(const config *config)
{
    uint64_t size = config->scaling ? 4 : config->half ? 2 : 4;

    if (!config->delayed || !needs(config, WEIGHT))
        return 0;
    return (config->activation || config->scaling ? ROWS * OUT * size : 0) +
           (config->scaling ? codes(config, ROWS * IN) : 0);
}

static void check_bytes(const config *config, const char *when, uint64_t have,
                        uint64_t want)
{
    ck_assert_msg(have == want,
                  "%s: %llu bytes, not %llu (bias %d activation %u scaling %u "
                  "bf16 %d needs %u microbatch %u main_grad %d delayed %d "
                  "retain %d)",
                  when, (unsigned long long)have, (unsigned long long)want,
                  config->bias, config->activation, config->scaling,
                  config->half, config->needs, config->microbatch,
                  config->main_grad, config->delayed, config->retain);
}

static void walk(const config *config)
{
    uint64_t output = ROWS * OUT * (config->half ? 2 : 4), before;
    core_tensor *y;

    prepare(config);
    before = held();
    OK(core_linear_apply(&args, &y));
    check_bytes(config, "after forward", held(),
                before + output + saved(config));
    if (config->retain) {
        OK(core_backward(&y, 1, &ones, CORE_RETAIN_GRAPH));
        while (core_linear_wgrad_queue_count(queue))
            OK(core_linear_backward_dw(queue));
        clear();
        check_bytes(config, "after a backward that retains the graph", held(),
                    before + output + saved(config));
    }
    if (needs(config, INPUT) || needs(config, WEIGHT) || needs(config, BIAS))
        OK(core_backward(&y, 1, &ones, 0));
    check_bytes(config, "after backward", held(),
                before + output + gradients(config) + waiting(config) +
                    in_workspace(config));
    while (core_linear_wgrad_queue_count(queue))
        OK(core_linear_backward_dw(queue));
    clear();
    check_bytes(config, "at the end", held(),
                before + output + in_workspace(config));
    core_tensor_release(y);
    core_linear_workspace_release(workspace);
    core_linear_wgrad_queue_release(queue);
    check_bytes(config, "after everything was released", held(),
                before - (config->microbatch == CORE_LINEAR_LATER_MICROBATCH
                              ? codes(config, OUT * IN)
                              : 0));
}

START_TEST(only_needed_bytes_are_held_for_each_activation_and_scaling)
{
    for (int i = 0; i < 2 * 3 * 4 * 2; i++)
        walk(&(config){.bias = i % 2,
                       .activation = i / 2 % 3,
                       .scaling = (uint32_t)(i / 6 % 4),
                       .half = i / 24,
                       .needs = INPUT | WEIGHT | BIAS});
}
END_TEST

START_TEST(only_needed_bytes_are_held_for_each_set_of_gradients)
{
    for (int i = 0; i < 8 * 3 * 4; i++)
        walk(&(config){.bias = true,
                       .needs = (unsigned)(i % 8),
                       .activation = i / 8 % 3,
                       .scaling = (uint32_t)(i / 24)});
}
END_TEST

START_TEST(only_needed_bytes_are_held_with_weight_in_workspace)
{
    for (int i = 0; i < 2 * 3 * 4; i++)
        walk(&(config){.bias = true,
                       .microbatch = 1 + (uint32_t)(i % 2),
                       .scaling = 1 + (uint32_t)(i / 2 % 3),
                       .needs = i / 6 == 0   ? WEIGHT
                                : i / 6 == 1 ? INPUT
                                : i / 6 == 2 ? BIAS
                                             : INPUT | WEIGHT | BIAS});
}
END_TEST

START_TEST(only_needed_bytes_are_held_with_main_grad_and_delayed_gradient)
{
    for (int i = 0; i < 4 * 3 * 4; i++)
        walk(&(config){.bias = true,
                       .main_grad = i % 2,
                       .delayed = i / 2 % 2,
                       .activation = i / 4 % 3,
                       .scaling = (uint32_t)(i / 12),
                       .needs = INPUT | WEIGHT | BIAS});
}
END_TEST

START_TEST(only_needed_bytes_are_held_with_retained_graph)
{
    for (int i = 0; i < 4 * 3 * 4; i++)
        walk(&(config){.bias = true,
                       .retain = true,
                       .main_grad = i % 2,
                       .delayed = i / 2 % 2,
                       .activation = i / 4 % 3,
                       .scaling = (uint32_t)(i / 12),
                       .microbatch = i / 12 ? CORE_LINEAR_FIRST_MICROBATCH : 0,
                       .needs = INPUT | WEIGHT | BIAS});
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        only_needed_bytes_are_held_for_each_activation_and_scaling,
        only_needed_bytes_are_held_for_each_set_of_gradients,
        only_needed_bytes_are_held_with_weight_in_workspace,
        only_needed_bytes_are_held_with_main_grad_and_delayed_gradient,
        only_needed_bytes_are_held_with_retained_graph,
    };
    const test_suite suite = {
        .name = "linear/linear_memory",
        .setup = setup,
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
