/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "train.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const train_optimizers[TRAIN_OPTIMIZERS] = {
    [TRAIN_ADAM] = "adam",
    [TRAIN_ADAMW] = "adamw",
    [TRAIN_SGD] = "sgd",
};

static const char help[] =
    "Usage: core-train [OPTION]...\n"
    "Trains a classifier of small grey images (Fashion-MNIST) and says how\n"
    "well it does.\n"
    "\n"
    "  --model NAME          mlp: 784-256-128-100-10 [mlp]\n"
    "  --device NAME         cpu, cuda:1, ... [LIBCORE_DEVICE, else cpu]\n"
    "  --threads N           of the CPU, 1 to 1024; changes no result\n"
    "  --epochs N            how often to go through the data, in total [15]\n"
    "  --batch N             images per step [128]\n"
    "  --optimizer NAME      adam, adamw or sgd [adam]\n"
    "  --lr X                learning rate [0.0015; sgd 0.05]\n"
    "  --lr-decay X          after each epoch lr is multiplied by it [0.85]\n"
    "  --momentum X          of sgd [0.9]\n"
    "  --weight-decay X      [0]\n"
    "  --seed N              of weights and order of the images [0]\n"
    "  --save FILE           writes a checkpoint after every epoch, and when\n"
    "                        interrupted (Ctrl-C)\n"
    "  --resume FILE         goes on from a checkpoint\n"
    "  --json                standard output is JSON, one object a line; the\n"
    "                        last one has \"test_accuracy\"\n"
    "  --limit N             use only the first N images of each half\n"
    "  --data DIR            where the data set is\n"
    "                        [/usr/share/datasets/fashion-mnist]\n"
    "  --train-images FILE, --train-labels FILE, --test-images FILE,\n"
    "  --test-labels FILE    its files, IDX format, packed by gzip or not\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 trained, 1 failed, 2 wrong usage, 130 interrupted.\n";

enum {
    OPTION_MODEL = 256,
    OPTION_DEVICE,
    OPTION_THREADS,
    OPTION_EPOCHS,
    OPTION_BATCH,
    OPTION_OPTIMIZER,
    OPTION_LR,
    OPTION_LR_DECAY,
    OPTION_MOMENTUM,
    OPTION_WEIGHT_DECAY,
    OPTION_SEED,
    OPTION_SAVE,
    OPTION_RESUME,
    OPTION_JSON,
    OPTION_LIMIT,
    OPTION_DATA,
    OPTION_TRAIN_IMAGES, /* the four in the order of options.files */
    OPTION_TRAIN_LABELS,
    OPTION_TEST_IMAGES,
    OPTION_TEST_LABELS,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option names[] = {
    {"model", required_argument, NULL, OPTION_MODEL},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"epochs", required_argument, NULL, OPTION_EPOCHS},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"lr", required_argument, NULL, OPTION_LR},
    {"lr-decay", required_argument, NULL, OPTION_LR_DECAY},
    {"momentum", required_argument, NULL, OPTION_MOMENTUM},
    {"weight-decay", required_argument, NULL, OPTION_WEIGHT_DECAY},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"save", required_argument, NULL, OPTION_SAVE},
    {"resume", required_argument, NULL, OPTION_RESUME},
    {"json", no_argument, NULL, OPTION_JSON},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"data", required_argument, NULL, OPTION_DATA},
    {"train-images", required_argument, NULL, OPTION_TRAIN_IMAGES},
    {"train-labels", required_argument, NULL, OPTION_TRAIN_LABELS},
    {"test-images", required_argument, NULL, OPTION_TEST_IMAGES},
    {"test-labels", required_argument, NULL, OPTION_TEST_LABELS},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

bool train_parse_integer(const char *text, int64_t least, int64_t most,
                         int64_t *out_value)
{
    char *end;
    long long value;

    if ((*text < '0' || *text > '9') && *text != '-')
        return false;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return false;
    *out_value = value;
    return true;
}

bool train_parse_number(const char *text, double *out_value)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !isfinite(value))
        return false;
    *out_value = value;
    return true;
}

static core_status wrong(int option, const char *text, const char *wanted)
{
    const char *name = "?";

    for (const struct option *known = names; known->name; known++)
        if (known->val == option)
            name = known->name;
    return train_error(CORE_ERROR_INVALID_ARGUMENT,
                       "--%s %s: %s; see core-train --help", name, text,
                       wanted);
}

static core_status parse_integer(int option, const char *text, int64_t least,
                                 int64_t most, int64_t *out_value)
{
    char wanted[80];

    if (train_parse_integer(text, least, most, out_value))
        return CORE_OK;
    snprintf(wanted, sizeof wanted,
             most == INT64_MAX ? "a whole number, %lld or more, is wanted"
                               : "a whole number from %lld to %lld is wanted",
             (long long)least, (long long)most);
    return wrong(option, text, wanted);
}

static core_status parse_number(int option, const char *text, bool or_zero,
                                double *out_value)
{
    if (train_parse_number(text, out_value) &&
        (*out_value > 0 || (or_zero && *out_value == 0)))
        return CORE_OK;
    return wrong(option, text,
                 or_zero ? "a number, 0 or more, is wanted"
                         : "a number above 0 is wanted");
}

