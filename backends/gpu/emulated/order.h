/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* order.h: the order in which the blocks of a launch run, and the threads of a
 * block between barriers.  A device guarantees none; results that depend on it
 * change with the order. */

#ifndef GPU_EMULATED_ORDER_H
#define GPU_EMULATED_ORDER_H

#include <stdint.h>

/* 0: index order.  Otherwise each launch has another order, and equal sequences
 * of launches in a process have the same orders.  Called before any launch, or
 * with the lock that launches hold (fiber.c). */
void gpu_emulated_set_order(uint64_t number);

#endif
