/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_call.h: a sample's words as a call on some device. */

#ifndef CONFORMANCE_WORDS_H
#define CONFORMANCE_WORDS_H

#include "samples.h"
#include "suite.h"

enum {
    WORDS_ARGUMENTS = 32,
    WORDS_TENSORS = 8,
    WORDS_NUMEL = 9216,
    WORDS_RESULTS = 8
};

/* A tensor as the suite knows it: row-major values that its dtype holds
 * exactly. */
typedef struct operand {
    char kind; /* t u p v h x q y m */
    core_dtype dtype;
    uint32_t ndim;
    int64_t sizes[8];
    int64_t numel;
    double values[WORDS_NUMEL];
} operand;

typedef struct words {
    core_operator *op;
    core_dtype dtype;                   /* that is tested */
    core_value values[WORDS_ARGUMENTS]; /* what is no tensor */
    uint32_t count;
    int32_t first[WORDS_ARGUMENTS]; /* tensors: the first operand, or -1 */
    int32_t items[WORDS_ARGUMENTS]; /* -1: no list */
    uint32_t absent; /* bits of operands that are NULL in a list */
    bool device[WORDS_ARGUMENTS];
    bool same[WORDS_ARGUMENTS]; /* the dtype of the call goes here */
    uint32_t noperands;
    int64_t ints[WORDS_ARGUMENTS][8];
    uint8_t bools[WORDS_ARGUMENTS][8];
    char text[400];
    operand operands[WORDS_TENSORS];
} words;

/* How tensors lie in memory. */
typedef enum arrangement {
    ARRANGED_ROWS,    /* row-major, no gaps */
    ARRANGED_STRIDED, /* dimensions reversed, every second element, an offset */
    ARRANGEMENTS
} arrangement;

/* A call that is ready: arguments, and what they own. */
typedef struct prepared {
    core_value args[WORDS_ARGUMENTS];
    uint32_t nargs;
    core_tensor *tensors[WORDS_TENSORS];
    core_value results[WORDS_RESULTS];
    core_tensor *flat[WORDS_TENSORS * 4]; /* of results; borrowed */
    uint32_t nflat;
} prepared;

/* False: there is no such operator, or the words are wrong (harness). */
bool words_parse(words *self, const suite *of, const sample *from,
                 core_dtype dtype);
/* Whether the call has anything of the tested dtype. */
bool words_depend(const words *self);
/* Puts other values into the t-operands: NaN, infinities, zeros, extremes. */
void words_make_special(words *self);

/* Operands of the tested dtype are made of `as` instead. */
core_status words_prepare(const words *self, core_device *device, core_dtype as,
                          arrangement how, prepared *out);
/* Calls the operator; results are then in flat, too. */
core_status words_call(const words *self, prepared *on);
void words_done(prepared *self);

#endif
