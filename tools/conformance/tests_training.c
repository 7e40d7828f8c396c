/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level training: gradients through the device's kernels, recorded calls, and a
 * small model that must learn, all without the fallback. */

#include "bounds.h"
#include "golden.h"
#include "element_value.h"
#include "replay.h"
#include "tests_training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ gradients -- */

static bool prepare(suite *self, outcome *out)
{
    return suite_device(self, out) &&
           expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                     "turning the fallback off");
}

/* The gradient of the sum of a call's first result with respect to its first
 * operand. */
static core_status gradient(const sample_call *call, core_device *device,
                            core_dtype as, double *to, size_t capacity)
{
    core_tensor *sum = NULL, *grad = NULL;
    prepared on;
    core_status status =
        sample_call_prepare(call, device, as, ARRANGED_ROWS, &on);
    size_t numel, size = core_dtype_size(as);
    char *bytes = NULL;

    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(on.tensors[0], true);
    if (status == CORE_OK)
        status = sample_call_run(call, &on);
    if (status == CORE_OK)
        status = core_sum(on.flat[0], CORE_DTYPE_NONE, &sum);
    if (status == CORE_OK)
        status = core_grad(&sum, 1, NULL, &on.tensors[0], 1, 0, &grad);
    if (status != CORE_OK)
        goto done;
    numel = (size_t)core_tensor_numel(grad);
    bytes = malloc(numel * size + 1);
    status = bytes && numel <= capacity
                 ? core_tensor_read(grad, bytes, numel * size)
                 : core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    for (size_t i = 0; status == CORE_OK && i < numel; i++)
        to[i] = element_load(as, bytes + i * size);
done:
    free(bytes);
    core_tensor_release(grad);
    core_tensor_release(sum);
    sample_call_done(&on);
    return status;
}

/* The operators of small models. */
static const sample differentiated[] = {
    {"mul.Tensor", "t:3,4 t:4", -1, 1},
    {"add.Tensor", "t:3,4 t:4", -1, 1},
    {"exp", "t:3,4", -1, 1},
    {"tanh", "t:3,4", -2, 2},
    {"sigmoid", "t:3,4", -2, 2},
    {"relu", "t:3,4", -1, 1},
    {"mm", "t:3,4 t:4,5", -1, 1},
    {"sum", "t:3,4", -1, 1},
    {"mean", "t:3,4", -1, 1},
    {"div.Tensor", "t:3,4 t:3,4", .5, 2},
    {"_log_softmax", "t:3,4 i:1 b:0", -1, 1},
};

/* Appends the name of an operator to a list. */
static void list_name(char *list, size_t capacity, const char *name)
{
    size_t length = strlen(list);

    snprintf(list + length, capacity - length, "%s%s", length ? ", " : "",
             name);
}

static void gradients_are_correct(suite *self, outcome *out, const test *one)
{
    static sample_call call;
    double got[64], want[64];
    char lacking[400] = "";

    (void)one;
    if (!prepare(self, out))
        return;
    for (size_t i = 0; i < sizeof differentiated / sizeof *differentiated;
         i++) {
        const sample *from = &differentiated[i];
        core_status status;

        if (!sample_call_parse(&call, self, from, CORE_F32)) {
            harness_error(out, "malformed sample: %s", from->op);
            return;
        }
        if (gradient(&call, self->host, CORE_F64, want, 64) != CORE_OK) {
            harness_error(out, "there is no reference for %s: %s", from->op,
                          core_error_message());
            return;
        }
        status = gradient(&call, self->device, CORE_F32, got, 64);
        if (status == CORE_ERROR_NO_KERNEL) {
            list_name(lacking, sizeof lacking, from->op);
            continue;
        }
        if (!expect_ok(out, status, from->op))
            return;
        for (int64_t k = 0; k < call.operands[0].numel; k++) {
            double capacity =
                64 * dtype_epsilon(CORE_F32) * (1 + fabs(want[k]));

            note_error(out, fabs(got[k] - want[k]) / capacity);
            if (!expect(out, fabs(got[k] - want[k]) <= capacity,
                        "the gradient of %s, element %lld: got %g, expected %g",
                        from->op, (long long)k, got[k], want[k]))
                return;
        }
    }
    expect(out, !lacking[0],
           "the gradients of %s need kernels that are missing: see "
           "training/operators/are-complete",
           lacking);
}

