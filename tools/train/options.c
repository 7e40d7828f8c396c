/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "train.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const train_optimizers[TRAIN_OPTIMIZERS] = {
    [TRAIN_ADAM] = "adam",
    [TRAIN_ADAMW] = "adamw",
    [TRAIN_SGD] = "sgd",
};

const char *const train_schedules[TRAIN_SCHEDULES] = {
    [TRAIN_DECAY] = "decay",
    [TRAIN_COSINE] = "cosine",
};

static const char help[] =
    "Usage: core-train [OPTION]...\n"
    "Trains a classifier of small grey images (Fashion-MNIST), or a\n"
    "transformer on a text, and evaluates it.\n"
    "\n"
    "  --model NAME          mlp: 784-256-128-100-10\n"
    "                        cnn: two convolutions, 86,000 parameters\n"
    "                        gpt: transformer that predicts the next "
    "character\n"
    "                        [mlp]\n"
    "  --device NAME         cpu, cuda:1, ... [LIBCORE_DEVICE, else cpu]\n"
    "  --devices NAME,NAME,...    splits the model: its layers are "
    "distributed\n"
    "                        evenly and in order; data and loss are on the\n"
    "                        first\n"
    "  --threads N           of the CPU, 1 to 1024; results do not depend on "
    "it\n"
    "  --loaders N           threads that read batches ahead, 0 to 64; "
    "results do\n"
    "                        not depend on it [2; cpu 0]\n"
    "  --epochs N            passes over the data, in total\n"
    "                        [15; cnn 20; gpt 10]\n"
    "  --steps N             stop after N batches in total, 0 or more\n"
    "  --batch N             images or text windows per step [128; gpt 32]\n"
    "  --optimizer NAME      adam, adamw or sgd [adam; gpt adamw]\n"
    "  --lr X                learning rate [0.0015; cnn 0.002; gpt 0.001;\n"
    "                        sgd 0.05]\n"
    "  --schedule NAME       decay: lr is multiplied by --lr-decay after each\n"
    "                        epoch; cosine: it falls to a tenth at the end\n"
    "                        [decay; cnn and gpt cosine]\n"
    "  --lr-decay X          [0.85; else 1]\n"
    "  --warmup N            first steps, during which lr rises [0; cnn 200;\n"
    "                        gpt 100]\n"
    "  --momentum X          for sgd, below 1 [0.9]\n"
    "  --weight-decay X      [0; gpt 0.01]\n"
    "  --clip X              largest norm of the gradient, 0: any [0; gpt 1]\n"
    "  --dropout X           share to drop, below 1 [cnn 0.2; gpt "
    "0.1]\n"
    "  --amp TYPE            bf16 or fp16: products and convolutions in that\n"
    "                        type, weights and sums in f32; fp16 scales the\n"
    "                        loss; fp8: linear layers with\n"
    "                        their operands quantized (f8e4m3, gradients\n"
    "                        f8e5m2, delayed scaling), the rest in f32; off\n"
    "                        [off]\n"
    "  --compile[=MODE]      records each step (forward, backward, optimizer) "
    "once\n"
    "                        and runs the program from then on, with the same\n"
    "                        weights; not with --amp fp16 or fp8, which keep\n"
    "                        state on the host.  MODE: default, or\n"
    "                        reduce-overhead: as device graphs, on devices "
    "that\n"
    "                        capture, or max-autotune: measures what to fuse "
    "[default]\n"
    "  --distributed ENGINE  trains in several processes, the ranks, which a\n"
    "                        launcher starts: mpirun -n 4 core-train\n"
    "                        --distributed mpi.  Each rank takes its part of\n"
    "                        every batch, and the gradients are averaged; "
    "rank\n"
    "                        0 reports and saves.  Not with several\n"
    "                        --devices, --compile or --amp fp8\n"
    "  --verify              after each step, checks that all ranks have the\n"
    "                        same weights or, with --shard=parameters, gather\n"
    "                        the same ones from their parts\n"
    "  --timeout SECONDS     with --distributed: how long a rank waits for "
    "the\n"
    "                        others in a collective [300]\n"
    "  --shrink              with --distributed mpi: if a rank ends or does "
    "not\n"
    "                        answer, the others go on without it from the\n"
    "                        last checkpoint; not with --tensor-parallel\n"
    "  --shard[=LEVEL]       with --distributed: each rank has a part of the\n"
    "                        optimizer's state, which it saves beside the\n"
    "                        checkpoint; not with --amp fp16.  LEVEL: states;\n"
    "                        gradients: of these, too; parameters: of the\n"
    "                        parameters, too, for --model gpt [states]\n"
    "  --tensor-parallel N   with --distributed and --model gpt: N ranks have "
    "parts\n"
    "                        of each matrix and compute the same samples; not\n"
    "                        with --shard or --amp fp16 [1]\n"
    "  --seed N              for weights, dropout and order of samples [0]\n"
    "  --save FILE           writes a checkpoint after every epoch, and when\n"
    "                        interrupted (Ctrl-C)\n"
    "  --resume FILE         continues from a checkpoint\n"
    "  --json                standard output is JSON, one object per line; "
    "the\n"
    "                        last one has \"test_accuracy\" or, for a text,\n"
    "                        \"validation_loss\"\n"
    "  --profile DIR         records some steps (20, after the first 10) and\n"
    "                        writes table.txt, trace.json, stacks.txt and\n"
    "                        report.html into DIR\n"
    "  --plot FILE           draws the losses of the epochs (SVG)\n"
    "  --log N               prints the loss after every N steps\n"
    "  --limit N             use only the first N images of each half, or\n"
    "                        characters of the text\n"
    "\n"
    "Images:\n"
    "  --data DIR            folder of the data set\n"
    "                        [/usr/share/datasets/fashion-mnist]\n"
    "  --train-images FILE, --train-labels FILE, --test-images FILE,\n"
    "  --test-labels FILE    its files, IDX format, compressed with gzip or "
    "not\n"
    "\n"
    "Text (--model gpt):\n"
    "  --text FILE           any file; its last tenth is for validation\n"
    "  --context N           context length in characters [64]\n"
    "  --layers N, --heads N, --width N    of the transformer [4, 4, 128]\n"
    "  --sample N            characters to generate at the end [300]\n"
    "\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 trained, 1 failed, 2 wrong usage, 130 interrupted, 143\n"
    "terminated.\n";

