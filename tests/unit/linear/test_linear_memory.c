/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fused Linear, to the byte: what lies in a device's memory between
 * forward and backward, and after it, is what the design says and no more. */

#include "support/linear.h"

/* One way to use it. */
typedef struct way {
    bool bias;
    uint32_t activation;
    uint32_t scaling; /* 0: not quantized */
    bool half;        /* bf16, else f32 */
    unsigned wants;   /* gradients: 1 input, 2 weight, 4 bias */
    uint32_t microbatch;
    bool main_grad;
    bool delayed; /* the weight's gradient */
    bool retain;
} way;

enum { INPUT = 1, WEIGHT = 2, BIAS = 4 };

static core_linear_workspace *workspace;
static core_linear_store *store;
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

static void prepare(const way *way)
{
    core_dtype dtype = way->half ? CORE_BF16 : CORE_F32;

    teardown();
    tensors(dtype);
    x = args.input = there(x, way->wants & INPUT);
    w = args.weight = there(w, way->wants & WEIGHT);
    b = there(b, way->wants & BIAS);
    args.bias = way->bias ? b : NULL;
    args.activation = way->activation;
    if (way->scaling)
        quantized(way->scaling);
    if (way->main_grad)
        args.main_grad =
            there(wave(CORE_F32, 2, (int64_t[]){OUT, IN}, 1), false);
    ones = CALL(ones, (int64_t[]){2, 3, OUT}, 3, dtype, device_of("sim"));
    OK(core_linear_workspace_create(&workspace));
    OK(core_linear_store_create(&store));
    if (way->microbatch) {
        args.workspace = workspace;
        args.microbatch = way->microbatch;
    }
    if (way->delayed)
        args.store = store;
    if (way->microbatch == CORE_LINEAR_LATER_MICROBATCH) {
        core_tensor *y;

        args.microbatch = CORE_LINEAR_FIRST_MICROBATCH;
        OK(core_linear_apply(&args, &y));
        core_tensor_release(y);
        args.microbatch = way->microbatch;
    }
    OK(core_device_synchronize(device_of("sim")));
}

/* Of a quantized matrix: a byte each, and one scale or a byte for each 32. */
static uint64_t codes(const way *way, uint64_t numel)
{
    return numel + (way->scaling == CORE_SCALING_BLOCK ? numel / 32 : 4);
}

static bool wants(const way *way, unsigned which)
{
    return way->wants & which && (which != BIAS || way->bias);
}

/* What forward leaves beside the result. */
static uint64_t saved(const way *way)
{
    uint64_t size = way->half ? 2 : 4, sum = 0;
    bool any = wants(way, INPUT) || wants(way, WEIGHT) || wants(way, BIAS);

    if (way->activation == CORE_LINEAR_GELU && any)
        sum += ROWS * OUT * size; /* its argument */
    if (way->scaling && wants(way, WEIGHT))
        sum += codes(way, ROWS * IN);
    if (way->scaling &&
        (way->microbatch ? way->microbatch == CORE_LINEAR_FIRST_MICROBATCH
                         : wants(way, INPUT)))
        sum += codes(way, OUT * IN); /* once, for workspace and backward */
    return sum;
}

/* What is in the workspace belongs to no backward. */
static uint64_t in_workspace(const way *way)
{
    return way->microbatch == CORE_LINEAR_FIRST_MICROBATCH
               ? codes(way, OUT * IN)
               : 0;
}

static uint64_t gradients(const way *way)
{
    uint64_t size = way->half ? 2 : 4;
    bool elsewhere = way->main_grad || way->delayed;

    return (wants(way, INPUT) ? ROWS * IN * size : 0) +
           (wants(way, WEIGHT) && !elsewhere ? OUT * IN * size : 0) +
           (wants(way, BIAS) ? OUT * size : 0);
}

/* With a store: the gradient as it is multiplied, and the input's codes; the
 * gradient without activation and quantizers is the caller's own. */
static uint64_t waiting(const way *way)
{
    uint64_t size = way->scaling ? 4 : way->half ? 2 : 4;

    if (!way->delayed || !wants(way, WEIGHT))
        return 0;
    return (way->activation || way->scaling ? ROWS * OUT * size : 0) +
           (way->scaling ? codes(way, ROWS * IN) : 0);
}

