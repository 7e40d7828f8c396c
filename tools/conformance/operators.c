/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "operators.h"

#include "element_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void operators_poison(suite *self, size_t bytes)
{
    int64_t size = (int64_t)(bytes ? bytes : 1);
    unsigned char *poison = malloc((size_t)size);
    core_tensor *tensor = NULL;

    if (!poison)
        return;
    memset(poison, OPERATORS_POISON, (size_t)size);
    /* The block released last is the next one of its size to be allocated. */
    core_tensor_from_data(poison, CORE_U8, &size, 1, self->device, &tensor);
    core_tensor_release(tensor);
    free(poison);
}

static bool check_shape(suite *self, core_tensor *got, const reference *wanted,
                        uint32_t r, outcome *out)
{
    const int64_t *sizes = core_tensor_sizes(got);
    bool same = core_tensor_ndim(got) == wanted->ndim[r];

    for (uint32_t d = 0; same && d < wanted->ndim[r]; d++)
        same = sizes[d] == wanted->sizes[r][d];
    return expect(out, core_tensor_device(got) == self->device,
                  "result %u is on %s, not on the device", r,
                  core_device_name(core_tensor_device(got))) &&
           expect(out, core_tensor_dtype(got) == wanted->dtypes[r],
                  "result %u is %s, not %s", r,
                  core_dtype_name(core_tensor_dtype(got)),
                  core_dtype_name(wanted->dtypes[r])) &&
           expect(out, same, "result %u has wrong sizes", r);
}

static bool check_bytes(const suite *self, const sample_call *call,
                        const reference *wanted, uint32_t r, const char *bytes,
                        outcome *out)
{
    bounds allowed = bounds_of(self, call->op);
    core_dtype dtype = wanted->dtypes[r];
    double *values = malloc(((size_t)wanted->numel[r] + 1) * sizeof *values);
    bool good;

    if (!values) {
        harness_error(out, "no memory");
        return false;
    }
    for (int64_t i = 0; i < wanted->numel[r]; i++)
        values[i] =
            element_load(dtype, bytes + (size_t)i * core_dtype_size(dtype));
    good = bounds_hold(&allowed, call, wanted, r, values, out);
    free(values);
    return good;
}

bool operators_check_result(suite *self, const sample_call *call,
                            const reference *wanted, uint32_t r,
                            core_tensor *got, outcome *out)
{
    size_t bytes =
        (size_t)wanted->numel[r] * core_dtype_size(wanted->dtypes[r]);
    char *data = malloc(bytes + 1);
    bool good = false;

    if (!data)
        harness_error(out, "no memory");
    else if (check_shape(self, got, wanted, r, out) &&
             expect_ok(out, suite_read(got, data, bytes), "reading a result"))
        good = check_bytes(self, call, wanted, r, data, out);
    free(data);
    return good;
}

/* Where positions depend on ties only their values are certain. */
static bool uncertain(const sample_call *call, const reference *wanted,
                      uint32_t r)
{
    return r > 0 && (call->tied || call->dtype == CORE_BOOL) &&
           wanted->dtypes[r] == CORE_I64;
}

static bool check_results(suite *self, const sample_call *call,
                          const reference *wanted, const prepared *on,
                          outcome *out)
{
    if (!expect(out, on->nflat >= wanted->nresults,
                "got %u results, expected %u", on->nflat, wanted->nresults))
        return false;
    for (uint32_t r = 0; r < wanted->nresults; r++)
        if (!uncertain(call, wanted, r) &&
            !operators_check_result(self, call, wanted, r, on->flat[r], out))
            return false;
    return true;
}

/* Moves of whole blocks may use the device's copies and fills instead of
 * kernels; a call that computes nothing needs none. */
static bool needs_kernel(const sample_call *call, const reference *wanted)
{
    static const char *const moves[] = {"copy_", "fill_.Scalar", "zero_"};
    bool empty = true;

    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (strcmp(core_op_name(call->op), moves[i]) == 0)
            return false;
    for (uint32_t r = 0; r < wanted->nresults; r++)
        empty &= wanted->numel[r] == 0;
    return !empty;
}

bool operators_check(suite *self, const sample_call *call,
                     const reference *wanted, arrangement how, outcome *out)
{
    prepared on;
    kernel_counts before;
    bool good;

    good = expect_ok(
        out, sample_call_prepare(call, self->device, call->dtype, how, &on),
        "making the operands");
    if (good && wanted->nresults > 0)
        operators_poison(self, (size_t)wanted->numel[0] *
                                   core_dtype_size(wanted->dtypes[0]));
    before = suite_kernel_counts(self);
    if (good)
        good = expect_ok(out, sample_call_run(call, &on), "the call");
    if (good && needs_kernel(call, wanted))
        good = suite_ran_on_device(self, before, out);
    if (good)
        good = check_results(self, call, wanted, &on, out) &&
               sample_call_check_operands(call, &on, false, out);
    sample_call_done(&on);
    return good;
}

