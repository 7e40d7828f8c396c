/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The machine-readable reports: TAP, JSON lines, JUnit. */

#include "base/json.h"
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- TAP -- */

static void tap_detail(const record *one, FILE *to)
{
    if (one->detail[0])
        fprintf(to, "# %s: %s\n", one->name, one->detail);
    if (one->measured >= 0)
        fprintf(to, "# %s: %.4g %s\n", one->name, one->measured, one->unit);
}

/* Tests that were not run after the cause was found, and the list of operators,
 * which has the same cause, are not lines of their own. */
static bool is_consequence(const report *self, const record *one)
{
    return one != self->stopped &&
           (one->verdict == VERDICT_NOT_RUN ||
            strcmp(one->name, "ops/operators/are-listed") == 0);
}

void report_tap_head(FILE *to)
{
    fprintf(to, "TAP version 13\n");
}

void report_tap_test(const report *self, const record *one, size_t *number,
                     FILE *to)
{
    if (!one->chosen || (self->stopped && is_consequence(self, one)))
        return;
    fprintf(to, "%sok %zu - %s", report_bad(one) ? "not " : "", ++*number,
            one->name);
    if (one->verdict == VERDICT_NOT_SUPPORTED && one->optional)
        fprintf(to, " # SKIP not claimed");
    else if (one->verdict != VERDICT_PASS)
        fprintf(to, " # %s", verdict_names[one->verdict]);
    fprintf(to, "\n");
    tap_detail(one, to);
}

bool report_tap_end(const report *self, size_t number, FILE *to)
{
    fprintf(to, "1..%zu\n", number);
    if (self->stopped)
        fprintf(to, "Bail out! every other test would fail likewise: %s\n",
                self->stopped->detail);
    for (size_t i = 0; i < self->nremarks; i++)
        fprintf(to, "# %s\n", self->remarks[i]);
    report_summary(self, to, "# ");
    return fflush(to) == 0 && !ferror(to);
}

bool report_tap(const report *self, FILE *to)
{
    size_t number = 0;

    report_tap_head(to);
    for (size_t i = 0; i < self->count; i++)
        report_tap_test(self, &self->records[i], &number, to);
    return report_tap_end(self, number, to);
}

/* ---------------------------------------------------------- JSON lines -- */

bool report_jsonl_head(const report *self, FILE *to)
{
    core__json json;

    core__json_begin(&json, core__json_to_file, to);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_text(&json, "record", "run");
    core__json_text(&json, "suite", report_suite(self));
    core__json_text(&json, "libcore", core_version());
    core__json_text(&json, "plugin", self->plugin);
    core__json_text(&json, "sha256", self->sha256);
    core__json_unsigned(&json, "seed", self->seed);
    core__json_text(&json, "date", self->date);
    core__json_text(&json, "filter", self->filter);
    core__json_unsigned(&json, "shard", self->shard);
    core__json_unsigned(&json, "shards", self->shards);
    core__json_boolean(&json, "conformance_run", !report_partial(self));
    core__json_object(&json, "about");
    for (size_t i = 0; i < self->abouts; i++)
        core__json_text(&json, self->about[i].key, self->about[i].value);
    core__json_end(&json);
    core__json_end(&json);
    return core__json_finish(&json);
}

static void json_number_or_null(core__json *json, const char *name,
                                double value)
{
    core__json_number(json, name, value < 0 ? NAN : value);
}

bool report_jsonl_test(const record *one, FILE *to)
{
    core__json json;

    core__json_begin(&json, core__json_to_file, to);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_text(&json, "record", "test");
    core__json_text(&json, "name", one->name);
    core__json_text(&json, "level", level_names[one->level]);
    core__json_text(&json, "verdict", verdict_names[one->verdict]);
    core__json_boolean(&json, "optional", one->optional);
    json_number_or_null(&json, "error", one->error);
    json_number_or_null(&json, "measured", one->measured);
    core__json_text(&json, "unit", one->unit);
    core__json_number(&json, "milliseconds", one->milliseconds);
    core__json_text(&json, "detail", one->detail);
    core__json_end(&json);
    return core__json_finish(&json);
}

