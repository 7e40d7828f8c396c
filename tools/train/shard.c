/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* --shard: each rank has a part of the optimizer's state, which it saves beside
 * the checkpoint: FILE.STEPS-RUN.RANK.  RUN is a number that another run does not
 * have: a run that is stopped between its parts and FILE leaves those of which
 * FILE says the name. */

#include "layers.h"
#include "parameter_shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The time of rank 0. */
static core_status number_run(trainer *t)
{
    struct timespec now;
    core_tensor *sent;
    core_status status;

    clock_gettime(CLOCK_REALTIME, &now);
    t->shard_run = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    CORE_TRY(core_tensor_from_data(&t->shard_run, CORE_I64, NULL, 0, t->device,
                                   &sent));
    status = core_broadcast(t->comm, sent, 0);
    if (status == CORE_OK)
        status = core_tensor_read(sent, &t->shard_run, sizeof t->shard_run);
    if (status == CORE_OK)
        status = core_comm_error(t->comm);
    core_tensor_release(sent);
    return status;
}

core_status train_shard_create(trainer *t)
{
    const core_shard_options options = {.struct_size = sizeof options,
                                        .level = t->options.shard_level};
    size_t count;

    if (!t->options.shards)
        return CORE_OK;
    if (t->options.shard_level == TRAIN_SHARD_PARAMETERS)
        return train_pieces_create(t);
    CORE_TRY(number_run(t));
    CORE_TRY(core_shard_create(t->comm, t->model.parameters, t->model.count,
                               &options, &t->shard));
    count = core_shard_piece_count(t->shard);
    t->pieces = calloc(count + 1, sizeof *t->pieces);
    if (!t->pieces)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a shard");
    for (size_t i = 0; i < count; i++)
        t->pieces[i] = core_shard_piece(t->shard, i);
    return CORE_OK;
}

core_status train_shard_share(trainer *t)
{
    bool grads = core_grad_mode_set(false);
    core_status status = CORE_OK;

    for (size_t i = 0; status == CORE_OK && i < t->model.count; i++)
        status = core_broadcast(t->comm, t->model.parameters[i], 0);
    core_grad_mode_set(grads);
    return status;
}

size_t train_shard_optimized(const trainer *t, core_tensor *const **out_tensors)
{
    *out_tensors = t->shard ? t->pieces : t->model.parameters;
    return t->shard ? core_shard_piece_count(t->shard) : t->model.count;
}

/* -------------------------------------------------------- checkpoints -- */

static char *path_of(const char *save, const char *suffix)
{
    size_t size = strlen(save) + strlen(suffix) + 1;
    char *path = malloc(size);

    if (path)
        snprintf(path, size, "%s%s", save, suffix);
    return path;
}

core_status train_shard_save(trainer *t)
{
    char suffix[TRAIN_SUFFIX];
    core_status status;
    char *path;

    if (!t->shard || !t->shard_save)
        return CORE_OK;
    snprintf(suffix, sizeof suffix, ".%lld-%llx", (long long)trainer_steps(t),
             (unsigned long long)t->shard_run);
    if (strcmp(suffix, t->shard_suffix) == 0)
        return CORE_OK; /* saved already */
    path = path_of(t->shard_save, suffix);
    if (!path)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a path");
    status = core_shard_save(t->shard, t->optimizer, path);
    free(path);
    if (status == CORE_OK) {
        memcpy(t->shard_before, t->shard_suffix, sizeof suffix);
        memcpy(t->shard_suffix, suffix, sizeof suffix);
    }
    return status;
}

void train_shard_remove(trainer *t)
{
    char suffix[TRAIN_SUFFIX + 16], *path;
    bool found = t->shard && t->shard_before[0];

    for (uint32_t r = 0; found; r++) {
        snprintf(suffix, sizeof suffix, "%s.%u", t->shard_before, r);
        path = path_of(t->shard_save, suffix);
        found = path && unlink(path) == 0;
        free(path);
    }
    t->shard_before[0] = '\0';
}

core_status train_shard_load(trainer *t, const char *checkpoint,
                             const char *suffix)
{
    char *path = path_of(checkpoint, suffix);
    core_status status;

    if (!path)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a path");
    status = core_shard_load(t->shard, t->optimizer, path);
    free(path);
    /* The files are removed after the next ones are saved. */
    if (t->shard_save && strcmp(t->shard_save, checkpoint) == 0)
        snprintf(t->shard_suffix, TRAIN_SUFFIX, "%s", suffix);
    return status;
}
