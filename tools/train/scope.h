/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scope.h: a chain of operators without an error check after each.
 *
 * A scope keeps the results of its calls and the first error.  After an
 * error all calls do nothing and return NULL; train_scope_end releases
 * everything but the result. */

#ifndef TOOLS_TRAIN_SCOPE_H
#define TOOLS_TRAIN_SCOPE_H

#include "train.h"

enum { TRAIN_SCOPE = 32 };

typedef struct train_scope {
    const train_model *model; /* for the Linears; other steps do not need it */
    core_status status;
    size_t count;
    core_tensor *kept[TRAIN_SCOPE];
} train_scope;

/* Steps with weights run on the device of their weight: x is moved there.  So
 * the parts of a model may be on several devices. */
core_tensor *train_to(train_scope *s, core_tensor *x, core_device *device);
core_tensor *train_linear(train_scope *s, core_tensor *x, core_tensor *weight,
                          core_tensor *bias);
core_tensor *train_relu(train_scope *s, core_tensor *x);
core_tensor *train_gelu(train_scope *s, core_tensor *x);
core_tensor *train_add(train_scope *s, core_tensor *x, core_tensor *y);
/* Returns x itself if there is nothing to drop. */
core_tensor *train_dropout(train_scope *s, core_tensor *x, double p,
                           bool training);
/* A 3 x 3 convolution that keeps the size. */
core_tensor *train_conv(train_scope *s, core_tensor *x, core_tensor *weight,
                        core_tensor *bias);
/* Halves height and width. */
core_tensor *train_pool(train_scope *s, core_tensor *x);
core_tensor *train_reshape(train_scope *s, core_tensor *x, const int64_t *sizes,
                           size_t ndim);
core_tensor *train_permute(train_scope *s, core_tensor *x,
                           const int64_t *dimensions, size_t ndim);
core_tensor *train_select(train_scope *s, core_tensor *x, int64_t dimension,
                          int64_t index);
core_tensor *train_narrow(train_scope *s, core_tensor *x, int64_t dimension,
                          int64_t first, int64_t count);
core_tensor *train_embed(train_scope *s, core_tensor *table,
                         core_tensor *numbers);
core_tensor *train_norm(train_scope *s, core_tensor *x, core_tensor *weight,
                        core_tensor *bias);
/* Each position sees those up to itself. */
core_tensor *train_attend(train_scope *s, core_tensor *query, core_tensor *key,
                          core_tensor *value, double dropout);

/* Returns the status; *out_result is a reference to result, NULL on failure. */
core_status train_scope_end(train_scope *s, core_tensor *result,
                            core_tensor **out_result);

#endif
