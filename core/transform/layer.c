/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The layers of core_vmap.
 *
 * A call with batched tensors belongs to the innermost call of core_vmap that
 * one of them comes from.  The batched layer, above autograd, finds it.  If an
 * operand requires grad there, autograd inside of core_vmap records the call,
 * with batched tensors, and continues in the batch rule layer below it.
 * Otherwise the rule runs at once.  A rule calls operators outside of that
 * core_vmap, where the same happens one level further out. */

#include "transform/batch.h"

#include "autograd/graph/autograd_meta.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "ops_ids.h"

#include <libcore/transform.h>

#include <string.h>

static const core__batch_rule rules[CORE__BATCH_RULES];

/* --------------------------------------------------------------- levels -- */

static uint64_t level_of(const core_tensor *tensor)
{
    return tensor && core__tensor_is_batched(tensor) ? tensor->level : 0;
}

static uint64_t highest_level(const core_value *args, uint32_t nargs)
{
    uint64_t highest = 0, level;

    for (uint32_t i = 0; i < nargs; i++) {
        bool list = args[i].tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count =
            list ? args[i].count : args[i].tag == CORE_VALUE_TENSOR;

        for (uint32_t k = 0; k < count; k++) {
            level = level_of(list ? args[i].u.tensors[k] : args[i].u.tensor);
            if (level > highest)
                highest = level;
        }
    }
    return highest;
}

static core_status find_level(const core_operator *op, core__batching *from,
                              uint64_t level, core__batching **out)
{
    while (from && from->level != level)
        from = from->outer;
    *out = from;
    if (from)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, op,
        "a tensor is used that belongs to a call of core_vmap which has "
        "returned or runs in another thread; only outputs of the function "
        "outlive the call");
}

static bool wants_grad(const core_tensor *tensor, uint64_t level)
{
    return level_of(tensor) == level && core__tensor_needs_grad(tensor);
}

/* Whether autograd inside of the call records this. */
static bool records(const core__thread *self, const core_operator *op,
                    const core_value *args, uint32_t nargs, uint64_t level)
{
    if (self->no_grad || self->excluded & CORE__KEY_AUTOGRAD ||
        !(core__operator_mask(op) & CORE__KEY_AUTOGRAD))
        return false;
    for (uint32_t i = 0; i < nargs; i++) {
        if (args[i].tag == CORE_VALUE_TENSOR &&
            wants_grad(args[i].u.tensor, level))
            return true;
        for (uint32_t k = 0;
             args[i].tag == CORE_VALUE_TENSOR_LIST && k < args[i].count; k++)
            if (args[i].u.tensors[k] && wants_grad(args[i].u.tensors[k], level))
                return true;
    }
    return false;
}

/* ---------------------------------------------------------------- rules -- */

/* Whether new tensors are mapped: a composite, or a formula of backward, writes
 * results of mapped operands to them. */
static bool fills_new_tensors(const core__thread *self,
                              const core__batching *batching)
{
    return batching->decomposing > 0 || self->engine;
}

static bool is_factory(const core__batch_row *row)
{
    return row->rule == CORE__BATCH_FACTORY || row->rule == CORE__BATCH_NEW ||
           row->rule == CORE__BATCH_LIKE;
}

static const core__batch_row *row_of(const core_operator *op)
{
    static const core__batch_row loop = {CORE__BATCH_LOOP, 0, 0};

    return op->flags & CORE__OP_CUSTOM ? &loop
                                       : &core__batch_rows[op->data->base];
}

/* index_put with a mask changes as many elements as are true: a number for each
 * sample. */
static bool is_masked(const core__batch *batch)
{
    const core_value *list = &batch->args[1];

    if (core__operator_base(batch->op)->id != CORE_OP_INDEX_PUT)
        return false;
    for (uint32_t k = 0; k < list->count; k++) {
        core_tensor *index = list->u.tensors[k];

        if (index && (index->dtype == CORE_BOOL || index->dtype == CORE_U8) &&
            core__batch_operand_of(batch, index).mapped)
            return true;
    }
    return false;
}

