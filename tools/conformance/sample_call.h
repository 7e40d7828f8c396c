/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_call.h: a sample as a call on a device. */

#ifndef CONFORMANCE_SAMPLE_CALL_H
#define CONFORMANCE_SAMPLE_CALL_H

#include "samples.h"
#include "suite.h"

enum {
    SAMPLE_ARGUMENTS = 32,
    SAMPLE_TENSORS = 8,
    SAMPLE_NUMEL = 9216,
    SAMPLE_RESULTS = 8
};

/* A tensor as the suite represents it: row-major values that its dtype
 * represents exactly. */
typedef struct operand {
    char kind; /* t u p v h x q y m */
    core_dtype dtype;
    uint32_t ndim;
    int64_t sizes[8];
    int64_t numel;
    double values[SAMPLE_NUMEL];
} operand;

typedef struct sample_call {
    core_operator *op;
    core_dtype dtype;                    /* the tested dtype */
    core_value values[SAMPLE_ARGUMENTS]; /* arguments that are not tensors */
    uint32_t count;
    int32_t first[SAMPLE_ARGUMENTS]; /* tensors: the first operand, or -1 */
    int32_t items[SAMPLE_ARGUMENTS]; /* -1: not a list */
    uint32_t absent; /* mask of operands that are NULL in a list */
    bool device[SAMPLE_ARGUMENTS];
    bool same[SAMPLE_ARGUMENTS]; /* the argument is the dtype of the call */
    uint32_t noperands;
    int64_t ints[SAMPLE_ARGUMENTS][8];
    uint8_t bools[SAMPLE_ARGUMENTS][8];
    char text[400];
    operand operands[SAMPLE_TENSORS];
} sample_call;

/* The memory layout of operands. */
typedef enum arrangement {
    ARRANGED_ROWS,    /* row-major, no gaps */
    ARRANGED_STRIDED, /* dimensions reversed, every second element, an offset */
    ARRANGEMENTS
} arrangement;

/* A prepared call: the arguments and what they own. */
typedef struct prepared {
    core_value args[SAMPLE_ARGUMENTS];
    uint32_t nargs;
    core_tensor *tensors[SAMPLE_TENSORS];
    core_value results[SAMPLE_RESULTS];
    core_tensor *flat[SAMPLE_TENSORS * 4]; /* of the results; borrowed */
    uint32_t nflat;
} prepared;

/* Returns false if there is no such operator or the sample is malformed
 * (harness error). */
bool sample_call_parse(sample_call *self, const suite *of, const sample *from,
                       core_dtype dtype);
/* Tests whether any part of the call has the tested dtype. */
bool sample_call_has_dtype(const sample_call *self);
/* Replaces the values of t-operands by NaN, infinities, zeros and extremes. */
void sample_call_make_special(sample_call *self);

/* Operands of the tested dtype are created with dtype `as` instead. */
core_status sample_call_prepare(const sample_call *self, core_device *device,
                                core_dtype as, arrangement how, prepared *out);
/* Calls the operator; flat then has the results. */
core_status sample_call_run(const sample_call *self, prepared *on);
void sample_call_done(prepared *self);

#endif
