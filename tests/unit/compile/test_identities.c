/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Nodes that return an operand are removed; those that only seem to are not.
 * Random chains of both have the function's bits, of NaNs, zeros and denormal
 * numbers, too. */

#include "support/effort.h"
#include "support/program.h"

#include "compile/passes/simplify.h"

#include <libcore/device.h>

enum { ROWS = 3, COLUMNS = 4, PLANES = 5, ELEMENTS = ROWS * COLUMNS * PLANES };

/* ------------------------------------------------------------------ steps -- */

typedef core_status (*step)(core_tensor *x, core_tensor **out);

#define STEP(name, ...)                                        \
    static core_status name(core_tensor *x, core_tensor **out) \
    {                                                          \
        return __VA_ARGS__;                                    \
    }

STEP(times_one, core_mul_scalar(x, core_int(1), out))
STEP(times_float_one, core_mul_scalar(x, core_float(1), out))
STEP(times_two, core_mul_scalar(x, core_int(2), out))
STEP(over_one, core_div_scalar(x, core_float(1), out))
STEP(plus_zero, core_add_scalar(x, core_int(0), core_int(1), out))
STEP(plus_float_zero, core_add_scalar(x, core_float(0), core_int(1), out))
STEP(plus_negative_zero, core_add_scalar(x, core_float(-0.), core_int(1), out))
STEP(minus_zero, core_sub_scalar(x, core_int(0), core_int(1), out))
STEP(minus_float_zero, core_sub_scalar(x, core_float(0), core_int(1), out))
STEP(minus_negative_zero, core_sub_scalar(x, core_float(-0.), core_int(1), out))
STEP(minus_zero_twice, core_sub_scalar(x, core_float(0), core_int(-2), out))
STEP(negated, core_neg(x, out))
STEP(inverted, core_bitwise_not(x, out))
STEP(cloned, core_clone(x, -1, out))
STEP(detached, core_detach(x, out))
STEP(exchanged, core_transpose(x, 0, -1, out))
STEP(turned, core_permute(x, (int64_t[]){1, 2, 0}, 3, out))
STEP(turned_back, core_permute(x, (int64_t[]){2, -3, 1}, 3, out))

/* To a dtype that has all numbers of the one of x, and back. */
static core_status widened(core_tensor *x, core_tensor **out)
{
    core_dtype dtype = core_tensor_dtype(x);
    core_tensor *wide;
    core_status status;

    CORE_TRY(core_to_copy(x,
                          core_dtype_is_floating(dtype) ? CORE_F64 : CORE_I64,
                          NULL, false, -1, &wide));
    status = core_to_copy(wide, dtype, NULL, false, -1, out);
    core_tensor_release(wide);
    return status;
}

/* The other way numbers are lost. */
static core_status narrowed(core_tensor *x, core_tensor **out)
{
    core_dtype dtype = core_tensor_dtype(x);
    core_tensor *narrow;
    core_status status;

    CORE_TRY(core_to_copy(x,
                          core_dtype_is_floating(dtype) ? CORE_BF16 : CORE_I8,
                          NULL, false, -1, &narrow));
    status = core_to_copy(narrow, dtype, NULL, false, -1, out);
    core_tensor_release(narrow);
    return status;
}

/* ----------------------------------------------------------------- chains -- */

typedef struct chain {
    step steps[12];
    int count;
    core_dtype dtype;
} chain;

static chain now;

static core_status run_chain(void *context, core_tensor *const *x, size_t n,
                             core_tensor **out, size_t *noutputs)
{
    core_tensor *y = core_tensor_retain(x[0]), *next;

    (void)context;
    (void)n;
    for (int i = 0; i < now.count; i++) {
        OK(now.steps[i](y, &next));
        core_tensor_release(y);
        y = next;
    }
    *noutputs = 1;
    OK(core_clone(y, -1, &out[0]));
    core_tensor_release(y);
    return CORE_OK;
}

/* No NaN is a signaling one, and in 16 bits all are one: conversions to f32 may
 * lose the rest. */
static uint64_t quiet(core_dtype dtype, uint64_t bits)
{
    static const struct {
        core_dtype dtype;
        uint64_t infinite, quiet, rest;
    } formats[] = {
        {CORE_F64, UINT64_C(0x7ff) << 52, UINT64_C(1) << 51, 0},
        {CORE_F32, 0x7f800000, 0x400000, 0},
        {CORE_F16, 0x7c00, 0x200, 0x1ff},
        {CORE_BF16, 0x7f80, 0x40, 0x3f},
    };

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype &&
            (bits & formats[i].infinite) == formats[i].infinite &&
            bits & (2 * formats[i].quiet - 1))
            bits = (bits | formats[i].quiet) & ~formats[i].rest;
    return bits;
}

static uint64_t next_bits(void)
{
    static uint64_t state = 1;

    state = state * UINT64_C(6364136223846793005) + 1;
    return state ^ state >> 29;
}

/* Random bits, many of which are ones or zeros alone. */
static void random_input(world *w)
{
    size_t size = core_dtype_size(now.dtype);
    unsigned char data[8 * ELEMENTS];

    for (int i = 0; i < ELEMENTS; i++) {
        uint64_t bits = next_bits();

        if (i % 3 == 0) /* sign and exponent of an extreme number */
            bits = i % 2 ? UINT64_MAX << (8 * size - 1)
                         : bits | UINT64_C(0x7f) << (8 * size - 8);
        bits = quiet(now.dtype, bits);
        memcpy(data + size * (size_t)i, &bits, size);
    }
    OK(core_tensor_from_data(data, now.dtype,
                             (int64_t[]){ROWS, COLUMNS, PLANES}, 3, w->device,
                             &w->inputs[0]));
    keep(w->inputs[0]);
    w->ninputs = 1;
}

