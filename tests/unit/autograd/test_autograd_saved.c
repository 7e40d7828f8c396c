/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Saved-tensor hooks and checkpoints (docs/semantics.md, Saved values 6). */

#include "support/autograd.h"

#include <libcore/random.h>
#include <libcore/saved.h>

static int packed, unpacked, released, dropped;

/* Offloading: saved tensors are copied to the host and restored from there. */
typedef struct offloaded {
    core_dtype dtype;
    size_t ndim, bytes;
    int64_t sizes[4];
    char data[];
} offloaded;

static core_status offload(void *context, core_tensor *tensor, void **out)
{
    size_t bytes = (size_t)core_tensor_numel(tensor) * 8;
    offloaded *away = malloc(sizeof *away + bytes);

    (void)context;
    away->dtype = core_tensor_dtype(tensor);
    away->ndim = core_tensor_ndim(tensor);
    away->bytes = bytes;
    for (size_t i = 0; i < away->ndim; i++)
        away->sizes[i] = core_tensor_size(tensor, i);
    packed++;
    *out = away;
    return core_tensor_read(tensor, away->data, bytes);
}

static core_status fetch(void *context, void *handle, core_tensor **out)
{
    offloaded *away = handle;

    (void)context;
    unpacked++;
    return core_tensor_from_data(away->data, away->dtype, away->sizes,
                                 away->ndim, NULL, out);
}

static void release_offloaded(void *context, void *handle)
{
    (void)context;
    released++;
    free(handle);
}

static void count_drop(void *context)
{
    (void)context;
    dropped++;
}

static const core_saved_hooks_info offloading = {.struct_size =
                                                     sizeof offloading,
                                                 .pack = offload,
                                                 .unpack = fetch,
                                                 .release = release_offloaded,
                                                 .drop = count_drop};

START_TEST(saved_tensors_can_be_offloaded_to_the_host)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = leaf(VECTOR(2, 5, 7)), *y;

    packed = unpacked = released = dropped = 0;
    OK(core_saved_hooks_push(&offloading));
    y = sum(mul(a, b));
    OK(core_saved_hooks_pop());
    ck_assert_int_eq(packed, 2);
    ck_assert_int_eq(dropped, 0);
    backward(y);
    HOLDS(core_tensor_grad(a), 2, 5, 7);
    HOLDS(core_tensor_grad(b), 2, 2, 3);
    ck_assert_int_eq(unpacked, 2);
    ck_assert_int_eq(released, 2);
    ck_assert_int_eq(dropped, 1);
    FAILS(core_saved_hooks_pop(), CORE_ERROR_AUTOGRAD, "no saved-tensor hooks");
}
END_TEST

START_TEST(unpacked_tensors_keep_their_history)
{
    core_tensor *a = leaf(VECTOR(1, 3)), *y, *first, *second, *third;

    packed = unpacked = released = dropped = 0;
    OK(core_saved_hooks_push(&offloading));
    y = mul(mul(a, a), a);
    y = CALL(exp, CALL(log, y)); /* exp saves its result */
    OK(core_grad(&y, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 1, 27);
    OK(core_grad(&first, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &second));
    HOLDS(keep(second), 1, 18);
    OK(core_grad(&second, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &third));
    HOLDS(keep(third), 1, 6);
    OK(core_saved_hooks_pop());
    drop_all();
    ck_assert_int_eq(released, packed);
    ck_assert_int_eq(dropped, 1);
}
END_TEST

START_TEST(saved_tensors_in_lists_are_packed)
{
    core_tensor *x = leaf(VECTOR(3, 1, 2, 3)), *y, *index;
    int64_t picks[2] = {2, 0};

    OK(core_tensor_from_data(picks, CORE_I64, (int64_t[]){2}, 1, NULL, &index));
    keep(index);
    packed = released = 0;
    OK(core_saved_hooks_push(&offloading));
    y = sum(CALL(index, x, &index, 1));
    OK(core_saved_hooks_pop());
    ck_assert_int_ge(packed, 1);
    backward(y);
    HOLDS(core_tensor_grad(x), 3, 1, 0, 1);
    ck_assert_int_eq(released, packed);
}
END_TEST

START_TEST(only_innermost_saved_hooks_are_called)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y;
    core_saved_hooks_info refusing = offloading;

    packed = unpacked = released = dropped = 0;
    OK(core_saved_hooks_push(&offloading));
    OK(core_saved_hooks_push(&refusing));
    y = mul(a, a);
    OK(core_saved_hooks_pop());
    ck_assert_int_eq(packed, 2);
    y = mul(y, y);
    OK(core_saved_hooks_pop());
    y = mul(y, y); /* no hooks */
    ck_assert_int_eq(packed, 4);
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 8 * 128);
    ck_assert_int_eq(dropped, 2);
}
END_TEST

