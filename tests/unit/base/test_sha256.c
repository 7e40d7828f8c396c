/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "base/sha256.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void assert_hash(const char *text, size_t size, size_t step, bool in_c,
                        const char *expected)
{
    core__sha256 self;
    char is[65];

    core__sha256_begin(&self);
    self.in_c |= in_c;
    for (size_t at = 0; at < size; at += step)
        core__sha256_add(&self, text + at, size - at < step ? size - at : step);
    core__sha256_end(&self, is);
    ck_assert_str_eq(is, expected);
}

static void assert_both(const char *text, size_t size, const char *expected)
{
    static const size_t steps[] = {1, 3, 63, 64, 65, 200, SIZE_MAX / 2};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_hash(text, size, steps[i], false, expected);
        assert_hash(text, size, steps[i], true, expected);
    }
}

/* FIPS 180-4's examples. */
START_TEST(hashes_are_those_of_the_standard)
{
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmno"
                             "mnopnopq";

    assert_both("", 0,
                "e3b0c44298fc1c149afbf4c8996fb924"
                "27ae41e4649b934ca495991b7852b855");
    assert_both("abc", 3,
                "ba7816bf8f01cfea414140de5dae2223"
                "b00361a396177a9cb410ff61f20015ad");
    assert_both(two_blocks, strlen(two_blocks),
                "248d6a61d20638b8e5c026930c3e6039"
                "a33ce45964ff2167f6ecedd419db06c1");
}
END_TEST

START_TEST(many_blocks_are_hashed_at_any_address)
{
    enum { SIZE = 1000000 };
    char *text = malloc(SIZE + 1);

    memset(text, 'a', SIZE + 1);
    for (size_t offset = 0; offset < 2; offset++)
        for (int in_c = 0; in_c < 2; in_c++)
            assert_hash(text + offset, SIZE, 1000, in_c != 0,
                        "cdc76e5c9914fb9281a1c7e284d73e67"
                        "f1809a48a497200e046d39ccc7112cd0");
    free(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        hashes_are_those_of_the_standard,
        many_blocks_are_hashed_at_any_address,
    };
    const test_suite suite = {
        .name = "base/sha256",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
