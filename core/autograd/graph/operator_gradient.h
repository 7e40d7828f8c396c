/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* operator_gradient.h: gradients that programs and plugins register for an
 * operator. */

#ifndef CORE_AUTOGRAD_OPERATOR_GRADIENT_H
#define CORE_AUTOGRAD_OPERATOR_GRADIENT_H

#include "dispatch/registry.h"

#include <libcore/function.h>

/* recorded, unless NULL, counts the recorded calls whose nodes still need the
 * gradient's functions. */
core_status core__gradient_add(core_registry *registry,
                               core_string operator_name,
                               const core_operator_gradient *gradient,
                               _Atomic uint64_t *recorded);

#endif
