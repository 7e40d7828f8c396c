/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the promise of row_block of core.codegen for kernels of operators:
 * a row has the same bits in a call with fewer rows. */

#include "operators.h"
#include "suite.h"

#include <libcore/codegen.h>
#include <libcore/plugins.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 7 };

typedef struct rows {
    suite *self;
    outcome *out;
    uint32_t row_block;
    uint32_t ran;
    int64_t size;            /* of a row */
    core_tensor *all, *more; /* [ROWS, size] */
} rows;

/* The operators that codegen.h names, on [n, size].  more: a second operand, for
 * the gradients. */
typedef core_status row_call(const rows *r, core_tensor *of, core_tensor *more,
                             core_tensor **out);

static core_value ints(const int64_t *list, uint32_t count)
{
    return (core_value){CORE_VALUE_INT_LIST, count, {.ints = list}};
}

static core_value integer(int64_t i)
{
    return (core_value){CORE_VALUE_INT, 0, {.i = i}};
}

static core_value flag(bool set)
{
    return (core_value){CORE_VALUE_BOOL, 0, {.i = set}};
}

static core_status one_operand(const char *name, core_tensor *of,
                               core_tensor **out)
{
    core_value args[1] = {suite_tensor_value(of)};

    return suite_call(name, args, 1, out);
}

static core_status call_exp(const rows *r, core_tensor *of, core_tensor *more,
                            core_tensor **out)
{
    (void)r;
    (void)more;
    return one_operand("exp", of, out);
}

static core_status call_tanh(const rows *r, core_tensor *of, core_tensor *more,
                             core_tensor **out)
{
    (void)r;
    (void)more;
    return one_operand("tanh", of, out);
}

static core_status reduced(const char *name, core_tensor *of, core_tensor **out)
{
    static const int64_t last = 1;
    core_value args[3] = {suite_tensor_value(of), ints(&last, 1), flag(false)};

    return suite_call(name, args, 3, out);
}

static core_status call_sum(const rows *r, core_tensor *of, core_tensor *more,
                            core_tensor **out)
{
    (void)r;
    (void)more;
    return reduced("sum.dim_IntList", of, out);
}

static core_status call_mean(const rows *r, core_tensor *of, core_tensor *more,
                             core_tensor **out)
{
    (void)r;
    (void)more;
    return reduced("mean.dim", of, out);
}

static core_status softmax(const char *name, core_tensor *of, core_tensor **out)
{
    core_value args[3] = {suite_tensor_value(of), integer(1), flag(false)};

    return suite_call(name, args, 3, out);
}

static core_status call_softmax(const rows *r, core_tensor *of,
                                core_tensor *more, core_tensor **out)
{
    (void)r;
    (void)more;
    return softmax("_softmax", of, out);
}

static core_status call_log_softmax(const rows *r, core_tensor *of,
                                    core_tensor *more, core_tensor **out)
{
    (void)r;
    (void)more;
    return softmax("_log_softmax", of, out);
}

static core_status gradient(const char *name, core_tensor *of,
                            core_tensor *more, core_tensor **out)
{
    core_value args[4] = {suite_tensor_value(more),
                          suite_tensor_value(of),
                          integer(1),
                          {CORE_VALUE_DTYPE, 0, {.i = CORE_F32}}};

    return suite_call(name, args, 4, out);
}

static core_status call_softmax_gradient(const rows *r, core_tensor *of,
                                         core_tensor *more, core_tensor **out)
{
    (void)r;
    return gradient("_softmax_backward_data", of, more, out);
}

static core_status call_log_softmax_gradient(const rows *r, core_tensor *of,
                                             core_tensor *more,
                                             core_tensor **out)
{
    (void)r;
    return gradient("_log_softmax_backward_data", of, more, out);
}

static core_status call_layer_norm(const rows *r, core_tensor *of,
                                   core_tensor *more, core_tensor **out)
{
    core_value args[5] = {suite_tensor_value(of),
                          ints(&r->size, 1),
                          {CORE_VALUE_NONE, 0, {0}},
                          {CORE_VALUE_NONE, 0, {0}},
                          {CORE_VALUE_FLOAT, 0, {.f = 1e-5}}};
    core_value results[3] = {{0}};
    core_operator *op;
    core_status status = core_op_find("native_layer_norm", &op);

    (void)more;
    *out = NULL;
    if (status == CORE_OK)
        status = core_op_call(op, args, 5, results, 3);
    if (status != CORE_OK)
        return status;
    *out = results[0].u.tensor;
    core_tensor_release(results[1].u.tensor);
    core_tensor_release(results[2].u.tensor);
    return CORE_OK;
}

static const struct {
    const char *name;
    row_call *call;
} calls[] = {
    {"exp", call_exp},
    {"tanh", call_tanh},
    {"sum.dim_IntList", call_sum},
    {"mean.dim", call_mean},
    {"_softmax", call_softmax},
    {"_log_softmax", call_log_softmax},
    {"_softmax_backward_data", call_softmax_gradient},
    {"_log_softmax_backward_data", call_log_softmax_gradient},
    {"native_layer_norm", call_layer_norm},
};

