/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of each sample, by core_vmap of core_vjp, equal those of a loop: of a
 * perceptron, a convolutional network and attention; also by core_jvp, with
 * autocast, and nested. */

#include "support/autograd.h"

#include "ops/expression.h"

#include <libcore/autocast.h>
#include <libcore/device.h>
#include <libcore/functional.h>
#include <libcore/transform.h>

#include <math.h>
#include <stdlib.h>

enum { SAMPLE_COUNT = 4, MOST = 8 };

/* A model: inputs[0] is a sample, inputs[1] its class or target, the rest are
 * parameters; the loss is the only output. */
typedef struct model {
    const char *name;
    core_tensor_function loss;
    void (*make)(core_tensor **inputs, size_t *count);
    uint64_t loops; /* calls that core_vmap may split */
} model;

static core_dtype dtype = CORE_F64;
static core_device *device; /* NULL: the default one */

static core_tensor *randn(size_t ndim, const int64_t *sizes)
{
    return CALL(randn, sizes, ndim, NULL, dtype, device);
}

#define RANDN(...)                                            \
    randn(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
          (int64_t[]){__VA_ARGS__})

/* ----------------------------------------------------------------- models -- */

static core_status perceptron(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    core__scope s;
    core_tensor *x;

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    core__scope_begin(&s);
    x = CORE__DO(&s, core_linear, inputs[0], inputs[2], inputs[3]);
    x = core__x_tanh(&s, x);
    x = CORE__DO(&s, core_linear, x, inputs[4], inputs[5]);
    x = CORE__DO(&s, core_cross_entropy_loss, x, inputs[1], NULL,
                 CORE_REDUCTION_MEAN, -100, 0);
    return core__scope_finish(&s, x, &outputs[0]);
}

static core_tensor *classes(int64_t per_sample)
{
    const int64_t sizes[] = {SAMPLE_COUNT, per_sample};
    double values[64];

    for (int64_t i = 0; i < SAMPLE_COUNT * (per_sample ? per_sample : 1); i++)
        values[i] = (double)(i % 3);
    return typed(CORE_I64, per_sample ? 2 : 1, sizes, values);
}

static void make_perceptron(core_tensor **inputs, size_t *count)
{
    inputs[0] = RANDN(SAMPLE_COUNT, 5);
    inputs[1] = classes(0);
    inputs[2] = RANDN(7, 5);
    inputs[3] = RANDN(7);
    inputs[4] = RANDN(3, 7);
    inputs[5] = RANDN(3);
    *count = 6;
}

static core_status network(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    const int64_t one[] = {1, 1}, two[] = {2, 2}, zero[] = {0, 0};
    core__scope s;
    core_tensor *x;

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    core__scope_begin(&s);
    x = core__x_unsqueeze(&s, inputs[0], 0);
    x = CORE__DO(&s, core_conv2d, x, inputs[2], inputs[3], one, 2, one, 2, one,
                 2, 1);
    x = core__x_relu(&s, x);
    x = CORE__DO(&s, core_max_pool2d, x, two, 2, two, 2, zero, 2, one, 2,
                 false);
    x = CORE__DO(&s, core_group_norm, x, 2, inputs[4], inputs[5], 1e-5);
    x = CORE__DO(&s, core_flatten, x, 1, -1);
    x = CORE__DO(&s, core_linear, x, inputs[6], NULL);
    x = CORE__DO(&s, core_cross_entropy_loss, x, inputs[1], NULL,
                 CORE_REDUCTION_MEAN, -100, 0);
    return core__scope_finish(&s, x, &outputs[0]);
}

static void make_network(core_tensor **inputs, size_t *count)
{
    inputs[0] = RANDN(SAMPLE_COUNT, 2, 6, 6);
    inputs[1] = classes(1);
    inputs[2] = RANDN(4, 2, 3, 3);
    inputs[3] = RANDN(4);
    inputs[4] = RANDN(4);
    inputs[5] = RANDN(4);
    inputs[6] = RANDN(3, 36);
    *count = 7;
}

