/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* In-place changes, versions, and views. */

#include "support/autograd.h"

#include "base/memory.h"

static core_status add_to(core_tensor *a, core_tensor *b)
{
    return core_add_(a, b, core_int(1));
}

/* A composite that changes a tensor without a gradient saves the old content,
 * and the tensor does not end up in its own graph. */
START_TEST(composite_in_place_on_constant_has_gradient_of_others)
{
    core_tensor *self = VECTOR(2, 2, 3), *source = leaf(VECTOR(2, 5, 7)), *sum;
    core_tensor *index = typed(CORE_I64, 1, (int64_t[]){2}, (double[]){0, 1});
    double got[2];

    OK(core_index_reduce_(self, 0, index, source, "prod", true));
    sum = CALL(sum, self, CORE_DTYPE_NONE);
    OK(core_backward(&sum, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(source), got, sizeof got));
    ck_assert_double_eq(got[0], 2);
    ck_assert_double_eq(got[1], 3);
}
END_TEST

START_TEST(leaf_that_requires_grad_refuses_in_place_change)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *one = VECTOR(2, 1, 1);
    core_tensor *part = CALL(select, a, 0, 0);
    bool before;

    FAILS(add_to(a, one), CORE_ERROR_AUTOGRAD, "add_.Tensor", "leaf");
    FAILS(add_to(part, SCALAR(1)), CORE_ERROR_AUTOGRAD, "view of a leaf");
    HOLDS(a, 2, 1, 2);
    before = core_grad_mode_set(false);
    OK(add_to(a, one));
    core_grad_mode_set(before);
    HOLDS(a, 2, 2, 3);
    ck_assert(core_tensor_is_leaf(a));
}
END_TEST

START_TEST(zeroing_counts_versions_and_leaves_what_it_does_not_show)
{
    core_tensor *x = VECTOR(4, 1, 2, 3, 4), *even, *middle;
    uint32_t version = core_tensor_version(x);

    even = CALL(slice, x, 0, NULL, NULL, 2);
    middle = CALL(narrow, x, 0, 1, 2);
    OK(core_zero_(even));
    ck_assert_uint_eq(core_tensor_version(x), version + 1);
    HOLDS(x, 4, 0, 2, 0, 4);
    OK(core_zero_(middle));
    ck_assert_uint_eq(core_tensor_version(x), version + 2);
    HOLDS(x, 4, 0, 0, 0, 4);
    FAILS(core_zero_(leaf(x)), CORE_ERROR_AUTOGRAD, "zero_");
    HOLDS(x, 4, 0, 0, 0, 4);
}
END_TEST

START_TEST(in_place_change_gives_result_a_new_history)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *b = leaf(VECTOR(2, 5, 7));
    core_tensor *y = mul(a, a);
    core_node *before = core_tensor_grad_fn(y);

    OK(core_mul_(y, b));
    ck_assert_ptr_ne(core_tensor_grad_fn(y), before);
    ck_assert_ptr_eq(core_node_edge(core_tensor_grad_fn(y), 0, NULL), before);
    backward(sum(y));
    HOLDS(core_tensor_grad(a), 2, 10, 28);
    HOLDS(core_tensor_grad(b), 2, 1, 4);
}
END_TEST

START_TEST(plain_tensor_joins_the_graph_on_in_place_change)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *y = VECTOR(2, 10, 20);

    OK(add_to(y, mul(a, a)));
    ck_assert(core_tensor_requires_grad(y));
    backward(sum(mul(y, y)));
    HOLDS(core_tensor_grad(a), 2, 44, 192);
}
END_TEST

START_TEST(in_place_product_with_itself_has_correct_gradient)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3));
    core_tensor *y = add(a, VECTOR(2, 0, 0));

    OK(core_mul_(y, y));
    backward(sum(y));
    HOLDS(core_tensor_grad(a), 2, 4, 6);
}
END_TEST

START_TEST(in_place_formula_uses_the_changed_result)
{
    core_tensor *a = leaf(VECTOR(2, -1, 2)), *b = leaf(VECTOR(1, 0.5));
    core_tensor *y = mul(a, VECTOR(1, 1)), *z = mul(b, VECTOR(1, 1));

    OK(core_relu_(y));
    OK(core_exp_(z));
    backward(sum(y));
    backward(z);
    HOLDS(core_tensor_grad(a), 2, 0, 1);
    HOLDS(core_tensor_grad(b), 1, 1.6487212707);
}
END_TEST

