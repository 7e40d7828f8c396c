/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: loading, negotiation and description of the plugin. */

#include "elf_symbols.h"
#include "process_state.h"
#include "device_checks.h"
#include "plugin_tables.h"

#include <libcore/plugins.h>

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------- the file -- */

typedef struct symbols {
    uint32_t exports;
    bool entry;
    char exported[64];
    char imported[64];
} symbols;

static void count_symbol(void *context, const char *name, bool defined)
{
    symbols *seen = context;

    if (!defined) {
        if (strncmp(name, "core_", 5) == 0)
            snprintf(seen->imported, sizeof seen->imported, "%s", name);
        return;
    }
    seen->exports++;
    if (strcmp(name, CORE_PLUGIN_ENTRY) == 0)
        seen->entry = true;
    else
        snprintf(seen->exported, sizeof seen->exported, "%s", name);
}

static void exports_one_symbol(suite *self, outcome *out, const test *one)
{
    symbols seen = {0};
    const char *wrong = elf_symbols(self->plugin, count_symbol, &seen);

    (void)one;
    expect(out, !wrong, "%s", wrong);
    expect(out, seen.entry, "it does not export " CORE_PLUGIN_ENTRY);
    expect(out, seen.exports <= 1, "it exports %u symbols, %s among them",
           seen.exports, seen.exported);
}

static void imports_no_libcore_symbol(suite *self, outcome *out,
                                      const test *one)
{
    symbols seen = {0};
    const char *wrong = elf_symbols(self->plugin, count_symbol, &seen);

    (void)one;
    expect(out, !wrong, "%s", wrong);
    expect(out, !seen.imported[0], "it imports %s, a symbol of libcore",
           seen.imported);
}

/* ------------------------------------------------------ negotiation -- */

/* Space behind the answer, which the plugin must not write. */
typedef struct guarded_answer {
    core_plugin_answer answer;
    unsigned char guard[64];
} guarded_answer;

static core_status call_entry(core_plugin_entry_function entry, uint32_t major,
                              uint32_t least, uint32_t most, uint32_t size,
                              guarded_answer *out)
{
    core_plugin_offer offer = {sizeof offer, major, least, most, {"test", 4}};
    slot before = slot_enter(SLOT_ENTRY_OFFERED);
    core_status status;

    memset(out, 0xa5, sizeof *out);
    out->answer.struct_size = size;
    status = entry(&offer, &out->answer);
    slot_leave(SLOT_ENTRY_OFFERED, before);
    return status;
}

static void rejects_other_major(suite *self, outcome *out, const test *one)
{
    core_plugin_entry_function entry = plugin_tables_entry(self, out);
    guarded_answer answer;
    core_status status;

    (void)one;
    if (!entry)
        return;
    status = call_entry(entry, CORE_ABI_MAJOR + 99, 0, 5, sizeof answer.answer,
                        &answer);
    expect(out, status != CORE_OK,
           "the entry accepts a host of ABI major %d: it must return "
           "CORE_ERROR_INCOMPATIBLE unless abi_major of the offer is "
           "CORE_ABI_MAJOR",
           CORE_ABI_MAJOR + 99);
    expect(out,
           status == CORE_OK ||
               (answer.answer.refusal.size > 0 && answer.answer.refusal.data),
           "it refuses another ABI major without a reason");
}

static void selects_offered_minor(suite *self, outcome *out, const test *one)
{
    core_plugin_entry_function entry = plugin_tables_entry(self, out);
    guarded_answer answer;

    (void)one;
    for (uint32_t most = 0; entry && most <= CORE_ABI_MINOR + 5; most++) {
        core_status status = call_entry(entry, CORE_ABI_MAJOR, 0, most,
                                        sizeof answer.answer, &answer);

        if (status != CORE_OK)
            expect(out, answer.answer.refusal.size > 0,
                   "it refuses minor %u without a reason", most);
        else
            expect(out, answer.answer.abi_minor <= most && answer.answer.init,
                   "offered minor %u, the entry selects minor %u%s", most,
                   answer.answer.abi_minor,
                   answer.answer.init ? "" : ", and no init");
    }
    if (entry)
        expect(out,
               call_entry(entry, CORE_ABI_MAJOR, 1, CORE_ABI_MINOR,
                          sizeof answer.answer, &answer) == CORE_OK,
               "it refuses the current ABI version");
}

