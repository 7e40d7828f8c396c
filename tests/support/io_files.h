/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* io_files.h: a folder for the files of a test, and files with any content in
 * it. */

#ifndef TESTS_SUPPORT_IO_FILES_H
#define TESTS_SUPPORT_IO_FILES_H

#include "suite.h"
#include "temporary_files.h"

#include <libcore/device.h>

#include <stdint.h>
#include <string.h>

static temporary_path folder;
static char file_path[PATH_MAX + 32];
static core_device *cpu;

static inline void set_up(void)
{
    temporary_folder(folder, "libcore-test");
    snprintf(file_path, sizeof file_path, "%s/file.safetensors", folder);
    ck_assert_msg(core_device_find("cpu", &cpu) == CORE_OK, "%s",
                  core_error_message());
}

static inline void tear_down(void)
{
    temporary_remove(folder);
}

static inline int files_in_folder(void)
{
    return count_entries(folder);
}

static inline void write_bytes(const void *data, size_t size)
{
    FILE *file = fopen(file_path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    fclose(file);
}

static inline size_t read_bytes(void *data, size_t capacity)
{
    FILE *file = fopen(file_path, "rb");
    size_t size;

    ck_assert_ptr_nonnull(file);
    size = fread(data, 1, capacity, file);
    fclose(file);
    return size;
}

/* Writes a file with this header and so many bytes of data, 0, 1, 2, ... */
static inline size_t write_file(const char *json, size_t data_size)
{
    uint64_t length = strlen(json);
    size_t size = 8 + (size_t)length + data_size;
    uint8_t *bytes = calloc(1, size + 1);

    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json, (size_t)length);
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + length + i] = (uint8_t)i;
    write_bytes(bytes, size);
    free(bytes);
    return size;
}

/* The same under another name in the folder. */
static inline size_t write_named(const char *name, const char *json,
                                 size_t data_size)
{
    char kept[sizeof file_path];
    size_t size;

    memcpy(kept, file_path, sizeof kept);
    snprintf(file_path, sizeof file_path, "%s/%s", folder, name);
    size = write_file(json, data_size);
    memcpy(file_path, kept, sizeof kept);
    return size;
}

/* Runs a program of one suite, each of whose tests has a folder. */
static inline int run_files(const char *name, const TTest *const *tests,
                            size_t count)
{
    const test_suite suite = {.name = name,
                              .setup = set_up,
                              .teardown = tear_down,
                              .tests = tests,
                              .test_count = count};

    return suite_run(&suite, 1);
}

#endif
