/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "replay.h"

#include "compare.h"

#include <libcore/autograd.h>
#include <libcore/dispatch.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 8 };

/* Everything that one replay owns. */
typedef struct replay {
    const replay_device *on;
    const golden_case *the_case;
    core_tensor **tensors; /* like the_case->tensors; NULL where absent */
    core_value args[GOLDEN_ARGUMENTS];
    core_tensor *numbers[GOLDEN_ARGUMENTS]; /* scalars that stand in for
                                             * tensors */
    core_value results[RESULTS];
    core_tensor **flat; /* the tensors of the results, borrowed */
    size_t nflat;
    bool compiled; /* the results come from a compiled function: */
    core_tensor **owned;
    bool wide;   /* f16, bf16 and f32 are converted to f64: see check_wide */
    bool agreed; /* only with f64: see check_wide */
    bool shared; /* equal arguments are one tensor: see replay_shared */
    const char *differing; /* "result" or "gradient": what differs; or NULL */
    comparison found;
    char *text;
    size_t capacity;
} replay;

static void replay_free(replay *self)
{
    for (size_t i = 0; i < RESULTS; i++)
        core_value_release(&self->results[i]);
    for (size_t i = 0; self->owned && i < self->nflat; i++)
        core_tensor_release(self->owned[i]);
    free(self->owned);
    free(self->flat);
    for (size_t i = 0; self->tensors && i < self->the_case->tensors.count; i++)
        core_tensor_release(self->tensors[i]);
    free(self->tensors);
    for (size_t i = 0; i < GOLDEN_ARGUMENTS; i++)
        core_tensor_release(self->numbers[i]);
    comparison_free(&self->found);
}

static bool is_half(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16;
}

/* f64 becomes the widest float of the device. */
static core_dtype device_dtype(const replay *self, core_dtype dtype)
{
    if (self->wide && (is_half(dtype) || dtype == CORE_F32))
        dtype = CORE_F64;
    return dtype == CORE_F64 && !self->on->has_f64 ? CORE_F32 : dtype;
}

/* ----------------------------------------------------------- arguments -- */

/* Converts the elements of a storage to another floating dtype; NULL: no
 * memory. */
static void *converted(const golden_tensor *from, core_dtype dtype,
                       int64_t count)
{
    golden_tensor flat = {.dtype = from->dtype,
                          .ndim = 1,
                          .strides = {1},
                          .storage = from->storage};
    double *wide = malloc((size_t)count * sizeof *wide + 1);
    float *narrow = (float *)wide;

    for (int64_t i = 0; wide && i < count; i++) {
        double value = golden_element(&flat, &i).u.f;

        if (dtype == CORE_F64)
            wide[i] = value;
        else
            narrow[i] = (float)value;
    }
    return wide;
}

/* Makes the storage a tensor of one dimension. */
static core_status storage_tensor(const replay *self, const golden_tensor *from,
                                  core_tensor **out)
{
    core_dtype dtype = device_dtype(self, from->dtype);
    int64_t count = (int64_t)(from->bytes / core_dtype_size(from->dtype));
    void *other = NULL;
    core_status status;

    if (dtype != from->dtype) {
        other = converted(from, dtype, count);
        if (!other)
            return core_error_set(CORE_ERROR_OUT_OF_MEMORY,
                                  "no memory for an argument");
    }
    status = core_tensor_from_data(other ? other : from->storage, dtype, &count,
                                   1, self->on->device, out);
    free(other);
    return status;
}

/* Makes a view of the storage with the recorded sizes, strides and offset. */
static core_status make_tensor(const replay *self, const golden_tensor *from,
                               core_tensor **out)
{
    core_operator *as_strided;
    core_tensor *storage = NULL;
    core_value args[4] = {
        {CORE_VALUE_TENSOR, 0, {0}},
        {CORE_VALUE_INT_LIST, from->ndim, {.ints = from->sizes}},
        {CORE_VALUE_INT_LIST, from->ndim, {.ints = from->strides}},
        {CORE_VALUE_INT, 0, {.i = from->offset}},
    };
    core_value result;
    core_status status;

    *out = NULL;
    CORE_TRY(core_op_find("as_strided", &as_strided));
    CORE_TRY(storage_tensor(self, from, &storage));
    args[0].u.tensor = storage;
    status = core_op_call(as_strided, args, 4, &result, 1);
    core_tensor_release(storage);
    if (status == CORE_OK)
        *out = result.u.tensor;
    return status;
}

