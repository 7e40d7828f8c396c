/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Describes the groups of a program as JSON. */

#include "compile/fusion/fusion.h"

static void write_group(const core__fusion *fusion,
                        const core__fused_group *group, core__json *json)
{
    core__json_object(json, NULL);
    core__json_array(json, "operators");
    for (uint32_t i = 0; i < group->count; i++)
        core__json_text(json, NULL, fusion->names[group->first + i]);
    core__json_end(json);
    core__json_unsigned(json, "elements", group->elements);
    if (group->nreduced)
        core__json_unsigned(json, "reductions", group->nreduced);
    if (group->kernel) {
        core__json_unsigned(json, "inputs", group->noperands - group->noutputs);
        core__json_unsigned(json, "outputs", group->noutputs);
        core__json_unsigned(json, "bytes_saved", group->bytes_saved);
    } else {
        core__json_text(json, "reason", group->reason);
    }
    if (group->operators_ns) {
        core__json_unsigned(json, "fused_ns", group->fused_ns);
        core__json_unsigned(json, "operators_ns", group->operators_ns);
        core__json_unsigned(json, "tile", group->division.tile);
        core__json_unsigned(json, "threads", group->division.threads);
    }
    core__json_end(json);
}

static void write_groups(const core__fusion *fusion, const char *name,
                         bool fused, core__json *json)
{
    core__json_array(json, name);
    for (uint32_t i = 0; fusion && i < fusion->ngroups; i++)
        if ((fusion->groups[i].kernel != NULL) == fused)
            write_group(fusion, &fusion->groups[i], json);
    core__json_end(json);
}

static const char *reason_of(const core__fusion *fusion, uint32_t kernels)
{
    if (!fusion)
        return "its calls are not prepared";
    if (fusion->reason || kernels)
        return fusion->reason;
    return fusion->ngroups ? "no group of operators has a kernel"
                           : "no two operators can be in one kernel";
}

void core__fusion_describe(const core__fusion *fusion, core__json *json)
{
    uint32_t kernels = 0, operators = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; fusion && i < fusion->ngroups; i++) {
        const core__fused_group *group = &fusion->groups[i];

        kernels += group->kernel != NULL;
        operators += group->kernel ? group->count : 0;
        bytes += group->kernel ? group->bytes_saved : 0;
    }
    core__json_object(json, "fusion");
    core__json_unsigned(json, "kernels", kernels);
    core__json_unsigned(json, "operators", operators);
    core__json_unsigned(json, "bytes_saved", bytes);
    if (reason_of(fusion, kernels))
        core__json_text(json, "reason", reason_of(fusion, kernels));
    write_groups(fusion, "groups", true, json);
    write_groups(fusion, "operator_by_operator", false, json);
    core__operator_reasons_write(fusion ? fusion->ends : NULL,
                                 fusion ? fusion->nends : 0, "ended_by", json);
    core__json_end(json);
}
