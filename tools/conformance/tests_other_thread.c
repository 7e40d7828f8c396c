/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the kernels compute the same in another thread than the one that
 * loaded the plugin and opened its device, and in several threads at once. */

#include "claims.h"
#include "operators.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct work {
    suite *self;
    outcome *out;
    uint32_t ran;
} work;

/* Tests whether the call has one right result. */
static bool is_chosen(const sample_call *call)
{
    const char *op = core_op_name(call->op);

    return sample_call_has_dtype(call) && !oracle_random(op) &&
           oracle_defines(call);
}

/* Returns whether a kernel has computed the call; the outcome may have failed. */
static bool compute(work *w, const sample *one)
{
    static sample_call call; /* of one thread at a time */
    reference wanted = {0};
    char text[TEST_DETAIL];
    bool computed = sample_call_parse(&call, w->self, one, CORE_F32) &&
                    is_chosen(&call) &&
                    reference_shapes(&call, &wanted) == CORE_OK &&
                    claim_holds(w->self, &call, &wanted) &&
                    reference_values(&call, w->self, &wanted) == CORE_OK;

    core_error_clear();
    if (computed &&
        !operators_check(w->self, &call, &wanted, ARRANGED_ROWS, w->out)) {
        snprintf(text, sizeof text, "%s %s, in another thread: %.400s", one->op,
                 one->words, w->out->detail);
        snprintf(w->out->detail, sizeof w->out->detail, "%s", text);
    }
    reference_free(&wanted);
    return computed;
}

/* The first sample of each operator that a kernel computes. */
static void *run(void *context)
{
    work *w = context;
    const char *last = "";
    const sample *at;

    for (size_t i = 0; w->out->verdict == VERDICT_PASS && (at = sample_at(i));
         i++)
        if (strcmp(at->op, last) != 0 && compute(w, at)) {
            last = at->op;
            w->ran++;
        }
    return NULL;
}

static void other_threads_compute(suite *self, outcome *out, const test *one)
{
    work w = {self, out, 0};
    pthread_t thread;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (pthread_create(&thread, NULL, run, &w) != 0) {
        harness_error(out, "no thread");
        return;
    }
    pthread_join(thread, NULL);
    if (w.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no kernel of f32 is claimed");
}

/* ---------------------------------------------------------------- at once -- */

enum { THREADS = 4, ROUNDS = 2 };

/* Where threads wait until all have come. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t arrived; /* in all rounds */
    bool cancelled;
} meeting;

/* A call in a thread, with values of its own. */
typedef struct caller {
    sample_call call;
    reference wanted;
    prepared on, rounds[ROUNDS];
    core_status status[ROUNDS];
    meeting *begin; /* of a round */
    pthread_t thread;
} caller;

/* Turns the values by so many places. */
static void turn_values(sample_call *call, int64_t places)
{
    static double turned[SAMPLE_NUMEL];

    for (uint32_t k = 0; k < call->noperands; k++) {
        operand *one = &call->operands[k];

        if (!one->kind || !strchr("tup", one->kind))
            continue;
        for (int64_t i = 0; i < one->numel; i++)
            turned[i] = one->values[(i + places) % one->numel];
        memcpy(one->values, turned, (size_t)one->numel * sizeof *turned);
    }
}

/* Returns whether a kernel computes the call, and the CPU with these values. */
static bool prepare(work *w, const sample *one, caller *to, int64_t number)
{
    bool good = sample_call_parse(&to->call, w->self, one, CORE_F32) &&
                is_chosen(&to->call) &&
                reference_shapes(&to->call, &to->wanted) == CORE_OK &&
                claim_holds(w->self, &to->call, &to->wanted);

    if (good) {
        turn_values(&to->call, number);
        good = reference_values(&to->call, w->self, &to->wanted) == CORE_OK &&
               sample_call_prepare(&to->call, w->self->device, CORE_F32,
                                   ARRANGED_ROWS, &to->on) == CORE_OK;
    }
    core_error_clear();
    return good;
}