START_TEST(backward_refuses_saved_tensor_changed_in_place)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = VECTOR(2, 5, 7);
    core_tensor *y = mul(a, b), *root;
    char saved[32], now[32];

    snprintf(saved, sizeof saved, "version %u,", core_tensor_version(b));
    OK(add_to(b, VECTOR(2, 1, 1)));
    snprintf(now, sizeof now, "version %u:", core_tensor_version(b));
    ck_assert_str_ne(saved, now);
    root = sum(y);
    FAILS(core_backward(&root, 1, NULL, 0), CORE_ERROR_VERSION, "mul.Tensor",
          "[2]", saved, now);
}
END_TEST

START_TEST(change_through_view_or_detached_tensor_is_detected)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = VECTOR(2, 5, 7), *root;
    core_tensor *c = VECTOR(2, 5, 7), *view = CALL(select, b, 0, 0);

    root = sum(mul(a, b));
    OK(add_to(view, SCALAR(1)));
    FAILS(core_backward(&root, 1, NULL, 0), CORE_ERROR_VERSION, "mul.Tensor");
    root = sum(mul(a, c));
    OK(add_to(CALL(detach, c), VECTOR(2, 1, 1)));
    FAILS(core_backward(&root, 1, NULL, 0), CORE_ERROR_VERSION, "mul.Tensor");
}
END_TEST

START_TEST(retained_grad_of_view_follows_its_new_history)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *w = leaf(VECTOR(2, 1, 1));
    core_tensor *x = mul(a, a), *v = CALL(select, x, 0, 0), *y, *s, *roots[2];

    OK(core_tensor_retain_grad(v));
    y = add(v, v);
    OK(add_to(x, w));
    ck_assert_ptr_nonnull(core_tensor_grad_fn(v));
    drop(v); /* also removes its entry in the old node */
    s = sum(x);
    roots[0] = s;
    roots[1] = y;
    OK(core_backward(roots, 2, NULL, 0));
    ck_assert_ptr_null(core_tensor_grad(s));
    HOLDS(core_tensor_grad(a), 2, 12, 6);
    HOLDS(core_tensor_grad(w), 2, 1, 1);
}
END_TEST

START_TEST(changed_view_retains_grad_of_its_new_value)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *x = mul(a, a);
    core_tensor *v = CALL(select, x, 0, 0), *old = add(v, v), *roots[2];

    OK(core_tensor_retain_grad(v));
    OK(core_mul_scalar_(v, core_float(10)));
    roots[0] = sum(v);
    roots[1] = old; /* uses the old v; adds nothing to its grad */
    OK(core_backward(roots, 2, NULL, 0));
    HOLDS(core_tensor_grad(v), 1, 1);
    HOLDS(core_tensor_grad(a), 2, 48, 0);
}
END_TEST

START_TEST(out_variants_are_not_recorded)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *out = VECTOR(2, 0, 0);
    uint32_t version = core_tensor_version(out);
    bool before;

    FAILS(core_add_out(a, a, core_int(1), out), CORE_ERROR_AUTOGRAD, "add.out",
          "add.Tensor", "requires grad");
    before = core_grad_mode_set(false);
    OK(core_add_out(a, a, core_int(1), out));
    core_grad_mode_set(before);
    HOLDS(out, 2, 4, 6);
    ck_assert_uint_eq(core_tensor_version(out), version + 1);
}
END_TEST

START_TEST(change_of_view_updates_history_of_base)
{
    core_tensor *a = leaf(VECTOR(3, 1, 2, 3)), *b = leaf(VECTOR(2, 5, 7));
    core_tensor *base = mul(a, VECTOR(3, 1, 1, 1));
    core_tensor *view = CALL(slice, base, 0, &(int64_t){1}, &(int64_t){3}, 1);

    OK(core_mul_(view, b));
    backward(sum(mul(base, VECTOR(3, 1, 10, 100))));
    HOLDS(core_tensor_grad(a), 3, 1, 50, 700);
    HOLDS(core_tensor_grad(b), 2, 20, 300);
}
END_TEST

START_TEST(change_of_base_updates_history_of_views)
{
    core_tensor *a = leaf(VECTOR(3, 1, 2, 3));
    core_tensor *base = mul(a, VECTOR(3, 1, 1, 1));
    core_tensor *view = CALL(select, base, 0, 2);
    core_node *before = core_tensor_grad_fn(view);

    OK(core_mul_(base, base));
    ck_assert_ptr_ne(core_tensor_grad_fn(view), before);
    backward(view);
    HOLDS(core_tensor_grad(a), 3, 0, 0, 6);
}
END_TEST

