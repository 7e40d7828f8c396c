/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Stores: how the id of a communicator gets from rank 0 to the others.
 *
 * A file is written under another name and renamed, so that it is either
 * missing or complete.  Over TCP, rank 0 waits for a connection of each other
 * rank; both sides send what they are first, so that another program on the
 * port is detected. */

#include "comm/comm.h"

#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ID = CORE_COLLECTIVES_ID_SIZE, PAUSE_MS = 10, HOST_SIZE = 256 };

static const char magic[8] = "libcore";

/* What a rank sends when it connects. */
typedef struct hello {
    char magic[8];
    uint32_t rank;
    uint32_t size;
} hello;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int left_ms(int64_t deadline)
{
    int64_t left = (deadline - now_ns()) / 1000000;

    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left + 1;
}

static void pause_short(void)
{
    poll(NULL, 0, PAUSE_MS);
}

static core_status late(const char *store, const char *what)
{
    return core__error(CORE_ERROR_CANCELLED,
                       "core_comm_create: the store \"%s\": the timeout passed "
                       "before %s",
                       store, what);
}

static core_status failed(const char *store, const char *what)
{
    return core__error(CORE_ERROR_IO,
                       "core_comm_create: the store \"%s\": %s: %s", store,
                       what, strerror(errno));
}

/* ---------------------------------------------------------------- file -- */

static core_status file_publish(const char *store, const char *path,
                                const void *id)
{
    char temporary[4096];
    bool written;
    int file;

    if (access(path, F_OK) == 0)
        return core__error(CORE_ERROR_REFUSED,
                           "core_comm_create: the store \"%s\": the file "
                           "exists; it must not, as another run may have left "
                           "it",
                           store);
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.%ld", path,
                         (long)getpid()) >= sizeof temporary)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: the store's path is longer than "
                           "%zu bytes",
                           sizeof temporary - 1);
    file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return failed(store, "the file cannot be created");
    written = write(file, id, ID) == ID;
    if (close(file) != 0 || !written || rename(temporary, path) != 0) {
        core_status status = failed(store, "the file cannot be written");

        unlink(temporary);
        return status;
    }
    return CORE_OK;
}

static core_status file_fetch(const char *store, const char *path,
                              int64_t deadline, void *id)
{
    int file;

    while ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        if (errno != ENOENT)
            return failed(store, "the file cannot be opened");
        if (now_ns() > deadline)
            return late(store, "rank 0 wrote the file");
        pause_short();
    }
    if (read(file, id, ID) != ID) {
        close(file);
        return core__error(CORE_ERROR_CORRUPT,
                           "core_comm_create: the store \"%s\": the file does "
                           "not contain %d bytes",
                           store, ID);
    }
    close(file);
    return CORE_OK;
}

/* ----------------------------------------------------------------- TCP -- */

/* Waits for all of the bytes; false at the deadline, and if the other side has
 * closed. */
static bool transfer(int socket, void *data, size_t size, bool out,
                     int64_t deadline)
{
    char *at = data;

    while (size > 0) {
        struct pollfd ready = {socket, out ? POLLOUT : POLLIN, 0};
        ssize_t done;

        if (poll(&ready, 1, left_ms(deadline)) <= 0 && now_ns() > deadline)
            return false;
        done = out ? send(socket, at, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                   : recv(socket, at, size, MSG_DONTWAIT);
        if (done == 0 || (done < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (done > 0) {
            at += done;
            size -= (size_t)done;
        }
    }
    return true;
}

static core_status resolve(const char *store, bool listens,
                           struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = listens ? AI_PASSIVE : 0};
    const char *text = store + strlen("tcp:"), *colon = strrchr(text, ':');
    char host[HOST_SIZE];
    int code;

    if (!colon || colon == text || !colon[1] ||
        (size_t)(colon - text) >= sizeof host)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: the store is \"%s\"; accepted: "
                           "file:PATH or tcp:HOST:PORT",
                           store);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    code = getaddrinfo(host, colon + 1, &hints, out);
    if (code != 0)
        return core__error(CORE_ERROR_IO,
                           "core_comm_create: the store \"%s\": %s", store,
                           gai_strerror(code));
    return CORE_OK;
}

/* Receives what a rank is.  False for another program, whose connection must
 * not hold up the ranks. */
static bool receive_hello(int peer, hello *from)
{
    return transfer(peer, from, sizeof *from, false, now_ns() + 1000000000) &&
           memcmp(from->magic, magic, sizeof magic) == 0;
}

/* served: which ranks have the id. */
static core_status check_hello(const hello *from, uint32_t size,
                               const bool *served)
{
    if (from->size != size)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: rank %u has size %u, and rank 0 "
                           "has size %u",
                           from->rank, from->size, size);
    if (from->rank == 0 || from->rank >= size || served[from->rank])
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: two processes are rank %u of %u",
                           from->rank, size);
    return CORE_OK;
}

