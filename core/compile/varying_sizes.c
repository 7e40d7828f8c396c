/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Patterns of programs that differ in sizes. */

#include "compile/varying_sizes.h"

#include "base/memory.h"
#include "base/text.h"
#include "compile/compiled_node.h"
#include "compile/extract.h"
#include "device/device.h"
#include "dispatch/schema.h"

#include <string.h>

enum { FACTORS = 3, FORMS = 8 };

/* A product of symbols, plus a constant, or times one and divided by another
 * without remainder. */
typedef struct form {
    uint8_t nfactors;
    uint8_t factors[FACTORS];
    int64_t constant;
    int64_t divisor; /* 0: the constant is added */
} form;

typedef enum number_kind {
    NUMBER_INTEGER,
    NUMBER_FLOAT,     /* the integer as a floating number */
    NUMBER_RECIPROCAL /* 1 by the integer */
} number_kind;

/* A number of the program that differs: by its place in the order of visits. */
typedef struct varying {
    uint32_t place;
    uint8_t kind;
    uint8_t nforms;
    form forms[FORMS];
} varying;

/* A size of an input: a symbol, or a constant. */
typedef struct input_size {
    uint32_t symbol; /* CORE__NO_VALUE: none */
    int64_t constant;
} input_size;

/* Relations between two sizes: what is the same in all recordings may be a
 * number of the program that seems to be constant. */
enum {
    SAME_SUM = 1 << 0,
    SAME_DIFFERENCE = 1 << 1,
    SAME_PRODUCT = 1 << 2,
    SAME_RATIO = 1 << 3
};

struct core__size_pattern {
    core__compiled_entry *base; /* of the first recording, with a reference */
    uint32_t ninputs, nsizes, nsymbols, nvarying, failures;
    uint64_t programs; /* made from it */
    core__size_symbol symbols[CORE__PATTERN_SYMBOLS];
    /* By pairs: the relations that are the same in all recordings. */
    uint8_t related[CORE__PATTERN_SYMBOLS][CORE__PATTERN_SYMBOLS];
    varying *varying;
    input_size sizes[]; /* of all inputs */
};

enum { FAILURES = 8 };

/* ------------------------------------------------------------ recordings -- */

/* What was recorded of a call. */
typedef struct recording {
    const core_program *program; /* the joint program, if there is a backward */
    const core_program *holder;  /* that has the tensors: it, or the forward */
    const core__joint *joint;    /* NULL: there is no backward */
    uint32_t ninputs;            /* of the function */
} recording;

static recording recording_of(const core_program *program,
                              const core__training *training)
{
    if (!training)
        return (recording){program, program, NULL, program->ninputs};
    return (recording){training->joint, program, &training->recorded,
                       training->recorded.ninputs};
}

static recording recording_of_entry(const core__compiled_entry *entry)
{
    return recording_of(entry->program, entry->training);
}

/* --------------------------------------------------------------- visits -- */

/* Numbers of a program in an order that depends on its structure alone. */
typedef struct visitor {
    void (*visit)(void *context, uint32_t place, bool is_float, int64_t *slot);
    void *context;
    uint32_t place;
} visitor;

static void visit_numbers(visitor *v, const int64_t *numbers, uint32_t count,
                          bool is_float)
{
    for (uint32_t i = 0; i < count; i++)
        v->visit(v->context, v->place++, is_float,
                 (int64_t *)(uintptr_t)&numbers[i]);
}

static void visit_argument(visitor *v, const core__program_argument *argument)
{
    switch (argument->tag) {
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
        visit_numbers(v, &argument->u.i, 1, argument->tag == CORE_VALUE_FLOAT);
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        visit_numbers(v, argument->u.ints, argument->count,
                      argument->tag == CORE_VALUE_FLOAT_LIST);
        break;
    default:
        break;
    }
}

/* The numbers of views that are made outside of the program. */
static void visit_views(const core__joint *joint, visitor *v)
{
    for (uint32_t i = 0; i < joint->noutputs; i++)
        for (uint32_t k = 0; k < joint->outputs[i].nsteps; k++) {
            const core__view_step *step = &joint->outputs[i].steps[k];

            for (uint32_t n = 1; n < step->nargs; n++)
                visit_argument(v, &step->args[n]);
        }
}

static void visit_program(const core_program *program, const core__joint *joint,
                          visitor *v)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        visit_numbers(v, core__type_strides(&program->inputs[i].type),
                      program->inputs[i].type.ndim, false);
    for (uint32_t i = 0; i < program->nnodes; i++)
        for (uint32_t k = 0; k < program->nodes[i].nargs; k++)
            visit_argument(v, &program->nodes[i].args[k]);
    for (uint32_t i = 0; i < program->noutputs; i++) {
        const core__program_output *output = &program->outputs[i];

        visit_numbers(v, output->type.dims, 2u * output->type.ndim, false);
        visit_numbers(v, &output->offset, 1, false);
    }
    if (joint)
        visit_views(joint, v);
}

static void count_number(void *context, uint32_t place, bool is_float,
                         int64_t *slot)
{
    (void)is_float;
    (void)slot;
    *(uint32_t *)context = place + 1;
}

typedef struct number {
    int64_t value; /* of a floating number: its bits */
    bool is_float;
} number;

static void store_number(void *context, uint32_t place, bool is_float,
                         int64_t *slot)
{
    number *numbers = context;

    memcpy(&numbers[place].value, slot, sizeof *slot);
    numbers[place].is_float = is_float;
}