/* Attention of two heads over a sequence of vectors of 6, normalised. */
static core_status attention(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    const int64_t heads[] = {1, 5, 2, 3}, six = 6, rows[] = {5, 6};
    core_tensor *parts[3], *x;
    core__scope s;

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    core__scope_begin(&s);
    x = CORE__DO(&s, core_layer_norm, inputs[0], &six, 1, inputs[2], inputs[3],
                 1e-5);
    for (int i = 0; i < 3; i++) {
        parts[i] = CORE__DO(&s, core_linear, x, inputs[4 + i], NULL);
        parts[i] = core__x_reshape(&s, parts[i], heads, 4);
        parts[i] = core__x_transpose(&s, parts[i], 1, 2);
    }
    x = CORE__DO(&s, core_scaled_dot_product_attention, parts[0], parts[1],
                 parts[2], NULL, 0, true, NULL, false);
    x = core__x_reshape(&s, core__x_transpose(&s, x, 1, 2), rows, 2);
    x = CORE__DO(&s, core_mse_loss, x, inputs[1], CORE_REDUCTION_MEAN);
    return core__scope_finish(&s, x, &outputs[0]);
}

static void make_attention(core_tensor **inputs, size_t *count)
{
    inputs[0] = RANDN(SAMPLE_COUNT, 5, 6);
    inputs[1] = RANDN(SAMPLE_COUNT, 5, 6);
    inputs[2] = RANDN(6);
    inputs[3] = RANDN(6);
    for (int i = 4; i < 7; i++)
        inputs[i] = RANDN(6, 6);
    *count = 7;
}

static const model models[] = {
    {"perceptron", perceptron, make_perceptron, 0},
    {"network", network, make_network, 0},
    {"attention", attention, make_attention, 0},
};

/* -------------------------------------------------------------- gradients -- */

typedef struct task {
    core_tensor_function loss;
    bool forward; /* by core_jvp, in the direction of ones */
} task;

static core_status gradients(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    const task *t = context;
    core_derivative d = {.struct_size = sizeof d,
                         .function = t->loss,
                         .inputs = inputs,
                         .ninputs = ninputs};
    core_tensor *vectors[MOST] = {NULL}, *grads[MOST] = {NULL};
    core_status status = CORE_OK;
    size_t stored = 0, one = 1;

    if (t->forward) {
        for (size_t i = 2; i < ninputs && status == CORE_OK; i++)
            status = core_ones_like(inputs[i], CORE_DTYPE_NONE, NULL, -1,
                                    &vectors[i]);
        if (status == CORE_OK)
            status = core_jvp(&d, vectors, outputs, &one);
        for (size_t i = 0; i < ninputs; i++)
            core_tensor_release(vectors[i]);
        *noutputs = 1;
        return status;
    }
    status = core_vjp(&d, NULL, NULL, NULL, grads);
    for (size_t i = 0; i < ninputs; i++)
        if (grads[i])
            outputs[stored++] = grads[i];
    *noutputs = stored;
    return status;
}

static void compare(const char *name, core_tensor *want, core_tensor *got,
                    double tolerance)
{
    core_tensor *error = CALL(sub, want, got, core_int(1));
    double worst;

    ck_assert_int_gt(core_tensor_numel(want), 0);
    error =
        CALL(max, CALL(abs, CALL(to, error, CORE_F64, NULL, false, false, -1)));
    OK(core_tensor_read(error, &worst, sizeof worst));
    ck_assert_msg(worst <= tolerance, "%s: the gradients differ by %g", name,
                  worst);
}

static void check_model(const model *m, bool forward, double tolerance)
{
    core_tensor *inputs[MOST], *one[MOST], *got[MOST], *want[MOST];
    int64_t in[MOST] = {0, 0};
    core_vmap_options options = {.struct_size = sizeof options, .in_dims = in};
    uint64_t loops = core_vmap_loops(NULL);
    task t = {m->loss, forward};
    size_t count, outputs;

    m->make(inputs, &count);
    if (device)
        inputs[1] =
            CALL(to, inputs[1], CORE_DTYPE_NONE, device, false, false, -1);
    for (size_t i = 2; i < count; i++)
        in[i] = CORE_VMAP_NOT_MAPPED;
    outputs =
        forward ? 1
                : count - !core_dtype_is_floating(core_tensor_dtype(inputs[1]));
    OK(core_vmap(gradients, &t, &options, inputs, count, got, outputs));
    ck_assert_uint_le(core_vmap_loops(NULL) - loops, m->loops);
    for (size_t i = 0; i < outputs; i++)
        keep(got[i]);
    for (int k = 0; k < SAMPLE_COUNT; k++) {
        size_t n = MOST;

        for (size_t i = 0; i < count; i++)
            one[i] = i < 2 ? CALL(select, inputs[i], 0, k) : inputs[i];
        OK(gradients(&t, one, count, want, &n));
        ck_assert_uint_eq(n, outputs);
        for (size_t i = 0; i < n; i++)
            compare(m->name, keep(want[i]), CALL(select, got[i], 0, k),
                    tolerance);
    }
}

