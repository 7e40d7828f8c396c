/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of views and of empty returns what the general path of these
 * operators returns, in every mode of the thread and for every kind of tensor;
 * and kernels, the profiler and autograd still see these calls. */

#include "support/devices.h"

#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "ops/functions.h"
#include "tensor/tensor.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/profiler.h>

/* Fills the cache of tensor headers, without which the fast path is not
 * taken. */
static void fill_header_cache(void)
{
    enum { COUNT = 32 };
    core_tensor *some[COUNT];

    for (int i = 0; i < COUNT; i++)
        OK(core_empty((int64_t[]){1000}, 1, CORE_F32, NULL, -1, &some[i]));
    for (int i = 0; i < COUNT; i++)
        core_tensor_release(some[i]);
}

/* ------------------------------------------------------ fast and general -- */

static core_status run(uint32_t id, bool quick, const core_value *args,
                       core_tensor **out)
{
    core_operator *op = &core__operators[id];
    core_call call = {.struct_size = CORE__FUNCTION_CALL_SIZE,
                      .host = &core__host,
                      .op = op,
                      .keys = CORE__KEY_BACKEND};
    core_value result = {0};
    core_function function =
        quick ? core__function_fast_path(op) : core__function_run;
    core_status status = function(&call, args, op->nargs, &result, 1);

    ck_assert(function != core__function_run || !quick);
    *out = status == CORE_OK ? result.u.tensor : NULL;
    return status;
}

static void assert_same_view(const core_tensor *a, const core_tensor *b)
{
    ck_assert_uint_eq(a->references, 1);
    ck_assert_uint_eq(b->references, 1);
    ck_assert_uint_eq(a->ndim, b->ndim);
    ck_assert_uint_eq(a->dtype, b->dtype);
    ck_assert_uint_eq(a->flags, b->flags);
    ck_assert_uint_eq(a->keys, b->keys);
    ck_assert_ptr_eq(a->device, b->device);
    ck_assert_int_eq(a->numel, b->numel);
    ck_assert_int_eq(a->offset, b->offset);
    ck_assert(!a->autograd == !b->autograd); /* for the slice behind narrow */
    ck_assert_ptr_eq(a->base, b->base);
    for (uint32_t i = 0; i < a->ndim; i++) {
        ck_assert_int_eq(a->sizes[i], b->sizes[i]);
        ck_assert_int_eq(a->strides[i], b->strides[i]);
    }
}

static size_t views; /* how many were compared */

/* Compares both paths for one view: equal results, no reference leaked. */
static void compare(uint32_t id, core_tensor *self, const core_value *rest,
                    uint32_t nrest)
{
    core_value args[5] = {core_pack_tensor(self)};
    uint32_t references = self->references;
    uint32_t base = self->base ? self->base->references : 0;
    uint32_t storage = self->storage ? self->storage->references : 0;
    core_tensor *quick, *general;

    for (uint32_t i = 0; i < nrest; i++)
        args[1 + i] = rest[i];
    ck_assert_int_eq(run(id, true, args, &quick),
                     run(id, false, args, &general));
    if (quick) {
        views++;
        assert_same_view(quick, general);
        ck_assert_ptr_eq(quick->storage, general->storage);
        core_tensor_release(general);
        core_tensor_release(quick);
    }
    ck_assert_uint_eq(self->references, references);
    ck_assert_uint_eq(self->base ? self->base->references : 0, base);
    ck_assert_uint_eq(self->storage ? self->storage->references : 0, storage);
}

static core_value or_none(int64_t value, int64_t none)
{
    return value == none ? core_pack_none() : core_pack_int(value);
}

static void compare_all(core_tensor *self)
{
    enum { NONE = 99 };
    static const int64_t starts[] = {NONE, -9, -1, 0, 1, 2, 3, 9},
                         counts[] = {-1, 0, 1, 2, 3, INT64_MAX};

    for (int64_t a = -4; a <= 4; a++)
        for (int64_t b = -4; b <= 4; b++)
            compare(CORE_OP_TRANSPOSE_INT, self,
                    (core_value[]){core_pack_int(a), core_pack_int(b)}, 2);
    for (int64_t dim = -2; dim <= 2; dim++)
        for (size_t s = 0; s < 8; s++) {
            for (size_t e = 0; e < 8; e++)
                for (int64_t step = 0; step <= 2; step++)
                    compare(CORE_OP_SLICE_TENSOR, self,
                            (core_value[]){
                                core_pack_int(dim), or_none(starts[s], NONE),
                                or_none(starts[e], NONE), core_pack_int(step)},
                            4);
            for (size_t c = 0; c < 6 && starts[s] != NONE; c++)
                compare(CORE_OP_NARROW, self,
                        (core_value[]){core_pack_int(dim),
                                       core_pack_int(starts[s]),
                                       core_pack_int(counts[c])},
                        3);
        }
}

static core_tensor *sized(uint32_t ndim, const int64_t *sizes)
{
    return CALL(empty, sizes, ndim, CORE_F32, NULL, -1);
}

#define SIZED(...)                                            \
    sized(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
          (int64_t[]){__VA_ARGS__})

