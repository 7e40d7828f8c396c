/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "collectives.h"

#include "collective_rank.h"
#include "launched_ranks.h"
#include "name_filter.h"
#include "rank_outcome.h"
#include "rank_processes.h"

#include "base/launcher.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };
/* Seconds of a test.  A rank has some seconds to make the next call, even on a
 * machine that is busy. */
enum { TIME_LIMIT_LEAST = 10, TIME_LIMIT = 60, TIME_LIMIT_MOST = 86400 };

const char collectives_usage[] =
    "       core-conformance --collectives N --plugin FILE.so [--engine NAME]\n"
    "                        [--device NAME] [--filter GLOB] [--timeout "
    "SECONDS]\n"
    "                        [--list]\n"
    "\n"
    "  --collectives N   tests core.collectives with N processes, 2 to 16,\n"
    "                    which it starts, or which mpirun, srun or torchrun\n"
    "                    has started\n"
    "  --engine NAME     of the plugin (default: its first)\n"
    "  --device NAME     whose tensors are used; \"cuda:\" is the device with "
    "the\n"
    "                    number of the rank (default: cpu)\n"
    "  --timeout SECONDS for a test, from 10; a rank that has not ended then\n"
    "                    is reported as hanging (default: 60)\n";

typedef struct options {
    uint32_t ranks;
    const char *filter;
    double limit; /* seconds for a test */
    bool list;
    rank_setup setup;
} options;

static int print_error(const char *what, const char *more)
{
    fprintf(stderr, "core-conformance: %s%s\n", what, more);
    return EXIT_USAGE;
}

/* ------------------------------------------------------------- options -- */

static bool read_number(const char *text, long least, long most, long *out)
{
    char *end;

    errno = 0;
    *out = strtol(text, &end, 10);
    if (end != text && !*end && !errno && *out >= least && *out <= most)
        return true;
    fprintf(stderr,
            "core-conformance: %s; accepted with --collectives: %ld to %ld\n",
            text, least, most);
    return false;
}

/* Returns -1 to continue, or else the exit status. */
static int read_options(int argc, char **argv, options *out)
{
    const char *ranks = NULL, *timeout = NULL;
    const struct {
        const char *flag, **text;
    } flags[] = {
        {"--collectives", &ranks},        {"--plugin", &out->setup.plugin},
        {"--engine", &out->setup.engine}, {"--device", &out->setup.device},
        {"--filter", &out->filter},       {"--timeout", &timeout},
    };
    long number = TIME_LIMIT;

    out->setup.device = "cpu";
    for (int i = 1; i < argc; i++) {
        size_t k = 0;

        if (strcmp(argv[i], "--list") == 0) {
            out->list = true;
            continue;
        }
        while (k < sizeof flags / sizeof *flags &&
               strcmp(argv[i], flags[k].flag) != 0)
            k++;
        if (k == sizeof flags / sizeof *flags)
            return print_error("unknown flag with --collectives: ", argv[i]);
        if (++i == argc)
            return print_error(argv[i - 1], " needs a value");
        *flags[k].text = argv[i];
    }
    if (timeout &&
        !read_number(timeout, TIME_LIMIT_LEAST, TIME_LIMIT_MOST, &number))
        return EXIT_USAGE;
    out->limit = (double)number;
    if (!ranks || !read_number(ranks, RANKS_LEAST, RANKS_MOST, &number))
        return ranks ? EXIT_USAGE
                     : print_error("--collectives", " needs a value");
    out->ranks = (uint32_t)number;
    out->setup.timeout = out->limit / 2;
    out->setup.short_timeout = out->limit / 4;
    return out->setup.plugin
               ? -1
               : print_error("--collectives", " needs --plugin FILE.so");
}

/* --------------------------------------------------------------- a test -- */

/* The next test's ranks would read the id of a communicator that has ended. */
static void remove_stores(const char *path)
{
    char second[PATH_MAX + 32];

    unlink(path);
    snprintf(second, sizeof second, "%s" RANK_SHORT_STORE, path);
    unlink(second);
}

