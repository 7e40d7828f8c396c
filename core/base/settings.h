/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* settings.h: how files of the core read settings.  A new setting is a line
 * here and a row in settings.c, which has its help text. */

#ifndef CORE_BASE_SETTINGS_H
#define CORE_BASE_SETTINGS_H

#include "base/fork.h"
#include <libcore/settings.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum core__setting_id {
    CORE__SETTING_DEVICE,
    CORE__SETTING_PLUGIN_PATH,
    CORE__SETTING_PLUGIN_ALLOW,
    CORE__SETTING_PLUGIN_DENY,
    CORE__SETTING_INTERPOSERS,
    CORE__SETTING_FAULT,
    CORE__SETTING_QUARANTINE,
    CORE__SETTING_THREADS,
    CORE__SETTING_CPU_ISA,
    CORE__SETTING_CPU_NATIVE,
    CORE__SETTING_TRACE_DISPATCH,
    CORE__SETTING_FALLBACK,
    CORE__SETTING_DETERMINISTIC,
    CORE__SETTING_ALLOW_TF32,
    CORE__SETTING_BLOCKING,
    CORE__SETTING_NAN_CHECK,
    CORE__SETTING_ALLOC,
    CORE__SETTING_LOG,
    CORE__SETTING_PLAN_CACHE,
    CORE__SETTING_CACHE,
    CORE__SETTING_LAYOUT,
    CORE__SETTING_COMPILE_CHECK,
    CORE__SETTING_COMPILE_CODEGEN,
    CORE__SETTING_LOOP_ITERATIONS,
    CORE__SETTING_COMPILE_BACKGROUND,
    CORE__SETTINGS
} core__setting_id;

/* Reads LIBCORE_TRACE_DISPATCH, which cannot be changed afterwards. */
core_status core__setting_freeze_trace(bool *out);

/* The text of a setting, by any LIBCORE_ name; NULL if it is not set or not
 * accepted.  Lives as long as the process. */
const char *core__setting(const char *name);

/* The value in the setting's type.  If the text is not accepted, fails with
 * INVALID_ARGUMENT and a message that lists what is, and sets *out to the
 * default.  A text is NULL if not set, and lives as long as the process. */
core_status core__setting_text(core__setting_id setting, const char **out);
core_status core__setting_integer(core__setting_id setting, int64_t *out);
core_status core__setting_boolean(core__setting_id setting, bool *out);
/* The index of the item in the row's list of choices. */
core_status core__setting_choice(core__setting_id setting, uint32_t *out);
/* The next item of a comma-separated list, without surrounding blanks; false
 * at the end. */
bool core__list_next(const char **list, const char **item, size_t *size);
/* True if the comma-separated list contains the item. */
bool core__list_contains(const char *text, const char *item, size_t size);

/* core__setting for a text with a size, as core_host.setting needs it. */
const char *core__setting_by_name(const char *name, size_t size);

const char *core__setting_name(core__setting_id setting);

/* True for a name that begins as the settings of compiled functions, all of
 * which are the core's; other names with two underscores may be a plugin's. */
bool core__setting_is_core(const char *name, size_t size);

/* Warns once of LIBCORE_ variables in the environment that are not settings. */
void core__settings_check_environment(void);

/* Fails with INVALID_ARGUMENT for the first setting whose value is not
 * accepted.  Called before the first device is opened, because some readers
 * cannot report an error and some settings may never be read.  A wrong path in
 * LIBCORE_PLUGIN_PATH does not fail; it is listed among the plugins. */
core_status core__settings_check(void);

/* Increases with every core_setting_set; readers that cache a value compare
 * it. */
extern _Atomic uint32_t core__settings_changes;
static inline uint32_t core__settings_generation(void)
{
    return atomic_load_explicit(&core__settings_changes, memory_order_acquire);
}

/* Fork handler of the lock of the settings. */
void core__settings_fork(core__fork_phase at);

#endif
