/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compiled.h: functions that are compiled when they are called.
 *
 * A compiled function is called like the function that it was made from.  The
 * first call records a program (compile.h); later calls run it.  Each program
 * has guards: the facts that it depends on.  A call whose facts are those of no
 * program records another one.  The facts are
 *
 *   of each input    dtype, device, sizes, strides, whether the address is a
 *                    multiple of 16 bytes, whether it requires grad, is a leaf,
 *                    has a gradient or hooks, was created in inference mode,
 *                    and which inputs share memory with it, and where;
 *   of the thread    grad and inference mode, autocast, TF32, determinism, the
 *                    current device, and whether the call comes from below
 *                    autograd (a mode, a kernel);
 *   of hidden inputs that they still exist, with their memory, sizes, strides
 *                    and requires_grad, and share memory with inputs as before;
 *   the key          bytes of the caller, see core_compile_options.
 *
 * What cannot be recorded, and a call in anomaly mode, is a graph break: the
 * function then runs eagerly, each time.  A warning in the log says why, once
 * for the same facts, and core_compiled_explain says how often.  With
 * CORE_COMPILE_FULLGRAPH it is an error.
 *
 * What the function does besides calling operators, such as counting or
 * printing, happens when it is recorded and not when its program runs.  A call
 * that finds a graph break or an error calls the function twice: to record it,
 * and then to run eagerly.
 *
 * The function is the caller's code, so the core cannot see what it reads
 * besides tensors.  A number that changes from call to call, or a pointer to a
 * tensor that is replaced while the old one stays in use, belongs in the key.
 * The setting LIBCORE_COMPILE_CHECK=N records every Nth call again, and the
 * call fails if the program differs.
 *
 * Threads.  Any thread may call any function here, and several may call the
 * same compiled function at once.  The function that was compiled runs in the
 * thread of the call. */

#ifndef LIBCORE_COMPILED_H
#define LIBCORE_COMPILED_H

#include "compile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled function.  Reference-counted. */
typedef struct core_compiled core_compiled;

/* core_compile_options.mode */
enum {
    CORE_COMPILE_DEFAULT = 0,
    /* Programs become device graphs (capture.h) on devices that capture: the
     * second call of each is captured, and later ones launch the graph.  Inputs
     * that are at another address than in the call before are copied in,
     * outputs are copied out, and the memory of the graphs is kept until the
     * function is released.  On other devices the same as DEFAULT.
     * docs/compile.md says which programs are captured in part. */
    CORE_COMPILE_REDUCE_OVERHEAD = 1,
    /* The first call of a program measures for each group of operators that can
     * be one kernel whether the kernel is faster than the operators.  On a
     * device without streams it also measures with which tiles and how many
     * threads the kernel is fastest, how many rows a block has, and whether
     * groups run on parts of a product.  What was chosen is kept in the folder
     * of LIBCORE_CACHE.  Only if `codegen` is AUTO; otherwise the same as
     * DEFAULT.  The results have the same bits. */
    CORE_COMPILE_MAX_AUTOTUNE = 2
};

/* core_compile_options.flags */
enum {
    CORE_COMPILE_FULLGRAPH = 1u << 0, /* a graph break is an error */
    /* Hidden inputs that the function does not write are constants: what
     * depends on them alone, such as the cast of a weight, is computed when the
     * function is recorded, and kept.  The content of these tensors is one of
     * the facts: after a change in place (core_tensor_version) the function is
     * recorded again, and computed with the new content.  The core does not see
     * changes that other libraries make.  Programs for other sizes are
     * recorded, not made (core_compile_options.dynamic has no effect).  Has no
     * effect on calls whose results require grad: call in no-grad or inference
     * mode. */
    CORE_COMPILE_FREEZE = 1u << 1,
    CORE_COMPILE_LIMIT_ERROR = 1u << 2, /* a call that needs more programs than
                                         * the limit fails with REFUSED */
    /* Operators that reduce the last dimension may be part of fused kernels:
     * softmax, log-softmax and their gradients, layer norm, and sum, mean, amax
     * and amin that keep the dimension.  A layer norm is not, if something
     * reads its mean or deviation, as its gradient does: so not in training.
     * Such a kernel may add in another order than the operator, so results may
     * differ in the last bits.  On a device
     * whose memory is the host's, such as the CPU, only if `codegen` is ON. */
    CORE_COMPILE_REORDER_SUMS = 1u << 3,
    CORE_COMPILE_FLAGS = (1u << 4) - 1
};

