/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level training: every operator that it needs has a kernel.  The work is done
 * with the fallback on, and the profiler names what the CPU computed. */

#include "claims.h"
#include "oracle.h"
#include "samples.h"
#include "tests_training.h"

#include <libcore/profiler.h>
#include <libcore/settings.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------- what is missing -- */

enum { MISSING = 512, NAME = 80 };

typedef struct missing {
    uint32_t count; /* of different operators */
    char names[MISSING][NAME];
    char users[MISSING][NAME]; /* the first that needs it */
} missing;

/* The calls that the CPU computed for the device, as the log names them:
 * "add.Tensor of f32: computed on the CPU for sim:0". */
typedef struct computed {
    uint32_t count;
    struct {
        char name[NAME]; /* of the operator */
        char dtype[8];
    } at[MISSING];
} computed;
static computed on_host;

/* The sink of the log: it calls nothing of libcore. */
static void note_computed(void *context, uint32_t level, const char *component,
                          const char *text)
{
    char name[NAME], dtype[8];
    uint32_t at = 0;

    (void)context;
    (void)level;
    if (strcmp(component, "fallback") != 0 ||
        sscanf(text, "%79s of %7[^:]: computed on the CPU", name, dtype) != 2)
        return;
    while (at < on_host.count && (strcmp(on_host.at[at].name, name) != 0 ||
                                  strcmp(on_host.at[at].dtype, dtype) != 0))
        at++;
    if (at < on_host.count || at == MISSING)
        return;
    snprintf(on_host.at[at].name, NAME, "%s", name);
    snprintf(on_host.at[at].dtype, sizeof dtype, "%s", dtype);
    on_host.count++;
}

/* Tests whether a list, whose items are separated by ", ", has a name. */
static bool is_listed(const char *list, const char *name)
{
    size_t size = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at += size)
        if ((at == list || at[-1] == ' ') && (at[size] == 0 || at[size] == ','))
            return true;
    return false;
}

/* The name of a missing kernel, with its dtypes if f32 is not the only one:
 * "eq.Tensor of i64, f32". */
static const char *with_dtypes(const char *name, char *text, size_t size)
{
    char dtypes[60] = "";
    size_t length = 0;

    for (uint32_t i = 0; i < on_host.count && length < sizeof dtypes; i++)
        if (strcmp(kernel_name_of(on_host.at[i].name), name) == 0 &&
            !is_listed(dtypes, on_host.at[i].dtype))
            length += (size_t)snprintf(dtypes + length, sizeof dtypes - length,
                                       "%s%s", length ? ", " : "",
                                       on_host.at[i].dtype);
    snprintf(text, size, "%s%s%s", name,
             length && strcmp(dtypes, "f32") != 0 ? " of " : "",
             length && strcmp(dtypes, "f32") != 0 ? dtypes : "");
    return text;
}

static void add(missing *self, const char *name, const char *user)
{
    for (uint32_t i = 0; i < self->count && i < MISSING; i++)
        if (strcmp(self->names[i], name) == 0)
            return;
    if (self->count < MISSING) {
        snprintf(self->names[self->count], NAME, "%s", name);
        snprintf(self->users[self->count], NAME, "%s", user);
    }
    self->count++;
}

static core_status start_profiler(core_profiler **out)
{
    core_profiler_options options = {.struct_size = sizeof options};

    return core_profiler_start(&options, out);
}

/* Ends the session and adds the operators that the CPU computed. */
static core_status end_profiler(core_profiler *session, missing *to,
                                const char *user)
{
    core_status status = core_profiler_stop(session);
    size_t rows = 0;

    if (status == CORE_OK)
        status = core_profiler_count_rows(session, &rows);
    for (size_t i = 0; status == CORE_OK && i < rows; i++) {
        core_profile_row row = {.struct_size = sizeof row};

        status = core_profiler_get_row(session, CORE_PROFILE_BY_NAME, i, &row);
        if (status == CORE_OK && row.kind == CORE_PROFILE_OPERATOR &&
            row.fallbacks > 0)
            add(to, kernel_name_of(row.name), user);
    }
    core_profiler_release(session);
    return status;
}

/* ------------------------------------------------- of claimed operators -- */

static core_status make_ones(const core_tensor *like, core_device *device,
                             core_tensor **out)
{
    int64_t numel = core_tensor_numel(like);
    float *ones = malloc((size_t)(numel ? numel : 1) * sizeof *ones);
    core_status status = CORE_ERROR_OUT_OF_MEMORY;

    *out = NULL;
    for (int64_t i = 0; ones && i < numel; i++)
        ones[i] = 1;
    if (ones)
        status = core_tensor_from_data(ones, CORE_F32, core_tensor_sizes(like),
                                       core_tensor_ndim(like), device, out);
    free(ones);
    return status;
}

/* The first result that depends on an operand with a gradient. */
static core_tensor *differentiable(const prepared *on)
{
    for (uint32_t i = 0; i < on->nflat; i++)
        if (on->flat[i] && core_tensor_requires_grad(on->flat[i]) &&
            core_tensor_dtype(on->flat[i]) == CORE_F32)
            return on->flat[i];
    return NULL;
}

