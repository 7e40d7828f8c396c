/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs: written, printed, stored, and refused where they are wrong. */

#include "support/autograd.h"

#include "base/memory.h"
#include "codegen/operator_programs.h"

static core_loop_program *program;

/* out = exp(a) + 2, sum = the sum of each row of it. */
static void write_example(core__loop_writer *w)
{
    uint32_t a = core__loop_write_operand(w, CORE_F32, 0);
    uint32_t out =
        core__loop_write_operand(w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT);
    uint32_t sum = core__loop_write_operand(
        w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT | CORE_LOOP_OPERAND_ROW);
    uint32_t exp = core__loop_write_name(w, "exp");
    uint32_t x, y, total;

    core__loop_write_operand(w, CORE_F64, 0); /* not used */
    x = core__loop_write(w, CORE_LOOP_LOAD, CORE_F32, a, 0, 0);
    x = core__loop_write(w, CORE_LOOP_FUNCTION, CORE_F32, x, 0, exp);
    y = core__loop_write_constant(w, CORE_F32, core_float(2));
    core__loop_write_constant(w, CORE_F32, core_float(3)); /* not used */
    x = core__loop_write(w, CORE_LOOP_ADD, CORE_F32, x, y, 0);
    core__loop_write(w, CORE_LOOP_STORE, 0, out, x, 0);
    total = core__loop_write(w, CORE_LOOP_REDUCE_SUM, CORE_F32, x, 0, 0);
    core__loop_write(w, CORE_LOOP_STORE, 0, sum, total, 0);
}

static core_loop_program *finished(core__loop_writer *w, uint32_t *operands)
{
    core_loop_program *made;

    OK(core__loop_writer_finish(w, &made, operands));
    core__loop_writer_end(w);
    return made;
}

static void begin(void)
{
    core__loop_writer w;

    core__loop_writer_begin(&w, 0);
    write_example(&w);
    program = finished(&w, NULL);
}

static void end(void)
{
    core__loop_program_release(program);
}

START_TEST(what_is_not_used_is_dropped_and_outputs_are_first)
{
    uint32_t operands[4];
    core__loop_writer w;
    core_loop_program *again;
    char *text;

    core__loop_writer_begin(&w, 0);
    write_example(&w);
    again = finished(&w, operands);
    ck_assert_uint_eq(operands[0], 2);
    ck_assert_uint_eq(operands[1], 0);
    ck_assert_uint_eq(operands[2], 1);
    ck_assert_uint_eq(operands[3], CORE__LOOP_NO_VALUE);
    OK(core__loop_program_text(again, &text));
    ck_assert_str_eq(text, "f32 output 0\n"
                           "f32 row output 1\n"
                           "f32 input 2\n"
                           "%0 = load f32 2\n"
                           "%1 = function exp f32 %0\n"
                           "%2 = constant f32 2\n"
                           "%3 = add f32 %1 %2\n"
                           "%4 = reduce_sum f32 %3\n"
                           "store 0 %3\n"
                           "store 1 %4\n");
    ck_assert_mem_eq(again->hash, program->hash, sizeof program->hash);
    core__free(text);
    core__loop_program_release(again);
}
END_TEST

START_TEST(equal_instructions_are_written_once)
{
    core__loop_writer w;
    uint32_t a, x;

    core__loop_writer_begin(&w, 0);
    a = core__loop_write_operand(&w, CORE_I32, 0);
    x = core__loop_write(&w, CORE_LOOP_LOAD, CORE_I32, a, 0, 0);
    ck_assert_uint_eq(x,
                      core__loop_write(&w, CORE_LOOP_LOAD, CORE_I32, a, 0, 0));
    ck_assert_uint_eq(core__loop_write_convert(&w, CORE_I32, x), x);
    ck_assert_uint_ne(core__loop_write_convert(&w, CORE_I64, x), x);
    core__loop_writer_end(&w);
}
END_TEST

START_TEST(bytes_are_read_as_the_same_program)
{
    core_loop_program *read;
    size_t size;
    void *data;

    OK(core__loop_program_encode(program, &data, &size));
    OK(core__loop_program_decode(data, size, &read));
    ck_assert_mem_eq(read->hash, program->hash, sizeof program->hash);
    ck_assert_uint_eq(read->ninstructions, program->ninstructions);
    core__loop_program_release(read);
    for (size_t cut = 0; cut < size; cut++)
        FAILS(core__loop_program_decode(data, cut, &read), CORE_ERROR_CORRUPT,
              "loop program");
    core__free(data);
}
END_TEST

