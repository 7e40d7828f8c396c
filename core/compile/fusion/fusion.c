/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Makes the groups of a program and their kernels. */

#include "compile/fusion/fusion.h"
#include "compile/passes/schedule.h"
#include "compile/fusion/upcalls.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "device/device.h"
#include "dispatch/registry.h"
#include "tensor/layout.h"

#include <string.h>

/* ------------------------------------------------------------- lifetime -- */

core__fusion *core__fusion_retain(core__fusion *fusion)
{
    atomic_fetch_add_explicit(&fusion->references, 1, memory_order_relaxed);
    return fusion;
}

void core__fusion_release(core__fusion *fusion)
{
    if (!fusion || atomic_fetch_sub_explicit(&fusion->references, 1,
                                             memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < fusion->ngroups; i++) {
        core__loop_kernel_release(fusion->groups[i].kernel);
        core__loop_build_release(fusion->groups[i].build);
        core__free(fusion->groups[i].reason);
        core__free(fusion->groups[i].values);
    }
    core__free(fusion->groups);
    core__free(fusion->ends);
    core__free(fusion->order);
    core__free(fusion->names);
    core__free(fusion);
}

/* When all are: preparing calls again for each one would take longer. */
bool core__fusion_is_built(const core__fusion *fusion)
{
    for (uint32_t i = 0; i < fusion->ngroups; i++)
        if (fusion->groups[i].build &&
            !core__loop_build_is_finished(fusion->groups[i].build))
            return false;
    return fusion->waits;
}

bool core__fusion_is_current(const core__fusion *fusion)
{
    return fusion->registered ==
               atomic_load_explicit(&core__registry_generation,
                                    memory_order_relaxed) &&
           fusion->impl == fusion->device->impl &&
           fusion->generation == atomic_load(&fusion->device->generation) &&
           !core__fusion_is_built(fusion);
}

/* --------------------------------------------------------------- counts -- */

static _Atomic uint64_t built, refused;

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void core__fusion_add_counts(core_compile_counts *counts)
{
    counts->fused_kernels += atomic_load(&built);
    counts->refused_kernels += atomic_load(&refused);
}

/* ------------------------------------------------------------- settings -- */

/* CORE_COMPILE_CODEGEN_…, or CORE__CODEGEN_MEASURED. */
static core_status mode_of(const core_program *program, uint32_t *out_mode)
{
    bool measured = program->codegen == CORE__CODEGEN_MEASURED;

    *out_mode = measured ? CORE_COMPILE_CODEGEN_AUTO : program->codegen;
    if (*out_mode == CORE_COMPILE_CODEGEN_AUTO)
        CORE_TRY(core__setting_choice(CORE__SETTING_COMPILE_CODEGEN, out_mode));
    if (*out_mode == CORE_COMPILE_CODEGEN_AUTO && measured)
        *out_mode = CORE__CODEGEN_MEASURED;
    return CORE_OK;
}

/* ---------------------------------------------------------------- cost -- */

/* A launch of a fused kernel costs a little more than one of an operator's.
 * From about 32 KiB on, what is not read and not written takes longer.  Each
 * launch less counts as a number of bytes: on the CPU it takes some 40 ns, in a
 * queue microseconds. */
enum {
    SAVED_AT_LEAST = 32 << 10,
    SAVED_BY_A_LAUNCH = 2 << 10,
    SAVED_BY_A_LAUNCH_IN_A_QUEUE = 16 << 10,
    /* Bytes of a result, or of what is reduced, of groups that do not read each
     * other. */
    JOINED_AT_MOST = 16 << 10,
    JOINED_AT_MOST_IN_A_QUEUE = 64 << 10
};

static uint64_t saved_by_a_launch(const core_device *device)
{
    return device->synchronous ? SAVED_BY_A_LAUNCH
                               : SAVED_BY_A_LAUNCH_IN_A_QUEUE;
}

static const char *not_worth(const core__fused_group *group,
                             const core_device *device, uint32_t mode)
{
    uint64_t saved =
        group->bytes_saved + (group->count - 1) * saved_by_a_launch(device);

    return mode == CORE_COMPILE_CODEGEN_AUTO && saved < SAVED_AT_LEAST
               ? "a kernel is not expected to be faster: the results are small"
               : NULL;
}

/* Adds up what is read and written by the operators of a group, or by its
 * kernel. */
typedef struct adding {
    const core_program *program;
    uint64_t bytes;
} adding;

static void add_bytes(void *context, uint32_t value)
{
    adding *sum = context;

    sum->bytes += core__type_bytes(&sum->program->values[value].type);
}

static uint64_t bytes_saved(const core_program *program, const uint32_t *nodes,
                            const core__fused_group *group)
{
    adding before = {program, 0}, after = {program, 0};

    for (uint32_t i = 0; i < group->count; i++) {
        core__node_each_value(&program->nodes[nodes[i]], add_bytes, &before);
        add_bytes(&before, program->nodes[nodes[i]].first);
    }
    for (uint32_t i = 0; i < group->noperands; i++)
        add_bytes(&after, group->values[i]);
    return before.bytes > after.bytes ? before.bytes - after.bytes : 0;
}

/* -------------------------------------------------------------- kernels -- */

static bool is_contiguous(const core__program_type *type)
{
    int64_t strides[CORE_MAX_NDIM];

    core__layout_contiguous(type->ndim, core__type_sizes(type), strides);
    return type->ndim == 0 || memcmp(strides, core__type_strides(type),
                                     type->ndim * sizeof *strides) == 0;
}

/* Dense operands, except those with one element for each row, are without gaps
 * and have the sizes and strides of the loop. */
static core_loop_hints hints_of(const core_program *program,
                                const core__fused_group *group,
                                const core_loop_program *loop)
{
    const core__program_type *like = &program->values[group->space].type;
    size_t size = 2 * (size_t)like->ndim * sizeof(int64_t);
    core_loop_hints hints = {
        .struct_size = sizeof hints,
        .flags = is_contiguous(like) ? CORE_LOOP_HINT_CONTIGUOUS : 0,
        .numel = 1,
        .row_size =
            group->nreduced ? core__type_sizes(like)[like->ndim - 1] : 0};

    for (uint32_t i = 0; i < like->ndim; i++)
        hints.numel *= core__type_sizes(like)[i];
    for (uint32_t i = 0; i < group->noperands; i++) {
        const core__program_type *type =
            &program->values[group->values[i]].type;

        if (loop->operands[i].flags & CORE_LOOP_OPERAND_ROW)
            continue;
        if (type->ndim != like->ndim || memcmp(type->dims, like->dims, size))
            hints.flags = 0;
    }
    return hints;
}

static core_status set_reason(core__fused_group *group, const char *reason)
{
    group->reason = core__strdup(reason);
    return group->reason ? CORE_OK : core__error_memory(strlen(reason) + 1);
}

/* Keeps why a group has no kernel.  UNSUPPORTED is expected: the device does
 * not accept such a program.  Anything else is logged, once for each build. */
static core_status refuse(core__fused_group *group, const core_device *device,
                          core_status status, bool is_new)
{
    const char *message = core_error_message();

    if (status != CORE_ERROR_UNSUPPORTED && is_new)
        core__log(CORE_LOG_WARNING, "compile",
                  "\"%s\" cannot build the kernel of %u operators, which run "
                  "one by one: %s",
                  device->name, group->count, message);
    return set_reason(group, message);
}

static core_status build(const core_program *program, core_device *device,
                         core__fused_group *group, core_loop_program *loop,
                         bool *out_waits)
{
    core_loop_hints hints = hints_of(program, group, loop);
    core__error_record saved;
    core_status status;
    bool is_new;

    core__error_save(&saved);
    status = core__loop_kernel_request(device, loop, &hints, &group->kernel,
                                       &is_new, &group->build);
    if (is_new)
        count(status == CORE_OK ? &built : &refused);
    if (status != CORE_OK) {
        status = refuse(group, device, status, is_new);
    } else if (!group->kernel) {
        *out_waits = true;
        status = set_reason(group, "its kernel is being built");
    }
    if (status == CORE_OK)
        core__error_restore(&saved);
    return status;
}

/* Drops the kernel of a group if its operators are faster. */
static core_status choose(core_program *program, core_device *device,
                          const uint32_t *nodes, core__fused_group *group)
{
    core__error_record saved;

    if (!group->kernel)
        return CORE_OK;
    core__error_save(&saved);
    if (core__fusion_upcalls.measure(program, device, nodes, group) !=
        CORE_OK) {
        /* It needs memory for a second copy of the inputs. */
        core__log(CORE_LOG_WARNING, "compile", "a kernel is not measured: %s",
                  core_error_message());
        core__error_restore(&saved);
        return CORE_OK;
    }
    if (group->fused_ns <= group->operators_ns)
        return CORE_OK;
    core__loop_kernel_release(group->kernel);
    group->kernel = NULL;
    return set_reason(group, "measured: its operators are faster");
}

/* What is outside of a group and reads its values. */
typedef struct reading {
    const uint32_t *group;
    uint32_t number;
    bool *is_read;
    const core_program *program;
} reading;

static void note_read(void *context, uint32_t value)
{
    reading *r = context;
    const core__program_value *v = &r->program->values[value];

    if (v->source == CORE__VALUE_OF_NODE &&
        (!r->group[v->index] || r->group[v->index] != r->number))
        r->is_read[value] = true;
}

static void note_reads(const core_program *program, const uint32_t *group,
                       bool *is_read)
{
    reading r = {group, 0, is_read, program};

    for (uint32_t v = 0; v < program->nvalues; v++)
        is_read[v] = program->values[v].kept;
    for (uint32_t n = 0; n < program->nnodes; n++) {
        r.number = group[n];
        core__node_each_value(&program->nodes[n], note_read, &r);
    }
}

/* Programs that are not simplified compute values that nothing reads. */
static bool has_outputs(const core_program *program, const uint32_t *nodes,
                        const core__fused_group *group, const bool *is_read)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (is_read[program->nodes[nodes[i]].first])
            return true;
    return false;
}

