/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* module.h: what modules consist of. */

#ifndef CORE_NN_MODULE_H
#define CORE_NN_MODULE_H

#include "base/text.h"

#include <libcore/nn.h>

#include <stdatomic.h>

/* Errors of calls in this folder name no place in the library: the program's
 * own call does. */
#undef CORE_HERE
#define CORE_HERE NULL

/* Marks functions that a program calls once for a layer, a network or a file:
 * they are compiled to be small. */
#define CORE__ONCE __attribute__((cold))

typedef enum core__member_kind {
    CORE__MEMBER_PARAMETER,
    CORE__MEMBER_BUFFER,
    CORE__MEMBER_CHILD
} core__member_kind;

/* A named part of a module, in the order in which it was added. */
typedef struct core__member {
    char *name;
    core__member_kind kind;
    /* A parameter that was taken from weights, and will require grad when the
     * layer is complete. */
    bool pending;
    bool from_file; /* the one in its module's origin, if that has one */
    union {
        core_tensor *tensor;
        core_module *child;
    } u;
} core__member;

struct core_module {
    atomic_uint references;
    atomic_bool training;
    char *type;
    /* Of a file's tensors: stands before their names in messages, such as
     * "weights.safetensors: layers.0.".  NULL: of no file, or of several. */
    char *origin;
    bool has_several_origins;
    core_module_function function;
    void *context;
    void (*destroy)(void *context);
    core__member *members;
    size_t count;
};

/* The tensor of a name of the module itself, or NULL. */
core_tensor *core__module_tensor(const core_module *module, const char *name);

/* The member of a name, or NULL; name need not be terminated. */
core__member *core__module_member(const core_module *module, const char *name,
                                  size_t size);

/* The member at a path, or NULL; accepts NULL. */
core__member *core__module_find(const core_module *module, const char *path);

/* Moves along the path to the parent of its last name.  Modules on the way that
 * are missing are added, as sequences or as modules without a function; they are
 * in training if their parent is. */
core_status core__module_walk(core_module **parent, const char **path,
                              bool sequences);

/* Adds the file and the path of a module, and of a name in it, to the message of
 * the error; nothing if the module is of no file. */
void core__module_name_origin(const core_module *module, const char *name);

/* INVALID_ARGUMENT for a tensor that is computed: as a parameter it would get no
 * gradient.  function: named in the error. */
core_status core__module_check_leaf(const char *function, const char *name,
                                    const core_tensor *tensor);

/* Adds a parameter that requires grad when the module is complete: then
 * core__module_require_grad makes that of all of them, or of none. */
core_status core__module_add_pending(core_module *module, const char *name,
                                     core_tensor *tensor);
core_status core__module_require_grad(core_module *module);

/* Creates a module whose context is a copy of `size` bytes. */
core_status core__module_create(const char *type, core_module_function function,
                                const void *context, size_t size,
                                core_module **out_module);

/* The weights that a layer takes, or NULL. */
const core_module *core__nn_weights(const core_nn_options *options);

/* The content of a new tensor of a layer. */
typedef enum core__content {
    CORE__FILLED,  /* a number */
    CORE__UNIFORM, /* uniform numbers in +-bound */
    CORE__NORMAL,  /* normal numbers of a standard deviation */
    CORE__BUFFER,  /* a buffer, filled with a number */
    CORE__COUNTER  /* a buffer of i64 without dimensions */
} core__content;

/* Adds a parameter or a buffer of the given sizes: one with new content, of which
 * number is the number, bound or deviation, or that of options->weights. */
core_status core__module_make(core_module *module, const char *name,
                              const int64_t *sizes, size_t ndim,
                              core__content content, double number,
                              const core_nn_options *options);

/* Whether a tensor has these sizes; otherwise SHAPE, with its name. */
core_status core__module_check_sizes(const core_tensor *tensor,
                                     const char *name, const int64_t *sizes,
                                     size_t ndim);

/* Fills a tensor with uniform numbers in +-bound, and records nothing. */
core_status core__init_uniform(core_tensor *tensor, double bound);

/* core_nn_linear for a part of a layer, which is complete only with that. */
core_status core__nn_linear(int64_t inputs, int64_t outputs, bool bias,
                            const core_nn_options *options,
                            core_module **out_module);

/* Completes the creation of a module, or releases it on failure. */
core_status core__module_finish(core_status status, core_module *module,
                                core_module **out_module);

/* Returns the first input if there is just one, or an error that names the
 * module. */
core_status core__module_one_input(const core_module *module,
                                   core_tensor *const *inputs, size_t ninputs,
                                   core_tensor **out_input);

/* Stores a layer's single output, which a call with that status returned. */
core_status core__module_one_output(core_status status,
                                    core_tensor *const *output,
                                    core_tensor **outputs, size_t *noutputs);

#endif
