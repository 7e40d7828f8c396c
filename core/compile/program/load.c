/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loads programs.  Nothing in a file is trusted: counts are compared with the
 * bytes that are left, and core_program_verify checks what remains. */

#include "compile/program/file_format.h"
#include "compile/program/program.h"
#include "compile/program/region.h"

#include "base/checksum.h"
#include "base/memory.h"
#include "device/device.h"
#include "dispatch/schema.h"
#include "random/generator.h"
#include "tensor/dtype.h"

#include <libcore/dispatch.h>
#include <libcore/ops.h>
#include <libcore/safetensors.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 256 };

/* Of elements and offsets. */
#define DIMS_LIMIT ((int64_t)1 << 56)

typedef struct reader {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    core_device *device; /* instead of the first one; or NULL */
    core_program *program;
    core__program_node *operators; /* op and name; in the arena */
    uint32_t noperators;
    const core_program *outer; /* of a region; else NULL */
    uint32_t depth;
    const uint8_t *hidden; /* the entries of the hidden inputs */
} reader;

/* An entry of a hidden input: its value and the checksum of its content. */
enum { HIDDEN_SIZE = 4 + CORE__PROGRAM_CHECKSUM };

static core_status __attribute__((cold, format(printf, 2, 3)))
corrupt(const reader *r, const char *format, ...)
{
    char text[200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return core__error(CORE_ERROR_CORRUPT,
                       "%s: not a program: %s, at byte %zu of %zu", r->path,
                       text, r->at, r->size);
}

static core_status get(reader *r, uint32_t size, uint64_t *out)
{
    *out = 0;
    if (size > r->size - r->at)
        return corrupt(r, "it ends early");
    for (uint32_t i = 0; i < size; i++)
        *out |= (uint64_t)r->data[r->at++] << 8 * i;
    return CORE_OK;
}

static core_status get8(reader *r, uint8_t *out)
{
    uint64_t number;
    core_status status = get(r, 1, &number);

    *out = (uint8_t)number;
    return status;
}

static core_status get32(reader *r, uint32_t *out)
{
    uint64_t number;
    core_status status = get(r, 4, &number);

    *out = (uint32_t)number;
    return status;
}

static core_status get64(reader *r, int64_t *out)
{
    uint64_t number;
    core_status status = get(r, 8, &number);

    *out = (int64_t)number;
    return status;
}

/* A count of elements that take at least `each` bytes. */
static core_status get_count(reader *r, uint32_t each, uint32_t *out)
{
    CORE_TRY(get32(r, out));
    if (*out <= (r->size - r->at) / each)
        return CORE_OK;
    return corrupt(r, "%u elements of %u bytes are more than there are", *out,
                   each);
}

static core_status get_bytes(reader *r, size_t size, const uint8_t **out)
{
    if (size > r->size - r->at)
        return corrupt(r, "it ends early");
    *out = r->data + r->at;
    r->at += size;
    return CORE_OK;
}

static core_status get_name(reader *r, char *name)
{
    const uint8_t *bytes = NULL;
    uint32_t size;

    CORE_TRY(get32(r, &size));
    if (size >= NAME_SIZE)
        return corrupt(r, "a name has %u bytes", size);
    CORE_TRY(get_bytes(r, size, &bytes));
    memcpy(name, bytes, size);
    name[size] = 0;
    return strlen(name) == size ? CORE_OK : corrupt(r, "a name has a NUL");
}

/* Neither the number of elements nor their places overflow. */
static core_status check_dims(const reader *r, const core__program_type *type)
{
    const int64_t *sizes = core__type_sizes(type);
    const int64_t *strides = core__type_strides(type);
    int64_t numel = 1, reach = 1;

    for (uint32_t i = 0; i < type->ndim; i++) {
        int64_t size = sizes[i] > 1 ? sizes[i] : 1, step;

        if (sizes[i] < 0 || strides[i] < 0 ||
            __builtin_mul_overflow(size - 1, strides[i], &step) ||
            __builtin_add_overflow(reach, step, &reach) ||
            __builtin_mul_overflow(numel, size, &numel) || numel > DIMS_LIMIT ||
            reach > DIMS_LIMIT)
            return corrupt(r, "a size or stride is %lld or %lld",
                           (long long)sizes[i], (long long)strides[i]);
    }
    return CORE_OK;
}

static core_status get_type(reader *r, core__program_type *type)
{
    uint64_t device;
    int64_t *dims;

    CORE_TRY(get8(r, &type->dtype));
    CORE_TRY(get8(r, &type->ndim));
    CORE_TRY(get(r, 2, &device));
    type->device = (uint16_t)device;
    if (core__dtype_check((core_dtype)type->dtype) != CORE_OK)
        return corrupt(r, "%u is not a dtype", type->dtype);
    if (type->ndim > CORE_MAX_NDIM || device >= r->program->ndevices)
        return corrupt(r, "%u dimensions on device %u", type->ndim,
                       type->device);
    dims = core__program_alloc(r->program, 2u * type->ndim * sizeof *dims + 1);
    if (!dims)
        return core__error_memory(2u * type->ndim * sizeof *dims);
    type->dims = dims;
    for (uint32_t i = 0; i < 2u * type->ndim; i++)
        CORE_TRY(get64(r, &dims[i]));
    return check_dims(r, type);
}

/* ----------------------------------------------- devices and operators -- */

static core_status get_devices(reader *r)
{
    char name[NAME_SIZE];
    uint32_t count;

    CORE_TRY(get_count(r, 4, &count));
    if (count > UINT16_MAX)
        return corrupt(r, "%u devices", count);
    for (uint32_t i = 0; i < count; i++) {
        core_device *device = r->device, **added;

        CORE_TRY(get_name(r, name));
        if (i > 0 || !device)
            CORE_TRY(core_device_find(name, &device));
        if (device->meta)
            return corrupt(r, "a device is \"meta\"");
        added = core__program_grow(&r->program->devices, &r->program->ndevices,
                                   sizeof *added);
        if (!added)
            return core__error_memory(sizeof *added);
        *added = core_device_retain(device);
    }
    return CORE_OK;
}

/* Those of the program that contains a region. */
static core_status get_shared_devices(reader *r)
{
    uint32_t count, index, added;

    CORE_TRY(get_count(r, 4, &count));
    for (uint32_t i = 0; i < count; i++) {
        CORE_TRY(get32(r, &index));
        if (index >= r->outer->ndevices)
            return corrupt(r, "a region refers to device %u", index);
        CORE_TRY(
            core__program_device(r->program, r->outer->devices[index], &added));
        if (added != i)
            return corrupt(r, "a region refers to device %u twice", index);
    }
    return CORE_OK;
}

static core_status get_shared_generators(reader *r)
{
    uint32_t count, index, added;

    CORE_TRY(get_count(r, 4, &count));
    for (uint32_t i = 0; i < count; i++) {
        CORE_TRY(get32(r, &index));
        if (index >= r->outer->ngenerators)
            return corrupt(r, "a region refers to generator %u", index);
        CORE_TRY(core__program_generator(r->program,
                                         r->outer->generators[index], &added));
        if (added != i)
            return corrupt(r, "a region refers to generator %u twice", index);
    }
    return CORE_OK;
}

static core_status get_generators(reader *r)
{
    uint32_t count;

    CORE_TRY(get_count(r, 16, &count));
    for (uint32_t i = 0; i < count; i++) {
        int64_t seed, offset;
        core_generator **added;

        CORE_TRY(get64(r, &seed));
        CORE_TRY(get64(r, &offset));
        added = core__program_grow(&r->program->generators,
                                   &r->program->ngenerators, sizeof *added);
        if (!added)
            return core__error_memory(sizeof *added);
        CORE_TRY(core_generator_create((uint64_t)seed, added));
        core__generator_state_set(*added, (uint64_t)seed, (uint64_t)offset);
    }
    return CORE_OK;
}

/* A built-in operator is found by its id, which is permanent; the name must be
 * one that it has or had. */
static core_status find_operator(reader *r, uint32_t id, uint32_t since,
                                 const char *name, core_operator **out_op)
{
    *out_op = NULL;
    if (id == CORE__PROGRAM_REGIONS)
        return core__regions_named(name)
                   ? CORE_OK
                   : corrupt(r, "%.96s has no regions", name);
    if (id == CORE__PROGRAM_CUSTOM) {
        CORE_TRY(core_op_find(name, out_op));
        return (*out_op)->flags & CORE__OP_CUSTOM
                   ? CORE_OK
                   : corrupt(r, "%.96s is not a custom operator", name);
    }
    if (id >= core__operator_count || !core__operators[id].data)
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "%s: the program contains the operator %.96s (%u) of "
            "ABI 0.%u, which this libcore, of ABI 0.%d, does not "
            "have",
            r->path, name, id, since, CORE_ABI_MINOR);
    *out_op = &core__operators[id];
    if (core__operator_builtin(name, strlen(name)) != *out_op)
        return corrupt(r, "operator %u is %s, not %.96s", id,
                       core__operator_name(*out_op), name);
    return CORE_OK;
}

