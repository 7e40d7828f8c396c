/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "free_quarantine.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 1 << 16, POISON = 0xdd, MOST = PLACES / 2 };
static const uint64_t most_bytes = UINT64_C(256) << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *kept[PLACES]; /* a hash table, by address */
static uint32_t count;
static uint64_t bytes;
static bool active;
static uint32_t twice;

static void **place_of(const void *data)
{
    uint32_t at = (uint32_t)((uintptr_t)data * 0x9e3779b97f4a7c15u >> 48);

    while (kept[at] && kept[at] != data)
        at = (at + 1) % PLACES;
    return &kept[at];
}

/* Returns whether the block was kept.  Its address is then not reused. */
static bool keep(void *data)
{
    size_t size = malloc_usable_size(data);
    void **place = place_of(data);

    if (*place) {
        twice++;
        return true;
    }
    if (!active || count == MOST || bytes + size > most_bytes)
        return false;
    *place = data;
    memset(data, POISON, size);
    count++;
    bytes += size;
    return true;
}

void quarantine_free(void *data)
{
    bool stays;

    if (!data)
        return;
    pthread_mutex_lock(&lock);
    stays = keep(data);
    pthread_mutex_unlock(&lock);
    if (!stays)
        free(data);
}

void quarantine_begin(void)
{
    pthread_mutex_lock(&lock);
    active = true;
    pthread_mutex_unlock(&lock);
}

static bool is_unchanged(const unsigned char *data)
{
    size_t size = malloc_usable_size((void *)(uintptr_t)data);

    for (size_t i = 0; i < size; i++)
        if (data[i] != POISON)
            return false;
    return true;
}

quarantine_counts quarantine_end(void)
{
    quarantine_counts found = {0};

    pthread_mutex_lock(&lock);
    active = false;
    for (uint32_t i = 0; i < PLACES; i++)
        if (kept[i] && !is_unchanged(kept[i]))
            found.written++;
    found.count = count;
    found.twice = twice;
    pthread_mutex_unlock(&lock);
    return found;
}
