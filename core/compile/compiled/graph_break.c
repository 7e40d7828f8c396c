/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Describes graph breaks. */

#include "compile/compiled/graph_break.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "compile/record/trace.h"

#include <string.h>

/* ---------------------------------------------------------------- places -- */

/* The length of a message without what scopes have added to its end, " (at
 * file.c:7)", each for its own call.  *out_line: that of the innermost one, from
 * "at" on, and its length; NULL: there is none. */
static size_t reason_length(const char *message, const char **out_line,
                            size_t *out_length)
{
    size_t length = strlen(message);

    *out_line = NULL;
    while (length > 0 && message[length - 1] == ')') {
        size_t at = length - 1;

        while (at > 0 && strncmp(message + at, " (at ", 5) != 0)
            at--;
        if (at == 0)
            break;
        *out_line = message + at + 2;
        *out_length = length - at - 3;
        length = at;
    }
    return length;
}

/* `count` operators were recorded before. */
static void set_place(const char *message, uint32_t count,
                      core__break_place *place)
{
    const core_program *program = core__thread_self()->trace->program;
    const char *line;
    size_t size;

    place->text[0] = '\0';
    reason_length(message, &line, &size);
    if (line)
        core__format(place->text, sizeof place->text, "%.*s, ", (int)size,
                     line);
    size = strlen(place->text);
    if (count == 0)
        core__format(place->text + size, sizeof place->text - size,
                     "before the first operator");
    else
        core__format(place->text + size, sizeof place->text - size,
                     "after %u operator%s, the last of which is %s", count,
                     count == 1 ? "" : "s", program->nodes[count - 1].name);
}

void core__break_find(core_status status, core__break_place *out_place)
{
    const core__trace *trace = core__thread_self()->trace;

    if (status != CORE_OK)
        set_place(core_error_message(), trace->program->nnodes, out_place);
    else if (core_error_code() != CORE_OK)
        out_place->text[0] = '\0'; /* the function continues after it */
    else if (trace->refused)
        set_place("", trace->refused_at, out_place);
    else
        core__format(out_place->text, sizeof out_place->text,
                     "when the function has returned");
}

/* ---------------------------------------------------------------- reasons -- */

core_status core__break_describe(const char *message,
                                 const core__break_place *place,
                                 core__compiled_entry *entry)
{
    size_t name = strcspn(message, " "); /* "mine::operator: reason" */
    const char *line;
    size_t length = reason_length(message, &line, &(size_t){0});

    if (name > 1 && message[name] && message[name - 1] == ':') {
        entry->operator_name = core__strndup(message, name - 1);
        if (!entry->operator_name)
            return core__error_memory(name);
        message += name + 1;
        length -= name + 1;
    }
    entry->reason = core__strndup(message, length);
    entry->place = *place->text ? core__strdup(place->text) : NULL;
    return entry->reason && (entry->place || !*place->text)
               ? CORE_OK
               : core__error_memory(strlen(message) + 1);
}

/* "operator: reason (place)", of which operator and place may be NULL. */
static void describe(const char *operator_name, const char *reason,
                     const char *place, char *to, size_t size)
{
    core__format(to, size, "%s%s%s%s%s%s", operator_name ? operator_name : "",
                 operator_name ? ": " : "", reason, place ? " (" : "",
                 place ? place : "", place ? ")" : "");
}

core_status __attribute__((cold))
core__break_error(const core__compiled_entry *entry)
{
    char text[800];

    describe(entry->operator_name, entry->reason, entry->place, text,
             sizeof text);
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_compiled_call: CORE_COMPILE_FULLGRAPH was given, "
                       "but the function cannot be recorded: %s",
                       text);
}

void __attribute__((cold))
core__break_log(const char *operator_name, const char *reason,
                const char *place)
{
    char text[800];

    describe(operator_name, reason, place, text, sizeof text);
    core__log(CORE_LOG_WARNING, "compile",
              "a function cannot be compiled and is called as it is: %s", text);
}
