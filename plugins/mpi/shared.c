/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Ranks on one machine: exchanges, all_reduce, reduce_scatter and all_gather in memory
 * that the ranks share.  A message of an MPI library between two processes takes longer:
 * copying 512 KB by process_vm_readv, which Open MPI does, took 60 µs where memcpy took
 * 15 (docs/distributed.md).
 *
 * Rank 0 creates the memory without a name (memfd), and the others open it through /proc,
 * so that nothing is left of it when the processes have ended, however they end.  The
 * memory has a slot for each rank, to which that rank alone writes.
 *
 * Elements are moved in rounds.  In each, a rank gives the other ranks their parts,
 * reduces its own part of what all have given, and collects the others' results.  So each
 * element is reduced by one rank, and all ranks get the same bits. */

#define _GNU_SOURCE

#include "mpi_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* LINE: bytes of a line of a cache.  ROUND: bytes. */
enum { SHARED_RANKS = 8, LINE = 64, ROUND = 1 << 18 };
#define MEMORY_NAME "libcore-mpi"

/* What a rank has done since the communicator began.  Two rounds, or exchanges, have
 * memory: a rank begins the one after next when all have read what it overwrites. */
typedef struct slot {
    _Alignas(LINE) _Atomic uint64_t exchanged; /* exchanges */
    _Alignas(LINE) _Atomic uint64_t given;     /* rounds */
    _Alignas(LINE) _Atomic uint64_t reduced;   /* rounds */
    _Alignas(LINE) char messages[2][MPI_EXCHANGE_MOST + MPI_SMALL_BYTES];
    char parts[2][ROUND]; /* by rank; its own one is the result of its part */
} slot;

struct mpi_shared {
    uint64_t number; /* at random */
    slot slots[];
};

static size_t shared_size(int ranks)
{
    return sizeof(mpi_shared) + (size_t)ranks * sizeof(slot);
}

/* ------------------------------------------------------------ creation -- */

/* Where the memory of rank 0 is. */
typedef struct place {
    char machine[40];   /* this boot of it */
    char processes[32]; /* the namespace of process numbers */
    uint64_t number;
    int32_t process, file; /* file: negative: there is none */
} place;

_Static_assert(sizeof(place) <= MPI_EXCHANGE_MOST, "it is exchanged");
/* Another process would not see a lock of this one. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters are shared");

static bool is_wanted = true;

core_status mpi_shared_settings(void)
{
    core_string text = mpi_host->setting(core_sdk_string("LIBCORE_MPI_SHARED"));

    is_wanted = !core_sdk_string_equal(text, "off") &&
                !core_sdk_string_equal(text, "0");
    if (!is_wanted || text.size == 0 || core_sdk_string_equal(text, "on") ||
        core_sdk_string_equal(text, "1"))
        return CORE_OK;
    return core_sdk_error(mpi_host, CORE_ERROR_INVALID_ARGUMENT, MPI_TITLE,
                          "LIBCORE_MPI_SHARED is \"%.*s\"; accepted: on (or 1) "
                          "and off (or 0)",
                          (int)text.size, text.data);
}

/* machine stays empty if that is not known, or if no memory is to be shared. */
static void find_machine(place *p)
{
    int file;

    if (!is_wanted)
        return;
    file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    if (readlink("/proc/self/ns/pid", p->processes, sizeof p->processes - 1) <=
            0 ||
        read(file, p->machine, sizeof p->machine - 1) <= 0)
        p->machine[0] = '\0';
    close(file);
}