static core_program *const no_regions[CORE__REGIONS_MAX];

static core_status get_operators(reader *r)
{
    char name[NAME_SIZE];

    CORE_TRY(get_count(r, 12, &r->noperators));
    r->operators = core__program_alloc(r->program, (r->noperators + 1) *
                                                       sizeof *r->operators);
    if (!r->operators)
        return core__error_memory(r->noperators * sizeof *r->operators);
    for (uint32_t i = 0; i < r->noperators; i++) {
        core__program_node *node = &r->operators[i];
        uint32_t id, since;
        core_operator *op;
        char *copy;

        CORE_TRY(get32(r, &id));
        CORE_TRY(get32(r, &since));
        CORE_TRY(get_name(r, name));
        CORE_TRY(find_operator(r, id, since, name, &op));
        copy = core__program_alloc(r->program, strlen(name) + 1);
        if (!copy)
            return core__error_memory(strlen(name) + 1);
        strcpy(copy, name);
        *node = (core__program_node){
            .op = op && op->flags & CORE__OP_CUSTOM ? NULL : op, .name = copy};
        /* Until the node is read, this only says that it has some. */
        if (!op)
            node->regions = no_regions;
    }
    return CORE_OK;
}

/* ------------------------------------------------------------- sources -- */

static core_status get_inputs(reader *r)
{
    uint32_t count;

    CORE_TRY(get_count(r, 20, &count));
    for (uint32_t i = 0; i < count; i++) {
        core__program_input *input = core__program_grow(
            &r->program->inputs, &r->program->ninputs, sizeof *input);

        if (!input)
            return core__error_memory(sizeof *input);
        CORE_TRY(get_type(r, &input->type));
        CORE_TRY(get32(r, &input->value));
        CORE_TRY(get32(r, &input->base));
        CORE_TRY(get64(r, &input->offset));
        if (input->offset < 0 || input->offset > DIMS_LIMIT)
            return corrupt(r, "an offset is %lld", (long long)input->offset);
    }
    return CORE_OK;
}

