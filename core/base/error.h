/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* error.h: how files of the core report errors. */

#ifndef CORE_BASE_ERROR_H
#define CORE_BASE_ERROR_H

#include <libcore/status.h>

/* Fills the thread's error record and returns code.  The function that detects
 * an error calls it; its callers pass the status on. */
core_status core__error(core_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
core_status core__error_info(const core_error_info *info);
core_status core__error_memory(size_t size) __attribute__((cold));
/* Prepends "text: " to the message of the current record. */
void core__error_prefix(const char *format, ...)
    __attribute__((format(printf, 1, 2), cold));

/* Appends text to the message. */
void core__error_suffix(const char *format, ...)
    __attribute__((format(printf, 1, 2), cold));

/* Returns a copy of the record, which stays, or NULL without memory. */
core_error *core__error_copy(void) __attribute__((cold));

/* For a pointer argument that must not be NULL. */
core_status core__error_null(const char *function, const char *argument)
    __attribute__((cold));

/* For a struct_size too small for any field. */
core_status core__error_struct_size(const char *function, const char *type,
                                    uint32_t size, size_t full)
    __attribute__((cold));

#define core__likely(x) __builtin_expect(!!(x), 1)
#define core__unlikely(x) __builtin_expect(!!(x), 0)

/* At the start of a public function: the argument must not be NULL. */
#define CORE__NOT_NULL(argument)                          \
    do {                                                  \
        if (core__unlikely(!(argument)))                  \
            return core__error_null(__func__, #argument); \
    } while (0)

/* At the start of a public function that fills as much of *out as its caller's
 * header declares: struct_size must cover at least one field after the first
 * two. */
#define CORE__CHECK_STRUCT_SIZE(out, type)                                    \
    do {                                                                      \
        if (core__unlikely((out)->struct_size <= 2 * sizeof(uint32_t)))       \
            return core__error_struct_size(__func__, #type,                   \
                                           (out)->struct_size, sizeof(type)); \
    } while (0)

/* In the error of what a call would create while a function is recorded.  A
 * call that is not recorded creates it, so that a later recording succeeds. */
#define CORE__CREATION_REFUSED \
    "creates it, which a function that is being recorded cannot do"

#endif
