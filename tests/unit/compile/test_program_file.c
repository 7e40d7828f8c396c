/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Files of programs: saved and loaded, damaged, and mutated at random. */

#define SUITE_SECONDS 3000
#include "support/program.h"
#include "support/temporary_files.h"

#include "base/checksum.h"
#include "compile/program/file_format.h"

#include <libcore/control_flow.h>
#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <sys/resource.h>

static core_tensor *mm_of(core_tensor *a, core_tensor *b)
{
    core_tensor *turned, *out;

    OK(core_t(b, &turned));
    OK(core_mm(a, turned, &out));
    core_tensor_release(turned);
    return out;
}

static core_status branch_then(void *context, core_tensor *const *x,
                               size_t ninputs, core_tensor **out,
                               size_t *noutputs)
{
    const world *w = context;
    core_tensor *random;
    core_status status;

    (void)ninputs;
    *noutputs = 1;
    OK(core_rand((int64_t[]){3, 4}, 2, w->generator, CORE_F32,
                 core_tensor_device(x[0]), &random));
    status = core_mul(x[0], random, &out[0]);
    core_tensor_release(random);
    return status;
}

static core_status branch_else(void *context, core_tensor *const *x,
                               size_t ninputs, core_tensor **out,
                               size_t *noutputs)
{
    const world *w = context;
    core_tensor *product = mm_of(x[0], w->hidden[0]);
    core_status status;

    (void)ninputs;
    *noutputs = 1;
    status = core_slice(product, 1, NULL, &(int64_t){4}, 1, &out[0]);
    core_tensor_release(product);
    return status;
}

/* A branch whose regions read an input, a hidden input and a generator. */
static core_tensor *branch_of(world *w, core_tensor *x)
{
    core_tensor *sum, *predicate, *out;

    OK(core_sum(x, CORE_DTYPE_NONE, &sum));
    OK(core_gt_scalar(sum, core_int(0), &predicate));
    OK(core_cond(predicate, branch_then, branch_else, w, &x, 1, &out, 1));
    core_tensor_release(sum);
    core_tensor_release(predicate);
    return out;
}

/* Every kind of argument: tensors, absent ones and lists of them, numbers, lists
 * of numbers, a string, a dtype, a device, a generator; and a branch. */
static core_status all_kinds(void *context, core_tensor *const *x,
                             size_t ninputs, core_tensor **out,
                             size_t *noutputs)
{
    world *w = context;
    core_tensor *both = NULL, *floored = NULL, *random = NULL, *part = NULL;
    core_tensor *product;
    core_scalar low = core_float(-1), high = core_float(1);

    (void)ninputs;
    OK(core_cat((core_tensor *[]){x[0], x[1]}, 2, 1, &both));
    OK(core_div_mode(x[0], x[1], "floor", &floored));
    OK(core_rand((int64_t[]){3, 4}, 2, w->generator, CORE_F32, w->device,
                 &random));
    OK(core_layer_norm(both, (int64_t[]){8}, 1, NULL, NULL, 1e-5, &out[0]));
    OK(core_slice(out[0], 1, &(int64_t){2}, &(int64_t){6}, 1, &part));
    OK(core_add_(part, random, core_float(.5)));
    product = mm_of(floored, w->hidden[0]);
    OK(core_to_copy(product, CORE_F64, NULL, false, -1, &out[1]));
    OK(core_add_(w->hidden[1], x[1], core_int(1)));
    OK(core_mul_(x[1], x[1]));
    OK(core_clamp(x[0], &low, &high, &out[2]));
    out[3] = core_tensor_retain(x[0]);
    out[4] = part;
    out[5] = branch_of(w, floored);
    core_tensor_release(both);
    core_tensor_release(floored);
    core_tensor_release(random);
    core_tensor_release(product);
    *noutputs = 6;
    return CORE_OK;
}

