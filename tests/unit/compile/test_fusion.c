/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused kernels of compiled functions: which operators are in one, what explain
 * says, options, and kernels that cannot be built. */

#define SUITE_FORKS true /* counts and settings are those of a process */
#include "support/sim_device.h"
#include "support/training.h"

#include "compile/compiled/compiled.h"
#include "compile/prepare/prepared.h"

#include <libcore/capture.h>

static core_compiled *compile(core_tensor_function function, world *w,
                              uint32_t codegen)
{
    return compile_with(function, w,
                        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH,
                                               .codegen = codegen});
}

static const core__prepared_facts *facts_of(core_compiled *compiled)
{
    const char *reason;
    static core__prepared_facts copy; /* without what it points to */
    core__prepared_facts *facts =
        core__prepared_describe(compiled->entries[0]->program, &reason);

    ck_assert_msg(facts != NULL, "not prepared: %s", reason);
    copy = *facts;
    core__prepared_facts_release(facts);
    return &copy;
}

/* Compares three calls.  The caller releases the compiled function. */
static core_compiled *compare_fused(core_tensor_function function,
                                    size_t ninputs)
{
    world eager = world_of(ninputs, 8, 8), traced = world_of(ninputs, 8, 8);
    core_compiled *compiled =
        compile(function, &traced, CORE_COMPILE_CODEGEN_ON);

    for (int i = 0; i < 3; i++)
        same_call(function, &eager, compiled, &traced);
    return compiled;
}

/* --------------------------------------------------------------- groups -- */

/* relu(x y + x) / 2 */
COMPILED_FUNCTION(chain)
{
    core_tensor *y = T(mul, x[0], x[1]);

    y = T(relu, T(add, y, x[0], core_int(1)));
    out[0] = own(T(mul_scalar, y, core_float(.5)));
    *noutputs = 1;
    return finish();
}

START_TEST(a_chain_is_one_kernel)
{
    core_compile_counts before = compile_counts();
    core_compiled *compiled = compare_fused(chain, 2);

    ck_assert_uint_eq(facts_of(compiled)->launches, 1);
    ck_assert_uint_eq(facts_of(compiled)->nodes, 4);
    ck_assert_uint_eq(compile_counts().fused_kernels, before.fused_kernels + 1);
    EXPLAINS(compiled, "\"inputs\": 2");
    /* Of 11 reads and writes of operators, 3 are left. */
    EXPLAINS(compiled, "\"bytes_saved\": 1792");
    EXPLAINS(compiled, "\"operator_by_operator\": []");
    core_compiled_release(compiled);
}
END_TEST

/* The sum is read in the group, by a product, and by the caller. */
COMPILED_FUNCTION(reads_inside)
{
    core_tensor *sum = T(add, x[0], x[1], core_int(1));

    out[0] = own(sum);
    out[1] = own(T(mm, sum, sum));
    out[2] = own(T(mul, T(neg, sum), x[1]));
    *noutputs = 3;
    return finish();
}

START_TEST(results_that_others_read_are_outputs)
{
    core_compiled *compiled = compare_fused(reads_inside, 2);

    ck_assert_uint_eq(facts_of(compiled)->launches, 2);
    EXPLAINS(compiled, "\"outputs\": 2");
    core_compiled_release(compiled);
}
END_TEST

/* The product must run before the last sum, but not between the others. */
COMPILED_FUNCTION(waits_for_a_product)
{
    core_tensor *y = T(exp, T(neg, x[0]));
    core_tensor *product = T(mm, x[0], x[1]);

    out[0] = own(T(add, y, product, core_int(1)));
    *noutputs = 1;
    return finish();
}

START_TEST(a_group_runs_when_all_that_it_reads_is_there)
{
    core_compiled *compiled = compare_fused(waits_for_a_product, 2);

    ck_assert_uint_eq(facts_of(compiled)->launches, 2);
    EXPLAINS(compiled, "\"operators\": 3");
    core_compiled_release(compiled);
}
END_TEST

