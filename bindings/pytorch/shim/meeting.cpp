/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How the ranks of a process group find each other, for engines without a
 * launcher. */

#include "group.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace libcore_torch
{

/* Of a port that nobody listens on: core_comm_create listens next. */
static int free_port()
{
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found;

    address.sin_family = AF_INET;
    TORCH_CHECK(probe >= 0, "libcore: there is no socket");
    found = bind(probe, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
            getsockname(probe, reinterpret_cast<sockaddr *>(&address),
                        &size) == 0;
    close(probe);
    TORCH_CHECK(found, "libcore: no port is free");
    return ntohs(address.sin_port);
}

std::string meet(const Meeting &meeting, size_t number, bool first,
                 std::chrono::milliseconds timeout)
{
    std::string key = "libcore/" + std::to_string(number);

    if (!meeting.store.empty()) /* one file for each communicator */
        return meeting.store.rfind("file:", 0) == 0 && number > 0
                   ? meeting.store + "." + std::to_string(number)
                   : meeting.store;
    if (first)
        meeting.board->set(key, "tcp:" + meeting.host + ":" +
                                    std::to_string(free_port()));
    meeting.board->wait({key}, timeout);
    std::vector<uint8_t> found = meeting.board->get(key);

    return std::string(found.begin(), found.end());
}

} // namespace libcore_torch
