/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nn.h: modules, which are parts of a network with named parameters.
 *
 *     core_module *network, *layers[3];
 *
 *     CORE_TRY(core_nn_linear(784, 128, true, NULL, &layers[0]));
 *     CORE_TRY(core_nn_function(core_relu, &layers[1]));
 *     CORE_TRY(core_nn_linear(128, 10, true, NULL, &layers[2]));
 *     CORE_TRY(core_nn_sequential(layers, 3, &network));
 *     CORE_TRY(core_module_call(network, x, &y));
 *
 * A module is a tree.  Its parameters, buffers and children have names without
 * dots; a name in the tree is a path, "0.weight".  Parameters are trained;
 * buffers, such as running means, are part of the state only.
 *
 * A module of the program's own has a function that computes its outputs
 * (core_module_create), and parameters and children that the program adds.
 *
 * Ownership.  Modules are counted: core_module_retain and core_module_release.
 * The caller owns one reference to a module that a function returns through
 * out_module; all out_… are NULL on failure.  A module keeps references to its
 * tensors and children.
 *
 * Threads.  Several threads may call one module at once if none changes it; in
 * training, batch_norm changes its buffers.
 *
 * NULL for an argument that is not said to accept it is INVALID_ARGUMENT. */

#ifndef LIBCORE_NN_H
#define LIBCORE_NN_H

#include "autograd.h"
#include "scope.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- modules -- */

/* A part of a network. */
typedef struct core_module core_module;

/* Computes the outputs of a module.  *noutputs: in: the capacity of outputs;
 * out: their number.  The caller owns the outputs. */
typedef core_status (*core_module_function)(core_module *module, void *context,
                                            core_tensor *const *inputs,
                                            size_t ninputs,
                                            core_tensor **outputs,
                                            size_t *noutputs);

/* Creates a module without parameters.  type: what it is, for errors
 * ("Block"); copied.  function: may be NULL for a module that only holds
 * others.  context: passed to the function.  destroy: called with the context
 * when the module is gone, also if this function fails; or NULL. */
core_status core_module_create(const char *type, core_module_function function,
                               void *context, void (*destroy)(void *context),
                               core_module **out_module);

/* Adds a reference.  Accepts NULL. */
void core_module_retain(core_module *module);

/* Drops a reference; the last one releases tensors and children.  Accepts
 * NULL. */
void core_module_release(core_module *module);

/* Returns the context of core_module_create. */
void *core_module_context(const core_module *module);

/* Adds a parameter, which must be floating and a leaf; it is made to require
 * grad.  The same tensor may have several names (tied weights).
 * INVALID_ARGUMENT: the name is empty, has a dot, or is taken. */
core_status core_module_add_parameter(core_module *module, const char *name,
                                      core_tensor *tensor);

/* Adds a buffer: part of the state, but not trained. */
core_status core_module_add_buffer(core_module *module, const char *name,
                                   core_tensor *tensor);

/* Adds a child.  The caller keeps its reference.  One module may be the child
 * of several.  INVALID_ARGUMENT as for parameters, and if the child contains
 * the module. */
core_status core_module_add_child(core_module *module, const char *name,
                                  core_module *child);

/* Return a parameter or buffer, or a descendant, by its path; borrowed; NULL if
 * there is none, without an error. */
core_tensor *core_module_tensor(const core_module *module, const char *path);
core_module *core_module_child(const core_module *module, const char *path);

/* Computes the outputs.  *noutputs: in: the capacity of outputs; out: their
 * number, 0 on failure.  The caller owns the outputs.  UNSUPPORTED for a module
 * without a function. */
core_status core_module_forward(core_module *module, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs);

/* The same for one input and one output. */
core_status core_module_call(core_module *module, core_tensor *input,
                             core_tensor **out_output);

/* The same, in the innermost scope (scope.h), which owns the output: an
 * expression like those of expressions.h. */
#define core_x_module(module, input) core_x_module_at(CORE_HERE, module, input)
core_tensor *core_x_module_at(const char *where, core_module *module,
                              core_tensor *input);

/* Sets whether a module and its descendants are trained: dropout and batch_norm
 * depend on it.  New modules are. */
void core_module_set_training(core_module *module, bool training);
bool core_module_is_training(const core_module *module);

/* Converts floating parameters and buffers to a dtype, and moves all to a
 * device.  NONE and NULL: as they are.  The tensors are new ones, so it must
 * precede the creation of an optimizer. */
core_status core_module_to(core_module *module, core_dtype dtype,
                           core_device *device);

/* --------------------------------------------------------------- state -- */

