/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Stores: how the id of a communicator gets from rank 0 to the others, and how all
 * ranks learn that one of them runs another version.
 *
 * A file is written under another name and renamed, so that it is either
 * missing or complete.  Each rank writes what it runs into it, and reads what the
 * others run.  Over TCP, rank 0 waits for a connection of each other rank, which
 * says what it runs, and then answers all of them; both sides send what they are
 * first, so that another program on the port is detected.  The file's memory and the
 * connections then serve progress.h. */

#if defined(__GNUC__) && !defined(__clang__)
/* What runs only while ranks meet, or after an error, is small rather than fast. */
#pragma GCC optimize("Os")
#endif

#include "comm/comm.h"

#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ID = CORE_COLLECTIVES_ID_SIZE,
    ABOUT = CORE__COMM_ABOUT,
    PAUSE_MS = 10,
    HOST_SIZE = 256
};

#define SECOND INT64_C(1000000000)

static const char magic[8] = "libcore";

/* What a rank sends when it connects, and what rank 0 answers; the same in every
 * version of libcore. */
typedef struct hello {
    char magic[8];
    uint32_t rank;
    uint32_t size;
    char about[ABOUT];
} hello;

typedef struct reply {
    char magic[8];
    char id[ID];
    core_status status; /* CORE_OK, or of the error in `text` */
    char text[500];
} reply;

int64_t core__store_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int left_ms(int64_t deadline)
{
    int64_t left = (deadline - core__store_now_ns()) / 1000000;

    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left + 1;
}

/* After an error, ranks that start later are waited for, so that they get it, too;
 * not long, as some may never start. */
static int64_t shorten(int64_t deadline)
{
    int64_t most = core__store_now_ns() + 10 * SECOND;

    return deadline < most ? deadline : most;
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

core_status core__store_compare(uint32_t rank, const char *first,
                                const char *about)
{
    if (memcmp(first, about, ABOUT) == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_INCOMPATIBLE,
        "core_comm_create: rank 0 has %.126s, rank %u has %.126s; "
        "all ranks need the same",
        first, rank, about);
}

static core_status compare_sizes(uint32_t rank, uint32_t size, uint32_t first)
{
    if (size == first)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_comm_create: rank %u has size %u, and rank 0 "
                       "has size %u",
                       rank, size, first);
}

/* ---------------------------------------------------------------- file -- */

/* What a file begins with, in every version of libcore, before the texts. */
typedef struct file_head {
    char id[ID];
    uint32_t size; /* ranks */
    uint32_t odd;  /* a rank that has another size, counted from 1; 0: none */
} file_head;

_Static_assert(sizeof(file_head) == CORE__STORE_TEXTS, "the texts follow");

/* The head, and what ranks on this machine share.  Zeros are stored, too: without
 * space on the disk, a rank would end when it writes to its memory. */
static bool write_file(int file, uint32_t size, const void *id)
{
    file_head head = {.size = size};
    char machine[CORE__PROGRESS_FILE_HEAD];
    int error;

    memcpy(head.id, id, ID);
    core__progress_file_begin(machine);
    if (pwrite(file, &head, sizeof head, 0) != sizeof head ||
        pwrite(file, machine, sizeof machine,
               (off_t)core__progress_file_machine(size)) != sizeof machine)
        return false;
    error = posix_fallocate(file, 0, (off_t)core__progress_file_size(size));
    errno = error;
    return error == 0;
}

/* Closing a descriptor sends what was written to a file in a network. */
static bool flush(int file)
{
    int copy = dup(file);

    return copy >= 0 && close(copy) == 0;
}

/* A rank while it meets the others. */
typedef struct meeting {
    const char *store;
    uint32_t rank, size;
    int64_t deadline;
    const char *about;
} meeting;

/* The last byte of a text: its rank has come; it has read those of the others, after
 * an error; or it has met all. */
enum { HERE = 1, LEAVES = 2, MET = 3 };

/* The texts of several ranks are in one page, of which a machine that has a file of
 * a network open may have old bytes: it reads them again when it gets the lock.
 * Without locks in the file system the text is written, too.  Its last byte is
 * written after the others. */
