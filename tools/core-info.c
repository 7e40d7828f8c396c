/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core-info: lists plugins (loaded or not, and why), their devices and kernels,
 * and the settings. */

#define _GNU_SOURCE /* environ */

#include "base/json.h"
#include "info/comm.h"
#include "info/compiled.h"
#include "info/crash_report.h"
#include "info/printable.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/plugins.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

typedef struct options {
    bool json;
    bool plugins;
    bool devices;
    bool kernels;
    bool settings;
    bool compile;
    bool comm;
} options;

typedef struct count {
    core_string name;
    uint32_t kernels;
} count;

static const char usage[] =
    "usage: core-info [--json] [--plugins] [--devices] [--kernels] "
    "[--settings] [--compile]\n"
    "                 [--comm]\n"
    "       core-info --seal FILE.so...\n"
    "\n"
    "  --plugins   every plugin that was found, and why one was not loaded\n"
    "  --devices   devices, their memory and features\n"
    "  --kernels   the number of kernels per operator and backend\n"
    "  --settings  every LIBCORE_ setting, its value and accepted values\n"
    "  --compile   compiled functions: a trial, settings and counters\n"
    "  --comm      engines of collectives among processes, and the launcher\n"
    "  --json      print JSON; without another flag, everything\n"
    "  --seal      store a checksum of the loaded contents in each plugin "
    "file, so\n"
    "              that a damaged file is refused from then on; the last step "
    "of\n"
    "              building a plugin; runs none of its code\n"
    "  --help, --version\n"
    "\n"
    "Without flags: plugins and devices, and settings of the environment that "
    "have\n"
    "no effect.  The exit status is 0 also if a plugin was not loaded or there "
    "is no\n"
    "default device; 1: an error; 2: wrong arguments.\n";

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"found", "loaded", "refused", "failed",
                                        "unloaded"};

    return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

static const char *from_name(uint32_t from)
{
    static const char *const names[] = {"program", "environment",
                                        "installation", "manifest"};

    return from < sizeof names / sizeof *names ? names[from] : "unknown";
}

static const char *seal_name(uint32_t seal)
{
    static const char *const names[] = {"none", "unsealed", "sealed"};

    return seal < sizeof names / sizeof *names ? names[seal] : "unknown";
}

static core_plugin_information plugin_information(core_plugin *plugin)
{
    core_plugin_information information = {.struct_size = sizeof information};

    core_plugin_describe(plugin, &information);
    return information;
}

/* ------------------------------------------------------------- kernels -- */

static int compare_counts(const void *a, const void *b)
{
    const count *one = a, *two = b;
    size_t size =
        one->name.size < two->name.size ? one->name.size : two->name.size;
    int order = memcmp(one->name.data, two->name.data, size);

    return order ? order
                 : (one->name.size > two->name.size) -
                       (one->name.size < two->name.size);
}

/* Counts kernels by operator, sorted by name; the caller frees.  NULL: none, or
 * no memory. */
static count *count_kernels(const core_backend_information *backend,
                            size_t *out_size)
{
    count *counts = calloc(backend->kernel_count + 1, sizeof *counts);
    const core_kernel *kernel;
    size_t all = 0, used = 0;

    *out_size = 0;
    if (!counts)
        return NULL;
    while (all < backend->kernel_count &&
           core_kernel_at(backend->device_type, (uint32_t)all, &kernel) ==
               CORE_OK)
        counts[all++] = (count){kernel->name, 1};
    qsort(counts, all, sizeof *counts, compare_counts);
    for (size_t i = 0; i < all; i++)
        if (used > 0 && compare_counts(&counts[used - 1], &counts[i]) == 0)
            counts[used - 1].kernels++;
        else
            counts[used++] = counts[i];
    *out_size = used;
    return counts;
}

/* ---------------------------------------------------------------- text -- */