/* Leaves NULL, and a reason, if the group has no loop program. */
static core_status write_loop(const core_program *program, core_device *device,
                              core_tensor *const *tensors, const bool *is_read,
                              const uint32_t *nodes, core__fused_group *group,
                              core_loop_program **out_loop)
{
    core__error_record saved;
    core_status status;

    core__error_save(&saved);
    status =
        core__fusion_write(program, tensors, nodes, is_read, group, out_loop);
    if (status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY)
        return status;
    status = refuse(group, device, status, true);
    if (status == CORE_OK)
        core__error_restore(&saved);
    return status;
}

static core_status make_group(core_program *program, core_device *device,
                              core_tensor *const *tensors, const bool *is_read,
                              uint32_t mode, core__fusion *fusion,
                              core__fused_group *group)
{
    const uint32_t *nodes = fusion->order + group->first;
    core_loop_program *loop;
    const char *worth;
    core_status status;

    if (!has_outputs(program, nodes, group, is_read))
        return set_reason(group, "nothing reads its results");
    status = write_loop(program, device, tensors, is_read, nodes, group, &loop);
    if (status != CORE_OK || !loop)
        return status;
    group->bytes_saved = bytes_saved(program, nodes, group);
    group->division = program->tuning.division;
    worth = not_worth(group, device, mode);
    status = worth ? set_reason(group, worth)
                   : build(program, device, group, loop, &fusion->waits);
    core__loop_program_release(loop);
    return status == CORE_OK && mode == CORE__CODEGEN_MEASURED
               ? choose(program, device, nodes, group)
               : status;
}

