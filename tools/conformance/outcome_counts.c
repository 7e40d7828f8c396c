/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "outcome_counts.h"

#include "name_filter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the operator's row, adding it if needed; NULL: no memory. */
static outcome_row *row_of(outcome_counts *all, const char *name)
{
    outcome_row *row;

    /* Cases of one operator mostly follow each other. */
    for (size_t i = all->count; i-- > 0;)
        if (strcmp(all->rows[i].name, name) == 0)
            return &all->rows[i];
    if (all->count == all->capacity) {
        size_t capacity = 2 * all->capacity + 64;
        outcome_row *more = realloc(all->rows, capacity * sizeof *more);

        if (!more)
            return NULL;
        all->rows = more;
        all->capacity = capacity;
    }
    row = &all->rows[all->count++];
    memset(row, 0, sizeof *row);
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

bool outcome_counts_add(outcome_counts *all, const char *name,
                        replay_outcome outcome)
{
    outcome_row *row = row_of(all, name);

    if (!row)
        return false;
    row->counts[outcome]++;
    all->total[outcome]++;
    return true;
}

bool outcome_counts_require(outcome_counts *all, const char *path,
                            const char *filter, char *text, size_t capacity)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool good = true;

    if (!file) {
        snprintf(text, capacity, "%.300s: %s", path, strerror(errno));
        return false;
    }
    while (good && fgets(line, sizeof line, file)) {
        char *word = line + strspn(line, " \t");
        size_t length = strcspn(word, " \t\r\n#");
        outcome_row *row;

        word[length] = 0;
        if (length == 0 || !name_filter_selects(filter, word))
            continue;
        if (length >= GOLDEN_NAME) {
            snprintf(text, capacity,
                     "%.300s: operator name is too long: %.40s…", path, word);
            good = false;
            continue;
        }
        row = row_of(all, word);
        if (row)
            row->required = true;
        else
            snprintf(text, capacity, "no memory for the list of operators");
        good = row != NULL;
    }
    if (good && ferror(file)) {
        snprintf(text, capacity, "%.300s: %s", path, strerror(errno));
        good = false;
    }
    fclose(file);
    return good;
}

bool outcome_counts_check_required(const outcome_counts *all)
{
    bool good = true;

    for (size_t i = 0; i < all->count; i++) {
        const outcome_row *row = &all->rows[i];
        const size_t *counts = row->counts;

        if (!row->required ||
            (counts[REPLAY_PASSED] && !counts[REPLAY_FAILED] &&
             !counts[REPLAY_MISSING]))
            continue;
        good = false;
        if (counts[REPLAY_PASSED] + counts[REPLAY_FAILED] +
                counts[REPLAY_MISSING] ==
            0)
            printf("required operator %s has no case\n", row->name);
        else
            printf("required operator %s: %zu failed, %zu missing\n", row->name,
                   counts[REPLAY_FAILED], counts[REPLAY_MISSING]);
    }
    return good;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const outcome_row *)a)->name,
                  ((const outcome_row *)b)->name);
}

void outcome_counts_print(const outcome_counts *all)
{
    if (all->count)
        qsort(all->rows, all->count, sizeof *all->rows, by_name);
    printf("%-40s %7s %7s %7s\n", "operator", "passed", "failed", "missing");
    for (size_t i = 0; i < all->count; i++)
        printf("%-40s %7zu %7zu %7zu\n", all->rows[i].name,
               all->rows[i].counts[REPLAY_PASSED],
               all->rows[i].counts[REPLAY_FAILED],
               all->rows[i].counts[REPLAY_MISSING]);
}

void outcome_counts_free(outcome_counts *all)
{
    free(all->rows);
    memset(all, 0, sizeof *all);
}
