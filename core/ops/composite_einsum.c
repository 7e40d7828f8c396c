/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* einsum: sums of products of tensors whose dimensions have names.
 *
 * Two operands at a time become one, by a batch of matrix products: the names
 * that both have and that are needed later are the batch, and those that only
 * these two have are summed. */

#include "dispatch/structured.h"
#include "ops/expression.h"
#include "tensor/tensor.h"

#include <string.h>

enum {
    LETTERS = 52,                    /* A to Z, a to z */
    NAMES = LETTERS + CORE_MAX_NDIM, /* and the dimensions of "..." */
    MOST_OPERANDS = 8
};

/* A tensor and the name of each of its dimensions. */
typedef struct operand {
    core_tensor *tensor;
    uint32_t ndim;
    uint8_t names[CORE_MAX_NDIM];
} operand;

typedef struct equation {
    const core_operator *op;
    core__scope *scope;
    uint32_t count;
    operand operands[MOST_OPERANDS];
    uint32_t nout;
    uint8_t out[CORE_MAX_NDIM];
    int64_t sizes[NAMES]; /* -1: there is no such dimension */
    uint32_t ellipsis;    /* most dimensions that "..." stands for */
    bool has_ellipsis;
} equation;

static int letter_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    return c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

/* ---------------------------------------------------------------- parsing -- */

static core_status bad_text(const equation *e, const char *text)
{
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                          "equation has \"%.8s\" where a letter, \"...\", "
                          "\",\" or \"->\" is expected",
                          text);
}

static core_status add_name(equation *e, uint8_t *names, uint32_t *count,
                            int name)
{
    if (*count >= CORE_MAX_NDIM)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                              "equation has a term of more than %d dimensions",
                              CORE_MAX_NDIM);
    names[(*count)++] = (uint8_t)name;
    return CORE_OK;
}

/* Reads a term up to "," or "->" or the end.  "..." stands for `dots`
 * dimensions, the last of which have the same names in each term. */
static core_status read_term(equation *e, const char **text, uint32_t dots,
                             uint8_t *names, uint32_t *count, bool *has_dots)
{
    const char *p = *text;

    *count = 0;
    *has_dots = false;
    for (;; p++) {
        while (*p == ' ')
            p++;
        if (*p == '\0' || *p == ',' || (*p == '-' && p[1] == '>'))
            break;
        if (strncmp(p, "...", 3) == 0 && !*has_dots) {
            *has_dots = true;
            for (uint32_t i = 0; i < dots; i++)
                CORE_TRY(add_name(e, names, count,
                                  (int)(LETTERS + CORE_MAX_NDIM - dots + i)));
            p += 2;
            continue;
        }
        if (letter_of(*p) < 0)
            return bad_text(e, p);
        CORE_TRY(add_name(e, names, count, letter_of(*p)));
    }
    *text = p;
    return CORE_OK;
}

/* Notes the sizes of an operand's dimensions; one of size 1 fits any other of
 * another operand. */
static core_status note_sizes(equation *e, uint32_t index)
{
    const operand *x = &e->operands[index];

    for (uint32_t i = 0; i < x->ndim; i++) {
        int64_t *known = &e->sizes[x->names[i]];
        int64_t size = x->tensor->sizes[i];

        for (uint32_t k = 0; k < i; k++)
            if (x->names[k] == x->names[i] && x->tensor->sizes[k] != size)
                return core__op_error(CORE_ERROR_SHAPE, e->op,
                                      "dimension %u of tensors[%u] has size "
                                      "%lld; dimension %u has the same name "
                                      "and %lld",
                                      i, index, (long long)size, k,
                                      (long long)x->tensor->sizes[k]);
        if (*known != -1 && *known != 1 && size != 1 && size != *known)
            return core__op_error(CORE_ERROR_SHAPE, e->op,
                                  "dimension %u of tensors[%u] has size %lld; "
                                  "another of the same name has %lld",
                                  i, index, (long long)size, (long long)*known);
        if (*known == -1 || *known == 1)
            *known = size;
    }
    return CORE_OK;
}

