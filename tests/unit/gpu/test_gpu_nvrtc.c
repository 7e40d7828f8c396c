/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiles the kernels of backends/gpu with NVRTC, which needs no GPU: a second
 * compiler besides nvcc, whose PTX shows the generated code.  Some families, each
 * for one architecture; with LIBCORE_TEST_LONG=1 all for each.  Skipped if libnvrtc is not
 * found. */

#define _GNU_SOURCE /* strndup */

#include "support/suite.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* attention takes longest, on a busy machine; with all families, the
 * element-wise ones take many times as long. */
enum { SECONDS = 400, SECONDS_OF_ALL = 3600, PATH = 4096 };

static struct {
    int (*create)(void **program, const char *source, const char *name,
                  int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(void *program, int count, const char *const *options);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *text);
    int (*ptx_size)(void *program, size_t *size);
    int (*ptx)(void *program, char *text);
    int (*destroy)(void **program);
} nvrtc;

static const char *source, *build;

static char *text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t size = 1u << 22, n;
    char *text = malloc(size);

    ck_assert_msg(file != NULL, "%s", path);
    ck_assert_ptr_nonnull(text);
    n = fread(text, 1, size - 1, file);
    ck_assert(feof(file));
    text[n] = 0;
    fclose(file);
    return text;
}

/* Returns the PTX of the file `path` with the content `text`; the caller frees
 * it. */
static char *compiled_text(const char *path, const char *text, int architecture)
{
    char include[PATH + 32], library[PATH + 32], arch[64], *log, *ptx;
    const char *options[] = {arch,         include,           library,
                             "-std=c++17", "-default-device", "--fmad=false",
                             "-w"};
    void *program = NULL;
    size_t size = 0;
    int code;

    snprintf(include, sizeof include, "-I%s/backends", source);
    /* nvcc takes these headers from the host's C library. */
    snprintf(library, sizeof library, "-I%s/tests/fixtures/nvrtc", source);
    snprintf(arch, sizeof arch, "--gpu-architecture=compute_%d", architecture);
    ck_assert_int_eq(nvrtc.create(&program, text, path, 0, NULL, NULL), 0);
    code = nvrtc.compile(program, sizeof options / sizeof *options, options);
    ck_assert_int_eq(nvrtc.log_size(program, &size), 0);
    log = calloc(1, size + 1);
    ck_assert_int_eq(nvrtc.log(program, log), 0);
    ck_assert_msg(code == 0, "%s, compute_%d: %.500s", path, architecture, log);
    ck_assert_int_eq(nvrtc.ptx_size(program, &size), 0);
    ptx = calloc(1, size + 1);
    ck_assert_int_eq(nvrtc.ptx(program, ptx), 0);
    nvrtc.destroy(&program);
    free(log);
    return ptx;
}

/* Returns the PTX of a file, which the caller frees. */
static char *compiled(const char *path, int architecture)
{
    char *text = text_of(path), *ptx = compiled_text(path, text, architecture);

    free(text);
    return ptx;
}

/* -------------------------------------------------------- all families -- */

static glob_t files;

