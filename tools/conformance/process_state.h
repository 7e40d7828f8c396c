/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* process_state.h: what a plugin must leave as it found it: the floating-point
 * environment, signal handlers and mask, locale, working directory, umask,
 * timers, open descriptors, environment variables, limits, the thread's
 * priority and processors, children. */

#ifndef CONFORMANCE_MANNERS_H
#define CONFORMANCE_MANNERS_H

#include "suite.h"

#include <signal.h>
#include <sys/resource.h>

enum { MANNERS_SIGNALS = 32 };

typedef struct manners {
    int rounding;
    uint32_t control; /* flushing of denormals, masks of exceptions */
    struct sigaction handlers[MANNERS_SIGNALS];
    sigset_t mask;
    char locale[256];
    char folder[1024];
    void *own_locale; /* the thread's */
    uint32_t umask;
    uint32_t standard;  /* bits of the descriptors 0 to 2 that are open */
    bool timer;         /* SIGALRM will come */
    uint32_t x87;       /* its control word */
    uint64_t variables; /* a sum of the environment's */
    struct rlimit limits[RLIM_NLIMITS];
    int nice;                      /* the thread's */
    unsigned char processors[128]; /* that the thread may run on */
} manners;

void manners_note(manners *out);
/* Fails the outcome where something changed, and puts it back. */
void manners_check(const manners *before, outcome *out);

/* The same of the environment's variables: of calls, since drivers set some for
 * themselves when they are opened. */
void manners_check_variables(const manners *before, outcome *out);

/* Bytes of the C library's heap that are in use. */
uint64_t manners_heap(void);
/* Whether it is, or comes to be within a few seconds (threads that end give
 * their memory back a little later), below a limit. */
bool manners_heap_below(uint64_t limit);
/* Bytes of the address space that are mapped: what comes from mmap, which the
 * heap knows nothing of, and the stacks of threads.  0 in a build with
 * sanitizers, which map memory of their own when they like. */
uint64_t manners_mapped(void);
/* A call that leaves a mapping leaves a page of it, or more.  What the C
 * library gives back meanwhile may hide that once, so half of it is too much,
 * and one round in which nothing grew is not enough. */
enum { MANNERS_MAP = 2048, MANNERS_RESTS = 2 };
/* Whether so much is, or comes to be, below a limit; as above. */
bool manners_mapped_below(uint64_t limit);
/* Descriptors that are open. */
uint32_t manners_descriptors(void);

#endif
