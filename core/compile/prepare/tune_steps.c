/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Measures ways to run steps of a set: blocks of rows, and groups that run on
 * parts of a product (tune.h). */

#include "compile/prepare/tune.h"
#include "compile/program/extract.h"
#include "compile/program/region.h"

#include "base/log.h"
#include "base/memory.h"

#include <string.h>

/* Steps of a set, and what they are in its program. */
typedef struct part {
    const core__prepared *set;
    core_program *program;
    bool *inside; /* by node */
    bool *read;   /* by value: something outside does */
    uint32_t first, count;
} part;

static bool is_view(const core__program_node *node)
{
    return node->op && core__operator_is_view(node->op) &&
           node->args[0].tag == CORE_VALUE_TENSOR;
}

/* Nothing but its values depends on it. */
static bool may_run_alone(const core__program_node *node)
{
    if (!node->op || node->draws || node->written || core__region_count(node))
        return false;
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE__ARGUMENT_NUMBER ||
            node->args[i].tag == CORE_VALUE_GENERATOR)
            return false;
    return true;
}

/* The nodes of a step: one, or those of a group. */
static const uint32_t *nodes_of(const part *p, const core__step *step,
                                uint32_t *out_count)
{
    const core__fused_group *group;

    *out_count = 1;
    if (step->kind != CORE__STEP_FUSED)
        return &step->index;
    group = ((const core__fused_launch *)(const void *)step->launch)->group;
    *out_count = group->count;
    return p->set->fusion->order + group->first;
}

static bool find_nodes(part *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t count;
        const uint32_t *nodes =
            nodes_of(p, &p->set->steps[p->first + i], &count);

        for (uint32_t k = 0; k < count; k++) {
            if (nodes[k] >= p->program->nnodes ||
                !may_run_alone(&p->program->nodes[nodes[k]]))
                return false;
            p->inside[nodes[k]] = true;
        }
    }
    return true;
}

static void note_read(void *context, uint32_t value)
{
    part *p = context;

    p->read[core__program_root(p->program, value)] = true;
}

static void find_reads(part *p)
{
    const core_program *program = p->program;

    for (uint32_t v = 0; v < program->nvalues; v++)
        if (program->values[v].kept)
            note_read(p, v);
    for (uint32_t n = 0; n < program->nnodes; n++)
        if (!p->inside[n] && !is_view(&program->nodes[n]))
            core__node_each_value(&program->nodes[n], note_read, p);
}

/* ------------------------------------------------------------ extraction -- */

typedef struct extraction {
    const part *p;
    core__extraction e; /* of the part */
    core_status status;
} extraction;

/* What a node of the part reads and no node of it computes is an input. */
static void add_input(void *context, uint32_t value)
{
    extraction *x = context;
    const core_program *program = x->p->program;
    uint32_t root = core__program_root(program, value);
    bool computed = program->values[root].source == CORE__VALUE_OF_NODE &&
                    x->p->inside[program->values[root].index];

    if (x->status == CORE_OK && !computed &&
        x->e.numbers[value] == CORE__NO_VALUE)
        x->status = core__extract_input(&x->e, value);
}

static core_status add_nodes(extraction *x)
{
    const core_program *program = x->p->program;

    for (uint32_t n = 0; n < program->nnodes; n++)
        if (x->p->inside[n])
            core__node_each_value(&program->nodes[n], add_input, x);
    for (uint32_t n = 0; n < program->nnodes && x->status == CORE_OK; n++)
        if (x->p->inside[n] && program->nodes[n].nvalues)
            x->status = core__extract_value(&x->e, program->nodes[n].first);
    return x->status;
}

