/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <libcore/device.h>
#include <libcore/ops.h>
#include <libcore/safetensors.h>

#include "base/memory.h"
#include "support/io_files.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static core_tensor *make(const void *data, core_dtype dtype, size_t ndim,
                         const int64_t *sizes)
{
    core_tensor *tensor;

    ck_assert_msg(core_tensor_from_data(data, dtype, sizes, ndim, cpu,
                                        &tensor) == CORE_OK,
                  "%s", core_error_message());
    return tensor;
}

static core_status try_open(void)
{
    core_safetensors *file = NULL;
    core_status status = core_safetensors_open(file_path, &file);

    ck_assert((status == CORE_OK) == (file != NULL));
    core_safetensors_close(file);
    return status;
}

/* ---------------------------------------------------------- round trips -- */

static const core_dtype all_dtypes[] = {
    CORE_F64, CORE_F32, CORE_F16, CORE_BF16, CORE_I64,    CORE_I32,
    CORE_I16, CORE_I8,  CORE_U8,  CORE_BOOL, CORE_F8E4M3, CORE_F8E5M2};
enum { DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

START_TEST(every_dtype_is_saved_and_loaded_bit_for_bit)
{
    const int64_t sizes[] = {2, 3};
    core_named_tensor tensors[DTYPES];
    core_safetensors *file;
    const uint8_t truths[6] = {1, 0, 0, 1, 1, 0};
    uint8_t bits[48], got[48];

    for (int i = 0; i < 48; i++)
        bits[i] = (uint8_t)(i * 37 + 1);
    for (int i = 0; i < DTYPES; i++) {
        tensors[i].name = core_dtype_name(all_dtypes[i]);
        tensors[i].tensor = make(all_dtypes[i] == CORE_BOOL ? truths : bits,
                                 all_dtypes[i], 2, sizes);
    }
    ck_assert_int_eq(core_safetensors_save(file_path, tensors, DTYPES, NULL, 0),
                     CORE_OK);
    ck_assert_int_eq(core_safetensors_open(file_path, &file), CORE_OK);
    ck_assert_uint_eq(core_safetensors_count(file), DTYPES);
    for (int i = 0; i < DTYPES; i++) {
        size_t size = 6 * core_dtype_size(all_dtypes[i]);
        core_tensor *loaded;

        ck_assert_int_eq(
            core_safetensors_load(file, tensors[i].name, cpu, &loaded),
            CORE_OK);
        ck_assert_uint_eq(core_tensor_dtype(loaded), all_dtypes[i]);
        ck_assert_int_eq(core_tensor_size(loaded, 1), 3);
        ck_assert_int_eq(core_tensor_read(loaded, got, size), CORE_OK);
        ck_assert_mem_eq(got, all_dtypes[i] == CORE_BOOL ? truths : bits, size);
        core_tensor_release(loaded);
        core_tensor_release(tensors[i].tensor);
    }
    core_safetensors_close(file);
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

START_TEST(scalars_empty_tensors_and_views_are_saved_row_major)
{
    const float data[6] = {0, 1, 2, 3, 4, 5};
    const float turned[6] = {0, 3, 1, 4, 2, 5};
    const int64_t sizes[] = {2, 3}, none[] = {0, 4};
    core_tensor *matrix = make(data, CORE_F32, 2, sizes), *view;
    core_named_tensor tensors[3];
    core_safetensors *file;
    core_tensor *loaded;
    float got[6];

    ck_assert_int_eq(core_transpose(matrix, 0, 1, &view), CORE_OK);
    tensors[0] = (core_named_tensor){"view", view};
    tensors[1] =
        (core_named_tensor){"scalar", make(data + 5, CORE_F32, 0, NULL)};
    tensors[2] = (core_named_tensor){"empty", make(data, CORE_F32, 2, none)};
    ck_assert_int_eq(core_safetensors_save(file_path, tensors, 3, NULL, 0),
                     CORE_OK);
    ck_assert_int_eq(core_safetensors_open(file_path, &file), CORE_OK);

    ck_assert_int_eq(core_safetensors_load(file, "view", cpu, &loaded),
                     CORE_OK);
    ck_assert_int_eq(core_tensor_size(loaded, 0), 3);
    ck_assert_int_eq(core_tensor_read(loaded, got, sizeof got), CORE_OK);
    ck_assert_mem_eq(got, turned, sizeof got);
    core_tensor_release(loaded);

    ck_assert_int_eq(core_safetensors_load(file, "scalar", cpu, &loaded),
                     CORE_OK);
    ck_assert_uint_eq(core_tensor_ndim(loaded), 0);
    ck_assert_int_eq(core_tensor_read(loaded, got, 4), CORE_OK);
    ck_assert(got[0] == 5);
    core_tensor_release(loaded);

    ck_assert_int_eq(core_safetensors_load(file, "empty", cpu, &loaded),
                     CORE_OK);
    ck_assert_int_eq(core_tensor_numel(loaded), 0);
    ck_assert_int_eq(core_tensor_size(loaded, 1), 4);
    core_tensor_release(loaded);

    core_safetensors_close(file);
    for (int i = 0; i < 3; i++)
        core_tensor_release(tensors[i].tensor);
    core_tensor_release(matrix);
}
END_TEST

START_TEST(metadata_texts_survive_a_round_trip)
{
    const core_named_text texts[] = {
        {"plain", "text"},
        {"quotes \"and\" \\", "line\nbreak\ttab \x01"},
        {"unicode", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"empty", ""},
    };
    core_safetensors *file;

    ck_assert_int_eq(core_safetensors_save(file_path, NULL, 0, texts, 4),
                     CORE_OK);
    ck_assert_int_eq(core_safetensors_open(file_path, &file), CORE_OK);
    ck_assert_uint_eq(core_safetensors_text_count(file), 4);
    for (int i = 0; i < 4; i++)
        ck_assert_str_eq(core_safetensors_text(file, texts[i].name),
                         texts[i].text);
    ck_assert_ptr_null(core_safetensors_text(file, "other"));
    ck_assert_ptr_null(core_safetensors_text_at(file, 4).name);
    core_safetensors_close(file);
}
END_TEST

START_TEST(saved_file_matches_the_format_byte_for_byte)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},"
        "\"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    const int32_t two[] = {1, -2};
    const uint8_t three[] = {7, 8, 9};
    const int64_t size2 = 2, size3 = 3;
    core_named_tensor tensors[] = {{"a", make(three, CORE_U8, 1, &size3)},
                                   {"b", make(two, CORE_I32, 1, &size2)}};
    const core_named_text text = {"k", "v"};
    size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    uint8_t bytes[1024];
    uint64_t length;

