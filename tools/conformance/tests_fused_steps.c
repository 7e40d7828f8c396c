/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: fused optimizer steps, which have no results and change lists of
 * tensors.  Each list is compared with that of the same step on the CPU, in
 * f64. */

#include "fused_step.h"

#include <string.h>

enum {
    SOME = 66003,  /* elements, more than a launch of 2^16 threads */
    LARGE = 131103 /* more than 10^5 */
};

static const step steps[] = {
    {"with weight decay and momentum", .05, 0, -1, false, .9, 0, false},
    {"with dampening", .05, 0, -1, false, .9, .25, false},
    {"without weight decay", 0, 0, -1, false, .9, .25, false},
    {"that is the first", .05, 0, -1, false, .9, .25, true},
    {"with nesterov or decoupled decay", .05, 0, -1, true, .9, 0, false},
    {"without momentum", .05, 0, -1, false, 0, 0, false},
    {"with grad_scale 4", .05, 4, -1, false, .9, .25, false},
    {"with found_inf 0", .05, 4, 0, true, .9, 0, false},
    {"with found_inf 1", .05, 4, 1, false, .9, .25, false},
};

static bool check_step(fused *test, const step *with, uint32_t *ran)
{
    static lists device, host;
    core_status status;
    bool good =
        expect_ok(
            test->out,
            fused_make(test, with, test->self->device, test->dtype, &device),
            "making the operands") &&
        expect_ok(test->out,
                  fused_make(test, with, test->self->host, CORE_F64, &host),
                  "making the operands of the reference");

    if (!good)
        goto done;
    status = fused_run(test, with, &device);
    if (status == CORE_ERROR_NO_KERNEL)
        goto done;
    ++*ran;
    good = expect_ok(test->out, status, fused_names[test->which]) &&
           expect_ok(test->out, fused_run(test, with, &host), "the reference");
    for (uint32_t list = 0; good && list < fused_lists(test); list++)
        good = fused_holds(test, with, list, &device, &host, "");
done:
    fused_release(&host);
    fused_release(&device);
    return good;
}

static void optimizer_steps(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64};
    fused test = {.self = self, .out = out, .rate = .1};
    uint32_t ran = 0;
    bool good = suite_device(self, out) &&
                expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                          "turning the fallback off");

    (void)one;
    for (test.which = 0; good && test.which < FUSED_STEPS; test.which++)
        for (size_t d = 0; good && d < sizeof dtypes / sizeof *dtypes; d++) {
            test.dtype = dtypes[d];
            test.count = FUSED_FEW;
            for (size_t k = 0; good && k < sizeof steps / sizeof *steps; k++) {
                test.large = k == 0 ? LARGE : SOME;
                good = check_step(&test, &steps[k], &ran);
            }
            test.count = FUSED_MANY;
            good = good && check_step(&test, &steps[0], &ran);
        }
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no kernel of a fused step is claimed");
}

bool fused_steps_has(const char *op)
{
    for (size_t i = 0; i < FUSED_STEPS; i++)
        if (strcmp(fused_names[i], op) == 0)
            return true;
    return false;
}

bool suite_add_fused_steps(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/optimizer-steps", optimizer_steps, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
