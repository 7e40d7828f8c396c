/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every element-wise operator that has a loop program, in every dtype: the
 * program, on the simulated device and on the CPU with each instruction set,
 * computes the operator's bits, for all pairs of special numbers, and on the CPU
 * for parts of any length. */

#define SUITE_FORKS true /* a process has one instruction set */
#include "support/effort.h"
#include "support/instruction_sets.h"
#include "support/samples.h"
#include "support/sim_device.h"

#include "codegen/loop_kernel.h"
#include "codegen/operator_programs.h"
#include "dispatch/structured.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <math.h>

/* LENGTHS: of parts, up to two vectors of bytes and more; PARTS of each
 * operator, whose lengths differ from operator to operator. */
enum {
    NUMBERS = 24,
    ELEMENTS = NUMBERS * NUMBERS + 3,
    LENGTHS = 131,
    PARTS = 6
};

/* Converted to each dtype; integers get what the conversion makes of them. */
static const double special[NUMBERS] = {
    0,       -0.0,     1,         -1,    INFINITY, -INFINITY, NAN,  0.5,
    -0.5,    2,        -3,        3.75,  88.5,     -103.25,   1e-3, -7e-6,
    0x1p-24, 0x1p-149, -0x1p-126, 65504, 3e38,     127,       -128, 1e10};

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                    CORE_U8,  CORE_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void begin(void)
{
    sim_find("sim");
}

static void begin_cpu(void)
{
    OK(core_device_find("cpu", &sim));
}

/* Of operators and dtypes, one in so many is tested. */
static size_t step = 1;

/* sim: NULL if the machine or the build does not have the set; "": the best. */
static void begin_isa(const char *set, const char *native)
{
    setenv("LIBCORE_CPU_ISA", set, 1);
    setenv("LIBCORE_CPU_NATIVE", native, 1);
    step = effort_is_long() ? 1 : 4;
    if (!*set || instruction_set_number(set) <= instruction_set_best())
        begin_cpu();
}

static void begin_avx2(void)
{
    begin_isa("avx2", "1");
}

static void begin_interpreted(void)
{
    begin_isa("", "0");
}

static void begin_baseline(void)
{
    begin_isa("baseline", "0");
}

static void end(void)
{
    drop_all();
}

/* The k-th operand: together they have all pairs. */
static core_tensor *operand_of(core_dtype dtype, uint32_t k)
{
    double values[ELEMENTS];
    const int64_t sizes[] = {ELEMENTS};

    for (int i = 0; i < ELEMENTS; i++)
        values[i] = special[(k == 0   ? i
                             : k == 1 ? i / NUMBERS
                                      : i * 7 + 5) %
                            NUMBERS];
    return typed(dtype, 1, sizes, values);
}

static core_tensor *on_sim(core_tensor *tensor)
{
    core_tensor *there;

    OK(core_to_copy(tensor, CORE_DTYPE_NONE, sim, false, -1, &there));
    return keep(there);
}

/* The dtype in which an operator computes. */
static core_dtype compute_of(const core_operator *op, const core_value *args,
                             core_dtype result)
{
    core_dtype common;

    if (op->data->promotion == CORE__PROMOTE_OWN)
        return result;
    common = core__elementwise_common_dtype(op, args);
    if (op->data->promotion == CORE__PROMOTE_FLOAT &&
        !core__dtype_is_floating(common))
        return CORE_F32;
    return common;
}

/* A program of one call, and its tensors: the output first. */
typedef struct written {
    core_loop_program *program;
    core_tensor *tensors[4];
} written;

