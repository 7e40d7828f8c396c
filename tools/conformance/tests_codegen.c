/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: kernels of loop programs (core.codegen). */

#include "element_value.h"
#include "loop_reference.h"
#include "stream_gate.h"
#include "tests_features.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS = 3, GUARD = 64 /* bytes before and after operands */ };

typedef struct bed {
    plugin_tables *p;
    const core_codegen_interface *table;
    outcome *out;
    bool divides; /* divisions are rounded exactly */
    bool flushes; /* subnormal numbers may become 0 */
} bed;

static bool bed_open(bed *b, suite *self, outcome *out)
{
    const core_numerics_interface *numerics;
    core_numerics now = {.struct_size = sizeof now};
    core_string div = {"div", 3};

    *b = (bed){.p = plugin_tables_open(self, out), .out = out, .divides = true};
    if (!b->p)
        return false;
    b->table = plugin_interface(b->p, "core.codegen");
    if (!b->table) {
        not_supported(out, "it has no core.codegen");
        return false;
    }
    numerics = plugin_interface(b->p, "core.numerics");
    if (numerics && numerics->get(b->p->device, &now) == CORE_OK) {
        b->flushes = now.flushes_denormals != 0;
        b->divides = now.max_ulp == 0 &&
                     !(numerics->function_ulp &&
                       numerics->function_ulp(b->p->device, div, CORE_F32) > 0);
    }
    return true;
}

/* --------------------------------------------------------------- loops -- */

enum { GAP = 3 }; /* elements from one to the next */

typedef enum layout {
    DENSE,
    GAPS,       /* between all elements */
    TRANSPOSED, /* the outermost dimension is dense */
    REPEATED,   /* inputs: stride 0 in the innermost dimension */
    LAYOUTS
} layout;

static const char *const layout_texts[LAYOUTS] = {
    "dense", "with gaps", "transposed",
    "repeated along the innermost dimension"};

/* Operands in host memory, for the reference, and on the device. */
typedef struct bench {
    core_loop loop;
    int64_t sizes[DIMENSIONS];
    core_operand host[LOOP_OPERANDS], device[LOOP_OPERANDS];
    int64_t strides[LOOP_OPERANDS][DIMENSIONS];
    char *data[LOOP_OPERANDS]; /* with a guard on both sides */
    uint64_t bytes[LOOP_OPERANDS];
    plugin_block blocks[LOOP_OPERANDS];
    plugin_block scratch;
} bench;

static uint32_t itemsize(core_dtype dtype)
{
    return dtype == CORE_F64 || dtype == CORE_I64                         ? 8
           : dtype == CORE_F32 || dtype == CORE_I32                       ? 4
           : dtype == CORE_F16 || dtype == CORE_BF16 || dtype == CORE_I16 ? 2
                                                                          : 1;
}

/* Numbers that show what a kernel does with them. */
static void write_number(core_dtype dtype, uint64_t i, bool flushes, void *to)
{
    static const double values[] = {
        0,    -0.0, 1,    -1,      INFINITY, -INFINITY, NAN,       0.5,
        -0.5, 2,    -3,   3.75,    88.5,     -103.25,   1e-3,      100,
        7,    127,  -128, 0x1p-24, 1e-7,     0x1p-149,  -0x1p-127, 65504};
    uint32_t count = sizeof values / sizeof *values - (flushes ? 4 : 0);
    double value = values[i % count];

    if (dtype != CORE_F64 && dtype != CORE_F32 && dtype != CORE_F16 &&
        dtype != CORE_BF16 && !(fabs(value) < 1e5))
        value = 5;
    element_store(dtype, value, to);
}

static void set_strides(bench *k, uint32_t operand, core_dtype dtype,
                        uint32_t flags, layout how)
{
    int64_t step = (int64_t)itemsize(dtype) * (how == GAPS ? GAP : 1);
    int64_t *strides = k->strides[operand];
    uint32_t ndim = k->loop.ndim;
    bool output = flags & CORE_LOOP_OPERAND_OUTPUT;

    for (uint32_t i = 0; i < ndim; i++) {
        uint32_t d = how == TRANSPOSED ? ndim - 1 - i : i;
        bool row = flags & CORE_LOOP_OPERAND_ROW && k->loop.reduced >> d & 1;

        strides[d] = row || (how == REPEATED && !output && d == 0) ? 0 : step;
        if (strides[d] != 0)
            step *= k->sizes[d];
    }
    k->bytes[operand] = itemsize(dtype);
    for (uint32_t d = 0; d < ndim; d++)
        k->bytes[operand] += (uint64_t)(strides[d] * (k->sizes[d] - 1));
}

