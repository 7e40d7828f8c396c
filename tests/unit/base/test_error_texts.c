/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Error messages name the operator and what is needed to find the mistake: both
 * shapes, the index and the size, the bytes and the device. */

#include "support/ops.h"

#include "base/memory.h"

#include <libcore/device.h>
#include <libcore/memory.h>

enum { TEXTS = 5 };

static const struct row {
    const char *op, *words;
    core_status status;
    const char *texts[TEXTS];
} rows[] = {
    /* products */
    {"mm", "p:2,3 p:4,5", CORE_ERROR_SHAPE, {"mm: ", "[2, 3]", "[4, 5]"}},
    {"mm", "p:2,3,4 p:4,5", CORE_ERROR_SHAPE, {"mm: ", "[2, 3, 4]", "[4, 5]"}},
    {"mm",
     "p:2,3 p:3",
     CORE_ERROR_SHAPE,
     {"mm: ", "[2, 3]", "[3]", "must have 2 dimensions, not 1"}},
    {"addmm",
     "p:4 p:2,3 p:3,5",
     CORE_ERROR_SHAPE,
     {"addmm: ", "[4]", "[2, 5]"}},
    {"addmm", "p:5 p:2,3 p:4,5", CORE_ERROR_SHAPE, {"addmm: ", "[4, 5]"}},
    {"bmm",
     "p:2,3,4 p:3,4,5",
     CORE_ERROR_SHAPE,
     {"bmm: ", "[2, 3, 4]", "[3, 4, 5]"}},
    {"bmm", "p:2,3,4 p:2,5,6", CORE_ERROR_SHAPE, {"bmm: ", "[2, 5, 6]"}},
    {"mv", "p:2,3 p:4", CORE_ERROR_SHAPE, {"mv: ", "[2, 3]", "[4]"}},
    {"dot", "p:2 p:2,1", CORE_ERROR_SHAPE, {"dot: ", "[2]", "[2, 1]"}},
    {"matmul", "p:2,3 p:4,5", CORE_ERROR_SHAPE, {"matmul: ", "[4, 5]"}},
    {"matmul",
     "p:2,1,3,4 p:3,2,4,5",
     CORE_ERROR_SHAPE,
     {"matmul: ", "[2, 1, 3, 4]", "[3, 2, 4, 5]"}},
    {"matmul", "p:2 p:", CORE_ERROR_SHAPE, {"matmul: ", "[2]", "[]"}},
    {"linear",
     "p:2,3 p:5,4 p:5",
     CORE_ERROR_SHAPE,
     {"linear: ", "[2, 3]", "[5, 4]"}},
    {"linear",
     "p:2,3 p:5,3 p:4",
     CORE_ERROR_SHAPE,
     {"linear: ", "[5, 3]", "[4]", "5 elements"}},
    {"linear",
     "p: p:5,3 n",
     CORE_ERROR_SHAPE,
     {"linear: ", "1 or more dimensions, and weight 2, [out, in], or 1, [in]"}},
    {"linear",
     "p:2,3 x:5,3/3 n",
     CORE_ERROR_DTYPE,
     {"linear: input is f64 and weight i64"}},
    {"linear", "p:2,2,3 p:5,3 p:2,4", CORE_ERROR_SHAPE, {"linear: weight"}},
    {"scaled_dot_product_attention",
     "p:2,3,4 p:2,3,5 p:2,3,4 n f:0 b:0 n b:0",
     CORE_ERROR_SHAPE,
     {"scaled_dot_product_attention: query has sizes [2, 3, 4], key [2, 3, "
      "5]"}},
    {"scaled_dot_product_attention",
     "p:2,3,4 p:2,3,4 p:2,5,4 n f:0 b:0 n b:0",
     CORE_ERROR_SHAPE,
     {"scaled_dot_product_attention: key has sizes [2, 3, 4], value"}},
    {"scaled_dot_product_attention",
     "p:2,3,4 p:3,3,4 p:2,3,4 n f:0 b:0 n b:0",
     CORE_ERROR_SHAPE,
     {"scaled_dot_product_attention: query has sizes", "do not broadcast"}},
    {"scaled_dot_product_attention",
     "p:2,3,4 p:2,3,4 p:2,3,4 p:2,3,7 f:0 b:0 n b:0",
     CORE_ERROR_SHAPE,
     {"scaled_dot_product_attention: query has sizes",
      "attn_mask must broadcast to [..., 3, 3]"}},
    {"scaled_dot_product_attention",
     "p:2,3,4 x:2,3,4/3 p:2,3,4 n f:0 b:0 n b:0",
     CORE_ERROR_DTYPE,
     {"scaled_dot_product_attention: query is f64 and key i64"}},
    {"scaled_dot_product_attention",
     "x:2,3,4/3 x:2,3,4/3 x:2,3,4/3 n f:0 b:0 n b:0",
     CORE_ERROR_DTYPE,
     {"scaled_dot_product_attention: query must have a floating dtype, not "
      "i64"}},
    {"rms_norm",
     "p:2,3 l:4 n n",
     CORE_ERROR_SHAPE,
     {"rms_norm: input has sizes [2, 3]", "normalized_shape [4]"}},
    {"rms_norm", "p:2,3 l: n n", CORE_ERROR_SHAPE, {"rms_norm: ", "[]"}},
    /* names of inner operators */
    {"softmax.int",
     "x:2,3/3 i:0 n",
     CORE_ERROR_DTYPE,
     {"softmax.int: self must have a floating dtype, not i64"}},
    {"std", "x:2,3/3 b:1", CORE_ERROR_DTYPE, {"std: the dtype is i64"}},
    {"linalg_solve_triangular",
     "p:2,3 p:2,3 b:1 b:1 b:0",
     CORE_ERROR_SHAPE,
     {"linalg_solve_triangular: self has sizes [2, 3]"}},
    {"_dirichlet_grad",
     "x:2/3 p:2 p:2",
     CORE_ERROR_DTYPE,
     {"_dirichlet_grad: x is i64 and alpha f64"}},
    /* convolution */
    {"conv2d",
     "p:1,3,8,8 p:4,2,3,3 n",
     CORE_ERROR_SHAPE,
     {"conv2d: ", "[1, 3, 8, 8]", "[4, 2, 3, 3]", "3 channels"}},
    {"conv2d",
     "p:1,3,8,8 p:4,3,3 n",
     CORE_ERROR_SHAPE,
     {"conv2d: ", "[1, 3, 8, 8]", "[4, 3, 3]"}},
    {"conv2d",
     "p:1,2,8,8 p:4,2,3,3 p:3",
     CORE_ERROR_SHAPE,
     {"conv2d: ", "[4, 2, 3, 3]", "bias [3]", "[4]"}},
    {"conv1d",
     "p:1,2,3 p:4,2,5 n",
     CORE_ERROR_SHAPE,
     {"conv1d: ", "[1, 2, 3]", "[4, 2, 5]", "kernel of 5"}},
    {"convolution",
     "p:1,2,3 p:2,3 n l:1 l:0 l:1 b:0 l:0 i:1",
     CORE_ERROR_SHAPE,
     {"convolution: ", "[1, 2, 3]", "[2, 3]"}},
    {"grid_sampler_2d",
     "p:1,1,4,4 p:2,3,3,2 i:0 i:0 b:0",
     CORE_ERROR_SHAPE,
     {"grid_sampler_2d: ", "[1, 1, 4, 4]", "[2, 3, 3, 2]"}},
    /* lists, broadcasting */
    {"cat",
     "[ p:2,3 p:3,2 ] i:0",
     CORE_ERROR_SHAPE,
     {"cat: ", "tensor 1", "[2, 3]", "[3, 2]"}},
    {"cat", "[ p:2,3 p: ] i:0", CORE_ERROR_SHAPE, {"cat: ", "[2, 3]", "[]"}},
    {"stack", "[ p:2 p:3 ] i:0", CORE_ERROR_SHAPE, {"stack: ", "[2]", "[3]"}},
    {"add.Tensor",
     "p:2,3 p:4,3 i:1",
     CORE_ERROR_SHAPE,
     {"add", "[2, 3]", "[4, 3]", "2 and 4"}},
    {"where.self",
     "m:2,3 p:2,3 p:2",
     CORE_ERROR_SHAPE,
     {"where", "[2, 3]", "[2]"}},
    {"expand", "p:2,3 l:4,3", CORE_ERROR_SHAPE, {"expand: ", "[2, 3]", "4"}},
    {"view", "p:2,3 l:4", CORE_ERROR_SHAPE, {"view: ", "[2, 3]", "[4]"}},
    /* indices, integers */
    {"index_select",
     "p:3,2 i:0 x:9/9",
     CORE_ERROR_INDEX,
     {"index_select", "out of range", "size 3"}},
    {"gather",
     "p:3,2 i:0 x:3,2/99",
     CORE_ERROR_INDEX,
     {"gather", "out of range", "size 3"}},
    {"embedding",
     "p:3,2 x:9/99",
     CORE_ERROR_INDEX,
     {"embedding", "out of range", "size 3"}},
    {"select.int", "p:3,2 i:0 i:3", CORE_ERROR_INDEX, {"select", "3"}},
    {"sum.dim_IntList", "p:3,2 l:2 b:0", CORE_ERROR_INDEX, {"sum", "2", "-2"}},
    {"floor_divide",
     "q:3 x:3/1",
     CORE_ERROR_INVALID_ARGUMENT,
     {"floor_divide", "zero"}},
    {"remainder.Scalar",
     "q:3 i:0",
     CORE_ERROR_INVALID_ARGUMENT,
     {"remainder", "zero"}},
    {"max_pool2d_with_indices_backward",
     "p:1,1,1,5 p:1,1,1,4 l:1,2 l:1,1 l:0,1 l:1,1 b:0 q:1,1,1,5",
     CORE_ERROR_INDEX,
     {"max_pool2d_with_indices_backward: ", "has 4 at element 4",
      "4 elements"}},
    {"max_pool3d_with_indices_backward",
     "p:1,1,1,1,5 p:1,1,1,1,4 l:1,1,2 l:1,1,1 l:0,0,1 l:1,1,1 b:0 q:1,1,1,1,5",
     CORE_ERROR_INDEX,
     {"max_pool3d_with_indices_backward: ", "has 4 at element 4"}},
    {"adaptive_max_pool2d_backward",
     "p:1,1,1,5 p:1,1,1,4 q:1,1,1,5",
     CORE_ERROR_INDEX,
     {"adaptive_max_pool2d_backward: ", "has 4"}},
};

