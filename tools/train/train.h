/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* train.h: the parts of core-train.
 *
 * Errors are handled as in libcore: functions return a core_status and set a
 * message in the thread's error record, which main prints. */

#ifndef TOOLS_TRAIN_H
#define TOOLS_TRAIN_H

#include <libcore/compiled.h>
#include <libcore/core.h>
#include <libcore/data.h>
#include <libcore/destination.h>
#include <libcore/grad_scaler.h>
#include <libcore/nn.h>
#include <libcore/optim.h>
#include <libcore/profiler.h>
#include <libcore/reducer.h>
#include <libcore/shard.h>
#include <libcore/safetensors.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Fills the thread's error record and returns code. */
core_status train_error(core_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* ------------------------------------------------------------- options -- */

/* The options given on the command line: a checkpoint must agree with them. */
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

/* The learning rate after the warm-up. */
enum {
    TRAIN_DECAY = 0,  /* times lr_decay after every epoch */
    TRAIN_COSINE = 1, /* half a cosine, down to a tenth at the last step */
    TRAIN_SCHEDULES = 2
};
extern const char *const train_schedules[TRAIN_SCHEDULES];

/* The precision of products. */
enum {
    TRAIN_AMP_OFF = 0,
    TRAIN_AMP_BF16 = 1,
    TRAIN_AMP_FP16 = 2, /* with scaled losses */
    TRAIN_AMP_FP8 = 3,  /* Linears only, with quantizers */
    TRAIN_AMPS = 4
};
extern const char *const train_amps[TRAIN_AMPS];

/* The modes of --compile, by their numbers in compiled.h. */
enum { TRAIN_COMPILE_MODES = 3 };
extern const char *const train_compile_modes[TRAIN_COMPILE_MODES];

/* Values of shard_level; the others are CORE_SHARD_… */
enum { TRAIN_SHARD_PARAMETERS = 2 };

enum { TRAIN_DEVICES = 16 }; /* devices that a model may be split over */

/* Strings belong to the command line. */
typedef struct train_options {
    unsigned given;   /* TRAIN_GAVE_… */
    uint32_t threads; /* 0: libcore's default */
    int64_t loaders;  /* threads that read batches ahead; -1: by the device */
    const char *model;
    const char *devices; /* names separated by commas; NULL: the default
                          * device */
    const char *data;
    const char *files[4]; /* train images, labels, test images, labels */
    const char *text;
    const char *save;
    const char *resume;
    const char *profile; /* a folder */
    const char *plot;
    const char *distributed; /* the engine; NULL: one process */
    int64_t epochs;
    int64_t steps; /* stop after so many in total; -1: no limit */
    int64_t batch;
    int64_t limit;  /* 0: all */
    int64_t log;    /* print the loss every so many steps; 0: never */
    int64_t sample; /* characters to write at the end */
    int64_t warmup; /* steps during which the learning rate rises */
    int64_t seed;
    int64_t context; /* the context length of the transformer */
    int64_t layers;
    int64_t heads;
    int64_t width;
    int64_t tensor_parallel; /* ranks that share a model; 1: each has all */
    double timeout;          /* of a collective, in seconds; 0: the default */
    double lr;               /* of the first epoch */
    double lr_decay;         /* its factor from epoch to epoch */
    double momentum;
    double weight_decay;
    double clip; /* largest norm of the gradient; 0: any */
    double dropout;
    uint32_t optimizer;
    uint32_t schedule;
    uint32_t amp;
    uint32_t compile; /* the mode, if compiles */
    bool compiles;
    bool verifies;        /* that the ranks have equal weights */
    bool shrinks;         /* ranks go on without those that end */
    bool shards;          /* each rank has a part of the optimizer's state */
    uint32_t shard_level; /* CORE_SHARD_… or TRAIN_SHARD_PARAMETERS */
    bool json;
} train_options;

/* *out_exit: nothing more to do (--help, --version). */
core_status train_options_parse(train_options *options, int argc, char **argv,
                                bool *out_exit);
/* Sets the options that depend on the model and were not given. */
void train_options_complete(train_options *options);
/* Refuses contradictory options; when resuming, call it after the checkpoint's
 * options are known. */
core_status train_options_check(const train_options *options);
/* Parse an integer from least to most, and a number; no other characters are
 * accepted. */
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

/* Reads files in the IDX format, compressed with gzip or not.  limit: read only
 * the first so many, 0 for all. */
core_status train_images_read(train_images *images, const char *image_path,
                              const char *label_path, int64_t limit);
void train_images_free(train_images *images);
/* Reads the four files that the options name or imply. */
core_status train_data_read(const train_options *options, train_images *train,
                            train_images *test);

/* Any file, as bytes; its characters are those that occur in it. */
typedef struct train_text {
    int64_t size;
    uint8_t *bytes;     /* character numbers, below count */
    int64_t count;      /* of characters */
    uint8_t known[256]; /* the characters, ascending */
    uint64_t digest;    /* of the whole text */
} train_text;

core_status train_text_read(train_text *text, const char *path, int64_t limit);
void train_text_free(train_text *text);

/* ------------------------------------------------------ random numbers -- */

/* Smaller stream numbers belong to the parameters. */
#define TRAIN_STREAM_ORDER (UINT64_C(1) << 32)
#define TRAIN_STREAM_SHIFT (UINT64_C(2) << 32)
#define TRAIN_STREAM_SAMPLE (UINT64_C(3) << 32)

/* Returns the index-th random number of (seed, stream). */
uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t index);
/* Maps a random number to [0, bound). */
int64_t train_random_below(uint64_t number, int64_t bound);
/* Creates the permutation of 0 … count-1 of an epoch. */
void train_shuffle(int64_t *order, int64_t count, uint64_t seed,
                   uint64_t epoch);

