/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tune.h: what CORE_COMPILE_MAX_AUTOTUNE measures instead of estimating.  On
 * devices with streams that is only whether the kernel of a group is faster than
 * its operators, from launch until the current stream is done.
 *
 * A part of a program becomes a program itself, whose calls are timed on tensors
 * of ones, once for each way to run it.  Another way than the device's own is
 * chosen if it is faster a second time, too.  No way changes a bit of a result.
 *
 * What was chosen is kept in the folder of the kernel cache, in a file for each
 * part, whose name is a hash of all that the choice depends on: the part with its
 * sizes and strides, the ways, the number of threads, the device and the seal of
 * the plugin's file. */

#ifndef CORE_COMPILE_TUNE_H
#define CORE_COMPILE_TUNE_H

#include "compile/prepare/prepared.h"

/* tune.c.  The least time of a call of a program, on tensors of ones. */
core_status core__tune_time(core_program *program, core_device *device,
                            uint64_t *out_ns);
/* True if a time is less by more than chance. */
bool core__tune_is_faster(uint64_t ns, uint64_t other_ns);

/* tune_steps.c.  The fastest way to run steps of a set that is being prepared:
 * the first of these unless another one is faster.  UNSUPPORTED: they cannot be
 * measured alone. */
core_status core__tune_steps(const core__prepared *set, uint32_t first,
                             uint32_t count, const core__tuning *ways,
                             uint32_t nways, uint32_t *out_way);

/* tune.c.  Measures calls of a group with its kernel, and without. */
core_status core__fusion_measure(core_program *program, core_device *device,
                                 const uint32_t *nodes,
                                 core__fused_group *group);

/* ---------------------------------------------------------------- files -- */

/* tune_file.c.  What was chosen for a part. */
enum { CORE__CHOICE_NUMBERS = 4 };
typedef struct core__choice {
    uint64_t numbers[CORE__CHOICE_NUMBERS];
} core__choice;

/* The name of a part; "" if its choice is not kept.  ways: bytes that tell what
 * there is to choose from. */
void core__choice_name(core_program *part, core_device *device,
                       const void *ways, size_t size, char out_name[65]);
/* False if there is none. */
bool core__choice_load(const char *name, core__choice *out_choice);
void core__choice_store(const char *name, const core__choice *choice);
/* How many this process has loaded and stored. */
void core__choice_get_counts(uint64_t *out_loaded, uint64_t *out_stored);

#endif
