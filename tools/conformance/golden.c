/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "golden.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --------------------------------------------------------------- files -- */

static bool __attribute__((format(printf, 2, 3)))
problem(golden_file *golden, const char *format, ...)
{
    va_list arguments;
    int used = 0;

    if (golden->line)
        used = snprintf(golden->problem, sizeof golden->problem,
                        "line %zu of the cases: ", golden->line);
    va_start(arguments, format);
    vsnprintf(golden->problem + used, sizeof golden->problem - (size_t)used,
              format, arguments);
    va_end(arguments);
    return false;
}

/* Reads a whole file and appends a zero byte. */
static bool read_file(golden_file *golden, const char *path,
                      unsigned char **out_data, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = NULL;
    size_t size = 0;
    size_t capacity = 0;
    size_t got;

    if (!file)
        return problem(golden, "%.300s: %s", path, strerror(errno));
    do {
        if (capacity - size < 4096) {
            unsigned char *more = realloc(data, 2 * capacity + 65536);

            if (!more)
                goto failed;
            data = more;
            capacity = 2 * capacity + 65536;
        }
        got = fread(data + size, 1, capacity - size - 1, file);
        size += got;
    } while (got > 0);
    if (ferror(file))
        goto failed;
    fclose(file);
    data[size] = 0;
    *out_data = data;
    *out_size = size;
    return true;
failed:
    problem(golden, "%.300s: %s", path, strerror(errno ? errno : ENOMEM));
    free(data);
    fclose(file);
    return false;
}

void golden_close(golden_file *golden)
{
    free(golden->text);
    free(golden->differences_text);
    free(golden->differences.at);
    free(golden->data);
    golden->text = NULL;
    golden->differences_text = NULL;
    golden->differences.at = NULL;
    golden->differences.count = 0;
    golden->data = NULL;
}

/* --------------------------------------------------------------- words -- */

/* Cuts off the next line; NULL at the end. */
static char *next_line(golden_file *golden)
{
    char *line = golden->text + golden->at;
    char *end;

    if (golden->at >= golden->text_size)
        return NULL;
    end = memchr(line, '\n', golden->text_size - golden->at);
    if (!end)
        end = golden->text + golden->text_size;
    golden->at = (size_t)(end - golden->text) + 1;
    golden->line++;
    *end = 0;
    return line;
}

/* Cuts off the next word; NULL at the end of the line. */
static char *next_word(char **cursor)
{
    char *word = *cursor + strspn(*cursor, " \t\r");
    char *end = word + strcspn(word, " \t\r");

    if (!*word)
        return NULL;
    *cursor = *end ? end + 1 : end;
    *end = 0;
    return word;
}

static bool read_int(golden_file *golden, char **cursor, int64_t *out)
{
    char *word = next_word(cursor);
    char *end;

    *out = 0;
    if (!word)
        return problem(golden, "a number is missing");
    errno = 0;
    *out = strtoll(word, &end, 10);
    if (*end || errno)
        return problem(golden, "\"%.40s\" is not an integer", word);
    return true;
}

/* 0 … limit */
static bool read_count(golden_file *golden, char **cursor, int64_t limit,
                       int64_t *out)
{
    if (!read_int(golden, cursor, out))
        return false;
    if (*out < 0 || *out > limit)
        return problem(golden, "%" PRId64 " is not between 0 and %" PRId64,
                       *out, limit);
    return true;
}

static bool read_float(golden_file *golden, char **cursor, double *out)
{
    char *word = next_word(cursor);
    char *end;

    *out = 0;
    if (!word)
        return problem(golden, "a number is missing");
    *out = strtod(word, &end);
    if (*end)
        return problem(golden, "\"%.40s\" is not a number", word);
    return true;
}

static bool read_dtype(golden_file *golden, char **cursor, core_dtype *out)
{
    char *word = next_word(cursor);

    *out = word ? core_dtype_from_name(word) : CORE_DTYPE_NONE;
    if (*out == CORE_DTYPE_NONE)
        return problem(golden, "\"%.40s\" is not a dtype", word ? word : "");
    return true;
}