static core_status write_text(const meeting *m, int file, const char *text)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    off_t at = CORE__STORE_TEXTS + (off_t)m->rank * ABOUT;
    core_status status = CORE_OK;

    while (fcntl(file, F_OFD_SETLK, &lock) != 0 &&
           (errno == EAGAIN || errno == EACCES) &&
           core__store_now_ns() <= m->deadline)
        pause_short();
    if (pwrite(file, text, ABOUT - 1, at) != ABOUT - 1 ||
        pwrite(file, text + ABOUT - 1, 1, at + ABOUT - 1) != 1 || !flush(file))
        status = failed(m->store, "the file cannot be written");
    lock.l_type = F_UNLCK;
    fcntl(file, F_OFD_SETLK, &lock);
    return status;
}

/* INVALID_ARGUMENT: a rank has said that it has another size. */
static core_status check_odd(const meeting *m, int file)
{
    uint32_t odd = 0;

    if (pread(file, &odd, sizeof odd, offsetof(file_head, odd)) < 0)
        return failed(m->store, "the file cannot be read");
    return odd ? core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "core_comm_create: rank %u has another size than "
                             "rank 0, which has size %u",
                             odd - 1, m->size)
               : CORE_OK;
}

/* Waits until the last byte of a rank's text is at least `last`, which it is not if
 * the deadline passes, or if a rank has another size. */
static core_status read_text(const meeting *m, int file, uint32_t rank,
                             char last, int64_t deadline, char *text)
{
    off_t at = CORE__STORE_TEXTS + (off_t)rank * ABOUT;

    for (;;) {
        ssize_t size = pread(file, text, ABOUT, at);

        if (size < 0)
            return failed(m->store, "the file cannot be read");
        if (size == ABOUT && text[ABOUT - 1] >= last)
            return CORE_OK;
        text[ABOUT - 1] = 0;
        if (last == HERE)
            CORE_TRY(check_odd(m, file));
        if (core__store_now_ns() > deadline)
            return CORE_OK;
        pause_short();
    }
}

static core_status write_last(const meeting *m, int file, char last)
{
    char text[ABOUT];

    memcpy(text, m->about, ABOUT);
    text[ABOUT - 1] = last;
    return write_text(m, file, text);
}

/* After an error all ranks read the texts of the others before rank 0 removes the
 * file. */
static void leave_file(const meeting *m, int file, int64_t deadline)
{
    core__error_record error;
    char text[ABOUT];

    core__error_save(&error);
    if (m->rank > 0)
        write_last(m, file, LEAVES);
    for (uint32_t r = 1; r < m->size && m->rank == 0; r++)
        if (read_text(m, file, r, LEAVES, deadline, text) != CORE_OK)
            break;
    core__error_restore(&error);
}

/* Says what this rank runs, and waits for what the others run. */
static core_status file_meet(const meeting *m, int file)
{
    int64_t deadline = m->deadline;
    core_status status = CORE_OK;
    char texts[2][ABOUT];

    CORE_TRY(write_last(m, file, HERE));
    for (uint32_t r = 0; r < m->size; r++) {
        char *about = texts[r > 0];
        core_status read = read_text(m, file, r, HERE, deadline, about);

        if (read != CORE_OK) {
            leave_file(m, file, shorten(deadline));
            return read;
        }
        if (!about[ABOUT - 1] && status != CORE_OK)
            break;
        if (!about[ABOUT - 1]) {
            late(m->store, "all ranks had written to the file");
            core__error_suffix("; rank %u has not", r);
            return CORE_ERROR_CANCELLED;
        }
        about[ABOUT - 1] = HERE;
        if (status != CORE_OK)
            continue;
        status = core__store_compare(r, texts[0], about);
        if (status != CORE_OK)
            deadline = shorten(deadline);
    }
    if (status == CORE_OK)
        status = check_odd(m, file);
    if (status == CORE_OK)
        return write_last(m, file, MET);
    leave_file(m, file, deadline);
    return status;
}

static core_status file_publish(const meeting *m, const char *path,
                                const void *id, core__progress **out_progress)
{
    const char *store = m->store;
    core_status status = CORE_OK;
    char temporary[4096];
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
    file = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return failed(store, "the file cannot be created");
    if (!write_file(file, m->size, id) || !flush(file) ||
        rename(temporary, path) != 0) {
        status = failed(store, "the file cannot be written");
        unlink(temporary);
    } else {
        status = file_meet(m, file);
        if (status == CORE_OK)
            *out_progress = core__progress_of_file(file, 0, m->size);
        else
            unlink(path);
    }
    close(file);
    return status;
}

/* The ranks of the communicator before have all met in the file, and rank 0 has not
 * removed it yet. */