/* What is before and after a product cannot be one kernel. */
COMPILED_FUNCTION(around_a_product)
{
    core_tensor *y = T(exp, T(neg, x[0]));

    y = T(add, T(mm, y, x[1]), y, core_int(1));
    out[0] =
        own(T(sum_dim, T(tanh, y), (int64_t[]){1}, 1, true, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(products_and_sums_end_groups)
{
    core_compiled *compiled = compare_fused(around_a_product, 2);

    /* Two groups, the product, and the sum. */
    ck_assert_uint_eq(facts_of(compiled)->launches, 4);
    EXPLAINS(compiled, "\"reason\": \"it is not element-wise\"");
    core_compiled_release(compiled);
}
END_TEST

/* Two that do not read each other, but the same input. */
COMPILED_FUNCTION(two_of_one)
{
    out[0] = own(T(exp, x[0]));
    out[1] = own(T(mul, x[0], x[1]));
    *noutputs = 2;
    return finish();
}

START_TEST(operators_of_one_input_are_one_kernel)
{
    core_compiled *compiled = compare_fused(two_of_one, 2);

    ck_assert_uint_eq(facts_of(compiled)->launches, 1);
    core_compiled_release(compiled);
}
END_TEST

/* Updates of three inputs by three others, in several operators each. */
COMPILED_FUNCTION(updates)
{
    for (int i = 0; i < 3; i++) {
        OK(core_mul_scalar_(x[i], core_float(.9)));
        OK(core_add_(x[i], x[3 + i], core_float(-.5)));
    }
    *noutputs = 0;
    return finish();
}

START_TEST(small_updates_are_one_kernel)
{
    core_compiled *compiled = compare_fused(updates, 6);

    ck_assert_uint_eq(facts_of(compiled)->launches, 1);
    EXPLAINS(compiled, "\"inputs\": 6");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(large_updates_are_left_alone)
{
    const int64_t sizes[] = {160, 160};
    world w = {.device = program_device, .ninputs = 6};
    core_compiled *compiled = compile(updates, &w, CORE_COMPILE_CODEGEN_ON);

    for (size_t i = 0; i < w.ninputs; i++) {
        OK(core_full(sizes, 2, core_float(.01), CORE_F32, w.device,
                     &w.inputs[i]));
        keep(w.inputs[i]);
    }
    OK(core_compiled_call(compiled, w.inputs, w.ninputs, NULL, 0));
    ck_assert_uint_eq(facts_of(compiled)->launches, 3);
    core_compiled_release(compiled);
}
END_TEST

/* Gradients that are computed are not kept for a common kernel. */
COMPILED_FUNCTION(updates_of_gradients)
{
    core_tensor *first = T(t, T(mm, x[2], x[2]));
    core_tensor *second = T(t, T(mm, first, x[2]));

    OK(core_add_(x[0], first, core_float(-.5)));
    OK(core_add_(x[1], second, core_float(-.5)));
    *noutputs = 0;
    return finish();
}

START_TEST(updates_run_when_their_gradients_are_there)
{
    core_compiled *compiled = compare_fused(updates_of_gradients, 3);

    ck_assert_uint_eq(facts_of(compiled)->launches, 2 + 2);
    core_compiled_release(compiled);
}
END_TEST

/* The sums of two branches, which a product reads. */
COMPILED_FUNCTION(branches)
{
    core_tensor *a = T(add, T(mm, x[0], x[1]), x[2], core_int(1));
    core_tensor *b = T(mul, T(mm, x[1], x[0]), x[3]);

    out[0] = own(T(mm, a, b));
    *noutputs = 1;
    return finish();
}

START_TEST(small_groups_of_two_branches_are_one_kernel)
{
    core_compiled *compiled = compare_fused(branches, 4);

    ck_assert_uint_eq(facts_of(compiled)->launches, 3 + 1);
    core_compiled_release(compiled);
}
END_TEST

enum { LONG_CHAIN = 250 };

COMPILED_FUNCTION(long_chain)
{
    core_tensor *y = core_tensor_retain(x[0]);

    for (int i = 0; i < LONG_CHAIN; i++) {
        core_tensor *next;

        if (i % 2)
            OK(core_add(y, x[1], core_int(1), &next));
        else
            OK(core_mul_scalar(y, core_float(.75), &next));
        core_tensor_release(y);
        y = next;
    }
    out[0] = y;
    *noutputs = 1;
    return CORE_OK;
}

START_TEST(long_chains_are_several_kernels)
{
    core_compiled *compiled = compare_fused(long_chain, 2);
    uint32_t launches = facts_of(compiled)->launches;

    ck_assert_uint_ge(launches, LONG_CHAIN / CORE__GROUP_MEMBERS + 1);
    ck_assert_uint_le(launches, LONG_CHAIN / 32);
    EXPLAINS(compiled, "the group would be too large");
    core_compiled_release(compiled);
}
END_TEST

/* A written input takes the result of a kernel without a copy; the old content
 * is read in the kernel, and is a result too. */
COMPILED_FUNCTION(writes)
{
    out[0] = own(T(mul, x[1], x[0]));
    OK(core_add_(x[1], x[0], core_float(.5)));
    OK(core_mul_(x[1], x[1]));
    *noutputs = 1;
    return finish();
}

START_TEST(inputs_are_written_by_the_kernel)
{
    core_compiled *compiled = compare_fused(writes, 2);

    ck_assert_uint_eq(facts_of(compiled)->launches, 1);
    core_compiled_release(compiled);
}
END_TEST

/* A single operator, a factory, random numbers, a view of a result. */
COMPILED_FUNCTION(little_to_fuse)
{
    core_tensor *noise = T(rand_like, x[0], CORE_DTYPE_NONE, NULL, -1);

    out[0] = own(T(mul, x[0], T(t, T(neg, noise))));
    *noutputs = 1;
    return finish();
}

START_TEST(single_operators_are_left_alone)
{
    core_compiled *compiled = compare_fused(little_to_fuse, 1);

    EXPLAINS(compiled, "\"kernels\": 0");
    EXPLAINS(compiled, "no two operators can be in one kernel");
    EXPLAINS(compiled, "\"reason\": \"it is a view\"");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(equal_groups_share_a_kernel)
{
    core_compiled *first = compare_fused(chain, 2);
    core_compile_counts before = compile_counts();
    core_compiled *second = compare_fused(chain, 2);

    ck_assert_uint_eq(facts_of(second)->launches, 1);
    ck_assert_uint_eq(compile_counts().fused_kernels, before.fused_kernels);
    core_compiled_release(first);
    core_compiled_release(second);
    second = compare_fused(chain, 2);
    ck_assert_uint_eq(compile_counts().fused_kernels, before.fused_kernels + 1);
    core_compiled_release(second);
}
END_TEST

/* -------------------------------------------------------------- training -- */

COMPILED_FUNCTION(smooth)
{
    core_tensor *y = T(mm, x[0], x[1]);

    y = T(mul, T(sigmoid, y), T(tanh, y));
    out[0] = own(T(mean, T(mul, y, x[0]), CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

static world trained(void)
{
    world w = world_of(2, 8, 8);

    leaf(w.inputs[0]);
    leaf(w.inputs[1]);
    return w;
}

START_TEST(forward_and_backward_have_fused_kernels)
{
    world eager = trained(), traced = trained();
    core_compile_counts before = compile_counts();
    core_compiled *compiled = compile(smooth, &traced, CORE_COMPILE_CODEGEN_ON);

    for (int i = 0; i < 3; i++)
        same_training(smooth, &eager, compiled, &traced);
    ck_assert_uint_ge(compile_counts().fused_kernels, before.fused_kernels + 2);
    core_compiled_release(compiled);
}
END_TEST

/* --------------------------------------------------------------- options -- */

/* NULL: the operators are fused. */
static void expect_reason(uint32_t codegen, const char *reason)
{
    world w = world_of(2, 8, 8);
    core_compiled *compiled = compile(chain, &w, codegen);
    core_tensor *out;

    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    ck_assert_uint_eq(facts_of(compiled)->launches, reason ? 4 : 1);
    if (reason)
        EXPLAINS(compiled, reason);
    core_compiled_release(compiled);
}

START_TEST(options_and_the_setting_choose)
{
    expect_reason(CORE_COMPILE_CODEGEN_OFF, "codegen is off");
    /* In a queue a launch less is worth a kernel. */
    expect_reason(CORE_COMPILE_CODEGEN_AUTO,
                  program_device->synchronous ? "is not expected to be faster"
                                              : NULL);
    OK(core_setting_set("LIBCORE_COMPILE_CODEGEN", "on"));
    expect_reason(CORE_COMPILE_CODEGEN_AUTO, NULL);
    expect_reason(CORE_COMPILE_CODEGEN_OFF, "codegen is off");
    OK(core_setting_set("LIBCORE_COMPILE_CODEGEN", "off"));
    expect_reason(CORE_COMPILE_CODEGEN_AUTO, "codegen is off");
    expect_reason(CORE_COMPILE_CODEGEN_ON, NULL);
    OK(core_setting_set("LIBCORE_COMPILE_CODEGEN", NULL));
}
END_TEST

/* A number of explain; 0 if it is not there. */
static uint64_t number_of(core_compiled *compiled, const char *name)
{
    unsigned long long number = 0;
    char *json;
    const char *at;

    OK(core_compiled_explain(compiled, &json));
    at = strstr(json, name);
    if (at)
        sscanf(at + strlen(name), "\": %llu", &number);
    core_text_free(json);
    return number;
}

/* Which one is faster depends on the machine; the choice follows from it. */
static void choose_for(int64_t elements)
{
    world eager = {.device = program_device, .ninputs = 2}, traced = eager;
    core_compiled *compiled =
        compile_with(chain, &traced,
                     (core_compile_options){.mode = CORE_COMPILE_MAX_AUTOTUNE,
                                            .flags = CORE_COMPILE_FULLGRAPH});
    uint64_t fused, operators;

    for (size_t i = 0; i < 2; i++) {
        OK(core_randn(&elements, 1, NULL, CORE_F32, program_device,
                      &eager.inputs[i]));
        keep(eager.inputs[i]);
        traced.inputs[i] = eager.inputs[i];
    }
    for (int i = 0; i < 2; i++)
        same_call(chain, &eager, compiled, &traced);
    fused = number_of(compiled, "fused_ns");
    operators = number_of(compiled, "operators_ns");
    ck_assert_uint_gt(fused, 0);
    ck_assert_uint_gt(operators, 0);
    ck_assert(explains(compiled, "\"tile\": "));
    ck_assert(explains(compiled, "\"threads\": "));
    if (strcmp(core_device_name(program_device), "cpu") == 0) {
        ck_assert_uint_le(number_of(compiled, "tile"), 2048);
        ck_assert_uint_le(number_of(compiled, "threads"), 1);
    } else { /* it divides loops itself */
        ck_assert_uint_eq(number_of(compiled, "tile"), 0);
        ck_assert_uint_eq(number_of(compiled, "threads"), 0);
    }
    ck_assert_uint_eq(facts_of(compiled)->launches, fused <= operators ? 1 : 4);
    ck_assert(explains(compiled, "its operators are faster") ==
              (fused > operators));
    core_compiled_release(compiled);
}

START_TEST(groups_are_measured_if_that_is_asked_for)
{
    choose_for(16);
    choose_for(100000);
}
END_TEST

/* ----------------------------------------------------------- measuring -- */

static core_codegen_interface real;
static uint64_t kernel_calls;

static core_status counting_launch(void *device, void *kernel,
                                   const core_loop_launch *launch)
{
    kernel_calls++;
    return real.launch(device, kernel, launch);
}

/* A wait ends each round: with as many calls, the kernel and the operators have
 * the same share of it. */
START_TEST(a_kernel_and_its_operators_are_called_equally_often)
{
    enum { OPERATORS = 4, INPUTS = 2 };
    const int64_t elements = 16;
    world w = {.device = program_device, .ninputs = INPUTS};
    core_compiled *compiled =
        compile_with(chain, &w,
                     (core_compile_options){.mode = CORE_COMPILE_MAX_AUTOTUNE,
                                            .flags = CORE_COMPILE_FULLGRAPH});
    core_codegen_interface *table = &program_device->interfaces.codegen;
    uint64_t launches, operator_calls;
    core_tensor *out;

    OK(core_setting_set("LIBCORE_CACHE", "0")); /* nothing is known */
    sim_find("sim");
    real = *table;
    table->launch = counting_launch;
    for (size_t i = 0; i < INPUTS; i++) {
        OK(core_full(&elements, 1, core_int(1), CORE_F32, program_device,
                     &w.inputs[i]));
        keep(w.inputs[i]);
    }
    OK(core_device_synchronize(program_device));
    launches = counters_of(0).launches;
    OK(core_compiled_call(compiled, w.inputs, INPUTS, &out, 1));
    OK(core_device_synchronize(program_device));
    core_tensor_release(out);
    /* Inputs of ones were filled.  The call, too, has launched the kernel or the
     * operators. */
    operator_calls = counters_of(0).launches - launches - INPUTS - kernel_calls;
    ck_assert_uint_eq(operator_calls % OPERATORS, 0);
    operator_calls /= OPERATORS;
    if (facts_of(compiled)->launches == 1)
        kernel_calls--;
    else
        operator_calls--;
    ck_assert_uint_gt(kernel_calls, 1);
    ck_assert_uint_eq(kernel_calls, operator_calls);
    core_compiled_release(compiled);
}
END_TEST

/* Calls that measure would become part of the graph. */
START_TEST(nothing_is_measured_in_a_capture)
{
    const int64_t elements = 100000;
    world w = {.device = program_device, .ninputs = 2};
    core_compiled *compiled =
        compile_with(chain, &w,
                     (core_compile_options){.mode = CORE_COMPILE_MAX_AUTOTUNE,
                                            .flags = CORE_COMPILE_FULLGRAPH});
    core_tensor *out, *expected;
    core_stream *stream;
    core_graph *graph;
    size_t count = 1;

    for (size_t i = 0; i < 2; i++) {
        OK(core_randn(&elements, 1, NULL, CORE_F32, program_device,
                      &w.inputs[i]));
        keep(w.inputs[i]);
    }
    OK(core_setting_set("LIBCORE_CACHE", "0"));
    OK(chain(&w, w.inputs, 2, &expected, &count));
    OK(core_stream_create(program_device, &stream));
    OK(core_device_synchronize(program_device));
    OK(core_capture_begin(stream, NULL));
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    OK(core_capture_end(stream, &graph));
    ck_assert_uint_eq(core_graph_size(graph), 4);
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    same_bits("output", 0, expected, out);
    ck_assert_uint_eq(number_of(compiled, "fused_ns"), 0);
    core_tensor_release(out);
    core_tensor_release(expected);
    core_graph_release(graph);
    core_stream_release(stream);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(large_chains_are_fused_without_being_asked_for)
{
    const int64_t sizes[] = {1 << 20};
    world w = {.device = program_device, .ninputs = 2};
    core_compiled *compiled = compile(chain, &w, CORE_COMPILE_CODEGEN_AUTO);
    core_tensor *out;

    for (int i = 0; i < 2; i++) {
        OK(core_full(sizes, 1, core_float(i + .5), CORE_F32, w.device,
                     &w.inputs[i]));
        keep(w.inputs[i]);
    }
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    ck_assert_uint_eq(facts_of(compiled)->launches, 1);
    core_compiled_release(compiled);
}
END_TEST

/* --------------------------------------------------------------- failures -- */

START_TEST(a_kernel_that_cannot_be_built_leaves_its_operators)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile(chain, &traced, CORE_COMPILE_CODEGEN_ON);
    core_compile_counts before = compile_counts();

    sim_find("sim");
    OK(control->fault(0, SIM_FAULT_PLAN, 1));
    same_call(chain, &eager, compiled, &traced);
    OK(control->fault(0, SIM_FAULT_PLAN, 0));
    same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(facts_of(compiled)->launches, 4);
    ck_assert_uint_eq(compile_counts().refused_kernels,
                      before.refused_kernels + 1);
    EXPLAINS(compiled, "no group of operators has a kernel");
    EXPLAINS(compiled, "injected");
    core_compiled_release(compiled);
}
END_TEST

/* (x + x) mod y, of integers */
COMPILED_FUNCTION(remainders)
{
    out[0] = own(T(remainder, T(add, x[0], x[0], core_int(1)), x[1]));
    *noutputs = 1;
    return finish();
}

START_TEST(an_error_of_a_kernel_names_its_operators_and_device)
{
    const int64_t sizes[] = {2, 3};
    world w = {.device = program_device, .ninputs = 2};
    core_compiled *compiled = compile(remainders, &w, CORE_COMPILE_CODEGEN_ON);
    core_tensor *out;

    for (int i = 0; i < 2; i++) {
        OK(core_full(sizes, 2, core_int(3), CORE_I32, w.device, &w.inputs[i]));
        keep(w.inputs[i]);
    }
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    ck_assert_uint_eq(facts_of(compiled)->launches, 1);
    OK(core_zero_(w.inputs[1]));
    FAILS(core_compiled_call(compiled, w.inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT,
          "add.Tensor, remainder.Tensor (one kernel on \"cpu\")");
    FAILS(core_compiled_call(compiled, w.inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "the results are i32 [2, 3]");
    ck_assert_ptr_null(out);
    core_error_clear();
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_device_without_loop_programs_runs_operators)
{
    expect_reason(CORE_COMPILE_CODEGEN_ON,
                  "the device does not provide core.codegen");
}
END_TEST

static void on_sim_without(void)
{
    setenv("LIBCORE_SIM_CODEGEN", "0", 1);
    on_sim();
}

int main(void)
{
    const TTest *const tests[] = {
        a_chain_is_one_kernel,
        results_that_others_read_are_outputs,
        a_group_runs_when_all_that_it_reads_is_there,
        products_and_sums_end_groups,
        operators_of_one_input_are_one_kernel,
        small_updates_are_one_kernel,
        large_updates_are_left_alone,
        updates_run_when_their_gradients_are_there,
        small_groups_of_two_branches_are_one_kernel,
        long_chains_are_several_kernels,
        inputs_are_written_by_the_kernel,
        single_operators_are_left_alone,
        equal_groups_share_a_kernel,
        forward_and_backward_have_fused_kernels,
        options_and_the_setting_choose,
        groups_are_measured_if_that_is_asked_for,
    };
    const TTest *const cpu_tests[] = {
        large_chains_are_fused_without_being_asked_for,
        an_error_of_a_kernel_names_its_operators_and_device};
    const TTest *const sim_tests[] = {
        a_kernel_that_cannot_be_built_leaves_its_operators,
        a_kernel_and_its_operators_are_called_equally_often,
        nothing_is_measured_in_a_capture};
    const TTest *const tests_without[] = {
        a_device_without_loop_programs_runs_operators};
    const test_suite suites[] = {
        {.name = "compile/fusion on cpu",
         .setup = on_cpu,
         .teardown = drop_all,
         SUITE_TESTS(tests)},
        {.name = "compile/fusion on sim",
         .setup = on_sim,
         .teardown = drop_all,
         SUITE_TESTS(tests)},
        {.name = "compile/fusion, large and errors",
         .setup = on_cpu,
         .teardown = drop_all,
         SUITE_TESTS(cpu_tests)},
        {.name = "compile/fusion, failures",
         .setup = on_sim,
         .teardown = drop_all,
         SUITE_TESTS(sim_tests)},
        {.name = "compile/fusion, without core.codegen",
         .setup = on_sim_without,
         .teardown = drop_all,
         SUITE_TESTS(tests_without)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
