/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Finds chains of launches that run block of rows by block of rows.
 *
 * A chain is a sequence of steps that follow each other.  All are divided into
 * the same number of rows, the largest that is possible.  One step can follow
 * another if, in each memory that one of them writes, a row of the one uses no
 * bytes but those of the same row of the other: then it does not matter that
 * the second runs on the first rows before the first one has run on the last
 * rows. */

#include "compile/prepare/row_blocks.h"
#include "compile/prepare/prepared.h"
#include "compile/prepare/tune.h"

#include "base/memory.h"
#include "device/device.h"

#include <libcore/device.h>

#include <string.h>

enum {
    STEPS_MOST = 64,          /* of a chain */
    SAVED_AT_LEAST = 1 << 18, /* bytes; less is not worth the launches */
    PARTS = 3,                /* of small chains if all must be divided */
    SHARED_BLOCKS = 16        /* that several threads compute together */
};

/* What a chain does with one memory. */
typedef struct use {
    uint32_t memory;
    uint64_t bytes;     /* of all rows, the most of any operand */
    uint64_t moved;     /* read and written by all launches */
    uint64_t least;     /* if what is written is read from a cache */
    bool written, rows; /* some operands differ from row to row */
    bool apart;         /* all do, from the start of the memory, and no two rows
                         * use the same bytes */
} use;

typedef struct search {
    core__row_search found; /* first */
    core__prepared *set;
    core__row_memory *memory;
    core__row_launch *launches; /* by step */
    core__row_blocks *out;
    use *uses; /* of a chain */
    uint32_t nuses;
    uint64_t block; /* bytes */
    bool always;    /* also where it is not expected to be faster */
} search;

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static core__row_operand *operands_of(const search *s, uint32_t step)
{
    return s->found.operands + s->launches[step].operands;
}

/* ------------------------------------------------------------ conditions -- */

/* Whether two operands use a memory that one of them writes, and not row by
 * row. */
static bool conflicts(const core__row_operand *a, const core__row_operand *b)
{
    if (a->memory != b->memory || (!a->written && !b->written))
        return false;
    return !a->apart || !b->apart || a->start != b->start || a->size != b->size;
}

static bool step_conflicts(const search *s, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < s->launches[a].noperands; i++)
        for (uint32_t k = 0; k < s->launches[b].noperands; k++)
            if (conflicts(&operands_of(s, a)[i], &operands_of(s, b)[k]))
                return true;
    return false;
}

static bool shares(const search *s, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < s->launches[a].noperands; i++)
        for (uint32_t k = 0; k < s->launches[b].noperands; k++)
            if (operands_of(s, a)[i].memory == operands_of(s, b)[k].memory &&
                operands_of(s, a)[i].per_row && operands_of(s, b)[k].per_row)
                return true;
    return false;
}

/* A random kernel begins a block of rows at a block of four numbers. */
static bool draws_fit(const core__row_launch *launch, int64_t rows)
{
    return launch->numbers * (launch->rows / rows) % 4 == 0;
}

/* ----------------------------------------------------------------- uses -- */

static use *use_of(search *s, uint32_t memory)
{
    for (uint32_t i = 0; i < s->nuses; i++)
        if (s->uses[i].memory == memory)
            return &s->uses[i];
    s->uses[s->nuses] = (use){.memory = memory, .apart = true};
    return &s->uses[s->nuses++];
}

static void add_use(search *s, const core__row_operand *operand)
{
    use *u = use_of(s, operand->memory);

    if (u->moved == 0 && !operand->written)
        u->least = operand->size;
    if (operand->size > u->bytes)
        u->bytes = operand->size;
    u->moved += operand->size;
    u->written |= operand->written;
    u->rows |= operand->per_row > 0;
    u->apart &= operand->apart && operand->start == 0;
}

/* Only the chain uses it, row by row. */
static bool is_inside(const search *s, const use *u, uint32_t first,
                      uint32_t last)
{
    const core__row_memory *memory = &s->memory[u->memory];

    return u->apart && u->written && u->least == 0 && memory->temporary &&
           memory->first >= first && memory->last <= last;
}

static void find_uses(search *s, uint32_t first, uint32_t last)
{
    s->nuses = 0;
    for (uint32_t i = first; i <= last; i++)
        for (uint32_t k = 0; k < s->launches[i].noperands; k++)
            add_use(s, &operands_of(s, i)[k]);
    for (uint32_t i = 0; i < s->nuses; i++)
        if (s->uses[i].written && !is_inside(s, &s->uses[i], first, last))
            s->uses[i].least += s->uses[i].bytes;
}

