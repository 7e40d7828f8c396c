/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "parameter_shards.h"

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

/* The names of all devices, separated by commas. */
static const char *names_of(const trainer *t, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < t->ndevices && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "",
                                 core_device_name(t->devices[i]));
    return text;
}

/* Of ranks that report nothing; standard error if there is no /dev/null. */
static FILE *silence(void)
{
    FILE *file = fopen("/dev/null", "w");

    return file ? file : stderr;
}

void report_start(report *r, const trainer *t)
{
    const train_options *options = &t->options;
    core_device_information information = {.struct_size = sizeof information};
    uint32_t threads = 0;
    char names[256];

    *r = (report){.text = t->quiet        ? silence()
                          : options->json ? stderr
                                          : stdout,
                  .json = options->json,
                  .epochs = options->epochs,
                  .samples = t->train.count};
    r->bar = isatty(fileno(r->text));
    /* Only for display: a device may have no information. */
    if (core_device_get_information(t->device, &information) != CORE_OK)
        information.name = (core_string){"", 0};
    if (core_threads_get(&threads) != CORE_OK)
        threads = 0;
    fprintf(r->text, "model   %s (%s, %lld parameters)\n", t->model.kind->name,
            t->model.kind->description, (long long)train_model_size(&t->model));
    fprintf(r->text, "device  %s", names_of(t, names, sizeof names));
    if (information.name.size && t->ndevices == 1)
        fprintf(r->text, " (%.*s)", (int)information.name.size,
                information.name.data);
    if (threads)
        fprintf(r->text, ", %u thread%s", threads, threads == 1 ? "" : "s");
    if (t->comm)
        fprintf(r->text, "\nranks   %u, %s", t->processes,
                options->distributed);
    if (t->tensor)
        fprintf(r->text, ", %u for each model", core_comm_size(t->tensor));
    fprintf(r->text,
            "\ndata    %lld %s, %lld for %s\n"
            "steps   %lld an epoch: %s, lr %g, batch %lld, seed %lld\n",
            (long long)t->train.count, t->task->samples,
            (long long)t->test.count, t->task->half,
            (long long)trainer_steps_per_epoch(t),
            train_optimizers[options->optimizer], options->lr,
            (long long)options->batch, (long long)options->seed);
    if (options->amp != TRAIN_AMP_OFF)
        fprintf(r->text, "amp     %s%s\n", train_amps[options->amp],
                t->scaler      ? ", losses scaled"
                : t->model.fp8 ? " in linear layers, delayed scaling"
                               : "");
    if (t->epoch || t->position)
        fprintf(r->text, "resume  after epoch %lld, %s %lld\n",
                (long long)t->epoch, t->task->samples, (long long)t->position);
    fflush(r->text);
    r->begin = report_now();
}

void report_epoch_begin(report *r, const trainer *t)
{
    r->epoch_begin = report_now();
    r->first = r->reached = t->position;
}

static void draw(report *r, const trainer *t, double now)
{
    struct winsize window;
    double rate = (double)(t->position - r->first) / (now - r->epoch_begin);
    double units = rate * (double)t->task->labels(t);
    int64_t left = (r->epochs - t->epoch) * r->samples - t->position;
    int width = 80, cells, filled;
    char eta[32];

    if (ioctl(fileno(r->text), TIOCGWINSZ, &window) == 0 && window.ws_col)
        width = window.ws_col;
    duration(eta, sizeof eta, rate > 0 ? (double)left / rate : 0);
    fprintf(r->text, "\repoch %3lld/%lld ", (long long)t->epoch + 1,
            (long long)r->epochs);
    cells = width - 56 < 30 ? width - 56 : 30;
    if (cells > 3) {
        filled =
            (int)((double)cells * (double)t->position / (double)r->samples);
        fputc('[', r->text);
        for (int i = 0; i < cells; i++)
            fputc(i < filled ? '=' : i == filled ? '>' : ' ', r->text);
        fputs("] ", r->text);
    }
    fprintf(r->text, "%3.0f %%  %.0f %s/s  %s left\033[K",
            100.0 * (double)t->position / (double)r->samples, units,
            t->task->unit, eta);
    fflush(r->text);
    r->shown = true;
    r->drawn = now;
}

void report_batch(report *r, const trainer *t)
{
    double now;

    r->done += t->position - r->reached;
    r->reached = t->position;
    if (!r->bar)
        return;
    now = report_now();
    if (now - r->drawn > 0.1)
        draw(r, t, now);
}

