/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* plugin.h: how a plugin is found, negotiated and initialised, and the small
 * types that every part of the plugin ABI shares.
 *
 * A plugin is a shared object that exports exactly one symbol,
 * core_plugin_entry, imports none of libcore's, and carries one ELF note that
 * describes it (core_plugin_note).  The loader reads the note from the file
 * before any of the plugin's code runs, then calls the entry to negotiate a
 * version, then the `init` that the entry answered with.
 *
 * Rules of every struct here: LP64, little endian, fixed-width fields, no
 * implicit padding, alignment at most 8.  A struct that may grow starts with
 * struct_size: its writer stores the size that it knew, its reader looks at no
 * field beyond that.  Enumerations are uint32_t with constants; a value that
 * the reader does not know is answered with CORE_ERROR_UNSUPPORTED.
 *
 * plugin.h, kernel.h and backend.h are the whole ABI.  They include nothing
 * but stdint.h and stddef.h (and plugin.h), compile as C11 and as C++, and can
 * be used without their macros. */

#ifndef LIBCORE_PLUGIN_H
#define LIBCORE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define CORE_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define CORE_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* ------------------------------------------------------------- status -- */

/* Every call that can fail returns one.  The message belongs to the thread:
 * see core_error_message (programs) and core_host.error (plugins). */
typedef int32_t core_status;
enum {
    CORE_OK = 0,
    CORE_ERROR_INVALID_ARGUMENT = 1,  /* a value that no call accepts */
    CORE_ERROR_OUT_OF_MEMORY = 2,     /* host or device memory */
    CORE_ERROR_UNSUPPORTED = 3,       /* valid, but not provided here */
    CORE_ERROR_NOT_FOUND = 4,         /* no such name, file, device, operator */
    CORE_ERROR_SHAPE = 5,             /* sizes or strides do not fit */
    CORE_ERROR_DTYPE = 6,             /* dtypes do not fit */
    CORE_ERROR_DEVICE = 7,            /* devices do not fit */
    CORE_ERROR_INDEX = 8,             /* an index or dimension out of range */
    CORE_ERROR_NO_KERNEL = 9,         /* the device lacks the operator */
    CORE_ERROR_DATA_DEPENDENT = 10,   /* shape depends on data (meta device) */
    CORE_ERROR_AUTOGRAD = 11,         /* the graph forbids it */
    CORE_ERROR_VERSION = 12,          /* a saved tensor was changed in place */
    CORE_ERROR_IO = 13,               /* a file could not be read or written */
    CORE_ERROR_CORRUPT = 14,          /* a file's content is malformed */
    CORE_ERROR_INCOMPATIBLE = 15,     /* ABI or format versions do not meet */
    CORE_ERROR_NO_DEVICE = 16,        /* a backend without devices here */
    CORE_ERROR_DEVICE_LOST = 17,      /* the device must be opened again */
    CORE_ERROR_STREAM = 18,           /* an asynchronous failure on a stream */
    CORE_ERROR_BUSY = 19,             /* in use, or not finished yet */
    CORE_ERROR_CANCELLED = 20,        /* stopped by the caller */
    CORE_ERROR_REFUSED = 21,          /* policy forbids it */
    CORE_ERROR_INTERNAL = 22,         /* a defect in libcore or a plugin */
    CORE_ERROR_VENDOR_FIRST = 0x10000 /* from here on: a vendor's own */
};

/* How far an error reaches. */
enum {
    CORE_SEVERITY_RECOVERABLE = 0,
    CORE_SEVERITY_STREAM_POISONED = 1,
    CORE_SEVERITY_DEVICE_LOST = 2
};

/* -------------------------------------------------------------- dtypes -- */

/* Ids are frozen.  Reserved for later: complex, block-quantised.
 *
 * F8E4M3 (up to 448, no infinity, NaN 0x7f) and F8E5M2 (up to 57344) are those
 * of the OCP 8-bit Floating Point Specification 1.0.  They are for storage:
 * copy_, fill_ and the like meet them, and only kernels whose signature names
 * them, of plugins of ABI 0.3 or later. */
