/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of loop programs, compiled by the vendors' compilers that run in the
 * program, which need no GPU: NVRTC for sm_80 and sm_90, hipRTC for gfx90a.
 * Programs with each opcode and function on each dtype, and random ones.  A
 * compiler that is not found is skipped. */

#define _GNU_SOURCE /* strndup */

#include "support/loop_bundles.h"

#include <gpu/host/loop_source.h>

#include "../../../backends/cuda/nvrtc.h"
#include "../../../backends/rocm/hiprtc.h"
#include "../../../tools/conformance/loop_reference.h"

#include <dlfcn.h>
#include <elf.h>

enum { RANDOM = 4, ROWS = 2, NEWEST_CUDA = 13, HIP = 5 };

/* loop_source.c reports errors through the plugin's tables. */
static core_status report(const core_error_info *info)
{
    return info->code;
}

static const gpu_driver driver = {.component = "test"};
static const core_host host = {.struct_size = sizeof host, .error = report};
const gpu_vendor gpu_this_vendor = {"test", &driver, NULL, NULL};

static bool has_nvrtc, has_hiprtc;

/* --------------------------------------------------------------- compiling -- */

typedef int compiler(int version, gpu_compilation *c);

/* Returns the code of a program; free() frees it. */
static char *compiled(compiler *compile, int version, const char *architecture,
                      const core_loop_program *program, size_t *out_size)
{
    char name[GPU_LOOP_NAME], *source;
    gpu_compilation c = {.name = name, .architecture = architecture};
    int code;

    ck_assert_int_eq(gpu_loop_check(program), CORE_OK);
    ck_assert_int_eq(gpu_loop_source(program, &source), CORE_OK);
    gpu_loop_name(program, name);
    c.source = source;
    code = compile(version, &c);
    ck_assert_msg(code == 0, "%s: %d %.800s", architecture, code,
                  c.log != NULL ? c.log : "no log");
    ck_assert_ptr_nonnull(c.image);
    if (out_size != NULL)
        *out_size = c.size;
    free(c.log);
    free(source);
    return c.image;
}

static bool is_elf(const char *image, size_t size, unsigned machine)
{
    Elf64_Ehdr head;

    if (size < sizeof head)
        return false;
    memcpy(&head, image, sizeof head);
    return memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
           head.e_machine == machine;
}

/* The code of one kernel in PTX, which free() frees. */
static char *kernel_of(const char *ptx, const core_loop_program *program,
                       const char *suffix)
{
    char start[GPU_LOOP_NAME + 32], name[GPU_LOOP_NAME], *code;
    const char *from, *end;

    gpu_loop_name(program, name);
    snprintf(start, sizeof start, ".entry %s%s(", name, suffix);
    from = strstr(ptx, start);
    ck_assert_msg(from != NULL, "no kernel %s", start);
    end = strstr(from, "\n}");
    ck_assert_ptr_nonnull(end);
    code = strndup(from, (size_t)(end - from));
    ck_assert_ptr_nonnull(code);
    return code;
}

/* Teams exchange values between lanes; only blocks need memory for that. */
static void check_rows(const core_loop_program *program, const char *ptx)
{
    char *alone = kernel_of(ptx, program, "_l");
    char *team = kernel_of(ptx, program, "_t");
    char *block = kernel_of(ptx, program, "_b");

    ck_assert_ptr_null(strstr(alone, "bar."));
    ck_assert_ptr_null(strstr(alone, "shfl."));
    ck_assert_ptr_nonnull(strstr(team, "shfl.sync.bfly"));
    ck_assert_ptr_null(strstr(team, "st.shared"));
    ck_assert_ptr_nonnull(strstr(block, "shfl.sync.bfly"));
    ck_assert_ptr_nonnull(strstr(block, "st.shared"));
    ck_assert_ptr_null(strstr(alone, ".local"));
    ck_assert_ptr_null(strstr(team, ".local"));
    ck_assert_ptr_null(strstr(block, ".local"));
    free(alone);
    free(team);
    free(block);
}

static void check_ptx(const core_loop_program *program, const char *ptx)
{
    static const char *const never[] = {
        "add.ftz.f32", "mul.ftz.f32", "fma.rn.ftz.f32", "sqrt.approx",
        "div.full",    "trap;",       "atom."};

    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        const char *at = strstr(ptx, never[i]);

        /* Not a part of another name, such as rsqrt.approx. */
        ck_assert_msg(at == NULL || at[-1] == 'r', "it has %s", never[i]);
    }
    if (program->flags & CORE_LOOP_PROGRAM_REDUCES) {
        check_rows(program, ptx);
        return;
    }
    free(kernel_of(ptx, program, "_s"));
    if (gpu_loop_has_dense(program))
        free(kernel_of(ptx, program, "_d"));
}

