/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* networks.h: seven networks whose layers are created by their first call, with
 * the structure and the names of real ones, but small: a GPT-2 and a Llama with a
 * cache, a ResNet-18, the pitch of CREPE, an LSTM that embeds speakers, and two
 * detectors of speech (silero-vad). */

#ifndef TESTS_SUPPORT_NETWORKS_H
#define TESTS_SUPPORT_NETWORKS_H

#include <libcore/network.h>

/* Numbers in -1 to 1, the same in each run. */
static core_tensor *numbers_of(core_sizes sizes)
{
    int64_t count = 1;

    for (size_t i = 0; i < sizes.count; i++)
        count *= sizes.items[i];
    return core_x_reshape(core_x_sin(core_x_arange(count, CORE_F32)), sizes);
}

/* ---------------------------------------------------------------- GPT-2 -- */

static core_tensor *gpt2_linear(core_module *m, const char *name,
                                core_tensor *x, int64_t outputs)
{
    core_sizes sizes = CORE_SIZES(core_x_size(x, -1), outputs);

    m = core_x_lazy_child(m, "%s", name);
    x = core_x_matmul(x, core_x_lazy_parameter(m, "weight", sizes, 0.2));
    sizes = CORE_SIZES(outputs);
    return core_x_add(x, core_x_lazy_parameter(m, "bias", sizes, 0));
}

static core_tensor *gpt2_attention(core_module *m, core_tensor *x,
                                   core_tensor *cache, int64_t at)
{
    int64_t t = core_x_size(x, 1), width = core_x_size(x, 2);
    core_tensor *k, *v;

    x = core_x_reshape(gpt2_linear(m, "c_attn", x, 3 * width),
                       CORE_SIZES(1, t, 3, 2, -1));
    x = core_x_permute(x, CORE_SIZES(2, 0, 3, 1, 4));
    core_x_copy_(core_x_part(cache, ":, :, :, *:*", at, at + t),
                 core_x_part(x, "1:"));
    CORE_UNPACK(core_x_unbind(core_x_part(cache, ":, :, :, :*", at + t)), &k,
                &v);
    x = core_x_scaled_dot_product_attention(core_x_part(x, "0"), k, v, NULL, 0,
                                            t > 1);
    x = core_x_flatten(core_x_transpose(x, 1, 2), 2);
    return gpt2_linear(m, "c_proj", x, width);
}

static core_tensor *gpt2_step(core_module *m, core_tensor *tokens,
                              core_tensor *cache, int64_t at)
{
    core_tensor *places = core_x_arange_start(at, at + core_x_size(tokens, 1));
    core_tensor *x = core_x_lazy_embedding(m, "wte", tokens, 11, 8), *y;

    x = core_x_add(x, core_x_lazy_embedding(m, "wpe", places, 8, 8));
    m = core_x_lazy_child(m, "h.%d", 0);
    y = core_x_lazy_layer_norm(m, "ln_1", x);
    y = gpt2_attention(core_x_lazy_child(m, "attn"), y, cache, at);
    x = core_x_add(x, y);
    y = gpt2_linear(m, "mlp.c_fc", core_x_lazy_layer_norm(m, "ln_2", x), 32);
    y = gpt2_linear(m, "mlp.c_proj", core_x_gelu(y, "tanh"), 8);
    return core_x_add(x, y);
}

static core_tensor *gpt2(core_module *m)
{
    core_tensor *cache = core_x_zeros(CORE_SIZES(2, 1, 2, 8, 4));
    core_tensor *tokens = core_x_arange(3), *x = NULL;

    tokens = core_x_unsqueeze(tokens, 0);
    for (int64_t at = 0; at < 4; at = at ? at + 1 : 3) {
        x = gpt2_step(m, tokens, cache, at);
        x = core_x_lazy_layer_norm(m, "ln_f", core_x_part(x, ":, -1:"));
        x = core_x_linear(x, core_x_nn_tensor(m, "wte.weight"));
        tokens = core_x_argmax(x, -1);
    }
    return x;
}

/* ---------------------------------------------------------------- Llama -- */