static bool line_ends(golden_file *golden, char **cursor)
{
    char *word = next_word(cursor);

    if (word)
        return problem(golden, "\"%.40s\" is out of range", word);
    return true;
}

/* ------------------------------------------------------------- tensors -- */

/* Checks that the bytes reached by sizes and strides are present. */
static bool check_reach(golden_file *golden, golden_tensor *tensor)
{
    int64_t last = tensor->offset;
    int64_t size = core_dtype_size(tensor->dtype);

    tensor->numel = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (tensor->sizes[d] == 0)
            tensor->numel = 0;
    if (tensor->numel == 0)
        return true;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        int64_t far_elements;

        if (__builtin_mul_overflow(tensor->numel, tensor->sizes[d],
                                   &tensor->numel) ||
            tensor->numel > INT64_C(1) << 28 ||
            __builtin_mul_overflow(tensor->sizes[d] - 1, tensor->strides[d],
                                   &far_elements) ||
            __builtin_add_overflow(last, far_elements, &last))
            return problem(golden, "the tensor is too large");
    }
    if (last >= (int64_t)tensor->bytes / size)
        return problem(golden,
                       "the tensor's last element is number %" PRId64
                       ", beyond its %" PRIu64 " bytes",
                       last, tensor->bytes);
    return true;
}

/* DTYPE NDIM sizes.. strides.. OFFSET BIN_OFFSET NBYTES */
static bool read_tensor(golden_file *golden, char **cursor,
                        golden_tensor *tensor)
{
    int64_t limit = INT64_C(1) << 48;
    int64_t value;
    int64_t bytes;

    memset(tensor, 0, sizeof *tensor);
    if (!read_dtype(golden, cursor, &tensor->dtype) ||
        !read_count(golden, cursor, CORE_MAX_NDIM, &value))
        return false;
    tensor->ndim = (uint32_t)value;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (!read_count(golden, cursor, limit, &tensor->sizes[d]))
            return false;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (!read_count(golden, cursor, limit, &tensor->strides[d]))
            return false;
    if (!read_count(golden, cursor, limit, &tensor->offset) ||
        !read_count(golden, cursor, limit, &value) ||
        !read_count(golden, cursor, limit, &bytes) ||
        !line_ends(golden, cursor))
        return false;
    if ((uint64_t)value + (uint64_t)bytes > golden->data_size)
        return problem(golden,
                       "bytes %" PRId64 " to %" PRId64 " of a .bin file that "
                       "has %zu: is it truncated?",
                       value, value + bytes, golden->data_size);
    tensor->storage = golden->data + value;
    tensor->bytes = (uint64_t)bytes;
    return check_reach(golden, tensor);
}

/* --------------------------------------------------------------- lists -- */

static bool grow(golden_file *golden, void **at, size_t size, size_t count,
                 size_t *capacity)
{
    void *more;

    if (count < *capacity)
        return true;
    more = realloc(*at, (2 * *capacity + 8) * size);
    if (!more)
        return problem(golden, "no memory for the case");
    *at = more;
    *capacity = 2 * *capacity + 8;
    return true;
}

/* Appends value to an array of the case. */
#define APPEND(golden, array, value)                                         \
    (grow((golden), (void **)&(array).at, sizeof *(array).at, (array).count, \
          &(array).capacity) &&                                              \
     ((array).at[(array).count++] = (value), true))

