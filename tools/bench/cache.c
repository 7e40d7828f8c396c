/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A cache folder that starts empty, so that rows do not depend on what an
 * earlier run has left. */

#include "bench.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[4096];

static int remove_entry(const char *path, const struct stat *about, int type,
                        struct FTW *place)
{
    (void)about;
    (void)type;
    (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    if (*folder)
        nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    *folder = '\0';
}

void bench_cache_open(void)
{
    const char *parent = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/core-bench-XXXXXX",
             parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder) || atexit(remove_folder) != 0) {
        perror("core-bench: a temporary folder");
        exit(EXIT_FAILURE);
    }
    must(core_setting_set("LIBCORE_CACHE", folder));
}

void bench_cache_close(void)
{
    must(core_setting_set("LIBCORE_CACHE", NULL));
    remove_folder();
}
