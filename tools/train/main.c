/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core-train: trains image classifiers, and a transformer on text. */

#include "train.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHECK_STEPS = 100 };
enum { EXIT_USAGE = 2, EXIT_INTERRUPTED = 130, EXIT_TERMINATED = 143 };

core_status train_error(core_status code, const char *format, ...)
{
    char message[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return core_error_set(code, message);
}

void train_report_missing(trainer *t)
{
    fprintf(stderr, "core-train: %s; training continues\n",
            core_error_message());
    core_error_clear();
    t->unreported = true;
}

/* -------------------------------------------------------------- signals -- */

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

/* The first signal ends training after the batch; the second ends the process,
 * in case a device hangs. */
static void catch_signals(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A file size limit is an error, like a full disk. */
    signal(SIGXFSZ, SIG_IGN);
}

/* ---------------------------------------------------------- setting up -- */

static core_status open_devices(trainer *t)
{
    const train_options *options = &t->options;
    const char *names = options->devices, *end;
    char name[64];

    if (!names)
        CORE_TRY(core_device_default(&t->devices[t->ndevices++]));
    for (; names; names = *end ? end + 1 : NULL) {
        end = names + strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)(end - names), names);
        CORE_TRY(core_device_find(name, &t->devices[t->ndevices++]));
    }
    t->device = t->devices[0];
    /* Devices of the command line were checked by check_devices in
     * options.c. */
    if (strcmp(core_device_name(t->device), "meta") == 0)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "LIBCORE_DEVICE is \"meta\", which has shapes but "
                           "no data; core-train needs a device that computes");
    return options->threads ? core_threads_set(options->threads) : CORE_OK;
}

static core_status create_progress(trainer *t)
{
    const float loss = 0;
    const int64_t correct = 0;

    CORE_TRY(core_tensor_from_data(&loss, CORE_F32, NULL, 0, t->device,
                                   &t->loss_sum));
    return core_tensor_from_data(&correct, CORE_I64, NULL, 0, t->device,
                                 &t->correct);
}

/* Detects all errors that can be detected before training begins. */
static core_status set_up(trainer *t)
{
    train_options *options = &t->options;
    core_safetensors *file = NULL;
    core_status status = CORE_OK;

    if (options->save)
        status = core_safetensors_check_path(options->save);
    if (status == CORE_OK)
        status = train_profile_check(t);
    if (status == CORE_OK)
        status = train_plot_write(t);
    if (status == CORE_OK && options->resume)
        status = core_safetensors_open(options->resume, &file);
    if (status == CORE_OK && file)
        status = checkpoint_options(file, options->resume, options);
    if (status == CORE_OK && file)
        status = train_options_check(options);
    if (status == CORE_OK)
        status = open_devices(t);
    if (status == CORE_OK)
        status = train_distributed_connect(t);
    if (status == CORE_OK)
        t->task = train_model_find(options->model)->task;
    if (status == CORE_OK)
        status = t->task->load(t);
    if (status == CORE_OK) {
        core_seed((uint64_t)options->seed);
        status = train_model_build(&t->model, options, t->task->classes(t),
                                   t->devices, t->ndevices, t->tensor);
    }
    if (status == CORE_OK)
        status = train_shard_create(t);
    if (status == CORE_OK)
        status = trainer_create_optimizer(t);
    if (status == CORE_OK)
        status = train_amp_create(t);
    if (status == CORE_OK)
        status = create_progress(t);
    if (status == CORE_OK && file)
        status = checkpoint_load(file, options->resume, t);
    if (status == CORE_OK)
        status = train_distributed_create(t);
    if (status == CORE_OK)
        status = train_compile_create(t);
    core_safetensors_close(file);
    return status;
}

/* ------------------------------------------------------------- training -- */

static core_status save(trainer *t)
{
    CORE_TRY(train_distributed_collect(t));
    CORE_TRY(train_shard_save(t));
    /* Ranks that have parts of it help the one that writes. */
    if (!t->shard_save || (t->rank > 0 && !t->model.pieces))
        return CORE_OK;
    CORE_TRY(checkpoint_save(t, t->options.save));
    train_shard_remove(t);
    return CORE_OK;
}

static bool stops(const trainer *t)
{
    return t->options.steps >= 0 && trainer_steps(t) >= t->options.steps;
}

