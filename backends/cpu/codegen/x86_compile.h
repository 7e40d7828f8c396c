/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* x86_compile.h: machine code of vector code. */

#ifndef CPU_X86_COMPILE_H
#define CPU_X86_COMPILE_H

#include "vector_code.h"
#include "x86_encode.h"

/* The compiled function.  Computes n elements: n > 0 is a multiple of
 * x86_result.elements. */
typedef void x86_function(char *const *pointers, int64_t n);

enum { X86_CODE_ALIGNMENT = 64 /* of the code in memory */ };

typedef struct x86_result {
    uint32_t entry;    /* where the function begins */
    uint32_t elements; /* that it computes at a time */
    uint32_t spills;   /* values that are put on the stack in the loop */
} x86_result;

/* Appends constants and code to `out`.  With mask registers it is AVX-512 (F, BW,
 * DQ, VL), else AVX2 with FMA and F16C.  False if it does not fit, or there is no
 * memory. */
bool x86_compile(const vector_code *code, x86_code *out,
                 x86_result *out_result);

#endif