static bool bench_operand(bed *b, bench *k, const core_loop_program *program,
                          uint32_t operand, layout how)
{
    core_dtype dtype = program->operands[operand].dtype;
    uint32_t flags = program->operands[operand].flags;
    core_operand *host = &k->host[operand];
    uint64_t size, step;

    *host = (core_operand){
        .strides = k->strides[operand],
        .dtype = dtype,
        .flags = flags & CORE_LOOP_OPERAND_OUTPUT ? CORE_OPERAND_OUTPUT : 0};
    if (flags & CORE_LOOP_OPERAND_NUMBER) {
        host->flags = CORE_OPERAND_IMMEDIATE;
        write_number(dtype, operand + 2, b->flushes, &host->immediate);
        k->device[operand] = *host;
        return true;
    }
    set_strides(k, operand, dtype, flags, how);
    size = k->bytes[operand] + 2 * GUARD;
    k->data[operand] = malloc(size);
    if (!k->data[operand]) {
        harness_error(b->out, "no memory");
        return false;
    }
    memset(k->data[operand], 0xa5, size);
    step = (uint64_t)itemsize(dtype) * (how == GAPS ? GAP : 1);
    for (uint64_t at = 0; !(flags & CORE_LOOP_OPERAND_OUTPUT) &&
                          at + itemsize(dtype) <= k->bytes[operand];
         at += step) {
        uint64_t i = at / step;

        write_number(dtype, operand % 2 ? i : i / 7 + 3 * operand, b->flushes,
                     k->data[operand] + GUARD + at);
    }
    host->memory.handle = k->data[operand] + GUARD;
    k->device[operand] = *host;
    if (!plugin_alloc(b->p, b->out, size, &k->blocks[operand]))
        return false;
    k->device[operand].memory = plugin_block_at(&k->blocks[operand], GUARD);
    return plugin_write(b->p, b->out, k->blocks[operand].memory,
                        k->data[operand], size);
}

static void bench_end(bed *b, bench *k)
{
    for (uint32_t i = 0; i < LOOP_OPERANDS; i++) {
        plugin_free(b->p, &k->blocks[i]);
        free(k->data[i]);
    }
    plugin_free(b->p, &k->scratch);
}

/* layouts: of operand 0, 1, … in turn, from `how` on. */
static bool bench_begin(bed *b, bench *k, const core_loop_program *program,
                        uint32_t ndim, const int64_t *sizes, uint32_t reduced,
                        layout how, bool all_same)
{
    memset(k, 0, sizeof *k);
    k->loop = (core_loop){.struct_size = sizeof k->loop,
                          .ndim = ndim,
                          .noperands = program->noperands,
                          .noutputs = program->noutputs,
                          .reduced = reduced,
                          .numel = 1,
                          .sizes = k->sizes,
                          .operands = k->host};
    for (uint32_t d = 0; d < ndim; d++) {
        k->sizes[d] = sizes[d];
        k->loop.numel *= sizes[d];
    }
    if (how == DENSE && all_same && ndim == 1 && reduced == 0)
        k->loop.flags = CORE_LOOP_CONTIGUOUS;
    for (uint32_t i = 0; i < program->noperands; i++)
        if (!bench_operand(b, k, program, i,
                           all_same ? how : (layout)((how + i) % LAYOUTS))) {
            bench_end(b, k);
            return false;
        }
    return true;
}

/* Enqueues the kernel.  *out_status: what the plugin's launch returns. */
static bool launch_returns(bed *b, void *kernel, bench *k,
                           core_status *out_status)
{
    core_loop loop = k->loop;
    core_loop_launch now = {.struct_size = sizeof now,
                            .stream = b->p->stream,
                            .loop = &loop,
                            .id = 1};
    uint64_t size = 0;

    loop.operands = k->device;
    if (b->table->scratch_size &&
        !expect_plugin_ok(
            b->out, b->table->scratch_size(b->p->device, kernel, &loop, &size),
            "scratch_size"))
        return false;
    if (size > 0 && !k->scratch.size &&
        !plugin_alloc(b->p, b->out, size, &k->scratch))
        return false;
    now.scratch = k->scratch.memory;
    *out_status = b->table->launch(b->p->device, kernel, &now);
    return true;
}

static bool launch(bed *b, void *kernel, bench *k)
{
    core_status status;

    return launch_returns(b, kernel, k, &status) &&
           expect_plugin_ok(b->out, status, "launch");
}

