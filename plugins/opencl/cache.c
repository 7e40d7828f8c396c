/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The cache of compiled programs: one file per program, in the host's cache
 * folder (core_host.cache_directory; set by LIBCORE_CACHE) or in
 * LIBCORE_OPENCL_CACHE; LIBCORE_OPENCL_CACHE=0 disables it.  A file is
 * written under a temporary name and renamed, so that a reader sees all of
 * it or nothing.
 *
 * PoCL has its own cache, and to return a binary it compiles every kernel of
 * the program once more, which takes three times as long as the build.  So
 * with PoCL nothing is stored unless LIBCORE_OPENCL_CACHE names a folder, or
 * is 1 for the host's. */

#define _GNU_SOURCE
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST = 64 << 20 };

typedef struct header {
    char magic[8];
    uint64_t key[2];
    uint64_t size, sum;
} header;

static const char magic[8] = {'c', 'o', 'r', 'e', 'o', 'c', 'l', '1'};

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* A host before 0.3 has no cache folder. */
static bool of_host(char *to, size_t size)
{
    core_string path;
    int length;

    if (opencl_host->abi_minor < 3 ||
        opencl_host->cache_directory(core_sdk_string("opencl"), &path) !=
            CORE_OK)
        return false;
    length = snprintf(to, size, "%.*s", (int)path.size, path.data);
    return length > 0 && (size_t)length < size;
}

/* Returns the folder's path; false: no cache. */
static bool folder(const opencl_device *device, char *to, size_t size)
{
    core_string set =
        opencl_host->setting(core_sdk_string("LIBCORE_OPENCL_CACHE"));
    int length;

    if (set.data == NULL || set.size == 0)
        return !device->keeps_programs && of_host(to, size);
    if (core_sdk_string_equal(set, "1"))
        return of_host(to, size);
    length = snprintf(to, size, "%.*s", (int)set.size, set.data);
    return length > 0 && (size_t)length < size && to[0] == '/';
}

bool opencl_cache_keeps(const opencl_device *device)
{
    char path[PATH_MAX];

    return folder(device, path, sizeof path);
}

void opencl_cache_key_make(opencl_cache_key *key, const opencl_device *device,
                           const char *source, const char *options)
{
    static const uint64_t starts[2] = {UINT64_C(0xcbf29ce484222325),
                                       UINT64_C(0x9e3779b97f4a7c15)};
    const char *parts[] = {device->name, device->driver, device->runtime,
                           options, source};

    key->enabled = folder(device, key->folder, sizeof key->folder);
    for (int k = 0; k < 2 && key->enabled; k++) {
        key->hash[k] = starts[k];
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            key->hash[k] = mix(key->hash[k], parts[i], strlen(parts[i]) + 1);
    }
}

static bool path_of(const opencl_cache_key *key, char *to, size_t size)
{
    int length;

    if (!key->enabled)
        return false;
    length = snprintf(to, size, "%s/%016llx%016llx.bin", key->folder,
                      (unsigned long long)key->hash[0],
                      (unsigned long long)key->hash[1]);
    return length > 0 && (size_t)length < size;
}

/* Creates all parent folders of the file. */
static void make_folders(char *path)
{
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            mkdir(path, 0700);
            *at = '/';
        }
}

static bool read_all(int file, void *to, size_t size)
{
    char *at = to;

    while (size > 0) {
        ssize_t n = read(file, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t size)
{
    const char *at = from;

    while (size > 0) {
        ssize_t n = write(file, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* A program is code, so it is only read from files that belong to this user. */
static unsigned char *read_file(const opencl_cache_key *key, size_t *out_size)
{
    char path[PATH_MAX];
    unsigned char *data = NULL;
    struct stat about;
    header head;
    int file;

    if (!path_of(key, path, sizeof path))
        return NULL;
    file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return NULL;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) ||
        about.st_uid != geteuid() || (about.st_mode & 022) != 0 ||
        !read_all(file, &head, sizeof head) ||
        memcmp(head.magic, magic, sizeof magic) != 0 ||
        memcmp(head.key, key->hash, sizeof head.key) != 0 || head.size == 0 ||
        head.size > LARGEST)
        goto done;
    data = malloc(head.size);
    if (data != NULL && (!read_all(file, data, head.size) ||
                         mix(head.key[0], data, head.size) != head.sum)) {
        free(data);
        data = NULL;
    }
    *out_size = head.size;
done:
    close(file);
    return data;
}

cl_program opencl_cache_get(opencl_device *device, const opencl_cache_key *key,
                            const char *options)
{
    size_t size = 0;
    unsigned char *data = read_file(key, &size);
    const unsigned char *binaries[1] = {data};
    cl_program program;
    cl_int code, state = CL_SUCCESS;

    if (data == NULL)
        return NULL;
    program = cl.CreateProgramWithBinary(device->context, 1, &device->id, &size,
                                         binaries, &state, &code);
    free(data);
    if (code != CL_SUCCESS)
        return NULL;
    if (state == CL_SUCCESS)
        code = cl.BuildProgram(program, 1, &device->id, options, NULL, NULL);
    if (state == CL_SUCCESS && code == CL_SUCCESS)
        return program;
    cl.ReleaseProgram(program);
    return NULL;
}

static void write_file(const opencl_cache_key *key, const void *data,
                       size_t size)
{
    char path[PATH_MAX], temporary[PATH_MAX + 32];
    header head = {.size = size};
    bool written;
    int file;

    if (!path_of(key, path, sizeof path))
        return;
    make_folders(path);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    file = mkostemp(temporary, O_CLOEXEC);
    if (file < 0)
        return;
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.key, key->hash, sizeof head.key);
    head.sum = mix(head.key[0], data, size);
    written =
        write_all(file, &head, sizeof head) && write_all(file, data, size);
    if (close(file) != 0 || !written || rename(temporary, path) != 0)
        unlink(temporary);
}

void opencl_cache_put(const opencl_cache_key *key, cl_program program)
{
    unsigned char *data;
    size_t size = 0;

    if (!key->enabled)
        return;
    if (cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size,
                          NULL) != CL_SUCCESS ||
        size == 0 || size > LARGEST)
        return;
    data = malloc(size);
    if (data != NULL &&
        cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data,
                          NULL) == CL_SUCCESS)
        write_file(key, data, size);
    free(data);
}
