/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Native code of loop programs: it computes the bits of interpreted kernels and
 * of operators, its memory is never writable and executable at once, and where
 * executable memory is refused, kernels are interpreted. */

#define SUITE_FORKS true

#include "support/cpu.h"
#include "support/sanitizers.h"

#include "codegen/code_memory.h"
#include "codegen/native.h"

#include <libcore/codegen.h>

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

enum { SPECIAL = 44, MOST = 4096, INSTRUCTIONS = 700, LONGEST = 70 };

/* ------------------------------------------------------------- programs -- */

static core_loop_instruction instructions[INSTRUCTIONS];
static core_loop_operand operands[8];
static core_string names[8];
static core_loop_program program;

static void begin(core_dtype result)
{
    operands[0] =
        (core_loop_operand){.dtype = result, .flags = CORE_LOOP_OPERAND_OUTPUT};
    program = (core_loop_program){.struct_size = sizeof program,
                                  .noperands = 1,
                                  .noutputs = 1,
                                  .instructions = instructions,
                                  .operands = operands,
                                  .names = names};
}

static uint32_t emit(uint32_t opcode, core_dtype type, uint32_t a, uint32_t b,
                     uint32_t c)
{
    ck_assert_uint_lt(program.ninstructions, INSTRUCTIONS);
    instructions[program.ninstructions] =
        (core_loop_instruction){.opcode = (uint8_t)opcode,
                                .type = (uint8_t)type,
                                .a = a,
                                .b = b,
                                .c = c};
    return program.ninstructions++;
}

static uint32_t load(core_dtype type, uint32_t flags)
{
    operands[program.noperands].dtype = type;
    operands[program.noperands].flags = flags;
    return emit(CORE_LOOP_LOAD, type, program.noperands++, 0, 0);
}

static uint32_t function(const char *name, core_dtype type, uint32_t a,
                         uint32_t b)
{
    names[program.nnames] = core_sdk_string(name);
    return emit(CORE_LOOP_FUNCTION, type, a, b, program.nnames++);
}

static void end(uint32_t value)
{
    emit(CORE_LOOP_STORE, CORE_DTYPE_NONE, 0, value, 0);
}

static cpu_tile_kernel *build(bool native)
{
    core_host host = cpu_test_host;
    void *kernel = NULL;

    cpu_native_setting = native ? NULL : "0";
    cpu_native_choose(&host);
    ck_assert_msg(cpu_codegen.build(NULL, &program, NULL, &kernel) == CORE_OK,
                  "%s", cpu_message);
    return kernel;
}

static void destroy(cpu_tile_kernel *kernel)
{
    cpu_codegen.destroy(NULL, kernel);
}

static void launch(cpu_tile_kernel *kernel, const test_loop *loop)
{
    const core_loop_launch now = {.struct_size = sizeof now,
                                  .loop = &loop->loop};

    ck_assert_int_eq(cpu_codegen.launch(NULL, kernel, &now), CORE_OK);
}

static void launch_divided(cpu_tile_kernel *kernel, const test_loop *loop,
                           uint32_t tile, uint32_t threads)
{
    const core_loop_launch now = {.struct_size = sizeof now,
                                  .loop = &loop->loop,
                                  .tile = tile,
                                  .threads = threads};

    ck_assert_int_eq(cpu_codegen.launch(NULL, kernel, &now), CORE_OK);
}

/* False where no native code is made: then the test is skipped. */
static bool open_native(const char *isa)
{
    if (!CPU_NATIVE || has_sanitizer() || strcmp(isa, "baseline") == 0) {
        suite_skip("no native code for %s here", isa);
        return false;
    }
    return cpu_open_isa(isa);
}

/* ------------------------------------------------------------- elements -- */

/* Numbers at which operators differ, and ties of roundings to bf16 and f16. */
static const double special[SPECIAL] = {0,           -0.0,
                                        1,           -1,
                                        INFINITY,    -INFINITY,
                                        NAN,         0.5,
                                        -0.5,        1.5,
                                        -2.5,        2,
                                        -3,          3.75,
                                        88.5,        -103.25,
                                        1e-3,        -7e-6,
                                        0x1p-24,     0x1p-149,
                                        -0x1p-126,   65504,
                                        65520,       3e38,
                                        -3.3e38,     127,
                                        -128,        32768,
                                        2147483648., -2147483648.,
                                        0x1.01p0,    0x1.03p0,
                                        0x1.002p0,   0x1.006p0,
                                        -0x1.01p0,   0x1p-15,
                                        0x1.8p-24,   0x1.fffffep127,
                                        0.625,       -0.625,
                                        10.1,        -11.2,
                                        1.0000001,   255};

