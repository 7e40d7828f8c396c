/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interposers.h: what may stand between the core and a plugin (docs/abi.md 22).
 *
 * LIBCORE_LAYERS=validate,trace,fault puts all three or some around every
 * plugin that is opened from then on:
 *
 *   validate  checks every call's contract, in both directions
 *   trace     writes a line per call, of both directions
 *   fault     fails the Nth call of a kind: LIBCORE_FAULT=alloc:3,launch:5+
 *
 * The tables that the plugin registers are replaced by our own, and so is its
 * host table, when it registers: without a layer nothing is there and nothing
 * is asked. */

#ifndef CORE_LAYERS_LAYERS_H
#define CORE_LAYERS_LAYERS_H

#include "dispatch/registry.h"

typedef struct core__layers core__layers;

/* For a plugin that is about to be initialised.  *out_layers NULL: no layer
 * is wanted.  INVALID_ARGUMENT names the word of a setting that is none. */
core_status core__layers_begin(const char *plugin, core__layers **out_layers);
/* After everything that the plugin registered was undone. */
void core__layers_end(core__layers *layers);

/* The host table that the plugin gets. */
void core__layers_host(core__layers *layers, core_host *host);
/* What stands for a table of the plugin's; valid until core__layers_end. */
core_status core__layers_backend(core__layers *layers,
                                 const core_backend *backend,
                                 const core_backend **out_backend);
core_status core__layers_kernel(core__layers *layers, core_string device_type,
                                const core_kernel *kernel,
                                const core_kernel **out_kernel);
core_status core__layers_function(core__layers *layers, core_string name,
                                  core_function *function, void **user);

/* Breaches that validate has seen, and the first of them in words: "" if there
 * is none. */
uint64_t core__layers_breaches(core__layers *layers, const char **out_first);

/* Checks the texts of LIBCORE_LAYERS and LIBCORE_FAULT. */
core_status core__layers_check(const char *text);
core_status core__faults_check(const char *text);

#endif
