/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* process_state.h: the process state that a plugin must not change:
 * floating-point environment, signal handlers and mask, locale, working
 * directory, umask, timers, open descriptors, environment variables, resource
 * limits, the thread's niceness and CPU affinity, children. */

#ifndef CONFORMANCE_PROCESS_STATE_H
#define CONFORMANCE_PROCESS_STATE_H

#include "suite.h"

#include <signal.h>
#include <sys/resource.h>

enum { PROCESS_SIGNALS = 32 };

typedef struct process_state {
    int rounding;
    uint32_t control; /* flush-to-zero, exception masks */
    struct sigaction handlers[PROCESS_SIGNALS];
    sigset_t mask;
    char locale[256];
    char folder[1024];
    void *own_locale; /* the thread's */
    uint32_t umask;
    uint32_t standard;  /* bits of the open descriptors among 0 to 2 */
    bool timer;         /* SIGALRM is pending */
    uint32_t x87;       /* the x87 control word */
    uint64_t variables; /* a hash of the environment */
    struct rlimit limits[RLIM_NLIMITS];
    int nice;                      /* the thread's */
    unsigned char processors[128]; /* CPU affinity */
} process_state;

void process_state_save(process_state *out);
/* Fails the outcome if something changed, and restores it. */
void process_state_check(const process_state *before, outcome *out);

/* The same for environment variables.  Checked for calls only, since some
 * drivers set variables when they are opened. */
void process_state_check_environment(const process_state *before, outcome *out);

/* Returns the bytes in use on the C library's heap. */
uint64_t process_heap(void);
/* Waits up to a few seconds for it to be below a limit (ending threads return
 * their memory a little later). */
bool process_heap_below(uint64_t limit);
/* Returns the mapped bytes of the address space, which include mmap and thread
 * stacks. 0 in builds with sanitizers, which map memory themselves. */
uint64_t process_mapped(void);
/* A call that leaks a mapping leaks at least a page.  Memory that the C library
 * returns meanwhile may hide that once, so half a page counts as a leak, and
 * one round without growth does not clear it. */
enum { PROCESS_MAP_BYTES = 2048, PROCESS_MAP_ROUNDS = 2 };
/* Waits likewise for the mapped bytes to be below a limit. */
bool process_mapped_below(uint64_t limit);
/* Counts the threads of the process besides the suite's own, and how many of
 * them sleep. */
uint32_t process_threads(uint32_t *out_asleep);
/* Waits a few milliseconds, and until all other threads sleep: what they can do
 * they have done, however busy the machine is. */
void process_settle(void);
/* Returns the number of open descriptors. */
uint32_t process_descriptors(void);

#endif
