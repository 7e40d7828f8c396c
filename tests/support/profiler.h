/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profiler.h: for the tests of the profiler. */

#ifndef TESTS_SUPPORT_PROFILER_H
#define TESTS_SUPPORT_PROFILER_H

#include "devices.h"
#include "temporary_files.h"

#include "base/observe.h"
#include "dispatch/dispatch.h"

#include <libcore/profiler.h>

#include <sys/stat.h>

static core_profiler *profiler;

static inline void setup(void)
{
    profiler = NULL;
}

static inline void teardown(void)
{
    core_profiler_release(profiler);
    drop_all();
    ck_assert_ptr_null(core__observer_now());
    ck_assert_uint_eq(core__keys_everywhere, 0);
}

static inline void start(void)
{
    OK(core_profiler_start(NULL, &profiler));
}

static inline void stop(void)
{
    OK(core_profiler_stop(profiler));
}

/* calls is 0 if there is no such row. */
static inline core_profile_row row_of(core_profile_kind kind, const char *name)
{
    core_profile_row row = {.struct_size = sizeof row};
    size_t count;

    OK(core_profiler_count_rows(profiler, &count));
    for (size_t i = 0; i < count; i++) {
        OK(core_profiler_get_row(profiler, CORE_PROFILE_BY_NAME, i, &row));
        if (row.kind == kind && strcmp(row.name, name) == 0)
            return row;
    }
    return (core_profile_row){0};
}

static inline uint64_t calls_of(const char *name)
{
    return row_of(CORE_PROFILE_OPERATOR, name).calls;
}

static inline core_tensor *square(double value)
{
    double values[64];

    for (size_t i = 0; i < 64; i++)
        values[i] = value;
    return typed(CORE_F32, 2, (int64_t[]){8, 8}, values);
}

/* The report that a function of the profiler saves; the caller frees it. */
static inline char *saved(core_status (*save)(core_profiler *, const char *))
{
    temporary_path path;
    struct stat found;
    FILE *file;
    char *text;

    temporary_file(path, "profiler");
    OK(save(profiler, path));
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fstat(fileno(file), &found), 0);
    text = calloc(1, (size_t)found.st_size + 1);
    ck_assert_uint_eq(fread(text, 1, (size_t)found.st_size, file),
                      found.st_size);
    ck_assert_uint_gt(found.st_size, 0);
    fclose(file);
    temporary_remove(path);
    return text;
}

#endif
