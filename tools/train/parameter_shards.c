/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "parameter_shards.h"

#include "layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- units -- */

/* Parameters of a block have a name that begins with that of the block. */
static bool same_unit(const char *a, const char *b)
{
    size_t size = strcspn(a, ".");

    if (!a[size] || !strchr(b, '.'))
        return !a[size] && !strchr(b, '.');
    return strncmp(a, b, size + 1) == 0;
}

static core_status take_sizes(train_whole *to, const char *name,
                              const core_tensor *parameter)
{
    to->name = strdup(name);
    to->ndim = core_tensor_ndim(parameter);
    to->numel = core_tensor_numel(parameter);
    if (!to->name)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "--shard=parameters: no memory for the name of %s",
                           name);
    if (to->ndim > 2)
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "--shard=parameters: the parameter %s has %u "
                           "dimensions; at most 2 are supported",
                           name, to->ndim);
    memcpy(to->sizes, core_tensor_sizes(parameter),
           to->ndim * sizeof *to->sizes);
    return CORE_OK;
}

/* The names of all parameters, or those of a block in short. */
static void label(const train_pieces *all, train_unit *unit)
{
    const char *name = all->parameters[unit->first].name;
    size_t used = 0;

    if (unit->count > 1 && strchr(name, '.')) {
        snprintf(unit->label, sizeof unit->label, "%.*s.*",
                 (int)strcspn(name, "."), name);
        return;
    }
    for (size_t i = 0; i < unit->count && used < sizeof unit->label; i++)
        used += (size_t)snprintf(unit->label + used, sizeof unit->label - used,
                                 "%s%s", i ? " or " : "",
                                 all->parameters[unit->first + i].name);
}

static core_status divide(train_pieces *all, const train_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        train_unit *unit = all->nunits ? &all->units[all->nunits - 1] : NULL;

        all->count++; /* whose names are freed */
        CORE_TRY(take_sizes(&all->parameters[i], model->names[i],
                            model->parameters[i]));
        if (!unit || unit->count == TRAIN_UNIT ||
            !same_unit(model->names[unit->first], model->names[i])) {
            unit = &all->units[all->nunits++];
            *unit = (train_unit){.first = i};
        }
        unit->count++;
        unit->numel += all->parameters[i].numel;
    }
    for (size_t u = 0; u < all->nunits; u++) {
        label(all, &all->units[u]);
        all->names[u] = all->units[u].label;
    }
    return CORE_OK;
}

/* The elements of a piece; the last ones of the last ranks are padding. */
static int64_t piece_size(const train_pieces *all, size_t unit)
{
    int64_t ranks = core_comm_size(all->comm);

    return (all->units[unit].numel + ranks - 1) / ranks;
}

static core_status cut(train_pieces *all, const train_model *model, size_t u)
{
    const train_unit *unit = &all->units[u];
    float *numbers = calloc((size_t)unit->numel, sizeof *numbers),
          *at = numbers;
    int64_t size = piece_size(all, u);
    core_status status = CORE_OK;

    if (!numbers)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a unit");
    for (size_t i = unit->first;
         status == CORE_OK && i < unit->first + unit->count; i++) {
        int64_t numel = all->parameters[i].numel;

        status = core_tensor_read(model->parameters[i], at,
                                  (size_t)numel * sizeof *at);
        at += numel;
    }
    if (status == CORE_OK)
        status =
            core_zeros(&size, 1, CORE_F32, model->devices[0], &all->pieces[u]);
    if (status == CORE_OK)
        status = train_pieces_take(all, u, numbers, all->pieces[u]);
    if (status == CORE_OK)
        status = core_tensor_set_requires_grad(all->pieces[u], true);
    free(numbers);
    return status;
}

core_status train_pieces_create(trainer *t)
{
    train_model *model = &t->model;
    train_pieces *all = calloc(1, sizeof *all);

    model->pieces = all;
    if (!all)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for pieces");
    all->comm = t->comm;
    all->parameters = calloc(model->count, sizeof *all->parameters);
    all->units = calloc(model->count, sizeof *all->units);
    all->pieces = calloc(model->count, sizeof *all->pieces);
    all->names = calloc(model->count, sizeof *all->names);
    if (!all->parameters || !all->units || !all->pieces || !all->names)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for pieces");
    CORE_TRY(divide(all, model));
    for (size_t u = 0; u < all->nunits; u++)
        CORE_TRY(cut(all, model, u));
    train_model_drop_modules(model);
    model->count = all->nunits;
    model->parameters = all->pieces;
    model->names = all->names;
    return CORE_OK;
}

void train_pieces_free(train_pieces *all)
{
    if (!all)
        return;
    for (size_t u = 0; u < all->nunits; u++)
        core_tensor_release(all->pieces[u]);
    for (size_t i = 0; i < all->count; i++)
        free(all->parameters[i].name);
    free(all->parameters);
    free(all->units);
    free(all->pieces);
    free(all->names);
    free(all);
}

int64_t train_pieces_numel(const train_pieces *all)
{
    int64_t numel = 0;

    for (size_t u = 0; u < all->nunits; u++)
        numel += all->units[u].numel;
    return numel;
}