enum {
    OPTION_MODEL = 256,
    OPTION_DEVICE,
    OPTION_DEVICES,
    OPTION_THREADS,
    OPTION_LOADERS,
    OPTION_EPOCHS,
    OPTION_BATCH,
    OPTION_OPTIMIZER,
    OPTION_LR,
    OPTION_LR_DECAY,
    OPTION_MOMENTUM,
    OPTION_WEIGHT_DECAY,
    OPTION_SEED,
    OPTION_STEPS,
    OPTION_SCHEDULE,
    OPTION_WARMUP,
    OPTION_CLIP,
    OPTION_DROPOUT,
    OPTION_AMP,
    OPTION_COMPILE,
    OPTION_DISTRIBUTED,
    OPTION_VERIFY,
    OPTION_TIMEOUT,
    OPTION_SHRINK,
    OPTION_SHARD,
    OPTION_TENSOR_PARALLEL,
    OPTION_LOG,
    OPTION_TEXT,
    OPTION_CONTEXT,
    OPTION_LAYERS,
    OPTION_HEADS,
    OPTION_WIDTH,
    OPTION_SAMPLE,
    OPTION_SAVE,
    OPTION_RESUME,
    OPTION_PROFILE,
    OPTION_PLOT,
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
    {"devices", required_argument, NULL, OPTION_DEVICES},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"loaders", required_argument, NULL, OPTION_LOADERS},
    {"epochs", required_argument, NULL, OPTION_EPOCHS},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"lr", required_argument, NULL, OPTION_LR},
    {"lr-decay", required_argument, NULL, OPTION_LR_DECAY},
    {"momentum", required_argument, NULL, OPTION_MOMENTUM},
    {"weight-decay", required_argument, NULL, OPTION_WEIGHT_DECAY},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"steps", required_argument, NULL, OPTION_STEPS},
    {"schedule", required_argument, NULL, OPTION_SCHEDULE},
    {"warmup", required_argument, NULL, OPTION_WARMUP},
    {"clip", required_argument, NULL, OPTION_CLIP},
    {"dropout", required_argument, NULL, OPTION_DROPOUT},
    {"amp", required_argument, NULL, OPTION_AMP},
    {"compile", optional_argument, NULL, OPTION_COMPILE},
    {"distributed", required_argument, NULL, OPTION_DISTRIBUTED},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"shrink", no_argument, NULL, OPTION_SHRINK},
    {"shard", optional_argument, NULL, OPTION_SHARD},
    {"tensor-parallel", required_argument, NULL, OPTION_TENSOR_PARALLEL},
    {"log", required_argument, NULL, OPTION_LOG},
    {"text", required_argument, NULL, OPTION_TEXT},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"heads", required_argument, NULL, OPTION_HEADS},
    {"width", required_argument, NULL, OPTION_WIDTH},
    {"sample", required_argument, NULL, OPTION_SAMPLE},
    {"save", required_argument, NULL, OPTION_SAVE},
    {"resume", required_argument, NULL, OPTION_RESUME},
    {"profile", required_argument, NULL, OPTION_PROFILE},
    {"plot", required_argument, NULL, OPTION_PLOT},
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
                       "--%s %s: %s; see core-train --help", name,
                       text[0] ? text : "\"\"", wanted);
}

