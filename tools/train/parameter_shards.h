/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* parameter_shards.h: --shard=parameters: each rank keeps a piece of the
 * parameters, of their gradients and of the optimizer's state (ZeRO stage 3;
 * Rajbhandari et al. 2020).
 *
 * The parameters of a block are a unit: one vector, of which rank r has the
 * r-th piece.  An all-gather makes the unit before the block runs, and again
 * before its backward; its gradient is a reduce-scatter, which sums the
 * gradients of all ranks.  model->parameters are then the pieces. */

#ifndef TOOLS_TRAIN_PARAMETER_SHARDS_H
#define TOOLS_TRAIN_PARAMETER_SHARDS_H

#include "train.h"

enum { TRAIN_UNIT = 16 }; /* parameters of a unit, at most */

/* A parameter as the model has it. */
typedef struct train_whole {
    char *name;
    int64_t sizes[2];
    uint32_t ndim;
    int64_t numel;
} train_whole;

typedef struct train_unit {
    size_t first, count; /* of the parameters */
    int64_t numel;       /* of all of them */
    char label[80];      /* for messages: "block1.*", or a parameter's name */
} train_unit;

struct train_pieces {
    core_comm *comm; /* borrowed */
    train_whole *parameters;
    size_t count;
    train_unit *units;
    size_t nunits;
    core_tensor **pieces; /* one for each unit, [n], which requires grad */
    const char **names;   /* of the units */
};

/* Replaces the model's parameters, which are released, by pieces. */
core_status train_pieces_create(trainer *t);
void train_pieces_free(train_pieces *pieces);

/* Gathers a unit; the innermost scope owns its parameters.  piece: that of the
 * unit.  All ranks call it. */
void train_pieces_gather(const train_pieces *pieces, size_t unit,
                         core_tensor *piece,
                         core_tensor *out_parameters[TRAIN_UNIT]);
/* Returns the number of elements of all parameters. */
int64_t train_pieces_numel(const train_pieces *pieces);

/* Joins the pieces of all ranks, on the host: of the parameters, or of tensors
 * of the same sizes.  *out_numbers: free it.  All ranks call it. */
core_status train_pieces_join(const train_pieces *pieces, core_tensor *piece,
                              float **out_numbers);
/* Hashes all parameters as train_model_digest does, gathered.  *out_moved: the
 * number, from 1, of the first unit in which this rank has gathered other numbers
 * at the place of its piece; 0: none.  All ranks call it. */
core_status train_pieces_digest(const train_pieces *pieces,
                                uint64_t *out_digest, size_t *out_moved);
/* For --verify: fails if a rank has gathered other parameters than rank 0, or
 * other ones than it keeps in its piece. */
core_status train_pieces_verify(const trainer *t);
/* Fills this rank's piece from the numbers of a unit. */
core_status train_pieces_take(const train_pieces *pieces, size_t unit,
                              const float *numbers, core_tensor *piece);

#endif