static mpi_shared *map(int file, int ranks)
{
    void *memory = mmap(NULL, shared_size(ranks), PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* SIGBUS would end a process that writes where the machine has no memory. */
static bool allocate(int file, off_t size)
{
    int code;

    do
        code = posix_fallocate(file, 0, size);
    while (code == EINTR);
    return code == 0;
}

/* On rank 0. */
static mpi_shared *create(place *mine, int ranks)
{
    off_t size = (off_t)shared_size(ranks);
    mpi_shared *shared = NULL;

    mine->file = memfd_create(MEMORY_NAME, MFD_CLOEXEC);
    mine->process = (int32_t)getpid();
    if (mine->file >= 0 && mine->machine[0] != '\0' &&
        getrandom(&mine->number, sizeof mine->number, 0) ==
            (ssize_t)sizeof mine->number &&
        allocate(mine->file, size))
        shared = map(mine->file, ranks);
    if (shared != NULL)
        shared->number = mine->number;
    return shared;
}

/* Whether a file is such memory.  To open another one, such as a device, may have
 * effects. */
static bool is_memory(const char *name)
{
    char target[64];
    ssize_t size = readlink(name, target, sizeof target - 1);

    if (size < 0)
        return false;
    target[size] = '\0';
    return strncmp(target, "/memfd:" MEMORY_NAME,
                   strlen("/memfd:" MEMORY_NAME)) == 0;
}

/* That of rank 0, if it is on this machine. */
static mpi_shared *find(const place *mine, const place *first, int ranks)
{
    mpi_shared *shared = NULL;
    struct stat state;
    char name[64];
    int file;

    if (first->file < 0 || mine->machine[0] == '\0' ||
        memcmp(mine->machine, first->machine, sizeof mine->machine) != 0 ||
        memcmp(mine->processes, first->processes, sizeof mine->processes) != 0)
        return NULL;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", first->process, first->file);
    if (!is_memory(name))
        return NULL;
    file = open(name, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return NULL;
    if (fstat(file, &state) == 0 && state.st_size == (off_t)shared_size(ranks))
        shared = map(file, ranks);
    close(file);
    if (shared == NULL || shared->number == first->number)
        return shared;
    munmap(shared, shared_size(ranks));
    return NULL;
}

static core_status connect(mpi_comm *comm, place *mine, int64_t deadline)
{
    place all[SHARED_RANKS];
    uint8_t found[SHARED_RANKS], here;
    mpi_shared *shared = NULL;
    core_status status;

    if (comm->rank == 0)
        shared = create(mine, comm->size);
    status = mpi_exchange_messages(comm, mine, sizeof *mine, all, deadline);
    if (status == CORE_OK && comm->rank > 0)
        shared = find(mine, &all[0], comm->size);
    here = shared != NULL;
    if (status == CORE_OK)
        status = mpi_exchange_messages(comm, &here, 1, found, deadline);
    for (int r = 0; r < comm->size; r++)
        here = here && (status != CORE_OK || found[r]);
    if (here)
        comm->shared = shared;
    else if (shared != NULL)
        munmap(shared, shared_size(comm->size));
    return status;
}

core_status mpi_shared_begin(mpi_comm *comm, int64_t deadline)
{
    place mine = {.file = -1};
    core_status status;

    comm->shares = true;
    if (comm->size < 2 || comm->size > SHARED_RANKS)
        return CORE_OK;
    find_machine(&mine);
    status = connect(comm, &mine, deadline);
    if (mine.file >= 0)
        close(mine.file);
    return status;
}

void mpi_shared_end(mpi_comm *comm)
{
    if (comm->shared != NULL)
        munmap(comm->shared, shared_size(comm->size));
    comm->shared = NULL;
}

/* ------------------------------------------------------------- waiting -- */

/* Waits without a pause for some microseconds, then lets other processes run, and after
 * some milliseconds sleeps.  The other ranks may need this one for what they have not
 * finished in MPI. */
static void relax(mpi_comm *comm, uint32_t polls)
{
    static const struct timespec pause = {0, 50000};

    if (polls < 500) {
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#endif
        return;
    }
    if ((polls & 15) == 0 || polls > 20000)
        mpi_advance(comm);
    if (polls > 20000)
        nanosleep(&pause, NULL);
    else
        sched_yield();
}

/* Waits until a counter of a rank has reached `least`. */
static core_status await_rank(mpi_comm *comm, const _Atomic uint64_t *counter,
                              uint64_t least, int64_t deadline, bool *out_done)
{
    for (uint32_t polls = 0;; polls++) {
        *out_done =
            atomic_load_explicit(counter, memory_order_acquire) >= least;
        if (*out_done)
            return CORE_OK;
        if (atomic_load(&comm->aborted))
            return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                                  "the communicator was aborted");
        if ((polls & 63) == 63 && mpi_now_ns() > deadline)
            return CORE_OK;
        relax(comm, polls);
    }
}

static const _Atomic uint64_t *counter_of(const mpi_shared *shared, int rank,
                                          size_t offset)
{
    const char *at = (const char *)&shared->slots[rank] + offset;

    return (const _Atomic uint64_t *)(const void *)at;
}

/* The same counter of all ranks; offset: in slot. */
static core_status await_all(mpi_comm *comm, size_t offset, uint64_t least,
                             int64_t deadline, bool *out_done)
{
    core_status status = CORE_OK;

    *out_done = true;
    for (int i = 1; i < comm->size && status == CORE_OK && *out_done; i++) {
        int r = (comm->rank + i) % comm->size;

        status = await_rank(comm, counter_of(comm->shared, r, offset), least,
                            deadline, out_done);
    }
    return status;
}

/* ----------------------------------------------------------- exchanges -- */

const char *mpi_shared_message(const mpi_comm *comm, int rank)
{
    return comm->shared->slots[rank].messages[comm->exchanges & 1];
}

static core_status name_missing(const mpi_comm *comm)
{
    char text[256] = "", *at = text;

    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank &&
            atomic_load(&comm->shared->slots[r].exchanged) < comm->exchanges)
            at += snprintf(at, 16, "%s%d", at == text ? "rank " : ", ", r);
    return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                          "the timeout passed while waiting for %s",
                          at == text ? "no rank in particular" : text);
}

