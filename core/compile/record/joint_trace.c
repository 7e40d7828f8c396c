/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records the backward of a function after the function. */

#include "compile/record/joint_trace.h"

#include "autograd/api/partial_gradients.h"
#include "autograd/graph/node.h"
#include "base/memory.h"
#include "base/text.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "ops_ids.h"

#include <libcore/ops.h>

#include <string.h>

/* A joint trace while it is recorded.  Arrays are borrowed. */
typedef struct joint_trace {
    core__trace *trace;
    core_tensor *const *stand_ins;
    core_tensor *const *outputs;
    core__joint *joint;
    core_tensor **roots;
    bool *row_major;         /* by root: the layout of its gradient */
    core_tensor **tangents;  /* owned */
    core_tensor **sources;   /* as the function sees them */
    core_tensor **gradients; /* nmasks * nsources; owned */
} joint_trace;

static void *arena(const joint_trace *j, size_t count, size_t size)
{
    void *block = core__program_alloc(j->trace->program, count * size + 1);

    if (block)
        memset(block, 0, count * size + 1);
    return block;
}

/* --------------------------------------------------------------- outputs -- */

core_tensor *core__joint_root_of(core_tensor *output)
{
    return output->base && core__tensor_needs_grad(output->base) ? output->base
                                                                 : output;
}

static core_status __attribute__((cold))
refuse_view(uint32_t output, const char *why)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "output %u requires grad and is a view %s; return a "
                       "copy of it (core_clone)",
                       output, why);
}

/* The operators that make view `index` from view `from` of a storage. */
static core_status find_steps(const joint_trace *j,
                              const core__traced_storage *traced,
                              uint32_t index, uint32_t from, uint32_t output,
                              core__joint_output *out)
{
    uint32_t at;

    for (at = index; at != from; out->nsteps++) {
        const core__traced_view *view = &traced->views[at];

        if (at == 0 || !(view->op || view->list_op))
            return refuse_view(output, "that cannot be made again");
        at = view->parent;
    }
    out->steps = arena(j, out->nsteps, sizeof *out->steps);
    if (!out->steps)
        return core__error_memory(out->nsteps * sizeof *out->steps);
    at = index;
    for (uint32_t i = out->nsteps; i-- > 0;) {
        const core__traced_view *view = &traced->views[at];

        out->steps[i] =
            (core__view_step){view->op ? view->op : view->list_op, view->args,
                              view->nargs, view->op ? 0 : view->list_index};
        at = view->parent;
    }
    return CORE_OK;
}

/* Adds a root, which is described as an output of the program, unless it is one
 * already. */
static core_status add_root(joint_trace *j, core_tensor *root,
                            const core__traced_storage *traced, uint32_t output)
{
    core_program *program = j->trace->program;
    core__joint *joint = j->joint;
    core__program_output *described;

    if (joint->nroots == CORE__JOINT_ROOTS)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "more than %d outputs require grad",
                           CORE__JOINT_ROOTS);
    j->roots[joint->nroots] = root;
    joint->root_outputs[joint->nroots] = output;
    joint->roots[joint->nroots++] = program->noutputs;
    described = core__program_grow(&program->outputs, &program->noutputs,
                                   sizeof *described);
    if (!described)
        return core__error_memory(sizeof *described);
    *described = (core__program_output){.kind = CORE__OUTPUT_VALUE,
                                        .index = traced->views[0].value,
                                        .type = traced->views[0].type};
    /* Its own, although it is a part of something larger. */
    if (root == j->outputs[output] && program->outputs[output].view) {
        *described = program->outputs[output];
        described->kind = CORE__OUTPUT_VALUE;
        described->index = traced->views[0].value;
    }
    return CORE_OK;
}

/* True for a view whose gradient is that of its base with zeros around it, which
 * is row-major. */
static bool is_part(const core__joint_output *output)
{
    static const uint32_t parts[] = {CORE_OP_SLICE_TENSOR, CORE_OP_SELECT_INT,
                                     CORE_OP_DIAGONAL, CORE_OP_UNBIND_INT,
                                     CORE_OP_SPLIT_TENSOR};

    for (size_t i = 0; output->nsteps && i < sizeof parts / sizeof *parts; i++)
        if (output->steps[0].op->id == parts[i])
            return true;
    return false;
}