static core_value list_value(uint32_t tag, const golden_argument *from,
                             const void *array, size_t size)
{
    core_value value = {tag, (uint32_t)from->count, {0}};

    if (from->count)
        value.u.pointer = (char *)(uintptr_t)array + from->first * size;
    return value;
}

static core_value argument_value(const replay *self,
                                 const golden_argument *from)
{
    const golden_case *the_case = self->the_case;
    core_value value = {CORE_VALUE_NONE, 0, {0}};

    switch (from->kind) {
    case GOLDEN_TENSOR:
        value.tag = CORE_VALUE_TENSOR;
        value.u.tensor = self->tensors[from->first];
        break;
    case GOLDEN_TENSORS:
        return list_value(CORE_VALUE_TENSOR_LIST, from, self->tensors,
                          sizeof *self->tensors);
    case GOLDEN_INTS:
        return list_value(CORE_VALUE_INT_LIST, from, the_case->ints.at,
                          sizeof(int64_t));
    case GOLDEN_FLOATS:
        return list_value(CORE_VALUE_FLOAT_LIST, from, the_case->floats.at,
                          sizeof(double));
    case GOLDEN_BOOLS:
        return list_value(CORE_VALUE_BOOL_LIST, from, the_case->bools.at, 1);
    case GOLDEN_INT:
        return core_int(from->i);
    case GOLDEN_FLOAT:
        return core_float(from->f);
    case GOLDEN_BOOL:
        return core_bool(from->i);
    case GOLDEN_STRING:
        value.tag = CORE_VALUE_STRING;
        value.count = (uint32_t)strlen(from->text);
        value.u.string = from->text;
        break;
    case GOLDEN_DTYPE:
        value.tag = CORE_VALUE_DTYPE;
        value.u.i = device_dtype(self, (core_dtype)from->i);
        break;
    case GOLDEN_FORMAT:
        value.tag = CORE_VALUE_FORMAT;
        value.u.i = from->i;
        break;
    default:
        break;
    }
    return value;
}

/* The index among the arguments' tensors of the J-th that is present. */
static size_t present_place(const golden_case *the_case, size_t j)
{
    size_t i = 0;

    for (;; i++)
        if (!the_case->tensors.at[i].absent && j-- == 0)
            return i;
}

/* Tests whether argument i of the operator is a single tensor. */
static bool wants_tensor(const core_operator *op, uint32_t i)
{
    const char *at = strchr(core_op_schema(op), '(');

    while (at) {
        at += strspn(at, "(, ");
        if (at[0] == '*' && at[1] == ',')
            at += 3;
        if (i-- == 0)
            return strncmp(at, "Tensor", 6) == 0 && at[6] != '[';
        at = strstr(at, ", ");
    }
    return false;
}

/* The dtype of a scalar among tensors: theirs, if the category is the same. */
static core_dtype number_dtype(const replay *self, uint32_t tag)
{
    const golden_case *the_case = self->the_case;
    core_dtype dtype = the_case->tensors.count && !the_case->tensors.at->absent
                           ? the_case->tensors.at->dtype
                           : CORE_BOOL;

    if (tag == CORE_VALUE_BOOL)
        return CORE_BOOL;
    if (tag == CORE_VALUE_INT)
        return dtype == CORE_BOOL ? CORE_I64 : dtype;
    return is_half(dtype) || dtype == CORE_F32 || dtype == CORE_F64 ? dtype
                                                                    : CORE_F32;
}

/* A scalar was recorded where the caller had passed one for a tensor: it
 * becomes a 0-dim tensor. */
static core_status number_tensor(replay *self, const core_operator *op,
                                 uint32_t i)
{
    core_value *value = &self->args[i];
    core_operator *make;
    core_value args[5] = {
        *value,
        {CORE_VALUE_DTYPE, 0, {.i = number_dtype(self, value->tag)}},
        {CORE_VALUE_NONE, 0, {0}},
        {CORE_VALUE_DEVICE, 0, {.device = self->on->device}},
        {CORE_VALUE_NONE, 0, {0}},
    };
    core_value result;

    if ((value->tag != CORE_VALUE_INT && value->tag != CORE_VALUE_FLOAT &&
         value->tag != CORE_VALUE_BOOL) ||
        !wants_tensor(op, i))
        return CORE_OK;
    args[1].u.i = device_dtype(self, (core_dtype)args[1].u.i);
    CORE_TRY(core_op_find("scalar_tensor", &make));
    CORE_TRY(core_op_call(make, args, 5, &result, 1));
    self->numbers[i] = result.u.tensor;
    *value = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = result.u.tensor}};
    return CORE_OK;
}