/* The negotiated ABI, or else the range in the plugin's note. */
static const char *abi_text(const core_plugin_information *p, char *text,
                            size_t size)
{
    if (p->state == CORE_PLUGIN_LOADED)
        snprintf(text, size, "%u.%u", p->abi_major, p->abi_minor);
    else if (p->abi_minor_max > 0)
        snprintf(text, size, "%u.%u-%u.%u", p->abi_major, p->abi_minor_min,
                 p->abi_major, p->abi_minor_max);
    else
        snprintf(text, size, "-");
    return text;
}

enum { COLUMNS = 6 };

/* The columns of a plugin's line before its file. */
static void plugin_columns(const core_plugin_information *p, char *abi,
                           size_t size, const char *columns[COLUMNS])
{
    columns[0] = *p->name ? printable_text(p->name) : "-";
    columns[1] = state_name(p->state);
    columns[2] = abi_text(p, abi, size);
    columns[3] = *p->version ? printable_text(p->version) : "-";
    columns[4] = *p->device_types ? printable_text(p->device_types) : "-";
    columns[5] = p->abi_minor_max > 0 ? seal_name(p->seal) : "-";
}

static void print_columns(const char *const columns[COLUMNS],
                          const int widths[COLUMNS], const char *last)
{
    for (int k = 0; k < COLUMNS; k++)
        printf("  %-*s", widths[k], columns[k]);
    printf("  %s\n", last);
}

static void print_plugins(void)
{
    static const char *const titles[COLUMNS] = {"name",    "state",   "ABI",
                                                "version", "devices", "seal"};
    uint32_t plugins = core_plugin_count();
    const char *columns[COLUMNS];
    int widths[COLUMNS];
    char abi[64];

    printf("plugins\n");
    if (plugins == 0) {
        printf("  none found in the folder of installed plugins, %s; "
               "LIBCORE_PLUGIN_PATH lists more\n",
               LIBCORE_PLUGIN_DIR);
        return;
    }
    for (int k = 0; k < COLUMNS; k++)
        widths[k] = (int)strlen(titles[k]);
    for (uint32_t i = 0; i < plugins; i++) {
        core_plugin_information p = plugin_information(core_plugin_at(i));

        plugin_columns(&p, abi, sizeof abi, columns);
        for (int k = 0; k < COLUMNS; k++)
            if ((int)strlen(columns[k]) > widths[k])
                widths[k] = (int)strlen(columns[k]);
    }
    print_columns(titles, widths, "file");
    for (uint32_t i = 0; i < plugins; i++) {
        core_plugin_information p = plugin_information(core_plugin_at(i));

        plugin_columns(&p, abi, sizeof abi, columns);
        print_columns(columns, widths, printable_text(p.path));
        if (*p.reason)
            printf("  %-*s  %s\n", widths[0], "", printable_text(p.reason));
    }
}

/* "1.5 GiB", "-" for 0. */
static const char *bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    if (bytes == 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.*f %s", unit == 0 ? 0 : 1, value, units[unit]);
    return text;
}

static void print_field(const char *name, core_string text)
{
    if (text.size > 0 && text.data)
        printf("  %-12s %s: %s\n", "", name, printable(text));
}

/* Names of the memory kinds, in the order of their bits. */
static const char *const kind_names[] = {"device", "unified", "host-visible",
                                         "pinned", "virtual", "peer"};
enum { KINDS = sizeof kind_names / sizeof *kind_names };

static void print_kinds(core_device *device)
{
    char text[128] = "";
    size_t size = 0;
    uint32_t kinds;

    if (core_device_memory_kinds(device, &kinds) != CORE_OK || kinds == 0)
        return;
    for (uint32_t i = 0; i < KINDS; i++)
        if (kinds & 1u << i)
            size += (size_t)snprintf(text + size, sizeof text - size, "%s%s",
                                     size ? "," : "", kind_names[i]);
    printf("  %-12s memory: %s\n", "", text);
}

