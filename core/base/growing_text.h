/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* growing_text.h: a text in memory that grows as it is written. */

#ifndef CORE_BASE_GROWING_TEXT_H
#define CORE_BASE_GROWING_TEXT_H

#include <libcore/status.h>

#include <stdbool.h>
#include <stddef.h>

/* All zero at first.  data ends with a NUL; core__free frees it. */
typedef struct core__growing_text {
    char *data;
    size_t size;
    size_t capacity;
} core__growing_text;

/* A core__json_write whose context is a core__growing_text.  False if there is
 * no memory. */
bool core__growing_text_append(void *context, const char *data, size_t size);

/* A text that is written piece by piece.  All zero at first.  After a failure
 * further pieces are ignored. */
typedef struct core__text_writer {
    core__growing_text text;
    core_status status;
} core__text_writer;

/* Adds a piece, of any length; numbers are those of core__format. */
void core__text_write(core__text_writer *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the text, which core__free frees, or the first error.  A text without
 * pieces is "". */
core_status core__text_writer_finish(core__text_writer *self, char **out_text);

#endif
