/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scope.h: scopes, which own the intermediate results of a computation.
 *
 * The calls of expressions.h return their result instead of a status.  They
 * need a scope, which owns what they return and keeps the first error:
 *
 *     core_status network(core_tensor *x, core_tensor *w, core_tensor **out_y)
 *     {
 *         core_scope scope = core_scope_begin();
 *         core_tensor *y = core_x_relu(core_x_matmul(x, w));
 *
 *         return core_scope_end_with(scope, core_x_softmax(y, -1), out_y);
 *     }
 *
 * After the first error the calls do nothing and return NULL.  The end of the
 * scope releases everything that it owns, and returns the error, to whose
 * message the file and the line of the call were added.
 *
 * Scopes are nested, and each thread has its own.  A call belongs to the
 * innermost scope of its thread.  An error of a scope does not reach the scope
 * around it, unless core_scope_return ends it.  So a function that begins and
 * ends a scope can be called from anywhere: hooks, gradients, the functions of
 * core_compile and core_vmap, worker threads.  Other threads may use a tensor
 * of a scope until it ends.
 *
 * Functions here that end in `_at` are called by the macro of the same name,
 * which adds the place of the call.  A call outside of any scope fails with
 * INVALID_ARGUMENT, and the first of them in a process prints that to the
 * standard error stream (or the log's sink, settings.h).  After a scope that
 * there was no memory to begin it fails with OUT_OF_MEMORY, and prints nothing.
 *
 * A tensor must not be used after its scope has ended, like memory after free:
 * that is not checked. */

#ifndef LIBCORE_SCOPE_H
#define LIBCORE_SCOPE_H

#include "status.h"
#include "tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

#define CORE_HERE_TEXT_(line) #line
#define CORE_HERE_TEXT(line) CORE_HERE_TEXT_(line)

/* The file and the line, "model.c:42". */
#define CORE_HERE __FILE__ ":" CORE_HERE_TEXT(__LINE__)

/* -------------------------------------------------------------- scopes -- */

/* A scope that was begun.  Its fields are private. */
typedef struct core_scope {
    const void *thread;
    uint64_t number;
} core_scope;

/* Begins a scope inside the innermost one of this thread.  Without memory for
 * it, calls return NULL, and the end of the scope returns OUT_OF_MEMORY. */
#define core_scope_begin() core_scope_begin_at(CORE_HERE)
core_scope core_scope_begin_at(const char *where);

/* Ends a scope: releases what it owns, and returns its first error, which is
 * then the error record of the thread.  INVALID_ARGUMENT if the scope is not
 * open in this thread; or if a scope inside it was not ended, which is then
 * ended, too. */
core_status core_scope_end(core_scope scope);

/* Ends a scope that has one result: calls core_scope_output and then
 * core_scope_end.  *out_result is NULL on failure; the caller owns it. */
#define core_scope_end_with(scope, result, out_result) \
    core_scope_end_with_at(CORE_HERE, scope, result, out_result)
core_status core_scope_end_with_at(const char *where, core_scope scope,
                                   core_tensor *result,
                                   core_tensor **out_result);

/* Ends the scope of a program's main function: prints the error, if there is
 * one, and a newline to the standard error stream.  Without an error it flushes
 * the standard output, which is an IO error if it or an earlier part of that
 * cannot be written.  Returns the exit status, EXIT_SUCCESS or EXIT_FAILURE. */
int core_scope_exit(core_scope scope);

/* Defines the main function of a program, whose body follows, in a scope that
 * core_scope_exit ends:
 *
 *     CORE_MAIN(argc, argv)
 *     {
 *         core_tensor *x = core_x_eye(argc, CORE_F32);
 *
 *         CORE_CHECK(core_tensor_print(core_x_exp(x)));
 *     }
 *
 * The body returns nothing: the exit status is that of the scope.  count and
 * arguments name the parameters of main: an int, and a char ** that ends with
 * NULL.  So the first argument that was not given is NULL, which expressions
 * report as an error; do not read beyond it. */
#define CORE_MAIN(count, arguments)                           \
    static void core_main_(int, char **);                     \
    int main(int count_, char **arguments_)                   \
    {                                                         \
        core_scope scope_ = core_scope_begin();               \
                                                              \
        core_main_(count_, arguments_);                       \
        return core_scope_exit(scope_);                       \
    }                                                         \
    static void core_main_(int count __attribute__((unused)), \
                           char **arguments __attribute__((unused)))

/* Ends a scope, and keeps a result in the scope around it, which also gets the
 * error, if there is one.  Returns the result, borrowed, or NULL after an
 * error.  INVALID_ARGUMENT if there is no scope around it. */
#define core_scope_return(scope, result) \
    core_scope_return_at(CORE_HERE, scope, result)
core_tensor *core_scope_return_at(const char *where, core_scope scope,
                                  core_tensor *result);

/* Returns the first error of the innermost scope, or CORE_OK.  The message is
 * in the error record until another call fails.  INVALID_ARGUMENT if there is
 * no scope. */
core_status core_scope_status(void);

/* ---------------------------------------------------- tensors in scopes -- */

/* Keeps a tensor in the scope around the innermost one when that ends, also if
 * it ends with a later error.  Returns the tensor, borrowed, or NULL after an
 * error. */
#define core_scope_keep(tensor) core_scope_keep_at(CORE_HERE, tensor)
core_tensor *core_scope_keep_at(const char *where, core_tensor *tensor);

/* Makes a tensor a result of the innermost scope: when that ends without an
 * error, *out_tensor is a reference, which the caller owns.  Until then, and
 * after an error, it is NULL; out_tensor must be valid until then.  It is not
 * written if the program does not end the scope itself.  The last call for an
 * out_tensor counts.  For functions with several results. */
#define core_scope_output(tensor, out_tensor) \
    core_scope_output_at(CORE_HERE, tensor, out_tensor)
void core_scope_output_at(const char *where, core_tensor *tensor,
                          core_tensor **out_tensor);

/* Makes the innermost scope the owner of a reference that a function returned
 * with a status, and returns the tensor, borrowed:
 *
 *     y = core_scope_own(my_layer(x, &y), &y);
 *
 * If the status is an error, or the scope has one, it returns NULL.  The
 * function is called in any case. */
#define core_scope_own(status, tensor) \
    core_scope_own_at(CORE_HERE, status, tensor)
core_tensor *core_scope_own_at(const char *where, core_status status,
                               core_tensor *const *tensor);

/* Makes the innermost scope the owner of an object of any other kind, which a
 * function returned with a status: at the end of the scope, release(object) is
 * called, which may begin scopes of its own but not use this one.  Objects and
 * tensors are released in the reverse order.  Returns the object, borrowed.  If
 * the status is an error, or the scope has one, it returns NULL; an object that
 * came with CORE_OK is then released at once.  INVALID_ARGUMENT: release is
 * NULL. */
#define core_scope_own_object(status, object, release) \
    core_scope_own_object_at(CORE_HERE, status, object, release)
void *core_scope_own_object_at(const char *where, core_status status,
                               void *object, void (*release)(void *object));

/* Returns text formatted as by printf, for names: core_x_text("layers.%d", i).
 * The innermost scope owns it.  NULL after an error.  INVALID_ARGUMENT: an
 * argument cannot be formatted, or format is NULL. */
#define core_x_text(...) core_x_text_at(CORE_HERE, __VA_ARGS__)
const char *core_x_text_at(const char *where, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends a scope inside another one, whose error its error becomes.  CORE_CHECK
 * of core_scope_end would not end it after an error. */
#define core_scope_end_nested(scope) \
    core_scope_check_at(CORE_HERE, "core_scope_end", core_scope_end(scope))

/* Calls a function that returns a status, and returns it.  An error becomes the
 * scope's, with the file and the line of the call.  After an earlier error it
 * does not call the function, and returns that error. */
#define CORE_CHECK(call)                                        \
    core_scope_check_at(CORE_HERE, #call,                       \
                        core_scope_status() == CORE_OK ? (call) \
                                                       : core_scope_status())
core_status core_scope_check_at(const char *where, const char *call,
                                core_status status);

/* --------------------------------------------------------------- lists -- */

/* A list argument of integers: sizes, strides, dimensions.  CORE_NO_SIZES is an
 * empty list, and omits an optional argument. */
typedef struct core_sizes {
    const int64_t *items;
    size_t count;
} core_sizes;

/* A list argument of floating-point numbers, of which CORE_NO_FLOATS is an
 * empty one, or absent. */
typedef struct core_floats {
    const double *items;
    size_t count;
} core_floats;

/* A list argument of booleans, one byte each. */
typedef struct core_bools {
    const uint8_t *items;
    size_t count;
} core_bools;

/* A list of tensors: an argument, of which CORE_NO_LIST is an empty one, or a
 * result, which its scope owns.  Read results with core_list_at, since after an
 * error they are empty. */
typedef struct core_list {
    core_tensor *const *items;
    size_t count;
} core_list;

/* Returns a list of the caller's memory, borrowed. */
static inline core_sizes core_sizes_from(const int64_t *items, size_t count)
{
    core_sizes list;

    list.items = items;
    list.count = count;
    return list;
}

/* Returns a list of the caller's memory, borrowed. */
static inline core_floats core_floats_from(const double *items, size_t count)
{
    core_floats list;

    list.items = items;
    list.count = count;
    return list;
}

/* Returns a list of the caller's memory, borrowed. */
static inline core_bools core_bools_from(const uint8_t *items, size_t count)
{
    core_bools list;

    list.items = items;
    list.count = count;
    return list;
}

/* Returns a list of the caller's memory, borrowed. */
static inline core_list core_list_from(core_tensor *const *items, size_t count)
{
    core_list list;

    list.items = items;
    list.count = count;
    return list;
}

/* Returns a tensor of a list, borrowed, or NULL if index is not below their
 * number. */
static inline core_tensor *core_list_at(core_list list, size_t index)
{
    return index < list.count ? list.items[index] : NULL;
}

/* Reports that a list has `given` tensors instead of `wanted`, as an error of
 * the innermost scope: SHAPE. */
void core_list_unpack_refuse(const char *where, size_t given, size_t wanted)
    __attribute__((cold));

/* Stores the tensors of a list result, borrowed:
 *
 *     CORE_UNPACK(core_x_chunk(gates, 4, 1), &i, &f, &g, &o);
 *
 * After an error all are NULL.  SHAPE if the list has another number of
 * tensors; the message has both numbers. */
#ifdef __cplusplus
#define CORE_UNPACK(list, ...) \
    core_list_unpack_to(CORE_HERE, list, {__VA_ARGS__})
#else
#define CORE_UNPACK(list, ...)                                  \
    core_list_unpack_at(                                        \
        CORE_HERE, list, (core_tensor * *const[]){__VA_ARGS__}, \
        sizeof((core_tensor **const[]){__VA_ARGS__}) / sizeof(core_tensor **))
#endif
static inline void core_list_unpack_at(const char *where, core_list list,
                                       core_tensor **const *out_tensors,
                                       size_t count)
{
    bool fits = list.count == count;
    size_t i;

    for (i = 0; i < count; i++)
        *out_tensors[i] = fits ? list.items[i] : NULL;
    if (!fits)
        core_list_unpack_refuse(where, list.count, count);
}

/* A list to which tensors are added one after the other, {0} at first:
 *
 *     core_growing_list parts = {0};
 *
 *     for (int64_t i = 0; i < count; i++)
 *         core_x_append(&parts, step(core_x_part(x, "*", i)));
 *     y = core_x_stack(parts.list); */
typedef struct core_growing_list {
    core_list list; /* the tensors so far, borrowed */
    size_t capacity;
    core_scope scope; /* that of the first call, which owns the memory */
} core_growing_list;

/* Adds a tensor, which stays its scope's, to a list.  The scope of the first
 * call owns the memory of the list: add in that one, and bring there what an
 * inner scope made with core_scope_return or core_scope_keep.
 * INVALID_ARGUMENT: an argument is NULL, or the list began in another scope. */
#define core_x_append(list, tensor) core_x_append_at(CORE_HERE, list, tensor)
void core_x_append_at(const char *where, core_growing_list *list,
                      core_tensor *tensor);

#define CORE_NO_SIZES core_sizes_from(NULL, 0)
#define CORE_NO_FLOATS core_floats_from(NULL, 0)
#define CORE_NO_LIST core_list_from(NULL, 0)

/* Options of a function, for C: the address of a struct whose struct_size is
 * set, with the given fields, at least one; the others are 0:
 *
 *     CORE_OPTIONS(core_sgd_options, .learning_rate = 0.1, .momentum = 0.9)
 *
 * The struct exists until the end of the block. */
#define CORE_OPTIONS(type, ...) \
    (&(const type){.struct_size = sizeof(type), __VA_ARGS__})

/* Lists of at least one item: CORE_SIZES(2, 3), CORE_LIST(a, b, c).  In C the
 * items live until the end of the block, in C++ until the end of the
 * statement. */
#ifdef __cplusplus
#define CORE_SIZES(...) core_sizes_of({__VA_ARGS__})
#define CORE_FLOATS(...) core_floats_of({__VA_ARGS__})
#define CORE_BOOLS(...) core_bools_of({__VA_ARGS__})
#define CORE_LIST(...) core_list_of({__VA_ARGS__})
#else
#define CORE_ITEMS(from, type, ...) \
    from((type[]){__VA_ARGS__}, sizeof((type[]){__VA_ARGS__}) / sizeof(type))
#define CORE_SIZES(...) CORE_ITEMS(core_sizes_from, const int64_t, __VA_ARGS__)
#define CORE_FLOATS(...) CORE_ITEMS(core_floats_from, const double, __VA_ARGS__)
#define CORE_BOOLS(...) CORE_ITEMS(core_bools_from, const uint8_t, __VA_ARGS__)
#define CORE_LIST(...) \
    CORE_ITEMS(core_list_from, core_tensor *const, __VA_ARGS__)
#endif

/* Omits an optional number argument. */
static inline core_scalar core_none(void)
{
    core_scalar scalar = {CORE_VALUE_NONE, 0, {0}};

    return scalar;
}

/* --------------------------------------------------- values of tensors -- */

/* Returns the size of a dimension; a negative dim counts from the end.  Returns
 * 0 if tensor is NULL, as it is after an error, and if dim is out of range,
 * which is an error of the scope: INDEX. */
#define core_x_size(tensor, dim) core_x_size_at(CORE_HERE, tensor, dim)
int64_t core_x_size_at(const char *where, const core_tensor *tensor,
                       int64_t dim);

/* Returns a part of a tensor, by an index as in Python.  It is a view, or the
 * tensor itself if the index selects all of it.  The innermost scope owns it:
 *
 *     core_x_part(x, ":, -1")                   x[:, -1]
 *     core_x_part(x, "..., 1:, None")           x[..., 1:, None]
 *     core_x_part(cache, "0, :, *:*", a, b)     cache[0, :, a:b]
 *
 * The items, after commas, are an index, which removes its dimension; a slice
 * start:stop or start:stop:step, of which each may be missing; "None", a new
 * dimension of size 1; and "...", the dimensions that no item is for.  Negative
 * numbers count from the end.  Each `*` stands for the next of up to 8 integers
 * after the index.  To write into a part, use core_x_copy_.
 *
 * NULL after an error of the scope.  INVALID_ARGUMENT: the index is malformed,
 * and the message says where, or the number of integers is not that of `*`.
 * INDEX: a number is out of range. */
#define core_x_part(tensor, ...)                                       \
    core_x_part_at(CORE_HERE, tensor, CORE_PART_TEXT_(__VA_ARGS__, 0), \
                   CORE_PART_NUMBERS_(__VA_ARGS__))
core_tensor *core_x_part_at(const char *where, core_tensor *tensor,
                            const char *index, core_sizes numbers);

#define CORE_PART_TEXT_(text, ...) text
#define CORE_PART_COUNT_(a, b, c, d, e, f, g, h, i, count, ...) count
#define CORE_PART_NUMBERS_(...)                                                \
    CORE_PART_JOIN_(CORE_PART_NUMBERS_, CORE_PART_COUNT_(__VA_ARGS__, 1, 1, 1, \
                                                         1, 1, 1, 1, 1, 0, 0)) \
    (__VA_ARGS__)
#define CORE_PART_JOIN_(name, count) CORE_PART_JOIN2_(name, count)
#define CORE_PART_JOIN2_(name, count) name##count
#define CORE_PART_NUMBERS_0(text) CORE_NO_SIZES
#define CORE_PART_NUMBERS_1(text, ...) CORE_SIZES(__VA_ARGS__)

/* Creates a tensor of the innermost scope with core_tensor_from_data. */
#define core_x_from_data(data, dtype, sizes, device) \
    core_x_from_data_at(CORE_HERE, data, dtype, sizes, device)
static inline core_tensor *core_x_from_data_at(const char *where,
                                               const void *data,
                                               core_dtype dtype,
                                               core_sizes sizes,
                                               core_device *device)
{
    core_tensor *tensor = NULL;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_tensor_from_data(data, dtype, sizes.items, sizes.count,
                                       device, &tensor);
    return core_scope_own_at(where, status, &tensor);
}

/* Returns the only element of a tensor, or 0 after an error.  Waits and fails
 * like core_tensor_item. */
#define core_x_item_float(tensor) core_x_item_float_at(CORE_HERE, tensor)
static inline double core_x_item_float_at(const char *where,
                                          core_tensor *tensor)
{
    double value = 0;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_tensor_item_float(tensor, &value);
    (void)core_scope_check_at(where, "core_tensor_item_float", status);
    return value;
}

/* Returns the only element of a tensor, or 0 after an error.  Waits and fails
 * like core_tensor_item_int. */
#define core_x_item_int(tensor) core_x_item_int_at(CORE_HERE, tensor)
static inline int64_t core_x_item_int_at(const char *where, core_tensor *tensor)
{
    int64_t value = 0;
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_tensor_item_int(tensor, &value);
    (void)core_scope_check_at(where, "core_tensor_item_int", status);
    return value;
}

/* --------------------------------------- what expressions.h consists of -- */

/* Calls an operator for a call of expressions.h, and returns its only result, a
 * tensor, which the innermost scope owns; NULL after an error.  op, args: as in
 * core_op_invoke; the arguments are not checked.  where: static text. */
core_tensor *core_scope_call(const char *where, uint32_t op,
                             const core_value *args, uint32_t nargs);

/* Does the same as core_scope_call, and checks the arguments as core_op_call
 * does. */
core_tensor *core_scope_call_checked(const char *where, uint32_t op,
                                     const core_value *args, uint32_t nargs);

/* Calls an operator with other results, and checks the arguments as
 * core_op_call does.  The innermost scope owns the tensors and lists in
 * results, all of which are NONE after an error. */
core_status core_scope_call_results(const char *where, uint32_t op,
                                    const core_value *args, uint32_t nargs,
                                    core_value *results, uint32_t nresults);

#ifdef __cplusplus
}

/* Returns the sizes in braces.  They are valid as long as the list, until the
 * end of the full expression. */
static inline core_sizes core_sizes_of(std::initializer_list<int64_t> list)
{
    return core_sizes_from(list.begin(), list.size());
}

/* Returns the numbers in braces, valid like those of core_sizes_of. */
static inline core_floats core_floats_of(std::initializer_list<double> list)
{
    return core_floats_from(list.begin(), list.size());
}

/* Returns the bools in braces, valid like those of core_sizes_of. */
static inline core_bools core_bools_of(std::initializer_list<uint8_t> list)
{
    return core_bools_from(list.begin(), list.size());
}

/* Stores the tensors of a list result, borrowed, in the variables in braces, as
 * core_list_unpack_at does. */
static inline void core_list_unpack_to(
    const char *where, core_list list,
    std::initializer_list<core_tensor **> out_tensors)
{
    core_list_unpack_at(where, list, out_tensors.begin(), out_tensors.size());
}

/* Returns the tensors in braces, borrowed; valid as in core_sizes_of. */
static inline core_list core_list_of(std::initializer_list<core_tensor *> list)
{
    return core_list_from(list.begin(), list.size());
}
#endif

#endif
