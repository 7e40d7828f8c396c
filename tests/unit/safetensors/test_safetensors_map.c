/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors on the mapped pages of a file. */

#include "support/autograd.h"

#include <libcore/safetensors.h>

#include "base/memory.h"
#include "support/io_files.h"

#include <fcntl.h>
#include <sys/stat.h>

static core_safetensors *map(void)
{
    core_safetensors *file;

    OK(core_safetensors_map(file_path, &file));
    return file;
}

static core_tensor *tensor_of(core_safetensors *file, const char *name)
{
    core_tensor *tensor;

    OK(core_safetensors_tensor(file, name, &tensor));
    return keep(tensor);
}

static void *data_of(core_tensor *tensor)
{
    void *data;

    OK(core_tensor_data(tensor, &data));
    return data;
}

/* Whether this process maps a page of the file. */
static bool is_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[PATH_MAX + 200];
    bool found = false;

    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps))
        found = found || strstr(line, file_path);
    fclose(maps);
    return found;
}

/* Saves f32 [2, 3] of 0 … 5 and i64 [2] of 7, -8. */
static void save_two(void)
{
    const int64_t two = 2;
    core_named_tensor named[2];

    named[0] = (core_named_tensor){"a", typed(CORE_F32, 2, (int64_t[]){2, 3},
                                              (double[]){0, 1, 2, 3, 4, 5})};
    named[1] =
        (core_named_tensor){"b", typed(CORE_I64, 1, &two, (double[]){7, -8})};
    OK(core_safetensors_save(file_path, named, 2, NULL, 0));
}

START_TEST(mapped_tensor_uses_the_pages_of_the_file)
{
    core_safetensors_entry entry = {.struct_size = sizeof entry};
    core_safetensors *file;
    core_tensor *a, *b;

    save_two();
    file = map();
    a = tensor_of(file, "a");
    b = tensor_of(file, "b");
    HOLDS(a, 6, 0, 1, 2, 3, 4, 5);
    HOLDS(b, 2, 7, -8);
    ck_assert_int_eq(core_tensor_ndim(a), 2);
    ck_assert_uint_eq(core_tensor_dtype(b), CORE_I64);
    ck_assert_str_eq(core_device_name(core_tensor_device(a)), "cpu");
    OK(core_safetensors_describe(file, 1, &entry));
    ck_assert_str_eq(entry.name, "a");
    ck_assert_ptr_eq(data_of(a), entry.data);
    ck_assert_ptr_eq(data_of(tensor_of(file, "a")), entry.data);
    /* A mapped file can also be read by copying. */
    OK(core_safetensors_load(file, "a", NULL, &a));
    ck_assert_ptr_ne(data_of(keep(a)), entry.data);
    core_safetensors_close(file);
}
END_TEST

START_TEST(mapping_lives_as_long_as_its_tensors)
{
    core_safetensors *file;
    core_tensor *a, *b, *row;

    save_two();
    file = map();
    a = tensor_of(file, "a");
    b = tensor_of(file, "b");
    core_safetensors_close(file);
    ck_assert(is_mapped());
    unlink(file_path);
    row = CALL(select, a, 0, 1);
    drop(a);
    HOLDS(row, 3, 3, 4, 5);
    drop(row);
    HOLDS(b, 2, 7, -8);
    drop(b);
    ck_assert(!is_mapped());
}
END_TEST

START_TEST(in_place_changes_do_not_reach_the_file)
{
    uint8_t before[1024], after[1024];
    core_safetensors *file, *other;
    core_tensor *a, *seen;
    size_t size;

    save_two();
    size = read_bytes(before, sizeof before);
    file = map();
    other = map();
    a = tensor_of(file, "a");
    OK(core_add_scalar_(a, core_float(10), core_int(1)));
    OK(core_tensor_set_requires_grad(a, true)); /* like a parameter */
    HOLDS(a, 6, 10, 11, 12, 13, 14, 15);
    seen = tensor_of(other, "a");
    HOLDS(seen, 6, 0, 1, 2, 3, 4, 5);
    ck_assert_uint_eq(read_bytes(after, sizeof after), size);
    ck_assert_mem_eq(before, after, size);
    core_safetensors_close(file);
    core_safetensors_close(other);
}
END_TEST

START_TEST(mapping_keeps_contents_of_replaced_file)
{
    core_safetensors *file;
    core_tensor *a;

    save_two();
    file = map();
    a = tensor_of(file, "a");
    save_two();
    HOLDS(a, 6, 0, 1, 2, 3, 4, 5);
    core_safetensors_close(file);
}
END_TEST