typedef uint32_t core_dtype;
enum {
    CORE_DTYPE_NONE = 0, /* in an argument: the default of that argument */
    CORE_F64 = 1,
    CORE_F32 = 2,
    CORE_F16 = 3,
    CORE_BF16 = 4,
    CORE_I64 = 5,
    CORE_I32 = 6,
    CORE_I16 = 7,
    CORE_I8 = 8,
    CORE_U8 = 9,
    CORE_BOOL = 10,
    CORE_F8E4M3 = 16,
    CORE_F8E5M2 = 17,
    CORE_COMPLEX64 = 24,
    CORE_COMPLEX128 = 25,
    CORE_DTYPE_LIMIT = 32 /* every id is below; masks of dtypes are uint32_t */
};
#define CORE_DTYPE_MASK(dtype) (UINT32_C(1) << (dtype))

/* Memory formats, as an argument of operators. */
enum {
    CORE_FORMAT_CONTIGUOUS = 0,
    CORE_FORMAT_PRESERVE = 1,
    CORE_FORMAT_CHANNELS_LAST = 2,
    CORE_FORMAT_CHANNELS_LAST_3D = 3
};

/* A tensor has at most this many dimensions. */
enum { CORE_MAX_NDIM = 32 };

/* ------------------------------------------------------- tagged values -- */

typedef struct core_tensor core_tensor;
typedef struct core_device core_device;
typedef struct core_generator core_generator;
typedef struct core_operator core_operator;
typedef struct core_view core_view;
typedef struct core_call core_call;
typedef struct core_loop core_loop;
typedef struct core_kernel core_kernel;
typedef struct core_backend core_backend;
typedef struct core_registry core_registry;
typedef struct core_node core_node;
typedef struct core_function_context core_function_context;
typedef struct core_operator_gradient core_operator_gradient;

/* UTF-8, not NUL-terminated unless said; lives as long as what it came from. */
typedef struct core_string {
    const char *data;
    uint64_t size;
} core_string;

/* What u holds.  A scalar argument is INT, FLOAT or BOOL. */
enum {
    CORE_VALUE_NONE = 0,
    CORE_VALUE_TENSOR = 1,       /* u.tensor, never NULL */
    CORE_VALUE_VIEW = 2,         /* u.view, never NULL */
    CORE_VALUE_INT = 3,          /* u.i */
    CORE_VALUE_FLOAT = 4,        /* u.f */
    CORE_VALUE_BOOL = 5,         /* u.i, 0 or 1 */
    CORE_VALUE_STRING = 6,       /* u.string, count bytes, then a NUL */
    CORE_VALUE_DTYPE = 7,        /* u.i */
    CORE_VALUE_DEVICE = 8,       /* u.device */
    CORE_VALUE_FORMAT = 9,       /* u.i, CORE_FORMAT_… */
    CORE_VALUE_LAYOUT = 10,      /* u.i, 0 = strided */
    CORE_VALUE_GENERATOR = 11,   /* u.generator */
    CORE_VALUE_INT_LIST = 12,    /* u.ints, count elements */
    CORE_VALUE_FLOAT_LIST = 13,  /* u.floats, count elements */
    CORE_VALUE_BOOL_LIST = 14,   /* u.bools, count elements */
    CORE_VALUE_TENSOR_LIST = 15, /* u.tensors, count; elements may be NULL */
    CORE_VALUE_VIEW_LIST = 16,   /* u.views, count; elements may be NULL */
    CORE_VALUE_VALUE_LIST = 17   /* u.values, count elements */
};

/* Frozen at 16 bytes.  As an argument it is borrowed, with all it points to;
 * as a result the caller owns it (a tensor: one reference). */
typedef struct core_value {
    uint32_t tag;
    uint32_t count;
    union {
        int64_t i;
        double f;
        core_tensor *tensor;
        const core_view *view;
        const char *string;
        core_device *device;
        core_generator *generator;
        const int64_t *ints;
        const double *floats;
        const uint8_t *bools;
        core_tensor *const *tensors;
        const core_view *const *views;
        const struct core_value *values;
        void *pointer;
    } u;
} core_value;
CORE_STATIC_ASSERT(sizeof(core_value) == 16, "core_value is frozen");

/* A number argument: a value tagged INT, FLOAT or BOOL. */
typedef core_value core_scalar;

/* The one calling convention: kernels and functions of every layer, built in
 * or in a plugin (kernel.h has core_call and says who receives what). */
typedef core_status (*core_function)(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults);

/* -------------------------------------------------------------- memory -- */