START_TEST(view_sees_changes_through_other_views)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4));
    core_tensor *base = mul(a, VECTOR(2, 1, 1));
    core_tensor *first = CALL(select, base, 0, 0);
    core_tensor *again = CALL(select, base, 0, 0);

    OK(core_mul_(first, SCALAR(10)));
    OK(core_mul_(again, SCALAR(2)));
    backward(first);
    HOLDS(core_tensor_grad(a), 2, 20, 0);
}
END_TEST

START_TEST(rows_copied_into_plain_buffer_keep_their_gradient)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4));
    core_tensor *buffer = MATRIX(2, 2, 0, 0, 0, 0);

    OK(core_copy_(CALL(select, buffer, 0, 0), a, false));
    OK(core_copy_(CALL(select, buffer, 0, 1), mul(a, a), false));
    ck_assert(core_tensor_requires_grad(buffer));
    HOLDS(buffer, 4, 3, 4, 9, 16);
    backward(sum(mul(buffer, MATRIX(2, 2, 1, 1, 10, 10))));
    HOLDS(core_tensor_grad(a), 2, 61, 81);
}
END_TEST

START_TEST(earlier_view_joins_the_graph_with_its_base)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *buffer = VECTOR(2, 0, 0);
    core_tensor *early = CALL(select, buffer, 0, 1), *y;

    OK(core_copy_(buffer, a, false));
    ck_assert(core_tensor_requires_grad(early));
    y = mul(early, early);
    ck_assert(core_tensor_requires_grad(y));
    backward(y);
    HOLDS(core_tensor_grad(a), 2, 0, 8);
}
END_TEST

START_TEST(earlier_views_of_split_join_the_graph_with_their_base)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *buffer = VECTOR(2, 1, 1);
    core_tensor **halves, **rows, *y;
    size_t count;

    OK(core_split(buffer, 1, 0, &halves, &count));
    OK(core_unbind(buffer, 0, &rows, &count));
    OK(core_copy_(buffer, a, false));
    y = mul(halves[0], halves[0]);
    ck_assert(core_tensor_requires_grad(y));
    backward(y);
    HOLDS(core_tensor_grad(a), 2, 6, 0);
    y = mul(rows[1], VECTOR(1, 5));
    ck_assert(core_tensor_requires_grad(y));
    backward(y);
    HOLDS(core_tensor_grad(a), 2, 6, 5);
    FAILS(core_mul_(rows[0], VECTOR(1, 2)), CORE_ERROR_AUTOGRAD, "several");
    core_tensors_release(halves, count);
    core_tensors_release(rows, count);
}
END_TEST

/* A refused change leaves data and version unchanged. */
START_TEST(unrecordable_change_is_refused_and_changes_nothing)
{
    core_tensor *a = leaf(VECTOR(4, 1, 2, 3, 4)),
                *y = mul(a, VECTOR(4, 1, 1, 1, 1));
    uint32_t version;

    OK(core_as_strided_(y, (int64_t[]){2}, 1, (int64_t[]){0}, 1, NULL));
    version = core_tensor_version(y);
    FAILS(core_mul_(CALL(select, y, 0, 1), SCALAR(3)), CORE_ERROR_UNSUPPORTED,
          "mul_", "share memory");
    ck_assert_uint_eq(core_tensor_version(y), version);
    HOLDS(y, 2, 1, 1);
    backward(sum(y));
    HOLDS(core_tensor_grad(a), 4, 2, 0, 0, 0);
}
END_TEST

/* Two rows of three elements, each followed by two unused elements. */
static core_tensor *padded(core_tensor *values)
{
    core_tensor *rows = CALL(empty_strided, (int64_t[]){2, 3}, 2,
                             (int64_t[]){5, 1}, 2, CORE_F64, NULL);

    OK(core_copy_(rows, values, false));
    return rows;
}