/* Trains the rest of an epoch; *out_done is false if a signal, *out_signal, or
 * --steps ended it early. */
static core_status run_epoch(trainer *t, report *r, bool *out_done,
                             int *out_signal)
{
    int64_t log = t->options.log;

    *out_done = false;
    *out_signal = 0;
    CORE_TRY(trainer_begin_epoch(t));
    report_epoch_begin(r, t);
    while (t->position < t->train.count) {
        bool logs = log && (trainer_steps(t) + 1) % log == 0;

        if (stops(t))
            return CORE_OK;
        CORE_TRY(train_distributed_notice(t, caught, out_signal));
        if (*out_signal)
            return CORE_OK;
        CORE_TRY(trainer_batch(t, logs));
        train_profile_step(t);
        report_batch(r, t);
        if (logs)
            report_step(r, t);
        /* Not after every batch, because the host would wait for the device. */
        if (logs || trainer_steps(t) % CHECK_STEPS == 0)
            CORE_TRY(trainer_check(t, true));
    }
    *out_done = true;
    return CORE_OK;
}

static core_status finish_epoch(trainer *t, report *r, train_score *train,
                                train_score *test)
{
    CORE_TRY(trainer_check(t, false));
    CORE_TRY(trainer_epoch_score(t, train));
    CORE_TRY(trainer_evaluate(t, test));
    CORE_TRY(trainer_end_epoch(t));
    report_epoch(r, t, train, test);
    train_plot_add(t, train, test);
    return save(t);
}

static void report_interruption(const trainer *t)
{
    if (t->profiled)
        fprintf(stderr, "core-train: profile in %s\n", t->options.profile);
    if (!t->options.save)
        fprintf(stderr,
                "core-train: interrupted in epoch %lld; nothing was saved (use "
                "--save FILE)\n",
                (long long)t->epoch + 1);
    else
        fprintf(stderr,
                "core-train: interrupted in epoch %lld after %lld %s; continue "
                "with --resume %s\n",
                (long long)t->epoch + 1, (long long)t->position,
                t->task->samples, t->options.save);
}

static core_status interrupted(trainer *t, report *r)
{
    core_status status;

    report_clear(r);
    train_profile_stop(t);
    if (t->shard_save) {
        status = trainer_check(t, false);
        if (status != CORE_OK)
            return train_error(status, "interrupted; %s", core_error_message());
        CORE_TRY(save(t));
    }
    if (!t->quiet)
        report_interruption(t);
    return train_distributed_wait(t);
}

/* Reports the current model. */
static core_status result(trainer *t, report *r, const train_score *train,
                          const train_score *test)
{
    int64_t size = t->text.count ? t->options.sample : 0;
    train_confusion confusion = {0};
    char *sample = NULL;
    core_status status = CORE_OK;

    if (t->task == &train_images_task)
        status = train_confuse(t, &confusion);
    if (status == CORE_OK && size) {
        sample = malloc((size_t)size + 1);
        status = sample ? train_text_sample(t, size, sample)
                        : train_error(CORE_ERROR_OUT_OF_MEMORY,
                                      "no memory for a text");
    }
    if (status == CORE_OK)
        status = report_result(r, t, train, test, &confusion, sample);
    free(sample);
    return status;
}

static core_status train(trainer *t, int *out_exit)
{
    train_score train, test;
    bool trained = false, done = true;
    int signal;
    report r;

    report_start(&r, t);
    catch_signals();
    CORE_TRY(train_profile_start(t));
    while (t->epoch < t->options.epochs && !stops(t)) {
        core_status status = run_epoch(t, &r, &done, &signal);

        if (status == CORE_OK && done)
            status = finish_epoch(t, &r, &train, &test);
        if (status != CORE_OK) {
            report_clear(&r);
            return status;
        }
        if (!done && signal) {
            *out_exit = signal == SIGINT ? EXIT_INTERRUPTED : EXIT_TERMINATED;
            return interrupted(t, &r);
        }
        trained = done;
    }
    report_clear(&r);
    train_profile_stop(t);
    if (t->unreported)
        *out_exit = EXIT_FAILURE;
    if (!trained) {
        CORE_TRY(trainer_check(t, false));
        CORE_TRY(trainer_evaluate(t, &test));
        CORE_TRY(save(t));
    }
    return t->rank == 0 || t->model.pieces
               ? result(t, &r, trained ? &train : NULL, &test)
               : CORE_OK;
}

