/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes the kernels of loop programs with reductions: `groups`, a work group
 * for each row, `dense_groups`, the same for rows without gaps, and `lines`, a
 * work item for each row.
 *
 * A row is read once for each stage.  A stage computes the reductions of values
 * that depend on those of the stages before it only; the last pass writes the
 * outputs.  What a pass needs of the elements it computes again: a load and some
 * arithmetic take less time than writing and reading a value.
 *
 * Outputs may have the memory of inputs.  An element's inputs are read before it
 * is written, and values of whole rows are read at the beginning and written at
 * the end of a row. */

#include "loop_writer.h"

typedef opencl_loop_writer writer;
#define put opencl_loop_put

typedef struct rows {
    writer *w;
    const core_loop_program *program;
    bool groups, dense;
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
    uint32_t count = opencl_loop_values(r->program, at);

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        return (r->program->operands[at->a].flags &
                (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW)) != 0;
    case CORE_LOOP_CONSTANT:
    case CORE_LOOP_SIZE:
    case CORE_LOOP_ROW_SIZE:
        return true;
    case CORE_LOOP_INDEX:
    case CORE_LOOP_POSITION:
        return false;
    default:
        break;
    }
    for (uint32_t k = 0; k < count; k++)
        if (!opencl_loop_reduces(at->opcode) && !r->uniform[field_of(at, k)])
            return false;
    return true;
}

static void find_stages(rows *r)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        const core_loop_instruction *at = &r->program->instructions[i];
        uint32_t count = opencl_loop_values(r->program, at);

        for (uint32_t k = 0; k < count; k++)
            if (r->stage[field_of(at, k)] > r->stage[i])
                r->stage[i] = r->stage[field_of(at, k)];
        if (opencl_loop_reduces(at->opcode))
            r->stage[i]++;
        if (r->stage[i] > r->nstages)
            r->nstages = r->stage[i];
        r->uniform[i] = is_uniform(r, at);
    }
}

static bool is_of_stage(const rows *r, uint32_t value, uint32_t stage)
{
    return opencl_loop_reduces(r->program->instructions[value].opcode) &&
           r->stage[value] == stage;
}

/* An output with an element for each element of a row. */
static bool is_element_store(const rows *r, const core_loop_instruction *at)
{
    return at->opcode == CORE_LOOP_STORE &&
           !(r->program->operands[at->a].flags & CORE_LOOP_OPERAND_ROW);
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
        uint32_t count = opencl_loop_values(r->program, at);

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
    return at->opcode == CORE_LOOP_REDUCE_SUM   ? "ROW_SUM"
           : at->opcode == CORE_LOOP_REDUCE_MAX ? "ROW_MAX"
                                                : "ROW_MIN";
}

/* Of the total.  Sums as in reduce.c; integers wrap. */
static const char *type_of_total(const rows *r, const core_loop_instruction *at)
{
    if (at->opcode != CORE_LOOP_REDUCE_SUM)
        return opencl_loop_type(at->type);
    if (at->type > CORE_BF16)
        return "ulong";
    return r->w->device->has_f64 ? "double" : "float";
}

static const char *first_total(const core_loop_instruction *at)
{
    bool most = at->opcode == CORE_LOOP_REDUCE_MAX;

    if (at->opcode == CORE_LOOP_REDUCE_SUM)
        return "0";
    if (at->type == CORE_I32)
        return most ? "INT_MIN" : "INT_MAX";
    if (at->type == CORE_I64)
        return most ? "LONG_MIN" : "LONG_MAX";
    return most ? "-INFINITY" : "INFINITY";
}

static void put_totals(const rows *r, uint32_t stage)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++)
        if (is_of_stage(r, i, stage)) {
            const core_loop_instruction *at = &r->program->instructions[i];

            put(r->w, "    %s t%u = %s;\n", type_of_total(r, at), i,
                first_total(at));
        }
}

static void put_total(const rows *r, uint32_t value)
{
    const core_loop_instruction *at = &r->program->instructions[value];

    put(r->w, "    t%u = %s(t%u, (%s)v%u);\n", value, combination(at), value,
        type_of_total(r, at), at->a);
}

