/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The list of plugins, in the order of their discovery, and the state of each.
 * open.c opens one. */

#define _GNU_SOURCE

#include "base/log.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/settings.h"
#include "device/interned_text.h"
#include "loader/loader.h"
#include "loader/plugin_note.h"
#include "loader/search.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REFUSED_SHOWN = 3 }; /* in the error of a missing type */

static core_plugin *first, **last = &first;
static bool scanned;

void core__loader_lock(void)
{
    core__device_lock();
}

void core__loader_unlock(void)
{
    core__device_unlock();
}

/* --------------------------------------------------------------- texts -- */

const char *core__loader_intern(const char *text)
{
    const char *interned = core__intern_text(text, strlen(text));

    return interned ? interned : "";
}

core_status core__plugin_set_state(core_plugin *plugin, uint32_t state,
                                   core_status status)
{
    core_plugin_information *information = &plugin->information;

    information->state = state;
    information->status = status;
    information->reason =
        status == CORE_OK ? "" : core__loader_intern(core_error_message());
    core__log(status == CORE_OK ? CORE_LOG_DEBUG : CORE_LOG_WARNING, "loader",
              "%s: %s%s%s", information->path,
              state == CORE_PLUGIN_FOUND     ? "found"
              : state == CORE_PLUGIN_LOADED  ? "loaded"
              : state == CORE_PLUGIN_REFUSED ? "refused"
              : state == CORE_PLUGIN_FAILED  ? "failed"
                                             : "unloaded",
              status == CORE_OK ? "" : ": ", information->reason);
    return status;
}

/* ---------------------------------------------------------------- list -- */

static core_plugin *plugin_of_path(const char *path)
{
    for (core_plugin *plugin = first; plugin; plugin = plugin->next)
        if (strcmp(plugin->information.path, path) == 0)
            return plugin;
    return NULL;
}

static core_plugin *plugin_of_file(const struct stat *status)
{
    for (core_plugin *plugin = first; plugin; plugin = plugin->next)
        if (plugin->file_inode == status->st_ino &&
            plugin->file_device == status->st_dev)
            return plugin;
    return NULL;
}

static bool in_use(const core_plugin *plugin)
{
    return plugin->information.state == CORE_PLUGIN_FOUND ||
           plugin->information.state == CORE_PLUGIN_LOADED;
}

static core_plugin *plugin_of_name(const char *name, const core_plugin *except)
{
    for (core_plugin *plugin = first; plugin; plugin = plugin->next)
        if (plugin != except && in_use(plugin) &&
            strcmp(plugin->note.name, name) == 0)
            return plugin;
    return NULL;
}

static core_plugin *plugin_add(const char *path, uint32_t from)
{
    core_plugin *plugin = core__alloc_zero(sizeof *plugin);
    core_plugin_information *information;

    if (!plugin) {
        core__error_memory(sizeof *plugin);
        return NULL;
    }
    information = &plugin->information;
    information->struct_size = sizeof *information;
    information->state = CORE_PLUGIN_REFUSED;
    information->source = from;
    information->path = core__loader_intern(path);
    if (!*information->path) {
        core__error_memory(strlen(path));
        core__free(plugin);
        return NULL;
    }
    information->name = information->vendor = information->version = "";
    information->license = information->device_types = "";
    information->minimum_driver = information->reason = "";
    *last = plugin;
    last = &plugin->next;
    return plugin;
}

/* ---------------------------------------------------------- candidates -- */

/* "core_example.so" becomes "example": a name for messages, if there is no
 * note. */
static void name_from_path(core_plugin_information *information)
{
    const char *name = strrchr(information->path, '/');
    char text[64];
    size_t size;

    name = name ? name + 1 : information->path;
    if (strncmp(name, "core_", 5) == 0)
        name += 5;
    size = strcspn(name, ".");
    if (size >= sizeof text)
        size = sizeof text - 1;
    memcpy(text, name, size);
    text[size] = '\0';
    information->name = core__loader_intern(text);
}

