/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Describes a compiled function as JSON. */

#include "compile/compiled/compiled_node.h"
#include "compile/compiled/dynamic_shapes.h"
#include "compile/compiled/freeze.h"
#include "compile/prepare/prepared.h"
#include "compile/prepare/program_explain.h"
#include "compile/prepare/replay.h"

#include "base/growing_text.h"
#include "base/memory.h"

#include <string.h>

/* -------------------------------------------------------------- entries -- */

/* A graph break of the function. */
typedef struct break_count {
    const char *operator_name, *reason, *place;
    uint64_t count;
} break_count;

/* What is described, each with a reference. */
typedef struct snapshot {
    const core_compiled *compiled;
    core__compiled_entry **entries;
    uint32_t nentries;
    break_count *breaks;
    uint32_t nbreaks;
} snapshot;

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void count_break(snapshot *s, break_count counted)
{
    uint32_t i = 0;

    while (i < s->nbreaks &&
           !(same_text(s->breaks[i].operator_name, counted.operator_name) &&
             same_text(s->breaks[i].reason, counted.reason) &&
             same_text(s->breaks[i].place, counted.place)))
        i++;
    if (i == s->nbreaks)
        s->breaks[s->nbreaks++] = counted;
    else
        s->breaks[i].count += counted.count;
}

static void count_breaks_of(snapshot *s, const core__compiled_entry *entry)
{
    uint64_t eager = core__training_eager_calls(entry->training);

    if (!entry->program)
        count_break(s, (break_count){entry->operator_name, entry->reason,
                                     entry->place, atomic_load(&entry->calls)});
    else if (entry->training &&
             atomic_load(&entry->training->second_derivative))
        count_break(s, (break_count){.reason = "a derivative of the gradients "
                                               "is computed "
                                               "(CORE_CREATE_GRAPH)",
                                     .count = eager});
}

static core_status take_snapshot(core_compiled *compiled, snapshot *s)
{
    core__thread *self = core__thread_self();
    size_t breaks = compiled->limit + CORE__REFUSED_KINDS;

    *s = (snapshot){.compiled = compiled};
    s->entries = core__alloc(compiled->limit * sizeof(void *));
    s->breaks = core__alloc(breaks * sizeof *s->breaks);
    if (!s->entries || !s->breaks)
        return core__error_memory(breaks * sizeof *s->breaks);
    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry;

        core__thread_enter(self);
        entry = atomic_load(&compiled->entries[i]);
        if (entry && core__entry_retain(entry))
            s->entries[s->nentries++] = entry;
        core__thread_leave(self);
    }
    for (uint32_t i = 0; i < s->nentries; i++)
        count_breaks_of(s, s->entries[i]);
    core__compiled_lock();
    for (uint32_t i = 0; i < CORE__REFUSED_KINDS; i++)
        if (compiled->refused[i].reason)
            count_break(s, (break_count){.reason = compiled->refused[i].reason,
                                         .count = compiled->refused[i].count});
    core__compiled_unlock();
    return CORE_OK;
}

static void drop_snapshot(snapshot *s)
{
    for (uint32_t i = 0; i < s->nentries; i++)
        core__entry_release(s->entries[i]);
    core__free(s->entries);
    core__free(s->breaks);
}

/* -------------------------------------------------------------- writing -- */

static void write_options(const core_compiled *compiled, core__json *json)
{
    static const char *const modes[] = {"default", "reduce_overhead",
                                        "max_autotune"};
    static const char *const dynamic[] = {"auto", "never", "always"};
    static const char *const codegen[] = {"auto", "off", "on"};
    const core_compile_options *options = &compiled->options;

    core__json_object(json, "options");
    core__json_text(json, "mode", modes[options->mode]);
    core__json_boolean(json, "fullgraph",
                       options->flags & CORE_COMPILE_FULLGRAPH);
    core__json_text(json, "dynamic", dynamic[options->dynamic]);
    core__json_text(json, "codegen", codegen[options->codegen]);
    core__json_boolean(json, "freeze", options->flags & CORE_COMPILE_FREEZE);
    core__json_boolean(json, "reorder_sums",
                       options->flags & CORE_COMPILE_REORDER_SUMS);
    core__json_unsigned(json, "limit", compiled->limit);
    core__json_text(json, "beyond_limit",
                    options->flags & CORE_COMPILE_LIMIT_ERROR ? "error"
                                                              : "eager");
    core__json_unsigned(json, "key_size", options->key_size);
    core__json_unsigned(json, "recompute_budget", options->recompute_budget);
    core__json_end(json);
}

