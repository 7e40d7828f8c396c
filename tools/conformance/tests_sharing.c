/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: host memory of the program that a device pins, and device memory
 * that processes share. */

#include "tests_features.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 10000, BEGIN = 13 /* not aligned */, ROUNDS = 3 };

static unsigned char pattern(size_t at)
{
    return (unsigned char)(at * 7 + 1);
}

static bool is_pattern(const unsigned char *data)
{
    for (size_t i = 0; i < BYTES; i++)
        if (data[i] != pattern(i))
            return false;
    return true;
}

/* One registration, copies from and to the memory, and its end. */
static bool use_registered(plugin_tables *p,
                           const core_host_memory_interface *table,
                           const plugin_block *block, unsigned char *data,
                           outcome *out)
{
    unsigned char *begin = data + BEGIN;
    bool good;

    for (size_t i = 0; i < BYTES; i++)
        begin[i] = pattern(i);
    if (!expect_plugin_ok(out, table->register_memory(p->device, begin, BYTES),
                          "registering host memory"))
        return false;
    good = expect(out, is_pattern(begin),
                  "registering host memory changes its content") &&
           plugin_write(p, out, block->memory, begin, BYTES);
    memset(begin, 0, BYTES);
    good = good && plugin_read(p, out, begin, block->memory, BYTES);
    table->unregister_memory(p->device, begin, BYTES);
    return good && expect(out, is_pattern(begin),
                          "registered host memory lost the data of a copy");
}

void features_registered_host_memory(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    const core_host_memory_interface *table;
    plugin_block block = {{0}, 0};
    unsigned char *data;

    (void)one;
    if (!p)
        return;
    table = plugin_interface(p, "core.host_memory");
    if (!table || table->struct_size < sizeof *table ||
        !table->register_memory) {
        not_supported(out, "it does not register host memory");
        return;
    }
    if (!expect(out, table->unregister_memory != NULL,
                "core.host_memory has register_memory, but unregister_memory "
                "is NULL"))
        return;
    data = malloc(BEGIN + BYTES);
    if (!data) {
        harness_error(out, "no memory");
        return;
    }
    if (plugin_alloc(p, out, BYTES, &block))
        for (int i = 0; i < ROUNDS; i++)
            if (!use_registered(p, table, &block, data, out))
                break;
    plugin_free(p, &block);
    free(data);
}

/* -------------------------------------------------- memory of processes -- */

/* What the exporting process sends. */
typedef struct offer {
    uint8_t handle[CORE_IPC_HANDLE_SIZE];
    uint64_t size;
} offer;

static const core_ipc_interface *ipc_of(const plugin_tables *p)
{
    return p ? plugin_interface(p, "core.ipc") : NULL;
}

/* The importing process: checks the memory, and inverts each byte. */
static void import(suite *self, const offer *from, outcome *out)
{
    plugin_tables *p = plugin_tables_open(self, out);
    const core_ipc_interface *table = ipc_of(p);
    unsigned char data[BYTES];
    core_memory memory = {NULL, 0};

    if (!table ||
        !expect_plugin_ok(
            out, table->open(p->device, from->handle, from->size, &memory),
            "opening memory that another process exports"))
        return;
    if (plugin_read(p, out, data, memory, BYTES) &&
        expect(out, is_pattern(data),
               "memory of another process has different content here")) {
        for (size_t i = 0; i < BYTES; i++)
            data[i] = (unsigned char)~data[i];
        plugin_write(p, out, memory, data, BYTES);
    }
    table->close(p->device, memory, from->size);
}

static void export(plugin_tables *p, int to, int result, outcome *out)
{
    const core_ipc_interface *table = ipc_of(p);
    unsigned char data[BYTES];
    plugin_block block = {{0}, 0};
    offer offered = {.size = 0};
    outcome there;

    for (size_t i = 0; i < BYTES; i++)
        data[i] = pattern(i);
    if (!plugin_alloc(p, out, BYTES, &block))
        return;
    offered.size = block.size;
    if (!plugin_write(p, out, block.memory, data, BYTES) ||
        !expect_plugin_ok(out,
                          table->export_memory(p->device, block.memory,
                                               block.size, offered.handle),
                          "exporting memory"))
        goto done;
    if (write(to, &offered, sizeof offered) != sizeof offered ||
        !expect(out, read(result, &there, sizeof there) == sizeof there,
                "the process that opens exported memory crashes"))
        goto end;
    if (there.verdict != VERDICT_PASS) {
        *out = there;
    } else if (plugin_read(p, out, data, block.memory, BYTES)) {
        for (size_t i = 0; i < BYTES; i++)
            data[i] = (unsigned char)~data[i];
        expect(out, is_pattern(data),
               "what another process writes to exported memory is not seen "
               "here");
    }
end:
    if (table->end_export)
        table->end_export(p->device, block.memory, block.size);
done:
    plugin_free(p, &block);
}

/* Waits for an offer, before which this process does not open the plugin. */
static void run_importer(suite *self, int from, int to)
{
    outcome out = {.verdict = VERDICT_PASS};
    offer offered;

    if (read(from, &offered, sizeof offered) != sizeof offered)
        _exit(0);
    import(self, &offered, &out);
    _exit(write(to, &out, sizeof out) != sizeof out);
}

void features_ipc(suite *self, outcome *out, const test *one)
{
    int to[2] = {-1, -1}, result[2] = {-1, -1};
    plugin_tables *p;
    pid_t importer;

    (void)one;
    if (pipe(to) != 0 || pipe(result) != 0 || (importer = fork()) < 0) {
        harness_error(out, "cannot start a process");
        return;
    }
    if (importer == 0) {
        close(to[1]);
        close(result[0]);
        run_importer(self, to[0], result[1]);
    }
    close(to[0]);
    close(result[1]);
    p = plugin_tables_open(self, out);
    if (ipc_of(p))
        export(p, to[1], result[0], out);
    else if (p)
        not_supported(out, "it has no core.ipc");
    close(to[1]);
    close(result[0]);
    waitpid(importer, NULL, 0);
}
