/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Measures whether the kernel of a group is faster than its operators, and how
 * its loop is divided best (CORE_COMPILE_MAX_AUTOTUNE): they run as prepared
 * calls of a program that has the group alone, on tensors of ones. */

#include "compile/prepare/tune.h"
#include "compile/program/extract.h"

#include "base/memory.h"
#include "device/stream.h"

#include <libcore/ops.h>

#include <time.h>

/* The fastest of some rounds, each of which takes at least as long as the clock
 * needs to be exact. */
enum { ROUNDS = 5, ROUND_NS = 20000, MOST_CALLS = 256 };

/* With streams, a call ends before its work, so a round ends with a wait.  All
 * that is compared has as many calls in a round, so the same share of it. */
enum { QUEUED_ROUND_NS = 1000000, LEAST_QUEUED = 2, MOST_QUEUED = 32 };

/* Another division is chosen if it takes less than this share of the time. */
static const double gain = .97;

/* Describes the operands of the group's kernel as inputs and outputs. */
static core_status extract_group(core__extraction *e,
                                 const core__fused_group *group,
                                 const uint32_t *nodes)
{
    for (uint32_t i = group->noutputs; i < group->noperands; i++)
        if (e->numbers[group->values[i]] == CORE__NO_VALUE)
            CORE_TRY(core__extract_input(e, group->values[i]));
    for (uint32_t i = 0; i < group->count; i++)
        CORE_TRY(core__extract_value(e, e->from->nodes[nodes[i]].first));
    for (uint32_t i = 0; i < group->noutputs; i++) {
        core__program_output *output = core__program_grow(
            &e->to->outputs, &e->to->noutputs, sizeof *output);

        if (!output)
            return core__error_memory(sizeof *output);
        *output = (core__program_output){
            .kind = CORE__OUTPUT_VALUE,
            .index = e->numbers[group->values[i]],
            .type = e->from->values[group->values[i]].type};
    }
    return CORE_OK;
}

static core_status program_of(core_program *program,
                              const core__fused_group *group,
                              const uint32_t *nodes, uint8_t codegen,
                              core_program **out_program)
{
    core__extraction e;
    core_status status = core__extraction_begin(&e, program);

    *out_program = NULL;
    if (status == CORE_OK)
        status = extract_group(&e, group, nodes);
    CORE_TRY(core__extraction_end(&e, status, out_program));
    (*out_program)->codegen = codegen;
    (*out_program)->recomputes = false;
    return CORE_OK;
}

/* Of ones.  The strides may be 0. */
static core_status make_input(const core__program_type *type,
                              core_device *device, core_tensor **out)
{
    const int64_t *sizes = core__type_sizes(type);
    const int64_t *strides = core__type_strides(type);
    core_tensor *memory;
    core_status status;
    int64_t last = 0;
    bool empty = false;

    for (uint32_t d = 0; d < type->ndim; d++) {
        last += (sizes[d] - 1) * strides[d];
        empty = empty || sizes[d] == 0;
    }
    last = empty ? 0 : last + 1;
    CORE_TRY(core_full(&last, 1, core_int(1), (core_dtype)type->dtype, device,
                       &memory));
    status = core_as_strided(memory, sizes, type->ndim, strides, type->ndim,
                             NULL, out);
    core_tensor_release(memory);
    return status;
}

static core_status make_inputs(const core_program *program, core_device *device,
                               core_tensor **inputs)
{
    for (uint32_t i = 0; i < program->ninputs; i++) {
        const core__program_type *type = &program->inputs[i].type;

        CORE_TRY(make_input(type, device, &inputs[i]));
    }
    return CORE_OK;
}

/* A program whose calls are timed, and what it is called with. */
typedef struct timing {
    core_program *program;
    core_device *device;
    core_tensor **inputs, **outputs;
    /* Calls of a round; 0: as many as the clock needs, or, with streams, to be
     * chosen for this program and those that it is compared with. */
    uint64_t calls;
} timing;

