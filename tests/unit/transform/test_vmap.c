/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_vmap: options, errors, nesting, random numbers, autograd on both
 * sides. */

#include "support/autograd.h"

#include <libcore/control_flow.h>
#include <libcore/function.h>
#include <libcore/functional.h>
#include <libcore/random.h>
#include <libcore/transform.h>

/* x * w */
static core_status product(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_mul(inputs[0], inputs[1], &outputs[0]);
}

static core_vmap_options options_of(const int64_t *in, const int64_t *out)
{
    return (core_vmap_options){.struct_size = sizeof(core_vmap_options),
                               .in_dims = in,
                               .out_dims = out};
}

/* One output, kept. */
static core_tensor *vmapped(core_tensor_function function, void *user,
                            const core_vmap_options *options,
                            core_tensor *const *inputs, size_t ninputs)
{
    core_tensor *out;

    OK(core_vmap(function, user, options, inputs, ninputs, &out, 1));
    return keep(out);
}

/* ---------------------------------------------------------------- options -- */

START_TEST(samples_are_the_first_dimension_without_options)
{
    core_tensor *inputs[] = {MATRIX(2, 3, 1, 2, 3, 4, 5, 6), VECTOR(2, 10, 20)};
    core_tensor *out = vmapped(product, NULL, NULL, inputs, 2);

    ck_assert_uint_eq(core_tensor_ndim(out), 2);
    HOLDS(out, 6, 10, 20, 30, 80, 100, 120);
}
END_TEST

START_TEST(dimensions_are_chosen_by_options)
{
    core_tensor *inputs[] = {MATRIX(2, 3, 1, 2, 3, 4, 5, 6), VECTOR(2, 10, 20)};
    const int64_t in[] = {-1, CORE_VMAP_NOT_MAPPED}, out = -1;
    core_vmap_options options = options_of(in, &out);

    HOLDS(vmapped(product, NULL, &options, inputs, 2), 6, 10, 20, 30, 80, 100,
          120);
    options.out_dims = NULL;
    HOLDS(vmapped(product, NULL, &options, inputs, 2), 6, 10, 80, 20, 100, 30,
          120);
}
END_TEST

START_TEST(chunks_give_the_same_result)
{
    core_tensor *inputs[] = {MATRIX(3, 2, 1, 2, 3, 4, 5, 6),
                             VECTOR(3, 10, 20, 30)};
    core_vmap_options options = options_of(NULL, NULL);

    options.chunk = 2;
    HOLDS(vmapped(product, NULL, &options, inputs, 2), 6, 10, 20, 60, 80, 150,
          180);
}
END_TEST

static core_status second_input(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_neg(inputs[1], &outputs[0]);
}

START_TEST(output_that_is_not_mapped_is_repeated_or_returned_once)
{
    core_tensor *inputs[] = {VECTOR(2, 1, 2), VECTOR(2, 3, 4)};
    const int64_t in[] = {0, CORE_VMAP_NOT_MAPPED}, out = CORE_VMAP_NOT_MAPPED;
    core_vmap_options options = options_of(in, NULL);
    core_tensor *result;

    HOLDS(vmapped(second_input, NULL, &options, inputs, 2), 4, -3, -4, -3, -4);
    options.out_dims = &out;
    HOLDS(vmapped(second_input, NULL, &options, inputs, 2), 2, -3, -4);
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &result, 1),
          CORE_ERROR_INVALID_ARGUMENT, "out_dims[0]", "depends on the sample");
    ck_assert_ptr_null(result);
}
END_TEST

/* ----------------------------------------------------------------- errors -- */

static core_status fails(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_tensor *out;

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    OK(core_neg(inputs[0], &outputs[0]));
    return core_select(inputs[0], 0, 7, &out);
}

static core_status leaves_null(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    (void)context;
    (void)inputs;
    (void)ninputs;
    (void)outputs;
    *noutputs = 1;
    return CORE_OK;
}

