/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compile.c: compiles kernels for the emulated device while the program runs,
 * with the host's C++ compiler, to a library (module.c).
 *
 *     GPUEMU_COMPILER="c++ -I SOURCE/backends"   the compiler, a shell command;
 *                                                without it there is none */

#define _GNU_SOURCE /* asprintf */

#include "work.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char options[] =
    "-x c++ -std=gnu++17 -O1 -g0 -w -ffp-contract=off -fwrapv -fno-exceptions "
    "-fno-rtti -fno-strict-aliasing -fvisibility=hidden -fPIC -shared "
    "-DGPU_EMULATED -include gpu/emulated/module.h";

enum { PATH = 256, LARGEST = 1 << 26 };

/* Reads a file, with a NUL after it.  Returns NULL if it cannot. */
static char *read_file(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = -1;

    *out_size = 0;
    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size >= 0 && size < LARGEST)
        text = calloc(1, (size_t)size + 1);
    if (text != NULL) {
        rewind(file);
        *out_size = fread(text, 1, (size_t)size, file);
    }
    fclose(file);
    return text;
}

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    int code = file == NULL || fputs(text, file) < 0;

    if (file != NULL)
        code |= fclose(file) != 0;
    return code;
}

/* Runs a shell command; returns its exit status, or -1. */
static int run(char *command)
{
    char *const arguments[] = {(char *)(uintptr_t) "sh",
                               (char *)(uintptr_t) "-c", command, NULL};
    int status = -1;
    pid_t child;

    if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) != 0)
        return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int compile_in(const char *folder, const char *compiler,
                      gpu_compilation *c)
{
    char source[PATH], image[PATH], log[PATH], *command = NULL;
    size_t size;
    int code;

    snprintf(source, sizeof source, "%s/k.cu", folder);
    snprintf(image, sizeof image, "%s/k.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    if (write_file(source, c->source) != 0 ||
        asprintf(&command, "%s %s -o '%s' '%s' >'%s' 2>&1", compiler, options,
                 image, source, log) < 0)
        return EMULATED_INVALID;
    code = run(command);
    free(command);
    c->log = read_file(log, &size);
    if (code == 0)
        c->image = read_file(image, &c->size);
    if (code == 0 && c->image == NULL)
        code = EMULATED_INVALID;
    unlink(source);
    unlink(image);
    unlink(log);
    return code;
}

const char *gpu_emulated_compiler(void *device)
{
    const char *compiler = getenv("GPUEMU_COMPILER");

    (void)device;
    return compiler != NULL && *compiler != 0 ? NULL
                                              : "GPUEMU_COMPILER is not set";
}

int gpu_emulated_compile(void *device, gpu_compilation *c)
{
    const char *compiler = getenv("GPUEMU_COMPILER");
    const char *root = getenv("TMPDIR");
    char folder[PATH / 2];
    int code;

    if (gpu_emulated_compiler(device) != NULL)
        return GPU_ABSENT;
    snprintf(folder, sizeof folder, "%s/gpuemu-XXXXXX",
             root != NULL && *root != 0 ? root : "/tmp");
    if (mkdtemp(folder) == NULL)
        return EMULATED_INVALID;
    code = compile_in(folder, compiler, c);
    rmdir(folder);
    return code;
}