static bool same_tensor(const golden_tensor *a, const golden_tensor *b)
{
    size_t bytes = a->ndim * sizeof *a->sizes;

    return !a->absent && !b->absent && a->dtype == b->dtype &&
           a->ndim == b->ndim && a->offset == b->offset &&
           memcmp(a->sizes, b->sizes, bytes) == 0 &&
           memcmp(a->strides, b->strides, bytes) == 0 && a->bytes == b->bytes &&
           memcmp(a->storage, b->storage, a->bytes) == 0;
}

/* Returns a reference to an earlier argument equal to argument i, or NULL. */
static core_tensor *equal_tensor(const replay *self, size_t i)
{
    const golden_tensor *tensors = self->the_case->tensors.at;

    for (size_t j = 0; j < i; j++) {
        if (!same_tensor(&tensors[j], &tensors[i]))
            continue;
        core_tensor_retain(self->tensors[j]);
        return self->tensors[j];
    }
    return NULL;
}

static bool make_arguments(replay *self, const core_operator *op)
{
    const golden_case *the_case = self->the_case;
    size_t count = the_case->tensors.count;

    self->tensors = calloc(count + 1, sizeof *self->tensors);
    if (!self->tensors) {
        snprintf(self->text, self->capacity, "no memory for the arguments");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (the_case->tensors.at[i].absent)
            continue;
        if (self->shared && (self->tensors[i] = equal_tensor(self, i)) != NULL)
            continue;
        if (make_tensor(self, &the_case->tensors.at[i], &self->tensors[i]) !=
            CORE_OK) {
            snprintf(self->text, self->capacity, "making the arguments: %s",
                     core_error_message());
            return false;
        }
    }
    for (size_t i = 0; i < the_case->gradients.count; i++) {
        size_t place = present_place(the_case, the_case->gradients.at[i].index);

        if (core_tensor_set_requires_grad(self->tensors[place], true) !=
            CORE_OK) {
            snprintf(self->text, self->capacity,
                     "argument that requires grad: %s", core_error_message());
            return false;
        }
    }
    for (uint32_t i = 0; i < the_case->nargs; i++)
        self->args[i] = argument_value(self, &the_case->args[i]);
    for (uint32_t i = 0; i < the_case->nargs; i++)
        if (number_tensor(self, op, i) != CORE_OK) {
            snprintf(self->text, self->capacity,
                     "converting a number to a tensor: %s",
                     core_error_message());
            return false;
        }
    return true;
}

/* ------------------------------------------------------------- results -- */

static bool flatten(replay *self)
{
    size_t capacity = 0;

    if (self->compiled)
        return true;
    for (size_t i = 0; i < RESULTS; i++)
        capacity += self->results[i].tag == CORE_VALUE_TENSOR_LIST
                        ? self->results[i].count
                        : 1;
    self->flat = calloc(capacity, sizeof *self->flat);
    if (!self->flat)
        return false;
    for (size_t i = 0; i < RESULTS; i++) {
        const core_value *value = &self->results[i];

        if (value->tag == CORE_VALUE_TENSOR)
            self->flat[self->nflat++] = value->u.tensor;
        else if (value->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t k = 0; k < value->count; k++)
                self->flat[self->nflat++] = value->u.tensors[k];
    }
    return true;
}

/* A view shares its argument's storage and has the recorded strides in
 * dimensions of more than one element. */
static bool check_view(const replay *self, core_tensor *got,
                       const golden_tensor *want, char *text, size_t capacity)
{
    const int64_t *strides = core_tensor_strides(got);

    if (want->numel == 0)
        return true;
    if (!self->on->meta && self->tensors[0] &&
        !core_tensor_shares_storage(got, self->tensors[0])) {
        snprintf(text, capacity, "the result is a copy, expected a view");
        return false;
    }
    if (core_tensor_offset(got) != want->offset) {
        snprintf(text, capacity, "offset: got %lld, expected %lld",
                 (long long)core_tensor_offset(got), (long long)want->offset);
        return false;
    }
    for (uint32_t d = 0; d < want->ndim; d++) {
        if (want->sizes[d] == 1 || strides[d] == want->strides[d])
            continue;
        snprintf(text, capacity,
                 "stride of dimension %u: got %lld, expected %lld", d,
                 (long long)strides[d], (long long)want->strides[d]);
        return false;
    }
    return true;
}

