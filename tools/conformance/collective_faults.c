/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What the other ranks get if one makes another call, or none: an error, within
 * the timeout; what a rank gets whose call another thread aborts.  A rank that
 * hangs is found by the watchdog in collectives.c. */

#include "collective_rank.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_last(const rank *self)
{
    return self->number == self->size - 1;
}

/* "; rank 2 has ended", as libcore says it. */
static bool is_of_libcore(const char *text)
{
    static const char *const says[] = {" has reached collective ", " has ended",
                                       " has not answered "};
    const char *after = text + strlen("; rank ");

    after += strspn(after, "0123456789");
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (strncmp(after, says[i], strlen(says[i])) == 0)
            return true;
    return false;
}

/* Where what libcore knows of the ranks begins in a message; NULL: nowhere. */
static const char *find_ours(const char *message)
{
    const char *at = strstr(message, "; rank ");

    while (at && !is_of_libcore(at))
        at = strstr(at + 1, "; rank ");
    return at;
}

/* The engine's reason, which follows the call in a message, names the last
 * rank. */
static bool names_last(const rank *self, const char *message)
{
    const char *ours = find_ours(message), *reason;
    char engines[RANK_TEXT], number[16];
    size_t size = (size_t)snprintf(number, sizeof number, "%u", self->size - 1);

    snprintf(engines, sizeof engines, "%.*s",
             ours ? (int)(ours - message) : RANK_TEXT - 1, message);
    reason = strstr(engines, "): ");
    reason = reason ? strstr(reason, "rank") : NULL;
    while (reason && (reason = strstr(reason, number)) != NULL) {
        if (reason[-1] == ' ' && !isdigit((unsigned char)reason[size]))
            return true;
        reason += size;
    }
    return false;
}

/* The error is of the collective, or, on a device with streams, of the wait; the
 * communicator keeps it. */
static void expect_error(rank *self, core_status status)
{
    char first[RANK_TEXT / 2];

    if (status == CORE_OK)
        status = core_comm_synchronize(self->comm);
    if (status == CORE_OK)
        rank_fail(self,
                  "there was no error, although rank %u did not make the call",
                  self->size - 1);
    snprintf(first, sizeof first, "%s", core_error_message());
    if (!names_last(self, first))
        rank_remark(self, "the error does not name rank %u: %s", self->size - 1,
                    first);
    rank_calls(self, "barrier after an error");
    if (core_barrier(self->comm) != status)
        rank_fail(self, "it did not return the communicator's error, %s",
                  first);
}

static core_status last_call(rank *self, uint32_t kind)
{
    core_tensor *x = rank_make(self, CORE_F32, 12);
    core_status status;

    rank_calls(self, "%s that rank %u does not make",
               kind == CORE_COLLECTIVE_BARRIER ? "barrier" : "broadcast",
               self->size - 1);
    status = kind == CORE_COLLECTIVE_BARRIER ? core_barrier(self->comm)
                                             : core_broadcast(self->comm, x, 0);
    core_tensor_release(x);
    return status;
}

/* Every rank learns it, the last one, too. */
static void test_order(rank *self)
{
    core_tensor *x = rank_make(self, CORE_F32, 12);
    core_status status;

    rank_meet(self);
    rank_calls(self, "broadcast on some ranks, barrier on others");
    status = is_last(self) ? core_barrier(self->comm)
                           : core_broadcast(self->comm, x, 0);
    if (status == CORE_OK)
        status = core_comm_synchronize(self->comm);
    if (status != CORE_ERROR_INVALID_ARGUMENT)
        rank_fail(self, "the error is %s, not CORE_ERROR_INVALID_ARGUMENT",
                  core_status_name(status));
    if (!strstr(core_error_message(), "broadcast") ||
        !strstr(core_error_message(), "barrier"))
        rank_fail(self, "the error does not name the calls: %s",
                  core_error_message());
    core_tensor_release(x);
}

static bool others_run(const rank *self)
{
    for (uint32_t r = 0; r < self->size; r++)
        if (r != self->number &&
            atomic_load(&self->shared->reports[r].verdict) == RANK_RUNS)
            return true;
    return false;
}

/* Passes, and stays until the others have ended, or the watchdog ends it. */
static _Noreturn void be_missing(rank *self)
{
    rank_calls(self, "none, on purpose");
    atomic_store(&self->report->verdict, RANK_PASSED);
    while (others_run(self))
        rank_pause(0.005);
    rank_pass(self);
}

