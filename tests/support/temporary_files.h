/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* temporary_files.h: temporary files and folders of a test.  The test removes
 * them; run-tests checks that it did. */

#ifndef TESTS_SUPPORT_TEMPORARY_FILES_H
#define TESTS_SUPPORT_TEMPORARY_FILES_H

#include <check.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef char temporary_path[PATH_MAX];

static inline void temporary_name(temporary_path out, const char *name)
{
    const char *base = getenv("TMPDIR");
    int size = snprintf(out, PATH_MAX, "%s/%s-XXXXXX",
                        base && *base ? base : "/tmp", name);

    ck_assert_int_lt(size, PATH_MAX);
}

static inline void temporary_folder(temporary_path out, const char *name)
{
    temporary_name(out, name);
    ck_assert_ptr_nonnull(mkdtemp(out));
}

/* Creates an empty file. */
static inline void temporary_file(temporary_path out, const char *name)
{
    int file;

    temporary_name(out, name);
    file = mkstemp(out);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(close(file), 0);
}

/* The number of files and folders in a folder. */
static inline int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    ck_assert_ptr_nonnull(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2; /* "." and ".." */
}

/* Removes a file, or a folder with its contents. */
static inline void temporary_remove(const char *path)
{
    char command[PATH_MAX + 16];

    snprintf(command, sizeof command, "rm -rf '%s'", path);
    ck_assert_int_eq(system(command), 0);
}

#endif
