/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Adds descriptions of the arguments to errors of calls.  A check of two
 * tensors does not know which arguments they are; this file names them.  And an
 * operator that another one is made of does not know which operator the program
 * has called; this file puts its message in the words of that one. */

#include "base/error.h"
#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "dispatch/inference.h"
#include "ops_ids.h"

#include <libcore/tensor.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool names(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = text; (at = strstr(at, name)); at += length)
        if ((at == text || !in_word(at[-1])) && !in_word(at[length]))
            return true;
    return false;
}

/* True if the message is about something that the caller can change in a
 * tensor. */
static bool is_about_arguments(core_status status)
{
    return status == CORE_ERROR_SHAPE || status == CORE_ERROR_DTYPE ||
           status == CORE_ERROR_DEVICE || status == CORE_ERROR_INDEX ||
           status == CORE_ERROR_INVALID_ARGUMENT ||
           status == CORE_ERROR_NO_KERNEL;
}

typedef struct description {
    char text[600];
    size_t used;
    const core_device *device; /* of the first tensor */
    bool several;              /* on more than one device */
    bool named;                /* the message already names an argument */
    uint32_t count;
} description;

static void add_tensor(description *d, const char *name, int item,
                       const core_tensor *tensor)
{
    char sizes[160], place[16] = "", device[64] = "";

    if (item >= 0)
        snprintf(place, sizeof place, "[%d]", item);
    if (d->several)
        snprintf(device, sizeof device, " on \"%s\"", tensor->device->name);
    if (d->used < sizeof d->text)
        d->used += (size_t)snprintf(
            d->text + d->used, sizeof d->text - d->used, "%s%s%s is %s %s%s",
            d->used ? ", " : "", name, place, core__dtype_name(tensor->dtype),
            core__sizes_text(tensor->ndim, tensor->sizes, sizes, sizeof sizes),
            device);
}

static void collect_device(description *d, const core_tensor *tensor)
{
    if (d->device && d->device != tensor->device)
        d->several = true;
    d->device = tensor->device;
}

/* Visits the tensors among the arguments; of a list, the first four. */
static void visit_arguments(description *d, const core_operator *op,
                            const core_value *args, uint32_t nargs, bool add)
{
    for (uint32_t i = 0; i < nargs; i++) {
        bool list = args[i].tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count =
            list ? args[i].count : args[i].tag == CORE_VALUE_TENSOR;
        const char *name = core__argument_name(op, i);

        if (!add && names(core_error_message(), name))
            d->named |= list || args[i].tag == CORE_VALUE_TENSOR;
        for (uint32_t k = 0; k < count && k < 4; k++) {
            core_tensor *tensor =
                list ? args[i].u.tensors[k] : args[i].u.tensor;

            if (!tensor)
                continue;
            if (add)
                add_tensor(d, name, list ? (int)k : -1, tensor);
            else
                collect_device(d, tensor);
        }
    }
}

/* ------------------------------------------------- operators within others -- */

enum { NAME = 128 }; /* bytes for the name of an argument, "tensors[3]" */

/* What tells an argument from others with the same content, or NULL. */
static const void *address_of(const core_value *value)
{
    switch (value->tag) {
    case CORE_VALUE_TENSOR:
    case CORE_VALUE_TENSOR_LIST:
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
        return value->u.pointer;
    default:
        return NULL;
    }
}

/* What views of a tensor have in common, or NULL. */
static const void *storage_of(const core_value *value)
{
    return value->tag == CORE_VALUE_TENSOR ? value->u.tensor->storage : NULL;
}

static const uint32_t NO_HASH = 2166136261u; /* FNV-1a */

