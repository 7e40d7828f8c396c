/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* row_blocks.h: kernels that follow each other and run block of rows by block
 * of rows.
 *
 * Element-wise operators, softmax, layer norm and some others treat each row of
 * their operands by itself.  A chain of such launches need not run each on the
 * whole tensors: all of them run on the first rows, then on the next ones.  If
 * a block fits a near cache, what one kernel writes is still there when the
 * next one reads it; and a result that only these kernels read needs memory for
 * one block.  The kernels are the same and treat each row as before, so results
 * have the same bits.  The device says how large a block may be, and that its
 * kernels do not depend on the number of rows (core_codegen_interface,
 * row_block).
 *
 * Chains are found when calls of a program are prepared (prepared.h), before
 * memory is planned: a chain is a sequence of steps. */

#ifndef CORE_COMPILE_ROW_BLOCKS_H
#define CORE_COMPILE_ROW_BLOCKS_H

#include "base/json.h"
#include "compile/program/operator_reasons.h"
#include "dispatch/launch_log.h"

typedef struct core__fusion core__fusion;
typedef struct core__prepared core__prepared;
typedef struct core__step core__step;

/* A size in the call of a kernel, for a row. */
typedef struct core__row_count {
    int64_t *at;
    int64_t per_row;
} core__row_count;

/* An address in the call of a kernel, and where the next row is. */
typedef struct core__row_place {
    core_memory *at;
    uint64_t per_row;
    uint64_t start; /* during a call: of the first row */
    bool ahead;     /* the step that loads ahead requests it */
} core__row_place;

/* The first number that a random kernel draws. */
typedef struct core__row_draw {
    core_value *at;
    int64_t per_row;
    int64_t start;
} core__row_draw;

/* The most places of a chain that are requested ahead: a processor follows few
 * streams of memory at once. */
enum { CORE__ROW_AHEAD_MOST = 4 };

typedef struct core__row_chain {
    uint32_t first, count; /* steps of the set */
    int64_t rows, block;   /* rows of all, and of a block */
    /* What differs from block to block; consecutive in the arrays. */
    uint32_t counts, ncounts, places, nplaces, draws, ndraws;
    core__step *steps; /* those that launch */
    uint32_t nsteps;
    uint32_t nahead;  /* places that are requested ahead */
    uint32_t loading; /* the step that requests them; 0: none does */
} core__row_chain;

/* What explain tells about a chain. */
typedef struct core__row_description {
    const char **names; /* of its operators; as long as the program */
    uint32_t nnames;
    uint32_t kernels;
    int64_t rows, block;
    uint64_t bytes_saved, memory_saved;
} core__row_description;

typedef struct core__row_facts {
    _Atomic uint32_t references;
    core__row_description *chains;
    uint32_t nchains;
    core__operator_reason *ends;
    uint32_t nends;
    const char *reason; /* why there is none; NULL: there could be */
} core__row_facts;

typedef struct core__row_blocks {
    core__row_chain *chains;
    core__row_count *counts;
    core__row_place *places;
    core__row_draw *draws;
    uint32_t nchains, ncounts, nplaces, ndraws;
    core__row_facts *facts; /* with a reference */
} core__row_blocks;

/* Memory that steps use, as it is known before it is planned. */
typedef struct core__row_memory {
    uint32_t root;        /* the memory in which it is, or itself */
    uint64_t distance;    /* from the start of that */
    uint64_t size;        /* bytes */
    bool temporary;       /* its content is of no use after the last step */
    uint32_t first, last; /* steps that use it */
} core__row_memory;

/* Finds the chains of a set whose steps are known, with operands that are at a
 * distance from a memory.  Of memory that a chain uses, the steps that use it
 * become all of the chain; a temporary one that only the chain uses becomes
 * smaller instead. */
core_status core__row_blocks_find(core__prepared *set, core__row_memory *memory,
                                  core__row_blocks *out);
/* Makes the steps of the chains, when it is known which of them launch. */
core_status core__row_blocks_make_steps(core__prepared *set);
void core__row_blocks_free(core__row_blocks *blocks);

core__row_facts *core__row_facts_retain(core__row_facts *facts);
/* Accepts NULL. */
void core__row_facts_release(core__row_facts *facts);
/* Writes the member "row_blocks" of an object.  NULL: nothing is known yet. */
void core__row_facts_describe(const core__row_facts *facts, core__json *json);

/* ---------------------------------------------------------------- parts -- */

/* row_operands.c.  An operand of a launch, row by row. */
typedef struct core__row_operand {
    core_memory *at;
    uint32_t memory;  /* the root */
    uint64_t start;   /* bytes from its start */
    uint64_t size;    /* bytes of all rows, or of what each row uses */
    uint64_t per_row; /* bytes from row to row; 0: each row uses all of it */
    bool written;
    bool apart; /* no two rows use the same bytes, and they are in order */
} core__row_operand;

typedef struct core__row_launch {
    int64_t rows;       /* 0: it cannot be divided, for this reason: */
    const char *reason; /* static */
    uint32_t operands, noperands; /* in the array of the search */
    uint32_t counts, ncounts;
    int64_t numbers; /* that are drawn for a row; 0: none */
} core__row_launch;

typedef struct core__row_search {
    core__row_operand *operands;
    core__row_count *counts;
    uint32_t noperands, ncounts;
} core__row_search;

/* How a step can be divided.  Rows may be the smallest ones that are
 * possible. */
void core__row_launch_describe(const core__step *step,
                               const core__row_memory *memory,
                               core__row_search *search, core__row_launch *out);
/* Joins the dimensions of rows of the views of a launch, which keeps its
 * result. */
void core__row_launch_join(const core__step *step);

#endif