static bool write_call(const core_operator *op, const core_value *args,
                       uint32_t nargs, core_tensor *result, written *out)
{
    core_dtype compute = compute_of(op, args, result->dtype);
    uint32_t inputs[4], ninputs = 0, noperands = 1, value, to;
    uint32_t places[CORE_LOOP_MAX_OPERANDS];
    core_tensor *given[4] = {result};
    core__loop_writer w;
    core_status status;

    core__loop_writer_begin(&w, 0);
    to = core__loop_write_operand(&w, result->dtype, CORE_LOOP_OPERAND_OUTPUT);
    for (uint32_t k = 0; k < op->data->operands; k++) {
        const core_value *v = &args[op->data->operand[k]];

        if (v->tag == CORE_VALUE_TENSOR) {
            uint32_t operand =
                core__loop_write_operand(&w, v->u.tensor->dtype, 0);

            given[noperands++] = v->u.tensor;
            inputs[ninputs++] = core__loop_write(
                &w, CORE_LOOP_LOAD, v->u.tensor->dtype, operand, 0, 0);
        } else if (v->tag != CORE_VALUE_NONE) {
            inputs[ninputs++] = core__loop_write_constant(&w, compute, *v);
        }
    }
    status =
        core__loop_write_operator(&w, core__operator_kernel_name(op), compute,
                                  inputs, ninputs, args, nargs, &value);
    if (status == CORE_OK) {
        core__loop_write(&w, CORE_LOOP_STORE, 0, to, value, 0);
        OK(core__loop_writer_finish(&w, &out->program, places));
        for (uint32_t k = 0; k < noperands; k++)
            if (places[k] != CORE__LOOP_NO_VALUE)
                out->tensors[places[k]] = given[k];
    }
    core__loop_writer_end(&w);
    ck_assert_msg(status == CORE_OK || status == CORE_ERROR_UNSUPPORTED, "%s",
                  core_error_message());
    return status == CORE_OK;
}

static bool is_nan(core_dtype dtype, const char *at)
{
    core_scalar value = core__element_load(dtype, at);

    return value.tag == CORE_VALUE_FLOAT && value.u.f != value.u.f;
}

static void same_bits(const char *what, core_tensor *expected, core_tensor *got)
{
    size_t size = (size_t)core__dtype_size(expected->dtype);
    static char wanted[8 * ELEMENTS], given[8 * ELEMENTS];

    ck_assert_int_eq(expected->numel, ELEMENTS);
    OK(core_tensor_read(expected, wanted, ELEMENTS * size));
    OK(core_tensor_read(got, given, ELEMENTS * size));
    for (size_t i = 0; i < ELEMENTS; i++) {
        const char *a = wanted + i * size, *b = given + i * size;

        ck_assert_msg(memcmp(a, b, size) == 0 || (is_nan(expected->dtype, a) &&
                                                  is_nan(expected->dtype, b)),
                      "%s: element %zu differs: %g, and eager %g", what, i,
                      core__element_load(expected->dtype, b).u.f,
                      core__element_load(expected->dtype, a).u.f);
    }
}

/* Parts of the operands, at any place: the same elements, and no others. */
static void compare_parts(const char *what, core__loop_kernel *kernel,
                          core_tensor *const *operands, uint32_t count)
{
    static char whole[8 * ELEMENTS], before[8 * ELEMENTS];
    static int64_t next;
    size_t size = (size_t)core__dtype_size(operands[0]->dtype);
    core_tensor *parts[4] = {NULL};
    char *out;

    OK(core_tensor_data(operands[0], (void **)&out));
    memcpy(whole, out, ELEMENTS * size);
    for (int i = 0; i < PARTS; i++) {
        int64_t n = 1 + next++ * 11 % LENGTHS;
        int64_t start = n * 37 % (ELEMENTS - LENGTHS);
        const core__loop_arguments arguments = {
            .tensors = parts, .ndim = 1, .sizes = &n};

        for (uint32_t k = 0; k < count; k++)
            OK(core_narrow(operands[k], 0, start, n, &parts[k]));
        memset(out, 0x5a, ELEMENTS * size);
        memcpy(before, out, ELEMENTS * size);
        OK(core__loop_kernel_run(kernel, &arguments));
        memcpy(before + start * size, out + start * size, n * size);
        ck_assert_msg(memcmp(before, out, ELEMENTS * size) == 0,
                      "%s: writes beyond %d elements", what, (int)n);
        ck_assert_msg(
            memcmp(whole + start * size, out + start * size, n * size) == 0,
            "%s: %d elements from %d on differ", what, (int)n, (int)start);
        for (uint32_t k = 0; k < count; k++)
            core_tensor_release(parts[k]);
    }
}

