/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Adds descriptions of the arguments to errors of calls.  A check of two
 * tensors does not know which arguments they are; this file names them. */

#include "base/error.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "dispatch/inference.h"
#include "ops_ids.h"

#include <libcore/tensor.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool names(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = text; (at = strstr(at, name)); at += length)
        if ((at == text || !in_word(at[-1])) && !in_word(at[length]))
            return true;
    return false;
}

/* True if the message is about something that the caller can change in a
 * tensor. */
static bool is_about_arguments(core_status status)
{
    return status == CORE_ERROR_SHAPE || status == CORE_ERROR_DTYPE ||
           status == CORE_ERROR_DEVICE || status == CORE_ERROR_INDEX ||
           status == CORE_ERROR_INVALID_ARGUMENT ||
           status == CORE_ERROR_NO_KERNEL;
}

typedef struct description {
    char text[600];
    size_t used;
    const core_device *device; /* of the first tensor */
    bool several;              /* on more than one device */
    bool named;                /* the message already names an argument */
    uint32_t count;
} description;

static void add_tensor(description *d, const char *name, int item,
                       const core_tensor *tensor)
{
    char sizes[160], place[16] = "", device[64] = "";

    if (item >= 0)
        snprintf(place, sizeof place, "[%d]", item);
    if (d->several)
        snprintf(device, sizeof device, " on \"%s\"", tensor->device->name);
    if (d->used < sizeof d->text)
        d->used += (size_t)snprintf(
            d->text + d->used, sizeof d->text - d->used, "%s%s%s is %s %s%s",
            d->used ? ", " : "", name, place, core__dtype_name(tensor->dtype),
            core__sizes_text(tensor->ndim, tensor->sizes, sizes, sizeof sizes),
            device);
}

static void collect_device(description *d, const core_tensor *tensor)
{
    if (d->device && d->device != tensor->device)
        d->several = true;
    d->device = tensor->device;
}

/* Visits the tensors among the arguments; of a list, the first four. */
static void visit_arguments(description *d, const core_operator *op,
                            const core_value *args, uint32_t nargs, bool add)
{
    for (uint32_t i = 0; i < nargs; i++) {
        bool list = args[i].tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count =
            list ? args[i].count : args[i].tag == CORE_VALUE_TENSOR;
        const char *name = core__argument_name(op, i);

        if (!add && names(core_error_message(), name))
            d->named |= list || args[i].tag == CORE_VALUE_TENSOR;
        for (uint32_t k = 0; k < count && k < 4; k++) {
            core_tensor *tensor =
                list ? args[i].u.tensors[k] : args[i].u.tensor;

            if (!tensor)
                continue;
            if (add)
                add_tensor(d, name, list ? (int)k : -1, tensor);
            else
                collect_device(d, tensor);
        }
    }
}

void core__op_describe_arguments(const core_operator *op, core_status status,
                                 const core_value *args, uint32_t nargs)
{
    description d = {.used = 0};

    if (!is_about_arguments(status))
        return;
    visit_arguments(&d, op, args, nargs, false);
    if (d.named || !d.device)
        return;
    visit_arguments(&d, op, args, nargs, true);
    core__error_suffix("; %s", d.text);
}

/* Its errors are those of the operator whose argument it checks. */
static bool speaks_for_another(const core_operator *op)
{
    return op->id == CORE_OP_CHECK_CONTENT;
}

core_status core__function_run(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    core_operator *op = call->op;
    core_status status =
        op->data->function(call, args, nargs, results, nresults);

    if (core__unlikely(status != CORE_OK) &&
        status != CORE_ERROR_OUT_OF_MEMORY && !speaks_for_another(op)) {
        core__op_prefix_name(op);
        core__op_describe_arguments(op, status, args, nargs);
    }
    return status;
}
