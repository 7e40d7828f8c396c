/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compares analytic derivatives with central differences. */

#include "autograd/graph/function.h"
#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/tensor.h>

#include <math.h>
#include <string.h>

typedef struct check {
    const char *name;
    core_gradcheck_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs;
    double eps, atol, rtol;
} check;

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core__tensor_release(tensors[i]);
}

static core_status evaluate(const check *check, core_tensor **outputs,
                            size_t *out_count)
{
    *out_count = CORE_GRADCHECK_OUTPUTS;
    return core__function_call(check->name, check->function, check->context,
                               check->inputs, check->ninputs, outputs,
                               out_count);
}

static core_status check_number(const check *check, double number,
                                const char *name, bool zero)
{
    if (isfinite(number) && (zero ? number >= 0 : number > 0))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: %s is %g; it must be finite and %s", check->name,
                       name, number, zero ? "0 or more" : "above 0");
}

static core_status check_arguments(const check *check,
                                   core_gradcheck_function function)
{
    if (!function)
        return core__error_null(check->name, "function");
    if (check->ninputs && !check->inputs)
        return core__error_null(check->name, "inputs");
    for (size_t i = 0; i < check->ninputs; i++)
        if (!check->inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: input %zu is NULL", check->name, i);
    CORE_TRY(check_number(check, check->eps, "eps", false));
    CORE_TRY(check_number(check, check->atol, "atol", true));
    return check_number(check, check->rtol, "rtol", true);
}

static core_status check_inputs(const check *check)
{
    bool any = false;

    for (size_t i = 0; i < check->ninputs; i++) {
        const core_tensor *input = check->inputs[i];

        if (!core__tensor_needs_grad(input))
            continue;
        any = true;
        if (input->dtype != CORE_F64 || !core__tensor_is_leaf(input) ||
            !(input->flags & CORE__TENSOR_CONTIGUOUS))
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "%s: input %zu requires grad; it must be a contiguous f64 leaf",
                check->name, i);
    }
    if (any)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: no input requires grad; at least one must",
                       check->name);
}

static size_t bytes(const core_tensor *tensor)
{
    return (size_t)tensor->numel * sizeof(double);
}

/* The outputs' values as f64, one after the other. */
static core_status values_of(core_tensor *const *outputs, size_t count,
                             double *values)
{
    for (size_t i = 0; i < count; i++) {
        if (!core__dtype_is_floating(outputs[i]->dtype))
            continue;
        CORE_TRY(core_tensor_read(outputs[i], values, bytes(outputs[i])));
        values += outputs[i]->numel;
    }
    return CORE_OK;
}

/* A function must return the same number of elements in each call. */
static core_status check_total(const check *check, core_tensor *const *outputs,
                               size_t count, size_t total)
{
    size_t now = 0;

    for (size_t i = 0; i < count; i++)
        if (core__dtype_is_floating(outputs[i]->dtype))
            now += (size_t)outputs[i]->numel;
    if (now == total)
        return CORE_OK;
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "%s: the function returned %zu elements in its first call and %zu in a "
        "later one; it must return as many each time",
        check->name, total, now);
}

static core_status values_at(const check *check, size_t total, double *values)
{
    core_tensor *outputs[CORE_GRADCHECK_OUTPUTS];
    core_status status;
    size_t count;

    CORE_TRY(evaluate(check, outputs, &count));
    status = check_total(check, outputs, count, total);
    if (status == CORE_OK)
        status = values_of(outputs, count, values);
    release_all(outputs, count);
    return status;
}

/* column[k] = d output k / d element of input, by differences; `data` is the
 * input's content. */
static core_status numeric_column(const check *check, core_tensor *input,
                                  double *data, int64_t element, size_t total,
                                  double *column, double *below)
{
    double before = data[element];
    core_status status;

    data[element] = before - check->eps;
    status = core_tensor_write(input, data, bytes(input));
    if (status == CORE_OK)
        status = values_at(check, total, below);
    data[element] = before + check->eps;
    if (status == CORE_OK)
        status = core_tensor_write(input, data, bytes(input));
    if (status == CORE_OK)
        status = values_at(check, total, column);
    data[element] = before;
    if (status == CORE_OK)
        status = core_tensor_write(input, data, bytes(input));
    else
        core_tensor_write(input, data, bytes(input));
    for (size_t i = 0; i < total && status == CORE_OK; i++)
        column[i] = (column[i] - below[i]) / (2 * check->eps);
    return status;
}

/* row = d output[element] / d input, from the graph; zeros if it does not
 * depend on it. */
