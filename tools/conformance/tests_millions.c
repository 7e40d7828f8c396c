/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: element-wise operators, and random ones, of more than a million
 * elements. */

#include "bounds.h"
#include "claims.h"
#include "element_value.h"
#include "sample_tokens.h"
#include "skipped_calls.h"

#include <libcore/random.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements repeat after a prime number, of which no power of two is a multiple:
 * one that is read or written elsewhere is another. */
enum { PERIOD = 4099, TIMES = 257, MILLION = PERIOD * TIMES };

typedef struct bench {
    suite *self;
    outcome *out;
    float *numbers; /* MILLION of them */
    uint32_t ran;
    skipped_calls left;
} bench;

static bool begin(bench *b, suite *self, outcome *out)
{
    *b = (bench){.self = self, .out = out};
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return false;
    if (self->quick) {
        not_supported(out, "--quick leaves it out");
        return false;
    }
    b->numbers = malloc(MILLION * sizeof *b->numbers);
    if (!b->numbers)
        harness_error(out, "no memory");
    return b->numbers != NULL;
}

static void end(bench *b)
{
    skipped_calls_report(&b->left, b->ran, b->out);
    free(b->numbers);
}

/* ---------------------------------------------------------- element-wise -- */

/* The words of a sample whose tensors are vectors of PERIOD elements; false: there
 * is no room for them. */
static bool lengthen(const sample *from, char *words, size_t size)
{
    size_t used = 0;

    for (const char *at = from->words; *at && used < size;) {
        size_t length = strcspn(at, " ");
        tensor_token word;

        if (tensor_token_read(at, length, &word) && !word.listed) {
            word.ndim = 1;
            word.sizes[0] = PERIOD;
            used += tensor_token_write(&word, words + used, size - used);
        } else {
            used += (size_t)snprintf(words + used, size - used, "%.*s",
                                     (int)length, at);
        }
        at += length;
        if (*at == ' ' && used + 1 < size) {
            words[used++] = ' ';
            words[used] = 0;
            at++;
        }
    }
    return used + 1 < size;
}

/* Tests whether a call has one result of f32 for each element of its operands,
 * which are f32, too. */
static bool is_chosen(const sample_call *call, const reference *wanted)
{
    bool chosen = call->noperands > 0 && wanted->nresults == 1 &&
                  wanted->numel[0] == PERIOD && wanted->dtypes[0] == CORE_F32;

    for (uint32_t k = 0; k < call->noperands; k++)
        chosen &= call->operands[k].dtype == CORE_F32 &&
                  call->operands[k].numel == PERIOD &&
                  !sample_call_writes(call, k);
    return chosen;
}

/* Makes the operands, whose elements repeat. */
static bool make_operands(bench *b, const sample_call *call, prepared *on)
{
    static const int64_t numel = MILLION;

    memset(on, 0, sizeof *on);
    on->nargs = call->count;
    memcpy(on->args, call->values, sizeof on->args);
    for (uint32_t k = 0; k < call->noperands; k++) {
        for (int64_t i = 0; i < PERIOD; i++)
            b->numbers[i] = (float)call->operands[k].values[i];
        for (int64_t t = 1; t < TIMES; t++)
            memcpy(b->numbers + t * PERIOD, b->numbers,
                   PERIOD * sizeof *b->numbers);
        if (!expect_ok(b->out,
                       core_tensor_from_data(b->numbers, CORE_F32, &numel, 1,
                                             b->self->device, &on->tensors[k]),
                       "making an operand"))
            return false;
    }
    for (uint32_t i = 0; i < call->count; i++)
        if (call->first[i] >= 0)
            on->args[i] = suite_tensor_value(on->tensors[call->first[i]]);
    return true;
}

/* Most repetitions have the same bits. */
static bool holds(bench *b, const sample_call *call, const reference *wanted)
{
    static double values[PERIOD];
    const bounds allowed = bounds_of(b->self, call->op);
    char text[TEST_DETAIL];
    bool good = true;

    for (int64_t t = 0; good && t < TIMES; t++) {
        const float *part = b->numbers + t * PERIOD;

        if (t > 0 && memcmp(part, b->numbers, PERIOD * sizeof *b->numbers) == 0)
            continue;
        for (int64_t i = 0; i < PERIOD; i++)
            values[i] = (double)part[i];
        good = bounds_hold(&allowed, call, wanted, 0, values, b->out);
        if (!good) {
            snprintf(text, sizeof text,
                     "%s of %d elements, from %lld on: %.400s",
                     core_op_name(call->op), (int)MILLION,
                     (long long)t * PERIOD, b->out->detail);
            snprintf(b->out->detail, sizeof b->out->detail, "%s", text);
        }
    }
    return good;
}

