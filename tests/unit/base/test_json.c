/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "base/json.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[4096];
static size_t used, capacity = sizeof text - 1;

static bool collect(void *context, const char *from, size_t size)
{
    (void)context;
    if (size > capacity - used)
        return false;
    memcpy(text + used, from, size);
    used += size;
    text[used] = '\0';
    return true;
}

static core__json json;

static void start(void)
{
    used = 0;
    text[0] = '\0';
    core__json_begin(&json, collect, NULL);
}

START_TEST(nesting_commas_and_line_breaks_are_written)
{
    core__json_object(&json, NULL);
    core__json_text(&json, "a", "b");
    core__json_array(&json, "list");
    core__json_integer(&json, NULL, -1);
    core__json_unsigned(&json, NULL, UINT64_MAX);
    core__json_end(&json);
    core__json_object(&json, "empty");
    core__json_end(&json);
    json.flat = true;
    core__json_object(&json, "flat");
    core__json_boolean(&json, "x", true);
    core__json_array(&json, "y");
    core__json_text(&json, NULL, NULL);
    core__json_integer(&json, NULL, 1);
    core__json_end(&json);
    core__json_end(&json);
    core__json_boolean(&json, "last", false);
    core__json_end(&json);
    ck_assert(core__json_finish(&json));
    ck_assert_str_eq(text, "{\n"
                           "  \"a\": \"b\",\n"
                           "  \"list\": [\n"
                           "    -1,\n"
                           "    18446744073709551615\n"
                           "  ],\n"
                           "  \"empty\": {},\n"
                           "  \"flat\": {\"x\": true, \"y\": [null, 1]},\n"
                           "  \"last\": false\n"
                           "}\n");
}
END_TEST

START_TEST(texts_are_escaped_and_valid)
{
    core__json_text(&json, NULL,
                    "\"\\\n\t\x01\x7f"
                    "\xc3\xa9\xf0\x9f\x98\x80"           /* é and an emoji */
                    "\xff\xc0\x80\xed\xa0\x80\xe2\x82"); /* invalid UTF-8 */
    ck_assert(core__json_finish(&json));
    ck_assert_str_eq(text, "\"\\\"\\\\\\n\\u0009\\u0001\\u007f"
                           "\xc3\xa9\xf0\x9f\x98\x80"
                           "\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd"
                           "\\ufffd\\ufffd\"\n");
}
END_TEST

START_TEST(numbers_read_back_the_same)
{
    static const double values[] = {0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 3};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        start();
        core__json_number(&json, NULL, values[i]);
        ck_assert(strtod(text, NULL) == values[i]);
    }
    start();
    core__json_number(&json, NULL, 0.1);
    ck_assert_str_eq(text, "0.1");
    start();
    core__json_number(&json, NULL, NAN);
    ck_assert_str_eq(text, "null");
}
END_TEST

START_TEST(unclosed_value_is_an_error)
{
    core__json_array(&json, NULL);
    ck_assert(!core__json_finish(&json));
    start();
    core__json_end(&json);
    ck_assert(!core__json_finish(&json));
}
END_TEST

START_TEST(too_deep_nesting_is_an_error)
{
    for (int i = 0; i <= CORE__JSON_DEPTH; i++)
        core__json_array(&json, NULL);
    for (int i = 0; i <= CORE__JSON_DEPTH; i++)
        core__json_end(&json);
    ck_assert(!core__json_finish(&json));
}
END_TEST

START_TEST(failing_writer_is_an_error)
{
    capacity = 3;
    core__json_text(&json, NULL, "long");
    ck_assert(!core__json_finish(&json));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        nesting_commas_and_line_breaks_are_written,
        texts_are_escaped_and_valid,
        numbers_read_back_the_same,
        unclosed_value_is_an_error,
        too_deep_nesting_is_an_error,
        failing_writer_is_an_error,
    };
    const test_suite suite = {
        .name = "base/json",
        .setup = start,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
