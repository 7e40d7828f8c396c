/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls whose result is an operand, and writes past the end of results. */

#include "operators.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDED = 512, TAIL_LEAST = 16 };

/* -------------------------------------------------------------- in place -- */

/* "add.Tensor" has "add_.Tensor": the same arguments, of which the first is
 * written. */
static core_operator *in_place_variant(const sample_call *call)
{
    const char *name = core_op_name(call->op), *schema;
    size_t base = strcspn(name, ".");
    core_operator *op;
    char text[128];

    if (base == 0 || name[base - 1] == '_')
        return NULL;
    snprintf(text, sizeof text, "%.*s_%s", (int)base, name, name + base);
    if (core_op_find(text, &op) != CORE_OK) {
        core_error_clear();
        return NULL;
    }
    schema = strchr(core_op_schema(op), '(');
    return schema && strncmp(schema, "(Tensor(a!) self", 16) == 0 ? op : NULL;
}

/* Tests whether the result fits into the first operand. */
static bool fits(core_tensor *operand, const reference *wanted)
{
    if (!operand || core_tensor_dtype(operand) != wanted->dtypes[0] ||
        core_tensor_ndim(operand) != wanted->ndim[0])
        return false;
    for (uint32_t d = 0; d < wanted->ndim[0]; d++)
        if (core_tensor_sizes(operand)[d] != wanted->sizes[0][d])
            return false;
    return true;
}

bool operators_check_in_place(suite *self, const sample_call *call,
                              const reference *wanted, arrangement how,
                              outcome *out)
{
    core_operator *op = in_place_variant(call);
    core_value result = {0};
    core_tensor *first;
    prepared on;
    bool good;

    if (!op || wanted->nresults != 1 || call->first[0] < 0 ||
        call->items[0] >= 0 || oracle_random(core_op_name(call->op)))
        return true;
    good = expect_ok(
        out, sample_call_prepare(call, self->device, call->dtype, how, &on),
        "making the operands");
    first = on.tensors[call->first[0]];
    if (good && fits(first, wanted))
        good = expect_ok(out, core_op_call(op, on.args, on.nargs, &result, 1),
                         core_op_name(op)) &&
               operators_check_result(self, call, wanted, 0, first, out) &&
               sample_call_check_operands(call, &on, true, out);
    core_value_release(&result);
    sample_call_done(&on);
    return good;
}

/* ----------------------------------------------------------------- tails -- */

typedef struct tail {
    size_t bytes; /* of the result */
    size_t block; /* of its block */
    char *data;   /* the contents of the result */
    core_tensor *tensor;
} tail;

static core_status take(suite *self, tail *one, bool poison)
{
    int64_t size = (int64_t)one->block;
    unsigned char *bytes = malloc(one->block);
    core_value args[6] = {{0}}, result = {0};
    core_operator *op;
    core_status status = CORE_ERROR_OUT_OF_MEMORY;

    if (bytes && poison) {
        memset(bytes, OPERATORS_POISON, one->block);
        status = core_tensor_from_data(bytes, CORE_U8, &size, 1, self->device,
                                       &one->tensor);
    } else if (bytes && core_op_find("empty", &op) == CORE_OK) {
        args[0] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &size}};
        args[1] = (core_value){CORE_VALUE_DTYPE, 0, {.i = CORE_U8}};
        args[3] = (core_value){CORE_VALUE_DEVICE, 0, {.device = self->device}};
        status = core_op_call(op, args, 4, &result, 1);
        one->tensor = status == CORE_OK ? result.u.tensor : NULL;
    }
    free(bytes);
    return status;
}

static void release_contents(tail *tails, uint32_t count)
{
    for (uint32_t r = count; r-- > 0;) {
        core_tensor_release(tails[r].tensor);
        tails[r].tensor = NULL;
    }
}

/* Finds the result whose bytes a block begins with: the longest such, since a
 * short one may be the beginning of another. */
static const tail *result_in(const tail *tails, uint32_t count, size_t size,
                             const unsigned char *block)
{
    const tail *found = NULL;

    for (uint32_t k = 0; k < count; k++)
        if (tails[k].block == size &&
            memcmp(block, tails[k].data, tails[k].bytes) == 0 &&
            (!found || tails[k].bytes > found->bytes))
            found = &tails[k];
    return found;
}

