/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* In a program whose locale has a decimal comma, numbers are written and read
 * with a point.  The test creates the locale: none need be installed. */

#define SUITE_FORKS true

#include "support/stream.h"
#include "support/temporary_files.h"

#include "base/json.h"
#include "base/text.h"

#include <libcore/memory.h>

#include <locale.h>
#include <sys/stat.h>

/* What the C library keeps from LOCPATH is not a leak of libcore. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:argz_add_sep";
}

static temporary_path folder;
static char path[PATH_MAX + 32];
static locale_t comma;

/* The file of glibc's category LC_NUMERIC: its magic number, six offsets, then
 * decimal point, separator and grouping, the first two again as wide
 * characters, and the character set. */
static void write_locale(void)
{
    const uint32_t head[] = {
        0x20031115 ^ LC_NUMERIC, 6, 32, 34, 35, 36, 40, 44};
    const uint32_t wide[] = {',', 0};
    FILE *file;

    temporary_folder(folder, "libcore-locale");
    snprintf(path, sizeof path, "%s/comma", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    strcat(path, "/LC_NUMERIC");
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    fwrite(head, sizeof head, 1, file);
    fwrite(",\0\0\0", 4, 1, file);
    fwrite(wide, sizeof wide, 1, file);
    fwrite("UTF-8", 6, 1, file);
    fclose(file);
}

static void use_comma(void)
{
    char text[16];

    write_locale();
    setenv("LOCPATH", folder, 1);
    comma = newlocale(LC_NUMERIC_MASK, "comma", (locale_t)0);
    ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, "comma"));
    temporary_remove(folder);
    snprintf(text, sizeof text, "%g", 0.5);
    ck_assert_str_eq(text, "0,5");
}

START_TEST(numbers_are_written_with_a_point)
{
    const float data[] = {1.5f, 0.1f};
    const int64_t n = 2;
    core_tensor *tensor;
    char *text;

    OK(core_tensor_from_data(data, CORE_F32, &n, 1, NULL, &tensor));
    OK(core_tensor_format(keep(tensor), &text));
    ck_assert_str_eq(text, "[1.5 0.1]");
    core_text_free(text);
    OK(core_tensor_format(SCALAR(0.1), &text));
    ck_assert_ptr_nonnull(strstr(text, "0.1"));
    core_text_free(text);
}
END_TEST

START_TEST(numbers_in_errors_have_a_point)
{
    core_tensor *x = VECTOR(2, 1, 2), *out;

    FAILS(core_dropout(x, 1.5, true, &out), CORE_ERROR_INVALID_ARGUMENT, "1.5");
    FAILS(core_full_like(x, core_float(300.5), CORE_U8, NULL, -1, &out),
          CORE_ERROR_INVALID_ARGUMENT, "300.5");
}
END_TEST

START_TEST(numbers_in_plugin_errors_have_a_point)
{
    FAILS(core_normal_(VECTOR(2, 1, 2), 0, -1.5, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "normal_", "-1.5");
    ck_assert_str_eq(setlocale(LC_NUMERIC, NULL), "comma");
}
END_TEST

static char json_text[64];

static bool append(void *context, const char *text, size_t size)
{
    (void)context;
    strncat(json_text, text, size);
    return true;
}

START_TEST(numbers_in_json_have_a_point)
{
    core__json json;

    core__json_begin(&json, append, NULL);
    core__json_array(&json, NULL);
    core__json_number(&json, NULL, 0.1);
    core__json_number(&json, NULL, 1.0 / 3);
    core__json_end(&json);
    ck_assert(core__json_finish(&json));
    ck_assert_ptr_nonnull(strstr(json_text, "0.1"));
    /* and are the shortest that read back as the same value */
    ck_assert_ptr_null(strstr(json_text, "0.1000"));
    ck_assert_ptr_nonnull(strstr(json_text, "0.3333333333333333"));
}
END_TEST

START_TEST(settings_are_read_with_a_point)
{
    OK(core_memory_configure(NULL, "fraction:0.5"));
    FAILS(core_memory_configure(NULL, "fraction:0,5"),
          CORE_ERROR_INVALID_ARGUMENT, "fraction");
}
END_TEST

START_TEST(locale_of_the_program_is_unchanged)
{
    locale_t before = uselocale(comma);
    char text[16];

    core__format(text, sizeof text, "%g", 0.5);
    ck_assert_str_eq(text, "0.5");
    ck_assert_double_eq(core__parse_double("0.25", NULL), 0.25);
    ck_assert_float_eq(core__parse_float("0.25", NULL), 0.25f);
    ck_assert(uselocale((locale_t)0) == comma);
    ck_assert_str_eq(setlocale(LC_NUMERIC, NULL), "comma");
    uselocale(before);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {numbers_are_written_with_a_point,
                                  numbers_in_errors_have_a_point,
                                  numbers_in_plugin_errors_have_a_point,
                                  numbers_in_json_have_a_point,
                                  settings_are_read_with_a_point,
                                  locale_of_the_program_is_unchanged};

    return run_suite_with("base/locale", use_comma, tests,
                          sizeof tests / sizeof *tests);
}
