/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Nodes that are removed from a program, and nodes that must stay. */

#include "support/program.h"

#include "compile/passes/simplify.h"

#include <libcore/device.h>

static void one_input(world *w)
{
    w->inputs[0] = NUMBERS(w, 1, 3, 4);
    w->ninputs = 1;
}

/* Compares the function with its simplified program.  Returns the number of
 * nodes that are left. */
static size_t nodes_left(core_tensor_function function)
{
    const program_case c = {one_input, function};
    world eager, traced;
    core_program_counts counts = {.struct_size = sizeof counts};
    core_program *program;

    OK(core_device_find("cpu", &program_device));
    eager = make_world(&c);
    traced = make_world(&c);
    program = trace_world(&c, &traced);
    OK(core__program_simplify(program));
    OK(core_program_verify(program));
    OK(core_program_get_counts(program, &counts));
    compare_calls(&c, &eager, &traced, program);
    core_program_release(program);
    return counts.nodes;
}

static core_status unused(void *context, core_tensor *const *x, size_t n,
                          core_tensor **out, size_t *noutputs)
{
    core_tensor *dead, *written;

    (void)context;
    (void)n;
    OK(core_exp(x[0], &dead));
    OK(core_sin(dead, &written));
    OK(core_add_(written, dead, core_int(1)));
    core_tensor_release(dead);
    core_tensor_release(written);
    *noutputs = 1;
    return core_neg(x[0], &out[0]);
}

START_TEST(nodes_that_nothing_reads_are_removed)
{
    ck_assert_uint_eq(nodes_left(unused), 1);
}
END_TEST

static core_status repeated(void *context, core_tensor *const *x, size_t n,
                            core_tensor **out, size_t *noutputs)
{
    core_tensor *a, *b;

    (void)context;
    (void)n;
    OK(core_add_scalar(x[0], core_float(1.5), core_int(1), &a));
    OK(core_add_scalar(x[0], core_float(1.5), core_int(1), &b));
    OK(core_mul(a, b, &out[0]));
    core_tensor_release(b);
    OK(core_add_scalar(x[0], core_float(2.5), core_int(1), &b));
    OK(core_mul(a, b, &out[1]));
    core_tensor_release(a);
    core_tensor_release(b);
    *noutputs = 2;
    return CORE_OK;
}

START_TEST(repeated_nodes_are_computed_once)
{
    ck_assert_uint_eq(nodes_left(repeated), 4);
}
END_TEST

static core_status equal_outputs(void *context, core_tensor *const *x, size_t n,
                                 core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    OK(core_exp(x[0], &out[0]));
    OK(core_exp(x[0], &out[1]));
    OK(core_clone(x[0], -1, &out[2]));
    *noutputs = 3;
    return CORE_OK;
}

START_TEST(outputs_do_not_come_to_share_memory)
{
    ck_assert_uint_eq(nodes_left(equal_outputs), 3);
}
END_TEST

static core_status copies(void *context, core_tensor *const *x, size_t n,
                          core_tensor **out, size_t *noutputs)
{
    core_tensor *copy;

    (void)context;
    (void)n;
    OK(core_clone(x[0], -1, &copy));
    OK(core_neg_(x[0]));
    OK(core_add(x[0], copy, core_int(2), &out[0]));
    core_tensor_release(copy);
    *noutputs = 1;
    return CORE_OK;
}

START_TEST(copies_without_effect_are_removed)
{
    ck_assert_uint_eq(nodes_left(copies), 2);
}
END_TEST

static core_status draws(void *context, core_tensor *const *x, size_t n,
                         core_tensor **out, size_t *noutputs)
{
    world *w = context;
    core_tensor *unread;

    (void)n;
    OK(core_rand((int64_t[]){6}, 1, NULL, CORE_F32, w->device, &unread));
    core_tensor_release(unread);
    *noutputs = 1;
    return core_dropout(x[0], .5, true, &out[0]);
}

START_TEST(random_nodes_stay)
{
    ck_assert_uint_ge(nodes_left(draws), 2);
}
END_TEST

SUITE("compile/simplify", nodes_that_nothing_reads_are_removed,
      repeated_nodes_are_computed_once, outputs_do_not_come_to_share_memory,
      copies_without_effect_are_removed, random_nodes_stay)
