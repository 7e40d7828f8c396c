/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator of the registry, called with arguments that no sane program
 * passes: sizes that do not fit, ranks 0 to 5, missing arguments, numbers at
 * the ends of their ranges.  A call may succeed or fail; it must return, and if
 * it fails it must set a message, return no result and leak nothing.
 *
 * Each call has a number and depends only on the seed and that number.
 * LIBCORE_TEST_SEED, HOSTILE_CALLS (calls per operator), HOSTILE_OP (one
 * operator) and HOSTILE_CALL (one call) select others; a failure prints which
 * call it was.  `make fuzz` runs this program with new seeds.
 * HOSTILE_APART runs each operator in a separate process, so that a crash
 * does not stop the rest.  Allocations have exactly the requested size, so that
 * an address sanitizer sees the first byte beyond them. */

/* A thousand operators with 150 calls each take minutes under a sanitizer. */
#define SUITE_SECONDS 900

#include "support/crash_guard.h"
#include "support/samples.h"

static uint64_t seed = 1, only_call = UINT64_MAX;
static uint32_t calls = 150;
static const char *only_op;

static void settings_read(void)
{
    const char *text;

    if ((text = getenv("LIBCORE_TEST_SEED")))
        seed = strtoull(text, NULL, 10);
    if ((text = getenv("HOSTILE_CALLS")))
        calls = (uint32_t)strtoul(text, NULL, 10);
    if ((text = getenv("HOSTILE_CALL")))
        only_call = strtoull(text, NULL, 10);
    only_op = getenv("HOSTILE_OP");
}

/* ------------------------------------------------------- random calls -- */

static const int64_t ends[] = {
    INT64_MAX,
    INT64_MIN,
    INT64_MAX - 1,
    INT64_MIN + 1,
    INT64_C(1) << 62,
    INT64_C(1) << 40,
    INT32_MAX,
    INT32_MIN,
    -2,
    -1,
    65536,
};

static int64_t number(void)
{
    if (chance(8))
        return ends[below(sizeof ends / sizeof *ends)];
    if (chance(12))
        return -(int64_t)below(7);
    return (int64_t)below(5);
}

static double real(void)
{
    static const double values[] = {
        NAN,    INFINITY, -INFINITY, 1e300,      -1e300,
        1e-320, 1e19,     -1e19,     4294967296,
    };

    if (chance(12))
        return values[below(sizeof values / sizeof *values)];
    if (chance(40))
        return (double)below(4);
    return (double)below(4000) / 1000 - 2;
}

/* Sizes and dtypes shared by the tensors of one call. */
typedef struct theme {
    uint32_t ndim;
    int64_t sizes[6];
    core_dtype dtype;
    core_device *device;
    bool leaves;
} theme;

typedef struct hostile_call {
    core_operator *op;
    const core__schema *schema;
    theme theme;
    core_value values[CORE__SCHEMA_ARGUMENTS];
    int64_t ints[CORE__SCHEMA_ARGUMENTS][8];
    double floats[CORE__SCHEMA_ARGUMENTS][8];
    uint8_t bools[CORE__SCHEMA_ARGUMENTS][8];
    core_tensor *lists[CORE__SCHEMA_ARGUMENTS][48];
} hostile_call;

static core_device *devices[2]; /* cpu, meta */

static core_dtype any_dtype(void)
{
    static const core_dtype dtypes[] = {
        CORE_F64, CORE_F32, CORE_F16, CORE_BF16, CORE_I64,
        CORE_I32, CORE_I16, CORE_I8,  CORE_U8,   CORE_BOOL,
    };

    return dtypes[below(sizeof dtypes / sizeof *dtypes)];
}

static int64_t any_size(void)
{
    static const int64_t sizes[] = {0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 9, 17};

    return sizes[below(sizeof sizes / sizeof *sizes)];
}