/* A block that begins with a result's bytes and then mostly contains the
 * pattern is the one that the result had; any other proves nothing. */
static bool tail_is_whole(const suite *self, const tail *of, uint32_t r,
                          const unsigned char *block, outcome *out)
{
    size_t from = of->bytes + self->properties.tail_padding, changed = 0;
    size_t at = 0;

    if (of->block < from + TAIL_LEAST)
        return true;
    for (size_t i = of->block; i-- > from;)
        if (block[i] != OPERATORS_POISON) {
            changed++;
            at = i;
        }
    return changed > (of->block - from) / 2 ||
           expect(out, changed == 0,
                  "result %u has %zu bytes, and the kernel writes up to byte "
                  "%zu behind it",
                  r, of->bytes, at - of->bytes);
}

static bool check_tails(suite *self, tail *tails, uint32_t count, outcome *out)
{
    bool good = true;

    for (uint32_t r = 0; r < count; r++)
        if (take(self, &tails[r], false) != CORE_OK)
            return true;
    for (uint32_t r = 0; good && r < count; r++) {
        unsigned char *block = malloc(tails[r].block);
        const tail *found = NULL;

        if (block &&
            core_tensor_read(tails[r].tensor, block, tails[r].block) == CORE_OK)
            found = result_in(tails, count, tails[r].block, block);
        if (found)
            good = tail_is_whole(self, found, (uint32_t)(found - tails), block,
                                 out);
        free(block);
    }
    return good;
}

/* Saves the contents of the results and releases them; operands stay. */
static bool keep_results(prepared *on, tail *tails, uint32_t count,
                         outcome *out)
{
    for (uint32_t r = 0; r < count; r++) {
        tails[r].data = malloc(tails[r].bytes + 1);
        if (!tails[r].data) {
            harness_error(out, "no memory");
            return false;
        }
        if (!expect_ok(
                out,
                core_tensor_read(on->flat[r], tails[r].data, tails[r].bytes),
                "reading a result"))
            return false;
    }
    for (size_t i = SAMPLE_RESULTS; i-- > 0;)
        core_value_release(&on->results[i]);
    on->nflat = 0;
    return true;
}

/* The memory comes from libcore's cache, which returns the block that was freed
 * last.  A device with its own allocator may return any block. */
static bool has_cache(const suite *self)
{
    const void *table;

    if (!self->synchronous &&
        core_device_interface(self->device, "core.allocator", 1, &table) ==
            CORE_OK)
        return false;
    core_error_clear();
    return true;
}

bool operators_check_tails(suite *self, const sample_call *call,
                           const reference *wanted, outcome *out)
{
    /* The cache splits blocks in its own steps, whatever the device's
     * granularity. */
    uint64_t step = self->synchronous && self->properties.granularity > ROUNDED
                        ? self->properties.granularity
                        : ROUNDED;
    uint64_t padding = self->properties.tail_padding;
    tail tails[SAMPLE_TENSORS] = {{0}};
    uint32_t count = wanted->nresults;
    prepared on;
    bool good;

    if (count == 0 || oracle_random(core_op_name(call->op)) ||
        strstr(core_op_schema(call->op), "!)") || padding >= step ||
        !has_cache(self))
        return true;
    for (uint32_t r = 0; r < count; r++) {
        tails[r].bytes =
            (size_t)wanted->numel[r] * core_dtype_size(wanted->dtypes[r]);
        tails[r].block =
            (tails[r].bytes + padding + step - 1) / step * step - padding;
        if (tails[r].bytes == 0)
            return true;
    }
    good = expect_ok(out,
                     sample_call_prepare(call, self->device, call->dtype,
                                         ARRANGED_ROWS, &on),
                     "making the operands");
    /* No other blocks of these sizes are left then. */
    core_memory_empty_cache(self->device);
    for (uint32_t r = 0; good && r < count; r++)
        good = expect_ok(out, take(self, &tails[r], true), "allocating memory");
    release_contents(tails, count);
    good = good && expect_ok(out, sample_call_run(call, &on), "the call") &&
           on.nflat >= count && keep_results(&on, tails, count, out) &&
           check_tails(self, tails, count, out);
    release_contents(tails, count);
    for (uint32_t r = 0; r < count; r++)
        free(tails[r].data);
    sample_call_done(&on);
    return good;
}