static void make_all_kinds(world *w)
{
    core_tensor *turned;

    w->inputs[0] = NUMBERS(w, 1, 3, 4);
    w->inputs[1] = NUMBERS(w, 60, 3, 4);
    w->ninputs = 2;
    w->hidden[0] = NUMBERS(w, 200, 5, 4);
    OK(core_t(NUMBERS(w, 300, 4, 3), &turned));
    OK(core_clone(turned, -1, &w->hidden[1]));
    keep(w->hidden[1]);
    core_tensor_release(turned);
    w->nhidden = 2;
    OK(core_generator_create(4, &w->generator));
}

static const program_case all = {make_all_kinds, all_kinds};

static temporary_path path;

static void begin(void)
{
    temporary_file(path, "libcore-program");
    OK(core_device_find("cpu", &program_device));
}

static void end(void)
{
    drop_all();
    temporary_remove(path);
}

/* ------------------------------------------------------ saved and loaded -- */

static core_program *save_and_load(core_program *program, core_device *device)
{
    core_program *loaded;

    OK(core_program_save(program, path));
    OK(core_program_load(path, device, &loaded));
    return loaded;
}

/* A loaded program has hidden inputs of its own. */
static void use_loaded(world *w, core_program *loaded)
{
    for (size_t i = 0; i < w->nhidden; i++)
        w->hidden[i] = core_program_hidden_input(loaded, i);
}

START_TEST(a_loaded_program_computes_the_same)
{
    world eager = make_world(&all), traced = make_world(&all);
    core_program *program = trace_world(&all, &traced);
    core_program *loaded = save_and_load(program, NULL);
    char *before, *after;

    OK(core_program_text(program, &before));
    OK(core_program_text(loaded, &after));
    ck_assert_str_eq(before, after);
    core_text_free(before);
    core_text_free(after);
    core_program_release(program);
    use_loaded(&traced, loaded);
    compare_calls(&all, &eager, &traced, loaded);
    end_world(&eager);
    end_world(&traced);
    core_program_release(loaded);
}
END_TEST

START_TEST(a_program_is_loaded_on_another_device)
{
    world eager, traced = make_world(&all);
    core_program *program = trace_world(&all, &traced), *loaded;

    OK(core_device_find("sim", &program_device));
    loaded = save_and_load(program, program_device);
    core_program_release(program);
    end_world(&traced);
    eager = make_world(&all);
    traced = make_world(&all);
    use_loaded(&traced, loaded);
    ck_assert_ptr_eq(core_tensor_device(traced.hidden[0]), program_device);
    compare_calls(&all, &eager, &traced, loaded);
    end_world(&eager);
    end_world(&traced);
    core_program_release(loaded);
}
END_TEST

/* --------------------------------------------------------------- damage -- */

typedef struct bytes {
    unsigned char *data;
    size_t size;
    size_t program; /* where "libcore.program" begins, and its end */
    size_t end;
} bytes;

/* The program is the last tensor: its elements are the smallest. */
static bytes read_file(void)
{
    FILE *file = fopen(path, "rb");
    bytes b = {.data = malloc(1 << 20)};

    b.size = fread(b.data, 1, 1 << 20, file);
    fclose(file);
    b.end = b.size;
    while (memcmp(b.data + b.program, "LCPR", 4) != 0)
        ck_assert_uint_lt(++b.program, b.size);
    return b;
}

static void write_file(const bytes *b)
{
    FILE *file = fopen(path, "wb");

    ck_assert_uint_eq(fwrite(b->data, 1, b->size, file), b->size);
    fclose(file);
}

static void set_checksum(bytes *b)
{
    core__checksum sum;

    core__checksum_begin(&sum, false);
    core__checksum_add(&sum, b->data + b->program + CORE__PROGRAM_HEADER,
                       b->end - b->program - CORE__PROGRAM_HEADER);
    core__checksum_end(&sum, b->data + b->program + 8);
}