static core_status call(const timing *t)
{
    core_status status =
        core__program_run_checked(t->program, t->inputs, t->outputs);

    for (uint32_t i = 0; i < t->program->noutputs && status == CORE_OK; i++)
        core_tensor_release(t->outputs[i]);
    return status;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static core_status wait_for_calls(core_device *device)
{
    return device->synchronous ? CORE_OK
                               : core__stream_wait(core__stream_current(device),
                                                   "measure a kernel");
}

/* The time of a call in a round. */
static core_status time_round(const timing *t, uint64_t *out_ns)
{
    uint64_t from = now_ns(), spent = 0, calls = 0;

    while (t->calls ? calls < t->calls
                    : spent < ROUND_NS && calls < MOST_CALLS) {
        CORE_TRY(call(t));
        calls++;
        spent = now_ns() - from;
    }
    if (!t->device->synchronous) {
        CORE_TRY(wait_for_calls(t->device));
        spent = now_ns() - from;
    }
    *out_ns = spent / calls;
    return CORE_OK;
}

/* Calls once, and chooses how many calls the rounds have if the timing has not
 * done so for another program. */
static core_status choose_calls(timing *t)
{
    uint64_t chosen = t->calls, ns;

    t->calls = 1;
    CORE_TRY(time_round(t, &ns));
    t->calls = chosen ? chosen : QUEUED_ROUND_NS / (ns + 1);
    if (t->calls < LEAST_QUEUED)
        t->calls = LEAST_QUEUED;
    if (t->calls > MOST_QUEUED)
        t->calls = MOST_QUEUED;
    return CORE_OK;
}

/* The program has been called, which prepared it. */
static core_status time_calls(timing *t, uint64_t *out_ns)
{
    *out_ns = UINT64_MAX;
    CORE_TRY(wait_for_calls(t->device));
    if (!t->device->synchronous)
        CORE_TRY(choose_calls(t));
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t ns;

        CORE_TRY(time_round(t, &ns));
        if (ns < *out_ns)
            *out_ns = ns;
    }
    return CORE_OK;
}

static core_status time_on_ones(timing *t, uint64_t *out_ns)
{
    CORE_TRY(make_inputs(t->program, t->device, t->inputs));
    CORE_TRY(call(t));
    return time_calls(t, out_ns);
}

core_status core__tune_time(core_program *program, core_device *device,
                            uint64_t *out_ns)
{
    size_t count = (size_t)program->ninputs + program->noutputs + 1;
    core_tensor **inputs = core__alloc_zero(count * sizeof *inputs);
    core_status status;

    if (!inputs)
        return core__error_memory(count * sizeof *inputs);
    status = time_on_ones(&(timing){.program = program,
                                    .device = device,
                                    .inputs = inputs,
                                    .outputs = inputs + program->ninputs},
                          out_ns);
    for (uint32_t i = 0; i < program->ninputs; i++)
        core_tensor_release(inputs[i]);
    core__free(inputs);
    return status;
}

bool core__tune_is_faster(uint64_t ns, uint64_t other_ns)
{
    return (double)ns < gain * (double)other_ns;
}

/* A group that is measured. */
typedef struct measurement {
    core_program *program; /* with the group */
    const uint32_t *nodes;
    core__fused_group *group;
    timing timing; /* of programs of the group alone */
} measurement;

/* Why calls of the program do not run all operators of the group as one kernel;
 * NULL: they do.  Alone, operators may have another order, so another kernel,
 * which is not built yet, or cannot be built. */
static const char *no_kernel(core_program *program,
                             const core__fused_group *group)
{
    const char *reason;
    core__prepared_facts *facts = core__prepared_describe(program, &reason);
    const core__fusion *fusion = facts ? facts->fusion : NULL;

    if (!facts)
        reason = "its calls are not prepared";
    else if (fusion->ngroups != 1 || fusion->groups[0].count != group->count)
        reason = "it is divided";
    else if (!fusion->groups[0].kernel)
        reason = fusion->waits ? "its kernel is being built"
                               : "its kernel cannot be built";
    else
        reason = NULL;
    core__prepared_facts_release(facts);
    return reason;
}

static core_status time_program(measurement *m, core_program *program,
                                uint64_t *out_ns)
{
    const char *reason = NULL;

    m->timing.program = program;
    CORE_TRY(call(&m->timing)); /* which prepares it */
    if (program->codegen == CORE_COMPILE_CODEGEN_ON)
        reason = no_kernel(program, m->group);
    if (reason)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "a group of %u operators alone: %s", m->group->count,
                           reason);
    return time_calls(&m->timing, out_ns);
}

static core_status time_group(measurement *m, uint8_t codegen,
                              core__loop_division division, uint64_t *out_ns)
{
    core_program *program;
    core_status status =
        program_of(m->program, m->group, m->nodes, codegen, &program);

    if (status != CORE_OK)
        return status;
    program->tuning.division = division;
    status = time_program(m, program, out_ns);
    core_program_release(program);
    return status;
}

