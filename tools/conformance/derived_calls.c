/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "derived_calls.h"

#include "oracle.h"
#include "sample_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS = 40,
    WORD = 64,
    TEXT = 400, /* of all words */
    FEW = 300,  /* elements: a larger sample is not varied */
    MOST_DIMENSIONS = 4,
    NONE = -1
};

typedef struct word {
    char text[WORD];
    int32_t argument; /* its number; -1: a bracket */
    bool is_tensor;
    tensor_token tensor;
} word;

/* A sample, word by word. */
typedef struct words {
    const sample *from;
    uint32_t count;
    word at[WORDS];
    uint32_t narguments;
    schema_argument arguments[SCHEMA_ARGUMENTS];
} words;

typedef struct user {
    vary_with with;
    void *context;
} user;

/* ---------------------------------------------------------------- words -- */

static bool add_word(words *self, const char *text, size_t length,
                     int32_t argument)
{
    word *to = &self->at[self->count];

    if (self->count == WORDS || length >= WORD)
        return false;
    self->count++;
    memcpy(to->text, text, length);
    to->text[length] = 0;
    to->argument = argument;
    to->is_tensor = tensor_token_read(text, length, &to->tensor);
    return true;
}

static bool read_words(words *self, const sample *from)
{
    core_operator *op;
    int32_t argument = 0;
    bool list = false;

    memset(self, 0, sizeof *self);
    self->from = from;
    if (core_op_find(from->op, &op) != CORE_OK)
        return false;
    self->narguments = schema_read(core_op_schema(op), self->arguments);
    for (const char *at = from->words; *at;) {
        size_t length = strcspn(at, " ");
        bool bracket = *at == '[' || *at == ']';

        list = (list || *at == '[') && *at != ']';
        if (!add_word(self, at, length, bracket ? NONE : argument))
            return false;
        argument += !list;
        at += length;
        at += *at == ' ';
    }
    for (uint32_t i = 0; i < self->count; i++)
        if (self->at[i].is_tensor &&
            (self->at[i].tensor.listed ||
             tensor_token_numel(&self->at[i].tensor) > FEW))
            return false;
    return true;
}

/* Passes the words on as a sample. */
static bool use(const words *self, const user *to)
{
    char text[TEXT];
    sample varied = *self->from;
    size_t used = 0;

    for (uint32_t i = 0; i < self->count; i++) {
        const word *one = &self->at[i];

        if (used + WORD + 2 > sizeof text)
            return true;
        if (i > 0)
            text[used++] = ' ';
        if (one->is_tensor)
            used += tensor_token_write(&one->tensor, text + used, WORD);
        else
            used += (size_t)snprintf(text + used, WORD, "%s", one->text);
    }
    text[used] = 0;
    varied.words = text;
    return strcmp(text, self->from->words) == 0 ||
           to->with(to->context, &varied);
}

/* The number of the argument of this name, or -1. */
static int32_t argument_of(const words *self, const char *name)
{
    for (uint32_t i = 0; i < self->narguments; i++)
        if (strcmp(self->arguments[i].name, name) == 0)
            return (int32_t)i;
    return NONE;
}

static bool has_type(const words *self, int32_t argument, const char *begin)
{
    return argument >= 0 &&
           strncmp(self->arguments[argument].type, begin, strlen(begin)) == 0;
}

/* Returns the word that is an argument, which is added if the sample leaves it
 * out; NULL: there is no room, or the argument is a list of tensors. */
static word *word_of(words *self, int32_t argument)
{
    int32_t next = 0;

    for (uint32_t i = 0; i < self->count; i++) {
        if (self->at[i].argument == argument)
            return &self->at[i];
        next = self->at[i].argument >= next ? self->at[i].argument + 1 : next;
    }
    for (; next <= argument; next++)
        if (!add_word(self, "n", 1, next))
            return NULL;
    return &self->at[self->count - 1];
}

static tensor_token *first_tensor(words *self)
{
    for (uint32_t i = 0; i < self->count; i++)
        if (self->at[i].is_tensor)
            return &self->at[i].tensor;
    return NULL;
}

/* ----------------------------------------------------------- dimensions -- */

/* Gives a tensor `ndim` dimensions, of which `to` is what `from` was; the others
 * keep their order. */
static void move_dimension(tensor_token *tensor, uint32_t from, uint32_t ndim,
                           uint32_t to)
{
    static const int64_t more[MOST_DIMENSIONS] = {2, 3, 2, 3};
    tensor_token before = *tensor;
    uint32_t next = 0;
    bool ones = before.ndim > 1; /* all others are 1, as in a norm */

    for (uint32_t d = 0; d < before.ndim; d++)
        ones &= d == from || before.sizes[d] == 1;
    tensor->ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        if (d == to) {
            tensor->sizes[d] = before.sizes[from];
            continue;
        }
        next += next == from;
        tensor->sizes[d] = next < before.ndim ? before.sizes[next]
                           : ones             ? 1
                                              : more[d];
        next++;
    }
}

