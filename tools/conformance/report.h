/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* report.h: what a run found, and how it is told. */

#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H

#include "suite.h"

#include <stdio.h>

typedef struct record {
    char name[TEST_NAME];
    level level;
    bool optional;
    bool chosen; /* by filter and shard */
    bool done;
    bool resumed; /* taken from an earlier run */
    verdict verdict;
    double error;
    double measured;
    char unit[24];
    double milliseconds;
    char detail[TEST_DETAIL];
} record;

enum { REPORT_ABOUT = 16, REPORT_REMARKS = 64, REPORT_REMARK = 300 };

typedef struct report {
    record *records;
    size_t count;
    size_t room;
    struct {
        char key[24];
        char value[200];
    } about[REPORT_ABOUT]; /* of the device, and the machine */
    size_t abouts;
    const char *plugin;
    char sha256[65];
    uint64_t seed;
    char date[32];
    const char *filter; /* NULL: all */
    uint32_t shard;     /* of `shards`, from 1; 0: all */
    uint32_t shards;
    level up_to; /* levels that were asked for */
    bool only;   /* that one alone */
    /* Of waivers: what is said beside the verdicts. */
    char remarks[REPORT_REMARKS][REPORT_REMARK];
    size_t nremarks;
} report;

/* NULL: no memory. */
record *report_add(report *self, const char *name);
record *report_find(report *self, const char *name);
const char *report_about(const report *self, const char *key);
void report_set_about(report *self, const char *key, const char *value);
/* What there is no room for is not said. */
void report_remark(report *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void report_free(report *self);

/* A verdict that keeps a level from being passed. */
bool report_bad(const record *one);
typedef struct level_result {
    size_t counts[VERDICTS];
    size_t executed; /* chosen, and with a verdict of the plugin's */
    size_t bad;
    bool passed;
} level_result;
level_result report_level(const report *self, level which);
/* Whether a level was asked for. */
bool report_wants(const report *self, level which);
/* The last level that was passed with all before it; -1: none. */
int report_reached(const report *self);
/* A run of a filter, a shard or one level shows less than conformance. */
bool report_partial(const report *self);
bool report_passed(const report *self);

/* False: it could not be written. */
bool report_tap(const report *self, FILE *to);
bool report_jsonl(const report *self, FILE *to);
bool report_junit(const report *self, FILE *to);
bool report_html(const report *self, FILE *to);
/* The lines at the end, for people; each begins with prefix. */
void report_summary(const report *self, FILE *to, const char *prefix);

/* Reads the verdicts of an earlier run's JSON lines into the records of the
 * same names; false: text says why not (another plugin, seed or suite). */
bool report_resume(report *self, const char *path, char *text, size_t room);

#endif