/* NULL: no memory. */
static number *numbers_of(const recording *r, uint32_t *out_count)
{
    visitor counting = {count_number, out_count, 0};
    visitor storing = {store_number, NULL, 0};

    *out_count = 0;
    visit_program(r->program, r->joint, &counting);
    storing.context = core__alloc((*out_count + 1) * sizeof(number));
    if (storing.context)
        visit_program(r->program, r->joint, &storing);
    return storing.context;
}

/* ----------------------------------------------------------- structures -- */

static bool same_argument(const core_program *x, const core_program *y,
                          const core__program_argument *a,
                          const core__program_argument *b)
{
    if (a->tag != b->tag || a->count != b->count)
        return false;
    switch (a->tag) {
    case CORE_VALUE_NONE:
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        return true;
    case CORE_VALUE_TENSOR:
        return a->u.value == b->u.value;
    case CORE_VALUE_TENSOR_LIST:
        return !a->count || memcmp(a->u.values, b->u.values,
                                   a->count * sizeof *a->u.values) == 0;
    case CORE_VALUE_DEVICE:
        return x->devices[a->u.device] == y->devices[b->u.device];
    case CORE_VALUE_GENERATOR:
        return x->generators[a->u.generator] == y->generators[b->u.generator];
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        return !a->count || memcmp(a->u.pointer, b->u.pointer, a->count) == 0;
    case CORE__ARGUMENT_NUMBER:
        return false;
    default:
        return a->u.i == b->u.i;
    }
}

static bool same_node(const core_program *x, const core_program *y,
                      const core__program_node *a, const core__program_node *b)
{
    /* What an operator of a program infers from sizes is not known. */
    if (!a->op || a->op != b->op || a->nargs != b->nargs ||
        a->nresults != b->nresults || a->written != b->written ||
        a->first != b->first || a->nvalues != b->nvalues ||
        a->backward != b->backward)
        return false;
    for (uint32_t i = 0; i < a->nargs; i++)
        if (!same_argument(x, y, &a->args[i], &b->args[i]))
            return false;
    for (uint32_t i = 0; i < a->nresults; i++)
        if (!same_argument(x, y, &a->results[i], &b->results[i]))
            return false;
    return true;
}

static bool same_type(const core_program *x, const core_program *y,
                      const core__program_type *a, const core__program_type *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           x->devices[a->device] == y->devices[b->device];
}

static bool same_inputs(const core_program *a, const core_program *b)
{
    for (uint32_t i = 0; i < a->ninputs; i++)
        if (a->inputs[i].value != b->inputs[i].value ||
            a->inputs[i].base != CORE__NO_VALUE ||
            b->inputs[i].base != CORE__NO_VALUE ||
            !same_type(a, b, &a->inputs[i].type, &b->inputs[i].type))
            return false;
    return true;
}

static bool same_sources(const recording *x, const recording *y)
{
    const core_program *a = x->program, *b = y->program;

    for (uint32_t i = 0; i < a->nhidden; i++)
        if (!core__same_hidden(&x->holder->hidden[i], &y->holder->hidden[i]) ||
            !core__types_equal(&a->values[a->hidden[i].value].type,
                               &b->values[b->hidden[i].value].type) ||
            a->hidden[i].value != b->hidden[i].value)
            return false;
    for (uint32_t i = 0; i < x->holder->naliases; i++)
        if (x->holder->aliases[i] != y->holder->aliases[i])
            return false;
    return true;
}

static bool same_results(const core_program *a, const core_program *b)
{
    for (uint32_t i = 0; i < a->noutputs; i++) {
        const core__program_output *x = &a->outputs[i], *y = &b->outputs[i];

        if (x->kind != y->kind || x->view != y->view || x->index != y->index ||
            x->tensor != y->tensor || !same_type(a, b, &x->type, &y->type))
            return false;
    }
    for (uint32_t i = 0; i < a->nwrites; i++)
        if (a->writes[i].hidden != b->writes[i].hidden ||
            a->writes[i].index != b->writes[i].index ||
            a->writes[i].value != b->writes[i].value)
            return false;
    return true;
}

static bool differs(char *text, size_t size, const char *what)
{
    core__format(text, size, "%s", what);
    return false;
}

/* ----------------------------------------------------------- backwards -- */

static bool same_views(const recording *x, const recording *y,
                       const core__joint_output *a, const core__joint_output *b)
{
    if (a->kind != b->kind || a->alias != b->alias || a->index != b->index ||
        a->nsteps != b->nsteps)
        return false;
    for (uint32_t i = 0; i < a->nsteps; i++) {
        const core__view_step *from = &a->steps[i], *to = &b->steps[i];

        if (from->op != to->op || from->nargs != to->nargs ||
            from->result != to->result)
            return false;
        for (uint32_t k = 1; k < from->nargs; k++)
            if (!same_argument(x->program, y->program, &from->args[k],
                               &to->args[k]))
                return false;
    }
    return true;
}

static bool same_numbers(const void *a, const void *b, size_t count,
                         size_t size)
{
    return !count || memcmp(a, b, count * size) == 0;
}

/* The gradient of a root is an input that has the type of the root, and outputs
 * are no tensors from before the call. */
static bool is_usual(const recording *r)
{
    for (uint32_t i = 0; i < r->joint->nroots; i++)
        if (!core__types_equal(&r->program->inputs[r->ninputs + i].type,
                               &r->program->outputs[r->joint->roots[i]].type))
            return false;
    for (uint32_t i = 0; i < r->holder->noutputs; i++)
        if (r->holder->outputs[i].tensor)
            return false;
    return true;
}

