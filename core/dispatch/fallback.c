/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls for which the device has no kernel: an error, or, where
 * LIBCORE_FALLBACK allows it, a counted computation on the CPU. */

#define _GNU_SOURCE /* memmem */

#include "base/log.h"
#include "base/observe.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/thread.h"
#include "capture/capture.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch_log.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "dispatch/table.h"
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"

#include <libcore/tensor.h>

#include <stdio.h>
#include <string.h>

enum { TENSORS_MAX = 32, ARGUMENTS_MAX = 32 };

/* "error", "count", or a list of operators for which it is allowed. */
static bool allowed(const core_operator *op)
{
    const char *text = NULL;
    const char *name = core__operator_name(op);

    if (core__setting_text(CORE__SETTING_FALLBACK, &text) != CORE_OK || !text ||
        strcmp(text, "error") == 0)
        return false;
    return strcmp(text, "count") == 0 ||
           core__list_contains(text, name, strlen(name));
}

typedef struct fallback {
    core_operator *op;
    core_device *origin;
    core_device *host;
    core_value args[ARGUMENTS_MAX];
    core_tensor *copies[TENSORS_MAX]; /* on the host; with references */
    core_tensor *originals[TENSORS_MAX];
    core_tensor *lists[TENSORS_MAX];
    uint32_t ncopies;
    uint32_t nlisted;
} fallback;

/* A capture fails, because the host would have to wait for work that has not
 * run. */
static core_status check_capture(const fallback *f, core_device *device)
{
    core_stream *stream = core__stream_current(device);

    if (device->synchronous || !stream->capture)
        return CORE_OK;
    core__capture_invalidate(stream, "a fallback to the CPU");
    return core__op_error(CORE_ERROR_UNSUPPORTED, f->op,
                          "\"%s\" has no kernel, and a fallback to the CPU "
                          "cannot be part of a capture",
                          device->name);
}

static core_status copy_to_host(fallback *f, core_tensor *tensor,
                                core_tensor **out_copy)
{
    core_tensor *copy;

    *out_copy = tensor;
    if (tensor->device == f->host)
        return CORE_OK;
    for (uint32_t i = 0; i < f->ncopies; i++)
        if (f->originals[i] == tensor) {
            *out_copy = f->copies[i];
            return CORE_OK;
        }
    CORE_TRY(check_capture(f, tensor->device));
    if (f->ncopies == TENSORS_MAX)
        return core__op_error(CORE_ERROR_UNSUPPORTED, f->op,
                              "the call has more tensors than the %d that the "
                              "CPU fallback accepts",
                              TENSORS_MAX);
    f->origin = tensor->device;
    CORE_TRY(core__op_check_allocation(
        f->op, f->host,
        core__tensor_new(f->host, tensor->dtype, tensor->ndim, tensor->sizes,
                         NULL, &copy)));
    f->originals[f->ncopies] = tensor;
    f->copies[f->ncopies++] = copy;
    *out_copy = copy;
    return core__dispatch_copy(copy, tensor);
}

static core_status copy_all_to_host(fallback *f, const core_value *args,
                                    uint32_t nargs)
{
    for (uint32_t i = 0; i < nargs; i++) {
        f->args[i] = args[i];
        if (args[i].tag == CORE_VALUE_TENSOR) {
            CORE_TRY(copy_to_host(f, args[i].u.tensor, &f->args[i].u.tensor));
        } else if (args[i].tag == CORE_VALUE_DEVICE) {
            f->origin = args[i].u.device;
            f->args[i].u.device = f->host;
        } else if (args[i].tag == CORE_VALUE_TENSOR_LIST) {
            if (f->nlisted + args[i].count > TENSORS_MAX)
                return core__op_error(CORE_ERROR_UNSUPPORTED, f->op,
                                      "the call has more tensors than the %d "
                                      "that the CPU fallback accepts",
                                      TENSORS_MAX);
            f->args[i].u.tensors = f->lists + f->nlisted;
            for (uint32_t j = 0; j < args[i].count; j++) {
                core_tensor **slot = &f->lists[f->nlisted++];

                *slot = NULL;
                if (args[i].u.tensors[j])
                    CORE_TRY(copy_to_host(f, args[i].u.tensors[j], slot));
            }
        }
    }
    return CORE_OK;
}

