/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes loop programs as OpenCL C.  An instruction that is an operator becomes
 * a function whose body is the operator's expression, for the type in which it
 * computes; half precision is computed in f32 and rounded. */

#include "elementwise.h"
#include "loop_writer.h"
#include "opencl_kernels.h"

#include <stdarg.h>
#include <stdio.h>

/* -------------------------------------------------------------- writing -- */

typedef opencl_loop_writer writer;
#define put opencl_loop_put

static void add(writer *w, const char *what, size_t size)
{
    if (w->used + size >= w->capacity) {
        size_t capacity = 2 * w->capacity + size + (64 << 10);
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

void opencl_loop_put(writer *w, const char *format, ...)
{
    char line[1500];
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > 0)
        add(w, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* ------------------------------------------------------------ operators -- */

static const char *const names[CORE_LOOP_GE + 1] = {
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
};

/* What an instruction computes: an operator on one dtype. */
typedef struct computation {
    const operation *op;
    const char *expression;
    core_dtype operands; /* their dtype */
    int parameter;       /* p0 */
} computation;

static bool is_integer(uint32_t dtype)
{
    return dtype >= CORE_I64 && dtype <= CORE_U8;
}

static bool is_computed(uint32_t opcode)
{
    return opcode == CORE_LOOP_FUNCTION ||
           (opcode <= CORE_LOOP_GE && names[opcode] != NULL);
}

static const operation *operation_of(const core_loop_program *program,
                                     const core_loop_instruction *at,
                                     int *out_parameter)
{
    core_string name;

    /* The factor of add, sub and addcmul. */
    *out_parameter = 1;
    if (at->opcode == CORE_LOOP_DIV && is_integer(at->type))
        return opencl_operation_find(core_sdk_string("div.Tensor_mode"));
    if (at->opcode != CORE_LOOP_FUNCTION)
        return opencl_operation_find(core_sdk_string(names[at->opcode]));
    name = program->names[at->c];
    if (core_sdk_string_equal(name, "gelu_tanh"))
        return opencl_operation_find(core_sdk_string("gelu"));
    if (core_sdk_string_equal(name, "gelu_backward_tanh"))
        return opencl_operation_find(core_sdk_string("gelu_backward"));
    *out_parameter = 0;
    return opencl_operation_find(name);
}

uint32_t opencl_loop_values(const core_loop_program *program,
                            const core_loop_instruction *at)
{
    const operation *op;
    int parameter;

    if (at->opcode == CORE_LOOP_CONVERT ||
        core_sdk_loop_is_reduction(at->opcode))
        return 1;
    if (at->opcode == CORE_LOOP_SELECT || at->opcode == CORE_LOOP_PHILOX32 ||
        at->opcode == CORE_LOOP_PHILOX64)
        return 3;
    op = is_computed(at->opcode) ? operation_of(program, at, &parameter) : NULL;
    return op != NULL ? op->inputs : 0;
}

static const char *text_of(const core_loop_program *program,
                           const core_loop_instruction *at)
{
    return at->opcode == CORE_LOOP_FUNCTION ? program->names[at->c].data
                                            : names[at->opcode];
}

static core_status find(const opencl_device *device,
                        const core_loop_program *program, uint32_t value,
                        computation *out)
{
    const core_loop_instruction *at = &program->instructions[value];

    *out = (computation){.operands = program->instructions[at->a].type};
    out->op = operation_of(program, at, &out->parameter);
    if (out->op != NULL && (out->op->flags & (SELECTS | MASKS)) == 0)
        out->expression = opencl_expression_for(out->op, out->operands);
    if (out->expression != NULL && at->opcode == CORE_LOOP_ADD &&
        out->operands <= CORE_BF16)
        out->expression = "a + b";
    if (out->expression != NULL && at->opcode == CORE_LOOP_SUB &&
        out->operands <= CORE_BF16)
        out->expression = "a - b";
    if (out->expression == NULL ||
        ((out->op->flags & SPECIAL) && !device->has_f64))
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "a loop program needs %.64s of dtype %u, for "
                             "which this device has no kernel",
                             text_of(program, at), out->operands);
    return CORE_OK;
}

bool opencl_loop_may_fail(const core_loop_program *program)
{
    int parameter;

    for (uint32_t i = 0; i < program->ninstructions; i++) {
        const core_loop_instruction *at = &program->instructions[i];
        const operation *op = is_computed(at->opcode)
                                  ? operation_of(program, at, &parameter)
                                  : NULL;

        if (op != NULL && (op->flags & MAY_FAIL) && is_integer(at->type))
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------- types -- */

/* The types in which operators compute. */
static const core_dtype computed[] = {CORE_F32, CORE_F64, CORE_I64, CORE_I32,
                                      CORE_I16, CORE_I8,  CORE_U8};

/* Its index. */
static uint32_t computed_as(core_dtype dtype)
{
    uint32_t i = 0;

    if (opencl_is_half(dtype))
        dtype = CORE_F32;
    if (dtype == CORE_BOOL)
        dtype = CORE_U8;
    while (computed[i] != dtype)
        i++;
    return i;
}

const char *opencl_loop_type(core_dtype dtype)
{
    return opencl_type_name(computed[computed_as(dtype)]);
}

/* What stands before and after a number to round it to half precision. */
static const char *rounding(core_dtype dtype)
{
    return dtype == CORE_F16    ? "get_f16(put_f16("
           : dtype == CORE_BF16 ? "get_bf16(put_bf16("
                                : "((";
}

static const char *loading(core_dtype dtype)
{
    return dtype == CORE_F16 ? "get_f16" : dtype == CORE_BF16 ? "get_bf16" : "";
}

static const char *storing(core_dtype dtype)
{
    return dtype == CORE_F16 ? "put_f16" : dtype == CORE_BF16 ? "put_bf16" : "";
}

/* ------------------------------------------------------------ functions -- */

static void put_function(writer *w, uint32_t value, const computation *c)
{
    static const char *const parameters[] = {"T a", "T a, T b",
                                             "T a, T b, T c"};
    bool is_bool = (c->op->flags & TO_BOOL) != 0;

    put(w,
        "static %s f%u(%s, int *failed)\n{\n"
        "    const T p0 = %d;\n    int bad = 0;\n",
        is_bool ? "uchar" : "T", value, parameters[c->op->inputs - 1],
        c->parameter);
    put(w, "    %s value = (%s)(%s);\n", is_bool ? "uchar" : "T",
        is_bool ? "uchar" : "T", c->expression);
    put(w, "    if (bad)\n        *failed = 1;\n    return value;\n}\n");
}

/* The functions that compute in one type. */
static core_status put_functions(writer *w, uint32_t type)
{
    const core_loop_program *p = w->program;
    bool any = false;

    for (uint32_t i = 0; i < p->ninstructions; i++) {
        computation c;
        core_status status;

        if (!is_computed(p->instructions[i].opcode) ||
            computed_as(p->instructions[p->instructions[i].a].type) != type)
            continue;
        status = find(w->device, p, i, &c);
        if (status != CORE_OK)
            return status;
        if (!any) {
            put(w,
                "#undef T\n#undef FLOAT\n#undef IDT\n#define T %s\n"
                "#define FLOAT %d\n#define IDT %u\n",
                opencl_type_name(computed[type]), computed[type] <= CORE_F32,
                computed[type]);
            add(w, opencl_elementwise_cl, sizeof opencl_elementwise_cl - 1);
        }
        any = true;
        put_function(w, i, &c);
    }
    return CORE_OK;
}

/* ---------------------------------------------------------------- values -- */

/* An element's bits, an expression of type ulong, as a number. */
static void put_bits(writer *w, core_dtype dtype, const char *bits)
{
    switch (dtype) {
    case CORE_F64:
        put(w, "as_double(%s)", bits);
        break;
    case CORE_F32:
        put(w, "as_float((uint)%s)", bits);
        break;
    case CORE_F16:
    case CORE_BF16:
        put(w, "%s((ushort)%s)", loading(dtype), bits);
        break;
    default:
        put(w, "(%s)%s", opencl_loop_type(dtype), bits);
    }
}

bool opencl_loop_in_memory(const core_loop_program *program, uint32_t operand)
{
    return !(program->operands[operand].flags & CORE_LOOP_OPERAND_NUMBER);
}

static void put_load(writer *w, const core_loop_instruction *at, bool dense)
{
    char bits[16];

    if (!opencl_loop_in_memory(w->program, at->a)) {
        snprintf(bits, sizeof bits, "n%u", at->a);
        put_bits(w, at->type, bits);
        return;
    }
    put(w, "%s(*AT(const %s, b%u, o%u + ", loading(at->type),
        opencl_type_name(at->type), at->a, at->a);
    if (dense)
        put(w, "at * %u))", core_sdk_itemsize(at->type));
    else
        put(w, "s%u))", at->a);
}

static void put_conversion(writer *w, const core_loop_instruction *at)
{
    core_dtype from = w->program->instructions[at->a].type, to = at->type;

    if (to == CORE_BOOL)
        put(w, "(uchar)(v%u != 0)", at->a);
    else if (to <= CORE_BF16)
        put(w, "%s(%s)v%u))", rounding(to), opencl_loop_type(to), at->a);
    else if (from > CORE_BF16)
        put(w, "(%s)v%u", opencl_loop_type(to), at->a);
    else
        put(w, "(%s)%s(%s, v%u)", opencl_loop_type(to),
            to == CORE_I32 ? "TO_I32" : "TO_I64", opencl_loop_type(from),
            at->a);
}

static core_status put_call(writer *w, uint32_t value)
{
    const core_loop_instruction *at = &w->program->instructions[value];
    uint32_t order[3] = {at->a, at->b, at->c};
    computation c;
    core_status status = find(w->device, w->program, value, &c);

    if (status != CORE_OK)
        return status;
    if (at->opcode == CORE_LOOP_FMA) { /* addcmul adds to its first */
        order[0] = at->c;
        order[1] = at->a;
        order[2] = at->b;
    }
    put(w, "%sf%u(", at->type == CORE_BOOL ? "((" : rounding(at->type), value);
    for (uint32_t k = 0; k < c.op->inputs; k++)
        put(w, "v%u, ", order[k]);
    put(w, "&failed)))");
    return CORE_OK;
}

static core_status put_expression(writer *w, uint32_t value, bool dense)
{
    const core_loop_instruction *at = &w->program->instructions[value];
    char bits[32];

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        put_load(w, at, dense);
        break;
    case CORE_LOOP_CONSTANT:
        snprintf(bits, sizeof bits, "0x%xul", at->a);
        if (at->b != 0)
            snprintf(bits, sizeof bits, "0x%x%08xul", at->b, at->a);
        put_bits(w, at->type, bits);
        break;
    case CORE_LOOP_INDEX:
        put(w, "(long)i%u", at->a);
        break;
    case CORE_LOOP_SIZE:
        put(w, "shape[%u]", at->a);
        break;
    case CORE_LOOP_POSITION:
        put(w, "(long)at");
        break;
    case CORE_LOOP_ROW_SIZE:
        put(w, "(long)count");
        break;
    case CORE_LOOP_SELECT:
        put(w, "v%u ? v%u : v%u", at->a, at->b, at->c);
        break;
    case CORE_LOOP_CONVERT:
        put_conversion(w, at);
        break;
    case CORE_LOOP_PHILOX32:
    case CORE_LOOP_PHILOX64:
        put(w, "philox%d(v%u, v%u, v%u)",
            at->opcode == CORE_LOOP_PHILOX32 ? 32 : 64, at->a, at->b, at->c);
        break;
    default:
        return is_computed(at->opcode)
                   ? put_call(w, value)
                   : opencl_refuse(CORE_ERROR_UNSUPPORTED,
                                   "a loop program has the opcode %u, which "
                                   "this device does not compute",
                                   at->opcode);
    }
    return CORE_OK;
}

core_status opencl_loop_put_value(writer *w, uint32_t value, bool dense)
{
    core_status status;

    put(w,
        "    %s v%u = ", opencl_loop_type(w->program->instructions[value].type),
        value);
    status = put_expression(w, value, dense);
    put(w, ";\n");
    return status;
}

void opencl_loop_put_store(writer *w, const core_loop_instruction *at,
                           bool dense)
{
    core_dtype dtype = w->program->operands[at->a].dtype;

    put(w, "    *AT(%s, b%u, o%u + ", opencl_type_name(dtype), at->a, at->a);
    if (dense)
        put(w, "at * %u) = ", core_sdk_itemsize(dtype));
    else
        put(w, "s%u) = ", at->a);
    put(w, "%s(v%u);\n", storing(dtype), at->b);
}

/* --------------------------------------------------------------- kernels -- */

/* Whether compilers for CPUs compute an instruction for one work item after
 * another, instead of for a vector of them. */
static bool is_scalar(const core_loop_program *program,
                      const core_loop_instruction *at)
{
    static const char *const vectors[] = {"exp", "tanh", "sigmoid", "gelu_tanh",
                                          "gelu_backward_tanh"};

    if (at->opcode >= CORE_LOOP_FLOOR_DIVIDE &&
        at->opcode <= CORE_LOOP_REMAINDER)
        return true;
    if (at->opcode != CORE_LOOP_FUNCTION)
        return false;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (core_sdk_string_equal(program->names[at->c], vectors[i]))
            return false;
    return true;
}

/* On a device that computes work items in vectors, an instruction that it
 * cannot compute in vectors would keep the whole kernel from that.  Between
 * barriers such a device has a loop over the work items of a group for each
 * part of a kernel, so barriers before and after that instruction confine it to
 * its own loop. */
static bool needs_parts(const opencl_device *device,
                        const core_loop_program *program)
{
    for (uint32_t i = 0; i < program->ninstructions; i++)
        if (device->wide_vectors &&
            is_scalar(program, &program->instructions[i]))
            return true;
    return false;
}

void opencl_loop_put_parameters(writer *w, const char *name)
{
    const core_loop_program *p = w->program;

    put(w, "%s(", name);
    for (uint32_t k = 0; k < p->noperands; k++)
        if (!opencl_loop_in_memory(p, k))
            put(w, "ulong n%u, ", k);
        else
            put(w, "%sglobal uchar *b%u, ulong o%u, ",
                k < p->noutputs ? "" : "const ", k, k);
    if (opencl_loop_may_fail(p))
        put(w, "global fault *errors, long call, ");
}

static void put_head(writer *w, bool dense)
{
    opencl_loop_put_parameters(w, dense ? "kernel void dense"
                                        : "kernel void spaced");
    put(w, "ulong numel%s)\n{\n",
        dense ? "" : ", uint ndim, global const long *shape");
    put(w, "    ulong item = get_global_id(0), at = item;\n"
           "    int failed = 0;\n");
    if (w->parts) /* All items reach the barriers. */
        put(w, "    at = item < numel ? item : numel - 1;\n");
    else
        put(w, "    if (item >= numel)\n        return;\n");
}

/* The offset of the element in each operand, and its indices. */
static void put_offsets(writer *w)
{
    const core_loop_program *p = w->program;

    put(w, "    uint left = (uint)at;\n");
    for (uint32_t k = 0; k < p->noperands; k++)
        if (opencl_loop_in_memory(p, k))
            put(w, "    long s%u = 0;\n", k);
    for (uint32_t d = 0; d < p->ndim; d++)
        put(w, "    uint i%u = 0;\n", d);
    put(w, "    for (uint d = 0; d < ndim; d++) {\n"
           "        uint size = (uint)shape[d], next = left / size;\n"
           "        uint k = left - next * size;\n");
    for (uint32_t k = 0; k < p->noperands; k++)
        if (opencl_loop_in_memory(p, k))
            put(w, "        s%u += k * shape[ndim * %u + d];\n", k, k + 1);
    for (uint32_t d = 0; d < p->ndim; d++)
        put(w, "        if (d == %u)\n            i%u = k;\n", d, d);
    put(w, "        left = next;\n    }\n");
}

static core_status put_kernel(writer *w, bool dense)
{
    const core_loop_program *p = w->program;
    core_status status = CORE_OK;
    bool separate, separated = false;

    put_head(w, dense);
    if (!dense)
        put_offsets(w);
    for (uint32_t i = 0; i < p->ninstructions && status == CORE_OK; i++) {
        const core_loop_instruction *at = &p->instructions[i];

        if (at->opcode == CORE_LOOP_STORE) {
            put(w, "    if (item < numel)\n    ");
            opencl_loop_put_store(w, at, dense);
            continue;
        }
        separate = w->parts && is_scalar(p, at);
        if (separate && !separated)
            put(w, "    barrier(CLK_LOCAL_MEM_FENCE);\n");
        status = opencl_loop_put_value(w, i, dense);
        if (separate)
            put(w, "    barrier(CLK_LOCAL_MEM_FENCE);\n");
        separated = separate;
    }
    if (opencl_loop_may_fail(p))
        put(w, "    if (failed && item < numel)\n"
               "        fail(errors, 1, call, 0);\n");
    put(w, "}\n");
    return status;
}

static core_status put_kernels(writer *w)
{
    core_status status = CORE_OK;

    if (w->program->flags & CORE_LOOP_PROGRAM_REDUCES)
        return opencl_loop_put_rows(w);
    if (w->program->ndim == 0)
        status = put_kernel(w, true);
    return status == CORE_OK ? put_kernel(w, false) : status;
}

static bool uses_special(const core_loop_program *program)
{
    int parameter;

    for (uint32_t i = 0; i < program->ninstructions; i++) {
        const core_loop_instruction *at = &program->instructions[i];
        const operation *op = is_computed(at->opcode)
                                  ? operation_of(program, at, &parameter)
                                  : NULL;

        if (op != NULL && (op->flags & SPECIAL))
            return true;
    }
    return false;
}

static core_status check(const opencl_device *device,
                         const core_loop_program *program)
{
    for (uint32_t i = 0; i < program->ninstructions && !device->has_f64; i++)
        if (program->instructions[i].type == CORE_F64)
            return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                                 "%s has no f64 (cl_khr_fp64)", device->name);
    return CORE_OK;
}

core_status opencl_loop_source(const opencl_device *device,
                               const core_loop_program *program,
                               char **out_text)
{
    writer w = {.device = device, .program = program};
    core_status status = check(device, program);

    *out_text = NULL;
    if (status != CORE_OK)
        return status;
    w.parts = !(program->flags & CORE_LOOP_PROGRAM_REDUCES) &&
              needs_parts(device, program);
    if (device->has_f64)
        put(&w, "#define HAS_F64 1\n");
    add(&w, opencl_prelude_cl, sizeof opencl_prelude_cl - 1);
    if (uses_special(program))
        add(&w, opencl_special_cl, sizeof opencl_special_cl - 1);
    add(&w, opencl_loop_cl, sizeof opencl_loop_cl - 1);
    add(&w, opencl_own_names, strlen(opencl_own_names));
    put(&w, "#define OPERANDS 1\n");
    for (uint32_t i = 0; i < sizeof computed / sizeof *computed; i++)
        if (status == CORE_OK)
            status = put_functions(&w, i);
    if (status == CORE_OK)
        status = put_kernels(&w);
    if (status == CORE_OK && w.no_memory)
        status = opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                               "no host memory for the source of a loop "
                               "program");
    if (status != CORE_OK) {
        free(w.text);
        return status;
    }
    *out_text = w.text;
    return CORE_OK;
}
