/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Scopes: what they own, where errors go, and what they are composed with:
 * threads, gradients, hooks, modes, compiled functions, core_vmap. */

#include "support/autograd.h"

#include "base/memory.h"
#include "scope/scope.h"

#include <libcore/compiled.h>
#include <libcore/expressions.h>
#include <libcore/mode.h>
#include <libcore/transform.h>

#include <pthread.h>

/* The place of a call in the same line. */
#define PLACE "test_scope.c:" CORE_HERE_TEXT(__LINE__) ")"

static core_tensor *pair(double a, double b)
{
    return VECTOR(2, a, b);
}

static double item(core_tensor *tensor, size_t index)
{
    double values[8];

    OK(core_tensor_read(tensor, values,
                        (size_t)core_tensor_numel(tensor) * sizeof *values));
    return values[index];
}

/* ----------------------------------------------------------- ownership -- */

START_TEST(a_scope_releases_what_was_made_in_it)
{
    core_tensor *x = pair(1, 2), *y, *kept;
    core_scope scope = core_scope_begin();

    y = core_x_mul(core_x_add(x, x), x);
    kept = core_tensor_retain(y);
    ck_assert_uint_eq(core_tensor_references(kept), 2);
    OK(core_scope_end(scope));
    ck_assert_uint_eq(core_tensor_references(kept), 1);
    ck_assert_double_eq(item(kept, 1), 8);
    core_tensor_release(kept);
}
END_TEST

START_TEST(a_result_belongs_to_the_caller)
{
    core_tensor *x = pair(1, 2), *y = x;
    core_scope scope = core_scope_begin();

    OK(core_scope_end_with(scope, core_x_neg(x), &y));
    ck_assert_uint_eq(core_tensor_references(y), 1);
    ck_assert_double_eq(item(keep(y), 0), -1);
}
END_TEST

START_TEST(outputs_are_set_at_the_end)
{
    core_tensor *x = pair(1, 2), *y = x, *z = x;
    core_scope scope = core_scope_begin();

    core_scope_output(core_x_neg(x), &y);
    core_scope_output(x, &z);
    ck_assert_ptr_null(y);
    ck_assert_ptr_null(z);
    OK(core_scope_end(scope));
    ck_assert_ptr_eq(z, x);
    ck_assert_double_eq(item(keep(y), 0), -1);
    core_tensor_release(z);
    ck_assert_uint_eq(core_tensor_references(x), 1);
}
END_TEST

START_TEST(the_last_output_for_a_place_counts)
{
    core_tensor *x = pair(1, 2), *place;
    core_scope scope = core_scope_begin();

    core_scope_output(x, &place);
    core_scope_output(core_x_neg(x), &place);
    OK(core_scope_end(scope));
    ck_assert_double_eq(item(keep(place), 1), -2);
    ck_assert_uint_eq(core_tensor_references(x), 1);
}
END_TEST

START_TEST(no_output_is_set_after_an_error)
{
    core_tensor *x = pair(1, 2), *y = x, *z = x;
    core_scope scope = core_scope_begin();

    core_scope_output(x, &y);
    core_x_add(x, VECTOR(3, 1, 2, 3));
    core_scope_output(x, &z);
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE, "add.Tensor");
    ck_assert_ptr_null(y);
    ck_assert_ptr_null(z);
    ck_assert_uint_eq(core_tensor_references(x), 1);
}
END_TEST

START_TEST(a_kept_tensor_belongs_to_the_scope_around)
{
    core_tensor *x = pair(1, 2), *y;
    core_scope outer = core_scope_begin(), inner = core_scope_begin();

    y = core_scope_keep(core_x_neg(x));
    core_x_exp(x);
    OK(core_scope_end(inner));
    ck_assert_uint_eq(core_tensor_references(y), 1);
    ck_assert_double_eq(item(y, 0), -1);
    ck_assert_ptr_eq(core_scope_keep(y), NULL);
    FAILS(core_scope_end(outer), CORE_ERROR_INVALID_ARGUMENT,
          "no scope around the one begun at ");
}
END_TEST

/* The program may use it in the scope around, to which the error does not
 * go. */
START_TEST(a_kept_tensor_outlives_a_later_error)
{
    core_tensor *x = pair(1, 2), *y;
    core_scope outer = core_scope_begin(), inner = core_scope_begin();

    y = core_tensor_retain(core_scope_keep(core_x_neg(x)));
    core_x_relu(NULL);
    FAILS(core_scope_end(inner), CORE_ERROR_INVALID_ARGUMENT, "relu");
    ck_assert_uint_eq(core_tensor_references(y), 2);
    OK(core_scope_end(outer));
    ck_assert_uint_eq(core_tensor_references(y), 1);
    core_tensor_release(y);
}
END_TEST