static bool is_over(const meeting *m, int file)
{
    char last = 0;

    return pread(file, &last, 1,
                 CORE__STORE_TEXTS + (off_t)m->rank * ABOUT + ABOUT - 1) == 1 &&
           last == MET;
}

static core_status file_open(const meeting *m, const char *path, int *out_file)
{
    for (;;) {
        int file = open(path, O_RDWR | O_CLOEXEC);

        *out_file = file;
        if (file >= 0 && !is_over(m, file))
            return CORE_OK;
        if (file < 0 && errno != ENOENT)
            return failed(m->store, "the file cannot be opened and written");
        if (file >= 0)
            close(file);
        if (core__store_now_ns() > m->deadline)
            return late(m->store, file < 0
                                      ? "rank 0 wrote the file"
                                      : "rank 0 removed the file in which the "
                                        "ranks have met before");
        pause_short();
    }
}

/* Tells the others, which wait for this rank. */
static core_status check_size(const meeting *m, int file, uint32_t size)
{
    meeting as_theirs = *m;
    core_status status = compare_sizes(m->rank, m->size, size);
    core__error_record error;
    uint32_t odd = m->rank + 1;

    if (status == CORE_OK)
        return CORE_OK;
    as_theirs.deadline = shorten(m->deadline);
    core__error_save(&error);
    if (pwrite(file, &odd, sizeof odd, offsetof(file_head, odd)) ==
            sizeof odd &&
        flush(file) && m->rank < size)
        write_last(&as_theirs, file, LEAVES);
    core__error_restore(&error);
    return status;
}

static core_status file_fetch(const meeting *m, const char *path, void *id,
                              core__progress **out_progress)
{
    core_status status;
    file_head head;
    int file;

    CORE_TRY(file_open(m, path, &file));
    if (read(file, &head, sizeof head) != sizeof head)
        status =
            core__error(CORE_ERROR_CORRUPT,
                        "core_comm_create: the store \"%s\": the file does "
                        "not contain %zu bytes",
                        m->store, sizeof head);
    else
        status = check_size(m, file, head.size);
    if (status == CORE_OK)
        status = file_meet(m, file);
    if (status == CORE_OK) {
        memcpy(id, head.id, ID);
        *out_progress = core__progress_of_file(file, m->rank, m->size);
    }
    close(file);
    return status;
}

/* ----------------------------------------------------------------- TCP -- */

bool core__store_transfer(int socket, void *data, size_t size, bool out,
                          int64_t deadline)
{
    char *at = data;

    while (size > 0) {
        struct pollfd ready = {socket, out ? POLLOUT : POLLIN, 0};
        ssize_t done;

        if (poll(&ready, 1, left_ms(deadline)) <= 0 &&
            core__store_now_ns() > deadline)
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
    return core__store_transfer(peer, from, sizeof *from, false,
                                core__store_now_ns() + SECOND) &&
           memcmp(from->magic, magic, sizeof magic) == 0;
}

/* Rank 0 while it serves the others. */
typedef struct server {
    const meeting *meeting;
    int listener;
    reply reply;
    int *peers;   /* kept connections, by rank; otherwise -1 */
    bool *served; /* by rank: it has connected */
    int64_t deadline;
    uint32_t missing; /* ranks that have not connected */
    int reserve;  /* a descriptor, to be closed if no other is left; or -1 */
    bool keeps;   /* false: there are too few files for it */
    bool too_few; /* ... also for those of the ranks that wait */
} server;

static core_status check_hello(const server *s, const hello *from)
{
    uint32_t size = s->meeting->size;

    CORE_TRY(compare_sizes(from->rank, from->size, size));
    if (from->rank == 0 || from->rank >= size || s->served[from->rank])
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: two processes are rank %u of %u",
                           from->rank, size);
    return core__store_compare(from->rank, s->meeting->about, from->about);
}

/* One that cannot be reached notices it by the engine. */
static void answer(server *s, int peer)
{
    core__store_transfer(peer, &s->reply, sizeof s->reply, true, s->deadline);
    if (!s->keeps)
        core__progress_decline(peer);
}

static void answer_all(server *s)
{
    for (uint32_t r = 0; r < s->meeting->size; r++)
        if (s->peers[r] >= 0) {
            answer(s, s->peers[r]);
            if (!s->keeps)
                s->peers[r] = -1;
        }
}

/* Progress is worth less than what the program may want to open. */
static void keep_none(server *s)
{
    s->keeps = false;
    answer_all(s);
}

