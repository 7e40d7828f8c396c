/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Ten thousand corruptions each of a file and of an index: each is opened or
 * reported as an error.  The sequence is fixed; tests/fuzz looks for others. */

#include "support/autograd.h"

#include <libcore/safetensors.h>

#include "base/memory.h"
#include "support/io_files.h"
#include "safetensors/header.h"
#include "safetensors/index.h"

#include <fcntl.h>

enum { CORRUPTIONS = 10000, ROOM = 1024 };

static uint64_t state;

/* SplitMix64. */
static uint64_t draw(uint64_t below)
{
    uint64_t x = (state += UINT64_C(0x9e3779b97f4a7c15));

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % below;
}

/* ----------------------------------------------------------- corruption -- */

static void insert(uint8_t *bytes, size_t *size, size_t at, const void *what,
                   size_t count)
{
    if (*size + count > ROOM)
        return;
    memmove(bytes + at + count, bytes + at, *size - at);
    memcpy(bytes + at, what, count);
    *size += count;
}

static void cut_out(uint8_t *bytes, size_t *size, size_t at, size_t count)
{
    if (count > *size - at)
        count = *size - at;
    memmove(bytes + at, bytes + at + count, *size - at - count);
    *size -= count;
}

static void corrupt_once(uint8_t *bytes, size_t *size, size_t from)
{
    static const char *const words[] = {
        "{",     "}",      "[",          "]",    ",",
        ":",     "\"",     "\\u0000",    "\\",   "-1",
        "1e9",   "null",   "\xff",       "../",  "9223372036854775807",
        "\"a\"", "{\"a\"", "\\ud800",    "0",    "18446744073709551616",
        "[[[[",  "F64",    "\"dtype\":", "\xc3", "4611686018427387904"};
    size_t at = from + (*size > from ? draw(*size - from) : 0);
    const char *word = words[draw(sizeof words / sizeof *words)];
    uint8_t copy[16];

    if (at >= *size)
        return;
    switch (draw(6)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        bytes[at] = (uint8_t)draw(256);
        break;
    case 2:
        cut_out(bytes, size, at, 1 + draw(8));
        break;
    case 3:
        insert(bytes, size, at, word, strlen(word));
        break;
    case 4: /* replaced by a token of another kind */
        cut_out(bytes, size, at, draw(4));
        insert(bytes, size, at, word, strlen(word));
        break;
    default:
        if (*size - at < sizeof copy)
            break;
        memcpy(copy, bytes + at, sizeof copy);
        insert(bytes, size, from + draw(*size - from), copy, 1 + draw(16));
    }
}

static void corrupt(uint8_t *bytes, size_t *size, size_t from)
{
    for (uint64_t times = 1 + draw(4); times > 0; times--)
        corrupt_once(bytes, size, from);
}

/* ------------------------------------------------------------ invariants -- */

static void check_status(core_status status)
{
    ck_assert_msg(status == CORE_OK || status == CORE_ERROR_CORRUPT ||
                      status == CORE_ERROR_UNSUPPORTED ||
                      status == CORE_ERROR_NOT_FOUND || status == CORE_ERROR_IO,
                  "%s: %s", core_status_name(status), core_error_message());
    ck_assert(status == CORE_OK || *core_error_message());
}

/* Every tensor of an accepted file can be loaded or is refused with a
 * reason. */
static void use(core_safetensors *file)
{
    core_safetensors_entry entry = {.struct_size = sizeof entry};

    for (size_t i = 0; i < core_safetensors_count(file); i++) {
        core_tensor *copied = NULL, *mapped = NULL;
        core_status status;

        OK(core_safetensors_describe(file, i, &entry));
        status = core_safetensors_load(file, entry.name, NULL, &copied);
        check_status(status);
        ck_assert((status == CORE_OK) == (copied != NULL));
        if (copied)
            ck_assert_uint_eq((uint64_t)core_tensor_numel(copied) *
                                  core_dtype_size(entry.dtype),
                              entry.size);
        check_status(core_safetensors_tensor(file, entry.name, &mapped));
        core_tensor_release(copied);
        core_tensor_release(mapped);
    }
    for (size_t i = 0; i < core_safetensors_text_count(file); i++)
        ck_assert_ptr_nonnull(core_safetensors_text_at(file, i).text);
}

/* Opens the file; returns whether that succeeded. */
static bool try_file(const char *path)
{
    core_safetensors *file = NULL;
    core_status status = core_safetensors_map(path, &file);

    check_status(status);
    ck_assert((status == CORE_OK) == (file != NULL));
    if (file)
        use(file);
    core_safetensors_close(file);
    return status == CORE_OK;
}

