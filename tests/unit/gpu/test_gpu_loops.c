/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of loop programs on the emulated device, which compiles their source
 * with the host's C++ compiler: each opcode on each dtype has the bits of the
 * simulated device's interpreter, for every layout and length; each function has
 * those of the operator on the emulated device.  Skipped if there is no
 * compiler. */

#define SUITE_FORKS true

#include "support/gpu_emulated.h"
#include "support/loop_bundles.h"

#include "codegen/loop_kernel.h"
#include "tensor/dtype.h"

#include <sys/stat.h>

enum { NUMBERS = 24, ROWS = NUMBERS + 1, COLUMNS = NUMBERS, CASES = 12 };

static const double special[NUMBERS] = {
    0,       -0.0,     1,         -1,    INFINITY, -INFINITY, NAN,  0.5,
    -0.5,    2,        -3,        3.75,  88.5,     -103.25,   1e-3, -7e-6,
    0x1p-24, 0x1p-149, -0x1p-126, 65504, 3e38,     127,       -128, 1e10};

/* Rows and columns of all pairs of numbers; integers get what the conversion
 * makes of them. */
static core_tensor *base_of(core_dtype dtype, uint32_t k)
{
    double values[ROWS * COLUMNS];
    const int64_t sizes[] = {ROWS, COLUMNS};

    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = special[(k == 0   ? i % NUMBERS
                             : k == 1 ? i / NUMBERS
                                      : i * 7 + 5) %
                            NUMBERS];
    return typed(dtype, 2, sizes, values);
}

/* ---------------------------------------------------------------- layouts -- */

typedef enum layout {
    DENSE,
    GAPS,       /* every second column */
    TRANSPOSED, /* columns as rows */
    ROW,        /* one row for all */
    COLUMN,     /* one column for all */
    SHIFTED     /* begins at an address that is not a multiple of 16 */
} layout;

/* A view of rows x columns of a tensor of ROWS x COLUMNS. */
static core_tensor *view_of(core_tensor *base, layout how, int64_t rows,
                            int64_t columns)
{
    const int64_t sizes[] = {rows, columns};
    int64_t strides[] = {columns, 1}, offset = 0;

    switch (how) {
    case GAPS:
        strides[0] = 2 * columns;
        strides[1] = 2;
        break;
    case TRANSPOSED:
        strides[0] = 1;
        strides[1] = rows;
        break;
    case ROW:
        strides[0] = 0;
        break;
    case COLUMN:
        strides[1] = 0;
        strides[0] = 1;
        break;
    case SHIFTED:
        offset = 1;
        break;
    case DENSE:
        break;
    }
    return CALL(as_strided, base, sizes, 2, strides, 2, &offset);
}

/* ------------------------------------------------------------------- runs -- */

typedef struct side {
    core_device *device;
    core__loop_kernel *kernel;
    core_tensor *base[BUNDLE_INPUTS];
} side;

static void open_side(side *s, const char *device, const bundle *b)
{
    *s = (side){.device = opened(device)};
    OK(core__loop_kernel_build(s->device, b->program, NULL, &s->kernel));
    for (uint32_t k = 0; k < BUNDLE_INPUTS; k++)
        s->base[k] = core_tensor_retain(moved(base_of(b->dtype, k), s->device));
    drop_all();
}

static void close_side(side *s)
{
    core__loop_kernel_release(s->kernel);
    for (uint32_t k = 0; k < BUNDLE_INPUTS; k++)
        core_tensor_release(s->base[k]);
}

/* The layouts of the inputs, and of the outputs: DENSE, GAPS or TRANSPOSED. */
typedef struct shape {
    int64_t rows, columns;
    layout in[BUNDLE_INPUTS], out;
} shape;

/* The outputs, with what is between their elements. */
static void run(const side *s, const bundle *b, const shape *at,
                core_tensor **out)
{
    const int64_t sizes[] = {at->rows, at->columns}, all[] = {ROWS, COLUMNS};
    core_tensor *tensors[CORE_LOOP_MAX_OPERANDS];
    core__loop_arguments arguments = {
        .tensors = tensors, .ndim = 2, .sizes = sizes};

    for (uint32_t i = 0; i < b->noutputs; i++) {
        out[i] = CALL(full, all, 2, core_int(1), b->program->operands[i].dtype,
                      s->device);
        tensors[i] = view_of(out[i], at->out, at->rows, at->columns);
    }
    for (uint32_t k = 0; k < BUNDLE_INPUTS; k++)
        tensors[b->noutputs + k] =
            view_of(s->base[k], at->in[k], at->rows, at->columns);
    OK(core__loop_kernel_run(s->kernel, &arguments));
}

