/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ranks.h: tests with several processes, connected by the fixture "sockets".
 * The test's process uses no plugin before it forks. */

#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#ifndef SUITE_FORKS
#define SUITE_FORKS true
#endif

#include "comm/comm.h"
#include "suite.h"
#include "temporary_files.h"

#include <libcore/capture.h>
#include <libcore/comm.h>
#include <libcore/ops.h>
#include <libcore/plugins.h>

#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#define OK(call)                                                    \
    do {                                                            \
        core_status ok_ = (call);                                   \
        ck_assert_msg(ok_ == CORE_OK, "%s: %s: %s", #call,          \
                      core_status_name(ok_), core_error_message()); \
    } while (0)

/* The message of the thread's error contains the text. */
#define MESSAGE(text)                                         \
    ck_assert_msg(strstr(core_error_message(), text) != NULL, \
                  "the message is: %s", core_error_message())

enum { RANKS_MOST = 8, RANK_IS_WELL = 42, RANK_WATCHDOG_SECONDS = 50 };

static const char *rank_device = "cpu"; /* of the communicator */
/* Without and with streams. */
static const char *const rank_devices[] = {"cpu", "sim"};
static const char *rank_engine = "sockets";
/* Makes the engine available in a rank; NULL: loads the fixture. */
static void (*rank_prepare)(void);
static double rank_timeout = 30;
static uint32_t rank_flags;    /* CORE_COMM_… */
static const char *rank_store; /* NULL: a file in rank_folder */
static temporary_path rank_folder;

static inline core_device *rank_device_find(void)
{
    core_device *device;

    OK(core_device_find(rank_device, &device));
    return device;
}

static inline void rank_load_engine(void)
{
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096];

    if (rank_prepare) {
        rank_prepare();
        return;
    }
    snprintf(path, sizeof path, "%s/tests/fixtures/.libs/core_sockets.so",
             build ? build : ".");
    OK(core_plugin_load(path, NULL));
}

static inline core_comm_options rank_options(uint32_t rank, uint32_t size)
{
    static char store[4200];
    core_comm_options options = {.struct_size = sizeof options,
                                 .flags = rank_flags,
                                 .engine = rank_engine,
                                 .store = store,
                                 .rank = rank,
                                 .size = size,
                                 .timeout = rank_timeout};

    snprintf(store, sizeof store, "file:%s/store", rank_folder);
    if (rank_store)
        options.store = rank_store;
    return options;
}

/* Sets the timeout of later calls.  The creation of the communicator has the longer
 * one, since it may take long on a busy machine. */
static inline void rank_set_timeout(core_comm *comm, double seconds)
{
    comm->timeout_ns = (int64_t)(seconds * 1e9);
    core__progress_set_timeout(comm->progress, comm->timeout_ns);
}

static inline void rank_mark_path(char *path, size_t size, uint32_t number)
{
    snprintf(path, size, "%s/mark-%u", rank_folder, number);
}

/* Lets the ranks go on that wait for the mark of this number. */
static inline void rank_mark(uint32_t number)
{
    char path[4200];
    FILE *file;

    rank_mark_path(path, sizeof path, number);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
}

static inline void rank_await_mark(uint32_t number)
{
    char path[4200];

    rank_mark_path(path, sizeof path, number);
    while (access(path, F_OK) != 0)
        usleep(10 * 1000);
}

/* A rank's process. */
static inline void rank_main(uint32_t rank, uint32_t size,
                             void (*function)(core_comm *comm))
{
    core_comm_options options = rank_options(rank, size);
    core_comm *comm;

    signal(SIGALRM, SIG_DFL);
    alarm(RANK_WATCHDOG_SECONDS);
    rank_load_engine();
    OK(core_comm_create(rank_device_find(), &options, &comm));
    function(comm);
    core_comm_release(comm);
    _exit(RANK_IS_WELL);
}

/* Runs a function in `size` processes, each with a communicator; those whose
 * bit is set in `ends` may end in any way.  A process that lasts too long is
 * ended by a signal.  The test fails after all have ended and their folder is
 * gone. */
