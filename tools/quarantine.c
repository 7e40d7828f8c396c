/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quarantine: opens one plugin, so that a crash while opening happens in this
 * process and not in the one that loads the plugin (LIBCORE_QUARANTINE).
 * Prints "OK", or a status and the reason, to standard output. */

#include <libcore/plugins.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char *reserve_range(size_t size)
{
    void *at = mmap(NULL, size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* Reserves the address space above, so that what is loaded next is placed below
 * it: an invalid pointer out of the plugin then faults here, wherever it would
 * point in the other process. */
static void reserve_above(void)
{
    char *top = reserve_range((size_t)1 << 32);

    for (size_t size = 1 << 20; top && size >= 4096; size /= 2)
        for (int gaps = 0; gaps < 65536 && reserve_range(size) > top; gaps++)
            ;
}

int main(int count, char **arguments)
{
    core_status status;
    int results;

    if (count != 2) {
        fprintf(stderr, "usage: quarantine PLUGIN.so\n");
        return 2;
    }
    /* The plugin's own output must not mix with the result. */
    results = fcntl(1, F_DUPFD_CLOEXEC, 3);
    if (results < 0 || dup2(2, 1) < 0)
        return 2;
    reserve_above();
    status = core_setting_set("LIBCORE_QUARANTINE", "0");
    if (status == CORE_OK)
        status = core_plugin_load(arguments[1], NULL);
    if (status == CORE_OK)
        dprintf(results, "OK\n");
    else
        dprintf(results, "%d %s\n", (int)status, core_error_message());
    /* Exits without running the plugin's destructors. */
    _exit(0);
}
