/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: kernels of loop programs (core.codegen). */

#include "element_value.h"
#include "loop_bench.h"
#include "stream_gate.h"
#include "tests_features.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ elements -- */

static void codegen_random_programs(suite *self, outcome *out, const test *one)
{
    uint32_t count = self->quick ? 40 : 150, refused = 0;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
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
        loop_bench k;
        bool no, good;
        int length;

        loop_case_random(&now, seed, b.divides);
        length = snprintf(what, sizeof what, "random program %u, ", i);
        loop_case_text(&now.program, what + length,
                       sizeof what - (size_t)length);
        if (!loop_bench_begin(&b, &k, &now.program,
                              1 + (uint32_t)(seed >> 24 & 1) * 2, sizes, 0,
                              (loop_layout)(i % LOOP_LAYOUTS), i % 3 == 0))
            return;
        good = codegen_run(&b, &now.program, &k, what, &no);
        loop_bench_end(&b, &k);
        refused += no;
        if (!good)
            return;
    }
    if (refused == count)
        not_supported(out, "it accepts none of %u random loop programs", count);
}

static bool check_layout(codegen_bed *b, const core_loop_program *program,
                         void *kernel, int64_t inner, int64_t outer,
                         loop_layout how)
{
    const int64_t sizes[] = {inner, outer};
    char what[160];
    loop_bench k;
    bool good;

    snprintf(what, sizeof what, "a + b b of %s, %lld x %lld, %s",
             core_dtype_name(program->operands[0].dtype), (long long)inner,
             (long long)outer, loop_layout_texts[how]);
    if (!loop_bench_begin(b, &k, program, outer == 1 ? 1 : 2, sizes, 0, how,
                          true))
        return false;
    good = codegen_compare(b, program, kernel, &k, what, false);
    loop_bench_end(b, &k);
    return good;
}

/* Sizes that leave every remainder, and operands of each layout. */
static bool check_sizes(codegen_bed *b, const core_loop_program *program,
                        void *kernel, bool thoroughly)
{
    static const int64_t sizes[] = {1,  2,  3,  7,   8,   15,  16,  17,
                                    31, 33, 64, 127, 128, 255, 257, 1030};

    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int how = 0; how < (thoroughly ? LOOP_LAYOUTS : 2); how++)
            if (!check_layout(b, program, kernel, sizes[n], n % 3 ? 1 : 5,
                              (loop_layout)how))
                return false;
    return true;
}

/* Loops may be unrolled: remainders of one to two vectors, behind others. */
static bool check_remainders(codegen_bed *b, const core_loop_program *program,
                             void *kernel)
{
    for (int64_t n = 4; n <= 160; n++)
        if (!check_layout(b, program, kernel, n, 1, LOOP_DENSE))
            return false;
    return true;
}

static bool check_dimensions(codegen_bed *b, const core_loop_program *program,
                             void *kernel)
{
    static const int64_t sizes[LOOP_DIMENSIONS] = {3, 2, 4, 2, 3, 2};

    for (int how = 0; how < LOOP_LAYOUTS; how++) {
        char what[120];
        loop_bench k;
        bool good;

        snprintf(what, sizeof what, "a + b b of %s, %d dimensions, %s",
                 core_dtype_name(program->operands[0].dtype), LOOP_DIMENSIONS,
                 loop_layout_texts[how]);
        if (!loop_bench_begin(b, &k, program, LOOP_DIMENSIONS, sizes, 0,
                              (loop_layout)how, true))
            return false;
        good = codegen_compare(b, program, kernel, &k, what, false);
        loop_bench_end(b, &k);
        if (!good)
            return false;
    }
    return true;
}

