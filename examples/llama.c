/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Llama 2 (Touvron et al. 2023) continues a text of tokens, always by the most
 * probable one.
 *
 *     llama FILE DEVICE HEADS COUNT TOKEN...
 *
 * FILE: safetensors, or the index of its shards, with the names of Hugging
 * Face's LlamaForCausalLM, of any size.  HEADS: of queries.  Other models of
 * this kind, such as Llama 3, may have another BASE or EPS. */

#include <libcore/core.h>
#include <libcore/network.h>

#include <stdio.h>
#include <stdlib.h>

enum { PLACES = 2048 };
static const double BASE = 10000, EPS = 1e-5;

typedef struct llama {
    core_module *m;
    int64_t size;       /* of a head */
    core_tensor *cache; /* [layers, 2, 1, heads of keys, PLACES, size] */
} llama;

static void make(llama *l, const char *path, int64_t heads)
{
    int64_t width, keys;
    int layers = 0;

    l->m = core_x_inference(core_x_nn_from_file(path));
    width = core_x_size(core_x_nn_tensor(l->m, "model.norm.weight"), 0);
    l->size = width / heads;
    while (core_module_child(l->m, core_x_text("model.layers.%d", layers)))
        layers++;
    keys = core_x_size(
        core_x_nn_tensor(l->m, "model.layers.0.self_attn.k_proj.weight"), 0);
    l->cache = core_x_zeros(CORE_SIZES(
        layers, 2, 1, l->size ? keys / l->size : 0, PLACES, l->size));
}

/* Turns pairs of features by angles that grow with the position. */
static core_tensor *rotate(core_tensor *x, int64_t at)
{
    int64_t size = core_x_size(x, -1);
    core_tensor *place = core_x_arange_start(at, at + core_x_size(x, -2));
    core_tensor *pair =
        core_x_mul(core_x_arange(size / 2), -2.0 / (double)size);
    core_tensor *angle, *cos, *sin, *a, *b;

    angle = core_x_outer(place, core_x_pow_of_scalar(BASE, pair));
    cos = core_x_cos(angle);
    sin = core_x_sin(angle);
    CORE_UNPACK(core_x_chunk(x, 2, -1), &a, &b);
    x = core_x_sub(core_x_mul(a, cos), core_x_mul(b, sin));
    b = core_x_add(core_x_mul(b, cos), core_x_mul(a, sin));
    return core_x_cat(CORE_LIST(x, b), -1);
}

/* A projection of x: [1, heads, count, size]. */
static core_tensor *heads_of(const llama *l, core_module *m, const char *name,
                             core_tensor *x)
{
    x = core_x_apply_linear(m, name, x);
    x = core_x_reshape(x, CORE_SIZES(1, core_x_size(x, 1), -1, l->size));
    return core_x_transpose(x, 1, 2);
}

static core_tensor *attention(const llama *l, core_module *m, core_tensor *x,
                              core_tensor *cache, int64_t at)
{
    int64_t count = core_x_size(x, 1);
    core_tensor *q = rotate(heads_of(l, m, "q_proj", x), at);
    core_tensor *k = rotate(heads_of(l, m, "k_proj", x), at);
    core_tensor *v = heads_of(l, m, "v_proj", x);

    core_x_copy_(core_x_part(cache, "..., *:*, :", at, at + count),
                 core_x_stack(CORE_LIST(k, v)));
    cache = core_x_part(cache, "..., :*, :", at + count);
    CORE_UNPACK(core_x_unbind(cache), &k, &v);
    x = core_x_scaled_dot_product_attention(q, k, v, NULL, 0, count > 1,
                                            core_none(), true);
    x = core_x_flatten(core_x_transpose(x, 1, 2), 2);
    return core_x_apply_linear(m, "o_proj", x);
}

static core_tensor *block(const llama *l, core_module *m, core_tensor *x,
                          core_tensor *cache, int64_t at)
{
    core_tensor *y = core_x_apply_rms_norm(m, "input_layernorm", x, EPS);

    y = attention(l, core_x_nn_child(m, "self_attn"), y, cache, at);
    x = core_x_add(x, y);
    y = core_x_apply_rms_norm(m, "post_attention_layernorm", x, EPS);
    y = core_x_mul(core_x_silu(core_x_apply_linear(m, "mlp.gate_proj", y)),
                   core_x_apply_linear(m, "mlp.up_proj", y));
    return core_x_add(x, core_x_apply_linear(m, "mlp.down_proj", y));
}

/* Returns the most probable token after `count` tokens at positions `at`… */
static core_status next_token(const llama *l, const int64_t *tokens,
                              int64_t count, int64_t at, int64_t *out_token)
{
    core_scope scope = core_scope_begin();
    const char *words = "model.embed_tokens";
    core_tensor *x;

    x = core_x_from_data(tokens, CORE_I64, CORE_SIZES(1, count), NULL);
    x = core_x_apply_embedding(l->m, words, x);
    for (int i = 0; i < core_x_size(l->cache, 0); i++)
        x = block(l, core_x_nn_child(l->m, "model.layers.%d", i), x,
                  core_x_part(l->cache, "*", i), at);
    x = core_x_apply_rms_norm(l->m, "model.norm", core_x_part(x, ":, -1:"),
                              EPS);
    if (core_module_child(l->m, "lm_head")) /* otherwise shared */
        words = "lm_head";
    x = core_x_argmax(core_x_apply_linear(l->m, words, x));
    *out_token = core_x_item_int(x);
    return core_scope_end(scope);
}

int main(int argc, char **argv)
{
    core_scope scope = core_scope_begin();
    int64_t tokens[PLACES], next = 0, at = 0, known = argc - 5;
    llama l = {NULL};

    if (known < 1 || known > PLACES || atoll(argv[3]) < 1 ||
        atoll(argv[4]) > PLACES - known)
        return !!fputs("usage: llama FILE DEVICE HEADS COUNT TOKEN...\n",
                       stderr);
    for (int64_t i = 0; i < known; i++)
        tokens[i] = atoll(argv[i + 5]);
    core_x_use_device(argv[2]);
    make(&l, argv[1], atoll(argv[3]));
    for (int64_t count = atoll(argv[4]); count > 0; count--) {
        CORE_CHECK(next_token(&l, tokens + at, known - at, at, &next));
        if (core_scope_status() != CORE_OK)
            break;
        printf("%lld\n", (long long)next);
        at = known;
        tokens[known++] = next;
    }
    return core_scope_exit(scope);
}