/* A new descriptor is the lowest free one, so that one in the upper half of
 * what the process may open says that half of it is in use. */
static bool is_in_upper_half(int file)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           (rlim_t)file >= limit.rlim_cur / 2;
}

static void keep(server *s, uint32_t rank, int peer)
{
    if (s->keeps && is_in_upper_half(peer))
        keep_none(s);
    if (s->keeps)
        s->peers[rank] = peer;
    else
        answer(s, peer);
}

/* A connection that was not accepted: there is none, or there are too many
 * open files. */
static void wait_for_files(server *s)
{
    s->too_few = errno == EMFILE || errno == ENFILE;
    if (s->too_few && s->keeps) {
        keep_none(s);
    } else if (s->too_few && s->reserve >= 0) {
        close(s->reserve);
        s->reserve = -1;
    } else {
        pause_short();
    }
}

/* After the first error, all get it. */
static void fail(server *s, core_status status)
{
    s->reply.status = status;
    snprintf(s->reply.text, sizeof s->reply.text, "%s", core_error_message());
    s->deadline = shorten(s->deadline);
    keep_none(s);
}

static bool has_closed(int peer)
{
    char byte;
    ssize_t size = recv(peer, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

/* A rank that has ended is missing, and may come again: a launcher may have started
 * another process. */
static void forget_closed(server *s)
{
    for (uint32_t r = 1; r < s->meeting->size; r++)
        if (s->peers[r] >= 0 && has_closed(s->peers[r])) {
            close(s->peers[r]);
            s->peers[r] = -1;
            s->served[r] = false;
            s->missing++;
        }
}

static void serve_one(server *s, int peer)
{
    core_status status = CORE_OK;
    hello from;

    if (!receive_hello(peer, &from)) {
        close(peer);
        return;
    }
    if (from.rank < s->meeting->size && s->served[from.rank])
        forget_closed(s);
    if (s->reply.status == CORE_OK)
        status = check_hello(s, &from);
    if (status != CORE_OK)
        fail(s, status);
    if (from.rank > 0 && from.rank < s->meeting->size &&
        !s->served[from.rank]) {
        s->served[from.rank] = true;
        s->missing--;
    }
    if (s->reply.status == CORE_OK)
        keep(s, from.rank, peer);
    else
        answer(s, peer);
}

static void fail_late(server *s)
{
    uint32_t r = 1;

    forget_closed(s);
    while (s->served[r])
        r++;
    late(s->meeting->store, "all ranks had connected");
    if (s->too_few)
        core__error_suffix(": %s", strerror(EMFILE));
    core__error_suffix("; rank %u has not", r);
    fail(s, CORE_ERROR_CANCELLED);
}

static core_status serve_all(server *s)
{
    for (;;) {
        struct pollfd ready = {s->listener, POLLIN, 0};
        int peer;

        if (s->missing == 0)
            forget_closed(s);
        if (s->missing == 0)
            break;
        poll(&ready, 1, left_ms(s->deadline));
        if (core__store_now_ns() > s->deadline) {
            if (s->reply.status == CORE_OK)
                fail_late(s);
            break;
        }
        peer = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0)
            wait_for_files(s);
        else
            serve_one(s, peer);
    }
    answer_all(s);
    return s->reply.status;
}

static void close_kept(server *s)
{
    for (uint32_t r = 0; r < s->meeting->size; r++)
        if (s->peers[r] >= 0)
            close(s->peers[r]);
    core__free(s->peers);
}

static core_status tcp_serve(const meeting *m, int listener, const void *id,
                             core__progress **out_progress)
{
    uint32_t size = m->size;
    server s = {.meeting = m,
                .listener = listener,
                .peers = core__alloc(size * sizeof(int)),
                .served = core__alloc_zero(size),
                .deadline = m->deadline,
                .missing = size - 1,
                .reserve = fcntl(listener, F_DUPFD_CLOEXEC, 0),
                .keeps = true};
    core_status status;

    if (s.reserve < 0)
        status = failed(m->store, "rank 0 cannot accept connections");
    else if (!s.peers || !s.served)
        status = core__error_memory(size * sizeof *s.peers);
    else
        status = CORE_OK;
    if (status != CORE_OK) {
        core__free(s.peers);
        core__free(s.served);
        if (s.reserve >= 0)
            close(s.reserve);
        return status;
    }
    for (uint32_t r = 0; r < size; r++)
        s.peers[r] = -1;
    memcpy(s.reply.magic, magic, sizeof magic);
    memcpy(s.reply.id, id, ID);
    status = serve_all(&s);
    core__free(s.served);
    if (s.reserve >= 0)
        close(s.reserve);
    if (status == CORE_OK && s.keeps)
        *out_progress = core__progress_of_server(s.peers, size);
    else
        close_kept(&s);
    return status;
}

static core_status tcp_publish(const meeting *m, const void *id,
                               core__progress **out_progress)
{
    struct addrinfo *found;
    core_status status;
    int listener, yes = 1;

    CORE_TRY(resolve(m->store, true, &found));
    listener =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0)
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listener < 0 ||
        bind(listener, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(listener, SOMAXCONN) != 0)
        status = failed(m->store, "rank 0 cannot listen");
    else
        status = tcp_serve(m, listener, id, out_progress);
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

    if (connect(socket, to->ai_addr, to->ai_addrlen) == 0)
        return true;
    return errno == EINPROGRESS && poll(&ready, 1, left_ms(deadline)) > 0 &&
           getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
           error == 0;
}

