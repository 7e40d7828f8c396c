/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.codegen: makes kernels of loop programs, and launches them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libcore/sdk.h>

#include "epilogue.h"
#include "native.h"

enum { NAME = 72 };

/* The operators of opcodes, from add to select. */
static const char *const names[CORE_LOOP_SELECT + 1] = {
    [CORE_LOOP_ADD] = "add.Tensor",
    [CORE_LOOP_SUB] = "sub.Tensor",
    [CORE_LOOP_MUL] = "mul.Tensor",
    [CORE_LOOP_DIV] = "div.Tensor",
    [CORE_LOOP_FLOOR_DIVIDE] = "floor_divide",
    [CORE_LOOP_FMOD] = "fmod.Tensor",
    [CORE_LOOP_REMAINDER] = "remainder.Tensor",
    [CORE_LOOP_FMA] = "addcmul",
    [CORE_LOOP_NEG] = "neg",
    [CORE_LOOP_ABS] = "abs",
    [CORE_LOOP_SQRT] = "sqrt",
    [CORE_LOOP_CEIL] = "ceil",
    [CORE_LOOP_FLOOR] = "floor",
    [CORE_LOOP_TRUNC] = "trunc",
    [CORE_LOOP_ROUND] = "round",
    [CORE_LOOP_MAXIMUM] = "maximum",
    [CORE_LOOP_MINIMUM] = "minimum",
    [CORE_LOOP_FMAX] = "fmax",
    [CORE_LOOP_FMIN] = "fmin",
    [CORE_LOOP_COPYSIGN] = "copysign.Tensor",
    [CORE_LOOP_SIGNBIT] = "signbit",
    [CORE_LOOP_AND] = "bitwise_and.Tensor",
    [CORE_LOOP_OR] = "bitwise_or.Tensor",
    [CORE_LOOP_XOR] = "bitwise_xor.Tensor",
    [CORE_LOOP_NOT] = "bitwise_not",
    [CORE_LOOP_SHIFT_LEFT] = "bitwise_left_shift.Tensor",
    [CORE_LOOP_SHIFT_RIGHT] = "bitwise_right_shift.Tensor",
    [CORE_LOOP_EQ] = "eq.Tensor",
    [CORE_LOOP_NE] = "ne.Tensor",
    [CORE_LOOP_LT] = "lt.Tensor",
    [CORE_LOOP_LE] = "le.Tensor",
    [CORE_LOOP_GT] = "gt.Tensor",
    [CORE_LOOP_GE] = "ge.Tensor",
    [CORE_LOOP_SELECT] = "where.self",
};

/* A kernel under construction. */
typedef struct maker {
    const core_loop_program *program;
    cpu_tile_kernel *kernel;
    uint16_t value[CORE_LOOP_MAX_INSTRUCTIONS]; /* the step of each value */
} maker;

static core_status no_memory(void)
{
    return cpu_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a loop program");
}

static bool is_integer(uint32_t dtype)
{
    return dtype >= CORE_I64 && dtype <= CORE_U8;
}

/* ----------------------------------------------------------------- steps -- */

/* Adds a step, or finds the same conversion. */
static uint16_t add(maker *m, const cpu_tile_step *now)
{
    cpu_tile_kernel *kernel = m->kernel;

    for (uint32_t i = kernel->nsteps; now->kind == CPU_TILE_CONVERT && i-- > 0;)
        if (kernel->steps[i].kind == CPU_TILE_CONVERT &&
            kernel->steps[i].type == now->type &&
            kernel->steps[i].inputs[0] == now->inputs[0])
            return (uint16_t)i;
    kernel->steps[kernel->nsteps] = *now;
    return (uint16_t)kernel->nsteps++;
}

static uint16_t convert(maker *m, uint16_t value, uint32_t type)
{
    const cpu_tile_step now = {.kind = CPU_TILE_CONVERT,
                               .type = (uint8_t)type,
                               .from = m->kernel->steps[value].type,
                               .ninputs = 1,
                               .inputs = {value}};

    return now.from == type ? value : add(m, &now);
}

