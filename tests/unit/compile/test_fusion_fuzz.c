/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Random functions of element-wise operators and of some that compute row by
 * row, of all dtypes and layouts, with changes in place, views and results that
 * are inputs: compiled with fused kernels and blocks of rows, and called as they
 * are. */

#define SUITE_SECONDS 3000
#include "support/compiled.h"

#include "dispatch/operator.h"
#include "tensor/dtype.h"

#include <math.h>

enum { KNOWN = 24, STEPS = 18, SPECIAL = 28, ARGUMENTS = 16 };

static const double special[SPECIAL] = {
    0,        -0.0,      1,         -1,    INFINITY, -INFINITY, NAN,
    0.5,      -0.5,      2,         -3,    3.75,     88.5,      -103.25,
    1e-3,     -7e-6,     0x1p-24,   65504, 3e38,     127,       -128,
    0x1p-149, -0x1p-126, 0x1p-1060, 1e10,  7,        1.5,       -2.5};

static const core_dtype dtypes[] = {
    CORE_F32, CORE_F32, CORE_F32, CORE_F32, CORE_F64, CORE_F16, CORE_BF16,
    CORE_I64, CORE_I32, CORE_I16, CORE_I8,  CORE_U8,  CORE_BOOL};

typedef struct fuzz {
    uint64_t state;
    core_tensor *known[KNOWN];
    size_t count;
} fuzz;

static uint32_t draw(fuzz *f, uint32_t below)
{
    f->state = f->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->state >> 33) % below;
}

static core_tensor *pick(fuzz *f)
{
    return f->known[draw(f, (uint32_t)f->count)];
}

static void learn(fuzz *f, core_tensor *tensor)
{
    size_t at = f->count;

    if (f->count == KNOWN) {
        at = draw(f, KNOWN);
        core_tensor_release(f->known[at]);
    } else {
        f->count++;
    }
    f->known[at] = tensor;
}

/* ------------------------------------------------------------ operators -- */

static core_value tensor_value(core_tensor *tensor)
{
    return (core_value){.tag = CORE_VALUE_TENSOR, .u.tensor = tensor};
}

static core_value text_value(const char *text)
{
    return (core_value){.tag = CORE_VALUE_STRING,
                        .count = (uint32_t)strlen(text),
                        .u.string = text};
}

static core_value some_number(fuzz *f)
{
    return draw(f, 2) ? core_float(special[draw(f, SPECIAL)])
                      : core_int(draw(f, 5));
}

/* They show which NaN an operation had, which is not defined. */
static bool shows_nan(const core_operator *op)
{
    return strncmp(op->data->name, "copysign", 8) == 0 ||
           strcmp(op->data->name, "signbit") == 0;
}

/* An integer that is divided by 0 is an error in eager calls, of which the
 * recording knows nothing. */
static bool may_divide_by_zero(const core_operator *op, const core_value *args)
{
    const char *name = op->data->name;

    if (!strstr(name, "div") && !strstr(name, "mod") && !strstr(name, "rem"))
        return false;
    for (uint32_t i = 0; i < op->nargs; i++)
        if (args[i].tag == CORE_VALUE_TENSOR &&
            !core_dtype_is_floating(core_tensor_dtype(args[i].u.tensor)))
            return true;
    return false;
}

static void set_texts(fuzz *f, const core_operator *op, core_value *args)
{
    static const char *const modes[] = {"trunc", "floor"};

    if (strcmp(op->data->name, "_div_rounded") == 0)
        args[2] = text_value(modes[draw(f, 2)]);
    if (strncmp(op->data->name, "gelu", 4) == 0)
        args[op->nargs - 1] = text_value(draw(f, 2) ? "tanh" : "none");
}

/* Any element-wise operator, also those that write their first argument.  A call
 * that fails is left out of the function. */