START_TEST(change_of_view_of_padded_base_is_recorded)
{
    core_tensor *a = leaf(MATRIX(2, 3, 1, 2, 3, 4, 5, 6));
    core_tensor *b = leaf(VECTOR(2, 7, 8)), *base = padded(mul(a, a));
    core_tensor *column = CALL(select, base, 1, 1);

    OK(core_mul_(column, b));
    HOLDS(base, 6, 1, 28, 9, 16, 200, 36);
    backward(sum(mul(base, MATRIX(2, 3, 1, 2, 3, 4, 5, 6))));
    HOLDS(core_tensor_grad(a), 6, 2, 56, 18, 32, 400, 72);
    HOLDS(core_tensor_grad(b), 2, 8, 125);
}
END_TEST

START_TEST(padded_plain_buffer_keeps_gradient_of_its_rows)
{
    core_tensor *a = leaf(VECTOR(3, 1, 2, 3));
    core_tensor *base = padded(MATRIX(2, 3, 1, 1, 1, 1, 1, 1));
    core_tensor *row = CALL(select, base, 0, 1);

    OK(core_copy_(row, mul(a, a), false));
    ck_assert(core_tensor_requires_grad(base));
    backward(sum(mul(base, base)));
    HOLDS(core_tensor_grad(a), 3, 4, 32, 108);
}
END_TEST

/* Only elements that the view shares with its base contribute there. */
START_TEST(view_beyond_its_base_can_be_changed)
{
    core_tensor *a = leaf(VECTOR(4, 1, 2, 3, 4)), *y = mul(a, a), *v;
    core_tensor *b = leaf(VECTOR(2, 5, 6));

    OK(core_as_strided_(y, (int64_t[]){2}, 1, (int64_t[]){1}, 1,
                        &(int64_t){1}));
    v = CALL(as_strided, y, (int64_t[]){2}, 1, (int64_t[]){1}, 1,
             &(int64_t){2});
    OK(core_mul_(v, b));
    HOLDS(y, 2, 4, 45);
    backward(sum(y));
    HOLDS(core_tensor_grad(a), 4, 0, 4, 30, 0);
    HOLDS(core_tensor_grad(b), 2, 9, 0);
}
END_TEST

START_TEST(empty_padded_base_can_be_changed)
{
    core_tensor *a = leaf(typed(CORE_F64, 2, (int64_t[]){2, 0}, NULL));
    core_tensor *base = CALL(empty_strided, (int64_t[]){2, 0}, 2,
                             (int64_t[]){5, 3}, 2, CORE_F64, NULL);

    OK(core_copy_(CALL(select, base, 0, 1), CALL(select, a, 0, 0), false));
    backward(sum(base));
    ck_assert_int_eq(core_tensor_numel(core_tensor_grad(a)), 0);
}
END_TEST

/* Changes a column of a padded buffer and then one of its rows. */
static core_status change_padded(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    core_tensor *base = padded(mul(inputs[0], inputs[0]));
    core_tensor *column = CALL(select, base, 1, 1);
    core_tensor *row = CALL(select, base, 0, 0);

    (void)context;
    (void)ninputs;
    OK(core_mul_(column, inputs[1]));
    OK(core_mul_(row, CALL(select, inputs[0], 0, 1)));
    *noutputs = 1;
    return core_mul(base, row, &outputs[0]);
}

START_TEST(changes_of_padded_bases_have_second_derivatives)
{
    core_tensor *inputs[] = {leaf(MATRIX(2, 3, 1, 2, 3, 4, 5, 6)),
                             leaf(VECTOR(2, .5, -2))};

    OK(core_gradcheck(change_padded, NULL, inputs, 2, 1e-6, 1e-5, 1e-5));
    OK(core_gradgradcheck(change_padded, NULL, inputs, 2, 1e-6, 1e-4, 1e-5));
}
END_TEST

START_TEST(view_of_detached_base_refuses_change)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *b = mul(a, a);
    core_tensor *v = CALL(narrow, b, 0, 0, 2);

    OK(core_detach_(b));
    FAILS(core_mul_(v, VECTOR(1, 2)), CORE_ERROR_AUTOGRAD, "mul_", "detached");
    HOLDS(v, 2, 9, 16);
    backward(sum(v));
    HOLDS(core_tensor_grad(a), 2, 6, 8);
}
END_TEST

START_TEST(change_through_transposed_view_has_correct_gradient)
{
    core_tensor *a = leaf(MATRIX(2, 3, 1, 2, 3, 4, 5, 6));
    core_tensor *base = mul(a, MATRIX(1, 1, 1));
    core_tensor *view = CALL(transpose, base, 0, 1);

    OK(core_mul_(view, MATRIX(3, 2, 1, 2, 3, 4, 5, 6)));
    backward(sum(base));
    HOLDS(core_tensor_grad(a), 6, 1, 3, 5, 2, 4, 6);
}
END_TEST

