/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "progress.h"

#include "waivers.h"

#include <string.h>
#include <sys/stat.h>

static FILE *open_report(const char *path)
{
    return !path ? NULL : strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
}

static bool is_regular(FILE *file)
{
    struct stat about;

    return fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode);
}

/* Writes the tests that have ended, up to the first that has not. */
static void continue_tap(progress *self)
{
    report *all = self->report;

    if (!self->tap_file)
        return;
    for (; self->next < all->count &&
           (all->records[self->next].done || !all->records[self->next].chosen);
         self->next++)
        report_tap_test(all, &all->records[self->next], &self->number,
                        self->tap_file);
    fflush(self->tap_file);
}

void progress_begin(progress *self)
{
    report *all = self->report;

    self->tap_file = open_report(self->tap);
    self->jsonl_file = open_report(self->jsonl);
    if (self->tap_file)
        report_tap_head(self->tap_file);
    if (self->jsonl_file)
        report_jsonl_head(all, self->jsonl_file);
    for (size_t i = 0; i < all->count; i++)
        if (all->records[i].done)
            progress_test(self, &all->records[i]);
}

void progress_test(void *context, record *one)
{
    progress *self = context;
    char text[500];

    if (!one->chosen)
        return;
    /* An error was found before the run, or will be after it. */
    if (self->waivers)
        waivers_apply_to(one, self->report, self->waivers, text, sizeof text);
    continue_tap(self);
    if (self->jsonl_file) {
        report_jsonl_test(one, self->jsonl_file);
        fflush(self->jsonl_file);
    }
}

static bool close_report(FILE *file, const char *path, bool good)
{
    if (file && file != stdout && fclose(file) != 0)
        good = false;
    if (path && !good)
        fprintf(stderr, "core-conformance: cannot be written: %s\n", path);
    return !path || good;
}

static bool end_tap(progress *self)
{
    report *all = self->report;

    if (!self->tap_file)
        return false;
    for (; self->next < all->count; self->next++)
        report_tap_test(all, &all->records[self->next], &self->number,
                        self->tap_file);
    return report_tap_end(all, self->number, self->tap_file);
}

/* A file is written again, in the order of the tests. */
static bool end_jsonl(progress *self)
{
    report *all = self->report;
    FILE *file = self->jsonl_file;

    if (!file)
        return false;
    if (file != stdout && is_regular(file)) {
        self->jsonl_file = file = freopen(self->jsonl, "w", file);
        return file && report_jsonl(all, file);
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->records[i].chosen && !all->records[i].done)
            report_jsonl_test(&all->records[i], file);
    return report_jsonl_end(all, file);
}

bool progress_end(progress *self)
{
    bool tap = end_tap(self), jsonl = end_jsonl(self);

    tap = close_report(self->tap_file, self->tap, tap);
    return close_report(self->jsonl_file, self->jsonl, jsonl) && tap;
}
