/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Saves programs. */

#include "compile/program/file_format.h"
#include "compile/program/program.h"
#include "compile/program/region.h"

#include "base/checksum.h"
#include "base/growing_text.h"
#include "base/memory.h"
#include "device/device.h"
#include "tensor/dtype.h"

#include <libcore/safetensors.h>

#include <stdio.h>
#include <string.h>

/* After a failure it ignores what follows. */
typedef struct writer {
    core__growing_text bytes;
    core_status status;
} writer;

static void put(writer *w, const void *bytes, size_t size)
{
    if (w->status == CORE_OK && size > 0 &&
        !core__growing_text_append(&w->bytes, bytes, size))
        w->status = core__error_memory(w->bytes.size + size);
}

static void put_number(writer *w, uint64_t number, uint32_t size)
{
    uint8_t bytes[8];

    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    put(w, bytes, size);
}

static void put8(writer *w, uint32_t number)
{
    put_number(w, number, 1);
}

static void put32(writer *w, uint32_t number)
{
    put_number(w, number, 4);
}

static void put64(writer *w, uint64_t number)
{
    put_number(w, number, 8);
}

static void put_name(writer *w, const char *name)
{
    put32(w, (uint32_t)strlen(name));
    put(w, name, strlen(name));
}

static void put_type(writer *w, const core__program_type *type)
{
    put8(w, type->dtype);
    put8(w, type->ndim);
    put_number(w, type->device, 2);
    for (uint32_t i = 0; i < 2u * type->ndim; i++)
        put64(w, (uint64_t)type->dims[i]);
}

static void put_argument(writer *w, const core__program_argument *a)
{
    put8(w, a->tag);
    put32(w, a->count);
    switch (a->tag) {
    case CORE_VALUE_NONE:
        break;
    case CORE_VALUE_TENSOR:
    case CORE_VALUE_DEVICE:
    case CORE_VALUE_GENERATOR:
        put32(w, a->u.value);
        break;
    case CORE_VALUE_TENSOR_LIST:
        for (uint32_t i = 0; i < a->count; i++)
            put32(w, a->u.values[i]);
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST: /* the bits of a double */
        for (uint32_t i = 0; i < a->count; i++)
            put64(w, (uint64_t)a->u.ints[i]);
        break;
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        put(w, a->u.pointer, a->count);
        break;
    default:
        put64(w, (uint64_t)a->u.i);
    }
}

static void put_arguments(writer *w, const core__program_argument *arguments,
                          uint32_t count)
{
    put32(w, count);
    for (uint32_t i = 0; i < count; i++)
        put_argument(w, &arguments[i]);
}

/* ------------------------------------------------------------ sections -- */

static bool same_operator(const core__program_node *a,
                          const core__program_node *b)
{
    return a->op == b->op && (a->op || strcmp(a->name, b->name) == 0);
}

/* The operators that the nodes use, each once: *out has the first node of
 * each. */
static core_status list_operators(const core_program *program, uint32_t **out,
                                  uint32_t *out_count)
{
    uint32_t *first = core__alloc((program->nnodes + 1) * sizeof *first);
    uint32_t count = 0;

    *out = first;
    if (!first)
        return core__error_memory(program->nnodes * sizeof *first);
    for (uint32_t i = 0; i < program->nnodes; i++) {
        uint32_t k = 0;

        while (k < count &&
               !same_operator(&program->nodes[first[k]], &program->nodes[i]))
            k++;
        if (k == count)
            first[count++] = i;
    }
    *out_count = count;
    return CORE_OK;
}

static uint32_t device_index(const core_program *program,
                             const core_device *device)
{
    uint32_t i = 0;

    while (program->devices[i] != device)
        i++;
    return i;
}

static uint32_t generator_index(const core_program *program,
                                const core_generator *generator)
{
    uint32_t i = 0;

    while (program->generators[i] != generator)
        i++;
    return i;
}