static bool same_backward(const recording *x, const recording *y)
{
    const core__joint *a = x->joint, *b = y->joint;
    size_t gradients;

    if (!a || !b)
        return a == b;
    gradients = (size_t)a->nmasks * a->nsources;
    if (a->ninputs != b->ninputs || a->noutputs != b->noutputs ||
        a->nroots != b->nroots || a->nsources != b->nsources ||
        a->nmasks != b->nmasks || a->views != b->views || !is_usual(x) ||
        !is_usual(y) ||
        !same_numbers(a->roots, b->roots, a->nroots, sizeof *a->roots) ||
        !same_numbers(a->root_outputs, b->root_outputs, a->nroots,
                      sizeof *a->root_outputs) ||
        !same_numbers(a->masks, b->masks, a->nmasks, sizeof *a->masks) ||
        !same_numbers(a->gradients, b->gradients, gradients,
                      sizeof *a->gradients))
        return false;
    for (uint32_t i = 0; i < a->nsources; i++)
        if (a->sources[i].tensor != b->sources[i].tensor ||
            a->sources[i].input != b->sources[i].input)
            return false;
    for (uint32_t i = 0; i < a->noutputs; i++)
        if (!same_views(x, y, &a->outputs[i], &b->outputs[i]))
            return false;
    return true;
}

/* True if the programs differ in numbers alone. */
static bool same_structure(const recording *x, const recording *y, char *text,
                           size_t size)
{
    const core_program *a = x->program, *b = y->program;
    const core_program *of_a = x->holder, *of_b = y->holder;

    if (of_a->nnumbers || of_b->nnumbers || of_a->nfinishes || of_b->nfinishes)
        return differs(text, size, "a program contains an optimizer's step");
    if (of_a->nknown || of_b->nknown || a->ninputs != b->ninputs ||
        a->nhidden != b->nhidden || of_a->naliases != of_b->naliases ||
        !same_inputs(a, b) || !same_sources(x, y))
        return differs(text, size,
                       "inputs are views, or the function knows other tensors");
    if (a->nnodes != b->nnodes || a->nvalues != b->nvalues)
        return differs(text, size, "the number of operators");
    for (uint32_t i = 0; i < a->nnodes; i++)
        if (!same_node(a, b, &a->nodes[i], &b->nodes[i])) {
            core__format(text, size, "operator %u: %s and %s, or its arguments",
                         i, a->nodes[i].name, b->nodes[i].name);
            return false;
        }
    for (uint32_t i = 0; i < a->nvalues; i++)
        if (!same_type(a, b, &a->values[i].type, &b->values[i].type))
            return differs(text, size, "the dtype of a value");
    return a->noutputs == b->noutputs && a->nwrites == b->nwrites &&
                   same_results(a, b) && same_backward(x, y)
               ? true
               : differs(text, size, "the outputs, or their gradients");
}

/* ---------------------------------------------------------------- forms -- */

/* False: it is too large, or there is a remainder. */
static bool evaluate(const form *f, const int64_t *symbols, int64_t *out)
{
    int64_t product = 1;

    for (uint32_t i = 0; i < f->nfactors; i++)
        if (__builtin_mul_overflow(product, symbols[f->factors[i]], &product))
            return false;
    if (!f->divisor)
        return !__builtin_add_overflow(product, f->constant, out);
    if (__builtin_mul_overflow(product, f->constant, &product))
        return false;
    *out = product / f->divisor;
    return product % f->divisor == 0;
}