/* Compares one call; false if it has no program. */
static bool compare(const core_operator *op, core_value *args, uint32_t nargs,
                    const char *what)
{
    const int64_t sizes[] = {ELEMENTS};
    core__loop_kernel *kernel;
    core_tensor *on_device[4] = {NULL}, *result;
    core_value results[RESULTS] = {{0}};
    written w = {0};
    const core__loop_arguments arguments = {
        .tensors = on_device, .ndim = 1, .sizes = sizes};

    if (core_op_call((core_operator *)(uintptr_t)op, args, nargs, results, 1) !=
        CORE_OK)
        return false; /* not in this dtype */
    result = keep(results[0].u.tensor);
    if (!write_call(op, args, nargs, result, &w))
        return false;
    for (uint32_t k = 1; k < w.program->noperands; k++)
        on_device[k] = on_sim(w.tensors[k]);
    OK(core_empty(sizes, 1, result->dtype, sim, -1, &on_device[0]));
    keep(on_device[0]);
    OK(core__loop_kernel_build(sim, w.program, NULL, &kernel));
    OK(core__loop_kernel_run(kernel, &arguments));
    same_bits(what, result, on_device[0]);
    if (sim->synchronous)
        compare_parts(what, kernel, on_device, w.program->noperands);
    core__loop_kernel_release(kernel);
    core__loop_program_release(w.program);
    return true;
}

/* Operands of a dtype in place of those of a sample. */
static void replace_operands(const core_operator *op, arguments *a,
                             core_dtype dtype)
{
    for (uint32_t k = 0; k < op->data->operands; k++) {
        core_value *v = &a->values[op->data->operand[k]];

        if (op->data->operand[k] < a->count && v->tag == CORE_VALUE_TENSOR)
            v->u.tensor = operand_of(
                v->u.tensor->dtype == CORE_BOOL ? CORE_BOOL : dtype, k);
    }
}

static bool has_program(const char *name)
{
    for (uint32_t i = 0; i < core__noperator_programs; i++)
        if (strcmp(core__operator_programs[i].name, name) == 0)
            return true;
    return false;
}

/* What samples leave out, for dtypes[first] to those before dtypes[end]. */
typedef struct variation {
    const char *op, *words;
    uint32_t first, end;
    bool divides; /* the second operand must not be 0 */
} variation;

enum { INTEGERS = 4, BOOL = 9 }; /* where they begin in dtypes */

static const variation variations[] = {
    {"_div_rounded", "t:4 t:4 s:floor", 0, INTEGERS, false},
    {"_div_rounded", "t:4 t:4 s:trunc", 0, INTEGERS, false},
    {"_div_rounded", "t:4 t:4 s:floor", INTEGERS, BOOL, true},
    {"_div_rounded", "t:4 t:4 s:trunc", INTEGERS, BOOL, true},
    {"floor_divide", "t:4 t:4", INTEGERS, BOOL, true},
    {"fmod.Tensor", "t:4 t:4", INTEGERS, BOOL, true},
    {"remainder.Tensor", "t:4 t:4", INTEGERS, BOOL, true},
    {"gelu", "t:4 s:tanh", 0, INTEGERS, false},
    {"gelu_backward", "t:4 t:4 s:tanh", 0, INTEGERS, false},
    {"sub.Tensor", "t:4 t:4 f:-1.7", 0, INTEGERS, false},
    {"add.Tensor", "t:4 t:4", 0, DTYPES, false},
    {"add.Tensor", "t:4 t:4 i:3", 0, BOOL, false},
    {"add.Tensor", "t:4 t:4 i:-7", INTEGERS, BOOL, false},
    {"_clamp", "t:4 f:.3 f:-.2", 0, INTEGERS, false},
    {"_clamp", "t:4 i:-1000 i:1000", INTEGERS, BOOL, false},
    {"clamp.Tensor", "t:4 n t:4", 0, INTEGERS, false},
    {"clamp.Tensor", "t:4 t:4 n", 0, INTEGERS, false},
    {"hardshrink", "t:4 f:.1", 0, INTEGERS, false},
    {"nan_to_num", "t:4 f:.1", 0, INTEGERS, false},
    {"nan_to_num", "t:4 f:.1 f:1e30 f:-1e30", 0, INTEGERS, false},
    {"masked_fill.Scalar", "t:4 m:4 f:.1", 0, INTEGERS, false},
    {"masked_fill.Scalar", "t:4 m:4 i:-3", INTEGERS, BOOL, false},
    {"pow.Tensor_Scalar", "t:4 f:2", 0, INTEGERS, false},
    {"pow.Tensor_Scalar", "t:4 f:3", 0, INTEGERS, false},
    {"pow.Tensor_Scalar", "t:4 f:.5", 0, INTEGERS, false},
    {"pow.Tensor_Scalar", "t:4 f:-1", 0, INTEGERS, false},
    {"pow.Tensor_Scalar", "t:4 f:-2", 0, INTEGERS, false},
    {"pow.Tensor_Scalar", "t:4 f:-.5", 0, INTEGERS, false},
    {"pow.Tensor_Scalar", "t:4 f:1.7", 0, INTEGERS, false},
};

