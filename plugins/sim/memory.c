/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* New memory is poisoned, and freed memory stays poisoned for a while, so that
 * work that uses it by mistake is detected. */

#include "block.h"
#include "fault.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { QUARANTINE = 256 };

/* Freed data; the oldest is overwritten. */
static char *quarantine[QUARANTINE];
static uint64_t quarantined[QUARANTINE]; /* bytes */
static uint64_t quarantine_bytes;
static uint32_t quarantine_next;

uint64_t sim_overruns;
uint64_t sim_bad_frees;

static void evict(uint32_t index)
{
    sim_data_free(quarantine[index], quarantined[index]);
    quarantine_bytes -= quarantined[index];
    quarantine[index] = NULL;
    quarantined[index] = 0;
}

void sim_quarantine_empty(void)
{
    for (uint32_t i = 0; i < QUARANTINE; i++)
        evict(i);
}

static void keep_poisoned(char *data, uint64_t size)
{
    sim_data_poison_freed(data, size);
    for (uint32_t i = 0;
         i < QUARANTINE && quarantine_bytes + size > UINT64_C(32) << 20; i++)
        evict((quarantine_next + i) % QUARANTINE);
    evict(quarantine_next);
    quarantine[quarantine_next] = data;
    quarantined[quarantine_next] = size;
    quarantine_bytes += size;
    quarantine_next = (quarantine_next + 1) % QUARANTINE;
}

void sim_block_free_data(sim_block *block)
{
    sim_history_drop(&block->history);
    if (block->file)
        close(block->file - 1);
    block->file = 0;
    if (block->shared)
        munmap(block->data, block->shared);
    else if (block->mapped)
        munmap(block->data, block->size);
    else if (block->size > UINT64_C(8) << 20)
        sim_data_free(block->data, block->size);
    else
        keep_poisoned(block->data, block->size);
    free(block->mapped);
    block->mapped = NULL;
    block->data = NULL;
}

void sim_block_release(const sim_device *device, sim_block *block)
{
    if (!device->lost) {
        sim_block_free_data(block);
        return;
    }
    sim_history_drop(&block->history);
    block->retained = block->data;
    block->data = NULL;
}

/* ---------------------------------------------------------- allocation -- */

core_status sim_memory_refused(const sim_device *device, uint64_t size)
{
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "%llu bytes: %s has %llu, of which %llu are in use",
                          (unsigned long long)size, device->name,
                          (unsigned long long)sim_set.bytes,
                          (unsigned long long)device->memory->taken);
}

static core_status check_size(const sim_device *device, uint64_t size)
{
    uint64_t largest = sim_set.largest ? sim_set.largest : sim_set.bytes;

    if (size == 0 || size % sim_set.granularity != 0)
        return core_sdk_error(
            sim_host, CORE_ERROR_INTERNAL, "sim",
            "alloc: %llu bytes; accepted: positive multiples of "
            "the granularity of %llu",
            (unsigned long long)size, (unsigned long long)sim_set.granularity);
    if (size > largest)
        return core_sdk_error(
            sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
            "%llu bytes: the largest allocation of %s is %llu",
            (unsigned long long)size, device->name,
            (unsigned long long)largest);
    return CORE_OK;
}

static core_status alloc(void *handle, uint64_t size, core_memory *out_memory)
{
    sim_device *device = handle;
    core_status status = sim_usable(device);
    sim_block *block = NULL;
    char *data;

    out_memory->handle = NULL;
    out_memory->offset = 0;
    if (status == CORE_OK)
        status = check_size(device, size);
    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_ALLOC);
    if (status != CORE_OK)
        return status;
    data = sim_data_create(size);
    pthread_mutex_lock(&sim_lock);
    if (data && device->memory->taken + size <= sim_set.bytes)
        block = sim_block_create(device, size, data, out_memory);
    if (block)
        device->memory->taken += size;
    else
        status = sim_memory_refused(device, size);
    pthread_mutex_unlock(&sim_lock);
    if (status != CORE_OK)
        sim_data_free(data, size);
    return status;
}

