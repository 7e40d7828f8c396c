/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* train.h: the parts of core-train.
 *
 * Everything fails the way libcore does: with a core_status, and a message in
 * the thread's error record that main prints. */

#ifndef TOOLS_TRAIN_H
#define TOOLS_TRAIN_H

#include <libcore/core.h>
#include <libcore/grad_scaler.h>
#include <libcore/optim.h>
#include <libcore/profiler.h>
#include <libcore/safetensors.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Fills the thread's record and returns code. */
core_status train_error(core_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* ------------------------------------------------------------- options -- */

/* Which options the command line gave: what a checkpoint says must not differ
 * from them. */
enum {
    TRAIN_GAVE_MODEL = 1u << 0,
    TRAIN_GAVE_OPTIMIZER = 1u << 1,
    TRAIN_GAVE_LR = 1u << 2,
    TRAIN_GAVE_MOMENTUM = 1u << 3,
    TRAIN_GAVE_WEIGHT_DECAY = 1u << 4,
    TRAIN_GAVE_SEED = 1u << 5,
    TRAIN_GAVE_BATCH = 1u << 6,
    TRAIN_GAVE_LR_DECAY = 1u << 7,
    TRAIN_GAVE_EPOCHS = 1u << 8,
    TRAIN_GAVE_SCHEDULE = 1u << 9,
    TRAIN_GAVE_WARMUP = 1u << 10,
    TRAIN_GAVE_CLIP = 1u << 11,
    TRAIN_GAVE_DROPOUT = 1u << 12,
    TRAIN_GAVE_CONTEXT = 1u << 13,
    TRAIN_GAVE_LAYERS = 1u << 14,
    TRAIN_GAVE_HEADS = 1u << 15,
    TRAIN_GAVE_WIDTH = 1u << 16,
    TRAIN_GAVE_AMP = 1u << 17
};

enum { TRAIN_ADAM = 0, TRAIN_ADAMW = 1, TRAIN_SGD = 2, TRAIN_OPTIMIZERS = 3 };
extern const char *const train_optimizers[TRAIN_OPTIMIZERS];

/* How the learning rate goes on behind the warm-up. */
enum {
    TRAIN_DECAY = 0,  /* times lr_decay after every epoch */
    TRAIN_COSINE = 1, /* half a cosine, down to a tenth at the last step */
    TRAIN_SCHEDULES = 2
};
extern const char *const train_schedules[TRAIN_SCHEDULES];

/* What products compute in. */
enum {
    TRAIN_AMP_OFF = 0,
    TRAIN_AMP_BF16 = 1,
    TRAIN_AMP_FP16 = 2, /* with losses scaled */
    TRAIN_AMP_FP8 = 3,  /* those of Linears, by quantizers */
    TRAIN_AMPS = 4
};
extern const char *const train_amps[TRAIN_AMPS];

enum { TRAIN_DEVICES = 16 }; /* that a model may be split over */

/* Texts are the command line's. */
typedef struct train_options {
    unsigned given;   /* TRAIN_GAVE_… */
    uint32_t threads; /* 0: as the library chooses */
    const char *model;
    const char *devices; /* names with commas between; NULL: the default one */
    const char *data;
    const char *files[4]; /* train images, labels, test images, labels */
    const char *text;
    const char *save;
    const char *resume;
    const char *profile; /* a folder */
    const char *plot;
    int64_t epochs;
    int64_t steps; /* stop after so many, in total; -1: at the end */
    int64_t batch;
    int64_t limit;  /* 0: all */
    int64_t log;    /* tell the loss every so many steps; 0: never */
    int64_t sample; /* characters to write at the end */
    int64_t warmup; /* steps in which the learning rate rises */
    int64_t seed;
    int64_t context; /* characters that the transformer sees */
    int64_t layers;
    int64_t heads;
    int64_t width;
    double lr;       /* of the first epoch */
    double lr_decay; /* its factor from epoch to epoch */
    double momentum;
    double weight_decay;
    double clip; /* largest norm of the gradient; 0: any */
    double dropout;
    uint32_t optimizer;
    uint32_t schedule;
    uint32_t amp;
    bool json;
} train_options;

/* *out_exit: there is nothing more to do (--help, --version). */
core_status train_options_parse(train_options *options, int argc, char **argv,
                                bool *out_exit);
/* What depends on the model and was not given. */
void train_options_complete(train_options *options);
/* Refuses options that mean nothing together; of a run that goes on, once the
 * checkpoint's are known. */
core_status train_options_check(const train_options *options);
/* Whole numbers from least to most, and numbers; no other characters. */
bool train_parse_integer(const char *text, int64_t least, int64_t most,
                         int64_t *out_value);
bool train_parse_number(const char *text, double *out_value);

/* ---------------------------------------------------------------- files -- */

enum { TRAIN_PIXELS = 28 * 28, TRAIN_CLASSES = 10 };

typedef struct train_images {
    int64_t count;
    uint8_t *pixels; /* count * TRAIN_PIXELS */
    uint8_t *labels; /* count, each below TRAIN_CLASSES */
} train_images;

/* Files in the IDX format, packed by gzip or not.  limit: take the first so
 * many, 0 for all. */
core_status train_images_read(train_images *images, const char *image_path,
                              const char *label_path, int64_t limit);
void train_images_free(train_images *images);
/* The four files that the options name or mean. */
core_status train_data_read(const train_options *options, train_images *train,
                            train_images *test);

/* Any file, as bytes; its characters are those that occur in it. */
typedef struct train_text {
    int64_t size;
    uint8_t *bytes;     /* numbers of characters, below count */
    int64_t count;      /* of characters */
    uint8_t known[256]; /* the characters, ascending */
    uint64_t digest;    /* of all */
} train_text;

core_status train_text_read(train_text *text, const char *path, int64_t limit);
void train_text_free(train_text *text);

/* ------------------------------------------------------ random numbers -- */

/* Streams below are the parameters'. */
#define TRAIN_STREAM_ORDER (UINT64_C(1) << 32)
#define TRAIN_STREAM_SHIFT (UINT64_C(2) << 32)
#define TRAIN_STREAM_SAMPLE (UINT64_C(3) << 32)

/* The index-th of the numbers that belong to (seed, stream). */
uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t index);
/* Below bound > 0, from one of them. */
int64_t train_random_below(uint64_t number, int64_t bound);
/* A permutation of 0 … count-1, for an epoch. */
void train_shuffle(int64_t *order, int64_t count, uint64_t seed,
                   uint64_t epoch);