/* Of a region: indices of those of the program that contains it. */
static void put_shared_references(writer *w, const core_program *program,
                                  const core_program *outer)
{
    put32(w, program->ndevices);
    for (uint32_t i = 0; i < program->ndevices; i++)
        put32(w, device_index(outer, program->devices[i]));
    put32(w, program->ngenerators);
    for (uint32_t i = 0; i < program->ngenerators; i++)
        put32(w, generator_index(outer, program->generators[i]));
}

static void put_references(writer *w, const core_program *program)
{
    put32(w, program->ndevices);
    for (uint32_t i = 0; i < program->ndevices; i++)
        put_name(w, program->devices[i]->name);
    put32(w, program->ngenerators);
    for (uint32_t i = 0; i < program->ngenerators; i++) {
        uint64_t seed, offset;

        core_generator_state(program->generators[i], &seed, &offset);
        put64(w, seed);
        put64(w, offset);
    }
}

/* The checksum of a hidden input's elements, row-major. */
static core_status put_content(writer *w, core_tensor *tensor)
{
    size_t size =
        (size_t)tensor->numel * core__dtype_size((core_dtype)tensor->dtype);
    void *content = core__alloc(size + 1);
    uint8_t expected[CORE__PROGRAM_CHECKSUM];
    core__checksum sum;
    core_status status;

    if (!content)
        return core__error_memory(size);
    status = core_tensor_read(tensor, content, size);
    if (status == CORE_OK) {
        core__checksum_begin(&sum, false);
        core__checksum_add(&sum, content, size);
        core__checksum_end(&sum, expected);
        put(w, expected, sizeof expected);
    }
    core__free(content);
    return status;
}

static core_status put_sources(writer *w, const core_program *program)
{
    put32(w, program->ninputs);
    for (uint32_t i = 0; i < program->ninputs; i++) {
        put_type(w, &program->inputs[i].type);
        put32(w, program->inputs[i].value);
        put32(w, program->inputs[i].base);
        put64(w, (uint64_t)program->inputs[i].offset);
    }
    put32(w, program->nhidden);
    for (uint32_t i = 0; i < program->nhidden; i++) {
        put32(w, program->hidden[i].value);
        CORE_TRY(put_content(w, program->hidden[i].tensor));
    }
    put32(w, program->nvalues);
    for (uint32_t i = 0; i < program->nvalues; i++) {
        put_type(w, &program->values[i].type);
        put8(w, program->values[i].source);
        put32(w, program->values[i].index);
    }
    return w->status;
}

static void put_nodes(writer *w, const core_program *program,
                      const uint32_t *operators, uint32_t count)
{
    put32(w, count);
    for (uint32_t i = 0; i < count; i++) {
        const core__program_node *node = &program->nodes[operators[i]];

        put32(w, node->op        ? node->op->id
                 : node->regions ? CORE__PROGRAM_REGIONS
                                 : CORE__PROGRAM_CUSTOM);
        put32(w, node->op ? core__operator_since[node->op->id] : 0);
        put_name(w, node->name);
    }
    put32(w, program->nnodes);
    for (uint32_t i = 0; i < program->nnodes; i++) {
        const core__program_node *node = &program->nodes[i];
        uint32_t op = 0;

        while (!same_operator(&program->nodes[operators[op]], node))
            op++;
        put32(w, op);
        put32(w, node->written);
        put32(w, node->first);
        put32(w, node->nvalues);
        put64(w, node->draws);
        put_arguments(w, node->args, node->nargs);
        put_arguments(w, node->results, node->nresults);
    }
}

static void put_effects(writer *w, const core_program *program)
{
    put32(w, program->noutputs);
    for (uint32_t i = 0; i < program->noutputs; i++) {
        const core__program_output *output = &program->outputs[i];

        put8(w, output->kind);
        put8(w, output->view);
        put32(w, output->index);
        put_type(w, &output->type);
        put64(w, (uint64_t)output->offset);
    }
    put32(w, program->nwrites);
    for (uint32_t i = 0; i < program->nwrites; i++) {
        put8(w, program->writes[i].hidden);
        put32(w, program->writes[i].index);
        put32(w, program->writes[i].value);
    }
}

