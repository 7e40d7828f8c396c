/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that read and write by index give the same bits every time,
 * although the emulated device runs blocks and threads in another order each
 * time (GPUEMU_ORDER) and many indices are equal: the gradients of reads, and
 * writes that accumulate, are sums whose order matters. */

#define SUITE_SECONDS 120

#include "support/gpu_emulated.h"

#include <libcore/settings.h>

#include <gpu/emulated/emulate.h>
#include <gpu/emulated/order.h>

#include <sys/wait.h>

#define gpu gpuemu()

/* ThreadSanitizer detects unordered threads of a launch; its exit status is
 * then 66. */
#if defined(__SANITIZE_THREAD__)
#define NOT_SANITIZED __attribute__((no_sanitize("thread")))
enum { RACE = 66 };
#else
#define NOT_SANITIZED
enum { RACE = 0 };
#endif

enum { ENTRIES = 700, PLACES = 9, WIDTH = 5, TIMES = 4 };

/* ------------------------------------------------ what order can be seen -- */

/* Deliberately wrong: a sum in the order in which threads run. */
typedef struct sums {
    float *to;
    const float *from;
    uint64_t count;
} sums;

NOT_SANITIZED static void add_as_they_come(const void *parameters)
{
    const sums *p = parameters;
    uint64_t i = (uint64_t)gpu_emulated.block.x * gpu_emulated.block_size.x +
                 gpu_emulated.thread.x;

    if (i < p->count)
        *p->to += p->from[i];
}

static float sum_in_some_order(const float *values, uint64_t count)
{
    const gpu_emulated_kernel kernel = {"add_as_they_come", add_as_they_come, 0,
                                        sizeof(sums)};
    float total = 0;
    sums p = {&total, values, count};

    ck_assert_ptr_null(gpu_emulated_launch(
        &kernel, (uint32_t[]){(uint32_t)(count + 31) / 32, 1, 1},
        (uint32_t[]){32, 1, 1}, 0, &p));
    return total;
}

/* So the tests below can fail. */
START_TEST(unordered_sum_varies)
{
    float values[ENTRIES], first, second;
    int differ = 0;

    for (int i = 0; i < ENTRIES; i++)
        values[i] = 1.0f / (float)(i + 3);
    first = sum_in_some_order(values, ENTRIES);
    ck_assert(first == sum_in_some_order(values, ENTRIES));
    gpu_emulated_set_order(1);
    for (int k = 0; k < TIMES; k++) {
        second = sum_in_some_order(values, ENTRIES);
        differ += second != first;
        ck_assert_float_eq_tol(second, first, 1e-4);
    }
    ck_assert_int_ge(differ, TIMES - 1);
}
END_TEST

/* --------------------------------------------------------- missed meetings -- */

typedef struct neighbours {
    uint32_t *to;
    int barrier;
} neighbours;

static void read_a_neighbour(const void *parameters)
{
    static uint32_t shared[64];
    const neighbours *p = parameters;
    uint32_t t = gpu_emulated.thread.x;

    shared[t] = t;
    if (p->barrier)
        gpu_emulated_barrier();
    p->to[t] = shared[(t + 1) % 64];
    gpu_emulated_barrier();
}

/* All threads of all blocks write to one place. */
static void write_one_place(const void *parameters)
{
    const neighbours *p = parameters;

    *p->to = gpu_emulated.block.x;
}