static uint32_t mixed(uint32_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

static uint32_t mixed_numbers(uint32_t hash, const int64_t *numbers,
                              uint32_t count)
{
    uint32_t equal = 1;

    while (equal < count && numbers[equal] == numbers[0])
        equal++;
    if (equal >= count && count > 0)
        count = 1; /* one number stands for all */
    return mixed(hash, numbers, count * sizeof *numbers);
}

/* A hash of what a message may say of an argument: dtype and sizes of a tensor,
 * numbers. */
static uint32_t content_of(const core_value *value)
{
    const core_tensor *tensor = value->u.tensor;
    uint32_t hash = NO_HASH;

    switch (value->tag) {
    case CORE_VALUE_TENSOR:
        hash = mixed(hash, &tensor->dtype, sizeof tensor->dtype);
        return mixed(hash, tensor->sizes,
                     tensor->ndim * sizeof tensor->sizes[0]);
    case CORE_VALUE_INT_LIST:
        return mixed_numbers(hash, value->u.ints, value->count);
    case CORE_VALUE_BOOL:
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
        return mixed_numbers(hash, &value->u.i, 1);
    default:
        return mixed(hash, &value->u.pointer, sizeof value->u.pointer);
    }
}

/* Notes the call that the message is about, for the operators around it. */
static void note_call(const core_operator *op, const core_value *args,
                      uint32_t nargs)
{
    core__failed_call *failed = &core__thread_self()->failed_call;
    const char *text = core_error_message();
    size_t name = core__op_leading_name(text);

    failed->op = op;
    failed->unnamed = false;
    failed->message = strlen(text);
    name += name > 0 ? 2 : 0;
    failed->hash = mixed(NO_HASH, text + name, failed->message - name);
    failed->count =
        nargs < CORE__FAILED_ARGUMENTS ? nargs : CORE__FAILED_ARGUMENTS;
    for (uint32_t i = 0; i < failed->count; i++) {
        failed->arguments[i].address = address_of(&args[i]);
        failed->arguments[i].content = content_of(&args[i]);
        failed->arguments[i].storage = storage_of(&args[i]);
    }
}

/* Writes the name of a tensor among the arguments of op: name or name[item].
 * item: -1: none. */
static void write_name(const core_operator *op, uint32_t position, int item,
                       const char *before, char name[NAME])
{
    snprintf(name, NAME, item < 0 ? "%s%s" : "%s%s[%d]", before,
             core__argument_name(op, position), item);
}

/* Writes the name of the same tensor in op's call, or of the only one that shares
 * its storage: "a view of" that, if the message may be about sizes, which differ. */
static bool name_tensor(const core_operator *op, const core_value *args,
                        uint32_t nargs, const core__failed_call *inner,
                        uint32_t position, core_status status, char name[NAME])
{
    const void *address = inner->arguments[position].address;
    const void *storage = inner->arguments[position].storage;
    core_value base = {.tag = CORE_VALUE_TENSOR};
    uint32_t found = 0, at = 0;
    int item = -1;

    for (uint32_t i = 0; storage && i < nargs; i++) {
        bool list = args[i].tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count =
            list ? args[i].count : args[i].tag == CORE_VALUE_TENSOR;

        for (uint32_t k = 0; k < count; k++) {
            core_tensor *tensor =
                list ? args[i].u.tensors[k] : args[i].u.tensor;

            if (!tensor || tensor->storage != storage)
                continue;
            at = i;
            item = list ? (int)k : -1;
            base.u.tensor = tensor;
            found++;
            if (tensor == address) {
                write_name(op, at, item, "", name);
                return true;
            }
        }
    }
    if (found != 1)
        return false;
    write_name(op, at, item,
               status != CORE_ERROR_DTYPE && status != CORE_ERROR_DEVICE &&
                       inner->arguments[position].content != content_of(&base)
                   ? "a view of "
                   : "",
               name);
    return true;
}

/* Writes the name that an argument of an inner call has among those of op: that
 * of the same tensor or list, of the one that it is a view of, or its own if what
 * the message is about (such as sizes) is the same in the one of that name, whose
 * elements may differ. */
static bool name_outside(const core_operator *op, const core_value *args,
                         uint32_t nargs, const core__failed_call *inner,
                         uint32_t position, core_status status, char name[NAME])
{
    const char *own = core__argument_name(inner->op, position);
    const void *address = inner->arguments[position].address;

    /* A tensor may be several arguments. */
    for (int same_name = 1; address && same_name >= 0; same_name--)
        for (uint32_t i = 0; i < nargs; i++) {
            write_name(op, i, -1, "", name);
            if (address == address_of(&args[i]) &&
                (!same_name || strcmp(name, own) == 0))
                return true;
        }
    if (name_tensor(op, args, nargs, inner, position, status, name))
        return true;
    if (inner->arguments[position].storage &&
        (status == CORE_ERROR_INDEX || status == CORE_ERROR_INVALID_ARGUMENT))
        return false;
    for (uint32_t i = 0; i < nargs; i++) {
        write_name(op, i, -1, "", name);
        if (strcmp(name, own) == 0 &&
            inner->arguments[position].content == content_of(&args[i]))
            return true;
    }
    return false;
}

/* Whether a word of a message is the name of an argument of this tag: the names
 * of numbers are also words of sentences, "a floating dtype". */
static bool is_subject(const core_operator *op, uint32_t position,
                       const char *after)
{
    static const char *const verbs[] = {
        " is ", " has ", " must ", " and ", " are ", " contains ", " holds "};

    if ((op->tensors | op->lists) >> position & 1)
        return true;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strncmp(after, verbs[i], strlen(verbs[i])) == 0)
            return true;
    return false;
}

