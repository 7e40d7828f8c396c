/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The connections of ranks to rank 0, over which a rank asks which collective
 * the others have reached.  A thread of rank 0 then asks all of them, and a thread
 * of each of them answers; the ranks' other threads may be waiting for ever. */

#if defined(__GNUC__) && !defined(__clang__)
/* What runs only while ranks meet, or after an error, is small rather than fast. */
#pragma GCC optimize("Os")
#endif

#include "comm/progress.h"

#include "base/memory.h"
#include "base/thread_start.h"
#include "comm/comm.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

enum {
    ASK = 1,     /* from a rank: which collective have the others reached, in
                  * the communicator of a key? */
    QUERY = 2,   /* from rank 0: and you? */
    REPLY = 3,   /* from a rank: so many counters follow */
    NUMBERS = 4, /* from rank 0: those of all ranks follow, for a key */
    LEAVE = 5    /* from any rank: its last counters follow; the connection
                  * ends */
};

typedef struct message {
    uint64_t kind, number;
} message;

/* What is known of a rank's counters. */
typedef struct counters {
    uint32_t count;
    bool ended; /* and has not said which they are */
    core__progress_counter all[CORE__PROGRESS_COUNTERS];
} counters;

typedef struct network {
    core__progress_store base;
    core__progress_counter mine[CORE__PROGRESS_COUNTERS];
    pthread_t thread;
    int wake[2];      /* a pipe to the thread of rank 0 */
    int *connections; /* by rank; on other ranks than 0 only [0], to it */
    /* Used by the thread of rank 0. */
    uint8_t *asks,
        *owes;      /* whether a rank waits for the numbers, or is asked */
    uint64_t *keys; /* for which they ask */
    struct pollfd *ready; /* its pipe and the connections */
    int64_t deadline;     /* of the replies; 0: nobody asks */
    counters *known;      /* of all ranks; on other ranks only [0], of it */
    uint64_t *numbers;    /* of all ranks */
    pthread_mutex_t
        lock; /* guards the rest, and what other ranks than 0 send */
    pthread_cond_t change;
    bool asking;         /* a thread of this rank asks */
    uint64_t asked;      /* its key */
    uint64_t *answer;    /* copy of the numbers */
    uint64_t answer_key; /* for which they are */
    uint32_t answers;    /* how many there were */
    bool gone;           /* rank 0, on another rank */
} network;

/* ------------------------------------------------------------- creation -- */

static uint32_t count_connections(const network *net)
{
    return net->base.rank == 0 ? net->base.size : 1;
}

/* own: in the process that created it.  Otherwise another thread may have
 * waited when it was forked, and to destroy what it waited for would wait for
 * it, for ever. */
static void free_all(network *net, bool own)
{
    for (uint32_t r = 0; r < count_connections(net); r++)
        if (net->connections[r] >= 0)
            close(net->connections[r]);
    for (int i = 0; i < 2; i++)
        if (net->wake[i] >= 0)
            close(net->wake[i]);
    if (own) {
        pthread_cond_destroy(&net->change);
        pthread_mutex_destroy(&net->lock);
    }
    core__free(net->connections);
    core__free(net->numbers);
    core__free(net->asks);
    core__free(net->keys);
    core__free(net->known);
    core__free(net->ready);
    core__free(net);
}

static void init_locks(network *net)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&net->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&net->change, &attributes);
    pthread_condattr_destroy(&attributes);
}

static bool allocate(network *net)
{
    size_t size = net->base.size;

    net->numbers = core__alloc(2 * size * sizeof *net->numbers);
    net->asks = core__alloc_zero(2 * size);
    net->keys = core__alloc(size * sizeof *net->keys);
    net->known =
        core__alloc_zero((size_t)count_connections(net) * sizeof *net->known);
    net->ready = core__alloc(size * sizeof *net->ready);
    if (!net->numbers || !net->asks || !net->keys || !net->known || !net->ready)
        return false;
    net->answer = net->numbers + size;
    net->owes = net->asks + size;
    return net->base.rank != 0 || pipe2(net->wake, O_CLOEXEC) == 0;
}

/* Sends or receives within a second. */
static bool transfer(int connection, void *data, size_t size, bool send)
{
    return core__store_transfer(connection, data, size, send,
                                core__store_now_ns() + SECOND);
}

