/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "replay_compiled.h"

#include <libcore/core.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 8, INPUTS = 256, ARGUMENTS = 32 };

/* ---------------------------------------------------------------- counts -- */

static void count_reason(compiled_counts *counts, compiled_kind kind,
                         const char *text)
{
    compiled_reason *reason = counts->reasons;
    size_t i = 0;

    for (; i < counts->nreasons; i++)
        if (reason[i].kind == kind && strcmp(reason[i].text, text) == 0)
            break;
    if (i == COMPILED_REASONS) {
        counts->other++;
        return;
    }
    if (i == counts->nreasons) {
        reason[i].kind = kind;
        snprintf(reason[i].text, sizeof reason[i].text, "%s", text);
        counts->nreasons++;
    }
    reason[i].count++;
}

void compiled_counts_print(const compiled_counts *counts)
{
    static const char *const what[] = {
        "calls", "calls with their gradients in one function",
        "calls that autograd records"};

    for (int k = 0; k < COMPILED_KINDS; k++)
        printf("%s: %zu compiled, %zu called as they are\n", what[k],
               counts->compiled[k], counts->eager[k]);
    for (size_t i = 0; i < counts->nreasons; i++)
        printf("  not compiled: %zu %s, for %s\n", counts->reasons[i].count,
               what[counts->reasons[i].kind], counts->reasons[i].text);
    if (counts->other)
        printf("  not compiled: %zu, for other reasons\n", counts->other);
}

/* -------------------------------------------------------------- function -- */

/* A call as a function of its tensors. */
typedef struct function {
    const compiled_call *call;
    core_tensor *inputs[INPUTS]; /* borrowed: its tensors, then cotangents */
    size_t ninputs;
    size_t ntensors;     /* of the inputs */
    const bool *present; /* of its outputs; NULL: not known yet */
    size_t noutputs;     /* with the absent ones */
} function;

static core_tensor *replaced(const function *f, core_tensor *tensor,
                             core_tensor *const *inputs)
{
    for (size_t i = 0; i < f->ntensors; i++)
        if (f->inputs[i] == tensor)
            return inputs[i];
    return tensor;
}

static core_status add_input(function *f, core_tensor *tensor)
{
    for (size_t i = 0; i < f->ninputs; i++)
        if (f->inputs[i] == tensor)
            return CORE_OK;
    if (!tensor)
        return CORE_OK;
    if (f->ninputs == INPUTS)
        return core_error_set(CORE_ERROR_UNSUPPORTED,
                              "a call has too many tensors");
    f->inputs[f->ninputs++] = tensor;
    return CORE_OK;
}

static core_status find_inputs(function *f)
{
    const compiled_call *call = f->call;

    for (uint32_t i = 0; i < call->nargs; i++) {
        const core_value *value = &call->args[i];

        if (value->tag == CORE_VALUE_TENSOR)
            CORE_TRY(add_input(f, value->u.tensor));
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
            CORE_TRY(add_input(f, value->u.tensors[k]));
    }
    f->ntensors = f->ninputs;
    for (size_t i = 0; i < call->ncotangents; i++) {
        if (f->ninputs == INPUTS)
            return core_error_set(CORE_ERROR_UNSUPPORTED,
                                  "a call has too many tensors");
        f->inputs[f->ninputs++] = call->cotangents[i];
    }
    return CORE_OK;
}

