/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Lazy regions: what cuts them, that segments are found again, and that results,
 * gradients, random numbers and errors are those of calls without a region.
 * test_alias_fuzz.c has random functions of views and changes in place. */

#include "support/children.h"
#include "support/modes.h"
#include "support/program.h"
#include "support/temporary_files.h"
#include "support/training.h"

#include <libcore/core.h>

#include <pthread.h>

enum { SIZE = 64 };

static core_lazy_counts lazy_counts(void)
{
    core_lazy_counts counts = {.struct_size = sizeof counts};

    OK(core_lazy_get_counts(&counts));
    return counts;
}

static void begin(void)
{
    OK(core_lazy_begin(NULL));
}

static void end(void)
{
    OK(core_lazy_end());
}

static core_tensor *some(uint32_t from)
{
    world w = {.device = program_device};

    return NUMBERS(&w, from, SIZE);
}

/* tanh(x * x + x) */
static core_tensor *chain(core_tensor *x)
{
    core_tensor *square, *sum, *y;

    OK(core_mul(x, x, &square));
    OK(core_add(square, x, core_int(1), &sum));
    OK(core_tanh(sum, &y));
    core_tensor_release(square);
    core_tensor_release(sum);
    return keep(y);
}

static bool explains_lazy(const char *text)
{
    char *json;
    bool found;

    OK(core_lazy_explain(&json));
    found = strstr(json, text) != NULL;
    core_text_free(json);
    return found;
}

/* ------------------------------------------------------------- segments -- */

START_TEST(operators_do_not_run_before_a_cut)
{
    core_tensor *x = some(1), *expected = chain(x), *y;
    core_lazy_counts before = lazy_counts(), after;

    begin();
    y = chain(x);
    ck_assert_int_eq(core_tensor_sizes(y)[0], SIZE);
    ck_assert_int_eq(core_tensor_dtype(y), CORE_F32);
    after = lazy_counts();
    ck_assert_uint_eq(after.cuts, before.cuts);
    same_bits("result", 0, expected, y);
    after = lazy_counts();
    ck_assert_uint_eq(after.cuts, before.cuts + 1);
    ck_assert_uint_eq(after.operators, before.operators + 3);
    end();
    ck_assert_uint_eq(lazy_counts().cuts, before.cuts + 1);
}
END_TEST

START_TEST(segments_are_found_again)
{
    core_tensor *expected[3];
    core_lazy_counts before;

    for (uint32_t i = 0; i < 3; i++)
        expected[i] = chain(some(70 * i));
    before = lazy_counts();
    begin();
    for (uint32_t i = 0; i < 3; i++)
        same_bits("result", i, expected[i], chain(some(70 * i)));
    end();
    ck_assert_uint_eq(lazy_counts().found + lazy_counts().compiled,
                      before.found + before.compiled + 3);
    ck_assert_uint_ge(lazy_counts().found, before.found + 2);
    ck_assert(explains_lazy("\"prepared\""));
}
END_TEST

/* Sizes, dtypes, numbers, and what is still in use make other segments. */
START_TEST(what_differs_is_another_segment)
{
    world w = {.device = program_device};
    core_tensor *x = NUMBERS(&w, 1, 7, 3), *wide, *y, *z;
    core_lazy_counts before = lazy_counts();

    OK(core_to_copy(x, CORE_F64, NULL, false, -1, &wide));
    keep(wide);
    for (int i = 0; i < 2; i++) {
        begin();
        chain(x);
        OK(core_lazy_sync());
        chain(NUMBERS(&w, 1, 3, 7));
        OK(core_lazy_sync());
        chain(CALL(transpose, x, 0, 1));
        OK(core_lazy_sync());
        chain(wide);
        OK(core_lazy_sync());
        OK(core_mul_scalar(x, core_float(i), &y));
        OK(core_lazy_sync());
        core_tensor_release(y);
        OK(core_exp(x, &y)); /* both are used */
        OK(core_neg(y, &z));
        OK(core_lazy_sync());
        core_tensor_release(y);
        core_tensor_release(z);
        OK(core_exp(x, &y)); /* one is */
        OK(core_neg(y, &z));
        core_tensor_release(y);
        end();
        core_tensor_release(z);
    }
    ck_assert_uint_eq(lazy_counts().compiled, before.compiled + 8);
    ck_assert_uint_eq(lazy_counts().found, before.found + 6);
}
END_TEST

START_TEST(unused_results_are_not_computed)
{
    core_tensor *x = some(1), *y;
    core_lazy_counts before = lazy_counts();

    begin();
    OK(core_exp(x, &y));
    core_tensor_release(y);
    end();
    ck_assert_uint_eq(lazy_counts().cuts, before.cuts);
}
END_TEST

/* Code whose numbers change makes segments without end; few are kept. */
START_TEST(few_segments_are_kept)
{
    core_tensor *x = some(1), *y;
    core_lazy_counts before = lazy_counts();

    begin();
    for (int i = 0; i < 300; i++) {
        OK(core_mul_scalar(x, core_float(1000 + i), &y));
        OK(core_lazy_sync());
        core_tensor_release(y);
    }
    end();
    ck_assert_uint_ge(lazy_counts().dropped, before.dropped + 44);
    ck_assert_uint_le(lazy_counts().segments, 256);
}
END_TEST

