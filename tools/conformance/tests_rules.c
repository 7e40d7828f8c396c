/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: rules that every kernel must follow, whatever it computes. */

#include "claims.h"
#include "free_quarantine.h"
#include "process_state.h"
#include "element_value.h"
#include "operators.h"
#include "alloc_failure.h"
#include "skipped_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------- every claimed call -- */

typedef bool (*with_call)(suite *self, const sample_call *call,
                          const reference *wanted, outcome *out);

/* Calls every sample in f32, or else in the first dtype that its operator
 * takes. */
static void each_call(suite *self, outcome *out, with_call run)
{
    static const core_dtype order[] = {CORE_F32, CORE_I64, CORE_BOOL};
    static sample_call call;
    const sample *at;
    size_t ran = 0;

    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i)); i++)
        for (size_t d = 0; d < sizeof order / sizeof *order; d++) {
            reference wanted;
            bool claims;

            memset(&wanted, 0, sizeof wanted);
            claims = sample_call_parse(&call, self, at, order[d]) &&
                     reference_shapes(&call, &wanted) == CORE_OK &&
                     claim_of(self, &call, &wanted) == CLAIM_KERNEL;
            if (claims) {
                ran++;
                run(self, &call, &wanted, out);
                if (out->verdict == VERDICT_FAIL) {
                    char text[TEST_DETAIL];

                    snprintf(text, sizeof text, "%s %s: %.400s", at->op,
                             at->words, out->detail);
                    snprintf(out->detail, sizeof out->detail, "%s", text);
                }
            }
            reference_free(&wanted);
            if (claims)
                break;
        }
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no operator is claimed unconditionally");
}

/* ------------------------------------------------------------- operands -- */

static bool same_bytes(suite *self, const operand *one, core_tensor *tensor,
                       const void *before, size_t bytes, outcome *out)
{
    char *after = malloc(bytes + 1);
    bool good = false;

    (void)self;
    (void)one;
    if (!after)
        harness_error(out, "no memory");
    else if (expect_ok(out, core_tensor_read(tensor, after, bytes),
                       "reading an operand"))
        good = expect(out, memcmp(before, after, bytes) == 0,
                      "an operand was changed");
    free(after);
    return good;
}

/* Tests whether the operator changes its arguments: "(a!)". */
static bool in_place(const sample_call *call)
{
    return strstr(core_op_schema(call->op), "!)") != NULL;
}

static bool keeps_operands(suite *self, const sample_call *call,
                           const reference *wanted, outcome *out)
{
    char *before[SAMPLE_TENSORS] = {NULL};
    size_t bytes[SAMPLE_TENSORS] = {0};
    prepared on;
    bool good;

    (void)wanted;
    if (in_place(call))
        return true;
    good = expect_ok(out,
                     sample_call_prepare(call, self->device, call->dtype,
                                         ARRANGED_ROWS, &on),
                     "making the operands");
    for (uint32_t k = 0; good && k < call->noperands; k++) {
        if (!on.tensors[k] || sample_call_writes(call, k))
            continue;
        bytes[k] = (size_t)core_tensor_numel(on.tensors[k]) *
                   core_dtype_size(core_tensor_dtype(on.tensors[k]));
        before[k] = malloc(bytes[k] + 1);
        good =
            before[k] &&
            expect_ok(out, core_tensor_read(on.tensors[k], before[k], bytes[k]),
                      "reading an operand");
    }
    if (good)
        good = expect_ok(out, sample_call_run(call, &on), "the call");
    for (uint32_t k = 0; good && k < call->noperands; k++)
        if (before[k])
            good = same_bytes(self, &call->operands[k], on.tensors[k],
                              before[k], bytes[k], out);
    for (uint32_t k = 0; k < SAMPLE_TENSORS; k++)
        free(before[k]);
    sample_call_done(&on);
    return good;
}

static void operands_are_unchanged(suite *self, outcome *out, const test *one)
{
    (void)one;
    each_call(self, out, keeps_operands);
}

