/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: convolutions of every argument, of many channels and with large
 * kernels; the running statistics that a batch norm changes, which are not among
 * its results. */

#include "element_value.h"
#include "skipped_calls.h"
#include "sample_check.h"

#include <math.h>
#include <string.h>

static const sample convolutions[] = {
    {"convolution", "t:1,2,3,3 t:2,3,2,2 t:3 l:2,2 l:0,0 l:1,1 b:1 l:1,1 i:1",
     .5, 2},
    {"convolution", "t:1,2,3,4 t:2,3,2,3 n l:2,3 l:1,0 l:1,1 b:1 l:0,1 i:1", .5,
     2},
    {"convolution", "t:1,4,5 t:4,1,2 n l:3 l:0 l:1 b:1 l:2 i:4", .5, 2},
    {"convolution",
     "t:1,4,3,2,3 t:4,1,2,2,2 n l:2,1,2 l:0,1,0 l:1,1,1 b:1 l:1,0,1 i:4", .5,
     2},
    {"convolution",
     "t:1,4,3,3,3 t:2,4,2,2,2 n l:1,2,1 l:1,0,1 l:1,1,1 b:0 l:0,0,0 i:1", .5,
     2},
    {"convolution", "t:1,6,5,4 t:4,3,2,3 t:4 l:1,2 l:0,1 l:2,1 b:0 l:0,0 i:2",
     .5, 2},
    {"convolution",
     "t:2,65,5,5 t:33,65,3,3 t:33 l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:1", -1, 1},
    {"convolution", "t:1,257,2,3 t:3,257,1,1 n l:1,1 l:0,0 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:1,3,9,10 t:8,3,7,7 n l:2,2 l:3,3 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:1,1,40 t:1,1,33 n l:1 l:16 l:1 b:0 l:0 i:1", -1, 1},
    {"convolution", "t:1,65,4,4 t:65,1,3,3 n l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:65",
     -1, 1},
    {"convolution", "t:1,3,5,4 t:6,1,3,2 n l:1,1 l:1,0 l:1,1 b:0 l:0,0 i:3", .5,
     2},
    {"convolution",
     "t:2,33,5,5 t:66,1,3,3 t:66 l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:33", -1, 1},
    {"convolution", "t:1,4,7,6 t:8,2,3,2 n l:2,1 l:2,1 l:2,3 b:0 l:0,0 i:2", .5,
     2},
    {"convolution_backward",
     "t:1,6,5,3 p:1,3,5,4 p:6,1,3,2 n l:1,1 l:1,0 l:1,1 b:0 l:0,0 i:3 k:1,1,0",
     .5, 2},
    {"convolution_backward",
     "t:1,3,7,7 p:1,2,3,3 p:2,3,2,2 n l:2,2 l:0,0 l:1,1 b:1 l:1,1 i:1 k:1,1,0",
     .5, 2},
    {"convolution_backward",
     "t:2,33,5,5 p:2,65,5,5 p:33,65,3,3 n l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:1 "
     "k:1,1,0",
     -1, 1},
    {"convolution_backward",
     "t:1,8,5,5 p:1,3,9,10 p:8,3,7,7 n l:2,2 l:3,3 l:1,1 b:0 l:0,0 i:1 k:1,1,0",
     -1, 1},
};

static bool begin(suite *self, outcome *out)
{
    return suite_device(self, out) &&
           expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                     "turning the fallback off");
}

static void all_convolutions(suite *self, outcome *out, const test *one)
{
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!begin(self, out))
        return;
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++) {
        bool claims = sample_check(self, &convolutions[i], CORE_F32,
                                   ARRANGED_ROWS, "", out);

        ran += claims;
        if (out->verdict != VERDICT_PASS)
            return;
        if (!claims)
            skipped_calls_add(&left, convolutions[i].op, CORE_DTYPE_NONE);
    }
    skipped_calls_report(&left, ran, out);
}

/* ------------------------------------------------------- running statistics -- */

enum { SAMPLES = 5, CHANNELS = 3, LENGTH = 4, COUNT = SAMPLES * LENGTH };

typedef struct norm {
    suite *self;
    outcome *out;
    float input[SAMPLES * CHANNELS * LENGTH];
    core_tensor *tensor, *mean, *variance;
    double momentum;
    bool training;
} norm;