static bool is_nan(core_dtype dtype, const void *at)
{
    return (dtype == CORE_F64 || dtype == CORE_F32 || dtype == CORE_F16 ||
            dtype == CORE_BF16) &&
           isnan(element_load(dtype, at));
}

/* Compares the outputs and what is around and between their elements with the
 * reference, which has run on the host's copies.  tolerance: relative. */
static bool same_results(bed *b, bench *k, double tolerance, const char *what)
{
    for (uint32_t i = 0; i < k->loop.noutputs; i++) {
        core_dtype dtype = k->host[i].dtype;
        uint64_t size = k->bytes[i] + 2 * GUARD, step = itemsize(dtype);
        char *got = malloc(size);
        bool same = true;

        if (!got ||
            !plugin_read(b->p, b->out, got, k->blocks[i].memory, size)) {
            free(got);
            return false;
        }
        for (uint64_t at = GUARD % step; same && at + step <= size;
             at += step) {
            const char *wanted = k->data[i] + at;
            double x, y;

            if (memcmp(got + at, wanted, step) == 0 ||
                (is_nan(dtype, got + at) && is_nan(dtype, wanted)))
                continue;
            x = element_load(dtype, got + at);
            y = element_load(dtype, wanted);
            same = fabs(x - y) <= tolerance * fabs(y);
            expect(b->out, same,
                   "%s: output %u, %lld bytes after its first: got %.9g, "
                   "expected %.9g",
                   what, i, (long long)at - GUARD, x, y);
        }
        free(got);
        if (!same)
            return false;
    }
    return true;
}

/* Builds a kernel.  *out_refused: the plugin does not accept the program. */
static bool build_case(bed *b, const core_loop_program *program,
                       void **out_kernel, bool *out_refused)
{
    core_status status = b->table->accepts(b->p->device, program);

    *out_kernel = NULL;
    *out_refused = status == CORE_ERROR_UNSUPPORTED;
    return *out_refused ||
           (expect_plugin_ok(b->out, status, "accepts") &&
            expect_plugin_ok(
                b->out,
                b->table->build(b->p->device, program, NULL, out_kernel),
                "building a kernel of an accepted program"));
}

/* Runs a kernel on one loop, destroys it if it is not needed again, and
 * compares. */
static bool compare_case(bed *b, const core_loop_program *program, void *kernel,
                         bench *k, const char *what, bool last)
{
    bool good = launch(b, kernel, k);

    if (last)
        b->table->destroy(b->p->device, kernel);
    if (!good || !plugin_wait(b->p, b->out))
        return false;
    loop_reference_run(program, &k->loop);
    return same_results(b, k, 0, what);
}

/* Builds, runs and compares one program on one loop. */
static bool run_case(bed *b, const core_loop_program *program, bench *k,
                     const char *what, bool *out_refused)
{
    void *kernel;

    if (!build_case(b, program, &kernel, out_refused))
        return false;
    return *out_refused || compare_case(b, program, kernel, k, what, true);
}

/* ------------------------------------------------------------ elements -- */

static void codegen_random_programs(suite *self, outcome *out, const test *one)
{
    uint32_t count = self->quick ? 40 : 150, refused = 0;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    if (b.table->flags & CORE_CODEGEN_BUILDS_SLOWLY)
        count = self->quick ? 6 : 12;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seed = suite_random(self, "loop programs", i);
        const int64_t sizes[] = {1 + (int64_t)(seed % 37),
                                 1 + (int64_t)(seed >> 8 & 7),
                                 1 + (int64_t)(seed >> 16 & 3)};
        char what[TEST_DETAIL - 200];
        loop_case now;
        bench k;
        bool no, good;
        int length;

        loop_case_random(&now, seed, b.divides);
        length = snprintf(what, sizeof what, "random program %u, ", i);
        loop_case_text(&now.program, what + length,
                       sizeof what - (size_t)length);
        if (!bench_begin(&b, &k, &now.program,
                         1 + (uint32_t)(seed >> 24 & 1) * 2, sizes, 0,
                         (layout)(i % LAYOUTS), i % 3 == 0))
            return;
        good = run_case(&b, &now.program, &k, what, &no);
        bench_end(&b, &k);
        refused += no;
        if (!good)
            return;
    }
    if (refused == count)
        not_supported(out, "it accepts none of %u random loop programs", count);
}