/* ------------------------------------------- resources, process state -- */

static bool leaves_resources(suite *self, const sample_call *call,
                             const reference *wanted, outcome *out)
{
    process_state before;
    prepared on;
    bool good;

    (void)wanted;
    good = expect_ok(out,
                     sample_call_prepare(call, self->device, call->dtype,
                                         ARRANGED_ROWS, &on),
                     "making the operands");
    process_state_save(&before);
    if (good)
        good = expect_ok(out, sample_call_run(call, &on), "the call");
    process_state_check(&before, out);
    process_state_check_environment(&before, out);
    sample_call_done(&on);
    return good && out->verdict == VERDICT_PASS;
}

static void process_state_is_unchanged(suite *self, outcome *out,
                                       const test *one)
{
    (void)one;
    each_call(self, out, leaves_resources);
}

/* ---------------------------------------------------------------- leaks -- */

typedef struct growth {
    uint64_t heap;
    uint64_t mapped;
} growth;

/* Makes a number of calls and checks how much the process's memory grows. */
static bool calls_grow(suite *self, const sample_call *call, int rounds,
                       growth *grown, outcome *out)
{
    uint64_t heap = process_heap(), mapped = process_mapped(), now;

    for (int i = 0; i < rounds; i++) {
        prepared on;
        bool good =
            expect_ok(out,
                      sample_call_prepare(call, self->device, call->dtype,
                                          ARRANGED_ROWS, &on),
                      "making the operands") &&
            expect_ok(out, sample_call_run(call, &on), "the call");

        sample_call_done(&on);
        if (!good)
            return false;
    }
    if (!expect_ok(out, core_device_synchronize(self->device), "synchronizing"))
        return false;
    now = process_heap();
    grown->heap = now > heap ? now - heap : 0;
    now = process_mapped();
    grown->mapped = now > mapped ? now - mapped : 0;
    return true;
}

/* Caches grow once; a leak repeats. */
static bool leaks_nothing(suite *self, const sample_call *call,
                          const reference *wanted, outcome *out)
{
    enum { ROUNDS = 32, TIMES = 8, PAGE = 4096 };
    core_memory_stats before = {.struct_size = sizeof before};
    core_memory_stats after = {.struct_size = sizeof after};
    growth least = {UINT64_MAX, UINT64_MAX};

    (void)wanted;
    core_memory_get_stats(self->device, &before);
    for (int i = 0; i < TIMES; i++) {
        growth grown;

        if (!calls_grow(self, call, ROUNDS, &grown, out))
            return false;
        least.heap = grown.heap < least.heap ? grown.heap : least.heap;
        least.mapped =
            grown.mapped < least.mapped ? grown.mapped : least.mapped;
        if (least.heap < ROUNDS * 8 && least.mapped < ROUNDS * PAGE)
            break;
    }
    core_memory_get_stats(self->device, &after);
    return expect(out, least.heap < ROUNDS * 8,
                  "every %d calls leak %llu bytes on the host's heap", ROUNDS,
                  (unsigned long long)least.heap) &&
           expect(out, least.mapped < ROUNDS * PAGE,
                  "every %d calls leak %llu bytes of mappings (mmap)", ROUNDS,
                  (unsigned long long)least.mapped) &&
           expect(out,
                  after.allocations[0].current <= before.allocations[0].current,
                  "calls leak blocks of the device's memory");
}

static void calls_do_not_leak(suite *self, outcome *out, const test *one)
{
    uint32_t descriptors = process_descriptors(), asleep, threads;
    /* A pool of threads may start at the first call. */
    uint32_t pool = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);

    (void)one;
    if (!suite_device(self, out))
        return;
    threads = process_threads(&asleep);
    each_call(self, out, leaks_nothing);
    expect(out, process_threads(&asleep) <= threads + pool + 16,
           "calls leave threads behind: there were %u before, %u after",
           threads, process_threads(&asleep));
    expect(out, process_descriptors() <= descriptors + 16,
           "calls leak descriptors: %u before, %u after", descriptors,
           process_descriptors());
}