static void write_counts(const core_compiled *compiled, core__json *json)
{
    core_compile_counts counts = {0};

    core__compiled_lock();
    core__compiled_add_counts(compiled, &counts);
    core__compiled_unlock();
    core__json_object(json, "counts");
    core__json_unsigned(json, "calls", counts.calls);
    core__json_unsigned(json, "compiled_calls", counts.compiled_calls);
    core__json_unsigned(json, "eager_calls", counts.eager_calls);
    core__json_unsigned(json, "break_calls", counts.break_calls);
    core__json_unsigned(json, "limit_calls", counts.limit_calls);
    core__json_unsigned(json, "inlined_calls", counts.inlined_calls);
    core__json_unsigned(json, "traces", counts.traces);
    core__json_unsigned(json, "trace_ns", counts.trace_ns);
    core__json_unsigned(json, "invalidated", counts.invalidated);
    core__json_unsigned(json, "checks", counts.checks);
    core__json_unsigned(json, "resized", counts.resized);
    core__json_unsigned(json, "captures", counts.captures);
    core__json_unsigned(json, "graph_launches", counts.graph_launches);
    core__json_unsigned(json, "graph_busy", counts.graph_busy);
    core__json_end(json);
}

static void write_training(const core__training *training, core__json *json)
{
    const core__partition *partition = &training->partition;
    const core__backward *backward = training->described.nmasks
                                         ? atomic_load(&training->backwards[0])
                                         : NULL;

    core__json_object(json, "training");
    core__json_unsigned(json, "forward_operators", training->forward_nodes);
    core__json_unsigned(json, "backward_operators", training->backward_nodes);
    core__json_unsigned(json, "recomputed_operators", training->recomputed);
    core__json_unsigned(json, "saved_tensors", partition->nsaved);
    core__json_unsigned(json, "saved_bytes", partition->saved_bytes);
    core__json_unsigned(json, "saved_bytes_without_recomputation",
                        partition->direct_bytes);
    core__json_unsigned(json, "backward_calls",
                        atomic_load(&training->backward_calls));
    core__json_unsigned(json, "backward_calls_of_the_function",
                        atomic_load(&training->repeated_calls));
    core__json_unsigned(json, "eager_calls",
                        core__training_eager_calls(training));
    if (backward) {
        core__json_object(json, "backward_program");
        core__prepared_explain(backward->program, json);
        core__json_end(json);
    }
    core__json_end(json);
}

static void write_entry(const core__compiled_entry *entry, core__json *json)
{
    core__json_object(json, NULL);
    core__json_text(json, "recorded_because", entry->why);
    core__json_unsigned(json, "calls", atomic_load(&entry->calls));
    core__json_unsigned(json, "trace_ns", entry->trace_ns);
    if (entry->program)
        core__program_explain(entry->program, json);
    if (entry->training)
        write_training(entry->training, json);
    if (!entry->program)
        core__json_text(json, "break", entry->reason);
    core__guard_write(entry->guard, json);
    core__json_end(json);
}

static void write_all(const snapshot *s, core__json *json)
{
    core__json_object(json, NULL);
    write_options(s->compiled, json);
    write_counts(s->compiled, json);
    core__json_array(json, "breaks");
    for (uint32_t i = 0; i < s->nbreaks; i++) {
        core__json_object(json, NULL);
        core__json_text(json, "operator", s->breaks[i].operator_name);
        core__json_text(json, "reason", s->breaks[i].reason);
        core__json_text(json, "place", s->breaks[i].place);
        core__json_unsigned(json, "count", s->breaks[i].count);
        core__json_end(json);
    }
    core__json_end(json);
    core__compiled_lock();
    core__size_patterns_write(s->compiled->patterns, json);
    core__compiled_unlock();
    core__json_array(json, "entries");
    for (uint32_t i = 0; i < s->nentries; i++)
        write_entry(s->entries[i], json);
    core__json_end(json);
    core__json_end(json);
}

core_status core_compiled_explain(core_compiled *compiled, char **out_json)
{
    core_status status;
    core__growing_text to = {0};
    core__json json;
    snapshot s;

    CORE__NOT_NULL(out_json);
    *out_json = NULL;
    CORE__NOT_NULL(compiled);
    status = take_snapshot(compiled, &s);
    if (status == CORE_OK) {
        core__json_begin(&json, core__growing_text_append, &to);
        write_all(&s, &json);
        if (!core__json_finish(&json))
            status = core__error_memory(to.capacity);
    }
    drop_snapshot(&s);
    if (status == CORE_OK)
        *out_json = to.data;
    else
        core__free(to.data);
    return status;
}