    ck_assert_int_eq(core_safetensors_save(file_path, tensors, 2, &text, 1),
                     CORE_OK);
    ck_assert_uint_eq(read_bytes(bytes, sizeof bytes), 8 + padded + 11);
    memcpy(&length, bytes, 8);
    ck_assert_uint_eq(length, padded);
    ck_assert_mem_eq(bytes + 8, header, sizeof header - 1);
    for (size_t i = 8 + sizeof header - 1; i < 8 + padded; i++)
        ck_assert_int_eq(bytes[i], ' ');
    ck_assert_mem_eq(bytes + 8 + padded, two, 8);
    ck_assert_mem_eq(bytes + 8 + padded + 8, three, 3);
    core_tensor_release(tensors[0].tensor);
    core_tensor_release(tensors[1].tensor);
}
END_TEST

START_TEST(header_of_another_writer_is_read)
{
    core_safetensors *file;
    core_safetensors_entry entry = {.struct_size = sizeof entry};

    write_file("{ \"w\\u0041\\n\" : {\"data_offsets\":[4, 8],\"shape\":[1 ,4],"
               "\"dtype\":\"I8\"},\n\t\"x\":{\"dtype\":\"F8_E8M0\","
               "\"shape\":[2,2],\"data_offsets\":[0,4]} }   ",
               8);
    ck_assert_msg(core_safetensors_open(file_path, &file) == CORE_OK, "%s",
                  core_error_message());
    ck_assert_int_eq(core_safetensors_describe(file, 0, &entry), CORE_OK);
    ck_assert_str_eq(entry.name, "x");
    ck_assert_uint_eq(entry.dtype, CORE_DTYPE_NONE);
    ck_assert_str_eq(entry.dtype_name, "F8_E8M0");
    ck_assert_int_eq(core_safetensors_describe(file, 1, &entry), CORE_OK);
    ck_assert_str_eq(entry.name, "wA\n");
    ck_assert_uint_eq(entry.dtype, CORE_I8);
    ck_assert_uint_eq(entry.ndim, 2);
    ck_assert_int_eq(entry.sizes[1], 4);
    ck_assert_uint_eq(entry.size, 4);
    ck_assert_int_eq(((const uint8_t *)entry.data)[0], 4);
    ck_assert_int_eq(core_safetensors_describe(file, 2, &entry),
                     CORE_ERROR_INDEX);
    core_safetensors_close(file);
}
END_TEST

