/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: fused optimizer steps, which have no results and change lists of
 * tensors.  Each list is compared with that of the same step on the CPU, in
 * f64. */

#include "element_value.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>

enum {
    LISTS = 4,     /* self, grads, and the state */
    FEW = 5,       /* tensors */
    MANY = 150,    /* more than the arguments of a launch have room for */
    SOME = 66003,  /* elements, more than a launch of 2^16 threads */
    LARGE = 131103 /* more than 10^5 */
};

/* Adam follows SGD; in the last two, numbers are in memory of the device. */
static const char *const names[] = {"_fused_sgd_step", "_fused_adam_step",
                                    "_fused_sgd_step.device_numbers",
                                    "_fused_adam_step.device_numbers"};
enum { NAMES = sizeof names / sizeof *names, ON_DEVICE = 2 };

/* Numbers of a step; found < 0: without found_inf, scale 0: without
 * grad_scale. */
typedef struct step {
    const char *what;
    double decay;
    double scale, found;
    bool other; /* nesterov, or decoupled */
    double momentum, dampening;
    bool first;
} step;

static const step steps[] = {
    {"with weight decay and momentum", .05, 0, -1, false, .9, 0, false},
    {"with dampening", .05, 0, -1, false, .9, .25, false},
    {"without weight decay", 0, 0, -1, false, .9, .25, false},
    {"that is the first", .05, 0, -1, false, .9, .25, true},
    {"with nesterov or decoupled decay", .05, 0, -1, true, .9, 0, false},
    {"without momentum", .05, 0, -1, false, 0, 0, false},
    {"with grad_scale 4", .05, 4, -1, false, .9, .25, false},
    {"with found_inf 0", .05, 4, 0, true, .9, 0, false},
    {"with found_inf 1", .05, 4, 1, false, .9, .25, false},
};

/* One step on one device. */
typedef struct lists {
    core_tensor *tensors[LISTS][MANY];
    core_tensor *scale, *found;
    core_tensor *numbers; /* NULL: they are arguments */
} lists;

typedef struct fused {
    suite *self;
    outcome *out;
    size_t which; /* of names */
    core_dtype dtype;
    uint32_t count; /* of tensors */
    uint32_t nlists;
    uint32_t ran;
    int64_t large; /* elements of one tensor */
} fused;

static int64_t size_of(const fused *test, uint32_t k)
{
    const int64_t sizes[FEW] = {3, 1, test->large, 4, 257};

    return test->count == FEW ? sizes[k] : 7;
}

/* Eighths, exact in every dtype; squares are positive. */
static double value_of(uint32_t list, uint32_t k, int64_t i)
{
    int64_t place = (i + (int64_t)k) * (2 * (int64_t)list + 3) % 19;

    return (double)(list == 3 ? place + 1 : place - 9) / 8;
}

static void release(lists *l)
{
    for (uint32_t list = 0; list < LISTS; list++)
        for (uint32_t k = 0; k < MANY; k++)
            core_tensor_release(l->tensors[list][k]);
    core_tensor_release(l->found);
    core_tensor_release(l->scale);
    core_tensor_release(l->numbers);
    *l = (lists){.scale = NULL};
}

static bool is_sgd(const fused *test)
{
    return test->which % 2 == 0;
}

/* The third step, or the first one. */
static int64_t count_of(const step *with)
{
    return with->first ? 1 : 3;
}

static core_status make_numbers(const fused *test, const step *with,
                                core_device *device, core_tensor **out)
{
    double count = (double)count_of(with);
    const double sgd[] = {.1, with->first};
    const double adam[] = {-(.1 / (1 - pow(.9, count))),
                           sqrt(1 - pow(.99, count)), 1 - .1 * with->decay};
    const int64_t size = is_sgd(test) ? 2 : 3;

    return core_tensor_from_data(is_sgd(test) ? sgd : adam, CORE_F64, &size, 1,
                                 device, out);
}

static core_status make(const fused *test, const step *with,
                        core_device *device, core_dtype dtype, lists *out)
{
    static unsigned char bytes[LARGE * sizeof(double)];
    size_t item = core_dtype_size(dtype);
    const float scale = (float)with->scale, found = (float)with->found;

    *out = (lists){.scale = NULL};
    for (uint32_t list = 0; list < test->nlists; list++)
        for (uint32_t k = 0; k < test->count; k++) {
            int64_t size = size_of(test, k);

            for (int64_t i = 0; i < size; i++)
                element_store(dtype, value_of(list, k, i),
                              bytes + (size_t)i * item);
            CORE_TRY(core_tensor_from_data(bytes, dtype, &size, 1, device,
                                           &out->tensors[list][k]));
        }
    if (with->scale > 0)
        CORE_TRY(core_tensor_from_data(&scale, CORE_F32, NULL, 0, device,
                                       &out->scale));
    if (with->found >= 0)
        CORE_TRY(core_tensor_from_data(&found, CORE_F32, NULL, 0, device,
                                       &out->found));
    return test->which < ON_DEVICE
               ? CORE_OK
               : make_numbers(test, with, device, &out->numbers);
}

