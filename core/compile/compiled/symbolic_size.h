/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* symbolic_size.h: numbers of a program that follow from sizes of its inputs.
 *
 * Two recordings give two values of each number and of each size.  A form is a
 * formula that gives both values from the sizes. */

#ifndef CORE_COMPILE_SYMBOLIC_SIZE_H
#define CORE_COMPILE_SYMBOLIC_SIZE_H

#include "compile/compiled/dynamic_shapes.h"
#include "compile/compiled/recorded_call.h"

enum { CORE__FORM_FACTORS = 3, CORE__NUMBER_FORMS = 8 };

/* A product of symbols, plus a constant, or times one and divided by another
 * without remainder. */
typedef struct core__symbolic_size {
    uint8_t nfactors;
    uint8_t factors[CORE__FORM_FACTORS];
    int64_t constant;
    int64_t divisor; /* 0: the constant is added */
} core__symbolic_size;

typedef enum core__number_kind {
    CORE__NUMBER_INTEGER,
    CORE__NUMBER_FLOAT,     /* the integer as a floating number */
    CORE__NUMBER_RECIPROCAL /* 1 divided by it */
} core__number_kind;

/* A number of the program that differs: by its place in the order of visits. */
typedef struct core__dynamic_number {
    uint32_t place;
    uint8_t kind;
    uint8_t nforms;
    core__symbolic_size forms[CORE__NUMBER_FORMS];
} core__dynamic_number;

/* The sizes that differ, which are the symbols of forms. */
typedef struct core__sizes_seen {
    const core__size_symbol *symbols;
    uint32_t count;
} core__sizes_seen;

/* Finds the forms of a number that was a and is b.  False: none, or too
 * many. */
bool core__dynamic_explain(const core__sizes_seen *sizes,
                           const core__recorded_number *a,
                           const core__recorded_number *b,
                           core__dynamic_number *v);

/* A number for sizes; false: it is not known, or ambiguous. */
bool core__dynamic_value(const core__dynamic_number *v, const int64_t *symbols,
                         int64_t *out);

/* Drops the forms that another recording refutes.  False: all. */
bool core__dynamic_keep(core__dynamic_number *v, const int64_t *symbols,
                        const core__recorded_number *found);

#endif
