/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "check.h"

#include "child.h"
#include "golden.h"
#include "name_filter.h"
#include "progress.h"
#include "runner.h"
#include "base/sha256.h"
#include "report_bundle.h"
#include "waivers.h"

#include <libcore/plugins.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_USAGE = 2,
    COMPILE_BUDGET = 30, /* seconds */
    TIME_LIMIT = 60,     /* of a test, in seconds */
    OPEN_BUDGET = 30,
    LONGEST = 7 * 86400,
    ARGUMENTS = 24
};

typedef struct options {
    const char *plugin;
    const char *device;
    const char *golden;
    const char *filter;
    const char *level;
    const char *only;
    const char *shard;
    const char *seed;
    const char *timeout;
    const char *budget;
    const char *open_budget;
    const char *remove;
    const char *restore;
    const char *waivers;
    const char *resume;
    const char *tap;
    const char *jsonl;
    const char *junit;
    const char *html;
    const char *submit;
    const char *verify;
    bool list;
    bool verbose;
    bool quick;
    bool child_list;
    bool child_list_core;
    bool child_run;
} options;

const char check_usage[] =
    "       core-conformance --plugin FILE.so [--device NAME] [--level LEVEL]\n"
    "                        [--only LEVEL] [--filter GLOB] [--shard I/N]\n"
    "                        [--seed N] [--timeout SECONDS]\n"
    "                        [--open-budget SECONDS] [--compile-budget "
    "SECONDS]\n"
    "                        [--remove COMMAND] [--restore COMMAND]\n"
    "                        [--waivers FILE] [--resume FILE] [--list]\n"
    "                        [--golden PREFIX] [--tap FILE] [--jsonl FILE] "
    "[--junit FILE]\n"
    "                        [--html FILE] [--submit FILE.tar] [--verbose]\n"
    "                        [--quick]\n"
    "       core-conformance --verify FILE.tar [--plugin FILE.so]\n"
    "\n"
    "  --plugin FILE.so  the plugin to test\n"
    "  --device NAME     the device to test (default: the plugin's first)\n"
    "  --level LEVEL     run the levels up to this one: core, ops, training, "
    "stress,\n"
    "                    perf (default: stress)\n"
    "  --only LEVEL      run this level alone\n"
    "  --filter GLOB     only tests whose name matches, such as "
    "'core/events/*,ops/mm/*'\n"
    "  --shard I/N       each N-th test, from the I-th on\n"
    "  --quick           leave out calls of more than 100,000 elements\n"
    "  --list            print the tests, and what a plugin needs for each "
    "level\n"
    "  --seed N          select the random numbers\n"
    "  --timeout SECONDS\n"
    "                    what a test may take (default: 60); longer on a busy "
    "machine,\n"
    "                    if the test has had less processor time and goes on\n"
    "  --open-budget SECONDS\n"
    "                    what each call may take until the device is open "
    "(default: 30)\n"
    "  --compile-budget SECONDS\n"
    "                    what the first call of a shape may take (default: "
    "30)\n"
    "  --golden PREFIX   replay these recorded calls too, in level training\n"
    "  --remove COMMAND, --restore COMMAND\n"
    "                    shell commands that remove the device and bring it "
    "back\n"
    "  --waivers FILE    tests that may fail, until a date\n"
    "  --resume FILE     reuse results that an earlier run wrote with --jsonl\n"
    "  --tap FILE, --jsonl FILE, --junit FILE, --html FILE\n"
    "                    write reports (`-`: standard output, where TAP goes "
    "otherwise)\n"
    "  --submit FILE.tar bundle the four reports with their hashes\n"
    "  --verify FILE.tar check such a bundle, and that it belongs to the "
    "plugin\n"
    "  --verbose         print a line to standard error as each test ends\n"
    "\n"
    "Exit status: 0 if every requested level was passed, 1 if not; 2 if "
    "nothing could\n"
    "be run.\n";

static int print_error(const char *what, const char *more)
{
    fprintf(stderr, "core-conformance: %s%s\n", what, more);
    return EXIT_USAGE;
}