/* out = a + b b */
static void square_sum(loop_case *now, core_dtype dtype)
{
    uint32_t a, c;

    loop_case_begin(now, 1);
    a = loop_case_load(now, dtype, 0);
    c = loop_case_load(now, dtype, 0);
    c = loop_case_add(now, CORE_LOOP_MUL, dtype, c, c, 0);
    loop_case_store(now, 0, loop_case_add(now, CORE_LOOP_ADD, dtype, a, c, 0));
    loop_case_end(now);
}

static bool check_layout(bed *b, const core_loop_program *program, void *kernel,
                         int64_t inner, int64_t outer, layout how)
{
    const int64_t sizes[] = {inner, outer};
    char what[160];
    bench k;
    bool good;

    snprintf(what, sizeof what, "a + b b of dtype %u, %lld x %lld, %s",
             program->operands[0].dtype, (long long)inner, (long long)outer,
             layout_texts[how]);
    if (!bench_begin(b, &k, program, outer == 1 ? 1 : 2, sizes, 0, how, true))
        return false;
    good = compare_case(b, program, kernel, &k, what, false);
    bench_end(b, &k);
    return good;
}

/* Sizes that leave every remainder, and operands of each layout. */
static void codegen_layouts(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_I64, CORE_F64,
                                        CORE_U8};
    static const int64_t sizes[] = {1,  2,  3,  7,   8,   15,  16,  17,
                                    31, 33, 64, 127, 128, 255, 257, 1030};
    uint32_t accepted = 0;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        loop_case now;
        void *kernel;
        bool no, good = true;

        square_sum(&now, dtypes[d]);
        if (!build_case(&b, &now.program, &kernel, &no))
            return;
        if (no)
            continue;
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            for (int how = 0; how < (d < 2 ? LAYOUTS : 2) && good; how++)
                good = check_layout(&b, &now.program, kernel, sizes[n],
                                    n % 3 ? 1 : 5, (layout)how);
        b.table->destroy(b.p->device, kernel);
        if (!good)
            return;
        accepted++;
    }
    if (accepted == 0)
        not_supported(out, "it accepts no program that computes a + b b");
}

/* One kernel on loops of different sizes and layouts, whatever it was built
 * for. */
static void codegen_kernels_are_for_every_loop(suite *self, outcome *out,
                                               const test *one)
{
    const core_loop_hints hints = {.struct_size = sizeof hints,
                                   .flags = CORE_LOOP_HINT_CONTIGUOUS,
                                   .ndim = 1,
                                   .numel = 1024};
    static const int64_t sizes[][2] = {{1024, 1}, {5, 3}, {300, 1}, {1, 1}};
    void *kernel = NULL;
    loop_case now;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    square_sum(&now, CORE_F32);
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it does not accept a + b b of f32");
        return;
    }
    if (!expect_plugin_ok(
            out, b.table->build(b.p->device, &now.program, &hints, &kernel),
            "building with hints"))
        return;
    for (uint32_t i = 0; i < 4; i++) {
        bench k;
        bool good = bench_begin(&b, &k, &now.program, sizes[i][1] == 1 ? 1 : 2,
                                sizes[i], 0, (layout)i, true);

        if (!good)
            break;
        good = launch(&b, kernel, &k) && plugin_wait(b.p, out);
        loop_reference_run(&now.program, &k.loop);
        good = good && same_results(&b, &k, 0,
                                    "a kernel built for 1024 dense elements");
        bench_end(&b, &k);
        if (!good)
            break;
    }
    b.table->destroy(b.p->device, kernel);
}

