/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_tokens.h: the words of a sample that are tensors, and the arguments of
 * an operator's schema. */

#ifndef CONFORMANCE_SAMPLE_TOKENS_H
#define CONFORMANCE_SAMPLE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_TOKEN_DIMENSIONS = 8, SCHEMA_ARGUMENTS = 32 };

/* A word that is a tensor: its sizes, and the limit of its indices or 0. */
typedef struct tensor_token {
    char kind;
    bool listed; /* the word has its elements, so its sizes must stay */
    uint32_t ndim;
    int64_t sizes[TENSOR_TOKEN_DIMENSIONS];
    int64_t limit;
} tensor_token;

/* False: the word is not a tensor. */
bool tensor_token_read(const char *word, size_t length, tensor_token *out);
/* Returns the length as snprintf does. */
size_t tensor_token_write(const tensor_token *word, char *to, size_t capacity);
int64_t tensor_token_numel(const tensor_token *word);

typedef struct schema_argument {
    char name[40];
    char type[24]; /* "Tensor?", "int[1]" */
} schema_argument;

/* Reads the arguments of a schema; returns their number. */
uint32_t schema_read(const char *schema, schema_argument *out);

#endif
