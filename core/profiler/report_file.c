/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A buffered file that a report is written to. */

#include "profiler/report_file.h"

#include "base/error.h"

#include <string.h>

static void flush(core__report_file *report)
{
    if (report->used && report->status == CORE_OK)
        report->status =
            core__file_write(&report->file, report->buffer, report->used);
    report->used = 0;
}

void core__report_file_write(core__report_file *report, const char *text,
                             size_t size)
{
    while (size > 0) {
        size_t available = sizeof report->buffer - report->used;
        size_t part = size < available ? size : available;

        memcpy(report->buffer + report->used, text, part);
        report->used += part;
        text += part;
        size -= part;
        if (report->used == sizeof report->buffer)
            flush(report);
    }
}

core_status core__report_file_save(core__report_file *report, const char *path,
                                   core_status (*write)(void *context),
                                   void *context)
{
    core_status status;

    CORE_TRY(core__file_begin(&report->file, path));
    status = write(context);
    flush(report);
    if (status == CORE_OK)
        status = report->status;
    if (status == CORE_OK)
        status = core__file_commit(&report->file);
    core__file_end(&report->file);
    return status;
}
