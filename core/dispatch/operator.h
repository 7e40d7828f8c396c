/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* operator.h: operators, as the dispatcher uses them.
 *
 * Built-in operators are rows of core__operators, generated from ops.yaml
 * (core/ops/README.md follows one from its entry to its kernel); custom
 * operators use the same struct, created at run time.  The constant part is
 * core__operator_data. */

#ifndef CORE_DISPATCH_OPERATOR_H
#define CORE_DISPATCH_OPERATOR_H

#include "base/keys.h"
#include "tensor/tensor.h"

#include <libcore/kernel.h>

typedef struct core__operator_data core__operator_data;
typedef struct core__kernel_set core__kernel_set;
typedef struct core__registration core__registration;
typedef struct core__gradient core__gradient;   /* autograd/graph/gradient.h */
typedef struct core__inference core__inference; /* ops/infer.h */

/* An entry of an operator's table.  Never changed once published: a new
 * registration publishes another entry. */
typedef struct core__entry {
    core_function function;
    void *user;
} core__entry;

/* How an operator is computed at a backend's slot. */
typedef enum core__family {
    CORE__FAMILY_FUNCTION,    /* only functions: composites, custom operators */
    CORE__FAMILY_VIEW,        /* computed by the core: an alias of its
                               * argument */
    CORE__FAMILY_ELEMENTWISE, /* structured: loop */
    CORE__FAMILY_REDUCTION,   /* structured: loop with reduced dimensions */
    CORE__FAMILY_KERNEL       /* structured: views in, views out */
} core__family;

typedef enum core__variant {
    CORE__VARIANT_FUNCTIONAL,
    CORE__VARIANT_INPLACE, /* result 0 is argument 0 */
    CORE__VARIANT_OUT      /* trailing arguments are the results */
} core__variant;

/* How the result dtype of a loop family follows from the operands. */
typedef enum core__promotion {
    CORE__PROMOTE_NONE,   /* first operand's dtype; others must be equal */
    CORE__PROMOTE_COMMON, /* all operands to the common dtype */
    CORE__PROMOTE_FLOAT,  /* the same; integers and bool to default float */
    CORE__PROMOTE_BOOL,   /* compare in the common dtype, result bool */
    CORE__PROMOTE_OWN     /* operands keep theirs; result: first operand's */
} core__promotion;

/* The result dtype of a reduction. */
typedef enum core__reduce_dtype {
    CORE__REDUCE_SAME,
    CORE__REDUCE_SUM,   /* integers and bool: i64 */
    CORE__REDUCE_FLOAT, /* floating only: the argument's dtype */
    CORE__REDUCE_BOOL,
    CORE__REDUCE_INDEX /* i64 */
} core__reduce_dtype;

enum {
    CORE__OP_DYNAMIC_OUTPUT = 1u << 0,
    CORE__OP_FACTORY = 1u << 1,   /* the device is an argument */
    CORE__OP_RANDOM = 1u << 2,    /* seed and offset are appended */
    CORE__OP_ORDERED = 1u << 3,   /* reduction that depends on the order */
    CORE__OP_HOST_WAIT = 1u << 4, /* reads device data on the host (item) */
    CORE__OP_MULTIPLE_VIEWS = 1u << 5, /* view operator with a list result */
    CORE__OP_NO_IDENTITY = 1u << 6,    /* reduction refuses zero elements */
    CORE__OP_IDENTITY_VIEW = 1u << 7,  /* may return its argument itself */
    CORE__OP_CUSTOM = 1u << 8,         /* registered at run time */
    CORE__OP_FLOAT8 = 1u << 9,         /* computes with f8e4m3 and f8e5m2 */
    CORE__OP_PRIMITIVE = 1u << 10      /* a function that does the work itself,
                                        * not by calling operators */
};