START_TEST(read_only_file_can_be_mapped_and_changed_in_memory)
{
    core_safetensors *file;
    core_tensor *a;

    save_two();
    ck_assert_int_eq(chmod(file_path, 0400), 0);
    file = map();
    a = tensor_of(file, "a");
    OK(core_zero_(a));
    HOLDS(a, 6, 0, 0, 0, 0, 0, 0);
    core_safetensors_close(file);
}
END_TEST

START_TEST(misaligned_data_cannot_be_mapped)
{
    /* Padded to a multiple of 8, as all writers do. */
    static const char json[] =
        "{\"c\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"odd\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[5,5]},"
        "\"half\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[5,7]}}";
    char padded[sizeof json + 8], place[40];
    size_t size = (sizeof json - 1 + 7) / 8 * 8;
    core_safetensors *file;
    core_tensor *tensor = NULL;

    snprintf(padded, sizeof padded, "%-*s", (int)size, json);
    write_file(padded, 7);
    file = map();
    snprintf(place, sizeof place, "begins at byte %zu ", 8 + size + 1);
    FAILS(core_safetensors_tensor(file, "odd", &tensor), CORE_ERROR_UNSUPPORTED,
          file_path, "\"odd\" of f32", place, "aligned to 4");
    FAILS(core_safetensors_tensor(file, "half", &tensor),
          CORE_ERROR_UNSUPPORTED, "aligned to 2");
    ck_assert_ptr_null(tensor);
    OK(core_safetensors_load(file, "odd", NULL, &tensor));
    ck_assert_ptr_nonnull(keep(tensor));
    tensor_of(file, "c");
    ck_assert_int_eq(core_tensor_size(tensor_of(file, "none"), 0), 3);
    core_safetensors_close(file);
}
END_TEST

START_TEST(unmappable_tensor_is_reported_with_reason)
{
    core_safetensors *file;
    core_tensor *tensor = NULL;

    save_two();
    OK(core_safetensors_open(file_path, &file));
    FAILS(core_safetensors_tensor(file, "a", &tensor),
          CORE_ERROR_INVALID_ARGUMENT, file_path, "core_safetensors_map");
    core_safetensors_close(file);
    file = map();
    FAILS(core_safetensors_tensor(file, "z", &tensor), CORE_ERROR_NOT_FOUND,
          "\"z\"");
    FAILS(core_safetensors_tensor(file, NULL, &tensor),
          CORE_ERROR_INVALID_ARGUMENT, "name");
    ck_assert_ptr_null(tensor);
    core_safetensors_close(file);
    write_file("{\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":"
               "[0,3]},\"f\":{\"dtype\":\"F8_E8M0\",\"shape\":[1],"
               "\"data_offsets\":[3,4]}}",
               4);
    file = map();
    FAILS(core_safetensors_tensor(file, "b", &tensor), CORE_ERROR_CORRUPT,
          "BOOL");
    FAILS(core_safetensors_tensor(file, "f", &tensor), CORE_ERROR_UNSUPPORTED,
          "F8_E8M0");
    core_safetensors_close(file);
    unlink(file_path);
    FAILS(core_safetensors_map(file_path, &file), CORE_ERROR_NOT_FOUND,
          file_path);
    ck_assert_ptr_null(file);
}
END_TEST

static core_status map_and_take(void)
{
    core_safetensors *file = NULL;
    core_tensor *tensor = NULL;
    core_status status = core_safetensors_map(file_path, &file);

    if (status == CORE_OK)
        status = core_safetensors_tensor(file, "a", &tensor);
    core_safetensors_close(file);
    core_tensor_release(tensor);
    return status;
}

START_TEST(failed_allocation_leaves_no_mapping)
{
    int64_t allowed = 0, live;
    core_status status;

    save_two();
    OK(map_and_take());
    do {
        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        core__alloc_fault_set(allowed++, false);
        status = map_and_take();
        core__alloc_fault_set(INT64_MAX, false);
        ck_assert(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_eq(core__alloc_live(), live);
        core__alloc_fault_set(-1, false);
        ck_assert(!is_mapped());
        ck_assert_int_lt(allowed, 1000);
    } while (status != CORE_OK);
    ck_assert_int_gt(allowed, 6);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        mapped_tensor_uses_the_pages_of_the_file,
        mapping_lives_as_long_as_its_tensors,
        in_place_changes_do_not_reach_the_file,
        mapping_keeps_contents_of_replaced_file,
        read_only_file_can_be_mapped_and_changed_in_memory,
        misaligned_data_cannot_be_mapped,
        unmappable_tensor_is_reported_with_reason,
        failed_allocation_leaves_no_mapping,
    };

    return run_files("safetensors/safetensors_map", tests,
                     sizeof tests / sizeof *tests);
}
