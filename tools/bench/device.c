/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Any device (core-bench --device NAME): the host's cost of a launch,
 * memory, products, attention, training steps, and their graphs.
 *
 * GB/s count what must be read and written; the limit is a copy of as much
 * memory, by the device itself.  Sizes are too large for a GPU's caches.
 * peers/torch_device.py has the same rows. */

#include "models.h"

#include <stdio.h>

typedef struct operands {
    core_tensor *a, *b, *o;
    core_tensor *weight, *bias, *grad;
} operands;

static double copied; /* GB/s; 0: not measured */

/* In a trial run, which only checks that rows run, everything is small. */
static bool trial(void)
{
    return bench_only_checks();
}

static int64_t sized(int64_t size, int64_t small)
{
    return trial() ? small : size;
}

static void wait(void)
{
    must(core_device_synchronize(bench.device));
}

/* ------------------------------------------------------------- measuring -- */

static double timed(bench_row row, void *context, long n)
{
    double begin = bench_now();

    for (long i = 0; i < n; i++)
        row(context);
    wait();
    return bench_now() - begin;
}

/* Seconds per call, including the device's work. */
static double seconds_of(bench_row row, void *context)
{
    enum { REPEATS = 9 };
    double least = bench.min_time > 0 ? bench.min_time : 0.05;
    double values[REPEATS], time;
    long n = 1;

    timed(row, context, trial() ? 1 : 3);
    if (trial())
        return timed(row, context, 1);
    while ((time = timed(row, context, n)) < least)
        n = bench_more(n, time, least);
    for (int i = 0; i < REPEATS; i++)
        values[i] = timed(row, context, n) / (double)n;
    return bench_median(values, REPEATS);
}

/* Seconds of the host per call, while the device's queue is short. */
static double host_seconds_of(bench_row row, void *context)
{
    enum { REPEATS = 31, CALLS = 200 };
    double values[REPEATS];
    int repeats = trial() ? 1 : REPEATS;

    timed(row, context, 3);
    for (int i = 0; i < repeats; i++) {
        double begin = bench_now();

        for (int k = 0; k < CALLS; k++)
            row(context);
        values[i] = (bench_now() - begin) / CALLS;
        wait();
    }
    return bench_median(values, repeats);
}

#define GB(name, row, bytes)                                                   \
    bench_out_limit(name, 1e-9 * (double)(bytes) / seconds_of(row, x), "GB/s", \
                    copied)
#define GFLOP(name, row, flop) \
    bench_out(name, 1e-9 * (double)(flop) / seconds_of(row, x), "GFLOP/s")

/* --------------------------------------------------------------- tensors -- */

static core_tensor *uniform(const int64_t *sizes, size_t ndim, core_dtype dtype)
{
    core_tensor *tensor;

    must(core_rand(sizes, ndim, NULL, dtype, NULL, &tensor));
    return tensor;
}

static core_tensor *zeros(const int64_t *sizes, size_t ndim, core_dtype dtype)
{
    core_tensor *tensor;

    must(core_zeros(sizes, ndim, dtype, NULL, &tensor));
    return tensor;
}

static void drop(operands *x)
{
    core_tensor_release(x->a);
    core_tensor_release(x->b);
    core_tensor_release(x->o);
    core_tensor_release(x->weight);
    core_tensor_release(x->bias);
    core_tensor_release(x->grad);
    *x = (operands){0};
}

static const char *named(const char *format, const char *type)
{
    static char name[96];

    snprintf(name, sizeof name, format, type);
    return name;
}

static const struct {
    core_dtype dtype;
    const char *name;
    int64_t bytes;
} types[] = {
    {CORE_F32, "f32", 4}, {CORE_F16, "f16", 2}, {CORE_BF16, "bf16", 2}};
enum { TYPES = sizeof types / sizeof *types };

#define ROW(name, call)              \
    static void name(void *context)  \
    {                                \
        const operands *x = context; \
                                     \
        must(call);                  \
    }
