/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what a kernel keeps of its arguments until it runs is not shared by
 * calls on two streams.  Many operators are called while both are blocked, so
 * that few gates are needed; a launch that waits for its stream is named. */

#include "claims.h"
#include "two_streams.h"

#include <string.h>

enum {
    ROUNDS = 4,
    TOGETHER = 12,    /* operators behind one pair of gates */
    MOST_WAITING = 4, /* operators that wait until no more are tried */
};

/* Seconds until no more are tried, where long copies close the gates. */
static const double MOST_SECONDS = 20;

typedef struct contexts {
    two_streams on;
    ready_call calls[TOGETHER][STREAMS];
    prepared rounds[TOGETHER][STREAMS][ROUNDS];
    uint32_t count;
} contexts;

/* Tests whether the call is element-wise, or walks along a dimension: of one
 * result as large as the largest operand. */
static bool is_even(const sample_call *call, const reference *wanted)
{
    int64_t most = 0;

    for (uint32_t k = 0; k < call->noperands; k++) {
        if (!strchr("tupm", call->operands[k].kind))
            return false;
        if (call->operands[k].numel > most)
            most = call->operands[k].numel;
    }
    return call->noperands > 0 && wanted->nresults == 1 &&
           wanted->numel[0] == most;
}

/* Tests whether a call is one of these, is claimed, and has one right result. */
static bool is_chosen(const two_streams *b, const sample *from)
{
    static sample_call call;
    reference shapes = {0};
    bool chosen = sample_call_parse_shapes(&call, b->self, from, CORE_F32) &&
                  reference_shapes(&call, &shapes) == CORE_OK &&
                  is_even(&call, &shapes) && oracle_defines(&call) &&
                  claim_of(b->self, &call, &shapes) != CLAIM_NONE;

    reference_free(&shapes);
    core_error_clear();
    return chosen;
}

/* Adds an operator's sample, with the numbers of the upper and of the lower part
 * of its interval. */
static void collect(contexts *c, const sample *from)
{
    const double part = (from->high - from->low) / 8;
    ready_call *calls = c->calls[c->count];

    memset(calls, 0, sizeof c->calls[0]);
    if (ready_call_prepare(&c->on, from, from->low, from->high - part,
                           &calls[0]) &&
        ready_call_prepare(&c->on, from, from->low + part, from->high,
                           &calls[1]) &&
        ready_call_warm(&c->on, &calls[0])) {
        c->count++;
        return;
    }
    for (int i = 0; i < STREAMS; i++)
        ready_call_done(&calls[i]);
}

static void enqueue(contexts *c, uint32_t at)
{
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < STREAMS && c->on.out->verdict == VERDICT_PASS; i++)
            two_streams_call(&c->on, &c->calls[at][i], i, &c->rounds[at][i][r]);
}

static void compare(contexts *c, uint32_t at)
{
    for (int i = 0; i < STREAMS; i++)
        for (int r = 0; r < ROUNDS; r++) {
            if (c->on.out->verdict == VERDICT_PASS)
                ready_call_holds(&c->on, &c->calls[at][i], &c->rounds[at][i][r],
                                 "on two streams at once: the calls share "
                                 "memory, such as what the kernel keeps of its "
                                 "arguments until it runs");
            ready_call_drop(&c->rounds[at][i][r]);
        }
    c->on.ran++;
}

/* The last one waits; when copies have ended, no one knows. */
static void add_unseen(contexts *c, uint32_t begin, uint32_t end)
{
    if (!c->on.copies && end > begin)
        begin = end - 1;
    for (uint32_t at = begin; at < end; at++)
        two_streams_add_unseen(&c->on, c->on.copies, c->calls[at][0].of.op);
}

/* Calls operators from `begin` on while the streams are blocked, until a launch
 * waits or the copies have ended; returns where to go on. */
static uint32_t run_blocked(contexts *c, uint32_t begin)
{
    bool blocked = two_streams_close(&c->on);
    uint32_t end = begin;

    while (blocked && end < c->count && c->on.out->verdict == VERDICT_PASS) {
        enqueue(c, end++);
        blocked = two_streams_blocked(&c->on);
    }
    if (!blocked && c->on.out->verdict == VERDICT_PASS)
        add_unseen(c, begin, end);
    two_streams_open(&c->on);
    for (uint32_t at = begin; at < end; at++)
        compare(c, at);
    return c->on.out->verdict == VERDICT_PASS ? end : c->count;
}

static void run_all(contexts *c)
{
    for (uint32_t at = 0; at < c->count && c->on.nwaiting < MOST_WAITING;)
        at = run_blocked(c, at);
    for (uint32_t at = 0; at < c->count; at++)
        for (int i = 0; i < STREAMS; i++)
            ready_call_done(&c->calls[at][i]);
    c->count = 0;
}

/* The first sample of each operator. */
static void run_each(contexts *c)
{
    const double begun = suite_seconds();
    const char *last = "";
    const sample *at;

    for (size_t i = 0; c->on.out->verdict == VERDICT_PASS &&
                       c->on.nwaiting < MOST_WAITING && (at = sample_at(i));
         i++) {
        if (strcmp(at->op, last) == 0 || !is_chosen(&c->on, at))
            continue;
        last = at->op;
        if (c->on.copies && suite_seconds() - begun > MOST_SECONDS)
            c->on.untried++;
        else
            collect(c, at);
        if (c->count == TOGETHER)
            run_all(c);
    }
    run_all(c);
    c->on.stopped = c->on.nwaiting == MOST_WAITING;
}

static void contexts_are_separate(suite *self, outcome *out, const test *one)
{
    static contexts c;

    (void)one;
    memset(&c, 0, sizeof c);
    if (two_streams_begin(&c.on, self, out))
        run_each(&c);
    /* Any of these operators may have no kernel. */
    c.on.left.count = 0;
    two_streams_end(&c.on);
}

bool suite_add_contexts(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/contexts-are-separate", contexts_are_separate, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
