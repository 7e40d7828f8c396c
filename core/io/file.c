/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "io/file.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MOST = 40 }; /* as in Linux */

/* Resolves the target of the link at `path` relative to the link's folder. */
static char *join(const char *path, const char *target)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash && *target != '/' ? (size_t)(slash - path) + 1 : 0;
    char *joined = core__alloc(folder + strlen(target) + 1);

    if (joined) {
        memcpy(joined, path, folder);
        strcpy(joined + folder, target);
    }
    return joined;
}

/* Follows a chain of links to its end, so that the links stay.  The file need
 * not exist yet. */
static core_status follow(const char *path, char **out_path)
{
    char target[PATH_MAX];
    char *name = core__strdup(path);
    struct stat now;
    bool special = stat(path, &now) == 0 && !S_ISREG(now.st_mode);

    *out_path = NULL;
    for (int links = 0; name && !special; links++) {
        ssize_t length = readlink(name, target, sizeof target - 1);
        char *next;

        if (length < 0)
            break; /* not a link, or nothing */
        if (links == LINKS_MOST) {
            core__free(name);
            return core__error(CORE_ERROR_IO, "cannot write %s: %s", path,
                               strerror(ELOOP));
        }
        target[length] = '\0';
        next = join(name, target);
        core__free(name);
        name = next;
    }
    *out_path = name;
    return name ? CORE_OK : core__error_memory(strlen(path) + 1);
}

/* If something exists at the path, it must be a regular file that may be
 * written. */
static core_status check_target(const char *path, mode_t *out_mode)
{
    struct stat now;

    *out_mode = 0;
    if (stat(path, &now) != 0)
        return CORE_OK;
    if (S_ISDIR(now.st_mode))
        return core__error(CORE_ERROR_IO, "cannot write %s: it is a folder",
                           path);
    if (!S_ISREG(now.st_mode))
        return core__error(CORE_ERROR_IO,
                           "cannot write %s: it is not a regular file", path);
    if (access(path, W_OK) != 0) {
        if (errno == ENOENT)
            return CORE_OK; /* another process has removed it meanwhile */
        return core__error(CORE_ERROR_IO, "cannot write %s: %s", path,
                           strerror(errno));
    }
    *out_mode = now.st_mode & 0777;
    return CORE_OK;
}

static core_status open_temporary(core__file *file)
{
    static atomic_uint counter;
    size_t size = strlen(file->path) + 48;
    int attempts = 100;

    file->temporary = core__alloc(size);
    if (!file->temporary)
        return core__error_memory(size);
    do {
        snprintf(file->temporary, size, "%s.%ld-%u.part", file->path,
                 (long)getpid(), atomic_fetch_add(&counter, 1));
        file->fd = open(file->temporary,
                        O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file->fd < 0 && errno == EEXIST && --attempts > 0);
    if (file->fd < 0)
        return core__error(CORE_ERROR_IO, "cannot write %s: %s", file->path,
                           strerror(errno));
    return CORE_OK;
}

core_status core__file_begin(core__file *file, const char *path)
{
    core_status status;
    mode_t mode;

    file->fd = -1;
    file->path = NULL;
    file->temporary = NULL;
    if (!path || !*path)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "cannot write a file: the path is %s",
                           path ? "empty" : "NULL");
    status = follow(path, &file->path);
    if (status == CORE_OK)
        status = check_target(file->path, &mode);
    if (status == CORE_OK)
        status = open_temporary(file);
    if (status == CORE_OK && mode != 0)
        (void)!fchmod(file->fd, mode); /* some file systems have no modes */
    if (status != CORE_OK)
        core__file_end(file);
    return status;
}

core_status core__file_write(core__file *file, const void *data, size_t size)
{
    const char *from = data;

    while (size > 0) {
        /* Linux transfers at most about 2 GiB at once. */
        ssize_t written =
            write(file->fd, from, size < (1u << 30) ? size : (1u << 30));

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return core__error(CORE_ERROR_IO, "cannot write %s: %s", file->path,
                               strerror(written < 0 ? errno : ENOSPC));
        from += written;
        size -= (size_t)written;
    }
    return CORE_OK;
}

/* The new name is on the disk once its folder is flushed.  Not every file
 * system can do that, and the file is complete in any case, so this does not
 * fail.  Cuts the path of a file off after its folder. */
static void flush_folder(char *path)
{
    char *slash = strrchr(path, '/');
    int fd;

    if (slash)
        slash[1] = '\0';
    fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

core_status core__file_commit(core__file *file)
{
    int failed = fsync(file->fd);
    int reason = errno;

    /* EINVAL: the file system cannot flush a file. */
    if (failed && reason == EINVAL)
        failed = 0;
    if (!failed && rename(file->temporary, file->path) != 0) {
        failed = 1;
        reason = errno;
    }
    if (failed)
        return core__error(CORE_ERROR_IO, "cannot write %s: %s", file->path,
                           strerror(reason));
    flush_folder(file->temporary);
    core__free(file->temporary);
    file->temporary = NULL;
    return CORE_OK;
}

void core__file_end(core__file *file)
{
    if (file->fd >= 0) {
        if (file->temporary)
            unlink(file->temporary);
        close(file->fd);
    }
    core__free(file->path);
    core__free(file->temporary);
    file->fd = -1;
    file->path = NULL;
    file->temporary = NULL;
}
