/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* runtime_compiler.c: compiles with NVRTC or hipRTC. */

#include <gpu/host/runtime_compiler.h>

#include <stdlib.h>

/* Returns what two functions of the library give, with a NUL after it. */
static char *bytes_of(void *program, int (*size_of)(void *, size_t *),
                      int (*get)(void *, char *), size_t *out_size)
{
    size_t size = 0;
    char *bytes;

    *out_size = 0;
    if (size_of(program, &size) != 0 || size == 0)
        return NULL;
    bytes = calloc(1, size + 1);
    if (bytes == NULL || get(program, bytes) != 0) {
        free(bytes);
        return NULL;
    }
    *out_size = size;
    return bytes;
}

int gpu_runtime_compile(const gpu_runtime_compiler *rtc,
                        const char *const *options, int count,
                        gpu_compilation *c)
{
    void *program = NULL;
    size_t size;
    int code = rtc->create(&program, c->source, c->name, 0, NULL, NULL);

    if (code != 0)
        return code;
    code = rtc->compile(program, count, options);
    c->log = bytes_of(program, rtc->log_size, rtc->log, &size);
    if (code == 0) {
        c->image = bytes_of(program, rtc->code_size, rtc->code, &c->size);
        code = c->image != NULL ? 0 : GPU_UNKNOWN;
    }
    rtc->destroy(&program);
    return code;
}