static void meet(meeting *self, uint32_t round)
{
    pthread_mutex_lock(&self->lock);
    if (++self->arrived == (round + 1) * THREADS)
        pthread_cond_broadcast(&self->changed);
    while (self->arrived < (round + 1) * THREADS && !self->cancelled)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

static void cancel(meeting *self)
{
    pthread_mutex_lock(&self->lock);
    self->cancelled = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* Not with sample_call_run, which is for one thread. */
static void *run_rounds(void *context)
{
    caller *self = context;

    for (uint32_t r = 0; r < ROUNDS; r++) {
        prepared *on = &self->rounds[r];

        *on = self->on;
        meet(self->begin, r);
        self->status[r] = core_op_call(self->call.op, on->args, on->nargs,
                                       on->results, SAMPLE_RESULTS);
        if (self->status[r] == CORE_OK)
            sample_call_list_results(on);
    }
    return NULL;
}

static bool holds(work *w, caller *self, prepared *on, outcome *out)
{
    bool good = true;

    for (uint32_t k = 0; good && k < on->nflat && k < self->wanted.nresults;
         k++)
        good = operators_check_result(w->self, &self->call, &self->wanted, k,
                                      on->flat[k], out);
    return good;
}

static void drop_results(prepared *on)
{
    for (size_t i = SAMPLE_RESULTS; i-- > 0;)
        core_value_release(&on->results[i]);
}

/* Tests whether the same call is right when no other thread runs. */
static bool holds_alone(work *w, caller *self)
{
    static outcome unused;
    prepared on = self->on;
    bool good;

    memset(&unused, 0, sizeof unused);
    good = sample_call_run(&self->call, &on) == CORE_OK &&
           holds(w, self, &on, &unused);
    drop_results(&on);
    core_error_clear();
    return good;
}

static void check_rounds(work *w, const sample *one, caller *self)
{
    static outcome found;
    int r = 0;

    memset(&found, 0, sizeof found);
    while (r < ROUNDS &&
           expect(&found, self->status[r] == CORE_OK,
                  "the call returns status %d", (int)self->status[r]) &&
           holds(w, self, &self->rounds[r], &found))
        r++;
    /* Other tests find what is wrong in one thread. */
    if (r < ROUNDS && holds_alone(w, self))
        expect(w->out, false,
               "%s %s, in %d threads at once, each with other values, and "
               "right in one thread: %.300s: do calls share a buffer or a "
               "table without a lock?",
               one->op, one->words, (int)THREADS, found.detail);
}

static void run_at_once(work *w, caller callers[THREADS])
{
    meeting begin = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0,
                     false};
    uint32_t started = 0;

    for (; started < THREADS; started++) {
        callers[started].begin = &begin;
        if (pthread_create(&callers[started].thread, NULL, run_rounds,
                           &callers[started]) != 0)
            break;
    }
    if (started < THREADS) {
        harness_error(w->out, "no thread");
        cancel(&begin);
    }
    while (started-- > 0)
        pthread_join(callers[started].thread, NULL);
}

/* Returns whether kernels have computed the calls. */
static bool compute_at_once(work *w, const sample *one)
{
    static caller callers[THREADS];
    uint32_t count = 0;
    bool good = true;

    for (; good && count < THREADS; count++) {
        caller *to = &callers[count];

        memset(&to->wanted, 0, sizeof to->wanted);
        memset(&to->on, 0, sizeof to->on);
        memset(to->rounds, 0, sizeof to->rounds);
        good = prepare(w, one, to, count);
    }
    if (good) {
        run_at_once(w, callers);
        for (int i = 0; i < THREADS && w->out->verdict == VERDICT_PASS; i++)
            check_rounds(w, one, &callers[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (int r = 0; r < ROUNDS; r++)
            drop_results(&callers[i].rounds[r]);
        sample_call_done(&callers[i].on);
        reference_free(&callers[i].wanted);
    }
    return good;
}

static void threads_compute_at_once(suite *self, outcome *out, const test *one)
{
    work w = {self, out, 0};
    const char *last = "";
    const sample *at;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i)); i++)
        if (strcmp(at->op, last) != 0 && compute_at_once(&w, at)) {
            last = at->op;
            w.ran++;
        }
    if (w.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no kernel of f32 is claimed");
}

bool suite_add_other_thread(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/other-threads-compute", other_threads_compute, true},
        {"ops/rules/threads-compute-at-once", threads_compute_at_once, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
