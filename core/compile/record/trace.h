/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* trace.h: a program while it is recorded.
 *
 * Inputs and results are traced tensors: ordinary ones, of the real device, on a
 * storage without memory.  So views, versions and autograd work as always; what
 * would access memory is intercepted by two layers above the backends:
 *
 *   FUNCTIONALIZE  resolves changes in place.  The content of a storage is a
 *                  value of the program; a change replaces it by another value.
 *                  A view knows how it was made from its parent, and is made
 *                  again when it is read after a change.
 *   RECORD         infers the results of what remains, on meta, and appends a
 *                  node.
 *
 * The tensors that the function reads besides its inputs stay real.  They are
 * not computed with either, because the thread has both keys in its set.
 *
 * A tensor is identified by its storage, sizes, strides and offset, so every
 * alias that the core makes (detached tensors, for example) is known. */

#ifndef CORE_COMPILE_TRACE_H
#define CORE_COMPILE_TRACE_H

#include "base/fork.h"
#include "compile/program/program.h"

#include <pthread.h>

typedef struct core__trace core__trace;
typedef struct core__lazy core__lazy;

/* What tensors of one storage with the same sizes, strides and offset have in
 * common. */
typedef struct core__traced_view {
    core__program_type type;
    int64_t offset; /* in the storage */
    /* The view operator and its arguments, except for the first, which is
     * `parent`; NULL: as_strided of the whole, view 0. */
    core_operator *op;
    const core__program_argument *args;
    uint32_t nargs;
    uint32_t parent;
    /* An operator that returns several views made it: list_op and its arguments,
     * like op; it is result list_index.  NULL: none did. */
    core_operator *list_op;
    uint32_t list_index;
    /* The content as of `version`; CORE__NO_VALUE: never read.  It is current if
     * the version is the storage's. */
    uint32_t value;
    uint64_t version;
} core__traced_view;

/* How deep functions of compiled calls and recordings may nest in a thread, so
 * that a function that calls itself without end fails before the stack ends. */
enum { CORE__FUNCTION_DEPTH = 256 };

/* In the message of a recording whose function keeps tensors. */
#define CORE__KEPT_REFUSED "tensors of the program beyond the call"

typedef enum core__traced_kind {
    CORE__TRACED_RESULT,
    CORE__TRACED_INPUT,
    CORE__TRACED_HIDDEN
} core__traced_kind;

typedef struct core__traced_storage {
    core__trace *trace;    /* NULL: it has ended */
    core_storage *storage; /* of a hidden input: the real one.  Else the one
                            * without memory; NULL: released */
    core_storage *origin;  /* of an input: the real one */
    core_device *device;
    uint8_t kind;     /* core__traced_kind */
    uint32_t index;   /* of the input or hidden input */
    bool dense;       /* view 0 has every element between its first and last */
    bool conflict;    /* overlaps another one, so it cannot be written */
    uint64_t version; /* counts writes */
    bool failed;      /* the segment of a lazy region that computes it */
    /* Of a hidden input: its history in the graph when it was read first. */
    struct core_node *history; /* with a reference */
    uint32_t history_output;
    core__traced_view *views; /* 0: the whole */
    uint32_t nviews;
} core__traced_storage;

struct core__trace {
    pthread_mutex_t lock; /* recursive: backward's workers record, too */
    core_program *program;
    core__traced_storage **storages;
    uint32_t nstorages;
    core__run_numbers numbers; /* of the next call, that are not found yet */
    const char *refused;       /* a call that is not an operator, and that a
                                * program cannot contain; NULL: none */
    uint32_t refused_at;       /* how many operators were recorded then */
    uint64_t sequence;         /* of the thread's first node of the graph */
    core__trace *outer;
    bool region;      /* of a region of `outer` (region.h) */
    core__lazy *lazy; /* of this lazy region (lazy.h), or NULL */
    uint32_t changes; /* writes so far */
};

/* UNSUPPORTED if an argument is a traced tensor. */
core_status core__trace_check_content(const core_operator *op,
                                      const core_value *args, uint32_t nargs);
/* The trace of this thread, locked; an error that names op if there is none. */
core_status core__trace_enter(const core_operator *op, const core_value *args,
                              uint32_t nargs, core__trace **out_trace);
void core__trace_leave(core__trace *trace);
/* Leaves the trace after a layer has recorded a call, or failed to: a lazy
 * region then makes the call, unless something has been changed.  changes: of
 * the trace before. */
core_status core__trace_finish_call(core__trace *trace, uint32_t changes,
                                    core_status status, core_call *call,
                                    const core_value *args, uint32_t nargs,
                                    core_value *results, uint32_t nresults);

/* ------------------------------------------------------------ storages -- */

/* Creates a tensor for a value of a program. */
core_status core__traced_new(core__trace *trace, const core__program_type *type,
                             core_device *device, uint32_t value,
                             core_tensor **out_tensor);
