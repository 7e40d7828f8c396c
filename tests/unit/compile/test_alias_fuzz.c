/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Random functions of views, changes in place and reads, against the programs
 * that are recorded from them: half of them simplified, half of them run by
 * prepared calls, and half of those with fused kernels. */

#define SUITE_SECONDS 3000
#include "support/compiled.h"

#include "compile/passes/simplify.h"

#include <libcore/compiled.h>
#include <libcore/device.h>
#include <libcore/lazy.h>

enum { KNOWN = 24, STEPS = 14 };

/* A generator of its own: what it draws depends on the seed and on the order of
 * calls, which are the same in both worlds. */
typedef struct fuzz {
    uint64_t state;
    core_tensor *known[KNOWN]; /* what the function has so far */
    size_t count;
    core_tensor *inputs[WORLD_TENSORS];
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

/* Takes over a tensor; the oldest results give way. */
static void learn(fuzz *f, core_tensor *tensor)
{
    if (f->count == KNOWN) {
        size_t at = 4 + draw(f, KNOWN - 4);

        core_tensor_release(f->known[at]);
        f->known[at] = tensor;
        return;
    }
    f->known[f->count++] = tensor;
}

/* A dimension, or 0. */
static int64_t some_dim(fuzz *f, const core_tensor *x)
{
    uint32_t ndim = core_tensor_ndim(x);

    return ndim ? draw(f, ndim) : 0;
}

/* --------------------------------------------------------------- views -- */

static core_status strided(fuzz *f, core_tensor *x, core_tensor **out)
{
    int64_t numel = core_tensor_numel(x), offset = core_tensor_offset(x);
    int64_t sizes[2] = {1 + draw(f, 3), 1 + draw(f, 3)};
    int64_t strides[2] = {draw(f, 4), 1 + draw(f, 2)};
    int64_t reach = (sizes[0] - 1) * strides[0] + (sizes[1] - 1) * strides[1];

    if (numel <= reach || !core_tensor_is_contiguous(x, 0))
        return core_alias(x, out);
    offset += draw(f, (uint32_t)(numel - reach));
    return core_as_strided(x, sizes, 2, strides, 2, &offset, out);
}

static core_status slice(fuzz *f, core_tensor *x, core_tensor **out)
{
    int64_t dim = some_dim(f, x), size, start, end;

    if (core_tensor_ndim(x) == 0)
        return core_unsqueeze(x, 0, out);
    size = core_tensor_size(x, dim);
    start = size > 0 ? draw(f, (uint32_t)size) : 0;
    end = start + draw(f, (uint32_t)(size - start) + 1);
    return core_slice(x, dim, &start, &end, 1 + draw(f, 2), out);
}

static core_status view(fuzz *f, core_tensor *x, core_tensor **out)
{
    int64_t dim = some_dim(f, x), other = some_dim(f, x);
    int64_t flat[2] = {core_tensor_numel(x), 1};
    int64_t wide[CORE_MAX_NDIM + 1];
    uint32_t ndim = core_tensor_ndim(x);

    switch (draw(f, 10)) {
    case 0:
        return core_transpose(x, dim, other, out);
    case 1:
        return ndim && core_tensor_size(x, dim) > 0
                   ? core_select(x, dim,
                                 draw(f, (uint32_t)core_tensor_size(x, dim)),
                                 out)
                   : core_detach(x, out);
    case 2:
    case 3:
        return slice(f, x, out);
    case 4:
        return core_tensor_is_contiguous(x, 0)
                   ? core_view_sizes(x, flat, 1 + draw(f, 2), out)
                   : core_detach(x, out);
    case 5:
        return ndim < 4 ? core_unsqueeze(x, dim, out) : core_squeeze(x, out);
    case 6:
        wide[0] = 2;
        memcpy(wide + 1, core_tensor_sizes(x), ndim * sizeof *wide);
        return ndim < 3 ? core_expand(x, wide, ndim + 1, false, out)
                        : core_alias(x, out);
    case 7:
        return ndim >= 2 && dim != other ? core_diagonal(x, 0, dim, other, out)
                                         : core_squeeze(x, out);
    case 8:
        return strided(f, x, out);
    default:
        return core_detach(x, out);
    }
}

/* --------------------------------------------------------------- reads -- */

static core_status compute(fuzz *f, core_tensor *x, core_tensor **out)
{
    core_tensor *y = pick(f);

    switch (draw(f, 7)) {
    case 0:
        return core_add(x, y, core_int(1), out);
    case 1:
        return core_mul(x, y, out);
    case 2:
        return core_relu(x, out);
    case 3:
        return core_sum_dim(x, (int64_t[]){some_dim(f, x)}, 1, false,
                            CORE_DTYPE_NONE, out);
    case 4:
        return core_clone(x, draw(f, 2) ? -1 : CORE_FORMAT_CONTIGUOUS, out);
    case 5:
        return core_contiguous(x, CORE_FORMAT_CONTIGUOUS, out);
    default:
        return core_reshape(x, (int64_t[]){-1}, 1, out);
    }
}

/* -------------------------------------------------------------- writes -- */

static core_status change(fuzz *f, core_tensor *x)
{
    core_tensor *y = pick(f);

    switch (draw(f, 9)) {
    case 0:
        return core_add_(x, y, core_float(.5));
    case 1:
        return core_mul_(x, y);
    case 2:
        return core_copy_(x, y, false);
    case 3:
        return core_fill_(x, core_int(draw(f, 5)));
    case 4:
        return core_zero_(x);
    case 5:
        return core_neg_(x);
    case 6:
        return core_add_scalar_(x, core_int(1), core_int(1));
    case 7:
        return core_bernoulli_float_(x, .5, NULL);
    default:
        return core_mul_out(pick(f), y, x);
    }
}

/* ------------------------------------------------------------ function -- */

/* A call that fails is left out, in both worlds.  What only a recording refuses
 * ends it. */
static core_status step(fuzz *f)
{
    core_tensor *x = pick(f), *made = NULL;
    uint32_t kind = draw(f, 10);
    core_status status = kind < 4   ? view(f, x, &made)
                         : kind < 6 ? compute(f, x, &made)
                                    : change(f, x);

    if (made)
        learn(f, made);
    if (status == CORE_ERROR_UNSUPPORTED)
        return status;
    core_error_clear(); /* a compiled function must not seem to ignore it */
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
    for (size_t i = 0; i < w->nhidden; i++)
        learn(&f, core_tensor_retain(w->hidden[i]));
    for (int i = 0; i < STEPS && status == CORE_OK; i++)
        status = step(&f);
    for (; count < draw(&f, 5) && status == CORE_OK; count++)
        out[count] = core_tensor_retain(pick(&f));
    for (size_t i = 0; i < f.count; i++)
        core_tensor_release(f.known[i]);
    *noutputs = count;
    return status;
}

static uint64_t fuzz_seed;

/* Inputs that are apart, views of one another, equal, transposed or empty, and
 * hidden inputs that may be views of inputs. */
static core_tensor *some_tensor(world *w, fuzz *f, uint32_t i)
{
    core_tensor *x =
        i ? w->inputs[draw(f, i < w->ninputs ? i : (uint32_t)w->ninputs)]
          : NULL;
    core_tensor *y = NULL;

    switch (x ? draw(f, 8) : 0) {
    case 0:
    case 1:
    case 2:
        return NUMBERS(w, i * 100, 1 + draw(f, 4), 1 + draw(f, 4));
    case 3:
        return NUMBERS(w, i * 100, draw(f, 4));
    case 4:
        OK(core_transpose(x, 0, core_tensor_ndim(x) - 1, &y));
        return keep(y);
    case 5:
        OK(slice(f, x, &y));
        return keep(y);
    case 6:
        OK(core_transpose(NUMBERS(w, i * 100, 3, 1 + draw(f, 4)), 0, 1, &y));
        return keep(y);
    default:
        return x;
    }
}

static void make_random(world *w)
{
    fuzz f = {.state = fuzz_seed * 31337 + 1};
    uint32_t hidden = draw(&f, 3);

    w->seed = fuzz_seed;
    w->ninputs = 1;
    w->inputs[0] = some_tensor(w, &f, 0);
    for (uint32_t count = 1 + draw(&f, 3); w->ninputs < count; w->ninputs++)
        w->inputs[w->ninputs] = some_tensor(w, &f, (uint32_t)w->ninputs);
    for (; w->nhidden < hidden; w->nhidden++)
        w->hidden[w->nhidden] = some_tensor(w, &f, 10 + (uint32_t)w->nhidden);
}

/* Returns false if the recording refused the function. */
static bool compare_random(void)
{
    const program_case c = {make_random, random_function};
    world eager = make_world(&c), traced = make_world(&c);
    core_program *program;
    core_status status =
        core_program_trace(random_function, &traced, traced.inputs,
                           traced.ninputs, WORLD_OUTPUTS, &program);

    ck_assert_msg(status == CORE_OK || status == CORE_ERROR_UNSUPPORTED,
                  "seed %llu: %s", (unsigned long long)fuzz_seed,
                  core_error_message());
    if (status != CORE_OK)
        return false;
    if (fuzz_seed & 1)
        OK(core__program_simplify(program));
    status = core_program_verify(program);
    ck_assert_msg(status == CORE_OK, "seed %llu: %s",
                  (unsigned long long)fuzz_seed, core_error_message());
    if (getenv("ALIAS_FUZZ_SEED")) {
        char *text;

        OK(core_program_text(program, &text));
        fprintf(stderr, "%s", text);
        core_text_free(text);
    }
    unchanged(&c, &traced);
    program_is_prepared = fuzz_seed & 2;
    program->codegen =
        fuzz_seed & 4 ? CORE_COMPILE_CODEGEN_ON : CORE_COMPILE_CODEGEN_OFF;
    compare_calls(&c, &eager, &traced, program);
    core_program_release(program);
    return true;
}

/* As device graphs, with frozen hidden inputs, or both; in every other function
 * at other addresses in some calls. */
static bool compare_compiled(void)
{
    const program_case c = {make_random, random_function};
    core_compile_options options = {.struct_size = sizeof options};
    world eager = make_world(&c), traced = make_world(&c);
    core_compiled *compiled;

    options.mode = fuzz_seed % 3 == 0 ? CORE_COMPILE_DEFAULT
                                      : CORE_COMPILE_REDUCE_OVERHEAD;
    options.flags = fuzz_seed % 3 == 1 ? 0 : CORE_COMPILE_FREEZE;
    options.codegen =
        fuzz_seed & 8 ? CORE_COMPILE_CODEGEN_ON : CORE_COMPILE_CODEGEN_AUTO;
    options.key = traced.hidden; /* others replace them in use */
    options.key_size = sizeof traced.hidden;
    OK(core_compile(random_function, &traced, &options, &compiled));
    for (int i = 0; i < 4; i++) {
        same_call(random_function, &eager, compiled, &traced);
        if (i < 1 || fuzz_seed & 4)
            continue;
        eager = make_world(&c);
        traced = make_world(&c);
    }
    core_compiled_release(compiled);
    return true;
}

/* Calls the function in a lazy region that is cut after a few calls. */
static void lazy_call(world *eager, world *lazy)
{
    core_tensor *a[WORLD_OUTPUTS] = {NULL}, *b[WORLD_OUTPUTS] = {NULL};
    core_lazy_options options = {
        .struct_size = sizeof options,
        .codegen =
            fuzz_seed & 4 ? CORE_COMPILE_CODEGEN_ON : CORE_COMPILE_CODEGEN_OFF,
        .limit = fuzz_seed % 3 ? 0 : 1 + (uint32_t)(fuzz_seed % 11)};
    size_t count = WORLD_OUTPUTS, lazy_count = WORLD_OUTPUTS;
    core_status status;
    uint64_t offset;

    core_seed(17);
    status = random_function(eager, eager->inputs, eager->ninputs, a, &count);
    offset = random_offset();
    core_seed(17);
    OK(core_lazy_begin(&options));
    ck_assert_int_eq(status, random_function(lazy, lazy->inputs, lazy->ninputs,
                                             b, &lazy_count));
    core_error_clear();
    for (size_t i = 0; i < lazy->ninputs; i++)
        ck_assert_uint_eq(core_tensor_version(lazy->inputs[i]),
                          core_tensor_version(eager->inputs[i]));
    OK(core_lazy_end());
    ck_assert_uint_eq(count, lazy_count);
    ck_assert_uint_eq(offset, random_offset());
    same_worlds(eager, a, lazy, b, count);
    for (size_t i = 0; i < lazy->ninputs; i++)
        ck_assert_uint_eq(core_tensor_version(lazy->inputs[i]),
                          core_tensor_version(eager->inputs[i]));
    release_tensors(a, count);
    release_tensors(b, count);
}

static bool compare_lazy(void)
{
    const program_case c = {make_random, random_function};
    world eager = make_world(&c), lazy = make_world(&c);

    for (int i = 0; i < 3; i++)
        lazy_call(&eager, &lazy);
    return true;
}

static void compare_many(bool (*compare_one)(void), const char *device,
                         uint64_t first, uint64_t count)
{
    const char *one = getenv("ALIAS_FUZZ_SEED");
    uint64_t compared = 0;

    OK(core_device_find(device, &program_device));
    if (one) {
        first = strtoull(one, NULL, 10);
        count = 1;
    }
    for (fuzz_seed = first; fuzz_seed < first + count; fuzz_seed++) {
        mark_seed(fuzz_seed);
        compared += compare_one();
        drop_all();
    }
    /* Few functions are refused. */
    if (count > 1)
        ck_assert_uint_gt(compared, count * 9 / 10);
}

START_TEST(random_functions_are_equal_on_cpu)
{
    compare_many(compare_random, "cpu", 1, effort_is_long() ? 100000 : 300);
}
END_TEST

START_TEST(random_functions_are_equal_on_sim)
{
    compare_many(compare_random, "sim", 1000000, effort_is_long() ? 5000 : 50);
}
END_TEST

/* How many calls ran a program, of those that could. */
static double compiled_share(void)
{
    core_compile_counts counts = compile_counts();

    return (double)counts.compiled_calls / (double)counts.calls;
}

START_TEST(compiled_functions_are_equal_on_cpu)
{
    compare_many(compare_compiled, "cpu", 5000000,
                 effort_is_long() ? 100000 : 300);
    ck_assert_double_gt(compiled_share(), .9);
}
END_TEST

START_TEST(compiled_functions_are_equal_on_sim)
{
    compare_many(compare_compiled, "sim", 2000000,
                 effort_is_long() ? 5000 : 60);
    ck_assert_uint_gt(compile_counts().graph_launches, 15);
}
END_TEST

START_TEST(lazy_regions_are_equal_on_cpu)
{
    compare_many(compare_lazy, "cpu", 3000000, effort_is_long() ? 100000 : 300);
}
END_TEST

START_TEST(lazy_regions_are_equal_on_sim)
{
    compare_many(compare_lazy, "sim", 4000000, effort_is_long() ? 5000 : 50);
}
END_TEST

SUITE("compile/alias_fuzz", random_functions_are_equal_on_cpu,
      random_functions_are_equal_on_sim, compiled_functions_are_equal_on_cpu,
      compiled_functions_are_equal_on_sim, lazy_regions_are_equal_on_cpu,
      lazy_regions_are_equal_on_sim)
