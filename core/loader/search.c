/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE

#include "loader/search.h"

#include "base/memory.h"
#include "base/settings.h"
#include "loader/loader.h"
#include "loader/plugin_note.h"

#include <libcore/plugins.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef LIBCORE_PLUGIN_DIR
#error "LIBCORE_PLUGIN_DIR, the folder of installed plugins, must be defined"
#endif

enum { MANIFEST_LIMIT = 16384 };

static const char *installed_folder = LIBCORE_PLUGIN_DIR;
/* A file in the second folder replaces one of the same name in the first. */
static const char *manifest_folders[2] = {"/usr/share/libcore/plugins.d",
                                          "/etc/libcore/plugins.d"};

void core__search_set_folders(const char *installed,
                              const char *manifests_shared,
                              const char *manifests_local)
{
    if (installed)
        installed_folder = installed;
    if (manifests_shared)
        manifest_folders[0] = manifests_shared;
    if (manifests_local)
        manifest_folders[1] = manifests_local;
}

/* --------------------------------------------------------------- trust -- */

static core_status check_trusted(const struct stat *status, const char *what)
{
    if (status->st_uid != 0 && status->st_uid != geteuid())
        return core__error(CORE_ERROR_REFUSED,
                           "%s belongs to user %u, who is neither root nor the "
                           "user of this process",
                           what, (unsigned)status->st_uid);
    if (status->st_mode & S_IWOTH)
        return core__error(CORE_ERROR_REFUSED,
                           "%s is writable by everyone (mode %03o)", what,
                           (unsigned)status->st_mode & 0777);
    return CORE_OK;
}

static core_status check_folder(const char *path)
{
    struct stat status;
    char what[PATH_MAX + 16];

    if (stat(path, &status) != 0)
        return core__error(errno == ENOENT ? CORE_ERROR_NOT_FOUND
                                           : CORE_ERROR_IO,
                           "cannot be read: %s", strerror(errno));
    snprintf(what, sizeof what, "its folder %s", path);
    return check_trusted(&status, what);
}

core_status core__search_open(const char *path, int *out_file,
                              char **out_real_path)
{
    struct stat status;
    core_status result = CORE_OK;
    char *real = NULL, *slash;
    int file = -1;

    *out_file = -1;
    *out_real_path = NULL;
    real = realpath(path, NULL);
    /* NONBLOCK: a named pipe must not block. */
    if (real)
        file = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &status) != 0) {
        result =
            core__error(errno == ENOENT ? CORE_ERROR_NOT_FOUND : CORE_ERROR_IO,
                        "cannot be opened: %s", strerror(errno));
        goto done;
    }
    if (!S_ISREG(status.st_mode)) {
        result = core__error(CORE_ERROR_CORRUPT, "is not a regular file");
        goto done;
    }
    result = check_trusted(&status, "the file");
    if (result != CORE_OK)
        goto done;
    slash = strrchr(real, '/');
    *slash = '\0';
    result = check_folder(slash == real ? "/" : real);
    *slash = '/';
    if (result != CORE_OK)
        goto done;
    *out_file = file;
    file = -1;
done:
    if (file >= 0)
        close(file);
    *out_real_path = real;
    return result;
}

/* ------------------------------------------------------------- folders -- */

static bool ends_with(const char *name, const char *end)
{
    size_t size = strlen(name), length = strlen(end);

    return size >= length && strcmp(name + size - length, end) == 0;
}

static bool has_prefix(const char *name)
{
    return strncmp(name, "core_", 5) == 0;
}

static int is_library(const struct dirent *entry)
{
    return ends_with(entry->d_name, ".so");
}

