/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* temporary_files.h: files and folders of a test, in the folder for such.  The test
 * removes them; run-tests looks whether it has. */

#ifndef TESTS_UNIT_TEMPORARY_H
#define TESTS_UNIT_TEMPORARY_H

#include <check.h>
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

/* An empty file. */
static inline void temporary_file(temporary_path out, const char *name)
{
    int file;

    temporary_name(out, name);
    file = mkstemp(out);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(close(file), 0);
}

/* With all that is in it. */
static inline void temporary_remove(const char *path)
{
    char command[PATH_MAX + 16];

    snprintf(command, sizeof command, "rm -rf '%s'", path);
    ck_assert_int_eq(system(command), 0);
}

#endif
