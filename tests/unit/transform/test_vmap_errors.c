/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_vmap: operators that check elements or change lists, checkpoints, what is
 * logged, and allocations that fail. */

#include "support/autograd.h"

#include "base/memory.h"

#include <libcore/dispatch.h>
#include <libcore/functional.h>
#include <libcore/saved.h>
#include <libcore/settings.h>
#include <libcore/transform.h>

static core_tensor *indices(size_t ndim, const int64_t *sizes,
                            const double *values)
{
    return typed(CORE_I64, ndim, sizes, values);
}

/* One output, kept. */
static core_tensor *vmapped(core_tensor_function function, void *user,
                            core_tensor *const *inputs, size_t ninputs)
{
    core_tensor *out;

    OK(core_vmap(function, user, NULL, inputs, ninputs, &out, 1));
    return keep(out);
}

/* --------------------------------------------------------------- elements -- */

static core_status cross_entropy(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_binary_cross_entropy(inputs[0], inputs[1], NULL,
                                     CORE_REDUCTION_MEAN, &outputs[0]);
}

START_TEST(probabilities_of_every_sample_are_checked)
{
    core_tensor *inputs[] = {MATRIX(2, 2, .1, .2, .3, 1.5),
                             MATRIX(2, 2, 0, 1, 0, 1)};
    core_tensor *out;

    FAILS(core_vmap(cross_entropy, NULL, NULL, inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "binary_cross_entropy", "0.1 to 1.5",
          "between 0 and 1");
    inputs[0] = MATRIX(2, 1, .5, .5);
    inputs[1] = MATRIX(2, 1, 0, 1);
    HOLDS(vmapped(cross_entropy, NULL, inputs, 2), 2, 0.69314718, 0.69314718);
}
END_TEST

static core_status take(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_take(inputs[0], inputs[1], &outputs[0]);
}

START_TEST(take_counts_negative_indices_from_the_end_of_a_sample)
{
    const int64_t sizes[] = {2, 2};
    core_tensor *inputs[] = {MATRIX(2, 3, 1, 2, 3, 4, 5, 6),
                             indices(2, sizes, (double[]){-1, 0, 2, -3})};
    core_tensor *out;

    HOLDS(vmapped(take, NULL, inputs, 2), 4, 3, 1, 6, 4);
    inputs[1] = indices(2, sizes, (double[]){0, 0, 0, -4});
    FAILS(core_vmap(take, NULL, NULL, inputs, 2, &out, 1), CORE_ERROR_INDEX,
          "take", "out of range");
}
END_TEST

/* Into a table of two rows. */
static core_status embedding_gradient(void *context, core_tensor *const *inputs,
                                      size_t ninputs, core_tensor **outputs,
                                      size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_embedding_dense_backward(inputs[0], inputs[1], 2, -1, false,
                                         &outputs[0]);
}

START_TEST(gradient_of_an_embedding_keeps_to_the_rows_of_its_sample)
{
    const int64_t sizes[] = {2, 1};
    core_tensor *inputs[] = {
        typed(CORE_F64, 3, (int64_t[]){2, 1, 1}, (double[]){10, 20}),
        indices(2, sizes, (double[]){1, 0})};
    const double outside[2][2] = {{2, 1}, {0, -1}};
    core_tensor *out;

    HOLDS(vmapped(embedding_gradient, NULL, inputs, 2), 4, 0, 10, 20, 0);
    for (int i = 0; i < 2; i++) {
        inputs[1] = indices(2, sizes, outside[i]);
        FAILS(core_vmap(embedding_gradient, NULL, NULL, inputs, 2, &out, 1),
              CORE_ERROR_INDEX, "embedding_dense_backward",
              i ? "contains -1," : "contains 2,", "out of range");
        ck_assert_ptr_null(out);
    }
}
END_TEST

/* ------------------------------------------------------------------ lists -- */

/* weights -= gradients, by an operator that changes a list.  context: the
 * weights; NULL: the second input, copied. */
static core_status step(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_tensor *weights = NULL;
    core_value args[9] = {[1] = core_pack_tensors(inputs, 1),
                          [2] = core_pack_tensors(NULL, 0),
                          [3] = core_float(1),
                          [4] = core_float(0),
                          [5] = core_float(0),
                          [6] = core_float(0),
                          [7] = core_bool(false),
                          [8] = core_bool(false)};
    core_status status = CORE_OK;
    core_operator *op;

    (void)ninputs;
    *noutputs = 1;
    OK(core_op_find("_fused_sgd_step", &op));
    if (context)
        weights = core_tensor_retain(context);
    else
        status = core_clone(inputs[1], CORE_FORMAT_CONTIGUOUS, &weights);
    args[0] = core_pack_tensors(&weights, 1);
    if (status == CORE_OK)
        status = core_op_call(op, args, 9, NULL, 0);
    outputs[0] = weights;
    return status;
}

START_TEST(tensors_of_a_list_that_changes_must_be_mapped)
{
    core_tensor *inputs[] = {MATRIX(2, 2, 1, 2, 3, 4),
                             MATRIX(2, 2, 10, 10, 20, 20)};
    core_tensor *weights = VECTOR(2, 10, 20), *out;

    HOLDS(vmapped(step, NULL, inputs, 2), 4, 9, 8, 17, 16);
    FAILS(core_vmap(step, weights, NULL, inputs, 1, &out, 1),
          CORE_ERROR_UNSUPPORTED, "_fused_sgd_step", "argument self",
          "not mapped");
    HOLDS(weights, 2, 10, 20);
}
END_TEST

/* --------------------------------------------------------------- autograd -- */

/* The gradient by a tensor outside of a product with it. */
static core_status gradient_outside(void *context, core_tensor *const *inputs,
                                    size_t ninputs, core_tensor **outputs,
                                    size_t *noutputs)
{
    core_tensor *weight = context, *product = NULL;
    core_status status = core_mul(inputs[0], weight, &product);

    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_grad(&product, 1, NULL, &weight, 1, 0, outputs);
    core_tensor_release(product);
    return status;
}

START_TEST(error_names_a_history_that_is_outside_only)
{
    core_tensor *input = VECTOR(2, 1, 2), *out;

    FAILS(
        core_vmap(gradient_outside, leaf(SCALAR(3)), NULL, &input, 1, &out, 1),
        CORE_ERROR_AUTOGRAD, "core_grad: tensor 0 has a history outside");
}
END_TEST

/* Two tensors with a graph each; the backward releases both. */
static core_status several_roots(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    core_tensor *x = CALL(clone, inputs[0], -1), *roots[2];

    (void)context;
    (void)ninputs;
    leaf(x);
    roots[0] = CALL(exp, x);
    roots[1] = CALL(sin, x);
    OK(core_backward(roots, 2, NULL, 0));
    *noutputs = 1;
    outputs[0] = core_tensor_retain(core_tensor_grad(x));
    FAILS(core_backward(roots, 1, NULL, 0), CORE_ERROR_AUTOGRAD,
          "CORE_RETAIN_GRAPH");
    return CORE_OK;
}

START_TEST(backward_of_several_tensors_inside_is_one_backward)
{
    core_tensor *input = VECTOR(2, 0, 0);

    HOLDS(vmapped(several_roots, NULL, &input, 1), 2, 2, 2);
}
END_TEST

/* exp(x y) */
static core_status exponential(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    core_tensor *product = NULL;
    core_status status = core_mul(inputs[0], inputs[1], &product);

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_exp(product, &outputs[0]);
    core_tensor_release(product);
    return status;
}

static core_status checkpointed(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    core_checkpoint_info info = {.struct_size = sizeof info,
                                 .function = exponential};

    (void)context;
    return core_checkpoint(&info, inputs, ninputs, outputs, noutputs);
}

static core_status gradients_of_checkpoint(void *context,
                                           core_tensor *const *inputs,
                                           size_t ninputs,
                                           core_tensor **outputs,
                                           size_t *noutputs)
{
    core_derivative d = {.struct_size = sizeof d,
                         .function = checkpointed,
                         .context = context,
                         .inputs = inputs,
                         .ninputs = ninputs};

    *noutputs = ninputs;
    return core_vjp(&d, NULL, NULL, NULL, outputs);
}

START_TEST(checkpoint_inside_runs_again_in_the_backward_inside)
{
    core_tensor *inputs[] = {VECTOR(2, 0, 0), VECTOR(2, 3, 5)}, *outs[2];

    OK(core_vmap(gradients_of_checkpoint, NULL, NULL, inputs, 2, outs, 2));
    HOLDS(keep(outs[0]), 2, 3, 5);
    HOLDS(keep(outs[1]), 2, 0, 0);
}
END_TEST

START_TEST(checkpoint_inside_of_a_graph_outside_is_refused)
{
    core_tensor *inputs[] = {leaf(VECTOR(2, 0, 0)), VECTOR(2, 3, 5)}, *out;

    FAILS(core_vmap(checkpointed, NULL, NULL, inputs, 2, &out, 1),
          CORE_ERROR_UNSUPPORTED, "core_checkpoint", "outside of core_vmap");
    ck_assert_ptr_null(out);
}
END_TEST

/* core_vmap in the function of a checkpoint. */
static core_status vmapped_inside(void *context, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t *noutputs)
{
    *noutputs = 1;
    return core_vmap(exponential, context, NULL, inputs, ninputs, outputs, 1);
}

START_TEST(checkpoint_around_runs_the_call_again)
{
    core_tensor *inputs[] = {leaf(VECTOR(2, 0, 0)), VECTOR(2, 3, 5)}, *out;
    core_checkpoint_info info = {.struct_size = sizeof info,
                                 .function = vmapped_inside};
    size_t one = 1;

    OK(core_checkpoint(&info, inputs, 2, &out, &one));
    backward(sum(keep(out)));
    HOLDS(core_tensor_grad(inputs[0]), 2, 3, 5);
}
END_TEST

/* ------------------------------------------------------------------ loops -- */

static core_status twice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_tensor *out = NULL;
    core_status status = core_mul_scalar(args[0].u.tensor, core_float(2), &out);

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        results[0] = core_pack_tensor(out);
    return status;
}