START_TEST(different_programs_have_different_hashes)
{
    core_loop_program other = *program;
    core_loop_instruction instructions[16];
    core_loop_program *copy;

    memcpy(instructions, program->instructions,
           program->ninstructions * sizeof *instructions);
    other.instructions = instructions;
    instructions[2].a ^= 1; /* another constant */
    OK(core__loop_program_copy(&other, &copy));
    ck_assert_mem_ne(copy->hash, program->hash, sizeof program->hash);
    core__loop_program_release(copy);
}
END_TEST

/* ------------------------------------------------------------ refusals -- */

typedef struct wrong {
    const char *text; /* of the message */
    uint32_t at;      /* the instruction, or 99: of the program */
    core_loop_instruction now;
    core_loop_program fields; /* those that are not 0 replace the program's */
} wrong;

#define I(...) .now = {__VA_ARGS__}

/* 0 load, 1 exp, 2 constant, 3 add, 4 sum, 5 and 6 store */
static const wrong refusals[] = {
    {"200 is not an opcode", 3, I(200, CORE_F32, 0, 1, 2, 0)},
    {"0 is not an opcode", 3, I(0, CORE_F32, 0, 1, 2, 0)},
    {"reserved field is 7", 3, I(CORE_LOOP_ADD, CORE_F32, 7, 1, 2, 0)},
    {"uses value 3, which is not defined before", 3,
     I(CORE_LOOP_ADD, CORE_F32, 0, 1, 3, 0)},
    {"uses value 4294967295", 3,
     I(CORE_LOOP_ADD, CORE_F32, 0, UINT32_MAX, 2, 0)},
    {"field c is 9; it must be 0", 3, I(CORE_LOOP_ADD, CORE_F32, 0, 1, 2, 9)},
    {"cannot have the type 200", 3, I(CORE_LOOP_ADD, 200, 0, 1, 2, 0)},
    {"cannot have the type 10 (bool)", 3,
     I(CORE_LOOP_ADD, CORE_BOOL, 0, 1, 2, 0)},
    {"value 1 is f32; f64 is needed", 3,
     I(CORE_LOOP_ADD, CORE_F64, 0, 1, 2, 0)},
    {"value 1 is f32; bool is needed", 3,
     I(CORE_LOOP_SELECT, CORE_F32, 0, 1, 2, 2)},
    {"cannot have the type 2 (f32)", 3,
     I(CORE_LOOP_SHIFT_LEFT, CORE_F32, 0, 1, 2, 0)},
    {"value 1 is f32 already", 3, I(CORE_LOOP_CONVERT, CORE_F32, 0, 1, 0, 0)},
    {"cannot have the type 16", 3, I(CORE_LOOP_CONVERT, CORE_F8E4M3, 0, 1)},
    {"value 1 is f32, which it does not accept", 3,
     I(CORE_LOOP_PHILOX64, CORE_I64, 0, 1, 1, 1)},
    {"name 1 is not one of the 1 names", 1,
     I(CORE_LOOP_FUNCTION, CORE_F32, 0, 0, 0, 1)},
    {"field b is 1; it must be 0", 1,
     I(CORE_LOOP_FUNCTION, CORE_F32, 0, 0, 1, 0)},
    {"exp of f32 cannot be f64", 1,
     I(CORE_LOOP_FUNCTION, CORE_F64, 0, 0, 0, 0)},
    {"operand 3 is not an input", 0, I(CORE_LOOP_LOAD, CORE_F32, 0, 3)},
    {"operand 0 is not an input", 0, I(CORE_LOOP_LOAD, CORE_F32, 0, 0)},
    {"operand 2 is f32, and the value f64", 0,
     I(CORE_LOOP_LOAD, CORE_F64, 0, 2)},
    {"operand 2 is not one of the 2 outputs", 5,
     I(CORE_LOOP_STORE, 0, 0, 2, 3)},
    {"its type is 2; it must be 0", 5, I(CORE_LOOP_STORE, CORE_F32, 0, 0, 3)},
    {"uses value 5, which is not defined", 5, I(CORE_LOOP_STORE, 0, 0, 0, 5)},
    {"output 0 is stored twice", 6, I(CORE_LOOP_STORE, 0, 0, 0, 4)},
    {"uses value 5, which is a store", 6, I(CORE_LOOP_STORE, 0, 0, 1, 5)},
    {"has one element for each row, and value 3 differs", 6,
     I(CORE_LOOP_STORE, 0, 0, 1, 3)},
    {"it follows a store", 6, I(CORE_LOOP_NEG, CORE_F32, 0, 3)},
    {"value 2 is the same for all elements of a row", 4,
     I(CORE_LOOP_REDUCE_SUM, CORE_F32, 0, 2)},
    {"cannot have the type 3 (f16)", 4,
     I(CORE_LOOP_REDUCE_SUM, CORE_F16, 0, 3)},
    {"dimension 0 is not below ndim, 0", 3, I(CORE_LOOP_INDEX, CORE_I64)},
    {"no store uses its value", 3, I(CORE_LOOP_ADD, CORE_F32, 0, 0, 0, 0)},
    {"is not an element of bool", 2, I(CORE_LOOP_CONSTANT, CORE_BOOL, 0, 2)},
    {"is not an element of f32", 2, I(CORE_LOOP_CONSTANT, CORE_F32, 0, 0, 1)},
    {"is not an element of f16", 2,
     I(CORE_LOOP_CONSTANT, CORE_F16, 0, 0x10000)},
    {"it has 0 instructions", 99, .fields = {.ninstructions = 0x80000000}},
    {"it has 1025 instructions", 99, .fields = {.ninstructions = 1025}},
    {"it has 33 operands", 99, .fields = {.noperands = 33}},
    {"it has 65 names", 99, .fields = {.nnames = 65}},
    {"it has 4 outputs; 1 to 3", 99, .fields = {.noutputs = 4}},
    {"cannot have the flags", 99, .fields = {.noutputs = 1}},
    {"cannot have the flags", 99, .fields = {.noutputs = 3}},
    {"ndim is 33", 99, .fields = {.ndim = 33}},
    {"reserved 5", 99, .fields = {.reserved = 5}},
    {"flags 0x3", 99, .fields = {.flags = 3}},
    {"ndim is 2, and no instruction uses", 99, .fields = {.ndim = 2}},
};

