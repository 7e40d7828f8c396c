/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loader.h: for the loader's tests: folders, files copied from fixtures, and
 * plugins in the list. */

#ifndef TESTS_SUPPORT_LOADER_H
#define TESTS_SUPPORT_LOADER_H

#include "suite.h"
#include "temporary_files.h"

#include <libcore/plugins.h>

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "loader/search.h"

typedef char path_text[PATH_MAX];

static temporary_path folder; /* of this test */

/* The file of a fixture: core_<name>.so. */
static inline const char *fixture(const char *name)
{
    static path_text text;
    const char *build = getenv("LIBCORE_BUILD");

    snprintf(text, sizeof text, "%s/tests/fixtures/.libs/core_%s.so",
             build ? build : ".", name);
    ck_assert_msg(access(text, R_OK) == 0, "fixture %s was not built", text);
    return text;
}

/* Every test is a process (Check forks): it searches only its own folder, and
 * nothing that is installed. */
static inline void folder_make(void)
{
    temporary_folder(folder, "libcore-test");
    core__search_set_folders("", "", "");
    core_setting_set("LIBCORE_PLUGIN_PATH", folder);
}

/* The same, but with the plugins of the build, and with a fixture loaded. */
static inline void folder_make_with(const char *fixture_name)
{
    const char *build = getenv("LIBCORE_BUILD");
    path_text path;

    folder_make();
    snprintf(path, sizeof path, "%s/.libs", build ? build : ".");
    core_setting_set("LIBCORE_PLUGIN_PATH", path);
    ck_assert_msg(core_plugin_load(fixture(fixture_name), NULL) == CORE_OK,
                  "%s", core_error_message());
}

static inline void folder_remove(void)
{
    temporary_remove(folder);
}

static inline const char *inside(const char *name)
{
    static path_text texts[4];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof *texts, "%.3000s/%.1000s", folder, name);
    return text;
}

/* Reads a whole file; the caller frees the bytes. */
static inline unsigned char *file_read(const char *from, size_t *out_size)
{
    FILE *file = fopen(from, "rb");
    unsigned char *bytes;
    long size;

    ck_assert_ptr_nonnull(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    bytes = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    *out_size = fread(bytes, 1, (size_t)size, file);
    ck_assert_uint_eq(*out_size, (size_t)size);
    fclose(file);
    return bytes;
}

static inline void file_write(const char *to, const void *bytes, size_t size)
{
    FILE *file = fopen(to, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
    chmod(to, 0644);
}

/* Copies a fixture into the test's folder under a file name. */
static inline const char *install(const char *fixture_name, const char *name)
{
    size_t size;
    unsigned char *bytes = file_read(fixture(fixture_name), &size);
    const char *to = inside(name);

    file_write(to, bytes, size);
    free(bytes);
    return to;
}

/* The plugin whose path ends with this; state UINT32_MAX if there is none. */
static inline core_plugin_information entry_of(const char *end)
{
    core_plugin_information found = {.state = UINT32_MAX};

    for (uint32_t i = 0; i < core_plugin_count(); i++) {
        core_plugin_information p = {.struct_size = sizeof p};
        size_t size;

        core_plugin_describe(core_plugin_at(i), &p);
        size = strlen(p.path);
        if (size >= strlen(end) &&
            strcmp(p.path + size - strlen(end), end) == 0)
            found = p;
    }
    return found;
}

#define assert_contains(text, part)                                            \
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, \
                  text)

/* The plugin has this state and status, and its reason contains this part. */
#define assert_refused(end, wanted_state, wanted_status, part) \
    do {                                                       \
        core_plugin_information p_ = entry_of(end);            \
        ck_assert_uint_eq(p_.state, wanted_state);             \
        ck_assert_int_eq(p_.status, wanted_status);            \
        assert_contains(p_.reason, part);                      \
    } while (0)

#endif