static void respects_reply_size(suite *self, outcome *out, const test *one)
{
    core_plugin_entry_function entry = plugin_tables_entry(self, out);
    guarded_answer answer;

    (void)one;
    if (!entry)
        return;
    /* A later host's answer is larger; the plugin must not write its tail. */
    call_entry(entry, CORE_ABI_MAJOR, 1, CORE_ABI_MINOR, sizeof answer,
               &answer);
    for (size_t i = 0; i < sizeof answer.guard; i++)
        if (!expect(out, answer.guard[i] == 0xa5,
                    "the entry writes %zu bytes past the answer", i + 1))
            break;
    expect(out, answer.answer.struct_size <= sizeof answer.answer,
           "it reports that it filled %u bytes of the answer",
           answer.answer.struct_size);
}

/* Reads the plugin's note without running any of its code. */
static bool read_note(const suite *self, core_plugin_information *about,
                      outcome *out)
{
    core_plugin *one;

    if (core_setting_set("LIBCORE_PLUGIN_PATH", self->plugin) != CORE_OK ||
        core_plugins_scan() != CORE_OK) {
        harness_error(out, "the note cannot be read: %s", core_error_message());
        return false;
    }
    for (uint32_t i = 0; (one = core_plugin_at(i)); i++) {
        about->struct_size = sizeof *about;
        if (core_plugin_describe(one, about) == CORE_OK &&
            strcmp(about->path, self->plugin) == 0)
            return true;
    }
    harness_error(out, "the note cannot be read: the file was not found");
    return false;
}

/* libcore decides by the note whether to open the file, and by the entry
 * whether to use it. */
static void agrees_with_note(suite *self, outcome *out, const test *one)
{
    core_plugin_entry_function entry = plugin_tables_entry(self, out);
    core_plugin_information about;
    guarded_answer answer;

    (void)one;
    if (!entry || !read_note(self, &about, out))
        return;
    for (uint32_t minor = 1; minor <= CORE_ABI_MINOR; minor++) {
        bool accepted = call_entry(entry, CORE_ABI_MAJOR, 1, minor,
                                   sizeof answer.answer, &answer) == CORE_OK;

        expect(out, accepted || minor < about.abi_minor_min,
               "the note says that it runs from minor %u on, and the entry "
               "refuses a host of minor %u: %.*s",
               about.abi_minor_min, minor, (int)answer.answer.refusal.size,
               answer.answer.refusal.data);
        expect(out, !accepted || minor >= about.abi_minor_min,
               "the note says that it runs from minor %u on, and the entry "
               "accepts a host of minor %u",
               about.abi_minor_min, minor);
        expect(out, !accepted || answer.answer.abi_minor <= about.abi_minor_max,
               "the note says that it was built against minor %u, and the "
               "entry selects minor %u",
               about.abi_minor_max, answer.answer.abi_minor);
        expect(out,
               !accepted || answer.answer.host_minor_min == about.abi_minor_min,
               "the note says that it runs from minor %u on, and the entry's "
               "host_minor_min is %u",
               about.abi_minor_min, answer.answer.host_minor_min);
    }
}

/* ------------------------------------------------------------ tables -- */

static void type_name_is_valid(outcome *out, core_string type)
{
    bool good = type.size > 0 && type.size < 64 && type.data &&
                islower((unsigned char)type.data[0]);

    for (uint64_t i = 0; good && i < type.size; i++)
        good = islower((unsigned char)type.data[i]) ||
               isdigit((unsigned char)type.data[i]);
    expect(out, good, "the device type is not of the form [a-z][a-z0-9]*");
}

/* Missing slots are checked whenever the plugin is opened. */
static void tables_are_complete(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (!plugin)
        return;
    type_name_is_valid(out, plugin->backend.device_type);
    expect(out,
           plugin->memory.reserved == 0 && plugin->streams.reserved == 0 &&
               plugin->events.reserved == 0,
           "a `reserved` field of a table is not 0");
}

static void properties_are_consistent(suite *self, outcome *out,
                                      const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (plugin)
        device_checks_check_properties(&plugin->properties, "the device", out);
}

static void information_is_utf8(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    core_device_information *about;

    (void)one;
    if (!plugin)
        return;
    if (!plugin->backend.device_information) {
        not_supported(out, "it has no device_information");
        return;
    }
    about = &plugin->information;
    if (expect_plugin_ok(
            out, plugin->backend.device_information(plugin->device, about),
            "device_information"))
        device_checks_check(about, "the device", out);
}