static core_status analytic_row(core_tensor *output, int64_t element,
                                core_tensor *input, double *seed, double *row)
{
    core_tensor *grad_output = NULL, *grad = NULL;
    core_status status;

    memset(row, 0, bytes(input));
    if (!core__tensor_needs_grad(output))
        return CORE_OK;
    memset(seed, 0, bytes(output));
    seed[element] = 1;
    status = core_tensor_from_data(seed, CORE_F64, output->sizes, output->ndim,
                                   output->device, &grad_output);
    if (status == CORE_OK)
        status = core_grad(&output, 1, &grad_output, &input, 1,
                           CORE_RETAIN_GRAPH | CORE_ALLOW_UNUSED, &grad);
    if (status == CORE_OK && grad)
        status = core_tensor_read(grad, row, bytes(input));
    core__tensor_release(grad);
    core__tensor_release(grad_output);
    return status;
}

static core_status mismatch(const check *check, size_t output,
                            int64_t out_element, size_t input,
                            int64_t in_element, double analytic, double numeric)
{
    return core__error(CORE_ERROR_AUTOGRAD,
                       "%s: output %zu, element %lld, differentiated with "
                       "respect to input %zu, element %lld: the graph computes "
                       "%.12g, finite differences give %.12g",
                       check->name, output, (long long)out_element, input,
                       (long long)in_element, analytic, numeric);
}

typedef struct work {
    double *data;    /* of the input */
    double *row;     /* by input element */
    double *seed;    /* by output element */
    double *below;   /* by output element, all outputs */
    double *numeric; /* [input element][output element] */
} work;

static bool close_enough(const check *check, double analytic, double numeric)
{
    if (isnan(analytic) || isnan(numeric))
        return isnan(analytic) && isnan(numeric);
    return fabs(analytic - numeric) <=
           check->atol + check->rtol * fabs(numeric);
}

static core_status compare(const check *check, size_t index,
                           core_tensor *const *outputs, size_t noutputs,
                           size_t total, work *work)
{
    core_tensor *input = check->inputs[index];
    size_t first = 0;

    for (size_t o = 0; o < noutputs; o++) {
        if (!core__dtype_is_floating(outputs[o]->dtype))
            continue;
        for (int64_t k = 0; k < outputs[o]->numel; k++) {
            CORE_TRY(analytic_row(outputs[o], k, input, work->seed, work->row));
            for (int64_t j = 0; j < input->numel; j++) {
                double numeric =
                    work->numeric[(size_t)j * total + first + (size_t)k];

                if (!close_enough(check, work->row[j], numeric))
                    return mismatch(check, o, k, index, j, work->row[j],
                                    numeric);
            }
        }
        first += (size_t)outputs[o]->numel;
    }
    return CORE_OK;
}

static core_status check_input(const check *check, size_t index, size_t total)
{
    core_tensor *outputs[CORE_GRADCHECK_OUTPUTS];
    core_tensor *input = check->inputs[index];
    size_t n = (size_t)input->numel;
    size_t size = (2 * n + 2 * total + n * total + 1) * sizeof(double);
    double *block = core__alloc(size);
    core_status status;
    size_t count;
    work work;

    if (!block)
        return core__error_memory(size);
    work.data = block;
    work.row = work.data + n;
    work.seed = work.row + n;
    work.below = work.seed + total;
    work.numeric = work.below + total;
    status = core_tensor_read(input, work.data, bytes(input));
    for (size_t j = 0; j < n && status == CORE_OK; j++)
        status = numeric_column(check, input, work.data, (int64_t)j, total,
                                work.numeric + j * total, work.below);
    /* Recorded last, since each write changes the input's version. */
    if (status == CORE_OK)
        status = evaluate(check, outputs, &count);
    if (status == CORE_OK) {
        status = check_total(check, outputs, count, total);
        if (status == CORE_OK)
            status = compare(check, index, outputs, count, total, &work);
        release_all(outputs, count);
    }
    core__free(block);
    return status;
}

/* The number of elements of all floating outputs. */
static core_status count_outputs(const check *check, size_t *out_total)
{
    core_tensor *outputs[CORE_GRADCHECK_OUTPUTS];
    core_status status = CORE_OK;
    bool any = false;
    size_t count;

    *out_total = 0;
    CORE_TRY(evaluate(check, outputs, &count));
    for (size_t o = 0; o < count; o++) {
        if (!core__dtype_is_floating(outputs[o]->dtype))
            continue;
        any = true;
        *out_total += (size_t)outputs[o]->numel;
        if (outputs[o]->dtype != CORE_F64)
            status = core__error(CORE_ERROR_DTYPE,
                                 "%s: output %zu is %s; only f64 can be "
                                 "checked",
                                 check->name, o,
                                 core__dtype_name(outputs[o]->dtype));
    }
    release_all(outputs, count);
    if (status == CORE_OK && !any)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "%s: the function gave no floating output; "
                             "nothing can be checked",
                             check->name);
    return status;
}