static uint64_t elements_of(const core__program_node *node,
                            const core_program *program)
{
    const core__program_type *type = core__fusion_space(program, node);

    return core__type_bytes(type) / (uint64_t)core__dtype_size(type->dtype);
}

static core_status make_groups(core_program *program, core_device *device,
                               core_tensor *const *tensors,
                               const core__grouping *found, bool *is_read,
                               uint32_t mode, core__fusion *fusion)
{
    note_reads(program, found->group, is_read);
    fusion->groups =
        core__alloc_zero(found->ngroups * sizeof *fusion->groups + 1);
    if (!fusion->groups)
        return core__error_memory(found->ngroups * sizeof *fusion->groups);
    for (uint32_t i = 0; i < program->nnodes; i++) {
        uint32_t number = found->group[found->order[i]];
        core__fused_group *group = &fusion->groups[fusion->ngroups];

        if (!number)
            continue;
        group->first = i;
        while (i + 1 < program->nnodes &&
               found->group[found->order[i + 1]] == number)
            i++;
        group->count = i + 1 - group->first;
        group->elements =
            elements_of(&program->nodes[found->order[i]], program);
        fusion->ngroups++;
        CORE_TRY(
            make_group(program, device, tensors, is_read, mode, fusion, group));
    }
    return CORE_OK;
}

/* What is joined of a program's groups (fusion_independent.c). */
static void choose_joined(const core__fusion *fusion, core__grouping *to)
{
    const core_device *device = fusion->device;

    to->joined_most =
        device->synchronous ? JOINED_AT_MOST : JOINED_AT_MOST_IN_A_QUEUE;
    to->joined_least =
        fusion->always
            ? 2
            : 1 + (uint32_t)(SAVED_AT_LEAST / saved_by_a_launch(device));
    to->has_epilogues =
        fusion->always && device->interfaces.codegen.launch_after;
}