START_TEST(a_region_is_cut_after_its_limit)
{
    core_lazy_options options = {.struct_size = sizeof options, .limit = 2};
    core_tensor *x = some(1), *expected = chain(x);
    core_lazy_counts before = lazy_counts();

    OK(core_lazy_begin(&options));
    same_bits("result", 0, expected, chain(x));
    end();
    ck_assert_uint_eq(lazy_counts().cuts, before.cuts + 2);
}
END_TEST

START_TEST(wrong_options_fail)
{
    core_lazy_options options = {.struct_size = 4};

    FAILS(core_lazy_begin(&options), CORE_ERROR_INVALID_ARGUMENT);
    options = (core_lazy_options){.struct_size = sizeof options, .flags = 1};
    FAILS(core_lazy_begin(&options), CORE_ERROR_INVALID_ARGUMENT, "flags");
    options = (core_lazy_options){.struct_size = sizeof options, .codegen = 9};
    FAILS(core_lazy_begin(&options), CORE_ERROR_INVALID_ARGUMENT, "codegen");
    FAILS(core_lazy_end(), CORE_ERROR_INVALID_ARGUMENT, "has not begun");
}
END_TEST

/* A part that does not know what it is a part of is changed; then the whole is
 * read. */
static core_tensor *read_after_part(core_tensor *whole)
{
    core_tensor *part =
        CALL(detach, CALL(slice, whole, 0, &(int64_t){3}, &(int64_t){9}, 1));

    OK(core_neg_(part));
    return CALL(tanh, whole);
}

START_TEST(the_whole_is_read_after_a_part_was_changed)
{
    core_tensor *expected = read_after_part(some(1)), *y;

    begin();
    y = read_after_part(some(1));
    end();
    same_bits("result", 0, expected, y);
}
END_TEST

/* ----------------------------------------------------------------- cuts -- */

/* Calls that need content, or whose effect depends on what was called before.
 * x is pending, and changed by a pending call; large: one more pending one. */
typedef void (*cutting_call)(core_tensor *x, core_tensor *large);

static void read_item(core_tensor *x, core_tensor *large)
{
    double item;

    (void)large;
    OK(core_tensor_item_float(x, &item));
    ck_assert_double_eq(item, 3);
}

static void read_content(core_tensor *x, core_tensor *large)
{
    float number;

    (void)large;
    OK(core_tensor_read(x, &number, sizeof number));
    ck_assert_float_eq(number, 3);
}

static void write_content(core_tensor *x, core_tensor *large)
{
    float number = 5;

    (void)large;
    OK(core_tensor_write(x, &number, sizeof number));
}

static void print(core_tensor *x, core_tensor *large)
{
    char *text;

    (void)large;
    OK(core_tensor_format(x, &text));
    ck_assert_ptr_nonnull(strchr(text, '3'));
    core_text_free(text);
}

static void save(core_tensor *x, core_tensor *large)
{
    temporary_path path;
    core_named_tensor entry = {.name = "x", .tensor = x};

    (void)large;
    temporary_name(path, "lazy");
    OK(core_safetensors_save(path, &entry, 1, NULL, 0));
    temporary_remove(path);
}

static void copy_to_host(core_tensor *x, core_tensor *large)
{
    core_device *cpu;
    core_tensor *copy;

    OK(core_device_find("cpu", &cpu));
    if (cpu == program_device)
        OK(core_device_find("sim", &cpu));
    OK(core_to_copy(x, CORE_DTYPE_NONE, cpu, false, -1, &copy));
    read_item(copy, large);
    core_tensor_release(copy);
}

static void export(core_tensor *x, core_tensor *large)
{
    core_dlpack_managed *managed;

    (void)large;
    OK(core_dlpack_export(x, 0, 0, &managed));
    managed->deleter(managed);
}

static void record_event(core_tensor *x, core_tensor *large)
{
    core_event *event;
    core_stream *stream;

    (void)x;
    (void)large;
    OK(core_event_create(program_device, 0, &event));
    OK(core_stream_current(program_device, &stream));
    OK(core_event_record(event, stream));
    core_event_release(event);
}

static void synchronize(core_tensor *x, core_tensor *large)
{
    (void)x;
    (void)large;
    OK(core_device_synchronize(program_device));
}

static void set_stream(core_tensor *x, core_tensor *large)
{
    core_stream *stream;

    (void)x;
    (void)large;
    OK(core_stream_default(program_device, &stream));
    OK(core_stream_set_current(stream));
}

static void record_stream(core_tensor *x, core_tensor *large)
{
    core_stream *stream;

    (void)large;
    OK(core_stream_default(program_device, &stream));
    OK(core_tensor_record_stream(x, stream));
}

static void seed(core_tensor *x, core_tensor *large)
{
    (void)x;
    (void)large;
    core_seed(3);
}

