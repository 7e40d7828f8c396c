/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 8: an operator of the plugin's own, a + by * b, with a shape function,
 * kernels, a function for cpu and a gradient. */

#include "device.h"

#if STEP >= 8

#define OPERATOR NAME "::weighted_sum"

/* Checks the arguments, and sets dtype and sizes of the result. */
static core_status shape(void *user, const core_value *args, uint32_t nargs,
                         core_result_shape *shapes, uint32_t nresults)
{
    const core_view *a = args[0].u.view, *b = args[1].u.view;
    int same = a->ndim == b->ndim;

    (void)user;
    (void)nargs;
    (void)nresults;
    for (uint32_t d = 0; same && d < a->ndim; d++)
        same = a->sizes[d] == b->sizes[d];
    if (!same)
        return core_sdk_error(host, CORE_ERROR_SHAPE, "",
                              "a and b must have equal sizes");
    if (a->dtype != b->dtype)
        return core_sdk_error(host, CORE_ERROR_DTYPE, "",
                              "a and b must have one dtype");
    shapes[0].dtype = a->dtype;
    shapes[0].ndim = a->ndim;
    for (uint32_t d = 0; d < a->ndim; d++)
        shapes[0].sizes[d] = a->sizes[d];
    return CORE_OK;
}

#define COMPUTE(type)                                                          \
    static core_status compute_##type(core_call *call, const core_value *args, \
                                      uint32_t nargs, core_value *results,     \
                                      uint32_t nresults)                       \
    {                                                                          \
        const core_view *out = results[0].u.view;                              \
        const type *a = (const type *)(void *)address(args[0].u.view->memory); \
        const type *b = (const type *)(void *)address(args[1].u.view->memory); \
        type *to = (type *)(void *)address(out->memory);                       \
        type by = (type)core_sdk_double(&args[2], 1);                          \
                                                                               \
        (void)call;                                                            \
        (void)nargs;                                                           \
        (void)nresults;                                                        \
        for (int64_t i = 0; i < out->numel; i++)                               \
            to[i] = a[i] + by * b[i];                                          \
        return CORE_OK;                                                        \
    }
COMPUTE(float)
COMPUTE(double)

/* As of the other kernels, the work runs when the stream reaches it. */
static core_status launch_sum(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    return launch_later(args[0].u.view->dtype == CORE_F32 ? compute_float
                                                          : compute_double,
                        call, args, nargs, results, nresults, NULL, NULL);
}

/* The same on cpu, by operators: the reference of core-conformance. */
static core_status on_cpu(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    core_operator *op;
    core_status status =
        host->operator_find(core_sdk_string("add.Tensor"), &op);

    (void)call;
    return status == CORE_OK
               ? host->operator_call(op, args, nargs, results, nresults)
               : status;
}

/* Stores what backward needs of a call. */
static core_status setup(core_function_context *context, void *user,
                         const core_value *args, uint32_t nargs,
                         const core_value *results, uint32_t nresults)
{
    double *by = malloc(sizeof *by);
    core_status status;

    (void)user;
    (void)nargs;
    (void)results;
    (void)nresults;
    if (by == NULL)
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                              "no host memory for a call");
    *by = core_sdk_double(&args[2], 1);
    status = host->context_set_state(context, by, free);
    if (status != CORE_OK)
        free(by);
    return status;
}

/* The gradient of a is grad, that of b is by * grad: computed by operators, so
 * it can be differentiated again. */
static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = grads[0]}},
                          {CORE_VALUE_FLOAT, 0, {.f = *(double *)context}}};
    core_value result = {0};
    core_operator *op;
    core_status status = CORE_OK;

    (void)ngrads;
    (void)ngradients;
    if (host->node_needs_gradient(node, 0)) {
        host->tensor_retain(grads[0]);
        gradients[0] = grads[0];
    }
    if (host->node_needs_gradient(node, 1)) {
        status = host->operator_find(core_sdk_string("mul.Scalar"), &op);
        if (status == CORE_OK)
            status = host->operator_call(op, args, 2, &result, 1);
        if (status == CORE_OK)
            gradients[1] = result.u.tensor;
    }
    return status;
}

core_status operator_register(core_registry *registry)
{
    const core_operator_gradient gradient = {
        .struct_size = sizeof gradient, .setup = setup, .backward = backward};
    const uint32_t floats =
        CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_F64);
    const core_string name = core_sdk_string(OPERATOR);
    const core_kernel kernel = {.struct_size = sizeof kernel,
                                .demands = CORE_REQUIRE_CONTIGUOUS,
                                .name = name,
                                .signature = {floats, floats, floats},
                                .launch = launch_sum};
    const core_kernel *const one = &kernel;
    core_status status;

    if (host->abi_minor < 6)
        return CORE_OK; /* this libcore has no kernels of own operators */
    status = host->register_operator(
        registry, core_sdk_string(OPERATOR "(Tensor a, Tensor b, float by=1)"
                                           " -> Tensor"));
    if (status == CORE_OK)
        status = host->register_shape(registry, name, shape, NULL);
    if (status == CORE_OK)
        status =
            host->register_kernels(registry, core_sdk_string(NAME), &one, 1);
    if (status == CORE_OK)
        status = host->register_function(registry, name, CORE_KEY_BACKEND,
                                         core_sdk_string("cpu"), on_cpu, NULL);
    if (status == CORE_OK)
        status = host->register_gradient(registry, name, &gradient);
    return status;
}
#endif
