/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "io/mapping.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static core_status check(int fd, const char *path, const char *kind,
                         size_t least, size_t *out_size)
{
    struct stat now;

    *out_size = 0;
    if (fd < 0 || fstat(fd, &now) != 0)
        return core__error(errno == ENOENT ? CORE_ERROR_NOT_FOUND
                                           : CORE_ERROR_IO,
                           "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(now.st_mode))
        return core__error(CORE_ERROR_IO, "cannot read %s: it is not a file",
                           path);
    if ((uint64_t)now.st_size < least)
        return core__error(
            CORE_ERROR_CORRUPT,
            "cannot read %s as %s: it has %lld bytes; at least %zu are needed",
            path, kind, (long long)now.st_size, least);
    *out_size = (size_t)now.st_size;
    return CORE_OK;
}

/* Private: pages that are written stay in this process. */
static core_status map(core__mapping *mapping, int fd, const char *path,
                       bool writable)
{
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *bytes = mmap(NULL, mapping->size, protection,
                       MAP_PRIVATE | MAP_NORESERVE, fd, 0);

    if (bytes == MAP_FAILED)
        return core__error(errno == ENOMEM ? CORE_ERROR_OUT_OF_MEMORY
                                           : CORE_ERROR_IO,
                           "cannot map %s: %s", path, strerror(errno));
    mapping->bytes = bytes;
    return CORE_OK;
}

core_status core__mapping_open(const char *path, const char *kind, size_t least,
                               bool writable, core__mapping **out_mapping)
{
    core__mapping *mapping = core__alloc_zero(sizeof *mapping);
    core_status status;
    int fd;

    *out_mapping = NULL;
    if (!mapping)
        return core__error_memory(sizeof *mapping);
    atomic_init(&mapping->references, 1);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    status = check(fd, path, kind, least, &mapping->size);
    if (status == CORE_OK)
        status = map(mapping, fd, path, writable);
    if (fd >= 0)
        close(fd);
    if (status == CORE_OK)
        *out_mapping = mapping;
    else
        core__free(mapping);
    return status;
}

core__mapping *core__mapping_retain(core__mapping *mapping)
{
    atomic_fetch_add_explicit(&mapping->references, 1, memory_order_relaxed);
    return mapping;
}

void core__mapping_release(core__mapping *mapping)
{
    if (!mapping || atomic_fetch_sub_explicit(&mapping->references, 1,
                                              memory_order_acq_rel) != 1)
        return;
    munmap(mapping->bytes, mapping->size);
    core__free(mapping);
}
