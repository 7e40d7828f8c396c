/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* epilogue.h: groups of operators that run on the result of a product, part by
 * part as it is finished.
 *
 * If the kernel of a group (fusion.h) follows a matrix product or a
 * convolution and reads its result, element by element, the device is asked to
 * run both together (codegen.h, launch_after): a part of the result is then
 * still in a cache when the group reads it.  Both kernels compute what they
 * compute alone, so results have the same bits.
 *
 * Epilogues are found when calls of a program are prepared (prepared.h), after
 * chains (row_blocks.h), which they leave alone. */

#ifndef CORE_COMPILE_EPILOGUE_H
#define CORE_COMPILE_EPILOGUE_H

#include "base/json.h"
#include "compile/prepare/row_blocks.h"
#include "compile/program/operator_reasons.h"

enum { CORE__EPILOGUE_DIMS = 3 };

typedef struct core__epilogue {
    uint32_t product, group; /* steps of the set */
    core__step *steps;       /* both, as they were */
    uint32_t result;         /* the operand that is the product's result */
    core_loop *loop; /* with CORE__EPILOGUE_DIMS dimensions; its operands get
                      * the memory of the group's loop */
} core__epilogue;

/* What explain tells about an epilogue. */
typedef struct core__epilogue_description {
    const char *product;      /* as long as the program */
    const char *const *names; /* of the group; the same */
    uint32_t nnames;
    uint64_t elements, bytes_saved;
} core__epilogue_description;

typedef struct core__epilogue_facts {
    _Atomic uint32_t references;
    core__fusion *fusion; /* whose names are described; with a reference */
    core__epilogue_description *all;
    uint32_t count;
    core__operator_reason *refused; /* groups that read a product's result */
    uint32_t nrefused;
    const char *reason; /* why there is none; NULL: there could be */
} core__epilogue_facts;

typedef struct core__epilogues {
    core__epilogue *all;
    uint32_t count;
    core__epilogue_facts *facts; /* with a reference */
} core__epilogues;

/* Finds the epilogues of a set whose steps and chains are known.  Of memory that
 * the steps use, the use is extended to both. */
core_status core__epilogues_find(core__prepared *set, core__row_memory *memory,
                                 core__epilogues *out);
/* Makes their steps, when it is known which steps of the set launch. */
core_status core__epilogues_make_steps(core__prepared *set);
void core__epilogues_free(core__epilogues *epilogues);

core__epilogue_facts *core__epilogue_facts_retain(core__epilogue_facts *facts);
/* Accepts NULL. */
void core__epilogue_facts_release(core__epilogue_facts *facts);
/* Writes the member "epilogues" of an object.  NULL: nothing is known yet. */
void core__epilogue_facts_describe(const core__epilogue_facts *facts,
                                   core__json *json);

/* ---------------------------------------------------------------- parts -- */

/* epilogue_loop.c.  The loop of a group with the dimensions of a product's
 * result, outermost first, of which operand `result` is that result, dense and
 * row-major.  A block that core__free frees; NULL: an operand is not regular in
 * these dimensions. */
core_status core__epilogue_loop(const core_loop *loop, uint32_t result,
                                const int64_t sizes[CORE__EPILOGUE_DIMS],
                                core_loop **out_loop);

#endif
