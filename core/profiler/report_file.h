/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* report_file.h: a buffered file that a report is written to. */

#ifndef CORE_PROFILER_REPORT_FILE_H
#define CORE_PROFILER_REPORT_FILE_H

#include "io/file.h"

typedef struct core__report_file {
    core__file file;
    core_status status; /* the first error, after which nothing is written */
    size_t used;
    char buffer[1 << 16];
} core__report_file;

void core__report_file_write(core__report_file *report, const char *text,
                             size_t size);

/* Writes a file at path: begins it, calls write, and commits it unless that
 * fails.  report: zeroed. */
core_status core__report_file_save(core__report_file *report, const char *path,
                                   core_status (*write)(void *context),
                                   void *context);

#endif