static void describe_note(core_plugin *plugin)
{
    core_plugin_information *information = &plugin->information;
    const core_plugin_note *note = &plugin->note;

    information->abi_major = note->abi_major;
    information->abi_minor_min = note->abi_minor_min;
    information->abi_minor_max = note->abi_minor_max;
    information->name = core__loader_intern(note->name);
    information->vendor = core__loader_intern(note->vendor);
    information->version = core__loader_intern(note->version);
    information->license = core__loader_intern(note->license);
    information->device_types = core__loader_intern(note->device_types);
    information->minimum_driver = core__loader_intern(note->minimum_driver);
}

static core_status check_policy(const char *name)
{
    const char *allow, *deny;
    size_t size = strlen(name);

    CORE_TRY(core__setting_text(CORE__SETTING_PLUGIN_ALLOW, &allow));
    CORE_TRY(core__setting_text(CORE__SETTING_PLUGIN_DENY, &deny));
    if (allow && !core__list_contains(allow, name, size))
        return core__error(CORE_ERROR_REFUSED,
                           "%s is not in LIBCORE_PLUGIN_ALLOW (%s)", name,
                           allow);
    if (core__list_contains(deny, name, size))
        return core__error(CORE_ERROR_REFUSED,
                           "%s is in LIBCORE_PLUGIN_DENY (%s)", name, deny);
    return CORE_OK;
}

/* Another plugin of this name: the program's choice takes precedence over
 * found ones; else the first one is kept. */
static core_status check_name(core_plugin *plugin)
{
    core_plugin *other = plugin_of_name(plugin->note.name, plugin);

    plugin->behind = NULL;
    if (!other)
        return CORE_OK;
    plugin->behind = other;
    if (plugin->information.source != CORE_PLUGIN_SOURCE_PROGRAM ||
        other->information.state == CORE_PLUGIN_LOADED ||
        other->information.source == CORE_PLUGIN_SOURCE_PROGRAM)
        return core__error(CORE_ERROR_REFUSED,
                           "another plugin named %s takes precedence: %s",
                           plugin->note.name, other->information.path);
    plugin->behind = NULL;
    other->behind = plugin;
    core__plugin_set_state(
        other, CORE_PLUGIN_REFUSED,
        core__error(CORE_ERROR_REFUSED,
                    "another plugin named %s takes precedence: %s, which the "
                    "program chose",
                    plugin->note.name, plugin->information.path));
    return CORE_OK;
}

core_status core__plugin_check_hash(const core_plugin *plugin, int file)
{
    char is[65];

    if (!plugin->sha256 || !*plugin->sha256)
        return CORE_OK;
    if (!core__sha256_descriptor(file, is))
        return core__error(CORE_ERROR_IO, "cannot be read");
    if (strcmp(is, plugin->sha256) != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "does not match its manifest: its SHA-256 is %s, "
                           "the manifest has %s",
                           is, plugin->sha256);
    return CORE_OK;
}

/* Reads the note and decides whether the plugin may be opened. */
static core_status check_candidate(core_plugin *plugin, int file)
{
    core__plugin_image image;
    core__integrity_seal seal;

    CORE_TRY(core__plugin_image_of_file(file, &image));
    CORE_TRY(core__plugin_check_hash(plugin, file));
    CORE_TRY(core__plugin_note_read_sealed(&image, &plugin->note, &seal));
    describe_note(plugin);
    plugin->information.seal = core__integrity_seal_state(&seal);
    CORE_TRY(core__plugin_note_check_abi(&plugin->note));
    CORE_TRY(check_policy(plugin->note.name));
    return check_name(plugin);
}

/* Finds or creates the list's entry of a file, and checks it unless it was
 * accepted before.  Fails if there is no memory, or if the entry is refused;
 * *out_plugin is then that entry. */
