/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* plugin.h: how a plugin is found, negotiated and initialised, and the small
 * types that all parts of the plugin ABI share.
 *
 * A plugin is a shared object that exports exactly one symbol,
 * core_plugin_entry, imports no symbol of libcore, and carries one ELF note
 * that describes it (core_plugin_note).  The loader reads the note from the
 * file before any of the plugin's code runs.  It then calls the entry to
 * negotiate an ABI version, and then the `init` that the entry returned.
 *
 * Every struct of the ABI is LP64 and little endian, has fixed-width fields and
 * no implicit padding, and is aligned to at most 8 bytes.  A struct that may
 * grow starts with struct_size: the writer stores the size that it knows, and
 * the reader reads no field beyond that size.  Enumerations are uint32_t with
 * named constants.  A reader that meets an unknown value returns
 * CORE_ERROR_UNSUPPORTED.  A field, function or constant under "Since ABI 0.N"
 * exists only where the negotiated minor is N or more.
 *
 * plugin.h, kernel.h, backend.h and codegen.h are the whole ABI.  They include
 * nothing but stdint.h, stddef.h and each other, compile as C11 and as C++, and
 * can be used without their macros. */

#ifndef LIBCORE_PLUGIN_H
#define LIBCORE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

/* CORE_STATIC_ASSERT checks a condition when it is compiled, in C11 and C++. */
#ifdef __cplusplus
extern "C" {
#define CORE_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define CORE_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* ------------------------------------------------------------- status -- */

/* The result of every call that can fail.  The error message is stored per
 * thread: see core_error_message (programs) and core_host.error (plugins). */
typedef int32_t core_status;
enum {
    CORE_OK = 0,
    CORE_ERROR_INVALID_ARGUMENT = 1,  /* a value that is never accepted */
    CORE_ERROR_OUT_OF_MEMORY = 2,     /* host or device memory */
    CORE_ERROR_UNSUPPORTED = 3,       /* valid, but not provided here */
    CORE_ERROR_NOT_FOUND = 4,         /* no such name, file, device, operator */
    CORE_ERROR_SHAPE = 5,             /* sizes or strides do not match */
    CORE_ERROR_DTYPE = 6,             /* dtypes do not match */
    CORE_ERROR_DEVICE = 7,            /* devices do not match */
    CORE_ERROR_INDEX = 8,             /* an index or dimension out of range */
    CORE_ERROR_NO_KERNEL = 9,         /* the device has no kernel for it */
    CORE_ERROR_DATA_DEPENDENT = 10,   /* shape depends on data (meta device) */
    CORE_ERROR_AUTOGRAD = 11,         /* not allowed by the autograd graph */
    CORE_ERROR_VERSION = 12,          /* a saved tensor was changed in place */
    CORE_ERROR_IO = 13,               /* a file could not be read or written */
    CORE_ERROR_CORRUPT = 14,          /* the content of a file is malformed */
    CORE_ERROR_INCOMPATIBLE = 15,     /* no common ABI or format version */
    CORE_ERROR_NO_DEVICE = 16,        /* the backend has no device here */
    CORE_ERROR_DEVICE_LOST = 17,      /* the device must be reset */
    CORE_ERROR_STREAM = 18,           /* asynchronous work on a stream failed */
    CORE_ERROR_BUSY = 19,             /* in use, or not complete yet */
    CORE_ERROR_CANCELLED = 20,        /* stopped by the caller */
    CORE_ERROR_REFUSED = 21,          /* forbidden by policy */
    CORE_ERROR_INTERNAL = 22,         /* a defect in libcore or a plugin */
    CORE_ERROR_VENDOR_FIRST = 0x10000 /* first code reserved for vendors */
};

/* What an error leaves unusable. */
enum {
    CORE_SEVERITY_RECOVERABLE = 0,     /* nothing */
    CORE_SEVERITY_STREAM_POISONED = 1, /* the stream */
    CORE_SEVERITY_DEVICE_LOST = 2      /* the device, until it is reset */
};

/* -------------------------------------------------------------- dtypes -- */

/* The type of a tensor's elements.  Ids are frozen.  Complex dtypes are
 * reserved; block-quantised dtypes will get ids later.
 *
 * F8E4M3 (up to 448, no infinity, NaN is 0x7f) and F8E5M2 (up to 57344) are
 * those of the OCP 8-bit Floating Point Specification 1.0.  They are storage
 * formats: they reach copy_, fill_ and similar kernels, and otherwise only
 * kernels whose signature names them, from plugins of ABI 0.3 or later. */
typedef uint32_t core_dtype;
enum {
    CORE_DTYPE_NONE = 0, /* as an argument: the default of that argument */
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
    CORE_DTYPE_LIMIT = 32 /* ids are below it; masks of dtypes are uint32_t */
};
/* The bit of a dtype in a mask of dtypes. */
#define CORE_DTYPE_MASK(dtype) (UINT32_C(1) << (dtype))

/* Memory formats, as operators take them. */
enum {
    CORE_FORMAT_CONTIGUOUS = 0,
    CORE_FORMAT_PRESERVE = 1,
    CORE_FORMAT_CHANNELS_LAST = 2,
    CORE_FORMAT_CHANNELS_LAST_3D = 3
};

/* The maximum number of dimensions of a tensor. */
enum { CORE_MAX_NDIM = 32 };

/* ------------------------------------------------------- tagged values -- */

/* Opaque objects of the core (core_tensor to core_operator; core_registry, the
 * transaction of init; core_node, of the autograd graph; core_function_context,
 * which a gradient's setup fills), and structs of kernel.h and backend.h. */
typedef struct core_tensor core_tensor;
typedef struct core_device core_device;
typedef struct core_generator core_generator;
typedef struct core_operator core_operator;
typedef struct core_view core_view;
typedef struct core_view_content core_view_content;
typedef struct core_call core_call;
typedef struct core_loop core_loop;
typedef struct core_kernel core_kernel;
typedef struct core_backend core_backend;
typedef struct core_registry core_registry;
typedef struct core_node core_node;
typedef struct core_function_context core_function_context;
typedef struct core_operator_gradient core_operator_gradient;
typedef struct core_result_shape core_result_shape;

/* A UTF-8 string.  It is not NUL-terminated unless stated, and lives as long
 * as the object that it was obtained from. */
typedef struct core_string {
    const char *data;
    uint64_t size; /* bytes */
} core_string;

/* The tag of a core_value: which member of u is valid, and what it is.  A
 * scalar argument is INT, FLOAT or BOOL. */
enum {
    CORE_VALUE_NONE = 0,
    CORE_VALUE_TENSOR = 1,       /* u.tensor, never NULL */
    CORE_VALUE_VIEW = 2,         /* u.view, never NULL */
    CORE_VALUE_INT = 3,          /* u.i */
    CORE_VALUE_FLOAT = 4,        /* u.f */
    CORE_VALUE_BOOL = 5,         /* u.i, 0 or 1 */
    CORE_VALUE_STRING = 6,       /* u.string, count bytes and a NUL */
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

/* An argument or a result.  Frozen at 16 bytes.  An argument is borrowed, with
 * everything that it points to.  A result is owned by the caller; a tensor
 * result is one reference. */
typedef struct core_value {
    uint32_t tag;   /* CORE_VALUE_… */
    uint32_t count; /* of lists and strings; otherwise 0 */
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

/* The calling convention of all kernels and functions, built in or in a
 * plugin.  kernel.h documents core_call and what args and results contain. */
typedef core_status (*core_function)(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults);

/* -------------------------------------------------------------- memory -- */

/* A place in a device's memory: an opaque handle of the plugin's and an offset
 * in bytes.  The core does arithmetic on offsets only.  On a device with
 * CORE_DEVICE_FLAT, handle + offset is an address.  The handle is NULL for a
 * tensor without elements and for an operand that is a number (kernel.h), which
 * have no memory, and only for them. */
typedef struct core_memory {
    void *handle;
    uint64_t offset;
} core_memory;
CORE_STATIC_ASSERT(sizeof(core_memory) == 16, "core_memory is frozen");

/* ----------------------------------------------------------- ELF note -- */

/* The version of the ABI that this header declares, and constants of the
 * note. */
enum {
    CORE_ABI_MAJOR = 0,
    CORE_ABI_MINOR = 6,
    CORE_NOTE_TYPE = 0x434f5245, /* n_type of the note; its owner: "libcore" */
    CORE_NOTE_VERSION = 1
};
/* The same two numbers as macros, for #if. */
#define CORE_ABI_MAJOR 0
#define CORE_ABI_MINOR 6

/* The content of the note.  The loader reads it from the file, with every
 * bound checked, before any code of the plugin runs.  Strings are UTF-8,
 * NUL-terminated and padded with NULs. */
typedef struct core_plugin_note {
    uint8_t magic[8]; /* "LIBCORE\0" */
    uint32_t note_version;
    uint32_t abi_major;
    uint32_t abi_minor_min; /* oldest minor that the plugin can run under */
    uint32_t abi_minor_max; /* minor that the plugin was built against */
    uint32_t flags;         /* 0 */
    uint32_t reserved;      /* 0 */
    char name[32];          /* [a-z0-9_]+, unique in the process */
    char vendor[64];
    char version[32];
    char license[32];        /* SPDX expression */
    char device_types[64];   /* that init will register, comma-separated */
    char minimum_driver[64]; /* human-readable; may be empty */
} core_plugin_note;
CORE_STATIC_ASSERT(sizeof(core_plugin_note) == 320, "core_plugin_note");

/* A checksum of the file, stored after the note in the content of the same
 * ELF note.  `core-info --seal` and core_plugin_seal_file write it; the loader
 * verifies it before any code of the plugin runs.  The seal is optional: a note
 * of 320 bytes has none, and a loader that does not know seals reads only
 * those 320 bytes.
 *
 * The checksum (core/base/checksum.c) covers what a loader maps and reads: the
 * ELF header except the position, size and count of the section table; the
 * program headers; and the bytes of every PT_LOAD segment after the ELF header.
 * The seal itself counts as zeros.  It detects accidental damage, not forgery:
 * a forger can write a matching seal.  The SHA-256 of a manifest protects
 * against replaced files (plugins.h). */
typedef struct core_plugin_seal {
    uint8_t mark[8]; /* "UNSEALED", and the rest is 0; or "SEALED\0\0" */
    uint8_t size[8]; /* number of bytes covered, little-endian */
    uint8_t sum[16];
} core_plugin_seal;
CORE_STATIC_ASSERT(sizeof(core_plugin_seal) == 32, "core_plugin_seal");

/* --------------------------------------------------------- host table -- */

/* An error, as a plugin reports it.  Strings are copied. */
typedef struct core_error_info {
    uint32_t struct_size;
    core_status code;
    uint32_t severity;     /* CORE_SEVERITY_… */
    uint32_t retryable;    /* 1: the same call may succeed later */
    int64_t vendor_code;   /* a cudaError_t, for example; 0: none */
    core_string component; /* "cublas", "driver", …; may be empty */
    core_string text;
} core_error_info;
CORE_STATIC_ASSERT(sizeof(core_error_info) == 56, "core_error_info");

/* Log levels. */
enum {
    CORE_LOG_ERROR = 0,
    CORE_LOG_WARNING = 1,
    CORE_LOG_INFO = 2,
    CORE_LOG_DEBUG = 3
};

/* Dispatch keys under which a function can be registered. */
enum {
    CORE_KEY_BACKEND = 0, /* one backend */
    CORE_KEY_INPLACE_OR_VIEW = 1,
    CORE_KEY_AUTOGRAD = 2,
    CORE_KEY_AUTOCAST = 3,
    CORE_KEY_PROFILER = 4,
    CORE_KEY_COMPOSITE_EXPLICIT = 5, /* every backend without a kernel */
    CORE_KEY_COMPOSITE_IMPLICIT = 6  /* a decomposition; autograd records the
                                        operators that it calls */
};

/* The services of libcore for plugins.  The table lives as long as the
 * process.  Every function is thread-safe, except that register_… may be
 * called only while init runs.  `registry` is the transaction that init
 * received: if init fails, everything registered with it is undone. */
typedef struct core_host {
    uint32_t struct_size;
    uint32_t abi_minor; /* negotiated */

    /* Sets the error record of the calling thread and returns info->code. */
    core_status (*error)(const core_error_info *info);

    /* Writes a message to libcore's log.  level: CORE_LOG_….  The strings are
     * borrowed for the call. */
    void (*log)(uint32_t level, core_string component, core_string text);

    /* Returns the value of a LIBCORE_… setting; data is NULL if it is not set.
     * The string lives as long as the process. */
    core_string (*setting)(core_string name);

    /* Registers a device type with its tables.  The struct, its tables and its
     * strings are copied.  REFUSED if the plugin's note does not list
     * backend->device_type. */
    core_status (*register_backend)(core_registry *registry,
                                    const core_backend *backend);

    /* Registers kernels for one of this plugin's backends.  backend: its device
     * type.  kernels: an array of pointers, so that core_kernel can grow; the
     * structs and their strings are copied.  UNSUPPORTED for a registered
     * operator without a shape function (register_shape), for bits of no dtype
     * in a signature, and for a field reserved that is not 0. */
    core_status (*register_kernels)(core_registry *registry,
                                    core_string backend,
                                    const core_kernel *const *kernels,
                                    uint32_t count);

    /* Registers one kernel that serves every operator for which the backend
     * has no other kernel and which is not a composite.  user: passed as
     * call->user. */
    core_status (*register_fallback)(core_registry *registry,
                                     core_string backend, core_function kernel,
                                     void *user);

    /* Registers a new operator by its schema,
     * "vendor::name.overload(Tensor self, …) -> Tensor".  The schema must be
     * registered before any function, kernel or gradient of the operator, for
     * which the others return NOT_FOUND.  Functions, kernels and gradients can
     * be registered in any order. */
    core_status (*register_operator)(core_registry *registry,
                                     core_string schema);

    /* Registers a function for an operator, built in or registered, under a
     * dispatch key.  key: CORE_KEY_….  backend: a device type for
     * CORE_KEY_BACKEND; a device type, or empty for all, for
     * CORE_KEY_AUTOGRAD; empty for other keys.  The texts are copied.  user:
     * passed as call->user.
     *
     * The function takes the place of what the core has under the key:
     * dispatch.h describes it for each (core_function_register).  Under
     * CORE_KEY_AUTOGRAD an operator that has a gradient loses it, unless the
     * function calls redispatch_displaced; register_gradient replaces it by
     * another one. */
    core_status (*register_function)(core_registry *registry,
                                     core_string operator_name, uint32_t key,
                                     core_string backend,
                                     core_function function, void *user);

    /* Finds an operator by name, "add.Tensor".  *out is valid while the
     * operator is registered.  NOT_FOUND if there is none. */
    core_status (*operator_find)(core_string name, core_operator **out);

    /* Returns the name of an operator.  The string lives as long as the
     * operator. */
    core_string (*operator_name)(const core_operator *op);

    /* Calls an operator, like core_op_call (dispatch.h).  For functions, not
     * for kernels. */
    core_status (*operator_call)(core_operator *op, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

    /* Calls the operator of `call` again with the given key set, a subset of
     * call->keys.  INVALID_ARGUMENT if keys contains no functionality.  The
     * meaning of the bits is private to the core, so use redispatch_below
     * (ABI 0.6) instead where the host has it. */
    core_status (*redispatch)(core_call *call, uint64_t keys,
                              const core_value *args, uint32_t nargs,
                              core_value *results, uint32_t nresults);

    /* Adds a reference to a tensor. */
    void (*tensor_retain)(core_tensor *tensor);

    /* Drops a reference to a tensor. */
    void (*tensor_release)(core_tensor *tensor);

    /* Fills *out_view with a view of a tensor.  It is valid while the tensor
     * lives.  UNSUPPORTED for a tensor on "meta". */
    core_status (*tensor_view)(core_tensor *tensor, core_view *out_view);

    /* Gets a kernel of another backend, to run it on memory that both backends
     * can access.  backend: a device type; its plugin is loaded if necessary.
     * index counts from 0; NOT_FOUND after the last kernel.  The kernel is
     * borrowed, and the plugin that provides it cannot be unloaded from then
     * on. */
    core_status (*backend_kernel)(core_string backend, uint32_t index,
                                  const core_kernel **out_kernel);

    /* Allocates temporary device memory for a kernel call.  size: in bytes.
     * The core frees the memory when the kernel returns, in the order of the
     * call's stream, so work that the kernel has enqueued there may use it.
     * `call` must be the running call, not a copy of it. */
    core_status (*call_scratch)(core_call *call, uint64_t size,
                                core_memory *out_memory);

    /* Allocates result `index` of a dynamic_output operator (kernel.h).
     * *out_view is valid until the kernel returns.  INVALID_ARGUMENT for other
     * operators, for an index out of range, and for the second call with one
     * index. */
    core_status (*call_allocate_result)(core_call *call, uint32_t index,
                                        core_dtype dtype, uint32_t ndim,
                                        const int64_t *sizes,
                                        const core_view **out_view);

    /* Copies a kernel call with everything that the kernel may read (arguments,
     * views, the loop), for a device that runs it later, once or repeatedly.
     * The copy is freed with call_drop.  It does not keep memory alive: streams
     * order the reuse of memory (backend.h).  *out_results has nresults
     * entries. */
    core_status (*call_copy)(const core_call *call, const core_value *args,
                             uint32_t nargs, const core_value *results,
                             uint32_t nresults, core_call **out_call,
                             const core_value **out_args,
                             core_value **out_results);

    /* Frees a copy that call_copy made. */
    void (*call_drop)(core_call *call);

    /* Since ABI 0.2. */

    /* Fills *out_info with the latest error of the calling thread, for a
     * plugin whose own thread runs work that fails there and is reported
     * elsewhere.  code is CORE_OK if there was none; text contains the
     * component.  The other fields are as they were reported; retryable is 0
     * for an error of libcore.  Strings live until the next error of the
     * thread. */
    void (*error_last)(core_error_info *out_info);

    /* Registers a gradient (kernel.h) for an operator, built in or registered.
     * The struct is copied.  The plugin cannot be unloaded while a graph
     * contains a call that this gradient recorded. */
    core_status (*register_gradient)(core_registry *registry,
                                     core_string operator_name,
                                     const core_operator_gradient *gradient);

    /* Saves tensors for backward, which gets them with node_saved by index.
     * Entries may be NULL.  Called in setup, at most once. */
    core_status (*context_save)(core_function_context *context,
                                core_tensor *const *tensors, uint64_t count);

    /* Marks a result that has no gradient.  Called in setup. */
    core_status (*context_mark_non_differentiable)(
        core_function_context *context, core_tensor *tensor);

    /* Makes backward receive NULL instead of zeros as the gradient of a result
     * that nothing used.  Called in setup. */
    core_status (*context_no_zeros)(core_function_context *context);

    /* Sets the context that backward receives for this call, instead of the
     * user pointer of the registration.  release(state), unless NULL, is called
     * once, when the state is no longer needed.  Called in setup, at most
     * once. */
    core_status (*context_set_state)(core_function_context *context,
                                     void *state, void (*release)(void *state));

    /* Gets a saved tensor in backward.  *out_tensor is a reference that the
     * caller releases, or NULL if NULL was saved. */
    core_status (*node_saved)(core_node *node, uint64_t index,
                              core_tensor **out_tensor);

    /* Returns 1 if backward must compute the gradient of this tensor
     * argument, else 0. */
    uint32_t (*node_needs_gradient)(const core_node *node, uint64_t input);

    /* Since ABI 0.3. */

    /* Returns a directory for data that is worth keeping between processes,
     * such as compiled programs.  name: [a-z0-9_]+.  The path is absolute,
     * NUL-terminated, and lives as long as the process.  The directory is
     * created if necessary, below the one that LIBCORE_CACHE names, and only
     * the user can write to it.  Files in it may come from another version, be
     * truncated, or disappear at any time.  UNSUPPORTED if no directory is
     * available; the plugin then works without a cache. */
    core_status (*cache_directory)(core_string name, core_string *out_path);

    /* Since ABI 0.4. */

    /* Declares that a kernel has enqueued work on a stream other than its
     * call's, and does not make the call's stream wait for it.  The memory of
     * the call's operands, its results and its scratch so far is not reused
     * before the work that `stream` has received until now is done.
     *
     * stream: a handle that the event table's `record` accepts, of a stream of
     * the same device.  It may be a stream that only the plugin knows, if no
     * other thread uses it during the call.  Call it before the kernel returns,
     * with the running call and not a copy, and again after more work.
     * UNSUPPORTED while a capture on the device is active, and for memory of
     * core.ipc: the kernel must then make the call's stream wait. */
    core_status (*call_record_stream)(core_call *call, void *stream);

    /* Does the same as call_record_stream for the memory of one tensor.  For
     * functions. */
    core_status (*tensor_record_stream)(core_tensor *tensor, void *stream);

    /* Since ABI 0.6. */

    /* Announces that the devices of a device type changed: some were added,
     * removed or reordered (core.hotplug in backend.h).  Any thread may call
     * it at any time after init, with locks of the plugin's held: it calls no
     * function of the plugin.  The core enumerates the devices again when a
     * program looks for one the next time.  NOT_FOUND if no backend has that
     * type; UNSUPPORTED if the backend does not provide core.hotplug. */
    core_status (*devices_changed)(core_string device_type);

    /* Gets two numbers that identify the content of a view's memory
     * (core_view_content in kernel.h), for a kernel that keeps what it computed
     * from an operand, such as a packed weight.  view: a view among the
     * arguments or results of the running call, not a copy; it may have no
     * elements.  The kernel sets out_content->struct_size before the call.
     * Only the thread that runs the kernel calls this, before the kernel
     * returns.  INVALID_ARGUMENT for another view, and if struct_size covers
     * neither number; out_content is then unchanged. */
    core_status (*call_view_content)(const core_call *call,
                                     const core_view *view,
                                     core_view_content *out_content);

    /* Registers how the results of an operator follow from its arguments
     * (core_shape_function in kernel.h).  Kernels can then be registered for
     * it, as for built-in operators that receive views: the core allocates the
     * results, and calls `shape` before any kernel.  On "meta" it is the whole
     * call.  The operator was registered by this init, before; its kernels are
     * registered afterwards.  UNSUPPORTED if a result is not a tensor, if there
     * are more than four, if an argument is a Device, or if the operator
     * changes arguments, except in place: name_(Tensor(a!) self, …) ->
     * Tensor(a!).  user: passed to `shape`. */
    core_status (*register_shape)(
        core_registry *registry, core_string operator_name,
        core_status (*shape)(void *user, const core_value *args, uint32_t nargs,
                             core_result_shape *shapes, uint32_t nresults),
        void *user);

    /* Calls what the function that received `call` displaced, like
     * core_redispatch_displaced (dispatch.h): the function that was registered
     * before it under the same key, by any plugin or program, or else the
     * core's own part.  Only a function of register_function may call it, in
     * the thread and during the call that it received.  INVALID_ARGUMENT
     * otherwise, and if nothing was displaced.  args and results: as for
     * operator_call. */
    core_status (*redispatch_displaced)(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults);

    /* Calls the operator of `call` again with the keys below that of the
     * function that received it, like core_redispatch_below (dispatch.h).  Only
     * a function of register_function may call it.  args and results: as for
     * operator_call. */
    core_status (*redispatch_below)(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults);

    /* Registers an interface that belongs to the plugin and not to one of its
     * device types.  name and version: "core.collectives", 1 (backend.h).
     * table: the interface's struct, which is copied with its strings.  user:
     * passed to its functions.  The note of a plugin that registers nothing
     * else lists no device types.  UNSUPPORTED: the name is unknown, or the
     * version is newer.  INVALID_ARGUMENT: the table lacks a required function,
     * or its engine has no name or one that the plugin has registered. */
    core_status (*register_interface)(core_registry *registry, core_string name,
                                      uint32_t version, const void *table,
                                      void *user);
} core_host;
CORE_STATIC_ASSERT(sizeof(core_host) == 8 + 8 * 37, "core_host");

/* -------------------------------------------------------- negotiation -- */

/* The host's offer: one ABI major and a range of minors. */
typedef struct core_plugin_offer {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor_min;
    uint32_t abi_minor_max;
    core_string runtime_version; /* of libcore, for messages */
} core_plugin_offer;
CORE_STATIC_ASSERT(sizeof(core_plugin_offer) == 32, "core_plugin_offer");

/* Flags of a plugin. */
enum {
    CORE_PLUGIN_UNLOAD_SAFE = 1u << 0 /* dlclose leaves nothing behind: no
                                         thread, handler or callback */
};

/* The plugin's reply to an offer. */
typedef struct core_plugin_answer {
    uint32_t struct_size;    /* in: the size that the host knows; out: filled */
    uint32_t abi_minor;      /* the plugin's choice within the offer */
    uint32_t host_minor_min; /* oldest host minor that the plugin accepts */
    uint32_t flags;          /* CORE_PLUGIN_… */
    core_string refusal;     /* the reason if the entry fails; static */

    /* Registers everything that the plugin provides and sets *out_plugin, which
     * shutdown receives.  It must not touch hardware.  Called once; on failure
     * all registrations are undone. */
    core_status (*init)(const core_host *host, core_registry *registry,
                        void **out_plugin);

    /* Frees what init created.  Called once, when no object of the plugin is in
     * use, before the plugin is unmapped.  It is not called at process exit or
     * for a plugin without CORE_PLUGIN_UNLOAD_SAFE.  deadline_ns: the time that
     * it may take.  If it fails, the plugin stays mapped, in the state
     * CORE_PLUGIN_FAILED.  NULL: there is nothing to free. */
    core_status (*shutdown)(void *plugin, uint64_t deadline_ns);
} core_plugin_answer;
CORE_STATIC_ASSERT(sizeof(core_plugin_answer) == 48, "core_plugin_answer");

/* The type of the exported symbol, core_plugin_entry.  It compares the offer,
 * fills the answer and does nothing else.  On failure it returns an error and
 * sets answer->refusal. */
typedef core_status (*core_plugin_entry_function)(
    const core_plugin_offer *offer, core_plugin_answer *answer);

/* The name of the exported symbol. */
#define CORE_PLUGIN_ENTRY "core_plugin_entry"

#ifdef __cplusplus
}
#endif
#endif