static bool send_kind(int connection, uint64_t kind, uint64_t number)
{
    message out = {kind, number};

    return transfer(connection, &out, sizeof out, true);
}

/* This rank's, in a reply or at the end. */
static bool send_counters(network *net, int connection, uint64_t kind)
{
    core__progress_counter copy[CORE__PROGRESS_COUNTERS];
    uint64_t count = 0;

    for (uint32_t i = 0; i < CORE__PROGRESS_COUNTERS; i++) {
        uint64_t key = atomic_load(&net->mine[i].key);

        if (key == CORE__PROGRESS_FREE)
            continue;
        atomic_init(&copy[count].key, key);
        atomic_init(&copy[count].reached,
                    core__progress_find(net->mine + i, 1, key));
        count++;
    }
    return send_kind(connection, kind, count) &&
           transfer(connection, copy, count * sizeof *copy, true);
}

static bool receive_counters(int connection, uint64_t count, counters *out)
{
    if (count > CORE__PROGRESS_COUNTERS ||
        !transfer(connection, out->all, count * sizeof *out->all, false))
        return false;
    out->count = (uint32_t)count;
    return true;
}

static uint64_t find(const counters *known, uint64_t key)
{
    return known->ended ? CORE__PROGRESS_ENDED
                        : core__progress_find(known->all, known->count, key);
}

void core__progress_decline(int connection)
{
    send_kind(connection, LEAVE, 0);
    close(connection);
}

static void decline_all(int *connections, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++)
        if (connections[r] >= 0)
            core__progress_decline(connections[r]);
    for (uint32_t r = 0; r < count; r++)
        connections[r] = -1;
}

/* Without it, a firewall may drop a connection that is silent for hours. */
static void keep_alive(const network *net)
{
    int yes = 1, idle_seconds = 120;

    for (uint32_t r = 0; r < count_connections(net); r++) {
        int file = net->connections[r];

        if (file < 0)
            continue;
        setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
        setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds,
                   sizeof idle_seconds);
    }
}

static core__progress *start(int *connections, uint32_t rank, uint32_t size,
                             const core__progress_way *way,
                             void *(*run)(void *))
{
    network *net = core__alloc_zero(sizeof *net);
    core__progress *made;

    if (!net) {
        decline_all(connections, rank == 0 ? size : 1);
        core__free(connections);
        return NULL;
    }
    net->base = (core__progress_store){.way = way,
                                       .rank = rank,
                                       .size = size,
                                       .wait_ns = SECOND,
                                       .mine = net->mine};
    net->wake[0] = net->wake[1] = -1;
    net->connections = connections;
    keep_alive(net);
    init_locks(net);
    made = allocate(net) ? core__progress_begin(&net->base) : NULL;
    if (made && core__thread_start(&net->thread, run, net) == 0)
        return made;
    core__free(made);
    decline_all(connections, count_connections(net));
    free_all(net, true);
    return NULL;
}

/* --------------------------------------------------------------- answers -- */

/* When an answer is late: rank 0 waits as long, less a second, for those of the
 * other ranks. */
static struct timespec answer_deadline(const network *net)
{
    int64_t until =
        core__store_now_ns() + atomic_load(&net->base.wait_ns) + SECOND;

    return (struct timespec){.tv_sec = until / SECOND,
                             .tv_nsec = until % SECOND};
}

/* With the lock held: waits until no other thread of this rank asks; false: one
 * asks for longer than an answer takes. */
static bool await_turn(network *net)
{
    struct timespec end = answer_deadline(net);
    int late = 0;

    while (net->asking && !net->gone && !late)
        late = pthread_cond_timedwait(&net->change, &net->lock, &end);
    return !net->asking;
}

/* With the lock held and after await_turn: asks, and waits for the answer. */
static bool await_answer(network *net, uint64_t key, bool (*ask)(network *net),
                         uint64_t *out)
{
    struct timespec end = answer_deadline(net);
    uint32_t answers;
    bool found;
    int late = 0;

    net->asking = true;
    net->asked = key;
    answers = net->answers;
    if (!net->gone && !ask(net))
        late = 1;
    while ((net->answers == answers || net->answer_key != key) && !net->gone &&
           !late)
        late = pthread_cond_timedwait(&net->change, &net->lock, &end);
    found = net->answers != answers && net->answer_key == key;
    if (found)
        memcpy(out, net->answer, net->base.size * sizeof *out);
    net->asking = false;
    pthread_cond_broadcast(&net->change);
    return found;
}