START_TEST(errors_name_what_is_wrong)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        core_value results[4] = {0};
        core_status status = call_op_words(row->op, row->words, results);
        const char *said = status ? core_error_message() : "no error";

        ck_assert_msg(status == row->status, "%s(%s): %s, \"%s\"", row->op,
                      row->words, core_status_name(status), said);
        for (size_t k = 0; k < TEXTS && row->texts[k]; k++)
            ck_assert_msg(strstr(said, row->texts[k]),
                          "%s(%s): \"%s\" is not in \"%s\"", row->op,
                          row->words, row->texts[k], said);
        for (size_t k = 0; k < 4; k++)
            ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
    }
}
END_TEST

/* -------------------------------------------------------------- flags -- */

START_TEST(unknown_flags_are_refused)
{
    const uint32_t strange = 1u << 20;
    core_tensor *w = leaf(VECTOR(2, 1, 2)), *y = sum(w), *grad;

    FAILS(core_backward(&y, 1, NULL, strange), CORE_ERROR_INVALID_ARGUMENT,
          "core_backward", "flags are 0x100000", "accepts 0x");
    FAILS(core_backward(&y, 1, NULL, CORE_ALLOW_UNUSED),
          CORE_ERROR_INVALID_ARGUMENT, "core_backward", "flags are 0x");
    FAILS(core_grad(&y, 1, NULL, &w, 1, strange | CORE_RETAIN_GRAPH, &grad),
          CORE_ERROR_INVALID_ARGUMENT, "core_grad", "flags are 0x10000");
    ck_assert_ptr_null(grad);
    backward(y); /* the flag is unchanged */
    HOLDS(core_tensor_grad(w), 2, 1, 1);
}
END_TEST

