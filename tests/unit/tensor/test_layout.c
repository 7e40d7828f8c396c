/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "base/memory.h"
#include "device/device.h"
#include "tensor/layout.h"

#include <libcore/tensor.h>

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static uint32_t random_state = 1;

static int64_t random_below(int64_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int64_t)(random_state >> 8) % limit;
}

static uint32_t flags_of(uint32_t ndim, const int64_t *sizes,
                         const int64_t *strides)
{
    int64_t numel;

    return core__layout_flags(ndim, sizes, strides, &numel);
}

/* A tensor of the meta device: layout and no memory. */
static core_tensor *layout(uint32_t ndim, const int64_t *sizes,
                           const int64_t *strides)
{
    core_tensor *tensor;

    ck_assert_msg(core__tensor_new(&core__meta_device, CORE_F32, ndim, sizes,
                                   strides, &tensor) == CORE_OK,
                  "%s", core_error_message());
    return tensor;
}

START_TEST(contiguity_ignores_dimensions_of_one)
{
    enum { BOTH = CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE };

    ck_assert_uint_eq(flags_of(0, NULL, NULL), BOTH);
    ck_assert_uint_eq(flags_of(2, DIMS(2, 3), DIMS(3, 1)), BOTH);
    ck_assert_uint_eq(flags_of(3, DIMS(2, 1, 3), DIMS(3, 77, 1)), BOTH);
    ck_assert_uint_eq(flags_of(2, DIMS(1, 1), DIMS(0, 0)), BOTH);
    ck_assert_uint_eq(flags_of(2, DIMS(0, 3), DIMS(9, 9)), BOTH);
    ck_assert_uint_eq(flags_of(2, DIMS(2, 3), DIMS(1, 2)), CORE__TENSOR_DENSE);
    ck_assert_uint_eq(flags_of(2, DIMS(2, 3), DIMS(4, 1)), 0);
    ck_assert_uint_eq(flags_of(2, DIMS(2, 3), DIMS(0, 1)), 0);
    ck_assert_uint_eq(flags_of(1, DIMS(3), DIMS(2)), 0);
    ck_assert_uint_eq(flags_of(2, DIMS(2, 2), DIMS(1, 1)), 0);
}
END_TEST

START_TEST(row_major_and_channels_last_strides)
{
    int64_t strides[CORE_MAX_NDIM];

    core__layout_contiguous(3, DIMS(2, 3, 4), strides);
    ck_assert_mem_eq(strides, DIMS(12, 4, 1), 24);
    core__layout_contiguous(3, DIMS(2, 0, 4), strides);
    ck_assert_mem_eq(strides, DIMS(4, 4, 1), 24);
    core__layout_channels_last(4, DIMS(2, 3, 4, 5), strides);
    ck_assert_mem_eq(strides, DIMS(60, 1, 15, 3), 32);
    core__layout_channels_last(5, DIMS(2, 3, 4, 5, 6), strides);
    ck_assert_mem_eq(strides, DIMS(360, 1, 90, 18, 3), 40);
}
END_TEST

static bool last(uint32_t ndim, const int64_t *sizes, const int64_t *strides)
{
    core_tensor *tensor = layout(ndim, sizes, strides);
    bool answer = core__layout_is_channels_last(tensor);

    core_tensor_release(tensor);
    return answer;
}

START_TEST(channels_last_is_distinguished_from_row_major)
{
    ck_assert(last(4, DIMS(2, 3, 4, 5), DIMS(60, 1, 15, 3)));
    ck_assert(last(5, DIMS(2, 3, 4, 5, 6), DIMS(360, 1, 90, 18, 3)));
    ck_assert(!last(4, DIMS(2, 3, 4, 5), DIMS(60, 20, 5, 1)));
    ck_assert(!last(3, DIMS(3, 4, 5), DIMS(1, 15, 3)));
    ck_assert(!last(4, DIMS(2, 0, 4, 5), DIMS(60, 1, 15, 3)));
    ck_assert(!last(4, DIMS(2, 3, 4, 5), DIMS(20, 0, 5, 1)));
    /* with one channel the strides decide */
    ck_assert(last(4, DIMS(2, 1, 4, 5), DIMS(20, 1, 5, 1)));
    ck_assert(!last(4, DIMS(2, 1, 4, 5), DIMS(20, 20, 5, 1)));
    /* 1 × 1 images, row-major */
    ck_assert(!last(4, DIMS(2, 3, 1, 1), DIMS(3, 1, 1, 1)));
    ck_assert(last(4, DIMS(2, 3, 1, 1), DIMS(3, 1, 3, 3)));
}
END_TEST