static bytes bytes_of(const program_case *c)
{
    world w = make_world(c);
    core_program *program = trace_world(c, &w);
    bytes b;

    OK(core_program_save(program, path));
    core_program_release(program);
    end_world(&w);
    b = read_file();
    ck_assert_uint_gt(b.end, b.program + 500);
    return b;
}

static bytes saved_bytes(void)
{
    return bytes_of(&all);
}

static void replace(bytes *b, const char *from, const char *to)
{
    size_t size = strlen(from), at = b->program;

    ck_assert_uint_eq(strlen(to), size);
    while (memcmp(b->data + at, from, size) != 0)
        ck_assert_uint_lt(++at, b->end - size);
    memcpy(b->data + at, to, size);
}

static void fails_to_load(const bytes *b, core_status code, const char *text)
{
    core_program *program;

    write_file(b);
    FAILS(core_program_load(path, NULL, &program), code, text);
    ck_assert_ptr_null(program);
}

START_TEST(a_program_cannot_be_loaded_to_meta)
{
    bytes b = saved_bytes();
    core_program *program;
    core_device *meta;

    OK(core_device_find("meta", &meta));
    write_file(&b);
    FAILS(core_program_load(path, meta, &program), CORE_ERROR_INVALID_ARGUMENT,
          "meta");
    ck_assert_ptr_null(program);
    free(b.data);
}
END_TEST

START_TEST(a_file_of_a_later_version_is_refused)
{
    bytes b = saved_bytes();

    b.data[b.program + 4] = CORE__PROGRAM_VERSION + 1;
    fails_to_load(&b, CORE_ERROR_INCOMPATIBLE, "version 3");
    free(b.data);
}
END_TEST

START_TEST(a_wrong_checksum_is_refused)
{
    bytes b = saved_bytes();

    b.data[b.end - 3] ^= 1;
    fails_to_load(&b, CORE_ERROR_CORRUPT, "checksum");
    free(b.data);
}
END_TEST

/* Every byte of a hidden input counts. */
START_TEST(a_damaged_hidden_input_is_refused)
{
    bytes b = saved_bytes();
    uint64_t header;

    /* The least bit of the first element after the header. */
    memcpy(&header, b.data, sizeof header);
    b.data[8 + header] ^= 1;
    fails_to_load(&b, CORE_ERROR_CORRUPT, "libcore.hidden.");
    free(b.data);
}
END_TEST

START_TEST(a_file_of_an_earlier_version_is_refused)
{
    bytes b = saved_bytes();

    b.data[b.program + 4] = 1;
    fails_to_load(&b, CORE_ERROR_INCOMPATIBLE, "version 1");
    free(b.data);
}
END_TEST

START_TEST(an_unknown_operator_is_refused_by_name)
{
    bytes b = saved_bytes();
    size_t at = b.program;

    /* The name follows its id, the ABI and its size. */
    while (memcmp(b.data + at, "_clamp", 6) != 0)
        at++;
    b.data[at - 12] = 0xf0;
    b.data[at - 11] = 0xff;
    b.data[at - 8] = 9;
    set_checksum(&b);
    fails_to_load(&b, CORE_ERROR_NOT_FOUND, "_clamp (65520) of ABI 0.9");
    free(b.data);
}
END_TEST

START_TEST(a_name_of_another_operator_is_refused)
{
    bytes b = saved_bytes();

    replace(&b, "clamp", "clomp");
    set_checksum(&b);
    fails_to_load(&b, CORE_ERROR_CORRUPT, "clomp");
    free(b.data);
}
END_TEST

START_TEST(a_file_of_tensors_is_not_a_program)
{
    bytes b = saved_bytes();
    size_t at = 0;

    while (memcmp(b.data + at, "libcore.program", 15) != 0)
        at++;
    b.data[at] = 'L';
    fails_to_load(&b, CORE_ERROR_CORRUPT, "contains no program");
    free(b.data);
}
END_TEST

