/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* --profile: records some steps after the warm-up and writes table, trace,
 * stacks and HTML page into a folder. */

#include "train.h"

#include <libcore/profiler.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { WAIT = 5, WARMUP = 5, ACTIVE = 20 };

static core_status write_table(core_profiler *profiler, const char *path)
{
    FILE *file = fopen(path, "w");
    char *text = NULL;
    core_status status;
    bool good;

    if (!file)
        return train_error(CORE_ERROR_IO, "cannot write %s: %s", path,
                           strerror(errno));
    status = core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text);
    good = status == CORE_OK && fputs(text, file) >= 0;
    good = fclose(file) == 0 && good;
    core_text_free(text);
    if (status == CORE_OK && !good)
        return train_error(CORE_ERROR_IO, "cannot write %s: %s", path,
                           strerror(errno));
    return status;
}

static core_status write_reports(core_profiler *profiler, void *user)
{
    static const struct {
        const char *name;
        core_status (*save)(core_profiler *profiler, const char *path);
    } reports[] = {
        {"table.txt", write_table},
        {"trace.json", core_profiler_save_trace},
        {"stacks.txt", core_profiler_save_stacks},
        {"report.html", core_profiler_save_html},
    };
    trainer *t = user;
    char path[4096];

    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        int size = snprintf(path, sizeof path, "%s/%s", t->options.profile,
                            reports[i].name);

        if (size < 0 || (size_t)size >= sizeof path)
            return train_error(CORE_ERROR_INVALID_ARGUMENT,
                               "--profile: the path is too long");
        CORE_TRY(reports[i].save(profiler, path));
    }
    t->profiled = true;
    return CORE_OK;
}

/* Training continues if its reports cannot be written. */
static core_status ready(core_profiler *profiler, void *user)
{
    trainer *t = user;

    t->unprofiled = write_reports(profiler, t) != CORE_OK;
    if (t->unprofiled)
        train_report_missing(t);
    return CORE_OK;
}

/* Reports an unusable folder before training starts. */
core_status train_profile_check(const trainer *t)
{
    struct stat found;

    if (!t->options.profile)
        return CORE_OK;
    if (mkdir(t->options.profile, 0777) != 0 && errno != EEXIST)
        return train_error(CORE_ERROR_IO, "--profile: cannot create %s: %s",
                           t->options.profile, strerror(errno));
    if (stat(t->options.profile, &found) != 0 || !S_ISDIR(found.st_mode))
        return train_error(CORE_ERROR_IO, "--profile: %s is not a folder",
                           t->options.profile);
    return CORE_OK;
}

core_status train_profile_start(trainer *t)
{
    const core_profiler_options options = {
        .struct_size = sizeof options,
        .flags =
            CORE_PROFILE_SHAPES | CORE_PROFILE_MEMORY | CORE_PROFILE_DEVICE,
        .wait = WAIT,
        .warmup = WARMUP,
        .active = ACTIVE,
        .repeat = 1,
        .ready = ready,
        .user = t,
    };

    return t->options.profile ? core_profiler_start(&options, &t->profiler)
                              : CORE_OK;
}

/* An error here only ends the profile. */
void train_profile_step(trainer *t)
{
    if (!t->profiler || core_profiler_step(t->profiler) == CORE_OK)
        return;
    train_report_missing(t);
    core_profiler_release(t->profiler);
    t->profiler = NULL;
}

/* Training is over but may not be saved yet, so errors are only reported. */
void train_profile_stop(trainer *t)
{
    core_status status;

    if (!t->profiler)
        return;
    status = core_profiler_stop(t->profiler);
    core_profiler_release(t->profiler);
    t->profiler = NULL;
    if (status == CORE_OK && !t->profiled && !t->unprofiled)
        status =
            train_error(CORE_ERROR_INVALID_ARGUMENT,
                        "--profile: nothing was recorded; it records the %d "
                        "steps after the first %d, and training had fewer",
                        ACTIVE, WAIT + WARMUP);
    if (status == CORE_OK)
        return;
    fprintf(stderr, "core-train: %s\n", core_error_message());
    core_error_clear();
    t->unreported = true;
}