static uint32_t root_number(const joint_trace *j, const core_tensor *root)
{
    uint32_t i = 0;

    while (i < j->joint->nroots && j->roots[i] != root)
        i++;
    return i;
}

static core_status output_of_root(joint_trace *j, uint32_t i, core_tensor *root,
                                  const core__traced_storage *traced,
                                  uint32_t view)
{
    core__joint_output *out = &j->joint->outputs[i];
    core__traced_storage *of_root;
    uint32_t whole;

    CORE_TRY(core__traced_find(j->trace, NULL, root, &of_root, &whole));
    if (of_root != traced)
        return refuse_view(i, "of a tensor that is not a result");
    CORE_TRY(find_steps(j, traced, view, whole, i, out));
    out->kind = CORE__JOINT_ROOT;
    out->alias = root != j->outputs[i] && out->nsteps == 0;
    out->index = root_number(j, root);
    if (out->index < j->joint->nroots) {
        j->row_major[out->index] = j->row_major[out->index] && is_part(out);
        return CORE_OK;
    }
    j->row_major[out->index] = is_part(out);
    return add_root(j, root, traced, i);
}

static core_status output_of_input(joint_trace *j, uint32_t i,
                                   const core_tensor *root,
                                   const core__traced_storage *traced,
                                   uint32_t view)
{
    core__joint_output *out = &j->joint->outputs[i];
    core__traced_storage *of_root;
    uint32_t whole, input = 0;

    while (input < j->joint->ninputs && j->stand_ins[input] != root)
        input++;
    if (input == j->joint->ninputs)
        return refuse_view(i, "of a tensor that is not an input");
    CORE_TRY(core__traced_find(j->trace, NULL, j->stand_ins[input], &of_root,
                               &whole));
    CORE_TRY(find_steps(j, traced, view, whole, i, out));
    out->kind = CORE__JOINT_INPUT;
    out->alias = out->nsteps == 0;
    j->joint->views = true;
    out->index = input;
    return CORE_OK;
}

static core_status find_output(joint_trace *j, uint32_t i)
{
    core_tensor *output = j->outputs[i], *root = core__joint_root_of(output);
    core__joint_output *out = &j->joint->outputs[i];
    core__traced_storage *traced;
    uint32_t view;

    *out = (core__joint_output){.kind = CORE__JOINT_PROGRAM, .index = i};
    for (uint32_t k = 0; k < i; k++)
        if (j->outputs[k] == output) {
            *out = (core__joint_output){.kind = CORE__JOINT_SAME, .index = k};
            return CORE_OK;
        }
    if (!(output->flags & CORE__TENSOR_TRACED) ||
        !core__tensor_needs_grad(output))
        return CORE_OK;
    for (uint32_t k = 0; k < j->joint->ninputs; k++)
        if (j->stand_ins[k] == output)
            return CORE_OK;
    if (output->flags &
        (CORE__TENSOR_VIEW_UNKNOWN | CORE__TENSOR_VIEW_FUNCTION))
        return refuse_view(i, "whose history is not that of its base");
    CORE_TRY(core__traced_find(j->trace, NULL, output, &traced, &view));
    return traced->kind == CORE__TRACED_RESULT
               ? output_of_root(j, i, root, traced, view)
               : output_of_input(j, i, root, traced, view);
}

static core_status find_outputs(joint_trace *j)
{
    core__joint *joint = j->joint;

    joint->outputs = arena(j, joint->noutputs, sizeof *joint->outputs);
    joint->roots = arena(j, joint->noutputs, sizeof *joint->roots);
    joint->root_outputs = arena(j, joint->noutputs, sizeof *joint->roots);
    j->roots = arena(j, joint->noutputs, sizeof(core_tensor *));
    j->row_major = arena(j, joint->noutputs, sizeof *j->row_major);
    j->tangents = arena(j, joint->noutputs, sizeof(core_tensor *));
    if (!joint->outputs || !joint->roots || !joint->root_outputs || !j->roots ||
        !j->row_major || !j->tangents)
        return core__error_memory(joint->noutputs * sizeof *joint->outputs);
    for (uint32_t i = 0; i < joint->noutputs; i++)
        CORE_TRY(find_output(j, i));
    return CORE_OK;
}

/* --------------------------------------------------------------- sources -- */

/* Tensors of the function whose history is from before the call; others are
 * views that it makes in each call. */
