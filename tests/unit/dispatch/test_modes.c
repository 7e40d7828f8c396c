/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modes in one thread: what each level sees, what a mode may change, nesting,
 * errors.  test_mode_threads.c has several threads. */

#include "support/modes.h"

#include <libcore/autocast.h>
#include <libcore/compile.h>
#include <libcore/device.h>
#include <libcore/function.h>
#include <libcore/saved.h>
#include <libcore/transform.h>

#include "base/keys.h"
#include "base/memory.h"
#include "base/thread.h"

static core_tensor *x, *w;

static void begin(void)
{
    seen[0] = '\0';
    x = keep(VECTOR(3, 1, 2, 3));
    w = leaf(VECTOR(3, 4, 5, 6));
}

static void watch(uint32_t level)
{
    push(level, note, NULL);
}

/* ---------------------------------------------------------------- levels -- */

START_TEST(api_mode_sees_calls_as_the_program_made_them)
{
    core_tensor *y;

    watch(CORE_MODE_API);
    y = mul(x, w);
    SEEN("mul.Tensor ");
    CALL(reshape, y, (int64_t[]){3, 1}, 2);
    SEEN("reshape ");
    CALL(linear, CALL(reshape, x, (int64_t[]){1, 3}, 2),
         CALL(reshape, w, (int64_t[]){1, 3}, 2), NULL);
    SEEN("reshape reshape linear ");
    READS(y, 3, 4, 10, 18);
    ck_assert(core_tensor_requires_grad(y));
}
END_TEST

START_TEST(mode_below_autograd_sees_what_reaches_backends)
{
    core_tensor *y;

    watch(CORE_MODE_BELOW_AUTOGRAD);
    y = mul(x, w);
    SEEN("mul.Tensor ");
    ck_assert(core_tensor_requires_grad(y));
    CALL(reshape, y, (int64_t[]){3, 1}, 2);
    SEEN("view ");
    /* an implicit and an explicit composite */
    CALL(var_dim, x, NULL, 0, NULL, false);
    ck_assert_ptr_null(strstr(seen, "var.dim "));
    ck_assert_str_ne(seen, "");
    seen[0] = '\0';
    CALL(linear, MATRIX(1, 2, 1, 2), MATRIX(1, 2, 1, 2), NULL);
    ck_assert_ptr_null(strstr(seen, "linear"));
    ck_assert_ptr_nonnull(strstr(seen, "mm "));
    seen[0] = '\0';
}
END_TEST

START_TEST(gradients_are_seen_below_autograd)
{
    core_tensor *y = sum(mul(x, w));

    watch(CORE_MODE_BELOW_AUTOGRAD);
    backward(y);
    ck_assert_ptr_nonnull(strstr(seen, "mul.Tensor "));
    pop();
    READS(core_tensor_grad(w), 3, 1, 2, 3);
}
END_TEST

START_TEST(casts_are_seen_below_autograd_only)
{
    core_tensor *a = CALL(to_copy, x, CORE_F32, NULL, false, -1);
    uint64_t region;

    a = CALL(reshape, a, (int64_t[]){1, 3}, 2);
    OK(core_autocast_begin(core_tensor_device(a), CORE_BF16, 0, &region));
    watch(CORE_MODE_API);
    CALL(mm, a, CALL(t, a));
    SEEN("t mm ");
    pop();
    watch(CORE_MODE_BELOW_AUTOGRAD);
    CALL(mm, a, CALL(t, a));
    SEEN("t _to_copy _to_copy mm ");
    OK(core_autocast_end(region));
}
END_TEST

/* ------------------------------------------------------ kinds of operators -- */

START_TEST(in_place_and_out_calls_are_seen)
{
    core_tensor *out = CALL(empty_like, x, CORE_DTYPE_NONE, NULL, -1);

    for (uint32_t level = 0; level < 2; level++)
        for (int i = 0; i < 3; i++) { /* uncached, then by the fast path */
            watch(level);
            OK(core_add_(out, x, core_int(1)));
            OK(core_add_out(x, x, core_int(1), out));
            OK(core_neg_(out));
            SEEN("add_.Tensor add.out neg_ ");
            READS(out, 3, -2, -4, -6);
            pop();
            OK(core_add_out(x, x, core_int(1), out));
            SEEN("");
        }
}
END_TEST

