/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Describes a program and its prepared calls as JSON. */

#include "compile/prepare/prepared.h"
#include "compile/prepare/program_explain.h"
#include "compile/prepare/replay.h"

/* How many operators are kernels that are ready, and why others are not. */
void core__prepared_explain(core_program *program, core__json *json)
{
    const char *reason;
    core__prepared_facts *facts = core__prepared_describe(program, &reason);

    core__json_text(json, "executor", facts ? "prepared" : "operators");
    core__json_object(json, "prepared");
    core__json_unsigned(json, "operators", facts ? facts->nodes : 0);
    core__json_unsigned(json, "of", program->nnodes);
    core__json_unsigned(json, "recomputed", facts ? facts->recomputed : 0);
    core__json_unsigned(json, "kernels", facts ? facts->launches : 0);
    core__json_unsigned(json, "arena_bytes", facts ? facts->arena_size : 0);
    if (!facts)
        core__json_text(json, "reason",
                        reason ? reason : "it has not been called yet");
    core__operator_reasons_write(facts ? facts->unprepared : NULL,
                                 facts ? facts->nunprepared : 0,
                                 "called_as_operators", json);
    core__fusion_describe(facts ? facts->fusion : NULL, json);
    core__row_facts_describe(facts ? facts->rows : NULL, json);
    core__epilogue_facts_describe(facts ? facts->epilogues : NULL, json);
    core__json_end(json);
    core__prepared_facts_release(facts);
    core__replay_write(program, json);
}

static uint32_t count_frozen(const core_program *program)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < program->nhidden; i++)
        count += core__program_is_frozen(program, i);
    return count;
}

void core__program_explain(core_program *program, core__json *json)
{
    core__json_object(json, "program");
    core__json_unsigned(json, "operators", program->nnodes);
    core__json_unsigned(json, "hidden_inputs", program->nhidden);
    if (program->frozen) {
        core__json_unsigned(json, "frozen_inputs", count_frozen(program));
        core__json_unsigned(json, "folded_operators", program->nfolded);
    }
    core__json_unsigned(json, "outputs", program->noutputs);
    core__json_unsigned(json, "writes", program->nwrites);
    core__prepared_explain(program, json);
    core__json_end(json);
}