/* --------------------------------------------------------------- model -- */

typedef struct train_task train_task;
typedef struct train_model train_model;
typedef struct train_fp8 train_fp8;
typedef struct train_pieces train_pieces;

/* How a parameter is divided among the ranks of --tensor-parallel: each of so
 * many equal blocks of dimension dim is; 0: not at all. */
typedef struct train_cut {
    int8_t dim;
    int64_t blocks;
} train_cut;

typedef struct train_model_kind {
    const char *name;
    const char *description;
    const train_task *task;
    /* Defaults of options that were not given. */
    train_options defaults;
    /* Adds the modules and parameters, as expressions on the host; the shape is
     * already set. */
    void (*build)(train_model *model);
    /* Parameters begin uniform in centre ± bound. */
    void (*range)(const train_model *model, size_t parameter,
                  double *out_centre, double *out_bound);
    /* Returns the logits, [labels of the batch, classes], on the device of the
     * last step; the innermost scope owns them.  training: dropout is on. */
    core_tensor *(*forward)(const train_model *model, core_tensor *inputs,
                            bool training);
    /* For kinds that --tensor-parallel can divide. */
    train_cut (*cut)(const train_model *model, size_t parameter);
    bool pieces; /* forward can use pieces of the parameters */
} train_model_kind;

enum { TRAIN_PARTS = 1001 };

struct train_model {
    const train_model_kind *kind;
    core_module *root;
    core_module *parts[TRAIN_PARTS]; /* its children, in order; borrowed */
    size_t nparts;
    core_module_tensors all; /* its parameters */
    /* Those of `all`. */
    size_t count;
    core_tensor **parameters;
    const char **names;
    /* The devices of its parts; at least one. */
    core_device *devices[TRAIN_DEVICES];
    size_t ndevices;
    /* Shape, for kinds with a choice. */
    int64_t classes;
    int64_t context;
    int64_t layers;
    int64_t heads;
    int64_t width;
    double dropout;
    train_fp8 *fp8; /* with --amp fp8, else NULL */
    /* The ranks that have the other parts of it; NULL: it is whole.
     * Borrowed. */
    core_comm *group;
    /* With --shard=parameters, else NULL: root is then NULL, and the parameters
     * are pieces (parameter_shards.h). */
    train_pieces *pieces;
};

