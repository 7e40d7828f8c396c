/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "number_calls.h"

#include "claims.h"
#include "element_value.h"

#include <stdlib.h>

enum { RESULTS = 4 };

bool number_calls_begin(number_calls *c, suite *self, outcome *out)
{
    *c = (number_calls){.self = self, .out = out, .dtype = CORE_F32};
    return suite_device(self, out) &&
           expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                     "turning the fallback off");
}

core_tensor *number_calls_make(number_calls *c, const int64_t *sizes,
                               uint32_t ndim, const double *values)
{
    size_t count = 1, each = core_dtype_size(c->dtype);
    core_tensor *made = NULL;
    unsigned char *bytes;

    for (uint32_t d = 0; d < ndim; d++)
        count *= (size_t)sizes[d];
    bytes = malloc(count * each + 1);
    if (!bytes) {
        harness_error(c->out, "no memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        element_store(c->dtype, values[i], bytes + i * each);
    expect_ok(c->out,
              core_tensor_from_data(bytes, c->dtype, sizes, ndim,
                                    c->self->device, &made),
              "making an operand");
    free(bytes);
    return made;
}

static double *read_numbers(number_calls *c, core_tensor *from,
                            int64_t *out_count)
{
    core_dtype dtype = core_tensor_dtype(from);
    size_t each = core_dtype_size(dtype);
    double *values;

    *out_count = core_tensor_numel(from);
    values = calloc((size_t)*out_count + 1, sizeof *values);
    if (!values) {
        harness_error(c->out, "no memory");
        return NULL;
    }
    if (!expect_ok(c->out, suite_read(from, values, (size_t)*out_count * each),
                   "reading a result")) {
        free(values);
        return NULL;
    }
    /* From the last on: values are at least as wide as elements. */
    for (int64_t i = *out_count; i-- > 0;)
        values[i] = element_load(dtype, (const unsigned char *)values +
                                            (size_t)i * each);
    return values;
}

double *number_calls_read(number_calls *c, const char *name,
                          const core_value *args, uint32_t nargs,
                          uint32_t which, int64_t *out_count)
{
    core_value results[RESULTS] = {{0}};
    core_operator *op;
    core_status status = core_op_find(name, &op);
    double *values = NULL;

    if (status == CORE_OK)
        status = suite_op_call(op, args, nargs, results, RESULTS);
    if (call_is_left(c->self, status, name)) {
        core_error_clear();
        skipped_calls_add(&c->left, name, c->dtype);
    } else if (expect_ok(c->out, status, name)) {
        c->ran++;
        values = read_numbers(c, results[which].u.tensor, out_count);
    }
    for (int i = 0; i < RESULTS; i++)
        core_value_release(&results[i]);
    return values;
}

void number_calls_end(number_calls *c)
{
    skipped_calls_report(&c->left, c->ran, c->out);
}
