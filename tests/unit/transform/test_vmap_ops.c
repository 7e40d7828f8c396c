/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_vmap of every operator that has samples equals a loop over the samples:
 * all arguments mapped in the first or the last dimension, only the first one,
 * and all but the first one; its results, and the derivatives that core_vjp
 * computes inside. */

#include "support/samples.h"

#include "dispatch/operator.h"
#include "transform/batch.h"

#include <libcore/device.h>
#include <libcore/functional.h>
#include <libcore/random.h>
#include <libcore/transform.h>

#include <math.h>

enum { COPIES = 3, FLAT = 32, OUTPUTS = 32 };

typedef enum pattern {
    FIRST_DIM,
    LAST_DIM,
    FIRST_ONLY,
    REST,
    PATTERNS
} pattern;

/* A call whose tensors are the inputs of a function. */
typedef struct op_call {
    const sample *sample;
    arguments a;
    bool in_place;
    bool gradients; /* the function returns those of its first output */
    size_t ninputs;
} op_call;

/* ---------------------------------------------------------------- inputs -- */

/* The tensors among the arguments. */
static size_t flatten(arguments *a, core_tensor ***slots)
{
    size_t count = 0;

    for (uint32_t i = 0; i < a->count; i++) {
        core_value *value = &a->values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            slots[count++] = &value->u.tensor;
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
            if (a->lists[i][k])
                slots[count++] = &a->lists[i][k];
    }
    ck_assert_uint_lt(count, FLAT);
    return count;
}

/* Other elements that the operator accepts as well: the same in reverse, and
 * then the first ones again. */
static core_tensor *variant_of(core_tensor *x, int copy)
{
    int64_t dims[CORE_MAX_NDIM];
    uint32_t ndim = core_tensor_ndim(x);

    for (uint32_t i = 0; i < ndim; i++)
        dims[i] = i;
    if (copy != 1 || core_tensor_dtype(x) == CORE_I32 ||
        core_tensor_dtype(x) == CORE_I8)
        return x;
    return CALL(flip, x, dims, ndim);
}

/* -------------------------------------------------------------- function -- */

static void flatten_results(const core_value *results, uint32_t nresults,
                            core_tensor **outputs, size_t *noutputs)
{
    size_t count = 0;

    for (uint32_t i = 0; i < nresults; i++) {
        if (results[i].tag == CORE_VALUE_TENSOR)
            outputs[count++] = results[i].u.tensor;
        if (results[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < results[i].count; k++)
            outputs[count++] = core_tensor_retain(results[i].u.tensors[k]);
        core_value list = results[i];

        core_value_release(&list);
    }
    *noutputs = count;
}

static core_status call_op(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    op_call *c = context;
    arguments a = c->a;
    core_tensor **slots[FLAT], *clone = NULL;
    core_value results[RESULTS] = {0};
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < a.count; i++)
        if (a.values[i].tag == CORE_VALUE_TENSOR_LIST)
            a.values[i].u.tensors = a.lists[i];
    ck_assert_uint_eq(flatten(&a, slots), ninputs);
    for (size_t i = 0; i < ninputs; i++)
        *slots[i] = inputs[i];
    if (c->in_place) {
        status = core_clone(inputs[0], -1, &clone);
        *slots[0] = clone;
    }
    if (status == CORE_OK)
        status = core_op_call(a.op, a.values, a.count, results, RESULTS);
    if (status == CORE_OK)
        flatten_results(results, RESULTS, outputs, noutputs);
    core_tensor_release(clone);
    return status;
}

static core_status floats_of(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    core_status status = call_op(context, inputs, ninputs, outputs, noutputs);

    if (status != CORE_OK || *noutputs == 0)
        return status;
    for (size_t i = 1; i < *noutputs; i++) {
        core_tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    *noutputs = 1;
    return status;
}

/* The gradients of the sum of the first output's squares. */
static core_status gradients_of(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    core_tensor *first[OUTPUTS] = {NULL}, *seed = NULL;
    core_derivative d = {.struct_size = sizeof d,
                         .function = floats_of,
                         .context = context,
                         .inputs = inputs,
                         .ninputs = ninputs};
    core_tensor *gradients[FLAT] = {NULL}, *vectors[OUTPUTS] = {NULL};
    size_t count = OUTPUTS, stored = 0;
    core_status status = floats_of(context, inputs, ninputs, first, &count);

    if (status == CORE_OK)
        status = core_cos(first[0], &seed);
    vectors[0] = seed;
    count = OUTPUTS;
    if (status == CORE_OK)
        status = core_vjp(&d, vectors, NULL, &count, gradients);
    for (size_t i = 0; status == CORE_OK && i < ninputs; i++)
        if (gradients[i])
            outputs[stored++] = gradients[i];
    *noutputs = stored;
    core_tensor_release(first[0]);
    core_tensor_release(seed);
    return status;
}

/* ------------------------------------------------------------ comparison -- */

static bool nearly(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) ||
           fabs(a - b) <= 1e-8 * (1 + fabs(a) + fabs(b));
}

