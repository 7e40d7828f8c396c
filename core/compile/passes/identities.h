/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* identities.h: nodes whose result is one of their operands, bit for bit:
 * x * 1, -(-x), a transpose of a transpose. */

#ifndef CORE_COMPILE_IDENTITIES_H
#define CORE_COMPILE_IDENTITIES_H

#include "compile/program/program.h"

/* The value that has the elements and the layout of a node's only result, or
 * CORE__NO_VALUE.  same: for each value the one that is used instead.  Signaling
 * NaNs, which arithmetic makes quiet, stay what they are. */
uint32_t core__node_identity(const core_program *program,
                             const core__program_node *node,
                             const uint32_t *same);

#endif
