/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A thousand parameters of every floating dtype, alternating between the CPU
 * and a simulated device, some without grad: each takes the step of an
 * optimizer of its own, bit for bit, and the f64 ones follow the formula. */

#include "support/stream.h"

#include <libcore/optim.h>

#include <math.h>

enum { COUNT = 1000, STEPS = 3, SIZE_MOST = 5, CHOSEN = 37 };

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16};
static const char *const places[] = {"cpu", "sim"};
static core_tensor *many[COUNT], *few[COUNT];

static int64_t size_of(size_t i)
{
    return 1 + (int64_t)(i * 7 % SIZE_MOST);
}

/* Every 11th parameter never has a grad. */
static bool has_grad(size_t i)
{
    return i % 11 != 10;
}

static double start_of(size_t i, int64_t k)
{
    return (double)((i * 31 + (size_t)k * 17) % 64) / 16 - 2;
}

static double grad_of(size_t i, int64_t k, int step)
{
    return (double)((i * 13 + (size_t)k * 5 + (size_t)step * 29) % 32) / 32 -
           .5;
}

static core_tensor *tensor_of(size_t i, const double *values)
{
    const int64_t n = size_of(i);

    return CALL(to_copy, typed(CORE_F64, 1, &n, values), dtypes[i / 2 % 4],
                device_of(places[i % 2]), false, -1);
}

static core_tensor *parameter(size_t i)
{
    double values[SIZE_MOST];

    for (int64_t k = 0; k < size_of(i); k++)
        values[k] = start_of(i, k);
    return leaf(tensor_of(i, values));
}

static void set_grad(core_tensor *tensor, size_t i, int step)
{
    double values[SIZE_MOST];
    size_t before = pooled;

    for (int64_t k = 0; k < size_of(i); k++)
        values[k] = grad_of(i, k, step);
    OK(core_tensor_set_grad(tensor, tensor_of(i, values)));
    while (pooled > before)
        core_tensor_release(pool[--pooled]);
}

/* ----------------------------------------------------------- optimizers -- */

typedef struct kind {
    const char *name;
    bool adam;
    core_sgd_options sgd;
    core_adam_options of_adam;
} kind;

static const kind kinds[] = {
    {"sgd",
     false,
     {sizeof(core_sgd_options), 1, .125, .5, 0, .25},
     {.struct_size = 0}},
    {"adam",
     true,
     {.struct_size = 0},
     {sizeof(core_adam_options), 0, .01, .9, .999, 1e-3, .1}},
    {"adamw",
     true,
     {.struct_size = 0},
     {sizeof(core_adam_options), 1, .01, .9, .999, 1e-3, .1}},
};

static core_optimizer *make(const kind *kind, core_tensor *const *tensors,
                            size_t count)
{
    core_optimizer *optimizer;

    if (kind->adam)
        OK(core_adam_create(tensors, count, &kind->of_adam, &optimizer));
    else
        OK(core_sgd_create(tensors, count, &kind->sgd, &optimizer));
    return optimizer;
}

/* The formulas of optim.h for one element. */
typedef struct element {
    double p, a, b; /* parameter and its two states */
} element;

static void follow_sgd(element *e, const core_sgd_options *o, double grad,
                       int step)
{
    double g = grad + o->weight_decay * e->p;

    e->a = step == 0 ? g : o->momentum * e->a + (1 - o->dampening) * g;
    e->p -= o->learning_rate * (o->nesterov ? g + o->momentum * e->a : e->a);
}

static void follow_adam(element *e, const core_adam_options *o, double grad,
                        int step)
{
    double g = grad + (o->decoupled ? 0 : o->weight_decay * e->p);
    double first = 1 - pow(o->beta1, step + 1);
    double second = 1 - pow(o->beta2, step + 1);

    if (o->decoupled)
        e->p *= 1 - o->learning_rate * o->weight_decay;
    e->a = o->beta1 * e->a + (1 - o->beta1) * g;
    e->b = o->beta2 * e->b + (1 - o->beta2) * g * g;
    e->p -= o->learning_rate / first * e->a /
            (sqrt(e->b) / sqrt(second) + o->epsilon);
}

/* Element k of parameter i after all steps, in f64. */
static double follow(const kind *kind, size_t i, int64_t k)
{
    element e = {start_of(i, k), 0, 0};

    for (int step = 0; has_grad(i) && step < STEPS; step++) {
        if (kind->adam)
            follow_adam(&e, &kind->of_adam, grad_of(i, k, step), step);
        else
            follow_sgd(&e, &kind->sgd, grad_of(i, k, step), step);
    }
    return e.p;
}

static void values_of(core_tensor *tensor, double *out)
{
    core_tensor *wide =
        CALL(to_copy, tensor, CORE_F64, device_of("cpu"), false, -1);

    OK(core_tensor_read(wide, out,
                        (size_t)core_tensor_numel(wide) * sizeof *out));
    drop(wide);
}

/* Some changes per step are below the resolution of 16-bit dtypes. */
static double tolerance(core_dtype dtype)
{
    return dtype == CORE_F64   ? 1e-12
           : dtype == CORE_F32 ? 1e-5
           : dtype == CORE_F16 ? 1e-2
                               : 5e-2;
}

static void check(const kind *kind, size_t i)
{
    double have[SIZE_MOST], alone[SIZE_MOST];

    values_of(many[i], have);
    if (few[i])
        values_of(few[i], alone);
    for (int64_t k = 0; k < size_of(i); k++) {
        double want = follow(kind, i, k);

        ck_assert_msg(fabs(have[k] - want) <=
                          tolerance(core_tensor_dtype(many[i])) *
                              (1 + fabs(want)),
                      "%s: parameter %zu, element %lld: %.17g, not %.17g",
                      kind->name, i, (long long)k, have[k], want);
        if (few[i])
            ck_assert_msg(have[k] == alone[k],
                          "%s: parameter %zu, element %lld: %.17g, alone %.17g",
                          kind->name, i, (long long)k, have[k], alone[k]);
    }
    ck_assert_ptr_eq(core_tensor_device(many[i]), device_of(places[i % 2]));
    ck_assert_int_eq(core_tensor_dtype(many[i]), dtypes[i / 2 % 4]);
}

START_TEST(joint_step_equals_individual_steps)
{
    const kind *kind = &kinds[_i];
    core_optimizer *all, *own[COUNT] = {NULL};

    for (size_t i = 0; i < COUNT; i++) {
        many[i] = parameter(i);
        few[i] = i % CHOSEN == 0 ? parameter(i) : NULL;
        if (few[i])
            own[i] = make(kind, &few[i], 1);
    }
    all = make(kind, many, COUNT);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < COUNT; i++)
            if (has_grad(i))
                set_grad(many[i], i, step);
        OK(core_optimizer_step(all));
        for (size_t i = 0; i < COUNT; i++)
            if (few[i]) {
                if (has_grad(i))
                    set_grad(few[i], i, step);
                OK(core_optimizer_step(own[i]));
            }
    }
    for (size_t i = 0; i < COUNT; i++)
        check(kind, i);
    core_optimizer_release(all);
    for (size_t i = 0; i < COUNT; i++)
        core_optimizer_release(own[i]);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {joint_step_equals_individual_steps, 0, sizeof kinds / sizeof *kinds},
    };
    const test_suite suite = {
        .name = "optim/optim_many",
        .teardown = drop_all,
        .seconds = 60,
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