#define RESULT_ROW(name, call)       \
    static void name(void *context)  \
    {                                \
        const operands *x = context; \
        core_tensor *r;              \
                                     \
        must(call);                  \
        core_tensor_release(r);      \
    }

/* -------------------------------------------------------------- launches -- */

ROW(add_out, core_add_out(x->a, x->b, core_int(1), x->o))
RESULT_ROW(add, core_add(x->a, x->b, core_int(1), &r))

static void idle(void *context)
{
    (void)context;
    wait();
}

static void launches(operands *x)
{
    const int64_t one = 1;

    x->a = uniform(&one, 1, CORE_F32);
    x->b = uniform(&one, 1, CORE_F32);
    x->o = zeros(&one, 1, CORE_F32);
    bench_out("dev.host.add1_out", host_seconds_of(add_out, x) * 1e6, "us");
    bench_out("dev.host.add1", host_seconds_of(add, x) * 1e6, "us");
    x->grad = bench_requires_grad(x->a);
    x->a = core_tensor_retain(x->grad);
    core_grad_mode_set(true);
    bench_out("dev.host.add1_grad", host_seconds_of(add, x) * 1e6, "us");
    core_grad_mode_set(false);
    bench_out("dev.add1", seconds_of(add, x) * 1e6, "us");
    bench_out("dev.wait_idle", seconds_of(idle, x) * 1e6, "us");
    drop(x);
}

/* ---------------------------------------------------------------- memory -- */

ROW(copy, core_copy_(x->o, x->a, false))
ROW(exp_out, core_exp_out(x->a, x->o))
ROW(gelu_out, core_gelu_out(x->a, "none", x->o))
ROW(softmax, core_softmax_out(x->a, -1, CORE_DTYPE_NONE, x->o))
RESULT_ROW(sum, core_sum(x->a, CORE_DTYPE_NONE, &r))
RESULT_ROW(sum_rows, core_sum_dim(x->a, (const int64_t[]){1}, 1, false,
                                  CORE_DTYPE_NONE, &r))
RESULT_ROW(sum_columns, core_sum_dim(x->a, (const int64_t[]){0}, 1, false,
                                     CORE_DTYPE_NONE, &r))

static void layer_norm(void *context)
{
    const operands *x = context;
    const int64_t columns = core_tensor_size(x->a, 1);
    core_tensor *r;

    must(core_layer_norm(x->a, &columns, 1, x->weight, x->bias, 1e-5, &r));
    core_tensor_release(r);
}

static void embed(void *context)
{
    const operands *x = context;
    core_tensor *r;

    must(core_embedding(x->a, x->b, -1, false, false, &r));
    core_tensor_release(r);
}

static void sort(void *context)
{
    const operands *x = context;
    core_tensor *values, *indices;

    must(core_sort(x->a, -1, false, &values, &indices));
    core_tensor_release(values);
    core_tensor_release(indices);
}

static void flat(operands *x)
{
    const int64_t n = sized(64 << 20, 1000);

    for (int t = 0; t < TYPES; t++) {
        double bytes = (double)(n * types[t].bytes);

        x->a = uniform(&n, 1, types[t].dtype);
        x->b = uniform(&n, 1, types[t].dtype);
        x->o = zeros(&n, 1, types[t].dtype);
        if (types[t].dtype == CORE_F32) {
            copied = 2e-9 * bytes / seconds_of(copy, x);
            bench_out("dev.copy_64M_f32", copied, "GB/s");
        }
        GB(named("dev.add_out_64M_%s", types[t].name), add_out, 3 * bytes);
        GB(named("dev.exp_out_64M_%s", types[t].name), exp_out, 2 * bytes);
        GB(named("dev.gelu_out_64M_%s", types[t].name), gelu_out, 2 * bytes);
        GB(named("dev.sum_64M_%s", types[t].name), sum, bytes);
        drop(x);
    }
}