static core_status serve_all(const char *store, int listener, uint32_t size,
                             int64_t deadline, char *id, bool *served)
{
    for (uint32_t missing = size - 1; missing > 0;) {
        struct pollfd ready = {listener, POLLIN, 0};
        core_status status = CORE_OK;
        hello from;
        int peer;

        poll(&ready, 1, left_ms(deadline));
        if (now_ns() > deadline)
            return late(store, "all ranks had connected");
        peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0) {
            pause_short(); /* for example, too many files are open */
            continue;
        }
        if (receive_hello(peer, &from)) {
            status = check_hello(&from, size, served);
            if (status == CORE_OK && transfer(peer, id, ID, true, deadline)) {
                served[from.rank] = true;
                missing--;
            }
        }
        close(peer);
        CORE_TRY(status);
    }
    return CORE_OK;
}

static core_status tcp_serve(const char *store, int listener, uint32_t size,
                             int64_t deadline, const void *id)
{
    bool *served = core__alloc_zero(size * sizeof *served);
    core_status status;
    char copy[ID];

    if (!served)
        return core__error_memory(size * sizeof *served);
    memcpy(copy, id, ID);
    status = serve_all(store, listener, size, deadline, copy, served);
    core__free(served);
    return status;
}

static core_status tcp_publish(const char *store, uint32_t size,
                               int64_t deadline, const void *id)
{
    struct addrinfo *found;
    core_status status;
    int listener, yes = 1;

    CORE_TRY(resolve(store, true, &found));
    listener =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0)
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listener < 0 ||
        bind(listener, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(listener, SOMAXCONN) != 0)
        status = failed(store, "rank 0 cannot listen");
    else
        status = tcp_serve(store, listener, size, deadline, id);
    if (listener >= 0)
        close(listener);
    freeaddrinfo(found);
    return status;
}

/* connect alone may wait for minutes. */
static bool connect_by(int socket, const struct addrinfo *to, int64_t deadline)
{
    struct pollfd ready = {socket, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;

    if (socket < 0)
        return false;
    if (connect(socket, to->ai_addr, to->ai_addrlen) == 0)
        return true;
    return errno == EINPROGRESS && poll(&ready, 1, left_ms(deadline)) > 0 &&
           getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
           error == 0;
}

static core_status tcp_fetch(const char *store, uint32_t rank, uint32_t size,
                             int64_t deadline, void *id)
{
    hello mine = {.rank = rank, .size = size};
    bool done = false;

    memcpy(mine.magic, magic, sizeof magic);
    while (!done) {
        struct addrinfo *found;
        int peer;

        CORE_TRY(resolve(store, false, &found));
        peer = socket(found->ai_family,
                      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        done = connect_by(peer, found, deadline) &&
               transfer(peer, &mine, sizeof mine, true, deadline) &&
               transfer(peer, id, ID, false, deadline);
        if (peer >= 0)
            close(peer);
        freeaddrinfo(found);
        if (!done && now_ns() > deadline)
            return late(store, "rank 0 sent the id");
        if (!done)
            pause_short();
    }
    return CORE_OK;
}

/* -------------------------------------------------------------- public -- */

core_status core__store_share_id(const char *store, uint32_t rank,
                                 uint32_t size, int64_t timeout_ns, void *id)
{
    int64_t deadline = now_ns() + timeout_ns;
    const char *path;

    if (strncmp(store, "file:", 5) == 0 && store[5]) {
        path = store + 5;
        return rank == 0 ? file_publish(store, path, id)
                         : file_fetch(store, path, deadline, id);
    }
    if (strncmp(store, "tcp:", 4) == 0)
        return rank == 0 ? tcp_publish(store, size, deadline, id)
                         : tcp_fetch(store, rank, size, deadline, id);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_comm_create: the store is \"%.200s\"; accepted: "
                       "file:PATH or tcp:HOST:PORT",
                       store);
}

void core__store_end(const char *store, uint32_t rank)
{
    if (rank == 0 && strncmp(store, "file:", 5) == 0)
        unlink(store + 5);
}
