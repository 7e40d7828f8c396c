/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* golden.h: reads recorded operator calls (format: tests/golden/README.md).
 * The files are not trusted: every number is checked before it is used, and
 * errors name the line. */

#ifndef CONFORMANCE_GOLDEN_H
#define CONFORMANCE_GOLDEN_H

#include <libcore/tensor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GOLDEN_ARGUMENTS = 32, GOLDEN_NAME = 128, GOLDEN_TEXT = 64 };

/* Checked: every element is within the bytes, which are within the file. */
typedef struct golden_tensor {
    bool absent; /* `elem N` */
    core_dtype dtype;
    uint32_t ndim;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
    int64_t offset;
    int64_t numel;
    const unsigned char *storage;
    uint64_t bytes;
} golden_tensor;

typedef enum golden_kind {
    GOLDEN_NONE,
    GOLDEN_TENSOR,
    GOLDEN_TENSORS,
    GOLDEN_INT,
    GOLDEN_FLOAT,
    GOLDEN_BOOL,
    GOLDEN_STRING,
    GOLDEN_DTYPE,
    GOLDEN_FORMAT,
    GOLDEN_INTS,
    GOLDEN_FLOATS,
    GOLDEN_BOOLS
} golden_kind;

typedef struct golden_argument {
    golden_kind kind;
    size_t first; /* tensors and lists: their first index in the case's
                   * arrays */
    size_t count;
    int64_t i;
    double f;
    char text[GOLDEN_TEXT];
} golden_argument;

/* A cotangent or a gradient, and the result or tensor that it belongs to. */
typedef struct golden_link {
    size_t index;
    golden_tensor tensor;
} golden_link;

#define GOLDEN_ARRAY(type) \
    struct {               \
        type *at;          \
        size_t count;      \
        size_t capacity;   \
    }

/* A line of PREFIX.differences. */
typedef struct golden_difference {
    int64_t id;
    const char *name;   /* of the operator */
    const char *part;   /* "result" or "gradient": what differs */
    const char *reason; /* why libcore differs here on purpose */
    bool found;         /* the case was read */
} golden_difference;

typedef struct golden_case {
    int64_t id;
    char name[GOLDEN_NAME];
    const char *schema; /* as recorded; "" if there was none */
    const golden_difference *difference; /* NULL: not listed */
    bool is_view; /* the schema returns an alias of an argument */
    uint32_t nargs;
    golden_argument args[GOLDEN_ARGUMENTS];
    GOLDEN_ARRAY(golden_tensor) tensors; /* of the arguments, in order */
    GOLDEN_ARRAY(int64_t) ints;
    GOLDEN_ARRAY(double) floats;
    GOLDEN_ARRAY(uint8_t) bools;
    GOLDEN_ARRAY(golden_tensor) results;
    GOLDEN_ARRAY(golden_link) cotangents;
    GOLDEN_ARRAY(golden_link) gradients;
} golden_case;

typedef struct golden_file {
    char *text; /* PREFIX.cases, lines cut into strings as they are read */
    char *differences_text; /* PREFIX.differences, cut into strings; or NULL */
    GOLDEN_ARRAY(golden_difference) differences;
    size_t text_size;
    size_t at;
    size_t line;
    unsigned char *data; /* PREFIX.bin */
    size_t data_size;
    char problem[400]; /* the error, for people */
} golden_file;

/* PREFIX.differences, if there is such a file, has a line
 * `ID OPERATOR result|gradient REASON` for each case of which libcore computes
 * the results or the gradients otherwise on purpose.  On failure returns false;
 * golden->problem has the reason. */
bool golden_open(const char *prefix, golden_file *golden);
void golden_close(golden_file *golden);

/* Start with a zeroed case; each call clears and refills it. */
typedef enum golden_result {
    GOLDEN_CASE,
    GOLDEN_END,
    GOLDEN_PROBLEM /* golden->problem */
} golden_result;
golden_result golden_next(golden_file *golden, golden_case *out_case);
void golden_case_free(golden_case *the_case);

#endif