static double *elements(core_tensor *tensor)
{
    size_t numel = (size_t)core_tensor_numel(tensor);
    double *values = malloc((numel + 1) * sizeof *values);
    core_tensor *wide;

    OK(core_to_copy(tensor, CORE_F64, NULL, false, CORE_FORMAT_CONTIGUOUS,
                    &wide));
    OK(core_tensor_read(wide, values, numel * sizeof *values));
    core_tensor_release(wide);
    return values;
}

static void compare(const sample *s, pattern p, int copy, size_t output,
                    core_tensor *want, core_tensor *got)
{
    double *a, *b;

    ck_assert_msg(core_tensor_ndim(want) == core_tensor_ndim(got) &&
                      core_tensor_dtype(want) == core_tensor_dtype(got) &&
                      memcmp(core_tensor_sizes(want), core_tensor_sizes(got),
                             core_tensor_ndim(want) * sizeof(int64_t)) == 0,
                  "%s(%s), pattern %d: output %zu has other sizes or another "
                  "dtype",
                  s->op, s->words, p, output);
    if (strstr(s->op, "empty") || strstr(s->op, "resize"))
        return;
    a = elements(want);
    b = elements(got);
    for (int64_t i = 0; i < core_tensor_numel(want); i++)
        ck_assert_msg(nearly(a[i], b[i]),
                      "%s(%s), pattern %d, sample %d: output %zu has %.17g at "
                      "%lld instead of %.17g",
                      s->op, s->words, p, copy, output, b[i], (long long)i,
                      a[i]);
    free(a);
    free(b);
}

/* ------------------------------------------------------------------- runs -- */

static bool maps(pattern p, size_t i)
{
    return p == FIRST_ONLY ? i == 0 : p == REST ? i > 0 : true;
}

/* The inputs of sample `copy`. */
static void inputs_of(const op_call *c, pattern p, int copy,
                      core_tensor **inputs)
{
    core_tensor **slots[FLAT];
    arguments *a = (arguments *)(uintptr_t)&c->a;

    flatten(a, slots);
    for (size_t i = 0; i < c->ninputs; i++)
        inputs[i] = maps(p, i) ? variant_of(*slots[i], copy) : *slots[i];
}

static core_status batched(op_call *c, core_tensor_function function, pattern p,
                           core_tensor **outputs, size_t noutputs)
{
    core_tensor *copies[COPIES][FLAT], *inputs[FLAT], *parts[COPIES];
    int64_t dims[FLAT];
    core_vmap_options options = {.struct_size = sizeof options,
                                 .randomness = CORE_VMAP_RANDOM_SAME,
                                 .in_dims = dims};

    for (int k = 0; k < COPIES; k++)
        inputs_of(c, p, k, copies[k]);
    for (size_t i = 0; i < c->ninputs; i++) {
        dims[i] = maps(p, i) ? p == LAST_DIM ? -1 : 0 : CORE_VMAP_NOT_MAPPED;
        inputs[i] = copies[0][i];
        for (int k = 0; k < COPIES; k++)
            parts[k] = copies[k][i];
        if (maps(p, i))
            inputs[i] = CALL(stack, parts, COPIES, dims[i]);
    }
    core_seed(7);
    return core_vmap(function, c, &options, inputs, c->ninputs, outputs,
                     noutputs);
}

/* Calls that core_vmap refuses, because they read elements, because the sizes of
 * their results depend on them, or because each sample would change one tensor
 * in place. */
typedef struct refused {
    const char *op;    /* or how its name begins */
    const char *words; /* NULL: all */
    bool derivatives;  /* only those */
    int only;          /* the pattern; PATTERNS: all */
} refused;

static const refused refusals[] = {
    {"index.Tensor", "m:", false, PATTERNS},
    {"masked_scatter", NULL, true, PATTERNS},
    {"_masked_scatter", NULL, true, PATTERNS},
    {"_embedding_bag", NULL, true, PATTERNS},
    {"embedding_bag", NULL, true, PATTERNS},
    {"instance_norm", "b:1", false, FIRST_ONLY},
    {"_batch_norm_with_update", NULL, false, FIRST_ONLY},
    {"_native_batch_norm_legit", NULL, false, FIRST_ONLY},
    {"batch_norm_update_stats", NULL, false, FIRST_ONLY},
    {"native_batch_norm", "b:1", false, FIRST_ONLY},
    {"rrelu_with_noise", NULL, false, FIRST_ONLY},
    {"cat.out", NULL, false, FIRST_ONLY},
    {"mm.out", NULL, false, FIRST_ONLY},
    {"adaptive_avg_pool3d_backward.grad_input", NULL, false, FIRST_ONLY},
};

static bool may_be_refused(const op_call *c, pattern p)
{
    if (core__batch_rows[core__operator_base(c->a.op)->id].rule ==
        CORE__BATCH_REFUSE)
        return true;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refused *r = &refusals[i];

        if (strncmp(c->sample->op, r->op, strlen(r->op)) == 0 &&
            (!r->words || strstr(c->sample->words, r->words)) &&
            (!r->derivatives || c->gradients) &&
            (r->only == PATTERNS || r->only == (int)p))
            return true;
    }
    return false;
}

