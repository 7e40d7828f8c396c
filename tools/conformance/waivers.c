/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "waivers.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

typedef struct waiver {
    bool expected; /* xfail */
    const char *device;
    const char *glob;
    const char *date;
    const char *reason;
} waiver;

/* YYYY-MM-DD, and a date that exists. */
static bool is_date(const char *text)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = atoi(text), month, day;

    for (int i = 0; i < 10; i++)
        if (i == 4 || i == 7 ? text[i] != '-'
                             : !isdigit((unsigned char)text[i]))
            return false;
    month = atoi(text + 5);
    day = atoi(text + 8);
    if (text[10] != 0 || month < 1 || month > 12 || day < 1)
        return false;
    if (month == 2 && day == 29)
        return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= days[month - 1];
}

/* Parses a line; returns NULL, or what is wrong with it. */
static const char *read_line(char *line, waiver *out)
{
    const char *kind;

    line[strcspn(line, "#\n")] = 0;
    kind = strtok(line, " \t");
    if (!kind) {
        out->glob = NULL;
        return NULL;
    }
    if (strcmp(kind, "waive") != 0 && strcmp(kind, "xfail") != 0)
        return "begins with neither waive nor xfail";
    out->expected = kind[0] == 'x';
    out->device = strtok(NULL, " \t");
    out->glob = strtok(NULL, " \t");
    out->date = strtok(NULL, " \t");
    out->reason = strtok(NULL, "");
    if (!out->device || !out->glob || !out->date || !out->reason)
        return "lacks a device, test, date or reason";
    if (!is_date(out->date))
        return "has no end date of the form YYYY-MM-DD";
    out->reason += strspn(out->reason, " \t");
    return *out->reason ? NULL : "has no reason";
}

static void apply_one(record *one, const waiver *by)
{
    char before[TEST_DETAIL];
    bool bad = report_bad(one);

    if (!one->done || one->verdict == VERDICT_WAIVED ||
        one->verdict == VERDICT_XFAIL || one->verdict == VERDICT_XPASS)
        return;
    if (!bad && !(by->expected && one->verdict == VERDICT_PASS))
        return;
    snprintf(before, sizeof before, "%s", one->detail);
    snprintf(one->detail, sizeof one->detail, "%.200s, until %s (%s%s%.300s)",
             by->reason, by->date, bad ? verdict_names[one->verdict] : "passed",
             *before ? ": " : "", before);
    one->verdict = !bad           ? VERDICT_XPASS
                   : by->expected ? VERDICT_XFAIL
                                  : VERDICT_WAIVED;
}

/* The device's name may have an index after its type. */
static bool same_device(const report *self, const char *type)
{
    const char *name = report_about(self, "device");
    size_t size = strcspn(name, ":");

    return strcmp(type, name) == 0 ||
           (strlen(type) == size && strncmp(type, name, size) == 0);
}

/* Applies a waiver to the tests that it matches. */
static void apply(report *self, const waiver *by, size_t number)
{
    bool matches = false;

    for (size_t i = 0; i < self->count; i++) {
        if (fnmatch(by->glob, self->records[i].name, 0) != 0)
            continue;
        matches = true;
        if (self->records[i].chosen)
            apply_one(&self->records[i], by);
    }
    if (!matches)
        report_remark(self, "waivers, line %zu: %.120s matches no test%s",
                      number, by->glob,
                      self->filter ? " that the filter selects" : "");
}

/* Calls visit for every waiver of the file.  On failure returns false and sets
 * text. */
static bool each_line(const char *path, char *text, size_t capacity,
                      void (*visit)(void *context, const waiver *one,
                                    size_t number),
                      void *context)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0, number = 0;
    bool good = file != NULL;

    while (good && getline(&line, &size, file) > 0) {
        waiver one = {0};
        const char *wrong = read_line(line, &one);

        number++;
        if (wrong) {
            snprintf(text, capacity, "%s:%zu %s", path, number, wrong);
            good = false;
        } else if (one.glob && visit) {
            visit(context, &one, number);
        }
    }
    if (!file || (good && ferror(file))) { /* a folder, for example */
        snprintf(text, capacity, "%s cannot be read", path);
        good = false;
    }
    free(line);
    if (file)
        fclose(file);
    return good;
}

bool waivers_check(const char *path, char *text, size_t capacity)
{
    return each_line(path, text, capacity, NULL, NULL);
}

typedef struct applied {
    report *to;
    record *only; /* NULL: all tests, with remarks */
    const char *today;
} applied;

static void apply_line(void *context, const waiver *one, size_t number)
{
    const applied *all = context;

    if (!same_device(all->to, one->device))
        return;
    if (all->only) {
        if (strncmp(one->date, all->today, 10) >= 0 &&
            fnmatch(one->glob, all->only->name, 0) == 0)
            apply_one(all->only, one);
        return;
    }
    if (strncmp(one->date, all->today, 10) < 0)
        report_remark(all->to,
                      "waivers, line %zu: %.120s expired on %s and is ignored",
                      number, one->glob, one->date);
    else
        apply(all->to, one, number);
}

bool waivers_apply(report *self, const char *path, const char *today,
                   char *text, size_t capacity)
{
    applied all = {self, NULL, today};

    return each_line(path, text, capacity, apply_line, &all);
}

bool waivers_apply_to(record *one, report *of, const char *path, char *text,
                      size_t capacity)
{
    applied all = {of, one, of->date};

    return each_line(path, text, capacity, apply_line, &all);
}