START_TEST(changes_through_views_have_second_derivatives)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4));
    core_tensor *base = mul(a, a), *root, *first, *second;

    OK(core_mul_(CALL(select, base, 0, 1), CALL(select, a, 0, 0)));
    root = sum(base); /* a0^2 + a1^2 a0 */
    OK(core_grad(&root, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 2, 6 + 16, 24);
    root = sum(mul(first, VECTOR(2, 1, 10)));
    OK(core_grad(&root, 1, NULL, &a, 1, 0, &second));
    HOLDS(keep(second), 2, 2 + 80, 8 + 60);
}
END_TEST

START_TEST(view_created_without_grad_refuses_recorded_change)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *base = mul(a, a);
    bool before = core_grad_mode_set(false);
    core_tensor *view = CALL(select, base, 0, 0);

    core_grad_mode_set(before);
    FAILS(core_mul_(view, CALL(select, a, 0, 0)), CORE_ERROR_AUTOGRAD,
          "grad mode off");
}
END_TEST

START_TEST(view_created_in_inference_refuses_recorded_change)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *base = mul(a, a);
    uint64_t before = core_inference_begin();
    core_tensor *view = CALL(select, base, 0, 0);

    core_inference_end(before);
    FAILS(core_mul_(view, CALL(select, a, 0, 0)), CORE_ERROR_AUTOGRAD,
          "inference mode");
}
END_TEST

/* Views that autograd does not track, created without grad mode or in inference
 * mode. */
static core_tensor *unknown_view(core_tensor *base, bool inference)
{
    uint64_t mode = inference ? core_inference_begin() : 0;
    bool before = core_grad_mode_set(inference);
    core_tensor *view = CALL(narrow, base, 0, 0, 2);

    core_grad_mode_set(before);
    if (inference)
        core_inference_end(mode);
    return view;
}

/* Changes the view by operands without requires_grad: the history of the base
 * would lack them. */
static void refuses_changes(core_tensor *view, const char *why)
{
    core_tensor *ten = VECTOR(2, 10, 10);
    bool before;

    FAILS(core_mul_(view, ten), CORE_ERROR_AUTOGRAD, "mul_.Tensor", why);
    FAILS(core_mul_scalar_(view, core_float(10)), CORE_ERROR_AUTOGRAD, why);
    FAILS(core_zero_(view), CORE_ERROR_AUTOGRAD, why);
    FAILS(core_copy_(view, ten, false), CORE_ERROR_AUTOGRAD, why);
    FAILS(core_mul_out(ten, ten, view), CORE_ERROR_AUTOGRAD, why);
    FAILS(core_mul_(CALL(narrow, view, 0, 0, 1), VECTOR(1, 10)),
          CORE_ERROR_AUTOGRAD, why);
    before = core_grad_mode_set(false);
    OK(core_mul_(view, VECTOR(2, 1, 1)));
    OK(core_mul_(CALL(narrow, view, 0, 0, 1), VECTOR(1, 1)));
    core_grad_mode_set(before);
}

static void unknown_views_refuse(bool inference)
{
    const char *why = inference ? "inference mode" : "grad mode off";
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *base = mul(a, VECTOR(2, 1, 1));
    core_tensor *plain = VECTOR(2, 1, 2);
    core_tensor *view = unknown_view(plain, inference);

    refuses_changes(unknown_view(a, inference), why);
    refuses_changes(unknown_view(base, inference), why);
    OK(core_mul_(view, VECTOR(2, 2, 2)));
    HOLDS(plain, 2, 2, 4);
    OK(core_tensor_set_requires_grad(plain, true));
    refuses_changes(view, why);
    plain = VECTOR(2, 1, 2);
    view = unknown_view(plain, inference);
    OK(core_mul_(plain, a));
    refuses_changes(view, why);
    HOLDS(plain, 2, 3, 8);
    backward(sum(base));
    HOLDS(core_tensor_grad(a), 2, 1, 1);
}

START_TEST(view_created_without_grad_refuses_change_by_plain_operand)
{
    unknown_views_refuse(false);
}
END_TEST

START_TEST(view_created_in_inference_refuses_change_by_plain_operand)
{
    unknown_views_refuse(true);
}
END_TEST