START_TEST(truncated_files_are_refused)
{
    bytes b = saved_bytes();
    size_t step = effort_is_long() ? 1 : 37;

    for (size_t size = 0; size < b.size; size += step) {
        bytes shorter = b;

        shorter.size = size;
        fails_to_load(&shorter, CORE_ERROR_CORRUPT, path);
    }
    free(b.data);
}
END_TEST

/* ---------------------------------------------------------------- fuzz -- */

static uint64_t fuzz_state;

static uint32_t draw(uint32_t below)
{
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(fuzz_state >> 33) % below;
}

static void mutate(bytes *b)
{
    static const unsigned char special[] = {0, 1, 2, 3, 127, 128, 254, 255};
    size_t size = b->end - b->program - 8;

    for (uint32_t left = 1 + draw(4); left > 0; left--) {
        size_t at = b->program + 8 + draw((uint32_t)size);
        size_t other = b->program + 8 + draw((uint32_t)size);

        switch (draw(4)) {
        case 0:
            b->data[at] ^= (unsigned char)(1u << draw(8));
            break;
        case 1:
            b->data[at] = special[draw(sizeof special)];
            break;
        case 2:
            b->data[at] = (unsigned char)(b->data[at] + draw(3) - 1);
            break;
        default:
            memmove(b->data + at, b->data + other,
                    at < b->end - 8 && other < b->end - 8 ? draw(8) : 1);
        }
    }
}

/* A program that passes the checks may fail when it runs, but does no harm. */
static void run_mutant(core_program *program)
{
    world w = make_world(&all);
    core_tensor *out[WORLD_OUTPUTS];
    core_program_counts counts = {.struct_size = sizeof counts};

    OK(core_program_get_counts(program, &counts));
    if (counts.outputs <= WORLD_OUTPUTS &&
        core_program_run(program, w.inputs, w.ninputs, out, counts.outputs) ==
            CORE_OK)
        for (size_t i = 0; i < counts.outputs; i++)
            core_tensor_release(out[i]);
    end_world(&w);
}

static void load_mutants(const program_case *c, bool run, int count)
{
    bytes b = bytes_of(c);
    unsigned char *original = malloc(b.size);
    int loaded = 0;

    memcpy(original, b.data, b.size);
    for (int i = 0; i < count; i++) {
        core_program *program;
        core_status status;

        fuzz_state = (uint64_t)i;
        mutate(&b);
        set_checksum(&b);
        write_file(&b);
        status = core_program_load(path, NULL, &program);
        if (status == CORE_OK) {
            loaded++;
            if (run)
                run_mutant(program);
            core_program_release(program);
        } else {
            ck_assert_ptr_null(program);
            ck_assert_uint_gt(strlen(core_error_message()), 10);
        }
        memcpy(b.data, original, b.size);
        drop_all();
    }
    ck_assert_int_gt(loaded, 0);
    ck_assert_int_lt(loaded, count / 2);
    free(original);
    free(b.data);
}

START_TEST(mutated_files_do_no_harm)
{
    load_mutants(&all, true, effort_is_long() ? 100000 : 1000);
}
END_TEST

static core_status is_small(void *context, core_tensor *const *x,
                            size_t ninputs, core_tensor **out, size_t *noutputs)
{
    core_tensor *sum;
    core_status status;

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    OK(core_sum(x[0], CORE_DTYPE_NONE, &sum));
    status = core_lt_scalar(sum, core_int(100), &out[0]);
    core_tensor_release(sum);
    return status;
}

static core_status grow(void *context, core_tensor *const *x, size_t ninputs,
                        core_tensor **out, size_t *noutputs)
{
    (void)ninputs;
    *noutputs = 2;
    out[1] = branch_of(context, x[1]);
    return core_add_scalar(x[0], core_int(1), core_int(1), &out[0]);
}

static core_status with_loop(void *context, core_tensor *const *x,
                             size_t ninputs, core_tensor **out,
                             size_t *noutputs)
{
    *noutputs = 2;
    return core_while(is_small, grow, context, x, ninputs, out);
}

