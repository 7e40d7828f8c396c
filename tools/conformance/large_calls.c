/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "large_calls.h"

#include "claims.h"

#include <stdio.h>
#include <string.h>

enum {
    MANY = 65536,
    ROW = 4133,     /* more than a work group has threads */
    LARGE = 131103, /* more than a launch of 2^16 threads, or twice as many */
    COLUMNS = 20003,
};

const sample *large_sample_at(size_t index)
{
    return index < large_sample_count ? &large_sample_table[index] : NULL;
}

/* Long rows and many of them; many columns. */
static uint32_t rows_and_columns(const sample *from, int64_t first,
                                 int64_t last, large_call *out)
{
    uint32_t count = 0;
    resized rows;

    if (sample_resize(from, last, ROW, &rows) &&
        sample_numel(&rows.sample) <= LARGE &&
        sample_enlarge(&rows.sample, first, LARGE, &out[count].call))
        count++;
    if (sample_enlarge(from, last, LARGE, &out[count].call)) {
        out[count].otherwise = count > 0;
        count++;
    }
    if (!sample_enlarge(from, first, COLUMNS, &out[count].call))
        return count;
    rows = out[count].call;
    rows.sample.words = rows.words;
    out[count++].columns = true;
    if (sample_other_dim(&rows.sample, 0, &out[count].call))
        out[count++].columns = true;
    return count;
}

uint32_t large_calls(const sample *from, large_call out[LARGE_CALLS])
{
    int64_t first, last;

    memset(out, 0, LARGE_CALLS * sizeof *out);
    if (!sample_sizes(from, &first, &last))
        return 0;
    if (first == last)
        return sample_enlarge(from, last, LARGE, &out[0].call);
    return rows_and_columns(from, first, last, out);
}

bool large_call_has_many(const sample_call *call, const reference *shapes)
{
    int64_t result = 0, operand = 0;

    for (uint32_t r = 0; r < shapes->nresults; r++)
        if (shapes->numel[r] > result)
            result = shapes->numel[r];
    for (uint32_t k = 0; k < call->noperands; k++)
        if (call->operands[k].numel > operand)
            operand = call->operands[k].numel;
    return result > MANY || (result <= 1 && operand > MANY);
}

/* ------------------------------------------------------------ which lack -- */

typedef enum extent { EXTENT_NONE, EXTENT_FEW, EXTENT_MANY } extent;

/* Of a call that is claimed; none: it is not, or is not valid. */
static extent extent_of(const suite *self, const sample *one, core_dtype dtype)
{
    static sample_call call;
    reference shapes = {0};
    extent found = EXTENT_NONE;
    core_status status;

    if (!sample_call_parse_shapes(&call, self, one, dtype))
        return EXTENT_NONE;
    status = reference_shapes(&call, &shapes);
    if ((status == CORE_OK || status == CORE_ERROR_DATA_DEPENDENT) &&
        claim_of(self, &call, &shapes) != CLAIM_NONE)
        found = large_call_has_many(&call, &shapes) ? EXTENT_MANY : EXTENT_FEW;
    reference_free(&shapes);
    core_error_clear();
    return found;
}

/* Of the largest call that follows from a sample. */
static extent largest(const suite *self, const sample *from, core_dtype dtype)
{
    large_call calls[LARGE_CALLS];
    uint32_t count = large_calls(from, calls);
    extent most = EXTENT_NONE;

    for (uint32_t i = 0; i < count && most != EXTENT_MANY; i++) {
        extent one = extent_of(self, &calls[i].call.sample, dtype);

        most = one > most ? one : most;
    }
    return most;
}

/* Of the calls that follow from the first sample of which there are any. */
static extent first_enlarged(const suite *self, const char *op,
                             core_dtype dtype)
{
    extent found = EXTENT_NONE;
    const sample *at;

    for (size_t i = 0; found == EXTENT_NONE && (at = sample_at(i)); i++)
        if (strcmp(at->op, op) == 0)
            found = largest(self, at, dtype);
    return found;
}

/* Tests whether calls of an operator use these kernels. */
static bool uses(const suite *self, const sample *of, const char *kernel)
{
    return strcmp(of->op, kernel) == 0 ||
           (strcmp(kernel_name_of(of->op), kernel) == 0 &&
            strcmp(claimed_kernel(self, of->op), kernel) == 0);
}

static bool has_large_sample(const suite *self, const char *op,
                             core_dtype dtype)
{
    const sample *at;

    for (size_t i = 0; (at = large_sample_at(i)); i++)
        if (uses(self, at, op) && extent_of(self, at, dtype) == EXTENT_MANY)
            return true;
    return false;
}

static bool has_large_call(const suite *self, const char *op)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_I64, CORE_BOOL,
                                        CORE_F64, CORE_F16, CORE_BF16,
                                        CORE_I32, CORE_U8};

    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        if (has_large_sample(self, op, dtypes[d]) ||
            first_enlarged(self, op, dtypes[d]) == EXTENT_MANY)
            return true;
    return false;
}

/* Operators without samples that tests of ops/rules call with many elements. */
static bool rule_has_large_calls(const char *op)
{
    return fused_steps_has(op) || stochastic_rounding_has(op) ||
           distributions_have(op);
}

void large_calls_list_missing(const suite *self, char *text, size_t capacity)
{
    claimed_operators walk = {0};
    char name[TEST_NAME];
    size_t used = 0;

    *text = 0;
    while (claimed_operators_next(self, &walk, name, sizeof name)) {
        if (rule_has_large_calls(name) || has_large_call(self, name))
            continue;
        if (used + strlen(name) + 8 > capacity) {
            snprintf(text + used, capacity - used, "…");
            return;
        }
        used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                 used ? ", " : "", name);
    }
}
