/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Files of the optimizer's state of pieces, one for each rank:
 *
 *     PARAMETER.STATE.FIRST   the state from this element on
 *     PARAMETER.steps.FIRST   i64, how many steps have updated the piece
 *
 * PARAMETER is an index.  The texts say how many ranks have saved, which
 * parameters they had, and which files belong together. */

#include "comm/shard.h"

#include "base/memory.h"
#include "base/thread.h"

#include <libcore/ops.h>
#include <libcore/safetensors.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 8, NAME = 96, PATH = 4096 };

static size_t count_slots(const core_optimizer *optimizer)
{
    size_t count = 0;

    while (optimizer && count < SLOTS &&
           core_optimizer_state_name(optimizer, count))
        count++;
    return count;
}

static core_status check(const core_shard *shard,
                         const core_optimizer *optimizer, const char *path,
                         const char *name)
{
    size_t count;

    if (!shard || !path)
        return core__error_null(name, shard ? "path" : "shard");
    if (!optimizer && shard->npieces > 0)
        return core__error_null(name, "optimizer");
    count = optimizer ? core_optimizer_parameter_count(optimizer) : 0;
    for (size_t i = 0; i < shard->npieces; i++)
        if (core_optimizer_parameter(optimizer, i) != shard->pieces[i].tensor)
            count = SIZE_MAX;
    if (count == shard->npieces)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the optimizer's parameters are not the %zu pieces "
                       "of the shard, in their order",
                       name, shard->npieces);
}

/* -------------------------------------------------------------- saving -- */

typedef struct contents {
    core_named_tensor *tensors;
    char (*names)[NAME];
    core_tensor **steps; /* owned */
    size_t count, nsteps;
} contents;

static void add(contents *c, const core__piece *piece, const char *what,
                core_tensor *tensor)
{
    char *name = c->names[c->count];

    snprintf(name, NAME, "%u.%s.%lld", piece->parameter, what,
             (long long)piece->first);
    c->tensors[c->count++] = (core_named_tensor){name, tensor};
}

static core_status add_piece(contents *c, const core_shard *shard,
                             const core_optimizer *optimizer, size_t index)
{
    const core__piece *piece = &shard->pieces[index];
    int64_t steps = (int64_t)core_optimizer_steps(optimizer, index);
    core_tensor **count = &c->steps[c->nsteps];

    if (steps == 0)
        return CORE_OK;
    for (size_t k = 0; k < count_slots(optimizer); k++)
        add(c, piece, core_optimizer_state_name(optimizer, k),
            core_optimizer_state(optimizer, index, k));
    CORE_TRY(core_tensor_from_data(&steps, CORE_I64, NULL, 0,
                                   shard->reducer->comm->device, count));
    c->nsteps++;
    add(c, piece, "steps", *count);
    return CORE_OK;
}

static core_status write_contents(const contents *c, const core_shard *shard,
                                  const char *path, int64_t number)
{
    const core_comm *comm = shard->reducer->comm;
    char ranks[24], parameters[24], save[24], file[PATH];
    const core_named_text texts[] = {{"format", "libcore.shard"},
                                     {"ranks", ranks},
                                     {"parameters", parameters},
                                     {"save", save}};

    snprintf(ranks, sizeof ranks, "%u", comm->size);
    snprintf(parameters, sizeof parameters, "%016llx",
             (unsigned long long)core__reducer_hash_parameters(shard->reducer));
    snprintf(save, sizeof save, "%lld", (long long)number);
    if (snprintf(file, sizeof file, "%s.%u", path, comm->rank) >= PATH)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_shard_save: the path has more than %d bytes",
                           PATH);
    return core_safetensors_save(file, c->tensors, c->count, texts,
                                 sizeof texts / sizeof *texts);
}

