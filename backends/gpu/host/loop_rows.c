/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_rows.c: writes the struct of kernels/loop_rows.h for a loop program with
 * reductions.
 *
 * The stages are those of libcore/sdk_rows.h. */

#include <gpu/host/loop_writer.h>

typedef gpu_loop_writer writer;
#define put gpu_loop_put

typedef struct rows {
    writer *w;
    const core_loop_program *program;
    core_sdk_rows of;
} rows;

/* ---------------------------------------------------------- reductions -- */

static const char *combination(const core_loop_instruction *at)
{
    return at->opcode == CORE_LOOP_REDUCE_SUM   ? "gpu_add"
           : at->opcode == CORE_LOOP_REDUCE_MAX ? "gpu_maximum"
                                                : "gpu_minimum";
}

/* Of the total.  Sums of floats are rounded once; integers wrap. */
static const char *type_of_total(const core_loop_instruction *at)
{
    if (at->opcode != CORE_LOOP_REDUCE_SUM)
        return gpu_loop_type(at->type);
    return at->type <= CORE_BF16 ? "double" : "uint64_t";
}

static const char *first_total(const core_loop_instruction *at)
{
    bool most = at->opcode == CORE_LOOP_REDUCE_MAX;

    if (at->opcode == CORE_LOOP_REDUCE_SUM)
        return "0";
    if (at->type == CORE_I32)
        return most ? "INT32_MIN" : "INT32_MAX";
    if (at->type == CORE_I64)
        return most ? "INT64_MIN" : "INT64_MAX";
    if (at->type == CORE_F32)
        return most ? "-INFINITE_f32" : "INFINITE_f32";
    return most ? "-INFINITE_f64" : "INFINITE_f64";
}

static void put_totals(const rows *r, uint32_t stage)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++)
        if (core_sdk_rows_reduces(&r->of, i, stage)) {
            const core_loop_instruction *at = &r->program->instructions[i];

            put(r->w, "        %s t%u = %s;\n", type_of_total(at), i,
                first_total(at));
        }
}

static void put_total(const rows *r, uint32_t value)
{
    const core_loop_instruction *at = &r->program->instructions[value];

    put(r->w, "        t%u = %s<%s>::of(t%u, (%s)v%u);\n", value,
        combination(at), type_of_total(at), value, type_of_total(at), at->a);
}

static void put_results(const rows *r, uint32_t stage)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        const core_loop_instruction *at = &r->program->instructions[i];
        const char *type = type_of_total(at);

        if (!core_sdk_rows_reduces(&r->of, i, stage))
            continue;
        put(r->w,
            "        t%u = gpu_loop_combined<SIDE, %s<%s>, %s>::of(\n"
            "            shared_%s, t%u);\n",
            i, combination(at), type, type, type, i);
        put(r->w, "        const %s v%u = (%s)t%u;\n", gpu_loop_type(at->type),
            i, gpu_loop_type(at->type), i);
    }
}

/* The memory that the threads of a block share, for each type of totals. */
static void put_shared(const rows *r)
{
    static const char *const types[] = {"double", "float", "uint64_t",
                                        "int64_t", "int32_t"};

    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (uint32_t i = 0; i < r->program->ninstructions; i++) {
            const core_loop_instruction *at = &r->program->instructions[i];

            if (!core_sdk_loop_is_reduction(at->opcode) ||
                strcmp(type_of_total(at), types[t]) != 0)
                continue;
            put(r->w, "        GPU_SHARED %s shared_%s[GPU_ALL / GPU_TEAM];\n",
                types[t], types[t]);
            break;
        }
}

/* --------------------------------------------------------------- the row -- */

/* Values of whole rows that are known after a stage. */
static void put_uniform(const rows *r, uint32_t stage)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        uint32_t opcode = r->program->instructions[i].opcode;

        if (opcode != CORE_LOOP_STORE && !core_sdk_loop_is_reduction(opcode) &&
            r->of.uniform[i] && r->of.stage[i] == stage)
            gpu_loop_put_value(r->w, i);
    }
}

static void put_store(const rows *r, const core_loop_instruction *at)
{
    const char *type = gpu_loop_type(r->program->operands[at->a].dtype);

    put(r->w, "        *(%s *)((char *)p.data[%u] + %s[%u]) = v%u;\n", type,
        at->a,
        core_sdk_rows_has_elements(r->program, at->a) ? "offset" : "base",
        at->a, at->b);
}

static void put_pass(rows *r, uint32_t stage)
{
    if (!core_sdk_rows_pass(&r->of, stage))
        return;
    put_totals(r, stage);
    put(r->w,
        "        for (uint64_t k = gpu_thread.x %% SIDE; k < size; k += SIDE) "
        "{\n"
        "        const uint64_t at = row * q.size + k;\n"
        "        gpu_loop_row_element<gpu_loop>(q, k, base, index, offset);\n");
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        if (r->of.needed[i] && !r->of.uniform[i])
            gpu_loop_put_value(r->w, i);
        if (core_sdk_rows_reduces(&r->of, i, stage))
            put_total(r, i);
    }
    for (uint32_t i = 0; i < r->program->ninstructions; i++)
        if (stage > r->of.nstages && core_sdk_rows_stores(&r->of, i))
            put_store(r, &r->program->instructions[i]);
    put(r->w, "        }\n");
}

/* Other threads may still read the memory of the row's outputs. */
static void put_row_stores(const rows *r)
{
    put(r->w, "        if (SIDE != GPU_ALONE)\n            gpu_barrier();\n"
              "        if (gpu_thread.x %% SIDE == 0 && size > 0) {\n");
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        const core_loop_instruction *at = &r->program->instructions[i];

        if (at->opcode == CORE_LOOP_STORE && !core_sdk_rows_stores(&r->of, i))
            put_store(r, at);
    }
    put(r->w, "        }\n");
}

static void put_masks(const rows *r)
{
    uint32_t elements = 0, whole = 0;

    for (uint32_t k = 0; k < r->program->noperands; k++)
        if (core_sdk_rows_has_elements(r->program, k))
            elements |= 1u << k;
        else if (gpu_loop_in_memory(r->program, k))
            whole |= 1u << k;
    put(r->w,
        "    static const uint32_t ELEMENTS = %uu, ROWS = %uu;\n"
        "    template <int SIDE> static GPU_DEVICE_MEMBER void row(\n"
        "        const gpu_loop_rows &q, uint64_t row, uint64_t size, int "
        "*failed)\n    {\n",
        elements, whole);
}

void gpu_loop_put_row(gpu_loop_writer *w)
{
    rows r = {.w = w, .program = w->program};

    core_sdk_rows_find(&r.of, r.program, gpu_loop_values);
    put_masks(&r);
    put_shared(&r);
    put(w, "        const gpu_loop_strided &p = q.loop;\n"
           "        const int64_t *sizes = p.wide_sizes;\n"
           "        int64_t index[GPU_DIMS], base[OPERANDS], "
           "offset[OPERANDS];\n"
           "        gpu_loop_row<gpu_loop>(q, row, index, base);\n");
    put_uniform(&r, 0);
    for (uint32_t s = 1; s <= r.of.nstages; s++) {
        put_pass(&r, s);
        put_results(&r, s);
        put_uniform(&r, s);
    }
    put_pass(&r, r.of.nstages + 1u);
    put_row_stores(&r);
    put(w, "    }\n");
}