/* Operators that compute all samples at once: one of them if the weight is not
 * mapped, the rest in any case. */
static bool has_rule(const sample *s, pattern p)
{
    static const char *const names[] = {
        "nll_loss_",
        "grid_sampler",
        "searchsorted.Tensor",
        "bucketize",
        "convolution",
        "native_layer_norm",
        "native_batch",
        "native_group_norm",
        "embedding_dense_backward",
        "gather",
        "scatter",
        "cumsum",
        "sort",
        "topk",
        "max_pool",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(s->op, names[i], strlen(names[i])) == 0)
            return true;
    return p == FIRST_ONLY && strncmp(s->op, "nll_loss2d", 10) == 0;
}

static int compared; /* calls, neither refused nor without a derivative */

static void run(op_call *c, core_tensor_function function, pattern p)
{
    core_tensor *want[COPIES][OUTPUTS], *got[OUTPUTS], *inputs[FLAT];
    uint64_t loops;
    size_t count = 0;
    core_status status;

    for (int k = 0; k < COPIES; k++) {
        inputs_of(c, p, k, inputs);
        count = OUTPUTS;
        core_seed(7);
        status = function(c, inputs, c->ninputs, want[k], &count);
        if (status != CORE_OK && c->gradients)
            return; /* not what the samples promise: no derivative */
        ck_assert_msg(status == CORE_OK, "%s(%s): %s", c->sample->op,
                      c->sample->words, core_error_message());
        for (size_t i = 0; i < count; i++)
            keep(want[k][i]);
    }
    if (count == 0)
        return;
    loops = core_vmap_loops(NULL);
    status = batched(c, function, p, got, count);
    if (status == CORE_ERROR_UNSUPPORTED && may_be_refused(c, p))
        return;
    ck_assert_msg(status == CORE_OK, "%s(%s), pattern %d: %s", c->sample->op,
                  c->sample->words, p, core_error_message());
    compared++;
    if (has_rule(c->sample, p))
        ck_assert_msg(core_vmap_loops(NULL) == loops,
                      "%s(%s), pattern %d: by a loop", c->sample->op,
                      c->sample->words, p);
    for (size_t i = 0; i < count; i++) {
        keep(got[i]);
        for (int k = 0; k < COPIES; k++)
            compare(c->sample, p, k, i, want[k][i], CALL(select, got[i], 0, k));
    }
}

/* false: there is nothing to map. */
static bool prepare(op_call *c, const sample *s, pattern p)
{
    core_tensor **slots[FLAT];

    memset(c, 0, sizeof *c);
    c->sample = s;
    parse_sample(&c->a, s, s->words);
    make_positive(&c->a);
    c->in_place = is_in_place(s);
    c->ninputs = flatten(&c->a, slots);
    for (size_t i = 0; i < c->ninputs; i++)
        *slots[i] = CALL(detach, *slots[i]);
    /* Their results depend on the strides. */
    if (p == LAST_DIM &&
        (strstr(s->op, "as_strided") || strstr(s->op, "_reshape_alias") ||
         strstr(s->op, "_linalg_det") || strstr(s->op, "_linalg_slogdet")))
        return false;
    return c->ninputs > (p == REST) && !(p == REST && c->in_place) &&
           !(p == FIRST_ONLY && c->ninputs == 1);
}

static bool is_excluded(const sample *s);

START_TEST(results_equal_those_of_a_loop)
{
    op_call c;

    for (int i = 0; i < SAMPLES; i++) {
        if (!is_excluded(&samples[i]) && prepare(&c, &samples[i], _i))
            run(&c, call_op, _i);
        drop_all();
    }
    ck_assert_int_ge(compared, _i < FIRST_ONLY ? 1000 : 450);
}
END_TEST

START_TEST(derivatives_equal_those_of_a_loop)
{
    op_call c;

    for (int i = 0; i < SAMPLES; i++) {
        if (samples[i].flags & (SAMPLE_FORWARD_ONLY | SAMPLE_NO_GRADIENT))
            continue;
        if (!is_excluded(&samples[i]) && prepare(&c, &samples[i], _i)) {
            c.gradients = true;
            run(&c, gradients_of, _i);
        }
        drop_all();
    }
    ck_assert_int_ge(compared, _i < FIRST_ONLY ? 600 : 250);
}
END_TEST

/* They change their arguments as lists, or more than one; or lengths must be
 * sorted, which those of the other samples are not. */
static bool is_excluded(const sample *s)
{
    static const char *const names[] = {
        "_fused_",       "_amp_foreach",  "_cummax_helper", "_cummin_helper",
        "_pack_padded_", "_pad_packed_",  "lstm.data",      "gru.data",
        "rnn_tanh.data", "rnn_relu.data",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(s->op, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

int main(void)
{
    const suite_loop loops[] = {
        {results_equal_those_of_a_loop, 0, PATTERNS},
        {derivatives_equal_those_of_a_loop, 0, PATTERNS},
    };
    const test_suite suite = {
        .name = "transform/vmap_ops", .teardown = drop_all, SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