/* Runs the backward of a call; the forward ran before. */
static core_status run_backward(const suite *self, const sample_call *call,
                                prepared *on)
{
    core_tensor *inputs[SAMPLE_TENSORS], *grads[SAMPLE_TENSORS] = {NULL};
    core_tensor *result = differentiable(on), *ones = NULL;
    size_t count = 0;
    core_status status;

    for (uint32_t i = 0; i < call->noperands; i++)
        if (on->tensors[i] && core_tensor_requires_grad(on->tensors[i]))
            inputs[count++] = on->tensors[i];
    status = make_ones(result, self->device, &ones);
    if (status == CORE_OK)
        status = core_grad(&result, 1, &ones, inputs, count,
                           CORE_ALLOW_UNUSED | CORE_RETAIN_GRAPH, grads);
    for (size_t i = 0; i < count; i++)
        core_tensor_release(grads[i]);
    core_tensor_release(ones);
    return status;
}

static core_status run_forward(const suite *self, const sample_call *call,
                               prepared *on)
{
    core_status status =
        sample_call_prepare(call, self->device, CORE_F32, ARRANGED_ROWS, on);

    for (uint32_t i = 0; status == CORE_OK && i < call->noperands; i++)
        if (on->tensors[i] && core_tensor_dtype(on->tensors[i]) == CORE_F32)
            status = core_tensor_set_requires_grad(on->tensors[i], true);
    return status == CORE_OK ? sample_call_run(call, on) : status;
}

/* Returns whether the call has a backward. */
static bool find_missing(suite *self, const sample_call *call, const char *op,
                         missing *to)
{
    core_profiler *session = NULL;
    kernel_counts before;
    bool has = false;
    prepared on;

    if (run_forward(self, call, &on) == CORE_OK && differentiable(&on)) {
        before = suite_kernel_counts(self);
        has = run_backward(self, call, &on) == CORE_OK;
        if (has && suite_kernel_counts(self).fallbacks > before.fallbacks &&
            start_profiler(&session) == CORE_OK) {
            run_backward(self, call, &on);
            end_profiler(session, to, op);
        }
    }
    sample_call_done(&on);
    return has;
}

/* The first sample of each claimed operator that has a backward. */
static void find_of_claimed(suite *self, missing *to)
{
    static sample_call call;
    const char *done = "";
    const sample *one;

    for (size_t i = 0; (one = sample_at(i)); i++) {
        reference wanted;

        if (strcmp(one->op, done) == 0 || oracle_random(one->op) ||
            !sample_call_parse(&call, self, one, CORE_F32) ||
            !sample_call_has_dtype(&call))
            continue;
        if (reference_shapes(&call, &wanted) == CORE_OK &&
            claim_of(self, &call, &wanted) == CLAIM_KERNEL &&
            find_missing(self, &call, one->op, to))
            done = one->op;
        reference_free(&wanted);
    }
    core_error_clear();
}

/* The same of an operator that is missing: with its kernel the device would
 * need those as well. */
static void find_of_missing(suite *self, const char *name, missing *to)
{
    static sample_call call;
    const sample *one;

    for (size_t i = 0; (one = sample_at(i)); i++)
        if (strcmp(one->op, name) == 0 && !oracle_random(name) &&
            sample_call_parse(&call, self, one, CORE_F32) &&
            sample_call_has_dtype(&call) && find_missing(self, &call, name, to))
            break;
    core_error_clear();
}

/* --------------------------------------------------------------- the test -- */

/* One line per operator. */
static const char *list_missing(const missing *all)
{
    static char text[MISSING * (2 * NAME + 100)];
    char named[NAME + 60];
    size_t length = 0;

    for (uint32_t i = 0; i < all->count && i < MISSING; i++)
        length += (size_t)snprintf(
            text + length, sizeof text - length,
            "no kernel for f32: %s (for %s)\n",
            with_dtypes(all->names[i], named, sizeof named), all->users[i]);
    return text;
}

static void report(const missing *all, outcome *out)
{
    char text[TEST_DETAIL - 100] = "", named[NAME + 60];
    size_t length = 0;
    uint32_t shown = 0;

    for (; shown < all->count && shown < MISSING; shown++) {
        int more = snprintf(text + length, sizeof text - length,
                            "%s%s (for %s)", shown ? ", " : "",
                            with_dtypes(all->names[shown], named, sizeof named),
                            all->users[shown]);

        if (more < 0 || length + (size_t)more >= sizeof text - 1) {
            text[length] = 0;
            break;
        }
        length += (size_t)more;
    }
    if (shown < all->count) {
        expect(out, false,
               "no kernel for f32: %s, and %u more; the remarks name all", text,
               all->count - shown);
        out->remarks = list_missing(all);
    } else
        expect(out, all->count == 0, "no kernel for f32: %s", text);
}