static core_tensor *square(core_tensor *x)
{
    core_scope scope = core_scope_begin();

    return core_scope_return(scope, core_x_mul(x, core_x_add(x, x)));
}

START_TEST(a_returned_tensor_belongs_to_the_scope_around)
{
    core_tensor *x = pair(1, 2), *y, *out;
    core_scope scope = core_scope_begin();

    y = square(square(x));
    ck_assert_uint_eq(core_tensor_references(y), 1);
    ck_assert_ptr_eq(square(NULL), NULL);
    FAILS(core_scope_end_with(scope, y, &out), CORE_ERROR_INVALID_ARGUMENT,
          "add.Tensor", "test_scope.c");
    ck_assert_ptr_null(out);
    ck_assert_ptr_null(square(x));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "no scope around"));
}
END_TEST

START_TEST(many_scopes_are_nested)
{
    core_tensor *x = pair(1, 2), *y;
    core_scope scopes[100];

    for (int i = 0; i < 100; i++) {
        scopes[i] = core_scope_begin();
        for (int k = 0; k < 7; k++)
            x = core_x_add_scalar(x, core_float(1));
    }
    ck_assert_double_eq(item(x, 0), 701);
    for (int i = 100; i-- > 1;)
        x = core_scope_return(scopes[i], x);
    OK(core_scope_end_with(scopes[0], x, &y));
    ck_assert_double_eq(item(keep(y), 1), 702);
}
END_TEST

START_TEST(lists_belong_to_the_scope)
{
    core_tensor *x = VECTOR(4, 1, 2, 3, 4), *y;
    core_scope scope = core_scope_begin();
    core_list parts = core_x_chunk(x, 2);

    ck_assert_uint_eq(parts.count, 2);
    ck_assert_ptr_null(core_list_at(parts, 2));
    y = core_x_cat(CORE_LIST(core_list_at(parts, 1), core_list_at(parts, 0)));
    ck_assert_double_eq(item(y, 0), 3);
    parts = core_x_chunk(x, 0);
    ck_assert_uint_eq(parts.count, 0);
    ck_assert_ptr_null(core_list_at(parts, 0));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "chunk");
}
END_TEST

START_TEST(lists_are_unpacked)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *a, *b, *c = x;
    core_scope scope = core_scope_begin();

    CORE_UNPACK(core_x_unbind(x), &a, &b);
    ck_assert_double_eq(item(b, 0), 3);
    CORE_UNPACK(core_x_unbind(x), &a, &b, &c);
    ck_assert(!a && !b && !c);
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE,
          "CORE_UNPACK: the list has 2 tensors, and there are 3 variables (at ",
          "test_scope.c:");
}
END_TEST

START_TEST(a_list_grows)
{
    core_scope scope = core_scope_begin();
    core_growing_list list = {0}, other = {0};
    int64_t live;

    for (int i = 0; i < 100; i++) {
        core_scope inner = core_scope_begin();
        core_tensor *x = core_x_add(core_x_ones(CORE_SIZES(1), CORE_F64), i);

        x = core_scope_return(inner, core_x_mul(x, 2));
        core_x_append(&list, x);
        ck_assert_ptr_eq(core_list_at(list.list, (size_t)i), x);
    }
    ck_assert_double_eq(core_x_item_float(core_x_sum(core_x_cat(list.list))),
                        2 * 5050);
    OK(core_scope_status());
    core_x_append(&list, NULL);
    core_x_append(&other, core_x_ones(CORE_SIZES(1)));
    ck_assert_uint_eq(list.list.count, 100);
    ck_assert_uint_eq(other.list.count, 0);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "core_x_append: the argument tensor is NULL (at ");
    live = core__alloc_live();
    scope = core_scope_begin();
    core_x_append(NULL, core_x_ones(CORE_SIZES(1)));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "list is NULL");
    list = other = (core_growing_list){0};
    scope = core_scope_begin();
    core_x_append(&list, core_x_ones(CORE_SIZES(1)));
    for (int ended = 0; ended < 2; ended++) {
        core_scope inner = core_scope_begin();

        core_x_append(&other, core_x_ones(CORE_SIZES(1)));
        core_x_append(ended ? &other : &list, core_x_ones(CORE_SIZES(1)));
        FAILS(core_scope_end(inner), CORE_ERROR_INVALID_ARGUMENT,
              "core_x_append: the list began in another scope", "(at ");
    }
    ck_assert_uint_eq(list.list.count, 1);
    core_x_append(&list, core_x_ones(CORE_SIZES(1)));
    OK(core_scope_end(scope));
    ck_assert_uint_eq(list.list.count, 2);
    for (int64_t allowed = 0; allowed < 40; allowed++) {
        list = (core_growing_list){0};
        scope = core_scope_begin();
        core__alloc_fault_set(allowed, false);
        for (int i = 0; i < 9; i++)
            core_x_append(&list, core_x_ones(CORE_SIZES(1)));
        core__alloc_fault_set(-1, false);
        ck_assert(core_scope_end(scope) == CORE_ERROR_OUT_OF_MEMORY ||
                  list.list.count == 9);
    }
    ck_assert_int_eq(list.list.count, 9);
    ck_assert_int_le(core__alloc_live(), live);
}
END_TEST

