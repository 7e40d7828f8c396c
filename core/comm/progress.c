/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The counters of communicators, the memory of a file that ranks on one machine
 * share, and the ranks that an error names. */

#include "comm/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/backend.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------- counters -- */

/* The counter of a communicator that has ended keeps its number until others
 * were used, because other ranks may still wait for this one. */
static core__progress_counter *claim(core__progress_store *store, uint64_t key)
{
    uint32_t start = atomic_fetch_add(&store->next, 1);

    for (uint32_t i = 0; i < CORE__PROGRESS_COUNTERS; i++) {
        uint32_t at = (start + i) % CORE__PROGRESS_COUNTERS;
        core__progress_counter *counter = &store->mine[at];

        if (atomic_fetch_or(&store->used, UINT64_C(1) << at) >> at & 1)
            continue;
        atomic_store(&counter->key, CORE__PROGRESS_FREE);
        atomic_store(&counter->reached, 0);
        atomic_store(&counter->key, key);
        return counter;
    }
    return NULL;
}

/* The whole communicator keeps its counter as long as it has parts. */
static void give_back(core__progress *progress)
{
    core__progress_store *store = progress->store;

    if (progress->mine && progress->key != CORE__PROGRESS_WHOLE)
        atomic_fetch_and(&store->used,
                         ~(UINT64_C(1) << (progress->mine - store->mine)));
}

uint64_t core__progress_find(const core__progress_counter *counters,
                             uint32_t count, uint64_t key)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t reached;

        if (atomic_load(&counters[i].key) != key)
            continue;
        reached = atomic_load(&counters[i].reached);
        /* Its rank may have used it for another communicator meanwhile. */
        if (atomic_load(&counters[i].key) == key)
            return reached;
    }
    return CORE__PROGRESS_UNKNOWN;
}

static core__progress *progress_new(core__progress_store *store, uint64_t key,
                                    uint32_t rank, uint32_t size)
{
    core__progress *made =
        core__alloc(sizeof *made + size * sizeof *made->members);

    if (!made)
        return NULL;
    *made = (core__progress){
        .store = store, .key = key, .rank = rank, .size = size};
    made->mine = claim(store, key);
    if (made->mine) {
        atomic_fetch_add(&store->references, 1);
        return made;
    }
    core__free(made);
    return NULL;
}

core__progress *core__progress_begin(core__progress_store *store)
{
    core__progress *made =
        progress_new(store, CORE__PROGRESS_WHOLE, store->rank, store->size);

    for (uint32_t r = 0; made && r < store->size; r++)
        made->members[r] = r;
    return made;
}

/* FNV-1a.  Neither of the keys that are no hash. */
static uint64_t key_of_part(const core__progress *whole, uint64_t number,
                            uint32_t first)
{
    const uint64_t all[] = {whole->key, number, first};
    const uint8_t *bytes = (const uint8_t *)all;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof all; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash > CORE__PROGRESS_WHOLE ? hash : hash + 2;
}

core__progress *core__progress_of_part(core__progress *whole, uint64_t number,
                                       uint32_t first, const uint32_t *members,
                                       uint32_t rank, uint32_t size)
{
    core__progress *part =
        whole ? progress_new(whole->store, key_of_part(whole, number, first),
                             rank, size)
              : NULL;

    for (uint32_t r = 0; part && r < size; r++)
        part->members[r] = whole->members[members[r]];
    return part;
}

void core__progress_end(core__progress *progress, bool own)
{
    core__progress_store *store;

    if (!progress)
        return;
    store = progress->store;
    give_back(progress);
    core__free(progress);
    if (atomic_fetch_sub(&store->references, 1) == 1)
        store->way->end(store, own);
}

/* ---------------------------------------------------------------- files -- */

/* The file has the id of the communicator, what each rank runs, the machine, and the
 * counters of each rank. */
enum { MACHINE = CORE__PROGRESS_FILE_HEAD, NAMED = 8 };

typedef struct shared_file {
    core__progress_store base;
    void *memory;
    core__progress_counter *counters; /* in it, of each rank */
} shared_file;

/* Ranks on other machines would see old numbers of a file in a network. */
static bool this_machine(char *out)
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, out, MACHINE - 1);

    if (file >= 0)
        close(file);
    memset(out + (size > 0 ? size : 0), 0,
           (size_t)(MACHINE - (size > 0 ? size : 0)));
    return size > 0;
}

size_t core__progress_file_machine(uint32_t size)
{
    return CORE__STORE_TEXTS + (size_t)size * CORE__COMM_ABOUT;
}