START_TEST(bad_inputs_are_refused)
{
    core_tensor *inputs[] = {VECTOR(2, 1, 2), VECTOR(3, 3, 4, 5)};
    core_tensor *empty = CALL(zeros, (int64_t[]){0}, 1, CORE_F64, NULL);
    core_tensor *none[] = {inputs[0], NULL}, *out;
    const int64_t out_of_range[] = {0, 1}, low[] = {-2, 0};
    const int64_t not_mapped[] = {CORE_VMAP_NOT_MAPPED, CORE_VMAP_NOT_MAPPED};
    const int64_t far = 3, one[] = {0, CORE_VMAP_NOT_MAPPED};
    core_vmap_options options;

    FAILS(core_vmap(product, NULL, NULL, inputs, 2, &out, 1), CORE_ERROR_SHAPE,
          "input 1 has 3 samples", "2");
    options = options_of(out_of_range, NULL);
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INDEX, "in_dims[1] is 1", "1 dimensions");
    options = options_of(low, NULL);
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INDEX, "in_dims[0] is -2");
    options = options_of(not_mapped, NULL);
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "no input is mapped");
    FAILS(core_vmap(product, NULL, NULL, NULL, 0, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "no input is mapped");
    FAILS(core_vmap(product, NULL, NULL, none, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "input 1 is NULL");
    FAILS(core_vmap(product, NULL, NULL, &empty, 1, &out, 1), CORE_ERROR_SHAPE,
          "0 samples");
    FAILS(core_vmap(NULL, NULL, NULL, inputs, 1, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "function");
    FAILS(core_vmap(product, NULL, NULL, inputs, 1, &out, 0),
          CORE_ERROR_INVALID_ARGUMENT, "outputs");
    options = options_of(one, &far);
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INDEX, "out_dims[0] is 3");
    options.struct_size = 4;
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "struct_size");
    options = options_of(one, NULL);
    options.randomness = 3;
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "randomness is 3");
    options = options_of(one, NULL);
    options.chunk = -1;
    FAILS(core_vmap(product, NULL, &options, inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "chunk is -1");
}
END_TEST

START_TEST(failing_functions_leave_nothing_behind)
{
    core_tensor *input = VECTOR(2, 1, 2), *out;

    FAILS(core_vmap(leaves_null, NULL, NULL, &input, 1, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "core_vmap", "output 0 NULL");
    ck_assert_ptr_null(out);
    FAILS(core_vmap(fails, NULL, NULL, &input, 1, &out, 1), CORE_ERROR_INDEX,
          "core_vmap");
    ck_assert_ptr_null(out);
    ck_assert_uint_eq(core_tensor_references(input), 1);
    HOLDS(CALL(neg, input), 2, -1, -2);
}
END_TEST

static core_status escapes(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    (void)ninputs;
    *noutputs = 1;
    OK(core_neg(inputs[0], (core_tensor **)context));
    outputs[0] = core_tensor_retain(inputs[0]);
    return CORE_OK;
}

START_TEST(tensor_that_outlives_the_call_is_refused)
{
    core_tensor *input = MATRIX(2, 1, 1, 2), *escaped = NULL, *out;
    double value;

    HOLDS(vmapped(escapes, &escaped, NULL, &input, 1), 2, 1, 2);
    ck_assert_uint_eq(core_tensor_ndim(escaped), 1);
    FAILS(core_neg(escaped, &out), CORE_ERROR_INVALID_ARGUMENT, "neg",
          "core_vmap");
    FAILS(core_tensor_read(escaped, &value, sizeof value),
          CORE_ERROR_UNSUPPORTED, "core_tensor_read", "core_vmap");
    core_tensor_release(escaped);
}
END_TEST

static core_status refused(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_tensor *out = NULL;
    core_scalar number;

    (void)ninputs;
    *noutputs = 1;
    FAILS(core_nonzero(inputs[0], &out), CORE_ERROR_UNSUPPORTED, "nonzero",
          "core_vmap");
    FAILS(core_tensor_item(inputs[0], &number), CORE_ERROR_UNSUPPORTED,
          "core_vmap");
    FAILS(core_item(inputs[0], &number), CORE_ERROR_UNSUPPORTED, "item",
          "core_vmap");
    FAILS(core_add_(context, inputs[0], core_int(1)), CORE_ERROR_UNSUPPORTED,
          "add_.Tensor", "not mapped");
    OK(core_add_(inputs[0], context, core_int(1)));
    outputs[0] = core_tensor_retain(inputs[0]);
    return CORE_OK;
}

START_TEST(calls_that_cannot_be_batched_are_refused_by_name)
{
    core_tensor *input = VECTOR(2, 1, 2);

    HOLDS(vmapped(refused, SCALAR(10), NULL, &input, 1), 2, 11, 12);
}
END_TEST

/* ---------------------------------------------------------------- nesting -- */

/* vmap over w of x * w */
static core_status rows_of_outer(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    const int64_t in[] = {CORE_VMAP_NOT_MAPPED, 0};
    core_vmap_options options = options_of(in, NULL);

    (void)context;
    *noutputs = 1;
    return core_vmap(product, NULL, &options, inputs, ninputs, outputs, 1);
}

START_TEST(calls_nest)
{
    core_tensor *inputs[] = {VECTOR(2, 1, 2), VECTOR(3, 10, 20, 30)};
    const int64_t in[] = {0, CORE_VMAP_NOT_MAPPED};
    core_vmap_options options = options_of(in, NULL);

    HOLDS(vmapped(rows_of_outer, NULL, &options, inputs, 2), 6, 10, 20, 30, 20,
          40, 60);
}
END_TEST

/* ----------------------------------------------------------------- random -- */

static core_status noise(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 2;
    CORE_TRY(core_dropout(inputs[0], .5, true, &outputs[0]));
    return core_rand((int64_t[]){3}, 1, NULL, CORE_F64, NULL, &outputs[1]);
}

START_TEST(random_numbers_are_refused_the_same_or_different)
{
    core_tensor *input = CALL(ones, (int64_t[]){4, 64}, 2, CORE_F64, NULL);
    core_vmap_options options = options_of(NULL, NULL);
    core_tensor *outs[2], *one, *other;

    FAILS(core_vmap(noise, NULL, &options, &input, 1, outs, 2),
          CORE_ERROR_REFUSED, "random", "randomness");
    for (uint32_t kind = CORE_VMAP_RANDOM_SAME;
         kind <= CORE_VMAP_RANDOM_DIFFERENT; kind++) {
        options.randomness = kind;
        for (options.chunk = 0; options.chunk < 4; options.chunk += 3) {
            OK(core_vmap(noise, NULL, &options, &input, 1, outs, 2));
            for (int i = 0; i < 2; i++) {
                bool same;

                one = CALL(select, keep(outs[i]), 0, 0);
                other = CALL(select, outs[i], 0, 3);
                OK(core_equal(one, other, &same));
                ck_assert_int_eq(same, kind == CORE_VMAP_RANDOM_SAME);
            }
        }
    }
}
END_TEST

/* --------------------------------------------------------------- autograd -- */

/* sum(w x^2) and its gradient by w, by core_vjp */
static core_status squares(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_tensor *x = NULL, *y = NULL;
    core_status status = core_mul(inputs[1], inputs[1], &x);

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_mul(x, inputs[0], &y);
    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &outputs[0]);
    core_tensor_release(x);
    core_tensor_release(y);
    return status;
}

