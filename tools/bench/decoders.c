/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Decoders of GPT-2 small's and of Llama's kind, two layers of each: many tokens
 * at once, and the next one with keys and values of the earlier ones kept.
 * Their embeddings and heads are left out. */

#include "networks.h"

#include <math.h>
#include <stdio.h>

enum { LAYERS = 2, TOKENS = 64, PLACES = 128, HEAD = 64 };

typedef struct decoder {
    core_module *layers[LAYERS];
    core_tensor *keys[LAYERS], *values[LAYERS]; /* [B, heads, PLACES, HEAD] */
    core_tensor *cos, *sin;                     /* [PLACES, HEAD / 2] */
    int64_t at;
} decoder;

/* Writes rows into a cache and returns it up to them. */
static core_tensor *append(core_tensor *to, core_tensor *rows, int64_t at)
{
    int64_t count = core_x_size(rows, 2);

    core_x_copy_(core_x_narrow(to, 2, at, count), rows);
    return core_x_narrow(to, 2, 0, at + count);
}

/* [B, T, heads * HEAD] to [B, heads, T, HEAD]. */
static core_tensor *heads_of(core_tensor *x)
{
    return core_x_transpose(
        core_x_reshape(
            x, CORE_SIZES(core_x_size(x, 0), core_x_size(x, 1), -1, HEAD)),
        1, 2);
}

static core_tensor *attend(decoder *d, int i, core_tensor *q, core_tensor *k,
                           core_tensor *v)
{
    bool many = core_x_size(q, 2) > 1;

    k = append(d->keys[i], k, d->at);
    v = append(d->values[i], v, d->at);
    q = core_x_scaled_dot_product_attention(q, k, v, NULL, 0, many, core_none(),
                                            true);
    return core_x_flatten(core_x_transpose(q, 1, 2), 2);
}

/* --------------------------------------------------------------- GPT-2 -- */

enum { GPT_WIDTH = 768 };

static core_tensor *gpt_run(bench_network *n)
{
    decoder *d = n->context;
    core_tensor *x = n->x, *y, *q, *k, *v;

    for (int i = 0; i < LAYERS; i++) {
        core_module *m = d->layers[i];

        y = core_x_children(m, x, "norm1", "qkv");
        CORE_UNPACK(core_x_chunk(y, 3, -1), &q, &k, &v);
        y = attend(d, i, heads_of(q), heads_of(k), heads_of(v));
        x = core_x_add(x, core_x_child(m, "out", y));
        y = core_x_gelu(core_x_children(m, x, "norm2", "up"), "tanh");
        x = core_x_add(x, core_x_child(m, "down", y));
    }
    return x;
}

static void gpt_layer(core_module *m)
{
    core_x_nn_layer_norm(m, "norm1", GPT_WIDTH);
    core_x_nn_linear(m, "qkv", GPT_WIDTH, 3 * GPT_WIDTH);
    core_x_nn_linear(m, "out", GPT_WIDTH, GPT_WIDTH);
    core_x_nn_layer_norm(m, "norm2", GPT_WIDTH);
    core_x_nn_linear(m, "up", GPT_WIDTH, 4 * GPT_WIDTH);
    core_x_nn_linear(m, "down", 4 * GPT_WIDTH, GPT_WIDTH);
}

/* --------------------------------------------------------------- Llama -- */

enum { LLAMA_WIDTH = 1024, LLAMA_INNER = 2816, LLAMA_KEYS = 256 };

/* Turns pairs of features by angles that grow with the position. */
static core_tensor *rotate(const decoder *d, core_tensor *x)
{
    core_tensor *cos = core_x_narrow(d->cos, 0, d->at, core_x_size(x, 2));
    core_tensor *sin = core_x_narrow(d->sin, 0, d->at, core_x_size(x, 2));
    core_tensor *a, *b;

    CORE_UNPACK(core_x_chunk(x, 2, -1), &a, &b);
    x = core_x_sub(core_x_mul(a, cos), core_x_mul(b, sin));
    b = core_x_add(core_x_mul(b, cos), core_x_mul(a, sin));
    return core_x_cat(CORE_LIST(x, b), -1);
}