/* False: there are too many. */
static bool add_form(varying *v, form f, int64_t constant, int64_t divisor)
{
    if (v->nforms == FORMS)
        return false;
    f.constant = constant;
    f.divisor = divisor;
    v->forms[v->nforms++] = f;
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Adds the forms with these factors that give a and b. */
static bool add_forms(const core__size_pattern *p, const uint32_t *factors,
                      uint32_t count, int64_t a, int64_t b, varying *v)
{
    int64_t x = 1, y = 1, common, to, from;
    form f = {.nfactors = (uint8_t)count};

    for (uint32_t i = 0; i < count; i++) {
        f.factors[i] = (uint8_t)factors[i];
        if (__builtin_mul_overflow(x, p->symbols[factors[i]].first, &x) ||
            __builtin_mul_overflow(y, p->symbols[factors[i]].second, &y))
            return true;
    }
    common = common_divisor(a, x);
    if (!__builtin_mul_overflow(y, a / common, &to) &&
        !__builtin_mul_overflow(b, x / common, &from) && to == from)
        return add_form(v, f, a / common, x / common);
    return a - x != b - y || add_form(v, f, a - x, 0);
}

/* All forms that explain an integer; false: none, or too many. */
static bool find_forms(const core__size_pattern *p, int64_t a, int64_t b,
                       varying *v)
{
    uint32_t n = p->nsymbols, f[FACTORS];
    bool good = true;

    for (f[0] = 0; f[0] < n && good; f[0]++) {
        good = add_forms(p, f, 1, a, b, v);
        for (f[1] = f[0]; f[1] < n && good; f[1]++) {
            good = add_forms(p, f, 2, a, b, v);
            for (f[2] = f[1]; f[2] < n && good; f[2]++)
                good = add_forms(p, f, 3, a, b, v);
        }
    }
    return good && v->nforms;
}

static double as_float(int64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The integer that a floating number is, or is 1 by. */
static bool as_integer(double value, bool reciprocal, int64_t *out)
{
    double integer = reciprocal ? 1 / value : value;

    if (!(integer > -1e15 && integer < 1e15))
        return false;
    *out = (int64_t)(integer + (integer < 0 ? -.5 : .5));
    return reciprocal ? *out != 0 && 1 / (double)*out == value
                      : (double)*out == value;
}

static bool explain(const core__size_pattern *p, const number *a,
                    const number *b, varying *v)
{
    int64_t x, y;

    if (!a->is_float)
        return find_forms(p, a->value, b->value, v);
    for (int reciprocal = 0; reciprocal < 2; reciprocal++) {
        v->kind = reciprocal ? NUMBER_RECIPROCAL : NUMBER_FLOAT;
        v->nforms = 0;
        if (as_integer(as_float(a->value), reciprocal, &x) &&
            as_integer(as_float(b->value), reciprocal, &y) &&
            find_forms(p, x, y, v))
            return true;
    }
    return false;
}

/* A number for sizes; false: it is not known, or ambiguous. */
static bool number_for(const varying *v, const int64_t *symbols, int64_t *out)
{
    double value;
    int64_t other;

    if (!evaluate(&v->forms[0], symbols, out))
        return false;
    for (uint32_t i = 1; i < v->nforms; i++)
        if (!evaluate(&v->forms[i], symbols, &other) || other != *out)
            return false;
    if (v->kind == NUMBER_INTEGER)
        return true;
    value = v->kind == NUMBER_FLOAT ? (double)*out : 1 / (double)*out;
    memcpy(out, &value, sizeof value);
    return true;
}

/* Drops the forms that another recording refutes.  False: all. */
static bool keep_forms(varying *v, const int64_t *symbols, const number *found)
{
    int64_t wanted = found->value, value;
    uint32_t kept = 0;

    if (v->kind != NUMBER_INTEGER &&
        !as_integer(as_float(found->value), v->kind == NUMBER_RECIPROCAL,
                    &wanted))
        return false;
    for (uint32_t i = 0; i < v->nforms; i++)
        if (evaluate(&v->forms[i], symbols, &value) && value == wanted)
            v->forms[kept++] = v->forms[i];
    v->nforms = (uint8_t)kept;
    return kept > 0;
}

/* -------------------------------------------------------------- patterns -- */

static void pattern_free(core__size_pattern *p)
{
    if (!p)
        return;
    core__entry_release(p->base);
    core__free(p->varying);
    core__free(p);
}

void core__size_patterns_free(core__size_patterns *patterns)
{
    for (uint32_t i = 0; i < patterns->count; i++)
        pattern_free(patterns->patterns[i]);
    patterns->count = 0;
}

/* The symbol for a size that was a and is b; CORE__NO_VALUE: there are too
 * many. */
static uint32_t symbol_for(core__size_pattern *p, int64_t a, int64_t b)
{
    for (uint32_t i = 0; i < p->nsymbols; i++)
        if (p->symbols[i].first == a && p->symbols[i].second == b)
            return i;
    if (p->nsymbols == CORE__PATTERN_SYMBOLS || a < 2 || b < 2)
        return CORE__NO_VALUE;
    p->symbols[p->nsymbols] =
        (core__size_symbol){a, b, a < b ? a : b, a < b ? b : a};
    return p->nsymbols++;
}

static bool find_symbols(core__size_pattern *p, const core_program *a,
                         const core_program *b)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < p->ninputs; i++)
        for (uint32_t k = 0; k < a->inputs[i].type.ndim; k++, at++) {
            int64_t x = core__type_sizes(&a->inputs[i].type)[k];
            int64_t y = core__type_sizes(&b->inputs[i].type)[k];

            p->sizes[at] = (input_size){CORE__NO_VALUE, x};
            if (x == y)
                continue;
            p->sizes[at].symbol = symbol_for(p, x, y);
            if (p->sizes[at].symbol == CORE__NO_VALUE)
                return false;
        }
    return p->nsymbols > 0;
}

static bool find_varying(core__size_pattern *p, const core_program *program,
                         const number *a, const number *b, uint32_t count,
                         char *text, size_t size)
{
    p->varying = core__alloc_zero((count + 1) * sizeof *p->varying);
    if (!p->varying)
        return differs(text, size, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        varying *v = &p->varying[p->nvarying];

        if (a[i].value == b[i].value)
            continue;
        v->place = i;
        if (!explain(p, &a[i], &b[i], v)) {
            core__format(text, size,
                         "a number is %lld in one and %lld in the other, which "
                         "follows from no sizes (%u operators)",
                         (long long)a[i].value, (long long)b[i].value,
                         program->nnodes);
            return false;
        }
        p->nvarying++;
    }
    return true;
}

static bool same_product(int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t first, second;

    return !__builtin_mul_overflow(a, b, &first) &&
           !__builtin_mul_overflow(c, d, &second) && first == second;
}

/* The relations of two sizes that are those of the first recording. */
static uint8_t relations_of(const core__size_pattern *p, const int64_t *symbols,
                            uint32_t i, uint32_t k)
{
    int64_t a = p->symbols[i].first, b = p->symbols[k].first;
    int64_t x = symbols[i], y = symbols[k];
    uint8_t same = 0;

    if (a - x == y - b)
        same |= SAME_SUM;
    if (a - x == b - y)
        same |= SAME_DIFFERENCE;
    if (same_product(a, b, x, y))
        same |= SAME_PRODUCT;
    if (same_product(a, y, x, b))
        same |= SAME_RATIO;
    return same;
}

/* Forgets the relations that a recording does not have. */
static void keep_relations(core__size_pattern *p, const int64_t *symbols)
{
    for (uint32_t i = 0; i < p->nsymbols; i++)
        for (uint32_t k = 0; k < i; k++)
            p->related[i][k] &= relations_of(p, symbols, i, k);
}

/* False: sizes differ in a relation that all recordings have. */
static bool are_related(const core__size_pattern *p, const int64_t *symbols)
{
    for (uint32_t i = 0; i < p->nsymbols; i++)
        for (uint32_t k = 0; k < i; k++)
            if (p->related[i][k] & ~relations_of(p, symbols, i, k))
                return false;
    return true;
}