START_TEST(sizes_of_dimensions_that_do_not_exist_are_errors)
{
    core_tensor *x = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    core_scope scope = core_scope_begin();

    ck_assert_int_eq(core_x_size(x, 1), 3);
    ck_assert_int_eq(core_x_size(x, -2), 2);
    ck_assert_int_eq(core_x_size(NULL, 5), 0);
    OK(core_scope_status());
    ck_assert_int_eq(core_x_size(x, 5), 0);
    ck_assert_int_eq(core_x_size(x, -3), 0); /* the first error counts */
    ck_assert_int_eq(core_x_size(x, 1), 3);
    FAILS(core_scope_end(scope), CORE_ERROR_INDEX,
          "core_x_size: dim is 5; the tensor has 2 dimensions (at ",
          "test_scope.c:");
    ck_assert_int_eq(core_x_size(x, 0), 2);
    ck_assert_int_eq(core_x_size(x, 2), 0); /* without a scope */
}
END_TEST

START_TEST(several_results_are_a_struct)
{
    core_tensor *x = VECTOR(4, 1, 4, 3, 2), *y;
    core_scope scope = core_scope_begin();
    core_x_topk_result top = core_x_topk(x, 2);

    ck_assert_double_eq(item(top.values, 1), 3);
    ck_assert_int_eq(core_x_item_int(core_x_select(top.indices, 0, 1)), 2);
    top = core_x_topk(x, 9);
    ck_assert_ptr_null(top.values);
    ck_assert_ptr_null(top.indices);
    ck_assert_double_eq(core_x_item_float(x), 0);
    FAILS(core_scope_end_with(scope, x, &y), CORE_ERROR_INVALID_ARGUMENT,
          "topk");
}
END_TEST

START_TEST(reference_of_a_typed_call_is_owned)
{
    core_tensor *x = pair(1, 2), *y = NULL, *z;
    core_scope scope = core_scope_begin();

    z = core_scope_own(core_neg(x, &y), &y);
    ck_assert_ptr_eq(z, y);
    ck_assert_ptr_nonnull(core_x_exp(z));
    ck_assert_ptr_null(core_scope_own(core_neg(NULL, &y), &y));
    /* Owned, or released, in any case. */
    ck_assert_ptr_null(core_scope_own(core_neg(x, &y), &y));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "neg");
    y = NULL;
    ck_assert_ptr_null(core_scope_own(core_neg(x, &y), &y));
    scope = core_scope_begin();
    y = NULL;
    core_scope_own(CORE_OK, &y);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "core_scope_own: the argument *tensor is NULL");
}
END_TEST

/* -------------------------------------------------------------- errors -- */

START_TEST(the_first_error_is_kept_with_its_line)
{
    core_tensor *x = pair(1, 2), *three = VECTOR(3, 1, 2, 3), *y;
    core_scope scope = core_scope_begin();
    const char *place;

    OK(core_scope_status());
    y = core_x_mul(x, three), place = PLACE;
    ck_assert_ptr_null(y);
    ck_assert_int_eq(core_scope_status(), CORE_ERROR_SHAPE);
    ck_assert_ptr_null(core_x_add(y, x));
    ck_assert_ptr_null(core_x_exp(x));
    ck_assert_int_eq(core_x_size(y, 0), 0);
    /* Another error in between does not displace it. */
    ck_assert_int_eq(core_exp(NULL, &y), CORE_ERROR_INVALID_ARGUMENT);
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE, "mul.Tensor: ", place);
}
END_TEST

START_TEST(a_missing_tensor_is_an_error_of_the_call)
{
    core_scope scope = core_scope_begin();
    const char *place = PLACE;

    core_x_relu(NULL);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "relu", "self");
    ck_assert_ptr_null(strstr(core_error_message(), place));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "test_scope.c:"));
}
END_TEST