static core_status parse_integer(int option, const char *text, int64_t least,
                                 int64_t most, int64_t *out_value)
{
    char wanted[80];

    if (train_parse_integer(text, least, most, out_value))
        return CORE_OK;
    snprintf(wanted, sizeof wanted,
             most == INT64_MAX ? "must be an integer of at least %lld"
                               : "must be an integer from %lld to %lld",
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
                 or_zero ? "must be a number of at least 0"
                         : "must be a number above 0");
}

/* The names of core_shard_options.level. */
static core_status parse_shard(const char *text, uint32_t *out_level)
{
    static const char *const levels[] = {"states", "gradients", "parameters"};

    for (uint32_t i = 0; text && i < sizeof levels / sizeof *levels; i++)
        if (strcmp(text, levels[i]) == 0) {
            *out_level = i;
            return CORE_OK;
        }
    return text ? train_error(CORE_ERROR_INVALID_ARGUMENT,
                              "--shard=%.40s: accepted are states, gradients "
                              "and parameters",
                              text)
                : CORE_OK;
}

static core_status parse_optimizer(const char *text, uint32_t *out_optimizer)
{
    for (uint32_t i = 0; i < TRAIN_OPTIMIZERS; i++)
        if (strcmp(text, train_optimizers[i]) == 0) {
            *out_optimizer = i;
            return CORE_OK;
        }
    return wrong(OPTION_OPTIMIZER, text, "accepts adam, adamw and sgd");
}

static core_status parse_model(const char *text, const char **out_model)
{
    if (!train_model_find(text))
        return wrong(OPTION_MODEL, text, "accepts mlp, cnn and gpt");
    *out_model = text;
    return CORE_OK;
}

static core_status parse_schedule(const char *text, uint32_t *out_schedule)
{
    for (uint32_t i = 0; i < TRAIN_SCHEDULES; i++)
        if (strcmp(text, train_schedules[i]) == 0) {
            *out_schedule = i;
            return CORE_OK;
        }
    return wrong(OPTION_SCHEDULE, text, "accepts decay and cosine");
}