static void codegen_layouts(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_I64, CORE_F64,
                                        CORE_U8};
    uint32_t accepted = 0;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const core_loop_program *program;
        loop_case now;
        void *kernel;
        bool no, good;

        loop_case_square_sum(&now, dtypes[d]);
        program = &now.program;
        if (!codegen_build(&b, program, &kernel, &no))
            return;
        if (no)
            continue;
        good = check_sizes(&b, program, kernel, d < 2) &&
               (d > 1 || (check_remainders(&b, program, kernel) &&
                          check_dimensions(&b, program, kernel)));
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
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    loop_case_square_sum(&now, CORE_F32);
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it does not accept a + b b of f32");
        return;
    }
    if (!expect_plugin_ok(
            out, b.table->build(b.p->device, &now.program, &hints, &kernel),
            "building with hints"))
        return;
    for (uint32_t i = 0; i < 4; i++) {
        loop_bench k;
        bool good =
            loop_bench_begin(&b, &k, &now.program, sizes[i][1] == 1 ? 1 : 2,
                             sizes[i], 0, (loop_layout)i, true);

        if (!good)
            break;
        good = loop_bench_launch(&b, kernel, &k) && plugin_wait(b.p, out);
        loop_reference_run(&now.program, &k.loop);
        good = good && loop_bench_is_same(
                           &b, &k, 0, "a kernel built for 1024 dense elements");
        loop_bench_end(&b, &k);
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
    loop_bench k;
    codegen_bed b;
    bool no;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
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
    if (!loop_bench_begin(&b, &k, &now.program, 3, sizes, 0, LOOP_TRANSPOSED,
                          true))
        return;
    no =
        !codegen_run(&b, &now.program, &k, "indices, sizes and positions", &no);
    loop_bench_end(&b, &k);
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
        !loop_bench_begin(&b, &k, &now.program, 1, (int64_t[]){4}, 0,
                          LOOP_DENSE, true))
        return;
    {
        void *kernel = NULL;

        if (expect_plugin_ok(
                out, b.table->build(b.p->device, &now.program, NULL, &kernel),
                "building a kernel of random numbers")) {
            if (loop_bench_launch(&b, kernel, &k) && plugin_wait(b.p, out)) {
                memcpy(k.data[0] + LOOP_GUARD, words, sizeof words);
                loop_bench_is_same(&b, &k, 0, "PHILOX32 of seed and block 0");
            }
            b.table->destroy(b.p->device, kernel);
        }
    }
    loop_bench_end(&b, &k);
}

/* ----------------------------------------------------------------- rows -- */

/* For each row of doubles on the host: out = a - sum / n, and row = max. */
static void reference_rows(loop_bench *k, bool integers)
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
static double small_number(uint64_t i)
{
    return (double)(1 + i * 7 % 50);
}

