/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* file.h: files that appear whole or not at all.
 *
 * Content goes to a file of another name in the same folder, which is flushed
 * to the disk and then renamed. */

#ifndef CORE_IO_FILE_H
#define CORE_IO_FILE_H

#include <libcore/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct core__file {
    int fd;          /* -1: nothing is open */
    char *path;      /* where it shall appear, links followed */
    char *temporary; /* where it is written */
} core__file;

/* Fails, with the system's reason, where the file could not be replaced. */
core_status core__file_begin(core__file *file, const char *path);
core_status core__file_write(core__file *file, const void *data, size_t size);
/* Makes it appear.  Also on failure, core__file_end is to follow. */
core_status core__file_commit(core__file *file);
/* Removes what was not committed, and frees the rest. */
void core__file_end(core__file *file);

#endif
