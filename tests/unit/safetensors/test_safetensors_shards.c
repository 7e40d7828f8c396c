/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Models that are split into shards, with an index. */

#include "support/autograd.h"

#include <libcore/safetensors.h>

#include "base/memory.h"
#include "support/io_files.h"

#include <sys/stat.h>

#define ONE "one-00001-of-00002.safetensors"
#define TWO "two-00002-of-00002.safetensors"

static char index_path[PATH_MAX + 32];

static void write_index(const char *json)
{
    FILE *file;

    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json",
             folder);
    file = fopen(index_path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(json, file), 0);
    fclose(file);
}

static void save_as(const char *name, const core_named_tensor *tensors,
                    size_t count)
{
    char path[PATH_MAX + 80];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    OK(core_safetensors_save(path, tensors, count, NULL, 0));
}

/* a [2] and b [1] in one file, c [2] and d, which the index omits, in
 * another. */
static void save_shards(void)
{
    const core_named_tensor one[2] = {{"a", VECTOR(2, 1, 2)},
                                      {"b", VECTOR(1, 3)}};
    const core_named_tensor two[2] = {{"c", VECTOR(2, 4, 5)},
                                      {"d", VECTOR(1, 6)}};

    save_as(ONE, one, 2);
    save_as(TWO, two, 2);
}

static const char usual[] =
    "{\"metadata\": {\"total_size\": 40, \"made by\": \"hand\",\n"
    " \"more\": [1, -2.5e3, {\"x\": null, \"y\": []}, true, \"\\u00e9\"]},\n"
    " \"weight_map\": {\"c\": \"" TWO "\", \"a\": \"" ONE "\",\n"
    " \"b\": \"" ONE "\"}, \"other\": {}}\n";

static core_status open_index(core_safetensors **out_file)
{
    core_status status = core_safetensors_open(index_path, out_file);

    ck_assert((status == CORE_OK) == (*out_file != NULL));
    return status;
}

/* -------------------------------------------------------------- reading -- */

START_TEST(shards_are_read_like_one_file)
{
    static const char *const names[] = {"a", "b", "c"};
    core_safetensors_entry entry = {.struct_size = sizeof entry};
    core_safetensors *file;
    core_tensor *tensor;

    save_shards();
    write_index(usual);
    OK(open_index(&file));
    ck_assert_uint_eq(core_safetensors_count(file), 3);
    for (size_t i = 0; i < 3; i++) {
        OK(core_safetensors_describe(file, i, &entry));
        ck_assert_str_eq(entry.name, names[i]);
    }
    FAILS(core_safetensors_describe(file, 3, &entry), CORE_ERROR_INDEX, "3");
    ck_assert(!core_safetensors_has(file, "d"));
    ck_assert(!core_safetensors_has(file, NULL));
    ck_assert(!core_safetensors_has(NULL, "d"));
    ck_assert_uint_eq(core_safetensors_count(NULL), 0);
    ck_assert_uint_eq(core_safetensors_text_count(NULL), 0);
    ck_assert_ptr_null(core_safetensors_text(NULL, "d"));
    ck_assert_ptr_null(core_safetensors_text_at(NULL, 0).name);
    OK(core_safetensors_load(file, "c", NULL, &tensor));
    HOLDS(keep(tensor), 2, 4, 5);
    OK(core_safetensors_load_into(file, "a", tensor));
    HOLDS(tensor, 2, 1, 2);
    ck_assert_str_eq(core_safetensors_text(file, "made by"), "hand");
    ck_assert_uint_eq(core_safetensors_text_count(file), 1);
    ck_assert_ptr_null(core_safetensors_text(file, "total_size"));
    core_safetensors_close(file);
}
END_TEST

START_TEST(shards_are_mapped_and_unmapped_separately)
{
    core_safetensors *file;
    core_tensor *a, *c;

    save_shards();
    write_index(usual);
    OK(core_safetensors_map(index_path, &file));
    OK(core_safetensors_tensor(file, "a", &a));
    OK(core_safetensors_tensor(file, "c", &c));
    core_safetensors_close(file);
    core_tensor_release(a);
    HOLDS(keep(c), 2, 4, 5);
}
END_TEST