static double number_of(core_scalar value)
{
    return value.tag == CORE_VALUE_FLOAT ? value.u.f : (double)value.u.i;
}

static bool is_nan(core_dtype dtype, const char *at)
{
    core_scalar value = core__element_load(dtype, at);

    return value.tag == CORE_VALUE_FLOAT && value.u.f != value.u.f;
}

static void same_bits(const char *what, core_tensor *expected, core_tensor *got)
{
    size_t size = (size_t)core__dtype_size(core_tensor_dtype(expected));
    size_t count = (size_t)core_tensor_numel(expected);
    char wanted[8 * ROWS * COLUMNS], given[8 * ROWS * COLUMNS];
    core_dtype dtype = core_tensor_dtype(expected);

    OK(core_tensor_read(expected, wanted, count * size));
    OK(core_tensor_read(got, given, count * size));
    for (size_t i = 0; i < count; i++) {
        const char *a = wanted + i * size, *b = given + i * size;

        ck_assert_msg(
            memcmp(a, b, size) == 0 || (is_nan(dtype, a) && is_nan(dtype, b)),
            "%s of %s: element %zu is %g, not %g", what,
            core__dtype_name(dtype), i, number_of(core__element_load(dtype, b)),
            number_of(core__element_load(dtype, a)));
    }
}

static void compare(const bundle *b, const side sides[2], const shape *at)
{
    core_tensor *out[2][CORE_LOOP_MAX_OPERANDS];

    for (int i = 0; i < 2; i++)
        run(&sides[i], b, at, out[i]);
    for (uint32_t i = 0; i < b->noutputs; i++) {
        char what[160];

        snprintf(
            what, sizeof what, "%s (%s, %lld x %lld, layouts %d %d %d to %d)",
            bundle_text(b, i), core__dtype_name(b->dtype), (long long)at->rows,
            (long long)at->columns, at->in[0], at->in[1], at->in[2], at->out);
        same_bits(what, out[0][i], out[1][i]);
    }
    drop_all();
}

static const shape shapes[] = {
    {ROWS, COLUMNS, {DENSE, DENSE, DENSE}, DENSE},
    {12, 12, {DENSE, GAPS, TRANSPOSED}, DENSE},
    {12, 12, {TRANSPOSED, ROW, COLUMN}, DENSE},
    {12, 12, {ROW, DENSE, COLUMN}, TRANSPOSED},
    {5, 7, {GAPS, TRANSPOSED, ROW}, GAPS},
    {12, 12, {SHIFTED, DENSE, DENSE}, DENSE},
    {12, 12, {SHIFTED, SHIFTED, SHIFTED}, SHIFTED},
};

/* Conversions are those of copies on the device. */
static void compare_copies(const bundle *b, const side *s)
{
    core_tensor *out[CORE_LOOP_MAX_OPERANDS];

    run(s, b, &shapes[0], out);
    for (uint32_t i = 0; i < b->noutputs; i++)
        if (b->items[i].opcode == CORE_LOOP_CONVERT)
            same_bits(
                "a conversion",
                CALL(to_copy, s->base[0], b->items[i].to, s->device, false, -1),
                out[i]);
    drop_all();
}

START_TEST(opcodes_have_the_bits_of_the_interpreter)
{
    core_dtype dtype = bundle_dtypes[_i];
    bundle b;

    for (uint32_t n = 0; bundle_of(&b, dtype, n, NULL); n++) {
        side sides[2];

        open_side(&sides[0], "sim", &b);
        open_side(&sides[1], gpu_name(), &b);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            compare(&b, sides, &shapes[i]);
        for (int64_t length = 1; length <= 35; length++) {
            const shape tail = {1, length, {DENSE, DENSE, DENSE}, DENSE};

            compare(&b, sides, &tail);
        }
        compare_copies(&b, &sides[1]);
        for (int i = 0; i < 2; i++)
            close_side(&sides[i]);
        core__loop_program_release(b.program);
    }
}
END_TEST

/* -------------------------------------------------------------- functions -- */