START_TEST(wrong_lists_and_numbers_are_errors_of_the_call)
{
    core_tensor *x = pair(1, 2);
    core_scope scope = core_scope_begin();

    core_x_reshape(x, core_sizes_from(NULL, 2));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "reshape",
          "NULL");
    scope = core_scope_begin();
    core_x_cat(CORE_LIST(x, NULL));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "cat", "NULL");
    scope = core_scope_begin();
    core_x_argmax(x, core_float(0.5));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "argmax", "dim");
    scope = core_scope_begin();
    core_x_gelu(x, NULL);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(an_error_stays_in_its_scope)
{
    core_tensor *x = pair(1, 2), *y;
    core_scope outer = core_scope_begin(), inner = core_scope_begin();

    core_x_relu(NULL);
    ck_assert_int_eq(core_scope_end(inner), CORE_ERROR_INVALID_ARGUMENT);
    y = core_x_relu(x);
    ck_assert_ptr_nonnull(y);
    OK(core_scope_end(outer));
}
END_TEST

static int calls;

static core_status counted(core_status status)
{
    calls++;
    return status;
}

START_TEST(a_status_is_checked)
{
    core_scope scope = core_scope_begin();

    calls = 0;
    OK(CORE_CHECK(counted(CORE_OK)));
    core_error_clear();
    ck_assert_int_eq(CORE_CHECK(counted(CORE_ERROR_IO)), CORE_ERROR_IO);
    ck_assert_int_eq(CORE_CHECK(counted(CORE_OK)), CORE_ERROR_IO);
    ck_assert_int_eq(calls, 2);
    FAILS(core_scope_end(scope), CORE_ERROR_IO,
          "counted(CORE_ERROR_IO) returned CORE_ERROR_IO (at ");
}
END_TEST