static void write_at(int fd, const uint8_t *bytes, size_t size)
{
    ck_assert_int_eq(pwrite(fd, bytes, size, 0), (ssize_t)size);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
}

/* Some corruptions must be accepted and some refused; nothing may leak. */
static void count_kinds(int accepted, int64_t live)
{
    ck_assert_int_gt(accepted, CORRUPTIONS / 100);
    ck_assert_int_lt(accepted, CORRUPTIONS * 9 / 10);
    ck_assert_int_eq(core__alloc_live(), live);
}

/* ---------------------------------------------------------------- tests -- */

static const char header_json[] =
    "{\"__metadata__\":{\"key\":\"caf\xc3\xa9\",\"k\":\"\\u00e9\"},"
    "\"a\":{\"dtype\":\"I16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[4,5]},"
    "\"c\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[5,5]}}   ";

static const char index_json[] =
    "{\"metadata\":{\"total_size\":5,\"x\":\"y\",\"z\":[1,{\"q\":null}]},"
    "\"weight_map\":{\"a\":\"file.safetensors\",\"b\":\"file.safetensors\"}}";

START_TEST(damaged_file_is_opened_or_refused)
{
    uint8_t valid[ROOM], bytes[ROOM];
    size_t valid_size, size;
    int64_t live = 0;
    int fd, accepted = 0;

    write_file(header_json, 5);
    valid_size = read_bytes(valid, sizeof valid);
    ck_assert(try_file(file_path));
    fd = open(file_path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    core__alloc_fault_set(INT64_MAX, false);
    for (state = 0; state < CORRUPTIONS; state++) {
        uint64_t kept = state, length;

        memcpy(bytes, valid, valid_size);
        size = valid_size;
        /* Every other corruption spares the header length, which is fixed
         * up. */
        corrupt(bytes, &size, state % 2 ? 8 : 0);
        length = size - 5 - 8;
        if (kept % 2 && size > 13)
            memcpy(bytes, &length, 8);
        write_at(fd, bytes, size);
        accepted += try_file(file_path);
        state = kept;
        if (!kept)
            live = core__alloc_live();
    }
    close(fd);
    count_kinds(accepted, live);
}
END_TEST

START_TEST(damaged_index_is_opened_or_refused)
{
    uint8_t bytes[ROOM];
    char path[PATH_MAX + 32];
    int64_t live = 0;
    int fd, accepted = 0;

    write_file(header_json, 5);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    write_at(fd, (const uint8_t *)index_json, sizeof index_json - 1);
    ck_assert(try_file(path));
    core__alloc_fault_set(INT64_MAX, false);
    for (state = 0; state < CORRUPTIONS; state++) {
        size_t size = sizeof index_json - 1;
        uint64_t kept = state;

        memcpy(bytes, index_json, size);
        corrupt(bytes, &size, 0);
        write_at(fd, bytes, size);
        accepted += try_file(path);
        state = kept;
        if (!kept)
            live = core__alloc_live();
    }
    close(fd);
    count_kinds(accepted, live);
}
END_TEST

/* Runs the parsers on blocks of exact size, so that a sanitizer sees
 * overreads. */
START_TEST(parsers_do_not_read_beyond_their_input)
{
    core__safetensors_header header;
    core__shard_index index;

    for (state = 0; state < CORRUPTIONS; state++) {
        const char *json = state % 2 ? header_json : index_json;
        size_t size = strlen(json);
        uint64_t kept = state;
        uint8_t bytes[ROOM];
        char *exact;

        memcpy(bytes, json, size);
        corrupt(bytes, &size, 0);
        size = draw(3) ? size : draw(size + 1); /* sometimes truncated */
        exact = malloc(size ? size : 1);
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, bytes, size);
        if (kept % 2) {
            check_status(
                core__safetensors_header_parse(&header, "x", exact, size, 5));
            core__safetensors_header_free(&header);
        } else {
            check_status(core__shard_index_parse(&index, "x", exact, size));
            core__shard_index_free(&index);
        }
        free(exact);
        state = kept;
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        damaged_file_is_opened_or_refused,
        damaged_index_is_opened_or_refused,
        parsers_do_not_read_beyond_their_input,
    };

    return run_files("safetensors/safetensors_damage", tests,
                     sizeof tests / sizeof *tests);
}