/* What core_module_list lists. */
enum {
    CORE_MODULE_PARAMETERS = 1u << 0,
    CORE_MODULE_BUFFERS = 1u << 1,
    CORE_MODULE_STATE = CORE_MODULE_PARAMETERS | CORE_MODULE_BUFFERS,
    CORE_MODULE_ONCE = 1u << 2 /* a tensor with several names: the first */
};

/* Tensors with their paths, in the order in which they were added.  The list
 * keeps a reference to each tensor. */
typedef struct core_module_tensors {
    size_t count;
    core_tensor **tensors;
    const char **names;
} core_module_tensors;

/* Lists the tensors of a module whose path begins with a prefix; NULL or "":
 * all.  For optimizers, CORE_MODULE_PARAMETERS | CORE_MODULE_ONCE.  The caller
 * frees the list with core_module_tensors_free. */
core_status core_module_list(const core_module *module, const char *prefix,
                             uint32_t flags, core_module_tensors *out_list);

/* Frees a list.  Accepts an empty one ({0}). */
void core_module_tensors_free(core_module_tensors *list);

/* Writes the state to a safetensors file (safetensors.h). */
core_status core_module_save(const core_module *module, const char *path);

/* What core_module_load found. */
typedef struct core_module_report {
    uint32_t struct_size;
    uint32_t loaded;     /* tensors that were read */
    uint32_t missing;    /* in the module, not in the file */
    uint32_t unexpected; /* in the file, not in the module */
} core_module_report;
CORE_STATIC_ASSERT(sizeof(core_module_report) == 16, "core_module_report");

enum {
    CORE_MODULE_ALLOW_MISSING = 1u << 0,
    CORE_MODULE_ALLOW_UNEXPECTED = 1u << 1
};

/* Reads the state from a safetensors file or an index of shards.  prefix: what
 * names in the file begin with before the module's ("transformer."); NULL:
 * nothing.  Names without it are not unexpected.  Floating elements are
 * converted to the dtype of the parameter.  flags: which differences are not
 * errors.  out_report may be NULL.
 *
 * NOT_FOUND: names are missing or unexpected, which the message lists.  SHAPE,
 * DTYPE: a tensor has other sizes, or cannot be converted.  All names, sizes
 * and dtypes are checked before anything is changed. */
core_status core_module_load(core_module *module, const char *path,
                             const char *prefix, uint32_t flags,
                             core_module_report *out_report);

/* ------------------------------------------------------ initialization -- */

/* These change a floating tensor in place, with random numbers of the default
 * generator of its device, and record nothing.  fan_in is sizes[1] and fan_out
 * sizes[0], times the product of the further sizes; SHAPE for tensors of fewer
 * than two dimensions. */

/* What keeps the variance from layer to layer. */
typedef enum core_fan {
    CORE_FAN_IN = 0, /* in the forward pass */
    CORE_FAN_OUT = 1 /* in the backward pass */
} core_fan;

/* Returns the gain of a nonlinearity: "linear", "sigmoid" 1; "tanh" 5/3; "relu"
 * sqrt(2); "leaky_relu" sqrt(2 / (1 + slope^2)); "selu" 3/4; NaN for others. */
double core_init_gain(const char *nonlinearity, double slope);

/* Uniform in +-gain sqrt(3 / fan), or normal with deviation gain / sqrt(fan).
 * Source: He et al. 2015. */
core_status core_init_kaiming_uniform(core_tensor *tensor, double gain,
                                      core_fan fan);
core_status core_init_kaiming_normal(core_tensor *tensor, double gain,
                                     core_fan fan);

/* Uniform in +-gain sqrt(6 / (fan_in + fan_out)), or normal with deviation gain
 * sqrt(2 / (fan_in + fan_out)).  Source: Glorot and Bengio 2010. */
core_status core_init_xavier_uniform(core_tensor *tensor, double gain);
core_status core_init_xavier_normal(core_tensor *tensor, double gain);

/* Rows or columns that are orthonormal, times the gain: sizes[0] rows, of all
 * other elements.  Source: Saxe et al. 2013. */
core_status core_init_orthogonal(core_tensor *tensor, double gain);

/* Normal numbers of which those outside of [low, high] are drawn again. */
core_status core_init_truncated_normal(core_tensor *tensor, double mean,
                                       double deviation, double low,
                                       double high);

/* -------------------------------------------------------------- layers -- */

/* Where and how parameters are made. */
typedef struct core_nn_options {
    uint32_t struct_size;
    core_dtype dtype;    /* NONE: f32 */
    core_device *device; /* NULL: the default device */
} core_nn_options;
CORE_STATIC_ASSERT(sizeof(core_nn_options) == 16, "core_nn_options");

/* The names of parameters and their initialization are those of torch.nn.
 * options may be NULL. */

