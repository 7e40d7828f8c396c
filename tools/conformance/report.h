/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* report.h: the results of a run and their output formats. */

#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H

#include "suite.h"

#include <stdio.h>

typedef struct record {
    char name[TEST_NAME];
    level level;
    bool optional;
    bool chosen; /* selected by filter and shard */
    bool done;
    bool resumed; /* taken from an earlier run */
    verdict verdict;
    double error;
    double measured;
    char unit[24];
    double milliseconds;
    char detail[TEST_DETAIL];
} record;

enum { REPORT_ABOUT = 16, REPORT_REMARKS = 640, REPORT_REMARK = 300 };

typedef struct report {
    record *records;
    size_t count;
    size_t capacity;
    struct {
        char key[24];
        char value[200];
    } about[REPORT_ABOUT]; /* of the device and the machine */
    size_t abouts;
    const char *plugin;
    char sha256[65];
    uint64_t seed;
    char date[32];
    const char *filter; /* NULL: all */
    uint32_t shard;     /* 1 to `shards`; 0: all */
    uint32_t shards;
    level up_to; /* the highest requested level */
    bool only;   /* only that level */
    bool quick;  /* without calls of many elements */
    /* Remarks on waivers and of tests, printed after the verdicts. */
    char remarks[REPORT_REMARKS][REPORT_REMARK];
    size_t nremarks;
    /* Where tests are listed: the operators that level training needs, and
     * those that level ops calls with few elements only. */
    char needs[TEST_NEEDS];
    char few[TEST_NEEDS];
    const record *stopped; /* the test after which nothing more was run, because
                              every other would fail of the same cause */
} report;

/* NULL: no memory. */
record *report_add(report *self, const char *name);
record *report_find(report *self, const char *name);
const char *report_about(const report *self, const char *key);
void report_set_about(report *self, const char *key, const char *value);
/* Remarks that do not fit are dropped. */
void report_remark(report *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends the run with this test as the cause. */
void report_stop(report *self, const record *cause);
void report_free(report *self);

/* Tests for a verdict that prevents a level from being passed. */
bool report_bad(const record *one);
typedef struct level_result {
    size_t counts[VERDICTS];
    size_t executed; /* selected, and with a verdict about the plugin */
    size_t bad;
    bool passed;
} level_result;
level_result report_level(const report *self, level which);
/* Tests whether a level was requested. */
bool report_wants(const report *self, level which);
/* Returns the highest level that was passed together with all before it, or
 * -1. */
int report_reached(const report *self);
/* A run with a filter, a shard or one level only, or a quick one, does not show
 * conformance. */
bool report_partial(const report *self);
bool report_passed(const report *self);
/* The version of the tests, which differs for a quick run. */
const char *report_suite(const report *self);

/* Return false if the output could not be written. */
bool report_tap(const report *self, FILE *to);
bool report_jsonl(const report *self, FILE *to);
/* Their parts.  *number counts the lines of tests. */
void report_tap_head(FILE *to);
void report_tap_test(const report *self, const record *one, size_t *number,
                     FILE *to);
bool report_tap_end(const report *self, size_t number, FILE *to);
bool report_jsonl_head(const report *self, FILE *to);
bool report_jsonl_test(const record *one, FILE *to);
bool report_jsonl_end(const report *self, FILE *to);
bool report_junit(const report *self, FILE *to);
bool report_html(const report *self, FILE *to);
/* Prints the summary for people; each line begins with prefix. */
void report_summary(const report *self, FILE *to, const char *prefix);

/* Reads the verdicts of an earlier run's JSON lines into the records of the
 * same names.  On failure (another plugin, seed or suite) returns false and
 * sets text. */
bool report_resume(report *self, const char *path, char *text, size_t capacity);

#endif