START_TEST(views_are_seen)
{
    core_tensor *m = MATRIX(2, 2, 1, 2, 3, 4);

    for (uint32_t level = 0; level < 2; level++)
        for (int i = 0; i < 3; i++) {
            watch(level);
            CALL(transpose, m, 0, 1);
            CALL(slice, m, 0, (int64_t[]){0}, (int64_t[]){1}, 1);
            SEEN("transpose.int slice.Tensor ");
            CALL(narrow, m, 0, 0, 1);
            SEEN(level == CORE_MODE_API ? "narrow " : "slice.Tensor ");
            pop();
            READS(CALL(narrow, m, 0, 1, 1), 2, 3, 4);
            SEEN("");
        }
}
END_TEST

START_TEST(factories_are_seen)
{
    const int64_t size = 2;

    for (uint32_t level = 0; level < 2; level++)
        for (int i = 0; i < 3; i++) {
            core_tensor *a, *b, *c;

            watch(level);
            OK(core_empty(&size, 1, CORE_F32, NULL, -1, &a));
            OK(core_ones(&size, 1, CORE_F32, NULL, &b));
            OK(core_rand(&size, 1, NULL, CORE_F32, NULL, &c));
            SEEN("empty ones rand ");
            pop();
            HOLDS(keep(b), 2, 1, 1);
            SEEN("");
            keep(a);
            keep(c);
        }
}
END_TEST

START_TEST(lists_and_absent_tensors_are_seen)
{
    core_tensor *list[] = {x, x};
    core_tensor *indices[] = {
        NULL, typed(CORE_I64, 1, (int64_t[]){1}, (double[]){1})};
    core_tensor *m = MATRIX(2, 2, 1, 2, 3, 4);

    for (uint32_t level = 0; level < 2; level++) {
        watch(level);
        READS(CALL(cat, list, 2, 0), 6, 1, 2, 3, 1, 2, 3);
        ck_assert_ptr_nonnull(strstr(seen, "cat "));
        READS(CALL(index, m, indices, 2), 2, 2, 4);
        ck_assert_ptr_nonnull(
            strstr(seen, level == CORE_MODE_API ? "index.Tensor " : "_index "));
        READS(CALL(clamp, x, NULL, (core_scalar[]){core_int(2)}), 3, 1, 2, 2);
        ck_assert_ptr_nonnull(strstr(seen, "clamp "));
        pop();
        seen[0] = '\0';
    }
}
END_TEST

START_TEST(numbers_read_from_tensors_are_seen)
{
    core_scalar value;

    watch(CORE_MODE_BELOW_AUTOGRAD);
    OK(core_item(SCALAR(5), &value));
    SEEN("item ");
    ck_assert_double_eq(value.u.f, 5);
}
END_TEST

static core_status doubled(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_tensor *out;

    (void)call;
    (void)nargs;
    (void)nresults;
    CORE_TRY(core_add(args[0].u.tensor, args[0].u.tensor, core_int(1), &out));
    results[0] = core_pack_tensor(out);
    return CORE_OK;
}

static core_status call_op(const char *name, core_tensor *argument,
                           core_tensor **out)
{
    core_value arg = core_pack_tensor(argument), result = {0};
    core_operator *op;
    core_status status;

    OK(core_op_find(name, &op));
    status = core_op_call(op, &arg, 1, &result, 1);
    *out = result.u.tensor;
    return status;
}