static void set_relations(core__size_pattern *p)
{
    int64_t second[CORE__PATTERN_SYMBOLS];

    for (uint32_t i = 0; i < p->nsymbols; i++)
        second[i] = p->symbols[i].second;
    memset(p->related, 0xff, sizeof p->related);
    keep_relations(p, second);
}

static uint32_t count_sizes(const recording *r)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->ninputs; i++)
        count += r->program->inputs[i].type.ndim;
    return count;
}

/* NULL: they make none, and text says why. */
static core__size_pattern *pattern_new(core__compiled_entry *base,
                                       const recording *now, char *text,
                                       size_t size)
{
    const recording before = recording_of_entry(base);
    uint32_t nsizes = count_sizes(&before), count_a, count_b;
    number *a = numbers_of(&before, &count_a);
    number *b = numbers_of(now, &count_b);
    core__size_pattern *p =
        core__alloc_zero(sizeof *p + nsizes * sizeof *p->sizes);
    bool good = a && b && p;

    if (good) {
        p->ninputs = now->ninputs;
        p->nsizes = nsizes;
        good = find_symbols(p, before.program, now->program) ||
               differs(text, size,
                       p->nsymbols ? "more than 8 sizes differ"
                                   : "the strides of inputs, not their sizes");
    } else {
        core__format(text, size, "out of memory");
    }
    good = good && count_a == count_b &&
           find_varying(p, now->program, a, b, count_a, text, size);
    core__free(a);
    core__free(b);
    if (good && core__entry_retain(base)) {
        set_relations(p);
        p->base = base;
        return p;
    }
    pattern_free(p);
    return NULL;
}

/* The symbols of a call; false: its sizes are not those of the pattern. */
static bool symbols_of(const core__size_pattern *p, core_tensor *const *inputs,
                       int64_t *symbols)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < p->nsymbols; i++)
        symbols[i] = -1;
    for (uint32_t i = 0; i < p->ninputs; i++)
        for (uint32_t k = 0; k < inputs[i]->ndim; k++, at++) {
            const input_size *size = &p->sizes[at];
            int64_t now = inputs[i]->sizes[k];

            if (size->symbol == CORE__NO_VALUE) {
                if (now != size->constant)
                    return false;
                continue;
            }
            if (now < 2 ||
                (symbols[size->symbol] != -1 && symbols[size->symbol] != now))
                return false;
            symbols[size->symbol] = now;
        }
    return true;
}

static bool in_range(const core__size_pattern *p, const int64_t *symbols)
{
    for (uint32_t i = 0; i < p->nsymbols; i++)
        if (symbols[i] < p->symbols[i].low || symbols[i] > p->symbols[i].high)
            return false;
    return true;
}

/* ------------------------------------------------------------- programs -- */

/* Numbers for the visits of a new program. */
typedef struct filling {
    const core__size_pattern *p;
    const int64_t *symbols;
    uint32_t next;
    bool known;
} filling;

static void fill_number(void *context, uint32_t place, bool is_float,
                        int64_t *slot)
{
    filling *f = context;
    int64_t value;

    (void)is_float;
    if (f->next == f->p->nvarying || f->p->varying[f->next].place != place)
        return;
    if (number_for(&f->p->varying[f->next++], f->symbols, &value))
        memcpy(slot, &value, sizeof value);
    else
        f->known = false;
}

/* A copy of the type in the arena of another program. */
static core_status copy_type(core_program *to, core__program_type *type)
{
    return core__program_type_set(to, (core_dtype)type->dtype, type->ndim,
                                  core__type_sizes(type),
                                  core__type_strides(type), type->device, type);
}

static core_status copy_arguments(core_program *to, uint32_t count,
                                  const core__program_argument **inout)
{
    core__program_argument *args =
        core__program_alloc(to, (count + 1) * sizeof *args);

    if (!args)
        return core__error_memory(count * sizeof *args);
    for (uint32_t i = 0; i < count; i++) {
        int64_t *numbers;

        args[i] = (*inout)[i];
        if (args[i].tag != CORE_VALUE_INT_LIST &&
            args[i].tag != CORE_VALUE_FLOAT_LIST)
            continue;
        numbers = core__program_alloc(to, args[i].count * sizeof *numbers + 1);
        if (!numbers)
            return core__error_memory(args[i].count * sizeof *numbers);
        if (args[i].count)
            memcpy(numbers, args[i].u.ints, args[i].count * sizeof *numbers);
        args[i].u.ints = numbers;
    }
    *inout = args;
    return CORE_OK;
}

/* The views that are made outside of the program, in the arena of a copy. */
static core_status copy_views(core_program *to, core__joint *joint)
{
    size_t size = joint->noutputs * sizeof *joint->outputs;
    core__joint_output *outputs = core__program_alloc(to, size + 1);

    if (!outputs)
        return core__error_memory(size);
    for (uint32_t i = 0; i < joint->noutputs; i++) {
        core__joint_output *output = &outputs[i];
        core__view_step *steps;

        *output = joint->outputs[i];
        steps = core__program_alloc(to, output->nsteps * sizeof *steps + 1);
        if (!steps)
            return core__error_memory(output->nsteps * sizeof *steps);
        for (uint32_t k = 0; k < output->nsteps; k++) {
            steps[k] = output->steps[k];
            CORE_TRY(copy_arguments(to, steps[k].nargs, &steps[k].args));
        }
        output->steps = steps;
    }
    joint->outputs = outputs;
    return CORE_OK;
}

#define COPY_ARRAY(to, from, array, count)                                \
    do {                                                                  \
        for (uint32_t i_ = 0; i_ < (from)->count; i_++) {                 \
            void *added_ = core__program_grow(&(to)->array, &(to)->count, \
                                              sizeof *(to)->array);       \
            if (!added_)                                                  \
                return core__error_memory(sizeof *(to)->array);           \
            memcpy(added_, &(from)->array[i_], sizeof *(to)->array);      \
        }                                                                 \
    } while (0)