static int is_manifest(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_with(entry->d_name, ".plugin");
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static int compare_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* True if a file has a libcore note, and is not a link to a plugin in the same
 * folder. */
static bool is_misnamed(const char *path, const char *folder)
{
    core__plugin_image image;
    core_plugin_note note;
    char *real = NULL;
    const char *slash;
    bool misnamed = false;
    int file;

    if (core__search_open(path, &file, &real) == CORE_OK) {
        slash = strrchr(real, '/');
        misnamed = !(has_prefix(slash + 1) &&
                     strlen(folder) == (size_t)(slash - real) &&
                     strncmp(real, folder, strlen(folder)) == 0) &&
                   core__plugin_image_of_file(file, &image) == CORE_OK &&
                   core__plugin_note_read(&image, &note) == CORE_OK;
    }
    if (file >= 0)
        close(file);
    free(real);
    return misnamed;
}

/* A plugin, or a file whose name keeps it from being one. */
static void visit_file(core__search_visit visit, void *context, uint32_t from,
                       const char *folder, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);

    if (length <= 0 || (size_t)length >= sizeof path)
        return;
    if (has_prefix(name))
        visit(context, from, path, "", CORE_OK);
    else if (is_misnamed(path, folder))
        visit(context, from, path, "",
              core__error(CORE_ERROR_REFUSED,
                          "is a libcore plugin, but in folders only files "
                          "named core_*.so are loaded: rename it, or let "
                          "LIBCORE_PLUGIN_PATH name the file itself"));
}

static void visit_folder(core__search_visit visit, void *context, uint32_t from,
                         const char *folder)
{
    struct dirent **names = NULL;
    core_status status = check_folder(folder);
    int count = 0;

    if (status == CORE_OK) {
        count = scandir(folder, &names, is_library, compare_bytes);
        if (count < 0)
            status = core__error(CORE_ERROR_IO, "cannot be read: %s",
                                 strerror(errno));
    }
    if (status != CORE_OK) {
        visit(context, from, folder, "", status);
        return;
    }
    for (int i = 0; i < count; i++)
        visit_file(visit, context, from, folder, names[i]->d_name);
    free_names(names, count);
}

/* A file, a folder, or nothing. */
static void visit_entry(core__search_visit visit, void *context, uint32_t from,
                        const char *path, const char *sha256)
{
    struct stat status;

    if (path[0] != '/')
        visit(context, from, path, "",
              core__error(CORE_ERROR_REFUSED,
                          "is not an absolute path: the working directory is "
                          "never searched"));
    else if (stat(path, &status) != 0)
        visit(context, from, path, "",
              core__error(CORE_ERROR_NOT_FOUND, "cannot be read: %s",
                          strerror(errno)));
    else if (!S_ISDIR(status.st_mode))
        visit(context, from, path, sha256, CORE_OK);
    else if (*sha256)
        visit(context, from, path, "",
              core__error(
                  CORE_ERROR_CORRUPT,
                  "is a folder, but its manifest has the SHA-256 of a file"));
    else
        visit_folder(visit, context, from, path);
}

/* An invalid entry of the environment affects only itself: it is listed as
 * refused, and the others are searched.  A program's setting fails at once. */
core_status core__plugin_path_check(const char *text)
{
    for (const char *at = text; *at;) {
        size_t size = strcspn(at, ":");

        if (size > 0 && *at != '/')
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "LIBCORE_PLUGIN_PATH contains \"%.*s\"; accepted: absolute "
                "paths of plugins or their folders, separated by colons",
                (int)(size < 80 ? size : 80), at);
        at += size + (at[size] == ':');
    }
    return CORE_OK;
}

static core_status visit_environment(core__search_visit visit, void *context)
{
    const char *list;
    core_status status = core__setting_text(CORE__SETTING_PLUGIN_PATH, &list);

    if (status != CORE_OK || !list)
        return status;
    while (*list) {
        size_t size = strcspn(list, ":");
        char *path = core__strndup(list, size);

        if (!path)
            return core__error_memory(size);
        if (size > 0)
            visit_entry(visit, context, CORE_PLUGIN_SOURCE_ENVIRONMENT, path,
                        "");
        core__free(path);
        list += size + (list[size] == ':');
    }
    return CORE_OK;
}

static void visit_installed(core__search_visit visit, void *context)
{
    struct stat status;

    /* Not installed, or no plugin is installed: nothing to report. */
    if (*installed_folder && stat(installed_folder, &status) == 0)
        visit_folder(visit, context, CORE_PLUGIN_SOURCE_INSTALLATION,
                     installed_folder);
}

/* ----------------------------------------------------------- manifests -- */