START_TEST(custom_operators_are_seen)
{
    core_registration *op, *kernel, *composite;
    core_tensor *out;

    OK(core_op_register("mine::twice(Tensor self) -> Tensor", &op));
    watch(CORE_MODE_API);
    watch(CORE_MODE_BELOW_AUTOGRAD);
    FAILS(call_op("mine::twice", x, &out), CORE_ERROR_NO_KERNEL, "mine::twice");
    SEEN("mine::twice mine::twice ");
    OK(core_function_register("mine::twice", CORE_KEY_BACKEND, "cpu", doubled,
                              NULL, &kernel));
    OK(call_op("mine::twice", x, &out));
    READS(keep(out), 3, 2, 4, 6);
    SEEN("mine::twice mine::twice "); /* what it calls belongs to the call */
    core_registration_release(kernel);
    OK(core_function_register("mine::twice", CORE_KEY_COMPOSITE_EXPLICIT, NULL,
                              doubled, NULL, &composite));
    OK(call_op("mine::twice", x, &out));
    READS(keep(out), 3, 2, 4, 6);
    SEEN("mine::twice add.Tensor ");
    core_registration_release(composite);
    core_registration_release(op);
}
END_TEST

START_TEST(mode_computes_an_operator_without_a_kernel)
{
    core_registration *op;
    core_tensor *out;

    OK(core_op_register("mine::thrice(Tensor self) -> Tensor", &op));
    push(CORE_MODE_BELOW_AUTOGRAD, doubled, NULL);
    OK(call_op("mine::thrice", x, &out));
    READS(keep(out), 3, 2, 4, 6);
    pop();
    core_registration_release(op);
}
END_TEST

START_TEST(meta_tensors_and_inference_mode_are_seen)
{
    core_device *meta;
    uint64_t inference;
    core_tensor *a;

    OK(core_device_find("meta", &meta));
    watch(CORE_MODE_API);
    watch(CORE_MODE_BELOW_AUTOGRAD);
    a = CALL(to_copy, x, CORE_DTYPE_NONE, meta, false, -1);
    mul(a, a);
    SEEN("_to_copy _to_copy mul.Tensor mul.Tensor ");
    inference = core_inference_begin();
    mul(x, x);
    CALL(reshape, x, (int64_t[]){3, 1}, 2);
    core_inference_end(inference);
    SEEN("mul.Tensor mul.Tensor reshape view ");
}
END_TEST

/* ----------------------------------------------------- changes of a call -- */

/* Replaces mul by add. */
static core_status adds(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    core_tensor *out;

    if (strcmp(core_op_name(call->op), "mul.Tensor") != 0)
        return core_redispatch_below(call, args, nargs, results, nresults);
    CORE_TRY(core_add(args[0].u.tensor, args[1].u.tensor, core_int(1), &out));
    results[0] = core_pack_tensor(out);
    return CORE_OK;
}

START_TEST(call_is_replaced)
{
    core_tensor *y;

    push(CORE_MODE_API, adds, NULL);
    y = mul(x, w);
    READS(y, 3, 5, 7, 9);
    backward(sum(y));
    READS(core_tensor_grad(w), 3, 1, 1, 1); /* of the sum */
    pop();
    OK(core_tensor_set_grad(w, NULL));
    push(CORE_MODE_BELOW_AUTOGRAD, adds, NULL);
    y = mul(x, w);
    READS(y, 3, 5, 7, 9);
    pop();
    backward(sum(y));
    READS(core_tensor_grad(w), 3, 1, 2, 3); /* of the product */
}
END_TEST

/* Passes the tensor `user` on in the place of the first argument. */
static core_status with_other_argument(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults)
{
    core_value own[8];

    ck_assert_uint_le(nargs, 8);
    memcpy(own, args, nargs * sizeof *own);
    own[0].u.tensor = call->user;
    return core_redispatch_below(call, own, nargs, results, nresults);
}

START_TEST(arguments_are_replaced)
{
    for (uint32_t level = 0; level < 2; level++) {
        push(level, with_other_argument, x);
        READS(mul(SCALAR(0), x), 3, 1, 4, 9);
        pop();
    }
    /* a replaced argument that requires grad is recorded by the layers below */
    push(CORE_MODE_API, with_other_argument, w);
    ck_assert(core_tensor_requires_grad(mul(x, x)));
    pop();
}
END_TEST