static core_tensor *llama_rotate(core_tensor *x, int64_t at)
{
    int64_t half = core_x_size(x, -1) / 2;
    core_tensor *place = core_x_arange_start(at, at + core_x_size(x, 2));
    core_tensor *pair = core_x_mul(core_x_arange(half), -1.0 / (double)half);
    core_tensor *angle = core_x_outer(place, core_x_pow_of_scalar(10000, pair));
    core_tensor *cos = core_x_cos(angle), *sin = core_x_sin(angle), *a, *b;

    CORE_UNPACK(core_x_chunk(x, 2, -1), &a, &b);
    x = core_x_sub(core_x_mul(a, cos), core_x_mul(b, sin));
    b = core_x_add(core_x_mul(b, cos), core_x_mul(a, sin));
    return core_x_cat(CORE_LIST(x, b), -1);
}

static core_tensor *llama_heads(core_module *m, const char *name,
                                core_tensor *x, int64_t count)
{
    x = core_x_lazy_linear(m, name, x, count * 4, false);
    x = core_x_reshape(x, CORE_SIZES(1, core_x_size(x, 1), count, 4));
    return core_x_transpose(x, 1, 2);
}

static core_tensor *llama_attention(core_module *m, core_tensor *x,
                                    core_tensor *cache, int64_t at)
{
    int64_t t = core_x_size(x, 1);
    core_tensor *q = llama_rotate(llama_heads(m, "q_proj", x, 4), at);
    core_tensor *k = llama_rotate(llama_heads(m, "k_proj", x, 2), at);
    core_tensor *v = llama_heads(m, "v_proj", x, 2);

    core_x_copy_(core_x_part(cache, ":, :, :, *:*", at, at + t),
                 core_x_stack(CORE_LIST(k, v)));
    CORE_UNPACK(core_x_unbind(core_x_part(cache, ":, :, :, :*", at + t)), &k,
                &v);
    x = core_x_scaled_dot_product_attention(q, k, v, NULL, 0, t > 1,
                                            core_none(), true);
    x = core_x_flatten(core_x_transpose(x, 1, 2), 2);
    return core_x_lazy_linear(m, "o_proj", x, 16, false);
}

static core_tensor *llama_mlp(core_module *m, core_tensor *x)
{
    core_tensor *gate = core_x_lazy_linear(m, "gate_proj", x, 24, false);

    x = core_x_lazy_linear(m, "up_proj", x, 24, false);
    x = core_x_mul(core_x_silu(gate), x);
    return core_x_lazy_linear(m, "down_proj", x, 16, false);
}

static core_tensor *llama_step(core_module *m, core_tensor *tokens,
                               core_tensor *cache, int64_t at)
{
    core_tensor *x =
        core_x_lazy_embedding(m, "model.embed_tokens", tokens, 11, 16);
    core_module *layer = core_x_lazy_child(m, "model.layers.%d", 0);
    core_tensor *y = core_x_lazy_rms_norm(layer, "input_layernorm", x, 1e-5);

    y = llama_attention(core_x_lazy_child(layer, "self_attn"), y, cache, at);
    x = core_x_add(x, y);
    y = core_x_lazy_rms_norm(layer, "post_attention_layernorm", x, 1e-5);
    x = core_x_add(x, llama_mlp(core_x_lazy_child(layer, "mlp"), y));
    x = core_x_lazy_rms_norm(m, "model.norm", core_x_part(x, ":, -1:"), 1e-5);
    return core_x_lazy_linear(m, "lm_head", x, 11, false);
}

static core_tensor *llama(core_module *m)
{
    core_tensor *cache = core_x_zeros(CORE_SIZES(2, 1, 2, 8, 4));
    core_tensor *tokens = core_x_unsqueeze(core_x_arange(3), 0), *x = NULL;

    for (int64_t at = 0; at < 4; at = at ? at + 1 : 3) {
        x = llama_step(m, tokens, cache, at);
        tokens = core_x_argmax(x, -1);
    }
    return x;
}

/* ------------------------------------------------------------ ResNet-18 -- */

static core_tensor *resnet_conv(core_module *m, const char *conv,
                                const char *bn, core_tensor *x, int64_t outputs,
                                int64_t kernel, int64_t stride)
{
    x = core_x_lazy_conv2d(m, conv, x, outputs, {kernel}, {stride},
                           {kernel / 2}, .no_bias = true);
    return core_x_lazy_batch_norm(m, bn, x);
}

static core_tensor *resnet_block(core_module *m, core_tensor *x,
                                 int64_t outputs, int64_t stride)
{
    core_tensor *y = resnet_conv(m, "conv1", "bn1", x, outputs, 3, stride);

    y = resnet_conv(m, "conv2", "bn2", core_x_relu(y), outputs, 3, 1);
    if (core_x_size(x, 1) != outputs)
        x = resnet_conv(m, "downsample.0", "downsample.1", x, outputs, 1,
                        stride);
    return core_x_relu(core_x_add(x, y));
}