/* The rows of a block; 0: it is not worth it, or not possible. */
static int64_t block_of(const search *s, int64_t rows)
{
    uint64_t shared = 0, all = 0, saved = 0;
    int64_t block = rows;

    for (uint32_t i = 0; i < s->nuses; i++) {
        const use *u = &s->uses[i];

        *(u->rows ? &all : &shared) += u->bytes;
        saved += u->moved > u->least ? u->moved - u->least : 0;
    }
    if (all + shared > s->block && shared < s->block)
        block = (int64_t)((s->block - shared) / (all / (uint64_t)rows + 1));
    if (s->always) {
        if (block > (rows + PARTS - 1) / PARTS)
            block = (rows + PARTS - 1) / PARTS;
        return block > 0 ? block : 1;
    }
    return saved >= SAVED_AT_LEAST && block < rows ? block : 0;
}

/* --------------------------------------------------------------- chains -- */

static core_status add_names(core__row_description *to, const search *s,
                             const core__step *step)
{
    const core__prepared *set = s->set;
    uint32_t count = 1;
    const char *const *names = &set->program->nodes[step->index].name;

    if (step->kind == CORE__STEP_FUSED) {
        const core__fused_group *group =
            ((const core__fused_launch *)(const void *)step->launch)->group;

        names = set->fusion->names + group->first;
        count = group->count;
    }
    for (uint32_t i = 0; i < count; i++) {
        const char **name =
            core__program_grow(&to->names, &to->nnames, sizeof *name);

        if (!name)
            return core__error_memory(sizeof *name);
        *name = names[i];
    }
    return CORE_OK;
}

static core_status describe(search *s, const core__row_chain *chain)
{
    core__row_facts *facts = s->out->facts;
    core__row_description *to =
        core__program_grow(&facts->chains, &facts->nchains, sizeof *to);

    if (!to)
        return core__error_memory(sizeof *to);
    *to = (core__row_description){
        .kernels = chain->count, .rows = chain->rows, .block = chain->block};
    for (uint32_t i = 0; i < s->nuses; i++)
        if (s->uses[i].moved > s->uses[i].least)
            to->bytes_saved += s->uses[i].moved - s->uses[i].least;
    for (uint32_t i = 0; i < chain->count; i++)
        CORE_TRY(add_names(to, s, &s->set->steps[chain->first + i]));
    return CORE_OK;
}

/* Of all operands that differ from row to row. */
static uint64_t bytes_of_block(const search *s, const core__row_chain *chain)
{
    uint64_t row = 0;

    for (uint32_t i = 0; i < s->nuses; i++)
        if (s->uses[i].rows)
            row += s->uses[i].bytes / (uint64_t)chain->rows;
    return row * (uint64_t)chain->block;
}

/* Whether a place is requested while the block before is computed: another
 * memory that only is read.  That is for blocks that the cache of one thread
 * holds, twice. */
static bool is_read_ahead(search *s, const core__row_chain *chain,
                          uint32_t step, const core__row_operand *operand)
{
    const uint64_t near = (uint64_t)s->set->device->interfaces.codegen.row_block
                          << 10;

    if (bytes_of_block(s, chain) > near ||
        chain->nahead == CORE__ROW_AHEAD_MOST ||
        use_of(s, operand->memory)->written)
        return false;
    for (uint32_t i = chain->first; i <= step; i++)
        for (uint32_t k = 0; k < s->launches[i].noperands; k++) {
            const core__row_operand *known = &operands_of(s, i)[k];

            if (known == operand)
                return true;
            if (known->memory == operand->memory &&
                known->start == operand->start)
                return false;
        }
    return true;
}

