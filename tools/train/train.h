/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* train.h: the parts of core-train.
 *
 * Everything fails the way libcore does: with a core_status, and a message in
 * the thread's error record that main prints. */

#ifndef TOOLS_TRAIN_H
#define TOOLS_TRAIN_H

#include <libcore/core.h>
#include <libcore/optim.h>
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
    TRAIN_GAVE_LR_DECAY = 1u << 7
};

enum { TRAIN_ADAM = 0, TRAIN_ADAMW = 1, TRAIN_SGD = 2, TRAIN_OPTIMIZERS = 3 };
extern const char *const train_optimizers[TRAIN_OPTIMIZERS];

/* Texts are the command line's. */
typedef struct train_options {
    unsigned given; /* TRAIN_GAVE_… */
    const char *model;
    const char *device; /* NULL: the default one */
    const char *data;
    const char *files[4]; /* train images, labels, test images, labels */
    const char *save;
    const char *resume;
    int64_t epochs;
    int64_t batch;
    int64_t limit; /* 0: all */
    uint64_t seed;
    uint32_t threads; /* 0: as the library chooses */
    uint32_t optimizer;
    double lr;       /* of the first epoch */
    double lr_decay; /* its factor from epoch to epoch */
    double momentum;
    double weight_decay;
    bool json;
} train_options;

/* *out_exit: there is nothing more to do (--help, --version). */
core_status train_options_parse(train_options *options, int argc, char **argv,
                                bool *out_exit);
/* Whole numbers from least to most, and numbers; no other characters. */
bool train_parse_integer(const char *text, int64_t least, int64_t most,
                         int64_t *out_value);
bool train_parse_number(const char *text, double *out_value);

/* ---------------------------------------------------------------- data -- */

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

/* ------------------------------------------------------ random numbers -- */

/* The index-th of the numbers that belong to (seed, stream). */
uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t index);
/* A permutation of 0 … count-1, for an epoch. */
void train_shuffle(int64_t *order, int64_t count, uint64_t seed,
                   uint64_t epoch);

/* --------------------------------------------------------------- model -- */

enum { TRAIN_PARAMETERS = 16 };

typedef struct train_model train_model;
typedef struct train_model_kind {
    const char *name;
    const char *description;
    core_status (*build)(train_model *model, core_device *device,
                         uint64_t seed);
    /* images: [n, TRAIN_PIXELS] f32.  Gives [n, TRAIN_CLASSES]. */
    core_status (*forward)(const train_model *model, core_tensor *images,
                           core_tensor **out_logits);
} train_model_kind;

struct train_model {
    const train_model_kind *kind;
    size_t count;
    core_tensor *parameters[TRAIN_PARAMETERS];
    char names[TRAIN_PARAMETERS][32];
};

extern const train_model_kind *const train_model_kinds[]; /* NULL ends */
const train_model_kind *train_model_find(const char *name);
core_status train_model_build(train_model *model, const train_model_kind *kind,
                              core_device *device, uint64_t seed);
void train_model_release(train_model *model);
int64_t train_model_size(const train_model *model);
/* A number that differs if a bit of a parameter does. */
core_status train_model_digest(const train_model *model, uint64_t *out_digest);

/* ------------------------------------------------------------ training -- */

/* One half of the data, on the device. */
typedef struct train_set {
    int64_t count;
    core_tensor *images; /* [count, TRAIN_PIXELS] f32, normalised */
    core_tensor *labels; /* [count] i64 */
} train_set;

typedef struct train_score {
    double loss;
    double accuracy;
} train_score;

typedef struct trainer {
    train_options options; /* a checkpoint's, where it has some */
    core_device *device;
    train_set train;
    train_set test;
    train_model model;
    core_optimizer *optimizer;
    int64_t epoch;         /* complete ones */
    int64_t position;      /* images of the next one that are done */
    core_tensor *loss_sum; /* over those; f32 */
    core_tensor *correct;  /* i64 */
    int64_t *order;
    core_tensor *order_on_device;
} trainer;

core_status train_set_upload(train_set *set, const train_images *images,
                             core_device *device);
void train_set_release(train_set *set);
core_status trainer_create_optimizer(trainer *t);
/* One batch; moves position. */
core_status trainer_batch(trainer *t);
/* Makes the order of the next epoch, and sets its learning rate. */
core_status trainer_begin_epoch(trainer *t);
/* What the epoch's batches gave on the way. */
core_status trainer_epoch_score(trainer *t, train_score *out_score);
/* position 0 of the next epoch. */
core_status trainer_end_epoch(trainer *t);
core_status trainer_evaluate(const trainer *t, train_score *out_score);
void trainer_release(trainer *t);

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
    int64_t images;     /* per epoch */
    int64_t first;      /* position at epoch_begin */
    int64_t done;       /* images in this run */
} report;

double report_now(void);
void report_start(report *r, const trainer *t);
void report_epoch_begin(report *r, const trainer *t);
/* Cheap; draws a few times a second. */
void report_batch(report *r, const trainer *t);
void report_epoch(report *r, const trainer *t, const train_score *train,
                  const train_score *test);
core_status report_result(report *r, const trainer *t, const train_score *train,
                          const train_score *test);
/* Takes the bar off the screen. */
void report_clear(report *r);

#endif
