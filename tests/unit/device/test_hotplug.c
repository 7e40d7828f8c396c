/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Devices that are added, removed and reordered while the process runs. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include <pthread.h>

static void start(void)
{
    sim_find("sim");
}

static uint32_t count_sim(void)
{
    const char *reason;
    uint32_t count;

    OK(core_device_count("sim", &count, &reason));
    return count;
}

static core_device *by_id(const char *id)
{
    core_device *device;

    OK(core_device_find_id("sim", id, &device));
    return device;
}

START_TEST(device_is_found_by_its_stable_id)
{
    core_device *device, *host;
    core_device_information p = {.struct_size = sizeof p};
    char id[128];

    ck_assert_ptr_eq(by_id("sim-1"), device_of("sim:1"));
    ck_assert_ptr_eq(by_id("sim-0"), sim);
    FAILS(core_device_find_id("sim", "sim-9", &device), CORE_ERROR_NOT_FOUND,
          "core_device_find_id", "sim-9");
    ck_assert_ptr_null(device);
    FAILS(core_device_find_id("sim", "", &device), CORE_ERROR_NOT_FOUND);
    FAILS(core_device_find_id("none", "sim-0", &device), CORE_ERROR_NOT_FOUND,
          "none");
    /* A plugin without core.hotplug. */
    host = device_of("cpu");
    OK(core_device_get_information(host, &p));
    snprintf(id, sizeof id, "%.*s", (int)p.stable_id.size, p.stable_id.data);
    if (*id) {
        OK(core_device_find_id("cpu", id, &device));
        ck_assert_ptr_eq(device, host);
    }
    FAILS(core_device_find_id("cpu", "no such id", &device),
          CORE_ERROR_NOT_FOUND, "no such id");
}
END_TEST

/* core.hotplug names devices without opening them; other plugins' are opened. */
START_TEST(missing_id_has_the_cause_of_a_failed_opening)
{
    core_device *device;

    setenv("LIBCORE_INTERPOSERS", "fault", 1);
    setenv("LIBCORE_FAULT", "open:1+", 1);
    FAILS(core_device_find_id("cpu", "no such id", &device),
          CORE_ERROR_NOT_FOUND,
          "has the stable id \"no such id\"; device 0 cannot be opened: ");
    ck_assert_ptr_null(device);
}
END_TEST

START_TEST(added_device_gets_the_next_index)
{
    uint64_t before = core_device_changes();
    core_device *device;

    ck_assert_uint_eq(count_sim(), 2);
    OK(control->add(5));
    ck_assert_uint_eq(core_device_changes(), before + 1);
    ck_assert_uint_eq(count_sim(), 3);
    device = device_of("sim:2");
    ck_assert_ptr_eq(by_id("sim-5"), device);
    all_are(add(filled(device, 8, 1), filled(device, 8, 2)), 3);
}
END_TEST

START_TEST(devices_keep_their_names_when_they_are_reordered)
{
    core_tensor *here = filled(sim, 8, 1);

    OK(control->add(2));
    OK(control->reverse());
    ck_assert_ptr_eq(device_of("sim"), sim);
    ck_assert_ptr_eq(by_id("sim-0"), sim);
    ck_assert_str_eq(core_device_name(by_id("sim-1")), "sim:1");
    ck_assert_str_eq(core_device_name(by_id("sim-2")), "sim:2");
    all_are(add(here, here), 2);
    all_are(filled(by_id("sim-1"), 8, 3), 3);
}
END_TEST

START_TEST(objects_of_a_removed_device_are_lost)
{
    core_device *gone = device_of("sim:1");
    core_tensor *there = filled(gone, 8, 1), *here = filled(sim, 8, 1), *out;
    core_stream *stream = stream_of(gone);
    float values[8];

    OK(core_device_synchronize(gone));
    OK(control->remove(1));
    ck_assert_uint_eq(count_sim(), 2); /* the index stays the device's */
    FAILS(core_device_status(gone), CORE_ERROR_DEVICE_LOST, "sim:1",
          "\"sim-1\" was removed");
    FAILS(core_mul(there, there, &out), CORE_ERROR_DEVICE_LOST, "sim:1",
          "was removed");
    ck_assert_ptr_null(out);
    FAILS(core_tensor_read(there, values, sizeof values),
          CORE_ERROR_DEVICE_LOST, "was removed");
    FAILS(core_stream_synchronize(stream), CORE_ERROR_DEVICE_LOST);
    FAILS(core_device_reset(gone), CORE_ERROR_DEVICE_LOST, "removed");
    core_stream_release(stream);
    all_are(add(here, here), 2);
}
END_TEST

/* The plugin reports the loss before the core enumerates again. */
START_TEST(removed_device_is_lost_at_its_next_use)
{
    core_device *gone = device_of("sim:1");
    core_tensor *there = filled(gone, 8, 1), *out;

    OK(core_device_synchronize(gone));
    OK(control->remove(1));
    FAILS(core_mul(there, there, &out), CORE_ERROR_DEVICE_LOST, "sim:1",
          "removed");
}
END_TEST