START_TEST(argument_of_another_device_is_computed_there)
{
    core_device *meta;

    OK(core_device_find("meta", &meta));
    for (uint32_t level = 0; level < 2; level++) {
        core_tensor *y;

        push(level, with_other_argument,
             CALL(to_copy, x, CORE_DTYPE_NONE, meta, false, -1));
        y = CALL(neg, x);
        pop();
        ck_assert_ptr_eq(core_tensor_device(y), meta);
    }
}
END_TEST

/* Adds 1 to the result. */
static core_status incremented(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    CORE_TRY(core_redispatch_below(call, args, nargs, results, nresults));
    return nresults
               ? core_add_scalar_(results[0].u.tensor, core_int(1), core_int(1))
               : CORE_OK;
}

START_TEST(results_are_changed)
{
    push(CORE_MODE_BELOW_AUTOGRAD, incremented, NULL);
    READS(mul(x, x), 3, 2, 5, 10);
    push(CORE_MODE_BELOW_AUTOGRAD, incremented, NULL);
    READS(mul(x, x), 3, 3, 6, 11);
}
END_TEST

START_TEST(own_calls_below_autograd_are_neither_recorded_nor_cast)
{
    core_tensor *y, *a = MATRIX(1, 2, 1, 2);
    uint64_t region;

    push(CORE_MODE_BELOW_AUTOGRAD, doubled, NULL);
    y = CALL(neg, w);
    pop();
    READS(y, 3, 8, 10, 12);
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(y)), "neg backward");
    a = CALL(to_copy, a, CORE_F32, NULL, false, -1);
    OK(core_autocast_begin(core_tensor_device(a), CORE_BF16, 0, &region));
    push(CORE_MODE_BELOW_AUTOGRAD, note, "outer:");
    push(CORE_MODE_BELOW_AUTOGRAD, doubled, NULL);
    CALL(neg, a);
    OK(core_autocast_end(region));
    SEEN("outer:add.Tensor ");
}
END_TEST

/* --------------------------------------------------------------- nesting -- */

START_TEST(innermost_mode_is_called_first)
{
    push(CORE_MODE_BELOW_AUTOGRAD, note, "a:");
    push(CORE_MODE_API, note, "b:");
    push(CORE_MODE_BELOW_AUTOGRAD, note, "c:");
    push(CORE_MODE_API, note, "d:");
    mul(x, w);
    SEEN("d:mul.Tensor b:mul.Tensor c:mul.Tensor a:mul.Tensor ");
    pop();
    mul(x, w);
    SEEN("b:mul.Tensor c:mul.Tensor a:mul.Tensor ");
    pop();
    mul(x, w);
    SEEN("b:mul.Tensor a:mul.Tensor ");
}
END_TEST

START_TEST(own_calls_go_to_the_modes_outside)
{
    for (uint32_t level = 0; level < 2; level++) {
        push(level, note, "outer:");
        push(level, adds, NULL);
        push(level, note, "inner:");
        READS(mul(x, x), 3, 2, 4, 6);
        SEEN("inner:mul.Tensor outer:add.Tensor ");
        pop();
        pop();
        pop();
    }
}
END_TEST

static core_status pushes(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    uint32_t level = *(uint32_t *)call->user;
    core_status status;
    core_mode *mode;

    CORE_TRY(core_mode_push(level, note, "new:", &mode));
    status = core_redispatch_below(call, args, nargs, results, nresults);
    CORE_TRY(core_mode_pop(mode));
    return status;
}

START_TEST(mode_pushed_by_a_mode_sees_what_it_passes_on)
{
    uint32_t level = CORE_MODE_API;

    push(CORE_MODE_API, note, "outer:");
    push(CORE_MODE_API, pushes, &level);
    mul(x, x);
    SEEN("new:mul.Tensor outer:mul.Tensor ");
    level = CORE_MODE_BELOW_AUTOGRAD;
    mul(x, x);
    SEEN("outer:mul.Tensor new:mul.Tensor ");
    mul(x, w);
    SEEN("outer:mul.Tensor new:mul.Tensor ");
}
END_TEST