static core_status add_candidate(const char *path, uint32_t from,
                                 const char *sha256, core_plugin **out_plugin)
{
    core_plugin *plugin = NULL;
    core_status status;
    struct stat identity;
    char *real = NULL;
    int file;

    *out_plugin = NULL;
    status = core__search_open(path, &file, &real);
    if (status == CORE_OK && fstat(file, &identity) == 0)
        plugin = plugin_of_file(&identity);
    if (!plugin)
        plugin = plugin_of_path(real ? real : path);
    if (!plugin)
        plugin = plugin_add(real ? real : path, from);
    if (!plugin) {
        status = core__error_memory(sizeof *plugin);
        goto done;
    }
    *out_plugin = plugin;
    if (in_use(plugin) && status == CORE_OK &&
        (!*sha256 || plugin->information.state == CORE_PLUGIN_LOADED))
        goto done;
    if (*sha256)
        plugin->sha256 = core__loader_intern(sha256);
    if (plugin->information.state == CORE_PLUGIN_LOADED) {
        status = CORE_OK; /* its file was removed, but its code is loaded */
        goto done;
    }
    if (from == CORE_PLUGIN_SOURCE_PROGRAM)
        plugin->information.source = from;
    memset(&plugin->note, 0, sizeof plugin->note);
    if (status == CORE_OK) {
        plugin->file_device = identity.st_dev;
        plugin->file_inode = identity.st_ino;
        status = check_candidate(plugin, file);
    }
    if (!*plugin->information.name)
        name_from_path(&plugin->information);
    core__plugin_set_state(
        plugin, status == CORE_OK ? CORE_PLUGIN_FOUND : CORE_PLUGIN_REFUSED,
        status);
done:
    if (file >= 0)
        close(file);
    free(real);
    return status;
}

static void visit_candidate(void *context, uint32_t from, const char *path,
                            const char *sha256, core_status status)
{
    bool *no_memory = context;
    core_plugin *plugin;

    if (status == CORE_OK) {
        add_candidate(path, from, sha256, &plugin);
    } else {
        plugin = plugin_of_path(path);
        if (!plugin)
            plugin = plugin_add(path, from);
        if (plugin)
            core__plugin_set_state(plugin, CORE_PLUGIN_REFUSED, status);
    }
    if (!plugin)
        *no_memory = true;
}

static core_status scan(void)
{
    bool no_memory = false;
    core__error_record earlier;
    core_status status;

    core__settings_check_environment();
    core__error_save(&earlier);
    status = core__search(visit_candidate, &no_memory);
    if (status == CORE_OK && no_memory)
        status = core__error_memory(sizeof(core_plugin));
    scanned = status == CORE_OK;
    return core__error_restore_on_success(&earlier, status);
}

static core_status scan_once(void)
{
    return scanned ? CORE_OK : scan();
}

/* ------------------------------------------------------------- loading -- */

/* Tests whether a plugin can be opened.  The one of its name that took
 * precedence may have been refused since, because its file is damaged: it hides
 * no other then. */
static bool is_to_open(core_plugin *plugin)
{
    const core_plugin *other = plugin->behind;
    core_status status;

    if (plugin->information.state == CORE_PLUGIN_REFUSED && other &&
        other->information.state == CORE_PLUGIN_REFUSED && !other->behind) {
        status = check_name(plugin);
        core__plugin_set_state(
            plugin, status == CORE_OK ? CORE_PLUGIN_FOUND : CORE_PLUGIN_REFUSED,
            status);
    }
    return plugin->information.state == CORE_PLUGIN_FOUND && !plugin->opening;
}

static core_status open_all(void)
{
    core_status status = scan_once();

    for (core_plugin *p = first; status == CORE_OK && p; p = p->next)
        if (is_to_open(p))
            core__plugin_open(p);
    return status;
}

core_status core__loader_load_all(void)
{
    core__error_record earlier;
    core_status status;

    core__error_save(&earlier);
    core__loader_lock();
    status = open_all();
    core__loader_unlock();
    return core__error_restore_on_success(&earlier, status);
}

core_status core__loader_load_deviceless(void)
{
    core__error_record earlier;
    core_status status;

    core__error_save(&earlier);
    core__loader_lock();
    status = scan_once();
    for (core_plugin *p = first; p && status == CORE_OK; p = p->next)
        if (!*p->note.device_types && is_to_open(p))
            core__plugin_open(p);
    core__loader_unlock();
    return core__error_restore_on_success(&earlier, status);
}