static void told(const way *way, const char *when, uint64_t have, uint64_t want)
{
    ck_assert_msg(have == want,
                  "%s: %llu bytes, not %llu (bias %d activation %u scaling %u "
                  "bf16 %d wants %u microbatch %u main_grad %d delayed %d "
                  "retain %d)",
                  when, (unsigned long long)have, (unsigned long long)want,
                  way->bias, way->activation, way->scaling, way->half,
                  way->wants, way->microbatch, way->main_grad, way->delayed,
                  way->retain);
}

static void walk(const way *way)
{
    uint64_t output = ROWS * OUT * (way->half ? 2 : 4), before;
    core_tensor *y;

    prepare(way);
    before = held();
    OK(core_linear_apply(&args, &y));
    told(way, "after forward", held(), before + output + saved(way));
    if (way->retain) {
        OK(core_backward(&y, 1, &ones, CORE_RETAIN_GRAPH));
        while (core_linear_store_count(store))
            OK(core_linear_backward_dw(store));
        clear();
        told(way, "after a backward that retains", held(),
             before + output + saved(way));
    }
    if (wants(way, INPUT) || wants(way, WEIGHT) || wants(way, BIAS))
        OK(core_backward(&y, 1, &ones, 0));
    told(way, "after backward", held(),
         before + output + gradients(way) + waiting(way) + in_workspace(way));
    while (core_linear_store_count(store))
        OK(core_linear_backward_dw(store));
    clear();
    told(way, "at the end", held(), before + output + in_workspace(way));
    core_tensor_release(y);
    core_linear_workspace_release(workspace);
    core_linear_store_release(store);
    told(way, "when all is released", held(),
         before - (way->microbatch == CORE_LINEAR_LATER_MICROBATCH
                       ? codes(way, OUT * IN)
                       : 0));
}

START_TEST(bytes_are_the_sum_for_each_activation_and_scaling)
{
    for (int i = 0; i < 2 * 3 * 4 * 2; i++)
        walk(&(way){.bias = i % 2,
                    .activation = i / 2 % 3,
                    .scaling = (uint32_t)(i / 6 % 4),
                    .half = i / 24,
                    .wants = INPUT | WEIGHT | BIAS});
}
END_TEST

START_TEST(bytes_are_the_sum_whichever_gradients_are_wanted)
{
    for (int i = 0; i < 8 * 3 * 4; i++)
        walk(&(way){.bias = true,
                    .wants = (unsigned)(i % 8),
                    .activation = i / 8 % 3,
                    .scaling = (uint32_t)(i / 24)});
}
END_TEST

START_TEST(bytes_are_the_sum_with_a_weight_that_is_kept)
{
    for (int i = 0; i < 2 * 3 * 4; i++)
        walk(&(way){.bias = true,
                    .microbatch = 1 + (uint32_t)(i % 2),
                    .scaling = 1 + (uint32_t)(i / 2 % 3),
                    .wants = i / 6 == 0   ? WEIGHT
                             : i / 6 == 1 ? INPUT
                             : i / 6 == 2 ? BIAS
                                          : INPUT | WEIGHT | BIAS});
}
END_TEST

START_TEST(bytes_are_the_sum_where_the_weight_s_gradient_goes_elsewhere)
{
    for (int i = 0; i < 4 * 3 * 4; i++)
        walk(&(way){.bias = true,
                    .main_grad = i % 2,
                    .delayed = i / 2 % 2,
                    .activation = i / 4 % 3,
                    .scaling = (uint32_t)(i / 12),
                    .wants = INPUT | WEIGHT | BIAS});
}
END_TEST

START_TEST(bytes_are_the_sum_where_the_graph_is_retained)
{
    for (int i = 0; i < 4 * 3 * 4; i++)
        walk(&(way){.bias = true,
                    .retain = true,
                    .main_grad = i % 2,
                    .delayed = i / 2 % 2,
                    .activation = i / 4 % 3,
                    .scaling = (uint32_t)(i / 12),
                    .microbatch = i / 12 ? CORE_LINEAR_FIRST_MICROBATCH : 0,
                    .wants = INPUT | WEIGHT | BIAS});
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        bytes_are_the_sum_for_each_activation_and_scaling,
        bytes_are_the_sum_whichever_gradients_are_wanted,
        bytes_are_the_sum_with_a_weight_that_is_kept,
        bytes_are_the_sum_where_the_weight_s_gradient_goes_elsewhere,
        bytes_are_the_sum_where_the_graph_is_retained,
    };
    const test_suite suite = {
        .name = "fused linear: memory",
        .setup = setup,
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