static core__batch_rule rule_of(const core__batch *batch)
{
    const core_operator *op = batch->op;
    uint32_t rule = batch->row->rule;
    bool variant = op->variant != CORE__VARIANT_FUNCTIONAL &&
                   core__operator_base(op) != op;

    if (is_masked(batch))
        return core__batch_loop;
    if (op->flags & CORE__OP_CUSTOM || !variant || rule == CORE__BATCH_REFUSE ||
        rule == CORE__BATCH_LOOP)
        return rules[rule];
    if (op->family == CORE__FAMILY_VIEW)
        return core__batch_relayout;
    if (op->variant == CORE__VARIANT_INPLACE && rule == CORE__BATCH_ELEMENTWISE)
        return core__batch_elementwise;
    return NULL;
}

static core_status decompose(core__batch *batch, core__thread *self)
{
    core__batching *batching = batch->batching, *before = self->batching;
    core_function function = batch->op->data->function;
    core_call call;
    core_status status;

    memset(&call, 0, sizeof call);
    memcpy(&call, batch->call, CORE__FUNCTION_CALL_SIZE);
    if (!function)
        function = core__op_variant;
    call.user = NULL;
    self->batching = batching;
    batching->decomposing++;
    status = function(&call, batch->args, batch->nargs, batch->results,
                      batch->nresults);
    batching->decomposing--;
    self->batching = before;
    return status;
}

