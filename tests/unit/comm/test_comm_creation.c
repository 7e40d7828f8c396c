/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How ranks meet: in a file, over TCP or by the environment; and what every rank
 * gets if it is wrong, if one runs another version, or if files are few. */

#include "support/ranks.h"

#include "base/thread.h"
#include "comm/comm.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

static void expect_create(core_comm_options options, core_status expected,
                          const char *text)
{
    core_comm *comm;

    ck_assert_int_eq(core_comm_create(NULL, &options, &comm), expected);
    ck_assert_ptr_null(comm);
    MESSAGE(text);
}

START_TEST(creation_says_what_is_wrong)
{
    core_comm_options good = {.struct_size = sizeof good,
                              .engine = "sockets",
                              .store = "file:/nonexistent/store",
                              .rank = 1,
                              .size = 2,
                              .timeout = 0.1};
    core_comm_options wrong = good;

    expect_create(good, CORE_ERROR_NOT_FOUND,
                  "no engine \"sockets\" can be used");
    rank_load_engine();
    expect_create(good, CORE_ERROR_CANCELLED,
                  "the timeout passed before rank 0 wrote the file");
    wrong.rank = 2;
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT, "rank 2 of 2");
    wrong = good;
    wrong.store = "ftp:somewhere";
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT,
                  "accepted: file:PATH or tcp:HOST:PORT");
    wrong.store = "tcp:localhost";
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT, "tcp:HOST:PORT");
    wrong.store = NULL;
    unsetenv("MASTER_ADDR");
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT, "MASTER_ADDR");
    wrong = good;
    wrong.size = 0;
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT,
                  "no launcher has set them");
    wrong = good;
    wrong.timeout = -1;
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT, "the timeout is -1");
    wrong = good;
    wrong.flags = 8;
    expect_create(wrong, CORE_ERROR_INVALID_ARGUMENT, "flags are 0x8");
    setenv("SOCKETS_ABSENT", "1", 1);
    expect_create(good, CORE_ERROR_NOT_FOUND, "SOCKETS_ABSENT is set");
}
END_TEST

/* A rank in its own process that uses a store of its own. */
static void with_store(const char *store, bool environment)
{
    pid_t child = fork();
    uint32_t rank = child == 0;
    core_comm_options options = {
        .struct_size = sizeof options, .engine = "sockets", .timeout = 30};
    core_comm *comm;
    core_tensor *x;
    int state;

    rank_load_engine();
    if (environment) {
        setenv("RANK", rank ? "1" : "0", 1);
        setenv("WORLD_SIZE", "2", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", store, 1);
    } else {
        options.store = store;
        options.rank = rank;
        options.size = 2;
    }
    OK(core_comm_create(rank_device_find(), &options, &comm));
    ck_assert_uint_eq(core_comm_rank(comm), rank);
    x = rank_numbers(comm, 1);
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    rank_expect(x, (float[]){3}, 1);
    core_tensor_release(x);
    core_comm_release(comm);
    if (child == 0)
        _exit(RANK_IS_WELL);
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(WEXITSTATUS(state), RANK_IS_WELL);
}

START_TEST(ranks_find_each_other_over_tcp)
{
    char port[16], store[64];

    snprintf(port, sizeof port, "%d", 20000 + (int)getpid() % 20000);
    snprintf(store, sizeof store, "tcp:127.0.0.1:%s", port);
    with_store(store, false);
}
END_TEST

/* Also of torchrun in a job of Slurm, whose task is the torchrun. */
START_TEST(rank_and_store_come_from_the_environment)
{
    char port[16];

    if (_i == 1) {
        setenv("SLURM_PROCID", "0", 1);
        setenv("SLURM_NTASKS", "1", 1);
        setenv("TORCHELASTIC_RUN_ID", "none", 1);
    }
    snprintf(port, sizeof port, "%d", 20000 + (int)getpid() % 20000);
    with_store(port, true);
}
END_TEST

START_TEST(file_of_another_run_is_refused_and_kept)
{
    core_comm_options options;

    temporary_folder(rank_folder, "libcore-ranks");
    options = rank_options(0, 2);
    fclose(fopen(options.store + strlen("file:"), "w"));
    rank_load_engine();
    expect_create(options, CORE_ERROR_REFUSED, "the file exists");
    ck_assert_int_eq(access(options.store + strlen("file:"), F_OK), 0);
    temporary_remove(rank_folder);
}
END_TEST

/* An address of this machine on which nothing listens yet. */
static int free_port(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    *address = (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(bind(listener, (struct sockaddr *)address, size), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)address, &size),
                     0);
    return listener;
}

