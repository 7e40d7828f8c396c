/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of loop programs on the simulated device and on the CPU: strides, rows,
 * random numbers, streams, graphs, errors, and saved kernels. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include "base/memory.h"
#include "codegen/loop_kernel.h"
#include "tensor/tensor.h"

#include <libcore/capture.h>
#include <libcore/plugins.h>

#include <math.h>

static core__loop_writer w;

static void begin(void)
{
    setenv("LIBCORE_SIM_CHECK", "1", 1);
    sim_find("sim");
    core__loop_writer_begin(&w, 0);
}

static void begin_cpu(void)
{
    OK(core_device_find("cpu", &sim));
    core__loop_writer_begin(&w, 0);
}

static void end(void)
{
    drop_all();
}

/* -------------------------------------------------------------- helpers -- */

static uint32_t load(core_dtype type, uint32_t flags)
{
    return core__loop_write(&w, CORE_LOOP_LOAD, type,
                            core__loop_write_operand(&w, type, flags), 0, 0);
}

static void store(uint32_t value, uint32_t flags)
{
    uint32_t to = core__loop_write_operand(&w, core__loop_type_of(&w, value),
                                           CORE_LOOP_OPERAND_OUTPUT | flags);

    core__loop_write(&w, CORE_LOOP_STORE, 0, to, value, 0);
}

