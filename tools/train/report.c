/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "train.h"

#include "base/json.h"

#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double report_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds as 7 s, 1:05 or 2:03:04. */
static const char *duration(char *text, size_t size, double seconds)
{
    long whole = (long)(seconds + 0.5);

    if (whole < 60)
        snprintf(text, size, "%ld s", whole);
    else if (whole < 3600)
        snprintf(text, size, "%ld:%02ld", whole / 60, whole % 60);
    else
        snprintf(text, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60,
                 whole % 60);
    return text;
}

void report_start(report *r, const trainer *t)
{
    const train_options *options = &t->options;
    core_device_information information = {.struct_size = sizeof information};
    uint32_t threads = 0;

    *r = (report){.text = options->json ? stderr : stdout,
                  .json = options->json,
                  .epochs = options->epochs,
                  .images = t->train.count};
    r->bar = isatty(fileno(r->text));
    /* Only shown: a device that does not tell goes without. */
    if (core_device_get_information(t->device, &information) != CORE_OK)
        information.name = (core_string){"", 0};
    if (core_threads_get(&threads) != CORE_OK)
        threads = 0;
    fprintf(r->text, "model   %s (%s, %lld parameters)\n", t->model.kind->name,
            t->model.kind->description, (long long)train_model_size(&t->model));
    fprintf(r->text, "device  %s", core_device_name(t->device));
    if (information.name.size)
        fprintf(r->text, " (%.*s)", (int)information.name.size,
                information.name.data);
    if (threads)
        fprintf(r->text, ", %u thread%s", threads, threads == 1 ? "" : "s");
    fprintf(r->text,
            "\ndata    %lld images, %lld to test with\n"
            "steps   %s, lr %g, batch %lld, seed %llu\n",
            (long long)t->train.count, (long long)t->test.count,
            train_optimizers[options->optimizer], options->lr,
            (long long)options->batch, (unsigned long long)options->seed);
    if (t->epoch || t->position)
        fprintf(r->text, "resume  after epoch %lld, image %lld\n",
                (long long)t->epoch, (long long)t->position);
    fflush(r->text);
    r->begin = report_now();
}

void report_epoch_begin(report *r, const trainer *t)
{
    r->epoch_begin = report_now();
    r->first = t->position;
}

static void draw(report *r, const trainer *t, double now)
{
    struct winsize window;
    double rate = (double)(t->position - r->first) / (now - r->epoch_begin);
    int64_t left = (r->epochs - t->epoch) * r->images - t->position;
    int width = 80, room, filled;
    char eta[32];

    if (ioctl(fileno(r->text), TIOCGWINSZ, &window) == 0 && window.ws_col)
        width = window.ws_col;
    duration(eta, sizeof eta, rate > 0 ? (double)left / rate : 0);
    fprintf(r->text, "\repoch %3lld/%lld ", (long long)t->epoch + 1,
            (long long)r->epochs);
    room = width - 56 < 30 ? width - 56 : 30;
    if (room > 3) {
        filled = (int)((double)room * (double)t->position / (double)r->images);
        fputc('[', r->text);
        for (int i = 0; i < room; i++)
            fputc(i < filled ? '=' : i == filled ? '>' : ' ', r->text);
        fputs("] ", r->text);
    }
    fprintf(r->text, "%3.0f %%  %.0f images/s  %s left\033[K",
            100.0 * (double)t->position / (double)r->images, rate, eta);
    fflush(r->text);
    r->shown = true;
    r->drawn = now;
}

void report_batch(report *r, const trainer *t)
{
    double now;

    if (!r->bar)
        return;
    now = report_now();
    if (now - r->drawn > 0.1)
        draw(r, t, now);
}

void report_clear(report *r)
{
    if (r->shown) {
        fputs("\r\033[K", r->text);
        fflush(r->text);
    }
    r->shown = false;
}

void report_epoch(report *r, const trainer *t, const train_score *train,
                  const train_score *test)
{
    double seconds = report_now() - r->epoch_begin;
    int64_t images = t->train.count - r->first;

    r->done += images;
    report_clear(r);
    fprintf(r->text,
            "epoch %3lld/%lld  loss %.4f  train %5.2f %%  test %5.2f %%  "
            "%.1f s  %.0f images/s\n",
            (long long)t->epoch, (long long)r->epochs, train->loss,
            100 * train->accuracy, 100 * test->accuracy, seconds,
            (double)images / seconds);
    fflush(r->text);
    if (r->json) {
        core__json json;

        core__json_begin(&json, core__json_to_file, stdout);
        json.flat = true;
        core__json_object(&json, NULL);
        core__json_integer(&json, "epoch", t->epoch);
        core__json_number(&json, "train_loss", train->loss);
        core__json_number(&json, "train_accuracy", train->accuracy);
        core__json_number(&json, "test_loss", test->loss);
        core__json_number(&json, "test_accuracy", test->accuracy);
        core__json_number(&json, "seconds", seconds);
        core__json_end(&json);
        core__json_finish(&json);
        fflush(stdout);
    }
}

static bool result_json(const report *r, const trainer *t, double seconds,
                        const train_score *train, const train_score *test,
                        const char *digest)
{
    core__json json;

    core__json_begin(&json, core__json_to_file, stdout);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_text(&json, "model", t->model.kind->name);
    core__json_text(&json, "device", core_device_name(t->device));
    core__json_integer(&json, "epochs", t->epoch);
    if (train) {
        core__json_number(&json, "train_loss", train->loss);
        core__json_number(&json, "train_accuracy", train->accuracy);
    }
    core__json_number(&json, "test_loss", test->loss);
    core__json_number(&json, "test_accuracy", test->accuracy);
    core__json_number(&json, "seconds", seconds);
    core__json_number(&json, "images_per_second",
                      seconds > 0 ? (double)r->done / seconds : 0);
    core__json_text(&json, "weights", digest);
    core__json_text(&json, "checkpoint", t->options.save);
    core__json_end(&json);
    return core__json_finish(&json);
}

core_status report_result(report *r, const trainer *t, const train_score *train,
                          const train_score *test)
{
    double seconds = report_now() - r->begin;
    uint64_t digest;
    char text[32];

    CORE_TRY(train_model_digest(&t->model, &digest));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)digest);
    fprintf(r->text, "test accuracy %.2f %%, loss %.4f, after %lld epoch%s",
            100 * test->accuracy, test->loss, (long long)t->epoch,
            t->epoch == 1 ? "" : "s");
    fprintf(r->text, "; %s\nweights %s\n", duration((char[32]){0}, 32, seconds),
            text);
    if (t->options.save)
        fprintf(r->text, "saved %s\n", t->options.save);
    fflush(r->text);
    if (r->json && !result_json(r, t, seconds, train, test, text))
        return train_error(CORE_ERROR_IO,
                           "cannot write to the standard output");
    if (fflush(stdout) != 0 || ferror(stdout))
        return train_error(CORE_ERROR_IO,
                           "cannot write to the standard output");
    return CORE_OK;
}