/* The operator on whole tensors; NULL if there is no such operator. */
static core_tensor *eager(const side *s, const core__loop_function *function)
{
    bool tanh = strncmp(function->name, "gelu", 4) == 0 &&
                strstr(function->name, "_tanh") != NULL;
    char name[CORE_LOOP_MAX_NAME_SIZE];
    core_value args[8] = {{0}}, results[1] = {{0}};
    uint32_t nargs = function->nargs;
    core_operator *op;

    snprintf(name, sizeof name, "%s", function->name);
    if (tanh)
        *strstr(name, "_tanh") = 0;
    if (core_op_find(name, &op) != CORE_OK)
        return NULL;
    for (uint32_t k = 0; k < function->nargs; k++)
        args[k] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = s->base[k]}};
    if (tanh)
        args[nargs++] = (core_value){CORE_VALUE_STRING, 4, {.string = "tanh"}};
    if (core_op_call(op, args, nargs, results, 1) != CORE_OK)
        return NULL;
    return keep(results[0].u.tensor);
}

static bool is_accepted(const core_loop_program *program)
{
    return core__loop_kernel_accepts(opened(gpu_name()), program) == CORE_OK;
}

START_TEST(functions_have_the_bits_of_operators)
{
    const shape whole = {ROWS, COLUMNS, {DENSE, DENSE, DENSE}, DENSE};
    core_dtype dtype = bundle_dtypes[_i];
    uint32_t compared = 0, functions = 0;
    bundle b;

    for (uint32_t n = 0; bundle_of(&b, dtype, n, is_accepted); n++) {
        core_tensor *out[CORE_LOOP_MAX_OPERANDS];
        side s;

        open_side(&s, gpu_name(), &b);
        run(&s, &b, &whole, out);
        for (uint32_t i = 0; i < b.noutputs; i++) {
            core_tensor *expected = eager(&s, b.items[i].function);

            functions++;
            if (expected == NULL)
                continue;
            same_bits(bundle_text(&b, i), expected, out[i]);
            compared++;
        }
        drop_all();
        close_side(&s);
        core__loop_program_release(b.program);
    }
    ck_assert_msg(compared == functions, "%u of %u functions are operators",
                  compared, functions);
}
END_TEST

/* ---------------------------------------------------- indices and numbers -- */

/* Positions, indices, sizes and random numbers, as i64. */
static core_loop_program *indexed(uint32_t *out_count)
{
    uint32_t values[CASES], used[CASES], count = 0, seed;
    core_loop_program *program;
    core__loop_writer w;

    core__loop_writer_begin(&w, 2);
    values[count++] =
        core__loop_write(&w, CORE_LOOP_POSITION, CORE_I64, 0, 0, 0);
    for (uint32_t d = 0; d < 2; d++) {
        values[count++] =
            core__loop_write(&w, CORE_LOOP_INDEX, CORE_I64, d, 0, 0);
        values[count++] =
            core__loop_write(&w, CORE_LOOP_SIZE, CORE_I64, d, 0, 0);
    }
    seed = core__loop_write_bits(&w, CORE_I64, UINT64_C(0x123456789abcdef0));
    values[count++] = core__loop_write(&w, CORE_LOOP_PHILOX32, CORE_I32, seed,
                                       values[4], values[0]);
    values[count++] = core__loop_write(&w, CORE_LOOP_PHILOX64, CORE_I64, seed,
                                       values[2], values[0]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = core__loop_write_operand(
            &w, core__loop_type_of(&w, values[i]), CORE_LOOP_OPERAND_OUTPUT);

        core__loop_write(&w, CORE_LOOP_STORE, 0, to, values[i], 0);
    }
    OK(core__loop_writer_finish(&w, &program, used));
    core__loop_writer_end(&w);
    *out_count = count;
    return program;
}

static void run_indexed(const char *name, core_loop_program *program,
                        layout how, core_tensor **out)
{
    const int64_t sizes[] = {6, 7}, all[] = {ROWS, COLUMNS};
    core_tensor *tensors[CORE_LOOP_MAX_OPERANDS];
    const core__loop_arguments arguments = {
        .tensors = tensors, .ndim = 2, .sizes = sizes};
    core__loop_kernel *kernel;

    OK(core__loop_kernel_build(opened(name), program, NULL, &kernel));
    for (uint32_t i = 0; i < program->noperands; i++) {
        out[i] = CALL(full, all, 2, core_int(1), program->operands[i].dtype,
                      opened(name));
        tensors[i] = view_of(out[i], how, sizes[0], sizes[1]);
    }
    OK(core__loop_kernel_run(kernel, &arguments));
    core__loop_kernel_release(kernel);
}