static void put_answer(network *net, uint64_t key)
{
    pthread_mutex_lock(&net->lock);
    memcpy(net->answer, net->numbers, net->base.size * sizeof *net->answer);
    net->answer_key = key;
    net->answers++;
    pthread_cond_broadcast(&net->change);
    pthread_mutex_unlock(&net->lock);
}

/* --------------------------------------------------------------- rank 0 -- */

/* ended: without a message. */
static void lose(network *net, uint32_t r, bool ended)
{
    close(net->connections[r]);
    net->connections[r] = -1;
    net->known[r].ended = ended;
    net->asks[r] = net->owes[r] = 0;
}

/* Asks all ranks, unless they have been asked.  One whose connection is closed may
 * have left a message: `receive` finds out. */
static void begin_round(network *net, uint32_t asks, uint64_t key)
{
    net->asks[asks] = 1;
    net->keys[asks] = key;
    if (net->deadline)
        return;
    net->deadline = core__store_now_ns() + atomic_load(&net->base.wait_ns);
    for (uint32_t r = 1; r < net->base.size; r++) {
        if (net->connections[r] < 0)
            continue;
        net->owes[r] = 1;
        send_kind(net->connections[r], QUERY, 0);
    }
}

static void receive(network *net, uint32_t r)
{
    int connection = net->connections[r];
    message in;

    if (!transfer(connection, &in, sizeof in, false)) {
        lose(net, r, true);
    } else if (in.kind == ASK) {
        begin_round(net, r, in.number);
    } else if (!receive_counters(connection, in.number, &net->known[r])) {
        lose(net, r, true);
    } else if (in.kind == LEAVE) {
        lose(net, r, false);
    } else {
        net->owes[r] = 0;
    }
}

static bool round_is_over(const network *net)
{
    if (!net->deadline)
        return false;
    if (core__store_now_ns() > net->deadline)
        return true;
    return !memchr(net->owes, 1, net->base.size);
}

static void find_numbers(network *net, uint64_t key)
{
    net->numbers[0] =
        core__progress_find(net->mine, CORE__PROGRESS_COUNTERS, key);
    for (uint32_t r = 1; r < net->base.size; r++)
        net->numbers[r] =
            net->owes[r] ? CORE__PROGRESS_SILENT : find(&net->known[r], key);
}

static void finish_round(network *net)
{
    size_t size = net->base.size * sizeof *net->numbers;

    for (uint32_t r = 0; r < net->base.size; r++) {
        if (!net->asks[r])
            continue;
        find_numbers(net, net->keys[r]);
        if (r == 0)
            put_answer(net, net->keys[r]);
        else if (send_kind(net->connections[r], NUMBERS, net->keys[r]))
            transfer(net->connections[r], net->numbers, size, true);
    }
    memset(net->asks, 0, 2 * (size_t)net->base.size);
    net->deadline = 0;
}

/* Waits for messages; [0] is the pipe. */
static void wait_for_any(network *net)
{
    int64_t left = net->deadline - core__store_now_ns();
    struct pollfd *ready = net->ready;

    ready[0] = (struct pollfd){net->wake[0], POLLIN, 0};
    for (uint32_t r = 1; r < net->base.size; r++)
        ready[r] = (struct pollfd){net->connections[r], POLLIN, 0};
    poll(ready, net->base.size,
         !net->deadline ? -1
         : left > 0     ? (int)(left / 1000000) + 1
                        : 0);
}

/* A byte of the pipe: 'a' if a thread of rank 0 asks, 'e' for the end. */
static bool goes_on(network *net)
{
    char byte = 'e';
    uint64_t key;

    if (read(net->wake[0], &byte, 1) != 1 || byte != 'a')
        return false;
    pthread_mutex_lock(&net->lock);
    key = net->asked;
    pthread_mutex_unlock(&net->lock);
    begin_round(net, 0, key);
    return true;
}

static void *serve(void *context)
{
    network *net = context;

    for (;;) {
        wait_for_any(net);
        if (net->ready[0].revents && !goes_on(net))
            break;
        for (uint32_t r = 1; r < net->base.size; r++)
            if (net->ready[r].revents && net->connections[r] >= 0)
                receive(net, r);
        if (round_is_over(net))
            finish_round(net);
    }
    for (uint32_t r = 1; r < net->base.size; r++)
        if (net->connections[r] >= 0)
            send_counters(net, net->connections[r], LEAVE);
    return NULL;
}