static void release_results(prepared *on)
{
    for (size_t i = SAMPLE_RESULTS; i-- > 0;)
        core_value_release(&on->results[i]);
    memset(on->results, 0, sizeof on->results);
    on->nflat = 0;
}

bool operators_check_again(suite *self, const sample_call *call,
                           const reference *wanted, outcome *out)
{
    prepared on;
    bool good = expect_ok(out,
                          sample_call_prepare(call, self->device, call->dtype,
                                              ARRANGED_ROWS, &on),
                          "making the operands");

    for (int64_t turned = 1; good && turned >= 0; turned--) {
        for (uint32_t k = 0; good && k < call->noperands; k++)
            if (on.tensors[k] && call->operands[k].numel > 0 &&
                strchr("tup", call->operands[k].kind))
                good = expect_ok(out, sample_call_write(call, &on, k, turned),
                                 "writing an operand");
        release_results(&on);
        if (good)
            good = expect_ok(out, sample_call_run(call, &on), "the call");
    }
    good = good && check_results(self, call, wanted, &on, out);
    sample_call_done(&on);
    return good;
}

/* ---------------------------------------------------------- out variants -- */

/* Tests whether the schema is that of `plain`, except for the name and one more
 * argument, the only one that is written. */
static bool is_out_schema(const char *schema, const char *plain)
{
    const char *from = strchr(plain, '('), *to = strstr(plain, ") ->");
    const char *at = strchr(schema, '('), *end = strstr(schema, ") ->");
    size_t size = (size_t)(to - from);

    if (strncmp(at, from, size) != 0)
        return false;
    at += size;
    if (strncmp(at, ", *", 3) == 0)
        at += 3;
    return strncmp(at, ", Tensor(a!) ", 13) == 0 &&
           memchr(at + 1, ',', (size_t)(end - at) - 1) == NULL;
}

/* The number of arguments of a schema. */
static uint32_t count_arguments(const char *schema)
{
    const char *at = strchr(schema, '(') + 1, *end = strstr(schema, ") ->");
    uint32_t count = at < end;
    int depth = 0;

    for (; at < end; at++) {
        depth += (*at == '[' || *at == '(') - (*at == ']' || *at == ')');
        if (depth == 0 && *at == ',')
            count += strncmp(at, ", *,", 4) != 0;
    }
    return count;
}

/* "clamp.Tensor" has "clamp.Tensor_out", "add.Tensor" has "add.out",
 * "tanh_backward" has "tanh_backward.grad_input". */
static core_operator *out_variant(const sample_call *call, uint32_t *out_nargs)
{
    static const core_operator *last; /* searching takes a while */
    static core_operator *found;
    const char *name = core_op_name(call->op);
    size_t base = strcspn(name, ".");
    core_operator *op;

    *out_nargs = count_arguments(core_op_schema(call->op)) + 1;
    if (last == call->op)
        return found;
    last = call->op;
    found = NULL;
    for (uint32_t i = 0; !found && (op = core_op_at(i)) != NULL; i++) {
        const char *other = core_op_name(op);

        if (strncmp(other, name, base) == 0 && other[base] == '.' &&
            is_out_schema(core_op_schema(op), core_op_schema(call->op)))
            found = op;
    }
    return found;
}

/* Allocates memory filled with the pattern and a window in its middle, whose
 * elements are `gap` apart with the dimensions in reverse order; row-major if
 * gap is 1. */
static core_status make_window(suite *self, const reference *wanted,
                               int64_t guard, int64_t gap,
                               core_tensor **out_all, core_tensor **out_window)
{
    core_dtype dtype = wanted->dtypes[0];
    int64_t capacity = wanted->numel[0] * gap + guard + OPERATORS_GUARD,
            step = gap;
    size_t bytes = (size_t)capacity * core_dtype_size(dtype);
    int64_t strides[8];
    core_value args[4], result = {0};
    core_operator *op;
    char *poison = malloc(bytes);
    core_status status;

    if (!poison)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    memset(poison, OPERATORS_POISON, bytes);
    if (dtype == CORE_BOOL) /* a valid bool */
        memset(poison, 1, bytes);
    status = core_tensor_from_data(poison, dtype, &capacity, 1, self->device,
                                   out_all);
    free(poison);
    CORE_TRY(status);
    for (uint32_t i = 0; i < wanted->ndim[0]; i++) {
        uint32_t d = gap > 1 ? i : wanted->ndim[0] - 1 - i;

        strides[d] = step;
        step *= wanted->sizes[0][d] ? wanted->sizes[0][d] : 1;
    }
    args[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = *out_all}};
    args[1] = (core_value){
        CORE_VALUE_INT_LIST, wanted->ndim[0], {.ints = wanted->sizes[0]}};
    args[2] =
        (core_value){CORE_VALUE_INT_LIST, wanted->ndim[0], {.ints = strides}};
    args[3] = core_int(guard);
    CORE_TRY(core_op_find("as_strided", &op));
    CORE_TRY(core_op_call(op, args, 4, &result, 1));
    *out_window = result.u.tensor;
    return CORE_OK;
}

