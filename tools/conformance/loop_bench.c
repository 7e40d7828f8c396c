/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "loop_bench.h"

#include "element_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool codegen_bed_open(codegen_bed *b, suite *self, outcome *out)
{
    const core_numerics_interface *numerics;
    core_numerics now = {.struct_size = sizeof now};
    core_string div = {"div", 3};

    *b = (codegen_bed){
        .p = plugin_tables_open(self, out), .out = out, .divides = true};
    if (!b->p)
        return false;
    b->stream = b->p->stream;
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

enum {
    GAP = 3, /* elements from one to the next */
    PATTERN = 0xa5
};

const char *const loop_layout_texts[LOOP_LAYOUTS] = {
    "dense", "with gaps", "transposed",
    "repeated along the innermost dimension"};

uint32_t loop_itemsize(core_dtype dtype)
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

static void set_strides(loop_bench *k, uint32_t operand, core_dtype dtype,
                        uint32_t flags, loop_layout how)
{
    int64_t step = (int64_t)loop_itemsize(dtype) * (how == LOOP_GAPS ? GAP : 1);
    int64_t *strides = k->strides[operand];
    uint32_t ndim = k->loop.ndim;
    bool output = flags & CORE_LOOP_OPERAND_OUTPUT;

    for (uint32_t i = 0; i < ndim; i++) {
        uint32_t d = how == LOOP_TRANSPOSED ? ndim - 1 - i : i;
        bool row = flags & CORE_LOOP_OPERAND_ROW && k->loop.reduced >> d & 1;

        strides[d] =
            row || (how == LOOP_REPEATED && !output && d == 0) ? 0 : step;
        if (strides[d] != 0)
            step *= k->sizes[d];
    }
    k->bytes[operand] = loop_itemsize(dtype);
    for (uint32_t d = 0; d < ndim; d++)
        k->bytes[operand] += (uint64_t)(strides[d] * (k->sizes[d] - 1));
}

/* Copies an operand's host memory to the device. */
static bool upload(codegen_bed *b, loop_bench *k, uint32_t operand)
{
    return plugin_write(b->p, b->out, k->blocks[operand].memory,
                        k->data[operand], k->bytes[operand] + 2 * LOOP_GUARD);
}

/* The bytes from an operand's element to the next in memory. */
static uint64_t step_of(const loop_bench *k, uint32_t operand)
{
    return (uint64_t)loop_itemsize(k->host[operand].dtype) *
           (k->spread[operand] ? GAP : 1);
}

static void write_numbers(codegen_bed *b, loop_bench *k, uint32_t operand)
{
    core_dtype dtype = k->host[operand].dtype;
    uint64_t step = step_of(k, operand);

    memset(k->data[operand], PATTERN, k->bytes[operand] + 2 * LOOP_GUARD);
    if (k->host[operand].flags & CORE_OPERAND_OUTPUT)
        return;
    for (uint64_t at = 0; at + loop_itemsize(dtype) <= k->bytes[operand];
         at += step) {
        uint64_t i = at / step + k->salt;

        write_number(dtype, operand % 2 ? i : i / 7 + 3 * operand, b->flushes,
                     k->data[operand] + LOOP_GUARD + at);
    }
}

/* A number that is part of the loop. */
static void set_immediate(codegen_bed *b, loop_bench *k, uint32_t operand)
{
    k->host[operand].flags = CORE_OPERAND_IMMEDIATE;
    write_number(k->host[operand].dtype, operand + 2 + k->salt, b->flushes,
                 &k->host[operand].immediate);
    k->device[operand] = k->host[operand];
}

static bool bench_operand(codegen_bed *b, loop_bench *k,
                          const core_loop_program *program, uint32_t operand,
                          loop_layout how)
{
    core_dtype dtype = program->operands[operand].dtype;
    uint32_t flags = program->operands[operand].flags;
    core_operand *host = &k->host[operand];
    uint64_t size;

    *host = (core_operand){
        .strides = k->strides[operand],
        .dtype = dtype,
        .flags = flags & CORE_LOOP_OPERAND_OUTPUT ? CORE_OPERAND_OUTPUT : 0};
    k->from[operand] = operand;
    k->spread[operand] = how == LOOP_GAPS;
    if (flags & CORE_LOOP_OPERAND_NUMBER) {
        set_immediate(b, k, operand);
        return true;
    }
    set_strides(k, operand, dtype, flags, how);
    size = k->bytes[operand] + 2 * LOOP_GUARD;
    k->data[operand] = malloc(size);
    if (!k->data[operand]) {
        harness_error(b->out, "no memory");
        return false;
    }
    write_numbers(b, k, operand);
    host->memory.handle = k->data[operand] + LOOP_GUARD;
    k->device[operand] = *host;
    if (!plugin_alloc(b->p, b->out, size, &k->blocks[operand]))
        return false;
    k->device[operand].memory =
        plugin_block_at(&k->blocks[operand], LOOP_GUARD);
    return upload(b, k, operand);
}

void loop_bench_share(loop_bench *k, uint32_t operand, uint32_t with)
{
    k->from[operand] = with;
    k->host[operand].memory = k->host[with].memory;
    k->device[operand].memory = k->device[with].memory;
}

bool loop_bench_renew(codegen_bed *b, loop_bench *k)
{
    k->salt += 5;
    for (uint32_t i = 0; i < k->loop.noperands; i++) {
        if (k->host[i].flags & CORE_OPERAND_IMMEDIATE) {
            set_immediate(b, k, i);
            continue;
        }
        write_numbers(b, k, i);
        if (!upload(b, k, i))
            return false;
    }
    return true;
}

bool loop_bench_fill(codegen_bed *b, loop_bench *k, uint32_t operand,
                     double (*number)(uint64_t i))
{
    uint64_t step = step_of(k, operand);
    uint32_t size = loop_itemsize(k->host[operand].dtype);

    for (uint64_t at = 0; at + size <= k->bytes[operand]; at += step)
        element_store(k->host[operand].dtype, number(at / step),
                      k->data[operand] + LOOP_GUARD + at);
    return upload(b, k, operand);
}

void loop_bench_end(codegen_bed *b, loop_bench *k)
{
    for (uint32_t i = 0; i < LOOP_OPERANDS; i++) {
        plugin_free(b->p, &k->blocks[i]);
        free(k->data[i]);
    }
    plugin_free(b->p, &k->scratch);
}

/* layouts: of operand 0, 1, … in turn, from `how` on. */
bool loop_bench_begin(codegen_bed *b, loop_bench *k,
                      const core_loop_program *program, uint32_t ndim,
                      const int64_t *sizes, uint32_t reduced, loop_layout how,
                      bool all_same)
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
    if (how == LOOP_DENSE && all_same && ndim == 1 && reduced == 0)
        k->loop.flags = CORE_LOOP_CONTIGUOUS;
    for (uint32_t i = 0; i < program->noperands; i++)
        if (!bench_operand(
                b, k, program, i,
                all_same ? how : (loop_layout)((how + i) % LOOP_LAYOUTS))) {
            loop_bench_end(b, k);
            return false;
        }
    return true;
}

