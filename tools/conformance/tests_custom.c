/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level training: the plugin's own operators.  Those on tensors and numbers are
 * called on the device and on meta, and their gradients are compared with
 * finite differences.  Their names come from a child process, which runs the
 * plugin's init without libcore. */

#include "tests_custom.h"

#include "plugin_tables.h"

#include <libcore/autograd.h>
#include <libcore/dispatch.h>
#include <libcore/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ARGUMENTS = OWN_ARGUMENTS,
    ELEMENTS = 6,
    RESULTS = OWN_RESULTS,
    MOST_ELEMENTS = 256, /* of a result */
    REMARKS = 2000
};

/* --------------------------------------------------------------- names -- */

static bool read_all(int from, plugin_operators *to)
{
    size_t have = 0;
    ssize_t got;

    while ((got = read(from, (char *)to + have, sizeof *to - have)) > 0)
        have += (size_t)got;
    return have == sizeof *to;
}

/* What init registers. init runs once per process, so a child runs it, before
 * this process opens the device. */
static bool list(suite *self, outcome *out, plugin_operators *to)
{
    int ends[2], status = 0;
    pid_t child;
    bool good;

    memset(to, 0, sizeof *to);
    fflush(NULL);
    if (pipe(ends) != 0 || (child = fork()) < 0) {
        harness_error(out, "cannot start a process to list the operators");
        return false;
    }
    if (child == 0) {
        const plugin_tables *plugin = plugin_tables_open(self, out);
        ssize_t size = (ssize_t)sizeof plugin->operators;

        if (plugin && write(ends[1], &plugin->operators, (size_t)size) == size)
            _exit(0);
        _exit(1);
    }
    close(ends[1]);
    good = read_all(ends[0], to);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0)
        ;
    return expect(out, good && WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "the plugin's init fails in a child process");
}

/* --------------------------------------------------------------- calls -- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The value of an argument, from its type; false: of another type. */
static bool read_type(const char *at, core_value *value)
{
    *value = (core_value){0};
    if (begins(at, "Tensor ") || begins(at, "Tensor(a!) "))
        value->tag = CORE_VALUE_TENSOR;
    else if (begins(at, "float ") || begins(at, "Scalar "))
        *value = core_float(1.25);
    else if (begins(at, "int "))
        *value = core_int(1);
    else if (begins(at, "bool "))
        *value = (core_value){CORE_VALUE_BOOL, 0, {.i = 1}};
    else
        return begins(at, "Tensor? ") || begins(at, "*");
    return true;
}

/* The same from a default such as "=2"; false: no number. */
static bool read_default(const char *from, core_value *value)
{
    char *rest = NULL;
    double number;

    if (value->tag == CORE_VALUE_BOOL) {
        value->u.i = begins(from, "=True");
        return begins(from, "=True") || begins(from, "=False");
    }
    number = strtod(from + 1, &rest);
    if (value->tag == CORE_VALUE_FLOAT)
        value->u.f = number;
    else if (value->tag == CORE_VALUE_INT)
        value->u.i = (int64_t)number;
    else
        return false;
    return rest > from + 1 && strchr(",)", *rest);
}

bool own_call_parse(own_call *call, bool with_defaults)
{
    const char *at = strchr(core_op_schema(call->op), '(') + 1;
    const char *arrow = strstr(at, ") -> ");

    /* Only the first argument may be changed. */
    call->in_place = begins(at, "Tensor(a!) ");
    if (!arrow || memchr(at + call->in_place * 10, '!',
                         (size_t)(arrow - at) - call->in_place * 10))
        return false;
    call->nargs = 0;
    call->nresults = 1;
    for (const char *c = arrow; *c; c++)
        call->nresults += *c == ',';
    while (at < arrow) {
        const char *end = at + (begins(at, "Tensor(a!) ") ? 11 : 0), *name;
        core_value value;

        end += strcspn(end, ",)=");
        name = end;
        if (call->nargs == ARGUMENTS || !read_type(at, &value))
            return false;
        if (*end == '=' && (!with_defaults || !read_default(end, &value)))
            break;
        while (name > at && name[-1] != ' ')
            name--;
        if (!begins(at, "*")) {
            snprintf(call->names[call->nargs], OWN_NAME, "%.*s",
                     (int)(end - name), name);
            call->args[call->nargs++] = value;
        }
        end += strcspn(end, ",)");
        at = end + (*end == ',') + strspn(end + (*end == ','), " ");
        if (*end == ')')
            break;
    }
    return call->nresults <= RESULTS;
}