/* ------------------------------------------------------------ bad files -- */

#define ONE(dtype, shape, offsets)                     \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
    ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *json;
    size_t data_size;
} malformed[] = {
    {"", 0},
    {" {}", 0},
    {"[]", 0},
    {"{", 0},
    {"{}x", 0},
    {"{\"a\"}", 0},
    {"{\"a\":1}", 0},
    {"{\"a\":{}}", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[0,1]}}",
     1},
    {"{\"a\":{\"dtype\":\"U8\",\"other\":[1],\"data_offsets\":[0,1]}}", 1},
    {ONE("U8", "[1]", "[0,1]") ",", 1},
    {ONE("U8", "[1]", "[0,2]"), 2},  /* more data than the shape needs */
    {ONE("F32", "[1]", "[0,3]"), 3}, /* less data than the shape needs */
    {ONE("U8", "[1]", "[0,1]"), 0},  /* truncated */
    {ONE("U8", "[1]", "[0,1]"), 2},  /* data beyond all tensors */
    {ONE("U8", "[1]", "[1,2]"), 2},  /* a hole */
    {ONE("U8", "[1]", "[1,0]"), 1},  /* backwards */
    {ONE("U8", "[-1]", "[0,1]"), 1},
    {ONE("U8", "[1.5]", "[0,1]"), 1},
    {ONE("U8", "[01]", "[0,1]"), 1},
    {ONE("U8", "[1,]", "[0,1]"), 1},
    {ONE("U8", "[1", "[0,1]"), 1},
    {ONE("U8", "1", "[0,1]"), 1},
    {ONE("U8", "[1]", "[0]"), 1},
    {ONE("U8", "[1]", "[0,1,2]"), 1},
    {ONE("U8", "[99999999999999999999]", "[0,1]"), 1},
    {ONE("U8", "[4294967296,4294967296]", "[0,0]"), 0}, /* 2^64 bytes */
    {ONE("F64", "[2305843009213693952]", "[0,0]"), 0},
    {ONE("U8", "[1]", "[18446744073709551615,18446744073709551616]"), 1},
    {ONE("U8",
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1]",
         "[0,1]"),
     1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3},
    {"{\"__metadata__\":{\"a\":1}}", 0},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"b}}", 0},
    {"{\"__metadata__\":{\"a\":\"\\x\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\\u12\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\\ud800\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\\ud800\\u0041\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\\udc00\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\xff\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\xc0\x80\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\xed\xa0\x80\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\xe2\x82\"}}", 0},
    {"{\"__metadata__\":{\"a\":\"\n\"}}", 0},
};
enum { MALFORMED = sizeof malformed / sizeof *malformed };

START_TEST(malformed_file_is_reported_as_corrupt_with_its_path)
{
    write_file(malformed[_i].json, malformed[_i].data_size);
    ck_assert_msg(try_open() == CORE_ERROR_CORRUPT, "%s: %s",
                  malformed[_i].json, core_error_message());
    ck_assert_ptr_nonnull(strstr(core_error_message(), file_path));
}
END_TEST

/* Writes a valid file to be damaged. */
static size_t write_valid(uint8_t *bytes, size_t capacity)
{
    write_file("{\"__metadata__\":{\"key\":\"caf\xc3\xa9\"},"
               "\"a\":{\"dtype\":\"I16\",\"shape\":[2,1],"
               "\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"BOOL\","
               "\"shape\":[],\"data_offsets\":[4,5]}}",
               5);
    ck_assert_int_eq(try_open(), CORE_OK);
    return read_bytes(bytes, capacity);
}

