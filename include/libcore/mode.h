/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mode.h: modes, functions that receive every operator call of a thread.
 *
 *     static core_status watch(core_call *call, const core_value *args,
 *                              uint32_t nargs, core_value *results,
 *                              uint32_t nresults)
 *     {
 *         puts(core_op_name(call->op));
 *         return core_redispatch_below(call, args, nargs, results, nresults);
 *     }
 *
 *     core_mode_push(CORE_MODE_API, watch, NULL, &mode);
 *     ... operator calls ...
 *     core_mode_pop(mode);
 *
 * A mode is a function (core_function in kernel.h).  It passes a call on with
 * core_redispatch_below (dispatch.h), with the same or other arguments; it may
 * change the results, or compute them in another way; an error that it returns
 * is the error of the call.
 *
 * Nesting.  The innermost mode of a level, the one pushed last, receives a call
 * first.  While it runs, the modes outside of it are the active ones: they
 * receive what it passes on, and every call that it makes itself.  A mode that
 * is pushed while another one runs receives these first.
 *
 * Backward runs under the modes of the thread that called it, also what the
 * engine's threads run.  Such a mode may be called by several threads at once,
 * one per device.  A function or hook that runs in a backward pops the modes
 * that it pushes before it returns; otherwise the backward pops them, and fails
 * with INVALID_ARGUMENT.
 *
 * Threads.  Modes belong to the thread that pushed them and see its calls only.
 * They end with it: a thread that ends with modes pushed pops them, and the end
 * of the process needs no pop.  In the child of a fork the modes of the forking
 * thread stay pushed.
 *
 * docs/modes.md has examples, and describes what each level sees. */

#ifndef LIBCORE_MODE_H
#define LIBCORE_MODE_H

#include "dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a mode sees. */
enum {
    /* The calls as the program made them: before autocast and autograd, and
     * with composites as one call.  Backward's formulas make their calls as a
     * program does. */
    CORE_MODE_API = 0,
    /* The calls that reach a backend: after autocast and autograd, composites
     * in parts, those of gradients too.  Autograd and autocast are off while
     * the mode runs, so its own calls are neither recorded nor cast. */
    CORE_MODE_BELOW_AUTOGRAD = 1
};

/* A mode that is pushed.  It is a handle, valid until the mode is popped. */
typedef struct core_mode core_mode;

/* The typed call of the operator `mode` (ops.h) is core_mode_values; as a call,
 * core_mode is the same. */
#define core_mode(...) core_mode_values(__VA_ARGS__)

/* Makes a function the innermost mode of a level in the calling thread.  level:
 * CORE_MODE_….  user: passed as call->user; borrowed until the mode is popped.
 * *out_mode is for core_mode_pop.
 *
 * The function receives complete arguments in the schema's order, all of which
 * the core has completed or the program has passed.  results and nresults: as
 * for every function (kernel.h); an operator that only changes its arguments is
 * usually called with results NULL.  What it returns is checked against the
 * schema: INVALID_ARGUMENT if a result is missing or of another type, if the
 * result of an in-place operator is not the changed argument, or if, below
 * autograd, a new result is one of the arguments or has a gradient history.
 * INVALID_ARGUMENT also if it returns with a mode pushed that it has pushed
 * itself; that mode is popped. */
core_status core_mode_push(uint32_t level, core_function function, void *user,
                           core_mode **out_mode);

/* Pops a mode: the innermost of its level, in the thread that pushed it.
 * INVALID_ARGUMENT, without effect, if a mode pushed later is still there, if
 * the mode was popped already, or if another thread pushed it; REFUSED while
 * the mode runs, or a backward that runs under it. */
core_status core_mode_pop(core_mode *mode);

/* ------------------------------------------------------- shipped modes -- */

/* Receives a line of text, without a newline; it is valid during the call. */
typedef void (*core_mode_write)(void *context, const char *line);