static void drop_tensors(own_call *call)
{
    while (call->ntensors > 0)
        core_tensor_release(call->tensors[--call->ntensors]);
}

/* Creates tensors of these sizes and the call's dtype for all arguments, with
 * elements from .5 to 1.5, or their negatives. */
static core_status fill(const suite *self, own_call *call, core_device *device,
                        const int64_t *sizes, uint32_t ndim, bool negative)
{
    double data[ELEMENTS];
    float narrow[ELEMENTS];

    drop_tensors(call);
    for (uint32_t i = 0; i < call->nargs; i++) {
        core_tensor **tensor = &call->tensors[call->ntensors];

        if (call->args[i].tag != CORE_VALUE_TENSOR)
            continue;
        for (uint64_t k = 0; k < ELEMENTS; k++)
            data[k] = .5 + (double)(suite_random(self, "own operators",
                                                 i * ELEMENTS + k) >>
                                    11) *
                               0x1p-53;
        for (uint64_t k = 0; k < ELEMENTS; k++) {
            data[k] = negative ? -data[k] : data[k];
            narrow[k] = (float)data[k];
        }
        CORE_TRY(core_tensor_from_data(
            call->dtype == CORE_F64 ? (void *)data : (void *)narrow,
            call->dtype, sizes, ndim, device, tensor));
        call->args[i].u.tensor = *tensor;
        call->ntensors++;
    }
    return CORE_OK;
}

/* An operator that changes its first argument gets a clone of it. */
static core_status run_on(own_call *call, core_tensor *const *inputs,
                          core_value *results)
{
    core_tensor *clone = NULL;
    core_status status = CORE_OK;
    size_t next = 0;

    memset(results, 0, RESULTS * sizeof *results);
    for (uint32_t i = 0; i < call->nargs; i++)
        if (call->args[i].tag == CORE_VALUE_TENSOR)
            call->args[i].u.tensor = inputs[next++];
    if (call->in_place) {
        status = suite_call("clone", call->args, 1, &clone);
        call->args[0].u.tensor = clone;
    }
    if (status == CORE_OK)
        status = core_op_call(call->op, call->args, call->nargs, results,
                              call->nresults);
    core_tensor_release(clone);
    return status;
}

static void drop_results(core_value *results)
{
    for (int r = 0; r < RESULTS; r++)
        core_value_release(&results[r]);
}

/* Finds operands of the call's dtype that the device accepts: of one dimension,
 * two, or none. */
static core_status find_sizes(suite *self, own_call *call)
{
    static const int64_t sizes[] = {2, 3};
    static const int64_t square[] = {2, 2};
    const struct {
        const int64_t *sizes;
        uint32_t ndim;
    } tries[] = {{sizes + 1, 1}, {sizes, 2}, {square, 2}, {NULL, 0}};
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        core_value results[RESULTS];

        CORE_TRY(fill(self, call, self->device, tries[i].sizes, tries[i].ndim,
                      false));
        status = run_on(call, call->tensors, results);
        drop_results(results);
        if (status != CORE_ERROR_SHAPE && status != CORE_ERROR_INVALID_ARGUMENT)
            break;
    }
    return status;
}

