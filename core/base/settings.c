/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* secure_getenv */

#include "base/settings.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/upcalls.h"

#include <libcore/kernel.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LIMIT = 64 };

typedef struct setting_row {
    const char *name;
    uint32_t type;
    const char *choices; /* CHOICE: names separated by commas */
    int64_t least, most; /* INTEGER */
    int64_t number;      /* the default: integer, boolean, or choice */
    const char *default_text;
    const char *allowed;
    const char *help;
    const char *used_by;
} setting_row;

#define SWITCH "0 or 1 (also off, on, no, yes, false, true)"

static const setting_row rows[CORE__SETTINGS] = {
    [CORE__SETTING_DEVICE] = {"LIBCORE_DEVICE", CORE_SETTING_TEXT, NULL, 0, 0,
                              0, "the program's preference, else cpu",
                              "a device, such as cpu or cuda:1",
                              "The device of programs that do not name one.",
                              "device"},
    [CORE__SETTING_PLUGIN_PATH] =
        {"LIBCORE_PLUGIN_PATH", CORE_SETTING_PATHS, NULL, 0, 0, 0,
         "only the installed plugins",
         "absolute paths of plugins or their folders, separated by colons",
         "Plugins and folders that are searched first.", "loader"},
    [CORE__SETTING_PLUGIN_ALLOW] = {"LIBCORE_PLUGIN_ALLOW", CORE_SETTING_LIST,
                                    NULL, 0, 0, 0, "all plugins",
                                    "names of plugins, separated by commas",
                                    "The only plugins that may be opened.",
                                    "loader"},
    [CORE__SETTING_PLUGIN_DENY] = {"LIBCORE_PLUGIN_DENY", CORE_SETTING_LIST,
                                   NULL, 0, 0, 0, "none",
                                   "names of plugins, separated by commas",
                                   "Plugins that may not be opened.", "loader"},
    [CORE__SETTING_INTERPOSERS] =
        {"LIBCORE_INTERPOSERS", CORE_SETTING_LIST, NULL, 0, 0, 0, "none",
         "any of validate, trace and fault, separated by commas",
         "The interposers between libcore and plugins that are opened from "
         "then on: validate checks every call, trace writes a line for it, "
         "fault fails the calls given by LIBCORE_FAULT.",
         "interpose"},
    [CORE__SETTING_FAULT] =
        {"LIBCORE_FAULT", CORE_SETTING_LIST, NULL, 0, 0, 0, "none",
         "KIND:N, or KIND:N+ for all from the Nth on, separated by commas; "
         "kinds are open, alloc, copy, fill, stream, event, synchronize, "
         "prepare, launch, function, interface and host",
         "Which calls of a plugin the interposer fault fails, counted by kind.",
         "interpose"},
    [CORE__SETTING_QUARANTINE] =
        {"LIBCORE_QUARANTINE", CORE_SETTING_TEXT, NULL, 0, 0, 0, "0",
         "0, 1, unsealed, or the absolute path of the helper program",
         "Opens a plugin in a separate process first, and refuses one that "
         "crashes or hangs there.  unsealed: only plugins whose file has no "
         "seal.",
         "loader"},
    [CORE__SETTING_THREADS] =
        {"LIBCORE_THREADS", CORE_SETTING_INTEGER, NULL, 1, 1024, 0,
         "the number of processors of the process", "1 to 1024",
         "The number of threads that compute on the host.", "backend cpu"},
    [CORE__SETTING_CPU_ISA] =
        {"LIBCORE_CPU_ISA", CORE_SETTING_TEXT, NULL, 0, 0, 0,
         "the best that the machine supports",
         "an instruction set that the cpu backend knows",
         "The most advanced instruction set that kernels on the host may use.",
         "backend cpu"},
    [CORE__SETTING_CPU_NATIVE] =
        {"LIBCORE_CPU_NATIVE", CORE_SETTING_BOOLEAN, NULL, 0, 1, 0, "1", SWITCH,
         "Kernels of loop programs contain native code where the machine and "
         "the system permit it; with 0 they are interpreted.",
         "backend cpu"},
    [CORE__SETTING_TRACE_DISPATCH] =
        {"LIBCORE_TRACE_DISPATCH", CORE_SETTING_BOOLEAN, NULL, 0, 1, 0, "0",
         SWITCH, "Logs each call as `operator: step -> step`.", "dispatch"},
    [CORE__SETTING_FALLBACK] =
        {"LIBCORE_FALLBACK", CORE_SETTING_LIST, NULL, 0, 0, 0, "error",
         "error, count, or names of operators separated by commas",
         "The operators that the cpu may compute for a device without a "
         "kernel: none, all, or those listed.  With count in the environment, "
         "the number of such calls per operator is logged when the process "
         "exits.",
         "dispatch"},
    [CORE__SETTING_DETERMINISTIC] =
        {"LIBCORE_DETERMINISTIC", CORE_SETTING_BOOLEAN, NULL, 0, 1, 0, "0",
         SWITCH,
         "Kernels produce the same bits in every run, or fail.  Applies to the "
         "thread that sets it and to threads that start later.",
         "dispatch"},
    [CORE__SETTING_ALLOW_TF32] =
        {"LIBCORE_ALLOW_TF32", CORE_SETTING_BOOLEAN, NULL, 0, 1, 0, "0", SWITCH,
         "Products of f32 may round their operands to TF32 where that is "
         "faster.  Applies to the thread that sets it and to threads that "
         "start later.",
         "dispatch"},
    [CORE__SETTING_BLOCKING] =
        {"LIBCORE_BLOCKING", CORE_SETTING_BOOLEAN, NULL, 0, 1, 0, "0", SWITCH,
         "The host waits after each call, so that an error names the operator "
         "that failed.",
         "device"},
    [CORE__SETTING_NAN_CHECK] =
        {"LIBCORE_NAN_CHECK", CORE_SETTING_BOOLEAN, NULL, 0, 1, 0, "0", SWITCH,
         "An operator that produces a NaN from operands without one fails, and "
         "the error names it.  The host waits for each call; captures are not "
         "checked.",
         "dispatch"},
    [CORE__SETTING_ALLOC] =
        {"LIBCORE_ALLOC", CORE_SETTING_LIST, NULL, 0, 0, 0,
         "expandable_segments:false,caching:true",
         "name:value, separated by commas: max_split_size_mb, "
         "roundup_power2_divisions, garbage_collection_threshold, "
         "expandable_segments, fraction, caching",
         "Options of the caching allocator of devices with streams.", "memory"},
    [CORE__SETTING_LOG] =
        {"LIBCORE_LOG", CORE_SETTING_CHOICE, "error,warning,info,debug", 0, 3,
         0, "nothing is printed", "error, warning, info or debug",
         "The least severe messages that are written to the standard error.",
         "log"},
    [CORE__SETTING_PLAN_CACHE] =
        {"LIBCORE_PLAN_CACHE", CORE_SETTING_INTEGER, NULL, 1, 1 << 20, 1024,
         "1024", "1 to 1048576",
         "The number of plans kept for devices that compile per shape.",
         "dispatch"},
    [CORE__SETTING_CACHE] = {"LIBCORE_CACHE", CORE_SETTING_TEXT, NULL, 0, 0, 0,
                             "libcore in XDG_CACHE_HOME, else in ~/.cache",
                             "an absolute path, or 0 for no folder",
                             "The folder where plugins keep compiled programs "
                             "and similar files between processes.",
                             "loader"},
    [CORE__SETTING_LAYOUT] =
        {"LIBCORE_LAYOUT", CORE_SETTING_CHOICE, "contiguous,device", 0, 1, 0,
         "contiguous", "contiguous or device",
         "The memory format of results of convolution when no operand is "
         "channels-last: contiguous, or the format that the device prefers.",
         "device"},
    [CORE__SETTING_COMPILE_CHECK] =
        {"LIBCORE_COMPILE_CHECK", CORE_SETTING_INTEGER, NULL, 0, INT32_MAX, 0,
         "0", "0 (never) to 2147483647",
         "Every Nth call of a compiled function records it again, and fails if "
         "the function does something else than before.",
         "compile"},
    [CORE__SETTING_COMPILE_CODEGEN] =
        {"LIBCORE_COMPILE_CODEGEN", CORE_SETTING_CHOICE, "auto,off,on", 0, 2, 0,
         "auto", "auto, off or on",
         "Whether compiled functions run groups of element-wise operators as "
         "one kernel, unless their options say so: auto where that is expected "
         "to be faster, on wherever it is possible.",
         "compile"},
    [CORE__SETTING_LOOP_ITERATIONS] =
        {"LIBCORE_LOOP_ITERATIONS", CORE_SETTING_INTEGER, NULL, 1, INT32_MAX,
         1000000, "1000000", "1 to 2147483647",
         "The gradient of a recorded core_while keeps the inputs of each "
         "iteration, and fails if there are more iterations than this.",
         "compile"},
    [CORE__SETTING_COMPILE_BACKGROUND] =
        {"LIBCORE_COMPILE_BACKGROUND", CORE_SETTING_BOOLEAN, NULL, 0, 1, 1, "1",
         SWITCH,
         "Whether kernels that take long to build are built in the background "
         "while operators run one by one.  With 0 the call waits for them.",
         "compile"},
};

