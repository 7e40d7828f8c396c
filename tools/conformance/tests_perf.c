/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level perf: measurements.  One-time costs (compiling, allocating) are
 * excluded: everything runs once before it is timed.  First calls have their
 * own tests, the only ones with a verdict: they have a time budget. */

#include "claims.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool claims(suite *self, const char *op, const char *text)
{
    static sample_call call;
    sample from = {op, text, -1, 1};
    reference wanted;
    bool good;

    memset(&wanted, 0, sizeof wanted);
    good = sample_call_parse(&call, self, &from, CORE_F32) &&
           reference_shapes(&call, &wanted) == CORE_OK &&
           claim_of(self, &call, &wanted) != CLAIM_NONE;
    reference_free(&wanted);
    return good;
}

static core_status filled(suite *self, int64_t rows, int64_t columns,
                          core_tensor **out)
{
    size_t count = (size_t)(rows * columns);
    float *values = malloc(count * sizeof *values);
    int64_t sizes[2] = {rows, columns};
    core_status status;

    if (!values)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 17) * .25f;
    status =
        core_tensor_from_data(values, CORE_F32, sizes, 2, self->device, out);
    free(values);
    return status;
}

/* Calls an operator of two tensors for a quarter of a second; returns the
 * seconds per call. */
static double time_call(suite *self, const char *name, core_tensor *a,
                        core_tensor *b, outcome *out)
{
    core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = a}},
                          {CORE_VALUE_TENSOR, 0, {.tensor = b}}};
    core_operator *op;
    double start = 0;
    uint64_t calls = 0;

    if (!expect_ok(out, core_op_find(name, &op), name))
        return 0;
    for (int warm = 1; warm >= 0; warm--) {
        start = suite_seconds();
        calls = 0;
        do {
            for (int i = 0; i < 16; i++) {
                core_value result = {0};

                if (!expect_ok(out, core_op_call(op, args, 2, &result, 1),
                               name))
                    return 0;
                core_value_release(&result);
                calls++;
            }
            expect_ok(out, core_device_synchronize(self->device),
                      "synchronizing");
        } while (suite_seconds() - start < (warm ? .05 : .25));
    }
    return (suite_seconds() - start) / (double)calls;
}

enum { BYTES = 16 << 20 };

static void copies(suite *self, outcome *out, bool back)
{
    int64_t size = BYTES;
    char *data = calloc(1, BYTES);
    core_tensor *tensor = NULL;
    double start, taken = 0;
    int rounds = 0;

    if (!data || !suite_device(self, out) ||
        !expect_ok(out,
                   core_tensor_from_data(data, CORE_U8, &size, 1, self->device,
                                         &tensor),
                   "making a tensor"))
        goto done;
    for (start = suite_seconds(); taken < .25;
         taken = suite_seconds() - start) {
        core_status status = back ? core_tensor_read(tensor, data, BYTES)
                                  : core_tensor_write(tensor, data, BYTES);

        if (!expect_ok(out, status, "a copy") ||
            !expect_ok(out, core_device_synchronize(self->device),
                       "synchronizing"))
            goto done;
        rounds++;
    }
    out->measured = (double)rounds * BYTES / taken * 1e-9;
    out->unit = "GB/s";
done:
    core_tensor_release(tensor);
    free(data);
}

static void to_device(suite *self, outcome *out, const test *one)
{
    (void)one;
    copies(self, out, false);
}

static void to_host(suite *self, outcome *out, const test *one)
{
    (void)one;
    copies(self, out, true);
}

static void on_two(suite *self, outcome *out, const char *name, int64_t n,
                   double scale, const char *unit)
{
    core_tensor *a = NULL, *b = NULL;
    double seconds;

    if (!suite_device(self, out))
        return;
    if (!claims(self, name, "t:3,3 t:3,3")) {
        not_supported(out, "%s of f32 is not claimed", name);
        return;
    }
    if (expect_ok(out, filled(self, n, n, &a), "making a tensor") &&
        expect_ok(out, filled(self, n, n, &b), "making a tensor")) {
        seconds = time_call(self, name, a, b, out);
        out->measured = scale > 0 ? scale / seconds : seconds * 1e6;
        out->unit = unit;
    }
    core_tensor_release(a);
    core_tensor_release(b);
}

static void products(suite *self, outcome *out, const test *one)
{
    (void)one;
    on_two(self, out, "mm", 256, 2.0 * 256 * 256 * 256 * 1e-9, "GFLOP/s");
}

