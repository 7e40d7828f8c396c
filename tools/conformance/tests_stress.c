/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level stress: many threads and streams at once, exhausted memory, and
 * repeated loading and unloading where the plugin claims that it is safe. */

#include "bounds.h"
#include "claims.h"
#include "process_state.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------------- threads -- */

enum { THREADS = 8, ROUNDS = 200, COUNT = 513 };

typedef struct worker {
    suite *self;
    uint32_t number;
    core_stream *stream; /* its own, or NULL */
    core_operator *multiply;
    int round; /* the one it ended in, or ROUNDS */
    outcome out;
    pthread_t thread;
} worker;

/* What a round does. */
static const char *done_by(const worker *self)
{
    return self->multiply ? "mul.Tensor of two operands that were copied to "
                            "the device"
                          : "a copy to the device and back";
}

static bool one_round(worker *self, int round)
{
    float values[COUNT], got[COUNT];
    int64_t size = COUNT;
    core_tensor *tensor = NULL;
    core_value args[2], result = {0};
    float factor = 1;
    bool good;

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(self->number * 1000 + (uint32_t)(round + i));
    good = expect_ok(&self->out,
                     core_tensor_from_data(values, CORE_F32, &size, 1,
                                           self->self->device, &tensor),
                     "making a tensor");
    if (good && self->multiply) {
        args[0] = args[1] =
            (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
        good = expect_ok(&self->out,
                         core_op_call(self->multiply, args, 2, &result, 1),
                         "a product");
        factor = 0;
    }
    if (good)
        good =
            expect_ok(&self->out,
                      core_tensor_read(factor == 0 ? result.u.tensor : tensor,
                                       got, sizeof got),
                      "reading a tensor");
    for (int i = 0; good && i < COUNT; i++) {
        float want = factor == 0 ? values[i] * values[i] : values[i];

        good = expect(&self->out, got[i] == want,
                      "%s, %d elements of f32, in thread %u: element %d: got "
                      "%g, expected %g",
                      done_by(self), COUNT, self->number, i, (double)got[i],
                      (double)want);
    }
    core_value_release(&result);
    core_tensor_release(tensor);
    return good;
}

static void *work(void *context)
{
    worker *self = context;
    core_stream_guard guard;
    bool entered = self->stream &&
                   core_stream_guard_enter(self->stream, &guard) == CORE_OK;

    for (self->round = 0; self->round < ROUNDS; self->round++)
        if (!one_round(self, self->round))
            break;
    if (entered)
        core_stream_guard_leave(&guard);
    return NULL;
}

/* Takes the failure of a thread, and says whether the same calls fail when no
 * other thread runs. */
static void take_failure(const worker *of, outcome *out)
{
    static worker alone;
    bool good;

    alone = *of;
    memset(&alone.out, 0, sizeof alone.out);
    good = one_round(&alone, of->round);
    *out = of->out;
    snprintf(out->detail, sizeof out->detail, "%.400s%s", of->out.detail,
             good ? ", while other threads do the same; the same calls are "
                    "right in one thread: do calls share a buffer or a table "
                    "without a lock?"
                  : "; the same calls fail in one thread, too");
}

/* mul.Tensor if it is claimed for f32. */
static core_operator *multiplication(suite *self)
{
    static sample_call call;
    sample from = {"mul.Tensor", "t:3 t:3", -1, 1};
    reference wanted;
    core_operator *op = NULL;

    memset(&wanted, 0, sizeof wanted);
    if (sample_call_parse(&call, self, &from, CORE_F32) &&
        reference_shapes(&call, &wanted) == CORE_OK &&
        claim_of(self, &call, &wanted) == CLAIM_KERNEL)
        op = call.op;
    reference_free(&wanted);
    return op;
}

static void run_threads(suite *self, outcome *out, bool streams)
{
    static worker workers[THREADS];
    worker *failed = NULL;
    int started = 0;

    if (!suite_device(self, out))
        return;
    memset(workers, 0, sizeof workers);
    for (; started < THREADS; started++) {
        worker *one = &workers[started];

        one->self = self;
        one->number = (uint32_t)started;
        one->multiply = multiplication(self);
        if (streams &&
            !expect_ok(out, core_stream_create(self->device, &one->stream),
                       "creating a stream"))
            break;
        if (pthread_create(&one->thread, NULL, work, one) != 0) {
            harness_error(out, "a thread cannot be started");
            core_stream_release(one->stream);
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].out.verdict != VERDICT_PASS &&
            out->verdict == VERDICT_PASS && !failed)
            failed = &workers[i];
        core_stream_release(workers[i].stream);
    }
    if (failed)
        take_failure(failed, out);
}

