/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients written into the program's buffers: buckets, main gradients,
 * packing. */

#include "support/autograd.h"

#include <libcore/destination.h>
#include <libcore/dlpack.h>
#include <libcore/function.h>

static core_gradient_destination destination_for(core_tensor *input,
                                                 core_tensor *buffer,
                                                 uint32_t flags)
{
    return (core_gradient_destination){.struct_size =
                                           sizeof(core_gradient_destination),
                                       .flags = flags,
                                       .input = input,
                                       .buffer = buffer};
}

static core_tensor *buffer_of(size_t n)
{
    core_tensor *buffer;

    OK(core_full((int64_t[]){(int64_t)n}, 1, core_float(100), CORE_F64, NULL,
                 &buffer));
    return keep(buffer);
}

static core_tensor *part(core_tensor *buffer, int64_t from, int64_t to,
                         int64_t rows, int64_t columns)
{
    core_tensor *range = CALL(slice, buffer, 0, &from, &to, 1);
    int64_t sizes[2] = {rows, columns};

    return CALL(view_sizes, range, sizes, 2);
}

/* sum(x w^T); each row of dw is the column sums of x */
static core_tensor *linear_sum(core_tensor *x, core_tensor *w)
{
    return sum(CALL(linear, x, w, NULL));
}

START_TEST(gradients_are_written_into_views_of_one_bucket)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4);
    core_tensor *v = leaf(MATRIX(1, 2, 1, 1)),
                *w = leaf(MATRIX(2, 2, 1, 0, 0, 1));
    core_tensor *bucket = buffer_of(6),
                *y = linear_sum(CALL(linear, x, w, NULL), v);
    core_gradient_destination to[2];

    to[0] = destination_for(v, part(bucket, 0, 2, 1, 2), 0);
    to[1] = destination_for(w, part(bucket, 2, 6, 2, 2), 0);
    OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, to, 2));
    HOLDS(bucket, 6, 4, 6, 4, 6, 4, 6);
    ck_assert_ptr_null(core_tensor_grad(v));
    ck_assert_ptr_null(core_tensor_grad(w));
    ck_assert_int_eq(to[0].result, CORE_DESTINATION_IN_PLACE);
    ck_assert_int_eq(to[1].result, CORE_DESTINATION_IN_PLACE);
    /* By default the buffer is overwritten; with ACCUMULATE it is added to. */
    to[0].flags = CORE_DESTINATION_ACCUMULATE;
    OK(core_backward_into(&y, 1, NULL, 0, to, 2));
    HOLDS(bucket, 6, 8, 12, 4, 6, 4, 6);
}
END_TEST

START_TEST(main_gradients_may_have_a_wider_dtype)
{
    core_tensor *w =
        leaf(typed(CORE_BF16, 1, (int64_t[]){2}, (double[]){1, 2}));
    core_tensor *main, *y = sum(mul(w, w));
    core_gradient_destination to;

    OK(core_zeros((int64_t[]){2}, 1, CORE_F32, NULL, &main));
    to = destination_for(w, keep(main), CORE_DESTINATION_ACCUMULATE);
    for (int i = 0; i < 3; i++)
        OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
    HOLDS(main, 2, 6, 12);
    ck_assert_int_eq(core_tensor_dtype(main), CORE_F32);
    ck_assert_int_eq(to.result, CORE_DESTINATION_COPIED);
    ck_assert_ptr_null(core_tensor_grad(w));
}
END_TEST

/* Uses one weight several times; some gradients can be written in place. */
START_TEST(all_contributions_accumulate_in_one_buffer)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4),
                *w = leaf(MATRIX(2, 2, 1, 0, 0, 1));
    core_tensor *buffer = buffer_of(4), *y;
    core_gradient_destination to =
        destination_for(w, part(buffer, 0, 4, 2, 2), 0);

    y = add(add(linear_sum(x, w), linear_sum(x, w)), sum(w));
    OK(core_backward_into(&y, 1, NULL, 0, &to, 1));
    HOLDS(buffer, 4, 9, 13, 9, 13);
    ck_assert_int_eq(to.result, CORE_DESTINATION_IN_PLACE);
}
END_TEST

static core_status count_hook(void *context, core_tensor *grad,
                              core_tensor **out_grad)
{
    ck_assert_ptr_nonnull(grad);
    ++*(int *)context;
    return core_mul_scalar(grad, core_float(2), out_grad);
}

static core_status count_leaf(void *context, core_tensor *leaf)
{
    (void)leaf;
    ++*(int *)context;
    return CORE_OK;
}