START_TEST(removed_device_that_returns_is_reset)
{
    core_device *device = device_of("sim:1");
    core_tensor *old = filled(device, 8, 1), *out;

    OK(core_device_synchronize(device));
    OK(control->remove(1));
    ck_assert_uint_eq(count_sim(), 2);
    OK(control->add(1));
    ck_assert_uint_eq(count_sim(), 2);
    ck_assert_ptr_eq(by_id("sim-1"), device);
    FAILS(core_device_status(device), CORE_ERROR_DEVICE_LOST);
    OK(core_device_reset(device));
    OK(core_device_status(device));
    all_are(add(filled(device, 8, 1), filled(device, 8, 2)), 3);
    FAILS(core_mul(old, old, &out), CORE_ERROR_DEVICE_LOST);
}
END_TEST

START_TEST(device_removed_before_it_was_opened_is_missing)
{
    core_device *device;

    OK(control->remove(1));
    ck_assert_uint_eq(count_sim(), 2);
    FAILS(core_device_find("sim:1", &device), CORE_ERROR_NO_DEVICE, "sim:1",
          "removed", "sim-1");
    ck_assert_ptr_null(device);
    FAILS(core_device_find_id("sim", "sim-1", &device), CORE_ERROR_NO_DEVICE,
          "sim-1");
    OK(control->add(1));
    all_are(filled(device_of("sim:1"), 4, 2), 2);
}
END_TEST

START_TEST(all_devices_may_be_removed)
{
    core_device *device;
    const char *reason;
    uint32_t count;

    OK(control->remove(0));
    OK(control->remove(1));
    OK(core_device_count("sim", &count, &reason));
    ck_assert_uint_eq(count, 2); /* with those that were removed */
    ck_assert_str_eq(reason, "");
    OK(core_device_find("sim", &device)); /* it is open */
    ck_assert_ptr_eq(device, sim);
    FAILS(core_device_status(device), CORE_ERROR_DEVICE_LOST, "was removed");
    FAILS(core_device_find("sim:1", &device), CORE_ERROR_NO_DEVICE, "sim-1");
}
END_TEST

static void *change(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 200; i++) {
        OK(control->add(7));
        OK(control->reverse());
        OK(control->remove(7));
    }
    return NULL;
}

START_TEST(devices_change_in_any_thread)
{
    core_tensor *here = filled(sim, 8, 1);
    core_device *device;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, change, NULL), 0);
    for (int i = 0; i < 200; i++) {
        ck_assert_uint_ge(count_sim(), 2);
        ck_assert_ptr_eq(by_id("sim-0"), sim);
        ck_assert_str_eq(core_device_name(by_id("sim-1")), "sim:1");
        if (core_device_find_id("sim", "sim-7", &device) == CORE_OK)
            ck_assert_str_eq(core_device_name(device), "sim:2");
    }
    pthread_join(thread, NULL);
    all_are(add(here, here), 2);
}
END_TEST

/* -------------------------------------- changes while the list is read -- */

static uint32_t reads; /* of the list, by the core */

static void watch(core_status (*function)(void *))
{
    reads = 0;
    control->watch(function, NULL);
}

static core_status remove_first_at_the_fourth(void *unused)
{
    (void)unused;
    if (++reads == 4)
        OK(control->remove(0));
    return CORE_OK;
}

static core_status reverse_at_the_fourth(void *unused)
{
    (void)unused;
    if (++reads == 4)
        OK(control->reverse());
    return CORE_OK;
}

static core_status reverse_always(void *unused)
{
    (void)unused;
    reads++;
    OK(control->reverse());
    return CORE_OK;
}

static core_status fail_at_the_third(void *unused)
{
    (void)unused;
    return ++reads == 3
               ? core_error_set(CORE_ERROR_INTERNAL, "the bus does not respond")
               : CORE_OK;
}

static core_device *more_devices(void)
{
    OK(control->add(2));
    OK(control->add(3));
    ck_assert_uint_eq(count_sim(), 4);
    return by_id("sim-2");
}

static void has_stable_id(const core_device *device, const char *id)
{
    core_device_information p = {.struct_size = sizeof p};

    OK(core_device_get_information((core_device *)(uintptr_t)device, &p));
    ck_assert_uint_eq(p.stable_id.size, strlen(id));
    ck_assert_mem_eq(p.stable_id.data, id, strlen(id));
}

/* Of sim-0 to sim-3, the first is removed after the ids of two were read, so
 * that sim-2 takes the place of sim-1. */
START_TEST(removal_while_the_list_is_read_loses_no_other_device)
{
    core_device *second = more_devices();

    OK(control->reverse());
    OK(control->reverse()); /* announced */
    watch(remove_first_at_the_fourth);
    ck_assert_uint_eq(count_sim(), 4);
    control->watch(NULL, NULL);
    ck_assert_uint_gt(reads, 4);
    OK(core_device_status(second));
    OK(core_device_status(by_id("sim-1")));
    FAILS(core_device_status(sim), CORE_ERROR_DEVICE_LOST, "was removed");
    all_are(filled(second, 8, 3), 3);
    all_are(filled(by_id("sim-3"), 8, 3), 3);
}
END_TEST

