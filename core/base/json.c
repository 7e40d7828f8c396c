/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/json.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void core__json_begin(core__json *json, core__json_write write, void *context)
{
    memset(json, 0, sizeof *json);
    json->write = write;
    json->context = context;
    json->flat_from = UINT32_MAX;
}

bool core__json_to_file(void *context, const char *text, size_t size)
{
    return fwrite(text, 1, size, context) == size;
}

static void put(core__json *json, const char *text, size_t size)
{
    if (!json->failed && !json->write(json->context, text, size))
        json->failed = true;
}

static void put_text(core__json *json, const char *text)
{
    put(json, text, strlen(text));
}

static void new_line(core__json *json)
{
    if (json->depth >= json->flat_from)
        return;
    put(json, "\n", 1);
    for (uint32_t i = 0; i < json->depth; i++)
        put(json, "  ", 2);
}

static void put_quoted(core__json *json, const char *text, size_t size)
{
    put(json, "\"", 1);
    while (size > 0) {
        unsigned char c = (unsigned char)*text;
        size_t length = core__utf8_sequence(text, size);
        char escape[8];

        if (length == 0) {
            put_text(json, "\\ufffd");
            length = 1;
        } else if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = (char)c;
            put(json, escape, 2);
        } else if (c == '\n') {
            put_text(json, "\\n");
        } else if (c < ' ' || c == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            put_text(json, escape);
        } else {
            put(json, text, length);
        }
        text += length;
        size -= length;
    }
    put(json, "\"", 1);
}

/* Writes what precedes a value: a comma, a line break, the name. */
static void put_prefix(core__json *json, const char *name)
{
    if (json->depth > 0) {
        if (json->filled[json->depth - 1])
            put_text(json, json->depth >= json->flat_from ? ", " : ",");
        json->filled[json->depth - 1] = true;
        new_line(json);
    }
    if (name) {
        put_quoted(json, name, strlen(name));
        put(json, ": ", 2);
    }
}

static void open_level(core__json *json, const char *name, char opening,
                       char closing)
{
    put_prefix(json, name);
    if (json->depth == CORE__JSON_DEPTH) {
        json->failed = true;
        return;
    }
    put(json, &opening, 1);
    json->closing[json->depth] = closing;
    json->filled[json->depth] = false;
    json->depth++;
    if (json->flat && json->flat_from == UINT32_MAX)
        json->flat_from = json->depth;
    json->flat = false;
}

void core__json_object(core__json *json, const char *name)
{
    open_level(json, name, '{', '}');
}

void core__json_array(core__json *json, const char *name)
{
    open_level(json, name, '[', ']');
}

void core__json_end(core__json *json)
{
    bool flat;

    if (json->depth == 0) {
        json->failed = true;
        return;
    }
    flat = json->depth >= json->flat_from;
    json->depth--;
    if (json->depth < json->flat_from)
        json->flat_from = UINT32_MAX;
    if (json->filled[json->depth] && !flat)
        new_line(json);
    put(json, &json->closing[json->depth], 1);
}

void core__json_text_size(core__json *json, const char *name, const char *text,
                          size_t size)
{
    put_prefix(json, name);
    if (text)
        put_quoted(json, text, size);
    else
        put_text(json, "null");
}

void core__json_text(core__json *json, const char *name, const char *text)
{
    core__json_text_size(json, name, text, text ? strlen(text) : 0);
}

void core__json_integer(core__json *json, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    put_prefix(json, name);
    put_text(json, text);
}

void core__json_unsigned(core__json *json, const char *name, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, value);
    put_prefix(json, name);
    put_text(json, text);
}

void core__json_number(core__json *json, const char *name, double value)
{
    char text[40];

    put_prefix(json, name);
    if (!isfinite(value)) {
        put_text(json, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        core__format(text, sizeof text, "%.*g", digits, value);
        if (core__parse_double(text, NULL) == value)
            break;
    }
    put_text(json, text);
}

void core__json_boolean(core__json *json, const char *name, bool value)
{
    put_prefix(json, name);
    put_text(json, value ? "true" : "false");
}

bool core__json_finish(core__json *json)
{
    put(json, "\n", 1);
    return !json->failed && json->depth == 0;
}
