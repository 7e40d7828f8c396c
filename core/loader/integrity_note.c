/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks a file without opening it, and seals one: a sealed copy replaces it
 * atomically, so that the file is never opened half-written, and a process that
 * has mapped the old file keeps it. */

#define _GNU_SOURCE

#include "base/memory.h"
#include "loader/loader.h"
#include "loader/plugin_note.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 << 10 };

static core_status failed(const char *what)
{
    return core__error(CORE_ERROR_IO, "cannot be sealed: %s: %s", what,
                       strerror(errno));
}

static core_status write_whole(int file, const void *bytes, size_t size,
                               uint64_t at)
{
    size_t done = 0;

    while (done < size) {
        ssize_t put = pwrite(file, (const char *)bytes + done, size - done,
                             (off_t)(at + done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return failed("its copy cannot be written");
        done += (size_t)put;
    }
    return CORE_OK;
}

static core_status copy(const core__plugin_image *image, int file)
{
    char *buffer = core__alloc(CHUNK);
    core_status status = CORE_OK;

    if (!buffer)
        return core__error_memory(CHUNK);
    for (uint64_t at = 0; status == CORE_OK && at < image->size; at += CHUNK) {
        uint64_t size = image->size - at < CHUNK ? image->size - at : CHUNK;

        status = image->read(image, at, buffer, size)
                     ? write_whole(file, buffer, size, at)
                     : core__error(CORE_ERROR_IO, "cannot be read to its end");
    }
    core__free(buffer);
    return status;
}

/* Copies the owner, if permitted, and the mode. */
static core_status finish(int file, const struct stat *before)
{
    struct stat now;

    if (fstat(file, &now) != 0)
        return failed("its copy");
    if ((now.st_uid != before->st_uid || now.st_gid != before->st_gid) &&
        fchown(file, before->st_uid, before->st_gid) != 0 && errno != EPERM)
        return failed("its owner");
    if (fchmod(file, before->st_mode & 07777) != 0)
        return failed("its mode");
    if (fsync(file) != 0)
        return failed("its copy cannot be written");
    return CORE_OK;
}

static core_status replace(const core__plugin_image *image, const char *path,
                           const core__integrity_seal *seal,
                           const core_plugin_seal *content)
{
    core_status status;
    struct stat before;
    char *name = NULL;
    int file = -1;

    if (fstat(image->file, &before) != 0)
        return failed("its state");
    if (asprintf(&name, "%s.XXXXXX", path) < 0) {
        name = NULL;
        return core__error_memory(strlen(path));
    }
    file = mkostemp(name, O_CLOEXEC);
    if (file < 0) {
        status = failed("no file can be created beside it");
        goto done;
    }
    status = copy(image, file);
    if (status == CORE_OK)
        status = write_whole(file, content, sizeof *content, seal->at);
    if (status == CORE_OK)
        status = finish(file, &before);
    if (status == CORE_OK && rename(name, path) != 0)
        status = failed("its copy cannot replace it");
    if (status != CORE_OK)
        unlink(name);
done:
    if (file >= 0)
        close(file);
    free(name);
    return status;
}

static core_status seal_image(const core__plugin_image *image, const char *path)
{
    core_plugin_seal content;
    core_plugin_note note;
    core__integrity_seal seal;

    CORE_TRY(core__plugin_note_read_sealed(image, &note, &seal));
    CORE_TRY(core__elf_segments_check(image));
    CORE_TRY(core__elf_symbols_check(image));
    if (seal.at == 0)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "has no space for a seal in its note: it was built "
                           "with headers of libcore without seals");
    CORE_TRY(core__integrity_seal_compute(image, &seal, &content));
    if (memcmp(&content, &seal.content, sizeof content) == 0)
        return CORE_OK;
    return replace(image, path, &seal, &content);
}

static core_status check_image(const core__plugin_image *image,
                               const char *path)
{
    core_plugin_note note;
    core__integrity_seal seal;

    (void)path; /* the other function that is called with an image uses it */
    CORE_TRY(core__plugin_note_read_sealed(image, &note, &seal));
    CORE_TRY(core__plugin_note_check_abi(&note));
    CORE_TRY(core__integrity_seal_check(image, &seal));
    CORE_TRY(core__elf_segments_check(image));
    return core__elf_symbols_check(image);
}

/* The target of a link is used, and the link is kept. */
static core_status with_image(const char *path,
                              core_status (*use)(const core__plugin_image *,
                                                 const char *))
{
    char *real = realpath(path, NULL);
    core_status status;
    core__plugin_image image;
    int file = -1;

    if (real)
        file = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        status =
            core__error(CORE_ERROR_IO, "cannot be opened: %s", strerror(errno));
        goto done;
    }
    status = core__plugin_image_of_file(file, &image);
    if (status == CORE_OK)
        status = use(&image, real);
done:
    if (file >= 0)
        close(file);
    free(real);
    if (status != CORE_OK)
        core__error_prefix("plugin %s", path);
    return status;
}

core_status core_plugin_seal_file(const char *path)
{
    CORE__NOT_NULL(path);
    return with_image(path, seal_image);
}

core_status core_plugin_check_file(const char *path)
{
    CORE__NOT_NULL(path);
    return with_image(path, check_image);
}