extern const train_model_kind train_mlp, train_cnn, train_gpt;
extern const train_model_kind *const train_model_kinds[]; /* NULL-terminated */
const train_model_kind *train_model_find(const char *name);
core_status train_model_build(train_model *model, const train_options *options,
                              int64_t classes, core_device *const *devices,
                              size_t ndevices, core_comm *group);
void train_model_release(train_model *model);
/* Releases its modules, and with them the parameters. */
void train_model_drop_modules(train_model *model);
/* Returns the number of elements of all parameters, on all ranks of the group. */
int64_t train_model_size(const train_model *model);
/* Continues a hash, which begins with 0, with the bits of a tensor of f32. */
core_status train_tensor_digest(core_tensor *tensor, uint64_t *digest);
void train_digest_add(const float *numbers, size_t count, uint64_t *digest);
/* For a tensor of f32; false if an element is infinite or NaN. */
core_status train_tensor_finite(core_tensor *tensor, bool *out_finite);
/* Computes a hash of all bits of the parameters, of this rank's parts if they
 * are divided. */
core_status train_model_digest(const train_model *model, uint64_t *out_digest);

/* For build: returns the device of one of so many parts, which are distributed
 * evenly and in order. */
core_device *train_model_place(const train_model *model, int64_t part,
                               int64_t parts);
/* For build: registers a child of the root as part `part` of `parts`, and moves
 * it to that part's device.  Accepts NULL. */
void train_model_part(train_model *model, core_module *child, int64_t part,
                      int64_t parts);
/* For build: adds a parameter on the first device. */
void train_model_parameter(train_model *model, const char *name,
                           core_sizes sizes);

/* ---------------------------------------------------------------- tasks -- */

/* One half of the data: for training on the host, where the threads of the loader
 * read it, and for tests on the device. */
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
    int64_t classes; /* 0: the task has no classes */
    int64_t count[TRAIN_CLASSES][TRAIN_CLASSES]; /* [actual][predicted] */
} train_confusion;

/* Bytes of the end of a file's name. */
enum { TRAIN_SUFFIX = 48 };

typedef struct trainer {
    train_options options;               /* a checkpoint's options where it has
                                          * some */
    core_device *devices[TRAIN_DEVICES]; /* of the model's parts */
    size_t ndevices;
    core_device *device; /* the first; data and loss are there */
    const train_task *task;
    train_set train;
    train_set test;
    train_text text; /* for a task on text */
    train_model model;
    core_optimizer *optimizer;
    core_compiled *compiled;  /* the step, with --compile, else NULL */
    core_grad_scaler *scaler; /* with --amp fp16, else NULL */
    core_comm *comm;          /* with --distributed, else NULL */
    core_comm *tensor;        /* with --tensor-parallel above 1, else NULL */
    core_reducer *reducer;    /* likewise, without --shard */
    core_shard *shard;        /* with --shard, else NULL */
    core_tensor **pieces;     /* of it, borrowed */
    uint64_t read_digest;     /* of whole tensors that were read, or 0 */
    core_tensor *noticed;     /* pinned; the largest signal of all ranks, before
                               * the step that runs; NULL: not asked yet */
    core_event *answered;     /* it is there */
    const char *shard_save;   /* --save, on every rank; NULL: none */
    /* What follows it in the names of the shard's last files, and of those
     * before, which rank 0 removes; "": none. */
    char shard_suffix[TRAIN_SUFFIX], shard_before[TRAIN_SUFFIX];
    int64_t shard_run;     /* a number in the suffixes that this run makes */
    uint32_t rank, ranks;  /* of comm; 0 and 1 in one process */
    uint32_t processes;    /* all of them */
    bool quiet;            /* another one reports and saves */
    int64_t skipped;       /* steps with non-finite gradients */
    int64_t epoch;         /* complete ones */
    int64_t position;      /* completed samples of the next epoch */
    core_tensor *loss_sum; /* over those of this rank; f32 */
    core_tensor *correct;  /* i64 */
    double last_loss;      /* of the batch, if requested */
    int64_t *order;        /* of the epoch's samples: positions in the data */
    int64_t first;         /* sample of the loader's epoch */
    core_data_loader *loader; /* of the rest of the epoch */
    core_profiler *profiler;  /* while --profile is active */
    bool profiled;            /* its reports were written */
    bool unprofiled;     /* they could not be written, which was reported */
    train_point *points; /* of --plot */
    size_t npoints;
    bool drawn;      /* all of them */
    bool unreported; /* a report could not be written, which was reported */
} trainer;

