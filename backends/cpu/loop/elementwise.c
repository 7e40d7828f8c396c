/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The table of element-wise operators.  gen_kernels.py writes it in a compact
 * form without addresses; init expands it for the chosen instruction set. */

#include "elementwise.h"

#include <stdlib.h>
#include <string.h>

/* How the masks of a signature are derived from the types of the rows. */
enum {
    FORM_EXACT, /* each operand has its type */
    FORM_HALF,  /* f32 includes f16 and bf16 */
    FORM_WORD   /* type 0 includes every dtype of `word` bytes */
};

typedef struct entry {
    uint16_t name; /* where it begins in `names` */
    uint16_t row;
    /* cost: log2 of the cost of an element, an addition being 0 */
    uint8_t function, form, word, operands, cost, choice, nparameters;
    uint8_t types[CPU_OPERANDS];
    uint8_t argument[CPU_PARAMETERS];
    uint8_t otherwise[CPU_PARAMETERS]; /* in cpu_elementwise_constants */
} entry;

#include "elementwise_table.h"

enum { ENTRIES = sizeof(entries) / sizeof(entries[0]) };

const uint32_t cpu_elementwise_count = ENTRIES;
static cpu_elementwise *operators;
static const cpu_loop_functions *chosen;

static uint32_t words(uint8_t bytes)
{
    switch (bytes) {
    case 1:
        return CORE_DTYPE_MASK(CORE_I8) | CORE_DTYPE_MASK(CORE_U8) |
               CORE_DTYPE_MASK(CORE_BOOL);
    case 2:
        return CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16) |
               CORE_DTYPE_MASK(CORE_I16);
    case 4:
        return CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_I32);
    default:
        return CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_I64);
    }
}

static uint32_t mask(const entry *e, uint32_t k)
{
    if (e->types[k] == 0)
        return words(e->word);
    if (e->form == FORM_HALF && e->types[k] == CORE_F32)
        return CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16);
    return CORE_DTYPE_MASK(e->types[k]);
}

static void expand(const entry *e, cpu_elementwise *self)
{
    self->rows = chosen->rows + e->row;
    self->row = self->rows[0];
    memcpy(self->types, e->types, sizeof(self->types));
    self->grain = 65536 >> e->cost;
    self->choice = e->choice;
    self->nparameters = e->nparameters;
    memcpy(self->argument, e->argument, sizeof(self->argument));
    memcpy(self->otherwise, e->otherwise, sizeof(self->otherwise));
}

void cpu_elementwise_row(uint32_t at, cpu_kernel *out)
{
    const entry *e = &entries[at];
    uint32_t k;

    memset(out, 0, sizeof(*out));
    out->name = names + e->name;
    out->launch = chosen->functions[e->function];
    out->user = &operators[at];
    for (k = 0; k < e->operands; k++)
        out->signature[k] = mask(e, k);
}

core_status cpu_elementwise_open(const cpu_loop_functions *functions)
{
    uint32_t k;

    operators = calloc(ENTRIES, sizeof(*operators));
    if (operators == NULL)
        return cpu_error(CORE_ERROR_OUT_OF_MEMORY,
                         "no memory for the table of kernels");
    chosen = functions;
    for (k = 0; k < ENTRIES; k++)
        expand(&entries[k], &operators[k]);
    return CORE_OK;
}

void cpu_elementwise_close(void)
{
    free(operators);
    operators = NULL;
}