/* f64 is preferred: finite differences are exact enough for a strict bound. */
static core_status find_arguments(suite *self, own_call *call)
{
    core_status status;

    call->dtype = CORE_F64;
    status = find_sizes(self, call);
    if (status == CORE_OK)
        return status;
    call->dtype = CORE_F32;
    return find_sizes(self, call);
}

/* ------------------------------------------------------------- each test -- */

static bool can_call(suite *self, own_call *call, uint32_t flags)
{
    return own_call_parse(call, false) &&
           (!call->in_place || flags & OWN_IN_PLACE) &&
           (!(flags & OWN_FINDS) || find_arguments(self, call) == CORE_OK);
}

/* Adds a line, or a last one that says that there are more. */
static void add_unchecked(char *lines, const char *name, const char *why)
{
    enum { MORE = 32 };
    char line[200];
    size_t size = strlen(lines);

    snprintf(line, sizeof line, "%s%s: not checked: %s", size ? "\n" : "", name,
             why);
    if (size + strlen(line) + MORE < REMARKS)
        memcpy(lines + size, line, strlen(line) + 1);
    else if (size + MORE < REMARKS && !strstr(lines, "\n… and more"))
        memcpy(lines + size, "\n… and more", sizeof "\n… and more");
}

void own_operators_check(suite *self, outcome *out, own_check check,
                         uint32_t flags)
{
    static plugin_operators names;
    static char unchecked[REMARKS];
    static bool listed;
    uint32_t checked = 0;

    unchecked[0] = '\0';
    if (!listed && !(listed = list(self, out, &names)))
        return;
    if (names.count == 0) {
        not_supported(out, "it registers no operators");
        return;
    }
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (uint32_t i = 0; i < names.count && out->verdict == VERDICT_PASS; i++) {
        own_call call = {.nargs = 0};

        if (!expect_ok(out, core_op_find(names.name[i], &call.op),
                       names.name[i]))
            return;
        if (can_call(self, &call, flags))
            checked += check(self, out, &call, names.gradient[i]);
        if (call.unchecked)
            add_unchecked(unchecked, names.name[i], call.unchecked);
        drop_tensors(&call);
    }
    if (checked > 0 && unchecked[0])
        out->remarks = unchecked;
    if (out->verdict == VERDICT_PASS && checked == 0 && unchecked[0])
        not_supported(out, "%.*s", (int)strcspn(unchecked, "\n"), unchecked);
    else if (out->verdict == VERDICT_PASS && checked == 0)
        not_supported(out,
                      "the suite cannot call any of its %u operators: none "
                      "%stakes only %stensors and numbers on the device",
                      names.count, flags & OWN_FINDS ? "" : "has a kernel and ",
                      flags & OWN_FINDS ? "f64 or f32 " : "");
}

/* ------------------------------------------------------------- gradients -- */

static core_status floating_results(void *context, core_tensor *const *inputs,
                                    size_t ninputs, core_tensor **outputs,
                                    size_t *noutputs)
{
    core_value results[RESULTS];

    (void)ninputs;
    *noutputs = 0;
    CORE_TRY(run_on(context, inputs, results));
    for (int r = 0; r < RESULTS; r++)
        if (results[r].tag == CORE_VALUE_TENSOR &&
            core_tensor_requires_grad(results[r].u.tensor)) {
            outputs[(*noutputs)++] = results[r].u.tensor;
            results[r] = (core_value){0};
        }
    drop_results(results);
    return CORE_OK;
}

/* Tests whether differences of the results say anything. */
static const char *why_unchecked(core_tensor *const *outputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_dtype dtype = core_tensor_dtype(outputs[i]);

        if (core_tensor_numel(outputs[i]) > MOST_ELEMENTS)
            return "a result has more than 256 elements";
        if (dtype != CORE_F32 && dtype != CORE_F64)
            return "a result is neither f32 nor f64";
    }
    return NULL;
}

/* The sum of all elements of the results that a gradient is computed of, and
 * that of their magnitudes. */
typedef struct sums {
    double all, magnitudes;
} sums;