static uint32_t size_of(core_dtype dtype)
{
    return core_sdk_itemsize(dtype);
}

static bool is_float(core_dtype dtype)
{
    return dtype == CORE_F32 || dtype == CORE_F16 || dtype == CORE_BF16;
}

static void put(core_dtype dtype, char *to, double value)
{
    float single = (float)value;
    uint32_t bits;
    int64_t whole =
        value >= -2147483648. && value <= 2147483647. ? (int64_t)value : 77;

    memcpy(&bits, &single, 4);
    if (dtype == CORE_F32) {
        memcpy(to, &bits, 4);
    } else if (is_float(dtype)) {
        /* Any bits are a number; the special ones of f32 are near others. */
        uint16_t half = dtype == CORE_BF16
                            ? (uint16_t)(bits >> 16)
                            : (uint16_t)(bits >> 13 ^ bits >> 16);

        memcpy(to, &half, 2);
    } else if (dtype == CORE_BOOL) {
        *to = whole & 1;
    } else {
        memcpy(to, &whole, size_of(dtype));
    }
}

/* An operand of n elements: which differ from operand to operand, so that all
 * pairs meet. */
static void fill(core_dtype dtype, char *to, int64_t n, int operand,
                 uint32_t *state)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t at = operand == 0 ? k : operand == 1 ? k / SPECIAL : k * 7 + 5;
        double value = special[at % SPECIAL];

        if (k >= SPECIAL * SPECIAL)
            value = (double)random_float(state) * pow(2, (int)(k % 60) - 30);
        put(dtype, to + k * size_of(dtype), value);
    }
}

static bool is_nan(core_dtype dtype, const char *at)
{
    uint32_t bits = 0;

    memcpy(&bits, at, size_of(dtype));
    return dtype == CORE_F32    ? (bits & 0x7fffffff) > 0x7f800000
           : dtype == CORE_BF16 ? (bits & 0x7fff) > 0x7f80
           : dtype == CORE_F16  ? (bits & 0x7fff) > 0x7c00
                                : false;
}

/* The same bits, or both NaN. */
static void same(core_dtype dtype, const char *a, const char *b, int64_t n,
                 const char *what)
{
    const uint32_t size = size_of(dtype);

    for (int64_t k = 0; k < n; k++) {
        uint64_t x = 0, y = 0;

        memcpy(&x, a + k * size, size);
        memcpy(&y, b + k * size, size);
        ck_assert_msg(x == y || (is_nan(dtype, a + k * size) &&
                                 is_nan(dtype, b + k * size)),
                      "%s: element %d is %llx instead of %llx", what, (int)k,
                      (unsigned long long)x, (unsigned long long)y);
    }
}

/* Memory of the operands, and what a kernel must not write. */
static char data[4][MOST * 8 + 64], results[3][MOST * 8 + 64];

/* Interpreted, native and, unless it is NULL, the operator: the same bits. */
static void compare(cpu_tile_kernel *tiles, cpu_tile_kernel *native,
                    const char *name, int64_t n)
{
    const core_dtype type = operands[0].dtype;
    const core_value arguments[3] = {{0}, {0}, value_int(1)};
    char what[128];
    test_loop loop;

    snprintf(what, sizeof what, "%s of dtype %u, %d elements",
             name ? name : "program", operands[1].dtype, (int)n);
    for (int k = 0; k < (name ? 3 : 2); k++) {
        memset(results[k], 0xa5, sizeof results[k]);
        loop_dense(&loop, 1, n);
        loop_dense_operand(&loop, results[k], type);
        for (uint32_t i = 1; i < program.noperands; i++)
            loop_dense_operand(&loop, data[i], operands[i].dtype);
        if (k == 2)
            ck_assert_int_eq(cpu_launch(name, &loop.loop, arguments, 3),
                             CORE_OK);
        else
            launch(k == 0 ? tiles : native, &loop);
        ck_assert_msg(results[k][n * size_of(type)] == (char)0xa5,
                      "%s: writes beyond its output", what);
    }
    same(type, results[1], results[0], n, what);
    if (name)
        same(type, results[1], results[2], n, what);
}

