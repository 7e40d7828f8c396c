/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quarantine: opens one plugin, so that what it does when it is opened is done
 * here and not in the process that wants it (LIBCORE_QUARANTINE).  Its answer
 * goes to the standard output: "OK", or a status and the reason. */

#include <libcore/plugins.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char *wall(size_t size)
{
    void *at = mmap(NULL, size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* What is loaded next lies below this, and in no gap above it: a damaged
 * pointer that leads out of it is found here, wherever it would lead in the
 * process that wants it. */
static void make_moat(void)
{
    char *moat = wall((size_t)1 << 32);

    for (size_t size = 1 << 20; moat && size >= 4096; size /= 2)
        for (int gaps = 0; gaps < 65536 && wall(size) > moat; gaps++)
            ;
}

int main(int count, char **words)
{
    core_status status;
    int answers;

    if (count != 2) {
        fprintf(stderr, "usage: quarantine PLUGIN.so\n");
        return 2;
    }
    /* What the plugin prints is not the answer. */
    answers = fcntl(1, F_DUPFD_CLOEXEC, 3);
    if (answers < 0 || dup2(2, 1) < 0)
        return 2;
    make_moat();
    status = core_setting_set("LIBCORE_QUARANTINE", "0");
    if (status == CORE_OK)
        status = core_plugin_load(words[1], NULL);
    if (status == CORE_OK)
        dprintf(answers, "OK\n");
    else
        dprintf(answers, "%d %s\n", (int)status, core_error_message());
    /* Its code is not asked to end well here. */
    _exit(0);
}