static core_status add_elements(core_tensor *tensor, sums *to)
{
    double wide[MOST_ELEMENTS];
    float narrow[MOST_ELEMENTS];
    bool is_f64 = core_tensor_dtype(tensor) == CORE_F64;
    size_t numel = (size_t)core_tensor_numel(tensor);

    CORE_TRY(is_f64 ? core_tensor_read(tensor, wide, numel * sizeof *wide)
                    : core_tensor_read(tensor, narrow, numel * sizeof *narrow));
    for (size_t k = 0; k < numel; k++) {
        double value = is_f64 ? wide[k] : (double)narrow[k];

        to->all += value;
        to->magnitudes += fabs(value);
    }
    return CORE_OK;
}

static core_status sum_of_results(own_call *call, sums *out)
{
    core_tensor *outputs[RESULTS];
    size_t count = 0;
    core_status status =
        floating_results(call, call->tensors, call->ntensors, outputs, &count);

    *out = (sums){0, 0};
    if (status == CORE_OK && why_unchecked(outputs, count))
        status = CORE_ERROR_SHAPE; /* which depends on values */
    for (size_t i = 0; i < count; i++) {
        if (status == CORE_OK)
            status = add_elements(outputs[i], out);
        core_tensor_release(outputs[i]);
    }
    return status;
}

/* The same of all results of a floating dtype, whether or not they require
 * grad. */
static core_status sum_of_values(own_call *call, sums *out)
{
    core_value results[RESULTS];
    core_status status = run_on(call, call->tensors, results);

    *out = (sums){0, 0};
    for (int r = 0; r < RESULTS && status == CORE_OK; r++)
        if (results[r].tag == CORE_VALUE_TENSOR &&
            !why_unchecked(&results[r].u.tensor, 1))
            status = add_elements(results[r].u.tensor, out);
    drop_results(results);
    return status;
}

/* A derivative of that sum. */
typedef struct derivative {
    double value;
    double error; /* that rounding of the results may cause */
} derivative;

double own_relative_error(const suite *self)
{
    double ulp = self->numerics.max_ulp > 4 ? self->numerics.max_ulp : 4;
    uint32_t bits = self->numerics.product_bits;
    double products = bits > 0 ? ldexp(1, 1 - (int)bits) : 0;

    return ulp * 0x1p-23 > products ? ulp * 0x1p-23 : products;
}

/* By central differences. */
static core_status difference(const suite *self, own_call *call, size_t input,
                              float *values, size_t at, float step,
                              derivative *out)
{
    const float middle = values[at];
    core_tensor *tensor = call->tensors[input];
    uint64_t size = (uint64_t)core_tensor_numel(tensor) * sizeof *values;
    sums of[2] = {{0, 0}, {0, 0}};
    core_status status = CORE_OK;

    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        values[at] = middle + (i ? step : -step);
        status = core_tensor_write(tensor, values, size);
        if (status == CORE_OK)
            status = sum_of_results(call, &of[i]);
    }
    values[at] = middle;
    if (status == CORE_OK)
        status = core_tensor_write(tensor, values, size);
    out->value = (of[1].all - of[0].all) / (2 * (double)step);
    out->error = (of[1].magnitudes + of[0].magnitudes) *
                 own_relative_error(self) / (2 * (double)step);
    return status;
}

static bool agree(double a, const derivative *b)
{
    return fabs(a - b->value) <= .02 * fabs(b->value) + .005 + b->error;
}

/* Compares one gradient of f32 with differences of a larger step.  Elements at
 * which those of two steps disagree, as they do beside a kink, are left out.
 * *compared: the elements that were not. */