START_TEST(is_contiguous_accepts_each_format)
{
    core_tensor *rows = layout(4, DIMS(2, 3, 4, 5), DIMS(60, 20, 5, 1));
    core_tensor *channels = layout(4, DIMS(2, 3, 4, 5), DIMS(60, 1, 15, 3));

    ck_assert(core_tensor_is_contiguous(rows, CORE_FORMAT_CONTIGUOUS));
    ck_assert(!core_tensor_is_contiguous(rows, CORE_FORMAT_CHANNELS_LAST));
    ck_assert(!core_tensor_is_contiguous(channels, CORE_FORMAT_CONTIGUOUS));
    ck_assert(core_tensor_is_contiguous(channels, CORE_FORMAT_CHANNELS_LAST));
    ck_assert(
        !core_tensor_is_contiguous(channels, CORE_FORMAT_CHANNELS_LAST_3D));
    core_tensor_release(rows);
    core_tensor_release(channels);
}
END_TEST

static void like(uint32_t ndim, const int64_t *sizes, const int64_t *strides,
                 const int64_t *expected)
{
    core_tensor *tensor = layout(ndim, sizes, strides);
    int64_t got[CORE_MAX_NDIM];

    core__layout_like(tensor, got);
    ck_assert_mem_eq(got, expected, ndim * sizeof *got);
    core_tensor_release(tensor);
}

START_TEST(results_keep_the_order_of_strides)
{
    like(2, DIMS(2, 3), DIMS(3, 1), DIMS(3, 1));
    like(2, DIMS(2, 3), DIMS(1, 2), DIMS(1, 2));
    like(2, DIMS(2, 3), DIMS(1, 10), DIMS(1, 2));
    like(2, DIMS(2, 3), DIMS(0, 1), DIMS(3, 1));
    like(3, DIMS(2, 1, 4), DIMS(0, 4, 1), DIMS(4, 4, 1));
    like(3, DIMS(3, 5, 4), DIMS(1, 0, 3), DIMS(1, 3, 15));
    like(3, DIMS(2, 3, 1), DIMS(24, 4, 1), DIMS(3, 1, 1));
    like(2, DIMS(2, 3), DIMS(0, 0), DIMS(3, 1));
    like(3, DIMS(2, 3, 4), DIMS(100, 1, 5), DIMS(12, 1, 3));
    like(4, DIMS(2, 3, 4, 5), DIMS(120, 1, 30, 6), DIMS(60, 1, 15, 3));
}
END_TEST

/* The strides of a view are right when both enumerate the same offsets in the
 * same order. */
static void assert_same_offsets(uint32_t ndim, const int64_t *sizes,
                                const int64_t *strides, uint32_t to_ndim,
                                const int64_t *to_sizes,
                                const int64_t *to_strides)
{
    int64_t a[CORE_MAX_NDIM] = {0};
    int64_t b[CORE_MAX_NDIM] = {0};
    int64_t numel = 1;

    for (uint32_t d = 0; d < ndim; d++)
        numel *= sizes[d];
    for (int64_t i = 0; i < numel; i++) {
        int64_t at_a = 0;
        int64_t at_b = 0;

        for (uint32_t d = 0; d < ndim; d++)
            at_a += a[d] * strides[d];
        for (uint32_t d = 0; d < to_ndim; d++)
            at_b += b[d] * to_strides[d];
        ck_assert_int_eq(at_a, at_b);
        for (uint32_t d = ndim; d-- > 0 && ++a[d] == sizes[d];)
            a[d] = 0;
        for (uint32_t d = to_ndim; d-- > 0 && ++b[d] == to_sizes[d];)
            b[d] = 0;
    }
}