/* All tails, and all pairs of numbers.  Whether there is native code. */
static bool compare_all(const char *name)
{
    cpu_tile_kernel *tiles = build(false), *native = build(true);
    const bool is_native = native->ngroups > 0;
    uint32_t state = 3;

    for (uint32_t i = 1; i < program.noperands; i++)
        fill(operands[i].dtype, data[i], MOST, (int)i - 1, &state);
    for (int64_t n = 1; is_native && n <= LONGEST; n++)
        compare(tiles, native, name, n);
    if (is_native)
        compare(tiles, native, name, MOST - 5);
    destroy(tiles);
    destroy(native);
    return is_native;
}

/* ---------------------------------------------------------------- tests -- */

typedef struct operation {
    uint8_t opcode, inputs;
    const char *name; /* the operator; NULL: differs with the dtype */
    bool bools;       /* also of bool */
    bool floats, integers;
} operation;

static const operation operations[] = {
    {CORE_LOOP_ADD, 2, "add.Tensor", false, true, true},
    {CORE_LOOP_SUB, 2, "sub.Tensor", false, true, true},
    {CORE_LOOP_MUL, 2, "mul.Tensor", false, true, true},
    {CORE_LOOP_DIV, 2, "div.Tensor", false, true, false},
    {CORE_LOOP_FMA, 3, NULL, false, true, false},
    {CORE_LOOP_NEG, 1, "neg", false, true, true},
    {CORE_LOOP_ABS, 1, "abs", false, true, true},
    {CORE_LOOP_SQRT, 1, "sqrt", false, true, false},
    {CORE_LOOP_CEIL, 1, "ceil", false, true, false},
    {CORE_LOOP_FLOOR, 1, "floor", false, true, false},
    {CORE_LOOP_TRUNC, 1, "trunc", false, true, false},
    {CORE_LOOP_ROUND, 1, "round", false, true, false},
    {CORE_LOOP_MAXIMUM, 2, "maximum", false, true, true},
    {CORE_LOOP_MINIMUM, 2, "minimum", false, true, true},
    {CORE_LOOP_FMAX, 2, "fmax", false, true, true},
    {CORE_LOOP_FMIN, 2, "fmin", false, true, true},
    {CORE_LOOP_COPYSIGN, 2, "copysign.Tensor", false, true, false},
    {CORE_LOOP_SIGNBIT, 1, "signbit", false, true, true},
    {CORE_LOOP_AND, 2, "bitwise_and.Tensor", true, false, true},
    {CORE_LOOP_OR, 2, "bitwise_or.Tensor", true, false, true},
    {CORE_LOOP_XOR, 2, "bitwise_xor.Tensor", true, false, true},
    {CORE_LOOP_NOT, 1, "bitwise_not", true, false, true},
    {CORE_LOOP_EQ, 2, "eq.Tensor", true, true, true},
    {CORE_LOOP_NE, 2, "ne.Tensor", true, true, true},
    {CORE_LOOP_LT, 2, "lt.Tensor", false, true, true},
    {CORE_LOOP_LE, 2, "le.Tensor", false, true, true},
    {CORE_LOOP_GT, 2, "gt.Tensor", false, true, true},
    {CORE_LOOP_GE, 2, "ge.Tensor", false, true, true},
    {CORE_LOOP_SELECT, 3, "where.self", true, true, true},
};

static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_BF16, CORE_I32,
                                    CORE_I16, CORE_I8,  CORE_U8,   CORE_BOOL};
enum {
    DTYPES = sizeof dtypes / sizeof *dtypes,
    NUMBERS = DTYPES - 1, /* the first ones: not bool */
    OPERATIONS = sizeof operations / sizeof *operations
};

static void write_operation(const operation *o, core_dtype dtype)
{
    const bool tests = o->opcode == CORE_LOOP_SIGNBIT ||
                       (o->opcode >= CORE_LOOP_EQ && o->opcode <= CORE_LOOP_GE);
    uint32_t values[3] = {0};

    begin(tests ? CORE_BOOL : dtype);
    for (uint32_t k = 0; k < o->inputs; k++)
        values[k] = load(
            o->opcode == CORE_LOOP_SELECT && k == 0 ? CORE_BOOL : dtype, 0);
    end(emit(o->opcode, operands[0].dtype, values[0], values[1], values[2]));
}

