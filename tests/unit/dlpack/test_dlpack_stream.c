/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors exchanged between the streams of two libraries on the simulated
 * accelerator, which reports unordered accesses. */

#define SUITE_FORKS true

#include "support/stream.h"

#include <libcore/dlpack.h>
#include <libcore/memory.h>

#include "../../../plugins/sim/sim_control.h"

enum { N = 64 };

static core_device *sim;
static const sim_control *control;
static void *native; /* the stream of the other library */

static void start(void)
{
    const void *table;

    setenv("LIBCORE_SIM_CHECK", "1", 1);
    sim = device_of("sim");
    OK(core_device_interface(sim, "sim.control", 1, &table));
    control = table;
    OK(control->native_create(0, &native));
}

static uint64_t conflicts(void)
{
    sim_counters counters = {.struct_size = sizeof counters};

    OK(core_device_synchronize(sim));
    OK(control->counters(0, &counters));
    return counters.conflicts;
}

/* The other library sets all bytes on its stream. */
static void fill_there(const core_dlpack_managed *managed, uint8_t byte)
{
    core_memory memory = {managed->tensor.data, managed->tensor.byte_offset};

    OK(control->native_fill(native, memory, N * sizeof(float), byte));
}

static core_dlpack_managed *export(core_tensor *tensor, int64_t stream)
{
    core_dlpack_managed *managed;

    OK(core_dlpack_export(tensor, 0, stream, &managed));
    return managed;
}

/* -------------------------------------------------------------- export -- */

START_TEST(export_orders_consumer_stream_after_pending_work)
{
    core_stream *mine = stream_of(sim);
    core_stream_guard guard;
    core_dlpack_managed *managed;
    core_tensor *tensor;
    uint64_t waits;

    OK(core_stream_guard_enter(mine, &guard));
    tensor = filled(sim, N, 3);
    waits = core_host_waits();
    managed = export(tensor, (int64_t)(intptr_t)native);
    ck_assert_uint_eq(core_host_waits(), waits); /* only the stream waits */
    core_stream_guard_leave(&guard);
    fill_there(managed, 0);
    OK(control->native_synchronize(native));
    ck_assert_uint_eq(conflicts(), 0);
    all_are(tensor, 0);
    managed->deleter(managed);
    drop_all();
    core_stream_release(mine);
    control->native_destroy(native);
}
END_TEST

START_TEST(export_without_stream_does_not_order)
{
    core_tensor *tensor = filled(sim, N, 3);
    core_dlpack_managed *managed = export(tensor, CORE_DLPACK_STREAM_NONE);

    fill_there(managed, 0);
    /* The consumer does not order its access here: a conflict. */
    ck_assert_int_ne(control->native_synchronize(native), CORE_OK);
    ck_assert_uint_gt(conflicts(), 0);
    managed->deleter(managed);
}
END_TEST

START_TEST(stream_number_zero_is_the_default_stream)
{
    core_stream *mine = stream_of(sim);
    core_stream_guard guard;
    core_dlpack_managed *managed;
    core_tensor *tensor, *back;

    OK(core_stream_guard_enter(mine, &guard));
    tensor = filled(sim, N, 3);
    managed = export(tensor, 0);
    core_stream_guard_leave(&guard);
    OK(core_dlpack_import(managed, sim, NULL, &back));
    OK(core_mul_scalar_(keep(back), core_float(2)));
    ck_assert_uint_eq(conflicts(), 0);
    all_are(tensor, 6);
    drop_all();
    core_stream_release(mine);
}
END_TEST

START_TEST(export_to_current_stream_needs_no_wait)
{
    core_tensor *tensor = filled(sim, N, 3);
    core_dlpack_managed *managed;
    uint64_t waits = core_host_waits(),
             events = core_device_events_created(sim);
    int64_t number;

    OK(core_dlpack_stream(sim, NULL, &number));
    managed = export(tensor, number);
    managed->deleter(managed);
    ck_assert_uint_eq(core_host_waits(), waits);
    ck_assert_uint_le(core_device_events_created(sim), events + 1);
}
END_TEST

START_TEST(invalid_stream_numbers_are_refused)
{
    core_tensor *tensor = filled(sim, N, 3);
    uint32_t references = core_tensor_references(tensor);
    core_dlpack_managed *managed = NULL;
    core_dlpack_unversioned *older = NULL;

    FAILS(core_dlpack_export(tensor, 0, -2, &managed),
          CORE_ERROR_INVALID_ARGUMENT, "-2 is not a stream of");
    FAILS(core_dlpack_export(tensor, 0, 0x1234560, &managed),
          CORE_ERROR_INVALID_ARGUMENT, "is not a stream of sim");
    ck_assert_ptr_null(managed);
    FAILS(core_dlpack_export_unversioned(tensor, 0, 0x1234560, &older),
          CORE_ERROR_INVALID_ARGUMENT, "is not a stream of sim");
    ck_assert_ptr_null(older);
    ck_assert_uint_eq(core_tensor_references(tensor), references);
}
END_TEST

