/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The mode that describes each call in one line.  LIBCORE_TRACE_DISPATCH is
 * something else: it logs the layers that a call passes, in every thread. */

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/device.h"
#include "dispatch/inference.h"
#include "dispatch/mode_stack.h"
#include "tensor/dtype.h"

#include <string.h>

typedef struct logging {
    core_mode_write write;
    void *context;
} logging;

typedef struct line {
    char text[1024];
    size_t used;
} line;

static void add(line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(line *line, const char *format, ...)
{
    size_t left = sizeof line->text - line->used;
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = core__format_list(line->text + line->used, left, format, arguments);
    va_end(arguments);
    if (size > 0)
        line->used += (size_t)size < left ? (size_t)size : left - 1;
}

static void add_tensor(line *line, const core_tensor *tensor)
{
    char sizes[256];

    if (tensor)
        add(line, "%s%s %s", core__dtype_name(tensor->dtype),
            core__sizes_text(tensor->ndim, tensor->sizes, sizes, sizeof sizes),
            tensor->device->name);
    else
        add(line, "none");
}

static void add_element(line *line, const core_value *list, uint32_t i)
{
    switch (list->tag) {
    case CORE_VALUE_INT_LIST:
        add(line, "%lld", (long long)list->u.ints[i]);
        break;
    case CORE_VALUE_FLOAT_LIST:
        add(line, "%g", list->u.floats[i]);
        break;
    case CORE_VALUE_BOOL_LIST:
        add(line, "%s", list->u.bools[i] ? "true" : "false");
        break;
    default:
        add_tensor(line, list->u.tensors[i]);
    }
}

static void add_list(line *line, const core_value *list)
{
    add(line, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        if (i)
            add(line, ", ");
        add_element(line, list, i);
    }
    add(line, "]");
}

static void add_value(line *line, const core_value *value)
{
    switch (value->tag) {
    case CORE_VALUE_NONE:
        add(line, "none");
        break;
    case CORE_VALUE_TENSOR:
        add_tensor(line, value->u.tensor);
        break;
    case CORE_VALUE_FLOAT:
        add(line, "%g", value->u.f);
        break;
    case CORE_VALUE_BOOL:
        add(line, "%s", value->u.i ? "true" : "false");
        break;
    case CORE_VALUE_STRING:
        add(line, "\"%s\"", value->u.string);
        break;
    case CORE_VALUE_DTYPE:
        add(line, "%s", core__dtype_name((core_dtype)value->u.i));
        break;
    case CORE_VALUE_DEVICE:
        add(line, "%s", value->u.device->name);
        break;
    case CORE_VALUE_GENERATOR:
        add(line, "generator");
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_TENSOR_LIST:
        add_list(line, value);
        break;
    default: /* numbers of formats and layouts too */
        add(line, "%lld", (long long)value->u.i);
    }
}

static void add_values(line *line, const core_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            add(line, ", ");
        add_value(line, &values[i]);
    }
}

static core_status log_call(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const logging *logging = call->user;
    line line = {.used = 0};
    core_status status;

    add(&line, "%s(", core_op_name(call->op));
    add_values(&line, args, nargs); /* before the call changes them */
    add(&line, ")");
    status = core_redispatch_below(call, args, nargs, results, nresults);
    if (status != CORE_OK || nresults)
        add(&line, " -> ");
    if (status != CORE_OK)
        add(&line, "%s", core_status_name(status));
    else
        add_values(&line, results, nresults);
    if (logging->write)
        logging->write(logging->context, line.text);
    else
        core__log_always(CORE_LOG_INFO, "mode", "%s", line.text);
    return status;
}

core_status core_mode_push_logging(uint32_t level, core_mode_write write,
                                   void *context, core_mode **out_mode)
{
    logging *own;

    CORE__NOT_NULL(out_mode);
    *out_mode = NULL;
    own = core__alloc(sizeof *own);
    if (!own)
        return core__error_memory(sizeof *own);
    *own = (logging){write, context};
    return core__mode_push(__func__, level, log_call, own, core__free,
                           out_mode);
}