static core_status gradients(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    core_derivative d = {.struct_size = sizeof d,
                         .flags = context ? CORE_CREATE_GRAPH : 0,
                         .function = squares,
                         .inputs = inputs,
                         .ninputs = ninputs};

    *noutputs = 2;
    return core_vjp(&d, NULL, NULL, NULL, outputs);
}

START_TEST(vjp_inside_gives_the_gradients_of_each_sample)
{
    core_tensor *inputs[] = {VECTOR(2, 3, 5), MATRIX(2, 2, 1, 2, 3, 4)};
    const int64_t in[] = {CORE_VMAP_NOT_MAPPED, 0};
    core_vmap_options options = options_of(in, NULL);
    core_tensor *outs[2];

    OK(core_vmap(gradients, NULL, &options, inputs, 2, outs, 2));
    HOLDS(keep(outs[0]), 4, 1, 4, 9, 16);
    HOLDS(keep(outs[1]), 4, 6, 20, 18, 40);
}
END_TEST

START_TEST(gradients_pass_through_the_call)
{
    core_tensor *inputs[] = {leaf(VECTOR(2, 3, 5)),
                             leaf(MATRIX(2, 2, 1, 2, 3, 4))};
    const int64_t in[] = {CORE_VMAP_NOT_MAPPED, 0};
    core_vmap_options options = options_of(in, NULL);
    core_tensor *outs[2];

    backward(sum(vmapped(squares, NULL, &options, inputs, 2)));
    HOLDS(core_tensor_grad(inputs[0]), 2, 10, 20);
    HOLDS(core_tensor_grad(inputs[1]), 4, 6, 20, 18, 40);
    /* Of derivatives: d sum(x^2) / dx and d sum(2 w x) / dw, added. */
    core_tensor_set_grad(inputs[0], NULL);
    core_tensor_set_grad(inputs[1], NULL);
    OK(core_vmap(gradients, &options, &options, inputs, 2, outs, 2));
    backward(add(sum(keep(outs[0])), sum(keep(outs[1]))));
    HOLDS(core_tensor_grad(inputs[0]), 2, 8, 12);
    HOLDS(core_tensor_grad(inputs[1]), 4, 2 + 6, 4 + 10, 6 + 6, 8 + 10);
}
END_TEST