static core_status parse_amp(const char *text, uint32_t *out_amp)
{
    for (uint32_t i = 0; i < TRAIN_AMPS; i++)
        if (strcmp(text, train_amps[i]) == 0) {
            *out_amp = i;
            return CORE_OK;
        }
    return wrong(OPTION_AMP, text, "accepts bf16, fp16, fp8 and off");
}

static core_status parse_compile(const char *text, uint32_t *out_mode)
{
    *out_mode = 0;
    if (!text)
        return CORE_OK;
    for (uint32_t i = 0; i < TRAIN_COMPILE_MODES; i++)
        if (strcmp(text, train_compile_modes[i]) == 0) {
            *out_mode = i;
            return CORE_OK;
        }
    return wrong(OPTION_COMPILE, text,
                 "accepts default, reduce-overhead and max-autotune");
}

/* Integer options. */
static const struct {
    int option;
    unsigned gave;
    size_t at;
    int64_t least;
    int64_t most;
} integers[] = {
#define AT(field) offsetof(train_options, field)
    {OPTION_EPOCHS, TRAIN_GAVE_EPOCHS, AT(epochs), 1, 1000000},
    {OPTION_STEPS, 0, AT(steps), 0, INT64_MAX},
    {OPTION_BATCH, TRAIN_GAVE_BATCH, AT(batch), 1, 1000000},
    {OPTION_LIMIT, 0, AT(limit), 1, INT64_MAX},
    {OPTION_LOADERS, 0, AT(loaders), 0, 64},
    {OPTION_SEED, TRAIN_GAVE_SEED, AT(seed), 0, INT64_MAX},
    {OPTION_LOG, 0, AT(log), 1, INT64_MAX},
    {OPTION_SAMPLE, 0, AT(sample), 0, 1000000},
    {OPTION_WARMUP, TRAIN_GAVE_WARMUP, AT(warmup), 0, 1000000000},
    {OPTION_CONTEXT, TRAIN_GAVE_CONTEXT, AT(context), 1, 65536},
    {OPTION_LAYERS, TRAIN_GAVE_LAYERS, AT(layers), 1, 1000},
    {OPTION_HEADS, TRAIN_GAVE_HEADS, AT(heads), 1, 1000},
    {OPTION_WIDTH, TRAIN_GAVE_WIDTH, AT(width), 1, 65536},
};

/* Options that are any number. */
static const struct {
    int option;
    unsigned gave;
    size_t at;
    bool or_zero;
} numbers[] = {
    {OPTION_LR, TRAIN_GAVE_LR, AT(lr), false},
    {OPTION_LR_DECAY, TRAIN_GAVE_LR_DECAY, AT(lr_decay), false},
    {OPTION_MOMENTUM, TRAIN_GAVE_MOMENTUM, AT(momentum), true},
    {OPTION_WEIGHT_DECAY, TRAIN_GAVE_WEIGHT_DECAY, AT(weight_decay), true},
    {OPTION_CLIP, TRAIN_GAVE_CLIP, AT(clip), true},
    {OPTION_DROPOUT, TRAIN_GAVE_DROPOUT, AT(dropout), true},
#undef AT
};

static core_status take_number(train_options *options, int option,
                               const char *text)
{
    int64_t value = 0;

    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (integers[i].option == option) {
            options->given |= integers[i].gave;
            return parse_integer(
                option, text, integers[i].least, integers[i].most,
                (int64_t *)(void *)((char *)options + integers[i].at));
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].option == option) {
            options->given |= numbers[i].gave;
            CORE_TRY(parse_number(
                option, text, numbers[i].or_zero,
                (double *)(void *)((char *)options + numbers[i].at)));
            if ((option == OPTION_DROPOUT && options->dropout >= 1) ||
                (option == OPTION_MOMENTUM && options->momentum >= 1))
                return wrong(option, text, "must be a number below 1");
            return CORE_OK;
        }
    CORE_TRY(parse_integer(option, text, 1, 1024, &value)); /* --threads */
    options->threads = (uint32_t)value;
    return CORE_OK;
}

