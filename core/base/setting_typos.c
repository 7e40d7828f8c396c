/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Warns of environment variables that look like settings but are not: a
 * misspelt setting would otherwise be ignored silently. */

#include "base/log.h"
#include "base/settings.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { PREFIX = 8 /* LIBCORE_ */, LONGEST = 63, NEAR = 3 };

extern char **environ;

/* The edit distance: characters to insert, delete or replace.  At most LONGEST
 * characters of either name are compared. */
static size_t distance(const char *a, size_t a_size, const char *b)
{
    size_t row[LONGEST + 1], b_size = strlen(b);

    a_size = a_size < LONGEST ? a_size : LONGEST;
    b_size = b_size < LONGEST ? b_size : LONGEST;
    for (size_t k = 0; k <= b_size; k++)
        row[k] = k;
    for (size_t i = 1; i <= a_size; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t k = 1; k <= b_size; k++) {
            size_t best = corner + (a[i - 1] != b[k - 1]);

            corner = row[k];
            best = best < row[k] + 1 ? best : row[k] + 1;
            row[k] = best < row[k - 1] + 1 ? best : row[k - 1] + 1;
        }
    }
    return row[b_size];
}

static const char *nearest(const char *name, size_t size, size_t *out_distance)
{
    const char *found = NULL;

    *out_distance = SIZE_MAX;
    for (uint32_t i = 0; i < core_setting_count(); i++) {
        const char *known = core__setting_name((core__setting_id)i);
        size_t far = distance(name, size, known);

        if (far < *out_distance) {
            *out_distance = far;
            found = known;
        }
    }
    return found;
}

/* A plugin's own settings have a second underscore, and only the plugin knows
 * them; such a name is reported only if it is close to a setting of the
 * core. */
static void check_variable(const char *entry)
{
    size_t size = strcspn(entry, "="), far;
    const char *known = nearest(entry, size, &far);

    if (far == 0 || entry[size] != '=' || entry[size + 1] == '\0')
        return;
    if (far > NEAR && memchr(entry + PREFIX, '_', size - PREFIX) &&
        !core__setting_is_core(entry, size))
        return;
    core__log(CORE_LOG_WARNING, "settings",
              "the environment variable %.*s is not a setting and has no "
              "effect; the closest setting is %s",
              (int)size, entry, known);
}

static void check_environment(void)
{
    if (getauxval(AT_SECURE))
        return; /* such a process does not read settings from the environment */
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, "LIBCORE_", PREFIX) == 0)
            check_variable(*entry);
}

void core__settings_check_environment(void)
{
    static _Atomic bool looked;

    if (core__log_is_enabled(CORE_LOG_WARNING) &&
        !atomic_exchange(&looked, true))
        check_environment();
}