/* ---------------------------------------------------------------- plans -- */

static bool calls_once(suite *self, const sample_call *call,
                       const reference *wanted, outcome *out)
{
    prepared on;
    bool good;

    (void)wanted;
    good = expect_ok(out,
                     sample_call_prepare(call, self->device, call->dtype,
                                         ARRANGED_ROWS, &on),
                     "making the operands");
    if (good)
        good = expect_ok(out, sample_call_run(call, &on), "the call");
    sample_call_done(&on);
    return good;
}

/* With a plan cache of one entry each call of another structure creates a plan
 * and destroys the previous one.  Destroying one twice ends the process; not
 * destroying it leaks on the heap each time. */
static void plans_are_destroyed(suite *self, outcome *out, const test *one)
{
    enum { TIMES = 6 };
    core_plan_counts before, after;
    uint64_t heap, more = 0, made = 0;

    (void)one;
    if (!expect_ok(out, core_setting_set("LIBCORE_PLAN_CACHE", "1"),
                   "limiting the cache to one plan"))
        return;
    for (int i = 0; i < TIMES && out->verdict == VERDICT_PASS; i++) {
        core_plan_get_counts(&before);
        heap = process_heap();
        each_call(self, out, calls_once);
        if (out->verdict != VERDICT_PASS ||
            !expect_ok(out, core_device_synchronize(self->device),
                       "synchronizing"))
            return;
        more = process_heap() > heap ? process_heap() - heap : 0;
        core_plan_get_counts(&after);
        made = after.evicted - before.evicted;
        if (made == 0) {
            not_supported(out, "no kernel creates and destroys plans");
            return;
        }
        if (i > 0 && more < made * 8)
            return;
    }
    expect(out, false,
           "%llu plans that were created and destroyed leak %llu bytes on the "
           "host's heap",
           (unsigned long long)made, (unsigned long long)more);
}

/* The same, with all blocks that the plugin frees in quarantine.  Destroying a
 * plan twice frees a block twice or writes to it after it was freed, which need
 * not crash. */
static void plans_are_destroyed_once(suite *self, outcome *out, const test *one)
{
    core_plan_counts before, after;
    quarantine_counts found;

    (void)one;
    if (!suite_device(self, out) || !alloc_failure_install(self->plugin, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_PLAN_CACHE", "1"),
                   "limiting the cache to one plan"))
        return;
    core_plan_get_counts(&before);
    quarantine_begin();
    for (int i = 0; i < 2 && out->verdict == VERDICT_PASS; i++)
        each_call(self, out, calls_once);
    if (out->verdict == VERDICT_PASS)
        expect_ok(out, core_device_synchronize(self->device), "synchronizing");
    found = quarantine_end();
    core_plan_get_counts(&after);
    if (after.evicted == before.evicted)
        not_supported(out, "no kernel creates and destroys plans");
    expect(out, found.twice == 0 && found.written == 0,
           "while %llu plans were destroyed, %u blocks were freed, %u of them "
           "again, and %u were changed afterwards",
           (unsigned long long)(after.evicted - before.evicted), found.count,
           found.twice, found.written);
}

/* -------------------------------------------------------------- refusals -- */