/* Index, size and position, and the words of Philox4x32-10. */
static void codegen_indices_and_random_numbers(suite *self, outcome *out,
                                               const test *one)
{
    static const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                     0x9b00dbd8}; /* key and counter 0 */
    const int64_t sizes[] = {6, 5, 4};
    uint32_t sum, zero;
    loop_case now;
    bench k;
    bed b;
    bool no;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    loop_case_begin(&now, 1);
    now.program.ndim = 3;
    sum = loop_case_add(&now, CORE_LOOP_POSITION, CORE_I64, 0, 0, 0);
    for (uint32_t d = 0; d < 3; d++) {
        zero = loop_case_add(&now, CORE_LOOP_SIZE, CORE_I64, d, 0, 0);
        sum = loop_case_add(&now, CORE_LOOP_MUL, CORE_I64, sum, zero, 0);
        zero = loop_case_add(&now, CORE_LOOP_INDEX, CORE_I64, d, 0, 0);
        sum = loop_case_add(&now, CORE_LOOP_ADD, CORE_I64, sum, zero, 0);
    }
    loop_case_store(&now, 0, sum);
    loop_case_end(&now);
    if (!bench_begin(&b, &k, &now.program, 3, sizes, 0, TRANSPOSED, true))
        return;
    no = !run_case(&b, &now.program, &k, "indices, sizes and positions", &no);
    bench_end(&b, &k);
    if (no)
        return;
    loop_case_begin(&now, 1);
    now.program.ndim = 1;
    zero = loop_case_constant(&now, CORE_I64, 0);
    sum = loop_case_add(&now, CORE_LOOP_POSITION, CORE_I64, 0, 0, 0);
    loop_case_store(
        &now, 0,
        loop_case_add(&now, CORE_LOOP_PHILOX32, CORE_I32, zero, zero, sum));
    loop_case_end(&now);
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED ||
        !bench_begin(&b, &k, &now.program, 1, (int64_t[]){4}, 0, DENSE, true))
        return;
    {
        void *kernel = NULL;

        if (expect_plugin_ok(
                out, b.table->build(b.p->device, &now.program, NULL, &kernel),
                "building a kernel of random numbers")) {
            if (launch(&b, kernel, &k) && plugin_wait(b.p, out)) {
                memcpy(k.data[0] + GUARD, words, sizeof words);
                same_results(&b, &k, 0, "PHILOX32 of seed and block 0");
            }
            b.table->destroy(b.p->device, kernel);
        }
    }
    bench_end(&b, &k);
}

/* ----------------------------------------------------------------- rows -- */

/* For each row of doubles on the host: out = a - sum / n, and row = max. */
static void reference_rows(bench *k, bool integers)
{
    int64_t n = k->sizes[0];

    for (int64_t r = 0; r < k->sizes[1]; r++) {
        const char *a = (char *)k->host[2].memory.handle + r * k->strides[2][1];
        char *out = (char *)k->host[0].memory.handle + r * k->strides[0][1];
        char *row = (char *)k->host[1].memory.handle + r * k->strides[1][1];
        double sum = 0, most = -INFINITY;

        for (int64_t i = 0; i < n; i++) {
            double x = element_load(k->host[2].dtype, a + i * k->strides[2][0]);

            sum += x;
            most = x > most ? x : most;
        }
        for (int64_t i = 0; i < n; i++) {
            double x = element_load(k->host[2].dtype, a + i * k->strides[2][0]);

            element_store(k->host[0].dtype,
                          integers ? x + sum : x - sum / (double)n,
                          out + i * k->strides[0][0]);
        }
        element_store(k->host[1].dtype, most, row);
    }
}

/* Small positive numbers, so that no sum cancels. */
static bool fill_rows(bed *b, bench *k)
{
    uint32_t step = itemsize(k->host[2].dtype);

    for (uint64_t at = 0; at + step <= k->bytes[2]; at += step)
        element_store(k->host[2].dtype, (double)(1 + at / step * 7 % 50),
                      k->data[2] + GUARD + at);
    return plugin_write(b->p, b->out, k->blocks[2].memory, k->data[2],
                        k->bytes[2] + 2 * GUARD);
}

static bool run_rows(bed *b, const core_loop_program *program, int64_t n,
                     layout how, bool integers)
{
    const int64_t sizes[] = {n, 3};
    void *kernel = NULL;
    char what[120];
    bench k;
    bool good;

    snprintf(what, sizeof what, "rows of %lld elements, %s", (long long)n,
             layout_texts[how]);
    if (!bench_begin(b, &k, program, 2, sizes, 1, how, true))
        return false;
    good = fill_rows(b, &k) &&
           expect_plugin_ok(
               b->out, b->table->build(b->p->device, program, NULL, &kernel),
               "building a kernel with reductions") &&
           launch(b, kernel, &k) && plugin_wait(b->p, b->out);
    if (kernel)
        b->table->destroy(b->p->device, kernel);
    if (good) {
        reference_rows(&k, integers);
        good = same_results(b, &k, integers ? 0 : 1e-4, what);
    }
    bench_end(b, &k);
    return good;
}