/* Checks only what can be wrong in any case; which devices exist is checked
 * later. */
static core_status check_devices(int option, const char *text)
{
    size_t count = 0;

    for (const char *name = text; name; name = strchr(name, ',')) {
        name += *name == ',';
        if (strcspn(name, ",") == 4 && strncmp(name, "meta", 4) == 0)
            return wrong(option, text, "must be a device that computes");
        if (++count > (option == OPTION_DEVICE ? 1 : TRAIN_DEVICES))
            return wrong(option, text,
                         option == OPTION_DEVICE
                             ? "must be one device; --devices accepts several"
                             : "has too many devices");
    }
    return CORE_OK;
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
    case OPTION_SCHEDULE:
        options->given |= TRAIN_GAVE_SCHEDULE;
        return parse_schedule(text, &options->schedule);
    case OPTION_AMP:
        options->given |= TRAIN_GAVE_AMP;
        return parse_amp(text, &options->amp);
    case OPTION_COMPILE:
        options->compiles = true;
        return parse_compile(text, &options->compile);
    case OPTION_DISTRIBUTED:
        options->distributed = text;
        return CORE_OK;
    case OPTION_SHARD:
        options->shards = true;
        return parse_shard(text, &options->shard_level);
    case OPTION_TENSOR_PARALLEL:
        return parse_integer(option, text, 1, 1024, &options->tensor_parallel);
    case OPTION_VERIFY:
        options->verifies = true;
        return CORE_OK;
    case OPTION_TIMEOUT:
        return parse_number(option, text, false, &options->timeout);
    case OPTION_SHRINK:
        options->shrinks = true;
        return CORE_OK;
    case OPTION_TEXT:
        options->text = text;
        return CORE_OK;
    case OPTION_DEVICE:
    case OPTION_DEVICES:
        if (options->devices)
            return wrong(option, text, "names a device twice");
        CORE_TRY(check_devices(option, text));
        options->devices = text;
        return CORE_OK;
    case OPTION_SAVE:
        options->save = text;
        return CORE_OK;
    case OPTION_RESUME:
        options->resume = text;
        return CORE_OK;
    case OPTION_PROFILE:
        options->profile = text;
        return CORE_OK;
    case OPTION_PLOT:
        options->plot = text;
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
        .steps = -1,
        .loaders = -1,
        .sample = 300,
        .momentum = 0.9,
        .context = 64,
        .layers = 4,
        .heads = 4,
        .width = 128,
        .tensor_parallel = 1,
    };
}

void train_options_complete(train_options *options)
{
    const train_options *usual = &train_model_find(options->model)->defaults;
    unsigned given = options->given;

    if (!(given & TRAIN_GAVE_EPOCHS))
        options->epochs = usual->epochs;
    if (!(given & TRAIN_GAVE_BATCH))
        options->batch = usual->batch;
    if (!(given & TRAIN_GAVE_OPTIMIZER))
        options->optimizer = usual->optimizer;
    if (!(given & TRAIN_GAVE_LR))
        options->lr = options->optimizer == TRAIN_SGD ? 0.05 : usual->lr;
    if (!(given & TRAIN_GAVE_SCHEDULE))
        options->schedule = usual->schedule;
    if (!(given & TRAIN_GAVE_LR_DECAY))
        options->lr_decay = usual->lr_decay;
    if (!(given & TRAIN_GAVE_WARMUP))
        options->warmup = usual->warmup;
    if (!(given & TRAIN_GAVE_WEIGHT_DECAY))
        options->weight_decay = usual->weight_decay;
    if (!(given & TRAIN_GAVE_CLIP))
        options->clip = usual->clip;
    if (!(given & TRAIN_GAVE_DROPOUT))
        options->dropout = usual->dropout;
}