static core_status read_operand(equation *e, uint32_t index, const char **text)
{
    operand *x = &e->operands[index];
    const char *again = *text;
    uint32_t dots = 0;
    bool has_dots;

    CORE_TRY(read_term(e, text, 0, x->names, &x->ndim, &has_dots));
    if (has_dots && x->tensor->ndim > x->ndim) {
        dots = x->tensor->ndim - x->ndim;
        CORE_TRY(read_term(e, &again, dots, x->names, &x->ndim, &has_dots));
    }
    if (x->ndim != x->tensor->ndim)
        return core__op_error(CORE_ERROR_SHAPE, e->op,
                              "tensors[%u] has %u dimensions; equation names "
                              "%u",
                              index, x->tensor->ndim, x->ndim);
    e->has_ellipsis = e->has_ellipsis || has_dots;
    if (dots > e->ellipsis)
        e->ellipsis = dots;
    return note_sizes(e, index);
}

/* Without "->" the result has the dimensions of "...", and the letters that
 * occur once, in their order. */
static core_status implied_result(equation *e)
{
    uint32_t occurs[NAMES] = {0};

    for (uint32_t i = 0; i < e->count; i++)
        for (uint32_t k = 0; k < e->operands[i].ndim; k++)
            occurs[e->operands[i].names[k]]++;
    for (uint32_t i = 0; i < e->ellipsis; i++)
        CORE_TRY(add_name(e, e->out, &e->nout,
                          (int)(LETTERS + CORE_MAX_NDIM - e->ellipsis + i)));
    for (int name = 0; name < LETTERS; name++)
        if (occurs[name] == 1)
            CORE_TRY(add_name(e, e->out, &e->nout, name));
    return CORE_OK;
}

static core_status named_result(equation *e, const char *text)
{
    bool seen[NAMES] = {false}, has_dots;

    CORE_TRY(read_term(e, &text, e->ellipsis, e->out, &e->nout, &has_dots));
    if (*text != '\0')
        return bad_text(e, text);
    if (has_dots && !e->has_ellipsis)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                              "equation has \"...\" only in the result");
    for (uint32_t i = 0; i < e->nout; i++) {
        if (e->sizes[e->out[i]] == -1 || seen[e->out[i]])
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, e->op, "name %u of the result %s",
                i + 1, seen[e->out[i]] ? "occurs twice" : "is in no operand");
        seen[e->out[i]] = true;
    }
    return CORE_OK;
}

static core_status read_equation(equation *e, const char *text)
{
    for (int i = 0; i < NAMES; i++)
        e->sizes[i] = -1;
    for (uint32_t i = 0; i < e->count; i++) {
        CORE_TRY(read_operand(e, i, &text));
        if (i + 1 < e->count && *text != ',')
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                                  "equation has %u operands and tensors %u",
                                  i + 1, e->count);
        if (i + 1 < e->count)
            text++;
    }
    if (*text == ',')
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                              "equation has more operands than tensors, of "
                              "which there are %u",
                              e->count);
    return *text == '\0' ? implied_result(e) : named_result(e, text + 2);
}

/* --------------------------------------------------------------- products -- */

/* Of equal names within an operand the diagonal remains; a dimension of size 1
 * whose name has another size elsewhere is dropped, as nothing depends on it. */
