/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* anomaly.h: where in the program the forward made a node, for anomaly mode. */

#ifndef CORE_AUTOGRAD_ANOMALY_H
#define CORE_AUTOGRAD_ANOMALY_H

#include "autograd/graph/node.h"

typedef struct core__anomaly_place_record core__anomaly_place_record;

/* Records where the program is now.  Best effort: without memory there is no
 * place. */
void core__anomaly_note(core_node *node) __attribute__((cold));
void core__anomaly_place_destroy(core__anomaly_place_record *place);

/* Writes the place into text, and returns text. */
const char *core__anomaly_place(core_node *node, char *text, size_t size);

#endif