/* Rows from `first` on. */
static core_status narrow(core_tensor *of, int64_t first, int64_t count,
                          core_tensor **out)
{
    core_value args[4] = {suite_tensor_value(of), integer(0), integer(first),
                          integer(count)};

    return suite_call("narrow", args, 4, out);
}

static core_status call_part(const rows *r, row_call *call, int64_t first,
                             int64_t count, core_tensor **out)
{
    core_tensor *of = NULL, *more = NULL;
    core_status status = narrow(r->all, first, count, &of);

    *out = NULL;
    if (status == CORE_OK)
        status = narrow(r->more, first, count, &more);
    if (status == CORE_OK)
        status = call(r, of, more, out);
    core_tensor_release(more);
    core_tensor_release(of);
    return status;
}

/* whole: the f32 of the result of all rows. */
static bool compare_part(rows *r, const char *name, row_call *call,
                         int64_t first, int64_t count, const float *whole,
                         int64_t each)
{
    size_t bytes = (size_t)(count * each) * sizeof(float);
    core_tensor *part = NULL;
    float *got = malloc(bytes);
    bool good = got != NULL;

    if (!good)
        harness_error(r->out, "no memory");
    good = good &&
           expect_ok(r->out, call_part(r, call, first, count, &part), name) &&
           expect_ok(r->out, core_tensor_read(part, got, bytes),
                     "reading a result");
    for (int64_t i = 0; good && i < count * each; i++)
        good = expect(
            r->out, memcmp(&got[i], &whole[first * each + i], sizeof *got) == 0,
            "row_block of core.codegen is %u, so a row must have the "
            "same bits in a call with fewer rows: %s of rows of %lld "
            "elements: element %lld of row %lld is %.9g in a call of "
            "%d rows, and %.9g in one of %lld",
            r->row_block, name, (long long)r->size, (long long)(i % each),
            (long long)(first + i / each), (double)whole[first * each + i],
            ROWS, (double)got[i], (long long)count);
    core_tensor_release(part);
    free(got);
    return good;
}

static bool check_operator(rows *r, const char *name, row_call *call)
{
    core_tensor *result = NULL;
    core_status status = call_part(r, call, 0, ROWS, &result);
    float *whole = NULL;
    int64_t numel;
    bool good;

    if (status == CORE_ERROR_NO_KERNEL) {
        core_error_clear();
        return true;
    }
    if (!expect_ok(r->out, status, name))
        return false;
    numel = core_tensor_numel(result);
    whole = malloc((size_t)numel * sizeof *whole);
    good = whole && expect_ok(r->out,
                              core_tensor_read(result, whole,
                                               (size_t)numel * sizeof *whole),
                              "reading a result");
    r->ran += good;
    for (int64_t i = 0; good && i < ROWS; i++)
        good = compare_part(r, name, call, i, 1, whole, numel / ROWS);
    good = good && compare_part(r, name, call, 2, 3, whole, numel / ROWS);
    free(whole);
    core_tensor_release(result);
    return good;
}

static bool make_operands(rows *r)
{
    int64_t shape[2] = {ROWS, r->size}, numel = ROWS * r->size;
    float *numbers = malloc((size_t)numel * sizeof *numbers);
    bool good;

    if (!numbers) {
        harness_error(r->out, "no memory");
        return false;
    }
    for (int64_t i = 0; i < numel; i++)
        numbers[i] = (float)((uint64_t)i * 2654435761u % 1000003) / 60000 - 8;
    good = expect_ok(r->out,
                     core_tensor_from_data(numbers, CORE_F32, shape, 2,
                                           r->self->device, &r->all),
                     "making an operand");
    for (int64_t i = 0; i < numel; i++)
        numbers[i] = (float)((uint64_t)i * 40503u % 65521) / 30000 - 1;
    good = good && expect_ok(r->out,
                             core_tensor_from_data(numbers, CORE_F32, shape, 2,
                                                   r->self->device, &r->more),
                             "making an operand");
    free(numbers);
    return good;
}

static void rows_are_independent(suite *self, outcome *out, const test *one)
{
    static const int64_t sizes[] = {CORE_ROW_BLOCK_REDUCED_LEAST, 100, 1500,
                                    20000};
    const core_codegen_interface *table;
    const void *found = NULL;
    rows r = {.self = self, .out = out};

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (core_device_interface(self->device, "core.codegen", 1, &found) !=
        CORE_OK)
        core_error_clear();
    table = found;
    r.row_block = table ? table->row_block : 0;
    if (r.row_block == 0) {
        not_supported(out, table ? "row_block of its core.codegen is 0"
                                 : "it has no core.codegen");
        return;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        r.size = sizes[i];
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
            if (out->verdict == VERDICT_PASS && (r.all || make_operands(&r)))
                check_operator(&r, calls[k].name, calls[k].call);
        core_tensor_release(r.more);
        core_tensor_release(r.all);
        r.all = r.more = NULL;
    }
    if (r.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "none of the operators of the promise is claimed");
}

bool suite_add_rows(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/rows-are-independent", rows_are_independent, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
