/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "info/comm.h"

#include "info/printable.h"

#include "base/launcher.h"

#include <libcore/comm.h>
#include <libcore/plugins.h>

#include <stdio.h>
#include <stdlib.h>

/* Variables with which launchers number the processes, and those that say where
 * rank 0 listens. */
enum { VARIABLES = 2 * CORE__LAUNCHERS + 2 };

static const char *variable(size_t index)
{
    static const char *const master[] = {"MASTER_ADDR", "MASTER_PORT"};
    size_t numbers = 2 * CORE__LAUNCHERS;

    return index < numbers ? core__launcher_variables[index / 2][index % 2]
                           : master[index - numbers];
}

/* False after the last engine. */
static bool engine_at(size_t index, core_comm_engine_information *out,
                      core_plugin_information *out_plugin)
{
    core_status status;

    *out = (core_comm_engine_information){.struct_size = sizeof *out};
    *out_plugin = (core_plugin_information){.struct_size = sizeof *out_plugin};
    status = core_comm_engine_describe(index, out);

    if (status != CORE_OK && status != CORE_ERROR_INDEX)
        fprintf(stderr, "core-info: %s\n", core_error_message());
    if (status != CORE_OK) {
        core_error_clear();
        return false;
    }
    return core_plugin_describe(out->plugin, out_plugin) == CORE_OK;
}

void print_comm(void)
{
    core_comm_engine_information engine;
    core_plugin_information plugin;
    bool any = false;
    size_t i = 0;

    printf("collectives\n");
    for (; engine_at(i, &engine, &plugin); i++) {
        printf("  engine    %s, of the plugin %s %s", engine.name,
               printable_text(plugin.name), printable_text(plugin.version));
        if (*plugin.minimum_driver)
            printf(", built for %s", printable_text(plugin.minimum_driver));
        printf("\n            %s%s\n",
               engine.usable ? "can be used" : "cannot be used: ",
               printable_text(engine.reason));
    }
    if (i == 0)
        printf("  no plugin has an engine\n");
    for (i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variable(i));

        if (value)
            printf("  %s%s=%s\n", any ? "          " : "launcher  ",
                   variable(i), printable_text(value));
        any |= value != NULL;
    }
    if (!any)
        printf("  launcher  none: this process was started alone\n");
}

void write_comm(core__json *json)
{
    core_comm_engine_information engine;
    core_plugin_information plugin;

    core__json_object(json, "comm");
    core__json_array(json, "engines");
    for (size_t i = 0; engine_at(i, &engine, &plugin); i++) {
        core__json_object(json, NULL);
        core__json_text(json, "engine", engine.name);
        core__json_text(json, "plugin", plugin.name);
        core__json_text(json, "version", plugin.version);
        core__json_text(json, "built_for", plugin.minimum_driver);
        core__json_boolean(json, "usable", engine.usable);
        core__json_text(json, "reason", engine.reason);
        core__json_end(json);
    }
    core__json_end(json);
    core__json_object(json, "launcher");
    for (size_t i = 0; i < VARIABLES; i++)
        if (getenv(variable(i)))
            core__json_text(json, variable(i), getenv(variable(i)));
    core__json_end(json);
    core__json_end(json);
}
