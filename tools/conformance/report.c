/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

record *report_add(report *self, const char *name)
{
    record *one;

    if (self->count == self->capacity) {
        size_t capacity = self->capacity ? self->capacity * 2 : 256;
        record *more = realloc(self->records, capacity * sizeof *more);

        if (!more)
            return NULL;
        self->records = more;
        self->capacity = capacity;
    }
    one = &self->records[self->count++];
    *one = (record){.verdict = VERDICT_NOT_RUN, .error = -1, .measured = -1};
    snprintf(one->name, sizeof one->name, "%s", name);
    return one;
}

record *report_find(report *self, const char *name)
{
    for (size_t i = 0; i < self->count; i++)
        if (strcmp(self->records[i].name, name) == 0)
            return &self->records[i];
    return NULL;
}

const char *report_about(const report *self, const char *key)
{
    for (size_t i = 0; i < self->abouts; i++)
        if (strcmp(self->about[i].key, key) == 0)
            return self->about[i].value;
    return "";
}

void report_set_about(report *self, const char *key, const char *value)
{
    if (self->abouts == REPORT_ABOUT || *report_about(self, key))
        return;
    snprintf(self->about[self->abouts].key, sizeof self->about->key, "%s", key);
    snprintf(self->about[self->abouts].value, sizeof self->about->value, "%s",
             value);
    self->abouts++;
}

void report_remark(report *self, const char *format, ...)
{
    va_list arguments;

    if (self->nremarks == REPORT_REMARKS)
        return;
    va_start(arguments, format);
    vsnprintf(self->remarks[self->nremarks++], REPORT_REMARK, format,
              arguments);
    va_end(arguments);
}

void report_stop(report *self, const record *cause)
{
    if (!self->stopped)
        self->stopped = cause;
}

void report_free(report *self)
{
    free(self->records);
    self->records = NULL;
    self->count = 0;
}

/* ------------------------------------------------------------- levels -- */

bool report_bad(const record *one)
{
    switch (one->verdict) {
    case VERDICT_PASS:
    case VERDICT_WAIVED:
    case VERDICT_XFAIL:
        return false;
    case VERDICT_NOT_SUPPORTED:
        return !one->optional;
    default:
        return true;
    }
}

level_result report_level(const report *self, level which)
{
    level_result result = {0};

    for (size_t i = 0; i < self->count; i++) {
        const record *one = &self->records[i];

        if (one->level != which || !one->chosen)
            continue;
        result.counts[one->verdict]++;
        result.executed += one->verdict != VERDICT_NOT_RUN &&
                           one->verdict != VERDICT_NOT_SUPPORTED &&
                           one->verdict != VERDICT_HARNESS_ERROR;
        result.bad += report_bad(one);
    }
    result.passed = result.executed > 0 && result.bad == 0;
    return result;
}

bool report_wants(const report *self, level which)
{
    return self->only ? which == self->up_to : which <= self->up_to;
}

int report_reached(const report *self)
{
    int reached = -1;

    for (int i = 0; i < LEVELS && report_level(self, (level)i).passed; i++)
        reached = i;
    return reached;
}

bool report_partial(const report *self)
{
    return self->filter || self->shards > 1 || self->only || self->quick;
}

const char *report_suite(const report *self)
{
    return self->quick ? SUITE_VERSION " quick" : SUITE_VERSION;
}

bool report_passed(const report *self)
{
    size_t executed = 0;

    for (int i = 0; i < LEVELS; i++) {
        level_result result = report_level(self, (level)i);

        if (!report_wants(self, (level)i))
            continue;
        executed += result.executed;
        /* A filter may leave a level empty. */
        if (result.bad > 0 || (result.executed == 0 && !report_partial(self)))
            return false;
    }
    return executed > 0;
}

/* ------------------------------------------------------------- summary -- */

/* Tests whether a passed level does not cover the test. */
static bool is_untested(const record *one, level which)
{
    return one->level == which && one->chosen && one->optional &&
           one->verdict == VERDICT_NOT_SUPPORTED;
}