/* Returns -1 to continue, or else the exit status. */
static int read_options(int argc, char **argv, options *out)
{
    const struct {
        const char *flag;
        const char **text;
        bool *given;
    } flags[] = {
        {"--plugin", &out->plugin, NULL},
        {"--device", &out->device, NULL},
        {"--golden", &out->golden, NULL},
        {"--filter", &out->filter, NULL},
        {"--level", &out->level, NULL},
        {"--only", &out->only, NULL},
        {"--shard", &out->shard, NULL},
        {"--seed", &out->seed, NULL},
        {"--timeout", &out->timeout, NULL},
        {"--compile-budget", &out->budget, NULL},
        {"--open-budget", &out->open_budget, NULL},
        {"--remove", &out->remove, NULL},
        {"--restore", &out->restore, NULL},
        {"--waivers", &out->waivers, NULL},
        {"--resume", &out->resume, NULL},
        {"--tap", &out->tap, NULL},
        {"--jsonl", &out->jsonl, NULL},
        {"--junit", &out->junit, NULL},
        {"--html", &out->html, NULL},
        {"--submit", &out->submit, NULL},
        {"--verify", &out->verify, NULL},
        {"--list", NULL, &out->list},
        {"--verbose", NULL, &out->verbose},
        {"--quick", NULL, &out->quick},
        {"--child-list", NULL, &out->child_list},
        {"--child-list-core", NULL, &out->child_list_core},
        {"--child-run", NULL, &out->child_run},
    };

    for (int i = 1; i < argc; i++) {
        size_t k = 0;

        while (k < sizeof flags / sizeof *flags &&
               strcmp(argv[i], flags[k].flag) != 0)
            k++;
        if (k == sizeof flags / sizeof *flags)
            return print_error("unknown flag with --plugin: ", argv[i]);
        if (flags[k].given)
            *flags[k].given = true;
        else if (flags[k].text == &out->plugin && out->plugin)
            return print_error(argv[i], " is given twice");
        else if (i + 1 < argc)
            *flags[k].text = argv[++i];
        else
            return print_error(argv[i], " needs a value");
    }
    return -1;
}

static bool read_level(const char *text, level *out)
{
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(text, level_names[i]) == 0) {
            *out = (level)i;
            return true;
        }
    fprintf(stderr, "core-conformance: unknown level: %s; accepted: ", text);
    for (int i = 0; i < LEVELS; i++)
        fprintf(stderr, "%s%s", i ? ", " : "", level_names[i]);
    fputc('\n', stderr);
    return false;
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno)
        return true;
    print_error("not a number: ", text);
    return false;
}

static bool read_shard(const char *text, report *out)
{
    unsigned long long which, of;
    char rest;

    /* At most nine digits each and no sign. */
    if (strspn(text, "0123456789/") == strlen(text) &&
        sscanf(text, "%9llu/%9llu%c", &which, &of, &rest) == 2 && which >= 1 &&
        which <= of) {
        out->shard = (uint32_t)which;
        out->shards = (uint32_t)of;
        return true;
    }
    print_error("--shard accepts I/N with 1 <= I <= N, not ", text);
    return false;
}

static bool complete_options(const options *chosen, report *out,
                             double *timeout)
{
    uint64_t seconds = TIME_LIMIT, budget;
    time_t now = time(NULL);
    struct tm date;

    out->up_to = LEVEL_STRESS;
    out->seed = 1;
    out->filter = chosen->filter;
    out->plugin = chosen->plugin;
    out->only = chosen->only != NULL;
    out->quick = chosen->quick;
    if (chosen->only && chosen->level) {
        print_error("--only and --level exclude each other", "");
        return false;
    }
    if ((chosen->level && !read_level(chosen->level, &out->up_to)) ||
        (chosen->only && !read_level(chosen->only, &out->up_to)) ||
        (chosen->seed && !read_number(chosen->seed, &out->seed)) ||
        (chosen->shard && !read_shard(chosen->shard, out)) ||
        (chosen->budget && !read_number(chosen->budget, &budget)) ||
        (chosen->open_budget && !read_number(chosen->open_budget, &budget)) ||
        (chosen->timeout && !read_number(chosen->timeout, &seconds)))
        return false;
    if (chosen->restore && !chosen->remove) {
        print_error("--restore needs --remove", "");
        return false;
    }
    if (seconds < 1 || seconds > LONGEST) {
        print_error("--timeout accepts at least one second and at most a week, "
                    "604800 seconds, not ",
                    chosen->timeout);
        return false;
    }
    *timeout = (double)seconds;
    gmtime_r(&now, &date);
    strftime(out->date, sizeof out->date, "%Y-%m-%dT%H:%M:%SZ", &date);
    if (core__sha256_file(chosen->plugin, out->sha256))
        return true;
    print_error("cannot be read: ", chosen->plugin);
    return false;
}