/* For both vendors.  sm_80 as PTX, which shows the instructions; sm_90 as
 * code. */
static void compile_program(const core_loop_program *program, bool both)
{
    size_t size;
    char *code;

    if (has_nvrtc) {
        code = compiled(cuda_nvrtc_compile, NEWEST_CUDA, "compute_80", program,
                        NULL);
        check_ptx(program, code);
        free(code);
    }
    if (has_nvrtc && both) {
        code =
            compiled(cuda_nvrtc_compile, NEWEST_CUDA, "sm_90", program, &size);
        ck_assert(is_elf(code, size, 190)); /* EM_CUDA */
        free(code);
    }
    if (has_hiprtc && both) {
        code = compiled(rocm_hiprtc_compile, HIP, "gfx90a", program, &size);
        ck_assert(is_elf(code, size, 224)); /* EM_AMDGPU */
        free(code);
    }
}

/* ---------------------------------------------------------------- programs -- */

/* Of each dtype one bundle for all compilers, and the others, and half of the random
 * programs, only with LIBCORE_TEST_LONG. */
static void compile_bundles(core_dtype dtype, bundle_accepts *functions)
{
    bool all = effort_is_long();
    bundle b;

    for (uint32_t i = 0; bundle_of(&b, dtype, i, functions); i++) {
        if (i == 0 || all)
            compile_program(b.program,
                            all || dtype == CORE_F32 || dtype == CORE_I8);
        core__loop_program_release(b.program);
    }
}

START_TEST(every_opcode_compiles)
{
    compile_bundles(bundle_dtypes[_i], NULL);
}
END_TEST

static bool is_computed(const core_loop_program *program)
{
    return gpu_loop_check(program) == CORE_OK;
}

START_TEST(every_function_compiles)
{
    compile_bundles(bundle_dtypes[_i], is_computed);
}
END_TEST

START_TEST(random_programs_compile)
{
    loop_case now;

    loop_case_random(&now, 0x9e3779b97f4a7c15u * (uint64_t)(_i + 1), true);
    compile_program(&now.program, true);
}
END_TEST

START_TEST(random_rows_compile)
{
    loop_case now;

    loop_case_random_rows(&now, 0x9e3779b97f4a7c15u * (uint64_t)(_i + 1), true);
    compile_program(&now.program, true);
}
END_TEST

/* ------------------------------------------------------------ instructions -- */