static bool read_tensor_list(golden_file *golden, golden_case *to,
                             golden_argument *argument)
{
    for (size_t i = 0; i < argument->count; i++) {
        golden_tensor tensor = {.absent = true};
        char *line = next_line(golden);
        char *word = line ? next_word(&line) : NULL;
        char *kind = word ? next_word(&line) : NULL;

        if (!kind || strcmp(word, "elem") != 0)
            return problem(golden, "element %zu of a list is missing", i);
        if (strcmp(kind, "T") == 0) {
            if (!read_tensor(golden, &line, &tensor))
                return false;
        } else if (strcmp(kind, "N") != 0) {
            return problem(golden, "an element is T or N, not %.40s", kind);
        }
        if (!APPEND(golden, to->tensors, tensor))
            return false;
    }
    return true;
}

static bool read_number_list(golden_file *golden, char **cursor,
                             golden_case *to, golden_argument *argument)
{
    for (size_t i = 0; i < argument->count; i++) {
        int64_t integer = 0;
        double number = 0;
        bool good;

        if (argument->kind == GOLDEN_FLOATS)
            good = read_float(golden, cursor, &number) &&
                   APPEND(golden, to->floats, number);
        else if (argument->kind == GOLDEN_INTS)
            good = read_int(golden, cursor, &integer) &&
                   APPEND(golden, to->ints, integer);
        else
            good = read_count(golden, cursor, 1, &integer) &&
                   APPEND(golden, to->bools, (uint8_t)integer);
        if (!good)
            return false;
    }
    return line_ends(golden, cursor);
}

/* --------------------------------------------------------- differences -- */

/* Reads one line, which is cut into strings. */
static bool read_difference(golden_file *golden, char *line)
{
    char copy[64];
    golden_difference read = {0};
    char *id = next_word(&line);
    char *name = next_word(&line);
    char *part = next_word(&line);
    char *end = NULL;

    snprintf(copy, sizeof copy, "%s %s %s", id ? id : "", name ? name : "",
             part ? part : "");
    errno = 0;
    if (id)
        read.id = strtoll(id, &end, 10);
    line += strspn(line, " \t\r");
    if (!id || *end || errno || !part || !*line ||
        (strcmp(part, "result") != 0 && strcmp(part, "gradient") != 0))
        return problem(golden,
                       "the list of differences has \"%s\", which is not `ID "
                       "OPERATOR result|gradient REASON`",
                       copy);
    read.name = name;
    read.part = part;
    read.reason = line;
    return APPEND(golden, golden->differences, read);
}

static bool read_differences(golden_file *golden, const char *prefix)
{
    char path[4096];
    unsigned char *text;
    size_t size;
    char *line, *end;

    snprintf(path, sizeof path, "%s.differences", prefix);
    if (access(path, F_OK) != 0)
        return true;
    if (!read_file(golden, path, &text, &size))
        return false;
    golden->differences_text = line = (char *)text;
    for (; line < (char *)text + size; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = 0;
        if (!read_difference(golden, line))
            return false;
    }
    return true;
}

/* Finds the line with the case's number, which must name its operator. */
static bool find_difference(golden_file *golden, golden_case *of)
{
    of->difference = NULL;
    for (size_t i = 0; i < golden->differences.count; i++) {
        golden_difference *line = &golden->differences.at[i];

        if (line->id != of->id)
            continue;
        if (strcmp(line->name, of->name) != 0)
            return problem(golden,
                           "the list of differences has case %" PRId64
                           " of %.60s, which is not its operator, %.60s",
                           line->id, line->name, of->name);
        of->difference = line;
        line->found = true;
        return true;
    }
    return true;
}

bool golden_open(const char *prefix, golden_file *golden)
{
    char path[4096];
    char *line;
    char *word;
    unsigned char *text;
    int64_t version;

    memset(golden, 0, sizeof *golden);
    snprintf(path, sizeof path, "%s.cases", prefix);
    if (!read_file(golden, path, &text, &golden->text_size))
        return false;
    golden->text = (char *)text;
    snprintf(path, sizeof path, "%s.bin", prefix);
    if (!read_file(golden, path, &golden->data, &golden->data_size) ||
        !read_differences(golden, prefix))
        return false;
    line = next_line(golden);
    word = line ? next_word(&line) : NULL;
    if (!word || strcmp(word, "golden") != 0)
        return problem(golden, "the file does not begin with \"golden 1\"");
    if (!read_int(golden, &line, &version))
        return false;
    if (version != 1)
        return problem(golden,
                       "format version %" PRId64 "; this program reads 1",
                       version);
    return true;
}