START_TEST(hooks_see_gradients_with_destinations)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4),
                *w = leaf(MATRIX(2, 2, 1, 0, 0, 1));
    core_tensor *buffer = buffer_of(4), *y = linear_sum(x, w);
    core_gradient_destination to =
        destination_for(w, part(buffer, 0, 4, 2, 2), 0);
    int before = 0, after = 0;
    core_hook *hook;

    OK(core_tensor_register_accumulate_hook(w, count_leaf, &after, NULL, NULL));
    OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
    ck_assert_int_eq(to.result, CORE_DESTINATION_IN_PLACE);
    ck_assert_int_eq(after, 1);
    OK(core_tensor_register_hook(w, count_hook, &before, NULL, &hook));
    OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
    ck_assert_int_eq(to.result, CORE_DESTINATION_COPIED);
    ck_assert_int_eq(before, 1);
    ck_assert_int_eq(after, 2);
    HOLDS(buffer, 4, 8, 12, 8, 12);
    core_hook_remove(hook);
}
END_TEST

START_TEST(grad_into_runs_only_nodes_up_to_its_inputs)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = leaf(VECTOR(2, 5, 7));
    core_tensor *m = mul(a, b), *y = sum(mul(m, m)),
                *other = leaf(VECTOR(1, 1));
    core_tensor *x = buffer_of(2), *z = buffer_of(2);
    core_gradient_destination to[3];

    to[0] = destination_for(m, x, 0);
    to[1] = destination_for(a, z, CORE_DESTINATION_ACCUMULATE);
    OK(core_grad_into(&y, 1, NULL, CORE_RETAIN_GRAPH, to, 2));
    HOLDS(x, 2, 20, 42);
    HOLDS(z, 2, 100 + 20 * 5, 100 + 42 * 7);
    ck_assert_ptr_null(core_tensor_grad(a));
    ck_assert_ptr_null(core_tensor_grad(b));
    to[2] = destination_for(other, buffer_of(1), 0);
    FAILS(core_grad_into(&y, 1, NULL, 0, to, 3), CORE_ERROR_AUTOGRAD,
          "core_grad_into", "input 2", "CORE_ALLOW_UNUSED");
    HOLDS(x, 2, 20, 42);
    OK(core_grad_into(&y, 1, NULL, CORE_RETAIN_GRAPH | CORE_ALLOW_UNUSED, to,
                      3));
    ck_assert_int_eq(to[2].result, CORE_DESTINATION_UNUSED);
    HOLDS(to[2].buffer, 1, 100);
}
END_TEST

START_TEST(unsuitable_destinations_are_refused)
{
    core_tensor *w = leaf(VECTOR(2, 1, 2)), *y = sum(mul(w, w)), *buffer;
    core_gradient_destination to = destination_for(w, buffer_of(3), 0), two[2];

    FAILS(core_backward_into(&y, 1, NULL, 0, &to, 1), CORE_ERROR_SHAPE, "[3]",
          "[2]");
    OK(core_zeros((int64_t[]){2}, 1, CORE_I64, NULL, &buffer));
    to.buffer = keep(buffer);
    FAILS(core_backward_into(&y, 1, NULL, 0, &to, 1), CORE_ERROR_DTYPE, "i64");
    to.buffer = leaf(VECTOR(2, 1, 2));
    FAILS(core_backward_into(&y, 1, NULL, 0, &to, 1), CORE_ERROR_AUTOGRAD,
          "requires grad");
    to.buffer = NULL;
    FAILS(core_backward_into(&y, 1, NULL, 0, &to, 1),
          CORE_ERROR_INVALID_ARGUMENT, "buffer");
    to.buffer = buffer_of(2);
    FAILS(core_backward_into(&y, 1, NULL, CORE_CREATE_GRAPH, &to, 1),
          CORE_ERROR_INVALID_ARGUMENT, "core_backward_into", "flags");
    FAILS(core_backward_into(&y, 1, NULL, 0, NULL, 1),
          CORE_ERROR_INVALID_ARGUMENT, "number of destinations is 0");
    to.flags = 8;
    FAILS(core_backward_into(&y, 1, NULL, 0, &to, 1),
          CORE_ERROR_INVALID_ARGUMENT, "flags 0x8");
    two[0] = two[1] = destination_for(w, buffer_of(2), 0);
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 2),
          CORE_ERROR_INVALID_ARGUMENT, "same input");
    to = destination_for(y, buffer_of(1), 0);
    FAILS(core_backward_into(&y, 1, NULL, 0, &to, 1), CORE_ERROR_AUTOGRAD,
          "not a leaf");
    /* The refused calls leave the graph intact. */
    backward(y);
    HOLDS(core_tensor_grad(w), 2, 2, 4);
}
END_TEST

enum { MANY = 40 };