static core_status refuse(void *context, core_tensor *tensor, void **out)
{
    (void)context;
    (void)tensor;
    (void)out;
    return core_error_set(CORE_ERROR_REFUSED, "the disk is full");
}

static core_status refuse_silently(void *context, void *handle,
                                   core_tensor **out)
{
    (void)context;
    (void)handle;
    (void)out;
    return CORE_ERROR_REFUSED;
}

static core_status change_in_place(void *context, core_tensor *tensor,
                                   void **out)
{
    (void)context;
    *out = NULL;
    return core_add_(tensor, tensor, core_int(1));
}

static core_status give_other(void *context, void *handle, core_tensor **out)
{
    (void)context;
    (void)handle;
    return core_zeros((int64_t[]){5}, 1, CORE_F64, NULL, out);
}

static core_status give_none(void *context, void *handle, core_tensor **out)
{
    (void)context;
    (void)handle;
    (void)out;
    return CORE_OK;
}

START_TEST(pack_and_unpack_errors_reach_the_caller)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *y = NULL;
    core_saved_hooks_info info = offloading;
    int before;

    packed = released = 0;
    info.pack = refuse;
    OK(core_saved_hooks_push(&info));
    FAILS(core_mul(a, a, &y), CORE_ERROR_REFUSED, "packing", "disk is full");
    ck_assert_ptr_null(y);
    OK(core_saved_hooks_pop());
    info.pack = change_in_place;
    info.release = NULL;
    OK(core_saved_hooks_push(&info));
    FAILS(core_mul(a, a, &y), CORE_ERROR_VERSION, "in place");
    OK(core_saved_hooks_pop());

    info = offloading;
    info.unpack = refuse_silently;
    OK(core_saved_hooks_push(&info));
    y = mul(a, a);
    OK(core_saved_hooks_pop());
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_REFUSED, "mul.Tensor",
          "unpacking", "without a message");
    info.unpack = give_other;
    OK(core_saved_hooks_push(&info));
    y = mul(a, a);
    OK(core_saved_hooks_pop());
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "mul.Tensor",
          "[1]", "[5]");
    info.unpack = give_none;
    OK(core_saved_hooks_push(&info));
    y = mul(a, a);
    OK(core_saved_hooks_pop());
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "mul.Tensor",
          "returned no tensor");
    /* The thread works as before, without hooks. */
    before = packed;
    ck_assert_int_eq(before, 6);
    ck_assert_ptr_null(core_tensor_grad(a));
    y = mul(a, a);
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 8); /* pack has added 1 twice */
    ck_assert_int_eq(packed, before);
    drop_all();
    ck_assert_int_eq(released, packed);
}
END_TEST

START_TEST(saved_hooks_require_pack_and_unpack)
{
    core_saved_hooks_info info = {
        .struct_size = sizeof info, .pack = offload, .drop = count_drop};

    dropped = 0;
    FAILS(core_saved_hooks_push(NULL), CORE_ERROR_INVALID_ARGUMENT, "info");
    FAILS(core_saved_hooks_push(&info), CORE_ERROR_INVALID_ARGUMENT, "unpack");
    info.struct_size = 4;
    FAILS(core_saved_hooks_push(&info), CORE_ERROR_INVALID_ARGUMENT,
          "struct_size");
    ck_assert_int_eq(dropped, 2);
}
END_TEST