static void simplify(equation *e, operand *x)
{
    for (uint32_t i = 0; i < x->ndim && e->scope->status == CORE_OK; i++) {
        uint32_t same = i + 1;
        int64_t size = x->tensor->sizes[i];
        uint8_t name = x->names[i];

        while (same < x->ndim && x->names[same] != name)
            same++;
        if (same < x->ndim && size == x->tensor->sizes[same]) {
            x->tensor =
                CORE__DO(e->scope, core_diagonal, x->tensor, 0, i, same);
            memmove(&x->names[same], &x->names[same + 1], x->ndim - same - 1);
            memmove(&x->names[i], &x->names[i + 1], x->ndim - i - 2);
            x->ndim--;
            x->names[x->ndim - 1] = name;
            i--;
        } else if (size == 1 && e->sizes[name] != 1) {
            x->tensor = CORE__DO(e->scope, core_squeeze_dim, x->tensor, i);
            memmove(&x->names[i], &x->names[i + 1], x->ndim - i - 1);
            x->ndim--;
            i--;
        }
    }
}

/* Takes NULL. */
static bool has(const operand *x, uint8_t name)
{
    return x && memchr(x->names, name, x->ndim) != NULL;
}

/* Whether the result, or an operand other than a and b, has the name. */
static bool needed(const equation *e, const operand *a, const operand *b,
                   uint8_t name)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (&e->operands[i] != a && &e->operands[i] != b &&
            has(&e->operands[i], name))
            return true;
    return memchr(e->out, name, e->nout) != NULL;
}

/* Sums the dimensions that neither `beside` nor anything later has. */
static void sum_alone(equation *e, operand *x, const operand *beside)
{
    int64_t dims[CORE_MAX_NDIM];
    size_t count = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < x->ndim; i++)
        if (!has(beside, x->names[i]) && !needed(e, x, beside, x->names[i]))
            dims[count++] = i;
        else
            x->names[kept++] = x->names[i];
    x->ndim = kept;
    if (count > 0)
        x->tensor = core__x_sum_dim(e->scope, x->tensor, dims, count, false);
}

/* Dimensions of a product: in both and needed later, in both and summed, in a
 * alone, in b alone. */
enum { BATCH, SUMMED, LEFT, RIGHT, CLASSES };

typedef struct product {
    uint32_t count[CLASSES];
    uint8_t names[CLASSES][CORE_MAX_NDIM];
    int64_t sizes[CLASSES][CORE_MAX_NDIM];
    int64_t total[CLASSES];
} product;

static void classify(const equation *e, const operand *a, const operand *b,
                     product *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < CLASSES; i++)
        out->total[i] = 1;
    for (int from_b = 0; from_b < 2; from_b++) {
        const operand *x = from_b ? b : a;

        for (uint32_t i = 0; i < x->ndim; i++) {
            uint8_t name = x->names[i];
            bool both = has(a, name) && has(b, name);
            int class = !both                   ? (from_b ? RIGHT : LEFT)
                        : needed(e, a, b, name) ? BATCH
                                                : SUMMED;

            if (both && from_b)
                continue;
            out->names[class][out->count[class]] = name;
            out->sizes[class][out->count[class]++] = x->tensor->sizes[i];
            out->total[class] *= x->tensor->sizes[i];
        }
    }
}

/* x as a batch of matrices with the dimensions of three classes. */
static core_tensor *matrices(equation *e, const operand *x, const product *p,
                             int rows, int columns)
{
    const int classes[3] = {BATCH, rows, columns};
    int64_t dims[CORE_MAX_NDIM], sizes[3];
    uint32_t count = 0;
    core_tensor *tensor;

    for (int c = 0; c < 3; c++) {
        for (uint32_t i = 0; i < p->count[classes[c]]; i++)
            for (uint32_t k = 0; k < x->ndim; k++)
                if (x->names[k] == p->names[classes[c]][i])
                    dims[count++] = k;
        sizes[c] = p->total[classes[c]];
    }
    tensor = CORE__DO(e->scope, core_permute, x->tensor, dims, count);
    return core__x_reshape(e->scope, tensor, sizes, 3);
}