/* A task: its samples and the words for them. */
struct train_task {
    const char *samples; /* "images" */
    const char *half;    /* the name of the other half: "test" */
    const char *unit;    /* unit of the speed */
    int64_t part;        /* samples per evaluation batch */
    int64_t (*labels)(const trainer *t); /* Returns the number of labels per
                                          * sample. */
    /* Fills the sets. */
    core_status (*load)(trainer *t);
    int64_t (*classes)(const trainer *t);
    /* Maps sample numbers to positions in the data, for an epoch; NULL: the
     * identity. */
    void (*places)(const trainer *t, int64_t *samples, int64_t count,
                   int64_t epoch);
    /* Gathers the samples at these positions.  The innermost scope owns
     * them. */
    void (*batch)(const trainer *t, const train_set *set, core_tensor *places,
                  core_tensor **out_inputs, core_tensor **out_labels);
};

extern const train_task train_images_task, train_text_task;

void train_set_release(train_set *set);

/* ------------------------------------------------------------- training -- */

core_status trainer_create_optimizer(trainer *t);
/* Forward, backward and optimizer step for this rank's part, which may be empty,
 * of a batch of `whole` samples.  The caller owns *out_loss, which does not
 * require grad. */
core_status trainer_step(trainer *t, core_tensor *inputs, core_tensor *labels,
                         int64_t whole, core_tensor **out_loss);
/* Trains one batch and advances position.  log: last_loss is set. */
core_status trainer_batch(trainer *t, bool log);
/* Creates the order of the next epoch, and begins to read its batches. */
core_status trainer_begin_epoch(trainer *t);
/* Begins to read the rest of the epoch, this rank's part of each batch. */
core_status train_loader_begin(trainer *t);
int64_t trainer_steps_per_epoch(const trainer *t);
/* Returns the number of completed steps. */
int64_t trainer_steps(const trainer *t);
/* Fails if the loss of a batch of this epoch, a weight, or an optimizer state
 * is infinite or NaN; loss: checks only the loss.  Waits for the device. */
core_status trainer_check(const trainer *t, bool loss);
/* Returns the score of the epoch's batches, taken during training. */
core_status trainer_epoch_score(trainer *t, train_score *out_score);
/* Advances to position 0 of the next epoch. */
core_status trainer_end_epoch(trainer *t);
core_status trainer_evaluate(const trainer *t, train_score *out_score);
void trainer_release(trainer *t);

/* Generates `size` characters and a NUL. */
core_status train_text_sample(const trainer *t, int64_t size, char *out_text);

/* Evaluates the test half once more. */
core_status train_confuse(const trainer *t, train_confusion *out_confusion);

/* ------------------------------------------------------------- pictures -- */

/* Reports the thread's error, a report that could not be written; training
 * continues, and the exit status will be 1. */
void train_report_missing(trainer *t);
/* Checks that the folder of --profile can be written. */
core_status train_profile_check(const trainer *t);
core_status train_profile_start(trainer *t);
void train_profile_step(trainer *t);
/* If training had too few steps, reports that and makes the exit status 1. */
void train_profile_stop(trainer *t);
void train_plot_add(trainer *t, const train_score *train,
                    const train_score *test);
