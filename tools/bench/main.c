/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core-bench: measures the speed of libcore. */

#include "bench.h"

#include "base/json.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bench_options bench = {.first_threads = 1, .last_threads = 2};

static const char help[] =
    "Usage: core-bench [OPTION]... [SECTION]...\n"
    "       core-bench count ROW N [DEVICE]\n"
    "       core-bench --device NAME [OPTION]...\n"
    "Measures libcore on the CPU or on another device.  Prints lines of\n"
    "name, value and unit.\n"
    "\n"
    "Sections (all, if none is named):\n"
    "  micro      operators on one element, dispatch, tensors, views\n"
    "  autograd   backward through chains of small operators; Jacobians and\n"
    "             Hessians\n"
    "  train      training steps of two perceptrons, a transformer block and\n"
    "             an LSTM\n"
    "  networks   whole networks, batch 1 and 8: ResNet-18, one-dimensional\n"
    "             convolutions, layers of GPT-2 small and of Llama\n"
    "  alloc      memory of a device with streams, on sim\n"
    "  elem       large tensors and rows of matrices; then operators by dtype\n"
    "             and layout, against a copy\n"
    "  blas       matrix products and convolutions; in both, what the\n"
    "             machine can do at most (limit.*), and rows as a share of it\n"
    "  load       from the start of a process to its first result\n"
    "  linear     what the fused Linear costs beyond its products\n"
    "  compile    compiled functions: guards, small functions and their first "
    "calls\n"
    "  amp        the transformer block in f32 and in bf16 autocast\n"
    "  comm       collectives of the ranks that mpirun started, beside MPI's;\n"
    "             data-parallel steps\n"
    "\n"
    "  --device NAME  launches, memory, products, attention, training and "
    "graphs\n"
    "                 of that device, and no section\n"
    "  --threads N    train, networks, elem, blas and amp with N threads\n"
    "                 [1, then 2]\n"
    "  --compare FILE a table against the lines of another benchmark of the "
    "same\n"
    "                 names\n"
    "  --min-time S   seconds per repeat, for every row [0.02 to 0.1]\n"
    "  --json         one JSON object per line\n"
    "  --help, --version\n"
    "\n"
    "count runs ROW N times in a function core_bench_counted, for callgrind's\n"
    "--toggle-collect; `core-bench count` lists the rows.  With DEVICE,\n"
    "another device, that device is opened first, with interposers around "
    "it.\n";

/* --------------------------------------------------------------- results -- */

/* limit 0: no limit. */
static void put(const char *name, double value, const char *unit, double limit)
{
    core__json json;

    bench_compare_add(name, value, unit);
    if (!bench.json) {
        /* On a busy machine a rate may be far below 0.001. */
        printf(value > 0 && value < .01 ? "%-44s %12.3g %s" : "%-44s %12.3f %s",
               name, value, unit);
        if (limit > 0)
            printf("  %.0f %% of the limit", 100 * value / limit);
        printf("\n");
    } else {
        core__json_begin(&json, core__json_to_file, stdout);
        json.flat = true;
        core__json_object(&json, NULL);
        core__json_text(&json, "name", name);
        core__json_number(&json, "value", value);
        core__json_text(&json, "unit", unit);
        if (limit > 0)
            core__json_number(&json, "of_limit", value / limit);
        core__json_end(&json);
        core__json_finish(&json);
    }
    fflush(stdout);
}

void bench_out(const char *name, double value, const char *unit)
{
    put(name, value, unit, 0);
}

void bench_out_limit(const char *name, double value, const char *unit,
                     double limit)
{
    put(name, value, unit, limit);
}

void bench_out_share(const char *name, uint32_t threads, double value,
                     const char *unit, double limit)
{
    char full[96];

    snprintf(full, sizeof full, "%s/t%u", name, threads);
    put(full, value, unit, limit);
}