/* x weight^T + bias.  weight [outputs, inputs], bias [outputs]. */
core_status core_nn_linear(int64_t inputs, int64_t outputs, bool bias,
                           const core_nn_options *options,
                           core_module **out_module);

/* Convolutions.  Fields that are 0 have the value in brackets. */
typedef struct core_nn_conv_options {
    uint32_t struct_size;
    uint32_t dims; /* 1, 2 or 3 */
    int64_t in_channels, out_channels;
    int64_t kernel_size[3];    /* the second and third [the first] */
    int64_t stride[3];         /* [1; the second and third: the first] */
    int64_t padding[3];        /* the second and third [the first] */
    int64_t dilation[3];       /* [1; as stride] */
    int64_t output_padding[3]; /* of transposed ones */
    int64_t groups;            /* [1] */
    bool no_bias;
    bool transposed;
} core_nn_conv_options;

/* Input [N, in_channels, …], or without N.  weight [out, in / groups, kernel],
 * of transposed ones [in, out / groups, kernel]; bias [out]. */
core_status core_nn_conv(const core_nn_conv_options *conv,
                         const core_nn_options *options,
                         core_module **out_module);

/* Normalizations; affine: with weight 1 and bias 0 (rms_norm: weight alone). */
core_status core_nn_layer_norm(const int64_t *sizes, size_t count, double eps,
                               bool affine, const core_nn_options *options,
                               core_module **out_module);
core_status core_nn_rms_norm(const int64_t *sizes, size_t count, double eps,
                             bool affine, const core_nn_options *options,
                             core_module **out_module);
core_status core_nn_group_norm(int64_t groups, int64_t channels, double eps,
                               bool affine, const core_nn_options *options,
                               core_module **out_module);

/* Also has the buffers running_mean, running_var and num_batches_tracked.
 * Channels are the second dimension. */
core_status core_nn_batch_norm(int64_t channels, double eps, double momentum,
                               bool affine, const core_nn_options *options,
                               core_module **out_module);

/* Rows of weight [count, size] by integers.  padding: an index without a
 * gradient, whose row is 0; or -1. */
core_status core_nn_embedding(int64_t count, int64_t size, int64_t padding,
                              const core_nn_options *options,
                              core_module **out_module);

/* In training, elements are 0 with probability p, others divided by 1 - p. */
core_status core_nn_dropout(double p, core_module **out_module);

/* A function without parameters, such as core_relu, core_tanh, core_silu. */
core_status core_nn_function(core_status (*function)(core_tensor *input,
                                                     core_tensor **out),
                             core_module **out_module);

/* Modules one after the other, with the names "0", "1", …  Takes over the
 * caller's references to them, also if it fails; so a NULL module, whose
 * creation failed, is INVALID_ARGUMENT and loses nothing. */
core_status core_nn_sequential(core_module *const *modules, size_t count,
                               core_module **out_module);

typedef enum core_nn_recurrent_kind {
    CORE_NN_LSTM = 0,
    CORE_NN_GRU = 1,
    CORE_NN_RNN_TANH = 2,
    CORE_NN_RNN_RELU = 3
} core_nn_recurrent_kind;

typedef struct core_nn_recurrent_options {
    uint32_t struct_size;
    core_nn_recurrent_kind kind;
    int64_t input_size, hidden_size;
    int64_t layers;          /* 0: 1 */
    int64_t projection_size; /* LSTM; 0: none */
    double dropout;          /* between layers, in training */
    bool no_bias;
    bool batch_first;
    bool bidirectional;
    bool reserved;
} core_nn_recurrent_options;

/* Inputs: the sequence, and the states (LSTM: hidden and cell), which may be
 * left out and are then 0.  Outputs: the sequence and the last states, as many
 * as there is capacity for.  Parameters weight_ih_l0, weight_hh_l0, bias_ih_l0,
 * bias_hh_l0, weight_hr_l0, and with "_reverse" those of the other
 * direction. */
core_status core_nn_recurrent(const core_nn_recurrent_options *recurrent,
                              const core_nn_options *options,
                              core_module **out_module);

typedef struct core_nn_attention_options {
    uint32_t struct_size;
    uint32_t heads;
    uint32_t key_heads; /* of keys and values; 0: as many as heads */
    bool causal;
    bool bias;
    uint16_t reserved;
    int64_t size;   /* of a position; each head has size / heads of it */
    double dropout; /* of attention weights, in training */
} core_nn_attention_options;

/* Self-attention.  Input [N, L, size], and optionally a mask for
 * scaled_dot_product_attention, which then decides instead of `causal`.
 * Children q_proj, k_proj, v_proj, o_proj. */
core_status core_nn_attention(const core_nn_attention_options *attention,
                              const core_nn_options *options,
                              core_module **out_module);

#ifdef __cplusplus
}
#endif
#endif