static core_status forgets(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    CORE_TRY(core_mode_push(CORE_MODE_BELOW_AUTOGRAD, note,
                            "lost:", (core_mode **)call->user));
    return core_redispatch_below(call, args, nargs, results, nresults);
}

START_TEST(mode_that_leaves_another_one_pushed_fails)
{
    core_mode *lost = NULL;
    core_tensor *y;

    push(CORE_MODE_API, forgets, &lost);
    FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "mul.Tensor",
          "without popping");
    ck_assert_ptr_null(y);
    pop();
    seen[0] = '\0';
    mul(x, x);
    SEEN("");
    FAILS(core_mode_pop(lost), CORE_ERROR_INVALID_ARGUMENT, "popped");
}
END_TEST

/* ---------------------------------------------------------------- errors -- */

static core_status fails(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    CORE_TRY(core_redispatch_below(call, args, nargs, results, nresults));
    return call->user ? core_error_set(CORE_ERROR_REFUSED, call->user)
                      : CORE_ERROR_OUT_OF_MEMORY;
}

/* Fails in a call, and returns another error without a message. */
static core_status fails_otherwise(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    core_operator *unknown;

    (void)call;
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    FAILS(core_op_find("mine::unknown", &unknown), CORE_ERROR_NOT_FOUND, "");
    return CORE_ERROR_OUT_OF_MEMORY;
}

START_TEST(error_of_a_mode_is_the_error_of_the_call)
{
    core_tensor *y;

    for (uint32_t level = 0; level < 2; level++) {
        push(level, fails, "not today");
        FAILS(core_mul(x, w, &y), CORE_ERROR_REFUSED, "not today");
        ck_assert_ptr_null(y);
        FAILS(core_add_(x, x, core_int(1)), CORE_ERROR_REFUSED, "not today");
        pop();
        push(level, fails, NULL);
        FAILS(core_mul(x, w, &y), CORE_ERROR_OUT_OF_MEMORY, "mul.Tensor",
              "a mode returned");
        pop();
        push(level, fails_otherwise, NULL);
        FAILS(core_mul(x, w, &y), CORE_ERROR_OUT_OF_MEMORY, "mul.Tensor",
              "a mode returned");
        ck_assert_int_eq(core_error_code(), CORE_ERROR_OUT_OF_MEMORY);
        pop();
    }
    mul(x, w);
}
END_TEST

START_TEST(error_below_passes_through_a_mode)
{
    core_tensor *y;

    watch(CORE_MODE_API);
    watch(CORE_MODE_BELOW_AUTOGRAD);
    FAILS(core_mul(x, VECTOR(2, 1, 2), &y), CORE_ERROR_SHAPE, "mul.Tensor");
}
END_TEST

static core_status gives(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    const core_value *value = call->user;

    (void)args;
    (void)nargs;
    if (nresults)
        results[0] = *value;
    if (nresults && value->tag == CORE_VALUE_TENSOR && value->u.tensor)
        core_tensor_retain(value->u.tensor);
    return CORE_OK;
}