enum { CORE__OP_NOWHERE = 255 };
/* core_operator.key_path: how the keys of a call are collected. */
enum {
    CORE__KEY_PATH_NONE, /* there are other arguments with keys */
    /* The tensors are the first arguments, all of them required. */
    CORE__KEY_PATH_ONE,
    CORE__KEY_PATH_TWO,
    CORE__KEY_PATH_OUT, /* the same, and the last argument is a third tensor */
    CORE__KEY_PATH_ANY, /* by the mask */
    CORE__KEY_PATH_FACTORY /* no tensors, but options */
};

/* Bits of core_operator.fast_path, above the number of inputs. */
enum {
    CORE__FAST_PATH_INPUTS = 3,
    CORE__FAST_PATH_NUMBERS = 1u << 2,  /* numbers besides inputs and alpha */
    CORE__FAST_PATH_ALPHA = 1u << 3,    /* argument 2 is an alpha */
    CORE__FAST_PATH_COMPARES = 1u << 4, /* the result is bool */
    CORE__FAST_PATH_FLOATS = 1u << 5,   /* integers are computed as floats */
    CORE__FAST_PATH_SECOND = 1u << 6    /* the second input is a number */
};

/* Constant.  Positions are of arguments in the schema. */
struct core__operator_data {
    const char *schema; /* "add.Tensor(Tensor self, …) -> Tensor" */
    const char *name;   /* "add.Tensor" */
    uint32_t base;      /* id of the functional operator; its own if it is
                         * functional */
    uint32_t kernel;    /* id under whose name kernels register (add.Scalar has
                         * add.Tensor's); usually its own */
    uint8_t family;
    uint8_t variant;
    uint8_t promotion;  /* loop families: core__promotion or reduce_dtype */
    uint8_t operands;   /* element-wise: number of inputs of the loop */
    uint8_t operand[8]; /* their positions among the arguments */
    uint8_t dim;        /* reduction: position of the dimensions, or NOWHERE */
    uint8_t keepdim;
    uint8_t dtype; /* position of a dtype argument, or NOWHERE */
    uint8_t
        keep_dtype; /* element-wise: mask of operands (by index) that keep their
                    * dtype and do not take part in promotion, such as a
                    * condition */
    uint8_t
        integral_alpha; /* element-wise: position of an alpha that must be a whole
                    * number if integers are computed; 0: there is none */
    uint32_t writes; /* arguments that are written although the schema does not
                      * say so; see core__operator_written_arguments */
    /* FAMILY_KERNEL: infers dtypes and shapes of results (ops/infer.h).
     * FAMILY_ELEMENTWISE, FAMILY_REDUCTION: checks numbers, or NULL. */
    core_status (*infer)(core__inference *inference);
    /* FAMILY_VIEW, composites: the function. */
    core_function function;
    bool implicit;    /* function is a decomposition: autograd applies to the
                       * operators that it calls */
    uint8_t autocast; /* core__autocast_rule */
    bool no_gradient; /* neither a formula nor "not differentiable": refused */
    const core__gradient *gradient; /* NULL: not differentiable, or implicit */
};

typedef struct core__shortcut core__shortcut; /* registry.h */

struct core_operator {
    /* CORE__TABLE_SIZE entries; before the first call,
     * core__table_unresolved. */
    const core__entry *_Atomic *table;
    /* The most recent shortcut; NULL only before the table is created. */
    const core__shortcut *_Atomic shortcut;
    uint64_t mask; /* functionalities that are not fallthrough; atomic */
    /* The same for a call in which no tensor requires grad: without autograd,
     * if its layer would only redispatch.  Set when the table is created. */
    uint64_t mask_without_autograd;
    uint32_t tensors;  /* positions of tensors */
    uint32_t required; /* those that are required */
    uint32_t lists;    /* positions of lists of tensors */
    uint16_t id;
    uint16_t flags; /* CORE__OP_… */
    uint8_t nargs;
    uint8_t nresults;
    uint8_t variant;  /* data->variant */
    uint8_t family;   /* data->family */
    uint8_t key_path; /* CORE__KEYS_…; set when the table is created */
    /* CORE__FAST_PATH_… if elementwise_fast_path.c can serve it, else 0.  Set
     * when the table is created. */
    uint8_t fast_path;
    uint8_t override_logged; /* a warning was logged; guarded by the lock */
    uint8_t place;           /* position of the device argument, or NOWHERE */
    const core__operator_data *data;
    core_operator *kernel_op; /* core__operator_kernel; set with the table */
    core__registration *registrations; /* newest first; guarded by the lock */
    core__kernel_set *kernels;         /* by backend; guarded by the lock */
    void *schema;            /* parsed at the first query: dispatch/schema.h */
    uint32_t numbers;        /* positions of Scalars */
    uint32_t absent_numbers; /* those that may be NONE */
};

