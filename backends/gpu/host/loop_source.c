/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_source.c: writes the struct of kernels/loop.h for a loop program. */

#include <gpu/host/loop_expression.h>
#include <gpu/host/loop_writer.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <loop_prelude.h>

/* -------------------------------------------------------------- writing -- */

typedef gpu_loop_writer writer;
#define put gpu_loop_put

static void add(writer *w, const char *what, size_t size)
{
    if (w->used + size >= w->capacity) {
        size_t capacity = 2 * w->capacity + size + (16 << 10);
        char *more = w->no_memory ? NULL : realloc(w->text, capacity);

        if (more == NULL) {
            w->no_memory = true;
            return;
        }
        w->text = more;
        w->capacity = capacity;
    }
    memcpy(w->text + w->used, what, size);
    w->used += size;
    w->text[w->used] = '\0';
}

void gpu_loop_put(writer *w, const char *format, ...)
{
    char line[256];
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > 0)
        add(w, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* ---------------------------------------------------------------- types -- */

const char *gpu_loop_type(core_dtype dtype)
{
    static const char *const types[] = {
        [CORE_F64] = "double",  [CORE_F32] = "float",
        [CORE_F16] = "gpu_f16", [CORE_BF16] = "gpu_bf16",
        [CORE_I64] = "int64_t", [CORE_I32] = "int32_t",
        [CORE_I16] = "int16_t", [CORE_I8] = "int8_t",
        [CORE_U8] = "uint8_t",  [CORE_BOOL] = "gpu_bool",
    };

    return types[dtype];
}

static bool is_float(core_dtype dtype)
{
    return dtype <= CORE_BF16;
}

/* The dtype that operators compute in. */
static core_dtype computed(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16 ? CORE_F32
           : dtype == CORE_BOOL                    ? CORE_U8
                                                   : dtype;
}

static core_dtype operand_type(const writer *w, const core_loop_instruction *at)
{
    return w->program->instructions[at->a].type;
}

/* ------------------------------------------------------------ functions -- */

/* Adds a text with the suffix of a dtype for each @. */
static void put_suffixed(writer *w, const char *text, size_t size,
                         core_dtype dtype)
{
    const char *suffix = gpu_dtype_name(dtype);

    for (size_t i = 0; i < size; i++) {
        if (text[i] != '@') {
            add(w, text + i, 1);
            continue;
        }
        add(w, "_", 1);
        add(w, suffix, strlen(suffix));
    }
}

static bool same_function(const writer *w, const core_loop_instruction *a,
                          const core_loop_instruction *b)
{
    return a->opcode == b->opcode && operand_type(w, a) == operand_type(w, b) &&
           (a->opcode != CORE_LOOP_FUNCTION || a->c == b->c);
}

/* The first instruction that computes the same; its function serves both. */
static uint32_t function_of(const writer *w, uint32_t value)
{
    const core_loop_instruction *all = w->program->instructions;

    for (uint32_t i = 0; i < value; i++)
        if (same_function(w, &all[i], &all[value]))
            return i;
    return value;
}

static void put_function(writer *w, uint32_t value)
{
    static const char *const parameters[] = {"T a", "T a, T b",
                                             "T a, T b, T c"};
    const core_loop_instruction *at = &w->program->instructions[value];
    core_dtype dtype = computed(operand_type(w, at));
    const char *form, *last;
    const gpu_loop_expression *e =
        gpu_loop_expression_of(w->program, at, &form);
    const char *result =
        gpu_loop_type(e->to_bool ? (core_dtype)CORE_U8 : dtype);

    last = strrchr(form, ';');
    last = last != NULL ? last + 1 : form;
    put(w, "struct f%u {\n    typedef %s T;\n", value, gpu_loop_type(dtype));
    put(w, "    static GPU_DEVICE_MEMBER %s of(%s, int *failed)\n    {\n",
        result, parameters[e->inputs - 1]);
    put(w, "        int bad = 0;\n        ");
    put_suffixed(w, form, (size_t)(last - form), dtype);
    put(w, "\n        %s value = (%s)(", result, result);
    put_suffixed(w, last, strlen(last), dtype);
    put(w, ");\n        *failed |= bad;\n        return value;\n    }\n};\n");
}

static void put_functions(writer *w)
{
    const core_loop_program *p = w->program;

    for (uint32_t i = 0; i < p->ninstructions; i++)
        if (gpu_loop_is_operator(p->instructions[i].opcode) &&
            function_of(w, i) == i)
            put_function(w, i);
}

/* ---------------------------------------------------------------- values -- */

static void put_conversion(writer *w, const core_loop_instruction *at)
{
    put(w, "gpu_converted<%s>::%s(gpu_load(v%u))", gpu_loop_type(at->type),
        is_float(operand_type(w, at)) ? "of" : "of_whole", at->a);
}

static void put_call(writer *w, uint32_t value)
{
    const core_loop_instruction *at = &w->program->instructions[value];
    uint32_t order[3] = {at->a, at->b, at->c};
    const char *form;
    const gpu_loop_expression *e =
        gpu_loop_expression_of(w->program, at, &form);

    if (at->opcode == CORE_LOOP_FMA) { /* addcmul adds to its first */
        order[0] = at->c;
        order[1] = at->a;
        order[2] = at->b;
    }
    put(w, "gpu_value<%s>(f%u::of(", gpu_loop_type(at->type),
        function_of(w, value));
    for (uint32_t k = 0; k < e->inputs; k++)
        put(w, "gpu_load(v%u), ", order[k]);
    put(w, "failed))");
}

static bool has_rows(const core_loop_program *program)
{
    return (program->flags & CORE_LOOP_PROGRAM_REDUCES) != 0;
}

static void put_load(writer *w, const core_loop_instruction *at)
{
    uint32_t flags = w->program->operands[at->a].flags;

    if (flags & CORE_LOOP_OPERAND_NUMBER)
        put(w, "gpu_of_bits<%s>(p.number[%u])", gpu_loop_type(at->type), at->a);
    else if (has_rows(w->program))
        put(w, "*(const %s *)((const char *)p.data[%u] + %s[%u])",
            gpu_loop_type(at->type), at->a,
            flags & CORE_LOOP_OPERAND_ROW ? "base" : "offset", at->a);
    else
        put(w, "e.e%u", at->a);
}

static void put_expression(writer *w, uint32_t value)
{
    const core_loop_instruction *at = &w->program->instructions[value];

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        put_load(w, at);
        break;
    case CORE_LOOP_CONSTANT:
        put(w, "gpu_of_bits<%s>(0x%x%08xull)", gpu_loop_type(at->type), at->b,
            at->a);
        break;
    case CORE_LOOP_INDEX:
        put(w, "index[%u]", at->a);
        break;
    case CORE_LOOP_SIZE:
        put(w, "sizes[%u]", at->a);
        break;
    case CORE_LOOP_POSITION:
        put(w, "(int64_t)at");
        break;
    case CORE_LOOP_ROW_SIZE:
        put(w, "(int64_t)q.size");
        break;
    case CORE_LOOP_SELECT:
        put(w, "v%u.bits ? v%u : v%u", at->a, at->b, at->c);
        break;
    case CORE_LOOP_CONVERT:
        put_conversion(w, at);
        break;
    case CORE_LOOP_PHILOX32:
    case CORE_LOOP_PHILOX64:
        put(w, "(%s)philox_%s((uint64_t)v%u, (uint64_t)v%u, (uint64_t)v%u)",
            gpu_loop_type(at->type),
            at->opcode == CORE_LOOP_PHILOX32 ? "32" : "64", at->a, at->b,
            at->c);
        break;
    default:
        put_call(w, value);
    }
}