/* The exit status of a process that launches it. */
static int status_of(void (*run)(const void *), int cooperative, int barrier)
{
    const gpu_emulated_kernel kernel = {"kernel", run, cooperative,
                                        sizeof(neighbours)};
    uint32_t to[64];
    neighbours p = {to, barrier};
    int status;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const char *why = gpu_emulated_launch(&kernel, (uint32_t[]){3, 1, 1},
                                              (uint32_t[]){64, 1, 1}, 0, &p);

        exit(why == NULL ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(race_in_a_launch_is_detected)
{
    ck_assert_int_eq(status_of(read_a_neighbour, 1, 1), 0);
    ck_assert_int_eq(status_of(read_a_neighbour, 1, 0), RACE);
    ck_assert_int_eq(status_of(write_one_place, 0, 0), RACE);
}
END_TEST

/* -------------------------------------------------- the same bits each time -- */

static core_tensor *values(core_dtype dtype, int64_t rows, int64_t columns,
                           unsigned seed)
{
    core_tensor *whole = numbers(CORE_F64, rows, columns, seed, 1000, false);

    /* Sevenths are rounded in every sum. */
    return moved(CALL(to_copy, CALL(div_scalar, whole, core_float(7)), dtype,
                      NULL, false, -1),
                 gpu);
}

/* ENTRIES numbers below PLACES. */
static core_tensor *colliding(void)
{
    core_tensor *wide =
        CALL(abs, numbers(CORE_F64, 1, ENTRIES, 3, PLACES, false));

    return moved(CALL(to_copy, CALL(reshape, wide, (int64_t[]){ENTRIES}, 1),
                      CORE_I64, NULL, false, -1),
                 gpu);
}

/* An index for each element of ENTRIES rows. */
static core_tensor *for_each_element(void)
{
    return CALL(expand, CALL(unsqueeze, colliding(), 1),
                ((int64_t[]){ENTRIES, WIDTH}), 2, false);
}

static core_tensor *f_index_add(core_dtype t)
{
    return CALL(index_add, values(t, PLACES, WIDTH, 1), 0, colliding(),
                values(t, ENTRIES, WIDTH, 2), core_float(0.3));
}

static core_tensor *f_index_put(core_dtype t)
{
    core_tensor *index = colliding();

    return CALL(index_put, values(t, PLACES, WIDTH, 1), &index, 1,
                values(t, ENTRIES, WIDTH, 2), true);
}

/* The last one of equal indices wins. */
static core_tensor *f_index_put_over(core_dtype t)
{
    core_tensor *index = colliding();

    return CALL(index_put, values(t, PLACES, WIDTH, 1), &index, 1,
                values(t, ENTRIES, WIDTH, 2), false);
}

static core_tensor *f_index_copy(core_dtype t)
{
    return CALL(index_copy, values(t, PLACES, WIDTH, 1), 0, colliding(),
                values(t, ENTRIES, WIDTH, 2));
}

static core_tensor *f_scatter(core_dtype t)
{
    return CALL(scatter, values(t, PLACES, WIDTH, 1), 0, for_each_element(),
                values(t, ENTRIES, WIDTH, 2));
}

static core_tensor *f_scatter_add(core_dtype t)
{
    return CALL(scatter_add, values(t, PLACES, WIDTH, 1), 0, for_each_element(),
                values(t, ENTRIES, WIDTH, 2));
}

static core_tensor *f_scatter_mean(core_dtype t)
{
    return CALL(scatter_reduce, values(t, PLACES, WIDTH, 1), 0,
                for_each_element(), values(t, ENTRIES, WIDTH, 2), "mean", true);
}

static core_tensor *f_scatter_prod(core_dtype t)
{
    return CALL(scatter_reduce, values(t, PLACES, WIDTH, 1), 0,
                for_each_element(), values(t, ENTRIES, WIDTH, 2), "prod",
                false);
}

/* The gradient of x, from which y was computed, for random output gradients. */
static core_tensor *gradient(core_tensor *x, core_tensor *y, unsigned seed)
{
    core_tensor *grad;

    backward(sum(mul(y, values(core_tensor_dtype(x), ENTRIES, WIDTH, seed))));
    grad = core_tensor_grad(x);
    ck_assert_ptr_nonnull(grad);
    return grad;
}

static core_tensor *f_gather_backward(core_dtype t)
{
    core_tensor *x = leaf(values(t, PLACES, WIDTH, 4));

    return gradient(x, CALL(gather, x, 0, for_each_element(), false), 5);
}

static core_tensor *f_index_backward(core_dtype t)
{
    core_tensor *x = leaf(values(t, PLACES, WIDTH, 4)), *index = colliding();

    return gradient(x, CALL(index, x, &index, 1), 5);
}

static core_tensor *f_index_select_backward(core_dtype t)
{
    core_tensor *x = leaf(values(t, PLACES, WIDTH, 4));

    return gradient(x, CALL(index_select, x, 0, colliding()), 5);
}

static core_tensor *f_embedding_backward(core_dtype t)
{
    core_tensor *x = leaf(values(t, PLACES, WIDTH, 4));

    return gradient(x, CALL(embedding, x, colliding(), -1, false, false), 5);
}

static core_tensor *f_embedding_scaled(core_dtype t)
{
    return CALL(embedding_dense_backward, values(t, ENTRIES, WIDTH, 5),
                colliding(), PLACES, 2, true);
}

typedef struct operation {
    const char *name;
    core_tensor *(*run)(core_dtype dtype);
} operation;

static const operation operations[] = {
    {"index_add", f_index_add},
    {"index_put, accumulating", f_index_put},
    {"index_put", f_index_put_over},
    {"index_copy", f_index_copy},
    {"scatter", f_scatter},
    {"scatter_add", f_scatter_add},
    {"scatter_reduce, mean", f_scatter_mean},
    {"scatter_reduce, prod", f_scatter_prod},
    {"gather's gradient", f_gather_backward},
    {"index's gradient", f_index_backward},
    {"index_select's gradient", f_index_select_backward},
    {"embedding's gradient", f_embedding_backward},
    {"embedding's gradient, scaled", f_embedding_scaled},
};

static void check_same_bits(const operation *f, core_dtype dtype)
{
    unsigned char bytes[TIMES][PLACES * WIDTH * 8];

    memset(bytes, 0, sizeof bytes);
    for (int k = 0; k < TIMES; k++) {
        core_tensor *y =
            CALL(to_copy, f->run(dtype), dtype, opened("cpu"), false, -1);

        ck_assert_int_eq(core_tensor_numel(y), PLACES * WIDTH);
        OK(core_tensor_read(y, bytes[k],
                            PLACES * WIDTH * core_dtype_size(dtype)));
        ck_assert_msg(memcmp(bytes[0], bytes[k], sizeof *bytes) == 0,
                      "%s of %s: other bits the %d. time", f->name,
                      core_dtype_name(dtype), k + 1);
        drop_all();
    }
}

static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16};

static void check_all_same_bits(void)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
            check_same_bits(&operations[i], dtypes[t]);
}

START_TEST(bits_are_the_same_every_time)
{
    check_all_same_bits();
}
END_TEST

START_TEST(bits_are_the_same_every_time_in_deterministic_mode)
{
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "1"));
    check_all_same_bits();
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "0"));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        unordered_sum_varies,
        race_in_a_launch_is_detected,
        bits_are_the_same_every_time,
        bits_are_the_same_every_time_in_deterministic_mode,
    };

    setenv("GPUEMU_ORDER", "1", 1);
    return run_emulated("gpu/gpu_order", tests, sizeof tests / sizeof *tests);
}