static void threads_share_a_stream(suite *self, outcome *out, const test *one)
{
    (void)one;
    run_threads(self, out, false);
}

static void one_stream_per_thread(suite *self, outcome *out, const test *one)
{
    (void)one;
    run_threads(self, out, true);
}

/* --------------------------------------------------------------- memory -- */

enum { BLOCKS = 4096 };

static core_status take(suite *self, int64_t bytes, core_tensor **out)
{
    core_value args[4] = {{0}}, result = {0};
    core_operator *op;
    core_status status;

    *out = NULL;
    CORE_TRY(core_op_find("empty", &op));
    args[0] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &bytes}};
    args[1] = (core_value){CORE_VALUE_DTYPE, 0, {.i = CORE_U8}};
    args[3] = (core_value){CORE_VALUE_DEVICE, 0, {.device = self->device}};
    status = core_op_call(op, args, 4, &result, 1);
    if (status == CORE_OK)
        *out = result.u.tensor;
    return status;
}

/* Limits libcore's use of the device's memory. */
static bool limit(suite *self, uint64_t bytes, outcome *out)
{
    uint64_t left = 0, total = 0;

    if (core_device_memory(self->device, &left, &total) != CORE_OK ||
        total == 0 ||
        core_memory_set_fraction(self->device, (double)bytes / (double)total) !=
            CORE_OK) {
        not_supported(out, "its memory cannot be limited: %s",
                      core_error_message());
        return false;
    }
    return true;
}

/* Allocates all memory, so that none is left for calls. */
static void device_memory_exhausted(suite *self, outcome *out, const test *one)
{
    static core_tensor *taken[BLOCKS];
    core_operator *multiply;
    core_tensor *operand = NULL;
    float values[256] = {1};
    int64_t size = 256, step = 1 << 20;
    uint32_t count = 0;
    core_status status = CORE_OK;

    (void)one;
    if (!suite_device(self, out) || !limit(self, 64 << 20, out))
        return;
    multiply = multiplication(self);
    if (!expect_ok(out,
                   core_tensor_from_data(values, CORE_F32, &size, 1,
                                         self->device, &operand),
                   "making a tensor"))
        goto done;
    /* With any amount left, a call must succeed or report that there is no
     * memory. */
    for (; step >= 256 && count < BLOCKS; step /= 4)
        while (count < BLOCKS &&
               (status = take(self, step, &taken[count])) == CORE_OK) {
            core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = operand}},
                                  {CORE_VALUE_TENSOR, 0, {.tensor = operand}}};
            core_value result = {0};

            count++;
            if (!multiply)
                continue;
            status = core_op_call(multiply, args, 2, &result, 1);
            core_value_release(&result);
            if (!expect(out,
                        status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY,
                        "with little memory left a product fails with %s: %s",
                        core_status_name(status), core_error_message()))
                goto done;
        }
    expect(out, status == CORE_ERROR_OUT_OF_MEMORY,
           "memory ran out with %s: %s", core_status_name(status),
           core_error_message());
done:
    for (uint32_t i = 0; i < count; i++)
        core_tensor_release(taken[i]);
    core_memory_empty_cache(self->device);
    core_memory_set_fraction(self->device, 1);
    if (out->verdict == VERDICT_PASS &&
        expect_ok(out, core_tensor_read(operand, values, sizeof values),
                  "reading after memory ran out"))
        expect(out, values[0] == 1, "exhausting the memory changed data");
    core_tensor_release(operand);
}

/* ---------------------------------------------------------------- forks -- */

enum { CHILD_GOOD = 0, CHILD_WORKED = 11, CHILD_OTHER = 12, CHILD_DATA = 13 };

/* Uses the parent's tensor in a forked child; returns the child's exit
 * status. */
