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
static void *buried[PLACES]; /* by address */
static uint32_t count;
static uint64_t bytes;
static bool digging;
static uint32_t twice;

static void **place_of(const void *data)
{
    uint32_t at = (uint32_t)((uintptr_t)data * 0x9e3779b97f4a7c15u >> 48);

    while (buried[at] && buried[at] != data)
        at = (at + 1) % PLACES;
    return &buried[at];
}

/* Whether it stays, and with it its address, which nobody else gets. */
static bool bury(void *data)
{
    size_t size = malloc_usable_size(data);
    void **place = place_of(data);

    if (*place) {
        twice++;
        return true;
    }
    if (!digging || count == MOST || bytes + size > most_bytes)
        return false;
    *place = data;
    memset(data, POISON, size);
    count++;
    bytes += size;
    return true;
}

void graves_free(void *data)
{
    bool stays;

    if (!data)
        return;
    pthread_mutex_lock(&lock);
    stays = bury(data);
    pthread_mutex_unlock(&lock);
    if (!stays)
        free(data);
}

void graves_begin(void)
{
    pthread_mutex_lock(&lock);
    digging = true;
    pthread_mutex_unlock(&lock);
}

static bool is_at_rest(const unsigned char *data)
{
    size_t size = malloc_usable_size((void *)(uintptr_t)data);

    for (size_t i = 0; i < size; i++)
        if (data[i] != POISON)
            return false;
    return true;
}

graves graves_end(void)
{
    graves found = {0};

    pthread_mutex_lock(&lock);
    digging = false;
    for (uint32_t i = 0; i < PLACES; i++)
        if (buried[i] && !is_at_rest(buried[i]))
            found.written++;
    found.count = count;
    found.twice = twice;
    pthread_mutex_unlock(&lock);
    return found;
}