/* The newest operator of the name for these dtypes, results first. */
static const cpu_elementwise *find(const char *name, const core_dtype *dtypes,
                                   uint32_t count)
{
    for (uint32_t at = cpu_elementwise_count; at-- > 0;) {
        cpu_kernel row;
        bool fits;

        cpu_elementwise_row(at, &row);
        fits = strcmp(row.name, name) == 0;
        for (uint32_t k = 0; fits && k < count; k++)
            fits = row.signature[k] >> dtypes[k] & 1;
        if (fits && (count == CORE_SIGNATURE_MAX || row.signature[count] == 0))
            return row.user;
    }
    return NULL;
}

/* Parameters that no argument sets. */
static void set_parameters(const cpu_elementwise *self, cpu_parameters *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t k = 0; k < self->nparameters; k++) {
        double value = cpu_elementwise_constants[self->otherwise[k]];

        out->d[k] = value;
        out->i[k] = value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : 0;
    }
}

/* A row of an operator, with the conversions that its types need.  now: what is
 * known of the step. */
static core_status add_row(maker *m, const char *name, int variant,
                           const uint32_t *values, uint32_t count,
                           uint32_t type, cpu_tile_step now, uint16_t *out_step)
{
    core_dtype dtypes[4] = {type};
    const cpu_elementwise *self;

    now.kind = CPU_TILE_ROW;
    now.ninputs = (uint8_t)count;
    for (uint32_t k = 0; k < count; k++)
        dtypes[k + 1] = m->program->instructions[values[k]].type;
    self = find(name, dtypes, count + 1);
    if (self == NULL)
        return cpu_error(CORE_ERROR_UNSUPPORTED,
                         "loop programs: %s has no row of dtype %u", name,
                         type);
    for (uint32_t k = 0; k < count; k++)
        now.inputs[k] =
            convert(m, m->value[values[k]],
                    self->types[k + 1] ? self->types[k + 1] : dtypes[k + 1]);
    now.type = self->types[0] ? self->types[0] : (uint8_t)type;
    now.row = self->rows[variant];
    set_parameters(self, &now.parameters);
    *out_step = convert(m, add(m, &now), type);
    return CORE_OK;
}

static core_status add_function(maker *m, const core_loop_instruction *at,
                                uint16_t *out_step)
{
    core_string text = m->program->names[at->c];
    uint32_t values[2] = {at->a, at->b};
    core_dtype dtypes[3] = {at->type, at->type, at->type};
    size_t size = (size_t)text.size;
    cpu_tile_step now = {.operation = CORE_LOOP_FUNCTION};
    char name[NAME];
    int variant = 0;

    if (size >= NAME)
        return cpu_error(CORE_ERROR_UNSUPPORTED,
                         "loop programs: a function name has %zu bytes; fewer "
                         "than %d are accepted",
                         (size_t)size, NAME);
    memcpy(name, text.data, size);
    name[size] = '\0';
    now.function = vector_function_of(name);
    if (core_sdk_string_equal(text, "gelu_tanh") ||
        core_sdk_string_equal(text, "gelu_backward_tanh")) {
        size -= strlen("_tanh");
        variant = 1;
    }
    name[size] = '\0';
    if (strcmp(name, "nextafter") == 0)
        variant = at->type == CORE_F16 ? 1 : at->type == CORE_BF16 ? 2 : 0;
    return add_row(m, name, variant, values,
                   find(name, dtypes, 2) != NULL ? 1 : 2, at->type, now,
                   out_step);
}

static uint32_t count_values(uint32_t opcode)
{
    switch (opcode) {
    case CORE_LOOP_FMA:
    case CORE_LOOP_SELECT:
        return 3;
    case CORE_LOOP_SIGNBIT:
    case CORE_LOOP_NOT:
        return 1;
    default:
        return opcode >= CORE_LOOP_NEG && opcode <= CORE_LOOP_ROUND ? 1 : 2;
    }
}