/* References are taken one by one, so that a failure drops those alone. */
static core_status copy_tensors(core_program *to, const recording *r)
{
    const core_program *from = r->program;
    core_status status = CORE_OK;

#define COPY_REFERENCES(from, array, count, retain)                        \
    for (uint32_t i = 0; status == CORE_OK && i < from->count; i++) {      \
        void *added =                                                      \
            core__program_grow(&to->array, &to->count, sizeof *to->array); \
        if (!added) {                                                      \
            status = core__error_memory(sizeof *to->array);                \
            break;                                                         \
        }                                                                  \
        memcpy(added, &from->array[i], sizeof *to->array);                 \
        retain;                                                            \
    }
    COPY_REFERENCES(from, hidden, nhidden,
                    to->hidden[i].tensor = r->holder->hidden[i].tensor;
                    core__hidden_retain(&to->hidden[i]))
    COPY_REFERENCES(r->holder, aliases, naliases,
                    core__tensor_retain(to->aliases[i]))
    COPY_REFERENCES(from, outputs, noutputs,
                    if (to->outputs[i].tensor)
                        core__tensor_retain(to->outputs[i].tensor))
#undef COPY_REFERENCES
    return status;
}

/* The program with the sizes of these inputs, and the types of its values as
 * they were. */
static core_status copy_program(core_program *to, const recording *r,
                                core_tensor *const *inputs)
{
    const core_program *from = r->program;

    to->recomputes = from->recomputes;
    to->codegen = from->codegen;
    CORE_TRY(copy_tensors(to, r));
    COPY_ARRAY(to, from, inputs, ninputs);
    COPY_ARRAY(to, from, values, nvalues);
    COPY_ARRAY(to, from, nodes, nnodes);
    COPY_ARRAY(to, from, writes, nwrites);
    for (uint32_t i = 0; i < to->ninputs; i++) {
        core__program_type *type = &to->inputs[i].type;

        CORE_TRY(copy_type(to, type));
        if (type->ndim && i < r->ninputs)
            memcpy((int64_t *)(uintptr_t)type->dims, inputs[i]->sizes,
                   type->ndim * sizeof(int64_t));
    }
    for (uint32_t i = 0; i < to->nnodes; i++)
        CORE_TRY(copy_arguments(to, to->nodes[i].nargs, &to->nodes[i].args));
    for (uint32_t i = 0; i < to->noutputs; i++)
        CORE_TRY(copy_type(to, &to->outputs[i].type));
    return CORE_OK;
}

/* True if the inputs have the strides that the pattern expects. */
static bool inputs_fit(const core_program *program, core_tensor *const *inputs,
                       uint32_t ninputs)
{
    for (uint32_t i = 0; i < ninputs; i++)
        for (uint32_t k = 0; k < inputs[i]->ndim; k++)
            if (inputs[i]->strides[k] !=
                core__type_strides(&program->inputs[i].type)[k])
                return false;
    return true;
}

/* ------------------------------------------------------------- inference -- */

/* A node while its results are inferred. */
typedef struct inference {
    core_program *program;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_value results[CORE__SCHEMA_RESULTS];
    core_tensor **stand_ins; /* owned */
    uint32_t count;
} inference;

static core_status stand_in(inference *f, uint32_t value, core_tensor **out)
{
    *out = NULL;
    if (value == CORE__NO_VALUE)
        return CORE_OK;
    CORE_TRY(core__program_stand_in(&f->program->values[value].type, out));
    f->stand_ins[f->count++] = *out;
    return CORE_OK;
}

static core_status make_argument(inference *f,
                                 const core__program_argument *from,
                                 core_tensor ***list, core_value *out)
{
    *out = core__program_constant(f->program, from);
    if (from->tag == CORE_VALUE_DEVICE)
        out->u.device = &core__meta_device;
    if (from->tag == CORE_VALUE_TENSOR)
        return stand_in(f, from->u.value, &out->u.tensor);
    if (from->tag != CORE_VALUE_TENSOR_LIST)
        return CORE_OK;
    out->u.tensors = *list;
    for (uint32_t k = 0; k < from->count; k++)
        CORE_TRY(stand_in(f, from->u.values[k], (*list)++));
    return CORE_OK;
}

static core_status make_arguments(inference *f, const core__program_node *node)
{
    core_tensor **list;
    size_t count = 1;

    for (uint32_t i = 0; i < node->nargs; i++)
        count += node->args[i].tag == CORE_VALUE_TENSOR_LIST
                     ? node->args[i].count
                     : 1;
    f->count = 0;
    f->stand_ins = core__alloc(2 * count * sizeof *f->stand_ins);
    if (!f->stand_ins)
        return core__error_memory(2 * count * sizeof *f->stand_ins);
    list = f->stand_ins + count;
    for (uint32_t i = 0; i < node->nargs; i++)
        CORE_TRY(make_argument(f, &node->args[i], &list, &f->args[i]));
    return CORE_OK;
}

static core_status __attribute__((cold)) unlike(const core__program_node *node)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: with these sizes it returns something else",
                       node->name);
}

static core_status set_type(inference *f, const core__program_node *node,
                            uint32_t value, const core_tensor *inferred)
{
    core__program_type *type = &f->program->values[value].type;

    if (!inferred || inferred->dtype != type->dtype ||
        inferred->ndim != type->ndim)
        return unlike(node);
    return core__program_type_set(f->program, inferred->dtype, inferred->ndim,
                                  inferred->sizes, inferred->strides,
                                  type->device, type);
}