static core_status without_grad(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    bool before = core_grad_mode_set(false);
    core_status status = squares(context, inputs, ninputs, outputs, noutputs);

    core_grad_mode_set(before);
    return status;
}

START_TEST(nothing_is_recorded_with_grad_mode_off)
{
    core_tensor *inputs[] = {leaf(MATRIX(2, 1, 3, 5)), MATRIX(2, 1, 1, 2)};

    ck_assert(!core_tensor_requires_grad(
        vmapped(without_grad, NULL, NULL, inputs, 2)));
    ck_assert(
        core_tensor_requires_grad(vmapped(squares, NULL, NULL, inputs, 2)));
}
END_TEST

/* The loss of a sample is w x^2; x requires grad inside, w outside. */
static core_status backward_inside(void *context, core_tensor *const *inputs,
                                   size_t ninputs, core_tensor **outputs,
                                   size_t *noutputs)
{
    core_tensor *both[2] = {context, NULL}, *loss = NULL;
    core_status status = core_detach(inputs[0], &both[1]);
    size_t one = 1;

    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(both[1], true);
    if (status == CORE_OK)
        status = squares(NULL, both, 2, &loss, &one);
    if (status == CORE_OK)
        status = core_backward(&loss, 1, NULL, 0);
    if (status == CORE_OK)
        outputs[0] = core_tensor_retain(core_tensor_grad(both[1]));
    core_tensor_release(both[1]);
    core_tensor_release(loss);
    return status;
}

START_TEST(backward_inside_serves_graphs_on_both_sides)
{
    core_tensor *w = leaf(VECTOR(2, 3, 5)), *x = MATRIX(2, 2, 1, 2, 3, 4);

    HOLDS(vmapped(backward_inside, w, NULL, &x, 1), 4, 6, 20, 18, 40);
    HOLDS(core_tensor_grad(w), 2, 1 + 9, 4 + 16);
}
END_TEST

/* x^2 as a program's function */
static core_status square(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)noutputs;
    return core_mul(inputs[0], inputs[0], &outputs[0]);
}

static core_status save_input(core_function_context *function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              core_tensor *const *outputs, size_t noutputs)
{
    (void)context;
    (void)outputs;
    (void)noutputs;
    return core_context_save(function, inputs, ninputs);
}

/* context: the backward reads elements. */
static core_status square_backward(core_node *node, void *context,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **out_gradients,
                                   size_t ngradients)
{
    core_tensor *saved = NULL, *twice = NULL;
    core_status status = core_node_saved(node, 0, &saved);
    double values[2];

    (void)ngrads;
    (void)ngradients;
    if (status == CORE_OK && context)
        status = core_tensor_read(grads[0], values, sizeof values);
    if (status == CORE_OK)
        status = core_mul_scalar(saved, core_float(2), &twice);
    if (status == CORE_OK)
        status = core_mul(twice, grads[0], &out_gradients[0]);
    core_tensor_release(saved);
    core_tensor_release(twice);
    return status;
}

static core_status own_square(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    const core_custom_function steps = {.struct_size = sizeof steps,
                                        .name = "own_square",
                                        .context = context,
                                        .forward = square,
                                        .setup = save_input,
                                        .backward = square_backward};

    *noutputs = 1;
    return core_function_apply(&steps, inputs, ninputs, outputs, 1);
}

static core_status gradient_of_own(void *context, core_tensor *const *inputs,
                                   size_t ninputs, core_tensor **outputs,
                                   size_t *noutputs)
{
    core_derivative d = {.struct_size = sizeof d,
                         .function = own_square,
                         .context = context,
                         .inputs = inputs,
                         .ninputs = ninputs};

    *noutputs = 1;
    return core_vjp(&d, &inputs[0], NULL, NULL, outputs);
}