static core_status add_operator(maker *m, const core_loop_instruction *at,
                                uint16_t *out_step)
{
    uint32_t values[3] = {at->a, at->b, at->c};
    const char *name =
        at->opcode <= CORE_LOOP_SELECT ? names[at->opcode] : NULL;
    int variant = 0;

    if (name == NULL)
        return cpu_error(CORE_ERROR_UNSUPPORTED,
                         "loop programs: opcode %u is not supported",
                         at->opcode);
    if (at->opcode == CORE_LOOP_FMA) { /* addcmul adds to its first */
        values[0] = at->c;
        values[1] = at->a;
        values[2] = at->b;
    }
    if (at->opcode == CORE_LOOP_DIV && is_integer(at->type)) {
        name = "div.Tensor_mode";
        variant = 1; /* trunc */
    }
    return add_row(m, name, variant, values, count_values(at->opcode), at->type,
                   (cpu_tile_step){.operation = at->opcode}, out_step);
}

static core_status add_instruction(maker *m, uint32_t i)
{
    const core_loop_instruction *at = &m->program->instructions[i];
    cpu_tile_step now = {.type = at->type, .operand = CPU_TILE_NONE};

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        now.operand = (uint16_t)at->a;
        now.kind = m->program->operands[at->a].flags & CORE_LOOP_OPERAND_NUMBER
                       ? CPU_TILE_FILL
                       : CPU_TILE_LOAD;
        now.uniform =
            (m->program->operands[at->a].flags & CORE_LOOP_OPERAND_ROW) != 0;
        break;
    case CORE_LOOP_STORE:
        now.kind = CPU_TILE_STORE;
        now.type = (uint8_t)m->program->operands[at->a].dtype;
        now.operand = (uint16_t)at->a;
        now.ninputs = 1;
        now.inputs[0] = m->value[at->b];
        now.single =
            (m->program->operands[at->a].flags & CORE_LOOP_OPERAND_ROW) != 0;
        break;
    case CORE_LOOP_CONSTANT:
        now.kind = CPU_TILE_FILL;
        now.bits = at->a | (uint64_t)at->b << 32;
        break;
    case CORE_LOOP_INDEX:
    case CORE_LOOP_SIZE:
        now.kind =
            at->opcode == CORE_LOOP_SIZE ? CPU_TILE_SIZE : CPU_TILE_INDEX;
        now.dimension = (uint16_t)at->a;
        break;
    case CORE_LOOP_POSITION:
        now.kind = CPU_TILE_POSITION;
        break;
    case CORE_LOOP_ROW_SIZE:
        now.kind = CPU_TILE_ROW_SIZE;
        break;
    case CORE_LOOP_REDUCE_SUM:
    case CORE_LOOP_REDUCE_MAX:
    case CORE_LOOP_REDUCE_MIN:
        now.kind = at->opcode == CORE_LOOP_REDUCE_SUM   ? CPU_TILE_SUM
                   : at->opcode == CORE_LOOP_REDUCE_MAX ? CPU_TILE_MAX
                                                        : CPU_TILE_MIN;
        now.uniform = true;
        now.ninputs = 1;
        now.inputs[0] = m->value[at->a];
        break;
    case CORE_LOOP_PHILOX32:
    case CORE_LOOP_PHILOX64:
        now.kind = CPU_TILE_PHILOX;
        now.ninputs = 3;
        now.inputs[0] = m->value[at->a];
        now.inputs[1] = m->value[at->b];
        now.inputs[2] = m->value[at->c];
        break;
    case CORE_LOOP_CONVERT:
        m->value[i] = convert(m, m->value[at->a], at->type);
        return CORE_OK;
    case CORE_LOOP_FUNCTION:
        return add_function(m, at, &m->value[i]);
    default:
        return add_operator(m, at, &m->value[i]);
    }
    m->value[i] = add(m, &now);
    return CORE_OK;
}

/* ---------------------------------------------------------------- blocks -- */

/* Whether its value depends on other values alone, element by element. */
static bool computes(const cpu_tile_step *step)
{
    return step->kind == CPU_TILE_ROW || step->kind == CPU_TILE_CONVERT ||
           step->kind == CPU_TILE_PHILOX;
}

