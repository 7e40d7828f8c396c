/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/error.h"

#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct core_error {
    core__error_record record;
};

static const char *const names[] = {
    [CORE_OK] = "CORE_OK",
    [CORE_ERROR_INVALID_ARGUMENT] = "CORE_ERROR_INVALID_ARGUMENT",
    [CORE_ERROR_OUT_OF_MEMORY] = "CORE_ERROR_OUT_OF_MEMORY",
    [CORE_ERROR_UNSUPPORTED] = "CORE_ERROR_UNSUPPORTED",
    [CORE_ERROR_NOT_FOUND] = "CORE_ERROR_NOT_FOUND",
    [CORE_ERROR_SHAPE] = "CORE_ERROR_SHAPE",
    [CORE_ERROR_DTYPE] = "CORE_ERROR_DTYPE",
    [CORE_ERROR_DEVICE] = "CORE_ERROR_DEVICE",
    [CORE_ERROR_INDEX] = "CORE_ERROR_INDEX",
    [CORE_ERROR_NO_KERNEL] = "CORE_ERROR_NO_KERNEL",
    [CORE_ERROR_DATA_DEPENDENT] = "CORE_ERROR_DATA_DEPENDENT",
    [CORE_ERROR_AUTOGRAD] = "CORE_ERROR_AUTOGRAD",
    [CORE_ERROR_VERSION] = "CORE_ERROR_VERSION",
    [CORE_ERROR_IO] = "CORE_ERROR_IO",
    [CORE_ERROR_CORRUPT] = "CORE_ERROR_CORRUPT",
    [CORE_ERROR_INCOMPATIBLE] = "CORE_ERROR_INCOMPATIBLE",
    [CORE_ERROR_NO_DEVICE] = "CORE_ERROR_NO_DEVICE",
    [CORE_ERROR_DEVICE_LOST] = "CORE_ERROR_DEVICE_LOST",
    [CORE_ERROR_STREAM] = "CORE_ERROR_STREAM",
    [CORE_ERROR_BUSY] = "CORE_ERROR_BUSY",
    [CORE_ERROR_CANCELLED] = "CORE_ERROR_CANCELLED",
    [CORE_ERROR_REFUSED] = "CORE_ERROR_REFUSED",
    [CORE_ERROR_INTERNAL] = "CORE_ERROR_INTERNAL",
};

const char *core_status_name(core_status status)
{
    if (status < 0 || (size_t)status >= sizeof names / sizeof *names)
        return "CORE_ERROR_UNKNOWN";
    return names[status];
}

core_status core__error(core_status code, const char *format, ...)
{
    core__error_record *record = &core__thread_self()->error;
    va_list arguments;

    core__thread_self()->failed_call.op = NULL;
    record->code = code;
    record->sequence++;
    record->severity = CORE_SEVERITY_RECOVERABLE;
    record->retryable = 0;
    record->vendor_code = 0;
    va_start(arguments, format);
    core__format_list(record->text, sizeof record->text, format, arguments);
    va_end(arguments);
    return code;
}

core_status core__error_memory(size_t size)
{
    return core__error(CORE_ERROR_OUT_OF_MEMORY,
                       "out of host memory: %zu bytes were requested", size);
}

core_status core__error_info(const core_error_info *info)
{
    core_status code = info->code == CORE_OK ? CORE_ERROR_INTERNAL : info->code;
    core__error_record *record;

    core__error(code, "%.*s%s%.*s", (int)info->component.size,
                info->component.size ? info->component.data : "",
                info->component.size ? ": " : "", (int)info->text.size,
                info->text.size ? info->text.data : "");
    record = &core__thread_self()->error;
    record->severity = info->severity;
    record->retryable = info->retryable;
    record->vendor_code = info->vendor_code;
    return code;
}

void core__error_prefix(const char *format, ...)
{
    core__error_record *record = &core__thread_self()->error;
    char prefix[CORE__ERROR_TEXT / 4];
    size_t length;
    va_list arguments;

    va_start(arguments, format);
    core__format_list(prefix, sizeof prefix - 2, format, arguments);
    va_end(arguments);
    strcat(prefix, ": ");
    length = strlen(prefix);
    /* Text that no longer fits is cut off at the end. */
    memmove(record->text + length, record->text,
            sizeof record->text - length - 1);
    memcpy(record->text, prefix, length);
    record->text[sizeof record->text - 1] = '\0';
}

void core__error_suffix(const char *format, ...)
{
    core__error_record *record = &core__thread_self()->error;
    size_t length = strlen(record->text);
    va_list arguments;

    va_start(arguments, format);
    core__format_list(record->text + length, sizeof record->text - length,
                      format, arguments);
    va_end(arguments);
}

core_status core__error_null(const char *function, const char *argument)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the argument %s is NULL", function, argument);
}

core_status core__error_struct_size(const char *function, const char *type,
                                    uint32_t size, size_t full)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: struct_size is %u; it must be sizeof(%s), %zu",
                       function, size, type, full);
}

const char *core_error_message(void)
{
    return core__thread_self()->error.text;
}

core_status core_error_code(void)
{
    return core__thread_self()->error.code;
}

void core_error_clear(void)
{
    core__error_record *record = &core__thread_self()->error;

    record->code = CORE_OK;
    record->text[0] = '\0';
}

core_status core_error_set(core_status code, const char *message)
{
    if (code == CORE_OK)
        code = CORE_ERROR_INTERNAL;
    return core__error(code, "%s", message ? message : "no message was given");
}

core_status core_error_detach(core_error **out_error)
{
    core__error_record *record = &core__thread_self()->error;
    core_status code = record->code;

    CORE__NOT_NULL(out_error);
    *out_error = NULL;
    if (code == CORE_OK)
        return CORE_OK;
    *out_error = core__alloc(sizeof **out_error);
    if (*out_error) {
        (*out_error)->record = *record;
        core_error_clear();
    }
    return code;
}

core_error *core__error_copy(void)
{
    core_error *error = core__alloc(sizeof *error);

    if (error)
        error->record = core__thread_self()->error;
    return error;
}

core_status core_error_raise(core_error *error)
{
    core_status code;

    if (!error)
        return CORE_OK;
    code = error->record.code;
    error->record.sequence = core__thread_self()->error.sequence + 1;
    core__thread_self()->error = error->record;
    core__free(error);
    return code;
}

void core__error_save(core__error_record *out_record)
{
    core__error_record *record = &core__thread_self()->error;

    if (record->code == CORE_OK) {
        /* The text has 2 KiB. */
        memset(out_record, 0, offsetof(core__error_record, text));
        out_record->text[0] = '\0';
        return;
    }
    *out_record = *record;
    core_error_clear();
}

void core__error_restore(const core__error_record *saved)
{
    core__error_record *record = &core__thread_self()->error;
    uint32_t sequence = record->sequence;

    if (saved->code == CORE_OK) {
        core_error_clear();
        return;
    }
    *record = *saved;
    record->sequence = sequence + 1;
}

core_status core__error_restore_on_success(const core__error_record *saved,
                                           core_status status)
{
    if (status == CORE_OK)
        core__error_restore(saved);
    return status;
}

void core__error_set_aside(void)
{
    core__thread *self = core__thread_self();

    if (self->shared)
        return; /* without memory anyway */
    core_error_release(self->replaced_error);
    core_error_detach(&self->replaced_error);
}

core_error *core__error_take_aside(void)
{
    core__thread *self = core__thread_self();
    core_error *error = self->replaced_error;

    self->replaced_error = NULL;
    return error;
}

void core_error_release(core_error *error)
{
    core__free(error);
}