static core_status get_values(reader *r)
{
    const uint8_t *checksum = NULL;
    uint32_t count;

    CORE_TRY(get_count(r, HIDDEN_SIZE, &count));
    r->hidden = r->data + r->at;
    for (uint32_t i = 0; i < count; i++) {
        core__program_hidden *hidden = core__program_grow(
            &r->program->hidden, &r->program->nhidden, sizeof *hidden);

        if (!hidden)
            return core__error_memory(sizeof *hidden);
        CORE_TRY(get32(r, &hidden->value));
        CORE_TRY(get_bytes(r, CORE__PROGRAM_CHECKSUM, &checksum));
    }
    CORE_TRY(get_count(r, 9, &count));
    for (uint32_t i = 0; i < count; i++) {
        core__program_value *value = core__program_grow(
            &r->program->values, &r->program->nvalues, sizeof *value);

        if (!value)
            return core__error_memory(sizeof *value);
        CORE_TRY(get_type(r, &value->type));
        CORE_TRY(get8(r, &value->source));
        CORE_TRY(get32(r, &value->index));
    }
    return CORE_OK;
}

/* --------------------------------------------------------------- nodes -- */

static core_status get_list(reader *r, core__program_argument *a, uint32_t size)
{
    const uint8_t *bytes = NULL;
    uint8_t *copy;

    if (a->count > (r->size - r->at) / size)
        return corrupt(r, "a list of %u elements is longer than the file",
                       a->count);
    CORE_TRY(get_bytes(r, (size_t)a->count * size, &bytes));
    copy = core__program_alloc(r->program, (size_t)a->count * size + 1);
    if (!copy)
        return core__error_memory((size_t)a->count * size);
    memcpy(copy, bytes, (size_t)a->count * size);
    copy[(size_t)a->count * size] = 0; /* of a string */
    a->u.pointer = copy;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    for (uint32_t i = 0; size > 1 && i < a->count; i++)
        for (uint32_t k = 0; k < size / 2; k++) {
            uint8_t byte = copy[i * size + k];

            copy[i * size + k] = copy[i * size + size - 1 - k];
            copy[i * size + size - 1 - k] = byte;
        }
#endif
    return CORE_OK;
}