/* Whether it reads every element of its inputs: not if these are uniform and it
 * needs one. */
static bool reads_all(const cpu_tile_step *step)
{
    if (step->kind == CPU_TILE_STORE)
        return !step->single;
    return step->constant ? step->spread : !step->uniform && !step->group;
}

/* A step of a group reads values of that group in registers. */
static void find_reads(cpu_tile_kernel *kernel, uint32_t reader)
{
    const cpu_tile_step *step = &kernel->steps[reader];
    const bool stores = step->kind == CPU_TILE_STORE;

    for (uint32_t k = 0; k < step->ninputs; k++) {
        cpu_tile_step *input = &kernel->steps[step->inputs[k]];

        if (step->group && input->group == step->group)
            continue;
        input->inside = false;
        input->stored = input->stored || stores;
        input->store = input->last == 0 && stores ? reader : 0;
        input->last =
            step->group ? kernel->groups[step->group - 1].end - 1 : reader;
    }
}

static void find_kinds(cpu_tile_kernel *kernel, cpu_tile_step *step)
{
    bool uniform = true;

    step->constant = step->kind == CPU_TILE_FILL ||
                     step->kind == CPU_TILE_SIZE ||
                     step->kind == CPU_TILE_ROW_SIZE || computes(step);
    for (uint32_t k = 0; k < step->ninputs; k++) {
        const cpu_tile_step *input = &kernel->steps[step->inputs[k]];

        step->constant = step->constant && input->constant;
        uniform = uniform && (input->uniform || input->constant);
    }
    if (step->constant)
        step->uniform = false; /* computed once */
    else if (computes(step))
        step->uniform = uniform;
}

/* An earlier row must not write to an output, which may be an input that a
 * later step reads. */
static void limit_stores(cpu_tile_kernel *kernel)
{
    uint32_t last = kernel->nsteps - 1;

    while (last > 0 && kernel->steps[last].kind == CPU_TILE_STORE)
        last--;
    for (uint32_t i = 0; i < kernel->nsteps; i++) {
        cpu_tile_step *step = &kernel->steps[i];

        if (step->constant || step->uniform ||
            (step->group ? step->group != kernel->steps[last].group
                         : i != last || step->kind != CPU_TILE_ROW))
            step->store = 0;
    }
}

/* What reads each value, and which are the same for all elements. */
static void find_uses(cpu_tile_kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->nsteps; i++) {
        cpu_tile_step *step = &kernel->steps[i];

        find_kinds(kernel, step);
        step->spread = false;
        step->last = 0;
        step->store = 0;
        step->inside = step->group != 0;
        /* Into a block, where it is repeated. */
        step->stored = step->kind == CPU_TILE_LOAD && step->uniform;
        find_reads(kernel, i);
    }
    for (uint32_t i = kernel->nsteps; i-- > 0;) {
        const cpu_tile_step *step = &kernel->steps[i];

        for (uint32_t k = 0; k < step->ninputs; k++)
            if (reads_all(step))
                kernel->steps[step->inputs[k]].spread =
                    kernel->steps[step->inputs[k]].uniform ||
                    kernel->steps[step->inputs[k]].constant;
    }
    limit_stores(kernel);
}

/* Whether nothing needs blocks if all operands are dense. */
static bool is_whole(const cpu_tile_kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->nsteps; i++) {
        const cpu_tile_step *step = &kernel->steps[i];

        if (step->kind == CPU_TILE_STORE
                ? kernel->steps[step->inputs[0]].store != i
                : !step->constant && !step->group &&
                      (step->kind != CPU_TILE_LOAD || step->stored))
            return false;
    }
    return kernel->ngroups == 1 && !kernel->reduces;
}

static uint32_t size_of(uint32_t dtype)
{
    return core_sdk_itemsize(dtype);
}

typedef struct blocks {
    uint32_t until[CPU_TILE_BLOCKS]; /* the last step that reads it */
    uint32_t size[CPU_TILE_BLOCKS];  /* of its elements */
    bool taken[CPU_TILE_BLOCKS];
} blocks;