/* The dimension that the sample reduces or walks along. */
static uint32_t dimension_of(const word *dim, uint32_t ndim)
{
    bool given = strchr("il", dim->text[0]) && dim->text[1] && dim->text[2];
    int64_t number = given ? strtoll(dim->text + 2, NULL, 10) : -1;

    number += number < 0 ? (int64_t)ndim : 0;
    return number < 0 || number >= ndim ? 0 : (uint32_t)number;
}

static bool with_dimension(words *self, word *dim, bool list, int64_t number,
                           const user *to)
{
    snprintf(dim->text, WORD, "%c:%" PRId64, list ? 'l' : 'i', number);
    return use(self, to);
}

/* One call for each number of dimensions and each of them. */
static bool vary_dimension(const words *from, int32_t argument, const user *to)
{
    bool list = strchr(from->arguments[argument].type, '[') != NULL;
    words base = *from;
    const tensor_token *first = first_tensor(&base);
    uint32_t ndim = first ? first->ndim : 0, dimension;
    const word *given = word_of(&base, argument);

    if (ndim == 0 || !given)
        return true;
    dimension = dimension_of(given, ndim);
    for (uint32_t n = 1; n <= MOST_DIMENSIONS; n++)
        for (uint32_t d = 0; d < n; d++) {
            words moved = base;
            word *dim = word_of(&moved, argument);

            for (uint32_t i = 0; i < moved.count; i++)
                if (moved.at[i].is_tensor && moved.at[i].tensor.ndim == ndim)
                    move_dimension(&moved.at[i].tensor, dimension, n, d);
            if (!with_dimension(&moved, dim, list, d, to) ||
                !with_dimension(&moved, dim, list, (int64_t)d - n, to))
                return false;
        }
    return true;
}

/* Lists of several dimensions, of one tensor of three. */
static bool vary_dimensions(const words *from, int32_t argument, const user *to)
{
    static const char *const lists[] = {"l:0,1",  "l:0,2",   "l:1,2",  "l:2,0",
                                        "l:-1,0", "l:0,1,2", "l:-2,-1"};
    uint32_t tensors = 0;
    words base = *from;
    word *dim = word_of(&base, argument);
    tensor_token *first = first_tensor(&base);

    for (uint32_t i = 0; i < base.count; i++)
        tensors += base.at[i].is_tensor;
    if (tensors != 1 || !dim ||
        strchr(from->arguments[argument].type, '[') == NULL)
        return true;
    first->ndim = 3;
    for (uint32_t d = 0; d < 3; d++)
        first->sizes[d] = (int64_t)d + 2;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        snprintf(dim->text, WORD, "%s", lists[i]);
        if (!use(&base, to))
            return false;
    }
    return true;
}

/* Normalizes the last two dimensions instead of the last. */
static bool vary_normalized(const words *from, const user *to)
{
    int32_t argument = argument_of(from, "normalized_shape");
    words base = *from;
    word *shape = argument < 0 ? NULL : word_of(&base, argument);
    int64_t size;
    uint32_t ndim;

    if (!shape || shape->text[0] != 'l' || strchr(shape->text, ','))
        return true;
    size = strtoll(shape->text + 2, NULL, 10);
    ndim = first_tensor(&base)->ndim;
    snprintf(shape->text, WORD, "l:3,%" PRId64, size);
    for (uint32_t i = 0; i < base.count; i++) {
        tensor_token *one = &base.at[i].tensor;
        int64_t last = one->ndim > 0 ? one->sizes[one->ndim - 1] : 0;

        if (!base.at[i].is_tensor ||
            (last != size && (last != 1 || one->ndim != ndim)))
            continue;
        one->sizes[one->ndim - 1] = last == 1 ? 1 : 3;
        one->sizes[one->ndim++] = last;
    }
    return use(&base, to);
}

/* -------------------------------------------------------------- indices -- */

static bool begins_with(const tensor_token *tensor, const tensor_token *sizes)
{
    return tensor->ndim > sizes->ndim &&
           memcmp(tensor->sizes, sizes->sizes,
                  sizes->ndim * sizeof *sizes->sizes) == 0;
}

static void prepend(tensor_token *tensor, int64_t size)
{
    memmove(tensor->sizes + 1, tensor->sizes,
            tensor->ndim * sizeof *tensor->sizes);
    tensor->sizes[0] = size;
    tensor->ndim++;
}

/* Indices of another dimension, and what has a row for each of them. */
static bool vary_indices(const words *from, const user *to)
{
    words more = *from, fewer = *from;
    const tensor_token *first = first_tensor(&fewer);
    bool changes = false, shrinks = false;

    for (uint32_t i = 0; i < from->count; i++) {
        const tensor_token *index = &from->at[i].tensor;
        tensor_token *smaller = &fewer.at[i].tensor;

        if (!from->at[i].is_tensor || index->kind != 'x')
            continue;
        for (uint32_t k = 0; k < from->count && !changes; k++)
            if (k == i || (from->at[k].is_tensor &&
                           begins_with(&from->at[k].tensor, index)))
                prepend(&more.at[k].tensor, 2);
        changes = true;
        if (index->ndim != first->ndim)
            continue;
        for (uint32_t d = 0; d < index->ndim; d++) {
            shrinks |= index->sizes[d] > 1;
            smaller->sizes[d] -= index->sizes[d] > 1;
        }
    }
    return (!changes || use(&more, to)) && (!shrinks || use(&fewer, to));
}