/* Compares the function with its simplified program, and returns how many nodes
 * that has besides the copy that is the output. */
static uint64_t nodes_left(void)
{
    const program_case c = {random_input, run_chain};
    core_program_counts counts = {.struct_size = sizeof counts};
    world w = make_world(&c);
    core_program *program = trace_world(&c, &w);

    OK(core__program_simplify(program));
    OK(core_program_verify(program));
    OK(core_program_get_counts(program, &counts));
    compare_calls(&c, &w, &w, program);
    core_program_release(program);
    return counts.nodes - 1;
}

static const core_dtype floating[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16},
                        integral[] = {CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                      CORE_U8};

enum { FLOATING = 4, INTEGRAL = 5, MOST = 12 };

static uint64_t left_of(core_dtype dtype, int count, const step *steps)
{
    now.dtype = dtype;
    now.count = count;
    memcpy(now.steps, steps, (size_t)count * sizeof *steps);
    return nodes_left();
}

#define LEFT(dtype, ...)                                         \
    left_of(dtype, sizeof((step[]){__VA_ARGS__}) / sizeof(step), \
            (step[]){__VA_ARGS__})

/* ------------------------------------------------------------------ tests -- */

START_TEST(what_returns_an_operand_is_removed)
{
    for (int i = 0; i < FLOATING; i++) {
        core_dtype dtype = floating[i];

        ck_assert_uint_eq(LEFT(dtype, times_one, times_float_one, over_one), 0);
        ck_assert_uint_eq(
            LEFT(dtype, plus_negative_zero, minus_zero, minus_float_zero), 0);
        ck_assert_uint_eq(LEFT(dtype, negated, negated), 0);
        ck_assert_uint_eq(LEFT(dtype, negated, times_one, negated, cloned), 0);
        ck_assert_uint_eq(LEFT(dtype, widened), 0);
    }
    for (int i = 0; i < INTEGRAL; i++) {
        core_dtype dtype = integral[i];

        ck_assert_uint_eq(LEFT(dtype, times_one, plus_zero, minus_zero), 0);
        ck_assert_uint_eq(LEFT(dtype, negated, negated, inverted, inverted), 0);
        ck_assert_uint_eq(LEFT(dtype, widened), 0);
    }
}
END_TEST

START_TEST(transposes_that_end_where_they_began_are_removed)
{
    ck_assert_uint_eq(LEFT(CORE_F32, exchanged, exchanged), 0);
    ck_assert_uint_eq(LEFT(CORE_F32, exchanged, detached, exchanged), 0);
    ck_assert_uint_eq(LEFT(CORE_F32, turned, turned, turned), 0);
    ck_assert_uint_eq(LEFT(CORE_F32, turned, exchanged, turned), 3);
    ck_assert_uint_eq(LEFT(CORE_F32, turned_back, turned_back), 2);
    ck_assert_uint_eq(LEFT(CORE_F32, exchanged, negated, exchanged), 3);
}
END_TEST

START_TEST(what_only_seems_to_return_an_operand_stays)
{
    ck_assert_uint_eq(LEFT(CORE_F32, plus_zero), 1);
    ck_assert_uint_eq(LEFT(CORE_F32, plus_float_zero), 1);
    ck_assert_uint_eq(LEFT(CORE_F32, minus_negative_zero), 1);
    ck_assert_uint_eq(LEFT(CORE_F32, minus_zero_twice), 1);
    ck_assert_uint_eq(LEFT(CORE_F32, times_two), 1);
    ck_assert_uint_eq(LEFT(CORE_F32, negated), 1);
    ck_assert_uint_eq(LEFT(CORE_F32, narrowed), 2);
    ck_assert_uint_eq(LEFT(CORE_I32, narrowed), 2);
    ck_assert_uint_eq(LEFT(CORE_I32, negated, inverted), 2);
}
END_TEST

START_TEST(random_chains_have_the_same_bits)
{
    static const step both[] = {times_one,  times_two, negated, cloned,
                                detached,   exchanged, turned,  turned_back,
                                widened,    narrowed,  negated, plus_zero,
                                minus_zero, exchanged};
    static const step floats[] = {times_float_one,  over_one,
                                  plus_float_zero,  plus_negative_zero,
                                  minus_float_zero, minus_negative_zero,
                                  minus_zero_twice, negated};
    enum { BOTH = sizeof both / sizeof *both, FLOATS = 8 };
    int count = effort_is_slow() ? 100 : 2000;

    for (int i = 0; i < count; i++) {
        bool is_float = i % 2;
        step steps[MOST];
        int size = 1 + (int)(next_bits() % MOST);

        for (int k = 0; k < size; k++) {
            uint64_t random = next_bits() >> 8;

            steps[k] = random % 2 ? both[random / 2 % BOTH]
                       : is_float ? floats[random / 2 % FLOATS]
                                  : inverted;
        }
        left_of(is_float ? floating[i / 2 % FLOATING]
                         : integral[i / 2 % INTEGRAL],
                size, steps);
        drop_all();
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_returns_an_operand_is_removed,
        transposes_that_end_where_they_began_are_removed,
        what_only_seems_to_return_an_operand_stays,
        random_chains_have_the_same_bits};
    const test_suite suites[] = {{.name = "compile/identities",
                                  .setup = on_cpu,
                                  .teardown = drop_all,
                                  SUITE_TESTS(tests)}};

    return suite_run(suites, sizeof suites / sizeof *suites);
}