static core_status run(const check *check)
{
    size_t total;

    CORE_TRY(check_inputs(check));
    CORE_TRY(count_outputs(check, &total));
    for (size_t i = 0; i < check->ninputs; i++)
        if (core__tensor_needs_grad(check->inputs[i]))
            CORE_TRY(check_input(check, i, total));
    return CORE_OK;
}

core_status core_gradcheck(core_gradcheck_function function, void *context,
                           core_tensor *const *inputs, size_t ninputs,
                           double eps, double atol, double rtol)
{
    check check = {"core_gradcheck", function, context, inputs,
                   ninputs,          eps,      atol,    rtol};
    core_status status;
    bool before;

    CORE_TRY(check_arguments(&check, function));
    before = core_grad_mode_set(true);
    status = run(&check);
    core_grad_mode_set(before);
    return status;
}

/* ------------------------------------------------------- second derivative -- */

/* The first derivative as a function: its inputs are those of the function,
 * followed by a gradient for each of its floating outputs. */
typedef struct first {
    core_gradcheck_function function;
    void *context;
    size_t ninputs;
} first;

static core_status first_derivative(void *context, core_tensor *const *inputs,
                                    size_t ninputs, core_tensor **outputs,
                                    size_t *noutputs)
{
    const first *first = context;
    core_tensor *results[CORE_GRADCHECK_OUTPUTS] = {0};
    core_tensor *roots[CORE_GRADCHECK_OUTPUTS];
    core_tensor *differentiated[CORE_GRADCHECK_OUTPUTS];
    size_t count = CORE_GRADCHECK_OUTPUTS, nroots = 0, ndifferentiated = 0,
           differentiable = 0;
    core_status status;

    CORE_TRY(core__function_call("the function", first->function,
                                 first->context, inputs, first->ninputs,
                                 results, &count));
    for (size_t i = 0; i < count; i++)
        if (core__tensor_needs_grad(results[i]))
            roots[nroots++] = results[i];
    for (size_t i = 0;
         i < first->ninputs && ndifferentiated < CORE_GRADCHECK_OUTPUTS; i++)
        if (core__tensor_needs_grad(inputs[i]))
            differentiated[ndifferentiated++] = inputs[i];
    (void)ninputs;
    status = core_grad(roots, nroots, inputs + first->ninputs, differentiated,
                       ndifferentiated, CORE_CREATE_GRAPH | CORE_ALLOW_UNUSED,
                       outputs);
    for (size_t i = 0; status == CORE_OK && i < ndifferentiated; i++)
        if (outputs[i])
            outputs[differentiable++] = outputs[i];
    *noutputs = differentiable;
    release_all(results, count);
    return status;
}

/* A gradient of values that are all different and of both signs. */
static core_status varied_grad(const core_tensor *like, core_tensor **out_grad)
{
    double *values = core__alloc(bytes(like) + sizeof(double));
    core_status status;

    *out_grad = NULL;
    if (!values)
        return core__error_memory(bytes(like));
    for (int64_t i = 0; i < like->numel; i++)
        values[i] = sin(1.0 + 1.7 * (double)i);
    status = core_tensor_from_data(values, CORE_F64, like->sizes, like->ndim,
                                   like->device, out_grad);
    core__free(values);
    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(*out_grad, true);
    return status;
}

static core_status run_second(first *first, core_tensor *const *inputs,
                              check *check)
{
    core_tensor *results[CORE_GRADCHECK_OUTPUTS] = {0};
    core_tensor **all;
    core_status status = CORE_OK;
    size_t count = CORE_GRADCHECK_OUTPUTS, total = first->ninputs;

    all = core__alloc((total + count) * sizeof *all);
    if (!all)
        return core__error_memory((total + count) * sizeof *all);
    if (total)
        memcpy(all, inputs, total * sizeof *all);
    status = check_inputs(check);
    if (status == CORE_OK)
        status =
            core__function_call(check->name, first->function, first->context,
                                inputs, first->ninputs, results, &count);
    else
        count = 0;
    for (size_t i = 0; i < count && status == CORE_OK; i++)
        if (core__tensor_needs_grad(results[i]))
            status = varied_grad(results[i], &all[total++]);
    check->inputs = all;
    check->ninputs = total;
    if (status == CORE_OK)
        status = run(check);
    release_all(all + first->ninputs, total - first->ninputs);
    release_all(results, count);
    core__free(all);
    return status;
}

core_status core_gradgradcheck(core_gradcheck_function function, void *context,
                               core_tensor *const *inputs, size_t ninputs,
                               double eps, double atol, double rtol)
{
    first first = {function, context, ninputs};
    check check = {"core_gradgradcheck",
                   first_derivative,
                   &first,
                   inputs,
                   ninputs,
                   eps,
                   atol,
                   rtol};
    core_status status;
    bool before;

    CORE_TRY(check_arguments(&check, function));
    before = core_grad_mode_set(true);
    status = run_second(&first, inputs, &check);
    core_grad_mode_set(before);
    return status;
}