/* One instruction of one dtype, or a b + c for ADD. */
static core_loop_program *expression(core_dtype dtype, uint32_t opcode)
{
    uint32_t v[3], value, to;
    core_loop_program *program;
    core__loop_writer w;

    core__loop_writer_begin(&w, 0);
    to = core__loop_write_operand(&w, dtype, CORE_LOOP_OPERAND_OUTPUT);
    for (uint32_t k = 0; k < 3; k++)
        v[k] = core__loop_write(&w, CORE_LOOP_LOAD, dtype,
                                core__loop_write_operand(&w, dtype, 0), 0, 0);
    value = v[0];
    if (opcode == CORE_LOOP_ADD)
        value = core__loop_write(&w, CORE_LOOP_MUL, dtype, v[2], v[2], 0);
    value = core__loop_write(&w, opcode, dtype, value,
                             opcode != CORE_LOOP_SQRT ? v[1] : 0,
                             opcode == CORE_LOOP_FMA ? v[2] : 0);
    core__loop_write(&w, CORE_LOOP_STORE, 0, to, value, 0);
    OK(core__loop_writer_finish(&w, &program, NULL));
    core__loop_writer_end(&w);
    return program;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;

    while ((text = strstr(text, what)) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* What the dense kernel has, and how often at least, and does not have. */
typedef struct wanted {
    core_dtype dtype;
    uint32_t opcode, loads;
    const char *load, *store, *there, *not_there;
} wanted;

static const wanted all[] = {
    {CORE_F32, CORE_LOOP_ADD, 2, "ld.global.v4.", "st.global.v4.", "mul.rn.f32",
     "fma."},
    {CORE_F32, CORE_LOOP_FMA, 3, "ld.global.v4.", "st.global.v4.", "fma.rn.f32",
     "approx"},
    {CORE_F32, CORE_LOOP_DIV, 2, "ld.global.v4.", "st.global.v4.", "div.rn.f32",
     "approx"},
    {CORE_F32, CORE_LOOP_SQRT, 1, "ld.global.v4.", "st.global.v4.",
     "sqrt.rn.f32", "approx"},
    {CORE_F64, CORE_LOOP_ADD, 2, "ld.global.v2.", "st.global.v2.", "mul.rn.f64",
     "fma."},
    {CORE_F16, CORE_LOOP_ADD, 2, "ld.global.v", "st.global.v", "mul.rn.f32",
     "fma."},
    {CORE_BF16, CORE_LOOP_ADD, 2, "ld.global.v", "st.global.v", "mul.rn.f32",
     "fma."},
    {CORE_U8, CORE_LOOP_ADD, 2, "ld.global.v", "st.global.v", "add.", "fma."},
};

/* 16 bytes of the widest operand at a time; products and sums are rounded
 * separately unless the program fuses them; nothing is in local memory. */
START_TEST(instructions_are_the_intended_ones)
{
    const wanted *want = &all[_i];
    core_loop_program *program;
    char *ptx, *dense;

    if (!has_nvrtc) {
        suite_skip("no libnvrtc is found");
        return;
    }
    program = expression(want->dtype, want->opcode);
    ptx =
        compiled(cuda_nvrtc_compile, NEWEST_CUDA, "compute_80", program, NULL);
    dense = kernel_of(ptx, program, "_d");
    ck_assert_msg(count_of(dense, want->load) >= (int)want->loads,
                  "no %s in %s", want->load, dense);
    ck_assert_msg(count_of(dense, want->store) >= 1, "no %s in %s", want->store,
                  dense);
    ck_assert_msg(count_of(dense, want->there) > 0, "no %s in %s", want->there,
                  dense);
    ck_assert_msg(count_of(dense, want->not_there) == 0, "%s in %s",
                  want->not_there, dense);
    ck_assert_int_eq(count_of(dense, ".local"), 0);
    free(dense);
    free(ptx);
    core__loop_program_release(program);
}
END_TEST

/* ------------------------------------------------------------------ faults -- */

/* The compilers' own words. */
static void invalid(compiler *compile, int version, const char *architecture)
{
    gpu_compilation c = {.source = "__global__ void f() { nothing(); }",
                         .name = "f",
                         .architecture = architecture};

    ck_assert_int_gt(compile(version, &c), 0);
    ck_assert_ptr_null(c.image);
    ck_assert_ptr_nonnull(c.log);
    ck_assert_msg(strstr(c.log, "nothing") != NULL, "%s", c.log);
    free(c.log);
}

START_TEST(invalid_source_is_refused_with_a_log)
{
    if (has_nvrtc)
        invalid(cuda_nvrtc_compile, NEWEST_CUDA, "sm_80");
    if (has_hiprtc)
        invalid(rocm_hiprtc_compile, HIP, "gfx90a");
}
END_TEST

START_TEST(unknown_architecture_is_refused)
{
    gpu_compilation c = {.source = "", .name = "f", .architecture = "sm_1234"};

    if (has_nvrtc)
        ck_assert_int_gt(cuda_nvrtc_compile(NEWEST_CUDA, &c), 0);
    free(c.log);
}
END_TEST

START_TEST(what_is_not_computed_is_refused)
{
    loop_case now;

    loop_case_random(&now, 1, true);
    now.program.ndim = GPU_DIMS + 1;
    ck_assert_int_eq(gpu_loop_check(&now.program), CORE_ERROR_UNSUPPORTED);
}
END_TEST

static bool is_found(const char *missing)
{
    if (missing != NULL)
        printf("# %s\n", missing);
    return missing == NULL;
}

int main(void)
{
    bool few = !effort_is_long();
    const TTest *const tests[] = {
        invalid_source_is_refused_with_a_log,
        unknown_architecture_is_refused,
        what_is_not_computed_is_refused,
    };
    const suite_loop loops[] = {
        {instructions_are_the_intended_ones, 0, sizeof all / sizeof *all},
        {every_opcode_compiles, 0, BUNDLE_DTYPES},
        {every_function_compiles, 0, BUNDLE_DTYPES - 1},
        {random_programs_compile, 0, few ? 2 : RANDOM},
        {random_rows_compile, 0, few ? 1 : ROWS},
    };
    const test_suite suite = {
        .name = "gpu/gpu_loop_compilers",
        .seconds = 600,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    gpu_host = &host;
    has_nvrtc = is_found(cuda_nvrtc_missing(NEWEST_CUDA));
    has_hiprtc = is_found(rocm_hiprtc_missing(HIP));
    if (!has_nvrtc && !has_hiprtc)
        return suite_skip_all("no libnvrtc and no hipRTC is found");
    return suite_run(&suite, 1);
}
