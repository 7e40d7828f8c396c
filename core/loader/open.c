/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Opens one plugin: loads its code into the process; any failure is undone and
 * recorded as the reason. */

#define _GNU_SOURCE

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "loader/elf.h"
#include "loader/loader.h"
#include "loader/plugin_note.h"
#include "loader/quarantine.h"
#include "loader/signal_window.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <langinfo.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

core_plugin *core__loader_opening;

/* --------------------------------------------------------- environment -- */

/* State of the process that a plugin's constructors and init could change
 * (docs/abi.md 16): a library built with -Ofast makes the processor flush
 * denormals when it is loaded. */
typedef struct process_state {
    fenv_t floating_point;
    locale_t thread_locale;
    locale_t locale; /* 0: no memory; then it is not restored */
    sigset_t signals;
    core__signal_window window; /* so that an init that hangs can be ended */
} process_state;

/* Threads that the plugin starts inherit the mask; signals belong to the
 * program. */
static void process_state_save(process_state *saved)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE,
                              SIGILL,  SIGTRAP, SIGABRT};
    sigset_t blocked;

    fegetenv(&saved->floating_point);
    saved->thread_locale = uselocale((locale_t)0);
    saved->locale = duplocale(LC_GLOBAL_LOCALE);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&blocked, own[i]);
    core__signal_window_open(&saved->window);
    pthread_sigmask(SIG_SETMASK, &blocked, &saved->signals);
}

/* Other threads may be using the process's locale: a copy is compared, and it
 * is set only if the plugin has changed it, which was just as unsafe. */
static void locale_restore(locale_t before)
{
    static const int categories[] = {
        LC_CTYPE,    LC_NUMERIC,   LC_TIME,        LC_COLLATE,
        LC_MONETARY, LC_MESSAGES,  LC_PAPER,       LC_NAME,
        LC_ADDRESS,  LC_TELEPHONE, LC_MEASUREMENT, LC_IDENTIFICATION};
    locale_t now = before ? duplocale(LC_GLOBAL_LOCALE) : (locale_t)0;

    for (size_t i = 0; now && i < sizeof categories / sizeof *categories; i++) {
        int category = categories[i];
        const char *name = nl_langinfo_l(NL_LOCALE_NAME(category), before);

        if (strcmp(name, nl_langinfo_l(NL_LOCALE_NAME(category), now)) != 0)
            setlocale(category, name);
    }
    if (now)
        freelocale(now);
    if (before)
        freelocale(before);
}

static void process_state_restore(process_state *saved)
{
    pthread_sigmask(SIG_SETMASK, &saved->signals, NULL);
    core__signal_window_close(&saved->window);
    uselocale(saved->thread_locale);
    locale_restore(saved->locale);
    fesetenv(&saved->floating_point);
}

/* ---------------------------------------------------------- the object -- */

/* All checks that only read the file, the seal first: damage is then reported
 * as such, whatever it would cause in other checks. */
static core_status check_image(core_plugin *plugin,
                               const core__plugin_image *image)
{
    core_plugin_note note;
    core__integrity_seal seal;

    CORE_TRY(core__plugin_note_read_sealed(image, &note, &seal));
    CORE_TRY(core__plugin_check_hash(plugin, image->file));
    if (memcmp(&note, &plugin->note, sizeof note) != 0)
        return core__error(CORE_ERROR_REFUSED,
                           "has changed since it was found");
    plugin->information.seal = core__integrity_seal_state(&seal);
    plugin->seal = seal.content;
    CORE_TRY(core__integrity_seal_check(image, &seal));
    CORE_TRY(core__elf_segments_check(image));
    return core__elf_symbols_check(image);
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Parts of two states of a file may each look valid. */
static core_status check_unchanged(int file, const struct stat *before)
{
    struct stat after;

    if (fstat(file, &after) != 0 || after.st_size != before->st_size ||
        !same_time(after.st_mtim, before->st_mtim))
        return core__error(CORE_ERROR_REFUSED,
                           "was written to while it was being checked");
    return CORE_OK;
}

/* The path may refer to another file than when it was found. */
static core_status check_file(core_plugin *plugin)
{
    struct stat before;
    core_status status;
    core__plugin_image image;
    /* NONBLOCK: a file replaced by a named pipe must not block. */
    int file =
        open(plugin->information.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (file < 0)
        return core__error(CORE_ERROR_IO, "cannot be opened: %s",
                           strerror(errno));
    status = core__plugin_image_of_file(file, &image);
    if (status == CORE_OK && fstat(file, &before) != 0)
        status =
            core__error(CORE_ERROR_IO, "cannot be read: %s", strerror(errno));
    if (status == CORE_OK)
        status = check_image(plugin, &image);
    if (status == CORE_OK)
        status = check_unchanged(file, &before);
    close(file);
    return status;
}

/* dlsym also finds symbols of dependencies, which are not this plugin's. */
static core_status find_entry(void *library,
                              core_plugin_entry_function *out_entry)
{
    struct link_map *own = NULL, *defining = NULL;
    void *symbol = dlsym(library, CORE_PLUGIN_ENTRY);
    Dl_info information;

    if (!symbol)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "does not define " CORE_PLUGIN_ENTRY);
    if (dlinfo(library, RTLD_DI_LINKMAP, &own) != 0 ||
        !dladdr1(symbol, &information, (void **)&defining, RTLD_DL_LINKMAP) ||
        own != defining)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "does not define " CORE_PLUGIN_ENTRY
                           " itself; a library that it depends on does");
    memcpy(out_entry, &symbol, sizeof symbol);
    return CORE_OK;
}