#define OP(opcode, type, ...) \
    write_op(CORE_LOOP_##opcode, CORE_##type, (uint32_t[3]){__VA_ARGS__})
static uint32_t write_op(uint32_t opcode, core_dtype type, const uint32_t *v)
{
    return core__loop_write(&w, opcode, type, v[0], v[1], v[2]);
}

static core_loop_program *written(void)
{
    core_loop_program *program;

    OK(core__loop_writer_finish(&w, &program, NULL));
    core__loop_writer_end(&w);
    return program;
}

static core__loop_kernel *built(void)
{
    core_loop_program *program = written();
    core__loop_kernel *kernel;

    OK(core__loop_kernel_accepts(sim, program));
    OK(core__loop_kernel_build(sim, program, NULL, &kernel));
    core__loop_program_release(program);
    return kernel;
}

/* Tensors of the operands, outputs first. */
static core_status run(core__loop_kernel *kernel, uint32_t ndim,
                       const int64_t *sizes, uint32_t row_ndim,
                       core_tensor *const *tensors)
{
    const core__loop_arguments arguments = {
        .tensors = tensors, .ndim = ndim, .sizes = sizes, .row_ndim = row_ndim};

    return core__loop_kernel_run(kernel, &arguments);
}

#define RUN(kernel, ndim, row_ndim, ...) \
    run(kernel, ndim, (int64_t[]){__VA_ARGS__}, row_ndim, tensors)

static core_tensor *made(core_dtype dtype, uint32_t ndim, const int64_t *sizes)
{
    core_tensor *tensor;

    OK(core_empty(sizes, ndim, dtype, sim, -1, &tensor));
    return keep(tensor);
}
#define MADE(dtype, ...)                                            \
    made(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
         (int64_t[]){__VA_ARGS__})

/* Numbers from -8 to 8, on the device. */
static core_tensor *numbers(core_dtype dtype, uint32_t ndim,
                            const int64_t *sizes)
{
    int64_t numel = 1;
    double *values;
    core_tensor *here, *there;

    for (uint32_t d = 0; d < ndim; d++)
        numel *= sizes[d];
    values = calloc((size_t)numel + 1, sizeof *values);
    for (int64_t i = 0; i < numel; i++)
        values[i] = (double)(i * 37 % 101) * .16 - 8;
    here = typed(dtype, ndim, sizes, values);
    free(values);
    OK(core_to_copy(here, CORE_DTYPE_NONE, sim, false, -1, &there));
    return keep(there);
}
#define NUMBERED(dtype, ...)                                           \
    numbers(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
            (int64_t[]){__VA_ARGS__})

static double at(core_tensor *tensor, int64_t i)
{
    core_tensor *wide, *flat;
    double *values = calloc((size_t)core_tensor_numel(tensor), sizeof *values);
    double value;

    OK(core_to_copy(tensor, CORE_F64, NULL, false, -1, &wide));
    OK(core_contiguous(wide, -1, &flat));
    OK(core_tensor_read(flat, values,
                        (size_t)core_tensor_numel(tensor) * sizeof *values));
    value = values[i];
    core_tensor_release(wide);
    core_tensor_release(flat);
    free(values);
    return value;
}

static void equal(core_tensor *a, core_tensor *b)
{
    bool same;

    OK(core_equal(a, b, &same));
    ck_assert(same);
}

/* Equal up to rounding. */
static void near(core_tensor *a, core_tensor *b)
{
    core_tensor *gap = CALL(abs, CALL(sub, a, b, core_int(1)));
    core_tensor *most = CALL(max, gap);

    ck_assert_double_lt(at(most, 0), 1e-3);
}

/* out = a + b b */
static core__loop_kernel *square_sum(core_dtype type)
{
    uint32_t a = load(type, 0), b = load(type, 0);

    b = core__loop_write(&w, CORE_LOOP_MUL, type, b, b, 0);
    store(core__loop_write(&w, CORE_LOOP_ADD, type, a, b, 0), 0);
    return built();
}

/* What square_sum computes. */
static core_tensor *square_sum_of(core_tensor *a, core_tensor *b)
{
    return CALL(add, a, CALL(mul, b, b), core_int(1));
}

/* out = a / b of i32, or the remainder. */
static core__loop_kernel *division(uint32_t opcode)
{
    uint32_t a = load(CORE_I32, 0), b = load(CORE_I32, 0);

    store(write_op(opcode, CORE_I32, (uint32_t[3]){a, b}), 0);
    return built();
}

/* out = -a of f32. */
static core_loop_program *negation(void)
{
    store(OP(NEG, F32, load(CORE_F32, 0)), 0);
    return written();
}

/* ------------------------------------------------------------- elements -- */

START_TEST(tails_are_computed)
{
    static const int64_t sizes[] = {1, 2, 255, 256, 257, 511, 512, 513, 1000};
    core__loop_kernel *kernel = square_sum(CORE_F32);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i];
        core_tensor *a = numbers(CORE_F32, 1, &n),
                    *b = numbers(CORE_F32, 1, &n);
        core_tensor *tensors[] = {made(CORE_F32, 1, &n), a, b};

        OK(RUN(kernel, 1, 0, n));
        equal(tensors[0], square_sum_of(a, b));
    }
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(strides_and_broadcast_are_followed)
{
    core__loop_kernel *kernel = square_sum(CORE_F64);
    core_tensor *a = NUMBERED(CORE_F64, 40, 30), *b = NUMBERED(CORE_F64, 40);
    core_tensor *wide = NUMBERED(CORE_F64, 60, 40);
    core_tensor *turned = CALL(transpose, a, 0, 1);
    core_tensor *out = CALL(slice, wide, 0, &(int64_t){0}, &(int64_t){60}, 2);
    core_tensor *before = CALL(clone, wide, -1);
    core_tensor *tensors[] = {out, turned, b};

    OK(RUN(kernel, 2, 0, 30, 40));
    equal(out, square_sum_of(turned, b));
    equal(CALL(slice, wide, 0, &(int64_t){1}, &(int64_t){60}, 2),
          CALL(slice, before, 0, &(int64_t){1}, &(int64_t){60}, 2));
    tensors[0] = MADE(CORE_F64, 2, 3, 4);
    tensors[1] = NUMBERED(CORE_F64, 3, 1);
    tensors[2] = NUMBERED(CORE_F64, 2, 1, 4);
    OK(RUN(kernel, 3, 0, 2, 3, 4));
    equal(tensors[0], square_sum_of(tensors[1], tensors[2]));
    tensors[0] = MADE(CORE_F64, 1);
    tensors[1] = tensors[2] = NUMBERED(CORE_F64, 1);
    OK(run(kernel, 0, NULL, 0,
           (core_tensor *[]){CALL(squeeze, tensors[0]),
                             CALL(squeeze, tensors[1]),
                             CALL(squeeze, tensors[2])}));
    ck_assert_double_eq(at(tensors[0], 0), 56);
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(an_output_may_be_an_input)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_tensor *a = NUMBERED(CORE_F32, 300);
    core_tensor *expected = square_sum_of(a, a);
    core_tensor *tensors[] = {a, a, a};

    OK(RUN(kernel, 1, 0, 300));
    equal(a, expected);
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(indices_and_sizes_are_known)
{
    core__loop_kernel *kernel;
    core_tensor *tensors[] = {MADE(CORE_I64, 20, 30)};
    uint32_t thousand, sum;

    core__loop_writer_end(&w);
    core__loop_writer_begin(&w, 2);
    thousand = core__loop_write_constant(&w, CORE_I64, core_int(1000));
    sum = OP(MUL, I64, OP(INDEX, I64, 1), thousand);
    sum = OP(ADD, I64, sum, OP(INDEX, I64, 0));
    sum = OP(MUL, I64, sum, thousand);
    sum = OP(ADD, I64, sum, OP(POSITION, I64));
    sum = OP(MUL, I64, sum, thousand);
    sum = OP(ADD, I64, sum, OP(SIZE, I64, 1));
    store(sum, 0);
    kernel = built();
    OK(RUN(kernel, 2, 0, 20, 30));
    ck_assert_double_eq(at(tensors[0], 0), 20);
    ck_assert_double_eq(at(tensors[0], 19 * 30 + 7), 19007577020);
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(numbers_belong_to_the_launch)
{
    uint32_t a = load(CORE_F32, 0),
             x = load(CORE_F32, CORE_LOOP_OPERAND_NUMBER);
    core__loop_kernel *kernel;
    core_tensor *tensors[] = {MADE(CORE_F32, 5), NUMBERED(CORE_F32, 5), NULL};

    store(OP(MUL, F32, a, x), 0);
    kernel = built();
    for (int i = 1; i < 4; i++) {
        const core_scalar given[3] = {{0}, {0}, core_int(i)};
        const core__loop_arguments arguments = {.tensors = tensors,
                                                .numbers = given,
                                                .ndim = 1,
                                                .sizes = (int64_t[]){5}};

        OK(core__loop_kernel_run(kernel, &arguments));
        equal(tensors[0],
              CALL(mul, tensors[1], typed(CORE_F32, 0, NULL, (double[]){i})));
    }
    core__loop_kernel_release(kernel);
}
END_TEST

/* Pairs of dtypes, with numbers that each conversion rounds or truncates. */
START_TEST(conversions_are_those_of_copies)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                        CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                        CORE_U8,  CORE_BOOL};
    const double values[] = {0,    -0.0, 1.5,      -2.5,  300.7,    -70000,
                             1e-9, 2049, INFINITY, 65520, 16777217, 1e300};
    const int64_t n = sizeof values / sizeof *values;
    core_tensor *all = typed(CORE_F64, 1, &n, values);

    for (int i = 0; i < 100; i++) {
        core_dtype from = dtypes[i / 10], to = dtypes[i % 10];
        core_tensor *tensors[2], *expected;
        core__loop_kernel *kernel;

        if (from == to)
            continue;
        core__loop_writer_begin(&w, 0);
        store(core__loop_write_convert(&w, to, load(from, 0)), 0);
        kernel = built();
        tensors[0] = made(to, 1, &n);
        tensors[1] = CALL(to_copy, all, from, sim, false, -1);
        OK(RUN(kernel, 1, 0, n));
        expected = CALL(to_copy, tensors[1], to, NULL, false, -1);
        equal(tensors[0], expected);
        core__loop_kernel_release(kernel);
    }
}
END_TEST

