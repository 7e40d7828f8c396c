/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level stress: memory that one thread allocates and another one frees. */

#include "process_state.h"
#include "plugin_tables.h"
#include "leak_check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 16, SIZE = 65536, ROUNDS = 100, TIMES = 5, PROBE = 256 };

typedef struct batch {
    plugin_block blocks[BATCH];
    int value; /* of the first block's bytes; those of the next blocks are
                * larger */
} batch;

/* Two threads: while one fills a batch the other empties the previous one. */
typedef struct handover {
    plugin_tables *plugin;
    batch batches[2];
    pthread_barrier_t turn;
    outcome outs[2];
} handover;

static void make(plugin_tables *plugin, batch *to, int value, outcome *out)
{
    unsigned char bytes[PROBE];

    to->value = value;
    for (int i = 0; i < BATCH && out->verdict == VERDICT_PASS; i++) {
        memset(bytes, value + i, sizeof bytes);
        if (plugin_alloc(plugin, out, SIZE, &to->blocks[i]))
            plugin_write(plugin, out, to->blocks[i].memory, bytes,
                         sizeof bytes);
    }
}

static void check(plugin_tables *plugin, const batch *of, const char *what,
                  outcome *out)
{
    unsigned char bytes[PROBE];

    for (int i = 0; i < BATCH && of->blocks[i].size > 0; i++) {
        int value = (unsigned char)(of->value + i);

        if (!plugin_read(plugin, out, bytes, of->blocks[i].memory,
                         sizeof bytes))
            return;
        for (int k = 0; k < PROBE; k++)
            if (!expect(out, bytes[k] == value, "%s contains %d, expected %d",
                        what, bytes[k], value))
                return;
    }
}

static void free_batch(plugin_tables *plugin, batch *of)
{
    for (int i = 0; i < BATCH; i++)
        plugin_free(plugin, &of->blocks[i]);
}

static void *fill(void *context)
{
    handover *self = context;

    for (int round = 0; round <= ROUNDS; round++) {
        if (round < ROUNDS)
            make(self->plugin, &self->batches[round % 2], round,
                 &self->outs[0]);
        pthread_barrier_wait(&self->turn);
    }
    return NULL;
}

static void *empty(void *context)
{
    handover *self = context;

    for (int round = 0; round <= ROUNDS; round++) {
        if (round > 0) {
            batch *of = &self->batches[(round - 1) % 2];

            check(self->plugin, of, "memory of another thread", &self->outs[1]);
            free_batch(self->plugin, of);
        }
        pthread_barrier_wait(&self->turn);
    }
    return NULL;
}

static bool run_handover(plugin_tables *plugin, outcome *out)
{
    handover self = {
        .plugin = plugin,
        .outs = {{.error = -1, .measured = -1}, {.error = -1, .measured = -1}}};
    pthread_t maker, taker;
    bool made;

    if (pthread_barrier_init(&self.turn, NULL, 2) != 0) {
        harness_error(out, "no memory");
        return false;
    }
    made = pthread_create(&maker, NULL, fill, &self) == 0;
    if (made && pthread_create(&taker, NULL, empty, &self) != 0)
        empty(&self); /* the maker waits at the barrier */
    else if (made)
        pthread_join(taker, NULL);
    if (made)
        pthread_join(maker, NULL);
    else
        harness_error(out, "a thread cannot be started");
    pthread_barrier_destroy(&self.turn);
    for (int i = 0; i < 2; i++)
        if (self.outs[i].verdict != VERDICT_PASS &&
            out->verdict == VERDICT_PASS)
            *out = self.outs[i];
    return out->verdict == VERDICT_PASS;
}

/* A cache per freeing thread would take more of the device's memory, or of the
 * heap, in each round. */
static void freed_by_another(suite *self, outcome *out, const test *one)
{
    const uint64_t part = (uint64_t)ROUNDS * BATCH * SIZE / 4;
    plugin_tables *plugin = plugin_tables_open(self, out);
    bool heap_grows = true;
    leak_check device = {0};

    (void)one;
    if (!plugin)
        return;
    for (int i = 0; leak_check_undecided(&device) || (heap_grows && i < TIMES);
         i++) {
        uint64_t heap = process_heap();

        leak_check_begin(&device, plugin);
        if (!run_handover(plugin, out))
            return;
        heap_grows =
            heap_grows && !process_heap_below(heap + ROUNDS * BATCH * 8);
        leak_check_end(&device, plugin, part);
    }
    expect(out, device.recovered,
           "memory that one thread allocates and another frees is not reused");
    expect(out, !heap_grows,
           "memory that one thread allocates and another frees leaks on the "
           "host's heap");
}

typedef struct visitor {
    plugin_tables *plugin;
    batch made;
    int value;
    outcome out;
} visitor;

static void *visit(void *context)
{
    visitor *self = context;

    make(self->plugin, &self->made, self->value, &self->out);
    return NULL;
}

/* Threads run one after the other and leave their memory behind. */
static void outlives_its_thread(suite *self, outcome *out, const test *one)
{
    enum { VISITORS = 4 };
    static visitor visitors[VISITORS];
    plugin_tables *plugin = plugin_tables_open(self, out);
    pthread_t thread;

    (void)one;
    for (int i = 0; plugin && i < VISITORS; i++) {
        visitors[i] = (visitor){.plugin = plugin,
                                .value = 40 * i + 1,
                                .out = {.error = -1, .measured = -1}};
        if (pthread_create(&thread, NULL, visit, &visitors[i]) != 0) {
            harness_error(out, "a thread cannot be started");
            break;
        }
        pthread_join(thread, NULL);
        if (visitors[i].out.verdict != VERDICT_PASS)
            *out = visitors[i].out;
    }
    for (int i = 0; plugin && i < VISITORS; i++) {
        if (out->verdict == VERDICT_PASS)
            check(plugin, &visitors[i].made, "memory of a thread that ended",
                  out);
        free_batch(plugin, &visitors[i].made);
    }
}

bool suite_add_cross_thread_free(suite *self)
{
    static const listed tests[] = {
        {"stress/blocks/freed-by-another-thread", freed_by_another, false},
        {"stress/blocks/outlive-their-thread", outlives_its_thread, false},
    };

    return suite_add_list(self, LEVEL_STRESS, tests,
                          sizeof tests / sizeof *tests);
}
