/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Which ranks have not reached a collective: what the error of a rank that waits
 * says about the others. */

#include "support/ranks.h"

#include "comm/comm.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/autograd.h>
#include <libcore/reducer.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* The thread's error, after a rank has asked which ranks miss a collective. */
static const char *message_of(core__progress *progress, uint64_t sequence)
{
    core__error(CORE_ERROR_CANCELLED, "late");
    core__progress_name_missing(progress, sequence);
    return core_error_message();
}

/* ------------------------------------------------------------- network -- */

enum { SIZE = 3 };

/* Three ranks of this process; silent: rank 2 is only a connection. */
typedef struct net {
    core__progress *ranks[SIZE];
    int silent;
} net;

static net connect_ranks(bool silent)
{
    int *peers = core__alloc(SIZE * sizeof *peers);
    net made = {.silent = -1};

    peers[0] = -1;
    for (uint32_t r = 1; r < SIZE; r++) {
        int pair[2];

        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        peers[r] = pair[0];
        if (silent && r == 2)
            made.silent = pair[1];
        else
            made.ranks[r] = core__progress_of_client(pair[1], r, SIZE);
    }
    made.ranks[0] = core__progress_of_server(peers, SIZE);
    for (uint32_t r = 0; r < SIZE; r++)
        core__progress_set_timeout(made.ranks[r], INT64_MAX);
    return made;
}

static void end_rank(net *made, uint32_t rank)
{
    core__progress_end(made->ranks[rank], true);
    made->ranks[rank] = NULL;
}

static void end_ranks(net *made)
{
    for (uint32_t r = 0; r < SIZE; r++)
        end_rank(made, r);
    if (made->silent >= 0)
        close(made->silent);
}

START_TEST(rank_that_is_behind_is_named)
{
    net made = connect_ranks(false);

    core__progress_reach(made.ranks[0], 7);
    core__progress_reach(made.ranks[1], 7);
    core__progress_reach(made.ranks[2], 6);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_str_eq(message_of(made.ranks[r], 7),
                         "late; rank 2 has reached collective 6");
    ck_assert_str_eq(message_of(made.ranks[2], 6), "late");
    ck_assert_str_eq(message_of(made.ranks[1], 8),
                     "late; rank 0 has reached collective 7; rank 2 has "
                     "reached collective 6");
    ck_assert_str_eq(message_of(made.ranks[1], 0), "late");
    end_ranks(&made);
}
END_TEST

START_TEST(rank_that_has_left_is_named_by_its_last_collective)
{
    net made = connect_ranks(false);

    core__progress_reach(made.ranks[0], 3);
    core__progress_reach(made.ranks[2], 2);
    end_rank(&made, 2);
    ck_assert_str_eq(message_of(made.ranks[0], 3),
                     "late; rank 1 has reached collective 0; rank 2 has "
                     "reached collective 2");
    end_rank(&made, 0);
    /* Only rank 0 knew of the others. */
    while (strstr(message_of(made.ranks[1], 4), "rank 2"))
        usleep(1000);
    ck_assert_str_eq(core_error_message(),
                     "late; rank 0 has reached collective 3");
    end_ranks(&made);
}
END_TEST

START_TEST(rank_that_has_ended_or_is_stopped_is_named)
{
    net made = connect_ranks(true);

    core__progress_reach(made.ranks[1], 1);
    atomic_store(&made.ranks[0]->store->wait_ns, 200000000);
    /* Rank 1 answers when its thread gets a processor. */
    while (strcmp(message_of(made.ranks[0], 1),
                  "late; rank 2 has not answered within 0.2 s") != 0)
        usleep(1000);
    core__progress_set_timeout(made.ranks[0], INT64_MAX);
    close(made.silent);
    made.silent = -1;
    ck_assert_str_eq(message_of(made.ranks[1], 2),
                     "late; rank 0 has reached collective 0; rank 2 has "
                     "ended");
    end_ranks(&made);
}
END_TEST

START_TEST(rank_0_that_is_stopped_is_named)
{
    core__progress *client;
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    client = core__progress_of_client(pair[1], 1, 2);
    atomic_store(&client->store->wait_ns, 200000000);
    ck_assert_str_eq(message_of(client, 1),
                     "late; rank 0 has not answered within 0.2 s");
    close(pair[0]);
    while (!strstr(message_of(client, 1), "ended"))
        usleep(1000);
    ck_assert_str_eq(core_error_message(), "late; rank 0 has ended");
    core__progress_end(client, true);
}
END_TEST

