/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* An operator of a program's own, with its gradient.
 *
 * example::clip_norm(x, limit) scales x down so that its norm is at most
 * limit:  y = s x,  s = limit / max(norm(x), limit).
 *
 * It consists of other operators, so it runs on every device.  A kernel for one
 * kind of device belongs in a plugin (docs/plugin-guide.md). */

#include <libcore/core.h>
#include <libcore/expressions.h>
#include <libcore/function.h>

#include <stdio.h>
#include <stdlib.h>

static core_tensor *scale_of(core_tensor *norm, double limit)
{
    return core_x_mul(core_x_reciprocal(core_x_clamp_min(norm, limit)), limit);
}

static core_status clip_norm(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = args[0].u.tensor, *y = NULL;
    core_tensor *scale = scale_of(core_x_linalg_vector_norm(x), args[1].u.f);
    core_status status = core_scope_end_with(scope, core_x_mul(x, scale), &y);

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        results[0] = (core_value){.tag = CORE_VALUE_TENSOR, .u.tensor = y};
    return status;
}

/* Called when a call is recorded: stores what the gradient needs. */
static core_status setup(core_function_context *function, void *user,
                         const core_value *args, uint32_t nargs,
                         const core_value *results, uint32_t nresults)
{
    double *limit = malloc(sizeof *limit);
    core_status status;

    (void)user;
    (void)nargs;
    (void)results;
    (void)nresults;
    if (!limit)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "clip_norm: no memory");
    *limit = args[1].u.f;
    status = core_context_set_state(function, limit, free);
    if (status != CORE_OK)
        free(limit);
    else
        status = core_context_save(function, &args[0].u.tensor, 1);
    return status;
}

/* If the norm n is above the limit, s (g - x sum(g x) / n²), else g.  By
 * operators, so that the gradient can be differentiated, too. */
static core_status backward(core_node *node, void *limit,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    core_scope scope = core_scope_begin();
    core_tensor *saved, *x, *norm, *above, *along, *grad;

    (void)ngrads;
    (void)ngradients;
    x = core_scope_own(core_node_saved(node, 0, &saved), &saved);
    norm = core_x_linalg_vector_norm(x);
    above = core_x_gt(norm, *(double *)limit);
    along =
        core_x_div(core_x_sum(core_x_mul(grads[0], x)), core_x_mul(norm, norm));
    grad = core_x_sub(grads[0], core_x_mul(x, along));
    grad = core_x_mul(grad, scale_of(norm, *(double *)limit));
    grad = core_x_where(above, grad, grads[0]);
    return core_scope_end_with(scope, grad, &gradients[0]);
}

/* The operator, called by its name. */
static core_status call_clip_norm(void *limit, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t *noutputs)
{
    core_value args[] = {{.tag = CORE_VALUE_TENSOR, .u.tensor = inputs[0]},
                         core_float(*(double *)limit)};
    core_value result = {0};
    core_operator *op;

    (void)ninputs;
    CORE_TRY(core_op_find("example::clip_norm", &op));
    CORE_TRY(core_op_call(op, args, 2, &result, 1));
    outputs[0] = result.u.tensor;
    *noutputs = 1;
    return CORE_OK;
}

static core_status check(double limit)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = core_x_randn(CORE_SIZES(3, 4), NULL, CORE_F64);
    core_tensor *y = NULL;
    size_t count = 1;

    CORE_CHECK(core_tensor_set_requires_grad(x, true));
    CORE_CHECK(call_clip_norm(&limit, &x, 1, &y, &count));
    y = core_scope_own(core_scope_status(), &y);
    printf("limit %g: norm %.3f becomes %.3f\n", limit,
           core_x_item_float(core_x_linalg_vector_norm(x)),
           core_x_item_float(core_x_linalg_vector_norm(y)));
    CORE_CHECK(core_gradcheck(call_clip_norm, &limit, &x, 1, 1e-6, 1e-6, 1e-4));
    CORE_CHECK(
        core_gradgradcheck(call_clip_norm, &limit, &x, 1, 1e-6, 1e-6, 1e-4));
    return core_scope_end(scope);
}

int main(void)
{
    const core_operator_gradient gradient = {
        .struct_size = sizeof gradient, .setup = setup, .backward = backward};
    core_registration *parts[3] = {NULL, NULL, NULL};
    core_status status;

    core_seed(7);
    if ((status = core_op_register(
             "example::clip_norm(Tensor self, float limit) -> Tensor",
             &parts[0])) ||
        (status = core_function_register("example::clip_norm",
                                         CORE_KEY_COMPOSITE_EXPLICIT, NULL,
                                         clip_norm, NULL, &parts[1])) ||
        (status = core_gradient_register("example::clip_norm", &gradient,
                                         &parts[2])) ||
        (status = check(1)) || (status = check(100)))
        fprintf(stderr, "%s\n", core_error_message());
    else
        puts("the gradients are right");
    for (int i = 2; i >= 0; i--)
        core_registration_release(parts[i]);
    return status != CORE_OK;
}