static core_status get_argument(reader *r, core__program_argument *a)
{
    uint8_t tag;

    *a = (core__program_argument){0};
    CORE_TRY(get8(r, &tag));
    CORE_TRY(get32(r, &a->count));
    a->tag = tag;
    switch (tag) {
    case CORE_VALUE_NONE:
        return CORE_OK;
    case CORE_VALUE_TENSOR:
    case CORE_VALUE_DEVICE:
    case CORE_VALUE_GENERATOR:
        return get32(r, &a->u.value);
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
    case CORE_VALUE_BOOL:
    case CORE_VALUE_DTYPE:
    case CORE_VALUE_FORMAT:
    case CORE_VALUE_LAYOUT:
        return get64(r, &a->u.i);
    case CORE_VALUE_TENSOR_LIST:
        return get_list(r, a, 4);
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        return get_list(r, a, 8);
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        return get_list(r, a, 1);
    default:
        return corrupt(r, "a value of kind %u", tag);
    }
}

static core_status get_arguments(reader *r, uint32_t most, uint32_t *out_count,
                                 const core__program_argument **out)
{
    core__program_argument *arguments;

    CORE_TRY(get_count(r, 5, out_count));
    if (*out_count > most)
        return corrupt(r, "%u arguments or results", *out_count);
    arguments =
        core__program_alloc(r->program, (*out_count + 1) * sizeof *arguments);
    if (!arguments)
        return core__error_memory(*out_count * sizeof *arguments);
    *out = arguments;
    for (uint32_t i = 0; i < *out_count; i++)
        CORE_TRY(get_argument(r, &arguments[i]));
    return CORE_OK;
}

static core_status get_node(reader *r)
{
    core__program_node node;
    uint32_t op, index;
    int64_t draws;

    CORE_TRY(get32(r, &op));
    if (op >= r->noperators)
        return corrupt(r, "a node refers to operator %u; the file lists %u", op,
                       r->noperators);
    node = r->operators[op];
    CORE_TRY(get32(r, &node.written));
    CORE_TRY(get32(r, &node.first));
    CORE_TRY(get32(r, &node.nvalues));
    CORE_TRY(get64(r, &draws));
    node.draws = (uint64_t)draws;
    CORE_TRY(get_arguments(r, CORE__SCHEMA_ARGUMENTS, &node.nargs, &node.args));
    CORE_TRY(
        get_arguments(r, CORE__SCHEMA_RESULTS, &node.nresults, &node.results));
    if (node.regions) {
        uint32_t known = CORE__REGION_THEN + core__regions_named(node.name);

        if (node.nargs != known && node.nargs != known + 1)
            return corrupt(r, "%.96s has %u arguments", node.name, node.nargs);
        node.regions = core__program_alloc(r->program, sizeof no_regions);
        if (!node.regions)
            return core__error_memory(sizeof no_regions);
        memset((void *)(uintptr_t)node.regions, 0, sizeof no_regions);
    }
    if (node.nargs < 32 && node.written >> node.nargs)
        return corrupt(r, "an argument is written that is not there");
    return core__program_add_node(r->program, &node, &index);
}

static core_status get_effects(reader *r)
{
    uint32_t count;

    CORE_TRY(get_count(r, 18, &count));
    for (uint32_t i = 0; i < count; i++) {
        core__program_output *output = core__program_grow(
            &r->program->outputs, &r->program->noutputs, sizeof *output);

        if (!output)
            return core__error_memory(sizeof *output);
        CORE_TRY(get8(r, &output->kind));
        CORE_TRY(get8(r, &output->view));
        if (output->view > CORE__OUTPUT_DETACHED)
            return corrupt(r, "an output is made in way %u", output->view);
        CORE_TRY(get32(r, &output->index));
        CORE_TRY(get_type(r, &output->type));
        CORE_TRY(get64(r, &output->offset));
        if (output->offset < 0 || output->offset > DIMS_LIMIT)
            return corrupt(r, "an offset is %lld", (long long)output->offset);
    }
    CORE_TRY(get_count(r, 9, &count));
    for (uint32_t i = 0; i < count; i++) {
        core__program_write *write = core__program_grow(
            &r->program->writes, &r->program->nwrites, sizeof *write);
        uint8_t hidden;

        if (!write)
            return core__error_memory(sizeof *write);
        CORE_TRY(get8(r, &hidden));
        write->hidden = hidden != 0;
        CORE_TRY(get32(r, &write->index));
        CORE_TRY(get32(r, &write->value));
    }
    return CORE_OK;
}