/* ------------------------------------------------------------ arguments -- */

/* The gradient of a loss has one element, or one of each target. */
static void fit_gradient(words *self, int64_t reduction)
{
    const tensor_token *like = NULL;
    tensor_token *gradient = first_tensor(self);

    if (!strstr(self->from->op, "_backward"))
        return;
    for (uint32_t i = self->count; i-- > 1;)
        if (self->at[i].is_tensor && (i == 1 || self->at[i].tensor.kind == 'x'))
            like = like && i == 1 ? like : &self->at[i].tensor;
    gradient->ndim = 0;
    if (reduction != 0 || !like)
        return;
    gradient->ndim = like->ndim;
    memcpy(gradient->sizes, like->sizes, sizeof gradient->sizes);
}

/* No target ignored, then each of the first. */
static bool vary_ignored(const words *from, const user *to)
{
    int32_t argument = argument_of(from, "ignore_index");
    words base = *from;
    word *ignored;

    if (argument < 0)
        return use(&base, to);
    ignored = word_of(&base, argument);
    for (int64_t index = -1; ignored && index < 3; index++) {
        snprintf(ignored->text, WORD, "i:%" PRId64, index < 0 ? -100 : index);
        if (!use(&base, to))
            return false;
    }
    return true;
}

static bool vary_reduction(const words *from, const user *to)
{
    int32_t argument = argument_of(from, "reduction");
    bool good = true;

    if (!has_type(from, argument, "int"))
        return vary_ignored(from, to);
    for (int64_t reduction = 0; good && reduction < 3; reduction++) {
        words base = *from;
        word *number = word_of(&base, argument);

        if (!number)
            return true;
        snprintf(number->text, WORD, "i:%" PRId64, reduction);
        fit_gradient(&base, reduction);
        good = vary_ignored(&base, to);
    }
    return good;
}

/* Every mask of results but that of none. */
static bool vary_masks(const words *from, const user *to)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const char *text = from->at[i].text;
        uint32_t bits = ((uint32_t)strlen(text) - 1) / 2;

        if (strncmp(text, "k:", 2) != 0 || bits > 4)
            continue;
        for (uint32_t mask = 1; mask < 1u << bits; mask++) {
            words base = *from;

            for (uint32_t b = 0; b < bits; b++)
                base.at[i].text[2 + 2 * b] = mask >> b & 1 ? '1' : '0';
            if (!use(&base, to))
                return false;
        }
    }
    return true;
}

/* Each set of the optional tensors that the sample has, with every reduction and
 * every mask. */
static bool vary_optional(const words *from, const user *to)
{
    uint32_t which[8], count = 0;

    for (uint32_t i = 0; i < from->count && count < 5; i++)
        if (from->at[i].is_tensor && from->at[i].argument >= 0 &&
            strcmp(from->arguments[from->at[i].argument].type, "Tensor?") == 0)
            which[count++] = i;
    for (uint32_t absent = 0; absent < 1u << count; absent++) {
        words base = *from;

        for (uint32_t k = 0; k < count; k++)
            if (absent >> k & 1) {
                base.at[which[k]].is_tensor = false;
                snprintf(base.at[which[k]].text, WORD, "n");
            }
        if (!vary_reduction(&base, to) || !vary_masks(&base, to))
            return false;
    }
    return true;
}

/* Flags that leave an order or the checks of a call undefined. */
static bool is_left_open(const char *name)
{
    return strcmp(name, "sorted") == 0 || strcmp(name, "unsafe") == 0 ||
           strcmp(name, "stable") == 0;
}

/* Each flag set and clear. */
static bool vary_flags(const words *from, const user *to)
{
    for (uint32_t a = 0; a < from->narguments; a++) {
        words base = *from;
        word *flag;

        if (strncmp(from->arguments[a].type, "bool", 4) != 0 ||
            strchr(from->arguments[a].type, '[') ||
            is_left_open(from->arguments[a].name))
            continue;
        flag = word_of(&base, (int32_t)a);
        for (int on = 0; flag && on < 2; on++) {
            snprintf(flag->text, WORD, "b:%d", on);
            if (!use(&base, to))
                return false;
        }
    }
    return true;
}

bool sample_vary(const sample *from, vary_with with, void *context)
{
    static const char *const names[] = {"dim", "dims"};
    const user to = {with, context};
    static words base; /* large */

    /* The factors of a matrix are not unique. */
    if (oracle_factors(from->op) || !read_words(&base, from) ||
        !first_tensor(&base))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t argument = argument_of(&base, names[i]);

        if (!has_type(&base, argument, "int"))
            continue;
        if (!vary_dimension(&base, argument, &to) ||
            !vary_dimensions(&base, argument, &to))
            return false;
    }
    return vary_normalized(&base, &to) && vary_indices(&base, &to) &&
           vary_optional(&base, &to) && vary_flags(&base, &to);
}