START_TEST(wrong_results_are_refused)
{
    core_value nothing = {0}, number = core_int(1), none = {0};
    core_value argument = core_pack_tensor(x), history = core_pack_tensor(w);
    core_value self[] = {core_pack_tensor(VECTOR(1, 1)),
                         core_pack_tensor(VECTOR(1, 1)), core_int(1)};
    core_value result;
    core_operator *op;
    core_tensor *y;

    none.tag = CORE_VALUE_TENSOR;
    OK(core_op_find("add_.Tensor", &op));
    for (uint32_t level = 0; level < 2; level++) {
        push(level, gives, &nothing);
        FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "mul.Tensor",
              "a mode returned nothing", "-> Tensor");
        pop();
        push(level, gives, &number);
        FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "another type");
        pop();
        push(level, gives, &none);
        FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "NULL");
        pop();
        push(level, gives, &argument);
        FAILS(core_op_invoke_on(op, self, 3, &result, 1),
              CORE_ERROR_INVALID_ARGUMENT, "the changed argument");
        pop();
    }
    push(CORE_MODE_BELOW_AUTOGRAD, gives, &argument);
    FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "an argument");
    pop();
    push(CORE_MODE_BELOW_AUTOGRAD, gives, &history);
    FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "requires grad");
    pop();
    /* above autograd both are what the program gets */
    push(CORE_MODE_API, gives, &argument);
    ck_assert_ptr_eq(mul(x, x), x);
    pop();
    push(CORE_MODE_API, gives, &history);
    ck_assert_ptr_eq(mul(x, x), w);
}
END_TEST

/* Like `gives`, for an operator that returns a list. */
static core_status gives_list(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_value *list = call->user;
    core_tensor **tensors = core__alloc(list->count * sizeof *tensors);

    (void)args;
    (void)nargs;
    ck_assert_uint_eq(nresults, 1);
    for (uint32_t i = 0; i < list->count; i++)
        tensors[i] = core_tensor_retain(list->u.tensors[i]);
    results[0] = *list;
    results[0].u.tensors = tensors;
    return CORE_OK;
}

/* Calls with lists of tensors, among the arguments and the results. */
START_TEST(wrong_results_of_lists_are_refused)
{
    core_tensor *list[] = {x, x}, *y;
    core_value argument = core_pack_tensor(x), result = {0};
    core_value returned = {CORE_VALUE_TENSOR_LIST, 1, {.tensors = &x}};
    core_registration *registration;
    core_operator *op;

    push(CORE_MODE_BELOW_AUTOGRAD, gives, &argument);
    FAILS(core_cat(list, 2, 0, &y), CORE_ERROR_INVALID_ARGUMENT, "cat",
          "an argument");
    pop();
    OK(core_op_register("mine::parts(Tensor self) -> Tensor[]", &registration));
    OK(core_op_find("mine::parts", &op));
    push(CORE_MODE_BELOW_AUTOGRAD, gives_list, &returned);
    FAILS(core_op_call(op, &argument, 1, &result, 1),
          CORE_ERROR_INVALID_ARGUMENT, "mine::parts", "an argument");
    returned.u.tensors = &w;
    FAILS(core_op_call(op, &argument, 1, &result, 1),
          CORE_ERROR_INVALID_ARGUMENT, "mine::parts", "requires grad");
    pop();
    push(CORE_MODE_API, gives_list, &returned);
    OK(core_op_call(op, &argument, 1, &result, 1));
    ck_assert_ptr_eq(result.u.tensors[0], w);
    core_value_release(&result);
    core_registration_release(registration);
}
END_TEST

static core_status shortens(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core_value own[2] = {args[0]};

    if (call->user)
        return core_redispatch_below(call, own, 2, results, nresults);
    return core_redispatch_below(call, args, nargs - 1, results, nresults);
}

START_TEST(wrong_arguments_are_refused)
{
    core_tensor *y;

    push(CORE_MODE_API, shortens, NULL);
    FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "passed 1 argument",
          "has 2");
    pop();
    push(CORE_MODE_BELOW_AUTOGRAD, shortens, "absent");
    FAILS(core_mul(x, x, &y), CORE_ERROR_INVALID_ARGUMENT, "argument 2, other");
}
END_TEST

