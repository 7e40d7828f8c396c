/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level training: the kernels of the plugin's own operators.  The suite has no
 * reference for them, but what they compute from small row-major operands must
 * not depend on layouts, on the memory of the results or on the number of
 * elements. */

#include "operators.h"
#include "tests_custom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 11, SLICE = 4, MANY = 131103, RESULT_MOST = 1 << 24 };

static bool is_of(const core_kernel *kernel, const core_operator *op)
{
    const char *name = core_op_name(op);

    return kernel->name.size == strlen(name) &&
           memcmp(kernel->name.data, name, kernel->name.size) == 0;
}

/* Tests whether the operator has kernels, and whether they may refuse calls. */
static bool has_kernel(const suite *self, const core_operator *op,
                       bool *out_refuses)
{
    const core_kernel *kernel;
    bool has = false;

    *out_refuses = false;
    for (uint32_t i = 0; core_kernel_at(self->type, i, &kernel) == CORE_OK;
         i++) {
        if (!is_of(kernel, op))
            continue;
        has = true;
        *out_refuses |= kernel->supports != NULL;
    }
    return has;
}

/* The call as a sample with tensors of these sizes; false: too long. */
static bool write_words(const own_call *call, const char *sizes, char *words,
                        size_t capacity)
{
    size_t used = 0;

    words[0] = 0;
    for (uint32_t i = 0; i < call->nargs && used < capacity; i++) {
        const core_value *value = &call->args[i];
        const char *space = i ? " " : "";
        int more;

        if (value->tag == CORE_VALUE_TENSOR)
            more =
                snprintf(words + used, capacity - used, "%st:%s", space, sizes);
        else if (value->tag == CORE_VALUE_FLOAT)
            more = snprintf(words + used, capacity - used, "%sf:%g", space,
                            value->u.f);
        else if (value->tag == CORE_VALUE_NONE)
            more = snprintf(words + used, capacity - used, "%sn", space);
        else
            more = snprintf(words + used, capacity - used, "%s%c:%d", space,
                            value->tag == CORE_VALUE_BOOL ? 'b' : 'i',
                            (int)value->u.i);
        used += (size_t)more;
    }
    return used < capacity;
}

/* ---------------------------------------------------------------- checks -- */

/* The operator that is checked. */
typedef struct own_kernel {
    suite *self;
    const own_call *call;
    outcome *out;
    bool refuses;
    char words[400];
} own_kernel;

/* Evaluates a check: a call that `supports` refuses is not claimed.  Puts
 * operator, dtype, call and `what` before the message of a failure. */
static bool passed(own_kernel *k, const sample_call *call, bool good,
                   const char *what)
{
    char text[TEST_DETAIL];

    if (good || k->out->verdict != VERDICT_FAIL)
        return good;
    if (k->refuses && core_error_code() == CORE_ERROR_NO_KERNEL) {
        k->out->verdict = VERDICT_PASS;
        k->out->detail[0] = 0;
        return true;
    }
    snprintf(text, sizeof text, "%.100s, %s: %.150s: %s%.250s",
             core_op_name(call->op), core_dtype_name(call->dtype), k->words,
             what, k->out->detail);
    snprintf(k->out->detail, sizeof k->out->detail, "%s", text);
    return false;
}

static bool check_layouts(own_kernel *k, const sample_call *call,
                          const reference *wanted)
{
    bool good =
        passed(k, call,
               operators_check(k->self, call, wanted, ARRANGED_STRIDED, k->out),
               "all operands transposed with gaps: ");

    for (uint32_t i = 0; good && i < call->noperands; i++)
        for (uint32_t at = 1; good && at < LAYOUT_ONE_ROW; at++) {
            char what[100];

            if (!sample_call_allows(call, i, (layout)at))
                continue;
            core_error_clear();
            snprintf(what, sizeof what, "operand %u %s: ", i, layout_names[at]);
            good = passed(
                k, call,
                operators_check(k->self, call, wanted, ARRANGED(at, i), k->out),
                what);
        }
    return good;
}

/* The results of the same call again, after one with other values, in place of
 * the first operand, and with the memory behind them. */
static bool check_results(own_kernel *k, const sample_call *call,
                          const reference *wanted)
{
    core_error_clear();
    return passed(k, call,
                  operators_check(k->self, call, wanted, ARRANGED_ROWS, k->out),
                  "called again: ") &&
           passed(k, call, operators_check_again(k->self, call, wanted, k->out),
                  "with operands that changed since the last call: ") &&
           passed(k, call,
                  operators_check_in_place(k->self, call, wanted, ARRANGED_ROWS,
                                           k->out),
                  "in place: ") &&
           passed(k, call,
                  operators_check_in_place(k->self, call, wanted,
                                           ARRANGED(LAYOUT_SPACED, 0), k->out),
                  "in place, with gaps: ") &&
           passed(k, call, operators_check_tails(k->self, call, wanted, k->out),
                  "");
}

/* ----------------------------------------------------------- many elements -- */

/* A reference whose results have `rows` rows, those of wanted from row `from`
 * on, again and again. */
static bool repeat_rows(const reference *wanted, int64_t from, int64_t rows,
                        reference *out)
{
    *out = *wanted;
    memset(out->values, 0, sizeof out->values);
    for (uint32_t r = 0; r < wanted->nresults; r++) {
        int64_t size = wanted->numel[r] / ROWS;

        if (wanted->ndim[r] == 0 || wanted->sizes[r][0] != ROWS ||
            size * rows > RESULT_MOST)
            return false;
        out->sizes[r][0] = rows;
        out->numel[r] = size * rows;
        out->values[r] =
            malloc(((size_t)out->numel[r] + 1) * sizeof *out->values[r]);
        for (int64_t i = 0; out->values[r] && i < out->numel[r]; i++)
            out->values[r][i] =
                wanted->values[r][(from * size + i) % wanted->numel[r]];
        if (!out->values[r])
            return false;
    }
    return wanted->nresults > 0;
}