/* The destinations are in another order than the memory of their buffers. */
static core_tensor *many_destinations(core_gradient_destination *to,
                                      core_tensor *bucket)
{
    core_tensor *y = NULL;

    for (int i = 0; i < MANY; i++) {
        core_tensor *x = leaf(VECTOR(1, 1));
        core_tensor *scaled = CALL(mul_scalar, x, core_float(i + 1));

        to[i] = destination_for(x, CALL(narrow, bucket, 0, i * 7 % MANY, 1), 0);
        y = y ? add(y, sum(scaled)) : sum(scaled);
    }
    return y;
}

START_TEST(many_destinations_are_told_apart)
{
    core_gradient_destination to[MANY];
    core_tensor *bucket = buffer_of(MANY), *y = many_destinations(to, bucket);
    core_tensor *before = to[11].buffer, *input = to[11].input;
    double found[MANY];

    to[11].buffer = to[29].buffer;
    FAILS(core_backward_into(&y, 1, NULL, 0, to, MANY),
          CORE_ERROR_INVALID_ARGUMENT, "destinations 11 and 29 share memory");
    to[11].buffer = before;
    to[11].input = to[38].input;
    FAILS(core_backward_into(&y, 1, NULL, 0, to, MANY),
          CORE_ERROR_INVALID_ARGUMENT,
          "destinations 11 and 38 are for the same input");
    to[11].input = input;
    OK(core_backward_into(&y, 1, NULL, 0, to, MANY));
    OK(core_tensor_read(bucket, found, sizeof found));
    for (int i = 0; i < MANY; i++)
        ck_assert(found[i * 7 % MANY] == i + 1);
}
END_TEST

/* A read-only tensor of two numbers, imported through DLPack. */
static core_tensor *read_only(void)
{
    static double data[2]; /* the tensor is released after the test */
    static int64_t sizes[1] = {2};
    static core_dlpack_managed managed;
    core_tensor *tensor;

    managed =
        (core_dlpack_managed){.major = 1,
                              .minor = 1,
                              .flags = CORE_DLPACK_READ_ONLY,
                              .tensor = {.data = data,
                                         .device = {CORE_DLPACK_CPU, 0},
                                         .ndim = 1,
                                         .dtype = {CORE_DLPACK_FLOAT, 64, 1},
                                         .shape = sizes}};
    OK(core_dlpack_import(&managed, NULL, NULL, &tensor));
    return keep(tensor);
}

/* Refused before backward starts, so that the graph stays usable. */
START_TEST(destinations_must_not_share_memory)
{
    const int64_t sizes[1] = {2};
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *b = leaf(VECTOR(2, 3, 4));
    core_tensor *y = sum(mul(a, b)), *bucket = buffer_of(5), *wide;
    core_tensor *matrix = CALL(view_sizes, buffer_of(4), (int64_t[]){2, 2}, 2);
    core_gradient_destination two[2] = {
        destination_for(a, CALL(narrow, bucket, 0, 0, 2), 0),
        destination_for(b, CALL(narrow, bucket, 0, 1, 2), 0)};

    FAILS(core_backward_into(&y, 1, NULL, 0, two, 2),
          CORE_ERROR_INVALID_ARGUMENT, "destinations 0 and 1", "memory");
    two[1].buffer = two[0].buffer;
    FAILS(core_grad_into(&y, 1, NULL, 0, two, 2), CORE_ERROR_INVALID_ARGUMENT,
          "core_grad_into", "destinations 0 and 1", "memory");
    OK(core_expand(buffer_of(1), sizes, 1, false, &wide));
    two[1].buffer = keep(wide);
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 2), CORE_ERROR_SHAPE,
          "destination 1", "share memory");
    two[1].buffer = read_only();
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 2), CORE_ERROR_REFUSED,
          "destination 1", "read-only");
    two[1].buffer = CALL(detach, b);
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 2),
          CORE_ERROR_INVALID_ARGUMENT, "destination 1", "its input");
    /* Columns interleave but share no element. */
    two[0].buffer = CALL(select, matrix, 1, 0);
    two[1].buffer = CALL(select, matrix, 1, 1);
    OK(core_backward_into(&y, 1, NULL, 0, two, 2));
    HOLDS(matrix, 4, 3, 1, 4, 2);
}
END_TEST

START_TEST(next_backward_does_not_use_the_destination)
{
    core_tensor *w = leaf(VECTOR(2, 1, 2)), *y = sum(mul(w, w));
    core_tensor *buffer = buffer_of(2);
    core_gradient_destination to = destination_for(w, buffer, 0);

    OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &to, 1));
    backward(y); /* does not use the destination again */
    HOLDS(core_tensor_grad(w), 2, 2, 4);
    HOLDS(buffer, 2, 2, 4);
}
END_TEST

/* --------------------------------------------------- zero-copy packing -- */

/* A linear layer whose backward writes the gradient of the weight into its
 * slice of a buffer, drops the slice and returns it: zero-copy packing as
 * published, step by step. */
typedef struct packed_state {
    core_tensor *slice; /* owned until backward */
} packed_state;

