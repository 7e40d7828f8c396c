/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optim.h: the instruction set's part of optim.c. */

#ifndef CPU_OPTIM_H
#define CPU_OPTIM_H

#include <stdint.h>

#include "isa.h"

enum {
    CPU_STEP_LISTS = 4, /* parameters, gradients, state */
    CPU_STEP_ROUND = 16 /* elements are computed in multiples of this */
};

/* The numbers of a step, the same for all elements; rounded to an element's
 * type where they are used, like numbers in operators. */
typedef struct cpu_step {
    double decay;           /* of the gradient, or of the parameter */
    double beta1, beta2;    /* SGD: momentum, and nothing */
    double share1, share2;  /* of the gradient in the state */
    double epsilon, root;   /* Adam: sqrt(1 - beta2 ^ step) */
    double rate, remainder; /* below 0; 1 - learning rate * decay */
    double coupled, decoupled, nesterov, first; /* 0 or 1 */
} cpu_step;

/* Elements 0 to n of every list, n a multiple of CPU_STEP_ROUND. */
typedef void (*cpu_step_function)(const cpu_step *step, void *const *lists,
                                  int64_t n);

enum { CPU_STEP_ADAM, CPU_STEP_MOMENTUM, CPU_STEP_PLAIN, CPU_STEP_KINDS };

typedef struct cpu_step_functions {
    cpu_step_function f32[CPU_STEP_KINDS], f64[CPU_STEP_KINDS];
} cpu_step_functions;

extern const cpu_step_functions cpu_step_functions_baseline;
extern const cpu_step_functions cpu_step_functions_avx2;
extern const cpu_step_functions cpu_step_functions_avx512;

#endif
