/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shard.h: the pieces of parameters that belong to a rank
 * (libcore/shard.h). */

#ifndef CORE_COMM_SHARD_H
#define CORE_COMM_SHARD_H

#include "comm/reducer.h"

typedef struct core__piece {
    core_tensor *tensor; /* with a reference, like the next one */
    core_tensor *grad;   /* in the bucket's part */
    uint32_t parameter;
    int64_t first; /* in the parameter's memory */
} core__piece;

struct core_shard {
    core_reducer *reducer;
    core__piece *pieces; /* by parameter in the reducer's order */
    size_t npieces;
};

/* The piece of a parameter, of which each rank has at most one; SIZE_MAX:
 * none. */
size_t core__shard_find_piece(const core_shard *shard, uint32_t parameter);

#endif