/* Texts that were returned live until the process ends. */
typedef struct interned_text {
    struct interned_text *next;
    char text[];
} interned_text;

typedef struct setting_value {
    bool read; /* the environment was read */
    uint32_t source;
    const char *environment;
    const char *text; /* NULL: not set */
    int64_t number;
    core_status status;
} setting_value;

/* A plugin's own setting. */
typedef struct plugin_setting {
    struct plugin_setting *next;
    setting_value value;
    char name[NAME_LIMIT];
} plugin_setting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static setting_value values[CORE__SETTINGS];
static plugin_setting *plugin_settings;
static interned_text *interned_texts;
_Atomic uint32_t core__settings_changes = 1;

void core__settings_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

static core_status intern_text(const char *text, const char **out)
{
    size_t size = strlen(text) + 1;
    interned_text *entry;

    for (entry = interned_texts; entry; entry = entry->next)
        if (strcmp(entry->text, text) == 0)
            break;
    if (!entry) {
        entry = core__alloc(sizeof *entry + size);
        if (!entry)
            return core__error_memory(sizeof *entry + size);
        memcpy(entry->text, text, size);
        entry->next = interned_texts;
        interned_texts = entry;
    }
    *out = entry->text;
    return CORE_OK;
}

static bool item_equal(const char *item, size_t size, const char *text)
{
    return strlen(text) == size && memcmp(item, text, size) == 0;
}