/* True if each element of `part` is one of `whole`. */
bool core__traced_is_part(const core_tensor *part, const core_tensor *whole);
/* Ends the link of a result's storage, which is in use, with its record. */
core_storage *core__traced_detach(core__traced_storage *traced);
/* True for the storage of a traced tensor, which has no memory yet. */
bool core__traced_is_pending(const core_storage *storage);
/* What a traced tensor, of any thread, stands for: "a value of …".  *out_lost:
 * its recording has ended, so it never has content. */
const char *core__traced_origin(const core_tensor *tensor, bool *out_lost);
/* Creates the stand-in of an input, and its value. */
core_status core__traced_input(core__trace *trace, core_tensor *input,
                               uint32_t index, core_tensor **out_tensor);
/* Adds an input that the function does not have: the gradient of a result with
 * the layout of a tensor, or row-major if that has gaps or row_major is true. */
core_status core__traced_tangent(core__trace *trace, const core_tensor *of,
                                 bool row_major, core_tensor **out_tensor);
/* Creates the stand-in of an input that is a view of another one, whose stand-in
 * is `base`. */
core_status core__traced_input_view(core__trace *trace, core_tensor *input,
                                    core_tensor *base,
                                    core_tensor **out_tensor);
/* Finds a tensor's storage and view.  A real tensor becomes a hidden input. */
core_status core__traced_find(core__trace *trace, const core_operator *op,
                              core_tensor *tensor,
                              core__traced_storage **out_storage,
                              uint32_t *out_view);
/* The value that a tensor has now. */
core_status core__traced_read(core__trace *trace, const core_operator *op,
                              core_tensor *tensor, uint32_t *out_value);
/* Replaces the content of a tensor by a value of its sizes, dtype and device. */
core_status core__traced_write(core__trace *trace, const core_operator *op,
                               core_tensor *tensor, uint32_t value);
/* Reports what core__traced_write would for these arguments, mask `written`,
 * before anything is changed. */
core_status core__traced_check_writes(core__trace *trace,
                                      const core_operator *op,
                                      const core_value *args, uint32_t written);
/* Notes how a tensor was made from a view of its storage. */
core_status core__traced_add_view(core__trace *trace,
                                  core__traced_storage *traced, uint32_t parent,
                                  core_operator *op, const core_value *args,
                                  uint32_t nargs, const core_tensor *tensor);
/* The same for the results of an operator that returns several views. */
core_status core__traced_add_views(core__trace *trace,
                                   core__traced_storage *traced,
                                   uint32_t parent, core_operator *op,
                                   const core_value *args, uint32_t nargs,
                                   core_tensor *const *tensors, uint32_t count);
/* True if the trace is that of a region (region.h) and the tensor one of a trace
 * around it, which the region reads as it reads real ones. */
bool core__region_captures(const core__trace *trace, const core_tensor *tensor);
/* Forgets a trace's storages.  Returns the number of those that are still in
 * use; they are freed with their last tensor. */
uint32_t core__traced_end(core__trace *trace);
void core__traced_fork(core__fork_phase at);

/* ----------------------------------------------------------- recording -- */

/* Makes the value of a result's storage one with memory that no other tensor
 * has, for an output. */
core_status core__trace_own_value(core__trace *trace,
                                  core__traced_storage *traced);
/* Adds the writes of inputs and hidden inputs to the program. */
core_status core__trace_add_writes(core__trace *trace);
/* Makes the hidden inputs inputs of the program. */
core_status core__trace_hidden_to_inputs(core__trace *trace);
/* Drops the references to the former hidden inputs, and to their aliases. */
void core__program_forget_tensors(core_program *program);
/* The tensors of an argument. */
uint32_t core__tensors_of(const core_value *value, core_tensor *const **out);
/* Appends a node and creates its results.  written: mask of the arguments that
 * the operator changes; they receive new values. */
core_status core__trace_record(core__trace *trace, core_operator *op,
                               const core_value *args, uint32_t nargs,
                               uint32_t written, core_value *results,
                               uint32_t nresults);
/* Appends a node of a built-in operator with one result, of a known type. */
core_status core__trace_append(core__trace *trace, core_operator *op,
                               const core__program_argument *args,
                               uint32_t nargs, uint32_t written,
                               const core__program_type *type,
                               uint32_t *out_value);
/* Makes an argument one of the announced numbers if it is that. */
core_status core__trace_take_number(core__trace *trace, uint32_t argument,
                                    const core_value *value,
                                    core__program_argument *out_argument);
/* Around a function of a compiled call or a recording in this thread.  REFUSED
 * if too many are running: `name` is what would call another one. */
core_status core__function_enter(const char *name);
void core__function_leave(void);
/* The upcalls of dispatch/upcalls.h. */
core_status core__trace_numbers(const core__run_numbers *numbers);
core_status core__trace_finishes(const core__run_source *source, void *object,
                                 uint32_t part, uint32_t other);
/* The upcall of random/upcalls.h: the recording of this thread fails. */
void core__trace_refuse(const char *name);
/* True for a call whose tensors are all on meta: it is not recorded. */
bool core__trace_on_meta(const core_operator *op, const core_value *args,
                         uint32_t nargs);

/* The layers. */
core_status core__functionalize_layer(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults);
core_status core__record_layer(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults);

#endif
