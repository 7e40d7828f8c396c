/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* text.h: numbers to text and back, independent of the program's locale: the
 * decimal point is always a point.  The process's locale is never changed, and
 * the thread's is restored before a call returns. */

#ifndef CORE_BASE_TEXT_H
#define CORE_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Like snprintf and vsnprintf. */
int core__format(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int core__format_list(char *text, size_t size, const char *format,
                      va_list arguments) __attribute__((format(printf, 3, 0)));
/* Like strtod and strtof. */
double core__parse_double(const char *text, char **out_end);
float core__parse_float(const char *text, char **out_end);
/* The length of the UTF-8 sequence at text, of which size > 0 bytes are
 * available; 0 if there is none. */
size_t core__utf8_sequence(const char *text, size_t size);

/* Writes "[2, 3]" into text, for messages; returns text. */
const char *core__sizes_text(uint32_t ndim, const int64_t *sizes, char *text,
                             size_t size);

#endif
