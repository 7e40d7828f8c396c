/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "outcome_counts.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The operator's row, made if there is none; NULL: no memory. */
static tally_row *row_of(tally *all, const char *name)
{
    tally_row *row;

    /* Cases of one operator mostly follow each other. */
    for (size_t i = all->count; i-- > 0;)
        if (strcmp(all->rows[i].name, name) == 0)
            return &all->rows[i];
    if (all->count == all->room) {
        size_t room = 2 * all->room + 64;
        tally_row *more = realloc(all->rows, room * sizeof *more);

        if (!more)
            return NULL;
        all->rows = more;
        all->room = room;
    }
    row = &all->rows[all->count++];
    memset(row, 0, sizeof *row);
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

bool tally_add(tally *all, const char *name, replay_outcome outcome)
{
    tally_row *row = row_of(all, name);

    if (!row)
        return false;
    row->counts[outcome]++;
    all->total[outcome]++;
    return true;
}

bool tally_require(tally *all, const char *path, const char *filter, char *text,
                   size_t room)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool good = true;

    if (!file) {
        snprintf(text, room, "%.300s: %s", path, strerror(errno));
        return false;
    }
    while (good && fgets(line, sizeof line, file)) {
        char *word = line + strspn(line, " \t");
        size_t length = strcspn(word, " \t\r\n#");
        tally_row *row;

        word[length] = 0;
        if (length == 0 || (filter && fnmatch(filter, word, 0) != 0))
            continue;
        if (length >= GOLDEN_NAME) {
            snprintf(text, room,
                     "%.300s: no operator has such a long name: "
                     "%.40s…",
                     path, word);
            good = false;
            continue;
        }
        row = row_of(all, word);
        if (row)
            row->required = true;
        else
            snprintf(text, room, "no memory for the list of operators");
        good = row != NULL;
    }
    if (good && ferror(file)) {
        snprintf(text, room, "%.300s: %s", path, strerror(errno));
        good = false;
    }
    fclose(file);
    return good;
}

bool tally_check_required(const tally *all)
{
    bool good = true;

    for (size_t i = 0; i < all->count; i++) {
        const tally_row *row = &all->rows[i];
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
    return strcmp(((const tally_row *)a)->name, ((const tally_row *)b)->name);
}

void tally_print(const tally *all)
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

void tally_free(tally *all)
{
    free(all->rows);
    memset(all, 0, sizeof *all);
}