/* A row may write over an input whose elements are as large. */
static bool is_free(const blocks *b, uint32_t block, const cpu_tile_step *step,
                    uint32_t at)
{
    return !b->taken[block] || b->until[block] < at ||
           (b->until[block] == at && step->kind == CPU_TILE_ROW &&
            b->size[block] == size_of(step->type));
}

static core_status place(cpu_tile_kernel *kernel, blocks *b, uint32_t at)
{
    cpu_tile_step *step = &kernel->steps[at];
    uint32_t block = 0;

    while (block < CPU_TILE_BLOCKS && !is_free(b, block, step, at))
        block++;
    if (block == CPU_TILE_BLOCKS)
        return cpu_error(
            CORE_ERROR_UNSUPPORTED,
            "loop programs: more than %d values are needed at once",
            CPU_TILE_BLOCKS);
    step->block = (uint16_t)block;
    b->taken[block] = true;
    b->size[block] = size_of(step->type);
    b->until[block] = step->constant || step->uniform ? UINT32_MAX : step->last;
    if (block >= kernel->nblocks)
        kernel->nblocks = block + 1;
    return CORE_OK;
}

/* Gives each value a block, which a later value takes over when nothing reads
 * it any more.  Constants and uniform values keep theirs: they are not computed
 * again for each piece of a row. */
static core_status place_blocks(cpu_tile_kernel *kernel)
{
    blocks b = {{0}, {0}, {false}};
    core_status status = CORE_OK;

    kernel->nblocks = 0;
    for (int lasting = 1; lasting >= 0; lasting--)
        for (uint32_t i = 0; i < kernel->nsteps && status == CORE_OK; i++) {
            const cpu_tile_step *step = &kernel->steps[i];

            if ((step->constant || step->uniform) == (lasting == 1) &&
                step->kind != CPU_TILE_STORE && !step->inside)
                status = place(kernel, &b, i);
        }
    return status;
}

/* ------------------------------------------------------------- interface -- */

static core_status identity(void *device, core_string *out_text)
{
    (void)device;
    *out_text = core_sdk_string(cpu_isa_name(cpu_isa));
    return CORE_OK;
}

/* Logs how the steps run, with LIBCORE_LOG=debug. */
static void report(const cpu_tile_kernel *kernel)
{
    uint32_t native = 0, interpreted = 0;
    char text[160];

    for (uint32_t i = 0; i < kernel->nsteps; i++) {
        native += kernel->steps[i].group != 0;
        interpreted += kernel->steps[i].group == 0 &&
                       !kernel->steps[i].constant &&
                       kernel->steps[i].kind > CPU_TILE_STORE;
    }
    snprintf(text, sizeof text,
             "loop program: %u steps are native code, in %u groups; %u are "
             "interpreted",
             native, kernel->ngroups, interpreted);
    cpu_host->log(CORE_LOG_DEBUG, core_sdk_string("cpu"),
                  core_sdk_string(text));
}

static void destroy(void *device, void *handle)
{
    cpu_tile_kernel *kernel = handle;

    (void)device;
    if (kernel != NULL) {
        cpu_native_free(kernel);
        free(kernel->steps);
    }
    free(kernel);
}

static core_status make(maker *m)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < m->program->ninstructions && status == CORE_OK;
         i++)
        status = add_instruction(m, i);
    if (status != CORE_OK)
        return status;
    for (uint32_t i = 0; i < m->kernel->nsteps; i++)
        m->kernel->divides =
            m->kernel->divides || (m->kernel->steps[i].kind == CPU_TILE_ROW &&
                                   is_integer(m->kernel->steps[i].type));
    find_uses(m->kernel);
    return place_blocks(m->kernel);
}

/* Compiles steps.  Values that stay in registers need no blocks, but in the
 * order of groups others may need more: then all steps remain interpreted. */