static bool check_results(replay *self)
{
    const golden_case *the_case = self->the_case;
    char what[600];

    if (self->nflat != the_case->results.count) {
        snprintf(self->text, self->capacity, "got %zu results, expected %zu",
                 self->nflat, the_case->results.count);
        return false;
    }
    self->differing = "result";
    for (size_t k = 0; k < self->nflat; k++) {
        const golden_tensor *want = &the_case->results.at[k];
        core_dtype dtype = device_dtype(self, want->dtype);

        if (!self->flat[k])
            snprintf(what, sizeof what, "it is missing");
        else if (compare_tensor(self->flat[k], want, dtype,
                                tolerance_of(the_case->name, dtype, false),
                                ties_of(the_case, k), &self->found, what,
                                sizeof what) &&
                 (!the_case->is_view ||
                  check_view(self, self->flat[k], want, what, sizeof what)))
            continue;
        snprintf(self->text, self->capacity, "result %zu, %s", k, what);
        return false;
    }
    self->differing = NULL;
    return true;
}

/* ---------------------------------------------------- recorded in halves -- */

/* What is too large for a dtype is infinite in it.  The elements are f64. */
static void overflow(golden_tensor *tensor, core_dtype dtype)
{
    double *elements = (double *)(uintptr_t)tensor->storage;
    double least = dtype == CORE_F16    ? 65520 /* rounds to infinity */
                   : dtype == CORE_BF16 ? 0x1.ffp127
                                        : 0x1.ffffffp127;

    for (int64_t i = 0; i < tensor->numel && tensor->dtype == CORE_F64; i++)
        if (fabs(elements[i]) >= least)
            elements[i] = copysign((double)INFINITY, elements[i]);
}

/* Compares one result with the same in f64, within the tolerance of its own
 * dtype. */
static bool agrees(const replay *self, size_t k, core_tensor *exact)
{
    core_tensor *got = self->flat[k];
    uint32_t ndim = core_tensor_ndim(exact);
    size_t bytes = (size_t)core_tensor_numel(exact) *
                   core_dtype_size(core_tensor_dtype(exact));
    golden_tensor want = {.dtype = core_tensor_dtype(exact), .ndim = ndim};
    unsigned char *data = malloc(bytes + 1);
    comparison found = {0};
    bool good;
    char what[600];

    memcpy(want.sizes, core_tensor_sizes(exact), ndim * sizeof(int64_t));
    make_dense(&want);
    want.storage = data;
    good = data && core_tensor_read(exact, data, bytes) == CORE_OK;
    if (good)
        overflow(&want, core_tensor_dtype(got));
    good = good && compare_tensor(got, &want, core_tensor_dtype(got),
                                  tolerance_of(self->the_case->name,
                                               core_tensor_dtype(got), false),
                                  (ties){0}, &found, what, sizeof what);
    free(data);
    return good;
}

/* Sums of f16 and bf16 were recorded from an implementation that rounds
 * every partial sum, and few operators of f32 from one that loses as much, so
 * the recorded value may be further from the exact one than the tolerance.  A
 * result that agrees with the same call in f64 is then correct. */
static bool check_wide(replay *self)
{
    const golden_case *the_case = self->the_case;
    replay other = {.on = self->on,
                    .the_case = the_case,
                    .wide = true,
                    .text = self->text,
                    .capacity = self->capacity};
    core_dtype dtype = the_case->results.count ? the_case->results.at[0].dtype
                                               : CORE_DTYPE_NONE;
    core_operator *op;
    char before[1200];
    bool good = false;

    if (self->on->meta || self->nflat != the_case->results.count ||
        !recording_rounds(the_case->name, dtype) ||
        (dtype == CORE_F32 && !self->on->has_f64))
        return false;
    snprintf(before, sizeof before, "%s", self->text);
    if (core_op_find(the_case->name, &op) == CORE_OK &&
        make_arguments(&other, op) &&
        core_op_call(op, other.args, the_case->nargs, other.results, RESULTS) ==
            CORE_OK &&
        flatten(&other) && other.nflat == self->nflat) {
        good = true;
        for (size_t k = 0; good && k < self->nflat; k++)
            good = core_tensor_dtype(self->flat[k]) ==
                       the_case->results.at[k].dtype &&
                   agrees(self, k, other.flat[k]);
    }
    replay_free(&other);
    snprintf(self->text, self->capacity, "%s", good ? "" : before);
    self->agreed = good;
    return good;
}