/* core_compile_options.dynamic */
enum {
    /* Dynamic shapes: programs for further sizes of inputs are made from two
     * recordings with different sizes, if these differ only in numbers that
     * follow from sizes.  They serve sizes between those that were recorded. */
    CORE_COMPILE_DYNAMIC_AUTO = 0,
    /* Each set of sizes is recorded.  For functions that do something else for
     * some sizes, such as multiples of 8. */
    CORE_COMPILE_DYNAMIC_NEVER = 1,
    /* As AUTO, but a call fails with UNSUPPORTED if its recording differs from
     * an earlier one in something that does not follow from sizes. */
    CORE_COMPILE_DYNAMIC_ALWAYS = 2
};

/* core_compile_options.codegen */
enum {
    /* Groups of element-wise operators run as one kernel where that is expected
     * to be faster, unless the setting LIBCORE_COMPILE_CODEGEN says
     * otherwise. */
    CORE_COMPILE_CODEGEN_AUTO = 0,
    CORE_COMPILE_CODEGEN_OFF = 1, /* each operator runs its own kernel */
    /* Groups run as one kernel wherever the device can make it. */
    CORE_COMPILE_CODEGEN_ON = 2
};

/* The number of programs that a compiled function has at most, unless its
 * options say otherwise. */
enum { CORE_COMPILE_LIMIT = 8 };

/* Options of core_compile.  Fields beyond struct_size are 0. */
typedef struct core_compile_options {
    uint32_t struct_size;
    uint32_t mode;
    uint32_t flags;
    uint32_t dynamic;
    uint32_t codegen;
    /* How many programs, one per set of facts, the function may have; 0:
     * CORE_COMPILE_LIMIT.  Calls that need another one call the function as it
     * is, with a warning in the log and a counter, or fail. */
    uint32_t limit;
    /* key_size bytes that are read at each call, such as a struct of pointers
     * and numbers that the function uses.  They belong to the caller, live as
     * long as the compiled function, and are part of the facts.  At most 16
     * MiB. */
    const void *key;
    size_t key_size;
    /* If the tensors that a call saves for its backward take at most this many
     * bytes, nothing is computed again.  Otherwise as few bytes are saved as
     * can be, and the backward computes views and element-wise operators again:
     * 0 does so always, UINT64_MAX never.  A function that contains the
     * backward computes layer norms again where that saves memory, unless it is
     * UINT64_MAX. */
    uint64_t recompute_budget;
} core_compile_options;

/* Makes a compiled function.  Nothing is recorded before its first call.  The
 * caller owns *out_compiled.  function: as for core_program_trace; it is also
 * called without compilation after a graph break.  context: passed to it; must
 * live as long as the compiled function.  options: NULL for all defaults.
 * UNSUPPORTED for what this version cannot do. */
core_status core_compile(core_tensor_function function, void *context,
                         const core_compile_options *options,
                         core_compiled **out_compiled);

/* Adds a reference and returns compiled.  Accepts NULL. */
core_compiled *core_compiled_retain(core_compiled *compiled);

/* Drops a reference.  Calls that run in other threads are completed.  Accepts
 * NULL. */
void core_compiled_release(core_compiled *compiled);