static void compare_shapes(void)
{
    core_tensor *matrix = SIZED(3, 4);

    fill_header_cache();
    views = 0;
    /* narrow takes its fast path only after slice has been called. */
    CALL(slice, matrix, 0, NULL, NULL, 1);
    compare_all(matrix);
    compare_all(SIZED(1, 4));
    compare_all(SIZED(3, 1));
    compare_all(SIZED(0, 4));
    compare_all(SIZED(3, 0));
    compare_all(sized(0, NULL));
    compare_all(SIZED(5));
    compare_all(SIZED(1));
    compare_all(SIZED(2, 3, 4));
    compare_all(SIZED(2, 1, 2, 1, 2, 2));
    compare_all(SIZED(2, 1, 2, 1, 2, 2, 1));
    compare_all(CALL(transpose, matrix, 0, 1));
    compare_all(CALL(slice, matrix, 1, &(int64_t){1}, NULL, 2));
    compare_all(CALL(slice, matrix, 0, &(int64_t){1}, NULL, 1));
    compare_all(CALL(expand, SIZED(3, 1), (int64_t[]){3, 4}, 2, false));
    compare_all(
        CALL(empty, (int64_t[]){3, 4}, 2, CORE_F32, device_of("meta"), -1));
    ck_assert_uint_gt(views, 1000);
    drop_all();
}

START_TEST(fast_views_equal_general_views)
{
    compare_shapes();
}
END_TEST

START_TEST(fast_views_equal_general_views_without_grad_mode)
{
    core_grad_mode_set(false);
    compare_shapes();
    core_grad_mode_set(true);
}
END_TEST

START_TEST(fast_views_equal_general_views_in_inference_mode)
{
    uint64_t before = core_inference_begin();

    compare_shapes();
    core_inference_end(before);
}
END_TEST

START_TEST(fast_views_equal_general_views_below_autograd)
{
    core__thread *self = core__thread_self();

    self->excluded |= CORE__KEY_AUTOGRAD;
    compare_shapes();
    self->excluded = 0;
}
END_TEST

START_TEST(fast_views_of_special_tensors_equal_general_views)
{
    uint64_t before;
    core_tensor *matrix = SIZED(3, 4), *inference, *no_grad;

    fill_header_cache();
    views = 0;
    CALL(slice, matrix, 0, NULL, NULL, 1);
    before = core_inference_begin();
    inference = SIZED(3, 4);
    compare_all(matrix); /* a normal tensor in inference mode */
    core_inference_end(before);
    compare_all(inference);
    core_grad_mode_set(false);
    no_grad = CALL(alias, matrix);
    core_grad_mode_set(true);
    compare_all(no_grad);
    matrix->flags |= CORE__TENSOR_READ_ONLY;
    compare_all(matrix);
    matrix->flags &= (uint16_t)~CORE__TENSOR_READ_ONLY;
    matrix->flags |= CORE__TENSOR_VIEW_FUNCTION;
    compare_all(matrix);
    matrix->flags &= (uint16_t)~CORE__TENSOR_VIEW_FUNCTION;
    compare_all(leaf(matrix));
    ck_assert_uint_gt(views, 500);
}
END_TEST

/* Base and views may be released in any order. */
START_TEST(view_outlives_its_base)
{
    int64_t alive;
    core_tensor *base, *view, *part;
    void *data;

    fill_header_cache();
    alive = core__thread_storages(CORE__SLOT_HOST);
    OK(core_full((int64_t[]){40, 40}, 2, core_float(7), CORE_F32, NULL, &base));
    OK(core_transpose(base, 0, 1, &view));
    OK(core_narrow(base, 0, 3, 7, &part));
    core_tensor_release(base);
    core_tensor_release(view);
    ck_assert_int_eq(core__thread_storages(CORE__SLOT_HOST), alive + 1);
    OK(core_tensor_data(part, &data));
    ck_assert_float_eq(*(float *)data, 7);
    core_tensor_release(part);
    ck_assert_int_eq(core__thread_storages(CORE__SLOT_HOST), alive);
}
END_TEST

START_TEST(fast_empty_equals_general_empty)
{
    static const core_dtype dtypes[] = {CORE_DTYPE_NONE, CORE_F64, CORE_F32,
                                        CORE_BOOL,       CORE_U8,  9999};
    static const int64_t sizes[] = {1, 2, 0, 3, 1, 2, 1, -1};
    core_device *devices[] = {NULL, device_of("cpu"), device_of("meta")};
    core_tensor *quick, *general;
    size_t made = 0;

    for (int turn = 0; turn < 2; turn++) /* the second finds cached headers */
        for (uint32_t first = 0; first < 8; first++)
            for (uint32_t ndim = 0; first + ndim <= 8; ndim++)
                for (size_t d = 0; d < 6; d++)
                    for (size_t v = 0; v < 3; v++) {
                        core_value args[6] = {
                            core_pack_ints(&sizes[first], ndim),
                            core_pack_dtype(dtypes[d]),
                            core_pack_none(),
                            core_pack_device(devices[v]),
                            core_pack_none(),
                            core_pack_format(-1)};

                        ck_assert_int_eq(
                            run(CORE_OP_EMPTY, true, args, &quick),
                            run(CORE_OP_EMPTY, false, args, &general));
                        if (!quick)
                            continue;
                        made++;
                        assert_same_view(quick, general);
                        core_tensor_release(quick);
                        core_tensor_release(general);
                    }
    ck_assert_uint_gt(made, 200);
}
END_TEST

