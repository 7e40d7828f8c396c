/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Finds groups that follow a product and read its result. */

#include "compile/prepare/epilogue.h"
#include "compile/prepare/prepared.h"
#include "compile/prepare/tune.h"

#include "base/memory.h"
#include "codegen/loop_kernel.h"
#include "device/device.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

#include <string.h>

typedef struct search {
    core__prepared *set;
    core__row_memory *memory;
    core__epilogues *out;
    bool always; /* although it is not expected to be faster */
} search;

static const core__fused_group *group_of(const core__step *step)
{
    return ((const core__fused_launch *)(const void *)step->launch)->group;
}

static const core__operand_tensor *tensor_of(const core__step *step,
                                             uint32_t index)
{
    return (const core__operand_tensor *)(const void *)core__logged_tensors(
        step->launch)[index];
}

/* Where a tensor is: a memory, and the bytes from its start. */
static uint32_t root_of(const search *s, const core__operand_tensor *tensor)
{
    return s->memory[tensor->source].root;
}

static uint64_t start_of(const search *s, const core__operand_tensor *tensor)
{
    return s->memory[tensor->source].distance + tensor->distance;
}

/* ----------------------------------------------------------------- steps -- */

static bool is_product(const core__step *step)
{
    return step->kind == CORE__STEP_LAUNCH && step->index != CORE__NO_VALUE &&
           step->launch->nresults == 1 && !step->launch->loop &&
           !step->launch->kernel->prepare &&
           core__epilogue_follows(step->launch->run->op);
}

/* The result is the last tensor of a launch. */
static const core__operand_tensor *result_of(const core__step *step)
{
    return tensor_of(step, step->launch->run->ntensors - 1);
}

/* The dimensions of the result, which is dense: matrices, rows and columns, or
 * images, channels and positions. */
static bool find_sizes(const core__step *step,
                       int64_t sizes[CORE__EPILOGUE_DIMS])
{
    const core_view *view = step->launch->results[0].u.view;
    uint32_t ndim = view->ndim;
    int64_t step_of_dim = 1;

    for (uint32_t d = ndim; d-- > 0; step_of_dim *= view->sizes[d])
        if (view->sizes[d] > 1 && view->strides[d] != step_of_dim)
            return false;
    sizes[0] = ndim > 2 ? view->sizes[0] : 1;
    sizes[1] = ndim > 2 ? view->sizes[1] : view->sizes[0];
    sizes[2] = ndim > 2 ? 1 : view->sizes[1];
    for (uint32_t d = 2; d < ndim; d++)
        sizes[2] *= view->sizes[d];
    return view->numel > 0;
}

static bool is_in_chain(const core__prepared *set, uint32_t step)
{
    for (uint32_t i = 0; i < set->rows.nchains; i++)
        if (step >= set->rows.chains[i].first &&
            step - set->rows.chains[i].first < set->rows.chains[i].count)
            return true;
    return false;
}

/* Instructions that depend on the dimensions of the loop. */
static bool depends_on_loop(const core_loop_program *program)
{
    for (uint32_t i = 0; i < program->ninstructions; i++)
        switch (program->instructions[i].opcode) {
        case CORE_LOOP_INDEX:
        case CORE_LOOP_SIZE:
        case CORE_LOOP_POSITION:
        case CORE_LOOP_ROW_SIZE:
        case CORE_LOOP_PHILOX32:
        case CORE_LOOP_PHILOX64:
            return true;
        default:
            break;
        }
    return program->flags & CORE_LOOP_PROGRAM_REDUCES;
}

/* ------------------------------------------------------------ conditions -- */

static bool same_strides(const core_loop *loop, uint32_t a, uint32_t b)
{
    return memcmp(loop->operands[a].strides, loop->operands[b].strides,
                  loop->ndim * sizeof(int64_t)) == 0;
}

/* The operand of the group that is the result; noperands: none is.  Others in
 * its memory, such as an output, must have exactly its elements. */
static uint32_t find_result(const search *s, const core__step *product,
                            const core__step *group, const char **out_reason)
{
    const core__operand_tensor *result = result_of(product);
    const core_loop *loop = group->launch->loop;
    uint32_t found = loop->noperands, ntensors = group->launch->run->ntensors;

    for (uint32_t k = loop->noutputs; k < ntensors && found == loop->noperands;
         k++)
        if (root_of(s, tensor_of(group, k)) == root_of(s, result) &&
            start_of(s, tensor_of(group, k)) == start_of(s, result))
            found = k;
    for (uint32_t k = 0; k < ntensors && found < loop->noperands; k++)
        if (root_of(s, tensor_of(group, k)) == root_of(s, result) &&
            (start_of(s, tensor_of(group, k)) != start_of(s, result) ||
             !same_strides(loop, k, found)))
            *out_reason = "it reads the result in several orders";
    return found;
}

