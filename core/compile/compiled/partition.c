/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Splits a joint program. */

#include "compile/compiled/partition.h"

#include "base/memory.h"
#include "compile/compiled/min_cut.h"
#include "compile/program/extract.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

#include <string.h>

typedef struct partitioning {
    core_program *joint;
    core__joint *described;
    core__partition *out;
    bool *used;    /* by value: the backward uses it, or a view of it */
    bool *visible; /* by value: the program can change it */
    bool *saved;   /* by value */
    bool *side;    /* by vertex of the graph */
    core__cut_edge *edges;
    uint32_t nedges, capacity;
    uint32_t *clones; /* by value: its copy in the forward program */
} partitioning;

/* ------------------------------------------------------------- analysis -- */

/* Values of the part that the function recorded. */
static bool is_forward(const partitioning *p, uint32_t value)
{
    const core__program_value *described = &p->joint->values[value];

    switch (described->source) {
    case CORE__VALUE_OF_INPUT:
        return described->index < p->described->ninputs;
    case CORE__VALUE_OF_HIDDEN:
        return true;
    default:
        return !p->joint->nodes[described->index].backward;
    }
}

static core_status check_nodes(const partitioning *p)
{
    const core_program *joint = p->joint;

    for (uint32_t i = 0; i < joint->nnodes; i++)
        if (joint->nodes[i].backward &&
            (joint->nodes[i].draws ||
             core__node_reads_number(&joint->nodes[i])))
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "%s: the backward draws random numbers or reads "
                               "numbers of an optimizer, which cannot be "
                               "compiled",
                               joint->nodes[i].name);
    for (uint32_t i = 0; i < joint->nwrites; i++)
        if (!is_forward(p, joint->writes[i].value))
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "the backward of the function changes a tensor "
                               "that the function uses, which cannot be "
                               "compiled");
    return CORE_OK;
}

static void note_use(void *context, uint32_t value)
{
    partitioning *p = context;

    if (is_forward(p, value)) {
        p->used[value] = true;
        p->used[core__program_root(p->joint, value)] = true;
    }
}

static void note_visible(partitioning *p, uint32_t output)
{
    const core__program_output *described = &p->joint->outputs[output];

    if (described->kind == CORE__OUTPUT_VALUE)
        p->visible[described->index] = true;
}

static void find_uses(partitioning *p)
{
    const core_program *joint = p->joint;
    const core__joint *d = p->described;
    size_t gradients = (size_t)d->nmasks * d->nsources;

    for (uint32_t i = 0; i < joint->nnodes; i++)
        if (joint->nodes[i].backward)
            core__node_each_value(&joint->nodes[i], note_use, p);
    for (size_t i = 0; i < gradients; i++)
        if (d->gradients[i] != CORE__NO_VALUE)
            note_use(p, joint->outputs[d->gradients[i]].index);
    for (uint32_t i = 0; i < joint->nvalues; i++)
        p->visible[i] = joint->values[i].source != CORE__VALUE_OF_NODE;
    for (uint32_t i = 0; i < d->noutputs; i++)
        note_visible(p, i);
    for (uint32_t i = 0; i < d->nroots; i++)
        note_visible(p, d->roots[i]);
}

/* Bytes from the first element to the last. */
static uint64_t bytes_of(const core__program_type *type)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < type->ndim; i++) {
        int64_t size = core__type_sizes(type)[i];

        if (size == 0)
            return 0;
        count += (uint64_t)((size - 1) * core__type_strides(type)[i]);
    }
    return count * core__dtype_size((core_dtype)type->dtype);
}

static uint64_t sum_saved(const partitioning *p)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < p->joint->nvalues; i++)
        if (p->saved[i] && p->joint->values[i].source != CORE__VALUE_OF_HIDDEN)
            sum += bytes_of(&p->joint->values[i].type);
    return sum;
}

/* ------------------------------------------------------------------- cut -- */

/* Value v is the vertices 2 v and 2 v + 1, with an edge whose capacity is the
 * cost of saving it. */