static bool make(norm *n)
{
    static const int64_t sizes[3] = {SAMPLES, CHANNELS, LENGTH};
    static const int64_t channels = CHANNELS;
    static const float means[CHANNELS] = {1, -2, .5F};
    static const float variances[CHANNELS] = {1, 4, .25F};
    core_device *device = n->self->device;

    for (int i = 0; i < SAMPLES * CHANNELS * LENGTH; i++)
        n->input[i] = (float)(i * 29 % 17) / 4 - 1;
    return expect_ok(n->out,
                     core_tensor_from_data(n->input, CORE_F32, sizes, 3, device,
                                           &n->tensor),
                     "making an operand") &&
           expect_ok(n->out,
                     core_tensor_from_data(means, CORE_F32, &channels, 1,
                                           device, &n->mean),
                     "making running_mean") &&
           expect_ok(n->out,
                     core_tensor_from_data(variances, CORE_F32, &channels, 1,
                                           device, &n->variance),
                     "making running_var");
}

static core_status normalize(norm *n)
{
    core_value args[8] = {
        suite_tensor_value(n->tensor),   {CORE_VALUE_NONE, 0, {0}},
        {CORE_VALUE_NONE, 0, {0}},       suite_tensor_value(n->mean),
        suite_tensor_value(n->variance), core_bool(n->training),
        core_float(n->momentum),         core_float(1e-3)};
    core_value results[3] = {{0}};
    core_operator *op;
    core_status status = core_op_find("native_batch_norm", &op);

    if (status == CORE_OK)
        status = core_op_call(op, args, 8, results, 3);
    for (int i = 0; i < 3; i++)
        core_value_release(&results[i]);
    return status;
}

/* The mean of a channel, or its variance, divided by COUNT - 1. */
static double statistic(const norm *n, int channel, bool variance)
{
    double sum = 0, squares = 0;

    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < LENGTH; i++) {
            double x = (double)n->input[(s * CHANNELS + channel) * LENGTH + i];

            sum += x;
            squares += x * x;
        }
    return variance ? (squares - sum * sum / COUNT) / (COUNT - 1) : sum / COUNT;
}

static bool is_updated(const norm *n, bool variance)
{
    static const double before[2][CHANNELS] = {{1, -2, .5}, {1, 4, .25}};
    float got[CHANNELS];

    if (!expect_ok(
            n->out,
            core_tensor_read(variance ? n->variance : n->mean, got, sizeof got),
            "reading a running statistic"))
        return false;
    for (int c = 0; c < CHANNELS; c++) {
        double old = before[variance][c];
        double part = n->training ? n->momentum : 0;
        double want = (1 - part) * old + part * statistic(n, c, variance);

        if (!expect(n->out,
                    fabs((double)got[c] - want) <=
                        64 * dtype_epsilon(CORE_F32) * (1 + fabs(want)),
                    "native_batch_norm with training %d and momentum %g: "
                    "element %d of %s, which the kernel changes if training is "
                    "true, is %.9g, expected %.9g",
                    n->training, n->momentum, c,
                    variance ? "running_var" : "running_mean", (double)got[c],
                    want))
            return false;
    }
    return true;
}

static void running_statistics(suite *self, outcome *out, const test *one)
{
    static const double momenta[] = {.1, 1, 0};

    (void)one;
    if (!begin(self, out))
        return;
    for (int i = 0; i < 4 && out->verdict == VERDICT_PASS; i++) {
        norm n = {.self = self,
                  .out = out,
                  .momentum = momenta[i % 3],
                  .training = i < 3};
        core_status status = CORE_OK;

        if (make(&n))
            status = normalize(&n);
        if (status == CORE_ERROR_NO_KERNEL) {
            core_error_clear();
            not_supported(out, "native_batch_norm is not claimed");
        } else if (out->verdict == VERDICT_PASS &&
                   expect_ok(out, status, "native_batch_norm")) {
            (void)(is_updated(&n, false) && is_updated(&n, true));
        }
        core_tensor_release(n.variance);
        core_tensor_release(n.mean);
        core_tensor_release(n.tensor);
    }
}

bool suite_add_layers(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/convolutions", all_convolutions, true},
        {"ops/rules/running-statistics", running_statistics, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
