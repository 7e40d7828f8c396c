/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* size_form.h: numbers of a program that follow from sizes of its inputs.
 *
 * Two recordings give two values of each number and of each size.  A form is a
 * formula that gives both values from the sizes. */

#ifndef CORE_COMPILE_SIZE_FORM_H
#define CORE_COMPILE_SIZE_FORM_H

#include "compile/recorded_call.h"
#include "compile/varying_sizes.h"

enum { CORE__FORM_FACTORS = 3, CORE__NUMBER_FORMS = 8 };

/* A product of symbols, plus a constant, or times one and divided by another
 * without remainder. */
typedef struct core__size_form {
    uint8_t nfactors;
    uint8_t factors[CORE__FORM_FACTORS];
    int64_t constant;
    int64_t divisor; /* 0: the constant is added */
} core__size_form;

typedef enum core__number_kind {
    CORE__NUMBER_INTEGER,
    CORE__NUMBER_FLOAT,     /* the integer as a floating number */
    CORE__NUMBER_RECIPROCAL /* 1 divided by it */
} core__number_kind;

/* A number of the program that differs: by its place in the order of visits. */
typedef struct core__varying_number {
    uint32_t place;
    uint8_t kind;
    uint8_t nforms;
    core__size_form forms[CORE__NUMBER_FORMS];
} core__varying_number;

/* The sizes that differ, which are the symbols of forms. */
typedef struct core__sizes_seen {
    const core__size_symbol *symbols;
    uint32_t count;
} core__sizes_seen;

/* Finds the forms of a number that was a and is b.  False: none, or too
 * many. */
bool core__varying_explain(const core__sizes_seen *sizes,
                           const core__recorded_number *a,
                           const core__recorded_number *b,
                           core__varying_number *v);

/* A number for sizes; false: it is not known, or ambiguous. */
bool core__varying_value(const core__varying_number *v, const int64_t *symbols,
                         int64_t *out);

/* Drops the forms that another recording refutes.  False: all. */
bool core__varying_keep(core__varying_number *v, const int64_t *symbols,
                        const core__recorded_number *found);

#endif
