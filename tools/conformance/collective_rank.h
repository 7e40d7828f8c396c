/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collective_rank.h: one rank of a test of core.collectives.  It is a process
 * that collectives.c has started, and reports in memory that the two share.  A
 * test returns if it passes; its checks end the process if they fail. */

#ifndef CONFORMANCE_COLLECTIVE_RANK_H
#define CONFORMANCE_COLLECTIVE_RANK_H

#include <libcore/comm.h>
#include <libcore/core.h>

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RANKS_LEAST = 2, RANKS_MOST = 16, RANK_TEXT = 500 };

enum {
    RANK_RUNS = 0,
    RANK_PASSED,
    RANK_UNSUPPORTED, /* the engine does not have it */
    RANK_FAILED,
    RANK_UNUSABLE /* the engine or the device cannot be used here */
};

/* What the name of the store of a second communicator, with a short timeout, ends
 * in. */
#define RANK_SHORT_STORE "-short"

/* What a rank has found; each writes its own. */
typedef struct rank_report {
    _Atomic int verdict;  /* RANK_… */
    int64_t when;         /* it failed, of the monotonic clock */
    char call[RANK_TEXT]; /* the last one that it made */
    char detail[RANK_TEXT];
} rank_report;

/* Shared by all ranks of a test. */
typedef struct rank_shared {
    _Atomic uint32_t arrived;  /* at calls for which another rank is late */
    _Atomic uint32_t vanished; /* processes that a test has ended */
    rank_report reports[RANKS_MOST];
} rank_shared;

typedef struct rank_setup {
    const char *plugin;   /* the file */
    const char *engine;   /* NULL: the plugin's first */
    const char *device;   /* ends in ':': that of the rank's number */
    const char *store;    /* NULL: a launcher has started the ranks */
    double timeout;       /* of each call, if all ranks make it */
    double short_timeout; /* if one does not */
} rank_setup;

typedef struct rank {
    const rank_setup *setup;
    rank_shared *shared;
    rank_report *report;
    uint32_t number, size;
    const char *engine;
    core_device *device;
    core_comm *comm;
    jmp_buf *leave; /* the end of a test; NULL: that of the process */
} rank;

typedef struct collective_test {
    const char *name;
    void (*run)(rank *self);
    uint32_t flags; /* CORE_COMM_… */
    bool fault;     /* a rank is missing: the timeout is the short one */
} collective_test;

/* NULL-terminated lists. */
extern const collective_test collective_results[], collective_faults[];

/* Runs a test, with a communicator, and ends the process. */
_Noreturn void rank_run(rank *self, const collective_test *test);

/* The two parts of it, for processes that make several tests.  `setup`, `shared`,
 * `number` and `size` are set.  rank_prepare returns if all is well; otherwise, and
 * rank_test always, they store a verdict and jump to self->leave. */
void rank_prepare(rank *self);
_Noreturn void rank_test(rank *self, const collective_test *test);
/* Creates the communicator of a test. */
void rank_connect(rank *self, uint32_t flags);

/* ---------------------------------------------------------- for tests -- */

/* Stores what is called next, for messages. */
void rank_calls(rank *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Passes: ends the test, or the process. */
_Noreturn void rank_pass(rank *self);
/* Fails, with the last call and a message. */
_Noreturn void rank_fail(rank *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Passes with a remark. */
void rank_remark(rank *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fails unless the call succeeded. */
void rank_must(rank *self, core_status status);
/* The same for a reduction: false if the engine does not have it. */
bool rank_has(rank *self, core_status status);
/* Ends the process if every reduction of a test was missing. */
void rank_expect_some(rank *self, uint32_t had);

/* Whole numbers from 1 to 7, whose sums every dtype has, even of 16 ranks.  They
 * and their sums differ between ranks, elements and parts. */
double rank_value(uint32_t of, int64_t element);
/* The same for products: 1 but for one or two ranks, which all ranks are in
 * turn. */
double rank_factor(const rank *self, uint32_t of, int64_t element);
/* Their reduction. */
double rank_reduced(const rank *self, uint32_t reduction, int64_t element);
/* A tensor of this rank's numbers. */
core_tensor *rank_make(rank *self, core_dtype dtype, int64_t count);
core_tensor *rank_make_for(rank *self, core_dtype dtype, uint32_t reduction,
                           int64_t count);
/* Fails unless the elements are values(self, context, element); releases
 * found. */
void rank_expect(rank *self, core_tensor *found, int64_t count,
                 double (*value)(const rank *self, const void *context,
                                 int64_t element),
                 const void *context);
/* Sleeps. */
void rank_pause(double seconds);
/* A barrier. */
void rank_meet(rank *self);
/* Waits until so many have arrived, in all; ends the process if another rank
 * has failed. */
void rank_await_others(rank *self, uint32_t arrived);

#endif
