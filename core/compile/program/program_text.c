/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Programs as text. */

#include "compile/program/program.h"
#include "compile/program/region.h"

#include "base/growing_text.h"
#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <string.h>

typedef struct text {
    core__text_writer to;
    uint32_t indent; /* of the next line */
} text;

static void add_indent(text *t)
{
    for (uint32_t i = 0; i < t->indent; i++)
        core__text_write(&t->to, "    ");
}

static void add_ints(text *t, const int64_t *ints, uint32_t count)
{
    core__text_write(&t->to, "[");
    for (uint32_t i = 0; i < count; i++)
        core__text_write(&t->to, "%s%lld", i ? ", " : "", (long long)ints[i]);
    core__text_write(&t->to, "]");
}

/* f32[2, 3], and strides that are not row-major. */
static void add_type(text *t, const core__program_type *type)
{
    int64_t row_major[CORE_MAX_NDIM];

    core__text_write(&t->to, "%s", core__dtype_name(type->dtype));
    add_ints(t, core__type_sizes(type), type->ndim);
    core__layout_contiguous(type->ndim, core__type_sizes(type), row_major);
    if (memcmp(row_major, core__type_strides(type),
               type->ndim * sizeof *row_major) != 0) {
        core__text_write(&t->to, " strides ");
        add_ints(t, core__type_strides(type), type->ndim);
    }
}

static void add_device(text *t, const core_program *program, uint32_t device)
{
    core__text_write(&t->to, " on \"%s\"", program->devices[device]->name);
}

static void add_floats(text *t, const double *floats, uint32_t count)
{
    core__text_write(&t->to, "[");
    for (uint32_t i = 0; i < count; i++)
        core__text_write(&t->to, "%s%.17g", i ? ", " : "", floats[i]);
    core__text_write(&t->to, "]");
}

static void add_bools(text *t, const uint8_t *bools, uint32_t count)
{
    core__text_write(&t->to, "[");
    for (uint32_t i = 0; i < count; i++)
        core__text_write(&t->to, "%s%s", i ? ", " : "",
                         bools[i] ? "true" : "false");
    core__text_write(&t->to, "]");
}

static void add_values(text *t, const uint32_t *values, uint32_t count)
{
    core__text_write(&t->to, "[");
    for (uint32_t i = 0; i < count; i++)
        if (values[i] == CORE__NO_VALUE)
            core__text_write(&t->to, "%snone", i ? ", " : "");
        else
            core__text_write(&t->to, "%s%%%u", i ? ", " : "", values[i]);
    core__text_write(&t->to, "]");
}

static void add_number(text *t, const core__program_number *number)
{
    core__text_write(&t->to, "%s of %s, part %u",
                     number->source->numbers[number->number],
                     number->source->name, number->part);
    if (number->earlier)
        core__text_write(&t->to, ", after %u", number->earlier);
}

static void add_argument(text *t, const core_program *program,
                         const core__program_argument *a)
{
    switch (a->tag) {
    case CORE__ARGUMENT_NUMBER:
        add_number(t, &program->numbers[a->u.i]);
        break;
    case CORE_VALUE_NONE:
        core__text_write(&t->to, "none");
        break;
    case CORE_VALUE_TENSOR:
        core__text_write(&t->to, "%%%u", a->u.value);
        break;
    case CORE_VALUE_FLOAT:
        core__text_write(&t->to, "%.17g", a->u.f);
        break;
    case CORE_VALUE_BOOL:
        core__text_write(&t->to, "%s", a->u.i ? "true" : "false");
        break;
    case CORE_VALUE_DTYPE:
        core__text_write(&t->to, "%s", core__dtype_name((core_dtype)a->u.i));
        break;
    case CORE_VALUE_DEVICE:
        core__text_write(&t->to, "\"%s\"", program->devices[a->u.device]->name);
        break;
    case CORE_VALUE_GENERATOR:
        core__text_write(&t->to, "generator %u", a->u.generator);
        break;
    case CORE_VALUE_STRING:
        core__text_write(&t->to, "\"%.200s\"", a->u.string);
        break;
    case CORE_VALUE_INT_LIST:
        add_ints(t, a->u.ints, a->count);
        break;
    case CORE_VALUE_FLOAT_LIST:
        add_floats(t, a->u.floats, a->count);
        break;
    case CORE_VALUE_BOOL_LIST:
        add_bools(t, a->u.bools, a->count);
        break;
    case CORE_VALUE_TENSOR_LIST:
        add_values(t, a->u.values, a->count);
        break;
    default:
        core__text_write(&t->to, "%lld", (long long)a->u.i);
    }
}