START_TEST(calls_need_a_scope)
{
    core_tensor *x = pair(1, 2), *y = x;

    ck_assert_ptr_null(core_x_neg(x));
    ck_assert_int_eq(core_error_code(), CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(
        strstr(core_error_message(), "this thread has no open scope (at "));
    FAILS(CORE_CHECK(counted(CORE_OK)), CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_null(core_scope_keep(x));
    core_scope_output(x, &y);
    ck_assert_ptr_null(y);
    ck_assert_uint_eq(core_x_chunk(x, 2).count, 0);
}
END_TEST

/* tests/typed-calls.sh: the first one is also printed. */
START_TEST(calls_without_a_scope_name_their_place)
{
    core_tensor *x = pair(1, 2);

    ck_assert_int_ne(CORE_CHECK(counted(CORE_OK)), CORE_OK);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "test_scope.c:"));
    (void)core_error_set(CORE_ERROR_IO, "earlier");
    ck_assert_double_eq(core_x_item_float(x), 0);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "test_scope.c:"));
    ck_assert_int_eq(core_error_code(), CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

/* The advice to begin one would be wrong. */
START_TEST(calls_after_a_scope_without_memory_say_so)
{
    core_tensor *x = pair(1, 2);
    core_scope scope;

    core__scopes_thread_end(core__thread_self()); /* as in a new thread */
    for (int64_t allowed = 0; allowed < 2; allowed++) {
        core__alloc_fault_set(allowed, true);
        scope = core_scope_begin();
        core__alloc_fault_set(-1, false);
        ck_assert_ptr_null(core_x_neg(x));
        FAILS(core_error_code(), CORE_ERROR_OUT_OF_MEMORY,
              "there was no memory to begin the scope");
        FAILS(core_scope_end(scope), CORE_ERROR_OUT_OF_MEMORY,
              "core_scope_end: there was no memory");
        ck_assert_ptr_null(core_x_neg(x));
        FAILS(core_error_code(), CORE_ERROR_INVALID_ARGUMENT, "no open scope");
    }
}
END_TEST

/* -------------------------------------------------------- order of ends -- */

START_TEST(a_scope_that_was_left_open_is_an_error)
{
    core_tensor *x = pair(1, 2), *y;
    core_scope outer = core_scope_begin();
    const char *inner;

    core_x_neg(x);
    core_scope_begin(), inner = CORE_HERE;
    y = core_tensor_retain(core_x_exp(x));
    ck_assert_uint_eq(core_tensor_references(y), 2);
    FAILS(core_scope_end(outer), CORE_ERROR_INVALID_ARGUMENT,
          "core_scope_end: the scope begun at ", inner, "was not ended");
    ck_assert_uint_eq(core_tensor_references(y), 1);
    core_tensor_release(y);
    FAILS(core_scope_status(), CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

/* They may be variables of a function that has returned. */
START_TEST(outputs_of_a_scope_that_was_left_open_are_not_set)
{
    core_tensor *x = pair(1, 2), *y = x;
    core_scope outer = core_scope_begin();

    core_scope_begin();
    core_scope_output(x, &y);
    y = x;
    FAILS(core_scope_end(outer), CORE_ERROR_INVALID_ARGUMENT, "was not ended");
    ck_assert_ptr_eq(y, x);
    ck_assert_uint_eq(core_tensor_references(x), 1);
}
END_TEST

START_TEST(a_scope_ends_once)
{
    core_scope scope = core_scope_begin(), other = core_scope_begin();
    const core_scope zero = {0};

    FAILS(core_scope_end(zero), CORE_ERROR_INVALID_ARGUMENT,
          "core_scope_end: the scope was never begun");
    OK(core_scope_end(other));
    FAILS(core_scope_end(other), CORE_ERROR_INVALID_ARGUMENT,
          "is not open in this thread");
    ck_assert_ptr_null(core_scope_return(other, NULL));
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "core_scope_return: the scope is not open in this thread");
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

/* ------------------------------------------------------------- threads -- */

typedef struct thread_case {
    core_scope scope;
    core_tensor *x;
    core_tensor *kept, *output;
    core_status status, foreign;
} thread_case;

static void *run_thread(void *argument)
{
    thread_case *c = argument;

    c->status = core_scope_status();
    c->foreign = core_scope_end(c->scope);
    core_scope_begin();
    core_scope_output(c->x, &c->output);
    core_scope_begin();
    /* Released when the thread ends. */
    c->kept = core_tensor_retain(core_x_neg(c->x));
    core_x_relu(NULL);
    return NULL;
}

START_TEST(each_thread_has_its_scopes)
{
    thread_case c = {.scope = core_scope_begin()};
    pthread_t thread;

    c.x = core_x_from_data(((double[]){1, 2}), CORE_F64, CORE_SIZES(2), NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, run_thread, &c), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(c.status, CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(c.foreign, CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_uint_eq(core_tensor_references(c.kept), 1);
    core_tensor_release(c.kept);
    ck_assert_ptr_null(c.output);
    OK(core_scope_end(c.scope));
}
END_TEST

/* -------------------------------------------------------------- memory -- */

/* Has nested scopes that grow, outputs, a list and a gradient. */
static core_status everything(core_tensor *x, core_tensor **out)
{
    core_scope scope = core_scope_begin();
    core_tensor *y = x, *grad = NULL;
    core_list parts;

    for (int i = 0; i < 20; i++)
        y = core_x_add(y, x);
    for (int i = 0; i < 3; i++)
        y = square(y);
    parts = core_x_split(y, 1);
    y = core_x_sum(core_x_stack(
        CORE_LIST(core_list_at(parts, 0), core_list_at(parts, 1))));
    CORE_CHECK(core_grad(&y, 1, NULL, &x, 1, 0, &grad));
    grad = core_scope_own(core_scope_status(), &grad);
    core_scope_output(core_x_topk(grad, 1).values, &out[0]);
    return core_scope_end_with(scope, y, &out[1]);
}

static void *fail_each(void *argument)
{
    core_tensor *x = argument, *out[2];
    bool failed = true;
    int64_t n, live;

    for (n = 0; failed; n++) {
        core_status status;

        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        core__alloc_fault_set(n, false);
        status = everything(x, out);
        failed = core__alloc_count() > n;
        core__alloc_fault_set(INT64_MAX, false);
        core_error_clear();
        ck_assert_msg(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY,
                      "allocation %lld: status %d", (long long)n, status);
        for (int i = 0; i < 2; i++) {
            ck_assert(status == CORE_OK || !out[i]);
            core_tensor_release(out[i]);
        }
        /* The arrays of the scopes remain for the next ones. */
        ck_assert_msg(core__alloc_live() <= live + 3,
                      "allocation %lld: %lld blocks are left", (long long)n,
                      (long long)(core__alloc_live() - live));
        core__alloc_fault_set(-1, false);
    }
    ck_assert_int_gt(n, 50);
    return NULL;
}

/* In a thread, whose first scope it is. */
START_TEST(a_scope_without_memory_leaves_nothing_behind)
{
    core_tensor *x = leaf(pair(1, 2)), *out[2];
    pthread_t thread;
    int64_t live = 0;

    OK(everything(x, out));
    release_tensors(out, 2);
    /* The first thread leaves what is made once. */
    for (int i = 0; i < 2; i++) {
        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        ck_assert_int_eq(pthread_create(&thread, NULL, fail_each, x), 0);
        pthread_join(thread, NULL);
    }
    core__alloc_fault_set(INT64_MAX, false);
    ck_assert_int_eq(core__alloc_live(), live);
    core__alloc_fault_set(-1, false);
}
END_TEST

static void use_scopes(void *context, void *data)
{
    core_scope scope = core_scope_begin();

    (void)data;
    for (int i = 0; i < 40; i++)
        core_x_neg(context);
    calls += core_scope_end(scope) == CORE_OK;
}

START_TEST(what_is_released_may_use_scopes)
{
    core_tensor *x = pair(1, 2), *y = NULL;
    core_scope scope = core_scope_begin();
    double data[2] = {1, 2};

    calls = 0;
    for (int i = 0; i < 3; i++) {
        core_scope_own(core_tensor_from_memory(data, CORE_F64, (int64_t[]){2},
                                               1, use_scopes, x, &y),
                       &y);
        core_x_neg(x);
    }
    OK(core_scope_end(scope));
    ck_assert_int_eq(calls, 3);
}
END_TEST

/* --------------------------------------------------------- composition -- */

START_TEST(gradients_pass_through_scopes)
{
    core_tensor *x = leaf(pair(1, 2)), *y;
    core_scope scope = core_scope_begin();

    y = core_x_sum(square(x));
    CORE_CHECK(core_backward(&y, 1, NULL, 0));
    OK(core_scope_end(scope));
    ck_assert_double_eq(item(core_tensor_grad(x), 0), 4);
    ck_assert_double_eq(item(core_tensor_grad(x), 1), 8);
}
END_TEST

static core_status twice(void *context, core_tensor *grad,
                         core_tensor **out_grad)
{
    core_scope scope = core_scope_begin();

    (void)context;
    return core_scope_end_with(scope, core_x_add(grad, grad), out_grad);
}

static core_status fails(void *context, core_tensor *grad,
                         core_tensor **out_grad)
{
    core_scope scope = core_scope_begin();

    return core_scope_end_with(scope, core_x_add(grad, context), out_grad);
}

START_TEST(hooks_have_their_scopes)
{
    core_tensor *x = leaf(pair(1, 2)), *three = VECTOR(3, 1, 2, 3), *y;
    core_scope scope = core_scope_begin();

    OK(core_tensor_register_hook(x, twice, NULL, NULL, NULL));
    y = core_x_sum(core_x_mul(x, x));
    CORE_CHECK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
    OK(core_scope_status());
    ck_assert_double_eq(item(core_tensor_grad(x), 1), 8);
    OK(core_tensor_register_hook(x, fails, three, NULL, NULL));
    CORE_CHECK(core_backward(&y, 1, NULL, 0));
    FAILS(core_scope_end(scope), CORE_ERROR_SHAPE, "add.Tensor: ");
}
END_TEST

static core_status normalized(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = inputs[0], *sum = core_x_sum(core_x_exp(x));

    (void)context;
    (void)ninputs;
    *noutputs = 2;
    core_scope_output(core_x_div(square(x), sum), &outputs[0]);
    return core_scope_end_with(scope, sum, &outputs[1]);
}

START_TEST(functions_with_scopes_are_compiled)
{
    core_tensor *x = leaf(pair(1, 2)), *a[2], *b[2];
    core_compiled *compiled = NULL;
    size_t count = 2;

    OK(normalized(NULL, &x, 1, a, &count));
    OK(core_compile(normalized, NULL, NULL, &compiled));
    for (int i = 0; i < 3; i++) {
        OK(core_compiled_call(compiled, &x, 1, b, 2));
        for (int k = 0; k < 2; k++)
            ck_assert_double_eq(item(b[k], 0), item(a[k], 0));
        backward(CALL(sum, b[0], CORE_DTYPE_NONE));
        release_tensors(b, 2);
    }
    /* Inside of a scope, too. */
    {
        core_scope scope = core_scope_begin();

        CORE_CHECK(core_compiled_call(compiled, &x, 1, b, 2));
        OK(core_scope_end(scope));
        release_tensors(b, 2);
    }
    core_compiled_release(compiled);
    release_tensors(a, 2);
}
END_TEST

START_TEST(functions_with_scopes_are_mapped)
{
    core_tensor *x = MATRIX(3, 2, 1, 2, 3, 4, 5, 6), *a[2], *b[2], *row;
    size_t count = 2;

    OK(core_vmap(normalized, NULL, NULL, &x, 1, a, 2));
    row = CALL(select, x, 0, 1);
    OK(normalized(NULL, &row, 1, b, &count));
    ck_assert_double_eq_tol(item(a[0], 3), item(b[0], 1), 1e-12);
    ck_assert_double_eq_tol(item(a[1], 1), item(b[1], 0), 1e-12);
    release_tensors(a, 2);
    release_tensors(b, 2);
}
END_TEST

/* A mode that uses a scope for what it calls. */
static core_status counts(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    core_scope scope = core_scope_begin();

    calls++;
    core_x_neg(call->user);
    CORE_CHECK(core_redispatch_below(call, args, nargs, results, nresults));
    return core_scope_end(scope);
}

START_TEST(modes_have_their_scopes)
{
    core_tensor *x = pair(1, 2), *y;
    core_scope scope = core_scope_begin();
    core_mode *mode = NULL;

    calls = 0;
    OK(core_mode_push(CORE_MODE_API, counts, x, &mode));
    y = square(x);
    OK(core_mode_pop(mode));
    ck_assert_int_eq(calls, 2);
    ck_assert_double_eq(item(y, 1), 8);
    OK(core_scope_end(scope));
}
END_TEST

/* ------------------------------------------------------------ arguments -- */

START_TEST(arguments_have_the_defaults_of_the_schema)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *image, *y, *two;
    core_scope scope = core_scope_begin();

    two = core_x_from_data(((double[]){2}), CORE_F64, CORE_NO_SIZES, NULL);
    ck_assert_double_eq(item(core_x_sub(x, two), 3), 2);
    ck_assert_double_eq(item(core_x_sub(x, two, core_int(2)), 3), 0);
    ck_assert_double_eq(item(core_x_clamp(x, core_int(2)), 0), 2);
    ck_assert_double_eq(item(core_x_clamp(x, core_none(), core_float(2.5)), 3),
                        2.5);
    ck_assert_int_eq(core_x_item_int(core_x_argmax(x)), 3);
    image = core_x_reshape(x, CORE_SIZES(1, 1, 2, 2));
    y = core_x_max_pool2d(image, CORE_SIZES(2));
    ck_assert_double_eq(core_x_item_float(y), 4);
    y = core_x_conv2d(image, core_x_ones_like(image), NULL, CORE_SIZES(1),
                      CORE_SIZES(1));
    ck_assert_int_eq(core_x_size(y, -1), 3);
    ck_assert_int_eq(core_tensor_dtype(core_x_sum(x, CORE_F32)), CORE_F32);
    ck_assert_ptr_eq(core_x_add_(x, two), x);
    ck_assert_double_eq(item(x, 0), 3);
    ck_assert(core_x_equal(x, x));
    OK(core_scope_end(scope));
}
END_TEST

static int evaluated(int *count, int number)
{
    ++*count;
    return number;
}

START_TEST(numbers_are_those_of_c)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *y;
    core_scope scope = core_scope_begin();
    const core_scalar two = core_int(2);
    const float half = .5f;
    size_t four = 4;
    int count = 0;

    ck_assert_int_eq(core_tensor_dtype(core_x_arange(four)), CORE_I64);
    ck_assert_int_eq(core_tensor_dtype(core_x_arange(4.)), CORE_F32);
    y = core_x_full(CORE_SIZES(2), core_x_size(x, 0) > 1 ? true : false);
    ck_assert_double_eq(core_x_item_float(core_x_sum(y)), 2);
    ck_assert_double_eq(item(core_x_clamp(x, half, 2.5), 3), 2.5);
    ck_assert_double_eq(item(core_x_clamp(x, two, core_none()), 0), 2);
    ck_assert_double_eq(item(core_x_sub(x, x, 2), 3), -4);
    ck_assert_int_eq(core_x_item_int(core_x_select(core_x_argmax(x, -1), 0, 0)),
                     1);
    y = core_x_nan_to_num(x, 1, 2.f);
    ck_assert_ptr_nonnull(y);
    core_x_pow_of_scalar(evaluated(&count, 2), x);
    ck_assert_int_eq(count, 1);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_call_takes_a_tensor_or_a_number)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4);
    core_scope scope = core_scope_begin();
    core_tensor *const y = core_x_full_like(x, 3);
    void *const any = y;
    int count = 0;

    ck_assert_double_eq(item(core_x_mul(x, y), 3), 12);
    ck_assert_double_eq(item(core_x_mul(x, any), 3), 12);
    ck_assert_double_eq(item(core_x_mul(x, 3), 3), 12);
    ck_assert_double_eq(item(core_x_mul(x, .5), 3), 2);
    ck_assert_double_eq(item(core_x_mul(x, core_float(.25)), 3), 1);
    ck_assert_double_eq(item(core_x_add(x, evaluated(&count, 1), 2), 3), 6);
    ck_assert_int_eq(count, 1);
    ck_assert_double_eq(item(core_x_rsub(x, core_x_sub(y, 1)), 3), -2);
    ck_assert_double_eq(item(core_x_pow(x, core_x_pow(x, 0)), 3), 4);
    ck_assert_int_eq(core_x_item_int(core_x_sum(core_x_gt(x, 2))), 2);
    ck_assert_double_eq(
        item(core_x_masked_fill(x, core_x_gt(x, y), core_x_sum(y)), 3), 12);
    ck_assert_double_eq(item(core_x_masked_fill(x, core_x_gt(x, y), -1), 3),
                        -1);
    ck_assert_double_eq(item(core_x_clamp_min(x, core_x_mul(y, 1)), 0), 3);
    ck_assert_double_eq(core_x_item_float(core_x_quantile(x, 1)), 4);
    ck_assert_int_eq(core_x_size(core_x_repeat_interleave(x, 2), 0), 8);
    ck_assert_int_eq(core_x_size(core_x_repeat_interleave(x, 2, 1), 1), 4);
    ck_assert_double_eq(item(core_x_repeat_interleave(x, 2), 2), 2);
    ck_assert_double_eq(item(core_x_repeat_interleave(x, 2.0), 2), 2);
    ck_assert_int_eq(
        core_x_size(core_x_repeat_interleave(
                        x, core_x_full(CORE_SIZES(2), 3, CORE_I64), 0),
                    0),
        6);
    ck_assert_double_eq(core_x_item_float(core_x_quantile(x, core_int(1))), 4);
    ck_assert_double_eq(core_x_item_float(core_x_quantile(x, core_bool(true))),
                        4);
    ck_assert_ptr_eq(core_x_mul_(x, 2), x);
    ck_assert_ptr_eq(core_x_mul_(x, y), x);
    ck_assert_double_eq(item(x, 0), 6);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_missing_operand_is_named)
{
    core_tensor *x = pair(1, 2), *none = NULL;
    core_scope scope = core_scope_begin();

    core_x_mul(x, none);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT, "other");
}
END_TEST