START_TEST(wrong_programs_are_refused)
{
    const wrong *w = &refusals[_i];
    core_loop_program other = *program;
    core_loop_instruction instructions[16];
    core_loop_program *copy;

    memcpy(instructions, program->instructions,
           program->ninstructions * sizeof *instructions);
    other.instructions = instructions;
    if (w->at < 99)
        instructions[w->at] = w->now;
    if (w->fields.ninstructions)
        other.ninstructions = w->fields.ninstructions & 0x7fffffff;
    if (w->fields.noperands)
        other.noperands = w->fields.noperands;
    if (w->fields.noutputs)
        other.noutputs = w->fields.noutputs;
    if (w->fields.nnames)
        other.nnames = w->fields.nnames;
    other.ndim = w->fields.ndim;
    other.reserved = w->fields.reserved;
    other.flags |= w->fields.flags;
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "loop program", w->text);
    ck_assert_ptr_null(copy);
}
END_TEST

START_TEST(wrong_operands_and_names_are_refused)
{
    core_loop_program other = *program;
    core_loop_operand operands[3];
    core_string names[2] = {program->names[0], program->names[0]};
    core_loop_program *copy;

    other.operands = operands;
    memcpy(operands, program->operands, sizeof operands);
    operands[2].dtype = CORE_F8E5M2;
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "operand 2 has dtype 17");
    operands[2].dtype = 0x10000000;
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "operand 2 has dtype");
    operands[2] = program->operands[2];
    operands[2].flags = CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW;
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "operand 2", "flags 0x6");
    other.operands = program->operands;
    other.names = names;
    other.nnames = 2;
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "names 0 and 1 are both \"exp\"");
    names[1] = (core_string){"tanh", 4};
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "nothing uses name 1");
    names[1] = (core_string){"system", 6};
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "name 1 is not the name of a known function");
    other.names = NULL;
    FAILS(core__loop_program_copy(&other, &copy), CORE_ERROR_INVALID_ARGUMENT,
          "2 names at NULL");
}
END_TEST

