/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* json_reader.h: a pull reader for the JSON of untrusted files.
 *
 * The caller asks for the token that must come next; anything else is CORRUPT,
 * and the error has its position. */

#ifndef CORE_SAFETENSORS_JSON_READER_H
#define CORE_SAFETENSORS_JSON_READER_H

#include <libcore/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decoded strings are appended to `string`, which needs the size of the input
 * plus one byte: with its NUL, no decoded string is longer than its source
 * between the quotes. */
typedef struct core__json_reader {
    const char *path; /* for messages, like the next two */
    const char *kind;
    const char *place;
    const char *begin;
    const char *next;
    const char *end;
    char *string;
} core__json_reader;

core_status core__json_reader_fail(const core__json_reader *r,
                                   const char *what);
void core__json_reader_skip_space(core__json_reader *r);
/* If the next character after whitespace is c, consumes it and returns true. */
bool core__json_reader_accept(core__json_reader *r, char c);
/* A string: UTF-8 without NUL characters. */
core_status core__json_reader_string(core__json_reader *r,
                                     const char **out_text);
/* A whole number from 0 to INT64_MAX. */
core_status core__json_reader_number(core__json_reader *r, uint64_t *out_value);
/* Skips any value; literals and numbers are checked only for their
 * characters. */
core_status core__json_reader_skip(core__json_reader *r);

/* The number of bytes of the UTF-8 character at text, of which size > 0 bytes
 * may be read; 0: it is invalid. */
size_t core__utf8_character_size(const char *text, size_t size);
/* Sorts items of `size` bytes, each of which begins with a pointer to its name,
 * by name; returns CORRUPT if two have the same.  what: the items, for the
 * message. */
core_status core__json_names_sort(void *items, size_t count, size_t size,
                                  const char *path, const char *what);

/* Makes space in an array for one more element. */
core_status core__json_reader_grow(void **array, size_t *capacity, size_t count,
                                   size_t element);

#endif
