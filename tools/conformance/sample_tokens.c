/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "sample_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tensor_token_read(const char *word, size_t length, tensor_token *out)
{
    const char *at = word + 2, *end = word + length;

    memset(out, 0, sizeof *out);
    if (length < 2 || word[1] != ':' || !strchr("tupvxqymh", word[0]))
        return false;
    out->kind = word[0];
    while (at < end && *at >= '0' && *at <= '9' &&
           out->ndim < TENSOR_TOKEN_DIMENSIONS) {
        out->sizes[out->ndim++] = strtoll(at, (char **)(uintptr_t)&at, 10);
        at += at < end && *at == ',';
    }
    if (at < end && *at == '/')
        out->limit = strtoll(at + 1, NULL, 10);
    out->listed = memchr(word, '=', length) != NULL;
    return true;
}

size_t tensor_token_write(const tensor_token *word, char *to, size_t capacity)
{
    size_t used = (size_t)snprintf(to, capacity, "%c:", word->kind);

    for (uint32_t d = 0; d < word->ndim && used < capacity; d++)
        used += (size_t)snprintf(to + used, capacity - used, "%s%" PRId64,
                                 d ? "," : "", word->sizes[d]);
    if (word->limit > 0 && used < capacity)
        used += (size_t)snprintf(to + used, capacity - used, "/%" PRId64,
                                 word->limit);
    return used;
}

int64_t tensor_token_numel(const tensor_token *word)
{
    int64_t numel = 1;

    for (uint32_t d = 0; d < word->ndim && numel < INT32_MAX; d++)
        numel *= word->sizes[d];
    return numel;
}

/* Reads "int[1] dim=[]": the type, then the name. */
static void read_argument(const char *from, size_t length, schema_argument *out)
{
    const char *end = memchr(from, '=', length), *name;

    end = end ? end : from + length;
    for (name = end; name > from && name[-1] != ' ';)
        name--;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - name), name);
    snprintf(out->type, sizeof out->type, "%.*s",
             name > from ? (int)(name - from) - 1 : 0, from);
}

uint32_t schema_read(const char *schema, schema_argument *out)
{
    const char *at = strchr(schema, '(') + 1, *end = strstr(schema, ") ->");
    uint32_t count = 0;

    while (at < end && count < SCHEMA_ARGUMENTS) {
        size_t length = 0;
        int depth = 0;

        for (; at + length < end && (depth > 0 || at[length] != ','); length++)
            depth += (at[length] == '(' || at[length] == '[') -
                     (at[length] == ')' || at[length] == ']');
        if (*at != '*')
            read_argument(at, length, &out[count++]);
        at += length;
        at += *at == ',';
        at += *at == ' ';
    }
    return count;
}
