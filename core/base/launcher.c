/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/launcher.h"

#include <stdlib.h>

const char *const core__launcher_variables[CORE__LAUNCHERS][2] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
    {"RANK", "WORLD_SIZE"},
};

static bool read_number(const char *name, uint32_t *out)
{
    const char *text = secure_getenv(name);
    unsigned long value;
    char *end;

    if (!text || *text < '0' || *text > '9')
        return false;
    value = strtoul(text, &end, 10);
    if (*end || value > CORE__LAUNCHED_MOST)
        return false;
    *out = (uint32_t)value;
    return true;
}

bool core__launcher_place(uint32_t *out_rank, uint32_t *out_size)
{
    /* srun and mpirun start one torchrun on each machine, whose processes inherit
     * its variables. */
    int first = secure_getenv("TORCHELASTIC_RUN_ID") ? CORE__LAUNCHERS - 1 : 0;

    for (int i = 0; i < CORE__LAUNCHERS; i++) {
        const char *const *names =
            core__launcher_variables[(first + i) % CORE__LAUNCHERS];

        if (read_number(names[0], out_rank) && read_number(names[1], out_size))
            return true;
    }
    return false;
}
