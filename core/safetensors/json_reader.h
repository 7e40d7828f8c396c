/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* json_reader.h: reads the JSON of files that may be anything.
 *
 * The caller walks through it, and says what must come next; whatever else
 * comes is CORRUPT, with its place. */

#ifndef CORE_IO_READER_H
#define CORE_IO_READER_H

#include <libcore/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decoded texts go one after another to `string`, which has room for as many
 * bytes as there are to read, and one: none is longer, with its NUL, than
 * between its quotes. */
typedef struct core__reader {
    const char *path; /* the next three for messages */
    const char *kind;
    const char *place;
    const char *begin;
    const char *next;
    const char *end;
    char *string;
} core__reader;

core_status core__reader_fail(const core__reader *r, const char *what);
void core__reader_space(core__reader *r);
/* Whether the next character behind spaces is c, which is then taken. */
bool core__reader_take(core__reader *r, char c);
/* A text in quotes, UTF-8 without NUL characters. */
core_status core__reader_text(core__reader *r, const char **out_text);
/* A whole number from 0 to INT64_MAX. */
core_status core__reader_number(core__reader *r, uint64_t *out_value);
/* Any value; of words and numbers only the letters are looked at. */
core_status core__reader_skip(core__reader *r);

/* Bytes of the UTF-8 character at text, of which size > 0 bytes may be read; 0:
 * it is none. */
size_t core__reader_character(const char *text, size_t size);
/* Room in an array for one more element. */
core_status core__reader_grow(void **array, size_t *room, size_t count,
                              size_t element);

#endif