/* ------------------------------------------------------------ the runs -- */

/* Chooses tests by level, then in the suite's order; a shard takes every N-th.
 * Prints a message and returns false if none is left. */
static bool choose(report *self)
{
    size_t number = 0, left = 0;

    for (size_t i = 0; i < self->count; i++) {
        record *one = &self->records[i];

        one->chosen = report_wants(self, one->level) &&
                      name_filter_selects(self->filter, one->name);
        if (one->chosen && self->shards > 1)
            one->chosen = number++ % self->shards == self->shard - 1;
        left += one->chosen;
    }
    if (left > 0)
        return true;
    fprintf(stderr, "core-conformance: none of the %zu tests is selected",
            self->count);
    if (self->shards > 1 && number > 0)
        fprintf(stderr, ": %zu are divided among %u shards", number,
                self->shards);
    else if (self->filter)
        fprintf(stderr, ": --filter %s matches no name in the requested levels",
                self->filter);
    if (*report_about(self, "problem"))
        fprintf(stderr, "; the tests of operators are not known: %s",
                report_about(self, "problem"));
    fputc('\n', stderr);
    return false;
}

static bool about_machine(report *self)
{
    struct utsname system;

    if (uname(&system) == 0) {
        report_set_about(self, "system", system.sysname);
        report_set_about(self, "kernel", system.release);
        report_set_about(self, "machine", system.machine);
    }
    report_set_about(self, "libcore", core_version());
    return true;
}

static bool write_one(const report *self, const char *path,
                      bool (*write)(const report *, FILE *))
{
    FILE *file;
    bool good;

    if (!path)
        return true;
    if (strcmp(path, "-") == 0)
        return write(self, stdout);
    file = fopen(path, "w");
    good = file && write(self, file);
    if (file && fclose(file) != 0)
        good = false;
    if (!good)
        print_error("cannot be written: ", path);
    return good;
}

static bool write_all(const options *chosen, const report *self,
                      progress *so_far)
{
    bool good = progress_end(so_far);
    char text[500];

    /* One report that cannot be written does not prevent the others. */
    good &= write_one(self, chosen->junit, report_junit);
    good &= write_one(self, chosen->html, report_html);
    if (chosen->submit &&
        !submit_write(self, chosen->submit, text, sizeof text)) {
        print_error(text, "");
        good = false;
    }
    return good;
}

/* Tests whether a report can be written there, without changing the file. */
static bool can_write(const char *path)
{
    int file;

    if (!path || strcmp(path, "-") == 0)
        return true;
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
        unlink(path);
    } else {
        file = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (file < 0 && errno == ENXIO) /* a pipe whose reader comes later */
            return true;
    }
    if (file >= 0)
        close(file);
    else
        fprintf(stderr, "core-conformance: cannot be written: %s: %s\n", path,
                strerror(errno));
    return file >= 0;
}

static bool can_replay(const char *golden)
{
    golden_file file = {0};
    bool good = !golden || golden_open(golden, &file);

    if (!good)
        print_error("--golden: ", file.problem);
    golden_close(&file);
    return good;
}

/* Reports before the run what would otherwise fail hours later, at its end. */
static bool can_finish(const options *chosen)
{
    const char *const paths[] = {chosen->tap, chosen->jsonl, chosen->junit,
                                 chosen->html, chosen->submit};
    char text[500];

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!can_write(paths[i]))
            return false;
    if (!can_replay(chosen->golden))
        return false;
    if (!chosen->waivers || waivers_check(chosen->waivers, text, sizeof text))
        return true;
    print_error(text, "");
    return false;
}

/* What a plugin must have for each level, as comments. */
static void list_needs(const report *self)
{
    if (report_wants(self, LEVEL_CORE))
        printf("# level core needs no kernel\n");
    if (report_wants(self, LEVEL_OPS))
        printf("# level ops needs at least one kernel; each one is tested in "
               "every dtype that it is registered for\n");
    if (report_wants(self, LEVEL_TRAINING) && self->needs[0])
        printf("# level training needs, in f32: %s; and for each operator that "
               "is registered later and has a gradient what its backward "
               "calls\n",
               self->needs);
    if (report_wants(self, LEVEL_STRESS))
        printf("# level stress needs no further kernel\n");
    printf("# not checked: the results of the plugin's own operators against a "
           "reference, unless the plugin has a function of them for cpu (the "
           "suite compares kernels with themselves and gradients with finite "
           "differences); operators without samples\n");
    if (self->few[0])
        printf("# not checked: calls of more than 65,536 elements of %s, as no "
               "sample has them\n",
               self->few);
}

