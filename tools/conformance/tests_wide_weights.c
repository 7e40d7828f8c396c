/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: normalizations of f16 or bf16 whose weight and bias are f32, as
 * mixed precision has them.  Expected is what the CPU computes in f64. */

#include "element_value.h"
#include "skipped_calls.h"
#include "suite.h"

#include <math.h>
#include <string.h>

enum { BATCH = 2, CHANNELS = 6, LENGTH = 5, RESULTS = 3 };
enum { NUMEL = BATCH * CHANNELS * LENGTH };

typedef struct norm {
    const char *op;
    int64_t weights; /* elements of weight and bias */
} norm;

static const norm norms[] = {{"native_layer_norm", LENGTH},
                             {"native_group_norm", CHANNELS},
                             {"native_batch_norm", CHANNELS}};

typedef struct wide {
    suite *self;
    outcome *out;
    const norm *of;
    core_dtype dtype; /* of the input */
} wide;

static core_status tensor(core_device *device, core_dtype dtype, int kind,
                          const int64_t *sizes, uint32_t ndim,
                          core_tensor **out)
{
    unsigned char bytes[NUMEL * 8];
    int64_t numel = 1;

    for (uint32_t d = 0; d < ndim; d++)
        numel *= sizes[d];
    for (int64_t i = 0; i < numel; i++)
        element_store(dtype,
                      kind == 0 ? (double)(i * 37 % 29) / 8 - 1.5
                                : (double)(i * (kind + 4) % 7) / 4 + .25,
                      bytes + (size_t)i * core_dtype_size(dtype));
    return core_tensor_from_data(bytes, dtype, sizes, ndim, device, out);
}

static uint32_t arguments(const norm *of, core_tensor *const *tensors,
                          core_value *args)
{
    static const int64_t last = LENGTH;
    const core_value input = suite_tensor_value(tensors[0]);
    const core_value weight = suite_tensor_value(tensors[1]);
    const core_value bias = suite_tensor_value(tensors[2]);
    const core_value none = {0};

    if (of == &norms[0]) {
        const core_value list[] = {input,
                                   {CORE_VALUE_INT_LIST, 1, {.ints = &last}},
                                   weight,
                                   bias,
                                   core_float(1e-3)};

        memcpy(args, list, sizeof list);
        return 5;
    }
    if (of == &norms[1]) {
        const core_value list[] = {input,
                                   weight,
                                   bias,
                                   core_int(BATCH),
                                   core_int(CHANNELS),
                                   core_int(LENGTH),
                                   core_int(3),
                                   core_float(1e-3)};

        memcpy(args, list, sizeof list);
        return 8;
    }
    {
        const core_value list[] = {
            input, weight,          bias,           none,
            none,  core_bool(true), core_float(.1), core_float(1e-3)};

        memcpy(args, list, sizeof list);
        return 8;
    }
}

static core_status normalize(const wide *w, core_device *device,
                             core_dtype input, core_dtype weights,
                             core_value *results)
{
    static const int64_t sizes[3] = {BATCH, CHANNELS, LENGTH};
    core_tensor *tensors[3] = {NULL, NULL, NULL};
    core_value args[8];
    core_operator *op;
    core_status status = tensor(device, input, 0, sizes, 3, &tensors[0]);

    for (int k = 1; k < 3 && status == CORE_OK; k++)
        status = tensor(device, weights, k, &w->of->weights, 1, &tensors[k]);
    if (status == CORE_OK)
        status = core_op_find(w->of->op, &op);
    if (status == CORE_OK)
        status = suite_op_call(op, args, arguments(w->of, tensors, args),
                               results, RESULTS);
    for (int k = 0; k < 3; k++)
        core_tensor_release(tensors[k]);
    return status;
}

static bool read(const wide *w, core_tensor *from, double *to)
{
    core_dtype dtype = core_tensor_dtype(from);
    size_t size = core_dtype_size(dtype);
    unsigned char bytes[NUMEL * 8];

    if (!expect_ok(
            w->out,
            suite_read(from, bytes, (size_t)core_tensor_numel(from) * size),
            "reading a result"))
        return false;
    for (int64_t i = 0; i < core_tensor_numel(from); i++)
        to[i] = element_load(dtype, bytes + (size_t)i * size);
    return true;
}

/* The result has the input's dtype, the statistics the weight's. */
static bool are_close(const wide *w, int which, core_tensor *got,
                      core_tensor *wanted)
{
    core_dtype dtype = which > 0 ? CORE_F32 : w->dtype;
    double tolerance = dtype == CORE_F32   ? 0x1p-16
                       : dtype == CORE_F16 ? 0x1p-9
                                           : 0x1p-6;
    double is[NUMEL], expected[NUMEL];

    if (!expect(w->out, core_tensor_dtype(got) == dtype,
                "%s of %s with a weight of f32: result %d is %s, expected %s",
                w->of->op, core_dtype_name(w->dtype), which,
                core_dtype_name(core_tensor_dtype(got)),
                core_dtype_name(dtype)) ||
        !read(w, got, is) || !read(w, wanted, expected))
        return false;
    for (int64_t i = 0; i < core_tensor_numel(wanted); i++)
        if (!expect(w->out,
                    fabs(is[i] - expected[i]) <=
                        tolerance * fmax(1, fabs(expected[i])),
                    "%s of %s with a weight of f32: result %d, element %lld, "
                    "is %g, expected %g",
                    w->of->op, core_dtype_name(w->dtype), which, (long long)i,
                    is[i], expected[i]))
            return false;
    return true;
}

/* Returns whether the device has a kernel for it. */
static bool check(const wide *w)
{
    core_value got[RESULTS] = {{0}}, wanted[RESULTS] = {{0}};
    core_status status = normalize(w, w->self->device, w->dtype, CORE_F32, got);

    if (status == CORE_OK &&
        normalize(w, w->self->host, CORE_F64, CORE_F64, wanted) != CORE_OK)
        harness_error(w->out, "the CPU cannot compute the expected result: %s",
                      core_error_message());
    else if (status != CORE_ERROR_NO_KERNEL)
        expect_ok(w->out, status, w->of->op);
    for (int r = 0;
         r < RESULTS && status == CORE_OK && w->out->verdict == VERDICT_PASS;
         r++)
        are_close(w, r, got[r].u.tensor, wanted[r].u.tensor);
    for (int r = 0; r < RESULTS; r++) {
        core_value_release(&got[r]);
        core_value_release(&wanted[r]);
    }
    core_error_clear();
    return status != CORE_ERROR_NO_KERNEL;
}

static void wide_weights(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F16, CORE_BF16};
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        for (size_t d = 0; d < 2; d++) {
            const wide w = {self, out, &norms[i], dtypes[d]};
            bool claims = check(&w);

            if (out->verdict != VERDICT_PASS)
                return;
            ran += claims;
            if (!claims)
                skipped_calls_add(&left, norms[i].op, dtypes[d]);
        }
    skipped_calls_report(&left, ran, out);
}

bool suite_add_wide_weights(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/weights-of-another-dtype", wide_weights, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
