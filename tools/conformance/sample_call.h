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
    SAMPLE_NUMEL = 140000,
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
    int64_t shift; /* further elements by which operands at an offset, and parts
                      of tensors as results, begin later in their memory */
    bool no_values;  /* the operands have sizes only */
    bool twins;      /* the first two operands are one tensor */
    bool tied;       /* elements may be equal: their order is not defined */
    uint32_t absent; /* mask of operands that are NULL in a list */
    bool device[SAMPLE_ARGUMENTS];
    bool same[SAMPLE_ARGUMENTS]; /* the argument is the dtype of the call */
    uint32_t noperands;
    int64_t ints[SAMPLE_ARGUMENTS][8];
    uint8_t bools[SAMPLE_ARGUMENTS][8];
    char text[400];
    operand operands[SAMPLE_TENSORS];
} sample_call;

/* The memory layout of an operand. */
typedef enum layout {
    LAYOUT_ROWS,    /* row-major, no gaps */
    LAYOUT_STRIDED, /* dimensions reversed, every second element, an offset */
    LAYOUT_OFFSET,  /* row-major, one element from the beginning */
    LAYOUT_APART,   /* row-major, with gaps between the rows */
    LAYOUT_SPACED,  /* row-major, every third element */
    LAYOUT_TRANSPOSED,    /* dimensions reversed, no gaps */
    LAYOUT_COLUMNS_APART, /* the same, with gaps between columns */
    LAYOUT_CHANNELS_LAST, /* dimension 1 is the innermost one; of images */
    LAYOUT_ONE_ROW,       /* stride 0 in the first dimension that is not 1 */
    LAYOUT_ONE_COLUMN,    /* stride 0 in the last dimension that is not 1 */
    LAYOUT_MATRICES,      /* the last two dimensions reversed; of batches */
    LAYOUT_HEADS,         /* the two before the last reversed; of batches */
    LAYOUTS
} layout;

extern const char *const layout_names[LAYOUTS];

/* The layouts of all operands, four bits each, the first in the lowest. */
typedef uint32_t arrangement;
#define ARRANGED(which, operand) ((arrangement)(which) << 4 * (operand))
#define ARRANGED_ALL(which) ((arrangement)(which)*0x11111111u)
#define ARRANGED_ROWS ARRANGED_ALL(LAYOUT_ROWS)
#define ARRANGED_STRIDED ARRANGED_ALL(LAYOUT_STRIDED)

/* A prepared call: the arguments and what they own. */
typedef struct prepared {
    core_value args[SAMPLE_ARGUMENTS];
    uint32_t nargs;
    core_tensor *tensors[SAMPLE_TENSORS];
    core_tensor *memory[SAMPLE_TENSORS];  /* that the tensors are views of */
    unsigned char *bytes[SAMPLE_TENSORS]; /* what was written to it */
    arrangement how;
    core_value results[SAMPLE_RESULTS];
    core_tensor *flat[SAMPLE_TENSORS * 4]; /* of the results; borrowed */
    uint32_t nflat;
} prepared;

/* Returns false if there is no such operator or the sample is malformed
 * (harness error). */
bool sample_call_parse(sample_call *self, const suite *of, const sample *from,
                       core_dtype dtype);
/* The same for a call that is made on meta only: the operands get no values. */
bool sample_call_parse_shapes(sample_call *self, const suite *of,
                              const sample *from, core_dtype dtype);
/* Tests whether any part of the call has the tested dtype. */
bool sample_call_has_dtype(const sample_call *self);
/* Replaces the values of t-operands by NaN, infinities, zeros, extremes and
 * subnormal numbers, so that a call of many elements has all pairs of them. */
void sample_call_make_special(sample_call *self);
/* Gives the operands all combinations of the values. */
void sample_call_make_values(sample_call *self, const double *values,
                             int64_t count);
/* Makes values with which exponentials overflow, and minus infinities between
 * them. */
void sample_call_make_masked(sample_call *self);
/* Adds a number to all values of floating operands. */
void sample_call_add(sample_call *self, double number);
/* Replaces finite values beyond a limit by 2, with their signs. */
void sample_call_limit(sample_call *self, double most);
/* Makes the second operand equal to the first; they are one tensor then.
 * Returns false if they differ in more than their values. */
bool sample_call_make_twins(sample_call *self);
/* Tests whether an operand can have a layout; those with stride 0 need an
 * operand whose values may repeat. */
bool sample_call_allows(const sample_call *self, uint32_t operand, layout how);
/* Makes the values of an operand equal along the dimension in which the layout
 * has stride 0. */
void sample_call_repeat(sample_call *self, uint32_t operand, layout how);
/* Tests whether the operator changes an operand. */
bool sample_call_writes(const sample_call *self, uint32_t operand);

/* Operands of the tested dtype are created with dtype `as` instead. */
core_status sample_call_prepare(const sample_call *self, core_device *device,
                                core_dtype as, arrangement how, prepared *out);
/* Calls the operator; flat then has the results. */
core_status sample_call_run(const sample_call *self, prepared *on);
/* Stores the tensors among the results in flat. */
void sample_call_list_results(prepared *on);
/* Checks that the operands, and the gaps between their elements, are what was
 * written to them.  Of those that the operator changes, and of the first one if
 * `in_place`, only the gaps are checked. */
bool sample_call_check_operands(const sample_call *self, const prepared *on,
                                bool in_place, outcome *out);
/* Writes an operand of layout LAYOUT_ROWS again, with its values turned by
 * `turned` places. */
core_status sample_call_write(const sample_call *self, prepared *on,
                              uint32_t operand, int64_t turned);
void sample_call_done(prepared *self);

#endif