static core_status add_outputs(extraction *x)
{
    const core_program *program = x->p->program;
    core_program *to = x->e.to;

    for (uint32_t v = 0; v < program->nvalues; v++) {
        core__program_output *output;

        if (!x->p->read[v] || x->e.numbers[v] == CORE__NO_VALUE ||
            program->values[v].source != CORE__VALUE_OF_NODE ||
            !x->p->inside[program->values[v].index])
            continue;
        output =
            core__program_grow(&to->outputs, &to->noutputs, sizeof *output);
        if (!output)
            return core__error_memory(sizeof *output);
        *output = (core__program_output){.kind = CORE__OUTPUT_VALUE,
                                         .index = x->e.numbers[v],
                                         .type = program->values[v].type};
    }
    return to->noutputs ? CORE_OK : CORE_ERROR_UNSUPPORTED;
}

static core_status program_of(const part *p, const core__tuning *way,
                              core_program **out_program)
{
    extraction x = {.p = p};

    x.status = core__extraction_begin(&x.e, p->program);
    if (x.status == CORE_OK)
        x.status = add_nodes(&x);
    if (x.status == CORE_OK)
        x.status = add_outputs(&x);
    CORE_TRY(core__extraction_end(&x.e, x.status, out_program));
    (*out_program)->codegen = CORE_COMPILE_CODEGEN_AUTO;
    (*out_program)->recomputes = false;
    (*out_program)->tuning = *way;
    return CORE_OK;
}

/* ------------------------------------------------------------- measuring -- */

static core_status time_way(const part *p, const core__tuning *way,
                            uint64_t *out_ns)
{
    core_program *program;
    core_status status;

    CORE_TRY(program_of(p, way, &program));
    status = core__tune_time(program, p->set->device, out_ns);
    core_program_release(program);
    return status;
}

/* The fastest, if it is faster than the first one twice. */
static core_status time_ways(const part *p, const core__tuning *ways,
                             uint32_t nways, uint32_t *out_way)
{
    uint64_t least = UINT64_MAX, first, ns;
    uint32_t best = 0;

    for (uint32_t i = 0; i < nways; i++) {
        CORE_TRY(time_way(p, &ways[i], &ns));
        if (i > 0 && !core__tune_is_faster(ns, least))
            continue;
        best = i;
        least = ns;
    }
    *out_way = 0;
    if (best == 0)
        return CORE_OK;
    CORE_TRY(time_way(p, &ways[0], &first));
    CORE_TRY(time_way(p, &ways[best], &ns));
    if (core__tune_is_faster(ns, first))
        *out_way = best;
    return CORE_OK;
}

/* What was chosen before, in this process or another. */
static core_status choose(const part *p, const core__tuning *ways,
                          uint32_t nways, uint32_t *out_way)
{
    core__choice choice = {{0}};
    core_program *program;
    char name[65];

    CORE_TRY(program_of(p, &ways[0], &program));
    core__choice_name(program, p->set->device, ways, nways * sizeof *ways,
                      name);
    core_program_release(program);
    if (core__choice_load(name, &choice) && choice.numbers[0] < nways) {
        *out_way = (uint32_t)choice.numbers[0];
        return CORE_OK;
    }
    CORE_TRY(time_ways(p, ways, nways, out_way));
    choice.numbers[0] = *out_way;
    core__choice_store(name, &choice);
    return CORE_OK;
}

core_status core__tune_steps(const core__prepared *set, uint32_t first,
                             uint32_t count, const core__tuning *ways,
                             uint32_t nways, uint32_t *out_way)
{
    part p = {
        .set = set, .program = set->program, .first = first, .count = count};
    core_status status = CORE_ERROR_UNSUPPORTED;

    *out_way = 0;
    p.inside = core__alloc_zero(p.program->nnodes + p.program->nvalues + 1);
    if (!p.inside)
        return core__error_memory(p.program->nnodes);
    p.read = p.inside + p.program->nnodes;
    if (find_nodes(&p)) {
        find_reads(&p);
        status = choose(&p, ways, nways, out_way);
    }
    core__free(p.inside);
    /* It may need memory for a second copy of the inputs. */
    if (status != CORE_OK && status != CORE_ERROR_UNSUPPORTED)
        core__log(CORE_LOG_WARNING, "compile", "%u steps are not measured: %s",
                  count, core_error_message());
    return status;
}
