/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: matrix products of middle sizes, none of them a multiple of a tile,
 * with every operand row-major and transposed. */

#include "sample_check.h"
#include "skipped_calls.h"

#include <stdio.h>

typedef struct product {
    sample of;
    uint32_t first; /* of the two matrices */
    bool f32_only;
    bool batch;
} product;

static const product products[] = {
    {{"mm", "t:131,261 t:261,197", -1, 1}, 0, false, false},
    {{"mm", "t:197,519 t:519,133", -1, 1}, 0, true, false},
    {{"mm", "t:390,131 t:131,259", -1, 1}, 0, true, false},
    {{"addmm", "t:197 t:131,261 t:261,197 f:.5 f:2", -1, 1}, 1, false, false},
    {{"addmm", "t:133,390 t:133,150 t:150,390 f:.5 f:2", -1, 1},
     1,
     true,
     false},
    {{"bmm", "t:2,131,150 t:2,150,197", -1, 1}, 0, false, true},
    {{"baddbmm", "t:2,131,197 t:2,131,150 t:2,150,197 f:.5 f:2", -1, 1},
     1,
     true,
     true},
};

enum { PRODUCTS = sizeof products / sizeof *products, LAYOUTS_OF_BOTH = 5 };

/* The layouts of the two matrices; each of a batch is transposed. */
static arrangement arranged(const product *one, int how)
{
    static const layout first[LAYOUTS_OF_BOTH] = {
        LAYOUT_ROWS, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, LAYOUT_ROWS,
        LAYOUT_COLUMNS_APART};
    static const layout second[LAYOUTS_OF_BOTH] = {
        LAYOUT_TRANSPOSED, LAYOUT_ROWS, LAYOUT_TRANSPOSED, LAYOUT_ROWS,
        LAYOUT_COLUMNS_APART};
    layout a = first[how], b = second[how];

    if (one->batch && a == LAYOUT_TRANSPOSED)
        a = LAYOUT_MATRICES;
    if (one->batch && b == LAYOUT_TRANSPOSED)
        b = LAYOUT_MATRICES;
    return ARRANGED(a, one->first) | ARRANGED(b, one->first + 1);
}

static const char *const described[LAYOUTS_OF_BOTH] = {
    ", the second matrix transposed", ", the first matrix transposed",
    ", both matrices transposed", "", ", both matrices transposed with gaps"};

static void products_of_middle_sizes(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; i < PRODUCTS; i++) {
            if (products[i].f32_only && d > 0)
                continue;
            for (int how = 0; how < LAYOUTS_OF_BOTH; how++) {
                bool claims = sample_check(self, &products[i].of, dtypes[d],
                                           arranged(&products[i], how),
                                           described[how], out);

                if (out->verdict != VERDICT_PASS)
                    return;
                ran += claims;
                if (!claims)
                    skipped_calls_add(&left, products[i].of.op, dtypes[d]);
            }
        }
    skipped_calls_report(&left, ran, out);
}

bool suite_add_products(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/products-of-middle-sizes", products_of_middle_sizes, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
