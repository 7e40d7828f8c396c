/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* file.h: files that are replaced atomically.
 *
 * The content is written to a temporary file in the same folder, flushed to
 * the disk, and renamed. */

#ifndef CORE_IO_FILE_H
#define CORE_IO_FILE_H

#include <libcore/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct core__file {
    int fd;          /* -1: nothing is open */
    char *path;      /* the final path, with links resolved */
    char *temporary; /* path of the temporary file */
} core__file;

/* Fails, with the system's reason, if the file could not be replaced. */
core_status core__file_begin(core__file *file, const char *path);
core_status core__file_write(core__file *file, const void *data, size_t size);
/* Renames the file to its final path.  core__file_end must follow, also on
 * failure. */
core_status core__file_commit(core__file *file);
/* Removes an uncommitted temporary file and frees the rest. */
void core__file_end(core__file *file);

#endif
