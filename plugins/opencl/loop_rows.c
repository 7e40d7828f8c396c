/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes the kernels of loop programs with reductions: `groups`, a work group
 * for each row, `dense_groups`, the same for rows without gaps, and `lines`, a
 * work item for each row.  The stages are those of libcore/sdk_rows.h. */

#include "loop_writer.h"

typedef opencl_loop_writer writer;
#define put opencl_loop_put

typedef struct rows {
    writer *w;
    const core_loop_program *program;
    core_sdk_rows of;
    bool groups, dense;
} rows;

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
        if (core_sdk_rows_reduces(&r->of, i, stage)) {
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

        if (!core_sdk_rows_reduces(&r->of, i, stage))
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

            if (!core_sdk_loop_is_reduction(at->opcode) ||
                strcmp(type_of_total(r, at), types[t]) != 0)
                continue;
            put(r->w, "    local %s lanes_%s[GROUP];\n", types[t], types[t]);
            break;
        }
}

/* ------------------------------------------------------------- offsets -- */

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
        if (of_elements ? core_sdk_rows_has_elements(p, k)
                        : opencl_loop_in_memory(p, k))
            put(r->w, "        %c%u += j * shape[ndim * %u + d];\n",
                core_sdk_rows_has_elements(p, k) && !of_elements ? 'r' : 's', k,
                k + 1);
    for (uint32_t d = 0; d < p->ndim; d++)
        put(r->w, "        if (d == %u)\n            i%u = j;\n", d, d);
    put(r->w, "        left = next;\n    }\n");
}

/* r<k>: the offset of the row; s<k>: of the element, or of the row's. */
static void put_row_offsets(const rows *r)
{
    const core_loop_program *p = r->program;

    for (uint32_t k = 0; k < p->noperands; k++)
        if (core_sdk_rows_has_elements(p, k))
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
        if (core_sdk_rows_has_elements(p, k) && r->dense)
            put(r->w, "    long s%u = r%u + (long)k * %u;\n", k, k,
                core_sdk_itemsize(p->operands[k].dtype));
        else if (core_sdk_rows_has_elements(p, k))
            put(r->w, "    long s%u = r%u + (long)k * e%u;\n", k, k, k);
    if (p->ndim > 0)
        put(r->w, "    i0 = (uint)k;\n");
    if (r->dense)
        return;
    put(r->w, "    if (nreduced > 1) {\n    uint left = (uint)k;\n");
    for (uint32_t k = 0; k < p->noperands; k++)
        if (core_sdk_rows_has_elements(p, k))
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
            !core_sdk_loop_is_reduction(opcode) && r->of.uniform[i] &&
            r->of.stage[i] == stage)
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
        if (status == CORE_OK && r->of.needed[i] && !r->of.uniform[i])
            status = opencl_loop_put_value(r->w, i, false);
        if (core_sdk_rows_reduces(&r->of, i, stage))
            put_total(r, i);
    }
    for (uint32_t i = 0; i < r->program->ninstructions; i++)
        if (stage > r->of.nstages && core_sdk_rows_stores(&r->of, i))
            opencl_loop_put_store(r->w, &r->program->instructions[i], false);
    return status;
}

static core_status put_pass(rows *r, uint32_t stage)
{
    core_status status;

    if (!core_sdk_rows_pass(&r->of, stage))
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

        if (at->opcode == CORE_LOOP_STORE && !core_sdk_rows_stores(&r->of, i))
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
    for (uint32_t s = 1; s <= r->of.nstages && status == CORE_OK; s++) {
        status = put_pass(r, s);
        put_results(r, s);
        if (status == CORE_OK)
            status = put_uniform(r, s);
    }
    if (status == CORE_OK)
        status = put_pass(r, r->of.nstages + 1u);
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

    core_sdk_rows_find(&r.of, r.program, opencl_loop_values);
    status = put_kernel(&r);
    r.groups = true;
    if (status == CORE_OK)
        status = put_kernel(&r);
    r.dense = true;
    return status == CORE_OK ? put_kernel(&r) : status;
}