static void rows_program(loop_case *now, core_dtype dtype, bool integers)
{
    uint32_t a, sum, most, n;

    loop_case_begin(now, 2);
    now->program.flags = CORE_LOOP_PROGRAM_REDUCES;
    now->operands[1].flags |= CORE_LOOP_OPERAND_ROW;
    a = loop_case_load(now, dtype, 0);
    sum = loop_case_add(now, CORE_LOOP_REDUCE_SUM, dtype, a, 0, 0);
    most = loop_case_add(now, CORE_LOOP_REDUCE_MAX, dtype, a, 0, 0);
    if (integers) {
        sum = loop_case_add(now, CORE_LOOP_ADD, dtype, a, sum, 0);
    } else {
        n = loop_case_add(now, CORE_LOOP_ROW_SIZE, CORE_I64, 0, 0, 0);
        n = loop_case_add(now, CORE_LOOP_CONVERT, dtype, n, 0, 0);
        sum = loop_case_add(now, CORE_LOOP_DIV, dtype, sum, n, 0);
        sum = loop_case_add(now, CORE_LOOP_SUB, dtype, a, sum, 0);
    }
    loop_case_store(now, 0, sum);
    loop_case_store(now, 1, most);
    loop_case_end(now);
}

static void codegen_rows(suite *self, outcome *out, const test *one)
{
    static const int64_t lengths[] = {2, 31, 32, 33, 255, 256, 257, 513, 1500};
    static const core_dtype dtypes[] = {CORE_F32, CORE_I64};
    uint32_t accepted = 0;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    for (uint32_t d = 0; d < 2; d++) {
        loop_case now;

        rows_program(&now, dtypes[d], d == 1);
        if (b.table->accepts(b.p->device, &now.program) ==
            CORE_ERROR_UNSUPPORTED)
            continue;
        accepted++;
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (int how = DENSE; how <= TRANSPOSED; how++)
                if (!run_rows(&b, &now.program, lengths[n], (layout)how,
                              d == 1))
                    return;
    }
    if (accepted == 0)
        not_supported(out, "it accepts no program with reductions");
}

/* ------------------------------------------------------------- lifetime -- */

/* The kernel is destroyed, and the loop overwritten, before the work runs. */
static bool launched_work_is_complete(suite *self, outcome *out)
{
    const int64_t size = 300;
    stream_gate gate;
    void *kernel = NULL;
    loop_case now;
    bench k, kept;
    bed b;
    bool observed = true, closed = false, good;

    if (!bed_open(&b, self, out))
        return true;
    square_sum(&now, CORE_F32);
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it does not accept a + b b of f32");
        return true;
    }
    if (!bench_begin(&b, &k, &now.program, 1, &size, 0, DENSE, true))
        return true;
    stream_gate_init(&gate);
    good = expect_plugin_ok(
        out, b.table->build(b.p->device, &now.program, NULL, &kernel), "build");
    if (good && !b.p->synchronous)
        good = closed = stream_gate_close(&gate, b.p, b.p->stream, out);
    good = good && launch(&b, kernel, &k);
    if (kernel)
        b.table->destroy(b.p->device, kernel);
    observed = !closed || stream_gate_holds(&gate);
    kept = k;
    memset(k.sizes, 0x55, sizeof k.sizes);
    memset(k.strides, 0x55, sizeof k.strides);
    memset(k.device, 0x55, sizeof k.device);
    stream_gate_open(&gate);
    if (good && plugin_wait(b.p, out)) {
        memcpy(k.sizes, kept.sizes, sizeof k.sizes);
        memcpy(k.strides, kept.strides, sizeof k.strides);
        loop_reference_run(&now.program, &k.loop);
        same_results(&b, &k, 0,
                     "work whose kernel was destroyed before it ran");
    }
    bench_end(&b, &k);
    stream_gate_destroy(&gate);
    return observed;
}

static void codegen_work_outlives_its_kernel(suite *self, outcome *out,
                                             const test *one)
{
    (void)one;
    stream_gate_test(launched_work_is_complete, self, out);
}

/* ---------------------------------------------------------------- saved -- */

static bool loads_and_computes(bed *b, const loop_case *now, const void *data,
                               uint64_t size)
{
    const int64_t n = 100;
    void *kernel = NULL;
    bench k;
    bool good;

    if (!expect_plugin_ok(
            b->out,
            b->table->load(b->p->device, &now->program, data, size, &kernel),
            "loading a saved kernel") ||
        !bench_begin(b, &k, &now->program, 1, &n, 0, DENSE, true))
        return false;
    good = launch(b, kernel, &k) && plugin_wait(b->p, b->out);
    b->table->destroy(b->p->device, kernel);
    loop_reference_run(&now->program, &k.loop);
    good = good && same_results(b, &k, 0, "a loaded kernel");
    bench_end(b, &k);
    return good;
}