static core_status open_library(core_plugin *plugin,
                                core_plugin_entry_function *out_entry)
{
    const char *path = plugin->information.path;
    const char *text;

    plugin->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin->library)
        return find_entry(plugin->library, out_entry);
    text = dlerror();
    if (!text)
        text = "the dynamic loader gives no reason";
    else if (strncmp(text, path, strlen(path)) == 0 &&
             text[strlen(path)] == ':')
        text += strlen(path) + 1;
    return core__error(CORE_ERROR_IO, "cannot be loaded: %s",
                       text + strspn(text, " "));
}

/* --------------------------------------------------------- negotiation -- */

static core_status check_answer(const core_plugin_answer *answer)
{
    uint32_t newest = core__abi_minor_offered;

    if (answer->abi_minor < CORE__ABI_MINOR_MIN || answer->abi_minor > newest)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "chose plugin ABI %d.%u; %d.%d to %d.%u were "
                           "offered",
                           CORE_ABI_MAJOR, answer->abi_minor, CORE_ABI_MAJOR,
                           CORE__ABI_MINOR_MIN, CORE_ABI_MAJOR, newest);
    if (answer->host_minor_min > newest)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "needs a libcore with plugin ABI %d.%u; this one "
                           "has %d.%u",
                           CORE_ABI_MAJOR, answer->host_minor_min,
                           CORE_ABI_MAJOR, newest);
    if (answer->flags & ~(uint32_t)CORE_PLUGIN_UNLOAD_SAFE)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "replied with the flags 0x%x; this libcore accepts 0x%x",
            answer->flags, CORE_PLUGIN_UNLOAD_SAFE);
    if (!answer->init)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "replied without an init function");
    return CORE_OK;
}

static core_status negotiate(core_plugin *plugin,
                             core_plugin_entry_function entry)
{
    const char *version = core_version();
    core_plugin_offer offer = {
        .struct_size = sizeof offer,
        .abi_major = CORE_ABI_MAJOR,
        .abi_minor_min = CORE__ABI_MINOR_MIN,
        .abi_minor_max = core__abi_minor_offered,
        .runtime_version = {version, strlen(version)},
    };
    core_plugin_answer *answer = &plugin->answer;
    core_status status;

    memset(answer, 0, sizeof *answer);
    answer->struct_size = sizeof *answer;
    status = entry(&offer, answer);
    if (status != CORE_OK) {
        core_string refusal = answer->refusal;
        char text[256];

        /* The text may be in the plugin, which is about to be unloaded. */
        if (!refusal.data || refusal.size == 0)
            return core__error(status, "refuses this libcore without a reason");
        if (refusal.size >= sizeof text)
            refusal.size = sizeof text - 1;
        memcpy(text, refusal.data, refusal.size);
        text[refusal.size] = '\0';
        core__error(status, "refuses this libcore: %s", text);
        if (answer->host_minor_min > offer.abi_minor_max)
            core__error_suffix(
                "; it needs a libcore with plugin ABI %d.%u; this one has "
                "%d.%u",
                CORE_ABI_MAJOR, answer->host_minor_min, CORE_ABI_MAJOR,
                offer.abi_minor_max);
        return status;
    }
    return check_answer(answer);
}

/* ---------------------------------------------------------------- init -- */

static core_status initialise(core_plugin *plugin)
{
    core__error_record earlier;
    core_status status;

    CORE_TRY(core__interposers_begin(plugin->information.name,
                                     &plugin->interposers));
    core__host_fill(&plugin->host, plugin->answer.abi_minor);
    if (plugin->interposers)
        core__interposers_host(plugin->interposers, &plugin->host);
    plugin->registry.plugin = plugin;
    core__error_save(&earlier);
    status =
        plugin->answer.init(&plugin->host, &plugin->registry, &plugin->impl);
    if (status != CORE_OK && core_error_code() == CORE_OK)
        return core__error(status, "its init failed and gave no reason");
    if (status != CORE_OK) {
        core__error_prefix("its init failed");
        return status;
    }
    core__error_restore(&earlier);
    return CORE_OK;
}