/* What differs from block to block in the call of a step. */
static core_status add_step(search *s, core__row_chain *chain, uint32_t step)
{
    const core__row_launch *launch = &s->launches[step];
    int64_t more = launch->rows / chain->rows;
    core__row_blocks *out = s->out;

    core__row_launch_join(&s->set->steps[step]);
    for (uint32_t i = 0; i < launch->ncounts; i++) {
        core__row_count *count =
            core__program_grow(&out->counts, &out->ncounts, sizeof *count);

        if (!count)
            return core__error_memory(sizeof *count);
        *count = s->found.counts[launch->counts + i];
        count->per_row *= more;
    }
    for (uint32_t i = 0; i < launch->noperands; i++) {
        const core__row_operand *operand = &operands_of(s, step)[i];
        bool inside = s->memory[operand->memory].size == 0;
        core__row_place *place;

        if (operand->per_row == 0 || inside)
            continue;
        place = core__program_grow(&out->places, &out->nplaces, sizeof *place);
        if (!place)
            return core__error_memory(sizeof *place);
        *place =
            (core__row_place){operand->at, operand->per_row * (uint64_t)more, 0,
                              is_read_ahead(s, chain, step, operand)};
        chain->nahead += place->ahead;
    }
    if (launch->numbers) {
        core__logged_launch *logged = s->set->steps[step].launch;
        core__row_draw *draw =
            core__program_grow(&out->draws, &out->ndraws, sizeof *draw);

        if (!draw)
            return core__error_memory(sizeof *draw);
        *draw = (core__row_draw){
            (core_value *)(uintptr_t)&logged->args[logged->random + 1],
            launch->numbers * more / 4, 0};
    }
    return CORE_OK;
}

/* Memory that only the chain uses is for one block; its size is 0 until the
 * places are known.  Other memory is used from the first block to the last. */
static void change_memory(search *s, const core__row_chain *chain,
                          bool only_mark)
{
    uint32_t first = chain->first, last = first + chain->count - 1;

    for (uint32_t i = 0; i < s->nuses; i++) {
        const use *u = &s->uses[i];
        core__row_memory *memory = &s->memory[u->memory];

        if (is_inside(s, u, first, last)) {
            uint64_t size =
                u->bytes / (uint64_t)chain->rows * (uint64_t)chain->block;

            if (only_mark) {
                s->out->facts->chains[s->out->nchains - 1].memory_saved +=
                    memory->size - size;
                memory->size = 0;
            } else {
                memory->size = size;
            }
        } else {
            memory->first = memory->first < first ? memory->first : first;
            memory->last = memory->last > last ? memory->last : last;
        }
    }
}

static core_status add_chain(search *s, uint32_t first, uint32_t count,
                             int64_t rows, int64_t block)
{
    core__row_blocks *out = s->out;
    core__row_chain *chain =
        core__program_grow(&out->chains, &out->nchains, sizeof *chain);

    if (!chain)
        return core__error_memory(sizeof *chain);
    *chain = (core__row_chain){.first = first,
                               .count = count,
                               .rows = rows,
                               .block = block,
                               .counts = out->ncounts,
                               .places = out->nplaces,
                               .draws = out->ndraws};
    CORE_TRY(describe(s, chain));
    change_memory(s, chain, true);
    for (uint32_t i = 0; i < count; i++)
        CORE_TRY(add_step(s, chain, first + i));
    change_memory(s, chain, false);
    chain->ncounts = out->ncounts - chain->counts;
    chain->nplaces = out->nplaces - chain->places;
    chain->ndraws = out->ndraws - chain->draws;
    return CORE_OK;
}

/* ------------------------------------------------------------- searching -- */

static const char *name_of(const search *s, uint32_t step)
{
    uint32_t node = s->set->steps[step].index;

    return node == CORE__NO_VALUE ? "copy_" : s->set->program->nodes[node].name;
}

/* Why a step cannot be in the chain that ends before it; NULL: it can. */
static const char *refused(search *s, uint32_t first, uint32_t step,
                           int64_t *rows)
{
    const core__row_launch *launch = &s->launches[step];
    int64_t common = common_divisor(*rows, launch->rows);
    bool shared = false;

    if (launch->reason)
        return launch->reason;
    if (step - first == STEPS_MOST)
        return "the chain would be too long";
    if (step_conflicts(s, step, step))
        return "its operands overlap";
    for (uint32_t i = first; i < step; i++) {
        if (step_conflicts(s, i, step))
            return "it does not read what is before it row by row";
        shared |= shares(s, i, step);
    }
    if (step > first && !shared && common != *rows)
        return "it does not use what is before it";
    if (common < 2)
        return "it has another number of rows";
    for (uint32_t i = first; i <= step; i++)
        if (!draws_fit(&s->launches[i], common))
            return "it draws numbers in other blocks";
    find_uses(s, first, step);
    if (block_of(s, common) == 0 && step > first) {
        /* Small: it may become worth it.  Large: it never does. */
        uint64_t row = 0;

        for (uint32_t i = 0; i < s->nuses; i++)
            row += s->uses[i].bytes / (s->uses[i].rows ? (uint64_t)common : 1);
        if (row > s->block)
            return "one row of all operands would not fit a cache";
    }
    *rows = common;
    return NULL;
}