/* Whether the group writes what the product reads. */
static bool overwrites(const search *s, const core__step *product,
                       const core__step *group)
{
    for (uint32_t k = 0; k < group->launch->loop->noutputs; k++)
        for (uint32_t i = 0; i + 1 < product->launch->run->ntensors; i++)
            if (root_of(s, tensor_of(group, k)) ==
                root_of(s, tensor_of(product, i)))
                return true;
    return false;
}

/* Measures whether the two are. */
/* Why the epilogue is not used after it was measured; NULL: it is faster. */
static const char *measure(const search *s, uint32_t step)
{
    static const core__tuning ways[] = {{.epilogues = 0}, {.epilogues = 1}};
    core__error_record before;
    uint32_t way = 0;
    core_status status;

    core__error_save(&before);
    status = core__tune_steps(s->set, step, 2, ways, 2, &way);
    core__error_restore(&before);
    if (status != CORE_OK)
        return "it could not be measured";
    return way == 1 ? NULL : "measured: it is not faster";
}

/* Makes the epilogue of a product and the step after it.  *out_reason: why it
 * is none. */
static core_status make(const search *s, uint32_t step, core__epilogue *to,
                        const char **out_reason)
{
    const core__step *product = &s->set->steps[step], *group = product + 1;
    const core_loop *loop = group->launch->loop;
    int64_t sizes[CORE__EPILOGUE_DIMS];

    *to = (core__epilogue){.product = step, .group = step + 1};
    to->result = find_result(s, product, group, out_reason);
    if (*out_reason)
        return CORE_OK;
    if (to->result == loop->noperands)
        *out_reason = "it does not read the result";
    else if (is_in_chain(s->set, step + 1))
        *out_reason = "it runs on blocks of rows with what follows it";
    else if (!s->always && !s->set->fusion->measured)
        *out_reason = "it is not expected to be faster";
    else if (overwrites(s, product, group))
        *out_reason = "it writes in the memory of what the product reads";
    else if (depends_on_loop(group_of(group)->kernel->program))
        *out_reason = "it depends on the place of an element";
    else if (!find_sizes(product, sizes))
        *out_reason = "the result is not dense";
    else
        CORE_TRY(core__epilogue_loop(loop, to->result, sizes, &to->loop));
    if (!*out_reason && !to->loop)
        *out_reason = "it reads its operands in another order";
    if (!*out_reason && !s->always) {
        *out_reason = measure(s, step);
        if (*out_reason)
            core__free(to->loop);
    }
    return CORE_OK;
}

/* -------------------------------------------------------------- searching -- */

/* Memory that one of the two steps uses is used by both. */
static void extend(const search *s, const core__epilogue *epilogue)
{
    for (uint32_t at = epilogue->product; at <= epilogue->group; at++) {
        const core__step *step = &s->set->steps[at];

        for (uint32_t i = 0; i < step->launch->run->ntensors; i++) {
            core__row_memory *m = &s->memory[root_of(s, tensor_of(step, i))];

            if (m->first > epilogue->product)
                m->first = epilogue->product;
            if (m->last < epilogue->group)
                m->last = epilogue->group;
        }
    }
}

static core_status describe(const search *s, const core__epilogue *epilogue)
{
    core__epilogue_facts *facts = s->out->facts;
    core__epilogue_description *to =
        core__program_grow(&facts->all, &facts->count, sizeof *to);
    const core__prepared *set = s->set;
    const core__fused_group *group = group_of(&set->steps[epilogue->group]);
    const core_loop *loop = epilogue->loop;

    if (!to)
        return core__error_memory(sizeof *to);
    *to = (core__epilogue_description){
        .product =
            set->program->nodes[set->steps[epilogue->product].index].name,
        .names = set->fusion->names + group->first,
        .nnames = group->count,
        .elements = (uint64_t)loop->numel,
        .bytes_saved =
            (uint64_t)loop->numel *
            core__dtype_size(loop->operands[epilogue->result].dtype)};
    return CORE_OK;
}