size_t core__progress_file_size(uint32_t size)
{
    return core__progress_file_machine(size) + MACHINE +
           (size_t)size * CORE__PROGRESS_COUNTERS *
               sizeof(core__progress_counter);
}

void core__progress_file_begin(void *text)
{
    this_machine(text);
}

static bool ask_file(core__progress_store *store, uint64_t key,
                     uint64_t *out_reached)
{
    const shared_file *shared = (const shared_file *)store;

    for (uint32_t r = 0; r < store->size; r++)
        out_reached[r] = core__progress_find(
            shared->counters + (size_t)r * CORE__PROGRESS_COUNTERS,
            CORE__PROGRESS_COUNTERS, key);
    return true;
}

static void end_file(core__progress_store *store, bool own)
{
    shared_file *shared = (shared_file *)store;

    (void)own;
    munmap(shared->memory, core__progress_file_size(store->size));
    core__free(shared);
}

static const core__progress_way file_way = {.ask = ask_file, .end = end_file};

/* The memory of a file of the right size, of this machine; or NULL. */
static void *map(int file, uint32_t size)
{
    size_t bytes = core__progress_file_size(size);
    char machine[MACHINE];
    struct stat state;
    char *memory;

    if (fstat(file, &state) != 0 || (uint64_t)state.st_size != bytes ||
        !this_machine(machine))
        return NULL;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (memcmp(memory + core__progress_file_machine(size), machine, MACHINE) ==
        0)
        return memory;
    munmap(memory, bytes);
    return NULL;
}

core__progress *core__progress_of_file(int file, uint32_t rank, uint32_t size)
{
    char *memory = map(file, size);
    shared_file *shared = memory ? core__alloc_zero(sizeof *shared) : NULL;
    core__progress *made;

    if (!shared) {
        if (memory)
            munmap(memory, core__progress_file_size(size));
        return NULL;
    }
    shared->memory = memory;
    shared->counters =
        (core__progress_counter *)(void *)(memory +
                                           core__progress_file_machine(size) +
                                           MACHINE);
    shared->base = (core__progress_store){
        .way = &file_way,
        .rank = rank,
        .size = size,
        .mine = shared->counters + (size_t)rank * CORE__PROGRESS_COUNTERS};
    made = core__progress_begin(&shared->base);
    if (!made)
        end_file(&shared->base, true);
    return made;
}

/* --------------------------------------------------------------- ranks -- */

/* A tenth of it, at least 1 and at most 10 seconds. */
void core__progress_set_timeout(core__progress *progress, int64_t timeout_ns)
{
    const int64_t second = 1000000000;
    int64_t wait = timeout_ns / 10;

    if (progress)
        atomic_store(&progress->store->wait_ns, wait < second ? second
                                                : wait > 10 * second
                                                    ? 10 * second
                                                    : wait);
}

void core__progress_reach(core__progress *progress, uint64_t sequence)
{
    if (progress)
        atomic_store_explicit(&progress->mine->reached, sequence,
                              memory_order_relaxed);
}

static bool is_missing(uint64_t reached, uint64_t sequence)
{
    return reached != CORE__PROGRESS_UNKNOWN &&
           (reached < sequence || reached >= CORE__PROGRESS_SILENT);
}

static void name_rank(const core__progress *progress, uint32_t rank,
                      uint64_t reached)
{
    if (reached == CORE__PROGRESS_ENDED)
        core__error_suffix("; rank %u has ended", rank);
    else if (reached == CORE__PROGRESS_SILENT)
        core__error_suffix("; rank %u has not answered within %g s", rank,
                           (double)atomic_load(&progress->store->wait_ns) /
                               1e9);
    else
        core__error_suffix("; rank %u has reached collective %llu", rank,
                           (unsigned long long)reached);
}

/* reached: of the ranks of the store. */
static void name_ranks(const core__progress *progress, const uint64_t *reached,
                       uint64_t sequence)
{
    uint32_t missing = 0;

    for (uint32_t r = 0; r < progress->size; r++) {
        uint64_t its = reached[progress->members[r]];

        if (r != progress->rank && is_missing(its, sequence) &&
            missing++ < NAMED)
            name_rank(progress, r, its);
    }
    if (missing > NAMED)
        core__error_suffix("; %u more ranks have not reached it either",
                           missing - NAMED);
}

void core__progress_name_missing(core__progress *progress, uint64_t sequence)
{
    core__progress_store *store = progress ? progress->store : NULL;
    uint64_t *reached =
        store && sequence ? core__alloc(store->size * sizeof *reached) : NULL;

    if (reached && store->way->ask(store, progress->key, reached))
        name_ranks(progress, reached, sequence);
    core__free(reached);
}
