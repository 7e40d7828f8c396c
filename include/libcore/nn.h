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
 * Modules form a tree.  A module gives each of its parameters, buffers and
 * children a name without dots; the names on the way to a tensor, joined by
 * dots, are its path: "0.weight".  Parameters are trained.  Buffers, such as
 * running means, are not, but both are part of the state that is saved.
 *
 * Programs write modules of their own with core_module_create, and add
 * parameters, buffers and children to them.
 *
 * Ownership.  Modules are reference-counted: core_module_retain and
 * core_module_release.  The caller owns one reference to a module that a
 * function returns through out_module; all out_… are NULL on failure.  A module
 * keeps references to its tensors and children.
 *
 * Threads.  Several threads may call one module at once if none changes it.  In
 * training, the module of core_nn_batch_norm changes its buffers.
 *
 * Errors.  INVALID_ARGUMENT for a NULL argument, unless its description accepts
 * NULL. */

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

/* Computes the outputs of a module.  context: that of core_module_create.
 * *noutputs: in: the capacity of outputs; out: how many outputs were written.
 * The entries of outputs are NULL before the call.  The caller owns the
 * outputs, and releases those that are set if the function fails. */
typedef core_status (*core_module_function)(core_module *module, void *context,
                                            core_tensor *const *inputs,
                                            size_t ninputs,
                                            core_tensor **outputs,
                                            size_t *noutputs);

/* Creates a module without parameters.  type: its name in error messages, such
 * as "Block"; copied.  function: computes the outputs; NULL for a module that
 * only contains others.  context: passed to the function; may be NULL.
 * destroy: called with the context when the module is destroyed, and if this
 * function fails; may be NULL. */
core_status core_module_create(const char *type, core_module_function function,
                               void *context, void (*destroy)(void *context),
                               core_module **out_module);

/* Adds a reference and returns module.  Accepts NULL. */
core_module *core_module_retain(core_module *module);

/* Drops a reference.  Releasing the last one releases tensors and children.
 * Accepts NULL. */
void core_module_release(core_module *module);

/* Returns the context that was passed to core_module_create; NULL for a NULL
 * module. */
void *core_module_context(const core_module *module);

/* Adds a parameter and makes it require grad.  tensor: a leaf of a floating
 * dtype, to which the module adds a reference.  The same tensor may have
 * several names (tied weights).  name: copied.  INVALID_ARGUMENT: the name is
 * empty, contains a dot, or exists in the module; the tensor is not a leaf, so
 * that it would get no gradient.  Other errors are those of
 * core_tensor_set_requires_grad. */
core_status core_module_add_parameter(core_module *module, const char *name,
                                      core_tensor *tensor);

/* Adds a buffer, a tensor of any dtype to which the module adds a reference.
 * INVALID_ARGUMENT as for core_module_add_parameter. */
core_status core_module_add_buffer(core_module *module, const char *name,
                                   core_tensor *tensor);

/* Adds a child.  The module adds a reference; the caller keeps its own.  A
 * module may be a child of several others.  INVALID_ARGUMENT as for
 * core_module_add_parameter, and if the child is the module or contains it. */
core_status core_module_add_child(core_module *module, const char *name,
                                  core_module *child);

/* Adds a child that a function has created with a status, and takes over the
 * caller's reference to it, also if this function fails:
 *
 *     CORE_TRY(core_module_take_child(
 *         module, "fc", core_nn_linear(8, 2, true, NULL, &fc), &fc));
 *
 * Returns the status if it is an error; otherwise as core_module_add_child. */
core_status core_module_take_child(core_module *module, const char *name,
                                   core_status status,
                                   core_module *const *child);

/* Returns the parameter or buffer at a path, borrowed.  Returns NULL, without
 * an error, if there is none. */
core_tensor *core_module_tensor(const core_module *module, const char *path);

/* Returns the child, or the descendant of a child, at a path, borrowed.
 * Returns NULL, without an error, if there is none. */
core_module *core_module_child(const core_module *module, const char *path);

/* Computes the outputs of a module by its function.  *noutputs: in: the
 * capacity of outputs; out: how many there are, 0 on failure.  The caller owns
 * the outputs; all entries are NULL on failure.  UNSUPPORTED: the module has no
 * function.  INVALID_ARGUMENT: the function returned a NULL output, or more
 * outputs than fit.  Otherwise the function's error. */