/* The contents of a manifest; "" for missing entries.  Both point into its
 * text. */
typedef struct manifest {
    const char *path;
    const char *sha256;
} manifest;

/* The value of a line that begins with the key, or NULL. */
static const char *value_of(const char *line, const char *key)
{
    size_t size = strlen(key);

    if (strncmp(line, key, size) != 0)
        return NULL;
    line += size + strspn(line + size, " \t");
    return *line == '=' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

/* 64 hexadecimal digits, which are converted to lower case. */
static bool make_hash(char *text)
{
    if (strlen(text) != 64 || text[strspn(text, "0123456789abcdefABCDEF")])
        return false;
    for (; *text; text++)
        if (*text >= 'A' && *text <= 'F')
            *text = (char)(*text - 'A' + 'a');
    return true;
}

static core_status parse_line(char *line, manifest *out)
{
    const char *path = value_of(line, "path");
    const char *hash = value_of(line, "sha256");

    if (path && *path && !*out->path) {
        out->path = path;
        return CORE_OK;
    }
    if (hash && !*out->sha256 && make_hash(line + (hash - line))) {
        out->sha256 = hash;
        return CORE_OK;
    }
    return core__error(
        CORE_ERROR_CORRUPT,
        "the line \"%.60s\" is not understood; a manifest has one line `path = "
        "…` and at most one `sha256 = …` with 64 digits",
        line);
}

/* Modifies text. */
static core_status parse_manifest(char *text, manifest *out)
{
    char *rest = NULL;

    out->path = out->sha256 = "";
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        size_t size;

        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t");
        size = strlen(line);
        while (size > 0 && (line[size - 1] == ' ' || line[size - 1] == '\t'))
            line[--size] = '\0';
        if (*line)
            CORE_TRY(parse_line(line, out));
    }
    if (*out->sha256 && !*out->path)
        return core__error(CORE_ERROR_CORRUPT,
                           "the manifest has a hash and no path");
    return CORE_OK;
}

static core_status read_manifest(const char *manifest, char *text)
{
    char *real = NULL;
    int file;
    ssize_t size;
    core_status status = core__search_open(manifest, &file, &real);

    free(real);
    if (status != CORE_OK)
        return status;
    size = read(file, text, MANIFEST_LIMIT);
    close(file);
    if (size < 0)
        return core__error(CORE_ERROR_IO, "cannot be read: %s",
                           strerror(errno));
    if (size == MANIFEST_LIMIT)
        return core__error(CORE_ERROR_CORRUPT,
                           "is too long for a manifest (%d bytes)",
                           MANIFEST_LIMIT);
    text[size] = '\0';
    return CORE_OK;
}

static void visit_manifest(core__search_visit visit, void *context,
                           const char *path)
{
    char text[MANIFEST_LIMIT + 1];
    manifest entry = {"", ""};
    core_status status = read_manifest(path, text);

    if (status == CORE_OK)
        status = parse_manifest(text, &entry);
    if (status != CORE_OK)
        visit(context, CORE_PLUGIN_SOURCE_MANIFEST, path, "", status);
    else if (*entry.path)
        visit_entry(visit, context, CORE_PLUGIN_SOURCE_MANIFEST, entry.path,
                    entry.sha256);
}

static void visit_manifests(core__search_visit visit, void *context)
{
    char path[PATH_MAX];

    for (int k = 0; k < 2; k++) {
        const char *folder = manifest_folders[k];
        struct dirent **names = NULL;
        int count = -1;

        if (*folder)
            count = scandir(folder, &names, is_manifest, compare_bytes);
        for (int i = 0; i < count; i++) {
            struct stat status;

            snprintf(path, sizeof path, "%s/%s", manifest_folders[1],
                     names[i]->d_name);
            if (k == 0 && *manifest_folders[1] && stat(path, &status) == 0)
                continue;
            snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
            visit_manifest(visit, context, path);
        }
        if (count >= 0)
            free_names(names, count);
    }
}

core_status core__search(core__search_visit visit, void *context)
{
    CORE_TRY(visit_environment(visit, context));
    visit_installed(visit, context);
    visit_manifests(visit, context);
    return CORE_OK;
}