START_TEST(views_without_a_copy_are_found)
{
    int64_t out[CORE_MAX_NDIM];

    ck_assert(
        core__layout_view(2, DIMS(2, 6), DIMS(6, 1), 3, DIMS(2, 2, 3), out));
    ck_assert_mem_eq(out, DIMS(6, 3, 1), 24);
    ck_assert(
        core__layout_view(2, DIMS(2, 6), DIMS(1, 2), 3, DIMS(2, 2, 3), out));
    ck_assert_mem_eq(out, DIMS(1, 6, 2), 24);
    ck_assert(!core__layout_view(2, DIMS(2, 6), DIMS(1, 2), 1, DIMS(12), out));
    ck_assert(core__layout_view(2, DIMS(2, 3), DIMS(0, 0), 1, DIMS(6), out));
    ck_assert(core__layout_view(0, NULL, NULL, 2, DIMS(1, 1), out));
    ck_assert(core__layout_view(2, DIMS(1, 1), DIMS(5, 7), 0, NULL, out));
    ck_assert(core__layout_view(2, DIMS(0, 6), DIMS(6, 1), 2, DIMS(3, 0), out));
    ck_assert(
        core__layout_view(3, DIMS(2, 1, 3), DIMS(3, 50, 1), 1, DIMS(6), out));
}
END_TEST

/* Strided windows of random shapes, viewed as other random shapes. */
START_TEST(found_views_have_the_same_elements)
{
    int found = 0;

    for (int i = 0; i < 20000; i++) {
        int64_t sizes[4];
        int64_t strides[4];
        int64_t to[8];
        int64_t out[8];
        int64_t left = 1;
        uint32_t ndim = 1 + (uint32_t)random_below(4);
        uint32_t to_ndim = 0;
        int64_t stride = 1 + random_below(2);

        for (uint32_t d = ndim; d-- > 0;) {
            sizes[d] = 1 + random_below(4);
            strides[d] = random_below(5) ? stride : stride + 1;
            stride = strides[d] * sizes[d];
            left *= sizes[d];
        }
        while (left > 1 && to_ndim < 6) {
            int64_t factor = 1 + random_below(left);

            if (left % factor == 0) {
                to[to_ndim++] = factor;
                left /= factor;
            }
        }
        to[to_ndim++] = left;
        if (!core__layout_view(ndim, sizes, strides, to_ndim, to, out))
            continue;
        found++;
        assert_same_offsets(ndim, sizes, strides, to_ndim, to, out);
    }
    ck_assert_int_gt(found, 5000);
}
END_TEST

/* ------------------------------------------------------------- overlap -- */

static core_tensor *window(core_tensor *of, uint32_t ndim, const int64_t *sizes,
                           const int64_t *strides, int64_t offset)
{
    core_tensor *view;

    ck_assert_int_eq(core__tensor_view(of, ndim, sizes, strides, offset, &view),
                     CORE_OK);
    return view;
}

static core__overlap overlap(core_tensor *a, core_tensor *b)
{
    core__overlap one = core__layout_overlap(a, b);

    ck_assert_int_eq(core__layout_overlap(b, a), one);
    core_tensor_release(a);
    core_tensor_release(b);
    return one;
}