static void print_device(const core_backend_information *backend,
                         uint32_t index)
{
    core_device_information information = {.struct_size = sizeof information};
    core_device_properties properties = {.struct_size = sizeof properties};
    uint64_t left = 0, total = 0;
    core_device *device;
    char name[64], a[32], b[32];

    snprintf(name, sizeof name, "%s:%u", backend->device_type, index);
    if (core_device_find(name, &device) != CORE_OK) {
        printf("  %-12s cannot be opened: %s\n", name,
               printable_text(core_error_message()));
        return;
    }
    core_device_get_information(device, &information);
    core_device_get_properties(device, &properties);
    core_device_memory(device, &left, &total);
    if (total == 0)
        total = properties.total_memory;
    printf("  %-12s %-11s %-11s %5u  %-11s %s\n", core_device_name(device),
           bytes_text(total, a, sizeof a), bytes_text(left, b, sizeof b),
           properties.compute_units,
           backend->synchronous ? "synchronous" : "streams",
           printable(information.name));
    print_field("id", information.stable_id);
    print_field("driver", information.driver);
    print_field("runtime", information.runtime);
    print_field("firmware", information.firmware);
    print_field("features", information.features);
    print_kinds(device);
}

/* The device of programs that name none. */
static void print_default(void)
{
    core_device *device;

    if (core_device_default(&device) == CORE_OK)
        printf("  default device: \"%s\"\n", core_device_name(device));
    else
        printf("  default device: none: %s\n",
               printable_text(core_error_message()));
}

static void print_devices(void)
{
    core_backend_information backend = {.struct_size = sizeof backend};

    printf("devices\n");
    printf("  %-12s %-11s %-11s %5s  %-11s %s\n", "name", "memory", "free",
           "units", "execution", "description");
    for (uint32_t i = 0; core_backend_describe(i, &backend) == CORE_OK; i++) {
        if (backend.device_count == 0)
            printf("  %-12s none: %s\n", backend.device_type,
                   *backend.reason ? printable_text(backend.reason)
                                   : "the plugin gave no reason");
        for (uint32_t k = 0; k < backend.device_count; k++)
            print_device(&backend, k);
        printf("  %-12s %u kernels for %u operators\n", "",
               backend.kernel_count, backend.operator_count);
        if (*backend.unmatched_kernels)
            printf("  %-12s never called, because no operator uses kernels of "
                   "these names: %s\n",
                   "", printable_text(backend.unmatched_kernels));
    }
    print_default();
}

static void print_kernels(void)
{
    core_backend_information backend = {.struct_size = sizeof backend};

    for (uint32_t i = 0; core_backend_describe(i, &backend) == CORE_OK; i++) {
        size_t size;
        count *counts = count_kernels(&backend, &size);

        printf("%skernels of %s\n", i ? "\n" : "", backend.device_type);
        for (size_t k = 0; k < size; k++)
            printf("  %4u  %.*s\n", counts[k].kernels, (int)counts[k].name.size,
                   counts[k].name.data);
        free(counts);
    }
}

static const char *setting_type(uint32_t type)
{
    static const char *const names[] = {
        [CORE_SETTING_TEXT] = "text",      [CORE_SETTING_INTEGER] = "integer",
        [CORE_SETTING_BOOLEAN] = "switch", [CORE_SETTING_CHOICE] = "choice",
        [CORE_SETTING_LIST] = "list",      [CORE_SETTING_PATHS] = "paths"};

    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}

static void print_settings(void)
{
    core_setting_information s = {.struct_size = sizeof s};

    printf("settings\n");
    for (uint32_t i = 0; core_setting_describe(i, &s) == CORE_OK; i++) {
        if (s.value)
            printf("  %s=%s (from the %s)\n", s.name, printable_text(s.value),
                   s.source == CORE_SETTING_SOURCE_PROGRAM ? "program"
                                                           : "environment");
        else
            printf("  %s is not set: %s\n", s.name, s.default_text);
        printf("      %s\n"
               "      Accepts: %s.\n"
               "      Type: %s; used by: %s.\n",
               s.help, s.allowed, setting_type(s.type), s.used_by);
        if (s.status != CORE_OK)
            printf("      Not accepted: %s\n",
                   printable_text(core_error_message()));
    }
}