static void test_missing(rank *self)
{
    rank_meet(self);
    if (is_last(self))
        be_missing(self);
    expect_error(self, last_call(self, CORE_COLLECTIVE_BROADCAST));
}

/* Without the comparison of calls: the collective itself has the timeout. */
static void test_missing_in_run(rank *self)
{
    rank_meet(self);
    if (is_last(self))
        be_missing(self);
    expect_error(self, last_call(self, CORE_COLLECTIVE_BARRIER));
}

/* The rank passes, and ends without a word to the engine. */
static void test_ended(rank *self)
{
    rank_meet(self);
    if (is_last(self)) {
        atomic_store(&self->report->verdict, RANK_PASSED);
        atomic_fetch_add(&self->shared->vanished, 1);
        _exit(0);
    }
    expect_error(self, last_call(self, CORE_COLLECTIVE_BROADCAST));
}

static void test_abort(rank *self)
{
    rank_meet(self);
    if (!is_last(self)) {
        expect_error(self, last_call(self, CORE_COLLECTIVE_BROADCAST));
        return;
    }
    rank_calls(self, "core_comm_abort, then a barrier");
    rank_must(self, core_comm_abort(self->comm));
    if (core_barrier(self->comm) != CORE_ERROR_CANCELLED)
        rank_fail(self, "it was not cancelled");
    be_missing(self);
}

/* A barrier that no other rank calls, which another thread ends. */
typedef struct pending {
    rank *self;
    uint64_t before;    /* number of the last collective */
    _Atomic bool ended; /* the call */
    core_status status; /* of core_comm_abort */
} pending;

/* When the call has its number, and then some time to reach the engine. */
static void *abort_later(void *context)
{
    pending *p = context;

    while (core_comm_sequence(p->self->comm) == p->before &&
           !atomic_load(&p->ended))
        rank_pause(0.001);
    rank_pause(0.3);
    p->status = core_comm_abort(p->self->comm);
    return NULL;
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static core_status wait_in_barrier(pending *p)
{
    core_status status = core_barrier(p->self->comm);

    return status == CORE_OK ? core_comm_synchronize(p->self->comm) : status;
}

/* Only the timeout has ended the call, which an engine may round down. */
static void expect_no_abort(rank *self)
{
    core_barrier(self->comm);
    if (!strstr(core_error_message(), "the engine cannot end"))
        rank_fail(self,
                  "core_comm_abort in another thread did not end it: it ended "
                  "after its timeout, of %g seconds; abort of core.collectives "
                  "must end the calls that have begun, or be NULL",
                  self->setup->short_timeout);
    rank_remark(self, "%s", core_error_message());
    rank_expect_some(self, 0);
}

static void test_own_abort(rank *self)
{
    pending p = {.self = self};
    pthread_t thread;
    core_status status;
    double begun;

    rank_meet(self);
    if (!is_last(self))
        be_missing(self);
    rank_calls(self, "barrier that no other rank calls");
    p.before = core_comm_sequence(self->comm);
    if (pthread_create(&thread, NULL, abort_later, &p) != 0)
        rank_fail(self, "no thread for a test");
    begun = seconds_now();
    status = wait_in_barrier(&p);
    atomic_store(&p.ended, true);
    pthread_join(thread, NULL);
    rank_must(self, p.status);
    if (status == CORE_OK)
        rank_fail(self, "it succeeded");
    if (seconds_now() - begun >= self->setup->short_timeout * 0.9)
        expect_no_abort(self);
    if (status != CORE_ERROR_CANCELLED)
        rank_fail(self,
                  "after core_comm_abort in another thread the error is %s, "
                  "not CORE_ERROR_CANCELLED: %s",
                  core_status_name(status), core_error_message());
}

const collective_test collective_faults[] = {
    {"collectives/other-call-is-an-error", test_order, 0, false},
    {"collectives/missing-rank-is-an-error", test_missing, 0, true},
    {"collectives/missing-rank-ends-a-collective", test_missing_in_run,
     CORE_COMM_UNCHECKED, true},
    {"collectives/ended-rank-is-an-error", test_ended, 0, true},
    {"collectives/abort-is-an-error", test_abort, 0, true},
    {"collectives/abort-ends-own-call", test_own_abort, CORE_COMM_UNCHECKED,
     true},
    {NULL, NULL, 0, false},
};
