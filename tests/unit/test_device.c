/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd.h"

START_TEST(the_first_of_the_preference_that_there_is_serves)
{
    core_device *device;

    OK(core_device_set_preference("nothere, sim ,cpu"));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "sim");
}
END_TEST

START_TEST(without_any_of_them_the_cpu_serves)
{
    core_device *device;

    OK(core_device_set_preference("nothere,neither"));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
    OK(core_device_set_preference(NULL));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
}
END_TEST

START_TEST(names_that_are_none_and_devices_that_are_not_there_are_told)
{
    core_device *device = NULL;

    FAILS(core_device_find("SIM!", &device), CORE_ERROR_INVALID_ARGUMENT,
          "SIM!");
    FAILS(core_device_find("sim:7", &device), CORE_ERROR_NOT_FOUND, "sim:7");
    FAILS(core_device_find("nothere", &device), CORE_ERROR_NOT_FOUND,
          "nothere");
    ck_assert_ptr_null(device);
}
END_TEST

SUITE("device", the_first_of_the_preference_that_there_is_serves,
      without_any_of_them_the_cpu_serves,
      names_that_are_none_and_devices_that_are_not_there_are_told)