START_TEST(wrong_pushes_are_refused)
{
    core_mode *mode;

    FAILS(core_mode_push(2, note, NULL, &mode), CORE_ERROR_INVALID_ARGUMENT,
          "core_mode_push", "level is 2");
    ck_assert_ptr_null(mode);
    FAILS(core_mode_push(0, NULL, NULL, &mode), CORE_ERROR_INVALID_ARGUMENT,
          "function");
    FAILS(core_mode_push(0, note, NULL, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "out_mode");
    FAILS(core_mode_pop(NULL), CORE_ERROR_INVALID_ARGUMENT,
          "core_mode_pop: the argument mode is NULL");
}
END_TEST

START_TEST(pop_out_of_order_or_twice_fails)
{
    core_mode *a, *b, *c;

    OK(core_mode_push(CORE_MODE_API, note, "a:", &a));
    OK(core_mode_push(CORE_MODE_API, note, "b:", &b));
    FAILS(core_mode_pop(a), CORE_ERROR_INVALID_ARGUMENT, "innermost");
    mul(x, x);
    SEEN("b:mul.Tensor a:mul.Tensor ");
    OK(core_mode_pop(b));
    FAILS(core_mode_pop(b), CORE_ERROR_INVALID_ARGUMENT, "popped it already");
    /* not even if another one has its place */
    OK(core_mode_push(CORE_MODE_API, note, "c:", &c));
    FAILS(core_mode_pop(b), CORE_ERROR_INVALID_ARGUMENT, "popped it already");
    OK(core_mode_pop(c));
    OK(core_mode_pop(a));
    FAILS(core_mode_pop(a), CORE_ERROR_INVALID_ARGUMENT, "popped it already");
    mul(x, x);
    SEEN("");
}
END_TEST

static core_status pops(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    core_mode *const *mode = call->user;

    for (; *mode; mode++)
        FAILS(core_mode_pop(*mode), CORE_ERROR_REFUSED, "running call");
    return core_redispatch_below(call, args, nargs, results, nresults);
}

START_TEST(pop_inside_a_call_of_a_mode_fails)
{
    core_mode *own[3] = {NULL};

    own[1] = push(CORE_MODE_BELOW_AUTOGRAD, note, "below:");
    push(CORE_MODE_API, note, "outer:");
    own[0] = push(CORE_MODE_API, pops, own);
    mul(x, x);
    SEEN("outer:mul.Tensor below:mul.Tensor ");
}
END_TEST

/* ------------------------------------------------------------- backward -- */

static core_status pops_in_hook(void *context, core_tensor *grad,
                                core_tensor **out)
{
    (void)grad;
    *out = NULL;
    FAILS(core_mode_pop(context), CORE_ERROR_REFUSED, "backward");
    return CORE_OK;
}

START_TEST(pop_inside_a_backward_fails)
{
    core_tensor *y = sum(mul(x, w));

    OK(core_tensor_register_hook(w, pops_in_hook,
                                 push(CORE_MODE_API, note, NULL), NULL, NULL));
    backward(y);
}
END_TEST

static core_status runs_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    core_tensor *y = call->user;

    if (strcmp(core_op_name(call->op), "neg") == 0)
        CORE_TRY(core_backward(&y, 1, NULL, 0));
    return core_redispatch_below(call, args, nargs, results, nresults);
}

START_TEST(backward_called_by_a_mode_runs_under_the_modes_outside)
{
    core_tensor *y = sum(mul(x, w));

    push(CORE_MODE_BELOW_AUTOGRAD, note, "outer:");
    push(CORE_MODE_API, runs_backward, y);
    CALL(neg, x);
    ck_assert_ptr_nonnull(strstr(seen, "outer:mul.Tensor "));
    READS(core_tensor_grad(w), 3, 1, 2, 3);
}
END_TEST

static core_status checkpointed(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_exp(inputs[0], &outputs[0]);
}

START_TEST(recomputation_runs_under_the_modes_of_the_backward)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function = checkpointed};
    core_tensor *y;
    size_t n = 1;

    OK(core_checkpoint(&info, &w, 1, &y, &n));
    y = sum(keep(y));
    watch(CORE_MODE_API);
    backward(y);
    ck_assert_ptr_nonnull(strstr(seen, "exp "));
    pop();
    OK(core_checkpoint(&info, &w, 1, &y, &n));
    y = sum(keep(y));
    seen[0] = '\0';
    backward(y); /* the forward's modes are gone */
    SEEN("");
}
END_TEST

