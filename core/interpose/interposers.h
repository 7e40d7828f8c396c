/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interposers.h: wrappers between the core and a plugin (docs/abi.md 22).
 *
 * LIBCORE_INTERPOSERS=validate,trace,fault puts all three or some of them
 * around every plugin that is opened from then on:
 *
 *   validate  checks every call's contract, in both directions
 *   trace     writes a line per call, in both directions
 *   fault     fails the Nth call of a kind: LIBCORE_FAULT=alloc:3,launch:5+
 *
 * The tables that the plugin registers, and its host table, are replaced by
 * wrapping tables when it registers; without interposers there is no
 * overhead. */

#ifndef CORE_INTERPOSE_INTERPOSERS_H
#define CORE_INTERPOSE_INTERPOSERS_H

#include "dispatch/registry.h"

typedef struct core__interposers core__interposers;

/* For a plugin that is about to be initialised.  *out_interposers is NULL if
 * none is enabled.  INVALID_ARGUMENT names the invalid item of a setting. */
core_status core__interposers_begin(const char *plugin,
                                    core__interposers **out_interposers);
/* Called after all registrations of the plugin were undone. */
void core__interposers_end(core__interposers *interposers);

/* Wraps the host table that the plugin receives. */
void core__interposers_host(core__interposers *interposers, core_host *host);
/* Returns a table that wraps the plugin's, valid until core__interposers_end. */
core_status core__interposers_backend(core__interposers *interposers,
                                      const core_backend *backend,
                                      const core_backend **out_backend);
core_status core__interposers_kernel(core__interposers *interposers,
                                     core_string device_type,
                                     const core_kernel *kernel,
                                     const core_kernel **out_kernel);
core_status core__interposers_function(core__interposers *interposers,
                                       core_string name,
                                       core_function *function, void **user);
core_status core__interposers_shape(core__interposers *interposers,
                                    core_string name,
                                    core_shape_function *shape, void **user);

/* The number of violations that validate has detected, and the text of the
 * first: "" if there is none. */
uint64_t core__interposers_violations(core__interposers *interposers,
                                      const char **out_first);

/* Check the texts of LIBCORE_INTERPOSERS and LIBCORE_FAULT. */
core_status core__interposers_check(const char *text);
core_status core__faults_check(const char *text);

#endif