/* Keeps the division if it is faster. */
static core_status try_division(measurement *m, core__loop_division division)
{
    uint64_t ns;

    CORE_TRY(time_group(m, CORE_COMPILE_CODEGEN_ON, division, &ns));
    if (core__tune_is_faster(ns, m->group->fused_ns)) {
        m->group->fused_ns = ns;
        m->group->division = division;
    }
    return CORE_OK;
}

/* The least of many times may be chance: the device's own division stays unless
 * the other one is faster a second time, too. */
static core_status measure_again(measurement *m)
{
    const core__loop_division best = m->group->division, own = {0};
    uint64_t best_ns, own_ns;

    if (best.tile == 0 && best.threads == 0)
        return CORE_OK;
    CORE_TRY(time_group(m, CORE_COMPILE_CODEGEN_ON, own, &own_ns));
    CORE_TRY(time_group(m, CORE_COMPILE_CODEGEN_ON, best, &best_ns));
    if (core__tune_is_faster(best_ns, own_ns)) {
        m->group->fused_ns = best_ns;
    } else {
        m->group->fused_ns = own_ns;
        m->group->division = own;
    }
    return CORE_OK;
}

static const uint32_t tiles[] = {256, 1024, 2048};

/* Tiles first, then one thread, with the best of these; but devices with streams
 * divide a loop themselves. */
static core_status time_all(measurement *m)
{
    const core__loop_division chosen = {0};
    core__fused_group *group = m->group;

    CORE_TRY(time_group(m, CORE_COMPILE_CODEGEN_ON, chosen, &group->fused_ns));
    CORE_TRY(
        time_group(m, CORE_COMPILE_CODEGEN_OFF, chosen, &group->operators_ns));
    if (!m->timing.device->synchronous)
        return CORE_OK;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        CORE_TRY(try_division(m, (core__loop_division){.tile = tiles[i]}));
    CORE_TRY(try_division(
        m, (core__loop_division){group->division.tile, .threads = 1}));
    return measure_again(m);
}

static core_status time_on(core_program *like, measurement *m)
{
    size_t count = (size_t)like->ninputs + like->noutputs + 1;
    core_tensor **inputs = core__alloc_zero(count * sizeof *inputs);
    core_status status;

    if (!inputs)
        return core__error_memory(count * sizeof *inputs);
    m->timing.inputs = inputs;
    m->timing.outputs = inputs + like->ninputs;
    status = make_inputs(like, m->timing.device, inputs);
    if (status == CORE_OK)
        status = time_all(m);
    for (uint32_t i = 0; i < like->ninputs; i++)
        core_tensor_release(inputs[i]);
    core__free(inputs);
    return status;
}

/* True if it is one of those that are tried; a file may contain another one. */
static bool is_known(const core__choice *choice)
{
    bool known = choice->numbers[2] == 0;

    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        known = known || choice->numbers[2] == tiles[i];
    return known && choice->numbers[3] <= 1;
}

static core_status measure(core_program *like, measurement *m)
{
    core__fused_group *group = m->group;
    core__choice choice;
    char name[65];

    core__choice_name(like, m->timing.device, tiles, sizeof tiles, name);
    if (core__choice_load(name, &choice) && is_known(&choice)) {
        group->fused_ns = choice.numbers[0];
        group->operators_ns = choice.numbers[1];
        group->division.tile = (uint32_t)choice.numbers[2];
        group->division.threads = (uint32_t)choice.numbers[3];
        return CORE_OK;
    }
    CORE_TRY(time_on(like, m));
    choice = (core__choice){{group->fused_ns, group->operators_ns,
                             group->division.tile, group->division.threads}};
    core__choice_store(name, &choice);
    return CORE_OK;
}

core_status core__fusion_measure(core_program *program, core_device *device,
                                 const uint32_t *nodes,
                                 core__fused_group *group)
{
    measurement m = {.program = program,
                     .nodes = nodes,
                     .group = group,
                     .timing = {.device = device}};
    core_program *like;
    core_status status =
        program_of(program, group, nodes, CORE_COMPILE_CODEGEN_OFF, &like);

    if (status != CORE_OK)
        return status;
    status = measure(like, &m);
    core_program_release(like);
    return status;
}
