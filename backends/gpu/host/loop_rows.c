/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_rows.c: writes the struct of kernels/loop_rows.h for a loop program with
 * reductions.
 *
 * A row is read once for each stage.  A stage computes the reductions of values
 * that depend on those of the stages before it only; the last pass writes the
 * outputs.  What a pass needs of the elements it computes again: a load and some
 * arithmetic take less time than writing and reading a value.
 *
 * Outputs may have the memory of inputs.  An element's inputs are read before it
 * is written, and values of whole rows are read at the beginning and written at
 * the end of a row. */

#include <gpu/host/loop_writer.h>

typedef gpu_loop_writer writer;
#define put gpu_loop_put

typedef struct rows {
    writer *w;
    const core_loop_program *program;
    /* By value: */
    bool uniform[CORE_LOOP_MAX_INSTRUCTIONS];
    bool needed[CORE_LOOP_MAX_INSTRUCTIONS];    /* by the present pass */
    uint16_t stage[CORE_LOOP_MAX_INSTRUCTIONS]; /* after which it is known */
    uint16_t nstages;
} rows;

/* -------------------------------------------------------------- stages -- */

static uint32_t field_of(const core_loop_instruction *at, uint32_t k)
{
    return k == 0 ? at->a : k == 1 ? at->b : at->c;
}

static bool is_uniform(const rows *r, const core_loop_instruction *at)
{
    uint32_t count = gpu_loop_values(r->program, at);

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        return (r->program->operands[at->a].flags &
                (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW)) != 0;
    case CORE_LOOP_INDEX:
    case CORE_LOOP_POSITION:
        return false;
    default:
        break;
    }
    for (uint32_t k = 0; k < count; k++)
        if (!gpu_loop_reduces(at->opcode) && !r->uniform[field_of(at, k)])
            return false;
    return true;
}

static void find_stages(rows *r)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        const core_loop_instruction *at = &r->program->instructions[i];
        uint32_t count = gpu_loop_values(r->program, at);

        for (uint32_t k = 0; k < count; k++)
            if (r->stage[field_of(at, k)] > r->stage[i])
                r->stage[i] = r->stage[field_of(at, k)];
        if (gpu_loop_reduces(at->opcode))
            r->stage[i]++;
        if (r->stage[i] > r->nstages)
            r->nstages = r->stage[i];
        r->uniform[i] = is_uniform(r, at);
    }
}

static bool is_of_stage(const rows *r, uint32_t value, uint32_t stage)
{
    return gpu_loop_reduces(r->program->instructions[value].opcode) &&
           r->stage[value] == stage;
}

/* Operands with an element for each element of a row. */
static bool has_elements(const core_loop_program *program, uint32_t operand)
{
    return (program->operands[operand].flags &
            (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW)) == 0;
}

static bool is_element_store(const rows *r, const core_loop_instruction *at)
{
    return at->opcode == CORE_LOOP_STORE && has_elements(r->program, at->a);
}

/* stage: of reductions; after the last one the pass that stores.  Whether there
 * is anything to do. */
static bool find_needed(rows *r, uint32_t stage)
{
    bool any = false;

    memset(r->needed, 0, sizeof r->needed);
    for (uint32_t i = r->program->ninstructions; i-- > 0;) {
        const core_loop_instruction *at = &r->program->instructions[i];
        bool store = stage > r->nstages && is_element_store(r, at);
        bool root = store || is_of_stage(r, i, stage);
        uint32_t count = gpu_loop_values(r->program, at);

        any = any || root;
        if (store)
            r->needed[at->b] = true;
        for (uint32_t k = 0; k < count && (root || r->needed[i]); k++)
            if (root || !r->uniform[i])
                r->needed[field_of(at, k)] = true;
    }
    return any;
}

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
        if (is_of_stage(r, i, stage)) {
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

        if (!is_of_stage(r, i, stage))
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

            if (!gpu_loop_reduces(at->opcode) ||
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

        if (opcode != CORE_LOOP_STORE && !gpu_loop_reduces(opcode) &&
            r->uniform[i] && r->stage[i] == stage)
            gpu_loop_put_value(r->w, i);
    }
}

static void put_store(const rows *r, const core_loop_instruction *at)
{
    const char *type = gpu_loop_type(r->program->operands[at->a].dtype);

    put(r->w, "        *(%s *)((char *)p.data[%u] + %s[%u]) = v%u;\n", type,
        at->a, has_elements(r->program, at->a) ? "offset" : "base", at->a,
        at->b);
}

static void put_pass(rows *r, uint32_t stage)
{
    if (!find_needed(r, stage))
        return;
    put_totals(r, stage);
    put(r->w,
        "        for (uint64_t k = gpu_thread.x %% SIDE; k < size; k += SIDE) "
        "{\n"
        "        const uint64_t at = row * q.size + k;\n"
        "        gpu_loop_row_element<gpu_loop>(q, k, base, index, offset);\n");
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        if (r->needed[i] && !r->uniform[i])
            gpu_loop_put_value(r->w, i);
        if (is_of_stage(r, i, stage))
            put_total(r, i);
    }
    for (uint32_t i = 0; i < r->program->ninstructions; i++)
        if (stage > r->nstages &&
            is_element_store(r, &r->program->instructions[i]))
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

        if (at->opcode == CORE_LOOP_STORE && !is_element_store(r, at))
            put_store(r, at);
    }
    put(r->w, "        }\n");
}

static void put_masks(const rows *r)
{
    uint32_t elements = 0, whole = 0;

    for (uint32_t k = 0; k < r->program->noperands; k++)
        if (has_elements(r->program, k))
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

    find_stages(&r);
    put_masks(&r);
    put_shared(&r);
    put(w, "        const gpu_loop_strided &p = q.loop;\n"
           "        const int64_t *sizes = p.wide_sizes;\n"
           "        int64_t index[GPU_DIMS], base[OPERANDS], "
           "offset[OPERANDS];\n"
           "        gpu_loop_row<gpu_loop>(q, row, index, base);\n");
    put_uniform(&r, 0);
    for (uint32_t s = 1; s <= r.nstages; s++) {
        put_pass(&r, s);
        put_results(&r, s);
        put_uniform(&r, s);
    }
    put_pass(&r, r.nstages + 1u);
    put_row_stores(&r);
    put(w, "    }\n");
}