static void sums(suite *self, outcome *out, const test *one)
{
    (void)one;
    on_two(self, out, "add.Tensor", 1024, 3.0 * 4 * 1024 * 1024 * 1e-9, "GB/s");
}

static void launches(suite *self, outcome *out, const test *one)
{
    (void)one;
    on_two(self, out, "add.Tensor", 1, 0, "microseconds");
}

/* With a shape that nothing else here uses: how much longer the first call
 * takes than the second. */
static void first_call(suite *self, outcome *out, const char *name)
{
    core_tensor *a = NULL;
    core_operator *op;
    double took[2] = {0};

    if (!suite_device(self, out))
        return;
    if (!claims(self, name, "t:3,3 t:3,3")) {
        not_supported(out, "%s of f32 is not claimed", name);
        return;
    }
    if (!expect_ok(out, core_op_find(name, &op), name) ||
        !expect_ok(out, filled(self, 61, 61, &a), "making a tensor") ||
        !expect_ok(out, core_device_synchronize(self->device), "synchronizing"))
        goto done;
    for (int i = 0; i < 2; i++) {
        core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = a}},
                              {CORE_VALUE_TENSOR, 0, {.tensor = a}}};
        core_value result = {0};
        double start = suite_seconds();

        if (!expect_ok(out, core_op_call(op, args, 2, &result, 1), name))
            goto done;
        core_value_release(&result);
        if (!expect_ok(out, core_device_synchronize(self->device),
                       "synchronizing"))
            goto done;
        took[i] = suite_seconds() - start;
    }
    out->measured = (took[0] > took[1] ? took[0] - took[1] : 0) * 1e3;
    out->unit = "milliseconds";
    expect(out, took[0] <= self->compile_budget,
           "the first call took %.1f seconds, --compile-budget allows %.1f",
           took[0], self->compile_budget);
done:
    core_tensor_release(a);
}

static void compiles_sums(suite *self, outcome *out, const test *one)
{
    (void)one;
    first_call(self, out, "add.Tensor");
}

static void compiles_products(suite *self, outcome *out, const test *one)
{
    (void)one;
    first_call(self, out, "mm");
}

/* --------------------------------------------------------------- loading -- */

enum { LOADS = 21 };

/* Seconds to open the plugin in a fresh process, by libcore or by dlopen alone;
 * < 0: failed. */
static double load_in_child(const suite *self, bool by_libcore)
{
    double taken = -1;
    int ends[2];
    pid_t child;

    if (pipe(ends) != 0)
        return -1;
    child = fork();
    if (child == 0) {
        double start = suite_seconds();
        bool good = by_libcore
                        ? core_plugin_load(self->plugin, NULL) == CORE_OK
                        : dlopen(self->plugin, RTLD_NOW | RTLD_LOCAL) != NULL;

        taken = good ? suite_seconds() - start : -1;
        _exit(write(ends[1], &taken, sizeof taken) != sizeof taken);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &taken, sizeof taken) != sizeof taken)
        taken = -1;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return taken;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median; < 0: it cannot be loaded. */
static double load_time(const suite *self, bool by_libcore)
{
    double times[LOADS];

    for (int i = 0; i < LOADS; i++) {
        times[i] = load_in_child(self, by_libcore);
        if (times[i] < 0)
            return -1;
    }
    qsort(times, LOADS, sizeof *times, by_size);
    return times[LOADS / 2];
}

/* The time that libcore and the plugin's init add to dlopen. */
static void loads_beyond_dlopen(suite *self, outcome *out, const test *one)
{
    double alone = load_time(self, false);
    double whole = load_time(self, true);

    (void)one;
    if (!expect(out, alone >= 0 && whole >= 0, "it cannot be loaded"))
        return;
    out->measured = (whole > alone ? whole - alone : 0) * 1e6;
    out->unit = "microseconds";
}

bool suite_add_perf(suite *self)
{
    static const listed tests[] = {
        {"perf/copies/host-to-device", to_device, false},
        {"perf/copies/device-to-host", to_host, false},
        {"perf/compute/mm", products, true},
        {"perf/compute/add", sums, true},
        {"perf/launch/latency", launches, true},
        {"perf/compile/add", compiles_sums, true},
        {"perf/compile/mm", compiles_products, true},
        {"perf/load/beyond-dlopen", loads_beyond_dlopen, false},
    };

    return suite_add_list(self, LEVEL_PERF, tests,
                          sizeof tests / sizeof *tests);
}