static void interposers_end(core_plugin *plugin)
{
    const char *first_violation;
    uint64_t count =
        core__interposers_violations(plugin->interposers, &first_violation);

    plugin->violations += count;
    if (count > 0 && !plugin->first_violation)
        plugin->first_violation = core__loader_intern(first_violation);
    core__interposers_end(plugin->interposers);
    plugin->interposers = NULL;
}

/* Saves the error record, because undoing may fail as well. */
static void undo(core_plugin *plugin, bool init_ran)
{
    core__error_record saved;

    core__error_save(&saved);
    core__comm_engines_remove(plugin);
    core__registry_undo(&plugin->registry);
    interposers_end(plugin);
    /* A failed init may have started threads, and code that may still run must
     * not be unmapped. */
    if (plugin->library &&
        (!init_ran || plugin->answer.flags & CORE_PLUGIN_UNLOAD_SAFE))
        dlclose(plugin->library);
    plugin->library = NULL;
    plugin->impl = NULL;
    core__error_restore(&saved);
}

core_status core__plugin_open(core_plugin *plugin)
{
    core_plugin *outer = core__loader_opening;
    core_plugin_entry_function entry = NULL;
    bool init_ran = false;
    core_status status;
    process_state saved;

    memset(&plugin->answer, 0, sizeof plugin->answer);
    status = check_file(plugin);
    if (status == CORE_OK)
        status =
            core__quarantine(plugin->information.path,
                             plugin->information.seal == CORE_PLUGIN_SEALED);
    if (status != CORE_OK)
        return core__plugin_set_state(plugin, CORE_PLUGIN_REFUSED, status);
    process_state_save(&saved);
    core__loader_opening = plugin;
    plugin->opening = true;
    status = open_library(plugin, &entry);
    if (status == CORE_OK)
        status = negotiate(plugin, entry);
    if (status == CORE_OK) {
        init_ran = true;
        status = initialise(plugin);
    }
    if (status != CORE_OK)
        undo(plugin, init_ran);
    plugin->opening = false;
    core__loader_opening = outer;
    process_state_restore(&saved);
    if (status == CORE_OK)
        plugin->information.abi_minor = plugin->answer.abi_minor;
    return core__plugin_set_state(
        plugin, status == CORE_OK ? CORE_PLUGIN_LOADED : CORE_PLUGIN_FAILED,
        status);
}

/* --------------------------------------------------------------- close -- */

static core_status busy(const core_plugin *plugin, const char *device,
                        const char *what)
{
    return core__error(CORE_ERROR_BUSY,
                       "plugin %s is in use: %s has %s that were not released",
                       plugin->information.name, device, what);
}

/* Streams and events have a reference to the device; tensors' memory is
 * counted by backend. */
static core_status check_idle(const core_plugin *plugin)
{
    for (uint32_t i = 0; i < plugin->registry.nbackends; i++) {
        const core__backend *backend = plugin->registry.backends[i];
        core_device *device;

        for (uint32_t k = 0; core__backend_device_at(backend, k, &device); k++)
            if (device && core__device_is_in_use(device))
                return busy(plugin, device->name, "objects");
        if (core__thread_storages(backend->slot) > 0)
            return busy(plugin, backend->type, "tensors");
    }
    if (core__comm_engine_is_in_use(plugin))
        return busy(plugin, "its engine", "communicators");
    if (atomic_load(&plugin->recorded) > 0)
        return core__error(CORE_ERROR_BUSY,
                           "plugin %s is in use: graphs contain %llu calls "
                           "whose gradients are its functions",
                           plugin->information.name,
                           (unsigned long long)atomic_load(&plugin->recorded));
    return CORE_OK;
}

core_status core__plugin_close(core_plugin *plugin, uint64_t deadline_ns)
{
    const char *name = plugin->information.name;
    core_status status = CORE_OK;

    if (!(plugin->answer.flags & CORE_PLUGIN_UNLOAD_SAFE))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "plugin %s does not declare that it can be unloaded",
                           name);
    if (plugin->used_by_others)
        return core__error(
            CORE_ERROR_BUSY,
            "plugin %s is in use: another plugin has borrowed its kernels",
            name);
    CORE_TRY(check_idle(plugin));
    core__comm_engines_remove(plugin);
    core__registry_undo(&plugin->registry);
    interposers_end(plugin);
    if (plugin->answer.shutdown)
        status = plugin->answer.shutdown(plugin->impl, deadline_ns);
    plugin->impl = NULL;
    /* Its devices are closed, but code that may still run stays mapped. */
    if (status != CORE_OK) {
        core__error_prefix("plugin %s did not shut down", name);
        return core__plugin_set_state(plugin, CORE_PLUGIN_FAILED, status);
    }
    dlclose(plugin->library);
    plugin->library = NULL;
    return core__plugin_set_state(plugin, CORE_PLUGIN_UNLOADED, CORE_OK);
}
