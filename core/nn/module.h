/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* module.h: what modules consist of. */

#ifndef CORE_NN_MODULE_H
#define CORE_NN_MODULE_H

#include <libcore/nn.h>

#include <stdatomic.h>

typedef enum core__member_kind {
    CORE__MEMBER_PARAMETER,
    CORE__MEMBER_BUFFER,
    CORE__MEMBER_CHILD
} core__member_kind;

/* A named part of a module, in the order in which it was added. */
typedef struct core__member {
    char *name;
    core__member_kind kind;
    union {
        core_tensor *tensor;
        core_module *child;
    } u;
} core__member;

struct core_module {
    atomic_uint references;
    atomic_bool training;
    char *type;
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

/* Moves along the path to the parent of its last name.  Modules on the way that
 * are missing are added, as sequences or as modules without a function; they are
 * in training if their parent is. */
core_status core__module_walk(core_module **parent, const char **path,
                              bool sequences);

/* Creates a module whose context is a copy of `size` bytes. */
core_status core__module_create(const char *type, core_module_function function,
                                const void *context, size_t size,
                                core_module **out_module);

/* Adds a parameter of the given sizes, without content. */
core_status core__module_parameter(core_module *module, const char *name,
                                   const int64_t *sizes, size_t ndim,
                                   const core_nn_options *options,
                                   core_tensor **out_tensor);

/* Adds a parameter that is filled with a number. */
core_status core__module_filled(core_module *module, const char *name,
                                const int64_t *sizes, size_t ndim, double value,
                                const core_nn_options *options);

/* Fills a tensor with uniform numbers in +-bound, and records nothing. */
core_status core__init_uniform(core_tensor *tensor, double bound);

/* Completes the creation of a module: on failure releases it, and puts its type
 * before the message. */
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