/* All samples are equal: one of them is computed. */
static core_status run_unmapped(core__batch *batch)
{
    uint32_t listed = core__batch_listed(batch);
    core_tensor *few[CORE__BATCH_LIST], **lists = few, **list;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_status status;

    if (listed > CORE__BATCH_LIST)
        lists = core__alloc(listed * sizeof *lists);
    if (!lists)
        return core__error_memory(listed * sizeof *lists);
    list = lists;
    for (uint32_t i = 0; i < batch->nargs; i++) {
        core_tensor *const *from = batch->args[i].u.tensors;

        args[i] = batch->args[i];
        if (args[i].tag == CORE_VALUE_TENSOR)
            args[i].u.tensor = core__batch_operand(batch, i).tensor;
        if (args[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        args[i].u.tensors = list;
        for (uint32_t k = 0; k < args[i].count; k++)
            *list++ =
                from[k] ? core__batch_operand_of(batch, from[k]).tensor : NULL;
    }
    status = core__batch_invoke(batch, batch->op, args, batch->nargs,
                                CORE__BATCH_NONE);
    if (lists != few)
        core__free(lists);
    return status;
}

core_status core__batch_functional(core__batch *batch, bool mapped)
{
    return mapped ? rules[batch->row->rule](batch) : run_unmapped(batch);
}

static core_status run_random(core__batch *batch, bool mapped,
                              core__batch_rule *rule)
{
    switch (batch->batching->randomness) {
    case CORE_VMAP_RANDOM_ERROR:
        return core__op_error(
            CORE_ERROR_REFUSED, batch->op,
            "random numbers are drawn inside core_vmap; set the option "
            "randomness to CORE_VMAP_RANDOM_SAME or "
            "CORE_VMAP_RANDOM_DIFFERENT");
    case CORE_VMAP_RANDOM_SAME:
        if (*rule)
            *rule = mapped ? core__batch_random_same : run_unmapped;
        return CORE_OK;
    default:
        return *rule ? core__batch_make_written_mapped(batch) : CORE_OK;
    }
}

/* recorded: autograd inside of core_vmap records the call.  *rule is NULL if the
 * operator's function runs on batched tensors. */
static core_status choose(core__batch *batch, core__thread *self, bool recorded,
                          core__batch_rule *rule)
{
    bool mapped = core__batch_any_mapped(batch);
    bool random = core__batch_draws(batch->op, batch->args);

    *rule = rule_of(batch);
    if (batch->op->family == CORE__FAMILY_VIEW &&
        batch->op->variant == CORE__VARIANT_INPLACE)
        return CORE_OK;
    if (random)
        return run_random(batch, mapped, rule);
    if (recorded && batch->row->rule == CORE__BATCH_DECOMPOSE &&
        batch->op->data->implicit) {
        *rule = NULL;
        return CORE_OK;
    }
    if (!mapped &&
        !(is_factory(batch->row) && fills_new_tensors(self, batch->batching)))
        *rule = run_unmapped;
    return CORE_OK;
}

/* In-place calls have no results, or their first argument. */
static void return_changed(const core__batch *batch)
{
    if (!batch->nresults || batch->op->variant != CORE__VARIANT_INPLACE ||
        batch->results[0].tag != CORE_VALUE_NONE)
        return;
    core__tensor_retain(batch->args[0].u.tensor);
    core__result_tensor(&batch->results[0], batch->args[0].u.tensor);
}

static core_status apply(core_call *call, core__batching *batching,
                         const core_value *args, uint32_t nargs,
                         core_value *results, uint32_t nresults)
{
    core__thread *self = core__thread_self();
    core__batch batch = {.call = call,
                         .op = call->op,
                         .batching = batching,
                         .args = args,
                         .results = results,
                         .nargs = nargs,
                         .nresults = nresults,
                         .row = row_of(call->op)};
    bool recorded = records(self, call->op, args, nargs, batching->level);
    core__batching_state before;
    core__batch_rule rule = NULL;
    core_status status;

    if (nargs > CORE__SCHEMA_ARGUMENTS || nresults > CORE__SCHEMA_RESULTS)
        return core__batch_refuse(&batch, "it has too many arguments");
    core__scope_begin(&batch.scope);
    before = core__batching_leave(self, batching);
    status = choose(&batch, self, recorded, &rule);
    if (status == CORE_OK && rule) {
        if (call->op->variant == CORE__VARIANT_INPLACE)
            batch.nresults = 0;
        status = rule(&batch);
        batch.nresults = nresults;
    }
    status =
        core__scope_close(&batch.scope, call->op, status, results, nresults);
    core__batching_return(self, before);
    if (status == CORE_OK && !rule)
        status = decompose(&batch, self);
    else if (status == CORE_OK)
        return_changed(&batch);
    return status;
}

/* Autograd of this call has recorded a view, whose change in place it could not
 * record (check_changed). */
static void note_view(core_tensor *source, core_tensor *view)
{
    if (view == source || view->base)
        return;
    view->base = source->base ? source->base : source;
    core__tensor_retain(view->base);
}

core_status core__batch_rule_layer(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    core__batching *batching;

    CORE_TRY(find_level(call->op, core__thread_self()->batching,
                        highest_level(args, nargs), &batching));
    CORE_TRY(apply(call, batching, args, nargs, results, nresults));
    if (call->op->family == CORE__FAMILY_VIEW && nresults)
        note_view(args[0].u.tensor, results[0].u.tensor);
    return CORE_OK;
}

/* ------------------------------------------------------------ recording -- */

typedef struct lifted {
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_tensor *owned[CORE__BATCH_LIST * 2];
    core_tensor *lists[CORE__BATCH_LIST * 2];
    uint32_t count, listed;
} lifted;

/* A tensor that requires grad outside is replaced by one of this call, so that
 * the graph inside has no edge to the graph outside. */
static core_status lift(lifted *l, core_tensor *tensor, uint64_t level,
                        core_tensor **out)
{
    *out = tensor;
    if (!tensor || level_of(tensor) == level ||
        !core__tensor_needs_grad(tensor))
        return CORE_OK;
    if (l->count == CORE__BATCH_LIST * 2)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "more than %d tensors that core_vmap does not map "
                           "in one recorded call",
                           CORE__BATCH_LIST * 2);
    CORE_TRY(core__batched_new(tensor, CORE__BATCH_NONE, level,
                               &l->owned[l->count]));
    *out = l->owned[l->count++];
    return CORE_OK;
}

static core_status lift_list(lifted *l, core_value *value, uint64_t level)
{
    core_tensor *const *from = value->u.tensors;

    if (l->listed + value->count > CORE__BATCH_LIST * 2)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "more than %d tensors in lists of one recorded "
                           "call inside core_vmap",
                           CORE__BATCH_LIST * 2);
    value->u.tensors = l->lists + l->listed;
    for (uint32_t k = 0; k < value->count; k++)
        CORE_TRY(lift(l, from[k], level, &l->lists[l->listed + k]));
    l->listed += value->count;
    return CORE_OK;
}