static void *ask_once(void *progress)
{
    ck_assert_str_eq(message_of(progress, 1),
                     "late; rank 0 has reached collective 0; rank 2 has not "
                     "answered within 2.5 s");
    return NULL;
}

/* The second one asks when the first one has its answer, which is as late as that
 * of rank 2 may be. */
START_TEST(threads_that_ask_in_turn_name_the_stopped_rank)
{
    net made = connect_ranks(true);
    pthread_t threads[2];

    atomic_store(&made.ranks[0]->store->wait_ns, 2000000000);
    atomic_store(&made.ranks[1]->store->wait_ns, 2500000000);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, ask_once, made.ranks[1]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    end_ranks(&made);
}
END_TEST

static void *ask_rank_0(void *progress)
{
    message_of(progress, 1);
    return NULL;
}

/* While a thread of the parent waits for an answer. */
START_TEST(child_of_a_fork_ends_it)
{
    net made = connect_ranks(true);
    pthread_t thread;
    pid_t child;
    int state;

    core__progress_set_timeout(made.ranks[0], 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, ask_rank_0, made.ranks[0]),
                     0);
    usleep(100000);
    child = fork();
    if (child == 0) {
        alarm(20);
        for (uint32_t r = 0; r < SIZE; r++)
            core__progress_end(made.ranks[r], false);
        _exit(RANK_IS_WELL);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(WIFSIGNALED(state) ? WTERMSIG(state) : 0, 0);
    pthread_join(thread, NULL);
    end_ranks(&made);
}
END_TEST

/* ---------------------------------------------------------------- parts -- */

/* Ranks 2 and 0 of the ranks that met, in this order. */
static const uint32_t members[] = {2, 0};

static void part_of(core__progress *const *ranks, uint64_t number,
                    core__progress *out[2])
{
    for (uint32_t r = 0; r < 2; r++)
        out[r] =
            core__progress_of_part(ranks[members[r]], number, 0, members, r, 2);
}

static void end_part(core__progress *part[2])
{
    for (uint32_t r = 0; r < 2; r++)
        core__progress_end(part[r], true);
}

/* Numbers of the whole, of the part, and of a part of that. */
static void name_ranks_of_parts(core__progress *const *ranks)
{
    static const uint32_t swapped[] = {1, 0};
    core__progress *part[2], *same[2];

    part_of(ranks, 1, part);
    for (uint32_t r = 0; r < 2; r++)
        same[r] = core__progress_of_part(part[1 - r], 1, 1, swapped, r, 2);
    core__progress_reach(ranks[1], 5);
    core__progress_reach(part[1], 7);
    core__progress_reach(part[0], 6);
    core__progress_reach(same[1], 9);
    ck_assert_str_eq(message_of(part[1], 7),
                     "late; rank 0 has reached collective 6");
    ck_assert_str_eq(message_of(part[0], 6), "late");
    ck_assert_str_eq(message_of(same[1], 9),
                     "late; rank 0 has reached collective 0");
    ck_assert_str_eq(message_of(ranks[1], 5),
                     "late; rank 0 has reached collective 0; rank 2 has "
                     "reached collective 0");
    end_part(part);
    end_part(same);
}

START_TEST(ranks_of_parts_are_named)
{
    net made = connect_ranks(false);

    name_ranks_of_parts(made.ranks);
    end_ranks(&made);
}
END_TEST

/* The store remains until the last part of its communicator has ended, and a
 * rank that has left all of them is named by its last collectives. */
START_TEST(parts_outlive_the_whole)
{
    net made = connect_ranks(false);
    core__progress *part[2];

    part_of(made.ranks, 1, part);
    core__progress_reach(part[0], 3);
    core__progress_reach(part[1], 4);
    for (uint32_t r = 0; r < SIZE; r++)
        end_rank(&made, r);
    ck_assert_str_eq(message_of(part[1], 4),
                     "late; rank 0 has reached collective 3");
    core__progress_end(part[0], true);
    ck_assert_str_eq(message_of(part[1], 4),
                     "late; rank 0 has reached collective 3");
    core__progress_end(part[1], true);
    end_ranks(&made);
}
END_TEST

