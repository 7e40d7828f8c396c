/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* module.c: modules of kernels.  Those of the families are linked into the
 * plugin; others are libraries (compile.c). */

#include "work.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern gpu_emulated_kernel __start_gpu_kernels[], __stop_gpu_kernels[];

/* A library; other modules are the addresses of images. */
typedef struct module {
    struct module *next;
    void *library;
    gpu_emulated_kernel *first, *end;
} module;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static module *modules;

/* The size of a library; 0: the image is none. */
static size_t size_of(const void *image)
{
    Elf64_Ehdr head;

    if (*(const char *)image != ELFMAG0)
        return 0;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_shoff > 1 << 26)
        return 0;
    return head.e_shoff + (size_t)head.e_shentsize * head.e_shnum;
}

/* The name of a library must be new: a library that has it already would be
 * found instead. */
static void *open_library(const void *image, size_t size)
{
    char path[] = "/tmp/gpuemu-module-XXXXXX";
    int file = mkstemp(path);
    void *library = NULL;

    if (file < 0)
        return NULL;
    if (write(file, image, size) == (ssize_t)size)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    unlink(path);
    return library;
}

/* Tells the library where the running thread's position is and how threads
 * meet, and finds its kernels. */
static int attach(module *m)
{
    gpu_emulated_position **position = dlsym(m->library, "gpu_emulated_at");
    gpu_emulated_meetings *meet = dlsym(m->library, "gpu_emulated_meet");
    void (*kernels)(gpu_emulated_kernel **, gpu_emulated_kernel **);
    void *found = dlsym(m->library, "gpu_emulated_kernels");

    if (position == NULL || meet == NULL || found == NULL)
        return EMULATED_INVALID;
    *position = &gpu_emulated;
    *meet = (gpu_emulated_meetings){gpu_emulated_barrier, gpu_emulated_exchange,
                                    gpu_emulated_ballot, gpu_emulated_lane};
    memcpy(&kernels, &found, sizeof kernels);
    kernels(&m->first, &m->end);
    return 0;
}

static int load_library(const void *image, size_t size, void **out_module)
{
    module *m = calloc(1, sizeof *m);
    int code = EMULATED_INVALID;

    if (m == NULL)
        return EMULATED_OUT_OF_MEMORY;
    m->library = open_library(image, size);
    if (m->library != NULL)
        code = attach(m);
    if (code != 0) {
        if (m->library != NULL)
            dlclose(m->library);
        free(m);
        return code;
    }
    pthread_mutex_lock(&lock);
    m->next = modules;
    modules = m;
    pthread_mutex_unlock(&lock);
    *out_module = m;
    return 0;
}

int gpu_emulated_module_load(void *device, const void *image, void **out_module)
{
    context *c = device;
    size_t size = size_of(image);

    gpu_emulated_wait_if_loads_wait(c);
    *out_module = NULL;
    if (c->lost != 0)
        return c->lost;
    if (size > 0)
        return load_library(image, size, out_module);
    *out_module = (void *)(uintptr_t)image;
    return 0;
}

/* Under the lock. */
static module **find(const void *handle)
{
    module **at = &modules;

    while (*at != NULL && *at != handle)
        at = &(*at)->next;
    return at;
}

int gpu_emulated_module_unload(void *device, void *handle)
{
    module **at, *m;

    (void)device;
    pthread_mutex_lock(&lock);
    at = find(handle);
    m = *at;
    if (m != NULL)
        *at = m->next;
    pthread_mutex_unlock(&lock);
    if (m != NULL)
        dlclose(m->library);
    free(m);
    return 0;
}

int gpu_emulated_function_find(void *device, void *handle, const char *name,
                               void **out_function)
{
    gpu_emulated_kernel *k = __start_gpu_kernels, *end = __stop_gpu_kernels;
    const module *m;

    gpu_emulated_wait_if_loads_wait(device);
    pthread_mutex_lock(&lock);
    m = *find(handle);
    pthread_mutex_unlock(&lock);
    if (m != NULL) {
        k = m->first;
        end = m->end;
    }
    for (; k < end; k++)
        if (strcmp(k->name, name) == 0) {
            *out_function = k;
            return 0;
        }
    return EMULATED_ABSENT;
}
