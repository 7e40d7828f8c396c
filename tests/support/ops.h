/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ops.h: operator calls written as text, for tests of many operators:
 *
 *     t:2,3   f64 leaf of these sizes      p:2,3   the same, no gradient
 *     u:2,3   leaf with distinct values    x:2,3/4 i64 in [0, 4)
 *     q:5     a permutation of 0 … 4       m:2,3   bool
 *     y:2,3   i32: 1, 2, 3 of each row, as the pivots of a factorisation
 *     [ … ]   list of tensors              i:2 f:.5 b:1 s:text   values
 *     l:1,2   integers                     n       none
 *     k:1,0,1 bools                     g:2,.5 floats
 *     c:2,3   i8 from -4 to 4
 *     d:f64   a dtype
 *     h:3,3   leaf, which the caller makes positive definite */

#ifndef TESTS_SUPPORT_OPS_H
#define TESTS_SUPPORT_OPS_H

#include "autograd.h"

#include <libcore/dispatch.h>

/* RESULTS: of the operator that has most. */
enum { ARGUMENTS = 16, TENSORS = 8, RESULTS = 5 };

typedef struct check {
    const char *op;
    const char *words;
    double low, high; /* of the values of leaves */
} check;

typedef struct arguments {
    core_operator *op;
    core_value values[ARGUMENTS];
    uint32_t count;
    uint32_t positive; /* arguments that are h: */
    int64_t ints[ARGUMENTS][8];
    uint8_t bools[ARGUMENTS][8];
    double floats[ARGUMENTS][8];
    core_tensor *lists[ARGUMENTS][TENSORS];
    core_tensor *leaves[TENSORS];
    size_t nleaves;
    char text[512]; /* strings among the values point into it */
} arguments;

static uint32_t state;

static inline double uniform(double low, double high)
{
    state = state * 1664525 + 1013904223;
    return low + (high - low) * (state >> 8) / (1 << 24);
}

static inline size_t numbers(const char **text, int64_t *out)
{
    size_t count = 0;

    while (**text == '-' || (**text >= '0' && **text <= '9')) {
        out[count++] = strtoll(*text, (char **)text, 10);
        if (**text == ',')
            ++*text;
    }
    return count;
}

static inline core_tensor *tensor_of(arguments *a, const check *c,
                                     const char *word)
{
    char kind = word[0];
    const char *text = word + 2;
    int64_t sizes[8], given[8], numel = 1, limit = 2;
    size_t ngiven = 0;
    double values[512];
    size_t ndim = numbers(&text, sizes);
    core_tensor *tensor;

    if (*text == '/')
        limit = strtoll(text + 1, (char **)&text, 10);
    if (*text == '=' && text++)
        ngiven = numbers(&text, given);
    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    ck_assert_int_le(numel, 512);
    for (int64_t i = 0; i < numel; i++)
        values[i] = ngiven        ? (double)given[(size_t)i % ngiven]
                    : kind == 'x' ? (double)(state = state * 5 + 3, i % limit)
                    : kind == 'q' ? (double)((i * 2 + 1) % numel)
                    : kind == 'y' ? (double)(i % sizes[ndim - 1] + 1)
                    : kind == 'm' ? (double)((i * 7 / 3) % 2)
                    : kind == 'c' ? (double)(i * 7 % 9 - 4)
                    : kind == 'u' ? c->low + (c->high - c->low) *
                                                 (double)(i * 37 % 101) / 101
                                  : uniform(c->low, c->high);
    tensor = typed(kind == 'x' || kind == 'q' ? CORE_I64
                   : kind == 'y'              ? CORE_I32
                   : kind == 'm'              ? CORE_BOOL
                   : kind == 'c'              ? CORE_I8
                                              : CORE_F64,
                   ndim, sizes, values);
    if (kind == 't' || kind == 'u' || kind == 'h') {
        ck_assert_uint_lt(a->nleaves, TENSORS);
        a->leaves[a->nleaves++] = leaf(tensor);
    }
    return tensor;
}

static inline core_value value_of(arguments *a, const check *c,
                                  const char *word)
{
    const char *text = word + 2;
    uint32_t at = a->count;

    switch (word[0]) {
    case 'i':
        return core_int(strtoll(text, NULL, 10));
    case 'f':
        return core_float(strtod(text, NULL));
    case 'b':
        return core_bool(text[0] == '1');
    case 's':
        return core_pack_string(text);
    case 'l':
        return core_pack_ints(a->ints[at], numbers(&text, a->ints[at]));
    case 'k': {
        size_t n = numbers(&text, a->ints[at]);

        for (size_t i = 0; i < n; i++)
            a->bools[at][i] = a->ints[at][i] != 0;
        return core_pack_bools(a->bools[at], n);
    }
    case 'd':
        return core_pack_dtype(core_dtype_from_name(text));
    case 'g': {
        size_t n = 0;

        for (char *end; n < 8; text = end + (*end == ',')) {
            double number = strtod(text, &end);

            if (end == text)
                break;
            a->floats[at][n++] = number;
        }
        return core_pack_floats(a->floats[at], n);
    }
    case 'n':
        return core_pack_none();
    case 'h':
        a->positive |= 1u << at;
        return core_pack_tensor(tensor_of(a, c, word));
    default:
        return core_pack_tensor(tensor_of(a, c, word));
    }
}

static inline void parse(arguments *a, const check *c)
{
    char *rest;
    uint32_t list = ARGUMENTS, items = 0;

    memset(a, 0, sizeof *a);
    OK(core_op_find(c->op, &a->op));
    snprintf(a->text, sizeof a->text, "%s", c->words);
    for (char *word = strtok_r(a->text, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest)) {
        if (word[0] == '[') {
            list = a->count++;
            items = 0;
        } else if (word[0] == ']') {
            a->values[list] = core_pack_tensors(a->lists[list], items);
            list = ARGUMENTS;
        } else if (list < ARGUMENTS) {
            a->lists[list][items++] =
                word[0] == 'n' ? NULL : tensor_of(a, c, word);
        } else {
            a->values[a->count] = value_of(a, c, word);
            a->count++;
        }
    }
}

/* Calls an operator with arguments written as for parse. */
static inline core_status call_op_words(const char *op, const char *words,
                                        core_value *results)
{
    check c = {op, words, 0, 1};
    arguments a;

    parse(&a, &c);
    return core_op_call(a.op, a.values, a.count, results, 4);
}

#endif