START_TEST(gradients_of_each_sample_equal_a_loop)
{
    check_model(&models[_i], false, 1e-10);
}
END_TEST

START_TEST(tangents_of_each_sample_equal_a_loop)
{
    check_model(&models[_i], true, 1e-10);
}
END_TEST

START_TEST(autocast_casts_as_in_a_loop)
{
    core_device *cpu;
    uint64_t region;

    OK(core_device_find("cpu", &cpu));
    dtype = CORE_F32;
    OK(core_autocast_begin(cpu, CORE_BF16, 0, &region));
    check_model(&models[_i], false, 2e-2);
    OK(core_autocast_end(region));
    dtype = CORE_F64;
}
END_TEST

/* The script of a device's tests names it. */
START_TEST(gradients_on_another_device_equal_a_loop)
{
    const char *name = getenv("LIBCORE_TEST_DEVICE");

    OK(core_device_find(name ? name : "sim", &device));
    dtype = CORE_F32;
    check_model(&models[_i], false, 1e-4);
    dtype = CORE_F64;
    device = NULL;
}
END_TEST

/* The gradients of each of some sets of parameters for each sample. */
typedef struct sets {
    task t;
    size_t count;
} sets;

static core_status all_samples(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    sets *s = context;
    int64_t in[MOST] = {0, 0};
    core_vmap_options options = {.struct_size = sizeof options, .in_dims = in};

    for (size_t i = 2; i < ninputs; i++)
        in[i] = CORE_VMAP_NOT_MAPPED;
    *noutputs = s->count;
    return core_vmap(gradients, &s->t, &options, inputs, ninputs, outputs,
                     s->count);
}

START_TEST(nested_calls_equal_a_loop)
{
    const model *m = &models[_i];
    core_tensor *inputs[MOST], *one[MOST], *got[MOST], *want[MOST];
    int64_t in[MOST];
    core_vmap_options options = {.struct_size = sizeof options, .in_dims = in};
    size_t count, outputs;
    sets s = {{m->loss, false}, 0};

    m->make(inputs, &count);
    outputs = s.count =
        count - !core_dtype_is_floating(core_tensor_dtype(inputs[1]));
    in[0] = in[1] = CORE_VMAP_NOT_MAPPED;
    for (size_t i = 2; i < count; i++) {
        core_tensor *pair[2] = {inputs[i], CALL(neg, inputs[i])};

        inputs[i] = CALL(stack, pair, 2, 0);
        in[i] = 0;
    }
    OK(core_vmap(all_samples, &s, &options, inputs, count, got, outputs));
    for (size_t i = 0; i < outputs; i++)
        keep(got[i]);
    for (int k = 0; k < 2; k++) {
        size_t n = MOST;

        for (size_t i = 0; i < count; i++)
            one[i] = i < 2 ? inputs[i] : CALL(select, inputs[i], 0, k);
        OK(all_samples(&s, one, count, want, &n));
        for (size_t i = 0; i < n; i++)
            compare(m->name, keep(want[i]), CALL(select, got[i], 0, k), 1e-10);
    }
}
END_TEST

int main(void)
{
    const int count = sizeof models / sizeof *models;
    const suite_loop loops[] = {
        {gradients_of_each_sample_equal_a_loop, 0, count},
        {tangents_of_each_sample_equal_a_loop, 0, count},
        {autocast_casts_as_in_a_loop, 0, count},
        {gradients_on_another_device_equal_a_loop, 0, count},
        {nested_calls_equal_a_loop, 0, count},
    };
    const test_suite suite = {.name = "transform/vmap_models",
                              .teardown = drop_all,
                              SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