static core_status call_any(fuzz *f)
{
    core_operator *op = &core__operators[draw(f, core__operator_count)];
    core_value args[ARGUMENTS] = {{0}}, results[2] = {{0}};
    core_status status;

    while (op->family != CORE__FAMILY_ELEMENTWISE ||
           op->variant == CORE__VARIANT_OUT || op->nargs > ARGUMENTS)
        op = &core__operators[draw(f, core__operator_count)];
    for (uint32_t i = 0; i < op->nargs; i++)
        if (op->tensors >> i & 1)
            args[i] = tensor_value(pick(f));
        else if (op->numbers >> i & 1)
            args[i] = some_number(f);
    set_texts(f, op, args);
    if (may_divide_by_zero(op, args) || shows_nan(op))
        return CORE_OK;
    status = core_op_call(op, args, op->nargs, results, op->nresults);
    if (status == CORE_OK && results[0].tag == CORE_VALUE_TENSOR)
        learn(f, results[0].u.tensor);
    return status;
}

/* Those that programs have most. */
static core_status call_common(fuzz *f)
{
    core_tensor *x = pick(f), *y = pick(f), *test = NULL, *out = NULL;
    core_status status;

    switch (draw(f, 9)) {
    case 0:
    case 1:
        status = core_add(x, y, core_int(1 + draw(f, 2)), &out);
        break;
    case 2:
    case 3:
        status = core_mul(x, y, &out);
        break;
    case 4:
        status = core_gt(x, y, &test);
        if (status == CORE_OK)
            status = core_where(test, x, y, &out);
        core_tensor_release(test);
        break;
    case 5:
        status =
            core_to_copy(x, dtypes[draw(f, sizeof dtypes / sizeof *dtypes)],
                         NULL, false, -1, &out);
        break;
    case 6:
        status = core_relu(x, &out);
        break;
    case 7:
        status = core_clone(x, draw(f, 2) ? -1 : CORE_FORMAT_CONTIGUOUS, &out);
        break;
    default:
        status = core_mul_scalar(x, some_number(f), &out);
    }
    if (status == CORE_OK)
        learn(f, out);
    return status;
}

/* Those that compute row by row, and random numbers. */
static core_status call_rows(fuzz *f)
{
    core_tensor *x = pick(f), *out = NULL;
    uint32_t ndim = core_tensor_ndim(x), kind = draw(f, 7);
    int64_t width = ndim ? core_tensor_sizes(x)[ndim - 1] : 1, dim = -1;
    core_status status;

    if (draw(f, 4) == 0)
        dim = draw(f, ndim + 1);
    if (kind < 2)
        status = core_softmax(x, dim, CORE_DTYPE_NONE, &out);
    else if (kind == 2)
        status = core_log_softmax(x, dim, CORE_DTYPE_NONE, &out);
    else if (kind == 3)
        status = core_layer_norm(x, &width, 1, NULL, NULL, 1e-5, &out);
    else if (kind == 4)
        status = core_dropout(x, .25, true, &out);
    else if (kind == 5)
        status = core_sum_dim(x, &dim, 1, true, CORE_DTYPE_NONE, &out);
    else
        status = core_amax(x, &dim, 1, true, &out);
    if (status == CORE_OK)
        learn(f, out);
    return status;
}

static core_status call_view(fuzz *f)
{
    core_tensor *x = pick(f), *out = NULL;
    uint32_t ndim = core_tensor_ndim(x);
    int64_t start = 0;
    core_status status;

    if (ndim == 0)
        status = core_alias(x, &out);
    else if (draw(f, 2))
        status = core_transpose(x, 0, draw(f, ndim), &out);
    else
        status =
            core_slice(x, draw(f, ndim), &start, NULL, 1 + draw(f, 2), &out);
    if (status == CORE_OK)
        learn(f, out);
    return status;
}

/* ------------------------------------------------------------- function -- */

/* The steps that fail in a first call, for which the recording may not know
 * why, and where the draws are after them. */
static bool finds_failures, fails[STEPS];
static uint64_t after[STEPS];