/* ----------------------------------------------------------- gradients -- */

typedef struct backward {
    size_t noutputs;
    size_t ninputs;
    core_tensor **outputs; /* borrowed */
    core_tensor **cotangents;
    core_tensor **inputs; /* borrowed */
    core_tensor **gradients;
} backward;

static void backward_free(backward *work)
{
    for (size_t i = 0; work->cotangents && i < work->noutputs; i++)
        core_tensor_release(work->cotangents[i]);
    for (size_t i = 0; work->gradients && i < work->ninputs; i++)
        core_tensor_release(work->gradients[i]);
    free(work->outputs);
    free(work->cotangents);
    free(work->inputs);
    free(work->gradients);
}

static bool same_sizes(const golden_tensor *a, const golden_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, a->ndim * sizeof *a->sizes) == 0;
}

/* The cotangent of a vector that points away from the recorded one is negated,
 * too: then the gradient is the recorded one. */
static core_status make_cotangent(const replay *self, const golden_link *link,
                                  core_tensor **out)
{
    const golden_case *the_case = self->the_case;
    ties tie = ties_of(the_case, link->index);
    golden_tensor tensor = link->tensor;
    unsigned char *storage;
    core_status status;

    if (!tie.vectors || !self->found.negated[tie.result] ||
        !same_sizes(&tensor, &the_case->results.at[link->index]))
        return make_tensor(self, &tensor, out);
    storage = malloc(tensor.bytes + 1);
    if (!storage)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY,
                              "no memory for a cotangent");
    memcpy(storage, tensor.storage, tensor.bytes);
    tensor.storage = storage;
    negate_vectors(&tensor, storage, tie, self->found.negated[tie.result]);
    status = make_tensor(self, &tensor, out);
    free(storage);
    return status;
}

/* The call and its gradients as one compiled function, which must compute what
 * it does as it is. */
static core_status gradient_compiled(const replay *self, const backward *work)
{
    const golden_case *the_case = self->the_case;
    size_t *differentiated = calloc(work->noutputs + 1, sizeof *differentiated);
    core_tensor **gradients = calloc(work->ninputs + 1, sizeof *gradients);
    compiled_call call = {.args = self->args,
                          .nargs = the_case->nargs,
                          .differentiated = differentiated,
                          .cotangents = work->cotangents,
                          .ncotangents = work->noutputs,
                          .wanted = work->inputs,
                          .nwanted = work->ninputs};
    core_status status = core_op_find(the_case->name, &call.op);
    size_t count;

    if (!differentiated || !gradients)
        status = core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    for (size_t i = 0; i < work->noutputs && status == CORE_OK; i++)
        differentiated[i] = the_case->cotangents.at[i].index;
    if (status == CORE_OK)
        status = compiled_call_run(&call, COMPILED_GRADIENT, self->on->compiled,
                                   gradients, work->ninputs, &count);
    for (size_t i = 0; gradients && i < work->ninputs; i++)
        core_tensor_release(gradients[i]);
    free(gradients);
    free(differentiated);
    return status;
}

static core_status run_backward(replay *self, backward *work)
{
    const golden_case *the_case = self->the_case;

    work->noutputs = the_case->cotangents.count;
    work->ninputs = the_case->gradients.count;
    work->outputs = calloc(work->noutputs + 1, sizeof *work->outputs);
    work->cotangents = calloc(work->noutputs + 1, sizeof *work->cotangents);
    work->inputs = calloc(work->ninputs + 1, sizeof *work->inputs);
    work->gradients = calloc(work->ninputs + 1, sizeof *work->gradients);
    if (!work->outputs || !work->cotangents || !work->inputs ||
        !work->gradients)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY,
                              "no memory for the gradients");
    for (size_t i = 0; i < work->noutputs; i++) {
        const golden_link *link = &the_case->cotangents.at[i];

        work->outputs[i] = self->flat[link->index];
        CORE_TRY(make_cotangent(self, link, &work->cotangents[i]));
    }
    for (size_t i = 0; i < work->ninputs; i++)
        work->inputs[i] = self->tensors[present_place(
            the_case, the_case->gradients.at[i].index)];
    if (self->compiled)
        CORE_TRY(gradient_compiled(self, work));
    return core_grad(work->outputs, work->noutputs, work->cotangents,
                     work->inputs, work->ninputs, CORE_ALLOW_UNUSED,
                     work->gradients);
}