/* --------------------------------------------------------------- model -- */

typedef struct train_task train_task;
typedef struct train_model train_model;
typedef struct train_fp8 train_fp8;

typedef struct train_model_kind {
    const char *name;
    const char *description;
    const train_task *task;
    /* Of the options that were not given. */
    train_options defaults;
    /* Adds the parameters; shape is set. */
    core_status (*build)(train_model *model, uint64_t seed);
    /* Gives the logits, [labels of the batch, classes], on the device of the
     * last step.  training: dropout is on. */
    core_status (*forward)(const train_model *model, core_tensor *inputs,
                           bool training, core_tensor **out_logits);
} train_model_kind;

struct train_model {
    const train_model_kind *kind;
    size_t count;
    size_t room;
    core_tensor **parameters;
    char (*names)[48];
    /* Those that its parts lie on; at least one. */
    core_device *devices[TRAIN_DEVICES];
    size_t ndevices;
    /* Shape, where the kind has a choice. */
    int64_t classes;
    int64_t context;
    int64_t layers;
    int64_t heads;
    int64_t width;
    double dropout;
    train_fp8 *fp8; /* of --amp fp8, else NULL */
};

extern const train_model_kind train_mlp, train_cnn, train_gpt;
extern const train_model_kind *const train_model_kinds[]; /* NULL ends */
const train_model_kind *train_model_find(const char *name);
core_status train_model_build(train_model *model, const train_options *options,
                              int64_t classes, core_device *const *devices,
                              size_t ndevices);
void train_model_release(train_model *model);
int64_t train_model_size(const train_model *model);
/* False if an element is infinite or no number; of a tensor of f32. */
core_status train_tensor_finite(core_tensor *tensor, bool *out_finite);
/* A number that differs if a bit of a parameter does. */
core_status train_model_digest(const train_model *model, uint64_t *out_digest);