/* Before the first epoch, checks that the file can be written. */
core_status train_plot_write(const trainer *t);

/* ------------------------------------------------------ mixed precision -- */

/* Creates the scaler or the quantizers that the options require. */
core_status train_amp_create(trainer *t);
/* Runs the model's forward pass in the precision of the options; returns logits
 * as f32 on the first device, which the innermost scope owns. */
core_tensor *train_logits(const trainer *t, core_tensor *inputs, bool training);
/* Leaves unscaled gradients.  loss NULL: this rank has no samples. */
core_status train_amp_backward(trainer *t, core_tensor *loss);
/* Steps the optimizer, unless scaled gradients are not finite. */
core_status train_amp_step(trainer *t);

/* ------------------------------------------------------ several processes -- */

/* With --distributed: connects the ranks, after the devices are known. */
core_status train_distributed_connect(trainer *t);
/* With --shrink, after a collective has failed: returns a communicator of the ranks
 * that are left, fewer than before; NULL: there is none, for a reason that is
 * reported. */
core_comm *train_distributed_shrink(trainer *t);
/* Sets the number of rank 0 on all ranks, before the trainer is set up. */
core_status train_distributed_choose(trainer *t, core_comm *comm, int64_t mine,
                                     int64_t *out_choice);
/* Makes the parameters those of rank 0, after a checkpoint was loaded. */
core_status train_distributed_create(trainer *t);
/* Sets this rank's part of a batch of `whole` samples: those from *out_first to
 * *out_end - 1, which may be none. */
void train_distributed_part(const trainer *t, int64_t whole, int64_t *out_first,
                            int64_t *out_end);
/* Returns how much the mean loss of `mine` samples counts in the average over
 * ranks, for a batch of `whole`: 1 in one process. */
double train_distributed_weight(const trainer *t, int64_t mine, int64_t whole);
/* Sums a tensor over the ranks.  The caller owns *out_sum. */
core_status train_distributed_sum(const trainer *t, core_tensor *local,
                                  core_tensor **out_sum);
/* Called by all ranks between steps: *out_signal is the largest number that a rank
 * gave in the call before, so that the host does not wait for the step that runs;
 * in one process it is that of this call. */
core_status train_distributed_notice(trainer *t, int signal, int *out_signal);
/* Moves the progress of the epoch to rank 0, which saves it. */
core_status train_distributed_collect(trainer *t);
/* Gathers a number of each rank of comm. */
core_status train_distributed_gather(const trainer *t, core_comm *comm,
                                     int64_t mine, int64_t *out_all);
/* Fails if a weight has other bits than on rank 0. */
core_status train_distributed_verify(const trainer *t);
/* Fails if the digest of a rank of comm differs from that of its rank 0.  what,
 * among: for the message, "the weights" and which ranks are numbered. */
core_status train_distributed_compare(const trainer *t, core_comm *comm,
                                      uint64_t digest, const char *what,
                                      const char *among);
/* Waits for all ranks: a launcher may end those that remain when one exits. */
core_status train_distributed_wait(const trainer *t);
/* Lets the other ranks fail after an error of this one. */
void train_distributed_abort(trainer *t);
/* core_backward, with averages over the ranks.  loss NULL: no samples. */
core_status train_distributed_backward(trainer *t, core_tensor *loss);

/* ------------------------------------------------------------- sharding -- */

/* With --shard, before the optimizer is created. */
core_status train_shard_create(trainer *t);
/* The norm of all ranks' grads, for divided models and pieces of parameters, is
 * limited as core_clip_grad_norm does. */
core_status train_clip(const trainer *t, double max_norm);
/* Copies the parameters of rank 0, after a checkpoint was loaded. */
core_status train_shard_share(trainer *t);
/* Returns how many tensors this rank's optimizer updates, and which. */
size_t train_shard_optimized(const trainer *t,
                             core_tensor *const **out_tensors);