void gpu_loop_put_value(writer *w, uint32_t value)
{
    put(w, "        const %s v%u = ",
        gpu_loop_type(w->program->instructions[value].type), value);
    put_expression(w, value);
    put(w, ";\n");
}

static void put_run(writer *w)
{
    const core_loop_program *p = w->program;

    put(w, "    template <class P> static GPU_DEVICE_MEMBER void run(\n"
           "        elements &e, const P &p, uint64_t at, const int64_t "
           "*index,\n"
           "        const int64_t *sizes, int *failed)\n    {\n");
    for (uint32_t i = 0; i < p->ninstructions; i++) {
        const core_loop_instruction *at = &p->instructions[i];

        if (at->opcode == CORE_LOOP_STORE) {
            put(w, "        e.e%u = v%u;\n", at->a, at->b);
            continue;
        }
        gpu_loop_put_value(w, i);
    }
    put(w, "    }\n");
}

/* -------------------------------------------------------------- operands -- */

bool gpu_loop_in_memory(const core_loop_program *program, uint32_t operand)
{
    return !(program->operands[operand].flags & CORE_LOOP_OPERAND_NUMBER);
}

static bool in_memory(const writer *w, uint32_t operand)
{
    return gpu_loop_in_memory(w->program, operand);
}

/* The elements of one load or store: at most 16 bytes of any operand. */
static uint32_t vector_of(const writer *w)
{
    uint32_t largest = 16 / GPU_ROW;

    for (uint32_t k = 0; k < w->program->noperands; k++) {
        uint32_t size = core_sdk_itemsize(w->program->operands[k].dtype);

        if (in_memory(w, k) && size > largest)
            largest = size;
    }
    return 16 / largest;
}