/* How likely it is that a refused plugin was meant to serve the type: 2 if its
 * file is core_<type>.so, 1 if LIBCORE_PLUGIN_PATH names it or its folder. */
static int relevance(const core_plugin *plugin, const char *type, size_t size)
{
    const char *path = plugin->information.path;
    const char *file = strrchr(path, '/');

    file = file ? file + 1 : path;
    if (strncmp(file, "core_", 5) == 0 && strlen(file) == size + 8 &&
        strncmp(file + 5, type, size) == 0 &&
        strcmp(file + 5 + size, ".so") == 0)
        return 2;
    return plugin->information.source == CORE_PLUGIN_SOURCE_ENVIRONMENT;
}

/* Appends the refused plugins and why, the most relevant ones first. */
static void append_refused(const char *type, size_t size)
{
    int shown = 0, others = 0;

    for (int wanted = 2; wanted >= 0; wanted--)
        for (const core_plugin *p = first; p; p = p->next) {
            const core_plugin_information *information = &p->information;

            if (information->status == CORE_OK ||
                relevance(p, type, size) != wanted)
                continue;
            if (shown == REFUSED_SHOWN) {
                others++;
                continue;
            }
            core__error_suffix("%s%.300s: %.300s",
                               shown ? "; " : "; refused: ", information->path,
                               information->reason);
            shown++;
        }
    if (others)
        core__error_suffix("; and %d more", others);
}

/* Appends the types of the plugins that can be used. */
static void append_available(void)
{
    const char *before = "; available: ";

    for (const core_plugin *p = first; p; p = p->next)
        if (in_use(p) && *p->information.device_types) {
            core__error_suffix("%s%s", before, p->information.device_types);
            before = ", ";
        }
}

/* No plugin could be opened: reports the plugin that has the type and its
 * error; if there is none, the plugins that were refused and the types that
 * are available. */
static core_status report_missing(const char *type, size_t size)
{
    core_plugin *p;
    const char *paths;

    for (p = first; p; p = p->next)
        if (p->information.status != CORE_OK &&
            core__list_contains(p->note.device_types, type, size))
            return core__error(p->information.status,
                               "no device \"%.*s\": plugin %s (%s): %s",
                               (int)size, type, p->information.name,
                               p->information.path, p->information.reason);
    CORE_TRY(core__setting_text(CORE__SETTING_PLUGIN_PATH, &paths));
    core__error(
        CORE_ERROR_NOT_FOUND,
        "no device \"%.*s\": no plugin provides it (LIBCORE_PLUGIN_PATH is "
        "%.300s; plugins are installed in %s)",
        (int)size, type, paths ? paths : "not set", LIBCORE_PLUGIN_DIR);
    append_refused(type, size);
    append_available();
    core__error_suffix("; `core-info` lists the plugins");
    return CORE_ERROR_NOT_FOUND;
}

static core_status load_type(const char *type, size_t size)
{
    bool loaded = false;

    CORE_TRY(scan_once());
    for (core_plugin *p = first; p && !loaded; p = p->next) {
        if (!core__list_contains(p->note.device_types, type, size))
            continue;
        if (p->opening)
            return core__error(
                CORE_ERROR_BUSY,
                "the plugin of \"%.*s\" is currently being opened", (int)size,
                type);
        if (is_to_open(p))
            core__plugin_open(p);
        loaded = p->information.state == CORE_PLUGIN_LOADED;
    }
    return loaded ? CORE_OK : report_missing(type, size);
}

core_status core__loader_load_type(const char *device_type, size_t size)
{
    core__error_record earlier;
    core_status status;

    core__error_save(&earlier);
    core__loader_lock();
    status = load_type(device_type, size);
    core__loader_unlock();
    return core__error_restore_on_success(&earlier, status);
}

void core__loader_after_fork(void)
{
    core__error_record saved;

    if (!core__device_fork_interrupted())
        return;
    core__error_save(&saved);
    for (core_plugin *p = first; p; p = p->next) {
        if (!p->opening)
            continue;
        p->opening = false;
        core__plugin_set_state(
            p, CORE_PLUGIN_FAILED,
            core__error(CORE_ERROR_REFUSED,
                        "the process was forked while another thread was "
                        "opening it"));
    }
    core__loader_opening = NULL;
    core__error_restore(&saved);
}

