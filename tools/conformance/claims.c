/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* memmem */

#include "claims.h"

#include "sample_tokens.h"

#include <string.h>

/* Tests whether an argument is a tensor that is absent, which has a place in a
 * signature all the same. */
static bool is_absent(const sample_call *call, uint32_t argument,
                      const schema_argument *of)
{
    return call->first[argument] < 0 &&
           call->values[argument].tag == CORE_VALUE_NONE &&
           strcmp(of->type, "Tensor?") == 0;
}

/* Stores the dtypes of the tensors in a kernel's order: loop kernels have the
 * results first, others last.  Scalar operands of a loop come last. */
static uint32_t slots(const sample_call *call, const reference *wanted,
                      bool results_first, core_dtype *out)
{
    schema_argument arguments[SCHEMA_ARGUMENTS] = {0};
    uint32_t count = 0;

    schema_read(core_op_schema(call->op), arguments);
    for (uint32_t r = 0; results_first && r < wanted->nresults; r++)
        out[count++] = wanted->dtypes[r];
    for (uint32_t i = 0; i < call->count && count < 2 * SAMPLE_TENSORS; i++) {
        if (call->first[i] >= 0 && call->items[i] != 0)
            out[count++] = call->operands[call->first[i]].dtype;
        else if (is_absent(call, i, &arguments[i]))
            out[count++] = CORE_DTYPE_NONE;
    }
    for (uint32_t r = 0; !results_first && r < wanted->nresults; r++)
        out[count++] = wanted->dtypes[r];
    return count;
}

static bool takes(const core_kernel *kernel, const sample_call *call,
                  const reference *wanted, bool results_first)
{
    core_dtype dtypes[3 * SAMPLE_TENSORS];
    uint32_t count = slots(call, wanted, results_first, dtypes);

    for (uint32_t k = 0; k < count && k < CORE_SIGNATURE_MAX; k++)
        if (kernel->signature[k] && dtypes[k] != CORE_DTYPE_NONE &&
            !(kernel->signature[k] & CORE_DTYPE_MASK(dtypes[k])))
            return false;
    return true;
}

const char *claimed_kernel(const suite *self, const char *op)
{
    const char *other = kernel_name_of(op);
    const core_kernel *kernel;

    if (strcmp(other, op) == 0)
        return op;
    for (uint32_t i = 0; core_kernel_at(self->type, i, &kernel) == CORE_OK; i++)
        if (kernel->name.size == strlen(op) &&
            memcmp(kernel->name.data, op, kernel->name.size) == 0)
            return op;
    return other;
}

claim claim_of(const suite *self, const sample_call *call,
               const reference *wanted)
{
    const char *name = claimed_kernel(self, core_op_name(call->op));
    const core_kernel *kernel;
    claim found = CLAIM_NONE;

    for (uint32_t i = 0; core_kernel_at(self->type, i, &kernel) == CORE_OK;
         i++) {
        if (kernel->name.size != strlen(name) ||
            memcmp(kernel->name.data, name, kernel->name.size) != 0 ||
            (!takes(kernel, call, wanted, true) &&
             !takes(kernel, call, wanted, false)))
            continue;
        if (!kernel->supports)
            return CLAIM_KERNEL;
        found = CLAIM_CONDITIONAL;
    }
    return found;
}

bool claim_holds(const suite *self, const sample_call *call,
                 const reference *wanted)
{
    claim found = claim_of(self, call, wanted);
    core_status status;
    prepared on;

    if (found != CLAIM_CONDITIONAL)
        return found == CLAIM_KERNEL;
    status = sample_call_prepare(call, self->device, call->dtype, ARRANGED_ROWS,
                                 &on);
    if (status == CORE_OK)
        status = sample_call_run(call, &on);
    sample_call_done(&on);
    core_error_clear();
    return !call_is_left(self, status, core_op_name(call->op));
}

bool claim_may_be_refused(const suite *self, const char *name)
{
    const core_kernel *kernel;
    bool may = false;

    for (uint32_t i = 0;
         !may && core_kernel_at(self->type, i, &kernel) == CORE_OK; i++)
        may = kernel->supports && kernel->demands & CORE_REQUIRE_NO_FALLBACK &&
              kernel->name.size == strlen(name) &&
              memcmp(kernel->name.data, name, kernel->name.size) == 0;
    return may;
}

bool call_is_left(const suite *self, core_status status, const char *op)
{
    return status == CORE_ERROR_NO_KERNEL ||
           (status == CORE_ERROR_UNSUPPORTED &&
            (claim_may_be_refused(self, op) ||
             claim_may_be_refused(self, kernel_name_of(op))));
}

bool call_was_refused(const suite *self, const char *op, const outcome *out)
{
    return out->verdict == VERDICT_FAIL &&
           call_is_left(self, core_error_code(), op) &&
           !strstr(core_error_message(), ": copy_: ");
}

bool claimed_operators_next(const suite *self, claimed_operators *walk,
                            char *buffer, size_t size)
{
    const core_kernel *kernel;

    while (core_kernel_at(self->type, walk->kernel, &kernel) == CORE_OK) {
        core_string before = walk->name;
        bool again = kernel->name.size == before.size &&
                     memcmp(kernel->name.data, before.data, before.size) == 0;

        walk->kernel++;
        walk->name = kernel->name;
        /* The plugin's own operators are tested in level training. */
        if (again || memmem(kernel->name.data, kernel->name.size, "::", 2))
            continue;
        if (kernel->name.size >= size)
            return false;
        memcpy(buffer, kernel->name.data, kernel->name.size);
        buffer[kernel->name.size] = 0;
        return true;
    }
    return false;
}