static void read_generator(core_tensor *x, core_tensor *large)
{
    (void)x;
    (void)large;
    random_offset();
}

static void change_setting(core_tensor *x, core_tensor *large)
{
    (void)x;
    (void)large;
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "0"));
}

static void find_dynamic(core_tensor *x, core_tensor *large)
{
    core_tensor *found;

    (void)x;
    OK(core_nonzero(large, &found));
    ck_assert_int_eq(core_tensor_sizes(found)[0], SIZE);
    core_tensor_release(found);
}

static core_status pass_on(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    return core_redispatch_displaced(call, args, nargs, results, nresults);
}

static void register_function(core_tensor *x, core_tensor *large)
{
    core_registration *registration;

    (void)x;
    (void)large;
    OK(core_function_register("sinh", CORE_KEY_BACKEND,
                              core_device_type(program_device), pass_on, NULL,
                              &registration));
    core_registration_release(registration);
}

static const struct {
    const char *by;
    cutting_call call;
} cutting[] = {
    {"core_tensor_item", read_item},
    {"core_tensor_read", read_content},
    {"core_tensor_write", write_content},
    {"", print},
    {"", save},
    {"", copy_to_host},
    {"DLPack", export},
    {"core_event_record", record_event},
    {"core_device_synchronize", synchronize},
    {"core_stream_set_current", set_stream},
    {"core_tensor_record_stream", record_stream},
    {"core_seed", seed},
    {"core_generator_state", read_generator},
    {"core_setting_set", change_setting},
    {"nonzero", find_dynamic},
    {"core_function_register", register_function},
};

START_TEST(what_needs_content_cuts)
{
    for (size_t i = 0; i < sizeof cutting / sizeof *cutting; i++) {
        core_lazy_counts before = lazy_counts();
        core_tensor *x, *large;
        char by[80];

        begin();
        OK(core_full(NULL, 0, core_float(2), CORE_F32, program_device, &x));
        OK(core_ones((int64_t[]){SIZE}, 1, CORE_F32, program_device, &large));
        OK(core_add_scalar_(x, core_int(1), core_int(1)));
        ck_assert_uint_eq(lazy_counts().cuts, before.cuts);
        cutting[i].call(x, large);
        ck_assert_msg(lazy_counts().cuts > before.cuts, "%s does not cut",
                      cutting[i].by);
        snprintf(by, sizeof by, "\"by\": \"%s\"", cutting[i].by);
        if (*cutting[i].by)
            ck_assert_msg(explains_lazy(by), "%s", by);
        core_tensor_release(x);
        core_tensor_release(large);
        end();
    }
}
END_TEST

/* A loop whose number of steps is read on the host. */
static int halve_until_small(core_tensor *x)
{
    double norm = 100;
    int steps = 0;

    for (; norm > 1; steps++) {
        core_tensor *square, *sum;

        OK(core_mul_scalar_(x, core_float(.5)));
        OK(core_mul(x, x, &square));
        OK(core_sum(square, CORE_DTYPE_NONE, &sum));
        OK(core_tensor_item_float(sum, &norm));
        core_tensor_release(square);
        core_tensor_release(sum);
    }
    return steps;
}

START_TEST(a_loop_with_reads_runs_one_segment)
{
    core_tensor *a = some(1), *b = some(1);
    int steps = halve_until_small(a);
    core_lazy_counts before = lazy_counts();

    ck_assert_int_gt(steps, 3);
    begin();
    ck_assert_int_eq(halve_until_small(b), steps);
    end();
    same_bits("x", 0, a, b);
    ck_assert_uint_eq(lazy_counts().compiled, before.compiled + 1);
    ck_assert_uint_eq(lazy_counts().found, before.found + (unsigned)steps - 1);
}
END_TEST

static core_status above_one(void *context, core_tensor *const *x, size_t n,
                             core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    return core_mul_scalar(x[0], core_float(3), out);
}

static core_status fails_silently(void *context, core_tensor *const *x,
                                  size_t n, core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)x;
    (void)n;
    (void)out;
    *noutputs = 1;
    return CORE_ERROR_REFUSED;
}

START_TEST(branches_read_their_predicate)
{
    core_tensor *x = some(1), *yes, *y, *expected;

    expected = CALL(mul_scalar, x, core_float(3));
    begin();
    OK(core_full(NULL, 0, core_bool(true), CORE_BOOL, program_device, &yes));
    OK(core_cond(yes, above_one, fails_silently, NULL, &x, 1, &y, 1));
    core_tensor_release(yes);
    end();
    same_bits("branch", 0, expected, keep(y));
}
END_TEST

START_TEST(an_error_of_a_branch_without_a_message_gets_one)
{
    core_tensor *x = some(1), *yes, *y;

    OK(core_full(NULL, 0, core_bool(true), CORE_BOOL, program_device, &yes));
    FAILS(core_tensor_item(x, &(core_scalar){0}), CORE_ERROR_SHAPE);
    FAILS(core_cond(yes, fails_silently, above_one, NULL, &x, 1, &y, 1),
          CORE_ERROR_REFUSED, "core_cond");
    core_tensor_release(yes);
}
END_TEST