/* Families that compile in seconds; all others need LIBCORE_TEST_LONG. */
static bool is_short(const char *path)
{
    static const char *const names[] = {"/softmax.cu", "/move.cu",
                                        "/scatter.cu", "/index.cu", "/scan.cu"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(path, names[i]) != NULL)
            return true;
    return false;
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

/* The whole name: rsqrt.approx, which CUDA's acosf uses, is not sqrt.approx. */
static bool has_instruction(const char *ptx, const char *name)
{
    for (const char *at = ptx; (at = strstr(at, name)) != NULL; at++)
        if (at == ptx || strchr(" \t;", at[-1]) != NULL)
            return true;
    return false;
}

/* No atomic floating-point addition, whose order would vary; nothing that stops
 * a device; no flushed subnormals in our own code. */
static void check_rules(const char *path, const char *ptx)
{
    static const char *const never[] = {
        "atom.global.add.f", "atom.shared.add.f",
        "atom.add.f",        "red.global.add.f",
        "red.shared.add.f",  "red.add.f",
        "atom.global.add.n", "atom.add.noftz",
        "red.add.noftz",     "trap;",
        "add.ftz.f32",       "mul.ftz.f32",
        "fma.rn.ftz.f32",    "sqrt.approx.ftz.f32"};

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        ck_assert_msg(!has_instruction(ptx, never[i]), "%s has %s", path,
                      never[i]);
}

static void family_compiles(const char *path, int architecture)
{
    char target[32], *ptx = compiled(path, architecture);

    snprintf(target, sizeof target, ".target sm_%d", architecture);
    ck_assert_ptr_nonnull(strstr(ptx, target));
    ck_assert_int_gt(count_of(ptx, ".visible .entry"), 0);
    check_rules(path, ptx);
    free(ptx);
}

START_TEST(families_compile_for_every_architecture)
{
    static const int architectures[] = {75, 80, 90};
    const char *path = files.gl_pathv[_i / 3];
    bool chosen = is_short(path) && _i % 3 == _i / 3 % 3;

    if (chosen || getenv("LIBCORE_TEST_LONG") != NULL)
        family_compiles(path, architectures[_i % 3]);
}
END_TEST

/* ------------------------------------------------- what is made of them -- */

/* Requirements on one kernel's code: an instruction that occurs at least
 * `times` times, and another that must not occur. */
typedef struct instruction {
    const char *kernel, *there;
    int times;
    const char *not_there; /* NULL: nothing */
} instruction;

static void kernel_has(const char *ptx, const instruction *wanted)
{
    char start[128], *code;
    const char *from, *end;

    snprintf(start, sizeof start, ".entry %s(", wanted->kernel);
    from = strstr(ptx, start);
    ck_assert_msg(from != NULL, "no kernel %s", wanted->kernel);
    end = strstr(from, "\n}");
    ck_assert_ptr_nonnull(end);
    code = strndup(from, (size_t)(end - from));
    ck_assert_ptr_nonnull(code);
    ck_assert_msg(count_of(code, wanted->there) >= wanted->times,
                  "%s has %s %d times", wanted->kernel, wanted->there,
                  count_of(code, wanted->there));
    ck_assert_msg(wanted->not_there == NULL ||
                      strstr(code, wanted->not_there) == NULL,
                  "%s has %s", wanted->kernel, wanted->not_there);
    free(code);
}

/* Leaves out the element-wise kernels that the list does not name: all take
 * as long as the other families together. */
static void keep_kernels(char *text, const instruction *wanted, size_t count)
{
    static const char start[] = "\nGPU_ELEMENTWISE(";
    char *line = text;

    while ((line = strstr(line, start)) != NULL) {
        char *name = line + sizeof start - 1;
        size_t length = strcspn(name, ")");
        bool used = false;

        for (size_t i = 0; i < count; i++)
            used |= strncmp(wanted[i].kernel, name, length) == 0 &&
                    strlen(wanted[i].kernel) == length + 2;
        if (!used)
            memset(line + 1, ' ', (size_t)(name - line) + length);
        line = name;
    }
}

/* 16-byte accesses; products and sums are rounded separately unless fma is
 * written; division and square root follow IEEE 754. */
START_TEST(instructions_are_the_intended_ones)
{
    static const instruction all[] = {
        {"ew_add_Tensor_f32_d", "ld.global.v4.f32", 2, "fma."},
        {"ew_add_Tensor_f32_d", "st.global.v4.f32", 1, "approx"},
        {"ew_add_Tensor_f32_r", "ld.global.v4.f32", 2, "local"},
        {"ew_add_Tensor_f32_r", "st.global.v4.f32", 1, "fma."},
        {"ew_lerp_Tensor_f32_d", "mul.rn.f32", 1, "fma."},
        {"ew_lerp_Tensor_f32_d", "add.rn.f32", 1, "fma."},
        {"ew_addcmul_f32_d", "fma.rn.f32", 1, NULL},
        {"ew_div_Tensor_f32_d", "div.rn.f32", 1, "approx"},
        {"ew_sqrt_f32_d", "sqrt.rn.f32", 1, "approx"},
    };
    char *text = NULL, *ptx;

    for (size_t i = 0; i < files.gl_pathc && text == NULL; i++)
        if (strstr(files.gl_pathv[i], "/elementwise_f32.cu") != NULL)
            text = text_of(files.gl_pathv[i]);
    if (text == NULL) {
        suite_skip("no kernel sources were generated");
        return;
    }
    keep_kernels(text, all, sizeof all / sizeof *all);
    ptx = compiled_text("elementwise_f32.cu", text, 80);
    free(text);
    check_rules("elementwise_f32.cu", ptx);
    ck_assert(!has_instruction(ptx, "qrt.rn.f32"));
    ck_assert(has_instruction(ptx, "sqrt.rn.f32"));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kernel_has(ptx, &all[i]);
    free(ptx);
}
END_TEST

/* The compiler's log is reported: so these tests can fail. */
START_TEST(invalid_source_is_refused)
{
    static const char text[] = "__global__ void f() { nothing(); }";
    const char *options[] = {"-default-device"};
    void *program = NULL;

    ck_assert_int_eq(nvrtc.create(&program, text, "f.cu", 0, NULL, NULL), 0);
    ck_assert_int_ne(nvrtc.compile(program, 1, options), 0);
    nvrtc.destroy(&program);
}
END_TEST

/* ------------------------------------------------------------ its library -- */

/* In the loader's path, or beside the nvcc that configure found. */
static void *library(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "libnvrtc.so"};
    char line[PATH], path[PATH + 64], folder[PATH] = "";
    void *found = NULL;
    FILE *file;

    for (size_t i = 0; i < 3 && found == NULL; i++)
        found = dlopen(names[i], RTLD_NOW);
    snprintf(path, sizeof path, "%s/Makefile", build);
    file = found == NULL ? fopen(path, "r") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "CUDA_INCLUDE = %4000s", folder) == 1)
            break;
    if (file != NULL)
        fclose(file);
    for (int i = 0; i < 2 && found == NULL && folder[0] != 0; i++) {
        snprintf(path, sizeof path, "%s/../%s/libnvrtc.so", folder,
                 i == 0 ? "lib64" : "lib");
        found = dlopen(path, RTLD_NOW);
    }
    return found;
}