/* ------------------------------------------------------------- program -- */

static void checksum_of(const void *bytes, size_t size,
                        uint8_t out_sum[CORE__PROGRAM_CHECKSUM])
{
    core__checksum sum;

    core__checksum_begin(&sum, false);
    core__checksum_add(&sum, bytes, size);
    core__checksum_end(&sum, out_sum);
}

static core_status check_header(reader *r)
{
    uint8_t expected[CORE__PROGRAM_CHECKSUM];
    const uint8_t *given = NULL;
    uint32_t magic, version;

    CORE_TRY(get32(r, &magic));
    if (magic != CORE__PROGRAM_MAGIC)
        return corrupt(r, "it begins with 0x%x", magic);
    CORE_TRY(get32(r, &version));
    if (version != CORE__PROGRAM_VERSION)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "%s: the program has version %u of the format; this "
                           "libcore reads version %d",
                           r->path, version, CORE__PROGRAM_VERSION);
    CORE_TRY(get_bytes(r, sizeof expected, &given));
    checksum_of(r->data + r->at, r->size - r->at, expected);
    return memcmp(given, expected, sizeof expected) == 0
               ? CORE_OK
               : corrupt(r, "its checksum is wrong");
}

static core_status get_program(reader *r);

static core_status get_region(reader *r, core_program **out)
{
    reader inner = {.path = r->path,
                    .data = r->data,
                    .size = r->size,
                    .at = r->at,
                    .outer = r->program,
                    .depth = r->depth + 1};
    core_status status;

    if (inner.depth > CORE__REGION_DEPTH)
        return corrupt(r, "regions are nested more than %d times",
                       CORE__REGION_DEPTH);
    status = core__program_new(&inner.program);
    if (status == CORE_OK)
        status = get_program(&inner);
    r->at = inner.at;
    *out = inner.program;
    return status;
}

static core_status get_regions(reader *r)
{
    for (uint32_t i = 0; i < r->program->nnodes; i++) {
        core_program **regions =
            (core_program **)(uintptr_t)r->program->nodes[i].regions;

        for (uint32_t k = 0; k < core__region_count(&r->program->nodes[i]); k++)
            CORE_TRY(get_region(r, &regions[k]));
    }
    return CORE_OK;
}

static core_status get_program(reader *r)
{
    uint32_t count;

    CORE_TRY(r->outer ? get_shared_devices(r) : get_devices(r));
    CORE_TRY(r->outer ? get_shared_generators(r) : get_generators(r));
    CORE_TRY(get_inputs(r));
    CORE_TRY(get_values(r));
    CORE_TRY(get_operators(r));
    CORE_TRY(get_count(r, 32, &count));
    for (uint32_t i = 0; i < count; i++)
        CORE_TRY(get_node(r));
    CORE_TRY(get_effects(r));
    return get_regions(r);
}

static core_status decode(reader *r)
{
    CORE_TRY(check_header(r));
    CORE_TRY(get_program(r));
    return r->at == r->size ? CORE_OK : corrupt(r, "bytes follow it");
}

/* Compares the content of a hidden input with its checksum. */
static core_status check_hidden(const reader *r, const core_safetensors *file,
                                const char *name, uint32_t index)
{
    const uint8_t *given = r->hidden + (size_t)index * HIDDEN_SIZE + 4;
    core_safetensors_entry entry = {.struct_size = sizeof entry};
    uint8_t found[CORE__PROGRAM_CHECKSUM];

    for (size_t i = 0; i < core_safetensors_count(file); i++) {
        CORE_TRY(core_safetensors_describe(file, i, &entry));
        if (strcmp(entry.name, name) != 0)
            continue;
        checksum_of(entry.data, (size_t)entry.size, found);
        return memcmp(given, found, sizeof found) == 0
                   ? CORE_OK
                   : corrupt(r, "the checksum of the tensor %s is wrong", name);
    }
    return corrupt(r, "the tensor %s is missing", name);
}

