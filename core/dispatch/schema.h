/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* schema.h: schemas as text and parsed.
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
    bool keyword_only;
    bool has_default;
    int32_t list_size;   /* int[2]: 2; one number stands for all; else 0 */
    core_value fallback; /* the default; lists point to the two below */
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
} core__schema_result;

typedef struct core__schema {
    char name[96]; /* with overload and namespace */
    uint32_t narguments;
    uint32_t nresults;
    core__schema_argument arguments[CORE__SCHEMA_ARGUMENTS];
    core__schema_result results[CORE__SCHEMA_RESULTS];
} core__schema;

/* INVALID_ARGUMENT names the column at which it stopped.  The result points
 * into itself: it must not be moved. */
core_status core__schema_parse(const char *text, size_t size,
                               core__schema *out_schema);

/* The schema of an operator, parsed when first asked for; op->schema then
 * holds it (core__free, where an operator goes away).  Any thread. */
core_status core__schema_of(core_operator *op, const core__schema **out_schema);

/* Arguments that the operator changes, by position: of an operator of a
 * program's own what its schema marks, else what its variant has. */
uint32_t core__operator_changes(const core_operator *op, uint32_t nargs);
/* The same with what is written though the schema does not say so: running
 * statistics of a batch, which have no versions and no gradient. */
uint32_t core__operator_writes(const core_operator *op, uint32_t nargs);

#endif