START_TEST(host_that_does_not_answer_is_an_error_after_the_timeout)
{
    struct sockaddr_in address;
    int listener = free_port(&address), waiting[4];
    char store[64];
    core_comm_options options = {.struct_size = sizeof options,
                                 .engine = "sockets",
                                 .store = store,
                                 .rank = 1,
                                 .size = 2,
                                 .timeout = 0.3};

    /* With a full queue, the system does not answer a connection. */
    ck_assert_int_eq(listen(listener, 0), 0);
    for (int i = 0; i < 4; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(waiting[i], (struct sockaddr *)&address, sizeof address);
    }
    snprintf(store, sizeof store, "tcp:127.0.0.1:%d", ntohs(address.sin_port));
    rank_load_engine();
    expect_create(options, CORE_ERROR_CANCELLED,
                  "the timeout passed before rank 0 sent the id");
    for (int i = 0; i < 4; i++)
        close(waiting[i]);
    close(listener);
}
END_TEST

/* Rank 0 waits for ranks 2 and 3, which never start, but not for the timeout. */
START_TEST(two_processes_with_one_rank_are_an_error)
{
    int64_t begin = core__store_now_ns();
    struct sockaddr_in address;
    pid_t children[2];
    char store[64];
    core_comm_options options = {.struct_size = sizeof options,
                                 .engine = "sockets",
                                 .store = store,
                                 .size = 4,
                                 .timeout = 60};
    core_comm *comm;

    close(free_port(&address));
    snprintf(store, sizeof store, "tcp:127.0.0.1:%d", ntohs(address.sin_port));
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            alarm(RANK_WATCHDOG_SECONDS);
            options.rank = 1;
            rank_load_engine();
            core_comm_create(rank_device_find(), &options, &comm);
            _exit(1);
        }
    }
    rank_load_engine();
    expect_create(options, CORE_ERROR_INVALID_ARGUMENT,
                  "two processes are rank 1 of 4");
    ck_assert_int_lt(core__store_now_ns() - begin, INT64_C(30000000000));
    for (int i = 0; i < 2; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
}
END_TEST

static const char *free_tcp_store(void)
{
    static char store[64];
    struct sockaddr_in address;

    close(free_port(&address));
    snprintf(store, sizeof store, "tcp:127.0.0.1:%d", ntohs(address.sin_port));
    return store;
}

/* `ended`: a pipe that rank 0 closes; -1: it waits for this. */
static bool has_ended(int ended)
{
    struct pollfd pipe = {ended, POLLIN, 0};

    return poll(&pipe, 1, 0) > 0;
}

/* A process of a rank connects to rank 0, unless that has ended, says what it is, and
 * ends. */
static void come_and_end(const char *store, uint32_t rank, uint32_t size,
                         const char *about, int ended)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(strrchr(store, ':') + 1)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char hello[16 + CORE__COMM_ABOUT] = "libcore";
    int connection;

    memcpy(hello + 8, &rank, sizeof rank);
    memcpy(hello + 12, &size, sizeof size);
    memcpy(hello + 16, about, CORE__COMM_ABOUT);
    do {
        connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (const struct sockaddr *)&address,
                    sizeof address) == 0)
            break;
        close(connection);
        if (has_ended(ended))
            return;
        usleep(1000);
    } while (true);
    ck_assert_int_eq(write(connection, hello, sizeof hello), sizeof hello);
    close(connection);
}

/* What these ranks run. */
static const char same[CORE__COMM_ABOUT] = {'a', [CORE__COMM_ABOUT - 1] = 1};