/* Tests whether an element of the memory, counted from the beginning of the
 * window, belongs to it, and brings those that do into row-major order. */
static bool unroll(const reference *wanted, int64_t gap, int64_t at,
                   size_t size, const unsigned char *from, unsigned char *rows)
{
    int64_t left = at, row = 0, step[8];

    if (left < 0 || left >= wanted->numel[0] * gap || left % gap != 0)
        return false;
    left /= gap;
    step[wanted->ndim[0] > 0 ? wanted->ndim[0] - 1 : 0] = 1;
    for (uint32_t d = wanted->ndim[0]; d-- > 1;)
        step[d - 1] = step[d] * wanted->sizes[0][d];
    if (gap == 1)
        row = left;
    for (uint32_t d = 0; gap > 1 && d < wanted->ndim[0]; d++) {
        row += left % wanted->sizes[0][d] * step[d];
        left /= wanted->sizes[0][d];
    }
    memcpy(rows + (size_t)row * size, from, size);
    return true;
}

static bool check_window(suite *self, const sample_call *call,
                         const reference *wanted, int64_t gap, core_tensor *all,
                         outcome *out)
{
    size_t size = core_dtype_size(wanted->dtypes[0]);
    int64_t capacity = core_tensor_numel(all);
    int64_t guard = OPERATORS_GUARD + call->shift;
    unsigned char poison =
        wanted->dtypes[0] == CORE_BOOL ? 1 : OPERATORS_POISON;
    unsigned char *data = malloc((size_t)capacity * size);
    unsigned char *rows = malloc((size_t)wanted->numel[0] * size + 1);
    bool good = false;

    if (!data || !rows) {
        harness_error(out, "no memory");
        goto done;
    }
    if (!expect_ok(out, suite_read(all, data, (size_t)capacity * size),
                   "reading a result"))
        goto done;
    for (int64_t at = 0; at < capacity; at++) {
        const unsigned char *one = data + (size_t)at * size;

        if (unroll(wanted, gap, at - guard, size, one, rows))
            continue;
        for (size_t i = 0; i < size; i++)
            if (!expect(out, one[i] == poison,
                        "the kernel writes outside its window, which has %lld "
                        "elements %lld apart: at %lld from its beginning",
                        (long long)wanted->numel[0], (long long)gap,
                        (long long)(at - guard)))
                goto done;
    }
    good = check_bytes(self, call, wanted, 0, (const char *)rows, out);
done:
    free(rows);
    free(data);
    return good;
}

bool operators_has_out(const sample_call *call, const reference *wanted)
{
    uint32_t nargs;

    return wanted->nresults == 1 && out_variant(call, &nargs) &&
           nargs > call->count && nargs <= SAMPLE_ARGUMENTS;
}

bool operators_check_out(suite *self, const sample_call *call,
                         const reference *wanted, int64_t gap, outcome *out)
{
    core_tensor *all = NULL, *window = NULL;
    uint32_t nargs = 0;
    core_operator *op = out_variant(call, &nargs);
    prepared on = {.nargs = 0};
    core_value result = {0};
    bool good = true;

    if (!op || wanted->nresults != 1 || nargs <= call->count ||
        nargs > SAMPLE_ARGUMENTS || oracle_random(core_op_name(call->op)))
        return true;
    good = expect_ok(out,
                     sample_call_prepare(call, self->device, call->dtype,
                                         ARRANGED_ROWS, &on),
                     "making the operands") &&
           expect_ok(out,
                     make_window(self, wanted, OPERATORS_GUARD + call->shift,
                                 gap, &all, &window),
                     "allocating a window for the result");
    if (good) {
        /* Arguments that the sample leaves out are NONE, which selects the
         * default. */
        on.args[nargs - 1] =
            (core_value){CORE_VALUE_TENSOR, 0, {.tensor = window}};
        good = expect_ok(out, suite_op_call(op, on.args, nargs, &result, 1),
                         core_op_name(op)) &&
               check_window(self, call, wanted, gap, all, out) &&
               sample_call_check_operands(call, &on, false, out);
    }
    core_value_release(&result);
    sample_call_done(&on);
    core_tensor_release(window);
    core_tensor_release(all);
    return good;
}
