/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "base/growing_text.h"
#include "base/memory.h"

#include <check.h>
#include <string.h>

START_TEST(pieces_of_any_length_are_written)
{
    core__text_writer writer = {.status = CORE_OK};
    char piece[1000], *text;

    memset(piece, 'x', sizeof piece - 1);
    piece[sizeof piece - 1] = '\0';
    for (int length = 0; length < 999; length++)
        core__text_write(&writer, "%.*s|%d;", length, piece, length);
    ck_assert_int_eq(core__text_writer_finish(&writer, &text), CORE_OK);
    for (int length = 0, at = 0; length < 999; length++) {
        char number[16];

        ck_assert_int_eq((int)strspn(text + at, "x"), length);
        at += length;
        at += snprintf(number, sizeof number, "|%d;", length);
        ck_assert_int_eq(
            strncmp(text + at - strlen(number), number, strlen(number)), 0);
        ck_assert_int_eq(text[at] == '\0', length == 998);
    }
    core__free(text);
}
END_TEST

START_TEST(text_without_pieces_is_empty)
{
    core__text_writer writer = {.status = CORE_OK};
    char *text;

    ck_assert_int_eq(core__text_writer_finish(&writer, &text), CORE_OK);
    ck_assert_str_eq(text, "");
    core__free(text);
}
END_TEST

START_TEST(the_first_error_is_returned)
{
    core__text_writer writer = {.status = CORE_OK};
    char *text = (char *)"x";

    core__text_write(&writer, "%s", "abc");
    writer.status = CORE_ERROR_OUT_OF_MEMORY;
    core__text_write(&writer, "%s", "def");
    ck_assert_int_eq(core__text_writer_finish(&writer, &text),
                     CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_ptr_null(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        pieces_of_any_length_are_written,
        text_without_pieces_is_empty,
        the_first_error_is_returned,
    };
    const test_suite suite = {
        .name = "base/growing_text",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