START_TEST(truncated_file_is_corrupt)
{
    uint8_t bytes[512];
    size_t size = write_valid(bytes, sizeof bytes);

    for (size_t cut = 0; cut < size; cut++) {
        write_bytes(bytes, cut);
        ck_assert_int_eq(try_open(), CORE_ERROR_CORRUPT);
    }
}
END_TEST

START_TEST(changed_byte_is_accepted_or_reported_as_corrupt)
{
    static const uint8_t values[] = {0, 0xff, '"', '\\', '{', '9', 1};
    uint8_t bytes[512];
    size_t size = write_valid(bytes, sizeof bytes);

    int fd = open(file_path, O_WRONLY);

    ck_assert_int_ge(fd, 0);
    for (size_t i = 0; i < size; i++) {
        for (size_t k = 0; k < sizeof values; k++) {
            core_status status;

            ck_assert_int_eq(pwrite(fd, &values[k], 1, (off_t)i), 1);
            status = try_open();
            ck_assert(status == CORE_OK || status == CORE_ERROR_CORRUPT);
        }
        ck_assert_int_eq(pwrite(fd, &bytes[i], 1, (off_t)i), 1);
    }
    close(fd);
}
END_TEST

START_TEST(header_length_beyond_the_file_is_corrupt)
{
    static const uint64_t lengths[] = {9, UINT64_MAX, UINT64_MAX - 7, 1u << 31};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t bytes[2] = {lengths[i], 0};

        write_bytes(bytes, sizeof bytes);
        ck_assert_int_eq(try_open(), CORE_ERROR_CORRUPT);
    }
}
END_TEST

START_TEST(missing_file_and_folder_are_refused)
{
    core_safetensors *file;

    ck_assert_int_eq(core_safetensors_open(file_path, &file),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_null(file);
    ck_assert_ptr_nonnull(strstr(core_error_message(), file_path));
    ck_assert_int_eq(core_safetensors_open(folder, &file), CORE_ERROR_IO);
}
END_TEST

START_TEST(unloadable_tensor_is_reported_with_reason)
{
    const float data[4] = {0};
    const int64_t sizes[] = {2, 2};
    core_tensor *wide = make(data, CORE_F32, 2, sizes), *loaded;
    core_safetensors *file;

    write_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],"
               "\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BOOL\","
               "\"shape\":[2],\"data_offsets\":[8,10]},\"c\":{\"dtype\":"
               "\"C64\",\"shape\":[1],\"data_offsets\":[10,18]},\"d\":{"
               "\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[18,34]}}",
               34);
    ck_assert_int_eq(core_safetensors_open(file_path, &file), CORE_OK);
    ck_assert_int_eq(core_safetensors_load(file, "z", cpu, &loaded),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_null(loaded);
    ck_assert_int_eq(core_safetensors_load(file, "b", cpu, &loaded),
                     CORE_ERROR_CORRUPT); /* a bool stored as 8 */
    ck_assert_int_eq(core_safetensors_load(file, "c", cpu, &loaded),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "C64"));
    ck_assert_int_eq(core_safetensors_load_into(file, "a", wide),
                     CORE_ERROR_SHAPE);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "[2, 1]"));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "[2, 2]"));
    ck_assert_int_eq(core_safetensors_load_into(file, "d", wide),
                     CORE_ERROR_DTYPE);
    core_safetensors_close(file);
    core_tensor_release(wide);
}
END_TEST

/* ------------------------------------------------------------- bad saves -- */

