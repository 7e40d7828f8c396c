/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: host memory of the program that a device pins, and device memory
 * that processes share. */

#include "tests_features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
                           const plugin_block *block, unsigned char *begin,
                           outcome *out)
{
    bool good;

    memset(begin, 3, BYTES);
    if (!expect_plugin_ok(out, table->register_memory(p->device, begin, BYTES),
                          "registering host memory"))
        return false;
    good =
        expect(out, begin[0] == 3 && memcmp(begin, begin + 1, BYTES - 1) == 0,
               "registering host memory changes its content");
    for (size_t i = 0; i < BYTES; i++)
        begin[i] = pattern(i);
    good = good && plugin_write(p, out, block->memory, begin, BYTES);
    memset(begin, 0, BYTES);
    good = good && plugin_read(p, out, begin, block->memory, BYTES) &&
           expect(out, is_pattern(begin),
                  "copies from and to registered host memory lose what the "
                  "host has written since it was registered: the device must "
                  "use the memory itself, not a copy");
    table->unregister_memory(p->device, begin, BYTES);
    return good && expect(out, is_pattern(begin),
                          "unregister_memory changes the content of host "
                          "memory, which belongs to the program");
}

/* Whole pages of their own, which unregister_memory must leave mapped. */
static bool stays_mapped(plugin_tables *p,
                         const core_host_memory_interface *table, outcome *out)
{
    enum { PAGES = 4 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = PAGES * page;
    unsigned char resident[PAGES];
    char *data = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool good;

    if (data == MAP_FAILED) {
        harness_error(out, "no memory");
        return false;
    }
    memset(data, 5, size);
    if (!expect_plugin_ok(out, table->register_memory(p->device, data, size),
                          "registering whole pages of host memory")) {
        munmap(data, size);
        return false;
    }
    table->unregister_memory(p->device, data, size);
    good = expect(out, mincore(data, size, resident) == 0,
                  "unregister_memory unmaps host memory, which belongs to the "
                  "program") &&
           expect(out, data[0] == 5 && data[size - 1] == 5,
                  "unregister_memory changes the content of whole pages of "
                  "host memory");
    munmap(data, size);
    return good;
}

void features_registered_host_memory(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    const core_host_memory_interface *table;
    plugin_block block = {{0}, 0};
    unsigned char *data;
    bool good = true;

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
        for (int i = 0; good && i < ROUNDS; i++)
            good = use_registered(p, table, &block, data + BEGIN, out);
    plugin_free(p, &block);
    free(data);
    if (good && out->verdict == VERDICT_PASS)
        stays_mapped(p, table, out);
}

/* -------------------------------------------------- memory of processes -- */

/* What the exporting process sends: two exports. */
typedef struct offer {
    uint8_t handle[CORE_IPC_HANDLE_SIZE];
    uint64_t size;
} offer;

static const core_ipc_interface *ipc_of(const plugin_tables *p)
{
    return p ? plugin_interface(p, "core.ipc") : NULL;
}

/* Two exports: their content is the pattern, and its inverse. */
enum { EXPORTS = 2 };

static void fill_pattern(unsigned char *data, bool inverse)
{
    for (size_t i = 0; i < BYTES; i++)
        data[i] = inverse ? (unsigned char)~pattern(i) : pattern(i);
}

/* Expects the pattern or its inverse. */
static bool expect_pattern(plugin_tables *p, core_memory memory, bool inverse,
                           const char *what, outcome *out)
{
    unsigned char data[BYTES], wanted[BYTES];

    fill_pattern(wanted, inverse);
    if (!plugin_read(p, out, data, memory, BYTES))
        return false;
    for (size_t i = 0; i < BYTES; i++)
        if (!expect(out, data[i] == wanted[i],
                    "%s: byte %zu is %d, expected %d", what, i, data[i],
                    wanted[i]))
            return false;
    return true;
}

/* The importing process.  It checks the memory and inverts each byte; then the
 * exporting process checks that, before and after this one closes it. */
static void import(suite *self, const offer from[EXPORTS], int go, int result)
{
    outcome out = {.verdict = VERDICT_PASS};
    plugin_tables *p = plugin_tables_open(self, &out);
    const core_ipc_interface *table = ipc_of(p);
    core_memory memory[EXPORTS] = {{NULL, 0}};
    unsigned char data[BYTES];
    char command;
    int opened = 0;

    while (table && opened < EXPORTS &&
           expect_plugin_ok(&out,
                            table->open(p->device, from[opened].handle,
                                        from[opened].size, &memory[opened]),
                            "opening memory that another process exports"))
        opened++;
    for (int i = 0; opened == EXPORTS && i < EXPORTS; i++)
        if (!expect_pattern(p, memory[i], i == 1,
                            i == 0 ? "memory of another process"
                                   : "the second of two exports",
                            &out))
            break;
    for (int i = 0; out.verdict == VERDICT_PASS && i < EXPORTS; i++) {
        fill_pattern(data, i == 0);
        if (!plugin_write(p, &out, memory[i], data, BYTES))
            break;
    }
    if (write(result, &out, sizeof out) == sizeof out &&
        read(go, &command, 1) == 1)
        while (opened-- > 0)
            table->close(p->device, memory[opened], from[opened].size);
    _exit(write(result, &out, sizeof out) != sizeof out);
}

/* Exports both blocks, and waits for what the other process says. */
static void export_both(plugin_tables *p, plugin_block blocks[EXPORTS], int to,
                        int result, outcome *out)
{
    const core_ipc_interface *table = ipc_of(p);
    unsigned char data[BYTES];
    offer offered[EXPORTS];
    int exported = 0;
    outcome there;

    memset(offered, 0, sizeof offered);
    for (; exported < EXPORTS; exported++) {
        plugin_block *block = &blocks[exported];

        fill_pattern(data, exported == 1);
        offered[exported].size = block->size;
        if (!plugin_write(p, out, block->memory, data, BYTES) ||
            !expect_plugin_ok(out,
                              table->export_memory(p->device, block->memory,
                                                   block->size,
                                                   offered[exported].handle),
                              "exporting memory"))
            goto end;
    }
    if (write(to, offered, sizeof offered) != sizeof offered ||
        !expect(out, read(result, &there, sizeof there) == sizeof there,
                "the process that opens exported memory crashes"))
        goto end;
    if (there.verdict != VERDICT_PASS)
        *out = there;
    for (int i = 0; out->verdict == VERDICT_PASS && i < EXPORTS; i++)
        expect_pattern(p, blocks[i].memory, i == 0,
                       "exported memory that another process has written to",
                       out);
    if (write(to, "c", 1) == 1 &&
        expect(out, read(result, &there, sizeof there) == sizeof there,
               "the process that closes exported memory crashes"))
        for (int i = 0; out->verdict == VERDICT_PASS && i < EXPORTS; i++)
            expect_pattern(p, blocks[i].memory, i == 0,
                           "exported memory, after another process has closed "
                           "it",
                           out);
end:
    while (exported-- > 0)
        if (table->end_export)
            table->end_export(p->device, blocks[exported].memory,
                              blocks[exported].size);
}

static void export(plugin_tables *p, int to, int result, outcome *out)
{
    plugin_block blocks[EXPORTS] = {{{0}, 0}};

    if (plugin_alloc(p, out, BYTES, &blocks[0]) &&
        plugin_alloc(p, out, BYTES, &blocks[1]))
        export_both(p, blocks, to, result, out);
    for (int i = 0; i < EXPORTS; i++)
        plugin_free(p, &blocks[i]);
}

/* Waits for an offer, before which this process does not open the plugin. */
static void run_importer(suite *self, int from, int to)
{
    offer offered[EXPORTS];

    if (read(from, offered, sizeof offered) != sizeof offered)
        _exit(0);
    import(self, offered, from, to);
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
        slot_watch_unshare();
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

/* ------------------------------------------------- the life of an export -- */

/* The process that exports memory. */
typedef struct exporter {
    pid_t pid;
    int commands; /* a byte: end the export; its end: exit */
    int answers;
} exporter;

typedef struct answer {
    outcome out;
    offer offered;
} answer;

static bool has_pattern(plugin_tables *p, core_memory memory, const char *what,
                        outcome *out)
{
    unsigned char data[BYTES];
    char text[TEST_DETAIL];

    if (plugin_read(p, out, data, memory, BYTES))
        return expect(out, is_pattern(data), "%s has different content", what);
    snprintf(text, sizeof text, "reading %s: %.500s", what, out->detail);
    snprintf(out->detail, sizeof out->detail, "%s", text);
    return false;
}

/* The exporting process may open the memory, too, unless the plugin refuses. */
static void open_own(plugin_tables *p, const plugin_block *block,
                     const offer *from, outcome *out)
{
    const core_ipc_interface *table = ipc_of(p);
    core_memory memory = {NULL, 0};
    core_status status =
        table->open(p->device, from->handle, from->size, &memory);

    if (status == CORE_ERROR_UNSUPPORTED ||
        !expect_plugin_ok(out, status, "opening an export of this process"))
        return;
    has_pattern(p, memory, "an export that its own process opens", out);
    table->close(p->device, memory, from->size);
    has_pattern(p, block->memory,
                "exported memory, after its own process has closed it,", out);
}

/* Ends without freeing anything. */
static void run_exporter(suite *self, int commands, int answers)
{
    answer sent = {.out = {.verdict = VERDICT_PASS}};
    plugin_tables *p = plugin_tables_open(self, &sent.out);
    const core_ipc_interface *table = ipc_of(p);
    unsigned char data[BYTES], command;
    plugin_block block = {{0}, 0};

    for (size_t i = 0; i < BYTES; i++)
        data[i] = pattern(i);
    if (table && plugin_alloc(p, &sent.out, BYTES, &block) &&
        plugin_write(p, &sent.out, block.memory, data, BYTES) &&
        expect_plugin_ok(&sent.out,
                         table->export_memory(p->device, block.memory,
                                              block.size, sent.offered.handle),
                         "exporting memory")) {
        sent.offered.size = block.size;
        open_own(p, &block, &sent.offered, &sent.out);
    }
    if (write(answers, &sent, sizeof sent) != sizeof sent)
        _exit(1);
    while (read(commands, &command, 1) == 1) {
        if (table->end_export)
            table->end_export(p->device, block.memory, block.size);
        if (write(answers, &command, 1) != 1)
            _exit(1);
    }
    _exit(0);
}

static bool start_exporter(suite *self, exporter *out)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};

    if (pipe(to) != 0 || pipe(from) != 0 || (out->pid = fork()) < 0)
        return false;
    if (out->pid == 0) {
        slot_watch_unshare();
        close(to[1]);
        close(from[0]);
        run_exporter(self, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    out->commands = to[1];
    out->answers = from[0];
    return true;
}

static void end_exporter(exporter *self)
{
    if (self->pid <= 0)
        return;
    close(self->commands);
    close(self->answers);
    waitpid(self->pid, NULL, 0);
    self->pid = 0;
}

/* Opens the export twice, if the plugin allows that, closes one of them, and
 * checks that the other is still usable. */
static bool open_twice(plugin_tables *p, const offer *from, core_memory *kept,
                       outcome *out)
{
    const core_ipc_interface *table = ipc_of(p);
    core_memory first = {NULL, 0};
    core_status status;

    if (!expect_plugin_ok(
            out, table->open(p->device, from->handle, from->size, &first),
            "opening memory that another process exports"))
        return false;
    *kept = first;
    status = table->open(p->device, from->handle, from->size, kept);
    if (status == CORE_ERROR_UNSUPPORTED) {
        *kept = first;
        return true;
    }
    if (!expect_plugin_ok(out, status, "opening an export a second time"))
        return false;
    table->close(p->device, first, from->size);
    return has_pattern(p, *kept,
                       "an export that was opened twice and closed once", out);
}

/* Some handles open no memory.  may_open: the device need not notice. */
static bool opens_nothing(plugin_tables *p, const offer *from, bool may_open,
                          core_status wanted, const char *what, outcome *out)
{
    const core_ipc_interface *table = ipc_of(p);
    core_memory memory = {NULL, 0};
    core_status status;

    plugin_last_error()->count = 0;
    status = table->open(p->device, from->handle, from->size, &memory);
    if (status != CORE_OK || !may_open)
        return expect_plugin_error(out, status, wanted, what);
    table->close(p->device, memory, from->size);
    return true;
}

static void use_export(plugin_tables *p, exporter *there, const offer *from,
                       outcome *out)
{
    const core_ipc_interface *table = ipc_of(p);
    outcome ignored = {.verdict = VERDICT_PASS};
    core_memory memory;
    offer foreign = *from;
    char command = 1;
    slot before;

    for (size_t i = 0; i < sizeof foreign.handle; i++)
        foreign.handle[i] = (uint8_t)~foreign.handle[i];
    if (!opens_nothing(p, &foreign, false, CORE_ERROR_INVALID_ARGUMENT,
                       "opening a handle that is not the device's", out) ||
        !open_twice(p, from, &memory, out))
        return;
    if (expect(out,
               write(there->commands, &command, 1) == 1 &&
                   read(there->answers, &command, 1) == 1,
               "the process that ends an export crashes"))
        opens_nothing(p, from, true, CORE_ERROR_NOT_FOUND,
                      "opening an export that has ended", out);
    if (out->verdict == VERDICT_PASS)
        has_pattern(p, memory, "open memory whose export has ended", out);
    end_exporter(there);
    opens_nothing(p, from, false, CORE_ERROR_NOT_FOUND,
                  "opening an export whose process has ended", out);
    /* The content is undefined, or the device is lost. */
    has_pattern(p, memory, "", &ignored);
    before = slot_enter(SLOT_IPC_CLOSE);
    table->close(p->device, memory, from->size);
    slot_leave(SLOT_IPC_CLOSE, before);
}

void features_ipc_exports(suite *self, outcome *out, const test *one)
{
    exporter there = {0};
    plugin_tables *p;
    answer got;

    (void)one;
    if (!start_exporter(self, &there)) {
        harness_error(out, "cannot start a process");
        return;
    }
    p = plugin_tables_open(self, out);
    if (p && !ipc_of(p))
        not_supported(out, "it has no core.ipc");
    else if (p &&
             expect(out, read(there.answers, &got, sizeof got) == sizeof got,
                    "the process that exports memory crashes")) {
        if (got.out.verdict == VERDICT_PASS)
            use_export(p, &there, &got.offered, out);
        else
            *out = got.out;
    }
    end_exporter(&there);
}
