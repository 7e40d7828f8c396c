/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Parts of tensors by an index, and the main function of a program. */

#include "support/autograd.h"

#include <libcore/expressions.h>

/* 0 to 23 in sizes 2, 3, 4. */
static core_tensor *numbers(void)
{
    return core_x_reshape(core_x_arange(24, CORE_F64), CORE_SIZES(2, 3, 4));
}

/* Whether a part has these sizes and elements, the first and the last. */
static void is(core_tensor *part, core_sizes sizes, double first, double last)
{
    core_tensor *flat;

    OK(core_scope_status());
    ck_assert_uint_eq(core_tensor_ndim(part), sizes.count);
    for (size_t i = 0; i < sizes.count; i++)
        ck_assert_int_eq(core_x_size(part, (int64_t)i), sizes.items[i]);
    flat = core_x_reshape(part, CORE_SIZES(-1));
    ck_assert_double_eq(core_x_item_float(core_x_select(flat, 0, 0)), first);
    ck_assert_double_eq(core_x_item_float(core_x_select(flat, 0, -1)), last);
}

START_TEST(an_index_is_that_of_python)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = numbers();

    is(core_x_part(x, "1"), CORE_SIZES(3, 4), 12, 23);
    is(core_x_part(x, "-2, 1"), CORE_SIZES(4), 4, 7);
    is(core_x_part(x, ":, 1:, 2"), CORE_SIZES(2, 2), 6, 22);
    is(core_x_part(x, ":,:,:-1"), CORE_SIZES(2, 3, 3), 0, 22);
    is(core_x_part(x, ":, ::2, 1:4:2"), CORE_SIZES(2, 2, 2), 1, 23);
    is(core_x_part(x, "..., 1"), CORE_SIZES(2, 3), 1, 21);
    is(core_x_part(x, "1, ..., -1:"), CORE_SIZES(3, 1), 15, 23);
    is(core_x_part(x, "1, 2, 3, ..."), CORE_NO_SIZES, 23, 23);
    is(core_x_part(x, "1, 0, ..., None, 2:"), CORE_SIZES(1, 2), 14, 15);
    is(core_x_part(x, "None, :, None, 0"), CORE_SIZES(1, 2, 1, 4), 0, 15);
    is(core_x_part(x, "..., None"), CORE_SIZES(2, 3, 4, 1), 0, 23);
    is(core_x_part(x, "  1 , 2:  "), CORE_SIZES(1, 4), 20, 23);
    ck_assert_ptr_eq(core_x_part(x, ":"), x);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(stars_stand_for_numbers)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = numbers();
    int64_t a = 1, b = 3;
    int i = -1;

    is(core_x_part(x, "*", i), CORE_SIZES(3, 4), 12, 23);
    is(core_x_part(x, "0, *:*, *", a, b, i), CORE_SIZES(2), 7, 11);
    is(core_x_part(x, "..., *::*", 1, 2), CORE_SIZES(2, 3, 2), 1, 23);
    is(core_x_part(x, "*:*:*, *:*:*, *:*", 0, 2, 1, 0, 3, 2, 0, 4),
       CORE_SIZES(2, 2, 4), 0, 23);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_part_is_a_view)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = numbers(), *y = leaf(VECTOR(3, 1, 2, 3));

    core_x_copy_(core_x_part(x, "1, :, 2"), core_x_ones(CORE_SIZES(3)));
    is(core_x_part(x, "1, 1:"), CORE_SIZES(2, 4), 16, 23);
    is(core_x_part(x, "1, 1, 2:"), CORE_SIZES(2), 1, 19);
    backward(core_x_sum(core_x_mul(core_x_part(y, "1:"), 2)));
    HOLDS(core_tensor_grad(y), 3, 0, 2, 2);
    OK(core_scope_end(scope));
}
END_TEST

/* Whether the call is an error with the text. */
#define REFUSED(code, call, ...)                             \
    do {                                                     \
        core_scope refused_ = core_scope_begin();            \
        core_tensor *x = numbers();                          \
                                                             \
        ck_assert_ptr_nonnull(x);                            \
        ck_assert_ptr_null(call);                            \
        FAILS(core_scope_end(refused_), code, "core_x_part", \
              "test_part.c:", __VA_ARGS__);                  \
    } while (0)

START_TEST(a_malformed_index_is_refused)
{
    const core_status wrong = CORE_ERROR_INVALID_ARGUMENT;

    REFUSED(wrong, core_x_part(x, ""), "\"\" at character 1: expected a");
    REFUSED(wrong, core_x_part(x, "0, a"), "\"0, a\" at character 4");
    REFUSED(wrong, core_x_part(x, "0,, 1"),
            "at character 3: expected a number");
    REFUSED(wrong, core_x_part(x, "0 1"), "at character 3: expected a comma");
    REFUSED(wrong, core_x_part(x, "1:2:3:4"),
            "at character 6: expected a comma");
    REFUSED(wrong, core_x_part(x, "0, 0, 0, 0"),
            "at character 10: the tensor, of sizes [2, 3, 4], has no more");
    REFUSED(wrong, core_x_part(x, "..., 0, 0, 0, 0"), "no more dimensions");
    REFUSED(wrong, core_x_part(x, "..., ..."), "only one \"...\" is allowed");
    REFUSED(wrong, core_x_part(x, "0, .."),
            "at character 4: expected a number");
    REFUSED(wrong, core_x_part(x, "::-1"), "step of a slice must be positive");
    REFUSED(wrong, core_x_part(x, "::0"), "step of a slice must be positive");
    REFUSED(wrong, core_x_part(x, "*"),
            "\"*\" needs 1 integers, one for each \"*\"; the call passes 0");
    REFUSED(wrong, core_x_part(x, "*:*", 1),
            "\"*:*\" needs 2 integers, one for each \"*\"; the call passes 1");
    REFUSED(wrong, core_x_part(x, ":", 1),
            "\":\" needs 0 integers, one for each \"*\"; the call passes 1");
    REFUSED(wrong, core_x_part(x, "99999999999999999999"), "out of range");
    REFUSED(wrong, core_x_part(x, NULL), "index is NULL");
    REFUSED(wrong, core_x_part(NULL, "0"), "tensor is NULL");
}
END_TEST

START_TEST(an_index_out_of_range_is_an_error)
{
    core_scope scope = core_scope_begin();

    ck_assert_ptr_null(core_x_part(numbers(), "0, 3"));
    ck_assert_ptr_null(core_x_part(NULL, "0"));
    FAILS(core_scope_end(scope), CORE_ERROR_INDEX, "select", "test_part.c:");
}
END_TEST

/* ----------------------------------------------------------------- main -- */

/* The main function of a program under another name. */
int program(int count, char **words);

#define main program
CORE_MAIN(count, words)
{
    core_tensor *x = core_x_ones(CORE_SIZES(count, 2));

    ck_assert_ptr_null(words[count]);
    core_x_matmul(x, x);
}
#undef main

START_TEST(a_program_ends_with_the_status_of_its_scope)
{
    char name[] = "program", *words[] = {name, name, NULL};

    ck_assert_int_eq(program(2, words), 0);
    words[1] = NULL;
    ck_assert_int_eq(program(1, words), 1);
    ck_assert(strstr(core_error_message(), "matmul"));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        an_index_is_that_of_python,
        stars_stand_for_numbers,
        a_part_is_a_view,
        a_malformed_index_is_refused,
        an_index_out_of_range_is_an_error,
        a_program_ends_with_the_status_of_its_scope,
    };
    const test_suite suite = {
        .name = "scope/part", .teardown = drop_all, SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
