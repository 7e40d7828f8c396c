/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* run_numbers.h: numbers of a call that are read again when it is repeated.
 *
 * The numbers of a recorded call are constants of the program.  Some are state
 * of an object on the host, such as an optimizer's count of steps and its
 * learning rate.  While a thread records, the object announces before a call
 * which of its arguments these are, and afterwards that the call was made: the
 * program reads the numbers at the start of each run, and reports the calls at
 * the end of it. */

#ifndef CORE_DISPATCH_RUN_NUMBERS_H
#define CORE_DISPATCH_RUN_NUMBERS_H

#include <libcore/dispatch.h>

#include <stdbool.h>
#include <stdint.h>

/* A kind of object.  A part is something with a count of its own, such as a
 * parameter of an optimizer. */
typedef struct core__run_source {
    const char *name;
    const char *const *numbers; /* their names */
    /* A number, if the run makes `earlier` calls for the part before the one
     * that reads it. */
    core_value (*read)(void *object, uint32_t part, uint32_t number,
                       uint32_t earlier);
    /* True if the part is still like another one, with which it shares
     * calls. */
    bool (*alike)(void *object, uint32_t part, uint32_t other);
    /* True once the program that made the object has released it. */
    bool (*released)(void *object);
    /* A run has made a call for the part. */
    void (*finish)(void *object, uint32_t part);
    /* Of references that keep the object valid, not its tensors. */
    void (*retain)(void *object);
    void (*release)(void *object);
} core__run_source;

typedef struct core__run_number {
    uint32_t argument; /* of the next call */
    uint32_t number;
} core__run_number;

enum { CORE__RUN_NUMBERS = 2 }; /* of a call, at most */

/* The numbers of the next call. */
typedef struct core__run_numbers {
    const core__run_source *source;
    void *object;
    uint32_t part;
    uint32_t count; /* 0: there is none any more */
    core__run_number numbers[CORE__RUN_NUMBERS];
} core__run_numbers;

#endif
