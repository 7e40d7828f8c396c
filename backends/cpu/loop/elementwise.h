/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.h: the parts of an element-wise operator.  Rows and drivers are
 * compiled per instruction set (loop.h), the table of operators once. */

#ifndef CPU_ELEMENTWISE_H
#define CPU_ELEMENTWISE_H

#include <stdint.h>

#include "cpu.h"

enum { CPU_OPERANDS = 6, CPU_PARAMETERS = 4 };

/* Additional input of a row. */
typedef struct cpu_parameters {
    double d[CPU_PARAMETERS];
    int64_t i[CPU_PARAMETERS];
    uint64_t bits;   /* rows that move data: an element */
    int32_t failure; /* set by a row, with cpu_row_fail, for data without a
                      * result */
} cpu_parameters;

/* Computes dense runs of n elements of the row's types: out from a, b and, if
 * there are more, p[3] on (p has all operands).  Returns CORE_OK, so that a
 * kernel may end in the call of a row. */
typedef core_status (*cpu_row)(char *out, const char *a, const char *b,
                               int64_t n, cpu_parameters *parameters,
                               char *const *p);

static inline void cpu_row_fail(cpu_parameters *parameters)
{
    __atomic_store_n(&parameters->failure, 1, __ATOMIC_RELAXED);
}

/* An operator for one type; the user pointer of a registration.  There are
 * hundreds, all written when the plugin is loaded, so they are small. */
typedef struct cpu_elementwise {
    cpu_row row;         /* rows[0] */
    const cpu_row *rows; /* its variants, which `choice` chooses from */
    int32_t grain;       /* elements per chunk, for one thread */
    /* Types of the row's operands; 0: that of the operand, never converted. */
    uint8_t types[CPU_OPERANDS];
    uint8_t choice; /* CPU_CHOICE_… */
    uint8_t nparameters;
    uint8_t argument[CPU_PARAMETERS]; /* the argument of each parameter */
    /* its value if absent or NONE, in cpu_elementwise_constants */
    uint8_t otherwise[CPU_PARAMETERS];
} cpu_elementwise;

/* What selects the variant of a row (variant_select.c). */
enum {
    CPU_CHOICE_NONE,
    CPU_CHOICE_ALPHA,    /* alpha is 1; it is not */
    CPU_CHOICE_ROUNDING, /* none; "trunc"; "floor"; of f16; of bf16 */
    CPU_CHOICE_TANH,     /* approximate is "none"; "tanh" */
    CPU_CHOICE_CLAMP,    /* both bounds; lower; upper */
    CPU_CHOICE_POWER,    /* any exponent; 2; 3; 0.5; -1; -2; -0.5 */
    CPU_CHOICE_DTYPE,    /* any; f16; bf16 */
    CPU_CHOICE_BITS,     /* one; parameters->bits is args[argument[0]] */
    CPU_CHOICE_BOUND,    /* one; parameter 0 is a number of the input's dtype */
    CPU_CHOICE_FINITE    /* one; parameters 1 and 2 are finite in that dtype */
};

/* Returns the variant for a call, or -1. */
int cpu_variant_select(const cpu_elementwise *self, const core_call *call,
                       const core_value *args, uint32_t nargs);

/* The instruction set's part of the table of kernels. */
enum {
    CPU_LOOP_GENERAL,
    CPU_LOOP_PLAIN,
    CPU_LOOP_PLAIN_1,
    CPU_LOOP_PLAIN_2,
    CPU_LOOP_ALPHA,
    CPU_LOOP_FUNCTIONS
};
typedef struct cpu_loop_functions {
    core_function functions[CPU_LOOP_FUNCTIONS];
    const cpu_row *rows; /* of all operators, as elementwise.c counts them */
} cpu_loop_functions;
extern const cpu_loop_functions cpu_loop_functions_baseline;
extern const cpu_loop_functions cpu_loop_functions_avx2;
extern const cpu_loop_functions cpu_loop_functions_avx512;

extern const double cpu_elementwise_constants[];

/* The kernels, made for an instruction set; valid between open and close. */
core_status cpu_elementwise_open(const cpu_loop_functions *functions);
extern const uint32_t cpu_elementwise_count;
void cpu_elementwise_row(uint32_t at, cpu_kernel *out);
void cpu_elementwise_close(void);

#endif
