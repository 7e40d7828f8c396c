/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Finds, and creates, the folder of files that are kept between processes. */

#define _GNU_SOURCE /* secure_getenv */

#include "io/cache_folder.h"

#include "base/error.h"
#include "base/settings.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool name_good(core_string name)
{
    for (uint64_t i = 0; name.data && i < name.size; i++)
        if (!(name.data[i] >= 'a' && name.data[i] <= 'z') &&
            !(name.data[i] >= '0' && name.data[i] <= '9') &&
            name.data[i] != '_')
            return false;
    return name.data && name.size > 0 && name.size < 64;
}

core_status core__cache_folder_check(const char *text)
{
    if (*text != '/' && strcmp(text, "0") != 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "LIBCORE_CACHE is \"%.80s\"; accepted: 0 or an absolute path",
            text);
    return CORE_OK;
}

/* The folder that contains those of all plugins. */
static core_status base_folder(char *to, size_t capacity)
{
    const char *set, *from, *below = "libcore";
    int length;

    CORE_TRY(core__setting_text(CORE__SETTING_CACHE, &set));
    if (set && strcmp(set, "0") == 0)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "LIBCORE_CACHE is 0, which disables the cache folder");
    if (set) {
        CORE_TRY(core__cache_folder_check(set));
        from = set;
        below = "";
    } else if (!(from = secure_getenv("XDG_CACHE_HOME")) || *from != '/') {
        from = secure_getenv("HOME");
        below = ".cache/libcore";
        if (!from || *from != '/')
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "there is no cache folder: neither LIBCORE_CACHE nor "
                "XDG_CACHE_HOME nor HOME is an absolute path, or the process "
                "is privileged");
    }
    length = snprintf(to, capacity, "%s%s%s", from, *below ? "/" : "", below);
    if (length < 0 || (size_t)length >= capacity)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the path of the cache folder is too long");
    return CORE_OK;
}

bool core__cache_folder_is_wanted(void)
{
    core__error_record before;
    char path[PATH_MAX];
    core_status status;

    core__error_save(&before);
    status = base_folder(path, sizeof path);
    core__error_restore(&before);
    return status == CORE_OK;
}

/* Creates the folder and its parents, where they do not exist. */
static core_status make_folder(char *path)
{
    struct stat status;

    for (char *at = path + 1;; at++) {
        char here = *at;

        if (here != '/' && here)
            continue;
        *at = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST && errno != EACCES &&
            errno != EROFS)
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "the folder %s cannot be created: %s", path,
                               strerror(errno));
        *at = here;
        if (!here)
            break;
    }
    if (stat(path, &status) != 0)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the folder %s cannot be created: %s", path,
                           strerror(errno));
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        status.st_mode & (S_IWGRP | S_IWOTH))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s is not a folder that only the user may write",
                           path);
    return CORE_OK;
}

core_status core__cache_folder_make(core_string name, char *to, size_t capacity)
{
    char path[PATH_MAX];
    size_t size;
    int length;

    if (!name_good(name))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "the name of a cache folder is \"%.*s\"; it must "
                           "consist of [a-z0-9_]+",
                           (int)(name.size < 64 ? name.size : 64),
                           name.data ? name.data : "");
    CORE_TRY(base_folder(path, sizeof path));
    size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    length = snprintf(to, capacity, "%.*s/%.*s", (int)size, path,
                      (int)name.size, name.data);
    if (length < 0 || (size_t)length >= capacity)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the path of the cache folder is too long");
    return make_folder(to);
}
