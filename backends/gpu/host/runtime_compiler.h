/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* runtime_compiler.h: vendors' compilers that run in the program.  NVRTC and
 * hipRTC have the same functions. */

#ifndef GPU_RUNTIME_COMPILER_H
#define GPU_RUNTIME_COMPILER_H

#include <gpu/driver.h>
#include <gpu/host/library.h>

/* The functions, found at run time.  A program is a pointer to a struct. */
typedef struct gpu_runtime_compiler {
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *source, const char *name,
                  int headers, const char *const *texts,
                  const char *const *names);
    int (*destroy)(void **program);
    int (*compile)(void *program, int count, const char *const *options);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *text);
    int (*code_size)(void *program, size_t *size);
    int (*code)(void *program, char *code);
} gpu_runtime_compiler;

/* Their names, for gpu_library_resolve: PREFIX is "nvrtc", CODE "CUBIN". */
enum { GPU_RUNTIME_COMPILER_SYMBOLS = 8 };
#define GPU_RUNTIME_COMPILER_NAMES(PREFIX, CODE)                              \
    {                                                                         \
        {PREFIX "Version", offsetof(gpu_runtime_compiler, version)},          \
            {PREFIX "CreateProgram", offsetof(gpu_runtime_compiler, create)}, \
            {PREFIX "DestroyProgram",                                         \
             offsetof(gpu_runtime_compiler, destroy)},                        \
            {PREFIX "CompileProgram",                                         \
             offsetof(gpu_runtime_compiler, compile)},                        \
            {PREFIX "GetProgramLogSize",                                      \
             offsetof(gpu_runtime_compiler, log_size)},                       \
            {PREFIX "GetProgramLog", offsetof(gpu_runtime_compiler, log)},    \
            {PREFIX "Get" CODE "Size",                                        \
             offsetof(gpu_runtime_compiler, code_size)},                      \
            {PREFIX "Get" CODE, offsetof(gpu_runtime_compiler, code)},        \
    }

/* Compiles c->source; sets c->log and, on success, c->image.  Returns 0 or the
 * library's code; GPU_UNKNOWN if it succeeded and has no code. */
int gpu_runtime_compile(const gpu_runtime_compiler *rtc,
                        const char *const *options, int count,
                        gpu_compilation *c);

#endif
