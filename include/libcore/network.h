/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* network.h: networks, their optimizers and files in the style of
 * expressions.h: calls that return what they create into a scope.
 *
 * A program for a network whose weights are in a file creates no layers.  All
 * sizes are those of the file, and its names are paths:
 *
 *     CORE_MAIN(argc, argv)
 *     {
 *         core_module *m = core_x_inference(core_x_nn_from_file(argv[1]));
 *         core_tensor *x = core_x_load(argv[2], "x");
 *
 *         x = core_x_relu(core_x_apply_linear(m, "hidden", x));
 *         core_x_print(core_x_apply_linear(m, "output", x));
 *     }
 *
 * Other networks consist of modules:
 *
 *     static core_tensor *block(core_module *m, core_tensor *x)
 *     {
 *         core_tensor *y = core_x_relu(core_x_children(m, x, "conv1", "bn1"));
 *
 *         return core_x_add(x, y);
 *     }
 *
 *     core_module *m = core_x_nn_module(NULL, NULL, block);
 *
 *     core_x_nn_conv2d(m, "conv1", 8, 8, {3}, .padding = {1});
 *     core_x_nn_batch_norm(m, "bn1", 8);
 *
 * The first arguments of a layer are its parent and its name.  With the parent
 * NULL the innermost scope owns the layer; with the name NULL it is the number
 * of the parent's children so far, as in a sequence.  A name may be a path,
 * such as "attn.proj" or "layers." (core_x_nn_add).  Parameters are f32 and on
 * the default device; core_module_to changes that.  The functions of nn.h
 * with the same names, core_nn_…, describe the layers.
 *
 * A call returns the module, borrowed, or NULL after an error, which the scope
 * keeps.  core_module_retain makes one outlive its scope.
 *
 * Threads.  Scopes are those of the calling thread (scope.h); nn.h and optim.h
 * say how threads share modules and optimizers.
 *
 * The calls with options are for C.  Options that are not named have the order
 * of the fields of their struct after struct_size, dims or kind. */

#ifndef LIBCORE_NETWORK_H
#define LIBCORE_NETWORK_H

#include "device.h"
#include "expressions.h"
#include "nn.h"
#include "optim.h"
#include "safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- modules -- */

/* A module with one input, whose output a function computes as an expression
 * (core_nn_expression).  The function's name is its type in messages.  Other
 * functions may compute with a module, too, such as those of several inputs. */
