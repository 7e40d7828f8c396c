/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: matrix products of middle sizes, none of them a multiple of a tile,
 * of one row or column, and of many batches, with every operand row-major and
 * transposed; and one matrix for all batches. */

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
    {{"mm", "t:3,5003 t:5003,5", -1, 1}, 0, true, false},
    {{"mm", "t:1,33 t:33,3001", -1, 1}, 0, true, false},
    {{"mm", "t:3001,33 t:33,1", -1, 1}, 0, true, false},
    {{"addmm", "t:197 t:131,261 t:261,197 f:.5 f:2", -1, 1}, 1, false, false},
    {{"addmm", "t:133,390 t:133,150 t:150,390 f:.5 f:2", -1, 1},
     1,
     true,
     false},
    {{"bmm", "t:2,131,150 t:2,150,197", -1, 1}, 0, false, true},
    {{"bmm", "t:70,17,33 t:70,33,19", -1, 1}, 0, true, true},
    {{"baddbmm", "t:2,131,197 t:2,131,150 t:2,150,197 f:.5 f:2", -1, 1},
     1,
     true,
     true},
};

enum { PRODUCTS = sizeof products / sizeof *products, LAYOUTS_OF_BOTH = 5 };

/* The layouts of two matrices, or of two batches of them. */
static const struct {
    layout first, second;
    const char *where;
} matrices[LAYOUTS_OF_BOTH] =
    {
        {LAYOUT_ROWS, LAYOUT_TRANSPOSED, ", the second matrix transposed"},
        {LAYOUT_TRANSPOSED, LAYOUT_ROWS, ", the first matrix transposed"},
        {LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, ", both matrices transposed"},
        {LAYOUT_ROWS, LAYOUT_ROWS, ""},
        {LAYOUT_COLUMNS_APART, LAYOUT_COLUMNS_APART,
         ", both matrices transposed with gaps"},
},
  batches[LAYOUTS_OF_BOTH] = {
      {LAYOUT_ROWS, LAYOUT_MATRICES, ", the second matrices transposed"},
      {LAYOUT_MATRICES, LAYOUT_ROWS, ", the first matrices transposed"},
      {LAYOUT_MATRICES, LAYOUT_MATRICES, ", all matrices transposed"},
      {LAYOUT_ROWS, LAYOUT_ROWS, ""},
      {LAYOUT_HEADS, LAYOUT_HEADS, ", the batches between rows"},
};

/* Returns how many of the layouts a kernel claims. */
static uint32_t check_product(suite *self, const product *one, core_dtype dtype,
                              outcome *out)
{
    sample_layout layouts[LAYOUTS_OF_BOTH];

    for (int i = 0; i < LAYOUTS_OF_BOTH; i++) {
        layout a = one->batch ? batches[i].first : matrices[i].first;
        layout b = one->batch ? batches[i].second : matrices[i].second;

        layouts[i].how = ARRANGED(a, one->first) | ARRANGED(b, one->first + 1);
        layouts[i].margin = 0;
        layouts[i].where = one->batch ? batches[i].where : matrices[i].where;
    }
    return sample_check_layouts(self, &one->of, dtype, layouts, LAYOUTS_OF_BOTH,
                                out);
}

/* One matrix for all batches, as a program expands it.  Returns how many calls a
 * kernel claims, of two. */
static uint32_t check_shared(suite *self, const product *one, core_dtype dtype,
                             outcome *out)
{
    static const char *const where[] = {
        ", the first matrix that of all batches (stride 0)",
        ", the second matrix that of all batches (stride 0)"};
    uint32_t ran = 0;

    for (uint32_t k = 0; k < 2 && out->verdict == VERDICT_PASS; k++)
        ran += sample_check_repeated(self, &one->of, dtype, one->first + k,
                                     LAYOUT_ONE_ROW, where[k], out);
    return ran;
}

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
            uint32_t all = LAYOUTS_OF_BOTH + 2 * products[i].batch, done;

            if (products[i].f32_only && d > 0)
                continue;
            done = check_product(self, &products[i], dtypes[d], out);
            if (out->verdict == VERDICT_PASS && products[i].batch)
                done += check_shared(self, &products[i], dtypes[d], out);
            if (out->verdict != VERDICT_PASS)
                return;
            ran += done;
            for (; done < all; done++)
                skipped_calls_add(&left, products[i].of.op, dtypes[d]);
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