void report_step(report *r, const trainer *t)
{
    double lr = t->optimizer ? core_optimizer_learning_rate(t->optimizer) : 0;
    core__json json;

    report_clear(r);
    fprintf(r->text, "step %6lld  loss %.4f  lr %.3g\n",
            (long long)trainer_steps(t), t->last_loss, lr);
    fflush(r->text);
    if (!r->json)
        return;
    core__json_begin(&json, core__json_to_file, stdout);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_integer(&json, "step", trainer_steps(t));
    core__json_number(&json, "loss", t->last_loss);
    core__json_number(&json, "lr", lr);
    core__json_end(&json);
    core__json_finish(&json);
    fflush(stdout);
}

void report_clear(report *r)
{
    if (r->shown) {
        fputs("\r\033[K", r->text);
        fflush(r->text);
    }
    r->shown = false;
}

/* Loss and accuracy of a half, under names that begin with it. */
static void score_json(core__json *json, const char *half,
                       const train_score *score)
{
    char name[32];

    snprintf(name, sizeof name, "%s_loss", half);
    core__json_number(json, name, score->loss);
    snprintf(name, sizeof name, "%s_accuracy", half);
    core__json_number(json, name, score->accuracy);
}

void report_epoch(report *r, const trainer *t, const train_score *train,
                  const train_score *test)
{
    double seconds = report_now() - r->epoch_begin;
    int64_t samples = t->train.count - r->first;

    report_clear(r);
    fprintf(r->text,
            "epoch %3lld/%lld  loss %.4f  train %5.2f %%  %s %.4f %5.2f %%  "
            "%.1f s  %.0f %s/s\n",
            (long long)t->epoch, (long long)r->epochs, train->loss,
            100 * train->accuracy, t->task->half, test->loss,
            100 * test->accuracy, seconds,
            (double)(samples * t->task->labels(t)) / seconds, t->task->unit);
    fflush(r->text);
    if (r->json) {
        core__json json;

        core__json_begin(&json, core__json_to_file, stdout);
        json.flat = true;
        core__json_object(&json, NULL);
        core__json_integer(&json, "epoch", t->epoch);
        score_json(&json, "train", train);
        score_json(&json, t->task->half, test);
        core__json_number(&json, "seconds", seconds);
        core__json_end(&json);
        core__json_finish(&json);
        fflush(stdout);
    }
}

static void compile_text(FILE *text, const train_compile_counts *counts)
{
    fprintf(text,
            "compile %lld step%s ran a program, %lld were called as they are; "
            "%lld recording%s took %.1f ms\n",
            (long long)counts->compiled, counts->compiled == 1 ? "" : "s",
            (long long)counts->eager, (long long)counts->traces,
            counts->traces == 1 ? "" : "s", 1e3 * counts->trace_seconds);
    if (counts->graph_launches)
        fprintf(text, "        %lld steps launched a graph\n",
                (long long)counts->graph_launches);
    if (counts->reasons[0])
        fprintf(text, "        not compiled: %s\n", counts->reasons);
}

static void compile_json(core__json *json, const train_compile_counts *counts)
{
    core__json_object(json, "compile");
    core__json_integer(json, "compiled_steps", counts->compiled);
    core__json_integer(json, "eager_steps", counts->eager);
    core__json_integer(json, "programs", counts->programs);
    core__json_integer(json, "graph_launches", counts->graph_launches);
    core__json_integer(json, "recordings", counts->traces);
    core__json_number(json, "recording_seconds", counts->trace_seconds);
    core__json_text(json, "breaks", counts->reasons);
    core__json_end(json);
}

