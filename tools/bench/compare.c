/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* --compare FILE: prints the lines of another benchmark's output, of the same
 * names, beside the results. */

#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    char name[96];
    char unit[16];
    double value;
} line;

static struct {
    line *lines;
    size_t count, capacity;
} own;

void bench_compare_add(const char *name, double value, const char *unit)
{
    line *lines;

    if (!bench.compare)
        return;
    if (own.count == own.capacity) {
        own.capacity = own.capacity * 2 + 64;
        lines = realloc(own.lines, own.capacity * sizeof *lines);
        if (!lines) {
            fprintf(stderr, "core-bench: no memory for the comparison\n");
            exit(EXIT_FAILURE);
        }
        own.lines = lines;
    }
    snprintf(own.lines[own.count].name, sizeof own.lines->name, "%s", name);
    snprintf(own.lines[own.count].unit, sizeof own.lines->unit, "%s", unit);
    own.lines[own.count++].value = value;
}

static const line *find(const char *name)
{
    for (size_t i = 0; i < own.count; i++)
        if (strcmp(own.lines[i].name, name) == 0)
            return &own.lines[i];
    return NULL;
}

/* Higher rates are better. */
static bool is_rate(const char *unit)
{
    size_t size = strlen(unit);

    return size > 2 && strcmp(unit + size - 2, "/s") == 0;
}

/* Returns the number of compared lines; -1: the file could not be read. */
int bench_compare(void)
{
    FILE *file = fopen(bench.compare, "r");
    char text[512], name[96], unit[16];
    double value;
    int count = 0;
    bool failed;

    if (!file) {
        fprintf(stderr, "core-bench: cannot read %s: %s\n", bench.compare,
                strerror(errno));
        return -1;
    }
    printf("\n%-44s %12s %12s %-8s %8s\n", "", "libcore", "other", "",
           "faster");
    while (fgets(text, sizeof text, file)) {
        const line *ours;
        double ratio;

        if (*text == '#' ||
            sscanf(text, "%95s %lf %15s", name, &value, unit) != 3)
            continue;
        ours = find(name);
        if (!ours || strcmp(ours->unit, unit) != 0 || !(value > 0) ||
            isinf(value) || ours->value <= 0)
            continue;
        ratio = is_rate(unit) ? ours->value / value : value / ours->value;
        printf("%-44s %12.3f %12.3f %-8s %7.2fx%s\n", name, ours->value, value,
               unit, ratio, ratio < 1 ? "  slower" : "");
        count++;
    }
    failed = ferror(file);
    fclose(file);
    if (failed) {
        fprintf(stderr, "core-bench: cannot read %s\n", bench.compare);
        return -1;
    }
    return count;
}