static void enumerate_is_stable(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    uint32_t first = 0;

    (void)one;
    for (uint32_t i = 0; plugin && i < 20; i++) {
        uint32_t count = UINT32_MAX;
        core_string reason = {"", 0};

        if (!expect_plugin_ok(out,
                              plugin->backend.enumerate(plugin->backend.user,
                                                        &count, &reason),
                              "enumerate"))
            return;
        if (i == 0)
            first = count;
        expect(out, count == first, "enumerate reports %u devices, then %u",
               first, count);
        expect(out, count > 0 || reason.size > 0,
               "there is no device and no reason");
    }
}

static void unknown_interface_is_absent(suite *self, outcome *out,
                                        const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    core_string timing = {"core.timing", 11};

    (void)one;
    if (!plugin || !plugin->backend.get_interface)
        return;
    expect(out, !plugin_interface(plugin, "core.no_such_interface"),
           "get_interface(\"core.no_such_interface\") returns a table: a name "
           "that the plugin does not know must give NULL");
    expect(out, !plugin_interface(plugin, ""),
           "get_interface(\"\") returns a table, expected NULL");
    expect(out,
           !plugin->backend.get_interface(plugin->backend.user, timing,
                                          UINT32_MAX),
           "get_interface(\"core.timing\", version 4294967295) returns a "
           "table; that version does not exist, so expected NULL");
}

static void status_is_ok(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (plugin && plugin->backend.device_status)
        expect_plugin_ok(out, plugin->backend.device_status(plugin->device),
                         "device_status of a working device");
}

/* The signal mask of a thread of this process; all ones if it has ended. */
static unsigned long long blocked_by(const char *thread)
{
    unsigned long long blocked = ~0ull;
    char path[300], line[200];
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
            break;
    if (file)
        fclose(file);
    return blocked;
}

/* Checks every thread but the suite's own. */
static void check_threads(outcome *out)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        unsigned long long blocked;

        if (!isdigit((unsigned char)entry->d_name[0]) ||
            atol(entry->d_name) == (long)getpid())
            continue;
        blocked = blocked_by(entry->d_name);
        /* SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM */
        expect(out, (blocked & 0x6a07) == 0x6a07,
               "a thread of the plugin does not block SIGHUP, SIGINT, SIGQUIT, "
               "SIGUSR1, SIGUSR2, SIGALRM and SIGTERM (its mask is %llx): "
               "block all signals before pthread_create, which passes the "
               "mask on",
               blocked);
    }
    if (folder)
        closedir(folder);
}