/* Rank 1 ends before rank 2 has come, and is started again, or is not. */
START_TEST(rank_that_ends_while_ranks_meet_may_come_again)
{
    const char *store = free_tcp_store();
    bool again = _i == 1;
    char id[CORE_COLLECTIVES_ID_SIZE] = "y";
    core__progress *progress;
    core_status status;
    int state, ended[2];
    pid_t child;

    ck_assert_int_eq(pipe(ended), 0);
    child = fork();
    if (child == 0) {
        alarm(RANK_WATCHDOG_SECONDS);
        close(ended[1]);
        come_and_end(store, 1, 3, same, ended[0]);
        child = fork();
        if (child == 0) {
            core__store_share_id(store, 2, 3, 20000000000, same, id, &progress);
            _exit(RANK_IS_WELL);
        }
        if (again)
            OK(core__store_share_id(store, 1, 3, 20000000000, same, id,
                                    &progress));
        ck_assert_int_eq(waitpid(child, &state, 0), child);
        _exit(RANK_IS_WELL);
    }
    status = core__store_share_id(store, 0, 3, again ? 20000000000 : 1000000000,
                                  same, id, &progress);
    close(ended[1]);
    if (again) {
        OK(status);
        core__progress_end(progress, true);
    } else {
        ck_assert_int_eq(status, CORE_ERROR_CANCELLED);
        MESSAGE("before all ranks had connected; rank 1 has not");
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(WEXITSTATUS(state), RANK_IS_WELL);
}
END_TEST

/* Rank 1 has met rank 0, and wants to meet it again, before rank 0 has removed the
 * file. */
START_TEST(file_in_which_ranks_have_met_is_not_used_again)
{
    char id[CORE_COLLECTIVES_ID_SIZE] = "first", found[sizeof id];
    core__progress *progress;
    const char *store;
    int ready[2], state;
    pid_t child;

    temporary_folder(rank_folder, "libcore-ranks");
    store = rank_options(0, 2).store;
    ck_assert_int_eq(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        alarm(RANK_WATCHDOG_SECONDS);
        for (int i = 0; i < 2; i++) {
            OK(core__store_share_id(store, 1, 2, 20000000000, same, found,
                                    &progress));
            ck_assert_str_eq(found, i == 0 ? "first" : "second");
            core__progress_end(progress, true);
            ck_assert_int_eq(write(ready[1], "x", 1), 1);
        }
        _exit(RANK_IS_WELL);
    }
    for (int i = 0; i < 2; i++) {
        OK(core__store_share_id(store, 0, 2, 20000000000, same, id, &progress));
        core__progress_end(progress, true);
        ck_assert_int_eq(read(ready[0], found, 1), 1);
        usleep(i == 0 ? 100000 : 0);
        core__store_end(store, 0);
        strcpy(id, "second");
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(WEXITSTATUS(state), RANK_IS_WELL);
    close(ready[0]);
    close(ready[1]);
    temporary_remove(rank_folder);
}
END_TEST

/* ------------------------------------------------------------ versions -- */

/* The places of texts in the note of a plugin, after its name. */
enum { NOTE_NAME = 32, NOTE_VENDOR = 64, NOTE_VERSION = 32 };

/* The fixture, with another version in its note. */
static void copy_with_version(const char *version, const char *to)
{
    static const char name[NOTE_NAME] = "sockets";
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096], *content, *note;
    FILE *file;
    long size;

    snprintf(path, sizeof path, "%s/tests/fixtures/.libs/core_sockets.so",
             build ? build : ".");
    file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    content = malloc((size_t)size);
    ck_assert_uint_eq(fread(content, 1, (size_t)size, file), size);
    fclose(file);
    note = memmem(content, (size_t)size, name, sizeof name);
    ck_assert_ptr_nonnull(note);
    strncpy(note + NOTE_NAME + NOTE_VENDOR, version, NOTE_VERSION);
    file = fopen(to, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(content, 1, (size_t)size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    free(content);
}

/* A rank that cannot create a communicator with the others. */
static void refused_rank(core_comm_options options, const char *plugin,
                         core_status expected, const char *text)
{
    core_comm *comm;

    alarm(RANK_WATCHDOG_SECONDS);
    if (plugin)
        OK(core_plugin_load(plugin, NULL));
    else
        rank_load_engine();
    ck_assert_int_eq(core_comm_create(rank_device_find(), &options, &comm),
                     expected);
    ck_assert_ptr_null(comm);
    MESSAGE(text);
    _exit(RANK_IS_WELL);
}

static void await_ranks(const pid_t *ranks, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++) {
        int state = 0;

        ck_assert_int_eq(waitpid(ranks[r], &state, 0), ranks[r]);
        ck_assert_msg(WIFEXITED(state) && WEXITSTATUS(state) == RANK_IS_WELL,
                      "rank %u failed", r);
    }
}

/* Every rank names the first rank that differs from rank 0, and both versions; the
 * timeout would be another error. */
static void refuse_a_version(uint32_t size, uint32_t odd, bool tcp)
{
    static const char *const versions[] = {"1.0", "9.25"};
    pid_t ranks[RANKS_MOST];
    char plugin[4200], text[256], about[2][64];

    temporary_folder(rank_folder, "libcore-ranks");
    rank_store = tcp ? free_tcp_store() : NULL;
    snprintf(plugin, sizeof plugin, "%s/core_sockets.so", rank_folder);
    copy_with_version(versions[1], plugin);
    for (int i = 0; i < 2; i++)
        snprintf(about[i], sizeof about[i],
                 "libcore %s (ABI %d.%d), sockets of sockets %s",
                 core_version(), CORE_ABI_MAJOR, CORE_ABI_MINOR, versions[i]);
    snprintf(text, sizeof text,
             "core_comm_create: rank 0 has %s, rank %u has %s; all ranks need "
             "the same",
             about[odd == 0], odd == 0 ? 1 : odd, about[odd != 0]);
    for (uint32_t r = 0; r < size; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            refused_rank(rank_options(r, size), r == odd ? plugin : NULL,
                         CORE_ERROR_INCOMPATIBLE, text);
    }
    await_ranks(ranks, size);
    ck_assert_int_ne(
        access(rank_options(0, size).store + strlen("file:"), F_OK), 0);
    temporary_remove(rank_folder);
}

START_TEST(another_version_of_a_plugin_is_refused_by_every_rank)
{
    rank_device = rank_devices[_i % 2];
    refuse_a_version(2, 1, _i / 2);
    refuse_a_version(2, 0, _i / 2);
    refuse_a_version(3, 1, _i / 2);
    refuse_a_version(3, 2, _i / 2);
}
END_TEST

/* Also the rank that is right, and has connected before. */
START_TEST(another_number_of_ranks_is_an_error_on_every_rank)
{
    pid_t ranks[3];

    rank_store = free_tcp_store();
    for (uint32_t r = 0; r < 3; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            refused_rank(rank_options(r, r == 2 ? 4 : 3), NULL,
                         CORE_ERROR_INVALID_ARGUMENT,
                         "core_comm_create: rank 2 has size 4, and rank 0 has "
                         "size 3");
    }
    await_ranks(ranks, 3);
}
END_TEST

/* A rank that runs something else ends the wait for one that never starts. */
START_TEST(others_are_not_awaited_long_after_an_error_in_a_file)
{
    int64_t begin = core__store_now_ns();
    pid_t ranks[2];
    char plugin[4200];

    temporary_folder(rank_folder, "libcore-ranks");
    snprintf(plugin, sizeof plugin, "%s/core_sockets.so", rank_folder);
    copy_with_version("9.25", plugin);
    rank_timeout = 60;
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            refused_rank(rank_options(r, 3), r == 1 ? plugin : NULL,
                         CORE_ERROR_INCOMPATIBLE, "rank 1 has");
    }
    await_ranks(ranks, 2);
    ck_assert_int_lt(core__store_now_ns() - begin, INT64_C(30000000000));
    temporary_remove(rank_folder);
}
END_TEST

/* Rank 1 comes, and gets the error of rank 0. */
START_TEST(rank_that_does_not_connect_is_named_on_every_rank)
{
    pid_t ranks[2];

    rank_store = free_tcp_store();
    rank_timeout = 4; /* rank 1 connects within it */
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            refused_rank(rank_options(r, 3), NULL, CORE_ERROR_CANCELLED,
                         "the timeout passed before all ranks had connected; "
                         "rank 2 has not");
    }
    await_ranks(ranks, 2);
}
END_TEST