/* --------------------------------------------------------------- golden -- */

static void recorded_calls(suite *self, outcome *out, const test *one)
{
    golden_file golden = {0};
    golden_case the_case;
    replay_device on = {0};
    golden_result read;
    size_t counts[REPLAY_OUTCOMES] = {0};
    char text[600], first[600] = "";

    (void)one;
    memset(&the_case, 0, sizeof the_case);
    if (!self->golden) {
        not_supported(out, "no recordings were given (--golden)");
        return;
    }
    if (!prepare(self, out))
        return;
    if (!golden_open(self->golden, &golden)) {
        harness_error(out, "%s", golden.problem);
        return;
    }
    core_device_set_current(self->device);
    on.device = self->device;
    on.has_f64 = (self->properties.flags & CORE_DEVICE_HAS_F64) != 0;
    while ((read = golden_next(&golden, &the_case)) == GOLDEN_CASE) {
        replay_outcome outcome = replay_case(&on, &the_case, text, sizeof text);

        counts[outcome]++;
        if (outcome == REPLAY_FAILED && !*first)
            snprintf(first, sizeof first, "case %lld, %.100s: %.400s",
                     (long long)the_case.id, the_case.name, text);
    }
    for (size_t i = 0; i < golden.differences.count; i++)
        if (!golden.differences.at[i].found && counts[REPLAY_FAILED]++ == 0)
            snprintf(first, sizeof first,
                     "the set does not have case %lld, a listed difference",
                     (long long)golden.differences.at[i].id);
    golden_case_free(&the_case);
    golden_close(&golden);
    core_device_set_current(NULL);
    if (read == GOLDEN_PROBLEM) {
        harness_error(out, "%s", golden.problem);
        return;
    }
    expect(out, counts[REPLAY_FAILED] == 0, "%zu recorded calls fail: %s",
           counts[REPLAY_FAILED], first);
    expect(out, counts[REPLAY_PASSED] > 0, "no recorded call passes");
    if (out->verdict == VERDICT_PASS)
        snprintf(out->detail, sizeof out->detail, "%zu passed, %zu missing",
                 counts[REPLAY_PASSED], counts[REPLAY_MISSING]);
}

/* ---------------------------------------------------------------- model -- */

enum { EXAMPLES = 32, HIDDEN = 16, STEPS = 300 };

typedef struct model {
    core_tensor *x, *y;
    core_tensor *parameters[4]; /* first weights and biases, second weights and
                                 * biases */
    core_optimizer *optimizer;
} model;

static core_status random_tensor(const suite *self, const char *purpose,
                                 int64_t rows, int64_t columns, double size,
                                 core_tensor **out)
{
    float values[EXAMPLES * HIDDEN];
    int64_t sizes[2] = {rows, columns};

    for (int64_t i = 0; i < rows * columns; i++)
        values[i] =
            (float)(((double)(suite_random(self, purpose, (uint64_t)i) >> 11) *
                         0x1p-53 * 2 -
                     1) *
                    size);
    return core_tensor_from_data(values, CORE_F32, sizes, 2, self->device, out);
}

/* Two inputs; the target is their product, which is not linear. */
static core_status make_examples(const suite *self, model *out)
{
    float x[EXAMPLES * 2], y[EXAMPLES];
    int64_t sizes[2] = {EXAMPLES, 2};

    for (uint64_t i = 0; i < EXAMPLES * 2; i++)
        x[i] = (float)((double)(suite_random(self, "examples", i) >> 11) *
                           0x1p-53 * 2 -
                       1);
    for (int i = 0; i < EXAMPLES; i++)
        y[i] = x[2 * i] * x[2 * i + 1];
    CORE_TRY(
        core_tensor_from_data(x, CORE_F32, sizes, 2, self->device, &out->x));
    sizes[1] = 1;
    return core_tensor_from_data(y, CORE_F32, sizes, 2, self->device, &out->y);
}