bool core__list_next(const char **list, const char **item, size_t *size)
{
    const char *text = *list;

    while (*text == ',' || *text == ' ')
        text++;
    if (!*text)
        return false;
    *item = text;
    *size = strcspn(text, ",");
    *list = text + *size;
    while ((*item)[*size - 1] == ' ')
        --*size;
    return true;
}

bool core__list_contains(const char *text, const char *item, size_t size)
{
    const char *found;
    size_t length;

    while (text && core__list_next(&text, &found, &length))
        if (length == size && memcmp(found, item, size) == 0)
            return true;
    return false;
}

static bool parse_boolean(const char *text, int64_t *number)
{
    static const char *const boolean_names[][2] = {
        {"0", "1"}, {"off", "on"}, {"no", "yes"}, {"false", "true"}};

    for (size_t i = 0; i < sizeof boolean_names / sizeof *boolean_names; i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(text, boolean_names[i][k]) == 0) {
                *number = k;
                return true;
            }
    return false;
}

static bool parse_integer(const setting_row *row, const char *text,
                          int64_t *number)
{
    char *end;
    long long parsed;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    parsed = strtoll(text, &end, 10);
    if (errno || *end || parsed < row->least || parsed > row->most)
        return false;
    *number = parsed;
    return true;
}

static bool parse_choice(const setting_row *row, const char *text,
                         int64_t *number)
{
    const char *list = row->choices, *item;
    size_t size;

    for (int64_t i = 0; core__list_next(&list, &item, &size); i++)
        if (item_equal(item, size, text)) {
            *number = i;
            return true;
        }
    return false;
}