static core_status add_edge(partitioning *p, uint32_t from, uint32_t to,
                            uint64_t capacity)
{
    if (p->nedges == p->capacity) {
        uint32_t more = p->capacity ? 2 * p->capacity : 256;
        core__cut_edge *edges = core__realloc(p->edges, more * sizeof *edges);

        if (!edges)
            return core__error_memory(more * sizeof *edges);
        p->edges = edges;
        p->capacity = more;
    }
    p->edges[p->nedges++] = (core__cut_edge){from, to, capacity};
    return CORE_OK;
}

/* Views are not saved: what they are views of is. */
static uint64_t cost_of(const partitioning *p, uint32_t value)
{
    const core__program_value *described = &p->joint->values[value];
    uint64_t bytes = bytes_of(&described->type);

    if (core__program_root(p->joint, value) != value ||
        (p->visible[value] && !p->used[value]))
        return CORE__CUT_NEVER;
    /* The program has it anyway. */
    if (p->visible[value])
        return 0;
    return bytes ? bytes : 1;
}

typedef struct argument_edges {
    partitioning *p;
    const core__program_node *node;
    core_status status;
} argument_edges;

static void add_argument(void *context, uint32_t value)
{
    argument_edges *a = context;

    for (uint32_t i = 0; i < a->node->nvalues && a->status == CORE_OK; i++)
        a->status = add_edge(a->p, 2 * value + 1, 2 * (a->node->first + i),
                             CORE__CUT_NEVER);
}

static core_status make_graph(partitioning *p, uint32_t source, uint32_t sink)
{
    const core_program *joint = p->joint;

    for (uint32_t i = 0; i < joint->nvalues; i++) {
        const core__program_value *value = &joint->values[i];
        argument_edges a = {p, NULL, CORE_OK};

        if (!is_forward(p, i))
            continue;
        CORE_TRY(add_edge(p, 2 * i, 2 * i + 1, cost_of(p, i)));
        if (p->used[i] && core__program_root(joint, i) == i)
            CORE_TRY(add_edge(p, 2 * i + 1, sink, CORE__CUT_NEVER));
        if (value->source == CORE__VALUE_OF_NODE)
            a.node = &joint->nodes[value->index];
        if (!a.node || !core__node_may_recompute(a.node))
            CORE_TRY(add_edge(p, source, 2 * i, CORE__CUT_NEVER));
        else if (a.node->first == i)
            core__node_each_value(a.node, add_argument, &a);
        CORE_TRY(a.status);
    }
    return CORE_OK;
}

static core_status choose_by_cut(partitioning *p)
{
    uint32_t nvalues = p->joint->nvalues, source = 2 * nvalues;

    CORE_TRY(make_graph(p, source, source + 1));
    CORE_TRY(core__min_cut(source + 2, p->edges, p->nedges, source, source + 1,
                           p->side));
    for (uint32_t i = 0; i < nvalues; i++)
        p->saved[i] = is_forward(p, i) && p->side[2 * i] && !p->side[2 * i + 1];
    return CORE_OK;
}

/* A factory without tensors is computed again; other values are saved if the
 * backward uses them or views of them. */
static void choose_used(partitioning *p)
{
    for (uint32_t i = 0; i < p->joint->nvalues; i++)
        p->saved[i] = p->used[i] && core__program_root(p->joint, i) == i;
}

static core_status choose(partitioning *p, uint64_t budget)
{
    choose_used(p);
    p->out->direct_bytes = sum_saved(p);
    if (p->out->direct_bytes > budget)
        CORE_TRY(choose_by_cut(p));
    p->out->saved_bytes = sum_saved(p);
    for (uint32_t i = 0; i < p->joint->nvalues; i++)
        p->out->nsaved += p->saved[i];
    return CORE_OK;
}

/* --------------------------------------------------------------- forward -- */

