/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the kernels compute the same in another thread than the one that
 * loaded the plugin and opened its device. */

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

bool suite_add_other_thread(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/other-threads-compute", other_threads_compute, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
