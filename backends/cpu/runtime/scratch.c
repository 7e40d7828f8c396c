/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The blocks of scratch.h.  Sizes are powers of two; for each there are slots,
 * taken and filled by atomic exchange.  AddressSanitizer gets blocks of the
 * requested sizes, which are freed at once, so that it sees what is written
 * outside them or afterwards. */

#define _GNU_SOURCE

#include "scratch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef __has_feature
#define HAS_FEATURE(NAME) __has_feature(NAME)
#else
#define HAS_FEATURE(NAME) 0
#endif
#if defined __SANITIZE_ADDRESS__ || HAS_FEATURE(address_sanitizer)
static const bool keeps = false;
#else
static const bool keeps = true;
#endif

enum {
    LINE = 64,
    LEAST = 16, /* 64 KiB, as a power of two */
    CLASSES = 9,
    SLOTS = 8,
    CACHED_MOST = 32 << 20
};

/* Before the memory. */
typedef union block {
    int size_class;
    char line[LINE];
} block;

static _Atomic(block *) slots[CLASSES][SLOTS];
static atomic_llong cached_bytes;

static long long bytes_of(int size_class)
{
    return 1LL << (LEAST + size_class);
}

/* CLASSES: too large to be cached. */
static int class_of(int64_t bytes)
{
    int c = keeps ? 0 : CLASSES;

    while (c < CLASSES && bytes_of(c) < bytes)
        c++;
    return c;
}

static block *take_cached(int size_class)
{
    for (int i = 0; size_class < CLASSES && i < SLOTS; i++) {
        block *b = atomic_exchange(&slots[size_class][i], NULL);

        if (b) {
            atomic_fetch_sub(&cached_bytes, bytes_of(size_class));
            return b;
        }
    }
    return NULL;
}

void *cpu_scratch_take(int64_t bytes)
{
    int size_class = class_of(bytes);
    void *memory = NULL;
    block *b;

    if (bytes < 0 || bytes > INT64_MAX / 2)
        return NULL;
    b = take_cached(size_class);
    if (!b) {
        int64_t size = size_class < CLASSES ? bytes_of(size_class) : bytes;

        if (posix_memalign(&memory, LINE, sizeof *b + (size_t)size) != 0)
            return NULL;
        b = memory;
        b->size_class = size_class;
    }
    return b + 1;
}

void cpu_scratch_give(void *memory)
{
    block *b = memory ? (block *)memory - 1 : NULL;
    int c = b ? b->size_class : CLASSES;

    if (c < CLASSES &&
        atomic_fetch_add(&cached_bytes, bytes_of(c)) + bytes_of(c) <=
            CACHED_MOST)
        for (int i = 0; i < SLOTS; i++) {
            block *none = NULL;

            if (atomic_compare_exchange_strong(&slots[c][i], &none, b))
                return;
        }
    if (c < CLASSES)
        atomic_fetch_sub(&cached_bytes, bytes_of(c));
    free(b);
}

void cpu_scratch_shutdown(void)
{
    for (int c = 0; c < CLASSES; c++)
        for (block *b = take_cached(c); b; b = take_cached(c))
            free(b);
}