static void put_results(const rows *r, uint32_t stage)
{
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        const core_loop_instruction *at = &r->program->instructions[i];

        if (!is_of_stage(r, i, stage))
            continue;
        if (r->groups)
            put(r->w, "    COMBINE_ROW(lanes_%s, t%u, %s);\n",
                type_of_total(r, at), i, combination(at));
        put(r->w, "    %s v%u = (%s)t%u;\n", opencl_loop_type(at->type), i,
            opencl_loop_type(at->type), i);
    }
}

/* The memory that the items of a group share, for each type of totals. */
static void put_lanes(const rows *r)
{
    static const char *const types[] = {"double", "float", "ulong", "long",
                                        "int"};

    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (uint32_t i = 0; i < r->program->ninstructions; i++) {
            const core_loop_instruction *at = &r->program->instructions[i];

            if (!opencl_loop_reduces(at->opcode) ||
                strcmp(type_of_total(r, at), types[t]) != 0)
                continue;
            put(r->w, "    local %s lanes_%s[GROUP];\n", types[t], types[t]);
            break;
        }
}

/* ------------------------------------------------------------- offsets -- */

/* Operands with an element for each element of a row. */
static bool has_elements(const rows *r, uint32_t operand)
{
    return opencl_loop_in_memory(r->program, operand) &&
           !(r->program->operands[operand].flags & CORE_LOOP_OPERAND_ROW);
}

/* Divides `left` by the sizes of the dimensions from `first` to `end`, and adds
 * to the offsets with the prefix. */
static void put_division(const rows *r, const char *first, const char *end,
                         bool of_elements)
{
    const core_loop_program *p = r->program;

    put(r->w,
        "    for (uint d = %s; d < %s; d++) {\n"
        "        uint size = (uint)shape[d], next = left / size;\n"
        "        uint j = left - next * size;\n",
        first, end);
    for (uint32_t k = 0; k < p->noperands; k++)
        if (of_elements ? has_elements(r, k) : opencl_loop_in_memory(p, k))
            put(r->w, "        %c%u += j * shape[ndim * %u + d];\n",
                has_elements(r, k) && !of_elements ? 'r' : 's', k, k + 1);
    for (uint32_t d = 0; d < p->ndim; d++)
        put(r->w, "        if (d == %u)\n            i%u = j;\n", d, d);
    put(r->w, "        left = next;\n    }\n");
}

/* r<k>: the offset of the row; s<k>: of the element, or of the row's. */
static void put_row_offsets(const rows *r)
{
    const core_loop_program *p = r->program;

    for (uint32_t k = 0; k < p->noperands; k++)
        if (has_elements(r, k))
            put(r->w,
                r->dense ? "    long r%u = 0;\n"
                         : "    long r%u = 0, e%u = nreduced ? shape[ndim * "
                           "%u] : 0;\n",
                k, k, k + 1);
        else if (opencl_loop_in_memory(p, k))
            put(r->w, "    long s%u = 0;\n", k);
    for (uint32_t d = 0; d < p->ndim; d++)
        put(r->w, "    uint i%u = 0;\n", d);
    put(r->w, "    uint left = (uint)row;\n");
    put_division(r, "nreduced", "ndim", false);
}

static void put_element_offsets(const rows *r)
{
    const core_loop_program *p = r->program;

    put(r->w, "    ulong at = row * count + k;\n");
    for (uint32_t k = 0; k < p->noperands; k++)
        if (has_elements(r, k) && r->dense)
            put(r->w, "    long s%u = r%u + (long)k * %u;\n", k, k,
                core_sdk_itemsize(p->operands[k].dtype));
        else if (has_elements(r, k))
            put(r->w, "    long s%u = r%u + (long)k * e%u;\n", k, k, k);
    if (p->ndim > 0)
        put(r->w, "    i0 = (uint)k;\n");
    if (r->dense)
        return;
    put(r->w, "    if (nreduced > 1) {\n    uint left = (uint)k;\n");
    for (uint32_t k = 0; k < p->noperands; k++)
        if (has_elements(r, k))
            put(r->w, "    s%u = r%u;\n", k, k);
    put_division(r, "0", "nreduced", true);
    put(r->w, "    }\n");
}

/* -------------------------------------------------------------- kernels -- */

/* Values of whole rows that are known after a stage. */
static core_status put_uniform(const rows *r, uint32_t stage)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        uint32_t opcode = r->program->instructions[i].opcode;

        if (status == CORE_OK && opcode != CORE_LOOP_STORE &&
            !opencl_loop_reduces(opcode) && r->uniform[i] &&
            r->stage[i] == stage)
            status = opencl_loop_put_value(r->w, i, false);
    }
    return status;
}