core_status mpi_shared_exchange(mpi_comm *comm, const void *mine,
                                uint32_t bytes, const void *data, size_t size,
                                int64_t deadline)
{
    slot *own = &comm->shared->slots[comm->rank];
    uint64_t number = ++comm->exchanges;
    char *message = own->messages[number & 1];
    core_status status;
    bool done;

    memcpy(message, mine, bytes);
    if (size > 0)
        memcpy(message + MPI_EXCHANGE_MOST, data, size);
    atomic_store_explicit(&own->exchanged, number, memory_order_release);
    status =
        await_all(comm, offsetof(slot, exchanged), number, deadline, &done);
    return status == CORE_OK && !done ? name_missing(comm) : status;
}

/* -------------------------------------------------------------- rounds -- */

/* The elements of one rank in one round. */
typedef struct part {
    uint64_t input, output; /* the first one, in the call's memory */
    uint64_t count;
} part;

static uint64_t part_bytes(const mpi_comm *comm)
{
    return ROUND / (uint64_t)comm->size / LINE * LINE;
}

static uint64_t elements_of_round(const mpi_comm *comm,
                                  const mpi_shared_call *call)
{
    uint64_t part = part_bytes(comm) / call->item;

    return call->kind == CORE_COLLECTIVE_ALL_REDUCE
               ? part * (uint64_t)comm->size
               : part;
}

/* all_reduce divides a round; the others have a block of the tensor for each rank. */
static part part_of(const mpi_comm *comm, const mpi_shared_call *call,
                    uint64_t round, int rank)
{
    uint64_t most = elements_of_round(comm, call), first = round * most;
    uint64_t left = call->count - first, count = left < most ? left : most;
    uint64_t n = (uint64_t)comm->size, r = (uint64_t)rank;

    if (call->kind == CORE_COLLECTIVE_ALL_REDUCE) {
        uint64_t at = first + count / n * r + (r < count % n ? r : count % n);

        return (part){at, at, count / n + (r < count % n)};
    }
    return call->kind == CORE_COLLECTIVE_REDUCE_SCATTER
               ? (part){r * call->count + first, first, count}
               : (part){first, r * call->count + first, count};
}

