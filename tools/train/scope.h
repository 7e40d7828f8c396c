/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scope.h: a chain of operators without a test behind each.
 *
 * A scope keeps what its calls gave and the first error.  After an error they
 * do nothing and give NULL; train_scope_end releases all but the result. */

#ifndef TOOLS_TRAIN_SCOPE_H
#define TOOLS_TRAIN_SCOPE_H

#include "train.h"

enum { TRAIN_SCOPE = 32 };

typedef struct train_scope {
    const train_model *model; /* of the Linears; others need none */
    core_status status;
    size_t count;
    core_tensor *kept[TRAIN_SCOPE];
} train_scope;

/* Steps with weights go where their weight lies: x is brought there.  Parts of a
 * model may so lie on several devices. */
core_tensor *train_to(train_scope *s, core_tensor *x, core_device *device);
core_tensor *train_linear(train_scope *s, core_tensor *x, core_tensor *weight,
                          core_tensor *bias);
core_tensor *train_relu(train_scope *s, core_tensor *x);
core_tensor *train_gelu(train_scope *s, core_tensor *x);
core_tensor *train_add(train_scope *s, core_tensor *x, core_tensor *y);
/* x itself where it does nothing. */
core_tensor *train_dropout(train_scope *s, core_tensor *x, double p,
                           bool training);
/* 3 x 3, and as large as before. */
core_tensor *train_conv(train_scope *s, core_tensor *x, core_tensor *weight,
                        core_tensor *bias);
/* Halves both sides. */
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
/* Each place sees those up to itself. */
core_tensor *train_attend(train_scope *s, core_tensor *query, core_tensor *key,
                          core_tensor *value, double dropout);

/* The status; *out_result is a reference of result, NULL on failure. */
core_status train_scope_end(train_scope *s, core_tensor *result,
                            core_tensor **out_result);

#endif
