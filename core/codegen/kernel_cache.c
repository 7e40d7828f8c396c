/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "codegen/kernel_cache.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/text.h"
#include "device/upcalls.h"
#include "io/cache_folder.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST = CORE__KERNEL_CACHE_SIZE / 4, NAME = 64 };

static const char suffix[] = ".kernel";
static _Atomic uint64_t loaded, stored, refused, failed;
static _Atomic bool reported_refused, reported_failed;

core__kernel_cache_counts core__kernel_cache_get_counts(void)
{
    return (core__kernel_cache_counts){
        atomic_load(&loaded), atomic_load(&stored), atomic_load(&refused),
        atomic_load(&failed)};
}

/* Counts, and warns once. */
static void count_and_warn_once(_Atomic uint64_t *counter,
                                _Atomic bool *reported, const char *reason)
{
    atomic_fetch_add(counter, 1);
    if (!atomic_exchange(reported, true))
        core__log(CORE_LOG_WARNING, "compile",
                  "the kernel cache: %s; kernels are built instead", reason);
}

/* ----------------------------------------------------------------- paths -- */

/* UNSUPPORTED: there is to be no folder; other errors are reported. */
static core_status folder(char *to, size_t capacity)
{
    core_status status =
        core__cache_folder_make((core_string){"kernels", 7}, to, capacity);

    return status == CORE_ERROR_UNSUPPORTED && core__cache_folder_is_wanted()
               ? CORE_ERROR_IO
               : status;
}

/* UNSUPPORTED: kernels of this device are not kept. */
static core_status path_of(core_device *device,
                           const core_loop_program *program,
                           const core_loop_hints *hints, char *to,
                           size_t capacity)
{
    const core_codegen_interface *table = &device->interfaces.codegen;
    const core_plugin_seal *seal =
        core__device_upcalls.plugin_seal(device->backend->plugin);
    core_string identity = {NULL, 0};
    char name[NAME + 1];
    core__sha256 sha;
    size_t length;

    if (!seal || !table->identity || !table->save || !table->load)
        return CORE_ERROR_UNSUPPORTED;
    CORE_TRY(table->identity(device->impl, &identity));
    CORE_TRY(folder(to, capacity - NAME - sizeof suffix - 1));
    core__sha256_begin(&sha);
    core__sha256_add(&sha, "libcore kernel 1", 16);
    core__sha256_add(&sha, program->hash, sizeof program->hash);
    core__sha256_add(&sha, &hints->flags, sizeof hints->flags);
    core__sha256_add(&sha, seal, sizeof *seal);
    core__sha256_add(&sha, identity.data, identity.size);
    core__sha256_end(&sha, name);
    length = strlen(to);
    snprintf(to + length, capacity - length, "/%s%s", name, suffix);
    return CORE_OK;
}

/* ----------------------------------------------------------------- files -- */

static const char *why_not(const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return "is not a regular file";
    if (about->st_uid != geteuid() || about->st_mode & (S_IWGRP | S_IWOTH))
        return "may be written by others";
    return about->st_size > 0 && about->st_size <= LARGEST
               ? NULL
               : "has a size that no kernel has";
}

static bool read_all(int file, char *to, size_t size)
{
    while (size > 0) {
        ssize_t n = read(file, to, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        size -= (size_t)n;
    }
    return true;
}

/* Returns the content of a file, or NULL; *out_reason tells why a file that
 * exists is not used, and *out_bad whether that is the file's fault. */
static void *read_file(const char *path, size_t *out_size,
                       const char **out_reason, bool *out_bad)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat about;
    char *data = NULL;

    *out_reason = NULL;
    *out_bad = false;
    if (file < 0) {
        *out_reason = errno == ENOENT ? NULL : strerror(errno);
        *out_bad = errno == ELOOP; /* a link */
        return NULL;
    }
    if (fstat(file, &about) != 0) {
        *out_reason = strerror(errno);
    } else {
        *out_reason = why_not(&about);
        *out_bad = *out_reason != NULL;
    }
    if (!*out_reason) {
        *out_size = (size_t)about.st_size;
        data = core__alloc(*out_size);
        if (!data)
            *out_reason = "there is no memory to read it";
        else if (!read_all(file, data, *out_size)) {
            *out_reason = "cannot be read";
            core__free(data);
            data = NULL;
        }
    }
    if (data)
        futimens(file, NULL); /* used last */
    close(file);
    return data;
}

/* The file may be right all the same. */
static bool is_for_now(core_status status)
{
    return status == CORE_ERROR_OUT_OF_MEMORY ||
           status == CORE_ERROR_DEVICE_LOST || status == CORE_ERROR_STREAM ||
           status == CORE_ERROR_BUSY;
}