/* Calls a compiled function.  outputs: noutputs entries, exactly as many as the
 * function returns (else INVALID_ARGUMENT); the caller owns them, and all are
 * NULL on failure.
 *
 * The results are, bit for bit, those of the function itself, except that NaN
 * payloads and signs may differ.  An operator whose results nothing uses does
 * not run, so its errors do not appear.
 *
 * Results that require grad are those of one node of the graph, "compiled
 * function backward", which also runs a program.  Gradients have the bits that
 * they have without compilation, but for sums in another order:
 *
 *   - of the gradients of a tensor that is given as several inputs;
 *   - of a tensor that is used several times in the function and also outside
 *     of it (one that is also an output, or of which a view is an output,
 *     counts as used outside);
 *   - of a tensor that a branch or loop of the function (control_flow.h) and
 *     something else use;
 *   - where the gradient of a result has other strides than the result.
 *
 * Changes in place of what a call has saved fail with VERSION, as without
 * compilation, if they are made after the call; made in the function they are a
 * graph break.  A backward with CORE_CREATE_GRAPH calls the function again and
 * differentiates that; what a later backward without CORE_RETAIN_GRAPH releases
 * is released for it, too, as without compilation.  Later calls with the same
 * facts run the function eagerly, unless CORE_COMPILE_FULLGRAPH was given.
 *
 * An error of the function is returned and nothing is recorded.  Several
 * threads may call the compiled function at once.  While another function is
 * recorded, the function is called without compilation, and so becomes a part
 * of that program.
 *
 * UNSUPPORTED at a graph break, with operator, reason and place, if
 * CORE_COMPILE_FULLGRAPH was given.  REFUSED beyond the limit, if
 * CORE_COMPILE_LIMIT_ERROR was given.  INTERNAL if LIBCORE_COMPILE_CHECK finds
 * that the function does something else now. */
core_status core_compiled_call(core_compiled *compiled,
                               core_tensor *const *inputs, size_t ninputs,
                               core_tensor **outputs, size_t noutputs);

/* Returns a JSON text that describes the options, the programs with their
 * facts, why each was recorded, graph breaks with operator, reason, place in
 * the function (docs/compile.md) and count, and the counters.  The caller frees
 * it with core_text_free. */
core_status core_compiled_explain(core_compiled *compiled, char **out_json);

/* Counts of all compiled functions of the process since its start. */
typedef struct core_compile_counts {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    uint64_t calls;           /* of core_compiled_call */
    uint64_t compiled_calls;  /* that ran a program */
    uint64_t eager_calls;     /* that ran the function eagerly: */
    uint64_t break_calls;     /* because of a graph break */
    uint64_t limit_calls;     /* because of the limit */
    uint64_t inlined_calls;   /* while another function was recorded */
    uint64_t traces;          /* recordings, also those that failed */
    uint64_t trace_ns;        /* time that they took */
    uint64_t programs;        /* that exist now */
    uint64_t invalidated;     /* programs dropped because a hidden input changed
                              * or was released */
    uint64_t checks;          /* of LIBCORE_COMPILE_CHECK */
    uint64_t resized;         /* programs made from those of other sizes */
    uint64_t fused_kernels;   /* built for groups of operators */
    uint64_t refused_kernels; /* that a device could not build: their operators
                               * run one by one */
    /* Of CORE_COMPILE_REDUCE_OVERHEAD: */
    uint64_t captures;       /* graphs made */
    uint64_t graph_launches; /* runs of programs by graphs, forward and
                               * backward each */
    uint64_t graph_busy;     /* runs without, because another thread was
                               * launching a graph of the function */
    uint64_t prepare_ns;     /* time that all programs took, also those of
                              * lazy regions, to be prepared: fusion, order,
                              * memory */
} core_compile_counts;

/* Fills in the counts. */
core_status core_compile_get_counts(core_compile_counts *out_counts);

/* The kernels that are kept on disk, in the folder `kernels` of LIBCORE_CACHE,
 * and how often this process has read and written them. */
typedef struct core_compile_cache {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    uint64_t files;   /* in the folder now */
    uint64_t bytes;   /* that these files take */
    uint64_t limit;   /* bytes that may be kept */
    uint64_t loaded;  /* kernels that were read from files */
    uint64_t stored;  /* kernels that were written to files */
    uint64_t refused; /* files that were not used: damaged, not a kernel, or
                       * writable by other users */
    uint64_t failed;  /* files that could not be written */
    /* What CORE_COMPILE_MAX_AUTOTUNE has measured, which is kept in files of
     * the same folder: */
    uint64_t choices_loaded; /* read from files */
    uint64_t choices_stored; /* written to files */
} core_compile_cache;

/* Fills in the struct.  path: receives the path of the folder, truncated to
 * `capacity` bytes including the NUL; may be NULL.  UNSUPPORTED or another
 * error: kernels are not kept on disk, for the reason in the message. */
core_status core_compile_get_cache(core_compile_cache *out_cache, char *path,
                                   size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
