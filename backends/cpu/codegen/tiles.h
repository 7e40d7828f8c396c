/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tiles.h: kernels of loop programs (core.codegen).
 *
 * A kernel is a list of steps.  Each computes a tile of elements at a time,
 * with the row of the operator that its instruction is defined by; values stay
 * in blocks in the cache, which later values take over.  A tile is usually CPU_BLOCK
 * elements; in a program with reductions it is a row, or a part of a long row.
 * Steps are interpreted; on x86-64, groups of them are native code (native.h). */

#ifndef CPU_TILES_H
#define CPU_TILES_H

#include <libcore/codegen.h>
#include <stdbool.h>

#include "isa.h"
#include "loop/elementwise.h"
#include "vector_code.h"

enum {
    CPU_TILE_BLOCKS = 48, /* the most that a kernel may need at once */
    CPU_TILE_NONE = UINT16_MAX
};

typedef enum cpu_tile_kind {
    CPU_TILE_LOAD,
    CPU_TILE_STORE,
    CPU_TILE_FILL, /* an element: bits, or that of a number operand */
    CPU_TILE_INDEX,
    CPU_TILE_SIZE,
    CPU_TILE_POSITION,
    CPU_TILE_CONVERT,
    CPU_TILE_ROW,
    CPU_TILE_PHILOX,
    CPU_TILE_ROW_SIZE,
    CPU_TILE_SUM,
    CPU_TILE_MAX,
    CPU_TILE_MIN
} cpu_tile_kind;

typedef struct cpu_tile_step {
    uint8_t kind;    /* cpu_tile_kind */
    uint8_t type;    /* dtype of its value, or of what is stored */
    uint8_t from;    /* CONVERT: dtype of its input */
    uint8_t ninputs; /* values */
    uint16_t inputs[3];
    uint16_t block;   /* of its value; CPU_TILE_NONE: none */
    uint16_t operand; /* LOAD, STORE, FILL (CPU_TILE_NONE: bits) */
    uint16_t dimension;
    uint16_t group;    /* 0, or one of the kernel's native groups, from 1 on */
    uint8_t operation; /* ROW: the opcode that it computes, in its types */
    uint64_t bits;
    cpu_row row;
    vector_function *function; /* FUNCTION: as vector code; NULL: none */
    cpu_parameters parameters; /* of the row */
    uint16_t latency;          /* of its vector code, in cycles */
    uint32_t last;             /* the last step that reads its value */
    uint32_t store; /* the only STORE of its value, into whose output the row or
                       group may write directly; 0: none */
    bool constant;  /* the same for all elements: computed once */
    bool uniform;   /* the same for all elements of a tile: computed for one */
    bool spread;    /* constant or uniform, and a step reads it element by
                       element */
    bool single;    /* STORE: of one element for a tile */
    bool stored;    /* by a STORE: a load needs a block */
    bool inside;    /* of its group: nothing else reads it, it has no block */
} cpu_tile_step;

typedef struct cpu_tile_kernel {
    uint32_t nsteps;
    uint32_t nblocks;
    uint32_t noperands;
    uint32_t noutputs;
    bool divides; /* a row may find a division by zero */
    bool reduces; /* a tile is a row of the loop */
    bool whole;   /* only loads, one group and stores: tiles may be large */
    cpu_tile_step *steps;
    uint32_t ngroups;
    struct cpu_native_group *groups; /* in the order of their steps */
} cpu_tile_kernel;

/* How a loop is divided; 0: as is usual. */
typedef struct cpu_tile_division {
    uint32_t tile, threads;
    const core_loop_range *ahead; /* what is read after the kernel */
    uint32_t nahead;
} cpu_tile_division;

/* Runs a kernel on a loop.  *out_failed: an integer was divided by zero.
 * False: no memory. */
bool cpu_tiles_run(const cpu_tile_kernel *kernel, const core_loop *loop,
                   cpu_tile_division division, bool *out_failed);
/* The error that this means, or CORE_OK. */
core_status cpu_tiles_status(bool no_memory_left, bool failed);

/* Per instruction set. */
typedef bool cpu_tiles_function(const cpu_tile_kernel *kernel,
                                const core_loop *loop,
                                cpu_tile_division division, bool *out_failed);
cpu_tiles_function cpu_tiles_run_baseline;
cpu_tiles_function cpu_tiles_run_avx2;
cpu_tiles_function cpu_tiles_run_avx512;

/* The table of core.codegen. */
extern const core_codegen_interface cpu_codegen;

#endif