static core_tensor *llama_run(bench_network *n)
{
    decoder *d = n->context;
    core_tensor *x = n->x, *y, *q, *k, *v;

    for (int i = 0; i < LAYERS; i++) {
        core_module *m = d->layers[i];

        y = core_x_child(m, "norm1", x);
        q = rotate(d, heads_of(core_x_child(m, "q", y)));
        k = rotate(d, heads_of(core_x_child(m, "k", y)));
        v = heads_of(core_x_child(m, "v", y));
        y = attend(d, i, q, k, v);
        x = core_x_add(x, core_x_child(m, "out", y));
        y = core_x_child(m, "norm2", x);
        v = core_x_silu(core_x_child(m, "gate", y));
        y = core_x_mul(v, core_x_child(m, "up", y));
        x = core_x_add(x, core_x_child(m, "down", y));
    }
    return x;
}

static void llama_layer(core_module *m)
{
    core_x_nn_rms_norm(m, "norm1", LLAMA_WIDTH, 1e-5);
    core_x_nn_linear(m, "q", LLAMA_WIDTH, LLAMA_WIDTH, false);
    core_x_nn_linear(m, "k", LLAMA_WIDTH, LLAMA_KEYS, false);
    core_x_nn_linear(m, "v", LLAMA_WIDTH, LLAMA_KEYS, false);
    core_x_nn_linear(m, "out", LLAMA_WIDTH, LLAMA_WIDTH, false);
    core_x_nn_rms_norm(m, "norm2", LLAMA_WIDTH, 1e-5);
    core_x_nn_linear(m, "gate", LLAMA_WIDTH, LLAMA_INNER, false);
    core_x_nn_linear(m, "up", LLAMA_WIDTH, LLAMA_INNER, false);
    core_x_nn_linear(m, "down", LLAMA_INNER, LLAMA_WIDTH, false);
}

static void make_turns(decoder *d)
{
    core_tensor *place = core_x_arange(core_int(PLACES), CORE_F32);
    core_tensor *pair = core_x_arange(core_int(HEAD / 2), CORE_F32);

    pair = core_x_mul_scalar(pair, core_float(-2.0 / HEAD));
    pair = core_x_pow_of_scalar(core_float(10000), pair);
    d->cos = core_x_cos(core_x_outer(place, pair));
    d->sin = core_x_sin(core_x_outer(place, pair));
}

/* ---------------------------------------------------------------- rows -- */

typedef struct kind {
    const char *name;
    int64_t width, key_heads;
    void (*layer)(core_module *m);
    core_tensor *(*run)(bench_network *n);
} kind;

static void decoder_rows(const kind *k, uint32_t threads, int64_t batch)
{
    core_scope scope = core_scope_begin();
    bool before = core_grad_mode_set(false);
    core_module *m = core_x_nn_container(NULL, NULL);
    decoder d = {.at = 0};
    bench_network n = {.run = k->run, .m = m, .context = &d};
    char row[80];

    make_turns(&d);
    for (int i = 0; i < LAYERS; i++) {
        d.layers[i] = core_x_nn_container(m, core_x_text("%d", i));
        k->layer(d.layers[i]);
        d.keys[i] = core_x_zeros(CORE_SIZES(batch, k->key_heads, PLACES, HEAD));
        d.values[i] = core_x_zeros_like(d.keys[i]);
    }
    n.x = core_x_randn(CORE_SIZES(batch, TOKENS, k->width));
    snprintf(row, sizeof row, "%s_prefill_B%dT%d", k->name, (int)batch, TOKENS);
    bench_out_threads(row, threads,
                      bench_seconds(bench_network_forward, &n, 0.1) * 1e3,
                      "ms");
    n.x = core_x_randn(CORE_SIZES(batch, 1, k->width));
    d.at = TOKENS;
    snprintf(row, sizeof row, "%s_decode_B%d", k->name, (int)batch);
    bench_out_threads(row, threads,
                      bench_seconds(bench_network_forward, &n, 0.1) * 1e3,
                      "ms");
    core_grad_mode_set(before);
    must(core_scope_end(scope));
}

void bench_decoders(uint32_t threads, int64_t batch)
{
    const kind gpt = {"gpt2_2layers", GPT_WIDTH, GPT_WIDTH / HEAD, gpt_layer,
                      gpt_run};
    const kind llama = {"llama_2layers", LLAMA_WIDTH, LLAMA_KEYS / HEAD,
                        llama_layer, llama_run};

    decoder_rows(&gpt, threads, batch);
    decoder_rows(&llama, threads, batch);
}
