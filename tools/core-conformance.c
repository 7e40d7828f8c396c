/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core-conformance: tests the binary of a plugin (conformance/check.c), or
 * replays recorded operator calls on a device and compares results and
 * gradients (tests/golden/README.md describes the recordings). */

#include "conformance/check.h"
#include "conformance/collectives.h"
#include "conformance/golden.h"
#include "conformance/name_filter.h"
#include "conformance/replay.h"
#include "conformance/outcome_counts.h"

#include <libcore/core.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

typedef struct options {
    const char *golden;
    const char *device;
    const char *filter;
    const char *required;
    int64_t only; /* a case's id, or -1 */
    bool summary;
    bool compiled;
    bool verbose;
    bool list;
} options;

static const char usage[] =
    "usage: core-conformance --golden PREFIX [--device NAME] [--filter GLOB]\n"
    "                        [--case ID] [--required FILE] [--summary]\n"
    "                        [--compiled] [--verbose]\n"
    "       core-conformance --list-operators [--filter GLOB]\n"
    "\n"
    "  --golden PREFIX   replay PREFIX.cases with the data of PREFIX.bin;\n"
    "                    PREFIX.differences lists cases that may differ\n"
    "  --device NAME     the device to use (default: libcore's default "
    "device)\n"
    "  --filter GLOB     only operators whose name matches, such as "
    "'add.*,mm'\n"
    "  --case ID         only this case\n"
    "  --required FILE   operators, one per line, all of whose cases must "
    "pass\n"
    "  --compiled        call each case by core_compile, too: results must be "
    "those\n"
    "                    of the case as it is, bit for bit\n"
    "  --summary         print a line per operator\n"
    "  --verbose         print a line per case, also for passed and missing "
    "ones\n"
    "  --list-operators  print the built-in operators and their schemas\n"
    "  --help, --version\n"
    "\n"
    "The last line is `N passed, N failed, N missing`. A case is missing if "
    "its\n"
    "operator is not registered or has no kernel on the device. Exit status: "
    "0;\n"
    "1 if a case failed or a required operator did not pass; 2 if nothing "
    "could\n"
    "be replayed.\n";

static int print_error(const char *format, const char *what)
{
    fprintf(stderr, "core-conformance: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "\n");
    return EXIT_USAGE;
}

/* ------------------------------------------------------------- options -- */

/* Returns the value of a flag; NULL after printing an error. */
static const char *value_of(int argc, char **argv, int *i)
{
    if (*i + 1 < argc)
        return argv[++*i];
    print_error("%s needs a value", argv[*i]);
    return NULL;
}

static bool case_number(const char *text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    if (*text && !*end && !errno && *out >= 0)
        return true;
    print_error("--case needs the number of a case, not \"%s\"", text);
    return false;
}

/* Tests whether a flag is one of tests of a plugin (check.c). */
static bool needs_plugin(const char *flag)
{
    const char *at =
        strncmp(flag, "--", 2) == 0 ? strstr(check_usage, flag) : NULL;

    return at && (at[strlen(flag)] == ' ' || at[strlen(flag)] == ']');
}

/* Returns -1 to continue, or else the exit status. */
static int read_options(int argc, char **argv, options *out)
{
    *out = (options){.only = -1};
    for (int i = 1; i < argc; i++) {
        const struct {
            const char *flag;
            const char **to;
        } texts[] = {
            {"--golden", &out->golden},
            {"--device", &out->device},
            {"--filter", &out->filter},
            {"--required", &out->required},
        };
        const char *text = NULL;
        bool known = false;

        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            if (strcmp(argv[i], texts[k].flag) != 0)
                continue;
            known = true;
            if (!(*texts[k].to = value_of(argc, argv, &i)))
                return EXIT_USAGE;
            break;
        }
        if (known)
            continue;
        if (strcmp(argv[i], "--case") == 0) {
            if (!(text = value_of(argc, argv, &i)) ||
                !case_number(text, &out->only))
                return EXIT_USAGE;
        } else if (strcmp(argv[i], "--summary") == 0) {
            out->summary = true;
        } else if (strcmp(argv[i], "--compiled") == 0) {
            out->compiled = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            out->verbose = true;
        } else if (strcmp(argv[i], "--list-operators") == 0) {
            out->list = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            fputs("\n", stdout);
            fputs(check_usage, stdout);
            fputs(collectives_usage, stdout);
            return EXIT_SUCCESS;
        } else if (strcmp(argv[i], "--version") == 0) {
            printf("core-conformance %s\n", core_version());
            return EXIT_SUCCESS;
        } else if (needs_plugin(argv[i])) {
            return print_error("%s needs --plugin FILE.so", argv[i]);
        } else {
            return print_error("unknown flag %s; see --help", argv[i]);
        }
    }
    if (!out->golden && !out->list)
        return print_error("%s",
                           "--plugin FILE.so (to test) or --golden PREFIX "
                           "(to replay) is required; see --help");
    return -1;
}

/* -------------------------------------------------------------- device -- */

static bool open_device(const char *name, replay_device *out)
{
    core_device_properties properties = {.struct_size = sizeof properties};
    core_status status = name ? core_device_find(name, &out->device)
                              : core_device_default(&out->device);

    if (status != CORE_OK)
        return false;
    out->meta = strcmp(core_device_type(out->device), "meta") == 0;
    if (core_device_get_properties(out->device, &properties) != CORE_OK ||
        core_device_set_current(out->device) != CORE_OK)
        return false;
    out->has_f64 = out->meta || (properties.flags & CORE_DEVICE_HAS_F64);
    return true;
}

/* -------------------------------------------------------------- replay -- */