static bool is_varied(const char *name)
{
    core_operator *op;

    for (size_t i = 0; i < sizeof variations / sizeof *variations; i++) {
        OK(core_op_find(variations[i].op, &op));
        if (strcmp(core__operator_kernel_name(op), name) == 0)
            return true;
    }
    return false;
}

static uint8_t covered[1024]; /* by row of the table */

static void cover(const char *name, core_dtype compute)
{
    for (uint32_t i = 0; i < core__noperator_programs; i++)
        if (strcmp(core__operator_programs[i].name, name) == 0 &&
            core__operator_programs[i].types >> compute & 1)
            covered[i] = 1;
}

START_TEST(programs_compute_the_bits_of_operators)
{
    uint32_t compared = 0;

    if (!sim) {
        suite_skip("the instruction set is not available");
        return;
    }
    for (size_t s = 0; s < SAMPLES; s++) {
        core_operator *op;
        const char *kernel;

        OK(core_op_find(samples[s].op, &op));
        if (op->family != CORE__FAMILY_ELEMENTWISE || is_in_place(&samples[s]))
            continue;
        kernel = core__operator_kernel_name(op);
        if (!has_program(kernel))
            continue;
        for (uint32_t d = 0; d < DTYPES; d++) {
            char what[256];
            arguments a;

            if ((s + d) % step != 0)
                continue;
            parse_sample(&a, &samples[s], samples[s].words);
            replace_operands(op, &a, dtypes[d]);
            snprintf(what, sizeof what, "%s %s of %s", samples[s].op,
                     samples[s].words, core__dtype_name(dtypes[d]));
            if (compare(op, a.values, a.count, what)) {
                compared++;
                cover(kernel, compute_of(op, a.values, dtypes[d]));
            }
            drop_all();
        }
    }
    for (uint32_t i = 0; i < core__noperator_programs && step == 1; i++)
        ck_assert_msg(covered[i] || is_varied(core__operator_programs[i].name),
                      "no sample tests %s", core__operator_programs[i].name);
    ck_assert_uint_gt(compared, 800 / step);
}
END_TEST

START_TEST(variants_compute_the_bits_of_operators)
{
    const variation *v = &variations[_i];

    for (uint32_t d = v->first; d < v->end; d++) {
        check c = {v->op, v->words, 0, 1};
        char what[256];
        arguments a;

        parse(&a, &c);
        replace_operands(a.op, &a, dtypes[d]);
        if (v->divides)
            a.values[1].u.tensor =
                CALL(bitwise_or_scalar, a.values[1].u.tensor, core_int(1));
        snprintf(what, sizeof what, "%s %s of %s", c.op, c.words,
                 core__dtype_name(dtypes[d]));
        ck_assert_msg(compare(a.op, a.values, a.count, what), "%s: %s", what,
                      core_error_message());
        drop_all();
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        programs_compute_the_bits_of_operators,
    };
    const suite_loop loops[] = {
        {variants_compute_the_bits_of_operators, 0,
         sizeof variations / sizeof *variations},
    };
    const test_suite suites[] = {
        {.name = "operators as loop programs, sim",
         .setup = begin,
         .teardown = end,
         .seconds = 300,
         SUITE_TESTS(tests),
         SUITE_LOOPS(loops)},
        {.name = "operators as loop programs, cpu",
         .setup = begin_cpu,
         .teardown = end,
         .seconds = 300,
         SUITE_TESTS(tests),
         SUITE_LOOPS(loops)},
        {.name = "operators as loop programs, cpu with AVX2",
         .setup = begin_avx2,
         .teardown = end,
         .seconds = 300,
         SUITE_TESTS(tests)},
        {.name = "operators as loop programs, interpreted",
         .setup = begin_interpreted,
         .teardown = end,
         .seconds = 300,
         SUITE_TESTS(tests)},
        {.name = "operators as loop programs, baseline",
         .setup = begin_baseline,
         .teardown = end,
         .seconds = 300,
         SUITE_TESTS(tests)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