static uint32_t numbers_of(const writer *w)
{
    uint32_t mask = 0;

    for (uint32_t k = 0; k < w->program->noperands; k++)
        mask |= (uint32_t)!in_memory(w, k) << k;
    return mask;
}

/* A struct with a member for each operand in memory. */
static void put_members(writer *w, const char *name, const char *before,
                        const char *after)
{
    put(w, "    struct %s {\n", name);
    for (uint32_t k = 0; k < w->program->noperands; k++)
        if (in_memory(w, k))
            put(w, "        %s%s%s e%u;\n", before,
                gpu_loop_type(w->program->operands[k].dtype), after, k);
    put(w, "    };\n");
}

/* How one operand is accessed; its type is named by M, its number by #. */
typedef struct access {
    const char *name, *parameters, *statement;
    bool outputs, inputs;
} access;

static const access accesses[] = {
    {"load", "elements &e, const P &p, uint64_t i",
     "e.e# = ((const M *)p.data[#])[i];", false, true},
    {"store", "const elements &e, const P &p, uint64_t i",
     "((M *)p.data[#])[i] = e.e#;", true, false},
    {"load_at", "elements &e, const P &p, const int64_t *offset",
     "e.e# = *(const M *)((const char *)p.data[#] + offset[#]);", false, true},
    {"store_at", "const elements &e, const P &p, const int64_t *offset",
     "*(M *)((char *)p.data[#] + offset[#]) = e.e#;", true, false},
    {"load_vectors", "vectors &e, const P &p, uint64_t i",
     "e.e# = ((const gpu_vector<M, VECTOR> *)p.data[#])[i];", false, true},
    {"store_vectors", "const vectors &e, const P &p, uint64_t i",
     "((gpu_vector<M, VECTOR> *)p.data[#])[i] = e.e#;", true, false},
};

static void put_statement(writer *w, const char *statement, uint32_t operand)
{
    const char *type = gpu_loop_type(w->program->operands[operand].dtype);

    put(w, "        ");
    for (; *statement != 0; statement++)
        if (*statement == 'M')
            add(w, type, strlen(type));
        else if (*statement == '#')
            put(w, "%u", operand);
        else
            add(w, statement, 1);
    put(w, "\n");
}

static void put_statements(writer *w, const access *a)
{
    for (uint32_t k = 0; k < w->program->noperands; k++)
        if (in_memory(w, k) &&
            (k < w->program->noutputs ? a->outputs : a->inputs))
            put_statement(w, a->statement, k);
    put(w, "    }\n");
}

static void put_accesses(writer *w)
{
    static const access elements[] = {
        {"take", "elements &e, const vectors &of, int k", "e.e# = of.e#.at[k];",
         false, true},
        {"put", "vectors &to, const elements &e, int k", "to.e#.at[k] = e.e#;",
         true, false},
    };

    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        put(w, "    template <class P> static GPU_DEVICE_MEMBER void %s(%s)\n",
            accesses[i].name, accesses[i].parameters);
        put(w, "    {\n");
        put_statements(w, &accesses[i]);
    }
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        put(w, "    static GPU_DEVICE_MEMBER void %s(%s)\n    {\n",
            elements[i].name, elements[i].parameters);
        put_statements(w, &elements[i]);
    }
}

