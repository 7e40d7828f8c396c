/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The NUMA node of a GPU, from folders like those of Linux. */

#include "support/suite.h"
#include "support/temporary_files.h"

#include <sys/stat.h>

#include <gpu/host/host.h>

static temporary_path folder;

/* Writes the file of the device at this address. */
static void says(const char *address, const char *text)
{
    char path[PATH_MAX + 64];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, address);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/numa_node", folder, address);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void setup(void)
{
    temporary_folder(folder, "gpu-numa");
    says("0000:3b:00.0", "1\n");
    says("0000:af:00.1", "0\n");
    says("0000:01:00.0", "-1\n");
    says("0000:02:00.0", "");
    says("0000:03:00.0", "no number\n");
}

static void teardown(void)
{
    temporary_remove(folder);
}

START_TEST(node_is_read_from_linux)
{
    ck_assert_uint_eq(gpu_numa_node(folder, "pci-0000:3b:00.0"), 1);
    /* CUDA's address has no function number, and HIP's is in upper case. */
    ck_assert_uint_eq(gpu_numa_node(folder, "pci-0000:3b:00"), 1);
    ck_assert_uint_eq(gpu_numa_node(folder, "pci-0000:AF:00.1"), 0);
}
END_TEST

START_TEST(unknown_device_has_no_node)
{
    static const char *const unknown[] = {
        "pci-0000:01:00.0", /* Linux reports -1: no node */
        "pci-0000:02:00.0",
        "pci-0000:03:00.0",
        "pci-0000:04:00.0",
        "pci-",
        "",
        "gpuemu-0",
        "pci-../0000:3b:00.0"};

    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        ck_assert_msg(gpu_numa_node(folder, unknown[i]) == UINT32_MAX, "%s",
                      unknown[i]);
    ck_assert_uint_eq(gpu_numa_node("/nowhere", "pci-0000:3b:00.0"),
                      UINT32_MAX);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        node_is_read_from_linux,
        unknown_device_has_no_node,
    };
    const test_suite suite = {
        .name = "gpu/gpu_numa",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