/* i: the instruction set, and the operation. */
START_TEST(operators_have_the_same_bits)
{
    const operation *o = &operations[_i % OPERATIONS];

    if (!open_native(cpu_isas[1 + _i / OPERATIONS]))
        return;
    for (int d = 0; d < DTYPES; d++) {
        const core_dtype dtype = dtypes[d];
        /* Without the core, operators of f16 and bf16 have no kernels. */
        const bool eager = dtype != CORE_F16 && dtype != CORE_BF16;

        if (dtype == CORE_BOOL ? !o->bools
            : is_float(dtype)  ? !o->floats
                               : !o->integers)
            continue;
        write_operation(o, dtype);
        ck_assert_msg(compare_all(eager ? o->name : NULL), "%s of dtype %u",
                      o->name, dtype);
    }
    cpu_close();
}
END_TEST

static const char *const functions[] = {
    "erf", "exp",   "exp2",  "expm1", "cosh",    "gelu_tanh", "gelu",
    "log", "log10", "log1p", "log2",  "sigmoid", "sinh",      "tanh"};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

START_TEST(functions_have_the_same_bits)
{
    const char *name = functions[_i % FUNCTIONS];

    if (!open_native(cpu_isas[1 + _i / FUNCTIONS]))
        return;
    for (int d = 0; d < 3; d++) {
        begin(dtypes[d]);
        end(function(name, dtypes[d], load(dtypes[d], 0), 0));
        ck_assert(compare_all(d == 0 && strcmp(name, "gelu_tanh") != 0 ? name
                                                                       : NULL));
    }
    cpu_close();
}
END_TEST

START_TEST(gradients_of_gelu_have_the_same_bits)
{
    static const char *const gradients[] = {"gelu_backward",
                                            "gelu_backward_tanh"};
    uint32_t gradient, x;

    if (!open_native(cpu_isas[1 + _i / 2]))
        return;
    begin(CORE_F32);
    gradient = load(CORE_F32, 0);
    x = load(CORE_F32, 0);
    end(function(gradients[_i % 2], CORE_F32, gradient, x));
    ck_assert(compare_all(_i % 2 ? NULL : gradients[0]));
    cpu_close();
}
END_TEST

START_TEST(conversions_have_the_same_bits)
{
    int native = 0;

    if (!open_native(cpu_isas[1 + _i]))
        return;
    for (int from = 0; from < DTYPES; from++)
        for (int to = 0; to < DTYPES; to++) {
            if (from == to)
                continue;
            begin(dtypes[to]);
            end(emit(CORE_LOOP_CONVERT, dtypes[to], load(dtypes[from], 0), 0,
                     0));
            native += compare_all(NULL);
        }
    /* All but floats to integers of less than 32 bits. */
    ck_assert_int_eq(native, DTYPES * (DTYPES - 1) - 3 * 3);
    cpu_close();
}
END_TEST

/* A value of each kind: uniform numbers, constants, what is converted twice. */
static void write_mixture(void)
{
    uint32_t x, h, b, i, number, mask, other;

    begin(CORE_F32);
    x = load(CORE_F32, 0);
    h = load(CORE_F16, 0);
    i = load(CORE_U8, 0);
    number = load(CORE_BF16, CORE_LOOP_OPERAND_NUMBER);
    b = load(CORE_BOOL, CORE_LOOP_OPERAND_NUMBER);
    mask = emit(CORE_LOOP_LT, CORE_BOOL, x,
                emit(CORE_LOOP_CONSTANT, CORE_F32, 0x3f800000, 0, 0), 0);
    mask = emit(CORE_LOOP_XOR, CORE_BOOL, mask, b, 0);
    h = emit(CORE_LOOP_SELECT, CORE_F16, mask, h,
             emit(CORE_LOOP_CONSTANT, CORE_F16, 0x3555, 0, 0));
    h = emit(CORE_LOOP_CONVERT, CORE_F32, h, 0, 0);
    i = emit(CORE_LOOP_CONVERT, CORE_F32, i, 0, 0);
    number = emit(CORE_LOOP_CONVERT, CORE_F32, number, 0, 0);
    other = emit(CORE_LOOP_FMA, CORE_F32, x, number, h);
    other = emit(CORE_LOOP_MUL, CORE_F32, other, other, 0);
    /* No vector code: a step between two groups. */
    other = function("atan2", CORE_F32, other, i);
    other = emit(CORE_LOOP_ADD, CORE_F32, other, number, 0);
    end(emit(CORE_LOOP_SUB, CORE_F32, other, x, 0));
}