static core_status step(fuzz *f, int i)
{
    uint32_t kind = draw(f, 10);
    core_status status;

    if (fails[i] && !finds_failures) {
        f->state = after[i];
        return CORE_OK;
    }
    status = kind < 4   ? call_any(f)
             : kind < 7 ? call_common(f)
             : kind < 9 ? call_rows(f)
                        : call_view(f);
    if (!finds_failures)
        return status;
    fails[i] = status != CORE_OK;
    after[i] = f->state;
    return CORE_OK;
}

static core_status random_function(void *context, core_tensor *const *x,
                                   size_t ninputs, core_tensor **out,
                                   size_t *noutputs)
{
    const world *w = context;
    fuzz f = {.state = w->seed * 77777 + 5};
    core_status status = CORE_OK;
    size_t count = 0;

    for (size_t i = 0; i < ninputs; i++)
        learn(&f, core_tensor_retain(x[i]));
    for (int i = 0; i < STEPS && status == CORE_OK; i++)
        status = step(&f, i);
    for (; count < 1 + draw(&f, 5) && status == CORE_OK; count++)
        out[count] = core_tensor_retain(pick(&f));
    for (size_t i = 0; i < f.count; i++)
        core_tensor_release(f.known[i]);
    *noutputs = count;
    return status;
}

/* Of one space: whole, transposed in memory, with gaps, or broadcast. */
static core_tensor *some_tensor(fuzz *f, const int64_t *space)
{
    core_dtype dtype = dtypes[draw(f, sizeof dtypes / sizeof *dtypes)];
    uint32_t kind = draw(f, 8);
    int64_t sizes[3] = {space[0], space[1], space[2]}, first = 0;
    double values[8192];
    core_tensor *tensor, *there;

    if (kind == 1)
        sizes[0] = space[2], sizes[2] = space[0];
    if (kind == 2)
        sizes[2] *= 2;
    if (kind == 3)
        sizes[draw(f, 3)] = 1;
    ck_assert_int_le(sizes[0] * sizes[1] * sizes[2], 8192);
    for (int i = 0; i < 8192; i++)
        values[i] = special[draw(f, SPECIAL)];
    tensor = kind == 4   ? typed(dtype, 1, &sizes[2], values)
             : kind == 5 ? typed(dtype, 0, NULL, values)
                         : typed(dtype, 3, sizes, values);
    OK(core_to_copy(tensor, CORE_DTYPE_NONE, program_device, false, -1,
                    &there));
    keep(there);
    if (kind == 1)
        return CALL(transpose, there, 0, 2);
    if (kind == 2)
        return CALL(slice, there, 2, &first, NULL, 2);
    return there;
}

static world random_world(uint64_t seed)
{
    world w = {.device = program_device, .seed = seed};
    fuzz f = {.state = seed * 31337 + 1};
    static const int64_t last[] = {1, 3, 7, 8, 16, 17, 31, 33, 64, 129, 600};
    const int64_t space[] = {1 + draw(&f, 3), 1 + draw(&f, 2),
                             last[draw(&f, 11)]};

    for (w.ninputs = 0; w.ninputs < 4; w.ninputs++)
        w.inputs[w.ninputs] = w.ninputs && draw(&f, 8) == 0
                                  ? w.inputs[w.ninputs - 1]
                                  : some_tensor(&f, space);
    return w;
}

/* Which NaN an operation on NaN has is not defined. */
static void same_elements(core_tensor *a, core_tensor *b)
{
    core_dtype dtype = core_tensor_dtype(a);
    size_t item = (size_t)core_dtype_size(dtype),
           size = (size_t)core_tensor_numel(a) * item;
    char *x = malloc(2 * size + 1), *y = x + size;

    ck_assert_int_eq(dtype, core_tensor_dtype(b));
    ck_assert_int_eq(core_tensor_numel(a), core_tensor_numel(b));
    OK(core_tensor_read(a, x, size));
    OK(core_tensor_read(b, y, size));
    for (size_t i = 0; i < size; i += item) {
        core_scalar p = core__element_load(dtype, x + i);
        core_scalar q = core__element_load(dtype, y + i);
        bool nan = p.tag == CORE_VALUE_FLOAT && isnan(p.u.f) && isnan(q.u.f);

        ck_assert_msg(nan || memcmp(x + i, y + i, item) == 0,
                      "seed %llu: element %zu is %g, and %g eagerly",
                      program_seed, i / item, q.u.f, p.u.f);
    }
    free(x);
}