/* Mostly misspelt settings. */
static void print_unknown_settings(void)
{
    for (char **entry = environ; *entry; entry++) {
        core_setting_information s = {.struct_size = sizeof s};
        size_t size = strcspn(*entry, "=");
        bool known = strncmp(*entry, "LIBCORE_", 8) != 0;

        for (uint32_t i = 0; !known && core_setting_describe(i, &s) == CORE_OK;
             i++)
            known = strlen(s.name) == size && !strncmp(s.name, *entry, size);
        if (!known)
            printf("  %s\n"
                   "      Not a setting of libcore; a plugin may read it.\n",
                   printable_text(*entry));
    }
}

/* Warnings about settings: variables that are misspelt or have no effect. */
static char warnings[2048];

static void collect_warning(void *context, uint32_t level,
                            const char *component, const char *text)
{
    size_t size = strlen(warnings);

    (void)context;
    (void)level;
    if (strcmp(component, "settings") == 0)
        snprintf(warnings + size, sizeof warnings - size, "  %s\n", text);
}

static void print_text(const options *wanted)
{
    bool more = false;

    if (!wanted->kernels && !wanted->settings && !wanted->compile &&
        !wanted->comm)
        printf("libcore %s, plugin ABI %d.%d\n\n", core_version(),
               CORE_ABI_MAJOR, CORE_ABI_MINOR);
    if (wanted->plugins) {
        print_plugins();
        more = true;
    }
    if (wanted->devices) {
        fputs(more ? "\n" : "", stdout);
        print_devices();
        more = true;
    }
    if (wanted->kernels) {
        fputs(more ? "\n" : "", stdout);
        print_kernels();
        more = true;
    }
    if (wanted->settings) {
        fputs(more ? "\n" : "", stdout);
        print_settings();
        print_unknown_settings();
        more = true;
    } else if (*warnings) {
        printf("\nsettings\n%s", warnings);
    }
    if (wanted->compile) {
        fputs(more ? "\n" : "", stdout);
        print_compiled();
        more = true;
    }
    if (wanted->comm) {
        fputs(more ? "\n" : "", stdout);
        print_comm();
    }
}

/* ---------------------------------------------------------------- JSON -- */

static void write_plugins(core__json *json)
{
    uint32_t plugins = core_plugin_count();

    core__json_array(json, "plugins");
    for (uint32_t i = 0; i < plugins; i++) {
        core_plugin_information p = plugin_information(core_plugin_at(i));

        core__json_object(json, NULL);
        core__json_text(json, "name", p.name);
        core__json_text(json, "state", state_name(p.state));
        core__json_text(json, "status", core_status_name(p.status));
        core__json_text(json, "reason", p.reason);
        core__json_text(json, "path", p.path);
        core__json_text(json, "from", from_name(p.source));
        core__json_text(json, "vendor", p.vendor);
        core__json_text(json, "version", p.version);
        core__json_text(json, "license", p.license);
        core__json_text(json, "device_types", p.device_types);
        core__json_text(json, "minimum_driver", p.minimum_driver);
        core__json_text(json, "seal", seal_name(p.seal));
        json->flat = true;
        core__json_object(json, "abi");
        core__json_unsigned(json, "major", p.abi_major);
        core__json_unsigned(json, "minor_min", p.abi_minor_min);
        core__json_unsigned(json, "minor_max", p.abi_minor_max);
        core__json_unsigned(json, "minor", p.abi_minor);
        core__json_end(json);
        core__json_end(json);
    }
    core__json_end(json);
}

static void write_string(core__json *json, const char *name, core_string text)
{
    core__json_text_size(json, name, text.data ? text.data : "",
                         text.data ? text.size : 0);
}

static void write_kinds(core__json *json, core_device *device)
{
    uint32_t kinds = 0;

    core_device_memory_kinds(device, &kinds);
    json->flat = true;
    core__json_array(json, "memory_kinds");
    for (uint32_t i = 0; i < KINDS; i++)
        if (kinds & 1u << i)
            core__json_text(json, NULL, kind_names[i]);
    core__json_end(json);
}

