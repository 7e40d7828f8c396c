/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Programs that were mutated at random and are still right run on two devices
 * that share nothing but the rows of operators, and compute the same. */

#include "support/sim_device.h"

#include "base/memory.h"
#include "codegen/loop_kernel.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

enum { INNER = 300, OUTER = 3, ELEMENTS = INNER * OUTER };

static core_device *cpu;
static uint32_t random_state = 7;

static void begin(void)
{
    sim_find("sim");
    OK(core_device_find("cpu", &cpu));
}

static void end(void)
{
    drop_all();
}

static uint32_t draw(uint32_t limit)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)random_state * limit >> 32);
}

/* Of several dtypes, with rows or dimensions. */
static core_loop_program *base_program(bool rows)
{
    const core_dtype types[] = {CORE_F32, CORE_I32, CORE_F16, CORE_F64};
    core_loop_program *program;
    core__loop_writer w;
    uint32_t values[4][6], out;

    core__loop_writer_begin(&w, rows ? 0 : 2);
    for (int t = 0; t < 4; t++) {
        uint32_t *v = values[t];

        for (int k = 0; k < 2; k++)
            v[k] =
                core__loop_write(&w, CORE_LOOP_LOAD, types[t],
                                 core__loop_write_operand(
                                     &w, types[t],
                                     k && rows && t == 0 ? CORE_LOOP_OPERAND_ROW
                                     : k && t == 1 ? CORE_LOOP_OPERAND_NUMBER
                                                   : 0),
                                 0, 0);
        v[2] = core__loop_write(&w, CORE_LOOP_MUL, types[t], v[0], v[1], 0);
        v[3] = core__loop_write(&w, CORE_LOOP_LT, CORE_BOOL, v[2], v[0], 0);
        v[4] =
            core__loop_write(&w, CORE_LOOP_SELECT, types[t], v[3], v[1], v[2]);
        v[5] = core__loop_write_convert(
            &w, CORE_F32,
            core__loop_write(
                &w, CORE_LOOP_ADD, types[t], v[4],
                core__loop_write_constant(&w, types[t], core_int(t + 1)), 0));
    }
    out = core__loop_write(&w, CORE_LOOP_FUNCTION, CORE_F32, values[0][5], 0,
                           core__loop_write_name(&w, "tanh"));
    out = core__loop_write(&w, CORE_LOOP_FMA, CORE_F32, out, values[1][5],
                           values[2][5]);
    out = core__loop_write(&w, CORE_LOOP_SUB, CORE_F32, out, values[3][5], 0);
    values[0][0] =
        rows ? core__loop_write(&w, CORE_LOOP_REDUCE_MAX, CORE_F32, out, 0, 0)
             : core__loop_write_convert(
                   &w, CORE_F32,
                   core__loop_write(&w, CORE_LOOP_INDEX, CORE_I64, 1, 0, 0));
    out =
        core__loop_write(&w, CORE_LOOP_MAXIMUM, CORE_F32, out, values[0][0], 0);
    core__loop_write(
        &w, CORE_LOOP_STORE, 0,
        core__loop_write_operand(&w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT), out,
        0);
    OK(core__loop_writer_finish(&w, &program, NULL));
    core__loop_writer_end(&w);
    return program;
}

/* Changes some instructions; right programs are more likely than not. */
static core_status mutate(const core_loop_program *from,
                          core_loop_program **out_program)
{
    core_loop_instruction changed[CORE_LOOP_MAX_INSTRUCTIONS];
    core_loop_program now = *from;
    uint32_t times = 1 + draw(2);

    memcpy(changed, from->instructions, from->ninstructions * sizeof *changed);
    while (times-- > 0) {
        uint32_t i = draw(from->ninstructions);
        core_loop_instruction *at = &changed[i];

        switch (draw(5)) {
        case 0:
        case 1:
            at->opcode = (uint8_t)(CORE_LOOP_ADD + draw(46));
            break;
        case 2:
            at->a = draw(i + 1);
            break;
        case 3:
            at->b = draw(i + 1);
            break;
        default:
            at->type = (uint8_t)draw(11);
            break;
        }
        if (draw(2) && at->opcode >= CORE_LOOP_NEG &&
            at->opcode <= CORE_LOOP_ROUND)
            at->b = 0;
    }
    now.instructions = changed;
    return core__loop_program_copy(&now, out_program);
}