/* ----------------------------------------------------------------- rows -- */

/* out = (a - mean) / max, mean and max of each row, in rows longer and shorter
 * than what the interpreter computes at once. */
START_TEST(rows_are_reduced)
{
    static const int64_t lengths[] = {1, 7, 256, 300, 1025, 40000};
    uint32_t a = load(CORE_F32, 0);
    uint32_t n = core__loop_write_convert(&w, CORE_F32, OP(ROW_SIZE, I64));
    uint32_t mean = OP(DIV, F32, OP(REDUCE_SUM, F32, a), n);
    uint32_t most = OP(REDUCE_MAX, F32, OP(SUB, F32, a, mean));
    core__loop_kernel *kernel;

    store(OP(DIV, F32, OP(SUB, F32, a, mean), most), 0);
    store(mean, CORE_LOOP_OPERAND_ROW);
    kernel = built();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t sizes[] = {3, 4, lengths[i]};
        core_tensor *x = numbers(CORE_F32, 3, sizes), *centred, *sum;
        core_tensor *tensors[] = {made(CORE_F32, 3, sizes),
                                  MADE(CORE_F32, 3, 4, 1), x};

        OK(run(kernel, 3, sizes, 1, tensors));
        sum = CALL(mean_dim, x, (int64_t[]){-1}, 1, true, CORE_DTYPE_NONE);
        centred = CALL(sub, x, sum, core_int(1));
        near(tensors[1], sum);
        if (lengths[i] > 1) {
            near(tensors[0],
                 CALL(div, centred,
                      CALL(amax, centred, (int64_t[]){-1}, 1, true)));
        }
    }
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(rows_may_have_several_dimensions_and_strides)
{
    uint32_t a = load(CORE_I32, 0), b = load(CORE_I32, CORE_LOOP_OPERAND_ROW);
    core__loop_kernel *kernel;
    core_tensor *x = CALL(transpose, NUMBERED(CORE_I32, 20, 30, 5), 0, 1);
    core_tensor *tensors[] = {MADE(CORE_I32, 30, 1, 1), x,
                              NUMBERED(CORE_I32, 30, 1, 1)};
    core_tensor *sum, *least;

    store(OP(ADD, I32, OP(REDUCE_SUM, I32, OP(MUL, I32, a, b)),
             OP(REDUCE_MIN, I32, a)),
          CORE_LOOP_OPERAND_ROW);
    kernel = built();
    OK(RUN(kernel, 3, 2, 30, 20, 5));
    sum = CALL(sum_dim, CALL(mul, x, tensors[2]), (int64_t[]){1, 2}, 2, true,
               CORE_I32);
    least = CALL(amin, x, (int64_t[]){1, 2}, 2, true);
    equal(tensors[0], CALL(add, sum, least, core_int(1)));
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(extremes_of_rows_with_nan_are_nan)
{
    uint32_t a = load(CORE_F64, 0);
    core__loop_kernel *kernel;
    core_tensor *x = MATRIX(3, 3, NAN, 1, 2, 1, NAN, 2, 1, 2, 3);
    core_tensor *tensors[] = {MADE(CORE_F64, 3, 1), MADE(CORE_F64, 3, 1),
                              CALL(to_copy, x, CORE_F64, sim, false, -1)};

    store(OP(REDUCE_MAX, F64, a), CORE_LOOP_OPERAND_ROW);
    store(OP(REDUCE_MIN, F64, a), CORE_LOOP_OPERAND_ROW);
    kernel = built();
    OK(RUN(kernel, 2, 1, 3, 3));
    for (int k = 0; k < 2; k++) {
        ck_assert_double_nan(at(tensors[k], 0));
        ck_assert_double_nan(at(tensors[k], 1));
    }
    ck_assert_double_eq(at(tensors[0], 2), 3);
    ck_assert_double_eq(at(tensors[1], 2), 1);
    core__loop_kernel_release(kernel);
}
END_TEST

/* --------------------------------------------------------------- random -- */

/* Known answers of Philox4x32-10 for key and counter 0, and all ones. */
START_TEST(random_words_are_philox)
{
    uint32_t seed = load(CORE_I64, CORE_LOOP_OPERAND_NUMBER), place;
    core__loop_kernel *kernel;
    int32_t words[5];
    int64_t pairs[5];
    core_tensor *tensors[] = {MADE(CORE_I32, 5), MADE(CORE_I64, 5), NULL};
    const core_scalar given[3] = {{0}, {0}, core_int(0)};
    const core__loop_arguments arguments = {.tensors = tensors,
                                            .numbers = given,
                                            .ndim = 1,
                                            .sizes = (int64_t[]){5}};

    w.ndim = 1;
    place = OP(POSITION, I64);
    store(OP(PHILOX32, I32, seed, seed, place), 0);
    store(OP(PHILOX64, I64, seed, seed, place), 0);
    kernel = built();
    OK(core__loop_kernel_run(kernel, &arguments));
    OK(core_tensor_read(tensors[0], words, sizeof words));
    OK(core_tensor_read(tensors[1], pairs, sizeof pairs));
    ck_assert_uint_eq((uint32_t)words[0], 0x6627e8d5);
    ck_assert_uint_eq((uint32_t)words[1], 0xe169c58d);
    ck_assert_uint_eq((uint32_t)words[2], 0xbc57ac4c);
    ck_assert_uint_eq((uint32_t)words[3], 0x9b00dbd8);
    ck_assert_uint_eq((uint64_t)pairs[0], 0xe169c58d6627e8d5);
    ck_assert_uint_eq((uint64_t)pairs[1], 0x9b00dbd8bc57ac4c);
    ck_assert_int_eq((int32_t)pairs[2], words[4]);
    core__loop_kernel_release(kernel);
}
END_TEST

/* -------------------------------------------------------------- streams -- */

START_TEST(work_outlives_its_kernel)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_tensor *a = NUMBERED(CORE_F32, 100);
    core_tensor *expected = square_sum_of(a, a);
    core_tensor *tensors[] = {MADE(CORE_F32, 100), a, a};

    OK(core_device_synchronize(sim));
    OK(control->hold(0));
    OK(RUN(kernel, 1, 0, 100));
    core__loop_kernel_release(kernel);
    OK(control->release(0));
    equal(tensors[0], expected);
    ck_assert_uint_eq(counters_of(0).conflicts, 0);
}
END_TEST

