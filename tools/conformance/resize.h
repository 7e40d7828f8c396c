/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resize.h: samples with other sizes, dimensions and numbers. */

#ifndef CONFORMANCE_RESIZE_H
#define CONFORMANCE_RESIZE_H

#include "samples.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct resized {
    sample sample;
    char words[400];
} resized;

/* Gives every dimension of size `size` of the tensors of a sample, and indices
 * into it, the size `to`.  Returns false if that is not possible: matrices that
 * are factored keep their sizes. */
bool sample_resize(const sample *from, int64_t size, int64_t to, resized *out);
/* The same with the largest odd size that no tensor of more than `numel`
 * elements results from.  Returns false also if it is not larger. */
bool sample_enlarge(const sample *from, int64_t size, int64_t numel,
                    resized *out);
/* Finds the first and the last size that is not 1 of the first tensor that has
 * one.  Returns false if no tensor has. */
bool sample_sizes(const sample *from, int64_t *out_first, int64_t *out_last);
/* The following return false also if the words do not fit into out. */
/* Gives all tensors of a sample the sizes of the largest, if they are broadcast
 * to it.  Returns false if they are not, or have its sizes already. */
bool sample_level(const sample *from, resized *out);
/* Replaces the dimension that is the argument `dim`, the first of several, by
 * another.  Returns false if there is no such argument, or it is that one. */
bool sample_other_dim(const sample *from, int64_t dim, resized *out);
/* Makes the numbers that are not whole three quarters of what they are.  Returns
 * false if there are none. */
bool sample_other_numbers(const sample *from, resized *out);
/* Returns the number of elements of the largest tensor. */
int64_t sample_numel(const sample *from);

#endif