/* outer: of a region; else NULL. */
static core_status put_program(writer *w, const core_program *program,
                               const core_program *outer)
{
    uint32_t *operators = NULL, count = 0;
    core_status status;

    CORE_TRY(list_operators(program, &operators, &count));
    if (outer)
        put_shared_references(w, program, outer);
    else
        put_references(w, program);
    status = put_sources(w, program);
    put_nodes(w, program, operators, count);
    put_effects(w, program);
    core__free(operators);
    if (status != CORE_OK)
        return status;
    for (uint32_t i = 0; i < program->nnodes; i++)
        for (uint32_t k = 0; k < core__region_count(&program->nodes[i]); k++)
            CORE_TRY(put_program(w, program->nodes[i].regions[k], program));
    return w->status;
}

static core_status encode(const core_program *program, writer *w)
{
    static const uint8_t nothing[CORE__PROGRAM_CHECKSUM];
    core__checksum sum;

    put32(w, CORE__PROGRAM_MAGIC);
    put32(w, CORE__PROGRAM_VERSION);
    put(w, nothing, sizeof nothing);
    CORE_TRY(put_program(w, program, NULL));
    if (w->status != CORE_OK)
        return w->status;
    core__checksum_begin(&sum, false);
    core__checksum_add(&sum, w->bytes.data + CORE__PROGRAM_HEADER,
                       w->bytes.size - CORE__PROGRAM_HEADER);
    core__checksum_end(&sum, (uint8_t *)w->bytes.data + 8);
    return CORE_OK;
}

/* ---------------------------------------------------------------- save -- */

static core_status write_file(const core_program *program, const writer *w,
                              const char *path)
{
    size_t count = program->nhidden + 1u;
    core_named_tensor *tensors = core__alloc_zero(count * sizeof *tensors);
    char(*names)[32] = core__alloc(count * sizeof *names);
    core_tensor *bytes = NULL;
    core_device *host;
    core_status status;

    if (!tensors || !names) {
        status = core__error_memory(count * sizeof *names);
        goto done;
    }
    status = core__device_host(&host);
    if (status == CORE_OK)
        status = core_tensor_from_data(w->bytes.data, CORE_U8,
                                       (int64_t[]){(int64_t)w->bytes.size}, 1,
                                       host, &bytes);
    if (status != CORE_OK)
        goto done;
    for (uint32_t i = 0; i < program->nhidden; i++) {
        snprintf(names[i], sizeof names[i], CORE__PROGRAM_HIDDEN "%u", i);
        tensors[i] = (core_named_tensor){names[i], program->hidden[i].tensor};
    }
    tensors[count - 1] = (core_named_tensor){CORE__PROGRAM_TENSOR, bytes};
    status = core_safetensors_save(path, tensors, count, NULL, 0);
done:
    core_tensor_release(bytes);
    core__free(names);
    core__free(tensors);
    return status;
}

core_status core_program_save(core_program *program, const char *path)
{
    writer w = {.status = CORE_OK};
    core_status status;

    CORE__NOT_NULL(program);
    CORE__NOT_NULL(path);
    if (!*path)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_save: the path is empty");
    if (program->nknown)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_program_save: the function also reads input "
                           "%u as a tensor of its own, which a file cannot "
                           "express",
                           program->known[0].input);
    if (program->nnumbers || program->nfinishes)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_program_save: the program reads numbers of an object of this "
            "process (%s), which a file cannot express",
            program->nnumbers ? program->numbers[0].source->name
                              : program->finishes[0].source->name);
    status = encode(program, &w);
    if (status == CORE_OK)
        status = write_file(program, &w, path);
    core__free(w.bytes.data);
    return status;
}