START_TEST(reordering_while_the_list_is_read_is_no_error)
{
    core_device *second = more_devices();

    OK(control->reverse());
    watch(reverse_at_the_fourth);
    ck_assert_uint_eq(count_sim(), 4);
    control->watch(NULL, NULL);
    OK(core_device_status(sim));
    OK(core_device_status(second));
    has_stable_id(by_id("sim-3"), "sim-3");
}
END_TEST

START_TEST(list_that_keeps_changing_is_read_later)
{
    core_device *second = more_devices();

    OK(control->reverse());
    watch(reverse_always);
    ck_assert_uint_eq(count_sim(), 4);
    ck_assert_ptr_eq(by_id("sim-2"), second);
    control->watch(NULL, NULL);
    OK(core_device_status(sim));
    OK(core_device_status(second));
    OK(control->remove(1));
    ck_assert_uint_eq(count_sim(), 4);
    has_stable_id(by_id("sim-3"), "sim-3");
    OK(core_device_status(second));
}
END_TEST

START_TEST(open_devices_are_found_though_the_list_cannot_be_read)
{
    core_device *device, *second = more_devices();
    const char *reason;
    uint32_t count;

    OK(control->reverse());
    for (int i = 0; i < 2; i++) {
        watch(fail_at_the_third);
        FAILS(core_device_count("sim", &count, &reason), CORE_ERROR_INTERNAL,
              "does not respond");
        watch(fail_at_the_third);
        core_error_clear();
        ck_assert_ptr_eq(device_of("sim:2"), second);
        ck_assert_str_eq(core_error_message(), "");
        reads = 0;
        ck_assert_ptr_eq(device_of("sim"), sim);
    }
    watch(fail_at_the_third);
    FAILS(core_device_find("sim:3", &device), CORE_ERROR_INTERNAL,
          "does not respond");
    control->watch(NULL, NULL);
    has_stable_id(by_id("sim-3"), "sim-3");
    OK(core_device_status(second));
}
END_TEST

/* The position of the device is another's when it is opened. */
START_TEST(device_with_the_requested_id_is_opened)
{
    char id[16];

    for (uint32_t i = 2; i < 10; i++)
        OK(control->add(i));
    for (uint32_t i = 1; i < 10; i++) {
        ck_assert_uint_eq(count_sim(), 10);
        snprintf(id, sizeof id, "sim-%u", i);
        reads = 3;
        control->watch(reverse_at_the_fourth, NULL);
        has_stable_id(by_id(id), id);
        ck_assert_uint_ge(reads, 4);
    }
    control->watch(NULL, NULL);
    OK(core_device_status(sim)); /* it was not opened twice */
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "sim-%u", i);
        has_stable_id(by_id(id), id);
        all_are(filled(by_id(id), 4, 2), 2);
    }
}
END_TEST

START_TEST(device_whose_place_keeps_changing_is_not_mistaken)
{
    core_device *device;

    more_devices();
    watch(reverse_always);
    if (core_device_find_id("sim", "sim-3", &device) == CORE_OK)
        has_stable_id(device, "sim-3");
    else
        ck_assert_int_eq(core_error_code(), CORE_ERROR_BUSY);
    control->watch(NULL, NULL);
    has_stable_id(by_id("sim-3"), "sim-3");
}
END_TEST

START_TEST(changes_under_interposers_are_seen)
{
    OK(core_setting_set("LIBCORE_INTERPOSERS", "validate"));
    sim_find("sim");
    OK(control->add(3));
    ck_assert_uint_eq(count_sim(), 3);
    ck_assert_str_eq(core_device_name(by_id("sim-3")), "sim:2");
    all_are(filled(by_id("sim-3"), 4, 2), 2);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        device_is_found_by_its_stable_id,
        added_device_gets_the_next_index,
        devices_keep_their_names_when_they_are_reordered,
        objects_of_a_removed_device_are_lost,
        removed_device_is_lost_at_its_next_use,
        removed_device_that_returns_is_reset,
        device_removed_before_it_was_opened_is_missing,
        all_devices_may_be_removed,
        devices_change_in_any_thread,
        removal_while_the_list_is_read_loses_no_other_device,
        reordering_while_the_list_is_read_is_no_error,
        list_that_keeps_changing_is_read_later,
        open_devices_are_found_though_the_list_cannot_be_read,
        device_with_the_requested_id_is_opened,
        device_whose_place_keeps_changing_is_not_mistaken,
    };
    const TTest *const settings[] = {
        changes_under_interposers_are_seen,
        missing_id_has_the_cause_of_a_failed_opening,
    };

    const test_suite suites[] = {
        {"device/hotplug", start, drop_all, 0, SUITE_TESTS(tests)},
        {"device/hotplug, interposers", NULL, drop_all, 0,
         SUITE_TESTS(settings)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
