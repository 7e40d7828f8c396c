/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The memory of a file that ranks on one machine share, and the ranks that an
 * error names. */

#include "comm/progress.h"

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

/* The file has the id of the communicator, the machine, and a number for each
 * rank. */
enum { MACHINE = 40, HEAD = CORE_COLLECTIVES_ID_SIZE + MACHINE, NAMED = 8 };

typedef struct shared_file {
    core__progress base;
    void *memory;
    _Atomic uint64_t *reached; /* in it, of each rank */
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

size_t core__progress_file_size(uint32_t size)
{
    return HEAD + size * sizeof(uint64_t);
}

void core__progress_file_begin(void *text, uint32_t size)
{
    char *at = text;

    this_machine(at);
    memset(at + MACHINE, 0xff, size * sizeof(uint64_t)); /* unknown */
}

static bool ask_file(core__progress *progress, uint64_t *out_reached)
{
    const shared_file *shared = (const shared_file *)progress;

    for (uint32_t r = 0; r < progress->size; r++)
        out_reached[r] = atomic_load(&shared->reached[r]);
    return true;
}

static void end_file(core__progress *progress, bool own)
{
    shared_file *shared = (shared_file *)progress;

    (void)own;
    munmap(shared->memory, core__progress_file_size(progress->size));
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
    if (memcmp(memory + CORE_COLLECTIVES_ID_SIZE, machine, MACHINE) == 0)
        return memory;
    munmap(memory, bytes);
    return NULL;
}

core__progress *core__progress_of_file(int file, uint32_t rank, uint32_t size)
{
    char *memory = map(file, size);
    shared_file *shared = memory ? core__alloc_zero(sizeof *shared) : NULL;

    if (!shared) {
        if (memory)
            munmap(memory, core__progress_file_size(size));
        return NULL;
    }
    shared->memory = memory;
    shared->reached = (_Atomic uint64_t *)(void *)(memory + HEAD);
    shared->base = (core__progress){.way = &file_way,
                                    .rank = rank,
                                    .size = size,
                                    .mine = &shared->reached[rank]};
    core__progress_reach(&shared->base, 0);
    return &shared->base;
}

/* --------------------------------------------------------------- ranks -- */

/* A tenth of it, at least 1 and at most 10 seconds. */
void core__progress_set_timeout(core__progress *progress, int64_t timeout_ns)
{
    const int64_t second = 1000000000;
    int64_t wait = timeout_ns / 10;

    if (progress)
        atomic_store(&progress->wait_ns, wait < second        ? second
                                         : wait > 10 * second ? 10 * second
                                                              : wait);
}

void core__progress_reach(core__progress *progress, uint64_t sequence)
{
    if (progress)
        atomic_store_explicit(progress->mine, sequence, memory_order_relaxed);
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
                           (double)atomic_load(&progress->wait_ns) / 1e9);
    else
        core__error_suffix("; rank %u has reached collective %llu", rank,
                           (unsigned long long)reached);
}

static void name_ranks(const core__progress *progress, const uint64_t *reached,
                       uint64_t sequence)
{
    uint32_t missing = 0;

    for (uint32_t r = 0; r < progress->size; r++)
        if (r != progress->rank && is_missing(reached[r], sequence) &&
            missing++ < NAMED)
            name_rank(progress, r, reached[r]);
    if (missing > NAMED)
        core__error_suffix("; %u more ranks have not reached it either",
                           missing - NAMED);
}

void core__progress_name_missing(core__progress *progress, uint64_t sequence)
{
    uint64_t *reached = progress && sequence
                            ? core__alloc(progress->size * sizeof *reached)
                            : NULL;

    if (reached && progress->way->ask(progress, reached))
        name_ranks(progress, reached, sequence);
    core__free(reached);
}

void core__progress_end(core__progress *progress, bool own)
{
    if (progress)
        progress->way->end(progress, own);
}