static bool jsonl_level(const report *self, level which, FILE *to)
{
    level_result result = report_level(self, which);
    core__json json;

    core__json_begin(&json, core__json_to_file, to);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_text(&json, "record", "level");
    core__json_text(&json, "level", level_names[which]);
    core__json_boolean(&json, "passed", result.passed && !report_partial(self));
    for (int v = 0; v < VERDICTS; v++)
        core__json_unsigned(&json, verdict_names[v], result.counts[v]);
    core__json_end(&json);
    return core__json_finish(&json);
}

static bool jsonl_remark(const char *remark, FILE *to)
{
    core__json json;

    core__json_begin(&json, core__json_to_file, to);
    json.flat = true;
    core__json_object(&json, NULL);
    core__json_text(&json, "record", "remark");
    core__json_text(&json, "text", remark);
    core__json_end(&json);
    return core__json_finish(&json);
}

static bool jsonl_levels(const report *self, FILE *to)
{
    bool good = true;

    for (int i = 0; good && i < LEVELS; i++)
        if (report_wants(self, (level)i))
            good = jsonl_level(self, (level)i, to);
    return good && fflush(to) == 0 && !ferror(to);
}

bool report_jsonl_end(const report *self, FILE *to)
{
    bool good = true;

    for (size_t i = 0; good && i < self->nremarks; i++)
        good = jsonl_remark(self->remarks[i], to);
    return good && jsonl_levels(self, to);
}

bool report_jsonl(const report *self, FILE *to)
{
    bool good = report_jsonl_head(self, to);

    for (size_t i = 0; good && i < self->nremarks; i++)
        good = jsonl_remark(self->remarks[i], to);
    for (size_t i = 0; good && i < self->count; i++)
        if (self->records[i].chosen)
            good = report_jsonl_test(&self->records[i], to);
    return good && jsonl_levels(self, to);
}

/* --------------------------------------------------------------- JUnit -- */

static void xml_text(const char *text, FILE *to)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '<')
            fputs("&lt;", to);
        else if (c == '>')
            fputs("&gt;", to);
        else if (c == '&')
            fputs("&amp;", to);
        else if (c == '"')
            fputs("&quot;", to);
        else if (c >= ' ')
            putc(c, to);
        else
            putc(' ', to);
    }
}

static void junit_test(const record *one, FILE *to)
{
    fprintf(to, "  <testcase classname=\"%s\" name=\"",
            level_names[one->level]);
    xml_text(one->name, to);
    fprintf(to, "\" time=\"%.6f\">", one->milliseconds / 1000);
    if (report_bad(one)) {
        fprintf(to, "<%s type=\"%s\" message=\"",
                one->verdict == VERDICT_FAIL ? "failure" : "error",
                verdict_names[one->verdict]);
        xml_text(one->detail, to);
        fprintf(to, "\"/>");
    } else if (one->verdict != VERDICT_PASS) {
        fprintf(to, "<skipped message=\"%s: ", verdict_names[one->verdict]);
        xml_text(one->detail, to);
        fprintf(to, "\"/>");
    }
    fprintf(to, "</testcase>\n");
}