static void result_json(const report *r, const trainer *t, double seconds,
                        const train_score *train, const train_score *test,
                        const train_confusion *confusion,
                        const train_compile_counts *compile, const char *digest,
                        const char *sample)
{
    core__json json;
    char name[48], names[256];

    core__json_begin(&json, core__json_to_file, stdout);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_text(&json, "model", t->model.kind->name);
    core__json_text(&json, "device", names_of(t, names, sizeof names));
    core__json_integer(&json, "parameters", train_model_size(&t->model));
    core__json_text(&json, "amp", train_amps[t->options.amp]);
    if (t->comm)
        core__json_integer(&json, "ranks", t->processes);
    if (t->tensor)
        core__json_integer(&json, "tensor_parallel", core_comm_size(t->tensor));
    if (t->scaler) {
        core__json_number(&json, "loss_scale",
                          core_grad_scaler_get_scale(t->scaler));
        core__json_integer(&json, "skipped_steps", t->skipped);
    }
    core__json_integer(&json, "epochs", t->epoch);
    core__json_integer(&json, "steps", trainer_steps(t));
    if (train)
        score_json(&json, "train", train);
    score_json(&json, t->task->half, test);
    core__json_number(&json, "seconds", seconds);
    snprintf(name, sizeof name, "%s_per_second", t->task->unit);
    core__json_number(
        &json, name,
        seconds > 0 ? (double)(r->done * t->task->labels(t)) / seconds : 0);
    core__json_text(&json, "weights", digest);
    core__json_text(&json, "checkpoint", t->options.save);
    if (t->compiled)
        compile_json(&json, compile);
    if (confusion->classes) {
        core__json_array(&json, "confusion");
        for (int64_t i = 0; i < confusion->classes; i++) {
            core__json_array(&json, NULL);
            for (int64_t k = 0; k < confusion->classes; k++)
                core__json_integer(&json, NULL, confusion->count[i][k]);
            core__json_end(&json);
        }
        core__json_end(&json);
    }
    if (sample)
        core__json_text(&json, "sample", sample);
    core__json_end(&json);
    core__json_finish(&json);
}

core_status report_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CORE_OK;
    return train_error(CORE_ERROR_IO, "cannot write standard output");
}

/* Rows are the actual classes, columns the predicted ones. */
static void draw_confusion(report *r, const train_confusion *confusion)
{
    fputs("\n"
          "class      predicted as",
          r->text);
    for (int64_t k = 0; k < confusion->classes; k++)
        fprintf(r->text, "%*lld", k ? 6 : 2, (long long)k);
    fputc('\n', r->text);
    for (int64_t i = 0; i < confusion->classes; i++) {
        int64_t all = 0;

        for (int64_t k = 0; k < confusion->classes; k++)
            all += confusion->count[i][k];
        fprintf(r->text, "%5lld  %5.1f %%  ", (long long)i,
                all ? 100.0 * (double)confusion->count[i][i] / (double)all : 0);
        for (int64_t k = 0; k < confusion->classes; k++)
            fprintf(r->text, "%6lld", (long long)confusion->count[i][k]);
        fputc('\n', r->text);
    }
    fputc('\n', r->text);
}

/* Of collectives, how much the backward did not have to wait for. */
static void overlap_text(FILE *text, const trainer *t)
{
    core_reducer *reducer =
        t->shard ? core_shard_reducer(t->shard) : t->reducer;
    core_reducer_counts counts = {.struct_size = sizeof counts};
    double all, hidden;

    if (!reducer || core_reducer_get_counts(reducer, &counts) != CORE_OK ||
        counts.communicated_ns == 0)
        return;
    all = (double)counts.communicated_ns;
    hidden = all - (double)counts.waited_ns;
    fprintf(text,
            "overlap %.1f s of averages of gradients, %.0f %% during the "
            "backward\n",
            all * 1e-9, hidden > 0 ? 100 * hidden / all : 0);
}

core_status report_result(report *r, const trainer *t, const train_score *train,
                          const train_score *test,
                          const train_confusion *confusion, const char *sample)
{
    double seconds = report_now() - r->begin;
    train_compile_counts compile;
    uint64_t digest;
    size_t moved;
    char text[32];

    CORE_TRY(t->model.pieces
                 ? train_pieces_digest(t->model.pieces, &digest, &moved)
                 : train_model_digest(&t->model, &digest));
    if (t->compiled)
        CORE_TRY(train_compile_result(t, &compile));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)digest);
    if (sample)
        fprintf(r->text, "\n%s\n\n", sample);
    if (confusion->classes)
        draw_confusion(r, confusion);
    fprintf(r->text, "%s accuracy %.2f %%, loss %.4f, after %lld epoch%s",
            t->task->half, 100 * test->accuracy, test->loss,
            (long long)t->epoch, t->epoch == 1 ? "" : "s");
    fprintf(r->text, "; %s\nweights %s\n", duration((char[32]){0}, 32, seconds),
            text);
    overlap_text(r->text, t);
    if (t->compiled)
        compile_text(r->text, &compile);
    if (t->options.save)
        fprintf(r->text, "saved %s\n", t->options.save);
    if (t->drawn)
        fprintf(r->text, "losses drawn in %s\n", t->options.plot);
    if (t->profiled)
        fprintf(r->text,
                "profile in %s: report.html, table.txt, trace.json, "
                "stacks.txt\n",
                t->options.profile);
    fflush(r->text);
    if (r->json)
        result_json(r, t, seconds, train, test, confusion, &compile, text,
                    sample);
    return report_flush();
}
