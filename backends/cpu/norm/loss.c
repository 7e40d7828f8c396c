/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The negative log likelihood of classes in dimension 1 (0 without a batch).
 * Positions are the remaining dimensions of self, with one target class index
 * each. */

#include "tables.h"
#include "view.h"

enum { REDUCE_NONE = 0, REDUCE_MEAN = 1, REDUCE_SUM = 2 };

typedef struct nll {
    core_call *call;
    const core_view *view; /* of self, where it is read element by element */
    cpu_dense self, target, weight;
    cpu_split shape; /* outer, classes, inner */
    int64_t reduction, ignore;
    bool per_position; /* one loss per position, no reduction */
} nll;

static core_status nll_open(nll *job, const core_view *self,
                            const core_value *args, core_dtype dtype)
{
    core_status status;

    job->shape = cpu_split_at(self, self->ndim > 1 ? 1 : 0);
    job->reduction = cpu_int(&args[2]);
    job->ignore = cpu_int(&args[3]);
    status = cpu_dense_read(cpu_view(&args[0]), CORE_I64, &job->target);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[1]), dtype, &job->weight);
    return status;
}

static void nll_close(nll *job)
{
    cpu_dense_close(&job->self);
    cpu_dense_close(&job->target);
    cpu_dense_close(&job->weight);
}

static core_status nll_check(const nll *job)
{
    const int64_t *target = job->target.data;
    int64_t positions = job->shape.outer * job->shape.inner;

    for (int64_t i = 0; i < positions; i++)
        if ((uint64_t)target[i] >= (uint64_t)job->shape.size &&
            target[i] != job->ignore)
            return cpu_index_error(job->call, "target", target[i],
                                   job->shape.size,
                                   job->shape.outer > 1 ? 1 : 0);
    return CORE_OK;
}

/* The offset in self of the target's class of a position; -1: ignored. */
static inline int64_t nll_class_at(const nll *job, int64_t position)
{
    int64_t target = ((const int64_t *)job->target.data)[position];
    int64_t inner = job->shape.inner;

    if (target == job->ignore)
        return -1;
    return (position / inner * job->shape.size + target) * inner +
           position % inner;
}

/* The same in bytes, for a view. */
static inline const char *nll_address(const nll *job, int64_t position)
{
    uint32_t dim = job->view->ndim > 1 ? 1 : 0;
    int64_t target = ((const int64_t *)job->target.data)[position];

    return (const char *)cpu_line_address(job->view, dim, position) +
           target * cpu_line_stride(job->view, dim) *
               cpu_item_size(job->view->dtype);
}

#define NLL(NAME, TYPE)                                                        \
    static TYPE nll_element_##NAME(const nll *job, int64_t position,           \
                                   int64_t at)                                 \
    {                                                                          \
        TYPE element;                                                          \
        if (!job->view)                                                        \
            return ((const TYPE *)job->self.data)[at];                         \
        if (job->view->dtype == CORE_BF16)                                     \
            return (TYPE)math_f32_of_bf16(                                     \
                *(const uint16_t *)nll_address(job, position));                \
        cpu_get_##NAME(&element, job->view->dtype, nll_address(job, position), \
                       1, 1);                                                  \
        return element;                                                        \
    }                                                                          \
    static TYPE nll_weight_##NAME(const nll *job, int64_t position)            \
    {                                                                          \
        const TYPE *weight = job->weight.data;                                 \
        const int64_t *target = job->target.data;                              \
        return weight ? weight[target[position]] : 1;                          \
    }                                                                          \
    static void nll_forward_##NAME(const nll *job, TYPE *output, TYPE *total)  \
    {                                                                          \
        int64_t positions = job->shape.outer * job->shape.inner;               \
        bool each = job->reduction == REDUCE_NONE;                             \
        double sum = 0, weights = 0;                                           \
        for (int64_t i = 0; i < positions; i++) {                              \
            int64_t at = nll_class_at(job, i);                                 \
            TYPE w = at < 0 ? 0 : nll_weight_##NAME(job, i);                   \
            TYPE loss = at < 0 ? 0 : -w * nll_element_##NAME(job, i, at);      \
            if (each)                                                          \
                output[i] = loss;                                              \
            sum += loss;                                                       \
            weights += w;                                                      \
        }                                                                      \
        *total = job->per_position ? 0 : (TYPE)weights;                        \
        if (!each)                                                             \
            *output =                                                          \
                (TYPE)(job->reduction == REDUCE_MEAN ? sum / weights : sum);   \
    }                                                                          \
    static void nll_backward_##NAME(const nll *job, const TYPE *grad,          \
                                    const TYPE *total, const cpu_dense *out,   \
                                    int64_t numel)                             \
    {                                                                          \
        int64_t size = cpu_item_size(out->dtype);                              \
        int64_t positions = job->shape.outer * job->shape.inner;               \
        bool each = job->reduction == REDUCE_NONE;                             \
        TYPE factor = job->reduction == REDUCE_MEAN ? *total : 1;              \
        memset(out->data, 0, (size_t)(numel * size));                          \
        for (int64_t i = 0; i < positions; i++) {                              \
            int64_t at = nll_class_at(job, i);                                 \
            TYPE value;                                                        \
            if (at < 0)                                                        \
                continue;                                                      \
            value = -nll_weight_##NAME(job, i) * grad[each ? i : 0] / factor;  \
            if (size == (int64_t)sizeof(TYPE))                                 \
                ((TYPE *)out->data)[at] = value;                               \
            else                                                               \
                cpu_put_##NAME(out->dtype, (char *)out->data + at * size, 1,   \
                               &value, 1);                                     \
        }                                                                      \
    }