void core__kernel_cache_load(core_device *device, core_loop_program *program,
                             const core_loop_hints *hints,
                             core__loop_kernel **out_kernel)
{
    char path[PATH_MAX], text[PATH_MAX + 300];
    core__error_record before;
    core_status status;
    const char *reason;
    size_t size;
    void *data;
    bool bad;

    *out_kernel = NULL;
    core__error_save(&before);
    if (path_of(device, program, hints, path, sizeof path) == CORE_OK) {
        data = read_file(path, &size, &reason, &bad);
        status = data ? core__loop_kernel_load(device, program, data, size,
                                               out_kernel)
                      : CORE_OK;
        if (status != CORE_OK) {
            reason = core_error_message();
            bad = !is_for_now(status);
        }
        if (reason) {
            core__format(text, sizeof text, "%s: %s", path, reason);
            if (bad)
                unlink(path);
            count_and_warn_once(&refused, &reported_refused, text);
        }
        if (*out_kernel)
            atomic_fetch_add(&loaded, 1);
        core__free(data);
    }
    core__error_restore(&before);
}

/* ------------------------------------------------------------------ size -- */

typedef struct found {
    uint64_t files, bytes;
    char oldest[NAME + 64]; /* its name */
    struct timespec used;   /* when it was */
} found;

/* Temporary files of processes that have ended count, too. */
static bool measure(const char *path, found *out)
{
    DIR *all = opendir(path);
    struct dirent *entry;

    memset(out, 0, sizeof *out);
    if (!all)
        return false;
    while ((entry = readdir(all))) {
        struct stat about;

        if (!strstr(entry->d_name, suffix) ||
            strlen(entry->d_name) >= sizeof out->oldest ||
            fstatat(dirfd(all), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) !=
                0 ||
            !S_ISREG(about.st_mode))
            continue;
        out->bytes += (uint64_t)about.st_size;
        if (out->files++ == 0 || about.st_mtim.tv_sec < out->used.tv_sec ||
            (about.st_mtim.tv_sec == out->used.tv_sec &&
             about.st_mtim.tv_nsec < out->used.tv_nsec)) {
            strcpy(out->oldest, entry->d_name);
            out->used = about.st_mtim;
        }
    }
    closedir(all);
    return true;
}

/* Makes room for a file. */
static void shrink(const char *path, size_t size)
{
    char name[PATH_MAX];
    found now;

    while (measure(path, &now) && now.files > 0 &&
           now.bytes + size > CORE__KERNEL_CACHE_SIZE &&
           snprintf(name, sizeof name, "%s/%s", path, now.oldest) <
               (int)sizeof name &&
           unlink(name) == 0)
        continue;
}

core_status core__kernel_cache_measure(uint64_t *out_files, uint64_t *out_bytes,
                                       char *path, size_t capacity)
{
    char own[PATH_MAX];
    found now;

    CORE_TRY(folder(own, sizeof own));
    measure(own, &now);
    *out_files = now.files;
    *out_bytes = now.bytes;
    if (path)
        core__format(path, capacity, "%s", own);
    return CORE_OK;
}

/* ----------------------------------------------------------------- store -- */

static core_status write_file(const char *path, const void *data, size_t size)
{
    core__file file;
    core_status status = core__file_begin(&file, path);

    if (status != CORE_OK)
        return status;
    (void)!fchmod(file.fd, 0600); /* whatever the umask allows others */
    status = core__file_write(&file, data, size);
    if (status == CORE_OK)
        status = core__file_commit(&file);
    core__file_end(&file);
    return status;
}

void core__kernel_cache_store(core__loop_kernel *kernel,
                              const core_loop_hints *hints)
{
    char path[PATH_MAX], parent[PATH_MAX];
    core__error_record before;
    core_status status;
    void *data = NULL;
    size_t size = 0;

    core__error_save(&before);
    status = path_of(kernel->device, kernel->program, hints, path, sizeof path);
    if (status == CORE_OK)
        status = core__loop_kernel_save(kernel, &data, &size);
    if (status == CORE_OK && size <= LARGEST) {
        strcpy(parent, path);
        *strrchr(parent, '/') = '\0';
        shrink(parent, size);
        status = write_file(path, data, size);
        if (status == CORE_OK)
            atomic_fetch_add(&stored, 1);
    }
    if (status != CORE_OK && status != CORE_ERROR_UNSUPPORTED)
        count_and_warn_once(&failed, &reported_failed, core_error_message());
    core__free(data);
    core__error_restore(&before);
}