START_TEST(a_fraction_is_no_number_of_repeats)
{
    static const double wrong[] = {2.5, NAN, INFINITY, 1e30};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        core_scope scope = core_scope_begin();

        core_x_repeat_interleave(pair(1, 2), wrong[i]);
        FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
              "must be an integer or a tensor");
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_fraction_is_no_number_of_repeats,
        a_scope_releases_what_was_made_in_it,
        a_result_belongs_to_the_caller,
        outputs_are_set_at_the_end,
        the_last_output_for_a_place_counts,
        no_output_is_set_after_an_error,
        a_kept_tensor_belongs_to_the_scope_around,
        a_kept_tensor_outlives_a_later_error,
        a_returned_tensor_belongs_to_the_scope_around,
        many_scopes_are_nested,
        lists_belong_to_the_scope,
        lists_are_unpacked,
        sizes_of_dimensions_that_do_not_exist_are_errors,
        several_results_are_a_struct,
        reference_of_a_typed_call_is_owned,
        the_first_error_is_kept_with_its_line,
        a_missing_tensor_is_an_error_of_the_call,
        wrong_lists_and_numbers_are_errors_of_the_call,
        an_error_stays_in_its_scope,
        a_status_is_checked,
        calls_need_a_scope,
        calls_without_a_scope_name_their_place,
        calls_after_a_scope_without_memory_say_so,
        a_list_grows,
        a_scope_that_was_left_open_is_an_error,
        outputs_of_a_scope_that_was_left_open_are_not_set,
        a_scope_ends_once,
        each_thread_has_its_scopes,
        a_scope_without_memory_leaves_nothing_behind,
        what_is_released_may_use_scopes,
        gradients_pass_through_scopes,
        hooks_have_their_scopes,
        functions_with_scopes_are_compiled,
        functions_with_scopes_are_mapped,
        modes_have_their_scopes,
        arguments_have_the_defaults_of_the_schema,
        numbers_are_those_of_c,
        a_call_takes_a_tensor_or_a_number,
        a_missing_operand_is_named,
    };
    const test_suite suite = {
        .name = "scope/scope", .teardown = drop_all, SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