/* Memory of a device: an opaque word of the device's and a byte offset.  Only
 * offsets are computed with.  On a device with CORE_DEVICE_FLAT the address is
 * the sum of both. */
typedef struct core_memory {
    void *handle;
    uint64_t offset;
} core_memory;
CORE_STATIC_ASSERT(sizeof(core_memory) == 16, "core_memory is frozen");

/* ----------------------------------------------------------- ELF note -- */

enum {
    CORE_ABI_MAJOR = 0,
    CORE_ABI_MINOR = 5,
    CORE_NOTE_TYPE = 0x434f5245, /* n_type of the note; its owner: "libcore" */
    CORE_NOTE_VERSION = 1
};
/* The same two for #if. */
#define CORE_ABI_MAJOR 0
#define CORE_ABI_MINOR 5

/* The note's content, read from the file with every bound checked, before any
 * code of the plugin runs.  Strings are UTF-8, NUL-padded, NUL-terminated. */
typedef struct core_plugin_note {
    uint8_t magic[8]; /* "LIBCORE\0" */
    uint32_t note_version;
    uint32_t abi_major;
    uint32_t abi_minor_min; /* the oldest minor that it can run under */
    uint32_t abi_minor_max; /* the minor that it was built against */
    uint32_t flags;         /* 0 */
    uint32_t reserved;      /* 0 */
    char name[32];          /* [a-z0-9_]+, unique in the process */
    char vendor[64];
    char version[32];
    char license[32];        /* SPDX expression */
    char device_types[64];   /* comma-separated: what init will register */
    char minimum_driver[64]; /* for people; empty if none */
} core_plugin_note;
CORE_STATIC_ASSERT(sizeof(core_plugin_note) == 320, "core_plugin_note");

/* Room behind the note, in the content of the same ELF note, where `core-info
 * --seal` and core_plugin_seal_file write what tells damage of the file.  The
 * loader checks the seal before any code of the plugin runs.  Optional: a note
 * of 320 bytes has none, and a loader that knows of none reads those alone.
 *
 * The sum (libcore's core/base/checksum.c) is of what a loader maps and reads:
 * the ELF header but for the section table's place, size and count, the
 * segment table, and the bytes of every PT_LOAD segment behind the ELF header,
 * this seal taken as 0.  It finds damage.  Who wants to forge a file
 * writes another seal: manifests have a SHA-256 against that. */
typedef struct core_plugin_seal {
    uint8_t mark[8]; /* "UNSEALED", and the rest is 0; or "SEALED", two NULs */
    uint8_t size[8]; /* bytes that the sum is of, little-endian */
    uint8_t sum[16];
} core_plugin_seal;
CORE_STATIC_ASSERT(sizeof(core_plugin_seal) == 32, "core_plugin_seal");

/* --------------------------------------------------------- host table -- */

/* What a plugin says about an error; text is copied. */
typedef struct core_error_info {
    uint32_t struct_size;
    core_status code;
    uint32_t severity;     /* CORE_SEVERITY_… */
    uint32_t retryable;    /* 1: the same call may succeed later */
    int64_t vendor_code;   /* cudaError_t and the like, or 0 */
    core_string component; /* "cublas", "driver", …; may be empty */
    core_string text;
} core_error_info;
CORE_STATIC_ASSERT(sizeof(core_error_info) == 56, "core_error_info");

enum {
    CORE_LOG_ERROR = 0,
    CORE_LOG_WARNING = 1,
    CORE_LOG_INFO = 2,
    CORE_LOG_DEBUG = 3
};

/* Functionality under which a function is registered (see core_host). */
enum {
    CORE_KEY_BACKEND = 0, /* one backend's slot */
    CORE_KEY_INPLACE_OR_VIEW = 1,
    CORE_KEY_AUTOGRAD = 2,
    CORE_KEY_AUTOCAST = 3,
    CORE_KEY_PROFILER = 4,
    CORE_KEY_COMPOSITE_EXPLICIT = 5, /* every backend without a kernel */
    CORE_KEY_COMPOSITE_IMPLICIT = 6  /* a decomposition; autograd runs inside */
};

/* Services of libcore.  The table lives as long as the process; any thread may
 * call any of it, except that register_… belong to init.  `registry` is the
 * transaction that init received: if init fails, all of it is undone. */