START_TEST(unordered_launches_are_conflicts)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_tensor *a = NUMBERED(CORE_F32, 100);
    core_tensor *tensors[] = {MADE(CORE_F32, 100), a, a};
    core_stream *other;
    char text[400];

    OK(core_stream_create(sim, &other));
    OK(core_device_synchronize(sim));
    OK(RUN(kernel, 1, 0, 100));
    OK(core_stream_set_current(other));
    OK(RUN(kernel, 1, 0, 100));
    core_device_synchronize(sim);
    ck_assert_uint_ge(counters_of(0).conflicts, 1);
    OK(control->conflict(text, sizeof text));
    ck_assert_ptr_nonnull(strstr(text, "a loop program"));
    core__loop_kernel_release(kernel);
    core_stream_release(other);
}
END_TEST

START_TEST(launches_are_captured)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_tensor *a = filled(sim, 10, 1);
    core_tensor *tensors[] = {a, a, a};
    core_stream *stream = stream_of(sim);
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_stream_set_current(stream));
    OK(core_capture_begin(stream, NULL));
    OK(RUN(kernel, 1, 0, 10));
    OK(core_capture_end(stream, &graph));
    core__loop_kernel_release(kernel);
    all_are(a, 1);
    OK(core_graph_launch(graph, stream));
    all_are(a, 2);
    OK(core_graph_launch(graph, stream));
    all_are(a, 6);
    core_graph_release(graph);
    core_stream_release(stream);
}
END_TEST