/* For build: the device of one of so many parts, which are dealt out evenly and
 * in order. */
core_device *train_model_place(const train_model *model, int64_t part,
                               int64_t parts);
/* For build: a parameter that is uniform in centre ± bound; they are counted
 * from 0 in the order of these calls. */
core_status train_model_add(train_model *model, core_device *device,
                            uint64_t seed, const char *name,
                            const int64_t *sizes, size_t ndim, double centre,
                            double bound);

/* ---------------------------------------------------------------- tasks -- */

/* One half of the data, on the device. */
typedef struct train_set {
    int64_t count; /* samples */
    core_tensor *data;
    core_tensor *labels; /* or NULL */
} train_set;

typedef struct train_score {
    double loss;
    double accuracy;
} train_score;

/* Losses after an epoch. */
typedef struct train_point {
    int64_t epoch;
    double train;
    double test;
} train_point;

typedef struct train_confusion {
    int64_t classes; /* 0: the task has none to confuse */
    int64_t count[TRAIN_CLASSES][TRAIN_CLASSES]; /* [what it is][said] */
} train_confusion;

typedef struct trainer {
    train_options options;               /* a checkpoint's, where it has some */
    core_device *devices[TRAIN_DEVICES]; /* of the model's parts */
    size_t ndevices;
    core_device *device; /* the first: data and loss lie there */
    const train_task *task;
    train_set train;
    train_set test;
    train_text text; /* of a task on text */
    train_model model;
    core_optimizer *optimizer;
    core_grad_scaler *scaler; /* of --amp fp16, else NULL */
    int64_t skipped;          /* steps whose gradients were not finite */
    int64_t epoch;            /* complete ones */
    int64_t position;         /* samples of the next one that are done */
    core_tensor *loss_sum;    /* over those; f32 */
    core_tensor *correct;     /* i64 */
    double last_loss;         /* of the batch, where it was asked for */
    int64_t *order;
    core_tensor *order_on_device;
    core_profiler *profiler; /* while --profile may record */
    bool profiled;           /* its reports are written */
    bool unprofiled;         /* they could not be, and that was said */
    train_point *points;     /* of --plot */
    size_t npoints;
    bool drawn;      /* all of them */
    bool unreported; /* a report could not be written, and that was said */
} trainer;

/* What is learnt: where samples come from, and what they are called. */
struct train_task {
    const char *samples; /* "images" */
    const char *half;    /* what the other half is for: "test" */
    const char *unit;    /* what speed is counted in */
    int64_t part;        /* samples that are evaluated at once */
    int64_t (*labels)(const trainer *t); /* of a sample */
    /* Fills the sets. */
    core_status (*load)(trainer *t);
    int64_t (*classes)(const trainer *t);
    /* Turns numbers of samples into places, for an epoch; NULL: they are. */
    void (*places)(const trainer *t, int64_t *samples, int64_t count,
                   int64_t epoch);
    /* The samples at these places. */
    core_status (*batch)(const trainer *t, const train_set *set,
                         core_tensor *places, core_tensor **out_inputs,
                         core_tensor **out_labels);
};

extern const train_task train_images_task, train_text_task;

void train_set_release(train_set *set);

/* ------------------------------------------------------------- training -- */

core_status trainer_create_optimizer(trainer *t);
/* One batch; moves position.  log: last_loss is set. */
core_status trainer_batch(trainer *t, bool log);
/* Makes the order of the next epoch. */
core_status trainer_begin_epoch(trainer *t);
int64_t trainer_steps_per_epoch(const trainer *t);
/* Steps that are done. */
int64_t trainer_steps(const trainer *t);
/* Fails if the loss of a batch of this epoch, a weight, or what the optimizer
 * keeps, is infinite or no number; loss: only that is looked at.  Waits for
 * the device. */
core_status trainer_check(const trainer *t, bool loss);
/* What the epoch's batches gave on the way. */
core_status trainer_epoch_score(trainer *t, train_score *out_score);
/* position 0 of the next epoch. */
core_status trainer_end_epoch(trainer *t);
core_status trainer_evaluate(const trainer *t, train_score *out_score);
void trainer_release(trainer *t);

/* Characters that the model writes, size of them and a NUL. */
core_status train_text_sample(const trainer *t, int64_t size, char *out_text);