static core_status check_changed(const core_operator *op,
                                 const core_value *args, uint32_t nargs,
                                 uint64_t level)
{
    uint32_t changed = core__operator_changed_arguments(op, nargs);

    if (op->family == CORE__FAMILY_VIEW && op->variant == CORE__VARIANT_INPLACE)
        return core__op_error(
            CORE_ERROR_UNSUPPORTED, op,
            "a change of the layout in place cannot be recorded inside "
            "core_vmap; use %s",
            core__operator_name(core__operator_base(op)));
    for (uint32_t left = changed; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);

        if (args[i].tag != CORE_VALUE_TENSOR)
            continue;
        if (level_of(args[i].u.tensor) != level)
            return core__op_error(
                CORE_ERROR_UNSUPPORTED, op,
                "the argument %s is changed in place and recorded inside "
                "core_vmap, but was made outside of it; clone it first",
                core__argument_name(op, i));
        if (args[i].u.tensor->base)
            return core__op_error(
                CORE_ERROR_UNSUPPORTED, op,
                "the argument %s is a view, whose change in place cannot be "
                "recorded inside core_vmap; use the operator that returns a "
                "new tensor",
                core__argument_name(op, i));
    }
    return CORE_OK;
}

static core_status record(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults, uint64_t level)
{
    uint64_t below = core__keys_below(call->keys, CORE__FUNCTIONALITY_BATCHED);
    core_status status;
    lifted l;

    l.count = l.listed = 0;
    CORE_TRY(check_changed(call->op, args, nargs, level));
    status = CORE_OK;
    for (uint32_t i = 0; i < nargs && status == CORE_OK; i++) {
        l.args[i] = args[i];
        if (args[i].tag == CORE_VALUE_TENSOR)
            status = lift(&l, args[i].u.tensor, level, &l.args[i].u.tensor);
        else if (args[i].tag == CORE_VALUE_TENSOR_LIST)
            status = lift_list(&l, &l.args[i], level);
    }
    if (status == CORE_OK)
        status =
            core__redispatch(call->op,
                             below | CORE__KEY_AUTOGRAD | CORE__KEY_BATCH_RULE |
                                 CORE__KEYS_REQUIRES_GRAD,
                             l.args, nargs, results, nresults);
    else
        core__op_prefix_name(call->op);
    for (uint32_t i = 0; i < l.count; i++)
        core__tensor_release(l.owned[i]);
    return status;
}

core_status core__batched_layer(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    core__thread *self = core__thread_self();
    core__batching *batching = self->batching;
    const core__batch_row *row = row_of(call->op);
    uint64_t level = highest_level(args, nargs);
    bool here =
        batching && (core__batch_draws(call->op, args) ||
                     (is_factory(row) && fills_new_tensors(self, batching)));

    if (!level && !here)
        return core__redispatch(
            call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_BATCHED),
            args, nargs, results, nresults);
    if (!here)
        CORE_TRY(find_level(call->op, batching, level, &batching));
    /* The operators of an implicit composite are recorded. */
    if (!(row->rule == CORE__BATCH_DECOMPOSE && call->op->data->implicit) &&
        nargs <= CORE__SCHEMA_ARGUMENTS &&
        records(self, call->op, args, nargs, batching->level))
        return record(call, args, nargs, results, nresults, batching->level);
    return apply(call, batching, args, nargs, results, nresults);
}

static core_status refuse(core__batch *batch)
{
    return core__batch_refuse(
        batch, batch->op->flags & CORE__OP_DYNAMIC_OUTPUT
                   ? "the sizes of its results depend on the elements"
                   : "it reads elements in the host's memory");
}