/* The same of the call. */
static bool repeat_call(own_kernel *k, const sample_call *whole,
                        const char *columns, int64_t from, int64_t rows,
                        sample_call *out)
{
    sample one = {core_op_name(whole->op), k->words, .5, 1.5};
    char sizes[60];

    snprintf(sizes, sizeof sizes, "%lld%s", (long long)rows, columns);
    if (!write_words(k->call, sizes, k->words, sizeof k->words) ||
        !sample_call_parse(out, k->self, &one, whole->dtype))
        return false;
    for (uint32_t i = 0; i < out->noperands; i++) {
        const operand *of = &whole->operands[i];
        operand *to = &out->operands[i];

        for (int64_t at = 0; at < to->numel; at++)
            to->values[at] =
                of->values[(from * (of->numel / ROWS) + at) % of->numel];
    }
    return true;
}

/* Tests whether a row of the results depends on that of the operands alone. */
static bool is_by_rows(own_kernel *k, const sample_call *whole,
                       const reference *wanted, const char *columns,
                       sample_call *part)
{
    static const int64_t begins[] = {0, SLICE};
    bool good = true;

    for (int i = 0; good && i < 2; i++) {
        outcome unused = {.error = -1, .measured = -1};
        reference rows;
        int64_t count = i ? ROWS - SLICE : SLICE;

        good = repeat_rows(wanted, begins[i], count, &rows) &&
               repeat_call(k, whole, columns, begins[i], count, part) &&
               operators_check(k->self, part, &rows, ARRANGED_ROWS, &unused);
        reference_free(&rows);
    }
    core_error_clear();
    return good;
}

/* Numbers of rows for which kernels have other loops. */
static bool check_multiples(own_kernel *k, const sample_call *whole,
                            const reference *wanted, const char *columns,
                            sample_call *call)
{
    static const int64_t rows[] = {4, 8, 16, 32, 64, 256, 1024, 4096};
    bool good = true;

    for (size_t i = 0; good && i < sizeof rows / sizeof *rows; i++) {
        reference repeated;

        if (repeat_rows(wanted, 0, rows[i], &repeated) &&
            repeat_call(k, whole, columns, 0, rows[i], call))
            good = passed(k, call,
                          operators_check(k->self, call, &repeated,
                                          ARRANGED_ROWS, k->out),
                          "");
        reference_free(&repeated);
    }
    return good;
}

/* The rows of a small call, also more than 100,000 elements of them. */
static bool check_many(own_kernel *k, const sample_call *whole,
                       const reference *wanted, const char *columns)
{
    static sample_call many;
    int64_t rows =
        whole->noperands == 0 ? 0 : MANY / (whole->operands[0].numel / ROWS);
    reference large;
    bool good = true;

    if (rows == 0 || !is_by_rows(k, whole, wanted, columns, &many))
        return true;
    good = check_multiples(k, whole, wanted, columns, &many);
    if (!good || k->self->quick)
        return good;
    if (repeat_rows(wanted, 0, rows, &large) &&
        repeat_call(k, whole, columns, 0, rows, &many))
        good = passed(k, &many,
                      operators_check(k->self, &many, &large, ARRANGED_ROWS,
                                      k->out),
                      "") &&
               passed(k, &many,
                      operators_check(k->self, &many, &large, ARRANGED_STRIDED,
                                      k->out),
                      "all operands transposed with gaps: ") &&
               check_results(k, &many, &large);
    reference_free(&large);
    return good;
}

/* -------------------------------------------------------------- the test -- */

/* Returns whether the device accepts the call. */
static bool check_sizes(own_kernel *k, core_dtype dtype, const char *first,
                        const char *columns)
{
    static sample_call call;
    sample one = {core_op_name(k->call->op), k->words, .5, 1.5};
    reference wanted;
    char sizes[60];
    bool ran;

    snprintf(sizes, sizeof sizes, "%s%s", first, columns);
    if (!write_words(k->call, sizes, k->words, sizeof k->words) ||
        !sample_call_parse(&call, k->self, &one, dtype))
        return false;
    ran = reference_observe(&call, k->self->device, &wanted) == CORE_OK;
    core_error_clear();
    if (ran && check_results(k, &call, &wanted) &&
        check_layouts(k, &call, &wanted) && atoi(first) == ROWS)
        check_many(k, &call, &wanted, columns);
    reference_free(&wanted);
    return ran;
}

static bool layouts_agree(suite *self, outcome *out, own_call *call,
                          bool gradient)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32};
    static const struct {
        const char *first, *columns;
    } sizes[] = {{"11", ""}, {"11", ",3"}, {"4", ",4"}, {"", ""}};
    own_kernel k = {.self = self, .call = call, .out = out};
    bool ran = false;

    (void)gradient;
    if (!has_kernel(self, call->op, &k.refuses))
        return false;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if (out->verdict == VERDICT_PASS)
                ran |= check_sizes(&k, dtypes[d], sizes[i].first,
                                   sizes[i].columns);
    return ran;
}

void own_layouts_agree(suite *self, outcome *out, const test *one)
{
    (void)one;
    own_operators_check(self, out, layouts_agree, 0);
}