/* --------------------------------------------------------------- errors -- */

START_TEST(integers_divided_by_zero_set_the_streams_error)
{
    core__loop_kernel *kernel = division(CORE_LOOP_DIV);
    core_tensor *tensors[] = {MADE(CORE_I32, 9), NUMBERED(CORE_I32, 9),
                              MADE(CORE_I32, 9)};

    OK(core_zero_(tensors[2]));
    OK(core_device_synchronize(sim));
    OK(RUN(kernel, 1, 0, 9));
    FAILS(core_device_synchronize(sim), CORE_ERROR_INVALID_ARGUMENT,
          "divided by zero");
    OK(core_device_synchronize(sim));
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(wrong_tensors_are_refused)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_tensor *a = NUMBERED(CORE_F32, 10), *out = MADE(CORE_F32, 10);
    core_tensor *tensors[] = {out, a, a};

    tensors[1] = NUMBERED(CORE_F64, 10);
    FAILS(RUN(kernel, 1, 0, 10), CORE_ERROR_DTYPE, "operand 1 is f64");
    tensors[1] = NULL;
    FAILS(RUN(kernel, 1, 0, 10), CORE_ERROR_DTYPE, "operand 1 is NULL");
    tensors[1] = typed(CORE_F32, 1, (int64_t[]){10}, (double[10]){0});
    FAILS(RUN(kernel, 1, 0, 10), CORE_ERROR_DEVICE, "operand 1", "cpu");
    tensors[1] = NUMBERED(CORE_F32, 9);
    FAILS(RUN(kernel, 1, 0, 10), CORE_ERROR_SHAPE, "operand 1", "[9]");
    tensors[1] = NUMBERED(CORE_F32, 2, 10);
    FAILS(RUN(kernel, 1, 0, 10), CORE_ERROR_SHAPE, "operand 1", "[2, 10]");
    tensors[1] = a;
    FAILS(RUN(kernel, 1, 0, 11), CORE_ERROR_SHAPE, "operand 0");
    FAILS(RUN(kernel, 1, 1, 10), CORE_ERROR_SHAPE, "reduced");
    a = NUMBERED(CORE_F32, 11);
    tensors[0] = CALL(slice, a, 0, &(int64_t){0}, &(int64_t){10}, 1);
    tensors[1] = CALL(slice, a, 0, &(int64_t){1}, &(int64_t){11}, 1);
    FAILS(RUN(kernel, 1, 0, 10), CORE_ERROR_INVALID_ARGUMENT,
          "output 0 shares memory with operand 1");
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(devices_without_the_interface_are_reported)
{
    core_device *meta = device_of("meta");
    core_loop_program *program = negation();
    core__loop_kernel *kernel;

    FAILS(core__loop_kernel_accepts(meta, program), CORE_ERROR_UNSUPPORTED,
          "core.codegen");
    FAILS(core__loop_kernel_build(meta, program, NULL, &kernel),
          CORE_ERROR_UNSUPPORTED, "core.codegen");
    FAILS(core__loop_kernel_build(sim, program, NULL, &kernel),
          CORE_ERROR_UNSUPPORTED, "\"sim\"", "core.codegen");
    core__loop_program_release(program);
}
END_TEST

START_TEST(failures_of_the_plugin_are_reported)
{
    core_tensor *tensors[] = {MADE(CORE_F32, 4), NUMBERED(CORE_F32, 4)};
    core_loop_program *program = negation();
    core__loop_kernel *kernel;

    OK(control->fault(0, SIM_FAULT_PLAN, 1));
    FAILS(core__loop_kernel_build(sim, program, NULL, &kernel),
          CORE_ERROR_INTERNAL, "injected");
    ck_assert_ptr_null(kernel);
    OK(core__loop_kernel_build(sim, program, NULL, &kernel));
    OK(control->fault(0, SIM_FAULT_LAUNCH, 1));
    FAILS(RUN(kernel, 1, 0, 4), CORE_ERROR_INTERNAL, "injected");
    OK(RUN(kernel, 1, 0, 4));
    equal(tensors[0], CALL(neg, tensors[1]));
    core__loop_kernel_release(kernel);
    core__loop_program_release(program);
}
END_TEST

/* The validating interposer sees kernels created, used and destroyed. */
START_TEST(the_interface_can_be_wrapped)
{
    core__loop_kernel *kernel = square_sum(CORE_F32), *loaded;
    core_tensor *a = NUMBERED(CORE_F32, 4);
    core_tensor *tensors[] = {MADE(CORE_F32, 4), a, a};
    size_t size;
    void *data;

    OK(RUN(kernel, 1, 0, 4));
    equal(tensors[0], square_sum_of(a, a));
    OK(core__loop_kernel_save(kernel, &data, &size));
    OK(core__loop_kernel_load(sim, kernel->program, data, size, &loaded));
    core__loop_kernel_release(loaded);
    drop_all();
    OK(core_device_reset(sim));
    core__loop_kernel_release(kernel);
    core__free(data);
    for (uint32_t i = 0; i < core_plugin_count(); i++) {
        const char *first;

        ck_assert_msg(core_plugin_violations(core_plugin_at(i), &first) == 0,
                      "%s", first);
    }
}
END_TEST

START_TEST(kernels_from_before_a_reset_are_lost)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_tensor *a = NUMBERED(CORE_F32, 4);
    core_tensor *tensors[] = {MADE(CORE_F32, 4), a, a};

    OK(control->lose(0));
    ck_assert_int_eq(RUN(kernel, 1, 0, 4), CORE_ERROR_DEVICE_LOST);
    drop_all();
    OK(core_device_reset(sim));
    a = NUMBERED(CORE_F32, 4);
    tensors[0] = MADE(CORE_F32, 4);
    tensors[1] = tensors[2] = a;
    FAILS(RUN(kernel, 1, 0, 4), CORE_ERROR_DEVICE_LOST, "reset");
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(tensors_from_before_a_reset_are_lost)
{
    core__loop_kernel *kernel;
    core_tensor *a = NUMBERED(CORE_F32, 4);
    core_tensor *tensors[] = {NULL, a, a};

    OK(control->lose(0));
    OK(core_device_reset(sim));
    kernel = square_sum(CORE_F32);
    tensors[0] = MADE(CORE_F32, 4);
    FAILS(RUN(kernel, 1, 0, 4), CORE_ERROR_DEVICE_LOST, "");
    tensors[1] = tensors[2] = NUMBERED(CORE_F32, 4);
    OK(RUN(kernel, 1, 0, 4));
    core__loop_kernel_release(kernel);
}
END_TEST

/* The inputs are broadcast, and the output has one element for each row. */
START_TEST(too_many_elements_are_refused)
{
    core__loop_kernel *kernel;
    core_tensor *tensors[2];

    store(OP(REDUCE_SUM, F32, load(CORE_F32, 0)), CORE_LOOP_OPERAND_ROW);
    kernel = built();
    tensors[0] = MADE(CORE_F32, 1, 1);
    tensors[1] = NUMBERED(CORE_F32, 1, 1);
    FAILS(RUN(kernel, 2, 2, INT64_C(1) << 40, INT64_C(1) << 40),
          CORE_ERROR_SHAPE, "1099511627776");
    core__loop_kernel_release(kernel);
}
END_TEST

/* ------------------------------------------------------------- the CPU's -- */

/* An output is written before all inputs that share its memory were read. */
START_TEST(outputs_are_inputs_that_are_read_later)
{
    uint32_t a = load(CORE_F32, 0), b = load(CORE_F32, 0);
    core__loop_kernel *kernel;
    core_tensor *x = NUMBERED(CORE_F32, 1000), *y = CALL(mul, x, x);
    core_tensor *difference = CALL(sub, x, y, core_int(1));
    core_tensor *sum = CALL(add, x, y, core_int(1));
    core_tensor *kept = CALL(clone, x, -1);
    core_tensor *tensors[] = {x, y, MADE(CORE_F32, 1000), x, y};

    store(OP(ADD, F32, a, b), 0);
    store(OP(SUB, F32, a, b), 0);
    store(a, 0);
    kernel = built();
    OK(RUN(kernel, 1, 0, 1000));
    equal(x, sum);
    equal(y, difference);
    equal(tensors[2], kept);
    core__loop_kernel_release(kernel);
}
END_TEST

/* Several threads, and an output that is written past the caches. */
START_TEST(large_loops_are_shared_by_threads)
{
    core__loop_kernel *kernel = square_sum(CORE_F64);
    const int64_t n = (int64_t)(4 << 20) + 77;
    core_tensor *a, *b;

    OK(core_rand(&n, 1, NULL, CORE_F64, sim, &a));
    OK(core_rand(&n, 1, NULL, CORE_F64, sim, &b));
    {
        core_tensor *tensors[] = {made(CORE_F64, 1, &n), a, b};

        OK(RUN(kernel, 1, 0, n));
        equal(tensors[0], square_sum_of(a, b));
    }
    core_tensor_release(a);
    core_tensor_release(b);
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(integers_divided_by_zero_are_an_error)
{
    core__loop_kernel *kernel = division(CORE_LOOP_REMAINDER);
    core_tensor *tensors[] = {MADE(CORE_I32, 9), NUMBERED(CORE_I32, 9),
                              MADE(CORE_I32, 9)};

    OK(core_zero_(tensors[2]));
    FAILS(RUN(kernel, 1, 0, 9), CORE_ERROR_INVALID_ARGUMENT, "divided by zero");
    OK(core_fill_(tensors[2], core_int(3)));
    OK(RUN(kernel, 1, 0, 9));
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(too_many_values_at_once_are_unsupported)
{
    uint32_t x = load(CORE_F32, 0), values[60], sum;
    core_loop_program *program;

    for (int i = 0; i < 60; i++)
        values[i] = OP(MUL, F32, x,
                       core__loop_write_constant(&w, CORE_F32, core_int(i)));
    sum = values[0];
    for (int i = 1; i < 60; i++)
        sum = OP(ADD, F32, sum, values[i]);
    store(sum, 0);
    program = written();
    FAILS(core__loop_kernel_accepts(sim, program), CORE_ERROR_UNSUPPORTED,
          "48 values");
    core__loop_program_release(program);
}
END_TEST

/* ---------------------------------------------------------------- saved -- */

START_TEST(saved_kernels_are_loaded)
{
    core__loop_kernel *kernel = square_sum(CORE_F32), *loaded;
    core_tensor *a = NUMBERED(CORE_F32, 50);
    core_tensor *tensors[] = {MADE(CORE_F32, 50), a, a};
    size_t size;
    void *data;

    OK(core__loop_kernel_save(kernel, &data, &size));
    OK(core__loop_kernel_load(sim, kernel->program, data, size, &loaded));
    OK(RUN(loaded, 1, 0, 50));
    equal(tensors[0], square_sum_of(a, a));
    core__loop_kernel_release(loaded);
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)data)[i] ^= 1;
        ck_assert_int_ne(
            core__loop_kernel_load(sim, kernel->program, data, size, &loaded),
            CORE_OK);
        ck_assert_ptr_null(loaded);
        ((unsigned char *)data)[i] ^= 1;
    }
    for (size_t cut = 0; cut < size; cut += 7)
        FAILS(core__loop_kernel_load(sim, kernel->program, data, cut, &loaded),
              CORE_ERROR_CORRUPT, "saved kernel");
    core__free(data);
    core__loop_kernel_release(kernel);
}
END_TEST

