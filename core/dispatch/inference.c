/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "dispatch/inference.h"

#include "base/text.h"
#include "base/thread.h"
#include "tensor/layout.h"

#include <libcore/device.h>
#include <libcore/tensor.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------- arguments -- */

core_tensor *core__arg_tensor(const core_value *args, uint32_t position)
{
    return core__tensor_of(&args[position]);
}

int64_t core__arg_int(const core_value *args, uint32_t position, int64_t absent)
{
    return args[position].tag == CORE_VALUE_NONE
               ? absent
               : core__int_of(&args[position]);
}

double core__arg_float(const core_value *args, uint32_t position, double absent)
{
    return args[position].tag == CORE_VALUE_NONE
               ? absent
               : core__double_of(&args[position]);
}

bool core__arg_bool(const core_value *args, uint32_t position, bool absent)
{
    return args[position].tag == CORE_VALUE_NONE ? absent
                                                 : args[position].u.i != 0;
}

core_dtype core__arg_dtype(const core_value *args, uint32_t position,
                           core_dtype absent)
{
    core_dtype dtype = core__dtype_of(&args[position]);

    return dtype == CORE_DTYPE_NONE ? absent : dtype;
}

core_status core__dim_wrap(const core_operator *op, int64_t dim, uint32_t ndim,
                           uint32_t *out_dim)
{
    int64_t limit = ndim == 0 ? 1 : (int64_t)ndim;

    *out_dim = 0;
    if (dim < -limit || dim >= limit)
        return core__op_error(CORE_ERROR_INDEX, op,
                              "dimension %lld is out of range; a tensor with "
                              "%u dimensions accepts %lld to %lld",
                              (long long)dim, ndim, (long long)-limit,
                              (long long)limit - 1);
    *out_dim = (uint32_t)(dim < 0 ? dim + limit : dim);
    return CORE_OK;
}

/* --------------------------------------------------------------- sizes -- */

core_status core__sizes_numel(uint32_t ndim, const int64_t *sizes,
                              int64_t *out_numel)
{
    int64_t numel = 1;
    char text[256];

    *out_numel = 0;
    for (uint32_t i = 0; i < ndim; i++)
        if (sizes[i] < 0 || __builtin_mul_overflow(numel, sizes[i], &numel))
            return core__error(
                CORE_ERROR_SHAPE, "sizes %s %s",
                core__sizes_text(ndim, sizes, text, sizeof text),
                sizes[i] < 0 ? "contain a negative number"
                             : "have more elements than can be addressed");
    *out_numel = numel;
    return CORE_OK;
}

core_status core__sizes_broadcast(const core_operator *op, uint32_t ndim_a,
                                  const int64_t *a, uint32_t ndim_b,
                                  const int64_t *b, uint32_t *out_ndim,
                                  int64_t *out_sizes)
{
    uint32_t ndim = ndim_a > ndim_b ? ndim_a : ndim_b;
    int64_t sizes[CORE_MAX_NDIM];
    char text_a[256];
    char text_b[256];

    for (uint32_t i = 0; i < ndim; i++) {
        int64_t x = i < ndim_a ? a[ndim_a - 1 - i] : 1;
        int64_t y = i < ndim_b ? b[ndim_b - 1 - i] : 1;

        if (x != y && x != 1 && y != 1)
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "sizes %s and %s do not broadcast: %lld and %lld in dimension "
                "%u from the right",
                core__sizes_text(ndim_a, a, text_a, sizeof text_a),
                core__sizes_text(ndim_b, b, text_b, sizeof text_b),
                (long long)x, (long long)y, i + 1);
        sizes[ndim - 1 - i] = x == 1 ? y : x;
    }
    *out_ndim = ndim;
    memcpy(out_sizes, sizes, ndim * sizeof *sizes);
    return CORE_OK;
}

core_status core__op_error(core_status code, const core_operator *op,
                           const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    core__format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    return core__error(code, "%s: %s", core__operator_name(op), text);
}

