/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory that processes share (core.ipc).  The data of an exported block moves
 * to an anonymous file, which another process opens through /proc as long as
 * this one has it open.  Nothing is left behind if a process ends. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif

#include "block.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct sim_handle {
    char id[16]; /* of the device */
    uint64_t size;
    uint64_t file_device; /* identify the file */
    uint64_t inode;
    int32_t process;
    int32_t file;
} sim_handle;
_Static_assert(sizeof(sim_handle) <= CORE_IPC_HANDLE_SIZE, "handle");

static core_status system_error(const char *what)
{
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim", "%s: %s",
                          what, strerror(errno));
}

/* Waits, with the lock, until no stream of the device is running work. */
static void await_idle(sim_device *device)
{
    sim_stream *at = device->streams;

    while (at) {
        if (!at->running) {
            at = at->next;
            continue;
        }
        sim_stream_await_running(at);
        at = device->streams; /* others may have begun */
    }
}

static core_status move_to_file(sim_block *block)
{
    uint64_t bytes = sim_data_bytes(block->size);
    core_status status = CORE_OK;
    int file = memfd_create("sim", MFD_CLOEXEC);
    char *data = MAP_FAILED;

    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        status = system_error("a file for exported memory");
    else
        data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (status == CORE_OK && data == MAP_FAILED)
        status = system_error("mapping exported memory");
    if (status != CORE_OK) {
        if (file >= 0)
            close(file);
        return status;
    }
    memcpy(data, block->data, bytes);
    if (block->shared) /* of an earlier export, which ended */
        munmap(block->data, block->shared);
    else
        sim_data_free(block->data, block->size);
    block->data = data;
    block->shared = bytes;
    block->file = file + 1;
    return CORE_OK;
}

/* The exported block of this process, or NULL. */
static sim_block *exportable(sim_device *device, core_memory memory,
                             uint64_t size)
{
    uint64_t offset;
    sim_block *block = sim_block_find(device, memory, &offset);

    return block && block->data && !block->mapped && !block->imported &&
                   offset == 0 && block->size == size
               ? block
               : NULL;
}

static core_status export_memory(void *of, core_memory memory, uint64_t size,
                                 void *handle)
{
    sim_device *device = of;
    sim_handle out = {.size = size, .process = (int32_t)getpid()};
    core_status status = sim_usable(device);
    sim_block *block;
    struct stat file;

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    await_idle(device);
    block = exportable(device, memory, size);
    if (!block)
        status = core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                                "only whole allocations can be exported");
    else if (!block->file)
        status = move_to_file(block);
    if (status == CORE_OK && fstat(block->file - 1, &file) != 0)
        status = system_error("the file of exported memory");
    if (status == CORE_OK) {
        snprintf(out.id, sizeof out.id, "%s", device->id);
        out.file_device = file.st_dev;
        out.inode = file.st_ino;
        out.file = block->file - 1;
        block->exports++;
        memcpy(handle, &out, sizeof out);
    }
    pthread_mutex_unlock(&sim_lock);
    return status;
}

/* The memory stays in the file, but other processes can no longer open it. */
static void end_export(void *of, core_memory memory, uint64_t size)
{
    sim_block *block;

    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    block = exportable(of, memory, size);
    if (block && block->exports > 0 && --block->exports == 0) {
        close(block->file - 1);
        block->file = 0;
    }
    pthread_mutex_unlock(&sim_lock);
}

/* Opens the file if it is still that of the handle. */
static int open_file(const sim_handle *in)
{
    char path[64];
    struct stat found;
    int file;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", in->process, in->file);
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return -1;
    if (fstat(file, &found) == 0 && found.st_dev == in->file_device &&
        found.st_ino == in->inode &&
        (uint64_t)found.st_size == sim_data_bytes(in->size))
        return file;
    close(file);
    return -1;
}

static core_status open_memory(void *of, const void *handle, uint64_t size,
                               core_memory *out_memory)
{
    sim_device *device = of;
    core_status status = sim_usable(device);
    sim_block *block = NULL;
    sim_handle in;
    char *data;
    int file;

    *out_memory = (core_memory){NULL, 0};
    if (status != CORE_OK)
        return status;
    memcpy(&in, handle, sizeof in);
    if (strncmp(in.id, device->id, sizeof in.id) != 0 || in.size != size)
        return core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                              "the handle is not one of %s", device->id);
    file = open_file(&in);
    if (file < 0)
        return core_sdk_error(sim_host, CORE_ERROR_NOT_FOUND, "sim",
                              "process %d no longer exports this memory",
                              in.process);
    data = mmap(NULL, sim_data_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED,
                file, 0);
    close(file);
    if (data == MAP_FAILED)
        return system_error("mapping imported memory");
    pthread_mutex_lock(&sim_lock);
    block = sim_block_create(device, size, data, out_memory);
    if (block) {
        block->shared = sim_data_bytes(size);
        block->imported = true;
        device->memory->imports++;
    }
    pthread_mutex_unlock(&sim_lock);
    if (block)
        return CORE_OK;
    munmap(data, sim_data_bytes(size));
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no name is left for imported memory");
}

static void close_memory(void *of, core_memory memory, uint64_t size)
{
    sim_device *device = of;
    uint64_t offset;
    sim_block *block;

    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    block = sim_block_find(device, memory, &offset);
    if (!block || !block->data || !block->imported || offset != 0 ||
        block->size != size) {
        sim_bad_frees++;
    } else {
        sim_history_check(device, block, 0, size);
        sim_block_release(device, block);
        sim_block_destroy(device, block);
        device->memory->imports--;
    }
    pthread_mutex_unlock(&sim_lock);
}

const core_ipc_interface sim_ipc = {
    .struct_size = sizeof(core_ipc_interface),
    .export_memory = export_memory,
    .open = open_memory,
    .close = close_memory,
    .end_export = end_export,
};