static core_tensor *resnet18(core_module *m)
{
    core_tensor *x = numbers_of(CORE_SIZES(2, 3, 16, 16));

    x = core_x_relu(resnet_conv(m, "conv1", "bn1", x, 2, 7, 2));
    x = core_x_max_pool2d(x, CORE_SIZES(3), CORE_SIZES(2), CORE_SIZES(1));
    for (int i = 0; i < 4; i++) {
        core_module *layer = core_x_lazy_child(m, "layer%d", i + 1);

        x = resnet_block(core_x_lazy_child(layer, "0"), x, 2 << i, i ? 2 : 1);
        x = resnet_block(core_x_lazy_child(layer, "1"), x, 2 << i, 1);
    }
    x = core_x_lazy_linear(m, "fc", core_x_mean_dim(x, CORE_SIZES(2, 3)), 5);
    return core_x_softmax(x, 1);
}

/* ---------------------------------------------------------------- CREPE -- */

static core_tensor *crepe_frames(core_tensor *audio)
{
    core_tensor *x = core_x_pad(audio, CORE_SIZES(64, 64)), *std;

    x = core_x_unfold(x, 0, 128, 40);
    x = core_x_sub(x, core_x_mean_dim(x, CORE_SIZES(1), true));
    std = core_x_std_dim(x, CORE_SIZES(1), true, true);
    return core_x_div(x, core_x_clamp(std, 1e-10));
}

static core_tensor *crepe_pitch(core_tensor *p)
{
    core_tensor *best = core_x_argmax(p, 1, true), *bins = core_x_arange(30);
    core_tensor *cents = core_x_add(core_x_mul(bins, 20), 1997.379);
    core_tensor *near = core_x_le(core_x_abs(core_x_sub(bins, best)), 4);

    p = core_x_mul(p, near);
    cents = core_x_sum_dim(core_x_mul(p, cents), CORE_SIZES(1));
    cents = core_x_div(cents, core_x_sum_dim(p, CORE_SIZES(1)));
    return core_x_mul(core_x_pow_of_scalar(2, core_x_div(cents, 1200)), 10);
}

static core_tensor *crepe(core_module *m)
{
    core_tensor *x = crepe_frames(numbers_of(CORE_SIZES(100)));

    x = core_x_part(x, ":, None, :, None");
    for (int i = 1; i < 3; i++) {
        x = core_x_pad(x, CORE_SIZES(0, 0, 3, 4));
        x = core_x_lazy_conv2d(m, core_x_text("conv%d", i), x, 4, {8, 1},
                               {i == 1 ? 4 : 1, 1});
        x = core_x_lazy_batch_norm(m, core_x_text("conv%d_BN", i),
                                   core_x_relu(x), 0.001);
        x = core_x_max_pool2d(x, CORE_SIZES(2, 1));
    }
    x = core_x_flatten(core_x_permute(x, CORE_SIZES(0, 2, 1, 3)), 1);
    x = core_x_sigmoid(core_x_lazy_linear(m, "classifier", x, 30));
    return core_x_add(crepe_pitch(x), core_x_max_dim(x, 1).values);
}

/* -------------------------------------------------------------- speaker -- */

static core_tensor *speaker(core_module *m)
{
    core_tensor *x = numbers_of(CORE_SIZES(20, 5)), *y, *h, *c;

    x = core_x_transpose(core_x_unfold(x, 0, 8, 4), 1, 2);
    CORE_UNPACK(
        core_x_lazy_lstm(m, "lstm", CORE_LIST(x), 6, 3, .batch_first = true),
        &y, &h, &c);
    h = core_x_lazy_linear(m, "linear", core_x_part(h, "-1"), 6);
    h = core_x_normalize(core_x_relu(h), 1);
    return core_x_normalize(core_x_mean_dim(h, CORE_SIZES(0)), 0);
}

/* ------------------------------------------------------------ silero-vad -- */

static core_tensor *silero_spectrum(core_module *m, core_tensor *x)
{
    core_tensor *real, *imaginary;

    x = core_x_pad(core_x_unsqueeze(x, 1), CORE_SIZES(6, 6), "reflect");
    x = core_x_conv1d(
        x, core_x_lazy_parameter(m, "basis", CORE_SIZES(10, 1, 8), 1), NULL,
        CORE_SIZES(4));
    CORE_UNPACK(core_x_chunk(x, 2, 1), &real, &imaginary);
    return core_x_hypot(real, imaginary);
}