/* A hidden input with the strides of its value. */
static core_status load_hidden(reader *r, const core_safetensors *file,
                               uint32_t index)
{
    core_program *program = r->program;
    core__program_hidden *hidden = &program->hidden[index];
    const core__program_type *type = &program->values[hidden->value].type;
    core_device *device = program->devices[type->device];
    core_tensor *plain = NULL;
    core_status status;
    char name[32];

    snprintf(name, sizeof name, CORE__PROGRAM_HIDDEN "%u", index);
    CORE_TRY(check_hidden(r, file, name, index));
    status = core_safetensors_load(file, name, device, &plain);
    if (status != CORE_OK)
        return status;
    if (plain->dtype != type->dtype || plain->ndim != type->ndim ||
        memcmp(plain->sizes, core__type_sizes(type),
               type->ndim * sizeof(int64_t)) != 0) {
        core__tensor_release(plain);
        return corrupt(r,
                       "the tensor %s has another dtype or other sizes than "
                       "the program",
                       name);
    }
    if (memcmp(plain->strides, core__type_strides(type),
               type->ndim * sizeof(int64_t)) == 0) {
        hidden->tensor = plain;
        return CORE_OK;
    }
    status = core__tensor_new(device, type->dtype, type->ndim,
                              core__type_sizes(type), core__type_strides(type),
                              &hidden->tensor);
    if (status == CORE_OK)
        status = core_copy_(hidden->tensor, plain, false);
    core__tensor_release(plain);
    return status;
}

/* What the checks of a program find is a fault of the file. */
static core_status check_program(const reader *r)
{
    core_status status = core_program_verify(r->program);
    char text[600];

    if (status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY)
        return status;
    snprintf(text, sizeof text, "%s", core_error_message());
    return core__error(CORE_ERROR_CORRUPT, "%s: not a program: %s", r->path,
                       text);
}

static void finish_all(core_program *program)
{
    core__program_finish(program);
    for (uint32_t i = 0; i < program->nnodes; i++)
        for (uint32_t k = 0; k < core__region_count(&program->nodes[i]); k++)
            finish_all(program->nodes[i].regions[k]);
}

static core_status read_program(reader *r, const core_safetensors *file,
                                core_program **out_program)
{
    CORE_TRY(core__program_new(&r->program));
    CORE_TRY(decode(r));
    CORE_TRY(check_program(r));
    for (uint32_t i = 0; i < r->program->nhidden; i++)
        CORE_TRY(load_hidden(r, file, i));
    finish_all(r->program);
    *out_program = core_program_retain(r->program);
    return CORE_OK;
}

static core_status find_bytes(const core_safetensors *file, reader *r)
{
    core_safetensors_entry entry = {.struct_size = sizeof entry};

    for (size_t i = 0; i < core_safetensors_count(file); i++) {
        CORE_TRY(core_safetensors_describe(file, i, &entry));
        if (strcmp(entry.name, CORE__PROGRAM_TENSOR) != 0)
            continue;
        if (entry.dtype != CORE_U8)
            break;
        r->data = entry.data;
        r->size = (size_t)entry.size;
        return CORE_OK;
    }
    return core__error(
        CORE_ERROR_CORRUPT,
        "%s: the file contains no program: there is no u8 tensor "
        "\"" CORE__PROGRAM_TENSOR "\"",
        r->path);
}

core_status core_program_load(const char *path, core_device *device,
                              core_program **out_program)
{
    reader r = {.path = path, .device = device};
    core_safetensors *file = NULL;
    core_status status;

    CORE__NOT_NULL(out_program);
    *out_program = NULL;
    CORE__NOT_NULL(path);
    if (!*path)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_load: the path is empty");
    if (device && device->meta)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_load: the device is \"meta\", where "
                           "nothing is computed");
    CORE_TRY(core_safetensors_open(path, &file));
    status = find_bytes(file, &r);
    if (status == CORE_OK)
        status = read_program(&r, file, out_program);
    core_program_release(r.program);
    core_safetensors_close(file);
    return status;
}