START_TEST(functions_of_the_program_work_inside)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *out;

    HOLDS(vmapped(gradient_of_own, NULL, NULL, &x, 1), 4, 2, 8, 18, 32);
    HOLDS(vmapped(own_square, NULL, NULL, &x, 1), 4, 1, 4, 9, 16);
    x = leaf(x);
    FAILS(core_vmap(own_square, NULL, NULL, &x, 1, &out, 1),
          CORE_ERROR_UNSUPPORTED, "own_square", "outside of core_vmap");
}
END_TEST

START_TEST(jacobian_of_what_cannot_be_batched_is_computed_by_rows)
{
    core_tensor *x = VECTOR(2, 3, 5), *jacobian;
    core_derivative d = {.struct_size = sizeof d,
                         .function = own_square,
                         .inputs = &x,
                         .ninputs = 1};
    size_t one = 1;

    for (int reads = 0; reads < 2; reads++) {
        d.context = reads ? &d : NULL;
        one = 1;
        OK(core_jacobian(&d, &jacobian, &one));
        HOLDS(keep(jacobian), 4, 6, 0, 0, 10);
    }
}
END_TEST

/* In-place changes, views and layouts of one sample. */
static core_status changes(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_tensor *made =
        CALL(new_zeros, inputs[0], (int64_t[]){2, 2}, 2, CORE_DTYPE_NONE, NULL);
    core_tensor *row = CALL(select, made, 0, 1);

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    OK(core_copy_(row, inputs[0], false));
    OK(core_mul_scalar_(row, core_int(10)));
    OK(core_transpose_(made, 0, 1));
    ck_assert_uint_eq(core_tensor_version(made), core_tensor_version(row));
    outputs[0] = core_tensor_retain(made);
    return CORE_OK;
}

START_TEST(tensors_made_inside_are_changed_in_place)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4);

    HOLDS(vmapped(changes, NULL, NULL, &x, 1), 8, 0, 10, 0, 20, 0, 30, 0, 40);
}
END_TEST

/* Normalises [N, 1] and updates the statistics in place. */
static core_status normalise(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_batch_norm(inputs[0], NULL, NULL, inputs[1], inputs[2], true,
                           .5, 0, &outputs[0]);
}

START_TEST(statistics_of_each_sample_are_updated)
{
    const int64_t sizes[] = {2, 2, 1};
    core_tensor *inputs[] = {
        typed(CORE_F64, 3, sizes, (double[]){1, 3, 10, 30}), MATRIX(2, 1, 0, 0),
        MATRIX(2, 1, 0, 0)};

    HOLDS(vmapped(normalise, NULL, NULL, inputs, 3), 4, -1, 1, -1, 1);
    HOLDS(inputs[1], 2, 1, 10);
    HOLDS(inputs[2], 2, 1, 100);
}
END_TEST

/* What was saved is changed before the backward. */
static core_status stale(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_tensor *x = CALL(clone, inputs[0], -1), *y, *loss;

    (void)context;
    (void)ninputs;
    leaf(x);
    y = mul(x, CALL(exp, x));
    loss = sum(mul(y, y));
    OK(core_mul_scalar_(y, core_int(2)));
    *noutputs = 1;
    outputs[0] = core_tensor_retain(y);
    return core_backward(&loss, 1, NULL, 0);
}

START_TEST(change_of_a_saved_tensor_is_noticed)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *out;

    FAILS(core_vmap(stale, NULL, NULL, &x, 1, &out, 1), CORE_ERROR_VERSION,
          "version");
}
END_TEST

/* ------------------------------------------------------ branches and loops */

static core_status double_it(void *context, core_tensor *const *x, size_t n,
                             core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    return core_mul_scalar(x[0], core_float(2), &out[0]);
}

static core_status square_it(void *context, core_tensor *const *x, size_t n,
                             core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    return core_mul(x[0], x[0], &out[0]);
}

/* Twice a sample, or its square.  context: the predicate for all samples;
 * NULL: whether the sum of the sample is positive. */
static core_status branch_of_sample(void *context, core_tensor *const *x,
                                    size_t n, core_tensor **out,
                                    size_t *noutputs)
{
    core_tensor *sum = NULL;
    core_tensor *predicate = context ? core_tensor_retain(context) : NULL;
    core_status status = CORE_OK;

    if (!predicate)
        status = core_sum(x[0], CORE_DTYPE_NONE, &sum);
    if (!predicate && status == CORE_OK)
        status = core_gt_scalar(sum, core_int(0), &predicate);
    if (status == CORE_OK)
        status = core_cond(predicate, double_it, square_it, NULL, x, n, out, 1);
    core_tensor_release(sum);
    core_tensor_release(predicate);
    *noutputs = 1;
    return status;
}