/* ---------------------------------------------------------- checkpoints -- */

static int runs;

/* exp(x * w) with random noise; its gradient needs x * w again. */
static core_status noisy(void *context, core_tensor *const *inputs, size_t n,
                         core_tensor **outputs, size_t *noutputs)
{
    core_tensor *noise = NULL, *xw = NULL, *e = NULL;
    core_status status;

    (void)context;
    (void)n;
    runs++;
    *noutputs = 1;
    status = core_rand_like(inputs[0], CORE_DTYPE_NONE, NULL, -1, &noise);
    if (status == CORE_OK)
        status = core_mul(inputs[0], inputs[1], &xw);
    if (status == CORE_OK)
        status = core_exp(xw, &e);
    if (status == CORE_OK)
        status = core_mul(e, noise, &outputs[0]);
    core_tensor_release(e);
    core_tensor_release(xw);
    core_tensor_release(noise);
    return status;
}

static core_tensor *checkpointed(core_tensor_function function, void *context,
                                 core_tensor *a, core_tensor *b)
{
    core_checkpoint_info info = {.struct_size = sizeof info,
                                 .function = function,
                                 .context = context,
                                 .drop = count_drop};
    core_tensor *inputs[] = {a, b}, *output;
    size_t count = 1;

    OK(core_checkpoint(&info, inputs, 2, &output, &count));
    ck_assert_uint_eq(count, 1);
    return keep(output);
}

START_TEST(checkpoint_recomputes_with_same_random_numbers)
{
    core_tensor *x = leaf(VECTOR(3, .1, .2, .3)), *w = leaf(VECTOR(3, 1, 2, 3));
    core_tensor *plain, *inputs[2], *y;
    double want_x[3], want_w[3], have;
    uint64_t seed, before, after;
    size_t one = 1;

    inputs[0] = x;
    inputs[1] = w;
    core_seed(7);
    OK(noisy(NULL, inputs, 2, &plain, &one));
    backward(sum(keep(plain)));
    OK(core_tensor_read(core_tensor_grad(x), want_x, sizeof want_x));
    OK(core_tensor_read(core_tensor_grad(w), want_w, sizeof want_w));
    OK(core_tensor_set_grad(x, NULL));
    OK(core_tensor_set_grad(w, NULL));

    core_seed(7);
    runs = dropped = 0;
    y = sum(checkpointed(noisy, NULL, x, w));
    ck_assert_int_eq(runs, 1);
    core_generator_state(NULL, &seed, &before);
    core_seed(99); /* later draws must not matter */
    core_generator_state(NULL, &seed, &before);
    backward(y);
    core_generator_state(NULL, &seed, &after);
    ck_assert_uint_eq(before, after);
    ck_assert_uint_eq(seed, 99);
    ck_assert_int_eq(runs, 2);
    holds(core_tensor_grad(x), 3, want_x);
    holds(core_tensor_grad(w), 3, want_w);
    drop_all();
    ck_assert_int_eq(dropped, 1);
    (void)have;
}
END_TEST

static core_status cube(void *context, core_tensor *const *inputs, size_t n,
                        core_tensor **outputs, size_t *noutputs)
{
    core_tensor *square = NULL;
    core_status status = core_mul(inputs[0], inputs[0], &square);

    (void)context;
    (void)n;
    runs++;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_mul(square, inputs[0], &outputs[0]);
    core_tensor_release(square);
    return status;
}

/* Two cubes, each in a checkpoint inside this one. */
static core_status nested(void *context, core_tensor *const *inputs, size_t n,
                          core_tensor **outputs, size_t *noutputs)
{
    core_checkpoint_info info = {.struct_size = sizeof info, .function = cube};
    core_tensor *once = NULL;
    core_status status;
    size_t one = 1;

    (void)context;
    *noutputs = 1;
    status = core_checkpoint(&info, inputs, n, &once, &one);
    if (status == CORE_OK)
        status = core_checkpoint(&info, &once, 1, &outputs[0], &one);
    core_tensor_release(once);
    return status;
}