static int list_operators(const char *filter)
{
    core_operator *op;

    for (uint32_t i = 0; (op = core_op_at(i)); i++)
        if (name_filter_selects(filter, core_op_name(op)))
            printf("%s\n", core_op_schema(op));
    return EXIT_SUCCESS;
}

static void print_case(const options *chosen, const golden_case *the_case,
                       replay_outcome outcome, const char *text)
{
    static const char *const names[] = {"passed", "FAILED", "missing",
                                        "differs"};

    if (outcome != REPLAY_FAILED && !chosen->verbose)
        return;
    printf("%s case %lld %s%s%s\n", names[outcome], (long long)the_case->id,
           the_case->name, *text ? ": " : "", text);
}

/* Replays all selected cases; false: the file is malformed. */
static bool replay_all(const options *chosen, const replay_device *on,
                       golden_file *golden, outcome_counts *all)
{
    golden_case the_case;
    golden_result answer;
    char text[1200];

    memset(&the_case, 0, sizeof the_case);
    while ((answer = golden_next(golden, &the_case)) == GOLDEN_CASE) {
        replay_outcome outcome;

        if (!name_filter_selects(chosen->filter, the_case.name))
            continue;
        if (chosen->only >= 0 && the_case.id != chosen->only)
            continue;
        outcome = replay_case(on, &the_case, text, sizeof text);
        print_case(chosen, &the_case, outcome, text);
        if (outcome == REPLAY_PASSED) {
            all->agreed += strcmp(text, REPLAY_AGREED) == 0;
            all->shared += strcmp(text, REPLAY_SHARED) == 0;
        }
        if (!outcome_counts_add(all, the_case.name, outcome)) {
            snprintf(golden->problem, sizeof golden->problem, "no memory");
            answer = GOLDEN_PROBLEM;
            break;
        }
    }
    golden_case_free(&the_case);
    return answer == GOLDEN_END;
}

/* A listed difference of a case that the set does not have, or whose number has
 * changed, counts as a failure. */
static void check_differences(const golden_file *golden, outcome_counts *all)
{
    for (size_t i = 0; i < golden->differences.count; i++) {
        const golden_difference *line = &golden->differences.at[i];

        if (line->found)
            continue;
        printf("FAILED case %lld %s: it is listed as a difference, but the set "
               "does not have it\n",
               (long long)line->id, line->name);
        all->total[REPLAY_FAILED]++;
    }
}

static int finish(const options *chosen, outcome_counts *all,
                  const compiled_counts *compiled)
{
    const size_t *total = all->total;
    bool good;

    if (chosen->summary)
        outcome_counts_print(all);
    good = outcome_counts_check_required(all);
    if (total[REPLAY_PASSED] + total[REPLAY_FAILED] + total[REPLAY_MISSING] +
            total[REPLAY_DIFFERS] ==
        0)
        return print_error("%s", "no case was selected");
    if (all->agreed)
        printf("of those passed, %zu differ from the "
               "recording by more than the tolerance but agree with the same "
               "call in f64\n",
               all->agreed);
    if (all->shared)
        printf("of those passed, %zu have the recorded gradients only if equal "
               "arguments are one tensor\n",
               all->shared);
    if (total[REPLAY_DIFFERS])
        printf("%zu cases differ on purpose, as %s.differences says\n",
               total[REPLAY_DIFFERS], chosen->golden);
    if (compiled)
        compiled_counts_print(compiled);
    printf("%zu passed, %zu failed, %zu missing\n", total[REPLAY_PASSED],
           total[REPLAY_FAILED], total[REPLAY_MISSING]);
    return good && !total[REPLAY_FAILED] ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Tests which of the programs was requested. */
static bool is_given(int argc, char **argv, const char *flag)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], flag) == 0)
            return true;
    return false;
}

static bool is_check(int argc, char **argv)
{
    return is_given(argc, argv, "--plugin") || is_given(argc, argv, "--verify");
}

static int run(int argc, char **argv)
{
    options chosen;
    replay_device on = {0};
    golden_file golden = {0};
    outcome_counts all = {0};
    static compiled_counts compiled;
    char text[500];
    int result;

    if (is_given(argc, argv, "--collectives"))
        return collectives_main(argc, argv);
    if (is_check(argc, argv))
        return check_main(argc, argv);
    result = read_options(argc, argv, &chosen);
    if (result >= 0)
        return result;
    if (chosen.list)
        return list_operators(chosen.filter);
    result = EXIT_USAGE;
    if (!golden_open(chosen.golden, &golden)) {
        print_error("%s", golden.problem);
        goto done;
    }
    if (chosen.required &&
        !outcome_counts_require(&all, chosen.required, chosen.filter, text,
                                sizeof text)) {
        print_error("%s", text);
        goto done;
    }
    if (!open_device(chosen.device, &on)) {
        print_error("%s", core_error_message());
        goto done;
    }
    if (chosen.compiled && on.meta) {
        print_error("%s", "--compiled needs a device that computes");
        goto done;
    }
    on.compiled = chosen.compiled ? &compiled : NULL;
    if (!replay_all(&chosen, &on, &golden, &all)) {
        fflush(stdout);
        print_error("%s", golden.problem);
        goto done;
    }
    if (!chosen.filter && chosen.only < 0)
        check_differences(&golden, &all);
    result = finish(&chosen, &all, on.compiled);
done:
    core_device_set_current(NULL);
    outcome_counts_free(&all);
    golden_close(&golden);
    return result;
}

int main(int argc, char **argv)
{
    int result = run(argc, argv);

    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    return print_error("%s", "writing standard output failed");
}