static bool is_older(const joint_trace *j, const core_tensor *tensor)
{
    const core_node *node = tensor->autograd ? tensor->autograd->grad_fn : NULL;

    return !node || node->sequence < j->trace->sequence;
}

static void add_source(joint_trace *j, core_tensor *tensor, uint32_t input)
{
    core__joint *joint = j->joint;

    for (uint32_t i = 0; i < joint->nsources; i++)
        if (j->sources[i] == tensor)
            return;
    j->sources[joint->nsources] = tensor;
    joint->sources[joint->nsources++] =
        (core__joint_source){input == CORE__NO_VALUE ? tensor : NULL, input};
}

static void add_real_source(joint_trace *j, core_tensor *tensor)
{
    if (core__tensor_requires_grad(tensor) && is_older(j, tensor))
        add_source(j, tensor, CORE__NO_VALUE);
}

static core_status find_sources(joint_trace *j)
{
    const core_program *program = j->trace->program;
    core__joint *joint = j->joint;
    size_t most = (size_t)joint->ninputs + program->nhidden +
                  program->naliases + program->nknown;

    joint->sources = arena(j, most, sizeof *joint->sources);
    j->sources = arena(j, most, sizeof *j->sources);
    if (!joint->sources || !j->sources)
        return core__error_memory(most * sizeof *joint->sources);
    for (uint32_t i = 0; i < joint->ninputs; i++)
        if (core__tensor_needs_grad(j->stand_ins[i]))
            add_source(j, j->stand_ins[i], i);
    for (uint32_t i = 0; i < program->nhidden; i++)
        add_real_source(j, program->hidden[i].tensor);
    for (uint32_t i = 0; i < program->naliases; i++)
        add_real_source(j, program->aliases[i]);
    for (uint32_t i = 0; i < program->nknown; i++)
        add_real_source(j, program->known[i].tensor);
    return CORE_OK;
}

/* A leaf that the function has made. */
static bool is_own_leaf(const core_tensor *leaf)
{
    return leaf->flags & CORE__TENSOR_TRACED;
}

/* ------------------------------------------------------------- gradients -- */

static uint32_t count_masks(uint32_t nroots)
{
    if (nroots <= CORE__JOINT_ALL_MASKS)
        return (1u << nroots) - 1;
    return nroots + 1;
}

static void set_masks(core__joint *joint)
{
    uint32_t n = joint->nroots;

    for (uint32_t i = 0; i < joint->nmasks; i++) {
        if (n <= CORE__JOINT_ALL_MASKS)
            joint->masks[i] = joint->nmasks - i;
        else
            joint->masks[i] =
                i == 0 ? UINT64_MAX >> (64 - n) : UINT64_C(1) << (i - 1);
    }
}

/* Whatever the backward fails with, the function itself has not failed. */
static core_status __attribute__((cold)) cannot_record(core_status status)
{
    char message[512];

    if (status == CORE_ERROR_OUT_OF_MEMORY || status == CORE_ERROR_UNSUPPORTED)
        return status;
    if (strstr(core_error_message(), CORE__RAN_ALREADY))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "the function has run the backward of a result that requires grad; "
            "return core_detach of the result, or pass CORE_RETAIN_GRAPH if "
            "its backward runs again after the call");
    core__format(message, sizeof message, "%s", core_error_message());
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "the backward of the results cannot be recorded: %s",
                       message);
}

/* The gradients of the sources for the roots of a mask. */
static core_status record_mask(joint_trace *j, uint32_t mask)
{
    core__joint *joint = j->joint;
    core_tensor *roots[CORE__JOINT_ROOTS], *grads[CORE__JOINT_ROOTS];
    core_status status;
    size_t count = 0;

    for (uint32_t i = 0; i < joint->nroots; i++)
        if (joint->masks[mask] >> i & 1) {
            roots[count] = j->roots[i];
            grads[count++] = j->tangents[i];
        }
    status = core__partial_gradients(
        roots, grads, count, j->sources, joint->nsources,
        mask + 1 < joint->nmasks, false,
        j->gradients + (size_t)mask * joint->nsources);
    return status == CORE_OK ? status : cannot_record(status);
}