/* ----------------------------------------------------------- arguments -- */

static const struct {
    const char *name;
    golden_kind kind;
} kinds[] = {
    {"N", GOLDEN_NONE},   {"T", GOLDEN_TENSOR},  {"TL", GOLDEN_TENSORS},
    {"I", GOLDEN_INT},    {"D", GOLDEN_FLOAT},   {"B", GOLDEN_BOOL},
    {"S", GOLDEN_STRING}, {"DT", GOLDEN_DTYPE},  {"MF", GOLDEN_FORMAT},
    {"IL", GOLDEN_INTS},  {"DL", GOLDEN_FLOATS}, {"BL", GOLDEN_BOOLS},
};

static bool read_format(golden_file *golden, char **cursor, int64_t *out)
{
    static const char *const names[] = {
        [CORE_FORMAT_CONTIGUOUS] = "contiguous_format",
        [CORE_FORMAT_PRESERVE] = "preserve_format",
        [CORE_FORMAT_CHANNELS_LAST] = "channels_last",
        [CORE_FORMAT_CHANNELS_LAST_3D] = "channels_last_3d",
    };
    char *word = next_word(cursor);

    for (size_t i = 0; word && i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], word) == 0) {
            *out = (int64_t)i;
            return true;
        }
    }
    return problem(golden, "\"%.40s\" is not a memory format",
                   word ? word : "");
}

static bool read_list(golden_file *golden, char **cursor, golden_case *to,
                      golden_argument *argument)
{
    int64_t count;

    if (!read_count(golden, cursor, 1 << 20, &count))
        return false;
    argument->count = (size_t)count;
    argument->first = argument->kind == GOLDEN_INTS     ? to->ints.count
                      : argument->kind == GOLDEN_FLOATS ? to->floats.count
                      : argument->kind == GOLDEN_BOOLS  ? to->bools.count
                                                        : to->tensors.count;
    if (argument->kind == GOLDEN_TENSORS)
        return line_ends(golden, cursor) &&
               read_tensor_list(golden, to, argument);
    return read_number_list(golden, cursor, to, argument);
}

/* Tests whether argument number `index` of the schema has a type. */
static bool has_type(const char *schema, uint32_t index, const char *type)
{
    const char *at = strchr(schema, '(');
    int depth = 0;

    for (at = at ? at + 1 : ""; *at; at++) {
        if (index == 0 && depth == 0) {
            at += strspn(at, " *,");
            return strncmp(at, type, strlen(type)) == 0;
        }
        depth += (*at == '(' || *at == '[') - (*at == ')' || *at == ']');
        /* The star is not an argument. */
        if (*at == ',' && depth == 0 && at[1 + strspn(at + 1, " ")] != '*')
            index--;
    }
    return false;
}

/* The recorder stored some defaults of dtype arguments as their number. */
static bool number_to_dtype(golden_file *golden, golden_argument *argument)
{
    static const core_dtype dtypes[] = {
        CORE_U8,  CORE_I8,  CORE_I16, CORE_I32,  CORE_I64, CORE_F16,
        CORE_F32, CORE_F64, 0,        0,         0,        CORE_BOOL,
        0,        0,        0,        CORE_BF16,
    };
    uint64_t number = (uint64_t)argument->i;

    if (number >= sizeof dtypes / sizeof *dtypes || !dtypes[number])
        return problem(golden, "there is no dtype with the number %" PRId64,
                       argument->i);
    argument->kind = GOLDEN_DTYPE;
    argument->i = dtypes[number];
    return true;
}