START_TEST(rank_0_that_has_left_a_part_is_named)
{
    net made = connect_ranks(false);
    core__progress *part[2];

    part_of(made.ranks, 1, part);
    core__progress_reach(part[1], 3);
    core__progress_end(part[1], true);
    end_rank(&made, 0);
    ck_assert_str_eq(message_of(part[0], 4),
                     "late; rank 1 has reached collective 3");
    core__progress_end(part[0], true);
    end_ranks(&made);
}
END_TEST

/* As many as a rank has counters, one of which is that of the whole; what has
 * ended makes room. */
START_TEST(parts_share_the_counters)
{
    enum { MOST = CORE__PROGRESS_COUNTERS - 1 };
    net made = connect_ranks(false);
    core__progress *parts[MOST][2], *more[2];

    for (uint64_t i = 0; i < MOST; i++) {
        part_of(made.ranks, i, parts[i]);
        core__progress_reach(parts[i][0], i);
        core__progress_reach(parts[i][1], MOST);
    }
    part_of(made.ranks, MOST, more);
    ck_assert_ptr_null(more[0]);
    ck_assert_ptr_null(more[1]);
    for (uint64_t i = 0; i < MOST; i += MOST - 1) {
        char text[64];

        snprintf(text, sizeof text, "late; rank 0 has reached collective %u",
                 (unsigned)i);
        ck_assert_str_eq(message_of(parts[i][1], MOST), text);
    }
    end_part(parts[5]);
    part_of(made.ranks, MOST, more);
    ck_assert_str_eq(message_of(more[1], 1),
                     "late; rank 0 has reached collective 0");
    end_part(more);
    for (uint64_t i = 0; i < MOST; i++)
        if (i != 5)
            end_part(parts[i]);
    end_ranks(&made);
}
END_TEST

typedef struct asker {
    core__progress *progress;
    const char *text;
} asker;

static void *ask_often(void *context)
{
    const asker *mine = context;

    for (int i = 0; i < 200; i++)
        ck_assert_str_eq(message_of(mine->progress, 8), mine->text);
    return NULL;
}

