/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ctc.c: the loss of connectionist temporal classification and its gradient
 * (Graves et al. 2006): the probability of all paths through the classes that
 * read as the target once blanks and repetitions are removed.
 *
 * Positions of a path are the target with a blank before, between and after its
 * labels.  alpha[t, s] is the logarithm of the probability of all beginnings
 * that are at position s at time t, beta[t, s] that of all endings; both
 * include the class at t.  Each sequence is computed by one thread, in f64. */

#include <math.h>
#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

typedef struct ctc {
    core_call *call;
    int64_t times, sequences, classes, positions; /* positions of log_alpha */
    int64_t blank, row; /* row: labels of a sequence; 0: one after the other */
    const int64_t *inputs, *lengths;
    bool zero_infinity;
    cpu_dense probs, targets, loss, alpha, grad, result;
    int64_t *starts; /* of each sequence in targets */
    double *beta;    /* two rows of positions for each sequence */
} ctc;

static void ctc_close(ctc *job)
{
    cpu_dense_close(&job->probs);
    cpu_dense_close(&job->targets);
    cpu_dense_close(&job->loss);
    cpu_dense_close(&job->alpha);
    cpu_dense_close(&job->grad);
    cpu_dense_close(&job->result);
    free(job->starts);
    free(job->beta);
}

static core_status label_error(const ctc *job, int64_t label)
{
    core_string name = cpu_operator(job->call);

    return cpu_error(CORE_ERROR_INDEX,
                     "%.*s: targets contains %lld; it must be from 0 to %lld, "
                     "the last class of log_probs",
                     (int)name.size, name.data, (long long)label,
                     (long long)job->classes - 1);
}

/* args: log_probs, targets, input_lengths, target_lengths */
static core_status ctc_open(ctc *job, core_call *call, const core_value *args)
{
    const core_view *probs = cpu_view(&args[0]), *targets = cpu_view(&args[1]);
    core_status status;
    int64_t start = 0;

    job->call = call;
    job->times = probs->sizes[0];
    job->sequences = probs->sizes[1];
    job->classes = probs->sizes[2];
    job->inputs = args[2].u.ints;
    job->lengths = args[3].u.ints;
    job->row = targets->ndim == 2 ? targets->sizes[1] : 0;
    job->starts = cpu_allocate(job->sequences, sizeof *job->starts);
    if (!job->starts)
        return CORE_ERROR_OUT_OF_MEMORY;
    status =
        cpu_dense_read(probs, cpu_compute_dtype(probs->dtype), &job->probs);
    if (status == CORE_OK)
        status = cpu_dense_read(targets, CORE_I64, &job->targets);
    for (int64_t n = 0; status == CORE_OK && n < job->sequences; n++) {
        const int64_t *labels;

        job->starts[n] = targets->ndim == 2 ? n * job->row : start;
        start += job->lengths[n];
        labels = (const int64_t *)job->targets.data + job->starts[n];
        for (int64_t i = 0; status == CORE_OK && i < job->lengths[n]; i++)
            if ((uint64_t)labels[i] >= (uint64_t)job->classes)
                status = label_error(job, labels[i]);
    }
    return status;
}

static int64_t class_of(const ctc *job, int64_t n, int64_t s)
{
    const int64_t *labels = (const int64_t *)job->targets.data + job->starts[n];

    return s % 2 ? labels[s / 2] : job->blank;
}

/* Whether a path may step over the blank between positions s - 2 and s. */
static bool may_skip(const ctc *job, int64_t n, int64_t s)
{
    return s % 2 && s >= 2 && class_of(job, n, s) != class_of(job, n, s - 2);
}

