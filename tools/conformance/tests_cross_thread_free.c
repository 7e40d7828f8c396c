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
    raw_block blocks[BATCH];
    int value; /* of the first block's bytes; the next ones' are more */
} batch;

/* Two threads: while one fills a batch the other empties the one before. */
typedef struct handover {
    raw *plugin;
    batch batches[2];
    pthread_barrier_t turn;
    outcome outs[2];
} handover;

static void make(raw *plugin, batch *to, int value, outcome *out)
{
    unsigned char bytes[PROBE];

    to->value = value;
    for (int i = 0; i < BATCH && out->verdict == VERDICT_PASS; i++) {
        memset(bytes, value + i, sizeof bytes);
        if (raw_alloc(plugin, out, SIZE, &to->blocks[i]))
            raw_write(plugin, out, to->blocks[i].memory, bytes, sizeof bytes);
    }
}

static void check(raw *plugin, const batch *of, const char *what, outcome *out)
{
    unsigned char bytes[PROBE];

    for (int i = 0; i < BATCH && of->blocks[i].size > 0; i++) {
        int value = (unsigned char)(of->value + i);

        if (!raw_read(plugin, out, bytes, of->blocks[i].memory, sizeof bytes))
            return;
        for (int k = 0; k < PROBE; k++)
            if (!expect(out, bytes[k] == value, "%s holds %d, not %d", what,
                        bytes[k], value))
                return;
    }
}

static void give_back(raw *plugin, batch *of)
{
    for (int i = 0; i < BATCH; i++)
        raw_free(plugin, &of->blocks[i]);
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
            give_back(self->plugin, of);
        }
        pthread_barrier_wait(&self->turn);
    }
    return NULL;
}

static bool hand_over(raw *plugin, outcome *out)
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
        empty(&self); /* the maker counts on somebody */
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

/* Who keeps what is freed for the thread that freed it takes more of the
 * device's memory, or of the heap, each time. */
static void freed_by_another(suite *self, outcome *out, const test *one)
{
    const uint64_t part = (uint64_t)ROUNDS * BATCH * SIZE / 4;
    raw *plugin = raw_open(self, out);
    bool heap_grows = true;
    room device = {0};

    (void)one;
    if (!plugin)
        return;
    for (int i = 0; room_unsure(&device) || (heap_grows && i < TIMES); i++) {
        uint64_t heap = manners_heap();

        room_begin(&device, plugin);
        if (!hand_over(plugin, out))
            return;
        heap_grows =
            heap_grows && !manners_heap_below(heap + ROUNDS * BATCH * 8);
        room_end(&device, plugin, part);
    }
    expect(out, device.rests,
           "memory that another thread frees than has allocated it does not "
           "come back");
    expect(out, !heap_grows,
           "memory that another thread frees than has allocated it leaves more "
           "on the host's heap, each time");
}

typedef struct visitor {
    raw *plugin;
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

/* Threads that come one after the other, and leave their memory behind. */
static void outlives_its_thread(suite *self, outcome *out, const test *one)
{
    enum { VISITORS = 4 };
    static visitor visitors[VISITORS];
    raw *plugin = raw_open(self, out);
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
        give_back(plugin, &visitors[i].made);
    }
}

bool suite_add_handover(suite *self)
{
    static const listed tests[] = {
        {"stress/blocks/freed-by-another-thread", freed_by_another, false},
        {"stress/blocks/outlive-their-thread", outlives_its_thread, false},
    };

    return suite_add_list(self, LEVEL_STRESS, tests,
                          sizeof tests / sizeof *tests);
}