/* Whether a device accepts a sum of rows, as any other reduction. */
static bool accepts_rows(core_device *device)
{
    uint32_t out, x;
    core_loop_program *program = NULL;
    core__error_record saved;
    core__loop_writer w;
    bool accepted;

    core__error_save(&saved);
    core__loop_writer_begin(&w, 0);
    out = core__loop_write_operand(
        &w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT | CORE_LOOP_OPERAND_ROW);
    x = core__loop_write(&w, CORE_LOOP_LOAD, CORE_F32,
                         core__loop_write_operand(&w, CORE_F32, 0), 0, 0);
    x = core__loop_write(&w, CORE_LOOP_REDUCE_SUM, CORE_F32, x, 0, 0);
    core__loop_write(&w, CORE_LOOP_STORE, 0, out, x, 0);
    accepted = core__loop_writer_finish(&w, &program, NULL) == CORE_OK &&
               core__loop_kernel_accepts(device, program) == CORE_OK;
    core__loop_writer_end(&w);
    core__loop_program_release(program);
    core__error_restore(&saved);
    return accepted;
}

static const char *no_rows(const core__fusion *fusion,
                           const core_program *program)
{
    core_device *device = fusion->device;

    if (!program->reorders)
        return "sums of rows would be added in another order, which "
               "CORE_COMPILE_REORDER_SUMS allows";
    if (!fusion->always &&
        device->flags & (CORE_DEVICE_HOST_ACCESS | CORE_DEVICE_UNIFIED))
        return "a kernel is not expected to be faster: the device's memory is "
               "the host's";
    return accepts_rows(device)
               ? NULL
               : "the device accepts no loop program with reductions";
}

static core_status fuse(core_program *program, core_device *device,
                        core_tensor *const *tensors, uint32_t mode,
                        core__fusion *fusion)
{
    size_t size = program->nnodes * sizeof(uint32_t) + program->nvalues + 1;
    core__grouping found = {.program = program,
                            .tensors = tensors,
                            .order = fusion->order,
                            .group = core__alloc_zero(size)};
    core_status status;

    choose_joined(fusion, &found);
    found.no_rows = no_rows(fusion, program);
    status =
        found.group ? core__fusion_group(&found) : core__error_memory(size);
    fusion->ends = found.ends;
    fusion->nends = found.nends;
    if (status == CORE_OK)
        status =
            make_groups(program, device, tensors, &found,
                        (bool *)(found.group + program->nnodes), mode, fusion);
    core__free(found.group);
    return status;
}

static core_status keep_names(core__fusion *fusion, const core_program *program)
{
    size_t size = program->nnodes * sizeof *fusion->names + 1;

    fusion->names = core__alloc(size);
    if (!fusion->names)
        return core__error_memory(size);
    for (uint32_t i = 0; i < program->nnodes; i++)
        fusion->names[i] = program->nodes[fusion->order[i]].name;
    return CORE_OK;
}

core_status core__fusion_new(core_program *program, core_device *device,
                             core_tensor *const *tensors,
                             core__fusion **out_fusion)
{
    core__fusion *fusion = core__alloc_zero(sizeof *fusion);
    uint32_t mode = CORE_COMPILE_CODEGEN_OFF;
    core_status status;

    *out_fusion = NULL;
    if (!fusion)
        return core__error_memory(sizeof *fusion);
    atomic_init(&fusion->references, 1);
    fusion->device = device;
    fusion->impl = device->impl;
    fusion->registered = atomic_load(&core__registry_generation);
    fusion->generation = atomic_load(&device->generation);
    fusion->order = core__alloc(program->nnodes * sizeof(uint32_t) + 1);
    status = fusion->order ? mode_of(program, &mode)
                           : core__error_memory(program->nnodes);
    if (status == CORE_OK)
        status = core__program_order(program, fusion->order);
    fusion->always = mode == CORE_COMPILE_CODEGEN_ON;
    fusion->measured = mode == CORE__CODEGEN_MEASURED && device->synchronous;
    if (mode == CORE_COMPILE_CODEGEN_OFF)
        fusion->reason = "codegen is off";
    else if (!device->interfaces.codegen.build)
        fusion->reason = "the device does not provide core.codegen";
    if (status == CORE_OK && !fusion->reason)
        status = fuse(program, device, tensors, mode, fusion);
    if (status == CORE_OK)
        status = keep_names(fusion, program);
    if (status == CORE_OK)
        *out_fusion = fusion;
    else
        core__fusion_release(fusion);
    return status;
}