/* Text is the rest of the line. */
static bool read_text(golden_file *golden, char **cursor,
                      golden_argument *argument)
{
    size_t length = strcspn(*cursor, "\r");

    if (length >= sizeof argument->text)
        return problem(golden, "a text is longer than %zu characters",
                       sizeof argument->text - 1);
    memcpy(argument->text, *cursor, length);
    argument->text[length] = 0;
    return true;
}

static bool read_argument(golden_file *golden, char **cursor, golden_case *to)
{
    char *word = next_word(cursor);
    golden_argument *argument;
    golden_tensor tensor;
    core_dtype dtype;
    size_t i = 0;

    if (to->nargs == GOLDEN_ARGUMENTS)
        return problem(golden, "more than %d arguments", GOLDEN_ARGUMENTS);
    while (word && i < sizeof kinds / sizeof *kinds &&
           strcmp(kinds[i].name, word) != 0)
        i++;
    if (!word || i == sizeof kinds / sizeof *kinds)
        return problem(golden, "\"%.40s\" is not a kind of argument",
                       word ? word : "");
    argument = &to->args[to->nargs++];
    memset(argument, 0, sizeof *argument);
    argument->kind = kinds[i].kind;
    switch (argument->kind) {
    case GOLDEN_NONE:
        return line_ends(golden, cursor);
    case GOLDEN_TENSOR:
        argument->first = to->tensors.count;
        argument->count = 1;
        return read_tensor(golden, cursor, &tensor) &&
               APPEND(golden, to->tensors, tensor);
    case GOLDEN_INT:
        return read_int(golden, cursor, &argument->i) &&
               line_ends(golden, cursor) &&
               (!has_type(to->schema, to->nargs - 1, "ScalarType") ||
                number_to_dtype(golden, argument));
    case GOLDEN_FLOAT:
        return read_float(golden, cursor, &argument->f) &&
               line_ends(golden, cursor);
    case GOLDEN_BOOL:
        return read_count(golden, cursor, 1, &argument->i) &&
               line_ends(golden, cursor);
    case GOLDEN_STRING:
        return read_text(golden, cursor, argument);
    case GOLDEN_DTYPE:
        if (!read_dtype(golden, cursor, &dtype))
            return false;
        argument->i = dtype;
        return line_ends(golden, cursor);
    case GOLDEN_FORMAT:
        return read_format(golden, cursor, &argument->i) &&
               line_ends(golden, cursor);
    default:
        return read_list(golden, cursor, to, argument);
    }
}

/* --------------------------------------------------------------- cases -- */

static bool read_result(golden_file *golden, char **cursor, golden_case *to)
{
    char *word = next_word(cursor);
    golden_tensor tensor;

    if (!word || strcmp(word, "T") != 0)
        return problem(golden, "a result is T …");
    return read_tensor(golden, cursor, &tensor) &&
           APPEND(golden, to->results, tensor);
}

/* `K T …`: a cotangent, or a gradient. */
static bool read_link(golden_file *golden, char **cursor, size_t limit,
                      golden_link *link)
{
    char *word;
    int64_t index;

    if (!read_int(golden, cursor, &index))
        return false;
    if (index < 0 || (uint64_t)index >= limit)
        return problem(golden, "there is no tensor %" PRId64 " in this case",
                       index);
    link->index = (size_t)index;
    word = next_word(cursor);
    if (!word || strcmp(word, "T") != 0)
        return problem(golden, "T … is missing");
    return read_tensor(golden, cursor, &link->tensor);
}

/* The number of tensors in the arguments, without absent ones. */
static size_t present(const golden_case *of)
{
    size_t count = 0;

    for (size_t i = 0; i < of->tensors.count; i++)
        count += !of->tensors.at[i].absent;
    return count;
}

/* "-> Tensor(a)", "-> Tensor(a)[]"; not "-> Tensor(a!)" */
static bool returns_alias(const char *schema)
{
    const char *arrow = strstr(schema, "->");
    const char *alias = arrow ? strstr(arrow, "Tensor(") : NULL;

    return alias && alias[7] && alias[8] == ')';
}

