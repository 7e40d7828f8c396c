/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Networks of convolutions: ResNet-18 and a network over sound. */

#include "networks.h"

#include <stdio.h>

/* ---------------------------------------------------------------- rows -- */

void bench_network_forward(void *context)
{
    bench_network *n = context;
    core_scope scope = core_scope_begin();

    (void)n->run(n);
    must(core_scope_end(scope));
}

static void step(void *context)
{
    bench_network *n = context;
    core_scope scope = core_scope_begin();
    core_tensor *y = n->run(n);
    core_list p = core_x_parameters(n->m);

    CORE_CHECK(core_backward(&y, 1, &n->grad, 0));
    for (size_t i = 0; i < p.count; i++)
        CORE_CHECK(core_tensor_set_grad(p.items[i], NULL));
    must(core_scope_end(scope));
}

void bench_network_rows(const char *name, const char *shape, uint32_t threads,
                        bench_network *n)
{
    char row[80];
    bool before;

    snprintf(row, sizeof row, "%s_fwd+bwd_%s", name, shape);
    bench_out_threads(row, threads, bench_seconds(step, n, 0.1) * 1e3, "ms");
    core_module_set_training(n->m, false);
    before = core_grad_mode_set(false);
    snprintf(row, sizeof row, "%s_fwd_%s", name, shape);
    bench_out_threads(row, threads,
                      bench_seconds(bench_network_forward, n, 0.1) * 1e3, "ms");
    core_grad_mode_set(before);
}

static core_tensor *run(bench_network *n)
{
    return core_x_module(n->m, n->x);
}

/* ----------------------------------------------------------- ResNet-18 -- */

static core_tensor *basic_block(core_module *m, core_tensor *x)
{
    core_tensor *y = core_x_relu(core_x_children(m, x, "conv1", "bn1"));

    y = core_x_children(m, y, "conv2", "bn2");
    if (core_module_child(m, "downsample"))
        x = core_x_child(m, "downsample", x);
    return core_x_relu(core_x_add(y, x));
}

static void add_block(core_module *layer, int64_t in, int64_t out, int64_t by)
{
    core_module *m = core_x_nn_module(layer, NULL, basic_block);

    core_x_nn_conv2d(m, "conv1", in, out, {3}, {by}, {1}, .no_bias = true);
    core_x_nn_batch_norm(m, "bn1", out);
    core_x_nn_conv2d(m, "conv2", out, out, {3}, {1}, {1}, .no_bias = true);
    core_x_nn_batch_norm(m, "bn2", out);
    if (in == out)
        return;
    m = core_x_nn_sequential(m, "downsample");
    core_x_nn_conv2d(m, NULL, in, out, {1}, {by}, .no_bias = true);
    core_x_nn_batch_norm(m, NULL, out);
}

static core_tensor *images(core_module *m, core_tensor *x)
{
    x = core_x_relu(core_x_children(m, x, "conv1", "bn1"));
    x = core_x_max_pool2d(x, CORE_SIZES(3), CORE_SIZES(2), CORE_SIZES(1));
    x = core_x_children(m, x, "layer1", "layer2", "layer3", "layer4");
    return core_x_child(m, "fc", core_x_mean_dim(x, CORE_SIZES(2, 3)));
}

static void resnet(uint32_t threads, int64_t batch)
{
    enum { SIDE = 64, LABELS = 1000 };
    const char *const names[] = {"layer1", "layer2", "layer3", "layer4"};
    core_scope scope = core_scope_begin();
    bench_network n = {.run = run,
                       .m = core_x_nn_module(NULL, NULL, images),
                       .x = core_x_randn(CORE_SIZES(batch, 3, SIDE, SIDE)),
                       .grad = core_x_randn(CORE_SIZES(batch, LABELS))};

    core_x_nn_conv2d(n.m, "conv1", 3, 64, {7}, {2}, {3}, .no_bias = true);
    core_x_nn_batch_norm(n.m, "bn1", 64);
    for (int i = 0; i < 4; i++) {
        core_module *layer = core_x_nn_sequential(n.m, names[i]);

        add_block(layer, i ? 32 << i : 64, 64 << i, i ? 2 : 1);
        add_block(layer, 64 << i, 64 << i, 1);
    }
    core_x_nn_linear(n.m, "fc", 512, LABELS);
    bench_network_rows("resnet18", core_x_text("B%d_64x64", (int)batch),
                       threads, &n);
    must(core_scope_end(scope));
}

/* --------------------------------------------------------------- sound -- */

/* The magnitudes of a filter bank, and four convolutions over them: the shape
 * of a detector of speech. */
static core_tensor *sound(core_module *m, core_tensor *x)
{
    const char *const names[] = {"conv1", "conv2", "conv3", "conv4"};
    core_tensor *re, *im;

    x = core_x_child(m, "bank", x);
    CORE_UNPACK(core_x_chunk(x, 2, 1), &re, &im);
    x = core_x_add(core_x_mul(re, re), core_x_mul(im, im));
    x = core_x_sqrt(core_x_add_scalar(x, core_float(1e-6)));
    for (int i = 0; i < 4; i++)
        x = core_x_relu(core_x_child(m, names[i], x));
    return core_x_child(m, "fc", core_x_mean_dim(x, CORE_SIZES(2)));
}

static void conv1d(uint32_t threads, int64_t batch)
{
    enum { SAMPLES = 4096 };
    core_scope scope = core_scope_begin();
    bench_network n = {.run = run,
                       .m = core_x_nn_module(NULL, NULL, sound),
                       .x = core_x_randn(CORE_SIZES(batch, 1, SAMPLES)),
                       .grad = core_x_randn(CORE_SIZES(batch, 1))};

    core_x_nn_conv1d(n.m, "bank", 1, 258, {256}, {64}, .no_bias = true);
    core_x_nn_conv1d(n.m, "conv1", 129, 128, {3}, {1}, {1});
    core_x_nn_conv1d(n.m, "conv2", 128, 64, {3}, {2}, {1});
    core_x_nn_conv1d(n.m, "conv3", 64, 64, {3}, {2}, {1});
    core_x_nn_conv1d(n.m, "conv4", 64, 128, {3}, {1}, {1});
    core_x_nn_linear(n.m, "fc", 128, 1);
    bench_network_rows("conv1d_net", core_x_text("B%d_4096", (int)batch),
                       threads, &n);
    must(core_scope_end(scope));
}

int64_t bench_network_batches(void)
{
    return bench_only_checks() ? 1 : 8;
}

void bench_networks(void)
{
    for (uint32_t threads = bench.first_threads; threads <= bench.last_threads;
         threads++) {
        must(core_threads_set(threads));
        for (int64_t batch = 1; batch <= bench_network_batches(); batch += 7) {
            resnet(threads, batch);
            conv1d(threads, batch);
            bench_decoders(threads, batch);
        }
    }
    must(core_threads_set(1));
}