/* A gradient becomes an output of the program. */
static core_status describe_gradient(joint_trace *j, size_t index)
{
    core_program *program = j->trace->program;
    core__program_output *output;
    uint32_t value;

    j->joint->gradients[index] = CORE__NO_VALUE;
    if (!j->gradients[index])
        return CORE_OK;
    CORE_TRY(core__traced_read(j->trace, NULL, j->gradients[index], &value));
    j->joint->gradients[index] = program->noutputs;
    output = core__program_grow(&program->outputs, &program->noutputs,
                                sizeof *output);
    if (!output)
        return core__error_memory(sizeof *output);
    *output = (core__program_output){.kind = CORE__OUTPUT_VALUE,
                                     .index = value,
                                     .type = program->values[value].type};
    return CORE_OK;
}

static core_status record_gradients(joint_trace *j)
{
    core_program *program = j->trace->program;
    core__joint *joint = j->joint;
    uint32_t first = program->nnodes;
    size_t count;

    joint->nmasks = count_masks(joint->nroots);
    count = (size_t)joint->nmasks * joint->nsources;
    joint->masks = arena(j, joint->nmasks, sizeof *joint->masks);
    joint->gradients = arena(j, count, sizeof *joint->gradients);
    j->gradients = arena(j, count, sizeof *j->gradients);
    if (!joint->masks || !joint->gradients || !j->gradients)
        return core__error_memory(count * sizeof *j->gradients);
    set_masks(joint);
    for (uint32_t i = 0; i < joint->nroots; i++)
        CORE_TRY(core__traced_tangent(j->trace, j->roots[i], j->row_major[i],
                                      &j->tangents[i]));
    for (uint32_t i = 0; i < joint->nmasks; i++)
        CORE_TRY(record_mask(j, i));
    for (size_t i = 0; i < count; i++)
        CORE_TRY(describe_gradient(j, i));
    for (uint32_t i = first; i < program->nnodes; i++)
        program->nodes[i].backward = true;
    return CORE_OK;
}

static core_status record(joint_trace *j)
{
    core__joint *joint = j->joint;

    CORE_TRY(find_outputs(j));
    if (!joint->nroots)
        return CORE_OK;
    CORE_TRY(find_sources(j));
    CORE_TRY(core__partial_gradients_check(j->roots, joint->nroots, j->sources,
                                           joint->nsources, is_own_leaf));
    return record_gradients(j);
}

core_status core__joint_record(core__trace *trace,
                               core_tensor *const *stand_ins, uint32_t ninputs,
                               core_tensor *const *outputs, uint32_t noutputs,
                               core__joint *joint)
{
    joint_trace j = {.trace = trace,
                     .stand_ins = stand_ins,
                     .outputs = outputs,
                     .joint = joint};
    core_status status;

    *joint = (core__joint){.ninputs = ninputs, .noutputs = noutputs};
    status = record(&j);
    for (uint32_t i = 0; j.tangents && i < noutputs; i++)
        core__tensor_release(j.tangents[i]);
    for (size_t i = 0;
         j.gradients && i < (size_t)joint->nmasks * joint->nsources; i++)
        core__tensor_release(j.gradients[i]);
    return status;
}

/* ----------------------------------------------------------------- views -- */

static core_status make_step(const core_program *program,
                             const core__view_step *step, core_tensor *source,
                             core_tensor **out_view)
{
    core_value args[CORE__SCHEMA_ARGUMENTS], result = {0};

    args[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = source}};
    for (uint32_t i = 1; i < step->nargs; i++)
        args[i] = core__program_constant(program, &step->args[i]);
    CORE_TRY(core__call(step->op, args, step->nargs, &result, 1));
    *out_view = result.tag == CORE_VALUE_TENSOR_LIST
                    ? result.u.tensors[step->result]
                    : result.u.tensor;
    core__tensor_retain(*out_view);
    core_value_release(&result);
    return CORE_OK;
}

core_status core__joint_view(const core_program *program,
                             const core__joint_output *output,
                             core_tensor *source, core_tensor **out_view)
{
    core_tensor *at = source;

    if (output->alias)
        return core_alias(source, out_view);
    core__tensor_retain(at);
    for (uint32_t i = 0; i < output->nsteps; i++) {
        core_tensor *next = NULL;
        core_status status = make_step(program, &output->steps[i], at, &next);

        core__tensor_release(at);
        if (status != CORE_OK)
            return status;
        at = next;
    }
    *out_view = at;
    return CORE_OK;
}
