/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that memory calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_MEMORY_UPCALLS_H
#define CORE_MEMORY_UPCALLS_H

#include "base/thread.h"

struct core__memory_upcalls {
    /* Moves the thread's cached tensors to *list. */
    void (*tensor_cache_collect)(core__thread *thread, core_tensor **list);
    /* Frees the tensors of such a list. */
    void (*tensor_cache_drop)(core_tensor *list);
};

extern const struct core__memory_upcalls core__memory_upcalls;

#endif