static core_status set_result(inference *f, const core__program_node *node,
                              uint32_t i)
{
    const core__program_argument *described = &node->results[i];
    const core_value *result = &f->results[i];

    if (described->tag == CORE_VALUE_NONE)
        return CORE_OK;
    if (described->tag != result->tag ||
        (described->tag == CORE_VALUE_TENSOR_LIST &&
         described->count != result->count))
        return unlike(node);
    if (described->tag == CORE_VALUE_TENSOR)
        return set_type(f, node, described->u.value, result->u.tensor);
    for (uint32_t k = 0; k < described->count; k++)
        if (described->u.values[k] != CORE__NO_VALUE)
            CORE_TRY(set_type(f, node, described->u.values[k],
                              result->u.tensors[k]));
    return CORE_OK;
}

/* The values of written arguments have the types of the arguments. */
static void set_written(core_program *program, const core__program_node *node)
{
    uint32_t next = node->first + node->nvalues;

    for (uint32_t i = node->nargs; i-- > 0;) {
        const core__program_argument *a = &node->args[i];
        bool list = a->tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count = list ? a->count : a->tag == CORE_VALUE_TENSOR;
        const uint32_t *values = list ? a->u.values : &a->u.value;

        for (uint32_t k = count; node->written >> i & 1 && k-- > 0;)
            if (values[k] != CORE__NO_VALUE)
                program->values[--next].type = program->values[values[k]].type;
    }
}

static core_status infer_node(core_program *program, core__program_node *node)
{
    inference f = {.program = program};
    core_status status = make_arguments(&f, node);

    if (status == CORE_OK)
        status = core__program_infer(node->op, f.args, node->nargs, f.results,
                                     node->op->nresults, &node->draws);
    for (uint32_t i = 0; i < node->nresults && status == CORE_OK; i++)
        status = set_result(&f, node, i);
    if (status == CORE_OK)
        set_written(program, node);
    for (uint32_t i = 0; i < node->op->nresults; i++)
        core_value_release(&f.results[i]);
    for (uint32_t i = 0; i < f.count; i++)
        core__tensor_release(f.stand_ins[i]);
    core__free(f.stand_ins);
    return status;
}

static core_status infer_all(core_program *program)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        program->values[program->inputs[i].value].type =
            program->inputs[i].type;
    for (uint32_t i = 0; i < program->nnodes; i++)
        CORE_TRY(infer_node(program, &program->nodes[i]));
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];
        uint32_t target = write->hidden ? program->hidden[write->index].value
                                        : program->inputs[write->index].value;

        if (!core__types_equal(&program->values[target].type,
                               &program->values[write->value].type))
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "with these sizes what is written to an input "
                               "has other sizes");
    }
    return CORE_OK;
}

/* Gradients of roots have the types of the roots. */
static void set_tangents(core_program *program, const core__joint *joint)
{
    for (uint32_t i = 0; i < joint->nroots; i++)
        program->inputs[joint->ninputs + i].type =
            program->outputs[joint->roots[i]].type;
}

static core_status fill(const core__size_pattern *p, core_program *program,
                        const core__joint *joint, core_tensor *const *inputs,
                        const int64_t *symbols)
{
    filling f = {p, symbols, 0, true};
    visitor v = {fill_number, &f, 0};

    visit_program(program, joint, &v);
    if (!f.known || !inputs_fit(program, inputs, p->ninputs))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "a number is not known for these sizes");
    if (joint)
        set_tangents(program, joint);
    return infer_all(program);
}

/* UNSUPPORTED: it must be recorded.  joint: what is known besides a joint
 * program. */
static core_status make_program(const core__size_pattern *p,
                                core_tensor *const *inputs,
                                const int64_t *symbols, core__joint *joint,
                                core_program **out)
{
    const recording r = recording_of_entry(p->base);
    core__joint *own = r.joint ? joint : NULL;
    core__extraction e;
    core_status status =
        core__extraction_begin(&e, (core_program *)(uintptr_t)r.program);

    if (own)
        *own = *r.joint;
    if (status == CORE_OK)
        status = copy_program(e.to, &r, inputs);
    if (status == CORE_OK && own)
        status = copy_views(e.to, own);
    if (status == CORE_OK)
        status = fill(p, e.to, own, inputs, symbols);
    return core__extraction_end(&e, status, out);
}

/* -------------------------------------------------------------- interface -- */

/* A pattern with a reference to its base: it may be extended meanwhile, so the
 * numbers are copied. */
static bool find_pattern(core__size_patterns *patterns,
                         const core__guard *guard, core_tensor *const *inputs,
                         core__size_pattern **out, int64_t *symbols)
{
    for (uint32_t i = 0; i < patterns->count; i++) {
        core__size_pattern *p = patterns->patterns[i];

        if (!core__guard_same_but_sizes(p->base->guard, p->base->guard_size,
                                        guard->bytes, guard->size) ||
            core__entry_check(p->base, inputs) != CORE__ENTRY_HOLDS ||
            !symbols_of(p, inputs, symbols))
            continue;
        *out = p;
        return true;
    }
    return false;
}

/* What a pattern makes. */
typedef struct made_program {
    core_program *program;
    bool trains; /* it is a joint program, and this is known besides: */
    core__joint joint;
    uint64_t budget;
} made_program;