START_TEST(steps_without_vector_code_run_between_groups)
{
    static core_operand all[6];
    const int64_t strides[4] = {4, 2, 1, 0};
    const uint8_t places[] = {0, 0, 1, 2};
    cpu_tile_kernel *kernels[2];

    if (!open_native(cpu_isas[1 + _i]))
        return;
    write_mixture();
    for (int k = 0; k < 2; k++)
        kernels[k] = build(k == 1);
    ck_assert_uint_eq(kernels[1]->ngroups, 2);
    ck_assert_str_eq(cpu_logged, "loop program: 9 steps are native code, in 2 "
                                 "groups; 1 are interpreted");
    for (int64_t n = 1; n < 1200; n += 61) {
        for (int k = 0; k < 2; k++) {
            uint32_t state = 5;
            test_loop loop;

            loop_dense(&loop, 1, n);
            loop.loop.operands = all;
            loop.loop.noperands = 6;
            memset(all, 0, sizeof all);
            for (uint32_t i = 0; i < 4; i++) {
                char *at = i == 0 ? results[k] : data[i];

                all[i] = (core_operand){.memory = {.handle = at},
                                        .dtype = operands[i].dtype,
                                        .strides = &strides[places[i]]};
                if (i > 0)
                    fill(operands[i].dtype, at, n, (int)i - 1, &state);
            }
            all[0].flags = CORE_OPERAND_OUTPUT;
            all[4] = (core_operand){.dtype = CORE_BF16,
                                    .strides = &strides[3],
                                    .flags = CORE_OPERAND_IMMEDIATE};
            all[5] = (core_operand){.dtype = CORE_BOOL,
                                    .strides = &strides[3],
                                    .flags = CORE_OPERAND_IMMEDIATE};
            memcpy(&all[4].immediate, &(uint16_t){0x4049}, 2);
            memcpy(&all[5].immediate, &(uint8_t){1}, 1);
            launch(kernels[k], &loop);
        }
        same(CORE_F32, results[1], results[0], n, "mixture");
    }
    destroy(kernels[0]);
    destroy(kernels[1]);
    cpu_close();
}
END_TEST

/* The sum of two inputs, and the larger one. */
static void write_two_outputs(core_dtype dtype)
{
    uint32_t a, b, sum;

    begin(dtype);
    operands[1] = operands[0];
    program.noperands = program.noutputs = 2;
    a = load(dtype, 0);
    b = load(dtype, 0);
    sum = emit(CORE_LOOP_ADD, dtype, a, b, 0);
    b = emit(CORE_LOOP_SELECT, dtype, emit(CORE_LOOP_GT, CORE_BOOL, a, b, 0), a,
             b);
    emit(CORE_LOOP_STORE, CORE_DTYPE_NONE, 0, sum, 0);
    emit(CORE_LOOP_STORE, CORE_DTYPE_NONE, 1, b, 0);
}

/* The first output replaces an input, which the second one needs, too. */
START_TEST(outputs_may_have_the_memory_of_inputs)
{
    const core_dtype type = dtypes[_i % NUMBERS];
    cpu_tile_kernel *kernels[2];

    if (!open_native(cpu_isas[1 + _i / NUMBERS]))
        return;
    write_two_outputs(type);
    for (int k = 0; k < 2; k++)
        kernels[k] = build(k == 1);
    for (uint32_t replaced = 0; replaced < 2; replaced++) {
        for (int k = 0; k < 2; k++) {
            uint32_t state = 5;
            test_loop loop;

            loop_dense(&loop, 1, 300);
            for (int i = 0; i < 2; i++)
                fill(type, data[k + 2 * i], 300, i, &state);
            loop_dense_operand(&loop, data[k + 2 * replaced], type);
            loop_dense_operand(&loop, results[k], type);
            for (int i = 0; i < 2; i++)
                loop_dense_operand(&loop, data[k + 2 * i], type);
            launch(kernels[k], &loop);
        }
        same(type, data[2 * replaced + 1], data[2 * replaced], 300, "sum");
        same(type, results[1], results[0], 300, "larger one");
    }
    destroy(kernels[0]);
    destroy(kernels[1]);
    cpu_close();
}
END_TEST