/* The inputs, and what the joint program refers to. */
static core_status forward_sources(const partitioning *p, core__extraction *e)
{
    const core_program *joint = p->joint;

    for (uint32_t i = 0; i < p->described->ninputs; i++) {
        core__program_input *input;
        const core__program_input *from = &joint->inputs[i];

        input =
            core__program_grow(&e->to->inputs, &e->to->ninputs, sizeof *input);
        if (!input)
            return core__error_memory(sizeof *input);
        *input = *from;
        if (from->value == CORE__NO_VALUE)
            continue;
        CORE_TRY(core__program_add_value(
            e->to, &from->type, CORE__VALUE_OF_INPUT, i, &input->value));
        e->numbers[from->value] = input->value;
    }
    for (uint32_t i = 0; i < joint->nhidden; i++) {
        uint32_t value = joint->hidden[i].value;
        core__program_hidden *hidden =
            core__program_grow(&e->to->hidden, &e->to->nhidden, sizeof *hidden);

        if (!hidden)
            return core__error_memory(sizeof *hidden);
        *hidden = joint->hidden[i];
        core__hidden_retain(hidden);
        CORE_TRY(core__program_add_value(e->to, &joint->values[value].type,
                                         CORE__VALUE_OF_HIDDEN, i,
                                         &hidden->value));
        e->numbers[value] = hidden->value;
    }
    return CORE_OK;
}

/* The nodes that outputs and writes need, in their order, and those that do
 * more than compute. */
static core_status forward_nodes(const partitioning *p, core__extraction *e)
{
    const core_program *joint = p->joint;

    for (uint32_t i = 0; i < joint->nnodes; i++) {
        const core__program_node *node = &joint->nodes[i];
        bool needed = core__node_acts(node);

        if (node->backward)
            continue;
        for (uint32_t k = 0; k < node->nvalues; k++)
            needed = needed || joint->values[node->first + k].kept ||
                     p->saved[node->first + k];
        if (needed &&
            (!node->nvalues || e->numbers[node->first] == CORE__NO_VALUE))
            CORE_TRY(core__extract_node(e, i));
    }
    return CORE_OK;
}

static core_status add_output(core__extraction *e,
                              const core__program_output *output,
                              uint32_t *out_index)
{
    core__program_output *added =
        core__program_grow(&e->to->outputs, &e->to->noutputs, sizeof *added);

    if (!added)
        return core__error_memory(sizeof *added);
    *out_index = e->to->noutputs - 1;
    *added = *output;
    if (added->kind == CORE__OUTPUT_VALUE)
        added->index = e->numbers[output->index];
    if (added->tensor)
        core__tensor_retain(added->tensor);
    return CORE_OK;
}

/* The root with which an output shares its value; CORE__NO_VALUE: none. */
static uint32_t root_with(const core_program *joint, const core__joint *d,
                          const core__program_output *output)
{
    for (uint32_t i = 0; i < d->nroots; i++)
        if (output->kind == CORE__OUTPUT_VALUE &&
            joint->outputs[d->noutputs + i].index == output->index)
            return i;
    return CORE__NO_VALUE;
}

/* Roots come first, so each is the tensor of its value. */
static core_status forward_outputs(const partitioning *p, core__extraction *e)
{
    const core_program *joint = p->joint;
    core__joint *d = p->described;

    for (uint32_t i = 0; i < d->nroots; i++)
        CORE_TRY(add_output(e, &joint->outputs[d->roots[i]], &d->roots[i]));
    for (uint32_t i = 0; i < d->noutputs; i++) {
        core__joint_output *output = &d->outputs[i];

        if (output->kind != CORE__JOINT_PROGRAM)
            continue;
        output->index = root_with(joint, d, &joint->outputs[i]);
        if (output->index != CORE__NO_VALUE)
            output->kind = CORE__JOINT_DETACHED;
        else
            CORE_TRY(add_output(e, &joint->outputs[i], &output->index));
    }
    return CORE_OK;
}

/* The output that has a value as its tensor; CORE__NO_VALUE: none. */
static uint32_t output_with(const core_program *program, uint32_t value)
{
    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE &&
            program->outputs[i].index == value && !program->outputs[i].view)
            return i;
    return CORE__NO_VALUE;
}

static bool is_written(const core_program *joint,
                       const core__program_value *value)
{
    return value->source == CORE__VALUE_OF_HIDDEN
               ? joint->hidden[value->index].written
               : joint->inputs[value->index].written;
}

/* How the backward gets a value.  A tensor that the program writes at its end
 * is copied before. */
