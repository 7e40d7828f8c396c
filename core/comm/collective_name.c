/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The names of the kinds of collectives. */

#include "comm/comm.h"

#include <libcore/backend.h>

const char *core__collective_name(uint32_t kind)
{
    static const char *const names[] = {
        [CORE_COLLECTIVE_ALL_REDUCE] = "core_all_reduce",
        [CORE_COLLECTIVE_BROADCAST] = "core_broadcast",
        [CORE_COLLECTIVE_ALL_GATHER] = "core_all_gather",
        [CORE_COLLECTIVE_REDUCE_SCATTER] = "core_reduce_scatter",
        [CORE_COLLECTIVE_ALL_TO_ALL] = "core_all_to_all",
        [CORE_COLLECTIVE_SEND] = "core_send",
        [CORE_COLLECTIVE_RECV] = "core_recv",
        [CORE_COLLECTIVE_BARRIER] = "core_barrier",
        [CORE_COLLECTIVE_REDUCE] = "core_reduce",
        [CORE_COLLECTIVE_ALL_TO_ALL_COUNTS] = "core_all_to_all_rows",
    };

    return kind >= 1 && kind < sizeof names / sizeof *names ? names[kind]
                                                            : "core_?";
}