/* Many values at once: more than there are registers. */
static void write_many(int count)
{
    uint32_t x, sum, values[100];

    begin(CORE_F32);
    x = load(CORE_F32, 0);
    for (int i = 0; i < count; i++)
        values[i] = emit(i % 2 ? CORE_LOOP_MUL : CORE_LOOP_SUB, CORE_F32,
                         i > 0 ? values[i - 1] : x, x, 0);
    sum = emit(CORE_LOOP_LT, CORE_BOOL, values[0], values[1], 0);
    for (int i = count - 1; i > 1; i--)
        sum = emit(CORE_LOOP_XOR, CORE_BOOL, sum,
                   emit(CORE_LOOP_LT, CORE_BOOL, values[i], x, 0), 0);
    sum = emit(CORE_LOOP_SELECT, CORE_F32, sum, values[0], values[1]);
    for (int i = count - 1; i > 1; i--)
        sum = emit(CORE_LOOP_FMA, CORE_F32, sum, values[i], values[i / 2]);
    end(sum);
}

START_TEST(values_without_a_register_are_on_the_stack)
{
    if (!open_native(cpu_isas[1 + _i]))
        return;
    for (int count = 3; count < 46; count += 3) {
        write_many(count);
        ck_assert(compare_all(NULL));
    }
    cpu_close();
}
END_TEST

/* atan2(gelu(x), position) plus a random number: steps of several kinds. */
static void write_positions(void)
{
    uint32_t x, at, number;

    begin(CORE_F32);
    x = load(CORE_F32, 0);
    at = emit(CORE_LOOP_POSITION, CORE_I64, 0, 0, 0);
    number = emit(CORE_LOOP_CONSTANT, CORE_I64, 7, 0, 0);
    number = emit(CORE_LOOP_PHILOX32, CORE_I32, number, number, at);
    number = emit(CORE_LOOP_CONVERT, CORE_F32, number, 0, 0);
    at = emit(CORE_LOOP_CONVERT, CORE_F32, at, 0, 0);
    x = function("gelu", CORE_F32, x, 0);
    x = function("atan2", CORE_F32, x, at);
    end(emit(CORE_LOOP_ADD, CORE_F32, x, number, 0));
}

static void same_if_divided(cpu_tile_kernel *kernel, int64_t n, uint32_t tile,
                            uint32_t threads)
{
    test_loop loop;

    loop_dense(&loop, 1, n);
    loop_dense_operand(&loop, results[0], CORE_F32);
    loop_dense_operand(&loop, data[1], CORE_F32);
    memset(results, 0xa5, sizeof results);
    launch_divided(kernel, &loop, 0, 0);
    loop.operands[0].memory.handle = results[1];
    launch_divided(kernel, &loop, tile, threads);
    ck_assert_mem_eq(results[0], results[1], sizeof results[0]);
}

START_TEST(elements_do_not_depend_on_the_division_of_a_loop)
{
    static const uint32_t tiles[] = {1, 64, 100, 256, 1024, 2048, UINT32_MAX};
    cpu_tile_kernel *kernel;
    uint32_t state = 4;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    write_positions();
    kernel = build(_i > 0);
    fill(CORE_F32, data[1], MOST, 0, &state);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (uint32_t threads = 0; threads < 4; threads++) {
            same_if_divided(kernel, MOST - 5, tiles[i], threads);
            same_if_divided(kernel, 3, tiles[i], threads);
        }
    destroy(kernel);
    cpu_close();
}
END_TEST

/* Several NaNs meet in these: which one is the result must not depend on where
 * an element is, or on how many are computed. */
static const char *const meetings[] = {"gelu_backward", "gelu_backward_tanh",
                                       "fma", "gelu"};

static void write_meeting(const char *name)
{
    uint32_t a, b;

    begin(CORE_F32);
    a = load(CORE_F32, 0);
    b = load(CORE_F32, 0);
    if (strcmp(name, "fma") == 0)
        end(emit(CORE_LOOP_FMA, CORE_F32,
                 emit(CORE_LOOP_NEG, CORE_F32, a, 0, 0),
                 emit(CORE_LOOP_MUL, CORE_F32, a, b, 0), b));
    else if (strcmp(name, "gelu") == 0)
        end(emit(CORE_LOOP_ADD, CORE_F32, function("gelu", CORE_F32, a, 0), b,
                 0));
    else
        end(function(name, CORE_F32, a, b));
}

static void launch_at(cpu_tile_kernel *kernel, char *to, int64_t at, int64_t n)
{
    test_loop loop;

    loop_dense(&loop, 1, n);
    loop_dense_operand(&loop, to, CORE_F32);
    loop_dense_operand(&loop, data[1] + 4 * at, CORE_F32);
    loop_dense_operand(&loop, data[2] + 4 * at, CORE_F32);
    launch(kernel, &loop);
}