static core_status call_named(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    core_value arg = core_pack_tensor(inputs[0]), result = {0};
    core_operator *op;
    core_status status;

    (void)ninputs;
    *noutputs = 1;
    OK(core_op_find(context, &op));
    status = core_op_call(op, &arg, 1, &result, 1);
    outputs[0] = result.u.tensor;
    return status;
}

static void count_lines(void *context, uint32_t level, const char *component,
                        const char *text)
{
    uint32_t *lines = context;

    (void)level;
    if (strcmp(component, "vmap") == 0 && strstr(text, "3 samples"))
        lines[strstr(text, "mine::second") ? 1 : 0]++;
}

START_TEST(loop_is_logged_once_for_each_operator)
{
    const char *const schemas[] = {"mine::first(Tensor self) -> Tensor",
                                   "mine::second(Tensor self) -> Tensor"};
    char names[2][16] = {"mine::first", "mine::second"};
    core_registration *handles[4];
    core_tensor *input = VECTOR(3, 1, 2, 3);
    uint64_t all = core_vmap_loops(NULL);
    uint32_t lines[2] = {0, 0};
    core_operator *op;

    core_log_set_sink(count_lines, lines, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++) {
        OK(core_op_register(schemas[i], &handles[2 * i]));
        OK(core_function_register(names[i], CORE_KEY_BACKEND, "cpu", twice,
                                  NULL, &handles[2 * i + 1]));
        for (int k = 0; k <= i; k++)
            HOLDS(vmapped(call_named, names[i], &input, 1), 3, 2, 4, 6);
        OK(core_op_find(names[i], &op));
        ck_assert_uint_eq(core_vmap_loops(op), i + 1);
        ck_assert_uint_eq(lines[i], 1);
    }
    core_log_set_sink(NULL, NULL, 0);
    ck_assert_uint_eq(core_vmap_loops(NULL) - all, 3);
    for (int i = 3; i >= 0; i--)
        core_registration_release(handles[i]);
}
END_TEST