static uint64_t with_chains; /* compiled functions that have blocks of rows */

/* True if the function could be recorded and run. */
static bool compare_random(uint64_t seed)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .flags = CORE_COMPILE_FULLGRAPH,
                                          .dynamic = CORE_COMPILE_DYNAMIC_NEVER,
                                          .codegen = CORE_COMPILE_CODEGEN_ON};
    world first = random_world(seed), eager = random_world(seed);
    world traced = random_world(seed);
    core_tensor *a[WORLD_OUTPUTS], *b[WORLD_OUTPUTS] = {NULL};
    core_tensor *all_a[3 * WORLD_OUTPUTS], *all_b[3 * WORLD_OUTPUTS];
    core_compiled *compiled;
    core_status status = CORE_OK;
    size_t count;

    finds_failures = true;
    OK(random_function(&first, first.inputs, first.ninputs, a, &count));
    release_tensors(a, count);
    finds_failures = false;
    OK(core_compile(random_function, &traced, &options, &compiled));
    for (int call = 0; call < 2 && status == CORE_OK; call++) {
        size_t all;

        core_seed(seed);
        OK(random_function(&eager, eager.inputs, eager.ninputs, a, &count));
        core_seed(seed);
        status = core_compiled_call(compiled, traced.inputs, traced.ninputs, b,
                                    count);
        ck_assert_msg(status == CORE_OK ||
                          (call == 0 && status == CORE_ERROR_UNSUPPORTED),
                      "seed %llu: %s", program_seed, core_error_message());
        all = gather(&eager, a, count, all_a);
        gather(&traced, b, count, all_b);
        for (size_t i = 0; i < all && status == CORE_OK; i++)
            same_elements(all_a[i], all_b[i]);
        if (status == CORE_OK)
            same_aliases(all_a, all_b, all);
        release_tensors(a, count);
        if (status == CORE_OK)
            release_tensors(b, count);
    }
    with_chains += explains(compiled, "rows_of_a_block");
    core_compiled_release(compiled);
    return status == CORE_OK;
}

/* has_rows: the device runs blocks of rows. */
static void compare_many(uint64_t first, uint64_t count, bool has_rows)
{
    const char *one = getenv("FUSION_FUZZ_SEED");
    core_compile_counts before = compile_counts(), after;
    uint64_t compared = 0;

    with_chains = 0;
    if (one) {
        first = strtoull(one, NULL, 10);
        count = 1;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        mark_seed(seed);
        compared += compare_random(seed);
        drop_all();
    }
    after = compile_counts();
    if (one)
        return;
    ck_assert_uint_gt(compared, count * 3 / 4);
    ck_assert_uint_gt(after.fused_kernels - before.fused_kernels,
                      count * 3 / 4);
    ck_assert_uint_eq(after.refused_kernels, before.refused_kernels);
    ck_assert_uint_ge(with_chains, has_rows ? count / 4 : 0);
}

START_TEST(fused_kernels_have_the_bits_of_operators_on_cpu)
{
    on_cpu();
    compare_many(1, effort_is_long() ? 50000 : 400, true);
}
END_TEST

START_TEST(fused_kernels_have_the_bits_of_operators_on_sim)
{
    on_sim();
    compare_many(1000000, effort_is_long() ? 10000 : 120, false);
}
END_TEST

SUITE("compile/fusion_fuzz", fused_kernels_have_the_bits_of_operators_on_cpu,
      fused_kernels_have_the_bits_of_operators_on_sim)