START_TEST(nan_does_not_depend_on_the_place_of_an_element)
{
    enum { N = LONGEST + 1, COUNT = sizeof meetings / sizeof *meetings };
    cpu_tile_kernel *kernel;

    if (!open_native(cpu_isas[1 + _i / COUNT]))
        return;
    write_meeting(meetings[_i % COUNT]);
    kernel = build(true);
    ck_assert_uint_gt(kernel->ngroups, 0);
    for (uint32_t k = 0; k < N; k++) { /* each NaN differs */
        const uint32_t a = 0x7fc00001 + 2 * k + (k % 3 == 0) * 0x80000000u;
        const uint32_t b = 0x7fc00002 + 2 * k + (k % 2 == 0) * 0x80000000u;

        memcpy(data[1] + 4 * k, &a, 4);
        memcpy(data[2] + 4 * k, &b, 4);
    }
    launch_at(kernel, results[0], 0, N);
    for (int64_t n = 1; n <= 40; n += 13)
        for (int64_t at = 0; at + n <= N; at++) {
            launch_at(kernel, results[1], at, n);
            ck_assert_mem_eq(results[1], results[0] + 4 * at, (size_t)(4 * n));
        }
    destroy(kernel);
    cpu_close();
}
END_TEST

START_TEST(long_programs_become_several_groups)
{
    cpu_tile_kernel *kernel;
    uint32_t x;

    if (!open_native(cpu_isas[1 + _i]))
        return;
    begin(CORE_F32);
    x = load(CORE_F32, 0);
    names[program.nnames++] = core_sdk_string("gelu");
    for (int i = 0; i < 200; i++)
        x = emit(CORE_LOOP_FUNCTION, CORE_F32, x, 0, 0);
    end(x);
    kernel = build(true);
    ck_assert_uint_gt(kernel->ngroups, 10);
    destroy(kernel);
    ck_assert(compare_all(NULL));
    cpu_close();
}
END_TEST

/* ----------------------------------------------------- executable memory -- */

static void write_small(void)
{
    uint32_t a, b;

    begin(CORE_F32);
    a = load(CORE_F32, 0);
    b = load(CORE_F32, 0);
    end(emit(CORE_LOOP_ADD, CORE_F32, a, b, 0));
}

/* Counts the pages of mappings with these permissions that have no file. */
static int pages_with(const char *permissions)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long first, last, inode;
    char line[512], now[8];
    int pages = 0;

    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &first, &last, now,
                   &inode) == 4 &&
            inode == 0 && strstr(line, "[") == NULL &&
            strncmp(now, permissions, strlen(permissions)) == 0)
            pages += (int)((last - first) / 4096);
    fclose(maps);
    return pages;
}

/* Valgrind has pages with code, too. */
static bool can_count_pages(void)
{
    if (pages_with("rwxp") == 0)
        return true;
    suite_skip("other memory is writable and executable");
    return false;
}

START_TEST(kernels_share_pages_that_are_not_writable)
{
    enum { KERNELS = 100 };
    cpu_tile_kernel *kernels[KERNELS];
    int before;

    if (!open_native("avx2") || !can_count_pages())
        return;
    before = pages_with("r-xp");
    write_small();
    for (int i = 0; i < KERNELS; i++) {
        kernels[i] = build(true);
        ck_assert_uint_eq(kernels[i]->ngroups, 1);
        ck_assert_int_eq(pages_with("rwxp"), 0);
    }
    ck_assert_int_gt(pages_with("r-xp"), before);
    ck_assert_int_lt(pages_with("r-xp") - before, KERNELS / 2);
    /* The first one is still what it was. */
    fill(CORE_F32, data[1], 100, 0, &(uint32_t){1});
    fill(CORE_F32, data[2], 100, 2, &(uint32_t){1});
    compare(kernels[KERNELS - 1], kernels[0], "add.Tensor", 100);
    for (int i = 0; i < KERNELS; i++)
        destroy(kernels[i]);
    ck_assert_int_eq(pages_with("r-xp"), before);
    cpu_close();
}
END_TEST