static core_status save_pieces(const core_shard *shard,
                               const core_optimizer *optimizer,
                               const char *path, int64_t number)
{
    size_t most = shard->npieces * (count_slots(optimizer) + 1);
    size_t size = most * (sizeof(core_named_tensor) + NAME) +
                  shard->npieces * sizeof(core_tensor *);
    contents c = {.tensors = core__alloc_zero(size + 1)};
    core_status status = CORE_OK;

    if (!c.tensors)
        return core__error_memory(size);
    c.steps = (void *)(c.tensors + most);
    c.names = (void *)(c.steps + shard->npieces);
    for (size_t i = 0; status == CORE_OK && i < shard->npieces; i++)
        status = add_piece(&c, shard, optimizer, i);
    if (status == CORE_OK)
        status = write_contents(&c, shard, path, number);
    for (size_t i = 0; i < c.nsteps; i++)
        core__tensor_release(c.steps[i]);
    core__free(c.tensors);
    return status;
}

/* A number of all ranks: the one of rank 0, or the largest. */
static core_status agree(core_comm *comm, bool largest, int64_t *number)
{
    core_tensor *tensor;
    core_status status;

    CORE_TRY(core_tensor_from_data(number, CORE_I64, NULL, 0, comm->device,
                                   &tensor));
    status = largest ? core_all_reduce_(comm, tensor, CORE_REDUCE_MAX)
                     : core_broadcast(comm, tensor, 0);
    if (status == CORE_OK)
        status = core_tensor_read(tensor, number, sizeof *number);
    if (status == CORE_OK)
        status = core_comm_error(comm);
    core__tensor_release(tensor);
    return status;
}