static core_status parse(const setting_row *row, const char *text,
                         int64_t *number)
{
    bool valid = true;

    *number = row->number;
    switch (row->type) {
    case CORE_SETTING_BOOLEAN:
        valid = parse_boolean(text, number);
        break;
    case CORE_SETTING_INTEGER:
        valid = parse_integer(row, text, number);
        break;
    case CORE_SETTING_CHOICE:
        valid = parse_choice(row, text, number);
        break;
    default:
        break;
    }
    if (valid)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s is \"%s\"; accepted: %s", row->name, text,
                       row->allowed);
}

/* Reads the environment unless that was done.  An empty variable counts as not
 * set.  Fails only if there is no memory. */
static core_status read_environment(const char *name, setting_value *value)
{
    const char *text;

    if (value->read)
        return CORE_OK;
    text = secure_getenv(name);
    if (text && *text)
        CORE_TRY(intern_text(text, &value->environment));
    value->read = true;
    if (value->environment && !value->text) {
        value->text = value->environment;
        value->source = CORE_SETTING_SOURCE_ENVIRONMENT;
    }
    return CORE_OK;
}

/* The value, with the lock held.  A parse error is set in the thread's record
 * and returned. */
static core_status look_up(core__setting_id setting, setting_value *out)
{
    setting_value *value = &values[setting];
    core_status status = read_environment(rows[setting].name, value);

    *out = *value;
    out->number = rows[setting].number;
    if (status == CORE_OK && value->text)
        status = parse(&rows[setting], value->text, &out->number);
    out->status = status;
    return status;
}

/* Runs the setting's check without the lock: the check may take other locks. */
static core_status check_text(core__setting_id setting, const char *text)
{
    core_status (*check)(const char *text) =
        core__base_upcalls.setting_checks[setting];

    return text && check ? check(text) : CORE_OK;
}

static core_status get(core__setting_id setting, setting_value *out)
{
    core_status status;

    pthread_mutex_lock(&lock);
    status = look_up(setting, out);
    pthread_mutex_unlock(&lock);
    return status;
}

core_status core__setting_text(core__setting_id setting, const char **out)
{
    setting_value value;
    core_status status = get(setting, &value);

    *out = status == CORE_OK ? value.text : NULL;
    return status;
}

core_status core__setting_integer(core__setting_id setting, int64_t *out)
{
    setting_value value;
    core_status status = get(setting, &value);

    *out = value.number;
    return status;
}

core_status core__setting_boolean(core__setting_id setting, bool *out)
{
    int64_t number;
    core_status status = core__setting_integer(setting, &number);

    *out = number != 0;
    return status;
}

core_status core__setting_choice(core__setting_id setting, uint32_t *out)
{
    int64_t number;
    core_status status = core__setting_integer(setting, &number);

    *out = (uint32_t)number;
    return status;
}

const char *core__setting_name(core__setting_id setting)
{
    return rows[setting].name;
}

/* ------------------------------------------------------------- by name -- */

static int row_of(const char *name, size_t size)
{
    for (int i = 0; i < CORE__SETTINGS; i++)
        if (item_equal(name, size, rows[i].name))
            return i;
    return -1;
}

bool core__setting_is_core(const char *name, size_t size)
{
    static const char prefix[] = "LIBCORE_COMPILE_";

    return size >= sizeof prefix - 1 &&
           memcmp(name, prefix, sizeof prefix - 1) == 0;
}