core_status core_module_forward(core_module *module, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs);

/* Computes the output of a module for one input, as core_module_forward does.
 * The caller owns the output. */
core_status core_module_call(core_module *module, core_tensor *input,
                             core_tensor **out_output);

/* Computes the output of a module for one input as an expression
 * (expressions.h).  The innermost scope (scope.h) owns the output.  Returns
 * NULL after an error, which the scope keeps. */
#define core_x_module(module, input) core_x_module_at(CORE_HERE, module, input)
core_tensor *core_x_module_at(const char *where, core_module *module,
                              core_tensor *input);

/* Computes the output of a child of a module, by its name or path, in the same
 * way.  NOT_FOUND: there is none.  INVALID_ARGUMENT: module is NULL. */
#define core_x_child(module, path, input) \
    core_x_child_at(CORE_HERE, module, path, input)
core_tensor *core_x_child_at(const char *where, core_module *module,
                             const char *path, core_tensor *input);

/* The same, in C, for several children, each of which gets the output of the
 * one before it:
 *
 *     x = core_x_relu(core_x_children(block, x, "conv1", "bn1")); */
#define core_x_children(module, input, ...)                           \
    core_x_children_at(                                               \
        CORE_HERE, module, input, (const char *const[]){__VA_ARGS__}, \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
core_tensor *core_x_children_at(const char *where, core_module *module,
                                core_tensor *input, const char *const *paths,
                                size_t count);

/* Returns the descendant of a module at a path, borrowed, which is formatted as
 * by printf: core_x_nn_child(m, "layers.%d", i).  NULL after an error of the
 * scope; NOT_FOUND: there is none. */
#define core_x_nn_child(module, ...) \
    core_x_nn_child_at(CORE_HERE, module, core_x_text(__VA_ARGS__))
core_module *core_x_nn_child_at(const char *where, core_module *module,
                                const char *path);

/* Returns the parameter or buffer at a path, borrowed, in the same way:
 * core_x_nn_tensor(m, "layers.%d.weight", i).  NULL after an error of the
 * scope; NOT_FOUND: there is none, or it is a module. */
#define core_x_nn_tensor(module, ...) \
    core_x_nn_tensor_at(CORE_HERE, module, core_x_text(__VA_ARGS__))
core_tensor *core_x_nn_tensor_at(const char *where, core_module *module,
                                 const char *path);

/* Computes all outputs of a module for several inputs, as an expression:
 *
 *     CORE_UNPACK(core_x_forward(lstm, x, hidden, cell), &y, &hidden, &cell);
 *
 * The innermost scope owns the outputs.  Returns an empty list after an error.
 * INVALID_ARGUMENT: the module has more than 16 outputs. */
#define core_x_forward(module, ...) \
    core_x_forward_at(CORE_HERE, module, CORE_LIST(__VA_ARGS__))
core_list core_x_forward_at(const char *where, core_module *module,
                            core_list inputs);

/* Lists the parameters of a module and its descendants, each once.  The
 * innermost scope owns the list, which is empty after an error. */
#define core_x_parameters(module) core_x_parameters_at(CORE_HERE, module)
core_list core_x_parameters_at(const char *where, const core_module *module);

/* Lists, in C, those whose path matches one of the patterns, in which `*`
 * stands for any text and `?` for one character:
 *
 *     core_x_named_parameters(m, "*.bias", "encoder.*")
 *
 * NOT_FOUND: a pattern matches none, which also is an error of the scope. */
#define core_x_named_parameters(module, ...)                   \
    core_x_named_parameters_at(                                \
        CORE_HERE, module, (const char *const[]){__VA_ARGS__}, \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
core_list core_x_named_parameters_at(const char *where,
                                     const core_module *module,
                                     const char *const *patterns, size_t count);

/* Creates a child by a function whose last parameter is out_module, with the
 * arguments before it:
 *
 *     CORE_MODULE_CHILD(module, "fc", core_nn_linear, 256, 10, true, NULL);
 *
 * A statement.  An error becomes that of the innermost scope, as with
 * CORE_CHECK. */
#define CORE_MODULE_CHILD(module, name, create, ...)               \
    do {                                                           \
        core_module *child_ = NULL;                                \
        (void)CORE_CHECK(core_module_take_child(                   \
            module, name, create(__VA_ARGS__, &child_), &child_)); \
    } while (0)

/* Takes over the reference to a new module, *module, that a function returned
 * with a status.  parent: the module becomes its child; NULL: the innermost
 * scope owns it.  name: of the child, or its path: "attn.proj" is the child
 * "proj" of the child "attn".  Modules on the way that are missing become
 * sequences, as of core_nn_sequential.  NULL, "", or a path that ends with a
 * dot, "layers.": the name is the number of children so far, as in a sequence.
 * Returns the module, borrowed, or NULL after an error, which becomes the
 * scope's. */
#define core_x_nn_add(parent, name, status, module) \
    core_x_nn_add_at(CORE_HERE, parent, name, status, module)
core_module *core_x_nn_add_at(const char *where, core_module *parent,
                              const char *name, core_status status,
                              core_module *const *module);

/* The dtype and device of the parameters of a layer, or where it takes them
 * from. */
typedef struct core_nn_options {
    uint32_t struct_size;
    core_dtype dtype;    /* NONE: f32 */
    core_device *device; /* NULL: the default device */
    /* A module whose parameters and buffers of the same names the layer takes
     * instead of new ones, with their dtype and device, such as a part of a
     * file (core_x_nn_from_file).  Both modules then share them.  The layer
     * keeps no reference to this module.  NULL: they are created and
     * initialized.  NOT_FOUND: one is missing, other than num_batches_tracked.
     * SHAPE: one has other sizes.  INVALID_ARGUMENT: a parameter is computed,
     * not a leaf. */
    const core_module *weights;
} core_nn_options;
CORE_STATIC_ASSERT(sizeof(core_nn_options) == 16 + sizeof(void *),
                   "core_nn_options");

/* Sets whether a module and its descendants are in training, as new modules
 * are.  Dropout and batch normalization depend on it.  Accepts NULL. */
void core_module_set_training(core_module *module, bool training);

/* Returns whether a module is in training; false for NULL. */
bool core_module_is_training(const core_module *module);

/* Converts floating parameters and buffers to a dtype, and moves all to a
 * device.  dtype CORE_DTYPE_NONE: the dtypes remain.  device NULL: the devices
 * remain.  New tensors take the place of those that change, so call it before
 * an optimizer is created.  Nothing has changed on failure.  DTYPE: the dtype
 * is not floating. */
core_status core_module_to(core_module *module, core_dtype dtype,
                           core_device *device);

/* --------------------------------------------------------------- state -- */

/* Flags of core_module_list. */
enum {
    CORE_MODULE_PARAMETERS = 1u << 0, /* lists parameters */
    CORE_MODULE_BUFFERS = 1u << 1,    /* lists buffers */
    CORE_MODULE_STATE = CORE_MODULE_PARAMETERS | CORE_MODULE_BUFFERS,
    CORE_MODULE_ONCE = 1u << 2 /* lists a tensor with several names once, by
                                  the first */
};

/* Tensors and their paths, in the order in which they, and the children that
 * contain them, were added.  The list keeps a reference to each tensor. */
typedef struct core_module_tensors {
    size_t count;
    core_tensor **tensors;
    const char **names;
} core_module_tensors;

/* Lists the tensors of a module and its descendants whose path begins with a
 * prefix.  prefix NULL or "": all.  flags: CORE_MODULE_…; an optimizer needs
 * CORE_MODULE_PARAMETERS | CORE_MODULE_ONCE.  The caller frees the list with
 * core_module_tensors_free.  INVALID_ARGUMENT: unknown flags, or a path of more
 * than 510 bytes. */
core_status core_module_list(const core_module *module, const char *prefix,
                             uint32_t flags, core_module_tensors *out_list);

/* Frees a list and releases its tensors.  Accepts NULL and an empty list,
 * {0}. */
void core_module_tensors_free(core_module_tensors *list);

/* Saves parameters and buffers to a safetensors file, by their paths.  Errors
 * are those of core_safetensors_save (safetensors.h). */
core_status core_module_save(const core_module *module, const char *path);

/* What core_module_load found: numbers of tensors, and names on request. */
typedef struct core_module_report {
    uint32_t struct_size;
    uint32_t loaded;     /* read from the file */
    uint32_t missing;    /* in the module, but not in the file */
    uint32_t unexpected; /* in the file, but not in the module */
    /* With CORE_MODULE_NAMES: the names of those missing, then of those
     * unexpected, as in the file.  core_module_report_free frees them. */
    const char **names;
} core_module_report;
CORE_STATIC_ASSERT(sizeof(core_module_report) == 16 + sizeof(void *),
                   "core_module_report");

/* Flags of core_module_load. */
enum {
    CORE_MODULE_ALLOW_MISSING = 1u << 0,    /* do not fail if missing */
    CORE_MODULE_ALLOW_UNEXPECTED = 1u << 1, /* do not fail if unexpected */
    CORE_MODULE_NAMES = 1u << 2,            /* report the names */
    CORE_MODULE_ADD = 1u << 3 /* add unexpected tensors as buffers */
};

/* Loads parameters and buffers from a safetensors file, or from the index of a
 * file in shards.  prefix: stands before the module's paths in the file, such
 * as "transformer."; NULL: nothing does.  Tensors of the file without the
 * prefix are ignored.  Elements are converted between floating dtypes to the
 * dtype of the parameter or buffer.  flags: CORE_MODULE_ALLOW_…,
 * CORE_MODULE_NAMES and CORE_MODULE_ADD.  out_report: filled on failure, too;
 * the caller sets struct_size; may be NULL without CORE_MODULE_NAMES.
 *
 * NOT_FOUND: tensors are missing or unexpected; the message names the first.
 * SHAPE: a tensor has other sizes in the file.  DTYPE: it cannot be converted.
 * These are checked before anything is changed; an error while the elements are
 * read leaves some tensors loaded.
 *
 * With CORE_MODULE_ADD no name is unexpected.  Each tensor of the file whose
 * name the module lacks is added as a buffer, on the default device and in the
 * dtype of the file.  Modules that are missing on its path are added without a
 * function.  An empty module thus gets all tensors of the file.  `loaded`
 * counts those that were added, too.  INVALID_ARGUMENT: a name is not a path,
 * such as "a..b", or is also that of a module; the tensors before it stay
 * added. */
core_status core_module_load(core_module *module, const char *path,
                             const char *prefix, uint32_t flags,
                             core_module_report *out_report);

/* Frees the names of a report, and sets them to NULL.  Accepts NULL, and a
 * report without names. */
void core_module_report_free(core_module_report *report);

/* ------------------------------------------------------ initialization -- */

/* These functions fill a tensor in place with random numbers of the default
 * generator of its device; autograd does not record them.  fan_in is sizes[1],
 * and fan_out sizes[0], times the product of all further sizes.  DTYPE: the
 * tensor is not floating.  SHAPE: it has fewer than two dimensions, which only
 * core_init_truncated_normal accepts. */

/* Which fan a Kaiming initialization divides by. */
typedef enum core_fan {
    CORE_FAN_IN = 0, /* keeps the variance of activations in the forward */
    CORE_FAN_OUT = 1 /* keeps the variance of gradients in the backward */
} core_fan;

/* Returns the recommended gain of a nonlinearity, as torch.nn.init does: 1 for
 * "linear" and "sigmoid", 5/3 for "tanh", sqrt(2) for "relu",
 * sqrt(2 / (1 + slope^2)) for "leaky_relu", 3/4 for "selu", and NaN for any
 * other and for NULL.  slope: the negative slope of "leaky_relu". */
double core_init_gain(const char *nonlinearity, double slope);

/* Fills with numbers that are uniform in [-b, b], b = gain sqrt(3 / fan).
 * Source: He et al. 2015. */
core_status core_init_kaiming_uniform(core_tensor *tensor, double gain,
                                      core_fan fan);

/* Fills with normal numbers of mean 0 and standard deviation gain / sqrt(fan).
 * Source: He et al. 2015. */
core_status core_init_kaiming_normal(core_tensor *tensor, double gain,
                                     core_fan fan);

/* Fills with numbers that are uniform in [-b, b],
 * b = gain sqrt(6 / (fan_in + fan_out)).  Source: Glorot and Bengio 2010. */
core_status core_init_xavier_uniform(core_tensor *tensor, double gain);

/* Fills with normal numbers of mean 0 and standard deviation
 * gain sqrt(2 / (fan_in + fan_out)).  Source: Glorot and Bengio 2010. */
core_status core_init_xavier_normal(core_tensor *tensor, double gain);

/* Fills with gain times a random matrix whose rows are orthonormal, or whose
 * columns are if there are fewer of them.  The tensor counts as a matrix of
 * sizes[0] rows.  Source: Saxe et al. 2013. */
core_status core_init_orthogonal(core_tensor *tensor, double gain);

/* Fills with numbers of the normal distribution that is truncated to
 * [low, high], by the inverse of its distribution function, as
 * torch.nn.init.trunc_normal_ does.  mean and deviation: those of the normal
 * distribution before.  INVALID_ARGUMENT: low is not below high, the deviation
 * is not positive, or the interval is so far from the mean that its probability
 * rounds to 0. */
core_status core_init_truncated_normal(core_tensor *tensor, double mean,
                                       double deviation, double low,
                                       double high);

/* -------------------------------------------------------------- layers -- */

/* The layers below have one input and one output, unless they say otherwise.
 * Their parameters have the names and the initialization that they have in
 * torch.nn, except for core_nn_attention.  options: NULL: f32 on the default
 * device.  INVALID_ARGUMENT for sizes that are not positive and for numbers out
 * of range. */

/* Creates a linear layer: x weight^T + bias.  Input [..., inputs], output
 * [..., outputs].  Parameters: weight [outputs, inputs], bias [outputs] if
 * `bias` is true. */
core_status core_nn_linear(int64_t inputs, int64_t outputs, bool bias,
                           const core_nn_options *options,
                           core_module **out_module);

/* The options of a convolution.  A field that is 0 has the value in brackets.
 * -1 in the second or third number of padding and output_padding stands for 0:
 * {1, -1} is padding=(1, 0) of torch.nn. */
typedef struct core_nn_conv_options {
    uint32_t struct_size;
    uint32_t dims; /* 1, 2 or 3: how many numbers of each list are used */
    int64_t in_channels, out_channels;
    int64_t kernel_size[3];    /* [second and third: the first] */
    int64_t stride[3];         /* [1; second and third: the first] */
    int64_t padding[3];        /* [0; second and third: the first] */
    int64_t dilation[3];       /* [1; second and third: the first] */
    int64_t output_padding[3]; /* if transposed; as padding */
    int64_t groups;            /* [1]; divides both numbers of channels */
    bool no_bias;
    bool transposed;
} core_nn_conv_options;

/* Creates a convolution.  Input [N, in_channels, ...] or [in_channels, ...].
 * Parameters: weight [out_channels, in_channels / groups, kernel_size...], or
 * if transposed [in_channels, out_channels / groups, kernel_size...]; bias
 * [out_channels] unless no_bias. */
core_status core_nn_conv(const core_nn_conv_options *conv,
                         const core_nn_options *options,
                         core_module **out_module);

/* The normalizations divide by sqrt(variance + eps), or sqrt(mean of the
 * squares + eps) for core_nn_rms_norm.  affine: they have the parameters
 * weight, of ones, and bias, of zeros; core_nn_rms_norm has only weight. */

/* Creates a layer normalization over the last `count` dimensions, which must
 * have the given sizes.  Parameters have these sizes, too. */
core_status core_nn_layer_norm(const int64_t *sizes, size_t count, double eps,
                               bool affine, const core_nn_options *options,
                               core_module **out_module);

/* Creates a root-mean-square normalization over the last `count` dimensions,
 * which must have the given sizes.  Source: Zhang and Sennrich 2019. */
core_status core_nn_rms_norm(const int64_t *sizes, size_t count, double eps,
                             bool affine, const core_nn_options *options,
                             core_module **out_module);

/* Creates a normalization of each of `groups` groups of channels, the second
 * dimension.  Parameters have [channels].  INVALID_ARGUMENT: groups does not
 * divide channels. */
core_status core_nn_group_norm(int64_t groups, int64_t channels, double eps,
                               bool affine, const core_nn_options *options,
                               core_module **out_module);

/* Creates a normalization of each channel, the second dimension, over the
 * batch.  Parameters have [channels].  Buffers: running_mean and running_var
 * [channels], which are used unless the module is in training, and
 * num_batches_tracked [].  In training
 * running = (1 - momentum) * running + momentum * that of the batch. */
core_status core_nn_batch_norm(int64_t channels, double eps, double momentum,
                               bool affine, const core_nn_options *options,
                               core_module **out_module);

/* Creates an embedding, which replaces each index of the input, a tensor of
 * i64 or i32, by a row of weight [count, size].  padding: an index whose row is
 * 0 at first and has no gradient; -1: none. */
core_status core_nn_embedding(int64_t count, int64_t size, int64_t padding,
                              const core_nn_options *options,
                              core_module **out_module);

/* Creates a dropout: in training, elements become 0 with probability p, and the
 * others are divided by 1 - p. */
core_status core_nn_dropout(double p, core_module **out_module);

/* Creates a module of a function without parameters, such as core_relu,
 * core_tanh or core_silu. */
core_status core_nn_function(core_status (*function)(core_tensor *input,
                                                     core_tensor **out),
                             core_module **out_module);

/* Creates a module with one input, whose output a function computes as an
 * expression (expressions.h), usually of the module's children:
 *
 *     static core_tensor *residual(core_module *module, core_tensor *x)
 *     {
 *         return core_x_add(x, core_x_child(module, "inner", x));
 *     }
 *
 * Each call has a scope.  type: the module's name in error messages; copied. */
core_status core_nn_expression(const char *type,
                               core_tensor *(*function)(core_module *module,
                                                        core_tensor *input),
                               core_module **out_module);

/* Creates a module that passes the output of each module to the next one.  They
 * become its children "0", "1", and so on.  It takes over the caller's
 * references to them, also if it fails.  INVALID_ARGUMENT: one of them is NULL,
 * as it is if its creation failed; the others are released. */
core_status core_nn_sequential(core_module *const *modules, size_t count,
                               core_module **out_module);

/* The cell of a recurrent layer. */
typedef enum core_nn_recurrent_kind {
    CORE_NN_LSTM = 0,
    CORE_NN_GRU = 1,
    CORE_NN_RNN_TANH = 2,
    CORE_NN_RNN_RELU = 3
} core_nn_recurrent_kind;

/* The options of a recurrent layer. */
typedef struct core_nn_recurrent_options {
    uint32_t struct_size;
    core_nn_recurrent_kind kind;
    int64_t input_size, hidden_size;
    int64_t layers;          /* 1 to 1000; 0: 1 */
    int64_t projection_size; /* of an LSTM, below hidden_size; 0: none */
    double dropout;          /* probability, between layers, in training */
    bool no_bias;
    bool batch_first; /* the sequences are [N, L, size], not [L, N, size] */
    bool bidirectional;
    bool cell; /* false: a layer for sequences; true: one step */
} core_nn_recurrent_options;

/* Creates a recurrent layer.  H is projection_size, or hidden_size without a
 * projection; D is 2 if bidirectional, else 1.
 *
 * Inputs: a sequence [L, N, input_size], and the first states: hidden
 * [layers * D, N, H], and for an LSTM cell [layers * D, N, hidden_size].
 * Without states, or if they are NULL, they are 0.  Outputs: a sequence
 * [L, N, D * H], then the last states; those that the capacity of outputs
 * excludes are not returned.  One sample may be given without the dimension N,
 * which the states and the outputs then lack too.
 *
 * A packed sequence, of samples of different lengths, is two inputs: the steps
 * of all samples, [sum of the lengths, input_size], and the number of samples
 * that have each step, a tensor of i64 on the CPU.  core_pack_padded_sequence
 * of ops.h makes both, and core_pad_packed_sequence undoes it.  The first
 * output is packed in the same way, and the last states are those of each
 * sample's last step.
 *
 * Parameters of layer 0: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0
 * unless no_bias, and weight_hr_l0 with a projection; those of the backward
 * direction end in "_reverse".
 *
 * A cell computes one step.  Inputs: [N, input_size], and optionally the
 * states, [N, hidden_size] each, all of them also without the dimension N.
 * Outputs: the new states.  Parameters: weight_ih, weight_hh, bias_ih and
 * bias_hh.  INVALID_ARGUMENT: it has several layers, a projection, dropout or
 * other options of sequences, or `cell` is neither 0 nor 1. */
core_status core_nn_recurrent(const core_nn_recurrent_options *recurrent,
                              const core_nn_options *options,
                              core_module **out_module);

/* The options of attention. */
typedef struct core_nn_attention_options {
    uint32_t struct_size;
    uint32_t heads;     /* of queries; divides size */
    uint32_t key_heads; /* of keys and values; divides heads; 0: heads */
    bool causal;        /* a position attends to itself and those before it */
    bool bias;          /* of the projections */
    uint16_t reserved;
    int64_t size;   /* features of a position; a head has size / heads */
    double dropout; /* probability, of attention weights, in training */
} core_nn_attention_options;

/* Creates multi-head attention, with groups of heads that share keys and values
 * if key_heads is less than heads.  Inputs: [N, L, size]; optionally a mask, as
 * scaled_dot_product_attention takes it, which replaces `causal`, or NULL; and
 * optionally a memory [N, S, size], of which keys and values are made instead
 * of the first input, and to which `causal` does not apply.  Output [N, L,
 * size].  Children q_proj, k_proj, v_proj and o_proj are linear layers,
 * initialized like those of core_nn_linear.  Sources: Vaswani et al. 2017;
 * Ainslie et al. 2023 for key_heads. */
core_status core_nn_attention(const core_nn_attention_options *attention,
                              const core_nn_options *options,
                              core_module **out_module);

/* ----------------------------------------------- helpers of network.h -- */

/* Finds the descendant of a module at a path, and one of its tensors, for the
 * calls of network.h.  Returns the descendant, borrowed, or NULL after an error
 * of the scope.  function: the call that messages name.  tensor: the name of
 * the tensor; may be NULL.  out_tensor: gets the tensor, borrowed, or NULL; may
 * be NULL.  NOT_FOUND: no module has this path, or that module has no tensor of
 * this name. */
core_module *core_x_apply_find_at(const char *where, const char *function,
                                  core_module *module, const char *path,
                                  const char *tensor, core_tensor **out_tensor);

/* Adds a tensor to a module, as core_module_add_parameter does if it is trained
 * and otherwise core_module_add_buffer.  name may be a path: "attn.scale" adds
 * "scale" to the child "attn".  Modules on the way that are missing become
 * sequences.  The module keeps a reference.  Returns the tensor, borrowed, or
 * NULL after an error of the scope.  For core_x_nn_parameter and
 * core_x_nn_buffer (network.h). */
core_tensor *core_x_nn_member_at(const char *where, core_module *module,
                                 const char *name, bool trained,
                                 core_tensor *tensor);

/* The layer at a path, for the calls core_x_lazy_… of network.h, which create a
 * layer when they are first called.  Returns the module there, borrowed, if it
 * computes.  Otherwise, and after an error of the scope, returns NULL.  If
 * out_options->struct_size then is not 0, the caller creates the layer with
 * these options, on the device of x, and passes it to core_x_lazy_add_at.  They
 * name the module at the path as weights if there is one, which holds the
 * tensors of a file.  NOT_FOUND: there is no module at the path, and `module`
 * is not in training, so that no layer is created.  INVALID_ARGUMENT: the path
 * is empty or ends with a dot; the module there is not of this type (NULL: of
 * any, and x may be NULL). */
core_module *core_x_lazy_find_at(const char *where, core_module *module,
                                 const char *path, const char *type,
                                 core_tensor *x, core_nn_options *out_options);

/* Takes over the reference to a layer, *layer, that a function returned with a
 * status, as core_x_nn_add does with the parent `module`.  If there is a module
 * at the path, which holds tensors of a file, that module itself becomes the
 * layer.  Returns it, borrowed, or NULL after an error, which becomes the
 * scope's.  NOT_FOUND: the module holds something that the layer does not use;
 * the message names it. */
core_module *core_x_lazy_add_at(const char *where, core_module *module,
                                const char *path, core_status status,
                                core_module *const *layer);

/* The parameter at a path, for core_x_lazy_parameter (network.h). */
core_tensor *core_x_lazy_parameter_at(const char *where, core_module *module,
                                      const char *path, core_sizes sizes,
                                      double deviation, core_tensor *like);

/* The options of a convolution of `dims` dimensions with what core_nn_conv
 * fills in, for core_x_apply_conv_options (network.h).  Returns whether they
 * are valid; otherwise the scope has the error INVALID_ARGUMENT. */
bool core_x_apply_conv_complete_at(const char *where,
                                   const core_nn_conv_options *options,
                                   size_t dims,
                                   core_nn_conv_options *out_options);

#ifdef __cplusplus
}
#endif
#endif