START_TEST(checkpoints_may_be_nested)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *y;

    runs = dropped = 0;
    y = sum(checkpointed(nested, NULL, x, NULL));
    ck_assert_int_eq(runs, 2);
    backward(y);
    HOLDS(core_tensor_grad(x), 2, 9, 9 * 256); /* x^9 */
    ck_assert_int_ge(runs, 4);
    drop_all();
    ck_assert_int_eq(dropped, 1);
}
END_TEST

START_TEST(checkpoint_supports_higher_derivatives_and_retain_graph)
{
    core_tensor *x = leaf(VECTOR(1, 2)), *y, *first, *second;

    y = checkpointed(cube, NULL, x, NULL);
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 1, 12);
    OK(core_grad(&first, 1, NULL, &x, 1, CORE_RETAIN_GRAPH, &second));
    HOLDS(keep(second), 1, 12);
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_RETAIN_GRAPH, &first));
    HOLDS(keep(first), 1, 12);
    backward(y);
    HOLDS(core_tensor_grad(x), 1, 12);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD,
          "CORE_RETAIN_GRAPH");
}
END_TEST

START_TEST(checkpoint_input_that_joins_its_graph_is_freed)
{
    core_tensor *x = leaf(VECTOR(1, 2)), *plain = VECTOR(1, 3), *y;

    dropped = 0;
    y = checkpointed(noisy, NULL, plain, mul(x, x));
    OK(core_mul_(plain, y)); /* the input joins the graph of its result */
    drop_all();
    ck_assert_int_eq(dropped, 1);
}
END_TEST

/* On its second run, saves one tensor less, another one, or fails. */
static core_status inconsistent(void *context, core_tensor *const *inputs,
                                size_t n, core_tensor **outputs,
                                size_t *noutputs)
{
    int which = *(int *)context;

    (void)n;
    *noutputs = 1;
    if (runs++ == 0)
        return core_mul(inputs[0], inputs[0], &outputs[0]);
    if (which == 0)
        return core_neg(inputs[0], &outputs[0]);
    if (which == 1)
        return core_error_set(CORE_ERROR_REFUSED, "not again");
    {
        core_tensor *longer;
        core_status status =
            core_cat((core_tensor *[]){inputs[0], inputs[0]}, 2, 0, &longer);

        if (status == CORE_OK)
            status = core_mul(longer, longer, &outputs[0]);
        core_tensor_release(longer);
        return status;
    }
}

START_TEST(checkpoint_that_recomputes_differently_is_an_error)
{
    const char *const says[] = {"saved 2 tensors", "not again", "[4]"};

    for (int which = 0; which < 3; which++) {
        core_tensor *x = leaf(VECTOR(2, 1, 2)), *y;

        runs = 0;
        y = sum(checkpointed(inconsistent, &which, x, NULL));
        ck_assert_int_ne(core_backward(&y, 1, NULL, 0), CORE_OK);
        ck_assert_msg(strstr(core_error_message(), "mul.Tensor") &&
                          strstr(core_error_message(), says[which]),
                      "%s", core_error_message());
        /* The thread keeps no state of the failure. */
        y = mul(x, x);
        backward(sum(y));
        HOLDS(core_tensor_grad(x), 2, 2, 4);
    }
}
END_TEST

START_TEST(checkpoint_input_changed_in_place_is_an_error)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *a = mul(x, x), *y;

    y = sum(checkpointed(cube, NULL, a, NULL));
    OK(core_add_(a, a, core_int(1)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_VERSION, "core_checkpoint",
          "[2]");
}
END_TEST

START_TEST(checkpoint_without_grad_mode_is_a_plain_call)
{
    core_tensor *x = leaf(VECTOR(1, 2)), *y;
    bool mode = core_grad_mode_set(false);

    dropped = runs = 0;
    y = checkpointed(cube, NULL, x, NULL);
    core_grad_mode_set(mode);
    HOLDS(y, 1, 8);
    ck_assert(!core_tensor_requires_grad(y));
    ck_assert_int_eq(dropped, 1);
}
END_TEST