/* ------------------------------------------------------------ allocations -- */

/* Derivatives by the inputs, and the histogram of the first, which has no rule
 * for batches. */
static core_status much(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_status status =
        gradients_of_checkpoint(context, inputs, ninputs, outputs, noutputs);

    *noutputs = 3;
    if (status == CORE_OK)
        status =
            core_histc(inputs[0], 2, core_int(0), core_int(4), &outputs[2]);
    return status;
}

static core_status run_much(core_tensor *const *inputs)
{
    core_vmap_options options = {.struct_size = sizeof options, .chunk = 2};
    core_tensor *outs[3];
    core_status status = core_vmap(much, NULL, &options, inputs, 2, outs, 3);

    for (int i = 0; i < 3; i++) {
        ck_assert(status == CORE_OK || !outs[i]);
        core_tensor_release(outs[i]);
    }
    return status;
}

START_TEST(failed_allocation_is_reported_without_leaks)
{
    core_tensor *inputs[] = {VECTOR(3, 1, 2, 3), VECTOR(3, .4, .5, .6)};
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    int64_t allowed = 0, live;

    OK(run_much(inputs));
    core__alloc_fault_set(INT32_MAX, false);
    OK(run_much(inputs));
    live = core__alloc_live();
    for (; status != CORE_OK; allowed++) {
        core__alloc_fault_set(allowed, false);
        status = run_much(inputs);
        core__alloc_fault_set(INT32_MAX, false);
        ck_assert_msg(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY,
                      "allocation %lld: %s", (long long)allowed,
                      core_error_message());
        ck_assert_msg(core__alloc_live() == live,
                      "%lld blocks leak after allocation %lld",
                      (long long)(core__alloc_live() - live),
                      (long long)allowed);
    }
    core__alloc_fault_set(-1, false);
    ck_assert_int_gt(allowed, 50);
}
END_TEST

SUITE("transform/vmap_errors", probabilities_of_every_sample_are_checked,
      take_counts_negative_indices_from_the_end_of_a_sample,
      gradient_of_an_embedding_keeps_to_the_rows_of_its_sample,
      tensors_of_a_list_that_changes_must_be_mapped,
      error_names_a_history_that_is_outside_only,
      backward_of_several_tensors_inside_is_one_backward,
      checkpoint_inside_runs_again_in_the_backward_inside,
      checkpoint_inside_of_a_graph_outside_is_refused,
      checkpoint_around_runs_the_call_again,
      loop_is_logged_once_for_each_operator,
      failed_allocation_is_reported_without_leaks)