static void rows(operands *x)
{
    const int64_t sizes[] = {sized(65536, 8), sized(1024, 16)};
    const double count = (double)(sizes[0] * sizes[1]);

    for (int t = 0; t < TYPES; t++) {
        double bytes = count * (double)types[t].bytes;

        x->a = uniform(sizes, 2, types[t].dtype);
        x->b = uniform(sizes + 1, 1, types[t].dtype);
        x->o = zeros(sizes, 2, types[t].dtype);
        x->weight = uniform(sizes + 1, 1, types[t].dtype);
        x->bias = uniform(sizes + 1, 1, types[t].dtype);
        GB(named("dev.softmax_out_65536x1024_%s", types[t].name), softmax,
           2 * bytes);
        GB(named("dev.layer_norm_65536x1024_%s", types[t].name), layer_norm,
           2 * bytes);
        GB(named("dev.add_row_out_65536x1024_%s", types[t].name), add_out,
           2 * bytes);
        GB(named("dev.sum_rows_65536x1024_%s", types[t].name), sum_rows, bytes);
        GB(named("dev.sum_columns_65536x1024_%s", types[t].name), sum_columns,
           bytes);
        drop(x);
    }
}

/* Accesses that are not in memory order. */
static void moved(operands *x)
{
    const int64_t square[] = {sized(8192, 40), sized(8192, 40)};
    const int64_t table[] = {sized(50000, 100), sized(1024, 8)};
    const int64_t wide[] = {sized(65536, 8), sized(1024, 16)};
    const int64_t keys = sized(16 << 20, 100), picked = sized(65536, 50);
    core_tensor *own;

    own = uniform(square, 2, CORE_F32);
    must(core_t(own, &x->a));
    core_tensor_release(own);
    x->o = zeros(square, 2, CORE_F32);
    GB("dev.transpose_copy_8192x8192_f32", copy,
       8 * (double)(square[0] * square[1]));
    drop(x);
    own = uniform(wide, 2, CORE_F32);
    must(core_narrow(own, 1, 0, wide[1] - 8, &x->a));
    core_tensor_release(own);
    x->b = core_tensor_retain(x->a);
    x->o = zeros((const int64_t[]){wide[0], wide[1] - 8}, 2, CORE_F32);
    GB("dev.add_out_65536x1016_of_1024_f32", add_out,
       12 * (double)(wide[0] * (wide[1] - 8)));
    drop(x);
    x->a = uniform(table, 2, CORE_F32);
    x->b = bench_integers(picked, table[0]);
    GB("dev.embedding_65536_of_50000x1024_f32", embed,
       8 * (double)(picked * table[1]));
    drop(x);
    x->a = uniform(&keys, 1, CORE_F32);
    bench_out("dev.sort_16M_f32", 1e-6 * (double)keys / seconds_of(sort, x),
              "million/s");
    drop(x);
}

/* -------------------------------------------------------------- products -- */

ROW(mm, core_mm_out(x->a, x->b, x->o))
ROW(bmm, core_bmm_out(x->a, x->b, x->o))

static core_tensor *convolve(const operands *x)
{
    const int64_t one[] = {1, 1};
    core_tensor *r;

    must(core_conv2d(x->a, x->b, x->bias, one, 2, one, 2, one, 2, 1, &r));
    return r;
}

static void conv2d(void *context)
{
    core_tensor_release(convolve(context));
}

static void back(core_tensor *result, const operands *x)
{
    core_tensor *grad = x->grad;

    must(core_backward(&result, 1, &grad, 0));
    core_tensor_release(result);
    must(core_tensor_set_grad(x->a, NULL));
    must(core_tensor_set_grad(x->b, NULL));
    if (x->bias != NULL)
        must(core_tensor_set_grad(x->bias, NULL));
}

static void conv2d_and_back(void *context)
{
    back(convolve(context), context);
}

static void square(operands *x, const char *name, int64_t side,
                   core_dtype dtype)
{
    const int64_t n = sized(side, 24), sizes[] = {n, n};

    x->a = uniform(sizes, 2, dtype);
    x->b = uniform(sizes, 2, dtype);
    x->o = zeros(sizes, 2, dtype);
    GFLOP(name, mm, 2.0 * (double)n * (double)n * (double)n);
    drop(x);
}

