/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* growing_text.h: a text in memory that grows as it is written. */

#ifndef CORE_BASE_GROWING_TEXT_H
#define CORE_BASE_GROWING_TEXT_H

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

#endif