START_TEST(programs_do_not_exceed_the_limits)
{
    core__loop_writer w;
    core_loop_program *made;

    core__loop_writer_begin(&w, 0);
    for (int i = 0; i <= CORE_LOOP_MAX_OPERANDS; i++)
        core__loop_write_operand(&w, CORE_F32, 0);
    FAILS(core__loop_writer_finish(&w, &made, NULL), CORE_ERROR_UNSUPPORTED,
          "more than 32 operands");
    core__loop_writer_end(&w);
    core__loop_writer_begin(&w, 0);
    for (int i = 0; i <= CORE_LOOP_MAX_INSTRUCTIONS; i++)
        core__loop_write_bits(&w, CORE_I64, (uint64_t)i);
    FAILS(core__loop_writer_finish(&w, &made, NULL), CORE_ERROR_UNSUPPORTED,
          "more than 1024 instructions");
    core__loop_writer_end(&w);
}
END_TEST

/* --------------------------------------------------------------- loops -- */

static int64_t sizes[2] = {4, 3};
static int64_t strides[3][2] = {{4, 16}, {0, 4}, {4, 16}};
static core_operand loop_operands[3];

static core_loop loop_of_example(void)
{
    for (int k = 0; k < 3; k++)
        loop_operands[k] =
            (core_operand){.strides = strides[k],
                           .dtype = CORE_F32,
                           .flags = k < 2 ? CORE_OPERAND_OUTPUT : 0};
    return (core_loop){.struct_size = sizeof(core_loop),
                       .ndim = 2,
                       .noperands = 3,
                       .noutputs = 2,
                       .reduced = 1,
                       .numel = 12,
                       .sizes = sizes,
                       .operands = loop_operands};
}

START_TEST(loops_that_do_not_fit_are_refused)
{
    core_loop loop = loop_of_example();

    OK(core__loop_program_verify_loop(program, &loop));
    loop.noperands = 2;
    FAILS(core__loop_program_verify_loop(program, &loop),
          CORE_ERROR_INVALID_ARGUMENT, "2 operands");
    loop = loop_of_example();
    loop.reduced = 2; /* not the innermost */
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "0x2");
    loop.reduced = 0;
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "0x0");
    loop = loop_of_example();
    loop.numel = 13;
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "numel");
    loop = loop_of_example();
    loop_operands[1].dtype = CORE_F64;
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_DTYPE,
          "operand 1");
    loop = loop_of_example();
    loop_operands[2].flags = CORE_OPERAND_IMMEDIATE;
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_DTYPE,
          "operand 2");
    loop = loop_of_example();
    loop_operands[1].strides = strides[0]; /* a row has one element */
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "operand 1", "stride 4");
    loop = loop_of_example();
    loop_operands[0].strides = (int64_t[]){4, 12};
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "output 0", "share memory");
    loop_operands[0].strides = (int64_t[]){4, 0};
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "output 0", "share memory");
    loop_operands[0].strides = (int64_t[]){4, INT64_MAX};
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "output 0", "share memory");
    loop_operands[0].strides = (int64_t[]){12, 4}; /* transposed */
    OK(core__loop_program_verify_loop(program, &loop));
    loop_operands[0].strides = (int64_t[]){-4, 16};
    FAILS(core__loop_program_verify_loop(program, &loop), CORE_ERROR_SHAPE,
          "operand 0", "stride -4");
}
END_TEST

/* ---------------------------------------------------------------- fuzz -- */

static uint32_t random_state = 1;

static uint32_t draw(uint32_t limit)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)random_state * limit >> 32);
}

/* Damages bytes, or the fields of instructions, so that many programs are
 * nearly right. */
static void mutate(unsigned char *data, size_t size)
{
    static const uint32_t values[] = {0,  1,   2,    3,          5,         31,
                                      32, 255, 1024, UINT32_MAX, 0x80000000};
    uint32_t word = values[draw(11)];
    size_t at = draw((uint32_t)size);

    if (draw(2)) {
        at = at / 4 * 4;
        memcpy(data + at, &word, at + 4 <= size ? 4 : size - at);
    } else {
        data[at] = (unsigned char)(draw(2) ? draw(100) : draw(256));
    }
}

START_TEST(mutated_programs_are_refused_or_right)
{
    uint32_t rounds = effort_is_long() ? 3000000 : 30000, right = 0;
    size_t size;
    void *data;

    OK(core__loop_program_encode(program, &data, &size));
    for (uint32_t i = 0; i < rounds; i++) {
        /* In memory of its own, so that a sanitizer sees what is read. */
        unsigned char *copy = malloc(size);
        core_loop_program *read;
        uint32_t times = 1 + draw(4);
        char *text;

        memcpy(copy, data, size);
        for (uint32_t k = 0; k < times; k++)
            mutate(copy, size);
        if (core__loop_program_decode(copy, size - draw(2), &read) == CORE_OK) {
            right++;
            OK(core__loop_program_verify(read));
            OK(core__loop_program_text(read, &text));
            core__free(text);
        } else {
            ck_assert_int_eq(core_error_code(), CORE_ERROR_CORRUPT);
        }
        core__loop_program_release(read);
        free(copy);
    }
    ck_assert_uint_gt(right, rounds / 1000);
    core__free(data);
}
END_TEST