/* A call with one of these goes through the autograd layer: there is something
 * to record, or calls are traced. */
#define CORE__KEYS_OBSERVED \
    (CORE__KEYS_REQUIRES_GRAD | CORE__KEYS_VIEW | CORE__KEY_TRACE)

/* A registration may add to it while other threads call the operator. */
static inline uint64_t core__operator_mask(const core_operator *op)
{
    return __atomic_load_n(&op->mask, __ATOMIC_RELAXED);
}

/* The keys of a call in the state of a shortcut. */
static inline uint64_t core__keys_of_state(const core_operator *op,
                                           uint64_t state)
{
    uint64_t mask =
        state & CORE__KEYS_OBSERVED
            ? core__operator_mask(op)
            : __atomic_load_n(&op->mask_without_autograd, __ATOMIC_RELAXED);

    return (uint32_t)state & ~(state >> CORE__STATE_EXCLUDED_SHIFT) & mask;
}

/* The keys without layers that a call which is not observed skips, if the operator has
 * a table. */
static inline uint64_t core__keys_without_skipped(const core_operator *op,
                                                  uint64_t keys)
{
    if (!__atomic_load_n(&op->key_path, __ATOMIC_ACQUIRE) ||
        keys & CORE__KEYS_OBSERVED)
        return keys;
    return keys & __atomic_load_n(&op->mask_without_autograd, __ATOMIC_RELAXED);
}

/* Fails with a message that names the argument that is not a number. */
core_status core__numbers_type_error(const core_operator *op,
                                     const core_value *args, uint32_t position)
    __attribute__((cold));

/* Checks that each Scalar is a number.  For calls by id, whose arguments are
 * not checked otherwise. */
static inline core_status core__numbers_check_tags(const core_operator *op,
                                                   const core_value *args,
                                                   uint32_t nargs)
{
    for (uint32_t left = op->numbers; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);

        if (i < nargs && args[i].tag - CORE_VALUE_INT > 2u &&
            (args[i].tag != CORE_VALUE_NONE || !(op->absent_numbers >> i & 1)))
            return core__numbers_type_error(op, args, i);
    }
    return CORE_OK;
}

/* Generated. */
extern core_operator core__operators[];
extern const uint32_t core__operator_count;
extern const uint8_t core__operator_since[]; /* N of ABI 0.N, by id */

/* The functional operator of which op is a variant, or op. */
static inline const core_operator *core__operator_base(const core_operator *op)
{
    return op->flags & CORE__OP_CUSTOM ? op : &core__operators[op->data->base];
}

/* The operator under whose name op's kernels are registered. */
static inline core_operator *core__operator_kernel(core_operator *op)
{
    return op->flags & CORE__OP_CUSTOM ? op
                                       : &core__operators[op->data->kernel];
}

/* Finds a built-in operator with a generated hash; NULL if there is none. */
core_operator *core__operator_builtin(const char *name, size_t size);

static inline const char *core__operator_name(const core_operator *op)
{
    return op->data->name;
}

/* The name under which a plugin registers op's kernels. */
static inline const char *core__operator_kernel_name(const core_operator *op)
{
    return op->flags & CORE__OP_CUSTOM
               ? op->data->name
               : core__operators[op->data->kernel].data->name;
}

#endif
