/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "rank_outcome.h"

#include <stdio.h>

uint32_t rank_outcome_find(const rank_shared *shared, uint32_t ranks,
                           int verdict)
{
    uint32_t r = 0;

    while (r < ranks && atomic_load(&shared->reports[r].verdict) != verdict)
        r++;
    return r;
}

/* Text of a plugin stays in its line. */
static void print_line(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    putchar('\n');
}

bool rank_outcome_report(const collective_test *test, size_t number,
                         const rank_shared *shared, const rank_processes *all,
                         uint32_t ranks)
{
    uint32_t cause = rank_processes_cause(all, shared, ranks);
    uint32_t lacks = rank_outcome_find(shared, ranks, RANK_UNSUPPORTED);
    const rank_report *of = &shared->reports[cause < ranks ? cause : 0];

    if (cause < ranks) {
        printf("not ok %zu - %s\n# rank %u of %u: %s: ", number, test->name,
               cause, ranks, of->call);
        print_line(all->ends[cause][0] ? all->ends[cause] : of->detail);
        return false;
    }
    if (lacks < ranks) {
        printf("ok %zu - %s # SKIP ", number, test->name);
        print_line(shared->reports[lacks].detail);
        return true;
    }
    printf("ok %zu - %s\n", number, test->name);
    for (uint32_t r = 0; r < ranks; r++)
        if (shared->reports[r].detail[0]) {
            printf("# rank %u: ", r);
            print_line(shared->reports[r].detail);
            break;
        }
    return true;
}
