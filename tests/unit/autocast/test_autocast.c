/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Autocast: what regions cast and what they do not, gradients, cached casts,
 * and the state of the thread. */

#include "support/devices.h"

#include "base/memory.h"

#include <libcore/autocast.h>
#include <libcore/function.h>
#include <libcore/saved.h>

static uint64_t begin(const char *name, core_dtype dtype, uint32_t flags)
{
    uint64_t region;

    OK(core_autocast_begin(device_of(name), dtype, flags, &region));
    ck_assert_uint_ne(region, 0);
    return region;
}

static uint64_t bf16(void)
{
    return begin("cpu", CORE_BF16, 0);
}

static core_tensor *square(core_dtype dtype)
{
    return typed(dtype, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 4});
}

#define IS(tensor, dtype) ck_assert_uint_eq(core_tensor_dtype(tensor), dtype)

/* How often a tensor was cast, counted below the autocast layer. */
static int casts;

static core_status count_cast(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    casts++;
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static core_registration *count_casts(void)
{
    core_registration *registration;

    casts = 0;
    OK(core_function_register("_to_copy", CORE_KEY_INPLACE_OR_VIEW, NULL,
                              count_cast, NULL, &registration));
    return registration;
}

/* ---------------------------------------------------------------- rules --- */

START_TEST(matrix_products_run_in_lower_dtype)
{
    core_tensor *a = square(CORE_F32), *b = square(CORE_F32);
    uint64_t region = bf16();
    core_tensor *y = CALL(mm, a, b);

    IS(y, CORE_BF16);
    HOLDS(y, 4, 7, 10, 15, 22);
    IS(CALL(matmul, a, b), CORE_BF16);
    IS(CALL(linear, a, b, NULL), CORE_BF16);
    IS(CALL(addmm, a, a, b, core_int(1), core_int(1)), CORE_BF16);
    OK(core_autocast_end(region));
    IS(CALL(mm, a, b), CORE_F32);
    region = begin("cpu", CORE_F16, 0);
    IS(CALL(mm, a, b), CORE_F16);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(range_sensitive_operators_run_in_f32)
{
    core_tensor *a = square(CORE_BF16);
    uint64_t region = bf16();

    IS(CALL(exp, a), CORE_F32);
    IS(CALL(pow_scalar, a, core_float(2)), CORE_F32);
    IS(CALL(mse_loss, a, a, 1), CORE_F32);
    /* Cast by their dtype argument, unless it was given. */
    IS(CALL(sum, a, CORE_DTYPE_NONE), CORE_F32);
    IS(CALL(sum, a, CORE_BF16), CORE_BF16);
    IS(CALL(softmax, a, 1, CORE_DTYPE_NONE), CORE_F32);
    IS(CALL(cumsum, a, 1, CORE_DTYPE_NONE), CORE_F32);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(multi_tensor_operators_use_widest_dtype)
{
    core_tensor *low = square(CORE_BF16), *single = square(CORE_F32);
    uint64_t region = bf16();
    core_tensor *lows[] = {low, low}, *both[] = {low, single};

    IS(CALL(cat, lows, 2, 0), CORE_BF16);
    IS(CALL(cat, both, 2, 0), CORE_F32);
    IS(CALL(stack, both, 2, 0), CORE_F32);
    IS(CALL(addcmul, low, single, low, core_int(1)), CORE_F32);
    IS(CALL(addcmul, low, low, low, core_int(1)), CORE_BF16);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(other_operators_f64_and_integers_are_not_cast)
{
    core_tensor *wide = square(CORE_F64), *whole = square(CORE_I64);
    core_tensor *single = square(CORE_F32), *low = square(CORE_BF16);
    core_tensor *into = square(CORE_F32);
    uint64_t region = bf16();

    IS(CALL(mm, wide, wide), CORE_F64);
    IS(CALL(mm, whole, whole), CORE_I64);
    IS(CALL(sum, wide, CORE_DTYPE_NONE), CORE_F64);
    IS(CALL(sum, whole, CORE_DTYPE_NONE), CORE_I64);
    IS(CALL(exp, whole), CORE_F32);
    IS(add(single, single), CORE_F32);
    IS(add(low, low), CORE_BF16);
    IS(CALL(relu, low), CORE_BF16);
    /* In-place and out= variants keep the dtypes of their operands. */
    OK(core_exp_(low));
    IS(low, CORE_BF16);
    OK(core_mm_out(single, single, into));
    IS(into, CORE_F32);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(composite_casts_its_input_only_once)
{
    core_tensor *scores = square(CORE_BF16), *loss;
    core_tensor *target = typed(CORE_I64, 1, (int64_t[]){2}, (double[]){0, 1});
    uint64_t region = bf16();
    core_registration *counting = count_casts();

    loss = CALL(cross_entropy_loss, scores, target, NULL, 1, -100, 0);
    IS(loss, CORE_F32);
    ck_assert_int_eq(casts, 1);
    core_registration_release(counting);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(only_devices_of_the_region_kind_are_cast)
{
    core_tensor *here = square(CORE_F32);
    core_tensor *there =
        CALL(to_copy, here, CORE_F32, device_of("sim:1"), false, -1);
    uint64_t region = begin("sim:0", CORE_BF16, 0);

    IS(CALL(mm, here, here), CORE_F32);
    IS(CALL(mm, there, there), CORE_BF16);
    ck_assert_uint_eq(core_autocast_dtype(device_of("cpu")), CORE_DTYPE_NONE);
    ck_assert_uint_eq(core_autocast_dtype(device_of("sim:1")), CORE_BF16);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(meta_tensors_are_cast_like_real_tensors)
{
    core_tensor *a =
        CALL(to_copy, square(CORE_F32), CORE_F32, device_of("meta"), false, -1);
    uint64_t region = begin("meta", CORE_BF16, 0);

    IS(CALL(mm, a, a), CORE_BF16);
    OK(core_autocast_end(region));
}
END_TEST

/* -------------------------------------------------------------- regions --- */

START_TEST(inner_region_overrides_outer_region)
{
    core_tensor *a = square(CORE_F32);
    uint64_t outer = bf16(), inner = begin("cpu", CORE_F16, 0), off;

    IS(CALL(mm, a, a), CORE_F16);
    off = begin("cpu", CORE_DTYPE_NONE, CORE_AUTOCAST_OFF);
    IS(CALL(mm, a, a), CORE_F32);
    ck_assert_uint_eq(core_autocast_dtype(device_of("cpu")), CORE_DTYPE_NONE);
    OK(core_autocast_end(off));
    IS(CALL(mm, a, a), CORE_F16);
    OK(core_autocast_end(inner));
    IS(CALL(mm, a, a), CORE_BF16);
    OK(core_autocast_end(outer));
    IS(CALL(mm, a, a), CORE_F32);
}
END_TEST

START_TEST(end_of_region_closes_regions_left_open_inside)
{
    core_tensor *a = square(CORE_F32);
    uint64_t outer = bf16(), inner;

    inner = begin("cpu", CORE_F16, 0);
    begin("sim", CORE_BF16, 0);
    OK(core_autocast_end(outer));
    IS(CALL(mm, a, a), CORE_F32);
    FAILS(core_autocast_end(inner), CORE_ERROR_INVALID_ARGUMENT,
          "not an open region");
}
END_TEST

/* Like a program that returns at the first error. */
static core_status fails_inside(core_tensor *w)
{
    core_tensor *y;
    uint64_t region;

    CORE_TRY(core_autocast_begin(device_of("cpu"), CORE_F16, 0, &region));
    CORE_TRY(core_autocast_begin(device_of("sim"), CORE_BF16, 0, &region));
    CORE_TRY(core_mm(w, CALL(ones, (int64_t[]){3, 3}, 2, CORE_F32, NULL), &y));
    return core_autocast_end(region);
}

START_TEST(regions_left_open_by_error_end_with_caller_region)
{
    core_tensor *w = leaf(square(CORE_F32));
    uint64_t outer = bf16();

    IS(CALL(mm, w, w), CORE_BF16);
    FAILS(fails_inside(w), CORE_ERROR_SHAPE, "mm");
    IS(CALL(mm, w, w), CORE_F16); /* the inner region is still open */
    OK(core_autocast_end(outer));
    IS(CALL(mm, w, w), CORE_F32);
    ck_assert_uint_eq(core_autocast_dtype(device_of("sim")), CORE_DTYPE_NONE);
}
END_TEST

static void *end_elsewhere(void *region)
{
    core_tensor *a = square(CORE_F32), *y;

    if (core_autocast_end(*(uint64_t *)region) != CORE_ERROR_INVALID_ARGUMENT)
        return a;
    bf16(); /* left open */
    if (core_mm(a, a, &y) != CORE_OK || core_tensor_dtype(y) != CORE_BF16)
        return a;
    core_tensor_release(y);
    return NULL;
}

START_TEST(regions_are_local_to_their_thread)
{
    core_tensor *a = square(CORE_F32);
    uint64_t region = bf16();
    pthread_t thread;
    void *wrong;

    ck_assert_int_eq(pthread_create(&thread, NULL, end_elsewhere, &region), 0);
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
    IS(CALL(mm, a, a), CORE_BF16);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(invalid_autocast_calls_change_nothing)
{
    core_device *cpu = device_of("cpu");
    core_tensor *a = square(CORE_F32);
    uint64_t region = bf16(), other = 7;

    FAILS(core_autocast_begin(cpu, CORE_F32, 0, &other), CORE_ERROR_DTYPE,
          "cpu", "f32");
    ck_assert_uint_eq(other, 0);
    FAILS(core_autocast_begin(cpu, CORE_BF16, 64, &other),
          CORE_ERROR_INVALID_ARGUMENT, "0x40");
    FAILS(core_autocast_begin(NULL, CORE_BF16, 0, &other),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_autocast_begin(cpu, CORE_BF16, 0, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_autocast_end(0), CORE_ERROR_INVALID_ARGUMENT,
          "not an open region");
    IS(CALL(mm, a, a), CORE_BF16);
    OK(core_autocast_end(region));
    FAILS(core_autocast_end(region), CORE_ERROR_INVALID_ARGUMENT, "ended");
    ck_assert_uint_eq(core_autocast_dtype(NULL), CORE_DTYPE_NONE);
}
END_TEST

/* ------------------------------------------------------------ gradients --- */

START_TEST(gradient_has_dtype_of_the_parameter)
{
    core_tensor *x = square(CORE_F32), *w = leaf(square(CORE_F32));
    uint64_t region = bf16();
    core_tensor *loss = sum(CALL(mm, x, w));

    IS(loss, CORE_F32);
    OK(core_autocast_end(region));
    backward(loss);
    IS(core_tensor_grad(w), CORE_F32);
    HOLDS(core_tensor_grad(w), 4, 4, 4, 6, 6);
}
END_TEST

START_TEST(backward_inside_region_equals_backward_outside)
{
    core_tensor *x = leaf(square(CORE_F32));
    core_tensor *y = CALL(mm, x, x), *loss = sum(CALL(exp, y));
    core_tensor *inside, *outside;
    uint64_t region;

    /* mm was recorded in f32, so its backward is computed in f32. */
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_RETAIN_GRAPH, &outside));
    region = bf16();
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_RETAIN_GRAPH, &inside));
    OK(core_autocast_end(region));
    keep(inside);
    keep(outside);
    {
        float a[4], b[4];

        OK(core_tensor_read(inside, a, sizeof a));
        OK(core_tensor_read(outside, b, sizeof b));
        ck_assert_mem_eq(a, b, sizeof a);
    }
}
END_TEST

START_TEST(casts_have_second_derivatives)
{
    core_tensor *x = leaf(square(CORE_F32)), *first, *second;
    uint64_t region = bf16();
    core_tensor *loss = sum(CALL(mm, x, x)), *again;

    OK(core_autocast_end(region));
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    keep(first);
    IS(first, CORE_F32);
    again = sum(first);
    OK(core_grad(&again, 1, NULL, &x, 1, 0, &second));
    keep(second);
    IS(second, CORE_F32);
    HOLDS(second, 4, 4, 4, 4, 4);
}
END_TEST

static core_status product(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_tensor *low;
    core_status status;

    (void)context;
    (void)ninputs;
    status = core_mm(inputs[0], inputs[0], &low);
    if (status != CORE_OK)
        return status;
    *noutputs = 1;
    status = core_mul(low, low, &outputs[0]);
    core_tensor_release(low);
    return status;
}

START_TEST(checkpoint_recomputes_with_its_autocast_state)
{
    core_tensor *x = leaf(square(CORE_F32)), *plain, *kept, *y, *loss;
    core_checkpoint_info info = {.struct_size = sizeof info,
                                 .function = product};
    uint64_t region = bf16();
    size_t count = 1;

    OK(product(NULL, &x, 1, &y, &count));
    loss = sum(keep(y));
    OK(core_checkpoint(&info, &x, 1, &y, &count));
    IS(y, CORE_BF16);
    kept = sum(keep(y));
    OK(core_autocast_end(region));
    OK(core_grad(&loss, 1, NULL, &x, 1, 0, &plain));
    keep(plain);
    backward(kept);
    {
        float a[4], b[4];

        OK(core_tensor_read(plain, a, sizeof a));
        OK(core_tensor_read(core_tensor_grad(x), b, sizeof b));
        ck_assert_mem_eq(a, b, sizeof a);
    }
    IS(CALL(mm, x, x), CORE_F32);
}
END_TEST

/* ---------------------------------------------------------- cached casts -- */

START_TEST(weight_is_cast_once_per_outermost_region)
{
    core_tensor *x = square(CORE_BF16), *w = leaf(square(CORE_F32));
    core_registration *counting = count_casts();
    uint64_t outer = bf16(), inner;
    core_tensor *y = CALL(mm, x, w);

    ck_assert_int_eq(casts, 1);
    inner = bf16();
    y = add(y, CALL(mm, x, w));
    OK(core_autocast_end(inner));
    y = add(y, CALL(mm, x, w));
    ck_assert_int_eq(casts, 1);
    y = sum(y);
    OK(core_autocast_end(outer));
    outer = bf16();
    CALL(mm, x, w);
    ck_assert_int_eq(casts, 2);
    core_autocast_clear_cache();
    CALL(mm, x, w);
    ck_assert_int_eq(casts, 3);
    OK(core_autocast_end(outer));
    outer = begin("cpu", CORE_BF16, CORE_AUTOCAST_NO_CACHE);
    CALL(mm, x, w);
    CALL(mm, x, w);
    ck_assert_int_eq(casts, 5);
    OK(core_autocast_end(outer));
    core_registration_release(counting);
    backward(y);
    HOLDS(core_tensor_grad(w), 4, 12, 12, 18, 18);
}
END_TEST

START_TEST(only_casts_of_leaves_that_require_grad_are_cached)
{
    core_tensor *x = square(CORE_F32), *w = leaf(square(CORE_F32));
    core_registration *counting = count_casts();
    uint64_t region = bf16();

    CALL(mm, x, x);
    CALL(mm, x, x);
    ck_assert_int_eq(casts, 4);
    w = mul(w, w);
    CALL(mm, w, w);
    CALL(mm, w, w);
    ck_assert_int_eq(casts, 8);
    OK(core_autocast_end(region));
    core_registration_release(counting);
}
END_TEST

START_TEST(changed_weight_is_cast_again)
{
    core_tensor *x = square(CORE_BF16), *w = leaf(square(CORE_F32));
    uint64_t region = bf16();
    bool before;

    HOLDS(CALL(mm, x, w), 4, 7, 10, 15, 22);
    before = core_grad_mode_set(false);
    OK(core_mul_scalar_(w, core_float(2)));
    core_grad_mode_set(before);
    HOLDS(CALL(mm, x, w), 4, 14, 20, 30, 44);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(cast_without_history_is_not_reused_for_recorded_call)
{
    core_tensor *x = square(CORE_BF16), *w = leaf(square(CORE_F32)), *y;
    uint64_t region = bf16(), inference;
    bool before = core_grad_mode_set(false);

    CALL(mm, x, w);
    core_grad_mode_set(before);
    inference = core_inference_begin();
    CALL(mm, x, w);
    core_inference_end(inference);
    y = sum(CALL(mm, x, w));
    OK(core_autocast_end(region));
    backward(y);
    HOLDS(core_tensor_grad(w), 4, 4, 4, 6, 6);
}
END_TEST

START_TEST(two_graphs_may_share_a_cached_cast)
{
    core_tensor *x = square(CORE_BF16), *w = leaf(square(CORE_F32));
    uint64_t region = bf16();

    backward(sum(CALL(mm, x, w)));
    backward(sum(CALL(mm, x, w)));
    OK(core_autocast_end(region));
    HOLDS(core_tensor_grad(w), 4, 8, 8, 12, 12);
}
END_TEST

START_TEST(cache_holds_hundreds_of_weights)
{
    core_tensor *x = square(CORE_BF16), *w[300], *y;
    core_registration *counting = count_casts();
    uint64_t region = bf16();

    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 300; i++) {
            if (round == 0)
                w[i] = leaf(square(CORE_F32));
            OK(core_mm(x, w[i], &y));
            core_tensor_release(y);
        }
    /* 300 casts to create the weights and 300 by autocast. */
    ck_assert_int_eq(casts, 600);
    OK(core_autocast_end(region));
    core_registration_release(counting);
}
END_TEST

/* ---------------------------------------------------------- custom rules -- */

static core_status square_function(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    core_status status;
    core_tensor *y;

    (void)call;
    (void)nargs;
    (void)nresults;
    status = core_mul(args[0].u.tensor, args[0].u.tensor, &y);
    if (status == CORE_OK)
        results[0] = core_pack_tensor(y);
    return status;
}

START_TEST(custom_operators_may_have_a_rule)
{
    core_registration *schema, *function, *rule, *newer;
    core_tensor *a = square(CORE_F32);
    core_value arg = core_pack_tensor(a), result;
    core_operator *op;
    uint64_t region;

    OK(core_op_register("test::square(Tensor self) -> Tensor", &schema));
    OK(core_function_register("test::square", CORE_KEY_COMPOSITE_IMPLICIT, NULL,
                              square_function, NULL, &function));
    OK(core_op_find("test::square", &op));
    region = bf16();
    OK(core_op_call(op, &arg, 1, &result, 1));
    IS(keep(result.u.tensor), CORE_F32);
    OK(core_autocast_register("test::square", CORE_AUTOCAST_LOWER, &rule));
    OK(core_op_call(op, &arg, 1, &result, 1));
    IS(keep(result.u.tensor), CORE_BF16);
    OK(core_autocast_register("test::square", CORE_AUTOCAST_NONE, &newer));
    OK(core_op_call(op, &arg, 1, &result, 1));
    IS(keep(result.u.tensor), CORE_F32);
    core_registration_release(newer);
    OK(core_op_call(op, &arg, 1, &result, 1));
    IS(keep(result.u.tensor), CORE_BF16);
    core_registration_release(rule);
    OK(core_op_call(op, &arg, 1, &result, 1));
    IS(keep(result.u.tensor), CORE_F32);
    OK(core_autocast_end(region));
    core_registration_release(function);
    core_registration_release(schema);
}
END_TEST

START_TEST(rules_of_built_in_operators_can_be_replaced)
{
    core_tensor *a = square(CORE_F32);
    uint64_t region = bf16();
    core_registration *rule;

    OK(core_autocast_register("add.Tensor", CORE_AUTOCAST_LOWER, &rule));
    IS(add(a, a), CORE_BF16);
    core_registration_release(rule);
    IS(add(a, a), CORE_F32);
    OK(core_autocast_register("mm", CORE_AUTOCAST_NONE, &rule));
    IS(CALL(mm, a, a), CORE_F32);
    core_registration_release(rule);
    IS(CALL(mm, a, a), CORE_BF16);
    OK(core_autocast_end(region));
}
END_TEST

START_TEST(invalid_rules_are_refused)
{
    core_registration *rule;

    FAILS(core_autocast_register("add_.Tensor", CORE_AUTOCAST_LOWER, &rule),
          CORE_ERROR_INVALID_ARGUMENT, "add_.Tensor", "changes");
    ck_assert_ptr_null(rule);
    FAILS(core_autocast_register("mm", (core_autocast_rule)9, &rule),
          CORE_ERROR_INVALID_ARGUMENT, "9");
    FAILS(core_autocast_register("no::such", CORE_AUTOCAST_LOWER, &rule),
          CORE_ERROR_NOT_FOUND, "no::such");
    FAILS(core_autocast_register(NULL, CORE_AUTOCAST_LOWER, &rule),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
}
END_TEST

/* --------------------------------------------------------------- memory --- */

static core_status step(core_tensor *x, core_tensor *w)
{
    core_tensor *list[2] = {w, x}, *y = NULL, *both = NULL, *loss = NULL;
    uint64_t region;
    core_status status;

    status = core_autocast_begin(device_of("cpu"), CORE_BF16, 0, &region);
    if (status != CORE_OK)
        return status;
    status = core_mm(x, w, &y);
    if (status == CORE_OK) {
        list[0] = y;
        status = core_cat(list, 2, 0, &both);
    }
    if (status == CORE_OK)
        status = core_sum(both, CORE_DTYPE_NONE, &loss);
    OK(core_autocast_end(region));
    if (status == CORE_OK)
        status = core_backward(&loss, 1, NULL, 0);
    core_tensor_release(y);
    core_tensor_release(both);
    core_tensor_release(loss);
    return status;
}

START_TEST(failed_allocation_is_out_of_memory_without_leaks)
{
    core_tensor *x = square(CORE_F32), *w = leaf(square(CORE_F32));
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    int64_t live, failed = 0;

    OK(step(x, w)); /* allocates what is kept for good */
    OK(core_tensor_set_grad(w, NULL));
    live = core__alloc_live();
    for (int64_t n = 0; status != CORE_OK; n++) {
        core__alloc_fault_set(n, false);
        status = step(x, w);
        core__alloc_fault_set(-1, false);
        OK(core_tensor_set_grad(w, NULL));
        failed += status != CORE_OK;
        if (status != CORE_OK)
            ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_le(core__alloc_live(), live);
    }
    ck_assert_int_gt(failed, 5);
}
END_TEST

SUITE("autocast/autocast", matrix_products_run_in_lower_dtype,
      range_sensitive_operators_run_in_f32,
      multi_tensor_operators_use_widest_dtype,
      other_operators_f64_and_integers_are_not_cast,
      composite_casts_its_input_only_once,
      only_devices_of_the_region_kind_are_cast,
      meta_tensors_are_cast_like_real_tensors,
      inner_region_overrides_outer_region,
      end_of_region_closes_regions_left_open_inside,
      regions_left_open_by_error_end_with_caller_region,
      regions_are_local_to_their_thread, invalid_autocast_calls_change_nothing,
      gradient_has_dtype_of_the_parameter,
      backward_inside_region_equals_backward_outside,
      casts_have_second_derivatives,
      checkpoint_recomputes_with_its_autocast_state,
      weight_is_cast_once_per_outermost_region,
      only_casts_of_leaves_that_require_grad_are_cached,
      changed_weight_is_cast_again,
      cast_without_history_is_not_reused_for_recorded_call,
      two_graphs_may_share_a_cached_cast, cache_holds_hundreds_of_weights,
      custom_operators_may_have_a_rule,
      rules_of_built_in_operators_can_be_replaced, invalid_rules_are_refused,
      failed_allocation_is_out_of_memory_without_leaks)