/* ------------------------------------------------------------- gathering -- */

void train_pieces_gather(const train_pieces *all, size_t u, core_tensor *piece,
                         core_tensor *out_parameters[TRAIN_UNIT])
{
    const train_unit *unit = &all->units[u];
    int64_t sizes[TRAIN_UNIT];
    core_tensor *flat = NULL;
    core_list parts;

    flat = core_scope_own(core_all_gather(all->comm, piece, &flat), &flat);
    flat = core_x_narrow(flat, 0, 0, unit->numel);
    for (size_t i = 0; i < unit->count; i++)
        sizes[i] = all->parameters[unit->first + i].numel;
    parts = core_x_split_with_sizes(flat, core_sizes_from(sizes, unit->count));
    for (size_t i = 0; i < unit->count; i++) {
        const train_whole *whole = &all->parameters[unit->first + i];

        out_parameters[i] = core_x_reshape(
            core_list_at(parts, i), core_sizes_from(whole->sizes, whole->ndim));
    }
}

/* ----------------------------------------------------------- checkpoints -- */

core_status train_pieces_join(const train_pieces *all, core_tensor *piece,
                              float **out_numbers)
{
    bool grads = core_grad_mode_set(false);
    core_tensor *flat = NULL;
    core_status status = core_all_gather(all->comm, piece, &flat);
    size_t size = 0;

    *out_numbers = NULL;
    if (status == CORE_OK) {
        size = (size_t)core_tensor_numel(flat) * sizeof(float);
        *out_numbers = malloc(size);
        status = *out_numbers ? core_tensor_read(flat, *out_numbers, size)
                              : train_error(CORE_ERROR_OUT_OF_MEMORY,
                                            "no memory for a unit");
    }
    if (status == CORE_OK)
        status = core_comm_error(all->comm);
    if (status != CORE_OK) {
        free(*out_numbers);
        *out_numbers = NULL;
    }
    core_tensor_release(flat);
    core_grad_mode_set(grads);
    return status;
}

core_status train_pieces_take(const train_pieces *all, size_t unit,
                              const float *numbers, core_tensor *piece)
{
    int64_t size = piece_size(all, unit), numel = all->units[unit].numel;
    int64_t first = size * core_comm_rank(all->comm);
    int64_t left = numel > first ? numel - first : 0;
    float *mine = calloc((size_t)size, sizeof *mine);
    core_status status;

    if (!mine)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a piece");
    if (left > 0)
        memcpy(mine, numbers + first,
               (size_t)(left < size ? left : size) * sizeof *mine);
    status = core_tensor_write(piece, mine, (size_t)size * sizeof *mine);
    free(mine);
    return status;
}

/* --------------------------------------------------------------- checks -- */

/* Whether the gathered numbers of a unit are those of this rank's piece, where
 * that belongs. */
static core_status compare_piece(const train_pieces *all, size_t u,
                                 const float *numbers, bool *out_equal)
{
    size_t count = (size_t)piece_size(all, u);
    float *mine = malloc(count * sizeof *mine);
    core_status status;

    *out_equal = false;
    if (!mine)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a piece");
    status = core_tensor_read(all->pieces[u], mine, count * sizeof *mine);
    if (status == CORE_OK)
        *out_equal = memcmp(mine, numbers + count * core_comm_rank(all->comm),
                            count * sizeof *mine) == 0;
    free(mine);
    return status;
}

core_status train_pieces_digest(const train_pieces *all, uint64_t *out_digest,
                                size_t *out_moved)
{
    *out_digest = 0;
    *out_moved = 0;
    for (size_t u = 0; u < all->nunits; u++) {
        core_status status;
        float *numbers;
        bool equal;

        CORE_TRY(train_pieces_join(all, all->pieces[u], &numbers));
        train_digest_add(numbers, (size_t)all->units[u].numel, out_digest);
        status = compare_piece(all, u, numbers, &equal);
        free(numbers);
        CORE_TRY(status);
        if (!equal && *out_moved == 0)
            *out_moved = u + 1;
    }
    return CORE_OK;
}

static core_status report_moved(const trainer *t, const int64_t *moved)
{
    const train_pieces *all = t->model.pieces;

    for (uint32_t r = 0; r < t->ranks; r++)
        if (moved[r])
            return train_error(CORE_ERROR_CORRUPT,
                               "the weights %s that rank %u has differ from "
                               "those that it gathers after step %lld",
                               all->names[moved[r] - 1], r,
                               (long long)trainer_steps(t));
    return CORE_OK;
}

/* All ranks report what one of them finds. */
core_status train_pieces_verify(const trainer *t)
{
    int64_t *all = malloc(t->ranks * sizeof *all);
    uint64_t digest;
    size_t moved;
    core_status status;

    if (!all)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for digests");
    status = train_pieces_digest(t->model.pieces, &digest, &moved);
    if (status == CORE_OK)
        status = train_distributed_compare(t, t->comm, digest,
                                           "the gathered weights", "");
    if (status == CORE_OK)
        status = train_distributed_gather(t, t->comm, (int64_t)moved, all);
    if (status == CORE_OK)
        status = report_moved(t, all);
    free(all);
    return status;
}
