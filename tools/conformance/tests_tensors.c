/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the plugin under libcore: loading, round trips of tensors, and
 * errors. */

#include "process_state.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                    CORE_U8,  CORE_BOOL};

static void loads(suite *self, outcome *out, const test *one)
{
    uint32_t count = 0;

    (void)one;
    if (!suite_device(self, out))
        return;
    expect_ok(out, core_device_count(self->type, &count, NULL),
              "counting the devices");
    expect(out, count > 0, "there is no device");
    expect_ok(out, core_device_synchronize(self->device),
              "synchronizing the device");
}

static void came_back(outcome *out, const unsigned char *got,
                      const unsigned char *wrote, size_t bytes,
                      const char *dtype)
{
    size_t at = 0;

    while (at < bytes && got[at] == wrote[at])
        at++;
    expect(out, at == bytes,
           "a tensor of %s, %zu bytes, copied to the device and back: byte %zu "
           "is %d, expected %d",
           dtype, bytes, at, got[at < bytes ? at : 0],
           wrote[at < bytes ? at : 0]);
}

static void round_trips(suite *self, outcome *out, const test *one)
{
    static const int64_t shapes[][3] = {{0, 1, 1}, {1, 1, 1}, {3, 1, 1},
                                        {2, 3, 5}, {7, 0, 3}, {33, 5, 7}};
    unsigned char wrote[8 * 33 * 35], got[8 * 33 * 35];

    (void)one;
    if (!suite_device(self, out))
        return;
    for (size_t i = 0; i < sizeof wrote; i++)
        wrote[i] = (unsigned char)suite_random(self, "round trips", i);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const int64_t *sizes = shapes[s];
            size_t bytes = (size_t)(sizes[0] * sizes[1] * sizes[2]) *
                           core_dtype_size(dtypes[d]);
            core_tensor *tensor = NULL;

            /* A bool has two values. */
            for (size_t i = 0; dtypes[d] == CORE_BOOL && i < sizeof wrote; i++)
                wrote[i] &= 1;
            memset(got, 0, sizeof got);
            if (!expect_ok(out,
                           core_tensor_from_data(wrote, dtypes[d], sizes, 3,
                                                 self->device, &tensor),
                           "making a tensor"))
                return;
            expect(out, core_tensor_device(tensor) == self->device,
                   "the tensor is not on the device");
            if (expect_ok(out, core_tensor_read(tensor, got, bytes),
                          "reading a tensor"))
                came_back(out, got, wrote, bytes, core_dtype_name(dtypes[d]));
            core_tensor_release(tensor);
        }
}

static bool use_tensors(suite *self, int rounds, outcome *out)
{
    float values[64] = {1}, got[64];
    int64_t size = 64;

    for (int i = 0; i < rounds; i++) {
        core_tensor *tensor = NULL;
        bool good;

        if (!expect_ok(out,
                       core_tensor_from_data(values, CORE_F32, &size, 1,
                                             self->device, &tensor),
                       "making a tensor"))
            return false;
        good = expect_ok(out, core_tensor_read(tensor, got, sizeof got),
                         "reading a tensor");
        core_tensor_release(tensor);
        if (!good)
            return false;
    }
    return true;
}

static void tensors_do_not_leak(suite *self, outcome *out, const test *one)
{
    enum { ROUNDS = 1000, TIMES = 4 };
    core_memory_stats before = {.struct_size = sizeof before};
    core_memory_stats after = {.struct_size = sizeof after};
    bool grows = true;

    (void)one;
    if (!suite_device(self, out))
        return;
    core_memory_get_stats(self->device, &before);
    for (int i = 0; grows && i < TIMES; i++) {
        uint64_t heap = process_heap();

        if (!use_tensors(self, ROUNDS, out))
            return;
        grows = !process_heap_below(heap + ROUNDS * 8);
    }
    core_memory_get_stats(self->device, &after);
    expect(out, !grows, "every %d tensors leak on the host's heap", ROUNDS);
    expect(out, before.allocations[0].current == after.allocations[0].current,
           "released tensors leave blocks allocated");
}

static void streams_work(suite *self, outcome *out, const test *one)
{
    core_stream *stream = NULL;
    core_event *event = NULL;
    core_stream_guard guard;
    float value = 3, got = 0;
    int64_t size = 1;
    core_tensor *tensor = NULL;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_stream_create(self->device, &stream),
                   "creating a stream") ||
        !expect_ok(out, core_event_create(self->device, 0, &event),
                   "creating an event") ||
        !expect_ok(out, core_stream_guard_enter(stream, &guard),
                   "entering a stream"))
        goto done;
    if (expect_ok(out,
                  core_tensor_from_data(&value, CORE_F32, &size, 1,
                                        self->device, &tensor),
                  "making a tensor") &&
        expect_ok(out, core_event_record(event, stream), "recording") &&
        expect_ok(out, core_event_synchronize(event), "synchronizing") &&
        expect_ok(out, core_tensor_read(tensor, &got, sizeof got), "reading"))
        expect(out, got == value, "a value written on a stream is %g", got);
    core_stream_guard_leave(&guard);
done:
    core_tensor_release(tensor);
    core_event_release(event);
    core_stream_release(stream);
}

/* A tensor larger than the device is an error, and later calls work. */
static void oversized_tensor_fails(suite *self, outcome *out, const test *one)
{
    int64_t sizes[2] = {INT64_C(1) << 29, INT64_C(1) << 28};
    core_value args[6] = {{0}};
    core_value result = {0};
    core_operator *op;
    core_status status;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_op_find("empty", &op), "empty"))
        return;
    args[0] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = sizes}};
    args[1] = (core_value){CORE_VALUE_DTYPE, 0, {.i = CORE_F64}};
    args[3] = (core_value){CORE_VALUE_DEVICE, 0, {.device = self->device}};
    status = core_op_call(op, args, 4, &result, 1);
    core_value_release(&result);
    expect(out, status == CORE_ERROR_OUT_OF_MEMORY,
           "a tensor of 2^60 bytes: got %s, expected CORE_ERROR_OUT_OF_MEMORY",
           status == CORE_OK ? "success" : core_status_name(status));
    expect(out,
           strstr(core_error_message(), "bytes") || core_error_message()[0],
           "no reason was reported");
    round_trips(self, out, one);
}

bool suite_add_tensors(suite *self)
{
    static const listed tests[] = {
        {"core/tensors/loads", loads, false},
        {"core/tensors/round-trips", round_trips, false},
        {"core/tensors/no-leaks", tensors_do_not_leak, false},
        {"core/tensors/streams-and-events", streams_work, false},
        {"core/tensors/oversized-tensor-fails", oversized_tensor_fails, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