/* Pushes a mode that describes each call when it has returned:
 *
 *     add.Tensor(f32[2, 3] cpu, f32[3] cpu, 1) -> f32[2, 3] cpu
 *     mm(f32[2, 3] cpu, f32[2, 3] cpu) -> CORE_ERROR_SHAPE
 *
 * A call for which the caller has no use of results has no arrow.  Lines are
 * cut at 1023 bytes.  write: called in the thread that makes the call; with
 * write NULL the lines go to the log (core_log_set_sink in settings.h), at any
 * level, with the component "mode".  context: passed to write; borrowed until
 * the mode is popped. */
core_status core_mode_push_logging(uint32_t level, core_mode_write write,
                                   void *context, core_mode **out_mode);

/* Pushes a mode that calls a function in the place of one operator, and passes
 * the calls of others on.  operator_name: with the overload; in-place and out
 * variants are operators of their own.  The function is called as a mode is: it
 * gets user as call->user, and its own calls, of the same operator too, go to
 * the modes outside.  user: borrowed until the mode is popped.  NOT_FOUND if
 * there is no operator of this name. */
core_status core_mode_push_replacement(uint32_t level,
                                       const char *operator_name,
                                       core_function function, void *user,
                                       core_mode **out_mode);

/* Counts the work of operators, in any number of threads. */
typedef struct core_op_counter core_op_counter;

/* The work of one operator, or of all. */
typedef struct core_op_counts {
    uint64_t calls; /* that have succeeded */
    uint64_t flop;  /* floating-point operations, estimated */
    uint64_t bytes; /* of the arguments and results; 0 for views */
} core_op_counts;

/* Creates a counter.  The caller owns *out_counter. */
core_status core_op_counter_create(core_op_counter **out_counter);

/* Drops a reference to a counter.  Accepts NULL.  A mode that counts has its
 * own. */
void core_op_counter_release(core_op_counter *counter);

/* Pushes a mode below autograd that adds calls to a counter.  Several threads
 * may count to one counter.
 *
 * A multiplication and an addition are two operations.  Products, convolutions
 * and attention are counted by their sizes, their gradients by the products
 * that they consist of.  Views, copies and factories have none.  Every other
 * operator has one per element of its largest tensor. */
core_status core_mode_push_counting(core_op_counter *counter,
                                    core_mode **out_mode);

/* Fills in the counts of an operator, or of all for op NULL.  Thread-safe. */
core_status core_op_counter_get(core_op_counter *counter,
                                const core_operator *op,
                                core_op_counts *out_counts);

/* Describes a counter as JSON: the object "total", and the array "operators" in
 * descending order of flop, then of bytes; each with calls, flop and bytes, and
 * an operator with its name.  The caller frees *out_json with core_text_free
 * (tensor.h).  Thread-safe. */
core_status core_op_counter_json(core_op_counter *counter, char **out_json);

/* Sets all counts to 0.  Thread-safe.  Does nothing for NULL. */
void core_op_counter_reset(core_op_counter *counter);

/* ---------------------------------------------------------- fallbacks -- */

/* Registers a function (kernel.h) for all operators of a device type that have
 * nothing of their own under a key.
 *
 * CORE_KEY_BACKEND: operators without a kernel, a function or a decomposition
 * there, custom ones too.  device_type must not be NULL.  It precedes a
 * plugin's fallback and LIBCORE_FALLBACK.  An operator whose kernels do not
 * accept a dtype has kernels, so its calls do not go to the fallback.
 *
 * CORE_KEY_AUTOGRAD: operators with neither a gradient nor a function
 * registered under this key, and that are not marked as not differentiable.
 * device_type NULL: of all devices.  The function calls
 * core_redispatch_below to compute.  Operators that it calls, or that the
 * kernel calls, are recorded, as those of a decomposition are.
 *
 * INVALID_ARGUMENT for the other keys, under which the core serves every
 * operator itself.  NOT_FOUND if no plugin provides the device type.
 * user: passed as call->user; borrowed until the release, and until calls that
 * run in other threads have returned.  device_type is copied.  The newest
 * fallback is used.  The caller owns *out_registration, whose release
 * (core_registration_release) unregisters the function.  Thread-safe. */
core_status core_fallback_register(uint32_t key, const char *device_type,
                                   core_function function, void *user,
                                   core_registration **out_registration);

#ifdef __cplusplus
}
#endif
#endif