static int list_tests(const report *self)
{
    if (!report_partial(self))
        list_needs(self);
    for (size_t i = 0; i < self->count; i++)
        if (self->records[i].chosen)
            printf("%s\n", self->records[i].name);
    return EXIT_SUCCESS;
}

static int run(const options *chosen, runner *run, report *found)
{
    bool quiet = chosen->jsonl && strcmp(chosen->jsonl, "-") == 0;
    progress so_far = {.report = found,
                       .waivers = chosen->waivers,
                       .tap = chosen->tap ? chosen->tap
                              : quiet     ? NULL
                                          : "-",
                       .jsonl = chosen->jsonl};
    char text[500];

    if (!runner_list(run, text, sizeof text))
        return print_error(text, "");
    if (*report_about(found, "missing"))
        return print_error("--device: ", report_about(found, "missing"));
    about_machine(found);
    if (!choose(found))
        return EXIT_USAGE;
    if (chosen->list)
        return list_tests(found);
    if (chosen->resume &&
        !report_resume(found, chosen->resume, text, sizeof text))
        return print_error(text, "");
    run->ended = progress_test;
    run->context = &so_far;
    progress_begin(&so_far);
    if (!runner_run(run, text, sizeof text))
        return print_error(text, "");
    if (chosen->waivers &&
        !waivers_apply(found, chosen->waivers, found->date, text, sizeof text))
        return print_error(text, "");
    if (!write_all(chosen, found, &so_far))
        return EXIT_USAGE;
    return report_passed(found) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int child_main(const options *chosen)
{
    struct rlimit none = {0, 0};
    suite self = {.plugin = chosen->plugin,
                  .wanted = chosen->device,
                  .golden = chosen->golden,
                  .filter = chosen->filter,
                  .remove = chosen->remove,
                  .restore = chosen->restore,
                  .quick = chosen->quick,
                  .seed = 1};
    uint64_t budget = COMPILE_BUDGET, open_budget = OPEN_BUDGET;
    uint64_t timeout = TIME_LIMIT;
    sigset_t nothing;

    setrlimit(RLIMIT_CORE, &none);
    /* Starts with no signal blocked, so that a blocked one is the thread's own
     * doing. */
    sigemptyset(&nothing);
    sigprocmask(SIG_SETMASK, &nothing, NULL);
    if ((chosen->seed && !read_number(chosen->seed, &self.seed)) ||
        (chosen->budget && !read_number(chosen->budget, &budget)) ||
        (chosen->open_budget &&
         !read_number(chosen->open_budget, &open_budget)) ||
        (chosen->timeout && !read_number(chosen->timeout, &timeout)))
        return EXIT_USAGE;
    self.longest_call = (double)timeout / 4;
    self.compile_budget = (double)budget;
    self.list = chosen->list;
    self.open_budget = (double)open_budget;
    return chosen->child_run ? child_run(&self)
                             : child_list(&self, chosen->child_list);
}

/* The plugin's path in the form that the loader expects. */
static char *absolute(const char *path)
{
    char *full = realpath(path, NULL);

    if (!full)
        fprintf(stderr, "core-conformance: %s: %s\n", path, strerror(errno));
    return full;
}

/* Tests whether the plugin's note lists the device's type: a test on another
 * plugin's device would prove nothing. */
static bool is_listed(const char *types, const char *device)
{
    size_t size = strcspn(device, ":");

    while (*types) {
        size_t length = strcspn(types, ",");

        if (length == size && strncmp(types, device, size) == 0)
            return true;
        types += length + (types[length] == ',');
    }
    return false;
}

/* Reports a damaged file. What else libcore would refuse in it has tests
 * (core/file). */
static bool is_damaged(const char *plugin)
{
    bool damaged = core_plugin_check_file(plugin) == CORE_ERROR_CORRUPT;

    if (damaged)
        fprintf(stderr, "core-conformance: refused: %s\n",
                core_error_message());
    core_error_clear();
    return damaged;
}

/* Reports a plugin that libcore refuses to open, with libcore's reason, without
 * running any of the plugin's code. device: the requested one, or NULL. */
static bool is_refused(const char *plugin, const char *device)
{
    core_plugin_information about = {.struct_size = sizeof about};
    const char *others = NULL;
    char paths[2 * PATH_MAX];
    core_plugin *one;

    if (strchr(plugin, ':'))
        return false; /* cannot be an entry of a path list */
    core_setting_get("LIBCORE_PLUGIN_PATH", &others);
    snprintf(paths, sizeof paths, "%s%s%s", plugin, others ? ":" : "",
             others ? others : "");
    if (core_setting_set("LIBCORE_PLUGIN_PATH", paths) != CORE_OK ||
        core_plugins_scan() != CORE_OK)
        return false;
    for (uint32_t i = 0; (one = core_plugin_at(i)); i++) {
        if (core_plugin_describe(one, &about) != CORE_OK ||
            strcmp(about.path, plugin) != 0)
            continue;
        if (about.state == CORE_PLUGIN_REFUSED) {
            fprintf(stderr, "core-conformance: %s: refused: %s\n", plugin,
                    about.reason);
            return true;
        }
        if (device && !is_listed(about.device_types, device)) {
            fprintf(stderr,
                    "core-conformance: --device %s: the plugin has \"%s\"\n",
                    device, about.device_types);
            return true;
        }
    }
    return false;
}

/* Without the reference device its absence would be reported as failures of the
 * plugin. */
static bool lacks_reference(void)
{
    core_plugin_information about = {.struct_size = sizeof about};
    const char *path = NULL;
    core_plugin *one, *refused = NULL;

    if (core_plugins_scan() != CORE_OK) {
        fprintf(stderr, "core-conformance: %s\n", core_error_message());
        return true;
    }
    for (uint32_t i = 0; (one = core_plugin_at(i)); i++) {
        if (core_plugin_describe(one, &about) != CORE_OK ||
            !is_listed(about.device_types, "cpu"))
            continue;
        if (about.state != CORE_PLUGIN_REFUSED)
            return false;
        refused = one;
    }
    core_setting_get("LIBCORE_PLUGIN_PATH", &path);
    if (refused && core_plugin_describe(refused, &about) == CORE_OK)
        fprintf(stderr,
                "core-conformance: the reference device \"cpu\" is missing: %s "
                "is refused: %s\n",
                about.path, about.reason);
    else
        fprintf(stderr,
                "core-conformance: the reference device \"cpu\" is missing: no "
                "plugin that was found provides it (`core-info` lists them); "
                "the folder of core_cpu.so must be in LIBCORE_PLUGIN_PATH, "
                "which is %s%s%s\n",
                path ? "\"" : "not set", path ? path : "", path ? "\"" : "");
    return true;
}

/* The options that the child processes need. */
static void give_to_children(const options *chosen,
                             const char *arguments[ARGUMENTS])
{
    const struct {
        const char *flag, *text;
    } texts[] = {
        {"--plugin", chosen->plugin},
        {"--device", chosen->device},
        {"--golden", chosen->golden},
        {"--seed", chosen->seed},
        {"--compile-budget", chosen->budget},
        {"--open-budget", chosen->open_budget},
        {"--remove", chosen->remove},
        {"--restore", chosen->restore},
        {"--timeout", chosen->timeout},
        {"--filter", chosen->filter},
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text) {
            arguments[n++] = texts[i].flag;
            arguments[n++] = texts[i].text;
        }
    if (chosen->quick)
        arguments[n++] = "--quick";
    if (chosen->list)
        arguments[n++] = "--list";
    arguments[n] = NULL;
}

int check_main(int argc, char **argv)
{
    options chosen = {0};
    const char *arguments[ARGUMENTS];
    report found = {0};
    runner self = {.arguments = arguments, .report = &found};
    char *plugin = NULL;
    int result = read_options(argc, argv, &chosen);

    if (result >= 0)
        return result;
    if (chosen.child_list || chosen.child_list_core || chosen.child_run)
        return child_main(&chosen);
    if (chosen.verify)
        return submit_verify(chosen.verify, chosen.plugin);
    plugin = chosen.plugin ? absolute(chosen.plugin) : NULL;
    if (!plugin)
        return EXIT_USAGE;
    chosen.plugin = plugin;
    result = EXIT_USAGE;
    if (is_refused(plugin, chosen.device) || is_damaged(plugin) ||
        lacks_reference() ||
        !complete_options(&chosen, &found, &self.timeout) ||
        (!chosen.list && !can_finish(&chosen)))
        goto done;
    give_to_children(&chosen, arguments);
    self.verbose = chosen.verbose;
    result = run(&chosen, &self, &found);
done:
    report_free(&found);
    free(plugin);
    return result;
}