/* A call that failed must not have written anything, even a while later. */
static bool refuses_cleanly(suite *self, const sample_call *call,
                            const reference *wanted, outcome *out)
{
    prepared on;
    size_t bytes = wanted->nresults ? (size_t)wanted->numel[0] *
                                          core_dtype_size(wanted->dtypes[0])
                                    : 0;
    core_status status;
    int64_t size = (int64_t)bytes;
    unsigned char *poison = malloc(bytes + 1);
    core_tensor *again = NULL;

    memset(&on, 0, sizeof on);
    if (!poison || in_place(call) || bytes == 0)
        goto done;
    if (!expect_ok(out,
                   sample_call_prepare(call, self->device, call->dtype,
                                       ARRANGED_ROWS, &on),
                   "making the operands"))
        goto done;
    operators_poison(self, bytes);
    status = sample_call_run(call, &on);
    if (status == CORE_OK)
        goto done;
    /* The next block of its size is the one that the result had. */
    {
        core_value args[6] = {{0}}, result = {0};
        core_operator *op;

        args[0] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &size}};
        args[1] = (core_value){CORE_VALUE_DTYPE, 0, {.i = CORE_U8}};
        args[3] = (core_value){CORE_VALUE_DEVICE, 0, {.device = self->device}};
        if (core_op_find("empty", &op) != CORE_OK ||
            core_op_call(op, args, 4, &result, 1) != CORE_OK)
            goto done;
        again = result.u.tensor;
    }
    core_device_synchronize(self->device);
    if (core_tensor_read(again, poison, bytes) == CORE_OK)
        for (size_t i = 0; i < bytes; i++)
            if (!expect(out, poison[i] == OPERATORS_POISON,
                        "the call fails with %s but writes its result",
                        core_status_name(status)))
                break;
done:
    core_tensor_release(again);
    sample_call_done(&on);
    free(poison);
    return out->verdict == VERDICT_PASS;
}

static void failed_calls_write_nothing(suite *self, outcome *out,
                                       const test *one)
{
    (void)one;
    each_call(self, out, refuses_cleanly);
}

/* ----------------------------------------------------------------- bits -- */

/* Calls that move elements, on floats and on integers of the same size. */
static const struct {
    const char *op;
    const char *words;
} movers[] = {
    {"copy_", "t:4,6 t:4,6"},
    {"cat", "[ t:2,6 t:2,6 ] i:0"},
    {"index_select", "t:4,6 i:0 x:5/4"},
    {"gather", "t:4,6 i:1 x:4,3/6"},
    {"flip", "t:4,6 l:0,1"},
    {"roll", "t:4,6 l:1 l:1"},
    {"take", "t:4,6 x:7/24"},
    {"where.self", "m:4,6 t:4,6 t:4,6"},
    {"tril", "t:4,6 i:0"},
    {"index.Tensor", "t:4,6 [ x:5/4 ]"},
    {"embedding", "t:4,6 x:5/4"},
    {"masked_select", "t:4,6 m:4,6"},
};

static core_dtype integer_of(core_dtype dtype)
{
    return core_dtype_size(dtype) == 8   ? CORE_I64
           : core_dtype_size(dtype) == 4 ? CORE_I32
                                         : CORE_I16;
}

/* NaNs with payloads, both zeros, infinities, the smallest denormal. */
static void write_bits(core_dtype dtype, unsigned char *to, size_t count)
{
    static const uint64_t f64[] = {
        0x7ff0000000000001, 0xfff8dead0000beef, 0x8000000000000000, 1,
        0x7ff8000000000123, 0x7ff0000000000000, 0xffffffffffffffff, 0};
    static const uint32_t f32[] = {0x7f800001, 0xffc0dead, 0x80000000, 1,
                                   0x7fc00123, 0x7f800000, 0xffffffff, 0};
    static const uint16_t f16[] = {0x7c01, 0xfe5a, 0x8000, 1,
                                   0x7e11, 0x7c00, 0xffff, 0};
    static const uint16_t bf16[] = {0x7f81, 0xffda, 0x8000, 1,
                                    0x7fd1, 0x7f80, 0xffff, 0};

    for (size_t i = 0; i < count; i++) {
        const void *from = dtype == CORE_F64   ? (const void *)&f64[i % 8]
                           : dtype == CORE_F32 ? (const void *)&f32[i % 8]
                           : dtype == CORE_F16 ? (const void *)&f16[i % 8]
                                               : (const void *)&bf16[i % 8];

        memcpy(to + i * core_dtype_size(dtype), from, core_dtype_size(dtype));
    }
}