static bool f32_gradient_is_right(suite *self, outcome *out, own_call *call,
                                  size_t input, core_tensor *gradient,
                                  size_t *compared)
{
    size_t numel = (size_t)core_tensor_numel(call->tensors[input]);
    float values[ELEMENTS], got[ELEMENTS];
    derivative wide, near;

    memset(got, 0, sizeof got);
    if (!expect_ok(out,
                   core_tensor_read(call->tensors[input], values,
                                    numel * sizeof *values),
                   "reading an operand") ||
        (gradient &&
         !expect_ok(out, core_tensor_read(gradient, got, numel * sizeof *got),
                    "reading a gradient")))
        return false;
    for (size_t k = 0; k < numel; k++) {
        if (!expect_ok(
                out, difference(self, call, input, values, k, 1.F / 64, &wide),
                core_op_name(call->op)) ||
            !expect_ok(
                out, difference(self, call, input, values, k, 1.F / 128, &near),
                core_op_name(call->op)))
            return false;
        if (!agree(wide.value, &near))
            continue;
        ++*compared;
        if (!expect(out, agree((double)got[k], &wide),
                    "%s: the gradient of input %zu, element %zu, is %g in f32; "
                    "central differences give %g",
                    core_op_name(call->op), input, k, (double)got[k],
                    wide.value))
            return false;
    }
    return true;
}

/* What the autograd of an operator returned.  One that registers no gradient
 * needs to have none. */
static bool has_gradient(outcome *out, const own_call *call, bool registered,
                         core_status status)
{
    return (registered || status != CORE_ERROR_UNSUPPORTED) &&
           expect_ok(out, status, core_op_name(call->op));
}

/* The gradients of the sum of all results. */
static core_status f32_gradients(own_call *call, core_tensor **outputs,
                                 size_t count, core_tensor **gradients)
{
    core_tensor *ones[RESULTS] = {NULL};
    double wide[MOST_ELEMENTS];
    float narrow[MOST_ELEMENTS];
    core_status status = CORE_OK;

    for (size_t k = 0; k < MOST_ELEMENTS; k++)
        wide[k] = narrow[k] = 1;
    for (size_t i = 0; i < count && status == CORE_OK; i++) {
        core_dtype dtype = core_tensor_dtype(outputs[i]);
        const void *data = dtype == CORE_F64 ? (void *)wide : (void *)narrow;

        status =
            core_tensor_from_data(data, dtype, core_tensor_sizes(outputs[i]),
                                  core_tensor_ndim(outputs[i]),
                                  core_tensor_device(outputs[i]), &ones[i]);
    }
    if (status == CORE_OK)
        status = core_grad(outputs, count, ones, call->tensors, call->ntensors,
                           CORE_ALLOW_UNUSED, gradients);
    for (size_t i = 0; i < count; i++)
        core_tensor_release(ones[i]);
    return status;
}

static bool f32_gradients_are_right(suite *self, outcome *out, own_call *call,
                                    bool registered)
{
    core_tensor *outputs[RESULTS], *gradients[ARGUMENTS] = {NULL};
    size_t count = 0, compared = 0;
    bool good = expect_ok(
        out,
        floating_results(call, call->tensors, call->ntensors, outputs, &count),
        core_op_name(call->op));

    if (good)
        call->unchecked = why_unchecked(outputs, count);
    good = good && !call->unchecked &&
           has_gradient(out, call, registered,
                        f32_gradients(call, outputs, count, gradients));
    for (size_t i = 0; i < call->ntensors && good; i++)
        good =
            f32_gradient_is_right(self, out, call, i, gradients[i], &compared);
    if (good && compared == 0)
        call->unchecked = "differences of two steps disagree everywhere";
    for (size_t i = 0; i < call->ntensors; i++)
        core_tensor_release(gradients[i]);
    for (size_t i = 0; i < count; i++)
        core_tensor_release(outputs[i]);
    return good && compared > 0;
}