static void products(operands *x)
{
    const int64_t batch[] = {sized(64, 2), sized(512, 8), sized(512, 8)};

    square(x, "dev.mm_out_1024^3_f32", 1024, CORE_F32);
    square(x, "dev.mm_out_4096^3_f32", 4096, CORE_F32);
    must(core_setting_set("LIBCORE_ALLOW_TF32", "1"));
    square(x, "dev.mm_out_4096^3_tf32", 4096, CORE_F32);
    must(core_setting_set("LIBCORE_ALLOW_TF32", NULL));
    square(x, "dev.mm_out_4096^3_f64", 4096, CORE_F64);
    square(x, "dev.mm_out_4096^3_f16", 4096, CORE_F16);
    square(x, "dev.mm_out_1024^3_bf16", 1024, CORE_BF16);
    square(x, "dev.mm_out_4096^3_bf16", 4096, CORE_BF16);
    square(x, "dev.mm_out_8192^3_bf16", 8192, CORE_BF16);
    x->a = uniform(batch, 3, CORE_BF16);
    x->b = uniform(batch, 3, CORE_BF16);
    x->o = zeros(batch, 3, CORE_BF16);
    GFLOP("dev.bmm_out_64x512^3_bf16", bmm,
          2.0 * (double)(batch[0] * batch[1] * batch[1] * batch[1]));
    drop(x);
}

static void convolutions(operands *x)
{
    const int64_t images = sized(32, 1), side = sized(56, 6);
    const int64_t input[] = {images, 64, side, side};
    const int64_t weight[] = {64, 64, 3, 3};
    const double flop = 2.0 * 64 * 64 * 9 * (double)(images * side * side);

    for (int t = 0; t < TYPES; t++) {
        x->a = uniform(input, 4, types[t].dtype);
        x->b = uniform(weight, 4, types[t].dtype);
        x->bias = uniform(weight, 1, types[t].dtype);
        GFLOP(named("dev.conv2d_32x64x56x56_k3p1_64_%s", types[t].name), conv2d,
              flop);
        x->a = bench_requires_grad(x->a);
        x->b = bench_requires_grad(x->b);
        x->bias = bench_requires_grad(x->bias);
        x->grad = uniform(input, 4, types[t].dtype);
        core_grad_mode_set(true);
        GFLOP(named("dev.conv2d_same_fwd+bwd_%s", types[t].name),
              conv2d_and_back, 3 * flop);
        core_grad_mode_set(false);
        drop(x);
    }
}

/* ------------------------------------------------------------- attention -- */

/* query, key and value are a, b and o. */
static core_tensor *attend(const operands *x)
{
    core_tensor *r;

    must(core_scaled_dot_product_attention(x->a, x->b, x->o, NULL, 0, false,
                                           NULL, false, &r));
    return r;
}

static void attention(void *context)
{
    core_tensor_release(attend(context));
}

static void attention_and_back(void *context)
{
    const operands *x = context;

    back(attend(x), x);
    must(core_tensor_set_grad(x->o, NULL));
}

static void attentions(operands *x)
{
    const int64_t sizes[] = {sized(4, 1), sized(16, 2), sized(2048, 20), 64};
    /* Two products; backward has five. */
    const double flop =
        4.0 * (double)(sizes[0] * sizes[1] * sizes[2] * sizes[2] * sizes[3]);

    for (int t = 0; t < TYPES; t++) {
        x->a = uniform(sizes, 4, types[t].dtype);
        x->b = uniform(sizes, 4, types[t].dtype);
        x->o = uniform(sizes, 4, types[t].dtype);
        GFLOP(named("dev.attention_B4H16T2048D64_%s", types[t].name), attention,
              flop);
        x->a = bench_requires_grad(x->a);
        x->b = bench_requires_grad(x->b);
        x->o = bench_requires_grad(x->o);
        x->grad = uniform(sizes, 4, types[t].dtype);
        core_grad_mode_set(true);
        GFLOP(named("dev.attention_same_fwd+bwd_%s", types[t].name),
              attention_and_back, 3.5 * flop);
        core_grad_mode_set(false);
        drop(x);
    }
}

/* -------------------------------------------------------------- training -- */