static core_tensor *silero5(core_module *m)
{
    core_tensor *audio, *speech, *x, *h = NULL, *c = NULL;

    audio = core_x_unfold(numbers_of(CORE_SIZES(40)), 0, 16, 12);
    speech = core_x_empty(CORE_SIZES(3, 1));
    for (int i = 0; i < 3; i++) {
        x = silero_spectrum(m, core_x_part(audio, "*:*", i, i + 1));
        for (int k = 0; k < 2; k++)
            x = core_x_relu(core_x_lazy_conv1d(m, core_x_text("encoder.%d", k),
                                               x, 4, {3}, {k + 1}, {1}));
        x = core_x_part(x, ":, :, 0");
        CORE_UNPACK(core_x_lazy_lstm_cell(m, "rnn", CORE_LIST(x, h, c), 4), &h,
                    &c);
        x = core_x_relu(core_x_unsqueeze(h, 2));
        x = core_x_sigmoid(core_x_lazy_conv1d(m, "out.1", x, 1, {1}));
        core_x_copy_(core_x_part(speech, "*:*", i, i + 1),
                     core_x_mean_dim(x, CORE_SIZES(2)));
    }
    return speech;
}

static core_tensor *silero4_block(core_module *m, core_tensor *x,
                                  int64_t outputs)
{
    int64_t inputs = core_x_size(x, 1);
    core_tensor *y = core_x_lazy_conv1d(m, "dw_conv.0", x, inputs, {5},
                                        .padding = {2}, .groups = inputs);

    y = core_x_lazy_conv1d(m, "pw_conv.0", core_x_relu(y), outputs, {1});
    if (inputs != outputs)
        x = core_x_lazy_conv1d(m, "proj", x, outputs, {1});
    return core_x_relu(core_x_add(y, x));
}

static core_tensor *silero4_normalize(core_module *m, core_tensor *x)
{
    core_tensor *mean,
        *filter = core_x_lazy_parameter(m, "filter", CORE_SIZES(1, 1, 3), 1);

    x = core_x_log1p(core_x_mul(x, 1 << 20));
    mean = core_x_mean_dim(x, CORE_SIZES(1), true);
    mean = core_x_conv1d(core_x_pad(mean, CORE_SIZES(1, 1), "reflect"), filter);
    return core_x_sub(x, core_x_mean_dim(mean, CORE_SIZES(2), true));
}

static core_tensor *silero4_step(core_module *m, core_tensor *x,
                                 core_tensor **h, core_tensor **c)
{
    x = silero_spectrum(m, x);
    x = core_x_cat(CORE_LIST(x, silero4_normalize(m, x)), 1);
    x = silero4_block(core_x_lazy_child(m, "first_layer.0"), x, 4);
    x = core_x_lazy_conv1d(m, "encoder.0", x, 4, {1}, {2});
    x = core_x_relu(core_x_lazy_batch_norm(m, "encoder.1", x));
    x = core_x_permute(x, CORE_SIZES(2, 0, 1));
    CORE_UNPACK(core_x_lazy_lstm(m, "lstm", CORE_LIST(x, *h, *c), 4, 2), &x, h,
                c);
    x = core_x_relu(core_x_permute(x, CORE_SIZES(1, 2, 0)));
    x = core_x_sigmoid(core_x_lazy_conv1d(m, "decoder.1", x, 1, {1}));
    return core_x_mean_dim(x, CORE_SIZES(2));
}

static core_tensor *silero4(core_module *m)
{
    core_tensor *audio, *speech, *h = NULL, *c = NULL;

    audio = core_x_unfold(numbers_of(CORE_SIZES(32)), 0, 16, 16);
    speech = core_x_empty(CORE_SIZES(2, 1));
    for (int i = 0; i < 2; i++)
        core_x_copy_(
            core_x_part(speech, "*:*", i, i + 1),
            silero4_step(m, core_x_part(audio, "*:*", i, i + 1), &h, &c));
    return speech;
}

/* Each computes a result with the layers of a module. */
static const struct {
    const char *name;
    core_tensor *(*function)(core_module *m);
} networks[] = {
    {"gpt2", gpt2},       {"llama", llama},     {"resnet18", resnet18},
    {"crepe", crepe},     {"speaker", speaker}, {"silero5", silero5},
    {"silero4", silero4},
};

#endif