static core_status check_shard(const train_options *options)
{
    if (options->shards && !options->distributed)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--shard, and a checkpoint that was made with it, "
                           "require --distributed");
    if (options->shards && options->amp == TRAIN_AMP_FP16)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--shard does not support --amp fp16, because ranks "
                           "would skip different steps");
    if (options->shard_level != TRAIN_SHARD_PARAMETERS)
        return CORE_OK;
    if (!train_model_find(options->model)->pieces)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--shard=parameters requires --model gpt");
    return CORE_OK;
}

static core_status check_tensor_parallel(const train_options *options)
{
    long long ranks = options->tensor_parallel, heads = options->heads;

    if (ranks == 1)
        return CORE_OK;
    if (!options->distributed || !train_model_find(options->model)->cut)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--tensor-parallel requires --distributed and "
                           "--model gpt");
    if (heads % ranks != 0)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--tensor-parallel %lld does not divide --heads "
                           "%lld",
                           ranks, heads);
    if (options->shards || options->amp == TRAIN_AMP_FP16)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--tensor-parallel supports neither --shard nor "
                           "--amp fp16");
    return CORE_OK;
}

static core_status check_distributed(const train_options *options)
{
    if (options->verifies && !options->distributed)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--verify requires --distributed");
    if ((options->timeout > 0 || options->shrinks) && !options->distributed)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--%s requires --distributed",
                           options->shrinks ? "shrink" : "timeout");
    if (options->shrinks && strcmp(options->distributed, "mpi") != 0)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--shrink requires --distributed mpi; \"%s\" cannot "
                           "make a communicator of the ranks that are left",
                           options->distributed);
    if (options->shrinks && options->tensor_parallel > 1)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--shrink does not support --tensor-parallel, whose "
                           "parts end with their ranks");
    if (options->distributed && options->compiles)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--distributed does not support --compile, because "
                           "collectives cannot be recorded");
    if (options->distributed && options->amp == TRAIN_AMP_FP8)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--distributed does not support --amp fp8, whose "
                           "quantizers would differ by rank");
    if (options->distributed && options->devices &&
        strchr(options->devices, ','))
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--distributed does not support several --devices");
    return CORE_OK;
}

core_status train_options_check(const train_options *options)
{
    const unsigned shape = TRAIN_GAVE_CONTEXT | TRAIN_GAVE_LAYERS |
                           TRAIN_GAVE_HEADS | TRAIN_GAVE_WIDTH;
    bool text = train_model_find(options->model)->task == &train_text_task;

    CORE_TRY(check_distributed(options));
    CORE_TRY(check_shard(options));
    CORE_TRY(check_tensor_parallel(options));
    if ((options->given & TRAIN_GAVE_MOMENTUM) &&
        options->optimizer != TRAIN_SGD)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--momentum requires --optimizer sgd");
    if (options->compiles &&
        (options->amp == TRAIN_AMP_FP16 || options->amp == TRAIN_AMP_FP8))
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--compile does not support --amp %s, which %s in "
                           "each step",
                           train_amps[options->amp],
                           options->amp == TRAIN_AMP_FP16
                               ? "reads on the host whether gradients are "
                                 "finite"
                               : "changes quantizers on the host");
    if (!text && (options->text || (options->given & shape)))
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--text, --context, --layers, --heads and --width "
                           "require --model gpt");
    if ((options->given & TRAIN_GAVE_DROPOUT) && options->dropout > 0 &&
        strcmp(options->model, "mlp") == 0)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--dropout requires --model cnn or gpt");
    if (text && !options->text)
        return train_error(
            CORE_ERROR_INVALID_ARGUMENT,
            "--model gpt requires --text FILE; see core-train --help");
    if (text && options->width % options->heads != 0)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--width %lld is not divisible by --heads %lld",
                           (long long)options->width,
                           (long long)options->heads);
    return CORE_OK;
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
                               "%s needs a value; see core-train --help",
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
                           "unexpected argument \"%s\"; see core-train --help",
                           argv[optind]);
    train_options_complete(options);
    /* The options of a checkpoint are not known yet. */
    return options->resume ? CORE_OK : train_options_check(options);
}