START_TEST(indices_and_random_numbers_are_those_of_the_interpreter)
{
    static const layout layouts[] = {DENSE, TRANSPOSED, GAPS};
    core_tensor *out[2][CASES];
    uint32_t count;
    core_loop_program *program = indexed(&count);

    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        run_indexed("sim", program, layouts[k], out[0]);
        run_indexed(gpu_name(), program, layouts[k], out[1]);
        for (uint32_t i = 0; i < count; i++)
            same_bits("an index", out[0][i], out[1][i]);
    }
    core__loop_program_release(program);
    drop_all();
}
END_TEST

/* ------------------------------------------------------------------ rows -- */

enum { ROW_CASES = 3 };

/* softmax(a + b) of each row, and the sum of a; of f32. */
static core_loop_program *rows_program(void)
{
    core_loop_program *program;
    core__loop_writer w;
    uint32_t x[2], y, sum, out;

    core__loop_writer_begin(&w, 0);
    for (int k = 0; k < 2; k++)
        x[k] =
            core__loop_write(&w, CORE_LOOP_LOAD, CORE_F32,
                             core__loop_write_operand(&w, CORE_F32, 0), 0, 0);
    y = core__loop_write(&w, CORE_LOOP_ADD, CORE_F32, x[0], x[1], 0);
    sum = core__loop_write(&w, CORE_LOOP_REDUCE_MAX, CORE_F32, y, 0, 0);
    y = core__loop_write(&w, CORE_LOOP_SUB, CORE_F32, y, sum, 0);
    y = core__loop_write(&w, CORE_LOOP_FUNCTION, CORE_F32, y, 0,
                         core__loop_write_name(&w, "exp"));
    sum = core__loop_write(&w, CORE_LOOP_REDUCE_SUM, CORE_F32, y, 0, 0);
    y = core__loop_write(&w, CORE_LOOP_DIV, CORE_F32, y, sum, 0);
    sum = core__loop_write(&w, CORE_LOOP_REDUCE_SUM, CORE_F32, x[0], 0, 0);
    out = core__loop_write_operand(&w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT);
    core__loop_write(&w, CORE_LOOP_STORE, 0, out, y, 0);
    out = core__loop_write_operand(
        &w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT | CORE_LOOP_OPERAND_ROW);
    core__loop_write(&w, CORE_LOOP_STORE, 0, out, sum, 0);
    OK(core__loop_writer_finish(&w, &program, NULL));
    core__loop_writer_end(&w);
    return program;
}

static double number_in_row(int64_t i)
{
    return (double)(i * 37 % 101) / 16 - 3;
}

static void run_rows(core__loop_kernel *kernel, const char *name,
                     const int64_t *sizes)
{
    enum { MOST = 3 * 1500 };
    static double a[MOST], b[MOST];
    const int64_t count = sizes[0] * sizes[1], ones[] = {sizes[0], 1};
    core_tensor *tensors[4];
    const core__loop_arguments arguments = {
        .tensors = tensors, .ndim = 2, .row_ndim = 1, .sizes = sizes};
    float got[MOST], sum[MOST];

    for (int64_t i = 0; i < count; i++) {
        a[i] = number_in_row(i);
        b[i] = number_in_row(i / 3 + 5);
    }
    tensors[0] = CALL(full, sizes, 2, core_int(7), CORE_F32, opened(name));
    tensors[1] = CALL(full, ones, 2, core_int(7), CORE_F32, opened(name));
    tensors[2] = moved(typed(CORE_F32, 2, sizes, a), opened(name));
    tensors[3] = moved(typed(CORE_F32, 2, sizes, b), opened(name));
    OK(core__loop_kernel_run(kernel, &arguments));
    OK(core_tensor_read(tensors[0], got, (size_t)count * sizeof *got));
    OK(core_tensor_read(tensors[1], sum, (size_t)sizes[0] * sizeof *sum));
    for (int64_t r = 0; r < sizes[0]; r++) {
        double total = 0, plain = 0;

        for (int64_t i = r * sizes[1]; i < (r + 1) * sizes[1]; i++) {
            total += exp(a[i] + b[i]);
            plain += a[i];
        }
        ck_assert_double_eq((double)sum[r], plain);
        for (int64_t i = r * sizes[1]; i < (r + 1) * sizes[1]; i++)
            ck_assert_double_eq_tol(got[i], exp(a[i] + b[i]) / total, 1e-6);
    }
    drop_all();
}