/* -------------------------------------------------------------- public -- */

core_status core_plugins_scan(void)
{
    core_status status;

    core__loader_lock();
    status = scan();
    core__loader_unlock();
    return status;
}

core_status core_plugins_load_all(void)
{
    return core__loader_load_all();
}

core_status core_plugin_load(const char *path, core_plugin **out_plugin)
{
    core_plugin *plugin = NULL;
    core__error_record earlier;
    core_status status;

    if (out_plugin)
        *out_plugin = NULL;
    CORE__NOT_NULL(path);
    if (!*path)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_plugin_load: the path is empty");
    core__error_save(&earlier);
    core__loader_lock();
    status = add_candidate(path, CORE_PLUGIN_SOURCE_PROGRAM, "", &plugin);
    if (status == CORE_OK && plugin->opening)
        status = core__error(CORE_ERROR_BUSY, "is currently being opened");
    else if (status == CORE_OK &&
             plugin->information.state == CORE_PLUGIN_FOUND)
        status = core__plugin_open(plugin);
    if (status == CORE_OK && out_plugin)
        *out_plugin = core_plugin_retain(plugin);
    core__loader_unlock();
    if (status != CORE_OK)
        core__error_prefix("plugin %s", path);
    return core__error_restore_on_success(&earlier, status);
}

uint32_t core_plugin_count(void)
{
    uint32_t count = 0;

    core__loader_lock();
    for (core_plugin *plugin = first; plugin; plugin = plugin->next)
        count++;
    core__loader_unlock();
    return count;
}

core_plugin *core_plugin_at(uint32_t index)
{
    core_plugin *plugin;

    core__loader_lock();
    plugin = first;
    while (plugin && index--)
        plugin = plugin->next;
    core__loader_unlock();
    return plugin;
}

core_status core_plugin_describe(core_plugin *plugin,
                                 core_plugin_information *out_information)
{
    uint32_t size;

    CORE__NOT_NULL(plugin);
    CORE__NOT_NULL(out_information);
    CORE__CHECK_STRUCT_SIZE(out_information, core_plugin_information);
    size = out_information->struct_size;
    if (size > sizeof *out_information)
        size = sizeof *out_information;
    core__loader_lock();
    memcpy(out_information, &plugin->information, size);
    core__loader_unlock();
    if (size >= sizeof size)
        out_information->struct_size = size;
    return CORE_OK;
}

uint64_t core_plugin_violations(core_plugin *plugin, const char **out_first)
{
    const char *first;
    uint64_t count;

    if (!plugin) {
        if (out_first)
            *out_first = "";
        return 0;
    }
    core__loader_lock();
    count = core__interposers_violations(plugin->interposers, &first);
    first = plugin->first_violation ? plugin->first_violation
                                    : core__loader_intern(first);
    count += plugin->violations;
    core__loader_unlock();
    if (out_first)
        *out_first = first;
    return count;
}

core_plugin *core_plugin_retain(core_plugin *plugin)
{
    if (plugin)
        atomic_fetch_add_explicit(&plugin->references, 1, memory_order_relaxed);
    return plugin;
}

void core_plugin_release(core_plugin *plugin)
{
    /* The list owns it until the process ends, so nothing is freed. */
    if (plugin)
        atomic_fetch_sub_explicit(&plugin->references, 1, memory_order_release);
}

core_status core_plugin_unload(core_plugin *plugin, uint64_t deadline_ns)
{
    core__error_record earlier;
    core_status status;

    CORE__NOT_NULL(plugin);
    core__error_save(&earlier);
    core__loader_lock();
    if (plugin->information.state == CORE_PLUGIN_LOADED)
        status = core__plugin_close(plugin, deadline_ns);
    else
        status =
            core__error(CORE_ERROR_INVALID_ARGUMENT, "plugin %s is not loaded",
                        plugin->information.name);
    core__loader_unlock();
    return core__error_restore_on_success(&earlier, status);
}
