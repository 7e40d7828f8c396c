/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* schema.h: operator schemas as text and in parsed form.
 *
 *   name.overload(Type[?] name[=default], …, *, …) -> Type | (Type a, Type b)
 *
 * Types: Tensor, Tensor?, Tensor[], Tensor?[], Tensor(a), Tensor(a!), Scalar,
 * int, SymInt, float, bool, str, ScalarType, Device, Layout, MemoryFormat,
 * Generator, and lists int[], int[2], SymInt[], float[], bool[3]; each with ?
 * for optional. */

#ifndef CORE_DISPATCH_SCHEMA_H
#define CORE_DISPATCH_SCHEMA_H

#include "base/error.h"

#include <stdbool.h>

enum {
    CORE__SCHEMA_ARGUMENTS = 24,
    CORE__SCHEMA_RESULTS = 8,
    CORE__SCHEMA_LIST = 6 /* elements of a default; N of int[N] */
};

typedef struct core__schema_argument {
    char name[32];
    uint32_t tag; /* CORE_VALUE_…; Scalar: FLOAT with `scalar` */
    bool scalar;
    bool optional;
    bool optional_elements; /* Tensor?[] */
    bool mutated;           /* (a!) */
    bool aliased;           /* (a) */
    char alias[8];          /* a */
    bool keyword_only;
    bool has_default;
    int32_t list_size;   /* int[2]: 2; one number is the value of all; else 0 */
    core_value fallback; /* the default; lists point to the arrays below */
    int64_t ints[CORE__SCHEMA_LIST];
    uint8_t bools[CORE__SCHEMA_LIST];
    double floats[CORE__SCHEMA_LIST];
    char text[16];
} core__schema_argument;

typedef struct core__schema_result {
    char name[32];
    uint32_t tag;
    bool mutated;
    bool aliased;
    char alias[8];
} core__schema_result;

typedef struct core__schema {
    char name[96]; /* with overload and namespace */
    uint32_t narguments;
    uint32_t nresults;
    core__schema_argument arguments[CORE__SCHEMA_ARGUMENTS];
    core__schema_result results[CORE__SCHEMA_RESULTS];
} core__schema;

/* The INVALID_ARGUMENT error names the column where parsing stopped.  The
 * result points into itself, so it must not be moved. */
core_status core__schema_parse(const char *text, size_t size,
                               core__schema *out_schema);

/* The schema of an operator, parsed at the first query and stored in
 * op->schema (freed with core__free if the operator is removed).  Any thread
 * may call it. */
core_status core__schema_of(core_operator *op, const core__schema **out_schema);

/* Mask of the arguments that the operator changes: those marked in the schema
 * of a custom operator, else those of its variant. */
uint32_t core__operator_changed_arguments(const core_operator *op,
                                          uint32_t nargs);
/* The same plus arguments that are written although the schema does not say
 * so: running statistics, which have no versions and no gradient. */
uint32_t core__operator_written_arguments(const core_operator *op,
                                          uint32_t nargs);

#endif