static bool run_rows(codegen_bed *b, const core_loop_program *program,
                     int64_t n, loop_layout how, bool integers)
{
    const int64_t sizes[] = {n, 3};
    void *kernel = NULL;
    char what[120];
    loop_bench k;
    bool good;

    snprintf(what, sizeof what, "rows of %lld elements, %s", (long long)n,
             loop_layout_texts[how]);
    if (!loop_bench_begin(b, &k, program, 2, sizes, 1, how, true))
        return false;
    good = loop_bench_fill(b, &k, 2, small_number) &&
           expect_plugin_ok(
               b->out, b->table->build(b->p->device, program, NULL, &kernel),
               "building a kernel with reductions") &&
           loop_bench_launch(b, kernel, &k) && plugin_wait(b->p, b->out);
    if (kernel)
        b->table->destroy(b->p->device, kernel);
    if (good) {
        reference_rows(&k, integers);
        good = loop_bench_is_same(b, &k, integers ? 0 : 1e-4, what);
    }
    loop_bench_end(b, &k);
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
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    for (uint32_t d = 0; d < 2; d++) {
        loop_case now;

        rows_program(&now, dtypes[d], d == 1);
        if (b.table->accepts(b.p->device, &now.program) ==
            CORE_ERROR_UNSUPPORTED)
            continue;
        accepted++;
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (int how = LOOP_DENSE; how <= LOOP_TRANSPOSED; how++)
                if (!run_rows(&b, &now.program, lengths[n], (loop_layout)how,
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
    loop_bench k, kept;
    codegen_bed b;
    bool observed = true, closed = false, good;

    if (!codegen_bed_open(&b, self, out))
        return true;
    loop_case_square_sum(&now, CORE_F32);
    if (b.table->accepts(b.p->device, &now.program) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it does not accept a + b b of f32");
        return true;
    }
    if (!loop_bench_begin(&b, &k, &now.program, 1, &size, 0, LOOP_DENSE, true))
        return true;
    stream_gate_init(&gate);
    good = expect_plugin_ok(
        out, b.table->build(b.p->device, &now.program, NULL, &kernel), "build");
    if (good && !b.p->synchronous)
        good = closed = stream_gate_close(&gate, b.p, b.p->stream, out);
    good = good && loop_bench_launch(&b, kernel, &k);
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
        loop_bench_is_same(&b, &k, 0,
                           "work whose kernel was destroyed before it ran");
    }
    loop_bench_end(&b, &k);
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

static bool loads_and_computes(codegen_bed *b, const loop_case *now,
                               const void *data, uint64_t size)
{
    const int64_t n = 100;
    void *kernel = NULL;
    loop_bench k;
    bool good;

    if (!expect_plugin_ok(
            b->out,
            b->table->load(b->p->device, &now->program, data, size, &kernel),
            "loading a saved kernel") ||
        !loop_bench_begin(b, &k, &now->program, 1, &n, 0, LOOP_DENSE, true))
        return false;
    good = loop_bench_launch(b, kernel, &k) && plugin_wait(b->p, b->out);
    b->table->destroy(b->p->device, kernel);
    loop_reference_run(&now->program, &k.loop);
    good = good && loop_bench_is_same(b, &k, 0, "a loaded kernel");
    loop_bench_end(b, &k);
    return good;
}

static bool refuses(codegen_bed *b, const loop_case *now, const void *data,
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
static unsigned char *saved_bytes(codegen_bed *b, void *kernel,
                                  uint64_t *out_size)
{
    unsigned char *data, filled[LOOP_GUARD];
    uint64_t again = 0;
    core_status status =
        b->table->save(b->p->device, kernel, NULL, 0, out_size);
    bool good;

    memset(filled, 0xa5, sizeof filled);
    if (!expect_plugin_ok(b->out, status, "save with no capacity") ||
        !expect(b->out, *out_size > 0 && *out_size < 1 << 30,
                "a saved kernel has %llu bytes", (unsigned long long)*out_size))
        return NULL;
    data = malloc(*out_size + LOOP_GUARD);
    if (!data) {
        harness_error(b->out, "no memory");
        return NULL;
    }
    memset(data, 0xa5, *out_size + LOOP_GUARD);
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
           expect(b->out, memcmp(data + *out_size, filled, LOOP_GUARD) == 0,
                  "save writes beyond its capacity");
    if (good)
        return data;
    free(data);
    return NULL;
}

static bool identity_is_stable(codegen_bed *b)
{
    core_string first = {NULL, 0}, second = {NULL, 0};

    return expect_plugin_ok(b->out, b->table->identity(b->p->device, &first),
                            "identity") &&
           expect_plugin_ok(b->out, b->table->identity(b->p->device, &second),
                            "identity") &&
           expect(b->out,
                  first.size > 0 && first.size == second.size &&
                      memcmp(first.data, second.data, first.size) == 0,
                  "identity is empty or changes");
}

/* Whether a kernel of the program can be saved.  The first that cannot: why. */
static bool can_save(codegen_bed *b, const loop_case *now, char *why,
                     size_t size)
{
    plugin_error *error = plugin_last_error();
    uint64_t bytes = 0;
    void *kernel = NULL;
    core_status status;

    if (!expect_plugin_ok(
            b->out, b->table->build(b->p->device, &now->program, NULL, &kernel),
            "build"))
        return false;
    error->count = 0;
    error->text[0] = '\0';
    status = b->table->save(b->p->device, kernel, NULL, 0, &bytes);
    b->table->destroy(b->p->device, kernel);
    if (status != CORE_ERROR_UNSUPPORTED)
        return true;
    expect(b->out, error->count > 0 && error->text[0],
           "save of core.codegen returns CORE_ERROR_UNSUPPORTED without a "
           "message (core_host.error) that says why");
    if (!why[0])
        snprintf(why, size, "%s", error->text);
    return false;
}

/* Which kernels a device that offers `save` saves.  It may refuse some, or all,
 * because of the driver for example: what it refuses is not tested, and the
 * summary says why. */
typedef struct saving {
    uint32_t accepted, saved;
    core_dtype dtype; /* of one that is saved */
    char why[PLUGIN_ERROR_TEXT];
} saving;

static bool find_saved(codegen_bed *b, saving *out)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_I32, CORE_F16};

    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        loop_case now;

        loop_case_square_sum(&now, dtypes[d]);
        if (b->table->accepts(b->p->device, &now.program) ==
            CORE_ERROR_UNSUPPORTED)
            continue;
        out->accepted++;
        if (can_save(b, &now, out->why, sizeof out->why) && out->saved++ == 0)
            out->dtype = dtypes[d];
        if (b->out->verdict != VERDICT_PASS)
            return false;
    }
    if (out->accepted == 0)
        not_supported(b->out, "it does not accept a + b b of f32, i32, f16");
    else if (out->saved == 0)
        not_supported(b->out,
                      "it offers save, but saves no kernel of this device: %s",
                      out->why);
    return out->saved > 0;
}

static void codegen_saved_kernels(suite *self, outcome *out, const test *one)
{
    loop_case now, other;
    void *kernel = NULL;
    unsigned char *data;
    uint64_t size;
    saving which = {.accepted = 0};
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    if (!b.table->save && !b.table->load) {
        not_supported(out, "kernels cannot be saved");
        return;
    }
    if (!expect(out, b.table->save && b.table->load && b.table->identity,
                "of save, load and identity some are NULL") ||
        !identity_is_stable(&b) || !find_saved(&b, &which))
        return;
    loop_case_square_sum(&now, which.dtype);
    loop_case_square_sum(&other, which.dtype);
    other.instructions[2].opcode = CORE_LOOP_SUB;
    loop_case_end(&other);
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
    if (out->verdict == VERDICT_PASS && which.saved < which.accepted)
        not_supported(out, "save refuses %u of %u kernels: %s",
                      which.accepted - which.saved, which.accepted, which.why);
}

/* --------------------------------------------------------------- errors -- */

static bool is_unsupported(codegen_bed *b, const core_loop_program *program,
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
static bool opcodes_are_unsupported(codegen_bed *b, loop_case *now)
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
        loop_case_square_sum(now, CORE_F32);
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
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
        return;
    if (!opcodes_are_unsupported(&b, &now))
        return;
    loop_case_square_sum(&now, CORE_F32);
    now.names[0] = (core_string){"vendor_function_of_tomorrow", 27};
    now.program.nnames = 1;
    now.instructions[2].opcode = CORE_LOOP_FUNCTION;
    now.instructions[2].b = 0;
    loop_case_end(&now);
    is_unsupported(&b, &now.program, "a program with an unknown function");
}

/* Launches a division by zero, and gets the error: of the launch on a synchronous
 * device, otherwise of the stream, which goes on. */
static bool division_error(codegen_bed *b, void *kernel, loop_bench *k,
                           core_status *out_status)
{
    const core_stream_error_interface *errors =
        plugin_interface(b->p, "core.stream_error");
    core_stream_error error = {.struct_size = sizeof error};

    if (b->p->synchronous)
        return loop_bench_launch_returns(b, kernel, k, out_status);
    if (!loop_bench_launch(b, kernel, k) || !plugin_wait(b->p, b->out) ||
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
    loop_bench k;
    codegen_bed b;

    (void)one;
    if (!codegen_bed_open(&b, self, out))
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
    if (!loop_bench_begin(&b, &k, &now.program, 1, &size, 0, LOOP_DENSE, true))
        return;
    k.device[2].immediate = 0;
    if (expect_plugin_ok(
            out, b.table->build(b.p->device, &now.program, NULL, &kernel),
            "build") &&
        division_error(&b, kernel, &k, &status)) {
        expect(
            out, status == CORE_ERROR_INVALID_ARGUMENT,
            "an integer divided by zero: the error of the %s is %s, expected "
            "CORE_ERROR_INVALID_ARGUMENT",
            b.p->synchronous ? "launch" : "stream", core_status_name(status));
        memset(k.data[0] + LOOP_GUARD, 0, k.bytes[0]);
        loop_bench_is_same(&b, &k, 0, "integers divided by zero");
    }
    if (kernel)
        b.table->destroy(b.p->device, kernel);
    loop_bench_end(&b, &k);
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
        {"core/codegen/random-rows", codegen_random_rows, true},
        {"core/codegen/rows-may-be-inputs", codegen_rows_may_be_inputs, true},
        {"core/codegen/rows-are-independent", codegen_rows_are_independent,
         true},
        {"core/codegen/kernels-are-launched-again",
         codegen_kernels_are_launched_again, true},
        {"core/codegen/tiles-and-threads", codegen_tiles_and_threads, true},
        {"core/codegen/outputs-may-be-inputs", codegen_outputs_may_be_inputs,
         true},
        {"core/codegen/threads-share-a-kernel", codegen_threads_share_a_kernel,
         true},
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
