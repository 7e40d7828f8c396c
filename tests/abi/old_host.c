/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A host of ABI minor 0.1, written against its headers: every struct that it
 * passes to a plugin ends at an unreadable page, so that a plugin which assumes
 * a newer host crashes.  It runs the plugins built with newer headers. */

#include <libcore/backend.h>
#include <libcore/kernel.h>
#include <libcore/plugin.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

_Static_assert(CORE_ABI_MINOR == 1, "these are not the headers of 0.1");

static core_backend backend;
static core_kernel kernels[4];
static uint32_t nkernels;

/* Returns size bytes that end at an unreadable page. */
static void *at_the_edge(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (size + page - 1) / page * page;
    char *block = mmap(NULL, rounded + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (block == MAP_FAILED || mprotect(block + rounded, page, PROT_NONE) != 0)
        exit(99);
    return block + rounded - size;
}

static core_status error(const core_error_info *info)
{
    printf("# %.*s\n", (int)info->text.size, info->text.data);
    return info->code;
}

static core_status register_backend(core_registry *registry,
                                    const core_backend *table)
{
    (void)registry;
    backend = *table;
    return CORE_OK;
}

static core_status register_kernels(core_registry *registry, core_string type,
                                    const core_kernel *const *table,
                                    uint32_t count)
{
    (void)registry;
    (void)type;
    for (uint32_t i = 0; i < count && nkernels < 4; i++) {
        if (table[i]->struct_size > offsetof(core_kernel, prepare) &&
            table[i]->prepare)
            return CORE_ERROR_UNSUPPORTED;
        kernels[nkernels++] = *table[i];
    }
    return CORE_OK;
}

static core_status register_operator(core_registry *registry,
                                     core_string schema)
{
    (void)registry;
    (void)schema;
    return CORE_OK;
}

static core_status register_function(core_registry *registry, core_string name,
                                     uint32_t key, core_string type,
                                     core_function function, void *user)
{
    (void)registry;
    (void)name;
    (void)key;
    (void)type;
    (void)function;
    (void)user;
    return CORE_OK;
}

static const core_host functions = {
    .struct_size = sizeof(core_host),
    .abi_minor = 1,
    .error = error,
    .register_backend = register_backend,
    .register_kernels = register_kernels,
    .register_operator = register_operator,
    .register_function = register_function,
};

/* Returns the name of the step that failed. */
static const char *start(const char *path)
{
    core_plugin_entry_function entry;
    core_plugin_offer *offer = at_the_edge(sizeof *offer);
    core_plugin_answer *answer = at_the_edge(sizeof *answer);
    core_host *host = at_the_edge(sizeof *host);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, CORE_PLUGIN_ENTRY) : NULL;
    void *plugin;

    if (!symbol)
        return dlerror();
    memcpy(&entry, &symbol, sizeof entry);
    *offer =
        (core_plugin_offer){sizeof *offer, CORE_ABI_MAJOR, 1, 1, {"0.1.0", 5}};
    *answer = (core_plugin_answer){.struct_size = sizeof *answer};
    *host = functions;
    if (entry(offer, answer) != CORE_OK)
        return "it refuses a host of 0.1";
    if (answer->abi_minor != 1 || answer->host_minor_min > 1)
        return "it did not choose 0.1";
    if (answer->init(host, NULL, &plugin) != CORE_OK)
        return "its init failed";
    return NULL;
}

static const char *compute(void)
{
    core_device_properties *p = at_the_edge(sizeof *p);
    const float given[4] = {1, -2, 3, -4};
    const int64_t size = 4, stride = sizeof(float);
    core_operand *operands = at_the_edge(2 * sizeof *operands);
    core_loop *loop = at_the_edge(sizeof *loop);
    core_call *call = at_the_edge(sizeof *call);
    core_memory memory[2];
    core_string reason;
    float got[4];
    uint32_t count = 0;
    void *device;

    memset(p, 0, sizeof *p);
    memset(loop, 0, sizeof *loop);
    memset(call, 0, sizeof *call);
    p->struct_size = sizeof *p;
    if (backend.enumerate(backend.user, &count, &reason) != CORE_OK || !count)
        return "it enumerates nothing";
    if (backend.device_open(backend.user, 0, &device) != CORE_OK ||
        backend.device_properties(device, p) != CORE_OK)
        return "its device does not open";
    if (p->struct_size > sizeof *p)
        return "its properties are longer than they were asked for";
    for (int i = 0; i < 2; i++) {
        if (backend.memory->alloc(device, sizeof given, &memory[i]) != CORE_OK)
            return "it has no memory";
        operands[i] = (core_operand){
            .memory = memory[i], .strides = &stride, .dtype = CORE_F32};
    }
    operands[0].flags = CORE_OPERAND_OUTPUT;
    backend.memory->copy_from_host(device, NULL, memory[1], given,
                                   sizeof given);
    loop->struct_size = sizeof *loop;
    loop->flags = CORE_LOOP_CONTIGUOUS;
    loop->ndim = 1;
    loop->noperands = 2;
    loop->noutputs = 1;
    loop->numel = 4;
    loop->sizes = &size;
    loop->operands = operands;
    call->struct_size = sizeof *call;
    call->host = &functions;
    call->user = kernels[0].user;
    call->loop = loop;
    call->device = device;
    if (kernels[0].launch(call, NULL, 0, NULL, 0) != CORE_OK)
        return "its kernel fails";
    backend.memory->copy_to_host(device, NULL, got, memory[0], sizeof got);
    for (int i = 0; i < 4; i++)
        if (got[i] != -given[i])
            return "its kernel is wrong";
    return NULL;
}

/* In a child process: a signal counts as a result. */
static void check(const char *name, const char *path, int computes)
{
    static int number;
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        const char *failed = start(path);

        if (!failed && computes)
            failed = compute();
        if (failed)
            printf("# %s: %s\n", path, failed);
        fflush(stdout);
        _exit(failed != NULL);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("# ended by signal %d\n", WTERMSIG(status));
    printf("%sok %d - %s\n", status ? "not " : "", ++number, name);
}

int main(void)
{
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096];

    printf("1..6\n");
    snprintf(path, sizeof path, "%s/tests/abi/.libs/core_abi_0_1.so",
             build ? build : ".");
    check("a plugin of 0.1 runs in a host of 0.1", path, 1);
    snprintf(path, sizeof path, "%s/tests/abi/.libs/core_abi_0_2.so",
             build ? build : ".");
    check("a plugin of 0.2 runs in a host of 0.1", path, 1);
    snprintf(path, sizeof path, "%s/tests/abi/.libs/core_abi_0_3.so",
             build ? build : ".");
    check("a plugin of 0.3 runs in a host of 0.1", path, 1);
    snprintf(path, sizeof path, "%s/tests/abi/.libs/core_abi_0_4.so",
             build ? build : ".");
    check("a plugin of 0.4 runs in a host of 0.1", path, 1);
    snprintf(path, sizeof path, "%s/tests/abi/.libs/core_abi_0_5.so",
             build ? build : ".");
    check("a plugin of 0.5 runs in a host of 0.1", path, 1);
    snprintf(path, sizeof path, "%s/tests/abi/.libs/core_abi_0_6.so",
             build ? build : ".");
    check("a plugin of 0.6 runs in a host of 0.1", path, 1);
    return 0;
}