static core_status save(const partitioning *p, core__extraction *e,
                        uint32_t value, core__saved_value *out)
{
    const core__program_value *described = &p->joint->values[value];
    bool node = described->source == CORE__VALUE_OF_NODE;
    uint32_t number = e->numbers[value];
    core__program_output *output;

    *out =
        (core__saved_value){.source = described->source == CORE__VALUE_OF_HIDDEN
                                          ? CORE__SAVED_HIDDEN
                                          : CORE__SAVED_INPUT,
                            .index = described->index,
                            .value = value};
    if (!node && !is_written(p->joint, described))
        return CORE_OK;
    if (!node)
        CORE_TRY(core__extract_clone(e, number, &number));
    out->source = CORE__SAVED_OUTPUT;
    out->index = output_with(e->to, number);
    if (out->index != CORE__NO_VALUE)
        return CORE_OK;
    out->index = e->to->noutputs;
    output =
        core__program_grow(&e->to->outputs, &e->to->noutputs, sizeof *output);
    if (!output)
        return core__error_memory(sizeof *output);
    *output = (core__program_output){
        .kind = CORE__OUTPUT_VALUE, .index = number, .type = described->type};
    return CORE_OK;
}

static core_status forward_saved(partitioning *p, core__extraction *e)
{
    core__partition *out = p->out;
    uint32_t count = 0;

    out->saved =
        core__program_alloc(e->to, (out->nsaved + 1) * sizeof *out->saved);
    if (!out->saved)
        return core__error_memory(out->nsaved * sizeof *out->saved);
    for (uint32_t i = 0; i < p->joint->nvalues; i++)
        if (p->saved[i])
            CORE_TRY(save(p, e, i, &out->saved[count++]));
    return CORE_OK;
}

static core_status forward_writes(const partitioning *p, core__extraction *e)
{
    for (uint32_t i = 0; i < p->joint->nwrites; i++) {
        core__program_write *write =
            core__program_grow(&e->to->writes, &e->to->nwrites, sizeof *write);

        if (!write)
            return core__error_memory(sizeof *write);
        *write = p->joint->writes[i];
        write->value = e->numbers[write->value];
    }
    return CORE_OK;
}

static core_status build_forward(partitioning *p, core__extraction *e)
{
    core_program *joint = p->joint;
    const core__joint *d = p->described;
    size_t gradients = (size_t)d->nmasks * d->nsources;

    /* Only what the function returns and writes is kept. */
    for (size_t i = 0; i < gradients; i++)
        if (d->gradients[i] != CORE__NO_VALUE)
            joint->values[joint->outputs[d->gradients[i]].index].kept = false;
    for (uint32_t i = 0; i < d->noutputs; i++)
        if (joint->outputs[i].kind == CORE__OUTPUT_VALUE)
            joint->values[joint->outputs[i].index].kept = true;
    for (uint32_t i = 0; i < d->nroots; i++)
        joint->values[joint->outputs[d->roots[i]].index].kept = true;
    for (uint32_t i = 0; i < joint->nwrites; i++)
        joint->values[joint->writes[i].value].kept = true;
    CORE_TRY(forward_sources(p, e));
    CORE_TRY(forward_nodes(p, e));
    CORE_TRY(forward_outputs(p, e));
    CORE_TRY(forward_saved(p, e));
    return forward_writes(p, e);
}

/* The forward program alone has references to tensors. */
static void move_tensors(core_program *joint, core_program *forward)
{
    forward->known = joint->known;
    forward->nknown = joint->nknown;
    forward->aliases = joint->aliases;
    forward->naliases = joint->naliases;
    joint->known = NULL;
    joint->aliases = NULL;
    joint->nknown = joint->naliases = 0;
    forward->numbers = joint->numbers;
    forward->nnumbers = joint->nnumbers;
    forward->finishes = joint->finishes;
    forward->nfinishes = joint->nfinishes;
    joint->numbers = NULL;
    joint->finishes = NULL;
    joint->nnumbers = joint->nfinishes = 0;
    for (uint32_t i = 0; i < joint->nhidden; i++) {
        core__hidden_release(&joint->hidden[i]);
        joint->hidden[i].tensor = NULL;
    }
    for (uint32_t i = 0; i < joint->noutputs; i++) {
        core__tensor_release(joint->outputs[i].tensor);
        joint->outputs[i].tensor = NULL;
    }
}