/* Of the test half, by another pass over it. */
core_status train_confuse(const trainer *t, train_confusion *out_confusion);

/* ------------------------------------------------------------- pictures -- */

/* A report could not be written, for the thread's error: that is said, and the
 * exit status will tell, but training goes on. */
void train_report_missing(trainer *t);
/* The folder of --profile can be written to. */
core_status train_profile_check(const trainer *t);
core_status train_profile_start(trainer *t);
void train_profile_step(trainer *t);
/* Where training had too few steps it says so, and the exit status tells. */
void train_profile_stop(trainer *t);
void train_plot_add(trainer *t, const train_score *train,
                    const train_score *test);
/* Before the first epoch: whether it could be written. */
core_status train_plot_write(const trainer *t);

/* ------------------------------------------------------ mixed precision -- */

/* The scaler or the quantizers, where the options want some. */
core_status train_amp_create(trainer *t);
/* The model's forward in the precision of the options; logits as f32 on the
 * first device. */
core_status train_logits(const trainer *t, core_tensor *inputs, bool training,
                         core_tensor **out_logits);
/* Leaves gradients of their true size. */
core_status train_amp_backward(trainer *t, core_tensor *loss);
/* Steps the optimizer, unless gradients that were scaled are not finite. */
core_status train_amp_step(trainer *t);

/* ----------------------------------------------------------- eight bits -- */

enum { TRAIN_FP8_TENSORS = 3 };
extern const char *const train_fp8_names[TRAIN_FP8_TENSORS];

typedef struct train_fp8_states train_fp8_states;

/* Quantizers for the Linears of a model. */
core_status train_fp8_create(train_model *model);
/* Takes NULL. */
void train_fp8_release(train_fp8 *fp8);
/* The Linear with this weight, in eight bits if it has quantizers. */
core_status train_fp8_linear(const train_model *model, core_tensor *x,
                             core_tensor *weight, core_tensor *bias,
                             core_tensor **out_y);
/* What evaluation does to quantizers is undone: *out_states is NULL without
 * any; restore takes it over. */
core_status train_fp8_remember(const train_fp8 *fp8,
                               train_fp8_states **out_states);
void train_fp8_restore(const train_fp8 *fp8, train_fp8_states *states);
/* All states, on the CPU; on failure some of them. */
core_status train_fp8_save(const train_fp8 *fp8, core_tensor **out_tensors);
core_status train_fp8_load(const train_fp8 *fp8, const char *path,
                           core_tensor *const *tensors);

/* --------------------------------------------------------- checkpoints -- */

core_status checkpoint_save(const trainer *t, const char *path);
/* Before the model is built: takes over the options that the checkpoint has,
 * or refuses those that contradict it. */
core_status checkpoint_options(const core_safetensors *file, const char *path,
                               train_options *options);
/* Fills model, optimizer and progress. */
core_status checkpoint_load(const core_safetensors *file, const char *path,
                            trainer *t);

/* -------------------------------------------------------------- report -- */

typedef struct report {
    FILE *text; /* for people */
    bool json;  /* to standard output */
    bool bar;   /* text is a terminal */
    bool shown; /* a bar is on the screen */
    int64_t epochs;
    double begin;       /* of training */
    double epoch_begin; /* of this epoch, or of what is done of it here */
    double drawn;       /* when the bar was */
    int64_t samples;    /* per epoch */
    int64_t first;      /* position at epoch_begin */
    int64_t reached;    /* position that is counted in done */
    int64_t done;       /* samples in this run */
} report;

double report_now(void);
void report_start(report *r, const trainer *t);
void report_epoch_begin(report *r, const trainer *t);
/* Cheap; draws a few times a second. */
void report_batch(report *r, const trainer *t);
/* A step whose loss was asked for. */
void report_step(report *r, const trainer *t);
void report_epoch(report *r, const trainer *t, const train_score *train,
                  const train_score *test);
/* sample may be NULL. */
core_status report_result(report *r, const trainer *t, const train_score *train,
                          const train_score *test,
                          const train_confusion *confusion, const char *sample);
/* Fails if anything of the standard output was lost. */
core_status report_flush(void);
/* Takes the bar off the screen. */
void report_clear(report *r);

#endif
