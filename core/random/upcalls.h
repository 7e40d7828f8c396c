/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that random calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_RANDOM_UPCALLS_H
#define CORE_RANDOM_UPCALLS_H

struct core__random_upcalls {
    /* While the thread records: the recording fails, because of this
     * function. */
    void (*refuse_recording)(const char *name);
};

extern const struct core__random_upcalls core__random_upcalls;

#endif
