/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dynamic_shapes.h: programs for sizes with which a function was not recorded.
 *
 * Sizes are numbers to a C function, so a recording contains numbers only.
 * From two recordings with different sizes follows what depends on sizes: the
 * sizes of inputs that differ are symbols, and each number in the programs that
 * differs must be a product of symbols plus a constant, or times a fraction.
 * If all are, and the programs are equal otherwise, there is a pattern, from
 * which the program for other sizes is made: the numbers are computed, and the
 * types of values are inferred again.
 *
 * A pattern serves sizes between the least and the largest that were recorded,
 * and not 0 and 1, because a function, or an operator that consists of others,
 * may do something else beyond a size.  A call with other sizes is recorded; if
 * that fits, the pattern serves up to there from then on.  Where a number can
 * be explained in two ways that give different results, the call is recorded,
 * too, which decides.  So is a call if two sizes have had the same sum,
 * difference, product or ratio in all recordings, but not in this call: a
 * number that was the same in all of them may be that, and not a constant.
 *
 * Of a function whose results require grad, the joint programs are compared
 * (joint_trace.h), and the joint program for other sizes is split again: which
 * values are saved may depend on sizes. */

#ifndef CORE_COMPILE_DYNAMIC_SHAPES_H
#define CORE_COMPILE_DYNAMIC_SHAPES_H

#include "compile/compiled/compiled.h"

enum { CORE__PATTERNS = 4, CORE__PATTERN_SYMBOLS = 8 };

typedef struct core__size_symbol {
    int64_t first, second; /* in the two recordings */
    int64_t low, high;     /* that were recorded */
} core__size_symbol;

typedef struct core__size_pattern core__size_pattern;

/* Patterns of a compiled function, under the lock of compiled functions. */
typedef struct core__size_patterns core__size_patterns;
struct core__size_patterns {
    core__size_pattern *patterns[CORE__PATTERNS];
    _Atomic uint32_t count; /* changed under the lock */
    char difference[160];   /* why the last two programs make no pattern */
};

void core__size_patterns_free(core__size_patterns *patterns);

/* Makes the entry of a call from a pattern.  *out_entry is NULL if none serves
 * it. */
core_status core__size_patterns_apply(core__size_patterns *patterns,
                                      const core__guard *guard,
                                      core_tensor *const *inputs,
                                      size_t ninputs,
                                      core__compiled_entry **out_entry);

/* Learns from a program that was just recorded.  training: its backward; NULL:
 * it has none.  before: an entry with the same facts but sizes, or NULL.  True:
 * it fits a pattern, or makes one. */
bool core__size_patterns_learn(core__size_patterns *patterns,
                               const core__guard *guard,
                               core_tensor *const *inputs,
                               const core_program *program,
                               const core__training *training,
                               core__compiled_entry *before);

/* Writes an array of the patterns. */
void core__size_patterns_write(const core__size_patterns *patterns,
                               core__json *json);

#endif