void bench_out_threads(const char *name, uint32_t threads, double value,
                       const char *unit)
{
    bench_out_share(name, threads, value, unit, 0);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

void bench_fail(void)
{
    fprintf(stderr, "core-bench: %s\n", core_error_message());
    exit(EXIT_FAILURE);
}

/* --------------------------------------------------------------- options -- */

static const struct {
    const char *name;
    void (*run)(void);
} sections[] = {
    {"micro", bench_micro},   {"autograd", bench_autograd},
    {"train", bench_train},   {"alloc", bench_alloc},
    {"elem", bench_elem},     {"blas", bench_blas},
    {"load", bench_load},     {"amp", bench_amp},
    {"linear", bench_linear}, {"compile", bench_compile},
    {"comm", bench_comm},     {"networks", bench_networks},
};
enum { SECTIONS = sizeof sections / sizeof *sections };

static _Noreturn void usage(const char *what, const char *text)
{
    fprintf(stderr, "core-bench: %s %s; see core-bench --help\n", what, text);
    exit(2);
}

/* The exit status at the end; lost output is a failure. */
static int finish(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_SUCCESS;
    fprintf(stderr, "core-bench: writing standard output failed\n");
    return EXIT_FAILURE;
}

static const char *device_name; /* of --device; NULL */

static void parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"device", required_argument, NULL, 'd'},
        {"threads", required_argument, NULL, 't'},
        {"min-time", required_argument, NULL, 'm'},
        {"json", no_argument, NULL, 'j'},
        {"compare", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    char *end = "";
    unsigned long threads;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", names, NULL)) != -1) {
        switch (option) {
        case 'd':
            device_name = optarg;
            break;
        case 't':
            threads = strtoul(optarg, &end, 10);
            bench.first_threads = bench.last_threads = (uint32_t)threads;
            if (*end || threads < 1 || threads > 1024)
                usage("--threads accepts a number from 1 to 1024, not", optarg);
            break;
        case 'm':
            bench.min_time = strtod(optarg, &end);
            if (*end || !(bench.min_time > 0) || bench.min_time > 3600)
                usage("--min-time accepts seconds, at most 3600, not", optarg);
            break;
        case 'c':
            bench.compare = optarg;
            break;
        case 'j':
            bench.json = true;
            break;
        case 'h':
            fputs(help, stdout);
            exit(finish());
        case 'v':
            printf("core-bench %s\n", core_version());
            exit(finish());
        case ':':
            usage("missing value after", argv[optind - 1]);
        default:
            usage("unknown argument", argv[optind - 1]);
        }
    }
}

static bool wanted(const char *name, char **words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return count == 0;
}

static void check_sections(char **words, int count)
{
    for (int i = 0; i < count; i++) {
        int k = 0;

        while (k < SECTIONS && strcmp(words[i], sections[k].name) != 0)
            k++;
        if (k == SECTIONS)
            usage("unknown section", words[i]);
    }
}

/* A plugin gets its interposers when it is opened. */
static void open_interposed(const char *name)
{
    core_device *device;

    must(core_setting_set("LIBCORE_INTERPOSERS", "validate,fault"));
    must(core_device_find(name, &device));
    must(core_setting_set("LIBCORE_INTERPOSERS", NULL));
}

static int count_row(char **words, int count)
{
    char *end = "";
    long n = count > 1 ? strtol(words[1], &end, 10) : 0;

    if (count == 0) {
        bench_count_names();
        return finish();
    }
    if (count < 2 || count > 3 || *end || n < 1)
        usage("count needs", "a row and a number");
    if (count == 3)
        open_interposed(words[2]);
    must(core_threads_set(1));
    if (!bench_count(words[0], n))
        usage("unknown row", words[0]);
    return EXIT_SUCCESS;
}

/* The file is read after the measurements, which is late to report an error. */
static bool can_be_read(const char *path)
{
    struct stat found;

    return access(path, R_OK) == 0 && stat(path, &found) == 0 &&
           !S_ISDIR(found.st_mode);
}

/* The exit status after the measurements. */
static int compared(void)
{
    int rows;

    must(core_device_set_current(NULL));
    if (bench.compare) {
        rows = bench_compare();
        if (rows < 0)
            return EXIT_FAILURE;
        if (rows == 0)
            usage("no measured row is in", bench.compare);
    }
    return finish();
}

/* Rows of another device, where work continues after a call returns. */
static void measure_device(char **words, int count)
{
    if (count > 0)
        usage("--device does not accept a section:", words[0]);
    must(core_device_find(device_name, &bench.device));
    must(core_device_set_current(bench.device));
    if (!bench.json)
        printf("# libcore %s on %s\n", core_version(), device_name);
    bench_device();
}

int main(int argc, char **argv)
{
    double began = bench_now();
    core_device *cpu;

    if (argc == 2 && strcmp(argv[1], BENCH_FIRST_RESULT) == 0)
        return bench_first_result(began);
    parse_options(argc, argv);
    if (bench.compare && bench.json)
        usage("--compare prints a table and does not accept", "--json");
    if (bench.compare && !can_be_read(bench.compare))
        usage("--compare cannot read", bench.compare);
    argc -= optind;
    argv += optind;
    if (device_name != NULL) {
        measure_device(argv, argc);
        return compared();
    }
    must(core_device_find("cpu", &cpu));
    must(core_device_set_current(cpu));
    if (argc > 0 && strcmp(argv[0], "count") == 0)
        return count_row(argv + 1, argc - 1);
    check_sections(argv, argc);
    if (sysconf(_SC_NPROCESSORS_ONLN) < (long)bench.last_threads &&
        bench.first_threads < bench.last_threads)
        bench.last_threads = bench.first_threads;
    if (!bench.json)
        printf("# libcore %s\n", core_version());
    for (int i = 0; i < SECTIONS; i++)
        if (wanted(sections[i].name, argv, argc)) {
            must(core_threads_set(1));
            sections[i].run();
        }
    return compared();
}