START_TEST(failed_save_keeps_the_old_file_and_creates_no_other)
{
    const int64_t size = 4;
    const float data[4] = {1, 2, 3, 4};
    core_device *meta;
    core_named_tensor tensors[2] = {{"good", make(data, CORE_F32, 1, &size)}};
    uint8_t before[512], after[512];
    size_t length;

    ck_assert_int_eq(core_safetensors_save(file_path, tensors, 1, NULL, 0),
                     CORE_OK);
    length = read_bytes(before, sizeof before);
    ck_assert_int_eq(core_device_find("meta", &meta), CORE_OK);
    tensors[1].name = "without data";
    ck_assert_int_eq(
        core_empty(&size, 1, CORE_F32, meta, -1, &tensors[1].tensor), CORE_OK);
    ck_assert_int_ne(core_safetensors_save(file_path, tensors, 2, NULL, 0),
                     CORE_OK);
    ck_assert_uint_eq(read_bytes(after, sizeof after), length);
    ck_assert_mem_eq(before, after, length);
    ck_assert_int_eq(files_in_folder(), 1);
    core_tensor_release(tensors[0].tensor);
    core_tensor_release(tensors[1].tensor);
}
END_TEST

START_TEST(check_path_refuses_unwritable_paths)
{
    char missing[PATH_MAX + 32];

    snprintf(missing, sizeof missing, "%s/none/file", folder);
    ck_assert_int_eq(core_safetensors_check_path(missing), CORE_ERROR_IO);
    ck_assert_ptr_nonnull(strstr(core_error_message(), missing));
    ck_assert_int_eq(core_safetensors_save(missing, NULL, 0, NULL, 0),
                     CORE_ERROR_IO);
    ck_assert_int_eq(core_safetensors_check_path(folder), CORE_ERROR_IO);
    ck_assert_int_eq(core_safetensors_check_path("/dev/null"), CORE_ERROR_IO);
    ck_assert_int_eq(core_safetensors_check_path(""),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_safetensors_check_path(file_path), CORE_OK);
    ck_assert_int_eq(files_in_folder(), 0);
}
END_TEST

START_TEST(save_follows_symlink_and_keeps_mode)
{
    char link_path[PATH_MAX + 32];
    struct stat now;

    snprintf(link_path, sizeof link_path, "%s/link", folder);
    write_bytes("old", 3);
    ck_assert_int_eq(chmod(file_path, 0640), 0);
    ck_assert_int_eq(symlink("file.safetensors", link_path), 0);
    ck_assert_int_eq(core_safetensors_save(link_path, NULL, 0, NULL, 0),
                     CORE_OK);
    ck_assert_int_eq(lstat(link_path, &now), 0);
    ck_assert(S_ISLNK(now.st_mode));
    ck_assert_int_eq(stat(file_path, &now), 0);
    ck_assert_int_eq(now.st_mode & 0777, 0640);
    ck_assert_int_eq(try_open(), CORE_OK);
    ck_assert_int_eq(files_in_folder(), 2);
}
END_TEST

static void link_to(const char *target, const char *name, char *out_path)
{
    snprintf(out_path, PATH_MAX + 32, "%s/%s", folder, name);
    ck_assert_int_eq(symlink(target, out_path), 0);
}

START_TEST(save_through_dangling_symlinks_creates_the_target)
{
    char first[PATH_MAX + 32], second[PATH_MAX + 32];
    struct stat now;

    link_to("file.safetensors", "second", second);
    link_to(second, "first", first);
    ck_assert_int_eq(core_safetensors_check_path(first), CORE_OK);
    ck_assert_int_eq(files_in_folder(), 2);
    ck_assert_int_eq(core_safetensors_save(first, NULL, 0, NULL, 0), CORE_OK);
    ck_assert_int_eq(lstat(first, &now), 0);
    ck_assert(S_ISLNK(now.st_mode));
    ck_assert_int_eq(lstat(second, &now), 0);
    ck_assert(S_ISLNK(now.st_mode));
    ck_assert_int_eq(try_open(), CORE_OK);
    ck_assert_int_eq(files_in_folder(), 3);
}
END_TEST

START_TEST(invalid_symlinks_are_refused)
{
    char path[PATH_MAX + 32];

    link_to("none/file", "lost", path);
    ck_assert_int_eq(core_safetensors_check_path(path), CORE_ERROR_IO);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "none/file"));
    link_to("ring", "ring", path);
    ck_assert_int_eq(core_safetensors_check_path(path), CORE_ERROR_IO);
    ck_assert_ptr_nonnull(strstr(core_error_message(), path));
    link_to("/dev/null", "null", path);
    ck_assert_int_eq(core_safetensors_check_path(path), CORE_ERROR_IO);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "regular"));
    ck_assert_int_eq(files_in_folder(), 3);
}
END_TEST

