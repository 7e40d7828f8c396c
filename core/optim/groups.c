/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Groups of parameters, which have options of their own. */

#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

static size_t index_of(const core_optimizer *optimizer,
                       const core_tensor *parameter)
{
    size_t i = 0;

    while (i < optimizer->count && optimizer->parameters[i].tensor != parameter)
        i++;
    return i;
}

static core_status check_group(const core_optimizer *optimizer,
                               const core__group *group,
                               core_tensor *const *parameters, size_t count)
{
    const core__optimizer_table *table = optimizer->groups[0].table;

    if (table->fused_op != group->table->fused_op)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "set_group: the options are for another kind of "
                           "optimizer");
    if (!table->slots[0] != !group->table->slots[0])
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "set_group: momentum is 0 in some groups; it must "
                           "be 0 in all or in none");
    if (atomic_load(&optimizer->references) > 1)
        return core__error(CORE_ERROR_BUSY,
                           "set_group: a recorded program contains its step, "
                           "so its groups cannot change");
    CORE_TRY(
        core__optimizer_check_option(group->learning_rate, "learning rate"));
    for (size_t i = 0; i < count; i++)
        if (index_of(optimizer, parameters[i]) == optimizer->count)
            return core__error(CORE_ERROR_NOT_FOUND,
                               "set_group: parameter %zu of the group is not "
                               "one of the optimizer",
                               i);
    return CORE_OK;
}

core_status core__optimizer_set_group(const char *function,
                                      core_optimizer *optimizer,
                                      const core__group *group,
                                      core_tensor *const *parameters,
                                      size_t count)
{
    uint32_t number = optimizer->ngroups;
    core__group *groups;

    if (!optimizer || (!parameters && count > 0))
        return core__error_null(function,
                                optimizer ? "parameters" : "optimizer");
    CORE_TRY(check_group(optimizer, group, parameters, count));
    groups = core__realloc(optimizer->groups, (number + 1) * sizeof *groups);
    if (!groups)
        return core__error_memory((number + 1) * sizeof *groups);
    groups[number] = *group;
    optimizer->groups = groups;
    optimizer->ngroups = number + 1;
    for (size_t i = 0; i < count; i++)
        optimizer->parameters[index_of(optimizer, parameters[i])].group =
            number;
    return CORE_OK;
}

size_t core_optimizer_group_count(const core_optimizer *optimizer)
{
    return optimizer->ngroups;
}

size_t core_optimizer_group(const core_optimizer *optimizer, size_t parameter)
{
    return parameter < optimizer->count ? optimizer->parameters[parameter].group
                                        : SIZE_MAX;
}

double core_optimizer_group_learning_rate(const core_optimizer *optimizer,
                                          size_t group)
{
    return group < optimizer->ngroups ? optimizer->groups[group].learning_rate
                                      : 0;
}

core_status core_optimizer_set_group_learning_rate(core_optimizer *optimizer,
                                                   size_t group,
                                                   double learning_rate)
{
    CORE__NOT_NULL(optimizer);
    if (group >= optimizer->ngroups)
        return core__error(CORE_ERROR_INDEX,
                           "%s: group is %zu; the optimizer has %u groups",
                           __func__, group, optimizer->ngroups);
    CORE_TRY(core__optimizer_check_option(learning_rate, "learning rate"));
    optimizer->groups[group].learning_rate = learning_rate;
    return CORE_OK;
}