static bool wake(network *net, char byte)
{
    return write(net->wake[1], &byte, 1) == 1;
}

static bool wake_to_ask(network *net)
{
    return wake(net, 'a');
}

static bool ask_all(core__progress_store *store, uint64_t key,
                    uint64_t *out_reached)
{
    network *net = (network *)store;
    bool found;

    pthread_mutex_lock(&net->lock);
    found = await_turn(net) && await_answer(net, key, wake_to_ask, out_reached);
    pthread_mutex_unlock(&net->lock);
    return found;
}

static void end_server(core__progress_store *store, bool own)
{
    network *net = (network *)store;

    if (own && wake(net, 'e'))
        pthread_join(net->thread, NULL);
    free_all(net, own);
}

static const core__progress_way server_way = {.ask = ask_all,
                                              .end = end_server};

core__progress *core__progress_of_server(int *peers, uint32_t size)
{
    return start(peers, 0, size, &server_way, serve);
}

/* ---------------------------------------------------------- other ranks -- */

static bool read_numbers(network *net, uint64_t key)
{
    size_t size = net->base.size * sizeof *net->numbers;

    if (!transfer(net->connections[0], net->numbers, size, false))
        return false;
    put_answer(net, key);
    return true;
}

static bool answer(network *net)
{
    bool sent;

    pthread_mutex_lock(&net->lock);
    sent = send_counters(net, net->connections[0], REPLY);
    pthread_mutex_unlock(&net->lock);
    return sent;
}

/* What rank 0 has left, or that it has ended. */
static void lose_rank_0(network *net, const message *last)
{
    bool left = last->kind == LEAVE &&
                receive_counters(net->connections[0], last->number, net->known);

    pthread_mutex_lock(&net->lock);
    net->gone = true;
    net->known->ended = !left;
    pthread_cond_broadcast(&net->change);
    pthread_mutex_unlock(&net->lock);
}

static void *listen_to(void *context)
{
    network *net = context;
    struct pollfd ready = {net->connections[0], POLLIN, 0};
    message in = {QUERY, 0};
    bool open = true;

    while (open) {
        poll(&ready, 1, -1);
        open =
            transfer(net->connections[0], &in, sizeof in, false) &&
            in.kind != LEAVE &&
            (in.kind == NUMBERS ? read_numbers(net, in.number) : answer(net));
    }
    lose_rank_0(net, &in);
    return NULL;
}

/* If that fails, the thread finds out why. */
static bool send_ask(network *net)
{
    send_kind(net->connections[0], ASK, net->asked);
    return true;
}

/* If rank 0 has ended, or does not answer, nothing is known of the others; and
 * nothing of rank 0 if it was not asked. */
static bool ask_rank_0(core__progress_store *store, uint64_t key,
                       uint64_t *out_reached)
{
    network *net = (network *)store;
    bool turn, found;

    pthread_mutex_lock(&net->lock);
    turn = await_turn(net);
    found = turn && await_answer(net, key, send_ask, out_reached);
    for (uint32_t r = 0; !found && r < store->size; r++)
        out_reached[r] = r > 0       ? CORE__PROGRESS_UNKNOWN
                         : net->gone ? find(net->known, key)
                         : turn      ? CORE__PROGRESS_SILENT
                                     : CORE__PROGRESS_UNKNOWN;
    pthread_mutex_unlock(&net->lock);
    return true;
}

static void end_client(core__progress_store *store, bool own)
{
    network *net = (network *)store;

    if (own) {
        pthread_mutex_lock(&net->lock);
        send_counters(net, net->connections[0], LEAVE);
        pthread_mutex_unlock(&net->lock);
        shutdown(net->connections[0], SHUT_RDWR);
        pthread_join(net->thread, NULL);
    }
    free_all(net, own);
}

static const core__progress_way client_way = {.ask = ask_rank_0,
                                              .end = end_client};

core__progress *core__progress_of_client(int connection, uint32_t rank,
                                         uint32_t size)
{
    int *connections = core__alloc(sizeof *connections);

    if (!connections) {
        core__progress_decline(connection);
        return NULL;
    }
    *connections = connection;
    return start(connections, rank, size, &client_way, listen_to);
}