static core_status make_for(core__size_patterns *patterns,
                            const core__guard *guard,
                            core_tensor *const *inputs, made_program *made)
{
    int64_t symbols[CORE__PATTERN_SYMBOLS];
    core__size_pattern *p;
    core_status status = CORE_OK;

    core__compiled_lock();
    if (find_pattern(patterns, guard, inputs, &p, symbols) &&
        in_range(p, symbols) && are_related(p, symbols)) {
        made->trains = p->base->training != NULL;
        if (made->trains)
            made->budget = p->base->training->budget;
        status = make_program(p, inputs, symbols, &made->joint, &made->program);
        p->programs += made->program != NULL;
    }
    core__compiled_unlock();
    return status;
}

core_status core__size_patterns_apply(core__size_patterns *patterns,
                                      const core__guard *guard,
                                      core_tensor *const *inputs,
                                      size_t ninputs,
                                      core__compiled_entry **out_entry)
{
    made_program made = {0};
    core__training *training = NULL;
    core__error_record earlier;
    core_status status;

    *out_entry = NULL;
    core__error_save(&earlier);
    status = make_for(patterns, guard, inputs, &made);
    if (status == CORE_OK && made.program && made.trains)
        status = core__training_new(made.program, &made.joint, made.budget,
                                    &made.program, &training);
    if (status != CORE_OK) {
        if (status == CORE_ERROR_OUT_OF_MEMORY)
            return status;
        core__error_restore(&earlier);
    }
    return made.program ? core__entry_new(guard, made.program, training, inputs,
                                          ninputs, out_entry)
                        : CORE_OK;
}

/* Compares another recording with a pattern.  False: it is something else. */
static bool extend(core__size_pattern *p, const recording *now,
                   const int64_t *symbols, char *text, size_t size)
{
    const recording before = recording_of_entry(p->base);
    uint32_t count_a, count_b, next = 0;
    number *a, *b;
    bool good;

    if (!same_structure(&before, now, text, size))
        return false;
    a = numbers_of(&before, &count_a);
    b = numbers_of(now, &count_b);
    good = a && b && count_a == count_b;
    for (uint32_t i = 0; i < count_a && good; i++) {
        if (next < p->nvarying && p->varying[next].place == i)
            good = keep_forms(&p->varying[next++], symbols, &b[i]);
        else
            good = a[i].value == b[i].value;
    }
    core__free(a);
    core__free(b);
    if (!good)
        return differs(text, size, "a number does not follow from the sizes");
    for (uint32_t i = 0; i < p->nsymbols; i++) {
        if (symbols[i] < p->symbols[i].low)
            p->symbols[i].low = symbols[i];
        if (symbols[i] > p->symbols[i].high)
            p->symbols[i].high = symbols[i];
    }
    keep_relations(p, symbols);
    return true;
}

/* A pattern that failed too often, or whose tensors are gone, is in the way of
 * others.  NULL: there is none. */
static core__size_pattern *take_useless(core__size_patterns *patterns)
{
    for (uint32_t i = 0; i < patterns->count; i++) {
        core__size_pattern *p = patterns->patterns[i];

        if (p->failures < FAILURES && !core__entry_is_gone(p->base))
            continue;
        patterns->patterns[i] = patterns->patterns[--patterns->count];
        return p;
    }
    return NULL;
}

/* Returns the one whose place it takes, or NULL. */
static core__size_pattern *add_pattern(core__size_patterns *patterns,
                                       core__size_pattern *p)
{
    core__size_pattern *oldest = NULL;

    if (patterns->count == CORE__PATTERNS) {
        oldest = patterns->patterns[0];
        memmove(patterns->patterns, patterns->patterns + 1,
                (CORE__PATTERNS - 1) * sizeof *patterns->patterns);
        patterns->count--;
    }
    patterns->patterns[patterns->count++] = p;
    return oldest;
}

/* NULL: the programs make no pattern, and text says why. */
static core__size_pattern *compare_with(core__compiled_entry *before,
                                        const recording *now, char *text,
                                        size_t size)
{
    const recording then = recording_of_entry(before);

    return same_structure(&then, now, text, size)
               ? pattern_new(before, now, text, size)
               : NULL;
}

bool core__size_patterns_learn(core__size_patterns *patterns,
                               const core__guard *guard,
                               core_tensor *const *inputs,
                               const core_program *program,
                               const core__training *training,
                               core__compiled_entry *before)
{
    const recording now = recording_of(program, training);
    char *text = patterns->difference;
    size_t size = sizeof patterns->difference;
    int64_t symbols[CORE__PATTERN_SYMBOLS];
    core__size_pattern *p, *useless;
    bool good = false;

    core__compiled_lock();
    useless = take_useless(patterns);
    if (find_pattern(patterns, guard, inputs, &p, symbols)) {
        good = extend(p, &now, symbols, text, size);
        p->failures += !good;
    } else if (before) {
        p = compare_with(before, &now, text, size);
        good = p != NULL;
        if (p)
            p = add_pattern(patterns, p);
        if (!useless && p)
            useless = p;
    }
    core__compiled_unlock();
    pattern_free(useless);
    return good;
}

void core__size_patterns_write(const core__size_patterns *patterns,
                               core__json *json)
{
    core__json_array(json, "varying_sizes");
    for (uint32_t i = 0; i < patterns->count; i++) {
        const core__size_pattern *p = patterns->patterns[i];

        core__json_object(json, NULL);
        core__json_array(json, "sizes");
        for (uint32_t k = 0; k < p->nsymbols; k++) {
            core__json_object(json, NULL);
            core__json_integer(json, "from", p->symbols[k].low);
            core__json_integer(json, "to", p->symbols[k].high);
            core__json_end(json);
        }
        core__json_end(json);
        core__json_unsigned(json, "numbers", p->nvarying);
        core__json_unsigned(json, "programs", p->programs);
        core__json_end(json);
    }
    core__json_end(json);
    if (patterns->difference[0])
        core__json_text(json, "programs_differ", patterns->difference);
}