/* ------------------------------------------------------------- observers -- */

static int seen;

static core_status look(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    seen++;
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static core_status refuse(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    (void)call, (void)args, (void)nargs, (void)results, (void)nresults;
    seen++;
    return core_error_set(CORE_ERROR_UNSUPPORTED, "not this one");
}

START_TEST(function_registered_for_slice_sees_narrow)
{
    core_registration *registration;
    core_tensor *matrix = SIZED(3, 4), *view;

    fill_header_cache();
    CALL(slice, matrix, 0, NULL, NULL, 1);
    CALL(narrow, matrix, 0, 1, 2);
    seen = 0;
    OK(core_function_register("slice.Tensor", CORE_KEY_AUTOGRAD, NULL, look,
                              NULL, &registration));
    CALL(narrow, matrix, 0, 1, 2);
    ck_assert_int_eq(seen, 1);
    CALL(slice, matrix, 0, NULL, NULL, 1);
    CALL(narrow, matrix, 0, 1, 2);
    ck_assert_int_eq(seen, 3);
    core_registration_release(registration);
    OK(core_function_register("slice.Tensor", CORE_KEY_BACKEND, "cpu", refuse,
                              NULL, &registration));
    FAILS(core_narrow(matrix, 0, 1, 2, &view), CORE_ERROR_UNSUPPORTED,
          "not this one");
    core_registration_release(registration);
    CALL(narrow, matrix, 0, 1, 2);
    ck_assert_int_eq(seen, 4);
}
END_TEST

static uint64_t calls_of(core_profiler *profiler, const char *name)
{
    core_profile_row row = {.struct_size = sizeof row};
    size_t count;

    OK(core_profiler_count_rows(profiler, &count));
    for (size_t i = 0; i < count; i++) {
        OK(core_profiler_get_row(profiler, CORE_PROFILE_BY_NAME, i, &row));
        if (row.kind == CORE_PROFILE_OPERATOR && strcmp(row.name, name) == 0)
            return row.calls;
    }
    return 0;
}

START_TEST(profiler_counts_fast_views)
{
    core_tensor *matrix = SIZED(3, 4);
    core_profiler *profiler;

    fill_header_cache();
    CALL(slice, matrix, 0, NULL, NULL, 1);
    CALL(narrow, matrix, 0, 1, 2);
    CALL(transpose, matrix, 0, 1);
    OK(core_profiler_start(NULL, &profiler));
    CALL(narrow, matrix, 0, 1, 2);
    CALL(transpose, matrix, 0, 1);
    SIZED(1);
    OK(core_profiler_stop(profiler));
    CALL(transpose, matrix, 0, 1);
    ck_assert_uint_eq(calls_of(profiler, "narrow"), 1);
    ck_assert_uint_eq(calls_of(profiler, "slice.Tensor"), 1);
    ck_assert_uint_eq(calls_of(profiler, "transpose.int"), 1);
    ck_assert_uint_eq(calls_of(profiler, "empty"), 1);
    core_profiler_release(profiler);
}
END_TEST

START_TEST(fast_views_record_tensors_that_require_grad)
{
    core_tensor *matrix = SIZED(3, 4),
                *x = leaf(CALL(ones, (int64_t[]){3, 4}, 2, CORE_F32, NULL));
    core_tensor *part;

    fill_header_cache();
    CALL(slice, matrix, 0, NULL, NULL, 1);
    CALL(narrow, matrix, 0, 1, 2);
    part = CALL(narrow, x, 0, 1, 2);
    ck_assert(core_tensor_requires_grad(part));
    ck_assert(core_tensor_requires_grad(CALL(transpose, x, 0, 1)));
    ck_assert(!core_tensor_requires_grad(CALL(narrow, matrix, 0, 1, 2)));
    backward(sum(part));
    holds(core_tensor_grad(x), 12,
          (double[]){0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
    /* In place through a view that the fast path created. */
    part = CALL(narrow, matrix, 0, 0, 1);
    OK(core_fill_(matrix, core_float(1)));
    OK(core_mul_(part, CALL(narrow, x, 0, 0, 1)));
    ck_assert(core_tensor_requires_grad(matrix));
    ck_assert_uint_eq(matrix->storage->version, part->storage->version);
}
END_TEST

SUITE("ops/view_fast_path", fast_views_equal_general_views,
      fast_views_equal_general_views_without_grad_mode,
      fast_views_equal_general_views_in_inference_mode,
      fast_views_equal_general_views_below_autograd,
      fast_views_of_special_tensors_equal_general_views, view_outlives_its_base,
      fast_empty_equals_general_empty,
      function_registered_for_slice_sees_narrow, profiler_counts_fast_views,
      fast_views_record_tensors_that_require_grad)