/* Valgrind reads ahead when it decodes instructions. */
START_TEST(bytes_after_code_can_be_read)
{
    static const uint8_t bytes[64] = {0xc3};
    const uint8_t *code[70];

    if (!open_native("avx2"))
        return;
    for (int i = 0; i < 70; i++) {
        code[i] = cpu_code_add(bytes, sizeof bytes);
        ck_assert_ptr_nonnull(code[i]);
        for (size_t k = 0; k < 16; k++)
            ck_assert_uint_eq(code[i][sizeof bytes + k], 0);
    }
    for (int i = 0; i < 70; i++)
        cpu_code_remove((void *)(uintptr_t)code[i]);
    cpu_close();
}
END_TEST

START_TEST(the_setting_turns_native_code_off)
{
    cpu_tile_kernel *kernel;

    if (!open_native("avx2"))
        return;
    write_small();
    kernel = build(false);
    ck_assert_uint_eq(kernel->ngroups, 0);
    destroy(kernel);
    cpu_native_setting = "off";
    cpu_native_choose(&cpu_test_host);
    ck_assert(!cpu_native_is_on());
    cpu_native_setting = NULL;
    cpu_close();
    ck_assert(cpu_open_isa("baseline"));
    ck_assert(!cpu_native_is_on());
    cpu_close();
}
END_TEST

/* Runs a test in a child; what it prints and asserts is the test's. */
static void in_child(void (*test)(void))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        test();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "the child ended with %x", status);
}

#if defined(__linux__) && defined(__x86_64__)
/* No memory can be made executable. */
static bool forbid_executable_memory(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {.len = sizeof filter / sizeof *filter,
                             .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}
#else
static bool forbid_executable_memory(void)
{
    return false;
}
#endif

static void run_small(uint32_t groups)
{
    cpu_tile_kernel *kernel = build(true);

    if (kernel->ngroups != groups)
        _exit(3);
    fill(CORE_F32, data[1], 100, 0, &(uint32_t){1});
    fill(CORE_F32, data[2], 100, 2, &(uint32_t){1});
    compare(kernel, kernel, "add.Tensor", 100);
    destroy(kernel);
}

static void run_refused(void)
{
    if (!forbid_executable_memory())
        _exit(2);
    run_small(0);
    if (!cpu_code_refused() || cpu_native_is_on())
        _exit(4);
    run_small(0);
}

START_TEST(kernels_are_interpreted_where_executable_memory_is_refused)
{
    pid_t child;
    int status;

    if (!open_native("avx2"))
        return;
    child = fork();
    if (child == 0)
        _exit(forbid_executable_memory() ? 0 : 1);
    waitpid(child, &status, 0);
    if (status != 0) {
        suite_skip("seccomp is not available");
        return;
    }
    write_small();
    in_child(run_refused);
    cpu_close();
}
END_TEST

static cpu_tile_kernel *inherited;

/* Runs the parent's kernel, and makes another one. */
static void run_inherited(void)
{
    fill(CORE_F32, data[1], 100, 0, &(uint32_t){1});
    fill(CORE_F32, data[2], 100, 2, &(uint32_t){1});
    compare(inherited, inherited, "add.Tensor", 100);
    run_small(1);
    destroy(inherited);
}

START_TEST(a_forked_child_has_its_own_kernels)
{
    if (!open_native("avx2"))
        return;
    write_small();
    inherited = build(true);
    in_child(run_inherited);
    compare(inherited, inherited, "add.Tensor", 100);
    run_small(1);
    destroy(inherited);
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        kernels_share_pages_that_are_not_writable,
        bytes_after_code_can_be_read,
        the_setting_turns_native_code_off,
        kernels_are_interpreted_where_executable_memory_is_refused,
        a_forked_child_has_its_own_kernels,
    };
    const suite_loop loops[] = {
        {operators_have_the_same_bits, 0, 2 * OPERATIONS},
        {functions_have_the_same_bits, 0, 2 * FUNCTIONS},
        {gradients_of_gelu_have_the_same_bits, 0, 4},
        {conversions_have_the_same_bits, 0, 2},
        {steps_without_vector_code_run_between_groups, 0, 2},
        {outputs_may_have_the_memory_of_inputs, 0, 2 * NUMBERS},
        {values_without_a_register_are_on_the_stack, 0, 2},
        {elements_do_not_depend_on_the_division_of_a_loop, 0, 3},
        {nan_does_not_depend_on_the_place_of_an_element, 0, 8},
        {long_programs_become_several_groups, 0, 2},
    };
    const test_suite suites[] = {
        {.name = "native code of loop programs",
         .seconds = 120,
         SUITE_TESTS(tests),
         SUITE_LOOPS(loops)},
    };

    return suite_run(suites, 1);
}
