/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: opening the plugin and its device.  If the first of these tests
 * fails the run ends, because every other would fail of the same cause. */

#include "elf_symbols.h"
#include "plugin_tables.h"

#include <string.h>

/* Those that libcore reads as soon as a device type is registered. */
static bool has_interfaces(const plugin_tables *plugin, outcome *out)
{
    static const char *const names[] = {"core.numerics", "core.allocator",
                                        "core.hotplug", "core.codegen"};
    bool good = true;

    for (size_t i = 0; good && i < sizeof names / sizeof *names; i++) {
        const void *table = plugin_interface(plugin, names[i]);
        uint32_t size = sizeof size;

        if (table)
            memcpy(&size, table, sizeof size);
        good = expect(out, size >= sizeof size && size < 65536,
                      "struct_size of %s is %u, and must be the size of its "
                      "table, at least %zu",
                      names[i], size, sizeof size);
    }
    return good;
}

/* By the suite, which names the function that fails, then by libcore, which
 * checks what init registers. */
static void plugin_opens(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (plugin && has_interfaces(plugin, out))
        suite_load(self, out);
}

/* Programs print their results there, core-info its JSON. */
static void prints_nothing(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (plugin)
        expect(out, plugin->effects.printer == SLOT_NONE,
               "%s prints to standard output, which is the program's: \"%s\"",
               slot_names[plugin->effects.printer], plugin->effects.printed);
}

static void find_setter(void *context, const char *name, bool defined)
{
    static const char *const setters[] = {"setenv",   "unsetenv", "putenv",
                                          "clearenv", "environ",  "__environ"};

    for (size_t i = 0; !defined && i < sizeof setters / sizeof *setters; i++)
        if (strcmp(name, setters[i]) == 0)
            *(const char **)context = setters[i];
}

/* Other threads may read the environment at the same time, which setenv makes
 * invalid.  Drivers that set variables themselves are not the plugin's. */
static void environment_is_unchanged(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    const char *with = NULL;
    const char *wrong = elf_symbols(self->plugin, find_setter, &with);

    (void)one;
    expect(out, !wrong, "%s", wrong);
    if (plugin && with)
        expect(out, plugin->effects.setter == SLOT_NONE,
               "%s changes the environment variable %s (the file imports %s)",
               slot_names[plugin->effects.setter], plugin->effects.variable,
               with);
}

static void opens_in_time(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    for (int i = 1; plugin && i <= SLOT_OPENING_LAST; i++)
        expect(out, plugin->seconds[i] <= self->open_budget,
               "%s took %.1f seconds; at most %g are allowed (--open-budget)",
               slot_names[i], plugin->seconds[i], self->open_budget);
}

bool suite_add_opening(suite *self)
{
    static const listed tests[] = {
        {SUITE_OPENING_TEST, plugin_opens, false},
        {"core/opening/prints-nothing", prints_nothing, false},
        {"core/opening/environment-is-unchanged", environment_is_unchanged,
         false},
        {"core/opening/in-time", opens_in_time, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