/* The place in this program, " (at FILE.c:LINE)", that a scope appends; NULL if
 * there is none. */
static const char *find_place(const char *text)
{
    const char *at = NULL, *line;

    for (const char *next = text; (next = strstr(next, " (at ")); next++)
        at = next;
    line = at ? strstr(at, ".c:") : NULL;
    if (!line)
        return NULL;
    line += 3;
    return strcmp(line + strspn(line, "0123456789"), ")") == 0 ? at : NULL;
}

static void print_failure(void)
{
    const char *text = core_error_message(), *place = find_place(text);
    size_t size = place ? (size_t)(place - text) : strlen(text);

    fprintf(stderr, "core-train: %.*s\n", (int)size, text);
}

/* What the command line says, and the file with the name of --save that was there
 * before: not of this run, unless this resumes it. */
typedef struct start {
    train_options options;
    struct stat older; /* all 0: there was none */
} start;

static void remember(start *s, const train_options *options)
{
    memset(s, 0, sizeof *s);
    s->options = *options;
    if (!options->save || stat(options->save, &s->older) != 0)
        memset(&s->older, 0, sizeof s->older);
}

/* A checkpoint is written to another file, which is then renamed. */
static bool has_saved(const start *s)
{
    const struct stat *older = &s->older;
    const char *save = s->options.save;
    struct stat now;

    return save && stat(save, &now) == 0 &&
           (now.st_dev != older->st_dev || now.st_ino != older->st_ino ||
            now.st_size != older->st_size ||
            now.st_mtim.tv_sec != older->st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != older->st_mtim.tv_nsec);
}

/* All ranks must have read the same checkpoint. */
static core_status compare_position(const trainer *t)
{
    uint64_t digest = (uint64_t)trainer_steps(t);

    digest = digest * 1000003 + (uint64_t)t->epoch;
    digest = digest * 1000003 + (uint64_t)t->position;
    return train_distributed_compare(t, t->comm, digest,
                                     "the position in the checkpoint", "");
}

/* The ranks that are left begin again at the last checkpoint of this run, or where it
 * began; rank 0 of them decides. */
static core_status go_on(trainer *t, const start *s, core_comm *rest,
                         int *out_exit)
{
    int64_t saved;

    *out_exit = EXIT_SUCCESS;
    trainer_release(t);
    t->options = s->options;
    t->comm = rest;
    CORE_TRY(train_distributed_choose(t, rest, has_saved(s), &saved));
    if (saved)
        t->options.resume = s->options.save;
    if (core_comm_rank(rest) == 0)
        fprintf(stderr, "core-train: %u ranks go on from %s\n",
                core_comm_size(rest),
                t->options.resume ? t->options.resume : "the beginning");
    CORE_TRY(set_up(t));
    CORE_TRY(compare_position(t));
    return train(t, out_exit);
}

int main(int argc, char **argv)
{
    trainer t;
    start begun;
    core_comm *rest;
    core_status status;
    bool nothing_to_do;
    int code = EXIT_SUCCESS;

    memset(&t, 0, sizeof t);
    status = train_options_parse(&t.options, argc, argv, &nothing_to_do);
    if (status == CORE_OK && nothing_to_do)
        status = report_flush();
    else if (status != CORE_OK)
        code = EXIT_USAGE;
    remember(&begun, &t.options);
    if (status == CORE_OK && !nothing_to_do)
        status = set_up(&t);
    if (status == CORE_OK && !nothing_to_do)
        status = train(&t, &code);
    while (status != CORE_OK && code != EXIT_USAGE) {
        print_failure();
        /* After a signal, the ranks were ending. */
        rest = code == EXIT_INTERRUPTED || code == EXIT_TERMINATED
                   ? NULL
                   : train_distributed_shrink(&t);
        if (!rest)
            break;
        status = go_on(&t, &begun, rest, &code);
    }
    if (status != CORE_OK) {
        if (code == EXIT_USAGE)
            print_failure();
        train_distributed_abort(&t);
        if (code != EXIT_USAGE)
            code = EXIT_FAILURE;
    }
    trainer_release(&t);
    return code;
}