static core_status make_forward(partitioning *p)
{
    core__extraction e;
    core_status status = core__extraction_begin(&e, p->joint);

    if (status == CORE_OK)
        status = build_forward(p, &e);
    CORE_TRY(core__extraction_end(&e, status, &p->out->forward));
    move_tensors(p->joint, p->out->forward);
    return CORE_OK;
}

/* ------------------------------------------------------------- backward -- */

static core_status extract_tangents(core_program *joint, const core__joint *d,
                                    uint32_t mask, core__extraction *e,
                                    uint32_t *inputs)
{
    for (uint32_t i = 0; i < d->nroots; i++)
        if (d->masks[mask] >> i & 1) {
            inputs[e->to->ninputs] = i;
            CORE_TRY(
                core__extract_input(e, joint->inputs[d->ninputs + i].value));
        }
    return CORE_OK;
}

/* Values that a set of nodes of the backward uses, directly or by way of nodes
 * that run again. */
typedef struct uses {
    const core_program *joint;
    bool *needed; /* by value */
    const bool *saved;
} uses;

static void note_needed(void *context, uint32_t value)
{
    uses *u = context;

    u->needed[value] = true;
}

/* Nodes are in order, so each comes after those that use it in this loop. */
static void find_needed(uses *u)
{
    for (uint32_t i = u->joint->nnodes; i-- > 0;) {
        const core__program_node *node = &u->joint->nodes[i];
        bool needed = false;

        for (uint32_t k = 0; k < node->nvalues; k++)
            needed = needed ||
                     (u->needed[node->first + k] && !u->saved[node->first + k]);
        if (needed)
            core__node_each_value(node, note_needed, u);
    }
}

/* Adds a gradient as an output.  What shares memory with another output or with
 * a saved value would become the gradient of a leaf without a copy, and so is
 * copied. */
static core_status output_gradient(core__extraction *e, uint32_t ntangents,
                                   uint32_t value, uint32_t *out_index)
{
    core_program *to = e->to;
    uint32_t number = e->numbers[value], root = core__program_root(to, number);
    const core__program_value *of = &to->values[root];
    core__program_output output = {.kind = CORE__OUTPUT_VALUE,
                                   .index = root,
                                   .type = to->values[number].type,
                                   .view = number != root ? CORE__OUTPUT_VIEW
                                                          : CORE__OUTPUT_WHOLE};
    bool shared = false;

    if (of->source == CORE__VALUE_OF_INPUT) {
        output.kind = CORE__OUTPUT_INPUT;
        output.index = of->index;
        shared = of->index >= ntangents;
    }
    *out_index = to->noutputs;
    for (uint32_t i = 0; i < to->noutputs; i++) {
        const core__program_output *other = &to->outputs[i];

        if (other->kind != output.kind || other->index != output.index ||
            output.kind != CORE__OUTPUT_VALUE)
            continue;
        shared = true;
    }
    if (!shared && output.view &&
        core__program_view_offset(to, number, &output.offset) != CORE_OK)
        shared = true;
    if (shared) {
        CORE_TRY(core__extract_clone(e, number, &output.index));
        output.kind = CORE__OUTPUT_VALUE;
        output.view = CORE__OUTPUT_WHOLE;
        output.offset = 0;
    }
    {
        core__program_output *added =
            core__program_grow(&to->outputs, &to->noutputs, sizeof *added);

        if (!added)
            return core__error_memory(sizeof *added);
        *added = output;
    }
    return CORE_OK;
}

/* Another source has the same gradient; CORE__NO_VALUE: none has. */
static uint32_t same_gradient(const core_program *joint,
                              const uint32_t *gradients,
                              const uint32_t *outputs, uint32_t source)
{
    for (uint32_t i = 0; i < source; i++)
        if (outputs[i] != CORE__NO_VALUE &&
            joint->outputs[gradients[i]].index ==
                joint->outputs[gradients[source]].index)
            return outputs[i];
    return CORE__NO_VALUE;
}