static bool refuses(bed *b, const loop_case *now, const void *data,
                    uint64_t size, const char *what)
{
    void *kernel = NULL;
    core_status status =
        b->table->load(b->p->device, &now->program, data, size, &kernel);

    if (status == CORE_OK)
        b->table->destroy(b->p->device, kernel);
    return expect(b->out, status != CORE_OK, "%s is loaded", what);
}

/* Saves into memory whose end is watched. */
static unsigned char *saved_bytes(bed *b, void *kernel, uint64_t *out_size)
{
    unsigned char *data, filled[GUARD];
    uint64_t again = 0;
    core_status status =
        b->table->save(b->p->device, kernel, NULL, 0, out_size);
    bool good;

    if (status == CORE_ERROR_UNSUPPORTED) {
        not_supported(b->out, "kernels of this device are not saved");
        return NULL;
    }
    memset(filled, 0xa5, sizeof filled);
    if (!expect_plugin_ok(b->out, status, "save with no capacity") ||
        !expect(b->out, *out_size > 0 && *out_size < 1 << 30,
                "a saved kernel has %llu bytes", (unsigned long long)*out_size))
        return NULL;
    data = malloc(*out_size + GUARD);
    if (!data) {
        harness_error(b->out, "no memory");
        return NULL;
    }
    memset(data, 0xa5, *out_size + GUARD);
    good = expect_plugin_ok(b->out,
                            b->table->save(b->p->device, kernel, data,
                                           *out_size - 1, &again),
                            "save with too little capacity") &&
           expect(b->out,
                  again == *out_size && data[0] == 0xa5 &&
                      memcmp(data, data + 1, *out_size - 1) == 0,
                  "save writes although the capacity is too small") &&
           expect_plugin_ok(
               b->out,
               b->table->save(b->p->device, kernel, data, *out_size, &again),
               "save") &&
           expect(b->out, memcmp(data + *out_size, filled, GUARD) == 0,
                  "save writes beyond its capacity");
    if (good)
        return data;
    free(data);
    return NULL;
}

static void codegen_saved_kernels(suite *self, outcome *out, const test *one)
{
    core_string first = {NULL, 0}, second = {NULL, 0};
    loop_case now, other;
    void *kernel = NULL;
    unsigned char *data;
    uint64_t size;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    if (!b.table->save && !b.table->load) {
        not_supported(out, "kernels cannot be saved");
        return;
    }
    if (!expect(out, b.table->save && b.table->load && b.table->identity,
                "of save, load and identity some are NULL") ||
        !expect_plugin_ok(out, b.table->identity(b.p->device, &first),
                          "identity") ||
        !expect_plugin_ok(out, b.table->identity(b.p->device, &second),
                          "identity") ||
        !expect(out,
                first.size > 0 && first.size == second.size &&
                    memcmp(first.data, second.data, first.size) == 0,
                "identity is empty or changes"))
        return;
    square_sum(&now, CORE_F32);
    square_sum(&other, CORE_F32);
    other.instructions[2].opcode = CORE_LOOP_SUB;
    loop_case_end(&other);
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it does not accept a + b b of f32");
        return;
    }
    if (!expect_plugin_ok(
            out, b.table->build(b.p->device, &now.program, NULL, &kernel),
            "build"))
        return;
    data = saved_bytes(&b, kernel, &size);
    b.table->destroy(b.p->device, kernel);
    if (!data)
        return;
    if (loads_and_computes(&b, &now, data, size) &&
        refuses(&b, &other, data, size, "a saved kernel of another program") &&
        refuses(&b, &now, data, size - 1, "a saved kernel without its end"))
        refuses(&b, &now, data, 0, "a saved kernel without bytes");
    free(data);
}

/* --------------------------------------------------------------- errors -- */

static bool is_unsupported(bed *b, const core_loop_program *program,
                           const char *what)
{
    void *kernel = NULL;

    plugin_last_error()->count = 0;
    return expect_plugin_error(b->out, b->table->accepts(b->p->device, program),
                               CORE_ERROR_UNSUPPORTED, what) &&
           expect_plugin_error(
               b->out, b->table->build(b->p->device, program, NULL, &kernel),
               CORE_ERROR_UNSUPPORTED, what);
}

