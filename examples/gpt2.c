/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* GPT-2 (Radford et al. 2019) continues a text of tokens, always by the most
 * probable one.
 *
 *     gpt2 FILE DEVICE COUNT TOKEN...
 *
 * FILE: safetensors with the names of Hugging Face's GPT-2 of any size, such as
 * "h.0.attn.c_attn.weight".  A head has 64 features.  Tokens are numbers. */

#include <libcore/core.h>
#include <libcore/network.h>

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 48, HEAD = 64, PLACES = 1024 };

/* The parts of a block; each has a weight and a bias, and linear ones
 * [inputs, outputs]. */
enum { LN_1, ATTN, PROJ, LN_2, FC, OUT, PARTS };
static const char *const parts[PARTS] = {"ln_1", "attn.c_attn", "attn.c_proj",
                                         "ln_2", "mlp.c_fc",    "mlp.c_proj"};

typedef struct block {
    core_tensor *w[PARTS][2];
    core_tensor *keys, *values; /* [1, heads, PLACES, HEAD] */
} block;

typedef struct gpt2 {
    core_tensor *tokens, *places, *norm[2];
    block blocks[LAYERS];
    int layers;
} gpt2;

static core_tensor *load(const core_safetensors *file, const char *name)
{
    core_tensor *t = NULL;

    CORE_CHECK(core_safetensors_load(file, name, NULL, &t));
    return core_scope_own(core_scope_status(), &t);
}

/* The innermost scope owns the weights. */
static void load_all(gpt2 *g, const core_safetensors *file)
{
    g->tokens = load(file, "wte.weight");
    g->places = load(file, "wpe.weight");
    g->norm[0] = load(file, "ln_f.weight");
    g->norm[1] = load(file, "ln_f.bias");
    for (int n = 0; n < LAYERS && core_safetensors_has(
                                      file, core_x_text("h.%d.ln_1.weight", n));
         g->layers = ++n) {
        block *b = &g->blocks[n];
        int64_t heads = core_x_size(g->tokens, 1) / HEAD;

        for (int i = 0; i < PARTS; i++) {
            b->w[i][0] = load(file, core_x_text("h.%d.%s.weight", n, parts[i]));
            b->w[i][1] = load(file, core_x_text("h.%d.%s.bias", n, parts[i]));
        }
        b->keys = core_x_zeros(CORE_SIZES(1, heads, PLACES, HEAD));
        b->values = core_x_zeros_like(b->keys);
    }
}

static core_tensor *norm(core_tensor *x, core_tensor *const *w)
{
    return core_x_layer_norm(x, CORE_SIZES(core_x_size(x, -1)), w[0], w[1]);
}

static core_tensor *linear(core_tensor *x, core_tensor *const *w)
{
    return core_x_add(core_x_matmul(x, w[0]), w[1]);
}

/* Writes new rows into a cache, and returns it up to them: no row is copied
 * again. */
static core_tensor *append(core_tensor *to, core_tensor *rows, int64_t at)
{
    int64_t count = core_x_size(rows, 2);

    core_x_copy_(core_x_narrow(to, 2, at, count), rows);
    return core_x_narrow(to, 2, 0, at + count);
}

static core_tensor *attention(block *b, core_tensor *x, int64_t at)
{
    int64_t count = core_x_size(x, 1);
    core_tensor *q, *k, *v;

    x = core_x_reshape(linear(x, b->w[ATTN]),
                       CORE_SIZES(1, count, 3, -1, HEAD));
    CORE_UNPACK(core_x_unbind(core_x_permute(x, CORE_SIZES(2, 0, 3, 1, 4))), &q,
                &k, &v);
    k = append(b->keys, k, at);
    v = append(b->values, v, at);
    x = core_x_scaled_dot_product_attention(q, k, v, NULL, 0, count > 1);
    x = core_x_reshape(core_x_transpose(x, 1, 2), CORE_SIZES(1, count, -1));
    return linear(x, b->w[PROJ]);
}

/* Returns the most probable token after `count` tokens at positions `at`… */
static core_status next_token(gpt2 *g, const int64_t *tokens, int64_t count,
                              int64_t at, int64_t *out_token)
{
    core_scope scope = core_scope_begin();
    core_tensor *x =
        core_x_from_data(tokens, CORE_I64, CORE_SIZES(1, count), NULL);

    x = core_x_add(core_x_embedding(g->tokens, x),
                   core_x_narrow(g->places, 0, at, count));
    for (block *b = g->blocks; b < g->blocks + g->layers; b++) {
        core_tensor *y;

        x = core_x_add(x, attention(b, norm(x, b->w[LN_1]), at));
        y = core_x_gelu(linear(norm(x, b->w[LN_2]), b->w[FC]), "tanh");
        x = core_x_add(x, linear(y, b->w[OUT]));
    }
    x = norm(core_x_narrow(x, 1, -1, 1), g->norm);
    *out_token = core_x_item_int(core_x_argmax(core_x_linear(x, g->tokens)));
    return core_scope_end(scope);
}

int main(int argc, char **argv)
{
    core_scope scope = core_scope_begin();
    core_safetensors *file = NULL;
    int64_t tokens[PLACES], next = 0, at = 0, known = argc - 4;
    gpt2 g = {NULL};

    if (known < 1 || known > PLACES || atoll(argv[3]) > PLACES - known)
        return !!fputs("usage: gpt2 FILE DEVICE COUNT TOKEN...\n", stderr);
    for (int64_t i = 0; i < known; i++)
        tokens[i] = atoll(argv[i + 4]);
    (void)core_inference_begin();
    CORE_CHECK(core_safetensors_open(argv[1], &file));
    core_x_use_device(argv[2]);
    if (core_scope_status() == CORE_OK)
        load_all(&g, file);
    core_safetensors_close(file);
    for (int64_t count = atoll(argv[3]); count > 0; count--) {
        CORE_CHECK(next_token(&g, tokens + at, known - at, at, &next));
        if (core_scope_status() != CORE_OK)
            break;
        printf("%lld\n", (long long)next);
        at = known;
        tokens[known++] = next;
    }
    return core_scope_exit(scope);
}
