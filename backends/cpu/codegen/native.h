/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* native.h: native code for the steps of a kernel of a loop program.
 *
 * Steps that compute element by element, and for which there is vector code,
 * are compiled in groups.  A group is a function on a tile: it loads what the
 * steps before it have computed, keeps its own values in registers, and stores
 * those that other steps read.  The other steps, and all of them where there is
 * no native code, are interpreted.  Both compute the same bits. */

#ifndef CPU_NATIVE_H
#define CPU_NATIVE_H

#include "tiles.h"
#include "vector_code.h"
#include "x86_compile.h"

/* Memory checkers do not see what generated code reads and writes. */
#if defined(CPU_X86_ISA) && defined(__linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_NATIVE 1
#else
#define CPU_NATIVE 0
#endif
#if CPU_NATIVE && defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#undef CPU_NATIVE
#define CPU_NATIVE 0
#endif
#endif

typedef struct cpu_native_group {
    uint32_t first, end; /* steps */
    void *memory;        /* of its code */
    /* Several vectors at a time, or NULL, and one; and how many elements each
     * computes at a time. */
    x86_function *unrolled, *function;
    uint32_t unrolled_elements, elements;
    bool uniform; /* of its values, one element is computed */
    uint32_t npointers;
    /* What the function's pointers are: the elements of these steps' values. */
    uint16_t step[VECTOR_POINTERS];
    uint8_t size[VECTOR_POINTERS]; /* of an element, in bytes */
    uint8_t role[VECTOR_POINTERS]; /* CPU_NATIVE_… */
} cpu_native_group;

enum {
    CPU_NATIVE_INPUT,
    CPU_NATIVE_UNIFORM, /* its first element */
    CPU_NATIVE_OUTPUT
};

/* Reads the setting LIBCORE_CPU_NATIVE. */
void cpu_native_choose(const core_host *host);
/* Whether native code may be made: not if the setting or the instruction set
 * rules it out, or the system has refused executable memory. */
bool cpu_native_is_on(void);

/* Reorders the steps of a kernel, which know whether they are constant or
 * uniform, and compiles groups of them.  Without native code, or memory for it,
 * there are no groups. */
void cpu_native_make(cpu_tile_kernel *kernel);
/* Frees the groups of a kernel. */
void cpu_native_free(cpu_tile_kernel *kernel);
/* Runs a group on n elements.  Changes the pointers. */
void cpu_native_run(const cpu_native_group *group, char **pointers, int64_t n);

#endif