static void threads_block_signals(suite *self, outcome *out, const test *one)
{
    (void)one;
    if (!plugin_tables_open(self, out))
        return;
    /* A starting thread blocks all signals for a moment. */
    for (int i = 0; i < 20 && out->verdict == VERDICT_PASS; i++) {
        check_threads(out);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

/* ------------------------------------------------- a process each -- */

static core_status refuse_backend(core_registry *registry,
                                  const core_backend *backend)
{
    core_error_info info = {.struct_size = sizeof info,
                            .code = CORE_ERROR_REFUSED,
                            .text = {"refused", 7}};

    (void)backend;
    ((plugin_tables *)(void *)registry)->backends++;
    return ((plugin_tables *)(void *)registry)->host.error(&info);
}

static core_status take_error(const core_error_info *info)
{
    return info->code;
}

static void drop_log(uint32_t severity, core_string component, core_string text)
{
    (void)severity;
    (void)component;
    (void)text;
}

static core_status no_kernel(core_string backend, uint32_t index,
                             const core_kernel **out)
{
    (void)backend;
    (void)index;
    *out = NULL;
    return CORE_ERROR_NOT_FOUND;
}

/* init must return the failure of a registration. */
static void init_propagates_failure(suite *self, outcome *out, const test *one)
{
    core_plugin_entry_function entry = plugin_tables_entry(self, out);
    guarded_answer answer;
    plugin_tables plugin;
    core_status status;
    slot before;

    (void)one;
    if (!entry || !expect(out,
                          call_entry(entry, CORE_ABI_MAJOR, 1, CORE_ABI_MINOR,
                                     sizeof answer.answer, &answer) == CORE_OK,
                          "the entry refuses"))
        return;
    memset(&plugin, 0, sizeof plugin);
    plugin.host = (core_host){.struct_size = sizeof plugin.host,
                              .abi_minor = answer.answer.abi_minor,
                              .error = take_error,
                              .log = drop_log,
                              .setting = plugin_setting,
                              .register_backend = refuse_backend,
                              .backend_kernel = no_kernel};
    before = slot_enter(SLOT_INIT_REFUSED);
    status = answer.answer.init(&plugin.host, (core_registry *)(void *)&plugin,
                                &plugin.plugin);
    slot_leave(SLOT_INIT_REFUSED, before);
    expect(out, status != CORE_OK,
           "init succeeds although the host refused its backend");
    expect(out, plugin.backends > 0, "init registers no backend");
}

/* Once in a process. */
static core_status shut_down(plugin_tables *plugin)
{
    static core_status status = CORE_ERROR_NOT_FOUND;
    slot before;

    if (status != CORE_ERROR_NOT_FOUND)
        return status;
    if (plugin->stream)
        plugin->streams.destroy(plugin->device, plugin->stream);
    plugin->backend.device_close(plugin->backend.user, plugin->device);
    before = slot_enter(SLOT_SHUTDOWN);
    status = plugin->answer.shutdown(plugin->plugin, UINT64_C(5000000000));
    slot_leave(SLOT_SHUTDOWN, before);
    return status;
}

static void shutdown_succeeds(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (plugin)
        expect_plugin_ok(out, shut_down(plugin), "shutdown");
}

/* The processor time of all threads but this one. */
static double time_of_others(void)
{
    struct timespec all, own;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return (double)(all.tv_sec - own.tv_sec) +
           (double)(all.tv_nsec - own.tv_nsec) * 1e-9;
}

/* dlclose would remove the code that a thread still runs.  A thread that is
 * about to end neither sleeps nor computes for long; how long it waits for a
 * processor is not counted. */
static void shutdown_ends_threads(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    enum { MOST_SLEEPS = 50 };
    static const double most_seconds = 1;
    uint32_t left, asleep, slept = 0;
    double start;

    (void)one;
    if (!plugin)
        return;
    if (!(plugin->answer.flags & CORE_PLUGIN_UNLOAD_SAFE)) {
        not_supported(out, "it does not declare CORE_PLUGIN_UNLOAD_SAFE");
        return;
    }
    if (!expect_plugin_ok(out, shut_down(plugin), "shutdown"))
        return;
    start = time_of_others();
    while ((left = process_threads(&asleep)) > 0 && slept < MOST_SLEEPS &&
           time_of_others() - start < most_seconds) {
        slept = asleep == left ? slept + 1 : 0;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    expect(out, left == 0,
           "it declares CORE_PLUGIN_UNLOAD_SAFE, and after shutdown %u of its "
           "threads still %s",
           left, slept < MOST_SLEEPS ? "run" : "wait");
}

static void device_reopens(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (!plugin)
        return;
    if (plugin->stream)
        plugin->streams.destroy(plugin->device, plugin->stream);
    plugin->stream = NULL;
    for (int i = 0; i < 20; i++) {
        plugin->backend.device_close(plugin->backend.user, plugin->device);
        plugin->device = NULL;
        if (!expect_plugin_ok(out,
                              plugin->backend.device_open(plugin->backend.user,
                                                          plugin->index,
                                                          &plugin->device),
                              "reopening the device"))
            return;
    }
}

bool suite_add_abi(suite *self)
{
    static const listed tests[] = {
        {"core/file/exports-one-symbol", exports_one_symbol, false},
        {"core/file/imports-no-libcore-symbol", imports_no_libcore_symbol,
         false},
        {"core/entry/rejects-other-abi-major", rejects_other_major, false},
        {"core/entry/selects-an-offered-minor", selects_offered_minor, false},
        {"core/entry/respects-reply-size", respects_reply_size, false},
        {"core/entry/agrees-with-the-note", agrees_with_note, false},
        {"core/init/propagates-failure", init_propagates_failure, false},
        {"core/device/tables-are-complete", tables_are_complete, false},
        {"core/device/properties-are-consistent", properties_are_consistent,
         false},
        {"core/device/information-is-utf8", information_is_utf8, true},
        {"core/device/enumerate-is-stable", enumerate_is_stable, false},
        {"core/device/unknown-interface-is-absent", unknown_interface_is_absent,
         false},
        {"core/device/status-is-ok", status_is_ok, false},
        {"core/device/threads-block-signals", threads_block_signals, false},
        {"core/shutdown/succeeds", shutdown_succeeds, false},
        {"core/shutdown/ends-threads", shutdown_ends_threads, true},
        {"core/reopen/device-reopens", device_reopens, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
