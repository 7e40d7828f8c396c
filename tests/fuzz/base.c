/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Minimal versions of the functions that the fuzzed files call in core/base:
 * error record, memory and dtype sizes. */

#include "base/memory.h"
#include "dispatch/operator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[2048];

/* schema.c refers to the table, but the parser reads no entry of it. */
core_operator core__operators[1];

core_status core__error(core_status code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return code;
}

core_status core__error_memory(size_t size)
{
    return core__error(CORE_ERROR_OUT_OF_MEMORY, "%zu bytes", size);
}

void core_error_clear(void)
{
    text[0] = '\0';
}

const char *core_error_message(void)
{
    return text;
}

void *core__alloc(size_t size)
{
    return malloc(size ? size : 1);
}

void *core__alloc_zero(size_t size)
{
    return calloc(1, size ? size : 1);
}

void *core__realloc(void *memory, size_t size)
{
    return realloc(memory, size);
}

/* Sizes of the dtypes that files contain; all others count as one byte. */
uint32_t core_dtype_size(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
    case CORE_I64:
        return 8;
    case CORE_F32:
    case CORE_I32:
        return 4;
    case CORE_F16:
    case CORE_BF16:
    case CORE_I16:
        return 2;
    default:
        return 1;
    }
}

char *core__strndup(const char *from, size_t size)
{
    return strndup(from, size);
}

void core__free(void *memory)
{
    free(memory);
}