/* -------------------------------------------------------------- import -- */

/* The other library writes on its stream and exports the result. */
static core_dlpack_managed *written_there(void)
{
    core_tensor *tensor = filled(sim, N, 3);
    core_dlpack_managed *managed = export(tensor, (int64_t)(intptr_t)native);

    fill_there(managed, 0);
    return managed;
}

START_TEST(import_orders_current_stream_after_named_stream)
{
    core_dlpack_managed *managed = written_there();
    core_stream *theirs;
    core_tensor *tensor;
    uint64_t waits;

    OK(core_stream_adopt(sim, native, &theirs));
    waits = core_host_waits();
    OK(core_dlpack_import(managed, sim, theirs, &tensor));
    ck_assert_uint_eq(core_host_waits(), waits);
    OK(core_add_scalar_(keep(tensor), core_float(5), core_int(1)));
    ck_assert_uint_eq(conflicts(), 0);
    all_are(tensor, 5);
    drop_all();
    core_stream_release(theirs);
    control->native_destroy(native);
}
END_TEST

START_TEST(import_without_stream_does_not_order)
{
    core_dlpack_managed *managed = written_there();
    core_tensor *tensor;

    /* Neither side orders the streams, which must be a conflict. */
    OK(core_dlpack_import(managed, sim, NULL, &tensor));
    OK(core_add_scalar_(keep(tensor), core_float(5), core_int(1)));
    ck_assert_int_ne(core_device_synchronize(sim), CORE_OK);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "nothing orders them"));
}
END_TEST

START_TEST(exporter_orders_stream_named_by_importer)
{
    core_stream *mine = stream_of(sim);
    core_stream_guard guard;
    core_dlpack_managed *managed;
    core_tensor *tensor = filled(sim, N, 3), *back;
    int64_t number;

    /* The importer names its stream; the exporter makes that stream wait. */
    OK(core_dlpack_stream(sim, mine, &number));
    managed = export(tensor, number);
    OK(core_stream_guard_enter(mine, &guard));
    OK(core_dlpack_import(managed, sim, mine, &back));
    OK(core_mul_scalar_(keep(back), core_float(2)));
    core_stream_guard_leave(&guard);
    OK(core_stream_synchronize(mine));
    ck_assert_uint_eq(conflicts(), 0);
    all_are(tensor, 6);
    drop_all();
    core_stream_release(mine);
}
END_TEST

START_TEST(streams_of_other_devices_are_refused_by_dlpack)
{
    core_device *other = device_of("sim:1");
    core_stream *stream = stream_of(other);
    core_tensor *tensor = filled(sim, N, 3), *back = tensor;
    uint32_t references = core_tensor_references(tensor);
    int64_t number = 7;

    FAILS(core_dlpack_import(export(tensor, CORE_DLPACK_STREAM_NONE), sim,
                             stream, &back),
          CORE_ERROR_DEVICE, "memory is on \"sim\"", "the stream on \"sim:1\"");
    ck_assert_ptr_null(back);
    ck_assert_uint_eq(core_tensor_references(tensor), references);
    FAILS(core_dlpack_stream(sim, stream, &number), CORE_ERROR_DEVICE, "sim:1");
    ck_assert_int_eq(number, CORE_DLPACK_STREAM_NONE);
    core_stream_release(stream);
}
END_TEST

START_TEST(failed_stream_wait_is_reported)
{
    core_tensor *tensor = filled(sim, N, 3);
    core_dlpack_managed *managed = (core_dlpack_managed *)tensor;

    OK(core_device_synchronize(sim));
    OK(control->fault(0, SIM_FAULT_WAIT, 1));
    ck_assert_int_ne(
        core_dlpack_export(tensor, 0, (int64_t)(intptr_t)native, &managed),
        CORE_OK);
    ck_assert_ptr_null(managed);
    ck_assert_uint_eq(core_tensor_references(tensor), 1);
    managed = export(tensor, (int64_t)(intptr_t)native);
    managed->deleter(managed);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        export_orders_consumer_stream_after_pending_work,
        export_without_stream_does_not_order,
        stream_number_zero_is_the_default_stream,
        export_to_current_stream_needs_no_wait,
        invalid_stream_numbers_are_refused,
        import_orders_current_stream_after_named_stream,
        import_without_stream_does_not_order,
        exporter_orders_stream_named_by_importer,
        streams_of_other_devices_are_refused_by_dlpack,
        failed_stream_wait_is_reported,
    };

    return run_suite_with("dlpack/dlpack_stream", start, tests,
                          sizeof tests / sizeof *tests);
}