/* Each of two communicators of a rank is used by a thread. */
START_TEST(threads_ask_for_different_parts)
{
    net made = connect_ranks(false);
    core__progress *a[2], *b[2];
    pthread_t threads[4];

    part_of(made.ranks, 1, a);
    part_of(made.ranks, 2, b);
    core__progress_reach(a[0], 1);
    core__progress_reach(a[1], 2);
    core__progress_reach(b[0], 3);
    core__progress_reach(b[1], 4);
    asker askers[] = {
        {a[0], "late; rank 1 has reached collective 2"},
        {a[1], "late; rank 0 has reached collective 1"},
        {b[0], "late; rank 1 has reached collective 4"},
        {b[1], "late; rank 0 has reached collective 3"},
    };
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, ask_often, &askers[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    end_part(a);
    end_part(b);
    end_ranks(&made);
}
END_TEST

/* ---------------------------------------------------------------- files -- */

/* The file of a store, and its descriptor. */
static int store_file(uint32_t size)
{
    size_t bytes = core__progress_file_size(size);
    char *content = core__alloc_zero(bytes);
    char path[4200];
    int file;

    temporary_folder(rank_folder, "libcore-progress");
    snprintf(path, sizeof path, "%s/store", rank_folder);
    file = open(path, O_RDWR | O_CREAT, 0600);
    core__progress_file_begin(content + core__progress_file_machine(size));
    ck_assert_int_eq(write(file, content, bytes), bytes);
    core__free(content);
    return file;
}

static void end_file(int file)
{
    close(file);
    temporary_remove(rank_folder);
}

/* Rank 11 never comes, so nothing is said of it. */
START_TEST(ranks_of_a_file_see_each_other)
{
    int file = store_file(12);
    core__progress *ranks[11];

    for (uint32_t r = 0; r < 11; r++)
        ranks[r] = core__progress_of_file(file, r, 12);
    core__progress_reach(ranks[0], 9);
    for (uint32_t r = 1; r < 11; r++)
        core__progress_reach(ranks[r], r == 3 ? 8 : 9);
    ck_assert_str_eq(message_of(ranks[0], 9),
                     "late; rank 3 has reached collective 8");
    message_of(ranks[0], 10);
    MESSAGE("; rank 8 has reached collective 9; 2 more ranks have not reached "
            "it either");
    for (uint32_t r = 0; r < 11; r++)
        core__progress_end(ranks[r], r != 4);
    end_file(file);
}
END_TEST

START_TEST(ranks_of_parts_see_each_other_in_a_file)
{
    int file = store_file(3);
    core__progress *ranks[3];

    for (uint32_t r = 0; r < 3; r++)
        ranks[r] = core__progress_of_file(file, r, 3);
    name_ranks_of_parts(ranks);
    for (uint32_t r = 0; r < 3; r++)
        core__progress_end(ranks[r], true);
    end_file(file);
}
END_TEST

START_TEST(file_of_another_machine_or_size_is_not_shared)
{
    int file = store_file(2);

    ck_assert_ptr_null(core__progress_of_file(file, 1, 3));
    ck_assert_int_eq(
        pwrite(file, "elsewhere", 9, (off_t)core__progress_file_machine(2)), 9);
    ck_assert_ptr_null(core__progress_of_file(file, 1, 2));
    ck_assert_str_eq(message_of(NULL, 3), "late");
    core__progress_end(NULL, true);
    end_file(file);
}
END_TEST

/* What the ranks of these tests run. */
static const char about[CORE__COMM_ABOUT] = {'a', [CORE__COMM_ABOUT - 1] = 1};

/* The others would not learn what a rank runs that may only read the file. */
static void fetch_read_only(const char *store)
{
    char id[CORE_COLLECTIVES_ID_SIZE];
    core__progress *progress;

    /* The superuser may write any file.  It cannot become another user where
     * there is no other, and another one may not reach every folder. */
    if (geteuid() == 0 && seteuid(65534) != 0)
        _exit(RANK_IS_WELL);
    if (geteuid() != 0 && euidaccess(store + strlen("file:"), R_OK) != 0)
        _exit(RANK_IS_WELL);
    ck_assert_int_eq(
        core__store_share_id(store, 1, 2, 1000000000, about, id, &progress),
        CORE_ERROR_IO);
    MESSAGE("the file cannot be opened and written: Permission denied");
    ck_assert_ptr_null(progress);
    _exit(RANK_IS_WELL);
}

START_TEST(file_that_can_only_be_read_is_an_error)
{
    int file = store_file(2), state;
    char store[4300];
    pid_t child;

    ck_assert_int_eq(fchmod(file, 0444), 0);
    ck_assert_int_eq(chmod(rank_folder, 0755), 0);
    snprintf(store, sizeof store, "file:%s/store", rank_folder);
    child = fork();
    if (child == 0)
        fetch_read_only(store);
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(WEXITSTATUS(state), RANK_IS_WELL);
    end_file(file);
}
END_TEST

/* -------------------------------------------------------- communicators -- */

static _Atomic int *finished; /* ranks; shared by their processes */

/* The engine's errors do not name ranks.  Rank 0, which waits longer, gets an error
 * of its own or sees rank 1's. */
static void last_rank_stays_away(core_comm *comm)
{
    core_status status;

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 0) {
        comm->timeout_ns = 5000000000;
        rank_mark(0);
        status = core_barrier(comm);
        if (status == CORE_OK)
            status = core_comm_synchronize(comm);
        ck_assert_int_ne(status, CORE_OK);
        atomic_fetch_add(finished, 1);
    } else if (core_comm_rank(comm) == 1) {
        rank_await_mark(0);
        comm->timeout_ns = 1000000000;
        ck_assert_int_eq(core_barrier(comm), CORE_ERROR_CANCELLED);
        MESSAGE("barrier (collective 2): the timeout passed");
        MESSAGE("; rank 2 has reached collective 1");
        atomic_fetch_add(finished, 1);
    }
    while (atomic_load(finished) < 2) /* rank 0 answers rank 1 */
        usleep(1000);
    if (core_comm_rank(comm) == 2)
        _exit(RANK_IS_WELL);
}