/* NULL: the operator's function. */
static const core__batch_rule rules[CORE__BATCH_RULES] = {
    [CORE__BATCH_LOOP] = core__batch_loop,
    [CORE__BATCH_REFUSE] = refuse,
    [CORE__BATCH_ELEMENTWISE] = core__batch_elementwise,
    [CORE__BATCH_REDUCTION] = core__batch_reduction,
    [CORE__BATCH_DIMS] = core__batch_dims,
    [CORE__BATCH_LEADING] = core__batch_leading,
    [CORE__BATCH_POINTWISE] = core__batch_pointwise,
    [CORE__BATCH_MERGE] = core__batch_merge,
    [CORE__BATCH_SAME] = core__batch_same,
    [CORE__BATCH_FACTORY] = core__batch_factory,
    [CORE__BATCH_NEW] = core__batch_factory,
    [CORE__BATCH_LIKE] = core__batch_like,
    [CORE__BATCH_COPY] = core__batch_copy,
    [CORE__BATCH_VIEW] = core__batch_view,
    [CORE__BATCH_EXPAND] = core__batch_expand,
    [CORE__BATCH_PERMUTE] = core__batch_permute,
    [CORE__BATCH_T] = core__batch_t,
    [CORE__BATCH_SQUEEZE] = core__batch_squeeze,
    [CORE__BATCH_AS_STRIDED] = core__batch_as_strided,
    [CORE__BATCH_CAT] = core__batch_cat,
    [CORE__BATCH_ROLL] = core__batch_roll,
    [CORE__BATCH_MEDIAN] = core__batch_median,
    [CORE__BATCH_MM] = core__batch_mm,
    [CORE__BATCH_BMM] = core__batch_bmm,
    [CORE__BATCH_MV] = core__batch_mv,
    [CORE__BATCH_DOT] = core__batch_dot,
    [CORE__BATCH_ADDMM] = core__batch_addmm,
    [CORE__BATCH_ADDBMM] = core__batch_addbmm,
    [CORE__BATCH_BADDBMM] = core__batch_baddbmm,
    [CORE__BATCH_ADDMV] = core__batch_addmv,
    [CORE__BATCH_ADDR] = core__batch_addr,
    [CORE__BATCH_CONVOLUTION] = core__batch_convolution,
    [CORE__BATCH_CONVOLUTION_BACKWARD] = core__batch_convolution_backward,
    [CORE__BATCH_LAYER_NORM] = core__batch_layer_norm,
    [CORE__BATCH_LAYER_NORM_BACKWARD] = core__batch_layer_norm_backward,
    [CORE__BATCH_GROUP_NORM] = core__batch_group_norm,
    [CORE__BATCH_GROUP_NORM_BACKWARD] = core__batch_group_norm_backward,
    [CORE__BATCH_BATCH_NORM] = core__batch_batch_norm,
    [CORE__BATCH_BATCH_NORM_BACKWARD] = core__batch_batch_norm_backward,
    [CORE__BATCH_NLL_LOSS] = core__batch_nll_loss,
    [CORE__BATCH_NLL_LOSS_BACKWARD] = core__batch_nll_loss_backward,
    [CORE__BATCH_ATTENTION] = core__batch_attention,
    [CORE__BATCH_ATTENTION_BACKWARD] = core__batch_attention_backward,
    [CORE__BATCH_INDEX] = core__batch_index,
    [CORE__BATCH_INDEX_PUT] = core__batch_index_put,
    [CORE__BATCH_INDEX_SELECT] = core__batch_index_select,
    [CORE__BATCH_INDEX_ADD] = core__batch_index_add,
    [CORE__BATCH_INDEX_WRITE] = core__batch_index_write,
    [CORE__BATCH_TAKE] = core__batch_take,
    [CORE__BATCH_SEARCH] = core__batch_search,
    [CORE__BATCH_EMBEDDING] = core__batch_embedding,
    [CORE__BATCH_EMBEDDING_BACKWARD] = core__batch_embedding_backward,
};