CPU_COMPUTE_FLOATS(NLL)

/* nll_loss_forward(self, target, weight?, reduction, ignore_index)
 * -> (output, total_weight) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    core_dtype dtype = cpu_compute_dtype(self->dtype);
    nll job = {.call = call};
    cpu_dense output = {0}, total = {0};
    core_status status = CORE_OK;

    (void)nargs;
    (void)nresults;
    /* One class of each position is needed, so self is not converted. */
    if (self->dtype != dtype || !(self->flags & CORE_VIEW_CONTIGUOUS))
        job.view = self;
    else
        status = cpu_dense_read(self, dtype, &job.self);
    if (status == CORE_OK)
        status = nll_open(&job, self, &args[1], dtype);
    job.per_position = job.reduction == REDUCE_NONE && self->ndim > 1;
    if (status == CORE_OK)
        status = nll_check(&job);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), dtype, &output);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), dtype, &total);
    if (status != CORE_OK)
        goto done;
    if (dtype == CORE_F32)
        nll_forward_f32(&job, output.data, total.data);
    else
        nll_forward_f64(&job, output.data, total.data);
    cpu_dense_write(&output);
    cpu_dense_write(&total);
done:
    cpu_dense_close(&output);
    cpu_dense_close(&total);
    nll_close(&job);
    return status;
}

/* nll_loss_backward(grad_output, self, target, weight?, reduction,
 * ignore_index, total_weight) -> grad_self */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *self = cpu_view(&args[1]), *result = cpu_view(&results[0]);
    core_dtype dtype = cpu_compute_dtype(self->dtype);
    nll job = {.call = call};
    cpu_dense grad = {0}, total = {0}, out = {0};
    core_status status = nll_open(&job, self, &args[2], dtype);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = nll_check(&job);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[0]), dtype, &grad);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[6]), dtype, &total);
    if (status == CORE_OK)
        status = cpu_dense_open(
            result, cpu_are_halves(result, result) ? result->dtype : dtype,
            &out);
    if (status != CORE_OK)
        goto done;
    if (dtype == CORE_F32)
        nll_backward_f32(&job, grad.data, total.data, &out, self->numel);
    else
        nll_backward_f64(&job, grad.data, total.data, &out, self->numel);
    cpu_dense_write(&out);
done:
    cpu_dense_close(&grad);
    cpu_dense_close(&total);
    cpu_dense_close(&out);
    nll_close(&job);
    return status;
}

#define FORWARD                                                     \
    {                                                               \
        CPU_FLOATS, CPU_INDICES, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS \
    }
#define BACKWARD                                                     \
    {                                                                \
        CPU_FLOATS, CPU_FLOATS, CPU_INDICES, CPU_FLOATS, CPU_FLOATS, \
            CPU_FLOATS                                               \
    }

static const cpu_kernel kernels[] = {
    {"nll_loss_forward", launch_forward, NULL, FORWARD, 0},
    {"nll_loss_backward", launch_backward, NULL, BACKWARD, 0},
    {"nll_loss2d_forward", launch_forward, NULL, FORWARD, 0},
    {"nll_loss2d_backward", launch_backward, NULL, BACKWARD, 0},
};

const cpu_kernel_table cpu_loss_kernels = {kernels,
                                           sizeof kernels / sizeof kernels[0]};