/* LIBCORE_ followed by capitals, digits and underscores. */
static bool name_good(const char *name, size_t size)
{
    if (size < 9 || size >= NAME_LIMIT || memcmp(name, "LIBCORE_", 8) != 0)
        return false;
    for (size_t i = 8; i < size; i++)
        if (!(name[i] >= 'A' && name[i] <= 'Z') && name[i] != '_' &&
            !(name[i] >= '0' && name[i] <= '9'))
            return false;
    return true;
}

/* Returns a plugin's setting and creates its entry at the first query. */
static core_status plugin_setting_of(const char *name, size_t size,
                                     setting_value **out)
{
    plugin_setting *entry;

    *out = NULL;
    for (entry = plugin_settings; entry; entry = entry->next)
        if (item_equal(name, size, entry->name))
            break;
    if (!entry) {
        entry = core__alloc_zero(sizeof *entry);
        if (!entry)
            return core__error_memory(sizeof *entry);
        memcpy(entry->name, name, size);
        entry->next = plugin_settings;
        plugin_settings = entry;
    }
    CORE_TRY(read_environment(entry->name, &entry->value));
    *out = &entry->value;
    return CORE_OK;
}

static core_status by_name(const char *name, size_t size, setting_value **out)
{
    int index = row_of(name, size);

    *out = NULL;
    if (!name_good(name, size))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "\"%.*s\" is not a setting's name; names are LIBCORE_ followed by "
            "capitals, digits or underscores",
            (int)(size < NAME_LIMIT ? size : NAME_LIMIT), name);
    if (index < 0)
        return plugin_setting_of(name, size, out);
    CORE_TRY(read_environment(rows[index].name, &values[index]));
    *out = &values[index];
    return CORE_OK;
}

const char *core__setting_by_name(const char *name, size_t size)
{
    const char *text = NULL;
    setting_value *value;

    pthread_mutex_lock(&lock);
    if (by_name(name, size, &value) == CORE_OK)
        text = value->text;
    pthread_mutex_unlock(&lock);
    return text;
}

const char *core__setting(const char *name)
{
    return core__setting_by_name(name, strlen(name));
}

/* -------------------------------------------------------------- public -- */

uint32_t core_setting_count(void)
{
    return CORE__SETTINGS;
}

core_status core_setting_describe(uint32_t index,
                                  core_setting_information *out_information)
{
    core_setting_information filled = {.struct_size = sizeof filled};
    setting_value value;
    uint32_t size;

    CORE__NOT_NULL(out_information);
    CORE__CHECK_STRUCT_SIZE(out_information, core_setting_information);
    size = out_information->struct_size;
    if (index >= CORE__SETTINGS)
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "core_setting_describe: the index is %u; there are %d settings",
            index, CORE__SETTINGS);
    if (get((core__setting_id)index, &value) == CORE_OK)
        value.status = check_text((core__setting_id)index, value.text);
    filled.type = rows[index].type;
    filled.source = value.source;
    filled.status = value.status;
    filled.name = rows[index].name;
    filled.value = value.text;
    filled.default_text = rows[index].default_text;
    filled.allowed = rows[index].allowed;
    filled.help = rows[index].help;
    filled.used_by = rows[index].used_by;
    if (size > sizeof filled)
        size = sizeof filled;
    filled.struct_size = size;
    memcpy(out_information, &filled, size);
    return CORE_OK;
}

