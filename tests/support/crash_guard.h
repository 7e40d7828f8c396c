/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* crash_guard.h: calls that may crash, and the conditions that must be true
 * after each. */

#ifndef TESTS_SUPPORT_CRASH_GUARD_H
#define TESTS_SUPPORT_CRASH_GUARD_H

#include "base/thread.h"
#include "device/device.h"
#include "dispatch/schema.h"
#include "ops.h"
#include "sanitizers.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* -------------------------------------------------------------- chance -- */

static uint64_t chances;

static inline uint64_t random_next(void)
{
    uint64_t z = chances += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline void random_begin(uint64_t seed, uint64_t a, uint64_t b)
{
    chances = seed;
    chances = random_next() + a;
    chances = random_next() + b;
}

static inline uint64_t hash(const char *text)
{
    uint64_t value = 5381;

    while (*text)
        value = value * 33 + (unsigned char)*text++;
    return value;
}

static inline uint32_t below(uint32_t limit)
{
    return (uint32_t)(random_next() % limit);
}

static inline bool chance(uint32_t percent)
{
    return below(100) < percent;
}

/* ------------------------------------------------- which call crashed -- */

static char hostile_name[640];

static inline void hostile_signal(int number)
{
    ssize_t wrote = write(2, hostile_name, strlen(hostile_name));

    (void)wrote;
    signal(number, SIG_DFL);
    raise(number);
}

static bool hostile_alone; /* in a process for one operator */

/* A condition that must be true after a call. */
#define HOSTILE_ASSERT(condition, ...)               \
    do {                                             \
        if (!(condition) && hostile_alone) {         \
            fprintf(stderr, "%s    ", hostile_name); \
            fprintf(stderr, __VA_ARGS__);            \
            fprintf(stderr, "\n");                   \
            _exit(1);                                \
        }                                            \
        if (!(condition)) {                          \
            fputs(hostile_name, stderr);             \
            ck_abort_msg(__VA_ARGS__);               \
        }                                            \
    } while (0)

/* Calls work(index), on request in a child process: then one crash does not
 * hide the next. */
static inline void hostile_apart(void (*work)(uint32_t), uint32_t index)
{
    pid_t child = getenv("HOSTILE_APART") ? fork() : -1;

    if (child == 0) {
        hostile_alone = true;
        work(index);
        fflush(NULL);
        _exit(0);
    }
    if (child < 0)
        work(index);
    else
        waitpid(child, NULL, 0);
}

/* -------------------------------------------------------------- memory -- */

enum { HOSTILE_LARGEST = 1 << 24 };

static inline core_status exact_alloc(void *device, uint64_t size,
                                      core_memory *out_memory)
{
    *out_memory = (core_memory){0};
    (void)device;
    if (size > HOSTILE_LARGEST ||
        posix_memalign(&out_memory->handle, 64, size) != 0)
        return core__error(CORE_ERROR_OUT_OF_MEMORY, "%llu bytes are too many",
                           (unsigned long long)size);
    memset(out_memory->handle, 0x5a, size);
    return CORE_OK;
}

static inline void exact_free(void *device, core_memory memory, uint64_t size)
{
    (void)device;
    (void)size;
    free(memory.handle);
}

static core_device *hostile_device;

/* devices: cpu, meta */
static inline void hostile_open(core_device **devices)
{
    if (!has_address_sanitizer()) {
        signal(SIGSEGV, hostile_signal);
        signal(SIGBUS, hostile_signal);
        signal(SIGFPE, hostile_signal);
        signal(SIGILL, hostile_signal);
    }
    signal(SIGABRT, hostile_signal);
    signal(SIGALRM, hostile_signal);
    OK(core_device_find("cpu", &devices[0]));
    OK(core_device_find("meta", &devices[1]));
    hostile_device = devices[0];
    hostile_device->small_blocks = false;
    hostile_device->memory.alloc = exact_alloc;
    hostile_device->memory.free = exact_free;
}

static inline int64_t hostile_alive(void)
{
    return core__thread_storages(hostile_device->backend->slot);
}

static inline void hostile_release(void *context, void *data)
{
    (void)context;
    free(data);
}

/* A tensor in memory of `span` elements, which starts at the first. */
static inline core_tensor *hostile_tensor(core_dtype dtype, uint32_t ndim,
                                          const int64_t *sizes,
                                          const int64_t *strides, int64_t span)
{
    size_t bytes = (size_t)span * core_dtype_size(dtype);
    static const double far[] = {1e300,  -1e300, 1e38,      -1e38,
                                 1e-310, 1e205,  INFINITY,  -INFINITY,
                                 65504,  1e16,   -4e15 - .5};
    core_tensor *flat, *tensor;
    double values[64];
    core_tensor *wide;
    char *data = malloc(bytes ? bytes : 1);

    ck_assert_ptr_nonnull(data);
    memset(data, 0, bytes);
    OK(core_tensor_from_memory(data, dtype, &span, 1, hostile_release, NULL,
                               &flat));
    for (int i = 0; i < 64; i++)
        values[i] = chance(4)   ? NAN
                    : chance(4) ? -(double)below(4)
                    : chance(4) ? 1e9
                    : chance(2) ? far[below(sizeof far / sizeof *far)]
                    : core_dtype_is_floating(dtype)
                        ? (double)below(3000) / 1000 - 1
                        : (double)below(4);
    for (int64_t at = 0; at < span; at += 64) {
        int64_t count = span - at < 64 ? span - at : 64;
        core_tensor *part;

        OK(core_tensor_from_data(values, CORE_F64, &count, 1, hostile_device,
                                 &wide));
        OK(core_narrow(flat, 0, at, count, &part));
        OK(core_copy_(part, wide, false));
        core_tensor_release(part);
        core_tensor_release(wide);
    }
    OK(core_as_strided(flat, sizes, ndim, strides, ndim, 0, &tensor));
    core_tensor_release(flat);
    return tensor;
}

/* --------------------------------------------------------------- calls -- */

static inline void hostile_backward(core_tensor *result)
{
    core_tensor *grad = NULL;
    core_status status;

    if (!core_tensor_requires_grad(result))
        return;
    status = core_ones_like(result, CORE_DTYPE_NONE, NULL, -1, &grad);
    if (status == CORE_OK)
        status = core_backward(&result, 1, &grad, 0);
    if (status != CORE_OK)
        HOSTILE_ASSERT(core_error_message()[0] != 0, "backward says nothing");
    core_tensor_release(grad);
}

/* A call that takes so long does not end: its name is printed. */
enum { HOSTILE_SECONDS = 120 };

/* Returns whether the call succeeded. */
static inline bool hostile_run(core_operator *op, const core_value *values,
                               uint32_t count)
{
    core_value results[8];
    core_status status;

    core_error_clear();
    alarm(HOSTILE_SECONDS);
    status = core_op_call(op, values, count, results, 8);
    for (int i = 0; i < 8; i++) {
        HOSTILE_ASSERT(status == CORE_OK || results[i].tag == CORE_VALUE_NONE,
                       "failed, but returns result %d", i);
        if (results[i].tag == CORE_VALUE_TENSOR)
            hostile_backward(results[i].u.tensor);
        core_value_release(&results[i]);
    }
    alarm(0);
    HOSTILE_ASSERT(status == CORE_OK || core_error_message()[0] != 0,
                   "failed with %d and says nothing", status);
    return status == CORE_OK;
}

#endif
