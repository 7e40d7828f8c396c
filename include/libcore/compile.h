/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compile.h: programs, recorded from a function.
 *
 * A program is the list of the operator calls that a function made, with what
 * they read and wrote.  It can be printed, checked, saved to a file, loaded in
 * another process, and run on any device without the function.
 *
 * While a function is recorded it gets tensors that have sizes, strides, dtype
 * and device, but no content, so nothing is computed.  The program has
 *
 *   inputs         the tensors that were passed to the function;
 *   hidden inputs  other tensors that it read, such as weights.  The program
 *                  keeps references to them and reads their content at each
 *                  run;
 *   outputs        the tensors that the function returned.  An output that is
 *                  an input, a hidden input, another output or a view of one is
 *                  that in every run;
 *   writes         the inputs and hidden inputs that the function changed in
 *                  place.  They receive their new content at the end of a run.
 *
 * What the function reads otherwise is part of the program: numbers, sizes, and
 * the data of core_tensor_from_data.  Only core_optimizer_step is different:
 * each run reads the learning rate and the number of steps from the optimizer,
 * and counts its steps.  Autograd, autocast and composite operators are
 * resolved: a function that calls core_grad leads to a program with the
 * backward in it.  A run is not recorded by autograd.
 *
 * A program is never changed, so several threads may use it at once, and every
 * function here is thread-safe; but only one thread at a time may run a program
 * that steps an optimizer. */

#ifndef LIBCORE_COMPILE_H
#define LIBCORE_COMPILE_H

#include "autograd.h"
#include "random.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A recorded program.  Reference-counted. */
typedef struct core_program core_program;

/* Adds a reference and returns program.  Accepts NULL. */
core_program *core_program_retain(core_program *program);

/* Drops a reference.  Accepts NULL. */
void core_program_release(core_program *program);

/* Calls a function once and records it.  The caller owns *out_program, which is
 * NULL on failure.  function, context and inputs are used during this call
 * only; the program keeps references to its hidden inputs and generators.
 *
 * The function gets stand-ins for the inputs, which require grad if the inputs
 * do.  It returns at most max_outputs outputs, and may return none.  It must
 * not keep a stand-in, or a result of one, beyond the call.
 *
 * UNSUPPORTED, with the operator's name and the reason, if the function reads
 * the content of a tensor on the host (core_tensor_item, core_tensor_read),
 * writes it from the host, waits for a device, calls an operator whose result
 * has a size that depends on data, or one of a plugin or program without a
 * shape function, replaces the gradient of a tensor (grads must be allocated
 * before), makes, seeds or reads a generator (core_generator_create,
 * core_seed, core_generator_state and their like), or changes the layout of an
 * input (core_t_).  Inputs may be views of one another, or equal; UNSUPPORTED
 * if two overlap, neither contains the other, and one is written.
 *
 * Recording draws no random numbers; random operators are recorded: a run draws
 * what the function would have drawn, from the same generators.
 *
 * A function that is recorded may itself record another one, whose program is
 * separate, and may run programs, whose operators it then contains. */
core_status core_program_trace(core_tensor_function function, void *context,
                               core_tensor *const *inputs, size_t ninputs,
                               size_t max_outputs, core_program **out_program);

/* Runs a program, operator by operator.  inputs: of the dtypes, sizes and
 * strides with which it was recorded.  outputs: noutputs entries, the number
 * that the program has; the caller owns them, and all are NULL on failure.
 *
 * A device of the program for which an input on another device is given is
 * replaced by that one everywhere: factories run there, and hidden inputs are
 * copied there, and back if they are written, at each run.
 *
 * SHAPE, DTYPE or DEVICE for an input that differs.  INVALID_ARGUMENT if inputs
 * overlap differently than when the program was recorded, and one is written.
 * REFUSED if the program steps an optimizer that was released, or whose
 * parameters no longer have the same step count.  After an error the inputs are
 * unchanged, except if it occurs while results are copied to written inputs. */
core_status core_program_run(core_program *program, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t noutputs);

/* Checks a program: every value is defined before it is used, arguments have
 * the kinds that the schemas require, and shapes and dtypes are those that the
 * operators infer.  INTERNAL: the program is invalid; the message names the
 * value. */
core_status core_program_verify(core_program *program);

/* Returns a text with one line per input, operator and output.  The caller
 * frees it with core_text_free.  Its form may change between versions. */
core_status core_program_text(core_program *program, char **out_text);

/* Saves a program to a file, which replaces an existing one.  It is a
 * safetensors file that contains the hidden inputs.  Generators that operators
 * are given are saved with their current state; the default ones are not.
 * UNSUPPORTED if a hidden input shares memory with an input, or the program
 * steps an optimizer. */
core_status core_program_save(core_program *program, const char *path);

/* Loads a program.  The caller owns *out_program.  device: replaces the first
 * device of the program; NULL: the devices are those that the file names.  The
 * file is checked completely, and contains no code.  CORRUPT: malformed.
 * INCOMPATIBLE: of another version.  NOT_FOUND: it contains an operator that
 * this libcore does not have.  INVALID_ARGUMENT: device is "meta". */
core_status core_program_load(const char *path, core_device *device,
                              core_program **out_program);

/* Counts of a program. */
typedef struct core_program_counts {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    uint64_t inputs;
    uint64_t hidden_inputs;
    uint64_t outputs;
    uint64_t nodes;  /* operator calls */
    uint64_t writes; /* inputs and hidden inputs that are written */
    uint64_t draws;  /* blocks of random numbers that a run takes from
                        generators */
} core_program_counts;

/* Fills in the counts of a program. */
core_status core_program_get_counts(core_program *program,
                                    core_program_counts *out_counts);

/* Returns a hidden input, borrowed.  index counts from 0.  NULL after the last
 * one, and for program NULL. */
core_tensor *core_program_hidden_input(core_program *program, size_t index);

#ifdef __cplusplus
}
#endif
#endif