core_status core_setting_get(const char *name, const char **out_value)
{
    core_status status;
    setting_value *value;

    CORE__NOT_NULL(out_value);
    *out_value = NULL;
    CORE__NOT_NULL(name);
    pthread_mutex_lock(&lock);
    status = by_name(name, strlen(name), &value);
    if (status == CORE_OK)
        *out_value = value->text;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Set by the first call of an operator: that the setting was read, and its
 * value. */
static bool trace_taken, trace;

core_status core__setting_freeze_trace(bool *out)
{
    setting_value value;
    core_status status;

    pthread_mutex_lock(&lock);
    status = look_up(CORE__SETTING_TRACE_DISPATCH, &value);
    trace = status == CORE_OK && value.number != 0;
    trace_taken = true;
    *out = trace;
    pthread_mutex_unlock(&lock);
    return status;
}

/* With the lock held. */
static core_status check_trace(const setting_value *value, const char *text)
{
    const setting_row *row = &rows[CORE__SETTING_TRACE_DISPATCH];
    int64_t number = 0;

    text = text ? text : value->environment;
    if (text)
        CORE_TRY(parse(row, text, &number));
    if (trace_taken && trace != (number != 0))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s is read at the first call of an operator, which has already "
            "run; set it before that, or in the environment",
            row->name);
    return CORE_OK;
}

static core_status set(const char *name, const char *text)
{
    size_t size = strlen(name);
    int index = row_of(name, size);
    const char *copy = NULL;
    int64_t number;
    setting_value *value;

    if (index < 0 && (size < 9 || !strchr(name + 8, '_') ||
                      core__setting_is_core(name, size)))
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "%s is not a setting; `core-info --settings` lists all settings",
            name);
    CORE_TRY(by_name(name, size, &value));
    if (text && index >= 0)
        CORE_TRY(parse(&rows[index], text, &number));
    if (index == CORE__SETTING_TRACE_DISPATCH)
        CORE_TRY(check_trace(value, text));
    if (text)
        CORE_TRY(intern_text(text, &copy));
    value->text = copy ? copy : value->environment;
    value->source = copy                 ? CORE_SETTING_SOURCE_PROGRAM
                    : value->environment ? CORE_SETTING_SOURCE_ENVIRONMENT
                                         : CORE_SETTING_SOURCE_DEFAULT;
    atomic_fetch_add_explicit(&core__settings_changes, 1, memory_order_release);
    return CORE_OK;
}

/* Calls read their thread's copy: see core__thread_call_flag_set. */
static core_status take_call_flag(core__setting_id setting)
{
    bool on;

    CORE_TRY(core__setting_boolean(setting, &on));
    core__thread_call_flag_set(setting == CORE__SETTING_ALLOW_TF32
                                   ? CORE_CALL_ALLOW_TF32
                                   : CORE_CALL_DETERMINISTIC,
                               on);
    return CORE_OK;
}

static core_status take_nan_check(void)
{
    bool on;

    CORE_TRY(core__setting_boolean(CORE__SETTING_NAN_CHECK, &on));
    core__base_upcalls.nan_check_set(on);
    return CORE_OK;
}

core_status core_setting_set(const char *name, const char *text)
{
    core_status status;
    int index;

    CORE__NOT_NULL(name);
    CORE_TRY(core__thread_cut(__func__));
    index = row_of(name, strlen(name));
    if (index >= 0)
        CORE_TRY(check_text((core__setting_id)index, text));
    pthread_mutex_lock(&lock);
    status = set(name, text);
    pthread_mutex_unlock(&lock);
    if (status == CORE_OK && (index == CORE__SETTING_DETERMINISTIC ||
                              index == CORE__SETTING_ALLOW_TF32))
        status = take_call_flag((core__setting_id)index);
    if (status == CORE_OK &&
        strcmp(name, rows[CORE__SETTING_NAN_CHECK].name) == 0)
        status = take_nan_check();
    return status;
}

core_status core__settings_check(void)
{
    for (uint32_t i = 0; i < CORE__SETTINGS; i++) {
        setting_value value;

        CORE_TRY(get(i, &value));
        /* A wrong path affects only itself: it is listed among the plugins as
         * refused. */
        if (i != CORE__SETTING_PLUGIN_PATH)
            CORE_TRY(check_text(i, value.text));
    }
    CORE_TRY(take_nan_check());
    CORE_TRY(take_call_flag(CORE__SETTING_ALLOW_TF32));
    return take_call_flag(CORE__SETTING_DETERMINISTIC);
}