START_TEST(overlap_is_none_same_or_partial)
{
    core_device *host;
    core_tensor *all;
    core_tensor *other;

    ck_assert_int_eq(core__device_host(&host), CORE_OK);
    ck_assert_int_eq(core__tensor_new(host, CORE_F32, 1, DIMS(100), NULL, &all),
                     CORE_OK);
    ck_assert_int_eq(
        core__tensor_new(host, CORE_F32, 1, DIMS(100), NULL, &other), CORE_OK);
    ck_assert_int_eq(overlap(window(all, 1, DIMS(10), DIMS(1), 0),
                             window(other, 1, DIMS(10), DIMS(1), 0)),
                     CORE__OVERLAP_NONE);
    ck_assert_int_eq(overlap(window(all, 1, DIMS(10), DIMS(1), 0),
                             window(all, 1, DIMS(10), DIMS(1), 10)),
                     CORE__OVERLAP_NONE);
    ck_assert_int_eq(overlap(window(all, 1, DIMS(10), DIMS(1), 0),
                             window(all, 1, DIMS(10), DIMS(1), 9)),
                     CORE__OVERLAP_PARTIAL);
    ck_assert_int_eq(overlap(window(all, 2, DIMS(4, 1), DIMS(2, 9), 5),
                             window(all, 2, DIMS(4, 1), DIMS(2, 1), 5)),
                     CORE__OVERLAP_SAME);
    ck_assert_int_eq(overlap(window(all, 2, DIMS(2, 2), DIMS(2, 1), 0),
                             window(all, 2, DIMS(2, 2), DIMS(1, 2), 0)),
                     CORE__OVERLAP_PARTIAL);
    ck_assert_int_eq(overlap(window(all, 1, DIMS(0), DIMS(1), 3),
                             window(all, 1, DIMS(10), DIMS(1), 0)),
                     CORE__OVERLAP_NONE);
    core_tensor_release(all);
    core_tensor_release(other);
}
END_TEST

/* Counts every offset: the exact answer, which the quick answer may exceed but
 * never miss. */
static bool really_overlaps(uint32_t ndim, const int64_t *sizes,
                            const int64_t *strides)
{
    unsigned char seen[4096] = {0};
    int64_t index[4] = {0};
    int64_t numel = 1;

    for (uint32_t d = 0; d < ndim; d++)
        numel *= sizes[d];
    for (int64_t i = 0; i < numel; i++) {
        int64_t at = 0;

        for (uint32_t d = 0; d < ndim; d++)
            at += index[d] * strides[d];
        if (seen[at]++)
            return true;
        for (uint32_t d = ndim; d-- > 0 && ++index[d] == sizes[d];)
            index[d] = 0;
    }
    return false;
}

START_TEST(self_overlap_is_never_missed)
{
    int quiet = 0;

    for (int i = 0; i < 20000; i++) {
        int64_t sizes[4];
        int64_t strides[4];
        uint32_t ndim = 1 + (uint32_t)random_below(4);
        core_tensor *tensor;
        bool overlaps;

        for (uint32_t d = 0; d < ndim; d++) {
            sizes[d] = random_below(5);
            strides[d] = random_below(25);
        }
        tensor = layout(ndim, sizes, strides);
        overlaps = core__layout_overlaps_itself(tensor);
        if (really_overlaps(ndim, sizes, strides))
            ck_assert(overlaps);
        quiet += !overlaps;
        core_tensor_release(tensor);
    }
    ck_assert_int_gt(quiet, 1000);
}
END_TEST

/* Marks the offsets that a view has according to its layout. */
static void mark(const core_tensor *view, unsigned char *seen)
{
    int64_t index[4] = {0};

    for (int64_t i = 0; i < view->numel; i++) {
        int64_t at = view->offset;

        for (uint32_t d = 0; d < view->ndim; d++)
            at += index[d] * view->strides[d];
        seen[at] = 1;
        for (uint32_t d = view->ndim; d-- > 0 && ++index[d] == view->sizes[d];)
            index[d] = 0;
    }
}

static core_tensor *random_window(core_tensor *all)
{
    static const int64_t steps[] = {0, 1, 2, 3, 4, 6, 8, 12, 24};
    int64_t sizes[3];
    int64_t strides[3];
    uint32_t ndim = 1 + (uint32_t)random_below(3);

    for (uint32_t d = 0; d < ndim; d++) {
        sizes[d] = random_below(5);
        strides[d] = steps[random_below(9)];
    }
    return window(all, ndim, sizes, strides, random_below(30));
}

