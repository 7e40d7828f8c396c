/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* comm.h: what core-info shows of collectives among processes. */

#ifndef INFO_COMM_H
#define INFO_COMM_H

#include "base/json.h"

/* Show the engines, whether this process can use them, and the variables of a
 * launcher. */
void print_comm(void);
void write_comm(core__json *json);

#endif