/* ------------------------------------------------------------- freeing -- */

static void report_error(const char *text)
{
    sim_host->log(CORE_LOG_ERROR, core_sdk_string("sim"),
                  core_sdk_string(text));
}

/* Checks that the bytes after the block are unchanged. */
static void check_canary(const sim_device *device, const sim_block *block)
{
    uint64_t end = sim_data_bytes(block->size);
    char text[128];

    for (uint64_t i = block->size; i < end; i++) {
        if ((uint8_t)block->data[i] == SIM_POISON)
            continue;
        sim_overruns++;
        snprintf(text, sizeof text,
                 "something wrote %llu bytes past the end of block %llu of %s",
                 (unsigned long long)(i - block->size),
                 (unsigned long long)block->serial, device->name);
        report_error(text);
        return;
    }
}

void sim_fail_user(sim_device *device, uint64_t stream, const char *text)
{
    sim_conflicted(text);
    report_error(text);
    for (sim_stream *at = device->streams; at; at = at->next) {
        if (at->id != stream || at->failure.code != CORE_OK)
            continue;
        at->failure.code = CORE_ERROR_STREAM;
        snprintf(at->failure.text, sizeof at->failure.text, "%s", text);
    }
}

void sim_history_check(sim_device *device, sim_block *block, uint64_t from,
                       uint64_t to)
{
    sim_clock clock;
    char where[64], text[SIM_TEXT];
    uint64_t stream;

    if (!sim_set.check || device->lost)
        return;
    clock = *sim_clock_host();
    if (sim_running) /* a worker knows that its stream has reached this point */
        clock.at[sim_running->stream->place] = sim_running->time;
    snprintf(where, sizeof where, "block %llu of %s",
             (unsigned long long)block->serial, device->name);
    if (sim_history_end(&block->history, &clock, from, to, where, text,
                        sizeof text, &stream))
        sim_fail_user(device, stream, text);
}

static void release(void *handle, core_memory freed, uint64_t size)
{
    sim_device *device = handle;
    uint64_t offset;
    sim_block *block;

    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    block = sim_block_find(device, freed, &offset);
    if (!block || !block->data || block->mapped || block->imported ||
        offset != 0 || block->size != size) {
        sim_bad_frees++;
        report_error(
            "freeing memory that is invalid, already freed, or of another "
            "size");
    } else {
        device->memory->taken -= size;
        sim_history_check(device, block, 0, size);
        check_canary(device, block);
        sim_block_release(device, block);
        sim_block_destroy(device, block);
    }
    pthread_mutex_unlock(&sim_lock);
}

/* -------------------------------------------------------------- access -- */

core_status sim_memory_resolve(sim_device *device, core_memory place,
                               uint64_t size, void **out_address)
{
    char text[SIM_TEXT];
    uint64_t offset;
    sim_block *block;

    *out_address = NULL;
    pthread_mutex_lock(&sim_lock);
    block = sim_block_find(device, place, &offset);
    sim_block_check(device, block, place, offset, size, text, sizeof text);
    if (!text[0])
        *out_address = block->data + offset;
    pthread_mutex_unlock(&sim_lock);
    if (text[0])
        return core_sdk_error(sim_host, CORE_ERROR_STREAM, "sim", "%s", text);
    return CORE_OK;
}

static core_status info(void *handle, uint64_t *out_free, uint64_t *out_total)
{
    sim_device *device = handle;

    pthread_mutex_lock(&sim_lock);
    *out_free = sim_set.bytes - device->memory->taken;
    *out_total = sim_set.bytes;
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

const core_memory_table sim_memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .info = info,
    .copy_from_host = sim_copy_from_host,
    .copy_to_host = sim_copy_to_host,
    .copy = sim_copy,
    .fill = sim_fill,
};