static int in_child(core_tensor *tensor, bool safe)
{
    float got[4] = {0};
    core_status status = core_tensor_read(tensor, got, sizeof got);

    if (!safe)
        return status == CORE_ERROR_DEVICE_LOST ? CHILD_GOOD
               : status == CORE_OK              ? CHILD_WORKED
                                                : CHILD_OTHER;
    if (status != CORE_OK)
        return CHILD_OTHER;
    core_tensor_release(tensor);
    return got[2] == 3 ? CHILD_GOOD : CHILD_DATA;
}

/* Returns true if the child ended; kills a child that hangs. */
static bool wait_child(pid_t child, int *out_status)
{
    for (int i = 0; i < 20000; i++) {
        if (waitpid(child, out_status, WNOHANG) == child)
            return true;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, out_status, 0);
    return false;
}

/* With core.fork_safe and without streams the child must work; otherwise its
 * calls must fail with DEVICE_LOST. */
static void child_works_or_is_refused(suite *self, outcome *out,
                                      const test *one)
{
    const float values[4] = {1, 2, 3, 4};
    core_tensor *tensor = NULL;
    const void *table = NULL;
    int64_t size = 4;
    int status = 0;
    bool safe;
    pid_t child;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out,
                   core_tensor_from_data(values, CORE_F32, &size, 1,
                                         self->device, &tensor),
                   "making a tensor"))
        return;
    safe = self->synchronous &&
           core_device_interface(self->device, "core.fork_safe", 1, &table) ==
               CORE_OK;
    child = fork();
    if (child == 0)
        _exit(in_child(tensor, safe));
    if (child < 0)
        harness_error(out, "the process cannot be forked");
    else if (!wait_child(child, &status))
        expect(out, false, "a forked child hangs");
    else if (expect(out, WIFEXITED(status),
                    "a forked child was ended by signal %d", WTERMSIG(status)))
        expect(
            out, WEXITSTATUS(status) == CHILD_GOOD,
            WEXITSTATUS(status) == CHILD_WORKED
                ? "a forked child uses the device, which is not fork-safe"
            : WEXITSTATUS(status) == CHILD_DATA
                ? "a forked child reads different data than its parent wrote"
            : safe
                ? "the device claims to be fork-safe but fails in a forked "
                  "child"
                : "the device does not report DEVICE_LOST in a forked child");
    core_tensor_release(tensor);
}

/* -------------------------------------------------------------- loading -- */

static void loads_and_unloads(suite *self, outcome *out, const test *one)
{
    enum { TIMES = 1000, SETTLED = 100, SPARE = 64 };
    uint32_t descriptors = 0;
    uint64_t heap = 0;

    (void)one;
    for (int i = 0; i < TIMES; i++) {
        core_plugin *plugin = NULL;
        core_status status;

        if (!expect_ok(out, core_plugin_load(self->plugin, &plugin),
                       "loading the plugin again"))
            return;
        status = core_plugin_unload(plugin, UINT64_C(5000000000));
        core_plugin_release(plugin);
        if (i == SETTLED) {
            descriptors = process_descriptors();
            heap = process_heap();
        }
        if (status == CORE_ERROR_UNSUPPORTED && i == 0) {
            not_supported(out, "it does not claim that it can be unloaded");
            return;
        }
        if (!expect_ok(out, status, "unloading the plugin"))
            return;
    }
    expect(out, process_descriptors() <= descriptors,
           "loading leaks descriptors: %u before, %u after", descriptors,
           process_descriptors());
    expect(out, process_heap() < heap + (TIMES - SETTLED) * SPARE,
           "%d loads leak %lld bytes on the heap, %lld each", TIMES - SETTLED,
           (long long)(process_heap() - heap),
           (long long)(process_heap() - heap) / (TIMES - SETTLED));
}

bool suite_add_stress(suite *self)
{
    static const listed tests[] = {
        {"stress/threads/share-a-stream", threads_share_a_stream, false},
        {"stress/threads/one-stream-per-thread", one_stream_per_thread, false},
        {"stress/memory/device-memory-exhausted", device_memory_exhausted,
         true},
        {"stress/fork/child-works-or-is-refused", child_works_or_is_refused,
         false},
        {"stress/load/load-and-unload-1000-times", loads_and_unloads, true},
    };

    return suite_add_list(self, LEVEL_STRESS, tests,
                          sizeof tests / sizeof *tests);
}