/* log(exp(a) + exp(b) + exp(c)), NaN if one of them is. */
static double log_sum(double a, double b, double c)
{
    double most = fmax(a, fmax(b, c));

    if (most == -INFINITY || isnan(a) || isnan(b) || isnan(c))
        return a + b + c;
    return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

/* The log_prob of class c at time t. */
static double prob_at(const ctc *job, int64_t t, int64_t n, int64_t c)
{
    int64_t at = (t * job->sequences + n) * job->classes + c;

    return job->probs.dtype == CORE_F64
               ? ((const double *)job->probs.data)[at]
               : (double)((const float *)job->probs.data)[at];
}

/* --------------------------------------------------------------- forward -- */

static void forward_task(void *context, int64_t begin, int64_t end)
{
    const ctc *job = context;

    for (int64_t n = begin; n < end; n++) {
        double *alpha =
            (double *)job->alpha.data + n * job->times * job->positions;
        int64_t count = 2 * job->lengths[n] + 1, last = job->inputs[n] - 1;
        double loss;

        for (int64_t i = 0; i < job->times * job->positions; i++)
            alpha[i] = -INFINITY;
        if (last < 0) {
            ((double *)job->loss.data)[n] = count == 1 ? 0 : INFINITY;
            continue;
        }
        for (int64_t s = 0; s < count && s < 2; s++)
            alpha[s] = prob_at(job, 0, n, class_of(job, n, s));
        for (int64_t t = 1; t <= last; t++) {
            const double *from = alpha + (t - 1) * job->positions;
            double *to = alpha + t * job->positions;

            for (int64_t s = 0; s < count; s++)
                to[s] = log_sum(from[s], s >= 1 ? from[s - 1] : -INFINITY,
                                may_skip(job, n, s) ? from[s - 2] : -INFINITY) +
                        prob_at(job, t, n, class_of(job, n, s));
        }
        alpha += last * job->positions;
        loss = -log_sum(alpha[count - 1],
                        count > 1 ? alpha[count - 2] : -INFINITY, -INFINITY);
        ((double *)job->loss.data)[n] = loss;
    }
}

/* _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank,
 * zero_infinity) -> (neg_log_likelihood, log_alpha) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    ctc job = {.blank = cpu_int(&args[4])};
    core_status status = ctc_open(&job, call, args);

    (void)nargs;
    (void)nresults;
    job.positions = cpu_view(&results[1])->sizes[2];
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &job.loss);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_F64, &job.alpha);
    if (status == CORE_OK) {
        cpu_parallel_for(job.sequences, 1, forward_task, &job);
        cpu_dense_write(&job.loss);
        cpu_dense_write(&job.alpha);
    }
    ctc_close(&job);
    return status;
}

/* -------------------------------------------------------------- backward -- */

/* Adds alpha + beta of each position at time t to the sum of its class. */
static void classes_add(const ctc *job, int64_t n, int64_t t, int64_t count,
                        const double *beta, double *sums)
{
    const double *alpha =
        (const double *)job->alpha.data + (n * job->times + t) * job->positions;

    for (int64_t s = 0; s < count; s++) {
        double *sum = &sums[class_of(job, n, s)];

        *sum = log_sum(*sum, alpha[s] + beta[s], -INFINITY);
    }
}

/* beta at time t, from that at t + 1, which is NULL at the end. */
static void beta_step(const ctc *job, int64_t n, int64_t t, int64_t count,
                      const double *next, double *to)
{
    for (int64_t s = 0; s < count; s++) {
        if (!next)
            to[s] = s + 2 >= count ? 0 : -INFINITY;
        else
            to[s] =
                log_sum(next[s], s + 1 < count ? next[s + 1] : -INFINITY,
                        s + 2 < count && may_skip(job, n, s + 2) ? next[s + 2]
                                                                 : -INFINITY);
        to[s] += prob_at(job, t, n, class_of(job, n, s));
    }
}

static void backward_task(void *context, int64_t begin, int64_t end)
{
    const ctc *job = context;

    for (int64_t n = begin; n < end; n++) {
        int64_t count = 2 * job->lengths[n] + 1;
        double loss = ((const double *)job->loss.data)[n];
        double g = ((const double *)job->grad.data)[n];
        double *beta = job->beta + 2 * n * job->positions;
        const double *next = NULL;

        for (int64_t t = job->times; t-- > 0;) {
            double *out = (double *)job->result.data +
                          (t * job->sequences + n) * job->classes;
            double *to = beta + t % 2 * job->positions;
            bool outside =
                t >= job->inputs[n] || (job->zero_infinity && loss == INFINITY);

            for (int64_t c = 0; c < job->classes; c++)
                out[c] = outside ? 0 : -INFINITY;
            if (outside)
                continue;
            beta_step(job, n, t, count, next, to);
            classes_add(job, n, t, count, to, out);
            /* NaN, as in PyTorch, for a class whose log_prob is -inf: its sum
             * is -inf, too. */
            for (int64_t c = 0; c < job->classes; c++) {
                double p = prob_at(job, t, n, c);

                out[c] = (exp(p) - exp(out[c] + loss - p)) * g;
            }
            next = to;
        }
    }
}

/* _ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths,
 * neg_log_likelihood, log_alpha, blank, zero_infinity) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    ctc job = {.blank = cpu_int(&args[7]),
               .zero_infinity = cpu_int(&args[8]) != 0,
               .positions = cpu_view(&args[6])->sizes[2]};
    core_status status = ctc_open(&job, call, args + 1);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        job.beta =
            cpu_allocate(2 * job.sequences * job.positions, sizeof *job.beta);
    if (status == CORE_OK && !job.beta)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[0]), CORE_F64, &job.grad);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[5]), CORE_F64, &job.loss);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[6]), CORE_F64, &job.alpha);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &job.result);
    if (status == CORE_OK) {
        cpu_parallel_for(job.sequences, 1, backward_task, &job);
        cpu_dense_write(&job.result);
    }
    ctc_close(&job);
    return status;
}

static const cpu_kernel kernels[] = {
    {"_ctc_loss",
     launch_forward,
     NULL,
     {CPU_FLOATS, CPU_INDICES, CPU_FLOATS, CPU_FLOATS},
     0},
    {"_ctc_loss_backward",
     launch_backward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_INDICES, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
};

const cpu_kernel_table cpu_ctc_kernels = {kernels,
                                          sizeof kernels / sizeof kernels[0]};
