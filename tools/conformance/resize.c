/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "resize.h"

#include "oracle.h"
#include "sample_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* False: a matrix that is factored, or a tensor whose elements are listed, has
 * this size. */
static bool replace(const sample *from, tensor_token *word, int64_t size,
                    int64_t to)
{
    bool factored =
        word->kind == 'h' || word->kind == 'y' || oracle_factors(from->op);

    for (uint32_t d = 0; d < word->ndim; d++) {
        if (word->sizes[d] != size)
            continue;
        if (word->listed ||
            (factored && (d + 2 >= word->ndim || word->kind == 'y')))
            return false;
        word->sizes[d] = to;
    }
    if (word->limit == size && word->listed)
        return false;
    if (word->limit == size)
        word->limit = to;
    return true;
}

/* Writes another word in place of one, and returns its length as snprintf does:
 * 0 to keep the word, less to give up. */
typedef int (*rewriter)(void *context, const char *word, size_t length,
                        char *to, size_t capacity);

/* Copies a sample with other words.  False: one cannot be written, or there is
 * no room for them. */
static bool rewrite(const sample *from, rewriter one, void *context,
                    resized *out)
{
    char text[sizeof out->words];
    size_t used = 0;

    for (const char *at = from->words; *at;) {
        size_t length = strcspn(at, " "), room = sizeof text - used;
        int wrote = one(context, at, length, text + used, room);

        if (wrote < 0)
            return false;
        if (wrote == 0)
            wrote = snprintf(text + used, room, "%.*s", (int)length, at);
        used += (size_t)wrote;
        at += length;
        if (used + 1 >= sizeof text)
            return false;
        if (*at == ' ')
            text[used++] = *at++;
    }
    text[used] = 0;
    out->sample = *from;
    memcpy(out->words, text, used + 1);
    out->sample.words = out->words;
    return true;
}

typedef struct resizing {
    const sample *from;
    int64_t size, to;
} resizing;

static int resize_word(void *context, const char *at, size_t length, char *to,
                       size_t capacity)
{
    const resizing *self = context;
    tensor_token word;

    if (!tensor_token_read(at, length, &word))
        return 0;
    if (!replace(self->from, &word, self->size, self->to))
        return -1;
    if (word.listed)
        return 0;
    return (int)tensor_token_write(&word, to, capacity);
}

bool sample_resize(const sample *from, int64_t size, int64_t to, resized *out)
{
    resizing change = {from, size, to};

    /* The bins of a histogram depend on rounding. */
    return strncmp(from->op, "hist", 4) != 0 &&
           rewrite(from, resize_word, &change, out);
}

int64_t sample_numel(const sample *from)
{
    int64_t most = 0;

    for (const char *at = from->words; *at;) {
        size_t length = strcspn(at, " ");
        tensor_token word;

        if (tensor_token_read(at, length, &word) &&
            tensor_token_numel(&word) > most)
            most = tensor_token_numel(&word);
        at += length;
        at += *at == ' ';
    }
    return most;
}

bool sample_enlarge(const sample *from, int64_t size, int64_t numel,
                    resized *out)
{
    int64_t least = size, most = numel;
    resized other;

    while (least < most) {
        int64_t middle = (least + most + 1) / 2;

        if (!sample_resize(from, size, middle, &other))
            return false;
        if (sample_numel(&other.sample) <= numel)
            least = middle;
        else
            most = middle - 1;
    }
    least -= least % 2 == 0;
    return least > size && sample_resize(from, size, least, out);
}

bool sample_sizes(const sample *from, int64_t *out_first, int64_t *out_last)
{
    bool found = false;

    for (const char *at = from->words; *at && !found;) {
        size_t length = strcspn(at, " ");
        tensor_token word;

        if (tensor_token_read(at, length, &word))
            for (uint32_t d = 0; d < word.ndim; d++) {
                if (word.sizes[d] < 2)
                    continue;
                if (!found)
                    *out_first = word.sizes[d];
                *out_last = word.sizes[d];
                found = true;
            }
        at += length;
        at += *at == ' ';
    }
    return found;
}

/* Tests whether a tensor is broadcast to another. */
static bool fits_into(const tensor_token *small, const tensor_token *large)
{
    if (small->ndim > large->ndim)
        return false;
    for (uint32_t d = 1; d <= small->ndim; d++)
        if (small->sizes[small->ndim - d] != 1 &&
            small->sizes[small->ndim - d] != large->sizes[large->ndim - d])
            return false;
    return true;
}

static int level_word(void *context, const char *at, size_t length, char *to,
                      size_t capacity)
{
    const tensor_token *most = context;
    tensor_token word, level = *most;

    if (!tensor_token_read(at, length, &word))
        return 0;
    level.kind = word.kind;
    return (int)tensor_token_write(&level, to, capacity);
}

bool sample_level(const sample *from, resized *out)
{
    tensor_token words[TENSOR_TOKEN_DIMENSIONS], *most = words;
    uint32_t count = 0;
    bool differ = false;

    for (const char *at = from->words;
         *at && count < TENSOR_TOKEN_DIMENSIONS;) {
        size_t length = strcspn(at, " ");

        if (tensor_token_read(at, length, &words[count])) {
            if (tensor_token_numel(&words[count]) > tensor_token_numel(most))
                most = &words[count];
            count++;
        }
        at += length;
        at += *at == ' ';
    }
    for (uint32_t k = 0; k < count; k++) {
        if (!strchr("tupm", words[k].kind) || !fits_into(&words[k], most))
            return false;
        differ |= tensor_token_numel(&words[k]) != tensor_token_numel(most);
    }
    return differ && rewrite(from, level_word, most, out);
}

/* The number of the argument that is called "dim", or -1. */
static int32_t dim_argument(const sample *from)
{
    schema_argument arguments[SCHEMA_ARGUMENTS];
    core_operator *op;
    uint32_t count = 0;

    if (core_op_find(from->op, &op) == CORE_OK)
        count = schema_read(core_op_schema(op), arguments);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(arguments[i].name, "dim") == 0)
            return (int32_t)i;
    return -1;
}

typedef struct other_dim {
    int64_t dim;
    int32_t argument; /* to replace */
    int32_t count;    /* arguments so far */
    bool list, replaced;
} other_dim;

static int dim_word(void *context, const char *at, size_t length, char *to,
                    size_t capacity)
{
    other_dim *self = context;
    bool own;

    self->list = (self->list || *at == '[') && *at != ']';
    own = self->count == self->argument && !self->list && length > 2 &&
          (at[0] == 'i' || at[0] == 'l') &&
          strtoll(at + 2, NULL, 10) != self->dim && !memchr(at, ',', length);
    self->count += !self->list;
    self->replaced |= own;
    return own ? snprintf(to, capacity, "%c:%" PRId64, at[0], self->dim) : 0;
}

bool sample_other_dim(const sample *from, int64_t dim, resized *out)
{
    other_dim change = {.dim = dim, .argument = dim_argument(from)};

    return rewrite(from, dim_word, &change, out) && change.replaced;
}

static int number_word(void *context, const char *at, size_t length, char *to,
                       size_t capacity)
{
    bool *replaced = context;

    if (at[0] != 'f' || length <= 2 || strtod(at + 2, NULL) == 0)
        return 0;
    *replaced = true;
    return snprintf(to, capacity, "f:%.9g", strtod(at + 2, NULL) * .75);
}

bool sample_other_numbers(const sample *from, resized *out)
{
    bool replaced = false;

    return rewrite(from, number_word, &replaced, out) && replaced;
}