/* A missing gradient equals one of zeros. */
static bool is_zero(const golden_tensor *want)
{
    int64_t index[CORE_MAX_NDIM] = {0};

    for (int64_t i = 0; i < want->numel; i++) {
        if (golden_element(want, index).u.f != 0)
            return false;
        for (uint32_t d = want->ndim; d-- > 0;) {
            if (++index[d] < want->sizes[d])
                break;
            index[d] = 0;
        }
    }
    return true;
}

static bool check_gradient(replay *self, core_tensor *got,
                           const golden_link *want)
{
    core_dtype dtype = device_dtype(self, want->tensor.dtype);
    comparison found = {0};
    char what[600];

    if (!got && is_zero(&want->tensor))
        return true;
    if (!got)
        snprintf(what, sizeof what, "it is missing");
    else if (compare_tensor(got, &want->tensor, dtype,
                            tolerance_of(self->the_case->name, dtype, true),
                            (ties){0}, &found, what, sizeof what))
        return true;
    snprintf(self->text, self->capacity, "gradient of tensor %zu, %s",
             want->index, what);
    return false;
}

static replay_outcome replay_gradients(replay *self)
{
    const golden_case *the_case = self->the_case;
    backward work = {0};
    replay_outcome outcome = REPLAY_PASSED;

    if (run_backward(self, &work) != CORE_OK) {
        snprintf(self->text, self->capacity, "gradient: %s",
                 core_error_message());
        outcome = core_error_code() == CORE_ERROR_NO_KERNEL ? REPLAY_MISSING
                                                            : REPLAY_FAILED;
        goto done;
    }
    for (size_t i = 0; i < work.ninputs && outcome == REPLAY_PASSED; i++)
        if (!check_gradient(self, work.gradients[i],
                            &the_case->gradients.at[i])) {
            self->differing = "gradient";
            outcome = REPLAY_FAILED;
        }
done:
    backward_free(&work);
    return outcome;
}

/* ---------------------------------------------------------------- case -- */

static replay_outcome call_failed(replay *self)
{
    core_status code = core_error_code();

    /* The meta device returns this where the shape depends on data. */
    if (self->on->meta && code == CORE_ERROR_DATA_DEPENDENT)
        return REPLAY_PASSED;
    snprintf(self->text, self->capacity, "%s", core_error_message());
    return code == CORE_ERROR_NO_KERNEL ? REPLAY_MISSING : REPLAY_FAILED;
}

/* Calls the operator by core_compile, without gradients and, if the case has
 * some, with them. */
static core_status call_compiled(replay *self, core_operator *op)
{
    enum { CAPACITY = 256 };
    const compiled_call call = {
        .op = op, .args = self->args, .nargs = self->the_case->nargs};
    compiled_counts *counts = self->on->compiled;
    core_tensor **outputs = calloc(CAPACITY, sizeof *outputs);
    bool differentiated = self->the_case->gradients.count > 0, before;
    core_status status;

    self->owned = outputs;
    if (!outputs)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    before = core_grad_mode_set(false);
    status = compiled_call_run(&call, COMPILED_FORWARD, counts, outputs,
                               CAPACITY, &self->nflat);
    core_grad_mode_set(before);
    if (status == CORE_OK && differentiated) {
        for (size_t i = 0; i < self->nflat; i++)
            core_tensor_release(outputs[i]);
        self->nflat = 0;
        memset(outputs, 0, CAPACITY * sizeof *outputs);
        status = compiled_call_run(&call, COMPILED_JOINT, counts, outputs,
                                   CAPACITY, &self->nflat);
    }
    if (status != CORE_OK)
        return status;
    self->flat = calloc(self->nflat + 1, sizeof *self->flat);
    if (!self->flat)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    memcpy(self->flat, outputs, self->nflat * sizeof *outputs);
    return CORE_OK;
}