/* Enqueues the kernel.  *out_status: what the plugin's launch returns. */
bool loop_bench_launch_returns(codegen_bed *b, void *kernel, loop_bench *k,
                               core_status *out_status)
{
    core_loop loop = k->loop;
    core_loop_launch now = {.struct_size = sizeof now,
                            .stream = b->stream,
                            .loop = &loop,
                            .id = 1,
                            .tile = k->tile,
                            .threads = k->threads};
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

bool loop_bench_launch(codegen_bed *b, void *kernel, loop_bench *k)
{
    core_status status;

    return loop_bench_launch_returns(b, kernel, k, &status) &&
           expect_plugin_ok(b->out, status, "launch");
}

static bool is_nan(core_dtype dtype, const void *at)
{
    return (dtype == CORE_F64 || dtype == CORE_F32 || dtype == CORE_F16 ||
            dtype == CORE_BF16) &&
           isnan(element_load(dtype, at));
}

/* Whether two elements are equal; with no tolerance also in the sign of 0. */
static bool is_close(core_dtype dtype, const void *got, const void *wanted,
                     double tolerance)
{
    double x = element_load(dtype, got), y = element_load(dtype, wanted);

    if (memcmp(got, wanted, loop_itemsize(dtype)) == 0 ||
        (is_nan(dtype, got) && is_nan(dtype, wanted)))
        return true;
    return tolerance > 0 && fabs(x - y) <= tolerance * fabs(y);
}

static bool is_pattern(const char *element, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if ((unsigned char)element[i] != PATTERN)
            return false;
    return size >= 4;
}

/* Outputs are filled with a pattern before a launch. */
static const char *cause_of(const char *got, const char *wanted, uint64_t size)
{
    if (is_pattern(wanted, size))
        return ": the launch writes between or beyond the elements of the "
               "output";
    if (is_pattern(got, size))
        return ": the memory is as it was before the launch, which has not "
               "written the element";
    return "";
}

/* Compares the outputs and what is around and between their elements with the
 * reference, which has run on the host's copies.  tolerance: relative. */
bool loop_bench_is_same(codegen_bed *b, loop_bench *k, double tolerance,
                        const char *what)
{
    for (uint32_t i = 0; i < k->loop.noutputs; i++) {
        core_dtype dtype = k->host[i].dtype;
        uint32_t from = k->from[i];
        uint64_t size = k->bytes[i] + 2 * LOOP_GUARD;
        uint64_t step = loop_itemsize(dtype);
        char *got = malloc(size);
        bool same = true;

        if (!got ||
            !plugin_read(b->p, b->out, got, k->blocks[from].memory, size)) {
            free(got);
            return false;
        }
        for (uint64_t at = LOOP_GUARD % step; same && at + step <= size;
             at += step) {
            const char *wanted = k->data[from] + at;

            same = expect(b->out, is_close(dtype, got + at, wanted, tolerance),
                          "%s: output %u, %lld bytes after its first: got "
                          "%.9g, expected %.9g%s",
                          what, i, (long long)at - LOOP_GUARD,
                          element_load(dtype, got + at),
                          element_load(dtype, wanted),
                          cause_of(got + at, wanted, step));
        }
        free(got);
        if (!same)
            return false;
    }
    return true;
}

/* Builds a kernel.  *out_refused: the plugin does not accept the program. */
bool codegen_build(codegen_bed *b, const core_loop_program *program,
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
bool codegen_compare(codegen_bed *b, const core_loop_program *program,
                     void *kernel, loop_bench *k, const char *what, bool last)
{
    bool good = loop_bench_launch(b, kernel, k);

    if (last)
        b->table->destroy(b->p->device, kernel);
    if (!good || !plugin_wait(b->p, b->out))
        return false;
    loop_reference_run(program, &k->loop);
    return loop_bench_is_same(b, k, 0, what);
}

/* Builds, runs and compares one program on one loop. */
bool codegen_run(codegen_bed *b, const core_loop_program *program,
                 loop_bench *k, const char *what, bool *out_refused)
{
    void *kernel;

    if (!codegen_build(b, program, &kernel, out_refused))
        return false;
    return *out_refused || codegen_compare(b, program, kernel, k, what, true);
}

void loop_case_square_sum(loop_case *now, core_dtype dtype)
{
    uint32_t a, c;

    loop_case_begin(now, 1);
    a = loop_case_load(now, dtype, 0);
    c = loop_case_load(now, dtype, 0);
    c = loop_case_add(now, CORE_LOOP_MUL, dtype, c, c, 0);
    loop_case_store(now, 0, loop_case_add(now, CORE_LOOP_ADD, dtype, a, c, 0));
    loop_case_end(now);
}
