/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* batch.h: how an operator computes all samples of core_vmap at once.
 *
 * A rule (the key `vmap` in ops.yaml, or what the family implies) computes the
 * results of one call from the tensors that its batched operands hold.  While
 * it runs, the thread is outside of the call of core_vmap, so that its operator
 * calls are recorded by the autograd outside and batched by an outer call. */

#ifndef CORE_TRANSFORM_BATCH_H
#define CORE_TRANSFORM_BATCH_H

#include "base/thread.h"
#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/operator.h"
#include "dispatch/schema.h"
#include "ops/expression.h"
#include "tensor/batched.h"

/* The rules; tools/ops/batching.py has the same names in lower case. */
enum {
    CORE__BATCH_LOOP,      /* one call for each sample, counted */
    CORE__BATCH_REFUSE,    /* its results are not tensors of known sizes */
    CORE__BATCH_DECOMPOSE, /* the operator's function, on batched tensors */
    CORE__BATCH_ELEMENTWISE,
    CORE__BATCH_REDUCTION,
    CORE__BATCH_DIMS,    /* arguments count dimensions; the batch is one more */
    CORE__BATCH_LEADING, /* any dimensions may precede those that it uses */
    CORE__BATCH_POINTWISE, /* the same, and operands broadcast */
    CORE__BATCH_MERGE,     /* a dimension of samples, which the batch joins */
    CORE__BATCH_SAME,      /* sizes do not matter */
    CORE__BATCH_FACTORY,   /* a new tensor of given sizes */
    CORE__BATCH_NEW,       /* the same, with the dtype of an operand */
    CORE__BATCH_LIKE,      /* the same, with the sizes of an operand */
    CORE__BATCH_COPY,
    CORE__BATCH_VIEW,
    CORE__BATCH_EXPAND,
    CORE__BATCH_PERMUTE,
    CORE__BATCH_T,
    CORE__BATCH_SQUEEZE,
    CORE__BATCH_AS_STRIDED,
    CORE__BATCH_CAT,
    CORE__BATCH_ROLL,
    CORE__BATCH_MEDIAN,
    CORE__BATCH_MM,
    CORE__BATCH_BMM,
    CORE__BATCH_MV,
    CORE__BATCH_DOT,
    CORE__BATCH_ADDMM,
    CORE__BATCH_ADDBMM,
    CORE__BATCH_BADDBMM,
    CORE__BATCH_ADDMV,
    CORE__BATCH_ADDR,
    CORE__BATCH_INDEX,
    CORE__BATCH_INDEX_PUT,
    CORE__BATCH_INDEX_SELECT,
    CORE__BATCH_INDEX_ADD,
    CORE__BATCH_INDEX_WRITE,
    CORE__BATCH_TAKE,
    CORE__BATCH_SEARCH,
    CORE__BATCH_EMBEDDING,
    CORE__BATCH_EMBEDDING_BACKWARD,
    CORE__BATCH_CONVOLUTION,
    CORE__BATCH_CONVOLUTION_BACKWARD,
    CORE__BATCH_LAYER_NORM,
    CORE__BATCH_LAYER_NORM_BACKWARD,
    CORE__BATCH_GROUP_NORM,
    CORE__BATCH_GROUP_NORM_BACKWARD,
    CORE__BATCH_BATCH_NORM,
    CORE__BATCH_BATCH_NORM_BACKWARD,
    CORE__BATCH_NLL_LOSS,
    CORE__BATCH_NLL_LOSS_BACKWARD,
    CORE__BATCH_ATTENTION,
    CORE__BATCH_ATTENTION_BACKWARD,
    CORE__BATCH_RULES
};

enum {
    CORE__BATCH_RANDOM = 1u << 7, /* core__batch_row.rank: draws numbers */
    CORE__BATCH_LIST = 32         /* tensors of lists, without an allocation */
};

/* Generated, by operator; a variant has the row of its functional operator. */
typedef struct core__batch_row {
    uint8_t rule;
    uint8_t rank;  /* merge: dimensions of one sample; and a flag */
    uint16_t dims; /* positions of arguments that count dimensions */
} core__batch_row;

extern const core__batch_row core__batch_rows[];

/* One call.  args: as the program passed them, with batched tensors. */
typedef struct core__batch {
    core_call *call;
    core_operator *op;
    core__batching *batching;
    const core_value *args;
    core_value *results;
    uint32_t nargs, nresults;
    const core__batch_row *row;
    /* While every sample of a loop draws the same random numbers: the state to
     * which the generator returns before each. */
    bool restarts;
    core_generator *generator;
    uint64_t seed, offset;
    core__scope scope; /* owns the tensors that a rule makes */
} core__batch;

/* A tensor argument as seen outside of the call. */
typedef struct core__operand {
    core_tensor *tensor; /* borrowed; NULL: absent */
    bool mapped;
    uint32_t dim;  /* of the samples, if it is mapped */
    uint32_t ndim; /* without it */
} core__operand;

typedef core_status (*core__batch_rule)(core__batch *batch);

/* ------------------------------------------------------------- layer.c -- */

core_status core__batched_layer(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults);
core_status core__batch_rule_layer(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults);

/* ----------------------------------------------------------- operand.c -- */

core__operand core__batch_operand_of(const core__batch *batch,
                                     core_tensor *tensor);
/* The tensor argument at a position; `tensor` is NULL if it is none. */
core__operand core__batch_operand(const core__batch *batch, uint32_t position);
/* The samples in dimension 0, if it is mapped. */
core_tensor *core__batch_front(core__batch *batch, const core__operand *o);
/* The same; one that is not mapped is expanded. */
core_tensor *core__batch_full(core__batch *batch, const core__operand *o);
/* The samples in dimension 0 and after it as many dimensions as `ndim`; a
 * tensor that is not mapped is left alone, as it broadcasts. */