static void operators_are_complete(suite *self, outcome *out, const test *one)
{
    static missing all;
    core_profiler *session = NULL;

    (void)one;
    all.count = on_host.count = 0;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "count"),
                   "turning the fallback on") ||
        !expect_ok(out, start_profiler(&session), "profiling"))
        return;
    core_log_set_sink(note_computed, NULL, CORE_LOG_INFO);
    expect_ok(out, training_work(self, self->device), "gradients and a model");
    expect_ok(out, end_profiler(session, &all, "this level"), "profiling");
    if (out->verdict == VERDICT_PASS)
        find_of_claimed(self, &all);
    for (uint32_t i = 0; i < all.count && i < MISSING; i++)
        find_of_missing(self, all.names[i], &all);
    core_log_set_sink(NULL, NULL, 0);
    report(&all, out);
    core_setting_set("LIBCORE_FALLBACK", "error");
}

bool suite_add_backward(suite *self)
{
    static const listed tests[] = {
        {"training/operators/are-complete", operators_are_complete, false},
    };

    return suite_add_list(self, LEVEL_TRAINING, tests,
                          sizeof tests / sizeof *tests);
}

/* ----------------------------------------------------------------- needs -- */

static bool has_kernel(const char *type, const char *name)
{
    const core_kernel *kernel;

    for (uint32_t i = 0; core_kernel_at(type, i, &kernel) == CORE_OK; i++)
        if (kernel->name.size == strlen(name) &&
            memcmp(kernel->name.data, name, kernel->name.size) == 0)
            return true;
    return false;
}

/* Adds the kernels of which a session shows calls, and releases the session. */
static void add_used(core_profiler *session, const char *user, missing *to)
{
    size_t rows = 0;

    if (core_profiler_stop(session) == CORE_OK)
        core_profiler_count_rows(session, &rows);
    for (size_t i = 0; i < rows; i++) {
        core_profile_row row = {.struct_size = sizeof row};

        if (core_profiler_get_row(session, CORE_PROFILE_BY_NAME, i, &row) ==
                CORE_OK &&
            row.kind == CORE_PROFILE_OPERATOR &&
            has_kernel("cpu", kernel_name_of(row.name)))
            add(to, kernel_name_of(row.name), user);
    }
    core_profiler_release(session);
}

/* Adds what the backward of an operator calls: of its first sample that has
 * one, on the host. */
static void add_backward(suite *self, const char *name, missing *to)
{
    static sample_call call;
    core_profiler *session = NULL;
    const sample *one;
    bool has = false;

    for (size_t i = 0; !has && (one = sample_at(i)); i++) {
        prepared on;

        if (strcmp(one->op, name) != 0 || oracle_random(name) ||
            !sample_call_parse(&call, self, one, CORE_F32) ||
            !sample_call_has_dtype(&call))
            continue;
        has = run_forward(self, &call, &on) == CORE_OK && differentiable(&on);
        if (has && start_profiler(&session) == CORE_OK) {
            has = run_backward(self, &call, &on) == CORE_OK;
            add_used(session, name, to);
        }
        sample_call_done(&on);
    }
    core_error_clear();
}

static bool names(const missing *self, const char *name)
{
    for (uint32_t i = 0; i < self->count && i < MISSING; i++)
        if (strcmp(self->names[i], name) == 0)
            return true;
    return false;
}

/* What the backward of registered operators calls and the plugin lacks. */
static void add_demands(suite *self, const missing *listed, missing *to)
{
    static missing all;
    claimed_operators walk = {0};
    char name[TEST_NAME];

    all.count = 0;
    while (claimed_operators_next(self, &walk, name, sizeof name))
        add_backward(self, name, &all);
    for (uint32_t i = 0; i < all.count && i < MISSING; i++)
        if (!has_kernel(self->type, all.names[i]) &&
            !names(listed, all.names[i]))
            add(to, all.names[i], all.users[i]);
}

static size_t join(const missing *all, const char *before, char *text,
                   size_t capacity)
{
    static const char rest[] = ", …";
    size_t length = 0;

    for (uint32_t i = 0; i < all->count && i < MISSING; i++) {
        int more = snprintf(text + length, capacity - length, "%s%s",
                            i ? ", " : before, all->names[i]);

        if (more < 0 || length + (size_t)more + sizeof rest > capacity) {
            if (length + sizeof rest <= capacity)
                memcpy(text + length, rest, sizeof rest);
            return length + sizeof rest - 1;
        }
        length += (size_t)more;
    }
    return length;
}

bool training_list_needs(suite *self, char *text, size_t capacity)
{
    static missing all, demands;
    core_device *device = self->device;
    core_profiler *session = NULL;
    size_t length;
    bool complete;

    *text = 0;
    all.count = demands.count = 0;
    if (start_profiler(&session) != CORE_OK)
        return false;
    complete = training_work(self, self->host) == CORE_OK;
    add_used(session, "this level", &all);
    self->device = self->host;
    for (uint32_t i = 0; i < all.count && i < MISSING; i++)
        add_backward(self, all.names[i], &all);
    add_demands(self, &all, &demands);
    self->device = device;
    length = join(&all, "", text, capacity);
    join(&demands,
         "; for the backward of what is registered also: ", text + length,
         capacity - length);
    return complete && length > 0;
}