/* Replaces a by its product with b. */
static core_status multiply(equation *e, operand *a, operand *b)
{
    static const int order[3] = {BATCH, LEFT, RIGHT};
    int64_t sizes[CORE_MAX_NDIM];
    core_tensor *x, *y;
    product p;

    sum_alone(e, a, b);
    sum_alone(e, b, a);
    if (e->scope->status != CORE_OK)
        return e->scope->status;
    classify(e, a, b, &p);
    if (p.count[BATCH] + p.count[LEFT] + p.count[RIGHT] > CORE_MAX_NDIM)
        return core__op_error(CORE_ERROR_UNSUPPORTED, e->op,
                              "a product of two operands has more than %d "
                              "dimensions",
                              CORE_MAX_NDIM);
    x = matrices(e, a, &p, LEFT, SUMMED);
    y = matrices(e, b, &p, SUMMED, RIGHT);
    x = p.count[SUMMED] == 0 ? core__x_mul(e->scope, x, y)
                             : core__x_bmm(e->scope, x, y);
    a->ndim = 0;
    for (int c = 0; c < 3; c++)
        for (uint32_t i = 0; i < p.count[order[c]]; i++) {
            sizes[a->ndim] = p.sizes[order[c]][i];
            a->names[a->ndim++] = p.names[order[c]][i];
        }
    a->tensor = core__x_reshape(e->scope, x, sizes, a->ndim);
    return e->scope->status;
}

static void remove_operand(equation *e, uint32_t index)
{
    e->count--;
    memmove(&e->operands[index], &e->operands[index + 1],
            (e->count - index) * sizeof *e->operands);
}

/* Multiplies from the left to the right, or the pairs of a path, whose products
 * become the last operand. */
static core_status multiply_all(equation *e, const core_value *path)
{
    size_t count;
    const int64_t *pairs = core__ints_of(path, &count);

    if (pairs && count != 2 * (size_t)(e->count - 1))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                              "path has %zu numbers; %u operands need %u",
                              count, e->count, 2 * (e->count - 1));
    for (size_t i = 0; e->count > 1; i += 2) {
        int64_t a = pairs ? pairs[i] : 0, b = pairs ? pairs[i + 1] : 1;
        operand product;

        if (a < 0 || b < 0 || a >= e->count || b >= e->count || a == b)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                                  "path has the pair %lld, %lld among %u "
                                  "operands",
                                  (long long)a, (long long)b, e->count);
        CORE_TRY(multiply(e, &e->operands[a], &e->operands[b]));
        if (!pairs) {
            remove_operand(e, 1);
            continue;
        }
        product = e->operands[a];
        remove_operand(e, (uint32_t)(a > b ? a : b));
        remove_operand(e, (uint32_t)(a > b ? b : a));
        e->operands[e->count++] = product;
    }
    return CORE_OK;
}

/* einsum(equation, tensors, path) */
CORE__COMPOSITE(einsum)
{
    equation e = {.op = call->op, .scope = scope, .count = args[1].count};
    int64_t dims[CORE_MAX_NDIM];
    operand *x = &e.operands[0];

    if (e.count < 1 || e.count > MOST_OPERANDS)
        return core__op_error(CORE_ERROR_UNSUPPORTED, call->op,
                              "tensors has %u elements; there may be 1 to %d",
                              e.count, MOST_OPERANDS);
    for (uint32_t i = 0; i < e.count; i++) {
        e.operands[i].tensor = args[1].u.tensors[i];
        if (!e.operands[i].tensor)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                  "tensors[%u] is NULL", i);
    }
    CORE_TRY(read_equation(&e, args[0].u.string));
    for (uint32_t i = 0; i < e.count; i++)
        simplify(&e, &e.operands[i]);
    CORE_TRY(scope->status);
    CORE_TRY(multiply_all(&e, &args[2]));
    sum_alone(&e, x, NULL);
    for (uint32_t i = 0; i < e.nout; i++)
        for (uint32_t k = 0; k < x->ndim; k++)
            if (x->names[k] == e.out[i])
                dims[i] = k;
    return core__scope_result(
        scope, CORE__DO(scope, core_permute, x->tensor, dims, e.nout),
        &results[0]);
}