START_TEST(shards_may_be_in_subfolders)
{
    const core_named_tensor one = {"a", VECTOR(2, 1, 2)};
    char path[PATH_MAX + 8];
    core_safetensors *file;

    snprintf(path, sizeof path, "%s/sub", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    save_as("sub/..one", &one, 1);
    write_index("{\"weight_map\":{\"a\":\"sub/..one\"}}");
    OK(open_index(&file));
    core_safetensors_close(file);
}
END_TEST

/* --------------------------------------------------------------- faults -- */

START_TEST(missing_shard_is_named)
{
    core_safetensors *file;

    save_shards();
    write_index("{\"weight_map\":{\"a\":\"" ONE "\",\"c\":\"three\"}}");
    FAILS(open_index(&file), CORE_ERROR_NOT_FOUND, index_path,
          "the shard \"three\" does not exist");
    FAILS(core_safetensors_open("/nowhere/x.json", &file), CORE_ERROR_NOT_FOUND,
          "/nowhere/x.json");
}
END_TEST

START_TEST(tensor_missing_in_its_shard_is_named)
{
    core_safetensors *file;

    save_shards();
    write_index("{\"weight_map\":{\"a\":\"" ONE "\",\"c\":\"" ONE "\"}}");
    FAILS(open_index(&file), CORE_ERROR_CORRUPT, index_path, "\"c\"", ONE,
          "is not in the shard");
}
END_TEST

START_TEST(damaged_shard_is_named)
{
    core_safetensors *file;

    save_shards();
    write_named(TWO,
                "{\"c\":{\"dtype\":\"F64\",\"shape\":[2],"
                "\"data_offsets\":[0,16]}}",
                15);
    write_index(usual);
    FAILS(open_index(&file), CORE_ERROR_CORRUPT, TWO, "truncated");
}
END_TEST

static const char *const outside[] = {
    "../x", "/etc/passwd", "sub/../../x",      "..",
    ".",    "./" ONE,      "sub//x",           "",
    "x/",   "x/..",        "\\u002e\\u002e/x",
};

START_TEST(shard_names_outside_the_folder_are_refused)
{
    core_safetensors *file;
    char json[200];

    save_shards();
    snprintf(json, sizeof json, "{\"weight_map\":{\"a\":\"%s\"}}", outside[_i]);
    write_index(json);
    FAILS(open_index(&file), CORE_ERROR_CORRUPT, index_path, "\"a\"",
          "must be in the index's directory");
}
END_TEST

static const struct {
    const char *json;
    const char *text;
} malformed[] = {
    {"[]", "byte 0: expected an object"},
    {"{", "expected a string"},
    {"{}", "weight_map is missing"},
    {"{\"weight_map\":{}}", "or empty"},
    {"{\"weight_map\":[]}", "expected an object"},
    {"{\"weight_map\":{\"a\":1}}", "expected a string"},
    {"{\"weight_map\":{\"a\":\"" ONE "\",}}", "expected a string"},
    {"{\"weight_map\":{\"a\" \"" ONE "\"}}", "expected a colon"},
    {"{\"weight_map\":{\"a\":\"" ONE "\"}", "expected }"},
    {"{\"weight_map\":{\"a\":\"" ONE "\"}} x", "expected nothing"},
    {"{\"weight_map\":{\"a\":\"" ONE "\",\"a\":\"" TWO "\"}}", "two tensors"},
    {"{\"weight_map\":{\"a\":\"" ONE "\"},\"weight_map\":{}}", "duplicate"},
    {"{\"metadata\":{\"a\":\"b\"},\"metadata\":{}}", "duplicate metadata"},
    {"{\"metadata\":{\"a\":\"b\",\"a\":\"c\"},"
     "\"weight_map\":{\"a\":\"" ONE "\"}}",
     "two metadata entries"},
    {"{\"metadata\":3,\"weight_map\":{}}", "expected an object"},
    {"{\"x\":[1,]}", "expected a value"},
    {"{\"x\":[1 2]}", "expected a comma"},
    {"{\"x\":{\"a\":1,}}", "expected a string"},
    {"{\"x\":{\"a\" 1}}", "expected a colon"},
    {"{\"x\":[1}}", "expected a comma"},
    {"{\"x\":", "expected a value"},
    {"{\"x\":\"\xff\"}", "not UTF-8"},
};

START_TEST(malformed_index_is_reported_as_corrupt_with_its_path)
{
    core_safetensors *file;

    save_shards();
    write_index(malformed[_i].json);
    FAILS(open_index(&file), CORE_ERROR_CORRUPT, index_path,
          malformed[_i].text);
}
END_TEST

START_TEST(deeply_nested_json_is_refused_without_stack_overflow)
{
    enum { DEEP = 100000 };
    char *json = malloc(DEEP + 8);
    core_safetensors *file;

    ck_assert_ptr_nonnull(json);
    memcpy(json, "{\"x\":", 5);
    memset(json + 5, '[', DEEP);
    json[5 + DEEP] = 0;
    write_index(json);
    FAILS(open_index(&file), CORE_ERROR_CORRUPT, "nested too deep");
    free(json);
}
END_TEST

START_TEST(failed_allocation_leaves_no_shard_open)
{
    int64_t allowed = 0, live;
    core_safetensors *file;
    core_status status;

    save_shards();
    write_index(usual);
    do {
        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        core__alloc_fault_set(allowed++, false);
        status = open_index(&file);
        core__alloc_fault_set(INT64_MAX, false);
        core_safetensors_close(file);
        ck_assert(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_eq(core__alloc_live(), live);
        core__alloc_fault_set(-1, false);
        ck_assert_int_lt(allowed, 1000);
    } while (status != CORE_OK);
    ck_assert_int_gt(allowed, 10);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        shards_are_read_like_one_file,
        shards_are_mapped_and_unmapped_separately,
        shards_may_be_in_subfolders,
        missing_shard_is_named,
        tensor_missing_in_its_shard_is_named,
        damaged_shard_is_named,
        deeply_nested_json_is_refused_without_stack_overflow,
        failed_allocation_leaves_no_shard_open,
    };
    const suite_loop loops[] = {
        {shard_names_outside_the_folder_are_refused, 0,
         sizeof outside / sizeof *outside},
        {malformed_index_is_reported_as_corrupt_with_its_path, 0,
         sizeof malformed / sizeof *malformed},
    };
    const test_suite suite = {
        .name = "safetensors/safetensors_shards",
        .setup = set_up,
        .teardown = tear_down,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
