/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shape.h: the bytes of operands, and whether they intersect. */

#ifndef SIM_SHAPE_H
#define SIM_SHAPE_H

#include "race.h"

/* Strides in units of `scale` bytes; false if there are no bytes. */
bool sim_shape_of(sim_shape *shape, uint32_t ndim, const int64_t *sizes,
                  const int64_t *strides, uint64_t scale, uint64_t itemsize);
void sim_shape_bytes(sim_shape *shape, uint64_t size);
uint64_t sim_shape_runs(const sim_shape *shape);
/* Returns the offset of the index-th run. */
uint64_t sim_shape_run_at(const sim_shape *shape, uint64_t index);
/* Test whether a shape has a byte in [from, to), and whether two shapes share
 * one there. */
bool sim_shape_touches(const sim_shape *shape, uint64_t from, uint64_t to);
bool sim_shape_meet(const sim_shape *a, const sim_shape *b, uint64_t from,
                    uint64_t to);

#endif
