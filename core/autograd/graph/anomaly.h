/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* anomaly.h: anomaly mode, in which nodes know where the forward recorded them
 * and their gradients are checked for NaN. */

#ifndef CORE_AUTOGRAD_ANOMALY_H
#define CORE_AUTOGRAD_ANOMALY_H

#include "autograd/engine/engine.h"

typedef struct core__place core__place;

/* Notes the program's current place.  Best effort: without memory no place is
 * kept. */
void core__anomaly_note(core_node *node) __attribute__((cold));
void core__place_destroy(core__place *place);

/* core__node_apply in anomaly mode. */
core_status core__anomaly_apply(core__task *task, core_node *node,
                                core_tensor **grads,
                                const uint8_t *needed_edges,
                                core_tensor **gradients);

#endif
