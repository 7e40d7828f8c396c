/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Which ranks have not reached a collective: what the error of a rank that waits
 * says about the others. */

#include "support/ranks.h"

#include "comm/comm.h"
#include "base/memory.h"
#include "base/thread.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

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
    return made;
}

static void end_ranks(net *made)
{
    for (uint32_t r = 0; r < SIZE; r++)
        core__progress_end(made->ranks[r], true);
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
    core__progress_end(made.ranks[2], true);
    made.ranks[2] = NULL;
    ck_assert_str_eq(message_of(made.ranks[0], 3),
                     "late; rank 1 has reached collective 0; rank 2 has "
                     "reached collective 2");
    core__progress_end(made.ranks[0], true);
    made.ranks[0] = NULL;
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
    ck_assert_str_eq(message_of(made.ranks[0], 1),
                     "late; rank 2 does not respond");
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
    ck_assert_str_eq(message_of(client, 1), "late; rank 0 does not respond");
    close(pair[0]);
    while (!strstr(message_of(client, 1), "ended"))
        usleep(1000);
    ck_assert_str_eq(core_error_message(), "late; rank 0 has ended");
    core__progress_end(client, true);
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
    core__progress_file_begin(content + CORE_COLLECTIVES_ID_SIZE, size);
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

START_TEST(file_of_another_machine_or_size_is_not_shared)
{
    int file = store_file(2);

    ck_assert_ptr_null(core__progress_of_file(file, 1, 3));
    ck_assert_int_eq(pwrite(file, "elsewhere", 9, CORE_COLLECTIVES_ID_SIZE), 9);
    ck_assert_ptr_null(core__progress_of_file(file, 1, 2));
    ck_assert_str_eq(message_of(NULL, 3), "late");
    core__progress_end(NULL, true);
    end_file(file);
}
END_TEST

/* -------------------------------------------------------- communicators -- */

static _Atomic int *finished; /* ranks; shared by their processes */

/* The engine's errors do not name ranks. */
static void last_rank_stays_away(core_comm *comm)
{
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 2) {
        while (atomic_load(finished) < 2)
            usleep(1000);
        _exit(RANK_IS_WELL);
    }
    comm->timeout_ns = 100000000;
    ck_assert_int_eq(core_barrier(comm), CORE_ERROR_CANCELLED);
    atomic_fetch_add(finished, 1);
    MESSAGE("barrier (collective 2): the timeout passed");
    MESSAGE("; rank 2 has reached collective 1");
    while (atomic_load(finished) < 2) /* rank 0 answers rank 1 */
        usleep(1000);
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

int main(void)
{
    const TTest *const tests[] = {
        rank_that_is_behind_is_named,
        rank_that_has_left_is_named_by_its_last_collective,
        rank_that_has_ended_or_is_stopped_is_named,
        rank_0_that_is_stopped_is_named,
        ranks_of_a_file_see_each_other,
        file_of_another_machine_or_size_is_not_shared,
    };
    const suite_loop loops[] = {
        {timeout_names_the_missing_rank, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/comm_progress", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