/* With the operands that the call has. */
static bool gradient_here_is_right(suite *self, outcome *out, own_call *call,
                                   bool gradient)
{
    core_tensor *outputs[RESULTS];
    size_t count = 0;

    for (size_t i = 0; i < call->ntensors; i++)
        if (!expect_ok(out,
                       core_tensor_set_requires_grad(call->tensors[i], true),
                       core_op_name(call->op)))
            return false;
    if (!expect_ok(out,
                   floating_results(call, call->tensors, call->ntensors,
                                    outputs, &count),
                   core_op_name(call->op)))
        return false;
    for (size_t i = 0; i < count; i++)
        core_tensor_release(outputs[i]);
    expect(out, count > 0 || !gradient,
           "%s: it registers a gradient, but no result requires grad",
           core_op_name(call->op));
    if (call->dtype == CORE_F32)
        return count > 0 && f32_gradients_are_right(self, out, call, gradient);
    return count > 0 &&
           has_gradient(out, call, gradient,
                        core_gradcheck(floating_results, call, call->tensors,
                                       call->ntensors, 1e-6, 1e-5, 1e-3));
}

/* Makes new operands of the same sizes; false: the results are not finite, or
 * the device refuses them. */
static bool make_operands(suite *self, own_call *call, const core_tensor *like,
                          bool negative)
{
    int64_t sizes[8];
    uint32_t ndim = (uint32_t)core_tensor_ndim(like);
    sums of;
    bool good;

    for (uint32_t d = 0; d < ndim; d++)
        sizes[d] = core_tensor_sizes(like)[d];
    good = fill(self, call, self->device, sizes, ndim, negative) == CORE_OK &&
           sum_of_values(call, &of) == CORE_OK && isfinite(of.magnitudes);
    core_error_clear();
    return good;
}

/* Tests whether the gradient, if there is one, is wrong; says with what. */
static bool is_wrong_with(suite *self, outcome *out, own_call *call,
                          bool gradient, const char *what)
{
    char text[TEST_DETAIL];

    if (gradient_here_is_right(self, out, call, gradient) ||
        out->verdict != VERDICT_FAIL)
        return false;
    snprintf(text, sizeof text, "with %s: %.450s", what, out->detail);
    snprintf(out->detail, sizeof out->detail, "%s", text);
    return true;
}

/* With each number that an argument is given in numbers-matter. */
static bool is_wrong_with_numbers(suite *self, outcome *out, own_call *call,
                                  core_tensor *like)
{
    own_call varied = {.op = call->op};
    char text[200];
    bool wrong = false;

    if (!own_call_parse(&varied, true))
        return false;
    varied.dtype = call->dtype;
    for (uint32_t k = 0; k < varied.nargs && !wrong; k++) {
        core_value before = varied.args[k];

        for (int n = 0; own_is_number(&before) && !wrong && n < OWN_NUMBERS &&
                        own_set_number(&varied.args[k], n);
             n++)
            wrong = make_operands(self, &varied, like, false) &&
                    is_wrong_with(self, out, &varied, false,
                                  own_describe(&varied, text, sizeof text) + 2);
        varied.args[k] = before;
    }
    drop_tensors(&varied);
    return wrong;
}

/* A frequent cause where the first argument is changed. */
static void explain_in_place(outcome *out)
{
    size_t used = strlen(out->detail);

    snprintf(out->detail + used, sizeof out->detail - used,
             " (setup runs after the operator: the first argument that it "
             "saves is the changed one)");
}

static bool gradient_is_right(suite *self, outcome *out, own_call *call,
                              bool gradient)
{
    core_tensor *like;
    bool wrong;

    if (call->ntensors == 0)
        return false;
    if (!gradient_here_is_right(self, out, call, gradient)) {
        if (call->in_place && out->verdict == VERDICT_FAIL)
            explain_in_place(out);
        return false;
    }
    like = call->tensors[0];
    core_tensor_retain(like);
    wrong = (make_operands(self, call, like, true) &&
             is_wrong_with(self, out, call, gradient, "negative operands")) ||
            is_wrong_with_numbers(self, out, call, like);
    core_tensor_release(like);
    if (wrong && call->in_place)
        explain_in_place(out);
    return !wrong;
}