static core_status output_gradients(core_program *joint, const core__joint *d,
                                    uint32_t mask, core__extraction *e,
                                    uint32_t *outputs)
{
    const uint32_t *gradients = d->gradients + (size_t)mask * d->nsources;
    uint32_t ntangents = (uint32_t)__builtin_popcountll(d->masks[mask]);

    for (uint32_t i = 0; i < d->nsources; i++)
        outputs[i] = CORE__NO_VALUE;
    for (uint32_t i = 0; i < d->nsources; i++) {
        if (gradients[i] == CORE__NO_VALUE)
            continue;
        outputs[i] = same_gradient(joint, gradients, outputs, i);
        if (outputs[i] == CORE__NO_VALUE)
            CORE_TRY(output_gradient(
                e, ntangents, joint->outputs[gradients[i]].index, &outputs[i]));
    }
    return CORE_OK;
}

static core_status build_backward(core_program *joint, const core__joint *d,
                                  const core__partition *partition,
                                  uint32_t mask, uses *u, core__extraction *e,
                                  core__backward *out)
{
    const uint32_t *gradients = d->gradients + (size_t)mask * d->nsources;

    for (uint32_t i = 0; i < d->nsources; i++)
        if (gradients[i] != CORE__NO_VALUE)
            u->needed[joint->outputs[gradients[i]].index] = true;
    find_needed(u);
    CORE_TRY(extract_tangents(joint, d, mask, e, out->inputs));
    for (uint32_t i = 0; i < partition->nsaved; i++)
        if (u->needed[partition->saved[i].value]) {
            out->inputs[e->to->ninputs] = d->nroots + i;
            CORE_TRY(core__extract_input(e, partition->saved[i].value));
        }
    for (uint32_t i = 0; i < joint->nnodes; i++) {
        const core__program_node *node = &joint->nodes[i];
        bool needed = false;

        for (uint32_t k = 0; k < node->nvalues && node->backward; k++)
            needed = needed || u->needed[node->first + k];
        if (needed)
            CORE_TRY(core__extract_node(e, i));
    }
    /* A gradient may be a value that only the forward's nodes compute. */
    for (uint32_t i = 0; i < d->nsources; i++)
        if (gradients[i] != CORE__NO_VALUE)
            CORE_TRY(
                core__extract_value(e, joint->outputs[gradients[i]].index));
    return output_gradients(joint, d, mask, e, out->outputs);
}

core_status core__backward_make(core_program *joint,
                                const core__joint *described,
                                const core__partition *partition, uint32_t mask,
                                core__backward *out)
{
    size_t size = 2 * (size_t)joint->nvalues + 1;
    bool *flags = core__alloc_zero(size);
    uses u = {joint, flags, flags + joint->nvalues};
    core__extraction e;
    core_status status;

    *out = (core__backward){0};
    if (!flags)
        return core__error_memory(size);
    for (uint32_t i = 0; i < partition->nsaved; i++)
        flags[joint->nvalues + partition->saved[i].value] = true;
    status = core__extraction_begin(&e, joint);
    if (status == CORE_OK) {
        size =
            (described->nroots + partition->nsaved + described->nsources + 1) *
            sizeof *out->inputs;
        out->inputs = core__program_alloc(e.to, size);
        if (!out->inputs)
            status = core__error_memory(size);
    }
    if (status == CORE_OK) {
        out->outputs = out->inputs + described->nroots + partition->nsaved;
        status = build_backward(joint, described, partition, mask, &u, &e, out);
    }
    core__free(flags);
    return core__extraction_end(&e, status, &out->program);
}

/* ------------------------------------------------------------------ all -- */

core_status core__partition_make(core_program *joint, core__joint *described,
                                 uint64_t budget, core__partition *out)
{
    partitioning p = {.joint = joint, .described = described, .out = out};
    size_t size = 5 * (size_t)joint->nvalues + 2;
    core_status status;

    *out = (core__partition){0};
    p.used = core__alloc_zero(size);
    if (!p.used)
        return core__error_memory(size);
    p.visible = p.used + joint->nvalues;
    p.saved = p.visible + joint->nvalues;
    p.side = p.saved + joint->nvalues;
    find_uses(&p);
    status = check_nodes(&p);
    if (status == CORE_OK)
        status = choose(&p, budget);
    if (status == CORE_OK)
        status = make_forward(&p);
    core__free(p.used);
    core__free(p.edges);
    if (status != CORE_OK) {
        core_program_release(out->forward);
        out->forward = NULL;
    }
    return status;
}
