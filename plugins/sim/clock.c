/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Vector clocks of streams and of the host. */

#include "race.h"

#include <stdlib.h>

static sim_clock host;
static uint64_t host_version = 1; /* changes when the host's clock does */
static uint32_t places = 1;       /* indices used so far; the host has 0 */
static uint64_t last[SIM_CLOCKS]; /* final times of ended streams */
static bool vacant[SIM_CLOCKS];
static _Atomic uint32_t full; /* 1: no index was free; 2: that was logged */

const sim_clock *sim_clock_host(void)
{
    return &host;
}

static void join(sim_clock *to, const sim_clock *from)
{
    for (uint32_t i = 0; i < places; i++)
        if (to->at[i] < from->at[i])
            to->at[i] = from->at[i];
}

/* Without the lock. */
void sim_clock_log_full(void)
{
    uint32_t expected = 1;
    char text[96];

    if (!atomic_compare_exchange_strong(&full, &expected, 2))
        return;
    snprintf(text, sizeof text,
             "LIBCORE_SIM_CHECK: streams beyond %d at a time are not checked",
             SIM_CLOCKS - 1);
    sim_host->log(CORE_LOG_WARNING, core_sdk_string("sim"),
                  core_sdk_string(text));
}

void sim_clock_open(sim_stream *stream)
{
    uint32_t place = 0;

    if (!sim_set.check)
        return;
    stream->clock = calloc(1, sizeof *stream->clock);
    if (!stream->clock)
        return;
    for (uint32_t i = 1; i < places && !place; i++)
        if (vacant[i] && host.at[i] >= last[i])
            place = i;
    if (!place && places < SIM_CLOCKS)
        place = places++;
    for (uint32_t i = 1; i < places && !place; i++)
        if (vacant[i]) /* less exact from now on */
            place = i;
    /* Live streams must not share an index.  A stream without one still passes
     * on the clocks that it has merged. */
    if (!place) {
        uint32_t never = 0;

        atomic_compare_exchange_strong(&full, &never, 1);
        return;
    }
    vacant[place] = false;
    stream->place = place;
    stream->time = last[place];
}

void sim_clock_close(sim_stream *stream)
{
    if (!stream->clock)
        return;
    if (stream->place) {
        last[stream->place] = stream->time;
        vacant[stream->place] = true;
    }
    free(stream->clock);
    stream->clock = NULL;
}

void sim_clock_join_host(const sim_clock *clock)
{
    if (!clock)
        return;
    join(&host, clock);
    host_version++;
}

void sim_clock_join(sim_stream *stream, const sim_clock *clock)
{
    if (stream->clock && clock)
        join(stream->clock, clock);
}

void sim_clock_step(sim_stream *stream)
{
    if (!stream->clock)
        return;
    if (stream->host_version != host_version) {
        join(stream->clock, &host);
        stream->host_version = host_version;
    }
    if (stream->place)
        stream->clock->at[stream->place] = ++stream->time;
}

sim_clock *sim_clock_copy(const sim_stream *stream)
{
    sim_clock *copy = stream->clock ? malloc(sizeof *copy) : NULL;

    if (copy)
        memcpy(copy, stream->clock, sizeof *copy);
    return copy;
}