static void gradients_are_correct(suite *self, outcome *out, const test *one)
{
    (void)one;
    own_operators_check(self, out, gradient_is_right, OWN_FINDS | OWN_IN_PLACE);
}

/* ------------------------------------------------------------------ meta -- */

static bool same_shape(const core_tensor *a, const core_tensor *b)
{
    bool same = core_tensor_ndim(a) == core_tensor_ndim(b) &&
                core_tensor_dtype(a) == core_tensor_dtype(b);

    for (size_t d = 0; same && d < core_tensor_ndim(a); d++)
        same = core_tensor_sizes(a)[d] == core_tensor_sizes(b)[d];
    return same;
}

static const char *shape_text(const core_value *of, char *text, size_t size)
{
    const core_tensor *tensor = of->u.tensor;
    size_t used;

    if (of->tag != CORE_VALUE_TENSOR) {
        snprintf(text, size, "absent");
        return text;
    }
    used = (size_t)snprintf(text, size, "%s [",
                            core_dtype_name(core_tensor_dtype(tensor)));
    for (size_t d = 0; d < core_tensor_ndim(tensor) && used + 24 < size; d++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "",
                             (long long)core_tensor_sizes(tensor)[d]);
    snprintf(text + used, size - used, "]");
    return text;
}

static bool shape_agrees(suite *self, outcome *out, own_call *call,
                         bool gradient)
{
    core_tensor *shapes[ARGUMENTS] = {NULL};
    core_value there[RESULTS], here[RESULTS];
    char texts[2][120];
    core_device *meta;
    core_status status = core_device_find("meta", &meta);
    bool good = false;

    (void)self;
    (void)gradient;
    memset(there, 0, sizeof there);
    memset(here, 0, sizeof here);
    for (size_t i = 0; i < call->ntensors && status == CORE_OK; i++)
        status = core_empty(core_tensor_sizes(call->tensors[i]),
                            core_tensor_ndim(call->tensors[i]), call->dtype,
                            meta, CORE_FORMAT_CONTIGUOUS, &shapes[i]);
    if (!expect_ok(out, status, "tensors on meta") ||
        !expect_ok(out, run_on(call, call->tensors, here),
                   core_op_name(call->op)))
        goto done;
    status = run_on(call, shapes, there);
    if (status == CORE_ERROR_NO_KERNEL || status == CORE_ERROR_DATA_DEPENDENT)
        goto done; /* it has no shape function */
    good = expect_ok(out, status, core_op_name(call->op));
    for (int r = 0; good && r < RESULTS; r++)
        if (here[r].tag == CORE_VALUE_TENSOR)
            good = expect(out,
                          there[r].tag == CORE_VALUE_TENSOR &&
                              same_shape(there[r].u.tensor, here[r].u.tensor),
                          "%s: result %d is %s on meta, and %s on the device",
                          core_op_name(call->op), r,
                          shape_text(&there[r], texts[0], sizeof texts[0]),
                          shape_text(&here[r], texts[1], sizeof texts[1]));
done:
    drop_results(there);
    drop_results(here);
    for (size_t i = 0; i < call->ntensors; i++)
        core_tensor_release(shapes[i]);
    return good;
}

static void meta_shapes_agree(suite *self, outcome *out, const test *one)
{
    (void)one;
    own_operators_check(self, out, shape_agrees, OWN_FINDS);
}

bool suite_add_custom(suite *self)
{
    static const listed tests[] = {
        {"training/custom-operators/gradients-are-correct",
         gradients_are_correct, true},
        {"training/custom-operators/meta-shapes-agree", meta_shapes_agree,
         true},
        {"training/custom-operators/layouts-agree", own_layouts_agree, true},
        {"training/custom-operators/results-agree-with-cpu",
         own_results_agree_with_cpu, true},
        {"training/custom-operators/numbers-matter", own_numbers_matter, true},
    };

    return suite_add_list(self, LEVEL_TRAINING, tests,
                          sizeof tests / sizeof *tests);
}