/* An opcode in each gap of this minor's, and one after them. */
static bool opcodes_are_unsupported(bed *b, loop_case *now)
{
    static const uint8_t unknown[] = {250,
                                      CORE_LOOP_ROW_SIZE + 1,
                                      CORE_LOOP_SIGNBIT + 1,
                                      CORE_LOOP_SHIFT_RIGHT + 1,
                                      CORE_LOOP_GE + 1,
                                      CORE_LOOP_FUNCTION + 1,
                                      CORE_LOOP_PHILOX64 + 1,
                                      CORE_LOOP_REDUCE_MIN + 1};

    for (size_t i = 0; i < sizeof unknown; i++) {
        char what[64];

        snprintf(what, sizeof what, "a program with opcode %u", unknown[i]);
        square_sum(now, CORE_F32);
        now->instructions[2].opcode = unknown[i];
        loop_case_end(now);
        if (!is_unsupported(b, &now->program, what))
            return false;
    }
    return true;
}

/* What a later minor may add. */
static void codegen_unknown_is_unsupported(suite *self, outcome *out,
                                           const test *one)
{
    loop_case now;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    if (!opcodes_are_unsupported(&b, &now))
        return;
    square_sum(&now, CORE_F32);
    now.names[0] = (core_string){"vendor_function_of_tomorrow", 27};
    now.program.nnames = 1;
    now.instructions[2].opcode = CORE_LOOP_FUNCTION;
    now.instructions[2].b = 0;
    loop_case_end(&now);
    is_unsupported(&b, &now.program, "a program with an unknown function");
}

/* Launches a division by zero, and gets the error: of the launch on a synchronous
 * device, otherwise of the stream, which goes on. */
static bool division_error(bed *b, void *kernel, bench *k,
                           core_status *out_status)
{
    const core_stream_error_interface *errors =
        plugin_interface(b->p, "core.stream_error");
    core_stream_error error = {.struct_size = sizeof error};

    if (b->p->synchronous)
        return launch_returns(b, kernel, k, out_status);
    if (!launch(b, kernel, k) || !plugin_wait(b->p, b->out) ||
        !expect_plugin_ok(b->out,
                          errors->take(b->p->device, b->p->stream, &error),
                          "taking the stream's error"))
        return false;
    *out_status = error.code;
    return true;
}

static void codegen_division_by_zero(suite *self, outcome *out, const test *one)
{
    const int64_t size = 40;
    uint32_t a, zero;
    core_status status;
    void *kernel = NULL;
    loop_case now;
    bench k;
    bed b;

    (void)one;
    if (!bed_open(&b, self, out))
        return;
    loop_case_begin(&now, 1);
    a = loop_case_load(&now, CORE_I32, 0);
    zero = loop_case_load(&now, CORE_I32, CORE_LOOP_OPERAND_NUMBER);
    loop_case_store(&now, 0,
                    loop_case_add(&now, CORE_LOOP_DIV, CORE_I32, a, zero, 0));
    loop_case_end(&now);
    if ((!b.p->synchronous && !plugin_interface(b.p, "core.stream_error")) ||
        b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it has no core.stream_error, or does not accept "
                           "divisions of integers");
        return;
    }
    if (!bench_begin(&b, &k, &now.program, 1, &size, 0, DENSE, true))
        return;
    k.device[2].immediate = 0;
    if (expect_plugin_ok(
            out, b.table->build(b.p->device, &now.program, NULL, &kernel),
            "build") &&
        division_error(&b, kernel, &k, &status)) {
        expect(out, status == CORE_ERROR_INVALID_ARGUMENT,
               "an integer divided by zero sets the %s's error to %d",
               b.p->synchronous ? "launch" : "stream", status);
        memset(k.data[0] + GUARD, 0, k.bytes[0]);
        same_results(&b, &k, 0, "integers divided by zero");
    }
    if (kernel)
        b.table->destroy(b.p->device, kernel);
    bench_end(&b, &k);
}

bool suite_add_codegen(suite *self)
{
    static const listed tests[] = {
        {"core/codegen/random-programs", codegen_random_programs, true},
        {"core/codegen/layouts", codegen_layouts, true},
        {"core/codegen/kernels-are-for-every-loop",
         codegen_kernels_are_for_every_loop, true},
        {"core/codegen/indices-and-random-numbers",
         codegen_indices_and_random_numbers, true},
        {"core/codegen/rows", codegen_rows, true},
        {"core/codegen/work-outlives-its-kernel",
         codegen_work_outlives_its_kernel, true},
        {"core/codegen/saved-kernels", codegen_saved_kernels, true},
        {"core/codegen/unknown-is-unsupported", codegen_unknown_is_unsupported,
         true},
        {"core/codegen/division-by-zero", codegen_division_by_zero, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
