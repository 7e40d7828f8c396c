/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* write_parts.h: writes of parts of inputs, in runs operator by operator.
 *
 * A function that writes to a view of an input, such as a row of a cache, gives
 * the whole input a new content in its program: as_strided_scatter of the old
 * content and the part.  If nothing else reads that content, its node does not
 * run, and the part alone is copied to the input at the end of the run. */

#ifndef CORE_COMPILE_WRITE_PARTS_H
#define CORE_COMPILE_WRITE_PARTS_H

#include "compile/run/run.h"

/* By node, whether it does not run.  *out is NULL if all do; core__free frees
 * it. */
core_status core__write_parts_find(const core__run *r, bool **out_parts);
/* Copies the values of parts that a write changes. */
core_status core__write_parts_keep(core__run *r, uint32_t value);
/* Makes the write of a value whose node did not run. */
core_status core__write_parts(core__run *r, const core__program_write *write);

#endif