core_status core__op_shapes_error(const core_operator *op, const char *name_a,
                                  const core_tensor *a, const char *name_b,
                                  const core_tensor *b, const char *format, ...)
{
    char text[256];
    char text_a[256];
    char text_b[256];
    va_list arguments;

    va_start(arguments, format);
    core__format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    return core__op_error(
        CORE_ERROR_SHAPE, op, "%s has sizes %s, %s %s: %s", name_a,
        core__sizes_text(a->ndim, a->sizes, text_a, sizeof text_a), name_b,
        core__sizes_text(b->ndim, b->sizes, text_b, sizeof text_b), text);
}

static bool message_names(const core_operator *op)
{
    const char *name = core__operator_name(op);
    const char *text = core_error_message();
    size_t length = strlen(name);

    return strncmp(text, name, length) == 0 &&
           (text[length] == ':' || text[length] == ' ');
}

/* A plugin's message has the plugin before the operator: removes the operator,
 * which is about to be put before both. */
static void remove_name(const char *name)
{
    char *text = core__thread_self()->error.text;
    size_t length = strlen(name);
    char *after = strstr(text, ": ");

    if (!after)
        return;
    after += 2;
    if (strncmp(after, name, length) == 0 &&
        strncmp(after + length, ": ", 2) == 0)
        memmove(after, after + length + 2, strlen(after + length + 2) + 1);
}

size_t core__op_leading_name(const char *text)
{
    const char *end = strstr(text, ": ");
    size_t size = end ? (size_t)(end - text) : 0;

    return size && core__operator_builtin(text, size) ? size : 0;
}

/* What the names of an operator and of those that do its work have in common:
 * _softmax and softmax.int, native_layer_norm and layer_norm, index_put and
 * index_put_. */
static core_string stem(const char *name, size_t size)
{
    static const char *const before[] = {"_", "native_", "linalg_"};
    static const char *const after[] = {"_", "_forward", "_impl", "_copy",
                                        "_with_indices"};
    const char *dot = memchr(name, '.', size);
    core_string rest = {name, dot ? (size_t)(dot - name) : size};

    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        size_t length = strlen(before[i]);

        if (rest.size > length && memcmp(rest.data, before[i], length) == 0) {
            rest.data += length;
            rest.size -= length;
        }
    }
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        size_t length = strlen(after[i]);

        if (rest.size > length &&
            memcmp(rest.data + rest.size - length, after[i], length) == 0)
            rest.size -= length;
    }
    return rest;
}

static bool same_stem(const char *name, const char *text, size_t size)
{
    core_string own = stem(name, strlen(name)), other = stem(text, size);

    return own.size == other.size &&
           memcmp(own.data, other.data, own.size) == 0;
}

/* After the name of an operator was removed from the message. */
static void unname(const char *name, size_t size)
{
    core__failed_call *failed = &core__thread_self()->failed_call;

    if (core__thread_self()->shared || !failed->op || failed->unnamed ||
        strlen(core__operator_name(failed->op)) != size ||
        memcmp(core__operator_name(failed->op), name, size) != 0)
        return;
    failed->unnamed = true;
    failed->message -= size + 2;
}

/* The name of the operator that failed, inside of the one that the program has
 * called, is enough; without those between, and also without it if it only does
 * the work of the latter. */
static void remove_inner_names(const core_operator *op)
{
    char *text = core__thread_self()->error.text;
    size_t size;

    while ((size = core__op_leading_name(text)) > 0 &&
           (core__op_leading_name(text + size + 2) ||
            same_stem(core__operator_name(op), text, size))) {
        unname(text, size);
        memmove(text, text + size + 2, strlen(text + size + 2) + 1);
    }
}

void core__op_prefix_name(const core_operator *op)
{
    if (message_names(op))
        return;
    remove_inner_names(op);
    remove_name(core__operator_name(op));
    core__error_prefix("%s", core__operator_name(op));
}

core_status core__op_dtype_check(const core_operator *op, core_dtype dtype)
{
    core_status status = core__dtype_check(dtype);

    if (status != CORE_OK)
        core__op_prefix_name(op);
    return status;
}

core_status core__op_format_check(const core_operator *op, int64_t format)
{
    core_status status = core__layout_format_check(format);

    if (status != CORE_OK)
        core__op_prefix_name(op);
    return status;
}

void core__op_prefix_memory(const core_operator *op, const core_device *device)
{
    if (!message_names(op))
        core__error_prefix("%s on \"%s\"", core__operator_name(op),
                           core_device_name(device));
}