static core_status grow_smoothly(void *context, core_tensor *const *x,
                                 size_t ninputs, core_tensor **out,
                                 size_t *noutputs)
{
    core_tensor *product;

    (void)context;
    (void)ninputs;
    *noutputs = 2;
    OK(core_mul(x[0], x[1], &product));
    OK(core_neg(x[1], &out[1]));
    OK(core_tanh(product, &out[0]));
    core_tensor_release(product);
    return CORE_OK;
}

static core_status with_loop_backward(void *context, core_tensor *const *x,
                                      size_t ninputs, core_tensor **out,
                                      size_t *noutputs)
{
    core_tensor *leaf, *state[2] = {NULL, x[1]}, *end[2], *sum;

    (void)ninputs;
    *noutputs = 1;
    OK(core_mul_scalar(x[0], core_float(.5), &leaf));
    OK(core_tensor_set_requires_grad(leaf, true));
    state[0] = leaf;
    OK(core_while(is_small, grow_smoothly, context, state, 2, end));
    OK(core_sum(end[0], CORE_DTYPE_NONE, &sum));
    OK(core_grad(&sum, 1, NULL, &leaf, 1, 0, &out[0]));
    core_tensor_release(leaf);
    core_tensor_release(end[0]);
    core_tensor_release(end[1]);
    core_tensor_release(sum);
    return CORE_OK;
}

/* The third derivative of the loop. */
static core_status with_loop_third(void *context, core_tensor *const *x,
                                   size_t ninputs, core_tensor **out,
                                   size_t *noutputs)
{
    core_tensor *leaf, *state[2] = {NULL, x[1]}, *end[2], *at;

    (void)ninputs;
    *noutputs = 1;
    OK(core_mul_scalar(x[0], core_float(.5), &leaf));
    OK(core_tensor_set_requires_grad(leaf, true));
    state[0] = leaf;
    OK(core_while(is_small, grow_smoothly, context, state, 2, end));
    OK(core_sin(end[0], &at));
    for (int i = 0; i < 3; i++) {
        core_tensor *sum;

        OK(core_sum(at, CORE_DTYPE_NONE, &sum));
        core_tensor_release(at);
        OK(core_grad(&sum, 1, NULL, &leaf, 1, CORE_CREATE_GRAPH, &at));
        core_tensor_release(sum);
    }
    OK(core_detach(at, &out[0]));
    core_tensor_release(at);
    core_tensor_release(leaf);
    core_tensor_release(end[0]);
    core_tensor_release(end[1]);
    return CORE_OK;
}

/* They are only loaded: a loop may have become endless. */
START_TEST(mutated_loops_do_no_harm)
{
    const program_case loop = {make_all_kinds, with_loop};
    const program_case backward = {make_all_kinds, with_loop_backward};
    const program_case third = {make_all_kinds, with_loop_third};

    load_mutants(&loop, false, effort_is_long() ? 100000 : 500);
    load_mutants(&backward, false, effort_is_long() ? 100000 : 500);
    load_mutants(&third, false, effort_is_long() ? 100000 : 500);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_loaded_program_computes_the_same,
        a_program_is_loaded_on_another_device,
        a_program_cannot_be_loaded_to_meta,
        a_file_of_a_later_version_is_refused,
        a_wrong_checksum_is_refused,
        a_damaged_hidden_input_is_refused,
        a_file_of_an_earlier_version_is_refused,
        an_unknown_operator_is_refused_by_name,
        a_name_of_another_operator_is_refused,
        a_file_of_tensors_is_not_a_program,
        truncated_files_are_refused,
        mutated_files_do_no_harm,
        mutated_loops_do_no_harm,
    };
    const test_suite suite = {
        .name = "compile/program_file",
        .setup = begin,
        .teardown = end,
        .seconds = SUITE_SECONDS,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