typedef struct stepped {
    core_optimizer *optimizer;
    core_tensor *parameters[64];
    size_t count;
} stepped;

static void optimizer_step(void *context)
{
    stepped *s = context;

    must(core_optimizer_step(s->optimizer));
}

static void adam(void)
{
    core_adam_options options = {.struct_size = sizeof options,
                                 .learning_rate = 1e-3,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .epsilon = 1e-8};
    const int64_t n = sized(1 << 20, 10);
    stepped s = {.count = (size_t)sized(64, 2)};
    double bytes = 28.0 * (double)n * (double)s.count;

    for (size_t i = 0; i < s.count; i++) {
        core_tensor *grad = uniform(&n, 1, CORE_F32);

        s.parameters[i] = bench_requires_grad(uniform(&n, 1, CORE_F32));
        must(core_tensor_set_grad(s.parameters[i], grad));
        core_tensor_release(grad);
    }
    must(core_adam_create(s.parameters, s.count, &options, &s.optimizer));
    bench_out_limit("dev.adam_64x1M_f32",
                    1e-9 * bytes / seconds_of(optimizer_step, &s), "GB/s",
                    copied);
    core_optimizer_release(s.optimizer);
    for (size_t i = 0; i < s.count; i++)
        core_tensor_release(s.parameters[i]);
}

typedef struct recorded {
    core_graph *graph;
    core_stream *stream;
} recorded;

static void launch(void *context)
{
    const recorded *r = context;

    must(core_graph_launch(r->graph, r->stream));
}

/* Captures a step; false (reported once) where graphs are not supported.  Steps
 * ran before, so that kernels and plans exist. */
static bool record(bench_perceptron *p, recorded *out)
{
    static bool reported;

    *out = (recorded){NULL, NULL};
    must(core_stream_create(bench.device, &out->stream));
    wait();
    if (core_capture_begin(out->stream, NULL) != CORE_OK) {
        if (!reported)
            fprintf(stderr, "core-bench: graphs: skipped: %s\n",
                    core_error_message());
        reported = true;
        core_stream_release(out->stream);
        return false;
    }
    bench_perceptron_step(p);
    must(core_capture_end(out->stream, &out->graph));
    return true;
}

static void perceptron(const char *name, const int64_t *widths, int layers,
                       int64_t batch)
{
    bench_perceptron p;
    double eager, replayed;
    char full[96];
    recorded r;

    bench_perceptron_open(&p, widths, layers, batch);
    eager = seconds_of(bench_perceptron_step, &p);
    bench_out(name, eager * 1e6, "us");
    if (record(&p, &r)) {
        replayed = seconds_of(launch, &r);
        snprintf(full, sizeof full, "%s_graph", name);
        bench_out(full, replayed * 1e6, "us");
        snprintf(full, sizeof full, "%s_graph_speedup", name);
        bench_out(full, eager / replayed, "times");
        core_graph_release(r.graph);
        core_stream_release(r.stream);
    }
    bench_perceptron_close(&p);
}

static void training(void)
{
    static const int64_t wide[] = {784, 512, 256, 10}, small[] = {64, 64, 10};
    bench_block b;

    adam();
    core_grad_mode_set(true);
    perceptron("dev.mlp_step_64-64-10_b32", small, 2, 32);
    perceptron("dev.mlp_step_784-512-256-10_b128", wide, 3, sized(128, 2));
    bench_block_open(&b);
    b.fused = true;
    bench_out("dev.xfmr_block_fwd+bwd_B8T128C256H8",
              seconds_of(bench_block_step, &b) * 1e6, "us");
    bench_out("dev.xfmr_block_fwd+bwd_bf16",
              seconds_of(bench_block_step_bf16, &b) * 1e6, "us");
    bench_block_close(&b);
}

void bench_device(void)
{
    bool before = core_grad_mode_set(false);
    operands x = {0};

    launches(&x);
    flat(&x);
    rows(&x);
    moved(&x);
    products(&x);
    convolutions(&x);
    attentions(&x);
    training();
    core_grad_mode_set(before);
}