/* Also of a rank that rank 0 does not know.  Rank 2, which is right, gets the error,
 * too, and none waits for the timeout, before which its watchdog would end it. */
START_TEST(another_number_of_ranks_in_a_file_is_an_error)
{
    uint32_t odd = (uint32_t)_i;
    pid_t ranks[3];
    char text[2][80];

    temporary_folder(rank_folder, "libcore-ranks");
    rank_timeout = 10 * RANK_WATCHDOG_SECONDS;
    snprintf(text[0], sizeof text[0],
             "core_comm_create: rank %u has size 5, and rank 0 has size 3",
             odd);
    snprintf(text[1], sizeof text[1],
             "core_comm_create: rank %u has another size than rank 0, which "
             "has size 3",
             odd);
    for (uint32_t r = 0; r < 3; r++) {
        core_comm_options options =
            rank_options(r == 1 ? odd : r, r == 1 ? 5 : 3);

        ranks[r] = fork();
        if (ranks[r] == 0)
            refused_rank(options, NULL, CORE_ERROR_INVALID_ARGUMENT,
                         text[r != 1]);
    }
    await_ranks(ranks, 3);
    temporary_remove(rank_folder);
}
END_TEST

START_TEST(rank_that_does_not_come_is_named)
{
    core_comm_options options;

    temporary_folder(rank_folder, "libcore-ranks");
    rank_timeout = 0.2;
    options = rank_options(0, 2);
    rank_load_engine();
    expect_create(options, CORE_ERROR_CANCELLED,
                  "the timeout passed before all ranks had written to the "
                  "file; rank 1 has not");
    ck_assert_int_ne(access(options.store + strlen("file:"), F_OK), 0);
    temporary_remove(rank_folder);
}
END_TEST

/* --------------------------------------------------- few open files -- */