/* The fastest of some blocks, besides the device's; 0: all rows at once. */
static int64_t measured_block(search *s, uint32_t first, uint32_t count,
                              int64_t rows)
{
    const core__tuning ways[] = {{.row_block = s->block},
                                 {.row_block = s->block / 4},
                                 {.row_block = s->block * 4},
                                 {.row_block = CORE__NO_BLOCKS}};
    uint64_t own = s->block;
    core__error_record before;
    uint32_t way = 0;
    int64_t block;

    core__error_save(&before);
    if (core__tune_steps(s->set, first, count, ways, sizeof ways / sizeof *ways,
                         &way) != CORE_OK)
        way = 0;
    core__error_restore(&before);
    s->block = ways[way].row_block;
    block = s->block == CORE__NO_BLOCKS ? 0 : block_of(s, rows);
    s->block = own;
    return block;
}

static core_status end_chain(search *s, uint32_t first, uint32_t end,
                             int64_t rows)
{
    int64_t block;

    if (end - first < 2)
        return CORE_OK;
    find_uses(s, first, end - 1);
    block = block_of(s, rows);
    if (block && s->set->fusion->measured)
        block = measured_block(s, first, end - first, rows);
    return block ? add_chain(s, first, end - first, rows, block) : CORE_OK;
}

static core_status search_steps(search *s)
{
    core__row_facts *facts = s->out->facts;
    uint32_t first = 0;
    int64_t rows = 0;

    for (uint32_t i = 0; i < s->set->nsteps; i++) {
        const char *reason = refused(s, first, i, &rows);
        uint32_t chains = s->out->nchains;

        if (!reason)
            continue;
        CORE_TRY(end_chain(s, first, i, rows));
        if (s->out->nchains > chains)
            CORE_TRY(core__operator_reason_count(&facts->ends, &facts->nends,
                                                 name_of(s, i), reason));
        first = i;
        rows = 0;
        if (refused(s, first, i, &rows))
            first = i + 1;
    }
    return end_chain(s, first, s->set->nsteps, rows);
}

/* Bytes of a block: what the near cache of a thread holds.  With several threads
 * each kernel of a block begins when all have finished the one before, and rows
 * move from the cache of one thread to that of another, so blocks are larger
 * and stay in a cache that the threads share. */
static uint64_t block_bytes(const core_device *device)
{
    uint64_t bytes = (uint64_t)device->interfaces.codegen.row_block << 10;
    core__error_record saved;
    uint32_t threads = 1;

    core__error_save(&saved);
    if (core_threads_get(&threads) != CORE_OK)
        threads = 1;
    core__error_restore(&saved);
    return threads > 1 ? bytes * threads * SHARED_BLOCKS : bytes;
}

static const char *reason_of(const core__prepared *set)
{
    if (set->fusion->reason)
        return set->fusion->reason;
    if (!set->device->synchronous || !set->device->interfaces.codegen.row_block)
        return "kernels of the device may depend on the number of rows";
    return NULL;
}

static core_status find(search *s)
{
    core__prepared *set = s->set;
    size_t places = set->nplaces + 1, steps = set->nsteps + 1;
    size_t size = places * (sizeof *s->found.operands + sizeof *s->uses +
                            2 * sizeof *s->found.counts) +
                  steps * (sizeof *s->launches + 2 * sizeof *s->found.counts);
    core_status status;

    s->uses = core__alloc_zero(size);
    if (!s->uses)
        return core__error_memory(size);
    s->found.operands = (void *)(s->uses + places);
    s->found.counts = (void *)(s->found.operands + places);
    s->launches = (void *)(s->found.counts + 2 * (places + steps));
    for (uint32_t i = 0; i < set->nsteps; i++)
        core__row_launch_describe(&set->steps[i], s->memory, &s->found,
                                  &s->launches[i]);
    status = search_steps(s);
    core__free(s->uses);
    return status;
}