/* ----------------------------------------------------------- fast paths -- */

/* States with modes must not take the places of those without. */
static core_status watches(void *user, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    (void)ninputs;
    *noutputs = 1;
    watch(*(const uint32_t *)user);
    return core_mul(inputs[0], inputs[0], outputs);
}

static core_status ends_watching(void *user, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    (void)user;
    (void)ninputs;
    *noutputs = 1;
    pop();
    return core_mul(inputs[0], inputs[0], outputs);
}

/* As if it had been called without core_vmap. */
START_TEST(mode_that_a_mapped_function_pushes_stays)
{
    core_tensor *y;

    for (uint32_t level = 0; level < 2; level++) {
        OK(core_vmap(watches, &level, NULL, &x, 1, &y, 1));
        keep(y);
        seen[0] = '\0';
        mul(x, x);
        SEEN("mul.Tensor ");
        OK(core_vmap(ends_watching, NULL, NULL, &x, 1, &y, 1));
        keep(y);
        ck_assert_uint_eq(core__thread_self()->included & CORE__KEYS_MODE, 0);
        SEEN("");
    }
}
END_TEST

/* Nor does recording a program end it. */
START_TEST(mode_that_a_recorded_function_pushes_stays)
{
    core_program *program;

    for (uint32_t level = 0; level < 2; level++) {
        OK(core_program_trace(watches, &level, &x, 1, 1, &program));
        core_program_release(program);
        seen[0] = '\0';
        mul(x, x);
        SEEN("mul.Tensor ");
        pop();
    }
}
END_TEST

START_TEST(calls_after_the_last_pop_are_fast_again)
{
    core__thread *self = core__thread_self();
    uint64_t state = self->state;

    for (int i = 0; i < 20; i++) {
        watch((uint32_t)i % 2);
        watch((uint32_t)i / 2 % 2);
        mul(x, x);
        mul(x, w);
        CALL(t, x);
        pop();
        if (i % 3)
            pop();
    }
    pop_all();
    ck_assert_uint_eq(self->state, state);
    begin();
    READS(mul(x, x), 3, 1, 4, 9);
    SEEN("");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        api_mode_sees_calls_as_the_program_made_them,
        mode_below_autograd_sees_what_reaches_backends,
        gradients_are_seen_below_autograd,
        casts_are_seen_below_autograd_only,
        in_place_and_out_calls_are_seen,
        views_are_seen,
        factories_are_seen,
        lists_and_absent_tensors_are_seen,
        numbers_read_from_tensors_are_seen,
        custom_operators_are_seen,
        mode_computes_an_operator_without_a_kernel,
        meta_tensors_and_inference_mode_are_seen,
        call_is_replaced,
        arguments_are_replaced,
        argument_of_another_device_is_computed_there,
        results_are_changed,
        own_calls_below_autograd_are_neither_recorded_nor_cast,
        innermost_mode_is_called_first,
        own_calls_go_to_the_modes_outside,
        mode_pushed_by_a_mode_sees_what_it_passes_on,
        mode_that_leaves_another_one_pushed_fails,
        error_of_a_mode_is_the_error_of_the_call,
        error_below_passes_through_a_mode,
        wrong_results_are_refused,
        wrong_results_of_lists_are_refused,
        wrong_arguments_are_refused,
        wrong_pushes_are_refused,
        pop_out_of_order_or_twice_fails,
        pop_inside_a_call_of_a_mode_fails,
        pop_inside_a_backward_fails,
        backward_called_by_a_mode_runs_under_the_modes_outside,
        recomputation_runs_under_the_modes_of_the_backward,
        mode_that_a_mapped_function_pushes_stays,
        mode_that_a_recorded_function_pushes_stays,
        calls_after_the_last_pop_are_fast_again,
    };
    const test_suite suite = {.name = "dispatch/modes",
                              .setup = begin,
                              .teardown = pop_all,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