static void add_program(text *t, const core_program *program);

static void add_regions(text *t, const core__program_node *node)
{
    static const char *const branches[] = {"then", "else"};
    static const char *const loop[] = {"condition", "body", "gradient"};
    bool branch = node->args[CORE__REGION_PREDICATE].tag == CORE_VALUE_TENSOR;

    for (uint32_t i = 0; i < core__region_count(node); i++) {
        t->indent++;
        add_indent(t);
        core__text_write(&t->to, "%s\n", (branch ? branches : loop)[i]);
        t->indent++;
        add_program(t, node->regions[i]);
        t->indent -= 2;
    }
}

static void add_node(text *t, const core_program *program,
                     const core__program_node *node)
{
    add_indent(t);
    for (uint32_t i = 0; i < node->nvalues; i++)
        core__text_write(&t->to, "%s%%%u", i ? ", " : "", node->first + i);
    core__text_write(&t->to, "%s%.96s(", node->nvalues ? " = " : "",
                     node->name);
    for (uint32_t i = 0; i < node->nargs; i++) {
        core__text_write(&t->to, "%s%s", i ? ", " : "",
                         node->written >> i & 1 ? "copy of " : "");
        add_argument(t, program, &node->args[i]);
    }
    core__text_write(&t->to, ")");
    for (uint32_t i = 0; i < node->nvalues; i++) {
        core__text_write(&t->to, "%s", i ? ", " : ": ");
        add_type(t, &program->values[node->first + i].type);
    }
    if (node->draws)
        core__text_write(&t->to, ", draws %llu",
                         (unsigned long long)node->draws);
    core__text_write(&t->to, "\n");
    if (node->regions)
        add_regions(t, node);
}

static void add_inputs(text *t, const core_program *program)
{
    for (uint32_t i = 0; i < program->ninputs; i++) {
        const core__program_input *input = &program->inputs[i];

        add_indent(t);
        if (input->base == CORE__NO_VALUE)
            core__text_write(&t->to, "%%%u = input %u: ", input->value, i);
        else
            core__text_write(
                &t->to, "input %u, a view of input %u from element %lld: ", i,
                input->base, (long long)input->offset);
        add_type(t, &input->type);
        add_device(t, program, input->type.device);
        core__text_write(&t->to, "\n");
    }
    for (uint32_t i = 0; i < program->nhidden; i++) {
        const core__program_value *value =
            &program->values[program->hidden[i].value];

        add_indent(t);
        core__text_write(
            &t->to, "%%%u = hidden input %u: ", program->hidden[i].value, i);
        add_type(t, &value->type);
        add_device(t, program, value->type.device);
        core__text_write(&t->to, "\n");
    }
}

static void add_output(text *t, const core__program_output *output, uint32_t i)
{
    static const char *const kinds[] = {"%", "input ", "hidden input ",
                                        "output "};
    static const char *const views[] = {"", "a view of ",
                                        "a detached view of "};

    add_indent(t);
    core__text_write(&t->to, "output %u: %s%s%u", i, views[output->view],
                     kinds[output->kind], output->index);
    if (output->view) {
        core__text_write(&t->to,
                         " from element %lld: ", (long long)output->offset);
        add_type(t, &output->type);
    }
    core__text_write(&t->to, "\n");
}

static void add_program(text *t, const core_program *program)
{
    add_inputs(t, program);
    for (uint32_t i = 0; i < program->nnodes; i++)
        add_node(t, program, &program->nodes[i]);
    for (uint32_t i = 0; i < program->noutputs; i++)
        add_output(t, &program->outputs[i], i);
}

core_status core_program_text(core_program *program, char **out_text)
{
    text t = {.indent = 0};

    CORE__NOT_NULL(out_text);
    *out_text = NULL;
    CORE__NOT_NULL(program);
    add_program(&t, program);
    for (uint32_t i = 0; i < program->nwrites; i++)
        core__text_write(&t.to, "write %s %u: %%%u\n",
                         program->writes[i].hidden ? "hidden input" : "input",
                         program->writes[i].index, program->writes[i].value);
    for (uint32_t i = 0; i < program->nfinishes; i++)
        core__text_write(&t.to, "counts a step of %s, part %u\n",
                         program->finishes[i].source->name,
                         program->finishes[i].part);
    return core__text_writer_finish(&t.to, out_text);
}