/* ----------------------------------------------------------- operators -- */

/* The text of an operator of f16 or another dtype. */
static void written_as(const char *name, core_dtype dtype, uint32_t ninputs,
                       const core_value *args, uint32_t nargs,
                       const char *expected)
{
    core__loop_writer w;
    core_loop_program *made;
    uint32_t inputs[3], value, out;
    char *text;

    core__loop_writer_begin(&w, 0);
    for (uint32_t k = 0; k < ninputs; k++)
        inputs[k] =
            core__loop_write(&w, CORE_LOOP_LOAD, dtype,
                             core__loop_write_operand(&w, dtype, 0), 0, 0);
    OK(core__loop_write_operator(&w, name, dtype, inputs, ninputs, args, nargs,
                                 &value));
    out = core__loop_write_operand(&w, core__loop_type_of(&w, value),
                                   CORE_LOOP_OPERAND_OUTPUT);
    core__loop_write(&w, CORE_LOOP_STORE, 0, out, value, 0);
    made = finished(&w, NULL);
    OK(core__loop_program_text(made, &text));
    ck_assert_msg(strstr(text, expected), "%s is not in %s", expected, text);
    core__free(text);
    core__loop_program_release(made);
}

START_TEST(operators_are_written_as_instructions)
{
    const core_value alpha[] = {{0}, {0}, core_float(0.5)};
    const core_value trunc[] = {{0}, {0}, core_pack_string("trunc")};
    const core_value none[] = {{0}, {0}};

    written_as("add.Tensor", CORE_F16, 2, none, 2, "%2 = add f16 %0 %1\n");
    written_as("add.Tensor", CORE_F32, 2, alpha, 3, "%3 = fma f32 %2 %1 %0\n");
    written_as("silu", CORE_BF16, 1, none, 1,
               "%0 = load bf16 1\n"
               "%1 = convert f32 %0\n"
               "%2 = function sigmoid f32 %1\n"
               "%3 = mul f32 %1 %2\n"
               "%4 = convert bf16 %3\n");
    written_as("lt.Tensor", CORE_I8, 2, none, 2, "%2 = lt bool %0 %1\n");
    written_as("div.Tensor_mode", CORE_F16, 2, trunc, 3, "convert f16");
    written_as("add.Tensor", CORE_BOOL, 2, none, 2, "or bool");
}
END_TEST

START_TEST(operators_without_a_program_are_unsupported)
{
    core__loop_writer w;
    uint32_t input = 0, value;
    core_value mode[] = {{0}, {0}, core_pack_string("other")};

    core__loop_writer_begin(&w, 0);
    input = core__loop_write_constant(&w, CORE_F32, core_float(1));
    ck_assert_int_eq(core__loop_write_operator(&w, "mm", CORE_F32, &input, 1,
                                               NULL, 0, &value),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(core__loop_write_operator(&w, "exp", CORE_I32, &input, 1,
                                               NULL, 0, &value),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(core__loop_write_operator(&w, "exp", CORE_F32, &input, 2,
                                               NULL, 0, &value),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(core__loop_write_operator(&w, "div.Tensor_mode", CORE_F32,
                                               (uint32_t[]){input, input}, 2,
                                               mode, 3, &value),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(w.status, CORE_OK);
    core__loop_writer_end(&w);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_is_not_used_is_dropped_and_outputs_are_first,
        equal_instructions_are_written_once,
        bytes_are_read_as_the_same_program,
        different_programs_have_different_hashes,
        wrong_operands_and_names_are_refused,
        programs_do_not_exceed_the_limits,
        loops_that_do_not_fit_are_refused,
        mutated_programs_are_refused_or_right,
        operators_are_written_as_instructions,
        operators_without_a_program_are_unsupported,
    };
    const suite_loop loops[] = {
        {wrong_programs_are_refused, 0, sizeof refusals / sizeof *refusals},
    };
    const test_suite suite = {.name = "loop programs",
                              .setup = begin,
                              .teardown = end,
                              SUITE_TESTS(tests),
                              SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