static core_status try_step(const search *s, uint32_t step)
{
    core__epilogue_facts *facts = s->out->facts;
    const char *reason = NULL;
    core__epilogue made, *to;

    CORE_TRY(make(s, step, &made, &reason));
    if (reason)
        return core__operator_reason_count(
            &facts->refused, &facts->nrefused,
            s->set->program->nodes[s->set->steps[step].index].name, reason);
    to = core__program_grow(&s->out->all, &s->out->count, sizeof *to);
    if (!to) {
        core__free(made.loop);
        return core__error_memory(sizeof *to);
    }
    *to = made;
    extend(s, to);
    return describe(s, to);
}

static const char *reason_of(const core__prepared *set)
{
    if (set->fusion->reason)
        return set->fusion->reason;
    return core__loop_kernel_can_follow(set->device)
               ? NULL
               : "the device does not run a kernel on parts of a result";
}

core_status core__epilogues_find(core__prepared *set, core__row_memory *memory,
                                 core__epilogues *out)
{
    search s = {set, memory, out,
                set->fusion->always || set->program->tuning.epilogues};

    out->facts = core__alloc_zero(sizeof *out->facts);
    if (!out->facts)
        return core__error_memory(sizeof *out->facts);
    atomic_init(&out->facts->references, 1);
    out->facts->fusion = core__fusion_retain(set->fusion);
    out->facts->reason = reason_of(set);
    for (uint32_t i = 0; i + 1 < set->nsteps && !out->facts->reason; i++)
        if (is_product(&set->steps[i]) &&
            set->steps[i + 1].kind == CORE__STEP_FUSED)
            CORE_TRY(try_step(&s, i));
    return CORE_OK;
}

/* -------------------------------------------------------------- lifetime -- */

core_status core__epilogues_make_steps(core__prepared *set)
{
    for (uint32_t i = 0; i < set->epilogues.count; i++) {
        core__epilogue *epilogue = &set->epilogues.all[i];
        core__step *product = &set->steps[epilogue->product];
        core__step *group = &set->steps[epilogue->group];

        epilogue->steps = core__alloc(2 * sizeof *epilogue->steps);
        if (!epilogue->steps)
            return core__error_memory(2 * sizeof *epilogue->steps);
        epilogue->steps[0] = *product;
        epilogue->steps[1] = *group;
        product->kind = CORE__STEP_EPILOGUE;
        product->index = i;
        group->kind = CORE__STEP_NOTHING;
    }
    return CORE_OK;
}

void core__epilogues_free(core__epilogues *epilogues)
{
    for (uint32_t i = 0; i < epilogues->count; i++) {
        core__free(epilogues->all[i].steps);
        core__free(epilogues->all[i].loop);
    }
    core__free(epilogues->all);
    core__epilogue_facts_release(epilogues->facts);
}

core__epilogue_facts *core__epilogue_facts_retain(core__epilogue_facts *facts)
{
    atomic_fetch_add_explicit(&facts->references, 1, memory_order_relaxed);
    return facts;
}

void core__epilogue_facts_release(core__epilogue_facts *facts)
{
    if (!facts || atomic_fetch_sub_explicit(&facts->references, 1,
                                            memory_order_acq_rel) > 1)
        return;
    core__fusion_release(facts->fusion);
    core__free(facts->all);
    core__free(facts->refused);
    core__free(facts);
}

/* --------------------------------------------------------------- explain -- */

static void write_epilogue(const core__epilogue_description *epilogue,
                           core__json *json)
{
    core__json_object(json, NULL);
    core__json_text(json, "product", epilogue->product);
    core__json_array(json, "operators");
    for (uint32_t i = 0; i < epilogue->nnames; i++)
        core__json_text(json, NULL, epilogue->names[i]);
    core__json_end(json);
    core__json_unsigned(json, "elements", epilogue->elements);
    core__json_unsigned(json, "bytes_saved", epilogue->bytes_saved);
    core__json_end(json);
}

void core__epilogue_facts_describe(const core__epilogue_facts *facts,
                                   core__json *json)
{
    const char *reason = !facts ? "its calls are not prepared" : facts->reason;

    if (facts && !reason && !facts->count)
        reason = facts->nrefused
                     ? "no group can run on parts of a product's result"
                     : "no group follows a product";
    core__json_object(json, "epilogues");
    if (reason)
        core__json_text(json, "reason", reason);
    core__json_array(json, "groups");
    for (uint32_t i = 0; facts && i < facts->count; i++)
        write_epilogue(&facts->all[i], json);
    core__json_end(json);
    core__operator_reasons_write(facts ? facts->refused : NULL,
                                 facts ? facts->nrefused : 0, "refused", json);
    core__json_end(json);
}
