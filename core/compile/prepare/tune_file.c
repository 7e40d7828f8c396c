/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Keeps what was measured (tune.h). */

#include "compile/prepare/tune.h"

#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "device/upcalls.h"
#include "io/cache_folder.h"
#include "io/file.h"

#include <libcore/settings.h>

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char title[] = "libcore choice 1";

static _Atomic uint64_t loaded, stored;

void core__choice_get_counts(uint64_t *out_loaded, uint64_t *out_stored)
{
    *out_loaded = atomic_load(&loaded);
    *out_stored = atomic_load(&stored);
}

void core__choice_name(core_program *part, core_device *device,
                       const void *ways, size_t size, char out_name[65])
{
    const core_plugin_seal *seal =
        core__device_upcalls.plugin_seal(device->backend->plugin);
    core_device_information about = {.struct_size = sizeof about};
    core__error_record before;
    char *text = NULL;
    uint32_t threads = 0;
    core__sha256 sha;

    out_name[0] = '\0';
    core__error_save(&before);
    if (seal && core_threads_get(&threads) == CORE_OK &&
        core_device_get_information(device, &about) == CORE_OK &&
        core_program_text(part, &text) == CORE_OK) {
        core__sha256_begin(&sha);
        core__sha256_add(&sha, title, sizeof title);
        core__sha256_add(&sha, text, strlen(text) + 1);
        core__sha256_add(&sha, about.name.data, about.name.size);
        core__sha256_add(&sha, about.features.data, about.features.size);
        core__sha256_add(&sha, seal, sizeof *seal);
        core__sha256_add(&sha, &threads, sizeof threads);
        core__sha256_add(&sha, ways, size);
        core__sha256_end(&sha, out_name);
    }
    core_text_free(text);
    core__error_restore(&before);
}

static core_status path_of(const char *name, char *path, size_t capacity)
{
    size_t length;

    if (!*name)
        return CORE_ERROR_UNSUPPORTED;
    CORE_TRY(core__cache_folder_make((core_string){"kernels", 7}, path,
                                     capacity - 80));
    length = strlen(path);
    snprintf(path + length, capacity - length, "/%s.choice.kernel", name);
    return CORE_OK;
}

/* Of the user, whom alone the folder lets write. */
static bool is_ours(int file)
{
    struct stat about;

    return fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
           about.st_uid == geteuid() && !(about.st_mode & (S_IWGRP | S_IWOTH));
}

/* The sum is also of the title, so a file of zeros is none. */
static uint64_t sum_of(const core__choice *choice)
{
    uint64_t sum = UINT64_C(0x63686f6963650001);

    for (int i = 0; i < CORE__CHOICE_NUMBERS; i++)
        sum = (sum ^ choice->numbers[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return sum;
}

typedef struct choice_file {
    core__choice choice;
    uint64_t sum;
} choice_file;

bool core__choice_load(const char *name, core__choice *out_choice)
{
    char path[PATH_MAX];
    core__error_record before;
    choice_file content;
    bool good = false;
    int file = -1;

    core__error_save(&before);
    if (path_of(name, path, sizeof path) == CORE_OK)
        file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    core__error_restore(&before);
    if (file < 0)
        return false;
    if (is_ours(file) &&
        read(file, &content, sizeof content) == (ssize_t)sizeof content)
        good = sum_of(&content.choice) == content.sum;
    close(file);
    if (good) {
        *out_choice = content.choice;
        atomic_fetch_add(&loaded, 1);
    }
    return good;
}

static core_status store(const char *path, const choice_file *content)
{
    core__file file;
    core_status status = core__file_begin(&file, path);

    if (status != CORE_OK)
        return status;
    (void)!fchmod(file.fd, 0600);
    status = core__file_write(&file, content, sizeof *content);
    if (status == CORE_OK)
        status = core__file_commit(&file);
    core__file_end(&file);
    return status;
}

void core__choice_store(const char *name, const core__choice *choice)
{
    const choice_file content = {*choice, sum_of(choice)};
    char path[PATH_MAX];
    core__error_record before;
    core_status status;

    core__error_save(&before);
    status = path_of(name, path, sizeof path);
    if (status == CORE_OK)
        status = store(path, &content);
    if (status == CORE_OK)
        atomic_fetch_add(&stored, 1);
    else if (status != CORE_ERROR_UNSUPPORTED)
        core__log(CORE_LOG_WARNING, "compile",
                  "what was measured is not kept: %s", core_error_message());
    core__error_restore(&before);
}
