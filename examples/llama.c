/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Llama 2 (Touvron et al. 2023) continues a text of tokens, always by the most
 * probable one.
 *
 *     llama FILE DEVICE HEADS COUNT TOKEN...
 *
 * FILE: safetensors, or the index of its shards, with the names of Hugging
 * Face's LlamaForCausalLM, of any size.  HEADS: of queries.  Other models of
 * this kind, such as Llama 3, may have another BASE or EPS, or share the
 * weights of "lm_head" and the embedding. */

#include <libcore/core.h>
#include <libcore/network.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 2048 };
static const double BASE = 10000, EPS = 1e-5;

typedef struct llama {
    int64_t words, width, inner, keys, size, layers, frequencies;
    core_module *m;
    core_tensor *cache; /* [layers, 2, 1, heads of keys, PLACES, size] */
} llama;

/* Returns the first size of a tensor of the file, or 0. */
static int64_t rows(const core_safetensors *file, const char *name)
{
    core_safetensors_entry entry = {.struct_size = sizeof entry};

    for (size_t i = 0; i < core_safetensors_count(file); i++) {
        CORE_CHECK(core_safetensors_describe(file, i, &entry));
        if (core_scope_status() == CORE_OK && strcmp(entry.name, name) == 0)
            return entry.ndim > 0 ? entry.sizes[0] : 0;
    }
    return 0;
}

static void read_sizes(llama *l, const char *path, int64_t heads)
{
    core_safetensors *file = NULL;

    CORE_CHECK(core_safetensors_open(path, &file));
    l->words = rows(file, "model.embed_tokens.weight");
    l->width = rows(file, "model.norm.weight");
    l->inner = rows(file, "model.layers.0.mlp.gate_proj.weight");
    l->keys = rows(file, "model.layers.0.self_attn.k_proj.weight");
    l->size = l->width / heads;
    l->frequencies = rows(file, "model.layers.0.self_attn.rotary_emb.inv_freq");
    while (rows(file, core_x_text("model.layers.%d.input_layernorm.weight",
                                  (int)l->layers)))
        l->layers++;
    core_safetensors_close(file);
}

static void add_block(const llama *l, core_module *m)
{
    core_x_nn_rms_norm(m, "input_layernorm", l->width, EPS);
    core_x_nn_linear(m, "self_attn.q_proj", l->width, l->width, false);
    core_x_nn_linear(m, "self_attn.k_proj", l->width, l->keys, false);
    core_x_nn_linear(m, "self_attn.v_proj", l->width, l->keys, false);
    core_x_nn_linear(m, "self_attn.o_proj", l->width, l->width, false);
    core_x_nn_rms_norm(m, "post_attention_layernorm", l->width, EPS);
    core_x_nn_linear(m, "mlp.gate_proj", l->width, l->inner, false);
    core_x_nn_linear(m, "mlp.up_proj", l->width, l->inner, false);
    core_x_nn_linear(m, "mlp.down_proj", l->inner, l->width, false);
    if (l->frequencies) /* as in older conversions; not used */
        core_x_nn_buffer(m, "self_attn.rotary_emb.inv_freq",
                         core_x_empty(CORE_SIZES(l->frequencies)));
}

static void make(llama *l, const char *path, int64_t heads)
{
    read_sizes(l, path, heads);
    l->m = core_x_nn_container(NULL, NULL);
    core_x_nn_embedding(l->m, "model.embed_tokens", l->words, l->width);
    for (int i = 0; i < l->layers; i++)
        add_block(l, core_x_nn_container(l->m, "model.layers."));
    core_x_nn_rms_norm(l->m, "model.norm", l->width, EPS);
    core_x_nn_linear(l->m, "lm_head", l->width, l->words, false);
    core_x_nn_load(l->m, path);
    core_x_inference(l->m);
    l->cache = core_x_zeros(CORE_SIZES(
        l->layers, 2, 1, l->size ? l->keys / l->size : 0, PLACES, l->size));
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
    x = core_x_child(m, name, x);
    x = core_x_reshape(x, CORE_SIZES(1, core_x_size(x, 1), -1, l->size));
    return core_x_transpose(x, 1, 2);
}

static core_tensor *attention(const llama *l, core_module *m, core_tensor *x,
                              core_tensor *cache, int64_t at)
{
    int64_t count = core_x_size(x, 1);
    core_tensor *q = rotate(heads_of(l, m, "self_attn.q_proj", x), at);
    core_tensor *k = rotate(heads_of(l, m, "self_attn.k_proj", x), at);
    core_tensor *v = heads_of(l, m, "self_attn.v_proj", x);

    core_x_copy_(core_x_narrow(core_x_select(cache, 0, 0), 2, at, count), k);
    core_x_copy_(core_x_narrow(core_x_select(cache, 0, 1), 2, at, count), v);
    CORE_UNPACK(core_x_unbind(core_x_narrow(cache, 3, 0, at + count)), &k, &v);
    x = core_x_scaled_dot_product_attention(q, k, v, NULL, 0, count > 1,
                                            core_none(), true);
    x = core_x_flatten(core_x_transpose(x, 1, 2), 2);
    return core_x_child(m, "self_attn.o_proj", x);
}

/* Returns the most probable token after `count` tokens at positions `at`… */
static core_status next_token(const llama *l, const int64_t *tokens,
                              int64_t count, int64_t at, int64_t *out_token)
{
    core_scope scope = core_scope_begin();
    core_tensor *x, *y, *gate;

    x = core_x_from_data(tokens, CORE_I64, CORE_SIZES(1, count), NULL);
    x = core_x_child(l->m, "model.embed_tokens", x);
    for (int i = 0; i < l->layers; i++) {
        core_module *b = core_x_nn_child(l->m, "model.layers.%d", i);

        y = core_x_child(b, "input_layernorm", x);
        y = attention(l, b, y, core_x_select(l->cache, 0, i), at);
        x = core_x_add(x, y);
        y = core_x_child(b, "post_attention_layernorm", x);
        gate = core_x_silu(core_x_child(b, "mlp.gate_proj", y));
        y = core_x_mul(gate, core_x_child(b, "mlp.up_proj", y));
        x = core_x_add(x, core_x_child(b, "mlp.down_proj", y));
    }
    x = core_x_narrow(x, 1, -1, 1);
    x = core_x_children(l->m, x, "model.norm", "lm_head");
    *out_token = core_x_item_int(core_x_argmax(x));
    return core_scope_end(scope);
}

int main(int argc, char **argv)
{
    core_scope scope = core_scope_begin();
    int64_t tokens[PLACES], next = 0, at = 0, known = argc - 5;
    llama l = {0};

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
