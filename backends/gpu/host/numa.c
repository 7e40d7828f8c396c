/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* numa.c: the NUMA node of a GPU, from Linux. */

#include <gpu/host/host.h>

#include <ctype.h>
#include <stdio.h>

uint32_t gpu_numa_node(const char *folder, const char *stable_id)
{
    char path[512];
    long node = -1;
    size_t n, begin;
    FILE *file;

    if (strncmp(stable_id, "pci-", 4) != 0 || stable_id[4] == 0 ||
        strspn(stable_id + 4, "0123456789abcdefABCDEF:.") !=
            strlen(stable_id + 4) ||
        strstr(stable_id, "..") != NULL)
        return UINT32_MAX;
    begin = (size_t)snprintf(path, sizeof path, "%s/", folder);
    n = begin + (size_t)snprintf(path + begin, sizeof path - begin,
                                 "%s%s/numa_node", stable_id + 4,
                                 strchr(stable_id, '.') == NULL ? ".0" : "");
    if (n >= sizeof path)
        return UINT32_MAX;
    /* The folders have lower-case names; HIP writes upper case. */
    for (size_t i = begin; i < n; i++)
        path[i] = (char)tolower((unsigned char)path[i]);
    file = fopen(path, "re");
    if (file == NULL)
        return UINT32_MAX;
    if (fscanf(file, "%9ld", &node) != 1)
        node = -1;
    fclose(file);
    return node < 0 ? UINT32_MAX : (uint32_t)node;
}