START_TEST(overlap_of_two_views_is_never_missed)
{
    core_device *host;
    core_tensor *all;
    int quiet = 0;

    ck_assert_int_eq(core__device_host(&host), CORE_OK);
    ck_assert_int_eq(core__tensor_new(host, CORE_F32, 1, DIMS(400), NULL, &all),
                     CORE_OK);
    for (int i = 0; i < 20000; i++) {
        unsigned char seen[2][400] = {{0}};
        core_tensor *a = random_window(all);
        core_tensor *b = random_window(all);
        int64_t first = 0;

        mark(a, seen[0]);
        mark(b, seen[1]);
        while (first < 400 && !(seen[0][first] && seen[1][first]))
            first++;
        if (overlap(a, b) == CORE__OVERLAP_NONE) {
            ck_assert_int_eq(first, 400);
            quiet++;
        }
    }
    ck_assert_int_gt(quiet, 1000);
    core_tensor_release(all);
}
END_TEST

START_TEST(adjacent_views_do_not_overlap)
{
    core_device *host;
    core_tensor *all;

    ck_assert_int_eq(core__device_host(&host), CORE_OK);
    ck_assert_int_eq(core__tensor_new(host, CORE_F32, 1, DIMS(100), NULL, &all),
                     CORE_OK);
    /* columns; blocks of columns; every other; a column of the last row on */
    ck_assert_int_eq(overlap(window(all, 1, DIMS(10), DIMS(10), 0),
                             window(all, 1, DIMS(10), DIMS(10), 9)),
                     CORE__OVERLAP_NONE);
    ck_assert_int_eq(overlap(window(all, 2, DIMS(5, 5), DIMS(10, 1), 0),
                             window(all, 2, DIMS(10, 5), DIMS(10, 1), 5)),
                     CORE__OVERLAP_NONE);
    ck_assert_int_eq(overlap(window(all, 1, DIMS(50), DIMS(2), 0),
                             window(all, 1, DIMS(50), DIMS(2), 1)),
                     CORE__OVERLAP_NONE);
    ck_assert_int_eq(overlap(window(all, 2, DIMS(4, 2), DIMS(10, 1), 9),
                             window(all, 2, DIMS(4, 3), DIMS(10, 1), 11)),
                     CORE__OVERLAP_NONE);
    ck_assert_int_eq(overlap(window(all, 2, DIMS(4, 3), DIMS(10, 1), 9),
                             window(all, 2, DIMS(4, 3), DIMS(10, 1), 11)),
                     CORE__OVERLAP_PARTIAL);
    core_tensor_release(all);
}
END_TEST

START_TEST(common_layouts_do_not_overlap_themselves)
{
    core_tensor *tensor = layout(2, DIMS(3, 4), DIMS(10, 2));

    ck_assert(!core__layout_overlaps_itself(tensor));
    core_tensor_release(tensor);
    tensor = layout(4, DIMS(2, 3, 4, 5), DIMS(60, 1, 15, 3));
    ck_assert(!core__layout_overlaps_itself(tensor));
    core_tensor_release(tensor);
    tensor = layout(2, DIMS(3, 4), DIMS(0, 1));
    ck_assert(core__layout_overlaps_itself(tensor));
    core_tensor_release(tensor);
    tensor = layout(2, DIMS(1, 4), DIMS(0, 1));
    ck_assert(!core__layout_overlaps_itself(tensor));
    core_tensor_release(tensor);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        contiguity_ignores_dimensions_of_one,
        row_major_and_channels_last_strides,
        channels_last_is_distinguished_from_row_major,
        is_contiguous_accepts_each_format,
        results_keep_the_order_of_strides,
        views_without_a_copy_are_found,
        found_views_have_the_same_elements,
        overlap_is_none_same_or_partial,
        self_overlap_is_never_missed,
        overlap_of_two_views_is_never_missed,
        adjacent_views_do_not_overlap,
        common_layouts_do_not_overlap_themselves,
    };
    const test_suite suite = {
        .name = "tensor/layout",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