typedef struct core_host {
    uint32_t struct_size;
    uint32_t abi_minor; /* the negotiated one */

    /* Sets the thread's error record and returns info->code. */
    core_status (*error)(const core_error_info *info);
    void (*log)(uint32_t level, core_string component, core_string text);
    /* The value of a LIBCORE_… setting; empty data NULL if not set.  Lives as
     * long as the process. */
    core_string (*setting)(core_string name);

    /* Registration: structs and strings are copied unless said. */
    core_status (*register_backend)(core_registry *registry,
                                    const core_backend *backend);
    /* Kernels of one of this plugin's backends; `backend` is its device type.
     * Entries are pointers so that core_kernel can grow. */
    core_status (*register_kernels)(core_registry *registry,
                                    core_string backend,
                                    const core_kernel *const *kernels,
                                    uint32_t count);
    /* A kernel for every operator that has no other on this backend. */
    core_status (*register_fallback)(core_registry *registry,
                                     core_string backend, core_function kernel,
                                     void *user);
    /* A new operator: "vendor::name.overload(Tensor self, …) -> Tensor".  Its
     * schema comes before everything else about it: a function or gradient of
     * an operator that is not there yet is NOT_FOUND.  Between functions,
     * kernels and gradients the order is free. */
    core_status (*register_operator)(core_registry *registry,
                                     core_string schema);
    /* A function for an operator (built in or registered) under a key; for
     * CORE_KEY_BACKEND and CORE_KEY_AUTOGRAD `backend` says which one, and
     * empty means all (AUTOGRAD only). */
    core_status (*register_function)(core_registry *registry,
                                     core_string operator_name, uint32_t key,
                                     core_string backend,
                                     core_function function, void *user);

    /* Operators and tensors, for functions. */
    core_status (*operator_find)(core_string name, core_operator **out);
    core_string (*operator_name)(const core_operator *op);
    core_status (*operator_call)(core_operator *op, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);
    /* Calls the same operator below the keys of call: what a layer does. */
    core_status (*redispatch)(core_call *call, uint64_t keys,
                              const core_value *args, uint32_t nargs,
                              core_value *results, uint32_t nresults);
    void (*tensor_retain)(core_tensor *tensor);
    void (*tensor_release)(core_tensor *tensor);
    /* Fills a view of a tensor: valid while the tensor lives. */
    core_status (*tensor_view)(core_tensor *tensor, core_view *out_view);

    /* Kernels of another backend, to run on memory that both can reach: the
     * simulated devices borrow the CPU's so.  index counts from 0 while
     * CORE_OK; NOT_FOUND ends it.  The kernel stays valid while that backend
     * is loaded, which this plugin then pins. */
    core_status (*backend_kernel)(core_string backend, uint32_t index,
                                  const core_kernel **out_kernel);

    /* Services of a kernel's call (kernel.h). */
    core_status (*call_scratch)(core_call *call, uint64_t size,
                                core_memory *out_memory);
    core_status (*call_allocate_result)(core_call *call, uint32_t index,
                                        core_dtype dtype, uint32_t ndim,
                                        const int64_t *sizes,
                                        const core_view **out_view);
    /* A copy of a call with everything that its kernel may read (arguments,
     * views, loop), to run later, once or often, until call_drop.  It holds no
     * memory: that is ordered by streams (backend.h).  The copy's results are in
     * out_results[0 … nresults). */
    core_status (*call_copy)(const core_call *call, const core_value *args,
                             uint32_t nargs, const core_value *results,
                             uint32_t nresults, core_call **out_call,
                             const core_value **out_args,
                             core_value **out_results);
    void (*call_drop)(core_call *call);

    /* since 0.2 */

    /* The thread's newest error, for a plugin whose own thread runs work that
     * fails there and is reported elsewhere.  Strings live until the thread's
     * next error.  code CORE_OK: there was none. */
    void (*error_last)(core_error_info *out_info);

    /* A gradient for an operator, built in or registered (kernel.h); the
     * struct is copied.  While a call that it recorded lives in a graph, the
     * plugin cannot be unloaded. */
    core_status (*register_gradient)(core_registry *registry,
                                     core_string operator_name,
                                     const core_operator_gradient *gradient);
    /* For its setup.  Tensors for node_saved in backward, by index; entries
     * may be NULL.  Once. */
    core_status (*context_save)(core_function_context *context,
                                core_tensor *const *tensors, uint64_t count);
    /* A result that has no gradient. */
    core_status (*context_mark_non_differentiable)(
        core_function_context *context, core_tensor *tensor);
    /* backward gets NULL for the gradients of results that nothing used, not
     * zeros. */
    core_status (*context_no_zeros)(core_function_context *context);
    /* Backward's context of this call, in place of the registration's user
     * word.  release(state), unless NULL, is called once, when it is needed no
     * more.  Once. */
    core_status (*context_set_state)(core_function_context *context,
                                     void *state, void (*release)(void *state));
    /* For backward.  A saved tensor gives a reference, which the caller drops;
     * NULL where none was saved. */
    core_status (*node_saved)(core_node *node, uint64_t index,
                              core_tensor **out_tensor);
    /* 1: the gradient of this tensor argument is wanted. */
    uint32_t (*node_needs_gradient)(const core_node *node, uint64_t input);

    /* since 0.3 */

    /* A folder of this name ([a-z0-9_]+) for what is worth keeping between
     * processes, compiled programs say: absolute, made if it was not there,
     * the user's alone (LIBCORE_CACHE says where).  Whatever lies in it may be
     * from another version, cut short, or gone at any time.  UNSUPPORTED:
     * there is none, and the plugin does without.  Ends with a NUL; lives as
     * long as the process. */
    core_status (*cache_directory)(core_string name, core_string *out_path);

    /* since 0.4 */

    /* For a kernel that gives work to another stream than its call's and does
     * not make that one wait for it: what was given to `stream` up to now uses
     * the memory of the call's operands and results, and its scratch so far.
     * None of it is given anew before that work is done.  stream: a word that
     * the event table's `record` takes, of a stream of the same device, the
     * plugin's own ones too; those the plugin uses in no other thread
     * meanwhile.  To be called again after more work; before the kernel
     * returns, and not with a copy of the call.  UNSUPPORTED while anything on
     * the device is being captured: there the call's stream waits instead. */
    core_status (*call_record_stream)(core_call *call, void *stream);
    /* The same of one tensor's memory, for functions. */
    core_status (*tensor_record_stream)(core_tensor *tensor, void *stream);
} core_host;
CORE_STATIC_ASSERT(sizeof(core_host) == 8 + 8 * 31, "core_host");