static core_status call(replay *self, core_operator *op)
{
    return self->compiled ? call_compiled(self, op)
                          : core_op_call(op, self->args, self->the_case->nargs,
                                         self->results, RESULTS);
}

static replay_outcome run(replay *self)
{
    const golden_case *the_case = self->the_case;
    core_operator *op;

    if (core_op_find(the_case->name, &op) != CORE_OK) {
        snprintf(self->text, self->capacity, "not registered");
        return REPLAY_MISSING;
    }
    if (!make_arguments(self, op))
        return REPLAY_FAILED;
    if (call(self, op) != CORE_OK)
        return call_failed(self);
    if (!flatten(self)) {
        snprintf(self->text, self->capacity, "no memory for the results");
        return REPLAY_FAILED;
    }
    if (!check_results(self) && !check_wide(self))
        return REPLAY_FAILED;
    if (!signs_agree(the_case, &self->found)) {
        snprintf(self->text, self->capacity,
                 "the signs of U and Vh do not agree");
        return REPLAY_FAILED;
    }
    /* Other positions among equal values have other gradients. */
    if (the_case->gradients.count == 0 || self->found.tied || self->on->meta)
        return REPLAY_PASSED;
    return replay_gradients(self);
}

/* The outcome of a case that the list of differences has.  If it passes, the
 * list is out of date; only a device with every dtype can tell. */
static replay_outcome listed(const replay *self, replay_outcome outcome)
{
    const golden_difference *difference = self->the_case->difference;
    const char *differing = self->differing;

    if (outcome == REPLAY_FAILED && differing &&
        strcmp(differing, difference->part) == 0) {
        snprintf(self->text, self->capacity, "%s: %s", difference->part,
                 difference->reason);
        return REPLAY_DIFFERS;
    }
    if (outcome != REPLAY_PASSED || self->on->meta || !self->on->has_f64)
        return outcome;
    snprintf(self->text, self->capacity,
             "agrees with the recording, though it is listed as a difference");
    return REPLAY_FAILED;
}

/* Repeats a call of which only gradients differ.  Where two arguments have the
 * same bits, the recorded call may have had one tensor twice, whose gradient is
 * that of both: x / x. */
static replay_outcome replay_shared(const replay_device *on,
                                    const golden_case *the_case)
{
    const golden_tensor *tensors = the_case->tensors.at;
    char text[1200];
    replay self = {.on = on,
                   .the_case = the_case,
                   .shared = true,
                   .text = text,
                   .capacity = sizeof text};
    replay_outcome outcome = REPLAY_FAILED;
    bool equal = false;

    for (size_t i = 0; i < the_case->tensors.count; i++)
        for (size_t j = 0; j < i; j++)
            equal |= same_tensor(&tensors[j], &tensors[i]);
    if (equal && the_case->gradients.count > 1)
        outcome = run(&self);
    replay_free(&self);
    return outcome;
}

static replay_outcome replay_as(const replay_device *on,
                                const golden_case *the_case, bool compiled,
                                char *text, size_t capacity)
{
    replay self = {.on = on,
                   .the_case = the_case,
                   .compiled = compiled,
                   .text = text,
                   .capacity = capacity};
    replay_outcome outcome;

    text[0] = 0;
    core_error_clear();
    outcome = run(&self);
    if (outcome == REPLAY_PASSED && self.agreed)
        snprintf(text, capacity, REPLAY_AGREED);
    if (outcome == REPLAY_FAILED && self.differing &&
        strcmp(self.differing, "gradient") == 0 &&
        replay_shared(on, the_case) == REPLAY_PASSED) {
        snprintf(text, capacity, REPLAY_SHARED);
        outcome = REPLAY_PASSED;
    }
    if (the_case->difference)
        outcome = listed(&self, outcome);
    replay_free(&self);
    return outcome;
}

replay_outcome replay_case(const replay_device *on, const golden_case *the_case,
                           char *text, size_t capacity)
{
    replay_outcome outcome = replay_as(on, the_case, false, text, capacity);
    replay_outcome compiled;
    char other[1200];

    if (!on->compiled || outcome == REPLAY_FAILED || outcome == REPLAY_MISSING)
        return outcome;
    compiled = replay_as(on, the_case, true, other, sizeof other);
    if (compiled == outcome)
        return outcome;
    snprintf(text, capacity, "compiled: %s", other);
    return REPLAY_FAILED;
}