#define core_x_nn_module(parent, name, function) \
    core_x_nn_module_at(CORE_HERE, parent, name, #function, function)
static inline core_module *core_x_nn_module_at(
    const char *where, core_module *parent, const char *name, const char *type,
    core_tensor *(*function)(core_module *module, core_tensor *input))
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_expression(type, function, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* A module that only contains others: without a function. */
#define core_x_nn_container(parent, name) \
    core_x_nn_container_at(CORE_HERE, parent, name)
static inline core_module *core_x_nn_container_at(const char *where,
                                                  core_module *parent,
                                                  const char *name)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_module_create("Container", NULL, NULL, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* A sequence without modules.  Layers with this parent and without names are
 * its modules. */
#define core_x_nn_sequential(parent, name) \
    core_x_nn_sequential_at(CORE_HERE, parent, name)
static inline core_module *core_x_nn_sequential_at(const char *where,
                                                   core_module *parent,
                                                   const char *name)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_sequential(NULL, 0, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_function, such as core_relu. */
#define core_x_nn_function(parent, name, function) \
    core_x_nn_function_at(CORE_HERE, parent, name, function)
static inline core_module *core_x_nn_function_at(
    const char *where, core_module *parent, const char *name,
    core_status (*function)(core_tensor *input, core_tensor **out))
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_function(function, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_dropout with the probability p. */
#define core_x_nn_dropout(parent, name, p) \
    core_x_nn_dropout_at(CORE_HERE, parent, name, p)
static inline core_module *core_x_nn_dropout_at(const char *where,
                                                core_module *parent,
                                                const char *name, double p)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_dropout(p, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_module_add_parameter: adds a trained parameter to a module.  The name
 * may be a path, as that of a layer; its last name must be given.  Returns the
 * tensor, borrowed, or NULL after an error. */
#define core_x_nn_parameter(module, name, tensor) \
    core_x_nn_member_at(CORE_HERE, module, name, true, tensor)
/* core_module_add_buffer: adds a tensor that is not trained, in the same
 * way. */
#define core_x_nn_buffer(module, name, tensor) \
    core_x_nn_member_at(CORE_HERE, module, name, false, tensor)

/* --------------------------------------------------------------- layers -- */

/* core_nn_linear(inputs, outputs, bool bias=true). */
#define core_x_nn_linear(...) CORE_X_CALL(core_x_nn_linear_with_, __VA_ARGS__)
#define core_x_nn_linear_with_4(...) \
    core_x_nn_linear_at(CORE_HERE, __VA_ARGS__, true)
#define core_x_nn_linear_with_5(...) core_x_nn_linear_at(CORE_HERE, __VA_ARGS__)
static inline core_module *core_x_nn_linear_at(const char *where,
                                               core_module *parent,
                                               const char *name, int64_t inputs,
                                               int64_t outputs, bool bias)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_linear(inputs, outputs, bias, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_embedding(count, size, padding=-1). */
#define core_x_nn_embedding(...) \
    CORE_X_CALL(core_x_nn_embedding_with_, __VA_ARGS__)
#define core_x_nn_embedding_with_4(...) \
    core_x_nn_embedding_at(CORE_HERE, __VA_ARGS__, -1)
#define core_x_nn_embedding_with_5(...) \
    core_x_nn_embedding_at(CORE_HERE, __VA_ARGS__)
static inline core_module *core_x_nn_embedding_at(const char *where,
                                                  core_module *parent,
                                                  const char *name,
                                                  int64_t count, int64_t size,
                                                  int64_t padding)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_embedding(count, size, padding, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_batch_norm(channels, eps=1e-5, momentum=0.1), affine. */
#define core_x_nn_batch_norm(...) \
    CORE_X_CALL(core_x_nn_batch_norm_with_, __VA_ARGS__)
#define core_x_nn_batch_norm_with_3(...) \
    core_x_nn_batch_norm_at(CORE_HERE, __VA_ARGS__, 1e-5, 0.1)
#define core_x_nn_batch_norm_with_4(...) \
    core_x_nn_batch_norm_at(CORE_HERE, __VA_ARGS__, 0.1)
#define core_x_nn_batch_norm_with_5(...) \
    core_x_nn_batch_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_module *core_x_nn_batch_norm_at(const char *where,
                                                   core_module *parent,
                                                   const char *name,
                                                   int64_t channels, double eps,
                                                   double momentum)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status =
            core_nn_batch_norm(channels, eps, momentum, true, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_group_norm(groups, channels, eps=1e-5), affine. */
#define core_x_nn_group_norm(...) \
    CORE_X_CALL(core_x_nn_group_norm_with_, __VA_ARGS__)
#define core_x_nn_group_norm_with_4(...) \
    core_x_nn_group_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_nn_group_norm_with_5(...) \
    core_x_nn_group_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_module *core_x_nn_group_norm_at(const char *where,
                                                   core_module *parent,
                                                   const char *name,
                                                   int64_t groups,
                                                   int64_t channels, double eps)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_group_norm(groups, channels, eps, true, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_layer_norm of the last dimension, (size, eps=1e-5), affine. */
#define core_x_nn_layer_norm(...) \
    CORE_X_CALL(core_x_nn_layer_norm_with_, __VA_ARGS__)
#define core_x_nn_layer_norm_with_3(...) \
    core_x_nn_layer_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_nn_layer_norm_with_4(...) \
    core_x_nn_layer_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_module *core_x_nn_layer_norm_at(const char *where,
                                                   core_module *parent,
                                                   const char *name,
                                                   int64_t size, double eps)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_layer_norm(&size, 1, eps, true, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_rms_norm of the last dimension, (size, eps=2^-23), with a weight.
 * The default is the machine epsilon of f32, as that of torch.nn.RMSNorm. */
#define core_x_nn_rms_norm(...) \
    CORE_X_CALL(core_x_nn_rms_norm_with_, __VA_ARGS__)
#define core_x_nn_rms_norm_with_3(...) \
    core_x_nn_rms_norm_at(CORE_HERE, __VA_ARGS__, 1.1920928955078125e-7)
#define core_x_nn_rms_norm_with_4(...) \
    core_x_nn_rms_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_module *core_x_nn_rms_norm_at(const char *where,
                                                 core_module *parent,
                                                 const char *name, int64_t size,
                                                 double eps)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_rms_norm(&size, 1, eps, true, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_conv of one, two or three dimensions:
 *
 *     core_x_nn_conv2d(m, "conv", 3, 64, {7}, {2}, {3}, .no_bias = true);
 *
 * in_channels, out_channels, kernel_size, stride, padding. */
#define core_x_nn_conv1d(parent, name, ...) \
    core_x_nn_conv_at(                      \
        CORE_HERE, parent, name,            \
        CORE_OPTIONS(core_nn_conv_options, .dims = 1, __VA_ARGS__))
#define core_x_nn_conv2d(parent, name, ...) \
    core_x_nn_conv_at(                      \
        CORE_HERE, parent, name,            \
        CORE_OPTIONS(core_nn_conv_options, .dims = 2, __VA_ARGS__))
#define core_x_nn_conv3d(parent, name, ...) \
    core_x_nn_conv_at(                      \
        CORE_HERE, parent, name,            \
        CORE_OPTIONS(core_nn_conv_options, .dims = 3, __VA_ARGS__))
static inline core_module *core_x_nn_conv_at(
    const char *where, core_module *parent, const char *name,
    const core_nn_conv_options *options)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_conv(options, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_recurrent:
 *
 *     core_x_nn_lstm(m, "lstm", 40, 256, 3, .batch_first = true);
 *
 * input_size, hidden_size, layers.  core_x_forward calls the layer, and
 * core_x_lazy_lstm below creates and calls it. */
#define core_x_nn_lstm(parent, name, ...)                          \
    core_x_nn_recurrent_at(CORE_HERE, parent, name,                \
                           CORE_OPTIONS(core_nn_recurrent_options, \
                                        .kind = CORE_NN_LSTM, __VA_ARGS__))
#define core_x_nn_gru(parent, name, ...)                           \
    core_x_nn_recurrent_at(CORE_HERE, parent, name,                \
                           CORE_OPTIONS(core_nn_recurrent_options, \
                                        .kind = CORE_NN_GRU, __VA_ARGS__))
/* The same of one step, a cell: input_size, hidden_size.
 *
 *     CORE_UNPACK(core_x_forward(cell, x, h, c), &h, &c); */
#define core_x_nn_lstm_cell(parent, name, ...)                              \
    core_x_nn_recurrent_at(CORE_HERE, parent, name,                         \
                           CORE_OPTIONS(core_nn_recurrent_options,          \
                                        .cell = true, .kind = CORE_NN_LSTM, \
                                        __VA_ARGS__))
#define core_x_nn_gru_cell(parent, name, ...)                              \
    core_x_nn_recurrent_at(CORE_HERE, parent, name,                        \
                           CORE_OPTIONS(core_nn_recurrent_options,         \
                                        .cell = true, .kind = CORE_NN_GRU, \
                                        __VA_ARGS__))
/* The same with the kind before input_size. */
#define core_x_nn_recurrent(parent, name, ...) \
    core_x_nn_recurrent_at(                    \
        CORE_HERE, parent, name,               \
        CORE_OPTIONS(core_nn_recurrent_options, .kind = __VA_ARGS__))
static inline core_module *core_x_nn_recurrent_at(
    const char *where, core_module *parent, const char *name,
    const core_nn_recurrent_options *options)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_recurrent(options, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* core_nn_attention: (.size = 512, .heads = 8, .causal = true). */
#define core_x_nn_attention(parent, name, ...) \
    core_x_nn_attention_at(                    \
        CORE_HERE, parent, name,               \
        CORE_OPTIONS(core_nn_attention_options, __VA_ARGS__))
static inline core_module *core_x_nn_attention_at(
    const char *where, core_module *parent, const char *name,
    const core_nn_attention_options *options)
{
    core_module *module = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_nn_attention(options, NULL, &module);
    return core_x_nn_add_at(where, parent, name, status, &module);
}

/* ------------------------------------------------------------ functions -- */

/* Divides x by its 2-norm along a dimension, or by 1e-12 if the norm is less:
 * x / max(|x|, 1e-12), as torch.nn.functional.normalize does. */
#define core_x_normalize(x, dim) core_x_normalize_at(CORE_HERE, x, dim)
static inline core_tensor *core_x_normalize_at(const char *where,
                                               core_tensor *x, int64_t dim)
{
    core_tensor *norm = core_x_linalg_vector_norm_at(
        where, x, core_int(2), core_sizes_from(&dim, 1), true, CORE_DTYPE_NONE);

    norm = core_x_clamp_min_at(where, norm, core_float(1e-12));
    return core_x_div_at(where, x, norm);
}

/* Resizes images, or signals, to these sizes of their last dimensions:
 *
 *     core_x_interpolate(x, CORE_SIZES(64, 64), "bilinear")
 *
 * (x, sizes, mode, align_corners=false).  x: [N, C, sizes...].  mode, as of
 * torch.nn.functional.interpolate: "nearest" or "area" of 1 to 3 sizes,
 * "linear" of 1, "bilinear" or "bicubic" of 2, "trilinear" of 3.
 * INVALID_ARGUMENT: another mode, or align_corners with "nearest" or "area".
 * The operators upsample_....vec accept factors instead of sizes. */
#define core_x_interpolate(...) \
    CORE_X_CALL(core_x_interpolate_with_, __VA_ARGS__)
#define core_x_interpolate_with_3(...) \
    core_x_interpolate_at(CORE_HERE, __VA_ARGS__, false)
#define core_x_interpolate_with_4(...) \
    core_x_interpolate_at(CORE_HERE, __VA_ARGS__)
/* Reports that interpolation does not accept these arguments. */
static inline void core_x_interpolate_refuse(const char *where,
                                             core_sizes sizes, const char *mode,
                                             bool align_corners)
{
    char text[200] = "core_x_interpolate: the argument mode is NULL";

    if (mode && align_corners)
        (void)snprintf(text, sizeof text,
                       "core_x_interpolate: align_corners is true for mode "
                       "\"%.20s\"; only the linear modes and bicubic accept it",
                       mode);
    else if (mode)
        (void)snprintf(
            text, sizeof text,
            "core_x_interpolate: mode is \"%.20s\" for %zu sizes; accepted: "
            "nearest and area of 1 to 3, linear of 1, bilinear and bicubic of "
            "2, trilinear of 3",
            mode, sizes.count);
    (void)core_scope_check_at(
        where, "core_x_interpolate",
        core_error_set(CORE_ERROR_INVALID_ARGUMENT, text));
}

static inline core_tensor *core_x_interpolate_smooth_at(const char *where,
                                                        core_tensor *x,
                                                        core_sizes sizes,
                                                        const char *mode,
                                                        bool align_corners)
{
    if (sizes.count == 1 && strcmp(mode, "linear") == 0)
        return core_x_upsample_linear1d_vec_at(where, x, sizes, align_corners,
                                               CORE_NO_FLOATS);
    if (sizes.count == 2 && strcmp(mode, "bilinear") == 0)
        return core_x_upsample_bilinear2d_vec_at(where, x, sizes, align_corners,
                                                 CORE_NO_FLOATS);
    if (sizes.count == 2 && strcmp(mode, "bicubic") == 0)
        return core_x_upsample_bicubic2d_vec_at(where, x, sizes, align_corners,
                                                CORE_NO_FLOATS);
    if (sizes.count == 3 && strcmp(mode, "trilinear") == 0)
        return core_x_upsample_trilinear3d_vec_at(
            where, x, sizes, align_corners, CORE_NO_FLOATS);
    core_x_interpolate_refuse(where, sizes, mode, false);
    return NULL;
}

static inline core_tensor *core_x_interpolate_at(const char *where,
                                                 core_tensor *x,
                                                 core_sizes sizes,
                                                 const char *mode,
                                                 bool align_corners)
{
    typedef core_tensor *(*nearest)(const char *, core_tensor *, core_sizes,
                                    core_floats);
    typedef core_tensor *(*area)(const char *, core_tensor *, core_sizes);
    static const nearest by_nearest[] = {core_x_upsample_nearest1d_vec_at,
                                         core_x_upsample_nearest2d_vec_at,
                                         core_x_upsample_nearest3d_vec_at};
    static const area by_area[] = {core_x_adaptive_avg_pool1d_at,
                                   core_x_adaptive_avg_pool2d_at,
                                   core_x_adaptive_avg_pool3d_at};
    bool is_nearest = mode && strcmp(mode, "nearest") == 0;
    bool is_area = mode && strcmp(mode, "area") == 0;

    if (core_scope_check_at(where, "core_x_interpolate", core_scope_status()) !=
        CORE_OK)
        return NULL;
    if (!mode || (align_corners && (is_nearest || is_area))) {
        core_x_interpolate_refuse(where, sizes, mode, align_corners);
        return NULL;
    }
    if (is_nearest && sizes.count >= 1 && sizes.count <= 3)
        return by_nearest[sizes.count - 1](where, x, sizes, CORE_NO_FLOATS);
    if (is_area && sizes.count >= 1 && sizes.count <= 3)
        return by_area[sizes.count - 1](where, x, sizes);
    return core_x_interpolate_smooth_at(where, x, sizes, mode, align_corners);
}

/* ----------------------------------------- layers of a file's weights -- */

/* Each of these computes a layer with the tensors `weight`, `bias` and so on of
 * the child at a path.  The module is that of a file (core_x_nn_from_file) or
 * has such a layer:
 *
 *     m = core_x_nn_from_file("weights.safetensors");
 *     x = core_x_relu(core_x_apply_linear(m, "fc1", x));
 *
 * The sizes are those of the tensors.  `bias` may be missing, and in group_norm
 * and batch_norm also `weight`.  The innermost scope owns the result; NULL
 * after an error of the scope.  NOT_FOUND: no child has this path, or the child
 * has no tensor of a name that the layer needs. */

/* linear(weight, bias). */
#define core_x_apply_linear(module, path, x) \
    core_x_apply_linear_at(CORE_HERE, module, path, x)
static inline core_tensor *core_x_apply_linear_at(const char *where,
                                                  core_module *module,
                                                  const char *path,
                                                  core_tensor *x)
{
    core_tensor *weight = NULL;
    core_module *m = core_x_apply_find_at(where, "core_x_apply_linear", module,
                                          path, "weight", &weight);

    if (!m)
        return NULL;
    return core_x_linear_at(where, x, weight, core_module_tensor(m, "bias"));
}

/* embedding(weight): x has the indices. */
#define core_x_apply_embedding(module, path, x) \
    core_x_apply_embedding_at(CORE_HERE, module, path, x)
static inline core_tensor *core_x_apply_embedding_at(const char *where,
                                                     core_module *module,
                                                     const char *path,
                                                     core_tensor *x)
{
    core_tensor *weight = NULL;
    core_module *m = core_x_apply_find_at(where, "core_x_apply_embedding",
                                          module, path, "weight", &weight);

    if (!m)
        return NULL;
    return core_x_embedding_at(where, weight, x, -1, false, false);
}

/* A convolution of as many dimensions as `weight` has, less 2: (module, path,
 * x, stride=CORE_SIZES(1), padding=CORE_SIZES(0), dilation=CORE_SIZES(1),
 * groups=1), in which CORE_NO_SIZES is the default. */
#define core_x_apply_conv(...) CORE_X_CALL(core_x_apply_conv_with_, __VA_ARGS__)
#define core_x_apply_conv_with_3(...)                                          \
    core_x_apply_conv_at(CORE_HERE, __VA_ARGS__, CORE_NO_SIZES, CORE_NO_SIZES, \
                         CORE_NO_SIZES, 1)
#define core_x_apply_conv_with_4(...)                                          \
    core_x_apply_conv_at(CORE_HERE, __VA_ARGS__, CORE_NO_SIZES, CORE_NO_SIZES, \
                         1)
#define core_x_apply_conv_with_5(...) \
    core_x_apply_conv_at(CORE_HERE, __VA_ARGS__, CORE_NO_SIZES, 1)
#define core_x_apply_conv_with_6(...) \
    core_x_apply_conv_at(CORE_HERE, __VA_ARGS__, 1)
#define core_x_apply_conv_with_7(...) \
    core_x_apply_conv_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_apply_conv_at(
    const char *where, core_module *module, const char *path, core_tensor *x,
    core_sizes stride, core_sizes padding, core_sizes dilation, int64_t groups)
{
    core_tensor *weight = NULL;
    core_module *m = core_x_apply_find_at(where, "core_x_apply_conv", module,
                                          path, "weight", &weight);
    core_tensor *bias = core_module_tensor(m, "bias");

    if (!m)
        return NULL;
    switch (core_tensor_ndim(weight)) {
    case 3:
        return core_x_conv1d_at(where, x, weight, bias, stride, padding,
                                dilation, groups);
    case 5:
        return core_x_conv3d_at(where, x, weight, bias, stride, padding,
                                dilation, groups);
    default:
        return core_x_conv2d_at(where, x, weight, bias, stride, padding,
                                dilation, groups);
    }
}

/* The same with the options of core_nn_conv by name, also transposed:
 *
 *     core_x_apply_conv_options(m, "up", x, .stride = {2}, .transposed = true);
 *
 * The channels, the kernel, dims and no_bias are those of the tensors. */
#define core_x_apply_conv_options(module, path, x, ...) \
    core_x_apply_conv_options_at(                       \
        CORE_HERE, module, path, x,                     \
        CORE_OPTIONS(core_nn_conv_options, __VA_ARGS__))
static inline core_tensor *core_x_apply_conv_options_at(
    const char *where, core_module *module, const char *path, core_tensor *x,
    const core_nn_conv_options *o)
{
    typedef core_tensor *(*transposed)(
        const char *, core_tensor *, core_tensor *, core_tensor *, core_sizes,
        core_sizes, core_sizes, int64_t, core_sizes);
    static const transposed by_dims[] = {core_x_conv_transpose1d_at,
                                         core_x_conv_transpose2d_at,
                                         core_x_conv_transpose3d_at};
    core_nn_conv_options own;
    core_tensor *weight = NULL;
    core_module *m = core_x_apply_find_at(where, "core_x_apply_conv", module,
                                          path, "weight", &weight);
    size_t dims = m ? core_tensor_ndim(weight) - 2 : 0;
    core_sizes strides, paddings, dilations;

    if (!m)
        return NULL;
    if (dims < 1 || dims > 3)
        dims = 2; /* which refuses the weight */
    if (!core_x_apply_conv_complete_at(where, o, dims, &own))
        return NULL;
    strides = core_sizes_from(own.stride, dims);
    paddings = core_sizes_from(own.padding, dims);
    dilations = core_sizes_from(own.dilation, dims);
    if (!own.transposed)
        return core_x_apply_conv_at(where, module, path, x, strides, paddings,
                                    dilations, own.groups);
    return by_dims[dims - 1](
        where, x, weight, core_module_tensor(m, "bias"), strides, paddings,
        core_sizes_from(own.output_padding, dims), own.groups, dilations);
}

/* layer_norm over the dimensions of `weight`: (module, path, x, eps=1e-5). */
#define core_x_apply_layer_norm(...) \
    CORE_X_CALL(core_x_apply_layer_norm_with_, __VA_ARGS__)
#define core_x_apply_layer_norm_with_3(...) \
    core_x_apply_layer_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_apply_layer_norm_with_4(...) \
    core_x_apply_layer_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_apply_layer_norm_at(const char *where,
                                                      core_module *module,
                                                      const char *path,
                                                      core_tensor *x,
                                                      double eps)
{
    core_tensor *weight = NULL;
    core_module *m = core_x_apply_find_at(where, "core_x_apply_layer_norm",
                                          module, path, "weight", &weight);

    if (!m)
        return NULL;
    return core_x_layer_norm_at(
        where, x,
        core_sizes_from(core_tensor_sizes(weight), core_tensor_ndim(weight)),
        weight, core_module_tensor(m, "bias"), eps);
}

/* rms_norm over the dimensions of `weight`: (module, path, x, eps=2^-23). */
#define core_x_apply_rms_norm(...) \
    CORE_X_CALL(core_x_apply_rms_norm_with_, __VA_ARGS__)
#define core_x_apply_rms_norm_with_3(...) \
    core_x_apply_rms_norm_at(CORE_HERE, __VA_ARGS__, 1.1920928955078125e-7)
#define core_x_apply_rms_norm_with_4(...) \
    core_x_apply_rms_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_apply_rms_norm_at(const char *where,
                                                    core_module *module,
                                                    const char *path,
                                                    core_tensor *x, double eps)
{
    core_tensor *weight = NULL;
    core_module *m = core_x_apply_find_at(where, "core_x_apply_rms_norm",
                                          module, path, "weight", &weight);

    if (!m)
        return NULL;
    return core_x_rms_norm_at(
        where, x,
        core_sizes_from(core_tensor_sizes(weight), core_tensor_ndim(weight)),
        weight, core_float(eps));
}

/* group_norm: (module, path, x, groups, eps=1e-5). */
#define core_x_apply_group_norm(...) \
    CORE_X_CALL(core_x_apply_group_norm_with_, __VA_ARGS__)
#define core_x_apply_group_norm_with_4(...) \
    core_x_apply_group_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_apply_group_norm_with_5(...) \
    core_x_apply_group_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_apply_group_norm_at(
    const char *where, core_module *module, const char *path, core_tensor *x,
    int64_t groups, double eps)
{
    core_module *m = core_x_apply_find_at(where, "core_x_apply_group_norm",
                                          module, path, NULL, NULL);

    if (!m)
        return NULL;
    return core_x_group_norm_at(where, x, groups,
                                core_module_tensor(m, "weight"),
                                core_module_tensor(m, "bias"), eps);
}

/* batch_norm with running_mean and running_var: (module, path, x, eps=1e-5).
 * It is that of inference even if the module is in training. */
#define core_x_apply_batch_norm(...) \
    CORE_X_CALL(core_x_apply_batch_norm_with_, __VA_ARGS__)
#define core_x_apply_batch_norm_with_3(...) \
    core_x_apply_batch_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_apply_batch_norm_with_4(...) \
    core_x_apply_batch_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_apply_batch_norm_at(const char *where,
                                                      core_module *module,
                                                      const char *path,
                                                      core_tensor *x,
                                                      double eps)
{
    core_tensor *mean = NULL, *variance = NULL;
    core_module *m;

    (void)core_x_apply_find_at(where, "core_x_apply_batch_norm", module, path,
                               "running_mean", &mean);
    m = core_x_apply_find_at(where, "core_x_apply_batch_norm", module, path,
                             "running_var", &variance);
    if (!m)
        return NULL;
    return core_x_batch_norm_at(where, x, core_module_tensor(m, "weight"),
                                core_module_tensor(m, "bias"), mean, variance,
                                false, 0.1, eps);
}

/* ------------------------------------------- layers of the first call -- */

/* These calls create a layer when they are first called, of the sizes that the
 * input then has, and compute its output.  So a single function is the whole
 * network, as with LazyLinear of torch.nn and compact modules of Flax:
 *
 *     static core_tensor *classify(core_module *m, core_tensor *x)
 *     {
 *         x = core_x_lazy_conv2d(m, "conv", x, 32, {3}, .padding = {1});
 *         x = core_x_relu(core_x_lazy_batch_norm(m, "bn", x));
 *         return core_x_lazy_linear(m, "fc", core_x_mean_dim(x, ...), 10);
 *     }
 *
 * (module, path, x, ...): the rest as the constructors above take it, without
 * the sizes of the input.  The layer becomes the child at this path, and is
 * initialized.  Later calls only compute; the arguments after x are then
 * ignored.
 *
 * The module of a file (core_x_nn_from_file) already has tensors at the path.
 * Then the layer takes them, and compares their sizes with those given here.
 * The first call has made it a layer as the constructors create it, which can
 * be trained, too.
 *
 * A module that is not in training, as that of a file, does not get new layers,
 * whose weights would be random: NOT_FOUND.  Create an optimizer, and load a
 * file into layers of this program, after the first call:
 *
 *     core_module *m = core_x_nn_container(NULL, NULL);
 *
 *     classify(m, x);
 *     adam = core_x_adam(m, .learning_rate = 1e-3);
 *
 * The first call changes the module: no other thread may use it meanwhile.
 * While a function is recorded it fails with REFUSED, so that a program has no
 * weights of its own: make the first call before.  A function of core_compile
 * is not recorded in the calls that create layers (a graph break, or with
 * CORE_COMPILE_FULLGRAPH this error), and is in the next ones; one that
 * creates layers in more than 8 calls is not any more. */

/* For the calls below: the size of a dimension of the input x of a new layer,
 * or 0 after an error of the scope; SHAPE: x has fewer than `least`
 * dimensions. */
static inline int64_t core_x_lazy_size_at(const char *where, const char *path,
                                          const core_tensor *x, int64_t dim,
                                          uint32_t least)
{
    uint32_t ndim = core_tensor_ndim(x);
    char text[224];

    if (ndim >= least)
        return core_x_size_at(where, x, dim);
    (void)snprintf(text, sizeof text,
                   "core_x_lazy: the layer \"%.80s\": the input has %u "
                   "dimensions; it must have at least %u",
                   path, (unsigned)ndim, (unsigned)least);
    (void)core_scope_check_at(where, "core_x_lazy",
                              core_error_set(CORE_ERROR_SHAPE, text));
    return 0;
}

/* core_x_nn_child, which adds a module without a function if there is none, in
 * training: core_x_lazy_child(m, "layers.%d", i). */
#define core_x_lazy_child(module, ...) \
    core_x_lazy_child_at(CORE_HERE, module, core_x_text(__VA_ARGS__))
static inline core_module *core_x_lazy_child_at(const char *where,
                                                core_module *module,
                                                const char *path)
{
    core_nn_options options;
    core_module *child = core_module_child(module, path);

    if (child && core_scope_status() == CORE_OK)
        return child;
    (void)core_x_lazy_find_at(where, module, path, NULL, NULL, &options);
    if (!options.struct_size)
        return NULL;
    child = core_x_nn_container_at(where, module, path);
    return child;
}

/* A parameter of the given sizes, which the first call fills with normal
 * numbers of mean 0 and this standard deviation: (module, path, sizes,
 * deviation, like=NULL).  It is made on the device of the tensor `like`, such
 * as that with which it will be multiplied; NULL: on the default device.
 * Returns the parameter, borrowed.  A buffer there, as that of a file, becomes
 * a parameter.  SHAPE: it has other sizes.
 *
 *     w = core_x_lazy_parameter(m, "weight", CORE_SIZES(4, 8), 0.02, x); */
#define core_x_lazy_parameter(...) \
    CORE_X_CALL(core_x_lazy_parameter_with_, __VA_ARGS__)
#define core_x_lazy_parameter_with_4(...) \
    core_x_lazy_parameter_at(CORE_HERE, __VA_ARGS__, NULL)
#define core_x_lazy_parameter_with_5(...) \
    core_x_lazy_parameter_at(CORE_HERE, __VA_ARGS__)

/* core_nn_linear: (module, path, x, outputs, bool bias=true). */
#define core_x_lazy_linear(...) \
    CORE_X_CALL(core_x_lazy_linear_with_, __VA_ARGS__)
#define core_x_lazy_linear_with_4(...) \
    core_x_lazy_linear_at(CORE_HERE, __VA_ARGS__, true)
#define core_x_lazy_linear_with_5(...) \
    core_x_lazy_linear_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_lazy_linear_at(const char *where,
                                                 core_module *module,
                                                 const char *path,
                                                 core_tensor *x,
                                                 int64_t outputs, bool bias)
{
    core_nn_options options;
    core_module *layer =
        core_x_lazy_find_at(where, module, path, "Linear", x, &options);

    if (options.struct_size) {
        core_status status =
            core_nn_linear(core_x_lazy_size_at(where, path, x, -1, 1), outputs,
                           bias, &options, &layer);

        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_embedding: (module, path, x, count, size, padding=-1). */
#define core_x_lazy_embedding(...) \
    CORE_X_CALL(core_x_lazy_embedding_with_, __VA_ARGS__)
#define core_x_lazy_embedding_with_5(...) \
    core_x_lazy_embedding_at(CORE_HERE, __VA_ARGS__, -1)
#define core_x_lazy_embedding_with_6(...) \
    core_x_lazy_embedding_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_lazy_embedding_at(
    const char *where, core_module *module, const char *path, core_tensor *x,
    int64_t count, int64_t size, int64_t padding)
{
    core_nn_options options;
    core_module *layer =
        core_x_lazy_find_at(where, module, path, "Embedding", x, &options);

    if (options.struct_size) {
        core_status status =
            core_nn_embedding(count, size, padding, &options, &layer);

        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_layer_norm of the last dimension: (module, path, x, eps=1e-5). */
#define core_x_lazy_layer_norm(...) \
    CORE_X_CALL(core_x_lazy_layer_norm_with_, __VA_ARGS__)
#define core_x_lazy_layer_norm_with_3(...) \
    core_x_lazy_layer_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_lazy_layer_norm_with_4(...) \
    core_x_lazy_layer_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_lazy_layer_norm_at(const char *where,
                                                     core_module *module,
                                                     const char *path,
                                                     core_tensor *x, double eps)
{
    core_nn_options options;
    core_module *layer =
        core_x_lazy_find_at(where, module, path, "LayerNorm", x, &options);
    int64_t size;

    if (options.struct_size) {
        core_status status;

        size = core_x_lazy_size_at(where, path, x, -1, 1);
        status = core_nn_layer_norm(&size, 1, eps, true, &options, &layer);

        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_rms_norm of the last dimension: (module, path, x, eps=2^-23). */
#define core_x_lazy_rms_norm(...) \
    CORE_X_CALL(core_x_lazy_rms_norm_with_, __VA_ARGS__)
#define core_x_lazy_rms_norm_with_3(...) \
    core_x_lazy_rms_norm_at(CORE_HERE, __VA_ARGS__, 1.1920928955078125e-7)
#define core_x_lazy_rms_norm_with_4(...) \
    core_x_lazy_rms_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_lazy_rms_norm_at(const char *where,
                                                   core_module *module,
                                                   const char *path,
                                                   core_tensor *x, double eps)
{
    core_nn_options options;
    core_module *layer =
        core_x_lazy_find_at(where, module, path, "RMSNorm", x, &options);
    int64_t size;

    if (options.struct_size) {
        core_status status;

        size = core_x_lazy_size_at(where, path, x, -1, 1);
        status = core_nn_rms_norm(&size, 1, eps, true, &options, &layer);

        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_group_norm: (module, path, x, groups, eps=1e-5). */
#define core_x_lazy_group_norm(...) \
    CORE_X_CALL(core_x_lazy_group_norm_with_, __VA_ARGS__)
#define core_x_lazy_group_norm_with_4(...) \
    core_x_lazy_group_norm_at(CORE_HERE, __VA_ARGS__, 1e-5)
#define core_x_lazy_group_norm_with_5(...) \
    core_x_lazy_group_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_lazy_group_norm_at(const char *where,
                                                     core_module *module,
                                                     const char *path,
                                                     core_tensor *x,
                                                     int64_t groups, double eps)
{
    core_nn_options options;
    core_module *layer =
        core_x_lazy_find_at(where, module, path, "GroupNorm", x, &options);

    if (options.struct_size) {
        core_status status = core_nn_group_norm(
            groups, core_x_lazy_size_at(where, path, x, 1, 2), eps, true,
            &options, &layer);

        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_batch_norm: (module, path, x, eps=1e-5, momentum=0.1). */
#define core_x_lazy_batch_norm(...) \
    CORE_X_CALL(core_x_lazy_batch_norm_with_, __VA_ARGS__)
#define core_x_lazy_batch_norm_with_3(...) \
    core_x_lazy_batch_norm_at(CORE_HERE, __VA_ARGS__, 1e-5, 0.1)
#define core_x_lazy_batch_norm_with_4(...) \
    core_x_lazy_batch_norm_at(CORE_HERE, __VA_ARGS__, 0.1)
#define core_x_lazy_batch_norm_with_5(...) \
    core_x_lazy_batch_norm_at(CORE_HERE, __VA_ARGS__)
static inline core_tensor *core_x_lazy_batch_norm_at(const char *where,
                                                     core_module *module,
                                                     const char *path,
                                                     core_tensor *x, double eps,
                                                     double momentum)
{
    core_nn_options options;
    core_module *layer =
        core_x_lazy_find_at(where, module, path, "BatchNorm", x, &options);

    if (options.struct_size) {
        core_status status =
            core_nn_batch_norm(core_x_lazy_size_at(where, path, x, 1, 2), eps,
                               momentum, true, &options, &layer);

        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_conv of one, two or three dimensions:
 *
 *     core_x_lazy_conv2d(m, "conv", x, 64, {7}, {2}, {3}, .no_bias = true);
 *
 * out_channels, kernel_size, stride, padding. */
#define core_x_lazy_conv1d(module, path, x, ...)                      \
    core_x_lazy_conv_at(CORE_HERE, module, path, x,                   \
                        CORE_OPTIONS(core_nn_conv_options, .dims = 1, \
                                     .out_channels = __VA_ARGS__))
#define core_x_lazy_conv2d(module, path, x, ...)                      \
    core_x_lazy_conv_at(CORE_HERE, module, path, x,                   \
                        CORE_OPTIONS(core_nn_conv_options, .dims = 2, \
                                     .out_channels = __VA_ARGS__))
#define core_x_lazy_conv3d(module, path, x, ...)                      \
    core_x_lazy_conv_at(CORE_HERE, module, path, x,                   \
                        CORE_OPTIONS(core_nn_conv_options, .dims = 3, \
                                     .out_channels = __VA_ARGS__))
static inline core_tensor *core_x_lazy_conv_at(const char *where,
                                               core_module *module,
                                               const char *path, core_tensor *x,
                                               const core_nn_conv_options *conv)
{
    core_nn_options options;
    core_module *layer = core_x_lazy_find_at(
        where, module, path, conv->transposed ? "ConvTranspose" : "Conv", x,
        &options);

    if (options.struct_size) {
        core_nn_conv_options own = *conv;
        core_status status;

        own.in_channels = core_x_lazy_size_at(
            where, path, x, -1 - (int64_t)own.dims, own.dims + 1);
        status = core_nn_conv(&own, &options, &layer);
        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_module_at(where, layer, x) : NULL;
}

/* core_nn_recurrent: computes all outputs for the inputs, a list, as
 * core_x_forward does:
 *
 *     CORE_UNPACK(core_x_lazy_lstm(m, "lstm", CORE_LIST(x, h, c), 256, 3), &y,
 *                 &h, &c);
 *
 * hidden_size, layers.  A cell computes one step. */
#define core_x_lazy_lstm(module, path, inputs, ...)                  \
    core_x_lazy_recurrent_at(CORE_HERE, module, path, inputs,        \
                             CORE_OPTIONS(core_nn_recurrent_options, \
                                          .kind = CORE_NN_LSTM,      \
                                          .hidden_size = __VA_ARGS__))
#define core_x_lazy_gru(module, path, inputs, ...)                   \
    core_x_lazy_recurrent_at(CORE_HERE, module, path, inputs,        \
                             CORE_OPTIONS(core_nn_recurrent_options, \
                                          .kind = CORE_NN_GRU,       \
                                          .hidden_size = __VA_ARGS__))
#define core_x_lazy_lstm_cell(module, path, inputs, ...)                      \
    core_x_lazy_recurrent_at(CORE_HERE, module, path, inputs,                 \
                             CORE_OPTIONS(core_nn_recurrent_options,          \
                                          .cell = true, .kind = CORE_NN_LSTM, \
                                          .hidden_size = __VA_ARGS__))
#define core_x_lazy_gru_cell(module, path, inputs, ...)                      \
    core_x_lazy_recurrent_at(CORE_HERE, module, path, inputs,                \
                             CORE_OPTIONS(core_nn_recurrent_options,         \
                                          .cell = true, .kind = CORE_NN_GRU, \
                                          .hidden_size = __VA_ARGS__))
static inline core_list core_x_lazy_recurrent_at(
    const char *where, core_module *module, const char *path, core_list inputs,
    const core_nn_recurrent_options *recurrent)
{
    const char *type = recurrent->kind == CORE_NN_LSTM
                           ? (recurrent->cell ? "LSTMCell" : "LSTM")
                           : (recurrent->cell ? "GRUCell" : "GRU");
    core_nn_options options;
    core_tensor *x = core_list_at(inputs, 0);
    core_module *layer =
        core_x_lazy_find_at(where, module, path, type, x, &options);

    if (options.struct_size) {
        core_nn_recurrent_options own = *recurrent;
        core_status status;

        own.input_size = core_x_lazy_size_at(where, path, x, -1, 1);
        status = core_nn_recurrent(&own, &options, &layer);
        layer = core_x_lazy_add_at(where, module, path, status, &layer);
    }
    return layer ? core_x_forward_at(where, layer, inputs) : CORE_NO_LIST;
}

/* ------------------------------------------------------------- training -- */

static inline void core_x_optimizer_release(void *optimizer)
{
    core_optimizer_release((core_optimizer *)optimizer);
}

/* core_sgd_create for all parameters of a module, with options:
 *
 *     sgd = core_x_sgd(m, .learning_rate = 0.02, .momentum = 0.9);
 *
 * The innermost scope owns the optimizer.  NULL after an error. */
#define core_x_sgd(module, ...)                         \
    core_x_sgd_at(CORE_HERE, core_x_parameters(module), \
                  CORE_OPTIONS(core_sgd_options, __VA_ARGS__))
static inline core_optimizer *core_x_sgd_at(const char *where,
                                            core_list parameters,
                                            const core_sgd_options *options)
{
    core_optimizer *optimizer = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_sgd_create(parameters.items, parameters.count, options,
                                 &optimizer);
    return (core_optimizer *)core_scope_own_object_at(where, status, optimizer,
                                                      core_x_optimizer_release);
}

/* The options with the usual numbers where they are 0. */
static inline core_adam_options core_x_adam_usual(
    const core_adam_options *options)
{
    core_adam_options usual = *options;

    usual.beta1 = usual.beta1 == 0 ? 0.9 : usual.beta1;
    usual.beta2 = usual.beta2 == 0 ? 0.999 : usual.beta2;
    usual.epsilon = usual.epsilon == 0 ? 1e-8 : usual.epsilon;
    return usual;
}

/* The same with core_adam_create.  Where beta1, beta2 or epsilon is 0, it
 * becomes 0.9, 0.999 or 1e-8; core_adam_create itself takes 0. */
#define core_x_adam(module, ...)                         \
    core_x_adam_at(CORE_HERE, core_x_parameters(module), \
                   CORE_OPTIONS(core_adam_options, __VA_ARGS__))
static inline core_optimizer *core_x_adam_at(const char *where,
                                             core_list parameters,
                                             const core_adam_options *options)
{
    core_optimizer *optimizer = NULL;
    core_status status = core_scope_status();
    const core_adam_options own = core_x_adam_usual(options);

    if (status == CORE_OK)
        status = core_adam_create(parameters.items, parameters.count, &own,
                                  &optimizer);
    return (core_optimizer *)core_scope_own_object_at(where, status, optimizer,
                                                      core_x_optimizer_release);
}

/* core_sgd_set_group: other options for some parameters of the optimizer.  All
 * of them are given again; those that are not named are 0.
 *
 *     core_x_sgd_group(sgd, core_x_named_parameters(m, "*.bias"),
 *                      .learning_rate = 0.02, .momentum = 0.9); */
#define core_x_sgd_group(optimizer, parameters, ...)      \
    core_x_sgd_group_at(CORE_HERE, optimizer, parameters, \
                        CORE_OPTIONS(core_sgd_options, __VA_ARGS__))
static inline void core_x_sgd_group_at(const char *where,
                                       core_optimizer *optimizer,
                                       core_list parameters,
                                       const core_sgd_options *options)
{
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_sgd_set_group(optimizer, parameters.items,
                                    parameters.count, options);
    (void)core_scope_check_at(where, "core_sgd_set_group", status);
}

/* The same with core_adam_set_group, and the numbers of core_x_adam. */
#define core_x_adam_group(optimizer, parameters, ...)      \
    core_x_adam_group_at(CORE_HERE, optimizer, parameters, \
                         CORE_OPTIONS(core_adam_options, __VA_ARGS__))
static inline void core_x_adam_group_at(const char *where,
                                        core_optimizer *optimizer,
                                        core_list parameters,
                                        const core_adam_options *options)
{
    core_status status = core_scope_status();
    const core_adam_options own = core_x_adam_usual(options);

    if (status == CORE_OK)
        status = core_adam_set_group(optimizer, parameters.items,
                                     parameters.count, &own);
    (void)core_scope_check_at(where, "core_adam_set_group", status);
}

/* Computes the gradients of a loss, changes the parameters by a step of the
 * optimizer, and clears the gradients: core_backward, core_optimizer_step and
 * core_optimizer_zero_grad. */
#define core_x_minimize(optimizer, loss) \
    core_x_minimize_at(CORE_HERE, optimizer, loss)
static inline void core_x_minimize_at(const char *where,
                                      core_optimizer *optimizer,
                                      core_tensor *loss)
{
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_backward(&loss, 1, NULL, 0);
    if (status == CORE_OK)
        status = core_optimizer_step(optimizer);
    if (status == CORE_OK)
        core_optimizer_zero_grad(optimizer);
    (void)core_scope_check_at(where, "core_x_minimize", status);
}

static inline void core_x_restore_grad_mode(void *before)
{
    (void)core_grad_mode_set(*(const char *)before != 0);
}

/* Turns grad mode off until the innermost scope ends. */
#define core_x_no_grad() core_x_no_grad_at(CORE_HERE)
static inline void core_x_no_grad_at(const char *where)
{
    static char modes[2] = {0, 1};
    bool before = core_grad_mode_set(false);

    (void)core_scope_own_object_at(where, CORE_OK, &modes[before],
                                   core_x_restore_grad_mode);
}

/* Prepares a module for inference: it is not in training, and grad mode is off
 * until the innermost scope ends.  Returns the module:
 *
 *     m = core_x_inference(core_x_nn_load(make(), "weights.safetensors")); */
#define core_x_inference(module) core_x_inference_at(CORE_HERE, module)
static inline core_module *core_x_inference_at(const char *where,
                                               core_module *module)
{
    core_module_set_training(module, false);
    core_x_no_grad_at(where);
    return module;
}

/* Scales the gradients of all parameters of a module down so that their 2-norm
 * is at most max_norm, as core_clip_grad_norm does. */
#define core_x_clip_grad_norm(module, max_norm) \
    core_x_clip_grad_norm_at(CORE_HERE, core_x_parameters(module), max_norm)
static inline void core_x_clip_grad_norm_at(const char *where,
                                            core_list parameters,
                                            double max_norm)
{
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_clip_grad_norm(parameters.items, parameters.count,
                                     max_norm, 2, false, NULL);
    (void)core_scope_check_at(where, "core_clip_grad_norm", status);
}

/* ---------------------------------------------------- devices and files -- */

/* Prints a tensor as core_tensor_print does, an integer without dimensions as
 * "3 (i64)".  core_x_item_int returns the number itself. */
#define core_x_print(tensor) CORE_CHECK(core_tensor_print(tensor))

/* Prints as printf does, but nothing after an error of the scope, also one that
 * its arguments have: their numbers would be 0.  The error itself is printed by
 * core_scope_exit.  An IO error if the output cannot be written: of this call
 * if it is not buffered, otherwise of core_scope_exit, which flushes it.
 * INVALID_ARGUMENT: format is NULL.
 *
 *     core_x_printf("loss %.3f\n", core_x_item_float(loss)); */
#define core_x_printf(...) core_x_printf_at(CORE_HERE, __VA_ARGS__)
static inline void core_x_printf_at(const char *where, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void core_x_printf_at(const char *where, const char *format, ...)
{
    core_status status = core_scope_status();
    va_list arguments;

    if (status == CORE_OK && !format)
        status = core_error_set(CORE_ERROR_INVALID_ARGUMENT,
                                "core_x_printf: the argument format is NULL");
    if (status == CORE_OK) {
        va_start(arguments, format);
        if (vprintf(format, arguments) < 0)
            status =
                core_error_set(CORE_ERROR_IO, "core_x_printf: cannot write");
        va_end(arguments);
    }
    (void)core_scope_check_at(where, "core_x_printf", status);
}

/* Finds a device (core_device_find) and makes it the current one of this thread
 * (core_device_set_current), so that modules and tensors are created on it.
 * Returns it, or NULL after an error. */
#define core_x_use_device(name) core_x_use_device_at(CORE_HERE, name)
static inline core_device *core_x_use_device_at(const char *where,
                                                const char *name)
{
    core_device *device = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_device_find(name, &device);
    if (status == CORE_OK)
        status = core_device_set_current(device);
    (void)core_scope_check_at(where, "core_x_use_device", status);
    return status == CORE_OK ? device : NULL;
}

/* Loads a tensor of a safetensors file to the default device, as
 * core_safetensors_load does. */
#define core_x_load(path, name) core_x_load_at(CORE_HERE, path, name)
static inline core_tensor *core_x_load_at(const char *where, const char *path,
                                          const char *name)
{
    core_safetensors *file = NULL;
    core_tensor *tensor = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_safetensors_open(path, &file);
    if (status == CORE_OK)
        status = core_safetensors_load(file, name, NULL, &tensor);
    core_safetensors_close(file);
    return core_scope_own_at(where, status, &tensor);
}

/* Loads the parameters and buffers of a module from a file, as core_module_load
 * does without flags: the file must have all names with these sizes, and no
 * others, or nothing is changed; floating dtypes are converted to that of the
 * parameter or buffer.  Returns the module, or NULL after an error. */
#define core_x_nn_load(module, path) core_x_nn_load_at(CORE_HERE, module, path)
static inline core_module *core_x_nn_load_at(const char *where,
                                             core_module *module,
                                             const char *path)
{
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_module_load(module, path, NULL, 0, NULL);
    status = core_scope_check_at(where, "core_x_nn_load", status);
    return status == CORE_OK ? module : NULL;
}

/* Loads a file into a module as core_x_nn_load does, and adds the tensors that
 * the module lacks as buffers (CORE_MODULE_ADD).  Returns the module, or NULL
 * after an error. */
#define core_x_nn_load_all(module, path) \
    core_x_nn_load_all_at(CORE_HERE, module, path)
static inline core_module *core_x_nn_load_all_at(const char *where,
                                                 core_module *module,
                                                 const char *path)
{
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_module_load(module, path, NULL, CORE_MODULE_ADD, NULL);
    status = core_scope_check_at(where, "core_x_nn_load_all", status);
    return status == CORE_OK ? module : NULL;
}

/* Loads all tensors of a file as the buffers of a new module, for
 * core_x_apply_linear and similar calls.  The innermost scope owns the module,
 * which is not in training.  Returns NULL after an error. */
#define core_x_nn_from_file(path) core_x_nn_from_file_at(CORE_HERE, path)
static inline core_module *core_x_nn_from_file_at(const char *where,
                                                  const char *path)
{
    core_module *module = core_x_nn_container_at(where, NULL, NULL);

    core_module_set_training(module, false);
    return core_x_nn_load_all_at(where, module, path);
}

/* Saves tensors to a safetensors file, as core_safetensors_save does:
 *
 *     core_x_save("out.safetensors", {"y", y}, {"loss", loss}); */
#ifdef __cplusplus
#define core_x_save(path, ...) core_x_save_list(CORE_HERE, path, {__VA_ARGS__})
#else
#define core_x_save(path, ...)                                                \
    core_x_save_at(CORE_HERE, path, (const core_named_tensor[]){__VA_ARGS__}, \
                   sizeof((const core_named_tensor[]){__VA_ARGS__}) /         \
                       sizeof(core_named_tensor))
#endif
static inline void core_x_save_at(const char *where, const char *path,
                                  const core_named_tensor *tensors,
                                  size_t count)
{
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_safetensors_save(path, tensors, count, NULL, 0);
    (void)core_scope_check_at(where, "core_x_save", status);
}

#ifdef __cplusplus
}

/* core_x_save with the tensors in braces. */
static inline void core_x_save_list(
    const char *where, const char *path,
    std::initializer_list<core_named_tensor> list)
{
    core_x_save_at(where, path, list.begin(), list.size());
}
#endif
#endif