static core_value optional(core_tensor *tensor)
{
    return tensor ? suite_tensor_value(tensor) : (core_value){0};
}

static core_status run(const fused *test, const step *with, lists *on)
{
    core_value args[16] = {{0}};
    core_tensor *none; /* there is no result */
    uint32_t n = 0;

    for (; n < test->nlists; n++)
        args[n] = (core_value){
            CORE_VALUE_TENSOR_LIST, test->count, {.tensors = on->tensors[n]}};
    if (on->numbers)
        args[n++] = suite_tensor_value(on->numbers);
    if (is_sgd(test)) {
        if (!on->numbers)
            args[n++] = core_float(.1);
        args[n++] = core_float(with->momentum);
        args[n++] = core_float(with->dampening);
        args[n++] = core_float(with->decay);
        args[n++] = core_bool(with->other);
        if (!on->numbers)
            args[n++] = core_bool(with->first);
    } else {
        if (!on->numbers) {
            args[n++] = core_int(count_of(with));
            args[n++] = core_float(.1);
        }
        args[n++] = core_float(.9);
        args[n++] = core_float(.99);
        args[n++] = core_float(1e-8);
        args[n++] = core_float(with->decay);
        args[n++] = core_bool(with->other);
    }
    args[n++] = optional(on->scale);
    args[n++] = optional(on->found);
    return suite_call(names[test->which], args, n, &none);
}

/* Gradients must not change. */
static bool same_tensor(const fused *test, const step *with, uint32_t list,
                        uint32_t k, core_tensor *got, core_tensor *expected)
{
    static unsigned char bytes[LARGE * sizeof(double)];
    static double wanted[LARGE];
    static const char *const of[2][LISTS] = {
        {"self", "grads", "momentum_buffers", ""},
        {"self", "grads", "exp_avgs", "exp_avg_sqs"}};
    size_t size = (size_t)size_of(test, k), item = core_dtype_size(test->dtype);
    const char *list_name = of[is_sgd(test) ? 0 : 1][list];

    if (!expect_ok(test->out, core_tensor_read(got, bytes, size * item),
                   "reading a tensor") ||
        !expect_ok(test->out,
                   core_tensor_read(expected, wanted, size * sizeof *wanted),
                   "reading a reference"))
        return false;
    for (size_t i = 0; i < size; i++) {
        double is = element_load(test->dtype, bytes + i * item);
        double bound =
            list == 1 ? 0
                      : 16 * dtype_epsilon(test->dtype) * (4 + fabs(wanted[i]));

        if (!expect(test->out, fabs(is - wanted[i]) <= bound,
                    "%s of %s, %u tensors, %s: element %zu of %s[%u] is %.9g, "
                    "expected %.9g (weight_decay %g, momentum %g, dampening "
                    "%g, %s %d)",
                    names[test->which], core_dtype_name(test->dtype),
                    test->count, with->what, i, list_name, k, is, wanted[i],
                    with->decay, with->momentum, with->dampening,
                    is_sgd(test) ? "nesterov" : "decoupled", with->other))
            return false;
    }
    return true;
}

static bool check_step(fused *test, const step *with)
{
    static lists device, host;
    core_status status;
    bool good =
        expect_ok(test->out,
                  make(test, with, test->self->device, test->dtype, &device),
                  "making the operands") &&
        expect_ok(test->out,
                  make(test, with, test->self->host, CORE_F64, &host),
                  "making the operands of the reference");

    if (!good)
        goto done;
    status = run(test, with, &device);
    if (status == CORE_ERROR_NO_KERNEL)
        goto done;
    test->ran++;
    good = expect_ok(test->out, status, names[test->which]) &&
           expect_ok(test->out, run(test, with, &host), "the reference");
    for (uint32_t list = 0; good && list < test->nlists; list++)
        for (uint32_t k = 0; good && k < test->count; k++)
            good = same_tensor(test, with, list, k, device.tensors[list][k],
                               host.tensors[list][k]);
done:
    release(&host);
    release(&device);
    return good;
}

static void optimizer_steps(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64};
    fused test = {.self = self, .out = out};
    bool good = suite_device(self, out) &&
                expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                          "turning the fallback off");

    (void)one;
    for (test.which = 0; good && test.which < NAMES; test.which++)
        for (size_t d = 0; good && d < sizeof dtypes / sizeof *dtypes; d++) {
            test.dtype = dtypes[d];
            test.nlists = is_sgd(&test) ? 3 : 4;
            test.count = FEW;
            for (size_t k = 0; good && k < sizeof steps / sizeof *steps; k++) {
                test.large = k == 0 ? LARGE : SOME;
                good = check_step(&test, &steps[k]);
            }
            test.count = MANY;
            good = good && check_step(&test, &steps[0]);
        }
    if (test.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no kernel of a fused step is claimed");
}

bool fused_steps_has(const char *op)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], op) == 0)
            return true;
    return false;
}

bool suite_add_fused_steps(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/optimizer-steps", optimizer_steps, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