static void theme_make(theme *t)
{
    t->ndim = below(6);
    for (uint32_t i = 0; i < 6; i++)
        t->sizes[i] = chance(30) && i > 0 ? t->sizes[i - 1] : any_size();
    t->dtype = chance(35) ? CORE_F32 : chance(50) ? CORE_F64 : any_dtype();
    t->device = devices[chance(20)];
    t->leaves = chance(15);
}

static void pick_sizes(const theme *t, uint32_t *out_ndim, int64_t *sizes)
{
    uint32_t n = t->ndim;

    memcpy(sizes, t->sizes, sizeof t->sizes);
    if (chance(50)) {
        *out_ndim = n;
        return;
    }
    switch (below(7)) {
    case 0: /* one dimension more in front */
        memmove(sizes + 1, sizes, 5 * sizeof *sizes);
        sizes[0] = any_size();
        n = n < 5 ? n + 1 : n;
        break;
    case 1: /* first or last dimension removed */
        if (n > 0 && chance(50))
            memmove(sizes, sizes + 1, --n * sizeof *sizes);
        else if (n > 0)
            n--;
        break;
    case 2: /* one of its dimensions only */
        sizes[0] = sizes[n ? below(n) : 0];
        n = 1;
        break;
    case 3:
        n = 0;
        break;
    case 4: /* transposed */
        if (n > 1) {
            sizes[n - 1] = t->sizes[n - 2];
            sizes[n - 2] = t->sizes[n - 1];
        }
        break;
    case 5: /* one size changed */
        sizes[n ? below(n) : 0] = any_size();
        break;
    default:
        n = below(6);
        for (uint32_t i = 0; i < n; i++)
            sizes[i] = any_size();
    }
    *out_ndim = n;
}

static core_dtype pick_dtype(const theme *t, const char *name)
{
    if (chance(8))
        return any_dtype();
    if (strstr(name, "ind") || strstr(name, "target"))
        return chance(90) ? CORE_I64 : CORE_I32;
    if (strstr(name, "mask") || strstr(name, "condition"))
        return CORE_BOOL;
    return t->dtype;
}

/* Strides of a permutation of the dimensions, sometimes with gaps. */
static void pick_strides(uint32_t ndim, const int64_t *sizes, int64_t *strides)
{
    int64_t stride = chance(15) ? 2 : 1;
    uint32_t order[6];

    for (uint32_t i = 0; i < ndim; i++)
        order[i] = ndim - 1 - i;
    if (ndim > 1 && chance(30)) {
        uint32_t a = below(ndim), b = below(ndim), kept = order[a];

        order[a] = order[b];
        order[b] = kept;
    }
    for (uint32_t i = 0; i < ndim; i++) {
        strides[order[i]] = stride;
        stride *= sizes[order[i]] > 1 ? sizes[order[i]] : 1;
    }
    if (ndim > 0 && chance(5))
        strides[below(ndim)] = 0;
}