static core_status make_model(const suite *self, model *out)
{
    core_sgd_options options = {
        .struct_size = sizeof options, .learning_rate = .1, .momentum = .9};

    CORE_TRY(make_examples(self, out));
    CORE_TRY(random_tensor(self, "w1", 2, HIDDEN, 1, &out->parameters[0]));
    CORE_TRY(random_tensor(self, "b1", 1, HIDDEN, .5, &out->parameters[1]));
    CORE_TRY(random_tensor(self, "w2", HIDDEN, 1, .3, &out->parameters[2]));
    CORE_TRY(random_tensor(self, "b2", 1, 1, .1, &out->parameters[3]));
    for (int i = 0; i < 4; i++)
        CORE_TRY(core_tensor_set_requires_grad(out->parameters[i], true));
    return core_sgd_create(out->parameters, 4, &options, &out->optimizer);
}

static core_status step(model *self, double *out_loss)
{
    core_tensor *t[7] = {NULL};
    core_status status;

    core_optimizer_zero_grad(self->optimizer);
    status = core_mm(self->x, self->parameters[0], &t[0]);
    if (status == CORE_OK)
        status = core_add(t[0], self->parameters[1], core_int(1), &t[1]);
    if (status == CORE_OK)
        status = core_tanh(t[1], &t[2]);
    if (status == CORE_OK)
        status = core_mm(t[2], self->parameters[2], &t[3]);
    if (status == CORE_OK)
        status = core_add(t[3], self->parameters[3], core_int(1), &t[4]);
    if (status == CORE_OK)
        status = core_mse_loss(t[4], self->y, CORE_REDUCTION_MEAN, &t[5]);
    if (status == CORE_OK)
        status = core_backward(&t[5], 1, NULL, 0);
    if (status == CORE_OK)
        status = core_optimizer_step(self->optimizer);
    if (status == CORE_OK)
        status = core_tensor_item_float(t[5], out_loss);
    for (int i = 0; i < 7; i++)
        core_tensor_release(t[i]);
    return status;
}

static void model_done(model *self)
{
    core_optimizer_release(self->optimizer);
    for (int i = 0; i < 4; i++)
        core_tensor_release(self->parameters[i]);
    core_tensor_release(self->x);
    core_tensor_release(self->y);
}

static void model_learns(suite *self, outcome *out, const test *one)
{
    model model = {NULL};
    double first = 0, loss = 0;

    (void)one;
    if (!prepare(self, out) ||
        !expect_ok(out, make_model(self, &model), "making the model"))
        goto done;
    for (int i = 0; i < STEPS; i++) {
        if (!expect_ok(out, step(&model, &loss), "a step"))
            goto done;
        if (i == 0)
            first = loss;
    }
    expect(out, isfinite(loss) && loss < first / 20,
           "%d steps change the loss from %g to %g; less than %g is expected, "
           "as gradients and steps that are right reach: see the other tests "
           "of this level first",
           STEPS, first, loss, first / 20);
    expect(out, core_tensor_device(model.parameters[0]) == self->device,
           "a parameter is no longer on the device");
    out->measured = loss;
    out->unit = "loss at the end";
done:
    model_done(&model);
}

core_status training_work(suite *self, core_device *device)
{
    static sample_call call;
    suite on = *self;
    model model = {NULL};
    double values[64];
    core_status status = CORE_OK;

    on.device = device;
    for (size_t i = 0; status == CORE_OK &&
                       i < sizeof differentiated / sizeof *differentiated;
         i++)
        if (sample_call_parse(&call, self, &differentiated[i], CORE_F32))
            status = gradient(&call, device, CORE_F32, values, 64);
    if (status == CORE_OK)
        status = make_model(&on, &model);
    if (status == CORE_OK)
        status = step(&model, values);
    model_done(&model);
    return status;
}

bool suite_add_training(suite *self)
{
    static const listed tests[] = {
        {"training/autograd/gradients-are-correct", gradients_are_correct,
         false},
        {"training/golden/recorded-calls", recorded_calls, true},
        {"training/model/small-model-learns", model_learns, false},
    };

    return suite_add_list(self, LEVEL_TRAINING, tests,
                          sizeof tests / sizeof *tests);
}