static core_status save_without_reason(void *device, void *kernel, void *data,
                                       uint64_t capacity, uint64_t *out_size)
{
    (void)device, (void)kernel, (void)data, (void)capacity, (void)out_size;
    return CORE_ERROR_INTERNAL;
}

static core_status identity_without_reason(void *device, core_string *out_text)
{
    (void)device, (void)out_text;
    return CORE_ERROR_INTERNAL;
}

START_TEST(saving_without_a_reason_is_reported)
{
    core__loop_kernel *kernel = square_sum(CORE_F32);
    core_codegen_interface *table = &sim->interfaces.codegen;
    const core_codegen_interface before = *table;
    size_t size;
    void *data;

    table->save = save_without_reason;
    FAILS(core__loop_kernel_save(kernel, &data, &size), CORE_ERROR_INTERNAL,
          "save of \"sim\"", "gave no reason");
    ck_assert_ptr_null(data);
    table->identity = identity_without_reason;
    FAILS(core__loop_kernel_save(kernel, &data, &size), CORE_ERROR_INTERNAL,
          "identity of \"sim\"", "gave no reason");
    *table = before;
    core__loop_kernel_release(kernel);
}
END_TEST

START_TEST(kernels_of_other_programs_are_not_loaded)
{
    core__loop_kernel *kernel = square_sum(CORE_F32), *loaded;
    core_loop_program *other;
    size_t size;
    void *data;

    core__loop_writer_begin(&w, 0);
    other = negation();
    OK(core__loop_kernel_save(kernel, &data, &size));
    FAILS(core__loop_kernel_load(sim, other, data, size, &loaded),
          CORE_ERROR_INCOMPATIBLE, "another program");
    core__free(data);
    core__loop_program_release(other);
    core__loop_kernel_release(kernel);
}
END_TEST