/* Copies a result to the device; a result that is a changed argument is that
 * argument. */
static core_status return_result(fallback *f, core_value *result)
{
    core_tensor *tensor;

    if (result->tag != CORE_VALUE_TENSOR)
        return CORE_OK;
    for (uint32_t i = 0; i < f->ncopies; i++)
        if (f->copies[i] == result->u.tensor) {
            core__tensor_release(result->u.tensor);
            core__tensor_retain(f->originals[i]);
            result->u.tensor = f->originals[i];
            return CORE_OK;
        }
    CORE_TRY(core__op_check_allocation(
        f->op, f->origin,
        core__tensor_new(f->origin, result->u.tensor->dtype,
                         result->u.tensor->ndim, result->u.tensor->sizes, NULL,
                         &tensor)));
    {
        core_status status = core__dispatch_copy(tensor, result->u.tensor);

        core__tensor_release(result->u.tensor);
        result->u.tensor = tensor;
        return status;
    }
}

static bool contains(const core_value *value, const core_tensor *tensor)
{
    if (value->tag == CORE_VALUE_TENSOR)
        return value->u.tensor == tensor;
    for (uint32_t k = 0;
         value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
        if (value->u.tensors[k] == tensor)
            return true;
    return false;
}

/* Copies arguments that the operator writes: self of in-place variants, out
 * arguments, and others such as running statistics. */
static core_status return_changed(fallback *f, uint32_t nargs)
{
    uint32_t changed = core__operator_written_arguments(f->op, nargs);

    for (uint32_t i = 0; i < nargs; i++)
        if (changed >> i & 1)
            for (uint32_t c = 0; c < f->ncopies; c++)
                if (contains(&f->args[i], f->copies[c]))
                    CORE_TRY(
                        core__dispatch_copy(f->originals[c], f->copies[c]));
    return CORE_OK;
}

/* The dtype of the kernel that is missing: that of the first operand that is
 * not a condition or a mask, or else of the first operand or result. */
static core_dtype dtype_of(const fallback *f, const core_value *result,
                           uint32_t nresults)
{
    for (uint32_t c = 0; c < f->ncopies; c++)
        if (f->originals[c]->dtype != CORE_BOOL)
            return f->originals[c]->dtype;
    if (f->ncopies > 0)
        return CORE_BOOL;
    return nresults > 0 && result->tag == CORE_VALUE_TENSOR
               ? result->u.tensor->dtype
               : CORE_DTYPE_NONE;
}

static core_status compute(core_operator *op, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    fallback f;
    core_status status;

    f.op = op;
    f.origin = NULL;
    f.ncopies = f.nlisted = 0;
    CORE_TRY(core__device_host(&f.host));
    for (uint32_t i = 0; i < nresults; i++)
        results[i] = (core_value){0};
    status = copy_all_to_host(&f, args, nargs);
    /* A call that names no device creates its result on the current one, which
     * is the CPU here. */
    if (status == CORE_OK && !f.origin)
        status = core__device_current(&f.origin);
    if (status == CORE_OK) {
        core_device *current = core__thread_self()->device;

        core__thread_self()->device = f.host;
        status = core__redispatch(op, f.host->keys | CORE__KEY_BACKEND, f.args,
                                  nargs, results, nresults);
        core__thread_self()->device = current;
    }
    if (status == CORE_OK)
        status = return_changed(&f, nargs);
    for (uint32_t i = 0; i < nresults && status == CORE_OK; i++)
        status = f.origin ? return_result(&f, &results[i]) : CORE_OK;
    for (uint32_t i = 0; i < f.ncopies; i++)
        core__tensor_release(f.copies[i]);
    for (uint32_t i = 0; i < nresults && status != CORE_OK; i++)
        core_value_release(&results[i]);
    if (status == CORE_OK) {
        core_dtype dtype = dtype_of(&f, &results[0], nresults);

        core__fallback_note(op, dtype);
        if (f.origin)
            atomic_fetch_add(&f.origin->fallbacks, 1);
        core__observe_fallback(f.origin ? f.origin : f.host);
        core__log(CORE_LOG_INFO, "fallback",
                  "%s of %s: computed on the CPU for %s",
                  core__operator_name(op), core_dtype_name(dtype),
                  f.origin ? f.origin->name : "cpu");
    }
    return status;
}

static bool on_host(const core_call *call, const core_value *args,
                    uint32_t nargs)
{
    core_device *host;
    uint64_t keys;

    (void)call;
    if (core__device_host(&host) != CORE_OK ||
        core__keys_of(call->op, args, nargs, &keys) != CORE_OK)
        return true;
    return core__keys_slot(keys) == core__keys_slot(host->keys) ||
           core__keys_slot(keys) == CORE__SLOT_META;
}

/* Finds a name that is not an operator: a misspelt name would silently allow
 * nothing.  yet: whether plugins may still register operators. */
static bool find_unknown(const char *list, bool yet, const char **out_word,
                         size_t *out_size)
{
    if (strcmp(list, "error") == 0 || strcmp(list, "count") == 0)
        return false;
    while (core__list_next(&list, out_word, out_size))
        if (!core__operator_find(*out_word, *out_size) &&
            !(yet && memmem(*out_word, *out_size, "::", 2)))
            return true;
    return false;
}

core_status core__fallback_check(const char *text)
{
    const char *item;
    size_t size;

    if (!find_unknown(text, true, &item, &size))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "LIBCORE_FALLBACK contains \"%.*s\", which is not an "
                       "operator; accepted: error, count, or a list of "
                       "operators, such as exp,add.Tensor",
                       (int)(size < 80 ? size : 80), item);
}