static bool compute(bench *b, const sample_call *call, const reference *wanted)
{
    prepared on;
    core_status status = CORE_OK;
    bool good = make_operands(b, call, &on);

    if (good)
        status = sample_call_run(call, &on);
    if (call_is_left(b->self, status, core_op_name(call->op))) {
        core_error_clear();
        skipped_calls_add(&b->left, core_op_name(call->op), CORE_DTYPE_NONE);
    } else if (good) {
        good = expect_ok(b->out, status, core_op_name(call->op)) &&
               expect_ok(b->out,
                         suite_read(on.flat[0], b->numbers,
                                    MILLION * sizeof *b->numbers),
                         "reading a result") &&
               holds(b, call, wanted);
        b->ran++;
    }
    sample_call_done(&on);
    return good;
}

/* Returns whether the sample is one that was computed. */
static bool try_sample(bench *b, const sample *from)
{
    static sample_call call;
    char words[400];
    const sample longer = {from->op, words, from->low, from->high};
    reference wanted = {0};
    bool chosen = lengthen(from, words, sizeof words) &&
                  sample_call_parse(&call, b->self, &longer, CORE_F32) &&
                  reference_shapes(&call, &wanted) == CORE_OK &&
                  is_chosen(&call, &wanted) && oracle_defines(&call) &&
                  claim_of(b->self, &call, &wanted) != CLAIM_NONE &&
                  reference_values(&call, b->self, &wanted) == CORE_OK;

    core_error_clear();
    if (chosen)
        compute(b, &call, &wanted);
    reference_free(&wanted);
    return chosen;
}

/* The first sample of each operator that is one. */
static void millions_are_computed(suite *self, outcome *out, const test *one)
{
    const char *last = "";
    const sample *at;
    bench b;

    (void)one;
    if (!begin(&b, self, out))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i)); i++)
        if (strcmp(at->op, last) != 0 && oracle_is_element_wise(at->op) &&
            try_sample(&b, at))
            last = at->op;
    end(&b);
}

/* ---------------------------------------------------------------- random -- */

/* With bits in both halves. */
static const uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

static const struct {
    const char *name;
    core_value args[2]; /* behind the tensor, which is changed */
    uint32_t nargs;
    double tolerance; /* of a number of f32: the others are exact */
} drawers[] = {
    {"uniform_", {{0}}, 0, 0},
    {"normal_", {{0}}, 0, 1e-5},
    {"bernoulli_.float", {{0}}, 0, 0},
    {"random_.from",
     {{CORE_VALUE_INT, 0, {.i = 0}}, {CORE_VALUE_INT, 0, {.i = 1000003}}},
     2,
     0},
};

static core_status draw(bench *b, size_t which, core_device *device,
                        float *numbers)
{
    static const int64_t numel = MILLION;
    core_value args[3] = {{0}};
    core_tensor *target = NULL, *drawn = NULL;
    core_status status = core_empty(&numel, 1, CORE_F32, device,
                                    CORE_FORMAT_CONTIGUOUS, &target);

    (void)b;
    memcpy(args + 1, drawers[which].args, sizeof drawers[which].args);
    args[0] = suite_tensor_value(target);
    core_seed(seed);
    if (status == CORE_OK)
        status = suite_call(drawers[which].name, args, 1 + drawers[which].nargs,
                            &drawn);
    if (status == CORE_OK)
        status = suite_read(target, numbers, MILLION * sizeof *numbers);
    core_tensor_release(drawn);
    core_tensor_release(target);
    return status;
}

static bool drawn_alike(bench *b, size_t which, const float *wanted)
{
    bool good = true;

    for (int64_t i = 0; good && i < MILLION; i++) {
        double got = (double)b->numbers[i], want = (double)wanted[i];

        good = got == want ||
               expect(b->out,
                      fabs(got - want) <=
                          drawers[which].tolerance * (1 + fabs(want)),
                      "%s of %d elements of f32, seed %#llx: element %lld is "
                      "%.9g, expected %.9g, as on every device",
                      drawers[which].name, (int)MILLION,
                      (unsigned long long)seed, (long long)i, got, want);
    }
    return good;
}

static void millions_are_drawn(suite *self, outcome *out, const test *one)
{
    float *wanted = malloc(MILLION * sizeof *wanted);
    bench b;
    bool good = begin(&b, self, out);

    (void)one;
    if (good && !wanted)
        harness_error(out, "no memory");
    for (size_t i = 0; good && wanted && i < sizeof drawers / sizeof *drawers;
         i++) {
        core_status status = draw(&b, i, self->device, b.numbers);

        if (call_is_left(self, status, drawers[i].name)) {
            core_error_clear();
            skipped_calls_add(&b.left, drawers[i].name, CORE_F32);
            continue;
        }
        b.ran++;
        good = expect_ok(out, status, drawers[i].name) &&
               expect_ok(out, draw(&b, i, self->host, wanted),
                         "drawing on the CPU") &&
               drawn_alike(&b, i, wanted);
    }
    end(&b);
    free(wanted);
}

bool suite_add_millions(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/a-million-elements", millions_are_computed, true},
        {"ops/rules/a-million-draws", millions_are_drawn, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
