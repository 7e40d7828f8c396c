/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What explain, and the error of CORE_COMPILE_FULLGRAPH, say of a graph break:
 * operator, reason and place. */

#include "support/compiled.h"

#include <libcore/destination.h>
#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/expressions.h>
#include <libcore/function.h>
#include <libcore/random.h>

static world one(void)
{
    world w = {.device = program_device, .ninputs = 1};

    w.inputs[0] = NUMBERS(&w, 1, 3, 4);
    return w;
}

/* The function breaks with this text in explain, and in the error. */
static void breaks(core_tensor_function function, const char *operator_name,
                   const char *reason, const char *place)
{
    world eager = one(), traced = one();
    core_compiled *compiled =
        compile_with(function, &traced, (core_compile_options){0});
    core_compiled *full = compile_fully(function, &traced);
    core_tensor *out[1];
    char text[600];

    for (int i = 0; i < 2; i++)
        same_call(function, &eager, compiled, &traced);
    snprintf(text, sizeof text, "\"operator\": \"%s\"", operator_name);
    EXPLAINS(compiled, text);
    snprintf(text, sizeof text, "\"reason\": \"%s", reason);
    EXPLAINS(compiled, text);
    snprintf(text, sizeof text, "\"place\": \"%s\"", place);
    EXPLAINS(compiled, text);
    EXPLAINS(compiled, "\"count\": 2");
    ck_assert(!explains(compiled, " (at "));
    snprintf(text, sizeof text, " (%s)", place);
    FAILS(core_compiled_call(full, traced.inputs, 1, out, 1),
          CORE_ERROR_UNSUPPORTED, operator_name, reason, text);
    core_compiled_release(compiled);
    core_compiled_release(full);
}

/* ------------------------------------------------------------- operators -- */

static core_status twice_kernel(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    core_tensor *y;

    (void)call;
    (void)nargs;
    (void)nresults;
    CORE_TRY(core_add(args[0].u.tensor, args[0].u.tensor, core_int(1), &y));
    results[0] = core_pack_tensor(y);
    return CORE_OK;
}

/* mine::twice(-x) */
COMPILED_FUNCTION(custom)
{
    core_tensor *y = NULL;
    core_operator *twice;
    core_value arg, result = {0};
    core_status status;

    *noutputs = 1;
    OK(core_op_find("mine::twice", &twice));
    OK(core_neg(x[0], &y));
    arg = core_pack_tensor(y);
    status = core_op_call(twice, &arg, 1, &result, 1);
    out[0] = status == CORE_OK ? result.u.tensor : NULL;
    core_tensor_release(y);
    return status;
}

START_TEST(a_custom_operator_without_a_shape_function_is_a_break)
{
    world eager = one(), traced = one();
    core_registration *made[3];
    core_compiled *full;

    OK(core_op_register("mine::twice(Tensor self) -> Tensor", &made[0]));
    OK(core_function_register("mine::twice", CORE_KEY_BACKEND,
                              core_device_type(program_device), twice_kernel,
                              NULL, &made[1]));
    breaks(custom, "mine::twice",
           "it has no shape function, so a program that is being recorded "
           "cannot contain it; register one with core_shape_register",
           "after 1 operator, the last of which is neg");
    OK(core_shape_register("mine::twice", twice_kernel, NULL, &made[2]));
    full = compile_fully(custom, &traced);
    same_call(custom, &eager, full, &traced);
    core_compiled_release(full);
    for (int i = 3; i-- > 0;)
        core_registration_release(made[i]);
}
END_TEST

/* Its size depends on the data. */
COMPILED_FUNCTION(dynamic)
{
    *noutputs = 1;
    return core_nonzero(x[0], &out[0]);
}

/* Waits for what it has submitted. */
COMPILED_FUNCTION(waits)
{
    *noutputs = 1;
    CORE_TRY(core_neg(x[0], &out[0]));
    return core_device_synchronize(core_tensor_device(x[0]));
}

/* x divided by its largest exponential, which is read. */
COMPILED_FUNCTION(reads)
{
    core_tensor *a = NULL, *b = NULL;
    core_scalar number;
    core_status status = core_exp(x[0], &a);

    *noutputs = 1;
    if (status == CORE_OK)
        status = core_max(a, &b);
    if (status == CORE_OK)
        status = core_tensor_item(b, &number);
    if (status == CORE_OK)
        status = core_div_scalar(x[0], number, &out[0]);
    core_tensor_release(a);
    core_tensor_release(b);
    return status;
}