core_status core__row_blocks_find(core__prepared *set, core__row_memory *memory,
                                  core__row_blocks *out)
{
    search s = {.set = set, .memory = memory, .out = out};

    out->facts = core__alloc_zero(sizeof *out->facts);
    if (!out->facts)
        return core__error_memory(sizeof *out->facts);
    atomic_init(&out->facts->references, 1);
    out->facts->reason = reason_of(set);
    if (set->program->tuning.row_block == CORE__NO_BLOCKS)
        out->facts->reason = "all rows at once are measured";
    if (out->facts->reason)
        return CORE_OK;
    s.block = set->program->tuning.row_block ? set->program->tuning.row_block
                                             : block_bytes(set->device);
    s.always = set->fusion->always;
    return find(&s);
}

/* -------------------------------------------------------------- lifetime -- */

/* The kernel of the most operators, after the first: it is assumed to compute
 * longest. */
static uint32_t step_that_loads(const core__row_chain *chain)
{
    uint32_t most = 0, found = 0;

    for (uint32_t i = 1; i < chain->nsteps; i++) {
        const core__step *step = &chain->steps[i];
        const core__fused_launch *fused = (const void *)step->launch;

        if (step->kind == CORE__STEP_FUSED && fused->group->count >= most) {
            most = fused->group->count;
            found = i;
        }
    }
    return found;
}

core_status core__row_blocks_make_steps(core__prepared *set)
{
    core__row_blocks *blocks = &set->rows;

    for (uint32_t c = 0; c < blocks->nchains; c++) {
        core__row_chain *chain = &blocks->chains[c];
        core__step *steps = set->steps + chain->first;

        chain->steps = core__alloc(chain->count * sizeof *steps);
        if (!chain->steps)
            return core__error_memory(chain->count * sizeof *steps);
        for (uint32_t i = 0; i < chain->count; i++) {
            if (steps[i].kind != CORE__STEP_NOTHING)
                chain->steps[chain->nsteps++] = steps[i];
            steps[i].kind = CORE__STEP_NOTHING;
        }
        chain->loading = chain->nahead ? step_that_loads(chain) : 0;
        steps[0].kind = CORE__STEP_ROWS;
        steps[0].index = c;
    }
    return CORE_OK;
}

void core__row_blocks_free(core__row_blocks *blocks)
{
    for (uint32_t i = 0; i < blocks->nchains; i++)
        core__free(blocks->chains[i].steps);
    core__free(blocks->chains);
    core__free(blocks->counts);
    core__free(blocks->places);
    core__free(blocks->draws);
    core__row_facts_release(blocks->facts);
}

core__row_facts *core__row_facts_retain(core__row_facts *facts)
{
    atomic_fetch_add_explicit(&facts->references, 1, memory_order_relaxed);
    return facts;
}

void core__row_facts_release(core__row_facts *facts)
{
    if (!facts || atomic_fetch_sub_explicit(&facts->references, 1,
                                            memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < facts->nchains; i++)
        core__free(facts->chains[i].names);
    core__free(facts->chains);
    core__free(facts->ends);
    core__free(facts);
}

/* --------------------------------------------------------------- explain -- */

static void write_chain(const core__row_description *chain, core__json *json)
{
    core__json_object(json, NULL);
    core__json_array(json, "operators");
    for (uint32_t i = 0; i < chain->nnames; i++)
        core__json_text(json, NULL, chain->names[i]);
    core__json_end(json);
    core__json_unsigned(json, "kernels", chain->kernels);
    core__json_unsigned(json, "rows", (uint64_t)chain->rows);
    core__json_unsigned(json, "rows_of_a_block", (uint64_t)chain->block);
    core__json_unsigned(json, "bytes_saved", chain->bytes_saved);
    core__json_unsigned(json, "memory_saved", chain->memory_saved);
    core__json_end(json);
}

void core__row_facts_describe(const core__row_facts *facts, core__json *json)
{
    const char *reason = !facts ? "its calls are not prepared" : facts->reason;

    if (facts && !reason && !facts->nchains)
        reason = "no kernels that follow each other treat the same rows, or "
                 "their operands fit the caches";
    core__json_object(json, "row_blocks");
    if (reason)
        core__json_text(json, "reason", reason);
    core__json_array(json, "chains");
    for (uint32_t i = 0; facts && i < facts->nchains; i++)
        write_chain(&facts->chains[i], json);
    core__json_end(json);
    core__operator_reasons_write(facts ? facts->ends : NULL,
                                 facts ? facts->nends : 0, "ended_by", json);
    core__json_end(json);
}