static void write_device(core__json *json,
                         const core_backend_information *backend,
                         uint32_t index)
{
    core_device_information information = {.struct_size = sizeof information};
    core_device_properties properties = {.struct_size = sizeof properties};
    uint64_t left = 0, total = 0;
    core_device *device;
    char name[64];

    snprintf(name, sizeof name, "%s:%u", backend->device_type, index);
    core__json_object(json, NULL);
    if (core_device_find(name, &device) != CORE_OK) {
        core__json_text(json, "name", name);
        core__json_text(json, "error", core_error_message());
        core__json_end(json);
        return;
    }
    core_device_get_information(device, &information);
    core_device_get_properties(device, &properties);
    core_device_memory(device, &left, &total);
    core__json_text(json, "name", core_device_name(device));
    write_string(json, "description", information.name);
    write_string(json, "stable_id", information.stable_id);
    write_string(json, "driver", information.driver);
    write_string(json, "runtime", information.runtime);
    write_string(json, "firmware", information.firmware);
    write_string(json, "features", information.features);
    write_kinds(json, device);
    core__json_unsigned(json, "memory_total",
                        total ? total : properties.total_memory);
    core__json_unsigned(json, "memory_free", left);
    core__json_unsigned(json, "base_alignment", properties.base_alignment);
    core__json_unsigned(json, "compute_units", properties.compute_units);
    core__json_boolean(json, "flat", properties.flags & CORE_DEVICE_FLAT);
    core__json_boolean(json, "host_access",
                       properties.flags & CORE_DEVICE_HOST_ACCESS);
    core__json_boolean(json, "f64", properties.flags & CORE_DEVICE_HAS_F64);
    core__json_end(json);
}

static void write_kernels(core__json *json,
                          const core_backend_information *backend)
{
    size_t size;
    count *counts = count_kernels(backend, &size);

    core__json_object(json, "kernels_by_operator");
    for (size_t k = 0; k < size; k++) {
        char name[128];

        snprintf(name, sizeof name, "%.*s", (int)counts[k].name.size,
                 counts[k].name.data);
        core__json_unsigned(json, name, counts[k].kernels);
    }
    core__json_end(json);
    free(counts);
}

static void write_backends(core__json *json, const options *wanted)
{
    core_backend_information backend = {.struct_size = sizeof backend};

    core__json_array(json, "backends");
    for (uint32_t i = 0; core_backend_describe(i, &backend) == CORE_OK; i++) {
        core__json_object(json, NULL);
        core__json_text(json, "device_type", backend.device_type);
        core__json_text(json, "plugin",
                        backend.plugin ? plugin_information(backend.plugin).name
                                       : NULL);
        core__json_boolean(json, "synchronous", backend.synchronous);
        core__json_text(json, "reason", backend.reason);
        core__json_unsigned(json, "kernels", backend.kernel_count);
        core__json_unsigned(json, "operators", backend.operator_count);
        core__json_text(json, "unmatched_kernels", backend.unmatched_kernels);
        if (wanted->devices) {
            core__json_array(json, "devices");
            for (uint32_t k = 0; k < backend.device_count; k++)
                write_device(json, &backend, k);
            core__json_end(json);
        }
        if (wanted->kernels)
            write_kernels(json, &backend);
        core__json_end(json);
    }
    core__json_end(json);
}

static void write_settings(core__json *json)
{
    core_setting_information s = {.struct_size = sizeof s};

    core__json_array(json, "settings");
    for (uint32_t i = 0; core_setting_describe(i, &s) == CORE_OK; i++) {
        core__json_object(json, NULL);
        core__json_text(json, "name", s.name);
        core__json_text(json, "type", setting_type(s.type));
        core__json_text(json, "value", s.value);
        core__json_text(json, "default", s.default_text);
        core__json_text(json, "allowed", s.allowed);
        core__json_text(json, "help", s.help);
        core__json_text(json, "used_by", s.used_by);
        if (s.status != CORE_OK)
            core__json_text(json, "error", core_error_message());
        core__json_end(json);
    }
    core__json_end(json);
}