static const char *tcp_store(void)
{
    static char store[64];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int probe = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(bind(probe, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(probe, (struct sockaddr *)&address, &size), 0);
    close(probe);
    snprintf(store, sizeof store, "tcp:127.0.0.1:%d", ntohs(address.sin_port));
    return store;
}

START_TEST(timeout_names_the_missing_rank)
{
    setenv("SOCKETS_MUTANT", "nameless", 1);
    rank_store = _i == 0 ? NULL : tcp_store();
    finished = mmap(NULL, sizeof *finished, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    on_ranks(3, last_rank_stays_away);
    munmap((void *)finished, sizeof *finished);
}
END_TEST

/* Waits for the other ranks, which may ask this one. */
static void wait_for_ranks(int count)
{
    while (atomic_load(finished) < count)
        usleep(1000);
}

/* Ranks 0 and 2 have a part, in which rank 2, its rank 0, stays away. */
static void rank_of_a_part_stays_away(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    core_comm *part;

    OK(core_comm_split(comm, rank % 2, 3 - rank, &part));
    core_comm_release(comm);
    OK(core_barrier(part));
    if (rank == 0) {
        part->timeout_ns = 100000000;
        ck_assert_int_eq(core_barrier(part), CORE_ERROR_CANCELLED);
        MESSAGE("rank 1 of 2: barrier (collective 2): the timeout passed");
        MESSAGE("; rank 0 has reached collective 1");
        atomic_fetch_add(finished, 1);
    }
    wait_for_ranks(1);
    core_comm_release(part);
    _exit(RANK_IS_WELL);
}

/* The communicator of a reducer is a part, too.  Rank 1, which waits longer, gets
 * an error of its own or is notified of rank 0's. */
static void rank_stays_away_from_a_reducer(core_comm *comm)
{
    core_tensor *parameter = rank_numbers(comm, 4), *loss;
    core_reducer *reducer;
    core_comm *its;
    char text[80];

    OK(core_tensor_set_requires_grad(parameter, true));
    OK(core_reducer_create(comm, &parameter, 1, NULL, &reducer));
    its = core_reducer_comm(reducer);
    snprintf(text, sizeof text, "; rank 2 has reached collective %llu",
             (unsigned long long)core_comm_sequence(its));
    OK(core_sum(parameter, CORE_DTYPE_NONE, &loss));
    if (core_comm_rank(comm) == 1) {
        its->timeout_ns = 5000000000;
        rank_mark(1);
        ck_assert_int_ne(core_reducer_backward(reducer, &loss, 1, NULL, 0),
                         CORE_OK);
        atomic_fetch_add(finished, 1);
    } else if (core_comm_rank(comm) == 0) {
        rank_await_mark(1);
        its->timeout_ns = 1000000000;
        ck_assert_int_eq(core_reducer_backward(reducer, &loss, 1, NULL, 0),
                         CORE_ERROR_CANCELLED);
        MESSAGE("all_reduce(avg) of 17 f32");
        MESSAGE(text);
        atomic_fetch_add(finished, 1);
    }
    wait_for_ranks(2);
    _exit(RANK_IS_WELL);
}

START_TEST(timeout_names_the_missing_rank_of_a_part)
{
    setenv("SOCKETS_MUTANT", "nameless", 1);
    rank_store = _i % 2 == 0 ? NULL : tcp_store();
    finished = mmap(NULL, sizeof *finished, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    on_ranks(3, _i < 2 ? rank_of_a_part_stays_away
                       : rank_stays_away_from_a_reducer);
    munmap((void *)finished, sizeof *finished);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        rank_that_is_behind_is_named,
        rank_that_has_left_is_named_by_its_last_collective,
        rank_that_has_ended_or_is_stopped_is_named,
        rank_0_that_is_stopped_is_named,
        threads_that_ask_in_turn_name_the_stopped_rank,
        ranks_of_parts_are_named,
        parts_outlive_the_whole,
        rank_0_that_has_left_a_part_is_named,
        parts_share_the_counters,
        threads_ask_for_different_parts,
        ranks_of_parts_see_each_other_in_a_file,
        ranks_of_a_file_see_each_other,
        file_of_another_machine_or_size_is_not_shared,
        child_of_a_fork_ends_it,
        file_that_can_only_be_read_is_an_error,
    };
    const suite_loop loops[] = {
        {timeout_names_the_missing_rank, 0, 2},
        {timeout_names_the_missing_rank_of_a_part, 0, 4},
    };
    const test_suite suites[] = {
        {"comm/comm_progress", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
