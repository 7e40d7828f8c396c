/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* GPT-2 (Radford et al. 2019) continues a text of tokens, always by the most
 * probable one.
 *
 *     gpt2 FILE DEVICE COUNT TOKEN...
 *
 * FILE: safetensors, or the index of its shards, with the names of Hugging
 * Face's GPT2Model or GPT2LMHeadModel of any size, such as
 * "h.0.attn.c_attn.weight".  A head has 64 features.  Tokens are numbers. */

#include <libcore/core.h>
#include <libcore/network.h>

#include <stdio.h>
#include <stdlib.h>

enum { HEAD = 64, PLACES = 1024 };

/* These weights are [inputs, outputs]. */
static core_tensor *linear(core_module *m, const char *name, core_tensor *x)
{
    x = core_x_matmul(x, core_x_nn_tensor(m, "%s.weight", name));
    return core_x_add(x, core_x_nn_tensor(m, "%s.bias", name));
}

/* cache: keys and values of a block, [2, 1, heads, PLACES, HEAD].  New ones are
 * written into it: no older one is copied again. */
static core_tensor *attention(core_module *m, core_tensor *x,
                              core_tensor *cache, int64_t at)
{
    int64_t count = core_x_size(x, 1);
    core_tensor *q, *k, *v;

    x = linear(m, "c_attn", x);
    x = core_x_reshape(x, CORE_SIZES(1, count, 3, -1, HEAD));
    x = core_x_permute(x, CORE_SIZES(2, 0, 3, 1, 4));
    q = core_x_part(x, "0");
    core_x_copy_(core_x_part(cache, "..., *:*, :", at, at + count),
                 core_x_part(x, "1:"));
    cache = core_x_part(cache, "..., :*, :", at + count);
    CORE_UNPACK(core_x_unbind(cache), &k, &v);
    x = core_x_scaled_dot_product_attention(q, k, v, NULL, 0, count > 1);
    return linear(m, "c_proj", core_x_flatten(core_x_transpose(x, 1, 2), 2));
}

static core_tensor *block(core_module *m, core_tensor *x, core_tensor *cache,
                          int64_t at)
{
    core_tensor *y = core_x_apply_layer_norm(m, "ln_1", x);

    x = core_x_add(x, attention(core_x_nn_child(m, "attn"), y, cache, at));
    y = core_x_apply_layer_norm(m, "ln_2", x);
    y = core_x_gelu(linear(m, "mlp.c_fc", y), "tanh");
    return core_x_add(x, linear(m, "mlp.c_proj", y));
}

/* Returns the most probable token after `count` tokens at positions `at`…  The
 * cache has those of all blocks. */
static core_status next_token(core_module *m, core_tensor *cache,
                              const int64_t *tokens, int64_t count, int64_t at,
                              int64_t *out_token)
{
    core_scope scope = core_scope_begin();
    core_tensor *x, *places = core_x_arange_start(at, at + count);

    x = core_x_from_data(tokens, CORE_I64, CORE_SIZES(1, count), NULL);
    x = core_x_add(core_x_apply_embedding(m, "wte", x),
                   core_x_apply_embedding(m, "wpe", places));
    for (int i = 0; i < core_x_size(cache, 0); i++)
        x = block(core_x_nn_child(m, "h.%d", i), x, core_x_part(cache, "*", i),
                  at);
    x = core_x_apply_layer_norm(m, "ln_f", core_x_part(x, ":, -1:"));
    x = core_x_argmax(core_x_apply_linear(m, "wte", x));
    *out_token = core_x_item_int(x);
    return core_scope_end(scope);
}

static core_tensor *make_cache(core_module *m)
{
    int64_t width = core_x_size(core_x_nn_tensor(m, "wte.weight"), 1);
    int layers = 0;

    while (core_module_child(m, core_x_text("h.%d", layers)))
        layers++;
    return core_x_zeros(CORE_SIZES(layers, 2, 1, width / HEAD, PLACES, HEAD));
}

int main(int argc, char **argv)
{
    core_scope scope = core_scope_begin();
    int64_t tokens[PLACES], next = 0, at = 0, known = argc - 4;
    core_module *m;
    core_tensor *cache;

    if (known < 1 || known > PLACES || atoll(argv[3]) > PLACES - known)
        return !!fputs("usage: gpt2 FILE DEVICE COUNT TOKEN...\n", stderr);
    for (int64_t i = 0; i < known; i++)
        tokens[i] = atoll(argv[i + 4]);
    core_x_use_device(argv[2]);
    m = core_x_inference(core_x_nn_from_file(argv[1]));
    if (core_module_child(m, "transformer"))
        m = core_x_nn_child(m, "transformer");
    cache = make_cache(m);
    for (int64_t count = atoll(argv[3]); count > 0; count--) {
        CORE_CHECK(next_token(m, cache, tokens + at, known - at, at, &next));
        if (core_scope_status() != CORE_OK)
            break;
        printf("%lld\n", (long long)next);
        at = known;
        tokens[known++] = next;
    }
    return core_scope_exit(scope);
}