/* -------------------------------------------------------- negotiation -- */

typedef struct core_plugin_offer {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor_min;
    uint32_t abi_minor_max;
    core_string runtime_version; /* of libcore, for messages */
} core_plugin_offer;
CORE_STATIC_ASSERT(sizeof(core_plugin_offer) == 32, "core_plugin_offer");

enum {
    CORE_PLUGIN_UNLOAD_SAFE = 1u << 0 /* dlclose leaves nothing behind */
};

typedef struct core_plugin_answer {
    uint32_t struct_size;    /* in: what the host knows; out: what was filled */
    uint32_t abi_minor;      /* the plugin's choice within the offer */
    uint32_t host_minor_min; /* refuse older hosts, with `refusal` saying why */
    uint32_t flags;          /* CORE_PLUGIN_… */
    core_string refusal;     /* static text, if the entry fails */
    /* Registers everything; touches no hardware.  Runs once. */
    core_status (*init)(const core_host *host, core_registry *registry,
                        void **out_plugin);
    /* Frees what init made, when nothing of the plugin's is used any more and
     * before it is unmapped: of a plugin without CORE_PLUGIN_UNLOAD_SAFE, or at
     * process exit, it never comes.  deadline_ns: how long it may take.  After
     * an error the plugin stays mapped, and is failed.  NULL: there is nothing
     * to free. */
    core_status (*shutdown)(void *plugin, uint64_t deadline_ns);
} core_plugin_answer;
CORE_STATIC_ASSERT(sizeof(core_plugin_answer) == 48, "core_plugin_answer");

/* The one exported symbol: `core_plugin_entry`.  It compares the offer, fills
 * the answer and does nothing else. */
typedef core_status (*core_plugin_entry_function)(
    const core_plugin_offer *offer, core_plugin_answer *answer);
#define CORE_PLUGIN_ENTRY "core_plugin_entry"

#ifdef __cplusplus
}
#endif
#endif