static core_status make_native(cpu_tile_kernel *kernel)
{
    const size_t size = kernel->nsteps * sizeof *kernel->steps;
    cpu_tile_step *before = malloc(size);
    core_status status = CORE_OK;

    if (before == NULL)
        return no_memory();
    memcpy(before, kernel->steps, size);
    cpu_native_make(kernel);
    if (kernel->ngroups > 0) {
        find_uses(kernel);
        status = place_blocks(kernel);
        kernel->whole = is_whole(kernel);
    }
    if (kernel->ngroups == 0 || status != CORE_OK) {
        cpu_native_free(kernel);
        memcpy(kernel->steps, before, size);
        kernel->whole = false;
        status = place_blocks(kernel);
    }
    free(before);
    return status;
}

static core_status build_tiles(void *device, const core_loop_program *program,
                               cpu_tile_kernel **out_kernel)
{
    maker m = {.program = program,
               .kernel = calloc(1, sizeof(cpu_tile_kernel))};
    /* An instruction is a row with a conversion of each operand at most. */
    size_t most = (size_t)program->ninstructions * 5;
    core_status status;

    *out_kernel = NULL;
    if (m.kernel != NULL)
        m.kernel->steps = calloc(most, sizeof(cpu_tile_step));
    if (m.kernel == NULL || m.kernel->steps == NULL) {
        destroy(device, m.kernel);
        return no_memory();
    }
    m.kernel->noperands = program->noperands;
    m.kernel->noutputs = program->noutputs;
    m.kernel->reduces = (program->flags & CORE_LOOP_PROGRAM_REDUCES) != 0;
    status = make(&m);
    if (status != CORE_OK)
        destroy(device, m.kernel);
    else
        *out_kernel = m.kernel;
    return status;
}

static core_status build(void *device, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel)
{
    cpu_tile_kernel *kernel;
    core_status status = build_tiles(device, program, &kernel);

    (void)hints;
    *out_kernel = NULL;
    if (status == CORE_OK && cpu_native_is_on())
        status = make_native(kernel);
    if (status != CORE_OK) {
        destroy(device, kernel);
        return status;
    }
    report(kernel);
    *out_kernel = kernel;
    return CORE_OK;
}

static core_status accepts(void *device, const core_loop_program *program)
{
    cpu_tile_kernel *kernel;
    core_status status = build_tiles(device, program, &kernel);

    destroy(device, kernel);
    return status;
}

bool cpu_tiles_run(const cpu_tile_kernel *kernel, const core_loop *loop,
                   cpu_tile_division division, bool *out_failed)
{
    static cpu_tiles_function *const functions[] = {
        cpu_tiles_run_baseline,
#ifdef CPU_X86_ISA
        cpu_tiles_run_avx2,
        cpu_tiles_run_avx512,
#endif
    };

    return functions[CPU_ISA_COMPILED(cpu_isa)](kernel, loop, division,
                                                out_failed);
}

core_status cpu_tiles_status(bool no_memory_left, bool failed)
{
    if (no_memory_left)
        return no_memory();
    return failed ? cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                              "loop program: an integer was divided by zero")
                  : CORE_OK;
}

static core_status launch(void *device, void *handle,
                          const core_loop_launch *launch)
{
    const cpu_tile_kernel *kernel = handle;
    cpu_tile_division division = {0};
    bool failed, enough;

    (void)device;
    if (launch->loop->noperands != kernel->noperands)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "a loop with %u operands; the kernel has %u",
                         launch->loop->noperands, kernel->noperands);
    if (launch->struct_size >=
        offsetof(core_loop_launch, nahead) + sizeof launch->nahead)
        division = (cpu_tile_division){launch->tile, launch->threads,
                                       launch->ahead, launch->nahead};
    enough = cpu_tiles_run(kernel, launch->loop, division, &failed);
    return cpu_tiles_status(!enough, failed);
}

const core_codegen_interface cpu_codegen = {
    .struct_size = sizeof(core_codegen_interface),
    .row_block = 256,
    .identity = identity,
    .accepts = accepts,
    .build = build,
    .destroy = destroy,
    .launch = launch,
    .launch_after = cpu_epilogue_launch,
};