static core_tensor *make_tensor(const theme *t, const char *name)
{
    core_device *device = chance(2) ? devices[below(2)] : t->device;
    core_dtype dtype = pick_dtype(t, name);
    int64_t sizes[6], strides[6], span = 1, numel = 1;
    core_tensor *tensor;
    uint32_t ndim;

    pick_sizes(t, &ndim, sizes);
    for (uint32_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    if (numel > 3000) {
        ndim = ndim > 1;
        numel = ndim ? sizes[0] : 1;
    }
    pick_strides(ndim, sizes, strides);
    for (uint32_t i = 0; i < ndim; i++)
        span += (sizes[i] - 1) * strides[i];
    if (numel == 0)
        span = 0;
    if (device == devices[1])
        OK(core_empty_strided(sizes, ndim, strides, ndim, dtype, device,
                              &tensor));
    else
        tensor = hostile_tensor(dtype, ndim, sizes, strides, span);
    if (t->leaves && core_dtype_is_floating(dtype) && chance(60))
        OK(core_tensor_set_requires_grad(tensor, true));
    return tensor;
}

static const char *any_text(void)
{
    static const char *const texts[] = {
        "none", "tanh",         "trunc", "floor",   "mean",     "sum",
        "prod", "amax",         "amin",  "reduced", "complete", "r",
        "",     "no such word", "%s%n",  "ij",      "xy",
    };

    return texts[below(sizeof texts / sizeof *texts)];
}

static core_value make_ints(hostile_call *h, uint32_t at,
                            const core__schema_argument *argument)
{
    uint32_t count = argument->list_size && !chance(15)
                         ? (uint32_t)argument->list_size
                     : chance(60) ? h->theme.ndim
                                  : below(8);
    bool sizes =
        strstr(argument->name, "size") || strstr(argument->name, "shape");

    for (uint32_t i = 0; i < count; i++)
        h->ints[at][i] = sizes && chance(80) ? h->theme.sizes[i % 6] : number();
    if (strstr(argument->name, "dim") && chance(50))
        for (uint32_t i = 0; i < count; i++)
            h->ints[at][i] = i;
    return core_pack_ints(h->ints[at], count);
}

static core_value make_tensors(hostile_call *h, uint32_t at,
                               const core__schema_argument *argument)
{
    uint32_t count = chance(2) ? 48 : below(5);

    for (uint32_t i = 0; i < count; i++)
        h->lists[at][i] = argument->optional_elements && chance(30)
                              ? NULL
                              : make_tensor(&h->theme, argument->name);
    return core_pack_tensors(h->lists[at], count);
}

static core_value make_value(hostile_call *h, uint32_t at)
{
    const core__schema_argument *argument = &h->schema->arguments[at];
    uint32_t count;

    if ((argument->optional && chance(50)) ||
        (argument->has_default && chance(40)) || chance(1))
        return core_pack_none();
    switch (argument->tag) {
    case CORE_VALUE_TENSOR:
        return core_pack_tensor(make_tensor(&h->theme, argument->name));
    case CORE_VALUE_TENSOR_LIST:
        return make_tensors(h, at, argument);
    case CORE_VALUE_INT:
        return core_int(number());
    case CORE_VALUE_FLOAT:
        return argument->scalar && chance(50) ? core_int(number())
                                              : core_float(real());
    case CORE_VALUE_BOOL:
        return core_bool(below(2));
    case CORE_VALUE_STRING:
        return core_pack_string(any_text());
    case CORE_VALUE_DTYPE:
        return core_pack_dtype(chance(95) ? any_dtype() : below(40));
    case CORE_VALUE_DEVICE:
        return core_pack_device(chance(90) ? h->theme.device
                                           : devices[below(2)]);
    case CORE_VALUE_FORMAT:
        return (core_value){CORE_VALUE_FORMAT, 0, {(int64_t)below(5)}};
    case CORE_VALUE_INT_LIST:
        return make_ints(h, at, argument);
    case CORE_VALUE_FLOAT_LIST:
        count = below(5);
        for (uint32_t i = 0; i < count; i++)
            h->floats[at][i] = real();
        return core_pack_floats(h->floats[at], count);
    case CORE_VALUE_BOOL_LIST:
        count = argument->list_size && !chance(10)
                    ? (uint32_t)argument->list_size
                    : below(5);
        for (uint32_t i = 0; i < count; i++)
            h->bools[at][i] = (uint8_t)below(2);
        return core_pack_bools(h->bools[at], count);
    default:
        return core_pack_none();
    }
}

static void drop_values(hostile_call *h)
{
    for (uint32_t i = 0; i < h->schema->narguments; i++) {
        core_value *value = &h->values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            core_tensor_release(value->u.tensor);
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
            core_tensor_release(h->lists[i][k]);
    }
}

static void show(const core_value *value)
{
    if (value->tag == CORE_VALUE_TENSOR) {
        const core_tensor *tensor = value->u.tensor;

        fprintf(stderr, "  %s", core_dtype_name(core_tensor_dtype(tensor)));
        for (uint32_t i = 0; i < core_tensor_ndim(tensor); i++)
            fprintf(stderr, " %lld/%lld",
                    (long long)core_tensor_sizes(tensor)[i],
                    (long long)core_tensor_strides(tensor)[i]);
    } else if (value->tag == CORE_VALUE_FLOAT) {
        fprintf(stderr, "  %g", value->u.f);
    } else if (value->tag == CORE_VALUE_INT_LIST) {
        for (uint32_t i = 0; i < value->count; i++)
            fprintf(stderr, "  %lld", (long long)value->u.ints[i]);
    } else {
        fprintf(stderr, "  type %u: %lld", value->tag, (long long)value->u.i);
    }
    fputc('\n', stderr);
}

static bool random_call(core_operator *op)
{
    static hostile_call h;
    bool good;

    h.op = op;
    OK(core__schema_of(op, &h.schema));
    theme_make(&h.theme);
    for (uint32_t i = 0; i < h.schema->narguments; i++)
        h.values[i] = make_value(&h, i);
    for (uint32_t i = 0; only_call != UINT64_MAX && i < h.schema->narguments;
         i++)
        show(&h.values[i]);
    good = hostile_run(op, h.values, h.schema->narguments);
    drop_values(&h);
    return good;
}

static void random_calls(uint32_t index)
{
    core_operator *op = core_op_at(index);
    const char *name = core_op_name(op);
    uint32_t good = 0;

    for (uint64_t k = 0; k < calls; k++) {
        int64_t before = hostile_alive();

        if (only_call != UINT64_MAX && k != only_call)
            continue;
        snprintf(hostile_name, sizeof hostile_name,
                 "call of LIBCORE_TEST_SEED=%llu HOSTILE_OP=%s "
                 "HOSTILE_CALL=%llu\n",
                 (unsigned long long)seed, name, (unsigned long long)k);
        random_begin(seed, hash(name), k);
        good += random_call(op);
        ck_assert_msg(hostile_alive() == before, "%s%lld storages leak",
                      hostile_name, (long long)(hostile_alive() - before));
    }
    if (getenv("HOSTILE_COUNT"))
        printf("%-40s %u of %u succeed\n", name, good, calls);
}

START_TEST(random_calls_succeed_or_report_an_error)
{
    uint32_t count = 0;

    settings_read();
    hostile_open(devices);
    for (; core_op_at(count); count++)
        if (!only_op || strcmp(only_op, core_op_name(core_op_at(count))) == 0)
            hostile_apart(random_calls, count);
    ck_assert_uint_gt(count, 600);
}
END_TEST

/* --------------------------------------------- mutations of valid calls -- */

/* Replaces the text of one argument. */
static void mutate_argument(char *word, size_t capacity)
{
    static const char kinds[] = "pxqmu";
    static const char *const numbers[] = {
        "-1",
        "0",
        "1",
        "2",
        "3",
        "7",
        "9223372036854775807",
        "-9223372036854775808",
        "1099511627776",
        "-2",
        "65536",
        "100",
    };
    char *digit = word + 1 + strcspn(word + 1, "0123456789");
    bool tensor = strchr("tpxqmu", word[0]) && word[1] == ':';

    if (chance(10)) {
        snprintf(word, capacity, "n");
    } else if (tensor && chance(25)) {
        word[0] = kinds[below(5)];
    } else if (tensor && chance(25)) { /* one dimension more */
        size_t at = 2, n = strlen(word);

        if (n + 3 < capacity) {
            memmove(word + at + 2, word + at, n - at + 1);
            word[at] = (char)('0' + below(4));
            word[at + 1] = word[at + 2] && word[at + 2] != '/' ? ',' : ' ';
            if (word[at + 1] == ' ')
                memmove(word + at + 1, word + at + 2, n - at + 1);
        }
    } else if (tensor && chance(25)) { /* one dimension less */
        char *comma = strchr(word, ',');

        if (comma)
            memmove(word + 2, comma + 1, strlen(comma));
    } else if (tensor) { /* another size, or another limit of the indices */
        while (*digit && chance(60) &&
               digit[1 + strcspn(digit + 1, "0123456789")])
            digit += 1 + strcspn(digit + 1, "0123456789");
        if (*digit)
            *digit = (char)('0' + below(8));
    } else if (strchr("ilfg", word[0]) && word[1] == ':') {
        if (chance(60) && *digit && digit[1] < '0')
            *digit = (char)('0' + below(6));
        else if (word[0] == 'f')
            snprintf(word, capacity, "f:%s",
                     (const char *const[]){"nan", "inf", "-inf", "0", "1e30",
                                           "-1", "1e-300"}[below(7)]);
        else if (word[0] == 'g')
            snprintf(word, capacity, "g:%s",
                     (const char *const[]){"nan,1", "inf,inf", "0,0", "-1,1",
                                           "1e30,1", "", "2,2,2"}[below(7)]);
        else
            snprintf(word, capacity, "%c:%s%s%s", word[0], numbers[below(12)],
                     word[0] == 'l' && chance(50) ? "," : "",
                     word[0] == 'l' ? numbers[below(12)] : "");
    } else if (word[0] == 'b' || word[0] == 'k') {
        if (*digit)
            *digit ^= 1;
    } else if (word[0] == 's') {
        snprintf(word, capacity, "s:%s", any_text());
    }
}

static void mutate(const char *good, char *words, size_t capacity)
{
    char copy[512], *rest;
    size_t used = 0;
    bool first = true;

    snprintf(copy, sizeof copy, "%s", good);
    for (char *word = strtok_r(copy, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest), first = false) {
        char text[96];

        snprintf(text, sizeof text, "%s", word);
        if (text[0] != '[' && text[0] != ']' && chance(30))
            mutate_argument(text, sizeof text);
        used += (size_t)snprintf(words + used, capacity - used, "%s%s",
                                 first ? "" : " ", text);
    }
}

/* parse() of ops.h fails the test on text that it cannot read. */
static bool readable(const char *words)
{
    int64_t numel = 1;

    for (const char *at = words; *at; at++) {
        if (*at == ' ') {
            numel = 1;
        } else if ((at == words || at[-1] == ' ') && at[1] == ':' &&
                   strchr("tpxqmu", *at)) {
            const char *text = at + 2;
            int64_t sizes[8];
            size_t n = numbers(&text, sizes);

            for (size_t i = 0; i < n; i++)
                numel *= sizes[i];
            if (numel > 512 || (*text == '/' && text[1] == '0'))
                return false;
        }
    }
    return true;
}

static void mutated_call(const sample *s, const char *words, bool good)
{
    int64_t before = hostile_alive();
    arguments a;

    snprintf(hostile_name, sizeof hostile_name,
             "call of LIBCORE_TEST_SEED=%llu %s(%s)\n",
             (unsigned long long)seed, s->op, words);
    parse_sample(&a, s, words);
    if (good)
        make_positive(&a);
    HOSTILE_ASSERT(hostile_run(a.op, a.values, a.count) || !good, "%s",
                   core_error_message());
    drop_all();
    HOSTILE_ASSERT(hostile_alive() == before, "%lld storages leak",
                   (long long)(hostile_alive() - before));
}

static void mutated_calls(uint32_t index)
{
    const sample *s = &samples[index];
    char good[512], words[512];

    snprintf(good, sizeof good, "%s", s->words);
    if (is_in_place(s) && good[1] == ':')
        good[0] = 'p'; /* a leaf may not be changed */
    mutated_call(s, good, true);
    for (uint64_t k = 0; k < calls; k++) {
        random_begin(seed, hash(good), k);
        mutate(good, words, sizeof words);
        if (readable(words))
            mutated_call(s, words, false);
    }
}

START_TEST(mutated_valid_calls_succeed_or_report_an_error)
{
    settings_read();
    hostile_open(devices);
    for (uint32_t i = 0; i < SAMPLES; i++)
        if (!only_op || strcmp(only_op, samples[i].op) == 0)
            hostile_apart(mutated_calls, i);
}
END_TEST

SUITE("ops/ops_hostile", random_calls_succeed_or_report_an_error,
      mutated_valid_calls_succeed_or_report_an_error)