static inline void on_ranks_that_end(uint32_t size, uint32_t ends,
                                     void (*function)(core_comm *comm))
{
    pid_t children[RANKS_MOST];
    int states[RANKS_MOST] = {0};

    temporary_folder(rank_folder, "libcore-ranks");
    for (uint32_t r = 0; r < size; r++) {
        children[r] = fork();
        if (children[r] == 0)
            rank_main(r, size, function);
    }
    for (uint32_t r = 0; r < size; r++)
        if (children[r] > 0)
            waitpid(children[r], &states[r], 0);
    temporary_remove(rank_folder);
    for (uint32_t r = 0; r < size; r++) {
        ck_assert_int_ge(children[r], 0);
        if (ends >> r & 1)
            continue;
        ck_assert_msg(!WIFSIGNALED(states[r]), "rank %u ended by signal %d", r,
                      WTERMSIG(states[r]));
        ck_assert_msg(WEXITSTATUS(states[r]) == RANK_IS_WELL, "rank %u failed",
                      r);
    }
}

static inline void on_ranks(uint32_t size, void (*function)(core_comm *comm))
{
    on_ranks_that_end(size, 0, function);
}

/* -------------------------------------------------------------- errors -- */

/* The status of a collective, at once or when it is waited for. */
static inline core_status rank_wait(core_comm *comm, core_status status)
{
    return status == CORE_OK ? core_comm_synchronize(comm) : status;
}

/* A collective fails, and its communicator stays failed. */
static inline void rank_expect_failure(core_comm *comm, core_status status,
                                       core_status expected)
{
    status = rank_wait(comm, status);
    ck_assert_msg(status == expected, "%s: %s", core_status_name(status),
                  core_error_message());
    ck_assert_int_eq(core_barrier(comm), expected);
    ck_assert_int_eq(core_comm_error(comm), expected);
}

typedef core_status (*rank_call)(core_comm *comm, core_tensor *x);

/* Makes a call on a stream that is captured, which is refused. */
static inline void rank_refuse_in_capture(core_comm *comm, rank_call call,
                                          core_tensor *x)
{
    core_stream *stream;
    core_stream_guard guard;
    core_graph *graph = NULL;

    OK(core_stream_create(core_comm_device(comm), &stream));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_capture_begin(stream, NULL));
    ck_assert_int_eq(call(comm, x), CORE_ERROR_UNSUPPORTED);
    MESSAGE("a collective");
    ck_assert_int_ne(core_capture_end(stream, &graph), CORE_OK);
    core_stream_guard_leave(&guard);
    core_stream_release(stream);
}

/* ------------------------------------------------------------- tensors -- */

static inline core_tensor *rank_tensor(core_comm *comm, const float *values,
                                       int64_t count)
{
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_F32, &count, 1,
                             core_comm_device(comm), &tensor));
    return tensor;
}

/* rank + 1, 2 * (rank + 1), … */
static inline core_tensor *rank_numbers(core_comm *comm, int64_t count)
{
    float values[64];

    for (int64_t i = 0; i < count; i++)
        values[i] = (float)((i + 1) * (core_comm_rank(comm) + 1));
    return rank_tensor(comm, values, count);
}

static inline void rank_expect(core_tensor *tensor, const float *values,
                               int64_t count)
{
    float found[64];

    ck_assert_int_eq(core_tensor_numel(tensor), count);
    OK(core_tensor_read(tensor, found, (size_t)count * sizeof *found));
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(found[i] == values[i], "element %d is %g, not %g", (int)i,
                      (double)found[i], (double)values[i]);
}

/* Rank a sends a rows to each rank b of 3, and one more to itself. */
static inline void rank_row_counts(core_comm *comm, int64_t *send,
                                   int64_t *receive)
{
    int64_t rank = core_comm_rank(comm);

    for (int64_t r = 0; r < 3; r++) {
        send[r] = rank + (r == rank);
        receive[r] = r + (r == rank);
    }
}

#endif
