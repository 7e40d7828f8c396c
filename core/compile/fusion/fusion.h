/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fusion.h: groups of element-wise operators of a program that one kernel
 * computes.
 *
 * A group is a set of element-wise operators and conversions whose results have
 * the same sizes.  It is written as a loop program (codegen/loop_program.h), of
 * which the device makes a kernel.  The kernel reads each input once and writes
 * only what is read outside of the group; the bits are those of the operators.
 * Groups are made when calls of a program are prepared (prepared.h), before
 * memory is planned.  They are not part of the program: it stays what was
 * recorded, in its text, in files and when it runs operator by operator. */

#ifndef CORE_COMPILE_FUSION_H
#define CORE_COMPILE_FUSION_H

#include "codegen/background_build.h"
#include "codegen/loop_kernel.h"
#include "compile/program/operator_reasons.h"
#include "compile/program/program.h"

#include <libcore/compiled.h>

enum {
    /* Larger groups are divided. */
    CORE__GROUP_MEMBERS = 96,
    /* core_program.codegen, besides CORE_COMPILE_CODEGEN_…: AUTO, with groups
     * that are measured. */
    CORE__CODEGEN_MEASURED = CORE_COMPILE_CODEGEN_ON + 1
};

typedef struct core__fused_group {
    /* Its nodes: order[first] to order[first + count - 1], in an order in which
     * they can run. */
    uint32_t first, count;
    core__loop_kernel *kernel; /* NULL: the operators run one by one: */
    char *reason;
    core__loop_build *build; /* of the kernel, in the background; or NULL */
    uint32_t *values;        /* by operand of the kernel, outputs first */
    uint32_t noperands, noutputs;
    uint32_t space;    /* a value with the sizes of the kernel's loop */
    uint32_t nreduced; /* operators that reduce its last dimension; 0: none */
    uint64_t elements; /* of each result, or of what is reduced */
    uint64_t bytes_saved; /* that are not read and not written, in each call */
    /* How long a call takes with the kernel, and without; 0: not measured. */
    uint64_t fused_ns, operators_ns;
    core__loop_division
        division; /* of the loop, the fastest that was measured */
} core__fused_group;

typedef struct core__fusion {
    _Atomic uint32_t references;
    uint32_t registered, generation; /* when it was made */
    bool waits;                      /* kernels were being built then */
    core_device *device;             /* as long as the program */
    void *impl;                      /* of the device */
    uint32_t *order;                 /* of the nodes of the program */
    const char **names;              /* of their operators, in this order */
    core__fused_group *groups;       /* in this order */
    core__operator_reason *ends; /* what stands between operators that could be
                                  * in one group otherwise */
    uint32_t ngroups, nends;
    const char *reason; /* why nothing is fused; NULL: something could be */
    bool always;        /* also where it is not expected to be faster */
    bool measured;      /* what is faster (tune.h) */
} core__fusion;

/* Finds the groups of a program and builds their kernels.  tensors: by value,
 * those of inputs and hidden inputs.  A group whose kernel cannot be built has
 * a reason instead, which is not an error. */
core_status core__fusion_new(core_program *program, core_device *device,
                             core_tensor *const *tensors,
                             core__fusion **out_fusion);
core__fusion *core__fusion_retain(core__fusion *fusion);
/* Accepts NULL. */
void core__fusion_release(core__fusion *fusion);

/* True if kernels for which a fusion waits are there, or have failed: another
 * one finds them, as long as this one exists. */
bool core__fusion_is_built(const core__fusion *fusion);

/* True if a fusion was made for the state in which the process is now. */
bool core__fusion_is_current(const core__fusion *fusion);

/* Writes what is fused, and what is not and why, as the member "fusion" of an
 * object.  NULL: nothing is known yet. */
void core__fusion_describe(const core__fusion *fusion, core__json *json);

/* Adds the counts of the process. */
void core__fusion_add_counts(core_compile_counts *counts);

/* Whether a group can run on parts of the result of an operator. */
bool core__epilogue_follows(const core_operator *op);

/* ---------------------------------------------------------------- parts -- */

/* fusion_groups.c.  Sets group[node] to the number of a group, from 1 on, or 0,
 * and puts the nodes in an order in which they can run and those of a group
 * follow each other. */
typedef struct core__grouping {
    const core_program *program;
    core_tensor *const *tensors;
    uint32_t *order; /* in which they can run; replaced */
    uint32_t *group; /* by node */
    uint32_t ngroups;
    /* Groups that do not read each other are joined if there are so many, and
     * each result, or what is reduced, has so many bytes. */
    uint32_t joined_least;
    uint64_t joined_most;
    bool has_epilogues;  /* (epilogue.h) */
    const char *no_rows; /* why nothing that reduces rows is in a group */
    core__operator_reason *ends;
    uint32_t nends;
} core__grouping;
core_status core__fusion_group(core__grouping *grouping);

/* fusion_program.c.  *out_reason: why a node cannot be in a group, static;
 * NULL: it can.  no_rows: why one that reduces rows cannot; NULL: it can. */
core_status core__fusion_refuses(const core_program *program,
                                 core_tensor *const *tensors,
                                 const core__program_node *node,
                                 const char *no_rows, const char **out_reason);
/* Writes the loop program of a group.  is_read: by value, whether something
 * outside of the group reads it. */
core_status core__fusion_write(const core_program *program,
                               core_tensor *const *tensors,
                               const uint32_t *nodes, const bool *is_read,
                               core__fused_group *group,
                               core_loop_program **out_program);

/* fusion_rows.c.  Operators that reduce the last dimension.  In a group with
 * one, that dimension is a row of the loop (libcore/codegen.h); sums may be
 * added in another order than the operator adds them. */
bool core__fusion_is_of_rows(const core__program_node *node);
/* Why such a node cannot be in a group, static; NULL: it can. */
const char *core__fusion_refuses_rows(const core_program *program,
                                      const core__program_node *node);
/* A value with the sizes over which any node that can be fused runs: its
 * result, or what it reduces. */
uint32_t core__fusion_space_value(const core__program_node *node);
const core__program_type *core__fusion_space(const core_program *program,
                                             const core__program_node *node);
/* The dtype to which such a node converts its first argument before it
 * computes, of those of that argument and its result.  Integers are summed in
 * i64: what narrower ones become makes no difference. */
core_dtype core__fusion_row_cast(const core__program_node *node, core_dtype in,
                                 core_dtype out);
/* The dtype in which it computes, of that one and its result's. */
core_dtype core__fusion_row_type(const core__program_node *node, core_dtype in,
                                 core_dtype out);
/* Writes it for inputs of that dtype, one per tensor argument; a layer norm has
 * three, of which the last two may be CORE__LOOP_NO_VALUE. */
uint32_t core__fusion_write_row(const core_program *program,
                                const core__program_node *node,
                                core__loop_writer *w, core_dtype type,
                                const uint32_t *in);

#endif