/* --------------------------------------------------------------- errors -- */

START_TEST(wrong_arguments_are_reported_by_the_call)
{
    world w = {.device = program_device};
    core_tensor *a = NUMBERS(&w, 1, 2, 3), *b = NUMBERS(&w, 1, 4, 5), *y;
    char eager[256];

    FAILS(core_mm(a, b, &y), CORE_ERROR_SHAPE);
    snprintf(eager, sizeof eager, "%s", core_error_message());
    begin();
    FAILS(core_mm(a, b, &y), CORE_ERROR_SHAPE, eager);
    FAILS(core_add_(a, b, core_int(1)), CORE_ERROR_SHAPE);
    end();
}
END_TEST

/* An index out of range is found when the segment runs. */
static core_tensor *gather_beyond(core_tensor *x)
{
    core_tensor *index, *y;

    OK(core_full((int64_t[]){2}, 1, core_int(1000), CORE_I64, program_device,
                 &index));
    OK(core_gather(x, 0, index, false, &y));
    core_tensor_release(index);
    return keep(y);
}

/* Kernels of sim report it at the next wait, as without a region. */
static bool reports_at_once(void)
{
    return strcmp(core_device_type(program_device), "cpu") == 0;
}

START_TEST(an_error_of_a_segment_is_reported_by_the_cut)
{
    core_tensor *x = some(1), *expected = chain(x), *y, *other;

    if (!reports_at_once())
        return;
    begin();
    other = chain(x);
    y = gather_beyond(x);
    FAILS(core_lazy_sync(), CORE_ERROR_INDEX, "core_lazy_sync", "gather");
    FAILS(core_neg(y, &y), CORE_ERROR_UNSUPPORTED, "failed");
    FAILS(core_tensor_read(other, &(float[SIZE]){0}, SIZE * sizeof(float)),
          CORE_ERROR_UNSUPPORTED, "no content: it stands for a value of",
          " a segment of a lazy region that failed");
    same_bits("result", 0, expected, chain(x));
    gather_beyond(x);
    FAILS(core_lazy_end(), CORE_ERROR_INDEX, "core_lazy_end");
    FAILS(core_lazy_end(), CORE_ERROR_INVALID_ARGUMENT);
    FAILS(core_neg(other, &y), CORE_ERROR_UNSUPPORTED, "failed");
    same_bits("result", 0, expected, chain(x));
}
END_TEST

START_TEST(a_call_that_cannot_fail_leaves_its_error_to_the_next_cut)
{
    if (!reports_at_once())
        return;
    begin();
    gather_beyond(some(1));
    core_seed(1);
    FAILS(core_lazy_sync(), CORE_ERROR_INDEX, "core_seed");
    OK(core_lazy_sync());
    end();
}
END_TEST

START_TEST(a_failed_segment_leaves_no_cached_casts)
{
    world w = {.device = program_device};
    core_tensor *x = NUMBERS(&w, 1, 4, 4), *weight = leaf(NUMBERS(&w, 9, 4, 4));
    core_tensor *y, *expected;
    uint64_t region;

    if (!reports_at_once())
        return;
    OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
    expected = CALL(mm, x, weight);
    core_autocast_clear_cache();
    begin();
    CALL(mm, x, weight);
    gather_beyond(some(1));
    FAILS(core_lazy_sync(), CORE_ERROR_INDEX);
    y = CALL(mm, x, weight);
    end();
    OK(core_autocast_end(region));
    same_bits("product", 0, expected, y);
}
END_TEST

/* -------------------------------------------------------------- regions -- */

START_TEST(regions_nest)
{
    core_tensor *x = some(1), *expected = chain(x), *y;
    core_lazy_counts before = lazy_counts();

    begin();
    begin();
    y = chain(x);
    end();
    ck_assert_uint_eq(lazy_counts().cuts, before.cuts);
    end();
    ck_assert_uint_eq(lazy_counts().cuts, before.cuts + 1);
    FAILS(core_lazy_end(), CORE_ERROR_INVALID_ARGUMENT);
    same_bits("result", 0, expected, y);
}
END_TEST

static core_status region_inside(void *context, core_tensor *const *x, size_t n,
                                 core_tensor **out, size_t *noutputs)
{
    core_tensor *square = NULL;
    core_status status;

    (void)context;
    (void)n;
    *noutputs = 1;
    CORE_TRY(core_lazy_begin(NULL));
    status = core_mul(x[0], x[0], &square);
    if (status == CORE_OK)
        status = core_tanh(square, &out[0]);
    core_tensor_release(square);
    CORE_TRY(core_lazy_end());
    return status;
}

START_TEST(a_region_in_a_recording_is_a_part_of_the_program)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH};
    core_tensor *x = some(1), *y, *expected;
    core_compiled *compiled;
    size_t count = 1;

    OK(region_inside(NULL, &x, 1, &expected, &count));
    keep(expected);
    OK(core_compile(region_inside, NULL, &options, &compiled));
    for (int i = 0; i < 2; i++) {
        OK(core_compiled_call(compiled, &x, 1, &y, 1));
        same_bits("result", 0, expected, y);
        core_tensor_release(y);
    }
    core_compiled_release(compiled);
}
END_TEST