/* A thread, a team and a block for each row. */
START_TEST(rows_are_those_of_the_formula)
{
    static const int64_t sizes[ROW_CASES][2] = {
        {300, 13}, {11, 400}, {3, 1500}};
    core_loop_program *program = rows_program();
    core__loop_kernel *kernel;

    OK(core__loop_kernel_build(opened(gpu_name()), program, NULL, &kernel));
    for (int i = 0; i < ROW_CASES; i++)
        run_rows(kernel, gpu_name(), sizes[i]);
    core__loop_kernel_release(kernel);
    core__loop_program_release(program);
}
END_TEST

enum { MANY_DIMS = 10, MANY = 1 << MANY_DIMS };

/* No two dimensions can be joined, because b has one element in every second
 * one: the loop is cut. */
START_TEST(rows_of_loops_with_many_dimensions_are_computed)
{
    static double a[MANY], b[MANY];
    core_loop_program *program = rows_program();
    core__loop_kernel *kernel;
    int64_t sizes[MANY_DIMS], ones[MANY_DIMS], some[MANY_DIMS];
    core_tensor *tensors[4];
    const core__loop_arguments arguments = {
        .tensors = tensors, .ndim = MANY_DIMS, .row_ndim = 1, .sizes = sizes};
    float got[MANY], sum[MANY / 2];

    for (int d = 0; d < MANY_DIMS; d++) {
        sizes[d] = 2;
        ones[d] = d == MANY_DIMS - 1 ? 1 : 2;
        some[d] = d % 2 ? 2 : 1;
    }
    for (int i = 0; i < MANY; i++) {
        a[i] = number_in_row(i);
        b[i] = number_in_row(i + 7);
    }
    OK(core__loop_kernel_build(opened(gpu_name()), program, NULL, &kernel));
    tensors[0] =
        CALL(full, sizes, MANY_DIMS, core_int(7), CORE_F32, opened(gpu_name()));
    tensors[1] =
        CALL(full, ones, MANY_DIMS, core_int(7), CORE_F32, opened(gpu_name()));
    tensors[2] =
        moved(typed(CORE_F32, MANY_DIMS, sizes, a), opened(gpu_name()));
    tensors[3] = moved(typed(CORE_F32, MANY_DIMS, some, b), opened(gpu_name()));
    OK(core__loop_kernel_run(kernel, &arguments));
    OK(core_tensor_read(tensors[0], got, sizeof got));
    OK(core_tensor_read(tensors[1], sum, sizeof sum));
    for (int i = 0; i < MANY; i++) {
        int pair = i ^ 1, at = 0, other;
        double x, y;

        for (int k = 0; k < MANY_DIMS; k += 2) /* the bits of b's dimensions */
            at |= (i >> k & 1) << k / 2;
        other = at ^ 1;
        x = exp(a[i] + b[at]);
        y = exp(a[pair] + b[other]);
        ck_assert_double_eq_tol(got[i], x / (x + y), 1e-6);
        ck_assert_double_eq((double)sum[i / 2], a[i] + a[pair]);
    }
    core__loop_kernel_release(kernel);
    core__loop_program_release(program);
    drop_all();
}
END_TEST

/* ---------------------------------------------------------- the compiler -- */

/* The sources of the emulated device are included from the source tree. */
static bool compiler_is_found(void)
{
    const char *source = getenv("LIBCORE_SOURCE"), *given = getenv("CXX");
    char command[4200];

    if (strcmp(gpu_name(), "gpuemu") != 0)
        return true;
    snprintf(command, sizeof command, "%s -x c++ -fsyntax-only /dev/null",
             given != NULL ? given : "c++");
    if (system(command) != 0)
        return false;
    snprintf(command, sizeof command, "%s -I '%s/backends'",
             given != NULL ? given : "c++", source != NULL ? source : ".");
    setenv("GPUEMU_COMPILER", command, 1);
    return true;
}

int main(void)
{
    const TTest *const tests[] = {
        indices_and_random_numbers_are_those_of_the_interpreter,
        rows_are_those_of_the_formula,
        rows_of_loops_with_many_dimensions_are_computed,
    };
    const suite_loop loops[] = {
        {opcodes_have_the_bits_of_the_interpreter, 0, BUNDLE_DTYPES},
        {functions_have_the_bits_of_operators, 0, BUNDLE_DTYPES - 1},
    };
    const test_suite suite = {
        .name = "gpu/gpu_loops",
        .seconds = 400,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    if (!gpu_plugin_found())
        return suite_skip_all("the device's plugin was not built");
    if (!compiler_is_found())
        return suite_skip_all("no C++ compiler was found");
    return suite_run(&suite, 1);
}