static core_status parse_optimizer(const char *text, uint32_t *out_optimizer)
{
    for (uint32_t i = 0; i < TRAIN_OPTIMIZERS; i++)
        if (strcmp(text, train_optimizers[i]) == 0) {
            *out_optimizer = i;
            return CORE_OK;
        }
    return wrong(OPTION_OPTIMIZER, text, "there are adam, adamw and sgd");
}

static core_status parse_model(const char *text, const char **out_model)
{
    if (!train_model_find(text))
        return wrong(OPTION_MODEL, text, "there is mlp");
    *out_model = text;
    return CORE_OK;
}

static core_status take_number(train_options *options, int option,
                               const char *text)
{
    int64_t value = 0;

    switch (option) {
    case OPTION_THREADS:
        CORE_TRY(parse_integer(option, text, 1, 1024, &value));
        options->threads = (uint32_t)value;
        return CORE_OK;
    case OPTION_EPOCHS:
        return parse_integer(option, text, 1, 1000000, &options->epochs);
    case OPTION_BATCH:
        options->given |= TRAIN_GAVE_BATCH;
        return parse_integer(option, text, 1, 1000000, &options->batch);
    case OPTION_LIMIT:
        return parse_integer(option, text, 1, INT64_MAX, &options->limit);
    case OPTION_SEED:
        options->given |= TRAIN_GAVE_SEED;
        CORE_TRY(parse_integer(option, text, 0, INT64_MAX, &value));
        options->seed = (uint64_t)value;
        return CORE_OK;
    case OPTION_LR:
        options->given |= TRAIN_GAVE_LR;
        return parse_number(option, text, false, &options->lr);
    case OPTION_LR_DECAY:
        options->given |= TRAIN_GAVE_LR_DECAY;
        return parse_number(option, text, false, &options->lr_decay);
    case OPTION_MOMENTUM:
        options->given |= TRAIN_GAVE_MOMENTUM;
        return parse_number(option, text, true, &options->momentum);
    default: /* OPTION_WEIGHT_DECAY */
        options->given |= TRAIN_GAVE_WEIGHT_DECAY;
        return parse_number(option, text, true, &options->weight_decay);
    }
}

static core_status take(train_options *options, int option, const char *text)
{
    switch (option) {
    case OPTION_MODEL:
        options->given |= TRAIN_GAVE_MODEL;
        return parse_model(text, &options->model);
    case OPTION_OPTIMIZER:
        options->given |= TRAIN_GAVE_OPTIMIZER;
        return parse_optimizer(text, &options->optimizer);
    case OPTION_DEVICE:
        if (strcmp(text, "meta") == 0)
            return wrong(option, text, "a device that computes is wanted");
        options->device = text;
        return CORE_OK;
    case OPTION_SAVE:
        options->save = text;
        return CORE_OK;
    case OPTION_RESUME:
        options->resume = text;
        return CORE_OK;
    case OPTION_DATA:
        options->data = text;
        return CORE_OK;
    case OPTION_JSON:
        options->json = true;
        return CORE_OK;
    case OPTION_TRAIN_IMAGES:
    case OPTION_TRAIN_LABELS:
    case OPTION_TEST_IMAGES:
    case OPTION_TEST_LABELS:
        options->files[option - OPTION_TRAIN_IMAGES] = text;
        return CORE_OK;
    default:
        return take_number(options, option, text);
    }
}

static void set_defaults(train_options *options)
{
    *options = (train_options){
        .model = "mlp",
        .data = "/usr/share/datasets/fashion-mnist",
        .epochs = 15,
        .batch = 128,
        .optimizer = TRAIN_ADAM,
        .lr_decay = 0.85,
        .momentum = 0.9,
    };
}

core_status train_options_parse(train_options *options, int argc, char **argv,
                                bool *out_exit)
{
    int option;

    set_defaults(options);
    *out_exit = false;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:", names, NULL)) != -1) {
        if (option == OPTION_HELP || option == OPTION_VERSION) {
            if (option == OPTION_HELP)
                fputs(help, stdout);
            else
                printf("core-train %s\n", core_version());
            *out_exit = true;
            return CORE_OK;
        }
        if (option == ':')
            return train_error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s wants a value; see core-train --help",
                               argv[optind - 1]);
        if (option == '?' && optopt > 0 && optopt < OPTION_MODEL)
            return train_error(CORE_ERROR_INVALID_ARGUMENT,
                               "unknown option -%c; see core-train --help",
                               optopt);
        if (option == '?')
            return train_error(CORE_ERROR_INVALID_ARGUMENT,
                               optopt ? "%s takes no value; see core-train "
                                        "--help"
                                      : "unknown option %s; see core-train "
                                        "--help",
                               argv[optind - 1]);
        CORE_TRY(take(options, option, optarg));
    }
    if (optind < argc)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "what is \"%s\"? See core-train --help",
                           argv[optind]);
    if ((options->given & TRAIN_GAVE_MOMENTUM) && !options->resume &&
        options->optimizer != TRAIN_SGD)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--momentum goes with --optimizer sgd");
    if (!(options->given & TRAIN_GAVE_LR))
        options->lr = options->optimizer == TRAIN_SGD ? 0.05 : 0.0015;
    return CORE_OK;
}