static core_status square_and_tanh(void *context, core_tensor *const *x,
                                   size_t n, core_tensor **out,
                                   size_t *noutputs)
{
    core_tensor *square = NULL;
    core_status status = core_mul(x[0], x[0], &square);

    (void)context;
    (void)n;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_tanh(square, &out[0]);
    core_tensor_release(square);
    return status;
}

/* Something is pending before the call, and nothing after it. */
#define RUNS_BESIDE(call)                                 \
    do {                                                  \
        uint64_t cuts_ = lazy_counts().cuts;              \
        OK(call);                                         \
        OK(core_lazy_sync());                             \
        ck_assert_uint_eq(lazy_counts().cuts, cuts_ + 1); \
    } while (0)

START_TEST(compiled_functions_and_programs_run_beside_a_region)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH};
    core_tensor *x = some(1), *y, *z, *negative, *expected;
    uint64_t calls = compile_counts().compiled_calls;
    core_compiled *compiled;
    core_program *program;
    size_t count = 1;

    negative = CALL(neg, x);
    OK(square_and_tanh(NULL, &negative, 1, &expected, &count));
    keep(expected);
    OK(core_compile(square_and_tanh, NULL, &options, &compiled));
    begin();
    for (int i = 0; i < 2; i++) {
        OK(core_neg(x, &y)); /* pending */
        RUNS_BESIDE(core_compiled_call(compiled, &y, 1, &z, 1));
        same_bits("compiled", 0, expected, z);
        core_tensor_release(z);
        OK(core_neg(x, &z));
        RUNS_BESIDE(
            core_program_trace(square_and_tanh, NULL, &z, 1, 1, &program));
        core_tensor_release(y);
        core_tensor_release(z);
        OK(core_neg(x, &z));
        RUNS_BESIDE(core_program_run(program, &z, 1, &y, 1));
        same_bits("program", 0, expected, y);
        core_program_release(program);
        core_tensor_release(y);
        core_tensor_release(z);
    }
    end();
    ck_assert_uint_eq(compile_counts().compiled_calls, calls + 2);
    core_compiled_release(compiled);
}
END_TEST

/* -------------------------------------------------------------- threads -- */

static void *use_elsewhere(void *context)
{
    core_tensor *y = NULL;
    core_status status = core_neg(context, &y);

    core_tensor_release(y);
    return (void *)(intptr_t)status;
}

static void *read_elsewhere(void *context)
{
    core_status status =
        core_tensor_read(context, (float[SIZE]){0}, SIZE * sizeof(float));

    if (status != CORE_OK)
        FAILS(status, CORE_ERROR_UNSUPPORTED, "another thread's lazy region");
    return (void *)(intptr_t)status;
}