bool report_junit(const report *self, FILE *to)
{
    size_t counts[3] = {0};

    for (size_t i = 0; i < self->count; i++) {
        const record *one = &self->records[i];

        counts[0] += one->chosen;
        counts[1] +=
            one->chosen && report_bad(one) && one->verdict == VERDICT_FAIL;
        counts[2] +=
            one->chosen && report_bad(one) && one->verdict != VERDICT_FAIL;
    }
    fprintf(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    fprintf(to,
            "<testsuite name=\"core-conformance\" tests=\"%zu\" "
            "failures=\"%zu\" errors=\"%zu\" timestamp=\"%s\">\n",
            counts[0], counts[1], counts[2], self->date);
    fprintf(to, "  <properties>\n");
    fprintf(to, "    <property name=\"sha256\" value=\"%s\"/>\n", self->sha256);
    fprintf(to, "    <property name=\"seed\" value=\"%" PRIu64 "\"/>\n",
            self->seed);
    fprintf(to, "    <property name=\"conformance_run\" value=\"%s\"/>\n",
            report_partial(self) ? "false" : "true");
    fprintf(to, "  </properties>\n");
    for (size_t i = 0; i < self->count; i++)
        if (self->records[i].chosen)
            junit_test(&self->records[i], to);
    fprintf(to, "</testsuite>\n");
    return fflush(to) == 0 && !ferror(to);
}

/* -------------------------------------------------------------- resume -- */

/* Returns the value of a text field in a line that report_jsonl wrote, or NULL.
 * Terminates the value within the line. */
static char *field(char *line, const char *name)
{
    char key[64];
    char *at, *end;

    snprintf(key, sizeof key, "\"%s\": \"", name);
    at = strstr(line, key);
    if (!at)
        return NULL;
    at += strlen(key);
    for (end = at; *end && *end != '"'; end++)
        if (*end == '\\' && end[1])
            end++;
    if (!*end)
        return NULL;
    *end = 0;
    return at;
}

static double number_field(const char *line, const char *name, double otherwise)
{
    char key[64];
    const char *at;
    char *end;
    double value;

    snprintf(key, sizeof key, "\"%s\": ", name);
    at = strstr(line, key);
    if (!at)
        return otherwise;
    value = strtod(at + strlen(key), &end);
    return end == at + strlen(key) ? otherwise : value;
}

/* Reads the fields from last to first, since each terminates the line. */
static void resume_test(report *self, char *line)
{
    char *detail = field(line, "detail");
    double milliseconds = number_field(line, "milliseconds", 0);
    char *unit = field(line, "unit");
    double measured = number_field(line, "measured", -1);
    double error = number_field(line, "error", -1);
    char *verdict_name = field(line, "verdict");
    char *name = field(line, "name");
    record *one = name ? report_find(self, name) : NULL;

    if (!one || !verdict_name)
        return;
    for (int v = 0; v < VERDICTS; v++) {
        if (v == VERDICT_NOT_RUN || strcmp(verdict_name, verdict_names[v]) != 0)
            continue;
        one->verdict = (verdict)v;
        one->done = one->resumed = true;
        one->error = error;
        one->measured = measured;
        one->milliseconds = milliseconds;
        snprintf(one->unit, sizeof one->unit, "%s", unit ? unit : "");
        snprintf(one->detail, sizeof one->detail, "%s", detail ? detail : "");
    }
}

static bool same_run(const report *self, char *line, char *text,
                     size_t capacity)
{
    char seed[64];
    char *sha = NULL;
    char *suite_version;
    bool same;

    snprintf(seed, sizeof seed, "\"seed\": %" PRIu64, self->seed);
    same = strstr(line, seed) != NULL;
    sha = field(line, "sha256");
    suite_version = field(line, "suite");
    same = same && sha && strcmp(sha, self->sha256) == 0 && suite_version &&
           strcmp(suite_version, report_suite(self)) == 0;
    if (!same)
        snprintf(text, capacity,
                 "the run to resume used another plugin file, seed or suite");
    return same;
}

bool report_resume(report *self, const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    bool good = file != NULL;
    bool head = false;

    if (!file)
        snprintf(text, capacity, "%s cannot be read", path);
    while (good && getline(&line, &size, file) > 0) {
        if (strstr(line, "\"record\": \"run\"")) {
            head = true;
            good = same_run(self, line, text, capacity);
        } else if (head && strstr(line, "\"record\": \"test\"")) {
            resume_test(self, line);
        }
    }
    if (good && !head) {
        snprintf(text, capacity, "%s contains no run", path);
        good = false;
    }
    free(line);
    if (file)
        fclose(file);
    return good;
}