static core_status cannot_connect(const char *store, uint32_t rank)
{
    char what[64];

    snprintf(what, sizeof what, "rank %u cannot connect", rank);
    return failed(store, what);
}

/* What rank 0 has answered over a connection. */
static core_status accept_reply(const meeting *m, reply *from, int peer,
                                void *id, core__progress **out_progress)
{
    if (from->status == CORE_OK) {
        memcpy(id, from->id, ID);
        *out_progress = core__progress_of_client(peer, m->rank, m->size);
        return CORE_OK;
    }
    close(peer);
    return core__error(from->status, "%.499s", from->text);
}

/* Rank 0 waits as long as this rank, and then says which rank is missing; a second
 * more is for that. */
static core_status tcp_fetch(const meeting *m, void *id,
                             core__progress **out_progress)
{
    hello mine = {.rank = m->rank, .size = m->size};
    int64_t deadline = m->deadline;
    reply from;

    memcpy(mine.magic, magic, sizeof magic);
    memcpy(mine.about, m->about, ABOUT);
    for (;;) {
        struct addrinfo *found;
        bool done;
        int peer;

        CORE_TRY(resolve(m->store, false, &found));
        peer = socket(found->ai_family,
                      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (peer < 0) {
            cannot_connect(m->store, m->rank);
            freeaddrinfo(found);
            return CORE_ERROR_IO;
        }
        done = connect_by(peer, found, deadline) &&
               core__store_transfer(peer, &mine, sizeof mine, true, deadline) &&
               core__store_transfer(peer, &from, sizeof from, false,
                                    deadline + SECOND) &&
               memcmp(from.magic, magic, sizeof magic) == 0;
        freeaddrinfo(found);
        if (done)
            return accept_reply(m, &from, peer, id, out_progress);
        close(peer);
        if (core__store_now_ns() > deadline)
            return late(m->store, "rank 0 sent the id");
        pause_short();
    }
}

/* -------------------------------------------------------------- public -- */

static core_status share_id(const meeting *m, void *id,
                            core__progress **out_progress)
{
    const char *store = m->store, *path;

    if (strncmp(store, "file:", 5) == 0 && store[5]) {
        path = store + 5;
        return m->rank == 0 ? file_publish(m, path, id, out_progress)
                            : file_fetch(m, path, id, out_progress);
    }
    if (strncmp(store, "tcp:", 4) == 0)
        return m->rank == 0 ? tcp_publish(m, id, out_progress)
                            : tcp_fetch(m, id, out_progress);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_comm_create: the store is \"%.200s\"; accepted: "
                       "file:PATH or tcp:HOST:PORT",
                       store);
}

core_status core__store_share_id(const char *store, uint32_t rank,
                                 uint32_t size, int64_t timeout_ns,
                                 const char *about, void *id,
                                 core__progress **out_progress)
{
    const meeting m = {store, rank, size, core__store_now_ns() + timeout_ns,
                       about};

    *out_progress = NULL;
    CORE_TRY(share_id(&m, id, out_progress));
    core__progress_set_timeout(*out_progress, timeout_ns);
    return CORE_OK;
}

void core__store_end(const char *store, uint32_t rank)
{
    if (rank == 0 && strncmp(store, "file:", 5) == 0)
        unlink(store + 5);
}
