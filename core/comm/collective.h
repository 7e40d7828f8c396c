/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collective.h: the collectives of libcore/comm.h: checks and calls. */

#ifndef CORE_COMM_COLLECTIVE_H
#define CORE_COMM_COLLECTIVE_H

#include "comm/comm.h"

/* A collective, as its gradient needs it. */
typedef struct core__collective {
    core_comm *comm;
    uint32_t kind;
    uint32_t reduction;
    uint32_t root; /* of broadcast and reduce; the other rank of a message */
    bool at_once;  /* a gradient, which is used before a group would end */
    bool scalar;   /* the input has no dimensions, and the result has one */
    /* Of core_all_to_all_rows; one for each rank. */
    const int64_t *send_rows, *receive_rows;
} core__collective;

/* Calls the engine, in a call. */
core_status core__collective_submit(const core__collective *c,
                                    core_tensor *input, core_tensor *output);

/* Collectives into a tensor that exists, without autograd; like the public
 * functions otherwise.  name: of the public function, for errors. */
core_status core__reduce_scatter_into(core_comm *comm, const char *name,
                                      core_tensor *input, uint32_t reduction,
                                      core_tensor *output);
core_status core__all_gather_into(core_comm *comm, const char *name,
                                  core_tensor *input, core_tensor *output);

/* checks.c; name: of the public function. */
core_status core__comm_check_tensor(const core_comm *comm, const char *name,
                                    const core_tensor *tensor);
/* The tensor is changed. */
core_status core__comm_check_changed(const core_comm *comm, const char *name,
                                     const core_tensor *tensor);
core_status core__comm_check_reduction(const core_comm *comm, const char *name,
                                       core_dtype dtype, uint32_t reduction);
/* other: not this rank. */
core_status core__comm_check_rank(const core_comm *comm, const char *name,
                                  uint32_t rank, bool other);
/* The engine has this collective. */
core_status core__comm_check_kind(const core_comm *comm, const char *name,
                                  uint32_t kind);
/* Dimension 0 can be divided by the number of ranks. */
core_status core__comm_check_parts(const core_comm *comm, const char *name,
                                   const core_tensor *input);
core_status core__comm_check_rows(const core__collective *c, const char *name,
                                  const core_tensor *input);

#endif