core_tensor *core__batch_padded(core__batch *batch, const core__operand *o,
                                uint32_t ndim);
/* Each sample in one dimension: [samples, elements]; one that is not mapped is
 * expanded. */
core_tensor *core__batch_as_rows(core__batch *batch, const core__operand *o);
/* From a dimension of one sample, perhaps negative, to that of all. */
core_status core__batch_shift(const core__batch *batch, int64_t *dim,
                              uint32_t ndim);
/* Samples and the next dimension in one. */
core_tensor *core__batch_merged(core__batch *batch, core_tensor *full);
/* The reverse, for a tensor whose dimension `dim` has both. */
core_tensor *core__batch_split(core__batch *batch, core_tensor *tensor,
                               int64_t dim);
bool core__batch_any_mapped(const core__batch *batch);
/* How many tensors the lists among the arguments have. */
uint32_t core__batch_listed(const core__batch *batch);

/* Makes a tensor with the samples in dimension dim, or CORE__BATCH_NONE, result
 * i. */
core_status core__batch_result(core__batch *batch, uint32_t i,
                               core_tensor *tensor, uint32_t dim);
/* Calls op with these arguments, outside, and makes its results, with the
 * samples in dimension dim, those of the call. */
core_status core__batch_invoke(core__batch *batch, core_operator *op,
                               const core_value *args, uint32_t nargs,
                               uint32_t dim);
/* The same, and the results go to values; owned by the caller. */
core_status core__batch_compute(core__batch *batch, core_operator *op,
                                const core_value *args, uint32_t nargs,
                                core_value *values, uint32_t nvalues);
/* Wraps and releases values, which hold nresults results of the call. */
core_status core__batch_results(core__batch *batch, core_value *values,
                                uint32_t dim);

/* For messages: an error of this operator inside core_vmap. */
core_status core__batch_refuse(const core__batch *batch, const char *reason);
/* Makes sure that the argument, which the operator changes, is mapped; of a
 * list, that each tensor is. */
core_status core__batch_make_mapped(core__batch *batch, uint32_t position);
/* The same for all arguments that the call writes. */
core_status core__batch_make_written_mapped(core__batch *batch);

/* -------------------------------------------------------------- rules -- */

/* Mask of the arguments that the call writes. */
uint32_t core__batch_written(const core__batch *batch);

core_status core__batch_loop(core__batch *batch);
/* The same for an error that a rule is to describe, without counting it. */
core_status core__batch_each(core__batch *batch);
core_status core__batch_elementwise(core__batch *batch);
core_status core__batch_reduction(core__batch *batch);
core_status core__batch_dims(core__batch *batch);
core_status core__batch_leading(core__batch *batch);
core_status core__batch_pointwise(core__batch *batch);
core_status core__batch_merge(core__batch *batch);
core_status core__batch_same(core__batch *batch);
core_status core__batch_factory(core__batch *batch);
core_status core__batch_like(core__batch *batch);
core_status core__batch_copy(core__batch *batch);
core_status core__batch_view(core__batch *batch);
core_status core__batch_expand(core__batch *batch);
core_status core__batch_permute(core__batch *batch);
core_status core__batch_t(core__batch *batch);
core_status core__batch_squeeze(core__batch *batch);
core_status core__batch_as_strided(core__batch *batch);
core_status core__batch_cat(core__batch *batch);
core_status core__batch_roll(core__batch *batch);
core_status core__batch_median(core__batch *batch);
core_status core__batch_mm(core__batch *batch);
core_status core__batch_bmm(core__batch *batch);
core_status core__batch_mv(core__batch *batch);
core_status core__batch_dot(core__batch *batch);
core_status core__batch_addmm(core__batch *batch);
core_status core__batch_addbmm(core__batch *batch);
core_status core__batch_baddbmm(core__batch *batch);
core_status core__batch_addmv(core__batch *batch);
core_status core__batch_addr(core__batch *batch);
core_status core__batch_index(core__batch *batch);
core_status core__batch_index_put(core__batch *batch);
core_status core__batch_index_select(core__batch *batch);
core_status core__batch_index_add(core__batch *batch);
core_status core__batch_index_write(core__batch *batch);
core_status core__batch_take(core__batch *batch);
core_status core__batch_search(core__batch *batch);
core_status core__batch_embedding(core__batch *batch);
core_status core__batch_embedding_backward(core__batch *batch);
core_status core__batch_convolution(core__batch *batch);
core_status core__batch_convolution_backward(core__batch *batch);
core_status core__batch_layer_norm(core__batch *batch);
core_status core__batch_layer_norm_backward(core__batch *batch);
core_status core__batch_group_norm(core__batch *batch);
core_status core__batch_group_norm_backward(core__batch *batch);
core_status core__batch_batch_norm(core__batch *batch);
core_status core__batch_batch_norm_backward(core__batch *batch);
core_status core__batch_nll_loss(core__batch *batch);
core_status core__batch_nll_loss_backward(core__batch *batch);
core_status core__batch_attention(core__batch *batch);
core_status core__batch_attention_backward(core__batch *batch);

/* The rule of the operator's functional form; mapped: an operand is. */
core_status core__batch_functional(core__batch *batch, bool mapped);
/* A view operator in place. */
core_status core__batch_relayout(core__batch *batch);
/* Whether the call draws random numbers. */
bool core__batch_draws(const core_operator *op, const core_value *args);
core_status core__batch_random_same(core__batch *batch);

#endif