/* Counts the tests in a range that are not covered for the same reason. */
static size_t count_untested(const report *self, level which,
                             const char *reason, size_t begin, size_t end)
{
    size_t count = 0;

    for (size_t i = begin; i < end; i++)
        count += is_untested(&self->records[i], which) &&
                 strcmp(self->records[i].detail, reason) == 0;
    return count;
}

/* Lists the tests that are not covered for a reason; NULL: for those that are
 * not the reasons of tests before `begin`. */
static void name_untested(const report *self, level which, const char *reason,
                          size_t begin, FILE *to, const char *prefix)
{
    enum { NAMES = 40 };
    size_t count = 0;

    for (size_t i = begin; i < self->count; i++) {
        const record *one = &self->records[i];

        if (!is_untested(one, which) ||
            (reason ? strcmp(one->detail, reason) != 0
                    : count_untested(self, which, one->detail, 0, begin) > 0))
            continue;
        if (count++ < NAMES)
            fprintf(to, "%s%s%s", count > 1 ? ", " : prefix,
                    count > 1 ? "" : "    ", one->name);
    }
    if (count > NAMES)
        fprintf(to, " and %zu more", count - NAMES);
    if (count > 0)
        fprintf(to, "\n");
}

/* What a passed level does not say about the device: a line per reason, and
 * another with the tests if there are several. */
static void untested(const report *self, level which, FILE *to,
                     const char *prefix)
{
    enum { LINES = 24 };
    size_t lines = 0, left = 0, rest = self->count;

    for (size_t i = 0; i < self->count; i++) {
        const record *one = &self->records[i];
        size_t same;

        if (!is_untested(one, which) ||
            count_untested(self, which, one->detail, 0, i) > 0)
            continue;
        same = count_untested(self, which, one->detail, i, self->count);
        if (lines++ >= LINES) {
            rest = left++ ? rest : i;
        } else if (same > 1) {
            fprintf(to, "%s  not tested, %zu tests: %s\n", prefix, same,
                    one->detail);
            name_untested(self, which, one->detail, i, to, prefix);
        } else {
            fprintf(to, "%s  not tested, %s: %s\n", prefix, one->name,
                    one->detail);
        }
    }
    if (left == 0)
        return;
    fprintf(to, "%s  not tested: %zu more reasons\n", prefix, left);
    name_untested(self, which, NULL, rest, to, prefix);
}

static void summary_level(const report *self, level which, FILE *to,
                          const char *prefix)
{
    level_result result = report_level(self, which);
    const char *word = report_partial(self) ? "no failure" : "passed";
    const char *comma = "";
    size_t chosen = 0;

    for (int v = 0; v < VERDICTS; v++)
        chosen += result.counts[v];
    if (chosen == 0 && report_partial(self))
        return;
    fprintf(to, "%slevel %-8s %s:", prefix, level_names[which],
            result.passed          ? word
            : result.executed == 0 ? "nothing was executed"
                                   : "NOT PASSED");
    for (int v = 0; v < VERDICTS; v++) {
        if (!result.counts[v])
            continue;
        fprintf(to, "%s %zu %s", comma, result.counts[v], verdict_names[v]);
        comma = ",";
    }
    fprintf(to, "\n");
    untested(self, which, to, prefix);
}

void report_summary(const report *self, FILE *to, const char *prefix)
{
    int reached = report_reached(self);

    fprintf(to, "%splugin %s, sha256 %s\n", prefix, self->plugin, self->sha256);
    for (int i = 0; i < LEVELS; i++)
        if (report_wants(self, (level)i))
            summary_level(self, (level)i, to, prefix);
    if (report_partial(self))
        fprintf(to, "%sthis was not a conformance run: only %s was selected\n",
                prefix,
                self->filter       ? "what the filter matches"
                : self->shards > 1 ? "one shard"
                : self->only       ? "one level"
                                   : "a part without large calls");
    else
        fprintf(to, "%slevel reached: %s\n", prefix,
                reached < 0 ? "none" : level_names[reached]);
    if (self->stopped)
        fprintf(to, "%sstopped: %s: %s\n", prefix, self->stopped->name,
                self->stopped->detail);
}
