/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* row_loop.h: the building blocks of the rows that gen_kernels.py writes. */

#ifndef CPU_ROW_LOOP_H
#define CPU_ROW_LOOP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <expressions/functions.h>

#include "loop.h"
#include "math/special.h"

/* A row (elementwise.h); few use all of its arguments. */
#define ROW_FUNCTION(name)                                     \
    static core_status name(                                   \
        char *out, const char *first __attribute__((unused)),  \
        const char *second __attribute__((unused)), int64_t n, \
        cpu_parameters *q __attribute__((unused)),             \
        char *const *p __attribute__((unused)))

#endif