START_TEST(the_place_of_a_break_is_what_was_recorded_before)
{
    breaks(dynamic, "nonzero", "the size of its result depends on data",
           "before the first operator");
    breaks(waits, "core_device_synchronize", "",
           "after 1 operator, the last of which is neg");
    breaks(reads, "core_tensor_item", "the tensor has no content",
           "after 2 operators, the last of which is max");
}
END_TEST

/* ----------------------------------------------------------------- lines -- */

static int line;

/* In a scope, whose calls know their line. */
COMPILED_FUNCTION(reads_in_scope)
{
    core_scope scope = core_scope_begin();
    core_tensor *largest = core_x_max(x[0]);
    double number;

    *noutputs = 1;
    line = __LINE__ + 1;
    number = core_x_item_float(largest);
    return core_scope_end_with(
        scope, core_x_div_scalar(x[0], core_float(number)), &out[0]);
}

/* The same in another scope: the line is that of the inner call. */
COMPILED_FUNCTION(calls_a_scope)
{
    core_scope scope = core_scope_begin();
    core_tensor *inner = NULL;

    inner = core_scope_own(reads_in_scope(w, x, 1, &inner, noutputs), &inner);
    return core_scope_end_with(scope, inner, &out[0]);
}

START_TEST(a_call_in_a_scope_has_a_line)
{
    world w = one();
    core_tensor *out[1];
    size_t count = 1;
    char place[300];

    OK(reads_in_scope(&w, w.inputs, 1, out, &count));
    core_tensor_release(out[0]);
    snprintf(place, sizeof place,
             "at %s:%d, after 1 operator, the last of which is max", __FILE__,
             line);
    breaks(reads_in_scope, "core_tensor_item_float",
           "the tensor has no content", place);
    breaks(calls_a_scope, "core_tensor_item_float", "the tensor has no content",
           place);
}
END_TEST

/* --------------------------------------------------- other than operators -- */

/* Seeds the generators. */
COMPILED_FUNCTION(seeds)
{
    *noutputs = 1;
    CORE_TRY(core_neg(x[0], &out[0]));
    core_seed(3);
    CORE_TRY(core_neg_(out[0]));
    return CORE_OK;
}

/* What autograd would record. */
COMPILED_FUNCTION(requires_grad)
{
    *noutputs = 1;
    CORE_TRY(core_tensor_set_requires_grad(x[0], true));
    return core_neg(x[0], &out[0]);
}

START_TEST(what_is_found_later_says_so)
{
    world w = one();
    core_compiled *full = compile_fully(requires_grad, &w);
    core_tensor *out;

    breaks(seeds, "core_seed", "it reads or changes the state of a generator",
           "after 1 operator, the last of which is neg");
    FAILS(core_compiled_call(full, w.inputs, 1, &out, 1),
          CORE_ERROR_UNSUPPORTED, "requires_grad",
          " (when the function has returned)");
    core_compiled_release(full);
}
END_TEST

/* ---------------------------------------------------------- training step -- */

/* Returns the loss, whose backward has run. */
COMPILED_FUNCTION(returns_its_loss)
{
    core_gradient_destination to = {.struct_size = sizeof to,
                                    .input = w->hidden[0],
                                    .buffer = w->hidden[1]};
    core_tensor *y;
    core_status status;

    *noutputs = 1;
    CORE_TRY(core_mul(x[0], w->hidden[0], &y));
    status = core_mean(y, CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(y);
    if (status == CORE_OK)
        status = core_backward_into(out, 1, NULL, 0, &to, 1);
    return status;
}

START_TEST(a_loss_whose_backward_has_run_is_to_be_detached)
{
    world w = one();
    core_compiled *full = compile_fully(returns_its_loss, &w);
    core_tensor *out;

    w.hidden[0] = leaf(NUMBERS(&w, 50, 3, 4));
    w.hidden[1] = NUMBERS(&w, 90, 3, 4);
    FAILS(core_compiled_call(full, w.inputs, 1, &out, 1),
          CORE_ERROR_UNSUPPORTED,
          "the function has run the backward of a result that requires grad",
          "return core_detach of the result");
    core_compiled_release(full);
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/graph_breaks",
                     a_custom_operator_without_a_shape_function_is_a_break,
                     the_place_of_a_break_is_what_was_recorded_before,
                     a_call_in_a_scope_has_a_line, what_is_found_later_says_so,
                     a_loss_whose_backward_has_run_is_to_be_detached)