/* The part for rank `to` in the memory of rank `of`. */
static char *part_at(const mpi_comm *comm, uint64_t round, int of, int to)
{
    return comm->shared->slots[of].parts[round & 1] +
           (uint64_t)to * part_bytes(comm);
}

static void give(mpi_comm *comm, const mpi_shared_call *call, uint64_t round)
{
    slot *own = &comm->shared->slots[comm->rank];

    for (int r = 0; r < comm->size; r++) {
        part p = part_of(comm, call, round, r);

        if (r != comm->rank && call->kind != CORE_COLLECTIVE_ALL_GATHER)
            memcpy(part_at(comm, comm->rounds + round, comm->rank, r),
                   (const char *)call->input + p.input * call->item,
                   p.count * call->item);
    }
    atomic_store_explicit(&own->given, comm->rounds + round + 1,
                          memory_order_release);
}

/* Reduces what all ranks have given and the input; of all_gather it is the input
 * alone.  After an error the other ranks get no result. */
static core_status reduce(mpi_comm *comm, const mpi_shared_call *call,
                          uint64_t round)
{
    slot *own = &comm->shared->slots[comm->rank];
    part p = part_of(comm, call, round, comm->rank);
    const char *from = (const char *)call->input + p.input * call->item;
    char *to = (char *)call->output + p.output * call->item;
    uint64_t number = comm->rounds + round;
    int code = MPI_SUCCESS;

    if (from != to)
        memcpy(to, from, p.count * call->item);
    mpi_lock();
    for (int r = 0; r < comm->size && code == MPI_SUCCESS; r++)
        if (r != comm->rank && call->kind != CORE_COLLECTIVE_ALL_GATHER)
            code = mpi.Reduce_local(part_at(comm, number, r, comm->rank), to,
                                    (int)p.count, call->type, call->op);
    mpi_unlock();
    if (code != MPI_SUCCESS)
        return mpi_error(code, "MPI_Reduce_local");
    if (call->kind != CORE_COLLECTIVE_REDUCE_SCATTER)
        memcpy(part_at(comm, number, comm->rank, comm->rank), to,
               p.count * call->item);
    atomic_store_explicit(&own->reduced, number + 1, memory_order_release);
    return CORE_OK;
}

static void collect(mpi_comm *comm, const mpi_shared_call *call, uint64_t round)
{
    for (int i = 1; i < comm->size; i++) {
        int r = (comm->rank + i) % comm->size;
        part p = part_of(comm, call, round, r);

        memcpy((char *)call->output + p.output * call->item,
               part_at(comm, comm->rounds + round, r, r), p.count * call->item);
    }
}

/* The next round is given first, so that no rank waits for it. */
static core_status run_round(mpi_comm *comm, const mpi_shared_call *call,
                             uint64_t round, bool is_last, bool *out_done)
{
    uint64_t number = comm->rounds + round + 1;
    core_status status;

    if (!is_last)
        give(comm, call, round + 1);
    status = await_all(comm, offsetof(slot, given), number, call->deadline,
                       out_done);
    if (status == CORE_OK && *out_done)
        status = reduce(comm, call, round);
    if (status == CORE_OK && *out_done)
        status = await_all(comm, offsetof(slot, reduced), number,
                           call->deadline, out_done);
    if (status == CORE_OK && *out_done &&
        call->kind != CORE_COLLECTIVE_REDUCE_SCATTER)
        collect(comm, call, round);
    return status;
}

core_status mpi_shared_run(mpi_comm *comm, const mpi_shared_call *call,
                           bool *out_done)
{
    uint64_t most = elements_of_round(comm, call);
    uint64_t rounds = (call->count + most - 1) / most;
    core_status status = CORE_OK;

    *out_done = true;
    if (rounds == 0)
        return CORE_OK;
    give(comm, call, 0);
    for (uint64_t i = 0; i < rounds && status == CORE_OK && *out_done; i++)
        status = run_round(comm, call, i, i + 1 == rounds, out_done);
    comm->rounds += rounds;
    return status;
}