static core_status packed_forward(void *context, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t noutputs)
{
    core_tensor *across = NULL;
    core_status status = core_t(inputs[1], &across);

    (void)context;
    (void)ninputs;
    (void)noutputs;
    if (status == CORE_OK)
        status = core_mm(inputs[0], across, &outputs[0]);
    core_tensor_release(across);
    return status;
}

static core_status packed_setup(core_function_context *function, void *context,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor *const *outputs, size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)outputs;
    (void)noutputs;
    return core_context_save(function, inputs, 2);
}

static core_status packed_backward(core_node *node, void *context,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **gradients, size_t ngradients)
{
    packed_state *state = context;
    core_tensor *x = NULL, *w = NULL, *across = NULL, *out = state->slice;
    core_status status = core_node_saved(node, 0, &x);

    (void)ngrads;
    (void)ngradients;
    state->slice = NULL; /* so that the leaf can take it without a copy */
    if (status == CORE_OK)
        status = core_t(grads[0], &across);
    if (status == CORE_OK)
        status = core_mm_out(across, x, out);
    gradients[1] = out;
    if (status == CORE_OK && core_node_needs_gradient(node, 0)) {
        status = core_node_saved(node, 1, &w);
        if (status == CORE_OK)
            status = core_mm(grads[0], w, &gradients[0]);
    }
    core_tensor_release(w);
    core_tensor_release(across);
    core_tensor_release(x);
    return status;
}

static core_tensor *packed_linear(packed_state *state, core_tensor *x,
                                  core_tensor *w, core_tensor *slice)
{
    core_custom_function steps = {.struct_size = sizeof steps,
                                  .flags = CORE_FUNCTION_ONCE_DIFFERENTIABLE,
                                  .name = "PackedLinear",
                                  .forward = packed_forward,
                                  .setup = packed_setup,
                                  .backward = packed_backward,
                                  .context = state};
    core_tensor *inputs[] = {x, w}, *y;

    state->slice = slice;
    OK(core_function_apply(&steps, inputs, 2, &y, 1));
    return keep(y);
}

static core_tensor *random_matrix(int64_t rows, int64_t columns)
{
    core_tensor *made;

    OK(core_randn((int64_t[]){rows, columns}, 2, NULL, CORE_F32, NULL, &made));
    return keep(made);
}

/* A slice referenced only by the function. */
static core_tensor *slice_of(core_tensor *buffer, int64_t from, int64_t to,
                             int64_t rows, int64_t columns)
{
    int64_t sizes[2] = {rows, columns};
    core_tensor *range, *view;

    OK(core_slice(buffer, 0, &from, &to, 1, &range));
    OK(core_view_sizes(range, sizes, 2, &view));
    core_tensor_release(range);
    return view;
}

START_TEST(zero_copy_packing_stores_both_gradients_in_one_buffer)
{
    core_tensor *weight1 = leaf(random_matrix(3, 4));
    core_tensor *weight2 = leaf(random_matrix(5, 3));
    core_tensor *x = random_matrix(2, 4), *buffer, *y, *z, *g;
    packed_state first, second;
    void *start, *one, *two;
    float want[12], have[12];

    OK(core_zeros((int64_t[]){12 + 15}, 1, CORE_F32, NULL, &buffer));
    keep(buffer);
    y = packed_linear(&first, x, weight1, slice_of(buffer, 0, 12, 3, 4));
    z = packed_linear(&second, y, weight2, slice_of(buffer, 12, 27, 5, 3));
    backward(sum(z));
    OK(core_tensor_data(buffer, &start));
    OK(core_tensor_data(core_tensor_grad(weight1), &one));
    OK(core_tensor_data(core_tensor_grad(weight2), &two));
    ck_assert_ptr_eq(one, start);
    ck_assert_ptr_eq(two, (float *)start + 12);
    /* The values equal those of the linear operator. */
    memcpy(have, start, sizeof have);
    z = sum(CALL(linear, CALL(linear, x, weight1, NULL), weight2, NULL));
    OK(core_grad(&z, 1, NULL, &weight1, 1, 0, &g));
    OK(core_tensor_read(keep(g), want, sizeof want));
    for (int i = 0; i < 12; i++)
        ck_assert_float_eq_tol(have[i], want[i], 1e-4);
}
END_TEST

SUITE("autograd/autograd_destination",
      gradients_are_written_into_views_of_one_bucket,
      main_gradients_may_have_a_wider_dtype,
      all_contributions_accumulate_in_one_buffer,
      hooks_see_gradients_with_destinations,
      grad_into_runs_only_nodes_up_to_its_inputs,
      unsuitable_destinations_are_refused, many_destinations_are_told_apart,
      next_backward_does_not_use_the_destination,
      zero_copy_packing_stores_both_gradients_in_one_buffer,
      destinations_must_not_share_memory)