static core_tensor *operand(const core_loop_operand *of, uint32_t seed)
{
    double values[ELEMENTS];
    bool row = of->flags & CORE_LOOP_OPERAND_ROW;
    const int64_t sizes[] = {OUTER, row ? 1 : INNER};

    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (double)((i + (int)seed) * 37 % 101) * .37 - 16;
    return typed(of->dtype, 2, sizes, values);
}

/* Whether a sum of floats, whose order devices choose, is among them. */
static bool sums(const core_loop_program *program)
{
    for (uint32_t i = 0; i < program->ninstructions; i++)
        if (program->instructions[i].opcode == CORE_LOOP_REDUCE_SUM)
            return true;
    return false;
}

/* Runs on one device; the outputs are then in host memory. */
static void run_on(core_device *device, core_loop_program *program,
                   core_tensor **out_results)
{
    core_tensor *tensors[CORE_LOOP_MAX_OPERANDS] = {NULL};
    core_scalar numbers[CORE_LOOP_MAX_OPERANDS] = {{0}};
    const core__loop_arguments arguments = {
        .tensors = tensors,
        .numbers = numbers,
        .ndim = 2,
        .row_ndim = program->flags & CORE_LOOP_PROGRAM_REDUCES ? 1 : 0,
        .sizes = (int64_t[]){OUTER, INNER}};
    core__loop_kernel *kernel;
    core_status status;

    for (uint32_t k = 0; k < program->noperands; k++) {
        numbers[k] = core_int(3);
        if (!(program->operands[k].flags & CORE_LOOP_OPERAND_NUMBER)) {
            OK(core_to_copy(operand(&program->operands[k], k), CORE_DTYPE_NONE,
                            device, false, -1, &tensors[k]));
            keep(tensors[k]);
        }
    }
    OK(core__loop_kernel_accepts(device, program));
    OK(core__loop_kernel_build(device, program, NULL, &kernel));
    status = core__loop_kernel_run(kernel, &arguments);
    if (status == CORE_OK)
        status = core_device_synchronize(device);
    /* Division by zero, after which the results are there. */
    ck_assert_msg(status == CORE_OK || status == CORE_ERROR_INVALID_ARGUMENT,
                  "%s", core_error_message());
    core__loop_kernel_release(kernel);
    for (uint32_t k = 0; k < program->noutputs; k++) {
        OK(core_to_copy(tensors[k], CORE_DTYPE_NONE, cpu, false, -1,
                        &out_results[k]));
        keep(out_results[k]);
    }
}

static bool same(core_tensor *a, core_tensor *b)
{
    static char x[8 * ELEMENTS], y[8 * ELEMENTS];
    size_t size = (size_t)core__dtype_size(a->dtype);
    size_t n = (size_t)a->numel;

    OK(core_tensor_read(a, x, n * size));
    OK(core_tensor_read(b, y, n * size));
    for (size_t i = 0; i < n; i++) {
        core_scalar u = core__element_load(a->dtype, x + i * size);
        core_scalar v = core__element_load(a->dtype, y + i * size);

        if (memcmp(x + i * size, y + i * size, size) != 0 &&
            !(u.tag == CORE_VALUE_FLOAT && u.u.f != u.u.f && v.u.f != v.u.f))
            return false;
    }
    return true;
}

START_TEST(mutated_programs_compute_the_same_on_two_devices)
{
    core_loop_program *base = base_program(_i == 0);
    uint32_t rounds = effort_is_long() ? 20000 : 1500, right = 0;

    for (uint32_t i = 0; i < rounds; i++) {
        core_tensor *expected[CORE_LOOP_MAX_OPERANDS];
        core_tensor *got[CORE_LOOP_MAX_OPERANDS];
        core_loop_program *program;

        if (mutate(base, &program) != CORE_OK)
            continue;
        right++;
        run_on(sim, program, expected);
        run_on(cpu, program, got);
        for (uint32_t k = 0; k < program->noutputs; k++)
            if (!sums(program) && !same(expected[k], got[k])) {
                char *text;

                OK(core__loop_program_text(program, &text));
                ck_abort_msg("output %u differs:\n%s", k, text);
            }
        core__loop_program_release(program);
        drop_all();
    }
    ck_assert_uint_gt(right, rounds / 50);
    core__loop_program_release(base);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {mutated_programs_compute_the_same_on_two_devices, 0, 2},
    };
    const test_suite suite = {.name = "mutated loop programs",
                              .setup = begin,
                              .teardown = end,
                              .seconds = 600,
                              SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
