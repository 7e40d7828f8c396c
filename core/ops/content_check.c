/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "ops/content_check.h"

#include "base/memory.h"
#include "base/thread.h"
#include "ops/expression.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

static core_status check_probabilities(const core_operator *op,
                                       core_tensor *tensor, int64_t limit)
{
    core_tensor *ends[2] = {NULL, NULL};
    core_scalar low = core_float(0), high = core_float(1);
    core_status status = core_aminmax(tensor, NULL, false, &ends[0], &ends[1]);

    (void)limit;
    if (status == CORE_OK)
        status = core_item(ends[0], &low);
    if (status == CORE_OK)
        status = core_item(ends[1], &high);
    if (status == CORE_OK &&
        !(core__double_of(&low) >= 0 && core__double_of(&high) <= 1))
        status = core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, op,
            "self has elements from %g to %g; all must be between 0 and 1",
            core__double_of(&low), core__double_of(&high));
    core__tensor_release(ends[0]);
    core__tensor_release(ends[1]);
    return status;
}

static core_status check_fractions(const core_operator *op, core_tensor *tensor,
                                   int64_t limit)
{
    core__scope s;
    core_tensor *good;
    bool all;

    (void)limit;
    core__scope_begin(&s);
    good = core__x_logical_and(
        &s, CORE__DO(&s, core_ge_scalar, tensor, core_int(0)),
        CORE__DO(&s, core_le_scalar, tensor, core_int(1)));
    all = core__read_all(&s, good);
    CORE_TRY(core__scope_end(&s));
    return all ? CORE_OK
               : core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                "q has numbers outside of 0 to 1");
}

static core_status check_list(const core_operator *op, const int64_t *list,
                              int64_t n, int64_t limit)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i > 0 ? list[i - 1] : 0;
        int64_t most = i > 0 ? limit : 0;

        if (list[i] < least || list[i] > most)
            return core__op_error(
                CORE_ERROR_INDEX, op,
                "offsets[%lld] is %lld; the first must be 0, and each from the "
                "one before to the number of indices, %lld",
                (long long)i, (long long)list[i], (long long)limit);
    }
    return CORE_OK;
}

static core_status check_offsets(const core_operator *op, core_tensor *tensor,
                                 int64_t limit)
{
    core_tensor *wide = NULL;
    size_t size = (size_t)tensor->numel * sizeof(int64_t);
    int64_t *list = core__alloc(size + 1);
    core_status status;

    if (!list)
        return core__error_memory(size);
    status = core_to(tensor, CORE_I64, NULL, false, false, -1, &wide);
    if (status == CORE_OK)
        status = core_tensor_read(wide, list, size);
    if (status == CORE_OK)
        status = check_list(op, list, tensor->numel, limit);
    core__tensor_release(wide);
    core__free(list);
    return status;
}

typedef struct content_check {
    const char *name;
    core_status (*run)(const core_operator *op, core_tensor *tensor,
                       int64_t limit);
} content_check;

static const content_check checks[] = {
    {CORE__CHECK_PROBABILITIES, check_probabilities},
    {CORE__CHECK_FRACTIONS, check_fractions},
    {CORE__CHECK_OFFSETS, check_offsets}};

static const content_check *check_of(const char *name)
{
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (strcmp(checks[i].name, name) == 0)
            return &checks[i];
    return NULL;
}

core_status core__content_check(const core_operator *op, const char *check,
                                core_tensor *tensor, int64_t limit)
{
    core_tensor *done = NULL;

    if (core__likely(!core__thread_self()->trace))
        return check_of(check)->run(op, tensor, limit);
    CORE_TRY(core_check_content(tensor, check, op->id, limit, &done));
    core__tensor_release(done);
    return CORE_OK;
}

/* _check_content(self, check, op, limit): true, or the error of the operator
 * with the id `op`.  A node of a program must have a result. */
CORE__OP(check_content)
{
    core_tensor *self = args[0].u.tensor, *done = NULL;
    const content_check *check = check_of(args[1].u.string);
    int64_t id = args[2].u.i;

    if (!check || id < 0 || id >= core__operator_count ||
        !core__operators[id].data)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "check is \"%s\" and op %lld; they must be a "
                              "check and an operator of this version",
                              args[1].u.string, (long long)id);
    if (self->storage)
        CORE_TRY(check->run(&core__operators[id], self, args[3].u.i));
    CORE_TRY(
        core_full(NULL, 0, core_bool(true), CORE_BOOL, self->device, &done));
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = done}};
    return CORE_OK;
}