/* Replaces the contents of the operands of the tested dtype. */
static bool put_bits(const sample_call *call, prepared *on, core_dtype bits,
                     outcome *out)
{
    unsigned char data[8 * 64];

    for (uint32_t k = 0; k < call->noperands; k++) {
        size_t count = (size_t)call->operands[k].numel;

        if (call->operands[k].kind != 't' || count > 64)
            continue;
        write_bits(bits, data, count);
        if (!expect_ok(out,
                       core_tensor_write(on->tensors[k], data,
                                         count * core_dtype_size(bits)),
                       "writing an operand"))
            return false;
    }
    return true;
}

/* Copies the bytes of the first result; returns their number, or 0. */
static size_t move_bits(const suite *self, const sample *from,
                        core_device *device, core_dtype bits, core_dtype as,
                        unsigned char *to, size_t capacity, outcome *out)
{
    static sample_call call;
    prepared on;
    size_t bytes = 0;

    memset(&on, 0, sizeof on);
    if (!sample_call_parse(&call, self, from, as) ||
        sample_call_prepare(&call, device, as, ARRANGED_ROWS, &on) != CORE_OK ||
        !put_bits(&call, &on, bits, out) ||
        !expect_ok(out, sample_call_run(&call, &on), from->op))
        goto done;
    bytes = (size_t)core_tensor_numel(on.flat[0]) * core_dtype_size(as);
    if (bytes > capacity ||
        !expect_ok(out, core_tensor_read(on.flat[0], to, bytes), "reading"))
        bytes = 0;
done:
    sample_call_done(&on);
    return bytes;
}

static bool claims_move(suite *self, const sample *from, core_dtype dtype)
{
    static sample_call call;
    reference wanted;
    core_status status;
    bool claims = false;

    if (!sample_call_parse(&call, self, from, dtype))
        return false;
    status = reference_shapes(&call, &wanted);
    if (status == CORE_OK || status == CORE_ERROR_DATA_DEPENDENT)
        claims = claim_of(self, &call, &wanted) != CLAIM_NONE;
    reference_free(&wanted);
    return claims;
}

static void moves_preserve_bits(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16,
                                        CORE_BF16};
    unsigned char got[1024], want[1024];
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out))
        return;
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            sample from = {movers[i].op, movers[i].words, -1, 1};
            size_t bytes, wanted;

            if (!claims_move(self, &from, dtypes[d])) {
                skipped_calls_add(&left, from.op, dtypes[d]);
                continue;
            }
            ran++;
            bytes = move_bits(self, &from, self->device, dtypes[d], dtypes[d],
                              got, sizeof got, out);
            wanted = move_bits(self, &from, self->host, dtypes[d],
                               integer_of(dtypes[d]), want, sizeof want, out);
            if (!expect(out, bytes == wanted && memcmp(got, want, bytes) == 0,
                        "%s of %s changes NaN payloads or signs of zero",
                        from.op, core_dtype_name(dtypes[d])))
                return;
        }
    if (ran == 0)
        not_supported(out, "no operator that moves elements is claimed");
    skipped_calls_report(&left, ran, out);
}

bool suite_add_rules(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/operands-are-unchanged", operands_are_unchanged, true},
        {"ops/rules/process-state-is-unchanged", process_state_is_unchanged,
         true},
        {"ops/rules/calls-do-not-leak", calls_do_not_leak, true},
        {"ops/rules/failed-calls-write-nothing", failed_calls_write_nothing,
         true},
        {"ops/rules/moves-preserve-bits", moves_preserve_bits, true},
    };

    /* In a separate process, which has no plans yet. */
    static const listed plans[] = {
        {"stress/plans/are-destroyed", plans_are_destroyed, true},
        {"stress/plans/are-destroyed-once", plans_are_destroyed_once, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests,
                          sizeof tests / sizeof *tests) &&
           suite_add_list(self, LEVEL_STRESS, plans,
                          sizeof plans / sizeof *plans);
}
