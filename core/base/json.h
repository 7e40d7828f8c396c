/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* json.h: a JSON writer.  It needs nothing else of the core, so tools and
 * tests can compile it in.
 *
 *     core__json json;
 *
 *     core__json_begin(&json, core__json_to_file, stdout);
 *     core__json_object(&json, NULL);
 *     core__json_text(&json, "name", "cpu");
 *     core__json_array(&json, "sizes");
 *     core__json_integer(&json, NULL, 2);
 *     core__json_end(&json);
 *     core__json_end(&json);
 *     good = core__json_finish(&json);
 *
 * Names are passed inside objects, NULL inside arrays and at the top level.  A
 * level is written on one line if `flat` was set before it was opened. */

#ifndef CORE_BASE_JSON_H
#define CORE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE__JSON_DEPTH = 32 };

/* Returns false if the text could not be written. */
typedef bool (*core__json_write)(void *context, const char *text, size_t size);

typedef struct core__json {
    core__json_write write;
    void *context;
    uint32_t depth;
    uint32_t flat_from; /* levels from this one on are on one line */
    bool flat;
    bool failed; /* writing failed, or the nesting is too deep */
    bool filled[CORE__JSON_DEPTH];
    char closing[CORE__JSON_DEPTH];
} core__json;

void core__json_begin(core__json *json, core__json_write write, void *context);
/* context: a FILE *. */
bool core__json_to_file(void *context, const char *text, size_t size);

void core__json_object(core__json *json, const char *name);
void core__json_array(core__json *json, const char *name);
/* Ends the innermost object or array. */
void core__json_end(core__json *json);

/* A NULL text writes null.  Invalid UTF-8 is replaced. */
void core__json_text(core__json *json, const char *name, const char *text);
void core__json_text_size(core__json *json, const char *name, const char *text,
                          size_t size);
void core__json_integer(core__json *json, const char *name, int64_t value);
void core__json_unsigned(core__json *json, const char *name, uint64_t value);
/* The shortest text that reads back as the same value; null if not finite. */
void core__json_number(core__json *json, const char *name, double value);
void core__json_boolean(core__json *json, const char *name, bool value);

/* Writes a final newline.  False if anything failed or a level is still
 * open. */
bool core__json_finish(core__json *json);

#endif
