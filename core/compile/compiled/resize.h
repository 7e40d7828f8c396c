/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resize.h: the program of a function for sizes with which it was not
 * recorded. */

#ifndef CORE_COMPILE_RESIZE_H
#define CORE_COMPILE_RESIZE_H

#include "compile/compiled/recorded_call.h"
#include "compile/compiled/symbolic_size.h"

/* Makes the program of a recording with the sizes of other inputs, and with the
 * numbers that follow from them.  The types of values are inferred again.
 * *joint becomes what is known besides a joint program, if it is one.
 * UNSUPPORTED: the function must be recorded with these sizes. */
core_status core__program_resize(const core__recorded_call *r,
                                 const core__dynamic_number *numbers,
                                 uint32_t ndynamic, core_tensor *const *inputs,
                                 const int64_t *symbols, core__joint *joint,
                                 core_program **out);

#endif