/* The inner call's argument that a word names, or -1. */
static int named_by(const core_operator *op, const char *word, size_t size)
{
    for (uint32_t i = 0; i < op->nargs; i++) {
        const char *name = core__argument_name(op, i);

        if (strlen(name) == size && memcmp(name, word, size) == 0 &&
            is_subject(op, i, word + size))
            return (int)i;
    }
    return -1;
}

/* Whether all sizes in a text, "[2, 3]", are also in another. */
static bool sizes_are_in(const char *text, const char *other)
{
    char sizes[160];

    while ((text = strchr(text, '['))) {
        const char *end = strchr(text, ']');

        if (!end || (size_t)(end - text) + 2 > sizeof sizes)
            return false;
        snprintf(sizes, sizeof sizes, "%.*s", (int)(end - text) + 1, text);
        if (!strstr(other, sizes))
            return false;
        text = end;
    }
    return true;
}

/* Writes an inner call's message in the words of the call of op.  Returns false
 * if it is about tensors that the caller does not know. */
static bool put_in_words_of(const core_operator *op, const core_value *args,
                            uint32_t nargs, const core__failed_call *inner,
                            core_status status, const char *text, char *out,
                            size_t size)
{
    description d = {.used = 0};
    bool named = false;
    size_t used = 0;
    char name[NAME];

    for (const char *at = text; *at;) {
        size_t word = 0;
        int position;

        while (in_word(at[word]))
            word++;
        position = word > 0 ? named_by(inner->op, at, word) : -1;
        if (position >= (int)inner->count ||
            (position >= 0 && !name_outside(op, args, nargs, inner,
                                            (uint32_t)position, status, name)))
            return false;
        named |= position >= 0;
        word += word == 0;
        used += (size_t)snprintf(out + used, size - used, "%.*s",
                                 position < 0 ? (int)word : NAME,
                                 position < 0 ? at : name);
        if (used >= size)
            return false;
        at += word;
    }
    visit_arguments(&d, op, args, nargs, true);
    return named || (strchr(out, '[') && sizes_are_in(out, d.text));
}

/* After "op: " the message may go on with the name of an operator that op is
 * made of.  Removes that if the message is about arguments and can be told in terms
 * of op's.  Returns whether the message is now op's. */
static bool speak_as(const core_operator *op, core_status status,
                     const core_value *args, uint32_t nargs)
{
    const core__failed_call *inner = &core__thread_self()->failed_call;
    char *text = core__thread_self()->error.text;
    char body[CORE__ERROR_TEXT], told[CORE__ERROR_TEXT];
    size_t own = strlen(core__operator_name(op)), name, end;

    if (strncmp(text, core__operator_name(op), own) != 0 ||
        strncmp(text + own, ": ", 2) != 0)
        return false;
    text += own + 2;
    name = core__op_leading_name(text);
    if (!inner->op || strlen(text) < inner->message ||
        !is_about_arguments(status) || status == CORE_ERROR_NO_KERNEL)
        return name == 0;
    end = strlen(core__operator_name(inner->op));
    if (inner->unnamed
            ? name != 0
            : name != end || inner->message <= name + 2 ||
                  memcmp(text, core__operator_name(inner->op), name) != 0)
        return name == 0;
    end = inner->unnamed ? 0 : name + 2;
    snprintf(body, sizeof body, "%.*s", (int)(inner->message - end),
             text + end);
    if (mixed(NO_HASH, body, strlen(body)) != inner->hash ||
        !put_in_words_of(op, args, nargs, inner, status, body, told,
                         sizeof told - own - 2))
        return name == 0;
    memcpy(text, told, strlen(told) + 1);
    return true;
}

void core__op_describe_arguments(const core_operator *op, core_status status,
                                 const core_value *args, uint32_t nargs)
{
    description d = {.used = 0};

    /* Without memory, threads share the record. */
    if (status != CORE_OK && status != CORE_ERROR_OUT_OF_MEMORY &&
        !core__thread_self()->shared && speak_as(op, status, args, nargs))
        note_call(op, args, nargs);
    if (!is_about_arguments(status))
        return;
    visit_arguments(&d, op, args, nargs, false);
    if (d.named || !d.device)
        return;
    visit_arguments(&d, op, args, nargs, true);
    core__error_suffix("; %s", d.text);
}

/* Its errors are those of the operator whose argument it checks. */
static bool speaks_for_another(const core_operator *op)
{
    return op->id == CORE_OP_CHECK_CONTENT;
}

core_status core__function_run(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    core_operator *op = call->op;
    core_status status =
        op->data->function(call, args, nargs, results, nresults);

    if (core__unlikely(status != CORE_OK) &&
        status != CORE_ERROR_OUT_OF_MEMORY && !speaks_for_another(op)) {
        core__op_prefix_name(op);
        core__op_describe_arguments(op, status, args, nargs);
    }
    return status;
}