static bool write_json(const options *wanted)
{
    core__json json;
    core_device *device;

    core__json_begin(&json, core__json_to_file, stdout);
    core__json_object(&json, NULL);
    core__json_text(&json, "libcore", core_version());
    json.flat = true;
    core__json_object(&json, "abi");
    core__json_integer(&json, "major", CORE_ABI_MAJOR);
    core__json_integer(&json, "minor", CORE_ABI_MINOR);
    core__json_end(&json);
    if (wanted->plugins)
        write_plugins(&json);
    if (wanted->devices || wanted->kernels)
        write_backends(&json, wanted);
    if (wanted->devices)
        core__json_text(&json, "default_device",
                        core_device_default(&device) == CORE_OK
                            ? core_device_name(device)
                            : NULL);
    if (wanted->settings)
        write_settings(&json);
    if (wanted->compile)
        write_compiled(&json);
    if (wanted->comm)
        write_comm(&json);
    core__json_end(&json);
    return core__json_finish(&json);
}

/* ---------------------------------------------------------------- main -- */

/* The exit status after all output; lost output is a failure. */
static int finish(bool good)
{
    if (good && !ferror(stdout) && fflush(stdout) == 0)
        return EXIT_SUCCESS;
    perror("core-info: writing standard output failed");
    return EXIT_FAILURE;
}

/* Returns -1 to continue, or else the exit status. */
static int parse(int argc, char **argv, options *wanted)
{
    static const struct {
        const char *flag;
        size_t offset;
    } flags[] = {{"--json", offsetof(options, json)},
                 {"--plugins", offsetof(options, plugins)},
                 {"--devices", offsetof(options, devices)},
                 {"--kernels", offsetof(options, kernels)},
                 {"--settings", offsetof(options, settings)},
                 {"--compile", offsetof(options, compile)},
                 {"--comm", offsetof(options, comm)}};
    const size_t nflags = sizeof flags / sizeof *flags;

    for (int i = 1; i < argc; i++) {
        size_t k = 0;

        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return finish(true);
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("core-info (libcore) %s\n", core_version());
            return finish(true);
        }
        while (k < nflags && strcmp(argv[i], flags[k].flag) != 0)
            k++;
        if (k == nflags) {
            fprintf(stderr,
                    "core-info: unknown argument %s\n"
                    "%s",
                    argv[i], usage);
            return EXIT_USAGE;
        }
        *(bool *)((char *)wanted + flags[k].offset) = true;
    }
    if (!wanted->plugins && !wanted->devices && !wanted->kernels &&
        !wanted->settings && !wanted->compile && !wanted->comm) {
        wanted->plugins = wanted->devices = true;
        wanted->kernels = wanted->settings = wanted->compile = wanted->json;
        wanted->comm = wanted->json;
    }
    return -1;
}

/* Tries all files, even if one fails. */
static int seal(int count, char **files)
{
    int status = EXIT_SUCCESS;

    if (count == 0) {
        fprintf(stderr,
                "core-info: --seal needs at least one file\n"
                "%s",
                usage);
        return EXIT_USAGE;
    }
    for (int i = 0; i < count; i++)
        if (core_plugin_seal_file(files[i]) != CORE_OK) {
            fprintf(stderr, "core-info: %s\n",
                    printable_text(core_error_message()));
            status = EXIT_FAILURE;
        }
    return status;
}

int main(int argc, char **argv)
{
    options wanted = {0};
    bool good = true;
    int status;

    if (argc > 1 && strcmp(argv[1], "--seal") == 0)
        return seal(argc - 2, argv + 2);
    status = parse(argc, argv, &wanted);
    if (status >= 0)
        return status;
    /* With LIBCORE_LOG they are written to the standard error. */
    if (!getenv("LIBCORE_LOG"))
        core_log_set_sink(collect_warning, NULL, CORE_LOG_WARNING);
    crash_report_begin();
    status = core_plugins_load_all();
    crash_report_end();
    if (status != CORE_OK) {
        fprintf(stderr, "core-info: %s\n",
                printable_text(core_error_message()));
        return EXIT_FAILURE;
    }
    if (wanted.json)
        good = write_json(&wanted);
    else
        print_text(&wanted);
    return finish(good);
}