static bool opened(void)
{
    static const struct {
        void *slot;
        const char *name;
    } functions[] = {
        {&nvrtc.create, "nvrtcCreateProgram"},
        {&nvrtc.compile, "nvrtcCompileProgram"},
        {&nvrtc.log_size, "nvrtcGetProgramLogSize"},
        {&nvrtc.log, "nvrtcGetProgramLog"},
        {&nvrtc.ptx_size, "nvrtcGetPTXSize"},
        {&nvrtc.ptx, "nvrtcGetPTX"},
        {&nvrtc.destroy, "nvrtcDestroyProgram"},
    };
    void *found = library();

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = found ? dlsym(found, functions[i].name) : NULL;

        if (function == NULL)
            return false;
        memcpy(functions[i].slot, &function, sizeof function);
    }
    return true;
}

static void find_files(void)
{
    char pattern[PATH];

    snprintf(pattern, sizeof pattern, "%s/backends/gpu/kernels/*.cu", source);
    glob(pattern, 0, NULL, &files);
    snprintf(pattern, sizeof pattern, "%s/backends/gpu/generated/*.cu", build);
    if (glob(pattern, GLOB_APPEND, NULL, &files) != 0) {
        snprintf(pattern, sizeof pattern, "%s/backends/gpu/generated/*.cu",
                 source);
        glob(pattern, GLOB_APPEND, NULL, &files);
    }
}

int main(void)
{
    const TTest *const tests[] = {
        instructions_are_the_intended_ones,
        invalid_source_is_refused,
    };
    suite_loop loops[] = {
        {families_compile_for_every_architecture, 0, 0},
    };
    const test_suite suite = {
        .name = "gpu/gpu_nvrtc",
        .seconds =
            getenv("LIBCORE_TEST_LONG") != NULL ? SECONDS_OF_ALL : SECONDS,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };
    int status;

    source = getenv("LIBCORE_SOURCE");
    source = source != NULL ? source : ".";
    build = getenv("LIBCORE_BUILD");
    build = build != NULL ? build : ".";
    find_files();
    if (!opened())
        return suite_skip_all("no libnvrtc is found");
    loops[0].end = 3 * (int)files.gl_pathc;
    status = suite_run(&suite, 1);
    globfree(&files);
    return status;
}