/* Returns EXIT_SUCCESS, EXIT_FAILURE, or EXIT_USAGE if nothing can be tested. */
static int run_test(const options *chosen, const collective_test *test,
                    size_t number, rank_shared *shared)
{
    rank_processes all;
    uint32_t unusable;
    int error;

    memset(shared, 0, sizeof *shared);
    error = rank_processes_run(&chosen->setup, test, shared, chosen->ranks,
                               chosen->limit, &all);
    if (error)
        return print_error("a process of a rank: ", strerror(error));
    if (rank_processes_signal())
        return EXIT_USAGE;
    remove_stores(chosen->setup.store + strlen("file:"));
    unusable = rank_outcome_find(shared, chosen->ranks, RANK_UNUSABLE);
    if (unusable < chosen->ranks)
        return print_error("", shared->reports[unusable].detail);
    return rank_outcome_report(test, number, shared, &all, chosen->ranks)
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}

/* ----------------------------------------------------------------- run -- */

static int run_list(const options *chosen, const collective_test *tests,
                    rank_shared *shared, size_t *number, size_t *failed)
{
    for (; tests->name; tests++) {
        int result;

        if (!name_filter_selects(chosen->filter, tests->name))
            continue;
        ++*number;
        if (chosen->list) {
            printf("%s\n", tests->name);
            continue;
        }
        result = run_test(chosen, tests, *number, shared);
        if (result == EXIT_USAGE)
            return result;
        *failed += result != EXIT_SUCCESS;
        fflush(stdout);
    }
    return EXIT_SUCCESS;
}

static int run_all(const options *chosen, rank_shared *shared)
{
    size_t number = 0, failed = 0;
    int result = run_list(chosen, collective_results, shared, &number, &failed);

    if (result == EXIT_SUCCESS)
        result = run_list(chosen, collective_faults, shared, &number, &failed);
    if (result != EXIT_SUCCESS || chosen->list)
        return result;
    if (number == 0)
        return print_error("--filter matches no test: ", chosen->filter);
    printf("1..%zu\n# %zu passed, %zu failed, with %u ranks on %s\n", number,
           number - failed, failed, chosen->ranks, chosen->setup.device);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* A rank that was ended may have left files. */
static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    while (folder && (entry = readdir(folder)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

/* In a folder of this process, where no other file can be. */
static int run_with_store(options *chosen, rank_shared *shared)
{
    const char *folder = getenv("TMPDIR");
    char path[PATH_MAX], store[PATH_MAX + 16];
    int result, number;

    snprintf(path, sizeof path, "%s/libcore-collectives-XXXXXX",
             folder && *folder ? folder : "/tmp");
    rank_processes_catch();
    if (!mkdtemp(path))
        return print_error("a folder for the ranks: ", strerror(errno));
    snprintf(store, sizeof store, "file:%s/store", path);
    chosen->setup.store = store;
    result = run_all(chosen, shared);
    remove_folder(path);
    number = rank_processes_signal();
    if (number) {
        signal(number, SIG_DFL);
        raise(number);
    }
    return result;
}

/* In processes that it starts. */
static int run_processes(options *chosen)
{
    rank_shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int result;

    if (shared == MAP_FAILED)
        return print_error("memory of the ranks: ", strerror(errno));
    result = run_with_store(chosen, shared);
    munmap(shared, sizeof *shared);
    return result;
}

/* As one of the processes that a launcher has started. */
static int run_launched(const options *chosen, uint32_t number, uint32_t size)
{
    if (size == chosen->ranks)
        return launched_rank_run(&chosen->setup, chosen->filter, chosen->limit,
                                 number, size);
    fprintf(stderr,
            "core-conformance: --collectives %u; the launcher has started %u "
            "processes\n",
            chosen->ranks, size);
    return EXIT_USAGE;
}

int collectives_main(int argc, char **argv)
{
    options chosen = {0};
    uint32_t number, size;
    char *plugin;
    int result = read_options(argc, argv, &chosen);

    if (result >= 0)
        return result;
    if (chosen.list)
        return run_all(&chosen, NULL);
    plugin = realpath(chosen.setup.plugin, NULL);
    if (!plugin)
        return print_error(chosen.setup.plugin, ": no such file");
    chosen.setup.plugin = plugin;
    result = core__launcher_place(&number, &size) && size > 1
                 ? run_launched(&chosen, number, size)
                 : run_processes(&chosen);
    free(plugin);
    return result;
}