START_TEST(earlier_view_of_tensor_made_leaf_is_view_of_leaf)
{
    core_tensor *plain = VECTOR(2, 3, 4), *view = CALL(narrow, plain, 0, 0, 2);

    OK(core_tensor_set_requires_grad(plain, true));
    FAILS(core_mul_scalar_(view, core_float(10)), CORE_ERROR_AUTOGRAD,
          "view of a leaf");
    HOLDS(plain, 2, 3, 4);
    backward(sum(mul(view, view)));
    HOLDS(core_tensor_grad(plain), 2, 6, 8);
}
END_TEST

START_TEST(view_from_split_refuses_recorded_change)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *base = mul(a, a), **parts;
    size_t count;

    OK(core_split(base, 1, 0, &parts, &count));
    ck_assert_uint_eq(count, 2);
    FAILS(core_mul_(parts[0], VECTOR(1, 2)), CORE_ERROR_AUTOGRAD, "several");
    backward(parts[1]);
    HOLDS(core_tensor_grad(a), 2, 0, 8);
    core_tensors_release(parts, count);
}
END_TEST

/* The history of y leads to the node that saved x; x gets the history of y. */
static void make_cycle_of_results(void)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *x = mul(a, a), *y = mul(x, x);

    OK(add_to(x, y));
    drop_all();
}

START_TEST(saved_tensor_changed_by_its_own_result_is_freed)
{
    int64_t live;

    for (int i = 0; i < 3; i++) {
        core_tensor *a = leaf(VECTOR(1, 2)), *x = VECTOR(1, 3);

        OK(add_to(x, mul(a, x)));
        drop_all();
        make_cycle_of_results();
        if (i == 1)
            live = core__alloc_live();
        if (i == 2)
            ck_assert_int_eq(core__alloc_live(), live);
    }
}
END_TEST

START_TEST(changes_through_views_leak_no_memory)
{
    int64_t live;

    for (int i = 0; i < 3; i++) {
        core_tensor *a = leaf(VECTOR(2, 3, 4)), *base = mul(a, a);
        core_tensor *view = CALL(select, base, 0, 1);

        OK(core_mul_(view, CALL(select, a, 0, 0)));
        backward(sum(base));
        OK(core_mul_(view, view));
        drop_all();
        if (i == 1)
            live = core__alloc_live();
        if (i == 2)
            ck_assert_int_eq(core__alloc_live(), live);
    }
}
END_TEST

SUITE("autograd/autograd_inplace",
      leaf_that_requires_grad_refuses_in_place_change,
      zeroing_counts_versions_and_leaves_what_it_does_not_show,
      in_place_change_gives_result_a_new_history,
      plain_tensor_joins_the_graph_on_in_place_change,
      in_place_product_with_itself_has_correct_gradient,
      in_place_formula_uses_the_changed_result,
      backward_refuses_saved_tensor_changed_in_place,
      change_through_view_or_detached_tensor_is_detected,
      retained_grad_of_view_follows_its_new_history,
      changed_view_retains_grad_of_its_new_value, out_variants_are_not_recorded,
      change_of_view_updates_history_of_base,
      change_of_base_updates_history_of_views,
      view_sees_changes_through_other_views,
      rows_copied_into_plain_buffer_keep_their_gradient,
      earlier_view_joins_the_graph_with_its_base,
      earlier_views_of_split_join_the_graph_with_their_base,
      unrecordable_change_is_refused_and_changes_nothing,
      change_of_view_of_padded_base_is_recorded,
      padded_plain_buffer_keeps_gradient_of_its_rows,
      view_beyond_its_base_can_be_changed, empty_padded_base_can_be_changed,
      changes_of_padded_bases_have_second_derivatives,
      view_of_detached_base_refuses_change,
      change_through_transposed_view_has_correct_gradient,
      changes_through_views_have_second_derivatives,
      view_created_without_grad_refuses_recorded_change,
      view_created_in_inference_refuses_recorded_change,
      view_created_without_grad_refuses_change_by_plain_operand,
      view_created_in_inference_refuses_change_by_plain_operand,
      earlier_view_of_tensor_made_leaf_is_view_of_leaf,
      view_from_split_refuses_recorded_change,
      saved_tensor_changed_by_its_own_result_is_freed,
      composite_in_place_on_constant_has_gradient_of_others,
      changes_through_views_leak_no_memory)