enum { FEW = 6, ID = CORE_COLLECTIVES_ID_SIZE };

/* A rank gets the id, and then knows nothing of the others: rank 0, which has
 * kept no connection, has not ended. */
static void fetch_from_rank_0(const char *store, uint32_t rank)
{
    core__progress *progress;
    char id[ID];

    alarm(RANK_WATCHDOG_SECONDS);
    OK(core__store_share_id(store, rank, FEW, 20000000000, same, id,
                            &progress));
    ck_assert_int_eq(id[0], 'y');
    core__error(CORE_ERROR_CANCELLED, "late");
    core__progress_name_missing(progress, 5);
    ck_assert_str_eq(core_error_message(), "late");
    core__progress_end(progress, true);
    _exit(RANK_IS_WELL);
}

/* Rank 0 can open a listener and two connections in the lower half of its
 * limit; the upper half is free, or not. */
static void serve_with_few_files(bool half_is_free)
{
    const char *store = free_tcp_store();
    int next = dup(0), state;
    core__progress *progress;
    struct rlimit before, limit;
    pid_t children[FEW];
    char id[ID] = "y";

    close(next);
    for (uint32_t r = 1; r < FEW; r++) {
        children[r] = fork();
        if (children[r] == 0)
            fetch_from_rank_0(store, r);
    }
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = 2 * ((rlim_t)next + 3);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = next + 3; i < (int)limit.rlim_cur && !half_is_free; i++)
        ck_assert_int_eq(dup2(0, i), i);
    OK(core__store_share_id(store, 0, FEW, 20000000000, same, id, &progress));
    ck_assert_ptr_null(progress);
    ck_assert_int_eq(dup(0), next);
    setrlimit(RLIMIT_NOFILE, &before); /* the sanitizers open files, too */
    for (uint32_t r = 1; r < FEW; r++) {
        ck_assert_int_eq(waitpid(children[r], &state, 0), children[r]);
        ck_assert_int_eq(WEXITSTATUS(state), RANK_IS_WELL);
    }
}

START_TEST(rank_0_keeps_no_connections_if_files_are_few)
{
    serve_with_few_files(_i == 1);
}
END_TEST

START_TEST(rank_that_can_open_no_connection_says_so)
{
    const char *store = free_tcp_store();
    core__progress *progress;
    struct rlimit before, limit;
    core_status status;
    char id[ID];

    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = (rlim_t)dup(0) + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    status =
        core__store_share_id(store, 1, FEW, 1000000000, same, id, &progress);
    setrlimit(RLIMIT_NOFILE, &before); /* the sanitizers open files, too */
    ck_assert_int_eq(status, CORE_ERROR_IO);
    MESSAGE("rank 1 cannot connect: Too many open files");
}
END_TEST

START_TEST(files_that_are_used_up_are_the_error)
{
    const char *store = free_tcp_store();
    core__progress *progress;
    struct rlimit before, limit;
    char id[ID] = "y";
    core_status status;
    pid_t child = fork();

    if (child == 0)
        fetch_from_rank_0(store, 1);
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = (rlim_t)dup(0) + 2; /* for the listener */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    status =
        core__store_share_id(store, 0, FEW, 600000000000, same, id, &progress);
    setrlimit(RLIMIT_NOFILE, &before); /* the sanitizers open files, too */
    ck_assert_int_eq(status, CORE_ERROR_IO);
    MESSAGE("rank 0 cannot accept connections: Too many open files");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        creation_says_what_is_wrong,
        ranks_find_each_other_over_tcp,
        file_of_another_run_is_refused_and_kept,
        host_that_does_not_answer_is_an_error_after_the_timeout,
        two_processes_with_one_rank_are_an_error,
        another_number_of_ranks_is_an_error_on_every_rank,
        rank_that_does_not_come_is_named,
        rank_that_does_not_connect_is_named_on_every_rank,
        others_are_not_awaited_long_after_an_error_in_a_file,
        file_in_which_ranks_have_met_is_not_used_again,
        files_that_are_used_up_are_the_error,
        rank_that_can_open_no_connection_says_so,
    };
    const suite_loop loops[] = {
        {rank_0_keeps_no_connections_if_files_are_few, 0, 2},
        {rank_that_ends_while_ranks_meet_may_come_again, 0, 2},
        {rank_and_store_come_from_the_environment, 0, 2},
        {another_number_of_ranks_in_a_file_is_an_error, 1, 2},
        {another_number_of_ranks_in_a_file_is_an_error, 3, 4},
        {another_version_of_a_plugin_is_refused_by_every_rank, 0, 4},
    };
    const test_suite suites[] = {
        {"comm/comm_creation", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