static bool begin_case(golden_file *golden, char **cursor, golden_case *to)
{
    char *word;

    to->nargs = 0;
    to->schema = "";
    to->is_view = false;
    to->tensors.count = 0;
    to->ints.count = 0;
    to->floats.count = 0;
    to->bools.count = 0;
    to->results.count = 0;
    to->cotangents.count = 0;
    to->gradients.count = 0;
    if (!read_int(golden, cursor, &to->id))
        return false;
    word = next_word(cursor);
    if (!word || strlen(word) >= sizeof to->name)
        return problem(golden, "a case needs an id and an operator");
    memcpy(to->name, word, strlen(word) + 1);
    return line_ends(golden, cursor);
}

/* Reads one line of a case, except `end` and `drop`. */
static bool read_line(golden_file *golden, const char *word, char **cursor,
                      golden_case *to)
{
    golden_link link;

    if (strcmp(word, "schema") == 0) {
        to->schema = *cursor;
        to->is_view = returns_alias(*cursor);
        return true;
    }
    if (strcmp(word, "arg") == 0)
        return read_argument(golden, cursor, to);
    if (strcmp(word, "ret") == 0)
        return read_result(golden, cursor, to);
    if (strcmp(word, "cot") == 0)
        return read_link(golden, cursor, to->results.count, &link) &&
               APPEND(golden, to->cotangents, link);
    if (strcmp(word, "grad") == 0)
        return read_link(golden, cursor, present(to), &link) &&
               APPEND(golden, to->gradients, link);
    return problem(golden, "\"%.40s\" is not a line of a case", word);
}

/* `drop` may follow `end`. */
static bool dropped_after_end(golden_file *golden)
{
    static const char drop[] = "drop";
    size_t left = golden->text_size - golden->at;
    size_t length = sizeof drop - 1;

    if (golden->at >= golden->text_size || left < length ||
        memcmp(golden->text + golden->at, drop, length) != 0 ||
        (left > length && !strchr("\r\n ", golden->text[golden->at + length])))
        return false;
    next_line(golden);
    return true;
}

/* Reads up to `end`; *out_void is set when the case was dropped. */
static bool read_case(golden_file *golden, golden_case *to, bool *out_void)
{
    char *line;

    *out_void = false;
    while ((line = next_line(golden))) {
        char *word = next_word(&line);

        if (!word)
            continue;
        if (strcmp(word, "drop") == 0) {
            *out_void = true;
            return true;
        }
        if (strcmp(word, "end") == 0) {
            *out_void = dropped_after_end(golden);
            return true;
        }
        if (!read_line(golden, word, &line, to))
            return false;
    }
    return problem(golden,
                   "the file ends within case %" PRId64 ": is it truncated?",
                   to->id);
}

golden_result golden_next(golden_file *golden, golden_case *out_case)
{
    bool is_void;
    char *line;

    while ((line = next_line(golden))) {
        char *word = next_word(&line);

        if (!word)
            continue;
        if (strcmp(word, "case") != 0) {
            problem(golden, "\"%.40s\" where a case should begin", word);
            return GOLDEN_PROBLEM;
        }
        if (!begin_case(golden, &line, out_case) ||
            !read_case(golden, out_case, &is_void))
            return GOLDEN_PROBLEM;
        if (!is_void)
            return find_difference(golden, out_case) ? GOLDEN_CASE
                                                     : GOLDEN_PROBLEM;
    }
    return GOLDEN_END;
}

void golden_case_free(golden_case *the_case)
{
    free(the_case->tensors.at);
    free(the_case->ints.at);
    free(the_case->floats.at);
    free(the_case->bools.at);
    free(the_case->results.at);
    free(the_case->cotangents.at);
    free(the_case->gradients.at);
    memset(the_case, 0, sizeof *the_case);
}