/* Saves the optimizer's state; all ranks call it.  The checkpoint that names it
 * is saved next, by rank 0, which then removes the files of the last one. */
core_status train_shard_save(trainer *t);
void train_shard_remove(trainer *t);
/* Loads the state that belongs to a checkpoint. */
core_status train_shard_load(trainer *t, const char *checkpoint,
                             const char *suffix);

/* ------------------------------------------------------------- compiling -- */

typedef struct train_compile_counts {
    int64_t compiled; /* steps that ran a program */
    int64_t eager;    /* steps that were called as they are */
    int64_t programs;
    int64_t graph_launches;
    int64_t traces;
    double trace_seconds;
    char reasons[2000]; /* of the latter; "" if there are none */
} train_compile_counts;

/* With --compile, after the model and the optimizer are complete. */
core_status train_compile_create(trainer *t);
/* Leaves the gradients in the grads, which exist. */
core_status train_compile_backward(const trainer *t, core_tensor *loss);
core_status train_compile_result(const trainer *t, train_compile_counts *out);

/* ----------------------------------------------------------- eight bits -- */

enum { TRAIN_FP8_TENSORS = 3 };
extern const char *const train_fp8_names[TRAIN_FP8_TENSORS];

typedef struct train_fp8_states train_fp8_states;

/* Creates quantizers for the Linears of a model. */
core_status train_fp8_create(train_model *model);
/* Accepts NULL. */
void train_fp8_release(train_fp8 *fp8);
/* Computes the Linear with this weight, in eight bits if it has quantizers. */
core_status train_fp8_linear(const train_model *model, core_tensor *x,
                             core_tensor *weight, core_tensor *bias,
                             core_tensor **out_y);
/* Save the states before an evaluation and restore them afterwards: *out_states
 * is NULL without quantizers; restore takes ownership. */
core_status train_fp8_remember(const train_fp8 *fp8,
                               train_fp8_states **out_states);
void train_fp8_restore(const train_fp8 *fp8, train_fp8_states *states);
/* Returns all states, on the CPU; on failure some of them. */
core_status train_fp8_save(const train_fp8 *fp8, core_tensor **out_tensors);
core_status train_fp8_load(const train_fp8 *fp8, const char *path,
                           core_tensor *const *tensors);

/* --------------------------------------------------------- checkpoints -- */

/* The ranks of --tensor-parallel that have parts of the model call it, and all
 * ranks with --shard=parameters; path NULL: another one of them writes the
 * file. */
core_status checkpoint_save(const trainer *t, const char *path);
/* Before the model is built: adopts the options of the checkpoint, or refuses
 * those that contradict it. */
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
    bool shown; /* a progress bar is on the screen */
    int64_t epochs;
    double begin;       /* of training */
    double epoch_begin; /* of this epoch, or of the part of it done here */
    double drawn;       /* when the bar was last drawn */
    int64_t samples;    /* per epoch */
    int64_t first;      /* position at epoch_begin */
    int64_t reached;    /* the position already counted in done */
    int64_t done;       /* samples in this run */
} report;

double report_now(void);
void report_start(report *r, const trainer *t);
void report_epoch_begin(report *r, const trainer *t);
/* Cheap; redraws a few times per second. */
void report_batch(report *r, const trainer *t);
/* Reports a step whose loss was requested. */
void report_step(report *r, const trainer *t);
void report_epoch(report *r, const trainer *t, const train_score *train,
                  const train_score *test);
/* sample may be NULL. */
core_status report_result(report *r, const trainer *t, const train_score *train,
                          const train_score *test,
                          const train_confusion *confusion, const char *sample);
/* Fails if any standard output was lost. */
core_status report_flush(void);
/* Removes the progress bar. */
void report_clear(report *r);

#endif