/* Whether the device computes adjacent elements in a vector.  Between barriers
 * it has a loop over the work items of a group, which then is the inner one. */
static bool has_vectors(const rows *r)
{
    return r->dense && r->w->device->wide_vectors;
}

/* What a pass does with element k. */
static core_status put_element(const rows *r, uint32_t stage)
{
    core_status status = CORE_OK;

    put_element_offsets(r);
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        if (status == CORE_OK && r->needed[i] && !r->uniform[i])
            status = opencl_loop_put_value(r->w, i, false);
        if (is_of_stage(r, i, stage))
            put_total(r, i);
    }
    for (uint32_t i = 0; i < r->program->ninstructions; i++)
        if (stage > r->nstages &&
            is_element_store(r, &r->program->instructions[i]))
            opencl_loop_put_store(r->w, &r->program->instructions[i], false);
    return status;
}

static core_status put_pass(rows *r, uint32_t stage)
{
    core_status status;

    if (!find_needed(r, stage))
        return CORE_OK;
    put_totals(r, stage);
    if (has_vectors(r)) {
        put(r->w, "    {\n    ulong from = 0;\n"
                  "    for (; from + GROUP <= count; from += GROUP) {\n"
                  "    ulong k = from + get_local_id(0);\n");
        status = put_element(r, stage);
        if (status != CORE_OK)
            return status;
        put(r->w,
            "    barrier(CLK_LOCAL_MEM_FENCE);\n    }\n"
            "    ulong k = from + get_local_id(0);\n    if (k < count) {\n");
    } else {
        put(r->w, "    for (ulong k = %s; k < count; k += %s) {\n",
            r->groups ? "me" : "0", r->groups ? "GROUP" : "1");
    }
    status = put_element(r, stage);
    put(r->w, has_vectors(r) ? "    }\n    }\n" : "    }\n");
    return status;
}

static void put_row_stores(const rows *r)
{
    if (r->groups) /* other items may still read that memory */
        put(r->w, "    barrier(CLK_GLOBAL_MEM_FENCE);\n"
                  "    if (me == 0) {\n");
    for (uint32_t i = 0; i < r->program->ninstructions; i++) {
        const core_loop_instruction *at = &r->program->instructions[i];

        if (at->opcode == CORE_LOOP_STORE && !is_element_store(r, at))
            opencl_loop_put_store(r->w, at, false);
    }
    if (r->groups)
        put(r->w, "    }\n");
}

static void put_head(const rows *r)
{
    if (r->groups)
        put(r->w, "kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) ");
    else
        put(r->w, "kernel ");
    opencl_loop_put_parameters(r->w, r->dense    ? "void dense_groups"
                                     : r->groups ? "void groups"
                                                 : "void lines");
    put(r->w, "ulong rows, uint ndim, global const long *shape, uint nreduced, "
              "ulong count)\n{\n    int failed = 0;\n");
    if (r->groups) {
        put_lanes(r);
        put(r->w, "    uint me = get_local_id(0);\n"
                  "    ulong row = get_group_id(0);\n");
    } else {
        put(r->w, "    ulong row = get_global_id(0);\n"
                  "    if (row >= rows)\n        return;\n");
    }
}

static core_status put_kernel(rows *r)
{
    core_status status;

    put_head(r);
    put_row_offsets(r);
    status = put_uniform(r, 0);
    for (uint32_t s = 1; s <= r->nstages && status == CORE_OK; s++) {
        status = put_pass(r, s);
        put_results(r, s);
        if (status == CORE_OK)
            status = put_uniform(r, s);
    }
    if (status == CORE_OK)
        status = put_pass(r, r->nstages + 1u);
    put_row_stores(r);
    if (opencl_loop_may_fail(r->program))
        put(r->w, "    if (failed)\n        fail(errors, 1, call, 0);\n");
    put(r->w, "}\n");
    return status;
}

core_status opencl_loop_put_rows(opencl_loop_writer *w)
{
    rows r = {.w = w, .program = w->program};
    core_status status;

    find_stages(&r);
    status = put_kernel(&r);
    r.groups = true;
    if (status == CORE_OK)
        status = put_kernel(&r);
    r.dense = true;
    return status == CORE_OK ? put_kernel(&r) : status;
}