/* ------------------------------------------------------------- dtypes -- */

START_TEST(a_dtype_that_does_not_exist_is_refused_by_name)
{
    const core_dtype none = (core_dtype)99;
    core_tensor *of = VECTOR(2, 1, 2), *out;

    FAILS(core_to_copy(of, none, NULL, false, -1, &out),
          CORE_ERROR_INVALID_ARGUMENT,
          "_to_copy: ", "99 is not a dtype; accepted: f64, f32");
    FAILS(core_zeros((int64_t[]){2}, 1, none, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "zeros: ", "99 is not a dtype");
    FAILS(core_sum(of, none, &out), CORE_ERROR_INVALID_ARGUMENT,
          "sum: ", "99 is not a dtype");
    FAILS(core_cumsum(of, 0, none, &out), CORE_ERROR_INVALID_ARGUMENT,
          "cumsum: ", "99 is not a dtype");
    FAILS(core_softmax(of, 0, none, &out), CORE_ERROR_INVALID_ARGUMENT,
          "softmax", "99 is not a dtype");
}
END_TEST

START_TEST(calls_about_a_tensor_name_themselves)
{
    static double data[2];
    const int64_t two = 2;
    int64_t many[33];
    core_tensor *of = VECTOR(2, 1, 2), *one = VECTOR(1, 1), *out;
    core_value args[2];
    core_value result = {0};
    core_operator *op;
    core_scalar scalar;
    double number;
    int64_t integer;

    for (int i = 0; i < 33; i++)
        many[i] = 1;
    FAILS(core_tensor_read(of, data, 9), CORE_ERROR_INVALID_ARGUMENT,
          "core_tensor_read: ", "9 bytes");
    FAILS(core_tensor_write(of, data, 9), CORE_ERROR_INVALID_ARGUMENT,
          "core_tensor_write: ", "9 bytes");
    FAILS(core_tensor_item(of, &scalar), CORE_ERROR_SHAPE,
          "core_tensor_item: ", "2 elements");
    FAILS(core_tensor_item_float(of, &number), CORE_ERROR_SHAPE,
          "core_tensor_item_float: ", "2 elements");
    FAILS(core_tensor_item_int(one, &integer), CORE_ERROR_DTYPE,
          "core_tensor_item_int: ", "f64");
    FAILS(core_tensor_from_memory((char *)data + 1, CORE_F64, &two, 1, NULL,
                                  NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "core_tensor_from_memory: ", "aligned");
    FAILS(core_tensor_from_memory(data, CORE_F64, many, 33, NULL, NULL, &out),
          CORE_ERROR_SHAPE, "core_tensor_from_memory: ", "33 dimensions");
    FAILS(core_tensor_from_memory(data, (core_dtype)99, &two, 1, NULL, NULL,
                                  &out),
          CORE_ERROR_INVALID_ARGUMENT, "core_tensor_from_memory: ", "99");
    FAILS(core_tensor_from_data(data, CORE_F64, many, 33, NULL, &out),
          CORE_ERROR_SHAPE, "core_tensor_from_data: ", "33 dimensions");
    /* and by name */
    OK(core_op_find("zeros", &op));
    args[0] = core_pack_ints(&two, 1);
    args[1] = core_pack_dtype((core_dtype)18);
    FAILS(core_op_call(op, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
          "zeros: ", "18 is not a dtype");
}
END_TEST

/* ------------------------------------------------------------- memory -- */

enum { SIDE = 96 };
static const int64_t side[] = {SIDE, SIDE};
static const int64_t turned[] = {1, SIDE};
static core_tensor *x;              /* [SIDE, SIDE] */
static core_tensor *flipped, *cube; /* views of x */
static core_tensor *rows_of;        /* indices */
static core_device *device;

/* One call each; the last argument of a call is the address of its result. */
#define MAKERS(M)                                                        \
    M(add, "add", x, x, core_int(1))                                     \
    M(mul, "mul", x, x)                                                  \
    M(neg, "neg", x)                                                     \
    M(add_scalar, "add", x, core_int(2), core_int(1))                    \
    M(eq, "eq", x, flipped)                                              \
    M(sum_dim, "sum", x, turned, 1, false, CORE_DTYPE_NONE)              \
    M(cumsum, "cumsum", x, 0, CORE_DTYPE_NONE)                           \
    M(mm, "mm", x, x)                                                    \
    M(matmul, "matmul", cube, cube)                                      \
    M(linear, "linear", x, x, NULL)                                      \
    M(cat, "cat", (core_tensor *[]){x, x}, 2, 0)                         \
    M(stack, "stack", (core_tensor *[]){x, x}, 2, 0)                     \
    M(index_select, "index_select", x, 0, rows_of)                       \
    M(nonzero, "nonzero", x)                                             \
    M(clone, "clone", x, -1)                                             \
    M(to_copy, "_to_copy", x, CORE_F64, NULL, false, -1)                 \
    M(contiguous, "contiguous", flipped, -1)                             \
    M(full_like, "full_like", x, core_int(1), CORE_DTYPE_NONE, NULL, -1) \
    M(empty_like, "empty_like", x, CORE_DTYPE_NONE, NULL, -1)            \
    M(zeros, "zeros", side, 2, CORE_F32, device)                         \
    M(rand, "rand", side, 2, NULL, CORE_F32, device)                     \
    M(new_ones, "new_ones", x, side, 2, CORE_F32, NULL)                  \
    M(empty_strided, "empty_strided", side, 2, turned, 2, CORE_F32, device)

#define FUNCTION(op, name, ...)                     \
    static core_status make_##op(core_tensor **out) \
    {                                               \
        return core_##op(__VA_ARGS__, out);         \
    }
MAKERS(FUNCTION)

static const struct maker {
    core_status (*make)(core_tensor **out);
    const char *name;
} makers[] = {
#define ROW(op, name, ...) {make_##op, name},
    MAKERS(ROW)};
enum { MAKERS_COUNT = sizeof makers / sizeof *makers };

static void open_on(const char *name)
{
    const int64_t n = SIDE;

    OK(core_device_find(name, &device));
    x = CALL(ones, side, 2, CORE_F32, device);
    flipped = CALL(t, x);
    cube = CALL(unsqueeze, x, 0);
    rows_of = CALL(zeros, &n, 1, CORE_I64, device);
}

static void says(const struct maker *maker, const char *where,
                 const char *bytes)
{
    const char *said = core_error_message();

    ck_assert_msg(strncmp(said, maker->name, strlen(maker->name)) == 0 &&
                      strstr(said, where) && strstr(said, bytes),
                  "%s on %s: \"%s\"", maker->name, core_device_name(device),
                  said);
}

/* Fails each allocation in turn.  Memory that does not belong to a device, such
 * as the header of a view, is reported as the host's. */
static void without_memory(const struct maker *maker, bool for_good)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    core_tensor *out;
    int64_t allowed;

    OK(maker->make(&out)); /* creates what is allocated only once */
    core_tensor_release(out);
    for (allowed = 0; status != CORE_OK; allowed++) {
        core__alloc_fault_set(allowed, for_good);
        status = maker->make(&out);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK)
            break;
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_ptr_null(out);
        says(maker,
             strstr(core_error_message(), "host memory")
                 ? ""
                 : core_device_name(device),
             "bytes");
    }
    ck_assert_int_gt(allowed, 0);
    core_tensor_release(out);
}

START_TEST(out_of_memory_names_operator_bytes_and_device)
{
    open_on(_i ? "sim" : "cpu");
    for (size_t i = 0; i < MAKERS_COUNT; i++)
        for (int for_good = 0; for_good < 2; for_good++)
            without_memory(&makers[i], for_good);
}
END_TEST

/* A device whose own memory is used up. */
START_TEST(full_device_is_reported_with_the_operator)
{
    core_tensor *out;

    open_on("sim");
    OK(core_memory_set_fraction(device, 1e-9));
    for (size_t i = 0; i < MAKERS_COUNT; i++) {
        core_status status = makers[i].make(&out);

        if (status == CORE_OK) {
            core_tensor_release(out); /* small: served from cached memory */
            continue;
        }
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        says(&makers[i], core_device_name(device), "B requested");
    }
}
END_TEST

/* A kernel that takes several dtypes is described by all of them. */
START_TEST(dtypes_that_a_kernel_accepts_are_named)
{
    const int64_t two = 2;
    core_tensor *out = NULL;

    ck_assert_int_eq(core_randn(&two, 1, NULL, CORE_I64, NULL, &out),
                     CORE_ERROR_NO_KERNEL);
    ck_assert_ptr_null(out);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "(i64,i64)"));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "f64|f32"));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        errors_name_what_is_wrong,
        unknown_flags_are_refused,
        a_dtype_that_does_not_exist_is_refused_by_name,
        calls_about_a_tensor_name_themselves,
        dtypes_that_a_kernel_accepts_are_named,
        full_device_is_reported_with_the_operator,
    };
    const suite_loop loops[] = {
        {out_of_memory_names_operator_bytes_and_device, 0, 2},
    };
    const test_suite suite = {
        .name = "base/error_texts",
        .teardown = drop_all,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
