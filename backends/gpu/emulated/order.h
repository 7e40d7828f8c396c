/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* order.h: in which order the blocks of a launch run, and a block's threads from
 * one cooperative to the next.  A device promises none: what depends on it shows
 * where the order changes. */

#ifndef GPU_EMULATED_ORDER_H
#define GPU_EMULATED_ORDER_H

#include <stdint.h>

/* 0: as they are counted.  Else each launch has another order, and a process
 * that launches the same after the same number the same ones.  Before any launch,
 * or with the lock that launches hold (fiber.c). */
void gpu_emulated_set_order(uint64_t number);

#endif