START_TEST(checkpoint_refuses_invalid_arguments)
{
    core_checkpoint_info info = {.struct_size = sizeof info,
                                 .drop = count_drop};
    core_tensor *x = leaf(VECTOR(1, 2)), *y;
    size_t one = 1;

    dropped = 0;
    FAILS(core_checkpoint(NULL, &x, 1, &y, &one), CORE_ERROR_INVALID_ARGUMENT,
          "info");
    FAILS(core_checkpoint(&info, &x, 1, &y, &one), CORE_ERROR_INVALID_ARGUMENT,
          "function");
    info.function = cube;
    one = 1;
    FAILS(core_checkpoint(&info, NULL, 1, &y, &one),
          CORE_ERROR_INVALID_ARGUMENT, "inputs");
    FAILS(core_checkpoint(&info, &x, 1, &y, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "noutputs");
    info.flags = 1;
    one = 1;
    FAILS(core_checkpoint(&info, &x, 1, &y, &one), CORE_ERROR_INVALID_ARGUMENT,
          "flags");
    info.flags = 0; /* *noutputs is 0 now */
    FAILS(core_checkpoint(&info, &x, 1, NULL, &one),
          CORE_ERROR_INVALID_ARGUMENT, "noutputs");
    ck_assert_int_eq(dropped, 5);
}
END_TEST

/* The context selects the function's mistake. */
enum { NO_OUTPUTS, TOO_MANY, NO_TENSOR, NO_MESSAGE, FINE };

static core_status careless(void *context, core_tensor *const *inputs,
                            size_t ninputs, core_tensor **outputs,
                            size_t *noutputs)
{
    int how = *(int *)context;

    (void)ninputs;
    *noutputs = how == NO_OUTPUTS ? 0 : how == TOO_MANY ? 5 : 1;
    if (how == NO_OUTPUTS || how == NO_TENSOR)
        return CORE_OK;
    if (how == NO_MESSAGE)
        return CORE_ERROR_CANCELLED;
    return core_exp(inputs[0], &outputs[0]);
}

START_TEST(checkpoint_refuses_invalid_function_results)
{
    static const char *const texts[] = {
        "no outputs", "5 outputs", "left output 0 NULL", "without a message"};
    int how;
    core_checkpoint_info info = {
        .struct_size = sizeof info, .function = careless, .context = &how};
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *y, *loss;
    size_t count;

    for (int recorded = 0; recorded < 2; recorded++) {
        bool before = core_grad_mode_set(recorded);

        for (how = NO_OUTPUTS; how < FINE; how++) {
            count = 1;
            FAILS(core_checkpoint(&info, &x, 1, &y, &count),
                  how == NO_MESSAGE ? CORE_ERROR_CANCELLED
                                    : CORE_ERROR_INVALID_ARGUMENT,
                  texts[how]);
            ck_assert_ptr_null(y);
            ck_assert_uint_eq(count, 0);
        }
        core_grad_mode_set(before);
    }
    count = 1;
    OK(core_checkpoint(&info, &x, 1, &y, &count));
    loss = sum(keep(y));
    how = NO_MESSAGE;
    FAILS(core_backward(&loss, 1, NULL, 0), CORE_ERROR_CANCELLED,
          "without a message");
}
END_TEST

SUITE("autograd/autograd_saved", saved_tensors_can_be_offloaded_to_the_host,
      unpacked_tensors_keep_their_history, saved_tensors_in_lists_are_packed,
      only_innermost_saved_hooks_are_called,
      pack_and_unpack_errors_reach_the_caller,
      saved_hooks_require_pack_and_unpack,
      checkpoint_recomputes_with_same_random_numbers, checkpoints_may_be_nested,
      checkpoint_supports_higher_derivatives_and_retain_graph,
      checkpoint_input_that_joins_its_graph_is_freed,
      checkpoint_that_recomputes_differently_is_an_error,
      checkpoint_input_changed_in_place_is_an_error,
      checkpoint_without_grad_mode_is_a_plain_call,
      checkpoint_refuses_invalid_arguments,
      checkpoint_refuses_invalid_function_results)
