/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* layers.h: the layers of the models.  Results belong to the innermost scope;
 * after an error they are NULL (libcore/expressions.h).  A layer with weights
 * runs on the device of its weight, so the parts of a model may be on several
 * devices. */

#ifndef TOOLS_TRAIN_LAYERS_H
#define TOOLS_TRAIN_LAYERS_H

#include "train.h"

#include <libcore/network.h>

/* Moves x to the device of another tensor. */
core_tensor *train_beside(core_tensor *x, const core_tensor *other);
/* Runs a layer with a weight. */
core_tensor *train_layer(core_module *layer, core_tensor *x);
/* The same for a Linear, with --amp fp8 in eight bits. */
core_tensor *train_linear(const train_model *model, core_module *layer,
                          core_tensor *x);
/* Returns x itself if there is nothing to drop. */
core_tensor *train_dropout(core_tensor *x, double p, bool training);

#endif
