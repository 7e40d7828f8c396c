/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Patterns of programs that differ in sizes. */

#include "compile/compiled/dynamic_shapes.h"

#include "base/memory.h"
#include "base/text.h"
#include "compile/compiled/recorded_call.h"
#include "compile/compiled/resize.h"
#include "compile/compiled/symbolic_size.h"

#include <string.h>

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
    uint32_t ninputs, nsizes, nsymbols, ndynamic, failures;
    uint64_t programs; /* made from it */
    core__size_symbol symbols[CORE__PATTERN_SYMBOLS];
    /* By pairs: the relations that are the same in all recordings. */
    uint8_t related[CORE__PATTERN_SYMBOLS][CORE__PATTERN_SYMBOLS];
    core__dynamic_number *numbers;
    input_size sizes[]; /* of all inputs */
};

enum { FAILURES = 8 };

static core__recorded_call recording_of_entry(const core__compiled_entry *entry)
{
    return core__recorded_call_of(entry->program, entry->training);
}

static bool differs(char *text, size_t size, const char *what)
{
    core__format(text, size, "%s", what);
    return false;
}

/* -------------------------------------------------------------- patterns -- */

static void pattern_free(core__size_pattern *p)
{
    if (!p)
        return;
    core__entry_release(p->base);
    core__free(p->numbers);
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

static bool find_dynamic(core__size_pattern *p, const core_program *program,
                         const core__recorded_number *a,
                         const core__recorded_number *b, uint32_t count,
                         char *text, size_t size)
{
    const core__sizes_seen sizes = {p->symbols, p->nsymbols};

    p->numbers = core__alloc_zero((count + 1) * sizeof *p->numbers);
    if (!p->numbers)
        return differs(text, size, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        core__dynamic_number *v = &p->numbers[p->ndynamic];

        if (a[i].value == b[i].value)
            continue;
        v->place = i;
        if (!core__dynamic_explain(&sizes, &a[i], &b[i], v)) {
            core__format(text, size,
                         "a number is %lld in one and %lld in the other, which "
                         "follows from no sizes (%u operators)",
                         (long long)a[i].value, (long long)b[i].value,
                         program->nnodes);
            return false;
        }
        p->ndynamic++;
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

static uint32_t count_sizes(const core__recorded_call *r)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->ninputs; i++)
        count += r->program->inputs[i].type.ndim;
    return count;
}

/* NULL: they make none, and text says why. */
static core__size_pattern *pattern_new(core__compiled_entry *base,
                                       const core__recorded_call *now,
                                       char *text, size_t size)
{
    const core__recorded_call before = recording_of_entry(base);
    uint32_t nsizes = count_sizes(&before), count_a, count_b;
    core__recorded_number *a = core__recorded_call_numbers(&before, &count_a);
    core__recorded_number *b = core__recorded_call_numbers(now, &count_b);
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
           find_dynamic(p, now->program, a, b, count_a, text, size);
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

/* ------------------------------------------------------------- interface -- */

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
    core__recorded_call recorded;
    core__size_pattern *p;
    core_status status = CORE_OK;

    core__compiled_lock();
    if (find_pattern(patterns, guard, inputs, &p, symbols) &&
        in_range(p, symbols) && are_related(p, symbols)) {
        made->trains = p->base->training != NULL;
        if (made->trains)
            made->budget = p->base->training->budget;
        recorded = recording_of_entry(p->base);
        status =
            core__program_resize(&recorded, p->numbers, p->ndynamic, inputs,
                                 symbols, &made->joint, &made->program);
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
static bool extend(core__size_pattern *p, const core__recorded_call *now,
                   const int64_t *symbols, char *text, size_t size)
{
    const core__recorded_call before = recording_of_entry(p->base);
    uint32_t count_a, count_b, next = 0;
    core__recorded_number *a, *b;
    bool good;

    if (!core__recorded_calls_match(&before, now, text, size))
        return false;
    a = core__recorded_call_numbers(&before, &count_a);
    b = core__recorded_call_numbers(now, &count_b);
    good = a && b && count_a == count_b;
    for (uint32_t i = 0; i < count_a && good; i++) {
        if (next < p->ndynamic && p->numbers[next].place == i)
            good = core__dynamic_keep(&p->numbers[next++], symbols, &b[i]);
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
                                        const core__recorded_call *now,
                                        char *text, size_t size)
{
    const core__recorded_call then = recording_of_entry(before);

    return core__recorded_calls_match(&then, now, text, size)
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
    const core__recorded_call now = core__recorded_call_of(program, training);
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
    core__json_array(json, "dynamic_shapes");
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
        core__json_unsigned(json, "numbers", p->ndynamic);
        core__json_unsigned(json, "programs", p->programs);
        core__json_end(json);
    }
    core__json_end(json);
    if (patterns->difference[0])
        core__json_text(json, "programs_differ", patterns->difference);
}