/* A number that another save does not have. */
static int64_t number_save(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns status, or an error if another rank has one. */
static core_status conclude(core_comm *comm, core_status status,
                            const char *name, const char *what)
{
    int64_t failed = status == CORE_OK ? 0 : (int64_t)comm->rank + 1;
    core__error_record error;

    core__error_save(&error);
    CORE_TRY(agree(comm, true, &failed));
    core__error_restore(&error);
    if (status == CORE_OK && failed)
        return core__error(CORE_ERROR_IO, "%s: rank %lld could not %s", name,
                           (long long)failed - 1, what);
    return status;
}

core_status core_shard_save(core_shard *shard, const core_optimizer *optimizer,
                            const char *path)
{
    int64_t number = number_save();
    core_status status;
    core_comm *comm;

    CORE_TRY(check(shard, optimizer, path, __func__));
    comm = shard->reducer->comm;
    CORE_TRY(agree(comm, false, &number));
    status = save_pieces(shard, optimizer, path, number);
    return conclude(comm, status, __func__, "save its pieces");
}

/* ------------------------------------------------------------- loading -- */

/* The states of the pieces that are read. */
typedef struct restored {
    core_tensor *tensors[SLOTS];
    int64_t covered[SLOTS]; /* elements that were read */
    int64_t steps;
} restored;

typedef struct load {
    core_shard *shard;
    const core_optimizer *optimizer;
    size_t slots;
    restored *pieces;
} load;

static core_status damaged(const char *file, const char *what)
{
    return core__error(CORE_ERROR_CORRUPT, "core_shard_load: %s: %s", file,
                       what);
}

/* "PARAMETER.STATE.FIRST"; slot: the number of slots for steps. */
static bool parse(const load *l, const char *name, uint32_t *out_parameter,
                  size_t *out_slot, int64_t *out_first)
{
    const char *state = strchr(name, '.'), *first = strrchr(name, '.');
    size_t slot = 0, length;

    if (!state || first == state)
        return false;
    length = (size_t)(first - ++state);
    while (slot < l->slots) {
        const char *known = core_optimizer_state_name(l->optimizer, slot);

        if (strlen(known) == length && memcmp(known, state, length) == 0)
            break;
        slot++;
    }
    if (slot == l->slots && (length != 5 || memcmp(state, "steps", 5) != 0))
        return false;
    *out_parameter = (uint32_t)strtoul(name, NULL, 10);
    *out_slot = slot;
    *out_first = strtoll(first + 1, NULL, 10);
    return *out_first >= 0;
}

/* The part of an entry that a piece needs. */
static core_status read_part(const core__piece *piece,
                             const core_safetensors *file, const char *name,
                             int64_t first, restored *to, size_t slot)
{
    core_tensor *whole = NULL, *part = NULL, *place = NULL;
    int64_t from = first > piece->first ? first : piece->first, end, count;
    core_status status;

    if (!to->tensors[slot])
        CORE_TRY(core_zeros_like(piece->tensor, CORE_DTYPE_NONE, NULL, -1,
                                 &to->tensors[slot]));
    CORE_TRY(core_safetensors_load(file, name, piece->tensor->device, &whole));
    end = first + whole->numel;
    if (end > piece->first + piece->tensor->numel)
        end = piece->first + piece->tensor->numel;
    count = end - from;
    status = core_narrow(whole, 0, from - first, count, &part);
    if (status == CORE_OK)
        status = core_narrow(to->tensors[slot], 0, from - piece->first, count,
                             &place);
    if (status == CORE_OK)
        status = core_copy_(place, part, false);
    to->covered[slot] += count;
    core__tensor_release(whole);
    core__tensor_release(part);
    core__tensor_release(place);
    return status;
}

static core_status read_steps(const core_safetensors_entry *entry, restored *to,
                              const char *path)
{
    int64_t steps;

    if (entry->dtype != CORE_I64 || entry->size != sizeof steps)
        return damaged(path, "a number of steps is not an i64");
    memcpy(&steps, entry->data, sizeof steps);
    if (to->steps && to->steps != steps)
        return damaged(path, "the parts of a parameter have had different "
                             "numbers of steps");
    to->steps = steps;
    return steps > 0 ? CORE_OK
                     : damaged(path, "a number of steps is not "
                                     "positive");
}

static core_status read_entry(const load *l, const core_safetensors *file,
                              const char *path, size_t index)
{
    core_safetensors_entry entry = {.struct_size = sizeof entry};
    const core__piece *piece;
    uint32_t parameter;
    size_t slot, at;
    int64_t first;

    CORE_TRY(core_safetensors_describe(file, index, &entry));
    if (!parse(l, entry.name, &parameter, &slot, &first))
        return damaged(path, "it has a state that the optimizer does not have");
    at = core__shard_find_piece(l->shard, parameter);
    if (at == SIZE_MAX)
        return CORE_OK;
    piece = &l->shard->pieces[at];
    if (first >= piece->first + piece->tensor->numel)
        return CORE_OK;
    if (slot == l->slots)
        return read_steps(&entry, &l->pieces[at], path);
    if (entry.ndim != 1 || entry.dtype != piece->tensor->dtype)
        return damaged(path, "a state has another dtype, or more dimensions");
    if (first + entry.sizes[0] <= piece->first)
        return CORE_OK;
    return read_part(piece, file, entry.name, first, &l->pieces[at], slot);
}

static core_status check_texts(const core_safetensors *file, const char *path,
                               const char *const *expected)
{
    static const char *const names[] = {"format", "parameters", "ranks",
                                        "save"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = core_safetensors_text(file, names[i]);

        if (!text)
            return core__error(CORE_ERROR_CORRUPT,
                               "core_shard_load: %s: there is no \"%s\"", path,
                               names[i]);
        if (expected[i] && strcmp(text, expected[i]) != 0)
            return core__error(CORE_ERROR_CORRUPT,
                               "core_shard_load: %s: \"%s\" is \"%.40s\"; "
                               "expected is \"%.40s\"",
                               path, names[i], text, expected[i]);
    }
    return CORE_OK;
}

static core_status read_file(const load *l, const core_safetensors *file,
                             const char *path)
{
    for (size_t i = 0; i < core_safetensors_count(file); i++)
        CORE_TRY(read_entry(l, file, path, i));
    return CORE_OK;
}

static core_status open_file(const char *path, uint32_t rank, char *name,
                             core_safetensors **out_file)
{
    snprintf(name, PATH, "%s.%u", path, rank);
    return core_safetensors_open(name, out_file);
}

/* All files, which belong to one save; `first` is that of rank 0. */
static core_status read_files(const load *l, const char *path,
                              const core_safetensors *first)
{
    char parameters[24], name[PATH];
    const char *expected[4] = {"libcore.shard", parameters, NULL, NULL};
    uint32_t ranks;

    snprintf(name, sizeof name, "%s.0", path);
    snprintf(
        parameters, sizeof parameters, "%016llx",
        (unsigned long long)core__reducer_hash_parameters(l->shard->reducer));
    CORE_TRY(check_texts(first, name, expected));
    expected[2] = core_safetensors_text(first, "ranks");
    expected[3] = core_safetensors_text(first, "save");
    ranks = (uint32_t)strtoul(expected[2], NULL, 10);
    for (uint32_t r = 0; r < ranks; r++) {
        core_safetensors *file;
        core_status status;

        CORE_TRY(open_file(path, r, name, &file));
        status = check_texts(file, name, expected);
        if (status == CORE_OK)
            status = read_file(l, file, name);
        core_safetensors_close(file);
        CORE_TRY(status);
    }
    return CORE_OK;
}

static core_status set_states(const load *l, core_optimizer *optimizer,
                              const char *path)
{
    for (size_t i = 0; i < l->shard->npieces; i++) {
        restored *piece = &l->pieces[i];
        int64_t count = l->shard->pieces[i].tensor->numel;

        for (size_t k = 0; k < l->slots; k++)
            if (piece->covered[k] != (piece->steps ? count : 0))
                return damaged(path, "the state of a parameter is not "
                                     "complete");
        CORE_TRY(core_optimizer_set_state(
            optimizer, i, (uint64_t)piece->steps,
            piece->steps && l->slots ? piece->tensors : NULL,
            piece->steps ? l->slots : 0));
    }
    return CORE_OK;
}

static core_status load_states(load *l, core_optimizer *optimizer,
                               const char *path)
{
    core_safetensors *first;
    char name[PATH];
    core_status status;

    if (l->shard->npieces == 0)
        return CORE_OK;
    CORE_TRY(open_file(path, 0, name, &first));
    status = read_files(l, path, first);
    if (status == CORE_OK)
        status = set_states(l, optimizer, path);
    core_safetensors_close(first);
    return status;
}

static core_status load_pieces(core_shard *shard, core_optimizer *optimizer,
                               const char *path)
{
    load l = {.shard = shard, .optimizer = optimizer};
    size_t size;
    core_status status;
    bool grads;

    if (strlen(path) > PATH - 16)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_shard_load: the path has more than %d bytes",
                           PATH - 16);
    l.slots = count_slots(optimizer);
    size = shard->npieces * sizeof *l.pieces;
    l.pieces = core__alloc_zero(size + 1);
    if (!l.pieces)
        return core__error_memory(size);
    grads = core_grad_mode_set(false);
    status = load_states(&l, optimizer, path);
    core_grad_mode_set(grads);
    for (size_t i = 0; i < shard->npieces; i++)
        for (size_t k = 0; k < l.slots; k++)
            core__tensor_release(l.pieces[i].tensors[k]);
    core__free(l.pieces);
    return status;
}

core_status core_shard_load(core_shard *shard, core_optimizer *optimizer,
                            const char *path)
{
    core_status status;

    CORE_TRY(check(shard, optimizer, path, __func__));
    status = load_pieces(shard, optimizer, path);
    return conclude(shard->reducer->comm, status, __func__,
                    "load the state of its pieces");
}