static void begin_without(void)
{
    setenv("LIBCORE_SIM_CODEGEN", "0", 1);
    begin();
}

static void begin_wrapped(void)
{
    setenv("LIBCORE_INTERPOSERS", "validate", 1);
    begin();
}

int main(void)
{
    const TTest *const wrapped[] = {the_interface_can_be_wrapped};
    const TTest *const tests[] = {
        tails_are_computed,
        strides_and_broadcast_are_followed,
        an_output_may_be_an_input,
        indices_and_sizes_are_known,
        numbers_belong_to_the_launch,
        conversions_are_those_of_copies,
        rows_are_reduced,
        rows_may_have_several_dimensions_and_strides,
        extremes_of_rows_with_nan_are_nan,
        random_words_are_philox,
        outputs_are_inputs_that_are_read_later,
        work_outlives_its_kernel,
        unordered_launches_are_conflicts,
        launches_are_captured,
        integers_divided_by_zero_set_the_streams_error,
        wrong_tensors_are_refused,
        failures_of_the_plugin_are_reported,
        kernels_from_before_a_reset_are_lost,
        tensors_from_before_a_reset_are_lost,
        too_many_elements_are_refused,
        saved_kernels_are_loaded,
        saving_without_a_reason_is_reported,
        kernels_of_other_programs_are_not_loaded,
    };
    const TTest *const without[] = {devices_without_the_interface_are_reported};
    const TTest *const cpu[] = {
        tails_are_computed,
        strides_and_broadcast_are_followed,
        an_output_may_be_an_input,
        indices_and_sizes_are_known,
        numbers_belong_to_the_launch,
        conversions_are_those_of_copies,
        rows_are_reduced,
        rows_may_have_several_dimensions_and_strides,
        extremes_of_rows_with_nan_are_nan,
        random_words_are_philox,
        outputs_are_inputs_that_are_read_later,
        large_loops_are_shared_by_threads,
        integers_divided_by_zero_are_an_error,
        too_many_values_at_once_are_unsupported,
    };
    const test_suite suites[] = {
        {.name = "kernels of loop programs",
         .setup = begin,
         .teardown = end,
         SUITE_TESTS(tests)},
        {.name = "kernels of loop programs, validate",
         .setup = begin_wrapped,
         .teardown = end,
         SUITE_TESTS(wrapped)},
        {.name = "kernels of loop programs, without core.codegen",
         .setup = begin_without,
         .teardown = end,
         SUITE_TESTS(without)},
        {.name = "kernels of loop programs, cpu",
         .setup = begin_cpu,
         .teardown = end,
         SUITE_TESTS(cpu)},
    };

    return suite_run(suites, 4);
}