/* --------------------------------------------------------------- kernels -- */

static void put_kernels(writer *w)
{
    char name[GPU_LOOP_NAME];

    gpu_loop_name(w->program, name);
    if (has_rows(w->program)) {
        put(w, "GPU_LOOP_ROWS(%s, gpu_loop)\n", name);
        return;
    }
    if (gpu_loop_has_dense(w->program))
        put(w,
            "GPU_KERNEL(%s_d, gpu_loop_dense)\n{\n"
            "    gpu_loop_dense_run<gpu_loop>(p);\n}\n",
            name);
    put(w,
        "GPU_KERNEL(%s_s, gpu_loop_strided)\n{\n"
        "    gpu_loop_strided_run<gpu_loop>(p);\n}\n",
        name);
}

static void put_elements(writer *w)
{
    put_members(w, "elements", "", "");
    put_members(w, "vectors", "gpu_vector<", ", VECTOR>");
    put_accesses(w);
    put_run(w);
}

core_status gpu_loop_source(const core_loop_program *program, char **out_text)
{
    writer w = {.program = program};

    *out_text = NULL;
    add(&w, gpu_loop_prelude, sizeof gpu_loop_prelude - 1);
    put_functions(&w);
    put(&w,
        "struct gpu_loop {\n"
        "    enum { OPERANDS = %u, VECTOR = %u };\n"
        "    static const uint32_t NUMBERS = %uu;\n",
        program->noperands, vector_of(&w), numbers_of(&w));
    if (has_rows(program))
        gpu_loop_put_row(&w);
    else
        put_elements(&w);
    put(&w, "};\n");
    put_kernels(&w);
    if (w.no_memory) {
        free(w.text);
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for the source of a loop program");
    }
    *out_text = w.text;
    return CORE_OK;
}

void gpu_loop_name(const core_loop_program *program, char out[GPU_LOOP_NAME])
{
    const uint8_t *h = program->hash;

    snprintf(out, GPU_LOOP_NAME, "loop_%02x%02x%02x%02x", h[0], h[1], h[2],
             h[3]);
}

/* ----------------------------------------------------------------- check -- */

bool gpu_loop_has_dense(const core_loop_program *program)
{
    if (has_rows(program))
        return false;
    for (uint32_t i = 0; i < program->ninstructions; i++)
        if (program->instructions[i].opcode == CORE_LOOP_INDEX ||
            program->instructions[i].opcode == CORE_LOOP_SIZE)
            return false;
    return true;
}

static core_status check_instruction(const core_loop_program *program,
                                     const core_loop_instruction *at)
{
    core_string name;
    const char *form;

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
    case CORE_LOOP_STORE:
    case CORE_LOOP_CONSTANT:
    case CORE_LOOP_INDEX:
    case CORE_LOOP_SIZE:
    case CORE_LOOP_POSITION:
    case CORE_LOOP_ROW_SIZE:
    case CORE_LOOP_SELECT:
    case CORE_LOOP_CONVERT:
    case CORE_LOOP_PHILOX32:
    case CORE_LOOP_PHILOX64:
    case CORE_LOOP_REDUCE_SUM:
    case CORE_LOOP_REDUCE_MAX:
    case CORE_LOOP_REDUCE_MIN:
        return CORE_OK;
    default:
        break;
    }
    if (!gpu_loop_is_operator(at->opcode))
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "a loop program has the opcode %u, which this "
                          "device does not compute",
                          at->opcode);
    if (gpu_loop_expression_of(program, at, &form) != NULL)
        return CORE_OK;
    name = gpu_loop_operator(program, at);
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "a loop program needs %.*s of %s, for which this device "
                      "has no kernel",
                      (int)name.size, name.data,
                      gpu_dtype_name(program->instructions[at->a].type));
}

core_status gpu_loop_check(const core_loop_program *program)
{
    core_status status = CORE_OK;

    if (program->ndim > GPU_DIMS)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "a loop program of %u dimensions; at most %d",
                          program->ndim, GPU_DIMS);
    for (uint32_t i = 0; i < program->ninstructions && status == CORE_OK; i++)
        status = check_instruction(program, &program->instructions[i]);
    return status;
}