static core_status check_setting(const core_operator *op)
{
    const char *text = NULL, *item;
    size_t size;

    CORE_TRY(core__setting_text(CORE__SETTING_FALLBACK, &text));
    if (!text || !find_unknown(text, false, &item, &size))
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "the device has no kernel, and LIBCORE_FALLBACK "
                          "contains \"%.*s\", which is not an operator; "
                          "accepted: error, count, or a list of operators",
                          (int)(size < 80 ? size : 80), item);
}

static core_status try_fallbacks(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    core_status status = core__dispatch_upcalls.fill_fallback(
        call, args, nargs, results, nresults);

    if (status == CORE_ERROR_NO_KERNEL)
        status = core__dispatch_upcalls.float8_fallback(call, args, nargs,
                                                        results, nresults);
    if (status != CORE_ERROR_NO_KERNEL)
        return status;
    CORE_TRY(check_setting(call->op));
    if (allowed(call->op) && !on_host(call, args, nargs))
        return compute(call->op, args, nargs, results, nresults);
    return CORE_ERROR_NO_KERNEL;
}

/* The thread's error record is about the missing kernel. */
core_status core__fallback(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_error *earlier = core__error_take_aside();
    core_status status =
        core__launch_log_check("the device has no kernel for it");

    if (status == CORE_OK)
        status = try_fallbacks(call, args, nargs, results, nresults);
    if (status != CORE_OK) {
        core_error_release(earlier);
        return status;
    }
    core_error_clear();
    core_error_raise(earlier);
    return CORE_OK;
}

core_status core__missing_kernel(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    uint32_t slot = core__keys_slot(call->keys);
    core__backend *backend = core__backend_by_slot(slot);
    char available[256] = "";
    size_t length = 0;

    if (slot == CORE__SLOT_NONE)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "there is no tensor among the arguments, so no "
                              "device can be chosen");
    if (call->op->flags & CORE__OP_DYNAMIC_OUTPUT && slot == CORE__SLOT_META)
        return core__op_error(CORE_ERROR_DATA_DEPENDENT, call->op,
                              "the shape of the result depends on data");
    for (uint32_t i = CORE__SLOT_META; i < CORE__SLOTS; i++) {
        core__backend *other = core__backend_by_slot(i);

        if (!other || i == CORE__SLOT_META ||
            strcmp(core__table_describe(call->op, i), "missing") == 0)
            continue;
        if (length < sizeof available - 40)
            length +=
                (size_t)snprintf(available + length, sizeof available - length,
                                 "%s%s", length ? ", " : "", other->type);
    }
    core__error_set_aside();
    core__op_error(
        CORE_ERROR_NO_KERNEL, call->op,
        "\"%s\" has no kernel of %s; %s%s. With LIBCORE_FALLBACK=count "
        "the CPU computes operators that a device lacks",
        backend ? backend->type : "?", core__operator_kernel_name(call->op),
        length ? "loaded backends that have one: "
               : "no loaded backend has one",
        available);
    return core__fallback(call, args, nargs, results, nresults);
}
