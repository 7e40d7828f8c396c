/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* number_format.h: elements as text in the style of NumPy's arrays: the fewest
 * digits that distinguish a number from its neighbours, all of one width. */

#ifndef CORE_TENSOR_NUMBER_FORMAT_H
#define CORE_TENSOR_NUMBER_FORMAT_H

#include "base/error.h"

#include <stdbool.h>

enum {
    CORE__NUMBER_PRECISION = 8, /* maximum number of digits after the point */
    CORE__NUMBER_TEXT = 96      /* buffer size for any element's text */
};

/* How the elements of one array are written. */
typedef struct core__number_style {
    core_dtype dtype;
    bool scientific;
    int left;     /* characters before the point, sign included */
    int fraction; /* digits after the point */
    int exponent; /* scientific: digits of the exponent */
    int width;    /* integers and bool */
} core__number_style;

/* The style for count elements. */
void core__number_style_of(core_dtype dtype, const void *elements,
                           uint64_t count, core__number_style *out_style);
/* Both return the text's length. */
int core__number_write(const core__number_style *style, const void *element,
                       char text[CORE__NUMBER_TEXT]);
/* Writes a single number without padding. */
int core__number_write_alone(core_dtype dtype, const void *element,
                             char text[CORE__NUMBER_TEXT]);

#endif