static core_status in_thread(void *(*function)(void *), void *context)
{
    pthread_t thread;
    void *result;

    ck_assert_int_eq(pthread_create(&thread, NULL, function, context), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    return (core_status)(intptr_t)result;
}

START_TEST(other_threads_use_tensors_after_a_cut)
{
    core_tensor *y;

    begin();
    y = chain(some(1));
    ck_assert_int_eq(in_thread(use_elsewhere, y), CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(in_thread(read_elsewhere, y), CORE_ERROR_UNSUPPORTED);
    OK(core_lazy_sync());
    ck_assert_int_eq(in_thread(read_elsewhere, y), CORE_OK);
    ck_assert_int_eq(in_thread(use_elsewhere, y), CORE_OK);
    end();
}
END_TEST

/* Changes a tensor by one that may have no content. */
static void *change_elsewhere(void *context)
{
    core_tensor *x, *y = context;
    core_status status;

    OK(core_ones((int64_t[]){SIZE}, 1, CORE_F32, program_device, &x));
    status = core_add_(x, y, core_int(1));
    if (status == CORE_OK)
        status = core_mul_(x, y);
    ck_assert_int_eq(core_neg_out(y, x), status);
    core_tensor_release(x);
    return (void *)(intptr_t)status;
}

START_TEST(a_change_needs_operands_with_content)
{
    core_tensor *y;

    begin();
    y = chain(some(1));
    ck_assert_int_eq(in_thread(change_elsewhere, y), CORE_ERROR_UNSUPPORTED);
    OK(core_lazy_sync());
    ck_assert_int_eq(in_thread(change_elsewhere, y), CORE_OK);
    if (reports_at_once()) {
        y = chain(some(1));
        gather_beyond(y);
        FAILS(core_lazy_sync(), CORE_ERROR_INDEX);
        ck_assert_int_eq(in_thread(change_elsewhere, y),
                         CORE_ERROR_UNSUPPORTED);
    }
    end();
}
END_TEST

static void *leave_region(void *context)
{
    core_tensor **tensors = context;

    if (core_lazy_begin(NULL) == CORE_OK)
        core_tanh(tensors[0], &tensors[1]);
    return NULL;
}

START_TEST(a_region_ends_with_its_thread)
{
    core_tensor *tensors[2] = {some(1)};
    core_tensor *expected = CALL(tanh, tensors[0]);

    in_thread(leave_region, tensors);
    same_bits("result", 0, expected, keep(tensors[1]));
}
END_TEST

typedef struct loop_thread {
    core_tensor *x;
    core_device *device;
    bool equal;
} loop_thread;

static void *run_loop(void *context)
{
    loop_thread *loop = context;
    float first[SIZE], again[SIZE];

    loop->equal = true;
    for (int i = 0; i < 50 && loop->equal; i++) {
        core_tensor *a = NULL, *b = NULL;

        loop->equal = core_lazy_begin(NULL) == CORE_OK &&
                      core_mul(loop->x, loop->x, &a) == CORE_OK &&
                      core_tanh(a, &b) == CORE_OK &&
                      core_tensor_read(b, again, sizeof again) == CORE_OK &&
                      core_lazy_end() == CORE_OK;
        if (i == 0)
            memcpy(first, again, sizeof first);
        loop->equal = loop->equal && memcmp(first, again, sizeof first) == 0;
        core_tensor_release(a);
        core_tensor_release(b);
    }
    return NULL;
}

START_TEST(threads_share_segments)
{
    enum { THREADS = 4 };
    loop_thread loops[THREADS];
    pthread_t threads[THREADS];
    core_lazy_counts before = lazy_counts();

    for (uint32_t i = 0; i < THREADS; i++) {
        loops[i] = (loop_thread){some(90 * i), program_device, false};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loops[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert(loops[i].equal);
    ck_assert_uint_le(lazy_counts().compiled, before.compiled + 1);
}
END_TEST

START_TEST(a_child_continues_the_region)
{
    core_tensor *x = some(1), *expected = chain(x), *y;
    float a[SIZE], b[SIZE];
    core_device *cpu;
    pid_t child;

    OK(core_device_find("cpu", &cpu));
    if (program_device != cpu) /* it cannot be used after a fork */
        return;
    OK(core_tensor_read(expected, a, sizeof a));
    begin();
    y = chain(x);
    child = fork();
    if (child == 0) {
        child_begins(20);
        child_ends(core_tensor_read(y, b, sizeof b) == CORE_OK &&
                   memcmp(a, b, sizeof a) == 0 && core_lazy_end() == CORE_OK);
    }
    wait_for_child(child);
    same_bits("result", 0, expected, y);
    end();
}
END_TEST

/* ------------------------------------------------------------ gradients -- */

/* A step of an MLP with dropout: forward, backward, and gradient descent. */
static void train(world *w, core_optimizer *optimizer, core_tensor **out)
{
    size_t count = 2;

    OK(mlp_loss(w, w->inputs, w->ninputs, out, &count));
    OK(core_backward(&out[0], 1, NULL, 0));
    OK(core_optimizer_step(optimizer));
    core_optimizer_zero_grad(optimizer);
}

START_TEST(training_is_as_without_a_region)
{
    core_sgd_options options = {
        .struct_size = sizeof options, .learning_rate = .1, .momentum = .9};
    world eager = mlp(), lazy = mlp();
    core_optimizer *a, *b;

    OK(core_sgd_create(eager.hidden, 4, &options, &a));
    OK(core_sgd_create(lazy.hidden, 4, &options, &b));
    for (uint64_t i = 0; i < 4; i++) {
        core_tensor *from_a[2] = {NULL}, *from_b[2] = {NULL};
        uint64_t offset, cuts;

        core_seed(i);
        train(&eager, a, from_a);
        offset = random_offset();
        begin();
        core_seed(i);
        train(&lazy, b, from_b);
        cuts = lazy_counts().cuts;
        OK(core_lazy_sync()); /* the step has run */
        ck_assert_uint_eq(lazy_counts().cuts, cuts);
        ck_assert_uint_eq(random_offset(), offset);
        end();
        for (uint32_t k = 0; k < 2; k++)
            same_bits("result", k, from_a[k], from_b[k]);
        for (uint32_t k = 0; k < 4; k++)
            same_bits("weight", k, eager.hidden[k], lazy.hidden[k]);
        release_tensors(from_a, 2);
        release_tensors(from_b, 2);
    }
    core_optimizer_release(a);
    core_optimizer_release(b);
}
END_TEST

static core_status dropped(void *context, core_tensor *const *x, size_t n,
                           core_tensor **out, size_t *noutputs)
{
    core_tensor *noisy = NULL;
    core_status status = core_dropout(x[0], .5, true, &noisy);

    (void)context;
    (void)n;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_tanh(noisy, &out[0]);
    core_tensor_release(noisy);
    return status;
}

/* The gradient of a checkpoint with random numbers, after others. */
static core_tensor *checkpointed(void)
{
    core_checkpoint_info info = {.struct_size = sizeof info,
                                 .function = dropped};
    core_tensor *x = leaf(some(1)), *noisy, *y, *loss;
    size_t count = 1;

    core_seed(4);
    OK(core_dropout(x, .5, true, &noisy));
    OK(core_checkpoint(&info, &noisy, 1, &y, &count));
    OK(core_sum(y, CORE_DTYPE_NONE, &loss));
    core_tensor_release(y);
    core_tensor_release(noisy);
    OK(core_backward(&loss, 1, NULL, 0));
    core_tensor_release(loss);
    return core_tensor_grad(x);
}

START_TEST(a_checkpoint_draws_the_same_numbers_again)
{
    core_tensor *expected = checkpointed();

    begin();
    same_bits("gradient", 0, expected, checkpointed());
    end();
    same_bits("gradient", 0, expected, checkpointed());
}
END_TEST

static core_status twice(void *context, core_tensor *grad,
                         core_tensor **out_grad)
{
    *(core_status *)context = core_lazy_end();
    core_error_clear();
    return core_mul_scalar(grad, core_float(2), out_grad);
}

START_TEST(hooks_run_while_the_region_is_paused)
{
    core_status in_hook = CORE_OK;
    core_tensor *x = leaf(some(1)), *y, *loss, *twos;
    core_hook *hook;

    twos = CALL(full_like, x, core_float(2), CORE_DTYPE_NONE, NULL, -1);
    begin();
    y = CALL(alias, x);
    OK(core_tensor_register_hook(y, twice, &in_hook, NULL, &hook));
    loss = CALL(sum, y, CORE_DTYPE_NONE);
    OK(core_backward(&loss, 1, NULL, 0));
    ck_assert_int_eq(in_hook, CORE_ERROR_REFUSED);
    same_bits("gradient", 0, twos, core_tensor_grad(x));
    core_hook_remove(hook);
    end();
}
END_TEST

/* A change after a tensor was saved is seen, as without a region. */
START_TEST(a_saved_tensor_that_changes_is_an_error)
{
    core_tensor *x = leaf(some(1)), *y, *loss;

    begin();
    y = CALL(exp, x);
    loss = CALL(sum, y, CORE_DTYPE_NONE);
    OK(core_add_scalar_(y, core_int(1), core_int(1)));
    FAILS(core_backward(&loss, 1, NULL, 0), CORE_ERROR_VERSION, "in place");
    end();
}
END_TEST

/* --------------------------------------------------------- other layers -- */

START_TEST(autocast_casts_once)
{
    world w = {.device = program_device};
    core_tensor *x = NUMBERS(&w, 1, 4, 4), *weight = leaf(NUMBERS(&w, 9, 4, 4));
    core_tensor *results[2][2];
    uint64_t region;

    for (int lazy = 0; lazy < 2; lazy++) {
        if (lazy)
            begin();
        OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
        results[lazy][0] = CALL(mm, x, weight);
        if (lazy)
            OK(core_lazy_sync());
        results[lazy][1] = CALL(mm, results[lazy][0], weight);
        OK(core_autocast_end(region));
        if (lazy)
            end();
    }
    for (uint32_t i = 0; i < 2; i++)
        same_bits("product", i, results[0][i], results[1][i]);
}
END_TEST

START_TEST(modes_see_each_call_once)
{
    const uint32_t levels[] = {CORE_MODE_API, CORE_MODE_BELOW_AUTOGRAD};
    core_tensor *x = some(1);

    for (size_t i = 0; i < 2; i++) {
        push(levels[i], note, NULL);
        for (int k = 0; k < 2; k++) {
            seen[0] = '\0';
            begin();
            chain(x);
            end();
            ck_assert_str_eq(seen, "mul.Tensor add.Tensor tanh ");
        }
        pop();
    }
}
END_TEST

START_TEST(mapped_functions_are_recorded)
{
    world w = {.device = program_device};
    core_tensor *x = NUMBERS(&w, 1, 4, 16), *expected, *y;
    core_lazy_counts before;

    OK(core_vmap(square_and_tanh, NULL, NULL, &x, 1, &expected, 1));
    keep(expected);
    before = lazy_counts();
    begin();
    OK(core_vmap(square_and_tanh, NULL, NULL, &x, 1, &y, 1));
    keep(y);
    ck_assert_uint_eq(lazy_counts().cuts, before.cuts);
    end();
    same_bits("result", 0, expected, y);
}
END_TEST

START_TEST(inference_tensors_are_computed_after_the_mode)
{
    core_tensor *x = some(1), *expected = chain(x), *y, *z;
    uint64_t before = core_inference_begin();

    z = CALL(clone, expected, -1);
    core_inference_end(before);
    begin();
    before = core_inference_begin();
    y = chain(x);
    OK(core_mul_scalar_(y, core_float(2)));
    OK(core_mul_scalar_(z, core_float(2))); /* only possible in the mode */
    core_inference_end(before);
    end();
    same_bits("result", 1, CALL(mul_scalar, expected, core_float(2)), z);
    same_bits("result", 0, CALL(mul_scalar, expected, core_float(2)), y);
}
END_TEST

START_TEST(captured_work_contains_what_is_recorded)
{
    core_tensor *x, *y, *expected;
    core_stream *stream, *usual;
    core_graph *graph;
    core_device *cpu;

    OK(core_device_find("cpu", &cpu));
    if (program_device == cpu) /* it does not capture */
        return;
    x = some(1);
    expected = CALL(mul_scalar, x, core_float(4));
    y = CALL(clone, x, -1);
    OK(core_stream_create(program_device, &stream));
    OK(core_device_synchronize(program_device));
    begin();
    OK(core_stream_set_current(stream));
    OK(core_capture_begin(stream, NULL));
    OK(core_mul_scalar_(y, core_float(2)));
    OK(core_capture_end(stream, &graph));
    OK(core_graph_launch(graph, stream));
    OK(core_graph_launch(graph, stream));
    OK(core_device_synchronize(program_device));
    end();
    same_bits("result", 0, expected, y);
    core_graph_release(graph);
    OK(core_stream_default(program_device, &usual));
    OK(core_stream_set_current(usual));
    core_stream_release(stream);
}
END_TEST

/* The last two elements of twice the argument, as a view: at an offset, with the
 * storage of all of them.  Or the argument itself. */
static core_status tail(core_call *c, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const int64_t first = SIZE - 2, end = SIZE;
    core_tensor *all, *out = NULL;

    (void)c;
    (void)nargs;
    (void)nresults;
    CORE_TRY(core_mul_scalar(args[0].u.tensor, core_float(2), &all));
    if (core_slice(all, 0, &first, &end, 1, &out) == CORE_OK)
        results[0] = (core_value){.tag = CORE_VALUE_TENSOR, .u.tensor = out};
    core_tensor_release(all);
    return out ? CORE_OK : core_error_code();
}

static core_status same(core_call *c, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)c;
    (void)nargs;
    (void)nresults;
    results[0] = args[0];
    core_tensor_retain(args[0].u.tensor);
    return CORE_OK;
}

static core_tensor *called(const char *name, core_tensor *x)
{
    core_value arg = {.tag = CORE_VALUE_TENSOR, .u.tensor = x}, result = {0};
    core_operator *op;

    OK(core_op_find(name, &op));
    OK(core_op_call(op, &arg, 1, &result, 1));
    return keep(result.u.tensor);
}

START_TEST(operators_of_a_program_may_return_views)
{
    const char *const type =
        strcmp(core_device_name(program_device), "cpu") == 0 ? "cpu" : "sim";
    static const struct {
        const char *schema, *name;
        core_function function;
    } own[] = {{"lazy::tail(Tensor a) -> Tensor", "lazy::tail", tail},
               {"lazy::same(Tensor a) -> Tensor", "lazy::same", same}};
    core_tensor *x = some(1), *before = CALL(clone, x, -1);

    for (int i = 0; i < 2; i++) {
        core_registration *handles[3];
        core_tensor *expected, *y;

        OK(core_op_register(own[i].schema, &handles[0]));
        OK(core_function_register(own[i].name, CORE_KEY_BACKEND, type,
                                  own[i].function, NULL, &handles[1]));
        OK(core_shape_register(own[i].name, own[i].function, NULL,
                               &handles[2]));
        expected = CALL(clone, called(own[i].name, x), -1);
        for (int run = 0; run < 3; run++) {
            begin();
            y = called(own[i].name, x);
            same_bits("result", 0, expected, y);
            OK(core_add_scalar_(y, core_float(0), core_int(1)));
            end();
            same_bits("argument", 0, before, x);
        }
        for (int k = 2; k >= 0; k--)
            core_registration_release(handles[k]);
    }
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/lazy", operators_of_a_program_may_return_views,
    operators_do_not_run_before_a_cut, segments_are_found_again,
    what_differs_is_another_segment, unused_results_are_not_computed,
    few_segments_are_kept, a_region_is_cut_after_its_limit,
    the_whole_is_read_after_a_part_was_changed, wrong_options_fail,
    what_needs_content_cuts, a_loop_with_reads_runs_one_segment,
    branches_read_their_predicate,
    an_error_of_a_branch_without_a_message_gets_one,
    wrong_arguments_are_reported_by_the_call,
    an_error_of_a_segment_is_reported_by_the_cut,
    a_call_that_cannot_fail_leaves_its_error_to_the_next_cut,
    a_failed_segment_leaves_no_cached_casts, regions_nest,
    a_region_in_a_recording_is_a_part_of_the_program,
    compiled_functions_and_programs_run_beside_a_region,
    other_threads_use_tensors_after_a_cut, a_change_needs_operands_with_content,
    a_region_ends_with_its_thread, threads_share_segments,
    a_child_continues_the_region, training_is_as_without_a_region,
    a_checkpoint_draws_the_same_numbers_again,
    hooks_run_while_the_region_is_paused,
    a_saved_tensor_that_changes_is_an_error, autocast_casts_once,
    modes_see_each_call_once, mapped_functions_are_recorded,
    inference_tensors_are_computed_after_the_mode,
    captured_work_contains_what_is_recorded)