/* Calls the operator with these inputs. */
static core_status call_operator(const function *f, core_tensor *const *inputs,
                                 core_value *results)
{
    const compiled_call *call = f->call;
    core_tensor *lists[INPUTS];
    core_value args[ARGUMENTS];
    size_t used = 0;

    for (uint32_t i = 0; i < call->nargs; i++) {
        args[i] = call->args[i];
        if (args[i].tag == CORE_VALUE_TENSOR)
            args[i].u.tensor = replaced(f, args[i].u.tensor, inputs);
        if (args[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        if (used + args[i].count > INPUTS)
            return core_error_set(CORE_ERROR_UNSUPPORTED,
                                  "a call has too many tensors");
        for (uint32_t k = 0; k < args[i].count; k++)
            lists[used + k] = replaced(f, args[i].u.tensors[k], inputs);
        args[i].u.tensors = lists + used;
        used += args[i].count;
    }
    return core_op_call(call->op, args, call->nargs, results, RESULTS);
}

/* The tensors of results, borrowed; returns how many there are. */
static size_t flatten(const core_value *results, core_tensor **flat,
                      size_t capacity)
{
    size_t count = 0;

    for (size_t i = 0; i < RESULTS; i++) {
        const core_value *value = &results[i];

        if (value->tag == CORE_VALUE_TENSOR && count < capacity)
            flat[count++] = value->u.tensor;
        for (uint32_t k = 0; value->tag == CORE_VALUE_TENSOR_LIST &&
                             k < value->count && count < capacity;
             k++)
            flat[count++] = value->u.tensors[k];
    }
    return count;
}

static core_status gradients(const function *f, core_tensor *const *inputs,
                             core_tensor *const *flat, core_tensor **outputs)
{
    const compiled_call *call = f->call;
    core_tensor *from[INPUTS], *wanted[INPUTS];

    if (call->ncotangents > INPUTS || call->nwanted > INPUTS)
        return core_error_set(CORE_ERROR_UNSUPPORTED,
                              "a call has too many gradients");
    for (size_t i = 0; i < call->ncotangents; i++)
        from[i] = flat[call->differentiated[i]];
    for (size_t i = 0; i < call->nwanted; i++)
        wanted[i] = replaced(f, call->wanted[i], inputs);
    return core_grad(from, call->ncotangents, inputs + f->ntensors, wanted,
                     call->nwanted, CORE_ALLOW_UNUSED, outputs);
}

/* All outputs, absent ones too; the caller owns them. */
static core_status compute(const function *f, core_tensor *const *inputs,
                           core_tensor **outputs, size_t capacity,
                           size_t *out_count)
{
    core_value results[RESULTS] = {{0}};
    core_tensor **flat = outputs;
    core_status status;
    size_t count;

    status = call_operator(f, inputs, results);
    if (status != CORE_OK)
        return status;
    if (f->call->nwanted) {
        flat = calloc(INPUTS, sizeof *flat);
        if (!flat)
            status = core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    }
    count =
        flat ? flatten(results, flat, f->call->nwanted ? INPUTS : capacity) : 0;
    if (f->call->nwanted) {
        if (flat)
            status = gradients(f, inputs, flat, outputs);
        count = f->call->nwanted;
        free(flat);
    } else {
        for (size_t i = 0; i < count; i++)
            core_tensor_retain(outputs[i]);
    }
    for (size_t i = 0; i < RESULTS; i++)
        core_value_release(&results[i]);
    *out_count = count;
    return status;
}

/* The function that is compiled: without the absent outputs. */
static core_status call_function(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    const function *f = context;
    core_tensor **all = calloc(f->noutputs + 1, sizeof *all);
    size_t count = 0, kept = 0;
    core_status status;

    (void)ninputs;
    if (!all)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    status = compute(f, inputs, all, f->noutputs, &count);
    for (size_t i = 0; status == CORE_OK && i < f->noutputs; i++)
        if ((i < count && all[i]) != f->present[i])
            status = core_error_set(CORE_ERROR_INTERNAL,
                                    "other results are absent than in the call "
                                    "as it is");
    for (size_t i = 0; i < f->noutputs; i++) {
        if (status == CORE_OK && all[i])
            outputs[kept++] = all[i];
        else
            core_tensor_release(all[i]);
    }
    free(all);
    *noutputs = kept;
    return status;
}

/* ------------------------------------------------------------ comparison -- */

static core_status differs(size_t number, const char *how)
{
    char text[200];

    snprintf(text, sizeof text,
             "result %zu of the compiled call has %s than that of the call as "
             "it is",
             number, how);
    return core_error_set(CORE_ERROR_INTERNAL, text);
}

core_status compiled_compare(core_tensor *got, core_tensor *want, size_t number)
{
    uint32_t ndim = core_tensor_ndim(want);
    size_t size = (size_t)core_tensor_numel(want) *
                  core_dtype_size(core_tensor_dtype(want));
    char *bytes;
    core_status status;

    if (core_tensor_dtype(got) != core_tensor_dtype(want))
        return differs(number, "another dtype");
    if (core_tensor_device(got) != core_tensor_device(want))
        return differs(number, "another device");
    if (core_tensor_ndim(got) != ndim)
        return differs(number, "other sizes");
    for (uint32_t i = 0; i < ndim; i++) {
        if (core_tensor_size(got, (int)i) != core_tensor_size(want, (int)i))
            return differs(number, "other sizes");
        if (core_tensor_numel(want) && core_tensor_size(want, (int)i) > 1 &&
            core_tensor_strides(got)[i] != core_tensor_strides(want)[i])
            return differs(number, "other strides");
    }
    bytes = malloc(2 * size + 1);
    if (!bytes)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    status = core_tensor_read(got, bytes, size);
    if (status == CORE_OK)
        status = core_tensor_read(want, bytes + size, size);
    if (status == CORE_OK && memcmp(bytes, bytes + size, size) != 0)
        status = differs(number, "other bits");
    free(bytes);
    return status;
}

/* ----------------------------------------------------------------- calls -- */

static void release(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++) {
        core_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

/* Two calls: the first records, the second finds the program. */
static core_status call_twice(function *f, uint32_t flags,
                              core_tensor *const *expected,
                              core_tensor **outputs, size_t count)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .flags = flags};
    core_tensor **kept = calloc(count + 1, sizeof *kept);
    core_compiled *compiled = NULL;
    core_status status = CORE_OK;
    size_t nkept = 0;

    if (!kept)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    for (size_t i = 0; i < count; i++)
        nkept += f->present[i];
    status = core_compile(call_function, f, &options, &compiled);
    for (int call = 0; call < 2 && status == CORE_OK; call++) {
        size_t at = 0;

        release(outputs, count);
        core_seed(1);
        status =
            core_compiled_call(compiled, f->inputs, f->ninputs, kept, nkept);
        for (size_t i = 0; i < count && status == CORE_OK; i++)
            outputs[i] = f->present[i] ? kept[at++] : NULL;
        for (size_t i = 0; i < count && status == CORE_OK; i++)
            if (expected[i])
                status = compiled_compare(outputs[i], expected[i], i);
    }
    if (status != CORE_OK)
        release(outputs, count);
    core_compiled_release(compiled);
    free(kept);
    return status;
}

static core_status run(function *f, compiled_kind kind, compiled_counts *counts,
                       core_tensor *const *expected, core_tensor **outputs,
                       size_t count)
{
    core_status status =
        call_twice(f, CORE_COMPILE_FULLGRAPH, expected, outputs, count);
    const char *reason;

    if (status != CORE_ERROR_UNSUPPORTED) {
        counts->compiled[kind] += status == CORE_OK;
        return status;
    }
    reason = strstr(core_error_message(), ": ");
    reason = reason ? strstr(reason + 2, ": ") : NULL;
    count_reason(counts, kind, reason ? reason + 2 : core_error_message());
    counts->eager[kind]++;
    return call_twice(f, 0, expected, outputs, count);
}

core_status compiled_call_run(const compiled_call *call, compiled_kind kind,
                              compiled_counts *counts, core_tensor **outputs,
                              size_t capacity, size_t *out_count)
{
    function f = {.call = call};
    core_tensor **expected = calloc(capacity + 1, sizeof *expected);
    bool *present = calloc(capacity + 1, sizeof *present);
    core_status status = CORE_OK;

    *out_count = 0;
    if (!expected || !present)
        status = core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    if (status == CORE_OK)
        status = find_inputs(&f);
    core_seed(1);
    if (status == CORE_OK)
        status = compute(&f, f.inputs, expected, capacity, &f.noutputs);
    for (size_t i = 0; status == CORE_OK && i < f.noutputs; i++)
        present[i] = expected[i] != NULL;
    f.present = present;
    if (status == CORE_OK)
        status = run(&f, kind, counts, expected, outputs, f.noutputs);
    if (status == CORE_OK)
        *out_count = f.noutputs;
    release(expected, expected ? capacity : 0);
    free(expected);
    free(present);
    return status;
}