static core_status sum_of_branch(void *context, core_tensor *const *x, size_t n,
                                 core_tensor **out, size_t *noutputs)
{
    core_tensor *y = NULL;
    core_status status = branch_of_sample(context, x, n, &y, noutputs);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(y);
    return status;
}

static core_status gradient_of_branch(void *context, core_tensor *const *x,
                                      size_t n, core_tensor **out,
                                      size_t *noutputs)
{
    const core_derivative of = {.struct_size = sizeof of,
                                .function = sum_of_branch,
                                .context = context,
                                .inputs = x,
                                .ninputs = n};

    *noutputs = 1;
    return core_vjp(&of, NULL, NULL, NULL, out);
}

START_TEST(samples_take_branches)
{
    core_tensor *x = MATRIX(2, 2, 3, -1, -2, 1), *yes;

    OK(core_ones(NULL, 0, CORE_BOOL, NULL, &yes));
    HOLDS(vmapped(branch_of_sample, yes, NULL, &x, 1), 4, 6, -2, -4, 2);
    HOLDS(vmapped(gradient_of_branch, yes, NULL, &x, 1), 4, 2, 2, 2, 2);
    /* Each its own. */
    HOLDS(vmapped(branch_of_sample, NULL, NULL, &x, 1), 4, 6, -2, 4, 1);
    HOLDS(vmapped(gradient_of_branch, NULL, NULL, &x, 1), 4, 2, 2, -4, 2);
    core_tensor_release(yes);
}
END_TEST

/* x, count: x squared, one more.  context: the number of turns. */
static core_status square_and_count(void *context, core_tensor *const *x,
                                    size_t n, core_tensor **out,
                                    size_t *noutputs)
{
    core_status status = square_it(context, x, n, out, noutputs);

    *noutputs = 2;
    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    return status;
}

static core_status count_is_below(void *context, core_tensor *const *x,
                                  size_t n, core_tensor **out, size_t *noutputs)
{
    (void)n;
    *noutputs = 1;
    return core_lt_scalar(x[1], core_int(*(int64_t *)context), &out[0]);
}

static core_status loop_of_sample(void *context, core_tensor *const *x,
                                  size_t n, core_tensor **out, size_t *noutputs)
{
    core_tensor *end[2] = {NULL};
    core_status status =
        core_while(count_is_below, square_and_count, context, x, n, end);

    core_tensor_release(end[1]);
    out[0] = end[0];
    *noutputs = 1;
    return status;
}

START_TEST(samples_have_the_same_number_of_turns)
{
    const int64_t in[] = {0, CORE_VMAP_NOT_MAPPED};
    core_vmap_options options = options_of(in, NULL);
    core_tensor *x[] = {VECTOR(3, 1, 2, 3), NULL}, *out;
    int64_t turns = 2;

    OK(core_zeros(NULL, 0, CORE_F64, NULL, &x[1]));
    HOLDS(vmapped(loop_of_sample, &turns, &options, x, 2), 3, 1, 16, 81);
    core_tensor_release(x[1]);
    x[1] = VECTOR(3, 0, 1, 2);
    FAILS(core_vmap(loop_of_sample, &turns, NULL, x, 2, &out, 1),
          CORE_ERROR_UNSUPPORTED,
          "core_while: the output of condition differs between the samples of "
          "core_vmap");
}
END_TEST

SUITE("transform/vmap", samples_are_the_first_dimension_without_options,
      dimensions_are_chosen_by_options, chunks_give_the_same_result,
      output_that_is_not_mapped_is_repeated_or_returned_once,
      bad_inputs_are_refused, failing_functions_leave_nothing_behind,
      tensor_that_outlives_the_call_is_refused,
      calls_that_cannot_be_batched_are_refused_by_name, calls_nest,
      random_numbers_are_refused_the_same_or_different,
      vjp_inside_gives_the_gradients_of_each_sample,
      gradients_pass_through_the_call, nothing_is_recorded_with_grad_mode_off,
      backward_inside_serves_graphs_on_both_sides,
      functions_of_the_program_work_inside,
      jacobian_of_what_cannot_be_batched_is_computed_by_rows,
      tensors_made_inside_are_changed_in_place,
      statistics_of_each_sample_are_updated,
      change_of_a_saved_tensor_is_noticed, samples_take_branches,
      samples_have_the_same_number_of_turns)