START_TEST(invalid_tensor_names_are_refused)
{
    const float data = 1;
    core_tensor *tensor = make(&data, CORE_F32, 0, NULL);
    const core_named_tensor twice[] = {{"a", tensor}, {"a", tensor}};
    const core_named_tensor reserved = {"__metadata__", tensor};
    const core_named_tensor no_text = {"\xff", tensor};
    const core_named_tensor nameless = {NULL, tensor};
    const core_named_text texts[] = {{"a", "b"}, {"a", "c"}};
    const core_status wanted = CORE_ERROR_INVALID_ARGUMENT;

    ck_assert_int_eq(core_safetensors_save(file_path, twice, 2, NULL, 0),
                     wanted);
    ck_assert_int_eq(core_safetensors_save(file_path, &reserved, 1, NULL, 0),
                     wanted);
    ck_assert_int_eq(core_safetensors_save(file_path, &no_text, 1, NULL, 0),
                     wanted);
    ck_assert_int_eq(core_safetensors_save(file_path, &nameless, 1, NULL, 0),
                     wanted);
    ck_assert_int_eq(core_safetensors_save(file_path, NULL, 0, texts, 2),
                     wanted);
    ck_assert_int_eq(files_in_folder(), 0);
    core_tensor_release(tensor);
}
END_TEST

/* --------------------------------------------------------------- memory -- */

static core_status save_and_load(core_tensor *tensor)
{
    const core_named_tensor named = {"a", tensor};
    const core_named_text text = {"k", "v"};
    core_safetensors *file = NULL;
    core_tensor *loaded = NULL;
    core_status status;

    status = core_safetensors_save(file_path, &named, 1, &text, 1);
    if (status == CORE_OK)
        status = core_safetensors_open(file_path, &file);
    if (status == CORE_OK)
        status = core_safetensors_load(file, "a", cpu, &loaded);
    core_tensor_release(loaded);
    core_safetensors_close(file);
    return status;
}

START_TEST(failed_allocation_leaves_no_file_and_no_memory)
{
    const int64_t size = 4;
    const float data[4] = {1, 2, 3, 4};
    core_tensor *tensor = make(data, CORE_F32, 1, &size);
    int64_t allowed = 0, live;
    core_status status;

    ck_assert_int_eq(save_and_load(tensor), CORE_OK);
    unlink(file_path);
    do {
        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        core__alloc_fault_set(allowed, false);
        status = save_and_load(tensor);
        core__alloc_fault_set(-1, false);
        ck_assert(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_le(files_in_folder(), 1);
        core__alloc_fault_set(INT64_MAX, false);
        ck_assert_int_eq(core__alloc_live(), live);
        core__alloc_fault_set(-1, false);
        allowed++;
        ck_assert_int_lt(allowed, 1000);
    } while (status != CORE_OK);
    ck_assert_int_gt(allowed, 4);
    core_tensor_release(tensor);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_dtype_is_saved_and_loaded_bit_for_bit,
        scalars_empty_tensors_and_views_are_saved_row_major,
        metadata_texts_survive_a_round_trip,
        saved_file_matches_the_format_byte_for_byte,
        header_of_another_writer_is_read,
        truncated_file_is_corrupt,
        changed_byte_is_accepted_or_reported_as_corrupt,
        header_length_beyond_the_file_is_corrupt,
        missing_file_and_folder_are_refused,
        unloadable_tensor_is_reported_with_reason,
        failed_save_keeps_the_old_file_and_creates_no_other,
        check_path_refuses_unwritable_paths,
        save_follows_symlink_and_keeps_mode,
        save_through_dangling_symlinks_creates_the_target,
        invalid_symlinks_are_refused,
        invalid_tensor_names_are_refused,
        failed_allocation_leaves_no_file_and_no_memory,
    };
    const suite_loop loops[] = {
        {malformed_file_is_reported_as_corrupt_with_its_path, 0, MALFORMED},
    };
    const test_suite suite = {
        .name = "safetensors/safetensors",
        .setup = set_up,
        .teardown = tear_down,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
