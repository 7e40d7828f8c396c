/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* accumulator.h: AccumulateGrad, the graph's end at a leaf. */

#ifndef CORE_AUTOGRAD_ACCUMULATOR_H
#define CORE_AUTOGRAD_ACCUMULATOR_H

#include "autograd/graph/node.h"

/* Accumulations run before all other ready nodes, so that gradients are
 * released early. */
#define CORE__SEQUENCE_ACCUMULATE UINT64_MAX

core_status core__accumulator_new(core_tensor *leaf, core_node **out_node);

/* Called when the last reference is gone: parks the node in the leaf's autograd state,
 * or frees it if another one is there. */
void core__accumulator_park(core_node *node);

#endif
